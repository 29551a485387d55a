"""Sums and multiples of vectors, and triangular systems, in plain loops. Those of solvers and paths are written with them."""

from __future__ import annotations

from svmcore.compiler.jit import jit


@jit(sums=True)
def dot(a, b, n):
    """sum of a_j b_j over j < n."""
    total = 0.0
    for j in range(n):
        total += a[j] * b[j]
    return total


@jit(sums=True)
def dot_between(a, b, start, stop):
    """sum of a_j b_j over start <= j < stop."""
    total = 0.0
    for j in range(start, stop):
        total += a[j] * b[j]
    return total


BLOCK = 1024  # so many numbers are looked at twice while they are in the nearest memory


@jit(sums=True)
def _spread(some, shift, largest):
    """The mean of some numbers less the shift, their squared distances from it, and how many are not at most `largest`."""
    total, square, wrong = 0.0, 0.0, 0.0
    for k in range(some.shape[0]):
        total += some[k] - shift
        wrong += 0.0 if abs(some[k]) <= largest else 1.0
    mean = total / some.shape[0]
    centre = shift + mean
    for k in range(some.shape[0]):
        square += (some[k] - centre) * (some[k] - centre)
    return mean, square, wrong


@jit
def look_over(X, flat, largest, step, low, high, seen):
    """One pass over points: whether they are numbers, how they spread, and the ranges of the features in a few rows.

    `flat` are the values of X. In place: low and high, the ends of each feature in the rows 0, step, 2 step, ...; seen, which
    are the count of values that are no numbers of at most `largest`, the variance, and the least and the largest range.
    """
    size, shift, mean, square, wrong = flat.shape[0], flat[0], 0.0, 0.0, 0.0
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        own, about, strange = _spread(flat[start:stop], shift, largest)
        wrong += strange
        share, away = (stop - start) / stop, own - mean
        square += about + away * away * share * start
        mean += away * share
    for j in range(X.shape[1]):
        low[j] = high[j] = X[0, j]
    for i in range(step, X.shape[0], step):
        row = X[i]
        for j in range(X.shape[1]):
            low[j], high[j] = min(low[j], row[j]), max(high[j], row[j])
    least = most = high[0] - low[0]
    for j in range(1, X.shape[1]):
        least, most = min(least, high[j] - low[j]), max(most, high[j] - low[j])
    seen[0], seen[1], seen[2], seen[3] = wrong, square / size, least, most


@jit
def forward(L, m, x):
    """x := L^-1 x for the lower triangle L, whose first m rows count. In place: x."""
    for i in range(m):
        x[i] = (x[i] - dot(L[i], x, i)) / L[i, i]


@jit
def backward(L, m, x):
    """x := L^-T x for the lower triangle L, whose first m rows count. In place: x."""
    for i in range(m - 1, -1, -1):
        value = x[i] / L[i, i]
        x[i] = value
        row = L[i]
        for k in range(i):
            x[k] -= value * row[k]


@jit
def add_multiple(out, factor, v, n):
    """out += factor v on the first n. In place: out."""
    for j in range(n):
        out[j] += factor * v[j]
