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
from svmcore.simd.loops import add_block, add_rows
from svmcore.simd.packing import pack_rows
from svmcore.simd.vector import ROWS
from svmcore.solvers._block_jit import (
    INNER_TOL,
    NOISE,
    RELAX,
    TAU,
    WorkingSet,
    pair_steps,
    repair_sum,
    start_masks,
)
from svmcore.solvers._crowd_sets_jit import grown, solved
from svmcore.solvers._ends_jit import bias_of, worth_of

# What is said of a problem, by place.
STEPS, ROUNDS, ROWS_READ, SUPPORT, VIOLATION, BIAS, OBJECTIVE, GAP, BITS, ABOVE, BELOW, INVERSE, SUM, SQUARES = range(
    14
)
ENERGY, BLUR = 14, 15  # the sum of K_ii beta_i^2, in units of the objective; the typical rounding error of a residual
TOLD = 16

LARGE_GAP = 0.01  # relative; then the driver has something to say
VANISHING = 1e-11  # share of the energy below which neither an objective nor a gap says anything
# Violations up to HIDDEN times the rounding of a residual are rounding. A tolerance below the share HOPELESS of that is met
# by no point.
HIDDEN, HOPELESS = 8.0, 0.25
SHARPER, SHARPEST = 0.1, 1e-12  # shares of the violation and of the tolerance to which the violation is brought then
SINGULAR = 1e-12  # relative determinant of the system of both sums that counts as zero
# A tolerance below this share of the violation is reached by the free variables, which move together once pair steps have
# brought the violation to the share COARSE. That is tried so often.
SHARP, COARSE, TRIES = 1e-5, 3e-3, 4
EPS = float(np.finfo(np.float64).eps)
CRAWL, FACE = 2, 48  # so many pair steps for each variable, and the free ones, if they are so few, move together


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
    add_block(shape, exact.rows[:groups], desk.coef, exact.panels, 0, exact.panels.shape[0], desk.field)
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
def _energy(work):
    """The sum of K_ii beta_i^2, and the typical rounding error of a residual."""
    largest, total = 0.0, 0.0
    for t in range(work.beta.shape[0]):
        own = abs(np.float64(work.diagonal[t]))
        largest = max(largest, own)
        total += own * work.beta[t] * work.beta[t]
    return total, EPS * np.sqrt(total * largest)


@jit
def _add_up(beta, told):
    """Tell the sum of beta, and that of its squares. In place: told."""
    told[SUM] = told[SQUARES] = 0.0
    for t in range(beta.shape[0]):
        told[SUM] += beta[t]
        told[SQUARES] += beta[t] * beta[t]


@jit
def _solve(shape, exact, source, lines, work, dual, desk, tol, patience):
    """Pair steps and residuals in turn, until the violation is at most `tol`. In place: all but the problem.

    Where that leaves a gap that is large beside the objective, the violation is made smaller. Where the tolerance is hidden
    by rounding, it ends once rounding is all that is left of the violation.
    """
    m, steps, rounds, support, bits, crawls, tries = work.beta.shape[0], 0, 0, 0, 0, False, TRIES
    most, v, told, goal = min(patience.each * m + patience.more, patience.most), dual.v, dual.told, tol
    left = patience.rounds
    while True:
        if exact is not None:
            support = _from_points(shape, exact, dual.c, work.beta, desk, v)
        elif source is not None:
            support = _from_matrix(source, dual.c, work.beta, desk, v)
        high, low, bias = bias_of(v, work)
        violation = max(high - low, 0.0)
        objective, gap = worth_of(work, dual, bias)
        energy, noise = _energy(work)
        if not violation > goal and gap > max(LARGE_GAP * abs(gap - objective), VANISHING * energy):
            goal = max(SHARPER * violation, SHARPEST * tol)
        if violation <= HIDDEN * noise and goal < HOPELESS * noise:
            break
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
    told[ENERGY], told[BLUR] = energy, noise
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
def solve_points(shape, exact, lines, work, dual, desk, tol, patience):
    """Solve and measure one problem over points. In place: beta, v, what is told of it, and the desk."""
    _solve(shape, exact, None, lines, work, dual, desk, tol, patience)
