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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore import auto, solvers
from svmcore._control import Control
from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._threads import one_blas_thread
from svmcore._types import DualQP, FloatArray, KernelKind, Raw, Status
from svmcore.kernel.matrix import KernelMatrix, kernel_product
from svmcore.kernel.whole import gram_of
from svmcore.models.solution import Solution
from svmcore.problem import formulations, measures
from svmcore.problem.advice import out_of_reach
from svmcore.solve import (
    Measured,
    Problem,
    Reached,
    Run,
    Training,
    _chain,
    _feasible,
    _measure,
    _refuse_what_it_cannot,
    _solution,
    _speak,
    reached_at_once,
)
from svmcore.solvers import small
from svmcore.solvers._contract import STOPPED

_EXACT = 1e-13  # relative difference of a share from nu that is rounding
_ROUNDING = 1e-10  # relative difference of a share from nu that is rounding of sums
_SHARPER = 0.25  # what fits are asked for, relative to the answer: a mean of two is no better than they are
# Values of t are a factor _STEP apart where nothing is known of the right one, and a factor _NEAR where the answer of some
# points is known. No step is longer than the factor _LONGEST.
_STEP, _NEAR, _LONGEST = 8.0, 1.2, 64.0
# From _MANY points on, _SOME of them are asked first: but for chance their t is that of all.
_SOME, _MANY = 500, 1500
_NO_TUBE = 1e-3  # epsilon, relative to the widest, from which it may be zero
_LONG = 2_000_000  # pair steps, of all fits, from which a search takes long: seconds
_REACH = 1e-6  # 1 / C, relative to the kernel's diagonal, up to which such a search goes on
_BEYOND = 1.003  # share, in terms of nu, at which two ends are to have nu between them
_APART = 0.05  # difference of shares, in terms of nu, above which the mean of two ends is no answer
_LARGEST = 700.0  # no logarithm is larger than this, so that its exponential is finite
_SLOPE = 0.2  # the slope of log share over log 1 / C is taken to be this where it is not known
_PATIENCE = 3  # fits for which one end may stay
_MOST_FITS = 100
_ROUGH = 1e-3  # tolerance of the look at some points


class _Line(NamedTuple):
    """The problems along which nu is looked for. `at(t)` is one of them, `unit(t)` what its variables are multiplied by."""

    at: Callable[[float], DualQP]
    unit: Callable[[float], float]
    weight: float  # the largest sum of |a|
    nothing: float  # where a = 0 is the answer
    first: float  # where to look first
    step: float  # the factor by which to go on from there, until there is an answer on either side

    def richer(self, t: float, step: float) -> float:
        """Further away from nothing, where the share is larger."""
        if self.nothing == 0.0:
            return step * t
        return t / step if t > _NO_TUBE * self.nothing else 0.0

    def poorer(self, t: float, step: float) -> float | None:
        """Nearer to nothing; None where that is near already."""
        if self.nothing == 0.0:
            return t / step
        return step * t if 0.0 < step * t < 0.5 * self.nothing else None

    def scale(self, t: float) -> float:
        """t as shares see it."""
        return math.log(t) if self.nothing == 0.0 else t

    def unscale(self, x: float) -> float:
        """The t of a scale."""
        return math.exp(min(x, _LARGEST)) if self.nothing == 0.0 else x

    def slope(self, t: float, height: float) -> float:
        """What the logarithm of the share may change by, in this scale, as measured; of a regression it is 0 at t = 0."""
        return _SLOPE if self.nothing == 0.0 else height / t if t > 0.0 else 0.0

    def share_falls(self, t: float, there: float) -> bool:
        """Whether the share is smaller there than at t."""
        return there < t if self.nothing == 0.0 else t < there < self.nothing

    def reach(self, t: float) -> tuple[float, float]:
        """Between which values ends near t foretell anything."""
        return t / _STEP, _STEP * t if self.nothing == 0.0 else min(_STEP * t, 0.5 * (t + self.nothing))

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


def _classifier(problem: Problem, K: KernelMatrix) -> _Line:
    """All values of 1 / C; `problem` is that of C = 1."""
    qp = problem.qp

    def at(t: float) -> DualQP:
        C = 1.0 / t
        return qp._replace(lower=C * qp.lower, upper=C * qp.upper)

    return _Line(at, lambda t: t, float((qp.upper - qp.lower).sum()), 0.0, small.size_of(K.diagonal), _STEP)


