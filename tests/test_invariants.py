"""Invariants of what the literature brought: its solvers, single points, Gaussian processes, and the published path.

Every answer is measured by the oracle, from the data alone: what it claims is true, and it is feasible.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import strategies
from engines import Engine
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Case, cases
from test_properties import Answer, agree, is_feasible

import svmcore
from svmcore._types import Status
from svmcore.base.highs import highspy
from svmcore.path.options import SOLUTIONS

SOLVERS = {
    "chunking": Engine("chunking"),
    "chunks of two": Engine("chunking", {"size": 2}),
    "chunks without HiGHS": Engine("chunking", {"size": 3, "highs_limit": 0}),
    "decomposition": Engine("decomposition"),
    "pairs": Engine("decomposition", {"q": 2}),
    "rosen": Engine("rosen"),
    "rosen, d = 0": Engine("rosen", {"d_tol": 1e-4}),
    "rosen, both sides": Engine("rosen", {"enters": "sides"}),
    "rosen, a pair": Engine("rosen", {"enters": "pair"}),
    "rosen, by multipliers": Engine("rosen", {"ends": "multipliers"}),
    "rosen-cg": Engine("rosen-cg"),
    "simple": Engine("simple"),
    "simple, max": Engine("simple", {"scan": "max"}),
    "simple, paper": Engine("simple", {"scan": "paper"}),
    "npa": Engine("npa"),
    "hildreth": Engine("adatron"),
    "random": Engine("adatron", {"order": "random", "omega": 1.4}),
    "violation": Engine("adatron", {"order": "violation"}),
    "gap": Engine("adatron", {"order": "gap"}),
    "two-stage": Engine("adatron", {"order": "two-stage"}),
    "batch": Engine("adatron", {"order": "batch"}),
    "rates": Engine("adatron", {"learning_rate": 0.2}),
}
LP_FORMS = SOLUTIONS if highspy() is not None else SOLUTIONS[:1]
SIZES = st.sampled_from([1e-3, 0.1, 1.0, 10.0, 100.0])


def few(share: int):
    return settings(max_examples=max(1, settings.default.max_examples // share))


def suited(case: Case, solver: str) -> Case:
    """The case as the solver can have it."""
    can = svmcore.solvers()[solver]
    if not can.equality:
        case = case.but(fit_intercept=False)
    elif not can.no_equality:
        case = case.but(fit_intercept=True, intercept_scaling=None)
    if not can.finite_bounds:
        case = case.but(loss="squared_hinge")
    return case


@pytest.mark.parametrize("name", SOLVERS)
@few(16)
@given(st.data(), st.sampled_from([1e-3, 1e-6]))
def test_solvers_of_the_literature_are_certified(name, data, tol):
    engine = SOLVERS[name]
    forms = ("svc_squared",) if engine.solver == "npa" else strategies.FORMS
    case = suited(data.draw(cases(forms, costs=SIZES, n=(2, 40))), engine.solver)
    solution = engine.fit(case, tol=tol, time_limit=600.0)
    found = Answer(case, solution)
    assert abs(found.violation - solution.kkt_violation) <= 4.0 * found.rounding + 1e-12 * found.violation
    assert abs(found.objective - solution.objective) <= 8.0 * found.value_rounding
    assert abs(found.primal - solution.primal_objective) <= 8.0 * found.primal_rounding
    is_feasible(found)
    assert solution.converged == (found.violation <= tol + 4.0 * found.rounding) or solution.status is Status.PRECISION
    if solution.status is Status.PRECISION:
        assert found.violation <= 64.0 * found.rounding + tol


@few(8)
@given(cases(costs=SIZES, n=(4, 40)), st.integers(1, 6), st.integers(0, 1000))
def test_points_that_come_and_go_leave_a_fresh_fit(case, k, seed):
    case = (
        case.but(intercept_scaling=None, class_weight=None) if not case.regression else case.but(intercept_scaling=None)
    )
    case = case.but(sample_weight=None, gamma=0.5)
    rng = np.random.default_rng(seed)
    n, chosen = len(case.y), rng.permutation(len(case.y))[:k]
    rest = np.setdiff1d(np.arange(n), chosen)
    if len(rest) < 2 or (not case.regression and len(np.unique(case.y[rest])) < 2):
        return
    part = case._replace(X=case.X[rest], y=case.y[rest])
    moved = Case(case.X[np.r_[rest, chosen]], case.y[np.r_[rest, chosen]], case.options)
    smaller = part.fit(tol=1e-8)
    for changed, fresh in (
        (smaller.add(case.X[chosen], case.y[chosen]), moved),
        (moved.fit(tol=1e-8).remove(np.arange(len(rest), n)), part),
    ):
        found = Answer(fresh, changed)
        assert abs(found.violation - changed.kkt_violation) <= 4.0 * found.rounding
        assert abs(found.objective - changed.objective) <= 8.0 * found.value_rounding
        assert np.all(found.a >= 0)
        assert np.all(found.a <= found.dual.upper)
        assert not found.dual.equality or abs(found.coef.sum()) <= 1e-12 * np.abs(found.coef).sum()
        agree(found, Answer(fresh, fresh.fit(tol=1e-8)))


@few(10)
@given(cases(forms=("svc", "svc_squared", "svr"), costs=SIZES, n=(5, 25)), st.integers(0, 1000))
def test_leave_one_out_is_a_fit_without_the_point(case, seed):
    case = case.but(sample_weight=None, intercept_scaling=None, gamma=0.5)
    if not case.regression:
        case = case.but(class_weight=None)
        if min((case.y == label).sum() for label in (-1, 1)) < 2:
            return
    options = dict(case.options)
    loo = svmcore.leave_one_out(case.X, case.y, **options)
    for i in np.random.default_rng(seed).permutation(len(case.y))[:4]:
        rest = np.delete(np.arange(len(case.y)), i)
        without = case._replace(X=case.X[rest], y=case.y[rest])
        refit = without.fit(tol=1e-9)
        found = Answer(without, refit)
        scale = np.sqrt(np.abs(strategies.dense_gram(case)[i, i]))
        slack = 2.0 * np.sqrt(2.0 * found.gap) * scale + 1e-6 * (1.0 + np.abs(loo.decision_values[i]))
        value = float(refit.decision_function(case.X[i : i + 1])[0])
        if not options["fit_intercept"] or _free(found):  # else the intercept is not unique
            assert abs(value - loo.decision_values[i]) <= slack


def _free(found: Answer) -> bool:
    """Whether a variable strictly inside its box decides the intercept."""
    inside = np.minimum(found.a, found.dual.upper - found.a)
    return bool((inside > 1e-6 * np.maximum(found.a.max(initial=0.0), 1e-300)).any())


@few(4)
@given(
    strategies.points(2, 40), st.sampled_from([1e-4, 0.1, 3.0]), st.sampled_from(["cg", "cholesky", "widrow-hoff"]),
    st.sampled_from(["residual", "bounds"]), st.sampled_from(strategies.PSD_KERNELS), st.integers(0, 1000),
)  # fmt: skip
def test_gaussian_processes_tell_the_truth(X, noise, solver, stopping, kernel, seed):
    y = np.random.default_rng(seed).normal(size=len(X))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gp = svmcore.gp_regression(X, y, noise=noise, solver=solver, stopping=stopping, tol=1e-6, **kernel)
    K = strategies.dense_gram(Case(X, y, kernel))
    A = K + noise * np.eye(len(X))
    residual = y - A @ gp.alpha
    rounding = 1e-13 * np.abs(A).sum(axis=1).max() * max(np.abs(gp.alpha).max(initial=0.0), 1.0)
    assert gp.residual == pytest.approx(np.linalg.norm(residual) / np.linalg.norm(y), rel=1e-6, abs=rounding)
    condition = np.linalg.cond(A)
    truth = float(y @ np.linalg.solve(A, y))
    slack = 1e-12 * condition * abs(truth) + rounding * np.abs(gp.alpha).sum()
    assert gp.lower <= truth + slack
    assert truth <= gp.upper + slack
    if gp.converged and stopping == "residual":
        assert np.linalg.norm(residual) <= 1e-6 * np.linalg.norm(y) * (1.0 + 1e-6) + rounding
    if gp.converged and stopping == "bounds":
        assert gp.upper - gp.lower <= 1e-6 * abs(gp.upper) * (1.0 + 1e-6) + slack
    assert gp.converged or caught


@pytest.mark.compiled
@pytest.mark.parametrize("mode", ["svd", "qr", "update"])
@few(8)
@given(cases(forms=("svc",), costs=SIZES, weighted=False, n=(2, 40)), st.sampled_from(LP_FORMS))
def test_the_published_path_is_optimal_or_says_how_far_it_is(mode, case, lp):
    options = {key: value for key, value in case.options.items() if key in ("kernel", "gamma", "degree", "coef0")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", svmcore.ConvergenceWarning)
        path = svmcore.svm_path(
            case.X, case.y, factorization=mode, published=svmcore.PublishedOptions(lp=lp), **options
        )
    said = any(issubclass(w.category, svmcore.ConvergenceWarning) for w in caught)
    assert path.ended == "done"
    low, high = path.C_range
    at = np.geomspace(max(low, 1e-6 * high), high, 7)
    for C in [*at, *(0.5 * (path.Cs[1:] + path.Cs[:-1]))[:: max(1, path.Cs.size // 5)]]:
        alpha, b = path.alpha(C), path.intercept(C)
        plain = Case(case.X, case.y, {**options, "C": C, "loss": "hinge", "fit_intercept": True}).dual()
        found = alpha * np.where(case.y > 0, 1.0, -1.0)
        value = plain.K @ found + b
        primal = (
            0.5 * found @ plain.K @ found + C * np.maximum(0.0, 1.0 - np.where(case.y > 0, 1.0, -1.0) * value).sum()
        )
        dual = alpha.sum() - 0.5 * found @ plain.K @ found
        assert alpha.min() >= 0.0
        assert alpha.max() <= C * (1.0 + 1e-12)
        assert abs(found.sum()) <= 1e-9 * max(alpha.sum(), 1e-300)
        assert said or primal - dual <= 1e-6 * abs(primal) + 1e-12 * np.abs(plain.K).max() * alpha.sum() ** 2
