"""Data files: svmlight text, CSV, .npz and built-in sets become (X, y), or one line that says what is wrong, and where.

Text is read in pieces of whole lines. A piece is first taken in bulk: a few array passes check that its separators lie
where they must, and one call converts all of its numbers. What does not pass goes through a plain parser, line by line,
which either reads it or knows the line and the column to complain about.

Nothing is unpickled. Sizes that a file claims are compared with its length and the free memory before anything is made.
"""

from __future__ import annotations

import csv
import math
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError

Array = NDArray[Any]

_PIECE = 1 << 24  # bytes of text taken at a time
_LONGEST_LINE = 1 << 28
_LONGEST_LABEL = 64  # longer labels are read one by one
_LARGEST_INDEX = 2**31 - 1
_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
_MISSING = (b"", b"?", b"na", b"n/a", b"nan", b"null", b"none")
_COMMENT = re.compile(rb"#[^\n]*")
_COMMENT_LINE = re.compile(rb"^[ \t]*#[^\n]*\n", re.MULTILINE)
_BLANK_LINE = re.compile(rb"^[ \t\r]*\n", re.MULTILINE)
_QUERY = re.compile(rb"(?<=\S[ \t])qid:\d+(?=[ \t\r\n])")
_PAIR = re.compile(rb"[^\s:]+:[^\s:]+\Z")


def load_data(source: Any, *, label: int | str = -1) -> tuple[Any, Array]:
    """Read a data set: (X, y).

    Parameters
    ----------
    source : the name of a file, "-" (text on standard input), or a built-in set: "demo:spirals", "demo:two-spirals",
        "demo:monk1", "demo:monk2", "demo:monk3". The format is recognised by looking at the content:

        - svmlight / libsvm text (``label index:value ...``): X is a scipy CSR matrix. Comments and ``qid`` are skipped;
          indices start at 1, or at 0 where one of them is 0.
        - CSV separated by comma, semicolon, tab or spaces, with or without a header: X is an array. Lines that begin
          with ``#`` are comments.
        - .npz with ``X`` and ``y``, or with ``data``, ``indices``, ``indptr``, ``shape`` and ``y`` (CSR).
    label : the column of labels in CSV: its name in the header, or its number, counted from 1 as error messages do;
        -1, the default, is the last.

    Returns
    -------
    X, y : labels are integers where all of them are whole numbers, else numbers, else strings.

    Raises
    ------
    InputError
        Names the file, the line and the column.

    Examples
    --------
    >>> import svmcore
    >>> X, y = svmcore.load_data("demo:monk1")
    >>> X.shape, y[:5].tolist()
    ((432, 6), [1, 1, 1, 1, 1])
    """
    if isinstance(label, bool) or not isinstance(label, (int, str)):
        raise InputError(f"label={label!r} is no column; give its name, or its number counted from 1")
    if isinstance(source, str) and source.startswith("demo:"):
        return demo_set(source.removeprefix("demo:"))
    try:
        path = os.fsdecode(source)
    except TypeError:
        raise InputError(f'data source {source!r} is neither a file name nor "demo:..."') from None
    if path == "-":
        return _text("standard input", sys.stdin.buffer, label)
    try:
        with open(path, "rb") as file:
            if file.seekable():
                magic = file.read(6)
                file.seek(0)
                if magic.startswith(b"PK\x03\x04"):
                    return _npz(path, file)
                _refuse_other_formats(path, magic)
            return _text(path, file, label)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path!r} is not a possible file name ({error})") from None


def _fail(name: str, line: int, column: int | None, what: str) -> NoReturn:
    place = f"line {line}" if column is None else f"line {line}, column {column}"
    raise InputError(f"{name}, {place}: {what}")


def _shown(text: bytes) -> str:
    """A piece of the file for an error message: short, on one line."""
    shown = text[:40].decode("utf-8", "replace")
    return ascii(shown)[:60] if not shown.isprintable() else repr(shown)[:60]


