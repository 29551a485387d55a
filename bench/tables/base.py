"""A table of a paper."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

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


def told(table: str, names: Iterable[Any], columns: list[str], make: Callable[[Any], list[Any]]) -> list[list[Any]]:
    """A row for each name, and a line on stderr when it is done. A row that fails says so in its last cell."""
    rows = []
    for name in names:
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            rows.append(make(name))
        except Exception as error:  # hours of other rows must not be lost
            rows.append([name, *[None] * (len(columns) - 2), f"failed: {type(error).__name__}: {error}"])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"    {table}: {name}, {wall:.1f} s, {cpu:.1f} s of CPU", file=sys.stderr, flush=True)
    return rows


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
    """Median seconds of LIBSVM (in scikit-learn) on these problems; None without scikit-learn."""
    try:
        from sklearn.svm import SVC
    except ImportError:
        return None
    seconds = []
    for X, y in problems:
        started = time.perf_counter()
        SVC(C=C, gamma=gamma, tol=tol).fit(X, y)
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds))
