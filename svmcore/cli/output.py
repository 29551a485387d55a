"""What a person or a program sees: reports, tables, numbers, and progress."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import math
import os
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path as File
from typing import Any, TypeVar

from svmcore._errors import ConvergenceWarning, CostWarning, InputError, ScaleWarning, StoppedError

T = TypeVar("T")

DONE, EARLY, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
_PATIENCE = 2.0  # seconds of silence before a word about compilation


def say(message: str) -> None:
    """One line for the person, not for the next program."""
    print(f"svmcore: {' '.join(message.split())}", file=sys.stderr, flush=True)


_ONLY_IN_PYTHON = " Remedy: pass alpha0=solution.alpha to go on from it."


@contextmanager
def warnings_as_lines() -> Iterator[list[warnings.WarningMessage]]:
    """Collect the library's warnings (the list may be emptied), and say them at the end; what work will cost, at once."""
    caught: list[warnings.WarningMessage] = []

    def heard(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        if issubclass(category, CostWarning):
            say(f"warning: {message}")
        else:
            caught.append(warnings.WarningMessage(message, category, filename, lineno, file, line))

    with warnings.catch_warnings():
        warnings.showwarning = heard
        for category in (ConvergenceWarning, CostWarning, ScaleWarning):
            warnings.simplefilter("always", category)
        yield caught
    for warning in caught:
        say(f"warning: {str(warning.message).removesuffix(_ONLY_IN_PYTHON)}".replace("C_max", "--C-max"))


def _rich() -> bool:
    return importlib.util.find_spec("rich") is not None


class Report:
    """A command at work: its time, its files, and what it found, lines for a person or one JSON object for a program."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.limit = getattr(args, "time_limit", None)
        if self.limit is not None and not self.limit >= 0.0:
            raise InputError(f"--time-limit {self.limit:g} is out of range; it must be at least 0")
        self.start = time.perf_counter()
        self.as_json = args.json
        self.quiet = getattr(args, "quiet", True)
        self.rows: list[tuple[str, str]] = []
        self.facts: dict[str, Any] = {"command": args.command}
        self.written: list[str] = []
        self.elsewhere = False  # a result is in another file than it should be, and that has been said
        self.interrupted = self.cut_short = False
        self.skipped: list[str] = []  # phases for which there was no time

    def add(self, name: str, text: str, /, into: Any = None, **facts: Any) -> None:
        """One line, and the facts behind it, under its name or `into` others."""
        self.rows.append((name, text))
        self.facts.setdefault(into or name.replace(" ", "_"), {}).update(facts)

    def tell(self, name: str, value: Any, text: str | None = None) -> None:
        """One line with one fact; the text is that fact unless it is given."""
        self.rows.append((name, str(value) if text is None else text))
        self.facts[name.replace(" ", "_")] = value

    # ---- time --------------------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Time since the command began."""
        return time.perf_counter() - self.start

    @property
    def left(self) -> float | None:
        """Seconds until the limit; None: there is no limit."""
        return None if self.limit is None else max(0.0, self.limit - self.seconds)

    @property
    def over(self) -> bool:
        """Whether to begin nothing new: after an interruption, or the time limit."""
        return self.interrupted or self.left == 0.0

    def phase(self, name: str, work: Callable[..., T], quiet: bool = False) -> T | None:
        """The result of some work, or None where there was no time for it. `quiet`: it shows its progress itself.

        The work takes `time_limit` and `callback`; where it had to end early, a warning of the library says how far it came.
        """
        if not self.over:
            try:
                with at_work(name, self.quiet or quiet) as (progress, caught):
                    found = work(time_limit=self.left, callback=progress)
                self.interrupted |= any("(interrupted)" in str(warning.message) for warning in caught)
                self.cut_short |= bool(caught)
                return found
            except KeyboardInterrupt:
                self.interrupted = True
            except StoppedError:
                pass
        self.skipped.append(name)
        return None

    # ---- files -------------------------------------------------------------------------------------------------------

    def write(self, name: str, save: Callable[[Any], None]) -> str:
        """Write a file whole or not at all; says where it is. Where there is no room, what was computed is kept elsewhere."""
        from svmcore.base.drafts import write_whole

        try:
            write_whole(name, save)
        except OSError as error:
            say(f"{name} could not be written: {error.strerror or error}")
            if File(tempfile.gettempdir()).absolute() == File(name).absolute().parent:
                raise
            kept = File(tempfile.mkdtemp(prefix="svmcore-")) / File(name).name  # a folder that nobody else writes to
            write_whole(str(kept), save)
            say(f"what was computed is kept in {kept}")
            name, self.elsewhere = str(kept), True
        self.written.append(name)
        return name

    def draw(self, name: str, save: Callable[..., None]) -> None:
        """Write a picture as any other file; the end of the name is its format."""
        self.write(name, functools.partial(save, format=File(name).suffix[1:].lower()))

    # ---- the end -----------------------------------------------------------------------------------------------------

    def tell_time(self) -> None:
        """How long it took, and what was left out, and why."""
        self.tell("seconds", self.seconds, seconds_text(self.seconds))
        if self.skipped:
            why = "interrupted" if self.interrupted else f"the time limit of {self.limit:g} s is over"
            self.tell("left out", self.skipped, f"{', '.join(self.skipped)} ({why})")

    def tell_written(self) -> None:
        """Which files there are."""
        self.tell("written", self.written, ", ".join(self.written) or "nothing")

    def end(self, interrupted: bool = False, whole: bool = True, shown: bool = True) -> int:
        """Print it, if it shall be `shown`; returns the exit status. `whole`: the result is what was asked for."""
        if shown and self.as_json:
            print(json.dumps(_plain(self.facts), ensure_ascii=False), flush=True)
        elif shown:
            print_table(self.rows)
        if self.elsewhere:
            return EARLY
        return INTERRUPTED if interrupted else DONE if whole and not (self.skipped or self.cut_short) else EARLY


def _plain(value: Any) -> Any:
    """A value as JSON has it: numbers of numpy become Python's, what is not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, type(None))) else str(value)


def print_table(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> None:
    """Names and texts; or, with a head, a table whose first column is to the left and the others are to the right."""
    if sys.stdout.isatty() and _rich():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False) if head else Table.grid(padding=(0, 2))
        for k, name in enumerate(head):
            table.add_column(name, justify="right" if k else "left")
        if not head:
            table.add_column(style="bold", no_wrap=True)
            table.add_column(overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    lines = [head, *rows] if head else rows
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in [head, ["-" * width for width in widths], *rows] if head else rows:
        first, *others = line
        others = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)] if head else others
        print("  ".join([first.ljust(widths[0]), *others]))
    sys.stdout.flush()


@contextmanager
def at_work(name: str, quiet: bool) -> Iterator[tuple[ProgressLine, list[warnings.WarningMessage]]]:
    """Progress while some work is done, and the library's warnings after it."""
    with warnings_as_lines() as caught, ProgressLine(name, quiet) as progress:
        yield progress, caught


def followed(name: str, quiet: bool, follow: Callable[..., T], kept: Callable[[Any], str]) -> T:
    """A path, or several, with progress; after a Ctrl-C with a word about what is `kept` in the place of warnings."""
    with at_work(name, quiet) as (progress, caught):
        found: Any = follow(callback=progress)
        if found.ended == "interrupted":
            caught.clear()
    if found.ended == "interrupted":
        say(f"interrupted; {kept(found)}")
    return found  # type: ignore[no-any-return]


class ProgressLine:
    """How far some work has come: a bar, a line that renews itself, or in a log a line now and then."""

    def __init__(self, name: str, quiet: bool) -> None:
        self.name = name
        self.quiet = quiet
        self.live = sys.stderr.isatty()
        self.bar: Any = None
        self.last = time.perf_counter()
        self.width = 0
        self.pause = 0.1 if self.live else 1.0  # seconds between two lines; longer and longer in a log
        self._patience = threading.Timer(_PATIENCE, self._still_here)
        self._patience.daemon = True

    def __enter__(self) -> ProgressLine:
        if not self.quiet:
            self._patience.start()
            if self.live and _rich():
                self._start_bar()
        return self

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, TimeElapsedColumn

        columns = *Progress.get_default_columns()[:3], TimeElapsedColumn()
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.bar.start()
        self.task = self.bar.add_task(self.name, total=1.0)

    def _still_here(self) -> None:
        os.environ.setdefault("SVMCORE_QUIET", "1")  # the library need not say the same
        self._show(f"{self.name}: starting; a first run compiles for up to a minute, later ones do not")

    def _show(self, line: str) -> None:
        if self.bar is not None:
            self.bar.update(self.task, description=line)
        elif self.live:
            print("\r" + line.ljust(self.width), end="", file=sys.stderr, flush=True)
            self.width = len(line)
        else:
            print(line, file=sys.stderr, flush=True)

    def __call__(self, report: Any) -> None:
        """Show one report of a fit, a path, or any work of a known amount."""
        self._patience.cancel()
        now = time.perf_counter()
        if self.quiet or now - self.last < self.pause:
            return
        self.last = now
        self.pause = 0.1 if self.live else min(2.0 * self.pause, 60.0)
        parts = [text for text in _known(report) if text]
        done = getattr(report, "done", None)
        if self.bar is not None:
            self.bar.update(self.task, completed=done or 0.0, description=f"{self.name}: {', '.join(parts)}")
        else:
            parts += [] if done is None else [f"{100 * done:.0f} % of the way"]
            self._show(f"{self.name}: {', '.join(parts)}, {report.seconds:.0f} s")

    def __exit__(self, *_: object) -> None:
        self._patience.cancel()
        if self.bar is not None:
            self.bar.stop()
        elif self.live and self.width:
            print("\r" + " " * self.width + "\r", end="", file=sys.stderr, flush=True)


def _known(report: Any) -> Iterator[str]:
    """What a report knows; figures that nobody has computed yet are left out."""
    if hasattr(report, "lambda_") and report.lambda_ > 0:
        yield f"C {1.0 / report.lambda_:.3g}, {report.elbow:,} points on the margin"
    if hasattr(report, "n_permutations"):
        about = f", p about {report.pvalue:.2g}" if math.isfinite(report.pvalue) else ""
        yield f"permutation {report.n_done:,} of {report.n_permutations:,}{about}"
    if hasattr(report, "n_paths"):
        yield f"{report.n_done} of {report.n_paths} paths"
    if hasattr(report, "n_iter"):
        yield f"iteration {report.n_iter:,}"
        yield f"violation {report.violation:.2e}" if math.isfinite(report.violation) else ""
        yield f"objective {report.objective + 0.0:.6g}" if math.isfinite(report.objective) else ""


def number(value: float) -> str:
    """Three digits, or all of a number of thousands."""
    return f"{value:,.0f}" if 1000 <= value < 1e6 else f"{value:.3g}"


def seconds_text(value: float) -> str:
    """Seconds as they are read."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def percent(share: float) -> str:
    """A share in per cent, three digits."""
    return f"{100 * share:.3g} %"


def interval(low: float, high: float) -> str:
    """A range of C in words."""
    return f"C up to {number(high)}" if low <= 0 else f"C from {number(low)} to {number(high)}"
