"""Interior point for the linear kernel with few features, and crossover to exact bounds.

Solves   every formulation of the sign-free dual whose boxes are bounded or whose diagonal is positive; linear kernel.
Cost     about 30 iterations of n d^2 / 2 + 8 n d operations, whatever C is; d x d systems (Woodbury), nothing n x n.
Stops    after crossover, on the residual of the exact point; when that misses the tolerance the interior point goes on
         from where it was, ten times closer, and crosses over again.
Method   Mehrotra's predictor-corrector (1992); Ferris and Munson's (2003) use of Woodbury for support vector machines.

The barrier problem's stationarity is ``gradient + b = z - t`` with multipliers z, t of the bounds. With
``E = diag + z/s + t/u`` a Newton step solves ``(Z Z' + E) d beta + db = right``, and with
``h = (I + Z' E^-1 Z)^-1 Z' E^-1 right`` the solution is ``E^-1 (right - Z h)``, for which ``Z' d beta = h``: the product of
K comes with the step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import qr

from svmcore import _ipm_jit as ipm
from svmcore import _measures
from svmcore._control import Control
from svmcore._types import LANES, DualQP, FloatArray, IntArray, Raw, Status
from svmcore.gram import KernelMatrix, dense_points, is_sparse
from svmcore.solvers._contract import Capabilities, Criterion, fresh_residual

CAPABILITIES = Capabilities(
    summary="interior point with crossover: the linear kernel with few features",
    warm_start=False,
    callable_kernel=False,
    linear_only=True,
)

OPTION_VALUES: dict[str, tuple[Any, ...]] = {}

CLOSENESS = 1e-3  # first barrier, as a share of the tolerance; a tenth of it at each crossover that fails
CROSSOVERS = 6
MAX_STEPS = 150
ROUNDS = 40  # changes of the free set in one crossover


class _Data:
    """The features behind the variables, centred when sum(beta) = 0 makes that free."""

    def __init__(self, qp: DualQP, K: KernelMatrix) -> None:
        points = dense_points(K.X.toarray(), np.arange(K.n)) if is_sparse(K.X) else K.points
        source = points.panels
        width = K.n_features
        offset = K.kernel.offset
        self.n, self.size = K.n, len(source) * LANES
        self.d = d = width + (offset != 0.0)
        rows = np.zeros((self.size, d))
        centre = source[:, :width].sum(axis=(0, 2)) / K.n if qp.equality else np.zeros(width)
        rows[:, :width] = source[:, :width].transpose(0, 2, 1).reshape(-1, width) - centre
        if offset:
            rows[:, width] = np.sqrt(offset)
        rows[K.n :] = 0.0
        self.design = ipm.Design(
            panels=np.ascontiguousarray(rows.reshape(-1, LANES, d).transpose(0, 2, 1)),
            rows=rows,
            point=qp.point,
            one_each=len(qp.point) == K.n and bool((qp.point == np.arange(K.n)).all()),
            values=np.zeros((2, self.size)),
            sums=np.empty((2, d)),
            normal=np.empty((d, d)),
            most=np.empty(LANES),
        )

    def columns(self, values: FloatArray) -> FloatArray:
        """Z' r for a vector over the variables."""
        design = self.design
        out: FloatArray = np.empty((1, self.d))
        ipm.to_points(design, values, design.values[0])
        ipm.columns_times(design.panels, design.values[:1], out)
        return np.asarray(out[0])

    def product(self, weights: FloatArray) -> FloatArray:
        """Z w over the variables."""
        design, out = self.design, np.empty(len(self.design.point))
        ipm.rows_times(design.panels, weights[None, :], design.values[:1])
        ipm.to_variables(design, design.values[0], out)
        return out

    def features(self, index: IntArray) -> FloatArray:
        """Rows of Z."""
        return self.design.rows[self.design.point[index]]


