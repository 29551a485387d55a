"""Tuning a linear machine by the protocol of papers on bilevel programs, whose methods stop at a stationary point.

GR-CV (Li, Li and Zemkoho 2022), LP-Newton (Qian, Li and Zemkoho), SDNM (2025) and VF-iDCA (Gao et al. 2022) choose C by three
folds of some rows, and report the error of these folds, the error on the other rows and the seconds. `cv_path` has the
*global* minimum of the error over every C in [1e-4, 1e4]; Yang and Ong (2011) found global minima of validation functions by
paths before. LIBLINEAR stands for a grid: of nine values, as in these papers, and of 101. Machines have no intercept.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

import svmcore
from bench import data
from bench.contest import Context
from bench.environment import version
from bench.race import race
from bench.suite import Suite

OURS = "svmcore, every C"
LOW, HIGH, FOLDS = 1e-4, 1e4, 3
GRIDS = {"LIBLINEAR, 9 values": 9, "LIBLINEAR, 101 values": 101}
ROWS = {  # of the folds; the other rows are for the test
    "sonar": 150, "heart": 189, "ionosphere": 246, "wbc": 477, "diabetes": 537, "german": 700, "splice": 1000, "a1a": 1000,
    "a4a": 3000, "a7a": 3000,
}  # fmt: skip


class _Task(NamedTuple):
    """Rows, how they are cut, and rows for the test."""

    X: Any
    y: np.ndarray
    folds: list[tuple[np.ndarray, np.ndarray]]
    held: tuple[Any, np.ndarray]

    def judge(self, who: str, answers: Any) -> tuple[bool, dict[str, float]]:
        """Errors of the folds and of the test by machines of a small gap, whoever chose C."""
        X, y, folds, held = self
        fit = partial(svmcore.train_svc, C=answers[who], kernel="linear", fit_intercept=False, tol=1e-6)
        wrong = sum(int(np.sum(fit(X[a], y[a]).predict(X[b]) != y[b])) for a, b in folds)
        test = float(np.mean(fit(X, y).predict(held[0]) != held[1]))
        return True, {"best_C": answers[who], "best_error": wrong / len(y), "error": test}


def _ours(task: _Task) -> float:
    """The best C, exactly."""
    words: dict[str, Any] = {"kernel": "linear", "fit_intercept": False, "C_min": LOW, "C_max": HIGH, "n_jobs": 1}
    return svmcore.cv_path(task.X, task.y, cv=task.folds, **words).best_C


def _grid(task: _Task, values: int) -> float:
    """The best C of a grid."""
    Cs, (X, y) = np.geomspace(LOW, HIGH, values), task[:2]
    errors = [sum(int(np.sum(_linear(X[a], y[a], C).predict(X[b]) != y[b])) for a, b in task.folds) for C in Cs]
    return float(Cs[int(np.argmin(errors))])


def _linear(X: Any, y: np.ndarray, C: float) -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC(loss="hinge", C=C, fit_intercept=False, random_state=0).fit(X, y)


def run(context: Context) -> None:
    """Every set: who finds which error, in which time."""
    for name, rows in ROWS.items():
        if not context.named(name):
            continue
        if why := data.missing(name):
            context.skip("bilevel", "everybody", why, name)
            continue
        found = data.load(name)
        order = np.random.default_rng(0).permutation(len(found.y))
        used = min(context.size(rows, 90), rows)
        cut = np.arange(used) % FOLDS
        folds = [(np.flatnonzero(cut != k), np.flatnonzero(cut == k)) for k in range(FOLDS)]
        here, other = order[:used], order[rows:]
        task = _Task(found.X[here], found.y[here], folds, (found.X[other], found.y[other]))
        works = {OURS: partial(_ours, task)}
        if version("scikit-learn") is None:
            context.skip("bilevel", "LIBLINEAR", "scikit-learn, which brings it, is not installed")
        else:
            works |= {who: partial(_grid, task, values) for who, values in GRIDS.items()}
        problem = {"name": name, "n": used, "d": found.X.shape[1]}
        race(context, "bilevel", "", problem, works, seconds=2.0, judge=task.judge)


SUITE = Suite("bilevel", "tuning a linear machine as papers on bilevel programs do: the least error of all C", 8, run)
