"""Small problems: one compiled call solves a problem that fits one working set, and measures the answer.

Solves   problems with an equality row and at most `MOST` variables.
Cost     the kernel rows that steps look at, or the kernel matrix, which many problems may share; n operations a pair step.
Stops    at the tolerance of the chosen criterion. An iteration is a pair step.
Choice   pair steps in float32 by the second-order rule, and residuals in float64 in turn. Every residual is computed from
         the points or from the matrix in float64, so the answer comes with all that its certificate says.
         Where pair steps crawl, it gives up, and "auto" asks the next solver.
Reference  the block solver (`block`), whose loops these are.

A task is a problem over a kernel matrix that others share: machines between classes, columns of targets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._threads import split
from svmcore._types import LANES, DualQP, FloatArray, IntArray, KernelKind, Raw, Status
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import STAGGER, Real, groups_of
from svmcore.kernel.products import SHAPES
from svmcore.kernel.table import is_positive
from svmcore.kernel.tiles import COSTLY, DenseTiles, make_tiles
from svmcore.kernel.whole import gram_of
from svmcore.simd import loops
from svmcore.simd.vector import ROWS
from svmcore.solvers._block_jit import NONCONVEX, Lines, WorkingSet
from svmcore.solvers._contract import Capabilities, Criterion, Outcome
from svmcore.solvers._small_jit import (
    ABOVE,
    BELOW,
    BIAS,
    BITS,
    GAP,
    OBJECTIVE,
    ROUNDS,
    ROWS_READ,
    STEPS,
    SUPPORT,
    TOLD,
    VIOLATION,
    Desk,
    Dual,
    Exact,
    Patience,
    Tasks,
    solve_on_sides,
    solve_points,
    solve_tasks,
)

CAPABILITIES = Capabilities(
    summary="pair steps and residuals in one compiled call, for problems of at most 2,000 points", no_equality=False
)

LEAST = 16  # of fewer variables SMO gives all digits in the same time
MOST = 2000  # a problem of at most so many variables is small
FEW_POINTS = 128  # a matrix among these is made faster than the few rows that steps look at
MOST_POINTS = 2000  # a matrix among at most so many points is computed for them
PATIENCE = Patience(each=20, more=12_000, most=2**62, rounds=6)
_WORK = 100.0  # what a kernel value of a task costs, in feature operations
_SLICE = 4000  # pair steps between two looks at the clock, where somebody looks on
_PATIENT = 1000  # so many times the steps that "auto" allows are there for who asks by name
_FIRST, _RETURNS = 0.1, 3  # the first tolerance of problems with two sums, and how often it is made smaller
DEEPEST = 1e-8  # 1 / C, relative to the kernel's diagonal, that stands for an infinite C
_BOTH = 0.5  # share of a violation that either side may have
LOST = 1e-4  # 1 / C, relative to the same, up to which a first look takes it for zero
_EXACT = 1e-13  # relative difference of a nu from the largest one that is rounding
_SHARPER = 0.1  # the next tolerance, where another criterion is not met yet


def patience_of(max_iter: int) -> Patience:
    """The usual one, or so many pair steps if that is less."""
    return PATIENCE if max_iter < 0 else PATIENCE._replace(most=max_iter)


def has_way(qp: DualQP) -> bool:
    """Whether this problem is small: few variables in boxes that a bound or the diagonal closes, and an equality row."""
    return qp.equality and LEAST <= len(qp.c) <= MOST and (not qp.infinite or bool((qp.diag > 0.0).all()))


def serves(K: KernelMatrix) -> bool:
    """Whether "auto" asks for this kernel matrix: it is there, or can be had at once within the memory for kernel values."""
    if not (_is_given(K) or K.function is not None or is_positive(K.kernel)):
        return False
    return reads_points(K) or has_room(K)


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


def measured(
    gram: FloatArray, problems: Sequence[tuple[DualQP, IntArray]], points: Sequence[FloatArray], tols: Sequence[float]
) -> list[Outcome | None]:
    """What dual points are worth; None where their violation is above the tolerance of each."""
    if not problems:
        return []
    batch = Batch(gram, problems, points)
    batch.solve(min(tols), 1, PATIENCE._replace(most=0))
    return [batch.outcome(k, tol) for k, tol in enumerate(tols)]


def at_once(qp: DualQP, K: KernelMatrix, start: FloatArray, tol: float, most_steps: int = -1) -> Outcome | None:
    """The answer from a feasible start, for what `serves` and `has_way` accept. None where this does not suffice.

    There are at most `most_steps` steps. With -1 their number is decided here.
    """
    patience = patience_of(most_steps)
    if reads_points(K) and not qp.diag.any():
        tiles = make_tiles(K, centred=qp.centred)
        try:
            if isinstance(tiles, DenseTiles):
                return _by_points(tiles, qp, start, tol, patience)
        finally:
            tiles.release()
    if not has_room(K):
        return None
    batch = Batch(gram_of(K), [(qp, spans_of(qp.point))], [start])
    batch.solve(tol, 1, patience)
    return batch.outcome(0, tol)


def _by_points(tiles: DenseTiles, qp: DualQP, start: FloatArray, tol: float, patience: Patience) -> Outcome | None:
    m = len(start)
    width = -(-m // LANES) * LANES
    single, double = (_of_variables(source, qp.point, tiles.n) for source in (tiles.panels, tiles.exact))
    gram = tiles.space(m, np.float32)
    gram[0, :width] = 0.0
    desk = _desk(gram, m, width)
    desk.diagonal[:m], desk.diagonal[m:] = tiles.K.diagonal[qp.point], 1.0
    beta = start.copy()
    work = WorkingSet(gram, 1.0, desk.diagonal, desk.values, desk.rise, desk.fall, beta, qp.lower, qp.upper)
    lines = Lines(single, desk.slot, desk.filled)
    desk.slot[:] = -1
    exact = Exact(double, tiles.exact, qp.point, np.empty((groups_of(width), tiles.exact.shape[1], ROWS)))
    dual = Dual(qp.c, qp.diag, qp.total, np.empty(m), np.zeros(TOLD))
    solve_points(tiles.shape, exact, lines, work, dual, desk, tol, patience)
    return _outcome(dual.told, beta, tol)


def _of_variables(source: Real, point: IntArray, n: int) -> Real:
    """Panels of the points of the variables, in the order of the variables."""
    if len(point) == n and np.array_equal(point, np.arange(n)):
        return source
    out = np.empty((-(-len(point) // LANES), *source.shape[1:]), source.dtype)
    loops.gather_panels(source, point, out)
    return out


def _outcome(told: FloatArray, beta: FloatArray, tol: float) -> Outcome | None:
    """What is told of a problem, unless its violation is above the tolerance, or a step has met a negative curvature."""
    values = told.tolist()
    if not values[VIOLATION] <= tol or values[BITS]:
        return None
    steps, rounds, rows, support = (int(values[k]) for k in (STEPS, ROUNDS, ROWS_READ, SUPPORT))
    m = len(beta)
    return Outcome(
        beta, steps, rounds, rows * m, support * m, values[VIOLATION], values[BIAS], values[OBJECTIVE], values[GAP]
    )


def _desk(rows: Real, m: int, n: int) -> Desk:
    """A desk for a problem of at most m variables, and K beta of length n. `rows` is room for its kernel rows."""
    diagonal, values, rise, fall, rise_below, fall_below = np.zeros((6, -(-m // LANES) * LANES), np.float32)
    slot, filled, support = np.empty(m, np.int64), np.zeros(1, np.int64), np.empty(m + 1, np.int64)
    return Desk(
        rows,
        diagonal,
        values,
        rise,
        fall,
        rise_below,
        fall_below,
        slot,
        filled,
        support,
        np.empty(m + ROWS),
        np.empty(n),
    )


def spans_of(point: IntArray) -> IntArray:
    """The points of some variables as spans of neighbours."""
    if point[-1] - point[0] == len(point) - 1 and (len(point) == 1 or bool((point[1:] > point[:-1]).all())):
        return np.array([[point[0], point[-1] + 1]])
    cuts = np.flatnonzero(point[1:] != point[:-1] + 1) + 1
    edges = [0, *cuts.tolist(), len(point)]
    return np.array([(point[a], point[b - 1] + 1) for a, b in itertools.pairwise(edges)])


def _joined(arrays: Sequence[Any]) -> Any:
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]


class Batch:
    """Tasks over one kernel matrix: problems, with the spans that their points are, and where each of them begins."""

    def __init__(
        self, gram: FloatArray, problems: Sequence[tuple[DualQP, IntArray]], starts: Sequence[FloatArray]
    ) -> None:
        count = len(problems)
        qps, spans = zip(*problems, strict=True)
        self.sizes = [len(qp.c) for qp in qps]
        first = np.array([0, *itertools.accumulate(self.sizes)])
        first_span = np.array([0, *itertools.accumulate(map(len, spans))])
        c, lower, upper, diag, point = map(_joined, list(zip(*qps, strict=True))[:5])
        beta = np.concatenate(starts)
        self.tasks = Tasks(
            gram, _joined(spans), first_span, first, point, c, lower, upper, diag, np.array([qp.total for qp in qps]), beta,
            np.empty(len(beta)), np.zeros((count, TOLD)),
        )  # fmt: skip

    def solve(
        self, tol: float, n_threads: int, patience: Patience = PATIENCE, *, loop: Callable[..., None] = solve_tasks
    ) -> None:
        """Run all tasks, each to the tolerance if it gets there."""
        largest, n = max(self.sizes), len(self.tasks.gram)

        def some(begin: int, end: int) -> None:
            rows = np.empty((largest + 1, -(-largest // LANES) * LANES + STAGGER), np.float32)
            loop(self.tasks, _desk(rows, largest, n), tol, patience, begin, end)

        count = len(self.sizes)
        split(some, count, _WORK * float(sum(m * m for m in self.sizes)), min(n_threads, count))

    def points(self, k: int) -> IntArray:
        """The points of the variables of a task, as rows of the matrix."""
        return self.tasks.point[self.tasks.first[k] : self.tasks.first[k + 1]]

    def beta(self, k: int) -> FloatArray:
        """The variables of a task."""
        return self.tasks.beta[self.tasks.first[k] : self.tasks.first[k + 1]]

    def outcome(self, k: int, tol: float) -> Outcome | None:
        """What came out of a task, unless its violation is above the tolerance."""
        return _outcome(self.tasks.told[k], self.beta(k), tol)


class Shared(NamedTuple):
    """The optimal beta among those whose sums above and below zero are half a share nu each, of what the boxes hold.

    `mean` and `half` are the mean and half of the difference (above minus below) of the multipliers of both sums.
    """

    beta: FloatArray
    mean: float
    half: float
    n_iter: int


def with_share(
    gram: FloatArray, problems: Sequence[tuple[DualQP, IntArray]], nu: Sequence[float], size: float, tol: float,
    n_threads: int, patience: Patience = PATIENCE,
) -> list[Shared | None]:  # fmt: skip
    """The duals of machines with nu, by problem. None where a step meets a negative curvature.

    Where pair steps lead there, the violation is at most `tol` times half of the difference, relative to `size`, where that
    is less than 1. With size 0 it is at most `tol`. Where the difference is lost in what a first look leaves of the
    violation, that look was the last one.
    """
    batch = Batch(gram, problems, [_filled(qp, share) for (qp, _), share in zip(problems, nu, strict=True)])
    told, count = batch.tasks.told, len(problems)
    rough = np.array([LOST * size * unit_of(qp) if size else tol * _FIRST for qp, _ in problems])
    goals, late, steps = rough, np.ones(count, bool), np.zeros(count)

    def each(tasks: Tasks, desk: Desk, _: float, patience: Patience, begin: int, end: int) -> None:
        for k in range(begin, end):
            if late[k]:
                solve_on_sides(tasks, desk, _BOTH * goals[k], patience, k, k + 1)

    for _ in range(_RETURNS):
        batch.solve(tol, n_threads, patience, loop=each)
        steps += np.where(late, told[:, STEPS], 0.0)
        half = 0.5 * np.abs(told[:, ABOVE] - told[:, BELOW])
        goals = tol * np.minimum(1.0, half / size) if size else np.full(count, tol)
        late = (told[:, VIOLATION] > _BOTH * goals) & (half > (rough if size else 0.0)) & (told[:, BITS] == 0.0)
        if not late.any():
            break
    out: list[Shared | None] = []
    for k, (above, below) in enumerate(told[:, [ABOVE, BELOW]].tolist()):
        shared = Shared(batch.beta(k), 0.5 * (above + below), 0.5 * (above - below), int(steps[k]))
        out.append(None if told[k, BITS] else shared)
    return out


def with_nu(
    gram: FloatArray, problems: Sequence[tuple[DualQP, IntArray]], nu: Sequence[float], tol: float, n_threads: int,
    patience: Patience = PATIENCE,
) -> list[tuple[float, Outcome | None]]:  # fmt: skip
    """For each problem, which is a hinge classifier's with C = 1, the 1 / C with share nu, and the answer there.

    1 / C is 0 where the classes overlap so much that it cannot be told from zero. There is no answer then, nor where nu is
    above `most_nu` (1 / C is infinite), or where a step meets a negative curvature (it is NaN).
    """
    size = size_of(gram.diagonal())
    fixed = [(qp._replace(c=np.zeros(len(qp.c))), spans) for qp, spans in problems]
    found = with_share(gram, fixed, nu, size, tol, n_threads, patience)
    out: list[tuple[float, Outcome | None]] = []
    there, points, places = [], [], []
    for k, ((qp, spans), shared, share) in enumerate(zip(problems, found, nu, strict=True)):
        t = np.nan if shared is None else -shared.half
        if share > most_nu(qp) * (1.0 + _EXACT):
            t = np.inf
        elif t <= LOST * size * unit_of(qp):
            t = 0.0
        out.append((t, None))
        if shared is not None and 0.0 < t < np.inf:
            C = 1.0 / t  # boxes are what the C that is told makes of the weights, to the last bit
            lower, upper = C * qp.lower, C * qp.upper
            there.append((qp._replace(lower=lower, upper=upper), spans))
            points.append(np.minimum(np.maximum(C * shared.beta, lower), upper))
            places.append((k, t, shared.n_iter))
    tols = [tol * min(1.0, size / t) for _, t, _ in places]
    for (k, t, n_iter), answer in zip(places, measured(gram, there, points, tols), strict=True):
        out[k] = t, None if answer is None else answer._replace(n_iter=n_iter)
    return out


def most_nu(qp: DualQP) -> float:
    """The largest nu of a classifier: twice the share of the smaller class."""
    sides = float(qp.upper.sum()), -float(qp.lower.sum())
    return 2.0 * min(sides) / sum(sides) if sum(sides) else 0.0


def unit_of(qp: DualQP) -> float:
    """The largest weight of a point, of a problem with C = 1."""
    return float(max(qp.upper.max(), -qp.lower.min()))


def size_of(diagonal: FloatArray) -> float:
    """The size of kernel values."""
    return float(np.abs(diagonal).mean()) or 1.0


def _filled(qp: DualQP, nu: float) -> FloatArray:
    """Variables at their bounds, the first ones first, until either side has its sum."""
    total = 0.5 * nu * max(qp.upper.sum() - qp.lower.sum(), 0.0) * (0.5 if _doubled(qp) else 1.0)
    beta = np.zeros(len(qp.c))
    for bound in (qp.upper, qp.lower):
        room = np.abs(bound)
        left = total - (np.cumsum(room) - room)
        beta += np.sign(bound) * np.clip(left, 0.0, room)
    return beta


def _doubled(qp: DualQP) -> bool:
    """Whether every point owns two variables, of which an optimal beta uses one."""
    half = len(qp.c) // 2
    return bool(half) and qp.point[0] == qp.point[half]


def run(
    qp: DualQP,
    K: KernelMatrix,
    *,
    control: Control,
    tol: float,
    stopping: str,
    max_iter: int,
    start: FloatArray,
    seed: int,
    trace: bool,
) -> Raw:
    """Solve the dual from `start`, in slices of pair steps. `n_iter` counts these."""
    if len(qp.c) > MOST or (K.n > MOST_POINTS and not _is_given(K)):
        return Raw(start, Status.LIMITED, 0)
    batch = Batch(gram_of(K), [(qp, spans_of(qp.point))], [start])
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
            if told[STEPS] == 0 or (max_iter < 0 and steps >= most):
                status = Status.LIMITED
    table = None
    if trace:
        table = dict(zip(("objective", "violation"), np.transpose(records), strict=True))
    K.n_evals += K.n * K.n
    return Raw(beta, status, steps, table, {"n_outer": int(told[ROUNDS]), "precision": "mixed", "exact": True}, v, 0.0)


__all__ = ["CAPABILITIES", "Batch", "Outcome", "at_once", "has_room", "has_way", "most_nu", "run", "serves", "spans_of"]
