"""Archives of arrays: ``X`` and ``y``, or a CSR matrix and ``y``. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from svmcore._errors import InputError
from svmcore.data.text import Array, Table, Wanted, shown, whole
from svmcore.models.archive import Archive

_LARGEST_INDEX = 2**31 - 1


def read_npz(name: str, file: BinaryIO, wanted: Wanted) -> Table:
    """Read an archive."""
    archive = Archive(name, file)
    read = archive.array
    y = read("y", "buifSU") if "y" in archive and wanted.label is not None else None
    labelled = "y" in archive or wanted.unlabelled
    if labelled and "X" in archive:
        X = read("X", "buif")
        if X.ndim != 2:
            raise InputError(f"{name}: X has {X.ndim} dimension(s); it must have two, samples by features")
        if not (X.shape[0] and X.shape[1]):
            raise InputError(f"{name}: X is empty, with shape {X.shape}")
        X = X.astype(np.float64)
        strange = np.isinf(X) if wanted.missing == "nan" else ~np.isfinite(X)
        if strange.any():
            row, column = np.argwhere(strange)[0]
            what = f"; {wanted.filling}" if np.isnan(X[row, column]) else ""
            raise InputError(f"{name}: X holds {X[row, column]} in row {row + 1}, column {column + 1}{what}")
    elif labelled and all(key in archive for key in ("data", "indices", "indptr", "shape")):
        X = _csr(name, read)
    else:
        found = ", ".join(archive.keys[:8]) or "nothing"
        raise InputError(
            f"{name} holds {shown(found.encode('utf-8', 'replace'))}; it needs X and y, or data, indices, indptr, shape and y"
        )
    if y is None:
        return Table(X, None)
    if y.ndim != 1 or y.size != X.shape[0]:
        raise InputError(f"{name}: y has shape {y.shape} for {X.shape[0]} rows; it needs one label per row")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise InputError(f"{name}: y holds {y[~np.isfinite(y)][0]} in row {np.flatnonzero(~np.isfinite(y))[0] + 1}")
    if y.dtype.kind == "S":
        y = np.char.decode(y, "utf-8", "replace")
    return Table(X, y if y.dtype.kind == "U" else whole(y))


def _csr(name: str, read: Callable[[str, str], Array]) -> Any:
    from scipy import sparse

    data, indices, indptr = read("data", "buif"), read("indices", "ui"), read("indptr", "ui")
    shape = read("shape", "ui").tolist()
    plain = data.ndim == indptr.ndim == 1 and indices.shape == data.shape
    if not plain or not isinstance(shape, list) or len(shape) != 2:
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
