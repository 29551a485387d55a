"""Linear machines with weights of exactly zero: the sum of |w| in place of |w|^2 / 2, and the squared hinge.

Minimise ``sum_j |w_j| + sum_i c_i max(0, 1 - s_i f_i)^2 / 2`` with ``f = X w``, where the last column of X is a constant.
This is no problem of the sign-free dual. Its own dual maximises ``sum_i |b_i| - b_i^2 / (2 c_i)`` over all b with the signs
of s and ``|X'b|_j <= 1``. The pulls ``b = c (s - f)`` of the rows with s f < 1, multiplied so that they fit into that box,
are the certificate: the gap is what every weight and every row lacks, and none of these terms is negative.

Weights are found in a working set of columns: those that are not zero, and those that violate their box most. Sweeps of
coordinate steps find the signs, and Newton's step over the weights that are not zero finds the rest. It is tried whenever
sweeps have cost as much as it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from svmcore._types import NONZERO, FloatArray, IntArray, Status
from svmcore.kernel.points import is_sparse
from svmcore.solvers import _lasso_jit as loops
from svmcore.solvers._losses import Measures
from svmcore.solvers._rows import SparseFeatures

LEAST, GROWS = 200, 2  # columns of a working set, and as a multiple of the weights that are not zero
CLOSER = 0.1  # share of the violation of all columns that a round leaves in its working set
# A violation v costs the dual about v times the sum of |w|, and v^2 times the losses. It is small enough where either is this
# share of the goal, and of its root.
ENOUGH = 0.25
SWEEPS = 50  # of a round
MOST = 2000  # weights that Newton's step moves at once
BLAS = 64.0  # operations of a matrix in the time of one of a sweep
SPARSE, PASSES = 10.0, 0.5  # the same of a sparse one, and its passes over the rows
CALL, CALLS = 2e4, 1e5  # what Python takes for a sweep, and for Newton's step
TRIALS, NARROW = 20, 1e-3  # of a line search
RIDGE = 1e-11  # share of a diagonal that is added to it, so that columns which depend on others have a factor
DROPS = 30  # weights that a Newton step may make zero
HALF = 0.5
LOWER = 1e-3  # share of the primal by which a round is progress that lowers it by so much
HARD, IDLE = (
    1,
    20,
)  # rounds that are no progress and do not halve the gap, until another way is tried, and until rounding is all that moves
# The other way: costs that are FOOT times what the first weight needs not to be zero, to a gap of ROUGH, then LADDER times
# these, and so on.
FOOT, LADDER, ROUGH = 30.0, 10.0, 1e-2
SEED = 42


class RowsAndColumns:
    """The rows and the columns of a matrix, C-ordered or CSR, followed by a constant, for all machines over them."""

    def __init__(self, X: Any, constant: float) -> None:
        self.X, self.constant = X, constant
        self.n, d = X.shape
        self.d = d + 1
        self.rows: SparseFeatures | None = None
        if is_sparse(X):
            self.rows = SparseFeatures(X, constant)
            many = int(X.indptr[-1]) + self.n
            data, rows, start = np.empty(many), np.empty(many, np.uint32), np.zeros(self.d, np.int64)
            self.lists = loops.ColumnLists(data, rows, start, start, np.zeros(self.d, np.int64))
            loops.transpose(self.rows.lists, self.lists)
            return
        data, start = np.empty(X.size + self.n), self.n * np.arange(self.d)
        self.columns = data[: X.size].reshape(d, self.n).T
        self.columns[...] = X
        data[X.size :] = constant
        first, count = np.zeros(self.d, np.int64), np.full(self.d, self.n)
        self.lists = loops.ColumnLists(data, np.arange(self.n, dtype=np.uint32), start, first, count)

    def times(self, w: FloatArray) -> FloatArray:
        """X w + constant w0."""
        out: FloatArray = self.X @ w[:-1]
        out += self.constant * w[-1]
        return out

    def sums(self, pull: FloatArray) -> FloatArray:
        """X' pull, with the constant."""
        return np.append(pull @ self.X, self.constant * pull.sum())

    def gram(self, support: IntArray, table: FloatArray) -> FloatArray:
        """The lower half of the Gram matrix of some columns, weighted by what pulls fall by, in Fortran's order."""
        k = len(support)
        if self.rows is not None:
            place = np.full(self.d, -1, np.int32)
            place[support] = np.arange(k)
            out = np.zeros((k, k))
            loops.chosen_gram(self.rows.lists, table, place, np.empty(k + 1, np.int32), np.empty(k + 1), out)
            return out.T
        rows = np.flatnonzero(table[:, loops.BEND])
        if not len(rows):
            return np.zeros((k, k), order="F")
        part = np.full((len(rows), k), self.constant)
        within = support[support < self.d - 1]
        part[:, : len(within)] = self.columns[np.ix_(rows, within)]
        part *= np.sqrt(table[rows, loops.BEND])[:, None]
        found: FloatArray = blas.dsyrk(1.0, part.T, lower=1)
        return found


