"""The elbow of the regularization path: its triangular factor, the direction it moves in, and null vectors.

The elbow E holds independent points only. R'R = K_EE + bump 11', where R is upper triangular and stored by rows. Without the
equality row bump is 0. With it the added term vanishes on every feasible direction. It makes the matrix positive definite
exactly when the bordered matrix of the paper's (22) is non-singular.

A point on the elbow may be independent only to rounding. Its pivot is then lifted to `LEAST_PIVOT`. This costs an error of
`LEAST_PIVOT` times k_ii times the distance that the value moves. If the point were taken as dependent instead, the error
would be the square root of that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.simd.sums import dot, dot_between

# Where a point is: at the lower end of its box, at the upper end, or on the elbow.
LOW, UP, ELBOW = range(3)

# Why a point has changed sides, as numbers for the log and in words.
BOX, MARGIN, EXCHANGE, BATCH, REPAIR, SPECIAL, RESTART = range(7)
CAUSES = ("box", "margin", "exchange", "batch", "repair", "special", "restart")

# Why `follow` and `follow_windows` return.
# DONE: t has arrived. REFRESH: a refresh is due. BUDGET: the budget of work is spent.
# GROW: Python must make room. FLUSH: it must empty the log. ROWS: it must fetch the row WANT. AHEAD: rows of candidates.
# STALLED: there is no way on. SINGULAR: there is no factor.
# STOPPED: go on without windows, after a window that was accepted. DEFEATED: the same, after one that was taken back.
DONE, REFRESH, BUDGET, GROW, FLUSH, ROWS, AHEAD, STALLED, SINGULAR, STOPPED, DEFEATED = range(11)

# Places in State.num.
NOW, BIAS, T_REFRESH, NOISE, WORST_GAP = range(5)
# Places in State.cnt.
(
    N_ELBOW, N_EVENT, N_ZERO, N_ZERO_MAX, N_EXCHANGE, N_FLIP, N_BATCH, SINCE, WANT, N_PERTURB, N_ELBOW_MAX, ZERO_RUN,
    BATCHED, N_STEP, AGE, N_LOOK,
) = range(16)  # fmt: skip

LEAST_PIVOT = 1e-15  # the relative pivot of a point that is independent only to rounding is lifted to this
NULL = 1e-13  # a null vector should move nothing; what it moves by this, relatively, is rounding
FINE = 1e-11  # a relative gap below this needs no correction
# K beta is brought up to date by changes OLD times, and is then computed afresh. A way down to the share LONG_WAY of the
# linear term counts for half of that: the image keeps the rounding of the larger values that it had.
OLD, LONG_WAY = 10, 0.75
LOST = 1e-8  # a sum of values above this share of the sum of their sizes is not zero
STEADY = 1e-12  # where an entry of a null vector is smaller than this, the value does not move
GIVE = 1e-12  # boxes give way by this share of their width while the best pivot is looked for


class Setting(NamedTuple):
    """What does not change during a call. `rows[slot[i]]` is kernel row i. A slot of -1 says that the row is not there yet.

    The linear term is ``fixed + t slope``, and its size is `level` + t. A primal objective below `floor` is too small to
    measure a gap against. An elbow value whose rate is at most `still` does not move: such a rate is rounding.
    """

    rows: FloatArray
    slot: IntArray
    diagonal: FloatArray
    fixed: FloatArray
    slope: FloatArray
    bump: float
    equality: bool
    still: float
    level: float
    floor: float


class State(NamedTuple):
    """Where the path is. Every array is changed in place. `num` and `cnt` are indexed by the names above."""

    beta: FloatArray
    resid: FloatArray
    base: FloatArray
    lower: FloatArray
    upper: FloatArray
    side: np.ndarray
    elbow: IntArray
    factor: FloatArray
    half_slope: FloatArray  # R^-T times the slopes of the elbow
    half_one: FloatArray  # R^-T times ones
    then: FloatArray  # an earlier beta
    image: FloatArray  # K times that
    moved: IntArray  # scratch: the points where beta has changed since then
    change: FloatArray  # scratch: by how much
    num: FloatArray
    cnt: IntArray


class Work(NamedTuple):
    """Scratch: the direction on the elbow, a null vector, the rate of every residual, and the step to every event."""

    direction: FloatArray
    column: FloatArray
    rate: FloatArray
    step: FloatArray


# ---- triangular factor -------------------------------------------------------------------------------------------


@jit
def solve_lower(R, m, b):
    """Solve R'x = b. In place: b."""
    for k in range(m):
        xk = b[k] / R[k, k]
        b[k] = xk
        if xk != 0.0:
            row = R[k]
            for j in range(k + 1, m):
                b[j] -= xk * row[j]


