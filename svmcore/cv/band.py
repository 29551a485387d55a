"""A certified band where the exact path is too large: fits at some values of C, and what they say about all others.

With w(C) the optimum, <w(C) / C - w(B) / B, w(C) - w(B)> <= 0: so w(C) lies in the ball whose diameter reaches from
(C / B) w(B) to w(B) (Shibagaki, Suzuki, Karasuyama, Takeuchi 2015). A fit that is not quite optimal widens the ball by
sqrt(2 gap). The ball bounds w'x for every row, and these bound the intercept, which is a weighted quantile of y - w'x. Rows
whose bounds have one sign are decided. Between two fits both balls hold, and the intersection counts.

Fits are added where a C could be better than the best one known by more than eps, until there is none. Where the intercept
is not unique the band is over all of its optimal values, and no fit makes it narrower.
"""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from svmcore._errors import ConvergenceWarning, InputError
from svmcore._types import FloatArray, IntArray, KernelKind
from svmcore.cv.folds import Fold
from svmcore.cv.members import Study
from svmcore.cv.progress import SharedProgress
from svmcore.cv.result import SAME
from svmcore.cv.scores import Score
from svmcore.kernel.points import is_sparse, row_sums
from svmcore.problem.division import Sides
from svmcore.step_curve import StepCurve, merged
from svmcore.train import train_svc

_DECADES = 6.0  # if the smallest C is not given, it lies so many decades below the largest one
_START = 10.0**0.5  # the ratio of C between two of the first fits
_CELLS = 8  # there are so many cells between two fits
_TOL = 1e-6  # the tolerance of a fit for (primal - dual) / (|primal| + 1)
_NARROW = 1.0 + 1e-6  # neighbours that are nearer are not parted again
_ROUNDING = 1e-11  # relative rounding of an objective, and of a decision value, by which bounds are widened
_REACHED = 1e-12  # share of the whole weight by which rounding may miss the level of a quantile
_KINDS = (KernelKind.RBF, KernelKind.LAPLACIAN, KernelKind.LINEAR, KernelKind.POLY, KernelKind.PRECOMPUTED)


class Fit(NamedTuple):
    """A machine at one C: w'x of its training and validation rows, |w|, and how far it may be from the optimum."""

    C: float
    train: FloatArray
    test: FloatArray
    norm: float
    slack: float
    intercept: float
    alpha: FloatArray


class Geometry(NamedTuple):
    """What bounds need of a machine's problem: sqrt k(x, x) of training and validation rows, labels and weights."""

    roots: tuple[FloatArray, FloatArray]
    equality: bool
    sign: FloatArray
    weight: FloatArray


