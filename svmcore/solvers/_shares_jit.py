"""Small problems with two sums: variables above zero keep one, those below zero the other (`_small_jit`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import FloatArray
from svmcore.compiler.jit import jit
from svmcore.simd.passes import best_partner, update_pair
from svmcore.simd.vector import BIG, BIG_32
from svmcore.solvers._block_jit import (
    CONCAVE,
    INNER_TOL,
    NOISE,
    NONCONVEX,
    RELAX,
    TAU,
    WorkingSet,
    _move,
    row_of,
    start_masks,
)
from svmcore.solvers._ends_jit import bias_of, ends_of, middle_of, worth_of
from svmcore.solvers._small_jit import (
    ABOVE,
    BELOW,
    BIAS,
    BITS,
    CRAWL,
    GAP,
    INVERSE,
    OBJECTIVE,
    ROUNDS,
    ROWS_READ,
    STEPS,
    SUPPORT,
    VIOLATION,
    Patience,
    _add_up,
    _from_matrix,
    _on_face,
    _opened,
    _solve,
)

BOTH = 0.5  # share of a violation that either side may have
# The first tolerance of problems with two sums, and how often they are begun: a search takes longer.
FIRST, RETURNS = 0.1, 6
# 1 / C up to which a first look takes it for zero, relative to the kernel's diagonal and the largest weight.
LOST = 1e-4
LARGE, LARGER = 1e2, 1e4  # C in these terms that stands for all that are larger, and how much larger it may become
GROWTH, MUCH_LARGER = 10.0, 3  # C begins at a hundredth of that and grows by this factor; the last of its turns
SLOW = 0.02  # share of the sum of |beta| below which what all larger C would change is not waited for
BRIEF = 3  # pair steps for each variable that the much larger C may take
EXACT = 1e-13  # relative difference of a share from the largest one that is rounding


class Shares(NamedTuple):
    """What tasks with two sums are asked for: sums above and below zero of half a share each, of what all boxes hold.

    A `size` (of kernel values) asks for more: for the C of the hinge classifier with this share, and its machine. Then
    `lower` and `upper` are the boxes for C = 1.
    """

    share: FloatArray
    size: float
    lower: FloatArray
    upper: FloatArray
    kept: FloatArray  # room for an answer


@jit
def sides_apart(work, desk):
    """Leave the working set to the variables above zero. Returns another one of the same vectors, for those below.

    In place: the masks of both, and the padding of values.
    """
    size = work.values.shape[0]
    below = WorkingSet(
        work.gram, 1.0, work.diagonal, work.values, desk.rise_below[:size], desk.fall_below[:size], work.beta, work.lower,
        work.upper,
    )  # fmt: skip
    start_masks(work)
    start_masks(below)
    for t in range(work.beta.shape[0]):
        if work.upper[t] > 0.0:
            below.rise[t], below.fall[t] = -BIG_32, BIG_32
        else:
            work.rise[t], work.fall[t] = -BIG_32, BIG_32
    return below


@jit
def steps_on_sides(work, below, stop, most, source):
    """`pair_steps` where both variables of a pair are above zero, or both below: each side keeps its sum.

    Returns (steps, bits). In place: beta, values, masks.
    """
    beta, values, gram = work.beta, work.values, work.gram
    row_i, row_j, step, steps, bits = 0, 0, 0.0, 0, 0
    while True:
        i, high, low = update_pair(values, gram, row_i, row_j, step, work.rise, work.fall)
        k, high_below, low_below = update_pair(values, gram, 0, 0, 0.0, below.rise, below.fall)
        own = work
        if high_below - low_below > high - low:
            own, i, high, low = below, k, high_below, low_below
        if not high - low > stop or steps >= most or i >= beta.shape[0]:
            break
        row_i = row_of(work, None, source, source, i)
        j = best_partner(values, gram, row_i, 1.0, i, work.diagonal, TAU, own.fall)
        if j >= beta.shape[0]:
            break
        scale = np.float64(work.diagonal[i]) + np.float64(work.diagonal[j])
        curvature = scale - 2.0 * np.float64(gram[row_i, j])
        if curvature < -CONCAVE * scale:
            bits = NONCONVEX
        move = RELAX * (np.float64(values[i]) - np.float64(values[j])) / max(curvature, TAU) if bits == 0 else BIG
        move = min(move, min(work.upper[i] - beta[i], beta[j] - work.lower[j]))
        if move <= 0.0:
            break
        _move(own, i, move)
        _move(own, j, -move)
        row_j = row_of(work, None, source, source, j)
        step = np.float32(move)
        steps += 1
    return steps, bits


@jit
def _repair_side(work, above, total):
    """`repair_sum` of the variables of one side. Returns the sum that they had. In place: beta."""
    found, widest, at = 0.0, 0.0, 0
    for t in range(work.beta.shape[0]):
        if (work.upper[t] > 0.0) == above:
            found += work.beta[t]
            room = min(work.beta[t] - work.lower[t], work.upper[t] - work.beta[t])
            if room > widest:
                widest, at = room, t
    if abs(total - found) < widest:
        work.beta[at] += total - found
    return found


@jit
def _solve_on_sides(source, work, dual, desk, tol, most, most_rounds):
    """`_solve` where the variables above zero keep their sum, and those below zero theirs. In place: all but the problem.

    What is told are the multipliers of both sums, and the violation, which is that of the worse side.
    """
    m, steps, rounds, bits, crawls = work.beta.shape[0], 0, 0, 0, False
    v, told = dual.v, dual.told
    plus, minus = _repair_side(work, True, np.inf), _repair_side(work, False, np.inf)
    while True:
        _repair_side(work, True, plus)
        _repair_side(work, False, minus)
        support = _from_matrix(source, dual.c, work.beta, desk, v)
        high, low, total, free = ends_of(v, work, 0.0, 1.0)
        high_below, low_below, total_below, free_below = ends_of(v, work, 0.0, -1.0)
        above, below = middle_of(high, low, total, free), middle_of(high_below, low_below, total_below, free_below)
        violation = max(max(high - low, high_below - low_below), 0.0)
        if not violation > tol or rounds >= most_rounds or steps >= most or bits:
            break
        if crawls:
            length = _on_face(source, work, dual, desk, True)
            crawls = 0.0 < length < 1.0
            if length > 0.0:
                steps += 1
                continue
        for t in range(m):
            work.values[t] = v[t] - (above if work.upper[t] > 0.0 else below)
        stop = max(INNER_TOL * tol, NOISE * violation)
        taken, bits = steps_on_sides(work, sides_apart(work, desk), stop, min(CRAWL * m, most - steps), source)
        steps += taken
        crawls = taken == CRAWL * m
        rounds = rounds if crawls else (rounds + 1 if taken > 0 else most_rounds)
    told[STEPS], told[ROUNDS], told[ROWS_READ], told[SUPPORT] = steps, rounds, source.filled[0], support
    told[VIOLATION], told[BITS], told[ABOVE], told[BELOW] = violation, bits, above, below


@jit
def _filled(work, share):
    """Variables at their bounds, the first ones first, until either side has its sum. In place: beta.

    Returns what both sides can hold, and what one variable can.
    """
    above, below, unit = 0.0, 0.0, 0.0
    for t in range(work.beta.shape[0]):
        above += work.upper[t]
        below -= work.lower[t]
        unit = max(unit, max(work.upper[t], -work.lower[t]))
    plus = minus = 0.5 * share * (above + below)
    for t in range(work.beta.shape[0]):
        up, down = min(work.upper[t], plus), min(-work.lower[t], minus)
        work.beta[t] = up - down
        plus -= up
        minus -= down
    return above, below, unit


@jit
def _with_share(source, work, dual, desk, size, unit, tol, patience):
    """`_solve_on_sides` at tolerances that become smaller with the margin. Returns the 1 / C that both multipliers say.

    In place: all but the problem.
    """
    told, steps = dual.told, 0
    most = patience.each * work.beta.shape[0] + patience.more
    rough = LOST * size * unit if size > 0.0 else FIRST * tol
    goal = rough
    for _ in range(RETURNS):
        _solve_on_sides(source, work, dual, desk, BOTH * goal, min(most, patience.most - steps), patience.rounds)
        steps += np.int64(told[STEPS])
        half = 0.5 * (told[BELOW] - told[ABOVE])
        goal = tol * min(1.0, abs(half) / size) if size > 0.0 else tol
        lost = abs(half) <= rough and size > 0.0
        if told[VIOLATION] <= BOTH * goal or lost or told[BITS] != 0.0 or steps >= patience.most:
            break
    told[STEPS] = steps
    return half


@jit
def _boxed(work, own, t):
    """Boxes are what C makes of the weights, to the last bit. In place: lower, upper."""
    cost = 1.0 / t
    for k in range(work.beta.shape[0]):
        work.lower[k] = cost * own.lower[k]
        work.upper[k] = cost * own.upper[k]


@jit
def _free_at(work, own, least):
    """(The sum of |beta|, the 1 / C where `least` is that of C = 1).

    The latter is 0 if a variable is at its bound here or there.
    """
    total, bound, most = 0.0, False, 0.0
    for k in range(work.beta.shape[0]):
        beta = work.beta[k]
        if beta != 0.0:
            total += abs(beta)
            bound = bound or beta == work.lower[k] or beta == work.upper[k]
            most = max(most, abs(beta) / (own.upper[k] - own.lower[k]))
    free = not bound and total > 0.0 and least * most <= total
    return total, least / total if free else 0.0


@jit
def _of_large_cost(source, work, dual, desk, own, least, t, tol, patience):
    """The machine of C = 1 / t, of a smaller one that says nearly the same, or of a much larger one. Returns its 1 / C.

    C grows as long as the share falls, which is nearly a straight line over 1 / C where classes overlap. The much larger one
    is tried where that takes few steps. A machine without a variable at its bound is that of every larger C, so one of these
    has the sum of |beta| that `least` is for C = 1. In place: all but the problem.
    """
    m, beta, told, steps = work.beta.shape[0], work.beta, dual.told, dual.told[STEPS]
    for k in range(m):
        beta[k] = 0.0
    here, kept, before, turn, each, more = GROWTH * GROWTH * t, 0.0, 0.0, 0, patience.each, patience.more
    while True:
        _boxed(work, own, here)
        allowed = Patience(each, more, max(patience.most - np.int64(steps), 0), patience.rounds)
        _solve(None, None, source, source, work, dual, desk, tol, allowed)
        steps += told[STEPS]
        total, free = _free_at(work, own, least)
        share = total * here
        if told[VIOLATION] <= tol and told[BITS] == 0.0 and (free > 0.0 or share >= least):
            if free > 0.0 or turn == MUCH_LARGER:
                break
            for k in range(m):
                own.kept[k] = beta[k]
            kept = here
            slow = turn == 1 and before - share <= SLOW * (GROWTH - 1.0) * share and share < before * (1.0 - EXACT)
            turn = MUCH_LARGER if slow else turn + 1
            here = t / LARGER if turn == MUCH_LARGER else here / GROWTH
            before = share
            if turn == MUCH_LARGER:
                each, more = BRIEF, 0
        elif kept > 0.0:
            for k in range(m):
                beta[k] = own.kept[k]
            here, kept, turn, each, more = kept, 0.0, MUCH_LARGER, 0, 0
        else:
            break
    told[STEPS] = steps
    return free if free > 0.0 else here


@jit
def _with_cost(source, work, dual, desk, own, least, t, tol, patience):
    """The classifier of C = 1 / t, at which its dual, a share, is known; or, with `least`, one of a large C.

    In place: all but the problem.
    """
    beta, v, told, cost = work.beta, dual.v, dual.told, 1.0 / t
    for k in range(beta.shape[0]):
        dual.c[k] = 1.0 if own.upper[k] > 0.0 else -1.0
        v[k] = dual.c[k] + cost * v[k]
        beta[k] *= cost
    if least > 0.0:
        t = _of_large_cost(source, work, dual, desk, own, least, t, tol, patience)
    _boxed(work, own, t)
    for k in range(beta.shape[0]):
        beta[k] = min(max(beta[k], work.lower[k]), work.upper[k])
    high, low, told[BIAS] = bias_of(v, work)
    told[VIOLATION] = max(high - low, 0.0)
    told[OBJECTIVE], told[GAP] = worth_of(work, dual, told[BIAS])
    told[INVERSE] = t
    _add_up(beta, told)


@jit
def solve_shares(tasks, shares, desk, tol, patience, begin, end):
    """`solve_tasks` where the variables above zero have their sum, and those below zero theirs.

    INVERSE, 1 / C, is told of a classifier that has one: not where the smaller side cannot have its sum.
    """
    for k in range(begin, end):
        dual, source, work = _opened(tasks, desk, k)
        a, b = tasks.first[k], tasks.first[k + 1]
        own = Shares(shares.share, shares.size, shares.lower[a:b], shares.upper[a:b], shares.kept[a:b])
        above, below, unit = _filled(work, shares.share[k])
        weight = shares.share[k] * (above + below)
        dual.told[INVERSE] = 0.0
        if shares.size > 0.0 and weight > 2.0 * min(above, below) * (1.0 + EXACT):
            continue
        t = _with_share(source, work, dual, desk, shares.size, unit, tol, patience)
        if shares.size > 0.0 and dual.told[BITS] == 0.0:
            lost = t <= LOST * shares.size * unit
            t, least = (shares.size * unit / LARGE, weight) if lost else (t, 0.0)
            _with_cost(source, work, dual, desk, own, least, t, tol, patience)