@jit
def solve_upper(R, m, b):
    """Solve R x = b. In place: b."""
    for k in range(m - 1, -1, -1):
        b[k] = (b[k] - dot_between(R[k], b, k + 1, m)) / R[k, k]


@jit
def pivot_of(setting, state, i, x):
    """The relative pivot that point i would have on the elbow: 1 - |x|^2 / (k_ii + bump), x = R^-T (k_Ei + bump).

    In place: x.
    """
    m = state.cnt[N_ELBOW]
    row = setting.rows[setting.slot[i]]
    for k in range(m):
        x[k] = row[state.elbow[k]] + setting.bump
    solve_lower(state.factor, m, x)
    whole = setting.diagonal[i] + setting.bump
    if not whole > 0.0:
        return 0.0
    return (whole - dot(x, x, m)) / whole


@jit
def append(setting, state, i, x, pivot):
    """Put point i on the elbow, behind all others. x and pivot are those of `pivot_of`. In place: state."""
    m = state.cnt[N_ELBOW]
    r = np.sqrt(pivot * (setting.diagonal[i] + setting.bump))
    for k in range(m):
        state.factor[k, m] = x[k]
    state.factor[m, m] = r
    state.half_slope[m] = (setting.slope[i] - dot(x, state.half_slope, m)) / r
    state.half_one[m] = (1.0 - dot(x, state.half_one, m)) / r
    state.elbow[m] = i
    state.side[i] = ELBOW
    state.cnt[N_ELBOW] = m + 1
    state.cnt[N_ELBOW_MAX] = max(state.cnt[N_ELBOW_MAX], m + 1)


@jit
def rotate(a, b, c, s, start, stop):
    """(a, b) <- (c a + s b, c b - s a) on start <= j < stop. In place: a, b."""
    for j in range(start, stop):
        t = c * a[j] + s * b[j]
        b[j] = c * b[j] - s * a[j]
        a[j] = t


@jit
def delete(state, k0):
    """Take the point at place k0 off the elbow: drop column k0 of R, and make R triangular again. In place: state."""
    m = state.cnt[N_ELBOW]
    R = state.factor
    for i in range(m):
        row = R[i]
        for j in range(max(i, k0 + 1), m):
            row[j - 1] = row[j]
    for k in range(k0, m - 1):
        top = R[k]
        low = R[k + 1]
        a = top[k]
        b = low[k]
        h = np.sqrt(a * a + b * b)
        c = a / h
        s = b / h
        top[k] = h
        low[k] = 0.0
        rotate(top, low, c, s, k + 1, m - 1)
        rotate(state.half_slope[k:], state.half_slope[k + 1 :], c, s, 0, 1)
        rotate(state.half_one[k:], state.half_one[k + 1 :], c, s, 0, 1)
    for k in range(k0, m - 1):
        state.elbow[k] = state.elbow[k + 1]
    state.cnt[N_ELBOW] = m - 1


@jit
def restart_rhs(setting, state):
    """half_slope = R^-T slope_E, half_one = R^-T 1. This is needed after a new factor or a new slope. In place: state."""
    m = state.cnt[N_ELBOW]
    for k in range(m):
        state.half_slope[k] = setting.slope[state.elbow[k]]
        state.half_one[k] = 1.0
    solve_lower(state.factor, m, state.half_slope)
    solve_lower(state.factor, m, state.half_one)


# ---- direction and null vectors --------------------------------------------------------------------------------------


@jit
def direction(setting, state, d):
    """Solve K_EE d + bias_rate = slope_E, sum d = 0: d is db_E/dt. Returns bias_rate, which is dbias/dt. In place: d."""
    m = state.cnt[N_ELBOW]
    bias_rate = 0.0
    if setting.equality and m > 0:
        bias_rate = dot(state.half_slope, state.half_one, m) / dot(state.half_one, state.half_one, m)
    for k in range(m):
        d[k] = state.half_slope[k] - bias_rate * state.half_one[k]
    solve_upper(state.factor, m, d)
    return bias_rate


