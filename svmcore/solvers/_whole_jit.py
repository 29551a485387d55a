"""A problem of one working set, solved and measured in one call: the loops of the block solver, one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

from svmcore._jit import jit
from svmcore._types import LANES, FloatArray, IntArray
from svmcore.simd.loops import add_block_64, add_rows, gather_panels, pack_rows
from svmcore.simd.vector import BIG, ROWS
from svmcore.solvers._block_jit import extremes, pair_steps, start_masks

TAU = 1e-6  # a curvature below this counts as zero
NOISE = 2e-6  # share of the violation up to which float32 residuals can be settled
INNER = 0.7  # share of the tolerance at which pair steps end
RELAX = 1.5  # steps that no bound cuts are so many times too long
MOST_DECISIVE = 0.7  # share of the residuals from which computing them is no cheaper than computing all


class Task(NamedTuple):
    """A problem among some of the points of panels, and room to measure its dual points in float64."""

    single: Any  # all points as panels in float32,
    double: Any  # and in float64
    point: IntArray  # variable -> point
    c: FloatArray
    total: float
    error: float  # of a residual from float32 values, at most, for each unit of sum |beta| + 1
    v: FloatArray  # residual
    chosen: IntArray  # variables whose residuals are computed,
    places: IntArray  # and their points
    support: IntArray  # variables with a coefficient, or their points, or their rows in the Gram matrix
    coef: FloatArray  # and the coefficients, up to whole row groups,
    weights: Any  # and in float32
    panels: Any  # room for points as panels,
    rows: Any  # and as row groups
    field: FloatArray  # room for K beta, up to whole panels


@jit
def _repair(work, total):
    """The sum of beta put right, which steps miss by their rounding: at the variable with most room. In place: beta."""
    missing, widest, at = total, 0.0, 0
    for t in range(work.beta.shape[0]):
        missing -= work.beta[t]
        room = min(work.beta[t] - work.lower[t], work.upper[t] - work.beta[t])
        if room > widest:
            widest = room
            at = t
    if abs(missing) < widest:
        work.beta[at] += missing


@jit
def _residual(shape, work, task, count):
    """v = c - K beta of the first `count` chosen variables, from the points in float64. In place: v, and the room."""
    size = 0
    for t in range(work.beta.shape[0]):
        if work.beta[t] != 0.0:
            task.support[size] = task.point[t]
            task.coef[size] = work.beta[t]
            size += 1
    groups, panels = (size + ROWS - 1) // ROWS, (count + LANES - 1) // LANES
    for k in range(size, groups * ROWS):
        task.coef[k] = 0.0
    for k in range(count):
        task.places[k] = task.point[task.chosen[k]]
    for k in range(panels * LANES):
        task.field[k] = 0.0
    if size > 0:
        gather_panels(task.double, task.places[:count], task.panels[:panels])
        pack_rows(task.double, task.support[:size], task.rows[:groups])
        add_block_64(shape, task.rows[:groups], task.coef, task.panels[:panels], 0, panels, task.field)
    for k in range(count):
        task.v[task.chosen[k]] = task.c[task.chosen[k]] - task.field[k]


@jit
def _choose_all(task):
    """Every residual is to be computed; how many these are. In place: chosen."""
    for t in range(task.chosen.shape[0]):
        task.chosen[t] = t
    return task.chosen.shape[0]


@jit
def _bias(work, v, high, low):
    """The mean residual of the free variables; when none is free, the midpoint of the interval that is optimal."""
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
def _choose_decisive(work, task, lines):
    """All residuals by the rows of the Gram matrix that are there, and which of them may decide: how many these are.

    Those of support vectors, those that may be an extreme, and those on whose side of the bias part of the gap depends. For
    the others it is certain that their exact values would change no measure. In place: v, chosen, and the room.
    """
    m, size, moved = work.beta.shape[0], 0, 1.0
    for t in range(task.field.shape[0]):
        task.field[t] = 0.0
    for t in range(m):
        if work.beta[t] != 0.0:
            task.support[size] = lines.slot[t]
            task.weights[size] = work.beta[t]
            moved += abs(work.beta[t])
            size += 1
    add_rows(work.gram, task.support[:size], task.weights, 0, m, task.field)
    for t in range(m):
        task.v[t] = task.c[t] - task.field[t]
    high, low, _ = extremes(task.v, work.beta, work.lower, work.upper)
    bias, error = _bias(work, task.v, high, low), 2.0 * task.error * moved
    least, most = min(high, bias) - error, max(low, bias) + error
    count = 0
    for t in range(m):
        grows = work.beta[t] < work.upper[t] and task.v[t] >= least
        shrinks = work.beta[t] > work.lower[t] and task.v[t] <= most
        task.chosen[count] = t
        count += work.beta[t] != 0.0 or grows or shrinks
    return count


@jit
def _measured(work, task, high, low):
    """(bias, objective, gap) of a point whose residual is known; boxes are finite."""
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

    Returns (steps, rounds, residuals computed, violation, bias, objective, gap). A violation above the tolerance says that
    something else is called for. In place: beta, and the room.
    """
    gather_panels(task.single, task.point, lines.panels)
    m, steps, rounds = work.beta.shape[0], 0, 0
    computed = _choose_all(task)
    _residual(shape, work, task, computed)
    while True:
        high, low, _ = extremes(task.v, work.beta, work.lower, work.upper)
        violation = max(high - low, 0.0)
        if violation <= tol or rounds >= most_rounds or steps >= most_steps:
            break
        if computed < m:
            computed = _choose_all(task)
            _residual(shape, work, task, computed)
        shift = 0.5 * (high + low)
        for t in range(m):
            work.values[t] = task.v[t] - shift
        start_masks(work)
        stop = max(INNER * tol, NOISE * violation)
        taken, _, bits = pair_steps(work, stop, RELAX, TAU, most_steps - steps, shape, lines)
        _repair(work, task.total)
        steps += taken
        rounds += 1
        if rounds == 1:
            computed = _choose_decisive(work, task, lines)
        if rounds > 1 or computed > MOST_DECISIVE * m:
            computed = _choose_all(task)
        _residual(shape, work, task, computed)
        if bits != 0 or taken == 0:
            rounds = most_rounds
    bias, objective, gap = _measured(work, task, high, low)
    return steps, rounds, computed, violation, bias, objective, gap
