"""Machines between classes, one after the other over the same points: pair steps among the points near the margin.

Points lie in panels by class, so a machine reads what it needs where it is. It begins with a sample of its points. What the
steps among them change is told to all points by kernel values in tiles; then those near the margin are the next to be looked
at. In the end all that decides is computed in float64 from the points. Where this does not lead to the tolerance, nothing is
said, and the solvers take over.
"""

from __future__ import annotations

import math

import numpy as np

from svmcore._types import LANES, FloatArray, IntArray
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import STAGGER
from svmcore.kernel.tiles import DenseTiles
from svmcore.simd import loops
from svmcore.simd.vector import ROWS
from svmcore.solvers._block_jit import Lines, WorkingSet
from svmcore.solvers._near_jit import ByClass, Everyone, Packed, begin, choose, finish, sample, turn
from svmcore.solvers._whole import Outcome

_MEMBERS = 2048  # variables that are moved at a time, at most
_SAMPLE = 256  # of them at first,
_SHARE = 0.06  # or this share of all
_WIDTH = 0.25  # of the strip along the margin whose points are looked at
_LARGE = 4096  # variables from which telling everyone of a change costs more than the steps:
_ROUGH = (0.02,)  # there steps end at this share of the violation in the first turn,
_ROUGHER = (0.2, 0.1)  # and below in the first and the second
_NOISE = 2e-6  # the same of what float32 residuals can settle
_TURNS = 12
_CROWDED = 2.0  # share of the members' room that variables at their bounds may take, as a sample foretells it
_STEPS = 20  # times the number of variables,
_MOST_STEPS = 100_000  # but no more than these,
_MORE_STEPS = 5000  # and these on top
_ROUNDING = 1e-15  # of float64 products, per unit of sum |beta|
_PART = 512  # points whose float64 residuals are computed together


