"""Scores of the decision values themselves: the hinge loss, piecewise linear in C, and the AUC, a step function of C.

Between two knots lambda f(x) is linear in lambda, so f(x) is linear in C. All knots are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from svmcore._threads import one_blas_thread
from svmcore._types import FloatArray
from svmcore.cv.curves import steps, sweep
from svmcore.path.cross import Cross
from svmcore.path.result import Path
from svmcore.step_curve import StepCurve

_ROWS = 512  # looked at together
_TIE = 1e-12  # differences below this share of the largest value are ties
_SAME = 1e-12  # values of a curve that are one


def _segments(path: Path, cross: Cross) -> Iterator[tuple[float, float, FloatArray, FloatArray]]:
    """`sweep` for all rows at once."""
    columns = cross.columns(np.arange(path._sign.size))
    blocks = [cross.block(np.arange(k, min(k + _ROWS, cross.n)), columns) for k in range(0, cross.n, _ROWS)]
    return sweep(path, np.concatenate(blocks))


# ---- the hinge loss --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LineCurve:
    """A continuous, piecewise linear function of C, exact: linear between the knots `C`, where it has `levels`."""

    C: FloatArray
    levels: FloatArray

    def __call__(self, C: Any) -> Any:
        """The value at C."""
        out = np.interp(np.asarray(C, dtype=np.float64), self.C, self.levels)
        return float(out) if out.ndim == 0 else out

    @property
    def C_min(self) -> float:
        """The smallest C; 0 where it is known for every small C."""
        return float(self.C[0])

    @property
    def C_max(self) -> float:
        """The largest C."""
        return float(self.C[-1])

    @property
    def breakpoints(self) -> FloatArray:
        """The knots between the ends."""
        return self.C[1:-1]

    @property
    def values(self) -> FloatArray:
        """The values at the breakpoints."""
        return self.levels[1:-1]

    @property
    def minimum(self) -> float:
        """The smallest value at any C: it is at a knot."""
        return float(self.levels[self.C > 0.0].min())

    @property
    def best_interval(self) -> tuple[float, float]:
        """The widest interval that attains the minimum, most often one point."""
        least = (self.levels <= self.minimum + _SAME * max(1.0, self.minimum)) & (self.C > 0.0)
        change = np.flatnonzero(np.diff(np.concatenate([[False], least, [False]]).astype(np.int8)))
        begin, end = self.C[change[::2]], self.C[change[1::2] - 1]
        k = int(np.argmax(end / begin))
        return float(begin[k]), float(end[k])

    @property
    def best_C(self) -> float:
        """The geometric middle of the best interval."""
        low, high = self.best_interval
        return float(np.sqrt(low * high))

    def crossings(self, level: float) -> FloatArray:
        """Where it has this value."""
        a, b = self.levels[:-1] - level, self.levels[1:] - level
        k = np.flatnonzero((a > 0.0) != (b > 0.0))
        return np.asarray(self.C[k] + a[k] / (a[k] - b[k]) * (self.C[k + 1] - self.C[k]))

    def between(self, low: float, high: float) -> LineCurve:
        """The part between two values of C."""
        inner = self.C[(low < self.C) & (high > self.C)]
        C = np.concatenate([[low], inner, [high]]) if high > low else np.array([low, high])
        return LineCurve(C, np.asarray(self(C)))

    def scaled(self, ratio: float) -> LineCurve:
        """The same over C / ratio."""
        return LineCurve(self.C / ratio, self.levels)


@one_blas_thread
def hinge_curve(path: Path, cross: Cross, sign: FloatArray, weight: FloatArray) -> LineCurve:
    """The weighted mean of max(0, 1 - y f(x)) over the rows."""
    weight = weight / weight.sum()
    Cs: list[FloatArray] = []
    levels: list[FloatArray] = []
    slack0 = np.empty(0)  # 1 - y f(x) at the smaller C
    C0 = 0.0
    for high, low, _, after in _segments(path, cross):
        C1 = 1.0 / low
        slack1 = 1.0 - sign * after * C1
        if high == np.inf:
            if path._track.open_top:  # down to C = 0, where f is the intercept alone
                slack0 = 1.0 - sign * path._track.bias_slope
                Cs, levels = [np.zeros(1)], [np.array([weight @ np.maximum(slack0, 0.0)])]
            else:
                Cs, levels = [np.array([C1])], [np.array([weight @ np.maximum(slack1, 0.0)])]
                slack0, C0 = slack1, C1
                continue
        turn = np.flatnonzero((slack0 > 0.0) != (slack1 > 0.0))
        share = np.sort(slack0[turn] / (slack0[turn] - slack1[turn]))
        share = np.append(share, 1.0)
        if turn.size:
            steady = np.ones(slack0.size, dtype=bool)
            steady[turn] = False
            ends = [float(weight[steady] @ np.maximum(slack[steady], 0.0)) for slack in (slack0, slack1)]
            level = ends[0] + share * (ends[1] - ends[0])
            moving = slack0[turn] + share[:, None] * (slack1[turn] - slack0[turn])
            level = level + np.maximum(moving, 0.0) @ weight[turn]
        else:
            level = np.array([weight @ np.maximum(slack1, 0.0)])
        Cs.append(C0 + share * (C1 - C0))
        levels.append(level)
        slack0, C0 = slack1, C1
    C, level = np.concatenate(Cs), np.concatenate(levels)
    keep = np.concatenate([C[1:] > C[:-1], [True]])
    return LineCurve(C[keep], level[keep])


# ---- the AUC ---------------------------------------------------------------------------------------------------------


@one_blas_thread
def auc_curve(path: Path, cross: Cross, positive: Any, weight: FloatArray) -> StepCurve:
    """One minus the area under the ROC curve: the weighted share of pairs of rows of both classes in the wrong order.

    Ties count one half. A pair changes its order at a lambda in closed form; only rows that leave their place in the order
    between two knots are paired.
    """
    C: list[FloatArray] = [np.empty(0)]
    changes: list[FloatArray] = [np.empty(0)]
    begin = 0.0
    for high, low, before, after in _segments(path, cross):
        if high == np.inf:  # only the intercept changes
            up, down = np.flatnonzero(positive), np.flatnonzero(~positive)
            order = _order(after[up][:, None] - after[down][None, :], _scale(after))
            begin = float((weight[up][:, None] * weight[down][None, :] * 0.5 * (1.0 - order)).sum())
            continue
        rows = _displaced(before, after)
        up, down = rows[positive[rows]], rows[~positive[rows]]
        if not (up.size and down.size):
            continue
        a, b = before[up][:, None] - before[down], after[up][:, None] - after[down]
        was, now = _order(a, _scale(before)), _order(b, _scale(after))
        i, j = np.nonzero(was != now)
        if i.size:
            share = np.clip(a[i, j] / (a[i, j] - b[i, j]), 0.0, 1.0)
            C.append(1.0 / (high + share * (low - high)))
            changes.append(0.5 * (was[i, j] - now[i, j]) * weight[up[i]] * weight[down[j]])
    at, change = np.concatenate(C), np.concatenate(changes)
    in_turn = np.argsort(at, kind="stable")
    total = float(weight[positive].sum() * weight[~positive].sum())
    return steps(at[in_turn], change[in_turn], begin, total, path.C_range)


def _scale(F: FloatArray) -> float:
    return _TIE * float(np.abs(F).max(initial=0.0))


def _order(difference: FloatArray, tie: float) -> FloatArray:
    """1 for the right order, -1 for the wrong one, 0 for a tie."""
    return np.where(np.abs(difference) <= tie, 0.0, np.sign(difference))


def _displaced(before: FloatArray, after: FloatArray) -> Any:
    """The rows that may have met another one between two knots."""
    order = np.argsort(before, kind="stable")
    start, end = before[order], after[order]
    tie = _scale(before) + _scale(after)
    largest = np.maximum.accumulate(end)[:-1]
    smallest = np.minimum.accumulate(end[::-1])[::-1][1:]
    moved = np.zeros(order.size, dtype=bool)
    moved[1:] |= (end[1:] <= largest + tie) | (start[1:] <= start[:-1] + tie)
    moved[:-1] |= (end[:-1] >= smallest - tie) | (start[:-1] >= start[1:] - tie)
    return order[moved]
