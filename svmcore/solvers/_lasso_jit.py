"""Sweeps over the columns of a linear machine whose weights cost their absolute values: one weight at a time.

A row has a target of 1 or -1, and a residual: target - f. It pulls where both have one sign: by its cost times the residual.
A column is at its best where the pulls along it sum to the sign of its weight, or, at a weight of zero, to no more than one.
"""

from __future__ import annotations

from typing import NamedTuple

from svmcore._types import NONZERO, FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.solvers._coordinate_jit import shuffle

RESIDUAL, PULL, BEND, COST = range(4)
"""What the table of the rows says: target - f, the pull, by how much that falls where f grows by one, and the cost with the
sign of the target."""
WIDTH = 4
DECREASE = 0.01  # share of the decrease that a step promises, and has to bring
HALVINGS = 30  # of a step that does not
ROUNDED = 1e-15  # share of the losses that their sum may be wrong by


class ColumnLists(NamedTuple):
    """Columns of a matrix. Those of a dense one share their row numbers, which begin at 0."""

    data: FloatArray
    rows: IntArray  # of any width
    start: IntArray  # of column j in `data`
    first: IntArray  # of column j in `rows`
    entries: IntArray


@jit
def transpose(rows, columns):
    """The columns of CSR rows, and behind them that of the constant. In place: columns, whose `entries` are zero."""
    last, n = columns.entries.shape[0] - 1, rows.indptr.shape[0] - 1
    for p in range(rows.indptr[n]):
        columns.entries[rows.indices[p]] += 1
    for j in range(last):
        columns.start[j + 1] = columns.start[j] + columns.entries[j]
        columns.entries[j] = 0
    for i in range(n):
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            j = rows.indices[p]
            q = columns.start[j] + columns.entries[j]
            columns.data[q] = rows.data[p]
            columns.rows[q] = i
            columns.entries[j] += 1
        columns.data[columns.start[last] + i] = rows.constant
        columns.rows[columns.start[last] + i] = i
    columns.entries[last] = n


@jit
def chosen_gram(rows, table, place, at, values, out):
    """The upper half of out += X' diag(BEND) X over chosen columns: number j, if it is chosen, is number place[j] >= 0.

    In place: out; scratch: at, values.
    """
    last = place.shape[0] - 1
    for i in range(table.shape[0]):
        bend, count = table[i, BEND], 0
        if bend == 0.0:
            continue
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            at[count], values[count] = place[rows.indices[p]], rows.data[p]
            count += 1 if at[count] >= 0 else 0
        if place[last] >= 0:
            at[count], values[count] = place[last], rows.constant
            count += 1
        for a in range(count):
            value, row = bend * values[a], out[at[a]]
            for b in range(a, count):
                row[at[b]] += value * values[b]


@jit(sums=True)
def pulled(columns, j, table):
    """The pulls along a column, and by how much they fall with its weight."""
    total, bend = 0.0, 0.0
    p, q = columns.start[j], columns.first[j]
    for k in range(columns.entries[j]):
        x, row = columns.data[p + k], table[columns.rows[q + k]]
        total += x * row[PULL]
        bend += x * x * row[BEND]
    return total, bend


@jit(sums=True)
def moved(columns, j, by, table):
    """A weight grows by `by`. Returns by how much the losses of its rows grow, and what they were. In place: table."""
    grown, were = 0.0, 0.0
    p, q = columns.start[j], columns.first[j]
    for k in range(columns.entries[j]):
        row = table[columns.rows[q + k]]
        before = row[PULL] * row[RESIDUAL]
        residual, cost = row[RESIDUAL] - by * columns.data[p + k], row[COST]
        bend = abs(cost) if residual * cost > 0.0 else 0.0
        row[RESIDUAL] = residual
        row[PULL] = bend * residual
        row[BEND] = bend
        grown += 0.5 * (bend * residual * residual - before)
        were += 0.5 * before
    return grown, were


@jit
def step(columns, j, table, w, total, bend):
    """Newton's step of one weight, halved until it brings what it promises. In place: table, w."""
    here = w[j]
    bend = max(bend, NONZERO)  # it is zero where no row pulls; then the weight goes to zero
    if total - 1.0 >= -bend * here:
        by = (total - 1.0) / bend
    elif total + 1.0 <= -bend * here:
        by = (total + 1.0) / bend
    else:
        by = -here
    gone, change = 0.0, 0.0
    for _ in range(HALVINGS):
        grown, were = moved(columns, j, by - gone, table)
        change += grown
        gone = by
        cost = abs(here + by) - abs(here)
        if change + cost <= DECREASE * (cost - total * by) + ROUNDED * were:
            break
        by *= 0.5
    w[j] = here + gone


@jit
def sweep(columns, table, w, order, count, far, seed):
    """One step for each of the first `count` columns of `order`, shuffled. In place: table, w, order.

    Columns at zero rest whose pull is below one by more than `far`: they go behind those that count. Returns how many are
    left, the largest violation, and the next seed.
    """
    worst = 0.0
    seed = shuffle(order, count, seed)
    k = 0
    while k < count:
        j = order[k]
        total, bend = pulled(columns, j, table)
        if w[j] == 0.0:
            violation = max(abs(total) - 1.0, 0.0)
            if abs(total) + far < 1.0:
                count -= 1
                order[k] = order[count]
                order[count] = j
                continue
        else:
            violation = abs(total - 1.0) if w[j] > 0.0 else abs(total + 1.0)
        k += 1
        worst = max(worst, violation)
        if violation > 0.0:
            step(columns, j, table, w, total, bend)
    return count, worst, seed
