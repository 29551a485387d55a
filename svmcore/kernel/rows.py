"""Kernel rows for the path trackers: the whole matrix if it fits into memory, otherwise rows on demand.

There are four stores of kernel values, since they have four readers.

- The loops of a path read rows over variables from here. Python fills them, and names the rows that must stay (`fetch`).
- The loop of SMO fills its rows itself, without a return to Python (`_smo_jit.RowCache`).
- The solvers that share a course need several rows at the same time, so their store grows (`solvers/_course.VariableRows`).
- Products and Gram matrices read columns over all points, in float32 or float64 (`kernel/columns.ColumnStore`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from svmcore._types import FloatArray, IntArray, KernelKind
from svmcore.kernel.spare import SpareMatrix, spare_matrix
from svmcore.kernel.whole import exact_gram, has_gram
from svmcore.simd.loops import add_rows, copy_block


def whole_matrix(
    oracle: Any, go_on: Callable[[float], bool], room: Callable[[tuple[int, int]], FloatArray] = np.empty
) -> FloatArray | None:
    """All rows of a kernel. None when `go_on(share done)` says no. Rows may end in values without meaning.

    `room` makes the array.
    """
    if has_gram(oracle):
        return exact_gram(oracle, go_on, room)
    kernel = oracle.kernel
    if kernel.kind == KernelKind.PRECOMPUTED and kernel.offset == 0.0:
        return np.ascontiguousarray(oracle.X)  # the user's own matrix may be returned, since nobody writes to it
    rows = room((oracle.n, oracle.n))
    step = max(64, int(4e6 // max(1, oracle.n)))
    for start in range(0, oracle.n, step):
        if not go_on(start / oracle.n):
            return None
        rows[start : start + step] = oracle.rows(np.arange(start, min(start + step, oracle.n)))
    return rows


class RowStore:
    """Kernel rows that the tracker may read: all of them if they fit into `budget` bytes, otherwise rows on demand."""

    def __init__(
        self, oracle: Any, budget: float, ahead: int = 16, *, go_on: Callable[[float], bool] = lambda done: True
    ) -> None:
        self.oracle = oracle
        self.n = n = oracle.n
        self.ahead = ahead
        self.diagonal = np.ascontiguousarray(oracle.diagonal, dtype=np.float64)
        self.limit = max(256, int(budget // (8 * n)))
        self._room: SpareMatrix | None = None
        rows = self._all(go_on) if 8.0 * n * n <= budget else None
        self.whole = rows is not None
        if rows is not None:
            self.rows = rows  # a row may be longer than n
            self.slot = np.arange(n)
        else:
            # Zeros take no memory before somebody writes to them. An array that grows would be copied.
            self.rows = np.zeros((min(n, self.limit), n))
            self.slot = np.full(n, -1, dtype=np.int64)
        self.owner = np.arange(n) if self.whole else np.full(self.rows.shape[0], -1, dtype=np.int64)
        self.used = n if self.whole else 0
        self.clock = np.zeros(self.rows.shape[0], dtype=np.int64)
        self.now = 0

    def _all(self, go_on: Callable[[float], bool]) -> FloatArray | None:
        """The whole matrix. None when `go_on(share done)` says no."""
        whole = getattr(self.oracle, "gram", None)  # some oracles know a shorter way
        return whole_matrix(self.oracle, go_on, self._make_room) if whole is None else whole(go_on)

    def _make_room(self, shape: tuple[int, int]) -> FloatArray:
        self._room = spare_matrix("rows", shape)
        return self._room.matrix

    def release(self) -> None:
        """Hand the memory on. Nobody reads the rows any more."""
        if self._room is not None:
            self._room.give_back()
            self._room = None

    def products(self, coefs: FloatArray) -> FloatArray:
        """K times every row of `coefs`, as rows."""
        if self.whole:
            return np.asarray(coefs @ self.rows[:, : self.n])
        return np.array([self.product(coef) for coef in coefs])

    def product(self, coef: FloatArray) -> FloatArray:
        """K coef. Rows that are stored are used. All others are computed."""
        index = np.flatnonzero(coef)
        if index.size == 0:
            return np.zeros(self.n)
        if self.whole and index.size > 0.9 * self.n:
            return np.asarray(self.rows[:, : self.n] @ coef)
        have = index[self.slot[index] >= 0]
        miss = index[self.slot[index] < 0]
        out = np.zeros(self.n)
        add_rows(self.rows, self.slot[have], coef[have], 0, self.n, out)
        if miss.size:
            out += self.oracle.product(miss, np.ascontiguousarray(coef[miss]))
        return out

    def block(self, index: IntArray, columns: IntArray | None = None) -> FloatArray:
        """K[index, columns]. The rows `index` must be stored. Without `columns` these are the same as the rows."""
        columns = index if columns is None else columns
        out = np.empty((index.size, columns.size))
        copy_block(out, self.rows, self.slot, index, columns)
        return out

    def fetch(self, wanted: IntArray, keep: IntArray) -> bool:
        """Store the rows `wanted`. The rows `keep` stay. Returns True when the array `rows` was replaced by a larger one."""
        wanted = wanted[self.slot[wanted] < 0]
        if wanted.size == 0:
            return False
        self.now += 1
        replaced = False
        capacity = self.rows.shape[0]
        limit = max(self.limit, keep.size + wanted.size + 64)  # rows of the elbow are needed, whatever the budget is
        if self.used + wanted.size > capacity and capacity < limit:
            size = int(min(limit, max(2 * capacity, self.used + wanted.size)))
            rows = np.zeros((size, self.n))
            rows[: self.used] = self.rows[: self.used]
            self.owner = np.concatenate([self.owner, np.full(size - capacity, -1, dtype=np.int64)])
            self.clock = np.concatenate([self.clock, np.zeros(size - capacity, dtype=np.int64)])
            self.rows = rows
            capacity = size
            replaced = True
        free = np.arange(self.used, min(capacity, self.used + wanted.size))
        short = wanted.size - free.size
        if short > 0:
            held = np.zeros(capacity, dtype=bool)
            held[self.slot[keep]] = True
            candidates = np.flatnonzero(~held[: self.used])
            order = candidates[np.argsort(self.clock[candidates], kind="stable")]
            out = order[:short]
            self.slot[self.owner[out]] = -1
            free = np.concatenate([free, out])
        wanted = wanted[: free.size]
        self.rows[free] = self.oracle.rows(wanted)
        self.slot[wanted] = free
        self.owner[free] = wanted
        self.clock[free] = self.now
        self.used = int(min(capacity, max(self.used, free.max() + 1)))
        return replaced
