"""The command line: ``svmcore path``, ``train``, ``predict``, ``info`` and ``demo``, over the public functions only.

Results go to standard output, everything else to standard error. Exit status: 0 done, 1 did not converge or ended early
(the result is still written), 2 bad input (one line that says what and where), 130 interrupted (what there was is
written). Heavy modules are imported by the command that needs them, so that help and complaints come at once.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path as File
from typing import TYPE_CHECKING, Any, NoReturn

from svmcore import __version__
from svmcore._errors import ConvergenceWarning, InputError, ScaleWarning, SVMError

if TYPE_CHECKING:
    from svmcore.path_result import Path, StepCurve
    from svmcore.solution import Solution

DONE, EARLY, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
KERNELS = ("rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed")
DEMO_PICTURE = "svmcore-demo.png"
_LARGEST_GAP = 1e-6  # of a path that counts as exact
_PATIENCE = 2.0  # seconds of silence before a word about compilation
_DATA_HELP = "svmlight text, CSV, .npz, '-' (standard input), or demo:spirals, demo:two-spirals, demo:monk1, -2, -3"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    if (
        "numpy" not in sys.modules
    ):  # the products are small: threads of the linear algebra would only wait for each other
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args = _parser().parse_args(argv)
            status = int(args.run(args))
            sys.stdout.flush()
            return status
    except SystemExit as stop:  # argparse has said what there is to say
        return stop.code if isinstance(stop.code, int) else BAD_INPUT
    except KeyboardInterrupt:
        _say("interrupted; nothing was written")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EARLY
    except SVMError as error:
        _say(f"error: {error}")
    except MemoryError:
        _say("error: not enough memory for this; try --sample-limit")
    except OSError as error:
        _say(f"error: {f'{error.filename}: ' if error.filename else ''}{error.strerror or error}")
    return BAD_INPUT


def _say(message: str) -> None:
    """One line for the person, not for the next program."""
    print(f"svmcore: {' '.join(message.split())}", file=sys.stderr, flush=True)


@contextmanager
def _warnings_as_lines() -> Iterator[list[warnings.WarningMessage]]:
    """Collect the library's warnings (the list may be emptied), and say them at the end."""
    with warnings.catch_warnings(record=True) as caught:
        for category in (ConvergenceWarning, ScaleWarning):
            warnings.simplefilter("always", category)
        yield caught
    for warning in caught:
        _say(f"warning: {warning.message}")


# ---- arguments -------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Complaints in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")


def _gamma(text: str) -> float | str:
    return text if text in ("scale", "auto") else float(text)


_gamma.__name__ = "gamma"  # for argparse: "invalid gamma value"


