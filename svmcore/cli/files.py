"""What the commands read and write."""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import replace
from pathlib import Path as File
from typing import Any

import numpy as np

from svmcore._errors import InputError
from svmcore.cli.output import say
from svmcore.data import Table, Wanted, read
from svmcore.models.files import read_like

_MOST_CLASSES = 50


# ---- writing ---------------------------------------------------------------------------------------------------------


def check_outputs(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it, or would be written over what is read."""
    inputs = [getattr(args, name, None) for name in ("data", "test", "model", "source")]
    plot = getattr(args, "plot", None)
    outputs = [name for name in (getattr(args, "output", None), plot) if name is not None]
    for name in outputs:
        folder = File(name).absolute().parent
        if "\0" in name:
            raise InputError(f"{name!r} is no file name")
        if os.path.isdir(name):
            raise InputError(f"{name} is a directory; give a file name")
        if not folder.is_dir():
            raise InputError(f"{name}: there is no directory {folder}")
        if not os.access(name if os.path.exists(name) else folder, os.W_OK):
            raise InputError(f"{name} cannot be written: permission denied")
        for source in inputs:
            if source and os.path.exists(source) and os.path.exists(name) and os.path.samefile(source, name):
                same = "" if source == name else f" ({source}, the same file)"
                raise InputError(f"{name} is what this command reads{same}, and would be lost; write to another file")
    if len(outputs) == 2 and os.path.realpath(outputs[0]) == os.path.realpath(outputs[1]):
        raise InputError(f"{outputs[0]} cannot hold both the result and the picture; give two names")
    if plot is not None:
        from svmcore.plots.canvas import check_file

        check_file(plot)


# ---- reading ---------------------------------------------------------------------------------------------------------


def wanted(args: argparse.Namespace) -> Wanted:
    """What the options say about reading a file."""
    label = None if getattr(args, "one_class", False) and args.command == "train" and args.label == -1 else args.label
    drop, categorical = (
        tuple(name.strip() for names in getattr(args, option, []) for name in names.split(","))
        for option in ("drop", "categorical")
    )
    filled = getattr(args, "impute", None) is not None or args.command == "predict"
    missing: Any = "nan" if filled else "offer" if hasattr(args, "impute") else "error"
    return Wanted(
        label, args.header, drop, categorical=categorical, unknown=getattr(args, "unknown", "error"), missing=missing,
        typed=True,
    )  # fmt: skip


def _imputed(args: argparse.Namespace, table: Table) -> Table:
    """The table with what --impute says in the place of missing values."""
    how = getattr(args, "impute", None)
    if how is None or hasattr(table.X, "tocsr"):  # sparse text has no missing values
        return table
    gaps = np.isnan(table.X)
    empty = np.flatnonzero(gaps.all(axis=0))
    if empty.size:
        column = repr(table.names[empty[0]]) if table.names is not None else str(empty[0] + 1)
        raise InputError(f"{args.data}: feature {column} has no value in any row; leave it out with --drop")
    fill = np.nanmean(table.X, axis=0) if how == "mean" else np.nanmedian(table.X, axis=0)
    count = int(gaps.any(axis=1).sum())
    if count and not args.quiet:
        say(
            f"{count:,} of {len(gaps):,} rows have missing values, which the {how} of their column fills in, for predict, too"
        )
    return table._replace(X=np.where(gaps, fill, table.X), fill=fill)


def load(args: argparse.Namespace) -> Table:
    """The data of a command that trains, or a sample of them."""
    table = read(args.data, wanted(args))
    if getattr(args, "kernel", None) == "precomputed":
        table = table._replace(X=_kernel_values(args.data, table.X), base=None)
    limit = args.sample_limit
    if limit is not None and limit < 2:
        raise InputError(f"--sample-limit {limit} is out of range; it must be at least 2")
    n = table.X.shape[0]
    if limit is not None and limit < n:
        kept = np.sort(np.random.default_rng(0).permutation(n)[:limit])
        given = getattr(args, "kernel", None) == "precomputed"
        rows = table.X[np.ix_(kept, kept)] if given and table.X.shape[1] == n else table.X[kept]
        table = table._replace(X=rows, y=None if table.y is None else table.y[kept])
    table = _imputed(args, table)
    y: Any = table.y
    if not getattr(args, "svr", False) and y is not None and args.command != "gp" and y.dtype.kind not in "SU":
        count = np.unique(y).size
        most = math.inf if getattr(args, "as_svm_train", False) else _MOST_CLASSES
        if count > most or (count > 2 and y.dtype.kind == "f"):  # more than classes are, or fractions
            raise InputError(
                f"{args.data}: the labels are {count:,} different numbers, from {y.min():.6g} to {y.max():.6g}; classes are "
                "needed here, and numbers are fitted by svmcore train --svr (another column holds the labels? --label)"
            )
    return table


def _kernel_values(name: str, X: Any) -> Any:
    """A kernel matrix; LIBSVM's text has the number of every row before its values."""
    if not hasattr(X, "toarray"):
        return X
    K = X.toarray()
    n = len(K)
    if K.shape == (n, n + 1) and np.array_equal(K[:, 0], np.arange(1, n + 1)):
        return np.ascontiguousarray(K[:, 1:])
    if K.shape != (n, n):
        raise InputError(
            f"{name} is {n} x {K.shape[1]}; a precomputed kernel needs rows 0:NUMBER 1:VALUE ... n:VALUE, numbered from 1"
        )
    return K


def load_like(source: str, args: argparse.Namespace, machine: Any) -> Table:
    """Data for a machine or a path: its columns in its order, its width, labels where there are some."""
    return read_like(source, machine, wanted(args)._replace(categorical=()), getattr(args, "model", args.data))


def with_origin(model: Any, table: Table) -> Any:
    """The model, which remembers what words its features stand for, how the file numbers them, and what fills gaps."""
    origin: dict[str, Any] = {"categories": table.categories, "base": table.base, "fill": table.fill}
    if not table.categories and table.base is None and table.fill is None:
        return model
    if hasattr(model, "machines"):
        return replace(model, machines=tuple(with_origin(machine, table) for machine in model.machines))
    if hasattr(model, "_data"):  # a path
        columns = replace(model._data.columns, **origin)
        model._data = model._data._replace(columns=columns)
        return model
    return replace(model, columns=replace(model.columns, **origin))


def load_test(args: argparse.Namespace, table: Table) -> tuple[Any, Any] | None:
    """The other data, which must be like the first."""
    if args.test is None:
        return None
    from svmcore.problem.columns import Columns

    columns = Columns(table.X.shape[1], table.names, categories=table.categories, base=table.base, fill=table.fill)
    if getattr(args, "kernel", None) == "precomputed":
        columns = replace(columns, unit="kernel values")
    other = load_like(args.test, args, argparse.Namespace(columns=columns))
    assert table.y is not None
    if other.y is None or other.known is not None:
        raise InputError(f"{args.test} lacks labels; it needs one in every row, to count errors")
    if getattr(args, "svr", False):
        return other.X, other.y
    strange = np.setdiff1d(other.y, table.y)
    if strange.size:
        raise InputError(f"{args.test} holds the label {strange.tolist()[0]!r}, which {args.data} does not")
    return other.X, other.y


# ---- arguments as keywords -------------------------------------------------------------------------------------------


def problem_of(args: argparse.Namespace, table: Table) -> dict[str, Any]:
    """The keywords that define the problem."""
    found = {name: getattr(args, name) for name in ("kernel", "gamma", "degree", "coef0", "standardize")}
    as_svm_train = getattr(args, "as_svm_train", False)
    if found["gamma"] is None or (as_svm_train and found["gamma"] == 0.0):
        found["gamma"] = "auto" if as_svm_train else "scale"
    if table.names is not None and args.kernel != "precomputed":
        found["feature_names"] = table.names
    intercept = getattr(args, "intercept", None)
    if intercept is not None:
        found["fit_intercept"] = {"yes": True, "no": False}.get(intercept, intercept)
    weights = getattr(args, "class_weight", None)
    if weights is not None:
        found["class_weight"] = class_weights(weights, table.y, lenient=as_svm_train)
    return found


def ends_of(args: argparse.Namespace) -> dict[str, Any]:
    """The ends of the path as the library takes them, lambda = 1 / C. An end that is not given is the library's."""
    for name in ("C_max", "C_min"):
        value = getattr(args, name)
        if value is not None and not (value > 0.0 and math.isfinite(value)):
            raise InputError(f"--{name.replace('_', '-')} {value:g} is out of range; it must be a positive number")
    low = 1.0 / args.C_max if args.C_max is not None else args.lambda_min
    high = 1.0 / args.C_min if args.C_min is not None else args.lambda_max
    if low is None:
        return {"lambda_max": high}
    if high is not None and args.C_min is not None and high < low:
        raise InputError(f"--C-min {args.C_min:g} is larger than the largest C, {1.0 / low:g}")
    return {"lambda_min": low, "lambda_max": high}


def class_weights(text: str, y: Any, *, lenient: bool = False) -> Any:
    """The weights of labels: "balanced", or a mapping read from "yes=5,no=1". `lenient`: absent labels are only said."""
    if text == "balanced":
        return text
    labels = {str(value): value for value in np.unique(y).tolist()}
    weights = {}
    for pair in text.split(","):
        label, equals, weight = pair.rpartition("=")
        label = label.strip()
        if not equals:
            raise InputError(f"--class-weight {text}: {pair!r} is no LABEL=WEIGHT; give balanced, or yes=5,no=1")
        if label.startswith("+") and label not in labels:
            label = label[1:]
        if label not in labels:
            known = ", ".join(list(labels)[:6])
            if lenient:
                say(f"-w{label} is left out: the data hold no label {label!r}; they hold {known}")
                continue
            raise InputError(f"--class-weight {text}: the data hold no label {label!r}; they hold {known}")
        try:
            weights[labels[label]] = float(weight)
        except ValueError:
            raise InputError(f"--class-weight {text}: {weight!r} is no number") from None
    return weights or None
