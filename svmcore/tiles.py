"""Kernel blocks and kernel-times-vector in float32, and the same products exactly in float64, from register tiles.

`DenseTiles` serves the kernels that have a tile, `OracleTiles` (through `KernelMatrix`) everything else; both speak of
points. A product is shared out to threads by panels, each of which sums in one fixed order: the bits do not depend on
the number of threads. Short products are never shared out.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from svmcore import _block_jit as block_jit
from svmcore import _kernels, _vector
from svmcore._lanes import UNITS_16
from svmcore._threads import split
from svmcore._types import LANES, FloatArray, IntArray, Kernel, KernelKind, Points

_LOG2E = 1.4426950408889634
_SHAPES = {
    KernelKind.LINEAR: _vector.Linear,
    KernelKind.POLY: _vector.Poly,
    KernelKind.SIGMOID: _vector.Sigmoid,
    KernelKind.RBF: _vector.Rbf,
    KernelKind.LAPLACIAN: _vector.Laplacian,
}
_EXPONENTIAL = (KernelKind.RBF, KernelKind.LAPLACIAN)
_WIDE = 40  # features above which half a Gram matrix and its mirror image are cheaper than the whole
_COSTLY = 48  # features above which a kernel value is better read from memory than computed again
_KEPT_LEAST = 1 << 24  # bytes that K among all points may take in any case,
_KEPT_PER_FEATURE = 1 << 20  # and with many features: fresh memory can cost as much as computing (100 MB: 5 to 150 ms)
_KEPT_VALUES = 1 << 24  # 64 MB
_STAGGER = 32  # unused columns at the end of every row of a Gram matrix
_SPARSE = 0.25  # share of stored entries below which sparse tiles win
_PANEL_BYTES = 1 << 29  # memory for dense columns of sparse data
_CANCELS = 50.0  # scaled squared norms above which float32 distances from norms are too coarse
_ROUNDING = 2.0**-24
_FEW_TERMS = 2000  # coefficients of a polynomial up to which it beats pairs of points, from a few dozen points on
PIECE = 1 << 26  # kernel values between two looks at the clock

Real = NDArray[Any]


def groups_of(count: int) -> int:
    """Row groups that hold `count` rows."""
    return -(-count // _vector.ROWS)


def shape_of(kernel: Kernel) -> _vector.Shape:
    """A kernel as the type and numbers that a tile is compiled for. The exponential ones are powers of two."""
    kind = KernelKind(kernel.kind)
    scale = kernel.gamma * (_LOG2E if kind in _EXPONENTIAL else 1.0)
    shape: _vector.Shape = _SHAPES[kind](float(scale), float(kernel.coef0), int(kernel.degree))  # type: ignore[assignment]
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

    def take(self, size: int) -> Real:
        """A float32 array of at least this size; what has never been written takes no memory."""
        with self._lock:
            buffer, self._buffer = self._buffer, None
        return buffer if buffer is not None and len(buffer) >= size else np.empty(size, np.float32)

    def give(self, buffer: Real, touched: int) -> None:
        """Keep a buffer of which `touched` values have been written, unless that is a lot."""
        if touched <= _KEPT_VALUES:
            with self._lock:
                self._buffer = buffer


_spare = _Spare()


def _complete(out: Real, count: int) -> None:
    """The lower triangle mirrored, and zeros in the padding, which may hold anything. In place: out."""
    block_jit.mirror(out, count)
    out[:count, count:] = 0
    out[count:] = 0


def _gathered(gram: Real, members: IntArray, scale: float, out: Real) -> Real:
    """scale gram[members, members], rounded where `out` holds integers. In place: out."""
    rounding = 0.5 if out.dtype == np.uint16 else 0.0
    block_jit.gather_lower(gram, members.astype(np.uint32), np.float32(scale), np.float32(rounding), out)
    _complete(out, len(members))
    return out


def part_of(gram: Real, members: IntArray) -> Real:
    """The Gram matrix of some of the points of another one, laid out the same."""
    return _gathered(gram, members, 1.0, np.empty(_layout(len(members)), gram.dtype))


def _layout(count: int) -> tuple[int, int]:
    """Rows and columns of the Gram matrix of `count` points: whole panels wide, a row of zeros at least below.

    Its rows are a cache line apart from a multiple of the page, which caches map to few places.
    """
    return groups_of(count) * _vector.ROWS + 1, -(-count // LANES) * LANES + _STAGGER


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
        self.costly = False
        self._most = max(1, min((self.n + 8) * (self.n + LANES + _STAGGER), K.cache_bytes // 4))
        self._buffer = _spare.take(self._most)
        self._touched = 0
        self._kept: Real | None = None
        self._spared: tuple[Real, int] | None = None  # the buffer that holds it

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
        room = min(self.K.cache_bytes, max(_KEPT_LEAST, self.K.n_features * _KEPT_PER_FEATURE))
        if self._kept is None and not self.linear and 4 * self.n * (self.n + 2 * LANES) <= room:
            self._kept = self._compute(np.arange(self.n), np.float32)
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
        """field += K[:, points] coef in float32 tiles and float64 sums. In place: field, padded to panels."""
        if self.linear:
            self._add_linear(points, coef, field)
        elif self._kept is not None:
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
        kept, weights, size = self._kept, coef.astype(np.float32), block_jit.STRETCH
        split(
            lambda a, b: block_jit.add_rows(kept, points, weights, a * size, min(b * size, self.n), field),
            -(-self.n // size),
            float(len(points) * self.n),
            self.n_threads,
        )

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
        self.costly = width >= _COSTLY
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
        panels, shape = self.panels, self.shape
        if self.K.kernel.kind in _EXPONENTIAL:
            norms = np.abs(panels).sum(axis=1) if self.K.kernel.kind == KernelKind.LAPLACIAN else _norms(panels)
            worst = _ROUNDING * ((width + 2.0) / np.e + 1.5 * float(norms.max(initial=0.0)) + 8.0)
            return np.full(self.n, np.sqrt(worst))
        size = abs(shape.scale) * _norms(panels).ravel()[: self.n].astype(np.float64) ** 2 + abs(shape.coef0)
        degree = float(shape.degree) if self.K.kernel.kind == KernelKind.POLY else 1.0
        if self.K.kernel.kind == KernelKind.SIGMOID:
            size = np.maximum(size, 1.0)
        return np.asarray(np.sqrt(_ROUNDING * max(1.0, degree) * (width + 16.0)) * size ** (0.5 * degree))

    def _compute(self, points: IntArray, dtype: Any) -> Real:
        """As `_Tiles._compute`."""
        count = len(points)
        single = dtype != np.float64
        source = self.panels if single else np.ascontiguousarray(self.exact)
        out = self._space(count, dtype)
        columns = -(-count // LANES)
        packed = np.empty((groups_of(count), source.shape[1], _vector.ROWS), source.dtype)
        panels = np.empty((columns, source.shape[1], LANES), source.dtype)
        block_jit.pack_rows(source, points, packed)
        block_jit.gather_panels(source, points, panels)
        half = single and source.shape[1] >= _WIDE
        store = block_jit.store_lower_32 if half else block_jit.store_block_32 if single else block_jit.store_block_64
        work = float(out.size * source.shape[1])
        split(lambda a, b: store(self.shape, packed, panels, a, b, out), columns, work, self.n_threads)
        if half:
            _complete(out, count)
        return self._finish(out, count)

    def _add(self, points: IntArray, coef: FloatArray, field: FloatArray, *, single: bool) -> None:
        """As `_Tiles._add`."""
        if self.form is not None:
            chosen = np.empty((-(-len(points) // LANES), *self.form.shape[1:]))
            block_jit.gather_panels(self.form, points, chosen)
            _add_form(self.K.kernel, self.form, chosen, coef, self.n_threads, field)
            field += self.offset * coef.sum()
            return
        panels = self.panels if single else np.ascontiguousarray(self.exact)
        add = block_jit.add_block_32 if single else block_jit.add_block_64
        count = len(points)
        groups = groups_of(count)
        packed = np.empty((groups, panels.shape[1], _vector.ROWS), panels.dtype)
        block_jit.pack_rows(panels, points, packed)
        weights = np.zeros(groups * _vector.ROWS, panels.dtype)
        weights[:count] = coef
        work = float(packed.size * len(panels) * LANES)
        split(lambda a, b: add(self.shape, packed, weights, panels, a, b, field), len(panels), work, self.n_threads)
        if self.offset:
            field += self.offset * coef.sum()
        self.n_evals += count * self.n


def _norms(panels: Real) -> Real:
    """Norms of the points, by panel and lane."""
    return np.asarray(np.sqrt(np.einsum("pkj,pkj->pj", panels, panels)))


def _used_features(panels: FloatArray) -> int:
    """Features up to the last one that is not padding."""
    width = int(panels.shape[1])
    while width > max(1, panels.shape[1] - 3) and not panels[:, width - 1].any():
        width -= 1
    return width


class SparseTiles(_Tiles):
    """Tiles of sparse rows against dense columns: bytes for data of zeros and ones, else float32 and float64."""

    def __init__(self, K: Any, indptr: IntArray, indices: Any, data: FloatArray, norms: FloatArray) -> None:
        super().__init__(K, K.n_threads)
        width = K.n_features
        binary = is_binary(indptr, data)
        wide = np.zeros(-(-K.n // LANES) * LANES)
        wide[: K.n] = norms
        cancels = isinstance(self.shape, _vector.Rbf) and self.shape.scale * norms.max(initial=0.0) > _CANCELS
        single = np.float64 if cancels and not binary else np.float32
        self.per_row = len(data) / max(K.n, 1) + 8.0
        everything = np.arange(K.n)
        self.sources: dict[Any, tuple[_vector.Csr, Real]] = {}
        for dtype in (single, np.float64):
            store = np.uint8 if binary else dtype
            if (dtype, store) == (np.float64, np.uint8):
                panels = self.sources[single][1]
            elif dtype in self.sources:
                continue
            else:
                panels = np.zeros((len(wide) // LANES, width, LANES), store)
                block_jit.scatter_panels(indptr, indices, data, everything, panels)
            csr = _vector.Csr(indptr, indices, data.astype(dtype), wide.astype(dtype))
            self.sources[dtype] = (csr, panels)
        self.single = single
        largest = float(self.shape.scale * norms.max(initial=0.0)) if isinstance(self.shape, _vector.Rbf) else 0.0
        worst = _ROUNDING * ((0.0 if binary else 4.0 * float(np.sqrt(width)) * largest) + 3.0 * largest + 8.0)
        self.error_factor = np.full(K.n, np.sqrt(worst) if isinstance(self.shape, _vector.Rbf) else np.inf)

    def _compute(self, points: IntArray, dtype: Any) -> Real:
        """As `_Tiles._compute`."""
        count = len(points)
        real = np.float64 if dtype == np.float64 else self.single
        csr, panels = self.sources[real]
        out = self._space(count, dtype)
        columns = -(-count // LANES)
        among = np.zeros((columns, panels.shape[1], LANES), panels.dtype)
        block_jit.scatter_panels(csr.indptr, csr.indices, csr.data, points, among)
        norms = np.zeros(columns * LANES, real)
        norms[:count] = csr.norms[points]
        store = block_jit.store_sparse_32 if real == np.float32 else block_jit.store_sparse_64
        work = out.size * self.per_row
        split(lambda a, b: store(self.shape, csr, points, among, norms, a, b, out), columns, work, self.n_threads)
        return self._finish(out, count)

    def _add(self, points: IntArray, coef: FloatArray, field: FloatArray, *, single: bool) -> None:
        """As `_Tiles._add`."""
        real = self.single if single else np.float64
        csr, panels = self.sources[real]
        add = block_jit.add_sparse_32 if real == np.float32 else block_jit.add_sparse_64
        weights = coef.astype(real)
        work = len(points) * len(field) * self.per_row
        count = len(panels)
        split(
            lambda a, b: add(self.shape, csr, points, weights, panels, csr.norms, a, b, field),
            count,
            work,
            self.n_threads,
        )
        if self.offset:
            field += self.offset * coef.sum()
        self.n_evals += len(points) * self.n


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
        self.linear = self.costly = self.exact_products = False
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
    filled = np.count_nonzero(K.X) if dense else len(K.points.data)
    size = K.n * K.n_features
    if filled < _SPARSE * size:
        X = csr_array(K.X) if dense else None
        indptr, indices, data = (
            (X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data)
            if X is not None
            else (K.points.indptr, K.points.indices, K.points.data)
        )
        binary = is_binary(indptr, data)
        fits = binary or (K.kernel.kind != KernelKind.LAPLACIAN and not dense)
        if fits and size * (1 if binary else 12) <= _PANEL_BYTES:
            norms = np.add.reduceat(np.append(data * data, 0.0), np.minimum(indptr[:-1], len(data)))
            norms[np.diff(indptr) == 0] = 0.0
            return SparseTiles(K, indptr, indices, data, norms)
    return DenseTiles(K, centred=centred, n_threads=K.n_threads) if dense else OracleTiles(K)


def linear_product(targets: Points, sources: Points, coef: FloatArray, n_features: int) -> FloatArray:
    """X_targets (X_sources' coef): the linear kernel never needs values of pairs."""
    if targets.panels.shape[0]:
        weights = np.zeros(len(sources.panels) * LANES)
        weights[: sources.n] = coef
        w = (sources.panels @ weights.reshape(-1, LANES, 1)).sum(axis=0)[:, 0]
        return np.asarray((w @ targets.panels).ravel()[: targets.n])
    S, T = (csr_array((p.data, p.indices, p.indptr), shape=(p.n, n_features)) for p in (sources, targets))
    return np.asarray(T @ (S.T @ coef))


_MOST_FEATURES = 50_000  # of sparse targets that are spread out to dense columns
_CHUNK_VALUES = 1 << 22  # features spread out at a time
_CANCELS_64 = 1e4  # scaled squared norms above which distances are better summed than expanded, even in float64


def has_tile(kernel: Kernel, targets: Points, sources: Points) -> bool:
    """Whether `tile_product` serves this kernel and these points."""
    if kernel.kind not in _SHAPES:
        return False
    if targets.panels.shape[0] and sources.panels.shape[0]:
        return True
    if targets.panels.shape[0] or sources.panels.shape[0] or kernel.kind == KernelKind.LAPLACIAN:
        return False
    largest = max(targets.norms.max(initial=0.0), sources.norms.max(initial=0.0))
    return kernel.kind != KernelKind.RBF or kernel.gamma * largest < _CANCELS_64


def tile_product(
    kernel: Kernel, targets: Points, sources: Points, coef: FloatArray, n_features: int, n_threads: int
) -> FloatArray | None:
    """out_t = sum_s coef_s k(target_t, source_s) in float64, K never stored; None for too many sparse features."""
    if kernel.kind == KernelKind.LINEAR:
        return np.asarray(linear_product(targets, sources, coef, n_features) + kernel.offset * coef.sum())
    shape = shape_of(kernel)
    out = np.zeros(-(-targets.n // LANES) * LANES)
    terms = _terms(kernel, n_features)
    # the targets have no say in it: a value must not depend on what else is asked for
    if targets.panels.shape[0] and 0 < terms <= min(_FEW_TERMS, n_features * sources.n // 4):
        ours, theirs = (_with_constant(points.panels[:, :n_features]) for points in (targets, sources))
        _add_form(kernel, ours, theirs, coef, n_threads, out)
    elif targets.panels.shape[0]:
        groups = groups_of(sources.n)
        packed = np.empty((groups, sources.panels.shape[1], _vector.ROWS))
        block_jit.pack_rows(sources.panels, np.arange(sources.n), packed)
        weights = np.zeros(groups * _vector.ROWS)
        weights[: sources.n] = coef
        panels = targets.panels
        work = float(packed.size * len(out))
        split(
            lambda a, b: block_jit.add_block_64(shape, packed, weights, panels, a, b, out), len(panels), work, n_threads
        )
    elif n_features > _MOST_FEATURES:
        return None
    else:
        _sparse_product(shape, targets, sources, np.ascontiguousarray(coef, np.float64), n_features, n_threads, out)
    return np.asarray(out[: targets.n] + kernel.offset * coef.sum())


def _sparse_product(
    shape: _vector.Shape,
    targets: Points,
    sources: Points,
    coef: FloatArray,
    width: int,
    n_threads: int,
    out: FloatArray,
) -> None:
    """The sparse case of `tile_product`, in chunks of targets. In place: out."""
    binary = is_binary(sources.indptr, sources.data) and is_binary(targets.indptr, targets.data)
    csr = _vector.Csr(sources.indptr, sources.indices, sources.data, sources.norms)
    points = np.arange(sources.n)
    norms = np.zeros(len(out))
    norms[: targets.n] = targets.norms

    def run(first: int, last: int) -> None:
        step = max(1, _CHUNK_VALUES // max(1, width * LANES))
        for start in range(first, last, step):
            stop = min(start + step, last)
            chosen = np.arange(start * LANES, min(stop * LANES, targets.n))
            panels = np.zeros((stop - start, width, LANES), np.uint8 if binary else np.float64)
            block_jit.scatter_panels(targets.indptr, targets.indices, targets.data, chosen, panels)
            span = slice(start * LANES, stop * LANES)
            block_jit.add_sparse_64(shape, csr, points, coef, panels, norms[span], 0, stop - start, out[span])

    split(run, len(out) // LANES, float(len(out)) * (len(sources.data) + sources.n), n_threads)
