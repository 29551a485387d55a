"""Rosen's gradient projection: the closed forms against explicit projections, and the study's shape on Raetsch's sets."""

from __future__ import annotations

import numpy as np
import pytest
from repeats import seeds
from warned import quiet

import svmcore
from svmcore import solvers
from svmcore._control import Control
from svmcore._types import Kernel, KernelKind, Status
from svmcore.kernel.matrix import KernelMatrix
from svmcore.problem import formulations
from svmcore.solvers._contract import SolverTask


def _feasible_state(rng, n, C):
    """Labels, variables in all three states with sum(y alpha) = 0, and points."""
    while True:
        y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
        state = rng.integers(0, 3, n)  # 0: at zero, 1: free, 2: at C
        alpha = np.where(state == 2, C, np.where(state == 1, C * rng.uniform(0.3, 0.7, n), 0.0))
        free = np.flatnonzero(state == 1)
        if len(free) < 3 or not (state == 0).any() or abs(y.sum()) > n - 4:
            continue
        alpha[free] -= y[free] * (y @ alpha) / len(free)
        if (alpha[free] > 0.1 * C).all() and (alpha[free] < 0.9 * C).all():
            return y, alpha, state


def _explicit(g, y, state, bound):
    """The direction -P g with P = I - M'(MM')^-1 M for the bounds in M and the equality row, and the multipliers."""
    rows = [np.where(np.arange(len(y)) == i, -1.0 if state[i] == 0 else 1.0, 0.0) for i in bound]
    M = np.array([*rows, y])
    inverse = np.linalg.inv(M @ M.T)
    return -(g - M.T @ inverse @ (M @ g)), -(inverse @ (M @ g))[:-1]


@pytest.mark.parametrize("larger", [False, True])
@seeds(15)
def test_a_step_of_the_library_is_the_explicit_projection(seed, larger):
    """d; and, once d counts as zero, the variable of the most negative multiplier (4) and the direction (5)."""
    rng = np.random.default_rng(seed)
    n, C = 12, 2.0
    y, alpha, state = _feasible_state(rng, n, C)
    X = rng.normal(size=(n, 2))
    Q = np.outer(y, y) * np.exp(-np.square(X[:, None] - X[None]).sum(axis=2))
    g = Q @ alpha - 1.0
    bound = np.flatnonzero(state != 1)
    d, u = _explicit(g, y, state, bound)
    if larger:
        assert u.min() < 0.0
        p = bound[np.argmin(u)]
        d, _ = _explicit(g, y, state, bound[bound != p])
        assert d[p] * (1.0 if state[p] == 0 else -1.0) > 0.0
    room = np.where(d > 0, C - alpha, alpha)[d != 0.0] / np.abs(d[d != 0.0])
    step = min(-(g @ d) / (d @ Q @ d), room.min())
    with quiet(svmcore.ConvergenceWarning):
        solution = svmcore.train_svc(
            X, y, C, gamma=1.0, solver="rosen", alpha0=alpha, max_iter=1, tol=1e-9, d_tol=1e9 if larger else 1e-12,
            face_steps=False,
        )  # fmt: skip
    assert solution.n_iter == 1
    np.testing.assert_allclose(solution.alpha, alpha + step * d, atol=1e-12)


