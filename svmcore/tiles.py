"""Kernel blocks and kernel-times-vector in float32, and the same products exactly in float64, from register tiles.

`DenseTiles` serves the kernels that have a tile, `OracleTiles` (through `KernelMatrix`) everything else; both speak of
points. A product is shared out to threads by panels, each of which sums in one fixed order: the bits do not depend on
the number of threads. Short products are never shared out.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svmcore import _block_jit as block_jit
from svmcore import _vector
from svmcore._types import LANES, FloatArray, IntArray, KernelKind

_LOG2E = 1.4426950408889634
_SHAPES = {
    KernelKind.LINEAR: _vector.Linear,
    KernelKind.POLY: _vector.Poly,
    KernelKind.SIGMOID: _vector.Sigmoid,
    KernelKind.RBF: _vector.Rbf,
    KernelKind.LAPLACIAN: _vector.Laplacian,
}
PIECE = 1 << 26  # kernel values between two looks at the clock
_WORTH_A_THREAD = 1 << 24  # feature operations, about half a millisecond

Real = NDArray[Any]


def groups_of(count: int) -> int:
    """Row groups that hold `count` rows."""
    return -(-count // _vector.ROWS)


class DenseTiles:
    """Tiles over dense points. `centred` data have the same dual solution when the kernel is linear and sum(beta) = 0."""

    def __init__(self, K: Any, *, centred: bool, n_threads: int = 1) -> None:
        self.K = K
        self.n: int = K.n
        self.offset = float(K.kernel.offset)
        self.n_threads = n_threads
        kernel, panels = K.kernel, K.points.panels
        kind = KernelKind(kernel.kind)
        exponential = kind in (KernelKind.RBF, KernelKind.LAPLACIAN)
        scale = kernel.gamma * (_LOG2E if exponential else 1.0)
        self.shape = _SHAPES[kind](float(scale), float(kernel.coef0), int(kernel.degree))
        width = _used_features(panels)
        self.exact = panels[:, :width] if width < panels.shape[1] else panels
        centre = np.zeros(width)
        if exponential or (kind == KernelKind.LINEAR and centred):
            centre = self.exact.sum(axis=(0, 2)) / self.n
        factor = np.sqrt(scale) if kind == KernelKind.RBF else scale if kind == KernelKind.LAPLACIAN else 1.0
        self.panels = np.empty(self.exact.shape, np.float32)
        for first in range(0, len(panels), 64):
            piece = slice(first, first + 64)
            self.panels[piece] = (self.exact[piece] - centre[:, None]) * factor
        self._buffer = np.empty(0, np.float32)
        self._pool = ThreadPoolExecutor(n_threads - 1) if n_threads > 1 else None
        self.n_evals = 0
        self.fits_16_bits = exponential and self.offset == 0.0

    def _split(self, run: Any, panels: int, work: float) -> None:
        """run(first, last) over all panels, on threads when the work is worth it."""
        if self._pool is None or work < _WORTH_A_THREAD:
            run(0, panels)
            return
        edges = np.linspace(0, panels, self.n_threads + 1).astype(int)
        others = [self._pool.submit(run, a, b) for a, b in zip(edges[1:-1], edges[2:], strict=True)]
        run(0, edges[1])
        for other in others:
            other.result()

    def gram(self, points: IntArray, dtype: Any = np.float32) -> Real:
        """K among points, with at least one row of zeros below it; the array is reused by the next call.

        uint16 holds multiples of 1 / UNITS_16, for kernels with values in [0, 1].
        """
        count = len(points)
        single = dtype != np.float64
        source = self.panels if single else np.ascontiguousarray(self.exact)
        columns = -(-count // LANES)
        rows = groups_of(count) * _vector.ROWS
        width = columns * LANES
        size = ((rows + 1) * width * np.dtype(dtype).itemsize + 3) // 4
        if len(self._buffer) < size:
            self._buffer = np.empty(size, np.float32)
        out = self._buffer[:size].view(dtype)[: (rows + 1) * width].reshape(rows + 1, width)
        packed = np.empty((groups_of(count), source.shape[1], _vector.ROWS), source.dtype)
        panels = np.empty((columns, source.shape[1], LANES), source.dtype)
        block_jit.pack_rows(source, points, packed)
        block_jit.gather_panels(source, points, panels)
        store = block_jit.store_block_32 if single else block_jit.store_block_64
        self._split(
            lambda a, b: store(self.shape, packed, panels, a, b, out), columns, rows * width * source.shape[1]
        )
        if self.offset:
            out += self.offset
        out[count:] = 0.0
        self.n_evals += count * count
        return out

    def add(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """field += K[:, points] coef in float32 tiles and float64 sums. In place: field, padded to panels."""
        self._add(points, coef, field, self.panels, block_jit.add_block_32)

    def add_exactly(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """`add` in float64."""
        self._add(points, coef, field, np.ascontiguousarray(self.exact), block_jit.add_block_64)

    def _add(self, points: IntArray, coef: FloatArray, field: FloatArray, panels: Real, add: Any) -> None:
        count = len(points)
        groups = groups_of(count)
        packed = np.empty((groups, panels.shape[1], _vector.ROWS), panels.dtype)
        block_jit.pack_rows(panels, points, packed)
        weights = np.zeros(groups * _vector.ROWS, panels.dtype)
        weights[:count] = coef
        work = packed.size * len(panels) * LANES
        self._split(
            lambda a, b: add(self.shape, packed, weights, panels, a, b, field), len(panels), work
        )
        if self.offset:
            field += self.offset * coef.sum()
        self.n_evals += count * self.n


def _used_features(panels: FloatArray) -> int:
    """Features up to the last one that is not padding."""
    width = panels.shape[1]
    while width > max(1, panels.shape[1] - 3) and not panels[:, width - 1].any():
        width -= 1
    return width


class OracleTiles:
    """The same services for kernels without a tile, from the blocks and products of `KernelMatrix`."""

    def __init__(self, K: Any) -> None:
        self.K = K
        self.n: int = K.n
        self.n_evals = 0
        self.fits_16_bits = False

    def gram(self, points: IntArray, dtype: Any = np.float32) -> Real:
        """As `DenseTiles.gram`."""
        count = len(points)
        out = np.zeros((count + 1, -(-count // LANES) * LANES), dtype)
        out[:count, :count] = self.K.block(points, points)
        return out

    def add(self, points: IntArray, coef: FloatArray, field: FloatArray) -> None:
        """As `DenseTiles.add`."""
        field[: self.n] += self.K.product(points, coef)

    add_exactly = add


def make_tiles(K: Any, *, centred: bool, n_threads: int = 1) -> DenseTiles | OracleTiles:
    """The fastest tiles for a kernel matrix."""
    dense = K.points.panels.shape[0] > 0 and K.kernel.kind in _SHAPES and K.function is None
    return DenseTiles(K, centred=centred, n_threads=n_threads) if dense else OracleTiles(K)
