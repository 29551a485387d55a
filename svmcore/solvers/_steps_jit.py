"""What all compiled slices of the solvers share: the dual point, counters, limits, and steps of one or two variables.

The residual ``v = c - (K + D) beta`` of every variable is kept. A slice runs until it needs Python. There are five reasons
for this: a row is missing, the tolerance is met, a check is due, the trace is full, or a budget of work is spent. The last
one serves Ctrl-C, limits and callbacks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.compiler.jit import jit

# The reasons why a slice ends.
(
    AT_TOLERANCE, CHECK_DUE, SLICE_SPENT, TRACE_FULL, NEED_ROW, STUCK, NO_BOUND, AT_MAX_ITER, SWEEP_DONE, PASSES_DONE,
    NEED_ROOM,
) = range(11)  # fmt: skip

# Places of whole numbers in the progress record. Those of a solver of its own begin at OWN_INT.
ITERATION, NEXT_CHECK, TRACED, ROW, EVALS, POSITION, CHANGED, RESTART, NONCONVEX, OWN_INT = range(10)
# Places of floats in the progress record. Those of a solver of its own begin at OWN_FLOAT.
VIOLATION, OBJECTIVE, WORK, OWN_FLOAT = range(4)

TRACE_COLUMNS = ("objective", "violation", "n_kernel_evals", "i", "j", "step")

_BENT = -1e-9  # a curvature below this share of its terms is not negative by rounding alone
_CANCELLED = 1e-15  # a curvature below this share of its terms is nothing but rounding
_TOUCHING = 4.0e-16  # a step that misses a bound by less than this share of its length lands on the bound


class Duals(NamedTuple):
    """The dual problem, a point, and its residual.

    The first `n` entries of each vector belong to variables. Padding may follow, which can neither grow nor shrink.
    """

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
    """Kernel rows in the order of the variables. `slot[point]` is the row of a point, or -1.

    `used[slot]` is the iteration that last needed the row.
    """

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
    """The slot of the kernel row of variable t. If it is missing: -1, and its point is noted. In place: progress, used."""
    key = duals.point[t]
    slot = rows.slot[key]
    if slot < 0:
        progress.ints[ROW] = key
    else:
        rows.used[slot] = progress.ints[ITERATION]
    return slot


@jit
def find_rows(duals, rows, progress, chosen, m):
    """Whether the rows of the first m of these variables are stored. Notes a point whose row is not. In place: progress."""
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
    """Count an iteration that has lowered the objective by `gain`, and trace it. In place: progress."""
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
    """Returns (i, j, violation). Of the variables that can grow, i has the largest residual. -1 stands for none.

    Of those that can shrink, j has the smallest residual.
    """
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
    """The one of the worst pair that violates more. It is for problems without an equality row."""
    if i < 0 or (j >= 0 and duals.v[i] < -duals.v[j]):
        return j
    return i


@jit(inline=True)
def room(duals, t, step):
    """How far variable t can move in the direction of step."""
    return duals.upper[t] - duals.beta[t] if step > 0 else duals.beta[t] - duals.lower[t]


@jit(inline=True)
def _land(duals, t, step, space):
    """beta_t += step. A step that reaches the bound ends exactly on it. In place: beta."""
    size = abs(step)
    if size >= space - _TOUCHING * size:
        duals.beta[t] = duals.upper[t] if step > 0 else duals.lower[t]
    else:
        duals.beta[t] += step


@jit(inline=True)
def move(duals, i, j, step):
    """beta_i += step, beta_j -= step. With j < 0 only i moves. A bound that is reached is met exactly. In place: beta.

    Returns the step taken. It is infinite when no bound limits an infinite step: then nothing has moved.
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
    """Bring the residual up to date after beta_t has changed by `change`. `row` is the kernel row of t. In place: v."""
    v = duals.v
    for k in range(duals.n):
        v[k] -= change * row[k]
    v[t] -= duals.diag[t] * change


@jit(inline=True)
def pair_length(duals, progress, row_i, i, j):
    """(step, slope, curvature) of the pair (i, j), or of i alone when j < 0. The step leads to the minimum, without bounds.

    It is infinite in two cases. The pair may have negative curvature, which is noted in progress. Or its points are equal and
    their labels or targets are not: then only a bound ends the step.
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
        curvature = max(curvature, least)  # K adds nothing negative, so less than the diagonals' share is rounding
        step = slope / max(curvature, min(duals.tiny, least) if least > 0.0 else duals.tiny)
    convex = progress.ints[NONCONVEX] == 0
    if convex and curvature <= _CANCELLED * abs(scale) and least == 0.0 and sign * pull > 0.0:
        step = sign * np.inf
    return step, slope, curvature
