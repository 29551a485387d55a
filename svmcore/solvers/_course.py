"""What the runs of the simpler solvers share: kernel rows on demand, limits, trace, and the last word of a fresh residual.

A solver gives `Course.follow` a slice of compiled work; everything that happens between slices is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from svmcore._control import Control
from svmcore._types import DualQP, FloatArray, IntArray, Raw, Status
from svmcore.kernel.matrix import KernelMatrix
from svmcore.problem import measures
from svmcore.solvers import _steps_jit
from svmcore.solvers._chunk_jit import Local
from svmcore.solvers._contract import STOPPED, Crawl, Criterion, fresh_residual, landed, positive, rounding
from svmcore.solvers._face import FaceResult, face_step
from svmcore.solvers._steps_jit import Duals, Limits, Progress, Rows

_SLICE_WORK = 1e8  # operations between two visits to Python
_TRACE_ROWS = 4096
_FACE_FREE = 600
_MAX_FAILURES = 4
_NEAR = 1e-14
_CONVEX = 1e-9


class Whole:
    """Whole numbers of at least `low`, for a solver's OPTION_VALUES."""

    def __init__(self, low: int, *, even: bool = False) -> None:
        self.low, self.even = low, even

    def __contains__(self, value: object) -> bool:
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        return whole and value >= self.low and not (self.even and value % 2)  # type: ignore[operator]

    def __str__(self) -> str:
        return f"{'an even' if self.even else 'a whole'} number of at least {self.low}"


class Between:
    """Numbers strictly between two others, for a solver's OPTION_VALUES."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def __contains__(self, value: object) -> bool:
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        return number and self.low < value < self.high  # type: ignore[operator]

    def __str__(self) -> str:
        return f"a number above {self.low:g}" + (f" and below {self.high:g}" if np.isfinite(self.high) else "")


class Pair:
    """Two positions, for a solver's OPTION_VALUES."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, tuple) and len(value) == 2 and all(k in Whole(0) for k in value)

    def __str__(self) -> str:
        return "a tuple of two positions of training points"


def new_local(m: int) -> Local:
    """Room for the problem of a working set of m variables."""
    index = np.zeros(m, np.int64)
    return Local(index, np.zeros((m, m)), *(np.zeros(m) for _ in range(6)))


