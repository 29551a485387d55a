"""The AUC of decision values, a step function of C. Between two knots lambda f(x) is linear in lambda; all are looked at."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore._types import FloatArray
from svmcore.base.threads import one_blas_thread
from svmcore.models.step_curve import StepCurve, steps
from svmcore.path.cross import Cross
from svmcore.path.follower import values_at_knots
from svmcore.path.result import Path

_TIE = 1e-12  # differences below this share of the largest value are ties


@one_blas_thread
def auc_curve(path: Path, cross: Cross, positive: Any, weight: FloatArray) -> StepCurve:
    """One minus the area under the ROC curve: the weighted share of pairs of rows of both classes in the wrong order.

    Ties count one half. A pair changes its order at a lambda in closed form; only rows that leave their place in the order
    between two knots are paired.
    """
    C: list[FloatArray] = [np.empty(0)]
    changes: list[FloatArray] = [np.empty(0)]
    knots = ((float(at), values) for ats, F in values_at_knots(path, cross) for at, values in zip(ats, F, strict=True))
    low, after = next(knots)  # only the intercept changes above it
    up, down = np.flatnonzero(positive), np.flatnonzero(~positive)
    order = _order(after[up][:, None] - after[down][None, :], _scale(after))
    begin = float((weight[up][:, None] * weight[down][None, :] * 0.5 * (1.0 - order)).sum())
    for at_knot, values in knots:
        high, low, before, after = low, at_knot, after, values
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
    total = float(weight[positive].sum() * weight[~positive].sum())
    return steps(np.concatenate(C), np.concatenate(changes), begin, total, path.C_range)


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
