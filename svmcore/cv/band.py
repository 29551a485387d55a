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
from svmcore._types import FloatArray, IntArray
from svmcore.cv.folds import Fold
from svmcore.cv.members import Study
from svmcore.cv.progress import SharedProgress
from svmcore.cv.result import SAME
from svmcore.cv.scores import Score
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.table import is_positive
from svmcore.models.step_curve import StepCurve, merged
from svmcore.problem.division import Sides
from svmcore.train.functions import train_svc

_DECADES = 6.0  # if the smallest C is not given, it lies so many decades below the largest one
_START = 10.0**0.5  # the ratio of C between two of the first fits
_CELLS = 8  # there are so many cells between two fits
_TOL = 1e-6  # the tolerance of a fit for (primal - dual) / (|primal| + 1)
_NARROW = 1.0 + 1e-6  # neighbours that are nearer are not parted again
_ROUNDING = 1e-11  # relative rounding of an objective, and of a decision value, by which bounds are widened
_REACHED = 1e-12  # share of the whole weight by which rounding may miss the level of a quantile

Pair = tuple[float, float]
Cells = dict[Pair, FloatArray]
"""Bounds of a fold's score, rows (lower, upper), in the cells between two fits; between a fit and itself there is one."""


class Fit(NamedTuple):
    """A machine at one C: w'x of its training and validation rows, |w|, how far it may be from the optimum, its alphas."""

    C: float
    values: tuple[FloatArray, FloatArray]
    norm: float
    slack: float
    intercept: float
    alpha: FloatArray


class FitStrand:
    """One machine of a fold at the values of C that were tried; `alphas` are its dual variables there."""

    def __init__(self, gamma: Any, part: Sides, rows: IntArray, alphas: dict[float, FloatArray] | None = None) -> None:
        self.gamma, self.part, self.rows = gamma, part, rows
        self.alphas = {} if alphas is None else alphas
        self.fits: dict[float, Fit] = {}

    def machine(self, study: Study, fold: Fold, C: float) -> tuple[Any, Any, Any]:
        """The machine at C, from the nearest one known, and the training and validation rows as it takes them."""
        near = min(self.alphas, key=lambda other: abs(np.log(other / C)), default=None)
        problem = study.problem(self.gamma, fold.train, self.part)
        weight = np.zeros(self.rows.size)
        weight[problem.qp.point] = problem.qp.upper - problem.qp.lower
        form = {**study.form, "standardize": False} | ({} if self.gamma is None else {"gamma": self.gamma})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # its gap is in the band
            found = train_svc(
                problem.X, self.part.positive(study.codes[self.rows]), C, tol=_TOL, stopping="gap", sample_weight=weight,
                alpha0=None if near is None else self.alphas[near] * (C / near), **form,
            )  # fmt: skip
        self.weight, self.equality = weight, problem.qp.equality
        if study.precomputed:
            return found, problem.X, study.X[np.ix_(fold.test, self.rows)]
        return found, problem.X, problem.columns.apply(study.X[fold.test])

    def add(self, study: Study, fold: Fold, C: float) -> None:
        """Fit at C."""
        machine, X, new = self.machine(study, fold, C * study.ratio(fold.train))
        if not self.fits:
            squares = [np.diag(study.X)[rows] for rows in (self.rows, fold.test)] if study.precomputed else [
                KernelMatrix(part, machine.kernel._replace(offset=0.0), cache_bytes=0).diagonal for part in (X, new)
            ]  # fmt: skip
            self.roots = [np.sqrt(np.maximum(square + machine.kernel.offset, 0.0)) for square in squares]
        bias = machine.intercept if self.equality else 0.0
        values = machine.decision_function(X) - bias, machine.decision_function(new) - bias
        norm = float(np.sqrt(max(float(machine.dual_coef @ values[0][machine.support]), 0.0)))
        gap = max(machine.gap, 0.0) + _ROUNDING * abs(machine.primal_objective)
        self.fits[C] = Fit(C, values, norm, float(np.sqrt(2.0 * gap)), bias, machine.alpha)
        self.alphas[C * study.ratio(fold.train)] = machine.alpha

    def bounds(self, study: Study, at: Pair, low: float, high: float) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of f(x) of the validation rows for every C from `low` to `high`, by the fits at two C."""
        fits = [self.fits[C] for C in set(at)]
        (train, test) = (_inside(fits, which, self.roots[which], low, high) for which in (0, 1))
        if not self.equality:
            return test
        real = self.weight > 0.0
        positive = self.part.positive(study.codes[self.rows])[real]
        y, weight = np.where(positive, 1.0, -1.0), self.weight[real]
        level = float(weight[positive].sum())
        least = _quantile(y - train[1][real], weight, level, upper=False)
        return test[0] + least, test[1] + _quantile(y - train[0][real], weight, level, upper=True)


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
    if not (is_positive(spec.kernel) or study.precomputed):
        raise InputError(
            f"eps= needs a positive semi-definite kernel whose k(x, x) is known, and kernel={spec.name!r} may be none; leave "
            "eps out"
        )


def _inside(fits: list[Fit], which: int, roots: FloatArray, low: float, high: float) -> tuple[FloatArray, FloatArray]:
    """Bounds of w'x for every C of a range. In C a ball's bounds are concave and convex, so both are attained at the ends."""
    least, most = np.full(roots.size, -np.inf), np.full(roots.size, np.inf)
    for fit in fits:
        share = np.array([[low / fit.C], [high / fit.C]])
        radius = 0.5 * np.abs(1.0 - share) * (fit.norm + fit.slack) + 0.5 * (1.0 + share) * fit.slack
        centre = 0.5 * (1.0 + share) * fit.values[which]
        least = np.maximum(least, (centre - radius * roots).min(axis=0))
        most = np.minimum(most, (centre + radius * roots).max(axis=0))
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


def band_of(
    study: Study, score: Score, gamma: Any, folds: list[Fold], eps: float, progress: SharedProgress, n_jobs: Any
) -> tuple[Band | None, bool]:
    """Fits until no C can be better by more than eps; and whether that was reached."""
    high = 1.0 / study.span.low
    low = high * 10.0**-_DECADES if study.span.high is None else 1.0 / study.span.high
    members, known, complete = [_member(study, gamma, fold) for fold in folds], [Cells() for _ in folds], False
    Cs, wanted = np.empty(0), np.geomspace(low, high, 2 + int(np.log(high / low) / np.log(_START)))
    while wanted.size:
        every = np.union1d(Cs, wanted)
        pairs = [
            pair for pair in [*zip(wanted, wanted, strict=True), *pairwise(every.tolist())] if pair not in known[0]
        ]
        number = progress.more(len(members) * wanted.size)
        numbers = [list(range(number + k * wanted.size, number + (k + 1) * wanted.size)) for k in range(len(members))]
        tasks = [(study, score, *both, pairs, progress) for both in zip(members, numbers, strict=True)]
        found = progress.gathered(_advance, tasks, n_jobs, numbers)
        there = [k for k, each in enumerate(found) if each is not None]
        if len(there) < len(folds) and (Cs.size or not there):
            break  # and what was known before holds
        members = [found[k][0] for k in there]  # type: ignore[index]
        known = [known[k] | found[k][1] for k in there]  # type: ignore[index]
        Cs = every
        if len(there) < len(folds):  # complete folds
            break
        wanted, complete = _next(Cs, known, eps)
    return (_assembled(score, study, members, Cs, known) if Cs.size else None), complete


def _member(study: Study, gamma: Any, fold: Fold) -> FitMember:
    parts = study.division.parts
    return FitMember(*fold, tuple(FitStrand(gamma, p, fold.train[p.holds(study.codes[fold.train])]) for p in parts))


def _advance(
    study: Study, score: Score, member: FitMember, numbers: list[int], pairs: list[Pair], progress: SharedProgress
) -> tuple[FitMember, Cells] | None:
    """A fold's next step: fits where a pair is one C twice, and the cells of all pairs. None when it was ended before."""
    for number, (C, _) in zip(numbers, pairs, strict=False):
        if progress.at(number, 0.0):
            return None
        for strand in member.strands:
            strand.add(study, Fold(member.train, member.test), C)
        progress.finish(number)
    cells = {}
    for pair in pairs:
        if progress.ended():
            return None
        cells[pair] = np.array([_costs(score, study, member, pair, *ends) for ends in pairwise(_edges(*pair))])
    return member, cells


