"""Probabilities from decision values: Platt's sigmoid, isotonic regression, and Venn-Abers with its intervals.

A calibrator learns from out-of-fold scores, which a cross-validation has already, and needs no further fit. Its probability
is that of the second class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray
from svmcore.base.door import reals
from svmcore.base.threads import one_blas_thread
from svmcore.models.sigmoid import PlattSigmoid, logistic
from svmcore.problem import border

METHODS = ("sigmoid", "isotonic", "venn-abers")
_NEWTON_STEPS = 100
_GRADIENT = 1e-13  # relative to the number of rows
_RIDGE = 1e-12  # added to the diagonal of the Hessian: where classes are separated it would be singular
_SHORTEST = 1e-10  # share of Newton's step below which no shorter one is tried
_LEAST = 1e-12  # probability of a class against the rest
_CERTAIN = 1e-15  # a probability counts as at least this much in a log loss, which would be infinite otherwise
_SUFFICIENT = 1e-4  # a step must reach this share of the decrease that the gradient promises
_ROUNDING = 1e-15  # relative rounding of the likelihood, below which it cannot tell whether a step is one down

_ONE_CLASS = "the out-of-fold scores are of one class only; calibration needs both"
_TIED = 1e-9  # share of the largest score by which two scores that are one may differ


# ---- from scores to probabilities ------------------------------------------------------------------------------------


def fit_sigmoids(scores: FloatArray, positive: NDArray[np.bool_], weight: FloatArray, noise: float = 0.0) -> FloatArray:
    """Platt's fits to the scores of machines (rows): maximum likelihood by Newton's method, for targets a little inside of 0
    and 1 (Lin, Lin and Weng 2007). Returns rows a and b. What has no weight does not count.

    Scores that are spread by no more than `noise` say nothing: then a is 0.
    """
    n_plus, n_all = (weight * positive).sum(axis=1), weight.sum(axis=1)
    n_minus = n_all - n_plus
    target = np.where(positive, ((n_plus + 1.0) / (n_plus + 2.0))[:, None], (1.0 / (n_minus + 2.0))[:, None])
    centre = (weight * scores).sum(axis=1) / n_all
    away = np.where(weight > 0.0, scores - centre[:, None], 0.0)
    spread = np.sqrt((weight * away * away).sum(axis=1) / n_all)
    away[spread <= noise], spread[spread <= noise] = 0.0, 1.0
    z, rest = away / spread[:, None], 1.0 - target  # of size 1, so that the two parameters are alike

    def loss(at: FloatArray) -> FloatArray:
        t = at[0][:, None] * z + at[1][:, None]
        above = np.maximum(t, 0.0) + np.log1p(np.exp(-np.abs(t)))
        return np.asarray((weight * (above - rest * t)).sum(axis=1))

    at = np.array([np.zeros_like(centre), np.log((n_minus + 1.0) / (n_plus + 1.0))])
    value, moves = loss(at), np.ones(centre.size, dtype=np.bool_)
    for _ in range(_NEWTON_STEPS):
        p = logistic(-(at[0][:, None] * z + at[1][:, None]))
        slope, curvature = weight * (target - p), weight * p * (1.0 - p)
        gradient = np.array([(slope * z).sum(axis=1), slope.sum(axis=1)])
        bend, mixed = curvature * z, (curvature * z).sum(axis=1)
        H = np.array([(bend * z).sum(axis=1) + _RIDGE, curvature.sum(axis=1) + _RIDGE])
        size = H[0] * H[1] - mixed * mixed
        moves &= (np.abs(gradient).max(axis=0) > _GRADIENT * n_all) & (size > 0.0)
        if not moves.any():
            break
        turned = np.array([mixed * gradient[1] - H[1] * gradient[0], mixed * gradient[0] - H[0] * gradient[1]])
        step = np.where(moves, turned / np.where(moves, size, 1.0), 0.0)
        gain = _SUFFICIENT * (gradient * step).sum(axis=0)
        share = np.ones(centre.size)
        while True:
            trial = loss(at + share * step)
            late = moves & ~(trial <= value + share * gain + _ROUNDING * np.abs(value))
            moves &= share > _SHORTEST
            if not (late & moves).any():
                break
            share[late] *= 0.5
        at, value = np.where(moves, at + share * step, at), np.where(moves, trial, value)
    return np.array([at[0] / spread, at[1] - at[0] * centre / spread])


class Isotonic(NamedTuple):
    """A non-decreasing function: linear between the scores `x`, where it is `p`, and constant beyond."""

    x: FloatArray
    p: FloatArray

    def probability(self, scores: FloatArray) -> FloatArray:
        """The probability of the second class."""
        return np.asarray(np.interp(scores, self.x, self.p))


def pooled(values: FloatArray, weight: FloatArray) -> FloatArray:
    """The nearest non-decreasing sequence, by pooling adjacent violators."""
    mean: list[float] = []
    mass: list[float] = []
    size: list[int] = []
    for value, w in zip(values.tolist(), weight.tolist(), strict=True):
        mean.append(value)
        mass.append(w)
        size.append(1)
        while len(mean) > 1 and mean[-2] >= mean[-1]:
            v, m, k = mean.pop(), mass.pop(), size.pop()
            mean[-1] = (mean[-1] * mass[-1] + v * m) / (mass[-1] + m)
            mass[-1] += m
            size[-1] += k
    return np.repeat(mean, size)


def _by_score(
    scores: FloatArray, positive: NDArray[np.bool_], weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Distinct scores, increasing, the share of the second class at each, and its weight.

    Rows that are alike, and other ties, have scores that rounding may have parted. They are one score here.
    """
    order = np.argsort(scores, kind="stable")
    rising = scores[order]
    first = np.diff(rising, prepend=-np.inf) > _tie(rising)
    place = np.empty(scores.size, np.int64)
    place[order] = np.cumsum(first) - 1
    mass = np.bincount(place, weights=weight).astype(np.float64)
    return rising[first], np.bincount(place, weights=weight * positive) / mass, mass


