"""Approximate kernel machines over parts whose distance from the exact optimum is known: Nystroem's features, lifted.

The features of x are its kernel values with m landmarks, turned so that their products are the kernel's between landmarks. A
linear machine on them is a kernel machine on the landmarks, so its primal objective is one of the exact problem: an upper
bound. Its dual variables are feasible for the exact dual: with the exact kernel, scaled as is best, a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._control import Callback
from svmcore._errors import InputError
from svmcore._keywords import checked as known_words
from svmcore._threads import one_blas_thread
from svmcore._types import NONZERO, FloatArray, Kernel, KernelKind
from svmcore.distributed import scan
from svmcore.distributed.answer import PartsSolution, by_blocks
from svmcore.distributed.parts import BLOCK, Assignment, Part, Piece, blocks, checked
from svmcore.distributed.setup import Setup, Words, setup
from svmcore.distributed.training import fit_linear
from svmcore.kernel.points import dense_points
from svmcore.kernel.products import exact_block
from svmcore.models.decision import Decision
from svmcore.problem import border, formulations
from svmcore.problem.columns import Columns

_RANK = 1e-8  # share of the largest eigenvalue below which a direction of the landmarks is left out


@dataclass(frozen=True, eq=False, repr=False)
class Approximation:
    """A kernel machine on landmarks, and what is known of it.

    Attributes
    ----------
    upper_bound : its primal objective, in the exact problem. lower_bound : a dual objective of the exact problem.
    gap, relative_gap : their difference, and that divided by the upper bound. The optimum lies between them.
    landmarks, coef, intercept : ``f(x) = sum coef * k(landmark, x) + intercept``.
    feature_names : the columns' names, or None. A data frame with the same columns in another order is put right.
    linear : the linear machine on the features. Its ``alpha`` is feasible for the exact problem.
    """

    landmarks: FloatArray
    coef: FloatArray
    intercept: float
    upper_bound: float
    lower_bound: float
    kernel: Kernel
    classes: NDArray[Any] | None
    linear: PartsSolution
    feature_names: tuple[str, ...] | None = None

    @property
    def gap(self) -> float:
        """How far the machine's objective may be from the optimum."""
        return self.upper_bound - self.lower_bound

    @property
    def relative_gap(self) -> float:
        """The same as a share of its objective."""
        return self.gap / max(abs(self.upper_bound), NONZERO)

    @cached_property
    def _machine(self) -> Landmarks:
        columns = Columns(self.landmarks.shape[1], self.feature_names)
        return Landmarks(self.landmarks, self.coef, self.intercept, self.kernel, self.classes, columns)

    def decision_function(self, X: Any) -> Any:
        """f(x) for every row of X; a lazy dask array where X is a collection of dask."""
        return by_blocks(X, self._machine, labels=False)

    def predict(self, X: Any) -> Any:
        """The class (or value) of every row of X; a lazy dask array where X is a collection of dask."""
        return by_blocks(X, self._machine, labels=True)

    def __repr__(self) -> str:
        return (
            f"<Approximation: {len(self.landmarks)} landmarks, objective {self.upper_bound:.6g}, "
            f"certified gap {100 * self.relative_gap:.2g} %>"
        )


