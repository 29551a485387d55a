"""Sweeps of dual coordinate descent over rows of a CSR matrix. `_newton_jit` says what the numbers of a loss mean.

A row at a bound whose residual points far outwards is left out of the sweeps to come: it goes behind those that count.

Sweeps are over one machine, or over a group of `GROUP` machines that share the passes over the rows. Machine h of a group has
the lines ``table[i * GROUP + h]`` and the weights ``w[j * GROUP + h]``. Bit h of `awake` says that it asks for row i, and a
row is passed over where nobody does.
"""

from __future__ import annotations

import numpy as np

from svmcore._types import NONZERO
from svmcore.compiler.jit import jit
from svmcore.simd.lanes import fetch
from svmcore.simd.rows import GROUP, add_row_times, row_products
from svmcore.solvers._newton_jit import add_row, product_of

# Random numbers of 31 bits, of which the upper ones count: x := MULTIPLIER x + INCREMENT.
MULTIPLIER, INCREMENT = np.int64(1103515245), np.int64(12345)
MASK, BITS = np.int64(0x7FFFFFFF), np.int64(31)
NOBODY = np.int64(0)  # asks for a row
FARTHEST = 1e300  # what has no row rest
FAR = 0.5  # a row rests that points outwards by so much of the largest violation of the sweep before
STILL_STEP = 1e-14  # a step that changes a residual by no more than this is none


TARGET, TUBE, LOWER, UPPER, GIVE, STIFF, LENGTH, VALUE = range(8)
"""What the table of the rows says: target, half of the tube, box, what the diagonal adds, and the inverse of that; how far a
residual of one takes a step, and the dual variable.

A row of the table is a cache line.
"""
WIDTH = 8
LINE = np.int64(8)  # floats in a cache line

INNER, OUTER, ENOUGH, STILL, MOST, INWARD, OUTWARD, EXCESS, BEFORE, ESTIMATE, WORST, TOOK, GOES = range(13)
"""What the tally of a machine says.

INNER, OUTER: what rows at zero and at another bound point outwards by until they rest. ENOUGH, STILL, MOST: a machine waits
whose ESTIMATE of the gap or whose WORST violation is that small, or that TOOK so many sweeps; until then it GOES. INWARD,
OUTWARD, EXCESS: of the sweep, the largest violation towards zero and away from it, and the sum of what each row lacked before
its step. BEFORE: the sum of the sweep before.
"""
TALLIES = 13


@jit(sums=True)
def squares(rows, out):
    """out = K_ii. In place: out."""
    for i in range(out.shape[0]):
        total = rows.constant * rows.constant
        for p in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
            total += rows.data[p] * rows.data[p]
        out[i] = total


@jit
def fetch_row(rows, i):
    """Ask for the entries of row i, which comes next."""
    p, stop = np.int64(rows.indptr[i]), np.int64(rows.indptr[i + 1])
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


@jit(inline=True)
def step(row, product, tally):
    """The dual variable that is best for a row, given x'w, and whether the row rests. In place: tally."""
    here, give, half = row[VALUE], row[GIVE], row[TUBE]
    lower, upper = row[LOWER], row[UPPER]
    u = row[TARGET] - product
    pull = u - give * here
    rise = pull - half if here >= 0.0 else pull + half  # the residual of growing, and of shrinking
    fall = pull + half if here <= 0.0 else pull - half
    up = rise if rise > 0.0 and here < upper else 0.0
    down = -fall if fall < 0.0 and here > lower else 0.0
    if up + down == 0.0:
        inner, outer = tally[INNER], tally[OUTER]
        if here == 0.0:
            return here, (upper <= 0.0 or rise < -inner) and (lower >= 0.0 or fall > inner)
        return here, (here == upper and rise > outer) or (here == lower and fall < -outer)
    towards = (down if here > 0.0 else 0.0) + (up if here < 0.0 else 0.0)
    tally[INWARD] = max(tally[INWARD], towards)
    tally[OUTWARD] = max(tally[OUTWARD], up + down - towards)
    middle, tube = here + pull * row[LENGTH], half * row[LENGTH]
    new = min(max(max(middle - tube, 0.0) + min(middle + tube, 0.0), lower), upper)
    if give > 0.0:
        best = max(u - half, 0.0) if upper > 0.0 else 0.0
        best = min(u + half, 0.0) if lower < 0.0 and u + half < 0.0 else best
        lack = 0.5 * (best - give * here) * (best - give * here) * row[STIFF] + min(best * here, 0.0)
        lack += max(here, 0.0) * max(half - u, 0.0) - min(here, 0.0) * max(half + u, 0.0)
    else:
        room = upper - here if up > 0.0 else here - lower
        lack = (up + down) * min(room, abs(here) + 1.0)  # infinite boxes are closed somewhere
    tally[EXCESS] += lack
    return new if abs(new - here) > STILL_STEP * row[LENGTH] else here, False


@jit
def sweep(rows, table, w, order, count, awake, tally, seed):
    """One step for each of the first `count` rows of `order`, shuffled, of one machine.

    Returns how many rows are left, and the next seed. In place: table, w = X'z, order, awake, tally.
    """
    k = 0
    seed = shuffle(order, count, seed)
    while k < count:
        i, ahead = order[k], order[min(k + 1, count - 1)]
        fetch(table[ahead], np.int64(0))
        fetch_row(rows, ahead)
        here = table[i, VALUE]
        new, rests = step(table[i], product_of(rows, i, w), tally)
        if rests:
            count = behind(order, k, count)
            awake[i] = NOBODY
            continue
        k += 1
        if new != here:
            table[i, VALUE] = new
            add_row(rows, i, new - here, w)
    return count, seed