class FitStrand:
    """One machine of a fold at the values of C that were tried; `alphas` are its dual variables there."""

    def __init__(self, gamma: Any, part: Sides, rows: IntArray, alphas: dict[float, FloatArray] | None = None) -> None:
        self.gamma = gamma
        self.part = part
        self.rows = rows
        self.alphas = {} if alphas is None else alphas
        self.fits: dict[float, Fit] = {}
        self.geometry: Geometry | None = None

    def machine(self, study: Study, fold: Fold, C: float) -> tuple[Any, Any, Any]:
        """The machine at C, from the nearest one known, and the training and validation rows as it takes them."""
        near = min(self.alphas, key=lambda other: abs(np.log(other / C)), default=None)
        start = None if near is None else self.alphas[near] * (C / near)
        own = self.part.holds(study.codes[fold.train])
        columns, X = study.columns(fold.train)
        weights = study.weights_of(fold.train)
        if study.precomputed:
            X, new = X[np.ix_(own, own)], study.X[np.ix_(fold.test, self.rows)]
        else:
            X, new = X[own], columns.apply(study.X[fold.test])
        form = {**study.form, "standardize": False} | ({} if self.gamma is None else {"gamma": self.gamma})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # its gap is in the band
            found = train_svc(
                X, self.part.positive(study.codes[self.rows]), C, tol=_TOL, stopping="gap", alpha0=start,
                sample_weight=None if weights is None else weights[own], **form,
            )  # fmt: skip
        return found, X, new

    def add(self, study: Study, fold: Fold, C: float) -> None:
        """Fit at C."""
        if self.geometry is None:
            self.geometry = _geometry(study, self, fold)
        machine, X, new = self.machine(study, fold, C * study.ratio(fold.train))
        bias = machine.intercept if self.geometry.equality else 0.0
        train, test = machine.decision_function(X) - bias, machine.decision_function(new) - bias
        norm = float(np.sqrt(max(float(machine.dual_coef @ train[machine.support]), 0.0)))
        gap = max(machine.gap, 0.0) + _ROUNDING * abs(machine.primal_objective)
        self.fits[C] = Fit(C, train, test, norm, float(np.sqrt(2.0 * gap)), bias, machine.alpha)
        self.alphas[C * study.ratio(fold.train)] = machine.alpha

    def bounds(self, at: tuple[float, ...], low: float, high: float) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of f(x) of the validation rows for every C from `low` to `high`, by fits near by."""
        geometry, fits = self.geometry, [self.fits[C] for C in at]
        assert geometry is not None
        train, test = (_inside(fits, which, geometry.roots[which], low, high) for which in (0, 1))
        if not geometry.equality:
            return test
        real = geometry.weight > 0.0
        y, weight = geometry.sign[real], geometry.weight[real]
        level = float(weight[y > 0].sum())
        least = _quantile(y - train[1][real], weight, level, upper=False)
        most = _quantile(y - train[0][real], weight, level, upper=True)
        return test[0] + least, test[1] + most


class FitMember(NamedTuple):
    """The machines of a fold at the values of C that were tried."""

    train: IntArray
    test: IntArray
    strands: tuple[FitStrand, ...]

    def values(self, study: Study, C: FloatArray) -> FloatArray:
        """Decision values of the validation rows by C, row and machine: each C takes a fit."""
        fold, ratio = Fold(self.train, self.test), study.ratio(self.train)
        out = np.empty((C.size, self.test.size, len(self.strands)))
        for j, value in enumerate(C.tolist()):
            for k, strand in enumerate(self.strands):
                machine, _, new = strand.machine(study, fold, value * ratio)
                out[j, :, k] = machine.decision_function(new)
        return out


def check_kernel(study: Study, gamma: Any) -> None:
    """Refuse a kernel for which there is no ball."""
    spec = study.spec(gamma)
    kernel = spec.kernel
    if kernel.kind not in _KINDS or (kernel.kind == KernelKind.POLY and kernel.coef0 < 0.0):
        raise InputError(
            f"eps= needs a positive semi-definite kernel whose k(x, x) is known, and kernel={spec.name!r} may be none; leave "
            "eps out"
        )


def _geometry(study: Study, strand: FitStrand, fold: Fold) -> Geometry:
    problem = study.problem(strand.gamma, fold.train, strand.part)
    kernel = problem.spec.kernel
    if study.precomputed:
        square = np.diag(study.X)
        squares = square[strand.rows], square[fold.test]
    else:
        squares = _squares(kernel, problem.X), _squares(kernel, problem.columns.apply(study.X[fold.test]))
    roots = tuple(np.sqrt(np.maximum(part + kernel.offset, 0.0)) for part in squares)
    sign, weight = np.zeros(strand.rows.size), np.zeros(strand.rows.size)
    sign[problem.qp.point] = problem.qp.c
    weight[problem.qp.point] = problem.qp.upper - problem.qp.lower
    return Geometry((roots[0], roots[1]), problem.qp.equality, sign, weight)


def _squares(kernel: Any, X: Any) -> FloatArray:
    """k(x, x) of every row, without the offset."""
    if kernel.kind in (KernelKind.RBF, KernelKind.LAPLACIAN):
        return np.ones(X.shape[0])
    square = row_sums(X.indptr, X.data**2) if is_sparse(X) else (X * X).sum(axis=1)
    if kernel.kind == KernelKind.LINEAR:
        return np.asarray(square)
    return np.asarray((kernel.gamma * square + kernel.coef0) ** kernel.degree)


def _inside(fits: list[Fit], which: int, roots: FloatArray, low: float, high: float) -> tuple[FloatArray, FloatArray]:
    """Bounds of w'x for every C of a range. In C a ball's bounds are concave and convex, so both are attained at the ends."""
    least, most = np.full(roots.size, -np.inf), np.full(roots.size, np.inf)
    for fit in fits:
        z = fit.test if which else fit.train
        bounds = []
        for share in (low / fit.C, high / fit.C):
            radius = 0.5 * abs(1.0 - share) * (fit.norm + fit.slack) + 0.5 * (1.0 + share) * fit.slack
            centre = 0.5 * (1.0 + share) * z
            bounds.append((centre - radius * roots, centre + radius * roots))
        least = np.maximum(least, np.minimum(bounds[0][0], bounds[1][0]))
        most = np.minimum(most, np.maximum(bounds[0][1], bounds[1][1]))
    room = _ROUNDING * (1.0 + np.abs(least) + np.abs(most))
    return least - room, most + room


def _quantile(values: FloatArray, weight: FloatArray, level: float, upper: bool) -> float:
    """The least, or the largest, minimiser of sum weight max(0, ...) over the intercept: where the weight reaches `level`."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weight[order])
    room = _REACHED * reached[-1]
    k = int(np.searchsorted(reached, level + room, side="right") if upper else np.searchsorted(reached, level - room))
    return float(values[order[min(k, order.size - 1)]])


