"""scikit-learn's `permutation_test_score`, in the fast way where there is one."""

from __future__ import annotations

from typing import Any

from svmcore._errors import InputError
from svmcore.cv.trials import OF_LABELS, OF_TARGETS
from svmcore.estimators import _sklearn as sk
from svmcore.permutations import permutation_test, words_of


def permutation_test_score(
    estimator: Any, X: Any, y: Any, *, groups: Any = None, cv: Any = None, n_permutations: int = 100,
    n_jobs: int | None = None, random_state: Any = 0, verbose: int = 0, scoring: Any = None, **others: Any,
) -> Any:  # fmt: skip
    """The significance of a cross-validated score, by permutations: the call and the result of scikit-learn's function.

    An SVC or SVR, scikit-learn's or this library's, takes the way of `svmcore.permutation_test`. What that does not know
    (other estimators, another score, more than 2,000 rows, parameters of fit) is handed to scikit-learn.

    Returns
    -------
    score, permutation_scores, pvalue

    Examples
    --------
    >>> import numpy as np
    >>> from svmcore import SVC
    >>> from svmcore.estimators import permutation_test_score
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> score, permutation_scores, pvalue = permutation_test_score(SVC(kernel="linear"), X, X[:, 0] > 0)
    >>> float(round(pvalue, 4))
    0.0099
    """
    words = {
        "groups": groups,
        "cv": cv,
        "n_permutations": n_permutations,
        "n_jobs": n_jobs,
        "random_state": random_state,
    }
    if _is_known(estimator, scoring) and not any(value is not None for value in others.values()):
        try:
            return permutation_test(estimator, X, y, scoring=scoring, verbose=verbose, **words)
        except InputError:  # what cannot be there either is said in scikit-learn's words
            pass
    return sk.permutation_test_score()(estimator, X, y, scoring=scoring, verbose=verbose, **words, **others)


def _is_known(estimator: Any, scoring: Any) -> bool:
    """Whether the fast way knows the machine and the score."""
    try:
        loss = words_of(estimator)["loss"]
    except InputError:
        return False
    known = OF_LABELS if loss == "hinge" else {name for name in OF_TARGETS if name != "correlation"}
    return (scoring is None or (isinstance(scoring, str) and scoring in known)) and estimator.get_params()[
        "max_iter"
    ] == -1


__all__ = ["permutation_test_score"]
