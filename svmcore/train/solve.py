"""The driver: solver -> certify -> Solution. `forms` makes the problem, and `words` says what the answer lacks.

A solver's claim is not believed: the certificate is computed from the data, and where it misses the tolerance the solver
is started again from its own answer, as long as that helps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from svmcore import solvers
from svmcore._control import Control, new_control
from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._keywords import remembered
from svmcore._types import NONZERO, DualQP, FloatArray, IntArray, KernelKind, Raw, Status, every
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.table import facts_of, is_positive
from svmcore.models.solution import Solution
from svmcore.problem import border, formulations, measures
from svmcore.problem.advice import LARGE_GAP, MEANS_LITTLE
from svmcore.problem.certify import WORTH_IT, Certificate, Residual, certificate, confirm
from svmcore.problem.scales import warn_of_scales
from svmcore.solvers import small
from svmcore.solvers._contract import STOPPED, Outcome, SolverTask, product_work, rounding
from svmcore.train import auto
from svmcore.train.forms import Problem
from svmcore.train.words import speak

_ROUNDS = 3  # restarts of a solver whose answer the certificate refutes
_MONOMIALS = 4  # an interior point that has to make its features takes so many times as long
_BY_CHANCE = 1 / 16  # share of the typical rounding of a violation below which a tolerance is met by no point


class Run(NamedTuple):
    """How to solve it."""

    solver: str
    tol: float
    stopping: str
    max_iter: int
    cache_bytes: int
    n_threads: int
    alpha0: Any
    trace: bool
    seed: int
    options: dict[str, Any]
    grows: bool = False  # whole columns of K may take more than `cache_bytes` where memory is free


def control_of(time_limit: Any, callback: Any, verbose: Any) -> Control:
    """The control of one fit."""
    return new_control("fit", time_limit, callback, verbose)


def checked_run(
    solver: Any, tol: Any, stopping: Any, max_iter: Any, cache_mb: Any, n_threads: Any, alpha0: Any, trace: Any,
    random_state: Any, options: dict[str, Any],
) -> Run:  # fmt: skip
    """How to solve it, from words that are checked."""
    memory, threads = border.cache_bytes(cache_mb), border.threads(n_threads)  # which the machine has a say in
    words = (solver, tol, stopping, max_iter, trace, random_state, memory, threads, cache_mb is None)
    if options:
        return _run(tuple(options.items()), *words)._replace(alpha0=alpha0)
    run = remembered(_run, (), *words)
    return run if alpha0 is None else run._replace(alpha0=alpha0)


def _run(
    options: tuple[tuple[str, Any], ...], solver: Any, tol: Any, stopping: Any, max_iter: Any, trace: Any,
    random_state: Any, memory: int, threads: int, grows: bool,
) -> Run:  # fmt: skip
    if not isinstance(solver, str):
        raise InputError(f"solver={solver!r} is not a name; see svmcore.solvers()")
    given = dict(options)
    solvers.check_options(solver, given)
    return Run(
        solver=solver,
        tol=border.number("tol", tol, low=0.0, strict=True),
        stopping=border.choice("stopping", stopping, border.STOPPING),
        max_iter=border.integer("max_iter", max_iter, low=-1),
        cache_bytes=memory,
        n_threads=threads,
        alpha0=None,
        trace=border.flag("trace", trace),
        seed=0 if random_state is None else border.integer("random_state", random_state, low=0),
        options=given,
        grows=grows,
    )


def _refuse_what_it_cannot(name: str, problem: Problem, warm: bool) -> None:
    """Say in words what a solver does not do."""
    can = solvers.load(name).CAPABILITIES
    qp = problem.qp
    for needed, able, what in [
        (
            qp.equality,
            can.equality,
            "an intercept; use fit_intercept=False, or 'embedded' for a regularised one",
        ),
        (not qp.equality, can.no_equality, "problems without an intercept; use fit_intercept=True"),
        (
            qp.infinite,
            can.infinite_bounds,
            "unbounded dual variables (squared losses, C=inf); use the hinge and a finite C",
        ),
        (
            not qp.infinite,
            can.finite_bounds,
            "bounded dual variables (hinge, finite C); use loss='squared_hinge' or C=inf",
        ),
        (qp.twins, can.twins, "regression"),
        (qp.equality and qp.total != 0.0, can.totals, "dual variables whose sum must not be zero"),
        (warm, can.warm_start, "a start from alpha0; leave it out"),
        (problem.spec.function is not None, can.callable_kernel, "a Python kernel; use kernel='precomputed'"),
    ]:
        if needed and not able:
            raise InputError(f"solver {name!r} does not do {what}, or choose another solver")
    if can.factorises and problem.spec.kernel.kind != KernelKind.LINEAR:
        n = problem.X.shape[0]
        border.memory(32.0 * n**2, f"factors of a {n} x {n} kernel matrix", "choose another solver")


def _start(problem: Problem, alpha0: Any) -> FloatArray:
    """The starting point: zero, or the user's dual variables; made feasible."""
    qp = problem.qp
    if alpha0 is None:
        return formulations.from_zero(qp)
    coef = border.vector(alpha0, "alpha0", problem.X.shape[0])
    if problem.classes is not None:
        if (coef < 0).any():
            raise InputError(f"alpha0 contains {coef.min():g}; the dual variables of a classifier are at least 0")
        full = np.zeros(problem.X.shape[0])
        full[qp.point] = np.where(qp.upper > 0, 1.0, -1.0)
        coef = coef * full
    return formulations.feasible_start(qp, formulations.to_beta(qp, coef))


