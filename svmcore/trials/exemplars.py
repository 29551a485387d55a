"""`exemplars`: for every query the machine that tells it from the same negatives, in one call.

The rows of all problems are the negatives and one guest, which brings its own kernel values. `solvers/_crowd` has the loops.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from svmcore._control import new_control
from svmcore._errors import InputError
from svmcore._keywords import Gamma, KernelLike, checked
from svmcore._types import NONZERO, FloatArray, KernelKind, Status
from svmcore.base.parallel import worker_count
from svmcore.base.threads import one_blas_thread
from svmcore.kernel.matrix import KernelMatrix, available_threads
from svmcore.kernel.points import is_sparse, stacked
from svmcore.kernel.whole import whole_kernel
from svmcore.models.solution import Solution, Terms, to_format_of
from svmcore.problem import border, labelling
from svmcore.problem.columns import Columns
from svmcore.simd.passes import TOGETHER
from svmcore.solvers._crowd import Crowd, Manner, Matrices, expects_few, guests_of, harvest, with_seats
from svmcore.solvers._crowd_jit import BIAS, GAP, PRIMAL, STEPS, VIOLATION
from svmcore.train.forms import one_class_problem
from svmcore.train.functions import train_svc
from svmcore.train.many import machine_of
from svmcore.trials.labellings import USUAL_TOL, demand_size
from svmcore.trials.slices import Ending, Violations, in_slices

_CLASSES = np.array([-1, 1])
_SLICE = 1024  # queries that are answered in one go, by a worker that copies the matrices for it
_ROWS = 256  # rows whose kernel values are there at a time


class _Stage(NamedTuple):
    """All rows, as the kernel sees them."""

    X: Any
    Q: Any
    spec: border.KernelSpec
    columns: Columns
    terms: Terms
    weights: FloatArray
    factors: FloatArray  # of the costs of the negatives, and of a query
    centre: FloatArray | None  # what rows are moved by in training, where that changes nothing but digits
    n_threads: int

    def moved(self, A: Any) -> Any:
        """Rows as they are trained with."""
        return A if self.centre is None else A - self.centre

    def kernel(self, A: Any, B: Any) -> FloatArray:
        """k(a, b) of all pairs."""
        kernel, function, _ = self.spec
        if kernel.kind == KernelKind.LINEAR and function is None and not is_sparse(A):
            with one_blas_thread:
                return np.asarray(A @ B.T)
        K = KernelMatrix(stacked([A, B]), kernel, function, cache_bytes=0, n_threads=self.n_threads)
        return K.block(np.arange(A.shape[0]), np.arange(A.shape[0], K.n))

    def crowd(self, begin: int, end: int, few: bool) -> Crowd:
        """The problems of some queries."""
        kernel, function, _ = self.spec
        some = self.moved(self.Q[begin:end])
        own = KernelMatrix(some, kernel, function, cache_bytes=0).diagonal
        guests = np.concatenate([own[:, None], self.kernel(some, self.moved(self.X))], axis=1)
        return guests_of(guests, self.terms.C, self.weights, self.factors, few)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Exemplars:
    """What `exemplars` returns: m machines. `found[k]` is the `Solution` of query k, made when it is asked for.

    Attributes
    ----------
    weight : (m,), the coefficient of every query, at least 0.
    coef : (m, n) sparse, the coefficients of the negatives, at most 0: a row for every query.
    intercept : (m,).
    violation, gap, relative_gap, primal_objective : (m,), measured in float64 from the kernel values.
    n_iter : (m,), pair steps.
    tol : what was asked for. status : why it ended. Where it ended early, the first queries are there. seconds : for all.
    """

    weight: FloatArray
    coef: Any
    intercept: FloatArray
    violation: FloatArray
    gap: FloatArray
    relative_gap: FloatArray
    primal_objective: FloatArray
    n_iter: Any
    tol: float
    status: Status
    seconds: float
    _stage: _Stage = field(repr=False)

    @property
    def converged(self) -> bool:
        """Whether all is complete, and every machine met the tolerance."""
        return self.status.ok and bool((self.violation <= self.tol).all())

    def __len__(self) -> int:
        return len(self.weight)

    def __iter__(self) -> Iterator[Solution]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        support = f"{self.coef.nnz / max(len(self), 1):.3g} of {self.coef.shape[1]} negatives support each"
        return f"<Exemplars: {len(self)} machines, {support}, largest violation {self.violation.max(initial=0.0):.1e}>"

    def __getitem__(self, k: int) -> Solution:
        """The machine of query k. Of its training points the query is the first, and the negatives follow."""
        count = len(self)
        if not -count <= k < count:
            raise IndexError(f"there are {count} machines; {k} is none of them")
        stage, k = self._stage, k % count
        own = self.coef[[k]]
        first = [0] if self.weight[k] > 0.0 else []
        coef = np.concatenate([self.weight[[k] if first else []], own.data])
        vectors = stacked([stage.Q[[k] if first else []], stage.X[own.indices]])
        measures = (self.gap, self.primal_objective, self.relative_gap, self.violation)
        told = (*(float(each[k]) for each in measures), abs(float(coef.sum())), float(self.intercept[k]))
        ok, support = bool(self.violation[k] <= self.tol), np.concatenate([np.array(first, np.int64), own.indices + 1])
        return machine_of(
            stage.spec, told, support, coef, n_points=stage.X.shape[0] + 1, support_vectors=vectors, classes=_CLASSES,
            status=Status.CONVERGED if ok else Status.LIMITED, converged=ok, n_iter=int(self.n_iter[k]),
            fit_seconds=self.seconds / count, columns=stage.columns, terms=stage.terms, n_threads=stage.n_threads,
            stats={"precision": "mixed", "together": count},
        )  # fmt: skip

    def decision_function(self, Z: Any) -> FloatArray:
        """The values of all machines at the rows of Z, (rows, m)."""
        stage = self._stage
        Z = to_format_of(stage.columns.apply(Z), stage.X)
        out = np.empty((Z.shape[0], len(self)))
        for begin in range(0, Z.shape[0], _ROWS):
            some = Z[begin : begin + _ROWS]
            values = stage.kernel(some, stage.Q[: len(self)]) * self.weight
            out[begin : begin + _ROWS] = values + (self.coef @ stage.kernel(some, stage.X).T).T + self.intercept
        return out


@checked(train_svc)
def exemplars(
    Q: Any, X: Any, C: float = 1.0, *, class_weight: Any = None, kernel: KernelLike = "rbf", gamma: Gamma = "scale",
    degree: int = 3, coef0: float = 0.0, standardize: bool = False, feature_names: Any = None, sample_weight: Any = None,
    tol: float = USUAL_TOL, n_jobs: int | None = None, time_limit: float | None = None, callback: Any = None,
    verbose: int = 0,
) -> Exemplars:  # fmt: skip
    """Train a machine for every query: the query alone against the same negatives, as in exemplar machines.

    Machine k is the one that `train_svc` finds for query k, labelled 1, and the rows of X, labelled -1. All machines share
    the kernel matrix of at most 2,000 negatives, and each of them is certified. Most coefficients are zero, so that a
    machine takes a few microseconds.

    Parameters
    ----------
    Q : (m, d), the queries. X : (n, d), the negatives. Dense, sparse or data frames, as in `train_svc`.
    C, kernel, degree, coef0, feature_names, tol : as in `train_svc`; C is finite, and kernel="precomputed" knows no queries.
    gamma, standardize : "scale" and standardisation look at the negatives.
    class_weight : what C is multiplied by: a mapping from the labels 1 (the query) and -1, or "balanced".
    sample_weight : (n,), weights of the negatives.
    n_jobs : threads, side by side; -1: one per processor. Results do not depend on it, to the last bit.
    time_limit, callback, verbose : as in `train_svc`. The machines that are complete when it ends are returned.

    Examples
    --------
    >>> import numpy as np, svmcore
    >>> rng = np.random.default_rng(0)
    >>> X, Q = rng.normal(size=(200, 5)), rng.normal(size=(1000, 5))
    >>> found = svmcore.exemplars(Q, X, C=1.0, class_weight={1: 50.0})
    >>> len(found), found.converged, found.decision_function(X).shape
    (1000, True, (200, 1000))
    """
    from scipy import sparse

    begin, workers = time.perf_counter(), worker_count(n_jobs)
    if isinstance(kernel, str) and kernel == "precomputed":
        raise InputError(
            "kernel='precomputed' knows nothing of the queries; give features, or a function as the kernel"
        )
    C, tol = border.cost(C, infinite=False), border.number("tol", tol, low=0.0, strict=True)
    problem = one_class_problem(
        X, kernel=kernel, gamma=gamma, degree=degree, coef0=coef0, sample_weight=sample_weight, standardize=standardize,
        feature_names=feature_names,
    )  # fmt: skip
    stage = _stage(Q, problem, C, border.sample_weights(sample_weight, problem.X.shape[0]), class_weight, workers)
    m, (own, function, _) = stage.Q.shape[0], stage.spec
    with one_blas_thread:
        matrices = with_seats(whole_kernel(stage.moved(stage.X), own, function, stage.n_threads))
    with new_control("exemplars", time_limit, callback, verbose) as control:
        few = expects_few(matrices, stage.crowd(0, min(TOGETHER, m), few=True), tol)
        ended = Ending(control, m)
        found = in_slices(_some, lambda a, b: (stage, matrices, few, tol, a, b), _SLICE, m, n_jobs, ended)
        got = [part for _, part in found]
    told, weight = (np.concatenate([part[k] for part in got]) for k in range(2))
    coef = sparse.csr_matrix(sparse.vstack([part[2] for part in got]))
    violation, gap, primal, intercept = (np.ascontiguousarray(told[:, k]) for k in (VIOLATION, GAP, PRIMAL, BIAS))
    if stage.centre is not None:  # for rows as they are
        both = (stage.moved(rows) @ stage.centre for rows in (stage.X, stage.Q[: len(weight)]))
        intercept = np.asarray(intercept - (coef @ next(both) + weight * next(both)))
    Violations(tol).add(violation).speak()
    return Exemplars(
        weight, coef, intercept, violation, gap, gap / np.maximum(abs(primal), NONZERO), primal,
        told[:, STEPS].astype(np.int64), tol, ended.status, time.perf_counter() - begin, stage,
    )  # fmt: skip


def _stage(Q: Any, problem: Any, C: float, weights: FloatArray | None, class_weight: Any, workers: int) -> _Stage:
    X, columns = problem.X, problem.columns
    n = X.shape[0]
    demand_size(n)
    width = border.features(Q, "Q").shape[1]
    if width != X.shape[1]:
        raise InputError(f"Q has {width} features, and X {X.shape[1]}; give as many")
    Q = to_format_of(columns.apply(Q), X)
    share = np.ones(n) if weights is None else weights
    factors = labelling.class_factors(class_weight, _CLASSES, np.r_[1, np.zeros(n, np.int64)], np.r_[1.0, share])
    linear = problem.spec.kernel.kind == KernelKind.LINEAR and not is_sparse(X)
    terms = Terms(C, "hinge", factors=tuple(factors.tolist()) if class_weight is not None else None)
    return _Stage(
        X.copy(), Q.copy(), problem.spec, columns, terms, share, factors, X.mean(axis=0) if linear else None,
        max(1, available_threads() // workers),
    )  # fmt: skip


def _some(stage: _Stage, matrices: Matrices, few: bool, tol: float, begin: int, end: int) -> tuple[Any, ...]:
    """(what is told, coefficients of the queries, those of the negatives) of some machines."""
    from scipy import sparse

    found = harvest(matrices, stage.crowd(begin, end, few), Manner(tol, False, False, True))
    seats = np.arange(end - begin)
    return found.told, found.coef[seats, seats % TOGETHER], sparse.csr_matrix(found.coef[:, TOGETHER:])