def _column(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdecimal() and text.isascii() else text


def _parser() -> _Parser:
    parser = _Parser(
        prog="svmcore",
        description="Kernel support vector machines whose answers carry certificates.",
        epilog="Exit status: 0 done, 1 did not converge (result still written), 2 bad input, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"svmcore {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(run=run)
        return sub

    path = command("path", _path, "follow the solution for every C")
    _add_data(path)
    _add_kernel(path)
    path.add_argument("--test", metavar="DATA", help="other data, to find the C that errs least on them")
    path.add_argument("--plot", metavar="FILE", help="write a picture (.png, .pdf, .svg)")
    path.add_argument("-o", "--output", metavar="PATH", help="write the path (.npz)")
    path.add_argument("--lambda-max", type=float, metavar="L", help="start at C = 1/L (default: the first event)")
    path.add_argument("--lambda-min", type=float, default=1e-3, metavar="L", help="end at C = 1/L (default 0.001)")
    path.add_argument(
        "--merge-tol", type=float, default=0.0, metavar="D", help="make points equal that differ by less than D"
    )
    path.add_argument(
        "--factorization", default="auto", choices=("auto", "svd", "qr", "update"),
        help="auto: the fast tracker (default); the others: the published algorithm",
    )  # fmt: skip
    path.add_argument("--max-events", type=int, metavar="N", help="end after N events")
    _add_limits(path)

    train = command("train", _train, "train at one C")
    _add_data(train)
    _add_kernel(train)
    train.add_argument("-o", "--output", metavar="MODEL", required=True, help="write the model (.npz)")
    train.add_argument("-C", type=float, default=1.0, help="penalty (default 1)")
    train.add_argument(
        "--tol", type=float, default=1e-3, help="largest violation of the optimality conditions (default 0.001)"
    )
    _add_limits(train)

    predict = command("predict", _predict, "predict with a model, or with a path at one C")
    predict.add_argument("model", metavar="MODEL", help="what train -o or path -o wrote")
    _add_data(predict)
    predict.add_argument("-C", type=float, help="for a path: which C")
    predict.add_argument("-o", "--output", metavar="OUT", help="write predictions to a file (default: standard output)")
    predict.add_argument("--values", action="store_true", help="decision values instead of classes")

    info = command("info", _info, "say what a file holds")
    info.add_argument("model", metavar="MODEL", help="what train -o or path -o wrote")

    demo = command("demo", _demo, "follow two built-in problems and draw one of them")
    demo.add_argument("--plot", metavar="FILE", help=f"where to write the picture (default {DEMO_PICTURE})")
    demo.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return parser


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help=_DATA_HELP)
    parser.add_argument(
        "--label", type=_column, default=-1, metavar="COLUMN",
        help="CSV: the column of labels, its name or its number from 1 (default: the last)",
    )  # fmt: skip


def _add_kernel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", "--kernel", default="rbf", choices=KERNELS, help="default rbf")
    parser.add_argument(
        "-g", "--gamma", type=_gamma, default="scale", metavar="G", help='a number, "scale" (default) or "auto"'
    )
    parser.add_argument("-d", "--degree", type=int, default=3, help="of poly (default 3)")
    parser.add_argument("-r", "--coef0", type=float, default=0.0, help="of poly and sigmoid (default 0)")
    parser.add_argument(
        "--standardize", action="store_true", help="give every feature mean 0 and variance 1 (sparse: mean square 1)"
    )
    parser.add_argument("--sample-limit", type=int, metavar="N", help="use N points drawn at random, if there are more")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="stop there and keep what there is")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def _kernel_of(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in ("kernel", "gamma", "degree", "coef0")}


# ---- files -----------------------------------------------------------------------------------------------------------


def _check_output(name: str | None) -> None:
    """Refuse before the work what could not be written after it."""
    if name is None:
        return
    if "\0" in name:
        raise InputError(f"{name!r} is no file name")
    folder = File(name).absolute().parent
    if os.path.isdir(name):
        raise InputError(f"{name} is a directory; give a file name")
    if not folder.is_dir():
        raise InputError(f"{name}: there is no directory {folder}")
    if not os.access(name if os.path.exists(name) else folder, os.W_OK):
        raise InputError(f"{name} cannot be written: permission denied")


def _write(name: str, save: Callable[[Any], None]) -> None:
    """Write a file whole or not at all."""
    target = File(name)
    if target.exists() and not target.is_file():  # a device, a pipe
        with target.open("wb") as file:
            save(file)
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            save(file)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _load(args: argparse.Namespace) -> tuple[Any, Any]:
    """The data, or a sample of them, as they are."""
    from svmcore.data import load_data

    X, y = load_data(args.data, label=args.label)
    limit = getattr(args, "sample_limit", None)
    if limit is not None:
        if limit < 2:
            raise InputError(f"--sample-limit {limit} is out of range; it must be at least 2")
        if limit < y.size:
            import numpy as np

            kept = np.sort(np.random.default_rng(0).permutation(y.size)[:limit])
            X, y = X[kept], y[kept]
    return X, y


def _load_test(args: argparse.Namespace, X: Any, y: Any) -> tuple[Any, Any] | None:
    """The other data, which must be like the first."""
    if args.test is None:
        return None
    import numpy as np

    from svmcore.data import load_data

    Z, z = load_data(args.test, label=args.label)
    Z = _fitting(Z, X.shape[1])
    if Z.shape[1] != X.shape[1]:
        raise InputError(f"{args.test} has {Z.shape[1]} features, {args.data} has {X.shape[1]}")
    strange = np.setdiff1d(z, y)
    if strange.size:
        raise InputError(f"{args.test} holds the label {strange.tolist()[0]!r}, which {args.data} does not")
    return Z, z


def _standardized(X: Any, *others: Any) -> list[Any]:
    """X with mean 0 and variance 1 in every feature (sparse: mean square 1, since zeros must stay), others moved alike."""
    import numpy as np

    if hasattr(X, "tocsr"):
        spread = np.sqrt(np.asarray(X.multiply(X).mean(axis=0)).ravel())
        scale = 1.0 / np.where(spread > 0, spread, 1.0)
        return [Z.multiply(scale).tocsr() if hasattr(Z, "tocsr") else Z * scale for Z in (X, *others)]
    mean, spread = X.mean(axis=0), X.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    return [((Z.toarray() if hasattr(Z, "tocsr") else Z) - mean) / spread for Z in (X, *others)]


def _described(args: argparse.Namespace, X: Any, y: Any) -> str:
    import numpy as np

    classes, counts = np.unique(y, return_counts=True)
    shown = ", ".join(
        f"{name} ({count:,})" for name, count in zip(classes[:4].tolist(), counts[:4].tolist(), strict=True)
    )
    more = ", ..." if classes.size > 4 else ""
    return f"{args.data}: {X.shape[0]:,} points, {X.shape[1]:,} features, classes {shown}{more}"


# ---- output ----------------------------------------------------------------------------------------------------------


def _rich() -> bool:
    return importlib.util.find_spec("rich") is not None


def _list(rows: list[tuple[str, str]]) -> None:
    """Names and what there is to say about them."""
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:<{width}}  {text}")
    sys.stdout.flush()


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table, first column to the left and the others to the right."""
    if sys.stdout.isatty() and _rich():
        from rich import box
        from rich.console import Console
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for k, name in enumerate(head):
            table.add_column(name, justify="right" if k else "left")
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for line in (head, ["-" * width for width in widths], *rows):
        cells = [
            f"{cell:>{width}}" if k else f"{cell:<{width}}"
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    sys.stdout.flush()


class _Progress:
    """How far a path has come, in log lambda: a bar, a line that renews itself, or in a log a line now and then."""

    def __init__(self, name: str, quiet: bool) -> None:
        self.name = name
        self.quiet = quiet
        self.live = sys.stderr.isatty()
        self.bar: Any = None
        self.last = time.perf_counter()
        self.width = 0
        self.pause = 0.1 if self.live else 1.0  # seconds between two lines; longer and longer in a log
        self._patience = threading.Timer(_PATIENCE, self._still_here)
        self._patience.daemon = True

    def __enter__(self) -> _Progress:
        if not self.quiet:
            self._patience.start()
            if self.live and _rich():
                self._start_bar()
        return self

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
        )
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.bar.start()
        self.task = self.bar.add_task(self.name, total=1.0)

    def _still_here(self) -> None:
        self._show(f"{self.name}: starting; a first run compiles for up to a minute, later ones do not")

    def _show(self, line: str) -> None:
        if self.bar is not None:
            self.bar.update(self.task, description=line)
        elif self.live:
            print("\r" + line.ljust(self.width), end="", file=sys.stderr, flush=True)
            self.width = len(line)
        else:
            print(line, file=sys.stderr, flush=True)

    def __call__(self, report: Any) -> None:
        """Show one report of a path's progress."""
        self._patience.cancel()
        now = time.perf_counter()
        if self.quiet or now - self.last < self.pause:
            return
        self.last = now
        self.pause = 0.1 if self.live else min(2.0 * self.pause, 60.0)
        where = f"{self.name}: lambda {report.lambda_:.3g}, {report.n_events:,} events, {report.elbow:,} on the margin"
        if self.bar is not None:
            self.bar.update(self.task, completed=report.done, description=where)
        else:
            self._show(f"{where}, {100 * report.done:.0f} % of the way, {report.seconds:.0f} s")

    def __exit__(self, *_: object) -> None:
        self._patience.cancel()
        if self.bar is not None:
            self.bar.stop()
        elif self.live and self.width:
            print("\r" + " " * self.width + "\r", end="", file=sys.stderr, flush=True)


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= value < 1e6 else f"{value:.3g}"


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _best_range(curve: StepCurve, start: float) -> tuple[float, float]:
    """The ends of the interval of C around the best one, in a path that begins at `start`."""
    import numpy as np

    edges = np.concatenate([[curve.C_min], curve.breakpoints, [curve.C_max]])
    k = int(np.clip(np.searchsorted(edges, curve.best_C, side="right") - 1, 0, edges.size - 2))
    return max(start, float(edges[k])), float(edges[k + 1])


