"""How many labellings of the same rows are folded and judged: plans of folds, scores by name, and folds that will not do.

A round is an array of fold numbers, with one row for every labelling or one for all, and the number of its folds. A row with
another number trains in every fold; with a negative one it trains in none. Folds that validate every row once are one round.
Others, as of a splitter that draws rows at random, are a round each.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray
from svmcore.cv import trials_jit as loops
from svmcore.cv.folds import Fold, make_folds
from svmcore.problem import border

OF_LABELS = {"accuracy": loops.ACCURACY, "balanced_accuracy": loops.BALANCED, "roc_auc": loops.AUC}
OF_TARGETS = {"r2": loops.R2, "correlation": loops.CORRELATION, "neg_mean_squared_error": loops.SQUARED}
COUNTED = ("accuracy", "balanced_accuracy")
_DEFAULT = 5
# Splitters of scikit-learn that do not look at the labels. What they draw repeats itself where the seed is a number.
_BLIND = {
    "KFold", "GroupKFold", "LeaveOneOut", "LeavePOut", "LeaveOneGroupOut", "LeavePGroupsOut", "PredefinedSplit",
    "ShuffleSplit", "GroupShuffleSplit", "RepeatedKFold", "TimeSeriesSplit",
}  # fmt: skip
_DRAWS = ("ShuffleSplit", "GroupShuffleSplit", "RepeatedKFold")


class FoldNumbers(NamedTuple):
    """Fold numbers, (labellings or 1, n), and how many folds there are."""

    folds: IntArray
    n_folds: int


class Plan(NamedTuple):
    """How labellings are folded: `fixed` rounds for all; so many stratified folds; or a splitter that is asked for each."""

    fixed: list[FoldNumbers] | None = None
    stratified: int = 0
    splitter: Any = None
    classes: NDArray[Any] | None = None
    groups: Any = None

    def rounds(self, codes: Any) -> list[FoldNumbers]:
        """The rounds of labellings: codes of classes, or targets, (labellings, n)."""
        if self.fixed is not None:
            return self.fixed
        if self.stratified:
            codes = np.ascontiguousarray(codes)
            out, k = np.empty(codes.shape, np.int64), int(codes.max()) + 1
            loops.stratify(codes, k, self.stratified, np.zeros((3 + self.stratified, k), np.int64), out)
            return [FoldNumbers(out, self.stratified)]
        found = [_rounds(self._asked(row), codes.shape[1]) for row in codes]
        shapes = {tuple(r.n_folds for r in rounds) for rounds in found}
        if len(shapes) > 1:
            raise InputError(
                "cv gives another number of folds for other labels; give a splitter whose folds are as many for all"
            )
        return [
            FoldNumbers(np.concatenate([r.folds for r in each]), each[0].n_folds) for each in zip(*found, strict=True)
        ]

    def _asked(self, row: Any) -> list[Fold]:
        if self.classes is None:
            return make_folds(self.splitter, np.zeros(len(row), np.int64), np.zeros(1), self.groups, 0, row)
        return make_folds(self.splitter, row, self.classes, self.groups, 0)


def _rounds(folds: list[Fold], n: int) -> list[FoldNumbers]:
    """Index pairs as one round where they part the rows, else as a round each."""
    tested = np.concatenate([fold.test for fold in folds])
    if (
        len(tested) == n
        and len(np.unique(tested)) == n
        and all(len(fold.train) + len(fold.test) == n for fold in folds)
    ):
        out = np.empty((1, n), np.int64)
        for k, fold in enumerate(folds):
            out[0, fold.test] = k
        return [FoldNumbers(out, len(folds))]
    rounds = []
    for fold in folds:
        out = np.full((1, n), -1)
        out[0, fold.train], out[0, fold.test] = 1, 0
        rounds.append(FoldNumbers(out, 1))
    return rounds


def make_plan(cv: Any, n: int, classes: NDArray[Any] | None, groups: Any) -> Plan:
    """What `cv` stands for, with the words of scikit-learn: a number means stratified folds for labels, else neighbours.

    `classes`: those of labels, or None for targets.
    """
    cv = _DEFAULT if cv is None else cv
    if isinstance(cv, (numbers.Integral, np.integer, bool)):
        k = border.integer("cv", cv, low=2)
        if k > n:
            raise InputError(f'cv={k} needs at least {k} rows, and there are {n}; use fewer folds, or cv="loo"')
        if classes is not None:
            return Plan(stratified=k)
        return Plan([FoldNumbers(np.repeat(np.arange(k), [len(a) for a in np.array_split(np.arange(n), k)])[None], k)])
    if isinstance(cv, str):
        folds = make_folds(cv, np.zeros(n, np.int64), np.zeros(1), groups, 0)
        return Plan(_rounds(folds, n))
    name = type(cv).__name__
    scikit = type(cv).__module__.startswith("sklearn.")
    if scikit and name == "StratifiedKFold" and classes is not None and not cv.shuffle:
        return Plan(stratified=int(cv.n_splits))
    draws = getattr(cv, "shuffle", name in _DRAWS)
    blind = scikit and name in _BLIND and (not draws or isinstance(cv.random_state, (int, np.integer)))
    own = groups if hasattr(cv, "split") and not (scikit and "Group" not in name) else None
    if hasattr(cv, "split") and not blind:
        return Plan(splitter=cv, classes=classes, groups=own)
    folds = make_folds(cv, np.zeros(n, np.int64), np.zeros(1), own, 0, np.zeros(n))
    return Plan(_rounds(folds, n))


Judge = Callable[[Any, Any], float]


def make_judge(score: Any, labels: bool, several: bool) -> str | Judge:
    """The name of a score, or a function of (y, decision values); None: what scikit-learn's machines say of themselves."""
    known = OF_LABELS if labels else OF_TARGETS
    if score is None:
        return "accuracy" if labels else "r2"
    if callable(score):
        return score  # type: ignore[no-any-return]
    if score not in known:
        other = OF_TARGETS if labels else OF_LABELS
        hint = f"; it is for {'targets' if labels else 'labels'}" if score in other else ""
        raise InputError(
            f"score={score!r} is not known for {'labels' if labels else 'targets'}{hint}; use {', '.join(map(repr, known))}, "
            "or a function of (y, decision values)"
        )
    if several and score == "roc_auc":
        raise InputError('score="roc_auc" is for two classes; use "accuracy" or "balanced_accuracy"')
    return str(score)


