"""The nearest points u and v of two hulls (Keerthi et al. 2000): passes over the points, and the step on a triangle.

``theta`` holds the weights of both hulls, with signs. Those of the growing variables add up to 1, the others to -1. Inner
products are those of ``H = K + D``. ``U_t = u'x_t`` and ``V_t = v'x_t`` are kept for all variables. With z = u - v this
gives ``z'x_t = U_t - V_t``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import NONZERO, FloatArray
from svmcore.compiler.jit import jit
from svmcore.solvers._steps_jit import (
    AT_TOLERANCE,
    CHANGED,
    ITERATION,
    NEED_ROW,
    NO_BOUND,
    OWN_FLOAT,
    POSITION,
    SWEEP_DONE,
    VIOLATION,
    WORK,
    count_step,
    due,
    find_row,
    violation,
)

PAPER = OWN_FLOAT
UU, VV, UV, SUPPORT = range(4)
_REGULAR = 1e-12  # a determinant below this share of its terms is zero
_DUST = 1e-15  # a weight below this is rounding
_MEET = 1e-14  # the hulls meet where |z|^2 is below this share of |u|^2 + |v|^2


class Hulls(NamedTuple):
    """The two points. `numbers` holds u'u, v'v, u'v and the number of support vectors."""

    theta: FloatArray
    U: FloatArray
    V: FloatArray
    numbers: FloatArray


@jit
def rebuild(duals, rows, hulls):
    """Compute U, V and the numbers from theta. The rows of the support must be stored. In place: hulls."""
    n = duals.n
    theta, numbers = hulls.theta, hulls.numbers
    for t in range(n):
        hulls.U[t] = 0.0
        hulls.V[t] = 0.0
    numbers[SUPPORT] = 0.0
    for s in range(n):
        if theta[s] != 0.0:
            numbers[SUPPORT] += 1.0
            row = rows.values[rows.slot[duals.point[s]]]
            weight = abs(theta[s])
            out = hulls.U if theta[s] > 0 else hulls.V
            for t in range(n):
                out[t] += weight * row[t]
            out[s] += weight * duals.diag[s]
    numbers[UU] = numbers[VV] = numbers[UV] = 0.0
    for s in range(n):
        if theta[s] > 0.0:
            numbers[UU] += theta[s] * hulls.U[s]
            numbers[UV] += theta[s] * hulls.V[s]
        elif theta[s] < 0.0:
            numbers[VV] -= theta[s] * hulls.V[s]


@jit(inline=True)
def _square(numbers):
    """|z|^2."""
    return numbers[UU] + numbers[VV] - 2.0 * numbers[UV]


@jit(inline=True)
def _lag(duals, hulls, t):
    """How far z'x_t lags behind its hull's point: z'u - z'x_t for growing variables, z'x_t - z'v for the others."""
    zx = hulls.U[t] - hulls.V[t]
    if duals.upper[t] > 0.0:
        return hulls.numbers[UU] - hulls.numbers[UV] - zx
    return zx - (hulls.numbers[UV] - hulls.numbers[VV])


@jit
def measure(duals, hulls, progress):
    """The KKT violation of the dual point 2 theta / |z|^2. In place: progress."""
    scale = 2.0 / max(_square(hulls.numbers), NONZERO)
    top = -np.inf
    bottom = np.inf
    for t in range(duals.n):
        v = duals.c[t] - scale * (hulls.U[t] - hulls.V[t])
        grows = duals.upper[t] > 0.0 or hulls.theta[t] < 0.0
        shrinks = duals.lower[t] < 0.0 or hulls.theta[t] > 0.0
        if grows:
            top = max(top, v)
        if shrinks:
            bottom = min(bottom, v)
    progress.floats[VIOLATION] = violation(top, bottom, duals.equality)


@jit
def _edge(g, curvature):
    """The s in [0, 1] that minimises g s + curvature s^2 / 2, and the minimum itself."""
    if curvature > 0.0:
        s = min(max(-g / curvature, 0.0), 1.0)
    else:
        s = 1.0 if g < 0.0 else 0.0
    return s, s * (g + 0.5 * curvature * s)


@jit
def _triangle(g1, g2, q11, q22, q12):
    """The (p, q) >= 0 with p + q <= 1 that minimise g1 p + g2 q + (q11 p^2 + q22 q^2) / 2 + q12 p q.

    The minimum over the plane is the answer if it lies inside of the triangle. Otherwise it is the best point of three edges.
    """
    determinant = q11 * q22 - q12 * q12
    if determinant > _REGULAR * q11 * q22:
        p = (q12 * g2 - q22 * g1) / determinant
        q = (q12 * g1 - q11 * g2) / determinant
        if p >= 0.0 and q >= 0.0 and p + q <= 1.0:
            return p, q
    s, best = _edge(g1, q11)
    p, q = s, 0.0
    s, value = _edge(g2, q22)
    if value < best:
        best = value
        p, q = 0.0, s
    start = g1 + 0.5 * q11
    s, value = _edge(g2 - g1 + q12 - q11, q11 + q22 - 2.0 * q12)
    if start + value < best:
        p, q = 1.0 - s, s
    return p, q


@jit
def _worst_support(duals, hulls, grows):
    """The support vector of a hull that points farthest out of the other."""
    m = -1
    worst = -np.inf
    for t in range(duals.n):
        if hulls.theta[t] != 0.0 and (duals.upper[t] > 0.0) == grows:
            value = hulls.U[t] - hulls.V[t]
            value = value if grows else -value
            if value > worst:
                worst = value
                m = t
    return m


