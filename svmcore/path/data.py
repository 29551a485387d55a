"""The problem of a path, from a checked one: duplicates merged, the kernel of what is left, slopes and boxes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from svmcore._errors import InputError
from svmcore._types import DualQP, FloatArray, Kernel, KernelKind
from svmcore.kernel.matrix import KernelMatrix, is_sparse
from svmcore.path.result import Data, Groups
from svmcore.problem import border

_CACHE_SHARE = 0.4  # of the free memory, for kernel rows
_CACHE_LIMIT = 4e9
_SMALL = 1 << 25
"""Bytes of a kernel matrix for which nobody asks how much memory is free."""


def snapped(X: Any, tol: float, kernel: Any) -> Any:
    """X with near-duplicates made equal: points that round to the same multiples of `tol` take the first one's values."""
    if tol == 0.0:
        return X
    if isinstance(kernel, str) and kernel == "precomputed":
        raise InputError('merge_tol compares features; with kernel="precomputed" merge the points before')
    X = border.features(X)
    if is_sparse(X):
        raise InputError("merge_tol needs a dense X; convert with X.toarray()")
    _, first, of = np.unique(np.round(X / tol) + 0.0, axis=0, return_index=True, return_inverse=True)
    return X[first[np.reshape(of, -1)]]


def _row_keys(X: Any, signs: FloatArray) -> Any:
    """One comparable key per row: equal keys are equal rows of equal label."""
    if is_sparse(X):
        X = X.copy()
        X.sort_indices()
        X.eliminate_zeros()
        numbers: dict[tuple[bytes, bytes, float], int] = {}  # rows of one hash are compared, value by value
        ends = zip(X.indptr[:-1], X.indptr[1:], signs.tolist(), strict=True)
        keys = ((X.indices[a:b].tobytes(), X.data[a:b].tobytes(), sign) for a, b, sign in ends)
        return np.array([numbers.setdefault(key, len(numbers)) for key in keys])
    rows = np.empty((X.shape[0], X.shape[1] + 1))
    rows[:, :-1] = X
    rows[:, -1] = signs
    rows += 0.0  # -0.0 equals 0.0
    return rows.view(np.dtype((np.void, rows.shape[1] * 8))).ravel()


def merged(problem: Any, n_threads: int, together: bool) -> Data:
    """Duplicates of equal label become one variable whose box is the sum of theirs: the same problem, smaller.

    The published algorithm keeps them apart (`together` is False), as its tables do.
    """
    qp: DualQP = problem.qp
    n = problem.X.shape[0]
    weights = np.zeros(n)
    signs = np.ones(n)
    weights[qp.point] = qp.upper - qp.lower
    signs[qp.point] = qp.c
    key = _row_keys(problem.X, signs) if together else np.arange(n)
    kept = qp.point
    _, first, of = np.unique(key[kept], return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")  # variables in order of first appearance
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    group = np.full(n, -1, dtype=np.int64)
    group[kept] = rank[np.reshape(of, -1)]
    total = np.bincount(group[kept], weights=weights[kept], minlength=order.size)
    share = np.zeros(n)
    share[kept] = weights[kept] / total[group[kept]]
    groups = Groups(group, share, kept[first[order]], np.bincount(group[kept], minlength=order.size))
    columns = replace(problem.columns, centre=problem.centre)
    return Data(problem.points, signs, weights, problem.spec, problem.classes, qp.equality, groups, n_threads, columns)


def kernel_of(data: Data, cache_mb: float | None) -> KernelMatrix:
    """The kernel of the variables."""
    first = data.groups.first
    if cache_mb is None and 8 * first.size**2 <= _SMALL:
        budget = float(_SMALL)
    elif cache_mb is None:
        budget = min(_CACHE_SHARE * border.available_bytes(), _CACHE_LIMIT)
    else:
        budget = 1e6 * border.number("cache_mb", cache_mb, low=0.0, strict=True)
    X = data.X
    if data.spec.kernel.kind == KernelKind.PRECOMPUTED:
        X = np.ascontiguousarray(X[np.ix_(first, first)])
    elif first.size < X.shape[0]:
        X = X[first]
    return KernelMatrix(X, data.spec.kernel, data.spec.function, cache_bytes=int(budget), n_threads=data.n_threads)


def kernel_from(gram: FloatArray, data: Data) -> KernelMatrix:
    """The kernel of the variables out of that of all points."""
    first = data.groups.first
    if first.size < gram.shape[0]:
        gram = gram[np.ix_(first, first)]
    kernel = Kernel(int(KernelKind.PRECOMPUTED), 1.0, 0.0, 1, data.spec.kernel.offset)
    return KernelMatrix(gram, kernel, cache_bytes=gram.nbytes, n_threads=data.n_threads)


class Variables(NamedTuple):
    """The tracker's problem: slope, boxes, and whether their sum is zero."""

    c: FloatArray
    lower: FloatArray
    upper: FloatArray
    equality: bool


def variables_of(data: Data) -> Variables:
    """The variables of the path in the form that its loops take."""
    groups = data.groups
    real = groups.of >= 0
    size = np.bincount(groups.of[real], weights=data.weights[real], minlength=groups.first.size)
    c = data.signs[groups.first]
    return Variables(c, np.where(c > 0, 0.0, -size), np.where(c > 0, size, 0.0), data.equality)
