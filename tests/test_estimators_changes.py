"""What estimators keep: their own copy of the rows, the parameters of their fit, and all of it where a later call fails."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone

import svmcore

pytestmark = pytest.mark.compiled
rng = np.random.default_rng(2)
N = 40
X = rng.normal(size=(N, 3))
TWO = (X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=N) > 0).astype(int)
THREE = (2.0 * X[:, 0]).round().clip(-1, 1).astype(int)
NUMBERS = X[:, 0] ** 2 + X[:, 1]
MORE, MORE_TWO = rng.normal(size=(10, 3)), np.tile([0, 1], 5)


def values(machine, points=X):
    return machine.decision_function(points) if hasattr(machine, "decision_function") else machine.predict(points)


def squares(A, B):
    return (1.0 + A @ B.T) ** 2


# ---- their own rows ----------------------------------------------------------------------------------------------------


OWNERS = [
    ("SVC", {"gamma": 0.4}, TWO), ("SVC", {"gamma": 0.4}, THREE), ("SVC", {"kernel": "linear"}, TWO),
    ("SVC", {"kernel": squares}, TWO), ("SVR", {"gamma": 0.4}, NUMBERS), ("LinearSVC", {}, THREE),
    ("SVCPath", {"gamma": 0.4}, TWO), ("SVRPathCV", {"cv": 3, "C_max": 10.0, "gamma": 0.4}, NUMBERS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "params", "y"), OWNERS, ids=lambda each: each if isinstance(each, str) else "")
@pytest.mark.parametrize("kind", [np.array, csr_matrix], ids=["dense", "sparse"])
def test_the_array_of_a_fit_may_be_written_to_afterwards(name, params, y, kind):
    if callable(params.get("kernel")) and kind is csr_matrix:
        pytest.skip("the function is for arrays")
    machine = getattr(svmcore, name)(**params)
    if "tol" in machine.get_params():
        machine.set_params(tol=1e-9)
    given = kind(X), y.copy(), np.ones(N)
    machine.fit(*given)
    for array in given:
        array *= 0
    whole = clone(machine).fit(kind(X[1:]), y[1:])
    assert np.allclose(values(machine.forget([0]), kind(X)), values(whole, kind(X)), atol=1e-5)


def test_one_array_may_bring_all_rows():
    machine, buffer = svmcore.SVC(gamma=0.4, tol=1e-9), X[:20].copy()
    machine.partial_fit(buffer, TWO[:20])
    buffer[:] = X[20:]
    machine.partial_fit(buffer, TWO[20:])
    assert np.allclose(values(machine), values(svmcore.SVC(gamma=0.4, tol=1e-9).fit(X, TWO)), atol=1e-6)


@pytest.mark.parametrize("weights", [None, np.ones(N)], ids=["plain", "weighted"])
def test_machines_of_functions_own_their_rows_too(weights):
    given = X.copy(), NUMBERS.copy(), None if weights is None else weights.copy()
    machine = svmcore.train_svr(*given[:2], gamma=0.4, tol=1e-9, sample_weight=given[2])
    for array in given:
        if array is not None:
            array *= 0.0
    whole = svmcore.train_svr(X[1:], NUMBERS[1:], gamma=0.4, tol=1e-9)
    assert np.allclose(machine.remove([0]).predict(X), whole.predict(X), atol=1e-6)


def test_what_is_worked_out_later_is_that_of_the_fit():
    points = X.copy()
    machines = svmcore.SVCPath(gamma=0.4).fit(points, TWO), svmcore.GPRegressor(gamma=0.4).fit(points, NUMBERS)
    points *= 0.0
    once = svmcore.SVC(C=5.0, gamma=0.4, tol=1e-9).fit(X, TWO)
    assert np.allclose(values(machines[0].set_params(C=5.0)), values(once), atol=1e-6)
    assert np.allclose(values(machines[1]), values(svmcore.GPRegressor(gamma=0.4).fit(X, NUMBERS)))
