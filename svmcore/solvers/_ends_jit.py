"""What a dual point whose residual is known is worth: its violation, its bias, its objective and its gap."""

from __future__ import annotations

import numpy as np

from svmcore.compiler.jit import jit
from svmcore.simd.vector import BIG, fmax, fmin


@jit
def ends_of(v, work, epsilon, side):
    """(largest residual of a variable that can grow, smallest of one that can shrink, sum over the free ones, their number).

    Residuals consider the kink of epsilon at zero. `side`: 0, or the sign of the variables that are looked at. The loop has
    no branch that depends on data.
    """
    high, low, total, free = -BIG, BIG, 0.0, 0
    beta, lower, upper = work.beta, work.lower, work.upper
    for t in range(beta.shape[0]):
        b, x, own = beta[t], v[t], (side == 0.0) | ((upper[t] > 0.0) == (side > 0.0))
        grows, shrinks = own & (b < upper[t]), own & (b > lower[t])
        between = grows & shrinks & ((epsilon == 0.0) | (b != 0.0))
        high = fmax(high, (x + (epsilon if b < 0.0 else -epsilon)) if grows else -BIG)
        low = fmin(low, (x + (-epsilon if b > 0.0 else epsilon)) if shrinks else BIG)
        total += (x - (epsilon if b > 0.0 else -epsilon)) if between else 0.0
        free += between
    return high, low, total, free


@jit
def middle_of(high, low, total, free):
    """The mean residual of the free variables. When none is free, it is the midpoint of the ends, or the one there is."""
    if free > 0:
        return total / free
    if high <= -BIG:
        return 0.0 if low >= BIG else low
    return high if low >= BIG else 0.5 * (high + low)


@jit
def bias_of(v, work):
    """(high, low, bias) of a problem with one sum and no kinks."""
    high, low, total, free = ends_of(v, work, 0.0, 0.0)
    return high, low, middle_of(high, low, total, free)


@jit
def worth_of(work, dual, bias):
    """(objective, gap) of a point whose residual is known. A box without an end or a diagonal has no gap to name."""
    c, diag, v = dual.c, dual.diag, dual.v
    objective, gap = 0.0, 0.0
    for t in range(v.shape[0]):
        beta, d = work.beta[t], diag[t]
        objective -= 0.5 * beta * (c[t] + v[t])
        u = v[t] + d * beta - bias
        best = work.upper[t] if u > 0.0 else work.lower[t]
        if d > 0.0:
            best = min(max(u / d, work.lower[t]), work.upper[t])
        if np.isinf(best):
            gap += BIG if u != 0.0 else 0.0
        else:
            gap += (best - beta) * (u - 0.5 * d * (best + beta))
    return objective, gap
