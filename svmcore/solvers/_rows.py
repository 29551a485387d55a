"""Rows of features as the solvers of linear machines read them: dense and sparse, each followed by a constant."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import blas

from svmcore._types import FloatArray, IntArray
from svmcore.kernel.points import is_sparse
from svmcore.solvers import _newton_jit as loops

LEVEL, LEAST_ROWS, SHARE = 8, 4000, 8  # a start on every 8th row, from so many rows on, and so many of them a feature
NARROW = 16  # features
# Entries of the rows that are copied at a time, and the fewest rows. New memory takes longer than what is done with it, and
# as little as this stays with the process.
_BLOCK, _LEAST_BLOCK = 1 << 16, 128


class DenseFeatures:
    """Rows of a C-ordered matrix, followed by a constant."""

    def __init__(self, X: FloatArray, constant: float) -> None:
        self.X, self.constant = X, constant
        self.n, self.d = X.shape
        self.gram: FloatArray | None = None  # of all rows, once a machine has asked for it

    @cached_property
    def part(self) -> DenseFeatures:
        """One row in `LEVEL`, for all machines over these rows."""
        return DenseFeatures(np.ascontiguousarray(self.X[::LEVEL]), self.constant)

    @cached_property
    def typical(self) -> float:
        """The mean of k(x, x)."""
        return float(np.vdot(self.X, self.X) / self.n + self.constant**2)

    def times(self, w: FloatArray) -> FloatArray:
        """X w + constant w0."""
        out: FloatArray = self.X @ w[:-1]
        if w[-1]:
            out += self.constant * w[-1]
        return out

    def add(self, rows: IntArray, by: FloatArray, out: FloatArray) -> None:
        """out += X[rows]' by. In place: out."""
        if 3 * len(rows) > self.n:
            full = np.zeros(self.n)
            full[rows] = by
            out[:-1] += full @ self.X
        elif len(rows):
            out[:-1] += by @ self.X[rows]
        out[-1] += self.constant * by.sum()

    def add_gram(self, rows: IntArray, by: FloatArray, sign: float, out: FloatArray, poll: Callable[[], bool]) -> None:
        """out += sign X[rows]' diag(by) X[rows], the lower half in Fortran's order. In place: out."""
        most = max(_LEAST_BLOCK, _BLOCK // (self.d + 1))
        add = self._add_narrow if self.d <= NARROW else self._add_wide
        for first in range(0, len(rows), most):
            chosen, weights = rows[first : first + most], by[first : first + most]
            part = self.X if len(chosen) == self.n else self.X[chosen]
            add(part, weights, sign, out)
            if poll():
                return

    def _add_narrow(self, part: FloatArray, by: FloatArray, sign: float, out: FloatArray) -> None:
        """Rows of few features, whose products take less time than to copy them once more."""
        weighted = part * (sign * by)[:, None]
        out[:-1, :-1] += part.T @ weighted
        out[-1, :-1] += self.constant * (np.ones(len(part)) @ weighted)
        out[-1, -1] += sign * self.constant**2 * by.sum()

    def _add_wide(self, part: FloatArray, by: FloatArray, sign: float, out: FloatArray) -> None:
        block = np.empty((len(part), self.d + 1), out.dtype)
        np.multiply(part, np.sqrt(by)[:, None], out=block[:, :-1])
        np.multiply(self.constant, np.sqrt(by), out=block[:, -1])
        syrk = blas.ssyrk if out.dtype == np.float32 else blas.dsyrk
        syrk(sign, block.T, beta=1.0, c=out, lower=1, overwrite_c=1)


class SparseFeatures:
    """Rows of a CSR matrix, followed by a constant. Only the Gram matrix of the features asks for sorted indices."""

    def __init__(self, X: Any, constant: float) -> None:
        self.X, self.constant = X, constant
        self.n, self.d = X.shape
        self.gram: FloatArray | None = None  # of all rows, once a machine has asked for it
        self.squares: FloatArray | None = None  # of the lengths of the rows, once a machine has asked for them
        self.lists = loops.Compressed(X.data, X.indices.view(np.uint32), X.indptr, constant)

    @cached_property
    def part(self) -> SparseFeatures:
        """One row in `LEVEL`, for all machines over these rows."""
        return SparseFeatures(self.X[::LEVEL], self.constant)

    @cached_property
    def typical(self) -> float:
        """The mean of k(x, x)."""
        return float(self.X.data @ self.X.data / self.n + self.constant**2)

    def times(self, w: FloatArray) -> FloatArray:
        """X w + constant w0."""
        out = np.empty(self.n)
        loops.sparse_times(self.lists, w, out)
        return out

    def add(self, rows: IntArray, by: FloatArray, out: FloatArray) -> None:
        """out += X[rows]' by. In place: out."""
        loops.sparse_add(self.lists, rows, by, len(rows), out)

    def add_gram(self, rows: IntArray, by: FloatArray, sign: float, out: FloatArray, poll: Callable[[], bool]) -> None:
        """out += sign X[rows]' diag(by) X[rows], the lower half in Fortran's order. In place: out."""
        loops.sparse_gram(self.lists, rows, sign * by, out.T)


def rows_of(X: Any, constant: float) -> DenseFeatures | SparseFeatures:
    """The rows of a matrix as steps read them."""
    return SparseFeatures(X, constant) if is_sparse(X) else DenseFeatures(X, constant)
