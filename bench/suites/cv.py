"""Tuning C by five folds: for every C from 0.001 to 1,000 at once, or at the values of a grid; judged by what they predict.

The large case, ten folds of 10,000 points with 1,000 features and two processors, takes minutes: `--full`.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import svmcore
from bench import clock, data
from bench.contest import Context
from bench.peers.tuners import OursEveryC, OursWarm, ScikitGrid, Tuner, pairs_of, tuners
from bench.problems import Problem
from bench.suite import Suite

TEN, FIFTY = "10 values", "50 values"
SIZES = {TEN: 10, FIFTY: 50}
LOW, HIGH = -3, 3  # powers of ten


class Case(NamedTuple):
    """A problem, the grid of the others, and how it is cut."""

    problem: Problem
    group: str = TEN
    folds: int = 5
    threads: int = 1


CASES = [  # the most telling first: a run that is cut short has a row of every group
    Case(Problem("clusters-500-10")),
    Case(Problem("clusters-1000-20")),
    Case(Problem("clusters-500-10"), FIFTY),
    Case(Problem("clusters-500-10", kernel="linear")),
    Case(Problem("german", kernel="linear")),
    Case(Problem("svmguide3"), FIFTY),
    Case(Problem("noisy-1000-20")),
    Case(Problem("german")),
    Case(Problem("svmguide3")),
    Case(Problem("checkerboard", gamma=10.0)),
    Case(Problem("noisy-2000-5", gamma=0.4)),
    Case(Problem("clusters-3000-20")),
    Case(Problem("clusters-5000-10")),
]
LARGE = Case(Problem("clusters-10000-1000"), folds=10, threads=2)
_ONCE = 10.0  # seconds: who takes longer is timed once, since a warm cache saves it nothing that would be seen
_DISAGREE = 0.005  # share of signs that may differ from ours: a tolerance of 1e-3 leaves some open
_TUNERS: dict[str, tuple[type[Tuner], ...]] = {FIFTY: (OursEveryC, ScikitGrid, OursWarm)}


def run(context: Context) -> None:
    for case in [*CASES, *([LARGE] if context.full else [])]:
        if not context.takes(case.problem):
            continue
        if context.out_of_time():
            return
        if why := data.missing(case.problem.data):
            context.skip("cv", "everybody", why, case.problem.data)
            continue
        _measure(context, case)


def _measure(context: Context, case: Case) -> None:
    problem = case.problem
    folds = 1 + np.random.default_rng(0).permutation(problem.n) % case.folds
    Cs = np.logspace(LOW, HIGH, SIZES[case.group])
    chosen: dict[str, Tuner] = {}
    for tuner in tuners():
        if not (context.wants(tuner.name) or isinstance(tuner, OursEveryC)):
            continue
        if case is LARGE and not isinstance(tuner, OursEveryC):
            continue
        if case.group in _TUNERS and not any(type(tuner) is each for each in _TUNERS[case.group]):
            continue
        if why := tuner.missing():
            context.skip("cv", tuner.name, why)
        elif problem.n > tuner.most_points:
            context.skip("cv", tuner.name, f"more than {tuner.most_points} points", problem.name)
        else:
            tuner.workers = case.threads
            chosen[tuner.name] = tuner
    with clock.threads(case.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        works = {name: tuner.prepare(problem, Cs, folds, 1e-3) for name, tuner in chosen.items()}
        first = {name: clock.once(work) for name, work in works.items()}
        long = {name for name, (_, wall, _) in first.items() if wall > _ONCE}
        others = {name: work for name, work in works.items() if name not in long}
        one_round = sum(first[name][1] for name in others)
        times, answers = clock.alternate(others, clock.rounds_for(20.0, one_round, most=7))
        for name in long:
            answers[name], wall, cpu = first[name]
            times[name] = clock.Times([wall], [cpu])
        scores = {name: tuner.scores(answers[name], Cs) for name, tuner in chosen.items()}
        share = None if case is LARGE else _curve_share(problem, folds)
    ours = np.sign(scores[OursEveryC.name])
    for name, took in times.items():
        errors = np.mean(np.sign(scores[name]) != problem.y, axis=1)
        best = int(errors.argmin())
        disagree = float(np.mean(np.sign(scores[name]) != ours))
        score: dict[str, Any] = {"best_error": errors[best], "best_C": Cs[best], "disagree": disagree}
        if name == OursEveryC.name:
            found = answers[name]
            score |= {"best_error": found.best_error, "best_C": found.best_C}
            score |= {} if share is None else {"curve_share": share}
        context.results.add(
            {
                "kind": "row", "suite": "cv", "group": case.group, "problem": problem.described(), "solver": name,
                "mode": "tol", "tol": 1e-3, "threads": case.threads, "asked": 1e-3, "score": score,
                "met": disagree < _DISAGREE, "wall": took.wall, "cpu": took.cpu,
            }
        )  # fmt: skip
    shown = ", ".join(f"{name} {min(took.cpu):.3g} s" for name, took in times.items())
    context.say(f"  {problem.name}, {case.group}: {shown}")


def _curve_share(problem: Problem, folds: np.ndarray) -> float:
    """The time of the exact validation curves of all folds, by that of their paths."""
    keywords = problem.keywords()
    del keywords["loss"]
    paths = curves = 0.0
    for train, test in pairs_of(folds):
        follow = partial(svmcore.svm_path, problem.X[train], problem.y[train], n_threads=1, **keywords)
        path, _, cpu = clock.once(partial(follow, C_min=10.0**LOW, C_max=10.0**HIGH))
        paths += cpu
        curves += clock.once(partial(path.error_curve, problem.X[test], problem.y[test]))[2]
    return curves / paths


SUITE = Suite("cv", "tuning C: 5 folds, every C against grids of 10 and 50 values", 12, run)
