"""`cross_val_many`: many labels, targets or kernel matrices of the same rows, each cross-validated, in one call."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svmcore._control import new_control
from svmcore._errors import InputError
from svmcore._keywords import Gamma, KernelLike, checked
from svmcore._types import NONZERO, FloatArray, Status
from svmcore.base.frames import frame
from svmcore.base.parallel import worker_count
from svmcore.kernel.matrix import available_threads
from svmcore.problem import border
from svmcore.train.functions import train_svc
from svmcore.trials.labellings import Stack, Wording, checked_matrices, gram_of_rows, learned, setting_of
from svmcore.trials.slices import CHUNK, Ending, Violations, in_slices, joined, of_stack, parts, pilots

_ALL = 4  # arrays of the size of the decision values that are there at a time


@dataclass(frozen=True)
class ManyFolds:
    """What `cross_val_many` returns.

    Attributes
    ----------
    scores : (m, folds), the larger the better; (m, values of C, folds) where C is a list.
    decisions : (m, n) decision values out of fold, or regression values; NaN where no fold validates a row, a mean where
        several do. With a list of C (m, values of C, n); with several classes a last axis of pairs: (0, 1), (0, 2), ...
    violation, gap : of every machine, as `scores`: measured in float64 from the kernel matrix.
    relative_gap : the gap as a share of the primal.
    classes : the sorted labels, of which the second is the positive one; None for targets.
    Cs, score, tol : what was asked for.
    status : why it ended. Where it ended early, the labellings that are complete are there.
    """

    scores: FloatArray
    decisions: FloatArray
    violation: FloatArray
    gap: FloatArray
    relative_gap: FloatArray
    classes: NDArray[Any] | None
    Cs: FloatArray
    score: str
    tol: float
    status: Status
    seconds: float = field(compare=False)

    @property
    def converged(self) -> bool:
        """Whether all is complete, and every machine met the tolerance."""
        return self.status.ok and bool((self.violation <= self.tol).all())

    def __repr__(self) -> str:
        mean = float(np.mean(self.scores)) if self.scores.size else float("nan")
        return (
            f"<ManyFolds: {len(self.scores)} labellings x {self.scores.shape[-1]} folds, mean {self.score} {mean:.4g}, "
            f"largest violation {float(self.violation.max(initial=0.0)):.1e}>"
        )

    def to_frame(self) -> Any:
        """A pandas DataFrame: one row per labelling, value of C and fold."""
        shape = (len(self.scores), len(self.Cs), self.scores.shape[-1])
        column, C, fold = (axis.reshape(-1) for axis in np.indices(shape))
        names = ("score", "violation", "gap", "relative_gap")
        values = (self.scores, self.violation, self.gap, self.relative_gap)
        return frame(
            {"column": column, "C": self.Cs[C], "fold": fold}
            | {name: value.reshape(-1) for name, value in zip(names, values, strict=True)}
        )


@checked(train_svc)
def cross_val_many(
    X: Any, Y: Any, cv: Any = 5, C: Any = 1.0, *, loss: str = "hinge", epsilon: float | None = None,
    kernel: KernelLike = "rbf", gamma: Gamma = "scale", degree: int = 3, coef0: float = 0.0, standardize: bool = False,
    feature_names: Any = None, sample_weight: Any = None, class_weight: Any = None, score: Any = None, groups: Any = None,
    tol: float | None = None, n_jobs: int | None = None, time_limit: float | None = None, callback: Any = None,
    verbose: int = 0,
) -> ManyFolds:  # fmt: skip
    """Cross-validate many machines over the same rows: one for every column of labels or targets, and every fold.

    All of them share one kernel matrix of at most 2,000 rows. Every machine is certified, and its decision values out of fold
    cost nothing.

    Parameters
    ----------
    X : as in `train_svc`; or with kernel="precomputed" a stack of m kernel matrices, (m, n, n). It may be a memory map in
        float32, and is read matrix by matrix.
    Y : labels or targets, (n,), or (n, m) with a column for every labelling. Labels of all columns are of the same classes.
        A stack takes one column for all its matrices, or one for each.
    cv : a number of folds, as scikit-learn makes them (stratified for labels, neighbours for targets; not shuffled), "loo", a
        scikit-learn splitter, or a list of index pairs (train, test).
    C : a number, or a list of numbers.
    loss : "hinge" for labels, of two classes or of several (one machine a pair); "epsilon_insensitive" for targets.
    class_weight : a mapping, or "balanced", which counts the rows that train in each fold.
    score : "accuracy" (the default of labels), "balanced_accuracy", "roc_auc"; "r2" (that of targets), "correlation",
        "neg_mean_squared_error"; or a function of (y, decision values) of the rows of a fold; with several classes of (y,
        predictions).
    tol : the largest KKT violation; 1e-3, or 1e-6 where the score is no count. Where a row is too close to the threshold for
        that to say its class, its machine goes on to 1e-6.
    n_jobs : threads, side by side; -1: one per processor. Results do not depend on it, to the last bit.
    gamma, standardize : they look at all rows alike.
    time_limit, callback, verbose : as in `train_svc`. What is complete when it ends is returned.

    Examples
    --------
    >>> import numpy as np, svmcore
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> Y = np.column_stack([X[:, 0] > 0, X[:, 1] > 0])
    >>> found = svmcore.cross_val_many(X, Y, cv=5, C=10.0, kernel="linear")
    >>> found.scores.shape, found.decisions.shape, found.converged
    ((2, 5), (2, 60), True)
    """
    begin = time.perf_counter()
    form = Wording(
        loss, epsilon, kernel, gamma, degree, coef0, standardize, feature_names, sample_weight, class_weight
    )  # fmt: skip
    threads = max(1, available_threads() // worker_count(n_jobs))
    stack = Stack(X, kernel) if np.ndim(X) == 3 else None
    gram, weights = gram_of_rows(X if stack is None else np.eye(stack.n), form, threads)
    n = len(gram)
    codes, classes = learned(Y, n, loss, weights)
    m = len(codes) if stack is None else stack.m
    if len(codes) not in (1, m):
        raise InputError(f"Y has {len(codes)} columns for a stack of {m} matrices; give one column, or as many")
    setting = replace(setting_of(form, codes, classes, weights, C, cv, groups, score, tol), keep=True)
    if setting.all_costs:
        raise InputError('C="path" is for permutation_test; cv_path gives the score of one labelling for every C')
    border.memory(8.0 * _ALL * m * n * len(setting.costs), "the decision values", "give fewer columns at a time")
    with new_control("cross_val_many", time_limit, callback, verbose) as control:
        ended = Ending(control, m)
        if stack is None:
            matrices = checked_matrices(gram)
            got = list(parts(setting, matrices, pilots(setting, matrices, codes), codes, n_jobs, ended))
        else:
            slices = in_slices(of_stack, lambda a, b: (setting, stack, codes, a, b), CHUNK, m, n_jobs, ended)
            got = [part for _, part in slices]
    all_of = joined(got)
    scores, decisions, violation, gap, primal = (
        array if np.ndim(C) else array[:, 0]
        for array in (all_of.scores, all_of.decisions, all_of.violation, all_of.gap, all_of.primal) if array is not None
    )  # fmt: skip
    Violations(setting.tol).add(violation).speak()
    return ManyFolds(
        scores, decisions, violation, gap, gap / np.maximum(np.abs(primal), NONZERO), setting.classes, setting.costs,
        setting.score, setting.tol, ended.status, time.perf_counter() - begin,
    )  # fmt: skip
