"""HiGHS behind our own interface: against programs with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from svmcore._highs import LinearProgram, solve_lp, solve_qp

INF = np.inf


def test_lp_with_known_vertex():
    # max x + 2y, x + y <= 4, x + 3y <= 6, x, y >= 0 -> (3, 1)
    got = solve_lp([-1.0, -2.0], [[1.0, 1.0], [1.0, 3.0]], -INF, [4.0, 6.0], 0.0, INF)
    assert got.ok
    assert got.x == pytest.approx([3.0, 1.0], abs=1e-12)
    assert got.value == pytest.approx(-5.0, abs=1e-12)


def test_lp_without_rows_and_free_columns():
    got = solve_lp([1.0, 0.0], np.zeros((0, 2)), [], [], [-2.0, -INF], [5.0, INF])
    assert got.ok
    assert got.x[0] == -2.0


def test_infeasible_and_unbounded_are_reported_not_raised():
    assert not solve_lp([1.0], [[1.0]], 2.0, 3.0, 0.0, 1.0).ok
    assert not solve_lp([-1.0], [[0.0]], -INF, 1.0, 0.0, INF).ok


def test_one_model_solves_programs_of_changing_size():
    program = LinearProgram()
    for n in (5, 2, 9, 1, 30):
        # min sum x, x_i >= i
        got = program.solve(np.ones(n), np.eye(n), np.arange(n), INF, -INF, INF)
        assert got.ok
        assert got.x == pytest.approx(np.arange(n), abs=1e-12)
    assert program.n_solved == 5


def test_lp_agrees_with_scipy_on_random_programs():
    from scipy.optimize import linprog

    rng = np.random.default_rng(0)
    program = LinearProgram()
    for _ in range(40):
        m, n = rng.integers(1, 8, 2)
        A, x = rng.normal(size=(m, n)), rng.normal(size=n)
        slack = rng.random(m)
        cost = rng.normal(size=n)
        got = program.solve(cost, A, A @ x - slack, A @ x + slack, x - 1.0, x + 2.0)
        want = linprog(
            cost,
            np.vstack([A, -A]),
            np.concatenate([A @ x + slack, slack - A @ x]),
            bounds=list(zip(x - 1, x + 2, strict=True)),
        )
        assert got.ok
        assert got.value == pytest.approx(want.fun, rel=1e-8, abs=1e-8)


def test_qp_projects_onto_the_simplex():
    # min |x - p|^2 / 2, sum x = 1, x >= 0 with p = (0.9, 0.5, -1): (0.7, 0.3, 0)
    p = np.array([0.9, 0.5, -1.0])
    got = solve_qp(np.eye(3), -p, np.ones((1, 3)), 1.0, 1.0, 0.0, INF)
    assert got.ok
    assert got.x == pytest.approx([0.7, 0.3, 0.0], abs=1e-7)
