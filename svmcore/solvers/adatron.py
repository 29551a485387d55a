"""Kernel-Adatron (Hildreth's method), its over-relaxed form SOR, and steepest ascent. All of them are without a bias.

Solves   the dual without equality row: the bias is fixed, or embedded as K + tau^2. Boxes may be infinite.
Cost     a kernel row of n values for each variable that ever moves. An update takes O(n).
Stops    at the tolerance of the chosen criterion, which is looked at after every sweep.
Step     beta_t += omega v_t / (K_tt + D_t), clipped to its box. Any omega in (0, 2) converges, linearly.
         With a learning rate eta_t it is beta_t += eta_t v_t. If eta_t (K_tt + D_t) >= 2, that step would gain nothing. Then
         the exact step v_t / (K_tt + D_t) is taken.
Order    "sequential": always the same order.
         "random": a new permutation for every sweep.
         "violation": the largest residual first.
         "gap": the largest part of the duality gap first, which is |v_t| times the room that t has (remark 7.2). Where there
         is no bound, the largest |beta|, plus 1, stands for it.
         "two-stage": the non-zero variables in ascending order of size until they make no progress, then the others.
         "batch": all variables at once, along the gradient, clipped to the box. A step of m variables takes n m operations.
         Without a learning rate it goes as far as is best along the gradient, times omega. It does so, too, where the step
         of the learning rate would gain nothing.
Reference  Cristianini and Shawe-Taylor (2000), section 7.2, table 7.1, remarks 7.4 to 7.10.
"""

from __future__ import annotations

import numpy as np

from svmcore._types import NONZERO, FloatArray, IntArray, Raw, Status
from svmcore.kernel.matrix import kernel_product
from svmcore.problem import measures
from svmcore.solvers import _steps_jit, _sweeps_jit
from svmcore.solvers._contract import Capabilities, Crawl, SolverTask
from svmcore.solvers._course import Between, Course, PerPoint

CAPABILITIES = Capabilities(
    summary="kernel-Adatron, Hildreth's coordinate ascent and SOR, for problems without an equality row",
    equality=False,
)

ORDERS = ("sequential", "random", "violation", "gap", "two-stage", "batch")
OPTION_VALUES = {"order": ORDERS, "omega": Between(0.0, 2.0), "learning_rate": PerPoint()}

_UPDATES = 2000  # sweeps that do not depend on one another are done in one call until they have made so many updates
_GREEDY = {"violation": 1, "gap": 2}
_BATCHES = 300  # so many steps of all variables that do not halve the violation are a crawl
_PROGRESS = 1e-2  # a stage over non-zero variables ends with a sweep that gains less than this share of the best one


class _Orders:
    """Which variables the next sweep visits."""

    def __init__(self, course: Course, order: str, seed: int) -> None:
        self.course, self.order = course, order
        self.random = np.random.default_rng(seed)
        self.all = np.arange(course.duals.n)
        self.repeats = _UPDATES // max(len(self.all), 1) + 1
        self.inner = False
        self.gain = self.objective = np.inf

    def next(self) -> IntArray:
        """The next sweeps, one a row. There are several where a sweep does not depend on the one before."""
        if self.order == "two-stage":
            return self._two_stage()[None, :]
        several = np.tile(self.all, (self.repeats, 1))
        return self.random.permuted(several, axis=1) if self.order == "random" else several

    def _two_stage(self) -> IntArray:
        beta = np.abs(self.course.duals.beta)
        support = np.flatnonzero(beta)
        now = float(self.course.floats[_steps_jit.OBJECTIVE])
        gained, self.objective = self.objective - now, now
        if not len(support) or len(support) == len(beta):
            return self.all
        if self.inner and gained <= _PROGRESS * self.gain:
            self.inner = False
            return np.flatnonzero(beta == 0.0)
        self.gain = max(self.gain, gained) if self.inner and np.isfinite(self.gain) else gained
        self.inner = True
        return support[np.argsort(beta[support], kind="stable")]


