"""A window of events: a lazy explicit inverse of the elbow's matrix, and rates of a few candidates only.

Inside a window the elbow has slots: a point that enters takes the next free slot, one that leaves marks its slot dead.
With M0 the inverse of (K_EE + bump 11') at the start, the present inverse is M = M0 + sum sign V V' with one pending
rank-one term per event, so that entering costs one product with M0 and leaving one column. The direction
d = u1 - d0 u2 with u1 = M c, u2 = M 1 is carried along in O(m). Residuals are followed for the candidates alone;
`path/stretch_jit` checks all others afterwards and takes the window back where they object.

While windows run, the lower triangle of M0 lives where the triangular factor lives otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._jit import jit
from svmcore._types import FloatArray, IntArray
from svmcore.path.elbow_jit import BIAS, BOX, ELBOW, GIVE, LOW, MARGIN, UP, WANT, T, size_at
from svmcore.path.log_jit import VALUES, write_event, write_knot
from svmcore.simd.sums import add_multiple, dot
from svmcore.simd.vector import BIG, fmax, fmin

# why a window closed
FULL, LEFT_REGION, LONG_STEP, HALVED, NEAR_SINGULAR, TIED, NEED_ROW, END = range(8)
# Window.count
SLOTS, CANDIDATES, STEPS, PENDING, START = range(5)

LONG = 0.1  # a step that takes a larger share of t must start from a refined direction
TIE = 1e-12
WIDE = (
    320  # elbow from which on the inverse is too long for the nearest cache: it is then read once for several products
)
AHEAD = 6  # so many
TILE_ROWS, TILE_COLUMNS = 16, 256  # of the inverse that stay in the nearest cache; multiples of 4


class Window(NamedTuple):
    """Scratch of a window; `count` is indexed by the names above."""

    point: IntArray  # slot -> point
    dead: np.ndarray
    spot: IntArray  # slot -> candidate, or -1
    start: FloatArray  # slot -> beta at the start
    value: FloatArray  # slot -> beta now
    low: FloatArray  # slot -> its box
    high: FloatArray
    V: FloatArray  # pending rank-one terms of the inverse, one a row
    sign: FloatArray
    u1: FloatArray
    u2: FloatArray
    d: FloatArray
    x: FloatArray
    b: FloatArray
    B: FloatArray  # several of these, one a row
    chosen: IntArray  # the candidates that they belong to
    step: FloatArray  # slot, then candidate -> the step at which it blocks
    cand: IntArray  # candidate -> point
    place: IntArray  # point -> candidate, or -1
    K: FloatArray  # candidates x slots
    ahead: FloatArray  # candidates x slots at the start: M0 times a row of K, where it is `known`
    known: np.ndarray
    r: FloatArray  # residuals of candidates
    p: FloatArray  # their rates
    moved: FloatArray  # step x slot: beta minus its value at the start
    r_at: FloatArray  # step x candidate
    t_at: FloatArray
    bias_at: FloatArray
    count: IntArray  # type: ignore[assignment]


class Closing(NamedTuple):
    """When to close."""

    t_end: float
    region: float  # how far in t the candidates are safe
    steps: int
    pivot: float
    rate_tol: float


@jit(sums=True)
def product(K, n_rows, d, n, out):
    """out = K d on the first rows and columns, four rows at a time. In place: out."""
    s = 0
    while s + 3 < n_rows:
        a, b, c, e = K[s], K[s + 1], K[s + 2], K[s + 3]
        ta = tb = tc = te = 0.0
        for k in range(n):
            ta += a[k] * d[k]
            tb += b[k] * d[k]
            tc += c[k] * d[k]
            te += e[k] * d[k]
        out[s] = ta
        out[s + 1] = tb
        out[s + 2] = tc
        out[s + 3] = te
        s += 4
    while s < n_rows:
        out[s] = dot(K[s], d, n)
        s += 1


@jit(sums=True)
def symmetric_product(A, n, b, x):
    """x = A b for the symmetric A whose lower triangle is stored: each entry is read once, of four rows together.

    In place: x.
    """
    k = 0
    while k + 3 < n:
        p, q, r, s = A[k], A[k + 1], A[k + 2], A[k + 3]
        bp, bq, br, bs = b[k], b[k + 1], b[k + 2], b[k + 3]
        tp = tq = tr = ts = 0.0
        for j in range(k):
            bj = b[j]
            tp += p[j] * bj
            tq += q[j] * bj
            tr += r[j] * bj
            ts += s[j] * bj
            x[j] += (bp * p[j] + bq * q[j]) + (br * r[j] + bs * s[j])
        x[k] = tp + p[k] * bp + q[k] * bq + r[k] * br + s[k] * bs
        x[k + 1] = tq + q[k] * bp + q[k + 1] * bq + r[k + 1] * br + s[k + 1] * bs
        x[k + 2] = tr + r[k] * bp + r[k + 1] * bq + r[k + 2] * br + s[k + 2] * bs
        x[k + 3] = ts + s[k] * bp + s[k + 1] * bq + s[k + 2] * br + s[k + 3] * bs
        k += 4
    while k < n:
        row = A[k]
        bk = b[k]
        total = 0.0
        for j in range(k):
            total += row[j] * b[j]
            x[j] += bk * row[j]
        x[k] = total + bk * row[k]
        k += 1


@jit(sums=True)
def tile_product(A, top, bottom, left, right, b, x):
    """Add to x what the tile [top, bottom) x [left, right) of the lower triangle gives to A b. In place: x.

    `top` and `left` are multiples of 4, as is `right` where the diagonal lies beyond.
    """
    k = top
    while k + 3 < bottom:
        stop = max(left, min(right, k))
        p, q, r, s = A[k, left:stop], A[k + 1, left:stop], A[k + 2, left:stop], A[k + 3, left:stop]
        bp, bq, br, bs = b[k], b[k + 1], b[k + 2], b[k + 3]
        along, out = b[left:stop], x[left:stop]
        tp = tq = tr = ts = 0.0
        for j in range(stop - left):
            bj = along[j]
            tp += p[j] * bj
            tq += q[j] * bj
            tr += r[j] * bj
            ts += s[j] * bj
            out[j] += (bp * p[j] + bq * q[j]) + (br * r[j] + bs * s[j])
        if left <= k < right:
            tp += A[k, k] * bp + A[k + 1, k] * bq + A[k + 2, k] * br + A[k + 3, k] * bs
            tq += A[k + 1, k] * bp + A[k + 1, k + 1] * bq + A[k + 2, k + 1] * br + A[k + 3, k + 1] * bs
            tr += A[k + 2, k] * bp + A[k + 2, k + 1] * bq + A[k + 2, k + 2] * br + A[k + 3, k + 2] * bs
            ts += A[k + 3, k] * bp + A[k + 3, k + 1] * bq + A[k + 3, k + 2] * br + A[k + 3, k + 3] * bs
        x[k] += tp
        x[k + 1] += tq
        x[k + 2] += tr
        x[k + 3] += ts
        k += 4
    while k < bottom:
        bk = b[k]
        total = 0.0
        for j in range(left, min(right, k)):
            total += A[k, j] * b[j]
            x[j] += bk * A[k, j]
        x[k] += total + (bk * A[k, k] if left <= k < right else 0.0)
        k += 1


@jit
def several_products(A, n, B, X, chosen, count):
    """X[chosen[c]] = A B[c] for c < count, for the symmetric A whose lower triangle is stored: it is read once for all.

    In place: X.
    """
    for c in range(count):
        x = X[chosen[c]]
        for k in range(n):
            x[k] = 0.0
    for top in range(0, n, TILE_ROWS):
        bottom = min(top + TILE_ROWS, n)
        for left in range(0, bottom, TILE_COLUMNS):
            right = min(left + TILE_COLUMNS, bottom)
            for c in range(count):
                tile_product(A, top, bottom, left, right, B[c], X[chosen[c]])


@jit
def look_ahead(P, S, w, s):
    """M0 times the rows of candidate s and, of a wide elbow, of those that may enter next. In place: w."""
    start = w.count[START]
    slots = w.count[SLOTS]
    w.chosen[0] = s
    w.known[s] = 1
    count = 1
    while start >= WIDE and count < AHEAD:
        best = -1
        for c in range(w.count[CANDIDATES]):
            if w.known[c] == 0 and (best < 0 or w.step[slots + c] < w.step[slots + best]):
                best = c
        if best < 0 or not w.step[slots + best] < BIG:
            break
        w.chosen[count] = best
        w.known[best] = 1
        count += 1
    for c in range(count):
        row = w.K[w.chosen[c]]
        b = w.B[c]
        for k in range(start):
            b[k] = row[k] + P.bump
    several_products(S.factor, start, w.B, w.ahead, w.chosen, count)


@jit
def add_pending(w, b, x):
    """Make x = M0 b on the slots of the start x = M b on the slots in use. In place: x."""
    start = w.count[START]
    slots = w.count[SLOTS]
    for k in range(start, slots):
        x[k] = 0.0
    for r in range(w.count[PENDING]):
        add_multiple(x, w.sign[r] * dot(w.V[r], b, slots), w.V[r], slots)
    for k in range(slots):
        if w.dead[k]:
            x[k] = 0.0


@jit
def slot_direction(P, w):
    """d on the slots; returns d0. In place: w.d."""
    slots = w.count[SLOTS]
    d0 = 0.0
    if P.equality:
        top = 0.0
        bottom = 0.0
        for k in range(slots):
            top += w.u1[k]
            bottom += w.u2[k]
        d0 = top / bottom if bottom > 0.0 else 0.0
    for k in range(slots):
        w.d[k] = 0.0 if w.dead[k] else w.u1[k] - d0 * w.u2[k]
    return d0


@jit
def window_direction(P, w):
    """d on the slots and rates of the candidates; returns d0. In place: w."""
    d0 = slot_direction(P, w)
    product(w.K, w.count[CANDIDATES], w.d, w.count[SLOTS], w.p)
    for s in range(w.count[CANDIDATES]):
        w.p[s] += d0 - P.slope[w.cand[s]]
    return d0


@jit
def slot_steps(w, still):
    """The step at which each slot meets its box, `BIG` where it never does. In place: w.step.

    Returns the smallest, and the smallest at which a box is crossed by more than a hair.
    """
    least = BIG
    loose = BIG
    for k in range(w.count[SLOTS]):
        dk = w.d[k]
        size = abs(dk)
        moves = size > still
        speed = size if moves else 1.0
        room = w.value[k] - w.low[k] if dk > 0.0 else w.high[k] - w.value[k]
        h = room / speed if moves else BIG
        w.step[k] = h
        least = fmin(least, h)
        loose = fmin(loose, h + GIVE * (w.high[k] - w.low[k]) / speed)
    return least, loose


@jit
def candidate_step(S, w, s, rate_tol):
    """The step at which candidate s meets zero, or `BIG`."""
    side = S.side[w.cand[s]]
    p = w.p[s]
    if (side == UP and p < -rate_tol) or (side == LOW and p > rate_tol):
        return -w.r[s] / p
    return BIG


@jit
def next_event(P, S, w, longest, rate_tol):
    """(step, candidate or -1, slot or -1): the first event, with the largest rate among ties. In place: w.step."""
    slack = TIE * size_at(P, S.num[T])
    slots = w.count[SLOTS]
    least, loose = slot_steps(w, P.still)
    for s in range(w.count[CANDIDATES]):
        h = candidate_step(S, w, s, rate_tol)
        w.step[slots + s] = h
        if h < BIG:
            least = min(least, h)
            loose = min(loose, h + slack / abs(w.p[s]))
    least = max(least, 0.0)
    if least >= longest:
        return longest, -1, -1
    limit = max(least, min(loose, least + slack))
    best = -1.0
    chosen = -1
    slot = -1
    for k in range(slots):
        if w.step[k] <= limit and abs(w.d[k]) > best:
            best = abs(w.d[k])
            slot = k
    for s in range(w.count[CANDIDATES]):
        if w.step[slots + s] <= limit:
            speed = abs(w.p[s]) / np.sqrt(P.diagonal[w.cand[s]] + P.bump + 1e-300)
            if speed > best:
                best = speed
                chosen = s
                slot = -1
    step = w.step[slots + chosen] if chosen >= 0 else w.step[slot]
    return min(max(step, 0.0), longest), chosen, slot


@jit
def make_step(S, w, h, d0):
    """Decrease t by h, and remember the candidates' residuals. In place: S, w."""
    for k in range(w.count[SLOTS]):
        w.value[k] = fmin(fmax(w.value[k] - h * w.d[k], w.low[k]), w.high[k])
    S.num[BIAS] -= h * d0
    S.num[T] -= h
    n = w.count[STEPS] + 1
    w.count[STEPS] = n
    for s in range(w.count[CANDIDATES]):
        w.r[s] = 0.0 if S.side[w.cand[s]] == ELBOW else w.r[s] + h * w.p[s]
        w.r_at[n, s] = w.r[s]
    w.t_at[n] = S.num[T]
    w.bias_at[n] = S.num[BIAS]


