"""Dual coordinate descent for linear machines of very many features: a sweep is a step for every row, whatever d is.

The weights ``w = X'z`` follow every step. Rows at a bound that point far outwards rest, and are asked again before the end.
What every row lacks for optimality adds up to an estimate of the duality gap, which costs nothing. The gap itself takes as
long as a sweep: it is measured, from the data, when the estimate is near the goal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from svmcore._types import FloatArray, Status
from svmcore.solvers import _coordinate_jit as loops
from svmcore.solvers import _newton_jit
from svmcore.solvers._newton import Enough, Measures, SparseFeatures, measured
from svmcore.solvers._newton_jit import Losses

# The estimate of a gap is what the rows lacked one after the other; all that happened since makes the gap larger. It is
# measured where the estimate is below a share of the goal: the share that it was of the gap when that was measured last. The
# first one is smaller where the losses bend more than the squared norm does.
FIRST_SHARE, LEAST_SHARE, LARGEST_SHARE = 0.1, 0.01, 1.0
CLOSER = 0.5  # share of a violation that is aimed at where resting rows had a larger one
SEED = 42
WORK = 1 << 24  # entries of rows that sweeps look at until somebody is asked whether they may go on
FLAT = 1e-200  # added to K_ii: that of an empty row is zero


class Descent:
    """The method at work on one machine, over the rows of a CSR matrix. `measured` says how good it is."""

    def __init__(self, rows: SparseFeatures, losses: Losses, *, squared: bool, seed: int = 0) -> None:
        self.rows, self.losses, self.squared = rows, losses, squared
        give = 1.0 / losses.stiff if squared else np.zeros(rows.n)
        if rows.squares is None:
            rows.squares = np.empty(rows.n)
            loops.squares(rows.lists, rows.squares)
        self.table = np.zeros((rows.n, loops.WIDTH))
        stiff = losses.stiff if squared else np.zeros(rows.n)
        for k, column in enumerate((losses.target, losses.half, losses.lower, losses.upper, give, stiff)):
            self.table[:, k] = column
        self.table[:, loops.LENGTH] = 1.0 / (rows.squares + give + FLAT)
        bend = 1.0 + float(losses.stiff.mean()) * float(rows.squares.mean())
        self.share = max(LEAST_SHARE, FIRST_SHARE / bend)
        self.order = np.arange(rows.n)
        self.count, self.far, self.seed = rows.n, np.full(2, loops.FARTHEST), np.int64((SEED + seed) % 2**31)
        self.slice = 1 + WORK * rows.n // (rows.n + int(rows.lists.indptr[-1])) // max(rows.n, 1)
        self.steps, self.rounds = 0, 0
        self.found = self.measures()

    def begin(self, z: FloatArray) -> None:
        """Start from dual variables."""
        self.table[:, loops.VALUE] = z
        self.found = self.measures()

    def sweep(self, enough: float, still: float, most: int) -> float:
        """Steps for every row that does not rest, until an estimate of their gap, or their largest violation, is small."""
        self.count, excess, self.worst, self.seed, steps = loops.sweeps(
            self.rows.lists,
            self.table,
            self.sums,
            self.order,
            self.count,
            self.far,
            self.seed,
            enough,
            still,
            min(most, self.slice),
        )
        self.steps += steps
        return float(excess)

    def look(self) -> None:
        """Measure, and let those resting rows count again that are not at their optimum."""
        self.found = self.measures()
        rest = self.order[self.count :]
        if len(rest):
            pull = np.empty(self.rows.n)
            _newton_jit.violations(self.there, self.squared, pull)
            moves = pull[rest] > 0.0
            self.order[self.count :] = np.concatenate([rest[moves], rest[~moves]])
            self.count += int(np.count_nonzero(moves))
        np.maximum(self.far, self.found.violation, out=self.far)
        self.rounds += 1

    def measures(self) -> Measures:
        """How good X'z is, all of it from the data."""
        self.losses.z[:] = self.table[:, loops.VALUE]
        self.there, self.sums, found = measured(self.rows, self.losses, self.squared)
        return found

    @property
    def gap(self) -> float:
        """The duality gap, when it was measured last."""
        return self.found.gap

    @property
    def primal(self) -> float:
        """The primal objective of X'z then."""
        return self.found.primal

    @property
    def best(self) -> FloatArray:
        """The present dual variables, which are the best so far, nearly."""
        return self.table[:, loops.VALUE]

    def take(self, z: FloatArray) -> None:
        """Dual variables."""
        self.losses.z[:] = z


def solve(descent: Descent, goal: Enough, most: int, poll: Callable[[], bool]) -> Status:
    """Sweeps until the goal is met, measured anew from the data."""
    still = goal.violation
    while True:
        found = descent.found
        if goal.met(found):
            return Status.CONVERGED
        if descent.steps >= most:
            return Status.MAX_ITER
        level = goal.gap * abs(found.primal)
        if found.violation <= goal.violation:
            still, level = 0.0, max(goal.gap, goal.largest) * abs(found.primal)
        estimate = descent.worst = np.inf
        while estimate > descent.share * level and descent.worst > still and descent.steps < most:
            if poll():
                descent.look()
                return Status.INTERRUPTED
            estimate = descent.sweep(descent.share * level, still, most - descent.steps)
        still *= CLOSER
        full = descent.count == descent.rows.n
        descent.look()
        if estimate > 0.0 and descent.found.gap > 0.0:
            descent.share = min(LARGEST_SHARE, estimate / descent.found.gap)
        elif full and not goal.met(descent.found):
            return Status.PRECISION
