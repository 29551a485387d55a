"""Working sets: their choice, and the small dense problem on them, solved by pair steps.

`local_pairs` minimises over a few variables with their matrix given; `decompose_slice` is decomposition with working sets of
fixed size q on top of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._jit import jit
from svmcore._types import FloatArray, IntArray
from svmcore.solvers._steps_jit import (
    AT_TOLERANCE,
    NEED_ROW,
    NO_BOUND,
    STUCK,
    VIOLATION,
    WORK,
    count_step,
    due,
    extremes,
    find_row,
    pair_step,
)

SOLVED, LIMITED = -1, -2


class Local(NamedTuple):
    """The problem of a working set: its variables, matrix, point, residual, and boxes."""

    chosen: IntArray
    H: FloatArray
    x: FloatArray
    g: FloatArray
    c: FloatArray
    lower: FloatArray
    upper: FloatArray
    key: FloatArray  # scratch of the choice


@jit
def _local_step(local, i, j):
    """The step over x_i + s, x_j - s (j < 0: x_i alone). Returns SOLVED (done), STUCK or NO_BOUND. In place: x."""
    H, x = local.H, local.x
    slope, scale, pull = local.g[i], H[i, i], local.c[i]
    curvature = scale
    if j >= 0:
        slope -= local.g[j]
        scale += H[j, j]
        curvature = scale - 2.0 * H[i, j]
        pull -= local.c[j]
    sign = 1.0 if slope > 0 else -1.0
    size = abs(slope) / max(curvature, max(1e-12 * scale, 1e-200))
    if curvature < -1e-9 * abs(scale) or (curvature <= 1e-15 * abs(scale) and sign * pull > 0.0):
        size = np.inf
    room_i = local.upper[i] - x[i] if sign > 0 else x[i] - local.lower[i]
    room_j = np.inf
    if j >= 0:
        room_j = x[j] - local.lower[j] if sign > 0 else local.upper[j] - x[j]
    size = min(size, room_i, room_j)
    if np.isinf(size):
        return NO_BOUND, 0.0
    before = x[i]
    rounded = size * (1.0 + 4.0e-16)
    x[i] = (local.upper[i] if sign > 0 else local.lower[i]) if rounded >= room_i else x[i] + sign * size
    if j >= 0:
        x[j] = (local.lower[j] if sign > 0 else local.upper[j]) if rounded >= room_j else x[j] - sign * size
    if x[i] == before or size == 0.0:
        return STUCK, 0.0
    return SOLVED, sign * size


@jit
def local_pairs(local, m, equality, tol, max_steps):
    """Second-order pair steps on m variables: SOLVED, LIMITED, STUCK or NO_BOUND. In place: x, g."""
    H, x, g = local.H, local.x, local.g
    for _ in range(max_steps):
        i = -1
        low = -1
        top = -np.inf
        bottom = np.inf
        for t in range(m):
            if g[t] > top and x[t] < local.upper[t]:
                top = g[t]
                i = t
            if g[t] < bottom and x[t] > local.lower[t]:
                bottom = g[t]
                low = t
        violation = top - bottom if equality else max(top, -bottom)
        if violation <= tol:
            return SOLVED
        j = -1
        if equality:
            best = -1.0
            for t in range(m):
                if x[t] > local.lower[t] and g[t] < top:
                    terms = H[i, i] + H[t, t]
                    score = (top - g[t]) ** 2 / max(terms - 2.0 * H[i, t], max(1e-12 * terms, 1e-200))
                    if score > best:
                        best = score
                        j = t
        elif -bottom > top:
            i = low
        reason, step = _local_step(local, i, j)
        if reason != SOLVED:
            return reason
        for t in range(m):
            g[t] -= step * H[i, t]
        if j >= 0:
            for t in range(m):
                g[t] += step * H[j, t]
    return LIMITED


@jit
def _insert(index, key, first, count, room, t, value):
    """Keep the `room` smallest keys of a sorted stretch, earlier ones first. Returns the new count. In place: index, key."""
    if count == room and value >= key[first + count - 1]:
        return count
    k = count if count < room else count - 1
    while k > 0 and key[first + k - 1] > value:
        key[first + k] = key[first + k - 1]
        index[first + k] = index[first + k - 1]
        k -= 1
    key[first + k] = value
    index[first + k] = t
    return count + 1 if count < room else count


@jit
def _working_set(duals, local, q):
    """SVM-light's steepest feasible direction: the q / 2 variables that want most to grow, and to shrink; their number."""
    half = q // 2 if duals.equality else q
    tops = 0
    bottoms = 0
    for t in range(duals.n):
        value = duals.v[t]
        if not duals.equality:
            pull = value if value > 0 else -value
            open_ = duals.beta[t] < duals.upper[t] if value > 0 else duals.beta[t] > duals.lower[t]
            if open_ and pull > 0.0:
                tops = _insert(local.chosen, local.key, 0, tops, half, t, -pull)
            continue
        if duals.beta[t] < duals.upper[t]:
            tops = _insert(local.chosen, local.key, 0, tops, half, t, -value)
        if duals.beta[t] > duals.lower[t]:
            bottoms = _insert(local.chosen, local.key, half, bottoms, half, t, value)
    m = tops
    for k in range(bottoms):
        t = local.chosen[half + k]
        known = False
        for a in range(tops):
            known = known or local.chosen[a] == t
        if not known:
            local.chosen[m] = t
            m += 1
    return m


