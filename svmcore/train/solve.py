"""The driver: check -> form -> solver -> certify -> Solution. The room that turns a status into words.

A solver's claim is not believed: the certificate is computed from the data, and where it misses the tolerance the solver
is started again from its own answer, as long as that helps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore import solvers
from svmcore._control import Control, new_control
from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._types import NONZERO, DualQP, FloatArray, IntArray, KernelKind, Raw, Status
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import is_sparse
from svmcore.kernel.table import is_positive
from svmcore.models.solution import ONE_CLASS, Later, Solution, Terms
from svmcore.problem import border, formulations, measures
from svmcore.problem import columns as _columns
from svmcore.problem.advice import LARGE_GAP, MEANS_LITTLE
from svmcore.problem.border import KernelSpec
from svmcore.problem.certify import WORTH_IT, Certificate, Residual, certificate, confirm
from svmcore.problem.columns import Columns
from svmcore.problem.intercept import settled, wanted
from svmcore.problem.scales import warn_of_scales
from svmcore.solvers import small
from svmcore.solvers._contract import STOPPED, Outcome, SolverTask, product_work, rounding
from svmcore.train import auto

_ROUNDS = 3  # restarts of a solver whose answer the certificate refutes
_BY_CHANCE = 1 / 16  # share of the typical rounding of a violation below which a tolerance is met by no point
_FAR_APART = 1e-2  # squared distance of two points, as a share of the squared norm, that rules this out:
_OFF_CENTRE = 1e-3  # share of the squared norms that is left when the points are moved to their mean


class Problem(NamedTuple):
    """A checked problem: the dual, its kernel, the data behind it, scaled, and the two classes of a classifier.

    `centre` is what `points` have been moved by, where that changes nothing but the rounding; `by_scale`: gamma="scale";
    `fixed` is an intercept that is given and not found, which the dual holds as a shift of its targets.
    """

    qp: DualQP
    spec: KernelSpec
    X: Any
    classes: NDArray[Any] | None
    columns: Columns
    terms: Terms
    centre: FloatArray | None = None
    by_scale: bool = False
    fixed: float = 0.0

    @property
    def points(self) -> Any:
        """The points as solvers and certificates see them."""
        return self.X if self.centre is None else self.X - self.centre

    def kernel_matrix(self, *, cache_bytes: int, n_threads: int) -> KernelMatrix:
        """The kernel matrix over the points."""
        spec = self.spec
        return KernelMatrix(self.points, spec.kernel, spec.function, cache_bytes=cache_bytes, n_threads=n_threads)

    def shift(self, K: KernelMatrix, beta: FloatArray) -> float:
        """What the dual's intercept lacks: the fixed one, or what the centre of the points adds to give that of X."""
        if self.centre is None:
            return self.fixed
        return float(-formulations.to_coef(self.qp, beta, K.n) @ (K.X @ self.centre))


class Training(NamedTuple):
    """What a machine was trained on, for `Solution.add` and `Solution.remove`; `form` are keywords of the problem.

    X is scaled already, by `columns`. `kept` is theirs: a holder of the active set behind the answer.
    """

    X: Any
    y: Any
    form: dict[str, Any]
    tol: float
    columns: Columns
    kept: Any = None


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


def _worked_out(problem: Problem, form: dict[str, Any]) -> dict[str, Any]:
    """The words of a problem that depend on its points, as later changes of the machine keep them."""
    kernel = problem.spec.kernel
    return {"gamma": kernel.gamma} | settled(form, kernel)


def checked_points(X: Any, kernel: Any) -> Any:
    """Features, or a given kernel matrix, checked."""
    if isinstance(kernel, str) and kernel == "precomputed":
        return border.gram(X)
    try:
        X = border.features(X)
    except InputError as error:
        if not callable(kernel):
            raise
        raise InputError(f"{error}; machines like svmcore.SVC take any objects with a kernel function") from None
    if not is_sparse(X):
        border.memory(8.0 * X.size, f"packing {X.shape[0]} x {X.shape[1]} features", "train on fewer rows or features")
    return X


