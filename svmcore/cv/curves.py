"""From paths to exact curves of C: when the predictions of validation rows change, and what that costs.

Between two knots lambda f(x) is linear in lambda, so a row changes sign at a lambda in closed form. A decision value of
exactly zero counts as the first class, as everywhere in the library. At a breakpoint itself a curve has the value that
holds above it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._types import FloatArray, IntArray
from svmcore.base.threads import one_blas_thread
from svmcore.models.step_curve import StepCurve, steps
from svmcore.path.cross import Cross
from svmcore.path.error_curve import sign_changes
from svmcore.path.result import Path


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
