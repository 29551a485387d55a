"""Vector primitives: the few loops that need help to become vector code, each with its plain meaning beside it.

LLVM turns a maximum reduction into vector code only when the maximum is the `maxnum` instruction with the no-NaN flag;
`max()` and `if` stay scalar. `fmax` and `fmin` are that instruction, and ordinary Python when JIT is disabled.
Vectors are processed in blocks of `LANES`, through slices (a slice tells LLVM that indices do not wrap).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from svmcore._jit import DISABLED, jit
from svmcore._lanes import BYTE, REGISTER_BYTES, REGISTERS, UNITS_16, Lanes, emit_for, integer, position, unpack
from svmcore._types import LANES

_STAMP = "1a3f04e93b1f"

BIG_32 = 1e30
"""Penalty of the float32 passes: large, finite, and its double still finite."""

BIG = 1e300
"""Stands for infinity in penalties and reductions: real infinities are undefined under the no-NaN flag."""


def _scalar_intrinsic(name: str) -> Any:
    """A float64 two-operand LLVM instruction, flagged as free of NaN, as a function that jitted code can call."""

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
        return a if a >= b else b

    def fmin(a: float, b: float) -> float:
        """The smaller of two floats."""
        return a if a <= b else b

else:
    fmax = _scalar_intrinsic("maxnum")
    fmin = _scalar_intrinsic("minnum")

_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5 * 2**52: adding and subtracting it rounds to the nearest integer


@jit
def exp_nonpositive(x, bits, power):
    """exp(x) for one block of x <= 0, to about one ulp. In place: x; `power` is the float64 view of scratch `bits`.

    exp(x) = 2^n exp(r) with n = round(x log2 e), |r| <= ln(2) / 2, exp(r) by its Taylor polynomial of degree 13.
    Below -708 the answer is exp(-708), about 3e-308.
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
#
# `rows[g, k, r]` is feature k of row g * ROWS + r, `panels[p, k, lane]` as everywhere. Both are float32 or both float64;
# one source serves both. In float32 the exponential kernels read features already multiplied by their scale (the
# square root of it for rbf), so that K = 2^-measure costs nothing more; in float64 they read the data as they are.


class Linear(NamedTuple):
    """x'z."""

    scale: float
    coef0: float
    degree: int


class Poly(NamedTuple):
    """(scale x'z + coef0)^degree."""

    scale: float
    coef0: float
    degree: int


class Sigmoid(NamedTuple):
    """tanh(scale x'z + coef0)."""

    scale: float
    coef0: float
    degree: int


class Rbf(NamedTuple):
    """2^-(scale |x - z|^2)."""

    scale: float
    coef0: float
    degree: int


class Laplacian(NamedTuple):
    """2^-(scale |x - z|_1)."""

    scale: float
    coef0: float
    degree: int


Shape = Linear | Poly | Sigmoid | Rbf | Laplacian
"""A kernel as a type, so that numba compiles one tile per kernel, and only for the kernels that are used."""

ROWS = 6
COLUMNS_32 = REGISTERS * REGISTER_BYTES // 4
COLUMNS_64 = REGISTERS * REGISTER_BYTES // 8


def _kernel_value(lanes: Lanes, shape: Any, shape_value: Any, measure: Any) -> Any:
    """Kernel values from one register of measures."""
    b = lanes.b
    scale, coef0, degree = (b.extract_value(shape_value, i) for i in range(3))
    if shape is Rbf or shape is Laplacian:
        return lanes.exp2_minus(measure if lanes.single else b.fmul(measure, lanes.splat(scale)))
    if shape is Linear:
        return measure
    x = lanes.fma(lanes.splat(scale), measure, lanes.splat(coef0))
    if shape is Poly:
        return emit_for(b, degree, 1, [lanes.constant(1.0)], lambda _, p: [b.fmul(p[0], x)])[0]
    # tanh |x| = (1 - t) / (1 + t) with t = exp(-2 |x|); the sign is put back
    t = lanes.exp2_minus(b.fmul(lanes.call("fabs", x), lanes.constant(2.0 * _LOG2E)))
    one = lanes.constant(1.0)
    return lanes.call("copysign", b.fdiv(b.fsub(one, t), b.fadd(one, t)), x)


