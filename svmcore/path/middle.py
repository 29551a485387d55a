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
from svmcore.path.values import keep_record, values_at

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
    if not corners:
        return track
    out = _with_corners(track._replace(knot=np.column_stack([at, bias]), bias_slope=slope), np.concatenate(corners))
    keep_record(path, out)
    return out


def _resting(path: Any, near: FloatArray) -> Iterator[tuple[IntArray, FloatArray]]:
    """Runs of knots between which all values stay at their bounds: their first and last knots, and these values."""
    track, low, high = path._track, path._problem.lower + near, path._problem.upper - near
    inside = (low[track.index] < track.value) & (track.value < high[track.index])
    moving = offsets(inside)[track.offset]
    still = (track.chord[:, 0] == 0.0) & (moving[1:] == moving[:-1])
    if still.size == 1:
        if still[0]:
            yield np.zeros((1, 2), dtype=np.int64), values_at(path, np.zeros(1, dtype=np.int64))
        return
    pairs, wanted = still[1:] & still[:-1], np.zeros(still.size, dtype=np.bool_)
    wanted[1:] |= pairs
    wanted[:-1] |= pairs
    knots = wanted.nonzero()[0]
    step = max(1, _HELD // near.size)
    for begin in range(0, knots.size - 1, step):
        some = knots[begin : begin + step + 1]
        values, stays = values_at(path, some), np.zeros(some.size + 1, dtype=np.bool_)
        moved = np.abs(values[1:] - values[:-1]) > near
        stays[1:-1] = (some[1:] == some[:-1] + 1) & ~np.logical_or.reduce(moved, axis=1)
        edges = (stays[1:] != stays[:-1]).nonzero()[0]
        if edges.size:
            yield some[edges].reshape(-1, 2), values[edges[::2]]


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
