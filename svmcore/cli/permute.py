"""The command ``permute``: the p-value of a cross-validated score, by shuffled labels."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from svmcore.cli.cv import folds
from svmcore.cli.files import check_outputs, load, problem_of, write, write_picture
from svmcore.cli.output import (
    DONE,
    EARLY,
    INTERRUPTED,
    Clock,
    ProgressLine,
    Report,
    number,
    seconds_text,
    warnings_as_lines,
)
from svmcore.cli.report import add_data

_ENDS = {"INTERRUPTED": INTERRUPTED, "TIME_LIMIT": EARLY}  # by the name of the status


def permute(args: argparse.Namespace) -> int:
    """Test a cross-validated score against those of shuffled labels."""
    clock = Clock(args.time_limit)
    check_outputs(args)
    table = load(args)
    if args.plot:
        from svmcore.plots.paths import check_file

        check_file(args.plot)
    from svmcore.trials.permutations import permutation_test

    loss: dict[str, Any] = {"loss": "epsilon_insensitive", "epsilon": args.epsilon} if args.svr else {}
    with warnings_as_lines(), ProgressLine("permute", args.quiet) as progress:
        test = permutation_test(
            table.X, table.y, cv=folds(args.cv), n_permutations=args.permutations, C=args.cost, score=args.score,
            stop="besag-clifford" if args.exceed else None, exceed=args.exceed or 1, random_state=args.seed,
            time_limit=clock.left, n_jobs=args.jobs, callback=progress, **problem_of(args, table), **loss,
        )  # fmt: skip
    report = Report("permute", args.json)
    written = []
    add_data(report, args.data, table.X, table.y, args.svr)
    name = test.scoring.replace("_", " ")
    report.add("score", f"{name} {number(test.score)} (mean of the folds, at C = {number(test.C)})", score=test.score,
               scoring=test.scoring, C=test.C)  # fmt: skip
    early = "" if test.status.name == "CONVERGED" else f"; ended early ({test.status.name.lower().replace('_', ' ')})"
    report.add(
        "chance",
        f"{test.n_reached:,} of {test.n_permutations:,} permutations reach it{early}",
        n_reached=test.n_reached, n_permutations=test.n_permutations, status=test.status.name.lower(),
    )  # fmt: skip
    report.tell("p", test.pvalue, f"{test.pvalue:.4g}")
    report.add(
        "certificate",
        f"{test.n_fits:,} machines, largest violation {test.violation:.1e}, largest relative gap {test.relative_gap:.1e}",
        n_fits=test.n_fits, violation=test.violation, relative_gap=test.relative_gap,
    )  # fmt: skip
    if args.plot:
        from svmcore.plots.null import save_null

        written.append(report.sealing(lambda: write_picture(args.plot, functools.partial(save_null, test))))
    if args.output:
        written.append(report.sealing(lambda: write(args.output, lambda file: _save(file, test))))
    report.tell("seconds", clock.seconds, seconds_text(clock.seconds))
    report.tell("written", written, ", ".join(written) or "nothing")
    report.show()
    return _ENDS.get(test.status.name, DONE)


def _save(file: Any, test: Any) -> None:
    """The scores of all permutations, one a line."""
    import numpy as np

    np.savetxt(
        file,
        np.asarray(test.permutation_scores),
        fmt="%.17g",
        header=f"{test.scoring}, {test.score:.17g}, p {test.pvalue:.17g}",
    )
