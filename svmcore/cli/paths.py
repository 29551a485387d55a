"""The commands ``path`` and ``demo``."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import math
import os
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

from svmcore._errors import StoppedError
from svmcore.cli.cv import add_cv, cross_validated, curve_of
from svmcore.cli.files import check_outputs, ends_of, load, load_test, problem_of, with_origin
from svmcore.cli.machines import retyped
from svmcore.cli.options import DEMO_PICTURE, of_published_path
from svmcore.cli.output import Report, followed, interval, percent, print_table, say, seconds_text, warnings_as_lines
from svmcore.cli.report import add_certificate, add_data, add_least, add_path, bound
from svmcore.data import demo_set, spirals

if TYPE_CHECKING:
    from svmcore.cv import PathCV
    from svmcore.path.result import Path

_LARGEST_GAP = 1e-6  # a path counts as exact up to this relative gap
_SPOT_SECONDS = 2.0  # a certificate for which somebody waits may take so long
_DEMO_TOL = 1e-6  # tolerance of the machine that a demo trains at the best C
_COLUMNS = ("problem", "points", "validation", "best C", "test", "off by at most", "seconds")
_COMPILING = 10.0  # seconds of a demo that were spent on more than the problem


def _followed(name: str, quiet: bool, X: Any, y: Any, **options: Any) -> Path:
    """A path, with progress while it grows and its warnings after it."""
    from svmcore.path.driver import svm_path

    follow = functools.partial(svm_path, X, y, **options)
    return followed(name, quiet, follow, lambda path: f"the path is exact up to C = {path.C_range[1]:.6g}")


def path(args: argparse.Namespace) -> int:
    """Follow a path, say what it is, and write it."""
    report = Report(args)
    check_outputs(args)
    table = load(args)
    test = load_test(args, table)
    published = of_published_path(args)
    problem = problem_of(args, table)
    found = _followed(
        "path", args.quiet, table.X, table.y, **problem, **ends_of(args), time_limit=report.left,
        factorization=args.factorization, published=published, merge_tol=args.merge_tol, max_events=args.max_events,
    )  # fmt: skip
    found = with_origin(found, table)
    if args.output:  # the file first of all: what comes then may be interrupted
        report.write(args.output, found.save)
    add_data(report, args.data, table.X, table.y)
    add_path(report, found)
    report.interrupted = found.ended == "interrupted"
    exact = _certified(report, found)
    validation = None
    if args.cv is not None:  # over the C of the path
        validate = functools.partial(
            cross_validated, "cv", args.quiet, table.X, table.y, cv=args.cv,
            **problem, **ends_of(args) | {"lambda_min": 1.0 / found.C_range[1]},
        )  # fmt: skip
        validation = report.phase(
            "cross-validation", lambda time_limit, **_: validate(time_limit=time_limit), quiet=True
        )
    best = _judged(report, args, found, test, validation)
    report.tell_time()
    if report.written:
        report.tell_written()
    following = "choose C by data that were not trained on: the same with --cv 5, or with --test DATA"
    if best is not None and args.output:
        following = f"svmcore predict {quote(report.written[0])} DATA -C {best:.6g}{retyped(args, reading=True)}"
    elif best is not None:  # a C is recommended only where other data speak for it
        following = f"svmcore train {quote(args.data)} -C {best:.6g}{retyped(args)} -o model.npz"
    report.tell("next", following)
    return report.end(report.interrupted, exact and found.ended == "done")


def _certified(report: Report, found: Path) -> bool:
    """Say how good the path is; False where it is not as good as a path should be."""
    if report.over:  # somebody waits: a look at a few values of C
        low, high = float(found.Cs[0]), found.C_range[1]
        Cs = [high] if not low < high else [high, math.sqrt(low * high)]
        try:
            with warnings_as_lines() as caught:
                certificate = found.certify(Cs, time_limit=_SPOT_SECONDS)
                caught.clear()
        except (StoppedError, KeyboardInterrupt):
            report.skipped.append("certificate")
            return False
    else:
        whole = report.phase("certificate", found.certify)
        if whole is None:
            return False
        certificate = whole
    count = certificate.n_values
    worst = f"the worst of {count} values of C, recomputed from the data: "
    add_certificate(report, certificate, worst, values_of_C=count)
    if certificate.relative_gap <= _LARGEST_GAP:
        return True
    say(
        f"warning: the path is not exact: its answers are only {bound(certificate.relative_gap)}, where "
        f"{100 * _LARGEST_GAP:g} % is expected; a smaller --C-max, or --merge-tol 1e-6 for near-duplicates, helps"
    )
    return False


def _judged(
    report: Report, args: argparse.Namespace, found: Path, test: Any, validation: PathCV | None
) -> float | None:
    """Say where errors are least, and draw; returns the C that data which were not trained on recommend."""
    best = None
    if validation is not None:
        report.interrupted |= validation.ended == "interrupted"
        add_cv(report, validation)
        best = validation.best_C
    if found.lambdas.size < 2:
        if args.plot:
            say("warning: the path has no length; there is nothing to draw")
        return best
    from svmcore.plots.paths import error_curves, is_exact, save_overview

    curves = report.phase("error curve", lambda **limits: error_curves(found, test, **limits))
    if curves is not None:
        training, note = curves.training, "" if is_exact(found) else " (on a grid of C)"
        report.add(
            "training",
            f"least error {percent(training.minimum)}{note}; it says nothing about other data, nor which C to choose",
            error=training.minimum,
        )  # fmt: skip
        if curves.test is not None:
            best = curves.test.best_C if best is None else best
            add_least(report, "held out", curves.test, float(found.Cs[0]), args.test)
        if validation is not None:
            curves = curves._replace(cross_validated=curve_of(validation))
    if args.plot:
        save = functools.partial(save_overview, found, title=os.path.basename(args.data), curves=curves)
        report.phase("picture", lambda **_: report.draw(args.plot, save))
    return best


def demo(args: argparse.Namespace) -> int:
    """Choose C for two built-in problems, test the machines, and draw one of them."""
    report = Report(args)
    picture = args.plot or DEMO_PICTURE
    drawn = importlib.util.find_spec("matplotlib") is not None
    check_outputs(argparse.Namespace(plot=picture if args.plot or drawn else None))
    rows, compiled = [], False
    monks, classes = demo_set("monk1")
    half, rest = np.split(np.random.default_rng(0).permutation(classes.size), 2)
    problems: Any = (  # name, gamma, what to train on, and what to test with
        ("spirals", 0.15, demo_set("spirals"), spirals(seed=1)),
        ("monk1", 0.25, (monks[half], classes[half]), (monks[rest], classes[rest])),
    )
    for name, gamma, (X, y), (Z, z) in problems:
        begin = report.seconds
        found = cross_validated(name, args.quiet, X, y, gamma=gamma, lambda_min=0.01)
        if found.ended == "interrupted":
            report.interrupted = True
            break
        machine = found.refit(tol=_DEMO_TOL)
        seconds = report.seconds - begin
        compiled |= seconds > _COMPILING
        low, high = found.best_interval
        tested = percent(float((machine.predict(Z) != z).mean()))
        gap = f"{100 * machine.relative_gap:.1g} %"
        row = [name, f"{y.size}", percent(found.best_error), interval(low, high), tested, gap, seconds_text(seconds)]
        rows.append(row)
        if name == "spirals" and drawn:
            from svmcore.plots.paths import ErrorCurves, save_overview

            path = _followed("picture", args.quiet, X, y, gamma=gamma, lambda_min=0.01)
            curves = ErrorCurves(path.error_curve(), cross_validated=curve_of(found))
            report.draw(picture, functools.partial(save_overview, path, title="Two spirals", curves=curves))
    report.facts |= {"problems": [dict(zip(_COLUMNS, row, strict=True)) for row in rows]}
    report.facts |= {"picture": picture if drawn else None, "seconds": report.seconds}
    if not args.json:
        if rows:
            _print_demo(rows, compiled, picture if drawn else None)
        print(f"({report.seconds:.1f} s in all)")
    return report.end(report.interrupted, shown=args.json)


def _print_demo(rows: list[list[str]], compiled: bool, picture: str | None) -> None:
    print("Two problems. C is chosen by 5-fold cross-validation, exactly, over every C up to 100 (rbf kernel):\n")
    print_table(rows, _COLUMNS)
    print("\nvalidation: least mean error of the folds, attained for the C beside it")
    print("test: error of the machine trained at that C on points that it has never seen")
    print(
        "off by at most: how far its objective can be from the best possible, computed from the data: its certificate"
    )
    if compiled:
        print("seconds: with compilation, which only a first run does")
    print(
        f"picture: {picture}" if picture else 'picture: none, matplotlib is not installed: pip install "svmcore[plot]"'
    )
    print("next: svmcore cv demo:monk3 --plot monk3.png, or your own file in place of demo:monk3")
