"""The passes of a pair step over the vectors of one working set. The plain meaning of each stands beside it.

The length of a vector is a multiple of `LANES`. `rise` is 0 where a variable may move up, and -BIG_32 where it may not.
`fall` is 0 where a variable may move down, and +BIG_32 where it may not. The Gram matrix is stored in units of `unit`.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from svmcore.compiler.jit import DISABLED
from svmcore.simd.lanes import REGISTER_BYTES, REGISTERS, Lanes, emit_for, integer, position, unpack
from svmcore.simd.vector import BIG_32


def _scan(lanes: Lanes, n: Any, step: Any) -> tuple[Any, Any, Any]:
    """The largest score, its first index, and the least bound over n lanes.

    `step(index)` returns a register of scores and a register of bounds.
    """
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
def _best_partner_ir(typingctx, values, gram, row, unit, i, diagonal, tau, fall):  # noqa: ARG001
    real = values.dtype

    def codegen(context, builder, signature, args):
        values_, gram_, row_, unit_, i_, diagonal_, tau_, fall_ = unpack(context, builder, signature.args, args)
        lanes = Lanes(builder, real)
        twice = lanes.splat(builder.fmul(unit_, ir.Constant(unit_.type, -2.0)))
        row = _row(builder, gram_, row_)
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

    return types.intp(values, gram, types.intp, real, types.intp, diagonal, real, fall), codegen


@intrinsic
def _update_along_ir(typingctx, values, along, gram, unit, i, j, keep, step, rise, fall):  # noqa: ARG001
    real = values.dtype

    def codegen(context, builder, signature, args):
        values_, along_, gram_, unit_, i_, j_, keep_, step_, rise_, fall_ = unpack(
            context, builder, signature.args, args
        )
        lanes = Lanes(builder, real)
        row_i, row_j = _row(builder, gram_, i_), _row(builder, gram_, j_)
        minus, kept, scale = lanes.splat(builder.fneg(step_)), lanes.splat(keep_), lanes.splat(unit_)

        def one(k: Any) -> tuple[Any, Any]:
            difference = builder.fsub(lanes.load(row_i, k), lanes.load(row_j, k))
            change = lanes.fma(scale, difference, builder.fmul(kept, lanes.load(along_[0], k)))
            lanes.store(change, along_[0], k)
            value = lanes.fma(minus, change, lanes.load(values_[0], k))
            lanes.store(value, values_[0], k)
            return builder.fadd(value, lanes.load(rise_[0], k)), builder.fadd(value, lanes.load(fall_[0], k))

        top, index, low = _scan(lanes, values_[1][0], one)
        return context.make_tuple(builder, signature.return_type, [index, top, low])

    result = types.Tuple((types.intp, real, real))
    return result(values, along, gram, real, types.intp, types.intp, real, real, rise, fall), codegen


@intrinsic
def _best_conjugate_ir(typingctx, values, along, inverse, gram, unit, i, diagonal, tau, fall):  # noqa: ARG001
    real = values.dtype

    def codegen(context, builder, signature, args):
        values_, along_, inverse_, gram_, unit_, i_, diagonal_, tau_, fall_ = unpack(
            context, builder, signature.args, args
        )
        lanes = Lanes(builder, real)
        twice = lanes.splat(builder.fmul(unit_, ir.Constant(unit_.type, -2.0)))
        row = _row(builder, gram_, i_)
        top, own, here = (
            lanes.splat(builder.load(builder.gep(array[0], [i_]))) for array in (values_, diagonal_, along_)
        )
        floor, none, less = lanes.splat(tau_), lanes.constant(0.0), lanes.splat(builder.fneg(inverse_))

        def one(k: Any) -> tuple[Any, Any]:
            other = builder.fadd(lanes.load(values_[0], k), lanes.load(fall_[0], k))
            slope = lanes.larger(builder.fsub(top, other), none)
            both = builder.fadd(own, lanes.load(diagonal_[0], k))
            plain = lanes.fma(twice, lanes.load(row, k), both)
            bend = builder.fsub(here, lanes.load(along_[0], k))
            curvature = lanes.larger(lanes.fma(builder.fmul(less, bend), bend, plain), floor)
            return builder.fmul(builder.fmul(slope, slope), lanes.reciprocal(curvature)), none

        _, index, _ = _scan(lanes, values_[1][0], one)
        return index

    return types.intp(values, along, real, gram, real, types.intp, diagonal, real, fall), codegen


@intrinsic
def _best_gain_ir(typingctx, values, gain, row, top, fall):  # noqa: ARG001
    real = values.dtype

    def codegen(context, builder, signature, args):
        values_, gain_, row_, top_, fall_ = unpack(context, builder, signature.args, args)
        lanes = Lanes(builder, real)
        line, top, none = _row(builder, gain_, row_), lanes.splat(top_), lanes.constant(0.0)

        def one(k: Any) -> tuple[Any, Any]:
            slope = builder.fsub(top, builder.fadd(lanes.load(values_[0], k), lanes.load(fall_[0], k)))
            return builder.fmul(slope, lanes.load(line, k)), none

        _, index, _ = _scan(lanes, values_[1][0], one)
        return index

    return types.intp(values, gain, types.intp, real, fall), codegen


TOGETHER = 8
"""So many vectors are multiplied by a matrix at a time."""
TILE = 2 if REGISTERS == 4 else 1  # registers of columns, which are summed for all these vectors at a time
TILE_BYTES = TILE * REGISTER_BYTES


@intrinsic
def _tile_of_products_ir(typingctx, matrix, coef, out, column):  # noqa: ARG001
    def codegen(context, builder, signature, args):
        matrix_, coef_, out_, column_ = unpack(context, builder, signature.args, args)
        lanes = Lanes(builder, matrix.dtype)
        columns = [builder.add(column_, integer(r * lanes.count)) for r in range(TILE)]
        pairs = list(itertools.product(range(TOGETHER), range(TILE)))

        def one_row(k: Any, sums: list[Any]) -> list[Any]:
            row = _row(builder, matrix_, k)
            values = [lanes.load(row, column) for column in columns]
            own = builder.gep(coef_[0], [builder.mul(k, integer(TOGETHER))])
            weights = [lanes.splat(builder.load(builder.gep(own, [integer(g)]))) for g in range(TOGETHER)]
            return [lanes.fma(weights[g], values[r], total) for (g, r), total in zip(pairs, sums, strict=True)]

        sums = emit_for(builder, matrix_[1][0], 1, [lanes.constant(0.0)] * len(pairs), one_row)
        for (g, r), total in zip(pairs, sums, strict=True):
            lanes.store(total, _row(builder, out_, integer(g)), columns[r])
        return context.get_dummy_value()

    return types.void(matrix, coef, out, types.intp), codegen


# These functions say what each pass means. Tests compare the instructions with them. They run when JIT is disabled.


def _update_pair(values, gram, i, j, step, rise, fall):
    width = len(values)
    values -= step * (gram[i, :width].astype(values.dtype) - gram[j, :width].astype(values.dtype))
    score = values + rise
    index = int(np.argmax(score))
    return index, score[index], np.min(values + fall)


def _best_partner(values, gram, row, unit, i, diagonal, tau, fall):
    slope = np.maximum(values[i] - (values + fall), 0.0)
    curvature = np.maximum(diagonal[i] + diagonal - 2.0 * unit * gram[row, : len(values)], tau)
    return int(np.argmax(slope * slope / curvature))


def _update_along(values, along, gram, unit, i, j, keep, step, rise, fall):
    width = len(values)
    along *= keep
    along += unit * (gram[i, :width].astype(values.dtype) - gram[j, :width].astype(values.dtype))
    values -= step * along
    score = values + rise
    index = int(np.argmax(score))
    return index, score[index], np.min(values + fall)


def _best_conjugate(values, along, inverse, gram, unit, i, diagonal, tau, fall):
    slope = np.maximum(values[i] - (values + fall), 0.0)
    plain = diagonal[i] + diagonal - 2.0 * unit * gram[i, : len(values)]
    curvature = np.maximum(plain - inverse * (along[i] - along) ** 2, tau)
    return int(np.argmax(slope * slope / curvature))


def _best_gain(values, gain, row, top, fall):
    return int(np.argmax((top - (values + fall)) * gain[row, : len(values)]))


def _tile_of_products(matrix, coef, out, column):
    span = slice(column, column + TILE_BYTES // matrix.itemsize)
    out[:, span] = coef.T @ matrix[:, span]


update_pair = _update_pair if DISABLED else _update_pair_ir
"""values -= step (gram_i - gram_j). Returns argmax and max of values + rise, and min of values + fall. In place: values."""
best_partner = _best_partner if DISABLED else _best_partner_ir
"""argmax over j of max(0, values_i - values_j - fall_j)^2 / max(tau, diagonal_i + diagonal_j - 2 unit gram_ij).

`row` is the row of i in the Gram matrix.
"""
update_along = _update_along if DISABLED else _update_along_ir
"""along = unit (gram_i - gram_j) + keep along, and then values -= step along. Returns the same as `update_pair`.

In place: along, values.
"""
best_conjugate = _best_conjugate if DISABLED else _best_conjugate_ir
"""`best_partner`, where inverse (along_i - along_j)^2 is subtracted from each curvature.

What is left is the curvature of the direction of the pair, made conjugate to the last direction.
"""
best_gain = _best_gain if DISABLED else _best_gain_ir
"""argmax over j of (top - values_j - fall_j) gain_ij, where gain_ij is 1 / sqrt(K_ii + K_jj - 2 K_ij), for i = row."""
tile_of_products = _tile_of_products if DISABLED else _tile_of_products_ir
"""out[g, column ...] = sum_k coef[k, g] matrix[k, column ...] for `TOGETHER` vectors g, in one tile. In place: out."""