class Lasso:
    """The method at work on one machine: `advance` is a round, `found` says how good the weights are."""

    def __init__(
        self, design: RowsAndColumns, target: FloatArray, costs: FloatArray | float, poll: Callable[[], bool]
    ) -> None:
        self.design, self.target, self.poll = design, target, poll
        self.table = np.zeros((design.n, loops.WIDTH))
        self.costs = target * costs
        self.w = np.zeros(design.d)
        self.steps, self.spent, self.seed = 0, 0.0, np.int64(SEED)
        self.begin(self.w)

    @property
    def gap(self) -> float:
        """The duality gap, when it was measured last."""
        return self.found.gap

    @property
    def primal(self) -> float:
        """The primal objective then."""
        return self.found.primal

    def begin(self, w: FloatArray, factor: float = 1.0) -> None:
        """Start at weights, with the costs times a factor."""
        self.w[:] = w
        self.table[:, loops.COST] = factor * self.costs
        self.look()

    def look(self) -> None:
        """Residuals, pulls and sums from the data, and how good the weights are."""
        table = self.table
        residual, cost = self.target - self.design.times(self.w), table[:, loops.COST]
        table[:, loops.RESIDUAL] = residual
        table[:, loops.BEND] = np.where(residual * cost > 0.0, np.abs(cost), 0.0)
        table[:, loops.PULL] = table[:, loops.BEND] * residual
        self.sums = self.design.sums(np.ascontiguousarray(table[:, loops.PULL]))
        size, here = np.abs(self.sums), np.abs(self.w)
        lacks = np.where(self.w != 0.0, np.abs(self.sums - np.sign(self.w)), np.maximum(size - 1.0, 0.0))
        loss = 0.5 * float(table[:, loops.PULL] @ residual)
        # The dual objective at share x pull is  x A - x^2 loss  with A = the sum of |pull|.
        best = float(np.abs(table[:, loops.PULL]).sum()) / max(2.0 * loss, NONZERO)
        share = min(best, 1.0 / max(float(size.max()), NONZERO))
        gap = float((here - share * self.w * self.sums).sum()) + (1.0 - share) ** 2 * loss
        self.found = Measures(float(here.sum()) + loss, gap, float(lacks.max()))

    def advance(self, goal: float, most: int) -> None:
        """A round: a working set, and sweeps and steps until its columns violate much less than all do."""
        order = self._working()
        far, count = np.inf, len(order)
        weights = max(float(np.abs(self.w).sum()), NONZERO)
        level = ENOUGH * min(goal * self.primal / weights, goal**0.5)
        if len(order) < self.design.d:
            level = max(CLOSER * self.found.violation, level)
        for _ in range(SWEEPS):
            work = self.design.lists.entries[order[:count]].sum()
            count, worst, self.seed = loops.sweep(self.design.lists, self.table, self.w, order, count, far, self.seed)
            self.steps += 1
            self.spent += 2.0 * float(work) + CALL
            near = worst <= level
            if near and count == len(order):
                break
            if self.steps >= most or self.poll():
                break
            if near:
                far, count = np.inf, len(order)
                continue
            far, support = worst, np.flatnonzero(self.w)
            if 0 < len(support) <= MOST and self.spent >= self._cost(support):
                self.spent = 0.0
                self._together(support)
        self.look()

    def _working(self) -> IntArray:
        """The columns of a round: all that are not zero, and those that violate most."""
        size, some = np.abs(self.sums), self.w != 0.0
        most = min(self.design.d, max(LEAST, GROWS * np.count_nonzero(some)))
        size[some] = np.inf
        if most == self.design.d:
            return np.arange(most)
        chosen = np.argpartition(-size, most)[:most]
        return np.sort(chosen[size[chosen] > 1.0])

    # ---- Newton's step -----------------------------------------------------------------------------------------------

    def _cost(self, support: IntArray) -> float:
        """What Newton's step costs, in operations of a sweep."""
        k = float(len(support))
        factor = CALLS + k * k * k / (3.0 * BLAS)
        if self.design.rows is None:
            return factor + float(np.count_nonzero(self.table[:, loops.BEND])) * k * k / BLAS
        lists = self.design.lists
        entries = float(lists.entries[support].sum())
        return factor + PASSES * len(lists.data) + entries * entries / (SPARSE * float(self.design.n))

    def _together(self, support: IntArray) -> None:
        """Newton's step of all weights that are not zero. Those that would change their sign become zero."""
        here = self.w[support]
        slope = self.design.sums(np.ascontiguousarray(self.table[:, loops.PULL]))[support]
        there = _best_of_signs(self.design.gram(support, self.table), slope - np.sign(here), here)
        self._go(support, there)

    def _go(self, support: IntArray, there: FloatArray) -> None:
        """Towards weights that have no other signs, as far as brings something."""
        table, here = self.table, self.w[support]
        residual, cost = table[:, loops.RESIDUAL], table[:, loops.COST]
        by = np.zeros(self.design.d)
        by[support] = there - here
        df = self.design.times(by)
        grows = float(np.abs(there).sum() - np.abs(here).sum())
        low, high, t = 0.0, 1.0, 1.0
        for _ in range(TRIALS):
            after = residual - t * df
            bend = np.where(after * cost > 0.0, np.abs(cost), 0.0)
            pull = bend * after
            slope, curve = grows - float(pull @ df), float((bend * df) @ df)
            if t == 1.0 and slope <= 0.0:
                break
            low, high = (low, t) if slope > 0.0 else (t, high)
            if high - low <= NARROW * high:
                break
            guess = t - slope / curve if curve > 0.0 else low
            t = guess if low < guess < high else 0.5 * (low + high)
        self.w[support] = there if t == 1.0 else here + t * (there - here)
        table[:, loops.RESIDUAL], table[:, loops.PULL], table[:, loops.BEND] = after, pull, bend