def _path_lines(path: Path) -> list[tuple[str, str]]:
    """What a path is, its stored record alone."""
    stats = path.stats
    Cs, lambdas = path.Cs[[0, -1]], path.lambdas[[0, -1]]
    inverse = f"lambda = 1/C from {lambdas[0]:.3g} to {lambdas[1]:.3g}"
    early = "" if path.ended == "done" else f"; ended early ({path.ended.replace('_', ' ')})"
    values = f"{stats['n_distinct']:,} value{'s' if stats['n_distinct'] != 1 else ''} of C"
    return [
        ("kernel", _kernel_text(path._data.spec.kernel)),
        ("path", f"every C from {_number(Cs[0])} to {_number(Cs[1])}, {inverse}{early}"),
        ("events", f"{stats['n_events']:,} at {values}; at most {stats['elbow_max']:,} points on the margin"),
    ]  # fmt: skip


def _kernel_text(kernel: Any) -> str:
    from svmcore._types import KernelKind

    kind = KernelKind(kernel.kind)
    name = kind.name.lower()
    parts = [name]
    if name in ("rbf", "poly", "sigmoid", "laplacian"):
        parts.append(f"gamma {kernel.gamma:.6g}")
    if name == "poly":
        parts.append(f"degree {kernel.degree}")
    if name in ("poly", "sigmoid"):
        parts.append(f"coef0 {kernel.coef0:g}")
    return ", ".join(parts)


