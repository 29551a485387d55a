"""Kernel blocks and kernel-times-vector in float32, and the same products exactly in float64, from register tiles.

`DenseTiles` and `SparseTiles` serve the kernels that have a tile. `OracleTiles` serves everything else, by `KernelMatrix`.
All of them speak of points. A product is shared out to threads by panels. Each panel sums in one fixed order, so the bits do
not depend on the number of threads. Short products are never shared out.
"""

from __future__ import annotations

import functools
import math
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from svmcore._types import LANES, FloatArray, IntArray, KernelKind
from svmcore.base.threads import split, split_falling
from svmcore.kernel.columns import ColumnStore
from svmcore.kernel.grams import KEPT_LEAST, WIDE, Tiles
from svmcore.kernel.points import (
    PACK,
    Real,
    is_binary,
    magnitudes,
    packed_weights,
    rows_of,
)
from svmcore.kernel.products import (
    FEW_TERMS,
    NEAR,
    SHAPES,
    Spread,
    add_form,
    add_sparse,
    terms_of,
    with_constant,
)
from svmcore.kernel.rough import ROUNDING, error_factors, error_of_dots
from svmcore.kernel.spare import lent, spare
from svmcore.kernel.table import facts_of
from svmcore.simd import loops, packing, sparse, vector

# An entry of a sparse point costs as much as _ENTRY features, where it is not a byte. Sparse tiles win below the share
# _SPARSE of stored entries.
_ENTRY = 3.0
_SPARSE = 0.25

# Rounding. Distances may be computed from norms: |x|^2 + |z|^2 - 2 x'z. Above _CANCELS, the largest scaled squared norm,
# that is too coarse in float32. Of many features it is coarser than a sum of squared differences above `products.NEAR`.
_CANCELS = 50.0


def single_frame(K: Any, shape: vector.Shape, *, centred: bool) -> tuple[bool, float]:
    """Whether dense points are moved to their mean, and what they are multiplied by, before they are rounded to float32."""
    kind, exponential = K.kernel.kind, facts_of(K.kernel).exponential
    factor = math.sqrt(shape.scale) if kind == KernelKind.RBF else shape.scale if exponential else 1.0
    return exponential or (kind == KernelKind.LINEAR and centred), factor