def judged(judge: str | Judge, values: Any, decisions: Any, rounds: FoldNumbers, truth: Any) -> FloatArray:
    """The score of every fold, (labellings, folds). `truth`: what a function of the user's gets as y, (labellings, n)."""
    folds, k = rounds
    out = np.empty((len(decisions), k))
    if isinstance(judge, str):
        loops.judge((OF_LABELS | OF_TARGETS)[judge], values, decisions, len(decisions) // len(values), folds, k, out)
        return out
    for p, row in enumerate(decisions):
        for f in range(k):
            test = folds[min(p, len(folds) - 1)] == f
            value = judge(truth[p][test], row[test])
            try:
                out[p, f] = float(value)
            except (TypeError, ValueError):
                raise InputError(
                    f"score returned {value!r}; it must return one number, the larger the better"
                ) from None
    return out


def first_lack(values: FloatArray, weights: FloatArray, rounds: FoldNumbers) -> tuple[int, int, float] | None:
    """(labelling, fold, sign) of the first fold that trains without a row of one sign, if there is one."""
    folds = rounds.folds
    there, plus, minus = (weights > 0.0) & (folds >= 0), values > 0.0, values < 0.0
    train = [there & (folds != fold) for fold in range(rounds.n_folds)]
    lacks = np.array([[~(rows & side).any(axis=1) for side in (plus, minus)] for rows in train])
    found = np.argwhere(lacks.transpose(2, 0, 1))
    if not len(found):
        return None
    column, fold, side = found[0].tolist()
    return column, fold, -1.0 if side else 1.0
