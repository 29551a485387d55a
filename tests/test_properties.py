"""Properties of whole fits over random problems: certificates, symmetries, agreement of everything that must agree.

Two answers are compared through their certificates, without tolerances of our own. With D the dual objective, D* its
minimum and g >= D - D* the duality gap: the objectives of two answers differ by at most the larger gap, and, as
D(a) - D* >= 1/2 |w - w*|^2, their decision values without intercept by at most (sqrt(2 g1) + sqrt(2 g2)) sqrt(k(x, x)).
What double precision adds is derived in `oracle.rounding` and `oracle.value_rounding`.

A property is held against every engine that can have it (`engines`), and every fit asserts who gave the answer.
"""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import strategies
from engines import ENGINES, REFERENCE, Engine, but, over
from hypothesis import assume, example, given
from hypothesis import strategies as st
from strategies import Case, as_sparse, cases, coefficients

import svmcore
from svmcore._types import Status
from svmcore.solvers import _steps_jit

TOL = 1e-7
PRECISE = {"tol": TOL, "time_limit": 600.0}

ONE_SIZE = st.sampled_from([1e-3, 0.1, 1.0, 10.0, 100.0])


class Answer:
    """A solution with what the oracle makes of it."""

    def __init__(self, case: Case, solution: svmcore.Solution) -> None:
        self.solution = solution
        self.dual = case.dual()
        self.coef = coefficients(solution)
        self.a = self.dual.variables(self.coef)
        self.rounding = oracle.rounding(self.dual, self.coef)
        self.value_rounding = oracle.value_rounding(self.dual, self.coef)
        self.violation = oracle.violation(self.dual, self.a)
        self.objective = oracle.objective(self.dual, self.a)
        self.primal = oracle.primal(self.dual, self.coef, solution.intercept)
        finite = np.where(np.isfinite(self.dual.costs), self.dual.costs, np.abs(self.coef).max(initial=0.0) + 1.0)
        slope = oracle.losses(self.dual, self.outputs) if self.dual.squared else 1.0
        steep = finite * (1.0 + np.sqrt(2.0 * slope)) if self.dual.squared else finite
        self.primal_rounding = self.value_rounding + self.rounding * float(np.sum(steep))
        self.gap = max(self.primal + self.objective, 0.0) + 8.0 * self.primal_rounding
        # a sum that rounding keeps from zero earns its multiplier
        self.missed = abs(float(self.coef.sum()) * solution.intercept) if self.dual.equality else 0.0

    @property
    def outputs(self) -> np.ndarray:
        """Decision values of the training points, by the oracle."""
        n = self.dual
        b = self.solution.intercept - (0.0 if n.equality else n.offset * float(self.coef.sum()))
        return n.K @ self.coef + b

    @property
    def without_intercept(self) -> np.ndarray:
        return self.dual.K @ self.coef


def is_certified(answer: Answer, tol: float) -> None:
    """The claim of the run is true: at tolerance, or stopped where rounding hides the rest."""
    solution = answer.solution
    if solution.status is Status.PRECISION:
        assert answer.violation <= 64.0 * answer.rounding + tol
    else:
        assert solution.status is Status.CONVERGED
        assert answer.violation <= tol + 4.0 * answer.rounding


def is_feasible(answer: Answer) -> None:
    """Bounds hold exactly; the equality row holds to rounding."""
    dual = answer.dual
    assert np.all(answer.a >= 0)
    assert np.all(answer.a <= dual.upper)
    if dual.equality:
        coef = np.abs(answer.coef)
        walk = np.sqrt(answer.solution.n_iter) * coef.max(initial=0.0)  # every pair step rounds twice
        assert abs(answer.coef.sum()) <= oracle.EPS * (32.0 * coef.sum() + 8.0 * walk)


