"""One window after another: candidates, the chord certificate, acceptance, and what makes Python necessary.

After a window (`path/window_jit`) one pass over all points gives every residual at a third, at two thirds and at the end. A
chord certificate covers the times in between. Between two of those times a residual differs from its chord by at most
sqrt(k_ii) bend + bias_bend. Here `bend` is the largest deviation of beta from its own chord, in the kernel's norm, and
`bias_bend` is the largest deviation of the bias. Points for which this bound is not enough are looked at exactly. If a point
has changed its sign, it objects: the window is taken back, and the point becomes a candidate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._path_jit import correct_knot
from svmcore._types import FloatArray
from svmcore.compiler.jit import jit
from svmcore.path.elbow_jit import (
    AHEAD,
    BIAS,
    BUDGET,
    DEFEATED,
    DONE,
    ELBOW,
    FLUSH,
    GROW,
    N_ELBOW,
    N_ELBOW_MAX,
    N_EVENT,
    N_STEP,
    NOW,
    REFRESH,
    ROWS,
    SINCE,
    STOPPED,
    T_REFRESH,
    UP,
    ZERO_RUN,
    exact_gap,
    look,
    size_at,
)
from svmcore.path.log_jit import EVENTS, KNOTS, VALUES, loosen_chord
from svmcore.path.opening_jit import (
    CARRIED,
    FRESH_FOR,
    LENGTH,
    LONGEST,
    LOOKED,
    MEASURED,
    N_BACK,
    N_INSIDE,
    N_WINDOWS,
    PIVOT,
    RETRIES,
    ROOM,
    WANTED,
    WIDTH,
    choose_candidates,
    fill_candidates,
    open_window,
)
from svmcore.path.products_jit import four_products, symmetric_product
from svmcore.path.window_jit import (
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
    WIDENED,
    Closing,
    elbow_step,
    run_window,
    slot_direction,
    step_size,
    write_chords,
)
from svmcore.simd.sums import dot
from svmcore.simd.vector import COLUMNS_64, OUTER_ROWS, add_outer, fmax

# In units of the size of the linear term: an elbow residual above RESIDUAL asks for a refresh, and a residual that is beyond
# zero by more than CROSSED is on the wrong side.
RESIDUAL, CROSSED = 1e-8, 1e-11
# A window is taken back at most MOST_RETRIES times in a row where points object, and MOST_SHORTER times where the gap does.
MOST_RETRIES, MOST_SHORTER = 6, 2
ARRIVED = 1e-13  # t has arrived when it is so close to its end, relatively


class Reach(NamedTuple):
    """The limits of one call, and the boxes as they are where no ties are spread."""

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


# ---- the certificate ---------------------------------------------------------------------------------------------


@jit
def residuals_at_thirds(setting, state, window, stretch):
    """Residuals of all points at a third, at two thirds and at the end, and rates at the end. In place: stretch, window."""
    n_steps = window.count[STEPS]
    slots = window.count[SLOTS]
    first = n_steps // 3
    second = (2 * n_steps) // 3
    for j in range(3):
        step = first if j == 0 else second if j == 1 else n_steps
        dt = window.t_at[step] - stretch.old_num[NOW]
        db = window.bias_at[step] - stretch.old_num[BIAS]
        for i in range(state.side.shape[0]):
            stretch.at[j, i] = (stretch.old[2, i] + (state.base[i] - stretch.old[1, i])) + (dt * setting.slope[i] - db)
    bias_rate = slot_direction(setting, window)
    for i in range(state.side.shape[0]):
        stretch.at[3, i] = setting.slope[i] - bias_rate
    for k in range(slots):
        stretch.coef[0, k] = window.moved[first, k]
        stretch.coef[1, k] = window.moved[second, k]
        stretch.coef[2, k] = window.moved[n_steps, k]
        stretch.coef[3, k] = window.direction[k]
        window.place[window.point[k]] = 0
    four_products(setting.rows, setting.slot, window.point, stretch.coef, slots, stretch.at)


@jit
def bend_of(window, stretch, a, b):
    """How far beta and the bias stray from their chords between steps a and b. Returns (bend, bias_bend).

    Each step between them has a row of stretch.bend: the slots, and the bias in the column behind them. The kernel's norm
    needs K times that row on the slots. It is known from the residuals there, which are zero or followed.
    In place: stretch.bend, stretch.stray.
    """
    slots = window.count[SLOTS]
    span = window.t_at[a] - window.t_at[b]
    largest = 0.0
    largest_bias = 0.0
    for n in range(a + 1, b):
        theta = (window.t_at[a] - window.t_at[n]) / span if span > 0.0 else 0.0
        out = stretch.bend[n]
        total = 0.0
        known = 0.0
        for k in range(slots):
            value = window.moved[n, k] - (window.moved[a, k] + theta * (window.moved[b, k] - window.moved[a, k]))
            out[k] = value
            total += value
            s = window.spot[k]
            if s >= 0:
                first, last = window.resid_at[a, s], window.resid_at[b, s]
                known += value * (window.resid_at[n, s] - (first + theta * (last - first)))
        bias = window.bias_at[n] - (window.bias_at[a] + theta * (window.bias_at[b] - window.bias_at[a]))
        out[slots] = bias
        square = fmax(-total * bias - known, 0.0)
        stretch.stray[n, 0] = np.sqrt(square) * (1.0 + WIDENED)
        stretch.stray[n, 1] = abs(bias)
        largest = max(largest, square)
        largest_bias = max(largest_bias, abs(bias))
    return np.sqrt(largest), largest_bias


@jit
def crosses_between(setting, window, stretch, i, sign, ends, times):
    """Whether the residual of point i changes its sign strictly between two steps. Its values there are `ends`.

    In place: window.right.
    """
    slots = window.count[SLOTS]
    a, b = times
    span = window.t_at[a] - window.t_at[b]
    for k in range(slots):
        j = window.point[k]
        window.right[k] = setting.rows[setting.slot[i], j] if setting.slot[i] >= 0 else setting.rows[setting.slot[j], i]
    for n in range(a + 1, b):
        theta = (window.t_at[a] - window.t_at[n]) / span if span > 0.0 else 0.0
        chord = ends[0] + theta * (ends[1] - ends[0])
        value = chord - dot(stretch.bend[n], window.right, slots) - stretch.bend[n, slots]
        if sign * value < -10.0 * CROSSED * size_at(setting, window.t_at[b]):
            return True
    return False


@jit
def find_objectors(setting, state, window, stretch):
    """Mark the points that were no candidates and have changed sign on the way, in stretch.wanted. Returns how many are new.

    In place: window, stretch.
    """
    n_steps = window.count[STEPS]
    size = size_at(setting, window.t_at[n_steps])
    found = 0
    for third in range(3):
        a = (third * n_steps) // 3
        b = ((third + 1) * n_steps) // 3
        bend, bias_bend = 0.0, 0.0
        inside = b > a + 1 and found == 0
        if inside:
            bend, bias_bend = bend_of(window, stretch, a, b)
        for i in range(state.side.shape[0]):
            if window.place[i] >= 0:
                continue
            sign = 1.0 if state.side[i] == UP else -1.0
            last = stretch.at[third, i]
            bad = sign * last < -CROSSED * size
            if inside and not bad:
                before = state.resid[i] if third == 0 else stretch.at[third - 1, i]
                slack = CROSSED * size_at(setting, window.t_at[b])
                reach = stretch.root[i] * (bend * (1.0 + WIDENED)) + bias_bend + slack
                if sign * before < reach or sign * last < reach:
                    bad = crosses_between(setting, window, stretch, i, sign, (before, last), (a, b))
            if bad:
                found += stretch.wanted[i] == 0
                stretch.wanted[i] = 1
    return found


# ---- afterwards --------------------------------------------------------------------------------------------------


@jit
def keep_state(state, log, stretch):
    """Keep a copy of the state. A window that is taken back returns to it. In place: stretch."""
    for i in range(state.side.shape[0]):
        stretch.old[0, i] = state.beta[i]
        stretch.old[1, i] = state.base[i]
        stretch.old[2, i] = state.resid[i]
        stretch.old_side[i] = state.side[i]
    for k in range(state.num.shape[0]):
        stretch.old_num[k] = state.num[k]
    for k in range(log.end.shape[0]):
        stretch.old_end[k] = log.end[k]


@jit
def restore_state(state, log, stretch):
    """Return to where the window began. In place: state, log."""
    for i in range(state.side.shape[0]):
        state.beta[i] = stretch.old[0, i]
        state.base[i] = stretch.old[1, i]
        state.resid[i] = stretch.old[2, i]
        state.side[i] = stretch.old_side[i]
    for k in range(state.num.shape[0]):
        state.num[k] = stretch.old_num[k]
    for k in range(log.end.shape[0]):
        log.end[k] = stretch.old_end[k]


@jit
def take_back(state, log, window, stretch, found):
    """Undo the window, and make the next one shorter. Returns False when windows should stop.

    `found` points object. If it is 0, the gap does. In place: state, log, window, stretch.
    """
    restore_state(state, log, stretch)
    for k in range(window.count[START]):
        window.solved_slope[k] = stretch.solved_slope[k]
    pace = stretch.pace
    pace[N_BACK] += 1
    pace[RETRIES] += 1
    pace[WANTED] += found
    pace[WIDTH] = min(state.side.shape[0], int(1.1 * pace[WIDTH]) + 4)
    pace[LENGTH] = max(1, min(pace[LENGTH], window.count[STEPS]) // 2)
    return pace[RETRIES] <= (MOST_RETRIES if found else MOST_SHORTER)


@jit
def flush_inverse(inverse, window, signed):
    """Add the pending terms to the lower triangle of the inverse. Whole tiles are written, also above the diagonal.

    In place: inverse, window.terms, signed.
    """
    slots = window.count[SLOTS]
    pending = window.count[PENDING]
    for k in range(window.count[START], slots):
        for j in range(k + 1):
            inverse[k, j] = 0.0
    for r in range(pending):
        for k in range(slots, slots + COLUMNS_64):
            window.terms[r, k] = 0.0
        for k in range(slots + OUTER_ROWS):
            signed[r, k] = window.sign[r] * window.terms[r, k]
    for first in range(0, slots, COLUMNS_64):
        for k in range(first, slots, OUTER_ROWS):
            add_outer(inverse, k, first, signed, window.terms, pending)


@jit
def compact(state, window):
    """Fill dead slots with the last ones in use: in the inverse, on the elbow and in its solution.

    In place: state, window.
    """
    inverse = state.factor
    last = window.count[SLOTS] - 1
    k = 0
    while k <= last:
        # A point may have left its slot and entered again in another one.
        if window.dead[k] == 0 and state.side[window.point[k]] == ELBOW:
            state.elbow[k] = window.point[k]
            k += 1
            continue
        if k < last:
            for j in range(k):
                inverse[k, j] = inverse[last, j]
            for j in range(k + 1, last):
                inverse[j, k] = inverse[last, j]
            inverse[k, k] = inverse[last, last]
            window.point[k] = window.point[last]
            window.dead[k] = window.dead[last]
            window.solved_slope[k] = window.solved_slope[last]
        last -= 1
    state.cnt[N_ELBOW] = k
    state.cnt[N_ELBOW_MAX] = max(state.cnt[N_ELBOW_MAX], k)


@jit
def accept(setting, state, window, stretch, code, gap, course):
    """Accept the window: update inverse, slots and rates, and set the pace of the next one.

    In place: state, window, stretch.
    """
    flush_inverse(state.factor, window, stretch.bend)
    compact(state, window)
    events = window.count[PENDING]
    state.cnt[N_EVENT] += events
    state.cnt[N_STEP] += window.count[STEPS]
    state.cnt[SINCE] += events
    state.cnt[ZERO_RUN] = 0
    pace = stretch.pace
    pace[FRESH_FOR] += events
    pace[N_INSIDE] += events
    t = state.num[NOW]
    for i in range(state.side.shape[0]):
        stretch.rate[i] = -stretch.at[3, i]
        state.resid[i] = stretch.at[2, i]
        stretch.wanted[i] = 0
    pace[WANTED] = 0
    pace[RETRIES] = 0
    pace[CARRIED] = MEASURED
    pace[LENGTH] = min(LONGEST, 4 * pace[LENGTH])
    if code == LEFT_REGION:
        pace[WIDTH] = min(state.side.shape[0], int(1.25 * pace[WIDTH]) + 8)
    elif code == FULL:
        pace[WIDTH] = max(2 * LONGEST, int(0.97 * pace[WIDTH]))
    worst = 0.0
    for k in range(state.cnt[N_ELBOW]):
        worst = max(worst, abs(state.resid[state.elbow[k]]))
    if worst > RESIDUAL * size_at(setting, t) or gap > course.gap:
        state.cnt[SINCE] = course.refresh


@jit
def look_with_care(setting, state, window, log, course):
    """Remove the elbow's residual, `look`, and write the last knot again. Returns False where Python must do more.

    In place: state, window, log.
    """
    m = state.cnt[N_ELBOW]
    for k in range(m):
        window.direction[k] = 1.0
    symmetric_product(state.factor, m, window.direction, window.solved_one)
    taken, fits, bias_change = elbow_step(setting, state, window)
    if taken and fits:
        reach, shift = step_size(window, m, bias_change)
        loosen_chord(log, reach, shift)
        for k in range(m):
            state.beta[state.elbow[k]] += window.solution[k]
        state.num[BIAS] += bias_change
    if not look(setting, state, course.lower, course.upper):
        return False
    state.cnt[SINCE] = 0
    correct_knot(state, log)
    return True


@jit
def why_return(setting, state, window, log, code, course):
    """What a window that closed with `code` means for the loop: a code to return with, or -1 to go on.

    In place: state, window, log.
    """
    if code == NEED_ROW:
        return ROWS
    if code in (NEAR_SINGULAR, TIED):
        return STOPPED
    if code == END and state.num[NOW] <= course.t_end * (1.0 + ARRIVED):
        return DONE
    far = size_at(setting, state.num[NOW]) < course.stretch * size_at(setting, state.num[T_REFRESH])
    due = code == END or state.cnt[SINCE] >= course.refresh or far
    return REFRESH if due and not look_with_care(setting, state, window, log, course) else -1


@jit
def fits_log(state, log):
    """Whether the log has room for a whole window."""
    size = state.cnt[N_ELBOW] + ROOM
    return (
        log.end[EVENTS] + ROOM <= log.event_t.shape[0]
        and log.end[KNOTS] + ROOM <= log.knot.shape[0]
        and log.end[VALUES] + (LONGEST + 2) * size <= log.value.shape[0]
    )


@jit
def swapped(state, resid):
    """Swap the residuals of the state with `resid`. In place: state, resid."""
    for i in range(resid.shape[0]):
        held = state.resid[i]
        state.resid[i] = resid[i]
        resid[i] = held


@jit
def follow_windows(setting, state, window, stretch, log, course):
    """Follow windows down the path until Python is needed. In place: state, window, stretch, log.

    Returns one of the codes of `path/elbow_jit`. state.factor holds the inverse. After STOPPED and DEFEATED it is useless.
    """
    begin = state.cnt[N_EVENT]
    while state.cnt[N_EVENT] - begin < course.budget and state.cnt[N_EVENT] < course.n_events_max:
        candidates = stretch.pace[WIDTH] + stretch.pace[WANTED]
        if state.cnt[N_ELBOW] + ROOM > window.solution.shape[0] or candidates + ROOM > window.kernel.shape[0]:
            return GROW
        if not fits_log(state, log):
            return FLUSH
        keep_state(state, log, stretch)
        open_window(setting, state, window, stretch)
        region = choose_candidates(state, window, stretch)
        if not course.whole and not stretch.pace[LOOKED]:
            restore_state(state, log, stretch)
            stretch.pace[LOOKED] = 1
            return AHEAD
        stretch.pace[LOOKED] = 0
        fill_candidates(setting, state, window, stretch)
        steps = min(stretch.pace[LENGTH], course.n_events_max - state.cnt[N_EVENT])
        code = run_window(setting, state, window, log, Closing(course.t_end, region, steps, PIVOT, course.rate_tol))
        for k in range(window.count[SLOTS]):
            if not window.dead[k]:
                state.beta[window.point[k]] = window.value[k]
        stretch.pace[N_WINDOWS] += 1
        residuals_at_thirds(setting, state, window, stretch)
        found = find_objectors(setting, state, window, stretch)
        gap = np.inf
        if found == 0:
            swapped(state, stretch.at[2])
            gap = exact_gap(setting, state, state.num[NOW], course.lower, course.upper)
            swapped(state, stretch.at[2])
        if not gap <= 3.0 * course.gap:
            if not take_back(state, log, window, stretch, found):
                return DEFEATED
            continue
        accept(setting, state, window, stretch, code, gap, course)
        write_chords(window, stretch.stray, log)
        code = why_return(setting, state, window, log, code, course)
        if code >= 0:
            return code
    return BUDGET
