"""Small problems in one call: a problem that fits one working set is solved and measured by compiled code.

This is what `block` does with such a problem, in the same loops, but there are two differences. Rows of the Gram matrix are
computed when a step first looks at them, and a problem with few support vectors needs few rows. And every residual is
computed in float64 from the points, so the answer comes with all that its certificate says. Where this does not lead to the
tolerance, there is no answer from here, and the solvers take over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import LANES, DualQP, FloatArray, IntArray, KernelKind
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import Real, groups_of
from svmcore.kernel.products import SHAPES
from svmcore.kernel.table import is_positive
from svmcore.kernel.tiles import COSTLY, DenseTiles, make_tiles
from svmcore.simd import loops
from svmcore.simd.vector import ROWS
from svmcore.solvers._block_jit import Lines, WorkingSet
from svmcore.solvers._whole_jit import Task, solve

MOST = 1900  # a problem of at most so many variables is solved here
_ROUNDS = 6
# A problem gets _STEPS pair steps for each variable, and _MORE_STEPS on top.
_STEPS, _MORE_STEPS = 20, 12_000


class Outcome(NamedTuple):
    """A dual point at the tolerance, and its measures, all of them computed in float64 from the points.

    `beta` has an entry for every variable, or for those only that are not zero.
    """

    beta: FloatArray
    n_iter: int
    n_rounds: int
    n_evals: int
    certificate_evals: int
    violation: float
    bias: float
    objective: float
    gap: float


def serves(K: KernelMatrix) -> bool:
    """Whether this kernel can be served: dense points of few features, and tiles of a kernel that is not the product x'z."""
    kernel = K.kernel
    return (
        K.n_features < COSTLY
        and kernel.kind != KernelKind.LINEAR
        and kernel.kind in SHAPES
        and K.dense
        and is_positive(kernel)
    )


def has_way(qp: DualQP) -> bool:
    """Whether this problem can be solved here: few variables in finite boxes, and an equality row."""
    return qp.equality and len(qp.c) <= MOST and not qp.diag.any() and not qp.infinite


def at_once(qp: DualQP, K: KernelMatrix, start: FloatArray, tol: float, most_steps: int = -1) -> Outcome | None:
    """The answer from a feasible start, for what `serves` and `has_way` accept. None where this does not suffice.

    There are at most `most_steps` steps. With -1 their number is decided here.
    """
    tiles = make_tiles(K, centred=qp.centred)
    if not isinstance(tiles, DenseTiles):
        return None
    try:
        return _solved(tiles, qp, start, tol, most_steps)
    finally:
        tiles.release()


def _solved(tiles: DenseTiles, qp: DualQP, start: FloatArray, tol: float, most_steps: int) -> Outcome | None:
    m = len(start)
    width = -(-m // LANES) * LANES
    floats, doubles = np.empty((4, width), np.float32), np.empty((3, width + ROWS))
    single, double = (_of_variables(source, qp.point, tiles.n) for source in (tiles.panels, tiles.exact))
    gram = tiles.space(m, np.float32)
    gram[0, :width] = 0.0
    floats[0, :m], floats[0, m:] = tiles.K.diagonal[qp.point], 1.0
    beta = start.copy()
    diagonal, values, rise, fall = floats
    work = WorkingSet(gram, 1.0, diagonal, values, rise, fall, beta, qp.lower, qp.upper)
    lines = Lines(single, np.full(m, -1), np.zeros(1, np.int64))
    rows = np.empty((groups_of(width), tiles.exact.shape[1], ROWS))
    field = doubles[2, :width]
    task = Task(
        double, tiles.exact, qp.point, qp.c, qp.total, doubles[0, :m], np.empty(m, np.int64), doubles[1], rows, field
    )
    limit = _STEPS * m + _MORE_STEPS
    if most_steps >= 0:
        limit = min(limit, most_steps)
    steps, rounds, violation, bias, objective, gap = solve(tiles.shape, work, lines, task, tol, limit, _ROUNDS)
    if not violation <= tol:
        return None
    known = int(np.count_nonzero(beta)) * m
    return Outcome(beta, steps, rounds, int(lines.filled[0]) * m, known, violation, bias, objective, gap)


def _of_variables(source: Real, point: IntArray, n: int) -> Real:
    """Panels of the points of the variables, in the order of the variables."""
    if len(point) == n and np.array_equal(point, np.arange(n)):
        return source
    out = np.empty((-(-len(point) // LANES), *source.shape[1:]), source.dtype)
    loops.gather_panels(source, point, out)
    return out
