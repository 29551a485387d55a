"""Windows of events for the fast tracker: a lazy explicit inverse, and rates of a few candidates only.

Inside a window the elbow has slots: a point that enters takes the next free slot, one that leaves marks its slot dead.
With M0 the inverse of (K_EE + bump 11') at the start, the present inverse is M = M0 + sum VP VP' - sum VM VM' with one
pending rank-one term per event, so that entering costs one product with M0 and leaving one column. The direction
d = u1 - d0 u2 with u1 = M c, u2 = M 1 is carried along in O(m). Residuals are followed for the candidates alone; the
Python side checks all others afterwards (`_window.py`) and takes the window back where they object.

Reference: path2.md, section 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._jit import jit
from svmcore._types import FloatArray, IntArray

_STAMP = "9895f7a49f5a"

LOW, UP, ELBOW = 0, 1, 2
T, BIAS = 0, 1

# why a window closed
FULL, LEFT_REGION, LONG_STEP, HALVED, NEAR_SINGULAR, TIED, NEED_ROW, END = 0, 1, 2, 3, 4, 5, 6, 7
# Window.count
SLOTS, LIVE, CANDIDATES, STEPS, ADDED, REMOVED, START, WANTED, ZERO = 0, 1, 2, 3, 4, 5, 6, 7, 8

MOVES = 1e-13
LONG = 0.1  # a step that takes a larger share of t must start from a refined direction
TIE = 1e-12
GIVE = 1e-12
BOX, MARGIN = 0, 1


class Window(NamedTuple):
    """Scratch of a window; `count` is indexed by the names above."""

    point: IntArray  # slot -> point
    dead: np.ndarray
    spot: IntArray  # slot -> candidate, or -1
    start: FloatArray  # slot -> beta at the start
    M0: FloatArray  # its lower triangle
    VP: FloatArray
    VM: FloatArray
    u1: FloatArray
    u2: FloatArray
    d: FloatArray
    x: FloatArray
    b: FloatArray
    cand: IntArray  # candidate -> point
    place: IntArray  # point -> candidate, or -1
    K: FloatArray  # candidates x slots
    r: FloatArray  # residuals of candidates
    p: FloatArray  # their rates
    moved: FloatArray  # step x slot: beta minus its value at the start
    r_at: FloatArray  # step x candidate
    t_at: FloatArray
    bias_at: FloatArray
    count: IntArray  # type: ignore[assignment]


class Field(NamedTuple):
    """The tracker's arrays that a window reads and changes."""

    rows: FloatArray
    slot: IntArray
    diagonal: FloatArray
    slope: FloatArray
    beta: FloatArray
    base: FloatArray
    lower: FloatArray
    upper: FloatArray
    side: np.ndarray
    num: FloatArray
    bump: float
    equality: bool


class Limits(NamedTuple):
    """When to close."""

    t_end: float
    region: float  # how far in t the candidates are safe
    steps: int
    pivot: float
    rate_tol: float


@jit(sums=True)
def dot(a, b, n):
    """sum of a_j b_j over j < n."""
    total = 0.0
    for j in range(n):
        total += a[j] * b[j]
    return total


@jit
def axpy(out, f, v, n):
    """out += f v on the first n. In place: out."""
    for j in range(n):
        out[j] += f * v[j]


@jit(sums=True)
def symmetric_product(M, n, b, x):
    """x = M b for the symmetric M whose lower triangle is stored: each entry is read once. In place: x."""
    for k in range(n):
        row = M[k]
        bk = b[k]
        total = 0.0
        for j in range(k):
            total += row[j] * b[j]
            x[j] += bk * row[j]
        x[k] = total + bk * row[k]


@jit
def move_last(M, last, k):
    """Row and column `last` of the symmetric M take the place of row and column k < last. In place: M."""
    for j in range(k):
        M[k, j] = M[last, j]
    for j in range(k + 1, last):
        M[j, k] = M[last, j]
    M[k, k] = M[last, last]


@jit
def apply_inverse(w, b, x):
    """x = M b on the slots in use, b zero on dead slots. In place: x."""
    start = w.count[START]
    slots = w.count[SLOTS]
    symmetric_product(w.M0, start, b, x)
    for k in range(start, slots):
        x[k] = 0.0
    for r in range(w.count[ADDED]):
        axpy(x, dot(w.VP[r], b, slots), w.VP[r], slots)
    for r in range(w.count[REMOVED]):
        axpy(x, -dot(w.VM[r], b, slots), w.VM[r], slots)
    for k in range(slots):
        if w.dead[k]:
            x[k] = 0.0


