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
from svmcore.simd.vector import BIG, fmax, fmin

CALLABLE = int(KernelKind.CALLABLE)

# rules
SECOND, MVP, PLATT, SIMPLIFIED = 0, 1, 2, 3

# why a slice ended
AT_TOLERANCE, SLICE_SPENT, TRACE_FULL, CHECK_DUE, NEED_ROW, STUCK, NO_BOUND, PASSES_DONE, AT_MAX_ITER = range(9)

# ints of the progress record
ITERATION, NEXT_CHECK, TRACED, ROW, POSITION, EXAMINE_ALL, CHANGED, PASSES, QUIET, SEED, NONCONVEX, EVALS, MISSES = (
    range(13)
)
PENDING_I, PENDING_J = 13, 14
# floats of the progress record
VIOLATION, OBJECTIVE, THRESHOLD, TOP, BOTTOM = range(5)

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
    best_top: FloatArray  # block maxima of v + grow, kept by `advance`


class RowCache(NamedTuple):
    """Kernel rows in variable order, least recently used evicted first. `points_row` is scratch."""

    values: FloatArray
    slot: IntArray  # point -> slot, or -1
    owner: IntArray  # slot -> point, or -1
    used: IntArray  # slot -> time of last use
    clock: IntArray  # (time, slots in use)
    zero: FloatArray
    ones: FloatArray
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
def compute_row(kernel, points, variables, cache, scratch, key):
    """Fill a slot with the kernel row of a point, in variable order. In place: cache."""
    slot = claim_slot(cache, key)
    panels = (points.n + LANES - 1) // LANES
    row = cache.values[slot]
    kernel_row(
        kernel, points, key, points, np.int64(0), panels, scratch, row if variables.one_each else cache.points_row
    )
    if not variables.one_each:
        for t in range(variables.n):
            row[t] = cache.points_row[variables.lane[t]]
        for t in range(variables.n, row.shape[0]):
            row[t] = 0.0
    cache.clock[0] += 1
    cache.used[slot] = cache.clock[0]


@jit(inline=True)
def _fetch(variables, cache, ints, t):
    """The slot of the kernel row of variable t, or -1 with a note of the point whose row is missing."""
    key = variables.lane[t]
    slot = cache.slot[key]
    if slot < 0:
        ints[ROW] = key
    else:
        cache.clock[0] += 1
        cache.used[slot] = cache.clock[0]
    return slot


@jit(inline=True)
def set_masks(variables, t):
    """Refresh whether variable t can grow and shrink. In place: grow, shrink."""
    variables.grow[t] = 0.0 if variables.beta[t] < variables.upper[t] else -BIG
    variables.shrink[t] = 0.0 if variables.beta[t] > variables.lower[t] else BIG


@jit(inline=True)
def advance(v, step, row_i, row_j, grow, shrink, best):
    """v -= step (row_i - row_j), and the extremes of the new v: (largest that can grow, smallest that can shrink).

    Block maxima are left in `best`. In place: v, best.
    """
    top = -2.0 * BIG
    bottom = 2.0 * BIG
    for p in range(best.shape[0]):
        high = -2.0 * BIG
        low = 2.0 * BIG
        for k in range(p * LANES, (p + 1) * LANES):
            value = v[k] - step * (row_i[k] - row_j[k])
            v[k] = value
            high = fmax(high, value + grow[k])
            low = fmin(low, value + shrink[k])
        best[p] = high
        top = fmax(top, high)
        bottom = fmin(bottom, low)
    return top, bottom


@jit(inline=True)
def _find_top(v, mask, best, top):
    """First index that attains the maximum found by `advance`."""
    p = 0
    while p < best.shape[0] - 1 and best[p] != top:
        p += 1
    k = p * LANES
    while k < (p + 1) * LANES - 1 and v[k] + mask[k] != top:
        k += 1
    return k


@jit(inline=True)
def _find_bottom(v, mask, bottom):
    """First index that attains the minimum found by `advance`."""
    k = 0
    while k < v.shape[0] - 1 and v[k] + mask[k] != bottom:
        k += 1
    return k


