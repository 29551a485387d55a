"""Machines between classes, one after the other over the same points: pair steps among the points near the margin.

Points lie in panels by class, so a machine reads its points where they are. If they fit one working set, it begins with steps
among all of them, and keeps whole rows of kernel values. If not, it begins with a sample. After the steps among these, kernel
values in tiles bring the residuals of all points up to date. The next steps are among the points near the margin. In the end
all that decides is computed in float64 from the points. Where this does not lead to the tolerance, there is no answer from
here, and the solvers take over.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from svmcore._types import LANES, FloatArray, IntArray
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import STAGGER
from svmcore.kernel.tiles import DenseTiles
from svmcore.simd import packing
from svmcore.simd.vector import ROWS
from svmcore.solvers._block_jit import NOISE, Lines, WorkingSet
from svmcore.solvers._contract import Outcome
from svmcore.solvers._near_jit import Everyone, Packed, Panels, choose, finish, from_all, turn

# Which variables are moved. At most _MEMBERS are moved at a time. A first sample has _SAMPLE of them, or the share _SHARE
# of all if that is more. Later ones lie in a strip of the width _WIDTH along the margin.
_MEMBERS, _SAMPLE, _SHARE, _WIDTH = 2048, 256, 0.06, 0.25
# Steps end at a share of the violation. In the first turns it is one of _ROUGHER, and then NOISE, which is as far as float32
# residuals go. From _LARGE variables on an update of all residuals costs more than the steps: there _ROUGH takes the place of
# _ROUGHER.
_LARGE, _ROUGH, _ROUGHER = 4096, (0.02,), (0.2, 0.1)
# Where all variables are members at first, their steps end at the share _ROUGH_ALL of the violation. The next ones are in a
# strip of the width _WIDTH_ALL. After _TURNS_ALL turns such a machine goes on as the others do.
_ROUGH_ALL, _WIDTH_ALL, _TURNS_ALL = 0.15, 0.15, 4
# A machine is given up after _TURNS turns. It is given up, too, when a sample foretells that variables at their upper
# bounds will need more than _CROWDED times the room of the members.
_TURNS, _CROWDED = 12, 2.0
# A machine gets _STEPS pair steps for each variable, but at most _MOST_STEPS of these, and _MORE_STEPS on top.
_STEPS, _MOST_STEPS, _MORE_STEPS = 20, 100_000, 5000
_ROUNDING = 1e-15  # the error of float64 products per unit of sum |beta|
_PART = 512  # float64 residuals of so many points are computed together


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
        packing.gather_panels(tiles.panels, self.row, single)
        packing.gather_panels(tiles.exact, self.row, double)
        diagonal, self.weight = np.ones(size), np.zeros(size)
        diagonal[lanes], self.weight[lanes] = K.diagonal[order], weight[order]
        largest = float(np.abs(K.diagonal).max())
        error = float(tiles.error_factor.max()) ** 2 + _ROUNDING * largest
        self.points = Panels(single, double, diagonal, error)

    def part(self, minus: tuple[int, ...], plus: tuple[int, ...]) -> tuple[Panels, IntArray, FloatArray]:
        """The points of the classes of a machine one behind the other, their lanes, and the side of each of them."""
        every = sorted([(c, -1.0) for c in minus] + [(c, 1.0) for c in plus])
        panels = np.concatenate([np.arange(self.edges[c], self.edges[c + 1]) for c, _ in every])
        sides = np.repeat([side for _, side in every], [LANES * (self.edges[c + 1] - self.edges[c]) for c, _ in every])
        lanes, points = (LANES * panels[:, None] + np.arange(LANES)).reshape(-1), self.points
        if len(panels) < len(points.single):
            points = points._replace(
                single=points.single[panels], double=points.double[panels], diagonal=points.diagonal[lanes]
            )
        return points, lanes, sides


class Room:
    """Room for one machine at a time among the classes. Kernel values take at most `most_bytes`."""

    def __init__(self, classes: Classes, most_bytes: int) -> None:
        self.classes = classes
        single, double = classes.points.single, classes.points.double
        size = len(single) * LANES
        vectors: list[Any] = [*np.zeros((7, size)), np.zeros(size, np.int64)]
        self.one = Everyone(*vectors)
        most = min(_MEMBERS, size, max(1, math.isqrt(most_bytes // 4) // LANES) * LANES)
        self.members = np.zeros(most, np.int64)
        width, rows = double.shape[1], 2 * most + ROWS
        self.packed = Packed(
            np.zeros(rows, np.int64), np.zeros(rows), np.zeros(rows, np.float32),
            np.empty((rows // ROWS, width, ROWS)), np.empty((rows // ROWS, single.shape[1], ROWS), np.float32),
            np.empty((_PART // LANES, width, LANES)), np.empty(_PART),
        )  # fmt: skip
        gram = np.zeros((most + 1, most + STAGGER), np.float32)
        self.work = WorkingSet(gram, 1.0, *np.zeros((4, most), np.float32), *np.zeros((3, most)))
        panels, slots, filled = (
            np.empty((most // LANES, *single.shape[1:]), np.float32),
            *np.zeros((2, 2, most), np.int64),
        )
        self.few = Lines(panels, slots[0], filled[0])  # of some variables; their rows come after those of all
        self.rows = slots[1], filled[1]

    def _begin(self, lanes: IntArray, sides: FloatArray, cost: float) -> Everyone:
        """The variables of a problem, all at zero."""
        cut: list[Any] = [each[: len(lanes)] for each in self.one]
        one = Everyone(*cut)
        one.beta[:], one.c[:], one.v[:] = 0.0, sides, sides
        reach = sides * cost * self.classes.weight[lanes]
        np.minimum(reach, 0.0, out=one.lower)
        np.maximum(reach, 0.0, out=one.upper)
        return one

    def _sample(self, one: Everyone, most: int) -> int:
        """Choose about `most` members, half of them on each side if there are so many; none if a side has none."""
        free = np.flatnonzero(one.upper > one.lower)
        sides = [free[one.c[free] < 0.0], free[one.c[free] > 0.0]]
        chosen = np.concatenate([side[:: max(1, 2 * len(side) // most)] for side in sides])[: len(self.members)]
        self.members[: len(chosen)] = chosen
        return len(chosen) if all(map(len, sides)) else 0

    def solve(
        self, minus: tuple[int, ...], plus: tuple[int, ...], cost: float, tol: float
    ) -> tuple[IntArray, Outcome] | None:
        """The machine that is above zero for the classes `plus`, and below for `minus`.

        Returns the rows of its support vectors, in order, and the outcome over these.
        """
        points, lanes, sides = self.classes.part(minus, plus)
        one, members, packed = self._begin(lanes, sides, cost), self.members, self.packed
        problem, size, room = (self.classes.shape, points, one), len(lanes), len(members)
        large, exact, begun = size >= _LARGE, False, size <= room
        limit = min(_STEPS * size, _MOST_STEPS) + _MORE_STEPS
        most = min(max(_SAMPLE, int(_SHARE * size)), room)
        count = 0 if begun else self._sample(one, most)
        steps, evals, turns, moved, known = 0, 0, 0, 1.0, 0
        rough = () if begun else _ROUGH if large else _ROUGHER
        while begun or (0 < count <= room and turns < _TURNS and steps < limit):
            if begun:
                how, lines = (_ROUGH_ALL, _WIDTH_ALL, _TURNS_ALL), Lines(points.single, *self.rows)
                steps, evals, moved, high, low, bias, turns = from_all(
                    *problem, members, self.work, lines, self.few, packed, tol, how, limit
                )
            else:
                share = rough[turns] if turns < len(rough) else NOISE
                taken, changed, change, high, low, bias = turn(
                    *problem, members, count, self.work, self.few, packed, tol, share, limit - steps
                )
                steps, turns, moved = steps + taken, turns + 1, moved + change
                evals += changed * size + int(self.few.filled[0]) * count
            error = points.error * moved
            if begun or exact or high - low <= max(tol, 2.0 * error):
                for every in (True,) if exact else (False,) if begun else (False, True):
                    computed, support, high, low, bias, objective, gap = finish(
                        *problem, packed, high, low, bias, 2.0 * error, every
                    )
                    known, exact = known + computed * support, every
                    if not support:
                        return None
                    if high - low <= tol:
                        told = steps, turns, evals, known, max(high - low, 0.0), bias, objective, gap
                        rows = self.classes.row[lanes[packed.lanes[:support]]]  # as `finish` has left them
                        order = np.argsort(rows)
                        beta = packed.coef[order]
                        return rows[order], Outcome(beta, *told, float(beta.sum()))
            elif turns == 1 and self._crowded(count, size):
                return None
            begun, count = False, choose(one, bias, _WIDTH, most if large and turns == 1 else room, members)
        return None

    def _crowded(self, count: int, size: int) -> bool:
        """Whether so many of a sample are at their upper bounds that all such variables together would be too many."""
        beta, lower, upper = self.work.beta[:count], self.work.lower[:count], self.work.upper[:count]
        stuck = np.count_nonzero(beta) - np.count_nonzero((lower < beta) & (beta < upper))
        return bool(stuck * size > _CROWDED * len(self.members) * count)
