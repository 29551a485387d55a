"""Newton's method on the primal of a linear machine: systems as large as its features, or as its points if these are fewer.

Solves   every formulation of the sign-free dual whose kernel is positive. The linear kernel is worked with over the rows as
         they are, dense or sparse. Any other is factorised first, and so is the linear one of more features than points.
Cost     3 to 10 steps for losses with curvature, whatever C is; 10 to 60 for others. A step is a pass over the rows, d^3 / 6
         operations, and d^2 / 2 for each row that came to a piece that moves, or left it.
Stops    where the criterion holds at the dual variables, by a residual that is computed anew from the data.
Method   Newton's method for piecewise quadratic functions: Mangasarian, A finite Newton method for classification (2002);
         Keerthi and DeCoste, A modified finite Newton method for linear SVMs (2005). Linear losses: the method of
         multipliers, Rockafellar (1976).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore._types import DualQP, FloatArray, Raw, Status
from svmcore.kernel.matrix import KernelMatrix
from svmcore.problem import measures
from svmcore.solvers import _losses, _newton, _rows
from svmcore.solvers._contract import Capabilities, Criterion, SolverTask, fresh_residual, spread
from svmcore.solvers._factors import features
from svmcore.solvers._newton import Asking, Newton

CAPABILITIES = Capabilities(
    summary="Newton's method on the primal: the linear kernel, dense or sparse, with up to some hundred features",
    totals=False,
    factorises=True,
)

OPTION_VALUES: dict[str, tuple[Any, ...]] = {}


def run(task: SolverTask) -> Raw:
    """Solve the dual. `n_iter` counts Newton's steps."""
    qp, K, control, tol, start, stopping, max_iter, _, trace = task
    watch = Asking(control, trace)
    found = None if watch() else features(K, watch, wide=False)
    if found is None or watch():
        return Raw(start, watch.status or Status.LIMITED, 0, watch.table)
    X, constant = found
    rows = _rows.rows_of(X, 1.0 if qp.equality else constant)
    newton = Newton(
        rows, _losses.losses_from(qp, K.n), free=qp.equality, squared=bool(qp.diag.any()), poll=watch,
        goal=0.0 if stopping == "kkt" else tol,
    )  # fmt: skip
    criterion = Criterion(stopping, tol)
    longest = float(np.sqrt(K.diagonal.max(initial=0.0)))
    residuals: list[FloatArray] = []

    def near(newton: Newton) -> bool:
        if stopping != "kkt":
            return bool(newton.gap <= tol * abs(newton.primal))
        return bool(newton.violation + longest * newton.slope <= tol)

    def point(z: FloatArray) -> FloatArray:
        """The variables, whose sum is what it has to be, to rounding."""
        beta = _losses.variables(qp, z)
        return _balanced(qp, beta) if qp.equality else beta

    def met(newton: Newton) -> bool:
        beta = point(newton.losses.z)
        residuals[:] = [fresh_residual(qp, K, beta)]
        if stopping == "objective":
            newton.renew()
            return near(newton)
        return criterion.met(qp, beta, residuals[0])

    _begin(newton, qp, K, start)
    watch.machine = newton
    status = _newton.solve(newton, near, met, _newton.PATIENCE if max_iter < 0 else max_iter)
    if status is not Status.CONVERGED:
        beta = point(newton.best)
        if (
            status is Status.PRECISION
            and stopping != "objective"
            and criterion.met(qp, beta, fresh_residual(qp, K, beta))
        ):
            status = Status.CONVERGED
        if status is Status.MAX_ITER and max_iter < 0:
            status = Status.LIMITED
        return Raw(beta, watch.status or status, newton.steps, watch.table)
    beta = point(newton.losses.z)
    error = _newton.ROUNDING * longest**2 * float(np.abs(beta).sum())
    return Raw(beta, status, newton.steps, watch.table, residual=residuals[0], residual_error=error)


def _balanced(qp: DualQP, beta: FloatArray) -> FloatArray:
    """Variables whose sum is what it has to be. Where all of them are at bounds but for what steps leave, they are there.

    Then no residual says on which side of a tube, or of a bound, such a rest is.
    """
    free = np.flatnonzero((beta > qp.lower) & (beta < qp.upper))
    out = spread(qp, beta, free)
    above, below = qp.upper[free] - out[free], out[free] - qp.lower[free]
    if len(free) and np.minimum(above, below).max() <= _newton.BALANCED * np.abs(out).max():
        there = out.copy()
        there[free] = np.where(above < below, qp.upper[free], qp.lower[free])
        if abs(qp.excess(there)) <= _newton.ROUNDING * np.abs(there).sum():
            return there
    return out


def _begin(newton: Newton, qp: DualQP, K: KernelMatrix, start: FloatArray) -> None:
    """At the machine of a start, or, without one, at that of a part of the rows."""
    if not start.any():
        _newton.started(newton)
        return
    z = np.bincount(qp.point, start, K.n).astype(np.float64)
    w = np.zeros(newton.rows.d + 1)
    support = np.flatnonzero(z)
    newton.rows.add(support, z[support], w)
    if qp.equality:
        w[-1] = measures.bias(qp, start, fresh_residual(qp, K, start))
    newton.begin(w, z)