@jit(inline=True)
def behind(order, k, count):
    """Put row number k behind those that count. Returns how many are left. In place: order."""
    i = order[k]
    order[k] = order[count - 1]
    order[count - 1] = i
    return count - 1


@jit
def group_steps(table, first, asking, tally, by, constant, w):
    """A step for each machine that asks for a row whose products are in `by`, which takes how far they go.

    Returns the machines for which the row rests, and whether one moved. In place: table, tally, by.
    """
    resting, moved = 0, False
    last = w.shape[0] - GROUP
    for h in range(GROUP):
        product = by[h] + constant * w[last + h]
        by[h] = 0.0
        if asking >> h & 1:
            row = table[first + h]
            here = row[VALUE]
            new, rests = step(row, product, tally[h])
            resting |= np.int64(rests) << h
            if new != here:
                row[VALUE], by[h], moved = new, new - here, True
    return resting, moved


@jit
def group_sweep(rows, table, w, order, count, awake, live, going, tally, by, seed):
    """`sweep` of the machines `going` of a group. A row for which none of those that `live` asks is left out."""
    k, last = 0, w.shape[0] - GROUP
    seed = shuffle(order, count, seed)
    while k < count:
        i, ahead = order[k], order[min(k + 1, count - 1)]
        for h in range(GROUP):
            fetch(table[ahead * GROUP + h], np.int64(0))
        fetch_row(rows, ahead)
        start, stop = np.int64(rows.indptr[i]), np.int64(rows.indptr[i + 1])
        asking, moved = awake[i] & going, False
        if asking != 0:
            row_products(rows.data, rows.indices, start, stop, w, by, np.int64(0))
            resting, moved = group_steps(table, i * GROUP, asking, tally, by, rows.constant, w)
            awake[i] &= ~resting
        if awake[i] & live == 0:
            count = behind(order, k, count)
        else:
            k += 1
        if moved:
            add_row_times(rows.data, rows.indices, start, stop, by, np.int64(0), w)
            for h in range(GROUP):
                w[last + h] += rows.constant * by[h]
    return count, seed


@jit
def begin(tally):
    """Before a sweep. In place: tally."""
    tally[INWARD], tally[OUTWARD], tally[EXCESS] = 0.0, 0.0, 0.0


@jit
def end(tally):
    """After a sweep: the estimate of the gap, the largest violation, how far out rows rest, who goes on. In place: tally."""
    excess, before = tally[EXCESS], tally[BEFORE]
    tally[ESTIMATE] = excess * min(1.0, excess / before) if before < FARTHEST else excess
    tally[BEFORE] = max(excess, NONZERO)
    inward, outward = tally[INWARD], tally[OUTWARD]
    tally[WORST] = max(inward, outward)
    tally[INNER] = FAR * inward if inward > 0.0 else FARTHEST
    tally[OUTER] = FAR * outward if outward > 0.0 else FARTHEST
    tally[TOOK] += 1.0
    goes = tally[ESTIMATE] > tally[ENOUGH] and tally[WORST] > tally[STILL] and tally[TOOK] < tally[MOST]
    tally[GOES] = 1.0 if goes else 0.0


@jit
def sweeps(rows, table, w, order, count, awake, tally, seed, most):
    """Sweeps until the machine waits; no more than `most`.

    Returns how many rows are left, the next seed, and how many sweeps there were. In place: table, w, order, awake, tally.
    """
    steps = 0
    while steps < most and tally[GOES] > 0.0:
        begin(tally)
        count, seed = sweep(rows, table, w, order, count, awake, tally, seed)
        end(tally)
        steps += 1
    return count, seed, steps


@jit
def group_sweeps(rows, table, w, order, count, awake, live, tally, by, seed, most):
    """`sweeps` of a group, until one more of those that `live` waits. Scratch: by."""
    steps, going = 0, 0
    for h in range(tally.shape[0]):
        going |= np.int64(tally[h, GOES] > 0.0) << h
    going &= live
    before = going
    while steps < most and going == before and going != 0:
        for h in range(tally.shape[0]):
            begin(tally[h])
        count, seed = group_sweep(rows, table, w, order, count, awake, live, going, tally, by, seed)
        for h in range(tally.shape[0]):
            if going >> h & 1:
                end(tally[h])
                going ^= np.int64(tally[h, GOES] == 0.0) << h
        steps += 1
    return count, seed, steps


@jit
def group_sums(rows, z, w):
    """w = X'z of a group. In place: w."""
    for k in range(w.shape[0]):
        w[k] = 0.0
    last = w.shape[0] - GROUP
    for i in range(rows.indptr.shape[0] - 1):
        add_row_times(rows.data, rows.indices, np.int64(rows.indptr[i]), np.int64(rows.indptr[i + 1]), z, i * GROUP, w)
        for h in range(GROUP):
            w[last + h] += rows.constant * z[i * GROUP + h]


@jit
def group_times(rows, w, out):
    """out = X w of a group. In place: out."""
    last = w.shape[0] - GROUP
    for i in range(rows.indptr.shape[0] - 1):
        start, stop = np.int64(rows.indptr[i]), np.int64(rows.indptr[i + 1])
        row_products(rows.data, rows.indices, start, stop, w, out, i * GROUP)
        for h in range(GROUP):
            out[i * GROUP + h] += rows.constant * w[last + h]
