"""Linear machines over the same rows: `LinearSVC`'s one for each class, and `LinearSVR`'s.

A head is a dual problem without an equality row. It is solved over the rows as they are, and its certificate is computed from
them. What solvers do for one machine at a time is not needed here: no kernel matrix, no layout of its own for the rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._errors import ConvergenceWarning, warn
from svmcore._types import NONZERO, DualQP, FloatArray, Kernel, KernelKind, Status
from svmcore.base.threads import one_blas_thread, split
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import is_sparse
from svmcore.models.solution import Solution, Terms
from svmcore.problem.certify import Certificate, certificate
from svmcore.problem.columns import Columns, plain
from svmcore.simd.rows import GROUP
from svmcore.solvers import _coordinate, _lasso, _losses, _newton, _rows
from svmcore.solvers._factors import gram_factor
from svmcore.solvers._newton_jit import Losses, Surprises, Workspace, dense_machine

# Newton's method works with a matrix of the features where these are at most MOST_FEATURES, or MOST_DENSE, and no more than
# the rows; and with one of the rows where these are at most MOST_ROWS, and fewer. Sparse rows of more features take sweeps,
# unless they are so few, EXACT_ROWS, that their machines are found to rounding.
MOST_FEATURES, MOST_DENSE, MOST_ROWS, EXACT_ROWS = 1000, 2500, 2000, 200
MOST_SHARED = 500_000  # rows: what a group keeps of them fills a quarter of a gigabyte then
LEAST_SWEEPS = 10  # that a machine takes
FEW = 600_000  # operations of a Gram matrix that are over before Python has asked for it


class Head(NamedTuple):
    """One machine: its dual problem, its labels, its terms."""

    qp: DualQP
    classes: Any
    terms: Terms


# A loss without curvature leaves LIBLINEAR a gap that grows with C. Both numbers are in units of the gap that is asked for.
LOOSER = 100.0  # what that gap may be multiplied by: C k(x, x), at most so much
VIOLATION = 10.0  # of every variable: then, too, the gap may be as much larger as above


class Aim(NamedTuple):
    """Relative gaps: what is asked for, and what is tried where that takes no time; and the most steps of a machine."""

    gap: float
    sharp: float
    max_iter: int


def solved(
    X: Any, heads: Sequence[Head], *, tau: float, goal: Aim, control: Control, n_threads: int = 1, training: Any = None
) -> tuple[list[Solution], FloatArray] | None:
    """The machines at the goal, and their weights. None where rounding stands before it.

    `tau` is the value of the feature that stands for the intercept. X belongs to the machines from now on. The entries of its
    rows may come in any order until somebody asks for more than the machines.
    `training` is what a single machine keeps of its problem.
    """
    engine = _engine(X, tau)
    if engine is None:
        return None
    kernel = Kernel(int(KernelKind.LINEAR), 1.0, 0.0, 3, tau * tau)
    columns = plain(X.shape[1])
    solutions: list[Solution] = []
    weights = np.empty((len(heads), X.shape[1]))
    groups = engine.groups(heads)
    answers: list[tuple[list[HeadFound] | None, float]] = [(None, 0.0)] * len(groups)

    def run(first: int, last: int) -> None:
        with np.errstate(all="ignore"):
            for g in range(first, last):
                begin = time.perf_counter()
                found = engine.solve([head.qp for head in groups[g]], goal, control)
                answers[g] = found, (time.perf_counter() - begin) / len(groups[g])
                if found is None:
                    return

    with control, one_blas_thread:
        split(run, len(groups), engine.work(len(heads)), n_threads)
        for group, (found, seconds) in zip(groups, answers, strict=True):
            if found is None:
                return None
            for head, one in zip(group, found, strict=True):
                weights[len(solutions)] = one.sums[:-1]
                solutions.append(_solution(X, tau, head, kernel, columns, one, seconds, training))
    _speak(solutions)
    return solutions, weights


class Selection(NamedTuple):
    """A machine whose weights cost their absolute values: labels of 1 and -1, what the rows cost, or each, labels, terms."""

    signs: FloatArray
    costs: FloatArray | float
    classes: Any
    terms: Terms


def selected(
    X: Any, machines: Sequence[Selection], *, tau: float, goal: Aim, control: Control
) -> tuple[list[Solution], FloatArray]:
    """Machines with weights of exactly zero, and their weights. None of them is made of rows: each has one, its weights."""
    design = _lasso.RowsAndColumns(X, tau)
    solutions, weights = [], np.empty((len(machines), X.shape[1]))
    with control, one_blas_thread, np.errstate(all="ignore"):
        for k, asked in enumerate(machines):
            begin = time.perf_counter()
            watch = _newton.Asking(control, False)
            machine = watch.machine = _lasso.Lasso(design, asked.signs, asked.costs, watch)
            status = _lasso.solve(machine, goal.gap, goal.max_iter)
            status = (watch.status or status) if not status.ok else status
            solutions.append(_of_weights(machine, tau, asked, status, time.perf_counter() - begin))
            weights[k] = machine.w[:-1]
    _speak(solutions)
    return solutions, weights


def _of_weights(machine: _lasso.Lasso, tau: float, asked: Selection, status: Status, seconds: float) -> Solution:
    """A machine of one row with the coefficient 1."""
    found, intercept = machine.found, float(tau * machine.w[-1])
    relative = found.gap / max(abs(found.primal), NONZERO)
    measured = Certificate(found.gap - found.primal, found.primal, found.gap, relative, found.violation, 0.0, intercept)
    return Solution(
        n_points=1, intercept=intercept, support=np.array([0]), dual_coef=np.ones(1), kkt_violation=found.violation,
        measured=measured, status=status, converged=status.ok, n_iter=machine.steps, n_kernel_evals=0,
        fit_seconds=seconds, solver="lasso", classes=asked.classes,
        kernel=Kernel(int(KernelKind.LINEAR), 1.0, 0.0, 1, 0.0), support_vectors=machine.w[None, :-1].copy(),
        columns=Columns(len(machine.w) - 1), terms=asked.terms,
    )  # fmt: skip


class HeadFound(NamedTuple):
    """The dual variables of a head, X'z, how good it is, and how it was found."""

    z: FloatArray
    sums: FloatArray
    measures: _losses.Measures
    status: Status
    steps: int
    solver: str


