"""Adding, removing and leaving out: equal to fresh fits."""

from __future__ import annotations

import io

import numpy as np
import pytest

import svmcore


def problem(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, 1, -1)


def walk(loss: str, steps: int, C: float = 2.0) -> tuple[svmcore.Solution, svmcore.Solution]:
    """A machine after random adds and removes, and a fresh one on the same points."""
    X, y = problem(80)
    rng = np.random.default_rng(1)
    options = {"C": C, "gamma": 0.5, "loss": loss, "tol": 1e-9}
    inside, outside = list(range(50)), list(range(50, 80))
    solution = svmcore.train_svc(X[inside], y[inside], **options)
    for _ in range(steps):
        if outside and (rng.random() < 0.5 or len(inside) < 30):
            index = outside.pop(int(rng.integers(len(outside))))
            solution = solution.add(X[index : index + 1], y[index : index + 1])
            inside.append(index)
        else:
            position = int(rng.integers(len(inside)))
            outside.append(inside.pop(position))
            solution = solution.remove(position)
        assert solution.converged
    return solution, svmcore.train_svc(X[inside], y[inside], solver="simple", **options)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("steps", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_adds_and_removes_do_not_drift(loss, steps):
    solution, fresh = walk(loss, steps)
    np.testing.assert_allclose(solution.alpha, fresh.alpha, atol=1e-8)
    assert solution.intercept == pytest.approx(fresh.intercept, abs=1e-8)


def test_several_at_once_and_back():
    X, y = problem()
    options = {"C": 5.0, "gamma": 0.5, "tol": 1e-9}
    solution = svmcore.train_svc(X, y, **options)
    smaller = solution.remove(np.arange(20))
    np.testing.assert_allclose(smaller.alpha, svmcore.train_svc(X[20:], y[20:], **options).alpha, atol=1e-6)
    back = smaller.add(X[:20], y[:20])
    assert back.objective == pytest.approx(solution.objective, rel=1e-9)
    mask = np.zeros(60, bool)
    mask[-1] = True
    np.testing.assert_allclose(solution.remove(mask).alpha, solution.remove(-1).alpha)


def test_regression_and_weights():
    X = np.linspace(0.0, 6.0, 40).reshape(-1, 1)
    y, weights = np.sin(X).ravel(), np.linspace(0.5, 2.0, 40)
    options = {"C": 3.0, "epsilon": 0.05, "gamma": 1.0, "tol": 1e-8}
    whole = svmcore.train_svr(X, y, sample_weight=weights, **options)
    part = svmcore.train_svr(X[:30], y[:30], sample_weight=weights[:30], **options)
    added = part.add(X[30:], y[30:], sample_weight=weights[30:])
    assert added.objective == pytest.approx(whole.objective, rel=1e-8)
    removed = whole.remove(np.arange(30, 40))
    assert removed.objective == pytest.approx(part.objective, rel=1e-8)


def test_refusals():
    X, y = problem()
    solution = svmcore.train_svc(X, y)
    with pytest.raises(svmcore.InputError, match="60 training points"):
        solution.remove(60)
    with pytest.raises(svmcore.InputError, match="features"):
        solution.add(X[:1, :2], y[:1])
    with pytest.raises(svmcore.InputError, match="knows"):
        solution.add(X[:1], [5])
    file = io.BytesIO()
    solution.save(file)
    file.seek(0)
    with pytest.raises(svmcore.InputError, match="training data"):
        svmcore.load(file).remove(0)


@pytest.mark.parametrize("C", [1e-2, 0.3, 10.0, 1e4])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_leave_one_out_equals_refits(C, loss, fit_intercept):
    X, y = problem(40)
    options = {"gamma": 0.5, "loss": loss, "fit_intercept": fit_intercept}
    loo = svmcore.leave_one_out(X, y, C, **options)
    expected = np.empty(len(y))
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        refit = svmcore.train_svc(X[rest], y[rest], C, solver="simple", tol=1e-9, **options)
        expected[i] = refit.decision_function(X[i : i + 1])[0]
    assert loo.converged
    np.testing.assert_allclose(loo.decision_values, expected, atol=1e-7)
    assert loo.error == np.mean(np.where(expected > 0, 1, -1) != y)
    assert loo.n_exits == len(loo.solution.support)


def test_leave_one_out_of_duplicates():
    """Exact ties: pairs of equal points, of equal and of opposite labels."""
    X, y = problem(15)
    X, y = np.vstack([X, X]), np.concatenate([y, y])
    y[-3:] *= -1
    loo = svmcore.leave_one_out(X, y, 1.0, gamma=0.5)
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        refit = svmcore.train_svc(X[rest], y[rest], 1.0, gamma=0.5, tol=1e-9)
        assert loo.decision_values[i] == pytest.approx(refit.decision_function(X[i : i + 1])[0], abs=1e-6)


def test_leave_one_out_of_a_regression():
    X = np.linspace(0.0, 6.0, 30).reshape(-1, 1)
    y = np.sin(X).ravel() + 0.1 * np.cos(20 * X).ravel()
    loo = svmcore.leave_one_out(X, y, 5.0, epsilon=0.05, gamma=1.0)
    for i in range(0, 30, 5):
        rest = np.arange(30) != i
        refit = svmcore.train_svr(X[rest], y[rest], 5.0, 0.05, gamma=1.0, tol=1e-9)
        assert loo.decision_values[i] == pytest.approx(refit.predict(X[i : i + 1])[0], abs=1e-6)
    assert loo.error == pytest.approx(np.mean((loo.decision_values - y) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["sonar", "heart", "wbc", "ionosphere", "monk1", "monk2", "diabetes", "raetsch_thyroid", "german", "two_spirals"],
)
def test_leave_one_out_on_data(data_set, name):
    """Ten sets of at most 300 points, at ten values of C: equal to n refits."""
    X, y = data_set(name)
    rows = np.random.default_rng(0).permutation(len(y))[:300]
    X, y = X[rows], y[rows]
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    gamma = 1.0 / X.shape[1]
    for C in np.logspace(-2, 4, 10):
        loo = svmcore.leave_one_out(X, y, C, gamma=gamma)
        for i in range(len(y)):
            rest = np.arange(len(y)) != i
            alpha0 = loo.solution.alpha[rest]
            refit = svmcore.train_svc(X[rest], y[rest], C, gamma=gamma, tol=1e-9, solver="smo", alpha0=alpha0)
            assert loo.decision_values[i] == pytest.approx(refit.decision_function(X[i : i + 1])[0], abs=1e-6)