def _check_memory(n_bytes: float, name: str) -> None:
    if n_bytes > 1e8:
        from svmcore._check import memory  # loads the compiler: large files only

        memory(n_bytes, f"reading {name}", "use fewer rows")


# ---- text in pieces --------------------------------------------------------------------------------------------------


def _refuse_other_formats(name: str, magic: bytes) -> None:
    if magic.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{name} is UTF-16 text; save it as UTF-8")
    if magic.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")):
        raise InputError(f"{name} is compressed; decompress it first")
    if magic.startswith(b"\x93NUMPY"):
        raise InputError(f"{name} holds one array; give an .npz with X and y: np.savez(file, X=X, y=y)")


class _Piece(NamedTuple):
    """Whole lines of a file, the number of the first, and the share of the file read so far."""

    line: int
    text: bytes


def _pieces(name: str, file: BinaryIO) -> Iterator[_Piece]:
    rest, line = b"", 1
    while block := file.read(_PIECE):
        if line == 1 and not rest:
            _refuse_other_formats(name, block[:6])
            block = block.removeprefix(b"\xef\xbb\xbf")
        text = rest + block
        if b"\0" in block:
            at = text.index(b"\0")
            _fail(name, line + text.count(b"\n", 0, at), None, "a zero byte; this is not a text file")
        cut = text.rfind(b"\n") + 1
        if cut:
            yield _Piece(line, text[:cut])
            line += text.count(b"\n", 0, cut)
        rest = text[cut:]
        if len(rest) > _LONGEST_LINE:
            _fail(name, line, None, f"longer than {_LONGEST_LINE >> 20} MB; this is not a data file")
    if rest:
        yield _Piece(line, rest + b"\n")


def _text(name: str, file: BinaryIO, label: int | str) -> tuple[Any, Array]:
    """Read svmlight text or CSV, whichever the first lines look like."""
    pieces = _pieces(name, file)
    skipped: list[_Piece] = []
    for piece in pieces:
        lines = [
            line for line in piece.text[:100_000].split(b"\n") if line.strip() and not line.lstrip().startswith(b"#")
        ]
        skipped.append(piece)
        if lines:
            break
    else:
        raise InputError(f"{name} holds no data")

    def everything() -> Iterator[_Piece]:
        yield from skipped
        yield from pieces

    if _looks_like_svmlight(lines):
        return _svmlight(name, everything())
    return _csv(name, everything(), lines, label)


def _looks_like_svmlight(lines: list[bytes]) -> bool:
    """Whether one of the first lines has an index:value pair after its label; separators of CSV tell against it."""
    for line in lines[:50]:
        words = _COMMENT.sub(b"", line).split()
        if any(separator in line for separator in (b",", b";")):
            return False
        if len(words) > 1 and any(_PAIR.match(word) for word in words[1:]):
            return True
    return False