def centre_of(X: Any, spec: KernelSpec, qp: DualQP) -> FloatArray | None:
    """The mean of the points, where it is all they have in common with large numbers (time stamps, say).

    With the linear kernel and an intercept a translation changes nothing: its terms cancel, and so do the digits.
    """
    if spec.kernel.kind != KernelKind.LINEAR or not qp.centred or is_sparse(X):
        return None
    step = X[0] - X[-1]
    if float(step @ step) > _FAR_APART * float(X[0] @ X[0]):
        return None  # most data ends here
    mean = np.asarray(X.mean(axis=0), dtype=np.float64)
    energy = float(np.vdot(X, X))
    return mean if energy - X.shape[0] * float(mean @ mean) < _OFF_CENTRE * energy else None


def _by_scale(gamma: Any) -> bool:
    return isinstance(gamma, str) and gamma == "scale"


def svc_problem(
    X: Any, y: Any, C: Any, *, kernel: Any = "rbf", gamma: Any = "scale", degree: Any = 3, coef0: Any = 0.0,
    loss: Any = "hinge", fit_intercept: Any = True, intercept_scaling: Any = None, fixed_intercept: Any = None,
    sample_weight: Any = None, class_weight: Any = None, standardize: Any = False, feature_names: Any = None,
    like: Problem | None = None,
) -> Problem:  # fmt: skip
    """Check a classification problem and form its dual. The points and the kernel may be those of another one, `like`."""
    C = border.cost(C)
    loss = border.choice("loss", loss, formulations.SVC_LOSSES)
    bias = wanted(fit_intercept, intercept_scaling, fixed_intercept)
    X, columns, spec, weights = _points_of(
        X, (kernel, gamma, degree, coef0), bias, sample_weight, standardize, feature_names, like
    )
    signs, classes = border.labels(y, X.shape[0], None if weights is None else weights > 0)
    share = None if class_weight is None else border.class_weights(class_weight, classes, signs, weights)
    costs = _costs(C, X.shape[0], share, weights)
    if share is not None or weights is not None:
        demand_costs(costs, signs > 0.0, signs < 0.0)
    qp = formulations.with_intercept(formulations.svc(signs, costs, loss, bias.found), bias.fixed)
    terms = Terms(C, loss, fixed_intercept=bias.fixed or None)
    if class_weight is not None:
        codes = (signs > 0).astype(np.int64)
        terms = terms._replace(factors=tuple(border.class_factors(class_weight, classes, codes, weights).tolist()))
    centre = centre_of(X, spec, qp) if like is None else like.centre
    return Problem(qp, spec, X, classes, columns, terms, centre, _by_scale(gamma), bias.fixed)


def _points_of(
    X: Any, kernel: tuple[Any, ...], bias: Any, sample_weight: Any, standardize: Any, feature_names: Any,
    like: Problem | None,
) -> tuple[Any, Columns, KernelSpec, FloatArray | None]:  # fmt: skip
    """The checked points, how they are scaled, the kernel, and the weights."""
    if like is not None:
        return like.X, like.columns, like.spec, border.sample_weights(sample_weight, like.X.shape[0])
    name, gamma, degree, coef0 = kernel
    names = _columns.names_of(X, feature_names)
    X = checked_points(X, name)
    weights = border.sample_weights(sample_weight, X.shape[0])
    columns, X = _columns.fitted(X, weights, standardize, names, name)
    return X, columns, bias.embedded(border.kernel(name, X, gamma, degree, coef0, 0.0, weights), X, weights), weights


def svr_problem(
    X: Any, y: Any, C: Any, epsilon: Any, *, kernel: Any = "rbf", gamma: Any = "scale", degree: Any = 3,
    coef0: Any = 0.0, loss: Any = "epsilon_insensitive", tau: Any = 0.5, fit_intercept: Any = True,
    intercept_scaling: Any = None, fixed_intercept: Any = None, sample_weight: Any = None, standardize: Any = False,
    feature_names: Any = None, like: Problem | None = None,
) -> Problem:  # fmt: skip
    """Check a regression problem and form its dual; `like` as in `svc_problem`."""
    C = border.cost(C)
    epsilon = border.number("epsilon", epsilon, low=0.0)
    loss = border.choice("loss", loss, formulations.SVR_LOSSES)
    tau = _tau(tau, loss, C)
    bias = wanted(fit_intercept, intercept_scaling, fixed_intercept)
    X, columns, spec, weights = _points_of(
        X, (kernel, gamma, degree, coef0), bias, sample_weight, standardize, feature_names, like
    )
    targets = border.vector(y, "y", X.shape[0])
    costs = _costs(C, X.shape[0], weights)
    demand_costs(costs, slice(None))
    if loss == formulations.PINBALL:
        qp, terms = formulations.quantile(targets, costs, tau, bias.found), Terms(C, loss, tau=tau)
    else:
        qp, terms = formulations.svr(targets, costs, epsilon, loss, bias.found), Terms(C, loss, epsilon)
    qp, terms = formulations.with_intercept(qp, bias.fixed), terms._replace(fixed_intercept=bias.fixed or None)
    centre = centre_of(X, spec, qp) if like is None else like.centre
    return Problem(qp, spec, X, None, columns, terms, centre, _by_scale(gamma), bias.fixed)