@jit
def remember(w):
    """Record how far every slot has moved, at the present step. In place: w.moved."""
    n = w.count[STEPS]
    for k in range(w.count[SLOTS]):
        w.moved[n, k] = w.value[k] - w.start[k]


@jit
def leave_slot(P, S, w, k):
    """The point of slot k goes to its bound. In place: S, w. Returns False when the inverse has broken down."""
    slots = w.count[SLOTS]
    x = w.x
    start = w.count[START] if k < w.count[START] else 0
    for j in range(start):
        x[j] = S.factor[k, j] if j <= k else S.factor[j, k]
    for j in range(start, slots):
        x[j] = 0.0
    pending = w.count[PENDING]
    for r in range(pending):
        add_multiple(x, w.sign[r] * w.V[r, k], w.V[r], slots)
    for j in range(slots):
        if w.dead[j]:
            x[j] = 0.0
    if not x[k] > 0.0:
        return False
    root = 1.0 / np.sqrt(x[k])
    v = w.V[pending]
    for j in range(slots):
        v[j] = x[j] * root
    w.sign[pending] = -1.0
    w.count[PENDING] = pending + 1
    add_multiple(w.u1, -w.u1[k] * root, v, slots)
    add_multiple(w.u2, -w.u2[k] * root, v, slots)
    w.u1[k] = 0.0
    w.u2[k] = 0.0
    w.dead[k] = 1
    s = w.spot[k]
    i = w.point[k]
    if s < 0:
        s = w.count[CANDIDATES]
        w.count[CANDIDATES] = s + 1
        w.cand[s] = i
        w.place[i] = s
        w.known[s] = 0
        w.spot[k] = s
        row = P.rows[P.slot[i]]
        for j in range(slots):
            w.K[s, j] = row[w.point[j]]
        for n in range(w.count[STEPS] + 1):
            w.r_at[n, s] = 0.0
    w.r[s] = 0.0
    return True