def _tile(lanes: Lanes, shape: Any, shape_value: Any, rows: Any, g: Any, panels: Any, p: Any, lane: Any) -> Any:
    """Kernel values of row group g against COLUMNS columns of panel p, starting at `lane`: a function of (r, register).

    The measures are all in registers; a kernel value is emitted where it is used, so that it needs no register long.
    """
    b = lanes.b
    row_data, row_shape = rows
    panel_data, panel_shape = panels
    row_base = b.gep(row_data, [position(b, row_shape, g, integer(0), integer(0))])
    panel_base = b.gep(panel_data, [position(b, panel_shape, p, integer(0), lane)])

    def one_feature(k: Any, sums: list[Any]) -> list[Any]:
        column = b.mul(k, integer(LANES))
        z = [lanes.load(panel_base, b.add(column, integer(v * lanes.count))) for v in range(REGISTERS)]
        out = []
        for r in range(ROWS):
            x = lanes.splat(b.load(b.gep(row_base, [b.add(b.mul(k, integer(ROWS)), integer(r))])))
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

    zeros = [lanes.constant(0.0)] * (ROWS * REGISTERS)
    measures = emit_for(b, row_shape[1], 1, zeros, one_feature)
    return lambda r, v: _kernel_value(lanes, shape, shape_value, measures[r * REGISTERS + v])


def _add_to_doubles(lanes: Lanes, value: Any, pointer: Any, index: Any) -> None:
    """pointer[index : index + lanes] += value, the sum in float64."""
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
        value = _tile(lanes, shape.instance_class, shape_value, rows_, g_, panels_, p_, lane_)
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
def _store_tile_ir(typingctx, shape, rows, g, panels, p, lane, out):  # noqa: ARG001
    def codegen(context, builder, signature, args):
        shape_value, rows_, g_, panels_, p_, lane_, out_ = unpack(context, builder, signature.args, args)
        lanes = Lanes(builder, panels.dtype)
        value = _tile(lanes, shape.instance_class, shape_value, rows_, g_, panels_, p_, lane_)
        column = builder.add(builder.mul(p_, integer(LANES)), lane_)
        for r in range(ROWS):
            row = builder.add(builder.mul(g_, integer(ROWS)), integer(r))
            start = position(builder, out_[1], row, column)
            for v in range(REGISTERS):
                lanes.store(value(r, v), out_[0], builder.add(start, integer(v * lanes.count)))
        return context.get_dummy_value()

    return types.void(shape, rows, types.intp, panels, types.intp, types.intp, out), codegen


# Sparse tiles: one sparse row against COLUMNS dense columns. Panels are float32 or float64 features, or bytes that are 0
# or 1; bytes are counted exactly, 255 at most. Everything after the dot product is in the type of `norms`, the squared
# norms of the points (exact integers for bytes). Squared distances come from norms and dot products, so they cancel.


class Csr(NamedTuple):
    """Sparse points: the entries of point i are indptr[i] to indptr[i + 1]. `data` are all 1 for byte panels."""

    indptr: Any
    indices: Any
    data: Any
    norms: Any


