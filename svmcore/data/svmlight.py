"""Svmlight text: ``label index:value ...``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from svmcore._errors import InputError
from svmcore.data.text import (
    COMMENT,
    MISSING,
    Array,
    Table,
    TextPiece,
    Wanted,
    check_memory,
    fail,
    number_of,
    numbers,
    shown,
    whole,
    words_of,
)

_LARGEST_INDEX = 2**31 - 1
_LOOKED_AT = 100_000  # bytes of a line, to see what it is
_QUERY = re.compile(rb"(?<=\S[ \t])qid:\d+(?=[ \t\r\n])")
_PAIR = re.compile(rb"[^\s:]+:[^\s:]+\Z")


def looks_like_svmlight(lines: list[bytes]) -> bool:
    """Whether one of the first lines has an index:value pair after its label; separators of CSV tell against it."""
    for line in lines[:50]:
        line = line[:_LOOKED_AT]
        words = COMMENT.sub(b"", line).split()
        if any(separator in line for separator in (b",", b";")):
            return False
        if any(_PAIR.match(word) for word in words[1:] or words):
            return True
    return False


class SparseRows(NamedTuple):
    """Sparse rows: what leads each (n, k), its number of entries, then all column indices and values, as the file counts."""

    lead: Array
    length: Array
    feature: Array
    value: Array


def read_svmlight(name: str, pieces: Iterator[TextPiece], wanted: Wanted) -> Table:
    """Read svmlight text."""
    from scipy import sparse

    found = read_rows(name, pieces, 1, wanted.unlabelled)
    if found is None:
        raise InputError(f"{name} holds no data")
    y, count, index, value = found.lead[:, 0], *found[1:]
    if index.size == 0:
        raise InputError(f"{name} holds labels only; give at least one index:value pair")
    base = 0 if index.min() == 0 else 1
    if base == 0 and wanted.base == 1:
        if wanted.width is None:
            raise InputError(
                f"{name} has a feature 0, and zero_based=False says that features count from 1; leave it out"
            )
        raise InputError(
            f"{name} has a feature 0, and the machine knows features from 1 on only; number the features of both files from "
            "1, or those of both from 0, and train again"
        )
    base = base if wanted.base is None else wanted.base
    indptr = np.concatenate([[0], np.cumsum(count)])
    shape = (y.size, int(index.max()) + 1 - base)
    X = sparse.csr_matrix((value, index - np.int32(base), indptr), shape=shape)
    known = ~np.isnan(y)
    if wanted.label is None or not known.any():
        return Table(X, None, base=base)
    return Table(X, whole(y[known]), known=None if known.all() else known, base=base)


def read_rows(name: str, pieces: Iterator[TextPiece], lead: int, unlabelled: bool = False) -> SparseRows | None:
    """Lines of `lead` numbers and index:value pairs; None where there are no lines."""
    parts: list[SparseRows] = []
    held = 0
    for piece in pieces:
        rows = _bulk(piece.text, lead)
        parts.append(_line_by_line(name, piece, lead, unlabelled) if rows is None else rows)
        held += sum(array.nbytes for array in parts[-1])
        check_memory(2.0 * held, name)
    if not any(len(part.lead) for part in parts):
        return None
    return SparseRows(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _bulk(text: bytes, lead: int) -> SparseRows | None:
    """All rows of a piece at once, or None where a line is out of the ordinary."""
    if b"#" in text:
        text = COMMENT.sub(b"", text)
    if b"qid:" in text:
        text = _QUERY.sub(b"", text)
    letters = np.frombuffer(text, dtype=np.uint8)
    begin, end = words_of(letters <= 32)
    colon = np.flatnonzero(letters == ord(":"))
    words = np.diff(np.searchsorted(begin, np.flatnonzero(letters == ord("\n"))), prepend=0)
    words = words[words > 0]
    if words.size and words.min() < lead:
        return None
    first = np.cumsum(words) - words
    entry = np.ones(begin.size, dtype=bool)
    entry[first[:, None] + np.arange(lead)] = False
    # The k-th colon lies inside of the k-th word that is a pair.
    if colon.size != begin.size - lead * first.size or np.any(colon <= begin[entry]) or np.any(colon >= end[entry] - 1):
        return None
    found = numbers(text.replace(b":", b" "), begin.size + colon.size)
    if found is None:
        return None
    at = (2 * first - lead * np.arange(first.size))[:, None] + np.arange(lead)  # what leads is one number, a pair two
    leading = found[at]
    pairs = np.ones(found.size, dtype=bool)
    pairs[at] = False
    index, value = found[pairs].reshape(-1, 2).T
    count = words - lead
    if index.size:
        row_start = np.zeros(index.size, dtype=bool)
        row_start[(np.cumsum(count) - count)[count > 0]] = True
        ordered = np.all((np.diff(index) > 0) | row_start[1:])
        integral = index.min() >= 0 and index.max() <= _LARGEST_INDEX and np.all(index == np.floor(index))
        if not (ordered and integral):
            return None
    return SparseRows(leading, count, index.astype(np.int32), np.ascontiguousarray(value))


def _line_by_line(name: str, piece: TextPiece, lead: int, unlabelled: bool) -> SparseRows:
    """The same line by line; where labels may be missing, those that are become NaN."""
    leading: list[list[float]] = []
    count: list[int] = []
    index: list[int] = []
    value: list[float] = []
    for number, line in enumerate(piece.text.split(b"\n"), piece.line):
        words = list(re.finditer(rb"\S+", COMMENT.sub(b"", line)))
        if not words:
            continue
        label = words[0].group()
        if unlabelled and (b":" in label or label.lower() in MISSING):
            leading.append([np.nan] * lead)
            start = int(b":" not in label)
        elif b":" in label:
            fail(name, number, words[0].start() + 1, f"{shown(label)} where the label belongs")
        else:
            start = lead
            heads = [(word.start() + 1, word.group()) for word in words[:lead]]
            if len(heads) < lead:
                fail(name, number, None, f"{len(heads)} numbers where {lead} belong")
            what = "(the label)" if lead == 1 else ""
            leading.append([number_of(name, number, column, word, what) for column, word in heads])
        row: dict[int, float] = {}
        for word in words[start:]:
            column = word.start() + 1
            left, colon, right = word.group().partition(b":")
            if left == b"qid" and right.isdigit():
                continue
            if not colon or b":" in right:
                fail(name, number, column, f"{shown(word.group())} is not an index:value pair")
            at = number_of(name, number, column, left, "(a feature index)")
            if at < 0 or at > _LARGEST_INDEX or at != int(at):
                fail(name, number, column, f"feature index {shown(left)} is not a whole number from 0 to 2**31 - 1")
            if int(at) in row:
                fail(name, number, column, f"feature {int(at)} appears twice in this line")
            row[int(at)] = number_of(name, number, column + len(left) + 1, right)
        count.append(len(row))
        for key in sorted(row):
            index.append(key)
            value.append(row[key])
    return SparseRows(
        np.array(leading, dtype=np.float64).reshape(-1, lead), np.array(count, dtype=np.int64),
        np.array(index, dtype=np.int32), np.array(value, dtype=np.float64),
    )  # fmt: skip
