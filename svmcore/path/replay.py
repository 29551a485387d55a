"""The record of a path in the form that compiled code plays."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore.path import curve_jit


def replay(path: Any) -> curve_jit.Replay:
    """The record of a path in the form that compiled code plays, at its first knot."""
    track = path._track
    bounds = np.stack([path._problem.lower, path._problem.upper])
    record = curve_jit.Replay(
        knot_events=np.ascontiguousarray(track.knot_events, dtype=np.int64),
        event_index=np.ascontiguousarray(track.event_index, dtype=np.int64),
        event_to=np.ascontiguousarray(track.event_move[:, 1], dtype=np.int8),
        offset=np.ascontiguousarray(track.offset, dtype=np.int64),
        index=np.ascontiguousarray(track.index, dtype=np.int32), value=np.ascontiguousarray(track.value),
        bounds=bounds, side=track.side0.astype(np.int8), beta=np.empty(bounds.shape[1]),
        place=np.full(bounds.shape[1], -1, dtype=np.int64),
    )  # fmt: skip
    record.beta[:] = next(path._vectors(np.zeros(1, dtype=np.int64)))
    before = slice(0, int(record.knot_events[0]))
    record.side[record.event_index[before]] = record.event_to[before]
    return record


__all__ = ["replay"]
