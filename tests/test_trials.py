"""Folds and scores of many labellings are those of scikit-learn, labelling for labelling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import refused

from svmcore.cv import trials
from svmcore.cv import trials_jit as loops

pytestmark = pytest.mark.home

metrics = pytest.importorskip("sklearn.metrics")
selection = pytest.importorskip("sklearn.model_selection")


@pytest.mark.filterwarnings("ignore:The least populated class:UserWarning")
@given(st.integers(2, 6), st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_stratified_folds_are_those_of_scikit_learn(k, n_classes, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, rng.integers(k, 40))
    assume(np.bincount(y).max() >= k)
    codes = np.array([rng.permutation(y) for _ in range(3)])
    (found,) = trials.make_plan(k, len(y), np.arange(n_classes), None).rounds(codes)
    for row, folds in zip(codes, found.folds, strict=True):
        for f, (_, test) in enumerate(selection.StratifiedKFold(k).split(row, row)):
            np.testing.assert_array_equal(np.flatnonzero(folds == f), test)


@pytest.mark.parametrize("n", [7, 10, 23])
def test_folds_of_targets_are_neighbours(n):
    (found,) = trials.make_plan(5, n, None, None).rounds(np.zeros((2, n)))
    for f, (_, test) in enumerate(selection.KFold(5).split(np.zeros(n))):
        np.testing.assert_array_equal(np.flatnonzero(found.folds[0] == f), test)


@pytest.mark.parametrize(
    ("splitter", "fixed"),
    [
        (selection.KFold(3), True),
        (selection.KFold(3, shuffle=True, random_state=0), True),
        (selection.KFold(3, shuffle=True), False),
        (selection.ShuffleSplit(4, random_state=0), True),
        (selection.RepeatedKFold(n_splits=3, n_repeats=2, random_state=1), True),
        (selection.GroupKFold(3), True),
        (selection.LeaveOneOut(), True),
        (selection.StratifiedKFold(3), False),
        (selection.StratifiedKFold(3, shuffle=True, random_state=2), False),
        (selection.StratifiedShuffleSplit(3, random_state=2), False),
    ],
    ids=str,
)
def test_splitters_are_asked_as_often_as_needed(splitter, fixed):
    n, rng = 24, np.random.default_rng(0)
    groups = np.arange(n) // 4 if "Group" in type(splitter).__name__ else None
    codes = np.array([rng.permutation(np.arange(n) % 2) for _ in range(3)])
    plan = trials.make_plan(splitter, n, np.arange(2), groups)
    assert (plan.fixed is not None) == fixed
    rounds = plan.rounds(codes)
    if getattr(splitter, "random_state", 0) is None and getattr(splitter, "shuffle", False):
        return
    for p, row in enumerate(codes):
        pairs = list(splitter.split(np.zeros((n, 1)), row, groups))
        found = []
        for each in rounds:
            own = each.folds[min(p, len(each.folds) - 1)]
            found += [(np.flatnonzero((own != f) & (own >= 0)), np.flatnonzero(own == f)) for f in range(each.n_folds)]
        assert len(found) == len(pairs)
        for (train, test), (their_train, their_test) in zip(found, pairs, strict=True):
            np.testing.assert_array_equal(train, np.sort(their_train))
            np.testing.assert_array_equal(test, np.sort(their_test))


SCORES = {
    "accuracy": lambda y, f: metrics.accuracy_score(y > 0, f > 0),
    "balanced_accuracy": lambda y, f: metrics.balanced_accuracy_score(y > 0, f > 0),
    "roc_auc": lambda y, f: metrics.roc_auc_score(y > 0, f),
    "r2": metrics.r2_score,
    "correlation": lambda y, f: np.corrcoef(y, f)[0, 1],
    "neg_mean_squared_error": lambda y, f: -metrics.mean_squared_error(y, f),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_are_those_of_scikit_learn(name):
    rng = np.random.default_rng(1)
    labels = name in trials.OF_LABELS
    values = np.where(rng.random((4, 30)) > 0.4, 1.0, -1.0) if labels else rng.normal(size=(4, 30))
    decisions = rng.normal(size=(4, 30)).round(1)
    folds = np.array([rng.permutation(np.arange(30) % 3) for _ in range(4)])
    assert trials.make_judge(name, labels, False) == name
    found = trials.judged(name, values, decisions, trials.FoldNumbers(folds, 3), values)
    for p in range(4):
        for f in range(3):
            own = folds[p] == f
            assert found[p, f] == pytest.approx(SCORES[name](values[p][own], decisions[p][own]), abs=1e-14)


def test_scores_of_folds_that_have_none():
    y, f = np.array([[1.0, 1.0, 1.0, -1.0]]), np.array([[1.0, -1.0, 1.0, 1.0]])
    folds = trials.FoldNumbers(np.array([[0, 0, 0, 2]]), 3)
    assert trials.judged("accuracy", y, f, folds, y)[0, :2].tolist() == pytest.approx([2 / 3, np.nan], nan_ok=True)
    assert trials.judged("balanced_accuracy", y, f, folds, y)[0].tolist() == pytest.approx(
        [2 / 3, np.nan, 0.0], nan_ok=True
    )
    assert np.isnan(trials.judged("roc_auc", y, f, folds, y)).all()
    for name in trials.OF_TARGETS:
        assert np.isnan(trials.judged(name, y, f, folds, y)[0, 1])
    assert trials.judged("r2", y, f, folds, y)[0, 0] == 0.0
    assert trials.judged("r2", y, y, folds, y)[0, 0] == 1.0
    assert np.isnan(trials.judged("correlation", y, f, folds, y)[0, 0])


def test_scores_of_small_decision_values_and_of_folds_with_one_class():
    """One plan of folds serves all labellings; a decision value of zero is on the side of the label -1."""
    y = np.array([[1.0, 1.0, -1.0, -1.0, -1.0], [-1.0, -1.0, -1.0, 1.0, 1.0]])
    f = np.array([[1e-9, 0.0, 1e-9, -1e-9, 0.0], [1e-9, 0.0, -1e-9, 1e-9, 0.0]])
    folds = trials.FoldNumbers(np.array([[0, 0, 1, 1, 1]]), 2)
    for name in ("accuracy", "balanced_accuracy"):
        found = trials.judged(name, y, f, folds, y)
        assert found == pytest.approx(np.array([[1 / 2, 2 / 3], [1 / 2, 2 / 3 if name == "accuracy" else 3 / 4]]))
    assert np.isnan(trials.judged("roc_auc", y, f, folds, y)[0]).all()


def test_a_function_judges():
    y, f = np.array([[1.0, -1.0, 1.0]]), np.array([[0.5, 0.5, 0.5]])
    folds = trials.FoldNumbers(np.array([[0, 0, 1]]), 2)
    found = trials.judged(lambda y, f: (y * f).sum(), y, f, folds, y)
    assert found.tolist() == [[0.0, 0.5]]
    refused("it must return one number", trials.judged, lambda y, f: None, y, f, folds, y)


def test_folds_that_train_without_a_class_are_found():
    values = np.array([[1.0, -1.0, 1.0, -1.0], [1.0, -1.0, -1.0, -1.0]])
    folds = trials.FoldNumbers(np.array([[0, 1, 1, 0]]), 2)
    assert trials.first_lack(values[:1], np.ones(4), folds) is None
    assert trials.first_lack(values, np.ones(4), folds) == (1, 0, 1.0)
    assert trials.first_lack(-values, np.ones(4), folds) == (1, 0, -1.0)
    assert trials.first_lack(values[:1], np.array([1.0, 1.0, 1.0, 0.0]), folds) == (0, 1, -1.0)


@pytest.mark.parametrize(
    ("cv", "words"),
    [
        (1, "cv=1 is out of range"),
        (30, "cv=30 needs at least 30 rows, and there are 12"),
        ("leave", "cv='leave' is not known"),
        ([(np.arange(6), np.arange(3, 12))], "trains and validates on row 3"),
        (3.5, "no way to make folds"),
    ],
    ids=str,
)
def test_bad_folds_are_refused(cv, words):
    refused(words, trials.make_plan, cv, 12, np.arange(2), None)


def test_a_splitter_whose_folds_change_in_number_is_refused():
    class Odd:
        def split(self, X, y, groups=None):
            k = 2 + int(y[0])
            return [(np.flatnonzero(np.arange(12) % k != f), np.flatnonzero(np.arange(12) % k == f)) for f in range(k)]

    codes = np.array([np.arange(12) % 2, 1 - np.arange(12) % 2])
    refused("another number of folds", trials.make_plan(Odd(), 12, np.arange(2), None).rounds, codes)


@pytest.mark.parametrize(
    ("score", "labels", "several", "words"),
    [
        ("r2", True, False, "it is for targets"),
        ("accuracy", False, False, "it is for labels"),
        ("f1", True, False, "score='f1' is not known"),
        ("roc_auc", True, True, "is for two classes"),
    ],
)
def test_scores_that_are_not_there(score, labels, several, words):
    refused(words, trials.make_judge, score, labels, several)


def test_loops_have_places_for_all_names():
    assert sorted((trials.OF_LABELS | trials.OF_TARGETS).values()) == list(range(loops.SQUARED + 1))
