"""Kernel blocks and kernel-times-vector in float32, and the same products exactly in float64, from register tiles.

`DenseTiles` serves the kernels that have a tile, `OracleTiles` (through `KernelMatrix`) everything else; both speak of
points. A product is shared out to threads by panels, each of which sums in one fixed order: the bits do not depend on
the number of threads. Short products are never shared out.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from svmcore import _kernels
from svmcore._threads import split
from svmcore._types import LANES, FloatArray, IntArray, Kernel, KernelKind, Points
from svmcore.simd import loops, vector
from svmcore.simd.lanes import UNITS_16

_LOG2E = 1.4426950408889634
_SHAPES = {
    KernelKind.LINEAR: vector.Linear,
    KernelKind.POLY: vector.Poly,
    KernelKind.SIGMOID: vector.Sigmoid,
    KernelKind.RBF: vector.Rbf,
    KernelKind.LAPLACIAN: vector.Laplacian,
}
_EXPONENTIAL = (KernelKind.RBF, KernelKind.LAPLACIAN)
_WIDE = 40  # features above which half a Gram matrix and its mirror image are cheaper than the whole
_COSTLY = 48  # features above which a kernel value is better read from memory than computed again
_ENTRY = 3.0  # features that an entry of a sparse point costs, if it is not a byte
_READ = 6.0  # feature operations that a value read from there takes
_KEPT_LEAST = 1 << 24  # bytes that K among all points may take in any case,
_KEPT_PER_FEATURE = 1 << 20  # and with many features: fresh memory can cost as much as computing (100 MB: 5 to 150 ms)
_KEPT_VALUES = 1 << 25  # 128 MB
_BETWEEN_LOOKS = 2e8  # kernel values times features computed between two looks at the clock
_STAGGER = 32  # unused columns at the end of every row of a Gram matrix
_SPARSE = 0.25  # share of stored entries below which sparse tiles win
_PANEL_BYTES = 1 << 19  # a panel of sparse points with all features fits the cache below this,
_PANELS_BYTES = 1 << 28  # and is kept while all of them are smaller than this
_CANCELS = 50.0  # scaled squared norms above which float32 distances from norms are too coarse
_CANCELS_64 = 1e4  # the same in float64
_SLABS = 16  # parts of a symmetric product, each with sums of its own
_ROUNDING = 2.0**-24
_FEW_TERMS = 2000  # coefficients of a polynomial up to which it beats pairs of points, from a few dozen points on
PIECE = 1 << 26  # kernel values between two looks at the clock

Real = NDArray[Any]


def groups_of(count: int) -> int:
    """Row groups that hold `count` rows."""
    return -(-count // vector.ROWS)


def shape_of(kernel: Kernel) -> vector.Shape:
    """A kernel as the type and numbers that a tile is compiled for. The exponential ones are powers of two."""
    kind = KernelKind(kernel.kind)
    scale = kernel.gamma * (_LOG2E if kind in _EXPONENTIAL else 1.0)
    shape: vector.Shape = _SHAPES[kind](float(scale), float(kernel.coef0), int(kernel.degree))  # type: ignore[assignment]
    return shape


def _terms(kernel: Kernel, n_features: int) -> int:
    """Coefficients of a sum of kernel values as one polynomial; 0 where it is none, or not of degree 2 or 3."""
    d = n_features + 1
    if kernel.kind != KernelKind.POLY or kernel.degree not in (2, 3):
        return 0
    return d * (d + 1) // 2 if kernel.degree == 2 else d * (d + 1) * (d + 2) // 6


def _with_constant(panels: FloatArray) -> FloatArray:
    """Panels with a feature more, which is 1."""
    count, width, _ = panels.shape
    out = np.empty((count, width + 1, LANES))
    out[:, :width], out[:, width] = panels, 1.0
    return out


def _add_form(
    kernel: Kernel, targets: FloatArray, sources: FloatArray, coef: FloatArray, n_threads: int, out: FloatArray
) -> None:
    """out += K(targets, sources) coef for a polynomial kernel without offset, from panels with a constant. In place: out."""
    d = sources.shape[1]
    scale = np.full(d, float(kernel.gamma))
    scale[-1] = kernel.coef0
    weights = np.empty(_terms(kernel, d - 1))
    padded = np.zeros(len(sources) * LANES)
    padded[: len(coef)] = coef
    scratch = np.empty(len(padded)), np.empty((d, d))
    _kernels.form_of(sources, padded, kernel.degree, scale, *scratch, weights)
    work = float(len(weights) * len(targets) * LANES)
    split(lambda a, b: _kernels.add_forms(targets, weights, kernel.degree, a, b, out), len(targets), work, n_threads)


class _Spare:
    """Keeps one buffer between fits: memory that has been touched before costs several times less than fresh memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffer: Real | None = None
        self._touched = 0

    def take(self, size: int) -> Real:
        """A float32 array of at least this size; what has never been written takes no memory."""
        with self._lock:
            buffer, self._buffer = self._buffer, None
        return buffer if buffer is not None and len(buffer) >= size else np.empty(size, np.float32)

    def give(self, buffer: Real, touched: int) -> None:
        """Keep a buffer of which `touched` values have been written, unless that is a lot."""
        if touched <= _KEPT_VALUES:
            with self._lock:
                self._buffer, self._touched = buffer, touched

    def clear(self) -> int:
        """Let go of the buffer; the bytes of it that had been written."""
        with self._lock:
            freed = 0 if self._buffer is None else self._buffer.itemsize * self._touched
            self._buffer, self._touched = None, 0
        return freed


