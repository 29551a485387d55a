"""Estimators: scikit-learn's own checks, equality with its machines, and the exact changes they do not have."""

from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import sklearn
from checkouts import ran
from oracle_linear import liblinear
from refusals import refused
from scipy import sparse
from sklearn import datasets, model_selection, svm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import check_estimator
from warned import heard, quiet

import svmcore
from svmcore import estimators

pytestmark = pytest.mark.once
rng = np.random.default_rng(0)
N = 150
X = rng.normal(size=(N, 3))
TWO = np.where(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=N) > 0, "yes", "no")
THREE = np.array(["a", "b", "c"])[(2.0 * X[:, 0] + 0.7 * rng.normal(size=N)).round().clip(-1, 1).astype(int) + 1]
NUMBERS = X[:, 0] ** 2 + X[:, 1] + 0.3 * rng.normal(size=N)
WEIGHTS = rng.integers(0, 4, N).astype(float)
SINGLE = 2e-6  # LIBSVM keeps kernel values in single precision
TIGHT = {"gamma": 0.4, "tol": 1e-10}
OLD = tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 7)
since_1_7 = pytest.mark.skipif(OLD, reason="scikit-learn does it since 1.7")
CASES = {
    "SVC": [({"C": 3.0}, TWO), ({"C": 3.0}, THREE), ({"kernel": "linear", "class_weight": {"a": 2.0}}, THREE)],
    "NuSVC": [({"nu": 0.6}, TWO), ({"nu": 0.2}, THREE)],
    "SVR": [({"C": 2.0}, NUMBERS), ({"kernel": "linear", "epsilon": 0.3}, NUMBERS)],
    "NuSVR": [({"nu": 0.3}, NUMBERS), ({"nu": 0.6, "C": 0.3, "kernel": "linear"}, NUMBERS)],
    "OneClassSVM": [({"nu": 0.2}, None), ({"nu": 0.7, "kernel": "poly", "coef0": 1.0}, None)],
}


def shown(value):
    return None if value is None or isinstance(value, np.ndarray) else str(value)


def values(machine, points=X):
    return machine.decision_function(points) if hasattr(machine, "decision_function") else machine.predict(points)


# ---- scikit-learn's checks -------------------------------------------------------------------------------------------


VARIANTS = [
    ("SVC", {"kernel": "precomputed"}), ("SVC", {"kernel": "poly"}), ("SVC", {"multi_class": "ovr"}),
    ("SVR", {"kernel": "precomputed"}), ("LinearSVC", {"class_weight": "balanced"}), ("LinearSVC", {"loss": "hinge"}),
    ("GPRegressor", {"solver": "cg"}), ("SVCPath", {"kernel": "precomputed"}),
]  # fmt: skip


TWINS = ("NuSVC", "SVRPathCV")  # of others that are checked: they take longest


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "params"),
    [
        *(pytest.param(name, {}, marks=pytest.mark.ci if name in TWINS else ()) for name in estimators.__all__),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in VARIANTS),
    ],
    ids=str,
)
def test_checks_of_scikit_learn(name, params):
    results = check_estimator(getattr(svmcore, name)(**params), on_fail=None, on_skip=None)
    assert len(results) > 40
    failed = [each["check_name"] for each in results if each["status"] in ("failed", "xfail")]
    if OLD and name == "SVCPath":  # the check of 1.6 gives the two data sets of two classes different labels
        failed = [check for check in failed if not check.startswith("check_sample_weight_equivalence")]
    assert failed == []


def test_without_the_extra_a_sentence_names_it():
    program = (
        "import sys; sys.modules['sklearn'] = None\nimport svmcore\nfrom svmcore import *\n"
        "try:\n    svmcore.SVC\nexcept ImportError as error:\n    print(error)"
    )
    assert 'pip install "svmcore[sklearn]"' in ran(program)[0]


def test_more_than_two_classes_are_refused_before_the_shape_of_a_kernel_is():
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        svmcore.SVCPath(kernel="precomputed").fit(X[:, :2], np.arange(len(X)) % 3)


