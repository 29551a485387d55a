"""The leave-one-out error, exactly: the machine of all points loses one point after another.

Each point leaves as in `incremental`, whose active set this is, and is put back from a copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svmcore._control import Callback, PartControl, new_control
from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._keywords import checked
from svmcore._types import DualQP, FloatArray, IntArray, Status
from svmcore.base.threads import one_blas_thread
from svmcore.models.incremental import active_set, finished, signed
from svmcore.models.solution import Solution
from svmcore.problem import border, formulations, labelling, measures
from svmcore.solvers import _active_jit
from svmcore.solvers._active import ActiveSet
from svmcore.solvers._contract import landed
from svmcore.train.forms import Problem, any_problem, svc_problem
from svmcore.train.solve import Run, fit

_TOL = 1e-9  # the tolerance of refits, for targets of size 1


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


def _snapshot(simple: ActiveSet) -> Callable[[], None]:
    """What brings the active set back to where it is now, for every point."""
    m, e = (int(k) for k in simple.active.sizes)
    every = slice(None)
    spans = {
        "sizes": every, "where": every, "place": every, "members": slice(m), "bounded": slice(e),
        "L": (slice(m), slice(m)), "u": slice(m),
    }  # fmt: skip
    active = {name: getattr(simple.active, name)[span].copy() for name, span in spans.items()}
    duals = {name: getattr(simple.course.duals, name).copy() for name in ("beta", "v", "lower", "upper")}
    bias = float(simple.course.floats[_active_jit.BIAS])

    def restore() -> None:
        for name, kept in duals.items():
            getattr(simple.course.duals, name)[:] = kept
        for name, kept in active.items():
            getattr(simple.active, name)[spans[name]] = kept
        simple.course.floats[_active_jit.BIAS] = bias

    return restore


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
        status = finished(simple)
    scratch = status is None
    if scratch:
        beta = duals.beta.copy()
        beta[variables] = 0.0
        duals.lower[variables] = duals.upper[variables] = 0.0
        duals.beta[:] = formulations.feasible_start(course.qp, beta)
        course.refresh()
        simple.load()
        for _ in range(4):
            status = finished(simple)
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
    told = values
    if not reached.all():  # what the machine of all points says of the others
        told = values.copy()
        told[~reached] = solution.decision_function(form.columns.raw(form.X[~reached]))
    if form.classes is None:
        wrong, predictions = (told - np.asarray(y, dtype=np.float64).reshape(-1)) ** 2, told
    else:
        predictions = np.asarray(form.classes)[(told > 0).astype(int)]
        wrong = np.asarray(predictions != labelling.label_array(y).reshape(-1), dtype=np.float64)
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
    simple = active_set(form, formulations.to_beta(qp, signed(solution)), K, run.tol, control)
    course, duals = simple.course, simple.course.duals
    worst = Status.CONVERGED
    if finished(simple) is None:
        simple.rescue()
    if (stopped := control.reason()) is not None:
        return values, (0, 0, K.computed[0]), stopped
    restore = _snapshot(simple)
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
        restore()
    return values, (exits, refits, K.computed[0]), worst