class Classes:
    """Points by class, in panels of their own."""

    def __init__(self, K: KernelMatrix, tiles: DenseTiles, codes: IntArray, n_classes: int, weight: FloatArray) -> None:
        counts = np.bincount(codes, minlength=n_classes)
        self.edges = np.concatenate([[0], np.cumsum(-(-counts // LANES))])  # of the classes, in panels
        size = int(self.edges[-1]) * LANES
        order = np.argsort(codes, kind="stable")
        within = np.arange(codes.size) - np.repeat(np.cumsum(counts) - counts, counts)
        lanes = self.edges[codes[order]] * LANES + within
        self.row = np.zeros(size, np.int64)
        self.row[lanes] = order
        self.shape = tiles.shape
        single, double = (
            np.empty((size // LANES, *source.shape[1:]), source.dtype) for source in (tiles.panels, tiles.exact)
        )
        loops.gather_panels(tiles.panels, self.row, single)
        loops.gather_panels(tiles.exact, self.row, double)
        diagonal, weights = np.ones(size), np.zeros(size)
        diagonal[lanes], weights[lanes] = K.diagonal[order], weight[order]
        largest = float(np.abs(K.diagonal).max())
        error = float(tiles.error_factor.max()) ** 2 + _ROUNDING * largest
        self.points = ByClass(single, double, diagonal, weights, error)

    def spans(self, minus: tuple[int, ...], plus: tuple[int, ...]) -> tuple[IntArray, FloatArray]:
        """The panels of the classes of a machine, and their sides; neighbours are one span."""
        every = sorted([(c, -1.0) for c in minus] + [(c, 1.0) for c in plus])
        spans: list[list[int]] = []
        sides: list[float] = []
        for c, side in every:
            first, last = int(self.edges[c]), int(self.edges[c + 1])
            if sides and sides[-1] == side and spans[-1][1] == first:
                spans[-1][1] = last
            else:
                spans.append([first, last])
                sides.append(side)
        return np.array(spans), np.array(sides)


class Room:
    """Room for one machine at a time among the classes; kernel values take `most_bytes` at most."""

    def __init__(self, classes: Classes, most_bytes: int) -> None:
        self.classes = classes
        single, double = classes.points.single, classes.points.double
        size = len(single) * LANES
        beta, v, c, lower, upper, field = np.zeros((6, size))
        self.one = Everyone(beta, v, c, lower, upper, field, np.zeros(size, np.int64))
        most = min(_MEMBERS, size, max(1, math.isqrt(most_bytes // 4) // LANES) * LANES)
        self.members = np.zeros(most, np.int64)
        width, rows = double.shape[1], 2 * most + ROWS
        self.packed = Packed(
            np.zeros(rows, np.int64), np.zeros(rows), np.zeros(rows, np.float32),
            np.empty((rows // ROWS, width, ROWS)), np.empty((rows // ROWS, single.shape[1], ROWS), np.float32),
            np.empty((_PART // LANES, width, LANES)), np.empty(_PART),
        )  # fmt: skip
        gram = np.zeros((most + 1, most + STAGGER), np.float32)
        floats, doubles, slot = np.zeros((4, most), np.float32), np.zeros((3, most)), np.zeros(most, np.int64)
        panels, filled = np.empty((most // LANES, *single.shape[1:]), np.float32), np.zeros(1, np.int64)
        self.sets = [
            (
                WorkingSet(gram, 1.0, *floats[:, :m], *doubles[:, :m]),
                Lines(panels[: m // LANES], slot[:m], filled),
            )
            for m in range(LANES, most + 1, LANES)
        ]

    def solve(
        self, minus: tuple[int, ...], plus: tuple[int, ...], cost: float, tol: float
    ) -> tuple[IntArray, Outcome] | None:
        """The machine that is above zero for the classes `plus`, and below for `minus`.

        Returns the rows of its support vectors, in order, and the outcome over these.
        """
        spans, sides = self.classes.spans(minus, plus)
        shape, points, one, members, packed = (
            self.classes.shape,
            self.classes.points,
            self.one,
            self.members,
            self.packed,
        )
        size = int((spans[:, 1] - spans[:, 0]).sum()) * LANES
        begin(points, one, spans, sides, cost)
        most = min(max(_SAMPLE, int(_SHARE * size)), len(members))
        count = sample(one, spans, sides, most, members)
        steps, evals, turns, moved, known, exact = 0, 0, 0, 1.0, 0, False
        limit, large = min(_STEPS * size, _MOST_STEPS) + _MORE_STEPS, size >= _LARGE
        rough = iter(_ROUGH if large else _ROUGHER)
        while 0 < count <= len(members) and turns < _TURNS and steps < limit:
            work, lines = self.sets[-(-count // LANES) - 1]
            taken, changed, change, high, low, bias = turn(
                shape, points, one, spans, members, count, work, lines, packed, tol, next(rough, _NOISE), limit - steps
            )
            steps, turns, moved = steps + taken, turns + 1, moved + change
            evals += changed * size + int(lines.filled[0]) * count
            error = points.error * moved
            if exact or high - low <= max(tol, 2.0 * error):
                for every in (True,) if exact else (False, True):
                    computed, support, high, low, bias, objective, gap = finish(
                        shape, points, one, spans, packed, high, low, bias, 2.0 * error, every
                    )
                    known, exact = known + computed * support, every
                    if not support:
                        return None
                    if high - low <= tol:
                        outcome = steps, turns, evals, known, max(high - low, 0.0), bias, objective, gap
                        return self._outcome(spans, outcome)
            elif turns == 1 and self._crowded(work, count, size):
                return None
            count = choose(one, spans, bias, _WIDTH, most if large and turns == 1 else len(members), members)
        return None

    def _crowded(self, work: WorkingSet, count: int, size: int) -> bool:
        """Whether so many of a sample are at their upper bound that all such variables would be too many."""
        stuck = np.count_nonzero(work.beta) - np.count_nonzero((work.lower < work.beta) & (work.beta < work.upper))
        return bool(stuck * size > _CROWDED * len(self.members) * count)

    def _outcome(
        self, spans: IntArray, told: tuple[int, int, int, int, float, float, float, float]
    ) -> tuple[IntArray, Outcome]:
        lanes = np.concatenate(
            [first * LANES + np.flatnonzero(self.one.beta[first * LANES : last * LANES]) for first, last in spans]
        )
        rows = self.classes.row[lanes]
        order = np.argsort(rows)
        return rows[order], Outcome(self.one.beta[lanes[order]], *told)