def _sparse_row(
    lanes: Lanes, shape: Any, shape_value: Any, csr: Any, point: Any, panels: Any, p: Any, lane: Any
) -> Any:
    """Kernel values [register] of one sparse point against COLUMNS columns; `csr` and `panels` are unpacked."""
    b = lanes.b
    indptr, indices, data, norms = csr
    byte = panels[0].type.pointee == BYTE
    base = b.gep(panels[0], [position(b, panels[1], p, integer(0), lane)])
    start = b.load(b.gep(indptr[0], [point]))
    count = b.sub(b.load(b.gep(indptr[0], [b.add(point, integer(1))])), start)
    bytes_ = ir.VectorType(BYTE, REGISTERS * lanes.count)

    def one_entry(e: Any, sums: list[Any]) -> list[Any]:
        at = b.add(start, e)
        feature = b.zext(b.load(b.gep(indices[0], [at])), ir.IntType(64))
        column = b.mul(feature, integer(LANES))
        if byte:
            where = b.bitcast(b.gep(base, [column]), bytes_.as_pointer())
            return [b.add(sums[0], b.load(where, align=1))]
        x = lanes.splat(b.load(b.gep(data[0], [at])))
        z = [lanes.load(base, b.add(column, integer(v * lanes.count))) for v in range(REGISTERS)]
        return [lanes.fma(x, z[v], sums[v]) for v in range(REGISTERS)]

    zeros = [ir.Constant(bytes_, [0] * bytes_.count)] if byte else [lanes.constant(0.0)] * REGISTERS
    sums = emit_for(b, count, 1, zeros, one_entry)
    if byte:
        part = [ir.Constant(ir.VectorType(ir.IntType(32), lanes.count), range_) for range_ in _ranges(lanes.count)]
        empty = ir.Constant(bytes_, ir.Undefined)
        counts = [b.zext(b.shuffle_vector(sums[0], empty, mask), lanes.wholes) for mask in part]
        sums = [b.uitofp(c, lanes.vector) for c in counts]
    if shape is not Rbf and shape is not Laplacian:
        return [_kernel_value(lanes, shape, shape_value, dot) for dot in sums]
    own = lanes.splat(b.load(b.gep(norms[0], [point])))
    first = b.add(b.mul(p, integer(LANES)), lane)
    scale = lanes.splat(b.extract_value(shape_value, 0))
    values = []
    for v in range(REGISTERS):
        other = lanes.load(norms[1], b.add(first, integer(v * lanes.count)))
        distance = lanes.fma(lanes.constant(-2.0), sums[v], b.fadd(own, other))
        values.append(lanes.exp2_minus(b.fmul(lanes.larger(distance, lanes.constant(0.0)), scale)))
    return values


def _ranges(count: int) -> list[list[int]]:
    return [list(range(v * count, (v + 1) * count)) for v in range(REGISTERS)]


def _sparse_arguments(context: Any, builder: Any, csr: Any, csr_value: Any, columns: Any) -> tuple[Any, Any]:
    """The arrays of a Csr, with (norms of the rows, norms of the columns) as data pointers in place of its norms."""
    fields = [builder.extract_value(csr_value, i) for i in range(4)]
    arrays = unpack(context, builder, csr.types, fields)
    return (*arrays[:3], (arrays[3][0], columns[0])), arrays


@intrinsic
def _add_sparse_tile_ir(typingctx, shape, csr, points, first, last, panels, norms, p, lane, coef, out):  # noqa: ARG001
    def codegen(context, builder, signature, args):
        shape_value, csr_value, points_, first_, last_, panels_, norms_, p_, lane_, coef_, out_ = unpack(
            context, builder, signature.args, args
        )
        lanes = Lanes(builder, norms.dtype)
        csr_, _ = _sparse_arguments(context, builder, csr, csr_value, norms_)

        def one_row(r: Any, sums: list[Any]) -> list[Any]:
            row = builder.add(first_, r)
            point = builder.load(builder.gep(points_[0], [row]))
            weight = lanes.splat(builder.load(builder.gep(coef_[0], [row])))
            values = _sparse_row(lanes, shape.instance_class, shape_value, csr_, point, panels_, p_, lane_)
            return [lanes.fma(weight, value, total) for value, total in zip(values, sums, strict=True)]

        rows = builder.sub(last_, first_)
        sums = emit_for(builder, rows, 1, [lanes.constant(0.0)] * REGISTERS, one_row)
        column = builder.add(builder.mul(p_, integer(LANES)), lane_)
        for v in range(REGISTERS):
            _add_to_doubles(lanes, sums[v], out_[0], builder.add(column, integer(v * lanes.count)))
        return context.get_dummy_value()

    i = types.intp
    return types.void(shape, csr, points, i, i, panels, norms, i, i, coef, out), codegen


