"""Loops over tiles and rows of kernel values: packing points, storing blocks, adding products."""

from __future__ import annotations

import numpy as np

from svmcore._types import LANES
from svmcore.compiler.jit import jit
from svmcore.simd.vector import (
    COLUMNS_32,
    COLUMNS_64,
    ROWS,
    add_sparse_tile,
    add_tile,
    add_tile_twice,
    store_sparse_tile,
    store_tile,
)


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
def pack_single(X, order, centre, factor, first, last, out, squares):
    """Fill panels first..last-1 with (X[order] - centre) factor, and compute the sum of squares of each point. In one pass.

    If the panels have room for one more feature, the sums of squares are that feature. In place: out, squares.
    """
    n, width = order.shape[0], X.shape[1]
    for p in range(first, last):
        panel, start = out[p], p * LANES
        count, own, points = min(LANES, n - start), squares[start : start + LANES], order[start : start + LANES]
        for lane in range(LANES):
            own[lane] = 0.0
        for k in range(width):
            c, row = centre[k], panel[k]
            for lane in range(count):
                value = (X[points[lane], k] - c) * factor
                row[lane] = value
                own[lane] += value * value
            for lane in range(count, LANES):
                row[lane] = 0.0
        if panel.shape[0] > width:
            for lane in range(LANES):
                panel[width, lane] = squares[start + lane]


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
def add_block_32(shape, rows, coef, panels, first, last, out):
    """out += coef' K(rows, panels) for panels first..last-1. K is never stored. In place: out."""
    for p in range(first, last):
        for lane in range(0, LANES, COLUMNS_32):
            for g in range(rows.shape[0]):
                add_tile(shape, rows, g, panels, p, lane, coef, out)


@jit
def add_block_64(shape, rows, coef, panels, first, last, out):
    """`add_block_32` in float64."""
    for p in range(first, last):
        for lane in range(0, LANES, COLUMNS_64):
            for g in range(rows.shape[0]):
                add_tile(shape, rows, g, panels, p, lane, coef, out)


@jit
def add_symmetric(shape, rows, coef, panels, weights, first, step, out, sums):
    """One part of the product K weights among one set of points. With all parts done, it is out + sums.

    The part belongs to the panels first, first + step, and so on. A panel's share are the values between its columns and
    the rows of the same panel and of all panels behind it. Values off the diagonal are used twice: once for their column,
    once for their row.

    `rows` are the points of the panels. The rows of each panel are filled up to whole groups, with rows of coefficient 0.
    `coef` are the coefficients by row, and `weights` are the same by column. In place: out (by column), sums (by row).
    """
    each = rows.shape[0] // panels.shape[0]
    for p in range(first, panels.shape[0], step):
        for lane in range(0, LANES, COLUMNS_64):
            for g in range(p * each, (p + 1) * each):
                add_tile(shape, rows, g, panels, p, lane, coef, out)
            for g in range((p + 1) * each, rows.shape[0]):
                add_tile_twice(shape, rows, g, panels, p, lane, coef, weights, out, sums)