def _costs(C: float, n: int, *factors: FloatArray | None) -> FloatArray:
    """What each point costs: C times the factors that there are. A point without weight costs nothing, whatever C is."""
    given = [factor for factor in factors if factor is not None]
    if not given:
        return np.full(n, C)
    share = math.prod(given, start=1.0)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(share > 0, C * share, 0.0)


def demand_costs(costs: FloatArray, *sides: Any) -> None:
    """Refuse costs that vanish for all points, or for all points of a class."""
    if len(costs) and costs.min() > formulations.NEGLIGIBLE:
        return
    for side in sides:
        largest = float(np.max(costs[side], initial=0.0))
        if not largest > formulations.NEGLIGIBLE:
            raise InputError(
                f"C times the weights is at most {largest:g} for all samples{' of a class' if len(sides) > 1 else ''}, "
                "which counts as zero; give a larger C or larger weights"
            )


def _tau(tau: Any, loss: str, C: float) -> float:
    """A quantile, where the loss has one."""
    tau = float(border.number("tau", tau, low=0.0, high=1.0))
    if loss != formulations.PINBALL:
        if tau != 0.5:
            raise InputError(f"tau={tau:g} belongs to loss='pinball'; add it, or leave tau out")
    elif not 0.0 < tau < 1.0:
        raise InputError(f"tau={tau:g} is out of range; it must be between 0 and 1, both excluded")
    elif math.isinf(C):
        raise InputError("C=inf with loss='pinball' asks for a function through all targets; give a finite C")
    return float(tau)


def one_class_problem(
    X: Any, nu: Any = 0.5, *, kernel: Any = "rbf", gamma: Any = "scale", degree: Any = 3, coef0: Any = 0.0,
    sample_weight: Any = None, standardize: Any = False, feature_names: Any = None,
) -> Problem:  # fmt: skip
    """Check a problem of one class and form its dual."""
    nu = border.share("nu", nu)
    names = _columns.names_of(X, feature_names)
    X = checked_points(X, kernel)
    weights = border.sample_weights(sample_weight, X.shape[0])
    columns, X = _columns.fitted(X, weights, standardize, names, kernel)
    spec = border.kernel(kernel, X, gamma, degree, coef0, 0.0, weights)
    qp = formulations.one_class(np.ones(X.shape[0]) if weights is None else weights, nu)
    classes, terms = np.array([-1, 1]), Terms(None, ONE_CLASS, nu=nu)
    return Problem(qp, spec, X, classes, columns, terms, None, _by_scale(gamma))


def any_problem(X: Any, y: Any, C: Any, epsilon: Any, problem: dict[str, Any]) -> Problem:
    """A classification problem, or with `epsilon` or a loss of regression such a problem, from further keywords."""
    if epsilon is None and problem.get("loss") == formulations.PINBALL:
        epsilon = 0.0
    if epsilon is None:
        return svc_problem(X, y, C, **problem)
    if problem.pop("class_weight", None) is not None:
        raise InputError(
            "class_weight belongs to classification; with epsilon, which asks for regression, use sample_weight"
        )
    return svr_problem(X, y, C, epsilon, **problem)


def control_of(time_limit: Any, callback: Any, verbose: Any) -> Control:
    """The control of one fit."""
    return new_control("fit", time_limit, callback, verbose)


