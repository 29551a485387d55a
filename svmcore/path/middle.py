"""The intercept of a path where several are optimal: the middle of all that are.

Where every value is at a bound, nothing moves until two variables of different sides ask for the same intercept. Down to
there b is constant, and an intercept is optimal between two functions of t:

- the largest ``l_i(t) - (K b)_i`` of the variables that can grow,
- the smallest one of those that can shrink.

Both are piecewise linear, and so is their middle. A tracker takes any intercept between them. Here the record gets the
middle, with a knot at each of its corners. So a machine does not depend on where its path began, and it is that of
`train_svc`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.path.record import Track, offsets

_AT_BOUND = 1e-11
"""A value that is closer to a bound than this share of its box is at the bound."""
_CORNERS = 1000
"""The middle gets at most so many corners between two knots. From there on it is a chord."""
_ABOVE = 1e3
"""Above the first knot corners are looked for up to so many times its t."""


def centred(path: Any, product: Callable[[FloatArray], FloatArray]) -> Track:
    """The track of a path, with the middle of all optimal intercepts. `product` is the function b -> K b."""
    track: Track = path._track
    if not path._data.equality:
        return track
    bias, slope = track.knot[:, 1].copy(), track.bias_slope
    at = track.knot[:, 0]
    corners = [np.empty((0, 2))]  # rows (t, bias)
    runs = _resting(path)
    for (first, last), b in zip(runs, path._vectors(np.array([run[0] for run in runs], dtype=np.int64)), strict=True):
        bounds = _Bounds(path._problem, b, product(b))
        if first == 0 and track.open_top:
            corners.append(bounds.corners_above(float(at[0])))
            slope = bounds.slope
        corners.append(bounds.corners(float(at[first]), float(at[last])))
        for k in range(first if first == 0 else first + 1, last + 1):
            bias[k] = bounds.middle(float(at[k]))
    return _with_corners(track._replace(knot=np.column_stack([at, bias]), bias_slope=slope), np.concatenate(corners))


class _Bounds:
    """What bounds the intercept at one b: the largest of some lines in t from below, the smallest of others from above."""

    def __init__(self, problem: Any, b: FloatArray, product: FloatArray) -> None:
        near = _AT_BOUND * (problem.upper - problem.lower)
        rest = problem.fixed - product
        sides = ((1.0, b < problem.upper - near), (-1.0, b > problem.lower + near))
        # The smallest of some lines is minus the largest of their opposites.
        self.sides = [(sign, sign * problem.slope[on], sign * rest[on]) for sign, on in sides if on.any()]

    @property
    def slope(self) -> float:
        """The slope of the middle for large t."""
        return float(np.mean([sign * slope.max() for sign, slope, _ in self.sides]))

    def middle(self, t: float) -> float:
        """The middle at t. If there is one bound only, it is this bound."""
        return float(np.mean([sign * np.max(t * slope + rest) for sign, slope, rest in self.sides]))

    def corners(self, begin: float, end: float) -> FloatArray:
        """The corners of the middle strictly between two t: rows (t, middle), t falling."""
        at = np.unique(np.concatenate([_corners(slope, rest, begin, end) for _, slope, rest in self.sides]))
        return np.array([(t, self.middle(t)) for t in at[::-1].tolist()]).reshape(-1, 2)

    def corners_above(self, end: float) -> FloatArray:
        """The corners above `end`, or, where these lead too far, those up to a place from which on the slope is that of
        large t.
        """
        rows, highest = self.corners(np.inf, end), _ABOVE * end
        if not (rows[:, 0] > highest).any():
            return rows
        return np.vstack([[highest, self.middle(highest)], rows[rows[:, 0] < highest]])


def _corners(slope: FloatArray, rest: FloatArray, begin: float, end: float) -> FloatArray:
    """Where the largest of some lines changes strictly between two t. Each change, while t falls, is to a smaller slope."""
    found: list[float] = []
    best = slope if begin == np.inf else begin * slope + rest
    ties = np.flatnonzero(best >= best.max())
    k = int(ties[np.lexsort((-rest[ties], slope[ties]))[0]])
    t = begin
    while len(found) < _CORNERS:
        flatter = np.flatnonzero(slope < slope[k])
        if not flatter.size:
            break
        meets = (rest[flatter] - rest[k]) / (slope[k] - slope[flatter])
        t = min(t, float(meets.max()))
        if not t > end:
            break
        if t < begin:
            found.append(t)
        first = flatter[meets >= meets.max()]
        k = int(first[np.argmin(slope[first])])
    return np.array(found)


def _resting(path: Any) -> list[tuple[int, int]]:
    """The first and the last knot of every run of knots between which all values stay at their bounds."""
    track, problem = path._track, path._problem
    near = _AT_BOUND * (problem.upper - problem.lower)
    still = track.chord[:, 0] == 0.0
    size = np.diff(track.offset)
    longest = int(size[still].max(initial=0))
    for place in range(longest):  # most knots have a value inside its box at their first place
        here = np.flatnonzero(still & (size > place))
        if not here.size:
            break
        at = track.offset[here] + place
        index, value = track.index[at], track.value[at]
        still[here] = ~((value > problem.lower[index] + near[index]) & (value < problem.upper[index] - near[index]))
    pairs = np.flatnonzero(still[:-1] & still[1:])
    wanted = np.unique(np.concatenate([pairs, pairs + 1]))
    runs: list[tuple[int, int]] = [(0, 0)] if still.size == 1 and still[0] else []
    before = np.empty(0)
    for k, b in zip(wanted.tolist(), path._vectors(wanted), strict=True):
        if k > 0 and still[k - 1] and before.size and (np.abs(b - before) <= near).all():
            first = runs.pop()[0] if runs and runs[-1][1] == k - 1 else k - 1
            runs.append((first, k))
        before = b
    return runs


def _with_corners(track: Track, corners: FloatArray) -> Track:
    """The track with further knots. Each has the events and the values of the knot before it, or of the first knot."""
    if not corners.size:
        return track
    place = np.searchsorted(-track.knot[:, 0], -corners[:, 0])
    source = np.maximum(place - 1, 0)
    sizes = np.diff(track.offset)
    values = np.concatenate([np.arange(track.offset[k], track.offset[k + 1]) for k in source.tolist()])
    where = np.repeat(track.offset[place], sizes[source])
    return track._replace(
        knot=_inserted(track.knot, place, corners),
        chord=_inserted(track.chord, place, 0.0),
        knot_events=_inserted(track.knot_events, place, track.knot_events[source]),
        offset=offsets(_inserted(sizes, place, sizes[source])),
        index=_inserted(track.index, where, track.index[values]),
        value=_inserted(track.value, where, track.value[values]),
    )


def _inserted(array: Any, at: IntArray, rows: Any) -> Any:
    """`np.insert` along the first axis. It is slow, and most corners are near the top."""
    cut = int(at.max(initial=0))
    return np.concatenate([np.insert(array[:cut], at, rows, axis=0), array[cut:]])
