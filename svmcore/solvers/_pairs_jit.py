"""Pair steps on the sign-free dual, in plain loops. They serve all solvers that need some of them beside their own steps.

SMO has the same steps over vectors that are padded and masked (`_smo_jit`). There a pass over all variables is vector code,
and the extremes of the new residual come out of the pass that changes it. What both share is in `_steps_jit`.
"""

from __future__ import annotations

import numpy as np

from svmcore.compiler.jit import jit
from svmcore.solvers._steps_jit import (
    AT_TOLERANCE,
    NEED_ROW,
    NO_BOUND,
    STUCK,
    VIOLATION,
    WORK,
    count_step,
    due,
    find_row,
    move,
    pair_length,
    stronger,
    worst_pair,
)


@jit
def pair_step(duals, rows, progress, i, j):
    """Minimise over beta_i + s, beta_j - s, or over beta_i alone when j < 0. Returns -1, or the reason why not."""
    slot_i = find_row(duals, rows, progress, i)
    if slot_i < 0:
        return NEED_ROW
    slot_j = slot_i
    if j >= 0:
        slot_j = find_row(duals, rows, progress, j)
        if slot_j < 0:
            return NEED_ROW
    row_i = rows.values[slot_i]
    step, slope, curvature = pair_length(duals, progress, row_i, i, j)
    before = duals.beta[i]
    step = move(duals, i, j, step)
    if np.isinf(step):
        return NO_BOUND
    if step == 0.0 or duals.beta[i] == before:
        return STUCK
    v = duals.v
    v[i] -= duals.diag[i] * step
    if j >= 0:
        v[j] += duals.diag[j] * step
        row_j = rows.values[slot_j]
        for k in range(duals.n):
            v[k] -= step * (row_i[k] - row_j[k])
    else:
        for k in range(duals.n):
            v[k] -= step * row_i[k]
    count_step(progress, step * slope - 0.5 * curvature * step * step, i, j, step)
    return -1


@jit
def _partner(duals, row_i, i):
    """The j that may shrink and has the largest gain with i, (v_i - v_j)^2 / curvature of the pair. -1 if there is none."""
    best = -1.0
    chosen = -1
    v_i, q_i = duals.v[i], duals.curvature[i]
    for t in range(duals.n):
        if duals.beta[t] > duals.lower[t] and duals.v[t] < v_i:
            difference = v_i - duals.v[t]
            score = difference * difference / max(q_i + duals.curvature[t] - 2.0 * row_i[t], duals.tiny)
            if score > best:
                best = score
                chosen = t
    return chosen


@jit
def pair_slice(duals, rows, progress, limits):
    """Pair steps with the partner of largest gain. In place: all but the problem."""
    while True:
        reason = due(progress, limits)
        if reason >= 0:
            return reason
        i, j, progress.floats[VIOLATION] = worst_pair(duals)
        progress.floats[WORK] += 8.0 * duals.n
        if progress.floats[VIOLATION] <= limits.tol:
            return AT_TOLERANCE
        if duals.equality:
            slot = find_row(duals, rows, progress, i)
            if slot < 0:
                return NEED_ROW
            j = _partner(duals, rows.values[slot], i)
        else:
            i = stronger(duals, i, j)
            j = -1
        reason = pair_step(duals, rows, progress, i, j)
        if reason >= 0:
            return reason