def agree(first: Answer, second: Answer, scale: float = 1.0) -> None:
    """Two answers to one problem agree as far as their gaps allow (K of the second is `scale` times the first's)."""
    rounding = 8.0 * (first.value_rounding + scale * second.value_rounding) + first.missed + scale * second.missed
    assert abs(first.objective - scale * second.objective) <= max(first.gap, scale * second.gap) + rounding
    radius = np.sqrt(2.0 * first.gap) + np.sqrt(2.0 * scale * second.gap)
    radius = radius * np.sqrt(np.maximum(np.diag(first.dual.K), 0.0))
    slack = radius + 8.0 * (first.rounding + second.rounding)
    assert np.all(np.abs(first.without_intercept - second.without_intercept) <= slack)


def answer(case: Case, engine: Engine = REFERENCE, **more: object) -> Answer:
    return Answer(case, engine.fit(case, **{**PRECISE, **more}))


# ---------------------------------------------------------------- certificates


@over()
@given(cases(), st.sampled_from([1e-3, 1e-6, 1e-9]))
def test_every_answer_is_certified(engine, case, tol):
    found = answer(case, engine, tol=tol)
    solution = found.solution
    is_certified(found, tol)
    is_feasible(found)
    assert abs(found.violation - solution.kkt_violation) <= 4.0 * found.rounding
    assert abs(found.objective - solution.objective) <= 8.0 * found.value_rounding
    assert abs(found.primal - solution.primal_objective) <= 8.0 * found.primal_rounding
    assert solution.gap == pytest.approx(
        solution.primal_objective + solution.objective, abs=8.0 * found.primal_rounding
    )
    assert solution.gap >= -8.0 * found.primal_rounding
    assert np.array_equal(solution.alpha, np.abs(found.coef))
    assert np.array_equal(solution.support, np.flatnonzero(found.coef))
    assert solution.converged == solution.status.ok


@but("interior")
@given(cases(costs=st.just(np.inf)))
def test_hard_margin_ends_with_an_answer_or_says_that_there_is_none(engine, case):
    found = answer(case, engine, tol=1e-5, time_limit=600.0)
    is_feasible(found)
    status = found.solution.status
    assert status in (Status.CONVERGED, Status.UNBOUNDED, Status.PRECISION)
    assert np.isfinite(found.coef).all()
    if status is Status.CONVERGED:
        assert found.violation <= 1e-5 + 4.0 * found.rounding


@but("interior", "newton")
@given(strategies.points(2, 30), st.data())
def test_hard_margin_refuses_labels_that_contradict_on_one_point(engine, X, data):
    y = data.draw(strategies.labels(len(X)))
    case = Case(np.vstack([X, X[:2]]), np.append(y, -y[:2]), {"C": np.inf, "kernel": "rbf", "gamma": 1.0})
    solution = engine.fit(case, time_limit=600.0)
    assert solution.status is Status.UNBOUNDED
    assert np.isfinite(solution.alpha).all()
    assert np.isfinite([solution.objective, solution.kkt_violation, solution.intercept]).all()


@but("interior", "newton")
@given(cases(forms=("svc", "svr"), kernels=({"kernel": "sigmoid", "gamma": 2.0, "coef0": -1.0},), costs=ONE_SIZE))
def test_a_kernel_that_is_not_positive_ends_with_a_status(engine, case):
    found = answer(case, engine, tol=1e-5, time_limit=600.0)
    is_feasible(found)
    assert found.solution.status in (Status.CONVERGED, Status.STATIONARY, Status.PRECISION)
    if found.solution.converged:
        assert found.violation <= 1e-5 + 4.0 * found.rounding


@over()
@given(cases(costs=ONE_SIZE), st.sampled_from([1e-2, 1e-5]))
def test_the_gap_criterion_is_honoured(engine, case, tol):
    found = answer(case, engine, stopping="gap", tol=tol)
    assert found.solution.status is Status.CONVERGED
    assert found.primal + found.objective <= tol * (abs(found.primal) + 1.0) + 8.0 * found.primal_rounding
    is_feasible(found)


