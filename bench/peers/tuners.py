"""Tuning C by cross-validation: from a problem, values of C and folds to out-of-fold decision values, a row per C."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

import svmcore
from bench.environment import version
from bench.problems import Problem


def pairs_of(folds: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and validation rows of every fold."""
    return [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in np.unique(folds)]


class Tuner:
    """A way to tune, under one name. `prepare` returns the work to be timed; `scores` of its answer are (values of C) x n."""

    name = ""
    package = ""
    most_points = 10**9
    workers = 1

    def missing(self) -> str:
        return "" if version(self.package) or self.package == "svmcore" else f"{self.package} is not installed"

    def prepare(self, problem: Problem, Cs: np.ndarray, folds: np.ndarray, tol: float) -> Callable[[], Any]:
        raise NotImplementedError

    def scores(self, answer: Any, Cs: np.ndarray) -> np.ndarray:
        return np.asarray(answer)


class OursWarm(Tuner):
    """`train_svc` per fold and C, each started from the answer at the previous C."""

    name = "svmcore"
    package = "svmcore"

    def prepare(self, problem: Problem, Cs: np.ndarray, folds: np.ndarray, tol: float) -> Callable[[], np.ndarray]:
        X, y, keywords = problem.X, problem.y, problem.keywords()

        def tune() -> np.ndarray:
            scores = np.empty((len(Cs), len(y)))
            for fold in np.unique(folds):
                train, test = folds != fold, folds == fold
                start = None
                for row, C in enumerate(Cs):
                    if start is not None:
                        start = start * (C / Cs[row - 1])  # what was at its bound is at the new one
                    solution = svmcore.train_svc(X[train], y[train], C, tol=tol, alpha0=start, n_threads=1, **keywords)
                    start = solution.alpha
                    scores[row, test] = solution.decision_function(X[test])
            return scores

        return tune


class OursEveryC(Tuner):
    """`cv_path`: the exact curve for every C from the smallest to the largest."""

    name = "svmcore, every C"
    package = "svmcore"

    def prepare(self, problem: Problem, Cs: np.ndarray, folds: np.ndarray, tol: float) -> Callable[[], Any]:
        X, y, keywords = problem.X, problem.y, problem.keywords()
        del keywords["loss"]
        pairs, low, high, workers = pairs_of(folds), float(Cs[0]), float(Cs[-1]), self.workers
        return lambda: svmcore.cv_path(X, y, cv=pairs, C_min=low, C_max=high, n_jobs=workers, **keywords)

    def scores(self, answer: Any, Cs: np.ndarray) -> np.ndarray:
        return np.asarray(answer.decision_scores(Cs))


class ScikitGrid(Tuner):
    """SVC per fold and C: what GridSearchCV does, without its overhead."""

    name = "scikit-learn"
    package = "scikit-learn"

    def _model(self, problem: Problem, C: float, tol: float) -> Any:
        from sklearn.svm import SVC

        return SVC(C=C, tol=tol, cache_size=2000, **problem.kernel_keywords())

    def prepare(self, problem: Problem, Cs: np.ndarray, folds: np.ndarray, tol: float) -> Callable[[], np.ndarray]:
        X, y = problem.X, problem.y

        def tune() -> np.ndarray:
            scores = np.empty((len(Cs), len(y)))
            for fold in np.unique(folds):
                train, test = folds != fold, folds == fold
                for row, C in enumerate(Cs):
                    model = self._model(dataclasses.replace(problem, C=float(C)), float(C), tol).fit(X[train], y[train])
                    scores[row, test] = np.ravel(model.decision_function(X[test]))
            return scores

        return tune


class IntelexGrid(ScikitGrid):
    """The same with oneDAL."""

    name = "oneDAL float64"
    package = "scikit-learn-intelex"

    def _model(self, problem: Problem, C: float, tol: float) -> Any:
        import daal4py
        from sklearnex.svm import SVC

        daal4py.daalinit(1)
        return SVC(C=C, tol=tol, cache_size=2000, **problem.kernel_keywords())


class TorchKM(Tuner):
    """TorchKM's `cvksvm` on the CPU, which tunes along its own path and is given the kernel matrix."""

    name = "TorchKM"
    package = "torchkm"
    most_points = 1500  # minutes beyond

    def prepare(self, problem: Problem, Cs: np.ndarray, folds: np.ndarray, tol: float) -> Callable[[], np.ndarray]:
        import torch
        from torchkm.cvksvm import cvksvm

        torch.set_num_threads(1)
        X = problem.X
        squares = np.square(X).sum(axis=1)
        y, foldid = torch.from_numpy(problem.y), torch.from_numpy(folds.astype(np.int64))
        penalties = torch.from_numpy(0.5 / (len(problem.y) * Cs))  # its objective is mean hinge + lambda |w|^2

        def tune() -> np.ndarray:
            distances = np.maximum(squares[:, None] + squares[None, :] - 2.0 * (X @ X.T), 0.0)
            kernel = torch.from_numpy(np.exp(-problem.gamma_value * distances))
            model = cvksvm(
                Kmat=kernel, y=y, nlam=len(Cs), ulam=penalties, foldid=foldid, nfolds=int(folds.max()),
                eps=1e-5, maxit=100_000, gamma=1e-8, is_exact=0, KKTeps=tol, KKTeps2=tol, device="cpu",
            )  # fmt: skip
            model.fit()
            return np.ascontiguousarray(model.pred.numpy().T)

        return tune


def tuners() -> list[Tuner]:
    """All of them."""
    return [OursWarm(), OursEveryC(), ScikitGrid(), IntelexGrid(), TorchKM()]
