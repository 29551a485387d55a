"""The record of a path in the form that compiled code plays."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore.path import curve_jit
from svmcore.path.elbow_jit import LOW


def replay(path: Any) -> curve_jit.Replay:
    """The record of a path in the form that compiled code plays, at its first knot. A path is brought into it once."""
    track, first = path._track, path.__dict__.get("_first")
    if first is None or first[0] is not track:
        path._first = first = track, _replay(track, path._problem)
    record: curve_jit.Replay = first[1]
    side, beta = record.side.copy(), record.beta.copy()
    return record._replace(side=side, beta=beta, place=np.full(beta.size, -1, dtype=np.int64))


def _replay(track: Any, problem: Any) -> curve_jit.Replay:
    bounds = np.array([problem.lower, problem.upper])
    knot_events = np.ascontiguousarray(track.knot_events, dtype=np.int64)
    event_index = np.ascontiguousarray(track.event_index, dtype=np.int64)
    event_to = np.ascontiguousarray(track.event_move[:, 1], dtype=np.int8)
    offset = np.ascontiguousarray(track.offset, dtype=np.int64)
    index, value = np.ascontiguousarray(track.index, dtype=np.int32), np.ascontiguousarray(track.value)
    side = track.side0.astype(np.int8)
    before = int(knot_events[0])
    side[event_index[:before]] = event_to[:before]
    beta = np.where(side == LOW, bounds[0], bounds[1])
    on = index[: offset[1]]
    beta[on] = np.minimum(np.maximum(value[: offset[1]], bounds[0, on]), bounds[1, on])
    return curve_jit.Replay(knot_events, event_index, event_to, offset, index, value, bounds, side, beta, beta)
