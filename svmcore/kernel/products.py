"""Products of kernel values with coefficients, and blocks of values, between sets of points. Nothing is kept.

A product is shared out to threads by panels. Each panel sums in one fixed order, so the bits do not depend on the number of
threads. Short products are never shared out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from svmcore import _kernels
from svmcore._errors import InputError
from svmcore._types import LANES, FloatArray, IntArray, Kernel, KernelKind, Points
from svmcore.base.door import reals
from svmcore.base.threads import split
from svmcore.kernel.points import (
    STAGGER,
    Real,
    aligned,
    groups_of,
    is_binary,
    magnitudes,
    new_scratch,
    packed_rows,
    packed_weights,
    padded,
)
from svmcore.kernel.table import facts_of
from svmcore.simd import loops, sparse, vector

KernelFunction = Callable[[Any, Any], Any]
_LOG2E = 1.4426950408889634
SHAPES = {
    KernelKind.LINEAR: vector.Poly,
    KernelKind.POLY: vector.Poly,
    KernelKind.SIGMOID: vector.Sigmoid,
    KernelKind.RBF: vector.Rbf,
    KernelKind.LAPLACIAN: vector.Laplacian,
}
# Work: in a row of kernel values a feature takes _SLOWER times as long as in a tile.
_SLOWER = 16.0
# Memory. Sparse points are spread out to panels of all features if one panel has at most _PANEL_BYTES, so that it fits the
# cache, and all panels together have at most _PANELS_BYTES.
_PANEL_BYTES = 1 << 19
_PANELS_BYTES = 1 << 28
# Rounding: above this scaled squared norm float64 distances that are computed from norms are too coarse.
_CANCELS_64 = 1e4
# Distances of at least NEAR_FEATURES features are computed from squares and products if no scaled square is above NEAR. That
# is half the work. A sum of squared differences would have an error of the same size.
NEAR_FEATURES, NEAR = 48, 4.0
# A symmetric product is cut into so many parts. Each has sums of its own.
_SLABS = 16
# A polynomial of up to so many coefficients is faster than pairs of points, from a few dozen points on.
FEW_TERMS = 2000
# Symmetry. Values of a user's function may differ from those the other way round by the share _SYMMETRIC of the largest one,
# which is the rounding of float32. So many rows are compared together.
_SYMMETRIC, _COMPARED = 1e-5, 1024


def call_kernel(function: KernelFunction, A: Any, B: Any, offset: float) -> FloatArray:
    """A checked block of values of the user's kernel function."""
    values = reals(function(A, B), "the matrix that the kernel function returned")
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


def unsymmetric(K: FloatArray, tol: float) -> tuple[int, int] | None:
    """The place where a square matrix differs from its transpose by more than `tol` times its largest value, or None."""
    scale = float(np.abs(K).max(initial=0.0))
    for start in range(0, K.shape[0], _COMPARED):
        difference = np.abs(K[start : start + _COMPARED] - K[:, start : start + _COMPARED].T)
        if difference.max() > tol * scale:
            i, j = np.unravel_index(int(difference.argmax()), difference.shape)
            return start + int(i), int(j)
    return None


def demand_symmetry(K: FloatArray, rows: IntArray) -> None:
    """Refuse values of the user's kernel function among these points of the training set that are not symmetric."""
    place = unsymmetric(K, _SYMMETRIC)
    if place is not None:
        i, j = place
        raise InputError(
            f"the kernel function is not symmetric: it gives {K[i, j]:g} for samples {rows[i]} and {rows[j]}, and "
            f"{K[j, i]:g} the other way round; give (k(A, B) + k(B, A).T) / 2, or a kernel that is symmetric"
        )


@lru_cache(maxsize=64)
def shape_of(kernel: Kernel) -> vector.Shape:
    """A kernel as the type that a tile is compiled for, with its numbers. Exponential kernels are powers of two there."""
    kind = KernelKind(kernel.kind)
    if kind == KernelKind.LINEAR:
        return vector.Poly(1.0, 0.0, 1)
    scale = kernel.gamma * (_LOG2E if facts_of(kernel).exponential else 1.0)
    shape: vector.Shape = SHAPES[kind](float(scale), float(kernel.coef0), int(kernel.degree))
    return shape


def terms_of(kernel: Kernel, n_features: int) -> int:
    """How many coefficients a sum of kernel values has as one polynomial. 0 unless it is a polynomial of degree 2 or 3."""
    d = n_features + 1
    if kernel.kind != KernelKind.POLY or kernel.degree not in (2, 3):
        return 0
    return d * (d + 1) // 2 if kernel.degree == 2 else d * (d + 1) * (d + 2) // 6


def with_constant(panels: FloatArray) -> FloatArray:
    """Panels with one more feature, which is 1."""
    count, width, _ = panels.shape
    out = np.empty((count, width + 1, LANES))
    out[:, :width], out[:, width] = panels, 1.0
    return out


