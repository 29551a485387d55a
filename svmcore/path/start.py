"""Where a path begins: the solution for every large lambda, or at a given one, by SMO; the fast tracker does the rest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore import solvers
from svmcore._control import Control, Part
from svmcore._types import DualQP, FloatArray
from svmcore.kernel.matrix import KernelMatrix
from svmcore.path.data import Variables
from svmcore.path.tracker import GAP, Tracker

_ROUGH = 1e-6
"""The fast tracker's start by SMO, relative to the kernel's scale: the tracker does the rest faster than SMO."""


class Top(NamedTuple):
    """Where the path begins. `open_top`: above it nothing happens, and the bias grows by `bias_slope` per unit lambda.

    `found`: the first event, somewhat below, is what the user wants to see as the first breakpoint.
    """

    lam: float
    open_top: bool
    bias_slope: float
    found: bool = False


class Smo(NamedTuple):
    """SMO on the path's problem, with other linear terms and boxes, for at most `most` steps per variable."""

    K: KernelMatrix
    v: Variables
    control: Control
    most: float = 200.0

    def solve(self, c: FloatArray, lower: FloatArray, upper: FloatArray, start: FloatArray, tol: float) -> FloatArray:
        """The solution; the point that was reached when the control stops it."""
        qp = DualQP(c, lower, upper, np.zeros(c.size), np.arange(c.size), self.v.equality)
        raw = solvers.load("smo").run(
            qp, self.K, control=Part(self.control, "looking for the start"), tol=tol, stopping="kkt",
            max_iter=int(self.most * (c.size + 500)), start=start, seed=0, trace=False,
        )  # fmt: skip
        return np.asarray(raw.beta)

    def at(self, lam: float, start: FloatArray, tol: float) -> FloatArray:
        """The solution at one lambda."""
        v = self.v
        return self.solve(lam * v.c, v.lower, v.upper, np.clip(start, v.lower, v.upper), tol)


def excess_of(v: Variables) -> float:
    """By how much the positive class outweighs the other; zero when they balance, or need not."""
    excess = float(np.where(v.c > 0, v.upper, v.lower).sum()) if v.equality else 0.0
    return excess if abs(excess) > 1e-14 * float(np.sum(v.upper - v.lower)) else 0.0


def majority_at_zero(v: Variables) -> FloatArray:
    """The start (55): every value at its label's bound, and the first points of the heavier class at zero to balance."""
    beta = np.where(v.c > 0, v.upper, v.lower)
    excess = float(beta.sum())
    if not v.equality or excess == 0.0:
        return beta
    heavy = np.flatnonzero(v.c == np.sign(excess))
    size = np.abs(beta[heavy])
    taken = np.minimum(size, np.maximum(abs(excess) - (np.cumsum(size) - size), 0.0))
    beta[heavy] -= np.sign(excess) * taken
    return beta


def limit_solution(smo: Smo, tol: float) -> tuple[FloatArray, Top]:
    """The solution for every large lambda, to a relative `tol`, and the lambda down to which it holds.

    For large lambda the lighter class sits at its bounds, and the heavier one minimises 1/2 b'Kb under its share of
    the sum: the linear term is constant on it.
    """
    K, v = smo.K, smo.v
    beta = majority_at_zero(v)
    s = float(np.sign(excess_of(v)))
    heavy = v.c == s
    if s != 0.0:
        lower, upper = np.where(heavy, v.lower, beta), np.where(heavy, v.upper, beta)
        scale = float(np.max(K.diagonal, initial=0.0)) * float(np.sum(v.upper - v.lower))
        beta = smo.solve(np.zeros(v.c.size), lower, upper, beta, max(tol * scale, 1e-300))
        smo.control.demand()
    index = np.flatnonzero(beta)
    f = np.array(K.product(index, beta[index]))
    if not v.equality:
        return beta, Top(float(np.max(v.c * f)), True, 0.0)
    plus, minus = v.c > 0, v.c < 0
    if s == 0.0:
        return beta, Top(0.5 * float(f[plus].max() - f[minus].min()), True, 0.0)
    width = v.upper - v.lower
    inside = heavy & (beta > v.lower + 1e-9 * width) & (beta < v.upper - 1e-9 * width)
    if inside.any():
        level = float(f[inside].mean())
    else:  # the heavier class at a vertex: its level lies between the two sides
        at_bound = heavy & (np.abs(beta) > 0.5 * width)
        at_zero = heavy & ~at_bound
        ends = [float((s * f)[at_bound].max(initial=-np.inf)), float((s * f)[at_zero].min(initial=np.inf))]
        level = s * float(np.mean([e for e in ends if np.isfinite(e)]))
    return beta, Top(float(np.max(0.5 * s * (level - f[~heavy]))), True, s)


def put_at_top(tracker: Tracker, smo: Smo, high: float | None, low: float) -> Top:
    """Put the tracker at the top of the path: at `high`, or (None) safely above the first event."""
    K, v = smo.K, smo.v
    if high is not None:
        scale = float(np.max(K.diagonal, initial=0.0)) * float(np.sum(v.upper - v.lower))
        tol = max(1e-8 * high, min(1e-6 * high, _ROUGH * scale))
        _settle(tracker, high, smo.at(high, majority_at_zero(v), tol), smo.control)
        slope = float(np.sign(excess_of(v)))
        is_open = at_rest(tracker.S.beta, v, slope)
        return Top(high, is_open, slope if is_open else 0.0)
    beta, top = limit_solution(smo, _ROUGH)
    lam = 2.0 * max(top.lam, low)
    for attempt in range(8):
        _settle(tracker, lam, beta, smo.control)
        is_open = at_rest(tracker.S.beta, v, top.bias_slope)
        if is_open or attempt == 7:
            break
        lam *= 2.0  # the first event was misjudged: the limit solution is only as good as its solver
    return Top(lam, is_open, top.bias_slope if is_open else 0.0, is_open)


def _settle(tracker: Tracker, lam: float, beta: FloatArray, control: Control) -> None:
    control.demand()
    gap = tracker.settle(lam, beta)
    if not gap <= GAP:
        tracker.improve(gap)
    control.demand()


def at_rest(beta: FloatArray, v: Variables, slope: float) -> bool:
    """Whether nothing changes for larger lambda: all points outside the heavier class are at their labels' bounds."""
    light = v.c != slope
    return bool(np.array_equal(beta[light], np.where(v.c > 0, v.upper, v.lower)[light]))
