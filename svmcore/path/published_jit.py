"""The compiled half of the published path algorithm: what is done point by point between two calls of linear algebra.

Signs are part of beta = y alpha-hat. Residuals are r = lambda slope - K beta - bias = y lambda xi. So lower ends need r <= 0,
and upper ends need r >= 0. `rate` is the change of r when lambda falls by 1, which is y p_i of (35). `d` is the same for
-beta on the elbow, which is d_p of (27). A `move` is the side that a point goes to, or STAY.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import NONZERO, FloatArray
from svmcore.compiler.jit import jit
from svmcore.path.elbow_jit import ELBOW, LOW, UP
from svmcore.simd.vector import BIG

STAY = -1
STILL = 1e-13  # an elbow value with a smaller rate does not move
TIE = 1e-12  # events that are closer than this, relative to lambda, block together


class PublishedState(NamedTuple):
    """One entry per point. All but `slope` and the boxes are changed in place."""

    beta: FloatArray
    resid: FloatArray
    fixed: FloatArray  # the product of K with the values outside of the elbow
    side: np.ndarray
    move: np.ndarray
    switched: np.ndarray  # whether the special-event routine has moved the point since lambda last fell
    slope: FloatArray
    lower: FloatArray
    upper: FloatArray


@jit
def outside_step(state, rate, least_rate):
    """(49): the fall of lambda until the first residual outside of the elbow meets zero. `BIG` when none does."""
    best = BIG
    for i in range(state.side.shape[0]):
        if (state.side[i] == UP and rate[i] < -least_rate) or (state.side[i] == LOW and rate[i] > least_rate):
            best = min(best, -state.resid[i] / rate[i])
    return max(best, 0.0)


@jit
def box_step(state, elbow, d):
    """(48): the fall of lambda until the first elbow value meets its box. `BIG` when none does."""
    best = BIG
    for k in range(elbow.shape[0]):
        i = elbow[k]
        if abs(d[k]) > STILL:
            best = min(best, (state.beta[i] - (state.lower[i] if d[k] > 0.0 else state.upper[i])) / d[k])
    return max(best, 0.0)


@jit
def special_moves(state, elbow, d, rate, lam, tau, tau2):
    """(S1)-(S4): move all points that block descent, unless they were moved at this lambda already. In place: state.move.

    Rates and distances are relative to lambda and to the box. Returns the number of moves.
    """
    n = state.side.shape[0]
    for i in range(n):
        state.move[i] = STAY
    count = 0
    for k in range(elbow.shape[0]):
        i = elbow[k]
        width = state.upper[i] - state.lower[i]
        speed = abs(d[k])
        room = state.beta[i] - state.lower[i] if d[k] > 0.0 else state.upper[i] - state.beta[i]
        blocks = speed * lam > tau and room < tau * width and room < tau2 * lam * speed
        if blocks and state.switched[i] == 0:
            state.move[i] = LOW if d[k] > 0.0 else UP
            count += 1
    for i in range(n):
        side = state.side[i]
        if side == ELBOW or state.switched[i] != 0:
            continue
        toward = rate[i] if side == LOW else -rate[i]
        room = -state.resid[i] if side == LOW else state.resid[i]
        if toward > tau and room < tau * lam and room < tau2 * lam * toward:
            state.move[i] = ELBOW
            count += 1
    for i in range(n):
        if state.move[i] != STAY:
            state.switched[i] = 1
    return count


@jit
def arrivals(state, elbow, lam, near, touch):
    """(40)-(43) after a step that made way. Values at a box leave, and residuals at zero enter. In place: state.move."""
    count = 0
    for i in range(state.side.shape[0]):
        state.move[i] = STAY
        r = state.resid[i]
        if (state.side[i] == UP and r < near * lam) or (state.side[i] == LOW and r > -near * lam):
            state.move[i] = ELBOW
            count += 1
    for k in range(elbow.shape[0]):
        i = elbow[k]
        slack = touch * (state.upper[i] - state.lower[i])
        if state.beta[i] <= state.lower[i] + slack:
            state.move[i] = LOW
            count += 1
        elif state.beta[i] >= state.upper[i] - slack:
            state.move[i] = UP
            count += 1
    return count


@jit
def blockers(state, elbow, d, rate, limit, least_rate, closed):
    """Move the points whose own step (47)-(49) is within `limit`. Elbow values count only where the step has a closed form.

    In place: state.move.
    """
    count = 0
    for i in range(state.side.shape[0]):
        state.move[i] = STAY
        toward = rate[i] if state.side[i] == LOW else -rate[i]
        if state.side[i] != ELBOW and toward > least_rate and -state.resid[i] / rate[i] <= limit:
            state.move[i] = ELBOW
            count += 1
    if not closed:
        return count
    for k in range(elbow.shape[0]):
        i = elbow[k]
        if abs(d[k]) > STILL and (state.beta[i] - (state.lower[i] if d[k] > 0.0 else state.upper[i])) / d[k] <= limit:
            state.move[i] = LOW if d[k] > 0.0 else UP
            count += 1
    return count


@jit
def keep_first(state):
    """Of all moves keep only that of the least index. Single pivots of least index do not cycle. In place: state.move."""
    found = False
    for i in range(state.side.shape[0]):
        if state.move[i] != STAY:
            if found:
                state.move[i] = STAY
            found = True


@jit
def carry_out(state, rows, slot, elbow, kept):
    """(44)-(46): carry out the moves of state.move, with exact bounds, and update `fixed`. Returns the new size of the elbow.

    `kept` is the new elbow. Points that stay keep their order. Points that enter come behind them, by index.
    In place: state, kept.
    """
    n = state.side.shape[0]
    for i in range(n):
        side = state.move[i]
        if side == STAY:
            continue
        if side == ELBOW:
            factor = -state.beta[i]
        else:
            state.beta[i] = state.upper[i] if side == UP else state.lower[i]
            factor = state.beta[i]
        if factor != 0.0:
            row = rows[slot[i]]
            for j in range(n):
                state.fixed[j] += factor * row[j]
    m = 0
    for k in range(elbow.shape[0]):
        if state.move[elbow[k]] == STAY:
            kept[m] = elbow[k]
            m += 1
    for i in range(n):
        if state.move[i] != STAY:
            state.side[i] = state.move[i]
            if state.move[i] == ELBOW:
                kept[m] = i
                m += 1
    return m


@jit
def violation(state, lam):
    """The largest violation of (56)."""
    worst = 0.0
    for i in range(state.side.shape[0]):
        r = state.resid[i]
        side = state.side[i]
        worst = max(worst, abs(r) if side == ELBOW else (r if side == LOW else -r))
    return worst / lam


@jit
def relative_gap(state, beta, resid, bias, lam):
    """The relative duality gap of `beta`, from its residuals at `lam` and `bias`. It is exact for any point of the boxes."""
    total = 0.0
    gap = 0.0
    primal = 0.0
    for i in range(beta.shape[0]):
        b = beta[i]
        r = resid[i]
        hinge = (state.upper[i] if r > 0.0 else state.lower[i]) * r
        total += b
        gap += hinge - b * r
        primal += 0.5 * b * (lam * state.slope[i] - r - bias) + hinge
    gap += abs(bias * total)  # beta costs this where its sum is not zero
    return gap / max(abs(primal), NONZERO)
