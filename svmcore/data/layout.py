"""How a CSV file is laid out: its separator, its header, and which column is what."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from svmcore._errors import InputError
from svmcore.data.text import BOOLEAN, MISSING, NUMBER, WORDS, Wanted, fail

SAMPLE = 50  # lines looked at
_WHOLE = re.compile(rb"\d+\Z")
_MOST_NAMES = 8  # in a message


class Layout(NamedTuple):
    """How the lines are divided; an empty delimiter means any white space. Columns count from 0.

    `label` is None where there are no labels. `words`: columns that hold no numbers; `categories`: feature columns whose
    words become features.
    """

    delimiter: bytes
    width: int
    label: int | None
    names: list[str] | None = None
    dropped: frozenset[int] = frozenset()
    words: frozenset[int] = frozenset()
    categories: frozenset[int] = frozenset()
    wanted: Wanted = Wanted()

    @property
    def features(self) -> list[int]:
        """The columns of X."""
        return [k for k in range(self.width) if k != self.label and k not in self.dropped]

    @property
    def numbers(self) -> list[int]:
        """The features that are numbers."""
        return [k for k in self.features if k not in self.categories]

    @property
    def texts(self) -> list[int]:
        """The columns that are taken as text."""
        return sorted({*([] if self.label is None else [self.label]), *self.categories})

    def column(self, k: int) -> str:
        """What to call column k beyond its number."""
        return f"(column {self.names[k]!r})" if self.names else ""

    def remedy(self, k: int, always: bool = False) -> str:
        """What to do about words in feature column k, where all of the file has words there."""
        if k not in self.words and not always:
            return ""
        option, column = self.wanted.option, self.names[k] if self.names else k + 1
        if self.wanted.names is not None and self.names is None:
            known = some(self.wanted.names)
            return (
                f"; this file has no header, and the machine knows its columns by name: {known}; begin with their names"
            )
        label = "" if self.wanted.unlabelled else f"if this is the label: {option('label', column)}; else "
        how = "make numbers of its words first (pandas.get_dummies)"
        if self.wanted.typed:
            several = len(self.words & set(self.features)) > 1
            how = f"make features of its words: {option('categorical', column)}"
            how += " (or of all such columns: --categorical words)" if several else ""
        return f"; {label}{how}, or leave the column out: {option('drop', column)}"


def some(names: Sequence[str]) -> str:
    """Names for a message, not too many."""
    return ", ".join(map(repr, names[:_MOST_NAMES])) + (", ..." if len(names) > _MOST_NAMES else "")


def fields_of(line: bytes, delimiter: bytes) -> list[bytes]:
    """The fields of one line; quotes count, line breaks inside them do not."""
    if not delimiter:
        return line.split()
    if b'"' not in line:
        return [field.strip() for field in line.split(delimiter)]
    text = line.rstrip(b"\r").decode("utf-8", "surrogateescape")
    row = next(csv.reader([text], delimiter=delimiter.decode(), skipinitialspace=True))
    return [field.strip().encode("utf-8", "surrogateescape") for field in row]


def find_layout(name: str, lines: list[bytes], number: int, wanted: Wanted) -> Layout:
    """The layout of a file that begins with these lines, the first of which has this number."""
    delimiter = _delimiter(lines)
    try:
        fields = fields_of(lines[0], delimiter)
    except csv.Error as error:
        fail(name, number, None, f"cannot be divided into fields ({error})")
    width = len(fields)
    if width < 2 and not wanted.unlabelled:
        what = "one column only; data need a label and at least one feature, in columns or index:value pairs"
        fail(name, number, None, what)
    rows = _sample(lines[1:], delimiter, width)
    texts = [field.decode("utf-8", "replace") for field in fields]
    named = [column for column in (wanted.label, *wanted.drop) if isinstance(column, str) and not column.isdecimal()]
    header = wanted.header
    if header is None and named:
        header = any(column in texts for column in named) or None
    if header is None:
        header = _is_header(name, number, fields, rows, wanted)
    names = texts if header else None
    columns = ([row[k] for row in rows if row[k].lower() not in MISSING] for k in range(width))
    words = frozenset(k for k, column in enumerate(columns) if column and not any(map(_is_value, column)))
    layout = arranged(name, Layout(delimiter, width, None, names, words=words, wanted=wanted))
    nameless = next((k for k in layout.features if names and not names[k]), None)
    if nameless is not None:
        what = "this column has no name" if nameless else "the first column has no name, like the index of a data frame"
        out = wanted.option("drop", nameless + 1)
        fail(name, number, nameless + 1, f"{what}; leave it out with {out}, or give it a name")
    return layout


def arranged(name: str, layout: Layout) -> Layout:
    """The layout of a file or a table, and which of its columns is what."""
    layout = layout._replace(
        dropped=frozenset(_column(name, column, layout, "to drop") for column in layout.wanted.drop)
    )
    layout = layout._replace(label=_label(name, layout))
    layout = layout._replace(categories=frozenset(_categories(name, layout)))
    if not layout.features:
        raise InputError(f"{name} has no column left for a feature")
    return layout


def _categories(name: str, layout: Layout) -> Iterator[int]:
    """Which of its features are columns of words."""
    features, names, wanted = layout.features, layout.names, layout.wanted
    if wanted.categories:
        known: set[Any] = {category.place if names is None else category.name for category in wanted.categories}
        yield from (k for place, k in enumerate(features) if (place if names is None else names[k]) in known)
        return
    for column in wanted.categorical:
        if column == WORDS and column not in (names or ()):
            yield from layout.words & set(features)
            continue
        k = _column(name, column, layout, "of categories")
        if k not in features:
            raise InputError(f"{name}: column {column!r} is no feature, so it cannot be categorical")
        yield k


def _delimiter(lines: list[bytes]) -> bytes:
    """The separator that divides the first lines into equally many fields."""
    sample = [re.sub(rb'"[^"]*"', b"", line) for line in lines[:5]]
    for candidate in (b";", b"\t", b","):
        counts = {line.count(candidate) for line in sample}
        if 0 not in counts and len(counts) == 1:
            return candidate
    present = [candidate for candidate in (b";", b"\t", b",") if candidate in sample[0]]
    return present[0] if present else b""


def _sample(lines: list[bytes], delimiter: bytes, width: int) -> list[list[bytes]]:
    """The fields of some lines; those that are out of the ordinary are met again when everything is read."""
    rows = []
    for line in lines[:SAMPLE]:
        try:
            rows.append(fields_of(line, delimiter))
        except csv.Error:
            continue
    return [row for row in rows if len(row) == width]


def _is_value(field: bytes) -> bool:
    return bool(NUMBER.match(field)) or field.lower() in MISSING or field.lower() in BOOLEAN


def _is_header(name: str, number: int, fields: list[bytes], rows: list[list[bytes]], wanted: Wanted) -> bool:
    """Whether the first line names the columns; refuses to guess where its numbers could be either."""
    if len(fields) == 1:  # new points of one feature
        return bool(fields[0].strip()) and not _is_value(fields[0])
    label = wanted.label
    at = len(fields) - 1 if label == -1 else int(str(label)) - 1 if str(label).isdecimal() else None
    features = [field for k, field in enumerate(fields) if k != at]
    if any(map(bytes.strip, features)) and not any(field and _is_value(field) for field in features):
        return True  # words, and perhaps cells without a name
    if _could_be_names(fields, at, rows):
        shown = ", ".join(field.decode() for field in features[:4]) + (", ..." if len(features) > 4 else "")
        how = "--header or --no-header" if wanted.typed else "header=True or header=False"
        fail(name, number, None, f"the numbers {shown} can be names of columns, or data; say which: {how}")
    return False


def _could_be_names(fields: list[bytes], at: int | None, rows: list[list[bytes]]) -> bool:
    """Whether a line of numbers looks like a header: it counts the columns, or is whole where all data have decimals."""
    features = [field for k, field in enumerate(fields) if k != at]
    if not features or not all(_WHOLE.match(field) for field in features):
        return False
    if at is not None and _WHOLE.match(fields[at]) and len(fields) > 2 and _counts(fields):
        return True
    new_label = at is not None and not _is_value(fields[at]) and all(row[at] != fields[at] for row in rows)
    if len(features) > 2 and (at is None or new_label) and _counts(features):
        return True
    decimals = len(rows) > 1 and all(
        not _WHOLE.match(field) and NUMBER.match(field) for row in rows for k, field in enumerate(row) if k != at
    )
    return len(set(features)) == len(features) and decimals


def _counts(fields: list[bytes]) -> bool:
    """Whether these are 0, 1, 2, ... or 1, 2, 3, ..."""
    start = fields[0]
    return start in (b"0", b"1") and fields == [b"%d" % k for k in range(int(start), int(start) + len(fields))]


def _column(name: str, column: int | str, layout: Layout, role: str) -> int:
    """The place of a column that is given by its name, or by its number from 1 (also as text)."""
    names = layout.names
    if isinstance(column, str) and column.isdecimal() and column not in (names or ()):
        column = int(column)
    if isinstance(column, str):
        if names is None:
            raise InputError(f"{name} has no header; give the column {column!r} {role} by its number, counted from 1")
        if names.count(column) != 1:
            what = "no" if column not in names else "more than one"
            raise InputError(f"{name} has {what} column {column!r}; its header names {some(names)}"[:400])
        return names.index(column)
    if not 1 <= column <= layout.width:
        last = " (-1 is the last)" if role == "for the label" else ""
        raise InputError(f"{name} has columns 1 to {layout.width}; there is no column {column} {role}{last}")
    return column - 1


def _label(name: str, layout: Layout) -> int | None:
    """The column of labels: as asked for, or for prediction the one that is no feature, or the last."""
    wanted, names, kept = layout.wanted, layout.names, layout.features
    if wanted.label is None:
        return None
    if wanted.label != -1:
        return _column(name, wanted.label, layout, "for the label")
    if wanted.names is not None and names is not None:
        others = [k for k in kept if names[k] not in wanted.names]
        absent = [feature for feature in wanted.names if feature not in names]
        if absent:
            raise InputError(
                f"{name} has no column {some(absent)}, which the machine was trained with; its header names {some(names)}"
            )
        if len(others) > 1:
            found = [names[k] for k in others]
            label, drop = ("--label", "--drop") if wanted.typed else ("label=", "drop=")
            raise InputError(
                f"{name} has columns that the machine was not trained with: {some(found)}; say which holds the labels "
                f"with {label}, and leave out the others with {drop}"
            )
        return others[0] if others else None
    return None if not kept or len(kept) == wanted.width else kept[-1]
