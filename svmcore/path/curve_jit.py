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
def changing(R, first, last, members, count):
    """The variables that are on the elbow, or change sides, from knot `first` to `last`; returns their number.

    `count` tells at how many of these knots each is on the elbow. In place: members, count, R.place.
    """
    n = 0
    for k in range(first, last + 1):
        for e in range(R.offset[k], R.offset[k + 1]):
            i = R.index[e]
            if R.place[i] < 0:
                R.place[i] = n
                members[n] = i
                count[n] = 0
                n += 1
            count[R.place[i]] += 1
    for e in range(R.knot_events[first], R.knot_events[last]):
        i = R.event_index[e]
        if R.place[i] < 0:
            R.place[i] = n
            members[n] = i
            count[n] = 0
            n += 1
    return n


@jit
def play(R, first, last, members, n, out):
    """Row k of `out`: the members' values at knot first + k. In place: out, R.side, R.beta, R.place."""
    for j in range(n):
        out[0, j] = R.beta[members[j]]
    for k in range(first + 1, last + 1):
        for e in range(R.knot_events[k - 1], R.knot_events[k]):
            R.side[R.event_index[e]] = R.event_to[e]
        row = out[k - first]
        for j in range(n):
            i = members[j]
            row[j] = R.bounds[min(R.side[i], 1), i]
        for e in range(R.offset[k], R.offset[k + 1]):
            i = R.index[e]
            row[R.place[i]] = min(max(R.value[e], R.bounds[0, i]), R.bounds[1, i])
    for j in range(n):
        i = members[j]
        R.beta[i] = out[last - first, j]
        R.place[i] = -1
