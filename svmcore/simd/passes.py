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

from svmcore.simd.lanes import REGISTER_BYTES, REGISTERS, Lanes, emit_for, instruction, integer, position
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


def _moved(lanes: Lanes, values: Any, step: Any, rise: Any, fall: Any, change: Any) -> list[Any]:
    """values -= step change(k) for every register k. Returns what `update_pair` does."""
    b, minus = lanes.b, lanes.splat(lanes.b.fneg(step))

    def one(k: Any) -> tuple[Any, Any]:
        value = lanes.fma(minus, change(k), lanes.load(values[0], k))
        lanes.store(value, values[0], k)
        return b.fadd(value, lanes.load(rise[0], k)), b.fadd(value, lanes.load(fall[0], k))

    top, index, low = _scan(lanes, values[1][0], one)
    return [index, top, low]


def _emit_update_pair(builder, kinds, values, gram, i, j, step, rise, fall):
    lanes, row_i, row_j = Lanes(builder, kinds.values.dtype), _row(builder, gram, i), _row(builder, gram, j)
    return _moved(lanes, values, step, rise, fall, lambda k: builder.fsub(lanes.load(row_i, k), lanes.load(row_j, k)))


def _emit_update_along(builder, kinds, values, along, gram, unit, i, j, keep, step, rise, fall):
    lanes, row_i, row_j = Lanes(builder, kinds.values.dtype), _row(builder, gram, i), _row(builder, gram, j)
    kept, scale = lanes.splat(keep), lanes.splat(unit)

    def change(k: Any) -> Any:
        difference = builder.fsub(lanes.load(row_i, k), lanes.load(row_j, k))
        new = lanes.fma(scale, difference, builder.fmul(kept, lanes.load(along[0], k)))
        lanes.store(new, along[0], k)
        return new

    return _moved(lanes, values, step, rise, fall, change)


def _best(
    lanes: Lanes, values: Any, line: Any, unit: Any, i: Any, diagonal: Any, tau: Any, fall: Any, less: Any
) -> Any:
    """`best_partner`, where `less(k, curvature)` is put in the place of each curvature. `line` is the row of i."""
    b, none = lanes.b, lanes.constant(0.0)
    twice = lanes.splat(b.fmul(unit, ir.Constant(unit.type, -2.0)))
    top, own = (lanes.splat(b.load(b.gep(array[0], [i]))) for array in (values, diagonal))
    floor = lanes.splat(tau)

    def one(k: Any) -> tuple[Any, Any]:
        slope = lanes.larger(b.fsub(top, b.fadd(lanes.load(values[0], k), lanes.load(fall[0], k))), none)
        both = b.fadd(own, lanes.load(diagonal[0], k))
        curvature = lanes.larger(less(k, lanes.fma(twice, lanes.load(line, k), both)), floor)
        return b.fmul(b.fmul(slope, slope), lanes.reciprocal(curvature)), none

    return _scan(lanes, values[1][0], one)[1]


def _emit_best_partner(builder, kinds, values, gram, row, unit, i, diagonal, tau, fall):
    lanes, line = Lanes(builder, kinds.values.dtype), _row(builder, gram, row)
    return _best(lanes, values, line, unit, i, diagonal, tau, fall, lambda _, curvature: curvature)


def _emit_best_conjugate(builder, kinds, values, along, inverse, gram, unit, i, diagonal, tau, fall):
    lanes, line = Lanes(builder, kinds.values.dtype), _row(builder, gram, i)
    here, minus = lanes.splat(builder.load(builder.gep(along[0], [i]))), lanes.splat(builder.fneg(inverse))

    def less(k: Any, curvature: Any) -> Any:
        bend = builder.fsub(here, lanes.load(along[0], k))
        return lanes.fma(builder.fmul(minus, bend), bend, curvature)

    return _best(lanes, values, line, unit, i, diagonal, tau, fall, less)


def _emit_best_gain(builder, kinds, values, gain, row, top, fall):
    lanes = Lanes(builder, kinds.values.dtype)
    line, top, none = _row(builder, gain, row), lanes.splat(top), lanes.constant(0.0)

    def one(k: Any) -> tuple[Any, Any]:
        slope = builder.fsub(top, builder.fadd(lanes.load(values[0], k), lanes.load(fall[0], k)))
        return builder.fmul(slope, lanes.load(line, k)), none

    _, index, _ = _scan(lanes, values[1][0], one)
    return index


TOGETHER = 8
"""So many vectors are multiplied by a matrix at a time."""
TILE = 2 if REGISTERS == 4 else 1  # registers of columns, which are summed for all these vectors at a time
TILE_BYTES = TILE * REGISTER_BYTES


def _emit_tile_of_products(builder, kinds, matrix, coef, out, column):
    lanes = Lanes(builder, kinds.matrix.dtype)
    columns = [builder.add(column, integer(r * lanes.count)) for r in range(TILE)]
    pairs = list(itertools.product(range(TOGETHER), range(TILE)))

    def one_row(k: Any, sums: list[Any]) -> list[Any]:
        row = _row(builder, matrix, k)
        values = [lanes.load(row, column) for column in columns]
        own = builder.gep(coef[0], [builder.mul(k, integer(TOGETHER))])
        weights = [lanes.splat(builder.load(builder.gep(own, [integer(g)]))) for g in range(TOGETHER)]
        return [lanes.fma(weights[g], values[r], total) for (g, r), total in zip(pairs, sums, strict=True)]

    sums = emit_for(builder, matrix[1][0], 1, [lanes.constant(0.0)] * len(pairs), one_row)
    for (g, r), total in zip(pairs, sums, strict=True):
        lanes.store(total, _row(builder, out, integer(g)), columns[r])


def _index(real: Any) -> Any:  # noqa: ARG001
    return types.intp


def _found(real: Any) -> Any:
    return types.Tuple((types.intp, real, real))


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


update_pair = instruction(_emit_update_pair, _update_pair, _found)
"""values -= step (gram_i - gram_j). Returns argmax and max of values + rise, and min of values + fall. In place: values."""
best_partner = instruction(_emit_best_partner, _best_partner, _index)
"""argmax over j of max(0, values_i - values_j - fall_j)^2 / max(tau, diagonal_i + diagonal_j - 2 unit gram_ij).

`row` is the row of i in the Gram matrix.
"""
update_along = instruction(_emit_update_along, _update_along, _found)
"""along = unit (gram_i - gram_j) + keep along, and then values -= step along. Returns the same as `update_pair`.

In place: along, values.
"""
best_conjugate = instruction(_emit_best_conjugate, _best_conjugate, _index)
"""`best_partner`, where inverse (along_i - along_j)^2 is subtracted from each curvature.

What is left is the curvature of the direction of the pair, made conjugate to the last direction.
"""
best_gain = instruction(_emit_best_gain, _best_gain, _index)
"""argmax over j of (top - values_j - fall_j) gain_ij, where gain_ij is 1 / sqrt(K_ii + K_jj - 2 K_ij), for i = row."""
tile_of_products = instruction(_emit_tile_of_products, _tile_of_products)
"""out[g, column ...] = sum_k coef[k, g] matrix[k, column ...] for `TOGETHER` vectors g, in one tile. In place: out."""
