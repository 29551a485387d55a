"""How the variables of a path move from knot to knot, and what that does to lambda f of other rows, and to its sign."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.simd.loops import add_rows
from svmcore.simd.sums import dot

TILE = 64
"""So many rows are followed together. Their kernel values stand side by side."""


class Replay(NamedTuple):
    """A path's record, and the variables at the knot to which it was played. Between two calls all of `place` is -1."""

    knot_events: IntArray
    event_index: IntArray
    event_to: np.ndarray
    offset: IntArray
    index: np.ndarray  # type: ignore[assignment]
    value: FloatArray
    bounds: FloatArray  # lower ends, upper ends
    side: np.ndarray
    beta: FloatArray
    place: IntArray


class Moves(NamedTuple):
    """What moves: at stretch k member ``member[e]`` moves ``by[e]``, for e from ``begin[k]`` to ``begin[k + 1]``."""

    begin: IntArray
    member: IntArray
    by: FloatArray


class Chords(NamedTuple):
    """Successive knots: what a path is there, and how far lambda f is from its chords.

    `ends` are the places, among these knots, of the ends of the chords.
    """

    at: FloatArray
    level: FloatArray  # what all rows have in common of lambda f: the bias, and what the kernel's offset adds
    chord: FloatArray  # (reach, shift)
    ends: IntArray


class Changes(NamedTuple):
    """Room for changes of sign: lambda, the row, and whether the row is positive at smaller lambda."""

    at: FloatArray
    row: IntArray
    positive: np.ndarray


# ---- the variables -----------------------------------------------------------------------------------------------


@jit
def changing(replay, first, last, members):
    """Find the variables that are on the elbow, or change sides, from knot `first` to `last`. Returns their number.

    In place: members, replay.place.
    """
    n = 0
    for e in range(replay.offset[first], replay.offset[last + 1]):
        i = replay.index[e]
        if replay.place[i] < 0:
            replay.place[i] = n
            members[n] = i
            n += 1
    for e in range(replay.knot_events[first], replay.knot_events[last]):
        i = replay.event_index[e]
        if replay.place[i] < 0:
            replay.place[i] = n
            members[n] = i
            n += 1
    return n


@jit
def look_ahead(replay, now, k, new):
    """Go on from one knot to a later one. Write the values of all variables that may differ. In place: replay.side, new."""
    for e in range(replay.knot_events[now], replay.knot_events[k]):
        replay.side[replay.event_index[e]] = replay.event_to[e]
    for e in range(replay.knot_events[now], replay.knot_events[k]):
        i = replay.event_index[e]
        new[i] = replay.bounds[min(replay.side[i], 1), i]
    for e in range(replay.offset[now], replay.offset[now + 1]):
        i = replay.index[e]
        new[i] = replay.bounds[min(replay.side[i], 1), i]
    for e in range(replay.offset[k], replay.offset[k + 1]):
        i = replay.index[e]
        new[i] = min(max(replay.value[e], replay.bounds[0, i]), replay.bounds[1, i])


@jit
def skip_to(replay, now, k, new):
    """Go on from one knot to a later one. In place: new, replay.side, replay.beta."""
    look_ahead(replay, now, k, new)
    for e in range(replay.knot_events[now], replay.knot_events[k]):
        replay.beta[replay.event_index[e]] = new[replay.event_index[e]]
    for e in range(replay.offset[now], replay.offset[now + 1]):
        replay.beta[replay.index[e]] = new[replay.index[e]]
    for e in range(replay.offset[k], replay.offset[k + 1]):
        replay.beta[replay.index[e]] = new[replay.index[e]]


@jit
def values_at(replay, now, knots, new, out):
    """Go on from knot `now`, and write the variables at some knots, in increasing order. In place: out, new, replay."""
    for row in range(knots.shape[0]):
        skip_to(replay, now, knots[row], new)
        now = knots[row]
        for i in range(replay.beta.shape[0]):
            out[row, i] = replay.beta[i]


@jit
def _book(replay, i, new, moves, n):
    """If variable i has a new value, write down its move. Returns the number of moves. In place: replay.beta, moves."""
    by = new[i] - replay.beta[i]
    if by != 0.0:
        replay.beta[i] = new[i]
        moves.member[n] = replay.place[i]
        moves.by[n] = by
        n += 1
    return n


@jit
def play(replay, first, last, members, new, moves):
    """Write how the members move from knot to knot. Returns the number of moves.

    In place: moves, new, replay.side, replay.beta, replay.place.
    """
    n = 0
    moves.begin[0] = 0
    for k in range(first + 1, last + 1):
        look_ahead(replay, k - 1, k, new)
        for e in range(replay.knot_events[k - 1], replay.knot_events[k]):
            n = _book(replay, replay.event_index[e], new, moves, n)
        for e in range(replay.offset[k - 1], replay.offset[k + 1]):
            n = _book(replay, replay.index[e], new, moves, n)
        moves.begin[k - first] = n
    for j in range(members.shape[0]):
        replay.place[members[j]] = -1
    return n


@jit
def join(moves, ends, total, out):
    """Write how the members move from end to end. `total` is zero for all members, and stays so. In place: out."""
    n = 0
    out.begin[0] = 0
    for c in range(ends.shape[0] - 1):
        first, last = moves.begin[ends[c]], moves.begin[ends[c + 1]]
        for e in range(first, last):
            total[moves.member[e]] += moves.by[e]
        for e in range(first, last):
            j = moves.member[e]
            if total[j] != 0.0:
                out.member[n] = j
                out.by[n] = total[j]
                total[j] = 0.0
                n += 1
        out.begin[c + 1] = n


