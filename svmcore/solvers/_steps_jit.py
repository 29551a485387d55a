"""Steps of the solvers of the literature on the sign-free dual: coordinates, pairs, and gradient projection.

All of them keep the residual ``v = c - (K + D) beta`` of every variable and read kernel rows from `Rows`, in variable
order. A slice runs until it needs Python: a row is missing, the tolerance is met, a check is due, a budget of work is
spent, or the trace is full.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._jit import jit
from svmcore._types import FloatArray, IntArray

# why a slice ended
AT_TOLERANCE, CHECK_DUE, TRACE_FULL, NEED_ROW, STUCK, NO_BOUND, AT_MAX_ITER, SWEEP_DONE = range(8)

# ints of the progress record
ITERATION, NEXT_CHECK, TRACED, ROW, POSITION, CHANGED, EVALS, FACES, ADDS, DROPS, RESTART, IDLE, SWEEPS = range(13)
# floats of the progress record
VIOLATION, OBJECTIVE, WORK, PAPER, BIAS = range(5)

TRACE_COLUMNS = ("objective", "violation", "n_kernel_evals", "i", "j", "step")
_FLAT = 1e-14  # curvature below this share of its terms counts as zero


class Duals(NamedTuple):
    """The variables. `free_bound` variables have an infinite side and no diagonal: nothing closes their box."""

    n: int
    equality: bool
    beta: FloatArray
    v: FloatArray
    c: FloatArray
    lower: FloatArray
    upper: FloatArray
    diag: FloatArray
    curvature: FloatArray  # K_tt + diag_t
    point: IntArray


class Rows(NamedTuple):
    """Kernel rows in variable order: `slot[point]` or -1; `used[slot]` is the iteration that last needed it."""

    values: FloatArray
    slot: IntArray
    used: IntArray


class Progress(NamedTuple):
    """Counters and measures that outlive a slice."""

    ints: IntArray
    floats: FloatArray
    trace: FloatArray


class Limits(NamedTuple):
    """When to stop and when to return."""

    tol: float
    max_iter: int
    check_every: int
    work: float


@jit(inline=True)
def find_row(duals, rows, progress, t):
    """The slot of variable t's kernel row, or -1 with a note of the point whose row is missing. In place: progress."""
    key = duals.point[t]
    slot = rows.slot[key]
    if slot < 0:
        progress.ints[ROW] = key
    else:
        rows.used[slot] = progress.ints[ITERATION]
    return slot


@jit(inline=True)
def due(progress, limits):
    """The reason to return before another step, or -1. In place: progress."""
    ints = progress.ints
    if ints[ITERATION] >= limits.max_iter:
        return AT_MAX_ITER
    if ints[ITERATION] >= ints[NEXT_CHECK] or progress.floats[WORK] > limits.work:
        ints[NEXT_CHECK] = ints[ITERATION] + limits.check_every
        progress.floats[WORK] = 0.0
        return CHECK_DUE
    if progress.trace.shape[0] > 0 and ints[TRACED] >= progress.trace.shape[0]:
        return TRACE_FULL
    return -1


@jit(inline=True)
def count_step(progress, gain, i, j, step):
    """One more iteration that lowered the objective by `gain`. In place: progress."""
    ints, floats = progress.ints, progress.floats
    floats[OBJECTIVE] -= gain
    ints[ITERATION] += 1
    if progress.trace.shape[0] > 0:
        record = progress.trace[ints[TRACED]]
        record[0], record[1], record[2] = floats[OBJECTIVE], floats[VIOLATION], ints[EVALS]
        record[3], record[4], record[5] = i, j, step
        ints[TRACED] += 1


@jit(inline=True)
def _land(duals, t, step, room, size):
    """beta_t += step, exactly onto the bound when size reaches the room. In place: beta."""
    if size >= room * (1.0 - 4.0e-16):
        duals.beta[t] = duals.upper[t] if step > 0 else duals.lower[t]
    else:
        duals.beta[t] += step


