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
from numba.extending import intrinsic

from svmcore._types import LANES
from svmcore.compiler.jit import DISABLED, jit
from svmcore.simd.lanes import BYTE, REGISTERS, UNITS_16, Lanes, emit_for, integer, position, unpack
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
    lanes: Lanes, shape: Any, shape_value: Any, csr: Any, point: Any, panel: Any, table: Any, p: Any, lane: Any
) -> Any:
    """Registers of kernel values of one sparse point against COLUMNS columns. All arguments but `shape` are unpacked."""
    b = lanes.b
    indptr, indices, data, norms = csr
    byte = panel[0].type.pointee == BYTE
    base = b.gep(panel[0], [lane])
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
        column = b.mul(b.zext(place, ir.IntType(64)), integer(LANES))
        if byte:
            where = b.bitcast(b.gep(base, [column]), bytes_.as_pointer())
            return [b.add(sums[0], b.load(where, align=1))]
        x = lanes.splat(b.load(b.gep(data[0], [at])))
        z = [lanes.load(base, b.add(column, integer(v * lanes.count))) for v in range(REGISTERS)]
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
        part = [ir.Constant(ir.VectorType(ir.IntType(32), lanes.count), range_) for range_ in _ranges(lanes.count)]
        empty = ir.Constant(bytes_, ir.Undefined)
        counts = [b.zext(b.shuffle_vector(sums[0], empty, mask), lanes.wholes) for mask in part]
        sums = [b.uitofp(c, lanes.vector) for c in counts]
    if shape is not Rbf and shape is not Laplacian:
        return [_kernel_value(lanes, shape, shape_value, dot) for dot in sums]
    shared = lanes.constant(-1.0 if shape is Laplacian and not byte else -2.0)
    own = lanes.splat(b.load(b.gep(norms[0], [point])))
    first = b.add(b.mul(p, integer(LANES)), lane)
    scale = lanes.splat(b.extract_value(shape_value, 0))
    values = []
    for v in range(REGISTERS):
        other = lanes.load(norms[1], b.add(first, integer(v * lanes.count)))
        distance = lanes.fma(shared, sums[v], b.fadd(own, other))
        values.append(lanes.exp2_minus(b.fmul(lanes.larger(distance, lanes.constant(0.0)), scale)))
    return values


def _ranges(count: int) -> list[list[int]]:
    return [list(range(v * count, (v + 1) * count)) for v in range(REGISTERS)]


def _sparse_arguments(context: Any, builder: Any, csr: Any, csr_value: Any, columns: Any) -> Any:
    """The arrays of a Csr, with (norms of the rows, norms of the columns) as data pointers in place of its norms."""
    fields = [builder.extract_value(csr_value, i) for i in range(4)]
    arrays = unpack(context, builder, csr.types, fields)
    return (*arrays[:3], (arrays[3][0], columns[0]))


@intrinsic
def _add_sparse_tile_ir(typingctx, shape, csr, points, span, panel, table, norms, p, lane, coef, out):  # noqa: ARG001
    def codegen(context, builder, signature, args):
        shape_value, csr_value, points_, span_, panel_, table_, norms_, p_, lane_, coef_, out_ = unpack(
            context, builder, signature.args, args
        )
        lanes = Lanes(builder, norms.dtype)
        csr_ = _sparse_arguments(context, builder, csr, csr_value, norms_)
        places = table_ if isinstance(table, types.Array) else None
        first_, last_ = builder.extract_value(span_, 0), builder.extract_value(span_, 1)

        def one_row(r: Any, sums: list[Any]) -> list[Any]:
            row = builder.add(first_, r)
            point = builder.load(builder.gep(points_[0], [row]))
            weight = lanes.splat(builder.load(builder.gep(coef_[0], [row])))
            values = _sparse_row(lanes, shape.instance_class, shape_value, csr_, point, panel_, places, p_, lane_)
            return [lanes.fma(weight, value, total) for value, total in zip(values, sums, strict=True)]

        rows = builder.sub(last_, first_)
        sums = emit_for(builder, rows, 1, [lanes.constant(0.0)] * REGISTERS, one_row)
        column = builder.add(builder.mul(p_, integer(LANES)), lane_)
        for v in range(REGISTERS):
            _add_to_doubles(lanes, sums[v], out_[0], builder.add(column, integer(v * lanes.count)))
        return context.get_dummy_value()

    i = types.intp
    return types.void(shape, csr, points, span, panel, table, norms, i, i, coef, out), codegen