class Landmarks(NamedTuple):
    """What predicts."""

    X: FloatArray
    coef: FloatArray
    intercept: float
    kernel: Kernel
    classes: NDArray[Any] | None
    columns: Columns

    def decision_function(self, X: Any) -> FloatArray:
        """f(x) for every row of X."""
        return Decision(self.X, self.coef, self.kernel, None)(self.columns.apply(X), 1) + self.intercept

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of every row of X, or the value."""
        values = self.decision_function(X)
        return values if self.classes is None else np.asarray(self.classes[(values > 0).astype(int)])


class Featured(NamedTuple):
    """The source of a part in features: made as they are read, in single precision."""

    source: Any
    landmarks: FloatArray
    turn: FloatArray
    kernel: Kernel
    kind: str

    mapped: bool = False

    @property
    def name(self) -> str:
        """As that of the part."""
        return str(self.source.name)

    @one_blas_thread
    def read(self) -> Piece:
        """The features of the rows."""
        X, y, weight, _ = checked(self.source, self.kind)
        out = np.empty((X.shape[0], self.turn.shape[1]), np.float32)
        for first, rows in blocks(X, BLOCK // 16):
            out[first : first + len(rows)] = _values(self.kernel, rows, self.landmarks) @ self.turn
        return Piece(out, y, weight)


def _values(kernel: Kernel, rows: Any, landmarks: FloatArray) -> FloatArray:
    """Kernel values of dense rows with the landmarks."""
    targets = dense_points(np.asarray(rows, np.float64), np.arange(len(rows)))
    found = exact_block(kernel, targets, dense_points(landmarks, np.arange(len(landmarks))))
    assert found is not None
    return found


def _featured(source: Any, landmarks: FloatArray, turn: FloatArray, kernel: Kernel, kind: str) -> Featured:
    return Featured(source, landmarks, turn, kernel, kind)


def _some(part: Part, count: int, seed: int) -> FloatArray:
    """So many rows of a part, drawn at random, that have weight."""
    rows = np.unique(part.qp.point)
    chosen = np.random.default_rng([seed, part.number]).permutation(rows)[:count]
    return np.asarray(part.X[np.sort(chosen)], dtype=np.float64)


def _lifted(part: Part, state: scan.ScanState) -> FloatArray:
    """(c' beta, beta' (K + D) beta) of a part."""
    qp, beta = part.qp, state.beta
    return np.array([qp.c @ beta, state.field[qp.point] @ beta + beta @ (qp.diag * beta)])


@known_words()
def train_approximate(
    X: Any, y: Any = None, C: float = 1.0, *, landmarks: int = 500, kernel: str = "rbf", gamma: Any = "scale",
    degree: int = 3, coef0: float = 0.0, loss: str = "hinge", epsilon: float = 0.1, fit_intercept: bool = True,
    sample_weight: Any = None, class_weight: Any = None, label: Any = None, engine: str | None = None, client: Any = None,
    parts: int | None = None, tol: float = 1e-3, time_limit: float | None = None, callback: Callback | None = None,
    verbose: int = 0, n_threads: int | None = None, random_state: int = 0,
) -> Approximation:  # fmt: skip
    """Train a kernel machine on landmarks, and certify how far it is from the exact one.

    The cost is n m^2 for m landmarks, and one product of the kernel for the lower bound. Where few free vectors are needed
    the exact `train_svc` is often faster; this is for problems whose support vectors are too many.

    Parameters
    ----------
    landmarks : how many rows, drawn at random, the machine is built on.
    loss : of a classifier or of a regression.
    random_state : the seed of the draw.

    All other parameters are those of `train_svc` over parts. Dense rows only.

    Examples
    --------
    >>> import numpy as np
    >>> from svmcore.distributed import train_approximate
    >>> X = np.random.default_rng(0).normal(size=(800, 2))
    >>> machine = train_approximate(X, np.hypot(X[:, 0], X[:, 1]) < 1.0, landmarks=60, parts=2)
    >>> machine.relative_gap < 0.05
    True
    """
    form = {
        "C": C, "loss": loss, "epsilon": epsilon, "fit_intercept": fit_intercept, "class_weight": class_weight,
        "kernel": kernel, "gamma": gamma, "degree": degree, "coef0": coef0,
    }  # fmt: skip
    words = Words(engine, client, label, parts, None, tol, time_limit, callback, verbose, n_threads)
    m = border.integer("landmarks", landmarks, low=1)
    seed = border.integer("random_state", random_state, low=0)
    problem = setup(X, y, sample_weight, form, words)
    try:
        if problem.whole.sparse or problem.task.kernel.kind == KernelKind.LINEAR:
            raise InputError("train_approximate needs dense rows and a kernel that is not linear; use train_svc")
        return _fit(problem, m, seed)
    finally:
        problem.engine.close()


@one_blas_thread
def _fit(problem: Setup, m: int, seed: int) -> Approximation:
    engine, task, whole = problem.engine, problem.task, problem.whole
    parts = engine.run(scan.load, [(k, source, task) for k, source in enumerate(problem.sources)])
    total = max(sum(part.positive for part in whole.parts), 1)
    counts = [-(-m * part.positive // total) for part in whole.parts]
    drawn = engine.gather(engine.run(_some, [(part, n, seed) for part, n in zip(parts, counts, strict=True)]))
    points = np.concatenate([rows for rows in drawn if len(rows)])
    points = np.unique(points[np.random.default_rng(seed).permutation(len(points))[:m]], axis=0)
    values, turned = np.linalg.eigh(_values(task.kernel, points, points))
    kept = values > _RANK * values[-1]
    turn = turned[:, kept] / np.sqrt(values[kept])
    words = (points, turn, task.kernel, task.kind)
    flat = _linear_task(task, turn.shape[1])
    featured = engine.run(_featured, [(source, *words) for source in problem.sources])
    linear = fit_linear(problem._replace(sources=featured, task=flat, whole=whole._replace(names=None)))
    assert linear.coef_ is not None
    betas = engine.run(
        _beta_of, [(part, found.at, found.coef) for part, found in zip(parts, linear.vectors, strict=True)]
    )
    supports = engine.run(scan.support, list(zip(parts, betas, strict=True)))
    states = engine.run(
        scan.begin, [(part, beta, True, engine.n_threads, *supports) for part, beta in zip(parts, betas, strict=True)]
    )
    gain, curve = np.sum(engine.gather(engine.run(_lifted, list(zip(parts, states, strict=True)))), axis=0)
    share = min(1.0, float(gain / curve)) if curve > 0 and gain > 0 else 0.0
    lower = share * float(gain) - 0.5 * share * share * float(curve)
    return Approximation(
        points, turn @ linear.coef_, linear.intercept, linear.primal_objective, lower, task.kernel, linear.classes,
        linear, whole.names,
    )  # fmt: skip


def _linear_task(task: Assignment, width: int) -> Assignment:
    """The same problem on features: linear, without a centre."""
    linear = Kernel(int(KernelKind.LINEAR), 1.0, 0.0, 1, 0.0)
    return task._replace(kernel=linear, n_features=width, centre=np.zeros(width))


def _beta_of(part: Part, rows: Any, coef: FloatArray) -> FloatArray:
    """The variables behind the coefficients of some rows."""
    full = np.zeros(part.n)
    full[rows] = coef
    return formulations.to_beta(part.qp, full)
