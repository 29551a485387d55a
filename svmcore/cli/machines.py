"""The commands that make or use one machine: ``train``, ``predict`` and ``info``."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

from svmcore._errors import InputError
from svmcore.cli.files import check_outputs, load, load_like, problem_of, with_origin
from svmcore.cli.options import of_solvers, typed
from svmcore.cli.output import Report, at_work, say, seconds_text, warnings_as_lines
from svmcore.cli.probability import refuse_probability, with_probabilities
from svmcore.cli.report import add_agreement, add_classified, add_data, add_path, add_regressed, add_solution
from svmcore.data import Table
from svmcore.models.files import is_model
from svmcore.models.files import load as load_machine

if TYPE_CHECKING:
    from svmcore.models.solution import Solution
    from svmcore.train.machines import Machines


def train(args: argparse.Namespace) -> int:
    """Train one machine, say how good it is, and write it."""
    if args.file is None and args.as_svm_train and os.path.isfile(args.data):
        args.file = os.path.basename(args.data) + ".model"  # as svm-train calls it
    if args.output is None and args.folds is None:
        args.output = args.file
    check_outputs(args)
    _check_words(args)
    table = load(args)
    if args.folds is not None:
        from svmcore.cli.folds import validated

        return validated(args, table, _trained)
    solution = _trained(args, table)
    if args.probability and solution.status.name != "INTERRUPTED":
        solution = with_probabilities(args, table, solution, _trained)
    solution = with_origin(solution, table)
    report = Report(args)
    if args.output:
        _save(report, args, solution, table)
    add_data(report, args.data, table.X, table.y, args.svr)
    add_solution(report, solution)
    report.tell("seconds", solution.fit_seconds, seconds_text(solution.fit_seconds))
    add_agreement(report, solution, solution.predict(table.X), table.y, "on the training set")
    report.tell_written()
    following = "the same with -o model.npz to keep the machine"
    if report.written:
        following = f"svmcore predict {quote(report.written[0])} DATA{retyped(args, reading=True)}"
    report.tell("next", following)
    return report.end(solution.status.name == "INTERRUPTED", solution.converged)


def _check_words(args: argparse.Namespace) -> None:
    kind = "one class" if args.one_class else "regression" if args.svr else "classification"
    if args.svr and args.one_class:
        raise InputError("--svr and --one-class are two kinds of machines; leave out one of them")
    for option in typed(args, "epsilon", "classes", "class_weight"):
        where = "regression" if option == "--epsilon" else "classification"
        if where != kind:
            remedy = "add --svr, or leave it out" if where == "regression" else f"this is {kind}; leave it out"
            raise InputError(f"{option} belongs to {where}; {remedy}")
    refuse_probability(args)
    for option in typed(args, "loss", "intercept") if args.one_class else ():
        raise InputError(f"{option} belongs to classification and regression; leave it out with --one-class")
    pinball = args.loss == "pinball"
    if pinball and not args.svr:
        raise InputError("--loss pinball fits a quantile of numbers; add --svr")
    if args.tau is not None and not pinball:
        raise InputError("--tau belongs to --loss pinball; add it, or leave --tau out")
    if pinball and args.epsilon is not None:
        raise InputError("--loss pinball has no --epsilon; leave it out, or the loss")


def _save(report: Report, args: argparse.Namespace, machine: Any, table: Table) -> None:
    """Write the machine: as text of LIBSVM where its command line or the name's end asks for it, and the text can hold it."""
    if args.output.endswith(".model") or (args.output == args.file and not args.output.endswith(".npz")):
        written = machine
        if (
            getattr(machine, "kind", "classification") == "classification"
            and getattr(machine, "strategy", "ovo") == "ovo"
        ):
            from svmcore.models import libsvm

            if machine.classes.tolist() != [-1, 1]:  # else classes are in the order of the data, as svm-train has them
                _, first = np.unique(np.asarray(table.y), return_index=True)
                written = libsvm.in_order(machine, np.argsort(first))
        try:
            report.write(args.output, functools.partial(written.save, format="libsvm"))
            return
        except InputError as error:
            say(f"{args.output} is written in svmcore's own format, not LIBSVM's: {error}")
    report.write(args.output, machine.save)


