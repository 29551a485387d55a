"""One fold: its path on the training rows, its exact curve on the validation rows."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._control import Control, new_control
from svmcore._errors import InputError, StoppedError
from svmcore._types import FloatArray, IntArray
from svmcore.cv.curves import Decisions, signs
from svmcore.cv.folds import Fold
from svmcore.cv.goals import HINGE, ONE_CLASS, Goal
from svmcore.cv.grams import Gram, WholeGram, part_for
from svmcore.cv.progress import SharedProgress
from svmcore.cv.scores import Outcome, Score, joined, rescaled
from svmcore.cv.several import PathPiece, largest, support_of_all, voted
from svmcore.kernel.table import facts_of, is_positive
from svmcore.models.step_curve import StepCurve
from svmcore.path.cross import Cross
from svmcore.path.data import UNGROUPED, grouped
from svmcore.path.driver import Way, follow_data, why_stalled
from svmcore.path.family import with_target
from svmcore.path.headway import STALLED
from svmcore.path.problem import Data, Form, idle_sides
from svmcore.path.result import Path
from svmcore.path.values import clipped, hats
from svmcore.problem import border, formulations, labelling
from svmcore.problem.border import KernelSpec
from svmcore.problem.columns import Columns, fitted
from svmcore.problem.division import Division, Sides
from svmcore.train.forms import centre_of, demand_costs

_ROWS = 512  # validation rows looked at together
_HELD = 1 << 22  # coefficients held at a time
_BREATH = 2e-3  # seconds between two looks at whether a path shall end: most are shorter


class Span(NamedTuple):
    """The ends of lambda = 1 / C (None: where the paths begin), whether C counts per row, and memory for a path's rows."""

    low: float
    high: float | None
    per_row: bool
    cache_mb: float | None