class Measured(NamedTuple):
    """What is known of an answer: its exact violation, and the rest now or when asked for."""

    violation: float
    intercept: float
    relative_gap: float  # to a few digits, when the certificate is postponed
    certificate: Callable[[], Certificate]
    postponed: bool
    estimated: bool = False  # violation and intercept are the solver's own: a run was stopped, and nobody is to wait


def _own_measures(qp: DualQP, K: KernelMatrix, raw: Raw) -> tuple[float, float]:
    """Violation and intercept by a solver's residual."""
    assert raw.residual is not None
    b = measures.bias(qp, raw.beta, raw.residual) if qp.equality else K.kernel.offset * float(raw.beta.sum())
    return measures.violation(qp, raw.beta, raw.residual), b


def measure(qp: DualQP, K: KernelMatrix, raw: Raw, run: Run, long: float = np.inf) -> Measured:
    """The exact violation of an answer, and all of its certificate unless the solver's residual allows to postpone it.

    Of a run that somebody stopped, and whose certificate would take `long` (operations) or more, as much is exact as the
    time allows.
    """
    work = product_work(K, int(np.count_nonzero(raw.beta)))
    stopped = raw.status in STOPPED and work > long
    known = None if raw.residual is None else Residual(qp, K, raw.beta, raw.residual, raw.residual_error)
    if known is not None and (stopped or (run.stopping == "kkt" and raw.status.ok)):
        most = min(WORTH_IT, long / work) if stopped else WORTH_IT
        confirmed = confirm(known, most)
        if confirmed is not None or stopped:
            violation, intercept = confirmed or _own_measures(qp, K, raw)
            b = intercept if qp.equality else 0.0
            relative, least, largest = known.relative_gap(b)
            if not stopped and least <= LARGE_GAP < largest:
                known.sharpen(b)
                relative, least, largest = known.relative_gap(b)
            if stopped or not least <= LARGE_GAP < largest:
                return Measured(
                    violation, intercept, relative, lambda: certificate(qp, K, raw.beta, known=known),
                    postponed=True, estimated=confirmed is None,
                )  # fmt: skip
    full = certificate(qp, K, raw.beta, best=run.stopping == "gap", known=known)
    return Measured(full.kkt_violation, full.intercept, full.relative_gap, lambda: full, postponed=False)


class Reached(NamedTuple):
    """A point that a solver has come to, and what it is worth."""

    name: str
    raw: Raw
    measured: Measured

    @property
    def finite(self) -> bool:
        """Whether the point means anything."""
        return math.isfinite(self.measured.relative_gap + self.measured.violation + self.measured.intercept)

    @property
    def loss(self) -> tuple[bool, float, float]:
        """Less is better: first of all a finite certificate, then a small gap, then a small violation."""
        return not self.finite, abs(self.measured.relative_gap), self.measured.violation