def _trained(args: argparse.Namespace, table: Table) -> Solution | Machines:
    from svmcore.train.classes import train_classes
    from svmcore.train.functions import train_one_class, train_svc, train_svr

    options: dict[str, Any] = problem_of(args, table)
    options |= {name: getattr(args, name) for name in ("loss", "tau") if getattr(args, name) is not None}
    options |= {"solver": args.solver, "tol": args.tol, "time_limit": args.time_limit, "cache_mb": args.cache_mb}
    options |= {"stopping": args.stopping, "max_iter": args.max_iter, "random_state": args.seed, **of_solvers(args)}
    with at_work("train", args.quiet) as (progress, _):
        options["callback"] = progress
        if args.one_class:
            return train_one_class(table.X, 0.5 if args.nu is None else args.nu, **options)
        options |= {} if args.nu is None else {"nu": args.nu}
        assert table.y is not None
        if not args.svr and np.unique(np.asarray(table.y)).size > 2:
            strategy: Any = args.classes or "ovo"
            return train_classes(table.X, table.y, args.C, strategy=strategy, **options)
        if not args.svr:
            return train_svc(table.X, table.y, args.C, **options)
        epsilon = 0.1 if args.epsilon is None else args.epsilon
        return train_svr(table.X, table.y, args.C, epsilon, **options)


def retyped(args: argparse.Namespace, *, reading: bool = False, gamma: float | None = None) -> str:
    """The options of this command that the next one needs, too: all, or those about reading a file."""
    parts = [f" --drop {quote(names)}" for names in args.drop]
    if args.label not in (-1, None):
        parts.append(f" --label {quote(str(args.label))}")
    if args.header is not None:
        parts.append(" --header" if args.header else " --no-header")
    if reading:
        return "".join(parts)
    parts += [f" --categorical {quote(names)}" for names in getattr(args, "categorical", [])]
    g = args.gamma if gamma is None else f"{gamma:.6g}"
    shape = ("-k", args.kernel, "rbf"), ("-g", g, "scale"), ("-d", args.degree, 3), ("-r", args.coef0, 0.0)
    parts += [f" {name} {value}" for name, value, usual in shape if value not in (usual, None)]
    parts += [" --standardize"] if args.standardize else []
    more = typed(args, "impute", "intercept", "classes", "class_weight")
    return "".join([*parts, *(f" {name} {quote(value)}" for name, value in more.items())])


def predict(args: argparse.Namespace) -> int:
    """Predict with a machine, or with a path at one C."""

    args.output = args.file if args.output is None else args.output
    if not is_model(args.model) and is_model(args.data):  # svm-predict names the data first: that is understood, too
        args.model, args.data = args.data, args.model
    check_outputs(args)
    machine = machine_at(args)
    table = load_like(args.data, args, machine)
    regression = machine.classes is None
    table, empty = _whole_rows(table)
    some = table.X.shape[0] > 0
    classes: Any
    classes, chances = _chances(args, machine, table.X) if some else (None, None)
    found = machine.predict(table.X) if some else table.X[:, 0]
    if chances is not None:
        found = classes[chances.argmax(axis=1)]  # as svm-predict -b 1: the most probable class
    shown = (machine.decision_function(table.X) if args.values and some else found).tolist()
    number = args.values or regression
    words = [  # several classes have one decision value each
        " ".join(map(repr, value)) if isinstance(value, list) else repr(value) if number else str(value) for value in shown
    ]  # fmt: skip
    if chances is not None:
        shown = [dict(zip(map(str, classes.tolist()), row, strict=True)) for row in chances.tolist()]
        words = [f"{word} {' '.join(f'{p:.6g}' for p in row)}" for word, row in zip(words, chances, strict=True)]
    for row in empty:  # in order: each has the place that it has in the file
        shown.insert(row, None)
        words.insert(row, "")
    if empty:
        say(
            f"{len(empty):,} of {len(words):,} rows have missing values: their lines are empty; a machine trained with "
            "--impute mean fills such values in"
        )
    if chances is not None:
        words.insert(0, f"labels {' '.join(map(str, classes.tolist()))}")
    lines = "".join(f"{word}\n" for word in words)
    report = Report(args)
    if args.output:
        report.write(args.output, lambda file: file.write(lines.encode()))
    elif args.json:
        report.facts["predictions"] = shown
    else:
        sys.stdout.write(lines)
        sys.stdout.flush()
    written = report.written[0] if report.written else None
    report.facts |= {"model": args.model, "data": args.data, "points": len(shown), "written": written}
    _compare(report, machine, found, table)
    for name, text in [] if args.quiet or args.json else report.rows:
        say(f"{name}: {text}")
    return report.end(shown=args.json)


def _chances(args: argparse.Namespace, machine: Any, X: Any) -> tuple[Any, Any]:
    """Classes and the probabilities (columns) that -b 1 asks for; of numbers a line says how their errors lie."""
    if not args.probability:
        return None, None
    if args.values:
        raise InputError("-b 1 writes probabilities, and --values decision values; leave out one of them")
    if machine.classes is None and getattr(machine, "calibration", None) is not None:
        say(
            "target = prediction + z, z with the Laplace distribution exp(-|z| / s) / (2 s), "
            f"s = {machine.calibration[0]:.6g}"
        )
        return None, None
    if not hasattr(machine, "predict_proba") or machine.classes is None:
        raise InputError(f"{args.model} holds no probabilities; train the machine with -b 1")
    values = machine.predict_proba(X)
    stored = getattr(machine, "stats", {}).get("labels")  # LIBSVM's order
    if stored is not None and stored != machine.classes.tolist():
        return machine.classes[::-1], values[:, ::-1]
    return machine.classes, values


