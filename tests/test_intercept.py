"""Intercepts that are given: fixed at any value, or embedded in the kernel with tau = R."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused
from scipy.sparse import csr_matrix

import svmcore

pytestmark = pytest.mark.compiled

SOLVERS = [name for name, can in svmcore.solvers().items() if can.no_equality]


def problem(n: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, 1.0, -1.0)


def primal(machine, X, y, C, epsilon=None) -> float:
    """1/2 |w|^2 + C sum loss of the machine's decision function, in numpy."""
    values = machine.decision_function(X)
    square = float(machine.dual_coef @ (values - machine.intercept)[machine.support])
    if epsilon is None:
        return 0.5 * square + C * float(np.maximum(0.0, 1.0 - y * values).sum())
    return 0.5 * square + C * float(np.maximum(0.0, np.abs(y - values) - epsilon).sum())


@pytest.mark.parametrize("b", [0.4, -2.5])
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_trains_at_a_given_intercept(solver, b):
    X, y = problem()
    problem_of = {"kernel": "linear", "fit_intercept": False, "fixed_intercept": b}
    machine = svmcore.train_svc(X, y, 2.0, solver=solver, tol=1e-6, **problem_of)
    assert (machine.solver, machine.intercept, machine.converged) == (solver, b, True)
    assert machine.primal_objective == pytest.approx(primal(machine, X, y, 2.0), rel=1e-12)
    assert machine.relative_gap < 1e-5
    assert machine.certificate.intercept == b
    again = svmcore.certificate(X, y, machine.alpha, machine.intercept, 2.0, **problem_of)
    assert again.gap == pytest.approx(machine.gap, abs=1e-9)
    assert svmcore.certificate(X, y, machine.alpha, None, 2.0, **problem_of).intercept == b
    # no other weights do better with this intercept: a random direction does not lower the primal
    w, at = machine.coef_, primal(machine, X, y, 2.0)
    for direction in np.random.default_rng(1).normal(size=(20, 3)):
        other = w + 1e-3 * direction
        value = 0.5 * other @ other + 2.0 * np.maximum(0.0, 1.0 - y * (X @ other + b)).sum()
        assert value >= at - machine.gap - 1e-12


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
def test_regression_with_a_given_intercept_is_one_of_shifted_targets(loss):
    X, _ = problem()
    t = np.sin(X[:, 0]) + 3.0
    options = {"gamma": 0.5, "fit_intercept": False, "tol": 1e-8, "loss": loss}
    machine = svmcore.train_svr(X, t, 2.0, 0.1, fixed_intercept=3.0, **options)
    shifted = svmcore.train_svr(X, t - 3.0, 2.0, 0.1, **options)
    np.testing.assert_allclose(machine.predict(X), shifted.predict(X) + 3.0, atol=1e-6)
    assert machine.objective == pytest.approx(shifted.objective, rel=1e-9)
    assert machine.params["fixed_intercept"] == 3.0


def test_the_best_intercept_given_is_the_intercept_found():
    X, y = problem()
    free = svmcore.train_svc(X, y, 1.0, gamma=0.5, tol=1e-9)
    given = svmcore.train_svc(X, y, 1.0, gamma=0.5, tol=1e-9, fit_intercept=False, fixed_intercept=free.intercept)
    np.testing.assert_allclose(given.decision_function(X), free.decision_function(X), atol=1e-6)
    worse = svmcore.train_svc(X, y, 1.0, gamma=0.5, fit_intercept=False, fixed_intercept=free.intercept + 0.5)
    assert worse.primal_objective > given.primal_objective


