"""What people train with over parts: `train_linear` for linear machines, `train_svc` and `train_svr` for kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore._control import Callback
from svmcore._keywords import TOL, checked
from svmcore._types import NONZERO, KernelKind, Status
from svmcore.base.threads import one_blas_thread
from svmcore.distributed import band, rounds, scan, stages
from svmcore.distributed.answer import Apart, PartsSolution, Vectors
from svmcore.distributed.engine import Lost
from svmcore.distributed.setup import Setup, setup, speak
from svmcore.distributed.sums import Standing
from svmcore.problem import formulations
from svmcore.problem.certify import Certificate
from svmcore.problem.columns import Columns

_TRIES = 20  # losses of data that a fit may have
_NUMBERS = formulations.SVR_LOSSES[:2]
_ATTEMPTS = 3  # a run whose certificate misses the tolerance is tried so many times


@checked()
def train_linear(
    X: Any,
    y: Any = None,
    C: float = 1.0,
    *,
    loss: str = "hinge",
    epsilon: float = 0.1,
    fit_intercept: bool = True,
    sample_weight: Any = None,
    class_weight: Any = None,
    label: Any = None,
    engine: str | None = None,
    client: Any = None,
    parts: int | None = None,
    checkpoint: Any = None,
    tol: float = TOL,
    time_limit: float | None = None,
    callback: Callback | None = None,
    verbose: int = 0,
    n_threads: int | None = None,
) -> PartsSolution:
    """Train an exact linear machine over parts of a data set, and certify the answer.

    The problem is that of `svmcore.train_svc` with ``kernel="linear"``, or of `svmcore.train_svr` where the loss is one of
    regression. Rows near the margin are solved for at one place, and all others are summed up where they are: two to four
    passes over the rows are the rule. Where that does not lead to the end, rounds as those of `train_svc` do;
    ``stats["method"]`` and ``stats["reason"]`` tell. Each part keeps its rows in their own precision and
    some 100 bytes a row more.

    Parameters
    ----------
    X, y : one array and its labels; a list of arrays and a list of labels; a list of pairs (X, y); dask arrays, data frames
        or lists of delayed pairs; a file name, a pattern (``"parts/*.parquet"``) or a list of files. Files: .npz with X and
        y; .npy with the labels' files as y; parquet, with `label`, needs pyarrow; svmlight and CSV.
    loss : "hinge", "squared_hinge", "epsilon_insensitive" or "squared_epsilon_insensitive".
    label : the name of the column of labels in parquet files and data frames.
    sample_weight : weights of the rows, in the form of y; a column's name for parquet files and data frames.
    class_weight : "balanced", or a mapping from labels to weights.
    engine : "serial" (one part after the other, out of core: the default), "threads", or "dask" (the default for
        collections of dask, or where a `client` is given).
    client : a `distributed.Client`; by default the current one.
    parts : how many parts an array in memory is cut into.
    checkpoint : a file that is written after every step, and read at the start if it is there.
    tol : the KKT violation to reach.
    time_limit, callback, verbose : as in `train_svc`; what was reached is kept.
    n_threads : threads of the serial engine and of "threads".

    Returns
    -------
    PartsSolution

    Examples
    --------
    >>> import numpy as np
    >>> from svmcore.distributed import train_linear
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> solution = train_linear(X, X[:, 0] > 0.1, C=10.0, parts=4)
    >>> solution.converged, len(solution.rows)
    (True, 4)
    """
    return _train(X, y, sample_weight, formulations.SVC_LOSSES + _NUMBERS, locals())


@checked()
def train_svc(
    X: Any,
    y: Any = None,
    C: float = 1.0,
    *,
    kernel: str = "rbf",
    gamma: Any = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    loss: str = "hinge",
    fit_intercept: bool = True,
    sample_weight: Any = None,
    class_weight: Any = None,
    label: Any = None,
    engine: str | None = None,
    client: Any = None,
    parts: int | None = None,
    checkpoint: Any = None,
    working_set: int | None = None,
    certificate: str = "auto",
    tol: float = TOL,
    time_limit: float | None = None,
    callback: Callback | None = None,
    verbose: int = 0,
    n_threads: int | None = None,
) -> PartsSolution:
    """Train a two-class support vector machine over parts of a data set, and certify the answer.

    The problem is that of `svmcore.train_svc`, and so is the answer, up to the tolerance. A part keeps 16 bytes a row and
    reads its rows where they are. Each round the variables that violate, the free ones and those nearest to violating are
    solved for at one place, and the rows that change go to all parts: bounded support vectors never move. A linear kernel
    with up to 500 features is trained by `train_linear`.

    Parameters
    ----------
    X, y, label, sample_weight, class_weight, engine, client, parts, tol, time_limit, callback, verbose, n_threads : as in
        `train_linear`; a callback is called, and a line is written, once a round.
    C, kernel, gamma, degree, coef0, loss, fit_intercept : as in `svmcore.train_svc`.
    checkpoint : a file that is written after every round: a bit or two a row. If it is there, the fit goes on from it.
    working_set : variables solved for together; by default chosen from the number of rows and of free variables.
    certificate : "auto": the violation and the intercept in float64 from the rows that decide, objectives and gap from the
        parts' own fields where a pass over all rows is dear; "whole": everything in float64.

    Returns
    -------
    PartsSolution

    Examples
    --------
    >>> import numpy as np
    >>> from svmcore.distributed import train_svc
    >>> X = np.random.default_rng(0).normal(size=(600, 2))
    >>> solution = train_svc(X, np.hypot(X[:, 0], X[:, 1]) < 1.0, C=10.0, parts=3)
    >>> solution.converged
    True
    """
    return _train(X, y, sample_weight, formulations.SVC_LOSSES, locals())


@checked()
def train_svr(
    X: Any,
    y: Any = None,
    C: float = 1.0,
    epsilon: float = 0.1,
    *,
    kernel: str = "rbf",
    gamma: Any = "scale",
    degree: int = 3,
    coef0: float = 0.0,
    loss: str = "epsilon_insensitive",
    fit_intercept: bool = True,
    sample_weight: Any = None,
    label: Any = None,
    engine: str | None = None,
    client: Any = None,
    parts: int | None = None,
    checkpoint: Any = None,
    working_set: int | None = None,
    certificate: str = "auto",
    tol: float = TOL,
    time_limit: float | None = None,
    callback: Callback | None = None,
    verbose: int = 0,
    n_threads: int | None = None,
) -> PartsSolution:
    """Train a support vector regression over parts of a data set, and certify the answer.

    The problem is that of `svmcore.train_svr`; all other parameters are those of `train_svc` here.

    Examples
    --------
    >>> import numpy as np
    >>> from svmcore.distributed import train_svr
    >>> X = np.linspace(0.0, 6.0, 300).reshape(-1, 1)
    >>> solution = train_svr(X, np.sin(X.ravel()), C=10.0, epsilon=0.01, parts=3)
    >>> bool(abs(solution.predict([[1.0]])[0] - np.sin(1.0)) < 0.02)
    True
    """
    return _train(X, y, sample_weight, _NUMBERS, locals())


def _train(X: Any, y: Any, weight: Any, losses: tuple[str, ...], words: dict[str, Any]) -> PartsSolution:
    """Check what was given, train. `words` are the parameters of the function that was called."""
    problem = setup(X, y, weight, losses, words)
    try:
        return solved(problem)
    finally:
        problem.engine.close()


def solved(problem: Setup) -> PartsSolution:
    """The machine of a checked problem. Where arrays of the user were lost with a worker, they are sent and solved again."""
    task = problem.task
    flat = task.kernel.kind == KernelKind.LINEAR and task.n_features <= scan.MOST_FEATURES
    for tries in range(_TRIES):
        try:
            return fit_linear(problem) if flat else fit_kernel(problem)
        except Lost:
            sources = problem.engine.again()
            if sources is None or tries == _TRIES - 1:
                raise
            problem = problem._replace(sources=sources)
    raise AssertionError


@one_blas_thread
def fit_linear(problem: Setup) -> PartsSolution:
    """The linear machine of a checked problem: by rounds over bands, or where these lead nowhere, as any other kernel's."""
    engine, task, control = problem.engine, problem.task, problem.control
    stored = problem.ledger.read()
    if stored is not None and "round" in stored:
        return fit_kernel(problem, "a checkpoint of such rounds")
    with control, np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        fit = band.Bands(problem)
        try:
            found, status = fit.run(stored)
            why = ""
        except band.Fruitless as error:
            why = str(error)
    if why:
        del fit  # and the rows of its parts
        return fit_kernel(problem, why)
    shift = float(found.w @ task.centre) if task.equality else 0.0
    at = found.at._replace(bias=found.at.bias - shift)
    stats = {
        "method": "band", "syncs": fit.syncs, "passes": fit.passes, "rows_up": fit.rows_up,
        "rows_gathered": fit.gathered, "bytes_up": fit.bytes_up, "exact": True,
    }  # fmt: skip
    kept = Apart(engine, problem.sources, fit.question(stages.coefficients), task)
    return _answer(problem, status, at, stats, rounds=fit.rounds, coef_=found.w, found=kept)