@jit
def open_window(f, w, step, bias_step):
    """Fill candidates' kernel values and rates; apply a correction `step` of the elbow. In place: f, w."""
    slots = w.count[SLOTS]
    for s in range(w.count[CANDIDATES]):
        i = w.cand[s]
        if f.slot[i] >= 0:  # along a row: neighbouring memory
            row = f.rows[f.slot[i]]
            for k in range(slots):
                w.K[s, k] = row[w.point[k]]
        else:
            for k in range(slots):
                w.K[s, k] = f.rows[f.slot[w.point[k]], i]
    for k in range(slots):
        f.beta[w.point[k]] += step[k]
        w.moved[0, k] = step[k]
    for k in range(slots, w.moved.shape[1]):
        w.moved[0, k] = 0.0
    f.num[BIAS] += bias_step
    for s in range(w.count[CANDIDATES]):
        w.r[s] -= dot(w.K[s], step, slots) + bias_step
        w.r_at[0, s] = w.r[s]
    w.t_at[0] = f.num[T]
    w.bias_at[0] = f.num[BIAS]


@jit
def window_direction(f, w):
    """d on the slots and rates of the candidates; returns d0. In place: w."""
    slots = w.count[SLOTS]
    d0 = 0.0
    if f.equality:
        top = 0.0
        bottom = 0.0
        for k in range(slots):
            top += w.u1[k]
            bottom += w.u2[k]
        d0 = top / bottom if bottom > 0.0 else 0.0
    for k in range(slots):
        w.d[k] = 0.0 if w.dead[k] else w.u1[k] - d0 * w.u2[k]
    for s in range(w.count[CANDIDATES]):
        w.p[s] = dot(w.K[s], w.d, slots) + d0 - f.slope[w.cand[s]]
    return d0


@jit
def candidate_step(f, w, s, rate_tol):
    """The step at which candidate s meets zero, or infinity."""
    side = f.side[w.cand[s]]
    p = w.p[s]
    if (side == UP and p < -rate_tol) or (side == LOW and p > rate_tol):
        return -w.r[s] / p
    return np.inf


@jit
def slot_step(f, w, k):
    """The step at which slot k meets its box, or infinity."""
    dk = w.d[k]
    if w.dead[k] or abs(dk) <= MOVES:
        return np.inf
    i = w.point[k]
    return (f.beta[i] - (f.lower[i] if dk > 0.0 else f.upper[i])) / dk


@jit
def next_event(f, w, longest, rate_tol):
    """(step, candidate or -1, slot or -1): the first event, with the largest rate among ties."""
    t = f.num[T]
    least = longest
    loose = np.inf
    for k in range(w.count[SLOTS]):
        h = slot_step(f, w, k)
        if h < np.inf:
            least = min(least, h)
            i = w.point[k]
            loose = min(loose, h + GIVE * (f.upper[i] - f.lower[i]) / abs(w.d[k]))
    for s in range(w.count[CANDIDATES]):
        h = candidate_step(f, w, s, rate_tol)
        if h < np.inf:
            least = min(least, h)
            loose = min(loose, h + TIE * t / abs(w.p[s]))
    least = max(least, 0.0)
    if least >= longest:
        return longest, -1, -1
    limit = max(least, min(loose, least + TIE * t))
    best = -1.0
    chosen = -1
    slot = -1
    step = least
    for k in range(w.count[SLOTS]):
        h = slot_step(f, w, k)
        if h <= limit and abs(w.d[k]) > best:
            best = abs(w.d[k])
            slot = k
            step = h
    for s in range(w.count[CANDIDATES]):
        h = candidate_step(f, w, s, rate_tol)
        speed = abs(w.p[s]) / np.sqrt(f.diagonal[w.cand[s]] + f.bump + 1e-300)
        if h <= limit and speed > best:
            best = speed
            chosen = s
            slot = -1
            step = h
    return min(max(step, 0.0), longest), chosen, slot


@jit
def make_step(f, w, h, d0):
    """Decrease t by h, and remember where everything is. In place: f, w."""
    slots = w.count[SLOTS]
    for k in range(slots):
        if not w.dead[k]:
            i = w.point[k]
            f.beta[i] = min(max(f.beta[i] - h * w.d[k], f.lower[i]), f.upper[i])
    f.num[BIAS] -= h * d0
    f.num[T] -= h
    n = w.count[STEPS] + 1
    w.count[STEPS] = n
    for s in range(w.count[CANDIDATES]):
        if f.side[w.cand[s]] == ELBOW:
            w.r[s] = 0.0
        else:
            w.r[s] += h * w.p[s]
        w.r_at[n, s] = w.r[s]
    w.t_at[n] = f.num[T]
    w.bias_at[n] = f.num[BIAS]


