"""What people train with over parts: `train_linear` for linear machines, `train_svc` and `train_svr` for kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from svmcore._control import Callback
from svmcore._keywords import TOL, checked
from svmcore._types import NONZERO, KernelKind, Status
from svmcore.base.threads import one_blas_thread
from svmcore.distributed import band, linear, rounds, scan, stages
from svmcore.distributed.answer import Apart, Fetched, PartsSolution, Round, Vectors
from svmcore.distributed.engine import Halted, Lost
from svmcore.distributed.setup import Setup, Words, setup, speak
from svmcore.problem import border, formulations
from svmcore.problem.certify import Certificate

_TRIES = 20  # losses of data that a fit may have
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
    form = {
        "C": C, "loss": loss, "epsilon": epsilon, "fit_intercept": fit_intercept, "class_weight": class_weight,
        "kernel": "linear", "gamma": 1.0, "degree": 3, "coef0": 0.0,
    }  # fmt: skip
    words = Words(engine, client, label, parts, checkpoint, tol, time_limit, callback, verbose, n_threads)
    problem = setup(X, y, sample_weight, form, words)
    try:
        return solved(problem, fit_linear)
    finally:
        problem.engine.close()


def solved(problem: Setup, fit: Callable[[Setup], PartsSolution] | None = None) -> PartsSolution:
    """The machine of a checked problem. Where arrays of the user were lost with a worker, they are sent and solved again."""
    if fit is None:
        task = problem.task
        plain = task.kernel.kind == KernelKind.LINEAR and task.n_features <= scan.MOST_FEATURES
        fit = fit_linear if plain else fit_kernel
    for _ in range(_TRIES):
        try:
            return fit(problem)
        except Lost:
            sources = problem.engine.again()
            if sources is None:
                raise
            problem = problem._replace(sources=sources)
    return fit(problem)


@one_blas_thread
def fit_linear(problem: Setup) -> PartsSolution:
    """The linear machine of a checked problem."""
    stored = problem.ledger.read()
    if stored is not None and "round" in stored:
        return fit_kernel(problem, "a checkpoint of such rounds")
    try:
        return _fit_bands(problem, stored)
    except band.Fruitless as reason:
        why = str(reason)
    return fit_kernel(problem, why)


def _fit_bands(problem: Setup, stored: dict[str, Any] | None) -> PartsSolution:
    """The same by rounds over bands, if these lead to the end."""
    engine, task, control, tol = problem.engine, problem.task, problem.control, problem.tol
    steps: list[Round] = []
    d = task.n_features

    def tell(at: Round) -> None:
        steps.append(at._replace(seconds=problem.seconds))
        if problem.verbose:
            relative = at.gap / max(abs(at.dual + at.gap), NONZERO)
            state = "a sample" if np.isnan(at.dual) else f"violation {at.violation:.2e}, relative gap {relative:.1e}"
            sys.stderr.write(f"fit: {control.seconds:6.1f} s, round {len(steps)}, {at.moved} rows, {state}\n")

    def keep(stand: band.Stand) -> None:
        problem.ledger.write(w=stand.w, numbers=np.array([stand.bias, stand.steps]))

    with control, np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        parts = engine.run(stages.member, [(k, source, task) for k, source in enumerate(problem.sources)])
        fit = linear.Linear(engine, parts, task.equality, tol, control)
        bands = band.BandMaster(fit, tell)
        stand = None
        if stored is not None:
            bias, number = stored["numbers"].tolist()
            stand = band.Stand(stored["w"], bias, int(number))
        try:
            found, status = bands.run(stand, keep), Status.CONVERGED
        except Halted:
            found, status = fit.inside(), control.reason() or Status.INTERRUPTED
    primal = found.gap + found.dual
    relative = found.gap / max(abs(primal), NONZERO)
    shift = float(found.w @ task.centre) if task.equality else 0.0
    speak(status, found.violation, relative, tol)
    stats = {
        "method": "band", "syncs": fit.syncs, "passes": fit.passes, "rows_up": bands.rows_up,
        "rows_gathered": bands.gathered, "bytes_up": fit.bytes_up, "exact": True,
        "lost": engine.losses(),
    }  # fmt: skip
    return PartsSolution(
        kind=task.kind, intercept=found.bias - shift,
        certificate=Certificate(
            -found.dual, primal, found.gap, relative, found.violation, 0.0, found.bias - shift
        ),
        status=status, fit_seconds=problem.seconds, n_support=found.support, n_free=found.free, rounds=steps,
        rows=[part.rows for part in problem.whole.parts], parts=[part.name for part in problem.whole.parts],
        classes=_classes(problem), kernel=band.LINEAR, terms=problem.terms,
        n_features=d, coef_=found.w, engine=engine.name, stats=stats, feature_names=problem.whole.names,
        gather=Apart(engine, problem.sources, fit.keep(stages.coefficients), task),
    )  # fmt: skip


def _classes(problem: Setup) -> Any:
    """The two labels of a machine; of one class against the rest these are False and True."""
    if problem.task.classes is None:
        return None
    minus, plus = problem.task.classes
    return np.array([False, True]) if minus is None else np.array([minus, plus])


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
    form = {
        "C": C, "loss": _one_of(loss, formulations.SVC_LOSSES), "epsilon": 0.0, "fit_intercept": fit_intercept,
        "class_weight": class_weight, "kernel": kernel, "gamma": gamma, "degree": degree, "coef0": coef0,
    }  # fmt: skip
    words = Words(engine, client, label, parts, checkpoint, tol, time_limit, callback, verbose, n_threads)
    return _train(X, y, sample_weight, form, words, working_set, certificate)


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
    form = {
        "C": C, "loss": _one_of(loss, formulations.SVR_LOSSES[:2]), "epsilon": epsilon, "fit_intercept": fit_intercept,
        "kernel": kernel, "gamma": gamma, "degree": degree, "coef0": coef0,
    }  # fmt: skip
    words = Words(engine, client, label, parts, checkpoint, tol, time_limit, callback, verbose, n_threads)
    return _train(X, y, sample_weight, form, words, working_set, certificate)


def _one_of(loss: Any, losses: tuple[str, ...]) -> str:
    return border.choice("loss", loss, losses)


def _train(
    X: Any, y: Any, weight: Any, form: dict[str, Any], words: Words, working_set: Any, certificate: Any
) -> PartsSolution:
    """Choose the method, run it."""
    size = None if working_set is None else border.integer("working_set", working_set, low=2)
    whole = border.choice("certificate", certificate, ("auto", "whole")) == "whole"
    problem = setup(X, y, weight, form, words)._replace(working_set=size, certified=whole)
    try:
        return solved(problem)
    finally:
        problem.engine.close()


@one_blas_thread
def fit_kernel(problem: Setup, reason: str = "") -> PartsSolution:
    """The kernel machine of a checked problem, or the linear one for a reason."""
    engine, control, task, tol = problem.engine, problem.control, problem.task, problem.tol
    with control:
        fit = rounds.Rounds(problem, problem.working_set)
        status = fit.run()
        for attempt in range(_ATTEMPTS):
            proof = rounds.prove(fit, whole=problem.certified, brief=not status.ok)
            if not status.ok or proof.violation <= tol or proof.estimated:
                break
            if attempt == _ATTEMPTS - 1:
                status = Status.PRECISION
                break
            status = fit.resume()
    if status is Status.CONVERGED:
        status = rounds.success(fit)
    primal = proof.gap + proof.dual
    relative = proof.gap / max(abs(primal), NONZERO)
    speak(status, proof.violation, relative, tol, proof.estimated)
    assert fit.stand is not None
    at = fit.stand
    n_support = sum(part.support for part in at.surveys)
    pairs, coef = fit._pairs(at.states), None
    if task.kernel.kind == KernelKind.LINEAR:
        coef = np.sum(engine.gather(engine.run(scan.weights, pairs)), axis=0)
        gather: Any = Apart(engine, problem.sources, engine.run(scan.coefficients, pairs), task)
    else:
        gather = Fetched([Vectors(*part) for part in engine.gather(engine.run(scan.vectors, pairs))])
    stats = {
        "passes": fit.rows_moved / max(n_support, 1), "rows_moved": fit.rows_moved, "rows_seen": len(fit.seen.names),
        "bytes_up": fit.bytes_up, "bytes_down": fit.bytes_down, "decisive": proof.decisive, "exact": proof.exact,
        "method": "rounds", "error": proof.error, "precision": "float64" if fit.exact else "float32", "lost": engine.losses(),
    }  # fmt: skip
    if proof.estimated:
        stats["estimated"] = True
    if reason:
        stats["reason"] = reason
    return PartsSolution(
        kind=task.kind, intercept=proof.bias,
        certificate=Certificate(-proof.dual, primal, proof.gap, relative, proof.violation, 0.0, proof.bias),
        status=status, fit_seconds=problem.seconds, n_support=n_support, n_free=at.free, rounds=fit.rounds,
        rows=[part.rows for part in problem.whole.parts], parts=[part.name for part in problem.whole.parts],
        classes=_classes(problem), kernel=task.kernel, terms=problem.terms, n_features=task.n_features, coef_=coef,
        engine=engine.name, gather=gather, stats=stats,
        feature_names=problem.whole.names,
    )  # fmt: skip
