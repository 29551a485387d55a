"""`train_classes` and `Machines`: against scikit-learn's `SVC`, and against a machine per pair."""

from __future__ import annotations

import pickle
import signal

import numpy as np
import pytest
from kept import parts_of
from refusals import refused
from repeats import brief
from scipy import sparse
from test_cv_classes import STRATEGIES, clouds

import svmcore
from svmcore._types import Status
from svmcore.problem.division import division
from svmcore.train import between, classes
from svmcore.train.ballot import Ballot

pytestmark = pytest.mark.compiled


def test_division_names_every_machine():
    assert [(p.minus, p.plus) for p in division(3, "ovo").parts] == [((0,), (1,)), ((0,), (2,)), ((1,), (2,))]
    assert [(p.minus, p.plus) for p in division(3, "ovr").parts] == [((1, 2), (0,)), ((0, 2), (1,)), ((0, 1), (2,))]
    assert division(2, "ovo").parts == division(2, "ovr").parts


@pytest.mark.parametrize(
    "options", [{}, {"kernel": "linear"}, {"class_weight": "balanced"}, {"class_weight": {"red": 3.0}}]
)
def test_one_against_one_is_that_of_scikit_learn(options):
    svm = pytest.importorskip("sklearn.svm")
    X, y = clouds(200, k=4)
    new = np.random.default_rng(5).normal(size=(500, 2)) * 2
    own = svmcore.train_classes(X, y, 2.0, tol=1e-7, **options)
    peer = svm.SVC(C=2.0, tol=1e-7, **options).fit(X, y)
    np.testing.assert_allclose(own.decision_function(new), peer.decision_function(new), atol=1e-5)
    pairs = svm.SVC(C=2.0, tol=1e-7, decision_function_shape="ovo", **options).fit(X, y).decision_function(new)
    sure = np.abs(pairs).min(axis=1) > 1e-5
    assert sure.mean() > 0.99
    assert (own.predict(new) == peer.predict(new))[sure].all()
    assert set(own.support) == set(peer.support_)
    np.testing.assert_allclose(own._values(new), -pairs, atol=1e-5)  # ours are positive for the second of a pair


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "laplacian", "precomputed", "function"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_machine_is_that_of_train_svc(kernel, strategy):
    X, y = clouds(90)
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    data = X @ X.T if kernel == "precomputed" else X
    how = {"kernel": (lambda A, B: A @ B.T) if kernel == "function" else kernel}
    how |= {"gamma": 0.4} if kernel in ("rbf", "poly", "laplacian") else {}
    how |= {"fit_intercept": False, "intercept_scaling": 2.0} if kernel in ("poly", "laplacian", "function") else {}
    own = svmcore.train_classes(data, y, 1.5, strategy=strategy, sample_weight=weights, tol=1e-8, **how)
    assert own.converged
    for machine, (low, high), column in zip(own, own.pairs, own._values(data).T, strict=True):
        rows = np.flatnonzero((y == high) | (y == low)) if low is not None else np.arange(len(y))
        part = data[np.ix_(rows, rows)] if kernel == "precomputed" else data[rows]
        alone = svmcore.train_svc(part, y[rows] == high, 1.5, sample_weight=weights[rows], tol=1e-8, **how)
        new = data[:, rows] if kernel == "precomputed" else data
        np.testing.assert_allclose(column, alone.decision_function(new), atol=1e-5)
        np.testing.assert_allclose(machine.decision_function(data), column, atol=1e-10)
        assert set(machine.support) <= set(rows)
        assert machine.kkt_violation <= 1e-8
        assert machine.objective == pytest.approx(alone.objective, rel=1e-6)


def test_two_classes_and_booleans_are_one_machine():
    X, y = clouds(60, k=2)
    for strategy in STRATEGIES:
        machines = svmcore.train_classes(X, y == "green", 5.0, strategy=strategy, tol=1e-8)
        alone = svmcore.train_svc(X, y == "green", 5.0, tol=1e-8)
        assert len(machines) == 1
        np.testing.assert_allclose(machines.decision_function(X), alone.decision_function(X), atol=1e-6)
        assert machines.predict(X).tolist() == alone.predict(X).tolist()
        assert machines.predict(X).dtype == bool


