"""Sequential minimal optimisation on the sign-free dual: row cache, working-set rules, the pair step, one driver.

`smo_slice` runs until something needs Python: the tolerance is met, a budget of work is spent (so that Ctrl-C, limits
and callbacks are served), the trace is full, a check is due, or a kernel row must come from a Python function.

All vectors are padded to whole blocks; padding variables can neither grow nor shrink. `grow` is 0 where a variable can
grow and -BIG where it cannot, `shrink` is 0 or +BIG alike, so that masked extremes are plain sums.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._jit import jit
from svmcore._kernels import kernel_row
from svmcore._types import LANES, FloatArray, IntArray, KernelKind
from svmcore._vector import BIG, fmax, fmin

_STAMP = ""

CALLABLE = int(KernelKind.CALLABLE)

# rules
SECOND, MVP, PLATT, SIMPLIFIED = 0, 1, 2, 3

# why a slice ended
AT_TOLERANCE, SLICE_SPENT, TRACE_FULL, CHECK_DUE, NEED_ROW, STUCK, NO_BOUND, PASSES_DONE, AT_MAX_ITER = range(9)

# ints of the progress record
ITERATION, NEXT_CHECK, TRACED, ROW, POSITION, EXAMINE_ALL, CHANGED, PASSES, QUIET, SEED, NONCONVEX, EVALS, MISSES = range(13)
# floats of the progress record
VIOLATION, OBJECTIVE, THRESHOLD = range(3)

TRACE_COLUMNS = ("objective", "violation", "n_kernel_evals", "i", "j", "step")


class Variables(NamedTuple):
    """The variables of the (possibly shrunken) problem, padded to whole blocks."""

    n: int
    equality: bool
    beta: FloatArray
    v: FloatArray  # residual
    c: FloatArray
    lower: FloatArray
    upper: FloatArray
    diag: FloatArray
    curvature: FloatArray  # K_tt + diag_t
    grow: FloatArray
    shrink: FloatArray
    lane: IntArray  # variable -> point of `Points`, in order of first appearance
    one_each: bool  # variable t owns point t
    tiny: float  # a curvature below this counts as zero
    score: FloatArray  # scratch
    best: FloatArray  # scratch, one per block


class RowCache(NamedTuple):
    """Kernel rows in variable order, least recently used evicted first. `zero` is a row of zeros, `points_row` scratch."""

    values: FloatArray
    slot: IntArray  # point -> slot, or -1
    owner: IntArray  # slot -> point, or -1
    used: IntArray  # slot -> time of last use
    clock: IntArray  # (time, slots in use)
    zero: FloatArray
    points_row: FloatArray


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
    max_passes: int


@jit
def claim_slot(cache, key):
    """The slot for point `key`'s row, evicting the least recently used one. In place: cache (its row is not filled)."""
    used = cache.clock[1]
    if used < cache.owner.shape[0]:
        slot = used
        cache.clock[1] = used + 1
    else:
        slot = 0
        for k in range(1, used):
            if cache.used[k] < cache.used[slot]:
                slot = k
        cache.slot[cache.owner[slot]] = -1
    cache.owner[slot] = key
    cache.slot[key] = slot
    return slot


@jit
def spread_row(variables, cache, slot):
    """Copy a row over points to a row over variables. In place: cache.values[slot]."""
    row = cache.values[slot]
    for t in range(variables.n):
        row[t] = cache.points_row[variables.lane[t]]


@jit
def _fetch(kernel, points, variables, cache, scratch, ints, t):
    """The slot of the kernel row of variable t, computing it when missing; -1 when Python must supply it."""
    key = variables.lane[t]
    slot = cache.slot[key]
    if slot < 0:
        if kernel.kind == CALLABLE:
            ints[ROW] = key
            return np.int64(-1)
        slot = claim_slot(cache, key)
        panels = (points.n + LANES - 1) // LANES
        if variables.one_each:
            kernel_row(kernel, points, key, points, 0, panels, scratch, cache.values[slot])
        else:
            kernel_row(kernel, points, key, points, 0, panels, scratch, cache.points_row)
            spread_row(variables, cache, slot)
        ints[EVALS] += points.n
        ints[MISSES] += 1
    cache.clock[0] += 1
    cache.used[slot] = cache.clock[0]
    return slot


