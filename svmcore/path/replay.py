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
    return curve_jit.Replay(*record[:-3], side, beta, np.full(beta.size, -1, dtype=np.int64))


def keep_record(path: Any, track: Any) -> None:
    """Take the record of a path over to a track that has further knots, all of them of values that it had."""
    more = {name: getattr(track, name) for name in ("knot_events", "offset", "index", "value")}
    path._first = track, path._first[1]._replace(**more)


def _replay(track: Any, problem: Any) -> curve_jit.Replay:
    bounds = np.array([problem.lower, problem.upper])
    event_to = np.ascontiguousarray(track.event_move[:, 1])
    side, before, stop = track.side0.copy(), int(track.knot_events[0]), int(track.offset[1])
    side[track.event_index[:before]] = event_to[:before]
    beta, on = np.where(side == LOW, bounds[0], bounds[1]), track.index[:stop]
    beta[on] = np.minimum(np.maximum(track.value[:stop], bounds[0, on]), bounds[1, on])
    return curve_jit.Replay(
        track.knot_events, track.event_index, event_to, track.offset, track.index, track.value, bounds, side, beta,
        track.offset,  # no places yet
    )  # fmt: skip
