"""The scores of the folds at one gamma over C, their mean, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from svmcore._types import FloatArray
from svmcore.cv.scores import Curve
from svmcore.models.loss_curve import LossCurve
from svmcore.models.step_curve import StepCurve, merged

SAME = 1e-12
"""Means that are nearer are one value, relative to the larger one or to 1. So are values of gamma, relative to theirs."""
_INSIDE = 1e-6  # away from a breakpoint, where a row is undecided
_CHUNK = 1 << 22  # values held at a time


class Curves:
    """What is known of one gamma: the score of every fold over C, its number of support vectors, and its machines.

    Support vectors are counted when somebody asks, or before the machines go.
    """

    def __init__(
        self,
        gamma: float | None,
        scores: list[Curve],
        members: Sequence[Any] | None,
        supports: list[StepCurve] | None = None,
    ) -> None:
        self.gamma, self.scores, self.members = gamma, scores, members
        if supports is not None:
            self.supports = supports

    @cached_property
    def supports(self) -> list[StepCurve]:
        """The number of support vectors of every fold over C."""
        return [member.support for member in self.members or ()]

    def without_machines(self) -> Curves:
        """The same without machines, which take memory."""
        return Curves(self.gamma, self.scores, None, self.supports)

    @property
    def C_range(self) -> tuple[float, float]:
        """The range of C that the folds share."""
        return max(curve.C_min for curve in self.scores), min(curve.C_max for curve in self.scores)

    @property
    def least(self) -> float:
        """The least mean score."""
        return Mean(self, self.C_range).curve.minimum


def equals_of(least: dict[float | None, float]) -> list[float | None]:
    """The gammas with the least score, increasing."""
    bound = min(least.values()) + SAME * max(abs(value) for value in least.values())
    equal = [gamma for gamma, value in least.items() if value <= bound]
    return sorted(equal, key=lambda gamma: -1.0 if gamma is None else gamma)


def best_of(least: dict[float | None, float]) -> float | None:
    """The gamma with the least score; of equals the one in the middle."""
    equal = equals_of(least)
    return equal[len(equal) // 2]


class Mean:
    """The mean of the folds' curves, and what follows from it. Everything is exact: curves are compared, not grids."""

    def __init__(self, curves: Curves, C_range: tuple[float, float]) -> None:
        self.curves = curves
        self.C_range = C_range

    def folds(self, C: FloatArray) -> FloatArray:
        """The score of every fold (rows) at C (columns)."""
        return np.stack([curve(C) for curve in self.curves.scores])

    def mean(self, C: FloatArray) -> FloatArray:
        """The mean over the folds."""
        return self._chunks(C, lambda part: self.folds(part).mean(axis=0))

    def spread(self, C: FloatArray) -> FloatArray:
        """The standard error of the mean, from the spread of the folds; NaN where there is one only."""
        k = len(self.curves.scores)
        if k == 1:
            return np.full(C.size, np.nan)
        return self._chunks(C, lambda part: self.folds(part).std(axis=0, ddof=1) / np.sqrt(k))

    def support(self, C: FloatArray) -> FloatArray:
        """The mean number of support vectors."""
        return self._chunks(C, lambda part: np.mean([curve(part) for curve in self.curves.supports], axis=0))

    def _chunks(self, C: FloatArray, function: Any) -> FloatArray:
        step = max(1, _CHUNK // len(self.curves.scores))
        return np.concatenate([function(C[k : k + step]) for k in range(0, max(1, C.size), step)])

    @cached_property
    def curve(self) -> Curve:
        """The mean as a function of C."""
        losses = [curve.between(*self.C_range) for curve in self.curves.scores if isinstance(curve, LossCurve)]
        return LossCurve.mean(losses) if losses else self._steps(self.mean, self.curves.scores)

    @cached_property
    def support_steps(self) -> StepCurve:
        """The mean number of support vectors as a step function."""
        return self._steps(self.support, self.curves.supports)

    def _steps(self, function: Any, curves: Sequence[Curve]) -> StepCurve:
        low, high = self.C_range
        C = np.unique(np.concatenate([curve.breakpoints for curve in curves]))
        C = C[np.searchsorted(C, low, side="right") : np.searchsorted(C, high)]
        return merged(C, snapped(function(inside(np.concatenate([[low], C, [high]])))), low, high)

    @property
    def best_C(self) -> float:
        """The middle of the best interval."""
        return self.curve.best_C

    @property
    def threshold(self) -> float:
        """One standard error above the least mean; of one fold that mean itself."""
        level = self.curve.minimum + float(np.nan_to_num(self.spread(np.array([self.best_C]))[0]))
        return level + SAME * float(np.abs(self.curve.values).max())

    @property
    def one_se_C(self) -> float:
        """Where the first stretch whose mean is within one standard error of the best begins, a little inside."""
        edges = self._edges
        at = inside(edges)
        k = int(np.flatnonzero(self.curve(at) <= self.threshold)[0])
        return min(float(edges[k]) * (1.0 + _INSIDE), float(at[k])) if edges[k] > 0.0 else float(at[k])

    @property
    def smallest_C(self) -> float:
        """In the middle of the widest interval of fewest support vectors within one standard error of the best."""
        edges = np.union1d(self._edges, self.support_steps.edges)
        at = inside(edges)
        count = np.where(self.curve(at) <= self.threshold, self.support_steps(at), np.inf)
        return merged(edges[1:-1], np.minimum(count, 2.0 * self.support_steps.values.max()), *self.C_range).best_C

    @property
    def _edges(self) -> FloatArray:
        """Between these the mean is on one side of the threshold."""
        curve = self.curve
        return np.union1d(curve.edges, curve.crossings(self.threshold)) if isinstance(curve, LossCurve) else curve.edges


def snapped(values: FloatArray) -> FloatArray:
    """Values that differ by rounding made equal: a mean of fractions depends on which fold has which."""
    every, place = np.unique(values, return_inverse=True)
    new = np.concatenate([[True], np.diff(every) > SAME * np.maximum(1.0, np.abs(every[1:]))])
    return np.asarray(every[new][np.cumsum(new) - 1][place])


def inside(edges: FloatArray) -> FloatArray:
    """The geometric middle of every stretch; of one that begins at zero, that of its upper half."""
    low, high = edges[:-1], edges[1:]
    return np.sqrt(np.where(low > 0.0, low, 0.5 * high) * high)
