"""Probabilities of `probability=True`: a sigmoid for each machine, from values of rows that it was not trained on.

Five machines of the same form, each on four fifths of the rows, give every row such a value. With a machine for each pair of
classes the probabilities of the pairs are coupled (Wu, Lin and Weng 2004, their second method).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from svmcore._errors import listening
from svmcore._types import FloatArray, IntArray, Status
from svmcore.cv.calibration import PlattSigmoid, fit_sigmoid
from svmcore.estimators import _base as base
from svmcore.estimators._base import TrainingData
from svmcore.estimators._fitted import Fitted, count
from svmcore.estimators._kernel import kernel_values
from svmcore.problem.division import Division, division

if TYPE_CHECKING:
    from svmcore.estimators._svm import SolvedClassifier

_FOLDS = 5
_LEAST = 1e-7  # a pair gives each of its classes at least this probability, as in LIBSVM
_BLOCK = 1 << 21  # numbers in the systems of equations that are solved at once


# ---- fit -------------------------------------------------------------------------------------------------------------


def sigmoids(estimator: SolvedClassifier, found: Any, data: TrainingData) -> FloatArray:
    """Rows a and b: of each machine the probability of its second class is 1 / (1 + exp(a f + b))."""
    if callable(estimator.kernel):
        data = data._replace(X=kernel_values(estimator.kernel, data.X, data.X))
    values = _values_outside(estimator, found, data)
    weight = np.ones(len(data.y)) if data.w is None else data.w
    fitted = []
    for k, part in enumerate(division(len(data.classes), estimator._strategy).parts):
        mine = np.flatnonzero(part.holds(data.y) & (weight > 0.0))
        fitted.append(fit_sigmoid(values[mine, k], part.positive(data.y[mine]), weight[mine]))
    return np.array(fitted).T.copy()


def _values_outside(estimator: SolvedClassifier, found: Any, data: TrainingData) -> FloatArray:
    """The value of every row from machines that were trained without it, a column for each machine.

    The only row of its class cannot be left out. It has the value of the machines of all rows.
    """
    given = estimator._given or callable(estimator.kernel)
    owner = _owners(estimator, data)
    values = np.zeros((len(owner), len(Fitted(found).machines)))
    alone = np.flatnonzero(owner == _FOLDS)
    if alone.size:
        values[alone] = Fitted(found).values(data.X[alone])
    for train, test, one in _folds(estimator, found, owner, given):
        rows = data._replace(
            X=data.X[np.ix_(train, train)] if given else data.X[train],
            y=data.y[train],
            w=None if data.w is None else data.w[train],
        )
        with listening():  # the machines of all rows have said what there is to say
            part = one._find(rows, one._words(rows) | {"callback": None})
        machines = Fitted(part).machines
        if any(machine.status is Status.INTERRUPTED for machine in machines):
            raise KeyboardInterrupt
        values[test] = Fitted(part).values(data.X[np.ix_(test, train)] if given else data.X[test])
    return values


def _folds(
    estimator: SolvedClassifier, found: Any, owner: IntArray, given: bool
) -> Iterator[tuple[IntArray, IntArray, SolvedClassifier]]:
    """Rows to train on and rows to value, both with a weight, and a fold's estimator. All share one time limit."""
    one = object.__new__(type(estimator))
    one.__dict__.update(vars(estimator))
    if given:
        one.kernel = "precomputed"
    else:
        one.gamma = Fitted(found).machines[0].gamma or 1.0  # "scale" is that of all rows; a linear kernel has none
    limit, begin = estimator.time_limit, time.perf_counter()
    for k in range(_FOLDS):
        test = np.flatnonzero(owner == k)
        if not test.size:
            continue
        if limit is not None:
            one.time_limit = max(0.0, limit - (time.perf_counter() - begin)) / (_FOLDS - k)
        yield np.flatnonzero((owner != k) & (owner != _FOLDS + 1)), test, one


def _owners(estimator: SolvedClassifier, data: TrainingData) -> IntArray:
    """The fold of every row: each class is shuffled and dealt out in turn, so that two rows of a class are parted.

    Rows that are always trained on have _FOLDS, and rows without a weight _FOLDS + 1.
    """
    owner = np.full(len(data.y), _FOLDS + 1)
    rows = np.arange(count(data.X)) if data.w is None else np.flatnonzero(data.w > 0.0)
    owner[rows] = _FOLDS
    rows = rows[np.bincount(data.y[rows])[data.y[rows]] > 1]
    rng = np.random.default_rng(base.seed(estimator.random_state) or 0)
    rows = rng.permutation(rows)
    owner[rows[np.argsort(data.y[rows], kind="stable")]] = np.arange(rows.size) % _FOLDS
    return owner


# ---- predict ---------------------------------------------------------------------------------------------------------


def probabilities(sigmoid: FloatArray, values: FloatArray, which: Division) -> FloatArray:
    """The probability of every class (columns) for the values of the machines."""
    each = [PlattSigmoid(a, b).probability(values[:, k]) for k, (a, b) in enumerate(sigmoid.T.tolist())]
    p = np.clip(np.stack(each, axis=1), _LEAST, 1.0 - _LEAST)
    if which.single:
        return np.concatenate([1.0 - p, p], axis=1)
    if which.strategy == "ovr":
        return np.asarray(p / p.sum(axis=1, keepdims=True))
    step = max(1, _BLOCK // which.n_classes**2)
    parts = [_coupled(p[start : start + step], which) for start in range(0, len(p), step)]
    return np.concatenate(parts) if parts else np.empty((0, which.n_classes))


def _coupled(p: FloatArray, which: Division) -> FloatArray:
    """Probabilities of classes from those of the pairs: the p with sum 1 that minimises sum (r_ji p_i - r_ij p_j)^2."""
    m, k = len(p), which.n_classes
    first, second = np.array([(part.minus[0], part.plus[0]) for part in which.parts]).T
    system = np.zeros((m, k + 1, k + 1))
    system[:, first, second] = system[:, second, first] = -p * (1.0 - p)
    r = np.zeros((m, k, k))  # r[:, i, j]: of class j against class i
    r[:, first, second], r[:, second, first] = p, 1.0 - p
    system[:, range(k), range(k)] = (r * r).sum(axis=2)
    system[:, :k, k] = system[:, k, :k] = 1.0
    right = np.zeros((m, k + 1, 1))
    right[:, k] = 1.0
    found = np.maximum(np.linalg.solve(system, right)[:, :k, 0], 0.0)  # below zero by rounding only
    return np.asarray(found / found.sum(axis=1, keepdims=True))


__all__ = ["probabilities", "sigmoids"]
