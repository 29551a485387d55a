"""From paths to exact curves of C: when the predictions of validation rows change, and what that costs.

Between two knots lambda f(x) is linear in lambda, so a row changes sign at a lambda in closed form. A decision value of
exactly zero counts as the first class, as everywhere in the library. At a breakpoint itself a curve has the value that
holds above it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._types import FloatArray, IntArray
from svmcore.base.threads import one_blas_thread
from svmcore.models.step_curve import StepCurve, steps
from svmcore.path.cross import Cross
from svmcore.path.error_curve import sign_changes
from svmcore.path.follower import values_at_knots
from svmcore.path.result import Path

_TIE = 1e-12  # differences below this share of the largest value are ties


class Decisions(NamedTuple):
    """What is predicted for some rows at every C: `start` for the smallest C, then row `row[k]` becomes `to[k]` at `C[k]`."""

    start: IntArray
    C: FloatArray
    row: IntArray
    to: IntArray

    def at(self, C: float) -> IntArray:
        """The predictions at one C."""
        now = self.start.copy()
        upto = int(np.searchsorted(self.C, C, side="right"))
        now[self.row[:upto]] = self.to[:upto]  # the last change of a row wins
        return now

    def origin(self) -> IntArray:
        """What row `row[k]` was just before `C[k]`."""
        order = np.argsort(self.row, kind="stable")
        before = np.empty_like(self.to)
        row, to = self.row[order], self.to[order]
        first = np.concatenate([[True], row[1:] != row[:-1]]) if row.size else np.empty(0, dtype=bool)
        before[order] = np.where(first, self.start[row], np.concatenate([to[:1], to[:-1]]))
        return before


@one_blas_thread
def signs(path: Path, cross: Cross, control: Control) -> Decisions | None:
    """1 where f(x) > 0, else 0, for the rows of `cross`; None when the work had to stop."""
    start, flips, end = sign_changes(path, cross, control)
    if end != path._track.knot[-1, 0]:
        return None
    C = 1.0 / flips.lam
    order = np.argsort(C, kind="stable")
    return Decisions(start.astype(np.int64), C[order], flips.row[order], flips.positive[order].astype(np.int64))


def joined_decisions(first: Decisions, second: Decisions, at: float) -> Decisions:
    """`first` below C = `at`, `second` from there on."""
    stop, begin = np.searchsorted(first.C, at, side="left"), np.searchsorted(second.C, at, side="right")
    before = Decisions(first.start, first.C[:stop], first.row[:stop], first.to[:stop]).at(np.inf)
    after = second.at(at)
    changed = np.flatnonzero(before != after)
    return Decisions(
        first.start,
        np.concatenate([first.C[:stop], np.full(changed.size, at), second.C[begin:]]),
        np.concatenate([first.row[:stop], changed, second.row[begin:]]),
        np.concatenate([first.to[:stop], after[changed], second.to[begin:]]),
    )


def cost_curve(
    decisions: Decisions, truth: IntArray, cost: FloatArray, weight: FloatArray, C_range: tuple[float, float]
) -> StepCurve:
    """The weighted mean of cost[truth, prediction] over the rows."""
    change = weight[decisions.row] * (
        cost[truth[decisions.row], decisions.to] - cost[truth[decisions.row], decisions.origin()]
    )
    begin = float(weight @ cost[truth, decisions.start])
    return steps(decisions.C, change, begin, float(weight.sum()), C_range)


# ---- the area under the ROC curve ----------------------------------------------------------------------------------


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