def _edges(a: float, b: float) -> list[float]:
    return [a, *np.geomspace(a, b, _CELLS + 1)[1:-1].tolist(), b] if a < b else [a, b]


def _next(Cs: FloatArray, known: list[Cells], eps: float) -> tuple[FloatArray, bool]:
    """Where to fit next; and whether no C can be better by more than eps."""
    ends = {C: np.mean([cells[C, C][0] for cells in known], axis=0) for C in Cs.tolist()}
    best, wanted, complete = min(most for _, most in ends.values()), [], True
    for a, b in pairwise(Cs.tolist()):
        bound = float(np.mean([cells[a, b][:, 0] for cells in known], axis=0).min())
        if bound >= best - eps:
            continue
        complete = False
        # A fit in between helps only where the bounds at the fits themselves are tighter: an intercept may not be unique.
        if bound < min(ends[a][0], ends[b][0]) - SAME and b > a * _NARROW:
            wanted.append(np.sqrt(a * b))
    return np.array(wanted), complete


def _costs(score: Score, study: Study, member: FitMember, at: Pair, low: float, high: float) -> Pair:
    """Bounds of a fold's score for every C of a range, by the fits at two C."""
    ends = [strand.bounds(study, at, low, high) for strand in member.strands]
    least, most = (np.stack([end[side] for end in ends], axis=1) for side in (0, 1))
    return score.bounds(study.division.possible(least, most), study.codes, member.test)


def _assembled(score: Score, study: Study, members: list[FitMember], Cs: FloatArray, known: list[Cells]) -> Band:
    pairs, ends, between = list(pairwise(Cs.tolist())), (float(Cs[0]), float(Cs[-1])), np.sqrt(Cs[:-1] * Cs[1:])
    edges = np.array([edge for pair in pairs for edge in _edges(*pair)[1:]][:-1])
    band = Band([], [], [], [], Cs, members)
    for member, cells in zip(members, known, strict=True):
        bounds = np.concatenate([cells[pair] for pair in pairs])
        found, count = [], []
        for C in Cs.tolist():
            fits = [strand.fits[C] for strand in member.strands]
            values = np.stack([fit.values[1] + fit.intercept for fit in fits], axis=1)
            found.append(score.bounds(study.division.possible(values, values), study.codes, member.test)[0])
            used = [strand.rows[fit.alpha > 0.0] for strand, fit in zip(member.strands, fits, strict=True)]
            count.append(float(np.unique(np.concatenate(used)).size))
        curves = ((edges, bounds[:, 0]), (edges, bounds[:, 1]), (between, np.array(found)), (between, np.array(count)))
        for side, curve in zip(band[:4], curves, strict=True):
            side.append(merged(*curve, *ends))
    return band
