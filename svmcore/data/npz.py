"""Archives of arrays: ``X`` and ``y``, or a CSR matrix and ``y``. Nothing is unpickled."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from svmcore._errors import InputError
from svmcore.data.text import Array, Table, Wanted, check_memory, shown, whole

_LARGEST_INDEX = 2**31 - 1


def read_npz(name: str, file: BinaryIO, wanted: Wanted) -> Table:
    """Read an archive."""
    y: Array | None = None
    try:
        with zipfile.ZipFile(file) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}

            def read(key: str, kinds: str) -> Array:
                return _member(name, archive, members[key], key, kinds)

            if "y" in members and wanted.label is not None:
                y = read("y", "buifSU")
            labelled = "y" in members or wanted.unlabelled
            if labelled and "X" in members:
                X = read("X", "buif")
                if X.ndim != 2:
                    raise InputError(f"{name}: X has {X.ndim} dimension(s); it must have two, samples by features")
                if not (X.shape[0] and X.shape[1]):
                    raise InputError(f"{name}: X is empty, with shape {X.shape}")
                X = X.astype(np.float64)
                if not np.isfinite(X).all():
                    row, column = np.argwhere(~np.isfinite(X))[0]
                    raise InputError(f"{name}: X holds {X[row, column]} in row {row + 1}, column {column + 1}")
            elif labelled and {"data", "indices", "indptr", "shape"} <= set(members):
                X = _csr(name, read)
            else:
                found = ", ".join(list(members)[:8]) or "nothing"
                raise InputError(
                    f"{name} holds {shown(found.encode('utf-8', 'replace'))}; it needs X and y, or data, indices, indptr, "
                    "shape and y"
                )
    except (InputError, MemoryError):
        raise
    except Exception as error:  # whatever a damaged archive sets off
        reason = str(error).split("\n")[0][:100]
        raise InputError(f"{name} is a damaged .npz file ({type(error).__name__}: {reason})") from None
    return Table(X, None if y is None else _labels(name, X, y))


def _labels(name: str, X: Any, y: Array) -> Array:
    if y.ndim != 1 or y.size != X.shape[0]:
        raise InputError(f"{name}: y has shape {y.shape} for {X.shape[0]} rows; it needs one label per row")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise InputError(f"{name}: y holds {y[~np.isfinite(y)][0]} in row {np.flatnonzero(~np.isfinite(y))[0] + 1}")
    if y.dtype.kind in "SU":
        return np.char.decode(y, "utf-8", "replace") if y.dtype.kind == "S" else y
    return whole(y.astype(np.float64)) if y.dtype.kind == "f" else y.astype(np.int64)


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
        check_memory(3.0 * size, name)
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