def _attempt(
    name: str, qp: DualQP, K: KernelMatrix, run: Run, start: FloatArray, control: Control
) -> tuple[Reached, Status]:
    """Run one solver, certify, and start it again where the certificate disagrees: the best point, and how it ended."""
    solver = solvers.load(name)
    warm = solver.CAPABILITIES.warm_start
    rounds = _ROUNDS if warm else 2
    spent, tol = 0, run.tol
    best: Reached | None = None
    for attempt in range(rounds):
        most = run.max_iter if run.max_iter < 0 else max(run.max_iter - spent, 0)
        task = SolverTask(qp, K, control, tol, start, run.stopping, most, run.seed, run.trace)
        raw = solver.run(task, **solvers.accepted(name, run.options))
        spent += raw.n_iter
        # A solver that stopped by its objective may have seen that of another point.
        unproved = run.stopping == "objective" and not formulations.nearly_feasible(qp, raw.beta)
        raw = _believable(qp, K, feasible(qp, raw))._replace(n_iter=spent)
        solved = K.n_evals
        measured = measure(qp, K, raw, run, control.LONG)
        K.n_evals, K.certificate_evals = solved, K.certificate_evals + K.n_evals - solved
        here = Reached(name, raw, measured)
        if raw.status.ok and here.finite and not unproved and at_tolerance(measured, run):
            return here, raw.status
        halved = best is None or measured.violation < 0.5 * best.measured.violation
        best = here if best is None else min(best, here, key=lambda point: point.loss)
        if not raw.status.ok:
            return best._replace(raw=best.raw._replace(n_iter=spent)), raw.status
        if not halved or attempt == rounds - 1:
            break
        start = raw.beta
        if not warm:  # the same run again would end at the same point
            tol *= 0.5
    assert best is not None
    return best._replace(raw=best.raw._replace(n_iter=spent)), Status.PRECISION


def feasible(qp: DualQP, raw: Raw) -> Raw:
    """The answer on the equality row, from which a solver's own sums may have drifted; its residual is not its own then."""
    if not math.isfinite(raw.beta.sum()) and not np.isfinite(raw.beta).all():
        status = Status.PRECISION if raw.status.ok else raw.status
        return raw._replace(beta=np.zeros_like(raw.beta), residual=None, status=status)
    beta = formulations.balanced(qp, raw.beta)
    return raw if beta is raw.beta else raw._replace(beta=beta, residual=None)


def _believable(qp: DualQP, K: KernelMatrix, raw: Raw) -> Raw:
    """A convex problem whose boxes are closed has a solution: a solver that finds none has met rounding."""
    if raw.status is not Status.UNBOUNDED:
        return raw
    convex = is_positive(K.kernel) or not qp.infinite
    return raw._replace(status=Status.PRECISION) if convex and not qp.open_box else raw


def certificate_of(found: Outcome) -> Certificate:
    """The certificate of a point that was found and measured in one call."""
    primal = found.gap - found.objective
    relative = found.gap / max(abs(primal), NONZERO)
    return Certificate(found.objective, primal, found.gap, relative, found.violation, abs(found.excess), found.bias)


def reached_at_once(found: Outcome) -> Reached:
    """A point that was found and measured in one call."""
    full = certificate_of(found)
    stats = {"n_outer": found.n_rounds, "precision": "mixed", "exact": True}
    raw = Raw(found.beta, found.status, found.n_iter, None, stats)
    return Reached("small", raw, Measured(full.kkt_violation, full.intercept, full.relative_gap, lambda: full, False))


def _at_once(
    qp: DualQP, K: KernelMatrix, run: Run, start: FloatArray, control: Control, *, warm: bool
) -> Outcome | None:
    """What `small` finds, if "auto" is to choose, nobody looks on, and it takes no more than steps."""
    if run.solver != solvers.AUTO or run.stopping != "kkt" or run.trace or control.callback is not None:
        return None
    shares_tiles = K.shared and K.kernel.kind != KernelKind.PRECOMPUTED
    if shares_tiles or not auto.is_small(qp, K) or control.reason() is not None:
        return None
    matters = run.options or auto.may_be_exact(qp, K)
    after = auto.choose(qp, K, warm=warm)[0] if matters else ""
    if run.options and solvers.accepted(after, run.options):
        return None  # the next solver has an option of this name
    times = 1 if K.kernel.kind == KernelKind.LINEAR else _MONOMIALS
    most = auto.hasty(run.max_iter, times) if after in ("interior", "newton") else run.max_iter
    found = small.at_once(qp, K, start, run.tol, most)
    if found is None:
        return None
    if run.max_iter < 0 and not found.quiet(LARGE_GAP):
        return None
    K.n_evals += found.n_evals
    K.certificate_evals += found.certificate_evals
    beta = formulations.netted(qp, found.beta)
    return found if beta is found.beta else _measured_anew(qp, K, found, beta, run)


