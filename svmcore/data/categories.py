"""Columns of words become columns of zeros and ones, one for each word; which words there are is kept for prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from svmcore._errors import InputError
from svmcore.data.layout import Layout, some
from svmcore.data.text import Array, Table, Wanted, check_memory, shown
from svmcore.problem.categories import Category

_MOST_LEVELS = 1000  # words of one column


def encoded(
    name: str, X: Array, words: dict[int, Array], layout: Layout, y: Array | None, known_rows: Array | None
) -> Table:
    """The table, with categories in their places.

    `words` has the text of every categorical column, by its place in the file; `X` the other features, in order.
    """
    wanted, titles = layout.wanted, layout.names or [str(k + 1) for k in range(layout.width)]
    known = {(category.name if layout.names else category.place): category for category in wanted.categories}
    blocks: list[Array] = []
    names: list[str] = []
    categories: list[Category] = []
    numbers = (X[:, at : at + 1] for at in range(X.shape[1]))
    for place, k in enumerate(layout.features):
        title = titles[k]
        if k not in words:
            blocks.append(next(numbers))
            names.append(title)
            continue
        category = known.get(title if layout.names else place)
        if category is None:
            levels = np.unique(words[k][words[k] != ""]).tolist()
            out = wanted.option("drop", title)
            if not levels:
                raise InputError(f"{name}: column {title!r} holds no value; leave it out with {out}")
            if len(levels) > _MOST_LEVELS:
                raise InputError(
                    f"{name}: column {title!r} holds {len(levels):,} different words, too many for categories; leave it out "
                    f"with {out}"
                )
            category = Category(place, title, tuple(levels))
        blocks.append(_one_hot(name, words[k], category, k, wanted))
        names += [f"{title}={level}" for level in category.levels]
        categories.append(category)
    if words:
        check_memory(8.0 * len(X) * len(names), name)
        X = np.concatenate(blocks, axis=1)
    distinct = None if layout.names is None or len(set(names)) < len(names) else tuple(names)
    label = None if layout.names is None or layout.label is None else layout.names[layout.label]
    return Table(X, y, distinct, label, known_rows, tuple(categories))


def _one_hot(name: str, values: Array, category: Category, column: int, wanted: Wanted) -> Array:
    levels = np.array(category.levels, dtype=str)
    at = np.minimum(np.searchsorted(levels, values), len(levels) - 1)
    hit, gap = levels[at] == values, values == ""
    if not (hit | gap).all() and wanted.unknown == "error":
        row = int(np.flatnonzero(~(hit | gap))[0])
        remedy = "; --unknown ignore takes it for none of them" if wanted.typed else ""
        raise InputError(
            f"{name}, row {row + 1} of the data, column {column + 1}: {shown(str(values[row]).encode())} is no category of "
            f"{category.name!r} that the machine knows ({some(category.levels)}){remedy}"
        )
    out = np.zeros((len(values), len(levels)))
    out[np.flatnonzero(hit), at[hit]] = 1.0
    out[gap] = np.nan
    return out


def wide(n_features: int, categories: Sequence[Category]) -> int:
    """The number of columns that a file has for so many features of a machine."""
    return n_features - sum(len(category.levels) - 1 for category in categories)


def raw_names(names: Sequence[str] | None, categories: Sequence[Any]) -> tuple[str, ...] | None:
    """The columns of a file for the features of a machine: the words of a category are one column."""
    if names is None:
        return None
    made = {f"{category.name}={level}": category.name for category in categories for level in category.levels}
    return tuple(dict.fromkeys(made.get(name, name) for name in names))
