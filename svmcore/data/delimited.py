"""CSV and its relatives: columns separated by comma, semicolon, tab or white space."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

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
    numbers,
    whole,
    words_of,
)

_LONGEST_LABEL = 64  # longer labels are read one by one
_COMMENT_LINE = re.compile(rb"^[ \t]*#[^\n]*\n", re.MULTILINE)
_BLANK_LINE = re.compile(rb"^[ \t\r]*\n", re.MULTILINE)
_TRUE = re.compile(rb"(?<!\S)true(?!\S)", re.IGNORECASE)
_FALSE = re.compile(rb"(?<!\S)false(?!\S)", re.IGNORECASE)


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
    """All rows of a piece at once; None where a line is out of the ordinary."""
    if b'"' in text:
        return None
    if b"#" in text:
        text = _COMMENT_LINE.sub(b"", text)
    text = _BLANK_LINE.sub(b"", text)
    width = layout.width
    letters = np.frombuffer(text, dtype=np.uint8).copy()
    if not letters.size:
        return _nothing(layout)
    newline = letters == ord("\n")
    n = int(np.count_nonzero(newline))
    if layout.delimiter:
        stop = np.flatnonzero(newline | (letters == layout.delimiter[0]))
        if stop.size != n * width:
            return None
        begin = np.concatenate([[0], stop[:-1] + 1])
        ends = newline[stop].reshape(n, width)
        if not ends[:, -1].all() or ends[:, :-1].any():
            return None
        blank = letters <= 32
    else:
        blank = letters <= 32
        begin, stop = words_of(blank)
        per_line = np.diff(np.searchsorted(begin, np.flatnonzero(newline)), prepend=0)
        if np.any(per_line != width):
            return None
    texts: dict[int, Array] = {}
    for k in sorted({*layout.texts, *layout.dropped}):
        taken = _cut_out(letters, begin[k::width], stop[k::width])
        if taken is None:
            return None
        if k in layout.dropped:
            continue
        texts[k] = taken
        needed = k != layout.label or not layout.wanted.unlabelled
        if needed and np.isin(np.strings.lower(taken), np.array(MISSING)).any():
            return None
    if layout.delimiter:
        # One word in every field: the k-th word begins inside of the k-th field.
        letters[stop] = ord(" ")
        word, _ = words_of(np.append(letters[:-1] <= 32, True))
        if word.size != stop.size or np.any(word < begin) or np.any(word >= stop):
            return None
    content = letters.tobytes()
    if _TRUE.search(content) or _FALSE.search(content):
        content = _FALSE.sub(b"0", _TRUE.sub(b"1", content))
    values = numbers(content, n * width)
    if values is None:
        return None
    return ParsedRows(np.ascontiguousarray(values.reshape(n, width)[:, layout.numbers]), texts)


def _nothing(layout: Layout) -> ParsedRows:
    empty = np.empty(0, dtype="S1")
    return ParsedRows(np.empty((0, len(layout.numbers))), dict.fromkeys(layout.texts, empty))


def _cut_out(letters: Array, begin: Array, stop: Array) -> Array | None:
    """Take a column out of a text, as bytes, and leave 0 in its places. In place: letters."""
    longest = int((stop - begin).max())
    if longest > _LONGEST_LABEL or int((stop - begin).min()) == 0:
        return None
    at = begin[:, None] + np.arange(longest)
    inside = at < stop[:, None]
    taken = np.where(inside, letters[np.minimum(at, letters.size - 1)], 0).astype(np.uint8)
    labels = np.strings.strip(np.ascontiguousarray(taken).view(f"S{longest}").reshape(-1))
    letters[at[inside]] = ord(" ")
    letters[begin] = ord("0")
    return np.asarray(labels)


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
        rows.append([_value(name, number, k, fields[k], layout) for k in layout.numbers])
    if not rows:
        return _nothing(layout)
    X = np.array(rows, dtype=np.float64).reshape(len(rows), len(layout.numbers))
    return ParsedRows(X, {k: np.array(column, dtype="S") for k, column in texts.items()})


def _value(name: str, line: int, k: int, field: bytes, layout: Layout) -> float:
    """One number of a feature, or the complaint about it."""
    truth = BOOLEAN.get(field.strip().lower())
    if truth is not None:
        return truth
    if layout.wanted.gap(field):
        return math.nan
    return number_of(name, line, k + 1, field, layout.column(k), layout.remedy(k), layout.wanted.filling)
