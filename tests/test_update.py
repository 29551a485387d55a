"""Adding, removing and leaving out: equal to fresh fits."""

from __future__ import annotations

import numpy as np
import pytest
from kept import stored
from refusals import refused

import svmcore
from svmcore.problem.certify import certificate
from svmcore.solvers._active import ActiveSet


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


@pytest.mark.compiled
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_the_factor_goes_with_the_machine(loss):
    """The second change of a chain computes no kernel rows of old members; a machine can be changed twice."""
    X, y = problem(120)
    options = {"C": 5.0, "gamma": 0.5, "tol": 1e-9, "loss": loss}
    start = svmcore.train_svc(X[:100], y[:100], **options)
    first = start.add(X[100:110], y[100:110])
    second = first.add(X[110:], y[110:])
    again = first.add(X[110:], y[110:])
    fresh = svmcore.train_svc(X, y, **options)
    assert second.n_kernel_evals < 0.8 * again.n_kernel_evals
    for solution in (second, again):
        np.testing.assert_allclose(solution.alpha, fresh.alpha, atol=1e-7)
        assert solution.kkt_violation <= 1e-9
    assert second.remove([0]).objective == pytest.approx(again.remove([0]).objective, rel=1e-12)


def test_balanced_weights_change_with_the_points():
    X, y = problem()
    options = {"C": 2.0, "gamma": 0.5, "tol": 1e-9, "class_weight": "balanced"}
    removed = svmcore.train_svc(X, y, **options).remove([0, 1, 2])
    np.testing.assert_allclose(removed.alpha, svmcore.train_svc(X[3:], y[3:], **options).alpha, atol=1e-7)
    added = removed.add(X[:3], y[:3])
    assert added.objective == pytest.approx(svmcore.train_svc(X, y, **options).objective, rel=1e-10)


@pytest.mark.parametrize("kernel", ["linear", "precomputed", "function"])
def test_other_kernels(kernel):
    X, y = problem()
    K = X @ X.T
    data, given = (K, "precomputed") if kernel == "precomputed" else (X, "linear")
    given = (lambda A, B: A @ B.T) if kernel == "function" else given
    options = {"C": 0.5, "kernel": given, "tol": 1e-8}
    removed = svmcore.train_svc(data, y, **options).remove([3, 5]).remove(0)
    keep = np.delete(np.setdiff1d(np.arange(60), [3, 5]), 0)
    fresh = svmcore.train_svc(X[keep], y[keep], 0.5, kernel="linear", tol=1e-8)
    assert removed.objective == pytest.approx(fresh.objective, rel=1e-8)
    assert removed.intercept == pytest.approx(fresh.intercept, abs=1e-6)


def test_a_last_bound_variable_decides_no_bias():
    """All variables at C but for the rounding of their sum: the bias is the middle of its interval."""
    X, y = problem(61)
    y = np.where(np.arange(61) % 2, 1, -1)
    whole = svmcore.train_svc(X, y, 1e-3, gamma=0.5, tol=1e-9)
    rest = np.arange(61) != int(np.flatnonzero(y == -1)[0])
    warm = svmcore.train_svc(X[rest], y[rest], 1e-3, gamma=0.5, tol=1e-9, solver="smo", alpha0=whole.alpha[rest])
    cold = svmcore.train_svc(X[rest], y[rest], 1e-3, gamma=0.5, tol=1e-9, solver="smo")
    assert warm.intercept == pytest.approx(cold.intercept, abs=1e-9)


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


def test_refusals():
    X, y = problem()
    solution = svmcore.train_svc(X, y)
    refused("60 training points", solution.remove, 60)
    refused("features", solution.add, X[:1, :2], y[:1])
    refused("knows", solution.add, X[:1], [5])
    refused("training data", stored(solution).remove, 0)


@pytest.mark.compiled
def test_leave_one_out_of_a_regression():
    X = np.linspace(0.0, 6.0, 30).reshape(-1, 1)
    y = np.sin(X).ravel() + 0.1 * np.cos(20 * X).ravel()
    loo = svmcore.leave_one_out(X, y, 5.0, epsilon=0.05, gamma=1.0)
    for i in range(0, 30, 5):
        rest = np.arange(30) != i
        refit = svmcore.train_svr(X[rest], y[rest], 5.0, 0.05, gamma=1.0, tol=1e-9)
        assert loo.decision_values[i] == pytest.approx(refit.predict(X[i : i + 1])[0], abs=1e-6)
    assert loo.error == pytest.approx(np.mean((loo.decision_values - y) ** 2))


COSTS = np.logspace(-2, 4, 10)


def equals_refits(X: np.ndarray, y: np.ndarray, C: float, **options) -> None:
    """Leave-one-out decision values against a certified fit without each of the points."""
    loo = svmcore.leave_one_out(X, y, C, **options)
    assert loo.converged
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        refit = svmcore.train_svc(
            X[rest], y[rest], C, tol=1e-9, solver="smo", alpha0=loo.solution.alpha[rest], **options
        )
        assert loo.decision_values[i] == pytest.approx(refit.decision_function(X[i : i + 1])[0], abs=1e-6)


def drawn(name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Generated sets: overlapping clouds, a ring, unbalanced classes on a grid of few values (ties)."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 2))
    if name == "clouds":
        y = np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, 1, -1)
    elif name == "ring":
        y = np.where(np.square(X).sum(axis=1) + 0.3 * rng.normal(size=n) > 1.4, 1, -1)
    else:
        X = np.round(2.0 * X) / 2.0
        y = np.where(X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=n) > 1.5, 1, -1)
    return X, y


