"""`StepCurve`: an exact step function of C, such as the error of every machine of a path; and the mean of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore._types import FloatArray
from svmcore.base.door import reals

OUTSIDE = 1e-9
"""A value outside of a range by no more than this share is taken for the range's end."""

_ROUNDING = 1e-12
"""Values that differ by less are one value: a mean of fractions is not exact in float64."""


@dataclass(frozen=True, eq=False, repr=False)
class StepCurve:
    """A step function of C, exact: ``values[k]`` holds from ``breakpoints[k - 1]`` to ``breakpoints[k]``.

    Call it with one C or an array. At a breakpoint itself it has the value of the larger C.

    Attributes
    ----------
    breakpoints : where the value changes, increasing, all between C_min and C_max.
    values : one more than breakpoints.
    C_min, C_max : the range of C. C_min is 0 where the curve is known for every small C; 0 itself is no C.

    Examples
    --------
    >>> import numpy as np, svmcore
    >>> curve = svmcore.StepCurve(np.array([1.0, 4.0]), np.array([0.5, 0.1, 0.3]), 0.0, 10.0)
    >>> curve(2.0), curve.minimum, curve.best_interval, curve.best_C
    (0.1, 0.1, (1.0, 4.0), 2.0)
    >>> curve
    <StepCurve: C up to 10, 3 steps, minimum 0.1 for C from 1 to 4>
    """

    breakpoints: FloatArray
    values: FloatArray
    C_min: float
    C_max: float

    def __post_init__(self) -> None:
        edges = self.edges
        if self.values.shape != (edges.size - 1,):
            raise InputError(f"{self.values.size} values for {self.breakpoints.size} breakpoints; give one value more")
        if not (edges[0] >= 0.0 and edges[-1] > 0.0 and edges[0] <= edges[-1]):
            raise InputError(f"C cannot reach from {self.C_min:g} to {self.C_max:g}")
        if self.breakpoints.size and not (np.diff(edges) > 0.0).all():
            raise InputError("breakpoints must increase, and lie between C_min and C_max")

    def __repr__(self) -> str:
        low, high = self.best_interval
        n = self.values.size
        return (
            f"<StepCurve: C {_from_to(self.C_min, self.C_max)}, {n} step{'s' if n != 1 else ''}, "
            f"minimum {self.minimum:.6g} for C {_from_to(low, high)}>"
        )

    @overload
    def __call__(self, C: float) -> float: ...
    @overload
    def __call__(self, C: Sequence[float] | NDArray[Any]) -> FloatArray: ...
    def __call__(self, C: Any) -> Any:
        """The value at C."""
        C = reals(C, "C")
        if not np.all(C > 0.0):
            raise InputError(f"C={C[~(C > 0.0)].flat[0]:g} is no positive number; C is larger than 0")
        low, high = self.C_min * (1.0 - OUTSIDE), self.C_max * (1.0 + OUTSIDE)
        outside = (low > C) | (high < C)
        if outside.any():
            raise InputError(f"C={C[outside].flat[0]:g} lies outside the curve, C {_from_to(self.C_min, self.C_max)}")
        out = self.values[np.searchsorted(self.breakpoints, C, side="right")]
        return float(out) if out.ndim == 0 else out

    @property
    def edges(self) -> FloatArray:
        """The ends of all steps."""
        return np.concatenate([[self.C_min], self.breakpoints, [self.C_max]])

    @property
    def minimum(self) -> float:
        """The smallest value."""
        return float(self.values.min())

    @property
    def best_intervals(self) -> FloatArray:
        """Every C that attains the minimum: one row (from, to) per interval, in order."""
        best = np.concatenate([[False], self.values <= self.minimum + _ROUNDING, [False]])
        edges = self.edges
        return np.stack([edges[np.flatnonzero(~best[:-1] & best[1:])], edges[np.flatnonzero(best[:-1] & ~best[1:])]], 1)

    @property
    def best_interval(self) -> tuple[float, float]:
        """The interval of C that attains the minimum; where there are several, the widest one in log C.

        The width of an interval that begins at 0 counts from half of its end.
        """
        low, high = self.best_intervals.T
        k = int(np.argmax(high / np.where(low > 0.0, low, 0.5 * high)))
        return float(low[k]), float(high[k])

    @property
    def best_C(self) -> float:
        """A C that attains the minimum: the geometric middle of `best_interval`, or of its upper half if it begins at 0."""
        low, high = self.best_interval
        return float(np.sqrt((low if low > 0.0 else 0.5 * high) * high))

    def between(self, low: float, high: float) -> StepCurve:
        """The part between two values of C."""
        first = int(np.searchsorted(self.breakpoints, low, side="right"))
        stop = max(first, int(np.searchsorted(self.breakpoints, high)))
        return StepCurve(self.breakpoints[first:stop], self.values[first : stop + 1], low, high)

    def scaled(self, ratio: float) -> StepCurve:
        """The same over C divided by `ratio`."""
        return StepCurve(self.breakpoints / ratio, self.values, self.C_min / ratio, self.C_max / ratio)

    @staticmethod
    def align(curves: Sequence[StepCurve]) -> tuple[FloatArray, FloatArray, float, float]:
        """Several curves over the range that they share: (breakpoints of all, values per curve, C_min, C_max)."""
        if not curves:
            raise InputError("there is no curve; give at least one")
        low, high = max(c.C_min for c in curves), min(c.C_max for c in curves)
        if not low <= high:
            raise InputError(f"the curves have no C in common: one begins at {low:g}, another ends at {high:g}")
        every = np.unique(np.concatenate([c.breakpoints for c in curves]))
        every = every[(every > low) & (every < high)]
        starts = np.concatenate([[low], every])
        return (
            every,
            np.stack([c.values[np.searchsorted(c.breakpoints, starts, side="right")] for c in curves]),
            low,
            high,
        )

    @staticmethod
    def mean(curves: Sequence[StepCurve], weights: Any = None) -> StepCurve:
        """The mean of several curves, of folds for example, over the range that they share; `weights`: one per curve.

        Examples
        --------
        >>> import numpy as np
        >>> a = StepCurve(np.array([1.0]), np.array([0.5, 0.25]), 0.0, 8.0)
        >>> b = StepCurve(np.array([2.0]), np.array([0.5, 0.0]), 0.0, 4.0)
        >>> mean = StepCurve.mean([a, b])
        >>> mean.breakpoints.tolist(), mean.values.tolist(), mean.C_max
        ([1.0, 2.0], [0.5, 0.375, 0.125], 4.0)
        """
        breakpoints, values, low, high = StepCurve.align(curves)
        share = np.ones(len(curves)) if weights is None else reals(weights, "weights")
        if share.shape != (len(curves),) or not (
            np.isfinite(share).all() and (share >= 0.0).all() and share.sum() > 0.0
        ):
            raise InputError(f"weights must be {len(curves)} numbers, one per curve, not negative and not all zero")
        return merged(breakpoints, (share / share.sum()) @ values, low, high)


