"""Where the work on parts is done: one after the other in this process, or side by side in its threads.

An engine runs pure functions: `run` returns handles, `gather` gives their values, `total` adds them up as a tree. Results
come in the order of the parts, and a tree has one shape, whoever computes it: sums have the same bits on every engine.
`poll` is asked between parts; when it says so, `Halted` ends the round.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any

from svmcore._errors import MissingExtraError, SVMError
from svmcore.distributed import files
from svmcore.distributed.sums import Sums, joined
from svmcore.kernel.matrix import available_threads

POLL = 0.1  # seconds between looks at the clock while others work
_BRANCHES = 8  # values that are joined at a time


class Halted(Exception):
    """Somebody asked to stop."""


class Lost(SVMError):
    """Data were lost with a worker."""


class Serial:
    """Everything in this process, part after part: out of core where the parts are mapped from files."""

    name = "serial"

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads or available_threads()
        self.poll: Callable[[], bool] = lambda: False

    def sources(self, X: Any, y: Any, weight: Any, label: Any, parts: int | None) -> list[Any]:
        """What the user gave as sources of parts."""
        return files.sources(X, y, weight, label=label, parts=parts)

    def run(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], *, ask: bool = True) -> list[Any]:
        """function(*task) for every task; the k-th belongs to part k. Without `ask`, all or nothing."""
        found = []
        for task in tasks:
            if ask and self.poll():
                raise Halted
            found.append(function(*task))
        return found

    def gather(self, handles: list[Any]) -> list[Any]:
        """The values behind handles."""
        return handles

    def total(self, handles: list[Any]) -> Sums:
        """All sums joined, neighbours first."""
        while len(handles) > 1:
            groups = [(handles[k : k + _BRANCHES],) for k in range(0, len(handles), _BRANCHES)]
            handles = self.run(joined, groups, ask=False)
        found: Sums = self.gather(handles)[0]
        return found

    def read_again(self, function: Callable[..., Any], sources: list[Any], args: list[Any]) -> list[Any]:
        """function(source, more) for every source, long after the fit."""
        return [function(*pair) for pair in zip(sources, args, strict=True)]

    def again(self) -> list[Any] | None:
        """The sources once more after a loss, or None."""
        return None

    def losses(self) -> list[str]:
        """Workers that were lost on the way."""
        return []

    def close(self) -> None:
        """Let go of what was started."""


class Threads(Serial):
    """Parts side by side in the threads of this process. Each works alone on its part."""

    name = "threads"

    def __init__(self, n_threads: int | None = None) -> None:
        super().__init__(n_threads)
        self.at_work, self.n_threads = self.n_threads, 1

    def run(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], *, ask: bool = True) -> list[Any]:
        """As `Serial.run`."""
        with ThreadPoolExecutor(self.at_work, thread_name_prefix="svmcore-parts") as pool:
            futures = [pool.submit(function, *task) for task in tasks]
            try:
                while wait_for(futures, timeout=POLL).not_done:
                    if ask and self.poll():
                        raise Halted
                return [future.result() for future in futures]
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def dask_engine() -> Any:
    """The module that knows dask."""
    try:
        return importlib.import_module("svmcore.distributed.dask_engine")
    except ImportError as error:
        raise MissingExtraError(
            f'engine="dask" and dask collections need dask and distributed ({error}); install them with: '
            'pip install "svmcore[dask]", or use engine="serial" over files'
        ) from None
