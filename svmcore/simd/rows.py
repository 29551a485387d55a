"""Sparse rows times several columns at once: one entry of a row meets the weights of `GROUP` machines in vector registers.

The columns are interleaved: ``w[j * GROUP + h]`` is the weight of feature j in machine h. So an entry is loaded once for all
of them, and what it meets is one cache line. The plain meaning of the primitives stands below them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from svmcore.compiler.jit import jit
from svmcore.simd.lanes import Lanes, emit_for, instruction, integer

GROUP = 8
"""Machines at once: a cache line of weights. With 16 of them a feature takes twice the memory, and nothing was faster."""


def _entry(lanes: Lanes, data: Any, indices: Any, p: Any) -> tuple[Any, Any]:
    """Entry p of a matrix in every lane, and where the weights of its feature begin."""
    builder = lanes.b
    feature = builder.zext(builder.load(builder.gep(indices[0], [p])), ir.IntType(64))
    return lanes.splat(builder.load(builder.gep(data[0], [p]))), builder.mul(feature, integer(GROUP))


def _emit_row_products(builder, kinds, data, indices, first, last, w, out, place):
    lanes = Lanes(builder, kinds.w.dtype)
    parts = range(0, GROUP, lanes.count)

    def term(p: Any, sums: list[Any]) -> list[Any]:
        x, base = _entry(lanes, data, indices, p)
        weights = [lanes.load(w[0], builder.add(base, integer(h))) for h in parts]
        return [lanes.fma(x, weight, total) for weight, total in zip(weights, sums, strict=True)]

    def two(k: Any, sums: list[Any]) -> list[Any]:  # so that no sum waits for the one before it
        p = builder.add(first, k)
        return term(p, sums[: len(parts)]) + term(builder.add(p, integer(1)), sums[len(parts) :])

    count = builder.sub(last, first)
    even = builder.and_(count, integer(-2))
    sums = emit_for(builder, even, 2, [lanes.constant(0.0)] * (2 * len(parts)), two)
    end = builder.add(first, even)
    odd = emit_for(builder, builder.sub(count, even), 1, sums[: len(parts)], lambda k, s: term(builder.add(end, k), s))
    for h, one, other in zip(parts, odd, sums[len(parts) :], strict=True):
        lanes.store(builder.fadd(one, other), out[0], builder.add(place, integer(h)))


def _emit_add_row_times(builder, kinds, data, indices, first, last, by, place, w):
    lanes = Lanes(builder, kinds.w.dtype)
    parts = range(0, GROUP, lanes.count)
    steps = [lanes.load(by[0], builder.add(place, integer(h))) for h in parts]

    def term(k: Any, nothing: list[Any]) -> list[Any]:
        x, base = _entry(lanes, data, indices, builder.add(first, k))
        for h, step in zip(parts, steps, strict=True):
            where = builder.add(base, integer(h))
            lanes.store(lanes.fma(x, step, lanes.load(w[0], where)), w[0], where)
        return nothing

    emit_for(builder, builder.sub(last, first), 1, [], term)


def _row_products(data, indices, first, last, w, out, place):
    out[place : place + GROUP] = data[first:last] @ w.reshape(-1, GROUP)[indices[first:last]]


def _add_row_times(data, indices, first, last, by, place, w):
    steps = np.multiply.outer(data[first:last], by[place : place + GROUP])
    np.add.at(w.reshape(-1, GROUP), indices[first:last], steps)


row_products = instruction(_emit_row_products, _row_products)
"""out[place + h] = sum over entries first <= p < last of data[p] times the weights of its feature. In place: out."""
add_row_times = instruction(_emit_add_row_times, _add_row_times)
"""The weights of every feature += data[p] by[place + h], over entries first <= p < last. In place: w."""


@jit
def distinct(indptr, indices, seen):
    """Whether no row has a column twice. `seen` has a number below zero for each column. In place: seen."""
    for i in range(indptr.shape[0] - 1):
        for p in range(indptr[i], indptr[i + 1]):
            if seen[indices[p]] == i:
                return False
            seen[indices[p]] = i
    return True
