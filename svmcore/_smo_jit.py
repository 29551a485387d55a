"""Sequential minimal optimisation on the sign-free dual: row cache, working-set rules, the pair step, one driver.

`smo_slice` runs until something needs Python. There are five reasons for this: the tolerance is met, the trace is full, a
check is due, a kernel row must come from a Python function, or a budget of work is spent. The last one serves Ctrl-C,
limits and callbacks.

All vectors are padded to whole blocks. Variables of the padding can neither grow nor shrink. `grow` is 0 where a variable can
grow, and -BIG where it cannot. `shrink` is 0 where a variable can shrink, and +BIG where it cannot. So an extreme among the
variables that can move is that of a plain sum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._kernels import kernel_row
from svmcore._types import LANES, FloatArray, IntArray, KernelKind
from svmcore.compiler.jit import jit
from svmcore.simd.vector import BIG, fmax, fmin
from svmcore.solvers._steps_jit import (
    AT_TOLERANCE,
    CHANGED,
    EVALS,
    NEED_ROW,
    NO_BOUND,
    OWN_FLOAT,
    OWN_INT,
    PASSES_DONE,
    POSITION,
    ROW,
    STUCK,
    VIOLATION,
    WORK,
    count_step,
    due,
    move,
    pair_length,
    violation,
)

CALLABLE = int(KernelKind.CALLABLE)

# The rules of the choice of pairs.
SECOND, MVP, PLATT, SIMPLIFIED = 0, 1, 2, 3

# Places of whole numbers in the progress record.
EXAMINE_ALL, PASSES, QUIET, SEED, MISSES, PENDING_I, PENDING_J = range(OWN_INT, OWN_INT + 7)
# Places of floats in the progress record.
THRESHOLD, TOP, BOTTOM = range(OWN_FLOAT, OWN_FLOAT + 3)


class Scan(NamedTuple):
    """The vectors that passes over all variables need beside the residual, padded to whole blocks."""

    grow: FloatArray
    shrink: FloatArray
    score: FloatArray  # scratch
    best: FloatArray  # scratch, one per block
    best_top: FloatArray  # the maxima of v + grow in each block, which `advance` keeps up to date


class RowCache(NamedTuple):
    """Kernel rows in the order of the variables. The row unused for longest is evicted first. `points_row` is scratch."""

    one_each: bool  # variable t owns point t
    values: FloatArray
    slot: IntArray  # point -> slot, or -1
    owner: IntArray  # slot -> point, or -1
    used: IntArray  # slot -> time of last use
    clock: IntArray  # (time, slots in use)
    zero: FloatArray
    ones: FloatArray
    points_row: FloatArray


@jit
def claim_slot(cache, key):
    """A slot for the row of point `key`. It may evict the row unused for longest. The caller fills it. In place: cache."""
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
def compute_row(kernel, points, duals, cache, scratch, key):
    """Fill a slot with the kernel row of a point, in variable order. In place: cache."""
    slot = claim_slot(cache, key)
    panels = (points.n + LANES - 1) // LANES
    row = cache.values[slot]
    kernel_row(kernel, points, key, points, np.int64(0), panels, scratch, row if cache.one_each else cache.points_row)
    if not cache.one_each:
        for t in range(duals.n):
            row[t] = cache.points_row[duals.point[t]]
        for t in range(duals.n, row.shape[0]):
            row[t] = 0.0
    cache.clock[0] += 1
    cache.used[slot] = cache.clock[0]


@jit(inline=True)
def _fetch(duals, cache, ints, t):
    """The slot of the kernel row of variable t, or -1 with a note of the point whose row is missing."""
    key = duals.point[t]
    slot = cache.slot[key]
    if slot < 0:
        ints[ROW] = key
    else:
        cache.clock[0] += 1
        cache.used[slot] = cache.clock[0]
    return slot


@jit(inline=True)
def set_masks(duals, scan, t):
    """Refresh whether variable t can grow and shrink. In place: grow, shrink."""
    scan.grow[t] = 0.0 if duals.beta[t] < duals.upper[t] else -BIG
    scan.shrink[t] = 0.0 if duals.beta[t] > duals.lower[t] else BIG


@jit(inline=True)
def advance(v, step, row_i, row_j, grow, shrink, best):
    """v -= step (row_i - row_j). Returns (the largest new v that can grow, the smallest new v that can shrink).

    The maxima of the blocks are left in `best`. In place: v, best.
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
    """The first index that has the maximum that `advance` has found."""
    p = 0
    while p < best.shape[0] - 1 and best[p] != top:
        p += 1
    k = p * LANES
    while k < (p + 1) * LANES - 1 and v[k] + mask[k] != top:
        k += 1
    return k