class Steps:
    """Newton's method over rows of few features."""

    name = "newton"

    def __init__(self, X: Any, tau: float) -> None:
        self.rows = _rows.rows_of(X, tau)

    def groups(self, heads: Sequence[Head]) -> list[Sequence[Head]]:
        """The machines that are found together."""
        return [[head] for head in heads]

    def work(self, k: int) -> float:
        """Feature operations of k machines that threads may share; none where machines share memory."""
        return 0.0

    def solve(self, qps: Sequence[DualQP], goal: Aim, control: Control) -> list[HeadFound] | None:
        """A group of machines; None where rounding stands before the goal."""
        (qp,) = qps
        losses = _losses.losses_from(qp, self.rows.n)
        wanted, asked = self._goals(qp, goal)
        machine = self._machine(losses, bool(qp.diag.any()), wanted, control)
        status, last = control.reason(), None
        if status is None:
            status, last = self._run(machine, wanted, asked, goal.max_iter)
        if status is not Status.CONVERGED:
            machine.take(machine.best)
            last = None
        sums, measures = last or self._measured(machine)
        end = _end(status, asked, measures) or self._closest
        return None if end is None else [self._found(losses, sums, measures, control.reason() or end, machine.steps)]

    _closest: Status | None = None
    """How a machine ended that rounding keeps from the goal, where no other solver would come closer."""

    def _found(
        self, losses: Losses, sums: FloatArray, measures: _losses.Measures, status: Status, steps: int
    ) -> HeadFound:
        return HeadFound(losses.z, sums, measures, status, steps, self.name)

    def _measured(self, machine: Any) -> tuple[FloatArray, _losses.Measures]:
        """X'z and how good it is, from the data."""
        return _losses.measured(self._own, machine.losses, machine.squared)[1:]

    @property
    def _own(self) -> Any:
        """The rows that the machine is one of."""
        return self.rows

    def _machine(self, losses: Losses, squared: bool, wanted: _losses.Enough, control: Control) -> Any:
        return _newton.Newton(
            self.rows, losses, free=False, squared=squared, poll=lambda: control.reason() is not None, goal=wanted.gap
        )

    def _goals(self, qp: DualQP, goal: Aim) -> tuple[_losses.Enough, _losses.Enough]:
        """What is tried, and what a machine must meet. Where its loss has no curvature, not more than LIBLINEAR's does."""
        if goal.sharp < goal.gap:
            return _losses.Enough(goal.sharp), _losses.Enough(goal.gap)
        wanted = _losses.Enough(goal.gap)
        if not qp.diag.any():
            bend = float(np.mean(qp.upper - qp.lower)) * self._own.typical
            wanted = _losses.Enough(goal.gap * min(max(1.0, bend), LOOSER), VIOLATION * goal.gap, LOOSER * goal.gap)
        return wanted, wanted

    def _run(
        self, machine: Any, wanted: _losses.Enough, asked: _losses.Enough, most: int
    ) -> tuple[Status, tuple[FloatArray, _losses.Measures] | None]:
        """How it ended, and what `_measured` said last."""
        last = None

        def met(newton: _newton.Newton) -> bool:
            nonlocal last
            last = self._measured(newton)
            return wanted.met(last[1])

        _newton.started(machine)
        return _newton.solve(machine, wanted.met, met, most), last