@jit
def store_block_32(shape, rows, panels, lower, first, last, out):
    """out = K(rows, panels) for panels first..last-1. In place: out.

    With `lower`, rows and columns are the same points. Then only the tiles that reach the lower triangle are stored.
    """
    for p in range(first, last):
        for lane in range(0, LANES, COLUMNS_32):
            for g in range((p * LANES + lane) // ROWS if lower else 0, rows.shape[0]):
                store_tile(shape, rows, g, panels, p, lane, out)


MIRROR = 16  # so many rows and columns are transposed at a time: a row of so many float32 values fills a wide register


@jit
def mirror(out, count, first, last):
    """Copy the lower triangle of a symmetric matrix to the upper one, for strips of MIRROR rows. In place: out."""
    for strip in range(first, last):
        top = strip * MIRROR
        bottom = min(top + MIRROR, count)
        if bottom - top == MIRROR:
            for left in range(0, top, MIRROR):
                for j in range(left, left + MIRROR):
                    for i in range(MIRROR):  # LLVM knows the length of this loop, and makes vector code of it
                        out[j, top + i] = out[top + i, j]
        for j in range(top if bottom - top == MIRROR else 0, bottom):
            for i in range(max(top, j + 1), bottom):
                out[j, i] = out[i, j]


@jit
def store_block_64(shape, rows, panels, lower, first, last, out):
    """`store_block_32` in float64."""
    for p in range(first, last):
        for lane in range(0, LANES, COLUMNS_64):
            for g in range((p * LANES + lane) // ROWS if lower else 0, rows.shape[0]):
                store_tile(shape, rows, g, panels, p, lane, out)


@jit
def gather_lower(stored, points, scale, rounding, out):
    """Write the lower triangle of scale stored[points, points] + rounding, in out's own number type. In place: out."""
    for i in range(points.shape[0]):
        row = stored[points[i]]
        for j in range(i + 1):
            out[i, j] = row[points[j]] * scale + rounding


@jit
def gather_known(stored, slots, points, scale, rounding, first, last, out):
    """Write those of the rows first..last-1 of out = scale K + rounding whose points have a stored column.

    K is that among the points. `slots[i]` is the row of `stored` that holds the column of point i, or -1. In place: out, in
    its own number type.
    """
    for i in range(first, last):
        if slots[i] >= 0:
            row = stored[slots[i]]
            for j in range(points.shape[0]):
                out[i, j] = row[points[j]] * scale + rounding


@jit
def complete_known(slots, block, places, scale, rounding, first, last, out):
    """Write the rows that `gather_known` left out: those of the points without a stored column.

    `block` is K among these points, and `places` are their places among all points. Rows first..last-1 of `block` are
    used here. Values against the other points come from the rows that `gather_known` has written. In place: out.
    """
    for top in range(first, last, MIRROR):
        bottom = min(top + MIRROR, last)
        for j in range(slots.shape[0]):
            if slots[j] >= 0:
                for i in range(top, bottom):
                    out[places[i], j] = out[j, places[i]]
        for i in range(top, bottom):
            own = out[places[i]]
            for j in range(places.shape[0]):
                own[places[j]] = block[i, j] * scale + rounding


STRETCH = 1024  # so many columns are summed at a time: they stay in the first-level cache


@jit
def add_rows(stored, rows, coef, first, last, out):
    """out += coef' stored[rows] for the columns first..last-1. In place: out.

    Four rows are summed in the number type of `stored`, and their sum is added in float64.
    """
    count = rows.shape[0]
    for left in range(first, last, STRETCH):
        right = min(left + STRETCH, last)
        piece = out[left:right]
        for r in range(0, count - 3, 4):
            a, b = stored[rows[r], left:right], stored[rows[r + 1], left:right]
            c, d = stored[rows[r + 2], left:right], stored[rows[r + 3], left:right]
            wa, wb, wc, wd = coef[r], coef[r + 1], coef[r + 2], coef[r + 3]
            for j in range(right - left):
                piece[j] += np.float64((wa * a[j] + wb * b[j]) + (wc * c[j] + wd * d[j]))
        for r in range(count - count % 4, count):
            a, wa = stored[rows[r], left:right], coef[r]
            for j in range(right - left):
                piece[j] += np.float64(wa * a[j])


SPARSE_ROWS = 8  # so many sparse rows are summed in float32 registers, and their sum is added in float64


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
def add_sparse_32(shape, csr, points, coef, columns, table, panels, first, last, out):
    """out += sum_r coef_r K(points_r, columns) for panels first..last-1. Sums over entries are in float32. In place: out.

    With a table, `panels` is room for one panel. The table is all zeros before the call and after it.
    """
    count = points.shape[0]
    for p in range(first, last):
        panel = panels[_enter(columns, p, table, panels)]
        for lane in range(0, LANES, COLUMNS_32):
            for r in range(0, count, SPARSE_ROWS):
                end = min(r + SPARSE_ROWS, count)
                add_sparse_tile(shape, csr, points, (r, end), panel, table, columns.norms, p, lane, coef, out)
        _leave(columns, p, table)


@jit
def add_sparse_64(shape, csr, points, coef, columns, table, panels, first, last, out):
    """`add_sparse_32` in float64."""
    count = points.shape[0]
    for p in range(first, last):
        panel = panels[_enter(columns, p, table, panels)]
        for lane in range(0, LANES, COLUMNS_64):
            add_sparse_tile(shape, csr, points, (0, count), panel, table, columns.norms, p, lane, coef, out)
        _leave(columns, p, table)


@jit
def store_sparse_32(shape, csr, points, columns, table, panels, lower, first, last, out):
    """out[r] = K(points_r, columns) for panels first..last-1. With `lower`, only what reaches the lower triangle.

    In place: out.
    """
    for p in range(first, last):
        panel = panels[_enter(columns, p, table, panels)]
        for lane in range(0, LANES, COLUMNS_32):
            for r in range(p * LANES if lower else 0, points.shape[0]):
                store_sparse_tile(shape, csr, points[r], panel, table, columns.norms, p, lane, out, r)
        _leave(columns, p, table)


@jit
def store_sparse_64(shape, csr, points, columns, table, panels, lower, first, last, out):
    """`store_sparse_32` in float64."""
    for p in range(first, last):
        panel = panels[_enter(columns, p, table, panels)]
        for lane in range(0, LANES, COLUMNS_64):
            for r in range(p * LANES if lower else 0, points.shape[0]):
                store_sparse_tile(shape, csr, points[r], panel, table, columns.norms, p, lane, out, r)
        _leave(columns, p, table)


@jit
def add_weighted_rows(out, rows, slot, coef):
    """out += sum_k coef_k rows[slot_k]. In place: out."""
    n = out.shape[0]
    width = 2048
    for start in range(0, n, width):
        stop = min(start + width, n)
        o = out[start:stop]
        k = 0
        while k + 3 < slot.shape[0]:
            a = rows[slot[k], start:stop]
            b = rows[slot[k + 1], start:stop]
            c = rows[slot[k + 2], start:stop]
            d = rows[slot[k + 3], start:stop]
            a0, b0, c0, d0 = coef[k], coef[k + 1], coef[k + 2], coef[k + 3]
            for i in range(stop - start):
                o[i] += (a0 * a[i] + b0 * b[i]) + (c0 * c[i] + d0 * d[i])
            k += 4
        while k < slot.shape[0]:
            a = rows[slot[k], start:stop]
            a0 = coef[k]
            for i in range(stop - start):
                o[i] += a0 * a[i]
            k += 1


@jit
def copy_block(out, rows, slot, index, columns):
    """out = K[index, columns]. In place: out."""
    for k in range(index.shape[0]):
        row = rows[slot[index[k]]]
        for j in range(columns.shape[0]):
            out[k, j] = row[columns[j]]
