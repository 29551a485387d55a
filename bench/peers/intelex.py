"""Intel's extension for scikit-learn (oneDAL), in double and in single precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.objective import Answer
from bench.peers.base import Solver, spread_out
from bench.peers.scikit import CACHE_MB
from bench.problems import Problem


class Intelex(Solver):
    package = "scikit-learn-intelex"

    def __init__(self, dtype: type) -> None:
        self.dtype = dtype
        self.name = f"oneDAL {np.dtype(dtype).name}"
        if dtype is np.float32:
            self.tightest = 1e-5  # it iterates to its limit, minutes, below what single precision holds

    def prepare(self, problem: Problem, tol: float, threads: int) -> Callable[[], Any]:
        import daal4py
        from sklearnex.svm import SVC, SVR

        daal4py.daalinit(threads)
        keywords = {**problem.kernel_keywords(), "C": problem.C, "tol": tol, "cache_size": CACHE_MB}
        model = SVR(epsilon=problem.epsilon, **keywords) if problem.regression else SVC(**keywords)
        X: Any = problem.X.astype(self.dtype)
        y: Any = problem.y.astype(self.dtype)
        return lambda: model.fit(X, y)

    def answer(self, problem: Problem, fitted: Any) -> Answer:
        values = fitted.dual_coef_
        values = values.toarray() if hasattr(values, "toarray") else values
        coef = spread_out(problem.n, np.ravel(fitted.support_), values)
        return Answer(coef, float(np.ravel(fitted.intercept_)[0]))

    def decide(self, fitted: Any, X: Any, threads: int) -> Callable[[], np.ndarray]:
        converted = X.astype(self.dtype)
        return lambda: np.ravel(fitted.decision_function(converted))
