"""The regularization path of tiny problems in exact rational arithmetic: slow, simple, and without tolerances.

Every partition of the points into at the lower end, at the upper end and free fixes beta and the bias as linear functions
of lambda; the partition is optimal on an interval of lambda, found from linear inequalities. Where free points are
dependent the partition is skipped: another one covers the same lambdas (a vertex of the set of solutions).
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import NamedTuple

Row = list[Fraction]


class Piece(NamedTuple):
    """beta_i = beta[i][0] + beta[i][1] lambda, bias likewise, on low <= lambda <= high."""

    low: Fraction
    high: Fraction
    beta: list[tuple[Fraction, Fraction]]
    bias: tuple[Fraction, Fraction]
    free: tuple[int, ...]


def _solve(A: list[Row], B: list[Row]) -> list[Row] | None:
    """X with A X = B by exact elimination; None when A is singular."""
    n = len(A)
    M = [list(a) + list(b) for a, b in zip(A, B, strict=True)]
    for k in range(n):
        pivot = next((i for i in range(k, n) if M[i][k] != 0), None)
        if pivot is None:
            return None
        M[k], M[pivot] = M[pivot], M[k]
        M[k] = [v / M[k][k] for v in M[k]]
        for i in range(n):
            if i != k and M[i][k] != 0:
                factor = M[i][k]
                M[i] = [v - factor * w for v, w in zip(M[i], M[k], strict=True)]
    return [row[n:] for row in M]


class _Range:
    """Intersection of half-lines a + b lambda >= 0."""

    def __init__(self, low: Fraction, high: Fraction) -> None:
        self.low, self.high = low, high

    def require(self, a: Fraction, b: Fraction) -> None:
        if b > 0:
            self.low = max(self.low, -a / b)
        elif b < 0:
            self.high = min(self.high, -a / b)
        elif a < 0:
            self.high = self.low - 1


class Problem(NamedTuple):
    """min 1/2 b'Kb - (fixed + lambda slope)'b over lower <= b <= upper [, sum b = 0], all rational."""

    K: list[Row]
    fixed: Row
    slope: Row
    lower: Row
    upper: Row
    equality: bool


def _piece(problem: Problem, sides, low: Fraction, high: Fraction) -> Piece | None:
    K, fixed, slope, equality = problem.K, problem.fixed, problem.slope, problem.equality
    n = len(slope)
    free = tuple(i for i in range(n) if sides[i] == 2)
    bound = [(problem.lower[i], problem.upper[i], Fraction(0))[sides[i]] for i in range(n)]
    held = [j for j in range(n) if bound[j]]
    f = [sum((K[i][j] * bound[j] for j in held), Fraction(0)) for i in range(n)]
    total = sum(bound, Fraction(0))
    m = len(free)
    span = _Range(low, high)
    if equality and m == 0:
        if total != 0:
            return None
        return _without_free(problem, sides, bound, f, span)
    A = [[K[i][j] for j in free] + ([Fraction(1)] if equality else []) for i in free]
    B = [[fixed[i] - f[i], slope[i]] for i in free]
    if equality:
        A.append([Fraction(1)] * m + [Fraction(0)])
        B.append([-total, Fraction(0)])
    X = _solve(A, B) if A else []
    if X is None:
        return None
    beta = [(bound[i], Fraction(0)) for i in range(n)]
    for k, i in enumerate(free):
        beta[i] = (X[k][0], X[k][1])
    bias = (X[m][0], X[m][1]) if equality else (Fraction(0), Fraction(0))
    for i in range(n):
        if span.low > span.high:
            return None
        if sides[i] == 2:
            a, b = beta[i]
            span.require(a - problem.lower[i], b)
            span.require(problem.upper[i] - a, -b)
        else:
            a = fixed[i] - f[i] - sum((K[i][j] * beta[j][0] for j in free), Fraction(0)) - bias[0]
            b = slope[i] - sum((K[i][j] * beta[j][1] for j in free), Fraction(0)) - bias[1]
            s = 1 if sides[i] == 1 else -1
            span.require(s * a, s * b)
    return Piece(span.low, span.high, beta, bias, free) if span.low <= span.high else None


def _without_free(problem: Problem, sides, bound, f, span: _Range) -> Piece | None:
    """No free point: the bias lies between a largest lower and a smallest upper bound, all linear in lambda."""
    n = len(bound)
    lines = [(problem.fixed[i] - f[i], problem.slope[i]) for i in range(n)]
    tops = [lines[i] for i in range(n) if sides[i] == 1]
    bottoms = [lines[i] for i in range(n) if sides[i] == 0]
    for a, b in tops:
        for c, d in bottoms:
            span.require(a - c, b - d)
    if span.low > span.high:
        return None
    beta = [(bound[i], Fraction(0)) for i in range(n)]
    middle = (span.low + span.high) / 2
    top = min(tops, key=lambda t: t[0] + t[1] * middle, default=None)
    bottom = max(bottoms, key=lambda t: t[0] + t[1] * middle, default=None)
    ends = [e for e in (top, bottom) if e is not None]
    bias = (sum(e[0] for e in ends) / len(ends), sum(e[1] for e in ends) / len(ends))
    return Piece(span.low, span.high, beta, bias, ())


def exact_path(K, y, weight, low, high, equality: bool = True) -> list[Piece]:
    """Pieces of a classifier's path that cover [low, high], from high to low."""
    y = [int(v) for v in y]
    box = [int(s) * Fraction(w) for s, w in zip(y, weight, strict=True)]
    zero = [Fraction(0)] * len(y)
    return exact_box_path(K, zero, y, [min(b, 0) for b in box], [max(b, 0) for b in box], low, high, equality)


def exact_box_path(K, fixed, slope, lower, upper, low, high, equality: bool = True) -> list[Piece]:
    """Pieces that cover [low, high], from high to low; all numbers rational, and no box empty."""
    vectors = ([Fraction(v) for v in vector] for vector in (fixed, slope, lower, upper))
    problem = Problem([[Fraction(v) for v in row] for row in K], *vectors, equality)
    low, high = Fraction(low), Fraction(high)
    pieces = []
    for sides in itertools.product((0, 1, 2), repeat=len(problem.slope)):
        piece = _piece(problem, sides, low, high)
        if piece is not None and piece.low < piece.high:
            pieces.append(piece)
    cover = []
    at = high
    while at > low:
        piece = min((p for p in pieces if p.low < at <= p.high), key=lambda p: p.low)
        cover.append(piece)
        at = piece.low
    return cover


def value(piece: Piece, lam: Fraction) -> list[Fraction]:
    """beta at lambda."""
    return [a + b * lam for a, b in piece.beta]
