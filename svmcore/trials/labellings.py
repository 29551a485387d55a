"""Many labellings of the same rows, cross-validated: what `cross_val_many`, permutation tests and searchlights share.

problem -> kernel matrix -> tasks -> engine -> decision values out of fold -> scores. `solvers/_crowd` is the engine, and
`cv/trials` has folds and scores. A labelling is a row of `codes` (classes by number) or of targets.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._types import FloatArray, Kernel, KernelKind
from svmcore.base.door import entered
from svmcore.base.threads import one_blas_thread
from svmcore.cv.grams import squared_distances
from svmcore.cv.trials import COUNTED, FoldNumbers, Judge, Plan, first_lack, make_judge, make_plan
from svmcore.kernel.points import is_sparse
from svmcore.kernel.table import facts_of
from svmcore.kernel.whole import whole_kernel
from svmcore.problem import border, labelling
from svmcore.solvers._crowd import Matrices, Scaled, crowd_of, matrices_of, scaled
from svmcore.train.forms import one_class_problem

MOST_ROWS = 2000  # beyond, kernel matrices and their forms leave every cache, and other functions are as fast
EXACT_TOL = 1e-6  # the usual tolerance where a score is not a count of rows
USUAL_TOL = 1e-3
_NEGATIVE = -1e-6  # an eigenvalue below this share of the largest one is not the rounding of float32
LOSSES = ("hinge", "epsilon_insensitive")


@dataclass(frozen=True)
class Trial:
    """All but the kernel matrix and the labellings."""

    plan: Plan
    judge: str | Judge
    classes: NDArray[Any] | None  # None: targets
    costs: FloatArray
    epsilon: float
    weights: FloatArray
    factors: FloatArray  # of costs, by class; negative: balanced
    tol: float
    word: str = "column"  # what a labelling is called in messages
    keep: bool = False  # whether decision values are wanted
    own: tuple[Scaled, Kernel] | None = None  # the kernel, where the rows that train say what gamma is

    def with_own_gamma(self, X: Any, form: Wording) -> Trial:
        """The same where gamma="scale" looks at the rows that train in a fold. Fixed folds become a round each."""
        rounds = self.plan.fixed
        if rounds is not None:
            rounds = [
                FoldNumbers(np.where(each.folds == k, 0, np.where(each.folds < 0, -1, 1)), 1)
                for each in rounds for k in range(each.n_folds)
            ]  # fmt: skip
        return replace(self, own=_scaled(X, form), plan=self.plan._replace(fixed=rounds))

    @property
    def all_costs(self) -> bool:
        """Whether the score is the best one over every C."""
        return bool(np.isnan(self.costs[0]))

    @property
    def score(self) -> str:
        """The name of the score."""
        return self.judge if isinstance(self.judge, str) else str(getattr(self.judge, "__name__", "score"))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of classes (positive, negative) that machines tell apart."""
        k = 0 if self.classes is None else len(self.classes)
        return [(1, 0)] if k <= 2 else list(itertools.combinations(range(k), 2))

    def values(self, codes: Any, pair: tuple[int, int]) -> FloatArray:
        """What machines of a pair of classes learn: 1, -1, or 0 for a row of another class; targets as they are."""
        if self.classes is None:
            return np.ascontiguousarray(codes, dtype=np.float64)
        return np.asarray((codes == pair[0]) * 1.0 - (codes == pair[1]))

    def crowd(self, codes: Any, pair: tuple[int, int], rounds: FoldNumbers, cost: float) -> Any:
        """The tasks of a round for a pair of classes."""
        factors = self.factors[[pair[1], pair[0]]] if self.classes is not None else None
        return crowd_of(
            self.values(codes, pair), rounds.folds, rounds.n_folds, cost, labels=self.classes is not None,
            epsilon=self.epsilon, weights=self.weights, factors=factors,
        )  # fmt: skip

    def demand(self, codes: Any, rounds: list[FoldNumbers], first: int) -> None:
        """Refuse folds that train without one of the classes, or without a row."""
        if self.classes is None:
            return
        before = 0
        for each in rounds:
            for pair in self.pairs:
                lack = first_lack(self.values(codes, pair), self.weights, each)
                if lack is not None:
                    name = self.classes.tolist()[pair[0] if lack[2] > 0 else pair[1]]
                    at = first + lack[0]
                    raise InputError(
                        f"{self.word} {at}: fold {before + lack[1]} trains without a row of class {name!r}; use stratified "
                        "folds (cv=5), fewer of them, or leave a class out that has too few rows"
                    )
            before += each.n_folds