class _Ascent:
    """Steepest ascent: the gradient at one point moves all variables."""

    def __init__(self, course: Course, omega: float, rates: FloatArray | None) -> None:
        self.course, self.omega, self.rates = course, omega, rates
        course.crawl = Crawl(course.duals.n, _BATCHES, float(course.duals.n) ** 2)
        course.stats |= {"shortened": 0}

    def __call__(self, limits: _steps_jit.Limits) -> int:
        """Take one step. Returns -1, or the reason why there was none."""
        course, duals = self.course, self.course.duals
        reason = int(_steps_jit.due(course.progress, limits))
        if reason >= 0:
            return reason
        if course.violation <= limits.tol:
            return _steps_jit.AT_TOLERANCE
        v = duals.v
        gradient = np.where(np.where(v > 0.0, duals.beta < duals.upper, duals.beta > duals.lower), v, 0.0)
        target, change, slope, bend = self._towards(
            gradient, self._best(gradient) if self.rates is None else self.rates
        )
        if self.rates is not None and bend >= 2.0 * slope:
            course.stats["shortened"] += 1
            target, change, slope, bend = self._towards(gradient, self._best(gradient))
        if not np.isfinite(target).all():
            return _steps_jit.NO_BOUND
        share = 1.0
        if bend >= 2.0 * slope:  # the clipped step gains nothing, so it ends at the best point on its way
            share = slope / max(bend, NONZERO)
            target = np.clip(duals.beta + share * (target - duals.beta), duals.lower, duals.upper)
        moved = int(np.count_nonzero(target != duals.beta))
        duals.beta[:] = target
        duals.v[:] -= share * change
        course.floats[_steps_jit.VIOLATION] = measures.violation(course.qp, duals.beta, duals.v)
        _steps_jit.count_step(course.progress, share * slope - 0.5 * share**2 * bend, moved, -1, share)
        course.floats[_steps_jit.WORK] += 2.0 * duals.n * moved
        return -1 if moved else _steps_jit.STUCK

    def _towards(self, gradient: FloatArray, rates: FloatArray | float) -> tuple[FloatArray, FloatArray, float, float]:
        """Where these rates lead, clipped to the box. Returns (target, (K + D) step, slope, curvature) of that step."""
        duals = self.course.duals
        with np.errstate(invalid="ignore"):
            target = duals.beta + np.where(gradient == 0.0, 0.0, rates * gradient)
        target = np.clip(target, duals.lower, duals.upper)
        if not np.isfinite(target).all():
            return target, target, np.inf, 0.0
        step = target - duals.beta
        change = self._product(step)
        return target, change, float(step @ duals.v), float(step @ change)

    def _best(self, gradient: FloatArray) -> float:
        """The rate that is best along the gradient, times omega. It is infinite where there is no curvature."""
        bend, square = float(gradient @ self._product(gradient)), float(gradient @ gradient)
        return self.omega * square / bend if bend > self.course.duals.tiny * square else np.inf

    def _product(self, direction: FloatArray) -> FloatArray:
        """(K + D) times a direction: from stored rows if there is room for all of them, else from the data."""
        course, qp = self.course, self.course.qp
        moving = np.flatnonzero(direction)
        points = np.unique(qp.point[moving])
        if len(points) > course.store.limit:
            product = kernel_product(qp, course.K, direction)[qp.point]
            course.ints[_steps_jit.EVALS] = course.K.n_evals
        else:
            course.supply(points)
            weights = np.bincount(qp.point[moving], weights=direction[moving], minlength=course.K.n)
            product = weights[points] @ course.store.values[course.store.slot[points]]
        return np.asarray(product + qp.diag * direction)


def run(
    task: SolverTask, *, order: str = "sequential", omega: float = 1.0,
    learning_rate: float | FloatArray | None = None, face_steps: bool = True,
) -> Raw:  # fmt: skip
    """Run gradient ascent. `learning_rate` is one number for all points, or one for each. None means exact steps times omega.

    With `face_steps=False` no face step is taken where ascent no longer helps.
    """
    course = Course(task)
    course.face_steps = face_steps
    rates = (
        None
        if learning_rate is None
        else np.broadcast_to(np.asarray(learning_rate, np.float64), task.K.n)[task.qp.point]
    )
    if order == "batch":
        status = _batched(course, _Ascent(course, float(omega), rates))
        course.stats |= {"sweeps": course.n_iter, "paper_evals": float(course.n_iter) * len(task.start) ** 2}
        return course.raw(status)
    shares = np.full(len(task.start), float(omega)) if rates is None else rates * course.duals.curvature
    shares = np.where(shares < 2.0, shares, 1.0)
    orders = _Orders(course, order, task.seed)
    ints = course.ints
    current = orders.next()
    idle = 0

    def sweep_done(reason: int) -> Status | None:
        nonlocal current, idle
        quiet = ints[_steps_jit.CHANGED] == 0
        idle = idle + 1 if quiet else 0
        ints[_steps_jit.CHANGED] = ints[_steps_jit.POSITION] = 0
        current = orders.next()
        if idle > 2:
            idle = 0
            return course.settle(True)
        if task.stopping != "kkt":
            return course.checked()
        return None

    def work(limits: _steps_jit.Limits) -> int:
        return int(
            _sweeps_jit.sweep_slice(
                course.duals, course.store.rows, current, course.progress, shares, _GREEDY.get(order, 0), limits
            )
        )

    status = course.follow(work, sweep_done)
    sweeps = int(ints[_sweeps_jit.SWEEPS])
    course.stats |= {"sweeps": sweeps, "paper_evals": float(sweeps) * len(task.start) ** 2}
    return course.raw(status)


def _batched(course: Course, ascent: _Ascent) -> Status:
    """Run steps of all variables to the end."""

    def work(limits: _steps_jit.Limits) -> int:
        while (reason := ascent(limits)) < 0:
            pass
        return reason

    course.refresh()
    return course.follow(work)
