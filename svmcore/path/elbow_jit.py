"""The elbow of the regularization path: its triangular factor, the direction it moves in, and null vectors.

The elbow E holds independent points only: R'R = K_EE + bump 11' with R upper triangular, rows contiguous (bump = 0
without the equality row; with it the added term vanishes on every feasible direction and makes the matrix positive
definite exactly when the bordered matrix of the paper's (22) is non-singular). A point may be on it that is independent
only to rounding: its pivot is then lifted to `LEAST_PIVOT`, which costs an error of that times k_ii times how far the
value moves. A null vector that is one to rounding only would cost the square root.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._jit import jit
from svmcore._types import FloatArray, IntArray
from svmcore.simd.sums import dot, dot_between

# where a point is: at the lower end of its box, at the upper end, on the elbow
LOW, UP, ELBOW = range(3)

# why a point changed sides, as the log has it, and the same in words
BOX, MARGIN, EXCHANGE, BATCH, REPAIR, SPECIAL, RESTART = range(7)
CAUSES = ("box", "margin", "exchange", "batch", "repair", "special", "restart")

# why `follow` and `follow_windows` returned. DONE, REFRESH, BUDGET: arrived, a refresh is due, the budget of work is spent.
# GROW, FLUSH, ROWS, AHEAD: Python must make room, empty the log, fetch the row WANT, fetch rows of candidates.
# STALLED, SINGULAR: no way on, or no factor. STOPPED, DEFEATED: go on without windows, after a window that was accepted
# or one that was taken back.
DONE, REFRESH, BUDGET, GROW, FLUSH, ROWS, AHEAD, STALLED, SINGULAR, STOPPED, DEFEATED = range(11)

# State.num
T, BIAS, T_REFRESH, NOISE, WORST_GAP = range(5)
# State.cnt
(
    M, N_EVENT, N_ZERO, N_ZERO_MAX, N_EXCHANGE, N_FLIP, N_BATCH, SINCE, WANT, N_PERTURB, M_MAX, ZERO_RUN, BATCHED, N_STEP,
    AGE, N_LOOK,
) = range(16)  # fmt: skip

LEAST_PIVOT = 1e-15
NULL = 1e-13  # what counts as rounding where a null vector should move nothing
FINE = 1e-11  # a relative gap below this needs no correction
OLD = 10  # so often K beta is brought up to date by changes before it is computed afresh
STEADY = 1e-12  # an entry of a null vector that is smaller does not move its value
GIVE = 1e-12  # boxes give way by this fraction when the best pivot is looked for


class Setting(NamedTuple):
    """What does not change during a call: `rows[slot[i]]` is kernel row i (slot -1: not there yet).

    The linear term is ``fixed + t slope``. It is of size `level` + t, and a primal objective below `floor` is nothing to
    measure a gap against. An elbow value whose rate is at most `still` does not move: that is rounding.
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
    """Where the path is; every array is changed in place. `num` and `cnt` are indexed by the names above."""

    beta: FloatArray
    resid: FloatArray
    base: FloatArray
    lower: FloatArray
    upper: FloatArray
    side: np.ndarray
    elbow: IntArray
    factor: FloatArray
    w_slope: FloatArray
    w_one: FloatArray
    then: FloatArray  # an earlier beta
    image: FloatArray  # K times that
    moved: IntArray  # scratch: the points where beta has changed since
    num: FloatArray
    cnt: IntArray


class Work(NamedTuple):
    """Scratch: direction on the elbow, null vector, rate of every residual, step to every blocking event."""

    d: FloatArray
    x: FloatArray
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
def pivot_of(P, S, i, x):
    """Relative pivot of point i if it joined the elbow: 1 - |x|^2 / (k_ii + bump), x = R^-T (k_Ei + bump). In place: x."""
    m = S.cnt[M]
    row = P.rows[P.slot[i]]
    for k in range(m):
        x[k] = row[S.elbow[k]] + P.bump
    solve_lower(S.factor, m, x)
    whole = P.diagonal[i] + P.bump
    if not whole > 0.0:
        return 0.0
    return (whole - dot(x, x, m)) / whole


@jit
def append(P, S, i, x, pivot):
    """Put point i, with the x and pivot of `pivot_of`, last on the elbow. In place: S."""
    m = S.cnt[M]
    r = np.sqrt(pivot * (P.diagonal[i] + P.bump))
    for k in range(m):
        S.factor[k, m] = x[k]
    S.factor[m, m] = r
    S.w_slope[m] = (P.slope[i] - dot(x, S.w_slope, m)) / r
    S.w_one[m] = (1.0 - dot(x, S.w_one, m)) / r
    S.elbow[m] = i
    S.side[i] = ELBOW
    S.cnt[M] = m + 1
    if m + 1 > S.cnt[M_MAX]:
        S.cnt[M_MAX] = m + 1


