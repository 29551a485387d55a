"""The kernel among all points at once, for those who use it many times."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from svmcore._types import LANES, FloatArray, IntArray, Kernel, KernelKind, every
from svmcore.base.threads import one_blas_thread, split, split_falling
from svmcore.kernel.grams import WIDE, backwards, layout, mirror
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import Real, groups_of, rows_of
from svmcore.kernel.products import NEAR_FEATURES, SHAPES, call_kernel, demand_symmetry, shape_of
from svmcore.kernel.table import facts_of
from svmcore.simd import loops, vector
from svmcore.simd.loops import copy_block

_ROWS = 512
# BLAS makes products of few points faster than tiles do: products alone of at most _FEW with _MANY features, and values of
# other kernels, which take a second pass, where there are _WIDE times as many features. Of so few points half of the matrix
# is made in one call.
_FEW, _MANY, _WIDE = 256, 100, 4
_GROUPS = 11  # so many row groups are computed at a time: of half of a matrix little more than half is computed then
_BETWEEN_LOOKS = 2e8  # kernel values times features between two looks at the clock


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
        return _gram_of_few(K, room(layout(K.n))) if go_on(0.0) else None
    panels = np.ascontiguousarray(K.points.panels[:, : K.n_features])
    packed = rows_of(K.X, np.arange(K.n), np.float64, np.zeros(K.n_features), n_threads=K.n_threads)
    out = room(layout(K.n))
    shape, half = shape_of(K.kernel), K.n_features >= WIDE
    step = max(1, int(_BETWEEN_LOOKS // (out.shape[1] * vector.ROWS * (4 + panels.shape[1]))))
    for start in range(0, len(packed), step):  # whole rows, since touching fresh memory can cost more than filling it
        if not go_on(start / len(packed)):
            return None
        count = min(step, len(packed) - start)
        fill = functools.partial(_fill, shape, packed, panels, K.kernel.offset, out, half)
        work = float(out.shape[1] * count * vector.ROWS * panels.shape[1])
        share = split_falling if half and not start else split
        share(functools.partial(backwards, fill, start + count), count, work, K.n_threads)
    if half:
        mirror(out, K.n, K.n_threads)
    K.n_evals += K.n * (K.n + 1) // 2 if half else K.n * K.n
    return out[: K.n]


def _gram_of_few(K: Any, out: FloatArray) -> FloatArray:
    """`exact_gram` in one compiled call. In place: out."""
    n, width = K.X.shape
    rows, panels = np.empty((groups_of(n), width, vector.ROWS)), np.empty((-(-n // LANES), width, LANES))
    loops.gram_of_few(shape_of(K.kernel), K.X, every(n), np.zeros(width), K.kernel.offset, rows, panels, out)
    K.n_evals += n * (n + 1) // 2
    return out[:n]


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


def whole_kernel(
    X: Any, kernel: Kernel, function: Callable[[Any, Any], Any] | None, n_threads: int,
    room: Callable[[tuple[int, int]], FloatArray] = np.empty,
) -> FloatArray:  # fmt: skip
    """k(x_i, x_j) for all pairs, without the kernel's offset. Tiles write it to memory that `room(shape)` returns."""
    n = X.shape[0]
    starts = range(0, n, _ROWS)
    if function is not None:
        values = np.concatenate([call_kernel(function, X[k : k + _ROWS], X, 0.0) for k in starts])
        demand_symmetry(values, np.arange(n))
        return values
    K = KernelMatrix(X, kernel._replace(offset=0.0), cache_bytes=0, n_threads=n_threads)
    whole = exact_gram(K, lambda _: True, room) if has_gram(K) else None
    if whole is None:
        whole = np.concatenate([K.rows(np.arange(k, min(k + _ROWS, n))) for k in starts])
    return whole[:, :n]


def gram_of(K: KernelMatrix) -> FloatArray:
    """K among all points in float64. Of a given matrix without an offset it is that matrix itself."""
    kind = K.kernel.kind
    if kind == KernelKind.PRECOMPUTED and K.function is None:
        return np.asarray(K.X + K.kernel.offset if K.kernel.offset else K.X)
    facts, measure = facts_of(K.kernel), None
    few = K.n <= _FEW and K.n_features >= _MANY
    if K.dense and (few if kind == KernelKind.LINEAR else _WIDE * K.n <= K.n_features):
        if facts.measure == "product":
            measure = _products(K.X)
        elif kind == KernelKind.RBF and K.n_features >= NEAR_FEATURES:
            products = _products(K.X)
            measure = _distances(products) if K.near(products.diagonal()) else None
    if measure is not None:
        K.n_evals += K.n * K.n
        values = facts.value(K.kernel, measure)
        return values + K.kernel.offset if K.kernel.offset else values
    whole = exact_gram(K, lambda _: True) if has_gram(K) else None
    if whole is not None:
        return whole
    places = every(K.n)
    return np.ascontiguousarray(K.block(places, places))


def _products(X: FloatArray) -> FloatArray:
    """x'z for all pairs."""
    with one_blas_thread, np.errstate(over="ignore", invalid="ignore"):
        return X @ X.T


def _distances(products: FloatArray) -> FloatArray:
    """Squared distances from products. They are symmetric, and that of a point from itself is zero."""
    squares = products.diagonal()
    return np.maximum(squares + squares[:, None] - 2.0 * products, 0.0)


def part_of(gram: FloatArray, rows: IntArray, columns: IntArray, out: FloatArray | None = None) -> FloatArray:
    """gram[rows, columns], as a new array or in `out`. It takes half the time of numpy, which picks single values."""
    if out is None:
        out = np.empty((rows.size, columns.size))
    copy_block(out, gram, np.arange(gram.shape[0]), rows, columns)
    return out
