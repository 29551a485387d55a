"""What can be said of a dual point: objective, residual, KKT violation, bias, duality gap. Plain numpy, one place.

`beta` is a point of a `DualQP` and ``residual = c - K beta - diag * beta`` the negative gradient (LIBSVM's ``-y G``). With
the multiplier `b` of the equality row (the bias), optimality says ``residual <= b`` where beta can still grow and
``residual >= b`` where it can still shrink. Nothing here but `best_bias` depends on the total of the equality row.

The primal loss of variable t is the conjugate of its box and diagonal, ``loss_t(u) = max over z in its box of
u z - diag z^2 / 2`` at ``u = residual + diag * beta - b`` (a classifier's margin shortfall, signed). So primal minus dual is
a sum of Fenchel-Young gaps ``(z - beta) (u - diag (z + beta) / 2)``, each non-negative and free of cancellation.
An infinite box without diagonal (hard margin) is closed at ``max |beta| + 1``, the running bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore._types import DualQP, FloatArray


def residual(qp: DualQP, beta: FloatArray, product: FloatArray) -> FloatArray:
    """c - K beta - diag * beta, given K beta over the points."""
    return np.asarray(qp.c - product[qp.point] - qp.diag * beta)


def objective(qp: DualQP, beta: FloatArray, v: FloatArray) -> float:
    """The dual objective in minimised form."""
    return float(-0.5 * np.dot(beta, qp.c + v))


def extremes(qp: DualQP, beta: FloatArray, v: FloatArray) -> tuple[float, float]:
    """The largest residual that wants to grow and the smallest that wants to shrink."""
    top = np.where(beta < qp.upper, v, -np.inf).max(initial=-np.inf)
    bottom = np.where(beta > qp.lower, v, np.inf).min(initial=np.inf)
    return float(top), float(bottom)


def violation(qp: DualQP, beta: FloatArray, v: FloatArray) -> float:
    """LIBSVM's violation: see `spread`."""
    return float(spread(*extremes(qp, beta, v), qp.equality))


def spread(top: Any, bottom: Any, equality: bool) -> Any:
    """Top minus bottom. Without an equality row the distance of both from the bias 0. Of numbers or arrays."""
    return np.maximum(top - bottom if equality else np.maximum(top, -bottom), 0.0)


def bias(qp: DualQP, beta: FloatArray, v: FloatArray) -> float:
    """The mean residual of the free variables; when none is free, the midpoint of the interval that is optimal."""
    if not qp.equality:
        return 0.0
    free = (beta > qp.lower) & (beta < qp.upper)
    count = np.count_nonzero(free)
    return middle(count, v[free].sum(), *((0.0, 0.0) if count else extremes(qp, beta, v)))


def middle(count: Any, total: Any, top: float, bottom: float) -> float:
    """A bias: the mean of so many free residuals. When there is none, the midpoint of the extremes, or the one there is."""
    if count:
        return float(total / count)
    if np.isinf(top):
        return 0.0 if np.isinf(bottom) else bottom
    return top if np.isinf(bottom) else 0.5 * (top + bottom)


def _boxes(qp: DualQP, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The boxes, closed by the running bound where they are infinite and the diagonal does not close them."""
    if not qp.infinite:
        return qp.lower, qp.upper
    running = float(np.max(np.abs(beta), initial=0.0)) + 1.0
    flat = qp.diag == 0
    lower = np.where(flat & np.isinf(qp.lower), -running, qp.lower)
    upper = np.where(flat & np.isinf(qp.upper), running, qp.upper)
    return lower, upper


def _maximiser(u: FloatArray, diag: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """z in [lower, upper] that maximises u z - diag z^2 / 2."""
    corner: FloatArray = np.where(u > 0, upper, lower)
    if not diag.any():
        return corner
    flat = diag == 0
    interior = np.divide(u, diag, out=np.zeros_like(u), where=~flat)
    return np.asarray(np.where(flat, corner, np.clip(interior, lower, upper)))


def gap_terms(qp: DualQP, beta: FloatArray, v: FloatArray, b: float) -> FloatArray:
    """What each variable adds to the duality gap at bias b. Each term is a convex function of its residual, and zero at b."""
    lower, upper = _boxes(qp, beta)
    if not qp.diag.any():
        u = v - b
        return np.asarray((np.where(u > 0, upper, lower) - beta) * u)
    u = v + qp.diag * beta - b
    z = _maximiser(u, qp.diag, lower, upper)
    return np.asarray((z - beta) * (u - 0.5 * qp.diag * (z + beta)))


def gap(qp: DualQP, beta: FloatArray, v: FloatArray, b: float) -> float:
    """Primal objective at bias b minus dual objective."""
    return float(np.sum(gap_terms(qp, beta, v, b)))


def best_bias(qp: DualQP, beta: FloatArray, v: FloatArray) -> float:
    """The bias that minimises the primal objective at this beta.

    The derivative of the primal by the bias is the total minus the sum of the maximisers z. This sum is a decreasing,
    piecewise linear function of b. Bisection over its breakpoints finds the piece that crosses the total; there the root
    is explicit.
    """
    if not qp.equality or not len(beta):
        return 0.0
    lower, upper = _boxes(qp, beta)
    u = v + qp.diag * beta
    ends = np.concatenate([u - qp.diag * lower, u - qp.diag * upper])
    breaks = np.unique(ends[np.isfinite(ends)])

    def slope(b: float) -> float:
        return float(_maximiser(u - b, qp.diag, lower, upper).sum()) - qp.total

    low, high = -1, len(breaks)  # slope >= 0 left of breaks[low], < 0 right of breaks[high]
    while high - low > 1:
        middle = (low + high) // 2
        if slope(breaks[middle]) >= 0:
            low = middle
        else:
            high = middle
    left = breaks[low] if low >= 0 else breaks[0] - 1.0
    right = breaks[high] if high < len(breaks) else breaks[-1] + 1.0
    # Inside a piece the slope is linear. At its ends it may jump, so it is sampled at two inner points.
    a, b = left + 0.25 * (right - left), left + 0.75 * (right - left)
    at_a, at_b = slope(a), slope(b)
    if at_a == at_b:
        candidates = [left, right] if at_a != 0 else [0.5 * (left + right)]
    else:
        candidates = [min(max(a + (b - a) * at_a / (at_a - at_b), left), right), left, right]
    gaps = [gap(qp, beta, v, float(candidate)) for candidate in candidates]
    return float(candidates[int(np.argmin(gaps))])
