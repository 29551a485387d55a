"""Sweeps of machines that share their passes over sparse rows: each ends where it ends alone."""

from __future__ import annotations

import threading

import numpy as np
import oracle_linear as oracle
import pytest
from scipy import sparse
from warned import quiet

import svmcore
from svmcore._types import Status
from svmcore.base import threads
from svmcore.compiler.jit import DISABLED
from svmcore.problem import formulations
from svmcore.simd import rows as primitives
from svmcore.simd.rows import GROUP
from svmcore.solvers import _coordinate, _coordinate_jit, _losses, _rows
from svmcore.train import heads

pytestmark = pytest.mark.home
WORST = -1e-9  # a relative gap below this is a fault
SOME = (0, 1, 5)  # 5: a row that rests for one machine only is not at its optimum
OTHERS = sorted({*range(43)} - {*SOME})


@pytest.fixture(autouse=True)
def _sweeps_for_few_rows(monkeypatch):
    monkeypatch.setattr(heads, "EXACT_ROWS", 2)
    monkeypatch.setattr("svmcore.estimators._linear._FEW", 2)


def words(n=40, d=60, k=3, seed=0):
    """Rows of few words, one of them empty and one there twice, and their classes."""
    rng = np.random.default_rng([seed, n, k])
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.2)
    X[3], X[5], X[:, 1] = 0.0, X[4], 1.0
    y = np.argmax(X @ rng.normal(size=(d, k)) + rng.normal(size=(n, k)), axis=1)
    y[:k] = np.arange(k)
    return sparse.csr_matrix(X), y


def test_entries_in_any_order_are_put_in_order_when_somebody_asks_for_more_than_the_machine():
    X, y = words(k=2)
    rows = sparse.csr_matrix(X)
    backwards = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(rows.indptr, rows.indptr[1:], strict=False)])
    mixed = sparse.csr_matrix((rows.data[backwards], rows.indices[backwards], rows.indptr), shape=rows.shape)
    one, other = (svmcore.LinearSVC(tol=1e-9).fit(given, y) for given in (rows, mixed))
    assert not mixed.has_sorted_indices
    assert one.coef_ == pytest.approx(other.coef_, abs=1e-6)
    found = other._known.machines[0]
    assert found.solver == "coordinate"
    assert (found.support_vectors != rows[found.support]).nnz == 0
    assert found.support_vectors.has_canonical_format
    assert found.relative_gap <= 1e-10


def test_columns_that_a_row_has_twice():
    starts, columns = np.array([0, 2, 2, 5]), np.array([3, 0, 0, 3, 1])
    assert primitives.distinct(starts, columns, np.full(4, -1))
    assert not primitives.distinct(starts, np.array([3, 0, 1, 0, 1]), np.full(4, -1))


