"""Kernel values: rows, blocks and products, dense and sparse, for every kernel. There is no label, no C and no margin here.

A row is computed in two steps. The *measure* of source x and target z is their dot product, their squared distance or their
city-block distance. The *epilogue* turns a block of measures into kernel values. Squared distances are sums of squared
differences, because the expansion |x|^2 + |z|^2 - 2 x'z cancels when the data are not centred.

Targets are read in panels of `LANES` points, feature by feature. So the inner loop runs over neighbouring targets. Every
output vector is padded to whole panels. Lanes of the padding hold finite values without meaning.
"""

from __future__ import annotations

import math

import numpy as np

from svmcore._types import LANES, KernelKind
from svmcore.compiler.jit import jit
from svmcore.simd.sums import dot
from svmcore.simd.vector import EDGE, FORM_COLUMNS, add_form, exp_nonpositive, store_products

LINEAR = int(KernelKind.LINEAR)
POLY = int(KernelKind.POLY)
SIGMOID = int(KernelKind.SIGMOID)
RBF = int(KernelKind.RBF)
LAPLACIAN = int(KernelKind.LAPLACIAN)
PRECOMPUTED = int(KernelKind.PRECOMPUTED)

_CANCELS = 1e-4  # a difference that is below this share of its terms is computed in another way


@jit(sums=True)
def _dot_panel(x, panel, out):
    """out_j = sum_k x_k panel_kj. The number of features is a multiple of 4."""
    for j in range(LANES):
        out[j] = 0.0
    for k in range(0, panel.shape[0], 4):
        a, b, c, d = x[k], x[k + 1], x[k + 2], x[k + 3]
        for j in range(LANES):
            out[j] += (a * panel[k, j] + b * panel[k + 1, j]) + (c * panel[k + 2, j] + d * panel[k + 3, j])


@jit(sums=True)
def _square_panel(x, panel, out):
    """out_j = sum_k (x_k - panel_kj)^2. The number of features is a multiple of 4."""
    for j in range(LANES):
        out[j] = 0.0
    for k in range(0, panel.shape[0], 4):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        for j in range(LANES):
            a = x0 - panel[k, j]
            b = x1 - panel[k + 1, j]
            c = x2 - panel[k + 2, j]
            d = x3 - panel[k + 3, j]
            out[j] += (a * a + b * b) + (c * c + d * d)


@jit(sums=True)
def _cityblock_panel(x, panel, out):
    """out_j = sum_k |x_k - panel_kj|."""
    for j in range(LANES):
        out[j] = 0.0
    for k in range(panel.shape[0]):
        a = x[k]
        for j in range(LANES):
            out[j] += abs(a - panel[k, j])


@jit
def _left_over(kind, source, i, points, t):
    """The distance from the origin of source i over the features that target t does not store."""
    total = 0.0
    e = points.indptr[t]
    for k in range(source.indptr[i], source.indptr[i + 1]):
        while e < points.indptr[t + 1] and points.indices[e] < source.indices[k]:
            e += 1
        if e == points.indptr[t + 1] or points.indices[e] != source.indices[k]:
            value = source.data[k]
            total += abs(value) if kind == LAPLACIAN else value * value
    return total


@jit
def _sparse_measure(kind, x, total, source, i, points, t):
    """The measure of the source i, which is spread out in x, and target t. Only the stored entries of the target are read.

    For distances, all other features contribute what is left of `total`, which is the source's distance from the origin.
    Where this difference cancels, these features are summed directly.
    """
    measure = 0.0
    seen = 0.0
    if kind == RBF:
        for e in range(points.indptr[t], points.indptr[t + 1]):
            a = x[points.indices[e]]
            difference = a - points.data[e]
            measure += difference * difference
            seen += a * a
        left = total - seen
        return measure + (left if left > _CANCELS * total else _left_over(kind, source, i, points, t))
    if kind == LAPLACIAN:
        for e in range(points.indptr[t], points.indptr[t + 1]):
            a = x[points.indices[e]]
            measure += abs(a - points.data[e])
            seen += abs(a)
        left = total - seen
        return measure + (left if left > _CANCELS * total else _left_over(kind, source, i, points, t))
    for e in range(points.indptr[t], points.indptr[t + 1]):
        measure += x[points.indices[e]] * points.data[e]
    return measure


@jit
def load_source(kind, points, i, x):
    """Write point i to the dense scratch x and return its distance from the origin (sparse rbf and laplacian only)."""
    if points.panels.shape[0] > 0:
        p = i // LANES
        lane = i - p * LANES
        for k in range(points.panels.shape[1]):
            x[k] = points.panels[p, k, lane]
        return 0.0
    total = 0.0
    if kind != PRECOMPUTED:
        for e in range(points.indptr[i], points.indptr[i + 1]):
            value = points.data[e]
            x[points.indices[e]] = value
            total += abs(value) if kind == LAPLACIAN else value * value
    return total


@jit
def unload_source(points, i, x):
    """Make the scratch x zero again after a sparse source."""
    if points.panels.shape[0] == 0 and points.indptr.shape[0] > 1:
        for e in range(points.indptr[i], points.indptr[i + 1]):
            x[points.indices[e]] = 0.0


