"""Sweeps of dual coordinate descent over rows of a CSR matrix. `_newton_jit` says what the numbers of a loss mean.

A row at a bound whose residual points far outwards is left out of the sweeps to come: it goes behind those that count.
"""

from __future__ import annotations

import numpy as np

from svmcore._types import NONZERO
from svmcore.compiler.jit import jit
from svmcore.simd.lanes import fetch
from svmcore.solvers._newton_jit import add_row, product_of

# Random numbers of 31 bits, of which the upper ones count: x := MULTIPLIER x + INCREMENT.
MULTIPLIER, INCREMENT = np.int64(1103515245), np.int64(12345)
MASK, BITS = np.int64(0x7FFFFFFF), np.int64(31)
FARTHEST = 1e300  # what has no row rest
FAR = 0.5  # a row rests that points outwards by so much of the largest violation of the sweep before
STILL = 1e-14  # a step that changes a residual by no more than this is none


TARGET, TUBE, LOWER, UPPER, GIVE, STIFF, LENGTH, VALUE = range(8)
"""What the table of the rows says: target, half of the tube, box, what the diagonal adds, and the inverse of that; how far a
residual of one takes a step, and the dual variable.

A row of the table is a cache line.
"""
WIDTH = 8
LINE = np.int64(8)  # floats in a cache line


@jit(sums=True)
def squares(rows, out):
    """out = K_ii. In place: out."""
    for i in range(out.shape[0]):
        total = rows.constant * rows.constant
        for p in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
            total += rows.data[p] * rows.data[p]
        out[i] = total


@jit
def fetch_row(rows, table, i):
    """Ask for the entries of row i, which comes next."""
    p, stop = np.int64(rows.indptr[i]), np.int64(rows.indptr[i + 1])
    fetch(table[i], np.int64(0))
    while p < stop:
        fetch(rows.data, p)
        fetch(rows.data, p + LINE)
        fetch(rows.indices, p)
        p += 2 * LINE


@jit
def shuffle(order, count, seed):
    """The first `count` numbers in a random order. Returns the next seed. In place: order."""
    for k in range(count - 1):
        seed = (seed * MULTIPLIER + INCREMENT) & MASK
        other = k + ((seed * (count - k)) >> BITS)
        i = order[other]
        order[other] = order[k]
        order[k] = i
    return seed


@jit
def sweep(rows, table, w, order, count, inner, outer, seed):
    """One step for each of the first `count` rows of `order`, shuffled. In place: table, w = X'z, order.

    Rows at zero rest whose residual points out of their box by more than `inner`, and those at another bound, by more than
    `outer`. Returns how many rows are left, the largest violation towards zero and away from it, the sum of what each row
    lacked for the optimum before its step, and the next seed.
    """
    inward, outward, excess = 0.0, 0.0, 0.0
    k = 0
    seed = shuffle(order, count, seed)
    while k < count:
        i = order[k]
        fetch_row(rows, table, order[min(k + 1, count - 1)])
        row = table[i]
        here, give, half = row[VALUE], row[GIVE], row[TUBE]
        lower, upper = row[LOWER], row[UPPER]
        u = row[TARGET] - product_of(rows, i, w)
        pull = u - give * here
        rise = pull - half if here >= 0.0 else pull + half  # the residual of growing, and of shrinking
        fall = pull + half if here <= 0.0 else pull - half
        up = rise if rise > 0.0 and here < upper else 0.0
        down = -fall if fall < 0.0 and here > lower else 0.0
        if up + down == 0.0:
            if here == 0.0:
                rests = (upper <= 0.0 or rise < -inner) and (lower >= 0.0 or fall > inner)
            else:
                rests = (here == upper and rise > outer) or (here == lower and fall < -outer)
            if rests:
                count -= 1
                order[k] = order[count]
                order[count] = i
            else:
                k += 1
            continue
        k += 1
        towards = (down if here > 0.0 else 0.0) + (up if here < 0.0 else 0.0)
        inward = max(inward, towards)
        outward = max(outward, up + down - towards)
        middle, tube = here + pull * row[LENGTH], half * row[LENGTH]
        new = min(max(max(middle - tube, 0.0) + min(middle + tube, 0.0), lower), upper)
        if give > 0.0:
            best = max(u - half, 0.0) if upper > 0.0 else 0.0
            best = min(u + half, 0.0) if lower < 0.0 and u + half < 0.0 else best
            excess += 0.5 * (best - give * here) * (best - give * here) * row[STIFF]
            excess += max(here, 0.0) * max(half - u, 0.0) - min(here, 0.0) * max(half + u, 0.0)
        else:
            room = upper - here if up > 0.0 else here - lower
            excess += (up + down) * min(room, abs(here) + 1.0)  # infinite boxes are closed somewhere
        if abs(new - here) > STILL * row[LENGTH]:
            row[VALUE] = new
            add_row(rows, i, new - here, w)
    return count, inward, outward, excess, seed


@jit
def sweeps(rows, table, w, order, count, far, seed, enough, still, most):
    """Sweeps until, over the rows that do not rest, the estimate of the gap is at most `enough`, or the largest violation at
    most `still`; no more than `most`.

    `far`: what rows of either kind point outwards by until they rest. Returns how many rows are left, the estimate, the
    largest violation, the next seed, and how many sweeps there were. In place: table, w, order, far.
    """
    steps, estimate, worst, before = 0, np.inf, np.inf, np.inf
    while estimate > enough and steps < most and worst > still:
        count, inward, outward, excess, seed = sweep(rows, table, w, order, count, far[0], far[1], seed)
        estimate = excess * min(1.0, excess / before) if steps > 0 else excess
        before = max(excess, NONZERO)
        worst = max(inward, outward)
        far[0] = FAR * inward if inward > 0.0 else FARTHEST
        far[1] = FAR * outward if outward > 0.0 else FARTHEST
        steps += 1
    return count, estimate, worst, seed, steps
