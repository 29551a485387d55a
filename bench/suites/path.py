"""The whole regularization path against what others do instead: one fit, and a grid of a hundred values of C.

Every contestant covers C from 0.01 to 100 (except the single fit, at C = 1). Accuracy is the largest certified relative
gap at twenty values of C in between.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import svmcore
from bench import clock, data
from bench.contest import Context
from bench.environment import version
from bench.objective import Answer, score
from bench.peers import svmpath
from bench.peers.base import spread_out
from bench.peers.ours import PATH, WholePath
from bench.problems import Problem
from bench.suite import Suite

CASES = [
    Problem("monk1", kernel="linear"),
    Problem("monk1", gamma=1.0 / 6.0),
    Problem("clusters-500-10", kernel="linear"),
    Problem("clusters-500-10"),
    Problem("clusters-1000-20", kernel="linear"),
    Problem("clusters-1000-20"),
    Problem("noisy-1000-20"),
    Problem("mixture-1000-10"),
    Problem("heart"),
    Problem("wbc"),
    Problem("german"),
    Problem("svmguide3"),
    Problem("svmguide3", kernel="linear"),
    Problem("hillvalley", kernel="linear"),
    Problem("clusters-4000-10"),
    Problem("noisy-8000-5", gamma=0.4),
]
LOW, HIGH = WholePath.LOW, WholePath.HIGH
GRID = np.geomspace(LOW, HIGH, 100)
CHECKED = GRID[::5]
MOST_OF_GRIDS, MOST_OF_OUR_GRID = 1_500, 4_000  # points beyond which a grid takes minutes

Contestant = tuple[Callable[[], Any], Callable[[Any, float], Answer]]


def _path(problem: Problem, **options: Any) -> Contestant:
    solver = WholePath(**options)
    return solver.prepare(problem, 1e-3, 1), lambda path, C: solver.answer(dataclasses.replace(problem, C=C), path)


def _ours(problem: Problem, tol: float) -> Contestant:
    """Our own fits along the grid, each from the one before."""
    X, y, keywords = problem.X, problem.y, problem.keywords()

    def work() -> dict[float, Any]:
        found, start, last = {}, None, LOW
        for C in GRID:
            if start is not None:
                start = start * (C / last)  # what was at its bound is at the new one
            found[C] = svmcore.train_svc(X, y, C, tol=tol, alpha0=start, n_threads=1, **keywords)
            start, last = found[C].alpha, C
        return found

    def answer(found: dict[float, Any], C: float) -> Answer:
        return Answer(spread_out(problem.n, found[C].support, found[C].dual_coef), found[C].intercept)

    return work, answer


def _scikit(problem: Problem, Cs: np.ndarray) -> Contestant:
    from sklearn.svm import SVC

    X, y = problem.X, problem.y

    def work() -> dict[float, Any]:
        return {C: SVC(C=C, tol=1e-3, cache_size=2000, **problem.kernel_keywords()).fit(X, y) for C in Cs}

    def answer(found: dict[float, Any], C: float) -> Answer:
        return Answer(spread_out(problem.n, found[C].support_, found[C].dual_coef_), float(found[C].intercept_[0]))

    return work, answer


def contestants(context: Context, problem: Problem) -> dict[str, Contestant]:
    """Who covers the range, by name."""
    found = {PATH: _path(problem)}
    if problem.n <= 500:
        found[f"{PATH}, published algorithm (QR)"] = _path(problem, factorization="qr")
    if problem.n <= MOST_OF_GRIDS:
        found["svmcore grid of 100, tol 1e-6"] = _ours(problem, 1e-6)
    if problem.n <= MOST_OF_OUR_GRID:
        found["svmcore grid of 100, tol 1e-3"] = _ours(problem, 1e-3)
    if version("scikit-learn") is None:
        context.skip("path", "scikit-learn", "scikit-learn is not installed")
        return found
    found["scikit-learn, one fit at C = 1"] = _scikit(problem, np.ones(1))
    if problem.n <= MOST_OF_GRIDS:
        found["scikit-learn grid of 100, tol 1e-3"] = _scikit(problem, GRID)
    return found


def largest_gap(problem: Problem, found: Any, answer: Callable[[Any, float], Answer], Cs: np.ndarray) -> float:
    """The largest certified relative gap."""
    return max(float(score(dataclasses.replace(problem, C=float(C)), answer(found, C))["relative_gap"]) for C in Cs)


def compile_everything() -> None:
    """So that the first problem does not pay for it."""
    for kernel in ("linear", "rbf"):
        tiny = Problem("clusters-60-5", kernel=kernel)
        for work, _ in (_path(tiny), _path(tiny, factorization="qr"), _ours(tiny, 1e-3)):
            work()
    _path(Problem("clusters-500-10"))[0]()  # large enough for windows


def record(context: Context, problem: Problem, name: str, measured: dict[str, Any], took: clock.Times) -> None:
    """One row."""
    context.results.add(
        {
            "kind": "row", "suite": "path", "group": problem.kernel, "problem": problem.described(), "solver": name,
            "mode": "tol", "tol": 1e-3, "threads": 1, "asked": 1e-3, "score": measured, "met": True,
            "wall": took.wall, "cpu": took.cpu,
        }
    )  # fmt: skip


def by_r(context: Context, problem: Problem) -> str:
    """R's path, once, timed by itself; what to say of it."""
    why = svmpath.missing()
    if why:
        context.skip("path", svmpath.NAME, why)
        return ""
    if problem.n > svmpath.MOST_POINTS or problem.sparse:
        context.skip("path", svmpath.NAME, f"more than {svmpath.MOST_POINTS} points, or sparse", problem.name)
        return ""
    try:
        steps = svmpath.run(problem, 1.0 / HIGH)
        gap = largest_gap(problem, steps, lambda found, C: found.answer(problem, C), CHECKED)
    except (RuntimeError, ValueError) as error:  # singular systems are a result, not the end of the run
        context.skip("path", svmpath.NAME, f"failed: {error}", problem.name)
        return f", {svmpath.NAME} failed"
    measured = {"relative_gap": gap, "n_events": len(steps.lambdas)}
    record(context, problem, svmpath.NAME, measured, clock.Times([steps.wall], [steps.cpu]))
    return f", {svmpath.NAME} {1e3 * steps.cpu:.3g} ms (gap {gap:.1e})"