@jit(inline=True)
def _find_bottom(v, mask, bottom):
    """The first index that has the minimum that `advance` has found."""
    k = 0
    while k < v.shape[0] - 1 and v[k] + mask[k] != bottom:
        k += 1
    return k


@jit(inline=True)
def _best_score(score, best):
    """The first index of the largest score, from the maxima of the blocks."""
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
    """The variable of largest pull^2 / weight, and the largest pull. In place: score, best.

    The pull is the distance of a residual from zero, if its variable can follow it. This is for problems without an equality
    row.
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


@jit
def measure(duals, scan, cache, progress):
    """Find the extremes of the present point, after another function has changed it. In place: progress."""
    progress.floats[TOP], progress.floats[BOTTOM] = advance(
        duals.v, 0.0, cache.zero, cache.zero, scan.grow, scan.shrink, scan.best_top
    )


@jit(inline=True)
def _step(duals, scan, cache, progress, i, j):
    """Minimise over the pair (i, j), or over i alone when j < 0. Update the residual and the counters.

    Returns -1 when the step was made, else the reason why not: NEED_ROW, NO_BOUND or STUCK.
    """
    ints, floats = progress.ints, progress.floats
    slot_i = _fetch(duals, cache, ints, i)
    if slot_i < 0:
        return NEED_ROW
    row_i = cache.values[slot_i]
    row_j = cache.zero
    if j >= 0:
        slot_j = _fetch(duals, cache, ints, j)
        if slot_j < 0:
            return NEED_ROW
        row_j = cache.values[slot_j]
    step, slope, curvature = pair_length(duals, progress, row_i, i, j)
    before = duals.beta[i]
    step = move(duals, i, j, step)
    if np.isinf(step):
        return NO_BOUND
    set_masks(duals, scan, i)
    if j >= 0:
        set_masks(duals, scan, j)
    if step == 0.0 or duals.beta[i] == before:
        measure(duals, scan, cache, progress)  # a change of j that is too small for i may have put j onto its bound
        return STUCK
    duals.v[i] -= duals.diag[i] * step
    if j >= 0:
        duals.v[j] += duals.diag[j] * step
    floats[TOP], floats[BOTTOM] = advance(duals.v, step, row_i, row_j, scan.grow, scan.shrink, scan.best_top)
    count_step(progress, step * slope - 0.5 * curvature * step * step, i, j, step)
    return -1


@jit(inline=True)
def _greedy_pair(duals, scan, cache, progress, rule):
    """The working set of the greedy rules: (reason or -1, i, j). Sets the violation.

    Without an equality row a variable moves alone, and j is -1. But the rule "second" moves a pair where that gains more. A
    constant in the kernel, such as an embedded intercept, makes variables stiff when they move alone, and not in pairs.
    """
    ints, floats = progress.ints, progress.floats
    last = duals.n - 1  # if a residual has overflowed, the search for it finds nothing and ends in the padding
    top, bottom = floats[TOP], floats[BOTTOM]
    alone, alone_gain = -1, 0.0
    if not duals.equality:
        weight = cache.ones if rule == MVP else duals.curvature
        alone, floats[VIOLATION] = worst_coordinate(
            duals.v, scan.grow, scan.shrink, weight, duals.tiny, scan.score, scan.best
        )
        alone = min(alone, last)
        alone_gain = scan.score[alone]
        if rule == MVP or top <= bottom:
            return -1, alone, -1
    else:
        floats[VIOLATION] = violation(top, bottom, duals.equality)
        if floats[VIOLATION] == 0.0:
            return -1, 0, 0
    i = min(_find_top(duals.v, scan.grow, scan.best_top, top), last)
    if rule == SECOND:
        slot = _fetch(duals, cache, ints, i)
        if slot < 0:
            return NEED_ROW, i, i
        j = second_partner(
            duals.v, scan.shrink, duals.curvature, cache.values[slot], duals.v[i],
            duals.curvature[i], duals.tiny, scan.score, scan.best,
        )  # fmt: skip
        if alone >= 0 and not scan.score[min(j, last)] > alone_gain:
            return -1, alone, -1
    else:
        j = _find_bottom(duals.v, scan.shrink, bottom)
    return -1, i, min(j, last)


@jit
def _random(ints, n):
    """The next index below n of a 64-bit linear congruential generator. In place: the seed."""
    ints[SEED] = ints[SEED] * np.int64(6364136223846793005) + np.int64(1442695040888963407)
    return ((ints[SEED] >> np.int64(33)) & np.int64(0x3FFFFFFF)) % n


@jit
def _wants(duals, scan, t, threshold, tol):
    """What variable t wants where it violates the conditions: +1 to grow, -1 to shrink. 0 when it does not violate them."""
    if duals.v[t] - threshold > tol and scan.grow[t] == 0.0:
        return 1
    if duals.v[t] - threshold < -tol and scan.shrink[t] == 0.0:
        return -1
    return 0


@jit
def _fits(duals, scan, i, j, want, least):
    """Whether i can move as it wants, and j the other way, with a slope of at least `least`."""
    if i == j:
        return False
    if want > 0:
        return scan.shrink[j] == 0.0 and duals.v[i] - duals.v[j] > least
    return scan.grow[j] == 0.0 and duals.v[j] - duals.v[i] > least


@jit
def _platt_partner(duals, scan, ints, i, want, least):
    """Platt's second choice: the farthest free variable, then any free one, then any other, from random starts. Or -1."""
    n = duals.n
    far = -1
    for j in range(n):
        if scan.grow[j] == 0.0 and scan.shrink[j] == 0.0:
            if far < 0 or abs(duals.v[i] - duals.v[j]) > abs(duals.v[i] - duals.v[far]):
                far = j
    if far >= 0 and _fits(duals, scan, i, far, want, least):
        return far
    for free_only in (True, False):
        start = _random(ints, n)
        for k in range(n):
            j = (start + k) % n
            if free_only and not (scan.grow[j] == 0.0 and scan.shrink[j] == 0.0):
                continue
            if _fits(duals, scan, i, j, want, least):
                return j
    return -1


