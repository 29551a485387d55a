"""The only importer of scikit-learn: its base classes, its checks, and one warning that is both of its kind and of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from svmcore import _errors
from svmcore.problem import border

try:
    from sklearn import get_config
    from sklearn.base import BaseEstimator, ClassifierMixin, OutlierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning, NotFittedError
    from sklearn.linear_model._base import LinearClassifierMixin, SparseCoefMixin
    from sklearn.utils import check_array, check_random_state, column_or_1d, compute_class_weight, validation
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length

    _validate = validation.validate_data
except (ImportError, AttributeError) as error:
    raise _errors.MissingExtraError(
        'the estimators need scikit-learn 1.6 or later; install it with: pip install "svmcore[sklearn]"'
    ) from error

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Estimators without callbacks: this version of scikit-learn has none."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Nothing."""
        return method


class FitWarning(_errors.ConvergenceWarning, ConvergenceWarning):  # type: ignore[misc]
    """`svmcore.ConvergenceWarning` and `sklearn.exceptions.ConvergenceWarning` in one: filters for either apply."""


def validate_data(estimator: Any, X: Any, *more: Any, **words: Any) -> Any:
    """scikit-learn's, of a matrix that its conversions can read."""
    border.whole(X, "X")
    return _validate(estimator, X, *more, **words)


def svm_class(name: str) -> Any:
    """A class of `sklearn.svm`."""
    from sklearn import svm

    return getattr(svm, name)


def permutation_test_score() -> Any:
    """The function of `sklearn.model_selection`."""
    from sklearn.model_selection import permutation_test_score

    return permutation_test_score


__all__ = [
    "BaseEstimator",
    "CallbackSupportMixin",
    "ClassifierMixin",
    "FitWarning",
    "LinearClassifierMixin",
    "NotFittedError",
    "OutlierMixin",
    "RegressorMixin",
    "SparseCoefMixin",
    "available_if",
    "check_array",
    "check_classification_targets",
    "check_consistent_length",
    "check_random_state",
    "column_or_1d",
    "compute_class_weight",
    "get_config",
    "svm_class",
    "validate_data",
    "with_callbacks",
]
