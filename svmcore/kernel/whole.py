"""The kernel among all points at once, for those who use it many times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from svmcore._types import FloatArray, IntArray, Kernel, KernelKind
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.products import NEAR_FEATURES, call_kernel, demand_symmetry
from svmcore.kernel.table import facts_of
from svmcore.kernel.tiles import exact_gram, has_gram
from svmcore.simd.loops import copy_block

_ROWS = 512
# BLAS makes products of few points faster than tiles do: products alone of at most _FEW, and values of other kernels, which
# take a second pass, where there are _WIDE times as many features.
_FEW, _WIDE = 256, 4


def whole_kernel(
    X: Any, kernel: Kernel, function: Callable[[Any, Any], Any] | None, n_threads: int,
    room: Callable[[tuple[int, int]], FloatArray] = np.empty,
) -> FloatArray:  # fmt: skip
    """k(x_i, x_j) for all pairs, without the kernel's offset. Tiles write it to memory that `room(shape)` returns."""
    n = X.shape[0]
    starts = range(0, n, _ROWS)
    if function is not None:
        values = np.concatenate([call_kernel(function, X[k : k + _ROWS], X, 0.0) for k in starts])
        demand_symmetry(values, np.arange(n))
        return values
    K = KernelMatrix(X, kernel._replace(offset=0.0), cache_bytes=0, n_threads=n_threads)
    whole = exact_gram(K, lambda _: True, room) if has_gram(K) else None
    if whole is None:
        whole = np.concatenate([K.rows(np.arange(k, min(k + _ROWS, n))) for k in starts])
    return whole[:, :n]


def gram_of(K: KernelMatrix) -> FloatArray:
    """K among all points in float64. Of a given matrix without an offset it is that matrix itself."""
    kind = K.kernel.kind
    if kind == KernelKind.PRECOMPUTED and K.function is None:
        return np.asarray(K.X + K.kernel.offset if K.kernel.offset else K.X)
    facts, measure = facts_of(K.kernel), None
    if K.dense and (K.n <= _FEW if kind == KernelKind.LINEAR else _WIDE * K.n <= K.n_features):
        if facts.measure == "product":
            measure = _products(K.X)
        elif kind == KernelKind.RBF and K.n_features >= NEAR_FEATURES:
            products = _products(K.X)
            measure = _distances(products) if K.near(products.diagonal()) else None
    if measure is not None:
        K.n_evals += K.n * K.n
        values = facts.value(K.kernel, measure)
        return values + K.kernel.offset if K.kernel.offset else values
    whole = exact_gram(K, lambda _: True) if has_gram(K) else None
    if whole is not None:
        return whole
    every = np.arange(K.n)
    return np.ascontiguousarray(K.block(every, every))


@one_blas_thread
def _products(X: FloatArray) -> FloatArray:
    """x'z for all pairs."""
    return X @ X.T


def _distances(products: FloatArray) -> FloatArray:
    """Squared distances from products. They are symmetric, and that of a point from itself is zero."""
    squares = products.diagonal()
    return np.maximum(squares + squares[:, None] - 2.0 * products, 0.0)


def part_of(gram: FloatArray, rows: IntArray, columns: IntArray, out: FloatArray | None = None) -> FloatArray:
    """gram[rows, columns], as a new array or in `out`. It takes half the time of numpy, which picks single values."""
    if out is None:
        out = np.empty((rows.size, columns.size))
    copy_block(out, gram, np.arange(gram.shape[0]), rows, columns)
    return out
