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
    REGISTER_BYTES,
    REGISTERS,
    UNITS_16,
    Lanes,
    emit_for,
    emit_sums,
    instruction,
    integer,
    position,
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
# they read the data as they are, and `scale` is applied to the measure. Arrays of integers are for `PairRbf` alone.


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


class PairRbf(Shape):
    """2^-(|x|^2 + |z|^2 - scale x'z) of points of small integers: a feature of both arrays is two of them, of 16 bits each.

    The last feature is |x|^2 in float32, in units of the kernel. Products and their sums are exact.
    """


class Laplacian(Shape):
    """2^-(scale |x - z|_1)."""


ROWS = 6
CHUNK = 64
"""So many terms of a float32 measure are summed first, and then these sums. This rounds far less than one long sum."""
SPAN = REGISTERS * REGISTER_BYTES
"""A tile has columns of so many bytes: COLUMNS_32 numbers of four bytes, or COLUMNS_64 of eight."""
COLUMNS_32, COLUMNS_64 = SPAN // 4, SPAN // 8


def _kernel_value(lanes: Lanes, shape: Any, shape_value: Any, measure: Any) -> Any:
    """Kernel values from one register of measures."""
    b = lanes.b
    scale, coef0, degree = (b.extract_value(shape_value, i) for i in range(3))
    if shape in (Rbf, NearRbf, PairRbf, Laplacian):
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
                elif shape is PairRbf:
                    out.append(lanes.add_pairs(z[v], x, total))
                else:
                    out.append(lanes.fma(x, z[v], total))
        return out

    near = shape in (NearRbf, PairRbf)
    width = b.sub(row_shape[1], integer(1)) if near else row_shape[1]

    def distance(r: int, v: int) -> Any:
        """The squared distance from the product and the squares, which are the last feature."""
        own = lanes.splat(b.load(b.gep(row_base, [b.add(b.mul(width, integer(stride)), integer(r))])))
        other = lanes.load(panel_base, b.add(b.mul(width, integer(LANES)), integer(v * lanes.count)))
        product, factor = measures[r * REGISTERS + v], lanes.constant(-2.0)
        if shape is PairRbf:
            own, other = (b.bitcast(each, lanes.vector) for each in (own, other))
            product, factor = b.sitofp(product, lanes.vector), b.fneg(lanes.splat(b.extract_value(value, 0)))
        return lanes.larger(lanes.fma(factor, product, b.fadd(own, other)), lanes.constant(0.0))

    zeros = [lanes.integers(0) if shape is PairRbf else lanes.constant(0.0)] * (count * REGISTERS)

    if lanes.single and shape is not PairRbf:
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


def _emit_add_tile(builder, kinds, shape, rows, g, panels, p, lane, coef, out):
    lanes = Lanes(builder, kinds.panels.dtype)
    value = emit_tile(lanes, kinds.shape.instance_class, shape, rows, g, panels, p, lane)
    base = builder.gep(coef[0], [builder.mul(g, integer(ROWS))])
    weights = [lanes.splat(builder.load(builder.gep(base, [integer(r)]))) for r in range(ROWS)]
    column = builder.add(builder.mul(p, integer(LANES)), lane)
    for v in range(REGISTERS):
        total = builder.fmul(weights[0], value(0, v))
        for r in range(1, ROWS):
            total = lanes.fma(weights[r], value(r, v), total)
        _add_to_doubles(lanes, total, out[0], builder.add(column, integer(v * lanes.count)))


def _emit_add_tile_twice(builder, kinds, shape, rows, g, panels, p, lane, coef, weights, out, sums):
    lanes = Lanes(builder, kinds.panels.dtype)
    value = emit_tile(lanes, kinds.shape.instance_class, shape, rows, g, panels, p, lane)
    first = builder.mul(g, integer(ROWS))
    base = builder.gep(coef[0], [first])
    own = [lanes.splat(builder.load(builder.gep(base, [integer(r)]))) for r in range(ROWS)]
    column = builder.add(builder.mul(p, integer(LANES)), lane)
    across = [lanes.constant(0.0)] * ROWS
    for v in range(REGISTERS):
        place = builder.add(column, integer(v * lanes.count))
        weight, total = lanes.load(weights[0], place), lanes.constant(0.0)
        for r in range(ROWS):
            x = value(r, v)
            total = lanes.fma(own[r], x, total)
            across[r] = lanes.fma(weight, x, across[r])
        _add_to_doubles(lanes, total, out[0], place)
    for r in range(ROWS):
        where = builder.gep(sums[0], [builder.add(first, integer(r))])
        builder.store(builder.fadd(builder.load(where), lanes.sum(across[r])), where)