@over()
@given(cases(costs=ONE_SIZE))
def test_the_objective_criterion_ends_feasible_and_no_better_than_the_optimum(engine, case):
    found, best = answer(case, engine, stopping="objective", tol=1e-6), answer(case)
    assert found.solution.status is Status.CONVERGED
    is_feasible(found)
    assert found.objective >= best.objective - best.gap - 8.0 * best.value_rounding


# ---------------------------------------------------------------- symmetries


@over()
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(engine, case, random):
    order = np.array(random.sample(range(len(case.y)), len(case.y)))
    w = case.options.get("sample_weight")
    other = Case(case.X[order], case.y[order], {**case.options, "sample_weight": None if w is None else w[order]})
    first, second = answer(case, engine), answer(other, engine)
    back = np.argsort(order)
    second.coef, second.a = second.coef[back], None
    second.dual = first.dual
    agree(first, second)


@over()
@given(cases(forms=("svc", "svc_squared")))
def test_flipped_labels_flip_the_decision(engine, case):
    weights = case.options["class_weight"]
    flipped = {-label: factor for label, factor in weights.items()} if isinstance(weights, dict) else weights
    first, second = answer(case, engine), answer(case._replace(y=-case.y).but(class_weight=flipped), engine)
    second.coef = -second.coef
    agree(first, second)
    assert first.solution.classes.tolist() == [-1.0, 1.0]


@over()
@given(cases(forms=("svc", "svc_squared"), weighted=False), st.sampled_from([0.25, 0.5, 8.0, 1e-3, 1e4]))
def test_a_scaled_kernel_with_C_scaled_back_is_the_same_problem(engine, case, s):
    case = case.but(intercept_scaling=None)
    scaled = precomputed(case, s)
    first = answer(precomputed(case), engine, tol=1e-9)
    second = answer(scaled.but(C=case.options["C"] / s), engine, tol=1e-9)
    agree(first, second, s)


@over()
@given(cases(weighted=False), st.integers(1, 7))
def test_a_point_given_twice_weighs_double(engine, case, every):
    twice = np.arange(0, len(case.y), every)
    w = np.ones(len(case.y))
    w[twice] = 2.0
    gamma = {"gamma": oracle.gamma_value(case.options.get("gamma", 1.0), case.X)} if "gamma" in case.options else {}
    case = case.but(**gamma, **({} if case.regression else {"class_weight": None}))
    first = answer(case.but(sample_weight=w), engine)
    doubled = Case(np.vstack([case.X, case.X[twice]]), np.append(case.y, case.y[twice]), case.options)
    second = answer(doubled, engine)
    n = len(case.y)
    merged = second.coef[:n].copy()
    np.add.at(merged, twice, second.coef[n:])
    second.coef, second.dual = merged, first.dual
    agree(first, second)


@over()
@given(cases())
def test_a_point_of_weight_zero_is_absent(engine, case):
    w = np.ones(len(case.y)) if case.options["sample_weight"] is None else case.options["sample_weight"].copy()
    w[::3] = 0.0
    for label in (case.y.max(), case.y.min()):
        if not w[case.y == label].any():
            w[np.flatnonzero(case.y == label)[0]] = 1.0
    kept = w > 0
    if "gamma" in case.options:
        case = case.but(gamma=oracle.gamma_value(case.options["gamma"], case.X[kept], w[kept]))
    first = answer(case.but(sample_weight=w), engine)
    second = answer(Case(case.X[kept], case.y[kept], case.options).but(sample_weight=w[kept]), engine)
    assert not first.coef[~kept].any()
    if engine.solver == "smo":  # the others centre the data, absent points included: other roundings
        assert np.array_equal(first.coef[kept], second.coef)
        assert first.solution.intercept == second.solution.intercept
    else:
        spread = np.zeros(len(case.y))
        spread[kept] = second.coef
        second.coef, second.dual = spread, first.dual
        agree(first, second)


