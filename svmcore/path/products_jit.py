"""Products of symmetric matrices with vectors, several rows or columns at a time."""

from __future__ import annotations

from svmcore.compiler.jit import jit
from svmcore.simd.sums import dot


@jit(sums=True)
def product(K, n_rows, d, n, out):
    """out = K d on the first rows and columns, four rows at a time. In place: out."""
    s = 0
    while s + 3 < n_rows:
        r0, r1, r2, r3 = K[s], K[s + 1], K[s + 2], K[s + 3]
        t0 = t1 = t2 = t3 = 0.0
        for k in range(n):
            t0 += r0[k] * d[k]
            t1 += r1[k] * d[k]
            t2 += r2[k] * d[k]
            t3 += r3[k] * d[k]
        out[s] = t0
        out[s + 1] = t1
        out[s + 2] = t2
        out[s + 3] = t3
        s += 4
    while s < n_rows:
        out[s] = dot(K[s], d, n)
        s += 1


@jit(sums=True)
def symmetric_product(A, n, b, x):
    """x = A b for a symmetric A whose lower triangle is stored. In place: x.

    Four rows at a time. Each entry is read once, for its row and for its column.
    """
    k = 0
    while k + 3 < n:
        r0, r1, r2, r3 = A[k], A[k + 1], A[k + 2], A[k + 3]
        b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
        along, out = b[:k], x[:k]
        t0 = t1 = t2 = t3 = 0.0
        for j in range(k):
            bj = along[j]
            t0 += r0[j] * bj
            t1 += r1[j] * bj
            t2 += r2[j] * bj
            t3 += r3[j] * bj
            out[j] += (b0 * r0[j] + b1 * r1[j]) + (b2 * r2[j] + b3 * r3[j])
        x[k] = t0 + r0[k] * b0 + r1[k] * b1 + r2[k] * b2 + r3[k] * b3
        x[k + 1] = t1 + r1[k] * b0 + r1[k + 1] * b1 + r2[k + 1] * b2 + r3[k + 1] * b3
        x[k + 2] = t2 + r2[k] * b0 + r2[k + 1] * b1 + r2[k + 2] * b2 + r3[k + 2] * b3
        x[k + 3] = t3 + r3[k] * b0 + r3[k + 1] * b1 + r3[k + 2] * b2 + r3[k + 3] * b3
        k += 4
    while k < n:
        row = A[k]
        bk = b[k]
        total = 0.0
        for j in range(k):
            total += row[j] * b[j]
            x[j] += bk * row[j]
        x[k] = total + bk * row[k]
        k += 1


@jit
def four_products(rows, slot, point, coef, n_slots, out):
    """out[j] -= K[:, slots] coef[j] for four j, in one pass over the rows. In place: out."""
    n = out.shape[1]
    width = 1024
    for start in range(0, n, width):
        stop = min(start + width, n)
        k = 0
        while k + 3 < n_slots:
            r0, r1 = rows[slot[point[k]], start:stop], rows[slot[point[k + 1]], start:stop]
            r2, r3 = rows[slot[point[k + 2]], start:stop], rows[slot[point[k + 3]], start:stop]
            for j in range(4):
                to, c = out[j, start:stop], coef[j]
                c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
                for i in range(stop - start):
                    to[i] -= (c0 * r0[i] + c1 * r1[i]) + (c2 * r2[i] + c3 * r3[i])
            k += 4
        while k < n_slots:
            r0 = rows[slot[point[k]], start:stop]
            for j in range(4):
                to, c0 = out[j, start:stop], coef[j, k]
                for i in range(stop - start):
                    to[i] -= c0 * r0[i]
            k += 1
