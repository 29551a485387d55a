"""The permutations of labels: numpy's, those of scikit-learn, and within groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from svmcore._errors import InputError
from svmcore._types import IntArray
from svmcore.base.door import entered
from svmcore.cv.folds import group_numbers
from svmcore.problem import border


def _own_order(permutations: Any, n: int) -> Iterator[IntArray]:
    """The user's index rows, checked."""
    rows = entered(permutations, "permutations")
    if rows.ndim != 2 or rows.shape[1] != n or rows.dtype.kind not in "iu":
        raise InputError(
            f"permutations has shape {rows.shape} and type {rows.dtype}; give whole numbers, one row of {n} indices for each "
            "permutation"
        )
    wrong = (rows < 0) | (rows >= n)
    if wrong.any():
        p, t = (int(k[0]) for k in np.nonzero(wrong))
        raise InputError(f"permutation {p} names row {rows[p, t]}; rows go from 0 to {n - 1}")
    return iter(rows)


def shuffles(n: int, count: int, groups: Any, random_state: Any) -> Iterator[IntArray]:
    """Shuffled row numbers, as scikit-learn draws them."""
    source: Any = random_state
    if random_state is None:
        source = np.random.RandomState()
    elif not isinstance(random_state, (np.random.RandomState, np.random.Generator)):
        source = np.random.RandomState(border.integer("random_state", random_state, low=0, high=2**32 - 1))
    if groups is None:
        return (source.permutation(n) for _ in range(count))
    owner = group_numbers(groups, n)
    members = [np.flatnonzero(owner == k) for k in range(int(owner.max()) + 1)]
    if all(len(rows) == 1 for rows in members):
        raise InputError(
            "every row is a group of its own, so that nothing can be shuffled; give larger groups, or none"
        )

    def within() -> IntArray:
        out = np.arange(n)
        for rows in members:
            out[rows] = source.permutation(out[rows])
        return out

    return (within() for _ in range(count))