def _check_run(
    solver: Any, tol: Any, stopping: Any, max_iter: Any, cache_mb: Any, n_threads: Any, alpha0: Any, trace: Any,
    random_state: Any, options: dict[str, Any],
) -> Run:  # fmt: skip
    if not isinstance(solver, str):
        raise InputError(f"solver={solver!r} is not a name; see svmcore.solvers()")
    solvers.check_options(solver, options)
    return Run(
        solver=solver,
        tol=border.number("tol", tol, low=0.0, strict=True),
        stopping=border.choice("stopping", stopping, border.STOPPING),
        max_iter=border.integer("max_iter", max_iter, low=-1),
        cache_bytes=border.cache_bytes(cache_mb),
        n_threads=border.threads(n_threads),
        alpha0=alpha0,
        trace=border.flag("trace", trace),
        seed=0 if random_state is None else border.integer("random_state", random_state, low=0),
        options=options,
        grows=cache_mb is None,
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
        zero = np.zeros(len(qp.c))  # every box holds it
        return formulations.filled(qp, zero) if qp.total else zero
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
    raw = Raw(found.beta, Status.CONVERGED, found.n_iter, None, stats)
    return Reached("small", raw, Measured(full.kkt_violation, full.intercept, full.relative_gap, lambda: full, False))


def _at_once(qp: DualQP, K: KernelMatrix, run: Run, start: FloatArray, control: Control) -> Reached | None:
    """What `small` finds, if "auto" is to choose, nobody looks on, and it takes no more than steps."""
    shares_tiles = K.shared and K.kernel.kind != KernelKind.PRECOMPUTED
    alone = run.solver == solvers.AUTO and control.callback is None and not shares_tiles
    plain = run.stopping == "kkt" and not run.trace
    if not (alone and plain and auto.is_small(qp, K)) or control.reason() is not None:
        return None
    if run.options and solvers.accepted(auto.choose(qp, K, warm=run.alpha0 is not None)[0], run.options):
        return None  # the next solver has an option of this name
    found = small.at_once(qp, K, start, run.tol, run.max_iter)
    if found is None or formulations.netted(qp, found.beta) is not found.beta:
        return None
    reached = reached_at_once(found)
    if run.max_iter < 0 and not abs(reached.measured.relative_gap) <= LARGE_GAP:
        return None
    K.n_evals += found.n_evals
    K.certificate_evals += found.certificate_evals
    return reached


def _chain(
    qp: DualQP, K: KernelMatrix, run: Run, start: FloatArray, control: Control, *, warm: bool
) -> tuple[Reached, float]:
    """Run the solver, or those that "auto" chooses until one succeeds, each from the best point so far.

    That point, and what rounding does to violations at the best point that a solver has reached.
    """
    best = _at_once(qp, K, run, start, control)
    if best is not None:
        return best, 0.0
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
    with control:  # to the end: a late Ctrl-C does not lose the answer
        with one_blas_thread, np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            # An unbounded run may overflow. Its status says so.
            if K is None:
                K = problem.kernel_matrix(cache_bytes=run.cache_bytes, n_threads=run.n_threads)
            else:
                K.n_evals = K.certificate_evals = 0
            if run.grows and 4.0 * K.n**2 > run.cache_bytes:
                K.column_bytes = max(run.cache_bytes, int(border.spare_bytes()))
            (name, raw, measured), noise = _chain(qp, K, run, start, control, warm=run.alpha0 is not None)
        solution = solution_of(problem, K, raw, measured, run._replace(solver=name), control.seconds, training)
        speak(solution, measured, problem, run, noise if raw.status is Status.PRECISION else 0.0)
    return solution


def at_tolerance(measured: Measured, run: Run) -> bool:
    """Whether the certificate confirms the chosen criterion ("objective" has nothing that could be confirmed)."""
    if run.stopping == "gap":
        full = measured.certificate()
        return full.gap <= run.tol * (abs(full.primal_objective) + 1.0)
    return run.stopping == "objective" or measured.violation <= run.tol


def solution_of(
    problem: Problem, K: KernelMatrix, raw: Raw, measured: Measured, run: Run, seconds: float, training: Any
) -> Solution:
    """Assemble the answer."""
    coef = formulations.to_coef(problem.qp, raw.beta, problem.X.shape[0])
    support = np.flatnonzero(coef)
    precomputed = problem.spec.kernel.kind == KernelKind.PRECOMPUTED
    intercept = measured.intercept + problem.shift(K, raw.beta)

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
        n_kernel_evals=K.computed[0],
        fit_seconds=seconds,
        solver=run.solver,
        classes=problem.classes,
        kernel=problem.spec.kernel,
        support_vectors=np.empty((0, 0)) if precomputed else _vectors(problem, training, support),
        columns=problem.columns,
        terms=problem.terms,
        function=problem.spec.function,
        n_threads=run.n_threads,
        trace=raw.trace,
        stats=raw.stats | {"certificate_evals": K.computed[1]} | ({"estimated": True} if measured.estimated else {}),
        training=training,
    )