def _best_of_signs(gram: FloatArray, slope: FloatArray, here: FloatArray) -> FloatArray:
    """Where the quadratic of a Gram matrix (its lower half) has its least value, among weights that keep their signs.

    One weight after the other that stands in the way becomes zero; where too many do, the answer is better than `here`.
    The factor stays that of all: what keeps a weight at zero is a force on it, which moves the others by a column of the
    inverse.
    """
    there = here.copy()
    diagonal = gram.ravel(order="K")[:: len(here) + 1]
    diagonal += RIDGE * diagonal + NONZERO
    factor, failed = lapack.dpotrf(gram, lower=1, clean=0, overwrite_a=1)
    if failed:
        return there
    rest, _ = lapack.dpotrs(factor, slope, lower=1)  # where the weights would go, from where they are
    gone: list[int] = []
    moves = np.empty((DROPS, len(here)))  # by the force on each that is gone
    while True:
        by = rest
        if gone:
            drawn = moves[: len(gone)]
            by = rest - np.linalg.lstsq(drawn[:, gone].T, rest[gone])[0] @ drawn
            by[gone] = 0.0
        ways = np.where(by * there < 0.0, -there / np.where(by == 0.0, 1.0, by), np.inf)
        first = int(np.argmin(ways))
        length = min(float(ways[first]), 1.0)
        there += length * by
        rest -= length * by
        if length == 1.0:
            return there
        there[first] = 0.0
        if len(gone) == DROPS:
            return there
        force = np.zeros(len(here))
        force[first] = 1.0
        moves[len(gone)], _ = lapack.dpotrs(factor, force, lower=1)
        gone.append(first)


def solve(machine: Lasso, goal: float, most: int) -> Status:
    """Rounds until the relative gap, measured from the data, is at most `goal`.

    Where some rounds bring little, as at a large C, the machine of a small C comes first, then that of a larger one.
    """
    least, lowest, idle, from_below = np.inf, np.inf, 0, False
    while True:
        found = machine.found
        if found.gap <= goal * found.primal:
            return Status.CONVERGED
        if found.gap <= HALF * least or found.primal <= (1.0 - LOWER) * lowest:
            least, lowest, idle = min(found.gap, least), min(found.primal, lowest), 0
        else:
            idle += 1
        if idle > IDLE:
            return Status.PRECISION
        if idle > HARD and not from_below:
            _climb(machine, most)
            least, lowest, idle, from_below = np.inf, np.inf, 0, True
            continue
        if machine.steps >= most:
            return Status.MAX_ITER
        if machine.poll():
            return Status.INTERRUPTED
        machine.advance(goal, most)


def _climb(machine: Lasso, most: int) -> None:
    """Come from the machine of a small C, whose costs are as large as some weights need not to be zero."""
    machine.begin(np.zeros(machine.design.d), 1.0)
    factor = FOOT / max(float(np.abs(machine.sums).max()), FOOT)
    while factor < 1.0 and machine.steps < most and not machine.poll():
        machine.begin(machine.w, factor)
        for _ in range(IDLE):
            if machine.found.gap <= ROUGH * machine.primal or machine.steps >= most or machine.poll():
                break
            machine.advance(ROUGH, most)
        factor *= LADDER
    machine.begin(machine.w, 1.0)