@intrinsic
def _store_sparse_tile_ir(typingctx, shape, csr, point, panels, norms, p, lane, out, row):  # noqa: ARG001
    def codegen(context, builder, signature, args):
        shape_value, csr_value, point_, panels_, norms_, p_, lane_, out_, row_ = unpack(
            context, builder, signature.args, args
        )
        lanes = Lanes(builder, norms.dtype)
        csr_, _ = _sparse_arguments(context, builder, csr, csr_value, norms_)
        values = _sparse_row(lanes, shape.instance_class, shape_value, csr_, point_, panels_, p_, lane_)
        column = builder.add(builder.mul(p_, integer(LANES)), lane_)
        start = position(builder, out_[1], row_, column)
        for v in range(REGISTERS):
            lanes.store(values[v], out_[0], builder.add(start, integer(v * lanes.count)))
        return context.get_dummy_value()

    i = types.intp
    return types.void(shape, csr, i, panels, norms, i, i, out, i), codegen


# Passes of the pair step, over vectors of one working set (a multiple of LANES long). `rise` and `fall` are 0 where
# a variable may move up or down and -BIG, +BIG where it may not.


def _scan(lanes: Lanes, n: Any, step: Any) -> tuple[Any, Any, Any]:
    """Largest score, its first index, and least bound over n lanes; `step(index)` gives a register of each."""
    b, unroll = lanes.b, 2
    width = unroll * lanes.count

    def body(k: Any, carried: list[Any]) -> list[Any]:
        best, where, least, iota = carried[:2], carried[2:4], carried[4:6], carried[6]
        for u in range(unroll):
            score, bound = step(b.add(k, integer(u * lanes.count)))
            better = b.fcmp_ordered(">", score, best[u])
            best[u] = b.select(better, score, best[u])
            where[u] = b.select(better, b.add(iota, lanes.integers(u * lanes.count)), where[u])
            least[u] = lanes.smaller(bound, least[u])
        return [*best, *where, *least, b.add(iota, lanes.integers(width))]

    zero = lanes.integers(0)
    start = [*[lanes.constant(-2 * BIG_32)] * 2, zero, zero, *[lanes.constant(2 * BIG_32)] * 2]
    best0, best1, where0, where1, least0, least1, _ = emit_for(
        b, n, width, [*start, lanes.integers(range(lanes.count))], body
    )
    best = lanes.larger(best0, best1)
    top = lanes.call("vector.reduce.fmax", best, result=lanes.real, flags=("nnan",))
    last = lanes.integers(2**31 - 1)
    at = [b.select(b.fcmp_ordered("==", x, lanes.splat(top)), i, last) for x, i in ((best0, where0), (best1, where1))]
    first = b.select(b.icmp_unsigned("<", at[0], at[1]), at[0], at[1])
    index = lanes.call("vector.reduce.umin", first, result=lanes.whole)
    low = lanes.call("vector.reduce.fmin", lanes.smaller(least0, least1), result=lanes.real, flags=("nnan",))
    if lanes.single:
        index = b.zext(index, ir.IntType(64))
    return top, index, low


def _row(builder: Any, matrix: Any, i: Any) -> Any:
    return builder.gep(matrix[0], [position(builder, matrix[1], i, integer(0))])


