"""What the runner asks of a solver, ours or a peer: one small class, one file each.

`prepare` does everything that is not the fit (conversions, options) and returns a function that fits and nothing else:
only that function is timed. `answer` reads the result out for the judge, `decide` returns decision values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.environment import version
from bench.objective import Answer
from bench.problems import Problem


class Solver:
    """A solver under one name. `package` is what must be installed; `most_points` and `tightest` (tolerance) are where
    patience ends: beyond, it would not stop in reasonable time."""

    name = ""
    package = ""
    most_points = 10**9
    tightest = 1e-9
    linear_only = False
    takes_sparse = True

    def missing(self) -> str:
        """Why it cannot run here; empty when it can."""
        if version(self.package) is None:
            return f"{self.package} is not installed"
        return ""

    def refuses(self, problem: Problem) -> str:
        """Why it does not solve a problem; empty when it does."""
        if problem.n > self.most_points:
            return f"more than {self.most_points} points"
        if self.linear_only and problem.kernel != "linear":
            return "linear kernel only"
        if not self.takes_sparse and problem.sparse:
            return "dense data only"
        if not self.linear_only and (problem.loss != "hinge" or not problem.fit_intercept):
            return "hinge loss with an intercept only"
        return ""

    def prepare(self, problem: Problem, tol: float, threads: int) -> Callable[[], Any]:
        """The fit as a function of nothing."""
        raise NotImplementedError

    def answer(self, problem: Problem, fitted: Any) -> Answer:
        """The answer in the terms of the judge."""
        raise NotImplementedError

    def decide(self, fitted: Any, X: Any, threads: int) -> Callable[[], np.ndarray]:
        """Decision values of some points, as a function of nothing."""
        raise NotImplementedError


def spread_out(n: int, support: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Coefficients of support vectors as coefficients of all n points."""
    coef = np.zeros(n)
    np.add.at(coef, np.asarray(support, dtype=np.int64), np.asarray(values, dtype=np.float64).ravel())
    return coef
