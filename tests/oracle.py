"""Slow, obvious numpy versions of what the library computes, and two answers of other people's making.

Nothing here shares code with the package. A problem is written as in the textbooks, with labels and signs:

    minimise  1/2 a'Q a + p'a   subject to   0 <= a <= upper,   s'a = 0 (with an intercept),   Q = ss' * K + diag(d)

For a classifier s = y and p = -1; a regression has 2n variables with s = (+1, ..., -1, ...) and p = epsilon -+ y.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

EPS = float(np.finfo(np.float64).eps)


# ---------------------------------------------------------------- kernels


def dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


def gamma_value(gamma: Any, X: Any, weights: Any = None) -> float:
    X = dense(X)
    if gamma == "auto":
        return 1.0 / X.shape[1]
    if gamma != "scale":
        return float(gamma)
    w = np.repeat(np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float), X.shape[1])
    mean = np.average(X.ravel(), weights=w)
    variance = float(np.average((X.ravel() - mean) ** 2, weights=w))
    return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0


def kernel_matrix(kernel: str, X: Any, Z: Any, gamma: float = 1.0, coef0: float = 0.0, degree: int = 3) -> np.ndarray:
    X, Z = dense(X), dense(Z)
    K = np.empty((len(X), len(Z)))
    for i, x in enumerate(X):
        for j, z in enumerate(Z):
            if kernel == "linear":
                K[i, j] = math.fsum(x * z)
            elif kernel == "rbf":
                K[i, j] = math.exp(-gamma * math.fsum((x - z) ** 2))
            elif kernel == "laplacian":
                K[i, j] = math.exp(-gamma * math.fsum(abs(x - z)))
            elif kernel == "poly":
                K[i, j] = (gamma * math.fsum(x * z) + coef0) ** degree
            elif kernel == "sigmoid":
                K[i, j] = math.tanh(gamma * math.fsum(x * z) + coef0)
            else:
                raise AssertionError(kernel)
    return K


# ---------------------------------------------------------------- the dual problem, its objective and violation


class Dual(NamedTuple):
    """The textbook dual, with what its primal needs: `costs` are the C_i of the points, `K` includes tau^2."""

    K: np.ndarray
    y: np.ndarray
    costs: np.ndarray
    epsilon: float | None  # None: classification
    squared: bool
    equality: bool
    offset: float

    @property
    def signs(self) -> np.ndarray:
        n = len(self.y)
        return self.y if self.epsilon is None else np.repeat([1.0, -1.0], n)

    @property
    def p(self) -> np.ndarray:
        if self.epsilon is None:
            return -np.ones(len(self.y))
        return np.concatenate([self.epsilon - self.y, self.epsilon + self.y])

    @property
    def cost_of_variable(self) -> np.ndarray:
        return self.costs if self.epsilon is None else np.tile(self.costs, 2)

    @property
    def upper(self) -> np.ndarray:
        costs = self.cost_of_variable
        return np.where(costs > 0, np.inf, 0.0) if self.squared else costs

    @property
    def Q(self) -> np.ndarray:
        K = self.K if self.epsilon is None else np.tile(self.K, (2, 2))
        Q = np.outer(self.signs, self.signs) * K
        if self.squared:
            costs = self.cost_of_variable
            Q = Q + np.diag([1.0 / c if 0 < c < np.inf else 0.0 for c in costs])
        return Q

    def variables(self, coef: np.ndarray) -> np.ndarray:
        """Textbook variables from signed coefficients (one per point)."""
        if self.epsilon is None:
            return coef * self.y
        return np.concatenate([np.maximum(coef, 0.0), np.maximum(-coef, 0.0)])


def objective(dual: Dual, a: np.ndarray) -> float:
    return float(0.5 * a @ dual.Q @ a + dual.p @ a)


def violation(dual: Dual, a: np.ndarray) -> float:
    """LIBSVM's: m(a) - M(a) over the index sets I_up and I_low. Points of weight zero do not take part."""
    s, gradient = dual.signs, dual.Q @ a + dual.p
    grows, shrinks = a < dual.upper, a > 0
    up = (grows & (s > 0)) | (shrinks & (s < 0))
    low = (shrinks & (s > 0)) | (grows & (s < 0))
    rising = [float(value) for value in (-s * gradient)[up]]
    falling = [float(value) for value in (-s * gradient)[low]]
    if not dual.equality:
        return max([0.0, *rising, *(-value for value in falling)])
    return max(0.0, max(rising) - min(falling)) if rising and falling else 0.0


def losses(dual: Dual, f: np.ndarray) -> np.ndarray:
    """The loss of every point, in the loss's own words; without its cost."""
    if dual.epsilon is None:
        xi = np.maximum(0.0, 1.0 - dual.y * f)
    else:
        xi = np.maximum(0.0, np.abs(dual.y - f) - dual.epsilon)
    return 0.5 * xi**2 if dual.squared else xi


def primal(dual: Dual, coef: np.ndarray, intercept: float) -> float:
    """1/2 |w|^2 + sum_i C_i loss_i. With infinite costs the slack is charged at the running bound max |coef| + 1."""
    b = intercept if dual.equality else intercept - dual.offset * float(coef.sum())
    charge = np.where(np.isinf(dual.costs), np.abs(coef).max(initial=0.0) + 1.0, dual.costs)
    loss = losses(dual._replace(squared=False) if np.isinf(dual.costs).any() else dual, dual.K @ coef + b)
    return float(0.5 * coef @ dual.K @ coef + charge @ loss)