@pytest.mark.parametrize("entries", [0, 1, 2, 5, 8])
def test_products_of_a_row_with_the_weights_of_a_group(entries):
    rng = np.random.default_rng(entries)
    data, indices = rng.normal(size=10), np.sort(rng.permutation(12)[:10]).astype(np.uint32)
    w, out, by = rng.normal(size=12 * GROUP), np.full(3 * GROUP, 7.0), rng.normal(size=2 * GROUP)
    X = np.zeros((1, 12))
    X[0, indices[1 : 1 + entries]] = data[1 : 1 + entries]
    found = w.reshape(12, GROUP)
    rows = _rows.SparseFeatures(sparse.csr_matrix(np.vstack([X, X])), 0.5)
    products = np.full(2 * GROUP, 7.0)
    _coordinate_jit.group_times(rows.lists, np.append(w, np.ones(GROUP)), products)
    assert np.allclose(products.reshape(2, GROUP), X @ found + 0.5, rtol=1e-14, atol=1e-14)
    primitives._row_products(data, indices, 1, 1 + entries, w, out, GROUP)
    assert np.allclose(out[GROUP : 2 * GROUP], (X @ found).ravel(), rtol=1e-14, atol=1e-14)
    assert (np.delete(out, np.s_[GROUP : 2 * GROUP]) == 7.0).all()
    sums = np.empty(13 * GROUP)
    _coordinate_jit.group_sums(rows.lists, by, sums)
    plain = np.zeros(12 * GROUP)
    for place in (0, GROUP):
        primitives._add_row_times(data, indices, 1, 1 + entries, by, place, plain)
    assert np.allclose(sums[: 12 * GROUP], plain, rtol=1e-14, atol=1e-14)
    assert np.allclose(plain.reshape(12, GROUP), X.T @ by.reshape(2, GROUP).sum(axis=0)[None], rtol=1e-14, atol=1e-14)
    assert np.allclose(sums[12 * GROUP :], 0.5 * by.reshape(2, GROUP).sum(axis=0), rtol=1e-14)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [3, GROUP + 1])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_machines_of_a_group_are_those_found_alone(loss, k, weighted, monkeypatch):
    X, y = words(24 if DISABLED else 120, 40 if DISABLED else 180, k)
    more = {"class_weight": {0: 3.0, 1: 0.5}, "tol": 1e-7} if weighted else {"tol": 1e-5}
    weight = np.random.default_rng(0).integers(1, 4, len(y)) / 2.0 if weighted else None
    together = svmcore.LinearSVC(loss=loss, **more).fit(X, y, weight)
    assert heads._engine(svmcore.problem.border.features(X), 1.0).groups(range(k)) == (
        [range(3)] if k == 3 else [range(4), range(4, 9)]
    )
    monkeypatch.setattr(heads, "MOST_SHARED", 0)
    alone = svmcore.LinearSVC(loss=loss, **more).fit(X, y, weight)
    goal = 1e-2 * more["tol"]
    for one, other in zip(together._fitted.machines, alone._fitted.machines, strict=True):
        assert one.solver == other.solver == "coordinate"
        assert one.converged
        assert one.n_iter > 0
        assert WORST < one.relative_gap <= (goal if loss == "squared_hinge" else heads.LOOSER * goal)
        assert one.primal_objective == pytest.approx(other.primal_objective, abs=one.gap + other.gap + 1e-12)
    assert np.allclose(together.coef_, alone.coef_, atol=10.0 * np.sqrt(goal))
    assert together.n_iter_ == max(one.n_iter for one in together._fitted.machines)


def group_of(squared, tau=1.0, seed=0):
    """A group of regressions that differ in targets, costs and tubes."""
    X, _ = words(24, 40, seed=seed)
    rng = np.random.default_rng(seed)
    rows = _rows.SparseFeatures(X, tau)
    loss = "squared_epsilon_insensitive" if squared else "epsilon_insensitive"
    qps = [
        formulations.svr(X @ rng.normal(size=40), rng.uniform(0.1, 1.0, 24), epsilon, loss, False)
        for epsilon in (0.0, 0.1, 0.5, 100.0)
    ]
    return rows, [_losses.losses_from(qp, 24) for qp in qps]


@pytest.mark.parametrize("squared", [False, True])
def test_regressions_of_a_group_end_at_the_gap_that_each_one_asks_for(squared):
    rows, losses = group_of(squared)
    goals = [_losses.Enough(gap) for gap in (1e-2, 1e-7, 1e-4, 1e-3)]
    descent = _coordinate.Descent(rows, losses, squared=squared)
    assert _coordinate.solve(descent, goals, 10_000, lambda: False) == [Status.CONVERGED] * 4
    assert descent.took(3) == 0  # whose tube holds all targets
    assert 0 < descent.took(0) < descent.took(1) == descent.steps  # each leaves when it is done
    for h, goal in enumerate(goals):
        alone = _coordinate.Descent(rows, [group_of(squared)[1][h]], squared=squared)
        assert _coordinate.solve(alone, [goal], 10_000, lambda: False) == [Status.CONVERGED]
        assert WORST < descent.found[h].gap / max(descent.found[h].primal, 1e-300) <= goal.gap
        assert descent.found[h].primal == pytest.approx(
            alone.found[0].primal, abs=descent.found[h].gap + alone.found[0].gap + 1e-12
        )
        again = _losses.measured(rows, losses[h], squared)  # what is said of a machine is said of its dual variables
        assert np.allclose(again[1], descent.sums[h], rtol=1e-12, atol=1e-13)
        assert again[2].gap == pytest.approx(descent.found[h].gap, rel=1e-9, abs=1e-12)


def test_a_group_that_is_stopped_says_how_good_it_is():
    rows, losses = group_of(True)
    descent = _coordinate.Descent(rows, losses, squared=True)
    descent.slice = 1
    goals, asked = [_losses.Enough(1e-9)] * 4, iter([False, False, True])
    ends = _coordinate.solve(descent, goals, 1000, lambda: next(asked))
    assert ends == [Status.INTERRUPTED] * 3 + [Status.CONVERGED]
    assert descent.steps == 2
    for h in range(3):
        again = _losses.measured(rows, losses[h], True)[2]
        assert again.gap == pytest.approx(descent.found[h].gap, rel=1e-9)
        assert again.gap > 0.0
    ends = _coordinate.solve(descent, goals, 5, lambda: False)
    assert ends == [Status.MAX_ITER] * 3 + [Status.CONVERGED]
    assert descent.steps == 5


