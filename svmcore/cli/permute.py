"""The command ``permute``: the p-value of a cross-validated score, by shuffled labels."""

from __future__ import annotations

import argparse
import functools
from typing import Any

import numpy as np

from svmcore.cli.files import check_outputs, load, problem_of
from svmcore.cli.output import Report, at_work, number
from svmcore.cli.report import add_data


def permute(args: argparse.Namespace) -> int:
    """Test a cross-validated score against those of shuffled labels."""
    report = Report(args)
    check_outputs(args)
    table = load(args)
    from svmcore.trials.permutations import permutation_test

    loss: dict[str, Any] = {"loss": "epsilon_insensitive", "epsilon": args.epsilon} if args.svr else {}
    with at_work("permute", args.quiet) as (progress, _):
        test = permutation_test(
            table.X, table.y, cv=args.cv, n_permutations=args.permutations, C=args.cost, score=args.score,
            stop="besag-clifford" if args.exceed else None, exceed=args.exceed or 1, random_state=args.seed,
            time_limit=report.left, n_jobs=args.jobs, callback=progress, **problem_of(args, table), **loss,
        )  # fmt: skip
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

        report.draw(args.plot, functools.partial(save_null, test))
    if args.output:
        header = f"{test.scoring}, {test.score:.17g}, p {test.pvalue:.17g}"
        scores = np.asarray(test.permutation_scores)
        report.write(args.output, lambda file: np.savetxt(file, scores, fmt="%.17g", header=header))
    report.tell_time()
    report.tell_written()
    return report.end(test.status.name == "INTERRUPTED", test.status.name != "TIME_LIMIT")
