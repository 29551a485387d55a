"""Where the work on parts is done: one after the other in this process, or side by side in its threads.

An engine runs pure functions of a part (`run`, which returns handles; `gather` gives their values), and keeps objects that
own a part and change in place (`crew`). Results come in the order of the parts, whoever computed them: sums over them have
the same bits on every engine. `poll` is asked between parts; when it says so, `Halted` ends the round.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any

from svmcore._errors import MissingExtraError
from svmcore.kernel.matrix import available_threads

POLL = 0.1  # seconds between looks at the clock while others work


class Halted(Exception):
    """Somebody asked to stop."""


class Serial:
    """Everything in this process, part after part: out of core where the parts are mapped from files."""

    name = "serial"
    remote = False
    """Whether handles are values that are elsewhere."""

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads or available_threads()
        self.poll: Callable[[], bool] = lambda: False
        self.lost: list[str] = []

    def run(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], *, ask: bool = True) -> list[Any]:
        """function(*task) for every task; the k-th belongs to part k. Without `ask`, all or nothing."""
        found = []
        for task in tasks:
            if ask and self.poll():
                raise Halted
            found.append(function(*task))
        return found

    def share(self, value: Any) -> Any:
        """A value that many tasks take."""
        return value

    def gather(self, handles: list[Any]) -> list[Any]:
        """The values behind handles."""
        return handles

    def crew(self, make: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Crew:
        """make(*task) for every part, kept."""
        return Crew(self, self.run(make, tasks))

    def losses(self) -> list[str]:
        """What was lost on the way, in words."""
        return list(self.lost)

    def close(self) -> None:
        """Let go of what was started."""


class Threads(Serial):
    """Parts side by side in the threads of this process. Each works alone on its part."""

    name = "threads"

    def __init__(self, n_threads: int | None = None) -> None:
        super().__init__(n_threads)
        self._pool = ThreadPoolExecutor(self.n_threads, thread_name_prefix="svmcore-parts")
        self.n_threads, self._closed = 1, False

    def run(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], *, ask: bool = True) -> list[Any]:
        """As `Serial.run`."""
        if self._closed:
            return super().run(function, tasks, ask=ask)
        futures = [self._pool.submit(function, *task) for task in tasks]
        try:
            while wait_for(futures, timeout=POLL).not_done:
                if ask and self.poll():
                    raise Halted
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """As `Serial.close`."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)


class Crew:
    """Objects that own a part each. A stage of theirs is never cut short: what they hold would no longer fit together."""

    def __init__(self, engine: Serial, members: list[Any]) -> None:
        self.engine, self.members, self.count = engine, members, len(members)

    def all(self, name: str, *args: Any) -> list[Any]:
        """member.name(*args) of every member."""
        return self.each(name, [args] * self.count)

    def each(self, name: str, args: Sequence[tuple[Any, ...]]) -> list[Any]:
        """member.name(*own) with arguments of its own for every member."""
        return self.engine.run(_call, [(m, name, *own) for m, own in zip(self.members, args, strict=True)], ask=False)


def _call(member: Any, name: str, *args: Any) -> Any:
    return getattr(member, name)(*args)


def dask_engine() -> Any:
    """The module that knows dask."""
    try:
        return importlib.import_module("svmcore.distributed.dask_engine")
    except ImportError as error:
        raise MissingExtraError(
            f'engine="dask" and dask collections need dask and distributed ({error}); install them with: '
            'pip install "svmcore[dask]", or use engine="serial" over files'
        ) from None
