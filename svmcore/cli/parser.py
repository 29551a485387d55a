"""What may be typed: commands, their arguments and their help."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from svmcore import __version__
from svmcore.cli.machines import info, predict, train
from svmcore.cli.output import BAD_INPUT
from svmcore.cli.paths import DEMO_PICTURE, demo, path

KERNELS = ("rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed")
_DATA_HELP = "svmlight text, CSV, .npz, '-' (standard input), or demo:spirals, demo:two-spirals, demo:monk1, -2, -3"


class _Parser(argparse.ArgumentParser):
    """Complaints in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")


def _gamma(text: str) -> float | str:
    return text if text in ("scale", "auto") else float(text)


_gamma.__name__ = "gamma"  # for argparse: "invalid gamma value"


def _column(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdecimal() and text.isascii() else text


def build() -> argparse.ArgumentParser:
    """The parser of the command line."""
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

    sub = command("path", path, "follow the solution for every C")
    _add_data(sub)
    _add_kernel(sub)
    sub.add_argument("--test", metavar="DATA", help="other data, to find the C that errs least on them")
    sub.add_argument("--plot", metavar="FILE", help="write a picture (.png, .pdf, .svg)")
    sub.add_argument("-o", "--output", metavar="PATH", help="write the path (.npz)")
    sub.add_argument("--lambda-max", type=float, metavar="L", help="start at C = 1/L (default: the first event)")
    sub.add_argument("--lambda-min", type=float, default=1e-3, metavar="L", help="end at C = 1/L (default 0.001)")
    sub.add_argument(
        "--merge-tol", type=float, default=0.0, metavar="D", help="make points equal that differ by less than D"
    )
    sub.add_argument(
        "--factorization", default="auto", choices=("auto", "svd", "qr", "update"),
        help="auto: the fast tracker (default); the others: the published algorithm",
    )  # fmt: skip
    sub.add_argument("--max-events", type=int, metavar="N", help="end after N events")
    _add_limits(sub)

    sub = command("train", train, "train at one C")
    _add_data(sub)
    _add_kernel(sub)
    sub.add_argument("-o", "--output", metavar="MODEL", required=True, help="write the model (.npz)")
    sub.add_argument("-C", type=float, default=1.0, help="penalty (default 1)")
    sub.add_argument(
        "--tol", type=float, default=1e-3, help="largest violation of the optimality conditions (default 0.001)"
    )
    _add_limits(sub)

    sub = command("predict", predict, "predict with a model, or with a path at one C")
    sub.add_argument("model", metavar="MODEL", help="what train -o or path -o wrote")
    _add_data(sub)
    sub.add_argument("-C", type=float, help="for a path: which C")
    sub.add_argument("-o", "--output", metavar="OUT", help="write predictions to a file (default: standard output)")
    sub.add_argument("--values", action="store_true", help="decision values instead of classes")

    sub = command("info", info, "say what a file holds")
    sub.add_argument("model", metavar="MODEL", help="what train -o or path -o wrote")

    sub = command("demo", demo, "follow two built-in problems and draw one of them")
    sub.add_argument("--plot", metavar="FILE", help=f"where to write the picture (default {DEMO_PICTURE})")
    sub.add_argument("-q", "--quiet", action="store_true", help="no progress")
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
