"""A start of a path by steps from zero."""

from __future__ import annotations

import numpy as np

from svmcore._path_jit import DEPENDENT, to_bound
from svmcore.compiler.jit import jit
from svmcore.path.elbow_jit import (
    ELBOW,
    LEAST_PIVOT,
    LOW,
    N_ELBOW,
    UP,
    append,
    delete,
    first_box,
    null_change,
    pivot_of,
    solve_upper,
)


@jit
def crash_point(setting, state, work, i):
    """Append point i, whose value a solver has left inside its box. If it is dependent, move it along its null vector.

    In place: state.
    """
    x = work.column
    pivot = pivot_of(setting, state, i, x)
    if pivot > DEPENDENT:
        append(setting, state, i, x, pivot)
        return
    m = state.cnt[N_ELBOW]
    solve_upper(state.factor, m, x)
    best, place = first_box(state, x, -1.0, state.beta[i] - state.lower[i])
    sign = -1.0
    up, up_place = first_box(state, x, 1.0, state.upper[i] - state.beta[i])
    if up < best:
        best = up
        place = up_place
        sign = 1.0
    if not null_change(setting, state, work, i, sign * best):
        append(setting, state, i, x, max(pivot_of(setting, state, i, x), LEAST_PIVOT))
        return
    for k in range(m):
        j = state.elbow[k]
        state.beta[j] = min(max(state.beta[j] + work.direction[k], state.lower[j]), state.upper[j])
    state.beta[i] = min(max(state.beta[i] + sign * best, state.lower[i]), state.upper[i])
    if place < 0:
        to_bound(state, i, sign > 0.0)
        return
    j = state.elbow[place]
    to_bound(state, j, -sign * x[place] > 0.0)
    delete(state, place)
    append(setting, state, i, x, max(pivot_of(setting, state, i, x), LEAST_PIVOT))


@jit
def seat(state, lower, upper, near):
    """Take beta into the boxes as they are where no ties are spread, and to a bound that is near. In place: state.

    What an indefinite kernel may leave is no number. It becomes zero, since it would fill the elbow. `near` is a share of a
    box.
    """
    for i in range(state.side.shape[0]):
        low, up = lower[i], upper[i]
        b = 0.0 if np.isnan(state.beta[i]) else state.beta[i]
        b = min(max(b, low), up)
        if up - b <= near * (up - low):
            b = up
        elif b - low <= near * (up - low):
            b = low
        state.lower[i], state.upper[i], state.beta[i] = low, up, b


@jit
def crash(setting, state, work):
    """Sides from beta, and an independent elbow out of the points inside their boxes. In place: state.

    Some free points of a solver's answer may depend on others. Each of these is moved along its null vector until one value
    meets its box. This changes no residual. The kernel rows of all free points must be there.
    """
    state.cnt[N_ELBOW] = 0
    for i in range(state.side.shape[0]):
        if state.beta[i] <= state.lower[i]:
            state.side[i] = LOW
        elif state.beta[i] >= state.upper[i]:
            state.side[i] = UP
        else:
            state.side[i] = ELBOW
    for i in range(state.side.shape[0]):
        if state.side[i] == ELBOW:
            crash_point(setting, state, work, i)