class FewSteps(Steps):
    """The same in one compiled call for a machine: over so few numbers that Python would take longer than the steps."""

    def __init__(self, X: Any, tau: float) -> None:
        super().__init__(X, tau)
        n, d = X.shape[0], X.shape[1] + 1
        self._changes = Surprises(np.empty(n, np.int64), np.empty(n))
        self._f = np.empty(n)
        self._vectors, self._matrices = np.empty((4, d)), np.empty((2, d, d))
        self._held = np.empty(n, np.int8)

    def solve(self, qps: Sequence[DualQP], goal: Aim, control: Control) -> list[HeadFound] | None:
        """One machine; None where rounding stands before the goal."""
        if control.reason() is not None:
            return super().solve(qps, goal, control)
        (qp,) = qps
        rows, losses, squared = self.rows, _losses.losses_from(qp, self.rows.n), qp.squared
        for given in (self._vectors, self._matrices, self._held):
            given.fill(0)
        w, sums, gradient, direction = self._vectors
        gram, matrix = self._matrices
        room = Workspace(w, sums, gradient, direction, gram, matrix, self._held, losses.stiff.copy())
        there = Losses(*losses[:6], self._f, losses.z, losses.piece)
        steps, _, *measures = dense_machine(
            rows.X, losses, there, rows.constant, room, self._changes, squared, goal.sharp, goal.max_iter
        )
        found = _losses.Measures(*measures)
        if not found.gap <= goal.gap * found.primal:
            return super().solve(qps, goal, control)
        return [self._found(losses, sums.copy(), found, Status.CONVERGED, steps)]


class WideSteps(Steps):
    """The same over factors of the kernel matrix: for fewer rows than features."""

    def __init__(self, X: Any, tau: float) -> None:
        self._wide = _rows.rows_of(X, tau)
        self.rows = _rows.DenseFeatures(gram_factor(X, tau), 0.0)

    @property
    def _own(self) -> Any:
        return self._wide

    def _run(
        self, machine: Any, wanted: _losses.Enough, asked: _losses.Enough, most: int
    ) -> tuple[Status, tuple[FloatArray, _losses.Measures] | None]:
        """Until it holds over the rows, too. Where it holds over their factors alone, the answer is as good as it gets."""
        self._closest, least, best = None, np.inf, machine.best

        def met(newton: _newton.Newton) -> bool:
            nonlocal least, best
            found = self._measured(newton)[1]
            if found.gap < least:
                least, best = found.gap, newton.losses.z.copy()
            holds = asked.met(found)
            self._closest = None if holds else Status.PRECISION
            return holds

        _newton.started(machine)
        status = _newton.solve(machine, wanted.met, met, most)
        machine.best[:] = best
        return status, None


