"""Probabilities from the values of machines: a sigmoid for each, and for several classes their coupling.

With a machine for each pair of classes the probabilities of the pairs are coupled by the second method of Wu, Lin and Weng
(2004), as in LIBSVM and scikit-learn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import FloatArray
from svmcore.problem.division import Division

_LEAST = 1e-7  # a pair gives each of its classes at least this probability, as in LIBSVM
_BLOCK = 1 << 21  # numbers in the systems of equations that are solved at once


class PlattSigmoid(NamedTuple):
    """p = 1 / (1 + exp(a f + b))."""

    a: float
    b: float

    def probability(self, scores: FloatArray) -> FloatArray:
        """The probability of the second class."""
        return logistic(-(self.a * scores + self.b))


def logistic(t: FloatArray) -> FloatArray:
    """1 / (1 + exp(-t)), without overflow."""
    small = np.exp(-np.abs(t))
    return np.asarray(np.where(t >= 0.0, 1.0, small) / (1.0 + small))


def probabilities(sigmoids: FloatArray, values: FloatArray, which: Division) -> FloatArray:
    """The probability of every class (columns) for the values of the machines. `sigmoids` has rows a and b."""
    p = np.clip(logistic(-(values * sigmoids[0] + sigmoids[1])), _LEAST, 1.0 - _LEAST)
    if which.single:
        return np.concatenate([1.0 - p, p], axis=1)
    if which.strategy == "ovr":
        return np.asarray(p / p.sum(axis=1, keepdims=True))
    step = max(1, _BLOCK // which.n_classes**2)
    parts = [coupled(p[start : start + step], which) for start in range(0, len(p), step)]
    return np.concatenate(parts) if parts else np.empty((0, which.n_classes))


def coupled(p: FloatArray, which: Division) -> FloatArray:
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