# ---- equality with scikit-learn --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.compiled
def test_usps_is_that_of_scikit_learn():
    """Ten digits of 256 features: objectives of all pairs to 1e-9, and the same classes."""
    file = Path(os.environ.get("SVMCORE_DATA", Path(__file__).parents[2] / "shared" / "data")) / "classes" / "usps.npz"
    if not file.is_file():
        pytest.skip(f"{file} is not there (set SVMCORE_DATA)")
    with np.load(file) as stored:
        rows, labels = stored["X"].astype(float), stored["y"]
    some = np.random.default_rng(0).permutation(len(rows))
    own, peer = (kind(C=10.0, tol=1e-8).fit(rows[some[:1500]], labels[some[:1500]]) for kind in (svmcore.SVC, svm.SVC))
    values = own.decision_function(rows[some])
    sure = np.diff(np.sort(values, axis=1)[:, -2:], axis=1)[:, 0] > 1e-6
    assert sure.mean() > 0.99
    assert (own.predict(rows[some]) == peer.predict(rows[some]))[sure].all()
    for mine, other in zip(own._fitted.machines, svmcore.SVC.from_sklearn(peer)._fitted.machines, strict=True):
        K = rbf_kernel(other.support_vectors, gamma=own._gamma)
        objective = 0.5 * other.dual_coef @ K @ other.dual_coef - np.abs(other.dual_coef).sum()
        assert mine.objective == pytest.approx(objective, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "params", "y"), [(name, *case) for name, cases in CASES.items() for case in cases], ids=shown
)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_attributes_and_values_are_those_of_scikit_learn(name, params, y, sparse):
    from scipy.sparse import csr_matrix

    A = csr_matrix(X) if sparse else X
    ours = getattr(svmcore, name)(**TIGHT, **params).fit(A, y)
    theirs = getattr(svm, name)(**TIGHT, **params).fit(A, y)
    assert ours.converged_
    assert ours.kkt_violation_ <= 1e-10
    assert ours.dual_gap_ <= 1e-6
    for attribute in ("support_", "n_support_", "support_vectors_", "dual_coef_", "intercept_", "coef_"):
        if not hasattr(theirs, attribute):
            assert not hasattr(ours, attribute)
            continue
        a, b = getattr(ours, attribute), getattr(theirs, attribute)
        assert type(a).__name__.replace("matrix", "array") == type(b).__name__.replace("matrix", "array")
        a, b = (value.toarray() if hasattr(value, "toarray") else value for value in (a, b))
        assert a.shape == b.shape
        assert np.allclose(a, b, rtol=1e-4, atol=1e-5 * (1.0 + np.abs(b).max(initial=0.0)))
    assert ours.fit_status_ == theirs.fit_status_
    assert ours.shape_fit_ == theirs.shape_fit_
    assert np.shape(ours.n_iter_) == np.shape(theirs.n_iter_)
    if hasattr(theirs, "classes_"):
        assert np.array_equal(ours.classes_, theirs.classes_)
        assert np.allclose(ours.class_weight_, theirs.class_weight_)
    f, g = values(ours), values(theirs)
    assert np.allclose(f, g, rtol=1e-5, atol=SINGLE * (1.0 + np.abs(g).max()))
    if y is not NUMBERS:
        sure = np.abs(f).reshape(N, -1).min(axis=1) > 1e-6
        assert np.array_equal(ours.predict(X)[sure], theirs.predict(X)[sure])


@pytest.mark.parametrize("C", [0.1, 10.0, 1000.0])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_objectives_are_equal_to_nine_digits(C, kernel):
    form = {"kernel": kernel, "gamma": 0.4, "C": C}
    for name, y, more in (("SVC", TWO, {}), ("SVR", NUMBERS, {"epsilon": 0.1})):
        measured = []
        for library in (svmcore, svm):
            machine = getattr(library, name)(**form, **more, tol=1e-10).fit(X, y)
            coef = np.zeros(N)
            coef[machine.support_] = np.abs(machine.dual_coef_[0]) if name == "SVC" else machine.dual_coef_[0]
            measured.append(svmcore.certificate(X, y, coef, float(machine.intercept_[0]), **form, **more))
        ours, theirs = measured
        assert ours.infeasibility <= 1e-9 * C
        assert ours.objective <= theirs.objective + 1e-9 * abs(theirs.objective)
        if C <= 10.0:  # beyond, theirs feels its single precision
            assert ours.objective == pytest.approx(theirs.objective, rel=1e-9)
        assert ours.primal_objective <= theirs.primal_objective * (1.0 + 1e-9)


