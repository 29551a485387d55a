"""The words of the public functions: the types of those that take few values, and what to say about words they do not know.

`checked` wraps a public function: a keyword it does not have is refused before anything runs, with the nearest one that it
has, or with what the word of another library is called here. One table serves all functions.
"""

from __future__ import annotations

import difflib
import errno
import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar

from svmcore._errors import InputError, NotEnoughMemoryError, SVMError

TOL = 1e-3
"""The default tolerance of all that trains."""

KernelName = Literal["linear", "rbf", "poly", "sigmoid", "laplacian", "precomputed"]
KernelLike = KernelName | Callable[[Any, Any], Any]
Gamma = float | Literal["scale", "auto"]
SVCLoss = Literal["hinge", "squared_hinge"]
SVRLoss = Literal["epsilon_insensitive", "squared_epsilon_insensitive", "pinball"]
Stopping = Literal["kkt", "gap", "objective"]
SolverName = Literal[
    "auto",
    "small",
    "smo",
    "block",
    "interior",
    "newton",
    "coordinate",
    "adatron",
    "chunking",
    "decomposition",
    "npa",
    "rosen",
    "rosen-cg",
    "simple",
]


class SolverOptions(TypedDict, total=False):
    """The options that solvers have of their own (docs/solvers.md)."""

    rule: Literal["second", "mvp", "platt", "simplified"]
    shrinking: bool
    face_steps: bool
    max_passes: int
    order: Literal["sequential", "random", "violation", "gap", "two-stage", "batch"]
    omega: float
    learning_rate: Any
    size: int
    highs_limit: int
    q: int
    eps: float
    d_tol: float
    enters: Literal["worst", "pair", "sides"]
    ends: Literal["kkt", "multipliers"]
    factor: float
    scan: Literal["max", "paper"] | None
    pair: tuple[int, int] | None


_CALLED = {
    "cache_size": "cache_mb",
    "cachesize": "cache_mb",
    "n_jobs": "n_threads",
    "nthreads": "n_threads",
    "num_threads": "n_threads",
    "max_iterations": "max_iter",
    "tolerance": "tol",
    "seed": "random_state",
    "cost": "C",
    "kernel_type": "kernel",
    "bias": "fit_intercept",
    "intercept": "fit_intercept",
    "normalize": "standardize",
    "scale": "standardize",
    "standardise": "standardize",
    "coef_init": "alpha0",
    "init_alpha": "alpha0",
    "scoring": "score",
    **dict.fromkeys(("folds", "n_folds", "k_folds", "n_splits", "kfold"), "cv"),
}
"""Words of other libraries for parameters that are here, too."""

_ABSENT = {
    "weight": "weights of rows are sample_weight, weights of classes class_weight here",
    "weights": "weights of rows are sample_weight, weights of classes class_weight here",
    "sigma": "the width of the rbf kernel is gamma = 1 / (2 sigma**2) here",
    "length_scale": "the width of the rbf kernel is gamma = 1 / (2 length_scale**2) here",
    "eps": "tolerances are tol, and the tube of a regression epsilon; bands of errors are gone, as curves are exact",
    "kernel_params": "give a function of two arrays as kernel, with the parameters inside",
    "dual": "the dual is what is always solved",
    "penalty": "the penalty is always the squared norm of the weights",
    "svm_type": "it is not there; train_svc classifies and train_svr fits numbers",
    "multi_class": 'it is not there; train_classes(strategy="ovr") trains one machine per class',
    "decision_function_shape": "it is not there: two classes have one decision value a row",
    "break_ties": "it is not there: two classes have one decision value a row",
    "probability": "it is not there; use scikit-learn's CalibratedClassifierCV, or svmcore.cv_path(...).calibrate()",
    "shuffle": "it is not there; solvers that choose at random take random_state",
    "eta0": 'it is called learning_rate here, an option of solver="adatron"',
    **dict.fromkeys(
        ("engine", "client", "parts", "checkpoint"),
        "the functions and estimators of svmcore.distributed, which train over parts and files, have it",
    ),
    "early_stopping": "it is not there; callback=, max_iter and time_limit end a run early",
}
"""Words of other libraries for what is not here, or not in one word."""

