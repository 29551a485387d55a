"""How several classes are told apart by machines for two: which machines there are, and what their values decide."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._types import FloatArray, IntArray
from svmcore.base.threads import one_blas_thread

STRATEGIES = ("ovo", "ovr")


def _among(codes: IntArray, some: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which codes, from 0 on, are among some: a look into a table, where `numpy.isin` would search."""
    if len(some) == 1:
        return np.equal(codes, some[0])
    table = np.zeros(max(int(codes.max(initial=0)), *some) + 1, dtype=np.bool_)
    table[list(some)] = True
    return table[codes]


class Sides(NamedTuple):
    """One machine: its decision value is above zero for the classes `plus`, and not for `minus`; both places of classes."""

    minus: tuple[int, ...]
    plus: tuple[int, ...]

    def holds(self, codes: IntArray) -> NDArray[np.bool_]:
        """Which rows it is trained on."""
        return _among(codes, self.minus + self.plus)

    def positive(self, codes: IntArray) -> NDArray[np.bool_]:
        """Which rows are of `plus`."""
        return _among(codes, self.plus)

    def signs(self, count: int) -> NDArray[np.float64]:
        """1 for the classes `plus`, and -1 for all others of so many."""
        signs = np.full(count, -1.0)
        signs[list(self.plus)] = 1.0
        return signs

    def name(self, classes: NDArray[Any]) -> str:
        """What it tells apart, in words."""
        labels = classes.tolist()
        other = repr(labels[self.minus[0]]) if len(self.minus) == 1 else "the rest"
        return f"{labels[self.plus[0]]!r} against {other}"


class Division(NamedTuple):
    """All machines. Two classes have one, whatever the strategy.

    One-vs-one ("ovo"): a machine for each pair of classes, (0, 1), (0, 2), ..., (1, 2), ...; each has a vote, and of equals
    the first class wins. One-vs-rest ("ovr"): a machine for each class, and the largest value wins.
    """

    n_classes: int
    strategy: str
    parts: tuple[Sides, ...]

    @property
    def single(self) -> bool:
        """Whether there is one machine only."""
        return len(self.parts) == 1

    def votes(self, values: FloatArray) -> IntArray:
        """How many machines are for each class; `values`: one column per machine."""
        if self.n_classes > 2 and self.strategy == "ovr":
            return (values > 0.0).astype(np.int64)
        sides = self._sides
        against = np.minimum(sides, 0.0).sum(axis=0)  # as if all machines were
        with one_blas_thread:  # whole numbers, exact in single precision
            return np.asarray(_ones(values > 0.0) @ sides - against).astype(np.int64)

    @property
    def _sides(self) -> NDArray[np.float32]:
        """For every machine (row) 1 at the class it is for, -1 at the one it is against; one-vs-one."""
        return _sides_of(self.parts, self.n_classes)

    def choose(self, values: FloatArray) -> IntArray:
        """The class of every row, as a place among the classes."""
        by_value = self.n_classes > 2 and self.strategy == "ovr"
        return np.asarray(np.argmax(values if by_value else self.votes(values), axis=1))

    def scores(self, values: FloatArray) -> FloatArray:
        """One score per row and class; for two classes the decision values.

        One-vs-one: the votes, and less than a third of a vote for the sum of the decision values, as scikit-learn's `SVC`.
        """
        if self.single:
            return values[:, 0]
        if self.strategy == "ovr":
            return values
        with one_blas_thread:
            sure = values @ self._sides.astype(np.float64)
        return self.votes(values) + sure / (3.0 * (np.abs(sure) + 1.0))

    def possible(self, low: FloatArray, high: FloatArray) -> NDArray[np.bool_]:
        """Which classes a row may get where values lie between bounds (one column per machine)."""
        if self.n_classes > 2 and self.strategy == "ovr":
            return np.asarray(high >= low.max(axis=1)[:, None])
        plus, minus = np.maximum(self._sides, 0.0), np.maximum(-self._sides, 0.0)
        with one_blas_thread:  # whole numbers, exact in single precision
            least = _ones(low > 0.0) @ plus + _ones(high <= 0.0) @ minus
            most = _ones(high > 0.0) @ plus + _ones(low <= 0.0) @ minus
        return np.asarray(most >= least.max(axis=1)[:, None])


def _ones(flags: NDArray[np.bool_]) -> NDArray[np.float32]:
    return flags.astype(np.float32)


@lru_cache(maxsize=16)
def _sides_of(parts: tuple[Sides, ...], n_classes: int) -> NDArray[np.float32]:
    out = np.zeros((len(parts), n_classes), dtype=np.float32)
    for k, part in enumerate(parts):
        out[k, part.plus[0]], out[k, part.minus[0]] = 1.0, -1.0
    return out


@lru_cache(maxsize=64)
def division(n_classes: int, strategy: str) -> Division:
    """The machines for so many classes. Of one class, or of numbers that are no classes, all rows are `plus`."""
    if n_classes == 1:
        return Division(1, strategy, (Sides((), (0,)),))
    if n_classes == 2:
        return Division(2, strategy, (Sides((0,), (1,)),))
    every = tuple(range(n_classes))
    if strategy == "ovo":
        return Division(n_classes, strategy, tuple(Sides((a,), (b,)) for a, b in combinations(every, 2)))
    return Division(n_classes, strategy, tuple(Sides(every[:k] + every[k + 1 :], (k,)) for k in every))
