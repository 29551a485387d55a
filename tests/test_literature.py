"""Solvers of the literature: Kernel-Adatron and SOR in every order, decomposition, chunking, the nearest point of hulls."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

import svmcore
from svmcore.base.highs import highspy

ORDERS = ("sequential", "random", "violation", "gap", "two-stage", "batch")


def problem(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, 1, -1)


@pytest.mark.parametrize("order", ORDERS)
def test_the_objective_falls_at_every_update(order):
    X, y = problem()
    solution = svmcore.train_svc(
        X, y, 5.0, gamma=1.0, fit_intercept=False, solver="adatron", order=order, omega=1.5, trace=True
    )
    assert (np.diff(solution.trace["objective"]) <= 1e-12).all()
    assert solution.trace["n_kernel_evals"][-1] <= solution.n_kernel_evals
    assert len(solution.trace["step"]) == solution.n_iter


def test_one_update_is_the_book_s():
    """Table 7.1 with eta_i = 1 / K_ii: from zero, the first update sets alpha_1 = 1 / K_11."""
    X, y = np.array([[2.0], [-1.0]]), np.array([1, -1])
    with pytest.warns(svmcore.ConvergenceWarning):
        solution = svmcore.train_svc(X, y, 10.0, kernel="linear", fit_intercept=False, solver="adatron", max_iter=1)
    assert solution.alpha == pytest.approx([0.0, 1.0]) or solution.alpha == pytest.approx([0.25, 0.0])
    assert solution.n_iter == 1


def by_hand(X, y, C, rates, updates, choose):
    """Table 7.1 to the letter, on k(x, z) = exp(-|x - z|^2 / 2): `choose` names the points of the next update."""
    Q = np.outer(y, y) * np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=-1))
    alpha, k = np.zeros(len(y)), 0
    for step in range(10_000):
        gradient = 1.0 - Q @ alpha
        chosen = choose(step, alpha, gradient)
        before = alpha.copy()
        alpha[chosen] = np.clip(alpha[chosen] + (rates * gradient)[chosen], 0.0, C)
        k += bool((alpha != before).any())
        if k == updates:
            return alpha
    raise AssertionError


def one_by_one(n):
    return lambda step, alpha, gradient: np.array([step % n])


@pytest.mark.compiled
@pytest.mark.parametrize("rates", [0.3, np.linspace(0.1, 1.9, 60)])
@pytest.mark.parametrize("order", ["sequential", "batch"])
def test_learning_rates_are_those_of_table_7_1(order, rates):
    X, y = problem()
    if order == "batch":
        rates = 0.05 * np.asarray(rates)  # below 2 over the largest eigenvalue: nothing is cut
    options = {"gamma": 0.5, "fit_intercept": False, "solver": "adatron", "order": order, "learning_rate": rates}
    choose = one_by_one(len(y)) if order == "sequential" else lambda step, alpha, gradient: np.arange(len(y))
    for updates in (1, 5, 130):
        with pytest.warns(svmcore.ConvergenceWarning):
            solution = svmcore.train_svc(X, y, 0.8, tol=1e-12, max_iter=updates, **options)
        np.testing.assert_allclose(solution.alpha, by_hand(X, y, 0.8, rates, updates, choose), atol=1e-12)
        assert solution.stats.get("shortened", 0) == 0
    reference = svmcore.train_svc(X, y, 0.8, gamma=0.5, fit_intercept=False, tol=1e-9)
    solution = svmcore.train_svc(X, y, 0.8, tol=1e-7, **options)
    assert solution.converged
    assert solution.objective == pytest.approx(reference.objective, rel=1e-9)


def test_the_order_of_gaps_takes_the_largest_part_of_the_gap():
    """Remark 7.2: alpha_i (y_i f_i - 1) + C xi_i."""
    X, y = problem()
    C = 0.6

    def largest(step, alpha, gradient):
        return np.array([np.argmax(-alpha * gradient + C * np.maximum(gradient, 0.0))])

    options = {"gamma": 0.5, "fit_intercept": False, "solver": "adatron", "order": "gap"}
    for updates in (1, 2, 25, 80):
        with pytest.warns(svmcore.ConvergenceWarning):
            solution = svmcore.train_svc(X, y, C, tol=1e-12, max_iter=updates, **options)
        np.testing.assert_allclose(solution.alpha, by_hand(X, y, C, 1.0, updates, largest), atol=1e-12)


def test_a_rate_that_is_too_large_is_cut():
    X, y = problem()
    options = {"gamma": 0.5, "fit_intercept": False, "solver": "adatron", "tol": 1e-7, "face_steps": False}
    exact, batch = (svmcore.train_svc(X, y, 2.0, order=order, **options) for order in ("sequential", "batch"))
    found = svmcore.train_svc(X, y, 2.0, learning_rate=50.0, **options)
    np.testing.assert_array_equal(found.alpha, exact.alpha)
    found = svmcore.train_svc(X, y, 2.0, learning_rate=50.0, order="batch", **options)
    assert found.stats["shortened"] == found.n_iter == batch.n_iter
    np.testing.assert_array_equal(found.alpha, batch.alpha)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_all_at_once_without_room_for_rows(loss):
    X, y = problem(100)
    options = {"gamma": 0.5, "fit_intercept": False, "solver": "adatron", "order": "batch", "loss": loss, "tol": 1e-4}
    solution = svmcore.train_svc(X, y, cache_mb=1e-3, **options)
    assert solution.converged
    assert solution.stats["rows"] == 0
    assert solution.objective == pytest.approx(svmcore.train_svc(X, y, **options).objective, rel=1e-9)


def test_convergence_is_linear():
    """Section 7.2: W* - W falls by a constant factor or better; over halves of the run the rates are alike."""
    X, y = problem()
    options = {"gamma": 0.3, "fit_intercept": False}
    best = svmcore.train_svc(X, y, 1.0, tol=1e-10, **options).objective
    trace = svmcore.train_svc(X, y, 1.0, tol=1e-6, solver="adatron", face_steps=False, trace=True, **options).trace
    above = np.log(np.maximum(trace["objective"] - best, 1e-14))
    k = len(above)
    slopes = [(above[b] - above[a]) / (b - a) for a, b in [(k // 4, k // 2), (k // 2, 3 * k // 4)]]
    assert all(slope < 0 for slope in slopes)
    assert 0.2 < slopes[0] / slopes[1] < 5.0


def test_random_order_follows_its_seed():
    X, y = problem()
    runs = [
        svmcore.train_svc(X, y, fit_intercept=False, solver="adatron", order="random", random_state=seed).alpha
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()


def test_refusals_are_in_words():
    X, y = problem(10)
    refused("intercept", svmcore.train_svc, X, y, solver="adatron")
    refused("above 0 and below 2", svmcore.train_svc, X, y, fit_intercept=False, solver="adatron", omega=2.0)
    refused("two-stage", svmcore.train_svc, X, y, fit_intercept=False, solver="adatron", order="sorted")
    with pytest.raises(svmcore.InputError, match="2 values for 10 training points"):
        svmcore.train_svc(X, y, fit_intercept=False, solver="adatron", learning_rate=[0.1, 0.2])
    for bad in (0.0, -1.0, np.inf, np.nan, True, "fast", [], [[0.1] * 10], [0.1] * 9 + [-0.1]):
        with pytest.raises(svmcore.InputError, match=r"learning_rate=.* a finite number above 0, or one for every"):
            svmcore.train_svc(X, y, fit_intercept=False, solver="adatron", learning_rate=bad)


# ---- decomposition and chunking --------------------------------------------------------------------------------------


def bent(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=n) > 0, 1, -1)


@pytest.mark.compiled
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("C", [1.0, 100.0])
def test_two_variables_retrace_the_maximal_violating_pair(loss, C):
    """q = 2 has the closed-form step and the tie-break of rule="mvp": the same pairs, in the same order."""
    X, y = bent()
    options = {"gamma": 0.5, "loss": loss, "tol": 1e-5, "trace": True, "face_steps": False}
    ours = svmcore.train_svc(X, y, C, solver="decomposition", q=2, **options)
    smo = svmcore.train_svc(X, y, C, solver="smo", rule="mvp", shrinking=False, **options)
    assert ours.n_iter == smo.n_iter
    for column in ("i", "j"):
        np.testing.assert_array_equal(ours.trace[column], smo.trace[column])


def test_larger_working_sets_take_fewer_iterations():
    X, y = bent()
    counts = [svmcore.train_svc(X, y, 1.0, solver="decomposition", q=q, tol=1e-5).n_iter for q in (2, 10, 40)]
    assert counts[0] > counts[1] > counts[2]


@pytest.mark.parametrize("q", [0, 3, 2.0, "many", True])
def test_odd_sizes_are_refused(q):
    X, y = bent(10)
    with pytest.raises(svmcore.InputError, match="even number of at least 2"):
        svmcore.train_svc(X, y, solver="decomposition", q=q)


@pytest.mark.compiled
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("highs_limit", [0, 300])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_chunking_reaches_the_optimum(loss, highs_limit, fit_intercept):
    X, y = bent()
    options = {"gamma": 0.5, "loss": loss, "fit_intercept": fit_intercept}
    solution = svmcore.train_svc(X, y, 10.0, solver="chunking", size=20, highs_limit=highs_limit, tol=1e-6, **options)
    reference = svmcore.train_svc(X, y, 10.0, tol=1e-9, **options)
    assert solution.converged
    assert solution.objective == pytest.approx(reference.objective, rel=1e-9)
    assert (solution.stats["highs"] > 0) == (highs_limit > 0 and highspy() is not None)
    assert solution.stats["highs_failures"] == 0


def test_highs_answers_are_used():
    """With the polish limited to nothing but rounding, HiGHS alone is within its tolerance: few chunks, all by HiGHS."""
    pytest.importorskip("highspy")
    X, y = bent()
    solution = svmcore.train_svc(X, y, 1.0, gamma=0.5, solver="chunking", size=80, tol=1e-6)
    assert solution.n_iter <= 3
    assert solution.stats["highs"] == solution.n_iter


def test_chunks_keep_the_support_vectors():
    X, y = bent()
    solution = svmcore.train_svc(X, y, 1.0, gamma=0.5, solver="chunking", size=10, tol=1e-6, trace=True)
    assert solution.stats["largest_chunk"] >= len(solution.support)
    assert (np.diff(solution.trace["objective"]) <= 1e-9).all()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_chunk_always_holds_a_pair_that_can_move(kernel, size):
    """On grids, the worst violators may all want to grow, with nothing in the chunk that can shrink."""
    for seed in (0, 1, 2, 8, 12, 17, 23, 35):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(6, 40))
        X, y = rng.integers(0, 4, (n, 2)).astype(float), rng.integers(0, 2, n)
        y[:2] = 0, 1
        found = svmcore.train_svc(X, y, 1.0, kernel=kernel, gamma=0.5, solver="chunking", size=size)
        assert found.converged
        assert found.kkt_violation <= 1e-3


# ---- the nearest point of two hulls ----------------------------------------------------------------------------------


# Keerthi et al. in Vishwanathan and Murty (2002), table II: C', |S|, kernel evaluations (1e6)
WBC = [(0.03, 652, 1.21), (0.1, 505, 1.04), (1.0, 352, 0.85), (10.0, 311, 0.85), (100.0, 303, 0.78), (500.0, 298, 0.69)]
SIMPLE = {0.03: 0.490, 0.1: 0.518, 1.0: 0.414, 10.0: 0.406, 100.0: 0.451, 500.0: 0.443}


@pytest.mark.parametrize("row", WBC, ids=lambda row: f"C={row[0]:g}")
def test_published_evaluations(data_set, row):
    X, y = data_set("wbc")
    order = np.argsort(y, kind="stable")  # benign first
    X, y = X[order], y[order]
    C, members, evals = row
    solution = svmcore.train_svc(
        X, y, C, loss="squared_hinge", gamma=0.125, tol=2e-3, solver="npa", eps=1e-3, face_steps=False
    )
    counted = solution.stats["paper_evals"] / 1e6
    assert solution.converged
    assert 0.7 <= counted / evals <= 1.8
    assert abs(solution.stats["members"] - members) <= 3
    assert counted > SIMPLE[C]  # the order of the paper: NPA needs more than SimpleSVM


def test_meeting_hulls_are_unbounded():
    X, y = np.array([[0.0], [2.0], [1.0], [3.0]]), [-1, 1, 1, -1]
    with pytest.warns(svmcore.ConvergenceWarning, match="unbounded"):
        svmcore.train_svc(X, y, np.inf, kernel="linear", solver="npa")
