"""The bordered system A of the published path algorithm: rank, solutions and null space, from one of three factorizations.

"svd": A = U S V'. "qr": A E = Q R with column pivoting (LAPACK). "update": the same, and Q and R are updated
(`path/qr_jit`) where A is known to be non-singular: a point that leaves, and a point that enters when the indicator
1 + v'A^-1 u (over the two rank-one changes of an insertion: the relative Schur complement) is not near zero.

Signs are folded into beta = y alpha-hat, so A = [[0, 1'], [1, K_EE]] is the paper's (22) up to a diagonal of signs. It is
symmetric and indefinite: V is not U, and the last columns of Q span the null space because A = A'.

Cost: O(m^3) where A is decomposed, O(m^2) where it is updated and for every solution.
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
"""So many times fewer changes than points make updating cheaper than decomposing."""


class Bordered:
    """A for the present elbow. `points` holds the elbow in the order of A's columns; `fresh`: decomposed, not updated.

    Fresh factors are U, the singular values and V', or `packed_qr`'s; updated ones are Q', R and the order of columns.
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
        """Rows of A."""
        return self.points.size + self.border

    @property
    def nullity(self) -> int:
        """Dimension of the null space."""
        return self.size - self.rank

    def become(self, points: IntArray) -> None:
        """Decompose for a new elbow, or update. The order of columns is that of `points` after a decomposition."""
        if self.mode == "update" and self.factors is not None and self.nullity == 0:
            gone = np.setdiff1d(self.points, points, assume_unique=True)
            come = np.setdiff1d(points, self.points, assume_unique=True)
            few = gone.size + come.size <= max(4, points.size // SHARE)
            if few and gone.size < self.points.size and self._update(gone, come):
                return
        self.points = np.array(points)
        self.decompose()

    def decompose(self) -> None:
        """From scratch."""
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
        """Follow the changes one by one; False when the indicator warns of rank deficiency."""
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
        """A solution of A x = right, in the least squares sense: of least norm (SVD), or basic (QR)."""
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
        if self.mode != "svd":  # an updated A has none
            last = np.zeros((self.size, self.size - r), order="F")
            last[np.arange(r, self.size), np.arange(self.size - r)] = 1.0
            return apply_q(*self.factors[:2], last, "N")
        return np.asarray(self.factors[2][r:].T)


def packed_qr(A: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """QR with column pivoting by LAPACK, in blocks: R over the reflectors, their factors, the order of columns."""
    n = A.shape[0]
    if n == 0:
        return np.empty((0, 0)), np.empty(0), np.empty(0, dtype=np.int64)
    packed, pivots, reflectors, _, _ = lapack.dgeqp3(A, lwork=_workspace(n))
    return packed, reflectors, pivots.astype(np.int64) - 1


def unpacked(packed: FloatArray, reflectors: FloatArray, order: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Q' (rows contiguous), R and the order of columns, as `path/qr_jit` updates them."""
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
    """Room for blocks of 64 columns."""
    return 4160 + 66 * (n + 1)
