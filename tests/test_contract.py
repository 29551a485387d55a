"""What every solver of the registry owes, on every formulation it declares."""

from __future__ import annotations

import functools
import signal
import time
from typing import Any, get_args

import numpy as np
import oracle
import pytest
from refusals import refused
from repeats import each
from strategies import Case, coefficients
from warned import quiet

import svmcore
from svmcore._keywords import Stopping
from svmcore._types import Status
from svmcore.compiler.jit import DISABLED

TOL = 1e-6
N = 40 if DISABLED else 120


def data(n: int = N, margin: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3))
    height = X[:, 0] + 0.5 * X[:, 1] ** 2 - 0.4
    y = np.where(height + (0.0 if margin else 0.3 * rng.normal(size=n)) > 0, 1.0, -1.0)
    X[:, 0] += margin * y
    return X, y, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)


def by_function(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return (0.5 * A @ B.T + 1.0) ** 2


X, LABELS, TARGETS = data()
APART, CLASSES, _ = data(margin=1.5)
BASE = {"C": 2.0, "kernel": "rbf", "gamma": 0.5}
LINEAR = {"C": 2.0, "kernel": "linear"}
SQUARED, TUBE = "squared_epsilon_insensitive", {"epsilon": 0.2}
FORMULATIONS = {
    "hinge": Case(X, LABELS, BASE),
    "hinge-unbiased": Case(X, LABELS, {**BASE, "fit_intercept": False}),
    "hinge-embedded": Case(X, LABELS, {**BASE, "fit_intercept": False, "intercept_scaling": 2.0}),
    "hinge-weighted": Case(X, LABELS, {**BASE, "sample_weight": np.arange(N) % 4 / 2.0, "class_weight": "balanced"}),
    "squared": Case(X, LABELS, {**BASE, "loss": "squared_hinge"}),
    "squared-unbiased": Case(X, LABELS, {**BASE, "loss": "squared_hinge", "fit_intercept": False}),
    "squared-embedded": Case(
        X, LABELS, {**BASE, "loss": "squared_hinge", "fit_intercept": False, "intercept_scaling": 2.0}
    ),
    "hard": Case(APART, CLASSES, {**BASE, "C": np.inf}),
    "hard-unbiased": Case(APART, CLASSES, {**BASE, "C": np.inf, "fit_intercept": False}),
    "hinge-linear": Case(X, LABELS, LINEAR),
    "hinge-linear-unbiased": Case(X, LABELS, {**LINEAR, "fit_intercept": False}),
    "squared-linear": Case(X, LABELS, {**LINEAR, "loss": "squared_hinge"}),
    "svr-linear": Case(X, TARGETS, {**LINEAR, **TUBE}),
    "svr-squared-linear": Case(X, TARGETS, {**LINEAR, **TUBE, "loss": SQUARED, "fit_intercept": False}),
    "hinge-function": Case(X, LABELS, {"C": 2.0, "kernel": by_function}),
    "svr": Case(X, TARGETS, {**BASE, **TUBE}),
    "svr-unbiased": Case(X, TARGETS, {**BASE, **TUBE, "fit_intercept": False}),
    "svr-squared": Case(X, TARGETS, {**BASE, **TUBE, "loss": SQUARED}),
    "svr-squared-unbiased": Case(X, TARGETS, {**BASE, **TUBE, "loss": SQUARED, "fit_intercept": False}),
}
SOLVERS = sorted(svmcore.solvers())
STOPPING = get_args(Stopping)


def refusal(solver: str, case: Case) -> str | None:
    """The words by which a solver that cannot do this says so, or None when it can."""
    can, o = svmcore.solvers()[solver], case.options
    equality = o.get("fit_intercept", True)
    infinite = "squared" in o.get("loss", "") or np.isinf(o["C"])
    for needed, able, words in [
        (equality, can.equality, "does not do an intercept"),
        (not equality, can.no_equality, "does not do problems without an intercept"),
        (infinite, can.infinite_bounds, "does not do unbounded dual variables"),
        (not infinite, can.finite_bounds, "does not do bounded dual variables"),
        (case.regression, can.twins, "does not do regression"),
        (callable(o["kernel"]), can.callable_kernel, "does not do a Python kernel"),
    ]:
        if needed and not able:
            return words
    return None


PAIRS = [(solver, name) for solver in SOLVERS for name in FORMULATIONS]
REFUSED = [pair for pair in PAIRS if refusal(pair[0], FORMULATIONS[pair[1]])]
ABLE = [pair for pair in PAIRS if pair not in REFUSED]


def able(test: Any) -> Any:
    """A test of every solver, on every formulation that it declares."""
    return pytest.mark.parametrize("solver", SOLVERS)(each("name", declared)(test))


def declared(solver: str) -> list[str]:
    return [name for who, name in ABLE if who == solver]


@functools.cache
def optimum(solver: str, name: str) -> svmcore.Solution:
    return FORMULATIONS[name].fit(solver=solver, tol=TOL, time_limit=600.0)


@functools.cache
def dual_of(name: str) -> oracle.Dual:
    return FORMULATIONS[name].dual()


@functools.cache
def others(name: str) -> tuple[Any, Any]:
    """What HiGHS and LIBSVM find: dual variables and their objective, signed coefficients. None where they cannot."""
    dual = dual_of(name)
    ours = dual.equality and not dual.squared and np.isfinite(dual.costs).all()
    answer = oracle.libsvm(dual, 1e-8) if ours else None
    return oracle.highs_qp(dual), None if answer is None else answer[0]


def first_able(solver: str) -> Case:
    """A formulation that the solver declares."""
    return next(
        case for case in FORMULATIONS.values() if not refusal(solver, case) and not callable(case.options["kernel"])
    )


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_says_what_it_does(solver):
    assert svmcore.solvers()[solver].summary
    assert any(refusal(solver, case) is None for case in FORMULATIONS.values())


@pytest.mark.parametrize(("solver", "name"), REFUSED)
def test_what_a_solver_does_not_do_is_refused_in_words(solver, name):
    case = FORMULATIONS[name]
    refused(f"solver '{solver}' {refusal(solver, case)}", case.fit, solver=solver)


@able
def test_a_solver_reaches_the_optimum(solver, name):
    found = optimum(solver, name)
    assert found.status is Status.CONVERGED
    assert found.solver == solver
    dual, coef = dual_of(name), coefficients(found)
    a = dual.variables(coef)
    value = oracle.objective(dual, a)
    assert oracle.violation(dual, a) <= TOL + 16.0 * oracle.rounding(dual, coef)
    assert np.all((a >= 0) & (a <= dual.upper))
    assert oracle.primal(dual, coef, found.intercept) + value <= found.gap + oracle.value_rounding(dual, coef)
    highs, libsvm = others(name)
    if highs and oracle.violation(dual, np.clip(highs[0], 0.0, dual.upper)) < 1e-4:  # it does not always get there
        theirs, least = highs
        regularised = 0.5e-7 * (a @ a + theirs @ theirs)
        assert abs(value - least) <= found.gap + regularised + 1e-8 * np.abs(coef).sum()
    if libsvm is not None:
        single = 2.0**-22 * np.abs(dual.K).max() * np.abs(libsvm).sum() ** 2
        assert abs(value - oracle.objective(dual, dual.variables(libsvm))) <= found.gap + single


@pytest.mark.compiled
@able
def test_each_criterion_is_honoured(solver, name):
    case = FORMULATIONS[name]
    found = {word: case.fit(solver=solver, stopping=word, tol=1e-3, time_limit=600.0) for word in STOPPING}
    assert {word: answer.status for word, answer in found.items()} == dict.fromkeys(STOPPING, Status.CONVERGED)
    assert found["gap"].gap <= 1e-3 * (abs(found["gap"].primal_objective) + 1.0)
    assert found["kkt"].kkt_violation <= 1e-3
    best = optimum(solver, name)
    assert found["objective"].objective >= best.objective - best.gap - 1e-12


@able
def test_limits_leave_a_usable_answer(solver, name):
    case, dual = FORMULATIONS[name], dual_of(name)
    for limit, status in [
        ({"max_iter": 1}, Status.MAX_ITER),
        ({"time_limit": 0.0}, Status.TIME_LIMIT),
        ({"callback": lambda report: True}, Status.CALLBACK),
    ]:
        found = case.fit(solver=solver, tol=1e-9, **limit)
        assert found.status in (status, Status.CONVERGED)
        assert status is Status.MAX_ITER or found.status is status
        a = dual.variables(coefficients(found))
        assert np.all((a >= 0) & (a <= dual.upper))
        assert np.isfinite([found.objective, found.gap, found.kkt_violation, found.intercept]).all()
        assert len(found.predict(case.X[:3])) == 3
        if status is Status.MAX_ITER:
            assert found.n_iter <= 1


@pytest.mark.compiled
@pytest.mark.parametrize("solver", [solver for solver in SOLVERS if svmcore.solvers()[solver].warm_start])
@each("name", declared)
def test_a_warm_start_is_used(solver, name):
    case = FORMULATIONS[name]
    cold = case.fit(solver=solver, tol=1e-8, time_limit=600.0)
    start = coefficients(cold) if case.regression else cold.alpha
    warm = case.fit(solver=solver, tol=1e-6, alpha0=start, time_limit=600.0)
    assert warm.converged
    assert warm.n_iter <= max(2, cold.n_iter // 4)
    assert abs(warm.objective - cold.objective) <= max(warm.gap, cold.gap) + 1e-12 * abs(cold.objective)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_solver_that_starts_from_nothing_refuses_a_start(solver):
    case = first_able(solver)
    start = np.zeros(len(case.y))
    if svmcore.solvers()[solver].warm_start:
        assert case.fit(solver=solver, alpha0=start).converged
        return
    refused("does not do a start from alpha0; leave it out", case.fit, solver=solver, alpha0=start)


@pytest.mark.compiled
@able
def test_a_trace_has_an_entry_per_recorded_iteration(solver, name):
    case = FORMULATIONS[name]
    assert optimum(solver, name).trace is None
    trace = case.fit(solver=solver, tol=1e-3, trace=True).trace
    assert trace
    assert "objective" in trace
    assert len({len(column) for column in trace.values()}) == 1


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_callback_sees_progress_and_stops_the_run(solver):
    case, seen = first_able(solver), []

    def callback(report):
        seen.append(report)
        return len(seen) == 3

    found = case.fit(solver=solver, tol=1e-12, callback=callback)
    assert len(seen) <= 3
    assert found.status in (Status.CALLBACK, Status.PRECISION, Status.CONVERGED)
    assert all(report.seconds >= 0 and report.n_iter >= 0 for report in seen)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("solver", SOLVERS)
def test_ctrl_c_ends_the_run_with_what_it_has(solver):
    case = first_able(solver)
    found = case.fit(solver=solver, tol=1e-12, callback=lambda report: signal.raise_signal(signal.SIGINT))
    assert found.status in (Status.INTERRUPTED, Status.PRECISION, Status.CONVERGED)
    assert np.isfinite([found.objective, found.gap, found.intercept]).all()
    a = case.dual().variables(coefficients(found))
    assert np.all((a >= 0) & (a <= case.dual().upper))


TWICE = np.array([[0.0, 1.0], [0.0, 1.0], [2.0, 1.0], [2.0, 1.0], [0.0, 1.0], [5.0, 1.0]])
DEGENERATE = {
    "two-points": (np.array([[0.0], [1.0]]), [-1, 1]),
    "contradictions": (TWICE, [-1, -1, 1, 1, 1, -1]),
    "only-contradictions": (np.zeros((6, 2)), [-1, 1, -1, 1, 1, 1]),
    "one-against-many": (np.arange(12.0).reshape(-1, 1), [1] + [-1] * 11),
    "constant-feature": (np.column_stack([np.arange(8.0), np.full(8, 3.0)]), [-1, 1] * 4),
    "far-apart": (np.array([[0.0], [1e-8], [1e8], [1e8 + 1]]), [-1, 1, -1, 1]),
}


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("solver", SOLVERS)
@each("name", DEGENERATE)
def test_degenerate_data(solver, loss, name):
    """Ties, contradictions, a single point of a class: certified, and the same value as SMO's."""
    points, labels = DEGENERATE[name]
    can = svmcore.solvers()[solver]
    options = {"C": 10.0, "kernel": "rbf", "gamma": 0.5, "loss": loss, "fit_intercept": can.equality}
    case = Case(points, np.array(labels, float), options)
    if refusal(solver, case):
        refused(f"solver '{solver}' {refusal(solver, case)}", case.fit, solver=solver)
        return
    found, best = case.fit(solver=solver, tol=TOL), case.fit(solver="smo", tol=1e-9)
    assert found.status is Status.CONVERGED
    assert found.kkt_violation <= TOL
    assert abs(found.objective - best.objective) <= found.gap + best.gap + 1e-12


@pytest.mark.compiled
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_time_limit_is_kept(solver):
    X, y, _ = data(1500)
    case = first_able(solver)
    case = Case(X, y, {**case.options, "C": 1e6})
    case.fit(solver=solver, max_iter=3)  # compile
    start = time.process_time()
    found = case.fit(solver=solver, tol=1e-12, time_limit=0.1)
    assert found.status in (Status.TIME_LIMIT, Status.PRECISION, Status.LIMITED)
    assert time.process_time() - start < 4.0  # of CPU: the limit, one slice, the certificate


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_unknown_option_is_refused_by_name(solver):
    with pytest.raises(svmcore.InputError, match=f"solver '{solver}' has no option 'colour'"):
        svmcore.train_svc([[0.0], [1.0]], [0, 1], solver=solver, colour="red")


def test_an_unknown_solver_is_refused():
    with pytest.raises(svmcore.InputError, match="solver='magic' is not known; choose one of 'auto', 'small', 'smo'"):
        svmcore.train_svc([[0.0], [1.0]], [0, 1], solver="magic")
    refused("solver=3 is not a name", svmcore.train_svc, [[0.0], [1.0]], [0, 1], solver=3)


def test_what_the_registry_does_not_declare_is_refused_in_words(monkeypatch):
    """The words themselves, on a solver that can do nothing."""
    from svmcore.solvers import smo

    case = FORMULATIONS["hinge"]
    for field, change, words in [
        ("equality", {}, "an intercept; use fit_intercept=False"),
        ("no_equality", {"fit_intercept": False}, "problems without an intercept; use fit_intercept=True"),
        ("infinite_bounds", {"loss": "squared_hinge"}, "unbounded dual variables"),
        ("finite_bounds", {}, "bounded dual variables"),
        ("callable_kernel", {"kernel": by_function}, "a Python kernel; use kernel='precomputed'"),
    ]:
        monkeypatch.setattr(smo, "CAPABILITIES", smo.CAPABILITIES._replace(**{field: False}))
        refused(f"solver 'smo' does not do {words}", case.fit, solver="smo", **change)
        monkeypatch.undo()
    monkeypatch.setattr(smo, "CAPABILITIES", smo.CAPABILITIES._replace(twins=False))
    refused("does not do regression, or choose another solver", FORMULATIONS["svr"].fit, solver="smo")


def test_the_warning_tells_status_loss_and_remedy():
    with pytest.warns(
        svmcore.ConvergenceWarning, match=r"max_iter.*KKT violation .* relative gap .*Remedy: raise max_iter"
    ) as caught:
        svmcore.train_svc(X, LABELS, max_iter=2)
    assert caught[0].filename == __file__


def test_a_large_gap_at_tolerance_is_told():
    with pytest.warns(svmcore.ConvergenceWarning, match=r"may be off by .* %.*stopping='gap'"):
        found = svmcore.train_svc(X, LABELS, 1e5, gamma=0.5, tol=1.0, solver="smo")
    assert found.converged


def test_a_large_gap_is_told_in_one_text_so_that_a_search_hears_it_once():
    texts = set()
    three = np.where(LABELS < 0.0, 2.0, np.arange(len(LABELS)) % 2)
    for C in (1e5, 2e5):
        for train, labels in ((svmcore.train_svc, LABELS), (svmcore.train_classes, three)):
            with pytest.warns(svmcore.ConvergenceWarning, match="may be off") as caught:
                train(X, labels, C, gamma=0.5, tol=1.0, solver="smo")
            texts |= {str(warning.message) for warning in caught}
    assert len(texts) == 1


def test_features_of_different_scale_are_named_when_the_fit_stalls():
    Z = X * [1.0, 1e4, 1.0]
    told = pytest.warns(svmcore.ScaleWarning, match="feature 1 spreads .* times wider than feature")
    with quiet(svmcore.ConvergenceWarning), told:
        svmcore.train_svc(Z, LABELS, 10.0, kernel="linear", tol=1e-9, max_iter=100)