# ---------------------------------------------------------------- agreement


@pytest.mark.compiled
@given(cases())
def test_all_engines_agree(case):
    first, *others = [answer(case, engine) for engine in ENGINES.values()]
    assert len(others) >= len(ENGINES) - 2
    for other in others:
        agree(first, other)


@but("interior")
@given(cases(), st.sampled_from([0.1, 0.9, 3.0]))
def test_warm_equals_cold(engine, case, factor):
    cold = answer(case)
    nearby = case.but(C=factor * case.options["C"]).fit(tol=1e-2, time_limit=600.0)
    start = coefficients(nearby) if case.regression else nearby.alpha
    warm = answer(case, engine, alpha0=start)
    is_certified(warm, TOL)
    is_feasible(warm)
    agree(cold, warm)


@but("interior")
@given(cases())
def test_started_from_its_own_answer_a_run_does_nothing(engine, case):
    first = case.fit(tol=0.1 * TOL, time_limit=600.0)
    assume(first.converged)
    second = engine.fit(case, **PRECISE, alpha0=coefficients(first) if case.regression else first.alpha)
    assert second.converged
    if second.solver == "smo":
        visits = 50 + len(case.y) if engine.options.get("rule") == "simplified" else 0  # partners at random
        assert second.n_iter <= 2 + visits
    else:  # single precision sees violations that are none: the block solver may polish
        agree(Answer(case, first), Answer(case, second))


def precomputed(case: Case, scale: float = 1.0) -> Case:
    options = {key: value for key, value in case.options.items() if key not in ("gamma", "degree", "coef0")}
    return Case(scale * strategies.dense_gram(case), case.y, {**options, "kernel": "precomputed"})


