"""Dual coordinate descent for linear machines of very many features: a sweep is a step for every row, whatever d is.

The weights ``w = X'z`` follow every step. Rows at a bound that point far outwards rest, and are asked again before the end.
What every row lacks for optimality adds up to an estimate of the duality gap, which costs nothing. The gap itself takes as
long as a sweep: it is measured, from the data, when the estimate is near the goal.

Machines over the same rows share the passes over them. One that has come to where its gap is to be measured waits for the
others, and one that has met its goal leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from svmcore._types import FloatArray, Status
from svmcore.kernel.points import aligned
from svmcore.simd.rows import GROUP
from svmcore.solvers import _coordinate_jit as loops
from svmcore.solvers import _newton_jit
from svmcore.solvers._losses import Enough, Measures, assessed, measured
from svmcore.solvers._newton_jit import Losses
from svmcore.solvers._rows import SparseFeatures

# The estimate of a gap is what the rows lacked one after the other; all that happened since makes the gap larger. It is
# measured where the estimate is below a share of the goal: the share that it was of the gap when that was measured last. The
# first one is smaller where the losses bend more than the squared norm does.
FIRST_SHARE, LEAST_SHARE, LARGEST_SHARE = 0.1, 0.01, 1.0
CLOSER = 0.5  # share of a violation that is aimed at where resting rows had a larger one
# An estimate may be far above the gap. So this is measured, too, when there have been as many sweeps as until it was measured
# last, and SELDOM at least. A machine waits for others as long as OTHERS sweeps take.
SELDOM, OTHERS = 50, 8
SEED = 42
WORK = 1 << 24  # entries of rows that sweeps look at until somebody is asked whether they may go on
FLAT = 1e-200  # added to K_ii: that of an empty row is zero
# Steps are so much longer than to the best value of their variable: a fifth fewer sweeps. The dual objective falls with every
# step that is less than twice as long. Where a squared loss bends much more than the squared norm, single steps nearly find
# the answer, and longer ones cost sweeps: so a row's steps are longer by the square of its kernel's share of the curvature.
LONGER = 1.3


class Descent:
    """The method at work over the rows of a CSR matrix, on one machine or on up to `GROUP`. `found` says how good each is."""

    def __init__(self, rows: SparseFeatures, machines: Sequence[Losses], *, squared: bool, seed: int = 0) -> None:
        self.rows, self.machines, self.squared = rows, machines, squared
        n, k = rows.n, len(machines)
        self.width = width = 1 if k == 1 else GROUP
        if rows.squares is None:
            squares = np.empty(n)
            loops.squares(rows.lists, squares)
            rows.squares = squares  # as a whole: other groups may look for them
        self.table = aligned((n * width, loops.WIDTH), zero=True)
        self.share = np.empty(k)
        for h, losses in enumerate(machines):
            give, stiff = (1.0 / losses.stiff, losses.stiff) if squared else np.zeros((2, n))
            bends = rows.squares + give + FLAT
            length = (1.0 + (LONGER - 1.0) * (rows.squares / bends) ** 2) / bends
            given = losses.target, losses.half, losses.lower, losses.upper, give, stiff, length
            for field, column in enumerate(given):
                self.table[h::width, field] = column
            bend = 1.0 + float(losses.stiff.mean()) * float(rows.squares.mean())
            self.share[h] = max(LEAST_SHARE, FIRST_SHARE / bend)
        self.w = aligned(((rows.d + 1) * width,), zero=True)
        self.sums = [np.zeros(rows.d + 1)] * k  # X'z of each, when it was measured last
        self.tally = np.zeros((k, loops.TALLIES))
        self.tally[:, [loops.INNER, loops.OUTER]] = loops.FARTHEST
        self.awake = np.full(n, 2**k - 1, np.int16)
        self.order = np.arange(n)
        self.count, self.seed = n, np.int64((SEED + seed) % 2**31)
        self.slice = 1 + WORK * n // (n + int(rows.lists.indptr[-1])) // max(n, 1)
        self.steps, self.rounds = 0, 0
        self.live = list(range(k))  # those that have not ended
        self.there = list(machines)
        self.found = [Measures(np.inf, np.inf, np.inf)] * k
        self._measure()

    def begin(self, z: FloatArray) -> None:
        """Start the first machine from dual variables."""
        self.table[:: self.width, loops.VALUE] = z
        self._measure()

    def send(self, h: int, enough: float, still: float, most: int) -> None:
        """Let machine h go until an estimate of its gap, or its largest violation, is so small; for `most` sweeps at most."""
        row = self.tally[h]
        row[[loops.ENOUGH, loops.STILL, loops.MOST]] = enough, still, most
        row[loops.BEFORE], row[loops.ESTIMATE], row[loops.GOES] = loops.FARTHEST, np.inf, 1.0

    @property
    def going(self) -> int:
        """How many of the machines that live do not wait."""
        return int(np.count_nonzero(self.tally[self.live, loops.GOES]))

    def sweep(self, most: int) -> None:
        """Steps for every row that does not rest, until one more machine waits."""
        lists, most = self.rows.lists, min(most, self.slice)
        lines = self.table, self.w, self.order, self.count, self.awake
        if self.width == 1:
            self.count, self.seed, steps = loops.sweeps(lists, *lines, self.tally[0], self.seed, most)
        else:
            live, scratch = np.int64(sum(1 << h for h in self.live)), aligned((GROUP,))
            self.count, self.seed, steps = loops.group_sweeps(lists, *lines, live, self.tally, scratch, self.seed, most)
        self.steps += steps

    def look(self) -> None:
        """Measure, and let those resting rows count again that are not at the optimum of a machine."""
        self._measure()
        rest, pull = self.order[self.count :], np.empty(self.rows.n)
        moves = np.zeros(len(rest), bool)
        for h in self.live:
            if not (self.awake >> h & 1).all():
                _newton_jit.violations(self.there[h], self.squared, pull)
                self.awake[pull > 0.0] |= 1 << h
                moves |= pull[rest] > 0.0
        self.order[self.count :] = np.concatenate([rest[moves], rest[~moves]])
        self.count += int(np.count_nonzero(moves))
        for h in self.live:
            out = self.tally[h, : loops.OUTER + 1]
            np.maximum(out, self.found[h].violation, out=out)
        self.rounds += 1

    def _measure(self) -> None:
        """How good X'z is, all of it from the data, for every machine that lives."""
        z = self.table[:, loops.VALUE].copy()
        for h in self.live:
            self.machines[h].z[:] = z[h :: self.width]
        if self.width == 1:
            self.there[0], self.w, self.found[0] = measured(self.rows, self.machines[0], self.squared)
            self.sums[0] = self.w
            return
        f = np.zeros(len(z))
        if z.any():
            loops.group_sums(self.rows.lists, z, self.w)
            loops.group_times(self.rows.lists, self.w, f)
        for h in self.live:
            self.sums[h] = self.w[h::GROUP].copy()
            own = f[h::GROUP].copy()
            self.there[h], self.found[h] = assessed(self.machines[h], self.sums[h], own, self.squared)

    def took(self, h: int) -> int:
        """The sweeps of machine h."""
        return int(self.tally[h, loops.TOOK])

    @property
    def gap(self) -> float:
        """The duality gap of the first machine, when it was measured last."""
        return self.found[0].gap

    @property
    def primal(self) -> float:
        """The primal objective of its X'z then."""
        return self.found[0].primal

    @property
    def best(self) -> FloatArray:
        """Its present dual variables, which are the best so far, nearly."""
        return self.table[:: self.width, loops.VALUE]