@jit(inline=True)
def _best_score(score, best):
    """First index of the largest score, given block maxima."""
    top = -1.0
    for p in range(best.shape[0]):
        top = fmax(top, best[p])
    p = 0
    while p < best.shape[0] - 1 and best[p] != top:
        p += 1
    k = p * LANES
    while k < (p + 1) * LANES - 1 and score[k] != top:
        k += 1
    return k


@jit(inline=True)
def second_partner(v, shrink, curvature, row_i, v_i, q_i, tiny, score, best):
    """The partner j of i with the largest gain, (v_i - v_j)^2 over the curvature of the pair. In place: score, best."""
    for p in range(best.shape[0]):
        high = -1.0
        for k in range(p * LANES, (p + 1) * LANES):
            difference = fmax(v_i - (v[k] + shrink[k]), 0.0)
            value = difference * difference / fmax(q_i + curvature[k] - 2.0 * row_i[k], tiny)
            score[k] = value
            high = fmax(high, value)
        best[p] = high
    return _best_score(score, best)


@jit(inline=True)
def worst_coordinate(v, grow, shrink, weight, tiny, score, best):
    """Without an equality row: the variable of largest pull^2 / weight, and the largest pull. In place: score, best.

    The pull is the distance from zero of a residual that its variable could follow.
    """
    worst = 0.0
    for p in range(best.shape[0]):
        high = -1.0
        block_worst = 0.0
        for k in range(p * LANES, (p + 1) * LANES):
            pull = fmax(fmax(v[k] + grow[k], -(v[k] + shrink[k])), 0.0)
            value = pull * pull / fmax(weight[k], tiny)
            score[k] = value
            high = fmax(high, value)
            block_worst = fmax(block_worst, pull)
        best[p] = high
        worst = fmax(worst, block_worst)
    return _best_score(score, best), worst


@jit(inline=True)
def _move(variables, i, j, step):
    """beta_i += step, beta_j -= step (j < 0: only i), landing exactly on a bound that is reached.

    Returns the step taken; infinity, with nothing moved, when no bound limits an infinite step.
    """
    beta = variables.beta
    room_i = variables.upper[i] - beta[i] if step > 0 else beta[i] - variables.lower[i]
    room_j = np.inf
    if j >= 0:
        room_j = beta[j] - variables.lower[j] if step > 0 else variables.upper[j] - beta[j]
    size = min(abs(step), room_i, room_j)
    if np.isinf(size):
        return np.inf
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


@jit(inline=True)
def _step(variables, cache, progress, i, j):
    """Minimise over the pair (i, j), or over i alone when j < 0; update the residual and the counters.

    Returns -1 when the step was made, else the reason why not (NEED_ROW, NO_BOUND, STUCK).
    """
    ints, floats = progress.ints, progress.floats
    slot_i = _fetch(variables, cache, ints, i)
    if slot_i < 0:
        return NEED_ROW
    row_i = cache.values[slot_i]
    if j >= 0:
        slot_j = _fetch(variables, cache, ints, j)
        if slot_j < 0:
            return NEED_ROW
        row_j = cache.values[slot_j]
        slope = variables.v[i] - variables.v[j]
        scale = variables.curvature[i] + variables.curvature[j]
        curvature = scale - 2.0 * row_i[j]
        pull = variables.c[i] - variables.c[j]
        least = variables.diag[i] + variables.diag[j]
    else:
        row_j = cache.zero
        slope = variables.v[i]
        scale = variables.curvature[i]
        curvature = scale
        pull = variables.c[i]
        least = variables.diag[i]
    sign = 1.0 if slope > 0 else -1.0
    if curvature < -1e-9 * abs(scale):
        ints[NONCONVEX] = 1
        step = sign * np.inf
    else:
        curvature = max(curvature, least)  # what rounding may have hidden: K itself adds nothing negative
        step = slope / max(curvature, min(variables.tiny, least) if least > 0.0 else variables.tiny)
    if ints[NONCONVEX] == 0 and curvature <= 1e-15 * abs(scale) and least == 0.0 and sign * pull > 0.0:
        step = sign * np.inf  # contradictory duplicates: nothing but a bound stops them
    before_i = variables.beta[i]
    step = _move(variables, i, j, step)
    if np.isinf(step):
        return NO_BOUND
    if step == 0.0 or variables.beta[i] == before_i:
        return STUCK
    variables.v[i] -= variables.diag[i] * step
    if j >= 0:
        variables.v[j] += variables.diag[j] * step
    floats[TOP], floats[BOTTOM] = advance(
        variables.v, step, row_i, row_j, variables.grow, variables.shrink, variables.best_top
    )
    floats[OBJECTIVE] -= step * slope - 0.5 * curvature * step * step
    ints[ITERATION] += 1
    if progress.trace.shape[0] > 0:
        record = progress.trace[ints[TRACED]]
        record[0], record[1], record[2] = floats[OBJECTIVE], floats[VIOLATION], ints[EVALS]
        record[3], record[4], record[5] = i, j, step
        ints[TRACED] += 1
    return -1