def _numbers(text: bytes, count: int) -> Array | None:
    """The numbers of a text without other words; None when there are not `count`, or one is not finite."""
    if count == 0:
        return np.empty(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values = np.fromstring(text, dtype=np.float64, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    return values if values.size == count and np.isfinite(values).all() else None


def _words(separator: Array) -> tuple[Array, Array]:
    """Where the words between separators begin, and where they end (exclusive). The text ends with a separator."""
    edge = np.flatnonzero(separator[1:] != separator[:-1]) + 1
    if not separator[0]:
        edge = np.concatenate([[0], edge])
    return edge[0::2], edge[1::2]


def _float(name: str, line: int, column: int, word: bytes, what: str = "") -> float:
    """One number, or the complaint about it."""
    word = word.strip()
    suffix = f" {what}" if what else ""
    if not _NUMBER.match(word):
        if word.lower() in _MISSING:
            shown = f"{_shown(word)} stands for a missing value" if word else "a missing value"
            _fail(name, line, column, f"{shown}{suffix}; remove or impute missing values first")
        hint = "; use a decimal point" if _NUMBER.match(word.replace(b",", b".", 1)) else ""
        _fail(name, line, column, f"{_shown(word)} is not a finite number{suffix}{hint}")
    value = float(word)
    if not math.isfinite(value):
        _fail(name, line, column, f"{_shown(word)} is too large for a number in double precision{suffix}")
    return value


# ---- svmlight --------------------------------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """Sparse rows: label and number of entries of each, then all column indices and values, as the file counts."""

    label: Array
    length: Array
    feature: Array
    value: Array


def _svmlight(name: str, pieces: Iterator[_Piece]) -> tuple[Any, Array]:
    from scipy import sparse

    parts: list[_Rows] = []
    held = 0
    for piece in pieces:
        rows = _svmlight_bulk(piece.text)
        parts.append(_svmlight_lines(name, piece) if rows is None else rows)
        held += sum(array.nbytes for array in parts[-1])
        _check_memory(2.0 * held, name)
    y, count, index, value = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if y.size == 0:
        raise InputError(f"{name} holds no data")
    if index.size == 0:
        raise InputError(f"{name} holds labels only; give at least one index:value pair")
    base = 0 if index.min() == 0 else 1
    indptr = np.concatenate([[0], np.cumsum(count)])
    shape = (y.size, int(index.max()) + 1 - base)
    return sparse.csr_matrix((value, index - np.int32(base), indptr), shape=shape), _whole(y)


def _whole(y: Array) -> Array:
    """Labels as integers, when they are."""
    whole = np.all(y == np.rint(y)) and np.all(np.abs(y) < 2**53)
    return y.astype(np.int64) if whole else y


def _svmlight_bulk(text: bytes) -> _Rows | None:
    """All rows of a piece at once, or None where a line is out of the ordinary."""
    if b"#" in text:
        text = _COMMENT.sub(b"", text)
    if b"qid:" in text:
        text = _QUERY.sub(b"", text)
    letters = np.frombuffer(text, dtype=np.uint8)
    begin, end = _words(letters <= 32)
    colon = np.flatnonzero(letters == ord(":"))
    words = np.diff(np.searchsorted(begin, np.flatnonzero(letters == ord("\n"))), prepend=0)
    words = words[words > 0]
    first = np.cumsum(words) - words
    entry = np.ones(begin.size, dtype=bool)
    entry[first] = False
    # The k-th colon lies inside of the k-th word that is no label.
    if colon.size != begin.size - first.size or np.any(colon <= begin[entry]) or np.any(colon >= end[entry] - 1):
        return None
    numbers = _numbers(text.replace(b":", b" "), begin.size + colon.size)
    if numbers is None:
        return None
    at = 2 * first - np.arange(first.size)  # labels are one number, entries two
    y = numbers[at]
    pairs = np.ones(numbers.size, dtype=bool)
    pairs[at] = False
    index, value = numbers[pairs].reshape(-1, 2).T
    count = words - 1
    if index.size:
        row_start = np.zeros(index.size, dtype=bool)
        row_start[(np.cumsum(count) - count)[count > 0]] = True
        ordered = np.all((np.diff(index) > 0) | row_start[1:])
        whole = index.min() >= 0 and index.max() <= _LARGEST_INDEX and np.all(index == np.floor(index))
        if not (ordered and whole):
            return None
    return _Rows(y, count, index.astype(np.int32), np.ascontiguousarray(value))


def _svmlight_lines(name: str, piece: _Piece) -> _Rows:
    """The same line by line."""
    y: list[float] = []
    count: list[int] = []
    index: list[int] = []
    value: list[float] = []
    for number, line in enumerate(piece.text.split(b"\n"), piece.line):
        words = list(re.finditer(rb"\S+", _COMMENT.sub(b"", line)))
        if not words:
            continue
        label = words[0].group()
        if b":" in label:
            _fail(name, number, words[0].start() + 1, f"{_shown(label)} where the label belongs")
        y.append(_float(name, number, words[0].start() + 1, label, "(the label)"))
        row: dict[int, float] = {}
        for word in words[1:]:
            column = word.start() + 1
            left, colon, right = word.group().partition(b":")
            if left == b"qid" and right.isdigit():
                continue
            if not colon or b":" in right:
                _fail(name, number, column, f"{_shown(word.group())} is not an index:value pair")
            at = _float(name, number, column, left, "(a feature index)")
            if at < 0 or at > _LARGEST_INDEX or at != int(at):
                _fail(name, number, column, f"feature index {_shown(left)} is not a whole number from 0 to 2**31 - 1")
            if int(at) in row:
                _fail(name, number, column, f"feature {int(at)} appears twice in this line")
            row[int(at)] = _float(name, number, column + len(left) + 1, right)
        count.append(len(row))
        for key in sorted(row):
            index.append(key)
            value.append(row[key])
    return _Rows(np.array(y), np.array(count, dtype=np.int64), np.array(index, dtype=np.int32), np.array(value))


# ---- CSV -------------------------------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """How the lines of a CSV file are divided; an empty delimiter means any white space. `label` counts from 0."""

    delimiter: bytes
    width: int
    label: int
    names: list[str] | None

    def column(self, k: int) -> str:
        """What to call column k (from 0) beyond its number."""
        return f"(column {self.names[k]!r})" if self.names else ""


def _delimiter(lines: list[bytes]) -> bytes:
    """The separator that divides the first lines into equally many fields."""
    sample = [re.sub(rb'"[^"]*"', b"", line) for line in lines[:5]]
    for candidate in (b";", b"\t", b","):
        counts = {line.count(candidate) for line in sample}
        if 0 not in counts and len(counts) == 1:
            return candidate
    present = [candidate for candidate in (b";", b"\t", b",") if candidate in sample[0]]
    return present[0] if present else b""


def _fields(line: bytes, delimiter: bytes) -> list[bytes]:
    """The fields of one line; quotes count, line breaks inside them do not."""
    if not delimiter:
        return line.split()
    if b'"' not in line:
        return [field.strip() for field in line.split(delimiter)]
    text = line.rstrip(b"\r").decode("utf-8", "surrogateescape")
    row = next(csv.reader([text], delimiter=delimiter.decode(), skipinitialspace=True))
    return [field.strip().encode("utf-8", "surrogateescape") for field in row]


def _layout(name: str, lines: list[bytes], number: int, label: int | str) -> _Layout:
    delimiter = _delimiter(lines)
    try:
        fields = _fields(lines[0], delimiter)
    except csv.Error as error:
        _fail(name, number, None, f"cannot be divided into fields ({error})")
    width = len(fields)
    if width < 2:
        _fail(
            name,
            number,
            None,
            "one column only; data need a label and at least one feature, in columns or index:value pairs",
        )
    texts = [field.decode("utf-8", "replace") for field in fields]
    at: int | None = None
    if isinstance(label, int):
        if not (label == -1 or 1 <= label <= width):
            raise InputError(
                f"{name} has columns 1 to {width}; there is no column {label} for the label (-1 is the last)"
            )
        at = width - 1 if label == -1 else label - 1
    features = [field for k, field in enumerate(fields) if k != at]
    header = not any(_NUMBER.match(field) or field.lower() in _MISSING for field in features)
    if isinstance(label, str):
        if not header:
            raise InputError(f"{name} has no header; give the label column {label!r} by its number, counted from 1")
        if texts.count(label) != 1:
            found = ", ".join(map(repr, texts[:12])) + (", ..." if width > 12 else "")
            what = "no" if label not in texts else "more than one"
            raise InputError(f"{name} has {what} column {label!r}; its header names {found}"[:400])
        at = texts.index(label)
    assert at is not None
    return _Layout(delimiter, width, at, texts if header else None)


def _csv(name: str, pieces: Iterator[_Piece], lines: list[bytes], label: int | str) -> tuple[Any, Array]:
    layout: _Layout | None = None
    parts: list[tuple[Array, Array]] = []
    held = 0
    for piece in pieces:
        if layout is None:
            start = piece.text.find(lines[0] + b"\n")
            if start < 0:
                continue
            number = piece.line + piece.text.count(b"\n", 0, start)
            layout = _layout(name, lines, number, label)
            if layout.names is not None:
                start += len(lines[0]) + 1
                number += 1
            piece = _Piece(number, piece.text[start:])
        rows = _csv_bulk(piece.text, layout)
        parts.append(_csv_lines(name, piece, layout) if rows is None else rows)
        held += parts[-1][0].nbytes + parts[-1][1].nbytes
        _check_memory(2.0 * held, name)
    X = np.concatenate([part[0] for part in parts])
    if not X.size:
        raise InputError(f"{name} holds a header and no data")
    return X, _labels(np.concatenate([part[1] for part in parts]))


def _labels(raw: Array) -> Array:
    """Labels, read as bytes: integers, numbers or strings."""
    values, index = np.unique(raw, return_inverse=True)
    known = values.tolist()
    if all(_NUMBER.match(value) for value in known):
        return _whole(np.array([float(value) for value in known])[index])
    return np.array([value.decode("utf-8", "replace") for value in known])[index]


def _csv_bulk(text: bytes, layout: _Layout) -> tuple[Array, Array] | None:
    """All rows of a piece at once, features and labels as bytes; None where a line is out of the ordinary."""
    if b'"' in text:
        return None
    if b"#" in text:
        text = _COMMENT_LINE.sub(b"", text)
    text = _BLANK_LINE.sub(b"", text)
    width = layout.width
    letters = np.frombuffer(text, dtype=np.uint8).copy()
    if not letters.size:
        return np.empty((0, width - 1)), np.empty(0, dtype="S1")
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
        begin, stop = _words(blank)
        per_line = np.diff(np.searchsorted(begin, np.flatnonzero(newline)), prepend=0)
        if np.any(per_line != width):
            return None
    labels = _cut_out(letters, begin[layout.label :: width], stop[layout.label :: width])
    if labels is None:
        return None
    if layout.delimiter:
        # One word in every field: the k-th word begins inside of the k-th field.
        letters[stop] = ord(" ")
        word, _ = _words(np.append(letters[:-1] <= 32, True))
        if word.size != stop.size or np.any(word < begin) or np.any(word >= stop):
            return None
    numbers = _numbers(letters.tobytes(), n * width)
    if numbers is None:
        return None
    return np.delete(numbers.reshape(n, width), layout.label, axis=1), labels


def _cut_out(letters: Array, begin: Array, stop: Array) -> Array | None:
    """Take the labels out of a text, as bytes, and leave 0 in their places. In place: letters."""
    longest = int((stop - begin).max())
    if longest > _LONGEST_LABEL or int((stop - begin).min()) == 0:
        return None
    at = begin[:, None] + np.arange(longest)
    inside = at < stop[:, None]
    taken = np.where(inside, letters[np.minimum(at, letters.size - 1)], 0).astype(np.uint8)
    labels = np.strings.strip(np.ascontiguousarray(taken).view(f"S{longest}").reshape(-1))
    if np.isin(np.strings.lower(labels), np.array(_MISSING)).any():
        return None
    letters[at[inside]] = ord(" ")
    letters[begin] = ord("0")
    return np.asarray(labels)


def _csv_lines(name: str, piece: _Piece, layout: _Layout) -> tuple[Array, Array]:
    """The same line by line."""
    rows: list[list[float]] = []
    labels: list[bytes] = []
    for number, line in enumerate(piece.text.split(b"\n"), piece.line):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        try:
            fields = _fields(line, layout.delimiter)
        except csv.Error as error:
            _fail(name, number, None, f"cannot be divided into fields ({error})")
        if len(fields) != layout.width:
            found = f"{len(fields)} column{'s' if len(fields) > 1 else ''}"
            _fail(name, number, None, f"{found}, where the first line has {layout.width}")
        label = fields[layout.label].rstrip(b"\0")
        if label.lower() in _MISSING:
            _fail(name, number, layout.label + 1, f"the label is missing {layout.column(layout.label)}".rstrip())
        labels.append(label)
        rows.append(
            [
                _float(name, number, k + 1, field, layout.column(k))
                for k, field in enumerate(fields)
                if k != layout.label
            ]
        )
    if not rows:
        return np.empty((0, layout.width - 1)), np.empty(0, dtype="S1")
    return np.array(rows), np.array(labels, dtype="S")


# ---- npz -------------------------------------------------------------------------------------------------------------


def _npz(name: str, file: BinaryIO) -> tuple[Any, Array]:
    try:
        with zipfile.ZipFile(file) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}

            def read(key: str, kinds: str) -> Array:
                return _member(name, archive, members[key], key, kinds)

            if "y" in members and "X" in members:
                X, y = read("X", "buif"), read("y", "buifSU")
                if X.ndim != 2:
                    raise InputError(f"{name}: X has {X.ndim} dimension(s); it must have two, samples by features")
                if not (X.shape[0] and X.shape[1]):
                    raise InputError(f"{name}: X is empty, with shape {X.shape}")
                X = X.astype(np.float64)
                if not np.isfinite(X).all():
                    row, column = np.argwhere(~np.isfinite(X))[0]
                    raise InputError(f"{name}: X holds {X[row, column]} in row {row + 1}, column {column + 1}")
            elif "y" in members and {"data", "indices", "indptr", "shape"} <= set(members):
                X, y = _csr(name, read), read("y", "buifSU")
            else:
                found = ", ".join(list(members)[:8]) or "nothing"
                raise InputError(
                    f"{name} holds {_shown(found.encode('utf-8', 'replace'))}; it needs X and y, or data, indices, indptr, "
                    "shape and y"
                )
    except (InputError, MemoryError):
        raise
    except Exception as error:  # whatever a damaged archive sets off
        reason = str(error).split("\n")[0][:100]
        raise InputError(f"{name} is a damaged .npz file ({type(error).__name__}: {reason})") from None
    if y.ndim != 1 or y.size != X.shape[0]:
        raise InputError(f"{name}: y has shape {y.shape} for {X.shape[0]} rows; it needs one label per row")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise InputError(f"{name}: y holds {y[~np.isfinite(y)][0]} in row {np.flatnonzero(~np.isfinite(y))[0] + 1}")
    if y.dtype.kind in "SU":
        return X, np.char.decode(y, "utf-8", "replace") if y.dtype.kind == "S" else y
    return X, _whole(y.astype(np.float64)) if y.dtype.kind == "f" else y.astype(np.int64)


def _member(name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, key: str, kinds: str) -> Array:
    """One array: its claims are checked before anything of that size is made."""
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if header is None:
            raise InputError(f"{name}: {key} has format version {version}; save it again with numpy.savez")
        shape, fortran, dtype = header(file)
        if dtype.hasobject:
            raise InputError(f"{name}: {key} holds Python objects, which are never unpickled; save numbers")
        if dtype.kind not in kinds or not dtype.itemsize:
            raise InputError(f"{name}: {key} has type {dtype}; give numbers" + (" or strings" if "U" in kinds else ""))
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or size > info.file_size:
            raise InputError(f"{name}: {key} claims the shape {str(shape)[:60]}, but the file is shorter than that")
        _check_memory(3.0 * size, name)
        content = file.read(size)
    if len(content) != size:
        raise InputError(f"{name}: {key} is cut off")
    return np.frombuffer(content, dtype=dtype).reshape(shape, order="F" if fortran else "C")


def _csr(name: str, read: Callable[[str, str], Array]) -> Any:
    from scipy import sparse

    data, indices, indptr = read("data", "buif"), read("indices", "ui"), read("indptr", "ui")
    shape = read("shape", "ui").tolist()
    if (
        data.ndim != 1
        or indices.shape != data.shape
        or indptr.ndim != 1
        or not isinstance(shape, list)
        or len(shape) != 2
    ):
        raise InputError(f"{name}: data, indices, indptr and shape do not describe a CSR matrix")
    n, width = shape
    if n < 1 or not 1 <= width <= _LARGEST_INDEX or indptr.size != n + 1:
        raise InputError(f"{name}: shape is {n} x {width}, and indptr has {indptr.size} entries; it needs rows + 1")
    indptr = indptr.astype(np.int64)
    if indptr[0] != 0 or indptr[-1] != data.size or np.any(np.diff(indptr) < 0):
        raise InputError(f"{name}: indptr does not rise from 0 to {data.size}, the number of values")
    if indices.size and (indices.min() < 0 or indices.max() >= width):
        raise InputError(f"{name}: indices run from {indices.min()} to {indices.max()}, but there are {width} columns")
    values = data.astype(np.float64)
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        row = int(np.searchsorted(indptr, at, side="right"))
        raise InputError(f"{name}: X holds {values[at]} in row {row}, column {indices[at] + 1}")
    X = sparse.csr_matrix((values, indices.astype(np.int32), indptr), shape=(n, width))
    X.sum_duplicates()
    return X


# ---- built-in sets ---------------------------------------------------------------------------------------------------


def demo_set(name: str) -> tuple[Array, Array]:
    """A built-in set by its name."""
    if name not in DEMO_SETS:
        raise InputError(
            f"there is no built-in set {'demo:' + name!r}; choose one of demo:" + ", demo:".join(DEMO_SETS)
        )
    return DEMO_SETS[name]()


def spirals(seed: int = 20040741) -> tuple[Array, Array]:
    """Two noisy spirals of 300 points each: r (sin 2r, cos 2r) for r in [1, 1 + 2 pi], and its opposite, sd 0.2."""
    r = np.tile(np.linspace(1.0, 1.0 + 2.0 * np.pi, 300), 2)
    y = np.repeat([1, -1], 300)
    X = (y * r)[:, None] * np.column_stack([np.sin(2.0 * r), np.cos(2.0 * r)])
    return X + np.random.default_rng(seed).normal(0.0, 0.2, X.shape), y


def two_spirals() -> tuple[Array, Array]:
    """The two-spirals benchmark: 97 points on each, without noise."""
    i = np.arange(97)
    radius = 6.5 * (104 - i) / 104
    points = radius[:, None] * np.column_stack([np.sin(i * np.pi / 16), np.cos(i * np.pi / 16)])
    return np.stack([points, -points], axis=1).reshape(-1, 2), np.tile([1, -1], 97)


def _monk(positive: Callable[[Array], Array]) -> Callable[[], tuple[Array, Array]]:
    """One of the three Monk's problems: all 432 combinations of six attributes."""

    def make() -> tuple[Array, Array]:
        grid = np.meshgrid(*(np.arange(1, k + 1) for k in (3, 3, 2, 3, 4, 2)), indexing="ij")
        X = np.stack(grid, axis=-1).reshape(-1, 6)
        return X.astype(np.float64), np.where(positive(X.T), 1, -1)

    return make


DEMO_SETS: dict[str, Callable[[], tuple[Array, Array]]] = {
    "spirals": spirals,
    "two-spirals": two_spirals,
    "monk1": _monk(lambda a: (a[0] == a[1]) | (a[4] == 1)),
    "monk2": _monk(lambda a: (a == 1).sum(axis=0) == 2),
    "monk3": _monk(lambda a: ((a[4] == 3) & (a[3] == 1)) | ((a[4] != 4) & (a[1] != 3))),
}

__all__ = ["DEMO_SETS", "demo_set", "load_data", "spirals", "two_spirals"]
