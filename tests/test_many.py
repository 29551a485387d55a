"""`train_many`: every column is the machine that it is alone, and kernel values are computed once."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from repeats import brief
from scipy import sparse

import svmcore
from svmcore.train import many

pytestmark = pytest.mark.compiled

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 4))
WIDE = RNG.normal(size=(60, 100))
LABELS = np.column_stack([X[:, 0] > 0, X[:, 1] + 0.5 * RNG.normal(size=150) > 0.3, RNG.random(150) > 0.5])
TARGETS = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2], RNG.normal(size=150)])
WEIGHTS = RNG.integers(0, 3, size=(150, 3)).astype(float)
TIGHT = {"tol": 1e-8}

CASES = [
    ({"gamma": 0.3}, LABELS, None),
    ({"kernel": "linear", "loss": "squared_hinge", "class_weight": "balanced"}, LABELS, None),
    ({"gamma": 0.3}, LABELS[:, 1], WEIGHTS),
    ({"gamma": 0.3, "class_weight": "balanced"}, LABELS, WEIGHTS),
    ({"gamma": 0.3, "class_weight": {True: 3.0}}, LABELS, WEIGHTS[:, :1]),
    ({"gamma": 0.3, "loss": "epsilon_insensitive", "epsilon": 0.05}, TARGETS, WEIGHTS[:, :1] + 1.0),
    ({"gamma": 0.3, "loss": "squared_epsilon_insensitive"}, TARGETS, WEIGHTS),
    ({"kernel": "poly", "coef0": 1.0, "loss": "pinball", "tau": 0.3, "fit_intercept": False}, TARGETS, None),
    ({"gamma": "scale", "standardize": True}, LABELS.astype(str), None),
]


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch):
    """Few columns take both ways here."""
    monkeypatch.setattr(many, "_LEAST_SHARED", 2)


def alone(X, y, weight, options):
    options = dict(options)
    train = svmcore.train_svc if options.get("loss", "hinge").endswith("hinge") else svmcore.train_svr
    return train(X, y, 2.0, sample_weight=weight, **options, **TIGHT)


@pytest.mark.parametrize(("options", "Y", "W"), CASES, ids=brief)
@pytest.mark.parametrize("n_jobs", [pytest.param(1, marks=pytest.mark.ci), 2])
def test_every_column_is_what_it_is_alone(options, Y, W, n_jobs):
    found = svmcore.train_many(X, Y, 2.0, sample_weight=W, n_jobs=n_jobs, **options, **TIGHT)
    assert len(found) == 3
    for k, machine in enumerate(found):
        y = Y if Y.ndim == 1 else Y[:, k]
        weight = None if W is None else W[:, min(k, W.shape[1] - 1)]
        other = alone(X, y, weight, options)
        assert machine.objective == pytest.approx(other.objective, rel=1e-6)
        np.testing.assert_allclose(machine.decision_function(X), other.decision_function(X), atol=1e-5)
        assert machine.kkt_violation <= 1e-8
        assert machine.certificate.kkt_violation == machine.kkt_violation
        assert 0.0 <= machine.certificate.infeasibility <= 1e-12
        assert ("together" in machine.stats) == (options.get("loss", "hinge") in ("hinge", "epsilon_insensitive"))
        assert machine.params == other.params
        np.testing.assert_allclose(machine.alpha, other.alpha, atol=2e-3)
        np.testing.assert_array_equal(
            machine.support_vectors,
            X[machine.support] if "standardize" not in options else machine.columns.apply(X)[machine.support],
        )
        if machine.classes is not None:
            assert machine.classes.tolist() == other.classes.tolist()
        if "standardize" not in options and machine.classes is not None:
            judged = svmcore.certificate(X, y, machine.alpha, machine.intercept, 2.0, sample_weight=weight, **options)
            assert judged.gap <= 1e-5 * (1.0 + abs(judged.primal_objective))


@pytest.mark.parametrize(
    "given",
    [
        {"X": WIDE, "kernel": "linear"},
        {"X": WIDE, "gamma": 0.01},
        {"X": sparse.csr_matrix(WIDE), "gamma": 0.01},
        {"X": WIDE @ WIDE.T, "kernel": "precomputed"},
        {"X": WIDE, "kernel": lambda A, B: A @ B.T},
        {"X": WIDE, "kernel": "linear", "fit_intercept": False, "intercept_scaling": 2.0},
    ],
    ids=["linear", "rbf", "sparse", "precomputed", "a function", "embedded"],
)
def test_a_kernel_that_is_computed_once_answers_alike(given):
    options = {name: value for name, value in given.items() if name != "X"}
    Y = RNG.random((60, 4)) > 0.5
    found = svmcore.train_many(given["X"], Y, 2.0, **options, **TIGHT)
    for k, machine in enumerate(found):
        other = alone(given["X"], Y[:, k], None, options)
        np.testing.assert_allclose(
            machine.decision_function(given["X"]), other.decision_function(given["X"]), atol=1e-5
        )
        assert machine.kernel == other.kernel


def test_kernel_values_are_computed_once():
    calls = []

    def kernel(A, B):
        calls.append(len(A) * len(B))
        return A @ B.T

    svmcore.train_many(X, LABELS, 1.0, kernel=kernel)
    assert sum(calls) <= 150**2 + 2 * 150
    blocks = svmcore.train_many(X, np.repeat(LABELS[:, :1], 5, axis=1), 1.0, solver="block")
    assert [machine.n_kernel_evals > 0 for machine in blocks] == [True, False, False, False, False]


def test_limits_hold_for_all_and_one_warning_is_given():
    with pytest.warns(svmcore.ConvergenceWarning, match="3 of 3 machines; column 0: stopped") as caught:
        found = svmcore.train_many(X, LABELS, 1.0, max_iter=1, solver="smo")
    assert len(caught) == 1
    assert not any(machine.converged for machine in found)


@pytest.mark.parametrize(
    ("Y", "options", "words"),
    [
        (LABELS, {"sample_weight": np.ones((150, 2))}, "Y has 3 columns and sample_weight 2"),
        (np.ones((150, 2, 2)), {}, r"Y has shape \(150, 2, 2\)"),
        (LABELS[:100], {}, "100 labels|100 entries|y has"),
        (LABELS, {"loss": "epsilon"}, "loss='epsilon' is not known"),
        (LABELS, {"epsilon": 0.1}, "epsilon=0.1 belongs to a regression"),
        (TARGETS, {"loss": "pinball", "class_weight": "balanced"}, "class_weight belongs to labels"),
        (LABELS, {"nu": 0.5}, "nu belongs to one machine"),
        (LABELS, {"alpha0": np.ones(150)}, "alpha0 belongs to one machine"),
        (LABELS, {"n_jobs": 0}, "n_jobs=0 is not a number of workers"),
        (LABELS, {"gama": 1.0}, "did you mean 'gamma'"),
        (np.zeros((150, 2)), {}, "column 0: y holds one class"),
        (np.column_stack([LABELS[:, 0], np.ones(150)]), {}, "column 1: y holds one class"),
        (np.column_stack([TARGETS[:, 0], np.full(150, np.nan)]), {"loss": "pinball"}, "column 1: y contains nan"),
        (LABELS[:, 0], {"sample_weight": np.eye(150)[:, :2] * [1.0, -1.0]}, "column 0: all samples of one class"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_is_refused_in_words(Y, options, words):
    with pytest.raises(svmcore.InputError, match=words):
        svmcore.train_many(X, Y, **options)


def test_the_time_that_a_kernel_takes_is_counted_once(monkeypatch):
    clock, limits = [0.0], []
    real = many.control_of

    def kernel(A, B):
        clock[0] = 3.0
        return A @ B.T

    def control(limit, *words):
        limits.append(limit)
        return real(None, *words)

    monkeypatch.setattr(many, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(many, "control_of", control)
    many.train_many(X, LABELS, 1.0, kernel=kernel, time_limit=10.0)
    assert limits == [7.0], "of all three together"
    many.train_many(X, LABELS, 1.0, kernel=kernel, time_limit=10.0, solver="block")
    assert limits[1:] == [10.0] * 3, "no time has passed on this clock since"


def test_what_is_not_answered_together_is_answered_alone():
    with pytest.warns(svmcore.ConvergenceWarning, match="3 of 3 machines; column 0"):
        found = svmcore.train_many(X, LABELS, 1.0, gamma=0.3, tol=1e-17)
    assert not any("together" in machine.stats for machine in found)
    with pytest.warns(svmcore.ConvergenceWarning, match="3 of 3 machines; column 0: stopped at time_limit"):
        found = svmcore.train_many(X, LABELS, 1.0, gamma=0.3, time_limit=0.0)
    assert not any(machine.converged for machine in found)


def test_few_machines_are_solved_one_by_one(monkeypatch):
    monkeypatch.undo()
    for columns, together in ((15, False), (16, True)):
        found = svmcore.train_many(X, np.resize(LABELS.T, (columns, 150)).T, 1.0, gamma=0.3)
        assert ["together" in machine.stats for machine in found] == [together] * columns


def test_later_changes_of_the_points_change_no_machine():
    points = X.copy()
    machines = svmcore.train_many(points, LABELS, 1.0, gamma=0.3)
    points[:] = 0.0
    assert "together" in machines[0].stats
    np.testing.assert_array_equal(machines[0].support_vectors, X[machines[0].support])
