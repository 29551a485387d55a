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
