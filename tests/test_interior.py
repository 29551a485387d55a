"""The interior point, of the linear kernel and of others by their factors: exact bounds, hard cases, indefinite kernels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import svmcore
from svmcore._types import LANES
from svmcore.compiler.jit import DISABLED
from svmcore.kernel.matrix import KernelMatrix
from svmcore.problem import border
from svmcore.solvers import _factors
from svmcore.solvers import _ipm_jit as ipm

SIZE = 80 if DISABLED else 600


def data(n=SIZE, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 3.0
    y = np.where((X - 3.0) @ rng.standard_normal(d) + rng.standard_normal(n) > 0, 1, -1)
    return X, y


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-8])
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_tolerance_is_met_with_exact_bounds(tol, C, loss, fit_intercept):
    X, y = data()
    problem = {"kernel": "linear", "loss": loss, "fit_intercept": fit_intercept}
    solution = svmcore.train_svc(X, y, C, tol=tol, solver="interior", **problem)
    assert solution.converged
    assert svmcore.kkt_violation(X, y, solution.alpha, C, **problem) <= tol * (1 + 1e-6)
    if loss == "hinge":
        free = (solution.alpha > 0) & (solution.alpha < C)
        assert free.sum() <= X.shape[1] + 1
        assert solution.alpha.max() <= C


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_integer_grids_with_many_duplicates_and_dependent_columns(C):
    rng = np.random.default_rng(2)
    X = rng.integers(0, 3, (SIZE, 4)).astype(float)
    X = np.column_stack([X, X[:, 0] + X[:, 1], np.full(SIZE, 7.0)])
    y = rng.integers(0, 2, SIZE)
    weights = rng.integers(1, 4, SIZE).astype(float)
    solution = svmcore.train_svc(X, y, C, kernel="linear", sample_weight=weights, tol=1e-6, solver="interior")
    assert solution.converged
    signs = np.where(y == 1, 1.0, -1.0)
    assert abs(signs @ solution.alpha) <= 1e-9 * solution.alpha.sum()
    assert (solution.alpha <= C * weights).all()


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_start_far_from_the_boxes_takes_few_steps(loss):
    X, y = data()
    for C in (1e5, 1e8):
        solution = svmcore.train_svc(X, y, C, kernel="linear", loss=loss, solver="interior")
        assert solution.converged
        assert solution.n_iter <= 40


@pytest.mark.filterwarnings("ignore:the tolerance is met but the objective")
@pytest.mark.filterwarnings("ignore:the function is nearly constant")
@pytest.mark.parametrize("size", [1e-200, 1e-35, 1e-8, 1e8, 1e30])
def test_targets_of_any_size(size):
    X = np.random.default_rng(2).standard_normal((400, 3))
    target = size * np.sin(X[:, 0])
    solution = svmcore.train_svr(X, target, max(size, 1e-100), 0.1 * size, kernel="linear", tol=1e-6 * max(size, 1e-8))
    assert solution.converged
    assert np.isfinite(solution.predict(X)).all()
    zero = svmcore.train_svr(X, target, 1.0, 0.0, kernel="linear", tol=max(1e-6, 1e-6 * size))
    assert zero.converged
    assert np.isfinite(zero.predict(X)).all()


def test_features_of_any_size_and_a_perfect_fit():
    X, y = data()
    for scale in (1e-150, 1e-8, 1e4):
        assert svmcore.train_svc(X * scale, y, 1.0, kernel="linear", solver="interior").converged
    mine = svmcore.train_svr(X, 5.0 * X[:, 0], 1.0, 0.0, kernel="linear", solver="interior")
    assert mine.converged
    assert np.abs(mine.decision_function(X) - 5.0 * X[:, 0]).max() <= 1e-2


def test_variables_that_all_vanish():
    X, _ = data()
    mine = svmcore.train_svr(X, np.full(len(X), 3.0), 1.0, 0.1, kernel="linear", solver="interior")
    assert mine.converged
    assert mine.n_iter <= 40
    assert len(mine.support) == 0


@pytest.mark.compiled
def test_auto_takes_it_for_the_linear_kernel(monkeypatch):
    monkeypatch.setattr("svmcore.train.auto.MOST_LINEAR", 0)
    X, y = data()
    assert svmcore.train_svc(X, y, 1.0, kernel="linear").solver == "interior"
    assert svmcore.train_svc(X, y, 1.0, gamma=0.5).solver != "interior"


KERNELS = {
    "rbf": {"gamma": 0.3},
    "smooth rbf": {"gamma": 1e-3},
    "rough rbf": {"gamma": 30.0},
    "poly": {"kernel": "poly", "degree": 2, "gamma": 0.5, "coef0": 1.0},
    "laplacian": {"kernel": "laplacian", "gamma": 0.4},
    "embedded": {"gamma": 0.3, "fit_intercept": False, "intercept_scaling": 2.0},
    "wide": {"kernel": "linear"},
}


@pytest.mark.compiled
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("form", ["hinge", "squared_hinge", "regression"])
def test_other_kernels_through_their_factors(name, form):
    rng = np.random.default_rng(7)
    n = SIZE // 2
    X = rng.normal(size=(n, 3 if name != "wide" else n + 10))
    target = np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)
    options = {**KERNELS[name], "tol": 1e-7}
    if form == "regression":
        train, y = svmcore.train_svr, target
    else:
        train, y, options["loss"] = svmcore.train_svc, np.where(target > 0, 1, -1), form
    for C in (1.0, 100.0):
        mine = train(X, y, C, solver="interior", **options)
        assert mine.solver == "interior"
        assert mine.converged
        assert mine.n_iter <= 40
        other = train(X, y, C, solver="block", **options)
        assert mine.objective == pytest.approx(other.objective, rel=1e-6)


@pytest.mark.compiled
def test_a_kernel_of_low_rank_takes_few_values():
    """The kernel (1 + x'z)^2 of two features has rank 6: so many pivots, and not the whole matrix, are computed."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(4 * SIZE, 2))
    K = KernelMatrix(X, border.kernel("poly", X, 1.0, 2, 1.0, 0.0, None).kernel, cache_bytes=0)
    Z = _factors.factorised(K, lambda: False)
    assert Z.shape == (len(X), 6)
    np.testing.assert_allclose(Z @ Z.T, (1.0 + X @ X.T) ** 2, rtol=1e-11, atol=1e-11)
    solution = svmcore.train_svc(X, np.sign(X[:, 0] * X[:, 1]), kernel="poly", degree=2, coef0=1.0, solver="interior")
    assert solution.converged
    assert solution.n_kernel_evals < 0.8 * len(X) ** 2


@pytest.mark.parametrize(
    "K",
    [np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 5.0], [5.0, 1.0]]), -np.eye(2)],
    ids=["hidden", "open", "minus"],
)
def test_a_kernel_that_is_not_positive_has_no_factors(K):
    with pytest.warns(svmcore.ConvergenceWarning, match="own limit"):
        solution = svmcore.train_svc(K, [1, -1], kernel="precomputed", solver="interior")
    assert solution.status.name == "LIMITED"