@intrinsic
def _update_pair_ir(typingctx, values, gram, i, j, step, rise, fall):  # noqa: ARG001
    real = values.dtype

    def codegen(context, builder, signature, args):
        values_, gram_, i_, j_, step_, rise_, fall_ = unpack(context, builder, signature.args, args)
        lanes = Lanes(builder, real)
        row_i, row_j = _row(builder, gram_, i_), _row(builder, gram_, j_)
        minus = lanes.splat(builder.fneg(step_))

        def one(k: Any) -> tuple[Any, Any]:
            difference = builder.fsub(lanes.load(row_i, k), lanes.load(row_j, k))
            value = lanes.fma(minus, difference, lanes.load(values_[0], k))
            lanes.store(value, values_[0], k)
            return builder.fadd(value, lanes.load(rise_[0], k)), builder.fadd(value, lanes.load(fall_[0], k))

        top, index, low = _scan(lanes, values_[1][0], one)
        return context.make_tuple(builder, signature.return_type, [index, top, low])

    result = types.Tuple((types.intp, real, real))
    return result(values, gram, types.intp, types.intp, real, rise, fall), codegen


@intrinsic
def _best_partner_ir(typingctx, values, gram, unit, i, diagonal, tau, fall):  # noqa: ARG001
    real = values.dtype

    def codegen(context, builder, signature, args):
        values_, gram_, unit_, i_, diagonal_, tau_, fall_ = unpack(context, builder, signature.args, args)
        lanes = Lanes(builder, real)
        twice = lanes.splat(builder.fmul(unit_, ir.Constant(unit_.type, -2.0)))
        row = _row(builder, gram_, i_)
        top = lanes.splat(builder.load(builder.gep(values_[0], [i_])))
        own = lanes.splat(builder.load(builder.gep(diagonal_[0], [i_])))
        floor, none = lanes.splat(tau_), lanes.constant(0.0)

        def one(k: Any) -> tuple[Any, Any]:
            other = builder.fadd(lanes.load(values_[0], k), lanes.load(fall_[0], k))
            slope = lanes.larger(builder.fsub(top, other), none)
            both = builder.fadd(own, lanes.load(diagonal_[0], k))
            curvature = lanes.larger(lanes.fma(twice, lanes.load(row, k), both), floor)
            return builder.fmul(builder.fmul(slope, slope), lanes.reciprocal(curvature)), none

        _, index, _ = _scan(lanes, values_[1][0], one)
        return index

    return types.intp(values, gram, real, types.intp, diagonal, real, fall), codegen


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


# What each primitive means. These loops are its oracle, and its body when JIT is disabled.


