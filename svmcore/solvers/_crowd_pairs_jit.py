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


@jit(inline=True)
def _goes_on(piece, at, stop, most):
    i, high, low, steps = at
    return steps < most and high - low > stop and i < piece.beta.shape[0]


@jit(inline=True)
def _stepped(matrices, piece, j, at, stop, most):
    """One pair step with partner j. Returns where the task is then, and whether it has ended. In place: piece."""
    i, high, low, steps = at
    step = _length(matrices, piece, i, j, high) if j < piece.beta.shape[0] else 0.0
    if step > 0.0:
        _move(piece, i, j, step)
        i, high, low = update_pair(piece.values, matrices.single, i, j, np.float32(step), piece.rise, piece.fall)
        at = i, high, low, steps + 1
    return at, not (step > 0.0 and _goes_on(piece, at, stop, most))


@jit
def _in_turn(matrices, others, one, two, stop, most, at, at_two, ends, ends_two, more):
    """Pair steps of two tasks in turn, until both have ended, or one of them where there are more.

    Each is at (i, high, low, steps). Returns where it is then, and whether it has ended. In place: beta, values, masks.
    """
    ends, ends_two = ends or not _goes_on(one, at, stop, most), ends_two or not _goes_on(two, at_two, stop, most)
    while not ((ends or ends_two) if more else (ends and ends_two)):
        j, j_two = 0, 0
        if not ends:
            j = best_gain(one.values, matrices.gain, at[0], at[1], one.fall)
        if not ends_two:
            j_two = best_gain(two.values, matrices.gain, at_two[0], at_two[1], two.fall)
        if not ends:
            at, ends = _stepped(matrices, one, j, at, stop, most)
        if not ends_two:
            at_two, ends_two = _stepped(others, two, j_two, at_two, stop, most)
    return at, at_two, ends, ends_two


@jit
def _first_look(matrices, piece):
    """Where pair steps begin."""
    i, high, low = update_pair(piece.values, matrices.single, 0, 0, np.float32(0.0), piece.rise, piece.fall)
    return i, high, low, np.int64(0)


@jit
def in_pairs(matrices, others, booth, count, epsilon, stop, most):
    """Pair steps of the first `count` tasks in `todo`, two in turn, to `stop`. In place: booth.

    `others`: the matrices of the second of two tasks; of more, all matrices are the same.
    """
    following, a, b, ends, ends_two = 0, -1, -1, True, True
    one = two = task_of(booth, booth.todo[0], epsilon)
    at = at_two = _first_look(matrices, one)
    while True:
        if ends:
            if a >= 0:
                booth.steps[a] = at[3]
            a = -1
            if following < count:
                a, ends = booth.todo[following], False
                following += 1
                one = task_of(booth, a, epsilon)
                at = _first_look(matrices, one)
        if ends_two:
            if b >= 0:
                booth.steps[b] = at_two[3]
            b = -1
            if following < count:
                b, ends_two = booth.todo[following], False
                following += 1
                two = task_of(booth, b, epsilon)
                at_two = _first_look(others, two)
        if a < 0 and b < 0:
            break
        at, at_two, ends, ends_two = _in_turn(
            matrices, others, one, two, stop, most, at, at_two, ends, ends_two, following < count
        )


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
