"""Several classes: from the paths of all machines of a fold to the class of every validation row at every C.

One-vs-one: a row's votes change where one of its decision values changes its sign. One-vs-rest: between two knots of all
paths lambda f(x) of every machine is linear in lambda, so that the largest changes where two lines meet. Both are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.base.threads import one_blas_thread
from svmcore.cv.curves import Decisions
from svmcore.models.step_curve import StepCurve, steps
from svmcore.path.cross import Cross
from svmcore.path.follower import values_at_knots
from svmcore.path.problem import idle_sides
from svmcore.path.result import Path
from svmcore.problem.division import Division

_EVENTS = 1 << 20  # looked at together
_VALUES = 1 << 23  # decision values held, of all knots of some rows
_STRETCHES = 1 << 20  # decision values compared together
_TIE = 1e-12  # values that are nearer are equal, relative to the largest


# ---- one-vs-one ------------------------------------------------------------------------------------------------------


def voted(decisions: Sequence[Decisions], division: Division) -> Decisions:
    """The class with most votes, given the decisions of every machine."""
    votes = division.votes(np.stack([d.start - 0.5 for d in decisions], axis=1))
    start = np.asarray(np.argmax(votes, axis=1))
    row = np.concatenate([d.row for d in decisions])
    C = np.concatenate([d.C for d in decisions])
    change = np.concatenate([d.to - d.origin() for d in decisions])
    plus = np.concatenate([np.full(d.row.size, p.plus[0]) for d, p in zip(decisions, division.parts, strict=True)])
    minus = np.concatenate([np.full(d.row.size, p.minus[0]) for d, p in zip(decisions, division.parts, strict=True)])
    order = np.lexsort((C, row))
    row, C, change, plus, minus = (values[order] for values in (row, C, change, plus, minus))
    to = np.empty(row.size, dtype=np.int64)
    begin = 0
    while begin < row.size:  # whole rows, some at a time
        stop = int(np.searchsorted(row, row[min(begin + _EVENTS, row.size) - 1], side="right"))
        part = np.arange(stop - begin)
        moved = np.zeros((part.size, division.n_classes), dtype=np.int64)
        np.add.at(moved, (part, plus[begin:stop]), change[begin:stop])
        np.add.at(moved, (part, minus[begin:stop]), -change[begin:stop])
        total = np.cumsum(moved, axis=0)
        own = row[begin:stop]
        first = np.searchsorted(own, own, side="left")
        before = np.where((first > 0)[:, None], total[first - 1], 0)
        to[begin:stop] = np.argmax(votes[own] + total - before, axis=1)
        begin = stop
    return _in_turn(start, row, C, to)


def _in_turn(start: IntArray, row: IntArray, C: FloatArray, to: IntArray) -> Decisions:
    """Decisions from what rows become, sorted by row and C: without what changes nothing."""
    last = np.concatenate([(row[1:] != row[:-1]) | (C[1:] > C[:-1]), np.ones(min(1, row.size), dtype=bool)])
    row, C, to = row[last], C[last], to[last]
    first = np.concatenate([np.ones(min(1, row.size), dtype=bool), row[1:] != row[:-1]])
    before = np.where(first, start[row], np.concatenate([to[:1], to[:-1]]))
    row, C, to = (values[to != before] for values in (row, C, to))
    order = np.argsort(C, kind="stable")
    return Decisions(start, C[order], row[order], to[order])


# ---- one-vs-rest -----------------------------------------------------------------------------------------------------


class PathPiece(NamedTuple):
    """A path, and the kernel between validation rows and its variables; it is looked at below lambda = `high`."""

    path: Path
    cross: Cross
    high: float = np.inf


class ValueLines(NamedTuple):
    """lambda f of some rows at the knots of a machine, decreasing; linear between, and with a slope above the first."""

    at: FloatArray
    F: FloatArray
    slope: float

    def ends(self, high: FloatArray, low: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values at both ends of stretches that hold no knot inside: two matrices, a row per stretch."""
        middle = 0.5 * (high + low)
        after = np.clip(np.searchsorted(-self.at, -middle), 1, max(1, self.at.size - 1))
        after = np.minimum(after, self.at.size - 1)
        before = np.maximum(after - 1, 0)
        width = self.at[before] - self.at[after]
        above = middle >= self.at[0]
        out = []
        for at in (high, low):
            share = np.divide(self.at[before] - at, width, out=np.zeros_like(at), where=width > 0.0)
            share = np.where(above, 0.0, share)[:, None]
            values = self.F[before] * (1.0 - share)
            values += self.F[after] * share
            if above.any():
                values[above] = self.F[0] + self.slope * (at[above] - self.at[0])[:, None]
            out.append(values)
        return out[0], out[1]


