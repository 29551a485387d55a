"""The decision function of a machine, made ready once: support vectors in the layout each way of evaluating it reads.

| rows and kernel                          | way                                                                    |
|------------------------------------------|------------------------------------------------------------------------|
| linear                                   | one weight per feature                                                 |
| a few rows, kernels of distances, dense  | the compiled kernel row over panels of support vectors                 |
| a few rows, kernels of products, dense   | products with the support vectors by BLAS                              |
| a few rows, sparse                       | products feature by feature: only what the row holds is looked at      |
| more                                     | tiles, 64 rows at a time, shared out to threads                        |
| more, only the sign is asked for, dense  | tiles in float32 with a bound, and the above where it does not decide  |

The ways agree to rounding: a value differs by a small multiple of ``1e-16 sum_s |coef_s k(x, s)|``, for sparse rbf of that
times ``gamma |x|^2``. None of them depends on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from svmcore import _kernels
from svmcore._types import LANES, FloatArray, Kernel, KernelKind, Points
from svmcore.base.threads import one_blas_thread
from svmcore.kernel import matrix
from svmcore.kernel.points import (
    aligned,
    dense_points,
    is_sparse,
    mostly_empty,
    narrowed,
    new_scratch,
    padded,
    sparse_points,
)
from svmcore.kernel.products import call_kernel, point_product
from svmcore.kernel.rough import RoughProduct
from svmcore.kernel.table import facts_of

# A tile of 64 rows does not pay up to FEW rows, and up to FEW_PRODUCTS rows for kernels of products. Below _ONE_BY_ONE rows
# products with a matrix are slower together than one by one.
FEW, FEW_PRODUCTS = 24, 64
_ONE_BY_ONE = 8
_TEST_ROWS = 4096  # rows packed at a time
_MOST_WEIGHTS = 1 << 24  # features up to which a linear machine keeps a weight for each
# Support vectors are moved to their mean where that leaves less than the share _OFF_CENTRE of their squared norms. It must
# not change a weight: the sum of the coefficients must be zero, to the share _BALANCED of their sizes.
_OFF_CENTRE, _BALANCED = 0.1, 1e-9
# For signs single precision is asked first, from _WORTH_TWO feature operations on. It is given up where it leaves more than
# the share _MANY_OPEN of the first _FIRST_ROWS rows open.
_WORTH_TWO, _FIRST_ROWS, _MANY_OPEN = 1e7, 512, 0.5
_CANCELS = 1e4  # gamma |x|^2 above which a distance is not to be had from norms and a product


class Decision:
    """sum_s coef_s k(x, support_s), without the kernel's offset. Nothing is packed before it is needed.

    Two threads that come first at the same time both do the packing, with the same result.
    """

    def __init__(
        self, support: Any, coef: FloatArray, kernel: Kernel, function: Callable[[Any, Any], Any] | None
    ) -> None:
        self.support = support
        self.coef = coef
        self.kernel = kernel._replace(offset=0.0)
        self.function = function
        self.sparse = is_sparse(support)
        self.n_features = int(support.shape[1])
        self._facts = facts_of(kernel)
        self._products = self._facts.measure == "product"

    def __call__(self, X: Any, n_threads: int) -> FloatArray:
        """The values of the rows of X, as dense or sparse as the support; for a precomputed kernel its columns."""
        if self.kernel.kind == KernelKind.PRECOMPUTED:
            with one_blas_thread:
                return np.asarray(X @ self.coef, dtype=np.float64)
        if not len(self.coef):
            return np.zeros(X.shape[0])
        if self.function is not None:
            function, step = self.function, max(1, matrix.BLOCK_VALUES // len(self.coef))
            return self._in_blocks(X, step, lambda some: call_kernel(function, some, self.support, 0.0) @ self.coef)
        if self.sparse and is_sparse(X) and mostly_empty(self.support, X):
            support, X = narrowed(self.support, X)
            return Decision(support, self.coef, self.kernel, None)(X, n_threads)
        if self.kernel.kind == KernelKind.LINEAR and (not self.sparse or self.n_features <= _MOST_WEIGHTS):
            with one_blas_thread:
                return np.asarray(X @ self.weights)
        if X.shape[0] <= (FEW_PRODUCTS if self._products else FEW):
            return self._few(X)
        return self._tiled(X, n_threads)

    def _in_blocks(self, X: Any, step: int, values: Callable[[Any], FloatArray]) -> FloatArray:
        out = np.empty(X.shape[0])
        for start in range(0, X.shape[0], step):
            out[start : start + step] = values(X[start : start + step])
        return out

    def _tiled(self, X: Any, n_threads: int) -> FloatArray:
        what = self._sources, self.coef, self.n_features, n_threads
        return self._in_blocks(X, _TEST_ROWS, lambda some: point_product(self.kernel, self._packed(some), *what))

    def signs(self, X: Any, constant: float, n_threads: int) -> FloatArray:
        """Numbers with the signs of the values plus a constant. Where float32 cannot tell, they are the values themselves."""
        work = float(X.shape[0]) * len(self.coef) * self.n_features
        dense = not self.sparse and self.function is None and self.kernel.kind != KernelKind.PRECOMPUTED
        if work < _WORTH_TWO or not (dense and RoughProduct.serves(self.kernel, self.n_features, len(self.coef))):
            return self(X, n_threads) + constant
        rough, out, start = self._rough, np.empty(X.shape[0]), 0
        while start < len(out):
            some = X[start : start + (_TEST_ROWS if start else _FIRST_ROWS)]
            values, bounds = rough(some, n_threads)
            values += constant
            left = np.flatnonzero(~(np.abs(values) > bounds))
            if not start and left.size > _MANY_OPEN * len(some):
                return self._tiled(X, n_threads) + constant
            if left.size:
                values[left] = self._tiled(some[left], n_threads) + constant
            out[start : start + len(some)] = values
            start += len(some)
        return out

    # ---- what is kept ------------------------------------------------------------------------------------------------

    @cached_property
    def weights(self) -> FloatArray:
        """One weight per feature: the linear machine itself."""
        support, coef = self.support, self.coef
        with one_blas_thread:
            if not self.sparse and abs(float(coef.sum())) <= _BALANCED * float(np.abs(coef).sum()):
                mean, energy = support.mean(axis=0), float(np.vdot(support, support))
                if energy - len(support) * float(mean @ mean) < _OFF_CENTRE * energy:  # far from zero: time stamps, say
                    support = support - mean
            return np.asarray(support.T @ coef)

    def _packed(self, X: Any) -> Points:
        return sparse_points(X, None) if self.sparse else dense_points(X, np.arange(X.shape[0]))

    @cached_property
    def _sources(self) -> Points:
        return self._packed(self.support)

    @cached_property
    def _rough(self) -> RoughProduct:
        return RoughProduct(self.kernel, self.support, self.coef)

    @cached_property
    def _padded(self) -> FloatArray:
        weights = aligned((padded(len(self.coef)),), zero=True)
        weights[: len(self.coef)] = self.coef
        return weights

    @cached_property
    def _by_feature(self) -> tuple[Any, FloatArray]:
        """Sparse support vectors, transposed, and their squared norms."""
        return self.support.T.tocsr(), np.asarray(self.support.multiply(self.support).sum(axis=1)).ravel()

    # ---- a few rows --------------------------------------------------------------------------------------------------

    @one_blas_thread
    def _few(self, X: Any) -> FloatArray:
        products = self._products
        if self.sparse and (products or self.kernel.kind == KernelKind.RBF):
            transposed, squares = self._by_feature
            dots = (X @ transposed).toarray()
            if products:
                return np.array([self._of_products(row) for row in dots])
            own = np.asarray(X.multiply(X).sum(axis=1)).ravel()
            if self.kernel.gamma * max(own.max(), squares.max()) <= _CANCELS:
                distances = np.maximum((own[:, None] + squares) - 2.0 * dots, 0.0)
                return np.array([np.exp(-self.kernel.gamma * row) @ self.coef for row in distances])
        elif products:
            together = X.shape[0] >= _ONE_BY_ONE
            dots = X @ self.support.T if together else (self.support @ row for row in X)
            return np.array([self._of_products(row) for row in dots])
        targets, out = self._packed(X), np.empty(X.shape[0])
        room = np.empty(max(1, _kernels.CHUNK_VALUES // (max(1, self._sources.panels.shape[1]) * LANES)) * LANES)
        scratch = new_scratch(self.n_features)
        _kernels.kernel_product(self.kernel, targets, 0, X.shape[0], self._sources, self._padded, scratch, room, out)
        return out

    def _of_products(self, values: FloatArray) -> float:
        """The sum of kernel values, from the products of a row with every support vector."""
        return float(self._facts.value(self.kernel, values) @ self.coef)
