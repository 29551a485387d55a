"""`probability=True` of SVC and NuSVC: probabilities as scikit-learn's, from values of rows that were left out."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn import svm
from sklearn.base import clone
from sklearn.datasets import load_wine, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from warned import heard, quiet

import svmcore
from svmcore.cv.calibration import models_of
from svmcore.estimators import _proba
from svmcore.models.sigmoid import coupled
from svmcore.problem.division import division

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore:.*robability:FutureWarning")]
rng = np.random.default_rng(3)
X = rng.normal(size=(120, 3))
TWO = np.where(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=120) > 0, "yes", "no")
THREE = np.array(["a", "b", "c"])[(1.5 * X[:, 0] + rng.normal(size=120)).round().clip(-1, 1).astype(int) + 1]
KINDS = ("SVC", "NuSVC")


def fitted(kind="SVC", y=TWO, points=X, **params):
    params |= {"nu": 0.3} if kind == "NuSVC" else {}
    return getattr(svmcore, kind)(probability=True, **params).fit(points, y)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", ["ovo", "ovr"])
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_rows_are_probabilities(kind, strategy, y):
    machine = fitted(kind, y, multi_class=strategy)
    p = machine.predict_proba(X)
    assert p.shape == (120, len(machine.classes_))
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    assert (p > 0.0).all()
    np.testing.assert_array_equal(machine.predict_log_proba(X), np.log(p))
    assert np.mean(machine.classes_[p.argmax(axis=1)] == machine.predict(X)) > 0.85
    assert np.array_equal(pickle.loads(pickle.dumps(machine)).predict_proba(X), p)


def test_the_sigmoid_is_that_of_values_of_rows_left_out():
    machine = fitted(gamma=0.4, tol=1e-9, random_state=5)
    owner = _proba.owners(machine, machine._rows)
    values = np.empty(120)
    for k in range(5):
        rest = svmcore.SVC(gamma=0.4, tol=1e-9).fit(X[owner != k], TWO[owner != k])
        values[owner == k] = rest.decision_function(X[owner == k])
        assert np.isin(["no", "yes"], TWO[owner == k]).all()
    model = models_of("sigmoid", values[None], (TWO == "yes")[None], np.ones(120))[0]
    expected = model.probability(machine.decision_function(X))
    np.testing.assert_allclose(machine.predict_proba(X)[:, 1], expected, atol=1e-6)


def test_coupled_probabilities_minimise_what_they_should():
    which = division(4, "ovo")
    pairs = rng.uniform(0.02, 0.98, (30, 6))
    p = coupled(pairs, which)

    def cost(row, q):
        return sum(
            (r * q[part.minus[0]] - (1.0 - r) * q[part.plus[0]]) ** 2 for r, part in zip(row, which.parts, strict=True)
        )

    for row, best in zip(pairs, p, strict=True):
        for other in rng.dirichlet(np.ones(4), 50):
            assert cost(row, best) <= cost(row, 0.999 * best + 0.001 * other) + 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["wine", "noisy", "rare"])
def test_log_loss_is_not_worse_than_that_of_scikit_learn(kind, name):
    points, y = {
        "wine": lambda: load_wine(return_X_y=True),
        "noisy": lambda: make_classification(400, n_informative=5, n_classes=3, flip_y=0.2, random_state=0),
        "rare": lambda: make_classification(500, weights=[0.9], flip_y=0.05, random_state=2),
    }[name]()
    points = (points - points.mean(axis=0)) / points.std(axis=0)
    params = {"probability": True} | ({"nu": 0.1} if kind == "NuSVC" else {})
    losses = []
    for seed in range(3):
        test = np.random.default_rng(seed).random(len(y)) < 0.3
        each = [getattr(module, kind)(**params, random_state=seed) for module in (svmcore, svm)]
        losses.append([log_loss(y[test], one.fit(points[~test], y[~test]).predict_proba(points[test])) for one in each])
    ours, theirs = np.mean(losses, axis=0)
    assert ours <= 1.03 * theirs


def test_random_state_decides_the_folds():
    a, b, c = (fitted(random_state=seed).predict_proba(X) for seed in (0, 0, 1))
    assert np.array_equal(a, b)
    assert not np.allclose(a, c, rtol=0.0, atol=1e-6)
    assert np.array_equal(a, fitted(random_state=None).predict_proba(X))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("probability", [True, False])
def test_the_parameter_is_deprecated(kind, probability):
    with pytest.warns(FutureWarning, match=f"`probability` parameter is deprecated.*CalibratedClassifierCV.{kind}"):
        getattr(svmcore, kind)(probability=probability).fit(X, TWO)


def test_without_it_there_are_none():
    machine = svmcore.SVC().fit(X, TWO)
    assert not hasattr(machine, "predict_proba")
    assert not hasattr(machine, "predict_log_proba")
    assert machine.probA_.size == machine.probB_.size == 0
    machine.probability = True
    with pytest.raises(NotFittedError, match="predict_proba is not available when fitted with probability=False"):
        machine.predict_proba(X)
    with pytest.raises(svmcore.InputError, match="probability='yes' is neither True nor False"):
        svmcore.SVC(probability="yes").fit(X, TWO)
    with pytest.raises(AttributeError, match="not fitted yet"):
        svmcore.SVC(probability=True).predict_proba(X)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_they_move_to_scikit_learn_and_back(kind, y):
    machine = fitted(kind, y)
    theirs = machine.to_sklearn()
    np.testing.assert_allclose(theirs.predict_proba(X), machine.predict_proba(X), atol=0.01)
    assert np.array_equal(theirs.probA_, machine.probA_)
    assert (machine.probA_ < 0.0).all()
    trained = clone(theirs).fit(X, y)
    ours = getattr(svmcore, kind).from_sklearn(trained)
    np.testing.assert_allclose(ours.predict_proba(X), trained.predict_proba(X), atol=0.01)
    assert np.array_equal(ours.probB_, trained.probB_)


def test_kernels_of_all_kinds_have_the_same_probabilities():
    from scipy import sparse

    expected = fitted(kernel="linear", tol=1e-9).predict_proba(X)
    function = fitted(kernel=lambda A, B: A @ B.T, tol=1e-9)
    np.testing.assert_allclose(function.predict_proba(X), expected, atol=1e-5)
    given = fitted(kernel="precomputed", points=X @ X.T, tol=1e-9)
    np.testing.assert_allclose(given.predict_proba(X @ X.T), expected, atol=1e-5)
    thin = fitted(kernel="linear", points=sparse.csr_matrix(X), tol=1e-9)
    np.testing.assert_allclose(thin.predict_proba(sparse.csr_matrix(X)), expected, atol=1e-5)


def test_rows_added_and_removed_count():
    rows = np.concatenate([X, X[:30] + 0.1]), np.concatenate([TWO, TWO[:30]])
    machine = fitted(gamma=0.4, tol=1e-9).partial_fit(rows[0][120:], rows[1][120:])
    whole = fitted(gamma=0.4, tol=1e-9, points=rows[0], y=rows[1])
    np.testing.assert_allclose(machine.predict_proba(X), whole.predict_proba(X), atol=1e-5)


def test_rare_classes_and_weights_of_zero():
    y = THREE.copy()
    y[:2], y[2:] = ["c", "b"], np.where(y[2:] == "c", "a", y[2:])  # one row of c
    machine = fitted(y=y)
    p = machine.predict_proba(X)
    assert np.isfinite(p).all()
    assert p[0, 2] > p[1:, 2].mean()
    weight = np.ones(120)
    weight[60:] = 0.0
    weighted = svmcore.SVC(probability=True, gamma=0.4).fit(X, TWO, sample_weight=weight)
    assert np.array_equal(weighted.probA_.shape, (1,))
    half = svmcore.SVC(probability=True, gamma=0.4).fit(X[:60], TWO[:60])
    np.testing.assert_allclose(weighted.predict_proba(X), half.predict_proba(X), atol=1e-5)


def test_folds_say_nothing_of_their_own():
    with heard() as caught:
        svmcore.NuSVC(probability=True, nu=0.9, random_state=0).fit(X, X[:, 0] > 0.8)
    kinds = [warning.category for warning in caught]
    assert kinds.count(FutureWarning) == 1
    assert len(kinds) == 2


def test_no_time_is_left_for_folds():
    with quiet():
        machine = svmcore.SVC(probability=True, time_limit=1e-9).fit(np.tile(X, (5, 1)), np.tile(TWO, 5))
    assert np.isfinite(machine.predict_proba(X)).all()


@pytest.mark.parametrize("strategy", ["ovo", "ovr"])
@pytest.mark.parametrize(
    ("kind", "kernel"), [("NuSVC", "rbf"), ("SVC", "rbf"), ("SVC", "linear"), ("SVC", "poly"), ("SVC", "precomputed")]
)
def test_machines_over_one_matrix_are_those_that_are_trained_one_by_one(kind, kernel, strategy, monkeypatch):
    points = X @ X.T if kernel == "precomputed" else X + 3.0
    weight = rng.choice([0.0, 1.0, 2.0], 120)
    params = {"kernel": kernel, "tol": 1e-8, "multi_class": strategy} | ({"nu": 0.2} if kind == "NuSVC" else {})
    machine = getattr(svmcore, kind)(probability=True, class_weight={"a": 2.0}, **params)
    whole = machine.fit(points, THREE, weight).predict_proba(points)
    monkeypatch.setattr(_proba, "_together", lambda *_: None)
    np.testing.assert_allclose(machine.fit(points, THREE, weight).predict_proba(points), whole, atol=2e-6)


@pytest.mark.filterwarnings("ignore:stationary")  # the sigmoid kernel
def test_which_machines_are_solved_over_one_matrix(monkeypatch):
    asked = []

    def counted(*args):
        asked.append(args[0])
        return original(*args)

    original = _proba._one_by_one
    monkeypatch.setattr(_proba, "_one_by_one", counted)
    for params in ({}, {"kernel": "poly"}, {"n_threads": 2}):
        fitted(**params)
        fitted(y=THREE, **params)
    fitted("NuSVC", THREE)
    assert not asked
    fitted(solver="smo")
    fitted(time_limit=60.0)
    fitted(kernel="sigmoid")
    fitted(C=np.inf, y=np.where(X[:, 0] > 0, "yes", "no"))
    assert len(asked) == 4


def test_an_interrupt_between_tasks_is_heard(monkeypatch):
    from svmcore.cv import left_out

    monkeypatch.setattr(
        left_out.Control, "reason", lambda self: left_out.Status.INTERRUPTED if self.name == "folds" else None
    )
    with pytest.raises(KeyboardInterrupt):
        fitted()
