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

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from svmcore._types import FloatArray
from svmcore.path import middle_jit
from svmcore.path.middle_jit import CORNERS, Bounds
from svmcore.path.record import Track, offsets
from svmcore.path.replay import replay

_AT_BOUND = 1e-11
"""A value that is closer to a bound than this share of its box is at the bound."""
_ABOVE = 1e3
"""Above the first knot corners are looked for up to so many times its t."""


def centred(path: Any, product: Callable[[FloatArray], FloatArray]) -> Track:
    """The track of a path, with the middle of all optimal intercepts. `product` is the function b -> K b."""
    track: Track = path._track
    problem = path._problem
    if not path._data.equality:
        return track
    at, bias, slope = np.ascontiguousarray(track.knot[:, 0]), track.knot[:, 1].copy(), track.bias_slope
    near = _AT_BOUND * (problem.upper - problem.lower)
    corners: list[FloatArray] = []
    scratch = np.empty((2, CORNERS)), np.empty((2 * CORNERS, 2))
    for first, last, b in _resting(path, near):
        bounds = Bounds(problem.slope, problem.fixed - product(b), b < problem.upper - near, b > problem.lower + near)
        begin, end = float(at[first]), float(at[last])
        if first == 0 and track.open_top:
            corners.append(_corners_above(bounds, begin, scratch))
            slope = _slope_above(bounds)
        corners.append(_corners(bounds, begin, end, scratch))
        middle_jit.centre(bounds, at, bias, first if first == 0 else first + 1, last)
    found = np.concatenate(corners) if corners else np.empty((0, 2))
    return _with_corners(track._replace(knot=np.column_stack([at, bias]), bias_slope=slope), found)


def _resting(path: Any, near: FloatArray) -> Iterator[tuple[int, int, FloatArray]]:
    """The first and the last knot of every run of knots between which all values stay at their bounds, and these values."""
    track, record = path._track, replay(path)
    chord = np.ascontiguousarray(track.chord)
    rest = middle_jit.Resting(near, np.empty(near.size), record.beta.copy())
    n, k = track.knot.shape[0], 0
    if n == 1:
        if middle_jit.is_still(record, chord, near, 0):
            yield 0, 0, rest.b
        return
    while k + 1 < n:
        first, last, k = (int(place) for place in middle_jit.next_rest(record, chord, rest, k))
        if first >= 0:
            yield first, last, rest.b


def _slope_above(bounds: Bounds) -> float:
    """The slope of the middle for large t."""
    ends = [bounds.slope[bounds.grows].max(initial=-np.inf), bounds.slope[bounds.shrinks].min(initial=np.inf)]
    return float(np.mean([end for end in ends if np.isfinite(end)]))


def _corners(bounds: Bounds, begin: float, end: float, scratch: tuple[FloatArray, FloatArray]) -> FloatArray:
    """The corners of the middle strictly between two t: rows (t, middle), t falling."""
    lines, rows = scratch
    return rows[: int(middle_jit.corners(bounds, begin, end, lines, rows))].copy()


def _corners_above(bounds: Bounds, end: float, scratch: tuple[FloatArray, FloatArray]) -> FloatArray:
    """The corners above `end`, or, where these lead too far, those up to where the slope is that of large t."""
    rows, highest = _corners(bounds, np.inf, end, scratch), _ABOVE * end
    if not (rows[:, 0] > highest).any():
        return rows
    return np.vstack([[highest, middle_jit.middle(bounds, highest)], rows[rows[:, 0] < highest]])


def _with_corners(track: Track, corners: FloatArray) -> Track:
    """The track with further knots. Each has the events and the values of the knot before it, or of the first knot."""
    if not corners.size:
        return track
    place = np.searchsorted(-track.knot[:, 0], -corners[:, 0])
    source = np.maximum(place - 1, 0)
    # Most corners are near the top. What lies behind the last of them is moved as a whole.
    cut = int(place[-1])
    knots = np.insert(np.arange(cut), place, source)
    new = place + np.arange(place.size)
    knot, chord = track.knot[knots], track.chord[knots]
    knot[new], chord[new] = corners, 0.0
    sizes = np.diff(track.offset)
    begin, many = track.offset[knots], sizes[knots]
    values = np.repeat(begin - (np.cumsum(many) - many), many) + np.arange(many.sum())
    rest = int(track.offset[cut])
    return track._replace(
        knot=np.concatenate([knot, track.knot[cut:]]),
        chord=np.concatenate([chord, track.chord[cut:]]),
        knot_events=np.concatenate([track.knot_events[knots], track.knot_events[cut:]]),
        offset=offsets(np.concatenate([many, sizes[cut:]])),
        index=np.concatenate([track.index[values], track.index[rest:]]),
        value=np.concatenate([track.value[values], track.value[rest:]]),
    )
