"""The pool of threads that fits, predictions and paths of a process share; tasks side by side have another (`parallel`).

Work is shared out only when it lasts long enough to pay (about half a millisecond), and only in pieces whose results do
not depend on the cut: the bits are the same on any number of threads. Tasks never wait for tasks, so fits that run
concurrently in several threads can share the pool.
"""

from __future__ import annotations

import contextlib
import ctypes
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


def split(run: Callable[[int, int], None], count: int, work: float, n_threads: int) -> None:
    """run(first, last) over 0..count, cut into one range per thread when `work` is worth it."""
    if n_threads < 2 or work < WORTH_A_THREAD:
        run(0, count)
        return
    _share(run, [count * i // n_threads for i in range(n_threads + 1)], work)


def split_falling(run: Callable[[int, int], None], count: int, work: float, n_threads: int) -> None:
    """`split` of work that falls to nothing from the first to the last, as along the columns of a lower triangle."""
    _share(run, [round(count * (1.0 - math.sqrt(1.0 - i / n_threads))) for i in range(n_threads + 1)], work)


def _share(run: Callable[[int, int], None], edges: list[int], work: float) -> None:
    """run(first, last) between the edges: each range in a thread when `work` is worth it, else all of it in this one."""
    edges = sorted(set(edges))
    parts = len(edges) - 1
    if parts < 2 or work < WORTH_A_THREAD:
        run(0, edges[-1])
        return
    pool = _shared_pool()
    others = [pool.submit(run, edges[i], edges[i + 1]) for i in range(1, parts)]
    try:
        run(0, edges[1])
    finally:
        for other in others:
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
