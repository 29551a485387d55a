"""The pool of threads that fits, predictions and paths of a process share; tasks side by side have another (`parallel`).

Work is shared out only when it lasts long enough to pay (about half a millisecond), and only in pieces whose results do
not depend on the cut: the bits are the same on any number of threads. Tasks never wait for tasks, so fits that run
concurrently in several threads can share the pool.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import itertools
import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import scipy

WORTH_A_THREAD = float(1 << 24)
"""Feature operations (multiplications, say) that take about half a millisecond."""

_MOST = 3
"""Long work is cut into so many more ranges for each thread."""

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def _forget() -> None:
    """A forked child has the pool's bookkeeping but not its threads."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _shared_pool() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 2) - 1), thread_name_prefix="svmcore")
        return _pool


def split(
    run: Callable[[int, int], None], count: int, work: float, n_threads: int, edge: Callable[[float], float] = float
) -> None:
    """run(first, last) over 0..count, cut into ranges for several threads when `work` is worth it.

    `edge` is the share of the whole at which a share of the ranges ends.
    """
    if n_threads < 2 or work < WORTH_A_THREAD:
        run(0, count)
        return
    pieces = n_threads * sum(
        work >= 4.0 * more * WORTH_A_THREAD for more in range(_MOST + 1)
    )  # more of them in long work
    _share(run, [round(count * edge(i / pieces)) for i in range(pieces + 1)], n_threads)


def split_falling(run: Callable[[int, int], None], count: int, work: float, n_threads: int) -> None:
    """`split` of work that falls to nothing from the first to the last, as along the columns of a lower triangle."""
    split(run, count, work, n_threads, lambda share: 1.0 - math.sqrt(1.0 - share))


def _share(run: Callable[[int, int], None], edges: list[int], n_threads: int) -> None:
    """run(first, last) between the edges. Each thread takes the next range when it is done with its last one.

    So nobody waits for a thread that has not begun, on a machine that is busy with other things.
    """
    edges = sorted(set(edges))
    ranges = collections.deque(itertools.pairwise(edges))

    def take() -> None:
        while True:
            try:
                first, last = ranges.popleft()
            except IndexError:
                return
            run(first, last)

    pool = _shared_pool()
    others = [pool.submit(take) for _ in range(min(n_threads, len(ranges)) - 1)]
    try:
        take()
    finally:
        ranges.clear()
        for other in others:
            if not other.cancel():
                other.result()


class _Blas(contextlib.ContextDecorator):
    """Keeps the OpenBLAS libraries that numpy and scipy bring along to one thread while any fit runs.

    Around a block, or around a function. A fit calls them for small matrices only, where their threads cost more than they
    bring, and on a busy machine tens of times more. The setting is global to the process, so the first fit to enter saves it
    and the last to leave puts it back. Other libraries are left alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._saved: list[tuple[Callable[[int], None], int]] = []
        self._waiting = [
            file
            for package in (np, scipy)
            for file in (Path(str(package.__file__)).parent.parent / f"{package.__name__}.libs").glob(
                "libscipy_openblas*"
            )
        ]
        self._controls: list[tuple[Callable[[], int], Callable[[int], None]]] = []

    def _find(self) -> None:
        """Take hold of the libraries that have been loaded since the last look."""
        for file in list(self._waiting):
            try:
                library = ctypes.CDLL(str(file), mode=getattr(os, "RTLD_NOLOAD", 0))
            except OSError:  # not loaded yet
                continue
            self._waiting.remove(file)
            for suffix in ("64_", ""):
                get = getattr(library, f"scipy_openblas_get_num_threads{suffix}", None)
                put = getattr(library, f"scipy_openblas_set_num_threads{suffix}", None)
                if get is not None and put is not None:
                    self._controls.append((get, put))
                    break

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside > 1:
                return
            self._find()
            self._saved = [(put, get()) for get, put in self._controls]
            for put, count in self._saved:
                if count > 1:
                    put(1)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                for put, count in self._saved:
                    if count > 1:
                        put(count)


one_blas_thread = _Blas()
