"""A small dual problem whose rows are all there, as the compiled slices of the solvers take it."""

from __future__ import annotations

import numpy as np

from svmcore.solvers import _steps_jit as steps
from svmcore.solvers._steps_jit import Duals, Limits, Progress, Rows

INF = np.inf


def problem(K, c, lower, upper, *, beta=None, diag=None, equality=True, tiny=1e-12):
    """A dual point with all of its rows stored, and counters with room for a trace of three steps."""
    K, c = np.array(K, dtype=float), np.array(c, dtype=float)
    n = len(c)
    beta = np.zeros(n) if beta is None else np.array(beta, dtype=float)
    diag = np.zeros(n) if diag is None else np.array(diag, dtype=float)
    duals = Duals(
        n=n, equality=equality, total=0.0, beta=beta, v=c - K @ beta - diag * beta, c=c, lower=np.array(lower, dtype=float),
        upper=np.array(upper, dtype=float), diag=diag, curvature=np.diag(K) + diag, point=np.arange(n), tiny=tiny,
    )  # fmt: skip
    rows = Rows(K.copy(), np.arange(n), np.zeros(n, np.int64))
    progress = Progress(np.zeros(16, np.int64), np.zeros(8), np.empty((3, len(steps.TRACE_COLUMNS))))
    progress.ints[steps.NEXT_CHECK] = 100
    return duals, rows, progress


def residual(duals, rows):
    return duals.c - rows.values @ duals.beta - duals.diag * duals.beta


def objective(duals, rows):
    b = duals.beta
    return 0.5 * b @ (rows.values @ b + duals.diag * b) - duals.c @ b


def random_problem(seed, n=7, equality=True, bound=2.0, unit=1e-4):
    """Half of the variables grow from zero, half shrink; a diagonal of the loss. Values and residuals are of this size:

    a comparison with zero is one with zero, not with something small.
    """
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n))
    up = np.arange(n) % 2 == 0
    box = (np.where(up, 0.0, -bound * unit), np.where(up, bound * unit, 0.0))
    return problem(A @ A.T / n, unit * rng.normal(size=n), *box, diag=np.full(n, 0.05), equality=equality)


ENDS = Limits(1e-9, 10_000, 10_000, INF)


def without_trace(progress):
    progress.ints[steps.NEXT_CHECK] = 10_000
    return progress._replace(trace=np.empty((0, len(steps.TRACE_COLUMNS))))
