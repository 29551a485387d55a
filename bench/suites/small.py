"""Calls that take less than a millisecond: a fit of 200 points, one row of predict, a path of 60 points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import svmcore
from bench import clock
from bench.contest import Context
from bench.peers import DEFAULT, Solver, peers
from bench.problems import Problem
from bench.suite import Suite

FIT, ROW, PATH = "fit", "predict of one row", "path"
SMALL = Problem("clusters-200-20")
PATHS = [Problem("clusters-60-20"), Problem("clusters-60-2", gamma=1.0)]
_CALLS = {FIT: 20, ROW: 100, PATH: 20}  # timed together
_SECONDS = 6.0


def _here(context: Context) -> list[Solver]:
    found = []
    for solver in [DEFAULT, *peers()]:
        if context.wants(solver.name) and not solver.linear_only:
            if why := solver.missing() or solver.refuses(SMALL):
                context.skip("small", solver.name, why)
            else:
                found.append(solver)
    return found


def _follow(problem: Problem) -> Callable[[], Any]:
    options = problem.keywords()
    del options["loss"]
    return lambda: svmcore.svm_path(problem.X, problem.y, n_threads=1, **options)


def _measure(context: Context, what: str, problem: Problem, works: dict[str, Callable[[], Any]]) -> None:
    calls = _CALLS[what]
    with clock.threads(1):
        several = {name: clock.repeated(work, calls) for name, work in works.items()}
        for work in several.values():
            work()
        one_round = sum(clock.once(work)[1] for work in several.values())
        times, _ = clock.alternate(several, clock.rounds_for(_SECONDS, one_round))
    times = {name: took.shared(calls) for name, took in times.items()}
    for name, took in times.items():
        context.results.add(
            {
                "kind": "row", "suite": "small", "group": what, "problem": problem.described(), "solver": name,
                "mode": "tol", "tol": 1e-3, "threads": 1, "asked": 1e-3, "score": {}, "met": True,
                "wall": took.wall, "cpu": took.cpu,
            }
        )  # fmt: skip
    shown = ", ".join(f"{name} {1e6 * min(took.cpu):.0f} us" for name, took in times.items())
    context.say(f"  {what}, {problem.name}: {shown}")


def run(context: Context) -> None:
    solvers = _here(context)
    fits = {solver.name: solver.prepare(SMALL, 1e-3, 1) for solver in solvers}
    _measure(context, FIT, SMALL, fits)
    rows = {solver.name: solver.decide(fits[solver.name](), SMALL.X[:1], 1) for solver in solvers}
    _measure(context, ROW, SMALL, rows)
    if context.wants(DEFAULT.name):
        for problem in PATHS:
            _measure(context, PATH, problem, {DEFAULT.name: _follow(problem)})


SUITE = Suite("small", "calls of less than a millisecond: fit, one row, path", 1, run)
