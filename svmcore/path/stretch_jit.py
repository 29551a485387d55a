"""One window after another: candidates, the chord certificate, acceptance, and what makes Python necessary.

After a window (`path/window_jit`) one pass over all points gives every residual at a third, two thirds and the end, and a
chord certificate clears the points in between: between two of those times a residual differs from its chord by at most
sqrt(k_ii) D + D0, where D is the largest deviation of beta from its own chord in the kernel's norm and D0 that of the
bias. Points that this does not clear are looked at exactly. Where a point objects, the window is taken back and the
point becomes a candidate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._jit import jit
from svmcore._path_jit import correct_knot
from svmcore._types import FloatArray, IntArray
from svmcore.path.elbow_jit import (
    AHEAD,
    BIAS,
    BUDGET,
    DEFEATED,
    DONE,
    ELBOW,
    FLUSH,
    GROW,
    M_MAX,
    N_EVENT,
    N_STEP,
    REFRESH,
    ROWS,
    SINCE,
    STOPPED,
    T_REFRESH,
    UP,
    ZERO_RUN,
    M,
    T,
    add_rows,
    exact_gap,
    look,
    size_at,
)
from svmcore.path.log_jit import EVENTS, KNOTS, VALUES
from svmcore.path.window_jit import (
    CANDIDATES,
    END,
    FULL,
    LEFT_REGION,
    NEAR_SINGULAR,
    NEED_ROW,
    PENDING,
    SLOTS,
    START,
    STEPS,
    TIED,
    Closing,
    four_products,
    run_window,
    slot_direction,
    symmetric_product,
)
from svmcore.simd.sums import dot
from svmcore.simd.vector import COLUMNS_64, OUTER_ROWS, add_outer

# Stretch.pace
LENGTH, WIDTH, RETRIES, WANTED, RATED, LOOKED, FRESH_FOR, N_WINDOWS, N_BACK, N_INSIDE, CARRIED = range(11)
# Stretch.pace[CARRIED]: u1 of the elbow is not known; it is; it is, and q.rate says by how much it misses
UNKNOWN, KNOWN, MEASURED = range(3)

LONGEST = 32  # steps of a window
ROOM = LONGEST + 4 + COLUMNS_64  # slots that one window may add, and the rest of a tile
PIVOT = 1e-8  # a window neither starts with nor accepts a smaller relative pivot
RESIDUAL = 1e-8  # an elbow residual above this times the size of the linear term asks for a refresh
RESTING = 1e-15  # one below this is rounding
MOST_RETRIES = 6  # a window that points object to is taken back so often at most
MOST_SHORTER = 2  # one that the gap objects to
SMALL_STEP = 1e-6  # a correction of an elbow value by more is none
ARRIVED = 1e-13  # t this close to its end, relatively, is there
WIDENED = 1e-6  # share by which the bound on a deviation is widened, against rounding
TINY = 1e-200  # against division by zero
CROSSED = 1e-11  # a residual beyond zero by more than this times that size is on the wrong side


class Stretch(NamedTuple):
    """What windows share: rates and scores of all points, what a window is checked and taken back with.

    `pace` is indexed by the names above: steps and candidates of the next window, points that objected to the last.
    """

    rate: FloatArray
    score: FloatArray
    work: FloatArray
    at: FloatArray  # residuals at a third, two thirds, the end; and their rates there, negative
    coef: FloatArray  # what K is multiplied with for these
    u1: FloatArray  # of the elbow, when the window began
    root: FloatArray
    wanted: np.ndarray
    bend: FloatArray
    old: FloatArray  # beta, base and residuals before
    old_side: np.ndarray
    old_num: FloatArray
    old_end: IntArray
    pace: IntArray


class Reach(NamedTuple):
    """The limits of one call, and the boxes as they are without spread ties."""

    t_end: float
    rate_tol: float
    stretch: float
    refresh: int
    budget: int
    n_events_max: int
    gap: float
    whole: bool
    lower: FloatArray
    upper: FloatArray


# ---- opening -----------------------------------------------------------------------------------------------------


@jit
def elbow_step(P, S, w):
    """The Newton step on the elbow that removes its residual, into w.x. In place: w. `w.u2` must be the inverse times 1.

    Returns (whether it is worth taking, whether it stays within the boxes, the change of the bias).
    """
    m = S.cnt[M]
    worst = 0.0
    for k in range(m):
        w.b[k] = S.resid[S.elbow[k]]
        worst = max(worst, abs(w.b[k]))
    if worst <= RESTING * size_at(P, S.num[T]):
        return False, True, 0.0
    symmetric_product(S.factor, m, w.b, w.x)
    e = 0.0
    if P.equality:
        top = 0.0
        bottom = 0.0
        for k in range(m):
            top += w.x[k]
            bottom += w.u2[k]
        e = top / bottom
    fits = True
    for k in range(m):
        i = S.elbow[k]
        w.x[k] -= e * w.u2[k]
        fits = fits and S.lower[i] <= S.beta[i] + w.x[k] <= S.upper[i] and abs(w.x[k]) <= SMALL_STEP
    return True, fits, e


@jit
def correct_elbow(P, S, w):
    """Remove the elbow's residual where that fits, otherwise book it as shift. In place: S, w."""
    m = S.cnt[M]
    taken, fits, e = elbow_step(P, S, w)
    taken = taken and fits
    for k in range(m):
        w.moved[0, k] = w.x[k] if taken else 0.0
        w.value[k] += w.moved[0, k]
        if not fits:
            i = S.elbow[k]
            S.base[i] -= S.resid[i]
            S.resid[i] = 0.0
    if taken:
        S.num[BIAS] += e


