"""When to stop from outside: Ctrl-C, a time limit, the user's callback; and the progress a person sees.

Solvers call `Control.check` between slices of work and stop when it returns a status. While a fit runs, the first Ctrl-C
asks it to stop at the next check and keep what it has; a second one raises KeyboardInterrupt at once.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

from svmcore._types import Status


class ProgressReport(NamedTuple):
    """What a callback receives. Return True (or any true value) from the callback to stop the run."""

    n_iter: int
    violation: float
    objective: float
    seconds: float


Callback = Callable[[ProgressReport], Any]


class Control:
    """Context manager around one fit."""

    def __init__(self, *, time_limit: float | None, callback: Callback | None, verbose: int, name: str = "fit") -> None:
        self.time_limit = time_limit
        self.callback = callback
        self.verbose = verbose
        self.name = name
        self.start = time.perf_counter()
        self._interrupted = False
        self._installed = False
        self._last_line = self.start

    @property
    def seconds(self) -> float:
        """Time since the fit began."""
        return time.perf_counter() - self.start

    def __enter__(self) -> Control:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._on_interrupt)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give Ctrl-C back to Python."""
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._installed = False

    def _on_interrupt(self, signum: int, frame: Any) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True

    def check(self, n_iter: int, violation: float, objective: float) -> Status | None:
        """The reason to stop now, or None. Shows progress when verbose."""
        seconds = self.seconds
        if self.verbose and time.perf_counter() - self._last_line >= 1.0:
            self._last_line = time.perf_counter()
            line = f"{self.name}: {seconds:6.1f} s, iteration {n_iter}, violation {violation:.2e}, dual {objective:.8g}"
            sys.stderr.write(line + "\n")
        if self._interrupted:
            return Status.INTERRUPTED
        if self.time_limit is not None and seconds >= self.time_limit:
            return Status.TIME_LIMIT
        if self.callback is not None and self.callback(ProgressReport(n_iter, violation, objective, seconds)):
            return Status.CALLBACK
        return None