@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("params", [{"decision_function_shape": "ovo"}, {"break_ties": True}])
def test_shapes_of_decisions(y, params):
    ours, theirs = svmcore.SVC(**TIGHT, **params).fit(X, y), svm.SVC(**TIGHT, **params).fit(X, y)
    assert np.allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-6)
    assert np.array_equal(ours.predict(X), theirs.predict(X))


def test_one_against_the_rest_is_trained():
    from sklearn.multiclass import OneVsRestClassifier

    ours = svmcore.SVC(**TIGHT, multi_class="ovr").fit(X, THREE)
    theirs = OneVsRestClassifier(svm.SVC(**TIGHT)).fit(X, THREE)
    assert np.allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-6)
    assert np.array_equal(ours.predict(X), theirs.predict(X))
    assert ours.dual_coef_.shape == (3, ours.support_.size)
    with pytest.raises(svmcore.InputError, match="shows the machines of pairs of classes"):
        ours.set_params(decision_function_shape="ovo").decision_function(X)


def test_weights_are_repetitions_and_negative_ones_take_rows_away():
    twice = svmcore.SVC(tol=1e-10).fit(np.repeat(X, WEIGHTS.astype(int), axis=0), np.repeat(TWO, WEIGHTS.astype(int)))
    weighted = svmcore.SVC(tol=1e-10).fit(X, TWO, np.where(WEIGHTS > 0, WEIGHTS, -1.0))
    assert np.allclose(twice.decision_function(X), weighted.decision_function(X), atol=1e-7)
    theirs = svm.SVC(tol=1e-10, gamma=weighted._gamma).fit(X, TWO, np.where(WEIGHTS > 0, WEIGHTS, -1.0))
    assert np.allclose(theirs.decision_function(X), weighted.decision_function(X), atol=1e-6)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def test_support_vectors_are_training_rows():
    rows = X[:, :3] + 1e3  # so far from zero that a linear machine is trained on moved rows
    for estimator, y in ((svmcore.SVC(kernel="linear"), X[:, 0] > 0), (svmcore.SVR(kernel="linear"), X[:, 1])):
        fitted = estimator.fit(rows, y)
        np.testing.assert_array_equal(fitted.support_vectors_, rows[fitted.support_])


def test_kernel_values_of_all_rows_or_of_support_vectors():
    K = np.exp(-0.4 * ((X[:, None] - X) ** 2).sum(axis=2))
    for y in (TWO, THREE):
        given, own = svmcore.SVC(kernel="precomputed", tol=1e-10).fit(K, y), svmcore.SVC(**TIGHT).fit(X, y)
        assert np.allclose(given.decision_function(K), own.decision_function(X), atol=1e-6)
        assert np.array_equal(given.predict(K[:, given.support_]), given.predict(K))
        assert given.support_vectors_.size == 0
        refused("values of all training rows, or of the", given.predict, K[:, :2])


@since_1_7
@pytest.mark.parametrize("kind", ["numbers", "strings"])
def test_a_class_for_every_row(kind):
    """Labels of many rows that are all different are classes, as scikit-learn takes them; it warns of them."""
    points = np.random.default_rng(5).normal(size=(24, 2))
    labels = 7 * np.arange(24) if kind == "numbers" else np.array([f"class {k:02}" for k in range(24)])
    with pytest.warns(UserWarning, match="greater than 50%"):
        machine = svmcore.SVC(C=10.0).fit(points, labels)
    assert np.array_equal(machine.predict(points), labels)
    with quiet():
        peer = svm.SVC(C=10.0, tol=1e-8).fit(points, labels)
    assert np.array_equal(machine.classes_, peer.classes_)
    assert np.allclose(machine.decision_function(points), peer.decision_function(points), atol=1e-5)


def test_who_takes_no_objects_says_who_does():
    objects = [object() for _ in range(20)]
    with pytest.raises(svmcore.InputError, match=r"read as numbers .*for other objects give their kernel values"):
        svmcore.GPRegressor(kernel=lambda A, B: np.ones((len(A), len(B)))).fit(objects, np.arange(20.0))
    with pytest.raises(TypeError, match="'object'"):
        svmcore.GPRegressor().fit(objects, np.arange(20.0))
    with pytest.raises(svmcore.InputError, match=r"read as numbers .*svmcore.SVC take any objects with a kernel"):
        svmcore.train_svc(objects, np.arange(20) % 2, kernel=lambda A, B: np.ones((len(A), len(B))))


