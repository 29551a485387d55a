"""How a window opens: its start, and the points that may enter it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.path.elbow_jit import BIAS, ELBOW, N_ELBOW, NOW, UP, add_rows
from svmcore.path.products_jit import symmetric_product
from svmcore.path.window_jit import CANDIDATES, PENDING, SLOTS, START, STEPS, elbow_step, step_size
from svmcore.simd.sums import dot
from svmcore.simd.vector import COLUMNS_64

# Places in Stretch.pace.
LENGTH, WIDTH, RETRIES, WANTED, RATED, LOOKED, FRESH_FOR, N_WINDOWS, N_BACK, N_INSIDE, CARRIED = range(11)
# Values of Stretch.pace[CARRIED], which is about Window.solved_slope of the elbow. UNKNOWN: it is not there. KNOWN: it is
# there. MEASURED: it is there, and Stretch.rate says by how much it misses.
UNKNOWN, KNOWN, MEASURED = range(3)
LONGEST = 32  # a window has at most so many steps
ROOM = LONGEST + 4 + COLUMNS_64  # one window may add so many slots, with the rest of a tile
PIVOT = 1e-8  # no window starts with a smaller relative pivot, and no point with a smaller one enters
TINY = 1e-200  # this prevents a division by zero


class Stretch(NamedTuple):
    """What windows share: rates and scores of all points, and all that a window is checked with and taken back to.

    `pace` is indexed by the names above. It holds the steps and candidates of the next window, how many points objected to
    the last one, and counts.
    """

    rate: FloatArray
    score: FloatArray
    work: FloatArray
    at: FloatArray  # residuals at a third, at two thirds and at the end, and minus their rates at the end
    coef: FloatArray  # what K is multiplied with for these
    solved_slope: FloatArray  # Window.solved_slope of the elbow when the window began
    root: FloatArray
    wanted: np.ndarray
    bend: FloatArray
    stray: FloatArray  # (reach, shift) of every step, and in row 0 that of the correction before the first
    old: FloatArray  # beta, base and residuals before the window
    old_side: np.ndarray
    old_num: FloatArray
    old_end: IntArray
    pace: IntArray


@jit
def correct_elbow(setting, state, window):
    """Remove the elbow's residual if the step fits. Otherwise add it to the shift. In place: state, window.

    Returns how far this moves K beta + bias: (reach, shift), as `path/record.Track` explains them.
    """
    m = state.cnt[N_ELBOW]
    taken, fits, bias_change = elbow_step(setting, state, window)
    taken = taken and fits
    for k in range(m):
        window.moved[0, k] = window.solution[k] if taken else 0.0
        window.value[k] += window.moved[0, k]
        if not fits:
            i = state.elbow[k]
            state.base[i] -= state.resid[i]
            state.resid[i] = 0.0
    if not taken:
        return 0.0, 0.0
    state.num[BIAS] += bias_change
    return step_size(window, m, bias_change)


@jit
def open_direction(state, window, stretch):
    """The inverse times window.right, which holds the slopes. In place: window.solved_slope, window.right, stretch.

    If the last window has left a solution, its error is removed. The rates of the elbow should be zero. The inverse times the
    rates as they are is the error. So an inverse with seven right digits gives a direction with fourteen.
    """
    m = state.cnt[N_ELBOW]
    if stretch.pace[CARRIED] == UNKNOWN:
        symmetric_product(state.factor, m, window.right, window.solved_slope)
    elif stretch.pace[CARRIED] == MEASURED:
        for k in range(m):
            window.right[k] = stretch.rate[state.elbow[k]]
        symmetric_product(state.factor, m, window.right, window.solution)
        for k in range(m):
            window.solved_slope[k] -= window.solution[k]
    stretch.pace[CARRIED] = KNOWN
    for k in range(m):
        stretch.solved_slope[k] = window.solved_slope[k]


@jit
def open_window(setting, state, window, stretch):
    """Give slots to the elbow. Compute its two solutions, its correction, and the rates of all points if they are not known.

    In place: state, window, stretch.
    """
    m = state.cnt[N_ELBOW]
    window.count[SLOTS] = m
    window.count[START] = m
    window.count[STEPS] = 0
    window.count[PENDING] = 0
    for k in range(m):
        i = state.elbow[k]
        window.point[k] = i
        window.dead[k] = 0
        window.spot[k] = -1
        window.start[k] = state.beta[i]
        window.value[k] = state.beta[i]
        window.low[k] = state.lower[i]
        window.high[k] = state.upper[i]
        window.right[k] = setting.slope[i]
        window.direction[k] = 1.0
    symmetric_product(state.factor, m, window.direction, window.solved_one)
    open_direction(state, window, stretch)
    stretch.stray[0, 0], stretch.stray[0, 1] = correct_elbow(setting, state, window)
    if not stretch.pace[RATED]:
        bias_rate = 0.0
        if setting.equality:
            bias_rate = dot(window.solved_slope, window.direction, m) / dot(window.solved_one, window.direction, m)
        for i in range(stretch.rate.shape[0]):
            stretch.rate[i] = bias_rate - setting.slope[i]
        for k in range(m):
            window.solution[k] = window.solved_slope[k] - bias_rate * window.solved_one[k]
        add_rows(stretch.rate, setting, state.elbow, window.solution, m)
        stretch.pace[RATED] = 1


@jit
def smallest(a, n, k):
    """The value that the first n numbers of a would have at place k if they were sorted.

    In place: a, which is partitioned.
    """
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
def choose_candidates(state, window, stretch):
    """Choose the points whose residuals may meet zero first. Returns how far in t the others are safe if rates stay.

    In place: window, stretch.
    """
    n = state.side.shape[0]
    slack = 0.5 * mean_size(stretch.rate) + TINY
    outside = 0
    for i in range(n):
        window.place[i] = -1
        side = state.side[i]
        if side == ELBOW:
            stretch.score[i] = np.inf
            continue
        approach = -stretch.rate[i] if side == UP else stretch.rate[i]
        score = abs(state.resid[i]) / (max(approach, 0.0) + slack)
        stretch.score[i] = 0.0 if stretch.wanted[i] else score
        stretch.work[outside] = stretch.score[i]
        outside += 1
    want = min(stretch.pace[WIDTH] + stretch.pace[WANTED], outside)
    region = np.inf
    if 0 < want < outside:
        region = smallest(stretch.work, outside, want)
    s = 0
    for i in range(n):
        if stretch.score[i] < region:
            window.cand[s] = i
            s += 1
    for i in range(n):  # points that tie with the first one that is left out fill the places that remain
        if s < want and stretch.score[i] == region and state.side[i] != ELBOW:
            window.cand[s] = i
            s += 1
    for k in range(s):
        window.place[window.cand[k]] = k
    window.count[CANDIDATES] = s
    return region


@jit
def fill_candidates(setting, state, window, stretch):
    """Kernel values and residuals of the candidates. In place: window."""
    slots = window.count[SLOTS]
    for s in range(window.count[CANDIDATES]):
        i = window.cand[s]
        out = window.kernel[s]
        if setting.slot[i] >= 0:  # values along a row lie closer together in memory
            row = setting.rows[setting.slot[i]]
            for k in range(slots):
                out[k] = row[window.point[k]]
        else:
            for k in range(slots):
                out[k] = setting.rows[setting.slot[window.point[k]], i]
        window.resid[s] = state.resid[i] - dot(out, window.moved[0], slots) - (state.num[BIAS] - stretch.old_num[BIAS])
        window.resid_at[0, s] = window.resid[s]
    window.t_at[0] = state.num[NOW]
    window.bias_at[0] = state.num[BIAS]
