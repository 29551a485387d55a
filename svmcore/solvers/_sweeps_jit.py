"""Coordinate steps on the sign-free dual, sweep by sweep."""

from __future__ import annotations

import numpy as np

from svmcore.compiler.jit import jit
from svmcore.solvers._steps_jit import (
    AT_TOLERANCE,
    CHANGED,
    NEED_ROW,
    NO_BOUND,
    OWN_INT,
    POSITION,
    SWEEP_DONE,
    VIOLATION,
    WORK,
    count_step,
    due,
    find_row,
    follow_change,
    move,
    worst_pair,
)

SWEEPS = OWN_INT
_FLAT = 1e-200  # a curvature up to this counts as zero: no step is divided by it


@jit(inline=True)
def _pull(duals, t):
    """The residual of variable t if the variable can follow it, else 0. It is for problems without an equality row."""
    value = duals.v[t]
    if value > 0.0:
        return value if duals.beta[t] < duals.upper[t] else 0.0
    return value if duals.beta[t] > duals.lower[t] else 0.0


@jit
def _largest(duals, by_gap):
    """The variable t to move next, and the largest pull of all: (t, pull).

    The next variable is that of largest pull. With `by_gap` it is the one that adds most to the duality gap: its pull times
    its room. Where there is no bound, the largest |beta|, plus 1, stands for the bound.
    """
    ceiling = 1.0
    if by_gap:
        for k in range(duals.n):
            ceiling = max(ceiling, abs(duals.beta[k]) + 1.0)
    best = -1.0
    worst = 0.0
    t = 0
    for k in range(duals.n):
        pull = _pull(duals, k)
        size = abs(pull)
        worst = max(worst, size)
        if by_gap and size > 0.0:
            bound = (
                min(duals.upper[k], ceiling) - duals.beta[k]
                if pull > 0.0
                else duals.beta[k] - max(duals.lower[k], -ceiling)
            )
            size *= bound
        if size > best:
            best = size
            t = k
    return t, worst


@jit
def _coordinate(duals, rows, progress, t, share):
    """beta_t += share v_t / (K_tt + diag_t), clipped to its box. Returns -1, or the reason why not.

    In place: beta, v, progress.
    """
    pull = _pull(duals, t)
    if pull == 0.0:
        return -1
    slot = find_row(duals, rows, progress, t)
    if slot < 0:
        return NEED_ROW
    curvature = duals.curvature[t]
    if curvature > _FLAT:
        step = share * pull / curvature
    else:
        step = np.inf if pull > 0 else -np.inf
    before = duals.beta[t]
    step = move(duals, t, -1, step)
    if np.isinf(step):
        return NO_BOUND
    if duals.beta[t] == before:
        return -1
    follow_change(duals, rows.values[slot], t, step)
    progress.floats[WORK] += 2.0 * duals.n
    progress.ints[CHANGED] += 1
    count_step(progress, step * pull - 0.5 * curvature * step * step, t, -1, step)
    return -1


@jit
def sweep_slice(duals, rows, order, progress, shares, greedy, limits):
    """Coordinate steps over the rows of `order`. A row is a sweep. In place: all but the problem.

    The step of variable t is `shares[t]` times the step to v_t = 0. With greedy = 1 there are as many steps, but each is
    taken where the residual is largest. With greedy = 2 it is taken where the share of the duality gap is largest. The point
    is measured after every sweep. A sweep that changed nothing is the last.
    """
    ints = progress.ints
    length = order.shape[1]
    while ints[POSITION] < order.size:
        reason = due(progress, limits)
        if reason >= 0:
            return reason
        t = order[ints[POSITION] // length, ints[POSITION] % length]
        if greedy > 0:
            t, worst = _largest(duals, greedy == 2)
            progress.floats[WORK] += 2.0 * duals.n
            progress.floats[VIOLATION] = worst
            if worst <= limits.tol:
                return AT_TOLERANCE
        reason = _coordinate(duals, rows, progress, t, shares[t])
        if reason >= 0:
            return reason
        progress.floats[WORK] += 4.0
        ints[POSITION] += 1
        if ints[POSITION] % length == 0:
            ints[SWEEPS] += 1
            progress.floats[WORK] += 2.0 * duals.n
            progress.floats[VIOLATION] = worst_pair(duals)[2]
            if progress.floats[VIOLATION] <= limits.tol:
                return AT_TOLERANCE
            if ints[CHANGED] == 0:
                return SWEEP_DONE
            if ints[POSITION] < order.size:
                ints[CHANGED] = 0
    return SWEEP_DONE