def _vectors(problem: Problem, training: Any, support: IntArray) -> Any:
    """The support vectors: when somebody asks for them, where the points are kept in memory that nobody else writes to."""
    if training is None:
        return problem.X[support]
    X = training.X
    return Later(lambda: X[support])


_REMEDIES = {
    Status.MAX_ITER: "raise max_iter (-1: no limit) or tol",
    Status.TIME_LIMIT: "raise time_limit or tol",
    Status.INTERRUPTED: "pass alpha0=solution.alpha to go on from it",
    Status.CALLBACK: "pass alpha0=solution.alpha to go on from it",
    Status.PRECISION: "raise tol, scale the features, or lower C",
    Status.UNBOUNDED: "use a finite C, or loss='squared_hinge' with a finite C",
    Status.LIMITED: "choose another solver",
    Status.PUBLISHED: "leave ends='multipliers' out for an answer at the tolerance",
    Status.STATIONARY: "use a positive semi-definite kernel (rbf, linear, poly with coef0 >= 0) when that matters",
}


_OWN_LIMITS = {
    "smo": (
        "max_passes idle sweeps, and without progress the work of an exact method",
        "raise max_passes, or set it to 0, which is no limit; or raise tol, lower C, or choose another solver",
    ),
    "small": (
        "2,000 variables, and steps enough for most problems of this size",
        "use solver='auto', which goes on from there",
    ),
    "interior": (
        "as many steps, or crossovers to an exact answer, as it makes, and 64 MB for sparse points, which it makes dense",
        "use solver='auto', which goes on from there",
    ),
}
"""The limit that a solver has of its own, by name, and what to do about it."""


def speak(solution: Solution, measured: Measured, problem: Problem, run: Run, noise: float = 0.0) -> None:
    """Warn when the answer is not what was asked for, or when meeting the tolerance means little.

    `noise` is what rounding does to a violation, where precision ended the run.
    """
    status, relative_gap = solution.status, measured.relative_gap
    if status in _REMEDIES:
        _say_what_is_lost(solution, measured, run, noise)
    elif run.stopping != "gap" and abs(relative_gap) > LARGE_GAP:  # below zero: rounding larger than the objective
        warn(MEANS_LITTLE, ConvergenceWarning)
    slow = not status.ok or (solution.solver == "smo" and solution.n_iter > 100 * len(problem.qp.c))
    slow = slow and status is not Status.UNBOUNDED
    warn_of_scales(problem.X, problem.spec.kernel, problem.by_scale, slow=slow, names=problem.columns.names)


def _say_what_is_lost(solution: Solution, measured: Measured, run: Run, noise: float) -> None:
    """Warn of a run that ended without what was asked for."""
    status, relative_gap = solution.status, measured.relative_gap
    about = "about " if measured.estimated else ""
    lost = (
        f"KKT violation {about}{solution.kkt_violation:.1e} (tol {run.tol:g}), relative gap {about}{relative_gap:.1e}"
    )
    if measured.estimated:
        lost += " by the solver's own numbers, since a certificate takes long"
    if noise > run.tol:
        lost += f"; rounding alone makes violations of about {noise:.1e}"
    if status is Status.LIMITED and solution.solver in _OWN_LIMITS:
        limit, remedy = _OWN_LIMITS[solution.solver]
        warn(f"{status}: {lost}. The limit of {solution.solver!r} is {limit}. Remedy: {remedy}.", ConvergenceWarning)
    else:
        warn(f"{status}: {lost}. Remedy: {_REMEDIES[status]}.", ConvergenceWarning)