_spare = _Spare()


def release_memory() -> int:
    """Give back what the process keeps between fits, and return its size in bytes.

    A fit leaves one work buffer of at most 128 MB behind, since the next one starts faster in memory that is there already.
    Nothing else depends on it: call this where a process goes on living without training.

    >>> import svmcore
    >>> _ = svmcore.release_memory()
    >>> svmcore.release_memory()
    0
    """
    return _spare.clear()


def _complete(out: Real, count: int) -> None:
    """The lower triangle mirrored, and zeros in the padding, which may hold anything. In place: out."""
    loops.mirror(out, count)
    out[:count, count:] = 0
    out[count:] = 0


def _gathered(gram: Real, members: IntArray, scale: float, out: Real) -> Real:
    """scale gram[members, members], rounded where `out` holds integers. In place: out."""
    rounding = 0.5 if out.dtype == np.uint16 else 0.0
    loops.gather_lower(gram, members.astype(np.uint32), np.float32(scale), np.float32(rounding), out)
    _complete(out, len(members))
    return out


def part_of(gram: Real, members: IntArray) -> Real:
    """The Gram matrix of some of the points of another one, laid out the same."""
    return _gathered(gram, members, 1.0, np.empty(_layout(len(members)), gram.dtype))


def _layout(count: int) -> tuple[int, int]:
    """Rows and columns of the Gram matrix of `count` points: whole panels wide, a row of zeros at least below.

    Its rows are a cache line apart from a multiple of the page, which caches map to few places.
    """
    return groups_of(count) * vector.ROWS + 1, -(-count // LANES) * LANES + _STAGGER


class _Tiles:
    """What tiles over stored points share: the kernel, threads, a buffer for Gram matrices, a count."""

    def __init__(self, K: Any, n_threads: int) -> None:
        self.K = K
        self.n: int = K.n
        self.n_evals = 0
        self.n_threads = n_threads
        self.shape = shape_of(K.kernel)
        self.offset = float(K.kernel.offset)
        self.fits_16_bits = K.kernel.kind in _EXPONENTIAL and self.offset == 0.0
        self.linear = K.kernel.kind == KernelKind.LINEAR
        self.exact_products = self.linear
        self.effort = 0.0  # features that a kernel value costs
        self.error_factor = np.zeros(self.n)
        self._most = max(1, min((self.n + 8) * (self.n + LANES + _STAGGER), K.cache_bytes // 4))
        self._buffer = _spare.take(self._most)
        self._touched = 0
        self._kept: Real | None = None
        self._spared: tuple[Real, int] | None = None  # the buffer that holds it

    @property
    def costly(self) -> bool:
        """Whether kernel values are better read from memory than computed again."""
        return self.effort >= _COSTLY

    @property
    def keeps(self) -> bool:
        """Whether K among all points is in memory."""
        return self._kept is not None

    def _space(self, count: int, dtype: Any) -> Real:
        """A reused array for the Gram matrix of `count` points."""
        rows, width = _layout(count)
        size = (rows * width * np.dtype(dtype).itemsize + 3) // 4
        if len(self._buffer) < size:
            self._buffer = np.empty(max(size, self._most), np.float32)
        self._touched = max(self._touched, size)
        space: Real = self._buffer[:size].view(dtype)[: rows * width].reshape(rows, width)
        return space

    def _add_linear(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """field += X (X' coef), exactly enough for `add_exactly`. In place: field."""
        everywhere = np.zeros(self.n)
        everywhere[points] = coef
        product = linear_product(self.K.points, self.K.points, everywhere, self.K.n_features)
        field[: self.n] += product + self.offset * coef.sum()

    def release(self) -> None:
        """Hand the buffer on to the next fit; the last Gram matrix is gone."""
        _spare.give(*(self._spared or (self._buffer, self._touched)))
        self._buffer, self._kept, self._spared = np.empty(0, np.float32), None, None

    def keep(self) -> None:
        """From now on float32 blocks and products read K from memory, if it fits and the memory is worth its price."""
        room = min(self.K.cache_bytes, max(_KEPT_LEAST, int(self.effort * _KEPT_PER_FEATURE)))
        if self._kept is None and not self.linear and 4 * self.n * (self.n + 2 * LANES) <= room:
            self._kept = self._compute(np.arange(self.n), np.float32)
            self.error_factor = np.sqrt(
                self.error_factor**2 + 8.0 * _ROUNDING * abs(self.offset)
            )  # it is in there, too
            self._spared, self._buffer = (self._buffer, self._touched), np.empty(0, np.float32)

    def gram(self, points: IntArray, dtype: Any = np.float32, *, shared: bool = False) -> Real:
        """K among points, with at least one row of zeros below it, until the next call. uint16 holds multiples of
        1 / UNITS_16, for kernels with values in [0, 1]. A `shared` one is not to be written to.
        """
        if self._kept is None or dtype == np.float64:
            return self._compute(points, dtype)
        count = len(points)
        if shared and dtype == np.float32 and count == self.n and (points[:-1] < points[1:]).all():
            return self._kept
        return _gathered(self._kept, points, UNITS_16 if dtype == np.uint16 else 1.0, self._space(count, dtype))

    def _compute(self, points: IntArray, dtype: Any) -> Real:
        """`gram` from the data."""
        raise NotImplementedError

    def add(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """field += K[:, points] coef, from float32 values unless products are exact. In place: field, padded to panels."""
        if self.linear:
            self._add_linear(points, coef, field)
        elif self._kept is not None and not self.exact_products:
            self._add_kept(points, coef, field)
        else:
            self._add(points, coef, field, single=True)

    def add_exactly(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """`add` in float64."""
        if self.linear:
            self._add_linear(points, coef, field)
        else:
            self._add(points, coef, field, single=False)

    def _add(self, points: IntArray, coef: FloatArray, field: FloatArray, *, single: bool) -> None:
        """`add` or `add_exactly` from the data. In place: field."""
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

    def _bound_of_dot(self, squares: FloatArray, terms: int) -> FloatArray:
        """Error factors of kernel values made of dot products of so many terms; `squares` are those of the norms."""
        shape = self.shape
        size = abs(shape.scale) * squares + abs(shape.coef0)
        degree = float(shape.degree) if self.K.kernel.kind == KernelKind.POLY else 1.0
        if self.K.kernel.kind == KernelKind.SIGMOID:
            size = np.maximum(size, 1.0)
        return np.asarray(np.sqrt(_ROUNDING * max(1.0, degree) * (terms + 16.0)) * size ** (0.5 * degree))

    def _finish(self, out: Real, count: int) -> Real:
        if self.offset:
            out[:count, :count] += self.offset
        out[count:] = 0
        self.n_evals += count * count
        return out


class DenseTiles(_Tiles):
    """Tiles over dense points. `centred` data have the same dual solution when the kernel is linear and sum(beta) = 0."""

    def __init__(self, K: Any, *, centred: bool, n_threads: int = 1) -> None:
        super().__init__(K, n_threads)
        kind, panels, scale = K.kernel.kind, K.points.panels, self.shape.scale
        width = _used_features(panels)
        self.exact = panels[:, :width] if width < panels.shape[1] else panels
        self.form = _with_constant(self.exact) if 0 < _terms(K.kernel, width) <= _FEW_TERMS else None
        self.exact_products = self.exact_products or self.form is not None
        centre = np.zeros(width)
        if kind in _EXPONENTIAL or (kind == KernelKind.LINEAR and centred):
            centre = self.exact.sum(axis=(0, 2)) / self.n
        self.effort = float(width)
        factor = np.sqrt(scale) if kind == KernelKind.RBF else scale if kind == KernelKind.LAPLACIAN else 1.0
        self.panels = np.empty(self.exact.shape, np.float32)
        for first in range(0, len(panels), 64):
            piece = slice(first, first + 64)
            self.panels[piece] = (self.exact[piece] - centre[:, None]) * factor
        self.error_factor = self._bound(width)

    def _bound(self, width: int) -> FloatArray:
        """Factors r_i, one per point: K_ij is off by at most r_i r_j in float32, and so is its share of a sum.

        Relative rounding errors of u = 2^-24 throughout. A sum of d squares or absolute values is off by d + 2 roundings,
        the exponential by less than 8. With R the largest norm of a point, rounded coordinates move a squared distance m by
        4 R sqrt(m) u, a city-block one by 2 R u. K = 2^-m makes of a relative error at most 1 / e of it, of sqrt(m) at most
        0.36, and of 1 at most 0.7. A product x'z is off by d + 2 roundings of |x| |z|, and ``a = scale x'z + coef0`` by
        d + 4 of ``A = |scale| |x| |z| + |coef0|``, at most the root of the product of its values at x and at z; a power by
        `degree` times that many of the power of A. The sum over a few rows adds less than 8.
        """
        panels = self.panels
        if self.K.kernel.kind in _EXPONENTIAL:
            norms = np.abs(panels).sum(axis=1) if self.K.kernel.kind == KernelKind.LAPLACIAN else _norms(panels)
            worst = _ROUNDING * ((width + 2.0) / np.e + 1.5 * float(norms.max(initial=0.0)) + 8.0)
            return np.full(self.n, np.sqrt(worst))
        return self._bound_of_dot(_norms(panels).ravel()[: self.n].astype(np.float64) ** 2, width)

    def _compute(self, points: IntArray, dtype: Any) -> Real:
        """As `_Tiles._compute`."""
        count = len(points)
        single = dtype != np.float64
        source = self.panels if single else np.ascontiguousarray(self.exact)
        out = self._space(count, dtype)
        columns = -(-count // LANES)
        packed = np.empty((groups_of(count), source.shape[1], vector.ROWS), source.dtype)
        panels = np.empty((columns, source.shape[1], LANES), source.dtype)
        loops.pack_rows(source, points, packed)
        loops.gather_panels(source, points, panels)
        half = single and source.shape[1] >= _WIDE
        store = loops.store_lower_32 if half else loops.store_block_32 if single else loops.store_block_64
        work = float(out.size * source.shape[1])
        split(lambda a, b: store(self.shape, packed, panels, a, b, out), columns, work, self.n_threads)
        if half:
            _complete(out, count)
        return self._finish(out, count)

    def _add(self, points: IntArray, coef: FloatArray, field: FloatArray, *, single: bool) -> None:
        """As `_Tiles._add`."""
        if self.form is not None:
            chosen = np.empty((-(-len(points) // LANES), *self.form.shape[1:]))
            loops.gather_panels(self.form, points, chosen)
            _add_form(self.K.kernel, self.form, chosen, coef, self.n_threads, field)
            field += self.offset * coef.sum()
            return
        panels = self.panels if single else np.ascontiguousarray(self.exact)
        add = loops.add_block_32 if single else loops.add_block_64
        count = len(points)
        groups = groups_of(count)
        packed = np.empty((groups, panels.shape[1], vector.ROWS), panels.dtype)
        loops.pack_rows(panels, points, packed)
        weights = np.zeros(groups * vector.ROWS, panels.dtype)
        weights[:count] = coef
        work = float(packed.size * len(panels) * LANES)
        split(lambda a, b: add(self.shape, packed, weights, panels, a, b, field), len(panels), work, self.n_threads)
        if self.offset:
            field += self.offset * coef.sum()
        self.n_evals += count * self.n


def _norms(panels: Real) -> Real:
    """Norms of the points, by panel and lane."""
    return np.asarray(np.sqrt(np.einsum("pkj,pkj->pj", panels, panels)))


def has_gram(K: Any) -> bool:
    """Whether `exact_gram` serves this kernel."""
    return bool(K.kernel.kind in _SHAPES and K.function is None and K.points.panels.shape[0])


def exact_gram(K: Any, go_on: Callable[[float], bool]) -> FloatArray | None:
    """K among all points in float64 from dense tiles, while `go_on(share done)`; None when that stops it.

    Its rows end in values without meaning.
    """
    panels = np.ascontiguousarray(K.points.panels[:, : _used_features(K.points.panels)])
    packed = np.empty((groups_of(K.n), panels.shape[1], vector.ROWS))
    loops.pack_rows(panels, np.arange(K.n), packed)
    out = np.empty(_layout(K.n))
    shape = shape_of(K.kernel)
    step = max(1, int(_BETWEEN_LOOKS // (out.shape[1] * vector.ROWS * (4 + panels.shape[1]))))
    for start in range(0, len(packed), step):  # whole rows: memory is touched, which can cost more, as it is filled
        if not go_on(start / len(packed)):
            return None
        count = min(step, len(packed) - start)
        fill = functools.partial(_fill, shape, packed, panels, K.kernel.offset, out, start)
        split(fill, count, float(out.shape[1] * count * vector.ROWS * panels.shape[1]), K.n_threads)
    K.n_evals += K.n * K.n
    return out[: K.n]


def _fill(shape: Any, packed: Real, panels: Real, offset: float, out: Real, start: int, first: int, last: int) -> None:
    rows = out[(start + first) * vector.ROWS : (start + last) * vector.ROWS]
    loops.store_block_64(shape, packed[start + first : start + last], panels, 0, len(panels), rows)
    if offset:
        rows[:, :-_STAGGER] += offset


def _used_features(panels: FloatArray) -> int:
    """Features up to the last one that is not padding."""
    width = int(panels.shape[1])
    while width > max(1, panels.shape[1] - 3) and not panels[:, width - 1].any():
        width -= 1
    return width


class SparseTiles(_Tiles):
    """Tiles of sparse rows against dense columns: bytes for data of zeros and ones, else float32 and float64."""

    def __init__(self, K: Any, indptr: IntArray, indices: Any, data: FloatArray) -> None:
        super().__init__(K, K.n_threads)
        self.binary = is_binary(indptr, data)
        norms = magnitudes(K.kernel, indptr, data)
        largest = float(self.shape.scale * norms.max(initial=0.0)) if K.kernel.kind in _EXPONENTIAL else 0.0
        self.single = np.float64 if largest > _CANCELS and not self.binary else np.float32
        self.csr = {
            real: vector.Csr(indptr, indices, data.astype(real), norms.astype(real))
            for real in (self.single, np.float64)
        }
        self._all: dict[Any, _Spread] = {}
        self.effort = len(data) / max(K.n, 1) * (1.0 if self.binary else _ENTRY)
        longest = int(np.diff(indptr).max(initial=0))
        if K.kernel.kind in _EXPONENTIAL:
            worst = (0.0 if self.binary else 2.0 * (longest + 2)) * largest + 3.0 * largest + 8.0
            self.error_factor = np.full(K.n, np.sqrt(_ROUNDING * worst))
        else:
            self.error_factor = self._bound_of_dot(norms, longest)

    def _columns(self, points: IntArray, real: Any, same: _Spread | None = None) -> _Spread:
        return _Spread(self.csr[real], points, self.K.n_features, np.uint8 if self.binary else real, same)

    def _compute(self, points: IntArray, dtype: Any) -> Real:
        """As `_Tiles._compute`."""
        count = len(points)
        real = np.float64 if dtype == np.float64 else self.single
        columns = self._columns(points, real)
        out = self._space(count, dtype)
        lower = self.costly and dtype != np.float64
        store = loops.store_sparse_32 if real == np.float32 else loops.store_sparse_64
        split(
            lambda a, b: store(self.shape, self.csr[real], points, columns.points, *columns.room(), lower, a, b, out),
            columns.count, out.size * (self.effort + 8.0), self.n_threads,
        )  # fmt: skip
        if lower:
            _complete(out, count)
        return self._finish(out, count)

    def _add(self, points: IntArray, coef: FloatArray, field: FloatArray, *, single: bool) -> None:
        """As `_Tiles._add`."""
        real = self.single if single else np.float64
        if real not in self._all:
            same = next(iter(self._all.values()), None) if self.binary else None
            self._all[real] = self._columns(np.arange(self.n), real, same)
        work = len(points) * len(field) * (self.effort + 8.0)
        _add_sparse(self.shape, self.csr[real], points, coef, self._all[real], work, self.n_threads, field)
        if self.offset:
            field += self.offset * coef.sum()
        self.n_evals += len(points) * self.n


def magnitudes(kernel: Kernel, indptr: IntArray, data: FloatArray) -> FloatArray:
    """What distances of sparse points are made of: sums of squares, for the Laplacian kernel of absolute values."""
    return row_sums(indptr, np.abs(data) if kernel.kind == KernelKind.LAPLACIAN else data * data)


def row_sums(indptr: IntArray, values: FloatArray) -> FloatArray:
    """The sum of each row of a CSR matrix with these values."""
    sums = np.zeros(len(indptr) - 1)
    filled = np.diff(indptr) > 0
    if len(values):
        sums[filled] = np.add.reduceat(values, indptr[:-1][filled])
    return sums


class _Spread:
    """Sparse points as dense columns: all panels of all features, or, where that is too much, one at a time."""

    def __init__(
        self, csr: vector.Csr, points: IntArray, n_features: int, dtype: Any, same: _Spread | None = None
    ) -> None:
        """`same`: the same columns with norms of another type, whose panels will do."""
        self.count = -(-len(points) // LANES)
        norms = np.zeros(self.count * LANES, csr.norms.dtype)
        norms[: len(points)] = csr.norms[points]
        self.points = vector.Columns(csr, points, norms)
        self._n_features, self._dtype = n_features, dtype
        self._panels: Real | None = None
        bytes_each = n_features * LANES * np.dtype(dtype).itemsize
        if same is not None and same._panels is not None:
            self._panels = same._panels
        elif bytes_each <= _PANEL_BYTES and self.count * bytes_each <= _PANELS_BYTES:
            self._panels = np.zeros((self.count, n_features, LANES), dtype)
            loops.spread_all(self.points, self._panels)
        else:
            entries = np.diff(csr.indptr)[points]
            self._most = int(np.add.reduceat(entries, np.arange(0, len(entries), LANES)).max(initial=0))

    def room(self) -> tuple[IntArray | None, Real]:
        """The table and the panels for one thread."""
        if self._panels is not None:
            return None, self._panels
        places = min(self._n_features, self._most) + 1
        return np.zeros(self._n_features, np.int32), np.zeros((1, places, LANES), self._dtype)


def _add_sparse(
    shape: vector.Shape,
    csr: vector.Csr,
    points: IntArray,
    coef: FloatArray,
    columns: _Spread,
    work: float,
    n_threads: int,
    out: FloatArray,
) -> None:
    """out += K(columns, points) coef in the precision of the points. In place: out, padded to panels."""
    real = csr.norms.dtype
    add = loops.add_sparse_32 if real == np.float32 else loops.add_sparse_64
    weights = coef.astype(real)
    split(
        lambda a, b: add(shape, csr, points, weights, columns.points, *columns.room(), a, b, out),
        columns.count,
        work,
        n_threads,
    )


def is_binary(indptr: IntArray, data: FloatArray) -> bool:
    """Whether all stored values are 1, few enough in a row to be counted in a byte."""
    return bool((data == 1.0).all()) and int(np.diff(indptr).max(initial=0)) <= 255


class OracleTiles:
    """The same services for kernels without a tile, from the blocks and products of `KernelMatrix`."""

    def __init__(self, K: Any) -> None:
        self.K = K
        self.n: int = K.n
        self.n_evals = 0
        self.fits_16_bits = False
        self.linear = self.costly = self.keeps = self.exact_products = False
        self.error_factor = np.zeros(K.n)

    def gram(self, points: IntArray, dtype: Any = np.float32, *, shared: bool = False) -> Real:
        """As `DenseTiles.gram`."""
        count = len(points)
        out = np.zeros((count + 1, -(-count // LANES) * LANES), dtype)
        out[:count, :count] = self.K.block(points, points)
        return out

    def add(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """As `DenseTiles.add`."""
        field[: self.n] += self.K.product(points, coef)

    add_exactly = add

    def keep(self) -> None:
        """`KernelMatrix` has done so already, if it could."""

    def release(self) -> None:
        """Nothing is kept."""


def make_tiles(K: Any, *, centred: bool) -> DenseTiles | SparseTiles | OracleTiles:
    """The fastest tiles for a kernel matrix: sparse ones for sparse data, and for dense data that turn out one-hot."""
    if K.kernel.kind not in _SHAPES or K.function is not None:
        return OracleTiles(K)
    dense = K.points.panels.shape[0] > 0
    if not dense or np.count_nonzero(K.X) < _SPARSE * K.n * K.n_features:
        X = csr_array(K.X) if dense else None
        indptr, indices, data = (
            (X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data)
            if X is not None
            else (K.points.indptr, K.points.indices, K.points.data)
        )
        if not dense or is_binary(indptr, data):
            return SparseTiles(K, indptr, indices, data)
    return DenseTiles(K, centred=centred, n_threads=K.n_threads)


def linear_product(targets: Points, sources: Points, coef: FloatArray, n_features: int) -> FloatArray:
    """X_targets (X_sources' coef): the linear kernel never needs values of pairs."""
    if targets.panels.shape[0]:
        weights = np.zeros(len(sources.panels) * LANES)
        weights[: sources.n] = coef
        w = (sources.panels @ weights.reshape(-1, LANES, 1)).sum(axis=0)[:, 0]
        return np.asarray((w @ targets.panels).ravel()[: targets.n])
    S, T = (csr_array((p.data, p.indices, p.indptr), shape=(p.n, n_features)) for p in (sources, targets))
    return np.asarray(T @ (S.T @ coef))


def has_tile(kernel: Kernel, targets: Points, sources: Points) -> bool:
    """Whether `tile_product` serves this kernel and these points."""
    if kernel.kind not in _SHAPES:
        return False
    if targets.panels.shape[0] and sources.panels.shape[0]:
        return True
    if targets.panels.shape[0] or sources.panels.shape[0]:
        return False
    if kernel.kind not in _EXPONENTIAL:
        return True
    largest = max(magnitudes(kernel, p.indptr, p.data).max(initial=0.0) for p in (targets, sources))
    return bool(kernel.gamma * largest < _CANCELS_64)


def needs_pairs(kernel: Kernel, n_features: int, sources: int) -> bool:
    """Whether a product with dense points is best computed from the kernel values of pairs.

    The targets have no say in it: a value must not depend on what else is asked for.
    """
    terms = _terms(kernel, n_features)
    return kernel.kind != KernelKind.LINEAR and not 0 < terms <= min(_FEW_TERMS, n_features * sources // 4)


def symmetric_product(kernel: Kernel, points: Points, coef: FloatArray, n_threads: int) -> FloatArray:
    """K coef among dense points in float64, each value computed once and used twice."""
    shape, panels = shape_of(kernel), points.panels
    count, each = len(panels), groups_of(LANES)
    row = np.arange(each * vector.ROWS)
    place = np.arange(count)[:, None] * LANES + np.minimum(row, LANES - 1)
    packed = np.empty((count * each, panels.shape[1], vector.ROWS))
    loops.pack_rows(panels, place.ravel(), packed)
    weights = np.zeros(count * LANES)
    weights[: points.n] = coef
    rows = np.where(row < LANES, weights[place], 0.0).ravel()
    by_column, by_row = np.zeros((_SLABS, len(weights))), np.zeros((_SLABS, len(rows)))

    def run(first: int, last: int) -> None:
        for slab in range(first, last):
            add = loops.add_symmetric
            add(shape, packed, rows, panels, weights, slab, _SLABS, by_column[slab], by_row[slab])

    split(run, min(_SLABS, count), 0.5 * packed.size * len(weights), n_threads)
    out = by_column.sum(axis=0).reshape(count, LANES) + by_row.sum(axis=0).reshape(count, -1)[:, :LANES]
    return np.asarray(out.ravel()[: points.n] + kernel.offset * coef.sum())


def tile_product(
    kernel: Kernel, targets: Points, sources: Points, coef: FloatArray, n_features: int, n_threads: int
) -> FloatArray:
    """out_t = sum_s coef_s k(target_t, source_s) in float64, K never stored."""
    if kernel.kind == KernelKind.LINEAR:
        return np.asarray(linear_product(targets, sources, coef, n_features) + kernel.offset * coef.sum())
    shape = shape_of(kernel)
    out = np.zeros(-(-targets.n // LANES) * LANES)
    if targets.panels.shape[0] and not needs_pairs(kernel, n_features, sources.n):
        ours, theirs = (_with_constant(points.panels[:, :n_features]) for points in (targets, sources))
        _add_form(kernel, ours, theirs, coef, n_threads, out)
    elif targets.panels.shape[0]:
        groups = groups_of(sources.n)
        packed = np.empty((groups, sources.panels.shape[1], vector.ROWS))
        loops.pack_rows(sources.panels, np.arange(sources.n), packed)
        weights = np.zeros(groups * vector.ROWS)
        weights[: sources.n] = coef
        panels = targets.panels
        work = float(packed.size * len(out))
        split(lambda a, b: loops.add_block_64(shape, packed, weights, panels, a, b, out), len(panels), work, n_threads)
    else:
        binary = is_binary(sources.indptr, sources.data) and is_binary(targets.indptr, targets.data)
        rows, other = (
            vector.Csr(p.indptr, p.indices, p.data, magnitudes(kernel, p.indptr, p.data)) for p in (sources, targets)
        )
        columns = _Spread(other, np.arange(targets.n), n_features, np.uint8 if binary else np.float64)
        work = float(len(out)) * (len(sources.data) + sources.n)
        _add_sparse(shape, rows, np.arange(sources.n), coef, columns, work, n_threads, out)
    return np.asarray(out[: targets.n] + kernel.offset * coef.sum())


def exact_block(kernel: Kernel, targets: Points, sources: Points) -> FloatArray | None:
    """k(target, source) in float64 for all pairs of dense points; None where there is no tile for them."""
    if not (kernel.kind in _SHAPES and targets.panels.shape[0] and sources.panels.shape[0]):
        return None
    panels = sources.panels
    packed = np.empty((groups_of(targets.n), panels.shape[1], vector.ROWS))
    loops.pack_rows(targets.panels, np.arange(targets.n), packed)
    out = np.empty((len(packed) * vector.ROWS, len(panels) * LANES + _STAGGER))
    loops.store_block_64(shape_of(kernel), packed, panels, 0, len(panels), out)
    return out[: targets.n, : sources.n]
