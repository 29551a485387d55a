"""What a person sees of many paths, and how they are ended: one line, one time limit, one callback, one Ctrl-C."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from svmcore._control import Control
from svmcore._types import Status

_ENDS = {Status.INTERRUPTED: "interrupted", Status.TIME_LIMIT: "time_limit"}
_LINE = 1.0  # seconds between lines


class CVProgress(NamedTuple):
    """What a callback receives. Return True (or any true value) from the callback to end the cross-validation here."""

    n_done: int
    n_paths: int
    done: float
    """Share of the way, all paths together."""
    seconds: float
    seconds_left: float


class SharedProgress:
    """Shared by all workers. In another process there is no callback and no line, only the time limit."""

    def __init__(self, time_limit: float | None, callback: Callable[[CVProgress], Any] | None, verbose: int) -> None:
        self.control = Control(time_limit=time_limit, callback=None, verbose=0, name="cv")
        self.callback = callback
        self.verbose = verbose
        self.reason: str | None = None
        self.deadline = None if time_limit is None else time.time() + time_limit
        self._lock: Any = threading.Lock()
        self._share: dict[int, float] = {}
        self.n_done = self.n_paths = 0
        self._last = time.perf_counter()

    def __getstate__(self) -> dict[str, Any]:
        return {"deadline": self.deadline}

    def __setstate__(self, state: dict[str, Any]) -> None:
        left = None if state["deadline"] is None else max(0.0, state["deadline"] - time.time())
        self.__init__(left, None, 0)  # type: ignore[misc]

    def more(self, n_paths: int) -> int:
        """Announce further paths; the number of the first."""
        self.n_paths += n_paths
        return self.n_paths - n_paths

    def ended(self) -> bool:
        """Whether to begin nothing new."""
        if self.reason is None:
            self.reason = _ENDS.get(self.control.check(0, 0.0, 0.0))  # type: ignore[arg-type]
        return self.reason is not None

    def at(self, task: int, done: float) -> bool:
        """A path is so far on its way. True: it shall end."""
        with self._lock:
            self._share[task] = done
            if self.ended():
                return True
            report = self._report()
            if self.callback is not None and self.callback(report):
                self.reason = "callback"
                return True
            if self.verbose and time.perf_counter() - self._last >= _LINE:
                self._last = time.perf_counter()
                sys.stderr.write(
                    f"cv: {report.seconds:6.1f} s, {report.n_done} of {report.n_paths} paths done, "
                    f"{100 * report.done:3.0f} % of the way, about {report.seconds_left:.0f} s left\n"
                )
            return False

    def say(self, sentence: str) -> None:
        """One more line, where lines are wanted."""
        if self.verbose:
            sys.stderr.write(f"cv: {sentence}\n")

    def finish(self, task: int) -> None:
        """A path is complete."""
        with self._lock:
            self._share[task] = 1.0
            self.n_done += 1

    def _report(self) -> CVProgress:
        done = sum(self._share.values()) / max(1, self.n_paths)
        seconds = self.control.seconds
        return CVProgress(self.n_done, self.n_paths, done, seconds, seconds * (1.0 - done) / done if done > 0 else 0.0)