def _measured_anew(qp: DualQP, K: KernelMatrix, found: Outcome, beta: FloatArray, run: Run) -> Outcome | None:
    """A point next to one that was found, if it is as good."""
    full = certificate(qp, K, beta)
    if not full.kkt_violation <= max(run.tol, found.violation):
        return None
    return found._replace(
        beta=beta, violation=full.kkt_violation, bias=full.intercept, objective=full.objective, gap=full.gap,
        excess=qp.excess(beta),
    )  # fmt: skip


def _counts(qp: DualQP, K: KernelMatrix, run: Run, start: FloatArray) -> bool:
    """Whether the choice of a solver depends on a start."""
    return run.solver != solvers.AUTO or auto.counts(qp, K, start, run.tol)


def _chain(
    qp: DualQP, K: KernelMatrix, run: Run, start: FloatArray, control: Control, *, warm: bool
) -> tuple[Reached, float]:
    """Run the solver, or those that "auto" chooses until one succeeds, each from the best point so far.

    That point, and what rounding does to violations at the best point that a solver has reached.
    """
    warm = warm and _counts(qp, K, run, start)
    found = _at_once(qp, K, run, start, control, warm=warm)
    if found is not None:
        return reached_at_once(found), 0.0 if found.status.ok else rounding(qp, K, found.beta)
    with one_blas_thread:
        return _one_by_one(qp, K, run, start, control, warm=warm)


def _one_by_one(
    qp: DualQP, K: KernelMatrix, run: Run, start: FloatArray, control: Control, *, warm: bool
) -> tuple[Reached, float]:
    """`_chain` where there is more to do than can be done at once."""
    best: Reached | None = None
    chain = auto.choose(qp, K, warm=warm) if run.solver == solvers.AUTO else (run.solver,)
    spent, ends = 0, set()
    for name in chain:
        here, status = _attempt(name, qp, K, run, start if best is None else best.raw.beta, control)
        spent += here.raw.n_iter
        if best is None or status.ok or status is Status.UNBOUNDED or here.loss < best.loss:
            best = here
        ends.add(status)
        noise = rounding(qp, K, best.raw.beta)
        if status not in (Status.LIMITED, Status.PRECISION):
            break
        if run.stopping == "kkt" and best.measured.violation <= noise and run.tol < _BY_CHANCE * noise:
            ends.add(Status.PRECISION)
            break
    assert best is not None
    if status in (Status.LIMITED, Status.PRECISION):
        status = Status.PRECISION if Status.PRECISION in ends else status
        idle = Raw(start, status, 0)
        best = min(best, Reached(name, idle, measure(qp, K, idle, run)), key=lambda point: point.loss)
    return best._replace(raw=best.raw._replace(n_iter=spent, status=status)), noise


def fit(problem: Problem, run: Run, control: Control, training: Any = None, K: KernelMatrix | None = None) -> Solution:
    """Run the solver, or the chosen ones until one succeeds, certify, and speak. `K`: the kernel matrix, if it is there."""
    if run.solver != solvers.AUTO:
        _refuse_what_it_cannot(run.solver, problem, run.alpha0 is not None)
        solvers.check_lengths(run.solver, run.options, problem.X.shape[0])
    qp = problem.qp
    start = _start(problem, run.alpha0)
    tame = facts_of(problem.spec.kernel).exponential  # values without overflow
    with control:  # to the end: a late Ctrl-C does not lose the answer
        with nullcontext() if tame else _silence():
            if K is None:
                K = problem.kernel_matrix(cache_bytes=run.cache_bytes, n_threads=run.n_threads)
            else:
                K.n_evals = K.certificate_evals = 0
            warm = run.alpha0 is not None and _counts(qp, K, run, start)
            found = _at_once(qp, K, run, start, control, warm=warm)
        if found is not None and found.status.ok:
            return _straight(problem, K, found, run, control.seconds, training)
        if found is not None:
            with _silence():
                (name, raw, measured), noise = reached_at_once(found), rounding(qp, K, found.beta)
        else:
            if run.grows and 4.0 * K.n**2 > run.cache_bytes:
                K.column_bytes = max(run.cache_bytes, int(border.spare_bytes()))
            with one_blas_thread, _silence():
                (name, raw, measured), noise = _one_by_one(qp, K, run, start, control, warm=warm)
        solution = solution_of(problem, K, raw, measured, run, control.seconds, training, name)
        speak(solution, measured, problem, run, noise if raw.status is Status.PRECISION else 0.0)
    return solution


