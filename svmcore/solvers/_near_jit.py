"""Loops for machines between classes whose points are in panels: pair steps among the points near the margin.

A variable has the number of its point's lane in the panels. Lanes between the last point of a class and the end of its last
panel have boxes without a width, so they cannot move.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from svmcore._types import LANES, FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.simd.loops import add_block, add_rows
from svmcore.simd.packing import gather_panels, pack_rows
from svmcore.simd.vector import BIG, ROWS
from svmcore.solvers._block_jit import (
    INNER_TOL,
    NOISE,
    RELAX,
    TAU,
    Lines,
    WorkingSet,
    pair_steps,
    repair_sum,
    row_of,
    start_masks,
)
from svmcore.solvers._ends_jit import bias_of, worth_of

NEAREST = 0.02  # a strip along the margin that would be narrower than this becomes zero: then only violators are taken


class Panels(NamedTuple):
    """The points of one machine as panels, and what is known of each lane."""

    single: Any  # the panels in float32, as tiles read them
    double: Any
    diagonal: FloatArray
    error: float  # the largest error of a residual from float32 values, for each unit of sum |beta|


class Everyone(NamedTuple):
    """The variables of one problem, by lane."""

    beta: FloatArray
    v: FloatArray  # the residual
    c: FloatArray
    lower: FloatArray
    upper: FloatArray
    diag: FloatArray  # zeros
    field: FloatArray  # room for sums
    chosen: IntArray  # room for numbers


class Packed(NamedTuple):
    """Room for points as rows of tiles, and for their coefficients: changed variables, or support vectors."""

    lanes: IntArray
    coef: FloatArray
    coef_single: Any
    rows: Any  # row groups
    rows_single: Any
    panels: Any  # room for some points in float64
    part: FloatArray  # room for their sums


@jit
def _first(work, lines, size):
    """The room of a working set, as far as the first `size` variables need it."""
    part = WorkingSet(
        work.gram, work.unit, work.diagonal[:size], work.values[:size], work.rise[:size], work.fall[:size],
        work.beta[:size], work.lower[:size], work.upper[:size],
    )  # fmt: skip
    return part, Lines(lines.panels[: size // LANES], lines.slot[:size], lines.filled)


@jit
def _forget(lines, filled):
    """No row is there but those of others, of which so many are filled. In place: lines."""
    for k in range(lines.slot.shape[0]):
        lines.slot[k] = -1
    lines.filled[0] = filled


@jit
def _enter(points, one, members, count, work):
    """Make the members a working set. Returns its violation. In place: work."""
    high, low = -BIG, BIG
    for k in range(work.beta.shape[0]):
        t = members[k] if k < count else members[0]
        there = k < count
        work.beta[k] = one.beta[t] if there else 0.0
        work.lower[k] = one.lower[t] if there else 0.0
        work.upper[k] = one.upper[t] if there else 0.0
        work.diagonal[k] = points.diagonal[t]
        if work.beta[k] < work.upper[k]:
            high = max(high, one.v[t])
        if work.beta[k] > work.lower[k]:
            low = min(low, one.v[t])
    start_masks(work)
    shift = 0.5 * (high + low) if high > -BIG and low < BIG else 0.0
    for k in range(count):
        work.values[k] = one.v[members[k]] - shift
    for k in range(count, work.values.shape[0]):
        work.values[k] = 0.0
    return high - low


@jit
def _among(shape, points, one, members, count, work, lines, tol, rough, most_steps):
    """Pair steps among the members, in float32. Returns their number. In place: work, lines."""
    violation = _enter(points, one, members, count, work)
    total = 0.0
    for k in range(count):
        total += work.beta[k]
    stop = max(INNER_TOL * tol, rough * violation)
    steps, _, _ = pair_steps(work, stop, RELAX, TAU, most_steps, shape, lines)
    repair_sum(work, total)
    return steps


@jit
def _among_few(shape, points, one, members, count, work, lines, filled, tol, rough, most_steps):
    """`_among` where the points of the members are gathered first, and their rows come after those that are filled."""
    part, own = _first(work, lines, (count + LANES - 1) // LANES * LANES)
    gather_panels(points.single, members[:count], own.panels)
    _forget(own, filled)
    return _among(shape, points, one, members, count, part, own, tol, rough, most_steps)


@jit
def _leave(shape, points, one, members, count, work, packed):
    """Bring beta, and the residuals of all variables, up to date after steps among the members.

    Returns the sum of |changes|, and how many variables have changed. In place: beta, v, and the room.
    """
    size, moved = 0, 0.0
    for k in range(count):
        t = members[k]
        change = work.beta[k] - one.beta[t]
        if change != 0.0:
            packed.lanes[size] = t
            packed.coef_single[size] = change
            moved += abs(change)
            one.beta[t] = work.beta[k]
            size += 1
    groups = (size + ROWS - 1) // ROWS
    for k in range(size, groups * ROWS):
        packed.coef_single[k] = 0.0
    pack_rows(points.single, packed.lanes[:size], packed.rows_single[:groups])
    for t in range(one.beta.shape[0]):
        one.field[t] = 0.0
    panels, rows = points.single, packed.rows_single[:groups]
    add_block(shape, rows, packed.coef_single, panels, 0, panels.shape[0], one.field)
    for t in range(one.beta.shape[0]):
        one.v[t] -= one.field[t]
    return moved, size


@jit
def _near(one, bias, width, stride, members):
    """Find the variables in a strip along the margin that may move. Of those without a coefficient, take one in `stride`.

    Returns how many are taken, which may be more than there is room for, and how many have no coefficient. In place: members.
    """
    count, most, at = 0, members.shape[0], 0
    for t in range(one.beta.shape[0]):
        grows = one.beta[t] < one.upper[t] and one.v[t] >= bias - width
        shrinks = one.beta[t] > one.lower[t] and one.v[t] <= bias + width
        if grows or shrinks:
            empty = one.beta[t] == 0.0
            at += empty
            if not (empty and at % stride):
                if count < most:
                    members[count] = t
                count += 1
    return count, at


@jit
def _decisive(one, high, low, bias, error, every):
    """Choose the residuals that are to be computed in float64: with `every` all, else those that may decide a measure.

    These are the residuals of support vectors, those that may be an extreme, and those for which the gap depends on whether
    they are above or below the bias. Returns their number, and the number of support vectors. In place: chosen.
    """
    count, support = 0, 0
    least, most = min(high, bias) - error, max(low, bias) + error
    for t in range(one.beta.shape[0]):
        grows = one.beta[t] < one.upper[t] and one.v[t] >= least
        shrinks = one.beta[t] > one.lower[t] and one.v[t] <= most
        one.chosen[count] = t
        support += one.beta[t] != 0.0
        count += every or one.beta[t] != 0.0 or grows or shrinks
    return count, support


@jit
def _exactly(shape, points, one, packed, count):
    """v = c - K beta in float64 for the chosen variables. In place: v, and the room."""
    size = 0
    for t in range(one.beta.shape[0]):
        if one.beta[t] != 0.0:
            packed.lanes[size] = t
            packed.coef[size] = one.beta[t]
            size += 1
    groups = (size + ROWS - 1) // ROWS
    for k in range(size, groups * ROWS):
        packed.coef[k] = 0.0
    pack_rows(points.double, packed.lanes[:size], packed.rows[:groups])
    room = packed.panels.shape[0] * LANES
    for start in range(0, count, room):
        stop = min(start + room, count)
        panels = packed.panels[: (stop - start + LANES - 1) // LANES]
        gather_panels(points.double, one.chosen[start:stop], panels)
        for k in range(panels.shape[0] * LANES):
            packed.part[k] = 0.0
        add_block(shape, packed.rows[:groups], packed.coef, panels, 0, panels.shape[0], packed.part)
        for k in range(start, stop):
            t = one.chosen[k]
            one.v[t] = one.c[t] - packed.part[k - start]


@jit
def turn(shape, points, one, members, count, work, lines, packed, tol, rough, most_steps):
    """Pair steps among the members, and the residuals of all variables after them.

    Returns (steps, changed variables, sum of their changes, high, low, bias). In place: one, and the room.
    """
    steps = _among_few(shape, points, one, members, count, work, lines, 0, tol, rough, most_steps)
    moved, size = _leave(shape, points, one, members, count, work, packed)
    high, low, bias = bias_of(one.v, one)
    return steps, size, moved, high, low, bias


@jit
def choose(one, bias, width, most, members):
    """Choose about `most` members for the next turn. Returns their number. It may be larger than the room: then none fit.

    If there are too many, the strip becomes narrower first. Then not all violators are taken. In place: members.
    """
    while True:
        count, empty = _near(one, bias, width, 1, members)
        if count <= most:
            return count
        if width == 0.0:
            break
        width = 0.5 * width if width > NEAREST else 0.0
    stride = empty // max(1, most - (count - empty)) + 1
    return _near(one, bias, 0.0, stride, members)[0]


@jit
def finish(shape, points, one, packed, high, low, bias, error, every):
    """Residuals in float64, of all variables or of those that decide, and the measures of the point.

    Returns (residuals computed, support vectors, high, low, bias, objective, gap). In place: v, and the room.
    """
    count, support = _decisive(one, high, low, bias, error, every)
    if support > packed.coef.shape[0] - ROWS:
        return 0, support, BIG, -BIG, 0.0, 0.0, 0.0
    _exactly(shape, points, one, packed, count)
    high, low, bias = bias_of(one.v, one)
    objective, gap = worth_of(one, one, bias)
    return count, support, high, low, bias, objective, gap


@jit
def _residuals(shape, one, work, lines, packed):
    """v = c - K beta of all variables, from whole rows in float32. Rows that are not there yet are computed.

    Returns the sum of |beta|. In place: v, lines, and the room.
    """
    support, total, size = 0, 0.0, one.beta.shape[0]
    for t in range(size):
        one.field[t] = 0.0
        if one.beta[t] != 0.0:
            packed.lanes[support] = row_of(work, shape, lines, None, t)
            packed.coef_single[support] = one.beta[t]
            total += abs(one.beta[t])
            support += 1
    add_rows(work.gram, packed.lanes[:support], packed.coef_single, 0, size, one.field)
    for t in range(size):
        one.v[t] = one.c[t] - one.field[t]
    return total


@jit
def from_all(shape, points, one, members, work, lines, few, packed, tol, how, most_steps):
    """A problem of one working set: pair steps among all variables, and later among those near the margin if they are few.

    What `turn`, or `small`, makes of such a problem takes 1.05 to 1.7 times as long.
    Whole rows of kernel values are kept, and give the residuals of all. `how` is (the share of the violation at which the
    first steps end, the width of the strip, the number of turns). Returns (steps, kernel values, sum of |beta|, high, low,
    bias, turns). In place: one, members, and the room.
    """
    rough, width, most_turns = how
    size = one.beta.shape[0]
    whole, rows = _first(work, lines, size)
    _forget(rows, 0)
    steps, turns, evals, moved, high, low, bias, enough = 0, 0, 0, 0.0, 0.0, 0.0, 0.0, tol
    while turns < 2 or (turns < most_turns and steps < most_steps and high - low > enough):
        count = _near(one, bias, width, 1, members)[0] if turns > 0 else size
        if 2 * count > size:
            count = size
            for k in range(size):
                members[k] = k
            share = NOISE if turns > 0 else rough
            steps += _among(shape, points, one, members, size, whole, rows, tol, share, most_steps - steps)
        elif count > 0:
            if rows.filled[0] + count > work.gram.shape[0]:  # without room for more, the whole rows are forgotten
                evals += rows.filled[0] * size
                _forget(rows, 0)
            left, filled = most_steps - steps, rows.filled[0]
            steps += _among_few(shape, points, one, members, count, work, few, filled, tol, NOISE, left)
            evals += (few.filled[0] - filled) * count
        for k in range(count):
            one.beta[members[k]] = work.beta[k]
        if turns > 0:
            moved = _residuals(shape, one, whole, rows, packed)
            enough = max(tol, 2.0 * points.error * moved)
        else:
            for k in range(size):
                one.v[k] = whole.values[k]
        high, low, bias = bias_of(one.v, one)
        turns += 1
    return steps, evals + rows.filled[0] * size, moved, high, low, bias, turns
