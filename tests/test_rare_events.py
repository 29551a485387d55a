"""What seldom happens in a run, made to happen: rows that are not at hand, unbounded local problems, 16-bit sparse tiles."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import Case
from warned import quiet

import svmcore
from svmcore._types import Status

ABLE = [name for name, can in sorted(svmcore.solvers().items()) if can.callable_kernel]


def polynomial(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return (0.5 * A @ B.T + 1.0) ** 2


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("C", [0.5, np.inf])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("solver", ABLE)
def test_rows_of_a_python_kernel_are_supplied_when_they_are_asked_for(solver, loss, C, warm):
    """With next to no memory no row stays: a step finds one missing wherever it may ask for one."""
    can = svmcore.solvers()[solver]
    infinite = loss == "squared_hinge" or np.isinf(C)
    if (
        (infinite and not can.infinite_bounds)
        or (not infinite and not can.finite_bounds)
        or (warm and not can.warm_start)
    ):
        pytest.skip(f"{solver} does not do this")
    rng = np.random.default_rng(3)
    X = rng.normal(size=(24, 2))
    y = np.where(X[:, 0] + 0.4 * X[:, 1] ** 2 > 0.2, 1.0, -1.0)
    X[:, 0] += 0.3 * y
    case = Case(X, y, {"C": C, "kernel": polynomial, "loss": loss, "fit_intercept": can.equality})
    best = case.fit(solver="smo", tol=1e-9)
    start = {"alpha0": 0.7 * best.alpha} if warm else {}
    found = case.fit(solver=solver, tol=1e-6, cache_mb=1e-6, **start)
    assert found.solver == solver
    assert found.status is Status.CONVERGED
    assert found.kkt_violation <= 1e-6
    assert abs(found.objective - best.objective) <= abs(found.gap) + abs(best.gap) + 1e-9 * abs(best.objective)


@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize(
    "solver",
    [
        pytest.param("chunking", marks=pytest.mark.compiled),  # tens of thousands of small steps, as in the next one
        pytest.param("decomposition", marks=pytest.mark.compiled),
        "simple",
        "rosen",
        "adatron",
        "block",
        "smo",
    ],
)
def test_a_hard_margin_that_nothing_separates_has_no_bound(solver, equality):
    can = svmcore.solvers()[solver]
    if not can.infinite_bounds or not (can.equality if equality else can.no_equality):
        pytest.skip(f"{solver} does not do this")
    X = np.array([[0.0], [2.0], [1.0], [1.0]])
    with quiet(svmcore.ConvergenceWarning):
        found = svmcore.train_svc(
            X, [-1, -1, 1, -1], np.inf, kernel="linear", solver=solver, fit_intercept=equality, time_limit=600.0
        )
    assert found.status in (Status.UNBOUNDED, Status.LIMITED, Status.PRECISION)
    assert np.isfinite(found.alpha).all()
