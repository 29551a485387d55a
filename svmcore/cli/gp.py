"""The command ``gp``: Gaussian-process regression of a column, and what it says about other data."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from svmcore._errors import InputError
from svmcore.cli.files import check_outputs, load, load_like, problem_of, with_origin, write
from svmcore.cli.output import DONE, EARLY, INTERRUPTED, ProgressLine, Report, seconds_text, warnings_as_lines
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
    options: dict[str, Any] = problem_of(args, table)
    with warnings_as_lines(), ProgressLine("gp", args.quiet) as progress:
        process = gp_regression(
            table.X, table.y, noise=args.noise, normalize_y=args.normalize_y, solver=args.solver, tol=args.tol,
            stopping=args.stopping, time_limit=args.time_limit, callback=progress, **options,
        )  # fmt: skip
    process = with_origin(process, table)
    report = Report("gp", args.json)
    add_data(report, args.data, table.X, table.y, regression=True)
    add_process(report, process)
    add_regressed(report, process.predict(table.X), table.y, "on the training set")
    written = _add_test(report, args, process) if args.test else None
    report.tell("written", [written] if written else [], written or "nothing")
    report.show()
    if process.status.name == "INTERRUPTED":
        return INTERRUPTED
    return DONE if process.converged else EARLY


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


def _add_test(report: Report, args: argparse.Namespace, process: GPSolution) -> str | None:
    """Means and standard deviations at other data: into a file, and against their targets; the name of the file."""
    other = load_like(args.test, args, process)
    if args.kernel == "precomputed":
        mean = process.predict(other.X)
        lines = [f"{value!r}\n" for value in mean.tolist()]
    else:
        mean, std = process.predict(other.X, return_std=True)
        lines = [f"{value!r} {spread!r}\n" for value, spread in zip(mean.tolist(), std.tolist(), strict=True)]
    written = None
    if args.output:
        written = report.sealing(lambda: write(args.output, lambda file: file.write("".join(lines).encode())))
    report.add("test", f"{args.test}: {len(lines):,} points", file=args.test, points=len(lines))
    if other.y is not None and other.y.dtype.kind in "iuf":
        found = mean if other.known is None else mean[other.known]
        below = Report("gp", True)
        add_regressed(below, found, other.y, f"over {other.y.size:,} rows of {args.test}")
        report.rows += below.rows
        report.facts["test"] |= below.facts["error"]
    return written
