"""Decomposition and chunking."""

from __future__ import annotations

import numpy as np
import pytest

import svmcore
from svmcore.base.highs import highspy


def problem(n: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=n) > 0, 1, -1)


@pytest.mark.compiled
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("C", [1.0, 100.0])
def test_two_variables_retrace_the_maximal_violating_pair(loss, C):
    """q = 2 has the closed-form step and the tie-break of rule="mvp": the same pairs, in the same order."""
    X, y = problem()
    options = {"gamma": 0.5, "loss": loss, "tol": 1e-5, "trace": True, "face_steps": False}
    ours = svmcore.train_svc(X, y, C, solver="decomposition", q=2, **options)
    smo = svmcore.train_svc(X, y, C, solver="smo", rule="mvp", shrinking=False, **options)
    assert ours.n_iter == smo.n_iter
    for column in ("i", "j"):
        np.testing.assert_array_equal(ours.trace[column], smo.trace[column])


def test_larger_working_sets_take_fewer_iterations():
    X, y = problem()
    counts = [svmcore.train_svc(X, y, 1.0, solver="decomposition", q=q, tol=1e-5).n_iter for q in (2, 10, 40)]
    assert counts[0] > counts[1] > counts[2]


@pytest.mark.parametrize("q", [0, 3, 2.0, "many", True])
def test_odd_sizes_are_refused(q):
    X, y = problem(10)
    with pytest.raises(svmcore.InputError, match="even number of at least 2"):
        svmcore.train_svc(X, y, solver="decomposition", q=q)


@pytest.mark.compiled
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("highs_limit", [0, 300])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_chunking_reaches_the_optimum(loss, highs_limit, fit_intercept):
    X, y = problem()
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
    X, y = problem()
    solution = svmcore.train_svc(X, y, 1.0, gamma=0.5, solver="chunking", size=80, tol=1e-6)
    assert solution.n_iter <= 3
    assert solution.stats["highs"] == solution.n_iter


def test_chunks_keep_the_support_vectors():
    X, y = problem()
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
