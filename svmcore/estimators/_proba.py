"""`probability=True`: a sigmoid for each machine, from values of rows that it was not trained on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from svmcore._errors import listening
from svmcore._types import FloatArray, IntArray, Status
from svmcore.cv import left_out
from svmcore.cv.left_out import ALWAYS, N_FOLDS
from svmcore.estimators import _base as base
from svmcore.estimators._base import TrainingData
from svmcore.estimators._fitted import Fitted
from svmcore.estimators._kernel import kernel_values
from svmcore.problem import border
from svmcore.problem.division import Division, division

if TYPE_CHECKING:
    from svmcore.estimators._svm import SolvedClassifier

_CACHE = 200  # `cache_size` that stands for "not said"


def sigmoids(estimator: SolvedClassifier, found: Any, data: TrainingData) -> FloatArray:
    """Rows a and b: of each machine the probability of its second class is 1 / (1 + exp(a f + b))."""
    if callable(estimator.kernel):
        data = data._replace(X=kernel_values(estimator.kernel, data.X, data.X))
    weight = np.ones(len(data.y)) if data.w is None else data.w
    which = division(len(data.classes), estimator._strategy)
    owner = owners(estimator, data)
    values = _together(estimator, Fitted(found), data, weight, owner, which)
    if values is None:
        values = _one_by_one(estimator, Fitted(found), data, owner)
    alone = np.flatnonzero(owner == ALWAYS)
    if alone.size:  # the only row of its class cannot be left out
        values[alone] = Fitted(found).values(data.X[alone])
    return left_out.sigmoids(values, data.y, weight, which, estimator.tol)


def owners(estimator: SolvedClassifier, data: TrainingData) -> IntArray:
    """The fold of every row."""
    there = np.arange(len(data.y)) if data.w is None else np.flatnonzero(data.w > 0.0)
    return left_out.dealt(data.y, there, base.seed(estimator.random_state) or 0)


def _together(
    estimator: SolvedClassifier, known: Fitted, data: TrainingData, weight: FloatArray, owner: IntArray, which: Division
) -> FloatArray | None:
    """Values from machines that are solved at once, where nothing is asked for that only a solver or a clock can do."""
    words: tuple[Any, ...] = (estimator.solver, estimator.max_iter, estimator.time_limit, estimator.cache_size)
    if words != ("auto", -1, None, _CACHE) or not known.converged:
        return None
    rows = left_out.DealtRows(data.X, data.y, weight * estimator.class_weight_[data.y], owner)
    count, nu = len(known.machines), getattr(estimator, "nu", None)
    costs = [border.cost(getattr(estimator, "C", 1.0))] * count
    nus = None if nu is None else [float(nu)] * count
    threads = border.threads(estimator.n_threads)
    return left_out.over_matrix(rows, known.machines[0].kernel, which, costs, nus, estimator.tol, threads)


def _one_by_one(estimator: SolvedClassifier, known: Fitted, data: TrainingData, owner: IntArray) -> FloatArray:
    """Values from machines that are trained one by one. All share one time limit."""
    given = estimator._given or callable(estimator.kernel)
    one = object.__new__(type(estimator))
    one.__dict__.update(vars(estimator))
    if given:
        one.kernel = "precomputed"
    else:
        one.gamma = known.machines[0].gamma or 1.0  # "scale" is that of all rows; a linear kernel has none
    limit, begin = estimator.time_limit, time.perf_counter()

    def train(fold: int, X: Any, rows: IntArray) -> tuple[Callable[[Any], FloatArray], bool]:
        if limit is not None:
            one.time_limit = max(0.0, limit - (time.perf_counter() - begin)) / (N_FOLDS - fold)
        part = data._replace(X=X, y=data.y[rows], w=None if data.w is None else data.w[rows])
        with listening():  # the machines of all rows have said what there is to say
            made = Fitted(one._find(part, one._words(part) | {"callback": None}))
        return made.values, any(machine.status is Status.INTERRUPTED for machine in made.machines)

    return left_out.one_by_one(data.X, owner, given, train)
