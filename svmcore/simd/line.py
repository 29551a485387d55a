"""One row of kernel values, from points in panels. It serves solvers that need few rows, and learn late which ones."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from svmcore._types import LANES
from svmcore.compiler.jit import DISABLED, jit
from svmcore.simd.lanes import REGISTERS, Lanes, integer, position, unpack
from svmcore.simd.vector import COLUMNS_32, emit_tile, kernel_tile


@intrinsic
def _store_line_ir(typingctx, shape, points, g, t, panels, p, lane, out, row):  # noqa: ARG001
    def codegen(context, builder, signature, args):
        shape_value, points_, g_, t_, panels_, p_, lane_, out_, row_ = unpack(context, builder, signature.args, args)
        lanes = Lanes(builder, panels.dtype)
        value = emit_tile(lanes, shape.instance_class, shape_value, points_, g_, panels_, p_, lane_, t_)
        start = position(builder, out_[1], row_, builder.add(builder.mul(p_, integer(LANES)), lane_))
        for v in range(REGISTERS):
            lanes.store(value(0, v), out_[0], builder.add(start, integer(v * lanes.count)))
        return context.get_dummy_value()

    i = types.intp
    return types.void(shape, points, i, i, panels, i, i, out, i), codegen


def _store_line(shape: Any, points: Any, g: int, t: int, panels: Any, p: int, lane: int, out: Any, row: int) -> None:
    start = p * LANES + lane
    values = kernel_tile(shape, points[g, :, t : t + 1], panels[p, :, lane : lane + COLUMNS_32])
    out[row, start : start + COLUMNS_32] = values[0]


store_line = _store_line if DISABLED else _store_line_ir
"""out[row, column] = K(point t of panel g of the points, column) for one tile of columns. In place: out."""


@jit
def store_row(shape, panels, t, out, row):
    """out[row] = K(point t of the panels, every point of the panels), in float32. In place: out."""
    g = t // LANES
    for p in range(panels.shape[0]):
        for lane in range(0, LANES, COLUMNS_32):
            store_line(shape, panels, g, t - g * LANES, panels, p, lane, out, row)
