"""What all compiled slices of the solvers share: the dual point, counters, limits, and steps of one or two variables.

The residual ``v = c - (K + D) beta`` of every variable is kept. A slice runs until it needs Python: a row is missing, the
tolerance is met, a check is due, a budget of work is spent (so that Ctrl-C, limits and callbacks are served), or the trace
is full.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._jit import jit
from svmcore._types import FloatArray, IntArray

# why a slice ended
(
    AT_TOLERANCE, CHECK_DUE, SLICE_SPENT, TRACE_FULL, NEED_ROW, STUCK, NO_BOUND, AT_MAX_ITER, SWEEP_DONE, PASSES_DONE,
    NEED_ROOM,
) = range(11)  # fmt: skip

# ints of the progress record; a solver's own begin at OWN_INT
ITERATION, NEXT_CHECK, TRACED, ROW, EVALS, POSITION, CHANGED, RESTART, NONCONVEX, OWN_INT = range(10)
# floats of the progress record; a solver's own begin at OWN_FLOAT
VIOLATION, OBJECTIVE, WORK, OWN_FLOAT = range(4)

TRACE_COLUMNS = ("objective", "violation", "n_kernel_evals", "i", "j", "step")

_BENT = -1e-9  # a curvature below this share of its terms is negative, and not by rounding
_CANCELLED = 1e-15  # a curvature below this share of its terms is nothing but rounding
_TOUCHING = 4.0e-16  # a step that misses a bound by less than this share of its length lands on the bound


class Duals(NamedTuple):
    """The first `n` entries of each vector belong to variables; padding may follow, which can neither grow nor shrink."""

    n: int
    equality: bool
    total: float
    beta: FloatArray
    v: FloatArray  # residual
    c: FloatArray
    lower: FloatArray
    upper: FloatArray
    diag: FloatArray
    curvature: FloatArray  # K_tt + diag_t
    point: IntArray  # variable -> point
    tiny: float  # a curvature below this counts as zero


class Rows(NamedTuple):
    """Kernel rows in variable order: `slot[point]` or -1; `used[slot]` is the iteration that last needed it."""

    values: FloatArray
    slot: IntArray
    used: IntArray


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


@jit(inline=True)
def find_row(duals, rows, progress, t):
    """The slot of variable t's kernel row, or -1 with a note of the point whose row is missing. In place: progress."""
    key = duals.point[t]
    slot = rows.slot[key]
    if slot < 0:
        progress.ints[ROW] = key
    else:
        rows.used[slot] = progress.ints[ITERATION]
    return slot


@jit
def find_rows(duals, rows, progress, chosen, m):
    """Whether the rows of the first m of these variables are there; notes a point whose row is not. In place: progress."""
    found = True
    for a in range(m):
        if find_row(duals, rows, progress, chosen[a]) < 0:
            found = False
    return found


@jit(inline=True)
def due(progress, limits):
    """The reason to return before another step, or -1. In place: progress."""
    ints = progress.ints
    if ints[ITERATION] >= limits.max_iter:
        return AT_MAX_ITER
    if ints[ITERATION] >= ints[NEXT_CHECK]:
        ints[NEXT_CHECK] = ints[ITERATION] + limits.check_every
        return CHECK_DUE
    if progress.floats[WORK] > limits.work:
        return SLICE_SPENT
    if progress.trace.shape[0] > 0 and ints[TRACED] >= progress.trace.shape[0]:
        return TRACE_FULL
    return -1


@jit(inline=True)
def count_step(progress, gain, i, j, step):
    """One more iteration that lowered the objective by `gain`. In place: progress."""
    ints, floats = progress.ints, progress.floats
    floats[OBJECTIVE] -= gain
    ints[ITERATION] += 1
    if progress.trace.shape[0] > 0:
        record = progress.trace[ints[TRACED]]
        record[0], record[1], record[2] = floats[OBJECTIVE], floats[VIOLATION], ints[EVALS]
        record[3], record[4], record[5] = i, j, step
        ints[TRACED] += 1


