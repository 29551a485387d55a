"""What users call their data becomes a list of sources, one a part: arrays, lists of arrays, files, lists of files.

Arrays in .npy files, and in .npz files that are not compressed, are mapped: their rows are read from disk as they are
needed. Parquet files have one part for each row group, and need pyarrow. Everything else is read by `svmcore.load_data`.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import open_memmap

from svmcore._errors import InputError, SVMError
from svmcore.base.door import entered
from svmcore.data import load_data
from svmcore.data.arrow import pyarrow
from svmcore.distributed.parts import Held, Piece
from svmcore.models.archive import Archive
from svmcore.problem import border

_ROWS = 50_000  # rows of a part where nobody says
_MOST = 64  # parts, then
_TABLES = (".parquet", ".pq")


class File(NamedTuple):
    """The source of a part that is a file, or a row group of a parquet file."""

    path: str
    y: Any = None  # another file, or an array, with the labels
    label: Any = None
    weight: Any = None
    group: int | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.path if self.group is None else f"{self.path}, row group {self.group}"

    @property
    def mapped(self) -> bool:
        """As `Held.mapped`."""
        return self.path.endswith((".npy", ".npz"))

    def read(self) -> Piece:
        """The rows."""
        with _reading(self.name):
            if self.group is not None:
                return _row_group(self.path, self.group, self.label, self.weight)
            if self.path.endswith(".npy"):
                found = Piece(_of_name(self.path), None)
            elif self.path.endswith(".npz"):
                found = _archive(self.path)
            else:
                found = Piece(*load_data(self.path, label=-1 if self.label is None else self.label))
        for name, inside, given in (("y", found.y, self.y), ("sample_weight", found.weight, self.weight)):
            if inside is not None and given is not None:
                raise InputError(f"part {self.name} holds {name}, and {name} is given as well; leave one of them out")
        y = found.y if self.y is None else _of_name(self.y)
        return found._replace(y=y, weight=found.weight if self.weight is None else _of_name(self.weight))


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """What goes wrong while a part is read, in words that name it."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"part {name} is gone: there is no such file any more; put it back, or leave it out") from None
    except OSError as error:
        raise InputError(f"part {name} cannot be read: {error}") from None
    except Exception as error:  # whatever a damaged file sets off; pyarrow has a MemoryError of its own
        if isinstance(error, SVMError) or type(error) is MemoryError:
            raise
        raise InputError(f"part {name} is a damaged file ({type(error).__name__}: {error})") from None


def _of_name(given: Any) -> Any:
    """The array in a file, mapped."""
    if not isinstance(given, str):
        return given
    with _reading(given):
        return open_memmap(given, "r")


def _archive(path: str) -> Piece:
    """X, y and sample_weight of an .npz file, mapped where they are stored as they are."""
    with open(path, "rb") as stream:
        archive = Archive(f"part {path}", stream)
        if "format" in archive and "problem" in archive:
            raise InputError(f"part {path} is the checkpoint of a fit, and holds no rows; leave it out")
        if "X" not in archive:
            return Piece(*load_data(path))
        y, weight = (archive.array(name) if name in archive else None for name in ("y", "sample_weight"))
        mapped = archive.mapped("X", path)
        return Piece(archive.array("X") if mapped is None else mapped, y, weight)


def _row_group(path: str, group: int, label: Any, weight: Any) -> Piece:
    table = pyarrow("parquet").ParquetFile(path).read_row_group(group)
    columns = {
        name: entered(table.column(name).to_numpy(), f"column {name!r} of {path}") for name in table.column_names
    }
    for name in (label, weight):
        if name is not None and name not in columns:
            raise InputError(f"{path} has no column {name!r}; its columns are {', '.join(columns)}")
    y, w = columns.pop(label), None if weight is None else columns.pop(weight)
    return Piece(np.column_stack(list(columns.values())), y, w, tuple(columns))


def names_of(X: Any) -> list[str] | None:
    """File names, if that is what was given: one, a pattern, or a list."""
    if isinstance(X, (str, os.PathLike)):
        name = os.fspath(X)
        found = sorted(glob.glob(name)) if any(sign in name for sign in "*?[") else [name]
        if not found:
            raise InputError(f"no file is called {name!r}; give a pattern that fits, or a list of files")
        return [str(each) for each in found]
    if isinstance(X, Sequence) and len(X) and all(isinstance(each, (str, os.PathLike)) for each in X):
        return [os.fspath(each) for each in X]
    return None


def _beside(names: list[str], what: str, given: Any) -> list[Any]:
    """What belongs to each of some files: an array, or the name of a file that holds it."""
    if given is None:
        return [None] * len(names)
    found: Any = names_of(given) or given
    if len(names) == 1 and not (isinstance(found, (list, tuple)) and len(found) == 1):
        found = [found]
    if not hasattr(found, "__len__") or len(found) != len(names):
        raise InputError(f"X is {len(names)} files; give {what} as a list of as many arrays or files")
    found = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in found]
    for name, each in zip(names, found, strict=True):
        if isinstance(each, str) and not os.path.isfile(each):
            raise InputError(f"part {name} has its {what} in {each}, and there is no such file")
    return found  # type: ignore[no-any-return]


