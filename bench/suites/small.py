"""Calls that take less than a millisecond: a fit of 200 points, one row of predict, a path of 60 points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import svmcore
from bench import clock
from bench.contest import Context
from bench.peers import DEFAULT, Solver, peers
from bench.problems import Problem
from bench.race import race
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
    several = {name: clock.repeated(work, calls) for name, work in works.items()}
    race(context, "small", what, problem.described(), several, seconds=_SECONDS, least=3, calls=calls)


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