@jit
def set_masks(variables, t):
    """Refresh whether variable t can grow and shrink. In place: grow, shrink."""
    variables.grow[t] = 0.0 if variables.beta[t] < variables.upper[t] else -BIG
    variables.shrink[t] = 0.0 if variables.beta[t] > variables.lower[t] else BIG


@jit
def _update(v, step, row_i, row_j):
    """v -= step (row_i - row_j). In place: v."""
    for p in range(v.shape[0] // LANES):
        vs = v[p * LANES : (p + 1) * LANES]
        ki = row_i[p * LANES : (p + 1) * LANES]
        kj = row_j[p * LANES : (p + 1) * LANES]
        for k in range(LANES):
            vs[k] -= step * (ki[k] - kj[k])


@jit
def _block_top(v, mask, best):
    """Largest v + mask: the value; block maxima are left in `best`."""
    top = -2.0 * BIG
    for p in range(best.shape[0]):
        vs = v[p * LANES : (p + 1) * LANES]
        ms = mask[p * LANES : (p + 1) * LANES]
        high = -2.0 * BIG
        for k in range(LANES):
            high = fmax(high, vs[k] + ms[k])
        best[p] = high
        top = fmax(top, high)
    return top


@jit
def _bottom(v, mask):
    """Smallest v + mask."""
    low = 2.0 * BIG
    for p in range(v.shape[0] // LANES):
        vs = v[p * LANES : (p + 1) * LANES]
        ms = mask[p * LANES : (p + 1) * LANES]
        for k in range(LANES):
            low = fmin(low, vs[k] + ms[k])
    return low


@jit
def _find(v, mask, value):
    """First index where v + mask equals a value that occurs."""
    for k in range(v.shape[0]):
        if v[k] + mask[k] == value:
            return k
    return -1


@jit
def _find_top(v, mask, best, top):
    """First index that attains the maximum found by `_block_top`."""
    p = 0
    while best[p] != top:
        p += 1
    return p * LANES + _find(v[p * LANES : (p + 1) * LANES], mask[p * LANES : (p + 1) * LANES], top)


@jit
def _best_score(score, best):
    """First index of the largest score, given block maxima."""
    top = -1.0
    for p in range(best.shape[0]):
        top = fmax(top, best[p])
    p = 0
    while best[p] != top:
        p += 1
    k = p * LANES
    while score[k] != top:
        k += 1
    return k, top


@jit
def _second_partner(variables, i, row_i):
    """The partner j of i with the largest gain (v_i - v_j)^2 / curvature of the pair, and that gain doubled."""
    vi = variables.v[i]
    qi = variables.curvature[i]
    tiny = variables.tiny
    for p in range(variables.best.shape[0]):
        span = slice(p * LANES, (p + 1) * LANES)
        vs = variables.v[span]
        ms = variables.shrink[span]
        qs = variables.curvature[span]
        ks = row_i[span]
        out = variables.score[span]
        high = -1.0
        for k in range(LANES):
            difference = fmax(vi - (vs[k] + ms[k]), 0.0)
            value = difference * difference / fmax(qi + qs[k] - 2.0 * ks[k], tiny)
            out[k] = value
            high = fmax(high, value)
        variables.best[p] = high
    return _best_score(variables.score, variables.best)


@jit
def _coordinate(variables, rule):
    """Without an equality row: the variable to move, and the violation (largest distance of a movable residual from 0)."""
    worst = 0.0
    for p in range(variables.best.shape[0]):
        span = slice(p * LANES, (p + 1) * LANES)
        vs = variables.v[span]
        up = variables.grow[span]
        down = variables.shrink[span]
        qs = variables.curvature[span]
        out = variables.score[span]
        high = -1.0
        block_worst = 0.0
        for k in range(LANES):
            pull = fmax(fmax(vs[k] + up[k], -(vs[k] + down[k])), 0.0)
            value = pull if rule == MVP else pull * pull / fmax(qs[k], variables.tiny)
            out[k] = value
            high = fmax(high, value)
            block_worst = fmax(block_worst, pull)
        variables.best[p] = high
        worst = fmax(worst, block_worst)
    index, _ = _best_score(variables.score, variables.best)
    return index, worst


@jit
def _move(variables, i, j, step):
    """beta_i += step, beta_j -= step (j < 0: only i), landing exactly on a bound that is reached. Returns the step taken."""
    beta = variables.beta
    room_i = variables.upper[i] - beta[i] if step > 0 else beta[i] - variables.lower[i]
    room_j = np.inf
    if j >= 0:
        room_j = beta[j] - variables.lower[j] if step > 0 else variables.upper[j] - beta[j]
    size = min(abs(step), room_i, room_j)
    sign = 1.0 if step > 0 else -1.0
    rounding = 4.0e-16 * size
    if size >= room_i - rounding:
        beta[i] = variables.upper[i] if step > 0 else variables.lower[i]
    else:
        beta[i] += sign * size
    if j >= 0:
        if size >= room_j - rounding:
            beta[j] = variables.lower[j] if step > 0 else variables.upper[j]
        else:
            beta[j] -= sign * size
        set_masks(variables, j)
    set_masks(variables, i)
    return sign * size


@jit
def _step(kernel, points, variables, cache, scratch, progress, i, j):
    """Minimise over the pair (i, j), or over i alone when j < 0; update the residual and the counters.

    Returns -1 when the step was made, else the reason why not (NEED_ROW, NO_BOUND, STUCK).
    """
    ints, floats = progress.ints, progress.floats
    slot_i = _fetch(kernel, points, variables, cache, scratch, ints, i)
    if slot_i < 0:
        return NEED_ROW
    row_i = cache.values[slot_i]
    if j >= 0:
        slot_j = _fetch(kernel, points, variables, cache, scratch, ints, j)
        if slot_j < 0:
            return NEED_ROW
        row_j = cache.values[slot_j]
        slope = variables.v[i] - variables.v[j]
        scale = variables.curvature[i] + variables.curvature[j]
        curvature = scale - 2.0 * row_i[j]
        pull = variables.c[i] - variables.c[j]
    else:
        row_j = cache.zero
        slope = variables.v[i]
        scale = variables.curvature[i]
        curvature = scale
        pull = variables.c[i]
    sign = 1.0 if slope > 0 else -1.0
    step = slope / max(curvature, variables.tiny)
    if curvature < -1e-9 * abs(scale):
        ints[NONCONVEX] = 1
        step = sign * np.inf
    elif curvature <= 1e-15 * abs(scale) and sign * pull > 0.0:
        step = sign * np.inf  # contradictory duplicates: nothing but a bound stops them
    before_i = variables.beta[i]
    step = _move(variables, i, j, step)
    if np.isinf(step):
        variables.beta[i] = before_i
        return NO_BOUND
    if step == 0.0 or variables.beta[i] == before_i:
        return STUCK
    variables.v[i] -= variables.diag[i] * step
    if j >= 0:
        variables.v[j] += variables.diag[j] * step
    _update(variables.v, step, row_i, row_j)
    floats[OBJECTIVE] -= step * slope - 0.5 * curvature * step * step
    ints[ITERATION] += 1
    if progress.trace.shape[0] > 0:
        record = progress.trace[ints[TRACED]]
        record[0], record[1], record[2] = floats[OBJECTIVE], floats[VIOLATION], ints[EVALS]
        record[3], record[4], record[5] = i, j, step
        ints[TRACED] += 1
    return -1


@jit
def _greedy_pair(kernel, points, variables, cache, scratch, progress, rule):
    """The working set of the greedy rules: (reason or -1, i, j). Sets the violation."""
    ints, floats = progress.ints, progress.floats
    if not variables.equality:
        i, worst = _coordinate(variables, rule)
        floats[VIOLATION] = worst
        return -1, i, -1
    top = _block_top(variables.v, variables.grow, variables.best)
    bottom = _bottom(variables.v, variables.shrink)
    floats[THRESHOLD] = 0.5 * (top + bottom)
    if top < -0.5 * BIG or bottom > 0.5 * BIG:
        floats[VIOLATION] = 0.0
        return -1, 0, 0
    floats[VIOLATION] = max(top - bottom, 0.0)
    i = _find_top(variables.v, variables.grow, variables.best, top)
    if rule == SECOND and floats[VIOLATION] > 0.0:
        slot = _fetch(kernel, points, variables, cache, scratch, ints, i)
        if slot < 0:
            return NEED_ROW, i, i
        j, _ = _second_partner(variables, i, cache.values[slot])
    else:
        j = _find(variables.v, variables.shrink, bottom)
    return -1, i, j


@jit
def _random(ints, n):
    """The next index below n of a 64-bit linear congruential generator. In place: the seed."""
    ints[SEED] = ints[SEED] * np.int64(6364136223846793005) + np.int64(1442695040888963407)
    return ((ints[SEED] >> np.int64(33)) & np.int64(0x3FFFFFFF)) % n


@jit
def _wants(variables, t, threshold, tol):
    """+1 when variable t violates the conditions by wanting to grow, -1 to shrink, 0 when it is content."""
    if variables.v[t] - threshold > tol and variables.grow[t] == 0.0:
        return 1
    if variables.v[t] - threshold < -tol and variables.shrink[t] == 0.0:
        return -1
    return 0


@jit
def _fits(variables, i, j, want, least):
    """Whether moving i as it wants against j makes progress of at least `least` in slope."""
    if i == j:
        return False
    if want > 0:
        return variables.shrink[j] == 0.0 and variables.v[i] - variables.v[j] > least
    return variables.grow[j] == 0.0 and variables.v[j] - variables.v[i] > least


@jit
def _platt_partner(variables, ints, i, want, least):
    """Platt's second choice: the farthest free variable, then any free one, then any, from random starts; or -1."""
    n = variables.n
    far = -1
    for j in range(n):
        if variables.grow[j] == 0.0 and variables.shrink[j] == 0.0:
            if far < 0 or abs(variables.v[i] - variables.v[j]) > abs(variables.v[i] - variables.v[far]):
                far = j
    if far >= 0 and _fits(variables, i, far, want, least):
        return far
    for free_only in (True, False):
        start = _random(ints, n)
        for k in range(n):
            j = (start + k) % n
            if free_only and not (variables.grow[j] == 0.0 and variables.shrink[j] == 0.0):
                continue
            if _fits(variables, i, j, want, least):
                return j
    return -1


@jit
def _sweep_step(kernel, points, variables, cache, scratch, progress, rule, tol):
    """Examine the variable at the sweep's position; step when it violates. Returns -1, or a reason to leave."""
    ints, floats = progress.ints, progress.floats
    i = ints[POSITION]
    if rule == PLATT and not ints[EXAMINE_ALL] and (variables.grow[i] != 0.0 or variables.shrink[i] != 0.0):
        return -1
    half = 0.5 * tol if variables.equality else tol
    want = _wants(variables, i, floats[THRESHOLD], half)
    if want == 0:
        return -1
    j = -1
    if variables.equality:
        if rule == PLATT:
            j = _platt_partner(variables, ints, i, want, half)
        elif variables.n > 1:
            j = (i + 1 + _random(ints, variables.n - 1)) % variables.n
            if not _fits(variables, i, j, want, 0.0):
                j = -1
        if j < 0:
            return -1
    reason = _step(kernel, points, variables, cache, scratch, progress, i, j)
    if reason == STUCK:
        return -1
    if reason >= 0:
        return reason
    ints[CHANGED] += 1
    if variables.equality:
        if variables.grow[i] == 0.0 and variables.shrink[i] == 0.0:
            floats[THRESHOLD] = variables.v[i]
        elif variables.grow[j] == 0.0 and variables.shrink[j] == 0.0:
            floats[THRESHOLD] = variables.v[j]
        else:
            floats[THRESHOLD] = 0.5 * (variables.v[i] + variables.v[j])
    return -1


@jit
def _end_of_sweep(kernel, points, variables, cache, scratch, progress, rule, max_passes):
    """Between sweeps: measure, choose the next sweep, and unstick a sweep that changed nothing. A reason, or -1."""
    ints, floats = progress.ints, progress.floats
    quiet = ints[CHANGED] == 0
    ints[CHANGED] = 0
    ints[POSITION] = 0
    ints[PASSES] += 1
    threshold = floats[THRESHOLD]
    reason, i, j = _greedy_pair(kernel, points, variables, cache, scratch, progress, MVP)
    middle = floats[THRESHOLD]
    floats[THRESHOLD] = threshold
    if rule == PLATT and not ints[EXAMINE_ALL]:
        if quiet:
            ints[EXAMINE_ALL] = 1
        return -1
    if rule == PLATT and not quiet:
        ints[EXAMINE_ALL] = 0
        return -1
    ints[QUIET] = ints[QUIET] + 1 if quiet else 0
    if rule == SIMPLIFIED and max_passes > 0 and ints[QUIET] >= max_passes:
        return PASSES_DONE
    if quiet and (rule == PLATT or ints[QUIET] >= 10):
        # nobody finds a partner against this threshold: step on the worst pair and start from the middle
        floats[THRESHOLD] = middle
        ints[QUIET] = 0
        return _step(kernel, points, variables, cache, scratch, progress, i, j)
    return -1


@jit
def smo_slice(kernel, points, variables, cache, scratch, progress, rule, limits):
    """Run SMO until a reason to return to Python appears; returns the reason. In place: everything but the problem."""
    ints, floats = progress.ints, progress.floats
    work = 0.0
    greedy = rule == SECOND or rule == MVP
    row_work = float(variables.v.shape[0]) * (8.0 + points.panels.shape[1])
    misses = ints[MISSES]
    while True:
        if ints[ITERATION] >= limits.max_iter:
            return AT_MAX_ITER
        if ints[ITERATION] >= ints[NEXT_CHECK]:
            ints[NEXT_CHECK] = ints[ITERATION] + limits.check_every
            return CHECK_DUE
        if progress.trace.shape[0] > 0 and ints[TRACED] >= progress.trace.shape[0]:
            return TRACE_FULL
        if work > limits.work:
            return SLICE_SPENT
        if greedy or ints[POSITION] >= variables.n:
            work += 4.0 * variables.v.shape[0]
            if greedy:
                reason, i, j = _greedy_pair(kernel, points, variables, cache, scratch, progress, rule)
            else:
                reason = _end_of_sweep(
                    kernel, points, variables, cache, scratch, progress, rule, limits.max_passes
                )
                i, j = -1, -1
            if floats[VIOLATION] <= limits.tol:
                return AT_TOLERANCE
            if reason < 0 and greedy:
                reason = _step(kernel, points, variables, cache, scratch, progress, i, j)
        else:
            work += 16.0
            before = ints[ITERATION]
            reason = _sweep_step(kernel, points, variables, cache, scratch, progress, rule, limits.tol)
            work += 4.0 * variables.v.shape[0] * (ints[ITERATION] - before)
            if reason < 0:
                ints[POSITION] += 1
        work += row_work * (ints[MISSES] - misses)
        misses = ints[MISSES]
        if reason >= 0:
            return reason
