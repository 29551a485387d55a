"""The variables of a path at its knots and at any lambda, and the function that they are.

Events give the bounds, and knots give the values on the elbow. Between two knots all of it is linear in lambda.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.path import curve_jit
from svmcore.path.cross import Cross
from svmcore.path.elbow_jit import LOW

_CHUNK = 1 << 22  # so many kernel or decision values are held at a time
_HELD = 1 << 16  # so many values of variables are written in one call


def replay(path: Any) -> curve_jit.Replay:
    """The record of a path in the form that compiled code plays, at its first knot. A path is brought into it once."""
    track, first = path._track, path.__dict__.get("_first")
    if first is None or first[0] is not track:
        path._first = first = track, _replay(track, path._problem)
    record: curve_jit.Replay = first[1]
    side, beta = record.side.copy(), record.beta.copy()
    return curve_jit.Replay(*record[:-3], side, beta, np.full(beta.size, -1, dtype=np.int64))


def keep_record(path: Any, track: Any) -> None:
    """Take the record of a path over to a track that has further knots, all of them of values that it had."""
    if "_first" not in vars(path):
        return
    more = {name: getattr(track, name) for name in ("knot_events", "offset", "index", "value")}
    path._first = track, path._first[1]._replace(**more)


def _replay(track: Any, problem: Any) -> curve_jit.Replay:
    bounds = np.array([problem.lower, problem.upper])
    event_to = np.ascontiguousarray(track.event_move[:, 1])
    side, before, stop = track.side0.copy(), int(track.knot_events[0]), int(track.offset[1])
    side[track.event_index[:before]] = event_to[:before]
    beta, on = np.where(side == LOW, bounds[0], bounds[1]), track.index[:stop]
    beta[on] = np.minimum(np.maximum(track.value[:stop], bounds[0, on]), bounds[1, on])
    return curve_jit.Replay(
        track.knot_events, track.event_index, event_to, track.offset, track.index, track.value, bounds, side, beta,
        track.offset,  # no places yet
    )  # fmt: skip


def vectors(path: Any, knots: IntArray) -> Iterator[FloatArray]:
    """The variables at some knots, in increasing order."""
    record = replay(path)
    step = max(1, _HELD // record.beta.size)
    for begin in range(0, knots.size, step):
        yield from _values(record, int(knots[begin - 1]) if begin else 0, knots[begin : begin + step])


def values_at(path: Any, knots: IntArray) -> FloatArray:
    """The variables at some knots, in increasing order, as rows."""
    return _values(replay(path), 0, knots)


def _values(record: curve_jit.Replay, now: int, knots: IntArray) -> FloatArray:
    """The variables at some knots, from a record at knot `now`."""
    out = np.empty((knots.size, record.beta.size))
    curve_jit.values_at(record, now, knots, np.empty(record.beta.size), out)
    return out


def clipped(track: Any, lam: FloatArray) -> FloatArray:
    """Values of lambda, those beyond the ends of a path at its ends."""
    lam = np.maximum(lam, track.knot[-1, 0])
    return lam if track.open_top else np.minimum(lam, track.knot[0, 0])


def hat(path: Any, lam: FloatArray) -> tuple[FloatArray, FloatArray]:
    """beta-hat, with one row per lambda, and bias-hat."""
    track = path._track
    at = track.knot[:, 0]
    order = np.argsort(-lam, kind="stable")
    right = np.minimum(np.searchsorted(-at, -lam[order]), at.size - 1)
    left = np.maximum(right - 1, 0)
    t0, t1 = at[left], at[right]
    apart = np.where(t0 > t1, t0 - t1, 1.0)
    mu = np.where(t0 > t1, (t0 - lam[order]) / apart, 0.0)
    rest = np.where(t0 > t1, (lam[order] - t1) / apart, 1.0)
    out = np.empty((lam.size, path._problem.slope.size))
    step = max(1, _CHUNK // out.shape[1])
    for begin in range(0, lam.size, step):
        some = slice(begin, begin + step)
        ends = np.concatenate([left[some], right[some]])  # of one lambda they are in order
        needed, place = (ends, slice(None)) if lam.size == 1 else np.unique(ends, return_inverse=True)
        above, below = np.split(values_at(path, needed)[place], 2)
        # Their difference would lose what is small below.
        between = rest[some, None] * above + mu[some, None] * below
        out[order[some]] = np.where(above == below, above, between)
    bias = np.empty(lam.size)
    bias[order] = rest * track.knot[left, 1] + mu * track.knot[right, 1]
    return out, np.where(lam > at[0], bias + track.bias_slope * (lam - at[0]), bias)


def hats(path: Any, lam: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The variables, one row per lambda, and the bias of f with what the kernel's offset adds."""
    beta, bias = hat(path, lam)
    return beta, bias if path._data.equality else bias + path._data.spec.kernel.offset * beta.sum(axis=1)


def decisions(path: Any, C: Any, cross: Cross) -> FloatArray:
    """f(x) of the rows of `cross`, one row per C."""
    lam, _, _ = path._lambdas_of(C)
    beta, bias = hats(path, lam)
    support = np.flatnonzero(np.any(beta != 0.0, axis=0))
    coef, columns = np.ascontiguousarray(beta[:, support]), cross.columns(support)
    out = np.empty((bias.size, cross.n))
    step = max(1, _CHUNK // max(1, support.size))
    for start in range(0, cross.n, step):
        rows = np.arange(start, min(start + step, cross.n))
        out[:, rows] = coef @ cross.block(rows, columns).T
    out += bias[:, None]
    out /= path._divisor(lam)[:, None]
    out += path._data.form.level
    return out
