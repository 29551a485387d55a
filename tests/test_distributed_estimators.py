"""Estimators over parts: parameters, several classes, regression, what they are fitted to."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from refusals import refused
from scipy.sparse import coo_matrix
from warned import quiet

import svmcore
from svmcore.distributed import scan

pytest.importorskip("sklearn", reason="needs scikit-learn")
from sklearn.exceptions import NotFittedError

from svmcore.distributed import estimators
from svmcore.distributed.estimators import DaskLinearSVC, DaskSVC, DaskSVR

pytestmark = pytest.mark.once


def three(n=900):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.array(["a", "b", "c"])[np.clip(np.floor(1.5 * np.abs(X[:, 0] + 0.3 * X[:, 1])), 0, 2).astype(int)]


def test_several_classes_are_told_apart_in_pairs():
    X, y = three()
    model = DaskSVC(C=5.0, parts=4, tol=1e-6, class_weight="balanced").fit(X, y)
    ref = svmcore.train_classes(X, y, 5.0, tol=1e-8, class_weight="balanced")
    assert len(model.solutions_) == 3
    for ours, theirs in zip(model.solutions_, ref.machines, strict=True):
        assert abs(ours.objective - theirs.objective) <= 1e-8 * abs(theirs.objective)
    assert (model.predict(X) == ref.predict(X)).all()
    assert model.score(X, y) > 0.9
    assert model.decision_function(X[:5]).shape == (5, 3)
    assert isinstance(model.to_local(), svmcore.Machines)
    assert model.converged_
    assert model.kkt_violation_ <= 1e-6
    assert model.dual_gap_ >= 0.0
    with pytest.raises(svmcore.InputError, match="3 classes"):
        _ = model.solution_


def test_linear_machines_are_one_against_the_rest():
    X, y = three()
    model = DaskLinearSVC(C=5.0, parts=4, tol=1e-6).fit(X, y)
    ref = svmcore.train_classes(X, y, 5.0, kernel="linear", strategy="ovr", tol=1e-8)
    assert model.coef_.shape == (3, 3)
    assert np.allclose(model.decision_function(X), ref.decision_function(X), atol=1e-4)
    two = np.sort(ref.decision_function(X), axis=1)[:, -2:]
    clear = two[:, 1] - two[:, 0] > 1e-3  # two machines of three are constant here
    assert clear.mean() > 0.2
    assert (model.predict(X)[clear] == ref.predict(X)[clear]).all()
    assert (model.to_local().predict(X)[clear] == ref.predict(X)[clear]).all()


def test_two_classes_and_regression():
    X, y = three()
    model = DaskSVC(parts=2).fit(X, y == "a")
    assert model.solution_.converged
    assert model.classes_.tolist() == [False, True]
    assert model.client_ is None
    assert isinstance(model.to_local(), svmcore.Solution)
    target = np.sin(X[:, 0]) + X[:, 1]
    fitted = DaskSVR(C=10.0, epsilon=0.05, parts=3).fit(X, target)
    ref = svmcore.train_svr(X, target, C=10.0, epsilon=0.05)
    assert fitted.score(X, target) > 0.98
    assert np.allclose(fitted.predict(X), ref.predict(X), atol=1e-2)
    with pytest.raises(AttributeError, match="linear kernel"):
        _ = fitted.coef_


SMALL_SET = {"working_set": 60}


def test_parameters():
    model = DaskSVC(C=3.0)
    assert repr(model) == "DaskSVC(C=3.0)"
    assert model.set_params(gamma=0.5).get_params()["gamma"] == 0.5
    with pytest.raises(ValueError, match="Invalid parameter 'cost'"):
        model.set_params(cost=1)
    for ask in (lambda: model.predict(np.zeros((1, 2))), lambda: model.coef_, lambda: model.solution_):
        with pytest.raises(NotFittedError, match="not fitted yet; call fit first"):
            ask()


@pytest.mark.parametrize("form", [DaskSVC, DaskLinearSVC])
def test_machines_of_several_classes_have_a_checkpoint_each(form, tmp_path):
    X, y = three(600)
    words = {"parts": 2, "tol": 1e-6, "checkpoint": tmp_path / "run.npz"} | ({} if form is DaskLinearSVC else SMALL_SET)
    whole = form(**words).fit(X, y)
    files = sorted(path.name for path in tmp_path.iterdir())
    again = form(**words).fit(X, y)
    assert set(files) <= {"run-0.npz", "run-1.npz", "run-2.npz"}
    assert len(files) == 3 or form is DaskLinearSVC
    for one, other in zip(whole.solutions_, again.solutions_, strict=True):
        assert other.converged
        assert len(other.rounds) <= 1 or form is DaskLinearSVC
        assert abs(one.objective - other.objective) <= 1e-8 * abs(one.objective)
    if form is DaskSVC:
        (tmp_path / "run-0.npz").write_bytes((tmp_path / "run-1.npz").read_bytes())
        refused("another problem: pair of classes", form(**words).fit, X, y)


@pytest.mark.parametrize(
    ("form", "loss"),
    [(DaskSVC, "epsilon_insensitive"), (DaskLinearSVC, "squared_epsilon_insensitive"), (DaskSVR, "hinge")],
)
def test_a_loss_of_another_problem_is_refused(form, loss):
    X, y = three(60)
    refused(f"loss='{loss}'", form(loss=loss).fit, X, y == "a")


def test_a_score_takes_labels_as_a_column_and_no_other_shapes():
    X, y = three(200)
    y = (y == "a").astype(float)
    for model in (DaskSVC(parts=2).fit(X, y), DaskSVR(parts=2).fit(X, y)):
        assert model.score(X, y.reshape(-1, 1)) == model.score(X, y)
        for wrong in (y[:-1], np.stack([y, y], axis=1), y[:1]):
            refused("one label a row", model.score, X, wrong)


def keeps_the_first(model, X, y, warning):
    with pytest.warns(svmcore.ConvergenceWarning, match=warning):
        model.fit(X, y)
    assert len(model.solutions_) == 3
    assert not model.converged_
    for machine in model.solutions_:
        assert machine.intercept == machine.intercept
        assert machine.gap >= -1e-9
    assert set(model.predict(X[:9])) <= set(model.classes_)


@pytest.mark.parametrize("form", [DaskSVC, DaskLinearSVC])
@pytest.mark.parametrize("engine", ["serial", "threads"])
def test_a_callback_that_stops_keeps_all_machines(form, engine):
    X, y = three(300)
    model = form(parts=2, engine=engine, callback=lambda report: True)
    keeps_the_first(model, X, y, "callback")


@pytest.mark.parametrize("place", ["load", "start", "survey"])
def test_a_time_limit_in_the_second_machine_keeps_the_first(monkeypatch, place):
    X, y = three(300)
    model, work, calls = DaskSVC(parts=2, tol=1e-8), getattr(scan, place), []

    def late(*words):
        calls.append(words)
        if machines and not past:
            past.append(True)
            machines[0].control.start -= 1e6
        return work(*words)

    machines, past = [], []
    solved = estimators.solved

    def watched(problem):
        if problem.begun:
            machines.append(problem)
        return solved(problem)

    monkeypatch.setattr(scan, place, late)
    monkeypatch.setattr(estimators, "solved", watched)
    keeps_the_first(model.set_params(time_limit=1e5), X, y, "time_limit")
    assert model.solutions_[0].converged
    assert model.solutions_[2].n_support == 0


@pytest.mark.parametrize("engine", ["serial", "threads"])
@pytest.mark.parametrize("form", [DaskSVC, DaskLinearSVC])
def test_fitted_estimators_and_their_machines_are_pickled(form, engine):
    X, y = three(300)
    model = form(parts=2, engine=engine).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.decision_function(X), model.decision_function(X))
    one, other = model.solutions_[0], pickle.loads(pickle.dumps(model.solutions_[0]))
    assert other.objective == one.objective
    assert all(np.array_equal(a, b) for a, b in zip(one.alpha, other.alpha, strict=True))
    assert np.array_equal(other.to_local().predict(X), one.to_local().predict(X))


class Uncopied:
    """What a client is to scikit-learn."""

    def __deepcopy__(self, memo):
        raise TypeError("cannot pickle '_asyncio.Task' object")


def test_scikit_learn_takes_them():
    base = pytest.importorskip("sklearn.base")
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    client = Uncopied()
    model = base.clone(DaskLinearSVC(C=2.0, client=client, class_weight={"a": 2.0}))
    assert model.client is client
    assert (model.C, model.class_weight) == (2.0, {"a": 2.0})
    assert [base.is_classifier(form()) for form in (DaskSVC, DaskLinearSVC, DaskSVR)] == [True, True, False]
    assert base.is_regressor(DaskSVR())
    X, y = three(300)
    pipe = make_pipeline(StandardScaler(), DaskSVC(parts=2))
    found = GridSearchCV(pipe, {"dasksvc__C": [0.1, 5.0]}, cv=3).fit(X, y)
    assert found.best_params_ == {"dasksvc__C": 5.0}
    assert found.best_score_ > 0.8


# What these look for are words of scikit-learn's own messages: ours name the part, the value and the remedy.
OTHER_WORDS = (
    "check_n_features_in_after_fitting", "check_complex_data", "check_dtype_object", "check_classifiers_regression_target",
    "check_supervised_y_2d", "check_fit2d_predict1d", "check_requires_y_none",
)  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize("form", [DaskSVC, DaskLinearSVC, DaskSVR])
def test_the_checks_of_scikit_learn_pass(form):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    with quiet():
        found = checks.check_estimator(form(tol=1e-9), on_skip=None, on_fail=None)
    failed = {check["check_name"] for check in found if check["status"] == "failed"}
    assert failed - set(OTHER_WORDS) == set()
    assert len(found) > 50


@pytest.mark.parametrize("classes", [2, 3])
def test_support_vectors_are_shown_as_by_svc(classes):
    svm = pytest.importorskip("sklearn.svm")
    X, y = three(300)
    y = y if classes == 3 else y == "a"
    ours, theirs = DaskSVC(parts=2, tol=1e-7).fit(X, y), svm.SVC(tol=1e-7).fit(X, y)
    assert (ours.support_ == theirs.support_).all()
    assert (ours.n_support_ == theirs.n_support_).all()
    assert (ours.support_vectors_ == theirs.support_vectors_).all()
    assert np.allclose(ours.dual_coef_, theirs.dual_coef_, atol=1e-4)
    assert np.allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    assert ours.n_iter_.shape == theirs.n_iter_.shape
    number = DaskSVR(parts=2, tol=1e-7).fit(X, X[:, 0]), svm.SVR(tol=1e-7).fit(X, X[:, 0])
    assert np.allclose(number[0].dual_coef_, number[1].dual_coef_, atol=1e-3)
    assert isinstance(number[0].n_iter_, int)


@pytest.mark.parametrize("form", [DaskSVC, DaskLinearSVC])
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_learnt_from_other_rows(form, classes):
    X, y = three(600)
    y = y if classes == 3 else y == "a"
    model = form(parts=2).fit(X[:400], y[:400])
    with pytest.raises(AttributeError, match="needs calibrate"):
        model.predict_proba(X)
    refused("y lacks", model.calibrate, X[400:], np.full(200, model.classes_[0]))
    refused("holds 'other' at row 0", model.calibrate, X[400:], np.full(200, "other"))
    found = model.calibrate(X[400:], y[400:]).predict_proba(X[:400])
    assert found.shape == (400, classes)
    assert np.allclose(found.sum(axis=1), 1.0)
    right = found[np.arange(400), np.searchsorted(model.classes_, y[:400])]
    prior = np.unique(y[:400], return_counts=True)[1] / 400
    assert np.log(right).mean() > (prior * np.log(prior)).sum()  # better than the classes' shares alone
    again = pickle.loads(pickle.dumps(model))
    assert np.allclose(again.predict_proba(X[:9]), found[:9], rtol=1e-9)
    assert "sigmoids_" not in vars(model.fit(X, y))


class Frame:
    """What a data frame is to us: columns that have names."""

    def __init__(self, names, X):
        self.columns, self.X, self.shape = list(names), X, X.shape

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.X, dtype)


@pytest.mark.parametrize("form", [DaskSVC, DaskLinearSVC])
@pytest.mark.parametrize("classes", [2, 3])
def test_columns_are_known_by_their_names(form, classes):
    X, y = three(200)
    y = y if classes == 3 else y == "a"
    model = form(parts=2).fit(Frame("abc", X), y)
    asked = model.decision_function(X[:9])
    assert np.array_equal(model.decision_function(Frame("cab", X[:9, [2, 0, 1]])), asked)
    assert model.solutions_[0].feature_names == ("a", "b", "c")
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert not hasattr(form(parts=2).fit(X, y), "feature_names_in_")
    refused("it lacks 'a'", model.predict, Frame("dbc", X[:9]))
    mixed = [(Frame("abc", X[:100]), y[:100]), (Frame("bac", X[100:]), y[100:])]
    refused("the same columns in the same order", form().fit, mixed)


@pytest.mark.parametrize("form", [DaskSVC, DaskLinearSVC])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_frame_of_pandas_gives_a_series_with_its_index(form, classes):
    pandas = pytest.importorskip("pandas")
    X, y = three(200)
    y = y if classes == 3 else y == "a"
    frame = pandas.DataFrame(X, columns=list("abc"), index=3 * np.arange(200))
    model = form(parts=2).fit(frame, pandas.Series(y, frame.index))
    assert isinstance(model.predict(X), np.ndarray)
    shuffled = frame[list("cab")]
    for method in ("predict", "decision_function"):
        told = getattr(model, method)(shuffled)
        assert (told.index == frame.index).all()
        assert np.array_equal(told.to_numpy(), getattr(model, method)(X))
    assert isinstance(model.predict(frame), pandas.Series)
    assert model.score(frame, y) == model.score(X, y)
    shares = model.calibrate(frame, y).predict_proba(shuffled)
    assert list(shares.columns) == model.classes_.tolist()
    assert (shares.index == frame.index).all()


@pytest.mark.parametrize("form", [DaskSVC, DaskLinearSVC])
@pytest.mark.parametrize("classes", [2, 3])
def test_points_to_predict_are_checked_and_may_be_sparse(form, classes):
    X, y = three(200)
    y = y if classes == 3 else y == "a"
    model = form(parts=2).fit(X, y)
    assert np.allclose(model.decision_function(coo_matrix(X)), model.decision_function(X), atol=1e-12)
    assert (model.predict(coo_matrix(X)) == model.predict(X)).all()
    bad = X[:9].copy()
    bad[3, 1] = np.nan
    for wrong, message in ((bad, "nan at row 3, column 1"), (X[:9, :2], "2 features a row; .* trained with 3")):
        refused(message, model.predict, wrong)
