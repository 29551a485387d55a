"""What tiles share: room for a Gram matrix, K that is kept, columns that are kept, and how both make products."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from svmcore._types import LANES, FloatArray, IntArray, KernelKind
from svmcore.base.threads import split, split_falling
from svmcore.kernel.columns import ColumnStore
from svmcore.kernel.points import STAGGER, Real, groups_of
from svmcore.kernel.products import linear_product, shape_of
from svmcore.kernel.rough import ROUNDING
from svmcore.kernel.spare import lent, spare
from svmcore.kernel.table import facts_of
from svmcore.simd import loops, packing, vector
from svmcore.simd.lanes import UNITS_16

# What is cheaper, in features of a point. Above WIDE of them half a Gram matrix and its mirror image are cheaper than the
# whole. Above COSTLY a kernel value is better read from memory than computed again. Below CHEAP it costs less than a step
# of a pair for one variable.
WIDE, COSTLY, CHEAP = 40, 48, 8

# Work, in float32 operations on one feature: to read a stored value, to pick a value out of a row. The unit tells which
# products are worth several threads. Most of both is to wait for memory.
_READ, _GATHER = 16.0, 64.0

# K among all points may take KEPT_LEAST bytes in any case, and _KEPT_PER_FEATURE for each feature: fresh memory can cost as
# much as computing. 100 MB took 5 to 150 ms.
KEPT_LEAST, _KEPT_PER_FEATURE = 1 << 24, 1 << 20

# A Gram matrix is put together from stored columns when more than this share of the working set has one.
_WORTH_READING = 0.05


def backwards(run: Callable[[int, int], None], end: int, first: int, last: int) -> None:
    """`run` on a range that is counted from its end, for work that grows."""
    run(end - last, end - first)


def mirror(out: Real, count: int, n_threads: int) -> None:
    """Copy the lower triangle of the first `count` rows and columns to the upper one. In place: out."""
    strips = -(-count // packing.MIRROR)
    strip = functools.partial(packing.mirror, out, count)
    split_falling(functools.partial(backwards, strip, strips), strips, _READ * out.size, n_threads)


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


def layout(count: int) -> tuple[int, int]:
    """Rows and columns of the Gram matrix of `count` points. It is whole panels wide, and ends in at least one row of zeros.

    Neighbouring rows lie a cache line more than a multiple of a page apart, because caches map such multiples to few places.
    """
    return groups_of(count) * vector.ROWS + 1, -(-count // LANES) * LANES + STAGGER


class Tiles:
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
    def cheap(self) -> bool:
        """Whether kernel values cost less than the steps that save some of them."""
        return self.effort < CHEAP

    @property
    def keeps(self) -> bool:
        """Whether K among all points is in memory."""
        return self._kept is not None

    def space(self, count: int, dtype: Any) -> Real:
        """A reused array for the Gram matrix of `count` points."""
        rows, width = layout(count)
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
        worth = self.K.cache_bytes if self.K.shared else max(KEPT_LEAST, int(self.effort * _KEPT_PER_FEATURE))
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
            self.add_values(points, coef, field, single=True)

    def add_exactly(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """`add` in float64."""
        if self.linear:
            self._add_linear(points, coef, field)
        elif not self._add_columns(points, coef, field, np.float64):
            self.add_values(points, coef, field, single=False)

    def add_values(self, points: IntArray, coef: FloatArray, field: FloatArray, *, single: bool) -> None:
        """`add` or `add_exactly` from the data. In place: field."""
        raise NotImplementedError

    def _add_kept(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """`add` from the kept matrix. In place: field."""
        assert self._kept is not None
        self._add_stored(self._kept, points, coef, field)

    def _add_stored(self, stored: Real, rows: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """field += coef' stored[rows]. In place: field."""
        weights, size = coef.astype(stored.dtype), loops.STRETCH
        split(
            lambda a, b: loops.add_rows(stored, rows, weights, a * size, min(b * size, self.n), field),
            -(-self.n // size), _READ * len(rows) * self.n, self.n_threads,
        )  # fmt: skip

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
        known = slots >= 0
        self._add_stored(store.rows, slots[known], coef[known], field)
        if self.offset:
            field += self.offset * coef[known].sum()
        if not known.all():
            self.add_values(points[~known], coef[~known], field, single=dtype == np.float32)
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
            block = self._compute(points[new], lent("new", layout(len(new)), real))
            split(
                lambda a, b: loops.complete_known(slots, block, new.astype(np.uint32), scale, rounding, a, b, out),
                len(new), _GATHER * len(new) * count, self.n_threads,
            )  # fmt: skip
        return _complete(out, count)

    def _finish(self, out: Real, count: int, *, half: bool) -> Real:
        """A Gram matrix without offset and padding, or its lower triangle (`half`), made whole and counted."""
        if half:
            mirror(out, count, self.n_threads)
        if self.offset:
            out[:count, :count] += self.offset
        _complete(out, count)
        self.n_evals += count * (count + 1) // 2 if half else count * count
        return out