@jit
def add_up(moves, out):
    """Write how far each member has moved after each stretch, a row for each. In place: out."""
    for k in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[k, j] = out[k - 1, j] if k > 0 else 0.0
        for e in range(moves.begin[k], moves.begin[k + 1]):
            out[k, moves.member[e]] += moves.by[e]


# ---- rows --------------------------------------------------------------------------------------------------------


@jit
def _turn(K, start, stop, tile):
    """Write the kernel values of some rows side by side: tile[j, r] = K[start + r, j]. In place: tile."""
    for r in range(stop - start):
        row = K[start + r]
        for j in range(row.shape[0]):
            tile[j, r] = row[j]


@jit
def _move(moves, k, tile, value):
    """Take the rows of a tile through stretch k. In place: value."""
    first, last = moves.begin[k], moves.begin[k + 1]
    add_rows(tile, moves.member[first:last], moves.by[first:last], 0, value.shape[0], value)


@jit
def follow_rows(moves, level, K, tile, out):
    """Write the values of some rows at successive knots: row k of `out` is knot k. Row 0 is there. In place: out, tile."""
    for start in range(0, K.shape[0], TILE):
        stop = min(start + TILE, K.shape[0])
        _turn(K, start, stop, tile)
        for k in range(level.shape[0] - 1):
            now = out[k + 1, start:stop]
            step = level[k + 1] - level[k]
            for r in range(stop - start):
                now[r] = out[k, start + r] + step
            _move(moves, k, tile, now)


@jit
def farthest(chord, first, last):
    """The largest reach and shift strictly between two knots."""
    reach = 0.0
    shift = 0.0
    for k in range(first + 1, last):
        reach = max(reach, chord[k, 0])
        shift = max(shift, chord[k, 1])
    return reach, shift


@jit
def _write_change(changes, n, row, before, after, high, low):
    """If a row changes its sign between `high` and `low`, write where. The row's value is linear there.

    Returns the number of changes so far. In place: changes, as far as there is room.
    """
    if (before > 0.0) == (after > 0.0):
        return n
    if n < changes.at.shape[0]:
        changes.at[n] = high + before / (before - after) * (low - high)
        changes.row[n] = row
        changes.positive[n] = after > 0.0
    return n + 1


@jit(sums=True)
def _moved(moves, k, kernel):
    """What the moves of stretch k add to a row."""
    total = 0.0
    for e in range(moves.begin[k], moves.begin[k + 1]):
        total += moves.by[e] * kernel[moves.member[e]]
    return total


@jit
def _look_closely(chords, moves, every, first, last, kernel, row, before, after, changes, n):
    """Write where a row changes its sign between two ends, knot by knot. Returns the number of changes so far."""
    value = now = before
    for k in range(first, last - 1):
        now += chords.level[k + 1] - chords.level[k]
        now += dot(every[k], kernel, kernel.shape[0]) if every.shape[0] > 0 else _moved(moves, k, kernel)
        n = _write_change(changes, n, row, value, now, chords.at[k], chords.at[k + 1])
        value = now
    return _write_change(changes, n, row, value, after, chords.at[last - 1], chords.at[last])


@jit
def sign_changes(chords, joined, steps, moves, every, lam_f, K, roots, rounding, tile, changes, out):
    """Write where rows change their sign. Returns (how many changes, how many rows were looked at between ends).

    `lam_f` holds the values at the first knot, and `K` is the kernel between rows and members. `joined` are the moves
    from end to end. If `steps` is not empty, it says what they do to each row. If `every` is not empty, it holds `moves`
    as a matrix. `out` gets the values at the last knot. There may be more changes than room.
    In place: changes, as far as there is room, out, tile, whose last two rows are scratch.
    """
    n = looked_at = 0
    scratch = tile.shape[0] - 2
    for start in range(0, K.shape[0], TILE):
        stop = min(start + TILE, K.shape[0])
        if steps.shape[0] == 0:
            _turn(K, start, stop, tile)
        value, now = tile[scratch], tile[scratch + 1]
        for r in range(stop - start):
            value[r] = lam_f[start + r]
        for c in range(chords.ends.shape[0] - 1):
            first, last = chords.ends[c], chords.ends[c + 1]
            step = chords.level[last] - chords.level[first]
            for r in range(stop - start):
                now[r] = value[r] + step
            if steps.shape[0] == 0:
                _move(joined, c, tile, now[: stop - start])
            else:
                for r in range(stop - start):
                    now[r] += steps[c, start + r]
            reach, shift = farthest(chords.chord, first, last)
            for r in range(stop - start):
                before, after = value[r], now[r]
                room = min(abs(before), abs(after)) - shift - rounding * abs(before)
                same = (before > 0.0) == (after > 0.0)
                if not (same and (last == first + 1 or room > roots[start + r] * reach)):
                    looked_at += last > first + 1
                    n = _look_closely(
                        chords, moves, every, first, last, K[start + r], start + r, before, after, changes, n
                    )
                value[r] = after
        for r in range(stop - start):
            out[start + r] = value[r]
    return n, looked_at
