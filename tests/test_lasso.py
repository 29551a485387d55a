"""L1 penalties: a plain oracle, LIBLINEAR's objective, exact zeros, the gap of their dual, every kind of rows."""

from __future__ import annotations

import pickle

import numpy as np
import oracle_linear as oracle
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse
from warned import heard, quiet

import svmcore
from svmcore._types import Status
from svmcore.solvers import _lasso, _lasso_jit

pytestmark = pytest.mark.home

pytest.importorskip("sklearn")
WORST = -1e-9  # a relative gap below this is a fault


def problem(seed: int, most: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random rows with zeros, columns that are there twice, empty ones, a constant one; labels; costs, some of them zero."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, most)), int(rng.integers(1, 8))
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < rng.uniform(0.3, 1.0)) * 10.0 ** rng.integers(-1, 2, size=d)
    X[:, -1] = X[:, 0] if seed % 3 == 0 else 1.0 if seed % 3 == 1 else 0.0
    y = np.where(X @ rng.normal(size=d) + rng.normal(size=n) > 0.0, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    weights = rng.integers(0, 3, size=n) / 2.0 if seed % 2 else np.ones(n)
    weights[:2] = 1.0
    return X, y, 10.0 ** rng.integers(-2, 2) * weights


def rows_of(X, kind):
    return sparse.csr_matrix(X) if kind == "sparse" else X


def value(machine, X, y, row=0, C=1.0, scaling=1.0):
    """LIBLINEAR's objective of one machine of an estimator."""
    signs = np.where(y == machine.classes_[1 if len(machine.coef_) == 1 else row], 1.0, -1.0)
    w = np.append(machine.coef_[row], np.ravel(machine.intercept_)[row] / scaling)
    return oracle.primal_l1(np.column_stack([X, np.full(len(X), scaling)]), signs, C * np.ones(len(X)), w)


def test_the_oracle_is_a_minimum():
    X, y, costs = problem(4, 20)
    w = oracle.descend_l1(X, y, costs)
    rng = np.random.default_rng(0)
    best = oracle.primal_l1(X, y, costs, w)
    assert all(oracle.primal_l1(X, y, costs, w + 1e-3 * rng.normal(size=len(w))) >= best - 1e-12 for _ in range(100))


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=[pytest.mark.ci, pytest.mark.compiled]) for seed in range(4, 12))]
)
def test_the_objective_is_that_of_the_oracle(seed):
    X, y, costs = problem(seed, 20)
    Z = np.column_stack([X, np.full(len(X), 1.5)])
    best = oracle.primal_l1(Z, y, costs, oracle.descend_l1(Z, y, costs))
    for kind in ("dense", "sparse"):
        machine = _lasso.Lasso(_lasso.RowsAndColumns(rows_of(X, kind), 1.5), y, 2.0 * costs, lambda: False)
        assert _lasso.solve(machine, 1e-10, 10_000) is Status.CONVERGED
        assert oracle.primal_l1(Z, y, costs, machine.w) == pytest.approx(best, rel=1e-9, abs=1e-300)
        assert machine.primal == pytest.approx(best, rel=1e-9, abs=1e-300)
        assert WORST * best <= machine.gap <= 1e-10 * best