class DenseTiles(Tiles):
    """Tiles over dense points. `centred` data have the same dual solution when the kernel is linear and sum(beta) = 0."""

    def __init__(self, K: Any, *, centred: bool, n_threads: int = 1) -> None:
        super().__init__(K, n_threads)
        kind, width = K.kernel.kind, K.n_features
        self.form = with_constant(self.exact) if 0 < terms_of(K.kernel, width) <= FEW_TERMS else None
        self.exact_products = self.exact_products or self.form is not None
        self.effort = float(width)
        moved, self.factor = single_frame(K, self.shape, centred=centred)
        self.centre = np.add.reduce(K.X) / self.n if moved else np.zeros(width)
        count = -(-self.n // LANES)
        near = kind == KernelKind.RBF and self.costly
        self.panels, squares = lent("panels", (count, width + near, LANES), np.float32), np.empty(count * LANES)
        self._pack(np.arange(self.n), self.panels, squares)
        sizes, self.single_shape, self.last = squares[: self.n], self.shape, squares if near else None
        if near and sizes.max(initial=0.0) <= NEAR:
            self.single_shape = vector.NearRbf(*self.shape)
        elif near:
            self.panels[:, width] = 0.0  # a difference of nothing
            self.last = np.zeros(self.n)
        if kind == KernelKind.LAPLACIAN:
            sizes = np.abs(self.panels).sum(axis=1).ravel()[: self.n].astype(np.float64)
        near = self.single_shape is not self.shape
        self.error_factor = error_factors(K.kernel, width, sizes, float(sizes.max(initial=0.0)), near=near)

    def _pack(self, points: IntArray, out: Real, squares: FloatArray) -> None:
        """Some of the points in float32 panels, and their squared norms. In place: out, squares."""
        split(
            lambda a, b: packing.pack_panels(self.K.X, points, self.centre, self.factor, a, b, out, squares),
            len(out), PACK * float(out.size), self.n_threads,
        )  # fmt: skip

    def _rows(self, points: IntArray, *, single: bool) -> Real:
        """Some of the points as row groups."""
        if single:
            return rows_of(self.K.X, points, np.float32, self.centre, self.factor, self.last, self.n_threads)
        return self.K.packed(points)  # type: ignore[no-any-return]

    def _columns_of(self, points: IntArray, *, single: bool) -> Real:
        """Some of the points as panels."""
        if len(points) == self.n and (np.diff(points) == 1).all():
            return self._tile(single=single)[1]
        if not single:
            return self.K.panels(points)  # type: ignore[no-any-return]
        count = -(-len(points) // LANES)
        out = lent("some", (count, *self.panels.shape[1:]), np.float32)
        self._pack(points, out, np.empty(count * LANES))
        if self.last is not None and self.single_shape is self.shape:
            out[:, -1] = 0.0
        return out

    def _tile(self, *, single: bool) -> tuple[vector.Shape, Real]:
        """The tile of a number type, and the points as it reads columns."""
        return (self.single_shape, self.panels) if single else (self.K.shape, self._doubles)

    @cached_property
    def _doubles(self) -> FloatArray:
        return self.exact if self.K.squares is None else self.K.panels(np.arange(self.n))

    @cached_property
    def exact(self) -> FloatArray:
        """The points in float64: panels of the features, without padding."""
        return np.ascontiguousarray(self.K.points.panels[:, : self.K.n_features])

    @property
    def by_columns(self) -> bool:
        """As `Tiles.by_columns`."""
        return self.costly and not self.exact_products

    def _opened(self, dtype: Any) -> ColumnStore | None:
        """As `Tiles._opened`."""
        if not self.by_columns or (self._kept is not None and dtype == np.float32):
            return None
        if self._columns is None or self._columns.dtype != dtype:
            self._close()
            take = functools.partial(spare.take, "columns")
            self._columns = ColumnStore(self.n, self.K.column_bytes, dtype, self._store, take)
        return self._columns

    def _store(self, points: IntArray, out: Real) -> None:
        """Columns of the points, without the offset, in the type of `out`. In place: out, whole row groups of it."""
        single = out.dtype == np.float32
        (shape, source), packed = self._tile(single=single), self._rows(points, single=single)
        split(
            lambda a, b: loops.store_block(shape, packed, source, False, a, b, out),
            len(source), packed.nbytes / 4.0 * len(source) * LANES, self.n_threads,
        )  # fmt: skip

    def _compute(self, points: IntArray, out: Real) -> Real:
        """As `Tiles._compute`."""
        single = out.dtype != np.float64
        packed, panels = self._rows(points, single=single), self._columns_of(points, single=single)
        shape, half = self.single_shape if single else self.K.shape, panels.shape[1] >= WIDE
        share = split_falling if half else split
        share(
            lambda a, b: loops.store_block(shape, packed, panels, half, a, b, out),
            -(-len(points) // LANES), float(out.size * panels.shape[1]), self.n_threads,
        )  # fmt: skip
        return self._finish(out, len(points), half=half)

    def add_values(self, points: IntArray, coef: FloatArray, field: FloatArray, *, single: bool) -> None:
        """As `Tiles.add_values`. A kernel of few monomials is summed by them."""
        if self.form is not None:
            chosen = np.empty((-(-len(points) // LANES), *self.form.shape[1:]))
            packing.gather_panels(self.form, points, chosen)
            add_form(self.K.kernel, self.form, chosen, coef, self.n_threads, field)
            field += self.offset * coef.sum()
            return
        (shape, panels), packed = self._tile(single=single), self._rows(points, single=single)
        weights = packed_weights(packed, coef)
        split(
            lambda a, b: loops.add_block(shape, packed, weights, panels, a, b, field),
            len(panels), packed.nbytes / 4.0 * len(panels) * LANES, self.n_threads,
        )  # fmt: skip
        if self.offset:
            field += self.offset * coef.sum()
        self.n_evals += len(points) * self.n


class SparseTiles(Tiles):
    """Tiles of sparse rows against dense columns. Data of zeros and ones are held in bytes, others in floats."""

    def __init__(self, K: Any, indptr: IntArray, indices: Any, data: FloatArray) -> None:
        super().__init__(K, K.n_threads)
        self.binary = is_binary(indptr, data)
        norms = magnitudes(K.kernel, indptr, data)
        largest = float(self.shape.scale * norms.max(initial=0.0)) if facts_of(K.kernel).exponential else 0.0
        self.single = np.float64 if largest > _CANCELS and not self.binary else np.float32
        self.csr = {
            real: sparse.Csr(indptr, indices, data.astype(real), norms.astype(real))
            for real in (self.single, np.float64)
        }
        self._all: dict[Any, Spread] = {}
        self.effort = len(data) / max(K.n, 1) * (1.0 if self.binary else _ENTRY)
        longest = int(np.diff(indptr).max(initial=0))
        if facts_of(K.kernel).exponential:
            worst = (0.0 if self.binary else 2.0 * (longest + 2)) * largest + 3.0 * largest + 8.0
            self.error_factor = np.full(K.n, np.sqrt(ROUNDING * worst))
        else:
            self.error_factor = error_of_dots(K.kernel, norms, longest)

    def _spread(self, points: IntArray, real: Any, same: Spread | None = None) -> Spread:
        return Spread(self.csr[real], points, self.K.n_features, np.uint8 if self.binary else real, same)

    def _compute(self, points: IntArray, out: Real) -> Real:
        """As `Tiles._compute`."""
        count = len(points)
        real = np.float64 if out.dtype == np.float64 else self.single
        columns = self._spread(points, real)
        lower = self.costly
        share = split_falling if lower else split
        share(
            lambda a, b: sparse.store_sparse(
                self.shape, self.csr[real], points, columns.points, *columns.room(), lower, a, b, out
            ),
            columns.count, out.size * (self.effort + 8.0), self.n_threads,
        )  # fmt: skip
        return self._finish(out, count, half=lower)

    def add_values(self, points: IntArray, coef: FloatArray, field: FloatArray, *, single: bool) -> None:
        """As `Tiles.add_values`."""
        real = self.single if single else np.float64
        if real not in self._all:
            same = next(iter(self._all.values()), None) if self.binary else None
            self._all[real] = self._spread(np.arange(self.n), real, same)
        work = len(points) * len(field) * (self.effort + 8.0)
        add_sparse(self.shape, self.csr[real], points, coef, self._all[real], work, self.n_threads, field)
        if self.offset:
            field += self.offset * coef.sum()
        self.n_evals += len(points) * self.n


class OracleTiles:
    """The same services for kernels without a tile, from the blocks and products of `KernelMatrix`."""

    def __init__(self, K: Any) -> None:
        self.K = K
        self.n: int = K.n
        self.n_evals = 0
        self.fits_16_bits = False
        self.linear = self.costly = self.cheap = self.keeps = self.exact_products = self.by_columns = False
        self.error_factor = np.zeros(K.n)
        self._kept: Real | None = None

    def gram(self, points: IntArray, dtype: Any = np.float32, *, shared: bool = False) -> Real:
        """As `DenseTiles.gram`."""
        count = len(points)
        if self._kept is not None and shared and dtype == np.float32 and count == self.n:
            return self._kept
        out = np.zeros((count + 1, -(-count // LANES) * LANES), dtype)
        out[:count, :count] = self.K.block(points, points)
        return out

    def add(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """As `DenseTiles.add`."""
        field[: self.n] += self.K.product(points, coef)

    add_exactly = add

    def keep(self) -> None:
        """`KernelMatrix` keeps K itself, if it can. Where fits share it, K is kept here in float32."""
        if self.K.shared and self._kept is None and 4 * self.n**2 <= max(self.K.cache_bytes, KEPT_LEAST):
            self._kept = self.gram(np.arange(self.n))

    def release(self) -> None:
        """Nothing is kept."""


def one_hot(X: FloatArray) -> Any:
    """Dense data as a sparse matrix, if they are zeros and ones, and mostly zeros; else None."""
    if X[0, 0] not in (0.0, 1.0):
        return None
    some = X[:: max(1, len(X) // 8)]
    if not ((some == 0.0) | (some == 1.0)).all() or np.count_nonzero(X) >= _SPARSE * X.size:
        return None
    rows = csr_array(X)
    return rows if is_binary(rows.indptr.astype(np.int64), rows.data) else None


def make_tiles(K: Any, *, centred: bool) -> DenseTiles | SparseTiles | OracleTiles:
    """The fastest tiles for a kernel matrix. Sparse ones serve sparse data, and dense data that turn out to be one-hot.

    Fits that share the matrix share its tiles.
    """
    if not K.shared:
        return _new_tiles(K, centred=centred)
    if K.tiles is None:
        K.tiles = _new_tiles(K, centred=centred)
    K.tiles.n_evals = 0
    return K.tiles  # type: ignore[no-any-return]


def _new_tiles(K: Any, *, centred: bool) -> DenseTiles | SparseTiles | OracleTiles:
    if K.kernel.kind not in SHAPES or K.function is not None:
        return OracleTiles(K)
    rows = one_hot(K.X) if K.dense else K.points
    if rows is None:
        return DenseTiles(K, centred=centred, n_threads=K.n_threads)
    indptr, indices = rows.indptr.astype(np.int64, copy=False), rows.indices.astype(np.int32, copy=False)
    return SparseTiles(K, indptr, indices, rows.data)
