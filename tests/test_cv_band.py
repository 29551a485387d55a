"""Certified bands: the exact curve is inside, and nothing better than promised is missed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from test_cv import SETS, noisy

import svmcore

pytestmark = pytest.mark.compiled  # whole paths and fits: minutes without


@pytest.fixture(autouse=True)
def too_large(monkeypatch):
    """Paths of small sets fit into memory, and these tests are about what is done where they do not."""
    from svmcore.cv import job
    from svmcore.cv.estimate import Estimate

    monkeypatch.setattr(job, "estimate", lambda *_: Estimate(1e6, 1e6, True))


@pytest.mark.parametrize(
    "options",
    [
        {"gamma": 0.3},
        {"kernel": "linear"},
        {"kernel": "poly", "degree": 2, "coef0": 1.0, "gamma": 0.2},
        {"gamma": 0.3, "fit_intercept": False, "intercept_scaling": 1.5},
        {"gamma": 0.3, "class_weight": "balanced", "score": "balanced_error"},
        {"gamma": 0.3, "costs": {"yes": 4.0}, "standardize": True, "align": "C*n"},
        {"kernel": "precomputed"},
    ],
    ids=str,
)
def test_band_contains_the_exact_curve(options):
    X, y = noisy(90, share=0.35)
    X = X @ X.T if options.get("kernel") == "precomputed" else X
    exact = svmcore.cv_path(X, y, cv=3, C_min=1e-3, C_max=3.0, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cv = svmcore.cv_path(X, y, cv=3, C_min=1e-3, C_max=3.0, eps=0.05, **options)
    assert cv.stats["certified"] or "the intercept is not unique" in str(caught[0].message)
    C = np.exp(np.random.default_rng(0).uniform(np.log(1.001e-3), np.log(2.999), 3000))
    low, high = cv.band(C)
    truth = exact.error(C)
    assert (low <= truth + 1e-12).all()
    assert (truth <= high + 1e-12).all()
    if cv.stats["certified"]:
        assert exact.best_error >= cv.best_error - 0.05 - 1e-12
    assert (
        np.mean((high - low)[C > 0.3]) < 0.4
    )  # it says something; for small C balanced classes leave the intercept open
    assert cv.stats["n_fits"] < 1000


def test_a_narrower_band_takes_more_fits_and_nothing_better_is_missed():
    X, y = noisy(120, share=0.4)  # equal classes would leave the intercept open for small C
    counts = []
    exact = svmcore.cv_path(X, y, cv=3, gamma=0.3, C_min=1e-2, C_max=1.0)
    for eps in (0.1, 0.03, 0.01):
        cv = svmcore.cv_path(X, y, cv=3, gamma=0.3, C_min=1e-2, C_max=1.0, eps=eps)
        counts.append(cv.stats["n_fits"])
        assert exact.best_error >= cv.best_error - eps - 1e-12
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_picture_has_the_band():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    X, y = noisy(60, share=0.4)
    ax = svmcore.cv_path(X, y, cv=3, gamma=0.3, C_min=1e-2, C_max=1.0, eps=0.1).plot()
    assert "certified band" in ax.get_legend_handles_labels()[1]
    assert "values of C" in ax.get_title(loc="left")
    ax.figure.canvas.draw()
    plt.close("all")


def test_saved_and_loaded_a_band_answers_alike(tmp_path):
    X, y = noisy(60, share=0.4)
    cv = svmcore.cv_path(X, y, cv=3, gamma=[0.1, 0.3], C_min=1e-2, C_max=1.0, eps=0.1, standardize=True)
    file = tmp_path / "band.npz"
    cv.save(file)
    same = svmcore.load(file)
    C = np.geomspace(0.011, 0.99, 40)
    for gamma in cv.gammas:
        np.testing.assert_array_equal(np.array(cv.band(C, gamma)), np.array(same.band(C, gamma)))
        np.testing.assert_array_equal(cv.error(C, gamma), same.error(C, gamma))
    np.testing.assert_array_equal(cv.decision_scores(0.3), same.decision_scores(0.3))
    assert repr(same) == repr(cv)
    assert same.best_C == cv.best_C


def test_number_of_workers_changes_nothing():
    X, y = noisy(60, share=0.4)
    options = {"cv": 3, "gamma": 0.3, "C_min": 1e-2, "C_max": 1.0, "eps": 0.05}
    one, many = (svmcore.cv_path(X, y, n_jobs=n_jobs, **options) for n_jobs in (1, 2))
    C = np.geomspace(0.011, 0.99, 200)
    np.testing.assert_array_equal(np.array(one.band(C)), np.array(many.band(C)))
    np.testing.assert_array_equal(one.decision_scores(0.3), many.decision_scores(0.3))
    assert one.stats["n_fits"] == many.stats["n_fits"]


@pytest.mark.parametrize("strategy", ["ovo", "ovr"])
def test_band_of_several_classes_contains_the_exact_curve(strategy):
    X, y = noisy(120, share=0.4)
    y = np.where(X[:, 1] > 0.7, "third", y)
    options = {"cv": 3, "gamma": 0.3, "C_min": 1e-2, "C_max": 3.0, "classes": strategy}
    exact = svmcore.cv_path(X, y, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", svmcore.ConvergenceWarning)
        cv = svmcore.cv_path(X, y, eps=0.1, **options)
    C = np.exp(np.random.default_rng(0).uniform(np.log(1.001e-2), np.log(2.999), 2000))
    low, high = cv.band(C)
    truth = exact.error(C)
    assert (low <= truth + 1e-12).all()
    assert (truth <= high + 1e-12).all()
    assert np.mean((high - low)[C > 0.3]) < 0.5


def test_a_band_that_is_cut_short_still_holds():
    X, y = noisy(90)
    with pytest.warns(svmcore.ConvergenceWarning, match="ended early"):
        cv = svmcore.cv_path(X, y, cv=3, gamma=0.3, C_max=10.0, eps=1e-3, callback=lambda report: report.n_done > 60)
    exact = svmcore.cv_path(X, y, cv=3, gamma=0.3, C_max=10.0)
    C = np.geomspace(1e-4, 9.9, 500)
    low, high = cv.band(C)
    assert ((low <= exact.error(C)) & (exact.error(C) <= high)).all()
    assert not cv.stats["certified"]


def test_cheap_paths_are_exact_and_the_choice_is_said(monkeypatch, capsys):
    from svmcore.cv import estimate, job

    monkeypatch.setattr(job, "estimate", estimate.estimate)
    X, y = noisy(60, share=0.4)
    cv = svmcore.cv_path(X, y, cv=3, gamma=0.3, C_min=1e-2, C_max=1.0, eps=0.1)
    assert cv.band(0.3) == (cv.error(0.3), cv.error(0.3))
    assert "every C" in repr(cv)
    assert cv.stats["estimated_seconds"] == 0.0

    monkeypatch.setattr(estimate, "_SAMPLES", (15, 30))
    cv = svmcore.cv_path(X, y, cv=3, gamma=0.3, C_min=1e-2, C_max=1.0, eps=0.1, verbose=1)
    assert "every C" in repr(cv)
    assert cv.stats["estimated_seconds"] > 0.0
    assert capsys.readouterr().err.splitlines()[0].endswith("exact curves")

    monkeypatch.setattr(estimate, "_MEMORY", 0.0)
    cv = svmcore.cv_path(X, y, cv=3, gamma=0.3, C_min=1e-2, C_max=1.0, eps=0.1, verbose=1)
    assert "certified for C" in repr(cv)
    assert "too many for memory: fits with certified bounds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "too_large", "words"),
    [
        (1234.0, False, r"3 folds take about 1,234 s .* 50 points on the margin. Remedy: a smaller C_max, .* n_jobs"),
        (12.0, True, r"may not fit into memory. Remedy: a smaller C_max, .* eps=0.1"),
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
    slow = svmcore.cv_path(X, y, eps=0.1, **few)  # a long time is no reason for a band, which takes longer
    assert ("certified for C" if too_large else "every C") in repr(slow)


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


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_bands_of_real_data_contain_the_exact_curve(name, data_set):
    X, y = data_set(name)
    X = X.toarray() if hasattr(X, "toarray") else X
    rows = np.random.default_rng(0).permutation(len(y))[:150]
    options = {"standardize": True, "cv": 3, "C_min": 1e-2, "C_max": 10.0}
    exact = svmcore.cv_path(X[rows], y[rows], **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", svmcore.ConvergenceWarning)
        cv = svmcore.cv_path(X[rows], y[rows], eps=0.1, **options)
    assert cv.stats["n_fits"] > 20
    C = np.exp(np.random.default_rng(0).uniform(np.log(1.001e-2), np.log(9.99), 3000))
    low, high = cv.band(C)
    assert (low <= exact.error(C) + 1e-12).all()
    assert (exact.error(C) <= high + 1e-12).all()
