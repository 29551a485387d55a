"""Tables of Arrow: parquet, feather and Arrow files, by pyarrow (which is optional, and imported here only)."""

from __future__ import annotations

import importlib
import re
from typing import Any, BinaryIO

import numpy as np

from svmcore._errors import InputError, MissingExtraError, SVMError
from svmcore.data.categories import encoded
from svmcore.data.layout import Layout, arranged
from svmcore.data.text import MISSING, Array, Table, Wanted, check_memory, whole
from svmcore.models.archive import Allowance

_INDEX = re.compile(r"__index_level_\d+__")  # the index of a data frame: names of rows, no feature
PARQUET, ARROW = b"PAR1", b"ARROW1"


def pyarrow(module: str) -> Any:
    """A module of pyarrow, or the word about what is missing."""
    try:
        import pyarrow as pa

        return importlib.import_module(f"{pa.__name__}.{module}")
    except ImportError:
        raise MissingExtraError(
            'parquet, feather and Arrow files need pyarrow; install it with: pip install "svmcore[arrow]"'
        ) from None


def read_arrow(name: str, file: BinaryIO, magic: bytes, wanted: Wanted) -> Table:
    """Read a table."""
    try:
        table = _table(name, file, magic)
        table = table.select([title for title in table.column_names if not _INDEX.fullmatch(title)])
        names = [str(column) for column in table.column_names]
        layout = arranged(name, Layout(b"", len(names), None, names, wanted=wanted))
        check_memory(8.0 * table.num_rows * max(1, len(layout.features)), name)
        if not table.num_rows:
            raise InputError(f"{name} holds no rows")
        words = {}
        for k in layout.categories:
            texts = [
                "" if text is None or text.encode().lower() in MISSING else text for text in _texts(table.column(k))
            ]
            if "" in texts and wanted.missing != "nan":
                at = texts.index("") + 1
                raise InputError(f"{name}, row {at}: a missing value in column {names[k]!r}; {wanted.filling}")
            words[k] = np.array(texts, dtype=str)
        numbers = [_numbers(name, table.column(k), layout, k) for k in layout.features if k not in words]
        y, known = (None, None) if layout.label is None else _label(name, table.column(layout.label), layout)
    except (InputError, MissingExtraError):
        raise
    except MemoryError as error:
        if isinstance(error, SVMError):
            raise
        raise InputError(
            f"{name} asks for more memory than there is: it is damaged, or too large for this machine"
        ) from None
    except Exception as error:  # whatever a damaged file sets off
        raise InputError(
            f"{name} is a damaged file ({type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''})"
        ) from None
    X = np.stack(numbers, axis=1) if numbers else np.empty((table.num_rows, 0))
    return encoded(name, X, words, layout, y, known)


def _table(name: str, file: BinaryIO, magic: bytes) -> Any:
    """The table, once it is known how much of it there is."""
    length = file.seek(0, 2)
    file.seek(0)
    allowance = Allowance(name, length, "convert it to .npz first")
    if magic.startswith(PARQUET):
        opened = pyarrow("parquet").ParquetFile(file)
        allowance.take(8 * opened.metadata.num_rows * opened.metadata.num_columns)
        return opened.read(use_threads=False)
    reader = pyarrow("ipc").open_file(file)
    batches = []
    for k in range(reader.num_record_batches):
        batch = reader.get_batch(k)
        allowance.take(8 * batch.num_rows * batch.num_columns)
        batches.append(batch)
    table = pyarrow("lib").Table.from_batches(batches, reader.schema)
    table.validate(full=True)
    return table


def _numbers(name: str, column: Any, layout: Layout, k: int) -> Array:
    """A column of numbers, or the complaint about it."""
    assert layout.names is not None
    title = layout.names[k]
    kind = str(column.type)
    if not _is_numeric(column):
        raise InputError(f"{name}: column {title!r} holds {kind}, which are no numbers{layout.remedy(k, always=True)}")
    if column.null_count and layout.wanted.missing != "nan":
        row = int(np.flatnonzero(column.is_null().to_numpy())[0]) + 1
        raise InputError(f"{name}, row {row}: a missing value in column {title!r}; {layout.wanted.filling}")
    values = np.asarray(column.cast("float64").to_numpy())
    strange = np.isinf(values) if layout.wanted.missing == "nan" else ~np.isfinite(values)
    if strange.any():
        row = int(np.flatnonzero(strange)[0])
        what = layout.wanted.filling if np.isnan(values[row]) else "remove or impute such values first"
        raise InputError(f"{name}, row {row + 1}: {values[row]} in column {title!r}; {what}")
    return values


def _is_numeric(column: Any) -> bool:
    types = pyarrow("types")
    return bool(types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type))


def _texts(column: Any) -> list[str | None]:
    return [None if value is None else str(value) for value in column.to_pylist()]


def _label(name: str, column: Any, layout: Layout) -> tuple[Array | None, Array | None]:
    """The labels that there are, if any, and which rows have one (None: all)."""
    known = ~np.asarray(column.is_null().to_numpy(zero_copy_only=False))
    if not known.all() and not layout.wanted.unlabelled:
        raise InputError(f"{name}, row {int(np.flatnonzero(~known)[0]) + 1}: the label is missing")
    column = column.filter(pyarrow("lib").array(known))
    if _is_numeric(column):
        y = np.asarray(column.to_numpy())
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise InputError(f"{name}: a label is not finite")
        y = whole(y)
    else:
        y = np.array(_texts(column), dtype=str)
    return y if y.size else None, None if known.all() or not known.any() else known
