"""Points packed as tiles read them: panels of columns, and groups of rows. A triangle mirrored.

Panels hold a matrix the other way round than X does, and a mirrored triangle is one. Such a copy goes by squares that fit
the registers: a square is read row by row, turned there, and written row by row. The plain meaning stands beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from svmcore._types import LANES
from svmcore.compiler.jit import jit
from svmcore.simd.lanes import REGISTERS, instruction, integer, position
from svmcore.simd.vector import ROWS

SQUARE = 8
"""So many features of so many points are packed at a time."""
MIRROR = 16 if REGISTERS == 4 else 8
"""So many rows and columns of a triangle are mirrored at a time."""


def _turned(builder: Any, rows: list[Any]) -> list[Any]:
    """The columns of a square of registers. Each step interleaves the registers of both halves."""
    count, half = len(rows), len(rows) // 2
    kind = ir.VectorType(ir.IntType(32), count)
    masks = [ir.Constant(kind, [start + i // 2 + i % 2 * count for i in range(count)]) for start in (0, half)]
    for _ in range(count.bit_length() - 1):
        rows = [builder.shuffle_vector(rows[i], rows[i + half], mask) for i in range(half) for mask in masks]
    return rows


def _at(builder: Any, array: Any, count: int, *indices: Any) -> Any:
    """A pointer to `count` neighbours of an array, which begin here."""
    pointer = builder.gep(array[0], [position(builder, array[1], *indices)])
    return builder.bitcast(pointer, ir.VectorType(pointer.type.pointee, count).as_pointer())


def _emit_turn(builder, kinds, matrix, top, left):
    align = kinds.matrix.dtype.bitwidth // 8

    def row(first: Any, i: int, column: Any) -> Any:
        return _at(builder, matrix, MIRROR, builder.add(first, integer(i)), column)

    square = [builder.load(row(top, i, left), align=align) for i in range(MIRROR)]
    for j, column in enumerate(_turned(builder, square)):
        builder.store(column, row(left, j, top), align=align)


def _emit_pack_square(builder, kinds, X, points, first, k, centre, factor, panel, squares):
    assert kinds.X.layout == "C"
    assert kinds.X.dtype == types.float64
    double, single = ir.VectorType(ir.DoubleType(), SQUARE), kinds.panel.dtype == types.float32
    zeros, empty = (
        ir.Constant(ir.VectorType(ir.IntType(32), SQUARE), [0] * SQUARE),
        ir.Constant(double, ir.Undefined),
    )

    def splat(x: Any) -> Any:
        return builder.shuffle_vector(builder.insert_element(empty, x, integer(0)), empty, zeros)

    places = [builder.load(builder.gep(points[0], [builder.add(first, integer(i))])) for i in range(SQUARE)]
    rows = [builder.load(_at(builder, X, SQUARE, place, k), align=8) for place in places]
    own, scale = _at(builder, squares, SQUARE, first), splat(factor)
    total = builder.load(own, align=8)
    for j, row in enumerate(_turned(builder, rows)):
        feature = builder.add(k, integer(j))
        middle = splat(builder.load(builder.gep(centre[0], [feature])))
        value = builder.fmul(builder.fsub(row, middle), scale)
        total = builder.fadd(total, builder.fmul(value, value))
        value = builder.fptrunc(value, ir.VectorType(ir.FloatType(), SQUARE)) if single else value
        builder.store(value, _at(builder, panel, SQUARE, feature, first), align=4 if single else 8)
    builder.store(total, own, align=8)


def _turn(matrix, top, left):
    matrix[left : left + MIRROR, top : top + MIRROR] = matrix[top : top + MIRROR, left : left + MIRROR].T


def _pack_square(X, points, first, k, centre, factor, panel, squares):
    lanes, features = slice(first, first + SQUARE), slice(k, k + SQUARE)
    values = ((X[points[lanes], features] - centre[features]) * factor).T
    panel[features, lanes] = values
    squares[lanes] += (values * values).sum(axis=0)


turn = instruction(_emit_turn, _turn)
"""matrix[left + j, top + i] = matrix[top + i, left + j] for a square of MIRROR rows and columns. In place: matrix."""
pack_square = instruction(_emit_pack_square, _pack_square)
"""panel[k + j, first + i] = (X[points[first + i], k + j] - centre[k + j]) factor for a square; squares += its squares.

