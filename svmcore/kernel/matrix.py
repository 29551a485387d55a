"""The kernel matrix as an oracle: values on demand, never stored unless asked for, every computed value counted.

`KernelMatrix` hides where the values come from (dense or sparse features, a matrix, a Python function). Solvers that run
compiled loops take `points` and `kernel` from it and fill rows themselves; everything else asks for rows, blocks and
products. Products are shared out to threads by target, so their bits do not depend on the number of threads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from svmcore import _kernels
from svmcore._errors import InputError
from svmcore._types import LANES, DualQP, FloatArray, IntArray, Kernel, KernelKind, Points
from svmcore.kernel import tiles

KernelFunction = Callable[[Any, Any], Any]

BLOCK_VALUES = 1 << 22  # kernel values that a Python callable is asked for at a time
_THREAD_VALUES = 1 << 20  # feature operations below which a second thread costs more than it brings
_SYMMETRIC_POINTS = 600  # from which a product of targets that are sources, too, uses their values twice,
_SYMMETRY_SAVES = 0.1  # if that saves this share of the work

_NO_PANELS = np.empty((0, 0, LANES))
_NO_FLOATS = np.empty(0)
_NO_INTS = np.empty(0, np.int64)
_NO_INDICES = np.empty(0, np.int32)
_NO_GRAM = np.empty((0, 0))


def padded(n: int) -> int:
    """n rounded up to whole panels."""
    return -(-n // LANES) * LANES


def aligned(shape: tuple[int, ...], *, zero: bool = False) -> FloatArray:
    """A float64 array that starts on a cache line, which full-width vector loads want."""
    size = math.prod(shape)
    buffer = np.zeros(size + 8) if zero else np.empty(size + 8)
    start = (-buffer.__array_interface__["data"][0] % 64) // 8
    return buffer[start : start + size].reshape(shape)


def is_sparse(X: Any) -> bool:
    """True for a scipy sparse matrix, without importing scipy."""
    return hasattr(X, "indptr")


def dense_points(X: FloatArray, order: IntArray) -> Points:
    """The rows `order` of a dense matrix as panels."""
    width = max(4, -(-X.shape[1] // 4) * 4)
    panels = aligned((padded(len(order)) // LANES, width, LANES), zero=True)
    _kernels.pack_panels(X, order, panels)
    return panel_points(len(order), panels)


def panel_points(n: int, panels: FloatArray) -> Points:
    """n dense points that are packed already."""
    return Points(n, panels, _NO_INTS, _NO_INDICES, _NO_FLOATS, _NO_FLOATS, _NO_INTS, _NO_GRAM)


def sparse_points(X: Any, order: IntArray | None) -> Points:
    """The rows `order` (None: all) of a canonical CSR matrix."""
    if order is not None:
        X = X[order]
    return Points(
        X.shape[0], _NO_PANELS, X.indptr.astype(np.int64), X.indices.astype(np.int32, copy=False),
        X.data.astype(np.float64, copy=False), tiles.row_sums(X.indptr, X.data * X.data), _NO_INTS, _NO_GRAM,
    )  # fmt: skip


def gram_points(gram: FloatArray, order: IntArray) -> Points:
    """The points `order` of a given kernel matrix."""
    return Points(
        len(order), _NO_PANELS, _NO_INTS, _NO_INDICES, _NO_FLOATS, _NO_FLOATS,
        np.ascontiguousarray(order, np.int64), gram,
    )  # fmt: skip


def new_scratch(n_features: int) -> tuple[FloatArray, IntArray, FloatArray]:
    """Scratch for `kernel_row`: a dense source and one block of exponents, seen as integers and as floats."""
    bits = np.zeros(LANES, np.int64)
    return np.zeros(max(4, -(-n_features // 4) * 4)), bits, bits.view(np.float64)


def call_kernel(function: KernelFunction, A: Any, B: Any, offset: float) -> FloatArray:
    """A checked block of values of the user's kernel function."""
    values = np.asarray(function(A, B), dtype=np.float64)
    if values.shape != (A.shape[0], B.shape[0]):
        raise InputError(
            f"kernel function returned shape {values.shape} for inputs of {A.shape[0]} and {B.shape[0]} rows; "
            f"it must return one value per pair, shape {(A.shape[0], B.shape[0])}"
        )
    if not np.isfinite(values).all():
        i, j = np.argwhere(~np.isfinite(values))[0]
        raise InputError(
            f"kernel function returned {values[i, j]} for a pair of rows; it must return finite numbers for all pairs"
        )
    return values + offset


