"""Measures, formulations and certificates against the textbook problem; certificates of other people's answers."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from strategies import Case, cases

import svmcore
from svmcore._types import DualQP
from svmcore.base.threads import one_blas_thread
from svmcore.problem import formulations, measures

COSTS = st.sampled_from([0.1, 1.0, 10.0])


@st.composite
def dual_points(draw: st.DrawFn) -> tuple[DualQP, np.ndarray, np.ndarray]:
    """Any small sign-free problem with a point in its boxes, often on a bound, and a residual on a grid full of ties."""
    n = draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    high = rng.choice([0.5, 1.0, 2.0, np.inf], n)
    positive = rng.random(n) < 0.5
    diag = rng.choice([0.0, 0.0, 0.5, 2.0], n)
    lower, upper = np.where(positive, 0.0, -high), np.where(positive, high, 0.0)
    share = rng.choice([0.0, 0.5, 0.25, 1.0], n)
    size = share * np.minimum(high, 1.5)
    beta = np.where(positive, size, -size)
    v = rng.integers(-6, 7, n) / rng.choice([1.0, 2.0, 3.0])
    c = rng.normal(size=n)
    return DualQP(c, lower, upper, diag, np.arange(n), draw(st.booleans())), beta, v


def closed(qp: DualQP, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    running = np.abs(beta).max() + 1.0
    lower, upper = qp.lower.copy(), qp.upper.copy()
    for t in range(len(beta)):
        if qp.diag[t] == 0:
            lower[t] = -running if np.isinf(lower[t]) else lower[t]
            upper[t] = running if np.isinf(upper[t]) else upper[t]
    # an infinite box that the diagonal closes ends, for a search, where nothing more can be won
    return np.where(np.isinf(lower), -1e6, lower), np.where(np.isinf(upper), 1e6, upper)


@given(dual_points(), st.floats(-5.0, 5.0))
def test_gap_is_the_sum_of_fenchel_young_gaps(problem, b):
    qp, beta, v = problem
    lower, upper = closed(qp, beta)
    exact = oracle.fenchel_gap(beta, v, qp.diag, lower, upper, b)
    assert measures.gap(qp, beta, v, b) == pytest.approx(exact, rel=1e-12, abs=1e-12)
    assert measures.gap(qp, beta, v, b) >= 0.0


@given(dual_points())
def test_violation_and_bias(problem):
    qp, beta, v = problem
    rising = [v[t] for t in range(len(v)) if beta[t] < qp.upper[t]]
    falling = [v[t] for t in range(len(v)) if beta[t] > qp.lower[t]]
    free = [v[t] for t in range(len(v)) if qp.lower[t] < beta[t] < qp.upper[t]]
    top, bottom = max(rising, default=-np.inf), min(falling, default=np.inf)
    assert measures.extremes(qp, beta, v) == (top, bottom)
    if not qp.equality:
        assert measures.violation(qp, beta, v) == max(0.0, top, -bottom)
        assert measures.bias(qp, beta, v) == 0.0
        return
    assert measures.violation(qp, beta, v) == max(0.0, top - bottom)
    found = measures.bias(qp, beta, v)
    if free:
        assert found == pytest.approx(np.mean(free), rel=1e-14, abs=1e-14)
    elif np.isfinite(top) and np.isfinite(bottom):
        assert found == pytest.approx(0.5 * (top + bottom), rel=1e-14, abs=1e-14)
    else:
        assert found in (top, bottom)


def test_without_variables_everything_is_zero():
    empty, no = np.empty(0), np.empty(0, np.int64)
    qp = DualQP(empty, empty, empty, empty, no, True)
    assert measures.violation(qp, empty, empty) == 0.0
    assert measures.best_bias(qp, empty, empty) == 0.0
    assert measures.bias(qp, empty, empty) == 0.0
    assert measures.gap(qp, empty, empty, 1.0) == 0.0


@given(cases(costs=st.sampled_from([0.1, 10.0, np.inf])), st.integers(0, 2**20))
def test_a_form_is_the_textbook_problem_without_its_signs(case, seed):
    dual = case.dual()
    squared = "squared" in case.options["loss"]
    if case.regression:
        loss = "squared_epsilon_insensitive" if squared else "epsilon_insensitive"
        qp = formulations.svr(dual.y, dual.costs, dual.epsilon, loss, dual.equality)
    else:
        qp = formulations.svc(dual.y, dual.costs, "squared_hinge" if squared else "hinge", dual.equality)
    rng = np.random.default_rng(seed)
    size = rng.random(len(qp.c)) * np.minimum(np.maximum(qp.upper, -qp.lower), 3.0)
    beta = np.where(qp.upper > 0, size, -size)
    kept = dual.costs > 0
    full = np.zeros(len(dual.p))
    full[np.tile(kept, 2) if case.regression else kept] = np.abs(beta)
    product = dual.K[:, qp.point] @ beta
    v = measures.residual(qp, beta, product)
    close = {"rel": 1e-11, "abs": 1e3 * oracle.EPS * (1.0 + np.abs(dual.K).max() * size.sum() ** 2)}
    assert v == pytest.approx(oracle.residual(qp.c, dual.K, qp.diag, qp.point, beta), **close)
    assert measures.objective(qp, beta, v) == pytest.approx(oracle.objective(dual, full), **close)
    assert measures.violation(qp, beta, v) == pytest.approx(oracle.violation(dual, full), **close)
    assert formulations.to_coef(qp, beta, len(dual.y)) == pytest.approx(
        np.bincount(qp.point, beta, len(dual.y)), rel=1e-14, abs=1e-14
    )


@given(cases(costs=COSTS), st.integers(0, 2**20))
def test_a_warm_start_is_made_feasible(case, seed):
    dual = case.dual()
    qp = formulations.svc(np.where(dual.y > 0, 1.0, -1.0), dual.costs, "hinge", dual.equality)
    coef = 5.0 * np.random.default_rng(seed).normal(size=len(dual.y))
    beta = formulations.feasible_start(qp, formulations.to_beta(qp, coef))
    assert np.all(beta >= qp.lower)
    assert np.all(beta <= qp.upper)
    if dual.equality:
        assert abs(beta.sum()) <= 8.0 * oracle.EPS * np.abs(beta).sum()
    assert np.all(beta * coef[qp.point] >= 0.0)


def test_regression_coefficients_go_to_the_variable_of_their_sign():
    qp = formulations.svr(np.zeros(3), np.array([1.0, 0.0, 1.0]), 0.1, "epsilon_insensitive", True)
    assert formulations.to_beta(qp, np.array([0.5, 9.0, -0.25])).tolist() == [0.5, 0.0, 0.0, -0.25]


# ---------------------------------------------------------------- certificates of anybody's answer


def keywords(case: Case) -> dict[str, object]:
    return {key: value for key, value in case.options.items() if key != "time_limit"}


@given(cases(costs=COSTS), st.integers(0, 2**20), st.booleans())
def test_a_certificate_of_any_coefficients(case, seed, with_intercept):
    dual = case.dual()
    rng = np.random.default_rng(seed)
    coef = rng.normal(size=len(dual.y)) * (dual.costs > 0)
    if not case.regression:
        coef = np.abs(coef) * dual.y
    limit = np.where(np.isinf(dual.upper[: len(coef)]), np.inf, dual.costs)
    coef = np.clip(coef, -limit, limit)
    intercept = float(rng.normal()) if with_intercept else None
    found = svmcore.certificate(case.X, case.y, coef if case.regression else np.abs(coef), intercept, **keywords(case))
    a = dual.variables(coef)
    slack = 64.0 * (oracle.value_rounding(dual, coef) + dual.costs.sum() * oracle.rounding(dual, coef))
    assert found.objective == pytest.approx(oracle.objective(dual, a), rel=1e-11, abs=slack)
    assert found.primal_objective == pytest.approx(oracle.primal(dual, coef, found.intercept), rel=1e-11, abs=slack)
    assert found.gap == pytest.approx(found.primal_objective + found.objective, rel=1e-11, abs=slack)
    assert found.relative_gap == pytest.approx(found.gap / max(abs(found.primal_objective), 1e-300), rel=1e-12)
    assert found.kkt_violation == pytest.approx(oracle.violation(dual, a), rel=1e-11, abs=slack)
    assert found.infeasibility == pytest.approx(abs(coef.sum()) if dual.equality else 0.0, abs=1e-12)
    if with_intercept:
        assert found.intercept == intercept


def test_a_certificate_names_what_is_infeasible():
    X, y = [[0.0], [2.0]], [-1, 1]
    assert svmcore.certificate(X, y, [1.5, 1.5], 0.0, C=1.0, kernel="linear").infeasibility == 0.5
    assert svmcore.certificate(X, y, [-0.25, 0.0], 0.0, C=1.0, kernel="linear").infeasibility == 0.25
    assert svmcore.certificate(X, y, [0.5, 0.25], 0.0, C=1.0, kernel="linear").infeasibility == 0.25


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
def test_a_certificate_of_scikit_learn(tol):
    svm = pytest.importorskip("sklearn.svm")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = np.sign(X[:, 0] + 0.5 * rng.normal(size=80))
    machine = svm.SVC(C=5.0, gamma=0.5, tol=tol).fit(X, y)
    alpha = np.zeros(80)
    alpha[machine.support_] = np.abs(machine.dual_coef_[0])
    b = float(machine.intercept_[0])
    dual = Case(X, y, {"C": 5.0, "kernel": "rbf", "gamma": 0.5}).dual()
    exact = oracle.primal(dual, alpha * y, b) + oracle.objective(dual, alpha)
    assert svmcore.duality_gap(X, y, alpha, b, 5.0, gamma=0.5) == pytest.approx(exact, rel=1e-9, abs=1e-11)
    violation = svmcore.kkt_violation(X, y, alpha, 5.0, gamma=0.5)
    assert violation == pytest.approx(oracle.violation(dual, alpha), rel=1e-9, abs=1e-11)
    # LIBSVM keeps its kernel in single precision
    assert violation <= tol + 2.0**-22 * alpha.sum()
    regression = svm.SVR(C=5.0, gamma=0.5, epsilon=0.1, tol=tol).fit(X, X[:, 1])
    coef = np.zeros(80)
    coef[regression.support_] = regression.dual_coef_[0]
    gap = svmcore.duality_gap(X, X[:, 1], coef, float(regression.intercept_[0]), 5.0, epsilon=0.1, gamma=0.5)
    assert 0.0 <= gap <= 2.0 * tol * np.abs(coef).sum() + 5.0 * 80 * tol


def test_a_certificate_refuses_what_defines_no_problem():
    X, y = [[0.0], [2.0]], [-1, 1]
    with pytest.raises(svmcore.InputError, match=r"^certificate has no parameter 'tol'; train_svc, train_svr, "):
        svmcore.certificate(X, y, [0.5, 0.5], 0.0, tol=1e-3)
    refused(r"alpha has shape \(3,\) for 2 samples", svmcore.duality_gap, X, y, [0.5, 0.5, 0.5], 0.0)
    refused("intercept='a' is not a number", svmcore.duality_gap, X, y, [0.5, 0.5], "a")
    refused("n_threads=0 is out of range", svmcore.certificate, X, y, [0.5, 0.5], 0.0, n_threads=0)


def test_huge_twins_do_not_hide_what_the_sum_misses():
    """Two variables of a point take 1e16 from each other; what is left of them is on the equality row."""
    qp = formulations.svr(np.array([1.0, 2.0, 3.0]), np.full(3, np.inf), 0.1, "epsilon_insensitive", True)
    beta = np.array([1e16 + 4.0, 0.0, 1e16, -1e16, -2.0, -1e16])
    found = formulations.balanced(qp, beta)
    coef = formulations.to_coef(qp, found, 3)
    assert np.abs(coef).sum() < 10.0
    assert coef.sum() == 0.0
    assert np.count_nonzero(found) == np.count_nonzero(coef)
    lone = np.array([2.0, 0.0, 0.0, 0.0, -2.0, 0.0])
    assert formulations.balanced(qp, lone) is lone


def test_what_rounding_of_a_huge_sum_leaves_is_put_right_too():
    qp = formulations.svc(np.array([1.0, -1.0, 1.0, 1.0]), np.full(4, np.inf), "hinge", True)
    found = formulations.balanced(qp, np.array([6.8e13, 0.0, 7.67e14, 90.1]))
    assert found.sum() == 0.0


# ---------------------------------------------------------------- what rounding has done to a point


@given(st.integers(0, 2**20), st.sampled_from([0.0, 1e-12, 1e-3]), st.sampled_from([0.0, 1.5]))
def test_a_point_is_put_right_where_there_is_most_room(seed, error, total):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 12))
    upper = rng.choice([1.0, 2.0, 5.0], n)
    qp = DualQP(np.zeros(n), -rng.choice([0.0, 1.0], n), upper, np.zeros(n), np.arange(n), True, total)
    beta = np.clip(rng.normal(size=n), qp.lower, qp.upper)
    inside = int(rng.integers(n))
    beta[inside] = 0.5 * (qp.lower[inside] + qp.upper[inside])
    qp = qp._replace(total=float(beta.sum()) if total == 0.0 else total)
    given = beta.copy()
    given[inside] += error
    found = formulations.balanced(qp, given)
    assert abs(found.sum() - qp.total) <= 1e-12 * max(1.0, np.abs(found).sum())
    assert (found >= qp.lower).all()
    assert (found <= qp.upper).all()
    if total == 0.0:  # room for what is missing is enough in one variable: the one with most
        room = np.minimum(given - qp.lower, qp.upper - given)
        moved = np.flatnonzero(found != given)
        assert len(moved) == (abs(given.sum() - qp.total) > 1e-13 * np.linalg.norm(given))
        assert (room[moved] == room.max()).all()


def test_the_two_variables_of_a_point_take_nothing_from_each_other():
    qp = formulations.svr(np.array([1.0, -1.0, 0.5]), np.ones(3), 0.1, "epsilon_insensitive", False)
    beta = np.array([0.75, 0.0, 0.5, -0.25, -0.5, 0.0])
    assert formulations.balanced(qp, beta).tolist() == [0.5, 0.0, 0.5, 0.0, -0.5, 0.0]
    assert formulations.balanced(qp, np.array([2.0, 0.0, 0.5, 0.0, -3.0, 0.0])).tolist() == [
        1.0,
        0.0,
        0.5,
        0.0,
        -1.0,
        0.0,
    ]
    fine = np.array([0.5, 0.0, 0.5, 0.0, -0.5, 0.0])
    assert formulations.balanced(qp, fine) is fine


def test_certificates_have_the_same_bits_on_any_number_of_threads():
    """BLAS shares out sums of more than ten thousand numbers among its threads."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, alpha = rng.normal(size=(21_000, 2)), rng.random(21_000)
        y = np.where(X[:, 0] + rng.normal(size=len(X)) > 0, 1, -1)
        words = {"kernel": "linear", "C": 1.0}
        outside = svmcore.certificate(X, y, alpha, 0.1, **words)
        with one_blas_thread:
            assert svmcore.certificate(X, y, alpha, 0.1, **words) == outside
