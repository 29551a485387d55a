"""scikit-learn's `permutation_test_score`, in the fast way where there is one."""

from __future__ import annotations

from typing import Any

from svmcore._errors import CostWarning, InputError, warn
from svmcore.cv.trials import OF_LABELS, OF_TARGETS
from svmcore.estimators import _sklearn as sk
from svmcore.trials.labellings import MOST_ROWS
from svmcore.trials.permutations import permutation_test, words_of


def permutation_test_score(
    estimator: Any, X: Any, y: Any, *, groups: Any = None, cv: Any = None, n_permutations: int = 100,
    n_jobs: int | None = None, random_state: Any = 0, verbose: int = 0, scoring: Any = None, **others: Any,
) -> Any:  # fmt: skip
    """The significance of a cross-validated score, by permutations: the call and the result of scikit-learn's function.

    An SVC or SVR, scikit-learn's or this library's, takes the way of `svmcore.permutation_test`. What that does not know
    (other estimators, another score, more than 2,000 rows, parameters of fit) is handed to scikit-learn, with a
    `CostWarning` that says why.

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
    obstacle = _obstacle(estimator, X, scoring, others)
    if not obstacle:
        return permutation_test(estimator, X, y, scoring=scoring, verbose=verbose, **words)
    warn(f"no fast way: {obstacle}. scikit-learn does it, one fit after the other", CostWarning)
    return sk.permutation_test_score()(estimator, X, y, scoring=scoring, verbose=verbose, **words, **others)


def _obstacle(estimator: Any, X: Any, scoring: Any, others: dict[str, Any]) -> str:
    """Why this test has no fast way; an empty text where it has one."""
    try:
        labels = words_of(estimator)["loss"] == "hinge"
    except InputError as error:
        return str(error)
    known = [name for name in (OF_LABELS if labels else OF_TARGETS) if name != "correlation"]  # scikit-learn has none
    if scoring is not None and scoring not in known:
        return f"scoring={scoring!r:.60} is not one of {', '.join(map(repr, known))}"
    given = [name for name, value in others.items() if value is not None]
    if given:
        return f"{given[0]} goes to each fit"
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    return f"{rows:,} rows are more than {MOST_ROWS:,}" if rows > MOST_ROWS else ""
