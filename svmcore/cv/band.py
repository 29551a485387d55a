"""A certified band where the exact path is too dear: fits at some values of C, and what they say about all others.

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
from svmcore._types import FloatArray, KernelKind
from svmcore.cv.folds import Fold
from svmcore.cv.members import Study, features_of
from svmcore.cv.progress import Progress
from svmcore.cv.result import SAME
from svmcore.cv.scores import Score
from svmcore.kernel.matrix import is_sparse
from svmcore.kernel.tiles import row_sums
from svmcore.solve import train_svc
from svmcore.step_curve import StepCurve, merged

_DECADES = 6.0  # below the largest C, where the smallest is not given
_START = 10.0**0.5  # between the first fits
_CELLS = 8  # between two fits
_TOL = 1e-6  # of a fit: (primal - dual) / (|primal| + 1)
_NARROW = 1.0 + 1e-6  # neighbours that are nearer are not parted again
_ROUNDING = 1e-11
_KINDS = (KernelKind.RBF, KernelKind.LAPLACIAN, KernelKind.LINEAR, KernelKind.POLY, KernelKind.PRECOMPUTED)


class Fit(NamedTuple):
    """A machine of one fold: w'x of its training and validation rows, |w|, and how far it may be from the optimum."""

    C: float
    train: FloatArray
    test: FloatArray
    norm: float
    slack: float
    intercept: float
    alpha: FloatArray


class FitMember:
    """The machines of a fold at the values of C that were tried."""

    path = None

    def __init__(self, study: Study, gamma: Any, fold: Fold) -> None:
        self.gamma = gamma
        self.train, self.test = fold
        self.ratio = study.ratio(fold.train)
        self.fits: dict[float, Fit] = {}
        problem = study.problem(gamma, fold.train)
        kernel = problem.spec.kernel
        if kernel.kind not in _KINDS or (kernel.kind == KernelKind.POLY and kernel.coef0 < 0.0):
            raise InputError(
                f"eps= needs a positive semi-definite kernel whose k(x, x) is known, and kernel={problem.spec.name!r} may be "
                "none; leave eps out"
            )
        self.equality = problem.qp.equality
        if study.precomputed:
            square = np.diag(study.X)
            squares = square[fold.train], square[fold.test]
        else:
            apply = problem.columns.apply
            squares = _squares(kernel, problem.X), _squares(kernel, apply(study.X[fold.test]))
        self.roots = tuple(np.sqrt(np.maximum(part + kernel.offset, 0.0)) for part in squares)
        self.sign = np.zeros(fold.train.size)
        self.weight = np.zeros(fold.train.size)
        self.sign[problem.qp.point] = problem.qp.c
        self.weight[problem.qp.point] = problem.qp.upper - problem.qp.lower

    def machine(self, study: Study, C: float) -> Any:
        """The machine at C, from the nearest one known."""
        near = min(self.fits, key=lambda other: abs(np.log(other / C)), default=None)
        start = None if near is None else self.fits[near].alpha * (C / near)
        rows = self.train
        factors = study.class_weight
        form = {} if self.gamma is None else {"gamma": self.gamma}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # its gap is in the band
            return train_svc(
                features_of(study, rows), study.codes[rows], C * self.ratio, tol=_TOL, stopping="gap", alpha0=start,
                sample_weight=None if study.weights is None else study.weights[rows],
                class_weight=dict(enumerate(factors.tolist())) if isinstance(factors, np.ndarray) else factors,
                **study.form, **form,
            )  # fmt: skip

    def add(self, study: Study, C: float) -> None:
        """Fit at C."""
        machine = self.machine(study, C)
        bias = machine.intercept if self.equality else 0.0
        parts = (
            (features_of(study, self.train), study.X[np.ix_(self.test, self.train)])
            if study.precomputed
            else (study.X[self.train], study.X[self.test])
        )
        train, test = (machine.decision_function(part) - bias for part in parts)
        coef = np.zeros(self.train.size)
        coef[machine.support] = machine.dual_coef
        norm = float(np.sqrt(max(float(coef @ train), 0.0)))
        gap = max(machine.gap, 0.0) + _ROUNDING * abs(machine.primal_objective)
        self.fits[C] = Fit(C, train, test, norm, float(np.sqrt(2.0 * gap)), bias, machine.alpha)

    def values(self, study: Study, C: FloatArray) -> FloatArray:
        """Decision values of the validation rows, one row per C: each takes a fit."""
        X = study.X[np.ix_(self.test, self.train)] if study.precomputed else study.X[self.test]
        return np.stack([self.machine(study, float(value)).decision_function(X) for value in C])

    def bounds(self, fits: list[Fit], low: float, high: float) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of f(x) of the validation rows for every C from `low` to `high`."""
        train, test = (_inside(fits, which, self.roots[which], low, high) for which in (0, 1))
        if not self.equality:
            return test
        real = self.weight > 0.0
        y, weight = self.sign[real], self.weight[real]
        least = _quantile(y - train[1][real], weight, float(weight[y > 0].sum()), upper=False)
        most = _quantile(y - train[0][real], weight, float(weight[y > 0].sum()), upper=True)
        return test[0] + least, test[1] + most


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
    room = 1e-12 * reached[-1]
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


def band_of(
    study: Study, score: Score, gamma: Any, folds: list[Fold], eps: float, progress: Progress
) -> tuple[Band | None, bool]:
    """Fits until no C can be better by more than eps; and whether that was reached."""
    low, high = span_of(study)
    members = [FitMember(study, gamma, fold) for fold in folds]
    wanted = np.geomspace(low, high, 2 + int(np.log(high / low) / np.log(_START)))
    known: dict[tuple[float, float], list[tuple[FloatArray, FloatArray]]] = {}
    points: dict[float, FloatArray] = {}
    complete = False
    Cs = np.empty(0)
    while wanted.size:
        number = progress.more(len(members) * wanted.size)
        for C in wanted.tolist():
            if any(progress.at(number + k, 0.0) for k in range(len(members))):
                break
            for k, member in enumerate(members):
                member.add(study, C)
                progress.finish(number + k)
            number += len(members)
            points[C] = np.array([_costs(score, study, m, [m.fits[C]], C, C) for m in members]).T
        Cs = np.array(sorted(points))
        if Cs.size < wanted.size and progress.ended():
            return None, False
        best = min(float(upper.mean()) for _, upper in points.values())
        for a, b in pairwise(Cs.tolist()):
            if (a, b) not in known:
                known[a, b] = _cells(score, study, members, a, b)
        if progress.ended():
            break
        better = [
            (a, b, min(float(least.mean()) for least, _ in known[a, b]))
            for a, b in pairwise(Cs.tolist())
            if min(float(least.mean()) for least, _ in known[a, b]) < best - eps
        ]
        # a fit between is of use only where the bounds at the fits themselves are tighter: an intercept may not be unique
        ends = {C: float(least.mean()) for C, (least, _) in points.items()}
        parted = [(a, b) for a, b, bound in better if bound < min(ends[a], ends[b]) - SAME and b > a * _NARROW]
        wanted = np.sqrt(np.array([a * b for a, b in parted]))
        complete = not better
    return _assembled(score, study, members, Cs, known), complete


def _cells(
    score: Score, study: Study, members: list[FitMember], a: float, b: float
) -> list[tuple[FloatArray, FloatArray]]:
    """Bounds of the folds' scores in the cells between two fits."""
    edges = np.geomspace(a, b, _CELLS + 1)
    edges[0], edges[-1] = a, b
    out = []
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        pairs = np.array([_costs(score, study, m, [m.fits[a], m.fits[b]], low, high) for m in members])
        out.append((pairs[:, 0], pairs[:, 1]))
    return out


