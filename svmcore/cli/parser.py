"""What may be typed: commands, their arguments, their help, and what to say about options that do not exist."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, get_args

from svmcore import __version__
from svmcore._keywords import KernelName, Stopping, SVCLoss, SVRLoss
from svmcore.cli.audit import convert, verify
from svmcore.cli.bench import bench
from svmcore.cli.cv import cv
from svmcore.cli.gp import gp
from svmcore.cli.machines import info, predict, train
from svmcore.cli.options import add_of_published_path, add_of_solvers
from svmcore.cli.output import BAD_INPUT
from svmcore.cli.paths import DEMO_PICTURE, demo, path
from svmcore.cli.permute import permute
from svmcore.cli.svmtrain import KERNELS as LETTERS
from svmcore.cli.warm import warmup

_DATA_HELP = (
    "svmlight text, CSV (also .gz, .bz2, .xz), .npz, .parquet, .feather, '-' (standard input), or demo:spirals, "
    "demo:two-spirals, demo:monk1, -2, -3"
)
_LIBSVM = {
    "-c": "-C {}",
    "-e": "--tol {}",
    "-p": "--epsilon {}",
    "-v": "--cv {}",
    "-z": "--standardize",
}
"""LIBSVM's letters, which `train` understands, and what they are called in other commands."""


class _Parser(argparse.ArgumentParser):
    """Options in full, complaints in one line, and an answer to options that are known elsewhere."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self._negative_number_matcher = re.compile(r"-\.?\d")  # -5e-1 is one, too

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(self._unknown(rest, sys.argv[1:] if args is None else args))
        return found, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            close = difflib.get_close_matches(str(value), action.choices, 1)
            meant = f"did you mean {close[0]}?" if close else f"choose from {', '.join(action.choices)}"
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}: {meant}")
        super()._check_value(action, value)

    def _unknown(self, rest: list[str], given: Sequence[str]) -> str:
        """What to say about words that nothing takes, of all words that were given."""
        k = next((k for k, word in enumerate(rest) if word.startswith("-") and word != "-"), None)
        if k is None:
            return f"there is one argument too many: {rest[0]}"
        option, _, value = rest[k].partition("=")
        after = given[given.index(rest[k]) + 1 :]  # which may be taken for an argument, in some Pythons
        meant = self._meant(option, value or (after[0] if after else ""))
        return f"unknown option {option}" + (f": did you mean {meant}?" if meant else "")

    def _meant(self, option: str, value: str) -> str | None:
        """The option of this command that an unknown one stands for, or None."""
        known = self._option_string_actions
        if not option.startswith("--"):
            letter, attached = option[:2], option[2:]
            if letter == "-w" and "--class-weight" in known:
                return f"--class-weight {attached or 'LABEL'}={value or 'WEIGHT'}"
            value = attached or value
            if letter == "-t" and "-k" in known:
                at = int(value) if value in ("0", "1", "2", "3", "4") else None
                return "-k KERNEL" if at is None else f"-k {LETTERS[at]}"
            text = _LIBSVM.get(letter)
            if text is not None and text.split()[0] in known:
                return text.format(value or "VALUE")
        words = [name for name in known if name.lower().lstrip("-") == option.lower().lstrip("-")]
        words += [name for name in known if len(option) > 3 and name.startswith(option)]
        words += difflib.get_close_matches(option, [name for name in known if name.startswith("--")], 1)
        return words[0] if words else None


def _gamma(text: str) -> float | str:
    return text if text in ("scale", "auto") else float(text)


_gamma.__name__ = "gamma"  # for argparse: "invalid gamma value"


def _gammas(text: str) -> float | str | list[float | str]:
    """Gammas to choose from: one, several with commas between them, or "search"."""
    found = [part if part == "search" else _gamma(part) for part in text.split(",")]
    return found if len(found) > 1 else found[0]


_gammas.__name__ = "gamma"


def _column(text: str) -> int | str:
    """A column's name, or its number; which one is seen in the file. -1: the last."""
    return -1 if text == "-1" else text


