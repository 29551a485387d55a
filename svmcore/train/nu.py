"""nu in place of C, or of epsilon: the one problem of a family whose dual variables have the share nu of what they can have.

With t = 1 / C and a = t alpha (for regression t = epsilon and a = the signed coefficients), optimal a are piecewise linear
in t, and their share of the total weight is continuous and monotone. So the mean of two answers on one piece, weighted such
that its share is nu, is the answer. Its residual is a mean of theirs, too, and costs no kernel value: the solver hands both
over. What decides whether it is an answer is computed anew. Where it violates too much, the problem there is solved from that
mean, and the bracket is narrower by a fit that starts near its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore import solvers
from svmcore._control import Control
from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._types import DualQP, FloatArray, KernelKind, Raw, Status
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.matrix import KernelMatrix, kernel_product
from svmcore.kernel.whole import gram_of
from svmcore.models.solution import Solution
from svmcore.problem import formulations, measures
from svmcore.problem.advice import out_of_reach
from svmcore.solvers import small
from svmcore.solvers._contract import STOPPED
from svmcore.train import auto
from svmcore.train.forms import Problem, Training
from svmcore.train.solve import (
    Measured,
    Reached,
    Run,
    _chain,
    _one_by_one,
    _refuse_what_it_cannot,
    feasible,
    measure,
    reached_at_once,
    solution_of,
)
from svmcore.train.words import speak

_EXACT = 1e-13  # relative difference of a share from nu that is rounding
_ROUNDING = 1e-10  # relative difference of a share from nu that is rounding of sums
_SHARPER = 0.25  # what fits are asked for, relative to the answer: a mean of two is no better than they are
# Values of t are a factor _STEP apart where nothing is known of the right one, and a factor _NEAR where the answer of some
# points is known. Steps become longer, up to the factor _LONGEST.
_STEP, _NEAR, _LONGEST = 8.0, 1.2, 64.0
# From _MANY points on, _SOME of them are asked first: but for chance their t is that of all.
_SOME, _MANY = 500, 1500
_SLOPE = 0.2  # of the logarithm of the share over that of 1 / C, where it is not known
_NO_TUBE = 1e-3  # epsilon, relative to the widest, from which it may be zero
_LONG = 2_000_000  # pair steps, of all fits, from which a search takes long: seconds
# 1 / C, relative to the kernel's diagonal, at which a search ends that is long or of a sigmoid, and any
_DEEP, _DEEPEST = 1e-3, 1e-8
# From the 1 / C _LATE on, in the same terms, and from so many steps a variable, a search asks how far it has to go. _NEVER is
# too far.
_LATE, _CRAWLS, _NEVER = 0.1, 10, 1e-12
_APART = 0.05  # difference of shares, in terms of nu, above which the mean of two ends is no answer
# Relative difference of shares from nu at which both ends of a bracket are to be, at once and with each further fit.
_NEARLY, _NEARER = 0.003, 0.05
_PATIENCE = 2  # fits for which one end may stay
_MOST_FITS = 100
_ROUGH = 1e-3  # tolerance of the look at some points


class _Line(NamedTuple):
    """The problems along which nu is looked for: all 1 / C of a classifier, or all epsilon of a regression (`tube`).

    `qp` is that of C = 1, or of epsilon = 0.
    """

    qp: DualQP
    tube: bool
    weight: float  # the largest sum of |a|
    nothing: float  # where a = 0 is the answer
    size: float  # of kernel values

    def at(self, t: float) -> DualQP:
        """One of them."""
        if self.tube:
            half = len(self.qp.c) // 2
            return self.qp._replace(c=self.qp.c - np.repeat([t, -t], half))
        C = 1.0 / t
        return self.qp._replace(lower=C * self.qp.lower, upper=C * self.qp.upper)

    def unit(self, t: float) -> float:
        """What its variables are multiplied by."""
        return 1.0 if self.tube else t

    def richer(self, t: float, step: float) -> float:
        """Further away from nothing, where the share is larger."""
        if not self.tube:
            return step * t
        return t / step if t > _NO_TUBE * self.nothing else 0.0

    def poorer(self, t: float, step: float) -> float:
        """Nearer to nothing."""
        return step * t if self.tube else t / step

    def share(self, a: FloatArray) -> float:
        """The share of the sum of |a| in what it can be."""
        return float(np.abs(a).sum()) / self.weight


class _End(NamedTuple):
    """An end of the bracket: an optimal `a`, and which of its variables are at a bound."""

    t: float
    a: FloatArray
    share: float
    top: NDArray[np.bool_]
    bottom: NDArray[np.bool_]
    reached: Reached | None = None


def _line(problem: Problem, K: KernelMatrix) -> _Line:
    qp, size = problem.qp, small.size_of(K.diagonal)
    if problem.classes is not None:
        return _Line(qp, False, float((qp.upper - qp.lower).sum()), 0.0, size)
    targets = qp.c[: len(qp.c) // 2]
    widest = 0.5 * float(np.ptp(targets)) if qp.equality else float(np.abs(targets).max())
    return _Line(qp, True, float(qp.upper.sum()), widest, size)


def _preview(problem: Problem, nu: float, run: Run) -> float | None:
    """Where some of the points have share nu; None where there are few, or they do not tell."""
    n, qp = problem.X.shape[0], problem.qp
    if n < _MANY:
        return None
    some = np.sort(np.random.default_rng(0).permutation(n)[:_SOME])
    chosen = np.isin(qp.point, some)
    part = qp.part(chosen)
    if not len(part.c):
        return None
    scale = float(qp.upper.sum() - qp.lower.sum()) / float(part.upper.sum() - part.lower.sum())
    part = part._replace(point=np.searchsorted(some, part.point))
    if problem.classes is not None:
        nu = min(nu, 0.95 * small.most_nu(part))
    given = problem.spec.kernel.kind == KernelKind.PRECOMPUTED
    some_points = problem._replace(qp=part, X=problem.X[np.ix_(some, some)] if given else problem.X[some])
    K = some_points.kernel_matrix(cache_bytes=run.cache_bytes, n_threads=run.n_threads)
    t, _ = _by_sums(some_points, _line(some_points, K), K, nu, run._replace(tol=max(run.tol, _ROUGH), max_iter=-1))
    scale = 1.0 if problem.classes is None else math.sqrt(scale)
    return t * scale if t else None  # as measured: between equal C and n C


def check_feasible(problem: Problem, nu: float) -> None:
    """Refuse a nu that is too large: the smaller class has to balance the larger one."""
    if problem.classes is None:
        return
    most = small.most_nu(problem.qp)
    if nu > most * (1.0 + _EXACT):
        raise InputError(
            f"specified nu is infeasible: nu={nu:g}, and it can be at most {most:.6g} here, twice the share of the smaller "
            "class in the weight; give a smaller nu, or balance the classes with class_weight"
        )


def nu_fit(problem: Problem, nu: float, run: Run, control: Control, training: Training) -> Solution:
    """The machine with share `nu`; `problem` is a hinge classifier with C = 1, or a regression with epsilon = 0."""
    check_feasible(problem, nu)
    if run.stopping != "kkt":
        raise InputError(f"stopping={run.stopping!r} cannot be used with nu; leave it out")
    if run.alpha0 is not None:
        raise InputError("alpha0 cannot be used with nu, which looks for its own starts; leave it out")
    if run.solver != solvers.AUTO:
        _refuse_what_it_cannot(run.solver, problem, True)
    with control:
        with one_blas_thread, np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            K = problem.kernel_matrix(cache_bytes=run.cache_bytes, n_threads=run.n_threads)
            line = _line(problem, K)
            alone = run.solver == solvers.AUTO and not (run.options or run.trace) and control.callback is None
            t, found = None, None
            if alone and auto.is_small(problem.qp, K, several=True) and control.reason() is None:
                t, found = _by_sums(problem, line, K, nu, run)
            if found is None:
                tried = t is not None and run.max_iter < 0
                near = (t or _SHARPER * run.tol) if tried else _preview(problem, nu, run)
                t, found = _NuSearch(line, K, nu, run, control, _one_by_one if tried else _chain).look(near)
        assert t is not None
        C, epsilon = (problem.terms.C, t) if problem.classes is None else (1.0 / t, None)
        problem = problem._replace(qp=line.at(t), terms=problem.terms._replace(C=C, epsilon=epsilon, nu=nu))
        solution = solution_of(problem, K, found.raw, found.measured, run, control.seconds, training, found.name)
        speak(solution, found.measured, problem, run)
        share = line.share(found.raw.beta * line.unit(t))
        beyond = None if problem.classes is None else out_of_reach(nu, share, 1.0 / t)
        if found.raw.status in (*STOPPED, Status.MAX_ITER) or not (found.raw.status.ok or beyond):
            warn(
                f"{found.raw.status.name.lower()} while looking for nu={nu:g}: the machine has share {share:.4g}.",
                ConvergenceWarning,
            )
        elif beyond:
            warn(beyond, ConvergenceWarning)
    return solution


def _by_sums(
    problem: Problem, line: _Line, K: KernelMatrix, nu: float, run: Run
) -> tuple[float | None, Reached | None]:
    """The parameter and the answer of a small problem, whose sums are fixed and whose parameter is what they say.

    None stands for what `small` does not find. A parameter without an answer is about right.
    """
    qp = problem.qp
    if qp.infinite or not (small.has_way(qp) and small.serves(K) and small.has_room(K)):
        return None, None
    gram, patience, spans = gram_of(K), small.patience_of(run.max_iter), small.spans_of(qp.point)
    if problem.classes is not None:
        (found,) = small.with_nu(gram, small.joined([(qp, spans)]), [nu], run.tol, 1, patience, patience.most)
        t, outcome = found or (None, None)
        return t, None if outcome is None else reached_at_once(outcome)
    shared = small.with_share(gram, qp, nu, run.tol, patience)
    if shared is None:
        return None, None
    beta, t = formulations.balanced(qp, shared.beta), shared.half
    if line.share(beta) < nu * (1.0 - _ROUNDING):
        t = 0.0  # both variables of a point: even without a tube there are no more
    batch = small.Batch(gram, small.joined([(line.at(t), spans)]), beta.copy())
    batch.solve(run.tol, 1, small.patience_of(0))
    outcome = batch.outcome(0, run.tol)
    return t, None if outcome is None else reached_at_once(outcome._replace(n_iter=shared.n_iter))


class _NuSearch:
    """A bracket that narrows until the mean of its ends is an answer."""

    def __init__(
        self, line: _Line, K: KernelMatrix, nu: float, run: Run, control: Control, solve: Callable[..., Any]
    ) -> None:
        self.line, self.K, self.nu, self.run, self.control, self.solve = line, K, nu, run, control, solve
        self.fits = self.n_iter = 0
        slow = not (line.tube and auto.is_tame(line.qp, K))  # else pair steps are faster
        self.steady = slow and run.solver == solvers.AUTO and auto.choose(line.qp, K, warm=False)[0] == "interior"
        none = np.zeros(len(line.qp.c), bool)
        self.less = _End(line.nothing, np.zeros(len(none)), 0.0, none, none)
        self.before: _End | None = None  # the last one, while all are on one side
        self._products: dict[float, FloatArray] = {}

    def tolerance(self, t: float) -> float:
        """The violation that is allowed: where C is small, so are the values of f, and their differences."""
        return self.run.tol if self.line.tube else self.run.tol * min(1.0, self.line.size / t)

    def fit(self, t: float, a: FloatArray) -> _End:
        """Solve the problem at t from `a`."""
        qp, unit = self.line.at(t), self.line.unit(t)
        cold = self.steady and not auto.is_tame(qp, self.K)  # else pair steps from there are faster
        start = formulations.feasible_start(qp, (0.0 if cold else 1.0 / unit) * a)
        run = self.run._replace(tol=_SHARPER * self.tolerance(t), trace=False)
        reached, _ = self.solve(qp, self.K, run, start, self.control, warm=bool(start.any()))
        self.fits += 1
        self.n_iter += reached.raw.n_iter
        beta = reached.raw.beta
        return _End(t, beta * unit, self.line.share(beta * unit), beta >= qp.upper, beta <= qp.lower, reached)

    def product(self, end: _End) -> tuple[FloatArray, float | FloatArray]:
        """K a of an end, by variable, and how far it may be off. Only ends that are near one another are asked for theirs.

        A solver that hands over its residual has it; else it is computed.
        """
        if end.reached is None:
            return np.zeros(len(end.a)), 0.0
        qp, unit, raw = self.line.at(end.t), self.line.unit(end.t), end.reached.raw
        if raw.residual is not None and np.isfinite(raw.residual_error).all():
            return (qp.c - raw.residual) * unit, raw.residual_error * unit
        if end.t not in self._products:
            self._products[end.t] = kernel_product(qp, self.K, end.a)[qp.point]
        return self._products[end.t], 0.0

    def look(self, near: float | None) -> tuple[float, Reached]:
        """The parameter, and the answer there; it may be `near` a value."""
        line, step = self.line, _NEAR if near is not None else _STEP
        if self.steady:  # an interior point takes as long for any C, and without a tube
            end = self.fit(0.0 if line.tube else _DEEPEST * line.size, self.less.a)
            if self.stopped(end) or (end.share < self.nu if line.tube else end.share > self.nu):
                return end.t, self.answer(end)
            self.less = self.less if line.tube else end
        first = near if near is not None else 0.1 * line.nothing if line.tube else line.size
        end = self.fit(first, self.less.a)
        while end.share < self.nu * (1.0 - _EXACT):
            if self.stopped(end) or (line.tube and end.t == 0.0):  # even without a tube there are no more
                return end.t, self.answer(end)
            flat = self.without_tube(end)
            if flat is not None:
                return 0.0, flat
            self.less, there = end, self.onward(end, line.richer, _NEARLY, step)
            end, step = self.fit(there, end.a), min(step * step, _LONGEST)
        more, stays = end, 0
        while not self.stopped(end):
            if self.out_of_reach(more):
                return more.t, self.answer(more)
            t, point = self.mean(more)
            if point is not None:
                return t, point
            if self.fits >= _MOST_FITS or t in (self.less.t, more.t):
                return more.t, self.answer(
                    more, Status.PRECISION if more.reached and more.reached.raw.status.ok else None
                )
            there = 0.0 if self.less.reached is not None else self.onward(more, line.poorer, -_NEARLY, step)
            if there > 0.0 and not (line.tube and there > 0.5 * line.nothing):
                end, step = self.fit(there, more.a), min(step * step, _LONGEST)
            else:
                end = self.fit(*self.start(more, stays))
            if end.share < self.nu:
                self.less, stays = end, max(stays, 0) + 1
            else:
                more, stays = end, min(stays, 0) - 1
        return end.t, self.answer(end)

    def without_tube(self, end: _End) -> Reached | None:
        """What is an answer at epsilon = 0, too, as its tube is narrower than the tolerance: shares there say nothing."""
        if not self.line.tube or end.reached is None or end.t > _SHARPER * self.run.tol:
            return None
        qp = self.line.at(0.0)
        raw = feasible(qp, self.signed(end.reached.raw._replace(residual=None)))
        measured = measure(qp, self.K, raw, self.run)
        return Reached(end.reached.name, raw, measured) if measured.violation <= self.run.tol else None

    def onward(self, end: _End, way: Callable[[float, float], float], beyond: float, step: float) -> float:
        """A step on, or what the last two ends foretell if that is not further than a long step."""
        before, self.before, slope = self.before, end, 0.0 if self.line.tube else _SLOPE
        if before is not None and min(before.share, end.share, end.t) > 0.0:
            away = before.t - end.t if self.line.tube else math.log(before.t / end.t)
            slope = math.log(before.share / end.share) / away
        if slope != 0.0 and end.share > 0.0:
            part = (math.log(self.nu / end.share) + beyond) / slope
            there = end.t + part if self.line.tube else end.t * math.exp(min(part, _LONGEST))
            far = way(end.t, _STEP)
            if (there - end.t) * (far - end.t) > 0.0:
                return there if abs(there - end.t) < abs(far - end.t) else far
        return way(end.t, step)

    def stopped(self, end: _End) -> bool:
        """Whether somebody outside ended the search, or all steps that are allowed have been taken."""
        assert end.reached is not None
        spent = 0 <= self.run.max_iter <= self.n_iter
        return end.reached.raw.status in STOPPED or spent or self.control.reason() is not None

    def answer(self, end: _End, status: Status | None = None) -> Reached:
        """An end as the answer."""
        assert end.reached is not None
        status = status or self.control.reason() or end.reached.raw.status
        return end.reached._replace(raw=self.signed(end.reached.raw._replace(status=status)))

    def signed(self, raw: Raw) -> Raw:
        """With the counts of all fits."""
        return raw._replace(n_iter=self.n_iter, stats=raw.stats | {"fits": self.fits})

    def mean(self, more: _End) -> tuple[float, Reached | None]:
        """Where the mean of both ends with share nu is, and the answer if it is one."""
        less = self.less
        weight = (self.nu - less.share) / (more.share - less.share) if more.share > less.share else 1.0
        t = (1.0 - weight) * less.t + weight * more.t
        if weight < 1.0 - _EXACT and more.share - less.share > _APART * self.nu:
            return t, None  # there is a breakpoint between them
        qp, unit = self.line.at(t), self.line.unit(t)
        beta = self.between(weight, more) / unit
        beta = np.where(less.top & more.top, qp.upper, np.where(less.bottom & more.bottom, qp.lower, beta))
        beta = np.clip(beta, qp.lower, qp.upper)
        (one, first), (other, second) = self.product(less), self.product(more)
        residual, error = qp.c - ((1.0 - weight) * one + weight * other) / unit, np.maximum(first, second) / unit
        tolerance = self.tolerance(t)
        if measures.violation(qp, beta, residual) > tolerance:
            return t, None
        raw = Raw(beta, Status.CONVERGED, 0, residual=residual, residual_error=error)
        raw = feasible(qp, self.signed(raw))
        measured: Measured = measure(qp, self.K, raw, self.run)
        assert more.reached is not None
        return t, (Reached(more.reached.name, raw, measured) if measured.violation <= tolerance else None)

    def between(self, weight: float, more: _End) -> FloatArray:
        """The weighted mean of both ends' variables."""
        return np.asarray((1.0 - weight) * self.less.a + weight * more.a)

    def start(self, more: _End, stays: int) -> tuple[float, FloatArray]:
        """Where to solve next, and from where: where the further end would come to the share nu, nearly.

        The logarithm of the share is nearly a straight line over log t, or of a regression over t. Where one end has stayed
        for long it is the middle of the bracket.
        """
        less, part = self.less, 0.5
        if abs(stays) <= _PATIENCE and less.share > 0.0:
            low, high = math.log(self.nu / less.share), math.log(more.share / self.nu)
            aim = low + min(_NEARLY, _NEARER * high) if high > low else low - min(_NEARLY, _NEARER * low)
            part = aim / (low + high) if low + high > 0.0 else 0.5
        elif abs(stays) <= _PATIENCE:
            part = self.nu / more.share
        t = less.t + part * (more.t - less.t) if self.line.tube else less.t * (more.t / less.t) ** part
        return t, self.between((t - less.t) / (more.t - less.t), more)

    def out_of_reach(self, more: _End) -> bool:
        """Whether no C is large enough, as far as one can wait, or as the last two ends foretell where steps crawl."""
        if self.line.tube or self.less.t > 0.0:
            return False
        assert more.reached is not None
        brief = self.n_iter > _LONG or self.K.kernel.kind == KernelKind.SIGMOID  # whose local optima have any share
        deep, before, size = _DEEP if brief else _DEEPEST, self.before, self.line.size
        if more.t < deep * size:
            return True
        crawls = more.reached.raw.n_iter > _CRAWLS * len(more.a) and more.t < _LATE * size
        if before is None or not (crawls and before.t > more.t):
            return False
        slope = math.log(before.share / more.share) / math.log(before.t / more.t)
        return math.log(more.share / self.nu) > slope * math.log(more.t / (_NEVER * size))
