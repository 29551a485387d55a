"""Kernel blocks and kernel-times-vector in float32, and the same products exactly in float64, from register tiles.

`DenseTiles` and `SparseTiles` serve the kernels that have a tile. `OracleTiles` serves everything else, by `KernelMatrix`.
All of them speak of points. A product is shared out to threads by panels. Each panel sums in one fixed order, so the bits do
not depend on the number of threads. Short products are never shared out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from svmcore._types import LANES, FloatArray, IntArray, KernelKind
from svmcore.base.threads import split, split_falling
from svmcore.kernel.columns import ColumnStore
from svmcore.kernel.points import (
    PACK,
    STAGGER,
    Real,
    gathered_panels,
    groups_of,
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
    linear_product,
    shape_of,
    terms_of,
    with_constant,
)
from svmcore.kernel.rough import ROUNDING, error_factors, error_of_dots
from svmcore.kernel.spare import lent, spare
from svmcore.kernel.table import facts_of
from svmcore.simd import loops, packing, sparse, vector
from svmcore.simd.lanes import UNITS_16

# What is cheaper, in features of a point. Above _WIDE of them half a Gram matrix and its mirror image are cheaper than the
# whole. Above COSTLY a kernel value is better read from memory than computed again. An entry of a sparse point costs as much
# as _ENTRY features, where it is not a byte. Sparse tiles win below the share _SPARSE of stored entries.
_WIDE, COSTLY = 40, 48
_FEW = 256  # so many points are packed by numpy, and half of their matrix is computed, in less time than it takes to choose
_ENTRY = 3.0
_SPARSE = 0.25

# Work, in operations on one feature: to read a stored value, to pick a value out of a row. The unit tells which products are
# worth several threads. Most of both is to wait for memory.
_READ, _GATHER = 16.0, 24.0

# Memory. Packed rows of _ROWS_AT_ONCE bytes stay in a cache while all panels pass by. K among all points may take _KEPT_LEAST
# bytes in any case, and _KEPT_PER_FEATURE for each feature: fresh memory can cost as much as computing. 100 MB took 5 to
# 150 ms.
_ROWS_AT_ONCE = 1 << 20
_KEPT_LEAST, _KEPT_PER_FEATURE = 1 << 24, 1 << 20

# So many row groups of a float64 Gram matrix are computed at a time. Of half of it little more than half is computed then.
_GROUPS = 11

# A Gram matrix is put together from stored columns when more than this share of the working set has one.
_WORTH_READING = 0.05

# Between two looks at the clock: kernel values, and kernel values times features.
PIECE = 1 << 26
_BETWEEN_LOOKS = 2e8

# Rounding. Distances may be computed from norms: |x|^2 + |z|^2 - 2 x'z. Above _CANCELS, the largest scaled squared norm,
# that is too coarse in float32. Of many features it is coarser than a sum of squared differences above `products.NEAR`.
_CANCELS = 50.0


def _mirror(out: Real, count: int, n_threads: int) -> None:
    """Copy the lower triangle of the first `count` rows and columns to the upper one. In place: out."""
    strips = -(-count // packing.MIRROR)
    mirror = functools.partial(packing.mirror, out, count)
    split_falling(functools.partial(_backwards, mirror, strips), strips, _READ * out.size, n_threads)


def _complete(out: Real, count: int) -> Real:
    """Fill the padding of the Gram matrix of `count` points with zeros. In place: out."""
    out[:count, count:] = 0
    out[count:] = 0
    return out


def _gathered(gram: Real, members: IntArray, scale: float, out: Real) -> Real:
    """`gram` among the members, times `scale`, rounded where `out` holds integers. In place: out."""
    rounding = np.float32(0.5 if out.dtype == np.uint16 else 0.0)
    count, index = len(members), members.astype(np.uint32)
    loops.gather_known(gram, members, index, np.float32(scale), rounding, 0, count, out)
    return _complete(out, count)


def gram_among(gram: Real, members: IntArray) -> Real:
    """The Gram matrix of some of the points of another one, laid out the same."""
    return _gathered(gram, members, 1.0, np.empty(_layout(len(members)), gram.dtype))


def _layout(count: int) -> tuple[int, int]:
    """Rows and columns of the Gram matrix of `count` points. It is whole panels wide, and ends in at least one row of zeros.

    Neighbouring rows lie a cache line more than a multiple of a page apart, because caches map such multiples to few places.
    """
    return groups_of(count) * vector.ROWS + 1, -(-count // LANES) * LANES + STAGGER


class _Tiles:
    """What tiles over stored points share: the kernel, threads, a buffer for Gram matrices, and a count of kernel values."""

    def __init__(self, K: Any, n_threads: int) -> None:
        self.K = K
        self.n: int = K.n
        self.n_evals = 0
        self.n_threads = n_threads
        self.shape = shape_of(K.kernel)
        self.offset = float(K.kernel.offset)
        self.fits_16_bits = facts_of(K.kernel).exponential and self.offset == 0.0
        self.linear = K.kernel.kind == KernelKind.LINEAR
        self.exact_products = self.linear
        self.effort = 0.0  # what a kernel value costs, in features
        self.error_factor = np.zeros(self.n)
        self._most = max(1, min((self.n + 8) * (self.n + LANES + STAGGER), K.cache_bytes // 4))
        self._buffer, self._touched = spare.take("gram", self._most)
        self._kept: Real | None = None
        self._columns: ColumnStore | None = None
        self._spared: tuple[Real, int] | None = None  # the buffer that holds it

    @property
    def costly(self) -> bool:
        """Whether kernel values are better read from memory than computed again."""
        return self.effort >= COSTLY

    @property
    def keeps(self) -> bool:
        """Whether K among all points is in memory."""
        return self._kept is not None

    def space(self, count: int, dtype: Any) -> Real:
        """A reused array for the Gram matrix of `count` points."""
        rows, width = _layout(count)
        size = (rows * width * np.dtype(dtype).itemsize + 3) // 4
        if len(self._buffer) < size:
            self._buffer, self._touched = np.empty(max(size, self._most), np.float32), 0
        self._touched = max(self._touched, size)
        space: Real = self._buffer[:size].view(dtype)[: rows * width].reshape(rows, width)
        return space

    def _add_linear(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """field += X (X' coef) in float64, which serves `add_exactly`, too. In place: field."""
        everywhere = np.zeros(self.n)
        everywhere[points] = coef
        product = linear_product(self.K.points, self.K.points, everywhere, self.K.n_features)
        field[: self.n] += product + self.offset * coef.sum()

    def release(self) -> None:
        """Hand the buffer on to the next fit. The last Gram matrix is gone then. Where fits share K, nothing happens."""
        if self.K.shared:
            return
        self._close()
        spare.give("gram", *(self._spared or (self._buffer, self._touched)))
        self._buffer, self._kept, self._spared = np.empty(0, np.float32), None, None

    def keep(self) -> None:
        """From now on float32 blocks and products read K from memory, if it fits and the memory is worth its price."""
        worth = self.K.cache_bytes if self.K.shared else max(_KEPT_LEAST, int(self.effort * _KEPT_PER_FEATURE))
        room = min(self.K.cache_bytes, worth)
        if self._kept is None and not self.linear and 4 * self.n * (self.n + 2 * LANES) <= room:
            self._close()
            self._kept = self._compute(np.arange(self.n), self.space(self.n, np.float32))
            offset = 8.0 * ROUNDING * abs(self.offset)  # kept values include the offset, in float32
            self.error_factor = np.sqrt(self.error_factor**2 + offset)
            self._spared, self._buffer = (self._buffer, self._touched), np.empty(0, np.float32)

    def gram(self, points: IntArray, dtype: Any = np.float32, *, shared: bool = False) -> Real:
        """K among points, with at least one row of zeros below it. It lasts until the next call.

        A matrix of type uint16 holds multiples of 1 / UNITS_16, for kernels with values in [0, 1]. A `shared` matrix is not
        to be written to.
        """
        store, count = self._columns, len(points)
        if store is not None and self._kept is None and (dtype != np.float64 or store.dtype == np.float64):
            slots = store.find(points)
            if np.count_nonzero(slots >= 0) > _WORTH_READING * count:
                return self._gram_of_columns(store, slots, points, dtype)
        if self._kept is None or dtype == np.float64:
            return self._compute(points, self.space(count, dtype))
        if shared and dtype == np.float32 and count == self.n and (points[:-1] < points[1:]).all():
            return self._kept
        unit = UNITS_16 if dtype == np.uint16 else 1.0
        return _gathered(self._kept, points, unit, self.space(count, dtype))

    def _compute(self, points: IntArray, out: Real) -> Real:
        """`gram` from the data. In place: out, laid out for so many points."""
        raise NotImplementedError

    def add(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """field += K[:, points] coef, from float32 values unless products are exact. In place: field, padded to panels."""
        if self.linear:
            self._add_linear(points, coef, field)
        elif self._kept is not None and not self.exact_products:
            self._add_kept(points, coef, field)
        elif not self._add_columns(points, coef, field, np.float32):
            self._add(points, coef, field, single=True)

    def add_exactly(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """`add` in float64."""
        if self.linear:
            self._add_linear(points, coef, field)
        elif not self._add_columns(points, coef, field, np.float64):
            self._add(points, coef, field, single=False)

    def _add(self, points: IntArray, coef: FloatArray, field: FloatArray, *, single: bool) -> None:
        """`add` or `add_exactly` from the data. In place: field."""
        self.add_values(points, coef, field, single=single)

    def add_values(self, points: IntArray, coef: FloatArray, field: FloatArray, *, single: bool) -> None:
        """field += K[:, points] coef, from a kernel value for each pair, which is not stored. In place: field."""
        raise NotImplementedError

    def _add_kept(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """`add` from the kept matrix. In place: field."""
        kept, weights, size = self._kept, coef.astype(np.float32), loops.STRETCH
        split(
            lambda a, b: loops.add_rows(kept, points, weights, a * size, min(b * size, self.n), field),
            -(-self.n // size),
            _READ * len(points) * self.n,
            self.n_threads,
        )

    def _opened(self, dtype: Any) -> ColumnStore | None:
        """The column store of this number type, if columns are worth keeping. One of another type makes way for it."""
        return None

    def _close(self) -> None:
        """Hand the memory of the columns on."""
        if self._columns is not None:
            spare.give("columns", *self._columns.memory())
            self._columns = None

    @property
    def by_columns(self) -> bool:
        """Whether columns of K are kept from product to product."""
        return False

    def _add_columns(self, points: IntArray, coef: FloatArray, field: FloatArray, dtype: Any) -> bool:
        """`add` or `add_exactly` from columns. Those that are not kept yet are computed. False where none are to be kept."""
        store = self._opened(dtype)
        if store is None:
            return False
        slots, computed = store.fetch(points)
        self.n_evals += computed * self.n
        known, size = slots >= 0, loops.STRETCH
        rows, weights = slots[known], coef[known].astype(dtype)
        split(
            lambda a, b: loops.add_rows(store.rows, rows, weights, a * size, min(b * size, self.n), field),
            -(-self.n // size), _READ * len(rows) * self.n, self.n_threads,
        )  # fmt: skip
        if self.offset:
            field += self.offset * coef[known].sum()
        if not known.all():
            self._add(points[~known], coef[~known], field, single=dtype == np.float32)
        return True

    def _gram_of_columns(self, store: ColumnStore, slots: IntArray, points: IntArray, dtype: Any) -> Real:
        """`gram` put together from stored columns. What they do not hold is computed."""
        count, new = len(points), np.flatnonzero(slots < 0)
        out = self.space(count, dtype)
        real = np.float64 if dtype == np.float64 else np.float32
        scale, rounding = (real(UNITS_16), real(0.5)) if dtype == np.uint16 else (real(1.0), real(0.0))
        shift = real(rounding + (self.offset if dtype != np.uint16 else 0.0))
        index, rows = points.astype(np.uint32), store.rows
        split(
            lambda a, b: loops.gather_known(rows, slots, index, scale, shift, a, b, out),
            count, _GATHER * (count - len(new)) * count, self.n_threads,
        )  # fmt: skip
        if len(new):
            block = self._compute(points[new], lent("new", _layout(len(new)), real))
            split(
                lambda a, b: loops.complete_known(slots, block, new.astype(np.uint32), scale, rounding, a, b, out),
                len(new), _GATHER * len(new) * count, self.n_threads,
            )  # fmt: skip
        return _complete(out, count)

    def _finish(self, out: Real, count: int, *, half: bool) -> Real:
        """A Gram matrix without offset and padding, or its lower triangle (`half`), made whole and counted."""
        if half:
            _mirror(out, count, self.n_threads)
        if self.offset:
            out[:count, :count] += self.offset
        _complete(out, count)
        self.n_evals += count * (count + 1) // 2 if half else count * count
        return out


def single_frame(K: Any, shape: vector.Shape, *, centred: bool) -> tuple[bool, float]:
    """Whether dense points are moved to their mean, and what they are multiplied by, before they are rounded to float32."""
    kind, exponential = K.kernel.kind, facts_of(K.kernel).exponential
    factor = math.sqrt(shape.scale) if kind == KernelKind.RBF else shape.scale if exponential else 1.0
    return exponential or (kind == KernelKind.LINEAR and centred), factor


class DenseTiles(_Tiles):
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
        source = self._source(single=single)
        if len(points) == self.n and (np.diff(points) == 1).all():
            return source
        if not single:
            return gathered_panels(source, points, self.n_threads)
        count = -(-len(points) // LANES)
        out = lent("some", (count, *source.shape[1:]), np.float32)
        self._pack(points, out, np.empty(count * LANES))
        if self.last is not None and self.single_shape is self.shape:
            out[:, -1] = 0.0
        return out

    def _shape(self, *, single: bool) -> vector.Shape:
        """The tile of a number type."""
        return self.single_shape if single else self.K.shape

    def _source(self, *, single: bool) -> Real:
        """The points as that tile reads them."""
        if single:
            return self.panels
        return self.exact if self.K.squares is None else self._near

    @cached_property
    def _near(self) -> FloatArray:
        """The points in float64, with their squares."""
        return self.K.panels(np.arange(self.n))  # type: ignore[no-any-return]

    @cached_property
    def exact(self) -> FloatArray:
        """The points in float64: panels of the features, without padding."""
        panels = self.K.points.panels
        return panels if panels.shape[1] == self.K.n_features else np.ascontiguousarray(panels[:, : self.K.n_features])

    @property
    def by_columns(self) -> bool:
        """As `_Tiles.by_columns`."""
        return self.costly and not self.exact_products

    def _opened(self, dtype: Any) -> ColumnStore | None:
        """As `_Tiles._opened`."""
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
        source = self._source(single=single)
        packed = self._rows(points, single=single)
        store = loops.store_block
        work = float(packed.size * len(source) * LANES)
        step = max(1, _ROWS_AT_ONCE // packed[:1].nbytes)

        def run(a: int, b: int) -> None:
            for group in range(0, len(packed), step):
                rows = out[group * vector.ROWS :]
                store(self._shape(single=single), packed[group : group + step], source, False, a, b, rows)

        split(run, len(source), work, self.n_threads)

    def _compute(self, points: IntArray, out: Real) -> Real:
        """As `_Tiles._compute`."""
        count = len(points)
        single = out.dtype != np.float64
        source = self._source(single=single)
        columns = -(-count // LANES)
        packed, panels = self._rows(points, single=single), self._columns_of(points, single=single)
        half = single and source.shape[1] >= _WIDE
        store = loops.store_block
        work = float(out.size * source.shape[1])
        shape = self._shape(single=single)
        share = split_falling if half else split
        share(lambda a, b: store(shape, packed, panels, half, a, b, out), columns, work, self.n_threads)
        return self._finish(out, count, half=half)

    def _add(self, points: IntArray, coef: FloatArray, field: FloatArray, *, single: bool) -> None:
        """As `_Tiles._add`. A kernel of few monomials is summed by them."""
        if self.form is None:
            self.add_values(points, coef, field, single=single)
            return
        chosen = np.empty((-(-len(points) // LANES), *self.form.shape[1:]))
        packing.gather_panels(self.form, points, chosen)
        add_form(self.K.kernel, self.form, chosen, coef, self.n_threads, field)
        field += self.offset * coef.sum()

    def add_values(self, points: IntArray, coef: FloatArray, field: FloatArray, *, single: bool) -> None:
        """As `_Tiles.add_values`."""
        panels = self._source(single=single)
        add = loops.add_block
        count = len(points)
        packed = self._rows(points, single=single)
        weights = packed_weights(packed, coef)
        work = float(packed.size * len(panels) * LANES)
        shape = self._shape(single=single)
        split(lambda a, b: add(shape, packed, weights, panels, a, b, field), len(panels), work, self.n_threads)
        if self.offset:
            field += self.offset * coef.sum()
        self.n_evals += count * self.n


def has_gram(K: Any) -> bool:
    """Whether `exact_gram` serves this kernel."""
    return bool(K.kernel.kind in SHAPES and K.dense)


def exact_gram(
    K: Any, go_on: Callable[[float], bool], room: Callable[[tuple[int, int]], FloatArray] = np.empty
) -> FloatArray | None:
    """K among all points in float64 from dense tiles, in the `room` there is. None when `go_on(share done)` says no.

    Its rows end in values without meaning. Of few or wide points each value is computed once: mirrored bits are the same.
    """
    if K.n <= _FEW:
        return _gram_of_few(K, room(_layout(K.n))) if go_on(0.0) else None
    panels = np.ascontiguousarray(K.points.panels[:, : K.n_features])
    packed = rows_of(K.X, np.arange(K.n), np.float64, np.zeros(K.n_features), n_threads=K.n_threads)
    out = room(_layout(K.n))
    shape, half = shape_of(K.kernel), K.n_features >= _WIDE
    step = max(1, int(_BETWEEN_LOOKS // (out.shape[1] * vector.ROWS * (4 + panels.shape[1]))))
    for start in range(0, len(packed), step):  # whole rows, since touching fresh memory can cost more than filling it
        if not go_on(start / len(packed)):
            return None
        count = min(step, len(packed) - start)
        fill = functools.partial(_fill, shape, packed, panels, K.kernel.offset, out, half)
        work = float(out.shape[1] * count * vector.ROWS * panels.shape[1])
        share = split_falling if half and not start else split
        share(functools.partial(_backwards, fill, start + count), count, work, K.n_threads)
    if half:
        _mirror(out, K.n, K.n_threads)
    K.n_evals += K.n * (K.n + 1) // 2 if half else K.n * K.n
    return out[: K.n]


def _gram_of_few(K: Any, out: FloatArray) -> FloatArray:
    """`exact_gram` in one compiled call. In place: out."""
    n, width = K.X.shape
    rows, panels = np.empty((groups_of(n), width, vector.ROWS)), np.empty((-(-n // LANES), width, LANES))
    order, centre, squares = np.arange(n), np.zeros(width), np.empty(len(panels) * LANES)
    loops.gram_of_few(shape_of(K.kernel), K.X, order, centre, K.kernel.offset, rows, panels, squares, out)
    K.n_evals += n * (n + 1) // 2
    return out[:n]


def _backwards(run: Callable[[int, int], None], end: int, first: int, last: int) -> None:
    """`run` on a range that is counted from its end, for work that grows."""
    run(end - last, end - first)


def _fill(shape: Any, packed: Real, panels: Real, offset: float, out: Real, half: bool, first: int, last: int) -> None:
    """Some row groups of `exact_gram`, or with `half` what they have of the lower triangle. In place: out."""
    for group in range(first, last, _GROUPS):
        end = min(group + _GROUPS, last)
        rows, columns = out[group * vector.ROWS : end * vector.ROWS], len(panels)
        if half:
            columns = min(columns, -(-end * vector.ROWS // LANES))
        loops.store_block(shape, packed[group:end], panels, False, 0, columns, rows)
        if offset:
            rows[:, : columns * LANES] += offset


class SparseTiles(_Tiles):
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
        """As `_Tiles._compute`."""
        count = len(points)
        real = np.float64 if out.dtype == np.float64 else self.single
        columns = self._spread(points, real)
        lower = self.costly and out.dtype != np.float64
        store = sparse.store_sparse
        share = split_falling if lower else split
        share(
            lambda a, b: store(self.shape, self.csr[real], points, columns.points, *columns.room(), lower, a, b, out),
            columns.count, out.size * (self.effort + 8.0), self.n_threads,
        )  # fmt: skip
        return self._finish(out, count, half=lower)

    def add_values(self, points: IntArray, coef: FloatArray, field: FloatArray, *, single: bool) -> None:
        """As `_Tiles.add_values`."""
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
        self.linear = self.costly = self.keeps = self.exact_products = self.by_columns = False
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
        if self.K.shared and self._kept is None and 4 * self.n**2 <= max(self.K.cache_bytes, _KEPT_LEAST):
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