@one_blas_thread
def fit_kernel(problem: Setup, reason: str = "") -> PartsSolution:
    """The kernel machine of a checked problem, or the linear one for a reason."""
    engine, task = problem.engine, problem.task
    with problem.control:
        fit = rounds.Rounds(problem)
        status = fit.run(fit.begin)
        for attempt in range(_ATTEMPTS):
            proof = rounds.prove(fit, whole=problem.certified, brief=not status.ok)
            if not status.ok or proof.at.violation <= problem.tol or proof.estimated:
                break
            # fields that are computed afresh, and on from there
            status = fit.run(fit.refresh) if attempt < _ATTEMPTS - 1 else Status.PRECISION
    if status is Status.CONVERGED and fit.bent and not fit.convex:  # it may stand at a local optimum
        status = Status.STATIONARY
    pairs, coef = fit.pairs(fit.stand.states), None
    if task.kernel.kind == KernelKind.LINEAR:
        coef = np.sum(engine.gather(engine.run(scan.weights, pairs)), axis=0)
        found: Any = Apart(engine, problem.sources, engine.run(scan.coefficients, pairs), task)
    else:
        found = [Vectors(*part) for part in engine.gather(engine.run(scan.vectors, pairs))]
    stats = {
        "passes": fit.rows_moved / max(proof.at.support, 1), "rows_moved": fit.rows_moved, "rows_seen": len(fit.seen),
        "bytes_up": fit.bytes_up, "bytes_down": fit.bytes_down, "decisive": proof.decisive, "exact": proof.exact,
        "method": "rounds", "error": proof.error, "precision": "float64" if fit.exact else "float32",
    } | ({"estimated": True} if proof.estimated else {}) | ({"reason": reason} if reason else {})  # fmt: skip
    return _answer(problem, status, proof.at, stats, rounds=fit.rounds, coef_=coef, found=found)


def _answer(problem: Setup, status: Status, at: Standing, stats: dict[str, Any], **more: Any) -> PartsSolution:
    """The answer, with a word where it is not what was asked for. The bias is that of rows as users give them."""
    task, whole = problem.task, problem.whole
    primal = at.gap + at.dual
    relative = at.gap / max(abs(primal), NONZERO)
    speak(status, at.violation, relative, problem.tol, "estimated" in stats)
    classes = task.classes
    if classes is not None:  # of one class against the rest these are False and True
        classes = np.array([False, True] if classes[0] is None else classes)
    return PartsSolution(
        certificate=Certificate(-at.dual, primal, at.gap, relative, at.violation, 0.0, at.bias), status=status,
        n_support=at.support, n_free=at.free, fit_seconds=problem.seconds,
        rows=[part.rows for part in whole.parts], parts=[part.name for part in whole.parts], classes=classes,
        kernel=task.kernel, terms=problem.terms, columns=Columns(task.n_features, whole.names), engine=problem.engine.name,
        stats=stats | {"lost": problem.engine.losses()}, **more,
    )  # fmt: skip
