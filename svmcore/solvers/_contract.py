"""What a solver declares about itself, and the measures every solver needs in the middle of a run.

A solver is one file with ``CAPABILITIES`` and ``run(qp, K, *, control, tol, stopping, max_iter, start, seed, trace, **own)``
that returns a `Raw`. Its own options are the keyword parameters of `run` beyond those; ``OPTION_VALUES`` may list what
they accept. A name in the registry (`solvers/__init__.py`) puts it under every contract test.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore import _measures
from svmcore._types import DualQP, FloatArray
from svmcore.gram import KernelMatrix, kernel_product

_DUST = 4e-15  # a distance from a bound below this share of the box, times sqrt(n), is rounding of a sum


class Capabilities(NamedTuple):
    """What a solver can do; the driver refuses in words what it cannot."""

    summary: str
    equality: bool = True
    no_equality: bool = True
    infinite_bounds: bool = True
    finite_bounds: bool = True
    twins: bool = True  # two variables on one point (regression)
    warm_start: bool = True
    callable_kernel: bool = True
    linear_only: bool = False


def fresh_residual(qp: DualQP, K: KernelMatrix, beta: FloatArray) -> FloatArray:
    """The residual of a dual point, computed from the data."""
    return _measures.residual(qp, beta, kernel_product(qp, K, beta))


def landed(qp: DualQP, beta: FloatArray) -> FloatArray:
    """A solver's answer without free variables that only rounding made free.

    Where every free variable is next to a bound, steps along sum(beta) = 0 left the sum's rounding there: such a
    variable would decide the bias alone.
    """
    free = (beta > qp.lower) & (beta < qp.upper)
    room = np.minimum(beta - qp.lower, qp.upper - beta)[free]
    width = np.where(np.isfinite(qp.upper - qp.lower), qp.upper - qp.lower, 0.0)[free]
    if not len(room) or (room > _DUST * np.sqrt(len(beta)) * width).any():
        return beta
    up = qp.upper - beta < beta - qp.lower
    return np.where(free, np.where(up, qp.upper, qp.lower), beta).astype(np.float64)


class Criterion:
    """One of the three stopping criteria, with the memory that "objective" needs."""

    def __init__(self, stopping: str, tol: float) -> None:
        self.stopping = stopping
        self.tol = tol
        self._last = np.inf

    def met(self, qp: DualQP, beta: FloatArray, v: FloatArray, objective: float | None = None) -> bool:
        """Whether it holds at a point with this residual. "objective" compares with the previous call.

        On a part of the variables the caller gives the `objective` of the whole.
        """
        if self.stopping == "kkt":
            return _measures.violation(qp, beta, v) <= self.tol
        value = _measures.objective(qp, beta, v) if objective is None else objective
        if self.stopping == "gap":
            gap = _measures.gap(qp, beta, v, _measures.best_bias(qp, beta, v))
            return gap <= self.tol * (abs(gap - value) + 1.0)
        growth, self._last = self._last - value, value
        return growth <= self.tol * abs(value)
