"""A window of events: a lazy explicit inverse of the elbow's matrix, and rates of a few candidates only.

Inside a window the elbow has slots. A point that enters takes the next free slot. One that leaves marks its slot as dead.
M0 is the inverse of (K_EE + bump 11') at the start. The present inverse is M = M0 + sum sign v v', with one pending
rank-one term v for each event. So a point that enters costs one product with M0, and one that leaves costs one column. The
direction is M slope - bias_rate M 1. Its two parts, `solved_slope` and `solved_one`, are kept up to date in O(m) each.

Residuals are followed for the candidates alone. `path/stretch_jit` checks all other points afterwards. If they object, it
takes the window back.

In loops k and j count slots, s candidates, i points, n steps and r pending terms. While windows run, the lower triangle of
M0 is in the array that holds the triangular factor otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import NONZERO, FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.path.elbow_jit import BIAS, BOX, ELBOW, GIVE, LOW, MARGIN, N_ELBOW, NOW, UP, WANT, size_at
from svmcore.path.log_jit import KNOTS, VALUES, write_event, write_knot
from svmcore.path.products_jit import product, symmetric_product
from svmcore.simd.sums import add_multiple, dot
from svmcore.simd.vector import BIG, fmax, fmin

# The reasons why a window closes.
FULL, LEFT_REGION, LONG_STEP, HALVED, NEAR_SINGULAR, TIED, NEED_ROW, END = range(8)
# Places in Window.count.
SLOTS, CANDIDATES, STEPS, PENDING, START = range(5)

LONG = 0.1  # a step that takes a larger share of t must start from a direction that was just refined
TIE = 1e-12  # events that are closer than this, relative to the size of the linear term, happen at the same time
# An elbow residual below the share RESTING of the linear term's size is rounding. A Newton step that would remove a larger
# one is not taken where it moves a value by more than SMALL_STEP.
RESTING, SMALL_STEP = 1e-15, 1e-6
WIDENED = 1e-6  # bounds on deviations are widened by this share of themselves, because of rounding


class Window(NamedTuple):
    """Scratch of a window. `count` is indexed by the names above."""

    point: IntArray  # slot -> point
    dead: np.ndarray
    spot: IntArray  # slot -> candidate, or -1
    start: FloatArray  # slot -> beta at the start
    value: FloatArray  # slot -> beta now
    low: FloatArray  # slot -> lower end of the box
    high: FloatArray
    terms: FloatArray  # the pending rank-one terms of the inverse, one in a row
    sign: FloatArray
    solved_slope: FloatArray  # slot -> the inverse times the slopes
    solved_one: FloatArray  # slot -> the inverse times ones
    direction: FloatArray
    solution: FloatArray  # scratch: the inverse times `right`
    right: FloatArray  # scratch: a right hand side
    step: FloatArray  # slot, then candidate -> the step at which it blocks
    cand: IntArray  # candidate -> point
    place: IntArray  # point -> candidate, or -1
    kernel: FloatArray  # candidates x slots
    resid: FloatArray  # residuals of candidates
    rate: FloatArray  # their rates
    knots: IntArray  # step -> knots in the log so far
    moved: FloatArray  # step x slot: beta minus its value at the start
    resid_at: FloatArray  # step x candidate
    t_at: FloatArray
    bias_at: FloatArray
    count: IntArray  # type: ignore[assignment]


class Closing(NamedTuple):
    """When a window closes."""

    t_end: float
    region: float  # how far in t the candidates are safe
    steps: int
    pivot: float
    rate_tol: float


@jit
def elbow_step(setting, state, window):
    """The Newton step on the elbow that removes its residual. In place: window, with the step in window.solution.

    `window.solved_one` must be up to date. Returns (whether the step is worth taking, whether it is small and stays within
    the boxes, the change of the bias).
    """
    m = state.cnt[N_ELBOW]
    worst = 0.0
    for k in range(m):
        window.right[k] = state.resid[state.elbow[k]]
        worst = max(worst, abs(window.right[k]))
    if worst <= RESTING * size_at(setting, state.num[NOW]):
        return False, True, 0.0
    symmetric_product(state.factor, m, window.right, window.solution)
    bias_change = 0.0
    if setting.equality:
        top = 0.0
        bottom = 0.0
        for k in range(m):
            top += window.solution[k]
            bottom += window.solved_one[k]
        bias_change = top / bottom
    fits = True
    for k in range(m):
        i = state.elbow[k]
        window.solution[k] -= bias_change * window.solved_one[k]
        inside = state.lower[i] <= state.beta[i] + window.solution[k] <= state.upper[i]
        fits = fits and inside and abs(window.solution[k]) <= SMALL_STEP
    return True, fits, bias_change


@jit
def step_size(window, m, bias_change):
    """How far the step of `elbow_step` moves K beta + bias: (reach, shift), as `path/record.Track` explains them."""
    square = fmax(dot(window.solution, window.right, m), 0.0)
    return np.sqrt(square) * (1.0 + WIDENED), abs(bias_change)


@jit
def add_pending(window, b, x):
    """Turn x = M0 b, on the slots of the start, into x = M b, on all slots in use. In place: x."""
    start = window.count[START]
    slots = window.count[SLOTS]
    for k in range(start, slots):
        x[k] = 0.0
    for r in range(window.count[PENDING]):
        add_multiple(x, window.sign[r] * dot(window.terms[r], b, slots), window.terms[r], slots)
    for k in range(slots):
        if window.dead[k]:
            x[k] = 0.0


@jit
def slot_direction(setting, window):
    """The direction on the slots. In place: window.direction. Returns the rate of the bias."""
    slots = window.count[SLOTS]
    bias_rate = 0.0
    if setting.equality:
        top = 0.0
        bottom = 0.0
        for k in range(slots):
            top += window.solved_slope[k]
            bottom += window.solved_one[k]
        bias_rate = top / bottom if bottom > 0.0 else 0.0
    for k in range(slots):
        window.direction[k] = 0.0 if window.dead[k] else window.solved_slope[k] - bias_rate * window.solved_one[k]
    return bias_rate


@jit
def window_direction(setting, window):
    """The direction on the slots, and rates of the candidates. In place: window. Returns the rate of the bias."""
    bias_rate = slot_direction(setting, window)
    product(window.kernel, window.count[CANDIDATES], window.direction, window.count[SLOTS], window.rate)
    for s in range(window.count[CANDIDATES]):
        window.rate[s] += bias_rate - setting.slope[window.cand[s]]
    return bias_rate


@jit
def slot_steps(window, still):
    """The step at which each slot meets its box, or `BIG` where it never does. In place: window.step.

    Returns the smallest of these steps, and the smallest step that crosses a box by the share GIVE of its width.
    """
    least = BIG
    loose = BIG
    for k in range(window.count[SLOTS]):
        rate = window.direction[k]
        size = abs(rate)
        moves = size > still
        speed = size if moves else 1.0
        room = window.value[k] - window.low[k] if rate > 0.0 else window.high[k] - window.value[k]
        fall = room / speed if moves else BIG
        window.step[k] = fall
        least = fmin(least, fall)
        loose = fmin(loose, fall + GIVE * (window.high[k] - window.low[k]) / speed)
    return least, loose


@jit
def candidate_step(state, window, s, rate_tol):
    """The step at which the residual of candidate s meets zero, or `BIG`."""
    side = state.side[window.cand[s]]
    rate = window.rate[s]
    if (side == UP and rate < -rate_tol) or (side == LOW and rate > rate_tol):
        return -window.resid[s] / rate
    return BIG


@jit
def next_event(setting, state, window, longest, rate_tol):
    """The first event: (step, candidate or -1, slot or -1). Of ties it is that with the largest rate.

    In place: window.step.
    """
    slack = TIE * size_at(setting, state.num[NOW])
    slots = window.count[SLOTS]
    least, loose = slot_steps(window, setting.still)
    for s in range(window.count[CANDIDATES]):
        fall = candidate_step(state, window, s, rate_tol)
        window.step[slots + s] = fall
        if fall < BIG:
            least = min(least, fall)
            loose = min(loose, fall + slack / abs(window.rate[s]))
    least = max(least, 0.0)
    if least >= longest:
        return longest, -1, -1
    limit = max(least, min(loose, least + slack))
    best = -1.0
    chosen = -1
    slot = -1
    for k in range(slots):
        if window.step[k] <= limit and abs(window.direction[k]) > best:
            best = abs(window.direction[k])
            slot = k
    for s in range(window.count[CANDIDATES]):
        if window.step[slots + s] <= limit:
            speed = abs(window.rate[s]) / np.sqrt(setting.diagonal[window.cand[s]] + setting.bump + NONZERO)
            if speed > best:
                best = speed
                chosen = s
                slot = -1
    step = window.step[slots + chosen] if chosen >= 0 else window.step[slot]
    return min(max(step, 0.0), longest), chosen, slot


@jit
def make_step(state, window, fall, bias_rate):
    """Decrease t by `fall`, and remember the candidates' residuals. In place: state, window."""
    for k in range(window.count[SLOTS]):
        window.value[k] = fmin(fmax(window.value[k] - fall * window.direction[k], window.low[k]), window.high[k])
    state.num[BIAS] -= fall * bias_rate
    state.num[NOW] -= fall
    n = window.count[STEPS] + 1
    window.count[STEPS] = n
    for s in range(window.count[CANDIDATES]):
        window.resid[s] = 0.0 if state.side[window.cand[s]] == ELBOW else window.resid[s] + fall * window.rate[s]
        window.resid_at[n, s] = window.resid[s]
    window.t_at[n] = state.num[NOW]
    window.bias_at[n] = state.num[BIAS]