def _regression(problem: Problem) -> _Line:
    """All values of epsilon; `problem` is that of epsilon = 0."""
    qp = problem.qp
    half = len(qp.c) // 2
    signs = np.concatenate([np.ones(half), -np.ones(half)])
    targets = qp.c[:half]
    widest = 0.5 * float(np.ptp(targets)) if qp.equality else float(np.abs(targets).max())
    return _Line(
        lambda t: qp._replace(c=qp.c - t * signs),
        lambda t: 1.0,
        float(qp.upper[:half].sum()),
        widest,
        0.1 * widest,
        _STEP,
    )


def _line(problem: Problem, K: KernelMatrix) -> _Line:
    return _regression(problem) if problem.classes is None else _classifier(problem, K)


def _preview(problem: Problem, nu: float, run: Run, control: Control) -> float | None:
    """Where some of the points have share nu; None where there are few, or they do not tell."""
    n, qp = problem.X.shape[0], problem.qp
    if n < _MANY:
        return None
    some = np.sort(np.random.default_rng(0).permutation(n)[:_SOME])
    chosen = np.isin(qp.point, some)
    scale = float(qp.upper.sum() - qp.lower.sum()) / float(qp.upper[chosen].sum() - qp.lower[chosen].sum())
    part = qp.part(chosen)
    part = part._replace(point=np.searchsorted(some, part.point))
    if problem.classes is not None:
        nu = min(nu, 0.95 * small.most_nu(part))
    given = problem.spec.kernel.kind == KernelKind.PRECOMPUTED
    some_points = problem._replace(qp=part, X=problem.X[np.ix_(some, some)] if given else problem.X[some])
    K = some_points.kernel_matrix(cache_bytes=run.cache_bytes, n_threads=run.n_threads)
    rough = run._replace(solver=solvers.AUTO, options={}, tol=max(run.tol, _ROUGH))
    try:
        t, found = _Search(_line(some_points, K), K, nu, rough, control).look()
    except InputError:
        return None
    if found.measured.violation > 2.0 * rough.tol or t == 0.0:
        return None
    return t if problem.classes is None else t * math.sqrt(scale)  # as measured: between equal C and equal n C


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
            direct = _direct(problem, line, K, nu, run, control)
            if direct is None and (first := _preview(problem, nu, run, control)) is not None:
                line = line._replace(first=first, step=_NEAR)
            t, found = direct or _Search(line, K, nu, run, control).look()
        C, epsilon = (problem.terms.C, t) if problem.classes is None else (1.0 / t, None)
        problem = problem._replace(qp=line.at(t), terms=problem.terms._replace(C=C, epsilon=epsilon, nu=nu))
        named = run._replace(solver=found.name)
        solution = _solution(problem, K, found.raw, found.measured, named, control.seconds, training)
        _speak(solution, found.measured, problem, run)
        share = line.share(found.raw.beta * line.unit(t))
        beyond = None if problem.classes is None else out_of_reach(nu, share, 1.0 / t)
        if found.raw.status in STOPPED or not (found.raw.status.ok or beyond):
            warn(
                f"{found.raw.status.name.lower()} while looking for nu={nu:g}: the machine has share {share:.4g}.",
                ConvergenceWarning,
            )
        elif beyond:
            warn(beyond, ConvergenceWarning)
    return solution


