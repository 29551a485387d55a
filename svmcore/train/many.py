"""Many machines over the same points: columns of labels, of targets or of weights, with one kernel."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from svmcore import solvers
from svmcore._control import Control
from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._keywords import Gamma, KernelLike, SolverOptions, checked
from svmcore._types import NONZERO, FloatArray, Kernel, KernelKind, Status
from svmcore.base.door import entered
from svmcore.base.parallel import run_all, worker_count
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.matrix import KernelMatrix, available_threads
from svmcore.kernel.whole import whole_kernel
from svmcore.models.solution import Solution
from svmcore.problem import border, labelling
from svmcore.problem.advice import LARGE_GAP
from svmcore.problem.certify import Certificate
from svmcore.problem.formulations import PINBALL, SVC_LOSSES, SVR_LOSSES
from svmcore.problem.scales import warn_of_scales
from svmcore.solvers import small
from svmcore.solvers._crowd import SLICE, Manner, Matrices, crowd_of, harvest, matrices_of
from svmcore.solvers._crowd_jit import BIAS, GAP, PRIMAL, ROUNDS, STEPS, VIOLATION
from svmcore.train.forms import Problem, svc_problem, svr_problem
from svmcore.train.functions import train_svc
from svmcore.train.solve import Run, checked_run, control_of, fit

_LIMIT = 1e9  # a kernel matrix in float64 has at most so many bytes
_SHARE = 0.25  # a kernel matrix takes at most this share of the free memory
_COSTLY = 64  # features from which such a matrix pays: a certificate then reads it
_FEW_FEATURES = 0.25  # per point: below, linear machines are trained without a kernel matrix
_LEAST_SHARED = 16  # so many machines are worth loops that are compiled for them, where that was not done yet
_MOST_SHARED = 1000  # from more points on, the loops of one machine are as fast as those of many
_ROUNDS = 4  # shares of the work that a worker gets, one after the other
_ABSENT = ("alpha0", "nu", "callback", "verbose", "trace")


@checked(train_svc, options=SolverOptions.__annotations__)
def train_many(
    X: Any, Y: Any, C: float = 1.0, *, loss: str = "hinge", epsilon: float | None = None, tau: float = 0.5,
    kernel: KernelLike = "rbf", gamma: Gamma = "scale", degree: int = 3, coef0: float = 0.0, standardize: bool = False,
    feature_names: Any = None, sample_weight: Any = None, class_weight: Any = None, n_jobs: int | None = None,
    n_threads: int | None = None, time_limit: float | None = None, **options: Any,
) -> list[Solution]:  # fmt: skip
    """Train many machines over the same points: one for every column of labels, of targets or of weights.

    The points are checked and packed once, and the kernel is computed once where it fits into memory. Permutation tests,
    bootstraps, and several labels or targets of the same rows need nothing else. With the hinge or "epsilon_insensitive" and
    at most 1,000 rows, 16 or more machines are solved together over one kernel matrix (`stats["together"]`).

    Parameters
    ----------
    X : as in `train_svc`.
    Y : labels or targets, shape (n, m); or (n,) where the weights have columns.
    sample_weight : weights, shape (n,) or (n, m). Y and the weights have the same number of columns, or one of them has one.
    loss : "hinge" or "squared_hinge": labels, two values in each column. "epsilon_insensitive" (with `epsilon`, default
        0.1), "squared_epsilon_insensitive" or "pinball" (with `tau`): targets.
    gamma, standardize : "scale" and standardisation look at all rows alike; weights count there only where they are (n,).
    n_jobs : machines side by side, in threads; -1: one per processor. The result does not depend on it.
    n_threads : processors for kernel products of one machine (default: those that `n_jobs` leaves).
    time_limit : for all machines together; each returns what it has then. Further keywords are those of `train_svc`, but for
        `nu`, `alpha0`, `callback`, `verbose` and `trace`.

    Returns
    -------
    list of Solution, one for each column

    Examples
    --------
    >>> import numpy as np, svmcore
    >>> X = np.linspace(0.0, 1.0, 20).reshape(-1, 1)
    >>> Y = np.column_stack([X.ravel() > 0.3, X.ravel() > 0.7])
    >>> machines = svmcore.train_many(X, Y, C=100.0, kernel="linear")
    >>> [int(np.sum(machine.predict(X))) for machine in machines]
    [14, 6]
    """
    loss = border.choice("loss", loss, SVC_LOSSES + SVR_LOSSES)
    for name in _ABSENT:
        if name in options:
            raise InputError(f"{name} belongs to one machine, and train_many trains several; leave it out")
    begin, limit = time.perf_counter(), border.time_limit(time_limit)
    workers = worker_count(n_jobs)
    threads = max(1, available_threads() // workers) if n_threads is None else border.threads(n_threads)
    form = {"kernel": kernel, "gamma": gamma, "degree": degree, "coef0": coef0, "loss": loss}
    form |= {
        name: options.pop(name) for name in ("fit_intercept", "intercept_scaling", "fixed_intercept") if name in options
    }
    if loss in SVC_LOSSES:
        if epsilon is not None:
            raise InputError(
                f"epsilon={epsilon!r} belongs to a regression, and loss={loss!r} is for labels; leave it out"
            )
        form["class_weight"] = class_weight
    else:
        if class_weight is not None:
            raise InputError(f"class_weight belongs to labels; with loss={loss!r} use sample_weight")
        form |= {"tau": tau, "epsilon": (0.0 if loss == PINBALL else 0.1) if epsilon is None else epsilon}
    run = _run(threads, options)
    table = _ManyTable.of(Y, sample_weight)
    table.check(class_weight if loss in SVC_LOSSES else None, loss)
    base = _problem(X, table.y(0), C, form | {"sample_weight": table.shared, "standardize": standardize}, feature_names)
    gram = _gram(base, threads)
    matrices = matrices_of(gram, inverse=False) if gram is not None and _is_shared(base, table, run, form) else None
    chunks = np.array_split(np.arange(table.n_columns), min(table.n_columns, workers * (_ROUNDS if workers > 1 else 1)))
    tasks = [(base, gram, matrices, table, chunk.tolist(), C, form, run, limit, begin) for chunk in chunks]
    found = [each for part in run_all(_some, tasks, n_jobs) for each in part]
    told = [(k, words) for k, (_, words) in enumerate(found) if words]
    if told:
        warn(f"{len(told)} of {table.n_columns} machines; column {told[0][0]}: {told[0][1]}", ConvergenceWarning)
    warn_of_scales(base.X, base.spec.kernel, base.by_scale, names=base.columns.names, look=base.look)
    return [solution for solution, _ in found]


class _ManyTable(NamedTuple):
    """Columns of labels or targets, and of weights, of which a single one stands for all."""

    values: Any
    weights: Any
    shared: Any  # weights that were given as (n,)
    n_columns: int

    @staticmethod
    def of(Y: Any, sample_weight: Any) -> _ManyTable:
        """The checked shapes."""
        values = entered(Y, "Y")
        weights = None if sample_weight is None else entered(sample_weight, "sample_weight")
        for name, array in (("Y", values), ("sample_weight", weights)):
            if array is not None and not (array.ndim in (1, 2) and array.size):
                raise InputError(f"{name} has shape {array.shape}; give (n,), or (n, m) with a column for each machine")
        counts = {array.shape[1] for array in (values, weights) if array is not None and array.ndim == 2}
        counts = counts - {1} or counts
        if len(counts) > 1:
            raise InputError(
                f"Y has {values.shape[1]} columns and sample_weight {weights.shape[1]}; give as many of both, or one column"  # type: ignore[union-attr]
            )
        shared = weights if weights is not None and weights.ndim == 1 else None
        columns = None if weights is None else weights.reshape(len(weights), -1)
        return _ManyTable(values.reshape(len(values), -1), columns, shared, counts.pop() if counts else 1)

    def check(self, class_weight: Any, loss: str) -> None:
        """Refuse bad columns before the first machine is trained; of several the message says which."""
        n = len(self.values)
        for k in range(self.n_columns):
            try:
                weights = border.sample_weights(self.weight(k), n)
                if loss in SVC_LOSSES:
                    signs, classes = labelling.labels(self.y(k), n, None if weights is None else weights > 0)
                    labelling.class_weights(class_weight, classes, signs, weights)
                else:
                    border.vector(self.y(k), "y", n)
            except InputError as error:
                if self.n_columns == 1:
                    raise
                raise InputError(f"column {k}: {error}") from None

    def y(self, k: int) -> Any:
        """The labels, or targets, of machine k."""
        return self.values[:, min(k, self.values.shape[1] - 1)]

    def weight(self, k: int) -> Any:
        """The weights of machine k."""
        return None if self.weights is None else self.weights[:, min(k, self.weights.shape[1] - 1)]


def _run(threads: int, options: dict[str, Any]) -> Run:
    """How to solve each problem."""
    words: dict[str, Any] = {
        "solver": "auto", "tol": 1e-3, "stopping": "kkt", "max_iter": -1, "cache_mb": None, "random_state": None,
    }  # fmt: skip
    words |= {name: options.pop(name) for name in list(options) if name in words}
    return checked_run(**words, n_threads=threads, alpha0=None, trace=False, options=options)


def _problem(X: Any, y: Any, C: Any, form: dict[str, Any], names: Any = None, like: Problem | None = None) -> Problem:
    make: Any = svc_problem if form["loss"] in SVC_LOSSES else svr_problem
    return make(X, y, C, feature_names=names, like=like, **form)  # type: ignore[no-any-return]


def _gram(base: Problem, threads: int) -> FloatArray | None:
    """The kernel among all points without its offset, where it fits and pays; moved points are left to their features."""
    kernel, n = base.spec.kernel, base.X.shape[0]
    if kernel.kind == KernelKind.PRECOMPUTED:
        return np.asarray(base.X)
    if 8.0 * n * n > min(_LIMIT, _SHARE * border.available_bytes()) or base.centre is not None:
        return None
    if base.spec.function is None and n > small.MOST_POINTS:
        width = base.X.shape[1]
        if width < _COSTLY or (kernel.kind == KernelKind.LINEAR and width < _FEW_FEATURES * n):
            return None
    with one_blas_thread:
        return np.ascontiguousarray(whole_kernel(base.X, kernel, base.spec.function, threads))


def _is_shared(base: Problem, table: _ManyTable, run: Run, form: dict[str, Any]) -> bool:
    """Whether all machines are tasks over one matrix in float32: losses with boxes, and an intercept that is free."""
    plain = run.solver == solvers.AUTO and run.stopping == "kkt" and run.max_iter < 0 and not run.options
    boxes = form["loss"] in (SVC_LOSSES[0], SVR_LOSSES[0]) and not base.qp.infinite
    several = table.n_columns >= _LEAST_SHARED and base.X.shape[0] <= _MOST_SHARED
    return several and plain and boxes and base.qp.equality and not base.fixed


def _together(
    base: Problem, matrices: Matrices, table: _ManyTable, columns: Sequence[int], C: Any, form: dict[str, Any], run: Run,
    control: Control,
) -> dict[int, Solution]:  # fmt: skip
    """The machines that are answered as tasks over one matrix, in slices: those that need no other word."""
    n, labels = len(matrices.double), form["loss"] in SVC_LOSSES
    out: dict[int, Solution] = {}
    X = base.X.copy()  # users may write to theirs before support vectors are asked for
    for first in range(0, len(columns), SLICE):
        if control.reason() is not None:
            break
        start, own = time.perf_counter(), columns[first : first + SLICE]
        several = table.weights is not None and table.weights.shape[1] > 1
        weights = [border.sample_weights(table.weight(k), n) for k in (own if several else own[:1])]
        values, classes, factors = [], [], []
        for k in own:
            if labels:
                signs, both = labelling.labels(table.y(k), n)
                values.append(signs)
                classes.append(both)
                if form["class_weight"] is not None:
                    codes, weight = (signs > 0).astype(np.int64), weights[min(len(values), len(weights)) - 1]
                    factors.append(labelling.class_factors(form["class_weight"], both, codes, weight))
            else:
                values.append(border.vector(table.y(k), "y", n))
        tasks = crowd_of(
            np.array(values), np.ones(n, np.int64), 1, C, labels=labels, epsilon=form.get("epsilon", 0.0),
            weights=None if weights[0] is None else np.array(weights), factors=np.array(factors) if factors else None,
        )  # fmt: skip
        found = harvest(matrices, tasks, Manner(run.tol, False, False, True))
        excess, seconds = np.abs(found.coef.sum(axis=1)), (time.perf_counter() - start) / len(own)
        for at, (k, told) in enumerate(zip(own, found.told.tolist(), strict=True)):
            gap, primal = told[GAP], told[PRIMAL]
            relative = gap / max(abs(primal), NONZERO)
            if not told[VIOLATION] <= run.tol or not abs(relative) <= LARGE_GAP:
                continue
            terms, coef = base.terms, found.coef[at]
            if factors:
                terms = terms._replace(factors=tuple(factors[at].tolist()))
            support = np.flatnonzero(coef)
            stats = {"n_outer": int(told[ROUNDS]), "precision": "mixed", "together": len(own)}
            out[k] = machine_of(
                base.spec, (gap, primal, relative, told[VIOLATION], float(excess[at]), told[BIAS]), support, coef[support],
                n_points=n, status=Status.CONVERGED, converged=True, n_iter=int(told[STEPS]), fit_seconds=seconds,
                classes=classes[at] if labels else None, columns=base.columns, terms=terms, n_threads=run.n_threads,
                support_vectors=partial(_rows, X, base.spec.kernel, support), stats=stats,
            )  # fmt: skip
    return out


def machine_of(spec: border.KernelSpec, told: Any, support: Any, coef: FloatArray, **more: Any) -> Solution:
    """A machine among others over one kernel matrix: (gap, primal, relative gap, violation, excess, bias) are told of it."""
    gap, primal, relative, violation, excess, bias = told
    return Solution(
        intercept=bias, support=support, dual_coef=coef, kkt_violation=violation, n_kernel_evals=0, solver="small",
        measured=Certificate(gap - primal, primal, gap, relative, violation, excess, bias), kernel=spec.kernel,
        function=spec.function, **more,
    )  # fmt: skip


def _rows(X: Any, kernel: Kernel, support: Any) -> Any:
    return np.empty((0, 0)) if kernel.kind == KernelKind.PRECOMPUTED else X[support]


def _left(limit: float | None, begin: float) -> float | None:
    return None if limit is None else max(0.0, limit - (time.perf_counter() - begin))


def _some(
    base: Problem, gram: FloatArray | None, matrices: Matrices | None, table: _ManyTable, columns: Sequence[int], C: Any,
    form: dict[str, Any], run: Run, limit: float | None, begin: float,
) -> list[tuple[Solution, str]]:  # fmt: skip
    """Some machines, one after the other, over one kernel matrix; and what is to be said about each."""
    known: dict[int, Solution] = {}
    stopped = False
    if matrices is not None:
        with control_of(_left(limit, begin), None, 0) as control, one_blas_thread:
            known = _together(base, matrices, table, columns, C, form, run, control)
            stopped = control.reason() is Status.INTERRUPTED
        if len(known) == len(columns):
            return [(known[k], "") for k in columns]
    if gram is None:
        K = base.kernel_matrix(cache_bytes=run.cache_bytes, n_threads=run.n_threads)
    else:
        kernel = Kernel(int(KernelKind.PRECOMPUTED), 1.0, 0.0, 1, base.spec.kernel.offset)
        K = KernelMatrix(gram, kernel, cache_bytes=run.cache_bytes, n_threads=run.n_threads)
    K.shared = True
    out = []
    try:
        for k in columns:
            if k in known:
                out.append((known[k], ""))
                continue
            problem = _problem(base.X, table.y(k), C, form | {"sample_weight": table.weight(k)}, like=base)
            control = control_of(0.0 if stopped else _left(limit, begin), None, 0)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", ConvergenceWarning)
                solution = fit(problem, run, control, K=K)
            said = [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)]
            out.append((solution, said[0] if said else ""))
            stopped |= solution.status is Status.INTERRUPTED
    finally:
        K.shared = False
        if K.tiles is not None:
            K.tiles.release()
    return out
