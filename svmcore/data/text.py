"""What the formats of text share: pieces of whole lines, words, numbers, and complaints that name the place."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from typing import Any, BinaryIO, Literal, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore.problem.categories import Category

Array = NDArray[Any]

PIECE = 1 << 22  # bytes of text taken at a time
_LONGEST_LINE = 1 << 28
NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
MISSING = (b"", b"?", b"na", b"n/a", b"nan", b"null", b"none")
WORDS = "words"
"""Of `Wanted.categorical`: all columns of words."""
BOOLEAN = {b"true": 1.0, b"false": 0.0}
COMMENT = re.compile(rb"#[^\n]*")


class Wanted(NamedTuple):
    """What to make of a file: `label`, `header` and `drop` are those of `load_data`.

    `width` and `names` are the columns for a machine that shall predict: then labels may be missing. `categorical` are
    columns of words to be encoded, or WORDS for all such columns; `categories` are those that a machine knows already, and
    `unknown` says what a word is that it does not know: an "error", or ("ignore") none of them. `base` is the number that
    svmlight text gives to the first feature; None: the file is looked at. `missing`: a missing value is an "error", one
    with a word about --impute ("offer"), or NaN, as are all features of a missing word ("nan"). `typed`: on the command
    line, so that messages name its letters, and not the arguments of functions.
    """

    label: int | str | None = -1
    header: bool | None = None
    drop: tuple[int | str, ...] = ()
    width: int | None = None
    names: tuple[str, ...] | None = None
    categorical: tuple[int | str, ...] = ()
    categories: tuple[Category, ...] = ()
    unknown: str = "error"
    base: int | None = None
    missing: Literal["error", "offer", "nan"] = "error"
    typed: bool = False

    def option(self, name: str, column: int | str) -> str:
        """How a column is given to an option: ``--drop town``, or ``drop='town'``."""
        if not self.typed:
            return f"{name}={column!r}"
        plain = isinstance(column, int) or re.fullmatch(r"[\w.+-]+", column)
        return f"--{name} {column}" if plain else f"--{name} '" + str(column).replace("'", "'\\''") + "'"

    def gap(self, field: bytes) -> bool:
        """Whether a field is a missing value that is read as NaN."""
        return self.missing == "nan" and field.strip().lower() in MISSING

    @property
    def filling(self) -> str:
        """What to do about a missing value."""
        if self.missing == "offer":
            return "fill such values in: --impute mean, or median; or remove the row"
        return "remove or impute missing values first"

    @property
    def unlabelled(self) -> bool:
        """Whether the file may come without labels."""
        return self.label is None or self.width is not None


class Table(NamedTuple):
    """A data set. `known`: which rows have a label, where not all have; `y` holds the labels of those.

    `categories`: the columns of words that became several features each. `base`: the number of the first feature in
    svmlight text, 0 or 1. `fill`: what stands for a missing value of each feature.
    """

    X: Any
    y: Array | None
    names: tuple[str, ...] | None = None
    label_name: str | None = None
    known: Array | None = None
    categories: tuple[Category, ...] = ()
    base: int | None = None
    fill: Array | None = None


def fail(name: str, line: int, column: int | None, what: str) -> NoReturn:
    """Complain about a place in a file."""
    place = f"line {line}" if column is None else f"line {line}, column {column}"
    raise InputError(f"{name}, {place}: {what}")


def shown(text: bytes) -> str:
    """A piece of the file for an error message: short, on one line."""
    piece = text[:40].decode("utf-8", "replace")
    return ascii(piece)[:60] if not piece.isprintable() else repr(piece)[:60]


def check_memory(n_bytes: float, name: str) -> None:
    """Refuse to read what cannot be held."""
    if n_bytes > 1e8:
        from svmcore.problem.border import memory  # loads the compiler: large files only

        memory(n_bytes, f"reading {name}", "use fewer rows")


def refuse_other_formats(name: str, magic: bytes) -> None:
    """Name the formats that are no text."""
    if magic.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{name} is UTF-16 text; save it as UTF-8")
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        raise InputError(f"{name} is compressed by zstd; decompress it first (gzip, bzip2 and xz are read as they are)")
    if magic.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"PK\x03\x04", b"PAR1", b"ARROW1")):
        raise InputError(f"{name} is no text once it is unpacked; unpack it first")
    if magic.startswith(b"\x93NUMPY"):
        raise InputError(f"{name} holds one array; give an .npz with X and y: np.savez(file, X=X, y=y)")


class TextPiece(NamedTuple):
    """Whole lines of a file, the number of the first, and the share of the file read so far."""

    line: int
    text: bytes


def pieces_of(name: str, file: BinaryIO) -> Iterator[TextPiece]:
    """The file in pieces of whole lines."""
    rest, line = b"", 1
    while block := file.read(PIECE):
        if line == 1 and not rest:
            refuse_other_formats(name, block[:6])
            block = block.removeprefix(b"\xef\xbb\xbf")
        text = rest + block
        if b"\0" in block:
            at = text.index(b"\0")
            fail(name, line + text.count(b"\n", 0, at), None, "a zero byte; this is not a text file")
        cut = text.rfind(b"\n") + 1
        if cut:
            yield TextPiece(line, text[:cut])
            line += text.count(b"\n", 0, cut)
        rest = text[cut:]
        if len(rest) > _LONGEST_LINE:
            fail(name, line, None, f"longer than {_LONGEST_LINE >> 20} MB; this is not a data file")
    if rest:
        yield TextPiece(line, rest + b"\n")


def numbers(text: bytes, count: int) -> Array | None:
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


def words_of(separator: Array) -> tuple[Array, Array]:
    """Where the words between separators begin, and where they end (exclusive). The text ends with a separator."""
    edge = np.flatnonzero(separator[1:] != separator[:-1]) + 1
    if not separator[0]:
        edge = np.concatenate([[0], edge])
    return edge[0::2], edge[1::2]


def number_of(
    name: str, line: int, column: int, word: bytes, what: str = "", remedy: str = "", filling: str = Wanted().filling
) -> float:
    """One number, or the complaint about it; `remedy` is said of words, `filling` of missing values."""
    word = word.strip()
    suffix = f" {what}" if what else ""
    if not NUMBER.match(word):
        if word.lower() in MISSING:
            gap = f"{shown(word)} stands for a missing value" if word else "a missing value"
            fail(name, line, column, f"{gap}{suffix}; {filling}")
        hint = "; use a decimal point" if NUMBER.match(word.replace(b",", b".", 1)) else remedy
        fail(name, line, column, f"{shown(word)} is not a finite number{suffix}{hint}")
    value = float(word)
    if not math.isfinite(value):
        fail(name, line, column, f"{shown(word)} is too large for a number in double precision{suffix}")
    return value


def whole(y: Array) -> Array:
    """Labels as integers, when they are."""
    if y.dtype.kind != "f":
        return y.astype(np.int64)
    y = y.astype(np.float64)
    integral = np.all(y == np.rint(y)) and np.all(np.abs(y) < 2**53)
    return y.astype(np.int64) if integral else y