@jit
def open_direction(S, w, q):
    """u1 = M c for w.b = c; where the last window left one, that one without its error. In place: w, q.

    The rates of the elbow should be zero. What they are instead, times M, is the error of u1: an inverse that is good to
    seven digits so gives a direction that is good to fourteen.
    """
    m = S.cnt[M]
    if q.pace[CARRIED] == UNKNOWN:
        symmetric_product(S.factor, m, w.b, w.u1)
    elif q.pace[CARRIED] == MEASURED:
        for k in range(m):
            w.b[k] = q.rate[S.elbow[k]]
        symmetric_product(S.factor, m, w.b, w.x)
        for k in range(m):
            w.u1[k] -= w.x[k]
    q.pace[CARRIED] = KNOWN
    for k in range(m):
        q.u1[k] = w.u1[k]


@jit
def open_window(P, S, w, q):
    """Slots for the elbow, u1 and u2, the correction of the elbow, rates if nobody has seen them. In place: S, w, q."""
    m = S.cnt[M]
    w.count[SLOTS] = m
    w.count[START] = m
    w.count[STEPS] = 0
    w.count[PENDING] = 0
    for k in range(m):
        i = S.elbow[k]
        w.point[k] = i
        w.dead[k] = 0
        w.spot[k] = -1
        w.start[k] = S.beta[i]
        w.value[k] = S.beta[i]
        w.low[k] = S.lower[i]
        w.high[k] = S.upper[i]
        w.b[k] = P.slope[i]
        w.d[k] = 1.0
    symmetric_product(S.factor, m, w.d, w.u2)
    open_direction(S, w, q)
    correct_elbow(P, S, w)
    if not q.pace[RATED]:
        d0 = 0.0
        if P.equality:
            d0 = dot(w.u1, w.d, m) / dot(w.u2, w.d, m)
        for i in range(q.rate.shape[0]):
            q.rate[i] = d0 - P.slope[i]
        for k in range(m):
            w.x[k] = w.u1[k] - d0 * w.u2[k]
        add_rows(q.rate, P, S, w.x, m)
        q.pace[RATED] = 1


