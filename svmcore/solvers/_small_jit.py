"""Small problems: pair steps in float32, residuals and measures in float64, in one call.

There is one loop, `_solve`. It reads kernel values from one of two places:

- from the points of one problem. Then a row is computed when a step first looks at it (`solve_points`).
- from a kernel matrix that many problems share. Then a row is copied when a step first looks at it (`solve_tasks`).

Where pair steps crawl over a matrix, the free variables move to their optimum together (`_on_face`).

A task is a problem over a shared matrix. Its points are a few spans of neighbouring rows of the matrix. Tasks share nothing
else. So their bits depend neither on the order nor on the threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore._types import LANES, FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.simd.loops import add_block_64, add_rows, pack_rows
from svmcore.simd.passes import best_partner, update_pair
from svmcore.simd.vector import BIG, BIG_32, ROWS, fmax, fmin
from svmcore.solvers._block_jit import (
    CONCAVE,
    INNER_TOL,
    NOISE,
    NONCONVEX,
    RELAX,
    TAU,
    WorkingSet,
    extremes,
    pair_steps,
    repair_sum,
    row_of,
    start_masks,
)
from svmcore.solvers._crowd_sets_jit import grown, solved

# What is said of a problem, by place.
STEPS, ROUNDS, ROWS_READ, SUPPORT, VIOLATION, BIAS, OBJECTIVE, GAP, BITS, ABOVE, BELOW, INVERSE, SUM, SQUARES = range(
    14
)
TOLD = 14

LARGE_GAP = 0.01  # relative; then the driver has something to say
SHARPER, SHARPEST = 0.1, 1e-3  # shares of the violation and of the tolerance to which the violation is brought then
SINGULAR = 1e-12  # relative determinant of the system of both sums that counts as zero
BOTH = 0.5  # share of a violation that either side may have
FIRST, RETURNS = 0.1, 3  # the first tolerance of problems with two sums, and how often it is made smaller
# 1 / C up to which a first look takes it for zero, relative to the kernel's diagonal and the largest weight.
LOST = 1e-4
LARGE, LARGER = 1e3, 1e3  # C in these terms that stands for all that are larger, and how much larger it may become
BRIEF = 3  # pair steps for each variable that this may take
# A tolerance below this share of the violation is reached by the free variables, which move together once pair steps have
# brought the violation to the share COARSE. That is tried so often.
SHARP, COARSE, TRIES = 1e-5, 3e-3, 4
CRAWL, FACE = 2, 48  # so many pair steps for each variable, and the free ones, if they are so few, move together
EXACT = 1e-13  # relative difference of a share from the largest one that is rounding


class Patience(NamedTuple):
    """When a problem is given up: pair steps for each variable, further steps, steps at most, and rounds."""

    each: int
    more: int
    most: int
    rounds: int


class Tasks(NamedTuple):
    """Tasks one behind the other. The variables of task k are those from first[k] to first[k + 1].

    Its points are, in this order, those of the spans from first_span[k] to first_span[k + 1].
    """

    gram: FloatArray
    spans: IntArray
    first_span: IntArray
    first: IntArray
    point: IntArray  # the row of `gram` of each variable
    c: FloatArray
    lower: FloatArray
    upper: FloatArray
    diag: FloatArray
    total: FloatArray  # the sum of beta, by task
    beta: FloatArray
    v: FloatArray
    told: FloatArray  # (tasks, TOLD)


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


class Own(NamedTuple):
    """The boxes of one task for C = 1, and room for an answer of it."""

    lower: FloatArray
    upper: FloatArray
    kept: FloatArray


class Desk(NamedTuple):
    """Room for one problem at a time: its kernel rows, and vectors."""

    rows: Any  # kernel values in float32, a row for each variable that was asked for
    diagonal: Any
    values: Any
    rise: Any
    fall: Any
    rise_below: Any  # the same for variables below zero, where these keep a sum of their own
    fall_below: Any
    slot: IntArray
    filled: IntArray
    support: IntArray  # points with a coefficient
    coef: FloatArray  # their coefficients
    field: FloatArray  # K beta, by row of the matrix or by variable, up to whole panels
    face: IntArray  # (2, FACE), the points of free variables, and these
    factor: FloatArray  # (FACE + 3, FACE), room for their step


class Dual(NamedTuple):
    """The problem of one working set, but for its boxes, and what is told of it."""

    c: FloatArray
    diag: FloatArray
    total: float
    v: FloatArray  # the residual
    told: FloatArray


class Copied(NamedTuple):
    """Where the rows of a task are copied from when they are first asked for."""

    gram: FloatArray
    spans: IntArray
    point: IntArray
    diag: FloatArray
    slot: IntArray  # variable -> row of the Gram matrix, or -1
    filled: IntArray  # the number of rows so far


class Exact(NamedTuple):
    """The points of one problem in float64, for its residuals."""

    panels: Any  # the points of the variables
    double: Any  # the points that `point` numbers
    point: IntArray
    rows: Any  # room for points with a coefficient, as row groups


@jit
def _support(point, beta, desk):
    """The points with a coefficient. Returns their number. In place: support, coef."""
    count = 0
    for t in range(beta.shape[0]):
        desk.support[count] = point[t]
        desk.coef[count] = beta[t]
        count += beta[t] != 0.0
    return count


@jit
def _from_matrix(source, c, beta, desk, v):
    """v = c - (K + D) beta. Returns the number of support vectors. In place: v, and the desk."""
    count, k = _support(source.point, beta, desk), 0
    for s in range(source.spans.shape[0]):
        a, b = source.spans[s, 0], source.spans[s, 1]
        for p in range(a, b):
            desk.field[p] = 0.0
        add_rows(source.gram, desk.support[:count], desk.coef, a, b, desk.field)
        for p in range(a, b):
            v[k] = c[k] - source.diag[k] * beta[k] - desk.field[p]
            k += 1
    return count


@jit
def _from_points(shape, exact, c, beta, desk, v):
    """v = c - K beta. Returns the number of support vectors. In place: v, and the desk."""
    count = _support(exact.point, beta, desk)
    groups = (count + ROWS - 1) // ROWS
    for k in range(count, groups * ROWS):
        desk.coef[k] = 0.0
    for k in range(exact.panels.shape[0] * LANES):
        desk.field[k] = 0.0
    pack_rows(exact.double, desk.support[:count], exact.rows[:groups])
    add_block_64(shape, exact.rows[:groups], desk.coef, exact.panels, 0, exact.panels.shape[0], desk.field)
    for t in range(beta.shape[0]):
        v[t] = c[t] - desk.field[t]
    return count


@jit
def _free(source, work, diag, desk):
    """Collect the free variables and factor the matrix among them, up to what depends on others. Returns their number.

    It is 0 where there are too many, or a diagonal. In place: face, factor.
    """
    points, own, count = desk.face[0], desk.face[1], 0
    for t in range(work.beta.shape[0]):
        if work.lower[t] < work.beta[t] < work.upper[t]:
            if count == FACE or diag[t] != 0.0:
                return 0
            points[count], own[count] = source.point[t], t
            count += 1
    if count == 0:
        return 0
    m = grown(source.gram, source.gram[points[0], points[0]], points, 0, count, desk.factor)
    k = 0
    for j in range(count):
        if k < m and source.point[own[j]] == points[k]:
            own[k] = own[j]
            k += 1
    return m


@jit
def _way_of_face(work, v, desk, m, apart):
    """The way on which the residuals of the free variables become equal, on each side if these are apart. In place: factor.

    It is in row FACE of `factor`. What is added to all entries of the matrix changes nothing, as the way has the sum zero.
    Returns whether there is one.
    """
    own, factor = desk.face[1], desk.factor
    way, above, below = factor[FACE], factor[FACE + 1], factor[FACE + 2]
    for k in range(m):
        mine = not apart or work.upper[own[k]] > 0.0
        way[k], above[k], below[k] = v[own[k]], 1.0 if mine else 0.0, 0.0 if mine else 1.0
    for right in (way, above, below):
        solved(factor, m, right)
    a, b, both, first, second = 0.0, 0.0, 0.0, 0.0, 0.0
    for k in range(m):
        mine = not apart or work.upper[own[k]] > 0.0
        a += above[k] if mine else 0.0
        b += 0.0 if mine else below[k]
        both += below[k] if mine else 0.0
        first += way[k] if mine else 0.0
        second += 0.0 if mine else way[k]
    a, b = a if a > 0.0 else 1.0, b if b > 0.0 else 1.0  # a side without a free variable
    rest = a * b - both * both
    if not rest > SINGULAR * a * b:
        return False
    one, two = (first * b - second * both) / rest, (second * a - first * both) / rest
    for k in range(m):
        way[k] -= one * above[k] + two * below[k]
    return True


@jit
def _on_face(source, work, dual, desk, apart):
    """Move the free variables together, as far as their boxes allow; residuals must be fresh. In place: beta.

    Returns how far that is: 1 is the optimum among them, and 0 says that nothing has moved.
    """
    m = _free(source, work, dual.diag, desk)
    if m < 2 or not _way_of_face(work, dual.v, desk, m, apart):
        return 0.0
    way, length, first = desk.factor[FACE], 1.0, -1
    for k in range(m):
        t, move = desk.face[1, k], way[k]
        room = work.upper[t] - work.beta[t] if move > 0.0 else work.beta[t] - work.lower[t]
        if abs(move) * length > room:
            length, first = room / abs(move), k
    for k in range(m):
        t, move = desk.face[1, k], way[k]
        end = work.upper[t] if move > 0.0 else work.lower[t]
        work.beta[t] = end if k == first else min(max(work.beta[t] + length * move, work.lower[t]), work.upper[t])
    return length


@jit
def _bias(work, v, high, low):
    """The mean residual of the free variables. When none is free, it is the midpoint of the optimal interval."""
    total, count = 0.0, 0
    for t in range(v.shape[0]):
        free = work.lower[t] < work.beta[t] < work.upper[t]
        total += v[t] if free else 0.0
        count += free
    if count > 0:
        return total / count
    if high <= -BIG:
        return 0.0 if low >= BIG else low
    return high if low >= BIG else 0.5 * (high + low)


@jit
def _masks_of_side(work, t, above, rise, fall):
    """Whether variable t may move with the variables of one side. In place: rise, fall."""
    own = (work.upper[t] > 0.0) == above
    rise[t] = 0.0 if own and work.beta[t] < work.upper[t] else -BIG_32
    fall[t] = 0.0 if own and work.beta[t] > work.lower[t] else BIG_32


@jit
def _sides_apart(work, desk):
    """Set the masks of both sides. Padding can neither grow nor shrink. In place: masks, and the padding of values."""
    for above in (True, False):
        rise, fall = (work.rise, work.fall) if above else (desk.rise_below, desk.fall_below)
        for t in range(work.values.shape[0]):
            rise[t] = -BIG_32
            fall[t] = BIG_32
        for t in range(work.beta.shape[0]):
            _masks_of_side(work, t, above, rise, fall)
    for t in range(work.beta.shape[0], work.values.shape[0]):
        work.values[t] = 0.0


@jit
def steps_on_sides(work, desk, stop, most, source):
    """`pair_steps` where both variables of a pair are above zero, or both below: each side keeps its sum.

    Returns (steps, bits). In place: beta, values, masks.
    """
    beta, values, gram = work.beta, work.values, work.gram
    row_i, row_j, step, steps, bits = 0, 0, 0.0, 0, 0
    while True:
        i, high, low = update_pair(values, gram, row_i, row_j, step, work.rise, work.fall)
        k, high_below, low_below = update_pair(
            values, gram, 0, 0, 0.0, desk.rise_below[: values.shape[0]], desk.fall_below[: values.shape[0]]
        )
        above = high - low >= high_below - low_below
        if not above:
            i, high, low = k, high_below, low_below
        if not high - low > stop or steps >= most or i >= beta.shape[0]:
            break
        row_i = row_of(work, None, source, source, i)
        fall = work.fall if above else desk.fall_below[: values.shape[0]]
        j = best_partner(values, gram, row_i, 1.0, i, work.diagonal, TAU, fall)
        if j >= beta.shape[0]:
            break
        scale = np.float64(work.diagonal[i]) + np.float64(work.diagonal[j])
        curvature = scale - 2.0 * np.float64(gram[row_i, j])
        if curvature < -CONCAVE * scale:
            bits = NONCONVEX
        room_i, room_j = work.upper[i] - beta[i], beta[j] - work.lower[j]
        move = RELAX * (np.float64(values[i]) - np.float64(values[j])) / max(curvature, TAU)
        move = min(move, min(room_i, room_j)) if bits == 0 else min(room_i, room_j)
        if move <= 0.0:
            break
        beta[i] = work.upper[i] if move >= room_i else beta[i] + move
        beta[j] = work.lower[j] if move >= room_j else beta[j] - move
        for t in (i, j):
            _masks_of_side(
                work, t, above, work.rise if above else desk.rise_below, work.fall if above else desk.fall_below
            )
        row_j = row_of(work, None, source, source, j)
        step = np.float32(move)
        steps += 1
    return steps, bits


@jit
def _extremes_of_side(work, v, above):
    """(high, low, multiplier) of the variables of one side; the multiplier is the mean residual of the free ones."""
    high, low, total, count = -BIG, BIG, 0.0, 0
    for t in range(v.shape[0]):
        if (work.upper[t] > 0.0) == above:
            grows, shrinks = work.beta[t] < work.upper[t], work.beta[t] > work.lower[t]
            high = fmax(high, v[t] if grows else -BIG)
            low = fmin(low, v[t] if shrinks else BIG)
            total += v[t] if grows and shrinks else 0.0
            count += grows and shrinks
    if count > 0:
        return high, low, total / count
    if high <= -BIG:
        return high, low, low
    return high, low, high if low >= BIG else 0.5 * (high + low)


@jit
def _solve_on_sides(source, work, dual, desk, tol, patience):
    """`_solve` where the variables above zero keep their sum, and those below zero theirs. In place: all but the problem.

    What is told are the multipliers of both sums, and the violation, which is that of the worse side.
    """
    m, steps, rounds, bits, crawls = work.beta.shape[0], 0, 0, 0, False
    most, v, told = min(patience.each * m + patience.more, patience.most), dual.v, dual.told
    while True:
        support = _from_matrix(source, dual.c, work.beta, desk, v)
        high, low, above = _extremes_of_side(work, v, True)
        high_below, low_below, below = _extremes_of_side(work, v, False)
        violation = max(max(high - low, high_below - low_below), 0.0)
        if not violation > tol or rounds >= patience.rounds or steps >= most or bits:
            break
        if crawls:
            length = _on_face(source, work, dual, desk, True)
            crawls = 0.0 < length < 1.0
            if length > 0.0:
                steps += 1
                continue
        for t in range(m):
            work.values[t] = v[t] - (above if work.upper[t] > 0.0 else below)
        _sides_apart(work, desk)
        stop = max(INNER_TOL * tol, NOISE * violation)
        taken, bits = steps_on_sides(work, desk, stop, min(CRAWL * m, most - steps), source)
        steps += taken
        crawls = taken == CRAWL * m
        rounds = rounds if crawls else (rounds + 1 if taken > 0 else patience.rounds)
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
    told, steps = dual.told, 0.0
    rough = LOST * size * unit if size > 0.0 else FIRST * tol
    goal = rough
    for _ in range(RETURNS):
        _solve_on_sides(source, work, dual, desk, BOTH * goal, patience)
        steps += told[STEPS]
        half = 0.5 * (told[BELOW] - told[ABOVE])
        goal = tol * min(1.0, abs(half) / size) if size > 0.0 else tol
        lost = abs(half) <= rough and size > 0.0
        if told[VIOLATION] <= BOTH * goal or lost or told[BITS] != 0.0:
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
    """The machine of C = 1 / t, or of a much larger one where that takes few steps. Returns its 1 / C.

    Without a variable at its bound it is the machine of every larger C, so one of these has the sum of |beta| that `least` is
    for C = 1. In place: all but the problem.
    """
    m, beta, told, steps = work.beta.shape[0], work.beta, dual.told, dual.told[STEPS]
    for k in range(m):
        beta[k] = 0.0
    turn, allowed = 0, patience
    while True:
        _boxed(work, own, t if turn != 1 else t / LARGER)
        _solve(None, None, source, source, work, dual, desk, tol, allowed)
        steps += told[STEPS]
        total, free = _free_at(work, own, least)
        there = told[VIOLATION] <= tol and told[BITS] == 0.0
        if turn == 0 and there and free == 0.0:
            for k in range(m):
                own.kept[k] = beta[k]
            turn, allowed = 1, Patience(BRIEF, 0, min(BRIEF * m, patience.most), patience.rounds)
        elif turn == 1 and (not there or (free == 0.0 and total * t < LARGER * least)):
            for k in range(m):
                beta[k] = own.kept[k]
            turn, allowed = 2, Patience(0, 0, 0, 0)
        else:
            break
    told[STEPS] = steps
    return free if free > 0.0 else t / LARGER if turn == 1 else t


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
    high, low, _ = extremes(v, beta, work.lower, work.upper)
    told[VIOLATION] = max(high - low, 0.0)
    told[BIAS], told[OBJECTIVE], told[GAP] = _measured(work, dual, high, low)
    told[INVERSE] = t
    _add_up(beta, told)


@jit
def _add_up(beta, told):
    """Tell the sum of beta, and that of its squares. In place: told."""
    told[SUM] = told[SQUARES] = 0.0
    for t in range(beta.shape[0]):
        told[SUM] += beta[t]
        told[SQUARES] += beta[t] * beta[t]


@jit
def _measured(work, dual, high, low):
    """(bias, objective, gap) of a point whose residual is known. A box without an end or a diagonal has no gap to name."""
    c, diag, v = dual.c, dual.diag, dual.v
    bias = _bias(work, v, high, low)
    objective, gap = 0.0, 0.0
    for t in range(v.shape[0]):
        beta, d = work.beta[t], diag[t]
        objective -= 0.5 * beta * (c[t] + v[t])
        u = v[t] + d * beta - bias
        best = work.upper[t] if u > 0.0 else work.lower[t]
        if d > 0.0:
            best = min(max(u / d, work.lower[t]), work.upper[t])
        if np.isinf(best):
            gap += BIG if u != 0.0 else 0.0
        else:
            gap += (best - beta) * (u - 0.5 * d * (best + beta))
    return bias, objective, gap


@jit
def _solve(shape, exact, source, lines, work, dual, desk, tol, patience):
    """Pair steps and residuals in turn, until the violation is at most `tol`. In place: all but the problem.

    Where that leaves a gap that is large beside the objective, the violation is made smaller.
    """
    m, steps, rounds, support, bits, crawls, tries = work.beta.shape[0], 0, 0, 0, 0, False, TRIES
    most, v, told, goal = min(patience.each * m + patience.more, patience.most), dual.v, dual.told, tol
    left = patience.rounds
    while True:
        if exact is not None:
            support = _from_points(shape, exact, dual.c, work.beta, desk, v)
        elif source is not None:
            support = _from_matrix(source, dual.c, work.beta, desk, v)
        high, low, _ = extremes(v, work.beta, work.lower, work.upper)
        violation = max(high - low, 0.0)
        bias, objective, gap = _measured(work, dual, high, low)
        if not violation > goal and gap > LARGE_GAP * abs(gap - objective):
            goal = max(SHARPER * violation, SHARPEST * tol)
        if not violation > goal or left == 0 or steps >= most or bits:
            break
        if source is not None:
            length = _on_face(source, work, dual, desk, False) if crawls else 0.0
            tries = 0 if crawls and length == 0.0 else tries
            crawls = 0.0 < length < 1.0
            if length > 0.0:
                repair_sum(work, dual.total)
                steps += 1
                continue
        shift = 0.5 * (high + low)
        for t in range(m):
            work.values[t] = v[t] - shift
        start_masks(work)
        sharp = source is not None and tries > 0 and goal < SHARP * violation
        stop = max(INNER_TOL * goal, (COARSE if sharp else NOISE) * violation)
        slice_ = min(CRAWL * m, most - steps) if source is not None else most - steps
        taken, _, bits = pair_steps(work, stop, RELAX, TAU, slice_, shape, lines, source)
        repair_sum(work, dual.total)
        steps += taken
        crawls = source is not None and taken == CRAWL * m
        rounds += not crawls
        left = left if crawls or sharp else left - 1 if taken > 0 else 0
        tries -= sharp
        crawls = crawls or sharp
    told[STEPS], told[ROUNDS], told[ROWS_READ], told[SUPPORT] = steps, rounds, lines.filled[0], support
    told[VIOLATION], told[BIAS], told[OBJECTIVE], told[GAP], told[BITS] = violation, bias, objective, gap, bits
    _add_up(work.beta, told)


@jit
def _working_set(tasks, desk, a, b):
    """The variables a .. b - 1 as a working set, without any row yet.

    A pass may read the first row before it is there. What another task left may be infinite in float32.
    """
    width = (b - a + LANES - 1) // LANES * LANES
    desk.filled[0] = 0
    for k in range(width):
        desk.rows[0, k] = 0.0
    for t in range(a, b):
        p = tasks.point[t]
        desk.slot[t - a] = -1
        desk.diagonal[t - a] = tasks.gram[p, p] + tasks.diag[t]
    for k in range(b - a, width):
        desk.diagonal[k] = 1.0
    return WorkingSet(
        desk.rows, 1.0, desk.diagonal[:width], desk.values[:width], desk.rise[:width], desk.fall[:width],
        tasks.beta[a:b], tasks.lower[a:b], tasks.upper[a:b],
    )  # fmt: skip


@jit
def _opened(tasks, desk, k):
    """A task as the loops see it: its problem, where its rows come from, and its working set."""
    a, b = tasks.first[k], tasks.first[k + 1]
    spans = tasks.spans[tasks.first_span[k] : tasks.first_span[k + 1]]
    dual = Dual(tasks.c[a:b], tasks.diag[a:b], tasks.total[k], tasks.v[a:b], tasks.told[k])
    source = Copied(tasks.gram, spans, tasks.point[a:b], dual.diag, desk.slot, desk.filled)
    return dual, source, _working_set(tasks, desk, a, b)


@jit
def solve_tasks(tasks, desk, tol, patience, begin, end):
    """Solve and measure the tasks begin .. end - 1. In place: beta, v and what is told of them, and the desk."""
    for k in range(begin, end):
        dual, source, work = _opened(tasks, desk, k)
        _solve(None, None, source, source, work, dual, desk, tol, patience)


@jit
def solve_shares(tasks, shares, desk, tol, patience, begin, end):
    """`solve_tasks` where the variables above zero have their sum, and those below zero theirs.

    INVERSE, 1 / C, is told of a classifier that has one: not where the smaller side cannot have its sum.
    """
    for k in range(begin, end):
        dual, source, work = _opened(tasks, desk, k)
        a, b = tasks.first[k], tasks.first[k + 1]
        own = Own(shares.lower[a:b], shares.upper[a:b], shares.kept[a:b])
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


@jit
def solve_points(shape, exact, lines, work, dual, desk, tol, patience):
    """Solve and measure one problem over points. In place: beta, v, what is told of it, and the desk."""
    _solve(shape, exact, None, lines, work, dual, desk, tol, patience)