def learned(Y: Any, n: int, loss: str, weights: FloatArray | None) -> tuple[Any, NDArray[Any] | None]:
    """Y of shape (n,) or (n, m), checked, as m labellings: a row of numbers for each; and the classes, or None."""
    values = entered(Y, "Y")
    if values.ndim not in (1, 2) or len(values) != n or not values.size:
        raise InputError(
            f"Y has shape {values.shape} for {n} rows; give (n,), or (n, m) with a column for each labelling"
        )
    columns = values.reshape(n, -1).T
    if loss == "hinge":
        several = None if weights is None else np.tile(weights, len(columns))
        codes, classes = labelling.class_codes(np.ascontiguousarray(columns).reshape(-1), columns.size, several)
        return codes.reshape(columns.shape), classes
    for k, column in enumerate(columns):
        try:
            border.vector(column, "y", n)
        except InputError as error:
            raise error if len(columns) == 1 else InputError(f"column {k}: {error}") from None
    return np.ascontiguousarray(columns, dtype=np.float64), None


class Wording(NamedTuple):
    """The words of a problem that all these functions take."""

    loss: str
    epsilon: Any
    kernel: Any
    gamma: Any
    degree: Any
    coef0: Any
    standardize: Any
    feature_names: Any
    sample_weight: Any
    class_weight: Any


def gram_of_rows(X: Any, form: Wording, n_threads: int) -> tuple[FloatArray, FloatArray | None]:
    """The kernel among all rows, and the weights of these."""
    problem = one_class_problem(
        X, kernel=form.kernel, gamma=form.gamma, degree=form.degree, coef0=form.coef0, sample_weight=form.sample_weight,
        standardize=form.standardize, feature_names=form.feature_names,
    )  # fmt: skip
    n, kernel = problem.X.shape[0], problem.spec.kernel
    demand_size(n)
    weights = border.sample_weights(form.sample_weight, n)
    if kernel.kind == KernelKind.PRECOMPUTED:
        return np.asarray(problem.X), weights
    with one_blas_thread:
        if kernel.kind == KernelKind.LINEAR and not is_sparse(problem.X):
            centred = problem.X - problem.X.mean(axis=0)  # with an intercept it changes nothing, and saves digits
            return centred @ centred.T, weights
        return np.asarray(whole_kernel(problem.X, kernel, problem.spec.function, n_threads)), weights


def _scaled(X: Any, form: Wording) -> tuple[Scaled, Kernel]:
    """The kernel where the rows that train say what gamma is. Measures are multiplied by it."""
    kernel, points = border.kernel(form.kernel, X, 1.0, form.degree, form.coef0).kernel, border.features(X)
    with one_blas_thread:
        if facts_of(kernel).measure == "square":
            measure = squared_distances(points)
        else:
            products = points @ points.T
            measure = np.ascontiguousarray(products.todense() if is_sparse(points) else products)
    n, d = points.shape
    means = np.asarray(points.mean(axis=1)).reshape(n)
    if is_sparse(points):
        squares = np.asarray(points.multiply(points).sum(axis=1)).reshape(n) - d * means**2
    else:
        squares = np.square(points - means[:, None]).sum(axis=1)
    variance = float((squares.sum() + d * np.square(means - means.mean()).sum()) / n)  # of all entries, times d
    return scaled(np.asarray(measure), means, squares, d, kernel, 1.0 / variance if variance > 0.0 else 1.0), kernel


