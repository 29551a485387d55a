"""A category: a column of words, as a machine knows it."""

from __future__ import annotations

from typing import NamedTuple


class Category(NamedTuple):
    """A column of the file that stands for several features, one for each of its words.

    `place` counts the file's features from 0; `name` is the column's, or its number in the file it was learned from.
    """

    place: int
    name: str
    levels: tuple[str, ...]
