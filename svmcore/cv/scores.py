"""What a prediction costs: the score of a fold as an exact function of C. Less is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._control import Control
from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray
from svmcore.base.door import entered
from svmcore.base.threads import one_blas_thread
from svmcore.cv.curves import Decisions, auc_curve, cost_curve, joined_decisions, signs
from svmcore.cv.folds import Fold
from svmcore.cv.goals import PINBALL, TUBE, Goal
from svmcore.models.loss_curve import LossCurve
from svmcore.models.step_curve import StepCurve
from svmcore.path.cross import Cross
from svmcore.path.loss_curve import distances, loss_curve
from svmcore.path.result import Path
from svmcore.problem import border

Outcome = Decisions | LossCurve | StepCurve
"""What happens to validation rows over C: their classes, or their score at once."""
Curve = StepCurve | LossCurve


class Score(NamedTuple):
    """How validation rows are judged. `cost[i, j]`: what it costs to take a row of class i for one of class j.

    `weights` are those of the rows in the score (None: all alike). `shares`, for the balanced error where a fold lacks a
    class: what a row of each class counts there. `target`: what the function shall be, 1 and -1 for labels; and the numbers
    of `goal` belong to losses.
    """

    name: str
    cost: FloatArray
    weights: FloatArray | None
    target: FloatArray
    shares: FloatArray | None = None
    goal: Goal = Goal()

    @property
    def in_percent(self) -> bool:
        """Whether it is a share."""
        return self.name in ("error", "balanced_error", "auc")

    @one_blas_thread
    def outcome(self, path: Path, cross: Cross, test: IntArray, control: Control) -> Outcome | None:
        """What a path does to its validation rows; None when the work had to stop."""
        weight = np.ones(test.size) if self.weights is None else self.weights[test]
        target = self.target[test]
        if self.name == "auc":
            return auc_curve(path, cross, target > 0.0, weight)
        if self.name in ("error", "balanced_error"):
            return signs(path, cross, control)
        kinds: dict[str, dict[str, Any]] = {
            "hinge": {"above": target > 0.0, "below": target < 0.0},
            "squared_error": {"squared": True},
            PINBALL: {"above": self.goal.tau, "below": 1.0 - self.goal.tau},
            TUBE: {"tube": self.goal.epsilon},
        }
        curve, whole = loss_curve(path, cross, distances(target, weight, **kinds.get(self.name, {})), control)
        return curve if whole else None

    def curve(self, outcome: Outcome, codes: IntArray, test: IntArray, C_range: tuple[float, float]) -> Curve:
        """The score of one fold over C."""
        if not isinstance(outcome, Decisions):
            return outcome.between(*C_range)
        truth, weight, cost = self._costs(codes, test)
        return cost_curve(outcome, truth, cost, weight, C_range)

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
    assert isinstance(first, LossCurve)
    assert isinstance(second, LossCurve)
    return first.joined(second, at) if at < second.C_max else first  # or the row never leaves the machine


def rescaled(outcome: Outcome, ratio: float) -> Outcome:
    """The same over C / ratio."""
    return outcome._replace(C=outcome.C / ratio) if isinstance(outcome, Decisions) else outcome.scaled(ratio)


def make_score(
    name: str,
    costs: Any,
    codes: IntArray,
    classes: NDArray[Any],
    weights: FloatArray | None,
    folds: list[Fold],
    goal: Goal,
) -> Score:
    """Check what the user asked for."""
    k = classes.size
    if k > 2 and name in ("hinge", "auc"):
        raise InputError(f'score={name!r} is for two classes, and y holds {k}; use score="error" or "balanced_error"')
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
    target = np.where(codes == 1, 1.0, -1.0) if goal.target is None else goal.target
    return Score(name, cost, weights, target, shares, goal)


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
            matrix = np.array(entered(costs, "costs"), dtype=np.float64)
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            matrix = np.empty(0)
        if matrix.shape != (k, k) or not np.isfinite(matrix).all() or (matrix < 0).any():
            raise InputError(
                f"costs={costs!r} is no table of costs; give a mapping from label to cost, or a {k} x {k} matrix of numbers "
                "of at least 0: rows are the true classes, columns the predicted ones"
            )
    if not matrix.any():
        raise InputError("costs are all zero; at least one mistake must cost something")
    return matrix