def _emit_store_tile(builder, kinds, shape, rows, g, panels, p, lane, out):
    lanes = Lanes(builder, kinds.panels.dtype)
    value = emit_tile(lanes, kinds.shape.instance_class, shape, rows, g, panels, p, lane)
    column = builder.add(builder.mul(p, integer(LANES)), lane)
    for r in range(ROWS):
        row = builder.add(builder.mul(g, integer(ROWS)), integer(r))
        start = position(builder, out[1], row, column)
        for v in range(REGISTERS):
            lanes.store(value(r, v), out[0], builder.add(start, integer(v * lanes.count)))


# One block of a weighted Gram matrix of the features. Its entries are sums over all points, held in registers.

EDGE = 5 if REGISTERS == 4 else 3
"""The block has so many rows and columns: as many as there are registers for."""


def _emit_store_products(builder, kinds, panels, weight, i, j, out):
    lanes = Lanes(builder, kinds.panels.dtype)
    last = builder.sub(panels[1][1], integer(1))

    def features(first: Any) -> list[Any]:
        each = [builder.add(first, integer(a)) for a in range(EDGE)]
        return [builder.select(builder.icmp_signed("<", k, last), k, last) for k in each]

    down, across = features(i), features(j)

    def one_panel(p: Any, sums: list[Any]) -> list[Any]:
        bases = [builder.gep(panels[0], [position(builder, panels[1], p, k, integer(0))]) for k in (*down, *across)]
        own = builder.gep(weight[0], [builder.mul(p, integer(LANES))])

        def some_points(lane: Any, sums: list[Any]) -> list[Any]:
            w = lanes.load(own, lane)
            left = [builder.fmul(w, lanes.load(base, lane)) for base in bases[:EDGE]]
            right = [lanes.load(base, lane) for base in bases[EDGE:]]
            return [lanes.fma(a, b, sums[k]) for k, (a, b) in enumerate(itertools.product(left, right))]

        return emit_for(builder, integer(LANES), lanes.count, sums, some_points)

    sums = emit_for(builder, panels[1][0], 1, [lanes.constant(0.0)] * EDGE**2, one_panel)
    for (k, m), total in zip(itertools.product(down, across), sums, strict=True):
        builder.store(lanes.sum(total), builder.gep(out[0], [position(builder, out[1], k, m)]))


# Values of a polynomial of degree two or three at the points of a panel. Its coefficients, for j <= i and k <= j, are a row.

FORM_COLUMNS = 2 * COLUMNS_64
"""So many points are done at a time. They fill twice as many registers as the columns of a tile."""


