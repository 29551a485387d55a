"""Which values of gamma to try: one, a list, or a search from coarse to fine around the distances of the data."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from svmcore._errors import InputError
from svmcore._types import FloatArray
from svmcore.cv.means import best_of
from svmcore.cv.members import Study
from svmcore.kernel.points import is_sparse
from svmcore.kernel.table import TABLE
from svmcore.problem import border

SEARCH = "search"
_TOO_NEAR = 1e-12  # values of gamma that are the same
SHAPED = tuple(kind.name.lower() for kind, facts in TABLE.items() if "gamma" in facts.parameters)
_STEP = 4.0  # between the first values of a search
_EACH_WAY = 2  # steps up and down from the middle
_FINEST = 1.5  # neighbours of the best that are so near are near enough
_WIDEST = 6  # steps from the middle at which a search ends
_ROWS = 500  # a sample of rows whose distances are looked at


class Fixed:
    """The values that the user gave, all at once."""

    def __init__(self, values: list[float | None]) -> None:
        self.values = values

    def first(self) -> list[float | None]:
        """What to try first."""
        return self.values

    def more(self, least: dict[float | None, float]) -> list[float | None]:
        """What to try next, given the least score of those tried: nothing."""
        return []


class Search(Fixed):
    """Around the inverse median of the squared distances (of the distances, for the laplacian kernel), as kernlab's sigest;
    outwards while the best is at an end, then between the best and its neighbours."""

    def __init__(self, middle: float) -> None:
        self.middle = middle
        super().__init__([middle * _STEP**k for k in range(-_EACH_WAY, _EACH_WAY + 1)])

    def more(self, least: dict[float | None, float]) -> list[float | None]:
        """Further values around the best."""
        tried = sorted(value for value in least if value is not None)
        best = best_of(least)
        assert best is not None
        k = tried.index(best)
        limit = _STEP ** (_WIDEST + 0.5)
        if k == 0 and tried[0] > self.middle / limit * _STEP:
            return [tried[0] / _STEP]
        if k == len(tried) - 1 and tried[-1] < self.middle * limit / _STEP:
            return [tried[-1] * _STEP]
        around = [tried[j] for j in (k - 1, k + 1) if 0 <= j < len(tried)]
        return [
            float(np.sqrt(tried[k] * other)) for other in around if max(other / tried[k], tried[k] / other) > _FINEST
        ]


def plan_of(study: Study, gamma: Any) -> Fixed:
    """How to come to the values of gamma."""
    kernel = study.form["kernel"]
    several = not isinstance(gamma, str) and isinstance(gamma, Iterable) and getattr(gamma, "ndim", 1) > 0
    searching = isinstance(gamma, str) and gamma == SEARCH
    if (several or searching) and not (isinstance(kernel, str) and kernel in SHAPED):
        raise InputError(
            f"kernel={kernel if isinstance(kernel, str) else 'a function'!r} has no gamma to choose; leave gamma out"
        )
    if searching:
        if kernel not in ("rbf", "laplacian"):
            raise InputError(f'gamma="search" is for the rbf and laplacian kernels; with kernel={kernel!r} give a list')
        return Search(1.0 / _median_distance(_seen(study), kernel))
    if not several:
        shaped = isinstance(kernel, str) and kernel in SHAPED
        return Fixed([_number(study, gamma) if shaped else None])
    values = [_number(study, value) for value in gamma]
    if not values:
        raise InputError('gamma is an empty list; give at least one value, or "search"')
    order = np.argsort(values, kind="stable")
    for a, b in pairwise(order):
        if values[b] <= values[a] * (1.0 + _TOO_NEAR):
            raise InputError(
                f"gamma holds {values[a]:.6g} twice (positions {min(a, b)} and {max(a, b)}); give every value once"
            )
    return Fixed([values[k] for k in order])


def _number(study: Study, gamma: Any) -> float:
    """One gamma as a number; "scale" is worked out on all rows, standardised as they will be."""
    if isinstance(gamma, str) and gamma not in ("scale", "auto"):
        raise InputError(
            f'gamma={gamma!r} is not known; give "scale", "auto", "search", a positive number, or a list of numbers'
        )
    form = study.form
    spec = border.kernel(form["kernel"], _seen(study), gamma, form["degree"], form["coef0"], 0.0, study.weights)
    return spec.kernel.gamma


def _seen(study: Study) -> Any:
    return study.columns(np.arange(study.n))[1]


def _median_distance(X: Any, kernel: str) -> float:
    """The median over pairs of different rows of a sample."""
    rows = np.random.default_rng(0).permutation(X.shape[0])[:_ROWS]
    part: FloatArray = X[rows].toarray() if is_sparse(X) else X[rows]
    distances = []
    for k in range(part.shape[0] - 1):
        difference = part[k + 1 :] - part[k]
        distances.append((np.abs(difference) if kernel == "laplacian" else np.square(difference)).sum(axis=1))
    every = np.concatenate(distances)
    every = every[every > 0.0]
    if not every.size:
        raise InputError('all rows of X are equal, so that gamma="search" has no distance to begin with; give gamma')
    return float(np.median(every))
