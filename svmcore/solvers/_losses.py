"""The losses of a machine over features, read off its dual problem, and how good a point is: primal, gap and violation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from svmcore._types import DualQP, FloatArray
from svmcore.solvers import _newton_jit as loops
from svmcore.solvers._newton_jit import Losses
from svmcore.solvers._rows import DenseFeatures, SparseFeatures

if TYPE_CHECKING:
    from svmcore.solvers._newton import Newton


def losses_from(qp: DualQP, n: int) -> Losses:
    """The losses of n points, whose dual variables these are. A point has one variable, or the two of a tube."""
    squared = qp.squared
    if qp.one_each(n):
        return _losses(qp.c, np.zeros(n), qp.lower, qp.upper, qp.diag, squared)
    target, half, lower, upper = np.zeros((4, n))
    diag = np.ones(n) if squared else np.zeros(n)
    m = len(qp.point)
    if m and qp.point[0] == qp.point[m // 2] and m > 1:  # two variables a point, those that grow first
        m //= 2
        point = qp.point[:m]
        target[point] = 0.5 * (qp.c[:m] + qp.c[m:])
        half[point] = 0.5 * (qp.c[m:] - qp.c[:m])
    else:
        point = qp.point
        target[point] = qp.c
    lower[point], upper[point], diag[point] = qp.lower[len(qp.point) - m :], qp.upper[:m], qp.diag[:m]
    return _losses(target, half, lower, upper, diag, squared)


def variables(qp: DualQP, z: FloatArray) -> FloatArray:
    """The dual variables of the points as those of the problem."""
    beta = z[qp.point]
    return np.clip(beta, qp.lower, qp.upper)


def _losses(
    target: FloatArray, half: FloatArray, lower: FloatArray, upper: FloatArray, diag: FloatArray, squared: bool
) -> Losses:
    """Losses at f = 0. A linear one is as stiff as takes a variable through its box where f moves by a typical target.

    It begins around the middle of its box, from where neither bound is far.
    """
    n = len(target)
    centre = np.zeros(n)
    if squared:
        stiff = 1.0 / diag
    else:
        stiff = upper - lower
        spread = float(np.std(target)) if n else 0.0
        typical = np.isfinite(stiff) & (stiff > 0.0)
        size = float(np.mean(stiff[typical])) if typical.any() else 1.0
        stiff = np.where(typical, stiff, size) / (spread or 1.0)
        centre[typical] = 0.5 * (lower + upper)[typical]
    return at_zero(target, half, lower, upper, stiff, centre)


def at_zero(*given: FloatArray) -> Losses:
    """Losses from their numbers, at f = 0."""
    target, half, lower, upper, stiff, centre = given
    f, z = np.zeros((2, len(target)))
    return Losses(target, half, lower, upper, stiff, centre, f, z, np.zeros(len(f), np.int8))


class Measures(NamedTuple):
    """How good X'z is: its primal objective, the duality gap, and the KKT violation of the dual variables."""

    primal: float
    gap: float
    violation: float


class Enough(NamedTuple):
    """When a machine is good enough: at a relative gap of `gap`; or where no variable violates by more than `violation`, and
    the relative gap is at most `largest`."""

    gap: float
    violation: float = 0.0
    largest: float = 0.0

    def met(self, found: Measures | Newton) -> bool:
        """Whether it is."""
        level = abs(found.primal)
        if found.gap <= self.gap * level:
            return True
        return bool(found.gap <= self.largest * level and found.violation <= self.violation)


def is_open(losses: Losses, squared: bool) -> bool:
    """Whether a box is infinite that nothing else closes."""
    return not squared and not (np.isfinite(losses.lower).all() and np.isfinite(losses.upper).all())


def gap_terms(losses: Losses, squared: bool, unbounded: bool) -> tuple[float, float]:
    """`measure` of losses; an infinite box that nothing else closes is closed at the running bound max |z| + 1."""
    if unbounded:
        running = float(np.abs(losses.z).max(initial=0.0)) + 1.0
        lower, upper = np.maximum(losses.lower, -running), np.minimum(losses.upper, running)
        losses = losses._replace(lower=lower, upper=upper)
    loss, excess = loops.measure(losses, squared)
    return float(loss), float(excess)


def measured(
    rows: DenseFeatures | SparseFeatures, losses: Losses, squared: bool
) -> tuple[Losses, FloatArray, Measures]:
    """The losses at X'z, X'z itself, from the data, and how good it is. For an intercept that is not free."""
    sums = np.zeros(rows.d + 1)
    support = np.flatnonzero(losses.z)
    f = np.zeros(rows.n)
    if len(support):
        rows.add(support, losses.z[support], sums)
        f = rows.times(sums)
    there, found = assessed(losses, sums, f, squared)
    return there, sums, found


def assessed(losses: Losses, sums: FloatArray, f: FloatArray, squared: bool) -> tuple[Losses, Measures]:
    """`measured` where X'z and f = X X'z are known."""
    there = losses._replace(f=f)
    loss, excess = gap_terms(there, squared, is_open(there, squared))
    return there, Measures(0.5 * float(sums @ sums) + loss, excess, violation(there, squared, free=False))


def violation(losses: Losses, squared: bool, *, free: bool) -> float:
    """The KKT violation of the dual variables at f."""
    top, bottom = loops.residuals(losses, squared)
    return float(max(top - bottom if free else max(top, -bottom), 0.0))
