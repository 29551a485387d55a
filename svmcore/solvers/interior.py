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
from svmcore._kernels import weighted_gram
from svmcore._types import LANES, NONZERO, DualQP, FloatArray, IntArray, KernelKind, Raw, Status
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import dense_points, is_sparse
from svmcore.problem import measures
from svmcore.solvers import _ipm_jit as ipm
from svmcore.solvers._contract import Capabilities, Criterion, SolverTask, fresh_residual, spread
from svmcore.solvers._factors import factorised
from svmcore.solvers._settle import LONG, settle

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

# The start. A ridge fit of c comes first. Its ridge is the share STEEPEST of the trace of Z' Z. Newton's steps follow while
# the error of the margins is above FAR, in units of |c|: at most NEWTON_STEPS of them. One that leads too far is shortened,
# up to SHORTER times. The first barrier belongs to a mean margin error of at least FLATTEST, in the same units.
STEEPEST = 1e-8
FAR = 1e4
NEAR = 1.0  # the same where it sets out from a point near the end
NEWTON_STEPS = 20
SHORTER = 8
FLATTEST = 1e-6

# The end. An inner point may miss the equality row by the share FEASIBLE of sum |beta|. A crossover changes its set of free
# variables at most ROUNDS times.
FEASIBLE = 1e-9
ROUNDS = 40

IMMOVABLE = 1e300  # the diagonal of padding
MOST_BYTES = float(1 << 26)  # of sparse points that are made dense


def few_features(K: KernelMatrix) -> bool:
    """Whether the kernel is linear, and the features themselves are few enough to be worked with."""
    return K.function is None and K.kernel.kind == KernelKind.LINEAR and K.n_features <= K.n


def has_features(K: KernelMatrix) -> bool:
    """Whether they are worked with. Steps need dense features: of sparse points only where these take little memory."""
    return few_features(K) and (K.dense or 8.0 * K.n * K.n_features <= MOST_BYTES)


class Beside(NamedTuple):
    """Other variables that stay where they are: what they add to Z' beta and to sum(beta), and a (w, bias) near the end."""

    w: Any = 0.0
    total: float = 0.0
    near: tuple[FloatArray, float] | None = None