def test_kernel_functions_over_objects_that_are_no_numbers():
    words = ["aab", "ab", "b", "bb", "abbb", "aaab", "ba", "bbb"]
    labels = ["a", "a", "b", "b", "b", "a", "a", "b"]
    asked = []

    def spectrum(A, B):
        asked.append((len(A), len(B)))
        assert all(isinstance(word, str) for word in [*A, *B])
        return np.array([[sum(u.count(x) * v.count(x) for x in "ab") for v in B] for u in A], dtype=float)

    machine = svmcore.SVC(kernel=spectrum, C=10.0).fit(words, labels)
    assert machine.shape_fit_ == (8,)
    assert list(machine.predict(["aaa", "bbbbb"])) == ["a", "b"]
    assert asked[-1] == (2, len(machine.support_))
    assert len(machine.support_) < len(words)
    counts = np.array([[word.count("a"), word.count("b")] for word in words], dtype=float)
    linear = svmcore.SVC(kernel="linear", C=10.0).fit(counts, labels)
    assert np.allclose(machine.decision_function(words), linear.decision_function(counts), atol=1e-6)
    again = machine.partial_fit(["aabb"], ["a"]).forget([0])
    anew = svmcore.SVC(kernel=spectrum, C=10.0).fit([*words[1:], "aabb"], [*labels[1:], "a"])
    assert np.allclose(again.decision_function(words), anew.decision_function(words), atol=1e-6)
    regression = svmcore.SVR(kernel=spectrum).fit(words, counts[:, 0])
    assert np.allclose(regression.predict(words), counts[:, 0], atol=0.2)


def test_a_kernel_function_is_held_to_its_shape():
    refused(r"returned shape \(150, 3\) for 150 and 150 objects", svmcore.SVC(kernel=lambda A, B: A).fit, X, TWO)
    refused("NaN or infinity", svmcore.SVC(kernel=lambda A, B: np.full((len(A), len(B)), np.nan)).fit, X, TWO)


# ---- rows added and removed ------------------------------------------------------------------------------------------

CHANGES = [(name, *case) for name, cases in CASES.items() for case in cases]
CHANGES += [("SVC", {"multi_class": "ovr"}, THREE), ("SVC", {"class_weight": "balanced"}, TWO)]
CHANGES += [("QuantileSVR", {"quantile": 0.3}, NUMBERS), ("LinearSVC", {}, THREE)]
CHANGES += [("LinearSVC", {"class_weight": {"a": 3.0}}, THREE), ("LinearSVC", {"penalty": "l1"}, TWO)]


@pytest.mark.parametrize(("name", "params", "y"), CHANGES, ids=shown)
def test_rows_added_and_removed_give_the_machine_of_all_rows(name, params, y):
    machine = getattr(svmcore, name)(**(TIGHT if name != "LinearSVC" else {"tol": 1e-10}), **params)
    whole, cut, gone = clone(machine), 110, np.array([3, 5, 120])
    for rows in (slice(None, cut), slice(cut, None)):
        machine.partial_fit(X[rows], None if y is None else y[rows], sample_weight=WEIGHTS[rows])
    assert np.allclose(values(machine), values(whole.fit(X, y, WEIGHTS)), atol=1e-6)
    assert machine.forget(gone) is machine
    rest = np.setdiff1d(np.arange(N), gone)
    whole.fit(X[rest], None if y is None else y[rest], sample_weight=WEIGHTS[rest])
    assert np.allclose(values(machine), values(whole), atol=1e-6)
    assert name == "LinearSVC" or machine.shape_fit_ == (N - 3, 3)
    if name in ("SVC", "SVR", "QuantileSVR") and params.get("class_weight") != "balanced":
        assert {each.solver for each in machine._fitted.machines} == {"simple"}  # moved, and not trained anew


