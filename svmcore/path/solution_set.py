"""All solutions at one C: (50)-(52) of Ong, Shao and Yang. They differ by vectors of a null space, inside a polytope."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.base.highs import LinearProgram
from svmcore.path.data import kernel_of
from svmcore.path.measure import ZERO

_RANK = 1e-14
"""A singular value counts for the rank if it is above this share of the largest one, times the size of the matrix."""


class SolutionSet(NamedTuple):
    """Every solution of the dual problem at one C.

    The points `index` lie on the margin. Their `dual_coef` (y alpha) may be replaced by ``dual_coef + null_space @ z`` for
    every z that keeps it between `lower` and `upper`. All other points have one value. No such change moves the objective or
    the decision function. If `null_space` has no columns, the solution is unique.
    """

    C: float
    index: IntArray  # type: ignore[assignment]
    dual_coef: FloatArray
    null_space: FloatArray
    lower: FloatArray
    upper: FloatArray

    def extent(self) -> tuple[FloatArray, FloatArray]:
        """The smallest and the largest value of each entry of `dual_coef` among all solutions, by two programs a point."""
        low, high = self.dual_coef.copy(), self.dual_coef.copy()
        program, size = LinearProgram(), self.null_space.shape[1]
        if size == 0:
            return low, high
        room = np.minimum(self.lower - self.dual_coef, 0.0), np.maximum(self.upper - self.dual_coef, 0.0)
        free = np.full(size, np.inf)
        for k, direction in enumerate(self.null_space):
            for out, sign in ((low, 1.0), (high, -1.0)):
                got = program.solve(sign * direction, self.null_space, *room, -free, free)
                if got.ok:
                    out[k] = np.clip(self.dual_coef[k] + direction @ got.x, self.lower[k], self.upper[k])
        return low, high


def solution_set_at(path: Any, C: float) -> SolutionSet:
    """See `Path.solution_set`."""
    data = path._data
    coef = np.asarray(path.dual_coef(float(C)))
    variable = data.groups.of
    real = np.flatnonzero(variable >= 0)
    beta: FloatArray = np.bincount(variable[real], weights=coef[real], minlength=path._problem.slope.size).astype(
        np.float64
    )
    K = kernel_of(data, 0)
    support = np.flatnonzero(beta)
    bias = float(path._bias(C)) if data.equality else 0.0
    residual = path._problem.slope - K.product(support, beta[support]) - bias
    index = real[np.abs(residual[variable[real]]) <= ZERO]
    bound = C * data.weights[index] * data.signs[index]
    lower, upper = np.minimum(bound, 0.0), np.maximum(bound, 0.0)
    return SolutionSet(float(C), index, coef[index], _null_space(K, variable[index], data.equality), lower, upper)


def _null_space(K: Any, variables: IntArray, equality: bool) -> FloatArray:
    """Orthonormal columns n with K n = 0 among the points of these variables. With an intercept sum n = 0, too."""
    distinct, of = np.unique(variables, return_inverse=True)
    A = np.asarray(K.block(distinct, distinct))[np.ix_(of, of)]
    diagonal = float(np.max(np.diag(A), initial=0.0))
    A = A + (diagonal if diagonal > 0.0 else 1.0) * equality
    _, sizes, Vt = np.linalg.svd(A)
    rank = int((sizes > variables.size * _RANK * sizes.max(initial=0.0)).sum())
    return np.ascontiguousarray(Vt[rank:].T)
