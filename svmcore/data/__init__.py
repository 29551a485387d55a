"""Data files: svmlight text, CSV, .npz, tables of Arrow and built-in sets become (X, y), or one line that says what is
wrong, and where.

Text is read in pieces of whole lines. A piece is first taken in bulk: a few array passes check that its separators lie
where they must, and one call converts all of its numbers. What does not pass goes through a plain parser, line by line,
which either reads it or knows the line and the column to complain about.

Nothing is unpickled. Sizes that a file claims are compared with its length and the free memory before anything is made.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO, Literal, cast

from svmcore._errors import InputError
from svmcore.data.arrow import ARROW, PARQUET, read_arrow
from svmcore.data.compressed import unpacked
from svmcore.data.delimited import read_delimited
from svmcore.data.demo import DEMO_SETS, demo_set, spirals, two_spirals
from svmcore.data.layout import SAMPLE
from svmcore.data.npz import read_npz
from svmcore.data.svmlight import looks_like_svmlight, read_svmlight
from svmcore.data.text import Array, Table, TextPiece, Wanted, pieces_of
from svmcore.data.writing import save_data

_CONTENT = re.compile(rb"^(?![^\S\n]*(?:#|$)).*", re.MULTILINE)  # lines that are neither blank nor comments

__all__ = ["DEMO_SETS", "Table", "Wanted", "demo_set", "load_data", "read", "save_data", "spirals", "two_spirals"]


def load_data(
    source: Any,
    *,
    label: int | str | None = -1,
    header: bool | None = None,
    drop: Sequence[int | str] | int | str = (),
    zero_based: bool | Literal["auto"] = "auto",
    n_features: int | None = None,
) -> tuple[Any, Array | None]:
    """Read a data set: (X, y).

    Parameters
    ----------
    source : the name of a file, "-" (text on standard input), or a built-in set: "demo:spirals", "demo:two-spirals",
        "demo:monk1", "demo:monk2", "demo:monk3". The format is recognised by looking at the content:

        - svmlight / libsvm text (``label index:value ...``): X is a scipy CSR matrix. Comments and ``qid`` are skipped;
          indices start at 1, or at 0 where one of them is 0.
        - CSV separated by comma, semicolon, tab or spaces, with or without a header: X is an array. Lines that begin
          with ``#`` are comments; ``True`` and ``False`` are 1 and 0.
        - text compressed by gzip, bzip2 or xz; parquet, feather and Arrow files (``svmcore[arrow]``).
        - .npz with ``X`` and ``y``, or with ``data``, ``indices``, ``indptr``, ``shape`` and ``y`` (CSR).
    label : the column of labels in CSV: its name in the header, or its number, counted from 1 as error messages do;
        -1, the default, is the last. None: there are no labels, and y is None.
    header : CSV: whether the first line names the columns. None, the default, finds out, and asks where it could be both.
    drop : CSV: columns to leave out, by name or number from 1; one, or a list.
    zero_based : svmlight text: whether the first feature has the number 0, as scikit-learn writes it. "auto", the default:
        if the file has a feature 0. A matrix does not know how its file counted. So give the same to the files of training
        and of test data, where a test file may lack the first feature.
    n_features : svmlight text: the number of features. The text does not say it: a file may lack the last features of
        another one. For test data give the width of the training data, ``X.shape[1]``.

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
    if not isinstance(zero_based, bool) and zero_based != "auto":
        raise InputError(f'zero_based={zero_based!r} is not known; give True, False or "auto"')
    base = None if zero_based == "auto" else int(not zero_based)
    table = read(source, Wanted(label, header, (drop,) if isinstance(drop, (int, str)) else tuple(drop), base=base))
    X, asked = table.X, cast("Any", n_features)
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int) or asked < 1):
        raise InputError(f"n_features={n_features!r} is not a positive whole number")
    if asked is not None and X.shape[1] != asked:
        if X.shape[1] > asked or not hasattr(X, "indptr"):
            raise InputError(f"{source} has {X.shape[1]:,} features, and n_features={n_features}")
        X.resize(X.shape[0], asked)
    return X, table.y


def read(source: Any, wanted: Wanted) -> Table:
    """Read a data set with all that the file says about it; see `load_data`."""
    _check(wanted)
    if isinstance(source, str) and source.startswith("demo:"):
        _refuse_drop(wanted, source)
        X, y = demo_set(source.removeprefix("demo:"))
        return Table(X, None if wanted.label is None else y)
    try:
        path = os.fsdecode(source)
    except TypeError:
        what = f'data source {source!r} is neither a file name nor "demo:..."'
        if hasattr(source, "columns") or hasattr(source, "shape"):  # data in memory are not printed
            what = (
                f"load_data reads files, and this is a {type(source).__name__}; data in memory go straight to "
                "train_svc, train_svr or svm_path"
            )
        raise InputError(what) from None
    if path == "-":
        stream = sys.stdin.buffer
        magic = stream.peek(6)[:6] if hasattr(stream, "peek") else b""
        return _text("standard input", unpacked("standard input", stream, magic), wanted)
    try:
        file = open(path, "rb")  # noqa: SIM115
    except ValueError as error:
        raise InputError(f"{path!r} is not a possible file name ({error})") from None
    with file:
        magic = file.peek(6)[:6]
        if file.seekable() and magic.startswith(b"PK\x03\x04"):
            _refuse_drop(wanted, path)
            return read_npz(path, file, wanted)
        if file.seekable() and magic.startswith((PARQUET, ARROW)):
            return read_arrow(path, file, magic, wanted)
        return _text(path, unpacked(path, file, magic), wanted)


def _check(wanted: Wanted) -> None:
    label, header = wanted.label, wanted.header
    if label is not None and (isinstance(label, bool) or not isinstance(label, (int, str))):
        raise InputError(f"label={label!r} is no column; give its name, or its number counted from 1")
    if header is not None and not isinstance(header, bool):
        raise InputError(f"header={header!r} is neither True nor False; leave it out, and the file is looked at")
    for column in wanted.drop:
        if isinstance(column, bool) or not isinstance(column, (int, str)):
            raise InputError(f"drop names {column!r}, which is no column; give names, or numbers counted from 1")


def _refuse_drop(wanted: Wanted, name: str) -> None:
    if wanted.drop:
        raise InputError(f"{name} has no named or numbered columns to drop; that is for CSV")
    if wanted.categorical:
        raise InputError(f"{name} has no columns of words, so none is categorical; that is for CSV")


def _text(name: str, file: BinaryIO, wanted: Wanted) -> Table:
    """Read svmlight text or CSV, whichever the first lines look like."""
    pieces = pieces_of(name, file)
    skipped: list[TextPiece] = []
    for piece in pieces:
        lines = [found.group() for found in islice(_CONTENT.finditer(piece.text), SAMPLE + 1)]  # one may be a header
        skipped.append(piece)
        if lines:
            break
    else:
        raise InputError(f"{name} holds no data")

    def everything() -> Iterator[TextPiece]:
        yield from skipped
        yield from pieces

    if looks_like_svmlight(lines):
        _refuse_drop(wanted, name)
        return read_svmlight(name, everything(), wanted)
    return read_delimited(name, everything(), lines, wanted)
