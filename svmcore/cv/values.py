"""The AUC of decision values, a step function of C. Between two knots lambda f(x) is linear in lambda; all are looked at."""

from __future__ import annotations

from collections.abc import Iterator
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


def _segments(path: Path, cross: Cross) -> Iterator[tuple[float, float, FloatArray, FloatArray]]:
    """`sweep` for all rows at once."""
    columns = cross.columns(np.arange(path._sign.size))
    blocks = [cross.block(np.arange(k, min(k + _ROWS, cross.n)), columns) for k in range(0, cross.n, _ROWS)]
    return sweep(path, np.concatenate(blocks))


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