# ---- commands --------------------------------------------------------------------------------------------------------


def _status(path: Path, n_warnings: int = 0) -> int:
    if path.ended == "interrupted":
        return INTERRUPTED
    return EARLY if path.ended != "done" or n_warnings else DONE


def _followed(name: str, quiet: bool, X: Any, y: Any, **options: Any) -> Path:
    """A path, with progress while it grows and its warnings after it."""
    from svmcore.path import svm_path

    with _warnings_as_lines() as caught:
        with _Progress(name, quiet) as progress:
            path = svm_path(X, y, callback=progress, **options)
        if path.ended == "interrupted":
            caught.clear()
            _say(f"interrupted; the path is exact down to lambda = {path.lambdas[-1]:.3g}, C = {path.C_range[1]:.6g}")
    return path


def _path(args: argparse.Namespace) -> int:
    for name in (args.output, args.plot):
        _check_output(name)
    X, y = _load(args)
    test = _load_test(args, X, y)
    if args.standardize:
        X, *others = _standardized(X, *([test[0]] if test else []))
        test = (others[0], test[1]) if test else None
    if args.plot:
        from svmcore.plots import check_file

        check_file(args.plot)
    path = _followed(
        "path", args.quiet, X, y, **_kernel_of(args), lambda_max=args.lambda_max, lambda_min=args.lambda_min,
        factorization=args.factorization, merge_tol=args.merge_tol, max_events=args.max_events,
        time_limit=args.time_limit,
    )  # fmt: skip
    written = []
    if args.output:  # first of all: what comes now may be interrupted too
        _write(args.output, path.save)
        written.append(args.output)
    from svmcore.plots import error_curves, is_exact, save_overview

    seconds = path.stats["seconds"]["total"]
    rows = [("data", _described(args, X, y)), *_path_lines(path), ("seconds", _seconds(seconds))]
    found = path.certify()
    certificate = f"relative duality gap at most {found.relative_gap:.1e}, KKT violation {found.kkt_violation:.1e}"
    rows.append(("certificate", f"{certificate} (20 values of C, recomputed from the data)"))
    best = path.C_range[1]
    if path.lambdas.size > 1:
        curves = error_curves(path, test)
        if curves.best is not None:
            best = curves.best.best_C
        low, high = _best_range(curves.training, path.Cs[0])
        least = (
            f"least training error {100 * curves.training.minimum:.3g} % for C from {_number(low)} to {_number(high)}"
        )
        rows.append(("error", least if is_exact(path) else f"{least} (on a grid of C)"))
        if curves.test is not None:
            low, high = _best_range(curves.test, path.Cs[0])
            held_out = f"least error {100 * curves.test.minimum:.3g} % for C from {_number(low)} to {_number(high)}"
            rows.append(("held out", f"{held_out} ({args.test})"))
        if args.plot:
            draw = functools.partial(save_overview, path, title=os.path.basename(args.data), curves=curves)
            _write_picture(args.plot, draw)
            written.append(args.plot)
    elif args.plot:
        _say("warning: the path has no length; there is nothing to draw")
    if written:
        rows.append(("written", ", ".join(written)))
    rows.append(("next", _next(args, best)))
    _list(rows)
    return _status(path, n_warnings=not found.relative_gap <= _LARGEST_GAP)