@jit
def measure(variables, cache, progress):
    """Extremes of the current point, after somebody else changed it. In place: progress."""
    progress.floats[TOP], progress.floats[BOTTOM] = advance(
        variables.v, 0.0, cache.zero, cache.zero, variables.grow, variables.shrink, variables.best_top
    )


@jit(inline=True)
def _greedy_pair(variables, cache, progress, rule):
    """The working set of the greedy rules: (reason or -1, i, j). Sets the violation."""
    ints, floats = progress.ints, progress.floats
    if not variables.equality:
        weight = cache.ones if rule == MVP else variables.curvature
        i, floats[VIOLATION] = worst_coordinate(
            variables.v, variables.grow, variables.shrink, weight, variables.tiny, variables.score, variables.best
        )
        return -1, i, -1
    top, bottom = floats[TOP], floats[BOTTOM]
    if top < -0.5 * BIG or bottom > 0.5 * BIG or top <= bottom:
        floats[VIOLATION] = 0.0
        return -1, 0, 0
    floats[VIOLATION] = top - bottom
    i = _find_top(variables.v, variables.grow, variables.best_top, top)
    if rule == SECOND:
        slot = _fetch(variables, cache, ints, i)
        if slot < 0:
            return NEED_ROW, i, i
        j = second_partner(
            variables.v, variables.shrink, variables.curvature, cache.values[slot], variables.v[i],
            variables.curvature[i], variables.tiny, variables.score, variables.best,
        )  # fmt: skip
    else:
        j = _find_bottom(variables.v, variables.shrink, bottom)
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
def _sweep_pair(variables, progress, rule, tol):
    """Examine the variable at the sweep's position: (i, j) when it violates and has a partner, else i = -1."""
    ints, floats = progress.ints, progress.floats
    i = ints[POSITION]
    ints[POSITION] += 1
    if rule == PLATT and not ints[EXAMINE_ALL] and (variables.grow[i] != 0.0 or variables.shrink[i] != 0.0):
        return -1, -1
    half = 0.5 * tol if variables.equality else tol
    want = _wants(variables, i, floats[THRESHOLD], half)
    if want == 0:
        return -1, -1
    if not variables.equality:
        return i, -1
    if rule == PLATT:
        j = _platt_partner(variables, ints, i, want, half)
        return (i, j) if j >= 0 else (-1, -1)
    if variables.n > 1:
        j = (i + 1 + _random(ints, variables.n - 1)) % variables.n
        if _fits(variables, i, j, want, 0.0):
            return i, j
    return -1, -1


