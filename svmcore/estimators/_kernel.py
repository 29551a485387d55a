"""Estimators with a kernel: what they take, what they show, and what classifiers make of the values of their machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from svmcore._errors import InputError
from svmcore._keywords import Gamma, KernelLike
from svmcore._types import FloatArray
from svmcore.base.door import reals
from svmcore.estimators import _base as base
from svmcore.estimators import _sklearn as sk
from svmcore.estimators._base import TrainingData
from svmcore.estimators._fitted import Fitted, Shown, count
from svmcore.estimators._machine import Labelled, Machine
from svmcore.problem import border

NO_PROBABILITIES = (
    "'{0}' object has no attribute 'predict_proba'; use svmcore.SVCPathCV().predict_proba, which needs no further fit, or "
    "sklearn.calibration.CalibratedClassifierCV({0}(), ensemble=False)"
)


@dataclass(kw_only=True, eq=False, repr=False)
class KernelMachine(Shown, Machine):
    """The kernel's parameters, and the attributes of support vectors."""

    kernel: KernelLike = "rbf"
    degree: int = 3
    gamma: Gamma = "scale"
    coef0: float = 0.0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags

    # ---- check -------------------------------------------------------------------------------------------------------

    def _check_points(self, X: Any, y: Any) -> tuple[Any, Any]:
        if callable(self.kernel):
            if y is not None:
                sk.check_consistent_length(X, y)
            return X, y
        if self._given and hasattr(X, "tocsr"):
            raise TypeError("Sparse precomputed kernels are not supported.")
        return super()._check_points(X, y)

    def _check(self, X: Any, y: Any, sample_weight: Any) -> TrainingData:
        data = super()._check(X, y, sample_weight)
        if self._given and data.X.shape[0] != data.X.shape[1]:
            n, width = data.X.shape
            raise InputError(f"Precomputed matrix must be a square matrix. Input is a {n}x{width} matrix.")
        return data

    # ---- solve -------------------------------------------------------------------------------------------------------

    def _outside(self, data: TrainingData, words: dict[str, Any]) -> tuple[TrainingData, dict[str, Any]]:
        """Data and words with kernel values in place of the objects of a kernel function."""
        if not callable(self.kernel):
            return data, words
        return data._replace(X=kernel_values(self.kernel, data.X, data.X)), words | {"kernel": "precomputed"}

    def _store(self, found: Any, data: TrainingData) -> None:
        super()._store(found, data)
        self.shape_fit_ = tuple(data.X.shape) if hasattr(data.X, "shape") else (count(data.X),)
        self.fit_status_ = int(not self._fitted.converged)
        n_iter = self._fitted.n_iter
        self.n_iter_ = n_iter if data.classes is not None else int(n_iter[0])

    # ---- values ------------------------------------------------------------------------------------------------------

    def _values(self, X: Any) -> FloatArray:
        """The values of the machines at the rows of X, one column for each."""
        known = self._known
        if callable(self.kernel):
            return known.values_of(kernel_values(self.kernel, X, known.objects))  # type: ignore[no-any-return]
        if self._given:
            return known.values_of(self._kernel_columns(X, known))  # type: ignore[no-any-return]
        return self._from_rows(known.values, X)  # type: ignore[no-any-return]

    def _from_rows(self, question: Callable[[Any], Any], X: Any) -> Any:
        """What the machines say about rows of numbers."""
        if hasattr(X, "tocsr") and not self._known.sparse:
            raise InputError(f"cannot use sparse input in {type(self).__name__!r} trained on dense data")
        return self._looked_at(question, X)

    def _kernel_columns(self, X: Any, known: Fitted) -> FloatArray:
        """The columns of the support vectors in rows of kernel values: all columns are given, or these."""
        if not base.plain(X):
            base.come_in(X, "X")
            X = sk.check_array(X, dtype=np.float64, order="C")
        if not np.isfinite(X).all():
            raise InputError("X contains NaN or infinity; a kernel has finite values")
        if X.shape[1] == known.n:
            X = X[:, known.support]
        elif X.shape[1] != known.support.size:
            raise InputError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting {known.n} features as input: the "
                f"kernel values of all training rows, or of the {known.support.size} support vectors"
            )
        return np.asarray(X)

    # ---- attributes --------------------------------------------------------------------------------------------------

    @property
    def support_(self) -> Any:
        """The rows of the support vectors, sorted by class."""
        return self._known.support.astype(np.int32)

    @property
    def intercept_(self) -> Any:
        """The constants of the decision functions."""
        return self._known.intercept

    @property
    def coef_(self) -> Any:
        """The weights of the features, for the linear kernel; they cannot be written to."""
        if not (isinstance(self.kernel, str) and self.kernel == "linear"):
            raise AttributeError("coef_ is only available when using a linear kernel")
        return self._known.weights

    @property
    def _gamma(self) -> float:
        return float(self._known.machines[0].kernel.gamma)


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(sk.ClassifierMixin, Labelled, KernelMachine):  # type: ignore[misc]
    """What classifiers with kernels make of the values of their machines."""

    class_weight: Any = None
    decision_function_shape: Literal["ovr", "ovo"] = "ovr"
    break_ties: bool = False

    def _plain_words(self) -> dict[str, Any]:
        border.choice("decision_function_shape", self.decision_function_shape, ("ovr", "ovo"))
        return super()._plain_words()

    def _pairs_asked(self) -> bool:
        """Whether the values of the pairs are wanted, and not a score for each class."""
        if self.decision_function_shape != "ovo" or len(self.classes_) == 2:
            return False
        if self._known.pairs:
            return True
        raise InputError(
            'decision_function_shape="ovo" shows the machines of pairs of classes, and multi_class="ovr" trains none; use '
            'decision_function_shape="ovr"'
        )

    def decision_function(self, X: Any) -> FloatArray:
        """f(x) for two classes, shape (m,); else a score for each class, or with "ovo" the value of each pair.

        Of a pair the value is positive for the first class, as in scikit-learn.
        """
        values = self._values(X)
        if self._pairs_asked():
            return -values
        return values[:, 0] if len(self.classes_) == 2 else self._known.division.scores(values)

    def predict(self, X: Any) -> Any:
        """The class of every row of X."""
        known = self._known
        if self.break_ties and self.decision_function_shape == "ovo":
            raise InputError("break_ties must be False when decision_function_shape is 'ovo'")
        two = len(self.classes_) == 2
        if self.break_ties and not two:
            places = np.argmax(known.division.scores(self._values(X)), axis=1)
        elif callable(self.kernel) or self._given:
            values = self._values(X)
            places = (values[:, 0] > 0.0).astype(np.intp) if two else known.division.choose(values)
        else:
            places = self._from_rows(known.choices, X)
        return self.classes_[places]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the rows of X whose class is y, weighted.

        scikit-learn's function looks at the types of both for longer than small machines take to predict. Labels of the type
        of the classes need no look.
        """
        labels = self.__dict__.get("classes_")
        plain = labels is not None and type(y) is np.ndarray and y.shape == (count(X),) and y.dtype == labels.dtype
        if sample_weight is None and plain and len(y) and y.dtype.kind in "biuU":
            return np.count_nonzero(self.predict(X) == y) / len(y)
        return float(super().score(X, y, sample_weight))


def kernel_values(function: Callable[[Any, Any], Any], A: Any, B: Any) -> FloatArray:
    """A kernel function on two containers of objects, checked."""
    values = function(A, B)
    values = values.toarray() if hasattr(values, "toarray") else values
    values = reals(values, "the matrix that the kernel function returned")
    shape = (count(A), count(B))
    if values.shape != shape:
        raise InputError(
            f"the kernel function returned shape {values.shape} for {shape[0]} and {shape[1]} objects; it must return one "
            f"value for each pair, shape {shape}"
        )
    if not np.isfinite(values).all():
        raise InputError("the kernel function returned NaN or infinity; it must return finite numbers for all pairs")
    return values
