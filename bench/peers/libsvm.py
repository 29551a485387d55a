"""LIBSVM's own Python package. Its fit is timed from LIBSVM's problem structure: building that is not the fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from bench.objective import Answer
from bench.peers.base import Solver, spread_out
from bench.peers.scikit import CACHE_MB
from bench.problems import Problem

_KERNELS = {"linear": 0, "poly": 1, "rbf": 2, "sigmoid": 3}


class LibSVM(Solver):
    name = "LIBSVM"
    package = "libsvm-official"
    tightest = 1e-8
    most_points = 10_000  # the engine of scikit-learn on a sparse layout: larger rows would say nothing new

    def refuses(self, problem: Problem) -> str:
        return super().refuses(problem) or ("" if problem.kernel in _KERNELS else f"no kernel {problem.kernel}")

    def prepare(self, problem: Problem, tol: float, threads: int) -> Callable[[], Any]:
        from libsvm import svmutil

        kind = f"-s 3 -p {problem.epsilon}" if problem.regression else "-s 0"
        options = (
            f"{kind} -t {_KERNELS[problem.kernel]} -d {problem.degree} -g {problem.gamma_value!r} -r {problem.coef0!r} "
            f"-c {problem.C!r} -e {tol!r} -m {CACHE_MB} -q"
        )
        prob = svmutil.svm_problem(problem.y, sparse.csr_matrix(problem.X))
        parameter = svmutil.svm_parameter(options)
        return lambda: svmutil.svm_train(prob, parameter)

    def answer(self, problem: Problem, fitted: Any) -> Answer:
        support = np.array(fitted.get_sv_indices()) - 1
        values = np.array([row[0] for row in fitted.get_sv_coef()])
        intercept = -float(fitted.rho[0])
        if not problem.regression and fitted.get_labels()[0] < 0:  # it calls the first label seen positive
            values, intercept = -values, -intercept
        return Answer(spread_out(problem.n, support, values), intercept)

    def decide(self, fitted: Any, X: Any, threads: int) -> Callable[[], np.ndarray]:
        from libsvm import svmutil

        rows = sparse.csr_matrix(X)
        sign = -1.0 if fitted.get_labels() and fitted.get_labels()[0] < 0 else 1.0
        return lambda: sign * np.ravel(svmutil.svm_predict([], rows, fitted, "-q")[2])
