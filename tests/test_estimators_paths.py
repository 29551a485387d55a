"""Estimators that know every C, Gaussian processes, and machines that come from scikit-learn or go there."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from conftest import DATA
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from scipy.sparse import csr_matrix
from sklearn import svm
from sklearn.exceptions import NotFittedError

import svmcore

rng = np.random.default_rng(1)
N = 90
X = rng.normal(size=(N, 3))
TWO = np.where(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=N) > 0, "yes", "no")
THREE = np.array(["a", "b", "c"])[(2.0 * X[:, 0] + 0.7 * rng.normal(size=N)).round().clip(-1, 1).astype(int) + 1]
NUMBERS = X[:, 0] ** 2 + X[:, 1] + 0.3 * rng.normal(size=N)
pytestmark = pytest.mark.once


def values(machine, points=X):
    return machine.decision_function(points) if hasattr(machine, "decision_function") else machine.predict(points)


def test_C_is_set_after_the_fit():
    machine = svmcore.SVCPath(gamma=0.4).fit(X, TWO)
    path = machine.path_
    for C in (0.03, 1.0, 77.0):
        machine.set_params(C=C)
        once = svmcore.SVC(C=C, gamma=0.4, tol=1e-10).fit(X, TWO)
        assert np.allclose(machine.decision_function(X), once.decision_function(X), atol=1e-6)
        assert np.array_equal(machine.support_, once.support_)
        assert np.allclose(machine.dual_coef_, once.dual_coef_, atol=1e-5)
        assert machine.kkt_violation_ < 1e-6
    assert machine.path_ is path
    refused("C=", machine.set_params(C=2000.0).predict, X)
    refused("Only binary classification is supported", svmcore.SVCPath().fit, X, THREE)
    again = pickle.loads(pickle.dumps(machine.set_params(C=1.0)))
    assert np.array_equal(again.decision_function(X), machine.decision_function(X))
    assert np.array_equal(again.set_params(C=3.0).predict(X), machine.set_params(C=3.0).predict(X))


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("rule", ["min", "1se"])
def test_C_by_exact_cross_validation(y, rule):
    machine = svmcore.SVCPathCV(cv=4, rule=rule, gamma=0.4, random_state=3).fit(X, y)
    curve = svmcore.cv_path(X, y, cv=4, gamma=0.4, random_state=3)
    assert machine.best_C_ == (curve.best_C if rule == "min" else curve.one_se_C)
    assert np.array_equal(machine.cv_.values, curve.values)
    once = svmcore.SVC(C=machine.best_C_, gamma=0.4, tol=1e-10).fit(X, y)
    assert np.allclose(machine.decision_function(X), once.decision_function(X), atol=1e-6)
    p = machine.predict_proba(X)
    assert p.shape == (N, len(machine.classes_))
    assert np.allclose(p.sum(axis=1), 1.0)
    assert np.allclose(p, curve.calibrate(C=machine.best_C_).predict_proba(X), atol=1e-3)
    assert np.allclose(np.exp(machine.predict_log_proba(X)), p)
    assert np.mean(machine.classes_[p.argmax(axis=1)] == machine.predict(X)) > 0.8
    assert np.array_equal(pickle.loads(pickle.dumps(machine)).predict_proba(X), p)


def test_gammas_and_kernels_of_a_cross_validation():
    machine = svmcore.SVCPathCV(cv=3, gamma=[0.1, 1.0]).fit(X, TWO)
    assert machine.best_gamma_ in (0.1, 1.0)
    assert machine._gamma == machine.best_gamma_
    function = svmcore.SVCPathCV(cv=3, kernel=lambda A, B: np.exp(-0.5 * ((A[:, None] - B) ** 2).sum(axis=2)), tol=1e-9)
    own = svmcore.SVCPathCV(cv=3, gamma=0.5, tol=1e-9)
    assert np.allclose(function.fit(X, TWO).decision_function(X), own.fit(X, TWO).decision_function(X), atol=1e-5)
    with pytest.warns(UserWarning, match="cv=5 folds need as many rows of every class, and y holds 3 of one"):
        svmcore.SVCPathCV().fit(X[:20], np.arange(20) < 3)


@pytest.mark.parametrize(("loss", "more"), [("epsilon_insensitive", {"epsilon": 0.2}), ("pinball", {"quantile": 0.7})])
def test_regressions_by_exact_cross_validation(loss, more):
    machine = svmcore.SVRPathCV(cv=3, loss=loss, gamma=0.4, C_max=20.0, **more).fit(X, NUMBERS)
    words = {"tau" if name == "quantile" else name: value for name, value in more.items()}
    curve = svmcore.cv_path(X, NUMBERS, cv=3, loss=loss, gamma=0.4, C_max=20.0, **words)
    assert machine.best_C_ == curve.best_C
    kind = svmcore.QuantileSVR if loss == "pinball" else svmcore.SVR
    assert np.allclose(
        machine.predict(X), kind(C=machine.best_C_, gamma=0.4, **more).fit(X, NUMBERS).predict(X), atol=1e-6
    )


def test_rows_are_added_and_removed_by_fitting_again():
    machine = svmcore.SVCPath(gamma=0.4).fit(X[:80], TWO[:80]).partial_fit(X[80:], TWO[80:]).forget([0, 1])
    whole = svmcore.SVCPath(gamma=0.4).fit(X[2:], TWO[2:])
    assert np.allclose(machine.decision_function(X), whole.decision_function(X), atol=1e-7)


def test_gaussian_processes():
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    theirs = GaussianProcessRegressor(RBF(1.3), alpha=0.1, optimizer=None).fit(X, NUMBERS)
    for solver in ("auto", "cg"):
        machine = svmcore.GPRegressor(noise=0.1, gamma=0.5 / 1.3**2, solver=solver, tol=1e-10).fit(X, NUMBERS)
        mean, deviation = machine.predict(X + 0.3, return_std=True)
        expected, spread = theirs.predict(X + 0.3, return_std=True)
        assert np.allclose(mean, expected, atol=1e-6)
        assert np.allclose(deviation, spread, atol=1e-5)
        assert machine.gp_.lower <= machine.gp_.upper * (1.0 + 1e-9)
        assert np.array_equal(pickle.loads(pickle.dumps(machine)).predict(X), machine.predict(X))


# ---- to scikit-learn and from it ---------------------------------------------------------------------------------------

MOVED = [
    ("SVC", {}, TWO), ("SVC", {}, THREE), ("SVC", {"kernel": "linear"}, THREE), ("SVC", {"kernel": "poly"}, TWO),
    ("NuSVC", {"nu": 0.1}, THREE), ("SVR", {}, NUMBERS), ("NuSVR", {"kernel": "sigmoid", "gamma": 0.01}, NUMBERS),
    ("OneClassSVM", {}, None), ("LinearSVC", {}, TWO), ("LinearSVC", {}, THREE), ("LinearSVR", {}, NUMBERS),
    ("SVC", {"kernel": lambda A, B: A @ B.T}, THREE),
]  # fmt: skip


@pytest.mark.parametrize(("name", "params", "y"), MOVED)
@pytest.mark.parametrize("kind", [np.array, csr_matrix], ids=["dense", "sparse"])
def test_machines_move_both_ways(name, params, y, kind):
    if callable(params.get("kernel")) and kind is csr_matrix:
        pytest.skip("the function is for arrays")
    A = kind(X)
    ours, theirs = getattr(svmcore, name)(**params).fit(A, y), getattr(svm, name)(**params).fit(A, y)
    here, there = getattr(svmcore, name).from_sklearn(theirs), ours.to_sklearn()
    assert type(there) is type(theirs)
    assert type(here) is type(ours)
    assert np.allclose(values(here, A), values(theirs, A), rtol=1e-10, atol=1e-10)
    assert np.allclose(values(there, A), values(ours, A), rtol=1e-10, atol=1e-10)
    if y is not NUMBERS:
        assert np.array_equal(here.predict(A), theirs.predict(A))
    if not name.startswith("Linear"):
        assert np.isnan(here.dual_gap_)
        for attribute in ("support_", "dual_coef_", "intercept_", "n_support_"):
            a, b = getattr(here, attribute), getattr(theirs, attribute)
            assert np.array_equal(*(each.toarray() if hasattr(each, "toarray") else each for each in (a, b)))
    if not callable(params.get("kernel")):
        assert np.array_equal(values(pickle.loads(pickle.dumps(here)), A), values(here, A))


def test_what_cannot_move_is_refused():
    refused('multi_class="ovr" has none', svmcore.SVC(multi_class="ovr").fit(X, THREE).to_sklearn)
    refused("no kernel 'laplacian'", svmcore.SVC(kernel="laplacian").fit(X, TWO).to_sklearn)
    with pytest.raises(svmcore.InputError, match=r"SVC.from_sklearn takes a fitted sklearn.svm.SVC, and got SVR"):
        svmcore.SVC.from_sklearn(svm.SVR().fit(X, NUMBERS))
    for name in ("SVC", "LinearSVC", "OneClassSVM"):
        with pytest.raises(NotFittedError, match=f"this {name} is not fitted yet; fit it first"):
            getattr(svmcore, name).from_sklearn(getattr(svm, name)())
    refused("scikit-learn has no QuantileSVR", svmcore.QuantileSVR.from_sklearn, svm.SVR().fit(X, NUMBERS))


def test_machines_of_every_C_move_too():
    machine = svmcore.SVCPathCV(cv=3, gamma=[0.1, 0.4]).fit(X, THREE)
    assert np.allclose(machine.to_sklearn().decision_function(X), machine.decision_function(X), atol=1e-10)
    assert machine.best_C_ == machine.to_sklearn().C


# ---- any labels, weights, repeated rows --------------------------------------------------------------------------------


@given(st.data())
def test_any_small_problem_is_solved_as_scikit_learn_solves_it(data):
    n = data.draw(st.integers(3, 12), label="n")
    kinds = [[False, True], ["b", "a"], ["x", "y", "zz"], [3, -1, 7, 0], [0.0, 1.0], list("abcdefgh")]
    labels = data.draw(st.sampled_from(kinds), label="labels")
    y = np.array(data.draw(st.lists(st.sampled_from(labels), min_size=n, max_size=n), label="y"))
    points = data.draw(
        st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=n, max_size=n), label="points"
    )
    A = np.array(points, dtype=float)
    w = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, 1.0, 2.0, 0.5]), min_size=n, max_size=n), label="w"))
    C = data.draw(st.sampled_from([0.01, 1.0, 30.0]), label="C")
    form = {"C": C, "gamma": 0.3, "kernel": data.draw(st.sampled_from(["rbf", "linear"]), label="kernel"), "tol": 1e-9}
    ours, theirs = svmcore.SVC(**form), svm.SVC(**form)
    present = np.unique(y[w > 0])
    if present.size < np.unique(y).size or present.size < 2:
        refused("class", ours.fit, A, y, w)
        return
    ours.fit(A, y, w)
    theirs.fit(A, y, w)
    assert np.array_equal(ours.classes_, theirs.classes_)
    assert ours.classes_.dtype == theirs.classes_.dtype
    assert ours.converged_
    f, g = (np.asarray(each._fitted.coef) if each is ours else each for each in (ours, theirs))
    assert f.shape[0] == present.size * (present.size - 1) // 2
    assert g.fit_status_ == 0
    for machine in ours._fitted.machines:  # certified: no other answer is better by more than this
        assert machine.gap <= 1e-6 * (1.0 + abs(machine.primal_objective))
    rows = np.linspace(-3.0, 3.0, 10).reshape(5, 2)
    a, b = (
        each.set_params(decision_function_shape="ovo").decision_function(rows).reshape(5, -1) for each in (ours, theirs)
    )
    free = np.array([((m.alpha > 1e-7) & (m.alpha < C * 0.49)).any() for m in ours._fitted.machines])
    assert np.allclose(a[:, free], b[:, free], atol=1e-4 * (1.0 + np.abs(b).max()))


# ---- real data ---------------------------------------------------------------------------------------------------------


def stored(name):
    file = DATA / f"{name}.npz"
    if not file.is_file():
        pytest.skip(f"data set {name!r} not found in {DATA} (set SVMCORE_DATA)")
    with np.load(file, allow_pickle=False) as found:
        A, y = found["X"].astype(float), found["y"]
    spread = A.std(axis=0)
    return (A - A.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0), y


@pytest.mark.slow
@pytest.mark.parametrize("data", ["glass", "vehicle", "vowel", "satellite"])
@pytest.mark.parametrize(
    "form", [{}, {"kernel": "linear", "C": 0.1}, {"C": 100.0, "decision_function_shape": "ovo"}], ids=str
)
def test_several_classes_of_real_data(data, form):
    A, y = stored(f"classes/{data}")
    ours, theirs = (library.SVC(tol=1e-7, **form).fit(A, y) for library in (svmcore, svm))
    ours.set_params(decision_function_shape="ovo")
    theirs.set_params(decision_function_shape="ovo")
    f, g = ours.decision_function(A), theirs.decision_function(A)
    assert np.allclose(f, g, atol=1e-4 * (1.0 + np.abs(g).max()))
    sure = np.abs(f).min(axis=1) > 1e-4
    assert np.array_equal(ours.predict(A)[sure], theirs.predict(A)[sure])
    assert np.array_equal(ours.classes_, theirs.classes_)


@pytest.mark.slow
@pytest.mark.parametrize("data", ["boston", "ozone"])
@pytest.mark.parametrize(
    ("name", "form"), [("SVR", {}), ("SVR", {"kernel": "linear"}), ("NuSVR", {"nu": 0.3}), ("LinearSVR", {})]
)
def test_regressions_of_real_data(data, name, form):
    A, y = stored(f"targets/{data}")
    y = (y - y.mean()) / y.std()
    more = {"max_iter": 10**6, "random_state": 0} if name == "LinearSVR" else {}
    ours = getattr(svmcore, name)(tol=1e-7, **form).fit(A, y)
    theirs = getattr(svm, name)(tol=1e-7, **form, **more).fit(A, y)
    assert np.allclose(ours.predict(A), theirs.predict(A), atol=1e-4)