class _Poll:
    """Asks whether to stop, also within a step. Once the answer is yes, it stays yes."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.status: Status | None = None
        self.steps, self.dual = 0, np.inf

    def __call__(self) -> bool:
        if self.status is None:
            self.status = self.control.check(self.steps, self.dual, np.nan)
        return self.status is not None


def _features(K: KernelMatrix, poll: _Poll) -> tuple[FloatArray, int] | None:
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


class _MachineData:
    """The features behind the variables, in whole panels. They are centred where sum(beta) = 0 makes that free."""

    def __init__(
        self, qp: DualQP, n: int, features: tuple[FloatArray, int], poll: _Poll, embedded: float = 0.0,
        beside: Beside | None = None,
    ) -> None:  # fmt: skip
        self.poll = poll
        self.beside = beside or Beside()
        source, width = features
        self.m = len(qp.point)
        self.size = -(-self.m // LANES) * LANES
        self.d = d = width + (embedded != 0.0)
        centre = np.zeros((1, source.shape[1]))
        if qp.equality and beside is None:
            ipm.columns_times(source, np.ones((1, len(source) * LANES)), centre)
            centre /= n
        self.panels = np.empty((self.size // LANES, d, LANES))
        if qp.one_each(n):
            np.subtract(source[:, :width], centre[0, :width, None], out=self.panels[:, :width])
        else:
            rows = source.transpose(0, 2, 1).reshape(-1, source.shape[1])[np.resize(qp.point, self.size), :width]
            self.panels[:, :width] = (rows - centre[0, :width]).reshape(-1, LANES, width).transpose(0, 2, 1)
        self.panels[:, width:] = np.sqrt(embedded)
        if self.m < self.size:
            self.panels[-1, :, self.m - self.size :] = 0.0
        self._values = np.zeros((1, self.size))
        self._fitted = np.empty((1, self.size))

    def padded(self, values: FloatArray, filling: float = 0.0) -> FloatArray:
        """A vector over the variables in whole panels."""
        out = np.full(self.size, filling)
        out[: self.m] = values
        return out

    def columns(self, values: FloatArray) -> FloatArray:
        """Z' r for a vector over the variables."""
        out: FloatArray = np.empty((1, self.d))
        self._values[0, : self.m] = values
        ipm.columns_times(self.panels, self._values, out)
        return np.asarray(out[0])

    def weights(self, beta: FloatArray) -> FloatArray:
        """Z' beta of all variables."""
        return np.asarray(self.columns(beta) + self.beside.w)

    def surplus(self, beta: FloatArray) -> float:
        """The sum of all variables."""
        return float(beta.sum()) + self.beside.total

    def arrived(self, at: ipm.Arrival) -> ipm.Arrival:
        """Where a step has led, with all variables."""
        return at._replace(excess=at.excess + self.beside.total) if self.beside.total else at

    def product(self, weights: FloatArray) -> FloatArray:
        """Z w over the variables."""
        ipm.rows_times(self.panels, weights[None, :], self._fitted)
        return self._fitted[0, : self.m].copy()

    def gram(self, values: FloatArray) -> FloatArray:
        """The lower half of Z' diag(r) Z."""
        out = np.empty((self.d, self.d))
        self.add_gram(self.padded(values), out)
        return out

    @property
    def long(self) -> bool:
        """Whether a pass of d^2 operations a point takes longer than anybody should wait for an answer."""
        return float(self.size) * self.d**2 > LONG

    def add_gram(self, values: FloatArray, out: FloatArray) -> None:
        """`gram` of a padded vector, in blocks of rows where it takes long. A stop leaves it unfinished. In place: out."""
        if not self.long:
            weighted_gram(self.panels, values, self.d, out)
            return
        part = np.empty_like(out)
        out[:] = 0.0
        rows = max(1, int(LONG / (LANES * self.d**2)))
        for first in range(0, len(self.panels), rows):
            weighted_gram(
                self.panels[first : first + rows], values[first * LANES : (first + rows) * LANES], self.d, part
            )
            out += np.tril(part)
            if self.poll():
                return

    def features(self, index: IntArray) -> FloatArray:
        """Rows of Z."""
        return self.panels[index // LANES, :, index % LANES]


class _Solver:
    """The interior point."""

    def __init__(self, qp: DualQP, data: _MachineData) -> None:
        self.qp, self.data = qp, data
        self.unit = float(np.mean(np.abs(qp.c))) or 1.0
        lower_side, upper_side = np.isfinite(qp.lower) * 1.0, np.isfinite(qp.upper) * 1.0
        self.count = float(lower_side.sum() + upper_side.sum())
        start = _Start(qp, data, self.unit)
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


class _Start:
    """Where the interior point sets out: weights w and a bias b, and the variables that suit their margins.

    A ridge fit of c gives w and b. A variable that solves ``z - t = Z w + b - c + diag beta`` and ``s z = u t = mu`` is
    centred. Then ``w - Z' beta`` is all that is wrong. For large C and many points that is a large error of the margins.
    Newton's steps on w and b make it small first. They minimise the primal of the barrier, which is smooth and convex.
    """

    def __init__(self, qp: DualQP, data: _MachineData, unit: float) -> None:
        self.qp, self.data = qp, data
        energy = float(np.vdot(data.panels, data.panels))
        self.rises = (qp.lower >= 0.0) | np.isinf(qp.upper)
        self.sign, self.home = np.where(self.rises, 1.0, -1.0), np.where(self.rises, qp.lower, qp.upper)
        self.open = ~(np.isfinite(qp.lower) & np.isfinite(qp.upper))
        self.curvature = np.where(qp.diag > 0, qp.diag, energy / max(data.m, 1) + NONZERO)
        with np.errstate(invalid="ignore"):
            self.box = np.where(self.open, unit / self.curvature, qp.upper - qp.lower)
        near, far = data.beside.near, NEAR
        if near is None:
            inverse = 1.0 / (qp.diag + 4.0 * unit / self.box + STEEPEST * energy)
            near, far = self._newton(inverse, data.columns(inverse * qp.c), float(inverse @ qp.c)), FAR
        self.w, self.bias = near
        force = self._force()
        self.mu = float(np.mean(self.box * np.maximum(np.abs(force), FLATTEST * unit)))
        wrong = self._centre(force)
        for _ in range(NEWTON_STEPS):
            if data.poll.status is not None:
                break
            if not np.max(np.abs(data.product(wrong)), initial=0.0) > far * unit:
                break
            wrong = self._improve(wrong)

    def _force(self) -> FloatArray:
        """What pulls each variable towards the bound it starts from."""
        return self.sign * (self.data.product(self.w) + self.bias - self.qp.c)

    def _centre(self, force: FloatArray) -> FloatArray:
        """Set the distances from the near bound and from the far one. Returns what is wrong with w: Z' beta - w."""
        slope = self.box * force / self.mu
        root = np.sqrt(4.0 + slope * slope)
        self.near, self.far = self.box * (2.0 / (2.0 + slope + root)), self.box * (2.0 / (2.0 - slope + root))
        if self.open.any():
            root = np.sqrt(force * force + 4.0 * self.mu * self.curvature)
            self.near = np.where(self.open, 2.0 * self.mu / (force + root), self.near)
            self.far = np.where(self.open, np.inf, self.far)
        self.beta = self.home + self.sign * self.near
        return self.data.weights(self.beta) - self.w

    def _newton(self, inverse: FloatArray, right: FloatArray, surplus: float) -> tuple[FloatArray, float]:
        """The step of (w, b) for a right-hand side. It is zero where the matrix is singular to rounding."""
        d, bordered = self.data.d, int(self.qp.equality)
        system = np.zeros((d + bordered, d + bordered))
        system[:d, :d] = self.data.gram(inverse)
        system.flat[: d * (d + bordered) : d + bordered + 1] += 1.0
        system[d:, :d] = self.data.columns(inverse)
        system[d:, d:] = inverse.sum()
        solution, failed = lapack.dposv(system, np.append(right, [surplus] * bordered), lower=1)[1:]
        if failed:
            return np.zeros(d), 0.0
        return solution[:d], float(solution[d:].sum())

    def _improve(self, wrong: FloatArray) -> FloatArray:
        """One Newton step, shortened while it leads far beyond the minimum. Returns what is still wrong with w."""
        stiffness = np.where(self.open, self.curvature, self.qp.diag)
        inverse = 1.0 / (stiffness + self.mu / self.near**2 + self.mu / self.far**2)
        surplus, w, bias = self.data.surplus(self.beta), self.w, self.bias
        dw, db = self._newton(inverse, wrong, surplus)
        slope = float(dw @ wrong) + db * surplus
        share = 1.0
        for _ in range(SHORTER):
            self.w, self.bias = w + share * dw, bias + share * db
            wrong = self._centre(self._force())
            if float(dw @ wrong) + db * self.data.surplus(self.beta) >= -0.3 * slope:
                break
            share *= 0.4
        return wrong

    def bounds(self) -> tuple[FloatArray, ...]:
        """Slacks and multipliers of the lower and of the upper bounds."""
        far = np.where(self.open, 1.0, self.far)
        pull = np.where(self.open, 0.0, self.mu / self.far)
        push = self.mu / self.near
        s, u = np.where(self.rises, self.near, far), np.where(self.rises, far, self.near)
        return s, u, np.where(self.rises, push, pull), np.where(self.rises, pull, push)


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

    poll = _Poll(task.control)
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
        qp, _MachineData(qp, K.n, features, poll, embedded), tol, met, task.max_iter, record if trace else None
    )
    return raw._replace(trace=_table(records) if trace else None)


def run_beside(Z: FloatArray, qp: DualQP, beside: Beside, *, control: Control, tol: float) -> Raw:
    """The same for rows Z, one a variable, beside other variables."""
    data = _MachineData(
        qp, len(Z), (dense_points(Z, np.arange(len(Z))).panels, Z.shape[1]), _Poll(control), beside=beside
    )
    return _course(qp, data, tol, lambda exact: exact.violation <= tol, -1, None)


def _course(
    qp: DualQP, data: _MachineData, tol: float, met: Callable[[_ExactFactor], bool], max_iter: int,
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


def _better(qp: DualQP, data: _MachineData, best: _ExactFactor, inner: FloatArray) -> FloatArray:
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
