"""Files of answers: `load` reads whatever `save` of any object wrote, and models of LIBSVM."""

from __future__ import annotations

import importlib
import os
import re
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from svmcore._errors import InputError
from svmcore.data import Table, Wanted, read
from svmcore.data.categories import raw_names, wide
from svmcore.models import archive, libsvm

if TYPE_CHECKING:
    from svmcore.cv import PathCV
    from svmcore.models.solution import Solution
    from svmcore.path.result import Path
    from svmcore.train.gp import GPSolution
    from svmcore.train.machines import Machines

KINDS = {
    "solution": ("svmcore.models.solution", 3),
    "classes": ("svmcore.train.machines", 2),
    "path": ("svmcore.path.solution", 4),
    "cv": ("svmcore.cv.files", 3),
    "gp": ("svmcore.train.gp", 1),
}
"""For every kind of file: the module whose `assembled` makes the object from its arrays, and the newest version."""


def load(file: Any) -> Solution | Machines | Path | PathCV | GPSolution:
    """Read what `save` of a solution, machines, a path, a cross-validation or a process wrote, or a model that LIBSVM wrote.

    Nothing is unpickled. A model of LIBSVM is a `Solution`, or `Machines` for several classes. It predicts here what it
    predicts there. Its classes are sorted where there are two, so that decision values may have the other sign; several
    classes keep the order of the file, which decides ties. How good its answer is the file does not say (`verify` does).
    """
    opened = nullcontext(file) if hasattr(file, "read") else open(file, "rb")  # noqa: SIM115
    with opened as stream:
        start = stream.read(len(libsvm.MAGIC))
        stream.seek(0)
        if start == libsvm.MAGIC:
            return libsvm.read(_name(file), stream)
        try:
            parts = archive.read("it", stream)
        except InputError as error:
            raise InputError(
                f"{_name(file)} is not a file that svmcore wrote ({error}); data sets are read by load_data"
            ) from None
    found = re.fullmatch(r"svmcore-([a-z]+)-(\d{1,4})", str(parts.get("format")))
    kind, version = (found[1], int(found[2])) if found else ("", 0)
    home, newest = KINDS.get(kind, ("", 0))
    if not 1 <= version <= newest:
        newer = "; it was written by a newer one" if version > newest > 0 else ""
        raise InputError(f"{_name(file)} is not a file that this version of svmcore reads{newer}")
    try:
        return importlib.import_module(home).assembled(parts)  # type: ignore[no-any-return]
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise InputError(f"{_name(file)} is damaged: {error}") from None


def is_model(name: str) -> bool:
    """Whether a file is there, and looks like what `load` reads, rather than like data."""
    if not os.path.isfile(name):
        return False
    with open(name, "rb") as stream:
        if stream.peek(len(libsvm.MAGIC)).startswith(libsvm.MAGIC):
            return True
        if not stream.peek(4).startswith(b"PK\x03\x04"):
            return False
        try:
            return "format" in archive.Archive("it", stream)
        except InputError:
            return False


def read_like(source: Any, machine: Any, wanted: Wanted, what: str = "the machine") -> Table:
    """Data for a machine or a path: its columns in its order, its width, its categories, labels where there are some."""
    columns = machine.columns
    width = wide(columns.count, columns.categories)
    names = raw_names(columns.names, columns.categories)
    base = columns.base if columns.unit == "features" else None
    if columns.fill is not None:
        wanted = wanted._replace(missing="nan")
    table = read(source, wanted._replace(width=width, names=names, categories=columns.categories, base=base))
    X = table.X
    if columns.unit != "features" and hasattr(X, "toarray"):  # LIBSVM's text: the first is the row's number
        X = X.toarray()[:, 1:] if X.shape[1] != columns.count else X.toarray()
    if hasattr(X, "tocsr") and X.shape[1] < columns.count:  # sparse text does not say how many features there are
        X = X.copy()
        X.resize(X.shape[0], columns.count)
    if X.shape[1] != columns.count and not columns.open:
        raise InputError(f"{source} has {_count(X.shape[1])}; {what} has {_count(columns.count)}")
    if columns.names is not None and table.names is not None and columns.names != table.names:
        X = X[:, columns.of(table.names)]
    if columns.fill is not None and not hasattr(X, "tocsr"):
        X = np.where(np.isnan(X), columns.fill, X)
    return table._replace(X=X)


def _count(features: int) -> str:
    return f"{features:,} feature{'s' if features != 1 else ''}"


def _name(file: Any) -> str:
    return str(os.fspath(file) if isinstance(file, os.PathLike) else getattr(file, "name", file))
