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
from svmcore.path.replay import replay

_CHUNK = 1 << 22  # so many kernel or decision values are held at a time
_HELD = 1 << 16  # so many values of variables are written in one call


def vectors(path: Any, knots: IntArray) -> Iterator[FloatArray]:
    """The variables at some knots, in increasing order."""
    record = replay(path)
    step = max(1, _HELD // record.beta.size)
    for begin in range(0, knots.size, step):
        yield from _values(record, int(knots[begin - 1]) if begin else 0, knots[begin : begin + step])


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
        above, below = np.split(_values(replay(path), 0, needed)[place], 2)
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
