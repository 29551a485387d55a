"""Labellings in slices: they are folded, solved and judged, one slice after the other or side by side.

A slice depends on numbers only. So results are the same for any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._errors import ConvergenceWarning, warn
from svmcore._types import FloatArray, Status
from svmcore.base.parallel import run_all
from svmcore.cv.search import cv_path
from svmcore.cv.trials import COUNTED, FoldNumbers, judged
from svmcore.simd.passes import TOGETHER
from svmcore.solvers._crowd import SLICE, Manner, Matrices, booth_for, harvest, matrices_of, pilot
from svmcore.solvers._crowd_jit import GAP, PRIMAL, VIOLATION
from svmcore.trials.labellings import Stack, Trial

_INVERSE = 20  # from so many labellings on, the inverse of a matrix may pay
CHUNK = 16  # kernel matrices that are done between two looks at the clock
_KEPT = 4000  # so many rows of labellings at least are done in one go where that saves kernel values
_PILOT = 10  # so many labellings are enough for a pilot


class Judged(NamedTuple):
    """What came out of some labellings: scores, violations, gaps, primals (labellings, costs, folds); decision values.

    Of all C there is one score, the best one, for all folds together, and `best` is where it is.
    """

    scores: FloatArray
    violation: FloatArray
    gap: FloatArray
    primal: FloatArray
    decisions: FloatArray | None  # (labellings, costs, n), and with several classes a last axis of pairs
    best: FloatArray | None = None


def part_of(setting: Trial, matrices: Matrices, inverse: list[bool], codes: Any, first: int) -> Judged:
    """Fold, solve and judge some labellings, of which the first has the number `first`."""
    if setting.all_costs:
        return _of_all_costs(setting, matrices, codes, first)
    rounds = setting.plan.rounds(codes)
    setting.demand(codes, rounds, first)
    booth, certain = booth_for(matrices), setting.judge in COUNTED or len(setting.pairs) > 1
    scores, told = [], []
    decisions: list[FloatArray] = []
    for cost, by_inverse in zip(setting.costs, inverse, strict=True):
        way, own = Manner(setting.tol, by_inverse, certain, own=setting.own), []
        for each in rounds:
            found = [harvest(matrices, setting.crowd(codes, pair, each, cost), way, booth) for pair in setting.pairs]
            values = np.stack([one.decisions for one in found], axis=-1)
            measures = np.stack([one.told.reshape(len(codes), each.n_folds, -1) for one in found])
            own.append((_scores(setting, codes, values, each), measures, values))
        scores.append(np.concatenate([score for score, _, _ in own], axis=1))
        told.append(np.concatenate([measure for _, measure, _ in own], axis=2))
        if setting.keep:
            decisions.append(_merged([values for _, _, values in own]))
    all_told = np.stack(told, axis=2)  # (pairs, labellings, costs, folds, measures)
    kept = np.stack(decisions, axis=1) if setting.keep else None
    return Judged(
        np.stack(scores, axis=1), all_told[..., VIOLATION].max(axis=0), all_told[..., GAP].sum(axis=0),
        all_told[..., PRIMAL].sum(axis=0), kept if kept is None or kept.shape[-1] > 1 else kept[..., 0],
    )  # fmt: skip


def _of_all_costs(setting: Trial, matrices: Matrices, codes: Any, first: int) -> Judged:
    """`part_of` where the score of a labelling is the best one over every C, from exact paths."""
    assert setting.classes is not None
    assert isinstance(setting.judge, str)
    n, balanced = codes.shape[1], setting.factors[0] < 0.0
    share = "balanced" if balanced else dict(zip(setting.classes.tolist(), setting.factors.tolist(), strict=True))
    told = []
    for p, row in enumerate(codes):
        rounds = setting.plan.rounds(row[None])
        setting.demand(row[None], rounds, first + p)
        every = [(each.folds[0], k) for each in rounds for k in range(each.n_folds)]
        folds = [(np.flatnonzero((own != k) & (own >= 0)), np.flatnonzero(own == k)) for own, k in every]
        splitter = SimpleNamespace(
            split=lambda *_, folds=folds: folds
        )  # which may leave rows out several times, or never
        found = cv_path(
            matrices.double[:, :n], setting.classes[row], cv=splitter, kernel="precomputed", score=setting.judge,
            sample_weight=setting.weights, weight_score=False, class_weight=share,
        )  # fmt: skip
        told.append((1.0 - found.best_error, found.stats["max_gap"], found.best_C))
    scores, gaps, best = (np.array(each)[:, None, None] for each in zip(*told, strict=True))
    return Judged(scores, np.zeros_like(scores), gaps, np.ones_like(scores), None, best[:, 0, 0])


def _merged(values: list[FloatArray]) -> FloatArray:
    """Decision values of several rounds: the mean where a row is left out several times, NaN where it never is."""
    if len(values) == 1:
        return values[0]
    every = np.stack(values)
    known = ~np.isnan(every)
    count = known.sum(axis=0)
    return np.where(count > 0, np.where(known, every, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)


def _scores(setting: Trial, codes: Any, values: FloatArray, rounds: FoldNumbers) -> FloatArray:
    if setting.classes is None or len(setting.classes) == 2:
        truth = codes if setting.classes is None or isinstance(setting.judge, str) else setting.classes[codes]
        signs = setting.values(codes, (1, 0))
        return judged(setting.judge, signs, np.ascontiguousarray(values[..., 0]), rounds, truth)
    votes = np.zeros((*values.shape[:-1], len(setting.classes)), np.int64)
    for k, (above, below) in enumerate(setting.pairs):
        win = values[..., k] > 0.0
        votes[..., above] += win
        votes[..., below] += ~win
    chosen = np.asarray(votes.argmax(axis=-1))  # that for which most pairs vote, the first one of several
    if not isinstance(setting.judge, str):
        return judged(setting.judge, codes, setting.classes[chosen], rounds, setting.classes[codes])
    right = np.where(chosen == codes, 1.0, -1.0)
    if setting.judge == "accuracy":
        return judged("accuracy", np.ones(codes.shape), right, rounds, codes)
    each = [judged("accuracy", (codes == c) * 1.0, right, rounds, codes) for c in range(len(setting.classes))]
    there = ~np.isnan(each)
    return np.asarray(np.where(there, each, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1))


def pilots(setting: Trial, matrices: Matrices, codes: Any) -> list[bool]:
    """For each cost, whether the inverse is asked first. The first labellings decide, by counts."""
    if setting.own is not None or setting.all_costs:
        return [False] * len(setting.costs)
    few = codes[:_PILOT]
    rounds = setting.plan.rounds(few)
    setting.demand(few, rounds, 0)
    return [
        pilot(matrices, setting.crowd(few, setting.pairs[0], rounds[0], cost), setting.tol) for cost in setting.costs
    ]


def labellings_of_a_slice(setting: Trial, codes: Any) -> int:
    """How many labellings are done in one go. It depends on numbers only."""
    least = 1
    if setting.all_costs:
        return least
    if setting.own is not None and setting.plan.fixed is not None:  # these share the kernel values of a fold
        least = max(1, min(TOGETHER, _KEPT // codes.shape[1]))
    return max(least, SLICE // sum(each.n_folds for each in setting.plan.rounds(codes[:1])))


def in_slices(
    work: Callable[..., Any], task: Callable[[int, int], tuple[Any, ...]], step: int, count: int, n_jobs: Any,
    ended: Callable[[int], bool],
) -> Iterator[tuple[int, Any]]:  # fmt: skip
    """(begin, what `work` makes of the task begin .. end) for slices in order, `n_jobs` side by side, until `ended(end)`."""
    cuts = [(k, min(k + step, count)) for k in range(0, count, step)]
    for (begin, end), found in zip(cuts, run_all(work, [task(*cut) for cut in cuts], n_jobs), strict=False):
        yield begin, found
        if ended(end):
            return


class Ending:
    """Whether work ends before all of it is done, and why."""

    def __init__(self, control: Control, count: int) -> None:
        self.control, self.count, self.status = control, count, Status.CONVERGED

    def __call__(self, done: int) -> bool:
        """Whether it is time to end, with so much of it done."""
        reason = self.control.step(done / self.count)
        if reason is not None and done < self.count:
            self.status = reason
        return not self.status.ok


def parts(
    setting: Trial, matrices: Matrices, inverse: list[bool], codes: Any, n_jobs: Any, ended: Callable[[int], bool],
    first: int = 0,
) -> Iterator[Judged]:  # fmt: skip
    """All labellings in slices, in order, `n_jobs` slices side by side, until `ended(labellings done)`."""
    step = labellings_of_a_slice(setting, codes)
    slices = in_slices(
        part_of, lambda a, b: (setting, matrices, inverse, codes[a:b], first + a), step, len(codes), n_jobs, ended
    )
    return (found for _, found in slices)


def of_gram(setting: Trial, gram: Any, codes: Any, first: int = 0) -> Judged:
    """All labellings over a kernel matrix of their own."""
    several = len(codes) >= _INVERSE
    matrices = matrices_of(gram, inverse=several)
    inverse = pilots(setting, matrices, codes) if several else [False] * len(setting.costs)
    return joined(list(parts(setting, matrices, inverse, codes, 1, lambda _: False, first)))


def of_stack(setting: Trial, stack: Stack, codes: Any, begin: int, end: int) -> Judged:
    """The labelling of each matrix, or the one of all, over the matrices begin .. end - 1."""
    return joined([of_gram(setting, stack.gram(k), codes[min(k, len(codes) - 1)][None], k) for k in range(begin, end)])


def joined(found: list[Judged]) -> Judged:
    """Labellings that were done in several parts."""
    columns: Any = zip(*found, strict=True)
    whole: list[Any] = [None if column[0] is None else np.concatenate(column) for column in columns]
    return Judged(*whole)


class Violations:
    """The largest violation of some machines, and how many of them missed the tolerance."""

    def __init__(self, tol: float) -> None:
        self.tol, self.worst, self.missed, self.machines = tol, 0.0, 0, 0

    def add(self, violation: FloatArray) -> Violations:
        """Count these machines, too."""
        self.worst = max(self.worst, float(violation.max()))
        self.missed += int(np.count_nonzero(~(violation <= self.tol)))
        self.machines += violation.size
        return self

    def speak(self) -> None:
        """Warn of machines that missed the tolerance."""
        if self.missed:
            warn(
                f"{self.missed} of {self.machines} machines missed the tolerance {self.tol:g}; the largest violation is "
                f"{self.worst:.2g}. Use a smaller C, or a larger tol",
                ConvergenceWarning,
            )


def pooled_scores(setting: Trial, decisions: Any, codes: Any) -> FloatArray:
    """The score of all rows that were validated, as of one fold: (labellings, costs, 1)."""
    several = setting.classes is not None and len(setting.classes) > 2
    out = []
    for each in np.moveaxis(decisions, 1, 0):
        values = each if several else each[..., None]
        folds = np.where(np.isnan(values[..., 0]), 1, 0)
        out.append(_scores(setting, codes, values, FoldNumbers(folds, 1)))
    return np.stack(out, axis=1)