def _examples(*lines: str) -> str:
    return "examples:\n" + "\n".join(f"  {line}" for line in lines)


def build() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = _Parser(
        prog="svmcore",
        description="Kernel support vector machines whose answers carry certificates.",
        epilog="Exit status: 0 done, 1 did not converge (result still written), 2 bad input, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"svmcore {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(
        name: str, run: Callable[[argparse.Namespace], int], text: str, *examples: str
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + ".", epilog=_examples(*examples)
        )
        sub.set_defaults(run=run, command=name)
        return sub

    _path_options(
        command(
            "path",
            path,
            "follow the solution for every C",
            "svmcore path my.csv --standardize --cv 5 --plot my.png",
            "svmcore path my.csv --standardize --C-max 100 -o my-path.npz",
        )
    )
    _cv_options(
        command(
            "cv",
            cv,
            "choose C by cross-validation, exactly, and train there",
            "svmcore cv my.csv --standardize -o my-model.npz",
            "svmcore cv my.csv --standardize --gamma search --cv 10 --score balanced_error --plot my.png",
        )
    )
    _train_options(
        command(
            "train",
            train,
            "train at one C",
            "svmcore train my.csv --standardize -C 10 -o my-model.npz",
            "svmcore train houses.csv --svr --epsilon 0.5 --standardize -o houses.npz",
            "svmcore train -s 0 -t 2 -c 10 -g 0.5 -e 1e-4 train.txt train.model",
        )
    )
    _predict_options(
        command(
            "predict",
            predict,
            "predict with a model, or with a path at one C",
            "svmcore predict my-model.npz new.csv > classes.txt",
            "svmcore predict my-path.npz new.csv -C 10 -o classes.txt",
        )
    )
    _add_permute(command)
    _add_gp(command)
    _commands_of_files(command)
    return parser


def _commands_of_files(command: Callable[..., argparse.ArgumentParser]) -> None:
    """What is done with a model that there is, and what needs none."""
    _verify_options(
        command(
            "verify",
            verify,
            "recompute the certificate of a model, LIBSVM's included, from the data it was trained on",
            "svmcore verify my-model.npz my.csv",
            "svmcore verify their.model train.txt --tol 0.01",
        )
    )
    _convert_options(
        command(
            "convert",
            convert,
            "write a model, or a data set, in another format",
            "svmcore convert my-model.npz my.model",
            "svmcore convert my.csv my.svm.gz --label sick --categorical town",
        )
    )
    sub = command("info", info, "say what a file holds", "svmcore info my-model.npz")
    sub.add_argument("model", metavar="MODEL", help="what -o of any command wrote, or LIBSVM")
    _add_json(sub)

    sub = command(
        "demo", demo, "choose C for two built-in problems, test the machines, draw one of them", "svmcore demo"
    )
    sub.add_argument("--plot", metavar="FILE", help=f"where to write the picture (default {DEMO_PICTURE})")
    sub.add_argument("-q", "--quiet", action="store_true", help="no progress")
    _add_json(sub)
    _bench_options(
        command(
            "bench",
            bench,
            "measure, by the suites of the benchmarks that have here what they need",
            "svmcore bench",
            "svmcore bench smoke",
            "svmcore bench solvers small --minutes 5 --out mine.jsonl",
        )
    )
    _warmup_options(
        command(
            "warmup",
            warmup,
            "compile ahead, for this machine or into a file for others",
            "svmcore warmup",
            "svmcore warmup path --jobs 2",
            "svmcore warmup --bundle svmcore.bundle --processor x86-64-v3",
        )
    )


def _bench_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("names", nargs="*", metavar="NAME", help="suites, or all; without a name they are listed")
    sub.add_argument("--data", metavar="FOLDER", help="folder of data sets (default: SVMCORE_DATA)")
    sub.add_argument("--out", metavar="FILE", help="results, as JSON lines (default: a file with the time in its name)")
    sub.add_argument("--minutes", type=float, metavar="M", help="time for all of it, shared out")
    sub.add_argument("--full", action="store_true", help="with what takes many minutes")
    sub.add_argument("--only", nargs="+", metavar="WORD", help="only solvers whose name holds a word")
    sub.add_argument("--problems", nargs="+", metavar="WORD", help="only problems whose name holds a word")


def _warmup_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("what", nargs="?", default="all", choices=("fit", "path", "all"), help="what to compile")
    sub.add_argument("--jobs", type=int, default=1, metavar="N", help="so many processes share the work (default 1)")
    sub.add_argument("--bundle", metavar="FILE", help="write all machine code to a file; SVMCORE_BUNDLE=FILE loads it")
    sub.add_argument(
        "--processor",
        default="native",
        metavar="P",
        help="of a bundle: native (default), x86-64-v3, x86-64-v4 or aarch64",
    )
    sub.add_argument("-q", "--quiet", action="store_true", help="no progress")
    _add_json(sub)


def _path_options(sub: argparse.ArgumentParser) -> None:
    _add_data(sub)
    _add_kernel(sub)
    _add_class_weight(sub)
    _add_intercept(sub)
    sub.add_argument("--test", metavar="DATA", help="other data, to find the C with the least error on them")
    _add_cv(sub, default=None)
    sub.add_argument("--plot", metavar="FILE", help="write a picture (.png, .pdf, .svg)")
    sub.add_argument("-o", "--output", metavar="PATH", help="write the path (.npz)")
    _add_range(sub)
    sub.add_argument(
        "--merge-tol", type=float, default=0.0, metavar="D", help="make points equal that differ by less than D"
    )
    sub.add_argument(
        "--factorization", default="auto", choices=("auto", "svd", "qr", "update"),
        help="auto: the fast tracker (default); the others: the published algorithm",
    )  # fmt: skip
    sub.add_argument("--max-events", type=int, metavar="N", help="end after N points have reached or left the margin")
    _add_limits(sub)
    _add_json(sub)
    add_of_published_path(sub)


def _cv_options(sub: argparse.ArgumentParser) -> None:
    _add_data(sub)
    _add_kernel(sub, several=True)
    _add_class_weight(sub)
    _add_intercept(sub)
    _add_classes(sub)
    _add_cv(sub, default="5")
    sub.add_argument("--svr", action="store_true", help="regression: labels are numbers to be predicted")
    sub.add_argument(
        "--one-class", action="store_true",
        help="learn the second of two classes alone; the rows of the first are for validation only",
    )  # fmt: skip
    sub.add_argument("--epsilon", type=float, metavar="E", help="regression: errors up to E cost nothing (default 0.1)")
    sub.add_argument("--loss", choices=("epsilon_insensitive", "pinball"), help="of a regression; pinball: a quantile")
    _add_tau(sub)
    sub.add_argument(
        "--score", default=None,
        choices=(
            "error", "balanced_error", "hinge", "auc", "absolute_error", "squared_error", "epsilon_insensitive", "pinball",
        ),
        help="what to make small: error (default), its mean over the classes, the mean hinge loss, 1 - AUC; of numbers "
        "absolute_error (default), of a quantile pinball",
    )  # fmt: skip
    sub.add_argument(
        "--rule", default="min", choices=("min", "1se", "smallest"),
        help="where to train: at the C with the least error (min, default); within one standard error of it at the smallest "
        "C (1se), or at that with the fewest support vectors (smallest)",
    )  # fmt: skip
    sub.add_argument(
        "--eps", type=float, metavar="E",
        help="where memory is too small for exact paths: stop where no C can be better by more than E (0.01 is one per cent)",
    )  # fmt: skip
    sub.add_argument(
        "--seed", type=int, default=0, metavar="N", help="another number deals out other folds (default 0)"
    )
    sub.add_argument(
        "--jobs", type=int, metavar="N", help="so many paths side by side; -1: one per processor (default 1)"
    )
    sub.add_argument("--test", metavar="DATA", help="other data, to test the machine at the end")
    sub.add_argument(
        "--plot", metavar="FILE", help="write a picture (.png, .pdf, .svg): the curve, and the map of several gammas"
    )
    sub.add_argument("-o", "--output", metavar="MODEL", help="write the machine at the chosen C (.npz)")
    _add_range(sub)
    _add_limits(sub)
    _add_json(sub)


def _add_permute(command: Callable[..., argparse.ArgumentParser]) -> None:
    sub = command(
        "permute",
        permute,
        "test a cross-validated score against shuffled labels: its p-value",
        "svmcore permute my.csv --standardize -C 1 --permutations 10000 --plot null.png",
        "svmcore permute my.csv -C 0.1 1 10 --score roc_auc",
    )
    _add_data(sub)
    _add_kernel(sub)
    _add_class_weight(sub)
    _add_cv(sub, default="5")
    sub.add_argument(
        "-C", dest="cost", type=float, nargs="+", default=[1.0], metavar="C",
        help="the cost (default 1); of several, every labelling takes its best one",
    )  # fmt: skip
    sub.add_argument("--permutations", type=int, default=1000, metavar="N", help="so many of them (default 1000)")
    sub.add_argument("--svr", action="store_true", help="regression: labels are numbers to be predicted")
    sub.add_argument("--epsilon", type=float, metavar="E", help="regression: errors up to E cost nothing (default 0.1)")
    sub.add_argument(
        "--score", choices=("accuracy", "balanced_accuracy", "roc_auc", "r2", "correlation", "neg_mean_squared_error"),
        help="what to make large: accuracy (default), its mean over the classes, AUC; of numbers r2 (default)",
    )  # fmt: skip
    sub.add_argument(
        "--exceed", type=int, metavar="K", help="end when K permutations have reached the score (Besag and Clifford)"
    )
    sub.add_argument(
        "--seed", type=int, default=0, metavar="N", help="another number draws other permutations (default 0)"
    )
    sub.add_argument("--jobs", type=int, metavar="N", help="so many threads; -1: one per processor (default 1)")
    sub.add_argument("--plot", metavar="FILE", help="write a picture of the null distribution (.png, .pdf, .svg)")
    sub.add_argument("-o", "--output", metavar="FILE", help="write the scores of all permutations, one a line")
    _add_limits(sub)
    _add_json(sub)


def _add_classes(sub: argparse.ArgumentParser) -> None:
    sub.add_argument(
        "--classes", choices=("ovo", "ovr"),
        help="for more than two classes: a machine for every pair (ovo, default), or for every class (ovr)",
    )  # fmt: skip


def _add_tau(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tau", type=float, metavar="TAU", help="of --loss pinball: which quantile (default 0.5)")


def _add_cv(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument(
        "--cv", default=default, metavar="K", type=_folds,
        help="cross-validate with K folds" + (f" (default {default})" if default else "") + ", or loo: leave one out",
    )  # fmt: skip


def _folds(text: str) -> str:
    if text != "loo" and not (text.isdecimal() and text.isascii()):
        raise ValueError(text)
    return text


_folds.__name__ = "number of folds"  # for argparse


def _train_options(sub: argparse.ArgumentParser) -> None:
    _add_data(sub)
    _add_kernel(sub)
    _add_class_weight(sub)
    _add_classes(sub)
    _add_intercept(sub)
    sub.add_argument(
        "file", nargs="?", metavar="MODEL", help="as svm-train: write the model as LIBSVM's text; .npz: as -o",
    )  # fmt: skip
    sub.add_argument("-o", "--output", metavar="MODEL", help="write the model (.npz); without it nothing is written")
    sub.add_argument("-C", type=float, default=1.0, help="penalty (default 1)")
    sub.add_argument("--svr", action="store_true", help="regression: labels are numbers to be predicted")
    sub.add_argument("--one-class", action="store_true", help="a region that holds most points; there are no labels")
    sub.add_argument("--nu", type=float, metavar="NU", help="in place of C, of epsilon, or of one class (default 0.5)")
    sub.add_argument("--folds", type=int, metavar="K", help="-v of svm-train: only the error of K folds at this C")
    sub.add_argument(
        "--probability", action="store_true",
        help="or -b 1, as svm-train: keep with the machine what five folds say about probabilities, for predict -b 1",
    )  # fmt: skip
    sub.add_argument("--cache-mb", type=float, metavar="MB", help="memory for kernel rows")
    sub.add_argument("--as-svm-train", action="store_true", help=argparse.SUPPRESS)
    sub.add_argument("--epsilon", type=float, metavar="E", help="regression: errors up to E cost nothing (default 0.1)")
    sub.add_argument(
        "--loss", choices=(*get_args(SVCLoss), *get_args(SVRLoss)),
        help="default hinge, or epsilon_insensitive with --svr; pinball: the quantile --tau of numbers",
    )  # fmt: skip
    _add_tau(sub)
    sub.add_argument(
        "--solver", default="auto", help="default auto; python -c 'import svmcore; print(svmcore.solvers())'"
    )
    sub.add_argument(
        "--tol", type=float, default=1e-3, help="largest violation of the optimality conditions (default 0.001)"
    )
    sub.add_argument(
        "--stopping", default="kkt", choices=get_args(Stopping),
        help="what is at most --tol: that violation (kkt, default), the relative duality gap, or a fall of the objective",
    )  # fmt: skip
    sub.add_argument("--max-iter", type=int, default=-1, metavar="N", help="end after N iterations (default: no limit)")
    sub.add_argument("--seed", type=int, default=0, metavar="N", help="of solvers that choose at random (default 0)")
    _add_limits(sub)
    _add_json(sub)
    add_of_solvers(sub)


def _add_gp(command: Callable[..., argparse.ArgumentParser]) -> None:
    sub = command(
        "gp",
        gp,
        "regression by a Gaussian process, with standard deviations",
        "svmcore gp houses.csv --noise 0.1 --standardize --normalize-y",
        "svmcore gp houses.csv --noise 0.1 --standardize --normalize-y --test new.csv -o means.txt",
    )
    sub.set_defaults(svr=True)  # the labels are numbers
    _add_data(sub)
    _add_kernel(sub)
    sub.add_argument("--noise", type=float, required=True, metavar="S2", help="variance of the noise of the targets")
    sub.add_argument(
        "--normalize-y", action="store_true",
        help="give the targets mean 0 and variance 1 first; S2 is then that of the scaled targets",
    )  # fmt: skip
    sub.add_argument("--test", metavar="DATA", help="other data, to predict; targets in them are compared with")
    sub.add_argument("-o", "--output", metavar="OUT", help="write mean and standard deviation for every row of --test")
    sub.add_argument(
        "--solver", default="cg", choices=("cg", "cholesky", "widrow-hoff"), help="default cg: conjugate gradients"
    )
    sub.add_argument("--tol", type=float, default=1e-6, help="of the residual, or of the bounds (default 1e-6)")
    sub.add_argument(
        "--stopping", default="residual", choices=("residual", "bounds"),
        help="residual: |y - A alpha| <= tol |y| (default); bounds: relative width of the bounds on y'inverse(A)y",
    )  # fmt: skip
    _add_limits(sub)
    _add_json(sub)


def _verify_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("model", metavar="MODEL", help="what train -o, cv -o or path -o wrote, or LIBSVM")
    _add_data(sub)
    sub.add_argument(
        "-C", type=float, help="the penalty of the training, where the file does not say; of a path: which C"
    )
    sub.add_argument("--epsilon", type=float, metavar="E", help="of a regression, where the file does not say")
    _add_class_weight(sub)
    sub.add_argument(
        "--tol", type=float, default=1e-3, help="violation up to which an answer is optimal (default 0.001)"
    )
    _add_json(sub)


def _convert_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("source", metavar="FROM", help="a model, or data: " + _DATA_HELP)
    sub.add_argument(
        "output", metavar="TO", help="models: .npz, else LIBSVM's text; data: .svm, .csv, .npz, .parquet, ..."
    )
    sub.add_argument("--to", choices=("npz", "libsvm"), help="the format of a model, whatever the name")
    _add_columns(sub)
    _add_categorical(sub)
    _add_json(sub)


def _predict_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("model", metavar="MODEL", help="what train -o, cv -o or path -o wrote, or LIBSVM")
    _add_data(sub)
    sub.add_argument("file", nargs="?", metavar="OUT", help="as svm-predict: the same as -o")
    sub.add_argument(
        "--unknown", choices=("error", "ignore"), default="error",
        help="words that a categorical column did not have in training: refuse them (default), or take them for none",
    )  # fmt: skip
    sub.add_argument("--no-label", dest="label", action="store_const", const=None, help="CSV: there are no labels")
    sub.add_argument("-C", type=float, help="for a path: which C")
    sub.add_argument("-o", "--output", metavar="OUT", help="write predictions to a file (default: standard output)")
    sub.add_argument("--values", action="store_true", help="decision values instead of classes")
    sub.add_argument(
        "--probability", action="store_true",
        help="or -b 1, as svm-predict: a line of labels, then for every row the most probable class and all probabilities",
    )  # fmt: skip
    sub.add_argument("-q", "--quiet", action="store_true", help="nothing about how labels in DATA agree")
    _add_json(sub)


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help=_DATA_HELP)
    _add_columns(parser)


def _add_categorical(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--categorical", action="append", default=[], metavar="COLUMNS",
        help="CSV: columns of words to make features of, a,b; or words: all of them. The model keeps them for predict",
    )  # fmt: skip


def _add_columns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--label", type=_column, default=-1, metavar="COLUMN",
        help="CSV: the column of labels, its name or its number from 1 (default: the last)",
    )  # fmt: skip
    parser.add_argument(
        "--header", action=argparse.BooleanOptionalAction, help="CSV: the first line names the columns, or does not"
    )
    parser.add_argument(
        "--drop",
        action="append",
        default=[],
        metavar="COLUMNS",
        help="CSV: columns to leave out, names or numbers: a,b",
    )


def _add_kernel(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """The kernel; `several`: gamma may be chosen among several."""
    parser.add_argument("-k", "--kernel", default="rbf", choices=get_args(KernelName), help="default rbf")
    parser.add_argument(
        "-g", "--gamma", type=_gammas if several else _gamma, default=None, metavar="G",
        help='a number, "scale" (default) or "auto"' + ("; several: 0.1,1,10; or search" if several else ""),
    )  # fmt: skip
    parser.add_argument("-d", "--degree", type=int, default=3, help="of poly (default 3)")
    parser.add_argument("-r", "--coef0", type=float, default=0.0, help="of poly and sigmoid (default 0)")
    parser.add_argument(
        "--standardize", action="store_true",
        help="give every feature mean 0 and variance 1 (sparse: mean square 1); predict does the same",
    )  # fmt: skip
    _add_categorical(parser)
    parser.add_argument(
        "--impute", choices=("mean", "median"),
        help="fill missing values with the mean, or the median, of their column; predict does the same",
    )  # fmt: skip
    parser.add_argument("--sample-limit", type=int, metavar="N", help="use N points drawn at random, if there are more")


def _add_intercept(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--intercept", choices=("yes", "no", "embedded"),
        help="yes (default); no: the machine goes through the origin; embedded: a regularised one, as a kernel's offset",
    )  # fmt: skip


def _add_class_weight(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--class-weight", metavar="W", help="balanced, or weights of C by label: yes=5 or yes=5,no=1")


def _add_range(parser: argparse.ArgumentParser) -> None:
    low, high = parser.add_mutually_exclusive_group(), parser.add_mutually_exclusive_group()
    high.add_argument(
        "--C-max", type=float, metavar="C", help="the largest C (default 1000; cv of numbers: times their spread)"
    )
    high.add_argument("--lambda-min", type=float, metavar="L", help="the same as --C-max 1/L")
    low.add_argument(
        "--C-min", type=float, metavar="C", help="the smallest C (default: where the solution begins to move)"
    )
    low.add_argument("--lambda-max", type=float, metavar="L", help="the same as --C-min 1/L")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="stop there and keep what there is")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object for programs")