def test_what_cannot_be_changed_is_refused():
    machine = svmcore.SVC().fit(X, TWO)
    refused(r"y contains 'maybe', and the classes of the first rows are", machine.partial_fit, X[:2], ["maybe", "yes"])
    refused("names all rows of a class", machine.forget, np.flatnonzero(TWO == "yes"))
    refused("does not carry its training data", pickle.loads(pickle.dumps(machine)).forget, [0])
    given = svmcore.SVC(kernel="precomputed").fit(X @ X.T, TWO)
    assert not hasattr(given, "partial_fit")
    rest = np.arange(1, N)
    anew = svmcore.SVC(kernel="precomputed").fit((X @ X.T)[np.ix_(rest, rest)], TWO[1:])
    assert np.allclose(given.forget([0]).dual_coef_, anew.dual_coef_)
    with pytest.raises(ValueError, match="NaN"):
        given.predict(np.full((1, N - 1), np.nan))


# ---- words and warnings ----------------------------------------------------------------------------------------------


def test_a_machine_without_probabilities_names_the_way_to_them():
    for name in ("SVC", "SVCPath"):
        assert not hasattr(getattr(svmcore, name)(), "predict_proba")
        with pytest.raises(
            AttributeError,
            match=rf"'{name}' object has no attribute 'predict_proba'; use svmcore\.SVCPathCV.*CalibratedC",
        ):
            getattr(svmcore, name)().predict_proba(X)


def test_a_linear_machine_that_is_stopped_says_so_in_its_own_words():
    rows = np.random.default_rng(1).normal(size=(300, 4)) * [1e3, 1.0, 1e-3, 1e5]
    with pytest.warns(svmcore.ConvergenceWarning, match=r"^Stopped at max_iter=1 passes.*Scale the features") as caught:
        svmcore.LinearSVC(C=1e4, loss="hinge", max_iter=1).fit(rows, rows[:, 1] > 0.1 * rows[:, 0])
    assert not any("iblinear" in str(warning.message) or "(-1" in str(warning.message) for warning in caught)


def test_many_machines_of_scikit_learn_take_further_rows():
    from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier

    for kind in (OneVsRestClassifier, OneVsOneClassifier):
        assert hasattr(kind(svmcore.SVC()), "partial_fit")
        assert not hasattr(kind(svm.SVC()), "partial_fit")


def test_a_warning_is_of_both_kinds_and_points_at_the_caller():
    from sklearn.exceptions import ConvergenceWarning

    with heard() as caught:
        machine = svmcore.SVC(max_iter=1).fit(X, TWO)
    (warning,) = caught
    assert issubclass(warning.category, ConvergenceWarning)
    assert issubclass(warning.category, svmcore.ConvergenceWarning)
    assert str(warning.message).startswith("Solver terminated early (max_iter=1).  Consider pre-processing")
    assert warning.filename == __file__
    assert machine.fit_status_ == 1
    assert not machine.converged_


