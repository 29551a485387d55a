"""scikit-learn's SVC and SVR: LIBSVM behind a Cython interface, one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.objective import Answer
from bench.peers.base import Solver, spread_out
from bench.problems import Problem

CACHE_MB = 2000
MOST_STEPS = 5_000_000  # linear problems can take for ever; one that ends here misses its tolerance


class ScikitLearn(Solver):
    name = "scikit-learn"
    package = "scikit-learn"
    tightest = 1e-8  # LIBSVM keeps the kernel matrix in single precision

    def prepare(self, problem: Problem, tol: float, threads: int) -> Callable[[], Any]:
        from sklearn.svm import SVC, SVR

        keywords = {
            **problem.kernel_keywords(),
            "C": problem.C,
            "tol": tol,
            "cache_size": CACHE_MB,
            "max_iter": MOST_STEPS,
        }
        model = SVR(epsilon=problem.epsilon, **keywords) if problem.regression else SVC(**keywords)
        X, y = problem.X, problem.y
        return lambda: model.fit(X, y)

    def answer(self, problem: Problem, fitted: Any) -> Answer:
        values = fitted.dual_coef_
        values = values.toarray() if hasattr(values, "toarray") else values
        coef = spread_out(problem.n, fitted.support_, values)
        return Answer(coef, float(np.ravel(fitted.intercept_)[0]), n_iter=int(np.sum(fitted.n_iter_)))

    def decide(self, fitted: Any, X: Any, threads: int) -> Callable[[], np.ndarray]:
        return lambda: fitted.decision_function(X)