@pytest.mark.parametrize("options", [{}, {"kernel": "linear", "standardize": True}, {"sparse": True}], ids=brief)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_saved_and_loaded_they_answer_alike(options, strategy, tmp_path):
    X, y = clouds(60, k=4)
    options = dict(options)
    data = sparse.csr_matrix(X) if options.pop("sparse", False) else X
    machines = svmcore.train_classes(data, y, 5.0, strategy=strategy, **options)
    machines.save(tmp_path / "several")
    same = svmcore.load(tmp_path / "several")
    assert isinstance(same, svmcore.Machines)
    np.testing.assert_array_equal(same.decision_function(data), machines.decision_function(data))
    assert same.predict(data).tolist() == machines.predict(data).tolist()
    assert repr(same) == repr(machines)
    parts = parts_of(tmp_path / "several")
    for broken in (
        {"n_machines": np.array(2)},
        {"strategy": np.array("both")},
        {"machine1_support": np.array([10**6])},
    ):
        np.savez(tmp_path / "broken.npz", **{**parts, **broken})
        refused("damaged", svmcore.load, tmp_path / "broken.npz")


def test_standardize_looks_at_all_rows():
    X, y = clouds(90)
    X = X * [1.0, 100.0] + [5.0, 0.0]
    machines = svmcore.train_classes(X, y, 2.0, standardize=True, gamma=0.5, tol=1e-8)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    other = svmcore.train_classes(Z, y, 2.0, gamma=0.5, tol=1e-8)
    np.testing.assert_allclose(machines.decision_function(X), other.decision_function(Z), atol=1e-6)


def test_a_limit_is_said_once_and_names_a_machine():
    X, y = clouds(120)
    with pytest.warns(svmcore.ConvergenceWarning, match=r"3 of 3 machines; 'green' against 'blue': .*Remedy") as caught:
        machines = svmcore.train_classes(X, y, 1e4, max_iter=1)
    assert len(caught) == 1
    assert not machines.converged


def test_a_callback_ends_all_machines():
    X, y = clouds(120)
    with pytest.warns(svmcore.ConvergenceWarning, match="3 of 3 machines"):
        machines = svmcore.train_classes(X, y, 1e4, tol=1e-9, solver="smo", callback=lambda _: True)
    assert [machine.converged for machine in machines] == [False] * 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strategy": "pairs"}, "strategy='pairs' is not known; choose one of 'ovo', 'ovr'"),
        ({"y": ["a"] * 60}, "y holds one class only"),
        ({"class_weight": {"red": 0.0}}, "class_weight is 0 for a class; every class needs"),
        ({"class_weight": {"grey": 1.0}}, "class_weight names the label 'grey', but y holds 'blue', 'green' and 'red'"),
        ({"sample_weight": "no red"}, "all samples of class 'red' have weight zero"),
        ({"y": np.linspace(0.0, 1.0, 60)}, "not classes; train_svr fits numbers"),
        ({"alpha0": np.zeros(60)}, "alpha0 belongs to one machine"),
        ({"C": -1.0}, "C=-1.0 is out of range"),
        ({"gama": 1.0}, "did you mean 'gamma'"),
        ({"sample_weight": [1.0]}, "sample_weight has shape"),
    ],
    ids=brief,
)
def test_bad_input_is_named(change, message):
    X, y = clouds(60)
    arguments = {"y": y, "C": 1.0} | change
    if isinstance(change.get("sample_weight"), str):
        arguments["sample_weight"] = (y != "red").astype(float)
    refused(message, svmcore.train_classes, X, **arguments)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kernel", ["linear", "precomputed"])
def test_an_intercept_that_is_scaled_to_the_data_is_one_for_all_machines(kernel, strategy):
    X, y = clouds(60)
    words = {"strategy": strategy, "fit_intercept": False, "tol": 1e-8}
    machines = classes.train_classes(
        X @ X.T if kernel == "precomputed" else X, y, 1.0, kernel=kernel, intercept_scaling="auto", **words
    )
    largest = float(np.sqrt((X**2).sum(axis=1).max()))
    other = svmcore.train_classes(X, y, 1.0, kernel="linear", intercept_scaling=largest, **words)
    values = machines.decision_function(X @ X.T if kernel == "precomputed" else X)
    np.testing.assert_allclose(values, other.decision_function(X), atol=1e-6)


