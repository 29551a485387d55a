"""An interior point method for kernels of few features, or for moderate n, with a crossover to exact bounds.

Solves   every formulation of the sign-free dual whose boxes are bounded or whose diagonal is positive. The kernel must be
         positive.
Cost     10 to 20 iterations of n d^2 / 2 + 6 n d operations, whatever C is. Systems are d x d (Woodbury). The linear kernel
         has d features, and nothing is n x n. Any other kernel is factorised first, and so is the linear one of more
         features than points: K = Z Z' by pivoted Cholesky. Then d is its numerical rank. That takes n d kernel values and
         n d^2 operations.
Stops    after a crossover, on the residual of the exact point. When that misses the tolerance, the interior point goes on
         from where it was. It comes ten times closer before it crosses over again.
Method   Mehrotra's predictor-corrector (1992). Woodbury's formula for support vector machines: Ferris and Munson (2003).

The barrier problem's stationarity is ``gradient + b = z - t`` with multipliers z, t of the bounds. Let
``E = diag + z/s + t/u``. A Newton step solves ``(Z Z' + E) d beta + db = right``. With
``h = (I + Z' E^-1 Z)^-1 Z' E^-1 right`` its solution is ``E^-1 (right - Z h)``. For this ``Z' d beta = h``, so the product
with K comes with the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack

from svmcore._control import Control
from svmcore._types import NONZERO, DualQP, FloatArray, KernelKind, Raw, Status
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import dense_points, is_sparse
from svmcore.problem import measures
from svmcore.solvers import _ipm_jit as ipm
from svmcore.solvers._contract import Capabilities, Criterion, SolverTask, fresh_residual, spread
from svmcore.solvers._factors import factorised
from svmcore.solvers._ipm_start import IMMOVABLE, Beside, MachineData, Poll, Start
from svmcore.solvers._settle import settle

CAPABILITIES = Capabilities(
    summary="interior point with crossover: the linear kernel with few features, or moderate n",
    warm_start=False,
    totals=False,
    factorises=True,
)

OPTION_VALUES: dict[str, tuple[Any, ...]] = {}

# The barrier. A crossover is tried when the barrier has fallen to the share CLOSENESS of the tolerance. After one that fails
# it must fall to a tenth of that. There are at most CROSSOVERS of them, and at most MAX_STEPS steps. A step shorter than
# the share STUCK of Newton's is no progress: the crossover is tried then as well.
CLOSENESS = 1e-3
CROSSOVERS = 6
MAX_STEPS = 150
STUCK = 1e-6
SMALLEST_SHARE = 1e-6  # where all variables vanish, this share of their boxes counts as their size

# The end. An inner point may miss the equality row by the share FEASIBLE of sum |beta|. A crossover changes its set of free
# variables at most ROUNDS times.
FEASIBLE = 1e-9
ROUNDS = 40

MOST_BYTES = float(1 << 26)  # of sparse points that are made dense


def few_features(K: KernelMatrix) -> bool:
    """Whether the kernel is linear, and the features themselves are few enough to be worked with."""
    return K.function is None and K.kernel.kind == KernelKind.LINEAR and K.n_features <= K.n


def has_features(K: KernelMatrix) -> bool:
    """Whether they are worked with. Steps need dense features: of sparse points only where these take little memory."""
    return few_features(K) and (K.dense or 8.0 * K.n * K.n_features <= MOST_BYTES)


def _features(K: KernelMatrix, poll: Poll) -> tuple[FloatArray, int] | None:
    """Panels of features whose inner products are K, and the number of features.

    None where K is not positive, on a stop, or where sparse points would fill the memory.
    """
    if few_features(K) and not has_features(K):
        return None
    if has_features(K):
        points = dense_points(K.X.toarray(), np.arange(K.n)) if is_sparse(K.X) else K.points
        return points.panels, K.n_features
    Z = factorised(K, poll)
    return None if Z is None else (dense_points(Z, np.arange(K.n)).panels, Z.shape[1])


class _Solver:
    """The interior point."""

    def __init__(self, qp: DualQP, data: MachineData) -> None:
        self.qp, self.data = qp, data
        self.unit = float(np.mean(np.abs(qp.c))) or 1.0
        lower_side, upper_side = np.isfinite(qp.lower) * 1.0, np.isfinite(qp.upper) * 1.0
        self.count = float(lower_side.sum() + upper_side.sum())
        start = Start(qp, data, self.unit)
        self.least = SMALLEST_SHARE * float(np.mean(start.box))
        s, u, z, t = start.bounds()
        gradient = data.product(data.weights(start.beta)) + qp.diag * start.beta - qp.c
        pad = data.padded
        self.x = ipm.Iterate(
            beta=pad(start.beta),
            s=pad(s, 1.0),
            u=pad(u, 1.0),
            z=pad(z),
            t=pad(t),
            gradient=pad(gradient),
            diag=pad(qp.diag, IMMOVABLE),
            lower_side=pad(lower_side),
            upper_side=pad(upper_side),
        )
        vectors, pairs = np.zeros((6, data.size)), np.zeros((2, 2, data.size))
        self.step = ipm.NewtonStep(vectors[0], vectors[1], pairs[0], pairs[1], *vectors[2:])
        self.design = ipm.Design(data.panels, np.empty((2, data.d)), np.empty((data.d, data.d)))
        self.at = data.arrived(ipm.move(self.x, self.step, 0.0, 0.0, start.bias))

    @property
    def complementarity(self) -> float:
        """The mean complementarity over all bounds."""
        return float(self.at.complementarity) / self.count

    def advance(self) -> None:
        """One predictor-corrector step."""
        data, normal = self.data, self.design.normal
        if data.long:
            data.add_gram(self.step.weights[0], normal)
            if data.poll.status is not None:
                return
            normal.flat[:: data.d + 1] += 1.0
            factor, failed = lapack.dpotrf(normal, lower=1)
            if failed:
                self.at = self.at._replace(length=0.0)
                return
            normal[:] = factor
        at = ipm.advance(self.x, self.step, self.design, self.at, self.count, self.qp.equality, data.long)
        self.at = data.arrived(at) if at.length else at

    def reached(self) -> FloatArray:
        """The present dual point, strictly inside its box. Its sum is 0 as far as there is room for that."""
        qp, beta = self.qp, self.x.beta[: self.data.m].copy()
        if not qp.equality:
            return beta
        return spread(qp, np.clip(beta, qp.lower, qp.upper), np.arange(len(beta)), self.data.beside.total)


class _ExactFactor(NamedTuple):
    """A point with exact bounds, its residual and its violation."""

    beta: FloatArray
    v: FloatArray
    violation: float


class _Crossover:
    """From an interior point to one whose bounded variables are exactly at their bounds."""

    def __init__(self, solver: _Solver) -> None:
        self.qp, self.data = solver.qp, solver.data
        qp, m = self.qp, self.data.m
        x = ipm.Iterate(*(vector[:m] for vector in solver.x))
        boxed = np.isfinite(qp.upper) & np.isfinite(qp.lower)
        with np.errstate(invalid="ignore"):
            box = np.where(boxed, qp.upper - qp.lower, max(float(np.mean(np.abs(x.beta))), NONZERO))
        at_lower = (x.lower_side > 0) & (x.s / box < x.z / solver.unit)
        at_upper = (x.upper_side > 0) & (x.u / box < x.t / solver.unit)
        self.beta = np.where(at_lower, qp.lower, np.where(at_upper, qp.upper, x.beta))
        self.free = list(np.flatnonzero(~at_lower & ~at_upper))

    def _settle(self) -> float:
        """Solve for the free variables, and drop those that would leave their boxes. Returns the bias."""
        if not self.free:
            return 0.0
        free = np.array(self.free)
        rest = self.beta.copy()
        rest[free] = 0.0
        found = settle(
            self.qp.part(free), self.data.features(free), self.beta[free], self.data.weights(rest),
            self.data.surplus(rest), self.data.poll,
        )  # fmt: skip
        self.beta[free] = found.beta
        self.free = free[found.inside].tolist()
        return found.bias

    def _exact(self) -> _ExactFactor:
        """The present point, measured."""
        qp = self.qp
        v = qp.c - self.data.product(self.data.weights(self.beta)) - qp.diag * self.beta
        off = abs(self.data.surplus(self.beta)) > FEASIBLE * (1.0 + np.abs(self.beta).sum()) if qp.equality else False
        bad = off or not (np.isfinite(self.beta).all() and np.isfinite(v).all())
        return _ExactFactor(self.beta.copy(), v, np.inf if bad else measures.violation(qp, self.beta, v))

    def run(self, met: Any) -> _ExactFactor:
        """The point as it is, if that will do. Otherwise free variables are settled and violators freed, by turns."""
        qp = self.qp
        if qp.equality:
            self.beta = spread(qp, self.beta, np.array(self.free, np.int64), self.data.beside.total)
        best = self._exact()
        for _ in range(ROUNDS):
            if met(best) or self.data.poll.status is not None:
                break
            bias = self._settle()
            exact = self._exact()
            if exact.violation < best.violation:
                best = exact
            pull = np.where(self.beta < qp.upper, exact.v - bias, 0.0)
            pull = np.maximum(pull, np.where(self.beta > qp.lower, bias - exact.v, 0.0))
            pull[self.free] = 0.0
            worst = np.argsort(-pull)[: max(1, self.data.d // 4)]
            worst = worst[pull[worst] > 0.0]
            if not len(worst):
                break
            self.free.extend(worst.tolist())
        return best


def run(task: SolverTask) -> Raw:
    """Solve the dual. `start` is not used. `n_iter` counts steps of the interior point."""
    qp, K, tol, trace = task.qp, task.K, task.tol, task.trace
    records: list[tuple[float, float, float]] = []
    best = _ExactFactor(np.zeros_like(task.start), qp.c, np.inf)

    def met(exact: _ExactFactor) -> bool:
        if task.stopping == "gap":
            return bool(np.isfinite(exact.violation)) and Criterion(task.stopping, tol).met(qp, exact.beta, exact.v)
        return exact.violation <= tol

    poll = Poll(task.control)
    if met(best._replace(violation=measures.violation(qp, best.beta, qp.c))):  # targets below the tolerance, say
        return Raw(best.beta, Status.CONVERGED, 0, _table(records) if trace else None, {"crossovers": 0})
    features = _features(K, poll)
    if features is None:
        return Raw(best.beta, poll.status or Status.LIMITED, 0, _table(records) if trace else None, {"crossovers": 0})
    embedded = K.kernel.offset if has_features(K) else 0.0  # else it is in the kernel values

    def record(solver: _Solver) -> None:
        beta = solver.x.beta[: solver.data.m].copy()
        objective = measures.objective(qp, beta, fresh_residual(qp, K, beta))
        records.append((objective, solver.complementarity, float(solver.at.dual)))

    raw = _course(
        qp, MachineData(qp, K.n, features, poll, embedded), tol, met, task.max_iter, record if trace else None
    )
    return raw._replace(trace=_table(records) if trace else None)


def run_beside(Z: FloatArray, qp: DualQP, beside: Beside, *, control: Control, tol: float) -> Raw:
    """The same for rows Z, one a variable, beside other variables."""
    data = MachineData(
        qp, len(Z), (dense_points(Z, np.arange(len(Z))).panels, Z.shape[1]), Poll(control), beside=beside
    )
    return _course(qp, data, tol, lambda exact: exact.violation <= tol, -1, None)


def _course(
    qp: DualQP, data: MachineData, tol: float, met: Callable[[_ExactFactor], bool], max_iter: int,
    record: Callable[[_Solver], None] | None,
) -> Raw:  # fmt: skip
    """Steps and crossovers until an exact point will do."""
    best = _ExactFactor(np.zeros(data.m), qp.c, np.inf)
    barrier = CLOSENESS * tol
    steps, crossovers, length = 0, 0, 1.0
    status: Status | None = None
    poll, solver = data.poll, _Solver(qp, data)
    while status is None:
        mu, at = solver.complementarity, solver.at
        poll.steps, poll.dual = steps, float(at.dual)
        if not np.isfinite(mu):
            status = Status.LIMITED
            break
        if record is not None:
            record(solver)
        stuck = length < STUCK or steps >= MAX_STEPS
        scale = max(at.size / data.m, solver.least)
        if (mu <= barrier * scale * solver.unit and at.dual <= 0.05 * tol) or stuck:
            exact = _Crossover(solver).run(met)
            crossovers += 1
            best = min(best, exact, key=lambda e: e.violation)
            if met(exact):
                best, status = exact, Status.CONVERGED
            elif poll.status is not None:
                status = poll.status
            elif stuck or crossovers >= CROSSOVERS:
                status = Status.LIMITED
            barrier *= 0.1
            continue
        if 0 <= max_iter <= steps:
            status = Status.MAX_ITER
            break
        if not poll():
            solver.advance()
            length = solver.at.length
            steps += 1
        status = poll.status
    beta = best.beta if status is Status.CONVERGED else _better(qp, data, best, solver.reached())
    return Raw(beta, status, steps, None, {"crossovers": crossovers})


def _better(qp: DualQP, data: MachineData, best: _ExactFactor, inner: FloatArray) -> FloatArray:
    """The point of smaller gap: the best one with exact bounds, or the one inside them."""

    def gap(beta: FloatArray) -> float:
        v = qp.c - data.product(data.weights(beta)) - qp.diag * beta
        found = measures.gap(qp, beta, v, measures.bias(qp, beta, v))
        return found if np.isfinite(found) else np.inf

    off = qp.equality and abs(data.surplus(inner)) > FEASIBLE * np.abs(inner).sum()
    if off or not np.isfinite(inner).all():
        return best.beta
    return min(best.beta, inner, key=gap)


def _table(records: list[tuple[float, float, float]]) -> dict[str, FloatArray]:
    """A trace as columns."""
    columns = ("objective", "complementarity", "dual_residual")
    return {name: np.array([record[k] for record in records]) for k, name in enumerate(columns)}
