"""Equality rows ``sum(beta) = total`` with a total other than zero, as one-class machines have: every measure and solver."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refused

from svmcore import solvers
from svmcore._control import Control
from svmcore._types import DualQP, FloatArray, Kernel, KernelKind, Status
from svmcore.base import highs
from svmcore.kernel.matrix import KernelMatrix
from svmcore.problem import formulations, measures
from svmcore.problem.certify import certificate
from svmcore.solvers._contract import SolverTask
from svmcore.train import auto
from svmcore.train.forms import Problem, svc_problem
from svmcore.train.solve import Run, _refuse_what_it_cannot, fit

ABLE = [name for name, can in solvers.capabilities().items() if can.equality and can.totals]
TOL = 1e-7


def one_class(n: int, nu: float = 0.2, seed: int = 0) -> tuple[DualQP, FloatArray]:
    """The one-class machine: c = 0, boxes [0, 1], sum nu n."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return DualQP(np.zeros(n), np.zeros(n), np.ones(n), np.zeros(n), np.arange(n), True, nu * n), X


def mixed(n: int, total: float, seed: int = 0) -> tuple[DualQP, FloatArray]:
    """Boxes around zero and away from it, diagonals, half of the points with two variables, and any total."""
    rng = np.random.default_rng(seed)
    point = np.concatenate([np.arange(n), np.arange(n // 2)])
    m = len(point)
    lower = rng.choice([-1.0, -0.25, 0.0, 0.125], m)
    upper = lower + rng.choice([0.5, 1.0, 2.0], m)
    diag = rng.choice([0.0, 0.5], m)
    return DualQP(rng.normal(size=m), lower, upper, diag, point, True, total), rng.normal(size=(n, 3))


def simplex(n: int, seed: int = 0) -> tuple[DualQP, FloatArray]:
    """The convex hull's point nearest to the origin of the feature space: no upper bounds, sum 1."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return DualQP(np.zeros(n), np.zeros(n), np.full(n, np.inf), np.zeros(n), np.arange(n), True, 1.0), X


PROBLEMS = {
    "one-class": one_class(60),
    "one-class, integral": one_class(60, nu=0.25),  # the start fills whole boxes: nobody is free
    "one-class, all": one_class(30, nu=1.0),  # one feasible point
    "mixed": mixed(40, 3.5),
    "mixed, negative": mixed(40, -2.0, seed=3),
    "simplex": simplex(50),
}
KERNELS = {
    "rbf": Kernel(int(KernelKind.RBF), 0.7, 0.0, 3, 0.0),
    "linear": Kernel(int(KernelKind.LINEAR), 1.0, 0.0, 3, 0.0),
}


def highs_objective(qp: DualQP, K: FloatArray) -> float:
    """The least objective by HiGHS, which adds 1e-7/2 |beta|^2 to it."""
    pytest.importorskip("highspy")
    H = K[np.ix_(qp.point, qp.point)] + np.diag(qp.diag)
    A = np.ones((1, len(qp.c)))
    optimum = highs.solve_qp(H, -qp.c, A, [qp.total], [qp.total], qp.lower, qp.upper, 4000)
    assert optimum.ok
    return float(0.5 * optimum.x @ H @ optimum.x - qp.c @ optimum.x)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", PROBLEMS)
@pytest.mark.parametrize("name", ABLE)
def test_solver_meets_the_total_and_the_optimum(name, case, kernel):
    qp, X = PROBLEMS[case]
    K = KernelMatrix(X, KERNELS[kernel], cache_bytes=10**7)
    start = formulations.feasible_start(qp, np.zeros(len(qp.c)))
    assert start.sum() == pytest.approx(qp.total, abs=1e-12)
    raw = solvers.load(name).run(SolverTask(qp, K, Control(time_limit=600.0, callback=None, verbose=0), TOL, start))
    assert raw.status is Status.CONVERGED
    found = certificate(qp, K, raw.beta)
    assert found.kkt_violation <= TOL
    assert found.infeasibility <= 1e-12 * max(1.0, abs(qp.total))
    gram = K.block(np.arange(K.n), np.arange(K.n))
    exact = highs_objective(qp, gram)
    assert found.objective <= exact + 1e-9
    assert found.objective >= exact - 1e-5  # what HiGHS's ridge and tolerances cost it
    width = np.minimum(qp.upper - qp.lower, np.abs(raw.beta).max() + 1.0)  # as far as the losses are looked at
    assert -1e-12 <= found.gap <= TOL * width.sum()


@given(st.integers(2, 25), st.floats(-3.0, 3.0), st.integers(0, 1000))
def test_gap_is_primal_minus_dual(n, total, seed):
    """Against the primal written down: 1/2 |w|^2 + the losses + b total."""
    qp, X = mixed(n, total, seed)
    K = KernelMatrix(X, KERNELS["rbf"], cache_bytes=10**6)
    gram = K.block(np.arange(n), np.arange(n))
    beta = formulations.feasible_start(qp, np.random.default_rng(seed).normal(size=len(qp.c)))
    v = oracle.residual(qp.c, gram, qp.diag, qp.point, beta)
    product = gram[np.ix_(qp.point, qp.point)] @ beta
    for b in (-1.0, 0.0, 0.5, measures.best_bias(qp, beta, v)):
        u = qp.c - product - b
        z = [np.array([low, high]) for low, high in zip(qp.lower, qp.upper, strict=True)]
        loss = 0.0
        for t, ends in enumerate(z):
            inside = [np.clip(u[t] / qp.diag[t], *ends)] if qp.diag[t] > 0 else []
            loss += max(u[t] * e - 0.5 * qp.diag[t] * e * e for e in [*ends, *inside])
        primal = 0.5 * beta @ product + loss + b * qp.total
        found = certificate(qp, K, beta, b)
        assert found.primal_objective == pytest.approx(primal, rel=1e-9, abs=1e-9)
        assert found.gap == pytest.approx(primal + found.objective, rel=1e-9, abs=1e-9)
        assert found.infeasibility == pytest.approx(
            max(np.maximum(qp.lower - beta, beta - qp.upper).max(), abs(beta.sum() - total), 0.0), abs=1e-12
        )


@given(st.integers(2, 25), st.floats(-3.0, 3.0), st.integers(0, 1000))
def test_best_bias_beats_a_grid(n, total, seed):
    qp, _ = mixed(n, 0.0, seed)
    total = float(np.clip(total, qp.lower.sum(), qp.upper.sum()))
    qp = qp._replace(total=total)
    rng = np.random.default_rng(seed)
    beta = formulations.feasible_start(qp, rng.normal(size=len(qp.c)))
    v = rng.normal(size=len(beta))
    grid = np.linspace(-6.0, 6.0, 601)
    least = min(measures.gap(qp, beta, v, float(b)) for b in grid)
    assert measures.gap(qp, beta, v, measures.best_bias(qp, beta, v)) <= least + 1e-12 * (1.0 + abs(least))


@given(st.integers(1, 25), st.floats(0.0, 1.0), st.integers(0, 1000))
@example(3, 0.0, 1)  # the least sum is zero, and zero lies outside of two boxes
def test_starts_are_feasible(n, share, seed):
    qp, _ = mixed(n, 0.0, seed)
    low, high = qp.lower.sum(), qp.upper.sum()
    qp = qp._replace(total=float(low + share * (high - low)))
    for guess in (np.zeros(len(qp.c)), 2.0 * np.random.default_rng(seed).normal(size=len(qp.c))):
        beta = formulations.feasible_start(qp, guess)
        assert (beta >= qp.lower).all()
        assert (beta <= qp.upper).all()
        assert beta.sum() == pytest.approx(qp.total, abs=1e-12)
        pushed = np.clip(beta + 1e-10, qp.lower, qp.upper)
        back = formulations.balanced(qp, pushed)
        assert (back >= qp.lower).all()
        assert (back <= qp.upper).all()
        assert back.sum() == pytest.approx(qp.total, abs=1e-13)


def with_total(problem: Problem, total: float) -> Problem:
    return problem._replace(qp=problem.qp._replace(total=total), centre=None)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize(("n", "solver"), [(60, "smo"), (60, "small"), (400, "block"), (400, "small")])
def test_driver_with_auto(n, solver, kernel, monkeypatch):
    """The whole way: chosen solver, certificate, intercept. The linear problem is not moved to its mean."""
    if solver != "small":
        monkeypatch.setattr(auto, "is_small", lambda *_, **__: False)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 4)) + 1e3
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 1e3, 1, -1)
    problem = with_total(svc_problem(X, y, 2.0, kernel=kernel, gamma=0.5), 7.25)
    assert svc_problem(X, y, 2.0, kernel="linear").centre is not None
    run = Run("auto", 1e-3, "kkt", -1, 10**8, 1, None, False, 0, {})
    solution = fit(problem, run, Control(time_limit=600.0, callback=None, verbose=0))
    assert solution.converged
    assert solution.kkt_violation <= 1e-3
    assert solution.solver == solver
    assert solution.dual_coef.sum() == pytest.approx(7.25, abs=1e-9)
    free = (solution.alpha > 0) & (solution.alpha < 2.0)
    at_margin = y[free] * solution.decision_function(X[free])
    assert free.any()
    assert np.abs(at_margin - 1.0).max() < 2e-3


def test_translation_is_refused_where_it_would_change_the_problem():
    X = np.random.default_rng(0).normal(size=(30, 2)) + 1e5
    y = np.where(X[:, 0] > np.median(X[:, 0]), 1, -1)
    assert svc_problem(X, y, 1.0, kernel="linear").centre is not None
    qp = svc_problem(X, y, 1.0, kernel="linear").qp
    assert qp.centred
    assert not qp._replace(total=1.0).centred
    assert not qp._replace(equality=False).centred


@pytest.mark.parametrize("name", [name for name in solvers.names() if name not in ABLE])
def test_others_refuse_by_name(name):
    can = solvers.capabilities()[name]
    X = np.random.default_rng(0).normal(size=(20, 2))
    loss = "hinge" if can.finite_bounds else "squared_hinge"
    problem = with_total(svc_problem(X, np.sign(X[:, 0]), 1.0, kernel="linear", loss=loss), 1.0)
    what = "sum must not be zero" if can.equality else "an intercept"
    refused(rf"{name}.*{what}", _refuse_what_it_cannot, name, problem, warm=False)


def test_auto_leaves_out_who_cannot():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 4))
    problem = svc_problem(X, np.sign(X[:, 0]), 1.0, kernel="linear")
    K = problem.kernel_matrix(cache_bytes=10**8, n_threads=1)
    assert "interior" in auto.choose(problem.qp, K, warm=False)
    assert "interior" not in auto.choose(problem.qp._replace(total=3.0), K, warm=False)


def test_facts_of_a_problem():
    qp, _ = one_class(10)
    assert not qp.open_box
    assert not qp.infinite
    assert not qp.twins
    assert qp.one_each(10)
    assert not qp.one_each(11)
    hull, _ = simplex(10)
    assert hull.infinite
    assert not hull.open_box
    assert hull._replace(equality=False).open_box
    up = np.arange(10) < 5
    hard = hull._replace(lower=np.where(up, 0.0, -np.inf), upper=np.where(up, np.inf, 0.0), total=0.0)
    assert hard.open_box
    assert not hard._replace(diag=np.ones(10)).open_box
    double, _ = mixed(10, 0.0)
    assert double.twins
    assert not double.one_each(10)
    part = double.part(np.array([1, 3]))
    assert part.point.tolist() == [1, 3]
    assert part.total == double.total
    assert double.excess(np.ones(15)) == 15.0
    assert double._replace(equality=False).excess(np.ones(15)) == 0.0
