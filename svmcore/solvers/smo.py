"""SMO: two variables at a time, chosen by one of four rules.

Solves   every formulation of the sign-free dual, with or without an equality row, in finite or infinite boxes.
Cost     a kernel row of n values for each index that enters a pair and is not cached. A step takes O(n).
Stops    at the tolerance of the chosen criterion, measured on all variables with a freshly computed gradient.
Rules    "second": the partner of largest second-order gain (Fan, Chen and Lin 2005).
         "mvp": the maximal violating pair (Keerthi et al. 2001).
         "platt": Platt's two heuristics (1998).
         "simplified": a violator with a random partner.

Shrinking: from time to time the variables that sit at a bound and point outwards are left out. The problem that remains is
copied together: points, vectors, cached rows. When it is solved, the gradient of all variables is computed afresh. If
variables that were left out violate, the run goes on with all of them.
"""

from __future__ import annotations

import numpy as np

from svmcore import _smo_jit
from svmcore._smo_jit import RowCache, Scan
from svmcore._types import LANES, DualQP, FloatArray, IntArray, Points, Raw, Status
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import aligned, new_scratch, padded
from svmcore.problem import measures
from svmcore.simd.vector import BIG
from svmcore.solvers import _steps_jit
from svmcore.solvers._contract import Capabilities, SolverTask, fresh_residual
from svmcore.solvers._course import Course, tiny_of
from svmcore.solvers._steps_jit import Duals, Limits

CAPABILITIES = Capabilities(
    summary="sequential minimal optimisation with four working-set rules",
    equality=True,
    no_equality=True,
    infinite_bounds=True,
    warm_start=True,
)

RULES = {
    "second": _smo_jit.SECOND,
    "mvp": _smo_jit.MVP,
    "platt": _smo_jit.PLATT,
    "simplified": _smo_jit.SIMPLIFIED,
}
OPTION_VALUES = {"rule": tuple(RULES)}

# Shrinking. With fewer than _SHRINK_FROM variables copying costs more than it saves. The problem is copied together when at
# most the share _SHRINK_BELOW of it is left. After _OBJECTIONS shrunken problems whose left-out variables violate, it ends.
_SHRINK_FROM, _SHRINK_BELOW, _OBJECTIONS = 500, 0.8, 4


