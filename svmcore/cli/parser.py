"""What may be typed: commands, their arguments, their help, and what to say about options that do not exist."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn, get_args

from svmcore import __version__
from svmcore._keywords import TOL, KernelName, Stopping, SVCLoss, SVRLoss
from svmcore.cli.options import DEMO_PICTURE, add_of_published_path, add_of_solvers
from svmcore.cli.output import BAD_INPUT
from svmcore.cli.svmtrain import KERNELS as LETTERS

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
        k = next((k for k, word in enumerate(rest) if word.startswith("-") and word != "-"), None)
        if rest and k is None:
            self.error(f"there is one argument too many: {rest[0]}")
        if k is not None:
            given = sys.argv[1:] if args is None else args
            option, _, value = rest[k].partition("=")
            after = given[given.index(rest[k]) + 1 :]  # which may be taken for an argument, in some Pythons
            meant = self._meant(option, value or (after[0] if after else ""))
            self.error(f"unknown option {option}" + (f": did you mean {meant}?" if meant else ""))
        return found, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            close = difflib.get_close_matches(str(value), action.choices, 1)
            meant = f"did you mean {close[0]}?" if close else f"choose from {', '.join(action.choices)}"
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}: {meant}")
        super()._check_value(action, value)

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


def _folds(text: str) -> int | str:
    if text != "loo" and not (text.isdecimal() and text.isascii()):
        raise ValueError(text)
    return text if text == "loo" else int(text)


_folds.__name__ = "number of folds"  # for argparse


# ---- the table: every command, and what may be typed after it --------------------------------------------------------


# fmt: off
class Option(NamedTuple):
    """An option or an argument; `more` is argparse's. Options of one `rival` exclude each other."""

    names: tuple[str, ...]
    more: dict[str, Any]
    rival: str | None = None


class Command(NamedTuple):
    """A command, a function of the module `home`; `options` are Options, tuples of them, or functions that add some."""

    name: str
    home: str
    text: str
    examples: tuple[str, ...]
    options: tuple[Any, ...]


def _opt(names: str, text: str, kind: Any = None, metavar: str | None = None, rival: str | None = None,
         **more: Any) -> Option:
    """A row of the table. `kind`: the type of its value, or what it can be."""
    words = {"choices": kind} if isinstance(kind, tuple) else {"type": kind}
    return Option(tuple(names.split()), {"help": text, "metavar": metavar, **words, **more}, rival)


def _switch(names: str, text: str, action: Any = "store_true") -> Option:
    return Option(tuple(names.split()), {"help": text, "action": action})


def _cv(default: str | None) -> Option:
    usual = f" (default {default})" if default else ""
    return _opt("--cv", f"cross-validate with K folds{usual}, or loo: leave one out", _folds, "K", default=default)


def _kernel(several: bool = False) -> tuple[Option, ...]:
    """The kernel, and what is done to the features before it; `several`: gamma may be chosen among several."""
    search = "; several: 0.1,1,10; or search" if several else ""
    return (
        _opt("-k --kernel", "default rbf", get_args(KernelName), default="rbf"),
        _opt("-g --gamma", f'a number, "scale" (default) or "auto"{search}', _gammas if several else _gamma, "G"),
        _opt("-d --degree", "of poly (default 3)", int, default=3),
        _opt("-r --coef0", "of poly and sigmoid (default 0)", float, default=0.0),
        _switch("--standardize", "give every feature mean 0 and variance 1 (sparse: mean square 1); predict does the same"),
        _CATEGORICAL,
        _opt("--impute", "fill missing values with the mean, or the median, of their column; predict does the same",
                ("mean", "median")),
        _opt("--sample-limit", "use N points drawn at random, if there are more", int, "N"),
    )


_DATA_HELP = (
    "svmlight text, CSV (also .gz, .bz2, .xz), .npz, .parquet, .feather, '-' (standard input), or demo:spirals, "
    "demo:two-spirals, demo:monk1, -2, -3"
)
_CATEGORICAL = _opt(
    "--categorical",
    "CSV: columns of words to make features of, a,b; or words: all of them. The model keeps them for predict",
    metavar="COLUMNS", action="append", default=[])
_COLUMNS = (
    _opt("--label", "CSV: the column of labels, its name or its number from 1 (default: the last)",
            lambda text: -1 if text == "-1" else text, "COLUMN", default=-1),
    _switch("--header", "CSV: the first line names the columns, or does not", argparse.BooleanOptionalAction),
    _opt("--drop", "CSV: columns to leave out, names or numbers: a,b", metavar="COLUMNS", action="append", default=[]),
)
_DATA = (_opt("data", _DATA_HELP, metavar="DATA"), *_COLUMNS)
_MODEL = _opt("model", "what train -o, cv -o or path -o wrote, or LIBSVM", metavar="MODEL")
_INTERCEPT = _opt(
    "--intercept",
    "yes (default); no: the machine goes through the origin; embedded: a regularised one, as a kernel's offset",
    ("yes", "no", "embedded"))
