"""What a prediction costs: the score of a fold as an exact function of C. Less is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore import _check
from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray
from svmcore.cv.curves import Decisions, cost_curve
from svmcore.cv.folds import Fold
from svmcore.path_result import StepCurve

SCORES = ("error", "balanced_error")


class Score(NamedTuple):
    """How validation rows are judged. `cost[i, j]`: what it costs to take a row of class i for one of class j.

    `weights` are those of the rows in the score (None: all alike). `shares`, for the balanced error where a fold lacks a
    class: what a row of each class counts there.
    """

    name: str
    cost: FloatArray
    weights: FloatArray | None
    shares: FloatArray | None = None

    def curve(self, decisions: Decisions, codes: IntArray, test: IntArray, C_range: tuple[float, float]) -> StepCurve:
        """The score of one fold over C."""
        truth = codes[test]
        weight = np.ones(test.size) if self.weights is None else self.weights[test]
        cost = self.cost
        if self.name == "balanced_error":
            if self.shares is not None:
                cost = cost * self.shares[:, None]
            else:
                count = np.bincount(truth, weights=weight, minlength=cost.shape[0])
                cost = cost * (weight.sum() / (cost.shape[0] * count))[:, None]
        return cost_curve(decisions, truth, cost, weight, C_range)


def make_score(
    name: Any, costs: Any, codes: IntArray, classes: NDArray[Any], weights: FloatArray | None, folds: list[Fold]
) -> Score:
    """Check what the user asked for."""
    name = _check.choice("score", name, SCORES)
    k = classes.size
    own = np.ones(codes.size) if weights is None else weights
    for number, fold in enumerate(folds):
        if not own[fold.test].any():
            raise InputError(
                f"all validation rows of fold {number} have weight zero; use other folds, or weight_score=False"
            )
    if costs is not None and name != "error":
        raise InputError(f'costs go with score="error"; score={name!r} has its own')
    cost = (1.0 - np.eye(k)) if costs is None else _costs(costs, classes)
    shares = None
    if name == "balanced_error":
        lacking = any((np.bincount(codes[f.test], weights=own[f.test], minlength=k) == 0).any() for f in folds)
        if lacking:
            count = np.bincount(codes, weights=own, minlength=k)
            shares = own.sum() / (k * count)
    return Score(name, cost, weights, shares)


def _costs(costs: Any, classes: NDArray[Any]) -> FloatArray:
    """From a mapping label -> cost of taking such a row for another class, or a matrix cost[true, predicted]."""
    known = classes.tolist()
    k = len(known)
    if isinstance(costs, Mapping):
        for label in costs:
            if label not in known:
                raise InputError(f"costs names the label {label!r}, but y holds {', '.join(map(repr, known))}")
        row = np.array([_check.number(f"costs[{label!r}]", costs.get(label, 1.0), low=0.0) for label in known])
        matrix = row[:, None] * (1.0 - np.eye(k))
    else:
        try:
            matrix = np.array(costs, dtype=np.float64)
        except (TypeError, ValueError):
            matrix = np.empty(0)
        if matrix.shape != (k, k) or not np.isfinite(matrix).all() or (matrix < 0).any():
            raise InputError(
                f"costs={costs!r} is no table of costs; give a mapping from label to cost, or a {k} x {k} matrix of numbers "
                "of at least 0: rows are the true classes, columns the predicted ones"
            )
    if not matrix.any():
        raise InputError("costs are all zero; at least one mistake must cost something")
    return matrix
