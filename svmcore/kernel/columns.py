"""Columns of K that are kept: each is computed once while there is room, and the one unused longest makes way first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from svmcore._types import LANES, IntArray
from svmcore.kernel.points import STAGGER, Real
from svmcore.simd.vector import ROWS

_AT_ONCE = 8 * ROWS
"""Columns computed together where they go to places of their own: a block of them fits the caches."""


class ColumnStore:
    """Columns of a symmetric K over `n` points, as the rows of an array.

    `compute(points, out)` writes the columns of the points to the first rows of `out`, and what it likes up to the end of
    their last row group.
    """

    def __init__(
        self,
        n: int,
        room: int,
        dtype: Any,
        compute: Callable[[IntArray, Real], None],
        take: Callable[[int], tuple[Real, int]] = lambda size: (np.empty(size, np.float32), 0),
    ) -> None:
        """`room` is in bytes; a store without room for a row group stays empty.

        `take(size)` finds so many numbers of float32 and says how many of them have been written before.
        """
        self.dtype = np.dtype(dtype)
        width = -(-n // LANES) * LANES + STAGGER
        self.capacity = max(0, min(n, room // (self.dtype.itemsize * width) - ROWS))
        shape = self.capacity + ROWS, width
        size = shape[0] * width * self.dtype.itemsize // 4
        self._memory, self._written = take(size)
        self.rows = self._memory[:size].view(dtype).reshape(shape)  # memory is touched as it is used
        self.slot = np.full(n, -1)
        self.filled = 0
        self._compute = compute
        self._owner = np.full(self.capacity, -1)
        self._last_use = np.zeros(self.capacity, np.int64)
        self._now = 0

    def memory(self) -> tuple[Real, int]:
        """The numbers of float32 that it lives in, and how many of them have been written."""
        used = min(self.filled + ROWS, len(self.rows)) * self.rows.shape[1] * self.dtype.itemsize // 4
        return self._memory, max(self._written, used)

    def find(self, points: IntArray) -> IntArray:
        """Where the columns of the points are, as rows; -1 for those that are not kept. They count as used now."""
        slots = self.slot[points]
        self._now += 1
        self._last_use[slots[slots >= 0]] = self._now
        return slots

    def fetch(self, points: IntArray) -> tuple[IntArray, int]:
        """`find` after computing what is not kept, as far as there is room: (rows or -1, number of columns computed)."""
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
        """Up to so many rows that are not in use now, those unused longest first."""
        if not count:
            return np.empty(0, np.int64)
        idle = np.flatnonzero(self._last_use < self._now)
        return idle[np.argsort(self._last_use[idle], kind="stable")][:count]

    def _settle(self, points: IntArray, places: IntArray) -> None:
        self.slot[points], self._owner[places], self._last_use[places] = places, points, self._now
