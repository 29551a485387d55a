"""Small problems: one compiled call solves a problem that fits one working set, and measures the answer.

Solves   problems with an equality row and at most `MOST` variables.
Cost     the kernel rows that steps look at, or the kernel matrix, which many problems may share; n operations a pair step.
Stops    at the tolerance of the chosen criterion. An iteration is a pair step.
Choice   pair steps in float32 by the second-order rule, and residuals in float64 in turn. Every residual is computed from
         the points or from the matrix in float64, so the answer comes with all that its certificate says.
         Where pair steps crawl over a matrix, the free variables move together, if they are few. Where that does not help
         either, it gives up, and "auto" asks the next solver.
Reference  the block solver (`block`), whose loops these are.

A task is a problem over a kernel matrix that others share: machines between classes, columns of targets.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from svmcore._types import LANES, DualQP, FloatArray, IntArray, KernelKind, Raw, Status, every
from svmcore.base.threads import split
from svmcore.kernel.grams import COSTLY
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import STAGGER, Real, groups_of
from svmcore.kernel.products import SHAPES, shape_of
from svmcore.kernel.spare import lent
from svmcore.kernel.table import is_positive
from svmcore.kernel.tiles import one_hot, single_frame
from svmcore.kernel.whole import gram_of
from svmcore.simd import packing
from svmcore.simd.vector import ROWS
from svmcore.solvers._block_jit import NONCONVEX, Lines, WorkingSet
from svmcore.solvers._contract import Capabilities, Criterion, Outcome, SolverTask, shows_convex
from svmcore.solvers._shares_jit import Shares, solve_shares
from svmcore.solvers._small_jit import (
    ABOVE,
    BELOW,
    BIAS,
    BITS,
    BLUR,
    ENERGY,
    FACE,
    GAP,
    HIDDEN,
    HOPELESS,
    INVERSE,
    OBJECTIVE,
    ROUNDS,
    ROWS_READ,
    SQUARES,
    STEPS,
    SUM,
    SUPPORT,
    TOLD,
    VANISHING,
    VIOLATION,
    Desk,
    Dual,
    Exact,
    Patience,
    Tasks,
    solve_points,
    solve_tasks,
)

CAPABILITIES = Capabilities(
    summary="pair steps and residuals in one compiled call, for problems of at most 2,000 points", no_equality=False
)

LEAST = 2
MOST = 2000  # a problem of at most so many variables is small
# So many pair steps for each variable are a crawl; all free variables at once, over a matrix, end it where they are few.
BRIEF, MOST_CRAWLING = 15, 1000
FEW_POINTS = 128  # a matrix among these is made faster than the few rows that steps look at
MOST_POINTS = 2000  # a matrix among at most so many points is computed for them
DRIFT = 1e-13  # share of the norm of beta by which its sum may miss the total: rounding of a long sum
PATIENCE = Patience(each=20, more=12_000, most=2**62, rounds=12)
_WORK = 16.0  # what a kernel value of a task costs, in feature operations
_SLICE = 4000  # pair steps between two looks at the clock, where somebody looks on
_PATIENT = 1000  # so many times the steps that "auto" allows are there for who asks by name
_SHARPER = 0.1  # the next tolerance, where another criterion is not met yet


def patience_of(max_iter: int) -> Patience:
    """The usual one, or so many pair steps if that is less."""
    return PATIENCE if max_iter < 0 else Patience(PATIENCE.each, PATIENCE.more, max_iter, PATIENCE.rounds)


def has_way(qp: DualQP) -> bool:
    """Whether this problem is small: few variables in boxes that a bound or the diagonal closes, and an equality row."""
    return qp.equality and LEAST <= len(qp.c) <= MOST and (not qp.infinite or bool((qp.diag > 0.0).all()))


def reaches(K: KernelMatrix) -> bool:
    """Whether this kernel matrix is there, or can be had at once within the memory for kernel values."""
    return reads_points(K) or has_room(K)


def serves(K: KernelMatrix) -> bool:
    """Whether the same is true of one that is positive, or that only a look at all of it would tell."""
    return (_is_given(K) or K.function is not None or is_positive(K.kernel)) and reaches(K)


def has_room(K: KernelMatrix) -> bool:
    """Whether the kernel matrix is there, or fits the memory for kernel values. Points without a variable count, too."""
    return K.n <= MOST_POINTS and (_is_given(K) or 8.0 * K.n * K.n <= K.cache_bytes)


def _is_given(K: KernelMatrix) -> bool:
    return K.kernel.kind == KernelKind.PRECOMPUTED and K.function is None


def reads_points(K: KernelMatrix) -> bool:
    """Whether kernel values are computed from the points as they are needed: tiles of few features."""
    kind = K.kernel.kind
    few = K.n_features < COSTLY and K.n > FEW_POINTS
    return bool(few and kind != KernelKind.LINEAR and kind in SHAPES and K.dense)


def at_once(qp: DualQP, K: KernelMatrix, start: FloatArray, tol: float, most_steps: int = -1) -> Outcome | None:
    """The answer from a feasible start, for what `reaches` and `has_way` accept. None where this does not suffice.

    There are at most `most_steps` steps. With -1 their number is decided here.
    """
    patience, beta, steps, rounds = patience_of(most_steps), start.copy(), 0, 0
    if reads_points(K) and not qp.squared and one_hot(K.X) is None:
        both = has_room(K) and len(beta) <= MOST_CRAWLING
        brief = min(BRIEF * len(beta), patience.most) if both else patience.most
        told = _by_points(K, qp, beta, tol, patience._replace(most=brief))
        found, steps, rounds = (
            _outcome(told.tolist(), beta, tol, qp.total, math.inf),
            int(told[STEPS]),
            int(told[ROUNDS]),
        )
        if found is not None or told[BITS] or steps < brief or steps >= patience.most:
            return found if found is None or _is_convex(K, qp, beta) else None
    if not has_room(K):
        return None
    batch = Batch(gram_of(K), joined([(qp, spans_of(qp.point))]), beta)
    batch.solve(tol, 1, patience._replace(most=patience.most - steps) if steps else patience)
    found = _outcome(batch.tasks.told[0].tolist(), beta, tol, qp.total, math.inf)
    if found is None or not _is_convex(K, qp, beta):
        return None
    return found._replace(n_iter=found.n_iter + steps, n_rounds=found.n_rounds + rounds) if steps else found


def _is_convex(K: KernelMatrix, qp: DualQP, beta: FloatArray) -> bool:
    """Whether no two variables that are not zero show a negative curvature: other solvers say what that means."""
    if _is_given(K) or K.function is not None or is_positive(K.kernel):
        return True
    points = qp.point[np.flatnonzero(beta)]
    return shows_convex(K.block(points, points), qp.equality)


def _by_points(K: KernelMatrix, qp: DualQP, beta: FloatArray, tol: float, patience: Patience) -> FloatArray:
    """What is told of steps that read the points, packed in single and in double precision. In place: beta."""
    m, point = len(beta), qp.point
    count, shape = -(-m // LANES), shape_of(K.kernel)
    width = count * LANES
    moved, factor = single_frame(K, shape, centred=qp.centred)
    gram = lent("gram", (m + 1, width + STAGGER), np.float32)
    gram[0, :width] = 0.0
    desk = _desk(gram, m, width, _NO_FACE)
    desk.diagonal[:m], desk.diagonal[m:] = K.diagonal.take(point), 1.0
    desk.slot.fill(-1)
    single, double = np.empty((count, K.n_features, LANES), np.float32), np.empty((count, K.n_features, LANES))
    packing.pack_twice(K.X, point, moved, factor, np.empty(K.n_features), single, double, desk.field)
    work = WorkingSet(gram, 1.0, desk.diagonal, desk.values, desk.rise, desk.fall, beta, qp.lower, qp.upper)
    exact = Exact(double, double, every(m), np.empty((groups_of(width), K.n_features, ROWS)))
    dual = Dual(qp.c, qp.diag, qp.total, np.empty(m), np.zeros(TOLD))
    solve_points(shape, exact, Lines(single, desk.slot, desk.filled), work, dual, desk, tol, patience)
    return dual.told


def _outcome(
    values: list[float], beta: FloatArray, tol: float, total: float, most: float | None = None
) -> Outcome | None:
    """What is told of a problem, unless its violation is too large, its sum is wrong, or a step met a negative curvature.

    With `most` a violation above the tolerance is not too large if it is rounding, or if that many steps have been taken.
    """
    excess, noise = values[SUM] - total, values[BLUR]
    hidden = tol < HOPELESS * noise and values[VIOLATION] <= HIDDEN * noise
    status = Status.CONVERGED
    if values[VIOLATION] > tol and most is not None:
        status = Status.PRECISION if hidden else Status.MAX_ITER
    met = values[VIOLATION] <= tol or (most is not None and (hidden or values[STEPS] >= most))
    if not met or values[BITS] or abs(excess) > DRIFT * math.sqrt(values[SQUARES]):
        return None
    m = len(beta)
    return Outcome(
        beta, int(values[STEPS]), int(values[ROUNDS]), int(values[ROWS_READ]) * m, int(values[SUPPORT]) * m,
        values[VIOLATION], values[BIAS], values[OBJECTIVE], values[GAP], excess, VANISHING * values[ENERGY], status,
    )  # fmt: skip


def _desk(rows: Real, m: int, n: int, face: tuple[IntArray, FloatArray]) -> Desk:
    """A desk for a problem of at most m variables, and K beta of length n. `rows` is room for its kernel rows."""
    diagonal, values, rise, fall, rise_below, fall_below = np.zeros((6, -(-m // LANES) * LANES), np.float32)
    slot, filled, support = np.empty(m, np.int64), np.zeros(1, np.int64), np.empty(m + 1, np.int64)
    return Desk(
        rows, diagonal, values, rise, fall, rise_below, fall_below, slot, filled, support, np.empty(m + ROWS), np.empty(n),
        *face,
    )  # fmt: skip


def _new_face() -> tuple[IntArray, FloatArray]:
    """Room for a step of the free variables."""
    return np.empty((2, FACE), np.int64), np.empty((FACE + 3, FACE))


_NO_FACE = _new_face()
"""For problems over points, which take no such steps: nobody writes there."""


def spans_of(point: IntArray) -> IntArray:
    """The points of some variables as spans of neighbours."""
    if point is every(len(point)):
        return np.array([[0, len(point)]])
    first, last = int(point[0]), int(point[-1])
    if last - first == len(point) - 1 and np.logical_and.reduce(point[1:] > point[:-1]):
        return np.array([[first, last + 1]])
    cuts = np.flatnonzero(point[1:] != point[:-1] + 1) + 1
    edges = [0, *cuts.tolist(), len(point)]
    return np.array([(point[a], point[b - 1] + 1) for a, b in itertools.pairwise(edges)])


def _joined(arrays: Sequence[Any]) -> Any:
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]


class Joined(NamedTuple):
    """Problems over one matrix, one behind the other: as one, where each begins, and the spans that its points are.

    The variables of problem k are those from first[k] to first[k + 1], and likewise its spans.
    """

    qp: DualQP
    first: IntArray
    spans: IntArray
    first_span: IntArray
    totals: FloatArray


def joined(problems: Sequence[tuple[DualQP, IntArray]]) -> Joined:
    """Problems, each with the spans that its points are."""
    if len(problems) == 1:
        qp, own = problems[0]
        return Joined(qp, np.array([0, len(qp.c)]), own, np.array([0, len(own)]), np.array([qp.total]))
    qps, spans = zip(*problems, strict=True)
    first, first_span = (
        np.array([0, *itertools.accumulate(map(len, parts))]) for parts in ([qp.c for qp in qps], spans)
    )
    arrays = map(_joined, list(zip(*qps, strict=True))[:5])
    return Joined(
        qps[0]._make([*arrays, *qps[0][5:]]), first, _joined(spans), first_span, np.array([qp.total for qp in qps])
    )


class Batch:
    """Tasks over one kernel matrix, and where they begin: the variables of all of them, which become the answer."""

    def __init__(self, gram: FloatArray, several: Joined, start: FloatArray) -> None:
        qp, first, spans, first_span, totals = several
        self.sizes = [b - a for a, b in itertools.pairwise(first.tolist())]
        self.tasks = Tasks(
            gram, spans, first_span, first, qp.point, qp.c, qp.lower, qp.upper, qp.diag, totals, start,
            np.empty(len(start)), np.zeros((len(totals), TOLD)),
        )  # fmt: skip

    def solve(self, tol: float, n_threads: int, patience: Patience = PATIENCE, *, shares: Shares | None = None) -> None:
        """Run all tasks, each to the tolerance if it gets there. With shares those of machines with nu."""
        largest, n = max(self.sizes), len(self.tasks.gram)

        def some(begin: int, end: int) -> None:
            rows = np.empty((largest + 1, -(-largest // LANES) * LANES + STAGGER), np.float32)
            desk = _desk(rows, largest, n, _new_face())
            if shares is None:
                solve_tasks(self.tasks, desk, tol, patience, begin, end)
            else:
                solve_shares(self.tasks, shares, desk, tol, patience, begin, end)

        count = len(self.sizes)
        if count == 1:
            some(0, 1)
            return
        split(some, count, _WORK * float(sum(m * m for m in self.sizes)), min(n_threads, count))

    def beta(self, k: int) -> FloatArray:
        """The variables of a task."""
        return self.tasks.beta[self.tasks.first[k] : self.tasks.first[k + 1]]

    def outcomes(self, tol: float) -> list[Outcome | None]:
        """What came out of all tasks."""
        first, totals = self.tasks.first.tolist(), self.tasks.total.tolist()
        told, beta = self.tasks.told.tolist(), self.tasks.beta
        return [_outcome(told[k], beta[first[k] : first[k + 1]], tol, totals[k]) for k in range(len(totals))]

    def outcome(self, k: int, tol: float, most: float | None = None) -> Outcome | None:
        """What came out of a task, unless its violation is above the tolerance. With `most` as far as so many steps led."""
        return _outcome(self.tasks.told[k].tolist(), self.beta(k), tol, float(self.tasks.total[k]), most)


class Shared(NamedTuple):
    """The optimal beta among those whose sums above and below zero are half a share nu each, of what the boxes hold.

    `half` is half of the difference (above minus below) of the multipliers of both sums, or 0 where that is less than the
    violation.
    """

    beta: FloatArray
    half: float
    n_iter: int


def with_share(gram: FloatArray, qp: DualQP, nu: float, tol: float, patience: Patience = PATIENCE) -> Shared | None:
    """The dual of a regression with nu. None where a step meets a negative curvature."""
    batch = Batch(gram, joined([(qp, spans_of(qp.point))]), np.empty(len(qp.c)))
    share = np.array([0.5 * nu if _doubled(qp) else nu])
    batch.solve(tol, 1, patience, shares=Shares(share, 0.0, qp.lower, qp.upper, qp.c))
    told = batch.tasks.told[0].tolist()
    half = 0.5 * (told[ABOVE] - told[BELOW])
    return None if told[BITS] else Shared(batch.beta(0), half if half > told[VIOLATION] else 0.0, int(told[STEPS]))


def with_nu(
    gram: FloatArray,
    several: Joined,
    nu: Sequence[float],
    tol: float,
    n_threads: int,
    patience: Patience = PATIENCE,
    most: float | None = None,
) -> list[tuple[float, Outcome | None] | None]:
    """The 1 / C with share nu, and the machine, for each problem, which is a hinge classifier's with C = 1.

    Where the classes overlap so much that there is no such C within reach, it is the machine of a large one. None where nu is
    above `most_nu`, or a step meets a negative curvature; 1 / C alone where pair steps do not lead to the tolerance. That is
    smaller where C is small, as differences between values of f are. With `most` the machine is there after so many steps.
    """
    qp, size = several.qp, size_of(gram.diagonal())
    boxes = qp._replace(c=np.zeros(len(qp.c)), lower=qp.lower.copy(), upper=qp.upper.copy())
    batch = Batch(gram, several._replace(qp=boxes), np.empty(len(qp.c)))
    batch.solve(tol, n_threads, patience, shares=Shares(np.array(nu), size, qp.lower, qp.upper, np.empty(len(qp.c))))
    inverses = batch.tasks.told[:, INVERSE].tolist()
    return [(t, batch.outcome(k, tol * min(1.0, size / t), most)) if t > 0.0 else None for k, t in enumerate(inverses)]


def most_nu(qp: DualQP) -> float:
    """The largest nu of a classifier: twice the share of the smaller class."""
    sides = float(qp.upper.sum()), -float(qp.lower.sum())
    return 2.0 * min(sides) / sum(sides) if sum(sides) else 0.0


def size_of(diagonal: FloatArray) -> float:
    """The size of kernel values."""
    return float(np.add.reduce(np.abs(diagonal))) / len(diagonal) or 1.0


def _doubled(qp: DualQP) -> bool:
    """Whether every point owns two variables, of which an optimal beta uses one."""
    half = len(qp.c) // 2
    return bool(half) and qp.point[0] == qp.point[half]


def run(task: SolverTask) -> Raw:
    """Solve the dual from `start`, in slices of pair steps. `n_iter` counts these."""
    qp, K, control, tol, start, stopping, max_iter, _, trace = task
    if len(qp.c) > MOST or (K.n > MOST_POINTS and not _is_given(K)):
        return Raw(start, Status.LIMITED, 0)
    batch = Batch(gram_of(K), joined([(qp, spans_of(qp.point))]), start.copy())
    batch.solve(tol, 1, PATIENCE._replace(most=0))
    told, beta, v = batch.tasks.told[0], batch.tasks.beta, batch.tasks.v
    criterion, goal, steps, records = Criterion(stopping, tol), tol, 0, []
    most, status, convex = _PATIENT * (PATIENCE.each * len(beta) + PATIENCE.more), None, True
    while status is None:
        if trace:
            records.append((told[OBJECTIVE], told[VIOLATION]))
        met = told[VIOLATION] <= tol if stopping == "kkt" else criterion.met(qp, beta, v)
        if met or told[VIOLATION] == 0.0:
            status = Status.CONVERGED if convex else Status.STATIONARY
        elif 0 <= max_iter <= steps:
            status = Status.MAX_ITER
        else:
            status = control.check(steps, float(told[VIOLATION]), float(told[OBJECTIVE]))
        if status is None:
            if told[VIOLATION] <= goal:
                goal *= _SHARPER
            some = min(_SLICE, most - steps if max_iter < 0 else max_iter - steps)
            batch.solve(goal, 1, PATIENCE._replace(most=some))
            steps += int(told[STEPS])
            convex = convex and not int(told[BITS]) & NONCONVEX
            stuck = told[STEPS] == 0 and not told[VIOLATION] <= goal  # what is there already may meet the next look
            if stuck or (max_iter < 0 and steps >= most):
                status = Status.LIMITED
    table = None
    if trace:
        table = dict(zip(("objective", "violation"), np.transpose(records), strict=True))
    K.n_evals += K.n * K.n
    return Raw(beta, status, steps, table, {"n_outer": int(told[ROUNDS]), "precision": "mixed", "exact": True}, v, 0.0)


__all__ = [
    "CAPABILITIES",
    "Batch",
    "Joined",
    "Outcome",
    "at_once",
    "has_room",
    "has_way",
    "joined",
    "most_nu",
    "reaches",
    "run",
    "serves",
    "spans_of",
    "with_nu",
    "with_share",
]
