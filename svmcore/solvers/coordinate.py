"""Dual coordinate descent: one variable at a time, over the rows of a linear machine.

Solves   every formulation without an equality row. The linear kernel is worked with over the rows as they are; dense ones
         become sparse first, and any other kernel is factorised. The kernel must be positive.
Cost     a sweep is two passes over the rows that do not rest. It takes 5 to 50 sweeps where C is not large, however many
         features there are.
Stops    where the criterion holds at the dual variables, by a residual that is computed anew from the data.
Method   Hsieh, Chang, Lin, Keerthi and Sundararajan, A dual coordinate descent method for large-scale linear SVM (2008).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from svmcore._types import Raw, Status
from svmcore.kernel.points import is_sparse
from svmcore.solvers._contract import Capabilities, Criterion, SolverTask, fresh_residual
from svmcore.solvers._coordinate import Descent, solve
from svmcore.solvers._factors import features
from svmcore.solvers._losses import Enough, losses_from, variables
from svmcore.solvers._newton import Asking
from svmcore.solvers._rows import SparseFeatures

CAPABILITIES = Capabilities(
    summary="dual coordinate descent: the linear kernel, sparse rows of very many features",
    equality=False,
    factorises=True,
)

OPTION_VALUES: dict[str, tuple[Any, ...]] = {}

# The relative gap at which the criterion is looked at first. It falls to the share CLOSER each time that it does not hold,
# down to LEAST, which rounding leaves. Without a limit there are at most SWEEPS.
FIRST, CLOSER, LEAST = 1e-2, 0.1, 1e-16
SWEEPS = 100_000


def run(task: SolverTask) -> Raw:
    """Solve the dual. `n_iter` counts sweeps."""
    qp, K, control, tol, start, stopping, max_iter, seed, trace = task
    watch = Asking(control, trace)
    found = None if watch() else features(K, watch, wide=True)
    if found is None or watch():
        return Raw(start, watch.status or Status.LIMITED, 0, watch.table)
    X, constant = found
    rows = SparseFeatures(X if is_sparse(X) else csr_array(X), constant)
    descent = Descent(rows, [losses_from(qp, K.n)], squared=bool(qp.diag.any()), seed=seed)
    watch.machine = descent
    if start.any():
        descent.begin(np.bincount(qp.point, start, K.n).astype(np.float64))
    criterion, most = Criterion(stopping, tol), SWEEPS if max_iter < 0 else max_iter

    def met() -> bool:
        if stopping == "objective":
            return bool(descent.gap <= tol * abs(descent.primal))
        beta = variables(qp, descent.best)
        return criterion.met(qp, beta, fresh_residual(qp, K, beta))

    goal = FIRST
    (status,) = solve(descent, [Enough(goal)], most, watch)
    while status is Status.CONVERGED and not met():
        goal *= CLOSER
        (status,) = solve(descent, [Enough(goal)], most, watch) if goal > LEAST else [Status.PRECISION]
    if status is Status.MAX_ITER and max_iter < 0:
        status = Status.LIMITED
    return Raw(variables(qp, descent.best), watch.status or status, descent.steps, watch.table)