def by_function(case: Case) -> Case:
    o = case.options
    gamma = oracle.gamma_value(o.get("gamma", "scale"), case.X, o.get("sample_weight"))

    def kernel(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return oracle.kernel_matrix(o["kernel"], A, B, gamma, o.get("coef0", 0.0), o.get("degree", 3))

    return case.but(kernel=kernel)


@but("interior")
@given(cases(n=(2, 12)), st.sampled_from([None, 1e-6]))
def test_built_in_precomputed_and_callable_kernels_agree(engine, case, cache_mb):
    built_in, given_matrix = answer(case, engine), answer(precomputed(case), engine)
    function = answer(by_function(case), engine, cache_mb=cache_mb)
    assert pytest.approx(function.dual.K, rel=1e-15) == built_in.dual.K
    agree(built_in, given_matrix)
    agree(built_in, function)


@over()
@given(cases(), st.sampled_from([np.int32, np.int64]))
def test_sparse_equals_dense(engine, case, index):
    first, second = answer(case, engine), answer(case._replace(X=as_sparse(case.X, index)), engine)
    agree(first, second)
    values = first.solution.decision_function(case.X)
    for form in (case.X, as_sparse(case.X, index)):
        assert first.solution.decision_function(form) == pytest.approx(values, abs=8.0 * first.rounding)


@over()
@given(cases(), st.integers(0, 3))
def test_a_run_repeats_its_bits(engine, case, seed):
    first, second = [
        engine.fit(case, tol=1e-5, random_state=seed, n_threads=threads, time_limit=600.0) for threads in (1, 2)
    ]
    assert np.array_equal(first.alpha, second.alpha)
    assert (first.intercept, first.objective, first.n_iter) == (second.intercept, second.objective, second.n_iter)
    assert np.array_equal(first.decision_function(case.X), second.decision_function(case.X))


@over()
@given(cases(), st.sampled_from([1e-6, 2e-3]))
def test_a_small_cache_changes_nothing(engine, case, cache_mb):
    first, second = [engine.fit(case, tol=1e-4, cache_mb=mb, time_limit=600.0) for mb in (cache_mb, 64.0)]
    if engine.solver in ("smo", "interior"):
        assert np.array_equal(first.alpha, second.alpha)
        assert first.n_kernel_evals >= second.n_kernel_evals
    else:  # memory decides whether the block solver takes a problem whole
        agree(Answer(case, first), Answer(case, second))


@over(*strategies.RULES)
@given(cases(costs=ONE_SIZE))
@example(Case(np.array([[0.0], [0.0]]), np.array([1.0, -1.0]), {"C": 1.0, "kernel": "linear"}))
def test_the_trace_tells_the_run(engine, case):
    solution = engine.fit(case, tol=1e-4, trace=True, time_limit=600.0)
    trace = solution.trace
    assert tuple(trace) == _steps_jit.TRACE_COLUMNS
    steps = len(trace["objective"])
    assert steps <= solution.n_iter
    if steps:
        found = Answer(case, solution)
        falls = np.diff(np.concatenate([[0.0], trace["objective"]]))
        assert np.all(falls <= 1e-9 * np.abs(trace["objective"]) + 64.0 * found.value_rounding)
        if steps == solution.n_iter:
            assert trace["objective"][-1] == pytest.approx(
                solution.objective, rel=1e-9, abs=64.0 * found.value_rounding * (1 + steps)
            )


@over("block", "blocks", "interior")
@given(cases(costs=ONE_SIZE))
def test_the_trace_ends_at_the_optimum(engine, case):
    solution = engine.fit(case, tol=1e-6, trace=True, time_limit=600.0)
    found = Answer(case, solution)
    values = solution.trace["objective"]
    assert len({len(column) for column in solution.trace.values()}) == 1
    assert np.isfinite(values).all()
    if engine.solver == "block":
        assert values[0] == 0.0
        assert values[-1] == pytest.approx(found.objective, rel=1e-5, abs=64.0 * found.value_rounding)
        slack = 1e-5 * np.abs(values[1:]) + 64.0 * found.value_rounding  # single precision
        assert np.all(np.diff(values) <= slack)


# ---------------------------------------------------------------- other people's answers


@over()
@given(cases(forms=("svc", "svr"), costs=ONE_SIZE, n=(2, 40)))
def test_libsvm_finds_the_same(engine, case):
    case = case.but(fit_intercept=True, intercept_scaling=None)
    ours = answer(case, engine)
    found = oracle.libsvm(ours.dual)
    assume(found is not None)
    coef, intercept = found
    a = ours.dual.variables(coef)
    theirs = oracle.objective(ours.dual, a)
    # LIBSVM's kernel rows are float32: its answer is that of a perturbed kernel
    single = 2.0**-23 * np.abs(ours.dual.K).max() * np.abs(coef).sum() ** 2
    assert abs(ours.objective - theirs) <= ours.gap + 2.0 * single + 1e-9 * np.abs(coef).sum() + 1e-12
    assert oracle.primal(ours.dual, coef, intercept) >= -ours.objective - single - ours.gap


@over()
@given(cases(costs=ONE_SIZE, n=(2, 20)))
def test_highs_finds_the_same(engine, case):
    ours = answer(case, engine)
    found = oracle.highs_qp(ours.dual)
    assume(found is not None)
    a, theirs = found
    # its regularisation is worth this much at either answer; bounds and row may be missed by 1e-9, at the price of duals
    regularised = 0.5e-7 * (a @ a + ours.a @ ours.a)
    missed = 1e-9 * (1.0 + np.abs(ours.dual.Q @ a + ours.dual.p).sum() + len(a) * abs(ours.solution.intercept))
    slack = ours.gap + regularised + missed
    assert theirs >= ours.objective - slack
    if oracle.violation(ours.dual, np.clip(a, 0.0, ours.dual.upper)) < 1e-4:
        assert theirs <= ours.objective + slack