def _whole_rows(table: Table) -> tuple[Table, list[int]]:
    """The rows without missing values, and the places of the others."""
    if hasattr(table.X, "tocsr"):
        return table, []
    gap = np.isnan(table.X).any(axis=1)
    if not gap.any():
        return table, []
    whole, y, known = ~gap, table.y, table.known
    if y is not None:
        y = y[whole] if known is None else y[whole[known]]
    known = None if known is None else known[whole]
    y = None if y is not None and not y.size else y
    return table._replace(X=table.X[whole], y=y, known=known), np.flatnonzero(gap).tolist()


def machine_at(args: argparse.Namespace) -> Any:
    """The machine of the file, or that of a path, or of a cross-validation, at the C that is asked for."""
    model: Any = load_machine(args.model)
    if hasattr(model, "refit"):
        with warnings_as_lines():
            return model.refit(args.C)
    if hasattr(model, "at"):
        low, high = model._range
        if args.C is None:
            raise InputError(
                f"{args.model} holds a path; say at which {model.parameter} with -C, from {low:.6g} to {high:.6g}"
            )
        return model.at(args.C)
    if args.C is not None:
        raise InputError(f"{args.model} holds a model trained at one C; leave -C out")
    if not hasattr(model, "classes"):
        model = argparse.Namespace(predict=model.predict, decision_function=model.predict, classes=None,
                                   columns=model.columns, kind="process")  # fmt: skip
    return model


def _compare(report: Report, machine: Any, found: Any, table: Table) -> None:
    """How predictions agree with the labels, if there are some that mean anything to the machine."""
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
    if getattr(machine, "kind", "") == "one class":
        add_agreement(report, machine, found, y, f"of {found.size:,} rows")
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
    model: Any = load_machine(args.model)
    report = Report(args)
    data = model._data if hasattr(model, "_data") else model._study if hasattr(model, "_study") else model
    classes = getattr(data, "classes", None)
    columns = None if hasattr(model, "_study") else getattr(data, "columns", None)  # those of folds differ
    width = data.X.shape[1] if columns is None else columns.count
    one_class = getattr(model, "kind", "") == "one class"
    named = (
        "" if classes is None or one_class else ", classes " + ", ".join(map(str, classes[:-1])) + f" and {classes[-1]}"
    )
    n = data.X.shape[0] if hasattr(data, "X") else None
    kind = _kind(model)
    report.add(
        "file", f"{args.model}: a {kind} of {'' if n is None else f'{n:,} points, '}{width:,} features{named}",
        name=args.model, kind=kind, features=width, classes=classes, points=n,
    )  # fmt: skip
    names = getattr(data if columns is None else columns, "names", None)
    if names is not None:
        report.tell("columns", list(names), ", ".join(names[:10]) + (", ..." if width > 10 else ""))
    fill = getattr(columns, "fill", None)
    if fill is not None:
        shown = zip(names or map(str, range(1, width + 1)), fill.tolist(), strict=True)
        text = ", ".join(f"{name} {value:.6g}" for name, value in list(shown)[:10]) + (", ..." if width > 10 else "")
        report.tell("missing values", fill.tolist(), f"are filled in: {text}")
    for category in getattr(columns, "categories", ()):
        levels = ", ".join(category.levels[:10]) + (", ..." if len(category.levels) > 10 else "")
        report.add(f"words of {category.name}", levels, levels=list(category.levels))
    if hasattr(model, "refit"):
        from svmcore.cli.cv import add_cv

        add_cv(report, model)
    elif hasattr(model, "at"):
        add_path(report, model)
    elif hasattr(model, "noise"):
        from svmcore.cli.gp import add_process

        add_process(report, model)
    else:
        add_solution(report, model)
    return report.end()


def _kind(model: Any) -> str:
    if hasattr(model, "refit"):
        return "cross-validation"
    if hasattr(model, "at"):
        return "path" if model.parameter == "C" else f"path over {model.parameter}"
    if hasattr(model, "noise"):
        return "Gaussian process"
    words = {"regression": "regression model", "one class": "one-class model"}
    word = words.get(getattr(model, "kind", ""), "model")
    return f"LIBSVM {word}" if model.status.name == "UNKNOWN" else word