def _tie(x: FloatArray) -> float:
    """How far apart two scores may be that are one."""
    return _TIED * float(np.abs(x).max(initial=0.0))


def fit_isotonic(scores: FloatArray, positive: NDArray[np.bool_], weight: FloatArray) -> Isotonic:
    """Isotonic regression of the labels on the scores."""
    x, share, mass = _by_score(scores, positive, weight)
    p = pooled(share, mass)
    keep = np.ones(x.size, dtype=bool)
    keep[1:-1] = (p[1:-1] != p[:-2]) | (p[1:-1] != p[2:])  # the ends of every plateau say all
    return Isotonic(x[keep], p[keep])


class VennAbers(NamedTuple):
    """The inductive Venn-Abers predictor: p0 and p1 at and between the scores `x` of the calibration rows.

    `low[k]` is p0 for a new score from x[k - 1] on and below x[k], `high[k]` is p1 for one above x[k - 1] and up to x[k].
    """

    x: FloatArray
    low: FloatArray
    high: FloatArray

    def interval(self, scores: FloatArray) -> FloatArray:
        """Columns p0 and p1: the isotonic probability if the new row's label is 0, and if it is 1."""
        tie = _tie(self.x)
        p0 = self.low[np.searchsorted(self.x, scores + tie, side="right")]
        p1 = self.high[np.searchsorted(self.x, scores - tie, side="left")]
        return np.stack([p0, p1], axis=1)

    def probability(self, scores: FloatArray) -> FloatArray:
        """p1 / (1 - p0 + p1), which has the least regret in log loss."""
        p0, p1 = self.interval(scores).T
        return np.asarray(p1 / (1.0 - p0 + p1))


def fit_venn_abers(scores: FloatArray, positive: NDArray[np.bool_], weight: FloatArray) -> VennAbers:
    """Two isotonic regressions for every place that a new score can have, all from two hulls (Vovk, Petej, Fedorova 2015)."""
    x, share, mass = _by_score(scores, positive, weight)
    mass = mass * (scores.size / weight.sum())  # a new row weighs as much as a row on average
    high = _with_one(share, mass)
    low = 1.0 - _with_one(1.0 - share[::-1], mass[::-1])[::-1]
    return VennAbers(x, low, high)


def _with_one(share: FloatArray, mass: FloatArray) -> FloatArray:
    """The isotonic value of a new row with label 1 and weight 1, placed before row k (the last entry: after all rows).

    In the diagram of cumulated weights and labels the isotonic value is a slope of the greatest convex minorant. The new row
    shifts what is right of it by (1, 1), and its slope is max over i left min over j right of the slope from i to j, where
    only the corners of the two hulls matter.
    """
    W = np.concatenate([[0.0], np.cumsum(mass)])
    S = np.concatenate([[0.0], np.cumsum(mass * share)])
    n = W.size
    right: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)] * n
    hull: list[int] = []
    for k in range(n - 1, -1, -1):
        _push(hull, k, W, S, -1.0)
        right[k] = np.array(hull)
    out = np.empty(n)
    hull = []
    for k in range(n):
        _push(hull, k, W, S, 1.0)
        i, j = np.array(hull), right[k]
        slope = (S[j] + 1.0 - S[i][:, None]) / (W[j] + 1.0 - W[i][:, None])
        out[k] = slope.min(axis=1).max()
    return np.clip(out, 0.0, 1.0)