@jit(inline=True)
def violation(top, bottom, equality):
    """The KKT violation, from the largest residual that can grow and the smallest that can shrink."""
    if equality:
        return max(top - bottom, 0.0)
    return max(top, -bottom, 0.0)


@jit
def worst_pair(duals):
    """(i, j, violation): the variable of largest residual that can grow, of smallest that can shrink; -1 where none can."""
    i = -1
    j = -1
    top = -np.inf
    bottom = np.inf
    for t in range(duals.n):
        value = duals.v[t]
        if value > top and duals.beta[t] < duals.upper[t]:
            top = value
            i = t
        if value < bottom and duals.beta[t] > duals.lower[t]:
            bottom = value
            j = t
    return i, j, violation(top, bottom, duals.equality)


@jit(inline=True)
def stronger(duals, i, j):
    """Without an equality row: that one of the worst pair which violates more."""
    if i < 0 or (j >= 0 and duals.v[i] < -duals.v[j]):
        return j
    return i


@jit(inline=True)
def room(duals, t, step):
    """How far variable t can move in the direction of step."""
    return duals.upper[t] - duals.beta[t] if step > 0 else duals.beta[t] - duals.lower[t]


@jit(inline=True)
def _land(duals, t, step, space):
    """beta_t += step, exactly onto the bound when the step reaches it. In place: beta."""
    size = abs(step)
    if size >= space - _TOUCHING * size:
        duals.beta[t] = duals.upper[t] if step > 0 else duals.lower[t]
    else:
        duals.beta[t] += step


@jit(inline=True)
def move(duals, i, j, step):
    """beta_i += step, beta_j -= step (j < 0: only i), landing exactly on a bound that is reached.

    Returns the step taken; infinity, with nothing moved, when no bound limits an infinite step. In place: beta.
    """
    room_i = room(duals, i, step)
    room_j = np.inf
    if j >= 0:
        room_j = room(duals, j, -step)
    size = min(abs(step), room_i, room_j)
    if np.isinf(size):
        return np.inf
    if size == 0.0:
        return 0.0
    step = size if step > 0 else -size
    _land(duals, i, step, room_i)
    if j >= 0:
        _land(duals, j, -step, room_j)
    return step


@jit
def follow_change(duals, row, t, change):
    """The residual after beta_t has changed by so much; `row` is the kernel row of t. In place: v."""
    v = duals.v
    for k in range(duals.n):
        v[k] -= change * row[k]
    v[t] -= duals.diag[t] * change


@jit(inline=True)
def pair_length(duals, progress, row_i, i, j):
    """(step, slope, curvature) of the pair (i, j), or of i alone when j < 0: the minimum along it, if no bound interferes.

    The step is infinite where the pair has negative curvature (which is noted in progress), and where it is a contradiction
    of duplicates that nothing but a bound stops.
    """
    if j >= 0:
        slope = duals.v[i] - duals.v[j]
        scale = duals.curvature[i] + duals.curvature[j]
        curvature = scale - 2.0 * row_i[j]
        pull = duals.c[i] - duals.c[j]
        least = duals.diag[i] + duals.diag[j]
    else:
        slope = duals.v[i]
        scale = duals.curvature[i]
        curvature = scale
        pull = duals.c[i]
        least = duals.diag[i]
    sign = 1.0 if slope > 0 else -1.0
    if curvature < _BENT * abs(scale):
        progress.ints[NONCONVEX] = 1
        step = sign * np.inf
    else:
        curvature = max(curvature, least)  # what rounding may have hidden: K itself adds nothing negative
        step = slope / max(curvature, min(duals.tiny, least) if least > 0.0 else duals.tiny)
    convex = progress.ints[NONCONVEX] == 0
    if convex and curvature <= _CANCELLED * abs(scale) and least == 0.0 and sign * pull > 0.0:
        step = sign * np.inf
    return step, slope, curvature
