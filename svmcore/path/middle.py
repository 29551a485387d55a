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

from svmcore._types import FloatArray, IntArray
from svmcore.path import middle_jit
from svmcore.path.middle_jit import CORNERS, Bounds
from svmcore.path.record import Track, offsets
from svmcore.path.values import keep_record, replay

_AT_BOUND = 1e-11
"""A value that is closer to a bound than this share of its box is at the bound."""
_ABOVE = 1e3
"""Above the first knot corners are looked for up to so many times its t."""
_HELD = 1 << 18
"""So many values of variables are held at most."""


def centred(path: Any, products: Callable[[FloatArray], FloatArray]) -> Track:
    """The track of a path, with the middle of all optimal intercepts. `products` maps rows b to rows K b."""
    track: Track = path._track
    problem = path._problem
    if not path._data.equality:
        return track
    at, bias, slope = np.ascontiguousarray(track.knot[:, 0]), track.knot[:, 1].copy(), track.bias_slope
    near = _AT_BOUND * (problem.upper - problem.lower)
    low, high = problem.lower + near, problem.upper - near
    above = _ABOVE * float(at[0]) if track.open_top else 0.0
    on = np.empty((2, near.size), dtype=np.bool_)
    bounds = Bounds(problem.slope, np.empty(near.size), on[0], on[1])
    scratch, room = np.empty((2, CORNERS)), np.empty((32 * CORNERS, 2))
    corners: list[FloatArray] = []
    for runs, values in _resting(path, near):
        rest = problem.fixed - products(values)
        if runs[0, 0] == 0 and track.open_top:
            above_of, below_of = problem.slope[values[0] < high], problem.slope[values[0] > low]
            floor, top = float(above_of.max(initial=-np.inf)), float(below_of.min(initial=np.inf))
            slope = top if floor == -np.inf else floor if top == np.inf else 0.5 * (floor + top)
        done = 0
        while done < len(runs):
            more, n = middle_jit.centre(
                runs[done:], values[done:], rest[done:], low, high, bounds, at, bias, above, scratch, room
            )
            done += int(more)
            corners.append(room[: int(n)].copy())
    found = np.concatenate(corners) if corners else np.empty((0, 2))
    out = _with_corners(track._replace(knot=np.column_stack([at, bias]), bias_slope=slope), found)
    keep_record(path, out)
    return out


def _resting(path: Any, near: FloatArray) -> Iterator[tuple[IntArray, FloatArray]]:
    """Runs of knots between which all values stay at their bounds: their first and last knots, and these values."""
    track, record = path._track, replay(path)
    chord = np.ascontiguousarray(track.chord)
    n, k = track.knot.shape[0], 0
    if n == 1:
        if middle_jit.is_still(record, chord, near, 0):
            yield np.zeros((1, 2), dtype=np.int64), record.beta[None]
        return
    rest = middle_jit.Resting(near, np.empty(near.size), record.beta.copy())
    many = max(1, min(n // 2, _HELD // near.size))
    while k + 1 < n:
        runs, values = np.empty((many, 2), dtype=np.int64), np.empty((many, near.size))
        found, k = (int(number) for number in middle_jit.rests(record, chord, rest, k, runs, values))
        if found:
            yield runs[:found], values[:found]


def _with_corners(track: Track, corners: FloatArray) -> Track:
    """The track with further knots. Each has the events and the values of the knot before it, or of the first knot."""
    if not corners.size:
        return track
    place = np.searchsorted(-track.knot[:, 0], -corners[:, 0])
    source = np.maximum(place - 1, 0)
    # Most corners are near the top. What lies behind the last of them is moved as a whole.
    cut = int(place[-1])
    knots = np.sort(np.concatenate([np.arange(cut), source]))
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
