"""``train -v K``: the error of folds left out at one C, as svm-train reports it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from svmcore._errors import InputError
from svmcore.cli.output import INTERRUPTED, Report
from svmcore.cli.report import add_classified, add_data, add_regressed
from svmcore.data import Table


def validated(args: argparse.Namespace, table: Table, trained: Callable[[argparse.Namespace, Table], Any]) -> int:
    """Train on all folds but one, predict that one, and say how good all predictions together are. Nothing is written."""
    from svmcore.cv.folds import make_folds

    if args.one_class or table.y is None:
        raise InputError("-v needs labels to compare with; a machine of one class has none")
    if args.output:
        raise InputError("-v trains no final machine, so there is nothing to write; leave -o out, or -v")
    report = Report(args)
    y = table.y
    n = y.size
    if not 2 <= args.folds <= n:
        raise InputError(f"-v {args.folds} is out of range; there are {n} rows, so it can be 2 to {n}")
    classes, codes = (np.array([0]), np.zeros(n, dtype=np.int64)) if args.svr else np.unique(y, return_inverse=True)
    count = np.bincount(codes)
    few = count[codes] < args.folds
    together, groups = np.unique(
        np.where(few, count.argmax(), codes), return_inverse=True
    )  # rare classes are no layers
    found = np.empty_like(y, dtype=np.float64 if args.svr else y.dtype)
    converged = True
    for fold in make_folds(args.folds, groups, together, None, 0):
        args.time_limit = report.left
        machine = trained(args, table._replace(X=_rows(args, table.X, fold.train, fold.train), y=y[fold.train]))
        if machine.status.name == "INTERRUPTED":
            return INTERRUPTED
        converged &= machine.converged
        found[fold.test] = machine.predict(_rows(args, table.X, fold.test, fold.train))
    add_data(report, args.data, table.X, y, args.svr)
    where = f"in cross-validation with {args.folds} folds"
    if args.svr:
        add_regressed(report, found, y, where)
        report.tell("Cross Validation Mean squared error", float(np.mean((found - y) ** 2)))
        spread = bool(np.ptp(found)) and bool(np.ptp(y))
        squared = float(np.corrcoef(found, y)[0, 1] ** 2) if spread else float("nan")
        report.tell("Cross Validation Squared correlation coefficient", squared)
    else:
        add_classified(report, found, y, classes, where)
        share = 100.0 * float((found == y).mean())
        report.tell("Cross Validation Accuracy", share, f"{share:g}%")
    report.tell_time()
    return report.end(whole=converged)


def _rows(args: argparse.Namespace, X: Any, rows: Any, columns: Any) -> Any:
    return X[np.ix_(rows, columns)] if args.kernel == "precomputed" else X[rows]
