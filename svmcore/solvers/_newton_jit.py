"""The loops of Newton's method for machines over features: pieces of losses, a line search, sums over sparse rows.

The loss of a row is the largest value, over z between `lower` and `upper`, of

    z (target - f) - half |z| - (z - centre)^2 / (2 stiff)

and z is its dual variable. A loss of the dual that pays on the diagonal has a `stiff` of 1 / diag and the centre 0: then it
is the loss itself. Any other is the augmented Lagrangian of one, around the dual variables `centre` of a round before.
`half` is half of the width of a tube. A row is in a *piece*: 1 or -1 where z follows f with the slope -stiff, 0 where it
does not move.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._types import FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.simd.sums import backward, dot, forward
from svmcore.solvers._ipm_jit import factorise

FORCED = 2  # a piece that no row is in: a step took the row for one that moves, and its dual variable did not
SHORT = 0.1  # a line search ends where the slope has fallen to this share
TRIALS = 30
STIFFER = 4.0  # from round to round of a linear loss
SHRINKS = 0.3  # a round that leaves less of the gap was stiff enough
ENOUGH = 3.0  # the error of w at the end of a round, over what else the gap is made of
LAST = 0.9  # share of the goal that this rest is in the last round, which ends where w = X'z
NOTHING = 1e-24  # share of the primal that an error is which only rounding leaves
STIFFEST = 1e12  # times the first stiffness
IDLE = 25  # steps without a smaller gap after which rounding is all that moves
ROUNDED = 1e-10  # a relative gap below which a round that does not lower it has met rounding
LONGEST = 1e6  # times Newton's step
ONE, TWO, THREE, FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)  # no sign to look at


class Losses(NamedTuple):
    """The losses of the rows, and where the rows are."""

    target: FloatArray
    half: FloatArray
    lower: FloatArray
    upper: FloatArray
    stiff: FloatArray
    centre: FloatArray
    f: FloatArray
    z: FloatArray  # the dual variables
    piece: NDArray[np.int8]


class Compressed(NamedTuple):
    """Rows of a CSR matrix, each followed by a constant."""

    data: FloatArray
    indices: NDArray[np.uint32]
    indptr: IntArray
    constant: float


class Surprises(NamedTuple):
    """Rows that changed pieces in a step, and by how much their dual variables differ from what the step foresaw."""

    rows: IntArray
    by: FloatArray


@jit(sums=True)
def place(losses):
    """Dual variables and pieces at the present f. In place: losses."""
    for i in range(losses.f.shape[0]):
        s = losses.stiff[i]
        pull = losses.centre[i] + s * (losses.target[i] - losses.f[i])
        tube = s * losses.half[i]
        over, under = pull - tube, pull + tube
        up = min(max(over, 0.0), losses.upper[i])
        down = max(min(under, 0.0), losses.lower[i])
        losses.z[i] = up + down
        losses.piece[i] = np.int8((over > 0.0) & (over <= losses.upper[i])) - np.int8(
            (under < 0.0) & (under >= losses.lower[i])
        )


@jit
def changed(piece, held, rows):
    """Which rows move that were not held, and which are held that do not: at the front of `rows`, and from its end.

    Returns how many came, how many went, and how many move. In place: held, rows.
    """
    n = piece.shape[0]
    came, went, moving = 0, 0, 0
    for i in range(n):
        now = piece[i] != 0
        moving += np.int64(now)
        if now != held[i]:
            held[i] = now
            if now:
                rows[came] = i
                came += 1
            else:
                went += 1
                rows[n - went] = i
    return came, went, moving


@jit(sums=True)
def slope(losses, df, t):
    """At f + t df: (the sum of z df, how fast it falls with t)."""
    total, curve = 0.0, 0.0
    for i in range(df.shape[0]):
        s = losses.stiff[i]
        pull = losses.centre[i] + s * (losses.target[i] - losses.f[i] - t * df[i])
        tube = s * losses.half[i]
        over, under = pull - tube, pull + tube
        up = min(max(over, 0.0), losses.upper[i])
        down = max(min(under, 0.0), losses.lower[i])
        inside = ((over > 0.0) & (over <= losses.upper[i])) | ((under < 0.0) & (under >= losses.lower[i]))
        total += (up + down) * df[i]
        curve += s * df[i] * df[i] if inside else 0.0
    return total, curve


@jit
def length(losses, df, first, second):
    """How far to go along df: near where the derivative  first + t second - sum z df  is zero. It is negative at 0."""
    total, curve = slope(losses, df, 0.0)
    begin = first - total
    low, high, t = 0.0, LONGEST, 1.0
    for _ in range(TRIALS):
        total, curve = slope(losses, df, t)
        here = first + t * second - total
        if abs(here) <= SHORT * abs(begin):
            break
        if here > 0.0:
            high = t
        else:
            low = t
        curve += second
        guess = t - here / curve if curve > 0.0 else LONGEST
        if not (low < guess < high):
            guess = 0.5 * (low + high) if high < LONGEST else min(4.0 * t, 0.5 * LONGEST)
        t = guess
    return t


@jit
def go(losses, df, t, changes):
    """f += t df. Returns how many rows changed pieces. In place: losses, changes."""
    n = df.shape[0]
    for i in range(n):
        before, piece, s = losses.z[i], losses.piece[i], losses.stiff[i]
        f = losses.f[i] + t * df[i]
        losses.f[i] = f
        pull = losses.centre[i] + s * (losses.target[i] - f)
        tube, by = s * losses.half[i], t * s * df[i]
        over, under = pull - tube, pull + tube
        upper, lower = losses.upper[i], losses.lower[i]
        now = np.int8((over > 0.0) & (over <= upper)) - np.int8((under < 0.0) & (under >= lower))
        after = min(max(over, 0.0), upper) + max(min(under, 0.0), lower)
        # Then z is not from f, whose rounding counts as often as the loss is stiff.
        follows = (now != 0) & (now == piece)
        losses.piece[i] = now
        losses.z[i] = min(max(before - by, lower), upper) if follows else after
        changes.by[i] = 0.0 if follows else after - before + (by if piece != 0 else 0.0)
    count = 0
    for i in range(n):
        by = changes.by[i]
        changes.rows[count], changes.by[count] = i, by
        count += 1 if by != 0.0 else 0
    return count


@jit(sums=True)
def measure(losses, squared):
    """(The losses themselves at f, and by how much they and their conjugates at z exceed the products).

    No term of either is negative. With |w - X'z|^2 / 2 the second sum is the duality gap. Bounds of a loss that is not
    squared are finite.
    """
    loss, excess = 0.0, 0.0
    for i in range(losses.f.shape[0]):
        u, half, z, s = losses.target[i] - losses.f[i], losses.half[i], losses.z[i], losses.stiff[i]
        upper, lower = losses.upper[i], losses.lower[i]
        above, below = max(u - half, 0.0), min(u + half, 0.0)
        up, down = max(z, 0.0), min(z, 0.0)
        excess += up * max(half - u, 0.0) - down * max(half + u, 0.0)
        if squared:
            force = s * ((above if upper > 0.0 else 0.0) + (below if lower < 0.0 else 0.0))
            loss += 0.5 * force * force / s
            # A force of the other sign is that of the other side: they have no product.
            excess += (0.5 * (force - z) * (force - z) + min(force * z, 0.0)) / s
        else:
            loss += upper * above + lower * below
            excess += (upper - up) * above + (lower - down) * below
    return loss, excess


@jit
def residuals(losses, squared):
    """The residuals of the dual variables: the largest that can grow and the smallest that can shrink.

    A row with a tube has two variables, one for either side.
    """
    top, bottom = -np.inf, np.inf
    for i in range(losses.f.shape[0]):
        half, upper, lower = losses.half[i], losses.upper[i], losses.lower[i]
        up, down = max(losses.z[i], 0.0), min(losses.z[i], 0.0)
        give = 1.0 / losses.stiff[i] if squared else 0.0
        u = losses.target[i] - losses.f[i]
        over, under = u - half - give * up, u + half - give * down
        top = max(top, over if (upper > 0.0) & (up < upper) else -np.inf)
        top = max(top, under if down < 0.0 else -np.inf)
        bottom = min(bottom, over if up > 0.0 else np.inf)
        bottom = min(bottom, under if (lower < 0.0) & (down > lower) else np.inf)
    return top, bottom


@jit
def violations(losses, squared, out):
    """By how much the residual of every dual variable wants to move it. In place: out."""
    for i in range(out.shape[0]):
        z, half = losses.z[i], losses.half[i]
        pull = losses.target[i] - losses.f[i] - (z / losses.stiff[i] if squared else 0.0)
        rise = pull - half if z >= 0.0 else pull + half
        fall = pull + half if z <= 0.0 else pull - half
        up = rise if rise > 0.0 and z < losses.upper[i] else 0.0
        down = -fall if fall < 0.0 and z > losses.lower[i] else 0.0
        out[i] = up + down


@jit(inline=True)
def product_of(rows, i, w):
    """x_i' w.

    There are four sums, so that none waits for the one before it. They are kept apart: to gather numbers into a vector first
    takes longer than to add them as they come.
    """
    p, stop = np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])
    a, b, c, d = rows.constant * w[w.shape[0] - 1], 0.0, 0.0, 0.0
    while p + THREE < stop:
        a += rows.data[p] * w[rows.indices[p]]
        b += rows.data[p + ONE] * w[rows.indices[p + ONE]]
        c += rows.data[p + TWO] * w[rows.indices[p + TWO]]
        d += rows.data[p + THREE] * w[rows.indices[p + THREE]]
        p += FOUR
    while p < stop:
        a += rows.data[p] * w[rows.indices[p]]
        p += ONE
    return (a + b) + (c + d)


@jit
def sparse_times(rows, w, out):
    """out = X w. In place: out."""
    for i in range(out.shape[0]):
        out[i] = product_of(rows, i, w)


@jit(inline=True)
def add_row(rows, i, by, w):
    """w += by x_i. In place: w."""
    for p in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
        w[rows.indices[p]] += by * rows.data[p]
    w[w.shape[0] - 1] += by * rows.constant


@jit
def sparse_add(rows, chosen, by, count, out):
    """out += X' by over the first `count` of the chosen rows. In place: out."""
    for k in range(count):
        add_row(rows, chosen[k], by[k], out)


