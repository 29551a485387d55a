"""What machines at one C say of rows that they were not trained on, for the sigmoids of `probability=True` and of ``-b 1``.

Five machines of the same form, each on four fifths of the rows, give every row such a value. Of few rows all of them are
tasks over one kernel matrix. Of more rows, or where a task finds no answer, each is trained by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._types import DualQP, FloatArray, IntArray, Kernel, KernelKind, Status
from svmcore.base.threads import one_blas_thread
from svmcore.cv.calibration import fit_sigmoids
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import is_sparse
from svmcore.kernel.table import is_positive
from svmcore.kernel.whole import gram_of, part_of
from svmcore.problem.division import Division, Sides
from svmcore.solvers import small

N_FOLDS = 5
ALWAYS, NEVER = N_FOLDS, N_FOLDS + 1
"""In place of a fold: rows that are always trained on, and rows that never are."""

_AT_ONCE = 1e7  # kernel values of the tasks between two looks at the clock


class DealtRows(NamedTuple):
    """What machines are trained on: scaled features or kernel values, classes as places, costs at C = 1, folds."""

    X: Any
    codes: IntArray
    weights: FloatArray
    owner: IntArray


def dealt(codes: IntArray, there: IntArray, seed: int) -> IntArray:
    """The fold of every row: each class is shuffled and dealt out in turn, so that two rows of a class are parted.

    The only row of its class is always trained on. `there`: the rows that have a weight; the others never are.
    """
    owner = np.full(len(codes), NEVER)
    owner[there] = ALWAYS
    rows = there[np.bincount(codes[there])[codes[there]] > 1]
    rows = np.random.default_rng(seed).permutation(rows)
    owner[rows[np.argsort(codes[rows], kind="stable")]] = np.arange(rows.size) % N_FOLDS
    return owner


def folds(owner: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
    """For each fold that has rows: its number, the rows to train on and those to value."""
    for k in range(N_FOLDS):
        test = np.flatnonzero(owner == k)
        if test.size:
            yield k, np.flatnonzero((owner != k) & (owner != NEVER)), test


def sigmoids(values: FloatArray, codes: IntArray, weight: FloatArray, which: Division, tol: float) -> FloatArray:
    """Rows a and b: the probability of the second class of a machine is 1 / (1 + exp(a f + b)). A column for each.

    Values are known to `tol`: machines that say the same of all rows differ by that between folds.
    """
    holds = np.stack([part.holds(codes) for part in which.parts]) & (weight > 0.0)
    rows = [np.flatnonzero(mine) for mine in holds]
    shape = (len(rows), max(mine.size for mine in rows))
    scores, heavy, positive = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    for k, (mine, part) in enumerate(zip(rows, which.parts, strict=True)):
        scores[k, : mine.size], heavy[k, : mine.size] = values[mine, k], weight[mine]
        positive[k, : mine.size] = part.positive(codes[mine])
    return fit_sigmoids(scores, positive, heavy, tol)


# ---- machines as tasks over one matrix -------------------------------------------------------------------------------


def over_matrix(
    rows: DealtRows,
    kernel: Kernel,
    which: Division,
    costs: list[float],
    nus: list[float] | None,
    tol: float,
    n_threads: int,
) -> FloatArray | None:
    """The values of rows with a fold, a column for each machine; None where these machines have to be trained one by one.

    A Ctrl-C that comes meanwhile is raised.
    """
    n = len(rows.codes)
    given = kernel.kind == KernelKind.PRECOMPUTED
    if not (small.LEAST <= n <= small.MOST_POINTS and (given or is_positive(kernel)) and np.isfinite(costs).all()):
        return None
    order = np.lexsort((rows.owner, rows.codes))
    owner, codes = rows.owner[order], rows.codes[order]
    gram = _gram(rows.X, order, kernel, n_threads)
    tasks = _FoldTasks(gram, owner, codes, rows.weights[order], tol, n_threads)
    asked = [(k, fold) for fold, _, _ in folds(owner) for k in range(len(which.parts))]
    coef, bias = np.zeros((N_FOLDS, n, len(which.parts))), np.zeros((N_FOLDS, len(which.parts)))
    with Control(time_limit=None, callback=None, verbose=0, name="folds") as control, np.errstate(all="ignore"):
        while asked:
            problems, chosen, size = [], [], 0.0
            while asked and size < _AT_ONCE:
                k, fold = chosen_one = asked.pop(0)
                chosen.append(chosen_one)
                problems.append(tasks.problem(which.parts[k], fold, costs[k]))
                size += float(len(problems[-1][0].c)) ** 2
            found = tasks.solved(problems, None if nus is None else [nus[k] for k, _ in chosen])
            if control.reason() is Status.INTERRUPTED:
                raise KeyboardInterrupt
            for (k, fold), (qp, _), answer in zip(chosen, problems, found, strict=True):
                if answer is None:
                    return None
                coef[fold, qp.point, k], bias[fold, k] = answer.beta, answer.bias
    values = np.zeros((n, len(which.parts)))
    with one_blas_thread:
        for fold, _, test in folds(owner):
            values[order[test]] = gram[test, :n] @ coef[fold] + bias[fold]
    return values


def _gram(X: Any, order: IntArray, kernel: Kernel, n_threads: int) -> FloatArray:
    """The kernel among all rows, in this order."""
    if kernel.kind == KernelKind.PRECOMPUTED:
        return part_of(np.ascontiguousarray(X), order, order)
    X = X[order]
    if kernel.kind == KernelKind.LINEAR and not is_sparse(X):
        X = X - X.mean(axis=0)  # for the sake of rounding: sums of coefficients are zero
    with one_blas_thread:
        return gram_of(KernelMatrix(X, kernel, cache_bytes=0, n_threads=n_threads))


class _FoldTasks:
    """Machines without a fold, over rows in the order of classes and folds."""

    def __init__(
        self, gram: FloatArray, owner: IntArray, codes: IntArray, weights: FloatArray, tol: float, n_threads: int
    ) -> None:
        self.gram, self.codes, self.weights, self.tol, self.n_threads = gram, codes, weights, tol, n_threads
        self.places = np.arange(len(codes))
        keys = (NEVER + 1) * codes + owner
        n_classes = int(codes[-1]) + 1
        self.edges = np.searchsorted(keys, np.arange((NEVER + 1) * n_classes)).reshape(n_classes, -1).tolist()

    def problem(self, part: Sides, fold: int, C: float) -> tuple[DualQP, IntArray]:
        """A machine's problem, and the spans of its points."""
        spans: list[list[int]] = []
        for c in sorted(part.minus + part.plus):
            edges = self.edges[c]
            for first, last in ((edges[0], edges[fold]), (edges[fold + 1], edges[NEVER])):
                if spans and spans[-1][1] == first:
                    spans[-1][1] = last
                elif first < last:
                    spans.append([first, last])
        point = np.concatenate([self.places[first:last] for first, last in spans])
        above = part.positive(self.codes[point])
        bound = C * self.weights[point]
        sign = np.where(above, 1.0, -1.0)
        qp = DualQP(sign, np.where(above, 0.0, -bound), np.where(above, bound, 0.0), np.zeros(len(point)), point, True)
        return qp, np.array(spans)

    def solved(self, problems: list[tuple[DualQP, IntArray]], nus: list[float] | None) -> list[Any]:
        """An outcome for each problem, or None."""
        several = small.joined(problems)
        if nus is not None:
            found = small.with_nu(self.gram, several, nus, self.tol, self.n_threads)
            return [None if one is None else one[1] for one in found]
        batch = small.Batch(self.gram, several, np.zeros(len(several.qp.c)))
        batch.solve(self.tol, self.n_threads)
        return batch.outcomes(self.tol)


# ---- machines one by one ---------------------------------------------------------------------------------------------


def one_by_one(
    X: Any,
    owner: IntArray,
    given: bool,
    train: Callable[[int, Any, IntArray], tuple[Callable[[Any], FloatArray], bool]],
) -> FloatArray:
    """The same by machines that `train(fold, X, rows)` makes of some rows. It returns what values new rows, and whether it
    was interrupted. `given`: X holds kernel values.
    """
    values: FloatArray | None = None
    for fold, rows, test in folds(owner):
        valued, interrupted = train(fold, X[np.ix_(rows, rows)] if given else X[rows], rows)
        if interrupted:
            raise KeyboardInterrupt
        found = valued(X[np.ix_(test, rows)] if given else X[test])
        values = np.zeros((len(owner), found.shape[1])) if values is None else values
        values[test] = found
    assert values is not None
    return values