@jit
def rotate(a, b, c, s, start, stop):
    """(a, b) <- (c a + s b, c b - s a) on start <= j < stop. In place: a, b."""
    for j in range(start, stop):
        t = c * a[j] + s * b[j]
        b[j] = c * b[j] - s * a[j]
        a[j] = t


@jit
def delete(S, k0):
    """Take the point at place k0 off the elbow: drop column k0 of R, make it triangular again. In place: S."""
    m = S.cnt[M]
    R = S.factor
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
        rotate(S.w_slope[k : k + 1], S.w_slope[k + 1 : k + 2], c, s, 0, 1)
        rotate(S.w_one[k : k + 1], S.w_one[k + 1 : k + 2], c, s, 0, 1)
    for k in range(k0, m - 1):
        S.elbow[k] = S.elbow[k + 1]
    S.cnt[M] = m - 1


@jit
def restart_rhs(P, S):
    """w_slope = R^-T slope_E, w_one = R^-T 1: after a new factor or a new slope. In place: S."""
    m = S.cnt[M]
    for k in range(m):
        S.w_slope[k] = P.slope[S.elbow[k]]
        S.w_one[k] = 1.0
    solve_lower(S.factor, m, S.w_slope)
    solve_lower(S.factor, m, S.w_one)


# ---- direction and null vectors --------------------------------------------------------------------------------------


@jit
def direction(P, S, d):
    """d = db_E/dt and the returned dbias/dt: K_EE d + d0 = slope_E, sum d = 0. In place: d."""
    m = S.cnt[M]
    d0 = 0.0
    if P.equality and m > 0:
        d0 = dot(S.w_slope, S.w_one, m) / dot(S.w_one, S.w_one, m)
    for k in range(m):
        d[k] = S.w_slope[k] - d0 * S.w_one[k]
    solve_upper(S.factor, m, d)
    return d0


@jit
def add_rows(out, P, S, coef, m):
    """out += sum_k coef_k K[E_k]. In place: out."""
    n = out.shape[0]
    k = 0
    while k + 3 < m:
        r0 = P.rows[P.slot[S.elbow[k]]]
        r1 = P.rows[P.slot[S.elbow[k + 1]]]
        r2 = P.rows[P.slot[S.elbow[k + 2]]]
        r3 = P.rows[P.slot[S.elbow[k + 3]]]
        c0 = coef[k]
        c1 = coef[k + 1]
        c2 = coef[k + 2]
        c3 = coef[k + 3]
        for i in range(n):
            out[i] += (c0 * r0[i] + c1 * r1[i]) + (c2 * r2[i] + c3 * r3[i])
        k += 4
    while k < m:
        r0 = P.rows[P.slot[S.elbow[k]]]
        c0 = coef[k]
        for i in range(n):
            out[i] += c0 * r0[i]
        k += 1


@jit
def room_along(S, k, speed):
    """How far the elbow value at place k is from the bound it would meet at this speed."""
    j = S.elbow[k]
    return max(S.upper[j] - S.beta[j] if speed > 0.0 else S.beta[j] - S.lower[j], 0.0)


@jit
def first_box(S, x, sign, own):
    """How far beta can move along sign * null vector (n_i = 1, n_E = -x) before a box binds; `own` is i's room.

    Two passes: the first finds how far one could go if boxes gave way by a hair, the second takes, among the boxes
    met by then, the one with the largest entry of n, because the factor's determinant shrinks by its square.
    Returns (length, place on the elbow that binds, or -1 when it is point i itself).
    """
    far = own * (1.0 + GIVE)
    for k in range(S.cnt[M]):
        speed = -sign * x[k]
        if abs(speed) > STEADY:
            j = S.elbow[k]
            h = (room_along(S, k, speed) + GIVE * (S.upper[j] - S.lower[j])) / abs(speed)
            far = min(far, h)
    place = -1
    length = own
    size = 1.0 if own <= far else 0.0
    for k in range(S.cnt[M]):
        speed = -sign * x[k]
        if abs(speed) > size and abs(speed) > STEADY:
            h = room_along(S, k, speed) / abs(speed)
            if h <= far:
                length = h
                place = k
                size = abs(speed)
    return length, place