def rounding(dual: Dual, coef: np.ndarray) -> float:
    """What rounding can do to the gradient: an inner product of this size, in double precision."""
    largest = float(np.abs(dual.K).max(initial=0.0))
    costs = np.where((dual.costs > 0) & np.isfinite(dual.costs), dual.costs, np.inf)
    ridge = float(np.abs(coef / costs).max(initial=0.0)) if dual.squared else 0.0
    return EPS * (float(np.abs(coef).sum()) * largest + ridge + float(np.abs(dual.p).max(initial=0.0))) + 1e-300


def value_rounding(dual: Dual, coef: np.ndarray) -> float:
    """The same for objectives: coefficients times gradients."""
    return float(np.abs(coef).sum()) * rounding(dual, coef) + 1e-300


# ---------------------------------------------------------------- the sign-free dual


def residual(c: np.ndarray, K: np.ndarray, diag: np.ndarray, point: np.ndarray, beta: np.ndarray) -> np.ndarray:
    return np.array(
        [
            math.fsum([c[t], -diag[t] * beta[t], *(-K[point[t], point[u]] * beta[u] for u in range(len(beta)))])
            for t in range(len(beta))
        ]
    )


def fenchel_gap(
    beta: np.ndarray, v: np.ndarray, diag: np.ndarray, lower: np.ndarray, upper: np.ndarray, b: float
) -> float:
    """Primal minus dual of the sign-free problem: each variable's loss by search over its box, minus what it earns."""
    total = 0.0
    for z0, r, d, low, high in zip(beta, v + diag * beta - b, diag, lower, upper, strict=True):
        candidates = [low, high] if d == 0 else [low, high, min(max(r / d, low), high)]
        loss = max(r * z - 0.5 * d * z * z for z in candidates if np.isfinite(z))
        total += loss - (r * z0 - 0.5 * d * z0 * z0)
    return total


# ---------------------------------------------------------------- other people's answers


def highs_qp(dual: Dual) -> tuple[np.ndarray, float] | None:
    """The dual solved by HiGHS' active-set QP solver, which regularises: it minimises objective + 1e-7/2 |a|^2.

    Now and then it calls the starting point optimal (look at `violation`), or goes round for ever (None).
    """
    highspy = pytest.importorskip("highspy")
    Q, p, n = dual.Q, dual.p, len(dual.p)
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("qp_iteration_limit", 20 * len(dual.p) + 200)
    highs.setOptionValue("time_limit", 2.0)
    for option in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
        highs.setOptionValue(option, 1e-9)
    model = highspy.HighsModel()
    lp = model.lp_
    lp.num_col_, lp.num_row_ = n, int(dual.equality)
    lp.col_cost_ = p
    lp.col_lower_, lp.col_upper_ = np.zeros(n), np.where(np.isinf(dual.upper), highspy.kHighsInf, dual.upper)
    lp.row_lower_ = lp.row_upper_ = np.zeros(lp.num_row_)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array([0, n] if dual.equality else [0], np.int32)
    lp.a_matrix_.index_ = np.arange(n if dual.equality else 0, dtype=np.int32)
    lp.a_matrix_.value_ = dual.signs if dual.equality else np.empty(0)
    rows, columns = np.tril_indices(n)
    order = np.lexsort((rows, columns))
    hessian = model.hessian_
    hessian.dim_, hessian.format_ = n, highspy.HessianFormat.kTriangular
    hessian.start_ = np.concatenate([[0], np.cumsum(np.arange(n, 0, -1))]).astype(np.int32)
    hessian.index_ = rows[order].astype(np.int32)
    hessian.value_ = Q[rows[order], columns[order]]
    highs.passModel(model)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    a = np.array(highs.getSolution().col_value)
    return a, objective(dual, a)


def libsvm(dual: Dual, tol: float = 1e-10) -> tuple[np.ndarray, float] | None:
    """LIBSVM's coefficients and intercept, through scikit-learn on the kernel matrix. Plain losses and an intercept only.

    None where it does not get there: with kernel values in single precision and such a tolerance it may go round for ever.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import SVC, SVR

    assert dual.equality
    assert not dual.squared
    assert np.isfinite(dual.costs).all()
    common: dict[str, Any] = {"C": 1.0, "kernel": "precomputed", "tol": tol, "shrinking": False, "max_iter": 100_000}
    machine = SVC(**common) if dual.epsilon is None else SVR(epsilon=dual.epsilon, **common)
    kept = np.flatnonzero(dual.costs > 0)  # scikit-learn loses count of points of weight zero with given matrices
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(dual.K[np.ix_(kept, kept)], dual.y[kept], sample_weight=dual.costs[kept])
    if machine.fit_status_ or np.max(machine.n_iter_) >= 100_000:
        return None
    coef = np.zeros(len(dual.y))
    coef[kept[machine.support_]] = machine.dual_coef_[0]
    return coef, float(machine.intercept_[0])