@jit
def load_local(duals, rows, local, m):
    """Copy the problem of the working set out of the whole one. In place: local."""
    for a in range(m):
        t = local.chosen[a]
        row = rows.values[rows.slot[duals.point[t]]]
        for b in range(m):
            local.H[a, b] = row[local.chosen[b]]
        local.H[a, a] += duals.diag[t]
        local.x[a], local.g[a], local.c[a] = duals.beta[t], duals.v[t], duals.c[t]
        local.lower[a], local.upper[a] = duals.lower[t], duals.upper[t]


@jit
def store_local(duals, rows, local, m):
    """Take the answer over and bring the residual up to date; returns the largest change. In place: duals."""
    largest = 0.0
    for a in range(m):
        t = local.chosen[a]
        change = local.x[a] - duals.beta[t]
        if change != 0.0:
            row = rows.values[rows.slot[duals.point[t]]]
            for k in range(duals.n):
                duals.v[k] -= change * row[k]
            duals.v[t] -= duals.diag[t] * change
            duals.beta[t] = local.x[a]
            largest = max(largest, abs(change))
    return largest


@jit
def _gain(duals, local, m):
    """By how much the objective falls from the stored point to local.x."""
    total = 0.0
    for a in range(m):
        change = local.x[a] - duals.beta[local.chosen[a]]
        total += 0.5 * change * (duals.v[local.chosen[a]] + local.g[a])
    return total


@jit
def decompose_slice(duals, rows, local, progress, limits, q):
    """Decomposition with working sets of size q; q = 2 is the closed step on the maximal violating pair."""
    while True:
        reason = due(progress, limits)
        if reason >= 0:
            return reason
        i, j = extremes(duals)
        top = duals.v[i] if i >= 0 else -np.inf
        bottom = duals.v[j] if j >= 0 else np.inf
        worst = max(top - bottom, 0.0) if duals.equality else max(top, -bottom, 0.0)
        progress.floats[VIOLATION] = worst
        progress.floats[WORK] += 8.0 * duals.n
        if worst <= limits.tol:
            return AT_TOLERANCE
        if q == 2 and duals.equality:
            reason = pair_step(duals, rows, progress, i, j)
            if reason >= 0:
                return reason
            continue
        m = _working_set(duals, local, q)
        missing = False
        for a in range(m):
            if find_row(duals, rows, progress, local.chosen[a]) < 0:
                missing = True
        if missing:
            for a in range(m):
                if rows.slot[duals.point[local.chosen[a]]] < 0:
                    find_row(duals, rows, progress, local.chosen[a])
            return NEED_ROW
        load_local(duals, rows, local, m)
        reason = local_pairs(local, m, duals.equality, max(1e-3 * worst, 0.1 * limits.tol), 100 * m + 1000)
        if reason == NO_BOUND:
            return NO_BOUND
        gain = _gain(duals, local, m)
        if store_local(duals, rows, local, m) == 0.0:
            return STUCK
        progress.floats[WORK] += 2.0 * duals.n * m + 10.0 * m * m
        count_step(progress, gain, m, -1, gain)