@intrinsic
def _store_sparse_tile_ir(typingctx, shape, csr, point, panel, table, norms, p, lane, out, row):  # noqa: ARG001
    def codegen(context, builder, signature, args):
        shape_value, csr_value, point_, panel_, table_, norms_, p_, lane_, out_, row_ = unpack(
            context, builder, signature.args, args
        )
        lanes = Lanes(builder, norms.dtype)
        csr_ = _sparse_arguments(context, builder, csr, csr_value, norms_)
        places = table_ if isinstance(table, types.Array) else None
        values = _sparse_row(lanes, shape.instance_class, shape_value, csr_, point_, panel_, places, p_, lane_)
        column = builder.add(builder.mul(p_, integer(LANES)), lane_)
        start = position(builder, out_[1], row_, column)
        for v in range(REGISTERS):
            lanes.store(values[v], out_[0], builder.add(start, integer(v * lanes.count)))
        return context.get_dummy_value()

    i = types.intp
    return types.void(shape, csr, i, panel, table, norms, i, i, out, i), codegen


# These functions say what each primitive means. Tests compare the instructions with them. They run when JIT is disabled.


def sparse_kernel_row(shape, csr, point, panel, table, norms, p, lane):
    """K between one sparse point and COLUMNS columns."""
    real = norms.dtype.type
    columns = SPAN // norms.itemsize
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
    start = p * LANES + lane
    distance = np.maximum(csr.norms[point] + norms[start : start + columns] - common, real(0))
    return np.exp2(-real(shape.scale) * distance)


def _add_sparse_tile(shape, csr, points, span, panel, table, norms, p, lane, coef, out):
    rows = range(*span)
    total = sum(coef[r] * sparse_kernel_row(shape, csr, points[r], panel, table, norms, p, lane) for r in rows)
    columns = SPAN // norms.itemsize
    out[p * LANES + lane : p * LANES + lane + columns] += total


def _store_sparse_tile(shape, csr, point, panel, table, norms, p, lane, out, row):
    values = sparse_kernel_row(shape, csr, point, panel, table, norms, p, lane)
    if out.dtype == np.uint16:
        values = np.rint(values * UNITS_16)
    out[row, p * LANES + lane : p * LANES + lane + len(values)] = values


add_sparse_tile = _add_sparse_tile if DISABLED else _add_sparse_tile_ir
"""out[column] += sum over the rows r of a span (first, last + 1) of coef[r] K(point points[r], column). In place: out."""
store_sparse_tile = _store_sparse_tile if DISABLED else _store_sparse_tile_ir
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
def _spread(columns, p, table, panel):
    """Spread panel p of sparse columns out to dense rows, one for each feature that occurs in it. In place: table, panel.

    `table` then has the row of each of these features. Row 0 stays for all others.
    """
    csr, points = columns.csr, columns.points
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


@jit
def _forget(columns, p, table):
    """Undo what `_spread` did to the table. In place: table."""
    csr, points = columns.csr, columns.points
    for t in range(p * LANES, min((p + 1) * LANES, points.shape[0])):
        for e in range(csr.indptr[points[t]], csr.indptr[points[t] + 1]):
            table[csr.indices[e]] = 0


@jit
def _enter(columns, p, table, panels):
    """The index in `panels` at which panel p of the columns is. With a table the panel is put into the first place now.

    In place: table, panels.
    """
    if table is None:
        return p
    _spread(columns, p, table, panels[0])
    return 0


@jit
def _leave(columns, p, table):
    """Clear what `_enter` put into the table. In place: table."""
    if table is not None:
        _forget(columns, p, table)


@jit
def add_sparse(shape, csr, points, coef, columns, table, panels, first, last, out):
    """out += sum_r coef_r K(points_r, columns) for panels first..last-1, summed over entries in their norms' number type.

    With a table, `panels` is room for one panel. The table is all zeros before the call and after it. In place: out.
    """
    count, width = points.shape[0], SPAN // columns.norms.itemsize
    step = TOGETHER if columns.norms.itemsize == 4 else max(count, 1)
    for p in range(first, last):
        panel = panels[_enter(columns, p, table, panels)]
        for lane in range(0, LANES, width):
            for r in range(0, count, step):
                span = r, min(r + step, count)
                add_sparse_tile(shape, csr, points, span, panel, table, columns.norms, p, lane, coef, out)
        _leave(columns, p, table)


@jit
def store_sparse(shape, csr, points, columns, table, panels, lower, first, last, out):
    """out[r] = K(points_r, columns) for panels first..last-1. With `lower`, only what reaches the lower triangle.

    In place: out.
    """
    for p in range(first, last):
        panel = panels[_enter(columns, p, table, panels)]
        for lane in range(0, LANES, SPAN // columns.norms.itemsize):
            for r in range(p * LANES if lower else 0, points.shape[0]):
                store_sparse_tile(shape, csr, points[r], panel, table, columns.norms, p, lane, out, r)
        _leave(columns, p, table)
