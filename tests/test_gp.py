"""Gaussian-process regression: conjugate gradients against Cholesky, and bounds that hold at every iteration."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused
from scipy.sparse import csr_matrix

import svmcore
from svmcore.base.threads import one_blas_thread

GAMMA = 0.4


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(120, 3)), rng.normal(size=(15, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=120)
    return X, y, Z


def kernel(A, B):
    return np.exp(-GAMMA * ((A[:, None] - B[None]) ** 2).sum(axis=-1))


@pytest.mark.compiled
@pytest.mark.parametrize("noise", [1e-3, 0.1, 5.0])
@pytest.mark.parametrize("cache_mb", [None, 1e-3])
def test_it_solves_the_system(problem, noise, cache_mb):
    X, y, Z = problem
    A = kernel(X, X) + noise * np.eye(len(X))
    exact = np.linalg.solve(A, y)
    for solver in ("cg", "cholesky"):
        gp = svmcore.gp_regression(X, y, noise=noise, gamma=GAMMA, solver=solver, tol=1e-10, cache_mb=cache_mb)
        assert gp.converged
        np.testing.assert_allclose(gp.alpha, exact, atol=1e-8 / noise)
        mean, std = gp.predict(Z, return_std=True)
        cross = kernel(Z, X)
        np.testing.assert_allclose(mean, cross @ exact, atol=1e-7)
        variance = 1.0 - np.einsum("ij,ji->i", cross, np.linalg.solve(A, cross.T))
        np.testing.assert_allclose(std**2, variance, atol=1e-8)


def test_bounds_hold_at_every_iteration(problem):
    X, y, Z = problem
    noise = 0.05
    A = kernel(X, X) + noise * np.eye(len(X))
    exact = float(y @ np.linalg.solve(A, y))
    gp = svmcore.gp_regression(X, y, noise=noise, gamma=GAMMA, tol=1e-8, trace=True)
    lower, upper = gp.trace["lower"], gp.trace["upper"]
    assert (lower <= exact * (1 + 1e-12)).all()
    assert (upper >= exact * (1 - 1e-12)).all()
    assert (np.diff(lower) >= -1e-9).all()  # conjugate gradients raise the lower bound
    assert upper[-1] - lower[-1] < 1e-9 * exact
    low, high = gp.variance(Z, bounded=True)
    cross = kernel(Z, X)
    variance = 1.0 - np.einsum("ij,ji->i", cross, np.linalg.solve(A, cross.T))
    assert (low <= variance + 1e-12).all()
    assert (high >= variance - 1e-12).all()


def test_kernel_values_are_counted(problem):
    X, y, _ = problem
    n = len(X)
    stored = svmcore.gp_regression(X, y, noise=0.1, gamma=GAMMA)
    assert stored.n_kernel_evals == n**2
    fresh = svmcore.gp_regression(X, y, noise=0.1, gamma=GAMMA, cache_mb=1e-3)
    assert fresh.n_kernel_evals >= n**2 * fresh.n_iter


@pytest.mark.parametrize("stopping", ["residual", "bounds"])
@pytest.mark.parametrize("rate", [None, 0.3, np.linspace(0.2, 1.2, 120)])
def test_widrow_hoff_comes_to_the_same_process(problem, stopping, rate):
    X, y, Z = problem
    noise = 0.6
    exact = np.linalg.solve(kernel(X, X) + noise * np.eye(len(X)), y)
    gp = svmcore.gp_regression(
        X, y, noise=noise, gamma=GAMMA, solver="widrow-hoff", tol=1e-7, stopping=stopping, learning_rate=rate
    )
    assert gp.converged
    assert gp.solver == "widrow-hoff"
    np.testing.assert_allclose(gp.predict(Z), kernel(Z, X) @ exact, atol=1e-4 if stopping == "bounds" else 1e-6)
    assert gp.lower <= float(y @ exact) <= gp.upper * (1.0 + 1e-12)


def test_widrow_hoff_updates_are_those_of_the_rule(problem):
    X, y, _ = problem
    noise, rate = 0.2, 0.4
    A, alpha = kernel(X, X) + noise * np.eye(len(X)), np.zeros(len(X))
    orders = np.random.default_rng(0).permuted(np.tile(np.arange(len(X)), (2000 // len(X) + 1, 1)), axis=1).ravel()
    for i in orders[:150]:
        alpha[i] += rate * (y[i] - A[i] @ alpha)
    with pytest.warns(svmcore.ConvergenceWarning, match="max_iter"):
        gp = svmcore.gp_regression(
            X, y, noise=noise, gamma=GAMMA, solver="widrow-hoff", learning_rate=rate, max_iter=150, trace=True
        )
    np.testing.assert_allclose(gp.alpha, alpha, atol=1e-12)
    lower = gp.trace["lower"]
    assert len(lower) == gp.n_iter == 150
    assert (np.diff(lower) >= 0.0).all()  # every update raises the lower bound
    assert lower[-1] == pytest.approx(gp.lower, rel=1e-9)


@pytest.mark.compiled
def test_widrow_hoff_that_crawls_says_so():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    with pytest.warns(svmcore.ConvergenceWarning, match="own limit"):
        gp = svmcore.gp_regression(X, np.sin(X[:, 0]), noise=1e-6, gamma=0.1, solver="widrow-hoff", tol=1e-9)
    assert gp.status.name == "LIMITED"


def test_scaled_features_and_targets():
    rng = np.random.default_rng(2)
    X, Z = rng.normal(size=(80, 2)) * [1.0, 1e3] + [5.0, 0.0], rng.normal(size=(9, 2)) * [1.0, 1e3] + [5.0, 0.0]
    y = 300.0 + 40.0 * np.sin(X[:, 0])
    gp = svmcore.gp_regression(X, y, noise=0.1, gamma=0.5, standardize=True, normalize_y=True, tol=1e-10)
    mean, scale = X.mean(axis=0), X.std(axis=0)
    by_hand = svmcore.gp_regression((X - mean) / scale, (y - y.mean()) / y.std(), noise=0.1, gamma=0.5, tol=1e-10)
    expected, std = by_hand.predict((Z - mean) / scale, return_std=True)
    found, found_std = gp.predict(Z, return_std=True)
    np.testing.assert_allclose(found, expected * y.std() + y.mean(), rtol=1e-9)
    np.testing.assert_allclose(found_std, std * y.std(), rtol=1e-7)
    np.testing.assert_allclose(
        gp.variance(Z, bounded=True),
        np.square(y.std()) * np.array(by_hand.variance((Z - mean) / scale, bounded=True)),
        rtol=1e-6,
        atol=1e-12 * y.std() ** 2,
    )
    flat = svmcore.gp_regression(X, np.full(80, 7.0), noise=0.1, normalize_y=True)
    np.testing.assert_allclose(flat.predict(Z), 7.0)
    refused("3 features a row", gp.predict, np.zeros((2, 3)))


def test_a_process_of_a_data_frame_knows_its_columns(problem):
    pandas = pytest.importorskip("pandas")
    X, y, Z = problem
    gp = svmcore.gp_regression(pandas.DataFrame(X, columns=["a", "b", "c"]), y, noise=0.1)
    swapped = pandas.DataFrame(Z[:, [2, 0, 1]], columns=["c", "a", "b"])
    np.testing.assert_array_equal(gp.predict(swapped), gp.predict(Z))
    refused("lacks 'a'", gp.predict, pandas.DataFrame(Z, columns=["z", "b", "c"]))


def test_other_inputs(problem):
    X, y, Z = problem
    reference = svmcore.gp_regression(X, y, noise=0.1, gamma=GAMMA, tol=1e-10).predict(Z)
    sparse = svmcore.gp_regression(csr_matrix(X), y, noise=0.1, gamma=GAMMA, tol=1e-10)
    np.testing.assert_allclose(sparse.predict(Z), reference, atol=1e-8)
    called = svmcore.gp_regression(X, y, noise=0.1, kernel=kernel, tol=1e-10)
    np.testing.assert_allclose(called.predict(Z), reference, atol=1e-8)
    given = svmcore.gp_regression(kernel(X, X), y, noise=0.1, kernel="precomputed", tol=1e-10)
    np.testing.assert_allclose(given.predict(kernel(Z, X)), reference, atol=1e-8)
    refused("precomputed", given.variance, kernel(Z, X))


def test_limits_are_honoured(problem):
    X, y, _ = problem
    with pytest.warns(svmcore.ConvergenceWarning, match="max_iter"):
        gp = svmcore.gp_regression(X, y, noise=1e-3, gamma=GAMMA, max_iter=3)
    assert gp.n_iter == 3
    with pytest.warns(svmcore.ConvergenceWarning, match="callback"):
        gp = svmcore.gp_regression(X, y, noise=1e-3, gamma=GAMMA, callback=lambda report: report.n_iter >= 2)
    assert gp.n_iter == 2
    again = svmcore.gp_regression(X, y, noise=1e-3, gamma=GAMMA, alpha0=gp.alpha)
    assert again.converged
    assert svmcore.gp_regression(X, 0.0 * y, noise=1.0).n_iter == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"noise": 0.0},
        {"noise": "x"},
        {"noise": 1.0, "solver": "lu"},
        {"noise": 1.0, "learning_rate": 0.1},
        {"noise": 1.0, "solver": "widrow-hoff", "learning_rate": [0.1]},
        {"noise": 1.0, "solver": "widrow-hoff", "learning_rate": 0.0},
        {"noise": 1.0, "normalize_y": "yes"},
    ],
)
def test_refusals(problem, bad):
    X, y, _ = problem
    refused(r"noise|solver|learning_rate|normalize_y", svmcore.gp_regression, X, y, **bad)


@pytest.mark.compiled
@pytest.mark.parametrize("solver", ["cg", "cholesky"])
def test_variances_have_the_same_bits_on_any_number_of_threads(solver):
    """BLAS shares out products of large matrices among its threads."""
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(700, 20)), rng.normal(size=(100, 20))
    found = svmcore.gp_regression(X, np.sin(X[:, 0]), noise=0.1, solver=solver)
    outside = found.variance(T)
    with one_blas_thread:
        assert np.array_equal(found.variance(T), outside)
