"""A table of a paper."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np


def shown(cell: Any) -> str:
    """A cell as text."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return str(cell)


@dataclass
class Figure:
    """A picture of series: name -> (x, y). `marks`: points instead of lines. `log`: the logarithmic axes.

    `field` is (x, y, values): the sign of the values below the series, and their levels -1, 0 and 1.
    """

    title: str
    x: str
    y: str
    series: dict[str, tuple[list[float], list[float]]]
    log: str = ""
    marks: bool = False
    field: tuple[list[float], list[float], list[list[float]]] | None = None


def over_steps(title: str, y: str, series: dict[str, list[float]]) -> Figure:
    """Series over the steps of a run, both axes logarithmic."""
    return Figure(title, "step", y, {name: (list(range(1, len(v) + 1)), v) for name, v in series.items()}, log="xy")


@dataclass
class Table:
    """Columns, rows, what to know when reading them, and what is drawn of them."""

    title: str
    columns: list[str]
    rows: list[list[Any]]
    note: str = ""
    figures: list[Figure] = field(default_factory=list)

    def text(self) -> str:
        """Aligned columns for a terminal."""
        cells = [self.columns, *[[shown(cell) for cell in row] for row in self.rows]]
        widths = [max(len(row[k]) for row in cells) for k in range(len(self.columns))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join(f"    {line}" for line in [self.title, *lines, *([self.note] if self.note else [])])


Row = TypeVar("Row")


def told(table: str, rows: Iterable[Row]) -> Iterator[Row]:
    """The same, with a line on stderr when each is done: its name and its seconds."""
    for row in rows:
        started = time.perf_counter()
        yield row
        name = row[0] if isinstance(row, tuple) else row
        print(f"    {table}: {name}, {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)


def ratio(ours: float | None, printed: float | None) -> float | None:
    """Our figure over the printed one, where there are both."""
    return ours / printed if ours is not None and printed else None


def linear_rate(gaps: Any, steps: float = 1.0) -> float:
    """The factor by which gaps fall over so many steps: a line fitted to their logarithms, second half of the run."""
    kept = np.asarray(gaps, dtype=float)
    kept = kept[: max(int((kept > 1e-11 * kept[0]).sum()), 2)]
    half = len(kept) // 2
    slope = np.polyfit(np.arange(half, len(kept)), np.log(np.maximum(kept[half:], 1e-300)), 1)[0]
    return float(np.exp(steps * slope))


def libsvm_seconds(problems: list[tuple[Any, Any]], C: float, gamma: float, tol: float) -> float | None:
    """Mean seconds of LIBSVM (in scikit-learn) on these problems; None without scikit-learn."""
    try:
        from sklearn.svm import SVC
    except ImportError:
        return None
    started = time.perf_counter()
    for X, y in problems:
        SVC(C=C, gamma=gamma, tol=tol).fit(X, y)
    return (time.perf_counter() - started) / len(problems)
