"""A problem of one working set, solved and measured in one call. It runs the loops of the block solver in turn."""

from __future__ import annotations

from typing import Any, NamedTuple

from svmcore._jit import jit
from svmcore._types import FloatArray, IntArray
from svmcore.simd.loops import add_block_64, pack_rows
from svmcore.simd.vector import BIG, ROWS
from svmcore.solvers._block_jit import INNER_TOL, NOISE, RELAX, TAU, extremes, pair_steps, repair_sum, start_masks


class Task(NamedTuple):
    """A problem among some of the points of panels, and room to measure its dual points in float64."""

    panels: Any  # the points of the variables
    double: Any  # the points that `point` numbers
    point: IntArray
    c: FloatArray
    total: float
    v: FloatArray  # the residual
    support: IntArray  # room for the points with a coefficient
    coef: FloatArray  # room for their coefficients, up to whole row groups
    rows: Any  # room for these points as row groups
    field: FloatArray  # room for K beta, up to whole panels


@jit
def _residual(shape, work, task):
    """v = c - K beta from the points in float64. In place: v, and the room."""
    size = 0
    for t in range(work.beta.shape[0]):
        if work.beta[t] != 0.0:
            task.support[size] = task.point[t]
            task.coef[size] = work.beta[t]
            size += 1
    groups = (size + ROWS - 1) // ROWS
    for k in range(size, groups * ROWS):
        task.coef[k] = 0.0
    for k in range(task.field.shape[0]):
        task.field[k] = 0.0
    if size > 0:
        pack_rows(task.double, task.support[:size], task.rows[:groups])
        add_block_64(shape, task.rows[:groups], task.coef, task.panels, 0, task.panels.shape[0], task.field)
    for t in range(work.beta.shape[0]):
        task.v[t] = task.c[t] - task.field[t]


@jit
def _bias(work, v, high, low):
    """The mean residual of the free variables. When none is free, it is the midpoint of the optimal interval."""
    total, count = 0.0, 0
    for t in range(v.shape[0]):
        if work.lower[t] < work.beta[t] < work.upper[t]:
            total += v[t]
            count += 1
    if count > 0:
        return total / count
    if high <= -BIG:
        return 0.0 if low >= BIG else low
    return high if low >= BIG else 0.5 * (high + low)


@jit
def _measured(work, task, high, low):
    """(bias, objective, gap) of a point whose residual is known. Boxes are finite."""
    bias = _bias(work, task.v, high, low)
    objective, gap = 0.0, 0.0
    for t in range(work.beta.shape[0]):
        beta, v = work.beta[t], task.v[t]
        objective -= 0.5 * beta * (task.c[t] + v)
        gap += ((work.upper[t] if v > bias else work.lower[t]) - beta) * (v - bias)
    return bias, objective, gap


@jit
def solve(shape, work, lines, task, tol, most_steps, most_rounds):
    """Pair steps in float32 and residuals in float64, in turn, until the violation is at most `tol`.

    Returns (steps, rounds, violation, bias, objective, gap). If the violation is above the tolerance, another solver is
    needed. In place: beta, and the room.
    """
    m, steps, rounds = work.beta.shape[0], 0, 0
    while True:
        _residual(shape, work, task)
        high, low, _ = extremes(task.v, work.beta, work.lower, work.upper)
        violation = max(high - low, 0.0)
        if violation <= tol or rounds >= most_rounds or steps >= most_steps:
            break
        shift = 0.5 * (high + low)
        for t in range(m):
            work.values[t] = task.v[t] - shift
        start_masks(work)
        stop = max(INNER_TOL * tol, NOISE * violation)
        taken, _, bits = pair_steps(work, stop, RELAX, TAU, most_steps - steps, shape, lines)
        repair_sum(work, task.total)
        steps += taken
        rounds = rounds + 1 if bits == 0 and taken > 0 else most_rounds
    bias, objective, gap = _measured(work, task, high, low)
    return steps, rounds, violation, bias, objective, gap