def _push(hull: list[int], k: int, W: FloatArray, S: FloatArray, side: float) -> None:
    """Add a point to a lower hull; `side` is 1 when points come from the left, -1 from the right."""
    while len(hull) > 1:
        a, b = hull[-2], hull[-1]
        if side * ((W[b] - W[a]) * (S[k] - S[a]) - (S[b] - S[a]) * (W[k] - W[a])) > 0.0:
            break
        hull.pop()
    hull.append(k)


# ---- the calibrator --------------------------------------------------------------------------------------------------


class Calibrating:
    """What calibrators of two and of several classes share."""

    machine: Any
    classes: NDArray[Any]
    weight: FloatArray

    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities of all classes for every row of X, shape (m, k)."""
        return self.from_scores(self.machine.decision_function(X))

    def from_scores(self, scores: Any) -> FloatArray:
        """The same for decision values."""
        raise NotImplementedError

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of every row; it may differ from that of the machine."""
        return np.asarray(self.classes[np.argmax(self.predict_proba(X), axis=1)])

    def _loss(self, learned: FloatArray, codes: IntArray) -> float:
        """Mean of -log p(label)."""
        own = np.take_along_axis(learned, codes[:, None], axis=1)[:, 0]
        return float(np.average(-np.log(np.maximum(own, _CERTAIN)), weights=self.weight))


@dataclass(frozen=True, eq=False, repr=False)
class Calibrator(Calibrating):
    """Probabilities of both classes, learned from out-of-fold scores. Made by `PathCV.calibrate`.

    Attributes
    ----------
    method : "sigmoid", "isotonic" or "venn-abers".
    machine : the machine of all rows whose decision values become probabilities.
    classes : the two labels; columns of `predict_proba` are in their order.
    scores, positive, weight : what it learned from: out-of-fold decision values, whether a row is of the second class, and
        its weight.
    """

    method: str
    machine: Any
    classes: NDArray[Any]
    model: PlattSigmoid | Isotonic | VennAbers
    scores: FloatArray
    positive: NDArray[np.bool_]
    weight: FloatArray

    def plain(self) -> dict[str, Any]:
        """All but the machine as arrays, numbers and strings."""
        return {
            "method": self.method, "classes": self.classes, "model": list(self.model), "scores": self.scores,
            "positive": self.positive, "weight": self.weight,
        }  # fmt: skip

    @classmethod
    def from_plain(cls, state: dict[str, Any], machine: Any) -> Calibrator:
        """What `plain` wrote."""
        kinds: dict[str, Any] = {"sigmoid": PlattSigmoid, "isotonic": Isotonic, "venn-abers": VennAbers}
        return cls(**state | {"machine": machine, "model": kinds[state["method"]](*state["model"])})

    def __repr__(self) -> str:
        return (
            f"<Calibrator: {self.method}, from {self.scores.size} out-of-fold scores, log loss {self.log_loss:.4g}, "
            f"Brier score {self.brier:.4g} on them>"
        )

    def from_scores(self, scores: Any) -> FloatArray:
        """The same for decision values."""
        p = self.model.probability(reals(scores, "scores"))
        return np.stack([1.0 - p, p], axis=1)

    def intervals(self, X: Any) -> FloatArray:
        """Venn-Abers: the columns (p0, p1) between which the probability of the second class lies, one row for each of X."""
        return self.intervals_from(self.machine.decision_function(X))

    def intervals_from(self, scores: FloatArray) -> FloatArray:
        """The same for decision values."""
        if not isinstance(self.model, VennAbers):
            raise InputError(f'method={self.method!r} has no intervals; calibrate with method="venn-abers"')
        return self.model.interval(scores)

    @property
    def log_loss(self) -> float:
        """Mean of -log p(label) on the scores it learned from."""
        return self._loss(self.from_scores(self.scores), self.positive.astype(np.int64))

    @property
    def brier(self) -> float:
        """Mean squared error of the probability on the scores it learned from."""
        return float(np.average((self.model.probability(self.scores) - self.positive) ** 2, weights=self.weight))

    def plot(self, ax: Any = None) -> Any:
        """Draw the probability over the decision value, and the shares observed in bins. Needs matplotlib."""
        from svmcore.plots.cv import plot_calibration

        return plot_calibration(self, ax)


def calibrator(
    method: Any,
    machine: Any,
    classes: NDArray[Any],
    scores: FloatArray,
    positive: NDArray[np.bool_],
    weight: FloatArray,
) -> Calibrator:
    """Learn from scores; rows without a score or a weight are left out."""
    there = np.isfinite(scores) & (weight > 0.0)
    scores, positive, weight = scores[there], positive[there], weight[there]
    if not (positive.any() and not positive.all()):
        raise InputError(_ONE_CLASS)
    (model,) = models_of(method, scores[None], positive[None], weight)
    return Calibrator(method, machine, classes, model, scores, positive, weight)


