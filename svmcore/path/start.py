"""Where a path begins: the solution for every large lambda, or at a given lambda.

SMO or the engine of small problems finds it, the fast tracker refines it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore import solvers
from svmcore._control import Control, PartControl
from svmcore._types import NONZERO, DualQP, FloatArray
from svmcore.path.data import Twins
from svmcore.path.problem import BoxPath
from svmcore.path.tracker import GAP, Tracker
from svmcore.solvers import small
from svmcore.solvers._contract import SolverTask

_ROUGH = 1e-6
"""The tolerance of SMO for the start of the fast tracker, relative to the kernel's scale.

The tracker does the rest faster.
"""
_SHARP = 1e-9
"""The same of the engine of small problems, which hardly takes longer for it. It saves a polish."""
_FINE = 1e-8
"""At a given lambda no tolerance of the start is finer than this, relative to the size of the linear term."""
_NEAR = 1e-9
"""A value that is closer to a bound than this share of its box is at the bound."""
_EQUAL = 1e-13
"""Slopes that differ by less than this share of the largest are equal in the limit of large t."""
_ROUNDING = 1e-14
"""A sum below this share of the widths of all boxes together is zero."""
_PAIRS = 100
"""For the first event at most so many pairs of variables are looked at. A few are enough."""


class Top(NamedTuple):
    """Where the path begins. With `open_top` nothing happens above it, and the bias grows by `bias_slope` per unit of lambda.

    With `found` we have chosen this place, somewhat above the first event. Users then see that event as the first breakpoint.
    """

    lam: float
    open_top: bool
    bias_slope: float
    found: bool = False


class Smo(NamedTuple):
    """SMO on the problem of a path, or on one with other linear terms and boxes. It takes at most `most` steps per variable.

    K is a kernel matrix over the variables, or `path/data.Twins` of a kernel matrix.
    """

    K: Any
    problem: BoxPath
    control: Control
    most: float = 200.0
    quick: bool = False
    """Whether the engine of small problems is asked first, for a kernel that it `serves`. The published algorithm starts
    with SMO, as its papers do.
    """

    @property
    def scale(self) -> float:
        """The size of K b: the largest kernel value times the widths of all boxes."""
        return float(self.K.diagonal.max(initial=0.0)) * float((self.problem.upper - self.problem.lower).sum())

    def solve(
        self, linear: FloatArray, lower: FloatArray, upper: FloatArray, start: FloatArray, tol: float
    ) -> FloatArray:
        """The solution. When the control stops SMO, it is the point that was reached."""
        K, point = (self.K.base, self.K.point) if isinstance(self.K, Twins) else (self.K, np.arange(linear.size))
        qp = DualQP(linear, lower, upper, np.zeros(linear.size), point, self.problem.equality)
        if self.quick and small.has_way(qp):
            found = small.at_once(qp, K, start, tol)
            if found is not None:
                return found.beta
        control, most = PartControl(self.control, "looking for the start"), int(self.most * (linear.size + 500))
        raw = solvers.load("smo").run(SolverTask(qp, K, control, tol, start, max_iter=most))
        return np.asarray(raw.beta)

    def at(self, lam: float, start: FloatArray, tol: float) -> FloatArray:
        """The solution at one lambda."""
        problem = self.problem
        return self.solve(
            problem.term(lam), problem.lower, problem.upper, np.clip(start, problem.lower, problem.upper), tol
        )


class Limit(NamedTuple):
    """For large t the problem becomes a linear one: maximise slope'b.

    Variables whose slope is above `level` are at their upper ends, and those below it are at their lower ends. Those whose
    slope is equal to it are `tied`. They take what the others leave of the sum, and the quadratic term decides how they share
    it. Above the first event the bias grows by `level` per unit of t.
    """

    level: float
    tied: NDArray[np.bool_]


def limit_of(problem: BoxPath) -> Limit:
    """The limit of a problem, from sums over the classes of equal slopes. Slopes that differ by rounding count as one."""
    if not problem.equality:
        return Limit(0.0, problem.slope == 0.0)
    order = np.argsort(-problem.slope, kind="stable")
    slopes, width = problem.slope[order], (problem.upper - problem.lower)[order]
    last = np.ones(slopes.size, dtype=np.bool_)
    last[:-1] = slopes[:-1] - slopes[1:] > _EQUAL * max(abs(slopes[0]), abs(slopes[-1]))
    ends, sums = last.nonzero()[0], width.cumsum()
    excess = problem.lower.sum() + sums[ends]  # the sum when all down to a class are at their upper ends
    enough = _ROUNDING * float(sums[-1])
    fits = excess >= -enough
    fits[-1] = True
    k = int(fits.argmax())
    highest, lowest = slopes[ends[k - 1] + 1 if k else 0], slopes[ends[k]]
    if abs(excess[k]) <= enough and k + 1 < ends.size:  # the level lies between two classes of slopes
        return Limit(0.5 * float(lowest + slopes[ends[k] + 1]), np.zeros(slopes.size, dtype=np.bool_))
    return Limit(0.5 * float(highest + lowest), (problem.slope <= highest) & (problem.slope >= lowest))


def limit_point(problem: BoxPath, limit: Limit) -> FloatArray:
    """A solution of the linear problem.

    For a classifier it is the start (55). Every value is at the bound of its label. But the first points of the heavier class
    are at zero, so that the sum is zero.
    """
    down = limit.level < 0.0
    beta = np.where(problem.slope > limit.level, problem.upper, problem.lower)
    tied = limit.tied.nonzero()[0]
    size = (problem.upper - problem.lower)[tied]
    beta[tied] = 0.0
    if not problem.equality or (not beta.sum() and (problem.lower <= 0.0).all() and (problem.upper >= 0.0).all()):
        return beta
    beta[tied] = (problem.lower if down else problem.upper)[tied]
    if tied.size:
        excess = float(beta.sum())
        taken = np.minimum(size, np.maximum(abs(excess) - (np.cumsum(size) - size), 0.0))
        beta[tied] -= np.sign(excess) * taken
    return beta


def limit_solution(
    smo: Smo, limit: Limit, tol: float, product: Callable[[FloatArray], FloatArray]
) -> tuple[FloatArray, Top]:
    """The solution for every large t, to a relative `tol`, and the t down to which it holds. `product` is b -> K b.

    Tied variables minimise 1/2 b'Kb - fixed'b under their share of the sum. The rest of the linear term is constant on them.
    """
    problem = smo.problem
    beta = limit_point(problem, limit)
    if limit.tied.any():
        lower, upper = np.where(limit.tied, problem.lower, beta), np.where(limit.tied, problem.upper, beta)
        beta = smo.solve(problem.fixed, lower, upper, beta, max(tol * smo.scale, NONZERO))
        smo.control.demand()
    pull = product(beta) - problem.fixed  # the bias and t slope must outweigh this
    return beta, Top(_first_event(problem, limit, beta, pull), True, limit.level)


def _first_event(problem: BoxPath, limit: Limit, beta: FloatArray, pull: FloatArray) -> float:
    """The t down to which the limit solution holds."""
    if limit.tied.any() or not problem.equality:
        rest = ~limit.tied
        level = _level_of(problem, limit, beta, pull) if problem.equality else 0.0
        return float(((pull - level)[rest] / (problem.slope - limit.level)[rest]).max(initial=0.0))
    above = problem.slope > limit.level
    below = ~above
    # A bias fits if t slope_i - pull_i >= t slope_j - pull_j for all i above and all j below.
    t = 0.0
    for _ in range(_PAIRS):
        i = int(np.argmax(np.where(above, pull - t * problem.slope, -np.inf)))
        j = int(np.argmin(np.where(below, pull - t * problem.slope, np.inf)))
        reached = float((pull[i] - pull[j]) / (problem.slope[i] - problem.slope[j]))
        if not reached > t:
            break
        t = reached
    return t


def _level_of(problem: BoxPath, limit: Limit, beta: FloatArray, pull: FloatArray) -> float:
    """The mean pull of the tied variables inside their boxes.

    If there are none, the middle between the pulls at both ends.
    """
    width = problem.upper - problem.lower
    near = _NEAR * width
    inside = limit.tied & (beta > problem.lower + near) & (beta < problem.upper - near)
    if inside.any():
        return float(pull[inside].mean())
    high = limit.tied & (beta - problem.lower > 0.5 * width)
    low = limit.tied & ~high
    ends = [float(pull[high].max(initial=-np.inf)), float(pull[low].min(initial=np.inf))]
    return float(np.mean([end for end in ends if np.isfinite(end)]))


def put_at_top(tracker: Tracker, smo: Smo, high: float | None, low: float) -> Top:
    """Put the tracker at the top of the path: at `high`, or, where that is None, safely above the first event."""
    problem = smo.problem
    limit = limit_of(problem)
    if high is not None:
        tol = max(_FINE * tracker.size(high), min(_ROUGH * tracker.size(high), _ROUGH * smo.scale))
        _settle(tracker, high, smo.at(high, limit_point(problem, limit), tol), smo.control)
        is_open = at_rest(tracker.state.beta, problem, limit)
        return Top(high, is_open, limit.level if is_open else 0.0)
    beta, top = limit_solution(smo, limit, _SHARP if smo.quick else _ROUGH, tracker.store.product)
    lam = 2.0 * max(top.lam, low)
    if not lam > 0.0:
        lam = max(tracker.level, NONZERO)
    for attempt in range(8):
        _settle(tracker, lam, beta, smo.control)
        is_open = at_rest(tracker.state.beta, problem, limit)
        if is_open or attempt == 7:
            break
        lam *= 2.0  # the first event lies higher than it seemed, because the limit solution has the error of its solver
    return Top(lam, is_open, top.bias_slope if is_open else 0.0, is_open)


def _settle(tracker: Tracker, lam: float, beta: FloatArray, control: Control) -> None:
    control.demand()
    gap = tracker.settle(lam, beta)
    if not gap <= GAP:
        tracker.improve(gap)
    control.demand()


def at_rest(beta: FloatArray, problem: BoxPath, limit: Limit) -> bool:
    """Whether nothing changes for larger t. All variables that are not tied must be at the ends that the limit says."""
    ends = np.where(problem.slope > limit.level, problem.upper, problem.lower)
    return bool((limit.tied | (beta == ends)).all())