class Band(NamedTuple):
    """Bounds of the score of every fold over C, the score at the fits, and where these are."""

    lower: list[StepCurve]
    upper: list[StepCurve]
    scores: list[StepCurve]
    supports: list[StepCurve]
    Cs: FloatArray
    members: list[FitMember]


def span_of(study: Study) -> tuple[float, float]:
    """The range of C."""
    high = 1.0 / study.span.low
    return (high * 10.0**-_DECADES if study.span.high is None else 1.0 / study.span.high), high


class Costs(NamedTuple):
    """Bounds of the score of a fold: at fits, and in the cells between neighbours."""

    points: dict[float, tuple[float, float]]
    cells: dict[tuple[float, float], list[tuple[float, float]]]


class Step(NamedTuple):
    """What a fold does next: fits at these values of C, and then cells between these neighbours."""

    wanted: list[float]
    between: list[tuple[float, float]]


def band_of(
    study: Study, score: Score, gamma: Any, folds: list[Fold], eps: float, progress: SharedProgress, n_jobs: Any
) -> tuple[Band | None, bool]:
    """Fits until no C can be better by more than eps; and whether that was reached."""
    low, high = span_of(study)
    members = [_member(study, gamma, fold) for fold in folds]
    wanted = np.geomspace(low, high, 2 + int(np.log(high / low) / np.log(_START)))
    known = [Costs({}, {}) for _ in members]
    Cs = np.empty(0)
    complete = False
    while wanted.size:
        every = np.union1d(Cs, wanted)
        between = [pair for pair in pairwise(every.tolist()) if pair not in known[0].cells]
        step = Step(wanted.tolist(), between)
        number = progress.more(len(members) * wanted.size)
        tasks = [(study, score, member, step, progress, number + k * wanted.size) for k, member in enumerate(members)]
        numbers = [list(range(task[-1], task[-1] + wanted.size)) for task in tasks]
        found = progress.gathered(_advance, tasks, n_jobs, numbers)
        there = [k for k, each in enumerate(found) if each is not None]
        if len(there) < len(found):
            if Cs.size or not there:
                break  # and what was known before holds
            found, members = [found[k] for k in there], [members[k] for k in there]  # complete folds
            known = known[: len(there)]
        for k, each in enumerate(found):
            assert each is not None
            members[k] = each[0]
            known[k].points.update(each[1].points)
            known[k].cells.update(each[1].cells)
        Cs = every
        wanted, complete = _next(Cs, known, eps)
        if len(known) < len(folds):
            return _assembled(score, study, members, Cs, known), False
    return (_assembled(score, study, members, Cs, known) if Cs.size else None), complete


