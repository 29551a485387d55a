"""One pool of threads for all fits of a process.

Work is shared out only when it lasts long enough to pay (about half a millisecond), and only in pieces whose results do
not depend on the cut: the bits are the same on any number of threads. Tasks never wait for tasks, so fits that run
concurrently in several threads can share the pool.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

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
    parts = min(n_threads, count)
    if parts < 2 or work < WORTH_A_THREAD:
        run(0, count)
        return
    edges = [count * i // parts for i in range(parts + 1)]
    pool = _shared_pool()
    others = [pool.submit(run, edges[i], edges[i + 1]) for i in range(1, parts)]
    try:
        run(0, edges[1])
    finally:
        for other in others:
            other.result()