def _emit_add_form(builder, kinds, panels, p, lane, weights, first, out):
    lanes = Lanes(builder, kinds.panels.dtype)
    base = builder.gep(panels[0], [position(builder, panels[1], p, integer(0), lane)])
    zeros, one = [lanes.constant(0.0)] * (FORM_COLUMNS // lanes.count), integer(1)

    def times(k: Any, values: list[Any], sums: list[Any]) -> list[Any]:
        """sums + x_k values."""
        row = builder.mul(k, integer(LANES))
        x = [lanes.load(base, builder.add(row, integer(v * lanes.count))) for v in range(len(values))]
        return [lanes.fma(value, z, total) for value, z, total in zip(values, x, sums, strict=True)]

    def outer(a: Any, carried: list[Any]) -> list[Any]:
        i = builder.add(first, a)

        def middle(j: Any, carried: list[Any]) -> list[Any]:
            start, length = carried[0], builder.add(j, one)

            def inner(k: Any, sums: list[Any]) -> list[Any]:
                weight = lanes.splat(builder.load(builder.gep(weights[0], [builder.add(start, k)])))
                return times(k, [weight] * len(zeros), sums)

            sums = emit_for(builder, length, 1, zeros, inner)
            return [builder.add(start, length), *times(j, sums, carried[1:])]

        start, *sums = emit_for(builder, builder.add(i, one), 1, [carried[0], *zeros], middle)
        return [start, *times(i, sums, carried[1:])]

    count = builder.sub(panels[1][1], first)
    sums = emit_for(builder, count, 1, [integer(0), *zeros], outer)[1:]
    column = builder.add(builder.mul(p, integer(LANES)), lane)
    for v, total in enumerate(sums):
        _add_to_doubles(lanes, total, out[0], builder.add(column, integer(v * lanes.count)))


OUTER_ROWS = 4


def _emit_add_outer(builder, kinds, A, k, first, left, right, count):
    lanes = Lanes(builder, kinds.A.dtype)
    tile = [(i, v) for i in range(OUTER_ROWS) for v in range(REGISTERS)]

    def place(i: int, v: int) -> Any:
        column = builder.add(first, integer(v * lanes.count))
        return position(builder, A[1], builder.add(k, integer(i)), column)

    def one_term(r: Any, sums: list[Any]) -> list[Any]:
        row = builder.gep(right[0], [position(builder, right[1], r, first)])
        z = [lanes.load(row, integer(v * lanes.count)) for v in range(REGISTERS)]
        column = builder.gep(left[0], [position(builder, left[1], r, k)])
        x = [lanes.splat(builder.load(builder.gep(column, [integer(i)]))) for i in range(OUTER_ROWS)]
        return [lanes.fma(x[i], z[v], total) for (i, v), total in zip(tile, sums, strict=True)]

    start = [lanes.load(A[0], place(i, v)) for i, v in tile]
    for (i, v), total in zip(tile, emit_for(builder, count, 1, start, one_term), strict=True):
        lanes.store(total, A[0], place(i, v))


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
    if isinstance(shape, PairRbf):
        (x, own), (z, other) = ((_pairs(each[:-1]), each[-1].view(np.float32)) for each in (x, z))
        measure = own[:, None] + other - np.float32(shape.scale) * np.einsum("kri,kji->rj", x, z).astype(np.float32)
        return np.exp2(-np.maximum(measure, np.float32(0)))
    return _of_dot(shape, x.T @ z[: len(x)])


def _pairs(x: np.ndarray) -> np.ndarray:
    """Both halves of each integer."""
    return np.stack([(x << 16) >> 16, x >> 16], axis=2)


def _of_dot(shape: Shape, dot: np.ndarray) -> np.ndarray:
    x = dot.dtype.type(shape.scale) * dot + dot.dtype.type(shape.coef0)
    return x**shape.degree if isinstance(shape, Poly) else np.tanh(x)


def _add_tile(shape, rows, g, panels, p, lane, coef, out):
    columns, start = SPAN // panels.itemsize, p * LANES + lane
    values = kernel_tile(shape, rows[g], panels[p, :, lane : lane + columns])
    out[start : start + columns] += coef[g * ROWS : (g + 1) * ROWS] @ values


def _add_tile_twice(shape, rows, g, panels, p, lane, coef, weights, out, sums):
    span = slice(p * LANES + lane, p * LANES + lane + COLUMNS_64)
    own = slice(g * ROWS, (g + 1) * ROWS)
    values = kernel_tile(shape, rows[g], panels[p, :, lane : lane + COLUMNS_64])
    out[span] += coef[own] @ values
    sums[own] += values @ weights[span]


def _store_tile(shape, rows, g, panels, p, lane, out):
    columns, start = SPAN // panels.itemsize, p * LANES + lane
    values = kernel_tile(shape, rows[g], panels[p, :, lane : lane + columns])
    if out.dtype == np.uint16:
        values = np.rint(values * UNITS_16)
    out[g * ROWS : (g + 1) * ROWS, start : start + columns] = values


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


add_tile = instruction(_emit_add_tile, _add_tile)
"""out[column] += sum_r coef[g * ROWS + r] K(row r, column) for one tile. The addition to out is in float64. In place: out."""
add_tile_twice = instruction(_emit_add_tile_twice, _add_tile_twice)
"""`add_tile` in float64, and sums[row] += sum over columns of K(row, column) weights[column]. In place: out, sums."""
store_tile = instruction(_emit_store_tile, _store_tile)
"""out[g * ROWS + r, column] = K(row r, column) for one tile. In place: out."""
store_products = instruction(_emit_store_products, _store_products)
"""out[k, m] = sum over points of weight panels[k] panels[m], for EDGE features k from i on and m from j on. In place: out."""
add_form = instruction(_emit_add_form, _add_form)
"""out[column] += sum over i >= first, j <= i, k <= j of weights x_i x_j x_k for FORM_COLUMNS columns. In place: out."""
add_outer = instruction(_emit_add_outer, _add_outer)
"""A[k + i, first + j] += sum over r < count of left[r, k + i] right[r, first + j], OUTER_ROWS x COLUMNS_64. In place: A."""
