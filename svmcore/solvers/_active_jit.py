"""An active set S with an updated Cholesky factor: variables enter and leave, single ones move exactly, scans find violators.

The members of S are free variables. Their residuals all equal the multiplier b. ``L L' = K_SS + D_SS + shift`` in the order
of `members`. `shift` is a constant. With an equality row it changes nothing on the constraint, and it makes the matrix
regular wherever the problem itself is. A variable c moves by t, and S moves by t dS:

    w = L^-1 (k_c + shift),   u = L^-1 1,   b' = (1 - u'w) / u'u,   dS = -L^-T (w + b' u),
    gamma = K_cc + D_cc + shift - w'w + b' (1 - u'w)

Then ``v_c - b`` falls by gamma t, and b grows by b' t. Without an equality row b' and shift are 0.

The elbow of a path has an updated factor, too (`path/elbow_jit`): the transposed one, also stored by rows. Here a member
that enters writes one row, and one that leaves turns each row behind it by itself. There a point that enters writes a
column, and one that leaves turns pairs of whole rows, which becomes vector code. The two share no loop.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.simd.sums import backward, dot, forward
from svmcore.solvers._steps_jit import (
    AT_TOLERANCE,
    NEED_ROOM,
    NEED_ROW,
    NO_BOUND,
    OWN_FLOAT,
    OWN_INT,
    POSITION,
    STUCK,
    VIOLATION,
    WORK,
    count_step,
    due,
    find_row,
    find_rows,
    follow_change,
    room,
    worst_pair,
)

# Places in the progress record: whole numbers, and floats.
ADDS, DROPS, IDLE = range(OWN_INT, OWN_INT + 3)
PAPER, BIAS = range(OWN_FLOAT, OWN_FLOAT + 2)
# A distance from a bound below the share _LANDED of the box is rounding. In an infinite box it is the share of the step.
_LANDED = 1e-12
_LEAST_SQUARE = 1e-30  # the square of a diagonal entry of the factor is at least this
_FLAT = 1e-12  # gamma below this share of its terms counts as zero


class Active(NamedTuple):
    """The set S and its factor. `where[t]` is the place of t in S, or -1.

    `bounded` lists the variables outside of S that are not zero.
    """

    members: IntArray
    where: IntArray
    sizes: IntArray  # (|S|, |bounded|)
    bounded: IntArray
    place: IntArray  # the place of t in `bounded`, or -1
    L: FloatArray
    u: FloatArray
    w: FloatArray
    d: FloatArray
    cos: FloatArray
    sin: FloatArray
    before: FloatArray  # beta of the variables in `touched` at the start of a move
    touched: IntArray
    shift: float


@jit
def append(active, c, corner):
    """Variable c becomes a member. `w` holds its column, and `corner` is its diagonal entry of the shifted matrix.

    In place: active.
    """
    m = active.sizes[0]
    rho = math.sqrt(max(corner - dot(active.w, active.w, m), _LEAST_SQUARE))
    for k in range(m):
        active.L[m, k] = active.w[k]
    active.L[m, m] = rho
    active.u[m] = (1.0 - dot(active.u, active.w, m)) / rho
    active.members[m] = c
    active.where[c] = m
    active.sizes[0] = m + 1


@jit
def remove(active, p):
    """The member in place p leaves. Givens rotations make the factor triangular again. In place: active, with u and w."""
    m = active.sizes[0]
    L = active.L
    active.where[active.members[p]] = -1
    for r in range(p, m - 1):
        row = L[r + 1]
        target = L[r]
        for k in range(p):
            target[k] = row[k]
        carry = row[p]
        for k in range(p, r):
            following = row[k + 1]
            target[k] = active.cos[k] * carry + active.sin[k] * following
            carry = active.cos[k] * following - active.sin[k] * carry
        last = row[r + 1]
        size = math.hypot(carry, last)
        active.cos[r], active.sin[r] = carry / size, last / size
        target[r] = size
        active.members[r] = active.members[r + 1]
        active.where[active.members[r]] = r
    for k in range(p, m - 1):
        for vector in (active.u, active.w):
            a, b = vector[k], vector[k + 1]
            vector[k] = active.cos[k] * a + active.sin[k] * b
            vector[k + 1] = active.cos[k] * b - active.sin[k] * a
    active.sizes[0] = m - 1


@jit(inline=True)
def _file(duals, active, t):
    """Put variable t into the list of bounded variables if it belongs there, or take it out. In place: active."""
    listed = active.place[t] >= 0
    belongs = duals.beta[t] != 0.0 and active.where[t] < 0
    if belongs and not listed:
        e = active.sizes[1]
        active.bounded[e] = t
        active.place[t] = e
        active.sizes[1] = e + 1
    elif listed and not belongs:
        e = active.sizes[1] - 1
        hole = active.place[t]
        moved = active.bounded[e]
        active.bounded[hole] = moved
        active.place[moved] = hole
        active.place[t] = -1
        active.sizes[1] = e


@jit
def _load_column(duals, rows, active, c):
    """w := L^-1 (k_c + shift). In place: active.w."""
    m = active.sizes[0]
    for a in range(m):
        row = rows.values[rows.slot[duals.point[active.members[a]]]]
        active.w[a] = row[c] + active.shift
    forward(active.L, m, active.w)


@jit
def _compensate(duals, active, c):
    """Returns (gamma, b') of a unit move of c, and leaves dS in active.d. In place: active.d."""
    m = active.sizes[0]
    uw = dot(active.u, active.w, m)
    slope = 0.0
    if duals.equality:
        slope = (1.0 - uw) / dot(active.u, active.u, m)
    gamma = duals.curvature[c] + active.shift - dot(active.w, active.w, m)
    if duals.equality:
        gamma += slope * (1.0 - uw)
    for a in range(m):
        active.d[a] = -(active.w[a] + slope * active.u[a])
    backward(active.L, m, active.d)
    return gamma, slope


@jit
def _first_blocker(duals, active, c, sign, limit):
    """How far c can go, and who stops it. Returns (step, blocker).

    The blocker is the place of a member, -2 for c itself, or -1 if nothing stops it before `limit`. Without c, which is -1
    then, the members move by themselves.
    """
    step, blocker = limit, -1
    if c >= 0 and room(duals, c, sign) <= step:
        step, blocker = room(duals, c, sign), -2
    for a in range(active.sizes[0]):
        rate = sign * active.d[a]
        if rate != 0.0:
            space = room(duals, active.members[a], rate)
            if space < step * abs(rate):
                step = max(space, 0.0) / abs(rate)
                blocker = a
    return step, blocker


@jit
def _drop(duals, active, place, bound):
    """The member in this place goes to its bound, and leaves. In place: beta, active."""
    t = active.members[place]
    duals.beta[t] = bound
    remove(active, place)
    _file(duals, active, t)


@jit
def _land_ties(duals, active, progress, step):
    """Put members that are next to a bound but for rounding onto the bound, and out of S. In place: beta, active."""
    for a in range(active.sizes[0] - 1, -1, -1):
        t = active.members[a]
        up, down = duals.upper[t] - duals.beta[t], duals.beta[t] - duals.lower[t]
        bound = duals.upper[t] if up < down else duals.lower[t]
        span = up + down
        if min(up, down) <= _LANDED * (abs(step * active.d[a]) if np.isinf(span) else span):
            _drop(duals, active, a, bound)
            progress.ints[DROPS] += 1


@jit
def move(duals, rows, active, progress, c, gap, limit):
    """Move c by at most |limit| until ``v_c = b``. Members that block the way leave. Returns (reason or -1, gain).

    The sign of gap = v_c - b is the direction. With an infinite `limit` c enters S, as in SimpleSVM. With a finite one c goes
    exactly that far and stays outside of S, and only the sign of `gap` counts. c is outside of S before the call.
    In place: beta, active, progress.
    """
    sign = 1.0 if gap > 0 else -1.0
    exact = not np.isinf(limit)
    left = abs(limit)
    gain = 0.0
    _load_column(duals, rows, active, c)
    while True:
        m = active.sizes[0]
        progress.floats[WORK] += 2.0 * m * m
        if m == 0 and duals.equality:
            if exact:
                return STUCK, gain
            progress.floats[BIAS] += gap
            append(active, c, duals.curvature[c] + active.shift)
            _file(duals, active, c)
            return -1, gain
        gamma, slope = _compensate(duals, active, c)
        scale = duals.curvature[c] + active.shift
        flat = gamma <= _FLAT * scale
        if flat and duals.diag[c] > 0.0:
            gamma = max(gamma, duals.diag[c])
            flat = False
        full = left if exact else (np.inf if flat else abs(gap) / gamma)
        step, blocker = _first_blocker(duals, active, c, sign, full)
        if np.isinf(step):
            return NO_BOUND, gain
        gain += abs(gap) * step - 0.5 * gamma * step * step
        for a in range(m):
            duals.beta[active.members[a]] += sign * step * active.d[a]
        duals.beta[c] += sign * step
        progress.floats[BIAS] += slope * sign * step
        gap -= gamma * sign * step
        left -= step
        if blocker >= 0:
            t = active.members[blocker]
            _drop(duals, active, blocker, duals.upper[t] if sign * active.d[blocker] > 0 else duals.lower[t])
            progress.ints[DROPS] += 1
            progress.floats[PAPER] += active.sizes[0] + 1.0
            continue
        _land_ties(duals, active, progress, sign * step)
        if blocker == -2:
            duals.beta[c] = duals.upper[c] if sign > 0 else duals.lower[c]
        elif not exact:
            append(active, c, duals.curvature[c] + active.shift)
        _file(duals, active, c)
        return -1, gain


@jit
def hold(duals, rows, active, progress, c):
    """Remember beta of all variables that a move of c may change. Returns NEED_ROW if a row of theirs is missing, else -1."""
    m = active.sizes[0]
    for a in range(m):
        active.touched[a] = active.members[a]
    active.touched[m] = c
    for a in range(m + 1):
        active.before[a] = duals.beta[active.touched[a]]
    return -1 if find_rows(duals, rows, progress, active.touched, m + 1) else NEED_ROW


@jit
def carry(duals, rows, active, progress, m):
    """Bring the residual up to date after a move of the first m touched variables. In place: v, progress."""
    for a in range(m):
        t = active.touched[a]
        change = duals.beta[t] - active.before[a]
        if change != 0.0:
            follow_change(duals, rows.values[rows.slot[duals.point[t]]], t, change)
            progress.floats[WORK] += 2.0 * duals.n


@jit
def _worst(duals, active, b):
    """The variable c outside of S that violates most with respect to b: (c, v_c - b). (-1, 0) when none violates."""
    chosen = -1
    worst = 0.0
    for t in range(duals.n):
        if active.where[t] >= 0:
            continue
        gap = duals.v[t] - b
        if gap > 0.0:
            if gap > abs(worst) and duals.beta[t] < duals.upper[t]:
                worst = gap
                chosen = t
        elif -gap > abs(worst) and duals.beta[t] > duals.lower[t]:
            worst = gap
            chosen = t
    return chosen, worst


@jit
def max_slice(duals, rows, active, progress, limits):
    """SimpleSVM that takes the largest violator and keeps all residuals up to date. In place: all but the problem."""
    ints, floats = progress.ints, progress.floats
    while True:
        reason = due(progress, limits)
        if reason >= 0:
            return reason
        if active.sizes[0] + 2 > active.L.shape[0]:
            return NEED_ROOM
        i, j, floats[VIOLATION] = worst_pair(duals)
        floats[WORK] += 4.0 * duals.n
        if floats[VIOLATION] <= limits.tol:
            return AT_TOLERANCE
        if active.sizes[0] == 0 and duals.equality:
            if find_row(duals, rows, progress, i) < 0:
                return NEED_ROW
            if find_row(duals, rows, progress, j) < 0:
                return NEED_ROW
            floats[BIAS] = duals.v[j]
            append(active, j, duals.curvature[j] + active.shift)
            _file(duals, active, j)
        if not duals.equality:
            floats[BIAS] = 0.0
        c, gap = _worst(duals, active, floats[BIAS])
        if c < 0 or abs(gap) <= 1e-3 * limits.tol:
            return STUCK
        if hold(duals, rows, active, progress, c) == NEED_ROW:
            return NEED_ROW
        m = active.sizes[0]
        reason, gain = move(duals, rows, active, progress, c, gap, np.inf)
        if reason >= 0:
            return reason
        carry(duals, rows, active, progress, m + 1)
        ints[ADDS] += 1
        ints[IDLE] = ints[IDLE] + 1 if gain <= 0.0 else 0
        count_step(progress, gain, c, -1, duals.beta[c] - active.before[m])
        if ints[IDLE] > 20 + active.sizes[0]:
            ints[IDLE] = 0
            return STUCK


@jit
def _value(duals, rows, active, t):
    """The residual of one variable, computed from the support. The paper counts this as |S| kernel evaluations."""
    total = duals.c[t] - duals.diag[t] * duals.beta[t]
    for a in range(active.sizes[0]):
        s = active.members[a]
        total -= duals.beta[s] * rows.values[rows.slot[duals.point[s]], t]
    for e in range(active.sizes[1]):
        s = active.bounded[e]
        total -= duals.beta[s] * rows.values[rows.slot[duals.point[s]], t]
    return total


@jit
def paper_slice(duals, rows, active, order, progress, limits, eps):
    """SimpleSVM as published: a cyclic scan takes the next violator it meets, and goes on behind it. In place: the state."""
    ints, floats = progress.ints, progress.floats
    n = order.shape[0]
    while ints[IDLE] < n:
        reason = due(progress, limits)
        if reason >= 0:
            return reason
        if active.sizes[0] + 2 > active.L.shape[0]:
            return NEED_ROOM
        t = order[ints[POSITION]]
        if active.where[t] >= 0:
            ints[POSITION] = (ints[POSITION] + 1) % n
            ints[IDLE] += 1
            continue
        gap = _value(duals, rows, active, t) - floats[BIAS]
        size = active.sizes[0] + active.sizes[1]
        violates = duals.beta[t] < duals.upper[t] if gap > 0 else duals.beta[t] > duals.lower[t]
        if not violates or abs(gap) <= eps:
            floats[PAPER] += size
            floats[WORK] += 8.0 * size
            ints[POSITION] = (ints[POSITION] + 1) % n
            ints[IDLE] += 1
            continue
        if hold(duals, rows, active, progress, t) == NEED_ROW:
            return NEED_ROW
        if active.sizes[0] == 0 and duals.equality:
            return STUCK
        floats[PAPER] += 2.0 * size + 1.0
        m = active.sizes[0]
        floats[VIOLATION] = abs(gap)
        reason, gain = move(duals, rows, active, progress, t, gap, np.inf)
        if reason >= 0:
            return reason
        ints[ADDS] += 1
        ints[IDLE] = 0
        ints[POSITION] = (ints[POSITION] + 1) % n
        count_step(progress, gain, t, -1, duals.beta[t] - active.before[m])
    return AT_TOLERANCE


@jit
def settle(duals, active, x):
    """Minimise over the members. Those that meet a bound leave. Returns b. In place: the state, x.

    Residuals of the members are used and kept up to date. Residuals of all others are left to the caller. x is scratch.
    """
    b = 0.0
    while active.sizes[0] > 0:
        m = active.sizes[0]
        for a in range(m):
            x[a] = duals.v[active.members[a]]
        forward(active.L, m, x)
        b = 0.0
        if duals.equality:
            b = dot(active.u, x, m) / dot(active.u, active.u, m)
        for a in range(m):
            active.d[a] = x[a] - b * active.u[a]
        backward(active.L, m, active.d)
        step, blocker = _first_blocker(duals, active, -1, 1.0, 1.0)
        for a in range(m):
            t = active.members[a]
            duals.beta[t] += step * active.d[a]
            duals.v[t] -= step * (duals.v[t] - b)
        if blocker < 0:
            return b
        t = active.members[blocker]
        _drop(duals, active, blocker, duals.upper[t] if active.d[blocker] > 0 else duals.lower[t])
    return b


@jit
def file_all(duals, active):
    """Rebuild the list of bounded variables. In place: active."""
    active.sizes[1] = 0
    for t in range(duals.n):
        active.place[t] = -1
    for t in range(duals.n):
        _file(duals, active, t)