class Stack:
    """Kernel matrices that are there. They are read one by one, and never copied as a whole."""

    def __init__(self, X: Any, kernel: Any) -> None:
        self.X = X if isinstance(X, np.ndarray) else entered(X, "X")
        if kernel != "precomputed" or self.X.ndim != 3 or self.X.shape[1] != self.X.shape[2] or not self.X.size:
            raise InputError(
                f"X has shape {self.X.shape}, and a stack of kernel matrices has (m, n, n), with kernel='precomputed'; give "
                "that, or rows and features (to searchlight with neighbours)"
            )
        self.m, self.n = self.X.shape[:2]
        demand_size(self.n)

    def gram(self, k: int) -> FloatArray | None:
        """The kernel matrix of group k."""
        try:
            return border.gram(np.asarray(self.X[k], dtype=np.float64))
        except InputError as error:
            raise InputError(f"matrix {k}: {error}") from None


def demand_size(n: int) -> None:
    """Refuse what is not small."""
    if n > MOST_ROWS:
        raise InputError(
            f"{n} rows: this is for at most {MOST_ROWS:,} rows, which share one kernel matrix; use train_many for machines, "
            "or cv_path for one labelling, of more rows"
        )


def setting_of(
    form: Wording, codes: Any, classes: Any, weights: FloatArray | None, C: Any, cv: Any, groups: Any, score: Any, tol: Any
) -> Trial:  # fmt: skip
    """Checked words."""
    n = codes.shape[1]
    loss = border.choice("loss", form.loss, LOSSES)
    if loss == "hinge" and form.epsilon is not None:
        raise InputError(
            f"epsilon={form.epsilon!r} belongs to a regression, and loss='hinge' is for labels; leave it out"
        )
    if loss != "hinge" and form.class_weight is not None:
        raise InputError(f"class_weight belongs to labels; with loss={loss!r} use sample_weight")
    epsilon = border.number("epsilon", 0.1 if form.epsilon is None else form.epsilon, low=0.0)
    if isinstance(C, str) and C != "path":
        raise InputError(f'C={C!r} is not known; give a number, several, or, in permutation_test, "path" for every C')
    if isinstance(C, str) and classes is None:
        raise InputError('C="path" is for labels; with targets give a list of numbers')
    given = [] if isinstance(C, str) else np.atleast_1d(entered(C, "C")).tolist()
    costs = [np.nan] if isinstance(C, str) else [border.cost(each, infinite=False) for each in given]
    if not costs:
        raise InputError("C is an empty list; give a number, or several")
    judge = make_judge(score, classes is not None, classes is not None and len(classes) > 2)
    tol = (USUAL_TOL if judge in COUNTED else EXACT_TOL) if tol is None else tol
    factors = np.ones(2)
    if classes is not None and isinstance(form.class_weight, str) and form.class_weight == "balanced":
        factors = np.full(len(classes), -float(len(classes)))
    elif classes is not None:
        factors = labelling.class_factors(form.class_weight, classes, codes[0], None)
    return Trial(
        make_plan(cv, n, classes, groups), judge, classes, np.array(costs), epsilon if loss != "hinge" else 0.0,
        np.ones(n) if weights is None else weights, factors, border.number("tol", tol, low=0.0, strict=True),
    )  # fmt: skip


def checked_matrices(gram: Any) -> Matrices:
    """The forms of a kernel matrix. A negative eigenvalue is said, once."""
    matrices = matrices_of(gram)
    if not len(matrices.inverse):
        n = len(gram)
        with one_blas_thread:
            eigenvalues = np.linalg.eigvalsh(matrices.double[:, :n])
        if eigenvalues[0] < _NEGATIVE * max(abs(eigenvalues[0]), abs(eigenvalues[-1])):
            warn(
                f"the kernel matrix has the negative eigenvalue {eigenvalues[0]:.3g} (the largest is {eigenvalues[-1]:.3g}): "
                "answers may be local optima, and gaps bound nothing; use a positive semi-definite kernel",
                ConvergenceWarning,
            )
    return matrices