def solve(descent: Descent, goals: Sequence[Enough], most: int, poll: Callable[[], bool]) -> list[Status]:
    """Sweeps until every machine meets its goal, measured anew from the data."""
    ends = [Status.INTERRUPTED] * len(goals)
    still = [goal.violation for goal in goals]
    descent.live = list(range(len(goals)))
    while True:
        for h in list(descent.live):
            met = goals[h].met(descent.found[h])
            if met or descent.took(h) >= most:
                ends[h] = Status.CONVERGED if met else Status.MAX_ITER
                descent.live.remove(h)
        if not descent.live:
            return ends
        levels = {}
        for h in descent.live:
            goal, found = goals[h], descent.found[h]
            levels[h] = goal.gap * abs(found.primal)
            if found.violation <= goal.violation:
                still[h], levels[h] = 0.0, max(goal.gap, goal.largest) * abs(found.primal)
            descent.send(h, descent.share[h] * levels[h], still[h], most)
        until, alone = descent.steps + max(SELDOM, descent.steps), len(descent.live)
        while descent.going and descent.steps < until:
            if poll():
                descent.look()
                return ends
            descent.sweep(until - descent.steps)
            if descent.going < alone == len(descent.live):
                until, alone = min(until, descent.steps + OTHERS), 0
        asked = [bool((descent.awake >> h & 1).all()) for h in descent.live]
        descent.look()
        for h, full in zip(list(descent.live), asked, strict=True):
            estimate, found = float(descent.tally[h, loops.ESTIMATE]), descent.found[h]
            still[h] *= CLOSER
            if estimate > 0.0 and found.gap > 0.0:
                descent.share[h] = min(LARGEST_SHARE, estimate / found.gap)
            elif full and not goals[h].met(found):
                ends[h] = Status.PRECISION
                descent.live.remove(h)
