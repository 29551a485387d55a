"""Values of the variables at successive knots of a path, as a matrix over those that change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._jit import jit
from svmcore._types import FloatArray, IntArray


class Replay(NamedTuple):
    """A path's record, and the variables at the knot to which it was played. `place` is -1 wherever it is not in use."""

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


@jit
def changing(replay, first, last, members, count):
    """The variables that are on the elbow, or change sides, from knot `first` to `last`; returns their number.

    `count` tells at how many of these knots each is on the elbow. In place: members, count, replay.place.
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
    """Row k of `out`: the members' values at knot first + k. In place: out, replay.side, replay.beta, replay.place."""
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
