"""The commands that make or use one machine: ``train``, ``predict`` and ``info``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from svmcore._errors import InputError
from svmcore.cli.files import check_output, fitting, kernel_of, load, load_model, standardized, write
from svmcore.cli.output import DONE, EARLY, INTERRUPTED, print_list, say, seconds_text, warnings_as_lines
from svmcore.cli.report import described, path_lines, solution_lines

if TYPE_CHECKING:
    from svmcore.solution import Solution


def train(args: argparse.Namespace) -> int:
    """Train one machine and write it."""
    check_output(args.output)
    X, y = load(args)
    if args.standardize:
        (X,) = standardized(X)
    from svmcore._types import Status
    from svmcore.solve import train_svc

    with warnings_as_lines():
        solution: Solution = train_svc(
            X, y, args.C, **kernel_of(args), tol=args.tol, time_limit=args.time_limit, verbose=0 if args.quiet else 1
        )
    write(args.output, solution.save)
    rows = [("data", described(args, X, y)), *solution_lines(solution), ("seconds", seconds_text(solution.fit_seconds))]
    wrong = float((solution.predict(X) != y).mean())
    rows += [("error", f"{100 * wrong:.3g} % on the training set"), ("written", args.output)]
    rows.append(("next", f"svmcore predict {args.output} DATA"))
    print_list(rows)
    if solution.status is Status.INTERRUPTED:
        return INTERRUPTED
    return DONE if solution.converged else EARLY


def predict(args: argparse.Namespace) -> int:
    """Predict with a machine, or with a path at one C."""
    check_output(args.output)
    X, y = load(args)
    model = load_model(args)
    from svmcore.path_result import Path

    if isinstance(model, Path):
        if args.C is None:
            low, high = model.C_range
            raise InputError(f"{args.model} holds a path; say at which C with -C, from {low:.6g} to {high:.6g}")
        model = model.at(args.C)
    elif args.C is not None:
        raise InputError(f"{args.model} holds a model trained at one C; leave -C out")
    values = model.decision_function(fitting(X, model.n_features))
    classes = model.classes[(values > 0).astype(int)]
    text = "".join(
        f"{value!r}\n" if args.values else f"{value}\n" for value in (values if args.values else classes).tolist()
    )
    if args.output:
        write(args.output, lambda file: file.write(text.encode()))
    else:
        sys.stdout.write(text)
    right = int((classes == y).sum())
    say(f"{right:,} of {y.size:,} labels agree ({100 * right / y.size:.4g} %)")
    return DONE


def info(args: argparse.Namespace) -> int:
    """Say what a file holds."""
    model = load_model(args)
    from svmcore.path_result import Path

    if isinstance(model, Path):
        print_list([("file", f"{args.model}: a path"), *path_lines(model)])
    else:
        classes = "" if model.classes is None else f", classes {model.classes[0]} and {model.classes[1]}"
        print_list(
            [("file", f"{args.model}: a model of {model.n_features:,} features{classes}"), *solution_lines(model)]
        )
    return DONE