def _next(args: argparse.Namespace, best: float) -> str:
    """What to type next."""
    if args.output:
        alike = " (DATA standardised in the same way)" if args.standardize else ""
        return f"svmcore predict {args.output} DATA -C {best:.6g}{alike}"
    return "the same with -o path.npz to keep the path" + ("" if args.plot else ", with --plot path.png to see it")


def _write_picture(name: str, save: Callable[[str], None]) -> None:
    """Pictures are known by the ends of their names: drawn beside the target, then moved there."""
    target = File(name)
    if target.exists() and not target.is_file():
        save(name)
        return
    draft = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        save(str(draft))
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _demo(args: argparse.Namespace) -> int:
    begin = time.perf_counter()
    picture = args.plot or DEMO_PICTURE
    _check_output(picture)
    drawn = importlib.util.find_spec("matplotlib") is not None
    if args.plot or drawn:
        from svmcore.plots import check_file

        check_file(picture)
    from svmcore.data import demo_set, spirals
    from svmcore.plots import error_curves, save_overview

    rows = []
    status = DONE
    compiled = False
    for name, gamma, test in (("spirals", 0.15, spirals(seed=1)), ("monk1", 0.25, None)):
        X, y = demo_set(name)
        path = _followed(name, args.quiet, X, y, gamma=gamma, lambda_min=0.01)
        curves = error_curves(path, test)
        found = path.certify()
        seconds = path.stats["seconds"]["total"]
        compiled |= seconds > 5.0
        rows.append(
            [
                name, f"{y.size}", f"{path.stats['n_events']:,}", f"{100 * curves.training.minimum:.3g} %",
                f"{path.stats['elbow_max']}", f"{found.relative_gap:.0e}", _seconds(seconds),
            ]
        )  # fmt: skip
        status = max(status, _status(path))
        if status == INTERRUPTED:
            break
        if name == "spirals" and drawn:
            draw = functools.partial(save_overview, path, title="Two spirals", curves=curves)
            _write_picture(picture, draw)
    print("Two problems, each solved for every C at once (rbf kernel):\n")
    _table(("problem", "points", "events", "best error", "|E| max", "duality gap", "seconds"), rows)
    print("\nevents: points that reach or leave the margin on the way; |E| max: most points on it at once")
    print("best error: on the training set, over all C")
    print("duality gap: the largest of 20 values of C, relative, recomputed from the data: the certificate")
    if compiled:
        print("seconds: with compilation, which only a first run does")
    if drawn and status != INTERRUPTED:
        print(f"picture: {picture}")
    elif not drawn:
        print('picture: none, for want of matplotlib: pip install "svmcore[plot]"')
    print("next: svmcore path demo:monk3 --plot monk3.png, or your own file in place of demo:monk3")
    print(f"({time.perf_counter() - begin:.1f} s in all)")
    return status


