"""Decision values: seconds per support vector and point, each machine trained by its own solver on the same problem."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import clock, data
from bench.contest import Context
from bench.peers import DEFAULT, Solver, peers
from bench.problems import Problem
from bench.suite import Suite

CASES = [
    (Problem("clusters-1000-20"), 2_000, 1),
    (Problem("clusters-5000-20"), 10_000, 1),
    (Problem("clusters-5000-100"), 10_000, 1),
    (Problem("onehot-5000-120", gamma=0.05), 5_000, 1),
    (Problem("clusters-5000-20", kernel="linear", C=0.1), 20_000, 1),
    (Problem("clusters-5000-20", kernel="poly", coef0=1.0), 10_000, 1),
    (Problem("clusters-5000-100"), 10_000, 2),
    (Problem("clusters-1000-20"), 1, 1),
    (Problem("clusters-5000-20", kernel="poly", coef0=1.0), 1, 1),
    (Problem("clusters-5000-20", kernel="linear", C=0.1), 1, 1),
    (Problem("onehot-5000-120", gamma=0.05), 1, 1),
    (Problem("embedding-5000-768"), 1, 1),
    (Problem("embedding-5000-768", kernel="poly", coef0=1.0), 1, 1),
]
ONE_ROW = "one row"
_CALLS = 50  # of one row, timed together
_CHECKED = 200


def _kernel(problem: Problem, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """The kernel matrix by its definition."""
    if problem.kernel == "rbf":
        squares = np.square(A).sum(axis=1)[:, None] + np.square(B).sum(axis=1)[None, :]
        return np.asarray(np.exp(-problem.gamma_value * np.maximum(squares - 2.0 * A @ B.T, 0.0)))
    if problem.kernel == "poly":
        return np.asarray((problem.gamma_value * A @ B.T + problem.coef0) ** problem.degree)
    return np.asarray(A @ B.T)


def _error(problem: Problem, solver: Solver, fitted: Any, points: Any, values: np.ndarray) -> float:
    """Largest deviation from decision values computed by the definition from the same coefficients."""
    answer = solver.answer(problem, fitted)
    assert answer.coef is not None
    support = np.flatnonzero(answer.coef)
    dense = [part.toarray() if hasattr(part, "toarray") else part for part in (points[:_CHECKED], problem.X[support])]
    exact = _kernel(problem, *dense) @ answer.coef[support] + answer.intercept
    return float(np.abs(exact - values[:_CHECKED]).max())


def run(context: Context) -> None:
    for problem, count, threads in CASES:
        kind, _, d = problem.data.split("-")
        points = data.load(f"{kind}-{count + problem.n}-{d}").X[:count]
        works, about = {}, {}
        with clock.threads(threads):
            for solver in [DEFAULT, *peers()]:
                if not context.wants(solver.name):
                    continue
                if why := solver.missing():
                    context.skip("predict", solver.name, why)
                    continue
                if why := "weight vector only" if solver.linear_only else solver.refuses(problem):
                    context.skip("predict", solver.name, why, problem.name)
                    continue
                fitted = solver.prepare(problem, 1e-3, threads)()
                works[solver.name] = solver.decide(fitted, points, threads)
                values = np.ravel(works[solver.name]())
                coef = solver.answer(problem, fitted).coef
                works[solver.name] = clock.repeated(works[solver.name], _CALLS if count == 1 else 1)
                n_sv = int(np.count_nonzero(np.asarray(coef)))
                about[solver.name] = {"n_sv": n_sv, "error": _error(problem, solver, fitted, points, values)}
            one_round = sum(clock.once(work)[1] for work in works.values())
            times, _ = clock.alternate(works, clock.rounds_for(8.0, one_round))
        if count == 1:
            times = {name: took.shared(_CALLS) for name, took in times.items()}
        for name, took in times.items():
            context.results.add(
                {
                    "kind": "row", "suite": "predict", "group": ONE_ROW if count == 1 else "",
                    "problem": problem.described(), "points": count,
                    "solver": name, "mode": "tol", "tol": 1e-3, "threads": threads, "asked": 1e-3,
                    "score": about[name], "met": about[name]["error"] < 1e-3, "wall": took.wall, "cpu": took.cpu,
                }
            )  # fmt: skip
        context.say(
            f"  {problem.name}, {count} points, {threads} thread{'s'[: threads - 1]}: "
            + ", ".join(
                f"{name} {1e3 * min(took.cpu if threads == 1 else took.wall):.3g} ms" for name, took in times.items()
            )
        )


SUITE = Suite("predict", "decision values of thousands of points", 5, run)
