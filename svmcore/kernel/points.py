"""Points in the layouts that compiled code reads: panels of dense points, CSR, and the rows of a given matrix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svmcore._types import LANES, FloatArray, IntArray, Kernel, Points
from svmcore.base.threads import split
from svmcore.kernel.spare import lent
from svmcore.kernel.table import facts_of
from svmcore.simd import packing, vector

STAGGER = 32
"""Every stored row of kernel values ends in so many unused columns. So neighbouring rows do not share places in a cache."""

# Work of packing a feature of a point, in operations on it. Most of it is to wait for memory.
PACK = 64.0

# An array as long as a row is cheap up to _WIDE columns. Beyond that, rows count as mostly empty when there are more than
# _EMPTY columns for each entry.
_WIDE, _EMPTY = 1 << 20, 16

Real = NDArray[Any]

_NO_PANELS = np.empty((0, 0, LANES))
_NO_FLOATS = np.empty(0)
_NO_INTS = np.empty(0, np.int64)
_NO_INDICES = np.empty(0, np.int32)
_NO_GRAM = np.empty((0, 0))


def padded(n: int) -> int:
    """n rounded up to whole panels."""
    return -(-n // LANES) * LANES


def aligned(shape: tuple[int, ...], *, zero: bool = False) -> FloatArray:
    """A float64 array that starts at the beginning of a cache line. So no vector load crosses from one line to the next."""
    size = math.prod(shape)
    buffer = np.zeros(size + 8) if zero else np.empty(size + 8)
    start = (-buffer.__array_interface__["data"][0] % 64) // 8
    return buffer[start : start + size].reshape(shape)


def is_sparse(X: Any) -> bool:
    """True for a scipy sparse matrix, without importing scipy."""
    return hasattr(X, "indptr")


def stacked(blocks: list[Any]) -> Any:
    """Rows of several arrays, or of several sparse matrices, one after the other."""
    if not is_sparse(blocks[0]):
        return np.concatenate(blocks)
    from scipy import sparse

    return sparse.csr_matrix(sparse.vstack(blocks))


def dense_points(X: FloatArray, order: IntArray, n_threads: int = 1) -> Points:
    """The rows `order` of a dense matrix as panels."""
    return panel_points(len(order), _panels(X, order, max(4, -(-X.shape[1] // 4) * 4), n_threads))


def near_points(X: FloatArray, squares: FloatArray, order: IntArray, n_threads: int) -> Points:
    """The rows `order` of a dense matrix as panels, each with its square as the last feature."""
    panels = _panels(X, order, X.shape[1] + 1, n_threads)
    last = np.zeros(padded(len(order)))
    last[: len(order)] = squares[order]
    panels[:, -1] = last.reshape(-1, LANES)
    return panel_points(len(order), panels)


def _panels(X: FloatArray, order: IntArray, width: int, n_threads: int) -> FloatArray:
    """The rows `order` in panels of so many features. Those that X does not have are zero."""
    panels = lent("doubles", (padded(len(order)) // LANES, width, LANES))
    centre, squares, work = np.zeros(X.shape[1]), np.empty(len(panels) * LANES), PACK * float(panels.size)
    split(lambda a, b: packing.pack_panels(X, order, centre, 1.0, a, b, panels, squares), len(panels), work, n_threads)
    panels[:, X.shape[1] :] = 0.0
    return panels


def panel_points(n: int, panels: FloatArray) -> Points:
    """n dense points, from panels that are packed already."""
    return Points(n, panels, _NO_INTS, _NO_INDICES, _NO_FLOATS, _NO_FLOATS, _NO_INTS, _NO_GRAM)


def sparse_points(X: Any, order: IntArray | None) -> Points:
    """The rows `order` (None: all) of a canonical CSR matrix."""
    if order is not None:
        X = X[order]
    return Points(
        X.shape[0], _NO_PANELS, X.indptr.astype(np.int64), X.indices.astype(np.int32, copy=False),
        X.data.astype(np.float64, copy=False), row_sums(X.indptr, X.data * X.data), _NO_INTS, _NO_GRAM,
    )  # fmt: skip


def mostly_empty(A: Any, B: Any) -> bool:
    """Whether two CSR matrices have many more columns than entries. Then arrays as long as a row would waste memory."""
    return bool(A.shape[1] > max(_WIDE, _EMPTY * (A.nnz + B.nnz)))


def narrowed(A: Any, B: Any) -> tuple[Any, Any]:
    """Two CSR matrices without the columns in which neither has an entry. This changes no kernel value."""
    used = np.unique(np.concatenate([A.indices, B.indices]))
    shapes = [(M.shape[0], max(1, used.size)) for M in (A, B)]
    first, second = (
        type(M)((M.data, np.searchsorted(used, M.indices), M.indptr), shape=shape)
        for M, shape in zip((A, B), shapes, strict=True)
    )
    return first, second


def gram_points(gram: FloatArray, order: IntArray) -> Points:
    """The points `order` of a given kernel matrix."""
    return Points(
        len(order), _NO_PANELS, _NO_INTS, _NO_INDICES, _NO_FLOATS, _NO_FLOATS,
        np.ascontiguousarray(order, np.int64), gram,
    )  # fmt: skip


def new_scratch(n_features: int) -> tuple[FloatArray, IntArray, FloatArray]:
    """Scratch for `kernel_row`: room for a dense source, and for one block of exponents.

    The block is returned twice: as integers, and as floats in the same memory.
    """
    bits = np.zeros(LANES, np.int64)
    return np.zeros(max(4, -(-n_features // 4) * 4)), bits, bits.view(np.float64)


def groups_of(count: int) -> int:
    """How many row groups hold `count` rows."""
    return -(-count // vector.ROWS)


def packed_rows(panels: Real, points: IntArray, n_threads: int = 1) -> Real:
    """Some of the points of the panels, copied to row groups, which tiles read. The number type is that of the panels."""
    packed, rows = lent("packed", (groups_of(len(points)), panels.shape[1], vector.ROWS), panels.dtype), vector.ROWS
    split(
        lambda a, b: packing.pack_rows(panels, points[a * rows : b * rows], packed[a:b]),
        len(packed), PACK * float(packed.size), n_threads,
    )  # fmt: skip
    return packed


def rows_of(
    X: FloatArray, points: IntArray, dtype: Any, centre: FloatArray, factor: float = 1.0, last: FloatArray | None = None,
    n_threads: int = 1,
) -> Real:  # fmt: skip
    """`packed_rows` of (X - centre) factor, from X itself. The feature behind those of X is `last`, if any."""
    width, rows = X.shape[1] + (last is not None), vector.ROWS
    packed = lent("packed", (groups_of(len(points)), width, rows), dtype)
    more = _NO_FLOATS if last is None else last
    split(
        lambda a, b: packing.pack_rows_of(X, points[a * rows : b * rows], centre, factor, more, packed[a:b]),
        len(packed), PACK * float(packed.size), n_threads,
    )  # fmt: skip
    return packed


def packed_weights(packed: Real, coef: FloatArray) -> Real:
    """Coefficients of the rows of `packed`. Those of its padding are zero."""
    weights = np.zeros(packed.shape[0] * vector.ROWS, np.float64 if packed.dtype == np.float64 else np.float32)
    weights[: len(coef)] = coef
    return weights


def magnitudes(kernel: Kernel, indptr: IntArray, data: FloatArray) -> FloatArray:
    """The norms that distances of sparse points are made of: sums of squares, or of absolute values (Laplacian kernel)."""
    return row_sums(indptr, np.abs(data) if facts_of(kernel).measure == "cityblock" else data * data)


def row_sums(indptr: IntArray, values: FloatArray) -> FloatArray:
    """The sum of each row of a CSR matrix with these values."""
    sums = np.zeros(len(indptr) - 1)
    filled = np.diff(indptr) > 0
    if len(values):
        sums[filled] = np.add.reduceat(values, indptr[:-1][filled])
    return sums


def is_binary(indptr: IntArray, data: FloatArray) -> bool:
    """Whether all stored values are 1, and so few in each row that a byte can count them."""
    return bool((data == 1.0).all()) and int(np.diff(indptr).max(initial=0)) <= 255
