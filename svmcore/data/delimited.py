"""CSV and its relatives: columns separated by comma, semicolon, tab or white space."""

from __future__ import annotations

import csv
import math
import re
import warnings
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from svmcore._errors import InputError
from svmcore.data.categories import encoded
from svmcore.data.layout import Layout, fields_of, find_layout
from svmcore.data.text import (
    BOOLEAN,
    MISSING,
    NUMBER,
    Array,
    Table,
    TextPiece,
    Wanted,
    check_memory,
    fail,
    number_of,
    whole,
)

_LONGEST_LABEL = 64  # longer labels are read one by one
_COMMENT_LINE = re.compile(rb"^[ \t]*#[^\n]*\n", re.MULTILINE)
_BLANK_LINE = re.compile(rb"^[ \t\r]*\n", re.MULTILINE)
_STRANGE = re.compile(rb'["\x01\x02\x1c-\x1f]')  # quotes, and what numpy takes for white space
# The same among the bytes of letters: they are other bytes while numpy reads.
_HIDDEN, _SHOWN = bytes.maketrans(b"\x85\xa0", b"\x01\x02"), bytes.maketrans(b"\x01\x02", b"\x85\xa0")


def read_delimited(name: str, pieces: Iterator[TextPiece], lines: list[bytes], wanted: Wanted) -> Table:
    """Read a CSV file, whose first lines are known."""
    layout: Layout | None = None
    parts: list[ParsedRows] = []
    held = 0
    for piece in pieces:
        if layout is None:
            first = lines[0] + b"\n"
            start = 0 if piece.text.startswith(first) else piece.text.find(b"\n" + first) + 1
            if not piece.text.startswith(first, start):  # comments only
                continue
            number = piece.line + piece.text.count(b"\n", 0, start)
            layout = find_layout(name, lines, number, wanted)
            if layout.names is not None:
                start += len(lines[0]) + 1
                number += 1
            piece = TextPiece(number, piece.text[start:])
        rows = _csv_bulk(piece.text, layout)
        parts.append(_csv_lines(name, piece, layout) if rows is None else rows)
        held += parts[-1].X.nbytes + sum(column.nbytes for column in parts[-1].texts.values())
        check_memory(2.0 * held, name)
    X = np.concatenate([part.X for part in parts])
    if not len(X):
        raise InputError(f"{name} holds a header and no data")
    assert layout is not None
    words = {
        k: _labels(np.concatenate([part.texts[k] for part in parts]), words=True) for k in sorted(layout.categories)
    }
    if layout.label is None:
        return encoded(name, X, words, layout, None, None)
    raw = np.concatenate([part.texts[layout.label] for part in parts])
    missing = np.isin(np.strings.lower(raw), np.array(MISSING))
    y = None if missing.all() else _labels(raw[~missing])
    return encoded(name, X, words, layout, y, ~missing if missing.any() and not missing.all() else None)


class ParsedRows(NamedTuple):
    """Rows of a file: the features that are numbers, and columns that are taken as text (bytes), by their places."""

    X: Array
    texts: dict[int, Array]


def _labels(raw: Array, words: bool = False) -> Array:
    """Labels, read as bytes: integers, numbers or strings; of `words` always strings."""
    values, index = np.unique(raw, return_inverse=True)
    known = values.tolist()
    if not words and all(NUMBER.match(value) or value.lower() in BOOLEAN for value in known):
        return whole(np.array([float(BOOLEAN.get(value.lower(), value)) for value in known])[index])
    return np.array([value.decode("utf-8", "replace") for value in known], dtype=str)[index]