def test_sparse_points_that_would_fill_the_memory_are_not_made_dense(monkeypatch):
    X, y = data()
    rows = sparse.csr_matrix(X)
    assert svmcore.train_svc(rows, y, kernel="linear", solver="interior").converged
    monkeypatch.setattr("svmcore.solvers.interior.MOST_BYTES", 1e3)
    monkeypatch.setattr(sparse.csr_matrix, "toarray", None)
    with pytest.warns(svmcore.ConvergenceWarning, match="64 MB for sparse points"):
        solution = svmcore.train_svc(rows, y, kernel="linear", solver="interior")
    assert solution.status.name == "LIMITED"
    assert svmcore.train_svc(rows, y, kernel="linear").converged
    assert svmcore.train_svc(X, y, kernel="linear", solver="interior").converged


def test_a_time_limit_is_seen_while_the_kernel_is_factorised():
    X, y = data()
    with pytest.warns(svmcore.ConvergenceWarning, match="time_limit"):
        solution = svmcore.train_svc(X, y, gamma=0.5, solver="interior", time_limit=0.0)
    assert solution.status.name == "TIME_LIMIT"
    assert not solution.alpha.any()


def test_more_points_than_the_memory_has_room_for_are_refused(monkeypatch):
    monkeypatch.setattr(border, "available_bytes", lambda: 1e6)
    X, y = np.random.default_rng(0).normal(size=(2000, 2)), np.tile([1, -1], 1000)
    with pytest.raises(svmcore.NotEnoughMemoryError, match="2000 x 2000 kernel matrix"):
        svmcore.train_svc(X, y, gamma=0.5, solver="interior")


def test_a_system_that_cannot_be_factorised_ends_the_steps():
    assert not ipm.factorise(np.diag([1.0, -1.0]))
    n, d = LANES, 2
    x = ipm.Iterate(*np.ones((len(ipm.Iterate._fields), n)))
    bad, pair = np.full(n, np.nan), np.full((2, n), np.nan)
    step = ipm.NewtonStep(bad, bad, pair, pair, bad, bad, bad, bad)
    design = ipm.Design(panels=np.ones((1, d, LANES)), sums=np.empty((2, d)), normal=np.empty((d, d)))
    at = ipm.Arrival(1.0, 0.5, 0.0, 1.0, 1.0, 1.0)
    assert ipm.advance(x, step, design, at, 1.0, True, False) == at._replace(length=0.0)
    assert (x.beta == 1.0).all()