def _train(args: argparse.Namespace) -> int:
    _check_output(args.output)
    X, y = _load(args)
    if args.standardize:
        (X,) = _standardized(X)
    from svmcore._types import Status
    from svmcore.solve import train_svc

    with _warnings_as_lines():
        solution: Solution = train_svc(
            X, y, args.C, **_kernel_of(args), tol=args.tol, time_limit=args.time_limit, verbose=0 if args.quiet else 1
        )
    _write(args.output, solution.save)
    rows = [("data", _described(args, X, y)), *_solution_lines(solution), ("seconds", _seconds(solution.fit_seconds))]
    wrong = float((solution.predict(X) != y).mean())
    rows += [("error", f"{100 * wrong:.3g} % on the training set"), ("written", args.output)]
    rows.append(("next", f"svmcore predict {args.output} DATA"))
    _list(rows)
    if solution.status is Status.INTERRUPTED:
        return INTERRUPTED
    return DONE if solution.converged else EARLY


def _solution_lines(solution: Solution) -> list[tuple[str, str]]:
    certificate = f"relative duality gap {solution.relative_gap:.1e}, KKT violation {solution.kkt_violation:.1e}"
    return [
        ("kernel", _kernel_text(solution.kernel)),
        ("vectors", f"{len(solution.support):,} of {len(solution.alpha):,} points support the machine"),
        ("objective", f"{solution.objective:.8g} (dual, minimised)"),
        ("certificate", certificate),
        ("status", f"{solution.status}"),
    ]


def _model(args: argparse.Namespace) -> Any:
    from svmcore.solution import load

    return load(args.model)


def _fitting(X: Any, width: int) -> Any:
    """Sparse text does not say how many features there are: missing ones at the end are zero."""
    if hasattr(X, "tocsr") and X.shape[1] < width:
        X = X.copy()
        X.resize(X.shape[0], width)
    return X


def _predict(args: argparse.Namespace) -> int:
    _check_output(args.output)
    X, y = _load(args)
    model = _model(args)
    from svmcore.path_result import Path

    if isinstance(model, Path):
        if args.C is None:
            low, high = model.C_range
            raise InputError(f"{args.model} holds a path; say at which C with -C, from {low:.6g} to {high:.6g}")
        model = model.at(args.C)
    elif args.C is not None:
        raise InputError(f"{args.model} holds a model trained at one C; leave -C out")
    values = model.decision_function(_fitting(X, model.n_features))
    classes = model.classes[(values > 0).astype(int)]
    text = "".join(
        f"{value!r}\n" if args.values else f"{value}\n" for value in (values if args.values else classes).tolist()
    )
    if args.output:
        _write(args.output, lambda file: file.write(text.encode()))
    else:
        sys.stdout.write(text)
    right = int((classes == y).sum())
    _say(f"{right:,} of {y.size:,} labels agree ({100 * right / y.size:.4g} %)")
    return DONE


def _info(args: argparse.Namespace) -> int:
    model = _model(args)
    from svmcore.path_result import Path

    if isinstance(model, Path):
        _list([("file", f"{args.model}: a path"), *_path_lines(model)])
    else:
        classes = "" if model.classes is None else f", classes {model.classes[0]} and {model.classes[1]}"
        _list([("file", f"{args.model}: a model of {model.n_features:,} features{classes}"), *_solution_lines(model)])
    return DONE
