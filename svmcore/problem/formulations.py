"""Formulations: from labels, losses and weights to the sign-free dual, and back. Solvers and certificates know no loss.

| formulation                    | variables        | c           | box        | diag  |
|--------------------------------|------------------|-------------|------------|-------|
| SVC, hinge                     | 1 a point        | y           | [0, y C_i] | 0     |
| SVC, squared hinge             | 1 a point        | y           | [0, y inf] | 1/C_i |
| SVC, hard margin (C = inf)     | 1 a point        | y           | [0, y inf] | 0     |
| SVR, epsilon-insensitive       | 2 a point, (+, -)| y -+ epsilon| [0, +-C_i] | 0     |
| SVR, squared eps.-insensitive  | 2 a point, (+, -)| y -+ epsilon| [0, +-inf] | 1/C_i |
| quantile tau (pinball)         | 1 a point        | y           | [-(1 - tau) C_i, tau C_i] | 0 |
| one class                      | 1 a point        | 0           | [0, s_i]   | 0     |

All rows are ``sum beta = 0`` but that of one class, ``sum beta = nu sum s``. nu in place of C or epsilon changes nothing
here: it is C-SVC or epsilon-SVR at the value where the sum of alpha has the share nu of what it can have (`train/nu`).

A box [0, y C] is [0, C] for y = +1 and [-C, 0] for y = -1. A point of weight zero owns no variable: it is not there.
Without an equality row the intercept is fixed, at 0 or at any b: then c - b stands for c.
"""

from __future__ import annotations

import math

import numpy as np

from svmcore._types import DualQP, FloatArray, IntArray, every

_DRIFT = 1e-13  # share of the norm of beta by which the equality row may be missed: rounding of a long sum
_REPAIRS = 3  # what moved first may be so large that its rounding is what is missing now
_REPAIRABLE = 1e-9  # share of sum |beta| that can be put right without losing the optimum
_ROUNDING = 1e-14  # relative imbalance of a warm start that is left alone

SVC_LOSSES = ("hinge", "squared_hinge")
NEGLIGIBLE = 1e-290  # a cost whose inverse overflows is no cost

SVR_LOSSES = ("epsilon_insensitive", "squared_epsilon_insensitive", "pinball")
PINBALL = SVR_LOSSES[2]


def _dual(
    signs: FloatArray, c: FloatArray, costs: FloatArray | float, point: IntArray, squared: bool, equality: bool
) -> DualQP:
    """Boxes and diagonal from costs: a squared loss opens the box and pays on the diagonal."""
    if not squared:
        diag = np.zeros(len(signs))
    elif isinstance(costs, np.ndarray):
        diag = np.where(np.isinf(costs), 0.0, 1.0 / costs)
    else:
        diag = np.full(len(signs), 0.0 if math.isinf(costs) else 1.0 / costs)
    reach = signs * (np.inf if squared else costs)
    return DualQP(c, np.minimum(reach, 0.0), np.maximum(reach, 0.0), diag, point, equality)


def svc(y: FloatArray, costs: FloatArray | float, loss: str, equality: bool) -> DualQP:
    """Classification of labels y = +-1 with costs C_i = C * weight, one for each point or one for all."""
    signs = np.asarray(y, dtype=np.float64)
    if not isinstance(costs, np.ndarray) or (len(costs) and costs.min() > NEGLIGIBLE):
        return _dual(signs, signs, costs, every(len(signs)), loss == "squared_hinge", equality)
    point = np.flatnonzero(costs > NEGLIGIBLE)
    return _dual(signs[point], signs[point], costs[point], point, loss == "squared_hinge", equality)


def _kept(y: FloatArray, costs: FloatArray | float) -> tuple[IntArray, FloatArray, FloatArray]:
    """The points that cost something, their targets and their costs."""
    if not isinstance(costs, np.ndarray):
        return every(len(y)), y.copy(), np.full(len(y), costs)
    kept = np.flatnonzero(costs > NEGLIGIBLE)
    return kept, y[kept], costs[kept]


def svr(y: FloatArray, costs: FloatArray | float, epsilon: float, loss: str, equality: bool) -> DualQP:
    """Regression of targets y with a tube of half-width epsilon; first all growing variables, then all shrinking ones."""
    kept, y, costs = _kept(y, costs)
    target, point, costs = (np.concatenate([each, each]) for each in (y, kept, costs))
    signs = np.ones(len(point))
    signs[len(kept) :] = -1.0
    return _dual(signs, target - epsilon * signs, costs, point, loss == "squared_epsilon_insensitive", equality)


def quantile(y: FloatArray, costs: FloatArray | float, tau: float, equality: bool) -> DualQP:
    """The tau-quantile of targets y. No bound is zero here: a variable may have either sign."""
    kept, y, bound = _kept(y, costs)
    return DualQP(y, (tau - 1.0) * bound, tau * bound, np.zeros(len(kept)), kept, equality)


def one_class(weights: FloatArray | int, nu: float) -> DualQP:
    """A region that holds all but the share nu of the weight, in the scale in which scikit-learn and LIBSVM give it.

    A number of `weights` are so many that are 1.
    """
    if isinstance(weights, int):
        zero = np.zeros(weights)
        return DualQP(zero, zero, zero + 1.0, zero, every(weights), True, nu * weights)
    kept = np.flatnonzero(weights > NEGLIGIBLE)
    zero, bound = np.zeros(len(kept)), weights[kept]
    return DualQP(zero, zero, bound, zero, kept, True, nu * float(bound.sum()))


