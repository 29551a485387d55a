"""Exact changes of a trained machine: points added, and points removed.

All of it works on SimpleSVM's active set. A point leaves by taking its variable to zero while the free variables
compensate, member by member of the factor; a point enters as a variable at zero. What then violates the optimality
conditions is added and pruned as in training. The kernel stays what it was (gamma="scale" is not worked out again), and so do
class weights in `leave_one_out`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._errors import InputError
from svmcore._types import DualQP, FloatArray, IntArray, KernelKind, Raw, Status
from svmcore.base.door import reals
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import stacked
from svmcore.models.solution import Solution, to_format_of
from svmcore.problem import border, formulations, labelling
from svmcore.solvers import _active_jit, _steps_jit
from svmcore.solvers._active import ActiveSet
from svmcore.solvers._contract import Crawl, SolverTask, landed
from svmcore.solvers._course import Course
from svmcore.train.forms import Problem, Training, one_class_problem, svc_problem, svr_problem
from svmcore.train.solve import Reached, Run, at_tolerance, control_of, feasible, fit, measure, solution_of
from svmcore.train.words import speak

_FRESH_EVERY = 16  # changes of a machine between two residuals from the data


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


def signed(solution: Solution) -> FloatArray:
    """Its coefficients, one a point."""
    coef = np.zeros(solution.n_points)
    coef[solution.support] = solution.dual_coef
    return coef


def _exact_run(tol: float, n_threads: int) -> Run:
    return Run(
        solver="simple", tol=tol, stopping="kkt", max_iter=-1, cache_bytes=border.cache_bytes(None),
        n_threads=n_threads, alpha0=None, trace=False, seed=0, options={},
    )  # fmt: skip


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
    labels = labelling.label_array(y).reshape(-1)
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
        X=stacked([training.X, to_format_of(X, training.X)]),
        y=np.concatenate([labelling.label_array(training.y).reshape(-1), labels]),
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
    qp: DualQP, K: KernelMatrix, start: FloatArray, tol: float, control: Control, residual: FloatArray | None = None
) -> Course:
    """A course with boxes of its own: they are closed on variables that leave."""
    own = qp._replace(lower=qp.lower.copy(), upper=qp.upper.copy())
    return Course(SolverTask(own, K, control, tol, start), residual)


def active_set(problem: Problem, start: FloatArray, K: KernelMatrix, tol: float, control: Control) -> ActiveSet:
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
        y=labelling.label_array(training.y).reshape(-1)[keep],
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
            if old is None:
                own = _training(solution)
                problem = _problem(own)
                start, K = formulations.to_beta(problem.qp, signed(solution)), _kernel(problem, solution.n_threads)
                control = Control(time_limit=None, callback=None, verbose=0)
                old = _Kept(problem, active_set(problem, start, K, own.tol, control))
            moved = _move(old, training, keep, solution)
    if moved is None:
        problem, coef = _problem(training), np.zeros(training.X.shape[0])
        coef[: len(keep)] = signed(solution)[keep]
        run = _exact_run(training.tol, solution.n_threads)._replace(
            alpha0=coef if problem.classes is None else np.abs(coef), options={"scan": "max"} if coef.any() else {}
        )
        return fit(problem, run, control_of(None, None, 0), training._replace(kept=None))
    return moved


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
        if finished(simple) is not Status.CONVERGED:
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
    answer = solution_of(problem, K, raw, measured, run, control.seconds, training, run.solver)
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


def finished(simple: ActiveSet) -> Status | None:
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
