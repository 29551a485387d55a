"""The judge: every answer is measured by the same float64 certificate, computed from the data.

No solver's own word counts. Two measures decide: the KKT violation (what LIBSVM's `tol` speaks about) and the relative
duality gap (how far the objective can be from the optimum). An answer that is off its constraints by rounding is moved
onto them before it is measured, as the gap is a bound only there; how far it was off is kept as `infeasibility`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import svmcore
from bench.problems import Problem, reference

_SNAP = 3e-7  # relative to C: a few roundings of single precision
_BALANCED = 1e-14  # relative imbalance that is rounding itself
_BALANCING = 5


class Answer(NamedTuple):
    """What a solver found: signed coefficients of the training points, or (linear) only the weight vector."""

    coef: np.ndarray | None
    intercept: float
    w: np.ndarray | None = None
    n_iter: int | None = None
    n_kernel_evals: int | None = None
    certificate_evals: int | None = None


def feasible(problem: Problem, coef: np.ndarray) -> np.ndarray:
    """The nearest coefficients that keep the constraints: bounds first, then free ones share the imbalance.

    A coefficient that misses a bound by single-precision rounding is meant to be at it.
    """
    C = problem.C if problem.loss == "hinge" else np.inf
    low = np.where(problem.y > 0, 0.0, -C) if not problem.regression else np.full(len(coef), -C)
    high = np.where(problem.y > 0, C, 0.0) if not problem.regression else np.full(len(coef), C)
    snap = _SNAP * (C if np.isfinite(C) else np.abs(coef).max(initial=1.0))
    coef = np.where(np.abs(coef) <= snap, 0.0, coef)
    coef = np.where(coef >= high - snap, high, np.where(coef <= low + snap, low, coef))
    for _ in range(_BALANCING if problem.fit_intercept else 0):
        imbalance = coef.sum()
        free = (coef > low) & (coef < high) & (coef != 0.0)
        if abs(imbalance) <= _BALANCED * np.abs(coef).sum() or not free.any():
            break
        coef[free] -= imbalance / free.sum()
        coef = np.clip(coef, low, high)
    return coef


def score(problem: Problem, answer: Answer) -> dict[str, Any]:
    """Measure an answer."""
    if answer.coef is None:
        return _score_primal(problem, answer)
    coef = np.asarray(answer.coef, dtype=np.float64)
    repaired = feasible(problem, coef)
    given = repaired if problem.regression else np.abs(repaired)
    measured = svmcore.certificate(
        problem.X, problem.y, given, answer.intercept, problem.C, epsilon=problem.epsilon, **problem.keywords()
    )
    return {
        "objective": measured.objective,
        "primal_objective": measured.primal_objective,
        "relative_gap": measured.relative_gap,
        "kkt_violation": measured.kkt_violation,
        "infeasibility": float(max(np.abs(coef - repaired).max(initial=0.0), measured.infeasibility)),
        "n_sv": int(np.count_nonzero(coef)),
        "n_free": int(np.count_nonzero((coef != 0) & (np.abs(coef) < problem.C))),
        "n_iter": answer.n_iter,
        "n_kernel_evals": answer.n_kernel_evals,
        "certificate_evals": answer.certificate_evals,
    }


def _score_primal(problem: Problem, answer: Answer) -> dict[str, Any]:
    """A weight vector has no dual: its primal objective is held against a certified lower bound of the optimum."""
    assert answer.w is not None
    assert problem.kernel == "linear"
    margin = np.maximum(1.0 - problem.y * (problem.X @ answer.w + answer.intercept), 0.0)
    loss = margin.sum() if problem.loss == "hinge" else 0.5 * np.square(margin).sum()
    primal = float(0.5 * answer.w @ answer.w + problem.C * loss)
    bound = reference(problem)
    return {
        "objective": None,
        "primal_objective": primal,
        "relative_gap": (primal - bound) / max(abs(primal), 1e-300),
        "kkt_violation": None,
        "infeasibility": 0.0,
        "n_sv": None,
        "n_free": None,
        "n_iter": answer.n_iter,
        "n_kernel_evals": None,
    }


def gap_target(problem: Problem, tol: float) -> float:
    """The certified relative gap at which solvers are compared, fixed in advance: about what `tol` means at this C."""
    return tol if problem.C >= 10 else tol / 10


def meets(measured: dict[str, Any], tol: float, gap: float) -> bool:
    """Whether an answer keeps the tolerance it was asked for (1 % of grace for rounding in the last check)."""
    violation = measured["kkt_violation"]
    if violation is None:
        return bool(measured["relative_gap"] <= gap)
    return bool(violation <= 1.01 * tol)