@jit
def _step(duals, rows, hulls, progress, k, fresh):
    """Bring k into its hull's point. Returns -1, or the reason why not.

    `fresh` says that the kernel values of k's row have just been counted.
    """
    grows = duals.upper[k] > 0.0
    m = _worst_support(duals, hulls, grows)
    slot_k = find_row(duals, rows, progress, k)
    if slot_k < 0:
        return NEED_ROW
    slot_m = find_row(duals, rows, progress, m)
    if slot_m < 0:
        return NEED_ROW
    row_k, row_m = rows.values[slot_k], rows.values[slot_m]
    numbers = hulls.numbers
    own = hulls.U if grows else hulls.V
    sign = 1.0 if grows else -1.0
    weight = abs(hulls.theta[m])
    kk, mm = duals.curvature[k], duals.curvature[m]
    km = row_k[m] if k != m else kk
    own_square = numbers[UU] if grows else numbers[VV]
    z_k, z_m = hulls.U[k] - hulls.V[k], hulls.U[m] - hulls.V[m]
    z_own = numbers[UU] - numbers[UV] if grows else numbers[UV] - numbers[VV]
    p, q = _triangle(
        sign * (z_k - z_own), sign * weight * (z_k - z_m), kk - 2.0 * own[k] + own_square,
        weight * weight * (kk + mm - 2.0 * km), weight * (kk - km - own[k] + own[m]),
    )  # fmt: skip
    if p <= 0.0 and q <= 0.0:
        return -1
    before = _square(numbers)
    _move(duals, hulls, row_k, row_m, k, m, p, q, grows)
    after = _square(numbers)
    support = numbers[SUPPORT]
    progress.floats[PAPER] += support if fresh else 2.0 * support
    progress.floats[WORK] += 6.0 * duals.n
    progress.ints[CHANGED] += 1
    if after <= _MEET * (numbers[UU] + numbers[VV]):
        return NO_BOUND
    count_step(progress, 2.0 / after - 2.0 / before, k, m, p + q)
    return -1


@jit
def _move(duals, hulls, row_k, row_m, k, m, p, q, grows):
    """The hull's point becomes (1 - p) u + p x_k + q a_m (x_k - x_m). In place: hulls."""
    theta, numbers = hulls.theta, hulls.numbers
    own = hulls.U if grows else hulls.V
    sign = 1.0 if grows else -1.0
    shift = q * abs(theta[m])
    n = duals.n
    for t in range(n):
        own[t] = (1.0 - p) * own[t] + (p + shift) * row_k[t] - shift * row_m[t]
    own[k] += (p + shift) * duals.diag[k]
    own[m] -= shift * duals.diag[m]
    left = (1.0 - p) * abs(theta[m])
    numbers[SUPPORT] = 0.0
    total = 0.0
    for t in range(n):
        if (duals.upper[t] > 0.0) == grows:
            value = (1.0 - p) * abs(theta[t])
            if t == m:
                value = left - shift if q < 1.0 or p > 0.0 else 0.0
                if value <= _DUST:
                    value = 0.0
            if t == k:
                value += p + shift
            theta[t] = sign * value
            total += value
        if theta[t] != 0.0:
            numbers[SUPPORT] += 1.0
    uu = 0.0
    uv = 0.0
    other = hulls.V if grows else hulls.U
    for t in range(n):
        if theta[t] != 0.0 and (duals.upper[t] > 0.0) == grows:
            uu += abs(theta[t]) * own[t]
            uv += abs(theta[t]) * other[t]
    numbers[UU if grows else VV] = uu / total
    numbers[UV] = uv / total


@jit
def _type_two(duals, rows, hulls, progress, limits, eps):
    """Steps on the worst support vector until none lags. Returns a reason to go back to Python, or -1."""
    while True:
        reason = due(progress, limits)
        if reason >= 0:
            return reason
        threshold = 0.5 * eps * _square(hulls.numbers)
        worst = threshold
        k = -1
        for t in range(duals.n):
            if hulls.theta[t] != 0.0:
                lag = _lag(duals, hulls, t)
                if lag > worst:
                    worst = lag
                    k = t
        progress.floats[WORK] += 4.0 * duals.n
        if k < 0:
            return -1
        before = progress.ints[ITERATION]
        reason = _step(duals, rows, hulls, progress, k, False)
        if reason >= 0:
            return reason
        if progress.ints[ITERATION] == before:
            return -1


@jit
def npa_slice(duals, rows, hulls, progress, limits, eps):
    """One pass of type I over all points, and then steps of type II over the support until none lags. In place: the state."""
    ints = progress.ints
    while ints[POSITION] < duals.n:
        reason = due(progress, limits)
        if reason >= 0:
            return reason
        k = ints[POSITION]
        outside = hulls.theta[k] == 0.0
        if _lag(duals, hulls, k) > 0.5 * eps * _square(hulls.numbers):
            support = hulls.numbers[SUPPORT]
            reason = _step(duals, rows, hulls, progress, k, outside)
            if reason >= 0:
                return reason
            if outside:
                progress.floats[PAPER] += support
        elif outside:
            progress.floats[PAPER] += hulls.numbers[SUPPORT]
        ints[POSITION] += 1
        progress.floats[WORK] += 8.0
    reason = _type_two(duals, rows, hulls, progress, limits, eps)
    if reason >= 0:
        return reason
    measure(duals, hulls, progress)
    if progress.floats[VIOLATION] <= limits.tol:
        return AT_TOLERANCE
    return SWEEP_DONE
