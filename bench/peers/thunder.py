"""ThunderSVM on the CPU (single precision, OpenMP)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.objective import Answer
from bench.peers.base import Solver, spread_out
from bench.problems import Problem


class Thunder(Solver):
    name = "ThunderSVM"
    package = "thundersvm-cpu"
    most_points = 2_000  # several seconds a fit beyond
    tightest = 1e-5  # as for every solver in single precision
    takes_sparse = False  # its Python interface fails on the CSR matrices of today's scipy

    def prepare(self, problem: Problem, tol: float, threads: int) -> Callable[[], Any]:
        from thundersvm import SVC, SVR

        keywords = {**problem.kernel_keywords(), "C": problem.C, "tol": tol, "n_jobs": threads}
        keywords["kernel"] = {"poly": "polynomial"}.get(problem.kernel, problem.kernel)
        model = SVR(epsilon=problem.epsilon, **keywords) if problem.regression else SVC(**keywords)
        X, y = problem.X, problem.y
        return lambda: model.fit(X, y)

    def answer(self, problem: Problem, fitted: Any) -> Answer:
        coef = spread_out(problem.n, fitted.support_, fitted.dual_coef_)
        return Answer(coef, -float(np.ravel(fitted.intercept_)[0]))  # what it stores is rho

    def decide(self, fitted: Any, X: Any, threads: int) -> Callable[[], np.ndarray]:
        return lambda: np.ravel(fitted.decision_function(X))