@one_blas_thread
def largest(machines: Sequence[Sequence[PathPiece]], C_min: float) -> Decisions:
    """The class whose machine has the largest value; every machine is given by its pieces, from the smallest C on."""
    n = machines[0][0].cross.n
    knots = sum(int(piece.path._track.knot.shape[0]) for pieces in machines for piece in pieces)
    step = max(1, _VALUES // knots)
    found = []
    for begin in range(0, n, step):
        rows = np.arange(begin, min(begin + step, n))
        found.append((begin, _leaders([_lines(pieces, rows) for pieces in machines], C_min)))
    start = np.concatenate([each.start for _, each in found])
    row = np.concatenate([begin + each.row for begin, each in found])
    C = np.concatenate([each.C for _, each in found])
    order = np.argsort(C, kind="stable")
    return Decisions(start, C[order], row[order], np.concatenate([each.to for _, each in found])[order])


def _lines(pieces: Sequence[PathPiece], rows: IntArray) -> ValueLines:
    """All knots of a machine."""
    ats, values = [], []
    for path, cross, high in pieces:
        at, F = (np.concatenate(parts) for parts in zip(*values_at_knots(path, cross, rows), strict=True))
        keep = at < high
        if high < np.inf:  # what holds at the border, too
            first = ValueLines(at, F, path._track.bias_slope)
            border = first.ends(np.array([high]), np.array([high]))[0]
            F, at = np.concatenate([border, F[keep]]), np.concatenate([[high], at[keep]])
        ats.append(at)
        values.append(F)
    slope = pieces[0].path._track.bias_slope if pieces[0].high == np.inf else 0.0
    return ValueLines(np.concatenate(ats), np.concatenate(values), slope)


def _leaders(machines: Sequence[ValueLines], C_min: float) -> Decisions:
    """The machine with the largest value, of some rows, from `C_min` on."""
    top = max(float(lines.at[0]) for lines in machines)
    low = max(float(lines.at[-1]) for lines in machines)
    knots = np.unique(np.concatenate([[top, low], *(lines.at for lines in machines)]))[::-1]
    knots = knots[(knots >= low) & (knots <= top)]
    n, k = machines[0].F.shape[1], len(machines)
    turns: list[Turns] = []
    if C_min < 1.0 / top:  # from C = 0 on: f is linear in C
        ends = [lines.ends(np.array([2.0 * top]), np.array([top])) for lines in machines]
        right = np.stack([end[1] for end in ends]) / top
        left = np.stack([end[0] for end in ends]) / (2.0 * top)
        zero = 2.0 * left - right  # at C = 0
        now, new = _walk(zero, right, np.array([0.0]), np.array([1.0 / top]), None, in_C=True)
        turns.append(new)
        # Which value is largest for the smallest C of all is decided by the slopes: it is a turn at C = 0 itself.
        start = now[0]
        at_zero = new.C <= 0.0
        start[new.row[at_zero]] = new.to[at_zero]  # in order: the last one wins
        previous = new.end
    else:
        start = previous = None
    step = max(1, _STRETCHES // (n * k))
    for first in range(0, knots.size - 1, step):
        high, lows = knots[first : first + step + 1][:-1], knots[first : first + step + 1][1:]
        ends = [lines.ends(high, lows) for lines in machines]
        left, right = np.stack([end[0] for end in ends]), np.stack([end[1] for end in ends])
        now, new = _walk(left, right, high, lows, previous, in_C=False)
        turns.append(new)
        start = now[0].copy() if start is None else start
        previous = new.end
    if start is None:  # a single knot, and nothing above it
        start = _first(np.stack([lines.ends(knots[:1], knots[:1])[0] for lines in machines]))[0]
    C = np.concatenate([turn.C for turn in turns] or [np.empty(0)])
    row = np.concatenate([turn.row for turn in turns] or [np.empty(0, dtype=np.int64)])
    to = np.concatenate([turn.to for turn in turns] or [np.empty(0, dtype=np.int64)])
    order = np.lexsort((C, row))  # stable: turns of a row at one C stay in their order
    return _in_turn(start, row[order], C[order], to[order])


class Turns(NamedTuple):
    """What rows become at which C, in the order of things for every row; and what they are in the end."""

    C: FloatArray
    row: IntArray
    to: IntArray
    end: IntArray


def _scale(values: FloatArray) -> FloatArray:
    """What counts as a tie in every stretch (second axis)."""
    return np.asarray(_TIE * np.abs(values).max(axis=(0, 2), initial=0.0))


def _first(values: FloatArray) -> IntArray:
    """The first of the largest along the first axis."""
    return np.asarray(np.argmax(values >= values.max(axis=0) - _scale(values)[:, None], axis=0))


def _walk(
    left: FloatArray, right: FloatArray, begin: FloatArray, end: FloatArray, previous: Any, in_C: bool
) -> tuple[IntArray, Turns]:
    """Along stretches (second axis) on which the values of all machines (first axis) are linear.

    Ends are values of lambda, or of C (`in_C`). The leaders where every stretch begins, and the turns.
    """
    before, after = _first(left), _first(right)
    Cs, rows, tos, keys = [], [], [], []

    def add(stretch: IntArray, share: FloatArray, row: IntArray, to: IntArray, turn: int) -> None:
        at = begin[stretch] + share * (end[stretch] - begin[stretch])
        Cs.append(at if in_C else 1.0 / at)
        rows.append(row)
        tos.append(to)
        keys.append(stretch * (left.shape[0] + 2) + turn)

    came = np.concatenate([(before[:1] if previous is None else previous[None]), after[:-1]])
    stretch, row = np.nonzero(before != came)
    add(stretch, np.zeros(stretch.size), row, before[stretch, row], 0)
    stretch, row = np.nonzero(before != after)
    A, B, now = left[:, stretch, row].T, right[:, stretch, row].T, before[stretch, row]
    tie = np.maximum(_scale(left), _scale(right))[stretch, None]
    goal, turn = after[stretch, row], 0
    while stretch.size:
        turn += 1
        each = np.arange(stretch.size)
        ahead, behind = A[each, now][:, None] - A, B - B[each, now][:, None]
        ahead[np.abs(ahead) <= tie] = 0.0
        overtakes = behind > tie
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(overtakes, np.clip(ahead / (ahead + behind), 0.0, 1.0), np.inf)
        soonest = share.min(axis=1)
        last = ~np.isfinite(soonest)
        share_now = np.where(last, 1.0, soonest)
        nearest = np.where(share <= soonest[:, None], B, -np.inf)
        to = np.where(last, goal, np.argmax(nearest, axis=1))
        add(stretch, share_now, row, to, turn)
        left_over = to != goal
        stretch, row, A, B, goal, now, tie = (v[left_over] for v in (stretch, row, A, B, goal, to, tie))
    key = np.concatenate(keys)
    order = np.argsort(key, kind="stable")
    turned = Turns(np.concatenate(Cs)[order], np.concatenate(rows)[order], np.concatenate(tos)[order], after[-1])
    return before, turned


# ---- support vectors -------------------------------------------------------------------------------------------------


def support_of_all(paths: Sequence[tuple[Path, IntArray]], n: int, ratio: float) -> StepCurve:
    """The number of rows that are a support vector of any of the machines, over C / ratio; `paths` with their rows."""
    count = np.zeros(n, dtype=np.int64)
    rows, Cs, changes = [], [], []
    for path, own in paths:
        track, of = path._track, path._data.groups.of
        idle = idle_sides(path._problem)
        there = np.flatnonzero(of >= 0)
        groups = path._data.n_groups  # a point may own two variables
        count[own[there]] += (track.side0 != idle).reshape(-1, groups).sum(axis=0)[of[there]]
        change = (track.event_move[:, 0] == idle[track.event_index]).astype(np.int64) - (
            track.event_move[:, 1] == idle[track.event_index]
        )
        real = np.flatnonzero(change)
        of_variable = there[np.argsort(of[there], kind="stable")]  # the rows of each variable, one after the other
        size = path._data.groups.count[:groups]
        first = np.concatenate([[0], np.cumsum(size)[:-1]])
        moved = track.event_index[real] % groups
        times = size[moved]
        place = np.repeat(first[moved] - (np.cumsum(times) - times), times) + np.arange(times.sum())
        rows.append(own[of_variable[place]])
        Cs.append(np.repeat(1.0 / track.event_lambda[real], times))
        changes.append(np.repeat(change[real], times))
    row, C, change = np.concatenate(rows), np.concatenate(Cs), np.concatenate(changes)
    order = np.lexsort((C, row))
    row, C, change = row[order], C[order], change[order]
    total = np.cumsum(change)
    first_of = np.searchsorted(row, row, side="left")
    in_use = count[row] + total - np.where(first_of > 0, total[first_of - 1], 0)
    used = _in_turn((count > 0).astype(np.int64), row, C, (in_use > 0).astype(np.int64))
    low, high = max(path.C_range[0] for path, _ in paths), min(path.C_range[1] for path, _ in paths)
    begin = float(np.count_nonzero(count))
    return steps(used.C / ratio, np.where(used.to > 0, 1.0, -1.0), begin, 1.0, (low / ratio, high / ratio))