class Study(NamedTuple):
    """What is cross-validated: the data, checked, and how machines are trained on a part of them.

    `codes` are the labels as positions in `classes` (all 0 where there are numbers instead); `form` are keywords of
    `svc_problem`, the same for every fold and gamma; `class_weight` is a factor per class, or "balanced". Rows that are
    equal, with equal labels or targets, have one number in `same`.
    """

    X: Any
    codes: IntArray
    classes: NDArray[Any]
    weights: FloatArray | None
    class_weight: Any
    form: dict[str, Any]
    span: Span
    names: tuple[str, ...] | None
    division: Division
    goal: Goal = Goal()
    same: IntArray | None = None

    @property
    def decides(self) -> bool:
        """Whether every machine decides for itself what it says to a row, so that its values need not be compared."""
        return self.division.single or self.division.strategy == "ovo"

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.codes.size)

    @property
    def precomputed(self) -> bool:
        """Whether X holds kernel values."""
        return isinstance(self.form["kernel"], str) and self.form["kernel"] == "precomputed"

    @property
    def rowwise(self) -> bool:
        """Whether rows outside of the support leave the machine as it is: not where they scale or weigh the others."""
        return not self.form["standardize"] and not isinstance(self.class_weight, str)

    def total(self, rows: IntArray) -> float:
        """The weight of some rows, as far as machines are trained on them."""
        if self.goal.loss == ONE_CLASS:
            rows = rows[self.division.parts[0].holds(self.codes[rows])]
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

    def columns(self, rows: IntArray) -> tuple[Columns, Any]:
        """How machines trained on these rows scale the features, and the rows as they see them."""
        weights = None if self.weights is None else self.weights[rows]
        X = features_of(self, rows)
        return fitted(X, weights, self.form["standardize"], None, self.form["kernel"])

    def weights_of(self, rows: IntArray) -> FloatArray | None:
        """The weights of training rows: their own times that of their class; None where all are 1."""
        weights = None if self.weights is None else self.weights[rows]
        factors = self.class_weight
        if factors is None:
            return weights
        codes = self.codes[rows]
        if isinstance(factors, str):
            factors = labelling.class_factors(factors, self.classes, codes, weights)
        return np.asarray(factors[codes] if weights is None else factors[codes] * weights)

    def target(self, rows: IntArray) -> FloatArray:
        """The targets of some rows; of one class all are 1."""
        return np.ones(rows.size) if self.goal.target is None else self.goal.target[rows]

    def data(self, gamma: Any, rows: IntArray, part: Sides, threads: int = 1, shared: bool = False) -> Data:
        """The data of the path of one machine of a fold that trains on these rows. All was checked before.

        `shared`: its kernel is known, and its points need not be moved.
        """
        loss, own = self.goal.loss, part.holds(self.codes[rows])
        if loss == ONE_CLASS:
            rows, own = rows[own], own[own]
        weights, mine = self.weights_of(rows), rows[own]
        spec, equality = self.spec(gamma), bool(self.form["fit_intercept"])
        if self.form["standardize"]:
            columns, X = self.columns(rows)
            X = X[own]
        else:
            X = features_of(self, mine)
            columns = Columns(X.shape[1], unit="kernel values") if self.precomputed else Columns(X.shape[1])
            centre = None if shared else centre_of(X, spec, equality)  # what is scaled is not far from zero
            if centre is not None:
                X, columns = X - centre, replace(columns, centre=centre)
        costs = np.ones(mine.size) if weights is None else weights[own]
        signs = np.where(part.positive(self.codes[mine]), 1.0, -1.0) if loss == HINGE else np.ones(mine.size)
        if weights is not None:
            demand_costs(costs, *((signs > 0.0, signs < 0.0) if loss == HINGE else (slice(None),)))
            costs = np.where(costs > formulations.NEGLIGIBLE, costs, 0.0)
        form, classes = (Form(), np.array([0, 1])) if loss == HINGE else (self.goal.form, None)
        data = Data(X, signs, costs, spec, classes, equality, UNGROUPED, threads, columns, form)
        key = None if self.same is None else self.same[mine]
        if key is not None and int(np.bincount(key).max(initial=0)) < 2:
            key = None
        return grouped(data if loss == HINGE else with_target(data, self.target(mine)), key)


class Strand(NamedTuple):
    """One machine of a fold at every C: a path, without the features, which the study has, and its training rows.

    A leave-one-out fold has its own path up to C = `until` only; from there on it is that of all rows, `rest`.
    """

    rows: IntArray
    path: Path | None
    until: float = np.inf
    rest: Path | None = None
    rest_rows: IntArray | None = None

    @property
    def whole(self) -> Path:
        """The path that goes to the end."""
        path = self.path if self.rest is None else self.rest
        assert path is not None
        return path


