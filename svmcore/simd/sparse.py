"""Sparse rows against dense columns in vector registers, and the loops over them. The plain meaning of each stands beside it.

A tile is one sparse row against COLUMNS dense columns. `panel[place, lane]` holds float32 or float64 features, or bytes
that are 0 or 1. Sums of bytes are exact, and are 255 at most. If there are more features than a panel has places, `table`
gives the place of each feature. It is 0 for features that no column of the panel has, and the panel's row 0 is all zeros.
All that follows the sum over entries is in the number type of `norms`. A distance is the sum of both norms less what the
points have in common, so it cancels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from svmcore._types import LANES
from svmcore.compiler.jit import jit
from svmcore.simd.lanes import BYTE, REGISTERS, UNITS_16, Lanes, emit_for, instruction, integer, position
from svmcore.simd.vector import SPAN, Laplacian, Rbf, _add_to_doubles, _kernel_value, _of_dot


class Csr(NamedTuple):
    """Sparse points: the entries of point i are indptr[i] to indptr[i + 1]. With panels of bytes all of `data` is 1.

    `norms` are sums of squares, or of absolute values for the Laplacian kernel. With bytes they are exact integers.
    """

    indptr: Any
    indices: Any
    data: Any
    norms: Any


class SpreadColumns(NamedTuple):
    """Sparse points that are spread out to dense columns, a panel at a time. Their norms are padded to whole panels."""

    csr: Csr
    points: Any
    norms: Any


def _sparse_row(
    lanes: Lanes, shape: Any, shape_value: Any, csr: Any, point: Any, panel: Any, table: Any, column: Any
) -> Any:
    """Registers of kernel values of one sparse point against COLUMNS columns. All arguments but `shape` are unpacked."""
    b = lanes.b
    indptr, indices, data, norms = csr
    byte = panel[0].type.pointee == BYTE
    base = b.gep(panel[0], [b.and_(column, integer(LANES - 1))])
    start = b.load(b.gep(indptr[0], [point]))
    count = b.sub(b.load(b.gep(indptr[0], [b.add(point, integer(1))])), start)
    bytes_ = ir.VectorType(BYTE, REGISTERS * lanes.count)

    def common(x: Any, z: Any, total: Any) -> Any:
        """The total after one feature more, which adds x z, or |x| + |z| - |x - z| for the Laplacian kernel."""
        if shape is not Laplacian:
            return lanes.fma(x, z, total)
        both = b.fadd(lanes.call("fabs", x), lanes.call("fabs", z))
        return b.fadd(total, b.fsub(both, lanes.call("fabs", b.fsub(x, z))))

    def one_entry(e: Any, sums: list[Any]) -> list[Any]:
        at = b.add(start, e)
        place = b.load(b.gep(indices[0], [at]))
        if table is not None:
            place = b.load(b.gep(table[0], [b.zext(place, ir.IntType(64))]))
        row = b.mul(b.zext(place, ir.IntType(64)), integer(LANES))
        if byte:
            where = b.bitcast(b.gep(base, [row]), bytes_.as_pointer())
            return [b.add(sums[0], b.load(where, align=1))]
        x = lanes.splat(b.load(b.gep(data[0], [at])))
        z = [lanes.load(base, b.add(row, integer(v * lanes.count))) for v in range(REGISTERS)]
        return [common(x, z[v], sums[v]) for v in range(REGISTERS)]

    def two_entries(half: Any, sums: list[Any]) -> list[Any]:
        e = b.add(half, half)
        return [*one_entry(e, sums[:REGISTERS]), *one_entry(b.add(e, integer(1)), sums[REGISTERS:])]

    if byte:
        sums = emit_for(b, count, 1, [ir.Constant(bytes_, [0] * bytes_.count)], one_entry)
    else:  # two chains of additions, which do not wait for one another
        zeros = [lanes.constant(0.0)] * (2 * REGISTERS)
        even_odd = emit_for(b, b.lshr(count, integer(1)), 1, zeros, two_entries)
        sums = [b.fadd(even_odd[v], even_odd[REGISTERS + v]) for v in range(REGISTERS)]
        odd, last = b.and_(count, integer(1)), b.sub(count, integer(1))
        sums = emit_for(b, odd, 1, sums, lambda _, sums: one_entry(last, sums))
    if byte:
        empty, places = ir.Constant(bytes_, ir.Undefined), ir.VectorType(ir.IntType(32), lanes.count)
        starts = range(0, bytes_.count, lanes.count)
        parts = [ir.Constant(places, list(range(start, start + lanes.count))) for start in starts]
        sums = [b.uitofp(b.zext(b.shuffle_vector(sums[0], empty, part), lanes.wholes), lanes.vector) for part in parts]
    if shape is not Rbf and shape is not Laplacian:
        return [_kernel_value(lanes, shape, shape_value, dot) for dot in sums]
    shared = lanes.constant(-1.0 if shape is Laplacian and not byte else -2.0)
    own = lanes.splat(b.load(b.gep(norms[0], [point])))
    scale = lanes.splat(b.extract_value(shape_value, 0))
    values = []
    for v in range(REGISTERS):
        other = lanes.load(norms[1], b.add(column, integer(v * lanes.count)))
        distance = lanes.fma(shared, sums[v], b.fadd(own, other))
        values.append(lanes.exp2_minus(b.fmul(lanes.larger(distance, lanes.constant(0.0)), scale)))
    return values


def _emit_add_sparse_tile(builder, kinds, shape, csr, points, span, panel, table, norms, column, coef, out):
    lanes = Lanes(builder, kinds.norms.dtype)
    csr[3] = csr[3][0], norms[0]
    places = table if isinstance(kinds.table, types.Array) else None
    first_, last_ = builder.extract_value(span, 0), builder.extract_value(span, 1)

    def one_row(r: Any, sums: list[Any]) -> list[Any]:
        row = builder.add(first_, r)
        point = builder.load(builder.gep(points[0], [row]))
        weight = lanes.splat(builder.load(builder.gep(coef[0], [row])))
        values = _sparse_row(lanes, kinds.shape.instance_class, shape, csr, point, panel, places, column)
        return [lanes.fma(weight, value, total) for value, total in zip(values, sums, strict=True)]

    rows = builder.sub(last_, first_)
    sums = emit_for(builder, rows, 1, [lanes.constant(0.0)] * REGISTERS, one_row)
    for v in range(REGISTERS):
        _add_to_doubles(lanes, sums[v], out[0], builder.add(column, integer(v * lanes.count)))


def _emit_store_sparse_tile(builder, kinds, shape, csr, point, panel, table, norms, column, out, row):
    lanes = Lanes(builder, kinds.norms.dtype)
    csr[3] = csr[3][0], norms[0]
    places = table if isinstance(kinds.table, types.Array) else None
    values = _sparse_row(lanes, kinds.shape.instance_class, shape, csr, point, panel, places, column)
    start = position(builder, out[1], row, column)
    for v in range(REGISTERS):
        lanes.store(values[v], out[0], builder.add(start, integer(v * lanes.count)))


# These functions say what each primitive means. Tests compare the instructions with them. They run when JIT is disabled.


def sparse_kernel_row(shape, csr, point, panel, table, norms, column):
    """K between one sparse point and COLUMNS columns."""
    real = norms.dtype.type
    columns, lane = SPAN // norms.itemsize, column % LANES
    entries = slice(csr.indptr[point], csr.indptr[point + 1])
    features = csr.indices[entries]
    z = panel[features if table is None else table[features], lane : lane + columns].astype(real)
    x = csr.data[entries].astype(real)[:, None]
    if isinstance(shape, Laplacian):
        common = (abs(x) + abs(z) - abs(x - z)).sum(axis=0)
    else:
        dot = (x * z).sum(axis=0)
        common = real(2) * dot
    if not isinstance(shape, Rbf | Laplacian):
        return _of_dot(shape, dot)
    distance = np.maximum(csr.norms[point] + norms[column : column + columns] - common, real(0))
    return np.exp2(-real(shape.scale) * distance)


def _add_sparse_tile(shape, csr, points, span, panel, table, norms, column, coef, out):
    rows = range(*span)
    total = sum(coef[r] * sparse_kernel_row(shape, csr, points[r], panel, table, norms, column) for r in rows)
    columns = SPAN // norms.itemsize
    out[column : column + columns] += total


def _store_sparse_tile(shape, csr, point, panel, table, norms, column, out, row):
    values = sparse_kernel_row(shape, csr, point, panel, table, norms, column)
    if out.dtype == np.uint16:
        values = np.rint(values * UNITS_16)
    out[row, column : column + len(values)] = values


add_sparse_tile = instruction(_emit_add_sparse_tile, _add_sparse_tile)
"""out[column] += sum over the rows r of a span (first, last + 1) of coef[r] K(point points[r], column). In place: out."""
store_sparse_tile = instruction(_emit_store_sparse_tile, _store_sparse_tile)
"""out[row, column] = K(point, column) for one sparse point. In place: out."""


TOGETHER = 8  # so many sparse rows are summed in float32 registers, and their sum is added in float64


@jit
def spread_all(columns, panels):
    """Spread sparse columns out to dense panels of all features. The caller hands over zeros. In place: panels."""
    csr, points = columns.csr, columns.points
    for t in range(points.shape[0]):
        p = t // LANES
        lane = t - p * LANES
        for e in range(csr.indptr[points[t]], csr.indptr[points[t] + 1]):
            panels[p, csr.indices[e], lane] = csr.data[e]


@jit
def _enter(columns, p, table, panels):
    """The index in `panels` at which panel p of the columns is.

    With a table the panel is put into the first place now, a row for each feature that occurs in it. The table then has the
    rows of these features. Row 0 stays for all others. In place: table, panels.
    """
    if table is None:
        return p
    csr, points, panel = columns.csr, columns.points, panels[0]
    used = 0
    for lane in range(min(LANES, points.shape[0] - p * LANES)):
        point = points[p * LANES + lane]
        for e in range(csr.indptr[point], csr.indptr[point + 1]):
            feature = csr.indices[e]
            if table[feature] == 0:
                used += 1
                table[feature] = used
                for j in range(LANES):
                    panel[used, j] = 0
            panel[table[feature], lane] = csr.data[e]
    return 0


@jit
def _leave(columns, p, table):
    """Clear what `_enter` put into the table. In place: table."""
    if table is not None:
        csr, points = columns.csr, columns.points
        for t in range(p * LANES, min((p + 1) * LANES, points.shape[0])):
            for e in range(csr.indptr[points[t]], csr.indptr[points[t] + 1]):
                table[csr.indices[e]] = 0


@jit
def add_sparse(shape, csr, points, coef, columns, table, panels, first, last, out):
    """out += sum_r coef_r K(points_r, columns) for panels first..last-1, summed over entries in their norms' number type.

    With a table, `panels` is room for one panel. The table is all zeros before the call and after it. In place: out.
    """
    count, width = points.shape[0], SPAN // columns.norms.itemsize
    step = TOGETHER if columns.norms.itemsize == 4 else max(count, 1)
    for p in range(first, last):
        panel = panels[_enter(columns, p, table, panels)]
        for column in range(p * LANES, (p + 1) * LANES, width):
            for r in range(0, count, step):
                span = r, min(r + step, count)
                add_sparse_tile(shape, csr, points, span, panel, table, columns.norms, column, coef, out)
        _leave(columns, p, table)


@jit
def store_sparse(shape, csr, points, columns, table, panels, lower, first, last, out):
    """out[r] = K(points_r, columns) for panels first..last-1. With `lower`, only what reaches the lower triangle.

    In place: out.
    """
    for p in range(first, last):
        panel = panels[_enter(columns, p, table, panels)]
        for column in range(p * LANES, (p + 1) * LANES, SPAN // columns.norms.itemsize):
            for r in range(p * LANES if lower else 0, points.shape[0]):
                store_sparse_tile(shape, csr, points[r], panel, table, columns.norms, column, out, r)
        _leave(columns, p, table)
