"""A judge of answers that shares no code with the package: numpy, float64, the problem's own words.

It is given the data, the options and the answer (one signed coefficient per point and the intercept), and computes primal
and dual values, the violation of the optimality conditions and the feasibility of that very point. Its rule: whoever says
"converged" without a warning has a violation within the tolerance and a relative gap of at most one per cent, both up to
rounding at the scale of the problem; a point outside its box, or whose sum is not zero, is wrong whatever it says.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

EPS = float(np.finfo(np.float64).eps)
GAP = 0.01
ROUNDINGS = 64.0  # an inner product, its error in units of the largest term's rounding
SUM = 1e-9  # of sum |coef|, by which the equality row may be missed


class Case(NamedTuple):
    """A problem as the user states it. `costs` are C times all weights, one per point."""

    K: np.ndarray
    y: np.ndarray  # +1 and -1, or the targets
    costs: np.ndarray
    epsilon: float | None  # None: classification
    squared: bool
    equality: bool
    offset: float = 0.0  # tau^2 of an embedded intercept, added to K


class Verdict(NamedTuple):
    """What the judge measured. `outside` is the distance from the box, `missed` that of the sum from zero."""

    primal: float
    dual: float
    violation: float
    outside: float
    missed: float
    rounding: float

    @property
    def gap(self) -> float:
        return self.primal - self.dual


def kernel(name: str, X: Any, Z: Any, gamma: float, coef0: float, degree: int) -> np.ndarray:
    X, Z = (np.asarray(A.toarray() if hasattr(A, "toarray") else A, dtype=np.float64) for A in (X, Z))
    if name == "laplacian":
        return np.exp(-gamma * np.abs(X[:, None, :] - Z[None, :, :]).sum(axis=2))
    if name == "rbf":
        return np.exp(-gamma * ((X[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2))
    product = X @ Z.T
    if name == "linear":
        return product
    return (gamma * product + coef0) ** degree if name == "poly" else np.tanh(gamma * product + coef0)


def judge(case: Case, coef: np.ndarray, intercept: float) -> Verdict:
    """Measure a point. Slack of points of infinite cost is charged by scaling the machine until there is none."""
    with np.errstate(all="ignore"):
        return _judge(case, coef, intercept)


def _judge(case: Case, coef: np.ndarray, intercept: float) -> Verdict:
    n = len(case.y)
    K = case.K + case.offset
    Kc = K @ coef
    f = Kc + (intercept if case.equality else intercept - case.offset * float(coef.sum()))
    hard = np.isinf(case.costs)
    ridge = np.where(hard | (case.costs == 0), 0.0, 1.0 / np.where(case.costs > 0, case.costs, 1.0)) * case.squared
    upper = np.where(case.costs > 0, np.inf, 0.0) if case.squared else case.costs
    size = float(np.abs(coef).sum())
    if case.epsilon is None:
        gradients, variables, signs = [case.y * Kc + ridge * coef * case.y - 1.0], [case.y * coef], [case.y]
        loss, linear = np.maximum(0.0, 1.0 - case.y * f), float(np.sum(case.y * coef))
    else:
        up, down = np.maximum(coef, 0.0), np.maximum(-coef, 0.0)
        gradients = [Kc + ridge * up + case.epsilon - case.y, -Kc + ridge * down + case.epsilon + case.y]
        variables, signs = [up, down], [np.ones(n), -np.ones(n)]
        loss = np.maximum(0.0, np.abs(case.y - f) - case.epsilon)
        linear = float(case.y @ coef) - case.epsilon * size
    quadratic = float(coef @ Kc)
    dual = linear - 0.5 * quadratic - 0.5 * float(ridge @ coef**2)
    soft = np.where(hard, 0.0, case.costs)
    primal = 0.5 * quadratic + float(soft @ (0.5 * loss**2 if case.squared else loss))
    if hard.any():
        worst = float(loss[hard].max())
        if case.epsilon is None:
            primal = primal / (1.0 - worst) ** 2 if worst < 1.0 else np.inf
        else:
            primal += worst * (size + 1.0)
    a, s, g = np.concatenate(variables), np.concatenate(signs), np.concatenate(gradients)
    top = np.tile(upper, len(variables))
    rising = np.where((s > 0) & (a < top) | (s < 0) & (a > 0), -s * g, -np.inf).max()
    falling = np.where((s < 0) & (a < top) | (s > 0) & (a > 0), -s * g, np.inf).min()
    if case.equality:
        violation = max(0.0, rising - falling) if np.isfinite([rising, falling]).all() else 0.0
    else:
        violation = max(0.0, rising, -falling)
    outside = float(np.maximum(np.maximum(-a, a - top), 0.0).max())
    largest = float(np.abs(K).max(initial=0.0))
    shift = float(np.abs(case.y).max()) if case.epsilon is not None else 1.0
    rounding = ROUNDINGS * EPS * (size * largest + float(np.abs(ridge * coef).max(initial=0.0)) + shift)
    return Verdict(primal, dual, violation, outside, abs(float(coef.sum())) * case.equality, rounding)


def _slack(case: Case, found: Verdict, size: float) -> float:
    """What decision values that are wrong by r = `rounding` do to the gap.

    A loss l costs C l, or C l^2 / 2, which grows by C (l r + r^2 / 2); sum C l is at most the root of 2 primal sum C.
    """
    r, costs = found.rounding, float(np.where(np.isfinite(case.costs), case.costs, 0.0).sum())
    losses = float(np.sqrt(2.0 * abs(found.primal) * costs)) + 0.5 * r * costs if case.squared else costs
    return r * (1.0 + size + losses)


def objection(case: Case, coef: np.ndarray, intercept: float, *, tol: float, certain: bool) -> str | None:
    """What is wrong with an answer, or None. `certain`: it said that it has converged, and did not warn."""
    if not (np.isfinite(coef).all() and np.isfinite(intercept)):
        return "not finite"
    found = judge(case, coef, intercept)
    with np.errstate(over="ignore"):
        size = float(np.abs(coef).sum())
    if found.outside > 0.0:
        return f"outside the box by {found.outside:.2e}"
    if found.missed > SUM * size:
        return f"sum of coefficients {found.missed:.2e}, of sizes {size:.2e}"
    if not certain:
        return None
    if found.violation > tol + found.rounding:
        return (
            f"claims tol {tol:g}, but violates the conditions by {found.violation:.2e} (rounding {found.rounding:.1e})"
        )
    if not found.gap <= GAP * abs(found.primal) + _slack(case, found, size):
        return f"relative gap {found.gap / max(abs(found.primal), 1e-300):.2e} without a warning (primal {found.primal:.6e})"
    return None
