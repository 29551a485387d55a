"""Small problems at once: a problem that fits one working set is solved and measured in one compiled call.

What it does is what `block` does with such a problem, in the same loops, but for two things. Rows of the Gram matrix are
computed when a step first looks at them: a problem with few support vectors needs few. And every residual is computed in
float64 from the points, so the answer comes with all that its certificate says. Where that does not lead to the
tolerance, nothing is said, and the solvers take over.
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
from svmcore.solvers._whole_jit import Few, Task, solve

MOST = 1900  # variables
_ROUNDS = 6
_STEPS = 20  # times the number of variables,
_MORE_STEPS = 5000  # and these
_ROUNDING = 1e-15  # of float64 products, per unit of sum |beta|


class Outcome(NamedTuple):
    """A dual point at the tolerance and what it is worth, all of it computed in float64 from the points."""

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
    """Whether there is a way at once for this kernel: dense points, few features, tiles of a kernel that is no product."""
    kernel = K.kernel
    return (
        K.n_features < COSTLY
        and kernel.kind != KernelKind.LINEAR
        and kernel.kind in SHAPES
        and K.dense
        and is_positive(kernel)
    )


def has_way(qp: DualQP) -> bool:
    """Whether there is one for this problem: few variables in finite boxes, and an equality row."""
    return qp.equality and len(qp.c) <= MOST and not qp.diag.any() and not qp.infinite


def at_once(qp: DualQP, K: KernelMatrix, start: FloatArray, tol: float, most_steps: int = -1) -> Outcome | None:
    """The answer from a feasible start, where `serves` and `has_way` say yes; None where it takes more than this.

    `most_steps`: no more steps than these; -1 leaves the number to us.
    """
    tiles = make_tiles(K, centred=qp.centred)
    if not isinstance(tiles, DenseTiles):
        return None
    try:
        return Room(tiles, len(start), few=False).solve(qp, start, tol, most_steps)
    finally:
        tiles.release()


class Room:
    """Memory for problems of at most so many variables over points of tiles, one after the other.

    With `few`, residuals of few variables are computed where these tell all: it pays when there are many problems.
    """

    def __init__(self, tiles: DenseTiles, most: int, *, few: bool) -> None:
        self.tiles, self.few = tiles, few
        self.every = np.arange(tiles.n)
        width = -(-most // LANES) * LANES
        self.gram = tiles.space(most, np.float32)
        self.floats = np.empty((5, width + ROWS), np.float32)
        self.doubles = np.empty((3, width + ROWS))
        self.numbers = np.empty((4, width), np.int64)
        self.rows = np.empty((groups_of(width), tiles.exact.shape[1], ROWS))
        self.panels = tuple(np.empty((width // LANES, *source.shape[1:]), source.dtype) for source in self._sources)
        size, largest = float(tiles.error_factor.max()), float(np.abs(tiles.K.diagonal).max())
        self.error = size**2 + _ROUNDING * largest

    @property
    def _sources(self) -> tuple[Real, Real]:
        return self.tiles.panels, self.tiles.exact

    def _points(self, which: int, point: IntArray) -> Real:
        """The panels of the points of a problem: in float32, or in float64."""
        source, room = self._sources[which], self.panels[which][: -(-len(point) // LANES)]
        if len(point) == self.tiles.n and np.array_equal(point, self.every):
            return source
        loops.gather_panels(source, point, room)
        return room

    def solve(self, qp: DualQP, start: FloatArray, tol: float, most_steps: int = -1) -> Outcome | None:
        """`at_once` of a problem whose points are those of the tiles, or some of them."""
        m, tiles = len(start), self.tiles
        width = -(-m // LANES) * LANES
        f, d, k = self.floats, self.doubles, self.numbers[:, :m]
        diagonal = f[0, :width]
        diagonal[:m] = tiles.K.diagonal[qp.point]
        diagonal[m:] = 1.0
        beta = start.copy()
        work = WorkingSet(self.gram, 1.0, diagonal, f[1, :width], f[2, :width], f[3, :width], beta, qp.lower, qp.upper)
        k[0] = -1
        self.gram[0, :width] = 0.0
        lines = Lines(self._points(0, qp.point), k[0], np.zeros(1, np.int64))
        few = Few(self.error, k[1], k[2], f[4]) if self.few else None
        panels = self.panels[1] if self.few else self._points(1, qp.point)
        task = Task(panels, tiles.exact, qp.point, qp.c, qp.total, d[0, :m], k[3], d[1], self.rows, d[2, :width])
        limit = _STEPS * m + _MORE_STEPS
        if most_steps >= 0:
            limit = min(limit, most_steps)
        steps, rounds, computed, violation, bias, objective, gap = solve(
            tiles.shape, work, lines, task, few, tol, limit, _ROUNDS
        )
        if not violation <= tol:
            return None
        known = int(np.count_nonzero(beta)) * computed
        return Outcome(beta, steps, rounds, int(lines.filled[0]) * m, known, violation, bias, objective, gap)
