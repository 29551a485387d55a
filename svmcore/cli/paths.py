"""The commands that follow a path: ``path`` and ``demo``."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import time
from typing import TYPE_CHECKING, Any

from svmcore.cli.files import check_output, kernel_of, load, load_test, standardized, write, write_picture
from svmcore.cli.output import (
    DONE,
    EARLY,
    INTERRUPTED,
    Progress,
    number,
    print_list,
    print_table,
    say,
    seconds_text,
    warnings_as_lines,
)
from svmcore.cli.report import best_range, described, path_lines

if TYPE_CHECKING:
    from svmcore.path_result import Path

DEMO_PICTURE = "svmcore-demo.png"
_LARGEST_GAP = 1e-6  # of a path that counts as exact


def _status(path: Path, n_warnings: int = 0) -> int:
    if path.ended == "interrupted":
        return INTERRUPTED
    return EARLY if path.ended != "done" or n_warnings else DONE


def _followed(name: str, quiet: bool, X: Any, y: Any, **options: Any) -> Path:
    """A path, with progress while it grows and its warnings after it."""
    from svmcore.path import svm_path

    with warnings_as_lines() as caught:
        with Progress(name, quiet) as progress:
            path = svm_path(X, y, callback=progress, **options)
        if path.ended == "interrupted":
            caught.clear()
            say(f"interrupted; the path is exact down to lambda = {path.lambdas[-1]:.3g}, C = {path.C_range[1]:.6g}")
    return path


def path(args: argparse.Namespace) -> int:
    """Follow a path, say what it is, and write it."""
    for name in (args.output, args.plot):
        check_output(name)
    X, y = load(args)
    test = load_test(args, X, y)
    if args.standardize:
        X, *others = standardized(X, *([test[0]] if test else []))
        test = (others[0], test[1]) if test else None
    if args.plot:
        from svmcore.plots import check_file

        check_file(args.plot)
    path = _followed(
        "path", args.quiet, X, y, **kernel_of(args), lambda_max=args.lambda_max, lambda_min=args.lambda_min,
        factorization=args.factorization, merge_tol=args.merge_tol, max_events=args.max_events,
        time_limit=args.time_limit,
    )  # fmt: skip
    written = []
    if args.output:  # first of all: what comes now may be interrupted too
        write(args.output, path.save)
        written.append(args.output)
    from svmcore.plots import error_curves, is_exact, save_overview

    seconds = path.stats["seconds"]["total"]
    rows = [("data", described(args, X, y)), *path_lines(path), ("seconds", seconds_text(seconds))]
    found = path.certify()
    certificate = f"relative duality gap at most {found.relative_gap:.1e}, KKT violation {found.kkt_violation:.1e}"
    rows.append(("certificate", f"{certificate} (20 values of C, recomputed from the data)"))
    best = path.C_range[1]
    if path.lambdas.size > 1:
        curves = error_curves(path, test)
        best = curves.best.best_C
        low, high = best_range(curves.training, path.Cs[0])
        least = f"least training error {100 * curves.training.minimum:.3g} % for C from {number(low)} to {number(high)}"
        rows.append(("error", least if is_exact(path) else f"{least} (on a grid of C)"))
        if curves.test is not None:
            low, high = best_range(curves.test, path.Cs[0])
            held_out = f"least error {100 * curves.test.minimum:.3g} % for C from {number(low)} to {number(high)}"
            rows.append(("held out", f"{held_out} ({args.test})"))
        if args.plot:
            draw = functools.partial(save_overview, path, title=os.path.basename(args.data), curves=curves)
            write_picture(args.plot, draw)
            written.append(args.plot)
    elif args.plot:
        say("warning: the path has no length; there is nothing to draw")
    if written:
        rows.append(("written", ", ".join(written)))
    rows.append(("next", _next(args, best)))
    print_list(rows)
    return _status(path, n_warnings=not found.relative_gap <= _LARGEST_GAP)


def _next(args: argparse.Namespace, best: float) -> str:
    """What to type next."""
    if args.output:
        alike = " (DATA standardised in the same way)" if args.standardize else ""
        return f"svmcore predict {args.output} DATA -C {best:.6g}{alike}"
    return "the same with -o path.npz to keep the path" + ("" if args.plot else ", with --plot path.png to see it")


def demo(args: argparse.Namespace) -> int:
    """Follow two built-in problems and draw one of them."""
    begin = time.perf_counter()
    picture = args.plot or DEMO_PICTURE
    check_output(picture)
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
        path = _followed(name, args.quiet, X, y, gamma=gamma, lambda_min=0.01)
        curves = error_curves(path, test)
        found = path.certify()
        seconds = path.stats["seconds"]["total"]
        compiled |= seconds > 5.0
        rows.append(
            [
                name, f"{y.size}", f"{path.stats['n_events']:,}", f"{100 * curves.training.minimum:.3g} %",
                f"{path.stats['elbow_max']}", f"{found.relative_gap:.0e}", seconds_text(seconds),
            ]
        )  # fmt: skip
        status = max(status, _status(path))
        if status == INTERRUPTED:
            break
        if name == "spirals" and drawn:
            draw = functools.partial(save_overview, path, title="Two spirals", curves=curves)
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
        print('picture: none, for want of matplotlib: pip install "svmcore[plot]"')
    print("next: svmcore path demo:monk3 --plot monk3.png, or your own file in place of demo:monk3")
    print(f"({time.perf_counter() - begin:.1f} s in all)")
    return status
