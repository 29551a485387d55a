"""Tasks side by side: joblib where it is installed, a pool of threads where it is not. The only importer of joblib."""

from __future__ import annotations

import numbers
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar

import numpy as np

from svmcore._errors import InputError
from svmcore.kernel.matrix import available_threads
from svmcore.kernel.spare import trim_heaps

T = TypeVar("T")
_POLL = 0.2  # seconds between looks for Ctrl-C


def worker_count(n_jobs: Any) -> int:
    """The workers that `n_jobs` asks for, as scikit-learn counts: None is 1, -1 all processors, -2 all but one."""
    if n_jobs is None:
        return 1
    whole = isinstance(n_jobs, (numbers.Integral, np.integer)) and not isinstance(n_jobs, (bool, np.bool_))
    workers = int(n_jobs) if whole else 0
    if workers == 0:
        raise InputError(f"n_jobs={n_jobs!r} is not a number of workers; give 1, 2, ..., or -1 for all processors")
    return workers if workers > 0 else max(1, available_threads() + 1 + workers)


def run_all(function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], n_jobs: Any) -> Iterator[T]:
    """`function(*task)` of every task, in order. Every result is the same for any number of workers."""
    workers = worker_count(n_jobs)
    joblib = _joblib()
    if joblib is not None:
        asked = None if n_jobs is None else workers  # None: what a `parallel_backend` around the call says
        if joblib.effective_n_jobs(asked) > 1:
            backend, _ = joblib.parallel.get_active_backend(prefer="threads")
            pool = joblib.Parallel(
                n_jobs=asked, prefer="threads", pre_dispatch="n_jobs", mmap_mode="c",  # arrays as others see them: writable
                return_as="generator" if backend.supports_return_generator else "list",
            )  # fmt: skip
            called = (
                function if getattr(backend, "supports_sharedmem", False) else partial(_in_another_process, function)
            )
            yield from pool(joblib.delayed(called)(*task) for task in tasks)
            trim_heaps()
            return
    if workers == 1 or len(tasks) < 2:
        for task in tasks:
            yield function(*task)
        return
    with ThreadPoolExecutor(min(workers, len(tasks))) as threads:
        yield from _in_order([threads.submit(function, *task) for task in tasks])
    trim_heaps()


def _in_another_process(function: Callable[..., T], *task: Any) -> T:
    """A function as another process calls it. Ctrl-C, which a terminal sends to all, is for the one that waits."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return function(*task)


def _in_order(futures: list[Future[T]]) -> Iterator[T]:
    try:
        for future in futures:
            while not future.done():
                wait([future], timeout=_POLL, return_when=FIRST_COMPLETED)
            yield future.result()
    finally:
        for future in futures:
            future.cancel()


def _joblib() -> Any:
    try:
        import joblib
    except ImportError:
        return None
    return joblib
