"""One fold: its path on the training rows, its exact curve on the validation rows."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._control import Control, new_control
from svmcore._errors import StoppedError
from svmcore._types import FloatArray, IntArray
from svmcore.cv.curves import Decisions, support_curve
from svmcore.cv.folds import Fold
from svmcore.cv.grams import Grams
from svmcore.cv.progress import Progress
from svmcore.cv.scores import Outcome, Score, joined, rescaled
from svmcore.path.cross import Cross
from svmcore.path.driver import Way, follow
from svmcore.path.result import Path
from svmcore.problem import border
from svmcore.problem.border import KernelSpec
from svmcore.solve import Problem, svc_problem
from svmcore.step_curve import StepCurve

_ROWS = 512  # validation rows looked at together


class Span(NamedTuple):
    """The ends of lambda = 1 / C (None: where the paths begin), whether C counts per row, and memory for a path's rows."""

    low: float
    high: float | None
    per_row: bool
    cache_mb: float | None


class Study(NamedTuple):
    """What is cross-validated: the data, checked, and how machines are trained on a part of them.

    `codes` are the labels as positions in `classes`; `form` are keywords of `svc_problem`, the same for every fold and
    gamma; `class_weight` is a factor per class, or "balanced".
    """

    X: Any
    codes: IntArray
    classes: NDArray[Any]
    weights: FloatArray | None
    class_weight: Any
    form: dict[str, Any]
    span: Span
    names: tuple[str, ...] | None

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.codes.size)

    @property
    def precomputed(self) -> bool:
        """Whether X holds kernel values."""
        return isinstance(self.form["kernel"], str) and self.form["kernel"] == "precomputed"

    def total(self, rows: IntArray) -> float:
        """The weight of some rows."""
        return float(rows.size if self.weights is None else self.weights[rows].sum())

    def ratio(self, rows: IntArray) -> float:
        """The C of a machine on these rows that stands for C = 1 on all: 1, or (`per_row`) more, for there are fewer."""
        return self.total(np.arange(self.n)) / self.total(rows) if self.span.per_row else 1.0

    def spec(self, gamma: Any) -> KernelSpec:
        """The kernel."""
        form = self.form
        tau = form["intercept_scaling"]
        return border.kernel(
            form["kernel"], self.X, gamma if gamma is not None else 1.0, form["degree"], form["coef0"],
            0.0 if tau is None else float(tau) ** 2,
        )  # fmt: skip

    def problem(self, gamma: Any, rows: IntArray) -> Problem:
        """The training problem of some rows, for C = 1."""
        weights = None if self.weights is None else self.weights[rows]
        factors = self.class_weight
        if isinstance(factors, np.ndarray):
            factors = dict(enumerate(factors.tolist()))
        return svc_problem(
            features_of(self, rows),
            self.codes[rows],
            1.0,
            gamma=gamma,
            sample_weight=weights,
            class_weight=factors,
            **self.form,
        )


class Member(NamedTuple):
    """The machine of a fold at every C: a path, without the features, which the study has.

    A leave-one-out fold has its own path up to C = `until` only; from there on it is that of all rows, `rest`.
    """

    train: IntArray
    test: IntArray
    path: Path | None
    ratio: float
    until: float = np.inf
    rest: Path | None = None

    def values(self, study: Study, C: FloatArray) -> FloatArray:
        """Decision values of the validation rows, one row per C."""
        C = C * self.ratio
        out = np.empty((C.size, self.test.size))
        own = self.until > C
        for chosen, rows, path in ((own, self.train, self.path), (~own, np.arange(study.n), self.rest)):
            if chosen.any():
                assert path is not None
                whole = with_features(path, study, rows)
                X = study.X[np.ix_(self.test, rows)] if study.precomputed else study.X[self.test]
                high = path.C_range[1]  # of which rounding of the ratio may be above
                out[chosen] = whole.decision_function(X, np.minimum(C[chosen], high))
        return out


class Result(NamedTuple):
    """What is kept of a fold: what happens to its validation rows, its number of support vectors, its machine."""

    outcome: Outcome
    support: StepCurve
    member: Member
    C_range: tuple[float, float]
    max_gap: float


class Task(NamedTuple):
    """One path to follow: its place among all, its kernel, its rows, and where it may end."""

    number: int
    gamma: Any
    fold: Fold
    low: float
    rest: Rest | None = None


class Rest(NamedTuple):
    """Leave-one-out: the path of all rows, what happens to them, and the C from which on it is that of the fold, too."""

    path: Path
    outcome: Outcome
    until: float


def without_features(path: Path) -> Path:
    """The path without its training rows, which others hold already."""
    light = copy.copy(path)
    light._data = path._data._replace(X=None)
    return light


def with_features(path: Path, study: Study, rows: IntArray) -> Path:
    """The path with its training rows again."""
    whole = copy.copy(path)
    whole._data = path._data._replace(X=path._data.columns.apply(features_of(study, rows)))
    return whole