@jit
def _sweep_pair(duals, scan, progress, rule, tol):
    """Examine the variable at the sweep's position. Returns (i, j) if it violates and has a partner, else i = -1."""
    ints, floats = progress.ints, progress.floats
    i = ints[POSITION]
    ints[POSITION] += 1
    if rule == PLATT and not ints[EXAMINE_ALL] and (scan.grow[i] != 0.0 or scan.shrink[i] != 0.0):
        return -1, -1
    half = 0.5 * tol if duals.equality else tol
    want = _wants(duals, scan, i, floats[THRESHOLD], half)
    if want == 0:
        return -1, -1
    if not duals.equality:
        return i, -1
    if rule == PLATT:
        j = _platt_partner(duals, scan, ints, i, want, half)
        return (i, j) if j >= 0 else (-1, -1)
    if duals.n > 1:
        j = (i + 1 + _random(ints, duals.n - 1)) % duals.n
        if _fits(duals, scan, i, j, want, 0.0):
            return i, j
    return -1, -1


@jit
def _after_sweep_step(duals, scan, progress, i, j):
    """Set the sweep's threshold after a step: the residual of that variable of the pair that is free, else their mean."""
    progress.ints[CHANGED] += 1
    if not duals.equality:
        return
    v = duals.v
    if scan.grow[i] == 0.0 and scan.shrink[i] == 0.0:
        progress.floats[THRESHOLD] = v[i]
    elif scan.grow[j] == 0.0 and scan.shrink[j] == 0.0:
        progress.floats[THRESHOLD] = v[j]
    else:
        progress.floats[THRESHOLD] = 0.5 * (v[i] + v[j])


