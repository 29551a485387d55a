"""Kernel values between rows of any data and the variables of a path."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore import _kernels
from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray, KernelKind
from svmcore.kernel import points, products
from svmcore.kernel.points import aligned, dense_points, is_sparse, new_scratch, padded, sparse_points
from svmcore.kernel.products import call_kernel
from svmcore.kernel.table import facts_of, is_positive
from svmcore.models.decision import Decision


class Cross:
    """k(x, variable) without the offset, for the rows x of X, which are checked. `data` is the `Data` of a path."""

    few: bool = False
    """Whether the values of all variables are there, so that nothing is saved by asking for some."""

    def __init__(self, data: Any, X: Any) -> None:
        self.data = data
        self.kernel = data.spec.kernel._replace(offset=0.0)
        self.given = self.kernel.kind == KernelKind.PRECOMPUTED
        self.width = int(data.X.shape[1])
        if X.shape[1] != self.width:
            raise InputError(f"X has {X.shape[1]} columns; this path was computed with {self.width}")
        if data.spec.function is None and not self.given and is_sparse(X) != is_sparse(data.X):
            from scipy import sparse

            X = sparse.csr_matrix(X) if is_sparse(data.X) else X.toarray()
        self.X = X
        self.n = int(X.shape[0])
        self.pack = sparse_points if is_sparse(X) else dense_points

    def columns(self, variables: IntArray) -> Any:
        """Some of the variables, in the form that `block` takes."""
        points = self.data.groups.first[variables]
        if self.given:
            return points
        return self.data.X[points] if self.data.spec.function is not None else self.pack(self.data.X, points)

    def block(self, rows: IntArray, columns: Any) -> FloatArray:
        """Kernel values between the rows and what `columns` returned."""
        if self.given:
            return np.ascontiguousarray(self.X[np.ix_(rows, columns)])
        if self.data.spec.function is not None:
            return call_kernel(self.data.spec.function, self.X[rows], columns, 0.0)
        targets = self.pack(self.X, rows)
        out = products.exact_block(self.kernel, targets, columns)
        if out is None:
            out = aligned((rows.size, padded(columns.n)))
            _kernels.kernel_block(
                self.kernel, targets, np.arange(rows.size), columns, new_scratch(self.X.shape[1]), out
            )
            out = out[:, : columns.n]
        return out

    def values(self, rows: slice | IntArray, variables: IntArray, coef: FloatArray) -> FloatArray:
        """The sum over variables of coef times kernel value, for some rows."""
        points = self.data.groups.first[variables]
        piece = self.X[rows]
        if self.given:
            return np.asarray(piece[:, points] @ coef, dtype=np.float64)
        return Decision(self.data.X[points], coef, self.kernel, self.data.spec.function)(piece, self.data.n_threads)

    def roots(self) -> FloatArray | None:
        """sqrt k(x, x) of every row. None where this is not known, or where the kernel may not be an inner product."""
        kernel = self.kernel
        if self.data.spec.function is not None:
            return None
        if facts_of(kernel).exponential:
            return np.ones(self.n)
        if not is_positive(kernel):
            return None
        square = points.row_sums(self.X.indptr, self.X.data**2) if is_sparse(self.X) else (self.X * self.X).sum(axis=1)
        return np.asarray(np.sqrt(facts_of(kernel).value(kernel, np.asarray(square))))