def test_files_changes_and_leave_one_out_keep_it(tmp_path):
    X, y = problem()
    options = {"gamma": 0.5, "fit_intercept": False, "fixed_intercept": 0.7, "tol": 1e-9}
    machine = svmcore.train_svc(X, y, 1.0, **options)
    machine.save(tmp_path / "m.npz")
    read = svmcore.load(tmp_path / "m.npz")
    assert read.params == machine.params
    np.testing.assert_array_equal(read.decision_function(X), machine.decision_function(X))
    part = svmcore.train_svc(X[:30], y[:30], 1.0, **options)
    for changed in (part.add(X[30:], y[30:]), svmcore.train_svc(X, y, 1.0, **options).remove([])):
        assert changed.intercept == 0.7
        np.testing.assert_allclose(changed.decision_function(X), machine.decision_function(X), atol=1e-6)
    loo = svmcore.leave_one_out(X, y, 1.0, gamma=0.5, fit_intercept=False, fixed_intercept=0.7)
    for i in range(0, 40, 3):
        rest = np.arange(40) != i
        without = svmcore.train_svc(X[rest], y[rest], 1.0, **options)
        assert loo.decision_values[i] == pytest.approx(without.decision_function(X[i : i + 1])[0], abs=1e-6)


def kernel_of_polynomials(A, B):
    return (1.0 + A @ B.T) ** 2


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("kernel", "sparse"),
    [(name, sparse) for name in ("linear", "rbf", "poly") for sparse in (False, True)]
    + [("precomputed", False), (kernel_of_polynomials, False)],
)
def test_auto_embeds_with_the_largest_norm(kernel, sparse):
    X, y = problem()
    norms = {
        "linear": (X**2).sum(axis=1),
        "rbf": np.ones(40),
        "poly": (0.5 * (X**2).sum(axis=1) + 1.0) ** 2,
        "precomputed": (X**2).sum(axis=1),
    }.get(kernel, (1.0 + (X**2).sum(axis=1)) ** 2)
    weights = np.ones(40)
    weights[np.argmax(norms)] = 0.0  # a point that is not there has no norm
    R = float(np.sqrt(norms[weights > 0].max()))
    points = X @ X.T if kernel == "precomputed" else X
    if sparse:
        points = csr_matrix(X)
    options = {"kernel": kernel, "gamma": 0.5, "degree": 2, "coef0": 1.0, "fit_intercept": False, "tol": 1e-7}
    machine = svmcore.train_svc(points, y, 1.0, intercept_scaling="auto", sample_weight=weights, **options)
    default = svmcore.train_svc(points, y, 1.0, sample_weight=weights, **options | {"fit_intercept": "embedded"})
    assert default.objective == machine.objective
    assert default.params == machine.params
    given = svmcore.train_svc(points, y, 1.0, intercept_scaling=R, sample_weight=weights, **options)
    assert machine.params["intercept_scaling"] == pytest.approx(R, rel=1e-12)
    assert machine.objective == pytest.approx(given.objective, rel=1e-9)
    assert machine.intercept == pytest.approx(R**2 * machine.dual_coef.sum(), rel=1e-9)


def test_a_change_of_the_machine_keeps_the_embedding():
    X, y = problem()
    machine = svmcore.train_svc(X, y, kernel="linear", fit_intercept=False, intercept_scaling="auto", tol=1e-8)
    larger = machine.add(100.0 * X[:1], y[:1])
    assert larger.params["intercept_scaling"] == pytest.approx(machine.params["intercept_scaling"], rel=1e-12)


