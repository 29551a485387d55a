"""Loops over tiles and rows of kernel values: storing blocks, adding products."""

from __future__ import annotations

import numpy as np

from svmcore._types import LANES
from svmcore.compiler.jit import jit
from svmcore.simd.packing import MIRROR, copy_panels, mirror, pack_rows_of
from svmcore.simd.vector import COLUMNS_64, ROWS, SPAN, add_tile, add_tile_twice, store_tile

BAND = 1 << 19
"""Rows are read in bands of so many bytes, which stay in a cache while the panels pass by."""


@jit
def _band(rows):
    """How many row groups a band has."""
    return max(1, BAND // (rows.shape[1] * ROWS * rows.itemsize))


@jit
def add_block(shape, rows, coef, panels, first, last, out):
    """out += coef' K(rows, panels) for panels first..last-1. K is never stored. In place: out."""
    band = _band(rows)
    for top in range(0, rows.shape[0], band):
        for p in range(first, last):
            for lane in range(0, LANES, SPAN // panels.itemsize):
                for g in range(top, min(top + band, rows.shape[0])):
                    add_tile(shape, rows, g, panels, p, lane, coef, out)


@jit
def add_symmetric(shape, rows, coef, panels, weights, first, last, out, sums):
    """The parts first..last-1 of the product K weights among one set of points, which is the sum of all of out and sums.

    Part q belongs to the panels q, q + parts, and so on. A panel's share are the values between its columns and the rows of
    the same panel and of all panels behind it. Values off the diagonal are used twice: once for their column, once for
    their row.

    `rows` are the points of the panels. The rows of each panel are filled up to whole groups, with rows of coefficient 0.
    `coef` are the coefficients by row, and `weights` are the same by column. In place: out (by part and column), sums (by
    part and row).
    """
    each, band = rows.shape[0] // panels.shape[0], _band(rows)
    for top in range(0, rows.shape[0], band):
        end = min(top + band, rows.shape[0])
        for q in range(first, last):
            by_column, by_row = out[q], sums[q]
            for p in range(q, min(panels.shape[0], -(-end // each)), out.shape[0]):
                for lane in range(0, LANES, COLUMNS_64):
                    for g in range(max(top, p * each), min(end, (p + 1) * each)):
                        add_tile(shape, rows, g, panels, p, lane, coef, by_column)
                    for g in range(max(top, (p + 1) * each), end):
                        add_tile_twice(shape, rows, g, panels, p, lane, coef, weights, by_column, by_row)


@jit
def store_block(shape, rows, panels, lower, first, last, out):
    """out = K(rows, panels) for panels first..last-1. In place: out.

    With `lower`, rows and columns are the same points. Then only the tiles that reach the lower triangle are stored.
    """
    band = _band(rows)
    for top in range(0, rows.shape[0], band):
        for p in range(first, last):
            for lane in range(0, LANES, SPAN // panels.itemsize):
                start = max(top, (p * LANES + lane) // ROWS) if lower else top
                for g in range(start, min(top + band, rows.shape[0])):
                    store_tile(shape, rows, g, panels, p, lane, out)


@jit
def gram_of_few(shape, X, order, centre, offset, rows, panels, out):
    """out = K + offset among all points, in the order that they have. The centre is zero. In place: all behind the offset."""
    n = X.shape[0]
    pack_rows_of(X, order, centre, 1.0, centre, rows)
    copy_panels(X, order, panels)
    store_block(shape, rows, panels, True, 0, panels.shape[0], out)
    if offset != 0.0:
        for i in range(n):
            for j in range(i + 1):
                out[i, j] += offset
    mirror(out, n, 0, (n + MIRROR - 1) // MIRROR)


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


_TOGETHER = 16  # so many columns are copied at a time


@jit
def complete_known(slots, block, places, scale, rounding, first, last, out):
    """Write the rows that `gather_known` left out: those of the points without a stored column.

    `block` is K among these points, and `places` are their places among all points. Rows first..last-1 of `block` are
    used here. Values against the other points come from the rows that `gather_known` has written. In place: out.
    """
    for top in range(first, last, _TOGETHER):
        bottom = min(top + _TOGETHER, last)
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


@jit
def copy_block(out, rows, slot, index, columns):
    """out = K[index, columns]. In place: out."""
    for k in range(index.shape[0]):
        row = rows[slot[index[k]]]
        for j in range(columns.shape[0]):
            out[k, j] = row[columns[j]]