def _of_files(names: list[str], y: Any, label: Any, weight: Any) -> list[Any]:
    found: list[Any] = []
    tables = any(name.endswith(_TABLES) for name in names)
    given = ("y", y), ("sample_weight", weight)
    beside = [[each] * len(names) if tables else _beside(names, what, each) for what, each in given]
    for name, own, shares in zip(names, *beside, strict=True):
        if not os.path.isfile(name):
            raise InputError(f"part {name} is not there: no such file")
        if name.endswith(_TABLES):
            if not isinstance(label, str):
                raise InputError(f"{name} is a parquet file; name the column of its labels with label=")
            if y is not None or not isinstance(weight, str | None):
                raise InputError(
                    f"labels and weights of {name} are columns; name them with label= and sample_weight=, and leave y out"
                )
            with _reading(name):
                groups = pyarrow("parquet").ParquetFile(name).num_row_groups
            found += [File(name, None, label, weight, group) for group in range(groups)]
            continue
        if name.endswith(".npy") and own is None:
            raise InputError(f"{name} holds features only; give as many files, or arrays, of labels as y")
        found.append(File(name, own, label, shares))
    return found


def _cut(X: Any, y: Any, weight: Any, names: tuple[str, ...] | None, parts: int | None) -> list[Any]:
    """One array of rows as parts of neighbouring rows."""
    n = int(X.shape[0])
    count = parts or min(_MOST, -(-n // _ROWS))
    edges = np.linspace(0, n, max(1, min(count, n)) + 1).astype(int).tolist()
    if y is None or y.shape[:1] != (n,):
        raise InputError(f"X has {n} rows and y {'is missing' if y is None else f'has {y.size}'}; give one label a row")
    if weight is not None and weight.shape[:1] != (n,):
        raise InputError(f"sample_weight has {weight.size} numbers for {n} samples; give one number per sample")
    return [
        Held(str(k), Piece(X[a:b], y[a:b], None if weight is None else weight[a:b], names))
        for k, (a, b) in enumerate(pairwise(edges))
    ]


def _array(values: Any, name: str) -> Any:
    """What was given for all parts at once."""
    try:
        return entered(values, name)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{name} is no array, and no list of parts either ({error}); a list of parts holds arrays, of X and of y, or "
            "pairs (X, y) of arrays"
        ) from None


def _is_rows(value: Any) -> bool:
    """Whether it looks like the rows of a part: an array, or a list of lists."""
    if isinstance(value, (list, tuple)):
        return bool(len(value)) and np.ndim(value[0]) == 1
    return len(getattr(value, "shape", ())) == 2


def _is_piece(value: Any) -> bool:
    """Whether it looks like (X, y) or (X, y, weights) of a part."""
    return isinstance(value, (list, tuple)) and len(value) in (2, 3) and _is_rows(value[0])


def piece(name: str, pair: Any) -> Held:
    """A part that was given as (X, y) or (X, y, weights)."""
    if not _is_piece(pair):
        raise InputError(
            f"part {name} is a {type(pair).__name__}; give (X, y) or (X, y, weights), X with two dimensions"
        )
    X, *rest = pair
    names = border.column_names(X)
    X = X.to_numpy() if hasattr(X, "to_numpy") else X if hasattr(X, "shape") else _array(X, f"part {name}")
    return Held(name, Piece(X, rest[0], rest[1] if len(rest) > 1 else None, names))


def refuse_beside(y: Any, weight: Any) -> None:
    """Parts that are pairs hold all that belongs to them."""
    if y is not None or weight is not None:
        raise InputError("X is a list of (X, y) or (X, y, weights); leave y and sample_weight out")


def refuse_among(X: Any, path: str | None) -> None:
    """A checkpoint that lies among the parts would be read as one by the next run."""
    if path is None or not isinstance(X, (str, os.PathLike)):
        return
    if fnmatch.fnmatch(os.path.abspath(path), os.path.abspath(os.fspath(X))):
        raise InputError(
            f"checkpoint={path!r} fits the pattern of the parts, {os.fspath(X)!r}; put it into another folder"
        )


def sources(X: Any, y: Any = None, weight: Any = None, *, label: Any = None, parts: int | None = None) -> list[Any]:
    """The parts of what the user gave."""
    names = names_of(X)
    if names is not None:
        return _of_files(names, y, label, weight)
    if isinstance(X, (list, tuple)) and len(X) and all(map(_is_rows, X)):
        for name, values in (("y", y), ("sample_weight", weight)):
            if (name == "y" or values is not None) and (not hasattr(values, "__len__") or len(values) != len(X)):
                raise InputError(f"X is a list of {len(X)} parts; give {name} as a list of as many parts")
        beside = [(y[k],) if weight is None else (y[k], weight[k]) for k in range(len(X))]
        return [piece(str(k), (each, *own)) for k, (each, own) in enumerate(zip(X, beside, strict=True))]
    if isinstance(X, (list, tuple)) and len(X) and all(map(_is_piece, X)):
        refuse_beside(y, weight)
        return [piece(str(k), each) for k, each in enumerate(X)]
    columns = border.column_names(X)
    X = X.tocsr() if hasattr(X, "tocsr") else _array(X, "X")
    if len(X.shape) != 2:
        hint = "; in a list of parts every part is an array" if len(X.shape) > 2 else ""
        raise InputError(f"X has {len(X.shape)} dimension(s); it must have two, samples by features{hint}")
    y = None if y is None else _array(y, "y")
    weight = None if weight is None else _array(weight, "sample_weight")
    return _cut(X, y, weight, columns, parts)