@jit(inline=True)
def _room(duals, t, step):
    """How far variable t can move in the direction of step."""
    return duals.upper[t] - duals.beta[t] if step > 0 else duals.beta[t] - duals.lower[t]


@jit
def extremes(duals):
    """(i, j): the variable of largest residual that can grow, of smallest that can shrink; -1 where there is none."""
    i = -1
    j = -1
    top = -np.inf
    bottom = np.inf
    for t in range(duals.n):
        value = duals.v[t]
        if value > top and duals.beta[t] < duals.upper[t]:
            top = value
            i = t
        if value < bottom and duals.beta[t] > duals.lower[t]:
            bottom = value
            j = t
    return i, j


@jit
def violation(duals):
    """The KKT violation of the current point."""
    i, j = extremes(duals)
    top = duals.v[i] if i >= 0 else -np.inf
    bottom = duals.v[j] if j >= 0 else np.inf
    if duals.equality:
        return max(top - bottom, 0.0)
    return max(top, -bottom, 0.0)


@jit(inline=True)
def _pull(duals, t):
    """Without an equality row: the residual where variable t can follow it, else 0."""
    value = duals.v[t]
    if value > 0.0:
        return value if duals.beta[t] < duals.upper[t] else 0.0
    return value if duals.beta[t] > duals.lower[t] else 0.0


@jit
def coordinate(duals, rows, progress, t, omega):
    """beta_t += omega v_t / (K_tt + diag_t), clipped to its box. Returns -1, or why not. In place: beta, v, progress."""
    pull = _pull(duals, t)
    if pull == 0.0:
        return -1
    slot = find_row(duals, rows, progress, t)
    if slot < 0:
        return NEED_ROW
    curvature = duals.curvature[t]
    if curvature > 1e-200:
        step = omega * pull / curvature
    else:
        step = np.inf if pull > 0 else -np.inf
    room = _room(duals, t, step)
    size = min(abs(step), room)
    if np.isinf(size):
        return NO_BOUND
    before = duals.beta[t]
    step = size if step > 0 else -size
    _land(duals, t, step, room, size)
    if duals.beta[t] == before:
        return -1
    row = rows.values[slot]
    v = duals.v
    for k in range(duals.n):
        v[k] -= step * row[k]
    v[t] -= duals.diag[t] * step
    progress.floats[WORK] += 2.0 * duals.n
    progress.ints[CHANGED] += 1
    count_step(progress, step * pull - 0.5 * curvature * step * step, t, -1, step)
    return -1