@jit
def remember(window):
    """Record how far every slot has moved, at the present step. In place: window.moved."""
    n = window.count[STEPS]
    for k in range(window.count[SLOTS]):
        window.moved[n, k] = window.value[k] - window.start[k]


@jit
def leave_slot(setting, state, window, k):
    """Take the point of slot k off the elbow. In place: window. Returns False when the inverse has broken down."""
    slots = window.count[SLOTS]
    x = window.solution
    start = window.count[START] if k < window.count[START] else 0
    for j in range(start):
        x[j] = state.factor[k, j] if j <= k else state.factor[j, k]
    for j in range(start, slots):
        x[j] = 0.0
    pending = window.count[PENDING]
    for r in range(pending):
        add_multiple(x, window.sign[r] * window.terms[r, k], window.terms[r], slots)
    for j in range(slots):
        if window.dead[j]:
            x[j] = 0.0
    if not x[k] > 0.0:
        return False
    root = 1.0 / np.sqrt(x[k])
    term = window.terms[pending]
    for j in range(slots):
        term[j] = x[j] * root
    window.sign[pending] = -1.0
    window.count[PENDING] = pending + 1
    add_multiple(window.solved_slope, -window.solved_slope[k] * root, term, slots)
    add_multiple(window.solved_one, -window.solved_one[k] * root, term, slots)
    window.solved_slope[k] = 0.0
    window.solved_one[k] = 0.0
    window.dead[k] = 1
    s = window.spot[k]
    i = window.point[k]
    if s < 0:
        s = window.count[CANDIDATES]
        window.count[CANDIDATES] = s + 1
        window.cand[s] = i
        window.place[i] = s
        window.spot[k] = s
        row = setting.rows[setting.slot[i]]
        for j in range(slots):
            window.kernel[s, j] = row[window.point[j]]
        for n in range(window.count[STEPS] + 1):
            window.resid_at[n, s] = 0.0
    window.resid[s] = 0.0
    return True


