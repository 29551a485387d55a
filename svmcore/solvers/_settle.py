"""The end of a crossover: the optimum of a linear machine over its free variables, while all others stay where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, qr

from svmcore._types import DualQP, FloatArray

_DEPENDENT = 1e-11  # a row whose pivot is below this share of the largest one depends on the others
# A singular value below one of these shares of the largest one counts as zero. The first share is for the system where all
# variables have a diagonal, the second for the system over a basis of the rows.
_NULL_DIAGONAL = 1e-15
_NULL = 1e-13
LONG = 1e9  # so many operations lie between two looks at the clock


class Settled(NamedTuple):
    """Values of the free variables, the bias, and which of them are still inside their boxes."""

    beta: FloatArray
    bias: float
    inside: NDArray[np.bool_]


def _step(
    qp: DualQP, Z: FloatArray, beta: FloatArray, w: FloatArray, excess: float, poll: Callable[[], bool]
) -> tuple[FloatArray, float]:
    """The change of the variables that makes their residuals equal. Returns also their common value, which is the bias."""
    d = Z.shape[1]
    ones = np.ones((len(beta), int(qp.equality)))
    surplus = -np.full(int(qp.equality), excess)
    v = qp.c - Z @ w - qp.diag * beta
    if qp.diag.all():
        scaled = Z / qp.diag[:, None]
        normal = np.eye(d)
        rows = max(1, int(LONG / d**2))
        for first in range(0, len(beta), rows):
            normal += Z[first : first + rows].T @ scaled[first : first + rows]
            if poll():
                return np.zeros(len(beta)), 0.0
        right = np.column_stack([v, ones])
        fitted, failed = lapack.dposv(normal, scaled.T @ right)[1:]
        if failed:
            fitted = np.linalg.lstsq(normal, scaled.T @ right, rcond=_NULL_DIAGONAL)[0]
        x = right / qp.diag[:, None] - scaled @ fitted
        if not qp.equality:
            return x[:, 0], 0.0
        bias = (x[:, 0].sum() - surplus[0]) / x[:, 1].sum()
        return x[:, 0] - bias * x[:, 1], float(bias)
    # The step lies in the span of [Z, 1]. In an orthonormal basis of it, duplicate and dependent rows do no harm.
    basis: FloatArray = np.eye(len(beta))
    if len(beta) > d + 1:
        q, r, _ = qr(np.hstack([Z, ones]), mode="economic", pivoting=True)
        size = np.abs(np.diag(r))
        basis = np.asarray(q[:, : int(np.count_nonzero(size > _DEPENDENT * size[0]))], dtype=np.float64)
    reduced = basis.T @ Z
    f, e = basis.shape[1], ones.shape[1]
    system = np.zeros((f + e, f + e))
    system[:f, :f] = reduced @ reduced.T + (basis.T * qp.diag) @ basis
    system[:f, f:] = basis.T @ ones
    system[f:, :f] = system[:f, f:].T
    right = np.concatenate([basis.T @ v, surplus])
    solution = np.linalg.lstsq(system, right, rcond=_NULL)[0]
    return basis @ solution[:f], float(solution[f]) if e else 0.0


def settle(
    qp: DualQP, Z: FloatArray, beta: FloatArray, rest: FloatArray, surplus: float, poll: Callable[[], bool]
) -> Settled:
    """Solve for the variables with rows Z. Those that would leave their boxes are put onto their bounds and dropped.

    `rest` is Z' beta over all other variables, and `surplus` is the sum of their beta.
    """
    beta, inside, bias = beta.copy(), np.ones(len(beta), bool), 0.0
    while inside.any() and not poll():
        w = rest + Z.T @ beta
        if not np.isfinite(w).all():
            break
        free = np.flatnonzero(inside)
        part = qp.part(free)
        step, bias = _step(part, Z[free], beta[free], w, surplus + float(beta.sum()), poll)
        target = beta[free] + step
        outside = (target < part.lower) | (target > part.upper)
        if not outside.any():
            beta[free] = target
            break
        bound = np.where(step > 0, part.upper, part.lower)
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(outside, (bound - beta[free]) / step, np.inf)
        first = int(np.argmin(reach))
        moved = beta[free] + max(0.0, float(reach[first])) * step
        moved[first] = bound[first]
        beta[free] = np.clip(moved, part.lower, part.upper)
        inside[free[first]] = False
    return Settled(beta, bias, inside)
