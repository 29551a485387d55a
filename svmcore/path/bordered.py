"""The bordered system A of the published path algorithm: rank, solutions and null space, from one of three factorizations.

- "svd": A = U S V'.
- "qr": A E = Q R with column pivoting, by LAPACK.
- "update": the same, but Q and R are updated (`path/qr_jit`) where A is known to be non-singular. A point may leave. A point
  may enter when the indicator 1 + v'A^-1 u is not near zero. For an insertion this is the relative Schur complement.

Signs are part of beta = y alpha-hat. So A = [[0, 1'], [1, K_EE]] is the paper's (22) up to a diagonal of signs. It is
symmetric and indefinite, so V is not U. Since A = A', the last columns of Q span the null space.

Cost: O(m^3) where A is decomposed. An update, and every solution, takes O(m^2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import lapack, solve_triangular

from svmcore._types import NONZERO, FloatArray, IntArray
from svmcore.kernel.rows import RowStore
from svmcore.path import qr_jit

INDICATOR = 1e-8
"""A relative Schur complement below this warns of a singular A."""
SHARE = 32
"""Updating is cheaper than decomposing when there are so many times fewer changes than points."""


class Bordered:
    """A for the present elbow. `points` holds the elbow in the order of A's columns.

    `fresh` says that A was decomposed and not updated. Then the factors are U, the singular values and V', or what
    `packed_qr` returns. Updated factors are Q', R and the order of columns.
    """

    def __init__(self, mode: str, store: RowStore, border: int, rank_tol: float) -> None:
        self.mode, self.store, self.border, self.rank_tol = mode, store, border, rank_tol
        self.n_fresh = self.n_updates = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.points: IntArray = np.empty(0, dtype=np.int64)
        self.factors: tuple[Any, Any, Any] | None = None
        self.rank, self.fresh = 0, False

    @property
    def size(self) -> int:
        """The number of rows of A."""
        return self.points.size + self.border

    @property
    def nullity(self) -> int:
        """The dimension of the null space."""
        return self.size - self.rank

    def become(self, points: IntArray) -> None:
        """Decompose A for a new elbow, or update it. After a decomposition the order of columns is that of `points`."""
        if self.mode == "update" and self.factors is not None and self.nullity == 0:
            gone = np.setdiff1d(self.points, points, assume_unique=True)
            come = np.setdiff1d(points, self.points, assume_unique=True)
            few = gone.size + come.size <= max(4, points.size // SHARE)
            if few and gone.size < self.points.size and self._update(gone, come):
                return
        self.points = np.array(points)
        self.decompose()

    def decompose(self) -> None:
        """Decompose A from scratch."""
        self.n_fresh += 1
        self.fresh = True
        A = self._matrix()
        if self.mode == "svd":
            U, sizes, Vt = np.linalg.svd(A)
            self.factors = (U, sizes, Vt)
        else:
            self.factors = packed_qr(A)
            sizes = np.abs(np.diag(self.factors[0]))
        self.rank = int((sizes >= self.size * self.rank_tol * max(1.0, float(sizes[0]))).sum()) if self.size else 0

    def _matrix(self) -> FloatArray:
        border = self.border
        A = np.zeros((self.size, self.size))
        if border:
            A[0, 1:] = A[1:, 0] = 1.0
        A[border:, border:] = self.store.block(self.points)
        return A

    def _update(self, gone: IntArray, come: IntArray) -> bool:
        """Follow the changes one by one. Returns False when the indicator warns of a singular A."""
        assert self.factors is not None
        factors, now = (unpacked(*self.factors) if self.fresh else self.factors), self.points
        for i in gone:
            k = int(np.flatnonzero(now == i)[0])
            factors = qr_jit.remove_at(*factors, k + self.border)
            now = np.delete(now, k)
        for i in come:
            column = np.ones(now.size + self.border)
            row = self.store.rows[self.store.slot[i]]
            column[self.border :] = row[now]
            corner = float(row[i])
            schur = corner - float(column @ qr_jit.basic_solution(*factors, column.size, column))
            if not abs(schur) > INDICATOR * max(corner, NONZERO):
                return False
            factors = qr_jit.insert_last(*factors, column, corner)
            now = np.append(now, i)
        self.factors, self.points = factors, now
        self.rank, self.fresh = self.size, False
        self.n_updates += 1
        return True

    def solve(self, right: FloatArray) -> FloatArray:
        """A solution of A x = right in the least squares sense. By SVD it has the least norm, by QR it is a basic one."""
        assert self.factors is not None
        r = self.rank
        if self.mode == "svd":
            U, sizes, Vt = self.factors
            return np.asarray(Vt[:r].T @ ((U[:, :r].T @ right) / sizes[:r]))
        if not self.fresh:
            return np.asarray(qr_jit.basic_solution(*self.factors, r, right))
        packed, reflectors, order = self.factors
        x = np.zeros(self.size)
        if r:
            x[order[:r]] = solve_triangular(packed[:r, :r], apply_q(packed, reflectors, right, "T")[:r])
        return x

    def null_basis(self) -> FloatArray:
        """Orthonormal columns that span the null space of A."""
        assert self.factors is not None
        r = self.rank
        if self.mode != "svd":  # fresh factors of QR, since an updated A has no null space
            last = np.zeros((self.size, self.size - r), order="F")
            last[np.arange(r, self.size), np.arange(self.size - r)] = 1.0
            return apply_q(*self.factors[:2], last, "N")
        return np.asarray(self.factors[2][r:].T)


def packed_qr(A: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """QR with column pivoting by LAPACK, in blocks. Returns R with the reflectors below it, their factors, and the order."""
    n = A.shape[0]
    if n == 0:
        return np.empty((0, 0)), np.empty(0), np.empty(0, dtype=np.int64)
    packed, pivots, reflectors, _, _ = lapack.dgeqp3(A, lwork=_workspace(n))
    return packed, reflectors, pivots.astype(np.int64) - 1


def unpacked(packed: FloatArray, reflectors: FloatArray, order: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Q', stored by rows, R and the order of columns, as `path/qr_jit` updates them."""
    n = packed.shape[0]
    R = np.ascontiguousarray(np.triu(packed))
    Q = lapack.dorgqr(packed, reflectors, lwork=_workspace(n))[0] if n else packed
    return Q.T, R, order


def apply_q(packed: FloatArray, reflectors: FloatArray, right: FloatArray, trans: str) -> FloatArray:
    """Q right ("N") or Q' right ("T"), without forming Q."""
    columns = right.reshape(packed.shape[0], -1)
    if columns.size == 0:
        return right
    got = lapack.dormqr("L", trans, packed, reflectors, columns, lwork=_workspace(max(columns.shape)))[0]
    return np.asarray(got.reshape(right.shape))


def _workspace(n: int) -> int:
    """The size of LAPACK's workspace for blocks of 64 columns."""
    return 4160 + 66 * (n + 1)
