"""The class of every row from float32 values: what is proved there is right, and what is not is asked again."""

from __future__ import annotations

import numpy as np
import pytest
from test_cv_classes import clouds

import svmcore
from svmcore.train.ballot import Ballot

pytestmark = pytest.mark.compiled


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