_FUNCTIONS = (
    "train_svc", "train_svr", "train_one_class", "svm_path", "cv_path", "leave_one_out", "certificate", "duality_gap",
    "kkt_violation", "gp_regression", "svr_path", "epsilon_path", "quantile_path", "one_class_path",
)  # fmt: skip
_CLOSE = 0.6  # likeness, of difflib, from which a word is taken for a slip

P = ParamSpec("P")
T = TypeVar("T")


@functools.cache
def _plain() -> frozenset[type]:
    """Types of values that stay what they are. Equal ones of different types are told apart."""
    import numpy as np  # not for the help of the command line

    return frozenset((float, int, str, bool, type(None), np.float64, np.int64))


@functools.lru_cache(maxsize=256, typed=True)
def _kept(make: Callable[..., T], names: tuple[str, ...], *values: Any) -> T:
    return make(names, *values)


def remembered(make: Callable[..., T], names: tuple[str, ...], *values: Any) -> T:
    """make(names, *values), which depends on nothing else: what was made of plain values is kept. Errors are not."""
    return _kept(make, names, *values) if _plain().issuperset(map(type, values)) else make(names, *values)


def _own(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a function that have names."""
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: p for name, p in inspect.signature(function).parameters.items() if p.kind not in variable}


def checked(*more: Callable[..., Any], options: Iterable[str] = ()) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A public function that knows its own keywords, those of the functions `more` it hands them to, and `options`.

    Both are known; the parameters are what is listed where a word is like none of them.
    """

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        own = [name for each in (function, *more) for name in _own(each)]
        known = frozenset(own) | frozenset(options)

        @functools.wraps(function)
        def call(*args: P.args, **keywords: P.kwargs) -> T:
            if not known.issuperset(keywords):
                word = next(name for name in keywords if name not in known)
                error = _unknown(function.__name__, word, list(dict.fromkeys(own)), options)
                if error is not None:
                    raise error
                if not options or keywords.get("solver", "auto") == "auto":
                    raise InputError(
                        f"{function.__name__} has no parameter {word!r}; its parameters are {', '.join(dict.fromkeys(own))}"
                    )  # and where a solver was named, that solver refuses the word
            try:
                return function(*args, **keywords)
            except (MemoryError, OSError, RuntimeError) as error:
                if isinstance(error, SVMError) or not _out_of_memory(error):
                    raise
                raise NotEnoughMemoryError(
                    f"{function.__name__}: the system gives no more memory ({str(error) or type(error).__name__}); take "
                    "fewer rows, fewer processes or threads, or a machine with more memory"
                ) from error

        return call

    return wrap


def _out_of_memory(error: Exception) -> bool:
    """Whether it says, as Python, numpy, compiled code or the system does, that no memory is left, perhaps for a thread."""
    no_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    return no_thread or isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM


def _unknown(function: str, word: str, parameters: list[str], options: Iterable[str]) -> InputError | None:
    """What to say about a keyword: what it is called here, which function has it, or which one may be meant."""
    begin = f"{function} has no parameter {word!r}"
    if word in _CALLED and _CALLED[word] in parameters:
        return InputError(f"{begin}; it is called {_CALLED[word]} here")
    if word in _ABSENT:
        return InputError(f"{begin}; {_ABSENT[word]}")
    library = importlib.import_module("svmcore")
    owners = [name for name in _FUNCTIONS if word in _own(getattr(library, name))]
    if function in owners:
        return InputError(f"{begin} over parts; svmcore.{function}, for rows in memory, has it")
    if owners:
        return InputError(f"{begin}; {', '.join(owners)} {'has' if len(owners) == 1 else 'have'} it")
    known = {name.lower(): name for name in (*options, *parameters)}
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=_CLOSE)
    if close:
        return InputError(f"{begin}; did you mean {known[close[0]]!r}?")
    return None