class RowStore:
    """Kernel rows in variable order, least recently used evicted first; it outgrows the cache rather than the need."""

    values: FloatArray
    used: IntArray

    def __init__(self, qp: DualQP, K: KernelMatrix) -> None:
        self.qp, self.K = qp, K
        self.n = len(qp.point)
        self.plain = self.n == K.n and bool((qp.point == np.arange(K.n)).all())
        self.limit = max(int(K.cache_bytes // (8 * max(self.n, 1))), 2)
        self.slot = np.full(max(K.n, 1), -1, np.int64)
        self.owner: list[int] = []
        self._allocate(min(64, max(K.n, 1)))

    def _allocate(self, capacity: int) -> None:
        values = np.empty((capacity, self.n))
        used = np.full(capacity, -1, np.int64)
        if self.owner:
            values[: len(self.owner)] = self.values[: len(self.owner)]
            used[: len(self.owner)] = self.used[: len(self.owner)]
        self.values, self.used = values, used

    def inherit(self, old: RowStore, before: IntArray, after: IntArray) -> None:
        """Take over the rows of a problem whose variables `before` are `after` in this one; only new columns are computed."""
        point = np.full(len(old.slot), -1, np.int64)
        point[old.qp.point[before]] = self.qp.point[after]
        renamed = point[np.array(old.owner, np.int64)]
        slots = np.flatnonzero(renamed >= 0)[: self.limit]
        owners = renamed[slots]
        self.owner = owners.tolist()
        self.values = np.empty((max(len(slots), 1), self.n))
        self.used = np.full(len(self.values), -1, np.int64)
        self.slot[owners] = np.arange(len(slots))
        if not len(slots):
            return
        fresh = np.setdiff1d(np.arange(self.n), after)
        self.values[:, after] = old.values[np.ix_(slots, before)]
        if len(fresh):
            self.values[:, fresh] = self.K.block(owners, self.qp.point[fresh])

    @property
    def rows(self) -> Rows:
        return Rows(self.values, self.slot, self.used)

    def has(self, point: int) -> bool:
        return bool(self.slot[point] >= 0)

    def supply(self, points: IntArray, now: int) -> None:
        """Compute the rows of these points that are missing; rows used at iteration `now` stay."""
        points = np.unique(points)
        missing = points[self.slot[points] < 0]
        self.used[self.slot[points[self.slot[points] >= 0]]] = now
        if not len(missing):
            return
        rows = self.K.rows(missing)
        for point, row in zip(missing, rows, strict=True):
            slot = self._claim(now)
            self.owner[slot] = int(point)
            self.slot[point] = slot
            self.used[slot] = now
            self.values[slot] = row if self.plain else row[self.qp.point]

    def _claim(self, now: int) -> int:
        filled = len(self.owner)
        if filled >= self.limit:
            oldest = int(np.argmin(self.used[:filled]))
            if self.used[oldest] < now:
                self.slot[self.owner[oldest]] = -1
                return oldest
        if filled == len(self.values):
            self._allocate(min(2 * filled, max(self.K.n, 1)))
        self.owner.append(-1)
        return filled


def _snapped(beta: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """A start whose variables next to a bound are on it: rounding must not make free what is bounded."""
    at_upper = np.isfinite(upper) & (np.abs(upper - beta) <= _NEAR * np.abs(upper))
    at_lower = np.isfinite(lower) & (np.abs(lower - beta) <= _NEAR * np.abs(lower))
    return np.where(at_upper, upper, np.where(at_lower, lower, beta)).astype(np.float64)


class Course:
    """One run: the point, its residual, the counters, and when to stop."""

    def __init__(
        self, qp: DualQP, K: KernelMatrix, start: FloatArray, *, control: Control, tol: float, stopping: str,
        max_iter: int, trace: bool, residual: FloatArray | None = None,
    ) -> None:  # fmt: skip
        self.qp, self.K, self.control = qp, K, control
        self.tol, self.stopping = tol, stopping
        self.criterion = Criterion(stopping, tol)
        n = len(start)
        beta = _snapped(start, qp.lower, qp.upper)
        v = fresh_residual(qp, K, beta) if residual is None else residual
        self.duals = Duals(
            n=n, equality=qp.equality, beta=beta, v=v, c=qp.c, lower=qp.lower,
            upper=qp.upper, diag=qp.diag, curvature=K.diagonal[qp.point] + qp.diag, point=qp.point,
        )  # fmt: skip
        self.store = RowStore(qp, K)
        self.progress = Progress(
            np.zeros(16, np.int64), np.zeros(8), np.empty((_TRACE_ROWS if trace else 0, len(_steps_jit.TRACE_COLUMNS)))
        )
        self.records: list[FloatArray] = []
        self.ints, self.floats = self.progress.ints, self.progress.floats
        self.floats[_steps_jit.OBJECTIVE] = measures.objective(qp, beta, self.duals.v)
        self.check_every = min(max(n, 200), 2000)
        self.ints[_steps_jit.NEXT_CHECK] = self.check_every
        self.ints[_steps_jit.EVALS] = K.n_evals
        self.max_iter = max_iter if max_iter >= 0 else int(np.iinfo(np.int64).max)
        self.face_steps = True
        self.rows_work = 0.0  # operations behind rows since the last visit
        self.stats: dict[str, Any] = {}
        self._failures, self._best = 0, np.inf
        self.crawl = Crawl(n, 30 * n + 3000, float(n))  # then the face is asked

    @property
    def n_iter(self) -> int:
        return int(self.ints[_steps_jit.ITERATION])

    @property
    def violation(self) -> float:
        return float(self.floats[_steps_jit.VIOLATION])

    def limits(self, tol: float | None = None) -> Limits:
        if tol is None:
            tol = self.tol if self.stopping == "kkt" else 0.0
        return Limits(tol, self.max_iter, self.check_every, _SLICE_WORK)

    def supply(self, points: IntArray) -> None:
        before = self.K.n_evals
        self.store.supply(points, self.n_iter)
        self.rows_work += float(self.K.n_evals - before) * (8.0 + self.K.n_features)
        self.ints[_steps_jit.EVALS] = self.K.n_evals

    def flush(self) -> None:
        count = int(self.ints[_steps_jit.TRACED])
        self.records.append(self.progress.trace[:count].copy())
        self.ints[_steps_jit.TRACED] = 0

    def refresh(self) -> bool:
        """Recompute the residual from the data; whether the criterion holds there."""
        duals = self.duals
        duals.v[:] = fresh_residual(self.qp, self.K, duals.beta)
        self.ints[_steps_jit.EVALS] = self.K.n_evals
        self.floats[_steps_jit.OBJECTIVE] = measures.objective(self.qp, duals.beta, duals.v)
        self.floats[_steps_jit.VIOLATION] = measures.violation(self.qp, duals.beta, duals.v)
        return self.criterion.met(self.qp, duals.beta, duals.v)

    def holds(self) -> bool:
        """Whether the criterion holds with the running residual."""
        return self.criterion.met(self.qp, self.duals.beta, self.duals.v)

    def face(self) -> FaceResult:
        """An exact step over the free variables, when they are few enough: for runs that their own steps no longer help."""
        duals = self.duals
        F = np.flatnonzero((duals.beta > duals.lower) & (duals.beta < duals.upper))
        if len(F) < 2 or len(F) > _FACE_FREE:
            return FaceResult.NOTHING
        self.supply(self.qp.point[F])
        columns = self.store.values[self.store.slot[self.qp.point[F]]]
        H = columns[:, F].copy()
        H[np.diag_indices(len(F))] += duals.diag[F]
        before = duals.beta[F].copy()
        after, result = face_step(
            H, duals.diag[F], before, duals.v[F], duals.lower[F], duals.upper[F], duals.equality, 0.1 * self.tol,
            self.crawl.spend,
        )  # fmt: skip
        if result is FaceResult.MOVED:
            duals.beta[F] = after
            duals.v[:] -= (after - before) @ columns
            duals.v[F] -= duals.diag[F] * (after - before)
            self.floats[_steps_jit.OBJECTIVE] = measures.objective(self.qp, duals.beta, duals.v)
            self.ints[_steps_jit.ITERATION] += 1
            self.ints[_steps_jit.RESTART] = 1
            self.stats["face_steps"] = self.stats.get("face_steps", 0) + 1
        return result

    def outside(self) -> Status | None:
        """The user's reasons to stop."""
        return self.control.check(self.n_iter, self.violation, float(self.floats[_steps_jit.OBJECTIVE]))

    def settle(self, stuck: bool) -> Status | None:
        """After a claim of convergence, or when no step helps: the fresh residual decides; None means go on."""
        if self.refresh():
            return Status.CONVERGED
        worst = self.violation
        self._failures = 0 if worst < 0.5 * self._best else self._failures + 1
        self._best = min(self._best, worst)
        if self._failures >= _MAX_FAILURES:
            return Status.PRECISION
        if stuck and self.face_steps and self.face() is FaceResult.UNBOUNDED:
            return Status.UNBOUNDED
        return None

    def checked(self) -> Status | None:
        """A visit to Python in the middle of the run."""
        if self.stopping != "kkt" and self.holds() and (self.stopping == "objective" or self.refresh()):
            return Status.CONVERGED
        if self.crawl.seen(self.violation, self.n_iter):
            if self.crawl.endless or self.violation <= rounding(self.qp, self.K, self.duals.beta):
                return Status.CONVERGED if self.refresh() else Status.PRECISION
            if self.face_steps and self.face() is FaceResult.UNBOUNDED:
                return Status.UNBOUNDED
        return self.outside()

    def common(self, reason: int) -> tuple[bool, Status | None]:
        """Answer a reason every slice may give: (answered, status)."""
        if reason == _steps_jit.NEED_ROW:
            self.supply(self.ints[_steps_jit.ROW : _steps_jit.ROW + 1])
            if self.rows_work > _SLICE_WORK:
                self.rows_work = 0.0
                return True, self.outside()
        elif reason == _steps_jit.TRACE_FULL:
            self.flush()
        elif reason == _steps_jit.CHECK_DUE:
            return True, self.checked()
        elif reason == _steps_jit.AT_MAX_ITER:
            return True, Status.CONVERGED if self.refresh() else Status.MAX_ITER
        elif reason == _steps_jit.NO_BOUND:
            return True, Status.UNBOUNDED
        elif reason in (_steps_jit.AT_TOLERANCE, _steps_jit.STUCK):
            return True, self.settle(reason == _steps_jit.STUCK)
        else:
            return False, None
        return True, None

    def follow(self, work: Callable[[Limits], int], other: Callable[[int], Status | None] | None = None) -> Status:
        """Run slices to the end. `other` answers the reasons that are the solver's own."""
        status = self.outside()
        limits = self.limits()
        while status is None:
            answered, status = self.common(reason := work(limits))
            if not answered and other is not None:
                status = other(reason)
        return status

    def raw(self, status: Status) -> Raw:
        trace = None
        if self.progress.trace.shape[0]:
            self.flush()
            table = np.concatenate(self.records)
            trace = {name: table[:, k] for k, name in enumerate(_steps_jit.TRACE_COLUMNS)}
        if status is Status.CONVERGED and not self.convex():
            status = Status.STATIONARY
        stats = {"rows": len(self.store.owner), **self.stats}
        raw = Raw(landed(self.qp, self.duals.beta.copy()), status, self.n_iter, trace, stats)
        if status not in STOPPED:
            return raw
        return raw._replace(
            residual=self.duals.v.copy(), residual_error=self.n_iter * rounding(self.qp, self.K, raw.beta)
        )

    def convex(self) -> bool:
        """Whether the kernel between stored rows of the support shows no negative curvature (a sample, not a proof)."""
        support = np.flatnonzero(self.duals.beta)
        stored = support[self.store.slot[self.qp.point[support]] >= 0][:400]
        if not len(stored):
            return True
        H = self.store.values[self.store.slot[self.qp.point[stored]]][:, stored]
        if positive(self.K.kernel):
            return True
        d = np.diag(H)
        scale = float(np.abs(d).max(initial=0.0))
        pairs = d[:, None] + d[None, :] - 2.0 * H if self.qp.equality else np.broadcast_to(d, H.shape)
        return bool(pairs.min(initial=0.0) >= -_CONVEX * max(scale, 1e-300))
