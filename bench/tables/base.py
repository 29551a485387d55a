"""A table of a paper."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def shown(cell: Any) -> str:
    """A cell as text."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return str(cell)


@dataclass
class Table:
    """Columns, rows, and what to know when reading them. `curves` holds named series to be drawn."""

    title: str
    columns: list[str]
    rows: list[list[Any]]
    note: str = ""
    curves: dict[str, list[float]] = field(default_factory=dict)
    curve_label: str = ""

    def text(self) -> str:
        """Aligned columns for a terminal."""
        cells = [self.columns, *[[shown(cell) for cell in row] for row in self.rows]]
        widths = [max(len(row[k]) for row in cells) for k in range(len(self.columns))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join(f"    {line}" for line in [self.title, *lines, *([self.note] if self.note else [])])
