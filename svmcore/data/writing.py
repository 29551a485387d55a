"""Data sets are written as they are read: svmlight text, CSV, .npz, parquet or feather, the format by the end of the name."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from svmcore._errors import InputError
from svmcore.base.drafts import write_whole
from svmcore.data.arrow import pyarrow
from svmcore.data.text import Array
from svmcore.models import archive

SVMLIGHT = (".svmlight", ".svm", ".libsvm", ".txt", ".dat")
ARROW = (".parquet", ".feather", ".arrow")
_PACKED: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda stream: gzip.GzipFile("", "wb", fileobj=stream, mtime=0),  # the same data make the same file
    ".bz2": lambda stream: bz2.BZ2File(stream, "wb"),
    ".xz": lambda stream: lzma.LZMAFile(stream, "wb"),  # noqa: SIM115
}
_ROWS = 256  # rows made text at a time


def save_data(file: Any, X: Any, y: Any = None, *, feature_names: Any = None, label_name: str = "label") -> None:
    """Write a data set that `load_data` reads back; the end of the name says how.

    Parameters
    ----------
    file : a name that ends in .svmlight, .svm, .libsvm, .txt or .dat (svmlight text), .csv, .tsv, .npz, .parquet, .feather
        or .arrow. Text may be compressed: .csv.gz, .svm.bz2, .txt.xz. Rows are written as they come, a few at a time. What
        goes wrong leaves a file that is there already as it was.
    X : array or scipy sparse matrix. y : labels or targets; svmlight text needs numbers. None: there are none.
    feature_names, label_name : names of columns, for the formats that have names.

    Examples
    --------
    >>> import svmcore, tempfile, os
    >>> name = os.path.join(tempfile.mkdtemp(), "set.csv.gz")
    >>> svmcore.save_data(name, [[1.0, 2.5], [3.0, 4.0]], ["yes", "no"])
    >>> X, y = svmcore.load_data(name)
    >>> X.tolist(), y.tolist()
    ([[1.0, 2.5], [3.0, 4.0]], ['yes', 'no'])
    """
    name = os.fspath(file)
    write_whole(name, data_writer(name, X, y, feature_names, label_name))


def data_writer(name: str, X: Any, y: Any, feature_names: Any, label_name: str) -> Callable[[Any], None]:
    """What writes checked data to a stream of bytes, in the format that the end of the name says."""
    stem, packed = os.path.splitext(name)
    end = os.path.splitext(stem if packed in _PACKED else name)[1].lower()
    if end not in (*SVMLIGHT, *ARROW, ".csv", ".tsv", ".npz") or (packed in _PACKED and end in (*ARROW, ".npz")):
        known = ".svm, .csv, .npz, .parquet, .feather, and .gz, .bz2 or .xz behind the first two"
        raise InputError(f"{name}: the end of the name says no format; it can be {known}")
    from svmcore.problem import border, labelling  # loads the compiler

    X = border.features(X)
    labels = None if y is None else labelling.label_array(y)
    if labels is not None and labels.shape != (X.shape[0],):
        raise InputError(f"y has shape {labels.shape}, and X has {X.shape[0]} rows; it needs one label per row")
    names = None if feature_names is None else [str(title) for title in feature_names]
    if names is not None and len(names) != X.shape[1]:
        raise InputError(f"feature_names holds {len(names)} names for {X.shape[1]} columns of X; give one for each")
    if end == ".npz":
        return lambda stream: archive.write(stream, _arrays(X, labels))
    if end in ARROW:
        return lambda stream: _write_arrow(stream, name, end, X, labels, names, label_name)
    if end in SVMLIGHT and labels is not None and labels.dtype.kind not in "biuf":
        raise InputError(
            f"svmlight text needs numbers as labels, and these are {labels[:1].tolist()[0]!r}, ...; number them"
        )

    def write(stream: Any) -> None:
        lines = _svmlight(X, labels) if end in SVMLIGHT else _delimited(X, labels, names, label_name, end)
        with _PACKED[packed](stream) if packed in _PACKED else nullcontext(stream) as opened:
            for line in lines:
                opened.write(line)

    return write


def _arrays(X: Any, y: Array | None) -> dict[str, Any]:
    from svmcore.problem.columns import feature_fields  # loads the compiler

    return feature_fields(X, sparse="") | ({} if y is None else {"y": y})


def _pieces(X: Any) -> Iterator[tuple[int, Any]]:
    for start in range(0, X.shape[0], _ROWS):
        yield start, X[start : start + _ROWS]


def _svmlight(X: Any, y: Array | None) -> Iterator[bytes]:
    """Lines ``label index:value ...``, indices from 1, entries that are zero left out; the first row keeps its last entry."""
    if y is None:
        y = np.zeros(X.shape[0], dtype=np.int64)
    y = y.astype(np.int64) if y.dtype.kind == "b" else y
    for start, part in _pieces(X):
        for k, label in enumerate(y[start : start + part.shape[0]].tolist()):
            row = entries(part, k)
            if start + k == 0:
                row.setdefault(X.shape[1] - 1, 0.0)  # it says how many features there are
            yield (f"{label!r} " + " ".join(f"{j + 1}:{row[j]!r}" for j in sorted(row)) + "\n").encode()


def entries(X: Any, row: int) -> dict[int, float]:
    """What a row stores of a sparse matrix, or where an array is not zero, by columns."""
    if hasattr(X, "indptr"):
        part = slice(X.indptr[row], X.indptr[row + 1])
        columns, values = X.indices[part], X.data[part]
    else:
        columns = np.flatnonzero(X[row])
        values = X[row, columns]
    return dict(zip(columns.tolist(), values.tolist(), strict=True))


def _delimited(X: Any, y: Array | None, names: list[str] | None, label_name: str, end: str) -> Iterator[bytes]:
    """A header and one line a row, labels last."""
    room = io.StringIO()
    writer = csv.writer(room, delimiter="\t" if end == ".tsv" else ",", lineterminator="\n")
    titles = names or [f"x{k + 1}" for k in range(X.shape[1])]
    writer.writerow(titles if y is None else [*titles, label_name])
    for start, part in _pieces(X):
        rows = (part.toarray() if hasattr(part, "indptr") else part).tolist()
        labels = [[]] * len(rows) if y is None else [[value] for value in y[start : start + len(rows)].tolist()]
        writer.writerows([*row, *label] for row, label in zip(rows, labels, strict=True))
        yield room.getvalue().encode()
        room.seek(0)
        room.truncate()


def _write_arrow(
    stream: Any, name: str, end: str, X: Any, y: Array | None, names: list[str] | None, label_name: str
) -> None:
    dense = X.toarray() if hasattr(X, "indptr") else X
    lib = pyarrow("lib")
    titles = names or [f"x{k + 1}" for k in range(dense.shape[1])]
    columns = {title: lib.array(np.ascontiguousarray(column)) for title, column in zip(titles, dense.T, strict=True)}
    if len(columns) != len(titles) or label_name in columns:
        raise InputError(f"{name}: two columns have the same name; give each its own")
    if y is not None:
        columns[label_name] = lib.array(y.tolist())
    table = lib.Table.from_pydict(columns)
    if end == ".parquet":
        pyarrow("parquet").write_table(table, stream)
    else:
        pyarrow("feather").write_feather(table, stream, compression="uncompressed")
