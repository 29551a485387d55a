"""The commands that follow a path: ``path`` and ``demo``."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import math
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from svmcore._errors import InputError
from svmcore.cli.files import check_outputs, load, load_test, problem_of, write, write_picture
from svmcore.cli.machines import reading
from svmcore.cli.output import (
    DONE,
    EARLY,
    INTERRUPTED,
    Progress,
    Report,
    percent,
    print_table,
    say,
    seconds_text,
    warnings_as_lines,
)
from svmcore.cli.report import add_data, add_least, add_path, add_path_certificate, bound, quoted

if TYPE_CHECKING:
    from svmcore.path_result import Path

T = TypeVar("T")

DEMO_PICTURE = "svmcore-demo.png"
_LARGEST_GAP = 1e-6  # of a path that counts as exact
_SPOT_CHECKS = 2  # values of C certified after an interruption, when somebody waits


class Clock:
    """The time that a whole command takes, and may take."""

    def __init__(self, limit: float | None) -> None:
        if limit is not None and not limit >= 0.0:
            raise InputError(f"--time-limit {limit:g} is out of range; it must be at least 0")
        self.start = time.perf_counter()
        self.limit = limit

    @property
    def seconds(self) -> float:
        """Time since the command began."""
        return time.perf_counter() - self.start

    @property
    def left(self) -> float | None:
        """Seconds until the limit; None: there is no limit."""
        return None if self.limit is None else max(0.0, self.limit - self.seconds)


class Phases:
    """What a command does after its path: each with progress, none after an interruption or the time limit."""

    def __init__(self, quiet: bool, clock: Clock, interrupted: bool) -> None:
        self.quiet = quiet
        self.clock = clock
        self.interrupted = interrupted
        self.skipped: list[str] = []

    @property
    def over(self) -> bool:
        """Whether to begin nothing new."""
        return self.interrupted or self.clock.left == 0.0

    def run(self, name: str, work: Callable[[], T]) -> T | None:
        """The result of some work, or None where there was no time for it."""
        if not self.over:
            try:
                with Progress(name, self.quiet):
                    return work()
            except KeyboardInterrupt:
                self.interrupted = True
        self.skipped.append(name)
        return None

    @property
    def note(self) -> str:
        """What was left out, and why."""
        why = "interrupted" if self.interrupted else f"the time limit of {self.clock.limit:g} s is over"
        return f"{', '.join(self.skipped)} ({why})"


def _status(path: Path) -> int:
    if path.ended == "interrupted":
        return INTERRUPTED
    return EARLY if path.ended != "done" else DONE


def _followed(name: str, quiet: bool, X: Any, y: Any, **options: Any) -> Path:
    """A path, with progress while it grows and its warnings after it."""
    from svmcore.path import svm_path

    with warnings_as_lines() as caught:
        with Progress(name, quiet) as progress:
            path = svm_path(X, y, callback=progress, **options)
        if path.ended == "interrupted":
            caught.clear()
            say(f"interrupted; the path is exact up to C = {path.C_range[1]:.6g}")
    return path


def _range(args: argparse.Namespace) -> dict[str, Any]:
    """The ends of the path as the library takes them, lambda = 1 / C."""
    for name in ("C_max", "C_min"):
        value = getattr(args, name)
        if value is not None and not (value > 0.0 and math.isfinite(value)):
            raise InputError(f"--{name.replace('_', '-')} {value:g} is out of range; it must be a positive number")
    low = 1.0 / args.C_max if args.C_max is not None else 1e-3 if args.lambda_min is None else args.lambda_min
    high = 1.0 / args.C_min if args.C_min is not None else args.lambda_max
    if high is not None and args.C_min is not None and high < low:
        raise InputError(f"--C-min {args.C_min:g} is larger than the largest C, {1.0 / low:g}")
    return {"lambda_min": low, "lambda_max": high}


def path(args: argparse.Namespace) -> int:
    """Follow a path, say what it is, and write it."""
    clock = Clock(args.time_limit)
    check_outputs(args)
    table = load(args)
    test = load_test(args, table)
    if args.plot:
        from svmcore.plots import check_file

        check_file(args.plot)
    found = _followed(
        "path", args.quiet, table.X, table.y, **problem_of(args, table), **_range(args), time_limit=clock.left,
        factorization=args.factorization, merge_tol=args.merge_tol, max_events=args.max_events,
    )  # fmt: skip
    written = []
    if args.output:  # first of all: what comes now may be interrupted too
        write(args.output, found.save)
        written.append(args.output)
    report = Report("path", args.json)
    add_data(report, args.data, table.X, table.y)
    add_path(report, found)
    phases = Phases(args.quiet, clock, found.ended == "interrupted")
    exact = _certified(report, found, phases)
    best = _judged(report, args, found, test, phases, written)
    report.tell("seconds", clock.seconds, seconds_text(clock.seconds))
    if phases.skipped:
        report.tell("left out", phases.skipped, phases.note)
    if written:
        report.tell("written", written, ", ".join(written))
    report.tell("next", _next(args, best))
    report.show()
    if phases.interrupted:
        return INTERRUPTED
    return max(_status(found), DONE if exact and not phases.skipped else EARLY)


def _certified(report: Report, found: Path, phases: Phases) -> bool:
    """Say how good the path is; False where it is not as good as a path should be."""
    if phases.over:  # somebody waits: a look at a few values of C
        low, high = float(found.Cs[0]), found.C_range[1]
        Cs = [high] if not low < high else [math.sqrt(low * high), high][:_SPOT_CHECKS]
        certificate, looked_at = found.certify(Cs), len(Cs)
    else:
        whole = phases.run("certificate", found.certify)
        if whole is None:
            return False
        certificate, looked_at = whole, 20
    add_path_certificate(report, certificate, looked_at)
    if certificate.relative_gap <= _LARGEST_GAP:
        return True
    say(
        f"warning: the path is not exact: its answers are only {bound(certificate.relative_gap)}, where "
        f"{100 * _LARGEST_GAP:g} % is expected; a smaller --C-max, or --merge-tol 1e-6 for near-duplicates, helps"
    )
    return False


def _judged(
    report: Report, args: argparse.Namespace, found: Path, test: Any, phases: Phases, written: list[str]
) -> float | None:
    """Say where errors are least, and draw; returns the C that other data recommend."""
    if found.lambdas.size < 2:
        if args.plot:
            say("warning: the path has no length; there is nothing to draw")
        return None
    from svmcore.plots import error_curves, is_exact, save_overview

    curves = phases.run("error curve", lambda: error_curves(found, test))
    best = None
    if curves is not None:
        training, note = curves.training, "" if is_exact(found) else " (on a grid of C)"
        report.add(
            "training",
            f"least error {percent(training.minimum)}{note}; it says nothing about other data, nor which C to choose",
            error=training.minimum,
        )  # fmt: skip
        if curves.test is not None:
            best = curves.test.best_C
            add_least(report, "held out", curves.test, float(found.Cs[0]), args.test)
    if args.plot:
        draw = functools.partial(save_overview, found, title=os.path.basename(args.data), curves=curves)
        if phases.run("picture", lambda: write_picture(args.plot, draw)):
            written.append(args.plot)
    return best


def _next(args: argparse.Namespace, best: float | None) -> str:
    """What to type next; a C is recommended only where other data speak for it."""
    if best is None:
        return "choose C by data that were not trained on: the same with --test DATA"
    if args.output:
        return f"svmcore predict {quoted(args.output)} DATA -C {best:.6g}{reading(args)}"
    scaled = " --standardize" if args.standardize else ""
    return f"svmcore train {quoted(args.data)} -C {best:.6g}{scaled}{reading(args)} -o model.npz, with the same kernel"


def demo(args: argparse.Namespace) -> int:
    """Follow two built-in problems and draw one of them."""
    begin = time.perf_counter()
    picture = args.plot or DEMO_PICTURE
    check_outputs(argparse.Namespace(output=None, plot=picture))
    drawn = importlib.util.find_spec("matplotlib") is not None
    if args.plot or drawn:
        from svmcore.plots import check_file

        check_file(picture)
    from svmcore.data import demo_set, spirals
    from svmcore.plots import error_curves, save_overview

    rows = []
    status = DONE
    compiled = False
    for name, gamma, test in (("spirals", 0.15, spirals(seed=1)), ("monk1", 0.25, None)):
        X, y = demo_set(name)
        found = _followed(name, args.quiet, X, y, gamma=gamma, lambda_min=0.01)
        curves = error_curves(found, test)
        certificate = found.certify()
        seconds = found.stats["seconds"]["total"]
        compiled |= seconds > 5.0
        rows.append(
            [
                name, f"{y.size}", f"{found.stats['n_events']:,}", percent(curves.training.minimum),
                f"{found.stats['elbow_max']}", f"{certificate.relative_gap:.0e}", seconds_text(seconds),
            ]
        )  # fmt: skip
        status = max(status, _status(found))
        if status == INTERRUPTED:
            break
        if name == "spirals" and drawn:
            draw = functools.partial(save_overview, found, title="Two spirals", curves=curves)
            write_picture(picture, draw)
    print("Two problems, each solved for every C at once (rbf kernel):\n")
    print_table(("problem", "points", "events", "best error", "|E| max", "duality gap", "seconds"), rows)
    print("\nevents: points that reach or leave the margin on the way; |E| max: most points on it at once")
    print("best error: on the training set, over all C")
    print("duality gap: the largest of 20 values of C, relative, recomputed from the data: the certificate")
    if compiled:
        print("seconds: with compilation, which only a first run does")
    if drawn and status != INTERRUPTED:
        print(f"picture: {picture}")
    elif not drawn:
        print('picture: none, matplotlib is not installed: pip install "svmcore[plot]"')
    print("next: svmcore path demo:monk3 --plot monk3.png, or your own file in place of demo:monk3")
    print(f"({time.perf_counter() - begin:.1f} s in all)")
    return status
