"""The kernel matrices that the tasks of a crowd (`_crowd_jit`) read, of one gamma or of one for every task."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._kernels import from_measures
from svmcore._types import LANES, FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.solvers._crowd_pairs_jit import TAU

HALVINGS = 4  # of x up to WITHIN, and the series of exp(x) to the eighth power has all digits
WITHIN = 1.0


class Scaled(NamedTuple):
    """A kernel whose gamma looks at the rows that train in a task: 1 / (features x the variance of all their entries)."""

    measure: FloatArray  # what kernel values are functions of, and zeros: (n, columns)
    base: FloatArray  # exp(-gamma measure) for a gamma near by, and zeros, or no row
    usual: float  # this gamma
    widest: float  # the largest measure
    means: FloatArray  # of the entries of every row
    squares: FloatArray  # the sum of the squared distances of these entries from their mean
    width: int
    block: FloatArray  # the rest is room for a block of values
    bits: IntArray
    power: FloatArray


@jit(sums=True)
def _take_diagonal(matrices):
    """Returns the size of kernel values. In place: diagonal."""
    n, size = matrices.double.shape[0], 0.0
    for t in range(n):
        matrices.diagonal[t] = matrices.double[t, t]
        size += abs(matrices.double[t, t])
    return size / n if size > 0.0 else 1.0


@jit(sums=True)
def take_forms(matrices):
    """Make the forms in float32 of the matrix in float64. In place: all but `double` and the inverse."""
    double, diagonal, n = matrices.double, matrices.diagonal, matrices.double.shape[0]
    two, one, matrices.size[0] = np.float32(2.0), np.float32(1.0), _take_diagonal(matrices)
    floor = np.float32(TAU * matrices.size[0])
    for i in range(n):
        row, single, gain, own = double[i], matrices.single[i], matrices.gain[i], diagonal[i]
        for j in range(n):
            value = np.float32(row[j])
            single[j] = value
            curvature = own + diagonal[j] - two * value
            gain[j] = one / np.sqrt(curvature if curvature > floor else floor)


@jit(sums=True)
def _gamma_of(own, crowd, task):
    """What gamma="scale" is on the rows that train in a task."""
    column, fold, d = task // crowd.n_folds, task % crowd.n_folds, own.width
    folds, count, mean, total = crowd.folds[min(column, crowd.folds.shape[0] - 1)], 0.0, 0.0, 0.0
    for t in range(folds.shape[0]):
        trains = (folds[t] != fold) & (folds[t] >= 0)
        count += trains
        mean += trains * own.means[t]
    mean /= max(count, 1.0)
    for t in range(folds.shape[0]):
        trains, apart = (folds[t] != fold) & (folds[t] >= 0), own.means[t] - mean
        total += trains * (own.squares[t] + d * apart * apart)
    return count / total if total > 0.0 else 1.0


@jit(sums=True)
def _near_values(matrices, own, change):
    """Kernel values whose gamma is larger than the usual one by `change`: the base times exp(-change measure), by its series.

    In place: double, single.
    """
    unit = -change / (1 << HALVINGS)
    for i in range(own.measure.shape[0]):
        measure, base, double, single = own.measure[i], own.base[i], matrices.double[i], matrices.single[i]
        for j in range(double.shape[0]):
            x = unit * measure[j]
            value = 1 / 720 + x * (1 / 5040 + x * (1 / 40320))
            value = 1.0 + x * (1.0 + x * (1 / 2 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * value)))))
            for _ in range(HALVINGS):
                value *= value
            value *= base[j]
            double[j] = value
            single[j] = value


@jit
def _all_values(matrices, own, kernel, gamma):
    """Kernel values of any gamma. In place: double, single, and room."""
    n, block = own.measure.shape[0], own.block
    for i in range(n):
        for first in range(0, n, LANES):
            count = min(LANES, n - first)
            for j in range(count):
                block[j] = gamma * own.measure[i, first + j]
            for j in range(count, LANES):
                block[j] = 0.0
            from_measures(kernel, block, own.bits, own.power)
            for j in range(count):
                matrices.double[i, first + j] = block[j]
                matrices.single[i, first + j] = block[j]


@jit
def _take_values(matrices, own, kernel, gamma):
    """Make kernel values of another gamma. Gains, which only say what is tried first, stay. In place: all but these."""
    change = gamma - own.usual
    if own.base.shape[0] > 0 and abs(change) * own.widest <= WITHIN:
        _near_values(matrices, own, change)
    else:
        _all_values(matrices, own, kernel, gamma)
    matrices.size[0] = _take_diagonal(matrices)