def _direct(
    problem: Problem, line: _Line, K: KernelMatrix, nu: float, run: Run, control: Control
) -> tuple[float, Reached] | None:
    """The parameter and the answer of a small problem, whose sums are fixed and whose parameter is what they say.

    None where `small` is not asked, or has no answer.
    """
    qp = problem.qp
    alone = run.solver == solvers.AUTO and not (run.options or run.trace) and control.callback is None
    matrix = auto.is_small(qp, K) and small.has_room(K)
    if not (alone and matrix) or qp.infinite or control.reason() is not None:
        return None
    gram, patience, spans = gram_of(K), small.patience_of(run.max_iter), small.spans_of(qp.point)
    if problem.classes is not None:
        (found,) = small.with_nu(gram, small.joined([(qp, spans)]), [nu], run.tol, 1, patience)
        return None if found is None else (found[0], reached_at_once(line.at(found[0]), found[1]))
    shared = small.with_share(gram, qp, nu, run.tol, patience)
    if shared is None:
        return None
    beta, t = formulations.balanced(qp, shared.beta), max(shared.half, 0.0)
    if line.share(beta) < nu * (1.0 - _ROUNDING):
        t = 0.0  # both variables of a point: even without a tube there are no more
    batch = small.Batch(gram, small.joined([(line.at(t), spans)]), beta.copy())
    batch.solve(run.tol, 1, small.patience_of(0))
    outcome = batch.outcome(0, run.tol)
    if outcome is None:
        return None
    return t, reached_at_once(line.at(t), outcome._replace(n_iter=shared.n_iter))


