"""The kernel matrix as an oracle. It computes values on demand, and counts them.

`KernelMatrix` hides where the values come from: dense features, sparse features, a matrix, or a Python function. Values of
a function are stored if all of them fit into the cache. Other values are not stored. Solvers that run compiled loops take
`points` and `kernel` from here and fill rows themselves. Everything else asks for rows, blocks and products. Products are
shared out to threads by target, so their bits do not depend on the number of threads.
"""

from __future__ import annotations

import math
import os
from functools import cached_property
from typing import Any

import numpy as np

from svmcore import _kernels
from svmcore._errors import InputError
from svmcore._types import DualQP, FloatArray, IntArray, Kernel, KernelKind, Points
from svmcore.kernel.points import (
    aligned,
    dense_points,
    gram_points,
    is_sparse,
    near_points,
    new_scratch,
    padded,
    rows_of,
    sparse_points,
)
from svmcore.kernel.products import (
    NEAR,
    NEAR_FEATURES,
    KernelFunction,
    call_kernel,
    demand_symmetry,
    needs_pairs,
    pair_product,
    point_product,
    shape_of,
    symmetric_product,
)
from svmcore.kernel.table import facts_of
from svmcore.simd import vector

BLOCK_VALUES = 1 << 22  # kernel values that a Python callable is asked for at a time
# Where targets are sources, too, their kernel values can be used twice. That is done from _SYMMETRIC_POINTS points on, where
# it saves the share _SYMMETRY_SAVES of the work.
_SYMMETRIC_POINTS, _SYMMETRY_SAVES = 600, 0.1


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
        self.column_bytes = cache_bytes  # memory for columns of K that are costly to compute; the driver may allow more
        self.n_threads = n_threads
        # Several fits, one after the other, may share this matrix. Then the tiles that they make of it are kept in `tiles`.
        self.shared = False
        self.tiles: Any = None
        self.n: int = X.shape[0]
        # How many values a solver has computed, and how many a certificate. `solve` tells them apart. Where all values of a
        # function are `held` from the beginning, these are the numbers of values that were read.
        self.n_evals = 0
        self.certificate_evals = 0
        self.held = False
        self.n_features = 0 if kernel.kind == KernelKind.PRECOMPUTED else int(X.shape[1])
        self._memo: tuple[IntArray, FloatArray, FloatArray] | None = None
        if function is not None and 8 * self.n**2 <= cache_bytes:
            gram = np.empty((self.n, self.n))
            for start, stop in self._slabs(self.n):
                gram[start:stop] = call_kernel(function, X[start:stop], X, 0.0)
            demand_symmetry(gram, np.arange(self.n))
            self.held = True
            self.function = None
            self.X = gram
            self.kernel = kernel._replace(kind=int(KernelKind.PRECOMPUTED))
        # whether values come from dense features
        self.dense = self.function is None and self.kernel.kind != KernelKind.PRECOMPUTED and not is_sparse(self.X)
        self._points: Points | None = None
        if facts_of(self.kernel).exponential:
            return  # ones, and nothing else
        if not math.isfinite(self.diagonal.sum()) and not np.isfinite(self.diagonal).all():
            bad = int(np.flatnonzero(~np.isfinite(self.diagonal))[0])
            raise InputError(
                f"the kernel of sample {bad} with itself is {self.diagonal[bad]}; scale the features down, or lower gamma "
                "or degree"
            )

    @property
    def computed(self) -> tuple[int, int]:
        """Values computed: by a solver, and for a certificate."""
        return (self.n**2, 0) if self.held else (self.n_evals, self.certificate_evals)

    @property
    def points(self) -> Points:
        """The training points in the layout of the compiled kernels: packed when they are first asked for."""
        if self._points is None:
            self._points = self.subset(None)
        return self._points

    def _slabs(self, width: int) -> list[tuple[int, int]]:
        """Row ranges whose blocks of `width` columns stay small."""
        step = max(1, BLOCK_VALUES // max(1, width))
        return [(start, min(start + step, self.n)) for start in range(0, self.n, step)]

    @cached_property
    def diagonal(self) -> FloatArray:
        """The values of the points with themselves."""
        if self.function is not None:
            ones = [call_kernel(self.function, self.X[i : i + 1], self.X[i : i + 1], 0.0)[0, 0] for i in range(self.n)]
            self.n_evals += self.n
            return np.array(ones) + self.kernel.offset
        facts = facts_of(self.kernel)
        if self.kernel.kind == KernelKind.PRECOMPUTED:
            return np.asarray(self.X.diagonal() + self.kernel.offset)
        if facts.measure != "product":  # the distance of a point from itself is zero
            return np.full(self.n, 1.0 + self.kernel.offset)
        measure = np.einsum("ij,ij->i", self.X, self.X) if self.dense else self.points.norms
        with np.errstate(over="ignore", invalid="ignore"):  # the constructor looks for values that are not finite
            return np.asarray(facts.value(self.kernel, measure) + self.kernel.offset)

    @cached_property
    def squares(self) -> FloatArray | None:
        """|x|^2 of every point, where rbf distances are computed from them: of wide dense data of small norm."""
        if not self.dense or self.kernel.kind != KernelKind.RBF or self.n_features < NEAR_FEATURES:
            return None
        squares: FloatArray = np.einsum("ij,ij->i", self.X, self.X)
        return squares if self.near(squares) else None

    def near(self, squares: FloatArray) -> bool:
        """Whether distances of points with these squares of norms may be computed from them."""
        return bool(shape_of(self.kernel).scale * float(squares.max(initial=0.0)) <= NEAR)

    @property
    def shape(self) -> vector.Shape:
        """The float64 tile of dense points."""
        shape = shape_of(self.kernel)
        return shape if self.squares is None else vector.NearRbf(*shape)

    def panels(self, order: IntArray) -> FloatArray:
        """The dense points `order` as that tile reads columns: with squares, where distances are computed from them."""
        if self.squares is None:
            return dense_points(self.X, order, self.n_threads).panels
        return near_points(self.X, self.squares, order, self.n_threads).panels

    def packed(self, order: IntArray) -> FloatArray:
        """The dense points `order` as it reads rows."""
        none = np.zeros(self.n_features)
        return rows_of(self.X, order, np.float64, none, last=self.squares, n_threads=self.n_threads)

    def subset(self, order: IntArray | None) -> Points:
        """The training points `order` (None: all of them) in the layout of the compiled kernels."""
        if self.function is not None:
            return gram_points(np.empty((0, 0)), np.arange(self.n) if order is None else order)
        if self.kernel.kind == KernelKind.PRECOMPUTED:
            return gram_points(self.X, np.arange(self.n) if order is None else order)
        if is_sparse(self.X):
            return sparse_points(self.X, order)
        return dense_points(self.X, np.arange(self.n) if order is None else order, self.n_threads)

    def rows(self, index: IntArray) -> FloatArray:
        """K[index, :], shape (len(index), n)."""
        index = np.ascontiguousarray(index, np.int64)
        self.n_evals += len(index) * self.n
        if self.function is not None:
            values = call_kernel(self.function, self.X[index], self.X, self.kernel.offset)
            demand_symmetry(values[:, index], index)
            return values
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
        """K[targets][:, index] @ coef. No entry of `index` may repeat."""
        if self.function is not None:
            return self.block(targets, index) @ coef if len(index) else np.zeros(len(targets))
        targets, index = (np.ascontiguousarray(i, np.int64) for i in (targets, index))
        pairs = self.dense and needs_pairs(self.kernel, self.n_features, len(index))
        if pairs and min(len(targets), len(index)) >= _SYMMETRIC_POINTS:
            weights = np.zeros(self.n)
            weights[index] = coef
            own = weights[targets]
            weights[targets] = 0.0
            others = np.flatnonzero(weights)
            saved = (len(index) - len(others) - 0.5 * len(targets)) / len(index)
            if saved > _SYMMETRY_SAVES and np.bincount(targets).max() == 1:
                self.n_evals += len(targets) * (len(targets) + 1) // 2  # each value is computed once and used twice
                panels, pack = self.panels(targets), lambda places: self.packed(targets[places])
                among = symmetric_product(self.shape, panels, pack, own, self.n_threads)
                among += self.kernel.offset * own.sum()
                return among + self.product_at(targets, others, weights[others]) if others.size else among
        self.n_evals += len(targets) * len(index)
        if pairs:
            values = pair_product(self.shape, self.panels(targets), self.packed(index), coef, self.n_threads)
            return np.asarray(values[: len(targets)] + self.kernel.offset * coef.sum())
        return point_product(
            self.kernel, self.subset(targets), self.subset(index), coef, self.n_features, self.n_threads
        )

    def remembers(self, index: IntArray, coef: FloatArray) -> bool:
        """Whether this was the last product."""
        memo = self._memo
        return memo is not None and np.array_equal(memo[0], index) and np.array_equal(memo[1], coef)

    def product(self, index: IntArray, coef: FloatArray) -> FloatArray:
        """K[:, index] @ coef. The last product is remembered. Asked for the same again, the answer comes from memory."""
        if self._memo is not None and self.remembers(index, coef):
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


def available_threads() -> int:
    """Processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
