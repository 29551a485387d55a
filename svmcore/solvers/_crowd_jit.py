"""Many small problems over one kernel matrix. All of them live in the coordinates of all rows of the matrix.

    minimise   1/2 b'Kb - c'b + epsilon |b|_1     subject to   lower <= b <= upper,   sum b = 0

A task is a linear term c and a box for every row. A row that does not train has the box [0, 0]. So folds, permuted labels,
pairs of classes and weights are other boxes, and no part of K is ever copied. The residual v = c - K b of a row that does not
train gives its decision value out of fold, c - v + bias, for nothing.

The tasks of a crowd are (column of values, fold), the fold running fastest. They are done in groups of `TOGETHER`:

- `start`: along the difference of the class means, as far as the box allows.
- `by_inverse` (where a pilot says so): all rows are free but few, which are eliminated from the inverse of K that all share.
- `withdrawn` (where folds are single rows): the row is taken out of the machine of all rows of its column.
- `in_pairs`: pair steps in float32, two tasks in turn: while the sums of one are on their way, the other one is at work.
- `measured`: the residual in float64 for the whole group, and from it violation, bias and gap.
- `polished`: what misses the tolerance goes on from that residual, by pair steps, and by an active set where these crawl.

Labels of permutations cannot be foretold. So passes over rows have no branch that depends on data.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._kernels import from_measures
from svmcore._types import LANES, FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.simd.passes import TILE_BYTES, TOGETHER, best_gain, tile_of_products, update_pair
from svmcore.simd.vector import BIG, BIG_32, fmax, fmin
from svmcore.solvers._crowd_sets_jit import (
    MOVED,
    SAME,
    STUCK,
    OneTask,
    by_inverse,
    keep_face,
    on_faces,
    residual,
    withdrawn,
)

# What is told of a task, by place.
VIOLATION, GAP, PRIMAL, BIAS, STEPS, ROUNDS, MOVES, TURNS = range(8)
TOLD = 8

TAU = 1e-6  # a curvature below this share of the mean diagonal of K counts as zero
RELAX = 1.5  # a step that no bound cuts is longer than the exact one by this factor
INNER_TOL = 0.7  # pair steps end at this share of the tolerance
NOISE = 2e-6  # pair steps in float32 cannot bring the violation below this share of itself
CRAWL = 10  # so many pair steps a row, and the active set takes over
SURE = 2.0  # a decision value within so many violations of the threshold is not certain
SHARP = 1e-6  # then the task goes on to this tolerance
MOST_ROUNDS = 40
FACE_TOL = 0.25  # the active set ends at this share of the tolerance
ROUNDING = 1e-14  # a share of a box, or of a sum, that is rounding
GIVEN = -1.0  # in place of how far a start goes: it is a point that is known
LEAST = 1e-300  # stands for zero where something is divided by it


class Crowd(NamedTuple):
    """The tasks: labels 1 and -1, with 0 for a row that does not belong to a column, or targets."""

    values: FloatArray  # (columns, n)
    folds: IntArray  # (columns or 1, n); a row with a negative fold trains nowhere
    cost: float
    weights: FloatArray  # (columns or 1, n)
    factors: FloatArray  # (columns or 1, 2), of the costs of labels -1 and 1; negative: balanced, among so many classes
    n_folds: int
    labels: bool
    epsilon: float
    whole: FloatArray  # (columns, n), the coefficients of the machines of all rows, or no row; not with the inverse


class Scaled(NamedTuple):
    """A kernel whose gamma looks at the rows that train in a task: 1 / (features x the variance of all their entries)."""

    measure: FloatArray  # what kernel values are functions of, (n, n)
    means: FloatArray  # of the entries of every row
    squares: FloatArray  # the sum of the squared distances of these entries from their mean
    width: int
    block: FloatArray  # the rest is room for a block of values
    bits: IntArray
    power: FloatArray


class Harvest(NamedTuple):
    """What comes out. `coef` has no row where coefficients are not wanted."""

    decisions: FloatArray  # (columns, n), out of fold
    told: FloatArray
    coef: FloatArray


@jit(sums=True)
def take_forms(matrices):
    """Make the forms in float32 of the matrix in float64. In place: all but `double` and the inverse."""
    double, diagonal, size, floor = matrices.double, matrices.diagonal, 0.0, np.float32(0.0)
    n, two, one = double.shape[0], np.float32(2.0), np.float32(1.0)
    for t in range(n):
        diagonal[t] = double[t, t]
        size += abs(double[t, t])
    matrices.size[0] = size / n if size > 0.0 else 1.0
    floor = np.float32(TAU * matrices.size[0])
    for i in range(n):
        row, single, gain, own = double[i], matrices.single[i], matrices.gain[i], diagonal[i]
        for j in range(n):
            value = np.float32(row[j])
            single[j] = value
            curvature = own + diagonal[j] - two * value
            gain[j] = one / np.sqrt(curvature if curvature > floor else floor)


@jit(sums=True)
def _gamma_of(own, crowd, task):
    """What gamma="scale" is on the rows that train in a task."""
    column, fold, d = task // crowd.n_folds, task % crowd.n_folds, own.width
    folds, count, mean, total = crowd.folds[min(column, crowd.folds.shape[0] - 1)], 0.0, 0.0, 0.0
    for t in range(folds.shape[0]):
        trains = (folds[t] != fold) & (folds[t] >= 0)
        count += trains
        mean += trains * own.means[t]
    mean /= max(count, 1.0)
    for t in range(folds.shape[0]):
        trains, apart = (folds[t] != fold) & (folds[t] >= 0), own.means[t] - mean
        total += trains * (own.squares[t] + d * apart * apart)
    return count / total if total > 0.0 else 1.0


@jit
def _take_values(matrices, own, kernel, gamma):
    """Make kernel values of another gamma, and their forms. In place: matrices, and room."""
    n, block = own.measure.shape[0], own.block
    for i in range(n):
        for first in range(0, n, LANES):
            count = min(LANES, n - first)
            for j in range(count):
                block[j] = gamma * own.measure[i, first + j]
            for j in range(count, LANES):
                block[j] = 0.0
            from_measures(kernel, block, own.bits, own.power)
            for j in range(count):
                matrices.double[i, first + j] = block[j]
    take_forms(matrices)


@jit
def _task(booth, g, epsilon):
    return OneTask(
        booth.c[g], booth.lower[g], booth.upper[g], booth.beta[g], booth.v[g], booth.values[g], booth.rise[g],
        booth.fall[g], epsilon,
    )  # fmt: skip


@jit
def _factors(y, folds, fold, weights, classes):
    """What "balanced" makes of the costs of both labels: the weight of what trains, over that of a class, over `classes`."""
    plus, minus, total = 0.0, 0.0, 0.0
    for t in range(y.shape[0]):
        w = weights[t] * ((folds[t] != fold) & (folds[t] >= 0))
        plus += w * (y[t] > 0.0)
        minus += w * (y[t] < 0.0)
        total += w
    return total / max(classes * minus, LEAST), total / max(classes * plus, LEAST)


@jit
def open_task(crowd, column, fold, c, lower, upper):
    """Write the linear term and the boxes of a task; of fold -1, which leaves nobody out. In place: c, lower, upper."""
    cost = crowd.cost
    y, folds = crowd.values[column], crowd.folds[min(column, crowd.folds.shape[0] - 1)]
    weights = crowd.weights[min(column, crowd.weights.shape[0] - 1)]
    factors = crowd.factors[min(column, crowd.factors.shape[0] - 1)]
    minus, plus = factors[0], factors[1]
    if plus < 0.0:
        minus, plus = _factors(y, folds, fold, weights, -plus)
    minus, plus = minus * cost, plus * cost
    if crowd.labels:
        for t in range(c.shape[0]):
            w = weights[t] * ((folds[t] != fold) & (folds[t] >= 0))
            c[t] = y[t]
            lower[t] = w * minus * fmin(y[t], 0.0)
            upper[t] = w * plus * fmax(y[t], 0.0)
    else:
        for t in range(c.shape[0]):
            w = cost * weights[t] * ((folds[t] != fold) & (folds[t] >= 0))
            c[t] = y[t]
            lower[t] = -w
            upper[t] = w


@jit
def _set_mask(piece, t):
    """Whether variable t may grow or shrink, with the kink of epsilon at zero. In place: rise, fall."""
    b, epsilon = piece.beta[t], piece.epsilon
    piece.rise[t] = -BIG_32 if b >= piece.upper[t] else (epsilon if b < 0.0 else -epsilon)
    piece.fall[t] = BIG_32 if b <= piece.lower[t] else (-epsilon if b > 0.0 else epsilon)


@jit
def _products(matrix, coef, out):
    """out[g] = matrix coef[:, g], a tile of columns at a time: the matrix is read once for all g. In place: out."""
    step = TILE_BYTES // matrix.itemsize
    for column in range(0, matrix.shape[1], step):
        tile_of_products(matrix, coef, out, column)


@jit(sums=True)
def _difference_of_means(lower, upper, coef, g):
    """Column g of coef becomes the way from one class mean to the other. Returns how far the box allows to go."""
    plus, minus = 0.0, 0.0
    for t in range(lower.shape[0]):
        plus += upper[t]
        minus -= lower[t]
    both = 1.0 if plus > 0.0 and minus > 0.0 else 0.0
    over, under = both / max(plus, LEAST), both / max(minus, LEAST)
    for t in range(lower.shape[0]):
        coef[t, g] = upper[t] * over + lower[t] * under
    return both * min(plus, minus)


@jit(sums=True)
def _go_along(piece, coef, g, reach):
    """beta = t d with the best t in the box, for column g of coef. `values` holds K d. In place: beta, values."""
    bend, slope = 0.0, 0.0
    for t in range(piece.beta.shape[0]):
        bend += coef[t, g] * piece.values[t]
        slope += coef[t, g] * piece.c[t]
    length = min(reach, np.float64(slope) / max(np.float64(bend), LEAST))
    for t in range(piece.beta.shape[0]):
        piece.beta[t] = fmin(fmax(length * coef[t, g], piece.lower[t]), piece.upper[t])
        piece.values[t] = piece.c[t] - length * piece.values[t]


@jit(sums=True)
def _from_zero(piece):
    """beta = 0, and the residual about its mean, which float32 need not hold then. In place: beta, values."""
    total = 0.0
    for t in range(piece.beta.shape[0]):
        total += piece.c[t]
    mean = total / piece.beta.shape[0]
    for t in range(piece.beta.shape[0]):
        piece.beta[t] = 0.0
        piece.values[t] = piece.c[t] - mean


@jit
def repair(piece):
    """Put the sum of beta right. The variable with most room, up to its bounds and its kink, changes. In place: beta.

    What is at its bound but for rounding is put there, and a sum that is right but for rounding stays.
    """
    missing, widest, at, total = 0.0, 0.0, 0, 0.0
    for t in range(piece.beta.shape[0]):
        b, top, bottom = piece.beta[t], piece.upper[t], piece.lower[t]
        give = ROUNDING * (top - bottom)
        b = top if b + give >= top else (bottom if b - give <= bottom else b)
        piece.beta[t] = b
        missing -= b
        total += abs(b)
        above, below = (0.0 if b < 0.0 else top) - b, b - (0.0 if b > 0.0 else bottom)
        room = fmin(above, below) if b != 0.0 else 0.0
        at = t if room > widest else at
        widest = fmax(widest, room)
    if ROUNDING * total < abs(missing) < widest:
        piece.beta[at] += missing


@jit
def _sum_of(beta):
    """The sum to twice the digits: its sign is right where it is no more than rounding."""
    total, rest = 0.0, 0.0
    for t in range(beta.shape[0]):
        b = beta[t]
        sum_ = total + b
        part = sum_ - total
        rest += (total - (sum_ - part)) + (b - part)
        total = sum_
    return total + rest


@jit(inline=True)
def _length(matrices, piece, i, j, high):
    """The step that moves i up and j down. It ends where either meets its bound or its kink."""
    slope = np.float64(high) - (np.float64(piece.values[j]) + np.float64(piece.fall[j]))
    both = np.float64(matrices.diagonal[i]) + np.float64(matrices.diagonal[j])
    curvature = both - 2.0 * np.float64(matrices.single[i, j])
    bi, bj = piece.beta[i], piece.beta[j]
    above, below = (0.0 if bi < 0.0 else piece.upper[i]) - bi, bj - (0.0 if bj > 0.0 else piece.lower[j])
    return fmin(RELAX * slope / fmax(curvature, TAU * matrices.size[0]), fmin(above, below))


@jit(inline=True)
def _move(piece, i, j, step):
    """Move i up and j down. A step that reaches an end ends exactly on it. In place: beta, masks."""
    bi, bj = piece.beta[i], piece.beta[j]
    top, bottom = 0.0 if bi < 0.0 else piece.upper[i], 0.0 if bj > 0.0 else piece.lower[j]
    piece.beta[i] = top if step >= top - bi else bi + step
    piece.beta[j] = bottom if step >= bj - bottom else bj - step
    _set_mask(piece, i)
    _set_mask(piece, j)


@jit
def _alone(matrices, piece, stop, most, at):
    """Pair steps of one task to `stop`, from (i, high, low, steps). Returns the steps. In place: beta, values, masks."""
    n, single, gain = piece.beta.shape[0], matrices.single, matrices.gain
    values, rise, fall = piece.values, piece.rise, piece.fall
    i, high, low, steps = at
    ends = not (steps < most and high - low > stop and i < n)
    while not ends:
        j = best_gain(values, gain, i, high, fall)
        step = 0.0
        if j < n:
            step = _length(matrices, piece, i, j, high)
        ends = not step > 0.0
        if not ends:
            _move(piece, i, j, step)
            i, high, low = update_pair(values, single, i, j, np.float32(step), rise, fall)
            steps += 1
            ends = not (steps < most and high - low > stop and i < n)
    return steps


@jit
def _in_turn(matrices, one, two, stop, most, at, at_two):
    """Pair steps of two tasks in turn, until one of them ends. Returns where each of them is, and whether it has ended."""
    n, single, gain = one.beta.shape[0], matrices.single, matrices.gain
    values, rise, fall = one.values, one.rise, one.fall
    values_2, rise_2, fall_2 = two.values, two.rise, two.fall
    i, high, low, steps = at
    i_2, high_2, low_2, steps_2 = at_two
    ends = not (steps < most and high - low > stop and i < n)
    ends_2 = not (steps_2 < most and high_2 - low_2 > stop and i_2 < n)
    while not (ends or ends_2):
        j = best_gain(values, gain, i, high, fall)
        j_2 = best_gain(values_2, gain, i_2, high_2, fall_2)
        step, step_2 = 0.0, 0.0
        if j < n:
            step = _length(matrices, one, i, j, high)
        if j_2 < n:
            step_2 = _length(matrices, two, i_2, j_2, high_2)
        ends, ends_2 = not step > 0.0, not step_2 > 0.0
        if not ends:
            _move(one, i, j, step)
            i, high, low = update_pair(values, single, i, j, np.float32(step), rise, fall)
            steps += 1
            ends = not (steps < most and high - low > stop and i < n)
        if not ends_2:
            _move(two, i_2, j_2, step_2)
            i_2, high_2, low_2 = update_pair(values_2, single, i_2, j_2, np.float32(step_2), rise_2, fall_2)
            steps_2 += 1
            ends_2 = not (steps_2 < most and high_2 - low_2 > stop and i_2 < n)
    return (i, high, low, steps), (i_2, high_2, low_2, steps_2), ends, ends_2


@jit
def _first_look(matrices, piece):
    """Where pair steps begin. In place: nothing."""
    i, high, low = update_pair(piece.values, matrices.single, 0, 0, np.float32(0.0), piece.rise, piece.fall)
    return i, high, low, np.int64(0)


@jit
def in_pairs(matrices, booth, count, epsilon, stop, most):
    """Pair steps of the first `count` tasks in `todo`, two in turn, to `stop`. In place: booth."""
    following = min(count, 2)
    a, b = 0, 1
    if count == 0:
        return
    one = _task(booth, booth.todo[a], epsilon)
    at = _first_look(matrices, one)
    if count == 1:
        booth.steps[booth.todo[a]] = _alone(matrices, one, stop, most, at)
        return
    two = _task(booth, booth.todo[b], epsilon)
    at_two = _first_look(matrices, two)
    while True:
        at, at_two, ends, ends_two = _in_turn(matrices, one, two, stop, most, at, at_two)
        if ends:
            booth.steps[booth.todo[a]] = at[3]
            if following == count:
                booth.steps[booth.todo[b]] = at_two[3] if ends_two else _alone(matrices, two, stop, most, at_two)
                break
            a = following
            following += 1
            one = _task(booth, booth.todo[a], epsilon)
            at = _first_look(matrices, one)
        if ends_two:
            booth.steps[booth.todo[b]] = at_two[3]
            if following == count:
                booth.steps[booth.todo[a]] = _alone(matrices, one, stop, most, at)
                break
            b = following
            following += 1
            two = _task(booth, booth.todo[b], epsilon)
            at_two = _first_look(matrices, two)


@jit
def extremes(piece):
    """(largest residual of a variable that can grow, smallest of one that can shrink, bias), kinks considered.

    Where no variable is free, any number between both is a bias, and the middle is taken. But boxes of two costs hold a sum
    of zero only up to rounding: some variable is free by that much, and the bias is its residual, as it is in LIBSVM.
    """
    high, low, total, free, epsilon = -BIG, BIG, 0.0, 0, piece.epsilon
    for t in range(piece.beta.shape[0]):
        b, x = piece.beta[t], piece.v[t]
        grows, shrinks = b < piece.upper[t], b > piece.lower[t]
        between = grows & shrinks & ((epsilon == 0.0) | (b != 0.0))
        high = fmax(high, (x + (epsilon if b < 0.0 else -epsilon)) if grows else -BIG)
        low = fmin(low, (x + (-epsilon if b > 0.0 else epsilon)) if shrinks else BIG)
        total += (x - (epsilon if b > 0.0 else -epsilon)) if between else 0.0
        free += between
    if free > 0:
        return high, low, total / free
    if high <= -BIG:
        return high, low, 0.0 if low >= BIG else low
    if low >= BIG:
        return high, low, high
    over = _sum_of(piece.beta) if high <= low else 0.0
    return high, low, low if over > 0.0 else (high if over < 0.0 else 0.5 * (high + low))


@jit(sums=True)
def _gap(piece, bias):
    """(gap, primal): a sum of Fenchel-Young terms, none of which is negative."""
    gap, dual, epsilon = 0.0, 0.0, piece.epsilon
    for t in range(piece.beta.shape[0]):
        b, u = piece.beta[t], piece.v[t] - bias
        cost = epsilon * abs(b)
        gap += piece.upper[t] * fmax(u - epsilon, 0.0) + piece.lower[t] * fmin(u + epsilon, 0.0) - u * b + cost
        dual += 0.5 * b * (piece.c[t] + piece.v[t]) - cost
    return gap, dual + gap


@jit
def polished(matrices, piece, booth, tol, told):
    """Rounds of pair steps, and of the active set where these crawl, from the float64 residual. In place: piece, told."""
    n, rounds = piece.beta.shape[0], 0
    budget = CRAWL * n
    while rounds < MOST_ROUNDS:
        high, low, _ = extremes(piece)
        violation = high - low
        if not violation > tol:
            break
        taken = 0
        if told[STEPS] < budget:
            middle = 0.5 * (high + low)
            for t in range(n):
                piece.values[t] = piece.v[t] - middle
                _set_mask(piece, t)
            stop = np.float32(max(INNER_TOL * tol, NOISE * violation))
            taken = _alone(matrices, piece, stop, np.int64(budget - told[STEPS]), _first_look(matrices, piece))
            repair(piece)
            told[STEPS] += taken
        if taken == 0 or told[STEPS] >= budget:
            residual(matrices, piece, booth)
            told[MOVES] += on_faces(matrices, piece, booth, FACE_TOL * tol, 2 * n)
            repair(piece)
            told[STEPS] = min(told[STEPS], 0.5 * budget)
        residual(matrices, piece, booth)
        rounds += 1
    told[ROUNDS] += rounds


@jit
def begin_group(matrices, crowd, booth, inverse, begin, count, seen):
    """Open the tasks begin .. begin + count - 1, and answer those that the inverse or a removal can.

    Returns (the others, seen). In place: booth. `todo` are the others, which stand at their starts.
    """
    pending, starts = 0, crowd.whole.shape[0] > 0
    for g in range(count):
        column, fold = (begin + g) // crowd.n_folds, (begin + g) % crowd.n_folds
        booth.steps[g], booth.reach[g], booth.turns[g] = 0, 0.0, 0
        piece = _task(booth, g, crowd.epsilon)
        if starts and column != seen:
            open_task(crowd, column, -1, piece.c, piece.lower, piece.upper)
            keep_face(matrices, piece, booth, crowd.whole[column])
        open_task(crowd, column, fold, piece.c, piece.lower, piece.upper)
        if inverse:
            booth.turns[g] = by_inverse(matrices, piece, booth, column != seen)
        seen, out = column, SAME if booth.turns[g] > 0 else STUCK
        if starts:
            out = withdrawn(matrices, piece, booth, crowd.whole[column])
        if out != STUCK:
            repair(piece)
        if out != SAME:
            if out == MOVED:
                booth.reach[g] = GIVEN
                for t in range(piece.beta.shape[0]):
                    booth.ways[t, g] = piece.beta[t]
            elif crowd.labels:
                booth.reach[g] = _difference_of_means(piece.lower, piece.upper, booth.ways, g)
            booth.todo[pending] = g
            pending += 1
    if (crowd.labels or starts) and pending > 0:
        _products(matrices.single, booth.ways, booth.values)
    for k in range(pending):
        g = booth.todo[k]
        piece = _task(booth, g, crowd.epsilon)
        if booth.reach[g] == GIVEN:
            for t in range(piece.beta.shape[0]):
                piece.values[t] = piece.c[t] - piece.values[t]
        elif crowd.labels:
            _go_along(piece, booth.ways, g, booth.reach[g])
            repair(piece)
        else:
            _from_zero(piece)
        for t in range(piece.beta.shape[0]):
            _set_mask(piece, t)
    return pending, seen


@jit
def _nearest(crowd, piece, task, bias):
    """The least distance of a decision value out of fold from the threshold."""
    column, near = task // crowd.n_folds, BIG
    folds, fold = crowd.folds[min(column, crowd.folds.shape[0] - 1)], task % crowd.n_folds
    for t in range(piece.beta.shape[0]):
        near = fmin(near, abs(piece.c[t] - piece.v[t] + bias) if folds[t] == fold else BIG)
    return near


@jit
def _gather(crowd, piece, task, bias, harvest):
    """Write what a task says of the rows that it left out, and its coefficients. In place: harvest."""
    column, fold = task // crowd.n_folds, task % crowd.n_folds
    folds, out = crowd.folds[min(column, crowd.folds.shape[0] - 1)], harvest.decisions[column]
    for t in range(piece.beta.shape[0]):
        out[t] = piece.c[t] - piece.v[t] + bias if folds[t] == fold else out[t]
    if harvest.coef.shape[0] > 0:
        for t in range(piece.beta.shape[0]):
            harvest.coef[task, t] = piece.beta[t]


@jit
def end_group(matrices, crowd, booth, tol, certain, begin, count, harvest):
    """Measure a group in float64, polish what misses the tolerance, and gather. In place: booth, harvest."""
    for g in range(count):
        for t in range(booth.beta.shape[1]):
            booth.coefs[t, g] = booth.beta[g, t]
    _products(matrices.double, booth.coefs, booth.v)
    for g in range(count):
        task, piece = begin + g, _task(booth, g, crowd.epsilon)
        told = harvest.told[task]
        told[STEPS], told[ROUNDS], told[MOVES] = booth.steps[g], 1.0, 0.0
        told[TURNS] = booth.turns[g]
        for t in range(piece.beta.shape[0]):
            piece.v[t] = piece.c[t] - piece.v[t]
        high, low, bias = extremes(piece)
        if high - low > tol:
            polished(matrices, piece, booth, tol, told)
            high, low, bias = extremes(piece)
        if certain and tol > SHARP and high - low > SHARP:
            if _nearest(crowd, piece, task, bias) <= SURE * (high - low):
                polished(matrices, piece, booth, SHARP, told)
                high, low, bias = extremes(piece)
        gap, primal = _gap(piece, bias)
        told[VIOLATION], told[GAP], told[PRIMAL], told[BIAS] = max(high - low, 0.0), gap, primal, bias
        _gather(crowd, piece, task, bias, harvest)


@jit
def _run_group(matrices, crowd, booth, tol, inverse, certain, first, count, seen, harvest):
    """Solve and measure some tasks, at most `TOGETHER`. Returns the last column that has asked the inverse."""
    pending, seen = begin_group(matrices, crowd, booth, inverse, first, count, seen)
    in_pairs(matrices, booth, pending, crowd.epsilon, np.float32(INNER_TOL * tol), CRAWL * crowd.values.shape[1])
    for k in range(pending):
        repair(_task(booth, booth.todo[k], crowd.epsilon))
    end_group(matrices, crowd, booth, tol, certain, first, count, harvest)
    return seen


@jit
def run_tasks(matrices, crowd, booth, tol, inverse, certain, harvest):
    """Solve and measure all tasks, in groups. In place: booth, harvest."""
    seen, end = -1, harvest.told.shape[0]
    for first in range(0, end, TOGETHER):
        seen = _run_group(
            matrices, crowd, booth, tol, inverse, certain, first, min(TOGETHER, end - first), seen, harvest
        )  # fmt: skip


@jit
def run_scaled(matrices, own, kernel, crowd, booth, tol, inverse, certain, harvest):
    """`run_tasks` where the rows that train say what gamma is. In place: matrices too."""
    first, end, gamma, seen = 0, harvest.told.shape[0], 0.0, -1
    while first < end:
        count, fresh = 1, _gamma_of(own, crowd, first)
        while count < min(TOGETHER, end - first) and _gamma_of(own, crowd, first + count) == fresh:
            count += 1
        if fresh != gamma:
            _take_values(matrices, own, kernel, fresh)
            gamma = fresh
        seen = _run_group(matrices, crowd, booth, tol, inverse, certain, first, count, seen, harvest)
        first += count
