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
from itertools import islice
from typing import Any

import numpy as np

from svmcore._types import FloatArray
from svmcore.path import middle_jit
from svmcore.path.middle_jit import CORNERS, Bounds
from svmcore.path.record import Track, offsets
from svmcore.path.values import keep_record, vectors

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
    found, many = _resting(path, near), max(1, _HELD // near.size)
    while some := list(islice(found, many)):
        runs, values = np.array([run[:2] for run in some]), np.array([run[2] for run in some])
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


def _resting(path: Any, near: FloatArray) -> Iterator[tuple[int, int, FloatArray]]:
    """Runs of knots between which all values stay at their bounds: first and last knot, and these values."""
    track, low, high = path._track, path._problem.lower + near, path._problem.upper - near
    begin, sizes = track.offset[:-1], np.diff(track.offset)
    still, there = track.chord[:, 0] == 0.0, sizes > 0
    for each in (np.ones_like(sizes), sizes):  # of most knots the first value is inside its box, and says all
        knots = np.flatnonzero(still & there)
        many = each[knots]
        place = np.repeat(begin[knots] - (np.cumsum(many) - many), many) + np.arange(many.sum())
        i, b = track.index[place], track.value[place]
        still[np.repeat(knots, many)[(low[i] < b) & (b < high[i])]] = False
    if still.size == 1 and still[0]:
        yield 0, 0, next(vectors(path, np.array([0])))
    pairs = np.flatnonzero(still[1:] & still[:-1])
    knots = np.unique(np.concatenate([pairs, pairs + 1]))
    first, last, values, now = -2, -2, near, near
    for k, b in zip(knots.tolist(), vectors(path, knots), strict=True):
        if last != k - 1 or (np.abs(b - now) > near).any():
            if last > first:
                yield first, last, values
            first, values = k, b
        last, now = k, b
    if last > first:
        yield first, last, values


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
