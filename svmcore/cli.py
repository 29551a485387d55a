"""The command line, over the public interface only: ``svmcore path DATA`` and ``svmcore demo``.

Exit status: 0 done, 1 the answer is less exact than promised (still written), 2 bad input (one line), 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from svmcore._errors import ConvergenceWarning, MissingExtraError, SVMError

_EXACT = 1e-6
KERNELS = ["linear", "rbf", "poly", "sigmoid", "laplacian", "precomputed"]


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are one line."""

    def error(self, message: str) -> Any:
        sys.stderr.write(f"{self.prog}: {message} (see {self.prog} --help)\n")
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="svmcore", description="Kernel support vector machines with certificates.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    path = commands.add_parser("path", help="follow the solution for every C, and certify it")
    path.add_argument("data", help=".npz, CSV or svmlight text, or demo:spirals, demo:monk1")
    path.add_argument("-o", "--output", metavar="PATH", help="write the path to this .npz file")
    path.add_argument("--plot", metavar="FILE", help="draw it to this .png, .svg or .pdf file")
    path.add_argument(
        "-k", "--kernel", default="rbf", choices=["linear", "rbf", "poly", "sigmoid", "laplacian", "precomputed"]
    )
    path.add_argument("-g", "--gamma", default="scale", help='"scale", "auto" or a number')
    path.add_argument("--degree", type=int, default=3)
    path.add_argument("--coef0", type=float, default=0.0)
    path.add_argument("--lambda-max", type=float, default=None, help="default: where the first event is")
    path.add_argument("--lambda-min", type=float, default=1e-3)
    path.add_argument("--factorization", default="auto", choices=["auto", "svd", "qr", "update"])
    path.add_argument("--merge-tol", type=float, default=0.0)
    path.add_argument("--standardize", action="store_true", help="give every feature mean 0 and variance 1 first")
    path.add_argument("--test", metavar="DATA", help="a second set, for its exact error curve")
    path.add_argument("--time-limit", type=float, default=None, metavar="SECONDS")
    path.add_argument("-v", "--verbose", action="count", default=0)
    demo = commands.add_parser("demo", help="what the library does, in a few seconds")
    demo.add_argument("--plot", metavar="FILE", default="svmcore-demo.png", help="where the picture goes")
    return parser


def _gamma(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _standardized(X: Any, *others: Any) -> list[Any]:
    """X with mean 0 and variance 1 per feature, and others moved alike."""
    X = X.toarray() if hasattr(X, "toarray") else np.asarray(X, dtype=np.float64)
    mean, spread = X.mean(axis=0), X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    dense = [Z.toarray() if hasattr(Z, "toarray") else Z for Z in (X, *others)]
    return [(Z - mean) / spread for Z in dense]


def _table(rows: list[tuple[str, ...]]) -> str:
    """Columns of text, the first to the left, the others to the right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
        if number == 0:
            lines.append("  ".join("-" * width for width in widths))
    return "\n".join(lines)


HEAD = ("data", "kernel", "points", "events", "|E| max", "best training error", "relative gap", "seconds")


def _row(name: str, kernel: str, n: int, path: Any, seconds: float, gap: float) -> tuple[str, ...]:
    best = path.error_curve().minimum
    return (
        name, kernel, f"{n}", f"{path.stats['n_events']}", f"{path.stats['elbow_max']}", f"{100 * best:.2f} %",
        f"{gap:.1e}", f"{seconds:.3f}",
    )  # fmt: skip


def _run_path(options: argparse.Namespace) -> int:
    from svmcore.io import load_data
    from svmcore.path import svm_path

    X, y = load_data(options.data)
    test = None if options.test is None else load_data(options.test)
    if options.standardize:
        if test is None:
            (X,) = _standardized(X)
        else:
            X, Z = _standardized(X, test[0])
            test = (Z, test[1])
    clock = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        path = svm_path(
            X, y, kernel=options.kernel, gamma=_gamma(options.gamma), degree=options.degree, coef0=options.coef0,
            lambda_max=options.lambda_max, lambda_min=options.lambda_min, factorization=options.factorization,
            merge_tol=options.merge_tol, time_limit=options.time_limit, verbose=options.verbose,
        )  # fmt: skip
    seconds = time.perf_counter() - clock
    gap = path.certify().relative_gap
    sys.stdout.write(_table([HEAD, _row(options.data, options.kernel, X.shape[0], path, seconds, gap)]) + "\n")
    sys.stdout.write(
        f"C from {path.Cs[0]:.4g} to {path.Cs[-1]:.4g}, {path.stats['n_distinct']} different breakpoints\n"
    )
    if test is not None:
        held = path.error_curve(*test)
        sys.stdout.write(f"smallest error on {options.test}: {100 * held.minimum:.2f} % at C={held.best_C:.4g}\n")
    for warning in caught:
        sys.stderr.write(f"svmcore: {warning.message}\n")
    if options.output:
        path.save(options.output)
        sys.stdout.write(f"path written to {options.output}\n")
    if options.plot:
        from svmcore import plots

        extra = {} if test is None else {"X": test[0], "y": test[1]}
        plots.save(path.plot("all", **extra), options.plot)
        sys.stdout.write(f"picture written to {options.plot}\n")
    if path.ended == "interrupted":
        return 130
    return 0 if gap <= _EXACT and path.ended == "done" else 1


def _run_demo(options: argparse.Namespace) -> int:
    from svmcore.io import load_data
    from svmcore.path import svm_path

    X, y = load_data("demo:spirals")
    X_test, y_test = load_data("demo:spirals-test")
    sys.stdout.write("Training a support vector machine for every C at once ...\n\n")
    rows: list[tuple[str, ...]] = [HEAD]
    spirals = None
    worst = 0.0
    jobs: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("spirals", X, y, {"kernel": "rbf", "gamma": 0.5}),
        ("monk1", *load_data("demo:monk1"), {"kernel": "rbf", "gamma": 0.5}),
        ("monk1", *load_data("demo:monk1"), {"kernel": "linear"}),
    ]
    for name, A, b, kernel in jobs:
        svm_path(A[:40], b[:40], **kernel) if len(set(b[:40].tolist())) == 2 else None  # load the compiled code untimed
        clock = time.perf_counter()
        path = svm_path(A, b, **kernel)
        seconds = time.perf_counter() - clock
        gap = path.certify().relative_gap
        worst = max(worst, gap)
        spirals = spirals or path
        rows.append(_row(name, kernel["kernel"], A.shape[0], path, seconds, gap))
    sys.stdout.write(_table(rows) + "\n\n")
    assert spirals is not None
    held = spirals.error_curve(X_test, y_test)
    sys.stdout.write(
        f"Of all C, {held.best_C:.3g} errs least on 300 new points of the spirals: {100 * held.minimum:.2f} %. "
        "The gap bounds, from the data alone,\nhow far any of these solutions is from the optimum.\n"
    )
    try:
        from svmcore import plots

        plots.save(plots.plot_demo(spirals, X, y, X_test, y_test), options.plot)
        sys.stdout.write(f"Picture: {options.plot}\n")
    except MissingExtraError as error:
        sys.stdout.write(f"No picture: {error}\n")
    sys.stdout.write("\nNext: svmcore path YOUR.csv --standardize --plot path.png\n")
    return 0 if worst <= _EXACT else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return _run_path(options) if options.command == "path" else _run_demo(options)
    except (SVMError, OSError) as error:
        sys.stderr.write(f"svmcore: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("svmcore: interrupted\n")
        return 130
