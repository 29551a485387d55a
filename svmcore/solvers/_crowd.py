"""Many small problems over one kernel matrix: its forms, and the pilot. The loops are in `_crowd_jit`.

Whoever has many tasks cuts them into slices of `SLICE`. Slices share nothing, so that bits depend neither on threads nor on
what else the machine does. A pilot of the first tasks decides by counts, and never by a clock, whether the
inverse is asked first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack

from svmcore._types import LANES, FloatArray, IntArray, Kernel
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.points import new_scratch
from svmcore.kernel.table import facts_of
from svmcore.simd.passes import TOGETHER
from svmcore.simd.vector import BIG_32
from svmcore.solvers._crowd_forms_jit import Scaled as Scaled
from svmcore.solvers._crowd_forms_jit import take_forms
from svmcore.solvers._crowd_jit import STEPS, TOLD, TURNS, Harvest, run_scaled, run_tasks
from svmcore.solvers._crowd_jit import Crowd as Crowd
from svmcore.solvers._crowd_sets_jit import Booth
from svmcore.solvers._crowd_sets_jit import Matrices as Matrices

WIDTH = 32  # vectors in float32 are padded to so many entries, and those in float64 to half as many
SLICE = 256  # tasks of a slice, which is done in one go; one column, where that has more
_PILOT = 10  # so many tasks are done both ways
_TURN = 0.4  # what a turn on the inverse costs, in pair steps a row
_MISSED = 8  # so many turns a task has cost that the inverse could not answer
_FEW_OUT = 4  # from more single rows on, the machine of all of them is worth its time
_REGULAR = 1e8  # a matrix is regular if its condition is below this


def matrices_of(gram: Any, *, inverse: bool = True) -> Matrices:
    """The forms of a symmetric kernel matrix that tasks work with."""
    n = len(gram)
    width, columns = -(-n // WIDTH) * WIDTH, -(-n // (WIDTH // 2)) * (WIDTH // 2)
    double, single, gain = np.zeros((n, columns)), np.zeros((n, width), np.float32), np.zeros((n, width), np.float32)
    double[:, :n] = gram
    matrices = Matrices(single, gain, np.zeros(n, np.float32), double, np.zeros(1), np.zeros((0, columns)), np.zeros(0))
    take_forms(matrices)
    found = _inverse(double[:, :n], matrices.size[0]) if inverse else None
    if found is None:
        return matrices
    shared = np.zeros((n, columns))
    shared[:, :n] = found
    return matrices._replace(inverse=shared, sums=shared.sum(axis=1))


@one_blas_thread
def _inverse(gram: FloatArray, size: float) -> FloatArray | None:
    """The inverse of K + size; None where that is not regular."""
    shifted = gram + size
    factor, wrong = lapack.dpotrf(shifted, lower=1)
    if wrong:
        return None
    half, wrong = lapack.dpotri(factor, lower=1)
    whole = np.tril(half) + np.tril(half, -1).T
    condition = np.abs(shifted).sum(axis=0).max() * np.abs(whole).sum(axis=0).max()
    return None if wrong or not condition < _REGULAR else whole


def booth_for(matrices: Matrices) -> Booth:
    """Room for one group of tasks."""
    n, width = matrices.single.shape
    columns = matrices.double.shape[1]
    masks = np.zeros((3, TOGETHER, width), np.float32)
    masks[1], masks[2] = -BIG_32, BIG_32
    c, lower, upper, beta = np.zeros((4, TOGETHER, n))
    todo, steps, turns = np.zeros((3, TOGETHER), np.int64)
    rows, inside, sign, kept_rows = np.zeros((4, n + 1), np.int64)
    one, way, kept_one = np.zeros((3, n + 1))
    z, h = np.zeros((2, columns))
    return Booth(
        c, lower, upper, beta, np.zeros((TOGETHER, columns)), masks[0], masks[1], masks[2],
        np.zeros((n, TOGETHER), np.float32), np.zeros((n, TOGETHER)), np.zeros(TOGETHER), todo, steps, turns, rows, inside,
        sign, one, way, z, h, np.empty((n + 1, n + 1)), np.empty((0, 0)), kept_one, kept_rows,
    )  # fmt: skip


def with_seats(gram: Any) -> Matrices:
    """The forms of a kernel matrix, with rows for a group of guests before its own."""
    n = TOGETHER + len(gram)
    whole = np.zeros((n, n))
    whole[TOGETHER:, TOGETHER:] = gram
    np.fill_diagonal(whole[:TOGETHER], np.abs(gram.diagonal()).mean())
    return matrices_of(whole, inverse=False)


class Manner(NamedTuple):
    """How tasks are solved."""

    tol: float
    inverse: bool
    certain: bool  # whether decision values near the threshold are brought to more digits
    coef: bool = False
    own: tuple[Scaled, Kernel] | None = None  # the kernel, where the rows that train say what gamma is


def harvest(matrices: Matrices, crowd: Crowd, way: Manner, booth: Booth | None = None) -> Harvest:
    """Solve all tasks of a crowd: decision values out of fold, what is told of tasks, coefficients where they are wanted."""
    columns, n = crowd.values.shape
    tasks = columns * crowd.n_folds
    out = Harvest(np.full((columns, n), np.nan), np.zeros((tasks, TOLD)), np.zeros((tasks if way.coef else 0, n)))
    if len(crowd.guests):
        matrices = _own(matrices)
    by_inverse, booth = way.inverse and len(matrices.inverse) > 0, booth or booth_for(matrices)
    if way.own is None:
        if leaves_one_out(crowd) and not by_inverse:
            everybody = crowd._replace(folds=np.where(crowd.folds < 0, -1, 1), n_folds=1)
            whole = harvest(matrices, everybody, way._replace(inverse=False, certain=False, coef=True), booth).coef
            crowd, booth = crowd._replace(whole=whole), booth._replace(kept=np.empty_like(booth.factor))
        run_tasks(matrices, crowd, booth, way.tol, by_inverse, way.certain, out)
        return out
    scaled, kernel = way.own
    _, bits, power = new_scratch(0)
    room = scaled._replace(block=np.zeros(LANES), bits=bits, power=power)
    run_scaled(_own(matrices), _own(matrices), room, kernel, crowd, booth, way.tol, way.certain, out)
    return out


def _own(matrices: Matrices) -> Matrices:
    """The same to write to: other threads read these."""
    names = ("single", "gain", "diagonal", "double", "size")
    return matrices._replace(**{name: getattr(matrices, name).copy() for name in names})


def scaled(measure: FloatArray, means: FloatArray, squares: FloatArray, d: int, kernel: Kernel, usual: float) -> Scaled:
    """A kernel whose gamma looks at the rows that train, about the usual gamma. `means` and `squares` as in `Scaled`."""
    n, width = len(measure), WIDTH // 2
    padding, facts = ((0, 0), (0, -n % width)), facts_of(kernel)
    base = facts.value(kernel._replace(gamma=usual), measure) if facts.exponential else np.zeros((0, n))
    none = np.zeros(0)
    return Scaled(
        np.pad(measure, padding), np.pad(base, padding), usual, float(np.abs(measure).max()), means, squares, d, none,
        np.zeros(0, np.int64), none,
    )  # fmt: skip


def leaves_one_out(crowd: Crowd) -> bool:
    """Whether folds are single rows, so that a task is the machine of all rows without one; costs must not look at folds."""
    folds = crowd.folds[0]
    sizes = np.bincount(folds[(folds >= 0) & (folds < crowd.n_folds)], minlength=crowd.n_folds)
    return bool(len(crowd.folds) == 1 and len(sizes) > _FEW_OUT and (sizes == 1).all() and crowd.factors.min() >= 0.0)


def pilot(matrices: Matrices, crowd: Crowd, tol: float) -> bool:
    """Whether the inverse answers the first tasks in less work than pair steps."""
    n = crowd.values.shape[1]
    if not len(matrices.inverse):
        return False
    folds = min(crowd.n_folds, _PILOT)
    few = slice(0, -(-_PILOT // folds))
    crowd = crowd._replace(values=crowd.values[few], folds=crowd.folds[few], n_folds=folds)
    steps = harvest(matrices, crowd, Manner(tol, False, False)).told[:, STEPS]
    turns = harvest(matrices, crowd, Manner(tol, True, False)).told[:, TURNS]
    by_turns = np.where(turns == 0, _MISSED * _TURN * n + steps, turns * _TURN * n)
    return bool(by_turns.mean() < steps.mean())


def expects_few(matrices: Matrices, crowd: Crowd, tol: float) -> bool:
    """Whether these first tasks take fewer steps from zero than along the difference of the class means."""
    ways = [
        harvest(matrices, crowd._replace(few=few), Manner(tol, False, False)).told[:, STEPS] for few in (True, False)
    ]
    return bool(ways[0].sum() <= ways[1].sum())


def guests_of(guests: FloatArray, cost: float, weights: FloatArray, factors: FloatArray, few: bool) -> Crowd:
    """The tasks of guests, each against all rows of a matrix `with_seats`, whose weights these are."""
    count, n = len(guests), TOGETHER + len(weights)
    values = np.full((TOGETHER, n), -1.0)
    values[:, :TOGETHER] = np.eye(TOGETHER)
    crowd = crowd_of(
        np.resize(values, (count, n)), np.ones(n, np.int64), 1, cost, labels=True,
        weights=np.concatenate([np.ones(TOGETHER), weights]), factors=factors,
    )  # fmt: skip
    return crowd._replace(few=few, guests=np.ascontiguousarray(guests))


def crowd_of(
    values: FloatArray, folds: IntArray, n_folds: int, cost: float, *, labels: bool, epsilon: float = 0.0,
    weights: FloatArray | None = None, factors: FloatArray | None = None,
) -> Crowd:  # fmt: skip
    """Tasks from checked arrays. Weights and factors may be those of all columns. `factors` as in `Crowd`."""
    weights = np.ones(values.shape[1]) if weights is None else weights
    factors = np.ones(2) if factors is None else factors
    folds = np.ascontiguousarray(np.atleast_2d(folds), np.int64)
    return Crowd(
        np.ascontiguousarray(values), folds, float(cost), np.atleast_2d(weights), np.atleast_2d(factors), int(n_folds),
        labels, float(epsilon), np.zeros((0, 0)), False, np.zeros((0, 0)),
    )  # fmt: skip