@jit
def from_measures(kernel, out, bits, power):
    """The epilogue: turn one block of measures into kernel values. In place: out, and bits, which the exponential needs."""
    kind = kernel.kind
    if kind == RBF or kind == LAPLACIAN:
        for j in range(LANES):
            out[j] *= -kernel.gamma
        exp_nonpositive(out, bits, power)
    elif kind == POLY:
        for j in range(LANES):
            base = kernel.gamma * out[j] + kernel.coef0
            value = 1.0
            for _ in range(kernel.degree):
                value *= base
            out[j] = value
    elif kind == SIGMOID:
        for j in range(LANES):
            out[j] = math.tanh(kernel.gamma * out[j] + kernel.coef0)
    if kernel.offset != 0.0:
        for j in range(LANES):
            out[j] += kernel.offset


@jit
def kernel_row(kernel, source, i, target, first, last, scratch, out):
    """k(source_i, target_t) for the panels first..last-1 of the targets; panel p goes to out[(p - first) * LANES:].

    `scratch` is that of `new_scratch`. With sparse sources its x is zero before and after. In place: out.
    """
    x, bits, power = scratch
    kind = kernel.kind
    total = load_source(kind, source, i, x)
    dense = target.panels.shape[0] > 0
    for p in range(first, last):
        block = out[(p - first) * LANES : (p - first + 1) * LANES]
        if dense:
            panel = target.panels[p]
            if kind == RBF:
                _square_panel(x, panel, block)
            elif kind == LAPLACIAN:
                _cityblock_panel(x, panel, block)
            else:
                _dot_panel(x, panel, block)
        else:
            start = p * LANES
            count = min(LANES, target.n - start)
            if kind == PRECOMPUTED:
                row = source.gram[source.ids[i]]
                for j in range(count):
                    block[j] = row[target.ids[start + j]]
            else:
                for j in range(count):
                    block[j] = _sparse_measure(kind, x, total, source, i, target, start + j)
            for j in range(count, LANES):
                block[j] = 0.0
        from_measures(kernel, block, bits, power)
    unload_source(source, i, x)


@jit
def kernel_block(kernel, source, rows, target, scratch, out):
    """out[r, t] = k(source_rows[r], target_t) for all targets, padded to whole panels. In place: out."""
    panels = (target.n + LANES - 1) // LANES
    for r in range(rows.shape[0]):
        kernel_row(kernel, source, rows[r], target, np.int64(0), panels, scratch, out[r])


CHUNK_VALUES = 16384  # so many features of sources stay in a core's second-level cache while all targets pass by


@jit
def kernel_product(kernel, target, start, stop, source, coef, scratch, row, out):
    """out_t = sum_s coef_s k(target_t, source_s) for the targets start..stop-1. In place: out.

    The sum runs over chunks of source panels in a fixed order. So it does not depend on how targets are shared out. `row` is
    scratch for a chunk, which has `CHUNK_VALUES` features. `coef` is padded with zeros to whole panels.
    """
    panels = (source.n + LANES - 1) // LANES
    chunk = row.shape[0] // LANES
    for t in range(start, stop):
        out[t] = 0.0
    for first in range(0, panels, chunk):
        last = min(first + chunk, panels)
        for t in range(start, stop):
            kernel_row(kernel, target, t, source, first, last, scratch, row)
            out[t] += dot(row, coef[first * LANES : last * LANES], (last - first) * LANES)


@jit(sums=True)
def given_product(gram, rows, columns, coef, first, last, out):
    """out_t = sum_s coef_s gram[rows_t, columns_s] for the rows first..last-1. In place: out."""
    for t in range(first, last):
        row = gram[rows[t]]
        total = 0.0
        for s in range(columns.shape[0]):
            total += coef[s] * row[columns[s]]
        out[t] = total


@jit
def weighted_gram(panels, weight, count, out):
    """out = Z' diag(weight) Z for the first `count` features. At least its lower half is written. In place: out."""
    for i in range(0, count, EDGE):
        for j in range(0, i + 1, EDGE):
            store_products(panels, weight, i, j, out)


# A polynomial kernel of degree 2 or 3 is a polynomial in x. So a sum of many of them is one polynomial, with few coefficients
# however many there are. A constant 1 follows the features. `scale` holds gamma for each feature, and coef0 for the constant.


@jit
def form_of(panels, coef, degree, scale, weight, gram, out):
    """The coefficients of f(x) = sum_s coef_s (sum_k scale_k z_sk x_k)^degree. In place: out, and scratch weight and gram."""
    last = panels.shape[1] - 1
    position = 0
    for i in range(last if degree == 2 else 0, last + 1):
        for p in range(panels.shape[0]):
            for lane in range(LANES):
                weight[p * LANES + lane] = coef[p * LANES + lane] * panels[p, i, lane]
        weighted_gram(panels, weight, i + 1, gram)
        for j in range(i + 1):
            for k in range(j + 1):
                times = scale[j] * scale[k] * (1.0 if j == k else 2.0)
                if degree == 3:
                    times *= scale[i] * (1.0 if i == k else 1.5 if i == j else 3.0)
                out[position] = times * gram[j, k]
                position += 1


@jit
def add_forms(panels, weights, degree, first, last, out):
    """out += f(panels) for panels first..last-1. `weights` are the coefficients of f by `form_of`. In place: out."""
    lead = panels.shape[1] - 1 if degree == 2 else 0
    for p in range(first, last):
        for lane in range(0, LANES, FORM_COLUMNS):
            add_form(panels, p, lane, weights, lead, out)
