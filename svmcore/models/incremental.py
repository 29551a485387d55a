"""Exact changes of a trained machine: points added, points removed, and the leave-one-out error.

All of it works on SimpleSVM's active set. A point leaves by taking its variable to zero while the free variables
compensate, member by member of the factor; a point enters as a variable at zero. What then violates the optimality
conditions is added and pruned as in training. The kernel stays what it was (gamma="scale" is not worked out again), and so do
class weights in `leave_one_out`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._control import Callback, Control, PartControl, new_control
from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._keywords import checked
from svmcore._types import DualQP, FloatArray, IntArray, KernelKind, Raw, Status
from svmcore.base.door import reals
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import is_sparse
from svmcore.models.solution import Solution
from svmcore.problem import border, formulations, measures
from svmcore.solvers import _active_jit, _steps_jit
from svmcore.solvers._active import ActiveSet
from svmcore.solvers._contract import Crawl, SolverTask, landed
from svmcore.solvers._course import Course
from svmcore.train.solve import (
    Problem,
    Reached,
    Run,
    Training,
    any_problem,
    at_tolerance,
    control_of,
    feasible,
    fit,
    measure,
    one_class_problem,
    solution_of,
    speak,
    svc_problem,
    svr_problem,
)

_FRESH_EVERY = 16  # changes of a machine between two residuals from the data
_TOL = 1e-9  # the tolerance of refits inside of leave-one-out, for targets of size 1


def _training(solution: Solution) -> Training:
    if solution.training is None:
        raise InputError(
            "this machine does not carry its training data (it was read from a file, or is one of several); train again with "
            "train_svc or train_svr to add and remove points"
        )
    return solution.training  # type: ignore[no-any-return]


def _refuse_nu(solution: Solution) -> None:
    """The C or epsilon that belongs to a nu is another one once points change."""
    if solution.nu is not None and solution.C is not None:
        found, value = ("C", solution.C) if solution.epsilon is None else ("epsilon", solution.epsilon)
        raise InputError(
            f"a machine that was trained with nu has another {found} once points change; train again with "
            f"nu={solution.nu:g}, or with {found}={value:.6g}, to which points can be added and removed"
        )


def _problem(training: Training) -> Problem:
    if "nu" in training.form:
        return one_class_problem(training.X, **training.form)._replace(columns=training.columns)
    form = svr_problem if "epsilon" in training.form else svc_problem
    return form(training.X, training.y, **training.form)._replace(columns=training.columns)


def _signed(solution: Solution) -> FloatArray:
    coef = np.zeros(solution.n_points)
    coef[solution.support] = solution.dual_coef
    return coef


def _warm(training: Training, coef: FloatArray, n_threads: int) -> Solution:
    """Solve the training problem exactly from signed coefficients."""
    problem = _problem(training)
    run = _exact_run(training.tol, n_threads)._replace(
        alpha0=coef if problem.classes is None else np.abs(coef), options={"scan": "max"} if coef.any() else {}
    )
    return fit(problem, run, control_of(None, None, 0), training._replace(kept=None))


def _exact_run(tol: float, n_threads: int) -> Run:
    return Run(
        solver="simple", tol=tol, stopping="kkt", max_iter=-1, cache_bytes=border.cache_bytes(None),
        n_threads=n_threads, alpha0=None, trace=False, seed=0, options={},
    )  # fmt: skip


def _stacked(old: Any, new: Any) -> Any:
    if is_sparse(old) or is_sparse(new):
        from scipy import sparse

        return sparse.vstack([old, new], format="csr")
    return np.vstack([old, new])


def _weights(training: Training) -> FloatArray | None:
    weights = training.form["sample_weight"]
    return None if weights is None else np.asarray(weights, dtype=np.float64)


def add(solution: Solution, X: Any, y: Any, sample_weight: Any = None) -> Solution:
    """`Solution.add`."""
    training = _training(solution)
    _refuse_nu(solution)
    if solution.kernel.kind == KernelKind.PRECOMPUTED:
        raise InputError("points cannot be added to a precomputed kernel; train again with the larger matrix")
    X = solution.columns.apply(X)
    if y is None:
        if solution.kind != "one class":
            raise InputError("y is missing: every new point needs a label or a target")
        y = np.ones(X.shape[0], dtype=np.int64)
    labels = border.label_array(y).reshape(-1)
    if len(labels) != X.shape[0]:
        raise InputError(f"y has {len(labels)} entries for {X.shape[0]} new points")
    if solution.classes is not None and not np.isin(labels, solution.classes).all():
        stranger = labels[~np.isin(labels, solution.classes)][0]
        raise InputError(
            f"y contains {stranger!r}; this machine knows {', '.join(map(repr, solution.classes.tolist()))}"
        )
    weights = _weights(training)
    if weights is not None or sample_weight is not None:
        old = np.ones(training.X.shape[0]) if weights is None else weights
        new = np.ones(len(labels)) if sample_weight is None else reals(sample_weight, "sample_weight")
        weights = np.concatenate([old, np.broadcast_to(new, (len(labels),))])
    larger = training._replace(
        X=_stacked(training.X, X),
        y=np.concatenate([border.label_array(training.y).reshape(-1), labels]),
        form=training.form | {"sample_weight": weights},
    )
    n = training.X.shape[0]
    return _changed(solution, larger, keep=np.arange(n))


def positions(indices: Any, n: int) -> IntArray:
    """The points that `indices`, places or a mask, name among n, each once and in order."""
    array = np.atleast_1d(np.asarray(indices))
    if array.dtype == bool:
        if array.shape != (n,):
            raise InputError(f"indices is a mask of shape {array.shape} for {n} training points")
        return np.flatnonzero(array)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"indices={indices!r} are not whole numbers; give positions of training points")
    array = array.astype(np.int64)
    if array.size and (array.min() < -n or array.max() >= n):
        raise InputError(f"indices reach from {array.min()} to {array.max()}; there are {n} training points")
    return np.unique(array % n) if array.size else array


def _course(
    qp: DualQP,
    K: KernelMatrix,
    start: FloatArray,
    tol: float,
    control: Control,
    residual: FloatArray | None = None,
) -> Course:
    """A course with boxes of its own: they are closed on variables that leave."""
    own = qp._replace(lower=qp.lower.copy(), upper=qp.upper.copy())
    return Course(SolverTask(own, K, control, tol, start), residual)


def _active(problem: Problem, start: FloatArray, K: KernelMatrix, tol: float, control: Control) -> ActiveSet:
    """The active set of a dual point."""
    simple = ActiveSet(_course(problem.qp, K, start, tol, control))
    simple.load()
    return simple


def remove(solution: Solution, indices: Any) -> Solution:
    """`Solution.remove`."""
    training = _training(solution)
    _refuse_nu(solution)
    n = training.X.shape[0]
    gone = positions(indices, n)
    keep = np.setdiff1d(np.arange(n), gone)
    precomputed = solution.kernel.kind == KernelKind.PRECOMPUTED
    weights = _weights(training)
    smaller = training._replace(
        X=np.ascontiguousarray(training.X[np.ix_(keep, keep)]) if precomputed else training.X[keep],
        y=border.label_array(training.y).reshape(-1)[keep],
        form=training.form | {"sample_weight": None if weights is None else weights[keep]},
    )
    return _changed(solution, smaller, keep)


class _Kept(NamedTuple):
    """The active set behind an answer, for the next change of the machine."""

    problem: Problem
    simple: ActiveSet


def _changed(solution: Solution, training: Training, keep: IntArray) -> Solution:
    """The machine of `training`, whose first points are the points `keep` of this one's, by moving its active set there.

    The set and its factor belong to one machine: the change takes them along, and a second change of the same machine
    makes them anew. Where the problem of the points that stay has changed with the others (balanced class weights, one
    class), zero is no bound (quantiles), or the set gets stuck, the machine is solved from its old coefficients instead.
    """
    holder = _training(solution).kept or []
    try:  # two threads may change one machine: a list hands its entry to one of them
        old = holder.pop()
    except IndexError:
        old = None
    moved = None
    if solution.loss != formulations.PINBALL and solution.kind != "one class":
        with one_blas_thread, np.errstate(over="ignore", invalid="ignore"):
            moved = _move(old or _set_of(solution), training, keep, solution)
    if moved is None:
        coef = np.zeros(training.X.shape[0])
        coef[: len(keep)] = _signed(solution)[keep]
        return _warm(training, coef, solution.n_threads)
    return moved


def _set_of(solution: Solution) -> _Kept:
    """The active set of a machine that has none yet."""
    training = _training(solution)
    problem = _problem(training)
    K = _kernel(problem, solution.n_threads)
    control = Control(time_limit=None, callback=None, verbose=0)
    return _Kept(
        problem, _active(problem, formulations.to_beta(problem.qp, _signed(solution)), K, training.tol, control)
    )


def _kernel(problem: Problem, n_threads: int) -> KernelMatrix:
    return problem.kernel_matrix(cache_bytes=border.cache_bytes(None), n_threads=n_threads)


def _move(old: _Kept, training: Training, keep: IntArray, solution: Solution) -> Solution | None:
    """Take the points that leave out of the set, the new ones in, and certify; None where that does not work."""
    problem = _problem(training)
    was, now = old.problem.qp, problem.qp
    before, after = np.flatnonzero(np.isin(was.point, keep)), np.flatnonzero(now.point < len(keep))
    same = (
        was.total == now.total
        and np.array_equal(np.searchsorted(keep, was.point[before]), now.point[after])
        and all(
            np.array_equal(getattr(was, name)[before], getattr(now, name)[after])
            for name in ("c", "lower", "upper", "diag")
        )
    )
    if not same:
        return None
    for r in np.flatnonzero(~np.isin(was.point, keep)):
        if not old.simple.exit(int(r)):
            return None
    control = control_of(None, None, 0)
    run = _exact_run(training.tol, solution.n_threads)
    with control:
        K = _kernel(problem, solution.n_threads)
        simple = _carried(old.simple, problem, K, before, after, run, control)
        if _finish(simple) is not Status.CONVERGED:
            return None
        simple.settle()
        course = simple.course
        stats = {"adds": int(course.ints[_active_jit.ADDS]), "members": int(simple.active.sizes[0])}
        beta = landed(problem.qp, course.duals.beta.copy())
        if not formulations.nearly_balanced(problem.qp, beta):
            return None
        raw = feasible(problem.qp, Raw(beta, Status.CONVERGED, course.n_iter, None, stats))
        measured = measure(problem.qp, K, raw, run)
        if not (at_tolerance(measured, run) and Reached(run.solver, raw, measured).finite):
            return None
    training = training._replace(kept=[_Kept(problem, simple)])
    answer = solution_of(problem, K, raw, measured, run, control.seconds, training)
    speak(answer, measured, problem, run)
    return answer


def _carried(
    simple: ActiveSet, problem: Problem, K: KernelMatrix, before: IntArray, after: IntArray, run: Run, control: Control
) -> ActiveSet:
    """The active set on the changed problem: new variables at zero."""
    qp, duals = problem.qp, simple.course.duals
    beta, v = np.zeros(len(qp.c)), qp.c.copy()
    beta[after], v[after] = duals.beta[before], duals.v[before]
    new = np.setdiff1d(np.arange(len(qp.c)), after)
    support = np.flatnonzero(beta)
    if len(new) and len(support):
        v[new] -= K.block(qp.point[new], qp.point[support]) @ beta[support]
    course = _course(qp, K, beta, run.tol, control, residual=v if simple.age % _FRESH_EVERY else None)
    return simple.carried(course, before, after)


@dataclass(frozen=True, eq=False, repr=False)
class LeaveOneOut:
    """What every point would be told by the machine trained on all the others.

    Attributes
    ----------
    decision_values : (n,) f without point i, at point i; NaN where the work was stopped before.
    predictions : its class; for regression the value itself. Where the decision value is NaN, that of `solution`.
    error : the share of wrong predictions; for regression the mean squared error. Over the points that were reached.
    solution : the machine trained on all points.
    converged : whether every one of the machines was reached, and met its tolerance.
    n_exits, n_refits : points whose variable had to be taken to zero, and those of them that needed a run from scratch.
    n_kernel_evals, fit_seconds : the cost of everything, the machine on all points included.
    """

    decision_values: FloatArray
    predictions: NDArray[Any]
    error: float
    solution: Solution
    converged: bool
    n_exits: int
    n_refits: int
    n_kernel_evals: int
    fit_seconds: float

    def __repr__(self) -> str:
        return f"<LeaveOneOut: {len(self.decision_values)} points, error {self.error:.6g}>"


class _Snapshot:
    """The active set at the machine on all points, to come back to for every point."""

    def __init__(self, simple: ActiveSet) -> None:
        duals, active = simple.course.duals, simple.active
        self.simple = simple
        self.m, self.e = (int(k) for k in active.sizes)
        self.vectors = [x.copy() for x in (duals.beta, duals.v, duals.lower, duals.upper)]
        self.sets = [x.copy() for x in (active.where, active.place)]
        self.members = active.members[: self.m].copy()
        self.bounded = active.bounded[: self.e].copy()
        self.L, self.u = active.L[: self.m, : self.m].copy(), active.u[: self.m].copy()
        self.b = float(simple.course.floats[_active_jit.BIAS])

    def restore(self) -> None:
        duals, active = self.simple.course.duals, self.simple.active
        for target, kept in zip((duals.beta, duals.v, duals.lower, duals.upper), self.vectors, strict=True):
            target[:] = kept
        active.where[:], active.place[:] = self.sets
        active.sizes[:] = self.m, self.e
        active.members[: self.m] = self.members
        active.bounded[: self.e] = self.bounded
        active.L[: self.m, : self.m] = self.L
        active.u[: self.m] = self.u
        self.simple.course.floats[_active_jit.BIAS] = self.b


def _finish(simple: ActiveSet) -> Status | None:
    """Add what violates until nothing does; None where the active set got stuck, or crawls."""
    course = simple.course
    crawl = Crawl(course.duals.n, course.crawl.patience, course.crawl.cost)
    while True:
        limits = course.limits()
        reason = int(_active_jit.max_slice(course.duals, course.store.rows, simple.active, course.progress, limits))
        if reason == _steps_jit.NEED_ROOM:
            simple.grow()
        elif reason == _steps_jit.AT_TOLERANCE:
            return Status.CONVERGED
        elif reason == _steps_jit.NEED_ROW:
            course.common(reason)
        elif reason != _steps_jit.CHECK_DUE or crawl.seen(course.violation, course.n_iter):
            return None
        elif (status := course.outside()) is not None:
            return status


def _without(simple: ActiveSet, variables: IntArray) -> tuple[float, Status, bool]:
    """(bias, status, whether from scratch) of the machine without these variables; its residual is left in the course."""
    course, duals = simple.course, simple.course.duals
    status: Status | None = Status.CONVERGED
    for r in variables:
        if duals.beta[r] == 0.0:
            duals.lower[r] = duals.upper[r] = 0.0
        elif not simple.exit(int(r)):
            status = None
    if status is not None:
        status = _finish(simple)
    scratch = status is None
    if scratch:
        beta = duals.beta.copy()
        beta[variables] = 0.0
        duals.lower[variables] = duals.upper[variables] = 0.0
        duals.beta[:] = formulations.feasible_start(course.qp, beta)
        course.refresh()
        simple.load()
        for _ in range(4):
            status = _finish(simple)
            if status is None:
                status = simple.rescue()
            if status is not None:
                break
    return measures.bias(course.qp, landed(course.qp, duals.beta), duals.v), status or Status.LIMITED, scratch


@checked(svc_problem)
def leave_one_out(
    X: Any,
    y: Any,
    C: float = 1.0,
    *,
    epsilon: float | None = None,
    time_limit: float | None = None,
    callback: Callback | None = None,
    verbose: int = 0,
    cache_mb: float | None = None,
    n_threads: int | None = None,
    tol: float = _TOL,
    **problem: Any,
) -> LeaveOneOut:
    """Exact leave-one-out decision values and error at a given C, in far less than n fits.

    A point without weight in the machine of all points changes nothing by leaving. For each of the others the optimal
    solution is followed from the kept factor: its variable goes to zero, and what then violates is added.

    Parameters
    ----------
    X, y, C : the training problem; further keywords are those of `train_svc` that define it (kernel, gamma, degree,
        coef0, loss, fit_intercept, intercept_scaling, fixed_intercept, standardize, sample_weight, class_weight). With
        `epsilon`: regression.
        `standardize` works out mean and scale once, on all points, and ``class_weight="balanced"`` its factors.
    tol : KKT tolerance of each machine. time_limit, callback, verbose, cache_mb, n_threads : as in `train_svc`.

    Returns
    -------
    LeaveOneOut

    Examples
    --------
    >>> import svmcore
    >>> loo = svmcore.leave_one_out([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1], kernel="linear", C=10.0)
    >>> loo.error
    0.0
    """
    begun = time.perf_counter()
    if problem.get("loss") == formulations.PINBALL:
        raise InputError("loss='pinball' has no leave-one-out here; use loss='epsilon_insensitive', or refit")
    form = any_problem(X, y, C, epsilon, problem)
    run = Run(
        solver="simple", tol=border.number("tol", tol, low=0.0, strict=True), stopping="kkt", max_iter=-1,
        cache_bytes=border.cache_bytes(cache_mb), alpha0=None, trace=False, seed=0, options={},
        n_threads=border.threads(n_threads),
    )  # fmt: skip
    with new_control("leave one out", time_limit, callback, verbose) as control, one_blas_thread:
        part = PartControl(control)
        solution = fit(form, run, part)
        values, counts, status = _each(form, run, solution, part)
    reached = ~np.isnan(values)
    wrong, predictions = _judge(form, y, np.where(reached, values, _own_values(form, solution, reached)))
    if not status.ok:
        warn(
            f"leave_one_out: {status}. {np.count_nonzero(reached)} of {values.size} points were reached; the decision values "
            "of the others are NaN, and the error is without them.",
            ConvergenceWarning,
        )
    return LeaveOneOut(
        decision_values=values, predictions=predictions,
        error=float(np.mean(wrong[reached])) if reached.any() else float("nan"), solution=solution,
        converged=status.ok and solution.converged, n_exits=counts[0], n_refits=counts[1],
        n_kernel_evals=solution.n_kernel_evals + counts[2], fit_seconds=time.perf_counter() - begun,
    )  # fmt: skip


def _own_values(form: Problem, solution: Solution, reached: Any) -> FloatArray:
    """What the machine of all points says of those that were not reached."""
    values = np.zeros(reached.size)
    rest = np.flatnonzero(~reached)
    if rest.size and form.spec.kernel.kind != KernelKind.PRECOMPUTED:
        values[rest] = solution.decision_function(form.X[rest])
    elif rest.size:
        values[rest] = solution.decision_function(form.X[rest][:, solution.support])
    return values


def _judge(form: Problem, y: Any, values: FloatArray) -> tuple[FloatArray, NDArray[Any]]:
    if form.classes is None:
        return (values - np.asarray(y, dtype=np.float64).reshape(-1)) ** 2, values
    predictions = np.asarray(form.classes)[(values > 0).astype(int)]
    return np.asarray(predictions != border.label_array(y).reshape(-1), dtype=np.float64), predictions


def _biases(qp: DualQP, beta: FloatArray, v: FloatArray, control: PartControl) -> tuple[float, FloatArray]:
    """The bias, and what it is once the point of a variable at zero has left, by variable (NaN: stopped before).

    These differ only where no variable is free: then the points at zero help to bound the interval of optimal biases.
    """
    b = measures.bias(qp, beta, v)
    without = np.full(len(beta), b)
    if not qp.equality or ((beta > qp.lower) & (beta < qp.upper)).any():
        return b, without
    without[beta == 0.0] = np.nan
    for t in np.flatnonzero(beta == 0.0):
        if control.reason() is not None:
            break
        rest = qp.point != qp.point[t]
        without[t] = measures.bias(qp.part(rest), beta[rest], v[rest])
    return b, without


def _each(
    form: Problem, run: Run, solution: Solution, control: PartControl
) -> tuple[FloatArray, tuple[int, int, int], Status]:
    """Decision values at every point by the machine without it; (exits, refits, kernel values); the worst status.

    NaN where the control ended the work before.
    """
    qp, n = form.qp, form.X.shape[0]
    K = form.kernel_matrix(cache_bytes=run.cache_bytes, n_threads=run.n_threads)
    values = np.full(n, np.nan)
    if (stopped := control.reason()) is not None:  # even the machine of all points is not exact
        return values, (0, 0, 0), stopped
    simple = _active(form, formulations.to_beta(qp, _signed(solution)), K, run.tol, control)
    course, duals = simple.course, simple.course.duals
    worst = Status.CONVERGED
    if _finish(simple) is None:
        simple.rescue()
    if (stopped := control.reason()) is not None:
        return values, (0, 0, K.computed[0]), stopped
    snapshot = _Snapshot(simple)
    product = qp.c - qp.diag * duals.beta - duals.v  # K beta, by variable
    b, without = (part + form.fixed for part in _biases(course.qp, landed(course.qp, duals.beta), duals.v, control))
    owners: dict[int, list[int]] = {}
    for t in np.flatnonzero(duals.beta):
        owners.setdefault(int(qp.point[t]), []).append(int(t))
    values[qp.point] = product + without
    values[list(owners)] = np.nan
    unowned = np.setdiff1d(np.arange(n), qp.point)
    if len(unowned):  # points of weight zero have no variable, and are in no machine
        coef = formulations.to_coef(qp, duals.beta, n)
        support = np.flatnonzero(coef)
        values[unowned] = K.product(support, coef[support])[unowned] + b
    exits = refits = 0
    for owner, own in owners.items():
        control.done = exits / len(owners)
        if (stopped := control.whole.step(control.done)) is not None:
            return values, (exits, refits, K.computed[0]), stopped
        variables = np.flatnonzero(qp.point == owner) if len(own) > 1 or form.classes is None else np.array(own)
        bias, status, scratch = _without(simple, variables)
        if (stopped := control.reason()) is not None and not status.ok:  # cut short
            return values, (exits, refits, K.computed[0]), stopped
        values[owner] = qp.c[own[0]] - duals.v[own[0]] + form.fixed + bias
        worst = worst if status.ok else status
        exits += 1
        refits += scratch
        snapshot.restore()
    return values, (exits, refits, K.computed[0]), worst
