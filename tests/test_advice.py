"""Warnings about answers that meet their tolerance and are of no use; and that there are none about good ones."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse

import svmcore

pytestmark = pytest.mark.compiled  # whole paths and fits: minutes without

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 4))
SIGNAL = X[:, 0] + np.sin(2.0 * X[:, 1]) + 0.2 * RNG.normal(size=400)


def r2(solution, data, y):
    return 1.0 - np.square(y - solution.predict(data)).mean() / y.var()


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian", "precomputed", "callable"])
@pytest.mark.parametrize("size", [pytest.param(1e4, marks=pytest.mark.ci), 1e6])
def test_a_function_that_a_small_C_holds_down_is_told(loss, kernel, size):
    y = size * (3.0 + SIGNAL)
    data = X @ X.T / 4 if kernel == "precomputed" else X
    rule = (lambda A, B: A @ B.T / 4) if kernel == "callable" else kernel
    more = {"kernel": rule, "loss": loss, "C": 1e-4 if "squared" in loss else 1.0}
    with pytest.warns(
        svmcore.ScaleWarning, match=r"the function is nearly constant, with a spread of .* where y spreads"
    ):
        found = svmcore.train_svr(data, y, **more)
    assert found.converged
    assert r2(found, data, y) < 0.1


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_its_remedies_help(layout):
    y = 1e5 * (2.0 + SIGNAL)
    data = layout(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", svmcore.ScaleWarning)
        raised = svmcore.train_svr(data, y, y.std())
        scaled = svmcore.train_svr(data, (y - y.mean()) / y.std())
    assert r2(raised, data, y) > 0.7
    assert r2(scaled, data, (y - y.mean()) / y.std()) > 0.7


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, pytest.param(0.5, marks=pytest.mark.ci)])
def test_there_is_no_false_alarm(loss, kernel, epsilon):
    with warnings.catch_warnings():
        warnings.simplefilter("error", svmcore.ScaleWarning)
        warnings.simplefilter("ignore", svmcore.ConvergenceWarning)
        for seed in range(5):
            rng = np.random.default_rng(seed)
            Z = rng.normal(size=(rng.integers(20, 600), rng.integers(1, 30)))
            noise = rng.normal(size=len(Z))
            for y in (
                noise,
                rng.standard_t(2, size=len(Z)),
                np.sign(noise),
                Z[:, 0],
                np.round(3 * Z[:, 0]),
                0.0 * noise,
            ):
                svmcore.train_svr(Z, y, epsilon=epsilon, kernel=kernel, loss=loss, time_limit=600.0)
                if kernel == "linear":  # nothing to find: a large C finds nothing, either
                    svmcore.train_svr(Z[:, :2], 100.0 * noise, 1e3, epsilon, kernel=kernel, loss=loss, time_limit=600.0)


def test_tiny_problems_are_let_alone():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svmcore.train_svr([[0.0]], [3.0])
        svmcore.train_svr([[0.0], [1.0]], [0.0, 0.0])
        svmcore.train_svr([[0.0], [0.0]], [0.0, 1.0], sample_weight=[1.0, 0.0])


def test_a_limit_of_its_own_is_named():
    y = np.where(SIGNAL > 0, 1, -1)
    with pytest.warns(
        svmcore.ConvergenceWarning, match=r"The limit of 'smo' is max_passes idle sweeps.* Remedy: raise max_passes"
    ):
        svmcore.train_svc(X, y, 100.0, solver="smo", rule="simplified", max_passes=1, tol=1e-9)
