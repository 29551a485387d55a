"""Sums and multiples of vectors, in plain loops. The loops of solvers and of paths are written with them."""

from __future__ import annotations

from svmcore._jit import jit


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
def add_multiple(out, factor, v, n):
    """out += factor v on the first n. In place: out."""
    for j in range(n):
        out[j] += factor * v[j]
