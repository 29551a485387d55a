"""Folds of every kind, what they will cost, and bad input to `cv_path`, which is named with its remedy."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused
from test_cv import noisy

import svmcore

pytestmark = pytest.mark.compiled


def test_folds_are_stratified_and_seeded():
    X, y = noisy(91, share=0.25)
    a, b, c = (svmcore.cv_path(X, y, C_max=1.0, random_state=seed).folds for seed in (None, 0, 1))
    assert all((f.test == g.test).all() for f, g in zip(a, b, strict=True))
    assert not all(len(f.test) == len(g.test) and (f.test == g.test).all() for f, g in zip(a, c, strict=True))
    assert sorted(np.concatenate([f.test for f in a])) == list(range(91))
    for fold in a:
        assert abs((y[fold.test] == "yes").sum() - (y == "yes").sum() / 5) < 1
        assert abs(len(fold.test) - 91 / 5) < 1


def test_groups_stay_together():
    X, y = noisy(100)
    groups = np.random.default_rng(0).integers(0, 17, 100)
    for cv in (4, "loo"):
        folds = svmcore.cv_path(X, y, C_max=1.0, cv=cv, groups=groups).folds
        assert len(folds) == (4 if cv == 4 else 17)
        for fold in folds:
            assert not set(groups[fold.test]) & set(groups[fold.train])


def test_splitters_and_pairs_are_taken_as_they_are():
    model_selection = pytest.importorskip("sklearn.model_selection")
    X, y = noisy(60)
    splitter = model_selection.StratifiedKFold(3, shuffle=True, random_state=1)
    pairs = list(splitter.split(X, y))
    a = svmcore.cv_path(X, y, gamma=0.3, cv=splitter)
    b = svmcore.cv_path(X, y, gamma=0.3, cv=pairs)
    masks = [(np.isin(np.arange(60), train), np.isin(np.arange(60), test)) for train, test in pairs]
    c = svmcore.cv_path(X, y, gamma=0.3, cv=masks)
    np.testing.assert_array_equal(a.values, b.values)
    np.testing.assert_array_equal(a.values, c.values)
    grouped = svmcore.cv_path(X, y, gamma=0.3, cv=model_selection.GroupKFold(3), groups=np.arange(60) % 6)
    assert len(grouped.folds) == 3
    repeated = svmcore.cv_path(X, y, gamma=0.3, cv=model_selection.RepeatedStratifiedKFold(n_splits=3, n_repeats=2))
    assert len(repeated.folds) == 6
    assert np.isfinite(repeated.decision_scores(1.0)).all()
    part = svmcore.cv_path(X, y, gamma=0.3, cv=model_selection.ShuffleSplit(2, test_size=0.3, random_state=0))
    assert np.isnan(part.decision_scores(1.0)).any()


def test_no_folds_named_are_five():
    X, y = noisy(60)
    five, none = (svmcore.cv_path(X, y, gamma=0.3, C_max=1.0, cv=cv) for cv in (5, None))
    np.testing.assert_array_equal(five.breakpoints, none.breakpoints)
    assert len(none.folds) == 5


def test_leaving_one_out_by_a_splitter_or_by_pairs_costs_what_it_does_by_name():
    model_selection = pytest.importorskip("sklearn.model_selection")
    X, y = noisy(40)
    named = svmcore.cv_path(X, y, gamma=0.3, cv="loo")
    assert named.stats["n_planned"] == 41  # with the path of all rows, which the others end in
    for cv in (model_selection.LeaveOneOut(), [(fold.train, fold.test) for fold in named.folds]):
        same = svmcore.cv_path(X, y, gamma=0.3, cv=cv)
        assert same.stats["n_planned"] == 41
        np.testing.assert_array_equal(same.breakpoints, named.breakpoints)
        np.testing.assert_array_equal(same.values, named.values)


class Odd:
    def __repr__(self):
        return "Odd()"

    def split(self, X, y, groups):
        yield [1, 2, 3]


class Foreign:
    """A splitter of another library."""

    def __init__(self, answer):
        self.answer = answer

    def __repr__(self):
        return "Foreign"  # the same in every process: tests are named after it

    def split(self, X, y, groups):
        return iter(self.answer)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cv": 1}, "cv=1 is out of range"),
        ({"cv": True}, "cv=True is not a whole number"),
        ({"cv": 2.5}, "cv=2.5 is no way to make folds"),
        ({"cv": "ten"}, "cv='ten' is not known; give a number of folds, \"loo\", a list of index pairs"),
        ({"cv": 25}, "cv=25 needs at least 25 rows of every class, and y holds 12 of 'yes'"),
        ({"cv": Odd()}, r"cv.split yielded \[1, 2, 3\] as fold 0"),
        ({"cv": [(np.arange(40), np.arange(30, 60)), (np.arange(30, 60), np.arange(30))]}, "row 30 .10 rows overlap"),
        ({"cv": [(np.arange(30), np.arange(30, 60))] * 2}, "validation parts of cv overlap: row 30"),
        ({"cv": [(np.arange(30), np.arange(30, 60)), (np.arange(30, 60), np.arange(20))]}, "leaves out 10 of 60 rows"),
        ({"cv": [(np.arange(30), np.arange(30, 61)), (np.arange(30, 60), np.arange(30))]}, "names row 60"),
        ({"cv": [([0, 0, 1], [2])] * 2}, "names row 0 twice"),
        ({"cv": [([0.5], [2])] * 2}, "whole numbers"),
        ({"cv": [([], [2])] * 2}, "at least one row"),
        ({"cv": Foreign([])}, r"test_cv_folds.Foreign, whose split.X, y, groups. yields no folds"),
        ({"cv": Foreign(None)}, r"test_cv_folds.Foreign, whose split.X, y, groups. fails: 'NoneType'"),
        ({"groups": np.arange(3)}, "groups has 3 entries for 60 rows"),
        ({"groups": np.zeros(60)}, "at least 5 groups"),
        ({"groups": "by class", "cv": 2}, "fold 0 trains without a row of class"),
        ({"n_jobs": "two"}, "n_jobs='two' is not a number of workers"),
        ({"n_jobs": 0}, "n_jobs=0"),
        ({"score": "precise"}, "score='precise' is not known"),
        ({"score": "auc", "cv": "loo"}, "fold 0 validates rows of one class only"),
        ({"costs": {"maybe": 1.0}}, "costs names the label 'maybe'"),
        ({"costs": [1.0, 2.0]}, "2 x 2 matrix"),
        ({"costs": {"yes": 0.0, "no": 0.0}}, "all zero"),
        ({"costs": {"yes": 2.0}, "score": "balanced_error"}, "costs go with"),
        ({"gamma": 0.0}, "gamma=0.0"),
        ({"gamma": [0.1, 0.0]}, "gamma=0.0"),
        ({"gamma": [0.1, 1.0, 0.1]}, "gamma holds 0.1 twice .positions 0 and 2"),
        ({"gamma": np.array(0.5)}, r"gamma=array.0.5. is not a number"),
        ({"gamma": []}, "gamma is an empty list"),
        ({"gamma": "best"}, "gamma='best' is not known; .* \"search\", a positive number, or a list"),
        ({"gamma": [0.1, "best"]}, "gamma='best' is not known"),
        ({"gamma": "search", "kernel": "linear"}, "kernel='linear' has no gamma to choose"),
        ({"gamma": [1.0, 2.0], "kernel": "linear"}, "kernel='linear' has no gamma to choose"),
        ({"gamma": "search", "kernel": "poly"}, "with kernel='poly' give a list"),
        ({"C_max": 10.0, "lambda_min": 0.1}, "C_max=10.0 and lambda_min=0.1 say the same"),
        ({"C_max": 1.0, "C_min": 2.0}, "C_min=2.0 lies above the other end, C = 1;"),
        ({"callback": 3}, "callback=3 cannot be called"),
        ({"random_state": -1}, "random_state=-1"),
        ({"align": "n"}, "align='n' is not known"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_bad_input_is_named(change, message):
    X, y = noisy(60, share=0.2)
    if "groups" in change and isinstance(change["groups"], str):
        change = {**change, "groups": y}
    refused(message, svmcore.cv_path, X, y, **change)


@pytest.mark.parametrize("cv", [5, "loo"])
def test_a_class_of_one_row_is_named_with_what_helps(cv):
    X, y = noisy(30)
    y[0] = "so"
    refused(r"'so'.*its only row .* leave this row out", svmcore.cv_path, X, y, cv=cv)


def test_C_outside_is_refused_and_unknown_gammas_too():
    X, y = noisy(60)
    cv = svmcore.cv_path(X, y, C_min=0.1, C_max=10.0)
    assert cv.C_range == pytest.approx((0.1, 10.0), rel=1e-12)
    for C in (0.05, 11.0, -1.0, np.nan):
        refused("lies outside", cv.error, C)
    refused("was not tried", cv.error, 1.0, gamma=77.0)


# ---- what exact paths will cost is said before they are followed ----------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "too_large", "words"),
    [
        (1234.0, False, r"3 folds take about 1,234 s .* 50 points on the margin. Remedy: a smaller C_max, .* n_jobs"),
        (12.0, True, r"may not fit into memory. Remedy: a smaller C_max, or a sample of the rows."),
        (12.0, False, None),
    ],
)
def test_exact_paths_that_are_large_are_announced_with_the_remedy(monkeypatch, seconds, too_large, words):
    from svmcore.cv import job
    from svmcore.cv.estimate import Estimate

    X, y = noisy(60, share=0.4)
    few = {"cv": 3, "gamma": 0.3, "C_min": 1e-2, "C_max": 1.0}
    monkeypatch.setattr(job, "estimate", lambda *_: Estimate(seconds, 50.0, too_large))
    svmcore.cv_path(X, y, **few)  # so few rows that nobody asks
    monkeypatch.setattr(job, "_LARGE", 50)
    if words is not None:
        with pytest.warns(svmcore.CostWarning, match=words):
            cv = svmcore.cv_path(X, y, **few)
    else:
        cv = svmcore.cv_path(X, y, **few)
    assert "every C" in repr(cv)


def test_the_command_line_says_what_paths_will_cost_before_it_follows_them(monkeypatch, capsys, tmp_path):
    from svmcore import cli
    from svmcore.cv import job
    from svmcore.cv.estimate import Estimate

    monkeypatch.setattr(job, "_LARGE", 50)
    monkeypatch.setattr(job, "estimate", lambda *_: Estimate(1234.0, 50.0, False))
    real, before = job.Job.run, []
    monkeypatch.setattr(job.Job, "run", lambda *words: before.append(capsys.readouterr().err) or real(*words))
    svmcore.save_data(tmp_path / "some.csv", *noisy(60, share=0.4))
    assert cli.main(["cv", str(tmp_path / "some.csv"), "--C-max", "1", "--cv", "3", "-q"]) == 0
    (told,) = before
    assert told.startswith("svmcore: warning: the exact paths of 3 folds take about 1,234 s")
    assert capsys.readouterr().err == ""


def test_estimate_is_near_to_what_is_counted(monkeypatch):
    from svmcore.cv import estimate
    from svmcore.cv.folds import Fold

    monkeypatch.setattr(estimate, "_SAMPLES", (150, 300))
    X, y = noisy(900)
    cv = svmcore.cv_path(X, y, cv=3, gamma=0.3, C_max=100.0)
    guess = estimate.estimate(cv._study, 0.3, [Fold(*fold) for fold in cv.folds])
    paths = [member.strands[0].path for member in cv._members]
    work = sum(p.stats["n_events"] * np.diff(p._track.offset).mean() * 600.0 for p in paths)
    assert 0.4 < guess.seconds / (0.13e-9 * work) < 2.5
    assert 0.5 < guess.elbow / max(p.stats["elbow_max"] for p in paths) < 2.0
