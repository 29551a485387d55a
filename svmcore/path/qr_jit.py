"""QR with column pivoting of a symmetric matrix, updated when a row and a column come or go.

``A[:, order] = Q R``, where R is upper triangular. Q is kept transposed (`Qt`), so its columns are contiguous in memory. The
published path algorithm uses this (`path/bordered`). It decomposes by LAPACK. An update keeps the order of columns. So it
does not reveal the rank.

Reference: Businger and Golub 1965. Golub and Van Loan, Matrix Computations, section 12.5 (updating).
"""

from __future__ import annotations

import numpy as np

from svmcore.compiler.jit import jit


@jit
def _turn(a, b, c, s, start):
    """(a, b) <- (c a + s b, c b - s a) from `start` on. In place: a, b."""
    for k in range(start, a.shape[0]):
        t = c * a[k] + s * b[k]
        b[k] = c * b[k] - s * a[k]
        a[k] = t


@jit(allocates=True)
def insert_last(Qt, R, order, column, corner):
    """The factors after the symmetric matrix has gained a last row and column. It takes O(n^2)."""
    n = R.shape[0]
    Q2 = np.zeros((n + 1, n + 1))
    R2 = np.zeros((n + 1, n + 1))
    order2 = np.zeros(n + 1, np.int64)
    Q2[n, n] = 1.0
    for i in range(n):
        order2[i] = order[i]
        total = 0.0
        for k in range(n):
            Q2[i, k] = Qt[i, k]
            total += Qt[i, k] * column[k]
        for k in range(i, n):
            R2[i, k] = R[i, k]
        R2[i, n] = total
        R2[n, i] = column[order[i]]
    order2[n] = n
    R2[n, n] = corner
    for k in range(n):
        a = R2[k, k]
        b = R2[n, k]
        h = np.sqrt(a * a + b * b)
        if h > 0.0 and b != 0.0:
            _turn(R2[k], R2[n], a / h, b / h, k)
            _turn(Q2[k], Q2[n], a / h, b / h, 0)
        R2[n, k] = 0.0
    return Q2, R2, order2


@jit(allocates=True)
def remove_at(Qt, R, order, index):
    """The factors after the symmetric matrix has lost row and column `index`. It takes O(n^2)."""
    n = R.shape[0]
    Q = Qt.copy()
    place = 0
    for k in range(n):
        if order[k] == index:
            place = k
    H = np.zeros((n, n - 1))
    for i in range(n):
        for k in range(n):
            if k < place:
                H[i, k] = R[i, k]
            elif k > place:
                H[i, k - 1] = R[i, k]
    for k in range(place, n - 1):  # the columns behind have moved up, so each has one entry below the diagonal
        a = H[k, k]
        b = H[k + 1, k]
        h = np.sqrt(a * a + b * b)
        if h > 0.0 and b != 0.0:
            _turn(H[k], H[k + 1], a / h, b / h, k)
            _turn(Q[k], Q[k + 1], a / h, b / h, 0)
    for k in range(n - 2, -1, -1):  # turn all of column `index` of Qt into its first entry
        a = Q[k, index]
        b = Q[k + 1, index]
        h = np.sqrt(a * a + b * b)
        if h > 0.0 and b != 0.0:
            _turn(Q[k], Q[k + 1], a / h, b / h, 0)
            _turn(H[k], H[k + 1], a / h, b / h, max(k - 1, 0))
    Q2 = np.zeros((n - 1, n - 1))
    R2 = np.zeros((n - 1, n - 1))
    order2 = np.zeros(n - 1, np.int64)
    for i in range(n - 1):
        for k in range(n):
            if k < index:
                Q2[i, k] = Q[i + 1, k]
            elif k > index:
                Q2[i, k - 1] = Q[i + 1, k]
        for k in range(i, n - 1):
            R2[i, k] = H[i + 1, k]
    at = 0
    for k in range(n):
        if k != place:
            order2[at] = order[k] if order[k] < index else order[k] - 1
            at += 1
    return Q2, R2, order2


@jit(allocates=True)
def basic_solution(Qt, R, order, rank, b):
    """A basic solution of A x = b. It is zero but for the columns of the first `rank` pivots."""
    n = R.shape[0]
    h = np.zeros(n)
    x = np.zeros(n)
    for k in range(rank - 1, -1, -1):
        total = 0.0
        for i in range(n):
            total += Qt[k, i] * b[i]
        for c in range(k + 1, rank):
            total -= R[k, c] * h[c]
        h[k] = total / R[k, k]
        x[order[k]] = h[k]
    return x