@given(st.integers(0, 2**31), st.sampled_from(["dense", "sparse"]), st.floats(-6.0, 6.0))
@example(800, "dense", -6.0)
def test_the_gap_bounds_the_distance_from_any_other_weights(seed, kind, power):
    X, y, costs = problem(seed)
    costs = costs * 10.0**power
    design = _lasso.RowsAndColumns(rows_of(X, kind), 1.0)
    machine = _lasso.Lasso(design, y, costs, lambda: False)
    status = _lasso.solve(machine, 1e-6, 2000)
    found, rng = machine.found, np.random.default_rng(seed)
    assert found.gap >= WORST * found.primal
    assert status is not Status.CONVERGED or found.gap <= 1e-6 * found.primal
    for _ in range(5):
        machine.begin(rng.normal(size=design.d) * rng.integers(0, 2, size=design.d))
        assert machine.primal >= found.primal - found.gap - 1e-12 * found.primal
        assert machine.primal - machine.gap <= found.primal * (1.0 + 1e-12) + 1e-15 * machine.primal  # which is rounded


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("C", [0.02, 1.0, 50.0])
@pytest.mark.parametrize("shape", [(300, 12, 2), (200, 20, 3), (60, 500, 2)])
def test_classifiers_have_liblinears_objective(shape, C, kind):
    svm = pytest.importorskip("sklearn.svm")
    n, d, k = shape
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    y = np.argmax(X[:, :5] @ rng.normal(size=(5, k)) + rng.normal(size=(n, k)), axis=1)
    machine = svmcore.LinearSVC(penalty="l1", C=C, tol=1e-8, intercept_scaling=2.0).fit(rows_of(X, kind), y)
    with quiet():
        theirs = svm.LinearSVC(penalty="l1", dual=False, C=C, tol=1e-8, max_iter=3000, intercept_scaling=2.0,
                               random_state=0).fit(X, y)  # fmt: skip
    assert machine.converged_
    assert {one.solver for one in machine._fitted.machines} == {"lasso"}
    for row, one in enumerate(machine._fitted.machines):
        mine, best = (value(each, X, y, row, C, 2.0) for each in (machine, theirs))
        assert mine <= best * (1.0 + 1e-9)
        assert one.primal_objective == pytest.approx(mine, rel=1e-10)
        assert WORST < one.relative_gap <= 1e-10
        assert one.kkt_violation < 1e-2
        assert np.array_equal(one.coef_, machine.coef_[row])
    assert (machine.coef_ == 0.0).any() or C >= 1.0


@pytest.mark.compiled
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_least_C_of_scikit_learn_is_where_the_first_weight_is_not_zero(kind):
    bounds = pytest.importorskip("sklearn.svm").l1_min_c
    rng = np.random.default_rng(0)
    X, y = rows_of(rng.normal(size=(80, 30)), kind), rng.integers(0, 2, 80)
    least = bounds(X, y, loss="squared_hinge")
    below = svmcore.LinearSVC(penalty="l1", C=least * (1.0 - 1e-6)).fit(X, y)
    assert not below.coef_.any()
    assert not below.intercept_.any()
    above = svmcore.LinearSVC(penalty="l1", C=least * 1.01).fit(X, y)
    assert above.coef_.any() or above.intercept_.any()


@pytest.mark.compiled
def test_weights_of_rows_are_rows_twice_and_features_can_be_selected():
    select = pytest.importorskip("sklearn.feature_selection").SelectFromModel
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 25))
    y = (X[:, 3] - X[:, 7] + 0.3 * rng.normal(size=120) > 0).astype(int)
    weights = rng.integers(1, 4, 120)
    how = {"penalty": "l1", "C": 0.05, "tol": 1e-10, "class_weight": {1: 2.0}}
    machine = svmcore.LinearSVC(**how).fit(X, y, weights)
    twice = svmcore.LinearSVC(**how).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert np.allclose(machine.coef_, twice.coef_, atol=1e-8)
    chosen = select(svmcore.LinearSVC(penalty="l1", C=0.02)).fit(X, y).get_support()
    assert chosen[[3, 7]].all()
    assert chosen.sum() < 25
    again = pickle.loads(pickle.dumps(machine))
    assert np.array_equal(again.predict(X), machine.predict(X))
    assert again.dual_gap_ == machine.dual_gap_


@pytest.mark.compiled
def test_limits_and_progress_are_kept():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 300))
    y = rng.integers(0, 2, 200)
    with pytest.warns(UserWarning, match="Stopped at max_iter=1 passes"):
        late = svmcore.LinearSVC(penalty="l1", max_iter=1).fit(X, y)
    assert late.n_iter_ == 1
    assert late.dual_gap_ > 0.0
    with pytest.warns(UserWarning, match="time_limit"):
        stopped = svmcore.LinearSVC(penalty="l1", time_limit=0.0).fit(X, y)
    assert not stopped.coef_.any()
    assert not stopped.converged_


