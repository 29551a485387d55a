"""Columns of K that are kept. While there is room, each is computed once. Then the column unused for longest makes way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from svmcore._types import LANES, IntArray
from svmcore.kernel.points import STAGGER, Real
from svmcore.simd.vector import ROWS

_AT_ONCE = 8 * ROWS
"""So many columns are computed together where they replace others. A block of so many fits the caches."""


class ColumnStore:
    """Columns of a symmetric K over `n` points, as the rows of an array.

    `compute(points, out)` writes the columns of the points to the first rows of `out`. The rows that follow, up to the end of
    the last row group, may be written to as well.
    """

    def __init__(
        self,
        n: int,
        room: int,
        dtype: Any,
        compute: Callable[[IntArray, Real], None],
        take: Callable[[int], tuple[Real, int]] = lambda size: (np.empty(size, np.float32), 0),
    ) -> None:
        """`room` is in bytes. A store that has no room for a row group stays empty.

        `take(size)` returns a float32 array of so many numbers, and how many of them have been written before.
        """
        self.dtype = np.dtype(dtype)
        width = -(-n // LANES) * LANES + STAGGER
        self.capacity = max(0, min(n, room // (self.dtype.itemsize * width) - ROWS))
        shape = self.capacity + ROWS, width
        size = shape[0] * width * self.dtype.itemsize // 4
        self._memory, self._written = take(size)
        self.rows = self._memory[:size].view(dtype).reshape(shape)  # a row takes memory when it is first written
        self.slot = np.full(n, -1)
        self.filled = 0
        self._compute = compute
        self._owner = np.full(self.capacity, -1)
        self._last_use = np.zeros(self.capacity, np.int64)
        self._now = 0

    def memory(self) -> tuple[Real, int]:
        """The float32 array that holds the columns, and how many of its numbers have been written."""
        used = min(self.filled + ROWS, len(self.rows)) * self.rows.shape[1] * self.dtype.itemsize // 4
        return self._memory, max(self._written, used)

    def find(self, points: IntArray) -> IntArray:
        """The rows that hold the columns of the points, -1 where a column is not kept. These columns count as used now."""
        slots = self.slot[points]
        self._now += 1
        self._last_use[slots[slots >= 0]] = self._now
        return slots

    def fetch(self, points: IntArray) -> tuple[IntArray, int]:
        """Compute the columns that are not kept, as far as there is room. Returns (what `find` does, columns computed)."""
        missing = points[self.find(points) < 0]
        fresh = missing[: self.capacity - self.filled]
        if len(fresh):
            self._compute(fresh, self.rows[self.filled :])
            self._settle(fresh, self.filled + np.arange(len(fresh)))
            self.filled += len(fresh)
        late = missing[len(fresh) :]
        free = self._unused(len(late))
        late = late[: len(free)]
        for first in range(0, len(late), _AT_ONCE):
            some, places = late[first : first + _AT_ONCE], free[first : first + _AT_ONCE]
            out = np.empty((_AT_ONCE, self.rows.shape[1]), self.dtype)
            self._compute(some, out)
            self.slot[self._owner[places]] = -1
            self.rows[places] = out[: len(some)]
            self._settle(some, places)
        return self.slot[points], len(fresh) + len(late)

    def _unused(self, count: int) -> IntArray:
        """At most `count` rows that are not in use now. The one unused for longest comes first."""
        if not count:
            return np.empty(0, np.int64)
        idle = np.flatnonzero(self._last_use < self._now)
        return idle[np.argsort(self._last_use[idle], kind="stable")][:count]

    def _settle(self, points: IntArray, places: IntArray) -> None:
        self.slot[points], self._owner[places], self._last_use[places] = places, points, self._now
