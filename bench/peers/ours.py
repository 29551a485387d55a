"""Our own solvers, every name in `svmcore.solvers()`, with options where a solver has variants worth a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import svmcore
import svmcore.solvers
from bench.objective import Answer
from bench.peers.base import Solver, spread_out
from bench.problems import Problem


def registry() -> Mapping[str, Any]:
    """What every solver of ours declares, by name."""
    found: Mapping[str, Any] = svmcore.solvers()
    return found


PATH = "svmcore path"


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
        can = registry()[self.solver]
        for needed, able, what in [
            (problem.kernel != "linear" and problem.n > 3000, not can.factorises, "kernel matrices above 3,000 points"),
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
        epsilon = problem.epsilon
        if epsilon is not None:
            train_svr = svmcore.train_svr  # loaded here, not inside the fit
            return lambda: train_svr(X, y, problem.C, epsilon, **keywords)
        train_svc = svmcore.train_svc
        return lambda: train_svc(X, y, problem.C, **keywords)

    def answer(self, problem: Problem, fitted: Any) -> Answer:
        return Answer(
            spread_out(problem.n, fitted.support, fitted.dual_coef),
            fitted.intercept,
            n_iter=fitted.n_iter,
            n_kernel_evals=fitted.n_kernel_evals,
            certificate_evals=fitted.stats.get("certificate_evals"),
        )

    def decide(self, fitted: Any, X: Any, threads: int) -> Callable[[], np.ndarray]:
        return lambda: fitted.decision_function(X)


class WholePath(Solver):
    """`svmcore.svm_path` over the values of C that people try; judged by its answer at the problem's C."""

    LOW, HIGH = 0.01, 100.0
    name = f"{PATH}, C = {LOW:g} to {HIGH:g}"
    package = "svmcore"
    most_points = 8_000  # minutes beyond

    def __init__(self, **options: Any) -> None:
        self.options = options

    def missing(self) -> str:
        return ""

    def refuses(self, problem: Problem) -> str:
        return super().refuses(problem) or ("classification only" if problem.regression else "")

    def prepare(self, problem: Problem, tol: float, threads: int) -> Callable[[], Any]:
        keywords = {key: value for key, value in problem.keywords().items() if key != "loss"}
        X, y, svm_path = problem.X, problem.y, svmcore.svm_path
        return lambda: svm_path(X, y, lambda_min=1.0 / self.HIGH, n_threads=threads, **keywords, **self.options)

    def answer(self, problem: Problem, fitted: Any) -> Answer:
        return Answer(fitted.dual_coef(problem.C), fitted.intercept(problem.C))


DEFAULT = Ours()


def every() -> list[Ours]:
    """All registered solvers, SMO with each of its rules."""
    found = []
    for name in registry():
        rules = getattr(svmcore.solvers.load(name), "OPTION_VALUES", {}).get("rule", ())
        found += [Ours(name, rule=rule) for rule in rules] or [Ours(name)]
    return found