@jit
def add_rows(out, setting, points, coef, m):
    """out += sum_k coef_k K[points_k] over k < m. In place: out."""
    n = out.shape[0]
    k = 0
    while k + 3 < m:
        r0 = setting.rows[setting.slot[points[k]]]
        r1 = setting.rows[setting.slot[points[k + 1]]]
        r2 = setting.rows[setting.slot[points[k + 2]]]
        r3 = setting.rows[setting.slot[points[k + 3]]]
        c0 = coef[k]
        c1 = coef[k + 1]
        c2 = coef[k + 2]
        c3 = coef[k + 3]
        for i in range(n):
            out[i] += (c0 * r0[i] + c1 * r1[i]) + (c2 * r2[i] + c3 * r3[i])
        k += 4
    while k < m:
        r0 = setting.rows[setting.slot[points[k]]]
        c0 = coef[k]
        for i in range(n):
            out[i] += c0 * r0[i]
        k += 1


@jit
def room_along(state, k, speed):
    """How far the elbow value at place k is from the bound it would meet at this speed."""
    j = state.elbow[k]
    return max(state.upper[j] - state.beta[j] if speed > 0.0 else state.beta[j] - state.lower[j], 0.0)


@jit
def first_box(state, x, sign, own):
    """How far beta can move along sign * n before a box binds. n is the null vector: n_i = 1, n_E = -x. `own` is i's room.

    There are two passes. The first finds how far one could go if boxes gave way a little. The second looks at the boxes
    that are met by then, and takes the one with the largest entry of n. It is the safest choice, because the determinant of
    the factor shrinks by the square of this entry. Returns (length, place on the elbow that binds, or -1 for point i
    itself).
    """
    far = own * (1.0 + GIVE)
    for k in range(state.cnt[N_ELBOW]):
        speed = -sign * x[k]
        if abs(speed) > STEADY:
            j = state.elbow[k]
            reach = (room_along(state, k, speed) + GIVE * (state.upper[j] - state.lower[j])) / abs(speed)
            far = min(far, reach)
    place = -1
    length = own
    size = 1.0 if own <= far else 0.0
    for k in range(state.cnt[N_ELBOW]):
        speed = -sign * x[k]
        if abs(speed) > size and abs(speed) > STEADY:
            reach = room_along(state, k, speed) / abs(speed)
            if reach <= far:
                length = reach
                place = k
                size = abs(speed)
    return length, place


@jit
def null_change(setting, state, work, i, length):
    """What changes when point i moves by `length` along its null vector. In place: work.direction, work.rate.

    work.column holds minus the null vector's part on the elbow. Returns False when the move would change a residual, or the
    sum, by more than rounding. Then the point is not dependent after all. Residuals on the elbow do not change. Others may
    change by up to the square root of the pivot, which is known to 1e-16 at best.
    """
    total = 1.0
    size = 1.0
    weight = np.sqrt(setting.diagonal[i])
    for k in range(state.cnt[N_ELBOW]):
        work.direction[k] = -length * work.column[k]
        total -= work.column[k]
        size += abs(work.column[k])
        weight += abs(work.column[k]) * np.sqrt(setting.diagonal[state.elbow[k]])
    row = setting.rows[setting.slot[i]]
    for j in range(work.rate.shape[0]):
        work.rate[j] = length * row[j]
    add_rows(work.rate, setting, state.elbow, work.direction, state.cnt[N_ELBOW])
    change = 0.0
    largest = 0.0
    for j in range(work.rate.shape[0]):
        change = max(change, abs(work.rate[j]))
        largest = max(largest, setting.diagonal[j])
    trust = NULL * abs(length)
    return change <= trust * weight * np.sqrt(largest) and (not setting.equality or abs(total) <= NULL * size)


# ---- measures ----------------------------------------------------------------------------------------------------


@jit
def absorb(state):
    """Add what contradicts the sides to the shift, so that the state is optimal. Returns the largest entry of the shift.

    In place: state.
    """
    largest = 0.0
    for i in range(state.side.shape[0]):
        wrong = state.resid[i]
        if state.side[i] == UP:
            wrong = min(wrong, 0.0)
        elif state.side[i] == LOW:
            wrong = max(wrong, 0.0)
        state.base[i] -= wrong
        state.resid[i] -= wrong
        largest = max(largest, abs(state.base[i]))
    return largest


