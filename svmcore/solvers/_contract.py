"""What a solver declares about itself, and the measures that every solver needs in the middle of a run.

A solver is one file with ``CAPABILITIES`` and ``run(task, **own)``, which takes a `SolverTask` and returns a `Raw`. Keyword
parameters of `run` are options of this solver. ``OPTION_VALUES`` may say which values they accept. A name in the registry
(`solvers/__init__.py`) puts the solver under every contract test.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._types import NONZERO, DualQP, FloatArray, IntArray, KernelKind, Status
from svmcore.kernel.matrix import KernelMatrix, kernel_product
from svmcore.problem import measures

# A distance from a bound is the rounding of a sum below this share of the largest variable, times sqrt(n).
_DUST = 4e-15
# What every run may spend without progress is a sum of three parts: _FREE_WORK operations, which take some hundredths of a
# second; the cost of _FREE_STRETCHES stretches; and _DENSE_WORK n^3 operations, which are some fifteen dense factorisations.
_FREE_WORK, _FREE_STRETCHES, _DENSE_WORK = 3e7, 8, 5.0
_CONVEX = 1e-9  # a curvature below minus this share of the largest diagonal entry is not negative by rounding alone
# A value of a Python kernel counts as _CALLED operations. A stretch costs _VISIT operations on top of its iterations.
_CALLED, _VISIT = 1e3, 1e5

STOPPED = (Status.TIME_LIMIT, Status.INTERRUPTED, Status.CALLBACK)
"""How a run ends when somebody outside no longer wants to wait for it."""


class Capabilities(NamedTuple):
    """What a solver can do. The driver refuses what it cannot do, with a message."""

    summary: str
    equality: bool = True
    no_equality: bool = True
    infinite_bounds: bool = True
    finite_bounds: bool = True
    twins: bool = True  # two variables may belong to one point, as in regression
    warm_start: bool = True
    callable_kernel: bool = True
    factorises: bool = False  # it factorises the kernel matrix, unless the kernel is linear
    totals: bool = True  # the total of the equality row sum(beta) = total need not be zero


class SolverTask(NamedTuple):
    """What every solver is asked: a problem, its kernel, where to begin, and when to stop. -1 iterations are no limit."""

    qp: DualQP
    K: KernelMatrix
    control: Control
    tol: float
    start: FloatArray
    stopping: str = "kkt"
    max_iter: int = -1
    seed: int = 0
    trace: bool = False


class Outcome(NamedTuple):
    """A dual point at the tolerance, and its measures, computed in float64. Its sum is wrong by `excess`.

    `beta` has an entry for every variable, or for those only that are not zero. A gap of `vanishing` or less is rounding.
    """

    beta: FloatArray
    n_iter: int
    n_rounds: int
    n_evals: int
    certificate_evals: int
    violation: float
    bias: float
    objective: float
    gap: float
    excess: float
    vanishing: float = 0.0
    status: Status = Status.CONVERGED  # or PRECISION: rounding alone keeps it from the tolerance

    def quiet(self, large: float) -> bool:
        """Whether the gap is small beside the objective, or rounding."""
        return abs(self.gap) <= max(large * abs(self.gap - self.objective), self.vanishing, NONZERO)


def fresh_residual(qp: DualQP, K: KernelMatrix, beta: FloatArray) -> FloatArray:
    """The residual of a dual point, computed from the data."""
    return measures.residual(qp, beta, kernel_product(qp, K, beta))


def landed(qp: DualQP, beta: FloatArray) -> FloatArray:
    """A solver's answer, where variables that are free only by rounding are put onto their bounds.

    This is done where every free variable is next to a bound. Steps that keep sum(beta) have left the rounding of the sum in
    these variables. Otherwise they alone would decide the bias.
    """
    free = (beta > qp.lower) & (beta < qp.upper)
    room = np.minimum(beta - qp.lower, qp.upper - beta)[free]
    if not len(room) or (room > _DUST * np.sqrt(len(beta)) * np.abs(beta).max()).any():
        return beta
    up = qp.upper - beta < beta - qp.lower
    return np.where(free, np.where(up, qp.upper, qp.lower), beta).astype(np.float64)


def spread(qp: DualQP, beta: FloatArray, free: IntArray, beside: float = 0.0) -> FloatArray:
    """beta whose sum and `beside` are 0, if the free variables have the room. Each gives the same share of its room."""
    excess = float(beta.sum()) + beside
    bound = qp.lower if excess > 0.0 else qp.upper
    room = np.abs(np.where(np.isfinite(bound), beta - bound, beta))[free]
    total = float(room.sum())
    if not total > abs(excess):
        return beta
    out = beta.copy()
    out[free] -= excess / total * room
    return out


def rounding(qp: DualQP, K: KernelMatrix, beta: FloatArray) -> float:
    """The typical rounding error of a residual that is computed in float64. A violation below this means nothing."""
    root = np.sqrt(np.abs(K.diagonal[qp.point]))
    product = float(root.max(initial=0.0) * np.linalg.norm(root * beta))
    return float(np.finfo(np.float64).eps) * (product + float(np.abs(qp.diag * beta).max(initial=0.0)))


def shows_convex(H: FloatArray, equality: bool) -> bool:
    """Whether no curvature is negative of those whose kernel matrix is H: with an equality row, of pairs of them."""
    d = np.diag(H)
    scale = float(np.abs(d).max(initial=0.0))
    curvature = d[:, None] + d[None, :] - 2.0 * H if equality else d
    return bool(curvature.min(initial=0.0) >= -_CONVEX * max(scale, NONZERO))


def product_work(K: KernelMatrix, sources: int) -> float:
    """Roughly how many operations a product of K with so many coefficients takes."""
    if K.function is not None:
        return _CALLED * K.n * sources
    if K.kernel.kind == KernelKind.LINEAR:
        return float(K.n + sources) * K.n_features
    return float(K.n) * sources * max(K.n_features, 8)


class Crawl:
    """Notices stretches of `patience` iterations in which the violation has not halved, and when these are too many.

    An iteration costs `cost` operations. A run may not spend more without progress than an exact method would cost.
    """

    def __init__(self, n: int, patience: int, cost: float) -> None:
        self.patience, self.cost = patience, cost
        self.left = _FREE_WORK + _FREE_STRETCHES * patience * cost + _DENSE_WORK * float(n) ** 3
        self._best, self._since = np.inf, 0

    def seen(self, violation: float, n_iter: int) -> bool:
        """Whether such a stretch has just ended."""
        if violation < 0.5 * self._best:
            self._best, self._since = violation, n_iter
        if n_iter - self._since < self.patience:
            return False
        self._since = n_iter
        self.left -= self.patience * self.cost + _VISIT
        return True

    def spend(self, work: float) -> None:
        """Count operations of another kind, which were spent to get out of a crawl."""
        self.left -= work

    @property
    def endless(self) -> bool:
        """Whether an exact method would have ended long ago."""
        return self.left < 0.0


class Criterion:
    """One of the three stopping criteria, with the memory that "objective" needs."""

    def __init__(self, stopping: str, tol: float) -> None:
        self.stopping = stopping
        self.tol = tol
        self._last = np.inf

    def met(self, qp: DualQP, beta: FloatArray, v: FloatArray, objective: float | None = None) -> bool:
        """Whether the criterion holds at a point with this residual. "objective" compares with the previous call.

        Where `qp` is only a part of the variables, the caller gives the `objective` of the whole problem.
        """
        if self.stopping == "kkt":
            return measures.violation(qp, beta, v) <= self.tol
        value = measures.objective(qp, beta, v) if objective is None else objective
        if self.stopping == "gap":
            gap = measures.gap(qp, beta, v, measures.best_bias(qp, beta, v))
            return gap <= self.tol * (abs(gap - value) + 1.0)
        growth, self._last = self._last - value, value
        return growth <= self.tol * abs(value)
