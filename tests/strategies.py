"""Hypothesis strategies: small problems of every formulation, with the accidents that real data have."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import oracle
from hypothesis import strategies as st
from scipy import sparse

import svmcore
from svmcore.compiler.jit import DISABLED  # noqa: F401  (for tests that shrink without a compiler)

RULES = ("second", "mvp", "platt", "simplified")
FORMS = ("svc", "svc_squared", "svr", "svr_squared")
PSD_KERNELS = (
    {"kernel": "linear"},
    {"kernel": "rbf", "gamma": "scale"},
    {"kernel": "rbf", "gamma": 3.0},
    {"kernel": "poly", "degree": 2, "gamma": 0.5, "coef0": 1.0},
    {"kernel": "poly", "degree": 3, "gamma": "auto", "coef0": 0.0},
    {"kernel": "laplacian", "gamma": 0.7},
)


class Case(NamedTuple):
    """A training problem: `options` are keywords of `train_svc` (of `train_svr` when "epsilon" is among them)."""

    X: Any
    y: np.ndarray
    options: dict[str, Any]

    @property
    def regression(self) -> bool:
        return "epsilon" in self.options

    def but(self, **options: Any) -> Case:
        return self._replace(options={**self.options, **options})

    def fit(self, **more: Any) -> svmcore.Solution:
        """Train. A convergence warning must belong to a status (or a large gap); any other warning is an error."""
        train = svmcore.train_svr if self.regression else svmcore.train_svc
        more = {"solver": "smo"} | more if "rule" in more else more
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("error")
            warnings.simplefilter("always", svmcore.ConvergenceWarning)
            warnings.simplefilter("always", svmcore.ScaleWarning)
            solution = train(self.X, self.y, **{**self.options, **more})
        kinds = [w.category for w in caught]
        if not solution.converged or solution.status.name == "STATIONARY":
            assert svmcore.ConvergenceWarning in kinds
        elif svmcore.ConvergenceWarning in kinds:
            assert solution.relative_gap > 0.01
        return solution

    def dual(self) -> oracle.Dual:
        """The textbook problem behind the case."""
        o = self.options
        weights = (
            np.ones(len(self.y)) if o.get("sample_weight") is None else np.asarray(o["sample_weight"], dtype=float)
        )
        gram = dense_gram(self)
        offset = float(o.get("intercept_scaling") or 0.0) ** 2
        C = o.get("C", 1.0)
        costs = np.array([C * w if w > 0 else 0.0 for w in weights * class_factors(self, weights)])
        y = self.y if self.regression else np.where(self.y == np.unique(self.y)[1], 1.0, -1.0)
        squared = "squared" in o.get("loss", "")
        return oracle.Dual(
            gram + offset, y, costs, o.get("epsilon"), squared, o.get("fit_intercept", True), offset
        )  # fmt: skip


def class_factors(case: Case, weights: np.ndarray) -> np.ndarray:
    given = case.options.get("class_weight")
    factors = np.ones(len(case.y))
    if given == "balanced":
        labels = np.unique(case.y)
        counts = [np.cumsum(weights[case.y == label])[-1] for label in labels]  # one by one
        for label, count in zip(labels, counts, strict=True):
            factors[case.y == label] = sum(counts) / (2.0 * count)
    elif given is not None:
        for label, factor in given.items():
            factors[case.y == label] = factor
    return factors


def dense_gram(case: Case) -> np.ndarray:
    o = case.options
    kernel = o.get("kernel", "rbf")
    if kernel == "precomputed":
        return np.asarray(case.X, dtype=float)
    if callable(kernel):
        return np.asarray(kernel(case.X, case.X))
    gamma = oracle.gamma_value(o.get("gamma", "scale"), case.X, o.get("sample_weight"))
    return oracle.kernel_matrix(kernel, case.X, case.X, gamma, o.get("coef0", 0.0), o.get("degree", 3))


def coefficients(solution: svmcore.Solution) -> np.ndarray:
    coef = np.zeros(len(solution.alpha))
    coef[solution.support] = solution.dual_coef
    return coef


@st.composite
def points(draw: st.DrawFn, low: int = 2, high: int = 60) -> np.ndarray:
    """Features with the usual accidents: duplicates, constants, grids, a single feature, sparsity."""
    n, d = draw(st.integers(low, high)), draw(st.sampled_from([1, 1, 2, 3, 5, 9]))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    kind = draw(st.sampled_from(["normal", "grid", "sparse", "constant", "duplicates"]))
    X = rng.normal(size=(n, d))
    if kind == "grid":
        X = rng.integers(-2, 3, (n, d)).astype(float)
    elif kind == "sparse":
        X = X * (rng.random((n, d)) < 0.3)
    elif kind == "constant":
        X[:, rng.integers(d)] = rng.integers(-3, 4)
    elif kind == "duplicates":
        X = X[rng.integers(0, max(1, n // 2), n)]
    return X


@st.composite
def labels(draw: st.DrawFn, n: int) -> np.ndarray:
    """Labels of both classes, balanced or not. With duplicated points they contradict each other."""
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    share = draw(st.sampled_from([0.5, 0.5, 0.1, 0.9]))
    y = np.where(rng.random(n) < share, 1.0, -1.0)
    first, second = rng.choice(n, 2, replace=False)
    y[first], y[second] = 1.0, -1.0
    return y


@st.composite
def weights(draw: st.DrawFn, y: np.ndarray) -> np.ndarray | None:
    """None, or weights that include zeros and leave both classes (at least one point) alive."""
    kind = draw(st.sampled_from(["none", "none", "integers", "random"]))
    if kind == "none":
        return None
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    w = (
        rng.integers(0, 4, len(y)).astype(float)
        if kind == "integers"
        else rng.random(len(y)) * (rng.random(len(y)) < 0.8)
    )
    for label in (y.max(), y.min()):
        if not w[y == label].any():
            w[np.flatnonzero(y == label)[0]] = 1.0
    return w


COSTS = st.sampled_from([1e-3, 0.1, 1.0, 1.0, 10.0, 100.0, 1e4, 1e6])


@st.composite
def cases(
    draw: st.DrawFn,
    forms: tuple[str, ...] = FORMS,
    kernels: tuple[dict[str, Any], ...] = PSD_KERNELS,
    costs: st.SearchStrategy[float] = COSTS,
    weighted: bool = True,
    n: tuple[int, int] = (2, 60),
) -> Case:
    """A whole problem of one of the formulations."""
    X = draw(points(*n))
    form = draw(st.sampled_from(forms))
    options: dict[str, Any] = {"C": draw(costs), **draw(st.sampled_from(kernels))}
    if form.startswith("svc"):
        y = draw(labels(len(X)))
        options["loss"] = "hinge" if form == "svc" else "squared_hinge"
        options["class_weight"] = draw(st.sampled_from([None, None, "balanced", {1.0: 3.0}]))
    else:
        rng = np.random.default_rng(draw(st.integers(0, 2**20)))
        y = np.sin(X.sum(axis=1)) + draw(st.sampled_from([0.0, 0.3])) * rng.normal(size=len(X))
        options["loss"] = "epsilon_insensitive" if form == "svr" else "squared_epsilon_insensitive"
        options["epsilon"] = draw(st.sampled_from([0.1, 0.0, 0.5]))
    if weighted:
        options["sample_weight"] = draw(weights(y))
    bias = draw(st.sampled_from(["free", "free", "free", "none", "embedded"]))
    options["fit_intercept"] = bias == "free"
    if bias == "embedded":
        options["intercept_scaling"] = 1.5
    return Case(X, y, options)


def as_sparse(X: np.ndarray, index: type) -> sparse.csr_matrix:
    """CSR with the given index type."""
    S = sparse.csr_matrix(X)
    S.indices, S.indptr = S.indices.astype(index), S.indptr.astype(index)
    return S