class _Solver:
    """The interior point."""

    def __init__(self, qp: DualQP, data: _Data) -> None:
        self.qp, self.data = qp, data
        n = len(qp.c)
        beta = _interior_start(qp, data)
        lower_side, upper_side = np.isfinite(qp.lower) * 1.0, np.isfinite(qp.upper) * 1.0
        gradient = data.product(data.columns(beta)) + qp.diag * beta - qp.c
        unit = max(float(np.mean(np.abs(qp.c))), 1e-300)
        self.unit = unit
        self.x = ipm.Iterate(
            beta=beta,
            s=np.where(lower_side > 0, beta - qp.lower, 1.0),
            u=np.where(upper_side > 0, qp.upper - beta, 1.0),
            z=lower_side * (np.maximum(gradient, 0.0) + unit),
            t=upper_side * (np.maximum(-gradient, 0.0) + unit),
            gradient=gradient,
            diag=qp.diag,
            lower_side=lower_side,
            upper_side=upper_side,
        )
        self.step = ipm.Direction(*np.zeros((len(ipm.Direction._fields), n)))
        self.bias = 0.0
        self.excess = float(beta.sum())

    def measure(self) -> tuple[float, float]:
        """Mean complementarity, and the largest dual residual."""
        mu, dual = ipm.measure(self.x, self.bias, self.step, self.data.design.most)
        return float(mu), float(dual)

    def advance(self, mu: float) -> float:
        """One predictor-corrector step at complementarity mu; returns its length."""
        length, self.bias, self.excess = ipm.advance(
            self.x, self.step, self.data.design, self.bias, self.excess, mu, self.qp.equality
        )
        return float(length)


def _interior_start(qp: DualQP, data: _Data) -> FloatArray:
    """A feasible point well inside: half the smaller side's boxes, the other side scaled to balance."""
    energy = float(np.vdot(data.design.rows, data.design.rows)) / max(data.n, 1)
    natural = 1.0 / np.maximum(qp.diag + energy, 1e-300)
    boxed = np.isfinite(qp.lower) & np.isfinite(qp.upper)
    with np.errstate(invalid="ignore"):
        half = 0.5 * np.where(boxed, qp.upper - qp.lower, natural)
    beta = np.where(qp.lower >= 0.0, qp.lower + half, qp.upper - half)
    if qp.equality:
        positive, negative = beta[beta > 0].sum(), -beta[beta < 0].sum()
        if positive > negative > 0:
            beta[beta > 0] *= negative / positive
        elif negative > positive > 0:
            beta[beta < 0] *= positive / negative
    return beta


class _Exact(NamedTuple):
    """A point with exact bounds, its residual and its violation."""

    beta: FloatArray
    v: FloatArray
    violation: float


