"""Working sets of a few variables: how they are chosen, and the small problem among them. Pair steps solve it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.solvers._pairs_jit import pair_slice, pair_step
from svmcore.solvers._steps_jit import (
    AT_TOLERANCE,
    ITERATION,
    NEED_ROW,
    NEXT_CHECK,
    NO_BOUND,
    STUCK,
    VIOLATION,
    WORK,
    Duals,
    Limits,
    Progress,
    Rows,
    count_step,
    due,
    find_rows,
    follow_change,
    worst_pair,
)

# A small problem is solved to the share _INNER of the violation outside, or to the share _INNER_TOL of the tolerance.
_INNER, _INNER_TOL = 1e-3, 0.1
_LONG = 2**62  # no run makes so many iterations


class Small(NamedTuple):
    """The variables of a working set, and scratch that their choice needs."""

    chosen: IntArray
    key: FloatArray


def new_small(duals: Duals, m: int) -> tuple[Small, Duals, Rows, Progress]:
    """Room for the problem of m variables. Its kernel rows are the rows of its own matrix."""
    order = np.arange(m)
    progress = Progress(np.zeros(16, np.int64), np.zeros(8), np.empty((0, 6)))
    progress.ints[NEXT_CHECK] = _LONG
    return (
        Small(np.zeros(m, np.int64), np.zeros(m)),
        duals._replace(
            n=m,
            beta=np.zeros(m),
            v=np.zeros(m),
            c=np.zeros(m),
            lower=np.zeros(m),
            upper=np.zeros(m),
            diag=np.zeros(m),
            curvature=np.zeros(m),
            point=order,
        ),
        Rows(np.zeros((m, m)), order, np.zeros(m, np.int64)),
        progress,
    )


@jit
def _insert(index, key, first, count, room, t, value):
    """Insert (t, value) into a sorted stretch of at most `room` keys, behind its equals. The largest key may drop out.

    Returns the new count. In place: index, key.
    """
    if count == room and value >= key[first + count - 1]:
        return count
    k = count if count < room else count - 1
    while k > 0 and key[first + k - 1] > value:
        key[first + k] = key[first + k - 1]
        index[first + k] = index[first + k - 1]
        k -= 1
    key[first + k] = value
    index[first + k] = t
    return count + 1 if count < room else count


@jit
def _working_set(duals, small, q):
    """Choose the q / 2 variables that want most to grow, and the q / 2 that want most to shrink. Returns their number.

    This is SVM-light's steepest feasible direction. Without an equality row it is the q largest pulls. In place: small.
    """
    chosen, key = small.chosen, small.key
    half = q // 2 if duals.equality else q
    tops = 0
    bottoms = 0
    for t in range(duals.n):
        value = duals.v[t]
        if not duals.equality:
            pull = value if value > 0 else -value
            open_ = duals.beta[t] < duals.upper[t] if value > 0 else duals.beta[t] > duals.lower[t]
            if open_ and pull > 0.0:
                tops = _insert(chosen, key, 0, tops, half, t, -pull)
            continue
        if duals.beta[t] < duals.upper[t]:
            tops = _insert(chosen, key, 0, tops, half, t, -value)
        if duals.beta[t] > duals.lower[t]:
            bottoms = _insert(chosen, key, half, bottoms, half, t, value)
    m = tops
    for k in range(bottoms):
        t = chosen[half + k]
        known = False
        for a in range(tops):
            known = known or chosen[a] == t
        if not known:
            chosen[m] = t
            m += 1
    return m


@jit
def load(duals, rows, small, part, matrix, m):
    """Copy the problem of the first m chosen variables out of the whole one. Variables behind them cannot move.

    In place: part, matrix.
    """
    for a in range(m):
        t = small.chosen[a]
        row = rows.values[rows.slot[duals.point[t]]]
        for b in range(m):
            matrix.values[a, b] = row[small.chosen[b]]
        part.beta[a], part.v[a], part.c[a] = duals.beta[t], duals.v[t], duals.c[t]
        part.lower[a], part.upper[a] = duals.lower[t], duals.upper[t]
        part.diag[a], part.curvature[a] = duals.diag[t], duals.curvature[t]
    for a in range(m, part.n):
        part.beta[a] = part.v[a] = part.lower[a] = part.upper[a] = 0.0


@jit
def store(duals, rows, small, part, m):
    """Take the answer over, and bring the residual up to date. Returns the largest change. In place: duals."""
    largest = 0.0
    for a in range(m):
        t = small.chosen[a]
        change = part.beta[a] - duals.beta[t]
        if change != 0.0:
            follow_change(duals, rows.values[rows.slot[duals.point[t]]], t, change)
            duals.beta[t] = part.beta[a]
            largest = max(largest, abs(change))
    return largest


@jit
def _gain(duals, small, part, m):
    """By how much the objective falls from the point of the whole problem to that of the small one."""
    total = 0.0
    for a in range(m):
        t = small.chosen[a]
        total += 0.5 * (part.beta[a] - duals.beta[t]) * (duals.v[t] + part.v[a])
    return total


@jit
def decompose_slice(duals, rows, small, part, matrix, inner, progress, limits, q):
    """Decomposition with working sets of size q. For q = 2 it is the exact step on the maximal violating pair.

    `part`, `matrix` and `inner` are the small problem, its rows and its progress. In place: all but the problem.
    """
    while True:
        reason = due(progress, limits)
        if reason >= 0:
            return reason
        i, j, worst = worst_pair(duals)
        progress.floats[VIOLATION] = worst
        progress.floats[WORK] += 8.0 * duals.n
        if worst <= limits.tol:
            return AT_TOLERANCE
        if q == 2 and duals.equality:
            reason = pair_step(duals, rows, progress, i, j)
            if reason >= 0:
                return reason
            continue
        m = _working_set(duals, small, q)
        if not find_rows(duals, rows, progress, small.chosen, m):
            return NEED_ROW
        load(duals, rows, small, part, matrix, m)
        inner.ints[ITERATION] = 0
        tol = max(_INNER * worst, _INNER_TOL * limits.tol)
        if pair_slice(part, matrix, inner, Limits(tol, 100 * m + 1000, limits.max_iter, np.inf)) == NO_BOUND:
            return NO_BOUND
        gain = _gain(duals, small, part, m)
        if store(duals, rows, small, part, m) == 0.0:
            return STUCK
        progress.floats[WORK] += 2.0 * duals.n * m + 10.0 * m * m
        count_step(progress, gain, m, -1, gain)
