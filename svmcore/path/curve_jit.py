"""Values of the variables at successive knots of a path, as a matrix over those that change. And where rows change sign."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._jit import jit
from svmcore._types import FloatArray, IntArray


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


class Chords(NamedTuple):
    """Successive knots: what a path is there, and how far lambda f is from its chords.

    `ends` are the places, among these knots, of the ends of the chords.
    """

    at: FloatArray
    level: FloatArray  # what all rows have in common of lambda f: the bias, and what the kernel's offset adds
    values: FloatArray  # knot x member
    chord: FloatArray  # (reach, shift)
    ends: IntArray


class Changes(NamedTuple):
    """Room for changes of sign: lambda, the row, and whether the row is positive at smaller lambda."""

    at: FloatArray
    row: IntArray
    positive: np.ndarray


@jit
def changing(replay, first, last, members, count):
    """Find the variables that are on the elbow, or change sides, from knot `first` to `last`. Returns their number.

    `count` says at how many of these knots each of them is on the elbow. In place: members, count, replay.place.
    """
    n = 0
    for k in range(first, last + 1):
        for e in range(replay.offset[k], replay.offset[k + 1]):
            i = replay.index[e]
            if replay.place[i] < 0:
                replay.place[i] = n
                members[n] = i
                count[n] = 0
                n += 1
            count[replay.place[i]] += 1
    for e in range(replay.knot_events[first], replay.knot_events[last]):
        i = replay.event_index[e]
        if replay.place[i] < 0:
            replay.place[i] = n
            members[n] = i
            count[n] = 0
            n += 1
    return n


@jit
def play(replay, first, last, members, n, out):
    """Write the values of the members at the knots: row k of `out` is knot first + k.

    In place: out, replay.side, replay.beta, replay.place.
    """
    for j in range(n):
        out[0, j] = replay.beta[members[j]]
    for k in range(first + 1, last + 1):
        for e in range(replay.knot_events[k - 1], replay.knot_events[k]):
            replay.side[replay.event_index[e]] = replay.event_to[e]
        row = out[k - first]
        for j in range(n):
            i = members[j]
            row[j] = replay.bounds[min(replay.side[i], 1), i]
        for e in range(replay.offset[k], replay.offset[k + 1]):
            i = replay.index[e]
            row[replay.place[i]] = min(max(replay.value[e], replay.bounds[0, i]), replay.bounds[1, i])
    for j in range(n):
        i = members[j]
        replay.beta[i] = out[last - first, j]
        replay.place[i] = -1


@jit
def farthest(chord, first, last):
    """The largest reach and shift strictly between two knots."""
    reach = 0.0
    shift = 0.0
    for k in range(first + 1, last):
        reach = max(reach, chord[k, 0])
        shift = max(shift, chord[k, 1])
    return reach, shift


@jit(sums=True)
def value_from(values, k, first, kernel):
    """What members add to a row by having moved since the knot `first`: the sum of (values[k] - values[first]) kernel."""
    total = 0.0
    now, before = values[k], values[first]
    for j in range(kernel.shape[0]):
        total += (now[j] - before[j]) * kernel[j]
    return total


@jit
def write_change(changes, n, row, before, after, high, low):
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


@jit
def sign_changes(chords, lam_f, K, roots, rounding, changes):
    """Write where rows change their sign. Returns (how many changes, how many rows were looked at between ends).

    `lam_f` holds the values at the ends, and `K` is the kernel between rows and members. There may be more changes than room.
    In place: changes, as far as there is room.
    """
    n = 0
    looked_at = 0
    for j in range(chords.ends.shape[0] - 1):
        first, last = chords.ends[j], chords.ends[j + 1]
        reach, shift = farthest(chords.chord, first, last)
        for i in range(K.shape[0]):
            before, after = lam_f[j, i], lam_f[j + 1, i]
            room = min(abs(before), abs(after)) - shift - rounding * abs(before)
            if (before > 0.0) == (after > 0.0) and (last == first + 1 or room > roots[i] * reach):
                continue
            value = before
            looked_at += last > first + 1
            for k in range(first + 1, last):
                moved = value_from(chords.values, k, first, K[i])
                now = before + (chords.level[k] - chords.level[first]) + moved
                n = write_change(changes, n, i, value, now, chords.at[k - 1], chords.at[k])
                value = now
            n = write_change(changes, n, i, value, after, chords.at[last - 1], chords.at[last])
    return n, looked_at