def test_an_infeasible_nu_is_named_with_its_range():
    y = np.array([0] * 5 + [1] * 25)
    with pytest.warns(
        svmcore.ConvergenceWarning, match=r"nu is infeasible: nu=0.5, and for 1 against 0 it can be at most 0.333"
    ):
        machine = svmcore.NuSVC(gamma=1.0).fit(X[:30], y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        less = svmcore.NuSVC(gamma=1.0, nu=0.333).fit(X[:30], y)
    assert machine._fitted.found.C < less._fitted.found.C


# ---- linear machines -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"intercept_scaling": 3.0},
        {"fit_intercept": False},
        pytest.param({"class_weight": "balanced"}, marks=since_1_7),  # balanced weights count those of the samples
    ],
)
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_linear_classifiers_are_those_of_liblinear(loss, more, y):
    C = 0.1
    ours = svmcore.LinearSVC(loss=loss, C=C, tol=1e-10, **more).fit(X, y, WEIGHTS)
    how = {"tol": 1e-12, "max_iter": 20_000, "dual": loss == "hinge", "random_state": 0}
    with quiet():  # at such a tolerance theirs stops by its limit only
        theirs = svm.LinearSVC(loss=loss, C=C, **how, **more).fit(X, y, WEIGHTS)
    assert ours.converged_
    assert ours.coef_.shape == theirs.coef_.shape
    assert np.allclose(ours.coef_, theirs.coef_, atol=1e-6)
    assert np.allclose(ours.intercept_, theirs.intercept_, atol=1e-6)
    f = ours.decision_function(X)
    assert np.allclose(f, theirs.decision_function(X), atol=1e-5)
    best = np.sort(np.stack([f, 0.0 * f], axis=1) if f.ndim == 1 else f, axis=1)
    sure = best[:, -1] - best[:, -2] > 1e-5
    assert np.array_equal(ours.predict(X)[sure], theirs.predict(X)[sure])
    for row in range(len(ours.coef_)):  # nobody is better, by LIBLINEAR's own objective
        own = np.where(y == (ours.classes_[1] if len(ours.coef_) == 1 else ours.classes_[row]), 1, 0)
        costs = C * WEIGHTS * ours.class_weight_[np.searchsorted(ours.classes_, y)]
        if more.get("class_weight") is None:
            tau = more.get("intercept_scaling", more.get("fit_intercept", 1.0))
            a, b = (liblinear(each, row, X, own, costs, loss, tau) for each in (ours, theirs))
            assert a == pytest.approx(b, rel=1e-9)


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
def test_linear_regressions_are_those_of_liblinear(loss):
    ours = svmcore.LinearSVR(loss=loss, C=0.5, epsilon=0.2, tol=1e-10).fit(X, NUMBERS)
    with quiet():
        theirs = svm.LinearSVR(loss=loss, C=0.5, epsilon=0.2, tol=1e-12, max_iter=20_000, random_state=0).fit(
            X, NUMBERS
        )
    assert np.allclose(ours.coef_, theirs.coef_, atol=1e-6)
    assert np.allclose(ours.intercept_, theirs.intercept_, atol=1e-6)
    assert np.allclose(ours.predict(X), theirs.predict(X), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("LinearSVC", {"penalty": "l1", "dual": True}, "are not supported when dual=True"),
        ("LinearSVC", {"penalty": "l1", "loss": "hinge"}, "penalty='l1' and loss='hinge' are not supported"),
        ("LinearSVC", {"penalty": "l1", "C": np.inf}, "C=inf with penalty='l1' has no dual certificate"),
        ("LinearSVC", {"penalty": "l1", "solver": "smo"}, "solver='smo' cannot find weights with penalty='l1'"),
        ("LinearSVC", {"penalty": "l0"}, "penalty 'l0' is not known"),
        ("LinearSVC", {"multi_class": "crammer_singer"}, "makes one problem of all classes"),
        ("LinearSVC", {"loss": "hinge", "dual": False}, "are not supported when dual=False"),
        ("LinearSVC", {"intercept_scaling": 0.0}, "intercept_scaling=0.0 is out of range"),
        ("SVC", {"C": -1.0}, "C=-1.0 is out of range"),
        ("SVC", {"multi_class": "all"}, "multi_class='all' is not known"),
        ("NuSVC", {"nu": 1.5}, "nu=1.5 is out of range"),
    ],
)
def test_parameters_are_refused_by_name(name, params, message):
    refused(message, getattr(svmcore, name)(**params).fit, X, TWO)


# ---- scikit-learn around them ------------------------------------------------------------------------------------------


def test_pipelines_grids_copies_and_files(tmp_path):
    import copy

    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    grid = GridSearchCV(make_pipeline(StandardScaler(), svmcore.SVC()), {"svc__C": [0.1, 1.0, 10.0]}, cv=3).fit(X, TWO)
    theirs = GridSearchCV(make_pipeline(StandardScaler(), svm.SVC()), {"svc__C": [0.1, 1.0, 10.0]}, cv=3).fit(X, TWO)
    assert grid.best_params_ == theirs.best_params_
    for machine in (svmcore.SVC().fit(X, THREE), svmcore.SVR().fit(X, NUMBERS), svmcore.LinearSVC().fit(X, THREE)):
        for again in (pickle.loads(pickle.dumps(machine)), copy.deepcopy(machine)):
            assert np.array_equal(values(machine), values(again))
            assert again.dual_gap_ == machine.dual_gap_


def test_frames_have_names():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    names = ["age", "income", "rooms"]
    for frame in (pandas.DataFrame(X, columns=names), polars.DataFrame(X, schema=names)):
        machine = svmcore.SVC().fit(frame, TWO)
        assert list(machine.feature_names_in_) == names
        assert np.array_equal(machine.predict(frame), machine.predict(frame))
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            machine.predict(X)
        with pytest.raises(ValueError, match="must be in the same order"):
            machine.predict(frame[names[::-1]])
    assert not hasattr(machine.fit(X, TWO), "feature_names_in_")


