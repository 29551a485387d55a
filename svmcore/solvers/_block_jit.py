"""The inner loops of the block solver: the choice of a working set, and the pair steps on it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore._types import LANES, FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.simd.line import store_row
from svmcore.simd.passes import best_conjugate, best_partner, update_along, update_pair
from svmcore.simd.vector import (
    BIG,
    BIG_32,
    fmax,
    fmin,
)


class WorkingSet(NamedTuple):
    """The variables of one block, in float32 or float64. Coefficients and boxes are always float64.

    Vectors are padded to whole panels. `gram` is K + D among the variables, in units of `unit`. It has a row for each
    variable and at least one row of zeros.
    """

    gram: Any
    unit: float
    diagonal: Any
    values: Any  # the residual, shifted so that the threshold is near zero
    rise: Any  # 0 where a variable may grow, else -BIG_32
    fall: Any  # 0 where a variable may shrink, else +BIG_32
    beta: FloatArray
    lower: FloatArray
    upper: FloatArray


class Lines(NamedTuple):
    """The bookkeeping of a Gram matrix that has only those rows that were asked for.

    Its first row must hold finite numbers from the beginning, because a pass may read it before it is computed.
    """

    panels: Any  # the points of the working set
    slot: IntArray  # variable -> row of the Gram matrix, or -1
    filled: IntArray  # the number of rows so far


TAU = 1e-6  # a curvature below this counts as zero
NOISE = 2e-6  # pair steps in float32 cannot bring the violation below this share of itself
INNER_TOL = 0.7  # pair steps end at this share of the tolerance
RELAX = 1.5  # a step that no bound cuts is longer than the exact one by this factor
CONCAVE = 1e-5  # a curvature below minus this share of k_ii + k_jj is not negative by float32 rounding alone
CANCELLED = (
    1e-3  # where at most this share of a pair's curvature is left along a direction, rounding may have decided it
)

# What has happened in the inner steps, as bits.
NONCONVEX, RAY = 1, 2


@jit
def set_masks(work, t):
    """Refresh whether variable t may grow or shrink. In place: rise, fall."""
    work.rise[t] = 0.0 if work.beta[t] < work.upper[t] else -BIG_32
    work.fall[t] = 0.0 if work.beta[t] > work.lower[t] else BIG_32


@jit
def start_masks(work):
    """Set all masks. Padding can neither grow nor shrink. In place: rise, fall, and the padding of values."""
    m = work.beta.shape[0]
    for t in range(m):
        set_masks(work, t)
    for t in range(m, work.values.shape[0]):
        work.rise[t] = -BIG_32
        work.fall[t] = BIG_32
        work.values[t] = 0.0


@jit
def fill(work, v, shift, variables, beta, lower, upper):
    """Begin with these variables, whose Gram matrix is there already. In place: all vectors."""
    m = variables.shape[0]
    for k in range(m):
        t = variables[k]
        work.diagonal[k] = work.gram[k, k] * work.unit
        work.values[k] = v[t] - shift
        work.beta[k] = beta[t]
        work.lower[k] = lower[t]
        work.upper[k] = upper[t]
    for k in range(m, work.values.shape[0]):
        work.diagonal[k] = 1.0
    start_masks(work)


@jit
def outcome(work, variables, beta, changed, steps, order):
    """What the steps have changed, against `beta`. Returns the number of changed variables, and of free ones.

    In place: the changed variables, by how much they have changed, and all variables, the free ones first.
    """
    count, free, m = 0, 0, variables.shape[0]
    for k in range(m):
        t = variables[k]
        changed[count] = t
        steps[count] = work.beta[k] - beta[t]
        count += steps[count] != 0.0
        order[free] = t
        free += (work.rise[k] == 0.0) & (work.fall[k] == 0.0)
    end = free
    for k in range(m):
        if work.rise[k] != 0.0 or work.fall[k] != 0.0:
            order[end] = variables[k]
            end += 1
    return count, free


@jit
def _move(work, t, step):
    """beta_t += step. A step that reaches the bound ends exactly on it. In place: beta and masks."""
    if step >= 0.0:
        there = step >= work.upper[t] - work.beta[t]
        work.beta[t] = work.upper[t] if there else work.beta[t] + step
    else:
        there = step <= work.lower[t] - work.beta[t]
        work.beta[t] = work.lower[t] if there else work.beta[t] + step
    set_masks(work, t)


@jit
def copy_row(source, t, out, slot):
    """Row t of K + D among the variables, whose points are spans of a matrix; padded with zeros. In place: out."""
    row, k = source.gram[source.point[t]], 0
    for s in range(source.spans.shape[0]):
        for p in range(source.spans[s, 0], source.spans[s, 1]):
            out[slot, k] = row[p]
            k += 1
    out[slot, t] += source.diag[t]
    while k % LANES:
        out[slot, k] = 0.0
        k += 1


@jit
def row_of(work, shape, lines, source, t):
    """The row of variable t in the Gram matrix. With `lines` it is computed when it is first asked for.

    Without a shape it is copied from a `source` (`_small_jit.Copied`).

    In place: gram, lines.
    """
    if lines is None:
        return t
    slot = lines.slot[t]
    if slot < 0:
        slot = lines.filled[0]
        if shape is not None:
            store_row(shape, lines.panels, t, work.gram, slot)
        elif source is not None:
            copy_row(source, t, work.gram, slot)
        lines.slot[t] = slot
        lines.filled[0] = slot + 1
    return slot


@jit
def pair_steps(work, stop, relax, tau, max_steps, shape=None, lines=None, source=None):
    """Second-order SMO on one block until max - min <= stop. A step that no bound cuts is `relax` times the exact one.

    Returns (steps, max - min, bits). In place: beta, values, masks. With `lines`, which need a shape, steps also compute the
    rows of the Gram matrix that they look at.
    """
    beta, lower, upper = work.beta, work.lower, work.upper
    diagonal, gram, values, rise, fall = work.diagonal, work.gram, work.values, work.rise, work.fall
    unit = work.unit
    i, high, low = update_pair(values, gram, 0, 0, 0.0, rise, fall)
    steps, bits = 0, 0
    while steps < max_steps and high - low > stop:
        if i >= beta.shape[0]:
            break  # only NaN leads here
        row = row_of(work, shape, lines, source, i)
        j = best_partner(values, gram, row, unit, i, diagonal, tau, fall)
        if j >= beta.shape[0]:
            break
        scale = np.float64(diagonal[i]) + np.float64(diagonal[j])
        curvature = scale - 2.0 * unit * np.float64(gram[row, j])
        slope = np.float64(values[i]) - np.float64(values[j])
        room = min(upper[i] - beta[i], beta[j] - lower[j])
        if curvature < -CONCAVE * scale:
            bits |= NONCONVEX
            step = np.inf
        else:
            step = relax * slope / max(curvature, tau)
        step = min(step, room)
        if np.isinf(step) or (curvature <= tau and step < room):
            bits |= RAY
            break
        if step <= 0.0:
            break
        _move(work, i, step)
        _move(work, j, -step)
        i, high, low = update_pair(values, gram, row, row_of(work, shape, lines, source, j), step * unit, rise, fall)
        steps += 1
    return steps, np.float64(high) - np.float64(low), bits


class Direction(NamedTuple):
    """The direction of conjugate steps: the sum of coef[q] e_q over the members."""

    members: Any
    coef: Any
    inside: Any  # whether a variable is a member
    along: Any  # (K + D) times the direction, over the working set


def new_direction(work: WorkingSet) -> Direction:
    """Room for a direction. It has no members yet."""
    m = len(work.beta)
    return Direction(np.empty(m, np.int64), np.zeros(m), np.zeros(m, np.bool_), np.zeros_like(work.values))


@jit
def _fits(work, direction, count, keep, i, j, step):
    """Whether step (keep direction + e_i - e_j) stays inside the boxes."""
    for k in range(count):
        q = direction.members[k]
        move = keep * direction.coef[q]
        if q == i:
            move += 1.0
        if q == j:
            move -= 1.0
        value = work.beta[q] + step * move
        if value <= work.lower[q] or value >= work.upper[q]:
            return False
    i_fits = direction.inside[i] or work.beta[i] + step < work.upper[i]
    return i_fits and (direction.inside[j] or work.beta[j] - step > work.lower[j])


@jit
def _turn(direction, count, keep, i, j):
    """direction = keep direction + e_i - e_j. Returns how many members it has. In place: direction."""
    for k in range(count):
        q = direction.members[k]
        direction.coef[q] *= keep
        direction.inside[q] = keep != 0.0
    count = count if keep != 0.0 else 0
    for q, unit in ((i, 1.0), (j, -1.0)):
        if not direction.inside[q]:
            direction.inside[q] = True
            direction.members[count] = q
            direction.coef[q] = 0.0
            count += 1
        direction.coef[q] += unit
    return count


@jit
def conjugate_steps(work, direction, most, stop, tau, max_steps):
    """`pair_steps` along directions that are conjugate to the one before, as long as no bound is met.

    A step that would meet a bound is a plain pair step. After it the directions start afresh. In place: also direction.
    """
    beta, lower, upper = work.beta, work.lower, work.upper
    diagonal, gram, values, rise, fall = work.diagonal, work.gram, work.values, work.rise, work.fall
    unit, along = work.unit, direction.along
    i, high, low = update_pair(values, gram, 0, 0, 0.0, rise, fall)
    steps, bits, count, inverse = 0, 0, 0, 0.0
    while steps < max_steps and high - low > stop:
        j = best_conjugate(values, along, inverse, gram, unit, i, diagonal, tau, fall)
        if i >= beta.shape[0] or j >= beta.shape[0]:
            break  # only NaN leads here
        scale = np.float64(diagonal[i]) + np.float64(diagonal[j])
        plain = scale - 2.0 * unit * np.float64(gram[i, j])
        slope = np.float64(values[i]) - np.float64(values[j])
        bend = np.float64(along[i]) - np.float64(along[j])
        keep, curvature = -bend * inverse, plain - bend * bend * inverse
        step = slope / max(curvature, tau)
        if (
            keep == 0.0
            or count >= most
            or curvature <= CANCELLED * plain
            or not _fits(work, direction, count, keep, i, j, step)
        ):
            keep, curvature = 0.0, max(plain, tau)
            room = min(upper[i] - beta[i], beta[j] - lower[j])
            if plain < -CONCAVE * scale:
                bits |= NONCONVEX
            step = slope / curvature if plain >= -CONCAVE * scale else np.inf
            step = min(step, room)
            if np.isinf(step) or (plain <= tau and step < room):
                bits |= RAY
                break
            inverse = 1.0 / curvature if step < room else 0.0
        else:
            inverse = 1.0 / curvature
        if step <= 0.0:
            break
        count = _turn(direction, count, keep, i, j)
        if keep == 0.0:
            _move(work, i, step)
            _move(work, j, -step)
        else:
            for k in range(count):
                q = direction.members[k]
                beta[q] = min(max(beta[q] + step * direction.coef[q], lower[q]), upper[q])
            set_masks(work, i)
            set_masks(work, j)
        i, high, low = update_along(values, along, gram, unit, i, j, keep, step, rise, fall)
        steps += 1
    for k in range(count):
        direction.inside[direction.members[k]] = False
    return steps, np.float64(high) - np.float64(low), bits


@jit
def single_steps(work, stop, relax, tau, max_steps):
    """`pair_steps` for problems without an equality row: one variable at a time, that of the largest violation."""
    beta, lower, upper = work.beta, work.lower, work.upper
    values, gram, rise, fall = work.values, work.gram, work.rise, work.fall
    zero = gram.shape[0] - 1
    i, high, low = update_pair(values, gram, zero, zero, 0.0, rise, fall)
    steps, bits = 0, 0
    while steps < max_steps and max(high, -low) > stop:
        if high < -low:
            i = 0
            while i < beta.shape[0] and values[i] + fall[i] != low:
                i += 1
        if i >= beta.shape[0]:
            break  # only NaN leads here
        curvature = np.float64(work.diagonal[i])
        if curvature < 0.0:
            bits |= NONCONVEX
            step = np.inf if values[i] > 0.0 else -np.inf
        else:
            step = relax * np.float64(values[i]) / max(curvature, tau)
        step = min(max(step, lower[i] - beta[i]), upper[i] - beta[i])
        if np.isinf(step) or (curvature <= tau and lower[i] - beta[i] < step < upper[i] - beta[i]):
            bits |= RAY
            break
        if step == 0.0:
            break
        _move(work, i, step)
        i, high, low = update_pair(values, gram, i, zero, step * work.unit, rise, fall)
        steps += 1
    return steps, max(np.float64(high), -np.float64(low)), bits


@jit
def extremes(v, beta, lower, upper):
    """(largest residual of a variable that can grow, smallest of one that can shrink, number of free variables)."""
    high, low, free = -BIG, BIG, 0
    for t in range(beta.shape[0]):
        grows = beta[t] < upper[t]
        shrinks = beta[t] > lower[t]
        high = fmax(high, v[t] if grows else -BIG)
        low = fmin(low, v[t] if shrinks else BIG)
        free += grows & shrinks
    return high, low, free


@jit
def candidates(v, beta, bound, sign, threshold, taken, keys, ids):
    """Find the variables that are not taken and not at the bound, and whose sign * v is above the threshold.

    Returns their number. In place: keys (minus sign * v) and ids, in index order.
    """
    count = 0
    for t in range(beta.shape[0]):
        # The entry is always written, and counted only if it belongs. So there is no branch that the processor must guess.
        keys[count] = -sign * v[t]
        ids[count] = t
        count += (not taken[t]) & (sign * v[t] > threshold) & (beta[t] != bound[t])
    return count


@jit
def repair_sum(work, total):
    """Put the sum of beta right, which steps miss by their rounding. The variable with most room changes. In place: beta."""
    missing, widest, at = total, 0.0, 0
    for t in range(work.beta.shape[0]):
        missing -= work.beta[t]
        room = min(work.beta[t] - work.lower[t], work.upper[t] - work.beta[t])
        if room > widest:
            widest = room
            at = t
    if abs(missing) < widest:
        work.beta[at] += missing