# ---- pairs in one call ---------------------------------------------------------------------------------------------------


def asked_of_the_solver(monkeypatch):
    """How many machines `train_svc` is asked for."""
    asked, real = [], classes.train_svc
    monkeypatch.setattr(classes, "train_svc", lambda *words, **more: asked.append(1) or real(*words, **more))
    return asked


def over(engine, monkeypatch):
    """Machines are trained over one matrix, or over points near the margin."""
    if engine == "block":
        monkeypatch.setattr(between.small, "MOST_POINTS", 0)


ENGINES = pytest.mark.parametrize("engine", ["small", "block"])


@ENGINES
@pytest.mark.parametrize("kernel", ["rbf", "poly", pytest.param("laplacian", marks=pytest.mark.ci)])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_machines_in_few_calls_are_those_of_the_solver(kernel, strategy, engine, monkeypatch):
    over(engine, monkeypatch)
    X, y = clouds(240, k=4)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 240)
    weights[::7] = 0.0
    words = {"kernel": kernel, "sample_weight": weights, "class_weight": "balanced", "tol": 1e-8, "strategy": strategy}
    asked = asked_of_the_solver(monkeypatch)
    quick = svmcore.train_classes(X, y, 3.0, **words)
    assert len(asked) <= (2 if kernel == "poly" else 0)  # whose values are large, and pair steps slow
    asked.clear()
    slow = svmcore.train_classes(X, y, 3.0, solver="smo", **words)
    assert len(asked) == len(slow) == (6 if strategy == "ovo" else 4)
    for mine, other in zip(quick, slow, strict=True):
        assert mine.solver == engine or kernel == "poly"
        assert mine.converged
        assert mine.objective == pytest.approx(other.objective, rel=1e-9)
        assert mine.kkt_violation <= 1e-8
        assert abs(mine.relative_gap) < 1e-6
        assert mine.params == other.params
        assert mine.classes.tolist() == other.classes.tolist()
        np.testing.assert_array_equal(mine.support_vectors, X[mine.support])
        np.testing.assert_allclose(mine.alpha, other.alpha, atol=1e-4)
    np.testing.assert_allclose(quick.decision_function(X), slow.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("words", [{"loss": "squared_hinge"}, {"stopping": "gap"}, {"callback": lambda _: False}])
def test_pairs_with_other_words_are_for_the_solver(words, monkeypatch):
    X, y = clouds(90)
    asked = asked_of_the_solver(monkeypatch)
    svmcore.train_classes(X, y, **words)
    assert len(asked) == 3


@ENGINES
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_machines_that_take_more_are_for_the_solver(strategy, engine, monkeypatch):
    over(engine, monkeypatch)
    X, y = clouds(200, k=3)
    monkeypatch.setattr(between._near, "_STEPS", 0)
    monkeypatch.setattr(between._near, "_MORE_STEPS", 3)
    monkeypatch.setattr(between.small, "PATIENCE", between.small.PATIENCE._replace(each=0, more=3))
    asked = asked_of_the_solver(monkeypatch)
    found = svmcore.train_classes(X, y, 2.0, strategy=strategy)
    assert len(asked) == 3
    assert found.converged


@ENGINES
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_machines_side_by_side_are_the_same(strategy, engine, monkeypatch):
    over(engine, monkeypatch)
    X, y = clouds(300, k=4)
    one, two = (svmcore.train_classes(X, y, 3.0, strategy=strategy, n_threads=n) for n in (1, 3))
    for mine, other in zip(one, two, strict=True):
        assert mine.solver == engine
        assert np.array_equal(mine.alpha, other.alpha)
        assert mine.intercept == other.intercept


@pytest.mark.parametrize("kernel", ["linear", "precomputed", "function", "wide"])
def test_pairs_share_one_matrix(kernel, monkeypatch):
    X, y = clouds(90)
    if kernel == "wide":
        X = np.repeat(X, 40, axis=1)
    words = {
        "linear": {"kernel": "linear"}, "precomputed": {"kernel": "precomputed"}, "wide": {"kernel": "rbf"},
        "function": {"kernel": lambda A, B: (A @ B.T + 1.0) ** 2},
    }[kernel]  # fmt: skip
    given = X @ X.T + 1.0 if kernel == "precomputed" else X
    asked = asked_of_the_solver(monkeypatch)
    found = svmcore.train_classes(given, y, 2.0, tol=1e-7, **words)
    assert not asked
    assert {machine.solver for machine in found} == {"small"}
    other = svmcore.train_classes(given, y, 2.0, tol=1e-7, solver="smo", **words)
    np.testing.assert_allclose(found.decision_function(given), other.decision_function(given), atol=1e-5)
    for mine, theirs in zip(found, other, strict=True):
        assert mine.objective == pytest.approx(theirs.objective, rel=1e-9)
        assert mine.params == theirs.params
        assert np.array_equal(mine.support_vectors, theirs.support_vectors)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_machines_with_nu_share_one_matrix(strategy, monkeypatch):
    X, y = clouds(150)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 150)
    asked = asked_of_the_solver(monkeypatch)
    words = {"nu": 0.3, "strategy": strategy, "sample_weight": weights, "tol": 1e-6}
    found = svmcore.train_classes(X, y, **words)
    assert not asked
    other = svmcore.train_classes(X, y, solver="block", **words)
    for mine, theirs in zip(found, other, strict=True):
        assert (mine.solver, mine.terms.nu) == ("small", 0.3)
        assert mine.converged
        assert mine.kkt_violation <= 1e-6
        assert pytest.approx(theirs.C, rel=1e-4) == mine.C
        assert mine.objective == pytest.approx(theirs.objective, rel=1e-4)
    np.testing.assert_allclose(found.decision_function(X), other.decision_function(X), atol=1e-3)


