"""Memory that fits and paths hand on. Memory that has been touched costs several times less than fresh memory."""

from __future__ import annotations

import ctypes
import functools
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._types import FloatArray

_KEPT_VALUES = 1 << 25
"""At most so many float32 values, which are 128 MB, stay with the process."""

_WORTH_LENDING = 1 << 18
"""Of arrays of fewer float32 values, which are 1 MB, fresh memory costs nothing."""
_WASTE = 8  # an array may live long: it gets no memory that is larger by more than this factor

Real = NDArray[Any]


class _Spare:
    """Keeps buffers between fits, by their use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffers: dict[str, tuple[Real, int]] = {}
        self._count = 0
        self._taken: dict[str, int] = {}  # when each use took its buffer: a count of events
        self._given: dict[str, int] = {}

    def take(self, use: str, size: int) -> tuple[Real, int]:
        """A float32 array of at least this size, and how much of it has been written. The rest takes no memory."""
        with self._lock:
            self._taken[use] = self._count = self._count + 1
            buffer, touched = self._buffers.pop(use, (np.empty(0, np.float32), 0))
        return (buffer, touched) if len(buffer) >= size else (np.empty(size, np.float32), 0)

    def give(self, use: str, buffer: Real, touched: int) -> None:
        """Keep a buffer of which `touched` values have been written, unless these are too many.

        Buffers of other uses make way if they were given before this one was taken, because their work is over. Of two of
        one use the larger one is kept.
        """
        with self._lock:
            if self._buffers.get(use, (buffer, -1))[1] >= touched:
                return
            self._buffers.pop(use, None)
            room = _KEPT_VALUES - touched - sum(others for _, others in self._buffers.values())
            for other in [each for each in self._buffers if self._given[each] < self._taken.get(use, 0)]:
                if room < 0 <= _KEPT_VALUES - touched:
                    room += self._buffers.pop(other)[1]
            if room >= 0:
                self._buffers[use] = buffer, touched
                self._given[use] = self._count = self._count + 1

    def take_back(self, use: str, buffer: Real) -> None:
        """`give` what nobody reads any more, unless another thread is here, or this one: memory dies at any place."""
        if not self._lock.locked():
            self.give(use, buffer, len(buffer))

    def clear(self) -> int:
        """Let go of the buffers. Returns how many of their bytes had been written."""
        with self._lock:
            freed = sum(buffer.itemsize * touched for buffer, touched in self._buffers.values())
            self._buffers.clear()
        return freed


spare = _Spare()


class _Lent:
    """The owner of an array's memory: when the array and all views of it are gone, the memory is handed on."""

    def __init__(self, use: str, buffer: Real) -> None:
        self._back = functools.partial(spare.take_back, use, buffer)
        self.__array_interface__ = buffer.__array_interface__

    def __del__(self) -> None:
        self._back()


def lent(use: str, shape: tuple[int, ...], dtype: Any = np.float64) -> Real:
    """`np.empty`, in memory of an earlier array of this use if there is some. It is handed on when the array is gone.

    It starts on a cache line.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize // 4
    if size < _WORTH_LENDING:
        return np.empty(shape, dtype)
    buffer, touched = spare.take(use, size + 16)
    if len(buffer) > _WASTE * size:
        spare.give(use, buffer, touched)
        buffer = np.empty(size + 16, np.float32)
    memory = np.asarray(_Lent(use, buffer))
    start = (-buffer.__array_interface__["data"][0] % 64) // 4
    array: Real = memory[start : start + size].view(dtype).reshape(shape)
    return array


class SpareMatrix(NamedTuple):
    """A float64 matrix that starts on a cache line, in memory that is kept for the next one of the same use."""

    matrix: FloatArray
    use: str
    buffer: Real
    touched: int

    def give_back(self) -> None:
        """Hand the memory on. Nobody may read the matrix any more."""
        spare.give(self.use, self.buffer, self.touched)


def spare_matrix(use: str, shape: tuple[int, int]) -> SpareMatrix:
    """Memory for a matrix of this shape. What is in it has no meaning."""
    size = math.prod(shape)
    needed = 2 * size + 16  # float32 values, with what may be left out before the first cache line
    buffer, touched = spare.take(use, needed)
    start = (-buffer.__array_interface__["data"][0] % 64) // 4
    matrix = buffer[start : start + 2 * size].view(np.float64).reshape(shape)
    return SpareMatrix(matrix, use, buffer, max(touched, needed))


def release_memory() -> int:
    """Give back what the process keeps between fits, and return its size in bytes.

    Fits and paths leave at most 128 MB of work buffers behind: the next one starts faster in memory that is there already.
    Nothing else depends on it: call this where a process goes on living without training. What the C library keeps of memory
    that was freed goes back to the system, too, where it can be asked for that; it is not counted.

    >>> import svmcore
    >>> _ = svmcore.release_memory()
    >>> svmcore.release_memory()
    0
    """
    freed = spare.clear()
    trim_heaps()
    return freed


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """The function of glibc that hands free memory back; None where the C library is another one."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


def trim_heaps() -> None:
    """Hand free memory back to the system, as far as the C library can.

    Of threads it keeps a lot. Each has a heap of its own, in which freed memory stays when the thread is gone, and new
    threads touch other places of it: work that begins threads again and again would seem to leak.
    """
    trim = _trim()
    if trim is not None:
        trim(0)