_CLASS_WEIGHT = _opt("--class-weight", "balanced, or weights of C by label: yes=5 or yes=5,no=1", metavar="W")
_CLASSES = _opt("--classes", "for more than two classes: a machine for every pair (ovo, default), or for every class (ovr)",
                   ("ovo", "ovr"))
_SVR = _switch("--svr", "regression: labels are numbers to be predicted")
_EPSILON = _opt("--epsilon", "regression: errors up to E cost nothing (default 0.1)", float, "E")
_TAU = _opt("--tau", "of --loss pinball: which quantile (default 0.5)", float, "TAU")
_RANGE = (
    _opt("--C-max", "the largest C (default 1000; cv of numbers: or 100 times their spread)", float, "C", "high"),
    _opt("--lambda-min", "the same as --C-max 1/L", float, "L", "high"),
    _opt("--C-min", "the smallest C (default: where the solution begins to move)", float, "C", "low"),
    _opt("--lambda-max", "the same as --C-min 1/L", float, "L", "low"),
)
_QUIET = _switch("-q --quiet", "no progress")
_JSON = _switch("--json", "print one JSON object for programs")
_LIMITS = (_opt("--time-limit", "stop there and keep what there is", float, "SECONDS"), _QUIET, _JSON)

COMMANDS = (
    Command("path", "paths", "follow the solution for every C", (
        "svmcore path my.csv --standardize --cv 5 --plot my.png",
        "svmcore path my.csv --standardize --C-max 100 -o my-path.npz",
    ), (
        _DATA, _kernel(), _CLASS_WEIGHT, _INTERCEPT,
        _opt("--test", "other data, to find the C with the least error on them", metavar="DATA"),
        _cv(None),
        _opt("--plot", "write a picture (.png, .pdf, .svg)", metavar="FILE"),
        _opt("-o --output", "write the path (.npz)", metavar="PATH"),
        _RANGE,
        _opt("--merge-tol", "make points equal that differ by less than D", float, "D", default=0.0),
        _opt("--factorization", "auto: the fast tracker (default); the others: the published algorithm",
                ("auto", "svd", "qr", "update"), default="auto"),
        _opt("--max-events", "end after N points have reached or left the margin", int, "N"),
        _LIMITS, add_of_published_path,
    )),
    Command("cv", "cv", "choose C by cross-validation, exactly, and train there", (
        "svmcore cv my.csv --standardize -o my-model.npz",
        "svmcore cv my.csv --standardize --gamma search --cv 10 --score balanced_error --plot my.png",
    ), (
        _DATA, _kernel(several=True), _CLASS_WEIGHT, _INTERCEPT, _CLASSES, _cv("5"), _SVR,
        _switch("--one-class", "learn the second of two classes alone; the rows of the first are for validation only"),
        _EPSILON,
        _opt("--loss", "of a regression; pinball: a quantile", ("epsilon_insensitive", "pinball")),
        _TAU,
        _opt("--score", "what to make small: error (default), its mean over the classes, the mean hinge loss, 1 - AUC; of "
                "numbers absolute_error (default), of a quantile pinball",
                ("error", "balanced_error", "hinge", "auc", "absolute_error", "squared_error", "epsilon_insensitive",
                 "pinball")),
        _opt("--rule", "where to train: at the C with the least error (min, default); within one standard error of it at the "
                "smallest C (1se), or at that with the fewest support vectors (smallest)", ("min", "1se", "smallest"),
                default="min"),
        _opt("--seed", "another number deals out other folds (default 0)", int, "N", default=0),
        _opt("--jobs", "so many paths side by side; -1: one per processor (default 1)", int, "N"),
        _opt("--test", "other data, to test the machine at the end", metavar="DATA"),
        _opt("--plot", "write a picture (.png, .pdf, .svg): the curve, and the map of several gammas", metavar="FILE"),
        _opt("-o --output", "write the machine at the chosen C (.npz)", metavar="MODEL"),
        _RANGE, _LIMITS,
    )),
    Command("train", "machines", "train at one C", (
        "svmcore train my.csv --standardize -C 10 -o my-model.npz",
        "svmcore train houses.csv --svr --epsilon 0.5 --standardize -o houses.npz",
        "svmcore train -s 0 -t 2 -c 10 -g 0.5 -e 1e-4 train.txt train.model",
    ), (
        _DATA, _kernel(), _CLASS_WEIGHT, _CLASSES, _INTERCEPT,
        _opt("file", "as svm-train: write the model as LIBSVM's text; .npz: as -o", metavar="MODEL", nargs="?"),
        _opt("-o --output", "write the model (.npz); without it nothing is written", metavar="MODEL"),
        _opt("-C", "penalty (default 1)", float, default=1.0),
        _SVR,
        _switch("--one-class", "a region that holds most points; there are no labels"),
        _opt("--nu", "in place of C, of epsilon, or of one class (default 0.5)", float, "NU"),
        _opt("--folds", "-v of svm-train: only the error of K folds at this C", int, "K"),
        _switch("--probability",
                "or -b 1, as svm-train: keep with the machine what five folds say about probabilities, for predict -b 1"),
        _opt("--cache-mb", "memory for kernel rows", float, "MB"),
        _switch("--as-svm-train", argparse.SUPPRESS),
        _EPSILON,
        _opt("--loss", "default hinge, or epsilon_insensitive with --svr; pinball: the quantile --tau of numbers",
                (*get_args(SVCLoss), *get_args(SVRLoss))),
        _TAU,
        _opt("--solver", "default auto; python -c 'import svmcore; print(svmcore.solvers())'", default="auto"),
        _opt("--tol", "largest violation of the optimality conditions (default 0.001)", float, default=TOL),
        _opt("--stopping", "what is at most --tol: that violation (kkt, default), the relative duality gap, or a fall of the "
                "objective", get_args(Stopping), default="kkt"),
        _opt("--max-iter", "end after N iterations (default: no limit)", int, "N", default=-1),
        _opt("--seed", "of solvers that choose at random (default 0)", int, "N", default=0),
        _LIMITS, add_of_solvers,
    )),
    Command("predict", "machines", "predict with a model, or with a path at one C", (
        "svmcore predict my-model.npz new.csv > classes.txt",
        "svmcore predict my-path.npz new.csv -C 10 -o classes.txt",
    ), (
        _MODEL, _DATA,
        _opt("file", "as svm-predict: the same as -o", metavar="OUT", nargs="?"),
        _opt("--unknown", "words that a categorical column did not have in training: refuse them (default), or take them for "
                "none", ("error", "ignore"), default="error"),
        _opt("--no-label", "CSV: there are no labels", dest="label", action="store_const"),
        _opt("-C", "for a path: which C", float),
        _opt("-o --output", "write predictions to a file (default: standard output)", metavar="OUT"),
        _switch("--values", "decision values instead of classes"),
        _switch("--probability",
                "or -b 1, as svm-predict: a line of labels, then for every row the most probable class and all "
                "probabilities"),
        _switch("-q --quiet", "nothing about how labels in DATA agree"),
        _JSON,
    )),
    Command("permute", "permute", "test a cross-validated score against shuffled labels: its p-value", (
        "svmcore permute my.csv --standardize -C 1 --permutations 10000 --plot null.png",
        "svmcore permute my.csv -C 0.1 1 10 --score roc_auc",
    ), (
        _DATA, _kernel(), _CLASS_WEIGHT, _cv("5"),
        _opt("-C", "the cost (default 1); of several, every labelling takes its best one", float, "C", dest="cost", nargs="+",
                default=[1.0]),
        _opt("--permutations", "so many of them (default 1000)", int, "N", default=1000),
        _SVR, _EPSILON,
        _opt("--score", "what to make large: accuracy (default), its mean over the classes, AUC; of numbers r2 (default)",
                ("accuracy", "balanced_accuracy", "roc_auc", "r2", "correlation", "neg_mean_squared_error")),
        _opt("--exceed", "end when K permutations have reached the score (Besag and Clifford)", int, "K"),
        _opt("--seed", "another number draws other permutations (default 0)", int, "N", default=0),
        _opt("--jobs", "so many threads; -1: one per processor (default 1)", int, "N"),
        _opt("--plot", "write a picture of the null distribution (.png, .pdf, .svg)", metavar="FILE"),
        _opt("-o --output", "write the scores of all permutations, one a line", metavar="FILE"),
        _LIMITS,
    )),
    Command("gp", "gp", "regression by a Gaussian process, with standard deviations", (
        "svmcore gp houses.csv --noise 0.1 --standardize --normalize-y",
        "svmcore gp houses.csv --noise 0.1 --standardize --normalize-y --test new.csv -o means.txt",
    ), (
        lambda sub: sub.set_defaults(svr=True),  # the labels are numbers
        _DATA, _kernel(),
        _opt("--noise", "variance of the noise of the targets", float, "S2", required=True),
        _switch("--normalize-y", "give the targets mean 0 and variance 1 first; S2 is then that of the scaled targets"),
        _opt("--test", "other data, to predict; targets in them are compared with", metavar="DATA"),
        _opt("-o --output", "write mean and standard deviation for every row of --test", metavar="OUT"),
        _opt("--solver", "default cg: conjugate gradients", ("cg", "cholesky", "widrow-hoff"), default="cg"),
        _opt("--tol", "of the residual, or of the bounds (default 1e-6)", float, default=1e-6),
        _opt("--stopping", "residual: |y - A alpha| <= tol |y| (default); bounds: relative width of the bounds on "
                "y'inverse(A)y", ("residual", "bounds"), default="residual"),
        _LIMITS,
    )),
    Command("verify", "audit", "recompute the certificate of a model, LIBSVM's included, from the data it was trained on", (
        "svmcore verify my-model.npz my.csv",
        "svmcore verify their.model train.txt --tol 0.01",
    ), (
        _MODEL, _DATA,
        _opt("-C", "the penalty of the training, where the file does not say; of a path: which C", float),
        _opt("--epsilon", "of a regression, where the file does not say", float, "E"),
        _CLASS_WEIGHT,
        _opt("--tol", "violation up to which an answer is optimal (default 0.001)", float, default=TOL),
        _JSON,
    )),
    Command("convert", "audit", "write a model, or a data set, in another format", (
        "svmcore convert my-model.npz my.model",
        "svmcore convert my.csv my.svm.gz --label sick --categorical town",
    ), (
        _opt("source", "a model, or data: " + _DATA_HELP, metavar="FROM"),
        _opt("output", "models: .npz, else LIBSVM's text; data: .svm, .csv, .npz, .parquet, ...", metavar="TO"),
        _opt("--to", "the format of a model, whatever the name", ("npz", "libsvm")),
        _COLUMNS, _CATEGORICAL, _JSON,
    )),
    Command("info", "machines", "say what a file holds", ("svmcore info my-model.npz",), (
        _opt("model", "what -o of any command wrote, or LIBSVM", metavar="MODEL"), _JSON,
    )),
    Command("demo", "paths", "choose C for two built-in problems, test the machines, draw one of them", ("svmcore demo",), (
        _opt("--plot", f"where to write the picture (default {DEMO_PICTURE})", metavar="FILE"), _QUIET, _JSON,
    )),
    Command("bench", "bench", "measure, by the suites of the benchmarks that have here what they need", (
        "svmcore bench",
        "svmcore bench smoke",
        "svmcore bench solvers small --minutes 5 --out mine.jsonl",
    ), (
        _opt("names", "suites, or all; without a name they are listed", metavar="NAME", nargs="*"),
        _opt("--data", "folder of data sets (default: SVMCORE_DATA)", metavar="FOLDER"),
        _opt("--out", "results, as JSON lines (default: a file with the time in its name)", metavar="FILE"),
        _opt("--minutes", "time for all of it, shared out", float, "M"),
        _switch("--full", "with what takes many minutes"),
        _opt("--only", "only solvers whose name holds a word", metavar="WORD", nargs="+"),
        _opt("--problems", "only problems whose name holds a word", metavar="WORD", nargs="+"),
    )),
    Command("warmup", "warm", "compile ahead, for this machine or into a file for others", (
        "svmcore warmup",
        "svmcore warmup path --jobs 2",
        "svmcore warmup --bundle svmcore.bundle --processor x86-64-v3",
    ), (
        _opt("what", "what to compile", ("fit", "path", "all"), nargs="?", default="all"),
        _opt("--jobs", "so many processes share the work (default 1)", int, "N", default=1),
        _opt("--bundle", "write all machine code to a file; SVMCORE_BUNDLE=FILE loads it", metavar="FILE"),
        _opt("--processor", "of a bundle: native (default), x86-64-v3, x86-64-v4 or aarch64", metavar="P", default="native"),
        _QUIET, _JSON,
    )),
)
# fmt: on


def build() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = _Parser(
        prog="svmcore",
        description="Kernel support vector machines whose answers carry certificates.",
        epilog="Exit status: 0 done, 1 did not converge (result still written), 2 bad input, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"svmcore {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        text = command.text
        epilog = "\n".join(["examples:", *(f"  {line}" for line in command.examples)])
        sub = commands.add_parser(command.name, help=text, description=text[0].upper() + text[1:] + ".", epilog=epilog)
        sub.set_defaults(home=command.home, command=command.name)
        _add(sub, command.options, {None: sub})
    return parser


def _add(sub: argparse.ArgumentParser, options: tuple[Any, ...], rivals: dict[str | None, Any]) -> None:
    for option in options:
        if callable(option):
            option(sub)
        elif not isinstance(option, Option):
            _add(sub, option, rivals)
        else:
            if option.rival not in rivals:
                rivals[option.rival] = sub.add_mutually_exclusive_group()
            more = {key: value for key, value in option.more.items() if value is not None}
            rivals[option.rival].add_argument(*option.names, **more)