def test_metadata_is_routed():
    from sklearn import config_context
    from sklearn.model_selection import cross_val_score

    with config_context(enable_metadata_routing=True):
        machine = svmcore.SVC(tol=1e-9).set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        scores = cross_val_score(machine, X, TWO, params={"sample_weight": WEIGHTS}, cv=3)
    assert scores.shape == (3,)


def test_callbacks_of_scikit_learn():
    callback = pytest.importorskip("sklearn.callback")
    monitor = callback.ScoringMonitor(scoring="accuracy")
    machine = svmcore.SVC().set_callbacks(monitor).fit(X, TWO)
    assert monitor.get_logs().data[-1]["accuracy"] == machine.score(X, TWO)

    class Stop:
        calls = 0

        def setup(self, estimator, context):
            self.calls += 1

        def teardown(self, estimator, context):
            self.calls += 1

        def on_fit_task_begin(self, estimator, context):
            self.calls += 1

        def on_fit_task_end(self, estimator, context):
            self.calls += 1
            return True

    stop = Stop()
    assert svmcore.SVC().set_callbacks(stop).fit(X, TWO).converged_
    assert stop.calls >= 4
    much = rng.normal(size=(3000, 20))
    hard = svmcore.SVC(C=1e6, tol=1e-12, kernel="poly", coef0=1.0).set_callbacks(Stop())
    with pytest.warns(svmcore.ConvergenceWarning, match="stopped by the callback"):
        hard.fit(much, rng.integers(0, 2, 3000))
    assert not hard.converged_


def test_arrays_of_other_libraries_are_refused_in_words(monkeypatch):
    class Elsewhere:
        __array_namespace__ = None

    from svmcore.estimators import _base

    monkeypatch.setattr(_base.sk, "get_config", lambda: {"array_api_dispatch": True})
    refused("svmcore computes with numpy arrays on the CPU; convert it", svmcore.SVC().fit, Elsewhere(), TWO)


def test_scores_of_iris_are_those_of_scikit_learn():
    """Rows near the boundary of two classes change sides at the default tolerance; small problems are solved to rounding."""
    X, y = datasets.load_iris(return_X_y=True)
    ours, theirs = (model_selection.cross_val_score(kind(kernel="linear"), X, y) for kind in (svmcore.SVC, svm.SVC))
    np.testing.assert_allclose(ours, theirs, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("labels", [[0, 1, 2], [True, False], ["a", "b", "long"], [0.0, 1.0, 2.0]], ids=str)
def test_a_score_is_that_of_scikit_learn(labels):
    """Of labels of the type of the classes it is counted at once; of others scikit-learn's function says what it says."""
    places = rng.integers(len(labels), size=N)
    y, points = np.array(labels)[places], X + 2.0 * places[:, None]
    machine = svmcore.SVC(gamma=0.4).fit(points, y)
    found = machine.predict(points)
    wrong = np.roll(y, 1)
    assert machine.score(points, y) == accuracy_score(y, found) > 0.5
    for other in (wrong, wrong.tolist(), wrong[:, None]):
        assert machine.score(points, other) == accuracy_score(wrong, found)
    weights = 1.0 + places
    assert machine.score(points, y, weights) == accuracy_score(y, found, sample_weight=weights)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        machine.score(points, y[:-1])
    with pytest.raises(NotFittedError):
        svmcore.SVC().score(points, y)


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csr_array])
@pytest.mark.parametrize("name", ["SVC", "LinearSVC", "SVR", "OneClassSVM"])
def test_sparse_rows_that_need_no_conversion_are_judged_all_the_same(name, make):
    X, y = make(np.diag([1.0, 2.0, 3.0, 4.0])), [0, 1, 0, 1]
    machine = getattr(svmcore, name)().fit(X, y)
    assert machine.n_features_in_ == 4
    wrong = X.copy()
    wrong.data[2] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        machine.fit(wrong, y)
    with pytest.raises(ValueError, match=r"[Ff]ound input variables with inconsistent numbers of samples|entries"):
        getattr(svmcore, name if name != "OneClassSVM" else "SVR")().fit(X, y[:3])
    with pytest.raises(ValueError, match=r"0 sample|minimum of 1"):
        machine.fit(make((0, 4)), [])