class _SMOProblem:
    """The variables that a run works on, with their points and row cache: all of them, or those that shrinking left."""

    def __init__(self, qp: DualQP, K: KernelMatrix, index: IntArray, beta: FloatArray, v: FloatArray) -> None:
        self.qp = qp
        self.K = K
        self.index = index
        n = len(index)
        size = max(padded(n), LANES)
        self.ids, lane = np.unique(qp.point[index], return_inverse=True)
        one_each = len(self.ids) == n and bool((lane == np.arange(n)).all())
        everything = len(self.ids) == K.n
        self.points: Points = K.points if everything else K.subset(self.ids)

        block = iter(aligned((10, size)))

        def vector(values: FloatArray | float, fill: float = 0.0) -> FloatArray:
            out: FloatArray = next(block)
            out[:n] = values
            out[n:] = fill
            return out

        curvature = K.diagonal[qp.point[index]] + qp.diag[index]
        b = beta[index]
        self.duals = Duals(
            n=n,
            equality=qp.equality,
            total=qp.total,
            beta=vector(b),
            v=vector(v[index]),
            c=vector(qp.c[index]),
            lower=vector(qp.lower[index]),
            upper=vector(qp.upper[index]),
            diag=vector(qp.diag[index]),
            curvature=vector(curvature, 1.0),
            point=np.ascontiguousarray(lane, np.int64),
            tiny=tiny_of(curvature),
        )
        self.scan = Scan(
            grow=vector(np.where(b < qp.upper[index], 0.0, -BIG), -BIG),
            shrink=vector(np.where(b > qp.lower[index], 0.0, BIG), BIG),
            score=next(block),
            best=np.empty(size // LANES),
            best_top=np.empty(size // LANES),
        )
        self.cache = self._new_cache(size, one_each)

    def _new_cache(self, size: int, one_each: bool) -> RowCache:
        stride = max(size, padded(self.points.n))
        capacity = int(min(max(self.K.cache_bytes // (8 * stride), 2), max(self.points.n, 2)))
        return RowCache(
            one_each=one_each,
            values=aligned((capacity, stride)),
            slot=np.full(max(self.points.n, 1), -1, np.int64),
            owner=np.full(capacity, -1, np.int64),
            used=np.zeros(capacity, np.int64),
            clock=np.zeros(2, np.int64),
            zero=aligned((stride,), zero=True),
            ones=np.ones(stride),
            points_row=aligned((stride,)),
        )

    def supply(self, row: int) -> None:
        """Compute the missing row of a Python kernel and put it into the cache."""
        duals, cache = self.duals, self.cache
        values = self.K.block(self.ids[row : row + 1], self.ids)[0]
        slot = _smo_jit.claim_slot(cache, row)
        cache.clock[0] += 1
        cache.used[slot] = cache.clock[0]
        cache.values[slot, : duals.n] = values[duals.point]
        cache.values[slot, duals.n :] = 0.0

    def restart(self, beta: FloatArray, v: FloatArray) -> None:
        """Overwrite the point and its residual. `beta` and `v` are of all variables."""
        n = self.duals.n
        self.duals.beta[:n] = beta[self.index]
        self.duals.v[:n] = v[self.index]
        self.refresh_masks()

    def refresh_masks(self) -> None:
        duals, n = self.duals, self.duals.n
        self.scan.grow[:n] = np.where(duals.beta[:n] < duals.upper[:n], 0.0, -BIG)
        self.scan.shrink[:n] = np.where(duals.beta[:n] > duals.lower[:n], 0.0, BIG)

    def shrunken(self, full: FloatArray, v: FloatArray) -> _SMOProblem | None:
        """A copy without the variables that sit at a bound and point outwards. None when it would not pay.

        `full` and `v` are the point and the residual of all variables. In place: full, v.
        """
        duals, n = self.duals, self.duals.n
        beta, residual = duals.beta[:n], duals.v[:n]
        can_grow, can_shrink = beta < duals.upper[:n], beta > duals.lower[:n]
        if duals.equality:
            top = float(np.max(residual, where=can_grow, initial=-np.inf))
            bottom = float(np.min(residual, where=can_shrink, initial=np.inf))
        else:
            top = bottom = 0.0
        keep = ~((can_grow & ~can_shrink & (residual < bottom)) | (can_shrink & ~can_grow & (residual > top)))
        count = int(np.count_nonzero(keep))
        if count > _SHRINK_BELOW * n or count < 2:
            return None
        full[self.index] = beta
        v[self.index] = residual
        child = _SMOProblem(self.qp, self.K, self.index[keep], full, v)
        child.inherit(self, np.flatnonzero(keep))
        return child

    def inherit(self, parent: _SMOProblem, columns: IntArray) -> None:
        """Copy the cached rows of the parent, as far as their points are left here. The oldest comes first."""
        order = np.argsort(parent.cache.used[: parent.cache.clock[1]], kind="stable")
        mine = np.searchsorted(self.ids, parent.ids[parent.cache.owner[order]])
        mine[mine == len(self.ids)] = 0
        kept = self.ids[mine] == parent.ids[parent.cache.owner[order]]
        slots, keys = order[kept], mine[kept]
        capacity = self.cache.owner.shape[0]
        slots, keys = slots[-capacity:], keys[-capacity:]
        for target, (slot, key) in enumerate(zip(slots, keys, strict=True)):
            np.take(parent.cache.values[slot], columns, out=self.cache.values[target, : len(columns)])
            self.cache.values[target, len(columns) : self.duals.v.shape[0]] = 0.0
            self.cache.slot[key] = target
            self.cache.owner[target] = key
            self.cache.used[target] = target + 1
        self.cache.clock[:] = len(slots), len(slots)


class _Shrinking(Course):
    """The course of SMO. `problem` is the problem in work, and `whole` is that of all variables."""

    patience = (20, 2000)

    def __init__(self, task: SolverTask, shrinking: bool) -> None:
        super().__init__(task)
        self.shrinking, self.objections = shrinking, 0
        self.ints[_smo_jit.SEED] = task.seed
        self.ints[_smo_jit.EXAMINE_ALL] = 1

    def begin(self, start: FloatArray, residual: FloatArray | None) -> None:
        qp, K = self.qp, self.K
        self._beta = start.copy()
        self._v = fresh_residual(qp, K, start)
        self.whole = _SMOProblem(qp, K, np.arange(len(start)), self._beta, self._v)
        self._work_on(self.whole)
        self.count(self._beta, self._v)
        self.floats[_smo_jit.THRESHOLD] = measures.bias(qp, self._beta, self._v)

    def _work_on(self, problem: _SMOProblem) -> None:
        self.problem, self.duals = problem, problem.duals
        self.ints[_smo_jit.PENDING_I] = -1

    @property
    def n_rows(self) -> int:
        return int(self.ints[_smo_jit.MISSES])

    def beta(self) -> FloatArray:
        self._beta[self.problem.index] = self.duals.beta[: self.duals.n]
        return self._beta.copy()

    def restart(self, beta: FloatArray, v: FloatArray) -> None:
        self._beta, self._v = beta, v
        self._work_on(self.whole)
        self.whole.restart(beta, v)

    def fresh(self, beta: FloatArray) -> FloatArray:
        return fresh_residual(self.qp, self.K, beta)

    def in_work(self) -> DualQP:
        return self.qp if self.problem is self.whole else self.qp.part(self.problem.index)

    def rows_of(self, F: IntArray) -> FloatArray:
        ids, point = self.problem.ids, self.duals.point
        return self.K.block(ids, ids[point[F]])[point].T

    def supply(self, points: IntArray) -> None:
        self.problem.supply(int(points[0]))

    def moved(self) -> None:
        self.problem.refresh_masks()

    def rested(self) -> None:
        """Leave out the variables that sit at a bound and point outwards, if that pays."""
        if not self.shrinking or self.duals.n < _SHRINK_FROM:
            return
        child = self.problem.shrunken(self._beta, self._v)
        if child is not None:
            self._work_on(child)
            self.ints[_steps_jit.POSITION] = 0

    def objected(self) -> None:
        """Leave no variable out any more, if that has been wrong several times."""
        self.objections += 1
        self.shrinking = self.shrinking and self.objections < _OBJECTIONS

    def spent(self) -> Status | None:
        return self.outside()

    def convex(self) -> bool:
        return not self.ints[_steps_jit.NONCONVEX]


def run(
    task: SolverTask, *, rule: str = "second", shrinking: bool = True, face_steps: bool = True, max_passes: int = 0
) -> Raw:
    """Run SMO. With `face_steps=False` no face step is taken where pair steps no longer help.

    `max_passes` ends the rule "simplified" after so many sweeps without a change.
    """
    K, course = task.K, _Shrinking(task, shrinking)
    course.face_steps = face_steps
    scratch = new_scratch(K.n_features)

    def work(limits: Limits) -> int:
        problem, progress = course.problem, course.progress
        duals, scan, cache = problem.duals, problem.scan, problem.cache
        course.ints[_steps_jit.EVALS] = K.n_evals
        _smo_jit.measure(duals, scan, cache, progress)
        reason = _smo_jit.smo_slice(
            K.kernel, problem.points, duals, scan, cache, scratch, progress, RULES[rule], limits, max_passes
        )
        K.n_evals = int(course.ints[_steps_jit.EVALS])
        return int(reason)

    def passes_done(reason: int) -> Status:
        return Status.CONVERGED if course.refresh() else Status.LIMITED

    status = course.follow(work, passes_done)
    course.stats["passes"] = int(course.ints[_smo_jit.PASSES])
    return course.raw(status)
