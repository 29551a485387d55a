"""Choosing C by cross-validation: the command ``cv``, and what ``path --cv`` and ``demo`` use of it."""

from __future__ import annotations

import argparse
import functools
import math
from shlex import quote
from typing import TYPE_CHECKING, Any

from svmcore._errors import InputError
from svmcore.cli.files import check_outputs, ends_of, load, load_test, problem_of, with_origin
from svmcore.cli.machines import retyped
from svmcore.cli.options import typed
from svmcore.cli.output import Report, followed, interval, number, percent, warnings_as_lines
from svmcore.cli.report import add_agreement, add_classified, add_data, add_solution

if TYPE_CHECKING:
    from svmcore.cv import PathCV
    from svmcore.models.step_curve import StepCurve

_OF_NUMBERS = ("epsilon", "loss", "tau")  # options of a regression


def cross_validated(name: str, quiet: bool, X: Any, y: Any, **options: Any) -> PathCV:
    """Cross-validation over every C, with progress and its warnings after it."""
    from svmcore.cv import cv_path

    follow = functools.partial(cv_path, X, y, **options)
    return followed(name, quiet, follow, lambda found: f"{len(found.folds)} folds are complete")


def curve_of(found: PathCV) -> StepCurve:
    """The cross-validated error as a step function."""
    from svmcore.models.step_curve import StepCurve

    return StepCurve(found.breakpoints, found.values, *found.C_range)


def chosen(found: PathCV, rule: str) -> float:
    """The C to train at."""
    return {"min": found.best_C, "1se": found.one_se_C, "smallest": found.smallest_C}[rule]


def add_cv(report: Report, found: PathCV, rule: str = "min") -> None:
    """What cross-validation says."""
    low, high = found.best_interval
    spread = float(found.standard_error(found.best_C))
    name = {"balanced_error": "mean error of the classes", "auc": "1 - AUC"}.get(
        found.score, found.score.replace("_", " ")
    )
    shown = percent if found.score in ("error", "balanced_error", "auc") else number
    gamma = "" if found.best_gamma is None or found.gammas.size < 2 else f" and gamma {found.best_gamma:.6g}"
    early = "" if found.ended == "done" else f"; ended early ({found.ended.replace('_', ' ')})"
    deviation = "one fold has no standard error" if math.isnan(spread) else f"standard error {shown(spread)}"
    report.add(
        "validation",
        f"{name} {shown(found.best_error)} for {interval(low, high)}{gamma} (mean of {len(found.folds)} folds, exact; "
        f"{deviation}){early}",
        error=found.best_error, standard_error=None if math.isnan(spread) else spread, C_from=low, C_to=high,
        best_C=found.best_C, folds=len(found.folds), score=found.score, gamma=found.best_gamma,
        one_se_C=found.one_se_C, smallest_C=found.smallest_C, C=chosen(found, rule), rule=rule, ended=found.ended,
    )  # fmt: skip
    why = {
        "min": f"; C = {number(found.one_se_C)} is the smallest within one standard error",
        "1se": f", the smallest within one standard error; the least is at C = {number(found.best_C)}",
        "smallest": f", with the fewest vectors within one standard error; the least is at C = {number(found.best_C)}",
    }
    report.rows.append(("choice", f"C = {number(chosen(found, rule))}{why[rule]}"))


def cv(args: argparse.Namespace) -> int:
    """Choose C (and gamma) by cross-validation, train there, and say how good that is."""
    report = Report(args)
    check_outputs(args)
    table = load(args)
    test = load_test(args, table)
    options = problem_of(args, table) | _loss(args)
    found = cross_validated(
        "cv", args.quiet, table.X, table.y, cv=args.cv, score=args.score, random_state=args.seed,
        time_limit=report.left, classes=args.classes or "ovo", n_jobs=args.jobs, **options, **ends_of(args),
    )  # fmt: skip
    C = chosen(found, args.rule)
    with warnings_as_lines():
        machine = with_origin(found.refit(C), table)
    if args.output:
        report.write(args.output, machine.save)
    report.interrupted = found.ended == "interrupted"
    add_data(report, args.data, table.X, table.y, args.svr)
    add_cv(report, found, args.rule)
    add_solution(report, machine)
    if test is not None:
        inner: Any = found.classes
        predicted, where = machine.predict(test[0]), f"of {test[1].size:,} rows of {args.test}"
        if args.one_class:  # what is inside is of the class that was learned
            add_classified(report, inner[(predicted > 0).astype(int)], test[1], inner, where)
        else:
            add_agreement(report, machine, predicted, test[1], where)
    if args.plot:
        from svmcore.plots.cv import save_cv

        report.phase("picture", lambda **_: report.draw(args.plot, functools.partial(save_cv, found)))
    report.tell_time()
    report.tell_written()
    again = retyped(args, gamma=found.best_gamma)
    kind = "".join([" --svr", *(f" {name} {value}" for name, value in typed(args, *_OF_NUMBERS).items())])
    following = f"svmcore train {quote(args.data)}{kind if args.svr else ''} -C {C:.6g}{again} -o model.npz"
    if args.output:
        following = f"svmcore predict {quote(report.written[0])} DATA{retyped(args, reading=True)}"
    elif args.one_class:  # which rows are learned is known here only
        following = f"svmcore cv {quote(args.data)} --one-class{again} -o model.npz"
    report.tell("next", following)
    return report.end(report.interrupted, found.ended == "done" and machine.converged)


def _loss(args: argparse.Namespace) -> dict[str, Any]:
    of_numbers, of_classes = typed(args, *_OF_NUMBERS), typed(args, "classes", "class_weight")
    others = [*(["--svr"] if args.svr else []), *of_numbers, *of_classes]
    if args.one_class and others:
        raise InputError(f"--one-class takes no {others[0]}; leave out one of them")
    if args.one_class:
        return {"loss": "one_class"}
    if of_numbers and not args.svr:
        raise InputError(f"{next(iter(of_numbers))} belongs to regression; add --svr, or leave it out")
    if args.svr and of_classes:
        raise InputError("--classes and --class-weight belong to classification; leave out --svr, or them")
    return {"loss": args.loss or "epsilon_insensitive", "epsilon": args.epsilon, "tau": args.tau} if args.svr else {}