@jit
def mend(setting, state, x):
    """A Newton step on the elbow, with the factor: it removes the residual there, and the sum of beta.

    Returns False where a value would leave its box. Then nothing has changed. In place: state.beta, state.num, x.
    """
    m = state.cnt[N_ELBOW]
    for k in range(m):
        x[k] = state.resid[state.elbow[k]] - state.base[state.elbow[k]]
    solve_lower(state.factor, m, x)
    force = 0.0
    excess = 0.0
    if setting.equality and m > 0:
        for i in range(state.beta.shape[0]):
            excess += state.beta[i]
        force = -(excess + dot(state.half_one, x, m)) / dot(state.half_one, state.half_one, m)
        for k in range(m):
            x[k] += force * state.half_one[k]
    solve_upper(state.factor, m, x)
    inside = m > 0
    for k in range(m):
        i = state.elbow[k]
        inside = inside and state.lower[i] <= state.beta[i] + x[k] <= state.upper[i]
    if inside:
        for k in range(m):
            state.beta[state.elbow[k]] += x[k]
        state.num[BIAS] -= force + setting.bump * excess
    return inside


@jit
def is_lost(setting, state):
    """Whether the sum of beta, which must be zero, is no longer zero."""
    total = 0.0
    size = 0.0
    for i in range(state.beta.shape[0]):
        total += state.beta[i]
        size += abs(state.beta[i])
    return setting.equality and abs(total) > LOST * size


@jit
def exact_gap(setting, state, t, lower, upper):
    """The exact relative duality gap of the present point at `t`, for the problem without shift."""
    bias = state.num[BIAS]
    total = 0.0
    gap = 0.0
    primal = 0.0
    for i in range(state.side.shape[0]):
        r = state.resid[i] - state.base[i]
        b = min(max(state.beta[i], lower[i]), upper[i])
        hinge = (upper[i] if r > 0.0 else lower[i]) * r
        total += b
        gap += hinge - b * r
        primal += 0.5 * b * (t * setting.slope[i] + setting.fixed[i] - r - bias) + hinge
    gap += abs(bias * total)  # beta costs this where its sum is not zero
    return gap / max(primal, setting.floor)


@jit
def renew_image(setting, state):
    """Bring state.image = K beta up to date. When it is OLD, it is computed afresh. Returns False where a row is missing."""
    afresh = state.cnt[AGE] >= OLD
    changed = 0
    for i in range(state.side.shape[0]):
        then = 0.0 if afresh else state.then[i]
        if state.beta[i] != then:
            if setting.slot[i] < 0:
                return False
            state.moved[changed] = i
            state.change[changed] = state.beta[i] - then
            changed += 1
    state.cnt[AGE] = 0 if afresh else state.cnt[AGE] + 1
    for i in range(state.side.shape[0]):
        state.then[i] = state.beta[i]
        if afresh:
            state.image[i] = 0.0
    add_rows(state.image, setting, state.moved, state.change, changed)
    return True


@jit
def size_at(setting, t):
    """The size of the linear term at t, against which residuals are measured."""
    return setting.level + t


@jit
def sure_gap(setting, state, t, lower, upper):
    """`exact_gap`. It is infinite where the sum of beta is lost, which no gap shows where the bias is small."""
    return np.inf if is_lost(setting, state) else exact_gap(setting, state, t, lower, upper)


@jit
def measure(setting, state, t, lower, upper):
    """Residuals of the problem without shift, at `t`, from beta's image. What contradicts the sides becomes the shift.

    Returns the largest entry of the shift, and `sure_gap`. In place: state.
    """
    for i in range(state.side.shape[0]):
        state.resid[i] = t * setting.slope[i] + setting.fixed[i] - state.image[i] - state.num[BIAS]
        state.base[i] = 0.0
    shift = absorb(state)
    return shift, sure_gap(setting, state, t, lower, upper)


@jit
def look(setting, state, lower, upper):
    """A refresh for the case that all is well: residuals come from beta alone, the shift is decided anew. In place: state.

    Returns False when the gap is too large to go on, or cannot be computed here. Python must do more then.
    """
    t = state.num[NOW]
    if size_at(setting, t) < LONG_WAY * size_at(setting, state.num[T_REFRESH]):
        state.cnt[AGE] += OLD // 2
    if not renew_image(setting, state):
        return False
    _, gap = measure(setting, state, t, lower, upper)
    if not gap <= FINE:
        return False
    state.num[WORST_GAP] = max(state.num[WORST_GAP], gap)
    state.num[T_REFRESH] = t
    state.cnt[N_LOOK] += 1
    return True
