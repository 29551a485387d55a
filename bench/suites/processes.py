"""Cold starts and memory peaks: each measurement in a fresh process."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping

from bench.contest import Context
from bench.peers import DEFAULT, Solver, peers
from bench.problems import Problem
from bench.suite import Suite
from bench.worker import spawn

COLD = Problem("clusters-1000-20")
MEMORY = [
    Problem("clusters-5000-20"),
    Problem("clusters-20000-20"),
    Problem("onehot-10000-120", gamma=0.05),
    Problem("clusters-200000-20"),
]
OURS_ALONE = 100_000  # points from which the peers take many minutes


def _here(context: Context, suite: str, problem: Problem) -> list[Solver]:
    """The solvers that can be measured on a problem."""
    found = []
    for solver in [DEFAULT, *peers()]:
        if not context.wants(solver.name):
            continue
        if why := solver.missing():
            context.skip(suite, solver.name, why)
        elif why := solver.refuses(problem):
            context.skip(suite, solver.name, why, problem.name)
        elif solver is not DEFAULT and problem.n >= OURS_ALONE:
            context.skip(suite, solver.name, "many minutes", problem.name)
        else:
            found.append(solver)
    return found


def _record(context: Context, suite: str, problem: Problem, who: str, runs: list[dict[str, float]], key: str) -> None:
    measured = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    context.results.add(
        {
            "kind": "row", "suite": suite, "group": "", "problem": problem.described(), "solver": who, "mode": "tol",
            "tol": 1e-3, "threads": 1, "asked": 1e-3, "score": measured, "met": True,
            "wall": [run[key] for run in runs], "cpu": [run["first_fit_cpu"] for run in runs],
        }
    )  # fmt: skip


def run_cold(context: Context) -> None:
    """Import and first fit; ours also with an empty compilation cache, as on the day of installation."""
    with tempfile.TemporaryDirectory() as empty:
        cases: list[tuple[Solver, str, Mapping[str, str], int]] = []
        for solver in _here(context, "cold", COLD):
            if solver.package == "svmcore":
                cases.append((solver, f"{solver.name}, first process ever", {"NUMBA_CACHE_DIR": empty}, 1))
            cases.append((solver, solver.name, {}, 5))
        for solver, label, extra, repeats in cases:
            try:
                if repeats > 1:
                    spawn(solver.name, COLD, extra)
                runs = [spawn(solver.name, COLD, extra) for _ in range(repeats)]
            except RuntimeError as error:
                context.skip("cold", label, f"failed: {error}")
                continue
            _record(context, "cold", COLD, label, runs, "first_fit")
            middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            context.say(
                f"  {label}: import {middle['import_seconds']:.2f} s, first fit {middle['first_fit']:.2f} s, "
                f"second {middle['second_fit']:.4f} s"
            )


def run_memory(context: Context) -> None:
    """Peak resident memory of a fit above what was there before it."""
    for problem in MEMORY:
        if context.out_of_time():
            context.skip("memory", "everybody", "the suite's time was up", problem.name)
            continue
        parts = []
        for solver in _here(context, "memory", problem):
            try:
                runs = [spawn(solver.name, problem)]
            except RuntimeError as error:
                context.skip("memory", solver.name, f"failed: {error}", problem.name)
                continue
            _record(context, "memory", problem, solver.name, runs, "first_fit")
            parts.append(f"{solver.name} {runs[0]['peak_mb']:.0f} MB")
        context.say(f"  {problem.name}: {', '.join(parts)}")


COLD_SUITE = Suite("cold", "import and first fit in fresh processes", 4, run_cold)
MEMORY_SUITE = Suite("memory", "peak memory of a fit, in fresh processes", 5, run_memory)
