"""Vector primitives: the few loops that need help to become vector code. The plain meaning of each stands beside it.

LLVM makes vector code of the search for a maximum only if the maximum is its instruction `maxnum` with the no-NaN flag.
`max()` and `if` stay scalar. `fmax` and `fmin` are such instructions. When JIT is disabled, they are ordinary Python.
Vectors are processed in blocks of `LANES`, through slices: a slice tells LLVM that indices do not wrap.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from svmcore._types import LANES
from svmcore.compiler.jit import DISABLED, jit
from svmcore.simd.lanes import (
    BYTE,
    REGISTER_BYTES,
    REGISTERS,
    UNITS_16,
    Lanes,
    emit_for,
    emit_sums,
    integer,
    position,
    unpack,
)

BIG_32 = 1e30
"""The penalty of the float32 passes. Twice this number is still finite in float32."""

BIG = 1e300
"""This stands for infinity in penalties and reductions, where infinity minus infinity would be NaN. The flag forbids NaN."""


def _scalar_intrinsic(name: str) -> Any:
    """An LLVM instruction with two float64 operands and the no-NaN flag, as a function that compiled code can call."""

    @intrinsic
    def instruction(typingctx, a, b):  # noqa: ARG001
        def codegen(context, builder, signature, args):  # noqa: ARG001
            double = ir.DoubleType()
            symbol = f"llvm.{name}.f64"
            function = builder.module.globals.get(symbol)
            if function is None:
                function = ir.Function(builder.module, ir.FunctionType(double, [double, double]), symbol)
            return builder.call(function, args, fastmath=("nnan", "nsz"))

        return types.float64(types.float64, types.float64), codegen

    return instruction


if DISABLED:

    def fmax(a: float, b: float) -> float:
        """The larger of two floats."""
        return max(a, b)

    def fmin(a: float, b: float) -> float:
        """The smaller of two floats."""
        return min(a, b)

else:  # pragma: no cover  (exists compiled only)
    fmax = _scalar_intrinsic("maxnum")
    fmin = _scalar_intrinsic("minnum")

# exp(x) = 2^n exp(x - n ln 2), where n is x log2(e), rounded. ln 2 is given in two parts: n times the first one is exact.
_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5 * 2**52: adding and subtracting it rounds to the nearest integer


@jit
def exp_nonpositive(x, bits, power):
    """exp(x) for one block of x <= 0, to about one unit in the last place. In place: x, bits.

    exp(x) = 2^n exp(r), where n is x log2(e), rounded, and |r| <= ln(2) / 2. The Taylor polynomial of degree 13 gives exp(r).
    `bits` is scratch, and `power` is the same memory seen as float64. Below -708 the answer is exp(-708), about 3e-308.
    """
    for j in range(LANES):
        t = fmax(x[j], -708.0)
        n = (t * _LOG2E + _ROUND) - _ROUND
        r = (t - n * _LN2_HIGH) - n * _LN2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        x[j] = p
        bits[j] = (np.int64(n) + 1023) << 52
    for j in range(LANES):
        x[j] *= power[j]


# Tiles: kernel values of ROWS rows against COLUMNS columns, held in vector registers.
# `rows[g, k, r]` is feature k of row g * ROWS + r. `panels[p, k, lane]` is feature k of point p * LANES + lane. Both arrays
# are float32, or both are float64: the same functions emit both. In float32 the exponential kernels read features that have
# been multiplied by the kernel's scale, or by its square root for rbf. So K = 2^-measure needs no further product. In float64
# they read the data as they are, and `scale` is applied to the measure.


class Shape(NamedTuple):
    """A kernel as a type, so that numba compiles one tile per kernel, and only for the kernels that are used."""

    scale: float
    coef0: float
    degree: int


class Poly(Shape):
    """(scale x'z + coef0)^degree. With scale 1, coef0 0 and degree 1 it is x'z itself, to the bit."""


class Sigmoid(Shape):
    """tanh(scale x'z + coef0)."""


class Rbf(Shape):
    """2^-(scale |x - z|^2)."""


class NearRbf(Shape):
    """`Rbf` of points of small norm: 2^-(scale (|x|^2 + |z|^2 - 2 x'z)). The last feature of a point is |x|^2.

    A feature costs one operation here, and two in `Rbf`. The difference cancels: its error is as large as the squares' is.
    """


class Laplacian(Shape):
    """2^-(scale |x - z|_1)."""


ROWS = 6
CHUNK = 64
"""So many terms of a float32 measure are summed first, and then these sums. This rounds far less than one long sum."""
COLUMNS_32 = REGISTERS * REGISTER_BYTES // 4
COLUMNS_64 = REGISTERS * REGISTER_BYTES // 8


def _kernel_value(lanes: Lanes, shape: Any, shape_value: Any, measure: Any) -> Any:
    """Kernel values from one register of measures."""
    b = lanes.b
    scale, coef0, degree = (b.extract_value(shape_value, i) for i in range(3))
    if shape in (Rbf, NearRbf, Laplacian):
        return lanes.exp2_minus(measure if lanes.single else b.fmul(measure, lanes.splat(scale)))
    x = lanes.fma(lanes.splat(scale), measure, lanes.splat(coef0))
    if shape is Poly:
        return emit_for(b, degree, 1, [lanes.constant(1.0)], lambda _, p: [b.fmul(p[0], x)])[0]
    # tanh |x| = (1 - t) / (1 + t) with t = exp(-2 |x|). The result gets the sign of x.
    t = lanes.exp2_minus(b.fmul(lanes.call("fabs", x), lanes.constant(2.0 * _LOG2E)))
    one = lanes.constant(1.0)
    return lanes.call("copysign", b.fdiv(b.fsub(one, t), b.fadd(one, t)), x)


def emit_tile(
    lanes: Lanes, shape: Any, value: Any, rows: Any, g: Any, panels: Any, p: Any, lane: Any, row: Any = None
) -> Any:
    """Kernel values of row group g against COLUMNS columns of panel p, from `lane` on. Returns a function of (r, register).

    With a `row`, `rows` are panels, too, and the tile has only the point `row` of panel g. All measures are in registers. A
    kernel value is computed where the returned function is called: so it occupies a register for a short time only.
    """
    b = lanes.b
    count, stride = (ROWS, ROWS) if row is None else (1, LANES)
    row_data, row_shape = rows
    panel_data, panel_shape = panels
    row_base = b.gep(row_data, [position(b, row_shape, g, integer(0), integer(0) if row is None else row)])
    panel_base = b.gep(panel_data, [position(b, panel_shape, p, integer(0), lane)])

    def one_feature(k: Any, sums: list[Any]) -> list[Any]:
        column = b.mul(k, integer(LANES))
        z = [lanes.load(panel_base, b.add(column, integer(v * lanes.count))) for v in range(REGISTERS)]
        out = []
        for r in range(count):
            x = lanes.splat(b.load(b.gep(row_base, [b.add(b.mul(k, integer(stride)), integer(r))])))
            for v in range(REGISTERS):
                total = sums[r * REGISTERS + v]
                if shape is Rbf:
                    difference = b.fsub(x, z[v])
                    out.append(lanes.fma(difference, difference, total))
                elif shape is Laplacian:
                    out.append(b.fadd(total, lanes.call("fabs", b.fsub(x, z[v]))))
                else:
                    out.append(lanes.fma(x, z[v], total))
        return out

    near = shape is NearRbf
    width = b.sub(row_shape[1], integer(1)) if near else row_shape[1]

    def distance(r: int, v: int) -> Any:
        """The squared distance from the product and the squares, which are the last feature."""
        own = lanes.splat(b.load(b.gep(row_base, [b.add(b.mul(width, integer(stride)), integer(r))])))
        other = lanes.load(panel_base, b.add(b.mul(width, integer(LANES)), integer(v * lanes.count)))
        difference = lanes.fma(lanes.constant(-2.0), measures[r * REGISTERS + v], b.fadd(own, other))
        return lanes.larger(difference, lanes.constant(0.0))

    zeros = [lanes.constant(0.0)] * (count * REGISTERS)

    if lanes.single:
        measures = emit_sums(b, width, CHUNK, zeros, one_feature)
    else:
        measures = emit_for(b, width, 1, zeros, one_feature)
    measure = distance if near else lambda r, v: measures[r * REGISTERS + v]
    return lambda r, v: _kernel_value(lanes, shape, value, measure(r, v))


def _add_to_doubles(lanes: Lanes, value: Any, pointer: Any, index: Any) -> None:
    """pointer[index : index + lanes] += value, in float64."""
    b = lanes.b
    wide = ir.VectorType(ir.DoubleType(), lanes.count)
    if lanes.single:
        value = b.fpext(value, wide)
    where = b.bitcast(b.gep(pointer, [index]), wide.as_pointer())
    b.store(b.fadd(b.load(where, align=8), value), where, align=8)


@intrinsic
def _add_tile_ir(typingctx, shape, rows, g, panels, p, lane, coef, out):  # noqa: ARG001
    def codegen(context, builder, signature, args):
        shape_value, rows_, g_, panels_, p_, lane_, coef_, out_ = unpack(context, builder, signature.args, args)
        lanes = Lanes(builder, panels.dtype)
        value = emit_tile(lanes, shape.instance_class, shape_value, rows_, g_, panels_, p_, lane_)
        base = builder.gep(coef_[0], [builder.mul(g_, integer(ROWS))])
        weights = [lanes.splat(builder.load(builder.gep(base, [integer(r)]))) for r in range(ROWS)]
        column = builder.add(builder.mul(p_, integer(LANES)), lane_)
        for v in range(REGISTERS):
            total = builder.fmul(weights[0], value(0, v))
            for r in range(1, ROWS):
                total = lanes.fma(weights[r], value(r, v), total)
            _add_to_doubles(lanes, total, out_[0], builder.add(column, integer(v * lanes.count)))
        return context.get_dummy_value()

    return types.void(shape, rows, types.intp, panels, types.intp, types.intp, coef, out), codegen


@intrinsic
def _add_tile_twice_ir(typingctx, shape, rows, g, panels, p, lane, coef, weights, out, sums):  # noqa: ARG001
    def codegen(context, builder, signature, args):
        shape_value, rows_, g_, panels_, p_, lane_, coef_, weights_, out_, sums_ = unpack(
            context, builder, signature.args, args
        )
        lanes = Lanes(builder, panels.dtype)
        value = emit_tile(lanes, shape.instance_class, shape_value, rows_, g_, panels_, p_, lane_)
        first = builder.mul(g_, integer(ROWS))
        base = builder.gep(coef_[0], [first])
        own = [lanes.splat(builder.load(builder.gep(base, [integer(r)]))) for r in range(ROWS)]
        column = builder.add(builder.mul(p_, integer(LANES)), lane_)
        across = [lanes.constant(0.0)] * ROWS
        for v in range(REGISTERS):
            place = builder.add(column, integer(v * lanes.count))
            weight, total = lanes.load(weights_[0], place), lanes.constant(0.0)
            for r in range(ROWS):
                x = value(r, v)
                total = lanes.fma(own[r], x, total)
                across[r] = lanes.fma(weight, x, across[r])
            _add_to_doubles(lanes, total, out_[0], place)
        for r in range(ROWS):
            where = builder.gep(sums_[0], [builder.add(first, integer(r))])
            builder.store(builder.fadd(builder.load(where), lanes.sum(across[r])), where)
        return context.get_dummy_value()

    i = types.intp
    return types.void(shape, rows, i, panels, i, i, coef, weights, out, sums), codegen


@intrinsic
def _store_tile_ir(typingctx, shape, rows, g, panels, p, lane, out):  # noqa: ARG001
    def codegen(context, builder, signature, args):
        shape_value, rows_, g_, panels_, p_, lane_, out_ = unpack(context, builder, signature.args, args)
        lanes = Lanes(builder, panels.dtype)
        value = emit_tile(lanes, shape.instance_class, shape_value, rows_, g_, panels_, p_, lane_)
        column = builder.add(builder.mul(p_, integer(LANES)), lane_)
        for r in range(ROWS):
            row = builder.add(builder.mul(g_, integer(ROWS)), integer(r))
            start = position(builder, out_[1], row, column)
            for v in range(REGISTERS):
                lanes.store(value(r, v), out_[0], builder.add(start, integer(v * lanes.count)))
        return context.get_dummy_value()

    return types.void(shape, rows, types.intp, panels, types.intp, types.intp, out), codegen


# Sparse tiles: one sparse row against COLUMNS dense columns. `panel[place, lane]` holds float32 or float64 features, or bytes
# that are 0 or 1. Sums of bytes are exact, and are 255 at most. If there are more features than a panel has places, `table`
# gives the place of each feature. It is 0 for features that no column of the panel has, and the panel's row 0 is all zeros.
# All that follows the sum over entries is in the number type of `norms`. A distance is the sum of both norms less what the
# points have in common, so it cancels.


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


# One block of a weighted Gram matrix of the features. Its entries are sums over all points, held in registers.

EDGE = 5 if REGISTERS == 4 else 3
"""The block has so many rows and columns: as many as there are registers for."""


@intrinsic
def _store_products_ir(typingctx, panels, weight, i, j, out):  # noqa: ARG001
    def codegen(context, builder, signature, args):
        panels_, weight_, i_, j_, out_ = unpack(context, builder, signature.args, args)
        lanes = Lanes(builder, panels.dtype)
        last = builder.sub(panels_[1][1], integer(1))

        def features(first: Any) -> list[Any]:
            each = [builder.add(first, integer(a)) for a in range(EDGE)]
            return [builder.select(builder.icmp_signed("<", k, last), k, last) for k in each]

        down, across = features(i_), features(j_)

        def one_panel(p: Any, sums: list[Any]) -> list[Any]:
            bases = [
                builder.gep(panels_[0], [position(builder, panels_[1], p, k, integer(0))]) for k in (*down, *across)
            ]
            own = builder.gep(weight_[0], [builder.mul(p, integer(LANES))])

            def some_points(lane: Any, sums: list[Any]) -> list[Any]:
                w = lanes.load(own, lane)
                left = [builder.fmul(w, lanes.load(base, lane)) for base in bases[:EDGE]]
                right = [lanes.load(base, lane) for base in bases[EDGE:]]
                return [lanes.fma(a, b, sums[k]) for k, (a, b) in enumerate(itertools.product(left, right))]

            return emit_for(builder, integer(LANES), lanes.count, sums, some_points)

        sums = emit_for(builder, panels_[1][0], 1, [lanes.constant(0.0)] * EDGE**2, one_panel)
        for (k, m), total in zip(itertools.product(down, across), sums, strict=True):
            builder.store(lanes.sum(total), builder.gep(out_[0], [position(builder, out_[1], k, m)]))
        return context.get_dummy_value()

    return types.void(panels, weight, types.intp, types.intp, out), codegen


# Values of a polynomial of degree two or three at the points of a panel. Its coefficients, for j <= i and k <= j, are a row.

FORM_COLUMNS = 2 * COLUMNS_64
"""So many points are done at a time. They fill twice as many registers as the columns of a tile."""


@intrinsic
def _add_form_ir(typingctx, panels, p, lane, weights, first, out):  # noqa: ARG001
    def codegen(context, builder, signature, args):
        panels_, p_, lane_, weights_, first_, out_ = unpack(context, builder, signature.args, args)
        lanes = Lanes(builder, panels.dtype)
        base = builder.gep(panels_[0], [position(builder, panels_[1], p_, integer(0), lane_)])
        zeros, one = [lanes.constant(0.0)] * (FORM_COLUMNS // lanes.count), integer(1)

        def times(k: Any, values: list[Any], sums: list[Any]) -> list[Any]:
            """sums + x_k values."""
            row = builder.mul(k, integer(LANES))
            x = [lanes.load(base, builder.add(row, integer(v * lanes.count))) for v in range(len(values))]
            return [lanes.fma(value, z, total) for value, z, total in zip(values, x, sums, strict=True)]

        def outer(a: Any, carried: list[Any]) -> list[Any]:
            i = builder.add(first_, a)

            def middle(j: Any, carried: list[Any]) -> list[Any]:
                start, length = carried[0], builder.add(j, one)

                def inner(k: Any, sums: list[Any]) -> list[Any]:
                    weight = lanes.splat(builder.load(builder.gep(weights_[0], [builder.add(start, k)])))
                    return times(k, [weight] * len(zeros), sums)

                sums = emit_for(builder, length, 1, zeros, inner)
                return [builder.add(start, length), *times(j, sums, carried[1:])]

            start, *sums = emit_for(builder, builder.add(i, one), 1, [carried[0], *zeros], middle)
            return [start, *times(i, sums, carried[1:])]

        count = builder.sub(panels_[1][1], first_)
        sums = emit_for(builder, count, 1, [integer(0), *zeros], outer)[1:]
        column = builder.add(builder.mul(p_, integer(LANES)), lane_)
        for v, total in enumerate(sums):
            _add_to_doubles(lanes, total, out_[0], builder.add(column, integer(v * lanes.count)))
        return context.get_dummy_value()

    i = types.intp
    return types.void(panels, i, i, weights, i, out), codegen


OUTER_ROWS = 4


@intrinsic
def _add_outer_ir(typingctx, A, k, first, left, right, count):  # noqa: ARG001
    def codegen(context, builder, signature, args):
        A_, k_, first_, left_, right_, count_ = unpack(context, builder, signature.args, args)
        lanes = Lanes(builder, types.float64)
        tile = [(i, v) for i in range(OUTER_ROWS) for v in range(REGISTERS)]

        def place(i: int, v: int) -> Any:
            column = builder.add(first_, integer(v * lanes.count))
            return position(builder, A_[1], builder.add(k_, integer(i)), column)

        def one_term(r: Any, sums: list[Any]) -> list[Any]:
            row = builder.gep(right_[0], [position(builder, right_[1], r, first_)])
            z = [lanes.load(row, integer(v * lanes.count)) for v in range(REGISTERS)]
            column = builder.gep(left_[0], [position(builder, left_[1], r, k_)])
            x = [lanes.splat(builder.load(builder.gep(column, [integer(i)]))) for i in range(OUTER_ROWS)]
            return [lanes.fma(x[i], z[v], total) for (i, v), total in zip(tile, sums, strict=True)]

        start = [lanes.load(A_[0], place(i, v)) for i, v in tile]
        for (i, v), total in zip(tile, emit_for(builder, count_, 1, start, one_term), strict=True):
            lanes.store(total, A_[0], place(i, v))
        return context.get_dummy_value()

    return types.void(A, types.intp, types.intp, left, right, types.intp), codegen


# These functions say what each primitive means. Tests compare the instructions with them. They run when JIT is disabled.


def kernel_tile(shape: Shape, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """K[r, j] for rows x[:, r] and columns z[:, j], whose further features are padding."""
    if isinstance(shape, Rbf | Laplacian):
        difference = x[:, :, None] - z[: len(x), None, :]
        scale = 1.0 if x.dtype == np.float32 else shape.scale
        measure = (difference**2 if isinstance(shape, Rbf) else abs(difference)).sum(axis=0)
        return np.exp2(-scale * measure)
    if isinstance(shape, NearRbf):
        measure = np.maximum(x[-1][:, None] + z[-1] - x.dtype.type(2) * (x[:-1].T @ z[:-1]), x.dtype.type(0))
        return np.exp2(-measure if x.dtype == np.float32 else -shape.scale * measure)
    return _of_dot(shape, x.T @ z[: len(x)])


def _of_dot(shape: Shape, dot: np.ndarray) -> np.ndarray:
    x = dot.dtype.type(shape.scale) * dot + dot.dtype.type(shape.coef0)
    return x**shape.degree if isinstance(shape, Poly) else np.tanh(x)


def _add_tile(shape, rows, g, panels, p, lane, coef, out):
    columns = COLUMNS_32 if panels.dtype == np.float32 else COLUMNS_64
    values = kernel_tile(shape, rows[g], panels[p, :, lane : lane + columns])
    start = p * LANES + lane
    out[start : start + columns] += coef[g * ROWS : (g + 1) * ROWS] @ values


def _add_tile_twice(shape, rows, g, panels, p, lane, coef, weights, out, sums):
    span = slice(p * LANES + lane, p * LANES + lane + COLUMNS_64)
    own = slice(g * ROWS, (g + 1) * ROWS)
    values = kernel_tile(shape, rows[g], panels[p, :, lane : lane + COLUMNS_64])
    out[span] += coef[own] @ values
    sums[own] += values @ weights[span]


def _store_tile(shape, rows, g, panels, p, lane, out):
    columns = COLUMNS_32 if panels.dtype == np.float32 else COLUMNS_64
    start = p * LANES + lane
    values = kernel_tile(shape, rows[g], panels[p, :, lane : lane + columns])
    if out.dtype == np.uint16:
        values = np.rint(values * UNITS_16)
    out[g * ROWS : (g + 1) * ROWS, start : start + columns] = values


def sparse_kernel_row(shape, csr, point, panel, table, norms, p, lane):
    """K between one sparse point and COLUMNS columns."""
    real = norms.dtype.type
    columns = COLUMNS_32 if norms.dtype == np.float32 else COLUMNS_64
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
    columns = COLUMNS_32 if norms.dtype == np.float32 else COLUMNS_64
    out[p * LANES + lane : p * LANES + lane + columns] += total


def _store_sparse_tile(shape, csr, point, panel, table, norms, p, lane, out, row):
    values = sparse_kernel_row(shape, csr, point, panel, table, norms, p, lane)
    if out.dtype == np.uint16:
        values = np.rint(values * UNITS_16)
    out[row, p * LANES + lane : p * LANES + lane + len(values)] = values


def _store_products(panels, weight, i, j, out):
    left, right = panels[:, i : i + EDGE], panels[:, j : j + EDGE]
    out[i : i + EDGE, j : j + EDGE] = np.einsum("pal,pl,pbl->ab", left, weight.reshape(-1, LANES), right)


def _add_form(panels, p, lane, weights, first, out):
    x = panels[p, :, lane : lane + FORM_COLUMNS]
    start = 0
    for i in range(first, len(x)):
        for j in range(i + 1):
            out[p * LANES + lane : p * LANES + lane + FORM_COLUMNS] += (
                weights[start : start + j + 1] @ x[: j + 1] * x[j] * x[i]
            )
            start += j + 1


def _add_outer(A, k, first, left, right, count):
    rows, columns = slice(k, k + OUTER_ROWS), slice(first, first + COLUMNS_64)
    A[rows, columns] += left[:count, rows].T @ right[:count, columns]


add_tile = _add_tile if DISABLED else _add_tile_ir
"""out[column] += sum_r coef[g * ROWS + r] K(row r, column) for one tile. The addition to out is in float64. In place: out."""
add_tile_twice = _add_tile_twice if DISABLED else _add_tile_twice_ir
"""`add_tile` in float64, and sums[row] += sum over columns of K(row, column) weights[column]. In place: out, sums."""
store_tile = _store_tile if DISABLED else _store_tile_ir
"""out[g * ROWS + r, column] = K(row r, column) for one tile. In place: out."""
add_sparse_tile = _add_sparse_tile if DISABLED else _add_sparse_tile_ir
"""out[column] += sum over the rows r of a span (first, last + 1) of coef[r] K(point points[r], column). In place: out."""
store_sparse_tile = _store_sparse_tile if DISABLED else _store_sparse_tile_ir
"""out[row, column] = K(point, column) for one sparse point. In place: out."""
store_products = _store_products if DISABLED else _store_products_ir
"""out[k, m] = sum over points of weight panels[k] panels[m], for EDGE features k from i on and m from j on. In place: out."""
add_form = _add_form if DISABLED else _add_form_ir
"""out[column] += sum over i >= first, j <= i, k <= j of weights x_i x_j x_k for FORM_COLUMNS columns. In place: out."""
add_outer = _add_outer if DISABLED else _add_outer_ir
"""A[k + i, first + j] += sum over r < count of left[r, k + i] right[r, first + j], OUTER_ROWS x COLUMNS_64. In place: A."""