@jit
def remember(f, w):
    """Record how far every slot has moved, at the present step. In place: w.moved."""
    n = w.count[STEPS]
    slots = w.count[SLOTS]
    for k in range(slots):
        w.moved[n, k] = w.moved[n - 1, k] if w.dead[k] else f.beta[w.point[k]] - w.start[k]
    for k in range(slots, w.moved.shape[1]):
        w.moved[n, k] = 0.0


@jit
def leave_slot(f, w, k):
    """The point of slot k goes to its bound. In place: f, w. Returns False when the inverse has broken down."""
    slots = w.count[SLOTS]
    x = w.x
    start = w.count[START] if k < w.count[START] else 0
    for j in range(start):
        x[j] = w.M0[k, j] if j <= k else w.M0[j, k]
    for j in range(start, slots):
        x[j] = 0.0
    for r in range(w.count[ADDED]):
        axpy(x, w.VP[r, k], w.VP[r], slots)
    for r in range(w.count[REMOVED]):
        axpy(x, -w.VM[r, k], w.VM[r], slots)
    for j in range(slots):
        if w.dead[j]:
            x[j] = 0.0
    if not x[k] > 0.0:
        return False
    root = 1.0 / np.sqrt(x[k])
    v = w.VM[w.count[REMOVED]]
    for j in range(slots):
        v[j] = x[j] * root
    for j in range(slots, v.shape[0]):
        v[j] = 0.0
    axpy(w.u1, -w.u1[k] * root, v, slots)
    axpy(w.u2, -w.u2[k] * root, v, slots)
    w.u1[k] = 0.0
    w.u2[k] = 0.0
    w.count[REMOVED] += 1
    w.count[LIVE] -= 1
    w.dead[k] = 1
    s = w.spot[k]
    i = w.point[k]
    if s < 0:
        s = w.count[CANDIDATES]
        w.count[CANDIDATES] = s + 1
        w.cand[s] = i
        w.place[i] = s
        w.spot[k] = s
        row = f.rows[f.slot[i]]
        for j in range(slots):
            w.K[s, j] = row[w.point[j]]
        for n in range(w.count[STEPS] + 1):
            w.r_at[n, s] = 0.0
    w.r[s] = 0.0
    return True


@jit
def enter_slot(f, w, s, least_pivot):
    """Candidate s takes a new slot. In place: f, w. Returns False (nothing changed) when its pivot is too small."""
    slots = w.count[SLOTS]
    i = w.cand[s]
    for k in range(slots):
        w.b[k] = 0.0 if w.dead[k] else w.K[s, k] + f.bump
    apply_inverse(w, w.b, w.x)
    whole = f.diagonal[i] + f.bump
    pivot = whole - dot(w.x, w.b, slots)
    if not pivot > least_pivot * whole:
        return False
    root = 1.0 / np.sqrt(pivot)
    v = w.VP[w.count[ADDED]]
    with_c = 0.0
    with_one = 0.0
    for k in range(slots):
        with_c += w.x[k] * f.slope[w.point[k]]
        with_one += w.x[k]
        v[k] = -w.x[k] * root
    v[slots] = root
    for k in range(slots + 1, v.shape[0]):
        v[k] = 0.0
    w.u1[slots] = 0.0
    w.u2[slots] = 0.0
    axpy(w.u1, (f.slope[i] - with_c) * root, v, slots + 1)
    axpy(w.u2, (1.0 - with_one) * root, v, slots + 1)
    w.count[ADDED] += 1
    w.count[LIVE] += 1
    w.count[SLOTS] = slots + 1
    w.point[slots] = i
    w.dead[slots] = 0
    w.spot[slots] = s
    w.start[slots] = f.beta[i]
    row = f.rows[f.slot[i]]
    for c in range(w.count[CANDIDATES]):
        w.K[c, slots] = row[w.cand[c]]
    f.base[i] -= w.r[s]
    w.r[s] = 0.0
    return True


@jit
def write_event(L, t, i, old, new, cause):
    """Append an event to the tracker's log. In place: L."""
    k = L.end[0]
    L.event_t[k] = t
    L.event_index[k] = i
    L.event_move[k, 0] = old
    L.event_move[k, 1] = new
    L.event_move[k, 2] = cause
    L.end[0] = k + 1


@jit
def write_knot(f, w, L):
    """Append a knot to the tracker's log. In place: L."""
    k = L.end[1]
    v = L.end[2]
    m = 0
    for j in range(w.count[SLOTS]):
        if not w.dead[j]:
            i = w.point[j]
            L.index[v + m] = i
            L.value[v + m] = f.beta[i]
            m += 1
    L.knot[k, 0] = f.num[T]
    L.knot[k, 1] = f.num[BIAS]
    L.knot_at[k, 0] = L.end[0]
    L.knot_at[k, 1] = m
    L.end[1] = k + 1
    L.end[2] = v + m