In place: panel, squares.
"""


@jit
def pack_rows(panels, points, out):
    """Copy points to row groups: out[g, k, r] is feature k of points[g * ROWS + r]. What is left of out becomes zero.

    The copy goes feature by feature, since neighbouring points often share the cache lines of a panel. In place: out.
    """
    width = panels.shape[1]
    count = points.shape[0]
    for g in range(out.shape[0]):
        if (g + 1) * ROWS <= count:
            own = points[g * ROWS : (g + 1) * ROWS]
            for k in range(width):
                for r in range(ROWS):
                    p = own[r] // LANES
                    out[g, k, r] = panels[p, k, own[r] - p * LANES]
        else:
            for k in range(width):
                for r in range(ROWS):
                    out[g, k, r] = 0.0
            for t in range(g * ROWS, count):
                p = points[t] // LANES
                for k in range(width):
                    out[g, k, t - g * ROWS] = panels[p, k, points[t] - p * LANES]


@jit
def pack_panels(X, order, centre, factor, first, last, out, squares):
    """Fill panels first..last-1 with (X[order] - centre) factor, and compute the sum of squares of each point. In one pass.

    If the panels have room for more features, the sums of squares are the next one. In place: out, squares.
    """
    n, width = order.shape[0], X.shape[1]
    features = width - width % SQUARE
    for p in range(first, last):
        panel, start = out[p], p * LANES
        count, own, points = min(LANES, n - start), squares[start : start + LANES], order[start : start + LANES]
        for lane in range(LANES):
            own[lane] = 0.0
        lanes = count - count % SQUARE
        for lane in range(0, lanes, SQUARE):
            for k in range(0, features, SQUARE):
                pack_square(X, points, lane, k, centre, factor, panel, own)
        for k in range(width):
            c, row = centre[k], panel[k]
            for lane in range(lanes if k < features else 0, count):
                value = (X[points[lane], k] - c) * factor
                row[lane] = value
                own[lane] += value * value
            for lane in range(count, LANES):
                row[lane] = 0.0
        if panel.shape[0] > width:
            for lane in range(LANES):
                panel[width, lane] = own[lane]


@jit
def copy_panels(X, order, out):
    """Panels of X[order], of so few points that code for squares takes longer to compile than it saves. In place: out."""
    for p in range(out.shape[0]):
        panel, own = out[p], order[p * LANES : min((p + 1) * LANES, order.shape[0])]
        for lane in range(LANES):
            for k in range(X.shape[1]):
                panel[k, lane] = X[own[lane], k] if lane < own.shape[0] else 0.0


@jit
def pack_twice(X, order, moved, factor, centre, single, double, squares):
    """Panels in double precision, and in single precision, times a factor; these are moved to the mean of X if `moved`.

    In place: centre, single, double, squares.
    """
    for k in range(X.shape[1]):
        centre[k] = 0.0
    copy_panels(X, order, double)
    if moved:
        for i in range(X.shape[0]):
            for k in range(X.shape[1]):
                centre[k] += X[i, k]
        for k in range(X.shape[1]):
            centre[k] /= X.shape[0]
    pack_panels(X, order, centre, factor, 0, single.shape[0], single, squares)


_NEAREST = np.float32(12582912.0)  # 1.5 * 2**23: adding and subtracting it rounds to the nearest integer


@jit
def pack_pairs(panels, width, unit, out, squares, left):
    """Round the features of float32 panels, times `unit`, to integers of 16 bits. Two of them share a number of `out`.

    The last feature of `out` stays as it is. `squares` are sums of the squares of the integers, `left` those of what rounding
    has left out. In place: out, squares, left.
    """
    for p in range(panels.shape[0]):
        panel, sums, rest = panels[p], squares[p * LANES : (p + 1) * LANES], left[p * LANES : (p + 1) * LANES]
        for lane in range(LANES):
            sums[lane], rest[lane] = 0.0, np.float32(0.0)
        for k in range((width + 1) // 2):
            first, second, row = panel[2 * k], panel[min(2 * k + 1, width - 1)], out[p, k]
            factor = unit if 2 * k + 1 < width else np.float32(0.0)
            for lane in range(LANES):
                x, z = first[lane] * unit, second[lane] * factor
                a, b = (x + _NEAREST) - _NEAREST, (z + _NEAREST) - _NEAREST
                row[lane] = (np.int32(a) & 0xFFFF) | (np.int32(b) << 16)
                sums[lane] += np.float64(a) * np.float64(a) + np.float64(b) * np.float64(b)
                rest[lane] += (x - a) * (x - a) + (z - b) * (z - b)


@jit
def pack_rows_of(X, points, centre, factor, last, out):
    """`pack_rows` of (X - centre) factor, from X itself: its rows lie in one piece. In place: out.

    If there is room for one more feature, it is that of the points in `last`.
    """
    count, width = points.shape[0], X.shape[1]
    for t in range(out.shape[0] * ROWS):
        g = t // ROWS
        group, r = out[g], t - g * ROWS
        if t < count:
            row = X[points[t]]
            for k in range(width):
                group[k, r] = (row[k] - centre[k]) * factor
            if group.shape[0] > width:
                group[width, r] = last[points[t]]
        else:
            for k in range(group.shape[0]):
                group[k, r] = 0.0


@jit
def gather_panels(panels, points, out):
    """Copy points to panels of their own, feature by feature. What is left of the last panel becomes zero. In place: out."""
    width = panels.shape[1]
    count = points.shape[0]
    for q in range(out.shape[0]):
        own = points[q * LANES : min((q + 1) * LANES, count)]
        for k in range(width):
            row = out[q, k]
            for j in range(own.shape[0]):
                p = own[j] // LANES
                row[j] = panels[p, k, own[j] - p * LANES]
            for j in range(own.shape[0], LANES):
                row[j] = 0.0


@jit
def mirror(out, count, first, last):
    """Copy the lower triangle of a symmetric matrix to the upper one, for strips of MIRROR rows. In place: out."""
    for strip in range(first, last):
        top = strip * MIRROR
        bottom = min(top + MIRROR, count)
        whole = top if bottom - top == MIRROR else 0
        for left in range(0, whole, MIRROR):
            turn(out, top, left)
        for j in range(whole, bottom):
            for i in range(max(top, j + 1), bottom):
                out[j, i] = out[i, j]
