"""The log of a path, as compiled code writes it. It holds events, and a knot at the end of each step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.compiler.jit import jit

# Log.end
EVENTS, KNOTS, VALUES = range(3)


class Log(NamedTuple):
    """Events, and a knot at the end of each step. A knot is t, the bias, the elbow and its values. `end` holds counts."""

    event_t: FloatArray
    event_index: IntArray
    event_move: np.ndarray  # (old side, new side, cause)
    knot: FloatArray  # (t, bias)
    chord: FloatArray  # (reach, shift), which `path/record.Track` explains
    knot_at: IntArray  # (number of events before it, number of its values)
    index: np.ndarray  # type: ignore[assignment]
    value: FloatArray
    end: IntArray


@jit
def write_event(log, t, i, old, new, cause):
    """Append an event. The caller has seen that there is room. In place: log."""
    k = log.end[EVENTS]
    log.event_t[k] = t
    log.event_index[k] = i
    log.event_move[k, 0] = old
    log.event_move[k, 1] = new
    log.event_move[k, 2] = cause
    log.end[EVENTS] = k + 1


@jit
def write_knot(log, t, bias, m):
    """Append a knot after all events so far. The caller has already written its m values behind the others. In place: log."""
    k = log.end[KNOTS]
    log.knot[k, 0] = t
    log.knot[k, 1] = bias
    log.chord[k, 0] = 0.0
    log.chord[k, 1] = 0.0
    log.knot_at[k, 0] = log.end[EVENTS]
    log.knot_at[k, 1] = m
    log.end[KNOTS] = k + 1
    log.end[VALUES] += m


@jit
def loosen_chord(log, reach, shift):
    """Note that the last knot is about to move by (reach, shift), and with it the chord that ends there. In place: log."""
    k = log.end[KNOTS] - 2
    while k >= 0 and log.chord[k, 0] > 0.0:
        log.chord[k, 0] += reach
        log.chord[k, 1] += shift
        k -= 1
