"""Pair steps of single tasks of a crowd (`_crowd_jit`), two tasks in turn, and the measures of a task."""

from __future__ import annotations

import numpy as np

from svmcore.compiler.jit import jit
from svmcore.simd.passes import best_gain, update_pair
from svmcore.simd.vector import BIG, BIG_32, fmax, fmin
from svmcore.solvers._crowd_sets_jit import OneTask
from svmcore.solvers._ends_jit import ends_of, middle_of

TAU = 1e-6  # a curvature below this share of the mean diagonal of K counts as zero
RELAX = 1.5  # a step that no bound cuts is longer than the exact one by this factor
ROUNDING = 1e-14  # a share of a box, or of a sum, that is rounding


@jit
def task_of(booth, g, epsilon):
    return OneTask(
        booth.c[g], booth.lower[g], booth.upper[g], booth.beta[g], booth.v[g], booth.values[g], booth.rise[g],
        booth.fall[g], epsilon,
    )  # fmt: skip


@jit
def set_mask(piece, t):
    """Whether variable t may grow or shrink, with the kink of epsilon at zero. In place: rise, fall."""
    b, epsilon = piece.beta[t], piece.epsilon
    piece.rise[t] = -BIG_32 if b >= piece.upper[t] else (epsilon if b < 0.0 else -epsilon)
    piece.fall[t] = BIG_32 if b <= piece.lower[t] else (-epsilon if b > 0.0 else epsilon)


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
    set_mask(piece, i)
    set_mask(piece, j)


@jit
def alone(matrices, piece, stop, most, at):
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
def _in_turn(matrices, others, one, two, stop, most, at, at_two):
    """Pair steps of two tasks in turn, until one of them ends. Returns where each of them is, and whether it has ended."""
    n, single, single_2, gain = one.beta.shape[0], matrices.single, others.single, matrices.gain
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
            step_2 = _length(others, two, i_2, j_2, high_2)
        ends, ends_2 = not step > 0.0, not step_2 > 0.0
        if not ends:
            _move(one, i, j, step)
            i, high, low = update_pair(values, single, i, j, np.float32(step), rise, fall)
            steps += 1
            ends = not (steps < most and high - low > stop and i < n)
        if not ends_2:
            _move(two, i_2, j_2, step_2)
            i_2, high_2, low_2 = update_pair(values_2, single_2, i_2, j_2, np.float32(step_2), rise_2, fall_2)
            steps_2 += 1
            ends_2 = not (steps_2 < most and high_2 - low_2 > stop and i_2 < n)
    return (i, high, low, steps), (i_2, high_2, low_2, steps_2), ends, ends_2


@jit
def first_look(matrices, piece):
    """Where pair steps begin. In place: nothing."""
    i, high, low = update_pair(piece.values, matrices.single, 0, 0, np.float32(0.0), piece.rise, piece.fall)
    return i, high, low, np.int64(0)


@jit
def in_pairs(matrices, others, booth, count, epsilon, stop, most):
    """Pair steps of the first `count` tasks in `todo`, two in turn, to `stop`. In place: booth.

    `others`: the matrices of the second of two tasks; of more, all matrices are the same.
    """
    following = min(count, 2)
    a, b = 0, 1
    if count == 0:
        return
    one = task_of(booth, booth.todo[a], epsilon)
    at = first_look(matrices, one)
    if count == 1:
        booth.steps[booth.todo[a]] = alone(matrices, one, stop, most, at)
        return
    two = task_of(booth, booth.todo[b], epsilon)
    at_two = first_look(others, two)
    while True:
        at, at_two, ends, ends_two = _in_turn(matrices, others, one, two, stop, most, at, at_two)
        if ends:
            booth.steps[booth.todo[a]] = at[3]
            if following == count:
                booth.steps[booth.todo[b]] = at_two[3] if ends_two else alone(others, two, stop, most, at_two)
                break
            a = following
            following += 1
            one = task_of(booth, booth.todo[a], epsilon)
            at = first_look(matrices, one)
        if ends_two:
            booth.steps[booth.todo[b]] = at_two[3]
            if following == count:
                booth.steps[booth.todo[a]] = alone(matrices, one, stop, most, at)
                break
            b = following
            following += 1
            two = task_of(booth, booth.todo[b], epsilon)
            at_two = first_look(others, two)


@jit
def extremes(piece):
    """(largest residual of a variable that can grow, smallest of one that can shrink, bias), kinks considered.

    Where no variable is free, any number between both is a bias, and the middle is taken. But boxes of two costs hold a sum
    of zero only up to rounding: some variable is free by that much, and the bias is its residual, as it is in LIBSVM.
    """
    high, low, total, free = ends_of(piece.v, piece, piece.epsilon, 0.0)
    over = _sum_of(piece.beta) if free == 0 and -BIG < high <= low < BIG else 0.0
    if over != 0.0:
        return high, low, low if over > 0.0 else high
    return high, low, middle_of(high, low, total, free)


@jit(sums=True)
def gap_of(piece, bias):
    """(gap, primal): a sum of Fenchel-Young terms, none of which is negative."""
    gap, dual, epsilon = 0.0, 0.0, piece.epsilon
    for t in range(piece.beta.shape[0]):
        b, u = piece.beta[t], piece.v[t] - bias
        cost = epsilon * abs(b)
        gap += piece.upper[t] * fmax(u - epsilon, 0.0) + piece.lower[t] * fmin(u + epsilon, 0.0) - u * b + cost
        dual += 0.5 * b * (piece.c[t] + piece.v[t]) - cost
    return gap, dual + gap
