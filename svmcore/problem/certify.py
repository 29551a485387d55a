"""Certificates: how good a dual answer is, recomputed in float64 from the problem and the answer alone.

Nothing here trusts a solver: kernel products are formed by blocks from the data (no n x n memory), and objective,
violation and gap follow from them by the formulas of `problem/measures`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._threads import one_blas_thread
from svmcore._types import NONZERO, DualQP, FloatArray, IntArray
from svmcore.kernel.matrix import KernelMatrix, kernel_product
from svmcore.kernel.points import is_sparse
from svmcore.problem import measures

WORTH_IT = 0.7  # share of the entries from which recomputing them is no cheaper than the whole
_BRIEF = 3e6  # feature operations that are over before a second product has begun


class Certificate(NamedTuple):
    """`objective` is the dual's, minimised; `gap = primal_objective + objective`, at the given intercept.

    `kkt_violation` is LIBSVM's: the largest ``-y G`` among variables that can grow minus the smallest among those that can
    shrink (without an intercept: the largest distance of either from zero). `infeasibility` is the largest amount by
    which a bound or the equality row is missed: the gap is a bound only when it is (near) zero.
    """

    objective: float
    primal_objective: float
    gap: float
    relative_gap: float
    kkt_violation: float
    infeasibility: float
    intercept: float


def confirm(
    qp: DualQP,
    K: KernelMatrix,
    beta: FloatArray,
    residual: FloatArray,
    error: float | FloatArray,
    most: float = WORTH_IT,
) -> tuple[float, float] | None:
    """The exact (KKT violation, intercept) of a point whose residual is known to within `error`, one for all or one each.

    Only the entries that can decide are recomputed, in float64 from the data: those of free variables, and those that may be
    an extreme for all that is known. Where these take long, free variables come first: they narrow what others can decide.
    None where these are more than the share `most` of all.
    """
    up, down = beta < qp.upper, beta > qp.lower
    free = up & down
    low, high = residual - error, residual + error
    top, bottom = low[up].max(initial=-np.inf), high[down].min(initial=np.inf)
    if not (np.isfinite(error).all() and np.isfinite(top) and np.isfinite(bottom)):
        return None

    def extreme() -> NDArray[np.bool_]:
        either: NDArray[np.bool_] = (up & (high >= top)) | (down & (low <= bottom))
        return either

    if np.count_nonzero(free | extreme()) > most * len(beta):
        return None
    coef: FloatArray = np.bincount(qp.point, weights=beta, minlength=K.n).astype(np.float64)
    support = np.flatnonzero(coef)
    exact = np.zeros(len(beta))

    def recompute(chosen: IntArray) -> None:
        values = K.product_at(qp.point[chosen], support, coef[support])
        part = qp.part(chosen)._replace(point=np.arange(len(chosen)))
        exact[chosen] = measures.residual(part, beta[chosen], values)

    rest = extreme() & ~free
    width = K.X.nnz / K.n if is_sparse(K.X) else K.n_features
    brief = K.function is None and np.count_nonzero(rest) * len(support) * width <= _BRIEF
    if free.any() and not brief:
        recompute(np.flatnonzero(free))
        top, bottom = max(top, exact[free].max()), min(bottom, exact[free].min())
        rest &= extreme()
        recompute(np.flatnonzero(rest))
        chosen = np.flatnonzero(free | rest)
    else:
        chosen = np.flatnonzero(free | rest)
        recompute(chosen)
    part, v = qp.part(chosen), exact[chosen]
    intercept = measures.bias(part, beta[chosen], v) if qp.equality else K.kernel.offset * float(beta.sum())
    return measures.violation(part, beta[chosen], v), intercept


@one_blas_thread
def certificate(
    qp: DualQP, K: KernelMatrix, beta: FloatArray, intercept: float | None = None, *, best: bool = False
) -> Certificate:
    """Measure a dual point. Without an `intercept`: the mean over free vectors, or the one of smallest gap (`best`).

    With no equality row the intercept is not free: it is the embedded one, offset * sum(beta), already part of K.
    """
    v = measures.residual(qp, beta, kernel_product(qp, K, beta))
    if not qp.equality:
        b, reported = 0.0, K.kernel.offset * float(beta.sum())
        if intercept is not None:
            b, reported = intercept - reported, intercept
    else:
        if intercept is None:
            intercept = (measures.best_bias if best else measures.bias)(qp, beta, v)
        b = reported = intercept
    dual = measures.objective(qp, beta, v)
    # A feasible beta has no excess. The primal of any other is that of the loss's definition, too.
    excess = qp.excess(beta) if qp.equality else float(beta.sum())
    gap = measures.gap(qp, beta, v, b) - b * excess
    primal = gap - dual
    outside = np.maximum(qp.lower - beta, beta - qp.upper)
    infeasibility = max(float(outside.max(initial=0.0)), abs(qp.excess(beta)))
    return Certificate(
        objective=dual,
        primal_objective=primal,
        gap=gap,
        relative_gap=gap / max(abs(primal), NONZERO),
        kkt_violation=measures.violation(qp, beta, v),
        infeasibility=infeasibility,
        intercept=reported,
    )
