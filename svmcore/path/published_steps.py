"""The steps of the published path algorithm: what is done for every point between two calls of linear algebra.

Signs are part of beta = y alpha-hat. Residuals are r = lambda slope - K beta - bias = y lambda xi. So lower ends need r <= 0,
and upper ends need r >= 0. `rate` is the change of r when lambda falls by 1, which is y p_i of (35). `d` is the same for
-beta on the elbow, which is d_p of (27). A `move` is the side that a point goes to, or STAY.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore._types import NONZERO, FloatArray, IntArray
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
    side: Any
    move: Any
    switched: Any  # whether the special-event routine has moved the point since lambda last fell
    slope: FloatArray
    lower: FloatArray
    upper: FloatArray


def zero_steps(state: PublishedState, rate: FloatArray, least_rate: float) -> FloatArray:
    """(49): the fall of lambda until each residual outside of the elbow meets zero. `BIG` where it does not."""
    toward = np.where(state.side == LOW, rate, -rate)
    meets = (state.side != ELBOW) & (toward > least_rate)
    return np.asarray(np.divide(-state.resid, rate, out=np.full(rate.size, BIG), where=meets))


def box_steps(state: PublishedState, elbow: IntArray, d: FloatArray) -> FloatArray:
    """(48): the fall of lambda until each elbow value meets its box. `BIG` where it does not."""
    room = state.beta[elbow] - np.where(d > 0.0, state.lower[elbow], state.upper[elbow])
    return np.asarray(np.divide(room, d, out=np.full(d.size, BIG), where=np.abs(d) > STILL))


def soonest(steps: FloatArray) -> float:
    """The smallest step. What rounding has left behind zero counts as zero."""
    return max(float(np.fmin.reduce(steps, initial=BIG)), 0.0)


def special_moves(
    state: PublishedState, elbow: IntArray, d: FloatArray, rate: FloatArray, lam: float, tau: float, tau2: float
) -> int:
    """(S1)-(S4): move all points that block descent, unless they were moved at this lambda already. In place: state.move.

    Rates and distances are relative to lambda and to the box. Returns the number of moves.
    """
    low, up = state.lower[elbow], state.upper[elbow]
    falls, speed = d > 0.0, np.abs(d)
    room = np.where(falls, state.beta[elbow] - low, up - state.beta[elbow])
    leaves = (speed * lam > tau) & (room < tau * (up - low)) & (room < tau2 * lam * speed)
    sign = np.where(state.side == LOW, 1.0, -1.0)
    toward, away = sign * rate, -sign * state.resid
    enters = (state.side != ELBOW) & (toward > tau) & (away < tau * lam) & (away < tau2 * lam * toward)
    state.move[:] = np.where(enters, ELBOW, STAY)
    state.move[elbow[leaves]] = np.where(falls, LOW, UP)[leaves]
    state.move[state.switched != 0] = STAY
    state.switched[state.move != STAY] = 1
    return _moves(state)


def _moves(state: PublishedState) -> int:
    return int(np.count_nonzero(state.move != STAY))


def arrivals(state: PublishedState, elbow: IntArray, lam: float, near: float, touch: float) -> int:
    """(40)-(43) after a step that made way. Values at a box leave, and residuals at zero enter. In place: state.move."""
    above = np.where(state.side == UP, state.resid, -state.resid)
    state.move[:] = np.where((state.side != ELBOW) & (above < near * lam), ELBOW, STAY)
    move_ended(state, elbow, np.ones(elbow.size, dtype=np.bool_), touch)
    return _moves(state)


def move_ended(state: PublishedState, elbow: IntArray, some: Any, touch: float) -> int:
    """Move those of `some` places on the elbow whose values have arrived at their box. In place: state.move."""
    beta, low, up = state.beta[elbow], state.lower[elbow], state.upper[elbow]
    slack = touch * (up - low)
    at_low, at_up = some & (beta <= low + slack), some & (beta >= up - slack)
    state.move[elbow[at_up]] = UP
    state.move[elbow[at_low]] = LOW
    return int(np.count_nonzero(at_low | at_up))


def blockers(
    state: PublishedState, elbow: IntArray, d: FloatArray, rate: FloatArray, limit: float, least_rate: float, closed: bool
) -> int:  # fmt: skip
    """Move the points whose own step (47)-(49) is within `limit`. Elbow values count only where the step has a closed form.

    In place: state.move.
    """
    state.move[:] = np.where(zero_steps(state, rate, least_rate) <= limit, ELBOW, STAY)
    if closed:
        blocks = box_steps(state, elbow, d) <= limit
        state.move[elbow[blocks]] = np.where(d > 0.0, LOW, UP)[blocks]
    return _moves(state)


def keep_first(state: PublishedState) -> None:
    """Of all moves keep only that of the least index. Single pivots of least index do not cycle. In place: state.move."""
    state.move[np.flatnonzero(state.move != STAY)[1:]] = STAY


def carry_out(state: PublishedState, rows: FloatArray, slot: IntArray, elbow: IntArray) -> IntArray:
    """(44)-(46): carry out the moves of state.move, with exact bounds, and update `fixed`. Returns the new elbow.

    Points that stay keep their order. Points that enter come behind them, by index. In place: state.
    """
    moving = np.flatnonzero(state.move != STAY)
    enters = state.move[moving] == ELBOW
    gone = moving[~enters]
    state.beta[gone] = np.where(state.move[gone] == UP, state.upper[gone], state.lower[gone])
    for i, factor in zip(moving, np.where(enters, -1.0, 1.0) * state.beta[moving], strict=True):
        if factor != 0.0:
            state.fixed[:] += factor * rows[slot[i], : state.fixed.size]
    state.side[moving] = state.move[moving]
    return np.concatenate([elbow[state.move[elbow] == STAY], moving[enters]])


def violation(state: PublishedState, lam: float) -> float:
    """The largest violation of (56)."""
    sign = np.choose(state.side, [1.0, -1.0, np.sign(state.resid)])
    return float(np.fmax.reduce(sign * state.resid, initial=0.0)) / lam


def relative_gap(state: PublishedState, bias: float, lam: float) -> float:
    """The relative duality gap, from residuals at `lam` and `bias`. It is exact for any point of the boxes."""
    b, r = state.beta, state.resid
    hinge = np.where(r > 0.0, state.upper, state.lower) * r
    primal = 0.5 * b @ (lam * state.slope - r - bias) + hinge.sum()
    gap = (hinge - b * r).sum() + abs(bias * b.sum())  # beta costs this where its sum is not zero
    return float(gap / max(abs(primal), NONZERO))
