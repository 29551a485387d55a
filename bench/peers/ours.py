"""Our own solvers, every name in `svmcore.solvers()`, with options where a solver has variants worth a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import svmcore
from bench.objective import Answer
from bench.peers.base import Solver, spread_out
from bench.problems import Problem


class Ours(Solver):
    """`svmcore.train_svc(solver=...)`, or `train_svr` for a regression."""

    package = "svmcore"

    def __init__(self, solver: str = "auto", **options: Any) -> None:
        self.solver = solver
        self.options = options
        words = [f"{key}={value}" for key, value in options.items()]
        self.name = " ".join(["svmcore", *([] if solver == "auto" else [solver]), *words])

    def missing(self) -> str:
        return ""

    def refuses(self, problem: Problem) -> str:
        if self.solver == "auto":
            return ""
        can = svmcore.solvers()[self.solver]
        for needed, able, what in [
            (problem.kernel != "linear", not can.linear_only, "kernels other than the linear one"),
            (problem.fit_intercept, can.equality, "an intercept"),
            (not problem.fit_intercept, can.no_equality, "problems without an intercept"),
            (problem.regression, can.twins, "regression"),
            (problem.loss == "hinge" and np.isfinite(problem.C), can.finite_bounds, "a finite C with the hinge"),
            (problem.loss != "hinge" or np.isinf(problem.C), can.infinite_bounds, "squared losses"),
        ]:
            if needed and not able:
                return f"does not do {what}"
        return ""

    def prepare(self, problem: Problem, tol: float, threads: int) -> Callable[[], Any]:
        X, y = problem.X, problem.y
        keywords = {**problem.keywords(), "solver": self.solver, "tol": tol, "n_threads": threads, **self.options}
        if problem.regression:
            train_svr = svmcore.train_svr  # loaded here, not inside the fit
            return lambda: train_svr(X, y, problem.C, problem.epsilon, **keywords)
        train_svc = svmcore.train_svc
        return lambda: train_svc(X, y, problem.C, **keywords)

    def answer(self, problem: Problem, fitted: Any) -> Answer:
        return Answer(
            spread_out(problem.n, fitted.support, fitted.dual_coef),
            fitted.intercept,
            n_iter=fitted.n_iter,
            n_kernel_evals=fitted.n_kernel_evals,
        )

    def decide(self, fitted: Any, X: Any, threads: int) -> Callable[[], np.ndarray]:
        return lambda: fitted.decision_function(X)


DEFAULT = Ours()


def every() -> list[Ours]:
    """All registered solvers, SMO with each of its rules."""
    found = []
    for name in svmcore.solvers():
        rules = getattr(svmcore.solvers.load(name), "OPTION_VALUES", {}).get("rule", ())
        found += [Ours(name, rule=rule) for rule in rules] or [Ours(name)]
    return found
