"""How the fast tracker takes a point for its start, and how it corrects one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.path import crash_jit
from svmcore.path import elbow_jit as ej
from svmcore.problem.measures import middle

if TYPE_CHECKING:
    from svmcore.path.tracker import Tracker

NEAR_BOX = 1e-11
"""A value that is closer to a bound than this share of its box is on the bound. Spread ties may have left so much."""
BALANCED = 1e-13
"""A sum of values is zero but for rounding if it is below this share of the sum of their sizes."""
STOPS = 5
"""A Newton step is corrected at most so many times for values that stop at their box."""
ROUNDING = 1e-14
"""A shift below this share of the size of the linear term is rounding."""


def new_state(n: int, lower: FloatArray, upper: FloatArray, capacity: int) -> ej.State:
    """An empty state with every point at the lower end of its box."""
    return ej.State(
        beta=lower.copy(),
        resid=np.zeros(n),
        base=np.zeros(n),
        lower=lower.copy(),
        upper=upper.copy(),
        side=np.zeros(n, dtype=np.int8),
        elbow=np.zeros(capacity, dtype=np.int64),
        factor=np.zeros((capacity, capacity)),  # tiles read what is above its diagonal
        half_slope=np.zeros(capacity),
        half_one=np.zeros(capacity),
        then=np.zeros(n),
        image=np.zeros(n),
        moved=np.zeros(n, dtype=np.int64),
        change=np.zeros(n),
        num=np.array([0.0, 0.0, 0.0, 0.37, 0.0]),
        cnt=np.zeros(16, dtype=np.int64),
    )


def seat(tracker: Tracker, lam: float) -> None:
    """Move beta into its boxes, and find elbow and bias for it. Everything that contradicts becomes shift."""
    tracker.engine = tracker.factor
    state = tracker.state
    crash_jit.seat(state, tracker.lower, tracker.upper, NEAR_BOX)
    if tracker.equality:
        _balance(state, tracker.lower, tracker.upper)
    state.num[ej.NOW] = lam
    state.num[ej.T_REFRESH] = lam
    state.cnt[ej.SINCE] = 0
    state.cnt[ej.ZERO_RUN] = 0
    inside = ((state.beta > state.lower) & (state.beta < state.upper)).nonzero()[0]
    while inside.size + 4 > tracker.capacity:
        tracker.grow()
        state = tracker.state
    if not tracker.store.whole and inside.size:
        for start in range(0, inside.size, 256):
            tracker.store.fetch(inside[start : start + 256], inside)
    tracker.set_slope(tracker.problem.slope)
    crash_jit.crash(tracker.setting, state, tracker.work)
    state.cnt[ej.AGE] = ej.OLD
    resid = tracker.problem.term(lam) - tracker._product()
    state.num[ej.BIAS] = best_bias(resid, state.side, tracker.elbow) if tracker.equality else 0.0
    tracker._measure(lam)
    if not tracker.factor.factorise():
        ej.restart_rhs(tracker.setting, state)


def best_bias(resid: FloatArray, side: Any, elbow: IntArray) -> float:
    """The bias that suits the elbow. Without an elbow it is the middle of what the sides allow."""
    on, low, up = (resid[part] for part in (elbow, side == ej.LOW, side == ej.UP))
    return middle(on.size, on.sum(), float(low.max(initial=-np.inf)), float(up.min(initial=np.inf)))


def _balance(state: ej.State, lower: FloatArray, upper: FloatArray) -> None:
    """Restore sum beta = 0 after clipping. Values nearest to the middle of their boxes change first."""
    excess = float(state.beta.sum())
    if abs(excess) <= BALANCED * float(np.abs(state.beta).sum()):
        return
    for i in np.argsort(np.abs(state.beta - 0.5 * (lower + upper))):
        value = min(max(state.beta[i] - excess, lower[i]), upper[i])
        excess -= state.beta[i] - value
        state.beta[i] = value
        if excess == 0.0:
            break


def newton(tracker: Tracker) -> None:
    """One Newton step on the elbow: K_EE step + change of bias = resid_E, sum of beta = 0. In place: beta, bias.

    A value that would leave its box stops at its bound. The others take the step that is right with that.
    """
    state = tracker.state
    index = tracker.elbow
    now, low, up = state.beta[index], tracker.lower[index], tracker.upper[index]
    kept = np.ones((int(tracker.equality), index.size))  # the step must keep the sum, and values that stop
    goal = np.array([-float(state.beta.sum())] if tracker.equality else [])
    free = tracker.engine.solve(state.resid[index])
    answers = np.array([tracker.engine.solve(b) for b in kept]).reshape(kept.shape)
    for _ in range(STOPS):
        matrix, wanted = answers @ kept.T, goal - kept @ free
        if not math.isfinite(matrix.sum() + wanted.sum()):  # the factor has lost all digits
            return
        try:
            one = matrix.size == 1 and matrix[0, 0] != 0.0
            force = wanted / matrix[0] if one else np.linalg.lstsq(matrix, wanted, rcond=None)[0]
        except np.linalg.LinAlgError:  # the elbow is singular to rounding, so no better step is known
            return
        step = free + force @ answers
        new = np.minimum(np.maximum(now + step, low), up)
        over = (np.abs(new - now - step) > ROUNDING * (up - low)).nonzero()[0]
        if over.size == 0:
            break
        kept = np.concatenate([kept, np.eye(index.size)[over]])
        goal = np.concatenate([goal, (new - now)[over]])
        answers = np.concatenate([answers, [tracker.engine.solve(b) for b in kept[answers.shape[0] :]]])
    state.beta[index] = new
    if tracker.equality:
        state.num[ej.BIAS] -= float(force[0]) - tracker.bump * goal[0]