def measure(context: Context, problem: Problem) -> None:
    """Everybody on one problem."""
    who = contestants(context, problem)
    first = {name: clock.once(work) for name, (work, _) in who.items()}
    quick = {name: who[name][0] for name, (_, wall, _) in first.items() if wall < 10.0}
    rounds = clock.rounds_for(8.0, sum(first[name][1] for name in quick), most=7)
    times, _ = clock.alternate(quick, rounds, lambda name, done: done >= 2 and first[name][1] > 1.0)
    for name, (found, wall, cpu) in first.items():
        Cs = np.ones(1) if "one fit" in name else CHECKED
        measured: dict[str, Any] = {"relative_gap": largest_gap(problem, found, who[name][1], Cs)}
        if name.startswith(PATH):
            measured |= {key: found.stats[key] for key in ("n_events", "elbow_max")}
        record(context, problem, name, measured, times.get(name, clock.Times([wall], [cpu])))
    best = {name: min(times[name].cpu if name in times else [first[name][2]]) for name in first}
    said = ", ".join(f"{name} {1e3 * value:.3g} ms" for name, value in best.items())
    context.say(f"  {problem.name}: {said}{by_r(context, problem)}")


def run(context: Context) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile_everything()
    for problem in filter(context.takes, CASES):
        if why := data.missing(problem.data):
            context.skip("path", "everybody", why, problem.data)
            continue
        if context.out_of_time():
            context.skip("path", "everybody", "the suite's time was up", problem.name)
            continue
        with clock.threads(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            measure(context, problem)


SUITE = Suite("path", "the whole regularization path against single fits and grids of C", 8, run)
