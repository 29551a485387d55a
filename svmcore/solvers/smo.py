"""SMO: two variables at a time, chosen by one of four rules.

Solves   every formulation of the sign-free dual, with or without equality row, finite or infinite boxes.
Cost     a kernel row of n values for each index that enters a pair and is not cached; O(n) a step.
Stops    at the tolerance of the chosen criterion, measured on all variables with a freshly computed gradient.
Rules    "second": the partner of largest second-order gain (Fan, Chen and Lin 2005);
         "mvp": the maximal violating pair (Keerthi et al. 2001);
         "platt": Platt's two heuristics (1998);  "simplified": a violator with a random partner.

Shrinking: from time to time the variables that sit at a bound and point outwards are left out, and the problem that
remains is copied together (points, vectors, cached rows). When it is solved the gradient of all variables is computed
afresh; if the left-out ones object, the run goes on with all of them.
"""

from __future__ import annotations

import numpy as np

from svmcore import _smo_jit
from svmcore._control import Control
from svmcore._smo_jit import Limits, Progress, RowCache, Variables
from svmcore._types import LANES, DualQP, FloatArray, IntArray, Points, Raw, Status
from svmcore.kernel.matrix import KernelMatrix, aligned, new_scratch, padded
from svmcore.problem import measures
from svmcore.simd.vector import BIG
from svmcore.solvers._contract import STOPPED, Capabilities, Crawl, Criterion, fresh_residual, landed, rounding
from svmcore.solvers._face import FaceResult, face_step

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

_SLICE_WORK = 3e8  # operations between two visits to Python, about a tenth of a second
_TRACE_ROWS = 4096
_SHRINK_FROM = 500  # variables below which copying costs more than it saves
_SHRINK_BELOW = 0.8  # copy the problem together once this share of it is left
_FACE_FREE = 600  # the face step decomposes matrices of this size at most
_RUNAWAY = 1e200  # an objective beyond this has no bound
_MAX_FAILURES = 4  # claims of convergence that a fresh gradient refutes without progress