@jit
def null_change(P, S, W, i, length):
    """What moving point i by `length`, and the elbow by the null vector's share, changes. In place: W.d, W.rate.

    W.x holds the null vector's elbow part (negated). Returns False when some residual outside the elbow, or the sum,
    would feel the move by more than rounding: then the point is not dependent after all. (On the elbow nothing moves,
    but elsewhere by up to the square root of the pivot, and a pivot is known to 1e-16 at best.)
    """
    total = 1.0
    size = 1.0
    weight = np.sqrt(P.diagonal[i])
    for k in range(S.cnt[M]):
        W.d[k] = -length * W.x[k]
        total -= W.x[k]
        size += abs(W.x[k])
        weight += abs(W.x[k]) * np.sqrt(P.diagonal[S.elbow[k]])
    row = P.rows[P.slot[i]]
    for j in range(W.rate.shape[0]):
        W.rate[j] = length * row[j]
    add_rows(W.rate, P, S, W.d, S.cnt[M])
    change = 0.0
    largest = 0.0
    for j in range(W.rate.shape[0]):
        change = max(change, abs(W.rate[j]))
        largest = max(largest, P.diagonal[j])
    trust = NULL * abs(length)
    return change <= trust * weight * np.sqrt(largest) and (not P.equality or abs(total) <= NULL * size)


# ---- measures ----------------------------------------------------------------------------------------------------


@jit
def absorb(S):
    """Book what contradicts the sides as a shift, so that the state is optimal. In place: S. Returns its largest entry."""
    largest = 0.0
    for i in range(S.side.shape[0]):
        wrong = S.resid[i]
        if S.side[i] == UP:
            wrong = min(wrong, 0.0)
        elif S.side[i] == LOW:
            wrong = max(wrong, 0.0)
        S.base[i] -= wrong
        S.resid[i] -= wrong
        largest = max(largest, abs(S.base[i]))
    return largest


@jit
def exact_gap(P, S, t, lower, upper):
    """Exact relative duality gap of the present point for the problem without shift, at `t`."""
    bias = S.num[BIAS]
    total = 0.0
    gap = 0.0
    primal = 0.0
    for i in range(S.side.shape[0]):
        r = S.resid[i] - S.base[i]
        b = min(max(S.beta[i], lower[i]), upper[i])
        hinge = (upper[i] if r > 0.0 else lower[i]) * r
        total += b
        gap += hinge - b * r
        primal += 0.5 * b * (t * P.slope[i] + P.fixed[i] - r - bias) + hinge
    gap += abs(bias * total)  # what an unbalanced beta costs
    return gap / max(primal, P.floor)


@jit
def renew_image(P, S):
    """Bring S.image = K beta up to date. Returns False where that needs a row that is not there, or is due afresh."""
    changed = 0
    for i in range(S.side.shape[0]):
        if S.beta[i] != S.then[i]:
            if P.slot[i] < 0:
                return False
            S.moved[changed] = i
            changed += 1
    if S.cnt[AGE] >= OLD:
        return False
    S.cnt[AGE] += 1
    add_changes(S.image, P, S, changed)
    for k in range(changed):
        S.then[S.moved[k]] = S.beta[S.moved[k]]
    return True


@jit
def add_changes(out, P, S, count):
    """out += K (beta - then) on the first `count` points of S.moved. In place: out."""
    n = out.shape[0]
    k = 0
    while k < count:
        i0 = S.moved[k]
        i1 = S.moved[min(k + 1, count - 1)]
        i2 = S.moved[min(k + 2, count - 1)]
        i3 = S.moved[min(k + 3, count - 1)]
        r0, r1, r2, r3 = P.rows[P.slot[i0]], P.rows[P.slot[i1]], P.rows[P.slot[i2]], P.rows[P.slot[i3]]
        c0 = S.beta[i0] - S.then[i0]
        c1 = S.beta[i1] - S.then[i1] if k + 1 < count else 0.0
        c2 = S.beta[i2] - S.then[i2] if k + 2 < count else 0.0
        c3 = S.beta[i3] - S.then[i3] if k + 3 < count else 0.0
        for i in range(n):
            out[i] += (c0 * r0[i] + c1 * r1[i]) + (c2 * r2[i] + c3 * r3[i])
        k += 4


@jit
def size_at(P, t):
    """The size of the linear term at t, against which residuals are measured."""
    return P.level + t


@jit
def look(P, S, lower, upper):
    """A refresh that finds all well: residuals from beta alone, the shift decided anew. In place: S.

    Returns False when the gap is not small enough to go on, or cannot be had: Python then does more.
    """
    if not renew_image(P, S):
        return False
    t = S.num[T]
    for i in range(S.side.shape[0]):
        S.resid[i] = t * P.slope[i] + P.fixed[i] - S.image[i] - S.num[BIAS]
        S.base[i] = 0.0
    absorb(S)
    gap = exact_gap(P, S, t, lower, upper)
    if not gap <= FINE:
        return False
    S.num[WORST_GAP] = max(S.num[WORST_GAP], gap)
    S.num[T_REFRESH] = t
    S.cnt[N_LOOK] += 1
    return True
