"""What machines of a cross-validation learn: classes, numbers, or one class; and what each of them is scored by."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray
from svmcore.path.problem import Form
from svmcore.problem import border
from svmcore.problem.division import Division, Sides, division

HINGE, TUBE, PINBALL, ONE_CLASS = "hinge", "epsilon_insensitive", "pinball", "one_class"
LOSSES = (HINGE, TUBE, PINBALL, ONE_CLASS)
OF_NUMBERS = ("absolute_error", "squared_error", "pinball", "epsilon_insensitive")
SCORES = {
    HINGE: ("error", "balanced_error", "hinge", "auc"),
    TUBE: OF_NUMBERS,
    PINBALL: ("pinball", *(name for name in OF_NUMBERS if name != "pinball")),
    ONE_CLASS: ("error", "balanced_error", "auc"),
}
"""The scores of each loss, the default first."""
THEIRS = {
    "accuracy": "error",
    "balanced_accuracy": "balanced_error",
    "roc_auc": "auc",
    "neg_mean_absolute_error": "absolute_error",
    "neg_mean_squared_error": "squared_error",
}
"""scikit-learn's names of scores, of which more is better, and the same of which less is."""


class Goal(NamedTuple):
    """The loss of training, its numbers, and the targets of a regression."""

    loss: str = HINGE
    epsilon: float = 0.1
    tau: float = 0.5
    target: FloatArray | None = None

    @property
    def form(self) -> Form:
        """The row of the table of paths."""
        forms = {TUBE: Form("svr", epsilon=self.epsilon), PINBALL: Form("quantile", tau=self.tau)}
        return forms.get(self.loss) or Form(self.loss)

    def learned(self, n_classes: int) -> IntArray:
        """The classes that every fold needs rows of, to train on; the others are there for validation only."""
        return np.array([1]) if self.loss == ONE_CLASS else np.arange(n_classes)

    @property
    def words(self) -> dict[str, Any]:
        """The loss in the words of `train_svr`."""
        own = {"epsilon": self.epsilon} if self.loss == TUBE else {"tau": self.tau}
        return {"loss": self.loss, **own}


def goal_of(loss: Any, score: Any, epsilon: Any, tau: Any) -> tuple[Goal, str]:
    """The checked loss and score; `epsilon` and `tau` go with those that have them."""
    loss = border.choice("loss", loss, LOSSES)
    score = THEIRS.get(score, score) if isinstance(score, str) else score
    if score is None:
        score = SCORES[loss][0]
    elif isinstance(score, str) and score in {name for names in SCORES.values() for name in names}:
        if score not in SCORES[loss]:
            raise InputError(
                f"score={score!r} does not go with loss={loss!r}; its scores are {', '.join(map(repr, SCORES[loss]))}"
            )
    else:
        border.choice("score", score, SCORES[loss])
    for name, value, owner in (("epsilon", epsilon, TUBE), ("tau", tau, PINBALL)):
        if value is not None and owner not in (loss, score):
            raise InputError(f"{name}={value!r} belongs to loss={owner!r}, and loss={loss!r} was given; leave it out")
    goal = Goal(loss)
    if epsilon is not None:
        goal = goal._replace(epsilon=border.number("epsilon", epsilon, low=0.0))
    if tau is not None:
        tau = border.number("tau", tau, low=0.0, high=1.0, strict=True)
        if not tau < 1.0:
            raise InputError(f"tau={tau:g} is no quantile; give a number between 0 and 1, both excluded")
        goal = goal._replace(tau=tau)
    return goal, score


def divided(goal: Goal, n_classes: int, strategy: str) -> Division:
    """The machines of every fold. One class is the second of two, and learned without the other."""
    if goal.loss == ONE_CLASS:
        return Division(n_classes, strategy, (Sides((), (1,)),))
    return division(n_classes, strategy)


__all__ = ["HINGE", "LOSSES", "ONE_CLASS", "PINBALL", "SCORES", "TUBE", "Goal", "divided", "goal_of"]