class _Problem:
    """The variables a run works on (all of them, or what shrinking left), with their points and row cache."""

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
        scale = float(np.max(np.abs(curvature), initial=0.0))
        b = beta[index]
        self.variables = Variables(
            n=n,
            equality=qp.equality,
            beta=vector(b),
            v=vector(v[index]),
            c=vector(qp.c[index]),
            lower=vector(qp.lower[index]),
            upper=vector(qp.upper[index]),
            diag=vector(qp.diag[index]),
            curvature=vector(curvature, 1.0),
            grow=vector(np.where(b < qp.upper[index], 0.0, -BIG), -BIG),
            shrink=vector(np.where(b > qp.lower[index], 0.0, BIG), BIG),
            lane=np.ascontiguousarray(lane, np.int64),
            one_each=one_each,
            tiny=max(1e-12 * scale, 1e-200),
            score=next(block),
            best=np.empty(size // LANES),
            best_top=np.empty(size // LANES),
        )
        self.cache = self._new_cache(size)

    def _new_cache(self, size: int) -> RowCache:
        stride = max(size, padded(self.points.n))
        capacity = int(min(max(self.K.cache_bytes // (8 * stride), 2), max(self.points.n, 2)))
        return RowCache(
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
        variables, cache = self.variables, self.cache
        values = self.K.block(self.ids[row : row + 1], self.ids)[0]
        slot = _smo_jit.claim_slot(cache, row)
        cache.clock[0] += 1
        cache.used[slot] = cache.clock[0]
        cache.values[slot, : variables.n] = values[variables.lane]
        cache.values[slot, variables.n :] = 0.0

    def restart(self, beta: FloatArray, v: FloatArray) -> None:
        """Overwrite the point and its gradient (of all variables)."""
        n = self.variables.n
        self.variables.beta[:n] = beta[self.index]
        self.variables.v[:n] = v[self.index]
        self.refresh_masks()

    def refresh_masks(self) -> None:
        variables, n = self.variables, self.variables.n
        variables.grow[:n] = np.where(variables.beta[:n] < variables.upper[:n], 0.0, -BIG)
        variables.shrink[:n] = np.where(variables.beta[:n] > variables.lower[:n], 0.0, BIG)

    def shrunken(self, full: FloatArray, v: FloatArray) -> _Problem | None:
        """A copy without the variables that sit at a bound and point outwards; None when it would not pay."""
        variables, n = self.variables, self.variables.n
        beta, residual = variables.beta[:n], variables.v[:n]
        can_grow, can_shrink = beta < variables.upper[:n], beta > variables.lower[:n]
        if variables.equality:
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
        child = _Problem(self.qp, self.K, self.index[keep], full, v)
        child.inherit(self, np.flatnonzero(keep))
        return child

    def inherit(self, parent: _Problem, columns: IntArray) -> None:
        """Copy the parent's cached rows of the points that are left, oldest first."""
        order = np.argsort(parent.cache.used[: parent.cache.clock[1]], kind="stable")
        mine = np.searchsorted(self.ids, parent.ids[parent.cache.owner[order]])
        mine[mine == len(self.ids)] = 0
        kept = self.ids[mine] == parent.ids[parent.cache.owner[order]]
        slots, keys = order[kept], mine[kept]
        capacity = self.cache.owner.shape[0]
        slots, keys = slots[-capacity:], keys[-capacity:]
        for target, (slot, key) in enumerate(zip(slots, keys, strict=True)):
            np.take(parent.cache.values[slot], columns, out=self.cache.values[target, : len(columns)])
            self.cache.values[target, len(columns) : self.variables.v.shape[0]] = 0.0
            self.cache.slot[key] = target
            self.cache.owner[target] = key
            self.cache.used[target] = target + 1
        self.cache.clock[:] = len(slots), len(slots)


class _Run:
    """One run: the problem in work, the whole problem behind it, the counters, and the criterion."""

    def __init__(
        self, qp: DualQP, K: KernelMatrix, start: FloatArray, criterion: Criterion, trace: bool, seed: int
    ) -> None:
        self.qp, self.K, self.criterion = qp, K, criterion
        self.beta = start.copy()
        self.v = fresh_residual(qp, K, start)
        self.whole = _Problem(qp, K, np.arange(len(start)), self.beta, self.v)
        self.problem = self.whole
        self.records: list[FloatArray] = []
        self.crawl = Crawl(len(start), 20 * len(start) + 2000, float(len(start)))
        self.progress = Progress(
            ints=np.zeros(16, np.int64),
            floats=np.zeros(8),
            trace=np.empty((_TRACE_ROWS if trace else 0, len(_smo_jit.TRACE_COLUMNS))),
        )
        self.ints, self.floats = self.progress.ints, self.progress.floats
        self.ints[_smo_jit.SEED] = seed
        self.ints[_smo_jit.EXAMINE_ALL] = 1
        self.ints[_smo_jit.PENDING_I] = -1
        self.floats[_smo_jit.OBJECTIVE] = measures.objective(qp, self.beta, self.v)
        self.floats[_smo_jit.THRESHOLD] = measures.bias(qp, self.beta, self.v)

    @property
    def n_iter(self) -> int:
        return int(self.ints[_smo_jit.ITERATION])

    def current(self) -> tuple[DualQP, FloatArray, FloatArray]:
        """The problem in work with its point and running residual."""
        qp, variables = self.qp, self.problem.variables
        if self.problem is not self.whole:
            index = self.problem.index
            qp = DualQP(qp.c[index], qp.lower[index], qp.upper[index], qp.diag[index], qp.point[index], qp.equality)
        return qp, variables.beta[: variables.n], variables.v[: variables.n]

    def whole_beta(self) -> FloatArray:
        self.beta[self.problem.index] = self.problem.variables.beta[: self.problem.variables.n]
        return self.beta.copy()

    def refresh(self) -> bool:
        """Go back to all variables with a residual computed from the data; whether the criterion holds there."""
        beta = self.whole_beta()
        self.beta, self.v = beta, fresh_residual(self.qp, self.K, beta)
        self.problem = self.whole
        self.whole.restart(self.beta, self.v)
        self.ints[_smo_jit.PENDING_I] = -1
        self.floats[_smo_jit.OBJECTIVE] = measures.objective(self.qp, self.beta, self.v)
        return self.criterion.met(self.qp, self.beta, self.v)

    def shrink(self) -> None:
        if self.problem.variables.n < _SHRINK_FROM:
            return
        child = self.problem.shrunken(self.beta, self.v)
        if child is not None:
            self.problem = child
            self.ints[_smo_jit.POSITION] = 0
            self.ints[_smo_jit.PENDING_I] = -1

    def flush_trace(self) -> None:
        count = int(self.ints[_smo_jit.TRACED])
        self.records.append(self.progress.trace[:count].copy())
        self.ints[_smo_jit.TRACED] = 0

    def face(self, noise: float) -> FaceResult:
        """An exact step over the free variables of the problem in work, when they are few enough."""
        problem, variables = self.problem, self.problem.variables
        n = variables.n
        F = np.flatnonzero((variables.grow[:n] == 0.0) & (variables.shrink[:n] == 0.0))
        if len(F) < 2 or len(F) > _FACE_FREE:
            return FaceResult.NOTHING
        columns = self.K.block(problem.ids, problem.ids[variables.lane[F]])[variables.lane]
        H = columns[F].copy()
        H[np.diag_indices(len(F))] += variables.diag[F]
        before = variables.beta[F].copy()
        after, result = face_step(
            H,
            variables.diag[F],
            before,
            variables.v[F],
            variables.lower[F],
            variables.upper[F],
            variables.equality,
            noise,
            self.crawl.spend,
        )
        if result is FaceResult.MOVED:
            step = after - before
            change = columns @ step
            bend = np.dot(step, change[F] + variables.diag[F] * step)
            self.floats[_smo_jit.OBJECTIVE] += 0.5 * bend - np.dot(step, variables.v[F])
            self.ints[_smo_jit.ITERATION] += 1
            variables.beta[F] = after
            variables.v[:n] -= change
            variables.v[F] -= variables.diag[F] * step
            problem.refresh_masks()
        return result

    def raw(self, status: Status) -> Raw:
        trace = None
        if self.progress.trace.shape[0]:
            self.flush_trace()
            table = np.concatenate(self.records)
            trace = {name: table[:, k] for k, name in enumerate(_smo_jit.TRACE_COLUMNS)}
        if status is Status.CONVERGED and self.ints[_smo_jit.NONCONVEX]:
            status = Status.STATIONARY
        self.K.n_evals += int(self.ints[_smo_jit.EVALS])
        stats = {"passes": int(self.ints[_smo_jit.PASSES]), "rows": int(self.ints[_smo_jit.MISSES])}
        beta = landed(self.qp, self.whole_beta())
        if status is Status.UNBOUNDED and not np.isfinite(beta).all():
            beta = np.zeros_like(beta)
        raw = Raw(beta, status, self.n_iter, trace, stats)
        if status not in STOPPED or self.problem is not self.whole:
            return raw
        residual = self.whole.variables.v[: len(beta)].copy()
        return raw._replace(residual=residual, residual_error=self.n_iter * rounding(self.qp, self.K, beta))


def run(
    qp: DualQP,
    K: KernelMatrix,
    *,
    control: Control,
    tol: float,
    stopping: str,
    max_iter: int,
    start: FloatArray,
    seed: int,
    trace: bool,
    rule: str = "second",
    shrinking: bool = True,
    face_steps: bool = True,
    max_passes: int = 0,
) -> Raw:
    """Run SMO. `face_steps=False` leaves pair steps alone; `max_passes` ends "simplified" after so many idle sweeps."""
    state = _Run(qp, K, start, Criterion(stopping, tol), trace, seed)
    n = len(start)
    check_every = min(max(n, 200), 2000)
    state.ints[_smo_jit.NEXT_CHECK] = check_every
    limits = Limits(
        tol=tol if stopping == "kkt" else 0.0,
        max_iter=max_iter if max_iter >= 0 else np.iinfo(np.int64).max,
        check_every=check_every,
        work=_SLICE_WORK,
        max_passes=max_passes,
    )
    scratch = new_scratch(K.n_features)
    crawl = state.crawl
    failures, best = 0, np.inf
    status = control.check(0, np.inf, state.floats[_smo_jit.OBJECTIVE])
    while status is None:
        problem = state.problem
        _smo_jit.measure(problem.variables, problem.cache, state.progress)
        reason = _smo_jit.smo_slice(
            K.kernel, problem.points, problem.variables, problem.cache, scratch, state.progress, RULES[rule], limits
        )
        violation = float(state.floats[_smo_jit.VIOLATION])
        if reason == _smo_jit.NEED_ROW:
            problem.supply(int(state.ints[_smo_jit.ROW]))
        elif reason == _smo_jit.TRACE_FULL:
            state.flush_trace()
        elif reason == _smo_jit.NO_BOUND:
            status = Status.UNBOUNDED
        elif reason == _smo_jit.PASSES_DONE:
            status = Status.CONVERGED if state.refresh() else Status.LIMITED
        elif reason == _smo_jit.AT_MAX_ITER:
            status = Status.CONVERGED if state.refresh() else Status.MAX_ITER
        elif reason in (_smo_jit.AT_TOLERANCE, _smo_jit.STUCK):
            if state.refresh():
                status = Status.CONVERGED
            else:
                # rounding had drifted, or variables left out object: go on from the fresh gradient while it helps
                violation = measures.violation(qp, state.beta, state.v)
                failures = 0 if violation < 0.5 * best else failures + 1
                best = min(best, violation)
                if failures >= _MAX_FAILURES:
                    status = Status.PRECISION
                elif reason == _smo_jit.STUCK and face_steps and state.face(0.1 * tol) is FaceResult.UNBOUNDED:
                    status = Status.UNBOUNDED
        elif reason == _smo_jit.CHECK_DUE:
            if (
                stopping != "kkt"
                and state.criterion.met(*state.current(), float(state.floats[_smo_jit.OBJECTIVE]))
                and (stopping == "objective" or state.refresh())
            ):
                status = Status.CONVERGED
            elif crawl.seen(violation, state.n_iter):
                if crawl.endless or violation <= rounding(qp, K, state.whole_beta()):
                    status = Status.CONVERGED if state.refresh() else Status.PRECISION
                elif face_steps and state.face(0.1 * tol) is FaceResult.UNBOUNDED:
                    status = Status.UNBOUNDED
            elif shrinking:
                state.shrink()
        if status is None and not state.floats[_smo_jit.OBJECTIVE] >= -_RUNAWAY:
            status = Status.UNBOUNDED
        if status is None:
            status = control.check(state.n_iter, violation, float(state.floats[_smo_jit.OBJECTIVE]))
    return state.raw(status)