def with_intercept(qp: DualQP, b: float) -> DualQP:
    """The dual of a machine whose intercept is fixed at b: what the weights have to reach is c - b."""
    return qp._replace(c=qp.c - b) if b else qp


def to_coef(qp: DualQP, beta: FloatArray, n: int) -> FloatArray:
    """One signed coefficient per point: f(x) = sum_i coef_i k(x_i, x) + intercept."""
    return np.bincount(qp.point, weights=beta, minlength=n).astype(np.float64, copy=False)


def to_beta(qp: DualQP, coef: FloatArray) -> FloatArray:
    """The dual variables behind signed coefficients, each in the variable of its sign; out of box where the answer is."""
    beta = coef[qp.point].astype(np.float64)
    if qp.twins:
        half = len(beta) // 2
        beta[:half] = np.maximum(beta[:half], 0.0)
        beta[half:] = np.minimum(beta[half:], 0.0)
    return beta


def balanced(qp: DualQP, beta: FloatArray) -> FloatArray:
    """beta inside its boxes and, where the variables have the room, with the right sum; itself where it is so already.

    Of a regression's two variables of a point at most one is left: huge ones would hide what the sum of the coefficients
    misses. What is missing goes to the variables with most room first, so that those at a bound stay there.
    """
    clipped = np.maximum(np.minimum(beta, qp.upper), qp.lower)
    inside = netted(qp, beta if (clipped == beta).all() else clipped)
    out = inside
    for _ in range(_REPAIRS):
        missing = -qp.excess(out)
        if not qp.equality or abs(missing) <= _DRIFT * math.sqrt(np.vdot(out, out)):
            break
        out = _moved(qp, out, missing)
    return out


def _moved(qp: DualQP, beta: FloatArray, missing: float) -> FloatArray:
    """beta with `missing` added to the variables with most room."""
    room = np.minimum(beta - qp.lower, qp.upper - beta)
    out = beta.copy()
    for t in np.argsort(-room):
        if not abs(missing) > 0.0:
            break
        change = min(max(missing, qp.lower[t] - out[t]), qp.upper[t] - out[t])
        out[t] += change
        missing -= change
    return out


def netted(qp: DualQP, beta: FloatArray) -> FloatArray:
    """beta without what the two variables of a point take from each other; itself where they take nothing."""
    half = len(beta) // 2
    if not half or qp.point[0] != qp.point[half]:  # only a regression has twins, and it lists all points twice
        return beta
    common = np.minimum(beta[:half], -beta[half:])
    return beta - np.concatenate([common, -common]) if (common > 0.0).any() else beta


def nearly_balanced(qp: DualQP, beta: FloatArray) -> bool:
    """Whether beta is finite and meets the equality row but for rounding that can be put right."""
    return bool(abs(qp.excess(beta)) <= _REPAIRABLE * float(np.abs(beta).sum()))


def nearly_feasible(qp: DualQP, beta: FloatArray) -> bool:
    """Whether beta is inside its boxes and on the equality row but for such rounding."""
    outside = np.maximum(qp.lower - beta, beta - qp.upper).max(initial=0.0)
    return bool(outside <= _REPAIRABLE * float(np.abs(beta).sum())) and nearly_balanced(qp, beta)


def feasible_start(qp: DualQP, beta: FloatArray) -> FloatArray:
    """A warm start moved into the feasible set: clipped to its box, then the heavier side scaled down to the right sum.

    Where scaling alone cannot do it (a start of zeros, when the sum must not be zero), variables go to their bounds, the
    first ones first.
    """
    beta = np.clip(beta, qp.lower, qp.upper)
    if qp.equality and len(beta):
        positive, negative = beta[beta > 0].sum(), -beta[beta < 0].sum()
        if abs(positive - negative - qp.total) <= _ROUNDING * positive:
            return beta  # scaling would only move variables off their bounds
        above, below = max(negative + qp.total, 0.0), max(positive - qp.total, 0.0)  # what either side ought to weigh
        if positive > above:
            beta[beta > 0] *= above / positive
        elif negative > below:
            beta[beta < 0] *= below / negative
        inside = np.clip(beta, qp.lower, qp.upper)
        if not qp.centred or (inside != beta).any():  # zero may lie outside of a box
            beta = filled(qp, inside)
    return beta


def from_zero(qp: DualQP) -> FloatArray:
    """Zero, which every box holds; or where the sum must be another one, variables at their bounds, the first ones first."""
    beta = np.zeros(len(qp.c))
    if not qp.total > 0.0:
        return filled(qp, beta) if qp.total else beta
    ends = qp.upper.cumsum()
    k = int(ends.searchsorted(qp.total))
    beta[:k] = qp.upper[:k]
    if k < len(beta):
        beta[k] = min(qp.total - (ends[k - 1] if k else 0.0), qp.upper[k])
    return beta


def filled(qp: DualQP, beta: FloatArray) -> FloatArray:
    """beta with what its sum misses: variables go to their bounds, one after the other, until nothing is missing."""
    missing = -qp.excess(beta)
    bound = qp.upper if missing > 0.0 else qp.lower
    room = np.abs(bound - beta)
    before = np.zeros(len(room))
    np.cumsum(room[:-1], out=before[1:])
    share = np.maximum(abs(missing) - before, 0.0)
    return np.asarray(np.where(share >= room, bound, beta + share if missing > 0.0 else beta - share))