@jit
def open_slot(P, S, w, s):
    """Candidate s takes the next slot, with u1, u2 and d zero there and no past. In place: w."""
    slots = w.count[SLOTS]
    i = w.cand[s]
    w.count[SLOTS] = slots + 1
    w.point[slots] = i
    w.dead[slots] = 0
    w.spot[slots] = s
    w.start[slots] = S.beta[i]
    w.value[slots] = S.beta[i]
    w.low[slots] = S.lower[i]
    w.high[slots] = S.upper[i]
    w.u1[slots] = 0.0
    w.u2[slots] = 0.0
    w.d[slots] = 0.0
    for r in range(w.count[PENDING]):
        w.V[r, slots] = 0.0
    for n in range(w.count[STEPS] + 1):
        w.moved[n, slots] = 0.0
    row = P.rows[P.slot[i]]
    for c in range(w.count[CANDIDATES]):
        w.K[c, slots] = row[w.cand[c]]


@jit
def enter_slot(P, S, w, s, least_pivot):
    """Candidate s takes a new slot. In place: w. Returns False (nothing changed) when its pivot is too small."""
    slots = w.count[SLOTS]
    i = w.cand[s]
    if not w.known[s]:
        look_ahead(P, S, w, s)
    for k in range(w.count[START]):
        w.x[k] = w.ahead[s, k]
    for k in range(slots):  # of dead slots too: M is zero there
        w.b[k] = w.K[s, k] + P.bump
    add_pending(w, w.b, w.x)
    whole = P.diagonal[i] + P.bump
    pivot = whole - dot(w.x, w.b, slots)
    if not pivot > least_pivot * whole:
        return False
    root = 1.0 / np.sqrt(pivot)
    v = w.V[w.count[PENDING]]
    with_c = 0.0
    with_one = 0.0
    for k in range(slots):
        with_c += w.x[k] * P.slope[w.point[k]]
        with_one += w.x[k]
        v[k] = -w.x[k] * root
    open_slot(P, S, w, s)
    v[slots] = root
    add_multiple(w.u1, (P.slope[i] - with_c) * root, v, slots + 1)
    add_multiple(w.u2, (1.0 - with_one) * root, v, slots + 1)
    w.sign[w.count[PENDING]] = 1.0
    w.count[PENDING] += 1
    return True