class Member(NamedTuple):
    """The machines of a fold at every C; `ratio`: their C for C = 1."""

    train: IntArray
    test: IntArray
    ratio: float
    strands: tuple[Strand, ...]

    def values(self, study: Study, C: FloatArray) -> FloatArray:
        """Decision values of the validation rows: by C, row and machine."""
        step = max(1, _HELD // (len(self.strands) * study.n))
        return np.concatenate([self._values(study, self.ratio * C[k : k + step]) for k in range(0, C.size, step)])

    def _values(self, study: Study, C: FloatArray) -> FloatArray:
        """The same, by one product with the kernel for all paths that see the rows alike."""
        alike: dict[int, list[tuple[int, Path, IntArray, Any]]] = {}
        for j, strand in enumerate(self.strands):
            own = strand.until > C
            for path, rows, chosen in ((strand.path, strand.rows, own), (strand.rest, strand.rest_rows, ~own)):
                if path is not None and rows is not None and chosen.any():
                    key = -1 if path._data.columns.centre is None else id(path)
                    alike.setdefault(key, []).append((j, path, rows, chosen))
        out = np.empty((C.size, self.test.size, len(self.strands)))
        for machines in alike.values():
            coef, first = np.zeros((len(machines), C.size, study.n)), machines[0][1]
            for at, (j, path, rows, chosen) in enumerate(machines):
                data, lam = path._data, clipped(path._track, 1.0 / C[chosen])
                beta, bias = hats(path, lam)
                out[chosen, :, j] = (bias / lam)[:, None] + data.form.level
                variables = [beta[:, k : k + data.n_groups] for k in range(0, beta.shape[1], data.n_groups)]
                coef[at][np.ix_(chosen, rows[data.groups.first[: data.n_groups]])] = sum(variables) / lam[:, None]
            data = first._data._replace(X=scaled(first, study.X))
            cross = Cross(data._replace(groups=data.groups._replace(first=np.arange(study.n))), data.X[self.test])
            support = np.flatnonzero(coef.any(axis=(0, 1)))
            lines, columns = coef[:, :, support].reshape(-1, support.size).T, cross.columns(support)
            for start in range(0, self.test.size, _ROWS):
                some = np.arange(start, min(start + _ROWS, self.test.size))
                found = (cross.block(some, columns) @ lines).reshape(some.size, len(machines), C.size)
                for at, (j, _, _, chosen) in enumerate(machines):
                    out[np.ix_(chosen, some, np.array([j]))] += found[:, at, chosen].T[:, :, None]
        return out

    @property
    def support(self) -> StepCurve:
        """The number of support vectors over C."""
        rows = [strand.rows if strand.rest_rows is None else strand.rest_rows for strand in self.strands]
        n = 1 + max(int(each.max()) for each in rows)
        return support_of_all([(each.whole, own) for each, own in zip(self.strands, rows, strict=True)], n, self.ratio)


class Result(NamedTuple):
    """What is kept of a fold: what happens to its validation rows, and its machines."""

    outcome: Outcome
    member: Member
    C_range: tuple[float, float]
    max_gap: float


class PathTask(NamedTuple):
    """One path to follow: its place among all, its kernel, the fold and which of its machines, and where it may end."""

    number: int
    gamma: Any
    fold: Fold
    part: Sides
    low: float
    rest: PathOfAll | None = None


class PathOfAll(NamedTuple):
    """Leave-one-out: the path of all rows, what happens to them, and the C from which on it is that of the fold, too."""

    path: Path
    rows: IntArray
    outcome: Outcome | None
    until: float


class FollowedMachine(NamedTuple):
    """One machine of a fold: its path, and what happens to the validation rows (None: the values of all decide together)."""

    strand: Strand
    outcome: Outcome | None
    max_gap: float


def with_features(path: Path, study: Study, rows: IntArray) -> Path:
    """The path with its training rows again."""
    whole = copy.copy(path)
    whole._data = path._data._replace(X=scaled(path, features_of(study, rows)))
    return whole


def scaled(path: Path, X: Any) -> Any:
    """Checked rows as a path sees them."""
    columns = path._data.columns
    return X if columns.standardized is None and columns.centre is None else columns.apply(X)


def features_of(study: Study, rows: IntArray) -> Any:
    """The raw features of some rows, or the kernel among them."""
    return study.X[np.ix_(rows, rows)] if study.precomputed else study.X[rows]


def run_task(
    study: Study, score: Score, task: PathTask, kernel: Gram, progress: SharedProgress
) -> FollowedMachine | None:
    """Follow one path and see what it does to its validation rows. None when it was ended before."""
    train, test = task.fold
    rows, rest = train[task.part.holds(study.codes[train])], task.rest
    path, outcome = None, None
    try:
        if rest is None or rest.until > 0.0:
            control = new_control("path", None, lambda report: progress.at(task.number, report.done), 0)
            progress.at(task.number, 0.0)  # of few points nobody looks at the path again before it ends
            gram = None if progress.ended() else kernel.get()
            if not progress.ended():
                with part_for(gram, rows) as part:
                    path = _follow(study, task, part, kernel.n_threads, control)
            if path is None:
                return None
            if study.decides:
                control.callback = lambda report: progress.at(task.number, 1.0)
                cross = cross_of(path, study, Fold(rows, test), gram)
                outcome = _outcome(study, score, path, cross, test, control)
                if outcome is None:
                    return None
    except StoppedError:
        return None
    finally:
        kernel.release()
    progress.finish(task.number)
    gap = 0.0 if path is None else float(path.stats.get("max_gap", 0.0))
    own = path
    if own is not None:  # the study has its training rows
        own._data = own._data._replace(X=None)
    if rest is None:
        return FollowedMachine(Strand(rows, own), outcome, gap)
    if study.decides:
        others = _of_all(study, score, rest, test)
        outcome = others if outcome is None else joined(outcome, others, rest.until)
    return FollowedMachine(Strand(rows, own, rest.until, rest.path, rest.rows), outcome, gap)


def _outcome(study: Study, score: Score, path: Path, cross: Cross, test: IntArray, control: Control) -> Outcome | None:
    """What a path does to some rows."""
    return signs(path, cross, control) if not study.division.single else score.outcome(path, cross, test, control)


def finish_fold(study: Study, fold: Fold, machines: list[FollowedMachine], kernel: Gram) -> Result:
    """All machines of a fold put together."""
    ratio = study.ratio(fold.train)
    strands = tuple(machine.strand for machine in machines)
    wholes = [strand.whole for strand in strands]
    low = max(path.C_range[0] for path in wholes)
    outcomes = [machine.outcome for machine in machines if machine.outcome is not None]
    if study.division.single:
        outcome: Outcome = outcomes[0]
    elif study.decides:
        outcome = voted([each for each in outcomes if isinstance(each, Decisions)], study.division)
    else:
        gram = kernel.get()
        outcome = largest([_pieces(study, strand, fold, gram) for strand in strands], low)
        kernel.release()
    span = (low / ratio if study.span.high is None else 1.0 / study.span.high, 1.0 / study.span.low)
    gap = max(machine.max_gap for machine in machines)
    return Result(rescaled(outcome, ratio), Member(*fold, ratio, strands), span, gap)


def _pieces(study: Study, strand: Strand, fold: Fold, gram: WholeGram | None) -> list[PathPiece]:
    """The paths of a machine, from the smallest C on."""
    out = []
    if strand.path is not None:
        path = with_features(strand.path, study, strand.rows)
        out.append(PathPiece(path, cross_of(path, study, Fold(strand.rows, fold.test), gram)))
    if strand.rest is not None and strand.rest_rows is not None and strand.until < np.inf:
        path = with_features(strand.rest, study, strand.rest_rows)
        high = np.inf if strand.path is None else 1.0 / strand.until
        out.append(PathPiece(path, cross_of(path, study, Fold(strand.rest_rows, fold.test), gram), high))
    return out


def _of_all(study: Study, score: Score, rest: PathOfAll, test: IntArray) -> Outcome:
    """What the machine of all rows does to some."""
    if isinstance(rest.outcome, Decisions):
        return _only(rest.outcome, test)
    whole = with_features(rest.path, study, rest.rows)
    cross = cross_of(whole, study, Fold(rest.rows, test), None)
    outcome = score.outcome(whole, cross, test, new_control("path", None, None, 0))
    assert outcome is not None
    return outcome


def _follow(study: Study, task: PathTask, gram: FloatArray | None, threads: int, control: Control) -> Path | None:
    """One path. `gram` is the kernel among its rows, where somebody has it. None when it was ended early."""
    train = task.fold.train
    high = None if study.span.high is None else study.span.high / study.ratio(train)
    way = Way(high, task.low, cache_mb=study.span.cache_mb, threads=threads, again=False, breath=_BREATH)
    data = study.data(task.gamma, train, task.part, threads, shared=gram is not None)
    path = follow_data(data, way, control, gram=gram)
    if path.ended == STALLED:
        C = path.C_max / study.ratio(train)
        raise InputError(
            f"the path of a fold cannot be followed beyond C={C:.6g}: {why_stalled(path)}. Give a smaller C_max, or a "
            "positive semi-definite kernel of values near 1"
        )
    return path if path.ended == "done" else None


class GramCross(Cross):
    """Kernel values between validation rows and the variables of a path, out of the matrix of all rows.

    Where they are few, all of them are taken out once.
    """

    def __init__(self, data: Data, gram: WholeGram, fold: Fold) -> None:
        self.data, self.gram, self.fold = data, gram, fold
        self.n, self.width = fold.test.size, 0  # it takes no features
        self.few = not data.form.twins and fold.test.size * data.n_groups <= _HELD

    @cached_property
    def whole(self) -> FloatArray:
        """All values."""
        return self.gram.part(self.fold.test, self.fold.train[self.data.groups.first])

    def columns(self, variables: IntArray) -> Any:
        """As `Cross.columns`."""
        return variables if self.few else self.fold.train[self.data.groups.first[variables]]

    def block(self, rows: slice | IntArray, columns: Any) -> FloatArray:
        """As `Cross.block`."""
        test = self.fold.test[rows]
        if not self.few:
            return self.gram.part(test, columns)
        if test.size < self.n or columns.size < self.data.n_groups:
            return np.asarray(self.whole[np.ix_(np.arange(self.n)[rows], columns)])
        return self.whole

    def values(self, rows: slice | IntArray, variables: IntArray, coef: FloatArray) -> FloatArray:
        """As `Cross.values`."""
        if not self.few:
            return np.asarray(self.block(rows, self.columns(variables)) @ coef)
        every = np.zeros(self.data.n_groups)
        every[variables] = coef
        return np.asarray((self.whole @ every)[rows])

    def roots(self) -> FloatArray | None:
        """As `Cross.roots`."""
        kernel, at = self.data.spec.kernel, self.fold.test
        if self.data.spec.function is not None or not is_positive(kernel):
            return None
        if facts_of(kernel).exponential:
            return np.ones(self.n)
        at = at if self.gram.place is None else self.gram.place[at]
        return np.asarray(np.sqrt(self.gram.matrix[at, at]))


def cross_of(path: Path, study: Study, fold: Fold, gram: WholeGram | None) -> Cross:
    """Kernel values between the validation rows and the variables of a path."""
    if gram is not None:
        return GramCross(path._data, gram, fold)
    train, test = fold
    X = study.X[np.ix_(test, train)] if study.precomputed else scaled(path, study.X[test])
    return Cross(path._data, X)


def last_weight(strand: Strand, n: int) -> FloatArray:
    """For each of n rows the C from which on its alpha is zero for good; infinity where it is not at the end."""
    path = strand.whole
    track, groups = path._track, path._data.groups
    idle = idle_sides(path._problem)
    until = np.where(track.side0 == idle, 0.0, np.inf)
    settled = track.event_move[:, 1] == idle[track.event_index]
    until[track.event_index] = np.where(settled, 1.0 / track.event_lambda, np.inf)  # the last event of a variable wins
    until = until.reshape(-1, path._data.n_groups).max(axis=0)  # a point may own two
    out = np.zeros(n)
    out[strand.rows] = np.where(groups.of >= 0, until[groups.of], 0.0)
    return out


def _only(decisions: Decisions, rows: IntArray) -> Decisions:
    """The decisions on some rows, in their order."""
    place = np.full(decisions.start.size, -1, dtype=np.int64)
    place[rows] = np.arange(rows.size)
    kept = place[decisions.row] >= 0
    return Decisions(decisions.start[rows], decisions.C[kept], place[decisions.row[kept]], decisions.to[kept])
