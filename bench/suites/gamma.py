"""Choosing C and gamma on 17 sets: a search that follows every C, a grid, random draws, and no choice of gamma at all.

All choose by the error of the same five folds of up to 300 rows, and are judged on the other rows by error and log loss: the
sigmoid is fitted to values out of fold. The fits of the grid and of the draws are ours, in the place of scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import svmcore
from bench import data
from bench.contest import Context
from bench.race import race
from bench.suite import Suite

SEARCH, SCALE = "svmcore, gamma search, every C", "svmcore, gamma = scale, every C"
GRID, DRAWS = "svmcore, grid of 20 x 20", "svmcore, 30 random draws"
ROWS, FOLDS, TRIALS, MOST = 300, 5, 3, 1000.0
LEAST = 1e-2  # C; gamma is within a factor of 2^8 of 1 / d
SETS = (
    "sonar", "heart", "ionosphere", "wbc", "monk1", "monk2", "monk3", "diabetes", "hillvalley", "german", "svmguide3",
    "splice", "a1a", "raetsch_breast_cancer", "raetsch_thyroid", "raetsch_flare_solar", "raetsch_titanic",
)  # fmt: skip

Choice = tuple[float, float]


class _Trial(NamedTuple):
    """Rows to choose by, and others to judge by."""

    X: np.ndarray
    y: np.ndarray
    held: tuple[np.ndarray, np.ndarray]
    seed: int

    def judge(self, who: str, answers: Any) -> tuple[bool, dict[str, float]]:
        """Error and log loss on the other rows, at a choice of C and gamma."""
        X, y, held, seed = self
        C, gamma = answers[who]
        found = svmcore.cv_path(X, y, cv=FOLDS, gamma=gamma, C_min=0.5 * C, C_max=C, n_jobs=1, random_state=seed)
        sure = found.calibrate("sigmoid", C=C).predict_proba(held[0])[:, 1]
        right = np.clip(np.where(held[1] > 0, sure, 1.0 - sure), 1e-6, 1.0)
        return True, {
            "best_C": C, "gamma": gamma, "error": float(np.mean((sure > 0.5) != (held[1] > 0))),
            "log_loss": float(-np.log(right).mean()),
        }  # fmt: skip


def _followed(at: _Trial, gamma: Any) -> Choice:
    words: dict[str, Any] = {"C_min": LEAST, "C_max": MOST, "n_jobs": 1, "random_state": at.seed}
    found = svmcore.cv_path(at.X, at.y, cv=FOLDS, gamma=gamma, **words)
    assert found.best_gamma is not None
    return found.best_C, found.best_gamma


def _tried(at: _Trial, pairs: Iterable[Choice]) -> Choice:
    """The best of some pairs of C and gamma, a fit for every fold of each."""
    from sklearn.model_selection import StratifiedKFold

    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=at.seed).split(at.X, at.y))
    best, least = (np.nan, np.nan), np.inf
    for C, gamma in pairs:
        fits = ((svmcore.train_svc(at.X[a], at.y[a], C, gamma=gamma, n_threads=1), b) for a, b in folds)
        wrong = sum(int(np.sum(machine.predict(at.X[b]) != at.y[b])) for machine, b in fits)
        if wrong < least:
            best, least = (C, gamma), wrong
    return best


def _pairs(d: int, side: int) -> list[Choice]:
    Cs, gammas = np.geomspace(LEAST, MOST, side), np.geomspace(2.0**-8, 2.0**8, side) / d
    return [(float(C), float(gamma)) for C in Cs for gamma in gammas]


def _drawn(d: int, count: int, seed: int) -> list[Choice]:
    rng = np.random.default_rng(seed)
    Cs, gammas = LEAST * (MOST / LEAST) ** rng.random(count), 2.0 ** rng.uniform(-8.0, 8.0, count) / d
    return [(float(C), float(gamma)) for C, gamma in zip(Cs, gammas, strict=True)]


def _works(at: _Trial, side: int) -> dict[str, Callable[[], Choice]]:
    d = at.X.shape[1]
    return {
        SEARCH: partial(_followed, at, "search"),
        SCALE: partial(_followed, at, "scale"),
        DRAWS: partial(_tried, at, _drawn(d, 30, at.seed)),
        GRID: partial(_tried, at, _pairs(d, side)),
    }


def run(context: Context) -> None:
    """Every set, several times with other rows."""
    little = data.load("clusters-300-10")
    for work in _works(_Trial(little.X, little.y, little[:2], 0), 3).values():
        work()  # not timed: machine code is loaded
    for trial in range(context.size(TRIALS, 1)):  # a run that is cut short has some of every set
        for name in SETS:
            if not context.named(name):
                continue
            if why := data.missing(name):
                context.skip("gamma", "everybody", why, name)
                continue
            found = data.load(name)
            X, y = np.asarray(found.X.toarray() if hasattr(found.X, "toarray") else found.X), found.y
            order = np.random.default_rng(trial).permutation(len(y))
            rows = context.size(min(ROWS, 2 * len(y) // 3), 60)
            here, other = order[:rows], order[rows:]
            at = _Trial(X[here], y[here], (X[other], y[other]), trial)
            problem, works = {"name": f"trial {trial}", "n": rows, "d": X.shape[1]}, _works(at, context.size(20, 3))
            race(context, "gamma", name, problem, works, once=True, judge=at.judge)


SUITE = Suite("gamma", "choosing C and gamma: a search, a grid of 20 x 20, 30 draws, and none, on 17 sets", 10, run)
