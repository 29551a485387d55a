"""One row of kernel values, from points in panels. It serves solvers that need few rows, and learn late which ones."""

from __future__ import annotations

from typing import Any

from svmcore._types import LANES
from svmcore.compiler.jit import jit
from svmcore.simd.lanes import REGISTERS, Lanes, instruction, integer, position
from svmcore.simd.vector import COLUMNS_32, emit_tile, kernel_tile


def _emit_store_line(builder, kinds, shape, points, g, t, panels, p, lane, out, row):
    lanes = Lanes(builder, kinds.panels.dtype)
    value = emit_tile(lanes, kinds.shape.instance_class, shape, points, g, panels, p, lane, t)
    start = position(builder, out[1], row, builder.add(builder.mul(p, integer(LANES)), lane))
    for v in range(REGISTERS):
        lanes.store(value(0, v), out[0], builder.add(start, integer(v * lanes.count)))


def _store_line(shape: Any, points: Any, g: int, t: int, panels: Any, p: int, lane: int, out: Any, row: int) -> None:
    start = p * LANES + lane
    values = kernel_tile(shape, points[g, :, t : t + 1], panels[p, :, lane : lane + COLUMNS_32])
    out[row, start : start + COLUMNS_32] = values[0]


store_line = instruction(_emit_store_line, _store_line)
"""out[row, column] = K(point t of panel g of the points, column) for one tile of columns. In place: out."""


@jit
def store_row(shape, panels, t, out, row):
    """out[row] = K(point t of the panels, every point of the panels), in float32. In place: out."""
    g = t // LANES
    for p in range(panels.shape[0]):
        for lane in range(0, LANES, COLUMNS_32):
            store_line(shape, panels, g, t - g * LANES, panels, p, lane, out, row)