@one_blas_thread
def models_of(method: Any, scores: FloatArray, positive: NDArray[np.bool_], weight: FloatArray) -> list[Any]:
    """A model for each row of scores."""
    if border.choice("method", method, METHODS) == "sigmoid":
        found = fit_sigmoids(scores, positive, np.broadcast_to(weight, scores.shape))
        return [PlattSigmoid(float(a), float(b)) for a, b in found.T]
    fit = fit_isotonic if method == "isotonic" else fit_venn_abers
    return [fit(own, mine, weight) for own, mine in zip(scores, positive, strict=True)]


# ---- several classes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class ClassCalibrator(Calibrating):
    """Probabilities of several classes: each class against the rest, then all divided by their sum.

    Attributes
    ----------
    method : "sigmoid", "isotonic" or "venn-abers".
    machine : the `Machines` of all rows.
    classes : the labels; columns of `predict_proba` are in their order.
    parts : a `Calibrator` for each class, whose second class it is.
    codes, weight : of the rows it learned from, the class as a place in `classes`, and the weight.
    """

    method: str
    machine: Any
    classes: NDArray[Any]
    parts: tuple[Calibrator, ...]
    codes: IntArray
    weight: FloatArray

    def plain(self) -> dict[str, Any]:
        """As `Calibrator.plain`."""
        parts = [part.plain() for part in self.parts]
        return {
            "method": self.method,
            "classes": self.classes,
            "parts": parts,
            "codes": self.codes,
            "weight": self.weight,
        }

    @classmethod
    def from_plain(cls, state: dict[str, Any], machine: Any) -> ClassCalibrator:
        """What `plain` wrote."""
        parts = tuple(Calibrator.from_plain(part, machine) for part in state["parts"])
        return cls(**state | {"machine": machine, "parts": parts})

    def __repr__(self) -> str:
        return (
            f"<ClassCalibrator: {self.method}, {self.classes.size} classes, from {self.codes.size} out-of-fold scores, "
            f"log loss {self.log_loss:.4g}, Brier score {self.brier:.4g} on them>"
        )

    def from_scores(self, scores: Any) -> FloatArray:
        """The same for the scores of `Machines.decision_function`."""
        scores = reals(scores, "scores")
        each = [part.model.probability(scores[:, k]) for k, part in enumerate(self.parts)]
        p = np.maximum(np.stack(each, axis=1), _LEAST)  # where no class is likely all are alike
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def intervals(self, X: Any) -> FloatArray:
        """Venn-Abers: (p0, p1) of every class against the rest, for every row of X: shape (m, k, 2)."""
        scores = self.machine.decision_function(X)
        return np.stack([part.intervals_from(scores[:, k]) for k, part in enumerate(self.parts)], axis=1)

    @property
    def _learned(self) -> FloatArray:
        return self.from_scores(np.stack([part.scores for part in self.parts], axis=1))

    @property
    def log_loss(self) -> float:
        """Mean of -log p(label) on the scores it learned from."""
        return self._loss(self._learned, self.codes)

    @property
    def brier(self) -> float:
        """Mean, over the rows it learned from, of the sum over the classes of the squared error of the probability."""
        off = self._learned - np.eye(self.classes.size)[self.codes]
        return float(np.average((off**2).sum(axis=1), weights=self.weight))

    def plot(self, ax: Any = None, *, label: Any = None) -> Any:
        """Draw the probability of one class against the rest (default: the first). Needs matplotlib."""
        known = self.classes.tolist()
        if label is not None and label not in known:
            raise InputError(f"label={label!r} is no class; choose one of {', '.join(map(repr, known))}")
        return self.parts[0 if label is None else known.index(label)].plot(ax)


def class_calibrator(
    method: Any, machine: Any, classes: NDArray[Any], scores: FloatArray, codes: IntArray, weight: FloatArray
) -> ClassCalibrator:
    """Learn from scores, a column for each class; rows without a score or a weight are left out."""
    there = np.isfinite(scores).all(axis=1) & (weight > 0.0)
    scores, codes, weight = scores[there], codes[there], weight[there]
    rest = "other" if classes.dtype.kind in "US" else -1
    positive = codes == np.arange(classes.size)[:, None]
    if not (positive.any(axis=1) & ~positive.all(axis=1)).all():
        raise InputError(_ONE_CLASS)
    models = models_of(method, scores.T, positive, weight)
    parts = [
        Calibrator(method, machine, np.array([rest, label]), models[k], scores[:, k], positive[k], weight)
        for k, label in enumerate(classes.tolist())
    ]
    return ClassCalibrator(method, machine, classes, tuple(parts), codes, weight)
