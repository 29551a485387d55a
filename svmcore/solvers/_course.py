"""What the runs of all solvers that step by pairs share: kernel rows on demand, limits, the trace, and the end of a run.

A solver gives `Course.follow` a slice of compiled work. Everything that happens between two slices is here. A run ends only
when a freshly computed residual agrees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from svmcore._types import DualQP, FloatArray, IntArray, Raw, Status
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.table import is_positive
from svmcore.problem import measures
from svmcore.solvers import _steps_jit as steps
from svmcore.solvers._contract import (
    STOPPED,
    Crawl,
    Criterion,
    SolverTask,
    fresh_residual,
    landed,
    rounding,
    shows_convex,
)
from svmcore.solvers._face import FaceResult, face_step
from svmcore.solvers._steps_jit import Duals, Limits, Progress, Rows

# Between two visits to Python there are at most so many operations, and so many rows of the trace.
_SLICE_WORK, _TRACE_ROWS = 1e8, 4096
# A face step decomposes matrices of at most this size.
_FACE_FREE = 600
# A run ends when a fresh residual has refuted so many claims of convergence without progress, or when the objective is below
# minus _RUNAWAY: then it has no bound.
_MAX_FAILURES, _RUNAWAY = 4, 1e200
# A curvature below the share _FLAT of the largest one counts as zero. So does one below _NO_CURVATURE, where all are zero.
_FLAT, _NO_CURVATURE = 1e-12, 1e-200
_NEAR = 1e-14  # a start that is closer to a bound than this share of the bound is put onto it


class WholeNumber:
    """Whole numbers of at least `low`, for a solver's OPTION_VALUES."""

    def __init__(self, low: int, *, even: bool = False) -> None:
        self.low, self.even = low, even

    def __contains__(self, value: object) -> bool:
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)
        return whole and value >= self.low and not (self.even and value % 2)  # type: ignore[operator]

    def __str__(self) -> str:
        return f"{'an even' if self.even else 'a whole'} number of at least {self.low}"


class Between:
    """Numbers strictly between two others, for a solver's OPTION_VALUES."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def __contains__(self, value: object) -> bool:
        number = isinstance(value, int | float | np.integer | np.floating)
        return number and not isinstance(value, bool | np.timedelta64) and self.low < value < self.high  # type: ignore[operator]

    def __str__(self) -> str:
        return f"a number above {self.low:g}" + (f" and below {self.high:g}" if np.isfinite(self.high) else "")


class Pair:
    """Two positions, for a solver's OPTION_VALUES."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, tuple) and len(value) == 2 and all(k in WholeNumber(0) for k in value)

    def __str__(self) -> str:
        return "a tuple of two positions of training points"


class PerPoint:
    """A positive number for all training points, or one for each, for a solver's OPTION_VALUES."""

    per_point = True

    def __contains__(self, value: object) -> bool:
        if isinstance(value, list | tuple | np.ndarray):
            return bool(np.ndim(value) == 1 and len(value)) and all(each in Between(0.0, np.inf) for each in value)
        return value in Between(0.0, np.inf)

    def __str__(self) -> str:
        return "a finite number above 0, or one for every training point"


class VariableRows:
    """Kernel rows in the order of the variables. When the cache is full, the row unused for longest is evicted.

    Rows that are needed at the same time all stay. For them the store may grow beyond the cache.
    """

    values: FloatArray
    used: IntArray

    def __init__(self, qp: DualQP, K: KernelMatrix) -> None:
        self.qp, self.K = qp, K
        self.n = len(qp.point)
        self.plain = qp.one_each(K.n)
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

    def inherit(self, old: VariableRows, before: IntArray, after: IntArray) -> None:
        """Take over rows of another problem, whose variables `before` are the variables `after` of this one.

        Only columns of new variables are computed.
        """
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
        """Compute those rows of these points that are missing. Rows that were used at iteration `now` stay."""
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
    """A start whose variables next to a bound are put onto it. Rounding must not make a bounded variable free."""
    at_upper = np.isfinite(upper) & (np.abs(upper - beta) <= _NEAR * np.abs(upper))
    at_lower = np.isfinite(lower) & (np.abs(lower - beta) <= _NEAR * np.abs(lower))
    return np.where(at_upper, upper, np.where(at_lower, lower, beta)).astype(np.float64)


