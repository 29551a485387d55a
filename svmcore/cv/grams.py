"""Kernel matrices that folds, classes and values of gamma share, where memory allows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray, KernelKind
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.points import is_sparse
from svmcore.kernel.spare import SpareMatrix, spare_matrix
from svmcore.kernel.whole import part_of, whole_kernel
from svmcore.problem import border
from svmcore.problem.border import KernelSpec

_SHARE = 0.25  # what is shared may take this share of the free memory
_LIMIT = 2e9
_CANCELS = 1e-4  # a squared distance below this share of the norms is summed from the differences
_ROWS = 512


class WholeGram(NamedTuple):
    """The kernel among all points, without its offset. Point i is at `place[i]`, or at i where there are no places.

    Machines of few classes read points of these classes alone. So points of a class stand side by side.
    """

    matrix: FloatArray
    place: IntArray | None = None

    def part(self, rows: IntArray, columns: IntArray, out: FloatArray | None = None) -> FloatArray:
        """The kernel between some points, as a new array or in `out`."""
        if self.place is not None:
            rows, columns = self.place[rows], self.place[columns]
        return part_of(self.matrix, rows, columns, out)


class Grams:
    """The kernel among all points, by gamma, kept while paths that need it are on their way."""

    def __init__(self, X: Any, n_threads: int, n_gammas: int, codes: IntArray) -> None:
        """`n_gammas`: how many matrices there will be; 0: none, for every path has features of its own. `codes`: classes."""
        self.X = X
        self.place: IntArray | None = None
        if int(codes.max(initial=0)) > 1:
            self.place = np.empty(codes.size, dtype=np.int64)
            self.place[np.argsort(codes, kind="stable")] = np.arange(codes.size)
        self.n_threads = n_threads
        n = X.shape[0]
        self.several = n_gammas > 1
        held = min(2, n_gammas) + self.several  # on any number of workers: the bits depend on it
        self.shared = n_gammas > 0 and 8.0 * n * n * held <= min(_SHARE * border.available_bytes(), _LIMIT)
        self._lock = threading.Lock()
        self._distances: FloatArray | None = None
        self._matrices: dict[float | None, FloatArray] = {}
        self._users: dict[float | None, int] = {}
        self._rooms: dict[float | None, SpareMatrix] = {}

    def announce(self, gamma: float | None, users: int) -> None:
        """So many paths will ask for this matrix."""
        self._users[gamma] = users

    def get(self, gamma: float | None, spec: KernelSpec) -> WholeGram | None:
        """The kernel matrix without its offset, or None: compute what you need yourself."""
        if spec.kernel.kind == KernelKind.PRECOMPUTED:
            return WholeGram(np.asarray(self.X))
        if not self.shared:
            return None
        with self._lock:
            if gamma not in self._matrices:
                self._matrices[gamma] = self._compute(gamma, spec)
            return WholeGram(self._matrices[gamma], self.place)

    def release(self, gamma: float | None) -> None:
        """A path does not need the matrix any more."""
        with self._lock:
            self._users[gamma] -= 1
            if self._users[gamma] <= 0:
                self._matrices.pop(gamma, None)
                if gamma in self._rooms:
                    self._rooms.pop(gamma).give_back()

    def forget_room(self, gamma: float | None) -> None:
        """The memory of this matrix is not handed on: somebody may read it after its last release."""
        with self._lock:
            self._rooms.pop(gamma, None)

    def _compute(self, gamma: float | None, spec: KernelSpec) -> FloatArray:
        X = self.X if self.place is None else self.X[np.argsort(self.place)]
        if self.several and spec.kernel.kind == KernelKind.RBF and spec.function is None:
            if self._distances is None:
                self._distances = squared_distances(X)
            out = self._distances * -spec.kernel.gamma
            return np.asarray(np.exp(out, out=out))

        def room(shape: tuple[int, int]) -> FloatArray:
            self._rooms[gamma] = spare_matrix("rows", shape)
            return self._rooms[gamma].matrix

        return whole_kernel(X, spec.kernel, spec.function, self.n_threads, room)


class Gram:
    """The matrix of one gamma, for one task. It goes with the task to another process: bits are the same everywhere."""

    def __init__(self, grams: Grams, gamma: float | None, spec: KernelSpec) -> None:
        self._grams, self._gamma, self._spec = grams, gamma, spec
        self.n_threads = grams.n_threads

    def get(self) -> WholeGram | None:
        """As `Grams.get`."""
        return self._grams.get(self._gamma, self._spec)

    def release(self) -> None:
        """As `Grams.release`."""
        self._grams.release(self._gamma)

    def __reduce__(self) -> tuple[type[SentGram], tuple[WholeGram | None]]:
        matrix = self.get()
        self._grams.forget_room(self._gamma)
        self.release()
        return SentGram, (matrix,)


class SentGram(Gram):
    """The same where it has arrived."""

    def __init__(self, matrix: WholeGram | None) -> None:
        self._matrix = None if matrix is None else matrix._replace(matrix=np.asarray(matrix.matrix))
        self.n_threads = 1

    def get(self) -> WholeGram | None:
        """The matrix."""
        return self._matrix

    def release(self) -> None:
        """It goes with the task."""

    def __reduce__(self) -> tuple[type[SentGram], tuple[WholeGram | None]]:
        return SentGram, (self._matrix,)  # to a third process: clusters send tasks on


@contextmanager
def part_for(gram: WholeGram | None, rows: IntArray) -> Iterator[FloatArray | None]:
    """The kernel among the rows of one path, in memory that is handed on to the next one. None where there is no matrix."""
    if gram is None:
        yield None
        return
    room = spare_matrix("part", (rows.size, rows.size))
    try:
        yield gram.part(rows, rows, room.matrix)
    finally:
        room.give_back()


@one_blas_thread
def squared_distances(X: Any) -> FloatArray:
    """|x_i - x_j|^2 for all pairs; where the expansion into norms cancels, from the differences."""
    if is_sparse(X):
        products = np.asarray((X @ X.T).todense())
    else:
        X = X - X.mean(axis=0)
        products = X @ X.T
    norms = np.diag(products).copy()
    products *= -2.0
    for start in range(0, norms.size, _ROWS):
        rows = slice(start, min(start + _ROWS, norms.size))
        total = norms[rows, None] + norms[None, :]
        products[rows] += total
        i, j = np.nonzero(products[rows] <= _CANCELS * total)
        for k in range(0, i.size, _ROWS):
            a, b = X[start + i[k : k + _ROWS]], X[j[k : k + _ROWS]]
            difference = a - b
            square = difference.multiply(difference).sum(axis=1) if is_sparse(X) else np.square(difference).sum(axis=1)
            products[start + i[k : k + _ROWS], j[k : k + _ROWS]] = np.asarray(square).ravel()
    return products