def test_the_first_step_is_the_maximal_violating_pair():
    """J is empty at the start: the pair stands for it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    y = np.tile([1, -1], 10)
    first = {}
    for solver, options in {"rosen": {}, "smo": {"rule": "mvp", "shrinking": False}}.items():
        with quiet():
            first[solver] = svmcore.train_svc(X, y, 1.0, solver=solver, max_iter=1, **options)
    np.testing.assert_allclose(first["rosen"].alpha, first["smo"].alpha, atol=1e-12)


# ---- the paper's own stop ----------------------------------------------------------------------------------------------


def _by_the_paper(K, y, C, eps, enters, d_tol):
    """The method in plain numpy: (steps, b). From 0, until d = 0 and no multiplier is below -eps."""
    lower, upper = np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0)
    b, steps = np.zeros(len(y)), 0
    while True:
        v = y - K @ b
        J = (b > lower) & (b < upper)
        i, j = np.argmax(np.where(b < upper, v, -np.inf)), np.argmin(np.where(b > lower, v, np.inf))
        if v[i] - v[j] <= 2.0 * eps:
            return steps, b
        if not J.any():
            J[[i, j]] = True
        elif np.abs(v[J] - v[J].mean()).sum() <= d_tol:
            u = np.where(b <= lower, v[J].mean() - v, v - v[J].mean())
            u[J] = np.inf
            if u.min() >= -eps:
                return steps, b
            sides = [np.where(side, u, np.inf) for side in (b <= lower, b >= upper)]
            wanted = {
                "worst": [np.argmin(u)],
                "pair": [np.argmin(u), i, j],
                "sides": [np.argmin(side) for side in sides],
            }
            for t in wanted[enters]:
                J[t] |= u[t] < -eps
        d = np.where(J, v - v[J].mean(), 0.0)
        room = np.where(d > 0, upper - b, np.where(d < 0, b - lower, np.inf)) / np.maximum(np.abs(d), 1e-300)
        step = min(d @ d / (d @ K @ d), room.min())
        b = np.where(room <= step * (1.0 + 1e-14), np.where(d > 0, upper, lower), b + step * d)
        steps += 1


@pytest.mark.parametrize("enters", ["worst", "pair", "sides"])
@seeds(8)
def test_the_published_stop_is_that_of_a_plain_program(seed, enters):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 2))
    y = np.where(X[:, 0] + rng.normal(size=40) > 0, 1.0, -1.0)
    C, d_tol = float(rng.choice([0.3, 3.0, 30.0])), float(rng.choice([0.2, 1.5]))
    K = np.exp(-np.square(X[:, None] - X[None]).sum(axis=2))
    steps, b = _by_the_paper(K, y, C, 1e-3, enters, d_tol)
    with pytest.warns(
        svmcore.ConvergenceWarning, match=r"published rule, which was asked for.*leave ends='multipliers' out"
    ):
        found = svmcore.train_svc(
            X,
            y,
            C,
            gamma=1.0,
            solver="rosen",
            tol=2e-3,
            ends="multipliers",
            enters=enters,
            d_tol=d_tol,
            face_steps=False,
        )
    assert found.n_iter == steps
    np.testing.assert_allclose(found.alpha, y * b, atol=1e-9 * C)
    assert found.status is Status.PUBLISHED
    assert not found.converged
    truth = svmcore.certificate(X, y, found.alpha, found.intercept, C, gamma=1.0)
    assert found.kkt_violation == pytest.approx(truth.kkt_violation, abs=1e-12)
    assert found.kkt_violation > 2e-3
    assert found.relative_gap == pytest.approx(truth.relative_gap, abs=1e-12)


def test_a_published_stop_at_the_tolerance_is_an_answer_like_any_other():
    X, y = np.array([[0.0], [1.0]]), [0, 1]
    found = svmcore.train_svc(X, y, 1.0, gamma=1.0, solver="rosen", ends="multipliers")
    assert found.converged
    assert found.kkt_violation <= 1e-3


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("enters", "steps", "support"),
    [
        pytest.param("worst", (73.4, 73.5), (82.5, 82.5), marks=pytest.mark.ci),
        pytest.param("pair", (64.3, 64.4), (82.8, 82.9), marks=pytest.mark.ci),
        ("sides", (59.9, 60.0), (83.4, 83.4)),
    ],
)
def test_the_published_counts_do_not_depend_on_eps(data_set, enters, steps, support):
    """Tables 1 and 2 of the paper, heart: 65.6 and 65.7 steps and 83.4 and 83.5 support vectors are printed."""
    from bench.tables.projection import CASES, fit, partitions

    data_set("raetsch_heart")
    options = {"ends": "multipliers", "enters": enters, "face_steps": False}
    for eps, count, members in zip((1e-3, 1e-6), steps, support, strict=True):
        runs = [fit(p.X, p.y, CASES["heart"], eps, "rosen", **options) for p in partitions(CASES["heart"])]
        assert {found.status for found in runs} == {Status.PUBLISHED}
        assert np.mean([found.n_iter for found in runs]) == pytest.approx(count, abs=0.3)
        assert np.mean([len(found.support) for found in runs]) == pytest.approx(members, abs=0.3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ends": "never"}, "ends='never' is not known"),
        ({"enters": "all"}, "enters='all' is not known"),
        ({"d_tol": 0.0}, "d_tol=0.0 cannot be used by solver 'rosen'; it must be a number above 0"),
    ],
)
def test_options_of_the_published_stop_are_checked(options, message):
    with pytest.raises(svmcore.InputError, match=message):
        svmcore.train_svc([[0.0], [1.0]], [0, 1], solver="rosen", **options)


def test_zero_curvature_goes_to_the_bound_or_has_none():
    X, y = np.array([[0.0], [0.0]]), [0, 1]
    for solver in ("rosen", "rosen-cg"):
        solution = svmcore.train_svc(X, y, 3.0, gamma=1.0, solver=solver)
        np.testing.assert_array_equal(solution.alpha, [3.0, 3.0])
        with pytest.warns(svmcore.ConvergenceWarning, match="unbounded"):
            svmcore.train_svc(X, y, np.inf, gamma=1.0, solver=solver)


# the study's targets: iterations of the maximal violating pair over those of rosen-cg, at eps = 1e-3 and 1e-6
TARGETS = [
    ("raetsch_heart", 3.162, 120.0, False, 1.3, 2.9),
    ("raetsch_breast_cancer", 15.19, 50.0, False, 2.6, 10.0),
    ("raetsch_thyroid", 10.0, 3.0, True, 2.6, 5.5),
    ("raetsch_diabetis", 1.0, 20.0, False, 0.9, 1.7),
    ("raetsch_flare_solar", 1.023, 30.0, True, 1.2, 2.8),
]


@pytest.mark.compiled
@pytest.mark.parametrize("case", TARGETS, ids=lambda case: case[0])
def test_targets_of_the_study(data_set, case):
    from conftest import DATA

    name, C, width, scale, loose, tight = case
    X, y = data_set(name)
    if scale:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as stored:
        parts = stored["train_idx"] if "train_idx" in stored else stored["sub_train_idx"][:20]
    for eps, target in ((1e-3, loose), (1e-6, tight)):
        counts = {"smo": 0, "rosen-cg": 0}
        for part in parts:
            for solver in counts:
                options = {"rule": "mvp", "shrinking": False} if solver == "smo" else {}
                solution = svmcore.train_svc(
                    X[part], y[part], C, gamma=1 / width, tol=2 * eps, solver=solver, face_steps=False, **options
                )
                assert solution.converged
                counts[solver] += solution.n_iter
        assert counts["smo"] / counts["rosen-cg"] >= target


@pytest.mark.compiled
@pytest.mark.parametrize("solver", ["rosen", "rosen-cg"])
def test_rounding_does_not_add_up_on_the_equality_row(solver):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((80, 2))
    y = np.where(X[:, 0] + rng.standard_normal(80) > 0, 1, -1)
    qp, K = _dual(X, y)
    control = Control(time_limit=600.0, callback=None, verbose=0)
    raw = solvers.load(solver).run(SolverTask(qp, K, control, 1e-9, np.zeros(80)))
    assert raw.n_iter > 100
    assert abs(raw.beta.sum()) <= 2e-15 * np.abs(raw.beta).sum()


def _dual(X, y):
    kernel = Kernel(int(KernelKind.RBF), 1.0, 0.0, 1, 0.0)
    return formulations.svc(np.asarray(y, float), np.full(len(y), 100.0), "hinge", True), KernelMatrix(
        X, kernel, cache_bytes=1 << 22
    )
