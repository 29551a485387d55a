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

`small` has loops of its own. Its problems have diagonals, two variables a point and other sums, and rows are copied when a
step asks for them. A problem alone takes 1.1 to 1.9 times as long here, where the forms of the whole matrix come first.
Sixteen problems over one matrix take 1.5 to 2.9 times as long there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.simd.passes import TILE_BYTES, TOGETHER, tile_of_products
from svmcore.simd.vector import BIG, fmax, fmin
from svmcore.solvers._crowd_forms_jit import _gamma_of, _take_values
from svmcore.solvers._crowd_pairs_jit import TAU, extremes, gap_of, in_pairs, repair, set_mask, task_of
from svmcore.solvers._crowd_sets_jit import (
    MOVED,
    SAME,
    STUCK,
    by_inverse,
    keep_face,
    on_faces,
    residual,
    weighted,
    withdrawn,
)

# What is told of a task, by place.
VIOLATION, GAP, PRIMAL, BIAS, STEPS, ROUNDS, MOVES, TURNS = range(8)
TOLD = 8

INNER_TOL = 0.7  # pair steps end at this share of the tolerance
NOISE = 2e-6  # pair steps in float32 cannot bring the violation below this share of itself
# So many pair steps a row, and the active set takes over. It refactors its face, so that it costs less where rows are few:
# of n rows n / CRAWL_ROWS, in these limits.
LEAST_CRAWL, MOST_CRAWL, CRAWL_ROWS = 4, 10, 16
SURE = 2.0  # a decision value within so many violations of the threshold is not certain
SHARP = 1e-6  # then the task goes on to this tolerance
MOST_ROUNDS = 40
FACE_TOL = 0.25  # the active set ends at this share of the tolerance
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
    few: bool  # whether few coefficients are expected to leave zero, where all begin then
    guests: FloatArray  # (tasks, 1 + n - TOGETHER), kernel values of the row that a task has for itself, or no row