@jit
def sweep_slice(duals, rows, order, progress, omega, greedy, limits):
    """Coordinate steps over the rows of `order`, a sweep each (greedy: as many steps, each on the largest pull).

    Measures after every sweep, and returns early after one that changed nothing. In place: all but the problem.
    """
    ints = progress.ints
    length = order.shape[1]
    while ints[POSITION] < order.size:
        reason = due(progress, limits)
        if reason >= 0:
            return reason
        t = order[ints[POSITION] // length, ints[POSITION] % length]
        if greedy:
            worst = 0.0
            for k in range(duals.n):
                pull = abs(_pull(duals, k))
                if pull > worst:
                    worst = pull
                    t = k
            progress.floats[WORK] += 2.0 * duals.n
            progress.floats[VIOLATION] = worst
            if worst <= limits.tol:
                return AT_TOLERANCE
        reason = coordinate(duals, rows, progress, t, omega)
        if reason >= 0:
            return reason
        progress.floats[WORK] += 4.0
        ints[POSITION] += 1
        if ints[POSITION] % length == 0:
            ints[SWEEPS] += 1
            progress.floats[WORK] += 2.0 * duals.n
            progress.floats[VIOLATION] = violation(duals)
            if progress.floats[VIOLATION] <= limits.tol:
                return AT_TOLERANCE
            if ints[CHANGED] == 0:
                return SWEEP_DONE
            if ints[POSITION] < order.size:
                ints[CHANGED] = 0
    return SWEEP_DONE


@jit
def pair_step(duals, rows, progress, i, j):
    """Minimise over beta_i + s, beta_j - s (j < 0: over beta_i alone). Returns -1, or why not."""
    slot_i = find_row(duals, rows, progress, i)
    if slot_i < 0:
        return NEED_ROW
    slot_j = slot_i
    row_i = rows.values[slot_i]
    slope = duals.v[i]
    scale = duals.curvature[i]
    curvature = scale
    pull = duals.c[i]
    if j >= 0:
        slot_j = find_row(duals, rows, progress, j)
        if slot_j < 0:
            return NEED_ROW
        slope -= duals.v[j]
        scale += duals.curvature[j]
        curvature = scale - 2.0 * row_i[j]
        pull -= duals.c[j]
    sign = 1.0 if slope > 0 else -1.0
    step = slope / max(curvature, max(1e-12 * scale, 1e-200))
    if curvature < -1e-9 * abs(scale) or (curvature <= 1e-15 * abs(scale) and sign * pull > 0.0):
        step = sign * np.inf
    room_i = _room(duals, i, step)
    room_j = _room(duals, j, -step) if j >= 0 else np.inf
    size = min(abs(step), room_i, room_j)
    if np.isinf(size):
        return NO_BOUND
    step = sign * size
    before = duals.beta[i]
    _land(duals, i, step, room_i, size)
    if j >= 0:
        _land(duals, j, -step, room_j, size)
    if size == 0.0 or duals.beta[i] == before:
        return STUCK
    v = duals.v
    v[i] -= duals.diag[i] * step
    if j >= 0:
        v[j] += duals.diag[j] * step
        row_j = rows.values[slot_j]
        for k in range(duals.n):
            v[k] -= step * (row_i[k] - row_j[k])
    else:
        for k in range(duals.n):
            v[k] -= step * row_i[k]
    count_step(progress, step * slope - 0.5 * curvature * step * step, i, j, step)
    return -1


@jit
def partner(duals, row_i, i):
    """The j that shrinks while i grows with the largest gain (v_i - v_j)^2 / curvature of the pair, or -1."""
    best = -1.0
    chosen = -1
    v_i, q_i = duals.v[i], duals.curvature[i]
    for t in range(duals.n):
        if duals.beta[t] > duals.lower[t] and duals.v[t] < v_i:
            difference = v_i - duals.v[t]
            curvature = q_i + duals.curvature[t] - 2.0 * row_i[t]
            score = difference * difference / max(curvature, 1e-12 * (q_i + duals.curvature[t]))
            if score > best:
                best = score
                chosen = t
    return chosen


@jit
def pair_slice(duals, rows, progress, limits, second):
    """Pair steps: the maximal violating pair, or the partner of largest gain. In place: all but the problem."""
    while True:
        reason = due(progress, limits)
        if reason >= 0:
            return reason
        i, j = extremes(duals)
        top = duals.v[i] if i >= 0 else -np.inf
        bottom = duals.v[j] if j >= 0 else np.inf
        progress.floats[WORK] += 8.0 * duals.n
        if duals.equality:
            progress.floats[VIOLATION] = max(top - bottom, 0.0)
        else:
            progress.floats[VIOLATION] = max(top, -bottom, 0.0)
        if progress.floats[VIOLATION] <= limits.tol:
            return AT_TOLERANCE
        if not duals.equality:
            i = i if top >= -bottom else j
            j = -1
        elif second:
            slot = find_row(duals, rows, progress, i)
            if slot < 0:
                return NEED_ROW
            j = partner(duals, rows.values[slot], i)
        reason = pair_step(duals, rows, progress, i, j)
        if reason >= 0:
            return reason


class Face(NamedTuple):
    """Scratch of gradient projection: the free variables J and their direction."""

    J: IntArray
    sizes: IntArray  # (|J|, forced entrants: they are in J although they sit at a bound)
    d: FloatArray  # by position in J
    r: FloatArray  # projected residual, by position in J
    z: FloatArray  # (K + D) d, all variables


@jit
def _collect(duals, face):
    """J := the free variables. Returns the mean residual over J (0 without an equality row). In place: face."""
    m = 0
    total = 0.0
    for t in range(duals.n):
        if duals.lower[t] < duals.beta[t] < duals.upper[t]:
            face.J[m] = t
            total += duals.v[t]
            m += 1
    face.sizes[0] = m
    if m == 0 or not duals.equality:
        return 0.0
    return total / m


@jit
def _entrant(duals, b):
    """(p, -u_p): the bound variable with the most negative multiplier (4), or (-1, 0)."""
    worst = 0.0
    p = -1
    for t in range(duals.n):
        if duals.beta[t] <= duals.lower[t]:
            u = duals.v[t] - b
            if duals.beta[t] >= duals.upper[t]:
                u = 0.0
        elif duals.beta[t] >= duals.upper[t]:
            u = b - duals.v[t]
        else:
            continue
        if u > worst:
            worst = u
            p = t
    return p, worst


@jit
def _set_residual(duals, face):
    """r := the projection of the residual on J, formula d_i of the paper; returns max |r|. In place: face."""
    m = face.sizes[0]
    mean = 0.0
    if duals.equality:
        for a in range(m):
            mean += duals.v[face.J[a]]
        mean /= m
    largest = 0.0
    for a in range(m):
        face.r[a] = duals.v[face.J[a]] - mean
        largest = max(largest, abs(face.r[a]))
    return largest


@jit(sums=True)
def _add_row(z, row, weight, n):
    """z += weight row. In place: z."""
    for k in range(n):
        z[k] += weight * row[k]


@jit
def _choose_face(duals, face, progress, limits, factor, d_tol):
    """The face to step on: (reason or -1, face changed). A factor of 0 is the literal rule: p enters once d = 0."""
    i, j = extremes(duals)
    top = duals.v[i] if i >= 0 else -np.inf
    bottom = duals.v[j] if j >= 0 else np.inf
    progress.floats[VIOLATION] = max(top - bottom, 0.0) if duals.equality else max(top, -bottom, 0.0)
    if progress.floats[VIOLATION] <= limits.tol:
        return AT_TOLERANCE, False
    b = _collect(duals, face)
    if face.sizes[0] == 0:
        if duals.equality:
            face.J[0] = i
            face.J[1] = j
            face.sizes[0] = 2
        else:
            face.J[0] = i if top >= -bottom else j
            face.sizes[0] = 1
        progress.ints[FACES] += 1
        return -1, True
    largest = 0.0
    for a in range(face.sizes[0]):
        largest = max(largest, abs(duals.v[face.J[a]] - b))
    p, worst = _entrant(duals, b)
    if p >= 0 and (worst > factor * largest if factor > 0.0 else largest <= d_tol):
        face.J[face.sizes[0]] = p
        face.sizes[0] += 1
        progress.ints[FACES] += 1
        return -1, True
    return -1, False


@jit
def _direction(face, previous, conjugate):
    """d from r: steepest, or Polak-Ribiere+ with the former residual. In place: face.d. Returns the slope r'd."""
    m = face.sizes[0]
    share = 0.0
    if conjugate:
        new = 0.0
        old = 0.0
        for a in range(m):
            new += face.r[a] * (face.r[a] - previous[a])
            old += previous[a] * previous[a]
        if old > 0.0:
            share = max(new / old, 0.0)
    slope = 0.0
    for a in range(m):
        face.d[a] = face.r[a] + share * face.d[a]
        slope += face.r[a] * face.d[a]
    if slope <= 0.0:
        slope = 0.0
        for a in range(m):
            face.d[a] = face.r[a]
            slope += face.r[a] * face.r[a]
    for a in range(m):
        previous[a] = face.r[a]
    return slope


@jit
def _balance(duals, face):
    """What rounding has left of sum(beta) goes to the variable of J that has most room. In place: beta."""
    excess = 0.0
    for t in range(duals.n):
        excess += duals.beta[t]
    widest = -1
    most = abs(excess)
    for a in range(face.sizes[0]):
        t = face.J[a]
        room = min(duals.upper[t] - duals.beta[t], duals.beta[t] - duals.lower[t])
        if room > most:
            most = room
            widest = t
    if widest >= 0:
        duals.beta[widest] -= excess


@jit
def _face_move(duals, face, progress, slope):
    """The exact dilation along d, clipped by the first bound: -1 (moved), STUCK, or NO_BOUND."""
    m = face.sizes[0]
    curvature = 0.0
    scale = 0.0
    for a in range(m):
        curvature += face.d[a] * face.z[face.J[a]]
        scale += face.d[a] * face.d[a] * duals.curvature[face.J[a]]
    step = slope / curvature if curvature > _FLAT * scale else np.inf
    blocker = -1
    for a in range(m):
        t = face.J[a]
        if face.d[a] != 0.0:
            room = _room(duals, t, face.d[a]) / abs(face.d[a])
            if room <= step:
                step = room
                blocker = a
    if np.isinf(step):
        return NO_BOUND
    moved = False
    for a in range(m):
        t = face.J[a]
        before = duals.beta[t]
        room = _room(duals, t, face.d[a])
        if a == blocker or room <= step * abs(face.d[a]) * (1.0 + 4.0e-16):
            if face.d[a] != 0.0:
                duals.beta[t] = duals.upper[t] if face.d[a] > 0 else duals.lower[t]
        else:
            duals.beta[t] += step * face.d[a]
        moved = moved or duals.beta[t] != before
    if duals.equality:
        _balance(duals, face)
    for k in range(duals.n):
        duals.v[k] -= step * face.z[k]
    if blocker >= 0:
        progress.ints[RESTART] = 1
        progress.ints[FACES] += 1
    count_step(progress, step * slope - 0.5 * curvature * step * step, m, blocker, step)
    return -1 if moved else STUCK


@jit
def rosen_slice(duals, rows, face, previous, progress, limits, factor, d_tol):
    """Gradient projection. factor = 0: literal steepest descent; else conjugate directions. In place: the state."""
    ints = progress.ints
    while True:
        reason = due(progress, limits)
        if reason >= 0:
            return reason
        reason, changed = _choose_face(duals, face, progress, limits, factor, d_tol)
        if reason >= 0:
            return reason
        m = face.sizes[0]
        missing = False
        for a in range(m):
            if find_row(duals, rows, progress, face.J[a]) < 0:
                missing = True
        if missing:
            if changed:
                ints[FACES] -= 1
            for a in range(m):
                find_row(duals, rows, progress, face.J[a])
            return NEED_ROW
        _set_residual(duals, face)
        conjugate = factor > 0.0 and not changed and ints[RESTART] == 0
        if not conjugate:
            for a in range(m):
                face.d[a] = 0.0
        ints[RESTART] = 1 if changed else 0
        slope = _direction(face, previous, conjugate)
        for k in range(duals.n):
            face.z[k] = 0.0
        for a in range(m):
            t = face.J[a]
            _add_row(face.z, rows.values[rows.slot[duals.point[t]]], face.d[a], duals.n)
        for a in range(m):
            face.z[face.J[a]] += duals.diag[face.J[a]] * face.d[a]
        progress.floats[WORK] += 2.0 * duals.n * (m + 4.0)
        progress.floats[PAPER] += float(m) * duals.n
        reason = _face_move(duals, face, progress, slope)
        if reason >= 0:
            return reason
