"""Whom "auto" asks: every row of the table in `choice`, and what happens when the first one gives up."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import svmcore
from svmcore import solvers
from svmcore._types import Kernel, KernelKind, Raw, Status
from svmcore.kernel.matrix import KernelMatrix
from svmcore.problem import formulations
from svmcore.solvers import interior, small
from svmcore.train import auto

NEWTON, WIDE = ("newton", "interior", "block", "smo"), ("newton", "block", "smo")
INTERIOR, BLOCK, SMO = ("interior", "block", "smo"), ("block", "smo"), ("smo",)
RESCUED_BLOCK, RESCUED_SMO = ("block", "interior", "smo"), ("smo", "interior")  # linear, where pairs may crawl


def problem_of(
    n=400, d=3, *, kind=KernelKind.LINEAR, coef0=0.0, loss="hinge", C=1.0, equality=True, warm=False, function=None,
    cache=1e9, sparse=False,
):  # fmt: skip
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    qp = formulations.svc(y, np.full(n, C), loss, equality)
    X = np.random.default_rng(0).normal(size=(n, d))
    points = csr_array(X) if sparse else X
    K = KernelMatrix(points, Kernel(int(kind), 1.0, coef0, 3, 0.0), function, cache_bytes=int(cache))
    return qp, K, warm


def after_small(**problem):
    qp, K, warm = problem_of(**problem)
    return auto.choose(qp, K, warm=warm)


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        (RESCUED_SMO, {"n": auto.TINY, "warm": True}),
        (SMO, {"n": auto.TINY, "kind": KernelKind.RBF}),
        (BLOCK, {"n": auto.TINY + 1, "kind": KernelKind.RBF}),
        (RESCUED_BLOCK, {"n": auto.TINY + 1, "warm": True}),
        (SMO, {"C": np.inf}),
        (SMO, {"n": auto.MOST_OPEN, "C": np.inf}),
        (BLOCK, {"n": auto.MOST_OPEN + 1, "C": np.inf}),
        (SMO, {"C": np.inf, "loss": "squared_hinge"}),
        (INTERIOR, {}),
        (("interior", "smo"), {"n": auto.LEAST_POINTS}),
        (RESCUED_SMO, {"n": auto.LEAST_POINTS - 1}),
        (NEWTON, {"loss": "squared_hinge"}),
        (NEWTON, {"n": auto.LEAST_POINTS, "loss": "squared_hinge", "equality": False}),
        (RESCUED_SMO, {"n": auto.LEAST_POINTS - 1, "loss": "squared_hinge"}),
        (RESCUED_BLOCK, {"loss": "squared_hinge", "warm": True}),
        (INTERIOR, {"equality": False}),
        (RESCUED_BLOCK, {"warm": True}),
        (BLOCK, {"kind": KernelKind.RBF}),
        (INTERIOR, {"n": 400, "d": auto.DOZENS}),
        (NEWTON, {"n": 400, "d": auto.DOZENS + 1}),
        (WIDE, {"n": 400, "d": auto.MOST_FEATURES + 1}),
        (WIDE, {"n": 400, "d": 400}),
        (BLOCK, {"n": 400, "d": 401}),
        (WIDE, {"n": 1100, "d": auto.NEWTON_FEATURES}),
        (BLOCK, {"n": 1100, "d": auto.NEWTON_FEATURES + 1}),
        (INTERIOR, {"kind": KernelKind.POLY, "coef0": 1.0}),  # 20 monomials of degree 3 or less
        (BLOCK, {"kind": KernelKind.POLY, "coef0": 1.0, "d": 8, "n": 2000}),  # 165 are too many
        (INTERIOR, {"kind": KernelKind.POLY, "d": 8, "n": 960}),  # 120 of degree 3
        (RESCUED_BLOCK, {"kind": KernelKind.POLY, "d": 8, "n": 959}),
        (RESCUED_BLOCK, {"kind": KernelKind.POLY, "warm": True}),
        (("interior", "smo"), {"kind": KernelKind.POLY, "n": 80}),  # 10
        (RESCUED_SMO, {"kind": KernelKind.POLY, "n": 79}),
        (BLOCK, {"kind": KernelKind.POLY, "coef0": -1.0}),  # it need not be positive
        (SMO, {"kind": KernelKind.POLY, "C": np.inf}),
        (INTERIOR, {"kind": KernelKind.POLY, "C": 0.1, "loss": "squared_hinge"}),  # no upper bounds
        (RESCUED_BLOCK, {"kind": KernelKind.POLY, "C": 0.1}),  # K_ii is 13 at the median
        (INTERIOR, {"kind": KernelKind.POLY, "C": 1.0}),
        (INTERIOR, {"C": 0.1}),
    ],
)
def test_every_row_of_the_table(expected, problem):
    assert after_small(**problem) == expected


@pytest.mark.parametrize(
    ("expected", "problem"),
    [(NEWTON, {}), (RESCUED_BLOCK, {"warm": True}), (RESCUED_SMO, {"n": auto.LEAST_POINTS - 1})],
)
def test_sparse_points_are_made_dense_only_where_they_fill_little_memory(expected, problem, monkeypatch):
    qp, K, warm = problem_of(sparse=True, **problem)
    assert auto.choose(qp, K, warm=warm) == expected
    monkeypatch.setattr(interior, "MOST_BYTES", 8.0 * K.n * K.n_features)
    assert auto.choose(qp, K, warm=warm) == expected
    monkeypatch.setattr(interior, "MOST_BYTES", 8.0 * K.n * K.n_features - 1.0)
    assert auto.choose(qp, K, warm=warm) == tuple(name for name in expected if name != "interior")


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        (False, {"n": small.LEAST - 1}),
        (True, {"n": small.LEAST}),
        (True, {"n": auto.MOST_LINEAR}),
        (False, {"n": auto.MOST_LINEAR + 1}),
        (True, {"n": small.MOST, "kind": KernelKind.RBF}),
        (False, {"n": small.MOST + 1, "kind": KernelKind.RBF}),
        (True, {"n": 300, "d": 900, "kind": KernelKind.RBF}),
        (True, {"warm": True}),
        (True, {"loss": "squared_hinge"}),
        (False, {"C": np.inf}),
        (False, {"equality": False}),
        (True, {"kind": KernelKind.SIGMOID}),
        (True, {"kind": KernelKind.POLY, "coef0": -1.0}),
        (True, {"kind": KernelKind.CALLABLE, "function": lambda A, B: A @ B.T}),
        (False, {"kind": KernelKind.CALLABLE, "function": lambda A, B: A @ B.T, "cache": 1e3}),
        (True, {"n": auto.MOST_SPARSE, "kind": KernelKind.RBF, "sparse": True}),
        (False, {"n": auto.MOST_SPARSE + 1, "kind": KernelKind.RBF, "sparse": True}),
        (True, {"n": auto.MOST_WIDE, "d": 48, "kind": KernelKind.RBF}),
        (False, {"n": auto.MOST_WIDE + 1, "d": 48, "kind": KernelKind.RBF}),
        (True, {"n": auto.MOST_WIDE + 1, "d": 47, "kind": KernelKind.RBF}),
    ],
)
def test_whoever_is_small_is_asked_first(expected, problem):
    assert auto.is_small(*problem_of(**problem)[:2]) is expected


def test_many_sparse_rows_are_for_blocks():
    """Their kernel matrix takes ten times as long as a fit by tiles. A machine with nu, which is several fits, has one."""
    X = np.random.default_rng(0).integers(0, 2, (auto.MOST_SPARSE_NU, 9)).astype(float)
    y = np.arange(len(X)) % 2
    few = auto.MOST_SPARSE
    assert svmcore.train_svc(csr_array(X[:few]), y[:few]).solver == "small"
    assert svmcore.train_svc(csr_array(X[: few + 1]), y[: few + 1]).solver == "block"
    assert svmcore.train_svc(X, y).solver == "small"
    assert auto.is_small(*problem_of(n=auto.MOST_SPARSE_NU, kind=KernelKind.RBF, sparse=True)[:2], several=True)
    wide = problem_of(n=auto.MOST_WIDE + 1, d=48, kind=KernelKind.RBF)[:2]
    assert auto.is_small(*wide, several=True)
    assert not auto.is_small(*wide)


@pytest.mark.compiled
@pytest.mark.parametrize(("degree", "coef0"), [(2, 1.0), (3, 1.0), (3, 0.0)])
def test_few_monomials_are_for_the_interior_point(degree, coef0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    t = np.sin(X[:, 0]) + 0.1 * rng.normal(size=500)
    options = {"kernel": "poly", "degree": degree, "coef0": coef0, "tol": 1e-6}
    machine = svmcore.train_svr(X, t, 100.0, **options)
    assert machine.solver == "interior"
    assert machine.converged
    other = svmcore.train_svr(X, t, 100.0, solver="block", **options)
    assert machine.objective == pytest.approx(other.objective, rel=1e-8)
    K = KernelMatrix(X, machine.kernel, cache_bytes=0)
    assert np.linalg.matrix_rank(K.block(np.arange(500), np.arange(500))) <= auto.n_monomials(K)


@pytest.mark.parametrize(("cache", "expected"), [(1e9, BLOCK), (1e3, SMO)])
def test_a_python_kernel_that_does_not_fit_is_for_smo(cache, expected):
    found = after_small(n=small.MOST + 1, kind=KernelKind.CALLABLE, function=lambda A, B: A @ B.T, cache=cache)
    assert found == expected


@pytest.mark.parametrize("status", [Status.LIMITED, Status.PRECISION])
def test_who_ends_at_a_limit_of_its_own_is_followed_by_the_next_from_where_it_came(status, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = np.where(X[:, 0] > 0, 1, -1)
    starts = []
    whole = solvers.load("smo").run

    def given_up(task):
        half = np.where(task.qp.upper > 0, 0.1, -0.1)
        return Raw(half - half.mean(), status, 7)

    def smo(task):
        starts.append(task.start.copy())
        return whole(task)

    monkeypatch.setattr(auto, "TINY", 0)
    monkeypatch.setattr(small, "at_once", lambda *_: None)
    monkeypatch.setattr(solvers.load("block"), "run", given_up)
    monkeypatch.setattr(solvers.load("smo"), "run", smo)
    solution = svmcore.train_svc(X, y, gamma=0.5)
    assert solution.solver == "smo"
    assert solution.converged
    assert np.abs(starts[0]).max() > 0.05
    assert solution.n_iter > 7


@pytest.mark.parametrize("status", [Status.MAX_ITER, Status.TIME_LIMIT, Status.CALLBACK])
def test_who_is_stopped_by_the_user_is_not_followed(status, monkeypatch):
    monkeypatch.setattr(auto, "TINY", 0)
    monkeypatch.setattr(small, "at_once", lambda *_: None)
    monkeypatch.setattr(solvers.load("block"), "run", lambda task: Raw(np.zeros_like(task.start), status, 7))
    with pytest.warns(svmcore.ConvergenceWarning):
        solution = svmcore.train_svc([[0.0], [1.0], [2.0]], [0, 1, 1])
    assert solution.solver == "block"
    assert solution.status is status


@pytest.mark.parametrize("solver", sorted(svmcore.solvers()))
def test_a_start_is_used_or_refused_as_the_solver_declares(solver):
    """A solver without warm starts refuses one, or answers as if there had been none: the same iterations."""
    can = svmcore.solvers()[solver]
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    X[:, 0] += np.where(X[:, 0] > 0, 1.0, -1.0)
    y = np.where(X[:, 0] > 0, 1, -1)
    options = {"kernel": "rbf", "fit_intercept": can.equality, "solver": solver, "tol": 1e-6}
    options["loss"] = "hinge" if can.finite_bounds else "squared_hinge"
    cold = svmcore.train_svc(X, y, 2.0, **options)
    try:
        warm = svmcore.train_svc(X, y, 2.0, alpha0=cold.alpha, **options)
    except svmcore.InputError:
        warm = None
    if warm is None:
        assert not can.warm_start
        with pytest.raises(svmcore.InputError, match="alpha0"):
            svmcore.train_svc(X, y, 2.0, alpha0=cold.alpha, **options)
        return
    assert warm.converged
    assert abs(warm.objective - cold.objective) <= warm.gap + cold.gap + 1e-12
    if can.warm_start:
        assert warm.n_iter <= max(2, cold.n_iter // 2)
    else:
        assert warm.n_iter == cold.n_iter


@pytest.mark.parametrize(
    ("scale", "C", "d", "expected"),
    [
        (1.0, 100.0, 2, True),
        (0.5, 100.0, 2, False),
        (0.5, 0.1, 2, True),  # pair steps are few
        (0.5, 100.0, 50, True),  # more features than points for every solver that needs no start
    ],
)
def test_a_linear_start_counts_where_it_is_an_answer_or_nothing_is_faster(scale, C, d, expected):
    qp, K, _ = problem_of(n=60, d=d, C=C)
    y = np.where(np.arange(60) % 2, 1.0, -1.0)
    answer = svmcore.train_svc(K.X, y, C, kernel="linear", tol=1e-6)
    start = scale * answer.alpha * y
    assert auto.counts(qp, K, start, 1e-3) == expected
    rbf = problem_of(n=60, d=d, kind=KernelKind.RBF)[1]
    assert auto.counts(qp, rbf, start, 1e-3)
