"""lambda f of other rows, followed down a path.

Between two knots lambda f is linear in lambda. From one knot to the next few variables move. So it takes one product with
few kernel values to know lambda f at the next knot.

The path is worked through in legs. A leg holds the kernel values between some rows and the variables that move in it. A
short path is one leg. If the work must stop early, what was done covers a part of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._types import FloatArray, IntArray
from svmcore.path import curve_jit
from svmcore.path.cross import Cross
from svmcore.path.values import replay

_MOST = 2048
"""A long leg has at most so many knots: twice as many as points are on the margin."""
_AT_ONCE = 1 << 19
"""A leg may have so many knots times rows, however few points are on the margin."""
_MOVES = 1 << 21
"""A leg has at most about so many moves."""
_SPARSE = 8
"""Moves are added one by one where fewer than one in so many members moves at a stretch. Else one product is faster."""
_BLOCK = 1 << 23
"""So many kernel values, or values of rows at knots, are held at most."""
_PIECE = 1 << 26
"""So many kernel values times features are computed between two looks at the clock."""


class Leg(NamedTuple):
    """The knots `first` to `last`: what moves there, and what all rows have in common. A member is a variable, or a point."""

    first: int
    last: int
    members: IntArray
    moves: curve_jit.Moves
    level: FloatArray


class Follower:
    """lambda f of some rows of `cross`, followed down the path. With `whole` the level of the targets is a part of f."""

    def __init__(self, path: Any, cross: Cross, rows: IntArray | None = None, *, whole: bool = True) -> None:
        self.track, self.cross = path._track, cross
        self.rows = np.arange(cross.n) if rows is None else rows
        self.at = np.ascontiguousarray(path._track.knot[:, 0])
        self.bias = path._track.knot[:, 1] + (path._data.form.level if whole else 0.0) * self.at
        self.offset = 0.0 if path._data.equality else path._data.spec.kernel.offset
        self.replay = replay(path)
        self.twins = path._data.n_groups if path._data.form.twins else 0
        self.done = 0
        self.lam_f = np.empty(self.rows.size)
        self.members, self.new = np.empty(self.replay.beta.size, dtype=np.int64), np.empty(self.replay.beta.size)

    @property
    def last(self) -> int:
        """The last knot."""
        return self.at.size - 1

    def start(self, control: Control | None = None) -> None:
        """Compute lambda f at the first knot."""
        beta = self.replay.beta
        support = beta.nonzero()[0]
        step = max(1, _PIECE // max(1, support.size * (4 + self.cross.width)))
        for begin in range(0, self.rows.size, step):
            if control is not None:
                control.demand()
            some = self.rows[begin : begin + step]
            self.lam_f[begin : begin + step] = self.cross.values(some, support, beta[support])
        self.lam_f += self.bias[0] + self.offset * float(beta.sum())

    def leg(self, ends: IntArray | None = None) -> Leg:
        """The next leg, which ends at one of `ends`."""
        track, first = self.track, self.done
        elbow = int(track.offset[first + 1] - track.offset[first])
        length = max(min(2 * elbow, _MOST), _AT_ONCE // max(1, self.rows.size), 1)
        full = int(np.searchsorted(track.offset, track.offset[first] + _MOVES, side="right")) - 2
        last = min(first + length, max(full, first + 1), self.last)
        if ends is not None:
            place = int(np.searchsorted(ends, last, side="right")) - 1
            last = int(ends[place] if ends[place] > first else ends[place + 1])
        if self.cross.few:  # a matrix of all is read as it is
            members = variables = np.arange(self.new.size)
            self.replay.place[:] = members
        else:
            n = int(curve_jit.changing(self.replay, first, last, self.members))
            members = variables = self.members[:n].copy()
        if self.twins:  # both variables of a point have the same kernel values
            members, self.replay.place[variables] = np.unique(variables % self.twins, return_inverse=True)
        most = 2 * int(track.offset[last + 1] - track.offset[first])
        most += int(track.knot_events[last] - track.knot_events[first])
        moves = curve_jit.Moves(
            np.empty(last - first + 1, dtype=np.int64), np.empty(most, dtype=np.int64), np.empty(most)
        )
        many = int(curve_jit.play(self.replay, first, last, variables, self.new, moves))
        level = self.bias[first : last + 1]
        if self.offset:
            level = level + self.offset * np.concatenate([[0.0], np.cumsum(moves.by[:many])])[moves.begin]
        return Leg(first, last, members, moves, level)

    def blocks(self, leg: Leg, each: int, go_on: Callable[[], bool]) -> Iterator[tuple[slice, FloatArray | None]]:
        """The rows, some at a time, and their kernel values in a leg. A row needs `each` values more.

        There are no kernel values where the work must stop.
        """
        columns, width = self.cross.columns(leg.members), leg.members.size
        step = max(1, _BLOCK // max(1, width, each))
        for start in range(0, self.rows.size, step):
            some = self.rows[start : start + step]
            yield slice(start, start + some.size), self._kernel(some, columns, width, go_on)

    def _kernel(self, rows: IntArray, columns: Any, width: int, go_on: Callable[[], bool]) -> FloatArray | None:
        """Kernel values of some rows. They are computed in pieces. None when the work must stop."""
        step = max(1, _PIECE // (max(1, width) * (4 + self.cross.width)))
        if step >= rows.size:
            return np.ascontiguousarray(self.cross.block(rows, columns)) if go_on() else None
        out = np.empty((rows.size, width))
        for begin in range(0, rows.size, step):
            if not go_on():
                return None
            out[begin : begin + step] = self.cross.block(rows[begin : begin + step], columns)
        return out

    def values(self, leg: Leg, some: slice, K: FloatArray, ways: FloatArray) -> FloatArray:
        """lambda f of some rows at all knots of a leg, a row for each knot. They are at its last knot then.

        `ways` is what `ways_of` says of the leg.
        """
        out = np.empty((leg.level.size, K.shape[0]))
        if ways.size:
            out[0] = 0.0
            np.matmul(ways, K.T, out=out[1:])
            out += (leg.level - leg.level[0])[:, None]
            out += self.lam_f[some]
        else:
            out[0] = self.lam_f[some]
            curve_jit.follow_rows(leg.moves, leg.level, K, np.empty((leg.members.size, curve_jit.TILE)), out)
        self.lam_f[some] = out[-1]
        return out


def is_dense(moves: curve_jit.Moves, width: int) -> bool:
    """Whether so many members move that a matrix of moves is faster than sparse passes."""
    return int(moves.begin[-1]) * _SPARSE > (moves.begin.size - 1) * width


def dense(moves: curve_jit.Moves, width: int) -> FloatArray:
    """Moves as a matrix with a row for each stretch. It is empty where sparse passes are faster."""
    if not is_dense(moves, width):
        return np.empty((0, 0))
    many, stretches = int(moves.begin[-1]), moves.begin.size - 1
    place = np.repeat(width * np.arange(stretches), np.diff(moves.begin)) + moves.member[:many]
    out: FloatArray = np.bincount(place, moves.by[:many], stretches * width).astype(np.float64, copy=False)
    return out.reshape(stretches, width)


def ways_of(leg: Leg) -> FloatArray:
    """How far each member has moved at each knot but the first. It is empty where sparse passes are faster."""
    if not is_dense(leg.moves, leg.members.size):
        return np.empty((0, 0))
    out = np.empty((leg.moves.begin.size - 1, leg.members.size))
    curve_jit.add_up(leg.moves, out)
    return out


def values_at_knots(path: Any, cross: Cross, rows: IntArray | None = None) -> Iterator[tuple[FloatArray, FloatArray]]:
    """lambda, and lambda f of some rows, at successive knots of a path: a row for each knot. The first knot comes alone."""
    follower = Follower(path, cross, rows)
    follower.start()
    yield follower.at[:1], follower.lam_f[None].copy()
    while follower.done < follower.last:
        leg = follower.leg()
        blocks = follower.blocks(leg, leg.level.size, lambda: True)
        ways = ways_of(leg)
        parts = [follower.values(leg, some, K, ways) for some, K in blocks if K is not None]
        follower.done = leg.last
        yield follower.at[leg.first + 1 : leg.last + 1], np.concatenate(parts, axis=1)[1:]