@jit
def _end_of_sweep(duals, scan, cache, progress, rule, max_passes):
    """Measure between two sweeps, and choose the next one.

    Returns (reason or -1, i, j), with a pair if nothing has changed.
    """
    ints, floats = progress.ints, progress.floats
    quiet = ints[CHANGED] == 0
    ints[CHANGED] = 0
    ints[POSITION] = 0
    ints[PASSES] += 1
    _, i, j = _greedy_pair(duals, scan, cache, progress, np.int64(MVP))
    if rule == PLATT and not ints[EXAMINE_ALL]:
        # With a tolerance of zero, free variables may go on for ever over rounding. So now and then all are looked at.
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
        # With this threshold no variable finds a partner. So the worst pair is taken, and the threshold is put into the
        # middle.
        floats[THRESHOLD] = 0.5 * (floats[TOP] + floats[BOTTOM]) if duals.equality else 0.0
        ints[QUIET] = 0
        return -1, i, j
    return -1, -1, -1


@jit(inline=True)
def _choose(duals, scan, cache, progress, rule, tol, max_passes):
    """The next working set: (reason or -1, i, j), with i = -1 when there is none yet."""
    ints, floats = progress.ints, progress.floats
    if ints[PENDING_I] >= 0:  # the row that this step was waiting for is there now
        i, j = ints[PENDING_I], ints[PENDING_J]
        ints[PENDING_I] = -1
        return -1, i, j
    if rule == SECOND or rule == MVP:
        reason, i, j = _greedy_pair(duals, scan, cache, progress, rule)
    elif ints[POSITION] < duals.n:
        i, j = _sweep_pair(duals, scan, progress, rule, tol)
        return -1, i, j
    else:
        reason, i, j = _end_of_sweep(duals, scan, cache, progress, rule, max_passes)
    if floats[VIOLATION] <= tol:
        return AT_TOLERANCE, i, j
    return reason, i, j


@jit
def smo_slice(kernel, points, duals, scan, cache, scratch, progress, rule, limits, max_passes):
    """Run SMO until there is a reason to return to Python. Returns the reason. In place: everything but the problem."""
    ints, floats = progress.ints, progress.floats
    floats[WORK] = 0.0
    greedy = rule == SECOND or rule == MVP
    size = float(duals.v.shape[0])
    while True:
        reason = due(progress, limits)
        if reason >= 0:
            return reason
        reason, i, j = _choose(duals, scan, cache, progress, rule, limits.tol, max_passes)
        floats[WORK] += 4.0 * size if greedy else 16.0
        if reason < 0 and i >= 0:
            reason = _step(duals, scan, cache, progress, i, j)
            floats[WORK] += 4.0 * size
            if reason == NEED_ROW:
                ints[PENDING_I], ints[PENDING_J] = i, j
            elif greedy:
                pass
            elif reason == STUCK and ints[POSITION] > 0:
                reason = -1  # that nothing can move is shown by the worst pair alone, which ends a sweep
            elif reason < 0:
                _after_sweep_step(duals, scan, progress, i, j)
        if reason == NEED_ROW and kernel.kind != CALLABLE:
            compute_row(kernel, points, duals, cache, scratch, ints[ROW])
            ints[EVALS] += points.n
            ints[MISSES] += 1
            floats[WORK] += size * (8.0 + points.panels.shape[1])
        elif reason >= 0:
            return reason
