"""The log of a path, as compiled code writes it: events, and a knot at the end of each step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._jit import jit
from svmcore._types import FloatArray, IntArray

# Log.end
EVENTS, KNOTS, VALUES = range(3)


class Log(NamedTuple):
    """What happened: events, and a knot (t, bias, elbow and its values) at the end of each step. `end` holds counts."""

    event_t: FloatArray
    event_index: IntArray
    event_move: np.ndarray  # (old side, new side, cause)
    knot: FloatArray  # (t, bias)
    knot_at: IntArray  # (number of events before, number of values)
    index: np.ndarray  # type: ignore[assignment]
    value: FloatArray
    end: IntArray


@jit
def write_event(L, t, i, old, new, cause):
    """Append an event, for which there is room. In place: L."""
    k = L.end[EVENTS]
    L.event_t[k] = t
    L.event_index[k] = i
    L.event_move[k, 0] = old
    L.event_move[k, 1] = new
    L.event_move[k, 2] = cause
    L.end[EVENTS] = k + 1


@jit
def write_knot(L, t, bias, m):
    """Append a knot after all events logged so far: its m values stand behind the others already. In place: L."""
    k = L.end[KNOTS]
    L.knot[k, 0] = t
    L.knot[k, 1] = bias
    L.knot_at[k, 0] = L.end[EVENTS]
    L.knot_at[k, 1] = m
    L.end[KNOTS] = k + 1
    L.end[VALUES] += m