@jit
def sparse_gram(rows, chosen, by, out):
    """The upper half of out += X' diag(by) X over the chosen rows, whose last feature is the constant. In place: out."""
    last = out.shape[0] - 1
    for k in range(chosen.shape[0]):
        start, stop = rows.indptr[chosen[k]], rows.indptr[chosen[k] + 1]
        for p in range(start, stop):
            value = by[k] * rows.data[p]
            row = out[rows.indices[p]]
            for q in range(np.uint64(p), np.uint64(stop)):
                row[rows.indices[q]] += value * rows.data[q]
            row[last] += value * rows.constant
        out[last, last] += by[k] * rows.constant * rows.constant


# ---- a whole machine over few dense rows --------------------------------------------------------------------------------


class Workspace(NamedTuple):
    """Memory for a machine over features, the last of which is constant."""

    w: FloatArray
    sums: FloatArray  # X'z
    gradient: FloatArray
    direction: FloatArray
    gram: FloatArray  # of the rows that are held, in units of the stiffness
    matrix: FloatArray
    held: NDArray[np.int8]
    weight: FloatArray  # the first stiffness of every row


@jit(sums=True)
def dense_times(X, w, constant, out):
    """out = X w + constant w0. In place: out."""
    d = X.shape[1]
    for i in range(X.shape[0]):
        total = constant * w[d]
        for k in range(d):
            total += X[i, k] * w[k]
        out[i] = total