@pytest.mark.parametrize(
    ("uneven", "words", "said"),
    [
        (False, {"nu": [0.5, 0.5, 1.5]}, "nu=1.5 is out of range"),
        (False, {"nu": "half"}, "nu='half' is not a number"),
        (False, {"nu": 0.9, "C": 0.5}, "takes the place of C"),
        (True, {"nu": [0.5, 0.7, 0.5]}, "it can be at most 0.6"),
    ],
)
def test_a_nu_is_refused_for_machines_as_for_one(uneven, words, said):
    X, _ = clouds(150)
    refused(said, svmcore.train_classes, X, np.repeat([0, 1, 2], [70, 50, 30] if uneven else 50), **words)


def test_costs_that_overflow_are_hard_margins():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    X = rng.normal(size=(60, 2)) + 100.0 * np.column_stack([y == 0, y == 1])
    weights = np.full(60, 1e100)
    found = svmcore.train_classes(X, y, 1e300, sample_weight=weights, kernel="linear")
    hard = svmcore.train_classes(X, y, np.inf, sample_weight=weights, kernel="linear")
    for mine, theirs in zip(found, hard, strict=True):
        assert (mine.solver, mine.intercept, mine.objective) == (theirs.solver, theirs.intercept, theirs.objective)


@ENGINES
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_pairs_in_one_call(engine, monkeypatch):
    over(engine, monkeypatch)
    monkeypatch.setattr(between, "_AT_ONCE", 1.0)
    X, y = clouds(180)
    place = between._near.Room if engine == "block" else between.small.Batch
    solve = place.solve

    def interrupted(room, *problem):
        signal.raise_signal(signal.SIGINT)
        return solve(room, *problem)

    monkeypatch.setattr(place, "solve", interrupted)
    with pytest.warns(svmcore.ConvergenceWarning, match="2 of 3 machines; 'red' against 'blue': interrupted"):
        machines = svmcore.train_classes(X, y, n_threads=1)
    assert machines.status is Status.INTERRUPTED
    assert len(machines) == 3