def merged(breakpoints: FloatArray, values: FloatArray, C_min: float, C_max: float) -> StepCurve:
    """A curve without steps at which nothing changes."""
    real = np.abs(np.diff(values)) > _ROUNDING * max(1.0, float(np.abs(values).max(initial=0.0)))
    return StepCurve(breakpoints[real], values[np.concatenate([[True], real])], C_min, C_max)


def steps(C: FloatArray, change: FloatArray, begin: float, total: float, C_range: tuple[float, float]) -> StepCurve:
    """The curve that begins at begin / total, and changes at values of C. It is not negative but for rounding."""
    low, high = C_range
    order = np.argsort(C, kind="stable")
    C = C[order]
    level = np.maximum(begin + np.concatenate([[0.0], np.cumsum(change[order])]), 0.0)
    first = int(np.searchsorted(C, low, side="right"))  # what happens at an end happens outside
    stop = max(first, int(np.searchsorted(C, high, side="left")))
    C, level = C[first:stop], level[first : stop + 1]
    last = np.concatenate([C[1:] > C[:-1], [True]]) if C.size else np.empty(0, dtype=bool)
    return merged(C[last], np.concatenate([level[:1], level[1:][last]]) / total, low, high)


def _from_to(low: float, high: float) -> str:
    return f"from {low:.6g} to {high:.6g}" if low > 0.0 else f"up to {high:.6g}"