@jit
def run_window(f, w, L, limits):
    """Events until the window is full or must close. In place: f, w, L. Returns why it closed."""
    begin = f.num[T]
    zero = 0
    while w.count[STEPS] < limits.steps:
        t = f.num[T]
        d0 = window_direction(f, w)
        longest = min(t - limits.t_end, 0.5 * t)
        h, s, k = next_event(f, w, longest, limits.rate_tol)
        first = w.count[STEPS] == 0
        if begin - (t - h) > limits.region and not first:
            return LEFT_REGION
        if h > LONG * t and not first:
            return LONG_STEP
        if s >= 0 and f.slot[w.cand[s]] < 0:
            w.count[WANTED] = w.cand[s]
            return NEED_ROW
        if s >= 0:  # decide before moving: what cannot enter here is left to the tracker with the factor
            slots = w.count[SLOTS]
            held = w.r[s]
            w.r[s] = 0.0
            fits = enter_slot(f, w, s, limits.pivot)
            if not fits:
                w.r[s] = held
                return NEAR_SINGULAR
            w.r[s] = held
            w.d[slots] = 0.0
        make_step(f, w, h, d0)
        if k >= 0:
            i = w.point[k]
            f.beta[i] = f.lower[i] if w.d[k] > 0.0 else f.upper[i]
        remember(f, w)
        if h > 0.0:
            write_knot(f, w, L)
        zero = zero + 1 if h <= TIE * t else 0
        if k >= 0:
            i = w.point[k]
            side = LOW if w.d[k] > 0.0 else UP
            f.side[i] = side
            write_event(L, f.num[T], i, ELBOW, side, BOX)
            if not leave_slot(f, w, k):
                return NEAR_SINGULAR
        elif s >= 0:
            i = w.cand[s]
            write_event(L, f.num[T], i, f.side[i], ELBOW, MARGIN)
            f.side[i] = ELBOW
            f.base[i] -= w.r[s]
            w.r[s] = 0.0
        else:
            return END
        if zero >= 30:
            return TIED
        if f.num[T] < 0.5 * begin:
            return HALVED
    return FULL


@jit
def add_weighted_rows(out, rows, slot, coef):
    """out += sum_k coef_k rows[slot_k]. In place: out."""
    n = out.shape[0]
    width = 2048
    for start in range(0, n, width):
        stop = min(start + width, n)
        o = out[start:stop]
        k = 0
        while k + 3 < slot.shape[0]:
            a = rows[slot[k], start:stop]
            b = rows[slot[k + 1], start:stop]
            c = rows[slot[k + 2], start:stop]
            d = rows[slot[k + 3], start:stop]
            a0, b0, c0, d0 = coef[k], coef[k + 1], coef[k + 2], coef[k + 3]
            for i in range(stop - start):
                o[i] += (a0 * a[i] + b0 * b[i]) + (c0 * c[i] + d0 * d[i])
            k += 4
        while k < slot.shape[0]:
            a = rows[slot[k], start:stop]
            a0 = coef[k]
            for i in range(stop - start):
                o[i] += a0 * a[i]
            k += 1


@jit
def copy_block(out, rows, slot, index, columns):
    """out = K[index, columns]. In place: out."""
    for k in range(index.shape[0]):
        row = rows[slot[index[k]]]
        for j in range(columns.shape[0]):
            out[k, j] = row[columns[j]]


@jit
def three_products(rows, slot, point, a, b, c, n_slots, out_a, out_b, out_c):
    """out -= K[:, slots] times a, b and c in one pass over the rows. In place: out_a, out_b, out_c."""
    n = out_a.shape[0]
    width = 1024
    for start in range(0, n, width):
        stop = min(start + width, n)
        oa = out_a[start:stop]
        ob = out_b[start:stop]
        oc = out_c[start:stop]
        k = 0
        while k + 1 < n_slots:
            q = rows[slot[point[k]], start:stop]
            u = rows[slot[point[k + 1]], start:stop]
            a0, b0, c0 = a[k], b[k], c[k]
            a1, b1, c1 = a[k + 1], b[k + 1], c[k + 1]
            for i in range(stop - start):
                oa[i] -= a0 * q[i] + a1 * u[i]
                ob[i] -= b0 * q[i] + b1 * u[i]
                oc[i] -= c0 * q[i] + c1 * u[i]
            k += 2
        if k < n_slots:
            q = rows[slot[point[k]], start:stop]
            a0, b0, c0 = a[k], b[k], c[k]
            for i in range(stop - start):
                oa[i] -= a0 * q[i]
                ob[i] -= b0 * q[i]
                oc[i] -= c0 * q[i]