@pytest.mark.compiled
def test_embedding_has_tau_R_by_default_everywhere():
    X, y = problem()
    R = float(np.sqrt((X**2).sum(axis=1).max()))
    options = {"kernel": "linear", "fit_intercept": "embedded"}
    for tau, given in ((R, {}), (0.5, {"intercept_scaling": 0.5})):
        for machine in (
            svmcore.train_svc(X, y, solver="adatron", **options, **given),
            svmcore.train_svr(X, X[:, 0], **options, **given),
            svmcore.train_svc(X[1:], y[1:], **options, **given).add(X[:1], y[:1]),
            svmcore.svm_path(X, y, **options, **given).at(1.0),
            svmcore.svr_path(X, X[:, 0], **options, **given).at(1.0),
            svmcore.train_classes(X, np.arange(40) % 3, **options, **given).machines[0],
            svmcore.train_many(X, y[:, None], **options, **given)[0],
        ):
            assert machine.intercept == pytest.approx(tau**2 * machine.dual_coef.sum(), rel=1e-9, abs=1e-12)
    exact = svmcore.certificate(X, y, np.zeros(40), None, 1.0, **options)
    assert exact.primal_objective == 40.0
    cv = svmcore.cv_path(X, y, cv=4, **options, intercept_scaling=R)
    assert cv.refit().params["intercept_scaling"] == pytest.approx(R, rel=1e-12)
    refused("tau = R would be another in each fold", svmcore.cv_path, X, y, cv=4, **options)
    with pytest.raises(svmcore.InputError, match="fit_intercept='yes' is not known; choose True, False or 'embedded'"):
        svmcore.train_svc(X, y, fit_intercept="yes")
    plain = svmcore.train_svc(X, y, kernel="linear", fit_intercept=False)  # as in scikit-learn: none at all
    assert plain.intercept == 0.0


def test_refusals_are_in_words():
    X, y = problem()
    refused(r"fixed_intercept=0.5 .* needs fit_intercept=False", svmcore.train_svc, X, y, fixed_intercept=0.5)
    refused(r"intercept_scaling='auto' .* needs fit_intercept=False", svmcore.train_svc, X, y, intercept_scaling="auto")
    refused("intercept_scaling='wide'", svmcore.train_svc, X, y, fit_intercept=False, intercept_scaling="wide")
    refused("fixed_intercept", svmcore.train_svc, X, y, fit_intercept=False, fixed_intercept=np.inf)
    refused("train_svc", svmcore.svm_path, X, y, fit_intercept=False, fixed_intercept=0.5)
    refused("intercept_scaling", svmcore.cv_path, X, y, fit_intercept=False, intercept_scaling="auto")


# ---------------------------------------------------------------- smo without an equality row


def wave(n: int = 120, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)


@pytest.mark.compiled
@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
def test_a_stiff_embedding_does_not_stop_smo(kernel):
    """Alone a variable hardly moves against tau^2 = 900; two that move against each other do not feel it."""
    X, t = wave()
    options = {"kernel": kernel, "fit_intercept": "embedded", "intercept_scaling": 30.0, "tol": 1e-5}
    machine = svmcore.train_svr(X, t, 100.0, solver="smo", trace=True, **options)
    assert machine.converged
    assert machine.kkt_violation <= 1e-5
    other = svmcore.train_svr(X, t, 100.0, solver="block", **options)
    assert machine.objective == pytest.approx(other.objective, rel=1e-4)
    assert (machine.trace["j"] >= 0).any()


@pytest.mark.compiled
@pytest.mark.parametrize(("seed", "coef0", "tau"), [(0, 0.0, 1.0), (1, 1.0, None)])
def test_variables_that_were_left_out_may_object_many_times(seed, coef0, tau):
    """A cubic kernel of low rank: shrunken problems are solved four times and more before the whole one is."""
    X, t = wave(400, 5, seed)
    options = {"kernel": "poly", "degree": 3, "coef0": coef0, "fit_intercept": False, "intercept_scaling": tau}
    machine = svmcore.train_svr(X, t, 100.0, solver="smo", **options)
    assert machine.converged
    assert machine.kkt_violation <= 1e-3
    exact = svmcore.train_svr(X, t, 100.0, solver="interior", tol=1e-8, **options)
    assert exact.relative_gap < 1e-7  # a violation of 1e-8, where rounding keeps it from being exact
    assert machine.relative_gap < 5e-3  # how far a violation of 1e-3 may be off depends on the order of sums
    assert -exact.gap - 1e-9 * abs(exact.objective) <= machine.objective - exact.objective <= machine.gap
