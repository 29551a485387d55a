"""Which class every row gets: from kernel values in single precision where these prove it, and in double where they do not.

A machine's value from float32 kernel values is off by no more than a bound that is known before. What the class of a row is
depends on the signs of such values, or on which is the largest. Nearly always the bound decides it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from svmcore._types import LANES, FloatArray, IntArray, Kernel, KernelKind
from svmcore.base.threads import one_blas_thread, split
from svmcore.kernel.points import Real, groups_of, is_sparse, packed_rows
from svmcore.kernel.products import shape_of
from svmcore.kernel.rough import ROUNDING, exponential_error
from svmcore.problem.division import Division
from svmcore.simd import loops, packing
from svmcore.simd.vector import ROWS

_PANELS = 8  # 64 rows each: so many at a time
_TERMS = 42 * ROWS  # support vectors whose sum is made at once, which keeps its rounding small
_SLACK = 1.01  # the bound of an error is widened by this factor, because terms of second order are left out of it
_COARSE = 1e-3  # a kernel value with a larger error in float32 says nothing
_MANY_OPEN = 0.5  # float32 is of no use where it leaves more than this share of the first rows open


class Team(NamedTuple):
    """Some support vectors, as places among all; the machines they are in; and their coefficients there."""

    support: IntArray
    machines: IntArray
    coef: FloatArray


class _BallotPiece(NamedTuple):
    """Support vectors of a team as row groups, and their coefficients: one row for each machine of the team."""

    rows: Real
    coef: Real
    first: int  # of the team's machines among those of all teams
    adds: bool  # to the sums of a piece before


def _shape_serves(kernel: Kernel) -> bool:
    return kernel.kind in (KernelKind.RBF, KernelKind.LAPLACIAN)


class Ballot:
    """The machines of several classes in single precision, with a bound on the error of each machine's value."""

    def __init__(
        self, vectors: FloatArray, kernel: Kernel, teams: list[Team], constants: FloatArray, division: Division
    ) -> None:
        self.division, self.constants = division, constants.astype(np.float32)[:, None]
        self.shape, self.width = shape_of(kernel), vectors.shape[1]
        self.rbf = kernel.kind == KernelKind.RBF
        self.centre = vectors.mean(axis=0)
        panels, self.largest = self._packed(vectors)
        self.pieces: list[_BallotPiece] = []
        order: list[IntArray] = []
        sizes, depth = np.zeros(len(constants)), 0
        for team in teams:
            first = sum(len(each) for each in order)
            for start in range(0, team.support.size, _TERMS):
                rows = packed_rows(panels, team.support[start : start + _TERMS])
                coef = np.zeros((team.machines.size, len(rows) * ROWS), np.float32)
                part = team.coef[start : start + _TERMS]
                coef[:, : len(part)] = part.T
                self.pieces.append(_BallotPiece(rows, coef, first, start > 0))
            if not team.support.size:
                empty = np.zeros((team.machines.size, 0), np.float32)
                self.pieces.append(_BallotPiece(packed_rows(panels, team.support), empty, first, adds=False))
            order.append(team.machines)
            sizes[team.machines] += np.abs(team.coef).sum(axis=0)
            depth = max(depth, min(_TERMS, team.support.size) + groups_of(team.support.size) * ROWS // _TERMS)
        places = np.argsort(np.concatenate(order), kind="stable")
        self.one, *self.others = places.reshape(len(constants), -1).T  # every machine has as many teams: one, or two
        self.sizes = sizes[:, None]
        self.rounding = (depth + 8.0) * ROUNDING * (self.sizes + np.abs(constants)[:, None])

    @staticmethod
    def serves(vectors: Any, X: Any, kernel: Kernel) -> bool:
        """Whether there is one for these support vectors and rows."""
        dense = not (is_sparse(vectors) or is_sparse(X))
        return dense and _shape_serves(kernel) and X.shape[0] >= LANES and vectors.shape[0] > 0

    def _packed(self, X: FloatArray) -> tuple[Real, float]:
        """Panels in single precision, in units of the kernel, and the largest norm."""
        count = -(-len(X) // LANES)
        panels, squares = np.empty((count, self.width, LANES), np.float32), np.empty(count * LANES)
        factor = float(np.sqrt(self.shape.scale)) if self.rbf else float(self.shape.scale)
        packing.pack_panels(X, np.arange(len(X)), self.centre, factor, 0, count, panels, squares)
        norms = np.sqrt(squares) if self.rbf else np.abs(panels).sum(axis=1, dtype=np.float64)
        return panels, float(norms.max(initial=0.0))

    def choose(self, X: FloatArray, exactly: Callable[[FloatArray], FloatArray], n_threads: int) -> IntArray:
        """The class of every row, as a place among the classes; `exactly` gives the values of the machines at some rows."""
        places, is_open = np.empty(len(X), np.int64), np.zeros(len(X), np.bool_)
        size = _PANELS * LANES

        def run(first: int, last: int) -> None:
            room, sums = self._room(size)
            for start in range(first * size, last * size, size):
                stop = min(start + size, len(X))
                self._vote(X[start:stop], room, sums, places[start:stop], is_open[start:stop])

        count = -(-len(X) // size)
        with one_blas_thread, np.errstate(over="ignore", invalid="ignore"):
            run(0, 1)
            if is_open.mean() * len(X) > _MANY_OPEN * min(size, len(X)):
                is_open[:] = True
            else:
                work = float(sum(len(piece.rows) * ROWS for piece in self.pieces)) * len(X) * self.width
                split(lambda a, b: run(a + 1, b + 1), count - 1, work, n_threads)
        left = np.flatnonzero(is_open)
        if left.size:
            places[left] = self.division.choose(exactly(X[left]))
        return places

    def _room(self, size: int) -> tuple[Real, Real]:
        """Room for kernel values with so many rows, and for the sums of every team."""
        teams = 1 + len(self.others)
        return np.empty(_TERMS * size, np.float32), np.empty((self.one.size * teams, size), np.float32)

    def _vote(self, X: FloatArray, room: Real, sums: Real, places: IntArray, is_open: Any) -> None:
        """The classes of some rows, and which of them are not proved. In place: all but X."""
        values, bound = self._values(X, room, sums)
        if values is None:
            is_open[:] = True
            return
        places[:] = self.division.choose(values.T)
        by_sign = self.division.strategy == "ovo"
        some = np.flatnonzero((np.abs(values) <= bound).any(axis=0)) if by_sign else np.arange(len(X))
        values = values[:, some]
        possible = self.division.possible((values - bound).T, (values + bound).T)
        is_open[some] = np.count_nonzero(possible, axis=1) > 1

    def _values(self, X: FloatArray, room: Real, sums: Real) -> tuple[Real | None, Real]:
        """The values of the machines (rows) at some points, and how far they may be off; None where that is far."""
        panels, largest = self._packed(X)
        error = exponential_error(self.width, max(largest, self.largest))
        bound = (_SLACK * (error * self.sizes + self.rounding)).astype(np.float32)
        if not error <= _COARSE:
            return None, bound
        columns = panels.shape[0] * LANES
        for piece in self.pieces:
            count = len(piece.rows) * ROWS
            values = room[: count * columns].reshape(count, columns)
            loops.store_block(self.shape, piece.rows, panels, False, 0, len(panels), values)
            own = sums[piece.first : piece.first + len(piece.coef), :columns]
            if piece.adds:
                own += piece.coef @ values
            else:
                np.matmul(piece.coef, values, out=own)
        values = sums[self.one, : len(X)]
        for other in self.others:
            values += sums[other, : len(X)]
        values += self.constants
        return values, bound