def new_duals(qp: DualQP, K: KernelMatrix, beta: FloatArray, v: FloatArray) -> Duals:
    """The whole problem as compiled code sees it."""
    curvature = K.diagonal[qp.point] + qp.diag
    return Duals(
        n=len(beta), equality=qp.equality, total=qp.total, beta=beta, v=v, c=qp.c, lower=qp.lower, upper=qp.upper,
        diag=qp.diag, curvature=curvature, point=qp.point, tiny=tiny_of(curvature),
    )  # fmt: skip


def tiny_of(curvature: FloatArray) -> float:
    """A curvature below this counts as zero."""
    return max(_FLAT * float(np.max(np.abs(curvature), initial=0.0)), _NO_CURVATURE)


class Course:
    """One run: the point, its residual, the counters, and when to stop.

    The point is in `duals`, and the kernel rows are in `store`. A solver that works on some of the variables at a time, or
    keeps its rows elsewhere, overrides some of the methods from `begin` to `n_rows`, and `fresh` and `convex`.
    """

    patience = (
        30,
        3000,
    )  # so many steps for each variable, and so many on top, that do not halve the violation are a crawl

    def __init__(self, task: SolverTask, residual: FloatArray | None = None) -> None:
        self.qp, self.K, self.control, tol, start, stopping, max_iter, _, trace = task
        self.tol, self.stopping = tol, stopping
        self.criterion = Criterion(stopping, tol)
        n = len(start)
        self.progress = Progress(
            np.zeros(16, np.int64), np.zeros(8), np.empty((_TRACE_ROWS if trace else 0, len(steps.TRACE_COLUMNS)))
        )
        self.records: list[FloatArray] = []
        self.ints, self.floats = self.progress.ints, self.progress.floats
        self.begin(start, residual)
        self.floats[steps.VIOLATION] = np.inf
        self.check_every = min(max(n, 200), 2000)
        self.ints[steps.NEXT_CHECK] = self.check_every
        self.max_iter = max_iter if max_iter >= 0 else int(np.iinfo(np.int64).max)
        self.face_steps = True
        self.rows_work = 0.0  # operations that rows have cost since the last look at the limits
        self.stats: dict[str, Any] = {}
        self._failures, self._best = 0, np.inf
        self.crawl = Crawl(n, self.patience[0] * n + self.patience[1], float(n))

    def begin(self, start: FloatArray, residual: FloatArray | None) -> None:
        """Make the start the present point. `residual` is its residual, if the caller knows it."""
        qp, K = self.qp, self.K
        beta = _snapped(start, qp.lower, qp.upper)
        self.duals = new_duals(qp, K, beta, fresh_residual(qp, K, beta) if residual is None else residual)
        self.store = VariableRows(qp, K)
        self.count(beta, self.duals.v)

    def count(self, beta: FloatArray, v: FloatArray) -> None:
        """Bring counters, objective and violation up to date. `beta` and `v` are of all variables."""
        self.ints[steps.EVALS] = self.K.n_evals
        self.floats[steps.OBJECTIVE] = measures.objective(self.qp, beta, v)
        self.floats[steps.VIOLATION] = measures.violation(self.qp, beta, v)

    def beta(self) -> FloatArray:
        """The present point: a copy, of all variables."""
        return self.duals.beta.copy()

    def restart(self, beta: FloatArray, v: FloatArray) -> None:
        """Go on with all variables, from this point and its residual."""
        self.duals.v[:] = v

    def in_work(self) -> DualQP:
        """The problem of the variables that the run works on now."""
        return self.qp

    def rows_of(self, F: IntArray) -> FloatArray:
        """The kernel rows of some of the variables in work, over all variables in work."""
        self.supply(self.qp.point[F])
        return self.store.values[self.store.slot[self.qp.point[F]]]

    def supply(self, points: IntArray) -> None:
        """Compute those rows of these points that are missing."""
        before = self.K.n_evals
        self.store.supply(points, self.n_iter)
        self.rows_work += float(self.K.n_evals - before) * (8.0 + self.K.n_features)
        self.ints[steps.EVALS] = self.K.n_evals

    def moved(self) -> None:
        """Called when a face step has changed the point."""
        self.ints[steps.RESTART] = 1

    def rested(self) -> None:
        """Called at a visit to Python at which the run makes progress."""

    def objected(self) -> None:
        """Called when the problem of some of the variables is solved, and other variables violate."""

    def spent(self) -> Status | None:
        """Called when a slice has spent its operations. Where steps are long, there may have been few of them."""
        return self.checked()

    @property
    def n_rows(self) -> int:
        """The number of kernel rows, for the statistics."""
        return len(self.store.owner)

    @property
    def n_iter(self) -> int:
        return int(self.ints[steps.ITERATION])

    @property
    def violation(self) -> float:
        return float(self.floats[steps.VIOLATION])

    @property
    def objective(self) -> float:
        return float(self.floats[steps.OBJECTIVE])

    def limits(self, tol: float | None = None) -> Limits:
        if tol is None:
            tol = self.tol if self.stopping == "kkt" else 0.0
        return Limits(tol, self.max_iter, self.check_every, _SLICE_WORK)

    def flush(self) -> None:
        count = int(self.ints[steps.TRACED])
        self.records.append(self.progress.trace[:count].copy())
        self.ints[steps.TRACED] = 0

    def fresh(self, beta: FloatArray) -> FloatArray:
        """The residual, computed afresh, so without the rounding of steps.

        It comes from the rows of the support if all of them are stored, and from the data otherwise.
        """
        support = np.flatnonzero(beta)
        slots = self.store.slot[self.qp.point[support]]
        if (slots < 0).any():
            return fresh_residual(self.qp, self.K, beta)
        coef = np.bincount(slots, weights=beta[support], minlength=len(self.store.owner))
        product = coef @ self.store.values[: len(coef)] if len(coef) else 0.0
        return np.asarray(self.qp.c - product - self.qp.diag * beta)

    def refresh(self) -> bool:
        """Go back to all variables with a fresh residual. Returns whether the criterion holds there."""
        beta = self.beta()
        v = self.fresh(beta)
        self.restart(beta, v)
        self.count(beta, v)
        return self.criterion.met(self.qp, beta, v)

    def holds(self) -> bool:
        """Whether the criterion holds with the residual that steps have kept up to date."""
        duals = self.duals
        return self.criterion.met(self.in_work(), duals.beta[: duals.n], duals.v[: duals.n], self.objective)

    def face(self) -> FaceResult:
        """An exact step over the free variables, if they are few enough. It is for runs whose own steps no longer help."""
        duals, n = self.duals, self.duals.n
        F = np.flatnonzero((duals.beta > duals.lower) & (duals.beta < duals.upper))
        if len(F) < 2 or len(F) > _FACE_FREE:
            return FaceResult.NOTHING
        rows = self.rows_of(F)
        H = rows[:, F].copy()
        H[np.diag_indices(len(F))] += duals.diag[F]
        before = duals.beta[F].copy()
        after, result = face_step(
            H, duals.diag[F], before, duals.v[F], duals.lower[F], duals.upper[F], duals.equality, 0.1 * self.tol,
            self.crawl.spend,
        )  # fmt: skip
        if result is FaceResult.MOVED:
            step = after - before
            change = rows.T @ step
            bend = np.dot(step, change[F] + duals.diag[F] * step)
            self.floats[steps.OBJECTIVE] += 0.5 * bend - np.dot(step, duals.v[F])
            duals.beta[F] = after
            duals.v[:n] -= change
            duals.v[F] -= duals.diag[F] * step
            self.ints[steps.ITERATION] += 1
            self.stats["face_steps"] = self.stats.get("face_steps", 0) + 1
            self.moved()
        return result

    def outside(self) -> Status | None:
        """A reason to stop from outside, or an objective without bound. None means go on."""
        if not self.objective >= -_RUNAWAY:
            return Status.UNBOUNDED
        return self.control.check(self.n_iter, self.violation, self.objective)

    def settle(self, stuck: bool) -> Status | None:
        """Decide by a fresh residual, after a claim of convergence or when no step helps. None means go on.

        There are two reasons for a claim that is wrong: rounding has added up, or variables that were left out violate.
        """
        some = self.in_work() is not self.qp
        if self.refresh():
            return Status.CONVERGED
        if some:
            self.objected()
            return None
        worst = self.violation
        self._failures = 0 if worst < 0.5 * self._best else self._failures + 1
        self._best = min(self._best, worst)
        if self._failures >= _MAX_FAILURES:
            return Status.PRECISION
        return self._rescued() if stuck else None

    def _rescued(self) -> Status | None:
        """A face step, where these are allowed. It may find that the problem has no bound."""
        return Status.UNBOUNDED if self.face_steps and self.face() is FaceResult.UNBOUNDED else None

    def checked(self) -> Status | None:
        """A look at the run in its middle: the criterion, crawling, limits. None means go on."""
        if self.stopping != "kkt" and self.holds() and (self.stopping == "objective" or self.refresh()):
            return Status.CONVERGED
        status = None
        if not self.crawl.seen(self.violation, self.n_iter):
            self.rested()
        elif (hidden := self.violation <= rounding(self.qp, self.K, self.beta())) or self.crawl.endless:
            status = Status.PRECISION if hidden else Status.LIMITED
            status = Status.CONVERGED if self.refresh() else status
        else:
            status = self._rescued()
        return self.outside() if status is None else status

    def common(self, reason: int) -> tuple[bool, Status | None]:
        """Answer those reasons that every slice may give. Returns (whether this was one of them, status or None)."""
        status = None
        if reason == steps.NEED_ROW:
            self.supply(self.ints[steps.ROW : steps.ROW + 1])
            if self.rows_work > _SLICE_WORK or self.K.function is not None:
                self.rows_work = 0.0
                status = self.outside()
        elif reason == steps.TRACE_FULL:
            self.flush()
        elif reason == steps.CHECK_DUE:
            status = self.checked()
        elif reason == steps.SLICE_SPENT:
            self.floats[steps.WORK] = 0.0
            status = self.spent()
        elif reason == steps.AT_MAX_ITER:
            status = Status.CONVERGED if self.refresh() else Status.MAX_ITER
        elif reason == steps.NO_BOUND:
            status = Status.UNBOUNDED
        elif reason == steps.AT_TOLERANCE or reason == steps.STUCK:
            status = self.settle(reason == steps.STUCK)
        else:
            return False, None
        return True, status

    def follow(self, work: Callable[[Limits], int], other: Callable[[int], Status | None] | None = None) -> Status:
        """Run slices to the end. `other` answers the reasons that only this solver gives."""
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
            trace = {name: table[:, k] for k, name in enumerate(steps.TRACE_COLUMNS)}
        if status is Status.CONVERGED and not self.convex():
            status = Status.STATIONARY
        beta = landed(self.qp, self.beta())
        raw = Raw(beta, status, self.n_iter, trace, {"rows": self.n_rows, **self.stats})
        if status not in STOPPED or self.duals.n < len(beta):
            return raw
        residual = self.duals.v[: len(beta)].copy()
        return raw._replace(residual=residual, residual_error=self.n_iter * rounding(self.qp, self.K, beta))

    def convex(self) -> bool:
        """Whether stored rows of the support show no negative curvature. This looks at a sample, and proves nothing."""
        support = np.flatnonzero(self.duals.beta)
        stored = support[self.store.slot[self.qp.point[support]] >= 0][:400]
        if not len(stored):
            return True
        H = self.store.values[self.store.slot[self.qp.point[stored]]][:, stored]
        return is_positive(self.K.kernel) or shows_convex(H, self.qp.equality)