@jit
def open_slot(setting, state, window, s):
    """Give the next slot to candidate s. Its direction is zero, and it has not moved yet. In place: window."""
    slots = window.count[SLOTS]
    i = window.cand[s]
    window.count[SLOTS] = slots + 1
    window.point[slots] = i
    window.dead[slots] = 0
    window.spot[slots] = s
    window.start[slots] = state.beta[i]
    window.value[slots] = state.beta[i]
    window.low[slots] = state.lower[i]
    window.high[slots] = state.upper[i]
    window.solved_slope[slots] = 0.0
    window.solved_one[slots] = 0.0
    window.direction[slots] = 0.0
    for r in range(window.count[PENDING]):
        window.terms[r, slots] = 0.0
    for n in range(window.count[STEPS] + 1):
        window.moved[n, slots] = 0.0
    row = setting.rows[setting.slot[i]]
    for c in range(window.count[CANDIDATES]):
        window.kernel[c, slots] = row[window.cand[c]]


@jit
def enter_slot(setting, state, window, s, least_pivot):
    """Put candidate s on the elbow, in a new slot. In place: window.

    Returns False when its pivot is too small. Then nothing has changed.
    """
    slots = window.count[SLOTS]
    i = window.cand[s]
    for k in range(slots):  # dead slots may be read, too, because M is zero there
        window.right[k] = window.kernel[s, k] + setting.bump
    symmetric_product(state.factor, window.count[START], window.right, window.solution)
    add_pending(window, window.right, window.solution)
    whole = setting.diagonal[i] + setting.bump
    pivot = whole - dot(window.solution, window.right, slots)
    if not pivot > least_pivot * whole:
        return False
    root = 1.0 / np.sqrt(pivot)
    term = window.terms[window.count[PENDING]]
    with_c = 0.0
    with_one = 0.0
    for k in range(slots):
        with_c += window.solution[k] * setting.slope[window.point[k]]
        with_one += window.solution[k]
        term[k] = -window.solution[k] * root
    open_slot(setting, state, window, s)
    term[slots] = root
    add_multiple(window.solved_slope, (setting.slope[i] - with_c) * root, term, slots + 1)
    add_multiple(window.solved_one, (1.0 - with_one) * root, term, slots + 1)
    window.sign[window.count[PENDING]] = 1.0
    window.count[PENDING] += 1
    return True