@jit
def log_knot(S, w, L):
    """Append a knot: t, bias, and the values of the slots in use. In place: L."""
    v = L.end[VALUES]
    m = 0
    for k in range(w.count[SLOTS]):
        if not w.dead[k]:
            L.index[v + m] = w.point[k]
            L.value[v + m] = w.value[k]
            m += 1
    write_knot(L, S.num[T], S.num[BIAS], m)


@jit
def run_window(P, S, w, L, limits):
    """Events until the window is full or must close. In place: S, w, L. Returns why it closed."""
    begin = S.num[T]
    zero = 0
    while w.count[STEPS] < limits.steps:
        t = S.num[T]
        d0 = window_direction(P, w)
        size = size_at(P, t)
        longest = min(t - limits.t_end, 0.5 * size)
        h, s, k = next_event(P, S, w, longest, limits.rate_tol)
        first = w.count[STEPS] == 0
        if begin - (t - h) > limits.region and not first:
            return LEFT_REGION
        if h > LONG * size and not first:
            return LONG_STEP
        if s >= 0 and P.slot[w.cand[s]] < 0:
            S.cnt[WANT] = w.cand[s]
            return NEED_ROW
        # decide before moving: what cannot enter here is left to the tracker with the factor
        if s >= 0 and not enter_slot(P, S, w, s, limits.pivot):
            return NEAR_SINGULAR
        make_step(S, w, h, d0)
        if k >= 0:
            w.value[k] = w.low[k] if w.d[k] > 0.0 else w.high[k]
        remember(w)
        if h > 0.0:
            log_knot(S, w, L)
        zero = zero + 1 if h <= TIE * size else 0
        if k >= 0:
            i = w.point[k]
            side = LOW if w.d[k] > 0.0 else UP
            S.beta[i] = w.value[k]
            S.side[i] = side
            write_event(L, S.num[T], i, ELBOW, side, BOX)
            if not leave_slot(P, S, w, k):
                return NEAR_SINGULAR
        elif s >= 0:
            i = w.cand[s]
            write_event(L, S.num[T], i, S.side[i], ELBOW, MARGIN)
            S.side[i] = ELBOW
            S.base[i] -= w.r[s]
            w.r[s] = 0.0
        else:
            return END
        if zero >= 30:
            return TIED
        if size_at(P, S.num[T]) < 0.5 * size_at(P, begin):
            return HALVED
    return FULL


@jit
def four_products(rows, slot, point, coef, n_slots, out):
    """out[j] -= K[:, slots] coef[j] for four j, in one pass over the rows. In place: out."""
    n = out.shape[1]
    width = 1024
    for start in range(0, n, width):
        stop = min(start + width, n)
        k = 0
        while k + 3 < n_slots:
            q, u = rows[slot[point[k]], start:stop], rows[slot[point[k + 1]], start:stop]
            v, z = rows[slot[point[k + 2]], start:stop], rows[slot[point[k + 3]], start:stop]
            for j in range(4):
                to, c = out[j, start:stop], coef[j]
                c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
                for i in range(stop - start):
                    to[i] -= (c0 * q[i] + c1 * u[i]) + (c2 * v[i] + c3 * z[i])
            k += 4
        while k < n_slots:
            q = rows[slot[point[k]], start:stop]
            for j in range(4):
                to, c0 = out[j, start:stop], coef[j, k]
                for i in range(stop - start):
                    to[i] -= c0 * q[i]
            k += 1