class _Search:
    """A bracket that narrows until the mean of its ends is an answer."""

    def __init__(self, line: _Line, K: KernelMatrix, nu: float, run: Run, control: Control) -> None:
        self.line, self.K, self.nu, self.run, self.control = line, K, nu, run, control
        self.fits = self.n_iter = 0
        n = len(line.at(line.first or 1.0).c)
        none = np.zeros(n, bool)
        self.less = _End(line.nothing, np.zeros(n), 0.0, none, none)
        self._ends: list[_End] = []  # the last two
        self._products: dict[float, FloatArray] = {}

    def tolerance(self, t: float) -> float:
        """The violation that is allowed: where C is small, so are the values of f, and their differences."""
        unit = self.line.unit(t)
        return (
            self.run.tol * min(1.0, small.size_of(self.K.diagonal) / unit) if self.line.nothing == 0.0 else self.run.tol
        )

    def fit(self, t: float, a: FloatArray) -> _End:
        """Solve the problem at t from `a`."""
        qp, unit = self.line.at(t), self.line.unit(t)
        start = formulations.feasible_start(qp, a / unit)
        run = self.run._replace(tol=_SHARPER * self.tolerance(t), trace=False)
        warm = bool(a.any())
        reached, _ = _chain(qp, self.K, run, start, self.control, warm=warm)
        self.fits += 1
        self.n_iter += reached.raw.n_iter
        beta = reached.raw.beta
        a = beta * unit
        end = _End(t, a, self.line.share(a), beta >= qp.upper, beta <= qp.lower, reached)
        self._ends = [*self._ends[-1:], end]
        return end

    def product(self, end: _End) -> tuple[FloatArray, float | FloatArray]:
        """K a of an end, by variable, and how far it may be off. Only ends that are near one another are asked for theirs.

        A solver that hands over its residual has it; else it is computed.
        """
        qp, unit = self.line.at(end.t or 1.0), self.line.unit(end.t)
        if end.reached is None:
            return np.zeros(len(qp.c)), 0.0
        raw = end.reached.raw
        if raw.residual is not None and np.isfinite(raw.residual_error).all():
            return (qp.c - raw.residual) * unit, raw.residual_error * unit
        if end.t not in self._products:
            self._products[end.t] = kernel_product(qp, self.K, end.a)[qp.point]
        return self._products[end.t], 0.0

    def foretold(self, beyond: float) -> float | None:
        """Where the share is `beyond` times nu, as the last two ends foretell it, or the only one; None where they do not.

        The logarithm of the share is nearly a straight line: over log t, or of a regression over t.
        """
        if not self._ends or min(end.share for end in self._ends) <= 0.0:
            return None
        line, end = self.line, self._ends[-1]
        if end.t <= _NO_TUBE * line.nothing:
            return None
        t, height = line.scale(end.t), math.log(end.share)
        if len(self._ends) > 1:
            away = line.scale(self._ends[0].t) - t
            slope = (math.log(self._ends[0].share) - height) / away if away else 0.0
        else:
            slope = line.slope(end.t, height)
        if slope == 0.0 or (slope > 0.0) != (line.nothing == 0.0):
            return None
        least, most = line.reach(end.t)
        return min(max(line.unscale(t + (math.log(self.nu * beyond) - height) / slope), least), most)

    def look(self) -> tuple[float, Reached]:
        """The parameter, and the answer there."""
        end, step = self.fit(self.line.first, self.less.a), self.line.step
        while end.share < self.nu * (1.0 - _EXACT):
            if self.stopped(end) or end.t == 0.0:  # of a regression: even without a tube there are no more
                return end.t, self.answer(end)
            self.less = end
            there = self.foretold(_BEYOND)
            if there is None or not self.line.share_falls(there, end.t):
                there = self.line.richer(end.t, step)
            end, step = self.fit(there, end.a), min(step * step, _LONGEST)
        more, stays = end, 0
        while not self.stopped(end):
            t, point = self.mean(more)
            if point is not None:
                return t, point
            if self.fits >= _MOST_FITS or t in (self.less.t, more.t):
                return more.t, self.answer(
                    more, Status.PRECISION if more.reached and more.reached.raw.status.ok else None
                )
            poorer = self.poorer(more, step) if self.less.reached is None else None
            if poorer is not None:
                end, step = self.fit(poorer, more.a), min(step * step, _LONGEST)
            else:
                end = self.fit(*self.start(more, stays))
            if end.share < self.nu:
                self.less, stays = end, max(stays, 0) + 1
            else:
                more, stays = end, min(stays, 0) - 1
            if self.out_of_reach(more):
                return more.t, self.answer(more)
        return end.t, self.answer(end)

    def poorer(self, more: _End, step: float) -> float | None:
        """Nearer to nothing than an end with too large a share."""
        there = self.foretold(1.0 / _BEYOND)
        if there is not None and self.line.share_falls(more.t, there):
            return there
        return self.line.poorer(more.t, step)

    def stopped(self, end: _End) -> bool:
        """Whether somebody outside ended the search, or no step is allowed."""
        assert end.reached is not None
        return end.reached.raw.status in STOPPED or self.run.max_iter == 0 or self.control.reason() is not None

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
        raw = _feasible(qp, self.signed(raw))
        measured: Measured = _measure(qp, self.K, raw, self.run)
        assert more.reached is not None
        return t, (Reached(more.reached.name, raw, measured) if measured.violation <= tolerance else None)

    def between(self, weight: float, more: _End) -> FloatArray:
        """The weighted mean of both ends' variables."""
        return np.asarray((1.0 - weight) * self.less.a + weight * more.a)

    def start(self, more: _End, stays: int) -> tuple[float, FloatArray]:
        """Where to solve next, and from where.

        That is where a straight line foretells it, at first. An end that stays for `stays` fits (above zero: `more`) pulls
        less and less (the rule of Illinois); in the end it is the middle of the bracket.
        """
        less, line = self.less, self.line
        known = less.share > 0.0
        low = math.log(self.nu / less.share) if known else self.nu
        high = math.log(more.share / self.nu) if known else more.share - self.nu
        if stays > 1:
            high *= 0.5 ** (stays - 1)
        elif stays < -1:
            low *= 0.5 ** (-stays - 1)
        part = low / (low + high) if low + high > 0.0 else 0.5
        if abs(stays) > _PATIENCE:
            middle = math.sqrt(less.t * more.t) if less.t > 0.0 and more.t > 0.0 else more.t / _STEP
            t = 0.5 * (less.t + more.t) if line.nothing else middle
        elif known:
            t = line.unscale((1.0 - part) * line.scale(less.t) + part * line.scale(more.t))
        else:
            t = (1.0 - part) * less.t + part * more.t
        weight = (t - less.t) / (more.t - less.t)
        return t, self.between(weight, more)

    def out_of_reach(self, more: _End) -> bool:
        """Whether no C is large enough; or the search takes long, and the share falls so slowly that none within reach is."""
        if self.line.nothing == 0.0 and self.less.t == 0.0 and more.t < small.DEEPEST * small.size_of(self.K.diagonal):
            return True
        if self.line.nothing != 0.0 or self.less.t != 0.0 or len(self._ends) < 2 or self._ends[-1] is not more:
            return False
        before = self._ends[0]
        if self.n_iter <= _LONG or not before.share > more.share > self.nu:
            return False
        needed = math.log(more.share / self.nu) * math.log(before.t / more.t) / math.log(before.share / more.share)
        return needed > math.log(more.t / (_REACH * small.size_of(self.K.diagonal)))


__all__ = ["check_feasible", "nu_fit"]