@jit
def log_slots(state, window, log):
    """Append a knot: t, bias, and the values of the slots in use. In place: log."""
    at = log.end[VALUES]
    m = 0
    for k in range(window.count[SLOTS]):
        if not window.dead[k]:
            log.index[at + m] = window.point[k]
            log.value[at + m] = window.value[k]
            m += 1
    write_knot(log, state.num[NOW], state.num[BIAS], m)


@jit
def run_window(setting, state, window, log, limits):
    """Follow events until the window is full or must close. In place: state, window, log. Returns why it closed."""
    begin = state.num[NOW]
    zero = 0
    window.knots[0] = log.end[KNOTS]
    while window.count[STEPS] < limits.steps:
        t = state.num[NOW]
        bias_rate = window_direction(setting, window)
        size = size_at(setting, t)
        longest = min(t - limits.t_end, 0.5 * size)
        fall, s, k = next_event(setting, state, window, longest, limits.rate_tol)
        first = window.count[STEPS] == 0
        if begin - (t - fall) > limits.region and not first:
            return LEFT_REGION
        if fall > LONG * size and not first:
            return LONG_STEP
        if s >= 0 and setting.slot[window.cand[s]] < 0:
            state.cnt[WANT] = window.cand[s]
            return NEED_ROW
        # This is decided before anything moves. A point that cannot enter here is left to the steps with the factor.
        if s >= 0 and not enter_slot(setting, state, window, s, limits.pivot):
            return NEAR_SINGULAR
        make_step(state, window, fall, bias_rate)
        if k >= 0:
            window.value[k] = window.low[k] if window.direction[k] > 0.0 else window.high[k]
        remember(window)
        if fall > 0.0:
            log_slots(state, window, log)
        window.knots[window.count[STEPS]] = log.end[KNOTS]
        zero = zero + 1 if fall <= TIE * size else 0
        if k >= 0:
            i = window.point[k]
            side = LOW if window.direction[k] > 0.0 else UP
            state.beta[i] = window.value[k]
            state.side[i] = side
            write_event(log, state.num[NOW], i, ELBOW, side, BOX)
            if not leave_slot(setting, state, window, k):
                return NEAR_SINGULAR
        elif s >= 0:
            i = window.cand[s]
            write_event(log, state.num[NOW], i, state.side[i], ELBOW, MARGIN)
            state.side[i] = ELBOW
            state.base[i] -= window.resid[s]
            window.resid[s] = 0.0
        else:
            return END
        if zero >= 30:
            return TIED
        if size_at(setting, state.num[NOW]) < 0.5 * size_at(setting, begin):
            return HALVED
    return FULL


@jit
def write_chords(window, stray, log):
    """Write into the log how far the knots of the window are from the chords of its thirds. In place: log.

    `stray` holds (reach, shift) of each step. Its row 0 is that of a correction before the first step.
    """
    n_steps = window.count[STEPS]
    first = n_steps // 3
    second = (2 * n_steps) // 3
    for n in range(1, n_steps):
        if window.knots[n] == window.knots[n - 1] or n == first or n == second:
            continue
        chord = log.chord[window.knots[n] - 1]
        chord[0] = stray[n, 0] + (stray[0, 0] if n < first else 0.0)
        chord[1] = stray[n, 1] + (stray[0, 1] if n < first else 0.0)
    for n in (first, second, n_steps):  # if a third ends with a step of no length, its knot is an earlier one
        if window.knots[n] > window.knots[0]:
            log.chord[window.knots[n] - 1, 0] = 0.0