class _Crossover:
    """From an interior point to one whose bounded variables are exactly at their bounds."""

    def __init__(self, solver: _Solver) -> None:
        self.qp, self.data = solver.qp, solver.data
        qp, x = self.qp, solver.x
        boxed = np.isfinite(qp.upper) & np.isfinite(qp.lower)
        with np.errstate(invalid="ignore"):
            box = np.where(boxed, qp.upper - qp.lower, max(float(np.mean(np.abs(x.beta))), 1e-300))
        at_lower = (x.lower_side > 0) & (x.s / box < x.z / solver.unit)
        at_upper = (x.upper_side > 0) & (x.u / box < x.t / solver.unit)
        self.beta = np.where(at_lower, qp.lower, np.where(at_upper, qp.upper, x.beta))
        self.free = list(np.flatnonzero(~at_lower & ~at_upper))

    def _step(self, free: IntArray, w: FloatArray) -> tuple[FloatArray, float]:
        """Change of the free variables that makes their residuals equal (to the bias, which is returned)."""
        qp = self.qp
        Z, d = self.data.features(free), self.data.d
        ones = np.ones((len(free), int(qp.equality)))
        excess = -np.full(int(qp.equality), self.beta.sum())
        diag = qp.diag[free]
        if diag.all():
            v = qp.c[free] - Z @ w - diag * self.beta[free]
            scaled = Z / diag[:, None]
            normal = np.eye(d) + Z.T @ scaled
            right = np.column_stack([v, ones])
            x = right / diag[:, None] - scaled @ np.linalg.solve(normal, scaled.T @ right)
            if not qp.equality:
                return x[:, 0], 0.0
            bias = (x[:, 0].sum() - excess[0]) / x[:, 1].sum()
            return x[:, 0] - bias * x[:, 1], float(bias)
        # the step lies in the span of [Z, 1]: an orthonormal basis keeps duplicate and dependent rows cheap and harmless
        basis: FloatArray = np.eye(len(free))
        if len(free) > d + 1:
            q, r, _ = qr(np.hstack([Z, ones]), mode="economic", pivoting=True)
            size = np.abs(np.diag(r))
            basis = np.asarray(q[:, : int(np.count_nonzero(size > 1e-11 * size[0]))], dtype=np.float64)
        reduced = basis.T @ Z
        f, e = basis.shape[1], ones.shape[1]
        system = np.zeros((f + e, f + e))
        system[:f, :f] = reduced @ reduced.T + (basis.T * diag) @ basis
        system[:f, f:] = basis.T @ ones
        system[f:, :f] = system[:f, f:].T
        right = np.concatenate([basis.T @ (qp.c[free] - Z @ w - diag * self.beta[free]), excess])
        solution = np.linalg.lstsq(system, right, rcond=1e-13)[0]
        return basis @ solution[:f], float(solution[f]) if e else 0.0

    def _settle(self) -> float:
        """Solve for the free variables, dropping those that would leave their boxes; returns the bias."""
        qp, bias = self.qp, 0.0
        while self.free:
            free = np.array(self.free)
            w = self.data.columns(self.beta)
            step, bias = self._step(free, w)
            target = self.beta[free] + step
            outside = (target < qp.lower[free]) | (target > qp.upper[free])
            if not outside.any():
                self.beta[free] = target
                break
            bound = np.where(step > 0, qp.upper[free], qp.lower[free])
            with np.errstate(divide="ignore", invalid="ignore"):
                reach = np.where(outside, (bound - self.beta[free]) / step, np.inf)
            first = int(np.argmin(reach))
            self.beta[free] += max(0.0, float(reach[first])) * step
            self.beta[free[first]] = bound[first]
            self.beta = np.clip(self.beta, qp.lower, qp.upper)
            del self.free[first]
        return bias

    def run(self, met: Any) -> _Exact:
        """Alternate between settling the free variables and freeing the worst violators."""
        qp = self.qp
        best = None
        for _ in range(ROUNDS):
            bias = self._settle()
            w = self.data.columns(self.beta)
            v = qp.c - self.data.product(w) - qp.diag * self.beta
            exact = _Exact(self.beta.copy(), v, _measures.violation(qp, self.beta, v))
            infeasible = qp.equality and abs(self.beta.sum()) > 1e-9 * (1.0 + np.abs(self.beta).sum())
            if not infeasible and (best is None or exact.violation < best.violation):
                best = exact
            if not infeasible and met(exact):
                break
            pull = np.where(self.beta < qp.upper, v - bias, 0.0)
            pull = np.maximum(pull, np.where(self.beta > qp.lower, bias - v, 0.0))
            pull[self.free] = 0.0
            worst = np.argsort(-pull)[: max(1, self.data.d // 4)]
            worst = worst[pull[worst] > 0.0]
            if not len(worst):
                break
            self.free.extend(worst.tolist())
        return best if best is not None else exact


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
) -> Raw:
    """Solve the dual; `start` is not used. `n_iter` counts interior-point steps."""
    data = _Data(qp, K)
    solver = _Solver(qp, data)
    records: list[tuple[float, float, float]] = []
    best = _Exact(start, qp.c, np.inf)
    barrier = CLOSENESS * tol
    steps, crossovers, length = 0, 0, 1.0
    status: Status | None = None

    def met(exact: _Exact) -> bool:
        if stopping == "kkt":
            return exact.violation <= tol
        return Criterion(stopping, tol).met(qp, exact.beta, exact.v) if stopping == "gap" else exact.violation <= tol

    while status is None:
        mu, dual = solver.measure()
        if not np.isfinite(mu):
            status = Status.LIMITED
            break
        scale = float(np.mean(np.abs(solver.x.beta))) + 1e-300
        if trace:
            beta = np.array(solver.x.beta)
            records.append((_measures.objective(qp, beta, fresh_residual(qp, K, beta)), mu, dual))
        stuck = length < 1e-6 or steps >= MAX_STEPS
        if (mu <= barrier * scale * solver.unit and dual <= 0.05 * tol) or stuck:
            exact = _Crossover(solver).run(met)
            crossovers += 1
            best = min(best, exact, key=lambda e: e.violation)
            if met(exact):
                best, status = exact, Status.CONVERGED
            elif stuck or crossovers >= CROSSOVERS:
                status = Status.LIMITED
            barrier *= 0.1
            continue
        if 0 <= max_iter <= steps:
            status = Status.MAX_ITER
            break
        status = control.check(steps, dual, np.nan)
        if status is None:
            length = solver.advance(mu)
            steps += 1
    if not np.isfinite(best.violation):
        exact = _Crossover(solver).run(met)
        best = exact if np.isfinite(exact.violation) else best
    columns = ("objective", "complementarity", "dual_residual")
    table = {name: np.array([record[k] for record in records]) for k, name in enumerate(columns)}
    return Raw(best.beta, status, steps, table if trace else None, {"crossovers": crossovers})