def kernel_tile(shape: Shape, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """K[r, j] for rows x[:, r] and columns z[:, j]."""
    if isinstance(shape, Rbf | Laplacian):
        difference = x[:, :, None] - z[:, None, :]
        scale = 1.0 if x.dtype == np.float32 else shape.scale
        measure = (difference**2 if isinstance(shape, Rbf) else abs(difference)).sum(axis=0)
        return np.exp2(-scale * measure)
    dot = x.T @ z
    return dot if isinstance(shape, Linear) else _of_dot(shape, dot)


def _of_dot(shape: Shape, dot: np.ndarray) -> np.ndarray:
    x = dot.dtype.type(shape.scale) * dot + dot.dtype.type(shape.coef0)
    return x**shape.degree if isinstance(shape, Poly) else np.tanh(x)


def _add_tile(shape, rows, g, panels, p, lane, coef, out):
    columns = COLUMNS_32 if panels.dtype == np.float32 else COLUMNS_64
    values = kernel_tile(shape, rows[g], panels[p, :, lane : lane + columns])
    start = p * LANES + lane
    out[start : start + columns] += coef[g * ROWS : (g + 1) * ROWS] @ values


def _store_tile(shape, rows, g, panels, p, lane, out):
    columns = COLUMNS_32 if panels.dtype == np.float32 else COLUMNS_64
    start = p * LANES + lane
    values = kernel_tile(shape, rows[g], panels[p, :, lane : lane + columns])
    if out.dtype == np.uint16:
        values = np.rint(values * UNITS_16)
    out[g * ROWS : (g + 1) * ROWS, start : start + columns] = values


def sparse_kernel_row(shape, csr, point, panels, norms, p, lane):
    """K between one sparse point and COLUMNS columns."""
    real = norms.dtype.type
    columns = COLUMNS_32 if norms.dtype == np.float32 else COLUMNS_64
    entries = slice(csr.indptr[point], csr.indptr[point + 1])
    z = panels[p, csr.indices[entries], lane : lane + columns].astype(real)
    dot = (csr.data[entries].astype(real)[:, None] * z).sum(axis=0)
    if not isinstance(shape, Rbf | Laplacian):
        return dot if isinstance(shape, Linear) else _of_dot(shape, dot)
    start = p * LANES + lane
    distance = np.maximum(csr.norms[point] + norms[start : start + columns] - real(2) * dot, real(0))
    return np.exp2(-real(shape.scale) * distance)


def _add_sparse_tile(shape, csr, points, first, last, panels, norms, p, lane, coef, out):
    total = sum(coef[r] * sparse_kernel_row(shape, csr, points[r], panels, norms, p, lane) for r in range(first, last))
    columns = COLUMNS_32 if norms.dtype == np.float32 else COLUMNS_64
    out[p * LANES + lane : p * LANES + lane + columns] += total


def _store_sparse_tile(shape, csr, point, panels, norms, p, lane, out, row):
    values = sparse_kernel_row(shape, csr, point, panels, norms, p, lane)
    if out.dtype == np.uint16:
        values = np.rint(values * UNITS_16)
    out[row, p * LANES + lane : p * LANES + lane + len(values)] = values


def _update_pair(values, gram, i, j, step, rise, fall):
    width = len(values)
    values -= step * (gram[i, :width].astype(values.dtype) - gram[j, :width].astype(values.dtype))
    score = values + rise
    index = int(np.argmax(score))
    return index, score[index], np.min(values + fall)


def _best_partner(values, gram, unit, i, diagonal, tau, fall):
    slope = np.maximum(values[i] - (values + fall), 0.0)
    curvature = np.maximum(diagonal[i] + diagonal - 2.0 * unit * gram[i, : len(values)], tau)
    return int(np.argmax(slope * slope / curvature))


def _add_outer(A, k, first, left, right, count):
    rows, columns = slice(k, k + OUTER_ROWS), slice(first, first + COLUMNS_64)
    A[rows, columns] += left[:count, rows].T @ right[:count, columns]


add_tile = _add_tile if DISABLED else _add_tile_ir
"""out[column] += sum_r coef[g * ROWS + r] K(row r, column) for one tile; float64 sums. In place: out."""
store_tile = _store_tile if DISABLED else _store_tile_ir
"""out[g * ROWS + r, column] = K(row r, column) for one tile. In place: out."""
update_pair = _update_pair if DISABLED else _update_pair_ir
"""values -= step (gram_i - gram_j); returns argmax and max of values + rise, and min of values + fall. In place: values."""
best_partner = _best_partner if DISABLED else _best_partner_ir
"""argmax over j of max(0, values_i - values_j - fall_j)^2 / max(tau, diagonal_i + diagonal_j - 2 unit gram_ij)."""
add_sparse_tile = _add_sparse_tile if DISABLED else _add_sparse_tile_ir
"""out[column] += sum over rows first..last-1 of coef[r] K(point points[r], column). In place: out."""
store_sparse_tile = _store_sparse_tile if DISABLED else _store_sparse_tile_ir
"""out[row, column] = K(point, column) for one sparse point. In place: out."""
add_outer = _add_outer if DISABLED else _add_outer_ir
"""A[k + i, first + j] += sum over r < count of left[r, k + i] right[r, first + j], OUTER_ROWS x COLUMNS_64. In place: A."""
