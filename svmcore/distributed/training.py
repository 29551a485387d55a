"""What people train with over parts: `train_linear` for linear machines, `train_svc` and `train_svr` for kernels."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from svmcore._control import Callback
from svmcore._threads import one_blas_thread
from svmcore._types import FloatArray, Kernel, KernelKind, Status
from svmcore.distributed import linear, stages
from svmcore.distributed.answer import PartsSolution, Round, Vectors
from svmcore.distributed.engine import Crew, Halted
from svmcore.distributed.setup import Setup, Words, setup, speak
from svmcore.problem.certify import Certificate

_TINY = 1e-300


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
    regression. An interior point works on sums of the parts: about 100 passes over the rows, whatever C is. Each part keeps
    its rows in their own precision and some 150 bytes a row more; what travels are d x d matrices.

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
    rounds: list[Round] = []
    d = task.n_features

    def log(steps: int, mu: float, residual: float) -> None:
        rounds.append(Round(control.seconds, residual, 0, np.nan, mu, 0, 1))
        if control.verbose:
            sys.stderr.write(
                f"fit: {control.seconds:6.1f} s, step {steps}, complementarity {mu:.2e}, dual residual {residual:.2e}\n"
            )

    def keep(stand: linear.Stand) -> None:
        problem.ledger.write(w=stand.w, numbers=np.array([stand.bias, stand.mu, stand.steps]))

    with control, np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        crew = engine.crew(stages.member, [(k, source, task) for k, source in enumerate(problem.sources)])
        fit = linear.Linear(crew, task.equality, tol, log)
        fit.stop = lambda: control.check(fit.steps, np.nan, np.nan) is not None
        stored = problem.ledger.read()
        stand = None
        if stored is not None:
            bias, mu, steps = stored["numbers"].tolist()
            stand = linear.Stand(stored["w"], bias, mu, int(steps))
        try:
            found, status = fit.run(stand, keep)
        except Halted:
            found, status = fit.inside(), control.reason() or Status.INTERRUPTED
    primal = found.gap + found.dual
    relative = found.gap / max(abs(primal), _TINY)
    shift = float(found.w @ task.centre) if task.equality else 0.0
    speak(status, found.violation, relative, tol)
    stats = {
        "syncs": fit.syncs, "passes": fit.passes, "crossovers": fit.crossovers, "rows_up": fit.moved, "exact": True,
        "bytes_up": fit.syncs * 8 * d * (d + 2), "lost": list(engine.lost),
    }  # fmt: skip
    return PartsSolution(
        kind=task.kind, intercept=found.bias - shift,
        certificate=Certificate(
            -found.dual, primal, found.gap, relative, found.violation, 0.0, found.bias - shift
        ),
        status=status, fit_seconds=control.seconds, n_support=found.support, n_free=found.free, rounds=rounds,
        rows=[part.rows for part in problem.whole.parts], parts=[part.name for part in problem.whole.parts],
        classes=task.classes, kernel=Kernel(int(KernelKind.LINEAR), 1.0, 0.0, 1, 0.0), terms=problem.terms,
        n_features=d, coef_=found.w, engine=engine.name, gather=_gather(crew), stats=stats,
    )  # fmt: skip


class _gather:
    """Fetches the support vectors of a linear machine from its parts."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew

    def __call__(self) -> list[Vectors]:
        found: list[tuple[Any, FloatArray, Any]] = self.crew.all("vectors")
        return [Vectors(*part) for part in found]
