"""The commands that make or use one machine: ``train``, ``predict`` and ``info``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from svmcore._errors import InputError
from svmcore.cli.files import check_outputs, load, load_like, load_machine, problem_of, write
from svmcore.cli.output import DONE, EARLY, INTERRUPTED, Progress, Report, say, seconds_text, warnings_as_lines
from svmcore.cli.report import add_classified, add_data, add_path, add_regressed, add_solution, quoted

if TYPE_CHECKING:
    from svmcore.data import Table
    from svmcore.models.solution import Solution


def train(args: argparse.Namespace) -> int:
    """Train one machine, say how good it is, and write it."""
    check_outputs(args)
    if args.epsilon is not None and not args.svr:
        raise InputError("--epsilon belongs to regression; add --svr, or leave it out")
    if args.class_weight is not None and args.svr:
        raise InputError("--class-weight belongs to classification; leave out --svr, or it")
    table = load(args)
    solution = _trained(args, table)
    if args.output:
        write(args.output, solution.save)
    report = Report("train", args.json)
    add_data(report, args.data, table.X, table.y, args.svr)
    add_solution(report, solution)
    report.tell("seconds", solution.fit_seconds, seconds_text(solution.fit_seconds))
    found = solution.predict(table.X)
    if args.svr:
        add_regressed(report, found, table.y, "on the training set")
    else:
        add_classified(report, found, table.y, solution.classes, "on the training set")
    if args.output:
        report.tell("written", [args.output], args.output)
        report.tell("next", f"svmcore predict {quoted(args.output)} DATA{retyped(args, reading=True)}")
    else:
        report.tell("written", [], "nothing")
        report.tell("next", "the same with -o model.npz to keep the machine")
    report.show()
    if solution.status.name == "INTERRUPTED":
        return INTERRUPTED
    return DONE if solution.converged else EARLY


def _trained(args: argparse.Namespace, table: Table) -> Solution:
    from svmcore.solve import train_svc, train_svr

    options: dict[str, Any] = problem_of(args, table)
    options |= {} if args.loss is None else {"loss": args.loss}
    options |= {"solver": args.solver, "tol": args.tol, "time_limit": args.time_limit}
    with warnings_as_lines(), Progress("train", args.quiet) as progress:
        if not args.svr:
            return train_svc(table.X, table.y, args.C, callback=progress, **options)
        epsilon = 0.1 if args.epsilon is None else args.epsilon
        return train_svr(table.X, table.y, args.C, epsilon, callback=progress, **options)


def retyped(args: argparse.Namespace, *, reading: bool = False, gamma: float | None = None) -> str:
    """The options of this command that the next one needs, too: all, or those about reading a file."""
    parts = [f" --drop {quoted(names)}" for names in args.drop]
    if args.label not in (-1, None):
        parts.append(f" --label {quoted(str(args.label))}")
    if args.header is not None:
        parts.append(" --header" if args.header else " --no-header")
    if reading:
        return "".join(parts)
    shape = {
        "-k": args.kernel,
        "-g": args.gamma if gamma is None else f"{gamma:.6g}",
        "-d": args.degree,
        "-r": args.coef0,
    }
    usual = {"-k": "rbf", "-g": "scale", "-d": 3, "-r": 0.0}
    parts += [f" {name} {value}" for name, value in shape.items() if value != usual[name]]
    parts += [" --standardize"] if args.standardize else []
    parts += [f" --class-weight {quoted(args.class_weight)}"] if args.class_weight else []
    return "".join(parts)


def predict(args: argparse.Namespace) -> int:
    """Predict with a machine, or with a path at one C."""
    check_outputs(args)
    machine = _machine_at(args)
    table = load_like(args.data, args, machine)
    values = machine.decision_function(table.X)
    regression = machine.classes is None
    found = values if regression else machine.classes[(values > 0).astype(int)]
    shown = (values if args.values else found).tolist()
    words = [repr(value) if args.values or regression else str(value) for value in shown]
    if args.output:
        write(args.output, lambda file: file.write("".join(f"{word}\n" for word in words).encode()))
    elif not args.json:
        sys.stdout.write("".join(f"{word}\n" for word in words))
    report = Report("predict", args.json)
    report.facts |= {"model": args.model, "data": args.data, "points": len(words), "written": args.output}
    if args.json and not args.output:
        report.facts["predictions"] = shown
    _compare(report, machine, found, table)
    if args.json:
        report.show()
    for name, text in [] if args.quiet else report.rows:
        say(f"{name}: {text}")
    return DONE


def _machine_at(args: argparse.Namespace) -> Any:
    """The machine of the file, or that of a path at the C that is asked for."""
    model = load_machine(args.model)
    from svmcore.path.result import Path

    if isinstance(model, Path):
        if args.C is None:
            low, high = model.C_range
            raise InputError(f"{args.model} holds a path; say at which C with -C, from {low:.6g} to {high:.6g}")
        return model.at(args.C)
    if args.C is not None:
        raise InputError(f"{args.model} holds a model trained at one C; leave -C out")
    return model


def _compare(report: Report, machine: Any, found: Any, table: Table) -> None:
    """How predictions agree with the labels, if there are some that mean anything to the machine."""
    import numpy as np

    y = table.y
    if y is None:
        return
    if table.known is not None:
        report.add("labels", f"{y.size:,} of {table.known.size:,} rows have one; figures are about those", rows=y.size)
        found = found[table.known]
    if machine.classes is None:
        if y.dtype.kind not in "iuf":
            report.add("labels", f"{y[0]!r} is no number; nothing to compare with", rows=0)
            return
        add_regressed(report, found, y, f"over {y.size:,} rows")
        return
    classes = machine.classes
    if (y.dtype.kind in "US") != (classes.dtype.kind in "US"):  # numbers here, and among them words there
        found, y, classes = (part.astype(str) for part in (found, y, classes))
    strange = y[~np.isin(y, classes)]
    if strange.size == y.size:
        known = " or ".join(str(label) for label in classes.tolist())
        report.add("labels", f"none of them is {known}; nothing to compare with", rows=0)
        return
    if strange.size:
        report.add(
            "labels", f"{strange.size:,} are no class of the machine, such as {strange[0]}", strange=strange.size
        )
    add_classified(report, found, y, classes, f"of {y.size:,} rows")


def info(args: argparse.Namespace) -> int:
    """Say what a file holds."""
    model = load_machine(args.model)
    from svmcore.path.result import Path

    report = Report("info", args.json)
    is_path = isinstance(model, Path)
    classes = model._data.classes if is_path else model.classes
    width = model._data.columns.count if is_path else model.n_features
    named = "" if classes is None else f", classes {classes[0]} and {classes[1]}"
    points = f"{model._data.signs.size:,} points, " if is_path else ""
    kind = "path" if is_path else "model" if classes is not None else "regression model"
    report.add(
        "file", f"{args.model}: a {kind} of {points}{width:,} features{named}",
        name=args.model, kind=kind, features=width, classes=classes,
    )  # fmt: skip
    if model.feature_names is not None:
        names = ", ".join(model.feature_names[:10]) + (", ..." if width > 10 else "")
        report.tell("columns", list(model.feature_names), names)
    (add_path if is_path else add_solution)(report, model)
    report.show()
    return DONE