def test_machines_that_are_put_together_later_are_those_of_the_rows_at_the_time():
    X, y = clouds(150)
    expected = [machine.support_vectors.copy() for machine in svmcore.train_classes(X, y)]
    steps = [machine.n_iter for machine in svmcore.train_classes(X, y)]
    rows = X.copy()
    found = svmcore.train_classes(rows, y)
    assert "machines" not in vars(found)
    assert found.converged
    assert found.n_iter.tolist() == steps
    assert "machines" not in vars(found)
    rows[:] = np.nan
    for machine, vectors in zip(pickle.loads(pickle.dumps(found)), expected, strict=True):
        assert np.array_equal(machine.support_vectors, vectors)
    assert "_later" not in vars(found)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = found.nothing


# ---- the class of every row from float32 values ----------------------------------------------------------------------


def machines_of(strategy, kernel="rbf", k=4, n=400, C=5.0, **how):
    X, y = clouds(n, k=k)
    return svmcore.train_classes(X, y, C, strategy=strategy, kernel=kernel, gamma=0.7, **how)


def asked_again(machines, X):
    """The classes of the rows, and how many rows float32 values left open."""
    counts = []

    def exactly(rows):
        counts.append(len(rows))
        return machines._values_of(rows)

    return machines._ballot.choose(X, exactly, 1), sum(counts)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
@pytest.mark.parametrize("strategy", ["ovo", "ovr"])
def test_classes_are_those_of_exact_values(strategy, kernel):
    machines = machines_of(strategy, kernel)
    X = np.random.default_rng(1).normal(size=(1500, 2)) * 3.0
    assert Ballot.serves(machines.support_vectors, X, machines.kernel)
    expected = machines.division.choose(machines._values(X))
    found, again = asked_again(machines, X)
    assert found.tolist() == expected.tolist()
    assert again < 60
    assert machines.predict(X).tolist() == machines.classes[expected].tolist()


@pytest.mark.parametrize("strategy", ["ovo", "ovr"])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_the_bound_on_values_holds(strategy, offset):
    X, y = clouds(700, k=3)
    machines = svmcore.train_classes(X + offset, y, 1e4, strategy=strategy, gamma=3.0)
    rows = offset + np.random.default_rng(2).normal(size=(500, 2)) * 4.0
    ballot = machines._ballot
    values, bound = ballot._values(rows, *ballot._room(512))
    error = np.abs(values.T.astype(float) - machines._values(rows))
    assert (error <= bound.T).all()
    assert error.max() > 1e-7  # single precision it is


def test_rows_on_a_tie_are_decided_by_exact_values():
    """Between two classes that mirror each other the exact value is zero, or rounding: float32 cannot tell."""
    X = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 5.0]]).repeat(2, axis=0) + np.array([[0.0, 0.5], [0.0, -0.5]] * 3)
    machines = svmcore.train_classes(X, [0, 0, 1, 1, 2, 2], 10.0, gamma=0.5, tol=1e-10)
    rows = np.zeros((100, 2))
    rows[:, 1] = np.linspace(-1.0, 1.0, 100)
    rows = np.concatenate([rows, np.random.default_rng(0).normal(size=(300, 2))])
    found, again = asked_again(machines, rows)
    assert 100 <= again < 120
    assert found.tolist() == machines.division.choose(machines._values(rows)).tolist()


def test_many_support_vectors_come_in_pieces():
    X, y = clouds(1400, k=3)
    noise = np.random.default_rng(3).permutation(y)
    machines = svmcore.train_classes(X, noise, 0.5, gamma=2.0)
    assert any(piece.adds for piece in machines._ballot.pieces)
    rows = np.random.default_rng(1).normal(size=(700, 2))
    found, _ = asked_again(machines, rows)
    assert found.tolist() == machines.division.choose(machines._values(rows)).tolist()


def test_the_estimator_asks_the_ballot(monkeypatch):
    pytest.importorskip("sklearn")
    X, y = clouds(300, k=3)
    machine = svmcore.SVC(C=5.0).fit(X, y)
    rows = np.random.default_rng(0).normal(size=(200, 2))
    expected = machine.classes_[np.argmax(machine.decision_function(rows), axis=1)]
    asked = []
    choose = Ballot.choose
    monkeypatch.setattr(Ballot, "choose", lambda *args: asked.append(1) or choose(*args))
    assert machine.predict(rows).tolist() == expected.tolist()
    assert asked == [1]
    machine.predict(rows[:10])  # few rows are not worth it
    assert asked == [1]