def features_of(study: Study, rows: IntArray) -> Any:
    """The raw features of some rows, or the kernel among them."""
    return study.X[np.ix_(rows, rows)] if study.precomputed else study.X[rows]


def run_task(study: Study, score: Score, task: Task, grams: Grams, progress: Progress) -> Result | None:
    """Follow one path and see what it does to its validation rows. None when it was ended before."""
    train, test = task.fold
    ratio, rest = study.ratio(train), task.rest
    path, outcome = None, None
    try:
        if rest is None or rest.until > 0.0:
            gram = grams.get(task.gamma, study.spec(task.gamma))
            control = new_control("path", None, lambda report: progress.at(task.number, report.done), 0)
            path = None if progress.ended() else _follow(study, task, gram, grams.n_threads, control)
            if path is None:
                return None
            control.callback = lambda report: progress.at(task.number, 1.0)
            outcome = score.outcome(path, cross_of(path, study, task.fold, gram), study.codes[test], test, control)
            if outcome is None:
                return None
    except StoppedError:
        return None
    finally:
        grams.release(task.gamma)
    progress.finish(task.number)
    if rest is not None:
        others = _of_all(study, score, rest, test)
        outcome = others if outcome is None else joined(outcome, others, rest.until)
    whole = path if rest is None else rest.path
    assert whole is not None
    assert outcome is not None
    member = Member(
        train, test, None if path is None else without_features(path), ratio,
        np.inf if rest is None else rest.until, None if rest is None else rest.path,
    )  # fmt: skip
    low = whole.C_range[0] / ratio if study.span.high is None else 1.0 / study.span.high
    gap = 0.0 if path is None else float(path.stats.get("max_gap", 0.0))
    span = (low, 1.0 / study.span.low)
    return Result(rescaled(outcome, ratio), support_curve(whole, ratio), member, span, gap)


def _of_all(study: Study, score: Score, rest: Rest, test: IntArray) -> Outcome:
    """What the machine of all rows does to some."""
    if isinstance(rest.outcome, Decisions):
        return _only(rest.outcome, test)
    every = np.arange(study.n)
    whole = with_features(rest.path, study, every)
    control = new_control("path", None, None, 0)
    outcome = score.outcome(whole, cross_of(whole, study, Fold(every, test), None), study.codes[test], test, control)
    assert outcome is not None
    return outcome


def _follow(study: Study, task: Task, gram: FloatArray | None, threads: int, control: Control) -> Path | None:
    train = task.fold.train
    high = None if study.span.high is None else study.span.high / study.ratio(train)
    way = Way(high, task.low, cache_mb=study.span.cache_mb, threads=threads)
    own = None if gram is None else gram[np.ix_(train, train)]
    path = follow(study.problem(task.gamma, train), way, control, gram=own)
    return path if path.ended == "done" else None


class GramCross(Cross):
    """Kernel values between validation rows and the variables of a path, out of the matrix of all rows."""

    def __init__(self, data: Any, X: Any, gram: FloatArray, fold: Fold) -> None:
        super().__init__(data, X)
        self.gram, self.fold = gram, fold

    def columns(self, variables: IntArray) -> Any:
        """As `Cross.columns`."""
        return self.fold.train[self.data.groups.first[variables]]

    def block(self, rows: slice | IntArray, columns: Any) -> FloatArray:
        """As `Cross.block`."""
        return np.asarray(self.gram[np.ix_(self.fold.test[rows], columns)])

    def values(self, rows: slice | IntArray, variables: IntArray, coef: FloatArray) -> FloatArray:
        """As `Cross.values`."""
        return np.asarray(self.block(rows, self.columns(variables)) @ coef)


def cross_of(path: Path, study: Study, fold: Fold, gram: FloatArray | None) -> Cross:
    """Kernel values between the validation rows and the variables of a path."""
    train, test = fold
    X = study.X[np.ix_(test, train)] if study.precomputed else path._data.columns.apply(study.X[test])
    return Cross(path._data, X) if gram is None else GramCross(path._data, X, gram, fold)


def last_weight(path: Path) -> FloatArray:
    """For every training row the C from which on its alpha is zero for good; infinity where it is not at the end."""
    track, groups = path._track, path._data.groups
    idle = np.where(path._sign > 0, 0, 1)
    until = np.where(track.side0 == idle, 0.0, np.inf)
    settled = track.event_move[:, 1] == idle[track.event_index]
    until[track.event_index] = np.where(settled, 1.0 / track.event_lambda, np.inf)  # the last event of a variable wins
    return np.where(groups.of >= 0, until[groups.of], 0.0)


def _only(decisions: Decisions, rows: IntArray) -> Decisions:
    """The decisions on some rows, in their order."""
    place = np.full(decisions.start.size, -1, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    kept = place[decisions.row] >= 0
    return Decisions(decisions.start[rows], decisions.C[kept], place[decisions.row[kept]], decisions.to[kept])