def _costs(
    score: Score, study: Study, member: FitMember, fits: list[Fit], low: float, high: float
) -> tuple[float, float]:
    """Bounds of a fold's score for every C of a range."""
    least, most = member.bounds(fits, low, high)
    return score.bounds(most > 0.0, least > 0.0, study.codes, member.test)


def _assembled(score: Score, study: Study, members: list[FitMember], Cs: FloatArray, known: dict[Any, Any]) -> Band:
    cells = [known[a, b] for a, b in pairwise(Cs.tolist())]
    edges = np.concatenate([np.geomspace(a, b, _CELLS + 1)[1:] for a, b in pairwise(Cs.tolist())])[:-1]
    ends = float(Cs[0]), float(Cs[-1])
    between = np.sqrt(Cs[:-1] * Cs[1:])
    lower, upper, scores, supports = [], [], [], []
    for k, member in enumerate(members):
        lower.append(merged(edges, np.array([cell[0][k] for each in cells for cell in each]), *ends))
        upper.append(merged(edges, np.array([cell[1][k] for each in cells for cell in each]), *ends))
        found, count = [], []
        for C in Cs.tolist():
            fit = member.fits[C]
            guess = fit.test + fit.intercept > 0.0
            found.append(score.bounds(guess, guess, study.codes, member.test)[0])
            count.append(float(np.count_nonzero(fit.alpha)))
        scores.append(merged(between, np.array(found), *ends))
        supports.append(merged(between, np.array(count), *ends))
    return Band(lower, upper, scores, supports, Cs, members)


__all__ = ["Band", "FitMember", "band_of"]