@pytest.mark.compiled
@pytest.mark.parametrize("C", [pytest.param(C, marks=pytest.mark.ci if k % 3 else ()) for k, C in enumerate(COSTS)])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("name", ["clouds", "ring", "grid"])
def test_leave_one_out_on_generated_sets(name, loss, C):
    X, y = drawn(name, 50)
    equals_refits(X, y, C, gamma=0.5, loss=loss)


@pytest.mark.slow
@pytest.mark.parametrize("C", COSTS)
@pytest.mark.parametrize(
    "name",
    ["sonar", "heart", "wbc", "ionosphere", "monk1", "monk2", "diabetes", "raetsch_thyroid", "german", "two_spirals"],
)
def test_leave_one_out_on_data(data_set, name, C):
    """Ten sets of at most 300 points, at ten values of C: equal to n refits."""
    X, y = data_set(name)
    rows = np.random.default_rng(0).permutation(len(y))[:300]
    X, y = X[rows], y[rows]
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    equals_refits(X, y, C, gamma=1.0 / X.shape[1])


def noisy(n=60):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] + 0.8 * rng.normal(size=n) > 0, "b", "a")


@pytest.mark.parametrize("stop", ["callback", "time_limit", "at once"])
def test_a_stopped_leave_one_out_keeps_the_points_that_are_done(stop, monkeypatch):
    X, y = noisy()
    whole = svmcore.leave_one_out(X, y, gamma=0.5)
    options = {
        "callback": {"callback": lambda r: r.done > 0.5},
        "time_limit": {"time_limit": 1000.0},
        "at once": {"time_limit": 0.0},
    }
    if stop == "time_limit":
        clock = [0.0]

        def later():
            clock[0] += 1.0
            return clock[0]

        monkeypatch.setattr("svmcore._control.time.perf_counter", later)
        options[stop]["time_limit"] = 150.0
    with pytest.warns(svmcore.ConvergenceWarning) as caught:
        part = svmcore.leave_one_out(X, y, gamma=0.5, **options[stop])
    done = ~np.isnan(part.decision_values)
    assert any(f"{done.sum()} of 60 points were reached" in str(w.message) for w in caught)
    assert not part.converged
    assert part.decision_values[done].tolist() == whole.decision_values[done].tolist()
    if stop == "at once":
        assert not done.any()
        assert np.isnan(part.error)
    else:
        assert 0 < part.n_exits < whole.n_exits
        assert 0 < done.sum() < 60
        assert part.error == np.mean(whole.predictions[done] != y[done])
        assert part.predictions[done].tolist() == whole.predictions[done].tolist()
        assert part.predictions[~done].tolist() == whole.solution.predict(X[~done]).tolist()


def test_leave_one_out_shows_progress(capsys, monkeypatch):
    monkeypatch.setattr("svmcore._control.EVERY", 0.0)
    svmcore.leave_one_out(*noisy(), gamma=0.5, verbose=1)
    shown = capsys.readouterr().err.splitlines()
    assert all(line.startswith("leave one out: ") and line.endswith("% done") for line in shown)
    assert len(shown) > 10


@pytest.mark.filterwarnings("ignore::svmcore._errors.ConvergenceWarning")
@pytest.mark.parametrize("seed", [84, 85, 93, 99])
def test_changes_of_a_machine_with_huge_coefficients_stay_on_the_equality_row(seed):
    """Nearly flat kernels with C = 1e10 or infinite: rounding of the moves is large, and added up."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(6, 40)), int(rng.integers(1, 5))
    X = rng.standard_normal((n, d)) if seed % 2 else np.round(2 * rng.standard_normal((n, d)))
    y = np.where(X[:, 0] + 0.05 * rng.standard_normal(n) > 0, 1, -1)
    y[0] = -y[1]
    kernel = ["linear", "rbf", "poly"][seed % 3 or int(rng.integers(3))]
    options = {"kernel": kernel, "gamma": float(10 ** rng.uniform(-6, 0)), "degree": 2, "coef0": 1.0}
    machine = svmcore.train_svc(X[:-3], y[:-3], np.inf if seed % 3 else 1e10, solver="simple", **options)
    for change in (
        lambda m: m.add(X[-3:], y[-3:]), lambda m: m.remove([0]), lambda m: m.remove([2, 3]), lambda m: m.add(X[:1], y[:1]),
    ):  # fmt: skip
        machine = change(machine)
        assert abs(machine.dual_coef.sum()) <= 1e-12 * np.abs(machine.dual_coef).sum()
        assert np.isfinite([machine.objective, machine.gap]).all()


def test_a_stopped_beginning_leaves_the_factor_and_the_certificate_alone(monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 5))
    y = np.where(X[:, 0] + rng.normal(size=300) > 0, 1, -1)
    monkeypatch.setattr("svmcore.solvers._course._SLICE_WORK", 1e3)
    measured, loaded = [], []
    monkeypatch.setattr("svmcore.train.solve.certificate", lambda *a, **k: measured.append(a) or certificate(*a, **k))
    load = ActiveSet.load
    monkeypatch.setattr(ActiveSet, "load", lambda self: loaded.append(1) or load(self))
    seen = []
    with pytest.warns(svmcore.ConvergenceWarning):
        found = svmcore.leave_one_out(X, y, C=10.0, gamma=0.5, callback=lambda r: seen.append(r) or len(seen) > 9)
    assert found.solution.solver == "simple"
    assert np.isnan(found.decision_values).all()
    assert not loaded
    assert not measured
    assert found.solution.gap > 0.0
    assert len(measured) == 1