def _silence() -> Any:
    """No word of overflow: an unbounded run may overflow, and its status says so."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


def _straight(problem: Problem, K: KernelMatrix, found: Outcome, run: Run, seconds: float, training: Any) -> Solution:
    """The answer that one call has found and measured, and what there is to say of it."""
    full, spec = certificate_of(found), problem.spec
    alone = problem.qp.point is every(K.n)
    coef = found.beta if alone else formulations.to_coef(problem.qp, found.beta, K.n)
    (support,) = coef.nonzero()
    if problem.centre is not None or problem.fixed:
        full = full._replace(intercept=full.intercept + problem.shift(K, found.beta))
    n_evals, certificate_evals = K.computed
    if abs(full.relative_gap) > LARGE_GAP:
        warn(MEANS_LITTLE, ConvergenceWarning)
    names, look = problem.columns.names, problem.look
    warn_of_scales(problem.X, spec.kernel, problem.by_scale, names=names, look=look)
    return Solution(
        n_points=K.n, intercept=full.intercept, support=support, dual_coef=coef[support], kkt_violation=found.violation,
        measured=full, status=Status.CONVERGED, converged=True, n_iter=found.n_iter, n_kernel_evals=n_evals,
        fit_seconds=seconds, solver="small", classes=problem.classes, kernel=spec.kernel,
        support_vectors=_vectors(problem, training, support), columns=problem.columns, terms=problem.terms,
        function=spec.function, n_threads=run.n_threads,
        stats={
            "n_outer": found.n_rounds, "precision": "mixed", "exact": True, "certificate_evals": certificate_evals,
        },
        training=training,
    )  # fmt: skip


def at_tolerance(measured: Measured, run: Run) -> bool:
    """Whether the certificate confirms the chosen criterion ("objective" has nothing that could be confirmed)."""
    if run.stopping == "gap":
        full = measured.certificate()
        return full.gap <= run.tol * (abs(full.primal_objective) + 1.0)
    return run.stopping == "objective" or measured.violation <= run.tol


def solution_of(
    problem: Problem,
    K: KernelMatrix,
    raw: Raw,
    measured: Measured,
    run: Run,
    seconds: float,
    training: Any,
    solver: str,
) -> Solution:
    """Assemble the answer."""
    coef = formulations.to_coef(problem.qp, raw.beta, problem.X.shape[0])
    (support,) = coef.nonzero()
    intercept = measured.intercept + problem.shift(K, raw.beta)
    n_evals, certificate_evals = K.computed

    def certified() -> Certificate:
        full = measured.certificate()
        return full if intercept == full.intercept else full._replace(intercept=intercept)

    return Solution(
        n_points=len(coef),
        intercept=intercept,
        support=support,
        dual_coef=coef[support],
        kkt_violation=measured.violation,
        measured=certified if measured.postponed else certified(),
        status=raw.status,
        converged=raw.status.ok,
        n_iter=raw.n_iter,
        n_kernel_evals=n_evals,
        fit_seconds=seconds,
        solver=solver,
        classes=problem.classes,
        kernel=problem.spec.kernel,
        support_vectors=_vectors(problem, training, support),
        columns=problem.columns,
        terms=problem.terms,
        function=problem.spec.function,
        n_threads=run.n_threads,
        trace=raw.trace,
        stats={
            **raw.stats,
            "certificate_evals": certificate_evals,
            **({"estimated": True} if measured.estimated else {}),
        },
        training=training,
    )


def _vectors(problem: Problem, training: Any, support: IntArray) -> Any:
    """The support vectors: when somebody asks for them, where the points are kept in memory that nobody else writes to."""
    if problem.spec.kernel.kind == KernelKind.PRECOMPUTED:
        return np.empty((0, 0))
    if training is None:
        return problem.X[support]
    X = training.X
    return lambda: X[support]
