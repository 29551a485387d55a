"""The steps that solvers share, one at a time: limits, rooms, lengths, landings, and what a change does to the residual."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svmcore.simd import sums
from svmcore.solvers import _pairs_jit as pairs
from svmcore.solvers import _steps_jit as steps
from svmcore.solvers import _sweeps_jit as sweeps
from svmcore.solvers._steps_jit import Duals, Limits, Progress, Rows

INF = np.inf


def problem(K, c, lower, upper, *, beta=None, diag=None, equality=True, tiny=1e-12):
    """A dual point with all of its rows stored, and counters with room for a trace of three steps."""
    K, c = np.array(K, dtype=float), np.array(c, dtype=float)
    n = len(c)
    beta = np.zeros(n) if beta is None else np.array(beta, dtype=float)
    diag = np.zeros(n) if diag is None else np.array(diag, dtype=float)
    duals = Duals(
        n=n, equality=equality, total=0.0, beta=beta, v=c - K @ beta - diag * beta, c=c, lower=np.array(lower, dtype=float),
        upper=np.array(upper, dtype=float), diag=diag, curvature=np.diag(K) + diag, point=np.arange(n), tiny=tiny,
    )  # fmt: skip
    rows = Rows(K.copy(), np.arange(n), np.zeros(n, np.int64))
    progress = Progress(np.zeros(16, np.int64), np.zeros(8), np.empty((3, len(steps.TRACE_COLUMNS))))
    progress.ints[steps.NEXT_CHECK] = 100
    return duals, rows, progress


def residual(duals, rows):
    return duals.c - rows.values @ duals.beta - duals.diag * duals.beta


def objective(duals, rows):
    b = duals.beta
    return 0.5 * b @ (rows.values @ b + duals.diag * b) - duals.c @ b


TWO = ([[2.0, 0.5], [0.5, 1.0]], [1.0, -1.0], [0.0, -5.0], [5.0, 0.0])


def test_every_limit_has_its_reason():
    _, _, progress = problem(*TWO)
    limits = Limits(1e-3, 10, 7, 50.0)
    assert steps.due(progress, limits) == -1
    progress.floats[steps.WORK] = 50.0
    assert steps.due(progress, limits) == -1
    progress.floats[steps.WORK] = 50.5
    assert steps.due(progress, limits) == steps.SLICE_SPENT
    progress.floats[steps.WORK] = 0.0
    progress.ints[steps.TRACED] = 3
    assert steps.due(progress, limits) == steps.TRACE_FULL
    progress.ints[steps.TRACED], progress.ints[steps.ITERATION], progress.ints[steps.NEXT_CHECK] = 0, 5, 5
    assert steps.due(progress, limits) == steps.CHECK_DUE
    assert progress.ints[steps.NEXT_CHECK] == 12
    assert steps.due(progress, limits) == -1
    progress.ints[steps.ITERATION] = 10
    assert steps.due(progress, limits) == steps.AT_MAX_ITER


def test_steps_are_counted_and_traced():
    _, _, progress = problem(*TWO)
    progress.floats[steps.VIOLATION], progress.ints[steps.EVALS] = 0.25, 40
    steps.count_step(progress, 2.0, 1, 0, -0.5)
    steps.count_step(progress, 1.0, 0, -1, 0.125)
    assert progress.ints[steps.ITERATION] == progress.ints[steps.TRACED] == 2
    assert progress.trace[:2].tolist() == [[-2.0, 0.25, 40.0, 1.0, 0.0, -0.5], [-3.0, 0.25, 40.0, 0.0, -1.0, 0.125]]


def test_a_missing_row_is_named():
    duals, rows, progress = problem(*TWO)
    progress.ints[steps.ITERATION] = 4
    assert steps.find_row(duals, rows, progress, 1) == 1
    assert rows.used.tolist() == [0, 4]
    rows.slot[0] = -1
    assert steps.find_row(duals, rows, progress, 0) == -1
    assert progress.ints[steps.ROW] == 0
    progress.ints[steps.ROW] = 9
    assert not steps.find_rows(duals, rows, progress, np.array([1, 0, 1]), 3)
    assert progress.ints[steps.ROW] == 0
    assert steps.find_rows(duals, rows, progress, np.array([1, 0, 1]), 1)


@pytest.mark.parametrize(
    ("top", "bottom", "equality", "worst"),
    [
        (2.0, -1.0, True, 3.0), (-2.0, -1.0, True, 0.0), (2.0, -3.0, False, 3.0), (4.0, -3.0, False, 4.0),
        (-1.0, 2.0, False, 0.0),
    ],
)  # fmt: skip
def test_the_violation_is_that_of_the_worst_pair_or_variable(top, bottom, equality, worst):
    assert steps.violation(top, bottom, equality) == worst


def test_the_worst_pair_can_move():
    duals, _, _ = problem(
        np.eye(5), [3.0, 2.0, 2.0, -4.0, -3.0], [0, 0, 0, 0, -1], [0, 1, 1, 0, 1], beta=[0, 0, 0, 0, 0]
    )
    assert steps.worst_pair(duals) == (1, 4, 5.0)
    duals.upper[:] = duals.beta
    assert steps.worst_pair(duals)[0] == -1
    assert steps.worst_pair(duals)[2] == 0.0


def test_the_stronger_of_a_pair():
    duals, _, _ = problem(np.eye(2), [2.0, -3.0], [-1, -1], [1, 1])
    assert steps.stronger(duals, 0, 1) == 1
    assert steps.stronger(duals, 0, -1) == 0
    assert steps.stronger(duals, -1, 1) == 1
    duals.v[1] = -1.0
    assert steps.stronger(duals, 0, 1) == 0


@pytest.mark.parametrize(
    ("step", "taken", "beta"),
    [
        (0.25, 0.25, [0.25, -0.25]), (-0.5, 0.0, [0.0, 0.0]), (9.0, 1.0, [1.0, -1.0]),
        (1.0 - 1e-16, 1.0, [1.0, -1.0 + 1e-16]),
        (1.0 + 1e-9, 1.0, [1.0, -1.0]), (INF, 1.0, [1.0, -1.0]),
    ],
)  # fmt: skip
def test_a_move_ends_on_the_first_bound(step, taken, beta):
    duals, _, _ = problem(np.eye(2), [1.0, -1.0], [0.0, -3.0], [1.0, 0.0])
    assert steps.move(duals, 0, 1, step) == pytest.approx(taken, abs=1e-15)
    assert duals.beta.tolist() == beta


def test_a_partner_next_to_its_bound_lands_on_it():
    near = 0.3 * (1.0 + 1e-16) - 1e-17
    duals, _, _ = problem(np.eye(2), [1.0, -1.0], [0.0, -0.3], [1.0, 0.0])
    steps.move(duals, 0, 1, near)
    assert duals.beta[1] == duals.lower[1]


def test_an_endless_move_moves_nothing():
    duals, _, _ = problem(np.eye(2), [1.0, -1.0], [0.0, -INF], [INF, 0.0])
    assert steps.move(duals, 0, 1, INF) == INF
    assert steps.move(duals, 0, -1, INF) == INF
    assert not duals.beta.any()
    assert steps.move(duals, 0, -1, -INF) == 0.0


def test_lengths_of_steps():
    duals, rows, progress = problem(*TWO, diag=[0.25, 0.0])
    assert steps.pair_length(duals, progress, rows.values[0], 0, 1) == (2.0 / 2.25, 2.0, 2.25)
    assert steps.pair_length(duals, progress, rows.values[0], 0, -1) == (1.0 / 2.25, 1.0, 2.25)
    assert steps.pair_length(duals, progress, rows.values[1], 1, 0) == (-2.0 / 2.25, -2.0, 2.25)
    assert progress.ints[steps.NONCONVEX] == 0


def test_negative_curvature_is_noted_and_goes_to_a_bound():
    duals, rows, progress = problem([[1.0, 2.0], [2.0, 1.0]], *TWO[1:])
    assert steps.pair_length(duals, progress, rows.values[0], 0, 1) == (INF, 2.0, -2.0)
    assert steps.pair_length(duals, progress, rows.values[1], 1, 0) == (-INF, -2.0, -2.0)
    assert progress.ints[steps.NONCONVEX] == 1


def test_contradictions_go_to_a_bound_and_rounding_does_not():
    """Opposite labels on one point have no curvature at all; with a diagonal they have that of the diagonal."""
    ones = [[1.0, 1.0], [1.0, 1.0]]
    duals, rows, progress = problem(ones, *TWO[1:])
    assert steps.pair_length(duals, progress, rows.values[0], 0, 1)[0] == INF
    duals, rows, progress = problem(ones, [1.0, 1.0], [0, -1], [1, 0])
    duals.v[0] += 1e-16  # equal labels: their slopes differ by rounding alone
    assert np.isfinite(steps.pair_length(duals, progress, rows.values[0], 0, 1)[0])
    duals, rows, progress = problem(ones, *TWO[1:], diag=[1e-3, 1e-3])
    assert steps.pair_length(duals, progress, rows.values[0], 0, 1)[0] == pytest.approx(2.0 / 2e-3)


@given(st.integers(0, 2**20), st.booleans())
def test_a_pair_step_reaches_the_minimum_along_it(seed, single):
    rng = np.random.default_rng(seed)
    n = 5
    A = rng.normal(size=(n, n))
    case = (A @ A.T, rng.normal(size=n), -3.0 * np.ones(n), 3.0 * np.ones(n))
    duals, rows, progress = problem(*case, beta=rng.uniform(-1, 1, n), diag=rng.random(n), equality=not single)
    i, j = (int(k) for k in rng.choice(n, 2, replace=False))
    j = -1 if single else j
    before, value = duals.beta.copy(), objective(duals, rows)
    assert pairs.pair_step(duals, rows, progress, i, j) in (-1, steps.STUCK)
    assert duals.v == pytest.approx(residual(duals, rows), abs=1e-12)
    assert objective(duals, rows) == pytest.approx(value + progress.floats[steps.OBJECTIVE], abs=1e-11)
    inside = (np.abs(duals.beta) < 3.0)[[i, j] if j >= 0 else [i]].all()
    slope = duals.v[i] - (duals.v[j] if j >= 0 else 0.0)
    assert not inside or abs(slope) <= 1e-10
    still = np.setdiff1d(np.arange(n), [i, j])
    assert np.array_equal(duals.beta[still], before[still])


def test_a_pair_step_says_why_it_was_not_made():
    free = ([[1.0, 1.0], [1.0, 1.0]], [1.0, -1.0], [0.0, -INF], [INF, 0.0])
    duals, rows, progress = problem(*free)
    assert pairs.pair_step(duals, rows, progress, 0, 1) == steps.NO_BOUND
    assert not duals.beta.any()
    duals.upper[0] = 0.0
    assert pairs.pair_step(duals, rows, progress, 0, 1) == steps.STUCK
    for missing in (1, 0):
        rows.slot[missing] = -1
        assert pairs.pair_step(duals, rows, progress, 0, 1) == steps.NEED_ROW
        assert progress.ints[steps.ROW] == missing


def test_a_coordinate_without_curvature_goes_to_its_bound():
    limits = Limits(1e-9, 100, 100, INF)
    for upper, reason, beta in ((2.0, steps.AT_TOLERANCE, 2.0), (INF, steps.NO_BOUND, 0.0)):
        duals, rows, progress = problem([[0.0]], [1.0], [0.0], [upper], equality=False)
        order, shares = np.zeros((1, 1), np.int64), np.ones(1)
        assert sweeps.sweep_slice(duals, rows, order, progress, shares, 0, limits) == reason
        assert duals.beta[0] == beta


@given(st.integers(0, 2**20))
def test_sums_and_multiples(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, 9))
    n, start = int(rng.integers(0, 10)), int(rng.integers(0, 5))
    assert sums.dot(a, b, n) == pytest.approx(float(a[:n] @ b[:n]), abs=1e-13)
    assert sums.dot_between(a, b, start, 9) == pytest.approx(float(a[start:] @ b[start:]), abs=1e-13)
    out = b.copy()
    sums.add_multiple(out, 2.5, a, n)
    assert out[:n] == pytest.approx(b[:n] + 2.5 * a[:n], abs=1e-15)
    assert np.array_equal(out[n:], b[n:])


def test_what_a_change_does_to_the_residual():
    duals, rows, _ = problem(*TWO, diag=[0.5, 0.0])
    duals.beta[0] += 0.75
    steps.follow_change(duals, rows.values[0], 0, 0.75)
    assert duals.v == pytest.approx(residual(duals, rows), abs=1e-15)
