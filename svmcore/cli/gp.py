"""The command ``gp``: Gaussian-process regression of a column, and what it says about other data."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from svmcore._errors import InputError
from svmcore.cli.files import check_outputs, load, load_like, problem_of, with_origin
from svmcore.cli.output import Report, at_work, seconds_text
from svmcore.cli.report import add_data, add_kernel, add_regressed

if TYPE_CHECKING:
    from svmcore.train.gp import GPSolution


def gp(args: argparse.Namespace) -> int:
    """Train a process, say how good it is, and write means and standard deviations for other data."""
    from svmcore.train.gp import gp_regression

    check_outputs(args)
    if args.output and not args.test:
        raise InputError(
            f"-o {args.output}: a process is not kept in a file; name the data to be predicted with --test"
        )
    table = load(args)
    report = Report(args)
    with at_work("gp", args.quiet) as (progress, _):
        process = gp_regression(
            table.X, table.y, noise=args.noise, normalize_y=args.normalize_y, solver=args.solver, tol=args.tol,
            stopping=args.stopping, time_limit=args.time_limit, callback=progress, **problem_of(args, table),
        )  # fmt: skip
    process = with_origin(process, table)
    add_data(report, args.data, table.X, table.y, regression=True)
    add_process(report, process)
    add_regressed(report, process.predict(table.X), table.y, "on the training set")
    if args.test:
        _add_test(report, args, process)
    report.tell_written()
    return report.end(process.status.name == "INTERRUPTED", process.converged)


def add_process(report: Report, process: GPSolution) -> None:
    """What a process is."""
    add_kernel(report, process.kernel, process.standardized is not None, kept=False)
    units = ", of targets with mean 0 and variance 1" if process.y_scale != 1.0 or process.y_mean else ""
    report.tell("noise", process.noise, f"variance {process.noise:.6g}{units}")
    report.add(
        "certificate",
        f"residual {process.residual:.1e} of the targets; y' inverse(K + noise I) y is between {process.lower:.8g} "
        f"and {process.upper:.8g}",
        residual=process.residual, lower=process.lower, upper=process.upper,
    )  # fmt: skip
    report.add(
        "status", f"{process.status}", name=process.status.name.lower(), converged=process.converged,
        solver=process.solver, iterations=process.n_iter,
    )  # fmt: skip
    report.tell("seconds", process.fit_seconds, seconds_text(process.fit_seconds))


def _add_test(report: Report, args: argparse.Namespace, process: GPSolution) -> None:
    """Means and standard deviations at other data: into a file, and against their targets."""
    other = load_like(args.test, args, process)
    if args.kernel == "precomputed":
        mean = process.predict(other.X)
        lines = [f"{value!r}\n" for value in mean.tolist()]
    else:
        mean, std = process.predict(other.X, return_std=True)
        lines = [f"{value!r} {spread!r}\n" for value, spread in zip(mean.tolist(), std.tolist(), strict=True)]
    if args.output:
        report.write(args.output, lambda file: file.write("".join(lines).encode()))
    report.add("test", f"{args.test}: {len(lines):,} points", file=args.test, points=len(lines))
    if other.y is not None and other.y.dtype.kind in "iuf":
        found = mean if other.known is None else mean[other.known]
        add_regressed(report, found, other.y, f"over {other.y.size:,} rows of {args.test}", "test")