class Sweeps(Steps):
    """Dual coordinate descent over sparse rows of many features, which several machines read together."""

    name = "coordinate"
    rows: _rows.SparseFeatures

    def groups(self, heads: Sequence[Head]) -> list[Sequence[Head]]:
        """Groups of the same length, nearly. What they are does not depend on who is free to work."""
        k = len(heads)
        if self.rows.n > MOST_SHARED:
            return super().groups(heads)
        parts = -(-k // GROUP)
        edges = [k * part // parts for part in range(parts + 1)]
        return [heads[first:last] for first, last in pairwise(edges)]

    def work(self, k: int) -> float:
        """Of so many sweeps as any machine takes."""
        return 2.0 * LEAST_SWEEPS * k * float(self.rows.X.nnz)

    def solve(self, qps: Sequence[DualQP], goal: Aim, control: Control) -> list[HeadFound] | None:
        """A group of machines; None where rounding stands before the goal of one."""
        losses = [_losses.losses_from(qp, self.rows.n) for qp in qps]
        goals = [self._goals(qp, goal) for qp in qps]
        descent = _coordinate.Descent(self.rows, losses, squared=bool(qps[0].diag.any()))
        ends = _coordinate.solve(
            descent, [wanted for wanted, _ in goals], goal.max_iter, lambda: control.reason() is not None
        )
        solved = []
        for h, measures in enumerate(descent.found):
            status = _end(ends[h], goals[h][1], measures)
            if status is None:
                return None
            status = status if status.ok else control.reason() or status
            solved.append(self._found(losses[h], descent.sums[h], measures, status, descent.took(h)))
        return solved


def _end(status: Status, asked: _losses.Enough, found: _losses.Measures) -> Status | None:
    """How a machine ended; None where rounding stood before the goal."""
    if status is Status.PRECISION:
        return Status.CONVERGED if asked.met(found) else None
    return status


def _in_order(X: Any) -> Any:
    """X, with the entries of each row in order. In place: X."""
    if is_sparse(X):
        X.sum_duplicates()  # there are none
    return X


def _engine(X: Any, tau: float) -> Steps | None:
    """What serves these rows, if anything does."""
    n, d = X.shape
    if d <= min(n, MOST_FEATURES if is_sparse(X) else MOST_DENSE):
        return (FewSteps if not is_sparse(X) and n * (d + 1) ** 2 <= FEW else Steps)(_in_order(X), tau)
    if n <= (EXACT_ROWS if is_sparse(X) else MOST_ROWS):
        return WideSteps(_in_order(X), tau)
    return Sweeps(X, tau) if is_sparse(X) else None


def _solution(
    X: Any, tau: float, head: Head, kernel: Kernel, columns: Columns, found: HeadFound, seconds: float, training: Any
) -> Solution:
    """The answer. The rest of its certificate is computed when somebody asks for it."""
    (support,) = found.z.nonzero()

    def measured() -> Certificate:
        return certificate(
            head.qp, KernelMatrix(_in_order(X), kernel, cache_bytes=0), _losses.variables(head.qp, found.z)
        )

    return Solution(
        n_points=len(found.z), intercept=float(tau * found.sums[-1]), support=support, dual_coef=found.z[support],
        kkt_violation=found.measures.violation, measured=measured, status=found.status, converged=found.status.ok,
        n_iter=found.steps, n_kernel_evals=0, fit_seconds=seconds, solver=found.solver, classes=head.classes,
        kernel=kernel, support_vectors=lambda: _in_order(X)[support], columns=columns, terms=head.terms,
        training=training,
    )  # fmt: skip


def _speak(solutions: list[Solution]) -> None:
    """One warning for all machines that have not come to their end."""
    late = [solution for solution in solutions if not solution.converged]
    if late:
        worst = max(solution.kkt_violation for solution in late)
        warn(
            f"{late[0].status}: {len(late)} of {len(solutions)} machines, KKT violation {worst:.1e}. "
            "Remedy: raise max_iter, time_limit or tol.",
            ConvergenceWarning,
        )