@jit
def _after_sweep_step(variables, progress, i, j):
    """The sweep's threshold after a step: the residual of a variable of the pair that is free, else their mean."""
    progress.ints[CHANGED] += 1
    if not variables.equality:
        return
    v = variables.v
    if variables.grow[i] == 0.0 and variables.shrink[i] == 0.0:
        progress.floats[THRESHOLD] = v[i]
    elif variables.grow[j] == 0.0 and variables.shrink[j] == 0.0:
        progress.floats[THRESHOLD] = v[j]
    else:
        progress.floats[THRESHOLD] = 0.5 * (v[i] + v[j])


@jit
def _end_of_sweep(variables, cache, progress, rule, max_passes):
    """Between sweeps: measure and choose the next sweep; (reason or -1, i, j), a pair when a sweep changed nothing."""
    ints, floats = progress.ints, progress.floats
    quiet = ints[CHANGED] == 0
    ints[CHANGED] = 0
    ints[POSITION] = 0
    ints[PASSES] += 1
    _, i, j = _greedy_pair(variables, cache, progress, np.int64(MVP))
    if rule == PLATT and not ints[EXAMINE_ALL]:
        # with a tolerance of zero, free variables may go on for ever over rounding: now and then all are looked at
        if quiet or ints[PASSES] % 100 == 0:
            ints[EXAMINE_ALL] = 1
        return -1, -1, -1
    if rule == PLATT and not quiet:
        ints[EXAMINE_ALL] = 0
        return -1, -1, -1
    ints[QUIET] = ints[QUIET] + 1 if quiet else 0
    if rule == SIMPLIFIED and max_passes > 0 and ints[QUIET] >= max_passes:
        return PASSES_DONE, -1, -1
    if quiet and (rule == PLATT or ints[QUIET] >= 10):
        # nobody finds a partner against this threshold: step on the worst pair and start from the middle
        floats[THRESHOLD] = 0.5 * (floats[TOP] + floats[BOTTOM]) if variables.equality else 0.0
        ints[QUIET] = 0
        return -1, i, j
    return -1, -1, -1


@jit(inline=True)
def _choose(variables, cache, progress, rule, limits):
    """The next working set: (reason or -1, i, j), with i = -1 when there is none yet."""
    ints, floats = progress.ints, progress.floats
    if ints[PENDING_I] >= 0:  # a row that the step needs has been supplied meanwhile
        i, j = ints[PENDING_I], ints[PENDING_J]
        ints[PENDING_I] = -1
        return -1, i, j
    if rule == SECOND or rule == MVP:
        reason, i, j = _greedy_pair(variables, cache, progress, rule)
    elif ints[POSITION] < variables.n:
        i, j = _sweep_pair(variables, progress, rule, limits.tol)
        return -1, i, j
    else:
        reason, i, j = _end_of_sweep(variables, cache, progress, rule, limits.max_passes)
    if floats[VIOLATION] <= limits.tol:
        return AT_TOLERANCE, i, j
    return reason, i, j


@jit
def smo_slice(kernel, points, variables, cache, scratch, progress, rule, limits):
    """Run SMO until a reason to return to Python appears; returns the reason. In place: everything but the problem."""
    ints = progress.ints
    work = 0.0
    greedy = rule == SECOND or rule == MVP
    size = float(variables.v.shape[0])
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
        reason, i, j = _choose(variables, cache, progress, rule, limits)
        work += 4.0 * size if greedy else 16.0
        if reason < 0 and i >= 0:
            reason = _step(variables, cache, progress, i, j)
            work += 4.0 * size
            if reason == NEED_ROW:
                ints[PENDING_I], ints[PENDING_J] = i, j
            elif greedy:
                pass
            elif reason == STUCK and ints[POSITION] > 0:
                reason = -1  # only the worst pair, which ends a sweep, shows that nothing can move
            elif reason < 0:
                _after_sweep_step(variables, progress, i, j)
        if reason == NEED_ROW and kernel.kind != CALLABLE:
            compute_row(kernel, points, variables, cache, scratch, ints[ROW])
            ints[EVALS] += points.n
            ints[MISSES] += 1
            work += size * (8.0 + points.panels.shape[1])
        elif reason >= 0:
            return reason