def _member(study: Study, gamma: Any, fold: Fold) -> FitMember:
    parts = study.division.parts
    rows = [fold.train[part.holds(study.codes[fold.train])] for part in parts]
    return FitMember(*fold, tuple(FitStrand(gamma, part, own) for part, own in zip(parts, rows, strict=True)))


def _advance(
    study: Study, score: Score, member: FitMember, step: Step, progress: SharedProgress, number: int
) -> tuple[FitMember, Costs] | None:
    """A fold's next step; None when it was ended before."""
    fold = Fold(member.train, member.test)
    for k, C in enumerate(step.wanted):
        if progress.at(number + k, 0.0):
            return None
        for strand in member.strands:
            strand.add(study, fold, C)
        progress.finish(number + k)
    points = {C: _costs(score, study, member, (C,), C, C) for C in step.wanted}
    cells = {}
    for a, b in step.between:
        if progress.ended():
            return None
        edges = _edges(a, b)
        cells[a, b] = [
            _costs(score, study, member, (a, b), low, high)
            for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        ]
    return member, Costs(points, cells)


def _edges(a: float, b: float) -> FloatArray:
    edges = np.geomspace(a, b, _CELLS + 1)
    edges[0], edges[-1] = a, b
    return edges


def _next(Cs: FloatArray, known: list[Costs], eps: float) -> tuple[FloatArray, bool]:
    """Where to fit next; and whether no C can be better by more than eps."""
    ends = {C: float(np.mean([costs.points[C][0] for costs in known])) for C in Cs.tolist()}
    best = min(float(np.mean([costs.points[C][1] for costs in known])) for C in Cs.tolist())
    wanted, complete = [], True
    for a, b in pairwise(Cs.tolist()):
        least = np.mean([[low for low, _ in costs.cells[a, b]] for costs in known], axis=0)
        bound = float(least.min())
        if bound >= best - eps:
            continue
        complete = False
        # A fit in between helps only where the bounds at the fits themselves are tighter: an intercept may not be unique.
        if bound < min(ends[a], ends[b]) - SAME and b > a * _NARROW:
            wanted.append(np.sqrt(a * b))
    return np.array(wanted), complete


def _costs(
    score: Score, study: Study, member: FitMember, at: tuple[float, ...], low: float, high: float
) -> tuple[float, float]:
    """Bounds of a fold's score for every C of a range, by the fits at some C."""
    ends = [strand.bounds(at, low, high) for strand in member.strands]
    least, most = (np.stack([end[side] for end in ends], axis=1) for side in (0, 1))
    return score.bounds(study.division.possible(least, most), study.codes, member.test)


def _assembled(score: Score, study: Study, members: list[FitMember], Cs: FloatArray, known: list[Costs]) -> Band:
    pairs = list(pairwise(Cs.tolist()))
    edges = np.concatenate([_edges(a, b)[1:] for a, b in pairs])[:-1]
    ends = float(Cs[0]), float(Cs[-1])
    between = np.sqrt(Cs[:-1] * Cs[1:])
    lower, upper, scores, supports = [], [], [], []
    for member, costs in zip(members, known, strict=True):
        cells = np.array([cell for pair in pairs for cell in costs.cells[pair]])
        lower.append(merged(edges, cells[:, 0], *ends))
        upper.append(merged(edges, cells[:, 1], *ends))
        found, count = [], []
        for C in Cs.tolist():
            fits = [strand.fits[C] for strand in member.strands]
            values = np.stack([fit.test + fit.intercept for fit in fits], axis=1)
            found.append(score.bounds(study.division.possible(values, values), study.codes, member.test)[0])
            used = [strand.rows[fit.alpha > 0.0] for strand, fit in zip(member.strands, fits, strict=True)]
            count.append(float(np.unique(np.concatenate(used)).size))
        scores.append(merged(between, np.array(found), *ends))
        supports.append(merged(between, np.array(count), *ends))
    return Band(lower, upper, scores, supports, Cs, members)


__all__ = ["Band", "FitMember", "FitStrand", "band_of", "check_kernel"]
