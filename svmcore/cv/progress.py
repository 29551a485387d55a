"""What a person sees of many paths, and how they are ended: one line, one time limit, one callback, one Ctrl-C."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from svmcore._control import Control, voice
from svmcore._types import Status
from svmcore.base.parallel import run_all

T = TypeVar("T")
_ENDS = {Status.INTERRUPTED: "interrupted", Status.TIME_LIMIT: "time_limit"}
_LINE = 1.0  # seconds between lines
_LOOK = 0.2  # seconds between looks at other processes
_BREATH = 0.05  # seconds between words to those who may say something
WATCH = "svmcore-cv"
"""The name of the thread that looks."""


class CVProgress(NamedTuple):
    """What a callback receives. Return True (or any true value) from the callback to end the cross-validation here."""

    n_done: int
    n_paths: int
    done: float
    """Share of the way, all paths together."""
    seconds: float
    seconds_left: float


class Board:
    """A small file by which processes speak: in its first place whether to stop, then how far every path is."""

    def __init__(self, n_paths: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="svmcore-", ignore_cleanup_errors=True)
        self.file = str(Path(self._folder.name) / "board")
        self.values = np.memmap(self.file, dtype=np.float64, mode="w+", shape=(1 + n_paths,))

    def close(self) -> None:
        """Processes that still look see that they shall stop."""
        self.values[0] = 1.0
        self._folder.cleanup()


def board_of(file: str) -> Any:
    """The board of another process; None where its file cannot be seen, on another machine."""
    try:
        return np.memmap(file, dtype=np.float64, mode="r+")
    except (OSError, ValueError):
        return None


class SharedProgress:
    """Shared by all workers, as a context around their work. A copy in another process knows the time limit, writes down
    how far it is, and asks whether to stop; a thread here looks at that, and speaks for all."""

    def __init__(self, time_limit: float | None, callback: Callable[[CVProgress], Any] | None, verbose: int) -> None:
        self.control = Control(time_limit=time_limit, callback=None, verbose=0, name="cv")
        self.callback = callback
        self.verbose = verbose
        self.reason: str | None = None
        self.deadline = None if time_limit is None else time.time() + time_limit
        self._lock: Any = threading.RLock()
        self._share: dict[int, float] = {}
        self._complete: set[int] = set()
        self.n_paths = 0
        self._last = self._heard = time.perf_counter()
        self._speaks = False
        self._boards: list[Board] = []
        self._thread: threading.Thread | None = None
        self._raised: Exception | None = None
        self._closed = threading.Event()
        self._file: str | None = None  # of the board, in another process
        self._values: Any = None

    def __enter__(self) -> SharedProgress:
        self._speaks = voice.begin(self.callback is None and not self.verbose)
        self.control.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.control.__exit__(*error)
        voice.end()
        if self._thread is None:
            return
        self._closed.set()
        self._thread.join()
        for board in self._boards:
            board.close()
        self._thread, self._boards = None, []
        self._closed.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {"deadline": self.deadline, "board": self._file or self._board().file}

    def __setstate__(self, state: dict[str, Any]) -> None:
        left = None if state["deadline"] is None else max(0.0, state["deadline"] - time.time())
        self.__init__(left, None, 0)  # type: ignore[misc]
        self._file = state["board"]
        self._values = board_of(state["board"])

    def _board(self) -> Board:
        """The board for all paths that were announced, and a thread that looks at it."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name=WATCH, daemon=True)
                self._thread.start()
            if not self._boards or self._boards[-1].values.size <= self.n_paths:
                self._boards.append(Board(self.n_paths))
            return self._boards[-1]

    def _look(self) -> None:
        """Until all is done: what other processes have written becomes progress here, and the end here one there."""
        while not self._closed.wait(_LOOK):
            with self._lock:
                for board in self._boards:
                    for k in np.flatnonzero(board.values[1:]).tolist():
                        self._share[k] = max(self._share.get(k, 0.0), float(board.values[1 + k]))
                try:
                    end = self._told()
                except Exception as error:  # of the user's callback, for the thread that waits
                    self._raised, end = error, True
                if end:
                    for board in self._boards:
                        board.values[0] = 1.0
                if self._raised is not None:
                    return

    @property
    def n_done(self) -> int:
        """The number of complete paths."""
        return len(self._complete)

    def more(self, n_paths: int) -> int:
        """Announce further paths; the number of the first."""
        self.n_paths += n_paths
        return self.n_paths - n_paths

    def ended(self) -> bool:
        """Whether to begin nothing new."""
        if self.reason is None:
            self.reason = _ENDS.get(self.control.reason())  # type: ignore[arg-type]
        if self.reason is None and self._values is not None and self._values[0]:
            self.reason = "interrupted"
        return self.reason is not None

    def at(self, task: int, done: float) -> bool:
        """A path is so far on its way. True: it shall end."""
        with self._lock:
            self._share[task] = done
            if self._values is not None:
                self._values[1 + task] = done
            return self._told()

    def _told(self) -> bool:
        """Tell the user how far all is. True: it shall end."""
        if self.ended():
            return True
        now = time.perf_counter()
        heard = self._speaks and now - self._heard >= min(_BREATH, voice.PATIENCE)
        if not (self.callback is not None or heard or (self.verbose and now - self._last >= _LINE)):
            return False
        self._heard = now
        report = self._report()
        if self.callback is not None and self.callback(report):
            self.reason = "callback"
            return True
        if self._speaks:
            voice.say("cv", report.seconds, report.done)
        if self.verbose and time.perf_counter() - self._last >= _LINE:
            self._last = time.perf_counter()
            sys.stderr.write(
                f"cv: {report.seconds:6.1f} s, {report.n_done} of {report.n_paths} paths done, "
                f"{100 * report.done:3.0f} % of the way, about {report.seconds_left:.0f} s left\n"
            )
        return False

    def gathered(
        self, function: Callable[..., T], tasks: list[tuple[Any, ...]], n_jobs: int | None, numbers: list[int]
    ) -> list[T | None]:
        """`function(*task)` of every task; None of those that were ended before. `numbers`: of their paths."""
        found: list[T | None] = []
        try:
            for result, number in zip(run_all(function, tasks, n_jobs), numbers, strict=True):
                found.append(result)
                if result is not None:
                    self.finish(number)
        except Exception:
            if not (self.ended() and self.reason == "interrupted"):
                raise  # where it is no process that the same Ctrl-C has ended, before its first task
        if self._raised is not None:
            raise self._raised
        return found + [None] * (len(tasks) - len(found))

    def finish(self, task: int) -> None:
        """A path is complete; it may be said twice."""
        with self._lock:
            self._share[task] = 1.0
            self._complete.add(task)

    def _report(self) -> CVProgress:
        done = sum(self._share.values()) / max(1, self.n_paths)
        seconds = self.control.seconds
        return CVProgress(self.n_done, self.n_paths, done, seconds, seconds * (1.0 - done) / done if done > 0 else 0.0)