@pytest.mark.compiled
@pytest.mark.parametrize("C", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("scales", [0, 8])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_any_cost_and_any_scale_ends_with_a_gap_or_a_warning(kind, scales, C):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(120, 7)) * 10.0 ** np.linspace(-scales, scales, 7)
    y = rng.integers(0, 3, 120)
    X[:, 2], X[:, 3], X[7] = 3.0, 0.0, 0.0
    with heard() as caught:
        machine = svmcore.LinearSVC(penalty="l1", C=C).fit(rows_of(X, kind), y)
    assert np.isfinite(machine.coef_).all()
    gaps = [one.relative_gap for one in machine._fitted.machines]
    assert min(gaps) > WORST
    assert max(gaps) <= 1e-6 or caught


def test_a_large_cost_comes_from_smaller_ones():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(20, 40))
    y = np.where(rng.random(20) > 0.5, 1.0, -1.0)
    machine = _lasso.Lasso(_lasso.RowsAndColumns(X, 1.0), y, np.full(20, 2e3), lambda: False)
    assert _lasso.solve(machine, 1e-6, 5000) is Status.CONVERGED
    assert (y * machine.design.times(machine.w)).min() > 0.99
    assert WORST * machine.primal <= machine.gap <= 1e-6 * machine.primal


def test_a_sweep_says_how_far_a_column_is_from_its_optimum():
    X, y, costs = problem(3, 30)
    machine = _lasso.Lasso(_lasso.RowsAndColumns(X, 1.0), y, costs, lambda: False)
    machine.w[::3], machine.w[1::3] = 0.2, -0.3
    machine.look()
    some = machine.w != 0.0
    lacks = np.where(some, np.abs(machine.sums - np.sign(machine.w)), np.maximum(np.abs(machine.sums) - 1.0, 0.0))
    lists, far = machine.design.lists, np.inf
    for j, lack in enumerate(lacks):
        table, w = machine.table.copy(), machine.w.copy()
        count, worst, _ = _lasso_jit.sweep(lists, table, w, np.array([j]), 1, far, 1)
        assert worst == pytest.approx(lack, abs=1e-12)
        assert count == 1 or machine.w[j] == 0.0
        assert (w[j] != machine.w[j]) == (lack > 0.0)


def test_whoever_asks_to_stop_is_heard():
    X, y, costs = problem(0, 20)
    machine = _lasso.Lasso(_lasso.RowsAndColumns(X, 1.0), y, costs, lambda: True)
    assert _lasso.solve(machine, 1e-12, 100) is Status.INTERRUPTED


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("support", [[0, 2, 5], [1, 3, 4, 6], [6]])
def test_the_matrix_of_some_columns_is_that_of_their_products(support, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 6)) * (rng.random((30, 6)) < 0.5)
    design = _lasso.RowsAndColumns(rows_of(X, kind), 1.5)  # its last column is the constant
    table = np.zeros((30, _lasso.loops.WIDTH))
    table[::2, _lasso.loops.BEND] = rng.uniform(1.0, 2.0, 15)
    Z = np.column_stack([X, np.full(30, 1.5)])[:, support]
    found = design.gram(np.array(support), table)
    assert np.allclose(np.tril(found), np.tril(Z.T @ (table[:, _lasso.loops.BEND][:, None] * Z)), rtol=1e-13)


def test_weights_that_would_change_their_signs_become_zero_one_after_the_other():
    rng = np.random.default_rng(1)
    for _ in range(30):
        k = int(rng.integers(1, 8))
        root = rng.normal(size=(k + 3, k))
        gram, here = root.T @ root, rng.normal(size=k)
        slope = rng.normal(size=k) * 3.0
        there = _lasso._best_of_signs(gram.copy(order="F"), slope.copy(), here)
        assert (there * here >= 0.0).all()
        step, left = there - here, there != 0.0
        rest = slope - gram @ step  # what still pulls at the weights that are left
        assert np.abs(rest[left]).max(initial=0.0) <= 1e-7 * np.abs(slope).max()
        assert slope @ step - 0.5 * step @ gram @ step >= -1e-9  # it is no worse than before
