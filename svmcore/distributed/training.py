"""What people train with over parts: `train_linear` for linear machines, `train_svc` and `train_svr` for kernels."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from svmcore._control import Callback
from svmcore._keywords import checked
from svmcore._threads import one_blas_thread
from svmcore._types import NONZERO, Kernel, KernelKind, Status
from svmcore.distributed import band, linear, rounds, scan, stages
from svmcore.distributed.answer import Fetched, PartsSolution, Round, Vectors
from svmcore.distributed.engine import Crew, Halted
from svmcore.distributed.setup import Setup, Words, setup, speak
from svmcore.problem import border, formulations
from svmcore.problem.certify import Certificate

MOST_FEATURES = 500  # the interior point takes linear kernels of at most so many features
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
    tol: float = 1e-3,
    time_limit: float | None = None,
    callback: Callback | None = None,
    verbose: int = 0,
    n_threads: int | None = None,
) -> PartsSolution:
    """Train an exact linear machine over parts of a data set, and certify the answer.

    The problem is that of `svmcore.train_svc` with ``kernel="linear"``, or of `svmcore.train_svr` where the loss is one of
    regression. Rows near the margin are solved for at one place, and all others are summed up where they are: two to four
    passes over the rows are the rule. Where that does not lead to the end, an interior point works on sums of the parts in
    about 100 passes, whatever C is; ``stats["method"]`` and ``stats["reason"]`` tell. Each part keeps its rows in their own
    precision and some 100 bytes a row more.

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
        return fit_linear(problem)
    finally:
        problem.engine.close()


@one_blas_thread
def fit_linear(problem: Setup) -> PartsSolution:
    """The linear machine of a checked problem."""
    engine, task, control, tol = problem.engine, problem.task, problem.control, problem.tol
    steps: list[Round] = []
    d = task.n_features

    def log(step: int, mu: float, residual: float) -> None:
        steps.append(Round(problem.seconds, residual, 0, np.nan, mu, 0, 1))
        if problem.verbose:
            sys.stderr.write(
                f"fit: {control.seconds:6.1f} s, step {step}, complementarity {mu:.2e}, dual residual {residual:.2e}\n"
            )

    def tell(at: Round) -> None:
        steps.append(at._replace(seconds=problem.seconds))
        if problem.verbose:
            relative = at.gap / max(abs(at.dual + at.gap), NONZERO)
            state = "a sample" if np.isnan(at.dual) else f"violation {at.violation:.2e}, relative gap {relative:.1e}"
            sys.stderr.write(f"fit: {control.seconds:6.1f} s, round {len(steps)}, {at.moved} rows, {state}\n")

    def keep(stand: linear.Stand) -> None:
        problem.ledger.write(w=stand.w, numbers=np.array([stand.bias, stand.mu, stand.steps]))

    with control, np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        crew = engine.crew(stages.member, [(k, source, task) for k, source in enumerate(problem.sources)])
        fit = linear.Linear(crew, task.equality, tol, log)
        bands = band.BandMaster(fit, tell)
        fit.stop = lambda: control.check(fit.steps, np.nan, np.nan) is not None
        stored = problem.ledger.read()
        stand = None
        if stored is not None:
            bias, mu, number = stored["numbers"].tolist()
            stand = linear.Stand(stored["w"], bias, mu, int(number))
        try:
            found, status = bands.run(stand, keep)
        except Halted:
            found, status = fit.inside(), control.reason() or Status.INTERRUPTED
    primal = found.gap + found.dual
    relative = found.gap / max(abs(primal), NONZERO)
    shift = float(found.w @ task.centre) if task.equality else 0.0
    speak(status, found.violation, relative, tol)
    stats = {
        "method": bands.method, "syncs": fit.syncs, "passes": fit.passes, "crossovers": fit.crossovers,
        "rows_up": fit.moved + bands.rows_up, "rows_gathered": bands.gathered, "bytes_up": fit.bytes_up, "exact": True,
        "lost": engine.losses(),
    }  # fmt: skip
    if bands.reason:
        stats["reason"] = bands.reason
    return PartsSolution(
        kind=task.kind, intercept=found.bias - shift,
        certificate=Certificate(
            -found.dual, primal, found.gap, relative, found.violation, 0.0, found.bias - shift
        ),
        status=status, fit_seconds=problem.seconds, n_support=found.support, n_free=found.free, rounds=steps,
        rows=[part.rows for part in problem.whole.parts], parts=[part.name for part in problem.whole.parts],
        classes=_classes(problem), kernel=Kernel(int(KernelKind.LINEAR), 1.0, 0.0, 1, 0.0), terms=problem.terms,
        n_features=d, coef_=found.w, engine=engine.name, gather=_FromCrew(crew), stats=stats,
        feature_names=problem.whole.names,
    )  # fmt: skip


def _classes(problem: Setup) -> Any:
    """The two labels of a machine; of one class against the rest these are False and True."""
    if problem.task.classes is None:
        return None
    minus, plus = problem.task.classes
    return np.array([False, True]) if minus is None else np.array([minus, plus])


class _FromCrew:
    """Fetches the support vectors of a linear machine from its parts."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew

    def __call__(self) -> list[Vectors]:
        return [Vectors(*part) for part in self.crew.all("vectors")]


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
    tol: float = 1e-3,
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
    tol: float = 1e-3,
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
    problem = setup(X, y, weight, form, words)
    try:
        if problem.task.kernel.kind == KernelKind.LINEAR and problem.task.n_features <= MOST_FEATURES:
            return fit_linear(problem)
        return fit_kernel(problem, size, whole)
    finally:
        problem.engine.close()


@one_blas_thread
def fit_kernel(problem: Setup, working_set: int | None, whole: bool) -> PartsSolution:
    """The kernel machine of a checked problem."""
    control, task, tol = problem.control, problem.task, problem.tol
    with control:
        fit = rounds.Rounds(problem, working_set)
        status = fit.run()
        for attempt in range(_ATTEMPTS):
            proof = rounds.prove(fit, whole=whole, brief=not status.ok)
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
    vectors = [
        Vectors(*part) for part in problem.engine.gather(problem.engine.run(scan.vectors, fit._pairs(at.states)))
    ]
    coef = None
    if task.kernel.kind == KernelKind.LINEAR:
        shares = problem.engine.gather(problem.engine.run(scan.weights, list(zip(fit.parts, at.states, strict=True))))
        coef = np.sum(shares, axis=0)
    stats = {
        "passes": fit.rows_moved / max(n_support, 1), "rows_moved": fit.rows_moved, "rows_seen": len(fit.seen.names),
        "bytes_up": fit.bytes_up, "bytes_down": fit.bytes_down, "decisive": proof.decisive, "exact": proof.exact,
        "error": proof.error, "precision": "float64" if fit.exact else "float32", "lost": problem.engine.losses(),
    }  # fmt: skip
    if proof.estimated:
        stats["estimated"] = True
    return PartsSolution(
        kind=task.kind, intercept=proof.bias,
        certificate=Certificate(-proof.dual, primal, proof.gap, relative, proof.violation, 0.0, proof.bias),
        status=status, fit_seconds=problem.seconds, n_support=n_support, n_free=at.free, rounds=fit.rounds,
        rows=[part.rows for part in problem.whole.parts], parts=[part.name for part in problem.whole.parts],
        classes=_classes(problem), kernel=task.kernel, terms=problem.terms, n_features=task.n_features, coef_=coef,
        engine=problem.engine.name, gather=Fetched(vectors), stats=stats,
        feature_names=problem.whole.names,
    )  # fmt: skip
