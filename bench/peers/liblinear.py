"""LIBLINEAR's dual coordinate descent, for linear kernels without an intercept (it regularises the one it has).

It returns the weight vector only, so the judge measures its primal objective against a certified bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from bench.objective import Answer
from bench.peers.base import Solver
from bench.problems import Problem


class LibLinear(Solver):
    name = "LIBLINEAR"
    package = "liblinear-official"
    linear_only = True

    def refuses(self, problem: Problem) -> str:
        if super().refuses(problem):
            return super().refuses(problem)
        if problem.fit_intercept or problem.regression:
            return "classification without an intercept only"
        return ""

    def prepare(self, problem: Problem, tol: float, threads: int) -> Callable[[], Any]:
        from liblinear import liblinearutil

        # its squared hinge costs C xi^2, ours C/2 xi^2
        kind, C = ("3", problem.C) if problem.loss == "hinge" else ("1", 0.5 * problem.C)
        prob = liblinearutil.problem(problem.y, sparse.csr_matrix(problem.X))
        parameter = liblinearutil.parameter(f"-s {kind} -c {C!r} -e {tol!r} -B -1 -q")
        return lambda: liblinearutil.train(prob, parameter)

    def answer(self, problem: Problem, fitted: Any) -> Answer:
        w = np.array(fitted.w[: problem.d])
        return Answer(None, 0.0, w=w if fitted.get_labels()[0] > 0 else -w)