@jit
def dense_add(X, i, by, constant, out):
    """out += by x_i. In place: out."""
    d = X.shape[1]
    for k in range(d):
        out[k] += by * X[i, k]
    out[d] += by * constant


@jit
def dense_sums(X, z, constant, out):
    """out = X'z. In place: out."""
    for k in range(out.shape[0]):
        out[k] = 0.0
    for i in range(X.shape[0]):
        if z[i] != 0.0:
            dense_add(X, i, z[i], constant, out)


@jit
def dense_follow(X, losses, constant, room):
    """Bring the Gram matrix to the rows that move now. In place: room."""
    d = X.shape[1]
    for i in range(X.shape[0]):
        now = np.int8(losses.piece[i] != 0)
        if now != room.held[i]:
            room.held[i] = now
            weight = room.weight[i] if now != 0 else -room.weight[i]
            for k in range(d + 1):
                value = weight * (X[i, k] if k < d else constant)
                row = room.gram[k]
                for j in range(min(k + 1, d)):
                    row[j] += value * X[i, j]
            room.gram[d, d] += weight * constant * constant


@jit
def dense_direction(room, unit):
    """Newton's step by Cholesky's factor. Returns its product with the gradient, or 0 without a factor. In place: room."""
    size = room.w.shape[0]
    for i in range(size):
        for j in range(i + 1):
            room.matrix[i, j] = unit * room.gram[i, j]
        room.matrix[i, i] += 1.0
        room.direction[i] = -room.gradient[i]
    if not factorise(room.matrix):
        return 0.0
    forward(room.matrix, size, room.direction)
    backward(room.matrix, size, room.direction)
    return dot(room.direction, room.gradient, size)


