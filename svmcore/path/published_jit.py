"""The compiled half of the published path algorithm: what is done point by point between two linear algebra calls.

Signs are folded into beta = y alpha-hat, and residuals are r = lambda c - K beta - bias = y lambda xi, so that lower ends
need r <= 0, upper ends r >= 0. `rate` is the change of r per unit by which lambda falls: y p_i of (35). `d` is that of
-beta on the elbow: d_p of (27). A `move` is the side a point goes to, or STAY.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._jit import jit
from svmcore._types import FloatArray
from svmcore.path.elbow_jit import ELBOW, LOW, UP
from svmcore.simd.vector import BIG

STAY = -1
STILL = 1e-13  # an elbow value whose rate is smaller does not move
TIE = 1e-12  # events closer than this (times lambda) block together


class PublishedState(NamedTuple):
    """One entry per point. All but `c` and the boxes are changed in place."""

    beta: FloatArray
    resid: FloatArray
    fixed: FloatArray  # K times the values outside of the elbow
    side: np.ndarray
    move: np.ndarray
    switched: np.ndarray  # moved by the special-event routine since lambda last fell
    c: FloatArray
    lower: FloatArray
    upper: FloatArray


@jit
def outside_step(S, rate, least_rate):
    """(49): the fall of lambda at which the first outside residual meets zero, `BIG` when none does."""
    best = BIG
    for i in range(S.side.shape[0]):
        if (S.side[i] == UP and rate[i] < -least_rate) or (S.side[i] == LOW and rate[i] > least_rate):
            best = min(best, -S.resid[i] / rate[i])
    return max(best, 0.0)


@jit
def box_step(S, elbow, d):
    """(48): the fall of lambda at which the first elbow value meets its box, `BIG` when none does."""
    best = BIG
    for k in range(elbow.shape[0]):
        i = elbow[k]
        if abs(d[k]) > STILL:
            best = min(best, (S.beta[i] - (S.lower[i] if d[k] > 0.0 else S.upper[i])) / d[k])
    return max(best, 0.0)


@jit
def special_moves(S, elbow, d, rate, lam, tau, tau2):
    """(S1)-(S4): everybody who blocks descent and has not been moved for it yet at this lambda. In place: S.move.

    Rates and distances are taken relative to lambda and to the box. Returns the number of moves.
    """
    n = S.side.shape[0]
    for i in range(n):
        S.move[i] = STAY
    count = 0
    for k in range(elbow.shape[0]):
        i = elbow[k]
        width = S.upper[i] - S.lower[i]
        speed = abs(d[k])
        room = S.beta[i] - S.lower[i] if d[k] > 0.0 else S.upper[i] - S.beta[i]
        blocks = speed * lam > tau and room < tau * width and room < tau2 * lam * speed
        if blocks and S.switched[i] == 0:
            S.move[i] = LOW if d[k] > 0.0 else UP
            count += 1
    for i in range(n):
        side = S.side[i]
        if side == ELBOW or S.switched[i] != 0:
            continue
        toward = rate[i] if side == LOW else -rate[i]
        room = -S.resid[i] if side == LOW else S.resid[i]
        if toward > tau and room < tau * lam and room < tau2 * lam * toward:
            S.move[i] = ELBOW
            count += 1
    for i in range(n):
        if S.move[i] != STAY:
            S.switched[i] = 1
    return count


@jit
def arrivals(S, elbow, lam, near, touch):
    """(40)-(43) after a step that made way: values at a box leave, residuals at zero enter. In place: S.move."""
    count = 0
    for i in range(S.side.shape[0]):
        S.move[i] = STAY
        r = S.resid[i]
        if (S.side[i] == UP and r < near * lam) or (S.side[i] == LOW and r > -near * lam):
            S.move[i] = ELBOW
            count += 1
    for k in range(elbow.shape[0]):
        i = elbow[k]
        slack = touch * (S.upper[i] - S.lower[i])
        if S.beta[i] <= S.lower[i] + slack:
            S.move[i] = LOW
            count += 1
        elif S.beta[i] >= S.upper[i] - slack:
            S.move[i] = UP
            count += 1
    return count


@jit
def blockers(S, elbow, d, rate, limit, least_rate, closed):
    """Those whose own step (47)-(49) is within `limit`; elbow values only for a closed-form step. In place: S.move."""
    count = 0
    for i in range(S.side.shape[0]):
        S.move[i] = STAY
        toward = rate[i] if S.side[i] == LOW else -rate[i]
        if S.side[i] != ELBOW and toward > least_rate and -S.resid[i] / rate[i] <= limit:
            S.move[i] = ELBOW
            count += 1
    if not closed:
        return count
    for k in range(elbow.shape[0]):
        i = elbow[k]
        if abs(d[k]) > STILL and (S.beta[i] - (S.lower[i] if d[k] > 0.0 else S.upper[i])) / d[k] <= limit:
            S.move[i] = LOW if d[k] > 0.0 else UP
            count += 1
    return count


@jit
def keep_first(S):
    """Of all moves only that of the least index: single pivots of least index do not cycle. In place: S.move."""
    found = False
    for i in range(S.side.shape[0]):
        if S.move[i] != STAY:
            if found:
                S.move[i] = STAY
            found = True


@jit
def carry_out(S, rows, slot, elbow, kept):
    """(44)-(46): the moves of S.move, with exact bounds and `fixed`. In place: S, `kept` (the elbow after). Returns its size.

    Those who stay keep their order; who enters comes behind, by index.
    """
    n = S.side.shape[0]
    for i in range(n):
        side = S.move[i]
        if side == STAY:
            continue
        if side == ELBOW:
            factor = -S.beta[i]
        else:
            S.beta[i] = S.upper[i] if side == UP else S.lower[i]
            factor = S.beta[i]
        if factor != 0.0:
            row = rows[slot[i]]
            for j in range(n):
                S.fixed[j] += factor * row[j]
    m = 0
    for k in range(elbow.shape[0]):
        if S.move[elbow[k]] == STAY:
            kept[m] = elbow[k]
            m += 1
    for i in range(n):
        if S.move[i] != STAY:
            S.side[i] = S.move[i]
            if S.move[i] == ELBOW:
                kept[m] = i
                m += 1
    return m


@jit
def violation(S, lam):
    """The largest violation of (56)."""
    worst = 0.0
    for i in range(S.side.shape[0]):
        r = S.resid[i]
        side = S.side[i]
        worst = max(worst, abs(r) if side == ELBOW else (r if side == LOW else -r))
    return worst / lam


@jit
def relative_gap(S, beta, resid, bias, lam):
    """The relative duality gap of `beta`, exact for any point of the boxes, whose residuals at `lam` and `bias` are given."""
    total = 0.0
    gap = 0.0
    primal = 0.0
    for i in range(beta.shape[0]):
        b = beta[i]
        r = resid[i]
        hinge = (S.upper[i] if r > 0.0 else S.lower[i]) * r
        total += b
        gap += hinge - b * r
        primal += 0.5 * b * (lam * S.c[i] - r - bias) + hinge
    gap += abs(bias * total)  # what an unbalanced beta costs
    return gap / max(abs(primal), 1e-300)
