"""When to stop from outside: Ctrl-C, a time limit, the user's callback; and the progress a person sees.

Long work asks between slices of it, and stops when the answer is a status: solvers by `Control.check`, work of a known
amount by `Control.step`, others by `Control.poll` with a report of their own. What lies deep inside asks `Control.reason`,
which only looks. While it runs, the first Ctrl-C asks it to stop and keep what it has; a second one raises
KeyboardInterrupt at once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple

from svmcore._errors import StoppedError
from svmcore._types import Status
from svmcore.problem import border

GRACE = 0.3
"""Seconds beyond the limit, or beyond Ctrl-C, that a beginning may take without which there is no answer at all."""


EVERY = 1.0  # seconds between lines of progress
_RENEWED = 0.2  # seconds between two states of a bar
_BAR = 20  # letters of it
_INTERRUPT = int(signal.SIGINT)
_SIGNALS: Any = sys.modules.get("_signal", signal)  # what is behind `signal`, which makes enumerations of all numbers


class ProgressReport(NamedTuple):
    """What a callback receives. Return True (or any true value) from the callback to stop the run."""

    n_iter: int
    violation: float
    objective: float
    seconds: float


class WorkProgress(NamedTuple):
    """What a callback receives where the amount of work is known. Return True (or any true value) to stop."""

    done: float
    """Share of the work."""
    seconds: float


Callback = Callable[[Any], Any]


class Voice:
    """What is said of long work on which nobody looks: one line in a process, or on a terminal a bar that renews itself.

    `SVMCORE_QUIET=1` silences it, and so does `SVMCORE_PROGRESS=0`. The outermost work of the main thread speaks.
    """

    PATIENCE = 2.0  # seconds of silence

    def __init__(self) -> None:
        self._working = 0
        self._said = False
        self._width = 0
        self._last = 0.0

    def begin(self, alone: bool) -> bool:
        """Work begins; whether it may speak. `alone`: nobody looks on, and it is in the main thread."""
        self._working += 1
        return alone and self._working == 1 and multiprocessing.parent_process() is None

    def end(self) -> None:
        """It ends, and with it its bar."""
        self._working -= 1
        if self._width and sys.stderr is not None:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
        self._width = 0

    def say(self, name: str, seconds: float, done: float | None) -> None:
        """So long it has taken, and this share of it is done, if that is known."""
        live = sys.stderr is not None and sys.stderr.isatty()
        silent = os.environ.get("SVMCORE_QUIET", "0") not in ("", "0") or os.environ.get("SVMCORE_PROGRESS") == "0"
        if seconds < self.PATIENCE or sys.stderr is None or (self._said and not live) or silent:
            return
        if not live:
            self._said = True
            share = "" if done is None else f", {100.0 * done:.0f} % done"
            remedy = "verbose=1 shows how far it is, Ctrl-C ends it and keeps what it has"
            sys.stderr.write(f"svmcore: {name} has worked for {seconds:.0f} s{share}; {remedy}\n")
        elif time.perf_counter() - self._last >= _RENEWED:
            self._last = time.perf_counter()
            full = round(_BAR * min(done or 0.0, 1.0))
            bar = "" if done is None else f" [{'#' * full}{'.' * (_BAR - full)}] {100.0 * done:3.0f} %,"
            line = f"{name}:{bar} {seconds:.0f} s (Ctrl-C ends it and keeps what it has)"
            sys.stderr.write("\r" + line.ljust(self._width))
            self._width = len(line)
        sys.stderr.flush()


voice = Voice()


class Control:
    """Context manager around one piece of work. A control inside another leaves Ctrl-C to the outer one."""

    LONG = 1e10
    """Operations of a certificate that a run which was stopped leaves for later: about a third of a second."""

    def __init__(
        self,
        *,
        time_limit: float | None,
        callback: Callback | None,
        verbose: int,
        name: str = "fit",
        alone: bool = False,
    ) -> None:
        self.time_limit = time_limit
        self.callback = callback
        self.verbose = verbose
        self.name = name
        self.start = time.perf_counter()
        self._interrupted: float | None = None  # when
        self._stopped = False  # by the callback
        self._grace = 0.0
        self._installed = False
        self._depth = 0
        self._last_line = self.start
        self._alone = alone
        self._speaks = False

    @property
    def seconds(self) -> float:
        """Time since the work began."""
        return time.perf_counter() - self.start

    def __enter__(self) -> Control:
        self._depth += 1
        if self._depth > 1:
            return self
        main = threading.get_ident() == threading.main_thread().ident
        self._speaks = voice.begin(self._alone and main)
        if main and _SIGNALS.getsignal(_INTERRUPT) is signal.default_int_handler:
            _SIGNALS.signal(_INTERRUPT, self._on_interrupt)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            voice.end()
        if self._depth == 0 and self._installed:  # Ctrl-C is Python's again
            _SIGNALS.signal(_INTERRUPT, signal.default_int_handler)
            self._installed = False
        if self._depth == 0 and self.verbose:
            from svmcore.compiler import bundle

            for line in bundle.words():
                sys.stderr.write(f"{line}\n")

    def _on_interrupt(self, signum: int, frame: Any) -> None:
        if self._interrupted is not None:
            raise KeyboardInterrupt
        self._interrupted = time.perf_counter()

    def reason(self) -> Status | None:
        """The reason to stop now, or None, without progress and callback."""
        now = time.perf_counter() - self._grace
        if self._interrupted is not None and now >= self._interrupted:
            return Status.INTERRUPTED
        if self.time_limit is not None and now - self.start >= self.time_limit:
            return Status.TIME_LIMIT
        return Status.CALLBACK if self._stopped else None

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Inside, `GRACE` seconds are overlooked: this is a beginning without which there is no answer at all."""
        self._grace = GRACE
        try:
            yield
        finally:
            self._grace = 0.0

    def demand(self) -> None:
        """Between slices of a beginning: raises when it must end, and with it the work."""
        status = self.reason()
        if status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if status is not None:
            raise StoppedError(
                f"{self.name}: {status.name.lower()} after {self.seconds:.1f} s, before there was anything to return; "
                "remedy: a larger time_limit"
            )

    @property
    def why(self) -> str:
        """The reason to stop, in a word for messages."""
        status = self.reason()
        return "done" if status is None else status.name.lower()

    def poll(self, report: Any, line: Callable[[], str]) -> Status | None:
        """The reason to stop now, or None. Shows `line()` when verbose, and hands `report`, if any, to the callback."""
        if self.verbose and time.perf_counter() - self._last_line >= EVERY:
            self._last_line = time.perf_counter()
            sys.stderr.write(f"{self.name}: {self.seconds:6.1f} s, {line()}\n")
        if self._speaks:
            voice.say(self.name, self.seconds, getattr(report, "done", None))
        status = self.reason()
        if status is None and report is not None and self.callback is not None and self.callback(report):
            self._stopped = True
            return Status.CALLBACK
        return status

    def check(self, n_iter: int, violation: float, objective: float) -> Status | None:
        """`poll` for a solver."""
        return self.poll(
            ProgressReport(n_iter, violation, objective, self.seconds),
            lambda: f"iteration {n_iter}, violation {violation:.2e}, dual {objective:.8g}",
        )

    def step(self, done: float) -> Status | None:
        """`poll` for work of which the share `done` is done."""
        return self.poll(WorkProgress(done, self.seconds), lambda: f"{100 * done:.0f} % done")


class PartControl(Control):
    """The control of a solver that does a part of larger work: it stops with the whole.

    It reports the whole's progress, or, as a `beginning` of the whole, only shows that it is at work.
    """

    LONG = 0.0  # nobody waits for a part's certificate

    def __init__(self, whole: Control, beginning: str = "") -> None:
        super().__init__(time_limit=whole.time_limit, callback=None, verbose=0, name=whole.name)
        self.whole = whole
        self.start = whole.start
        self.doing = beginning
        self.done = 0.0
        """Share of the whole that is done."""

    def __enter__(self) -> PartControl:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def reason(self) -> Status | None:
        """As `Control.reason`."""
        return self.whole.reason()

    def check(self, n_iter: int, violation: float, objective: float) -> Status | None:
        """As `Control.check`."""
        return self.whole.poll(None, lambda: self.doing) if self.doing else self.whole.step(self.done)


def new_control(name: str, time_limit: Any, callback: Any, verbose: Any) -> Control:
    """A control of checked arguments."""
    limit, callback, lines = border.time_limit(time_limit), border.callback(callback), border.verbosity(verbose)
    return Control(time_limit=limit, callback=callback, verbose=lines, name=name, alone=callback is None and not lines)