def test_limits_hold_for_machines_of_a_group():
    X, y = words()
    with pytest.warns(UserWarning, match="Stopped at max_iter=1 passes"):
        stopped = svmcore.LinearSVC(max_iter=1).fit(X, y)
    assert [one.n_iter for one in stopped._fitted.machines] == [1, 1, 1]
    with pytest.warns(UserWarning, match="time_limit"):
        late = svmcore.LinearSVC(time_limit=0.0).fit(X, y)
    assert not late.coef_.any()
    assert min(one.gap for one in late._fitted.machines) > 0.0


@pytest.mark.parametrize(("most", "solver"), [(2, "smo"), (1000, "coordinate")])
def test_where_rounding_stands_before_the_goal_other_solvers_are_asked(most, solver, monkeypatch):
    solve = _coordinate.solve

    def met_rounding(descent, goals, _, poll):
        solve(descent, goals, most, poll)
        return [Status.PRECISION] * len(goals)

    monkeypatch.setattr(_coordinate, "solve", met_rounding)
    machine = svmcore.LinearSVC().fit(*words(24, 40))
    assert {one.solver for one in machine._fitted.machines} == {solver}
    assert machine.converged_
    assert max(one.relative_gap for one in machine._fitted.machines) < 1e-6


@pytest.mark.compiled
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_the_bits_do_not_depend_on_the_number_of_threads(loss, monkeypatch):
    asked, solve = set(), heads.Sweeps.solve
    monkeypatch.setattr(heads.Sweeps, "solve", lambda *a: [asked.add(threading.get_ident()), solve(*a)][1])
    monkeypatch.setattr(threads, "WORTH_A_THREAD", 1.0)
    X, y = words(300, 500, 19)
    one, *others = (svmcore.LinearSVC(loss=loss, C=0.1, n_threads=n).fit(X, y) for n in (1, 2, 5))
    assert len(asked) > 1
    for other in others:
        assert np.array_equal(one.coef_, other.coef_)
        assert np.array_equal(one.intercept_, other.intercept_)
        assert np.array_equal(one.n_iter_, other.n_iter_)


@pytest.mark.compiled
@pytest.mark.parametrize("seeds", [SOME, pytest.param(OTHERS, marks=pytest.mark.ci)], ids=["some", "others"])
@pytest.mark.parametrize("intercept", [1.0, 3.0, None])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "epsilon_insensitive", "squared_epsilon_insensitive"])
def test_nobody_has_a_lower_objective_than_liblinears_tightest(loss, intercept, seeds):
    """516 problems in all, and most of them have several machines. `test_newton` has as many for its ways."""
    svm = pytest.importorskip("sklearn.svm")
    kind, dual = "LinearSVR" if "epsilon" in loss else "LinearSVC", not loss.startswith("squared")
    for seed in seeds:
        rng = np.random.default_rng([seed, 7])
        n = int(rng.integers(12, 60))
        k = 2 if "epsilon" in loss else int(rng.integers(2, 12))
        rows, y = words(n, n + int(rng.integers(1, 60)), k, seed)
        X, weights, C = rows.toarray(), rng.integers(1, 4, size=n) / 2.0, float(10.0 ** rng.integers(-3, 2))
        y = X @ rng.normal(size=X.shape[1]) + rng.normal(size=n) if "epsilon" in loss else y
        options = {"C": C, "loss": loss, "fit_intercept": intercept is not None, "intercept_scaling": intercept or 1.0}
        options |= {"epsilon": 0.2} if "epsilon" in loss else {}
        with quiet():
            theirs = getattr(svm, kind)(tol=1e-10, max_iter=5000, dual=dual, random_state=0, **options)
            theirs.fit(X, y, weights)
        ours = getattr(svmcore, kind)(tol=1e-9 if dual else 1e-7, max_iter=100_000, **options).fit(rows, y, weights)
        machines = ours._fitted.machines
        for row, found in enumerate(machines):
            own = y if "epsilon" in loss else y == (1 if k == 2 else row)
            mine, best = (oracle.liblinear(one, row, X, own, C * weights, loss, intercept) for one in (ours, theirs))
            assert found.solver == "coordinate"
            assert found.relative_gap > WORST, seed
            assert mine <= best * (1.0 + 1e-8) + 1e-12, seed