@jit
def smallest(a, n, k):
    """The value at place k of a's first n once sorted. In place: a is partitioned."""
    left = 0
    right = n - 1
    while left < right:
        pivot = a[(left + right) // 2]
        i = left
        j = right
        while i <= j:
            while a[i] < pivot:
                i += 1
            while pivot < a[j]:
                j -= 1
            if i <= j:
                held = a[i]
                a[i] = a[j]
                a[j] = held
                i += 1
                j -= 1
        if k <= j:
            right = j
        elif k >= i:
            left = i
        else:
            break
    return a[k]


@jit(sums=True)
def mean_size(a):
    """The mean of |a|."""
    total = 0.0
    for i in range(a.shape[0]):
        total += abs(a[i])
    return total / a.shape[0]


@jit
def choose_candidates(S, w, q):
    """The points that may meet zero soonest; returns how far in t the others are safe if rates stay. In place: w, q."""
    n = S.side.shape[0]
    slack = 0.5 * mean_size(q.rate) + TINY
    outside = 0
    for i in range(n):
        w.place[i] = -1
        side = S.side[i]
        if side == ELBOW:
            q.score[i] = np.inf
            continue
        approach = -q.rate[i] if side == UP else q.rate[i]
        score = abs(S.resid[i]) / (max(approach, 0.0) + slack)
        q.score[i] = 0.0 if q.wanted[i] else score
        q.work[outside] = q.score[i]
        outside += 1
    want = min(q.pace[WIDTH] + q.pace[WANTED], outside)
    region = np.inf
    if 0 < want < outside:
        region = smallest(q.work, outside, want)
    s = 0
    for i in range(n):
        if q.score[i] < region:
            w.cand[s] = i
            s += 1
    for i in range(n):  # ties with the first that is left out
        if s < want and q.score[i] == region and S.side[i] != ELBOW:
            w.cand[s] = i
            s += 1
    for k in range(s):
        w.place[w.cand[k]] = k
    w.count[CANDIDATES] = s
    return region


@jit
def fill_candidates(P, S, w, q):
    """Kernel values and residuals of the candidates. In place: w."""
    slots = w.count[SLOTS]
    for s in range(w.count[CANDIDATES]):
        i = w.cand[s]
        w.known[s] = 0
        out = w.K[s]
        if P.slot[i] >= 0:  # along a row: neighbouring memory
            row = P.rows[P.slot[i]]
            for k in range(slots):
                out[k] = row[w.point[k]]
        else:
            for k in range(slots):
                out[k] = P.rows[P.slot[w.point[k]], i]
        w.r[s] = S.resid[i] - dot(out, w.moved[0], slots) - (S.num[BIAS] - q.old_num[BIAS])
        w.r_at[0, s] = w.r[s]
    w.t_at[0] = S.num[T]
    w.bias_at[0] = S.num[BIAS]


# ---- the certificate ---------------------------------------------------------------------------------------------


@jit
def residuals_at_thirds(P, S, w, q):
    """Residuals of all points at a third, two thirds and the end, and rates there. In place: q, places of the slots."""
    n_steps = w.count[STEPS]
    slots = w.count[SLOTS]
    first = n_steps // 3
    second = (2 * n_steps) // 3
    for j in range(3):
        step = first if j == 0 else second if j == 1 else n_steps
        dt = w.t_at[step] - q.old_num[T]
        db = w.bias_at[step] - q.old_num[BIAS]
        for i in range(S.side.shape[0]):
            q.at[j, i] = (q.old[2, i] + (S.base[i] - q.old[1, i])) + (dt * P.slope[i] - db)
    d0 = slot_direction(P, w)
    for i in range(S.side.shape[0]):
        q.at[3, i] = P.slope[i] - d0
    for k in range(slots):
        q.coef[0, k] = w.moved[first, k]
        q.coef[1, k] = w.moved[second, k]
        q.coef[2, k] = w.moved[n_steps, k]
        q.coef[3, k] = w.d[k]
        w.place[w.point[k]] = 0
    four_products(P.rows, P.slot, w.point, q.coef, slots, q.at)


@jit
def bend_of(w, q, a, b):
    """How far beta strays from its chord between steps a and b: slots into q.bend, the bias into the column behind.

    Returns (D, D0). K times the bend is known on the slots: residuals there are zero or followed, as are their chords.
    """
    slots = w.count[SLOTS]
    span = w.t_at[a] - w.t_at[b]
    largest = 0.0
    largest_bias = 0.0
    for n in range(a + 1, b):
        theta = (w.t_at[a] - w.t_at[n]) / span if span > 0.0 else 0.0
        out = q.bend[n]
        total = 0.0
        known = 0.0
        for k in range(slots):
            value = w.moved[n, k] - (w.moved[a, k] + theta * (w.moved[b, k] - w.moved[a, k]))
            out[k] = value
            total += value
            s = w.spot[k]
            if s >= 0:
                known += value * (w.r_at[n, s] - (w.r_at[a, s] + theta * (w.r_at[b, s] - w.r_at[a, s])))
        bias = w.bias_at[n] - (w.bias_at[a] + theta * (w.bias_at[b] - w.bias_at[a]))
        out[slots] = bias
        largest = max(largest, -total * bias - known)
        largest_bias = max(largest_bias, abs(bias))
    return np.sqrt(largest), largest_bias


@jit
def crosses_between(P, w, q, i, sign, ends, times):
    """Whether the residual of point i, with values `ends` at two steps, changes sign strictly between. In place: w.b."""
    slots = w.count[SLOTS]
    a, b = times
    span = w.t_at[a] - w.t_at[b]
    for k in range(slots):
        j = w.point[k]
        w.b[k] = P.rows[P.slot[i], j] if P.slot[i] >= 0 else P.rows[P.slot[j], i]
    for n in range(a + 1, b):
        theta = (w.t_at[a] - w.t_at[n]) / span if span > 0.0 else 0.0
        value = ends[0] + theta * (ends[1] - ends[0]) - dot(q.bend[n], w.b, slots) - q.bend[n, slots]
        if sign * value < -10.0 * CROSSED * size_at(P, w.t_at[b]):
            return True
    return False


@jit
def find_objectors(P, S, w, q):
    """Points outside the candidates that changed sign on the way: marked in q.wanted. Returns how many. In place: w, q."""
    n_steps = w.count[STEPS]
    size = size_at(P, w.t_at[n_steps])
    found = 0
    for third in range(3):
        a = (third * n_steps) // 3
        b = ((third + 1) * n_steps) // 3
        D, D0 = 0.0, 0.0
        inside = b > a + 1 and found == 0
        if inside:
            D, D0 = bend_of(w, q, a, b)
        for i in range(S.side.shape[0]):
            if w.place[i] >= 0:
                continue
            sign = 1.0 if S.side[i] == UP else -1.0
            last = q.at[third, i]
            bad = sign * last < -CROSSED * size
            if inside and not bad:
                before = S.resid[i] if third == 0 else q.at[third - 1, i]
                reach = q.root[i] * (D * (1.0 + WIDENED)) + D0 + CROSSED * size_at(P, w.t_at[b])
                if sign * before < reach or sign * last < reach:
                    bad = crosses_between(P, w, q, i, sign, (before, last), (a, b))
            if bad:
                found += q.wanted[i] == 0
                q.wanted[i] = 1
    return found


# ---- afterwards --------------------------------------------------------------------------------------------------


@jit
def keep_state(S, L, q):
    """What a window that is taken back returns to. In place: q."""
    for i in range(S.side.shape[0]):
        q.old[0, i] = S.beta[i]
        q.old[1, i] = S.base[i]
        q.old[2, i] = S.resid[i]
        q.old_side[i] = S.side[i]
    for k in range(S.num.shape[0]):
        q.old_num[k] = S.num[k]
    for k in range(L.end.shape[0]):
        q.old_end[k] = L.end[k]


@jit
def restore_state(S, L, q):
    """Return to where the window began. In place: S, L."""
    for i in range(S.side.shape[0]):
        S.beta[i] = q.old[0, i]
        S.base[i] = q.old[1, i]
        S.resid[i] = q.old[2, i]
        S.side[i] = q.old_side[i]
    for k in range(S.num.shape[0]):
        S.num[k] = q.old_num[k]
    for k in range(L.end.shape[0]):
        L.end[k] = q.old_end[k]


@jit
def take_back(S, L, w, q, found):
    """Undo the window, and make the next one shorter. Returns False when windows should stop. In place: S, L, w, q.

    `found`: so many points object; without any it is the gap.
    """
    restore_state(S, L, q)
    for k in range(w.count[START]):
        w.u1[k] = q.u1[k]
    pace = q.pace
    pace[N_BACK] += 1
    pace[RETRIES] += 1
    pace[WANTED] += found
    pace[WIDTH] = min(S.side.shape[0], int(1.1 * pace[WIDTH]) + 4)
    pace[LENGTH] = max(1, min(pace[LENGTH], w.count[STEPS]) // 2)
    return pace[RETRIES] <= (MOST_RETRIES if found else MOST_SHORTER)


@jit
def flush_inverse(A, w, signed):
    """A += sum sign V V' on the slots: its lower triangle, and what of the upper one is in the way. In place: A, w.V."""
    slots = w.count[SLOTS]
    pending = w.count[PENDING]
    for k in range(w.count[START], slots):
        for j in range(k + 1):
            A[k, j] = 0.0
    for r in range(pending):
        for k in range(slots, slots + COLUMNS_64):
            w.V[r, k] = 0.0
        for k in range(slots + OUTER_ROWS):
            signed[r, k] = w.sign[r] * w.V[r, k]
    for first in range(0, slots, COLUMNS_64):
        for k in range(first, slots, OUTER_ROWS):
            add_outer(A, k, first, signed, w.V, pending)


@jit
def compact(S, w):
    """Fill dead slots with the last live ones, in the inverse, on the elbow and in u1. In place: S, w."""
    A = S.factor
    last = w.count[SLOTS] - 1
    k = 0
    while k <= last:
        # a point may have left one slot for another
        if w.dead[k] == 0 and S.side[w.point[k]] == ELBOW:
            S.elbow[k] = w.point[k]
            k += 1
            continue
        if k < last:
            for j in range(k):
                A[k, j] = A[last, j]
            for j in range(k + 1, last):
                A[j, k] = A[last, j]
            A[k, k] = A[last, last]
            w.point[k] = w.point[last]
            w.dead[k] = w.dead[last]
            w.u1[k] = w.u1[last]
        last -= 1
    S.cnt[M] = k
    S.cnt[M_MAX] = max(S.cnt[M_MAX], k)


@jit
def accept(P, S, w, q, code, gap, course):
    """Take the window over: inverse, slots, rates, the pace of the next one. In place: S, w, q."""
    flush_inverse(S.factor, w, q.bend)
    compact(S, w)
    events = w.count[PENDING]
    S.cnt[N_EVENT] += events
    S.cnt[N_STEP] += w.count[STEPS]
    S.cnt[SINCE] += events
    S.cnt[ZERO_RUN] = 0
    pace = q.pace
    pace[FRESH_FOR] += events
    pace[N_INSIDE] += events
    t = S.num[T]
    for i in range(S.side.shape[0]):
        q.rate[i] = -q.at[3, i]
        S.resid[i] = q.at[2, i]
        q.wanted[i] = 0
    pace[WANTED] = 0
    pace[RETRIES] = 0
    pace[CARRIED] = MEASURED
    pace[LENGTH] = min(LONGEST, 4 * pace[LENGTH])
    if code == LEFT_REGION:
        pace[WIDTH] = min(S.side.shape[0], int(1.25 * pace[WIDTH]) + 8)
    elif code == FULL:
        pace[WIDTH] = max(2 * LONGEST, int(0.97 * pace[WIDTH]))
    worst = 0.0
    for k in range(S.cnt[M]):
        worst = max(worst, abs(S.resid[S.elbow[k]]))
    if worst > RESIDUAL * size_at(P, t) or gap > course.gap:
        S.cnt[SINCE] = course.refresh


@jit
def look_with_care(P, S, w, L, course):
    """Remove the elbow's residual and `look`; the knot just written follows. In place: S, w, L. False: Python does more."""
    m = S.cnt[M]
    for k in range(m):
        w.d[k] = 1.0
    symmetric_product(S.factor, m, w.d, w.u2)
    taken, fits, e = elbow_step(P, S, w)
    if taken and fits:
        for k in range(m):
            S.beta[S.elbow[k]] += w.x[k]
        S.num[BIAS] += e
    if not look(P, S, course.lower, course.upper):
        return False
    S.cnt[SINCE] = 0
    correct_knot(S, L)
    return True


@jit
def why_return(P, S, w, L, code, course):
    """What a window that closed with `code` means for the loop, or -1: go on. In place: S, w, L."""
    if code == NEED_ROW:
        return ROWS
    if code in (NEAR_SINGULAR, TIED):
        return STOPPED
    if code == END and S.num[T] <= course.t_end * (1.0 + ARRIVED):
        return DONE
    far = size_at(P, S.num[T]) < course.stretch * size_at(P, S.num[T_REFRESH])
    due = code == END or S.cnt[SINCE] >= course.refresh or far
    return REFRESH if due and not look_with_care(P, S, w, L, course) else -1


@jit
def fits_log(S, L):
    """Whether the log has room for a whole window."""
    size = S.cnt[M] + ROOM
    return (
        L.end[EVENTS] + ROOM <= L.event_t.shape[0]
        and L.end[KNOTS] + ROOM <= L.knot.shape[0]
        and L.end[VALUES] + (LONGEST + 2) * size <= L.value.shape[0]
    )


@jit
def swapped(S, resid):
    """Exchange the residuals with `resid`. In place: S, resid."""
    for i in range(resid.shape[0]):
        held = S.resid[i]
        S.resid[i] = resid[i]
        resid[i] = held


@jit
def follow_windows(P, S, w, q, L, course):
    """Windows down the path until Python is needed. In place: S, w, q, L. Returns one of the codes above.

    S.factor holds the inverse; after STOPPED and DEFEATED it is of no more use.
    """
    begin = S.cnt[N_EVENT]
    while S.cnt[N_EVENT] - begin < course.budget and S.cnt[N_EVENT] < course.n_events_max:
        if S.cnt[M] + ROOM > w.x.shape[0] or q.pace[WIDTH] + q.pace[WANTED] + ROOM > w.K.shape[0]:
            return GROW
        if not fits_log(S, L):
            return FLUSH
        keep_state(S, L, q)
        open_window(P, S, w, q)
        region = choose_candidates(S, w, q)
        if not course.whole and not q.pace[LOOKED]:
            restore_state(S, L, q)
            q.pace[LOOKED] = 1
            return AHEAD
        q.pace[LOOKED] = 0
        fill_candidates(P, S, w, q)
        steps = min(q.pace[LENGTH], course.n_events_max - S.cnt[N_EVENT])
        code = run_window(P, S, w, L, Closing(course.t_end, region, steps, PIVOT, course.rate_tol))
        for k in range(w.count[SLOTS]):
            if not w.dead[k]:
                S.beta[w.point[k]] = w.value[k]
        q.pace[N_WINDOWS] += 1
        residuals_at_thirds(P, S, w, q)
        found = find_objectors(P, S, w, q)
        gap = np.inf
        if found == 0:
            swapped(S, q.at[2])
            gap = exact_gap(P, S, S.num[T], course.lower, course.upper)
            swapped(S, q.at[2])
        if not gap <= 3.0 * course.gap:
            if not take_back(S, L, w, q, found):
                return DEFEATED
            continue
        accept(P, S, w, q, code, gap, course)
        code = why_return(P, S, w, L, code, course)
        if code >= 0:
            return code
    return BUDGET