def _csv_bulk(text: bytes, layout: Layout) -> ParsedRows | None:
    """All rows of a piece at once, by numpy; None where a line is out of the ordinary."""
    if _STRANGE.search(text):
        return None
    text = text.translate(_HIDDEN)
    text = _BLANK_LINE.sub(b"", _COMMENT_LINE.sub(b"", text) if b"#" in text else text)
    if not text:
        return None
    plain, edge = text, rb"(?<![^\s%b])%b(?![^\s%b])"
    for word, number in ((b"true", b"1"), (b"false", b"0")):
        if re.search(word, text, re.IGNORECASE):
            plain = re.sub(edge % (layout.delimiter, word, layout.delimiter), number, plain, flags=re.IGNORECASE)
    words = {*layout.texts, *layout.dropped}
    runs = [(own, list(columns)) for own, columns in groupby(range(layout.width), lambda k: k not in words)]
    kinds = [(f"{columns[0]}", "f8" if own else "S1", (len(columns),)) for own, columns in runs]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            rows = _loaded(plain, layout, kinds)
            texts = _loaded(text, layout, f"S{_LONGEST_LABEL + 1}", layout.texts)
    except (ValueError, UserWarning):
        return None
    X = np.concatenate([rows[f"{columns[0]}"] for own, columns in runs if own] or [np.empty((len(rows), 0))], axis=1)
    if not np.isfinite(X).all():
        return None
    found: dict[int, Array] = {}
    for place, k in enumerate(layout.texts):
        column = np.strings.strip(np.ascontiguousarray(texts[:, place]))
        longest = int(np.strings.str_len(column).max())
        needed = k != layout.label or not layout.wanted.unlabelled
        if longest > _LONGEST_LABEL or (needed and np.isin(np.strings.lower(column), np.array(MISSING)).any()):
            return None
        column = column.astype(f"S{max(1, longest)}")
        found[k] = np.frombuffer(column.tobytes().translate(_SHOWN), column.dtype)
    return ParsedRows(X, found)


def _loaded(text: bytes, layout: Layout, kind: Any, columns: list[int] | None = None) -> Any:
    """The lines of a text as rows. ValueError where one has another number of columns, or a word among its numbers."""
    lines = text.decode("latin-1").removesuffix("\n").split("\n")
    delimiter = layout.delimiter.decode() or None
    return np.loadtxt(
        lines, kind, comments=None, delimiter=delimiter, usecols=columns, ndmin=1 if columns is None else 2
    )


def _csv_lines(name: str, piece: TextPiece, layout: Layout) -> ParsedRows:
    """The same line by line."""
    rows: list[list[float]] = []
    texts: dict[int, list[bytes]] = {k: [] for k in layout.texts}
    for number, line in enumerate(piece.text.split(b"\n"), piece.line):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        try:
            fields = fields_of(line, layout.delimiter)
        except csv.Error as error:
            fail(name, number, None, f"cannot be divided into fields ({error})")
        if len(fields) != layout.width:
            found = f"{len(fields)} column{'s' if len(fields) > 1 else ''}"
            fail(name, number, None, f"{found}, where the first line has {layout.width}")
        for k, column in texts.items():
            text = fields[k].rstrip(b"\0")
            if text.lower() in MISSING and (k != layout.label or not layout.wanted.unlabelled):
                if k == layout.label:
                    fail(name, number, k + 1, f"the label is missing {layout.column(k)}".rstrip())
                if not layout.wanted.gap(text):
                    gap = f"a missing value {layout.column(k)}".rstrip()
                    fail(name, number, k + 1, f"{gap}; {layout.wanted.filling}")
                text = b""
            column.append(text)
        rows.append([])
        for k in layout.numbers:
            field = fields[k]
            if (value := BOOLEAN.get(field.strip().lower())) is None:
                words = layout.column(k), layout.remedy(k), layout.wanted.filling
                value = math.nan if layout.wanted.gap(field) else number_of(name, number, k + 1, field, *words)
            rows[-1].append(value)
    X = np.array(rows, dtype=np.float64).reshape(len(rows), len(layout.numbers))
    return ParsedRows(X, {k: np.array(column, dtype="S") for k, column in texts.items()})
