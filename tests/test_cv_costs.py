"""What exact paths will cost is said before they are followed, with the remedy."""

from __future__ import annotations

import numpy as np
import pytest
from test_cv import noisy

import svmcore

pytestmark = pytest.mark.compiled  # whole paths and fits: minutes without


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
