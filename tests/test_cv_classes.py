"""Several classes in `cv_path` against brute force, and against scikit-learn's `SVC`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from warned import quiet

import svmcore
from svmcore.cv.curves import Decisions
from svmcore.cv.several import voted
from svmcore.problem.division import division

pytestmark = pytest.mark.compiled  # whole paths and fits: minutes without

NEAR = 1e-5  # decision values, or differences of them, nearer to zero than this are undecided
STRATEGIES = ("ovo", "ovr")


def clouds(n: int = 120, k: int = 3, seed: int = 0, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    code = rng.permutation(np.arange(n) % k)
    angle = 2.0 * np.pi * code / k
    X = 1.5 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + noise * rng.normal(size=(n, 2))
    return X, np.array(["blue", "green", "red", "white", "black"])[code]


def free(machine, C, factor) -> bool:
    limit = C * factor
    return bool(((machine.alpha > 1e-7 * limit) & (machine.alpha < (1 - 1e-7) * limit)).any())


def brute_force(X, y, cv, C, fold, weights, **problem):
    """The error of a fold, the share of undecided rows; None where an intercept is not unique."""
    own = None if weights is None else weights[fold.train]
    with quiet():
        machines = svmcore.train_classes(
            X[fold.train], y[fold.train], C, strategy=cv._study.division.strategy, sample_weight=own, tol=1e-9,
            **{**problem, "gamma": cv.best_gamma} if cv.best_gamma is not None else problem,
        )  # fmt: skip
    base = np.ones(len(fold.train)) if own is None else own
    if problem.get("class_weight") == "balanced":
        codes = np.searchsorted(machines.classes, y[fold.train])
        count = np.bincount(codes, weights=base)
        base = base * (count.sum() / (count.size * count))[codes]
    if problem.get("fit_intercept", True) and not all(free(machine, C, base) for machine in machines):
        return None
    values = machines._values(X[fold.test])
    if machines.strategy == "ovo":
        doubt = np.abs(values).min(axis=1) < NEAR
    else:
        ordered = np.sort(values, axis=1)
        doubt = ordered[:, -1] - ordered[:, -2] < NEAR
    return np.mean(machines.predict(X[fold.test]) != y[fold.test]), np.mean(doubt)


def check(X, y, cv, weights=None, most=8, **problem) -> int:
    rng = np.random.default_rng(1)
    b = rng.choice(cv.breakpoints, min(most, len(cv.breakpoints)), replace=False)
    C = np.concatenate([b * (1 - 1e-4), b * (1 + 1e-4), np.exp(rng.uniform(np.log(1e-2), np.log(cv.C_range[1]), 8))])
    decided = 0
    for value in C[(C > 0) & (cv.C_range[1] > C)]:
        found = cv.fold_errors(value)
        for k, fold in enumerate(cv.folds):
            truth = brute_force(X, y, cv, value, fold, weights, **problem)
            if truth is None:
                continue
            wrong, doubt = truth
            assert abs(found[k] - wrong) <= doubt + 1e-12, (value, k)
            decided += doubt == 0
    return decided


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "problem",
    [
        {"gamma": 0.5},
        {"kernel": "linear"},
        {"gamma": "scale", "class_weight": "balanced"},
        {"gamma": 0.5, "fit_intercept": False, "intercept_scaling": 1.0},
        {"standardize": True},
    ],
    ids=str,
)
def test_curve_of_several_classes_is_that_of_brute_force(problem, strategy):
    X, y = clouds()
    X = X * [1.0, 7.0] if "standardize" in problem else X
    keep = np.flatnonzero((y != "red") | (np.arange(len(y)) % 3 > 0))  # classes of different size
    X, y = X[keep], y[keep]
    cv = svmcore.cv_path(X, y, cv=3, C_max=50.0, classes=strategy, **problem)
    assert cv.classes.tolist() == ["blue", "green", "red"]
    assert check(X, y, cv, **problem) > 25
    assert cv.error(cv.best_C) == cv.best_error == cv.values.min()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_weights_and_five_classes(strategy):
    X, y = clouds(150, k=5)
    weights = np.random.default_rng(2).integers(0, 3, len(y)).astype(float)
    cv = svmcore.cv_path(X, y, cv=3, gamma=0.5, C_max=50.0, classes=strategy, sample_weight=weights, weight_score=False)
    assert check(X, y, cv, weights) > 20
    assert cv.decision_scores(2.0).shape == (150, 5)
    assert cv.decision_scores([1.0, 2.0]).shape == (2, 150, 5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_refit_scores_and_support_agree(strategy):
    X, y = clouds()
    cv = svmcore.cv_path(X, y, cv=4, gamma=0.5, C_max=50.0, classes=strategy)
    machines = cv.refit()
    assert cv.best_C == machines.C
    assert machines.strategy == strategy
    assert np.mean(machines.predict(X) == y) > 0.7
    scores = cv.decision_scores(3.0)
    counts = []
    for fold in cv.folds:
        own = svmcore.train_classes(X[fold.train], y[fold.train], 3.0, strategy=strategy, gamma=0.5, tol=1e-9)
        np.testing.assert_allclose(scores[fold.test], own.decision_function(X[fold.test]), atol=1e-6)
        counts.append(own.support.size)
    assert cv.n_support(3.0) == pytest.approx(np.mean(counts), abs=0.3)


def test_one_against_one_is_that_of_scikit_learn():
    svm = pytest.importorskip("sklearn.svm")
    datasets = pytest.importorskip("sklearn.datasets")
    X, y = datasets.load_iris(return_X_y=True)
    cv = svmcore.cv_path(X, y, gamma=0.2, C_max=100.0)
    rng = np.random.default_rng(0)
    compared = 0
    for C in np.exp(rng.uniform(np.log(0.3), np.log(99.0), 40)):
        found = cv.fold_errors(C)
        for k, fold in enumerate(cv.folds):
            peer = svm.SVC(C=C, gamma=0.2, tol=1e-8, decision_function_shape="ovo").fit(X[fold.train], y[fold.train])
            if np.abs(peer.decision_function(X[fold.test])).min() < 1e-4:
                continue
            assert found[k] == pytest.approx(np.mean(peer.predict(X[fold.test]) != y[fold.test]), abs=1e-12)
            compared += 1
    assert compared > 150


def test_one_against_the_rest_is_that_of_scikit_learn():
    svm, multiclass = pytest.importorskip("sklearn.svm"), pytest.importorskip("sklearn.multiclass")
    datasets = pytest.importorskip("sklearn.datasets")
    X, y = datasets.load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    cv = svmcore.cv_path(X, y, gamma=0.1, C_max=100.0, classes="ovr", cv=3)
    compared = 0
    for C in np.exp(np.random.default_rng(0).uniform(np.log(0.1), np.log(99.0), 15)):
        found = cv.fold_errors(C)
        for k, fold in enumerate(cv.folds):
            peer = multiclass.OneVsRestClassifier(svm.SVC(C=C, gamma=0.1, tol=1e-8)).fit(X[fold.train], y[fold.train])
            values = np.sort(peer.decision_function(X[fold.test]), axis=1)
            if (values[:, -1] - values[:, -2]).min() < 1e-4:
                continue
            assert found[k] == pytest.approx(np.mean(peer.predict(X[fold.test]) != y[fold.test]), abs=1e-12)
            compared += 1
    assert compared > 30


def test_two_classes_are_one_pair():
    X, y = clouds(80, k=2)
    curves = [svmcore.cv_path(X, y, gamma=0.5, C_max=50.0, classes=strategy) for strategy in STRATEGIES]
    np.testing.assert_array_equal(curves[0].breakpoints, curves[1].breakpoints)
    np.testing.assert_array_equal(curves[0].values, curves[1].values)
    assert isinstance(curves[1].refit(), svmcore.Solution)
    assert curves[0].decision_scores(1.0).shape == (80,)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_leave_one_out_of_several_classes(strategy):
    X, y = clouds(36, noise=0.8)
    cv = svmcore.cv_path(X, y, cv="loo", gamma=0.5, C_max=20.0, classes=strategy)
    for C in (0.1, 0.7, 5.0, 19.0):
        found = cv.fold_errors(C)
        for k, fold in enumerate(cv.folds):
            truth = brute_force(X, y, cv, C, fold, None)
            if truth is not None and truth[1] == 0:
                assert found[k] == truth[0], (C, k)
    skipped = sum(strand.path is None for member in cv._members for strand in member.strands)
    assert skipped >= (6 if strategy == "ovr" else 36)  # of a pair, the machine that never sees the row


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_saved_and_loaded_several_classes_answer_alike(strategy, tmp_path):
    X, y = clouds(60)
    for options in ({"cv": 3}, {"cv": "loo"}):
        cv = svmcore.cv_path(X, y, gamma=[0.2, 0.7], C_max=20.0, classes=strategy, **options)
        cv.save(tmp_path / "cv.npz")
        same = svmcore.load(tmp_path / "cv.npz")
        np.testing.assert_array_equal(same.breakpoints, cv.breakpoints)
        np.testing.assert_array_equal(same.decision_scores([0.3, 5.0]), cv.decision_scores([0.3, 5.0]))
        assert repr(same) == repr(cv)
        assert same.refit().predict(X).tolist() == cv.refit().predict(X).tolist()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_workers_change_nothing(strategy):
    X, y = clouds(90)
    options = {"gamma": [0.2, 0.7], "C_max": 20.0, "classes": strategy}
    one, many = (svmcore.cv_path(X, y, n_jobs=n_jobs, **options) for n_jobs in (None, 2))
    np.testing.assert_array_equal(one.breakpoints, many.breakpoints)
    np.testing.assert_array_equal(one.decision_scores(3.0), many.decision_scores(3.0))


def test_costs_and_balanced_error_of_several_classes():
    X, y = clouds(90)
    plain = svmcore.cv_path(X, y, gamma=0.5, C_max=20.0, cv=3)
    balanced = svmcore.cv_path(X, y, gamma=0.5, C_max=20.0, cv=3, score="balanced_error")
    matrix = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 1.0], [1.0, 5.0, 0.0]])
    dear = svmcore.cv_path(X, y, gamma=0.5, C_max=20.0, cv=3, costs=matrix)
    for C in (0.05, 1.0, 10.0):
        guess = plain.decision_scores(C).round(0)  # the votes; no ties among these rows
        if (np.sort(guess, axis=1)[:, -1] == np.sort(guess, axis=1)[:, -2]).any():
            continue
        codes, now = np.searchsorted(plain.classes, y), guess.argmax(axis=1)
        for k, fold in enumerate(plain.folds):
            t, p = codes[fold.test], now[fold.test]
            assert dear.fold_errors(C)[k] == pytest.approx(matrix[t, p].mean())
            assert balanced.fold_errors(C)[k] == pytest.approx(np.mean([np.mean(p[t == c] != c) for c in range(3)]))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "venn-abers"])
def test_probabilities_of_several_classes(strategy, method):
    X, y = clouds(240)
    new, truth = clouds(600, seed=1)
    cv = svmcore.cv_path(X, y, gamma=0.3, C_max=20.0, classes=strategy)
    model = cv.calibrate(method)
    p = model.predict_proba(new)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    own = p[np.arange(600), np.searchsorted(model.classes, truth)]
    assert np.mean(-np.log(np.maximum(own, 1e-15))) < (1.5 if method == "isotonic" else 0.85)
    assert np.mean(model.predict(new) == truth) > 0.6
    assert f"3 classes, from 240 out-of-fold scores, log loss {model.log_loss:.4g}" in repr(model)
    assert 0.0 < model.brier < 2.0 / 3.0
    if method == "venn-abers":
        low, high = np.moveaxis(model.intervals(new), 2, 0)
        assert low.shape == (600, 3)
        assert (low <= high).all()
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    assert "class red" in model.plot(label="red").get_ylabel()
    plt.close("all")
    refused("label='pink' is no class", model.plot, label="pink")


def test_vote_ties_go_to_the_first_class():
    pairs = division(3, "ovo")
    none = np.empty(0, dtype=np.int64)
    # 0 beats 1, 1 beats 2, 2 beats 0: one vote each
    start = [np.array([0]), np.array([1]), np.array([0])]
    all_equal = [Decisions(s, np.empty(0), none, none) for s in start]
    assert voted(all_equal, pairs).start.tolist() == [0]
    # from C = 2 on 1 beats 0, too, and has two votes; from C = 3 on 2 beats 1, and all have one again
    changed = [
        Decisions(np.array([0]), np.array([2.0]), np.array([0]), np.array([1])), all_equal[1],
        Decisions(np.array([0]), np.array([3.0]), np.array([0]), np.array([1])),
    ]  # fmt: skip
    found = voted(changed, pairs)
    assert (found.C.tolist(), found.to.tolist()) == ([2.0, 3.0], [1, 2])


@given(st.integers(0, 10**6), st.integers(3, 5), st.integers(0, 60))
@settings(max_examples=30)
def test_votes_are_those_counted_one_by_one(seed, k, n_events):
    rng = np.random.default_rng(seed)
    which = division(k, "ovo")
    decisions = []
    for _ in which.parts:
        start = rng.integers(0, 2, 4)
        C = np.sort(rng.integers(1, 12, n_events).astype(float))  # many at the same C
        row = rng.integers(0, 4, n_events)
        now, to = start.copy(), []
        for r in row:
            now[r] = 1 - now[r]
            to.append(now[r])
        decisions.append(Decisions(start, C, row, np.array(to, dtype=np.int64)))
    found = voted(decisions, which)
    assert (np.diff(found.C) >= 0).all()
    for C in np.arange(0.5, 12.6, 0.5):
        values = np.stack([d.at(C) - 0.5 for d in decisions], axis=1)
        assert found.at(C).tolist() == which.choose(values).tolist()


@settings(max_examples=12)
@given(
    st.integers(0, 10**6), st.sampled_from(STRATEGIES), st.booleans(), st.booleans(), st.sampled_from(["rbf", "linear"])
)
def test_any_clouds_agree_with_brute_force(seed, strategy, integers, weighted, kernel):
    rng = np.random.default_rng(seed)
    X, y = clouds(int(rng.integers(30, 60)), seed=seed)
    X = np.round(X) if integers else X  # duplicates, some of them with different labels
    weights = rng.integers(1, 4, len(y)).astype(float) if weighted else None
    cv = svmcore.cv_path(
        X, y, cv=2, kernel=kernel, C_max=30.0, classes=strategy, sample_weight=weights, weight_score=False
    )
    check(X, y, cv, weights, most=2, kernel=kernel)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": "all"}, "classes='all' is not known; choose one of 'ovo', 'ovr'"),
        ({"score": "hinge"}, "score='hinge' is for two classes, and y holds 3"),
        ({"score": "auc"}, "score='auc' is for two classes, and y holds 3"),
        ({"cv": 41}, "cv=41 needs at least 41 rows of every class, and y holds 40 of 'blue'"),
        ({"class_weight": {"pink": 2.0}}, "class_weight names the label 'pink', but y holds 'blue', 'green' and 'red'"),
        ({"costs": [[0, 1], [1, 0]]}, "3 x 3 matrix"),
    ],
    ids=str,
)
def test_bad_input_is_named(change, message):
    X, y = clouds()
    refused(message, svmcore.cv_path, X, y, C_max=1.0, **change)


def test_numbers_are_no_classes():
    X, _ = clouds(60)
    refused(r"60 different numbers .* not classes; train_svr fits numbers", svmcore.cv_path, X, X[:, 0], C_max=1.0)


@pytest.mark.parametrize("cv", [3, "loo"])
def test_a_given_kernel_has_scores_and_probabilities(cv):
    X, y = clouds(30)
    squares = ((X[:, None] - X) ** 2).sum(axis=2)
    given = svmcore.cv_path(np.exp(-0.5 * squares), y, cv=cv, kernel="precomputed", C_max=10.0)
    named = svmcore.cv_path(X, y, cv=cv, gamma=0.5, C_max=10.0)
    np.testing.assert_allclose(given.decision_scores(1.0), named.decision_scores(1.0), atol=1e-8)
    found = given.calibrate(C=1.0).predict_proba(np.exp(-0.5 * squares[:4]))
    np.testing.assert_allclose(found, named.calibrate(C=1.0).predict_proba(X[:4]), atol=1e-3)
