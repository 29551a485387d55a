"""What a prediction costs: the score of a fold as an exact function of C. Less is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._control import Control
from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray
from svmcore.cv.curves import Decisions, cost_curve, joined_decisions, signs
from svmcore.cv.folds import Fold
from svmcore.cv.values import LineCurve, auc_curve, hinge_curve
from svmcore.path.cross import Cross
from svmcore.path.result import Path
from svmcore.problem import border
from svmcore.step_curve import StepCurve

SCORES = ("error", "balanced_error", "hinge", "auc")

Outcome = Decisions | LineCurve | StepCurve
"""What happens to validation rows over C: their classes, or their score at once."""
Curve = StepCurve | LineCurve


class Score(NamedTuple):
    """How validation rows are judged. `cost[i, j]`: what it costs to take a row of class i for one of class j.

    `weights` are those of the rows in the score (None: all alike). `shares`, for the balanced error where a fold lacks a
    class: what a row of each class counts there.
    """

    name: str
    cost: FloatArray
    weights: FloatArray | None
    shares: FloatArray | None = None

    def outcome(self, path: Path, cross: Cross, truth: IntArray, test: IntArray, control: Control) -> Outcome | None:
        """What a path does to its validation rows; None when the work had to stop."""
        weight = np.ones(test.size) if self.weights is None else self.weights[test]
        if self.name == "hinge":
            return hinge_curve(path, cross, np.where(truth == 1, 1.0, -1.0), weight)
        if self.name == "auc":
            return auc_curve(path, cross, truth == 1, weight)
        return signs(path, cross, control)

    def curve(self, outcome: Outcome, codes: IntArray, test: IntArray, C_range: tuple[float, float]) -> Curve:
        """The score of one fold over C."""
        if isinstance(outcome, LineCurve):
            return outcome.between(*C_range)
        if isinstance(outcome, StepCurve):
            return cut(outcome, C_range)
        truth, weight, cost = self._costs(codes, test)
        return cost_curve(outcome, truth, cost, weight, C_range)

    def bounds(self, possible: Any, sure: Any, codes: IntArray, test: IntArray) -> tuple[float, float]:
        """The least and the largest score where rows are possibly, or surely, taken for the second class."""
        truth, weight, cost = self._costs(codes, test)
        plus, minus = cost[truth, 1], cost[truth, 0]
        ends = []
        for choice in (np.minimum, np.maximum):
            each = np.where(sure, plus, np.where(possible, choice(plus, minus), minus))
            ends.append(float(weight @ each) / float(weight.sum()))
        return ends[0], ends[1]

    def _costs(self, codes: IntArray, test: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """The classes of validation rows, their weights, and what mistakes cost."""
        truth = codes[test]
        weight = np.ones(test.size) if self.weights is None else self.weights[test]
        cost = self.cost
        if self.name == "balanced_error":
            if self.shares is not None:
                cost = cost * self.shares[:, None]
            else:
                count = np.bincount(truth, weights=weight, minlength=cost.shape[0])
                cost = cost * (weight.sum() / (cost.shape[0] * count))[:, None]
        return truth, weight, cost


def joined(first: Outcome, second: Outcome, at: float) -> Outcome:
    """`first` below C = `at`, `second` from there on."""
    if isinstance(first, Decisions) and isinstance(second, Decisions):
        return joined_decisions(first, second, at)
    assert isinstance(first, LineCurve)
    assert isinstance(second, LineCurve)
    after = at < second.C
    before = at > first.C
    C = np.concatenate([first.C[before], [at], second.C[after]])
    return LineCurve(C, np.concatenate([first.levels[before], [float(second(at))], second.levels[after]]))


def rescaled(outcome: Outcome, ratio: float) -> Outcome:
    """The same over C / ratio."""
    if isinstance(outcome, StepCurve):
        return StepCurve(outcome.breakpoints / ratio, outcome.values, outcome.C_min / ratio, outcome.C_max / ratio)
    return outcome._replace(C=outcome.C / ratio) if isinstance(outcome, Decisions) else outcome.scaled(ratio)


def cut(curve: StepCurve, C_range: tuple[float, float]) -> StepCurve:
    """The part of a step function on a range."""
    low, high = C_range
    first = int(np.searchsorted(curve.breakpoints, low, side="right"))
    stop = max(first, int(np.searchsorted(curve.breakpoints, high)))
    return StepCurve(curve.breakpoints[first:stop], curve.values[first : stop + 1], low, high)


def make_score(
    name: Any, costs: Any, codes: IntArray, classes: NDArray[Any], weights: FloatArray | None, folds: list[Fold]
) -> Score:
    """Check what the user asked for."""
    name = border.choice("score", name, SCORES)
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
    lacking = [
        j for j, f in enumerate(folds) if (np.bincount(codes[f.test], weights=own[f.test], minlength=k) == 0).any()
    ]
    if name == "auc" and lacking:
        raise InputError(
            f'score="auc" compares rows of both classes, and fold {lacking[0]} validates rows of one class only; use fewer '
            "folds, or another score"
        )
    if name == "balanced_error" and lacking:
        shares = own.sum() / (k * np.bincount(codes, weights=own, minlength=k))
    return Score(name, cost, weights, shares)


def _costs(costs: Any, classes: NDArray[Any]) -> FloatArray:
    """From a mapping label -> cost of taking such a row for another class, or a matrix cost[true, predicted]."""
    known = classes.tolist()
    k = len(known)
    if isinstance(costs, Mapping):
        for label in costs:
            if label not in known:
                raise InputError(f"costs names the label {label!r}, but y holds {', '.join(map(repr, known))}")
        row = np.array([border.number(f"costs[{label!r}]", costs.get(label, 1.0), low=0.0) for label in known])
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