@jit
def dense_gradient(room):
    """w - X'z. Returns half of its square, and of that of w. In place: room."""
    error, size = 0.0, 0.0
    for k in range(room.w.shape[0]):
        room.gradient[k] = room.w[k] - room.sums[k]
        error += 0.5 * room.gradient[k] * room.gradient[k]
        size += 0.5 * room.w[k] * room.w[k]
    return error, size


@jit
def dense_step(X, losses, there, constant, room, changes, unit):
    """One step. Returns whether there was one. In place: losses, room; scratch: there.f, changes."""
    dense_follow(X, losses, constant, room)
    if not dense_direction(room, unit) < 0.0:
        return False
    size = room.w.shape[0]
    dense_times(X, room.direction, constant, there.f)
    t = length(losses, there.f, dot(room.direction, room.w, size), dot(room.direction, room.direction, size))
    count = go(losses, there.f, t, changes)
    for k in range(size):
        room.sums[k] += t * (room.gradient[k] + room.direction[k])
        room.w[k] += t * room.direction[k]
    for k in range(count):
        dense_add(X, changes.rows[k], changes.by[k], constant, room.sums)
    return True


@jit
def round_ends(error, rest, goal, primal):
    """Whether a round ends, where the gap is an error of w and a rest that only a stiffer round makes smaller."""
    return error <= ENOUGH * rest and (rest > LAST * goal or error <= NOTHING * primal)


@jit
def dense_machine(X, losses, there, constant, room, changes, squared, goal, most):
    """A whole machine whose intercept is the weight of the constant: steps until the relative gap is at most `goal`.

    `losses` are placed at f = 0. `there` has the same arrays, but for f. Returns the steps, the rounds, the primal objective
    of X'z, the duality gap and the KKT violation. In place: losses, room; there.f = X X'z.
    """
    n, steps, rounds, since = X.shape[0], 0, 0, 0
    unit, last, least = 1.0, 0.0, np.inf
    place(losses)
    moving = 0
    for i in range(n):
        moving += np.int64(losses.piece[i] != 0)
    if moving == 0:
        for i in range(n):
            losses.piece[i] = FORCED
    dense_sums(X, losses.z, constant, room.sums)
    while True:
        error, size = dense_gradient(room)
        loss, excess = measure(losses, squared)
        gap, primal = error + excess, size + loss
        ends = steps >= most or steps - since > IDLE or unit > STIFFEST
        if gap <= goal * primal or ends:
            dense_sums(X, losses.z, constant, room.sums)
            dense_times(X, room.sums, constant, there.f)
            loss, excess = measure(there, squared)
            primal = 0.5 * dot(room.sums, room.sums, room.sums.shape[0]) + loss
            if excess <= goal * primal or ends:
                top, bottom = residuals(there, squared)
                return steps, rounds, primal, excess, max(max(top, -bottom), 0.0)
            error, size = dense_gradient(room)
        if gap < least:
            least, since = gap, steps
        if not squared and round_ends(error, excess, goal * primal, primal):
            if rounds > 0 and gap >= last and gap <= ROUNDED * primal:
                most = steps
                continue
            rounds += 1
            since, least = steps, np.inf
            if gap >= SHRINKS * last:
                unit *= STIFFER
            last = gap
            for i in range(n):
                losses.centre[i] = losses.z[i]
                losses.stiff[i] = room.weight[i] * unit
            place(losses)
            dense_sums(X, losses.z, constant, room.sums)
            error, size = dense_gradient(room)
        if dense_step(X, losses, there, constant, room, changes, unit):
            steps += 1
        elif squared or error > 0.0:
            most = steps