class Harvest(NamedTuple):
    """What comes out. `coef` has no row where coefficients are not wanted."""

    decisions: FloatArray  # (columns, n), out of fold
    told: FloatArray
    coef: FloatArray


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
    y, folds = crowd.values[column], crowd.folds[min(column, crowd.folds.shape[0] - 1)]
    weights = crowd.weights[min(column, crowd.weights.shape[0] - 1)]
    factors = crowd.factors[min(column, crowd.factors.shape[0] - 1)]
    minus, plus, labels = factors[0], factors[1], crowd.labels
    if plus < 0.0:
        minus, plus = _factors(y, folds, fold, weights, -plus)
    minus, plus = minus * crowd.cost, plus * crowd.cost
    for t in range(c.shape[0]):
        w = weights[t] * ((folds[t] != fold) & (folds[t] >= 0))
        c[t] = y[t]
        lower[t] = w * minus * (fmin(y[t], 0.0) if labels else -1.0)
        upper[t] = w * plus * (fmax(y[t], 0.0) if labels else 1.0)


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
def _patience(n):
    """How many pair steps a task may take before they count as crawling."""
    return n * max(LEAST_CRAWL, min(MOST_CRAWL, n // CRAWL_ROWS))


@jit
def polished(matrices, epsilon, booth, g, tol, told):
    """Rounds of pair steps, and of the active set where these crawl, from the float64 residual. In place: booth, told."""
    piece, rounds = task_of(booth, g, epsilon), 0
    n = piece.beta.shape[0]
    budget = _patience(n)
    rested = 0.5 * budget  # after moves on faces, half of the patience is left
    spent = min(told[STEPS], rested) if told[MOVES] > 0.0 else told[STEPS]
    while rounds < MOST_ROUNDS:
        high, low, _ = extremes(piece)
        violation = high - low
        if not violation > tol:
            break
        taken = 0
        if spent < budget:
            middle = 0.5 * (high + low)
            for t in range(n):
                piece.values[t] = piece.v[t] - middle
                set_mask(piece, t)
            stop = np.float32(max(INNER_TOL * tol, NOISE * violation))
            booth.todo[0] = g
            in_pairs(matrices, matrices, booth, 1, epsilon, stop, np.int64(budget - spent))
            taken = booth.steps[g]
            repair(piece)
            told[STEPS] += taken
            spent += taken
        if taken == 0 or spent >= budget:
            residual(matrices, piece, booth)
            told[MOVES] += on_faces(matrices, piece, booth, FACE_TOL * tol, 2 * n)
            repair(piece)
            spent = min(spent, rested)
        residual(matrices, piece, booth)
        rounds += 1
    told[ROUNDS] += rounds


@jit
def _has_way(crowd):
    """Whether a task starts along the difference of the class means."""
    return crowd.labels and not crowd.few


@jit
def _opened(matrices, crowd, booth, inverse, task, g, seen):
    """Open a task as member g of its group, and answer it if the inverse, or a removal, can. Returns whether that is not so.

    `seen`: the column before. In place: booth.
    """
    column, fold = task // crowd.n_folds, task % crowd.n_folds
    starts, piece = crowd.whole.shape[0] > 0, task_of(booth, g, crowd.epsilon)
    booth.steps[g], booth.reach[g], booth.turns[g] = 0, 0.0, 0
    if starts and column != seen:
        open_task(crowd, column, -1, piece.c, piece.lower, piece.upper)
        keep_face(matrices, piece, booth, crowd.whole[column])
    open_task(crowd, column, fold, piece.c, piece.lower, piece.upper)
    if inverse:
        booth.turns[g] = by_inverse(matrices, piece, booth, column != seen)
    out = SAME if booth.turns[g] > 0 else STUCK
    if starts:
        out = withdrawn(matrices, piece, booth, crowd.whole[column])
    if out != STUCK:
        repair(piece)
    if out == MOVED:
        booth.reach[g] = GIVEN
        for t in range(piece.beta.shape[0]):
            booth.ways[t, g] = piece.beta[t]
    elif out == STUCK and _has_way(crowd):
        booth.reach[g] = _difference_of_means(piece.lower, piece.upper, booth.ways, g)
    return out != SAME


@jit
def _stands(crowd, booth, g):
    """Put member g, whose `values` are what the matrix makes of its way, at its start. In place: booth."""
    piece = task_of(booth, g, crowd.epsilon)
    if booth.reach[g] == GIVEN:
        for t in range(piece.beta.shape[0]):
            piece.values[t] = piece.c[t] - piece.values[t]
    elif _has_way(crowd):
        _go_along(piece, booth.ways, g, booth.reach[g])
        repair(piece)
    else:
        _from_zero(piece)
    for t in range(piece.beta.shape[0]):
        set_mask(piece, t)


@jit
def _begin_group(matrices, others, apart, crowd, booth, inverse, begin, count, seen):
    """Open the tasks begin .. begin + count - 1. Returns how many have no answer yet, which stand at their starts.

    In place: booth. `todo` are these.
    """
    pending = 0
    for g in range(count):
        booth.todo[pending] = g
        own = others if g == 1 else matrices
        pending += _opened(own, crowd, booth, inverse, begin + g, g, seen)
        seen = (begin + g) // crowd.n_folds
        if apart:
            for t in range(booth.beta.shape[1]):
                booth.rows[t], booth.way[t] = t, booth.ways[t, g]
            weighted(own.single, booth, booth.beta.shape[1], booth.values[g])
    if pending > 0 and not apart and (_has_way(crowd) or crowd.whole.shape[0] > 0):
        _products(matrices.single, booth.ways, booth.values)
    for k in range(pending):
        _stands(crowd, booth, booth.todo[k])
    return pending


@jit
def _nearest(crowd, piece, task, bias):
    """The least distance of a decision value out of fold from the threshold."""
    folds, fold, near = crowd.folds[min(task // crowd.n_folds, crowd.folds.shape[0] - 1)], task % crowd.n_folds, BIG
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
def _ended(matrices, crowd, booth, tol, certain, task, g, harvest):
    """Judge member g by its residual, polish it where it misses the tolerance, and gather. In place: booth, harvest."""
    piece, told = task_of(booth, g, crowd.epsilon), harvest.told[task]
    told[STEPS], told[ROUNDS], told[MOVES], told[TURNS] = booth.steps[g], 1.0, 0.0, booth.turns[g]
    for goal in (tol, SHARP):
        high, low, bias = extremes(piece)
        if high - low > goal:
            polished(matrices, crowd.epsilon, booth, g, goal, told)
            high, low, bias = extremes(piece)
        violation = max(high - low, 0.0)
        if not (certain and violation > SHARP and _nearest(crowd, piece, task, bias) <= SURE * violation):
            break
    gap, primal = gap_of(piece, bias)
    _gather(crowd, piece, task, bias, harvest)
    told[VIOLATION], told[GAP], told[PRIMAL], told[BIAS] = violation, gap, primal, bias


@jit
def _run_group(matrices, others, apart, crowd, booth, tol, inverse, certain, first, count, seen, harvest):
    """Solve and measure some tasks, at most `TOGETHER`. `others`: as in `in_pairs`. In place: booth, harvest."""
    pending, epsilon = _begin_group(matrices, others, apart, crowd, booth, inverse, first, count, seen), crowd.epsilon
    in_pairs(matrices, others, booth, pending, epsilon, np.float32(INNER_TOL * tol), _patience(crowd.values.shape[1]))
    for k in range(pending):
        repair(task_of(booth, booth.todo[k], epsilon))
    if crowd.few or apart:
        for g in range(count):
            residual(others if g == 1 else matrices, task_of(booth, g, epsilon), booth)
    else:
        for g in range(count):
            for t in range(booth.beta.shape[1]):
                booth.coefs[t, g] = booth.beta[g, t]
        _products(matrices.double, booth.coefs, booth.v)
        for g in range(count):
            for t in range(booth.beta.shape[1]):
                booth.v[g, t] = booth.c[g, t] - booth.v[g, t]
    for g in range(count):
        _ended(others if g == 1 else matrices, crowd, booth, tol, certain, first + g, g, harvest)


@jit
def _seat(matrices, crowd, first, count):
    """Write the kernel values of some guests, member by member of a group into the first rows and columns.

    Guests do not train together, so what is between them is never used. In place: single, gain, diagonal, double.
    """
    single, gain, diagonal, double = matrices.single, matrices.gain, matrices.diagonal, matrices.double
    two, one, floor = np.float32(2.0), np.float32(1.0), np.float32(TAU * matrices.size[0])
    for g in range(count):
        own = crowd.guests[first + g, 0]
        diagonal[g], single[g, g], double[g, g] = np.float32(own), np.float32(own), own
    for t in range(TOGETHER, double.shape[0]):
        for g in range(count):
            exact = crowd.guests[first + g, 1 + t - TOGETHER]
            value = np.float32(exact)
            curvature = diagonal[g] + diagonal[t] - two * value
            better = one / np.sqrt(curvature if curvature > floor else floor)
            double[g, t], double[t, g] = exact, exact
            single[g, t], single[t, g] = value, value
            gain[g, t], gain[t, g] = better, better


@jit
def run_tasks(matrices, crowd, booth, tol, inverse, certain, harvest):
    """Solve and measure all tasks, in groups. In place: booth, harvest, and with guests the matrices."""
    end = harvest.told.shape[0]
    for first in range(0, end, TOGETHER):
        seen = (first - 1) // crowd.n_folds if first > 0 else -1
        count = min(TOGETHER, end - first)
        if crowd.guests.shape[0] > 0:
            _seat(matrices, crowd, first, count)
        _run_group(matrices, matrices, False, crowd, booth, tol, inverse, certain, first, count, seen, harvest)


@jit
def run_scaled(matrices, others, own, kernel, crowd, booth, tol, certain, harvest):
    """`run_tasks` where the rows that train say what gamma is. In place: both matrices too.

    Two tasks are done in turn here, too: alone they take 1.15 times as long.
    """
    first, end, gamma, gamma_2 = 0, harvest.told.shape[0], 0.0, 0.0
    while first < end:
        count, fresh = 1, _gamma_of(own, crowd, first)
        while count < min(TOGETHER, end - first) and _gamma_of(own, crowd, first + count) == fresh:
            count += 1
        if fresh != gamma:
            _take_values(matrices, own, kernel, fresh)
            gamma = fresh
        apart = count == 1
        if apart and first + 1 < end:
            count, fresh = 2, _gamma_of(own, crowd, first + 1)
            if fresh != gamma_2:
                _take_values(others, own, kernel, fresh)
                gamma_2 = fresh
        second = others if apart else matrices
        _run_group(matrices, second, apart, crowd, booth, tol, False, certain, first, count, -1, harvest)
        first += count
