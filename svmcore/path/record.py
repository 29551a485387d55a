"""What trackers write down, and the track that is left of it."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.path.log_jit import EVENTS, Log, write_event

REFRESH_EVERY = 200
"""There are at most so many steps between two refreshes. A refresh empties the log."""


class Track(NamedTuple):
    """A path in terms of its variables: the values of the elbow at knots, and the events between knots.

    The side of a variable is 0 (low), 1 (up) or 2 (elbow). The elbow of knot k are the variables
    ``index[offset[k] : offset[k + 1]]``, and ``value`` has their values at the same places. ``knot_events[k]`` is the
    number of events before the knot.

    The chord of a knot connects its nearest neighbours whose reach is zero. At the knot K beta + bias differs from that chord
    by at most sqrt(k(x, x)) reach + shift, for any x. Windows know these numbers. All other knots have reach zero.
    """

    side0: Any
    event_lambda: FloatArray
    event_index: IntArray
    event_move: Any  # (old side, new side, cause)
    knot: FloatArray  # (t, bias)
    chord: FloatArray  # (reach, shift)
    knot_events: IntArray
    offset: IntArray
    index: Any
    value: FloatArray
    open_top: bool = False
    found_top: bool = False
    bias_slope: float = 0.0
    phi_end: float = 0.0

    def in_units_of(self, unit: float) -> Track:
        """The same track, with t divided by `unit`, which is a power of two."""
        if unit == 1.0:
            return self
        return self._replace(event_lambda=self.event_lambda / unit, knot=self.knot / [unit, 1.0])


class Followed(NamedTuple):
    """What a tracker hands over: the track, counts, and why it ended."""

    track: Track
    stats: dict[str, Any]
    ended: str


def offsets(sizes: IntArray) -> IntArray:
    """Where the values of each knot begin, and where the last ones end."""
    out = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=out[1:])
    return out


def new_log(n: int, capacity: int, small: bool = False) -> Log:
    """Room for what happens between two refreshes."""
    events = n + 16 if small else 2 * n + 8 * REFRESH_EVERY
    knots = 8 if small else 4 * REFRESH_EVERY
    values = 16 if small else (REFRESH_EVERY + 60) * (capacity + 8)
    return Log(
        event_t=np.empty(events),
        event_index=np.empty(events, dtype=np.int64),
        event_move=np.empty((events, 3), dtype=np.int8),
        knot=np.empty((knots, 2)),
        chord=np.empty((knots, 2)),
        knot_at=np.empty((knots, 2), dtype=np.int64),
        index=np.empty(values, dtype=np.int32),
        value=np.empty(values),
        end=np.zeros(3, dtype=np.int64),
    )


class Recorder:
    """The log that compiled code writes, emptied now and then into chunks."""

    def __init__(self, n: int, capacity: int) -> None:
        self.n = n
        self.log = new_log(n, capacity)
        self.chunks: list[Log] = []

    @cached_property
    def scratch(self) -> Log:
        """Polishes write to this log. Nobody reads it."""
        return new_log(self.n, 0, small=True)

    def grow(self, capacity: int) -> None:
        """Make room for larger elbows."""
        log = new_log(self.n, capacity)
        for new, old in zip(log, self.log, strict=True):
            new[: old.shape[0]] = old
        self.log = log

    def forget(self) -> None:
        """Forget everything that has not been kept."""
        self.log.end[:] = 0

    def keep(self) -> None:
        """Empty the log into a chunk."""
        log = self.log
        events, knots, values = log.end.tolist()
        if events or knots:
            ends = (events, events, events, knots, knots, knots, values, values, 3)
            self.chunks.append(Log(*[part[:end].copy() for part, end in zip(log, ends, strict=True)]))
        log.end[:] = 0

    def event(self, t: float, point: int, old: int, new: int, cause: int) -> None:
        """Log an event that Python has made."""
        if self.log.end[EVENTS] >= self.log.event_t.shape[0]:
            self.keep()
        write_event(self.log, t, point, old, new, cause)

    def track(self, side0: Any, phi_end: float) -> Track:
        """The whole record as a track."""
        self.keep()
        whole = Log(*map(np.concatenate, zip(*self.chunks, strict=True)))
        many = whole.end.reshape(-1, 3)
        before = np.cumsum(many[:, 0]) - many[:, 0]
        return Track(
            side0, whole.event_t, whole.event_index, whole.event_move, whole.knot, whole.chord,
            whole.knot_at[:, 0] + np.repeat(before, many[:, 1]),
            offsets(whole.knot_at[:, 1]), whole.index, whole.value, phi_end=phi_end,
        )  # fmt: skip