def add_form(
    kernel: Kernel, targets: FloatArray, sources: FloatArray, coef: FloatArray, n_threads: int, out: FloatArray
) -> None:
    """out += K(targets, sources) coef for a polynomial kernel. The offset is left out. In place: out.

    Both sets of panels have the constant of `with_constant` as their last feature.
    """
    d = sources.shape[1]
    scale = np.full(d, float(kernel.gamma))
    scale[-1] = kernel.coef0
    weights = np.empty(terms_of(kernel, d - 1))
    padded = np.zeros(len(sources) * LANES)
    padded[: len(coef)] = coef
    scratch = np.empty(len(padded)), np.empty((d, d))
    _kernels.form_of(sources, padded, kernel.degree, scale, *scratch, weights)
    work = float(len(weights) * len(targets) * LANES)
    split(lambda a, b: _kernels.add_forms(targets, weights, kernel.degree, a, b, out), len(targets), work, n_threads)


class Spread:
    """Sparse points as dense columns. Panels of all features are kept, or, where that is too much, one is made at a time."""

    def __init__(
        self, csr: sparse.Csr, points: IntArray, n_features: int, dtype: Any, same: Spread | None = None
    ) -> None:
        """`same` are the same columns with norms of another number type. Their panels are used here, too."""
        self.count = -(-len(points) // LANES)
        norms = np.zeros(self.count * LANES, csr.norms.dtype)
        norms[: len(points)] = csr.norms[points]
        self.points = sparse.SpreadColumns(csr, points, norms)
        self._n_features, self._dtype = n_features, dtype
        self._panels: Real | None = None
        bytes_each = n_features * LANES * np.dtype(dtype).itemsize
        if same is not None and same._panels is not None:
            self._panels = same._panels
        elif bytes_each <= _PANEL_BYTES and self.count * bytes_each <= _PANELS_BYTES:
            self._panels = np.zeros((self.count, n_features, LANES), dtype)
            sparse.spread_all(self.points, self._panels)
        else:
            entries = np.diff(csr.indptr)[points]
            self._most = int(np.add.reduceat(entries, np.arange(0, len(entries), LANES)).max(initial=0))

    def room(self) -> tuple[IntArray | None, Real]:
        """The table and the panels for one thread."""
        if self._panels is not None:
            return None, self._panels
        places = min(self._n_features, self._most) + 1
        return np.zeros(self._n_features, np.int32), np.zeros((1, places, LANES), self._dtype)


def add_sparse(
    shape: vector.Shape,
    csr: sparse.Csr,
    points: IntArray,
    coef: FloatArray,
    columns: Spread,
    work: float,
    n_threads: int,
    out: FloatArray,
) -> None:
    """out += K(columns, points) coef, in the precision of the points. `out` is padded to whole panels. In place: out."""
    real = csr.norms.dtype
    add = sparse.add_sparse
    weights = coef.astype(real)
    split(
        lambda a, b: add(shape, csr, points, weights, columns.points, *columns.room(), a, b, out),
        columns.count,
        work,
        n_threads,
    )


def linear_product(targets: Points, sources: Points, coef: FloatArray, n_features: int) -> FloatArray:
    """X_targets (X_sources' coef). The linear kernel never needs values of pairs."""
    if targets.panels.shape[0]:
        weights = np.zeros(len(sources.panels) * LANES)
        weights[: sources.n] = coef
        w = (sources.panels @ weights.reshape(-1, LANES, 1)).sum(axis=0)[:, 0]
        return np.asarray((w @ targets.panels).ravel()[: targets.n])
    S, T = (csr_array((p.data, p.indices, p.indptr), shape=(p.n, n_features)) for p in (sources, targets))
    return np.asarray(T @ (S.T @ coef))


def has_tile(kernel: Kernel, targets: Points, sources: Points) -> bool:
    """Whether `tile_product` serves this kernel and these points."""
    if kernel.kind not in SHAPES:
        return False
    if targets.panels.shape[0] and sources.panels.shape[0]:
        return True
    if targets.panels.shape[0] or sources.panels.shape[0]:
        return False
    if not facts_of(kernel).exponential:
        return True
    largest = max(magnitudes(kernel, p.indptr, p.data).max(initial=0.0) for p in (targets, sources))
    return bool(kernel.gamma * largest < _CANCELS_64)


def needs_pairs(kernel: Kernel, n_features: int, sources: int) -> bool:
    """Whether a product with dense points is best computed from the kernel values of pairs.

    The targets have no say in it: a value must not depend on what else is asked for.
    """
    terms = terms_of(kernel, n_features)
    tiled = kernel.kind in SHAPES and kernel.kind != KernelKind.LINEAR
    return tiled and not 0 < terms <= min(FEW_TERMS, n_features * sources // 4)


def pair_product(shape: vector.Shape, panels: Real, packed: Real, coef: FloatArray, n_threads: int) -> FloatArray:
    """K(panels, packed rows) coef in float64, for all lanes of the panels. K is never stored."""
    out, weights = np.zeros(len(panels) * LANES), packed_weights(packed, coef)
    work = packed.nbytes / 4.0 * len(out)
    split(lambda a, b: loops.add_block(shape, packed, weights, panels, a, b, out), len(panels), work, n_threads)
    return out


def symmetric_product(
    shape: vector.Shape, panels: Real, pack: Callable[[IntArray], Real], coef: FloatArray, n_threads: int
) -> FloatArray:
    """K coef among the points of some panels in float64. Each value is computed once and used twice.

    `pack` makes row groups of them.
    """
    count, each = len(panels), groups_of(LANES)
    row = np.arange(each * vector.ROWS)
    place = np.arange(count)[:, None] * LANES + np.minimum(row, LANES - 1)
    packed = pack(np.minimum(place.ravel(), len(coef) - 1))
    weights = np.zeros(count * LANES)
    weights[: len(coef)] = coef
    rows = np.where(row < LANES, weights[place], 0.0).ravel()
    by_column, by_row = np.zeros((_SLABS, len(weights))), np.zeros((_SLABS, len(rows)))

    split(
        lambda a, b: loops.add_symmetric(shape, packed, rows, panels, weights, a, b, by_column, by_row),
        min(_SLABS, count), packed.nbytes / 8.0 * len(weights), n_threads,
    )  # fmt: skip
    out = by_column.sum(axis=0).reshape(count, LANES) + by_row.sum(axis=0).reshape(count, -1)[:, :LANES]
    return np.asarray(out.ravel()[: len(coef)])


def tile_product(
    kernel: Kernel, targets: Points, sources: Points, coef: FloatArray, n_features: int, n_threads: int
) -> FloatArray:
    """out_t = sum_s coef_s k(target_t, source_s) in float64. K is never stored."""
    if kernel.kind == KernelKind.LINEAR:
        return np.asarray(linear_product(targets, sources, coef, n_features) + kernel.offset * coef.sum())
    shape = shape_of(kernel)
    out = np.zeros(-(-targets.n // LANES) * LANES)
    if targets.panels.shape[0] and not needs_pairs(kernel, n_features, sources.n):
        ours, theirs = (with_constant(points.panels[:, :n_features]) for points in (targets, sources))
        add_form(kernel, ours, theirs, coef, n_threads, out)
    elif targets.panels.shape[0]:
        packed = packed_rows(sources.panels, np.arange(sources.n), n_threads)
        out = pair_product(shape, targets.panels, packed, coef, n_threads)
    else:
        binary = is_binary(sources.indptr, sources.data) and is_binary(targets.indptr, targets.data)
        rows, other = (
            sparse.Csr(p.indptr, p.indices, p.data, magnitudes(kernel, p.indptr, p.data)) for p in (sources, targets)
        )
        columns = Spread(other, np.arange(targets.n), n_features, np.uint8 if binary else np.float64)
        work = float(len(out)) * (len(sources.data) + sources.n)
        add_sparse(shape, rows, np.arange(sources.n), coef, columns, work, n_threads, out)
    return np.asarray(out[: targets.n] + kernel.offset * coef.sum())


def exact_block(kernel: Kernel, targets: Points, sources: Points) -> FloatArray | None:
    """k(target, source) in float64 for all pairs of dense points, without the offset. None where they have no tile."""
    if not (kernel.kind in SHAPES and targets.panels.shape[0] and sources.panels.shape[0]):
        return None
    panels = sources.panels
    packed = packed_rows(targets.panels, np.arange(targets.n))
    out = np.empty((len(packed) * vector.ROWS, len(panels) * LANES + STAGGER))
    loops.store_block(shape_of(kernel), packed, panels, False, 0, len(panels), out)
    return out[: targets.n, : sources.n]


def point_product(
    kernel: Kernel, targets: Points, sources: Points, coef: FloatArray, n_features: int, n_threads: int
) -> FloatArray:
    """out_t = sum_s coef_s k(target_t, source_s), shared out to threads by target."""
    out = np.zeros(targets.n)
    if sources.n == 0 or targets.n == 0:
        return out
    if has_tile(kernel, targets, sources):
        return tile_product(kernel, targets, sources, coef, n_features, n_threads)
    if kernel.kind == KernelKind.PRECOMPUTED:
        rows, columns, weights = targets.ids, sources.ids, np.ascontiguousarray(coef, np.float64)
        multiply = _kernels.given_product
        work = float(targets.n) * sources.n
        split(lambda a, b: multiply(targets.gram, rows, columns, weights, a, b, out), targets.n, work, n_threads)
        return np.asarray(out + kernel.offset * weights.sum())
    weights = aligned((padded(sources.n),), zero=True)
    weights[: sources.n] = coef
    chunk = max(1, _kernels.CHUNK_VALUES // (max(1, sources.panels.shape[1]) * LANES))

    def run(start: int, stop: int) -> None:
        scratch, row = new_scratch(n_features), np.empty(chunk * LANES)
        _kernels.kernel_product(kernel, targets, start, stop, sources, weights, scratch, row, out)

    split(run, targets.n, _SLOWER * targets.n * sources.n * max(n_features, 1), n_threads)
    return out
