"""The data of a path from a checked problem. Duplicates are merged, and the kernel is that of the points that are left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from svmcore._errors import InputError
from svmcore._types import DualQP, FloatArray, IntArray, Kernel, KernelKind
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import is_sparse
from svmcore.kernel.rows import whole_matrix
from svmcore.kernel.whole import part_of
from svmcore.path.problem import Data, Form, Groups
from svmcore.problem import border

UNGROUPED = Groups(*np.empty((4, 0), dtype=np.int64))
_SMALL = 1 << 25
"""A kernel matrix of at most so many bytes is made without a look at how much memory is free."""


def snapped(X: Any, tol: float, kernel: Any) -> Any:
    """X with near-duplicates made equal. Points that round to the same multiples of `tol` take the values of the first one.

    An array is copied, because a path needs its points as long as it lives. A kernel matrix is not: it may fill the memory.
    """
    given = isinstance(kernel, str) and kernel == "precomputed"
    if tol == 0.0:
        return X.copy() if not given and (isinstance(X, np.ndarray) or is_sparse(X)) else X
    if given:
        raise InputError('merge_tol compares features; with kernel="precomputed" merge the points before')
    X = border.features(X)
    if is_sparse(X):
        raise InputError("merge_tol needs a dense X; convert with X.toarray()")
    _, first, of = np.unique(np.round(X / tol) + 0.0, axis=0, return_index=True, return_inverse=True)
    return X[first[np.reshape(of, -1)]]


def row_keys(X: Any, target: Any) -> Any:
    """A key for each row. Two rows have the same key exactly when they are equal, with equal labels or targets."""
    if is_sparse(X):
        X = X.copy()
        X.sort_indices()
        X.eliminate_zeros()
        numbers: dict[tuple[bytes, bytes, float], int] = {}  # a dict compares rows of the same hash value by value
        ends = zip(X.indptr[:-1], X.indptr[1:], target.tolist(), strict=True)
        keys = ((X.indices[a:b].tobytes(), X.data[a:b].tobytes(), one) for a, b, one in ends)
        return np.array([numbers.setdefault(key, len(numbers)) for key in keys])
    rows = np.empty((X.shape[0], X.shape[1] + 1))
    rows[:, :-1] = X
    rows[:, -1] = target
    rows += 0.0  # -0.0 equals 0.0
    return rows.view(np.dtype((np.void, rows.shape[1] * 8))).ravel()


def keys_of(problem: Any) -> Any:
    """The `row_keys` of a problem's points."""
    target = np.ones(problem.X.shape[0])
    target[problem.qp.point] = problem.qp.c
    return row_keys(problem.X, target)


def ungrouped(problem: Any, signs: FloatArray, weights: FloatArray, form: Form, n_threads: int) -> Data:
    """The data of a checked problem, before `grouped`."""
    columns = problem.columns if problem.centre is None else replace(problem.columns, centre=problem.centre)
    return Data(
        problem.points, signs, weights, problem.spec, problem.classes, problem.qp.equality, UNGROUPED, n_threads, columns,
        form,
    )  # fmt: skip


def merged(problem: Any, n_threads: int, key: Any) -> Data:
    """The data of a classifier's path. `key` as in `grouped`."""
    qp: DualQP = problem.qp
    weights, signs = np.zeros(problem.X.shape[0]), np.ones(problem.X.shape[0])
    weights[qp.point] = qp.upper - qp.lower
    signs[qp.point] = qp.c
    return grouped(ungrouped(problem, signs, weights, Form(), n_threads), key)


def grouped(data: Data, key: Any) -> Data:
    """Merge duplicates: points of equal `key` share variables, whose boxes are the sums of theirs.

    `row_keys` says which points are equal, in label or target, too. Without a key all are kept apart.
    """
    weights = data.weights
    kept = weights.nonzero()[0]
    group = np.full(weights.size, -1, dtype=np.int64)
    if key is None:
        group[kept], share = np.arange(kept.size), (weights != 0.0).astype(np.float64)
        of_each = kept, np.ones(kept.size, dtype=np.int64)
    else:
        _, first, of = np.unique(key[kept], return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")  # variables in order of first appearance
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        group[kept] = rank[np.reshape(of, -1)]
        total = np.bincount(group[kept], weights=weights[kept], minlength=order.size)
        share = np.zeros(weights.size)
        share[kept] = weights[kept] / total[group[kept]]
        of_each = kept[first[order]], np.bincount(group[kept], minlength=order.size)
    return data._replace(
        groups=Groups(group, share, *(np.concatenate([a, a]) if data.form.twins else a for a in of_each))
    )


class Twins:
    """The kernel of a problem whose variables v and v + n belong to the same point, from the kernel of the points."""

    def __init__(self, K: KernelMatrix) -> None:
        self.base = K
        self.n = 2 * K.n
        self.cache_bytes = K.cache_bytes
        self.point = np.concatenate([np.arange(K.n), np.arange(K.n)])

    @property
    def n_evals(self) -> int:
        """Kernel values computed so far."""
        return self.base.n_evals

    @property
    def diagonal(self) -> FloatArray:
        """k(x, x) for every variable."""
        return np.concatenate([self.base.diagonal, self.base.diagonal])

    def rows(self, index: IntArray) -> FloatArray:
        """Rows of the matrix."""
        half = self.base.rows(index % self.base.n)
        return np.concatenate([half, half], axis=1)

    def gram(self, go_on: Callable[[float], bool]) -> FloatArray | None:
        """The whole matrix. None when `go_on(share done)` says no."""
        whole, n = whole_matrix(self.base, go_on), self.base.n
        return None if whole is None else np.tile(whole[:, :n], (2, 2))

    def product(self, index: IntArray, coef: FloatArray) -> FloatArray:
        """K times a vector that is `coef` at `index` and zero elsewhere."""
        net: FloatArray = np.bincount(index % self.base.n, weights=coef, minlength=self.base.n).astype(np.float64)
        support = np.flatnonzero(net)
        half = self.base.product(support, net[support])
        return np.concatenate([half, half])


def oracle_of(data: Data, K: KernelMatrix) -> Any:
    """The kernel of the variables, from that of the points that differ."""
    return Twins(K) if data.form.twins else K


def budget_of(data: Data, cache_mb: float | None) -> int:
    """The bytes that kernel rows may take."""
    if cache_mb is not None:
        return int(1e6 * border.number("cache_mb", cache_mb, low=0.0, strict=True))
    return _SMALL if 8 * data.n_groups**2 <= _SMALL else int(border.spare_bytes())


def kernel_of(data: Data, cache_bytes: int) -> KernelMatrix:
    """The kernel of the points that differ."""
    first, X = data.groups.first[: data.n_groups], data.X
    if data.spec.kernel.kind == KernelKind.PRECOMPUTED:
        X = np.ascontiguousarray(X[np.ix_(first, first)])
    elif first.size < X.shape[0]:
        X = X[first]
    return KernelMatrix(X, data.spec.kernel, data.spec.function, cache_bytes=cache_bytes, n_threads=data.n_threads)


def kernel_from(gram: FloatArray, data: Data) -> KernelMatrix:
    """The kernel of the points that differ, taken out of that of all points."""
    first = data.groups.first[: data.n_groups]
    if first.size < gram.shape[0]:
        gram = part_of(gram, first, first)
    kernel = Kernel(int(KernelKind.PRECOMPUTED), 1.0, 0.0, 1, data.spec.kernel.offset)
    budget = max(gram.nbytes, _SMALL)  # two variables a point need four times the matrix
    return KernelMatrix(gram, kernel, cache_bytes=budget, n_threads=data.n_threads)
