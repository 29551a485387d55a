"""The active sets of many small problems over one kernel matrix (`_crowd_jit`): what they read, and exact answers.

- `on_faces`, where pair steps crawl: one variable enters at a time, and the face of the free variables follows. It
  differs from `_active_jit` in its problem: epsilon is a kink at zero, boxes may have no width, and all of K is there.
- `by_inverse`, where nearly all rows are free: the others are eliminated from the inverse of K that all tasks share.
- `withdrawn`, where one row is left out of many: it is taken out of the machine of all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.simd.loops import add_rows
from svmcore.simd.sums import dot
from svmcore.simd.vector import BIG

MOST_TURNS = 8
DEPENDENT = 1e-9  # a pivot below this share of its diagonal entry: the row depends on those before


class Matrices(NamedTuple):
    """A kernel matrix in both precisions, and what all tasks over it share. Rows are padded with zeros."""

    single: Any  # (n, width) in float32
    gain: Any  # 1 / sqrt(K_ii + K_jj - 2 K_ij), the same shape
    diagonal: Any  # of `single`
    double: FloatArray  # (n, columns)
    size: FloatArray  # one number: the mean of |K_ii|; with it on all entries K is regular wherever the problem is
    inverse: FloatArray  # of K + size, (n, columns), or no row
    sums: FloatArray  # of its rows


class Booth(NamedTuple):
    """Room for one group of tasks at a time."""

    c: FloatArray  # these four: (TOGETHER, n)
    lower: FloatArray
    upper: FloatArray
    beta: FloatArray
    v: FloatArray  # (TOGETHER, columns)
    values: Any  # these three: (TOGETHER, width) in float32
    rise: Any
    fall: Any
    ways: Any  # coefficients by row: (n, TOGETHER) in float32
    coefs: FloatArray  # the same in float64
    reach: FloatArray
    todo: IntArray
    steps: IntArray
    turns: IntArray
    rows: IntArray  # the rest is room of the active set and of the inverse, for n rows and one more
    inside: IntArray
    sign: IntArray
    one: FloatArray
    way: FloatArray
    z: FloatArray
    h: FloatArray
    factor: FloatArray
    kept: FloatArray  # these three are of the free rows of one column's machine: its factor, or no row,
    kept_one: FloatArray  # what solves it for ones,
    kept_rows: IntArray  # the rows, and at the end their number


class OneTask(NamedTuple):
    """The task of one group member, as the loops see it."""

    c: FloatArray
    lower: FloatArray
    upper: FloatArray
    beta: FloatArray
    v: FloatArray
    values: Any
    rise: Any
    fall: Any
    epsilon: float


@jit
def weighted(matrix, booth, count, out):
    """out = the sum of the first `count` of `rows` of the matrix, times `way`. In place: out."""
    for t in range(out.shape[0]):
        out[t] = 0.0
    add_rows(matrix, booth.rows[:count], booth.way, 0, out.shape[0], out)


@jit
def residual(matrices, piece, booth):
    """v = c - K beta in float64. In place: v, rows, way."""
    count = 0
    for t in range(piece.beta.shape[0]):
        booth.rows[count] = t
        booth.way[count] = piece.beta[t]
        count += piece.beta[t] != 0.0
    weighted(matrices.double, booth, count, piece.v)
    for t in range(piece.beta.shape[0]):
        piece.v[t] = piece.c[t] - piece.v[t]


@jit
def grown(matrix, shift, rows, first, count, factor):
    """Cholesky rows first .. count - 1 of matrix[rows, rows] + shift, with inverse diagonals.

    A row that depends on those before is left out. Returns how many are left. In place: rows, factor.
    """
    m = first
    for k in range(first, count):
        own = rows[k]
        row, line = matrix[own], factor[m]
        for j in range(m):
            line[j] = (row[rows[j]] + shift - dot(line, factor[j], j)) * factor[j, j]
        pivot = row[own] + shift - dot(line, line, m)
        if pivot > DEPENDENT * abs(row[own] + shift):
            line[m] = 1.0 / np.sqrt(pivot)
            rows[m] = own
            m += 1
    return m


@jit
def solved(factor, m, x):
    """x := (L L')^-1 x. In place: x."""
    for i in range(m):
        x[i] = (x[i] - dot(factor[i], x, i)) * factor[i, i]
    for i in range(m - 1, -1, -1):
        row = factor[i]
        value = x[i] * row[i]
        x[i] = value
        for k in range(i):
            x[k] -= value * row[k]


@jit
def _worst(piece, inside, bias):
    """(variable outside the face whose residual is most wrong, by how much, the direction in which it wants to go)."""
    at, worst, sign, epsilon = -1, 0.0, 1.0, piece.epsilon
    for t in range(piece.beta.shape[0]):
        b, u = piece.beta[t], piece.v[t] - bias
        up = u + (epsilon if b < 0.0 else -epsilon) if b < piece.upper[t] else -1.0
        down = (epsilon if b > 0.0 else -epsilon) - u if b > piece.lower[t] else -1.0
        if inside[t] == 0 and max(up, down) > worst:
            at, worst, sign = t, max(up, down), (1.0 if up >= down else -1.0)
    return at, worst, sign


@jit
def _end(piece, t, direction):
    """Where variable t must stop when it moves this way: its bound, or its kink."""
    b = piece.beta[t]
    if direction > 0.0:
        return 0.0 if b < 0.0 else piece.upper[t]
    return 0.0 if b > 0.0 else piece.lower[t]


@jit
def _go(matrices, piece, booth, count, length, first):
    """Move the variables in `rows` along `way`; number `first` ends on its bound. In place: beta, v, way."""
    for k in range(count):
        t, direction = booth.rows[k], booth.way[k]
        there = _end(piece, t, direction) if k == first else piece.beta[t] + length * direction
        booth.way[k] = there - piece.beta[t]
        piece.beta[t] = there
    weighted(matrices.double, booth, count, booth.h)
    for t in range(piece.beta.shape[0]):
        piece.v[t] -= booth.h[t]


@jit
def _to_meet(piece, booth, m, bias):
    """The way on which all residuals of the face become equal. In place: way."""
    for k in range(m):
        t = booth.rows[k]
        booth.way[k] = piece.v[t] - (piece.epsilon if piece.beta[t] > 0.0 else -piece.epsilon) - bias
    solved(booth.factor, m, booth.way)


@jit
def _to_follow(matrices, booth, m, entrant, sign, total):
    """The way of the face while one more variable moves by `sign`. Returns the curvature of it. In place: rows, way."""
    row, shift = matrices.double[entrant], matrices.size[0]
    for k in range(m):
        booth.way[k] = row[booth.rows[k]] + shift
    solved(booth.factor, m, booth.way)
    share = -1.0
    for k in range(m):
        share += booth.way[k]
    share /= total
    bend = row[entrant] + shift - share
    for k in range(m):
        booth.way[k] = -sign * (booth.way[k] - share * booth.one[k])
        bend += sign * booth.way[k] * (row[booth.rows[k]] + shift)
    booth.rows[m] = entrant
    booth.way[m] = sign
    return bend


@jit
def _first_stop(piece, booth, count, length):
    """(how far the way is free, up to `length`; the number of the variable that stops it, or -1)."""
    first = -1
    for k in range(count):
        direction = booth.way[k]
        if direction != 0.0:
            t = booth.rows[k]
            free = max((_end(piece, t, direction) - piece.beta[t]) / direction, 0.0)
            if free < length:
                length, first = free, k
    return length, first


@jit
def _face(piece, rows):
    """Collect the variables that are free, off their kinks. Returns their number. In place: rows."""
    m = 0
    for t in range(piece.beta.shape[0]):
        rows[m] = t
        m += (piece.lower[t] < piece.beta[t] < piece.upper[t]) and piece.beta[t] != 0.0
    return m


@jit
def on_faces(matrices, piece, booth, tol, most):
    """Active set: one variable enters at a time, and the face of free variables follows so that its residuals stay equal.

    Returns the number of moves. In place: beta, v, and room.
    """
    double, factor, rows, inside = matrices.double, booth.factor, booth.rows, booth.inside
    m, moves, settled = grown(double, matrices.size[0], rows, 0, _face(piece, rows), factor), 0, False
    for t in range(piece.beta.shape[0]):
        inside[t] = 0
    for k in range(m):
        inside[rows[k]] = 1
    while m > 0 and moves < most:
        total, bias = 0.0, 0.0
        for k in range(m):
            booth.one[k] = 1.0
        solved(factor, m, booth.one)
        for k in range(m):
            t = rows[k]
            total += booth.one[k]
            bias += booth.one[k] * (piece.v[t] - (piece.epsilon if piece.beta[t] > 0.0 else -piece.epsilon))
        bias /= total
        entrant, count, length = -1, m, 1.0
        if settled:
            entrant, worst, sign = _worst(piece, inside, bias)
            if not worst > tol:
                break
            bend = _to_follow(matrices, booth, m, entrant, sign, total)
            count, length = m + 1, worst / bend if bend > DEPENDENT * matrices.size[0] else BIG
        else:
            _to_meet(piece, booth, m, bias)
        length, first = _first_stop(piece, booth, count, length)
        _go(matrices, piece, booth, count, length, first)
        moves += 1
        if first == -1:
            settled = True
            m = grown(double, matrices.size[0], rows, m, count, factor)
            if entrant >= 0:
                inside[entrant] = m == count
        elif first < m:
            inside[rows[first]] = 0
            for k in range(first, m - 1):
                rows[k] = rows[k + 1]
            m = grown(double, matrices.size[0], rows, first, m - 1, factor)
            settled = settled and entrant >= 0
    return moves


FREE, ZERO, TOP, BOTTOM = range(4)  # where a variable is, for `by_inverse`


@jit
def _ask_all(matrices, piece, booth):
    """z = P (c - epsilon sign) for the inverse P. In place: z, and room."""
    n = piece.beta.shape[0]
    for t in range(n):
        booth.rows[t] = t
        booth.way[t] = piece.c[t] - (piece.epsilon * booth.sign[t] if booth.inside[t] == FREE else 0.0)
    weighted(matrices.inverse, booth, n, booth.z)


@jit
def _eliminate(matrices, piece, booth):
    """The best beta with every variable that is not free where it is said to be. Returns (their number or -1, bias).

    In place: rows, way (what holds them there), h (what that does to all).
    """
    n, k, sums = piece.beta.shape[0], 0, matrices.sums
    for t in range(n):
        booth.rows[k] = t
        k += booth.inside[t] != FREE
    if 2 * k > n or grown(matrices.inverse, 0.0, booth.rows, 0, k, booth.factor) < k:
        return -1, 0.0
    for j in range(k):
        t = booth.rows[j]
        where = booth.inside[t]
        there = piece.upper[t] if where == TOP else (piece.lower[t] if where == BOTTOM else 0.0)
        booth.way[j], booth.one[j] = there - booth.z[t], sums[t]
    solved(booth.factor, k, booth.way)
    solved(booth.factor, k, booth.one)
    over, under = 0.0, 0.0
    for t in range(n):
        over += booth.z[t]
        under += sums[t]
    for j in range(k):
        over += sums[booth.rows[j]] * booth.way[j]
        under -= sums[booth.rows[j]] * booth.one[j]
    bias = over / under
    for j in range(k):
        booth.way[j] += bias * booth.one[j]
    weighted(matrices.inverse, booth, k, booth.h)
    return k, bias


@jit
def _sorted_out(matrices, piece, booth, k, bias):
    """Put every variable where its value, or what holds it, says it belongs. Returns the changes. In place: beta, inside."""
    changes, epsilon = 0, piece.epsilon
    for t in range(piece.beta.shape[0]):
        if booth.inside[t] == FREE:
            b = booth.z[t] - bias * matrices.sums[t] + booth.h[t]
            piece.beta[t] = b
            up = booth.sign[t] > 0
            beyond, back = (b > piece.upper[t], b < 0.0) if up else (b < piece.lower[t], b > 0.0)
            if beyond or back:
                booth.inside[t] = ZERO if back else (TOP if up else BOTTOM)
                changes += 1
    for j in range(k):
        t, u = booth.rows[j], -booth.way[j]
        where = booth.inside[t]
        piece.beta[t] = piece.upper[t] if where == TOP else (piece.lower[t] if where == BOTTOM else 0.0)
        at_zero = where == ZERO
        rises = (at_zero and u > epsilon and piece.upper[t] > 0.0) or (where == TOP and u < epsilon)
        falls = (at_zero and u < -epsilon and piece.lower[t] < 0.0) or (where == BOTTOM and u > -epsilon)
        if rises or falls:
            booth.inside[t], booth.sign[t] = FREE, 1 if rises else -1
            changes += 1
    return changes


@jit
def by_inverse(matrices, piece, booth, fresh):
    """Primal-dual active set on the inverse that all tasks share. Returns its turns; 0 where it has no answer.

    `z` may stay from the last task of the same column (not `fresh`), where epsilon is 0. In place: beta, and room.
    """
    n, epsilon = piece.beta.shape[0], piece.epsilon
    for t in range(n):
        booth.inside[t] = FREE if piece.upper[t] > piece.lower[t] else ZERO
        booth.sign[t] = 0 if epsilon > 0.0 else (1 if piece.upper[t] > 0.0 else -1)
    if epsilon > 0.0 or fresh:
        _ask_all(matrices, piece, booth)
    if epsilon > 0.0:
        over, under = 0.0, 0.0
        for t in range(n):
            over += booth.z[t]
            under += matrices.sums[t]
        for t in range(n):
            booth.sign[t] = 1 if booth.z[t] - over / under * matrices.sums[t] > 0.0 else -1
    turn, changes = 0, 1
    while changes > 0 and turn < MOST_TURNS:
        turn += 1
        if epsilon > 0.0:
            _ask_all(matrices, piece, booth)
        k, bias = _eliminate(matrices, piece, booth)
        if k < 0:
            return 0
        changes = _sorted_out(matrices, piece, booth, k, bias)
    return turn if changes == 0 else 0


@jit
def keep_face(matrices, piece, booth, whole):
    """Factor the face of the machine of all rows of a column, in its boxes. In place: beta, and kept room."""
    rows = booth.kept_rows
    for t in range(whole.shape[0]):
        piece.beta[t] = whole[t]
    m = grown(matrices.double, matrices.size[0], rows, 0, _face(piece, rows), booth.kept)
    for k in range(m):
        booth.kept_one[k] = 1.0
    solved(booth.kept, m, booth.kept_one)
    rows[whole.shape[0]] = m


@jit
def _way_out(matrices, booth, gone, m):
    """The way of the face while variable `gone`, a member or not, falls by 1, so that its residuals stay equal.

    Returns whether there is one. In place: way.
    """
    row, rows, way, shift, place = matrices.double[gone], booth.kept_rows, booth.way, matrices.size[0], -1
    for k in range(m):
        place = k if rows[k] == gone else place
    for k in range(m):
        way[k] = row[rows[k]] + shift if place < 0 else (1.0 if k == place else 0.0)
    solved(booth.kept, m, way)
    share, total = (-1.0 if place < 0 else 0.0), 0.0
    for k in range(m):
        share += way[k]
        total += booth.kept_one[k]
    for k in range(m):
        way[k] -= share / total * booth.kept_one[k]
    if place < 0:
        return True
    bend = way[place]
    if not bend > DEPENDENT / shift:
        return False
    for k in range(m):
        way[k] /= -bend
    return True


@jit
def _room(piece, t, sign):
    """How far variable t can go this way: to its bound, or to its kink."""
    return sign * (_end(piece, t, sign) - piece.beta[t])


SAME, MOVED, STUCK = range(3)  # what has become of the machine of all rows


@jit
def withdrawn(matrices, piece, booth, whole):
    """Take the row whose box is closed here out of the machine of all rows: it goes to zero, and the face follows.

    What would pass its end stops there, and all that have room share what is missing then. In place: beta, way.

    Returns SAME where no multiplier leaves, so that this is the answer; MOVED; or STUCK, which is no feasible point.
    """
    gone, m = -1, booth.kept_rows[whole.shape[0]]
    for t in range(whole.shape[0]):
        piece.beta[t] = whole[t]
        leaves = (whole[t] != 0.0) & (piece.lower[t] == piece.upper[t])
        gone = t if leaves else gone
    if gone < 0:
        return SAME
    amount = whole[gone]
    if m == 0 or not _way_out(matrices, booth, gone, m):
        return STUCK
    piece.beta[gone] = 0.0
    missing = amount
    for k in range(m):
        t = booth.kept_rows[k]
        move = amount * booth.way[k]
        if t != gone and move != 0.0:
            sign = 1.0 if move > 0.0 else -1.0
            move = sign * min(sign * move, _room(piece, t, sign))
            piece.beta[t] += move
            missing -= move
    sign, room = 1.0 if missing > 0.0 else -1.0, 0.0
    for k in range(m):
        t = booth.kept_rows[k]
        room += _room(piece, t, sign) if t != gone else 0.0
    if not sign * missing < room:
        return STUCK
    for k in range(m):
        t = booth.kept_rows[k]
        piece.beta[t] += missing / room * _room(piece, t, sign) if t != gone else 0.0
    return MOVED
