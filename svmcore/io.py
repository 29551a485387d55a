"""Reading data sets: what the command line accepts. Every refusal names the file, the line and the column."""

from __future__ import annotations

import csv
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from svmcore._errors import InputError
from svmcore._types import FloatArray

LABEL_NAMES = ("y", "label", "target", "class")


def load_data(source: Any) -> tuple[Any, Any]:
    """Read a data set: (X, y), with X dense or CSR.

    Parameters
    ----------
    source : "demo:spirals" (300 noisy points), "demo:spirals-test" (300 more), "demo:monk1"; or a file: .npz with arrays
        X and y (or the data, indices, indptr and shape of a CSR matrix, and y); svmlight text ("label index:value ...",
        indices from 1); CSV with or without a header, the label in a column named y, label, target or class, or else last.

    Examples
    --------
    >>> import svmcore
    >>> X, y = svmcore.load_data("demo:monk1")
    >>> X.shape, int(y.sum())
    ((432, 6), 0)
    """
    name = str(source)
    if name.startswith("demo:"):
        return _built_in(name[5:])
    file = FilePath(name)
    if not file.is_file():
        raise InputError(f"{name}: no such file (built-in sets: {', '.join('demo:' + key for key in _BUILT_IN)})")
    if file.suffix == ".npz":
        return _read_npz(file)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: not a text file ({error.reason} at byte {error.start})") from None
    lines = [
        (k, line) for k, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise InputError(f"{name}: the file holds no data")
    if _is_svmlight(lines[0][1]):
        return _read_svmlight(name, lines)
    return _read_csv(name, lines)


# ---- built in --------------------------------------------------------------------------------------------------------


def _spirals(half: int) -> tuple[FloatArray, Any]:
    """Two noisy spirals, 600 points; every second one is the test half."""
    rng = np.random.default_rng(20040741)
    r = np.linspace(1.0, 1.0 + 2.0 * np.pi, 300)
    one = np.column_stack([r * np.sin(2 * r), r * np.cos(2 * r)])
    other = np.column_stack([r * np.sin(2 * r + np.pi), r * np.cos(2 * r + np.pi)])
    X = np.vstack([one, other]) + rng.normal(scale=0.45, size=(600, 2))
    y = np.repeat([1, -1], 300)
    return X[half::2], y[half::2]


def _monk1() -> tuple[FloatArray, Any]:
    """The first of the monk's problems: all 432 combinations of six attributes; +1 where a1 = a2 or a5 = 1."""
    grid = np.meshgrid(*[np.arange(1, k + 1) for k in (3, 3, 2, 3, 4, 2)], indexing="ij")
    X = np.stack([g.ravel() for g in grid], axis=1).astype(np.float64)
    return X, np.where((X[:, 0] == X[:, 1]) | (X[:, 4] == 1), 1, -1)


_BUILT_IN = {"spirals": lambda: _spirals(0), "spirals-test": lambda: _spirals(1), "monk1": _monk1}


def _built_in(name: str) -> tuple[Any, Any]:
    if name not in _BUILT_IN:
        raise InputError(
            f"demo:{name} is not a built-in set; choose one of {', '.join('demo:' + key for key in _BUILT_IN)}"
        )
    return _BUILT_IN[name]()


# ---- files -----------------------------------------------------------------------------------------------------------


def _read_npz(file: FilePath) -> tuple[Any, Any]:
    try:
        with np.load(file, allow_pickle=False) as stored:
            parts = {key: stored[key] for key in stored.files}
    except Exception as error:
        raise InputError(f"{file}: not an .npz file of plain arrays ({error})") from None
    if "y" not in parts:
        raise InputError(f"{file}: holds no array y, only {', '.join(sorted(parts)) or 'nothing'}")
    if "X" in parts:
        return parts["X"], parts["y"]
    if not {"data", "indices", "indptr", "shape"} <= parts.keys():
        raise InputError(f"{file}: holds neither X nor the data, indices, indptr and shape of a CSR matrix")
    from scipy import sparse

    try:
        rows, columns = (int(v) for v in parts["shape"])
        X = sparse.csr_matrix((parts["data"], parts["indices"], parts["indptr"]), shape=(rows, columns))
        X.check_format()
    except (ValueError, TypeError) as error:
        raise InputError(f"{file}: its CSR arrays do not fit together ({error})") from None
    return X, parts["y"]


def _is_svmlight(line: str) -> bool:
    fields = line.split("#")[0].split()
    return len(fields) > 1 and all(":" in field for field in fields[1:])


def _read_svmlight(name: str, lines: list[tuple[int, str]]) -> tuple[Any, Any]:
    from scipy import sparse

    labels: list[float] = []
    indices: list[int] = []
    values: list[float] = []
    indptr = [0]
    for number, line in lines:
        fields = line.split("#")[0].split()
        labels.append(_float(name, number, 1, fields[0], "a label"))
        last = 0
        for column, field in enumerate(fields[1:], 2):
            key, colon, value = field.partition(":")
            if key == "qid":
                continue
            if not colon or not key.isdigit() or int(key) < 1:
                raise InputError(
                    f"{name}, line {number}, column {column}: {field!r} is not index:value with an index from 1"
                )
            if int(key) <= last:
                raise InputError(f"{name}, line {number}, column {column}: index {key} does not come after {last}")
            last = int(key)
            indices.append(last - 1)
            values.append(_float(name, number, column, value, "a value"))
        indptr.append(len(indices))
    width = max(indices, default=0) + 1
    X = sparse.csr_matrix((values, indices, indptr), shape=(len(labels), width), dtype=np.float64)
    return (X.toarray() if X.nnz > 0.3 * X.shape[0] * X.shape[1] else X), _labels(labels)


def _read_csv(name: str, lines: list[tuple[int, str]]) -> tuple[Any, Any]:
    first = lines[0][1]
    mark = max(",;\t", key=first.count)
    if first.count(mark) == 0:
        mark = " "
    rows = [
        [cell.strip() for cell in next(csv.reader([line], delimiter=mark, skipinitialspace=True))] for _, line in lines
    ]
    header = None
    if not any(_is_number(cell) for cell in rows[0]) and len(rows) > 1:
        header = [cell.lower() for cell in rows[0]]
        rows, lines = rows[1:], lines[1:]
    width = len(header) if header else len(rows[0])
    if width < 2:
        raise InputError(f"{name}, line {lines[0][0]}: one column only; give features and a label")
    label = next((header.index(key) for key in LABEL_NAMES if key in header), width - 1) if header else width - 1
    X = np.empty((len(rows), width - 1))
    labels: list[Any] = []
    for k, row in enumerate(rows):
        number = lines[k][0]
        if len(row) != width:
            raise InputError(f"{name}, line {number}: {len(row)} columns, where {width} are expected")
        labels.append(row[label])
        for at, column in enumerate(c for c in range(width) if c != label):
            X[k, at] = _float(name, number, column + 1, row[column], "a number")
    if all(_is_number(cell) for cell in labels):
        return X, _labels([float(cell) for cell in labels])
    return X, np.array(labels)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _float(name: str, line: int, column: int, cell: str, what: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise InputError(f"{name}, line {line}, column {column}: {cell!r} is not {what}") from None
    if not np.isfinite(value):
        raise InputError(f"{name}, line {line}, column {column}: {cell!r} is not finite")
    return value


def _labels(values: list[float]) -> Any:
    array = np.array(values)
    whole = array.astype(np.int64)
    return whole if (whole == array).all() else array