class KernelMatrix:
    """K over `n` training points: k(x_i, x_j) + offset, in float64."""

    def __init__(
        self,
        X: Any,
        kernel: Kernel,
        function: KernelFunction | None = None,
        *,
        cache_bytes: int,
        n_threads: int = 1,
    ) -> None:
        self.X = X
        self.kernel = kernel
        self.function = function
        self.cache_bytes = cache_bytes
        self.n_threads = n_threads
        self.n: int = X.shape[0]
        self.n_evals = 0
        self.n_features = 0 if kernel.kind == KernelKind.PRECOMPUTED else int(X.shape[1])
        self._memo: tuple[IntArray, FloatArray, FloatArray] | None = None
        if function is not None and 8 * self.n**2 <= cache_bytes:
            gram = np.empty((self.n, self.n))
            for start, stop in self._slabs(self.n):
                gram[start:stop] = call_kernel(function, X[start:stop], X, 0.0)
            self.n_evals = self.n**2
            self.function = None
            self.X = gram
            self.kernel = kernel._replace(kind=int(KernelKind.PRECOMPUTED))
        self.points = self.subset(None)
        self.diagonal = self._diagonal()
        if not np.isfinite(self.diagonal).all():
            bad = int(np.flatnonzero(~np.isfinite(self.diagonal))[0])
            raise InputError(
                f"the kernel of sample {bad} with itself is {self.diagonal[bad]}; scale the features down, or lower gamma "
                "or degree"
            )

    def _slabs(self, width: int) -> list[tuple[int, int]]:
        """Row ranges whose blocks of `width` columns stay small."""
        step = max(1, BLOCK_VALUES // max(1, width))
        return [(start, min(start + step, self.n)) for start in range(0, self.n, step)]

    def _diagonal(self) -> FloatArray:
        if self.function is not None:
            ones = [call_kernel(self.function, self.X[i : i + 1], self.X[i : i + 1], 0.0)[0, 0] for i in range(self.n)]
            self.n_evals += self.n
            return np.array(ones) + self.kernel.offset
        diagonal = aligned((padded(self.n),))
        _kernels.kernel_diagonal(self.kernel, self.points, new_scratch(self.n_features), diagonal)
        return diagonal[: self.n]

    def subset(self, order: IntArray | None) -> Points:
        """The training points `order` (None: all of them) in the layout of the compiled kernels."""
        if self.function is not None:
            return gram_points(_NO_GRAM, np.arange(self.n) if order is None else order)
        if self.kernel.kind == KernelKind.PRECOMPUTED:
            return gram_points(self.X, np.arange(self.n) if order is None else order)
        if is_sparse(self.X):
            return sparse_points(self.X, order)
        return dense_points(self.X, np.arange(self.n) if order is None else order)

    def rows(self, index: IntArray) -> FloatArray:
        """K[index, :], shape (len(index), n)."""
        index = np.ascontiguousarray(index, np.int64)
        self.n_evals += len(index) * self.n
        if self.function is not None:
            return call_kernel(self.function, self.X[index], self.X, self.kernel.offset)
        out = aligned((len(index), padded(self.n)))
        _kernels.kernel_block(self.kernel, self.points, index, self.points, new_scratch(self.n_features), out)
        return out[:, : self.n]

    def block(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """K[rows][:, columns]."""
        rows = np.ascontiguousarray(rows, np.int64)
        self.n_evals += len(rows) * len(columns)
        if self.function is not None:
            return call_kernel(self.function, self.X[rows], self.X[columns], self.kernel.offset)
        out = aligned((len(rows), padded(len(columns))))
        scratch = new_scratch(self.n_features)
        _kernels.kernel_block(self.kernel, self.points, rows, self.subset(columns), scratch, out)
        return out[:, : len(columns)]

    def product_at(self, targets: IntArray, index: IntArray, coef: FloatArray) -> FloatArray:
        """K[targets][:, index] @ coef, for an index without repetitions."""
        if self.function is not None:
            return self.block(targets, index) @ coef if len(index) else np.zeros(len(targets))
        targets, index = (np.ascontiguousarray(i, np.int64) for i in (targets, index))
        if self._symmetry_may_pay(len(targets), len(index)):
            weights = np.zeros(self.n)
            weights[index] = coef
            own = weights[targets]
            weights[targets] = 0.0
            others = np.flatnonzero(weights)
            saved = (len(index) - len(others) - 0.5 * len(targets)) / len(index)
            if saved > _SYMMETRY_SAVES and np.bincount(targets).max() == 1:
                self.n_evals += len(targets) ** 2
                among = tiles.symmetric_product(self.kernel, self.subset(targets), own, self.n_threads)
                return among + self.product_at(targets, others, weights[others])
        self.n_evals += len(targets) * len(index)
        rows, columns = self.subset(targets), self.subset(index)
        return point_product(self.kernel, rows, columns, coef, self.n_features, self.n_threads)

    def _symmetry_may_pay(self, targets: int, sources: int) -> bool:
        pairs = self.points.panels.shape[0] > 0 and tiles.needs_pairs(self.kernel, self.n_features, sources)
        return pairs and min(targets, sources) >= _SYMMETRIC_POINTS

    def product(self, index: IntArray, coef: FloatArray) -> FloatArray:
        """K[:, index] @ coef. Asked twice in a row for the same product it answers from memory."""
        if self._memo is not None and np.array_equal(self._memo[0], index) and np.array_equal(self._memo[1], coef):
            return self._memo[2]
        if self.function is not None:
            self.n_evals += len(index) * self.n
            out = np.zeros(self.n)
            for start, stop in self._slabs(len(index)):
                if len(index):
                    block = call_kernel(self.function, self.X[start:stop], self.X[index], self.kernel.offset)
                    out[start:stop] = block @ coef
        else:
            out = self.product_at(np.arange(self.n), np.ascontiguousarray(index, np.int64), coef)
        out.flags.writeable = False
        self._memo = (index.copy(), coef.copy(), out)
        return out


def kernel_product(qp: DualQP, K: KernelMatrix, beta: FloatArray) -> FloatArray:
    """K beta over all points, from the points that carry weight."""
    coef = np.zeros(K.n)
    np.add.at(coef, qp.point, beta)
    support = np.flatnonzero(coef)
    return K.product(support, coef[support])


def point_product(
    kernel: Kernel, targets: Points, sources: Points, coef: FloatArray, n_features: int, n_threads: int
) -> FloatArray:
    """out_t = sum_s coef_s k(target_t, source_s), shared out to threads by target."""
    out = np.zeros(targets.n)
    if sources.n == 0 or targets.n == 0:
        return out
    if tiles.has_tile(kernel, targets, sources):
        return tiles.tile_product(kernel, targets, sources, coef, n_features, n_threads)
    weights = aligned((padded(sources.n),), zero=True)
    weights[: sources.n] = coef
    chunk = max(1, _kernels.CHUNK_VALUES // (max(1, sources.panels.shape[1]) * LANES))

    def run(start: int, stop: int) -> None:
        scratch, row = new_scratch(n_features), np.empty(chunk * LANES)
        _kernels.kernel_product(kernel, targets, start, stop, sources, weights, scratch, row, out)

    if n_threads < 2 or targets.n * sources.n * max(n_features, 1) < _THREAD_VALUES:
        run(0, targets.n)
        return out
    edges = np.linspace(0, targets.n, n_threads + 1).astype(int)
    with ThreadPoolExecutor(n_threads - 1) as pool:
        others = [pool.submit(run, int(a), int(b)) for a, b in pairwise(edges[1:])]
        run(0, int(edges[1]))
        for other in others:
            other.result()
    return out


def available_threads() -> int:
    """Processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
