"""The steps that solvers share, one at a time: limits, rooms, lengths, landings, and what a change does to the residual."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from repeats import each, seeds
from small_duals import ENDS, INF, objective, problem, random_problem, residual, without_trace

from svmcore.problem.scales import look_at
from svmcore.simd import sums
from svmcore.solvers import _chunk_jit as chunk
from svmcore.solvers import _pairs_jit as pairs
from svmcore.solvers import _steps_jit as steps
from svmcore.solvers import _sweeps_jit as sweeps
from svmcore.solvers._steps_jit import Limits

pytestmark = pytest.mark.home

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
        (1.0 - 1e-16, 1.0, [1.0, -1.0 + 1e-16]), (1.0 - 1e-9, 1.0 - 1e-9, [1.0 - 1e-9, -1.0 + 1e-9]),
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


# ---------------------------------------------------------------- pair slices and working sets


@pytest.mark.parametrize("equality", [True, False])
@seeds(3)
def test_pair_slices_end_at_the_optimum(seed, equality):
    duals, rows, progress = random_problem(seed, equality=equality)
    progress = without_trace(progress)
    assert pairs.pair_slice(duals, rows, progress, ENDS) == steps.AT_TOLERANCE
    assert duals.v == pytest.approx(residual(duals, rows), abs=1e-12)
    assert steps.worst_pair(duals)[2] <= 1e-9
    assert progress.floats[steps.OBJECTIVE] == pytest.approx(objective(duals, rows), rel=1e-9)
    if equality:
        assert duals.beta.sum() == pytest.approx(0.0, abs=1e-14)


@seeds(8)
def test_the_partner_has_the_largest_gain(seed):
    duals, rows, _ = random_problem(40 + seed)
    duals.v[:] = np.random.default_rng(seed).normal(size=7)
    duals.v[0] = 1.0
    duals.beta[:] = 0.5 * (duals.lower + duals.upper)
    duals.beta[3] = duals.lower[3]  # it cannot shrink
    gains = np.full(7, -1.0)
    for t in (1, 2, 4, 5, 6):
        curvature = duals.curvature[0] + duals.curvature[t] - 2.0 * rows.values[0, t]
        gains[t] = max(1.0 - duals.v[t], 0.0) ** 2 / curvature
    assert pairs._partner(duals, rows.values[0], 0) == np.argmax(gains)
    duals.beta[:] = duals.lower
    assert pairs._partner(duals, rows.values[0], 0) == -1


@pytest.mark.parametrize("equality", [True, False])
def test_pair_slices_return_for_what_they_lack(equality):
    duals, rows, progress = random_problem(6, equality=equality)
    i, j, _ = steps.worst_pair(duals)
    i = i if equality else steps.stronger(duals, i, j)
    rows.slot[i] = -1
    assert pairs.pair_slice(duals, rows, progress, ENDS) == steps.NEED_ROW
    assert progress.ints[steps.ROW] == i
    rows.slot[i] = i
    assert pairs.pair_slice(duals, rows, progress, Limits(1e-9, 2, 100, INF)) == steps.AT_MAX_ITER
    assert progress.ints[steps.ITERATION] == 2


def test_a_sorted_stretch_keeps_the_smallest_keys():
    index, key = np.full(6, -1), np.full(6, np.nan)
    count = 0
    for t, value in enumerate([3.0, 1.0, 2.0, 1.0, 5.0, 0.0]):
        count = chunk._insert(index, key, 2, count, 3, t, value)
    assert count == 3
    assert list(index[2:5]) == [5, 1, 3]  # of equal keys the earlier one comes first
    assert list(key[2:5]) == [0.0, 1.0, 1.0]
    assert list(index[[0, 1, 5]]) == [-1, -1, -1]


def test_a_working_set_wants_most_to_grow_and_to_shrink():
    duals, _, _ = random_problem(7, n=8)
    duals.v[:] = [1.0, -2.0, 3.0, -1.0, 2.0, 0.5, -3.0, 4.0]
    duals.beta[:] = 0.5 * (duals.lower + duals.upper)
    small = chunk.new_small(duals, 8)[0]
    assert chunk._working_set(duals, small, 4) == 4
    assert list(small.chosen[:4]) == [7, 2, 6, 1]
    duals.beta[7], duals.beta[6] = duals.upper[7], duals.lower[6]
    assert chunk._working_set(duals, small, 4) == 4
    assert list(small.chosen[:4]) == [2, 4, 1, 3]
    # a variable that is among both is chosen once
    assert chunk._working_set(duals, small, 8) == 6
    assert list(small.chosen[:6]) == [2, 4, 0, 5, 1, 3]


def test_a_working_set_without_equality_row_violates_most():
    duals, _, _ = random_problem(7, n=8, equality=False)
    duals.v[:] = [1.0, -2.0, 3.0, -1.0, 0.0, 0.5, -3.0, 4.0]
    small = chunk.new_small(duals, 8)[0]  # all at zero: even ones can grow, odd ones shrink
    assert chunk._working_set(duals, small, 3) == 3
    assert list(small.chosen[:3]) == [2, 1, 0]
    assert chunk._working_set(duals, small, 8) == 4
    assert list(small.chosen[:4]) == [2, 1, 0, 3]


def decompose(duals, rows, progress, q, limits=ENDS):
    return chunk.decompose_slice(duals, rows, *chunk.new_small(duals, max(q, 4)), progress, limits, q)


@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize("q", [2, 4])
def test_decomposition_ends_at_the_optimum(q, equality):
    duals, rows, progress = random_problem(8, equality=equality)
    progress = without_trace(progress)
    assert decompose(duals, rows, progress, q) == steps.AT_TOLERANCE
    assert duals.v == pytest.approx(residual(duals, rows), abs=1e-12)
    assert steps.worst_pair(duals)[2] <= 1e-9
    assert progress.floats[steps.OBJECTIVE] == pytest.approx(objective(duals, rows), rel=1e-9)


@pytest.mark.parametrize("q", [2, 4])
def test_decomposition_returns_for_what_it_lacks(q):
    duals, rows, progress = random_problem(9)
    missing = steps.worst_pair(duals)[0]
    rows.slot[missing] = -1
    assert decompose(duals, rows, progress, q) == steps.NEED_ROW
    assert progress.ints[steps.ROW] == missing
    rows.slot[missing] = missing
    assert decompose(duals, rows, progress, q, Limits(1e-9, 1, 100, INF)) == steps.AT_MAX_ITER
    duals, rows, progress = problem(np.ones((2, 2)), [1.0, -1.0], [0.0, -INF], [INF, 0.0])
    assert decompose(duals, rows, progress, q) == steps.NO_BOUND
    # a step that the sum with beta does not show
    duals, rows, progress = problem(np.eye(2), [1.0, -1.0], [-9.0, -9.0], [9.0, 9.0], beta=[1.0, -1.0])
    duals.v[:] = 1e-17, 0.0
    assert decompose(duals, rows, progress, q, Limits(0.0, 100, 100, INF)) == steps.STUCK
    assert list(duals.beta) == [1.0, -1.0]


def test_a_sweep_that_reaches_the_tolerance_ends_at_once():
    duals, rows, progress = problem(np.eye(2), [0.5, 0.25], [0, 0], [1, 1], equality=False)
    order, shares = np.array([[0, 1], [0, 1]]), np.ones(2)
    assert sweeps.sweep_slice(duals, rows, order, progress, shares, 0, ENDS) == steps.AT_TOLERANCE
    assert list(duals.beta) == [0.5, 0.25]
    assert (progress.ints[sweeps.SWEEPS], progress.ints[steps.POSITION]) == (1, 2)


def test_a_small_curvature_is_one():
    duals, rows, progress = problem([[1e-6]], [1e-6], [0.0], [INF], equality=False)
    order, shares = np.zeros((1, 1), np.int64), np.ones(1)
    assert sweeps.sweep_slice(duals, rows, order, progress, shares, 0, ENDS) == steps.AT_TOLERANCE
    assert list(duals.beta) == [1.0]


def test_a_step_that_does_not_show_is_no_step():
    duals, rows, progress = problem([[1.0]], [1.0], [0.0], [9.0], beta=[1.0], equality=False)
    duals.v[0] = 1e-17
    order, shares = np.zeros((3, 1), np.int64), np.ones(1)
    ends = Limits(0.0, 100, 100, INF)
    assert sweeps.sweep_slice(duals, rows, order, progress, shares, 0, ends) == steps.SWEEP_DONE
    assert (progress.ints[steps.ITERATION], progress.ints[steps.POSITION]) == (0, 1)


def test_sweeps_return_for_what_they_lack():
    order, shares = np.array([[0, 1]]), np.ones(7)
    for case, reason in (("row", steps.NEED_ROW), ("idle", steps.SWEEP_DONE), ("most", steps.AT_MAX_ITER)):
        duals, rows, progress = random_problem(11, equality=False)
        limits = ENDS
        if case == "row":
            duals.v[0] = 1.0
            rows.slot[0] = -1
        if case == "idle":
            duals.v[:2] = -1.0, 1.0  # neither can follow; others could
            order = np.array([[0, 1], [0, 1]])
        if case == "most":
            limits = Limits(1e-9, 0, 100, INF)
        assert sweeps.sweep_slice(duals, rows, order, progress, shares, 0, limits) == reason
        assert progress.ints[steps.POSITION] == (2 if case == "idle" else 0)


@pytest.mark.parametrize("by_gap", [True, False])
def test_where_nothing_pulls_there_is_no_violation(by_gap):
    duals, _, _ = problem(np.eye(2), [0.0, 0.0], [0, 0], [1, 1], equality=False)
    assert tuple(sweeps._largest(duals, by_gap)) == (0, 0.0)


@pytest.mark.parametrize(("gone", "room"), [(0.0, 1.0), (3.0, 4.0), (-3.0, 4.0)])
@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("more", [True, False])
def test_a_variable_without_bound_has_one_more_room_than_the_largest_has_gone(gone, room, side, more):
    pull = room * 2.0 * (1.001 if more else 0.999)  # of a variable whose room is 1, against 2 of the one without bound
    duals, _, _ = problem(np.eye(3), [side * 2.0, pull, 0.0], [-INF, 0, -INF], [INF, 1, INF], equality=False)
    duals.beta[2] = gone
    duals.v[2] = 0.0
    assert sweeps._largest(duals, True)[0] == (1 if more else 0)


@pytest.mark.parametrize("by_gap", [True, False])
def test_the_next_coordinate_pulls_most_or_adds_most_to_the_gap(by_gap):
    duals, rows, progress = problem(
        np.eye(4), [2.0, 3.0, -1.0, 9.0], [0, 0, -INF, 0], [5.0, 1.0, 0.0, 0.0], equality=False
    )
    duals.beta[2] = -4.0  # rooms: 5, 1, and 1 more than the largest one has gone; the last one cannot grow
    assert tuple(sweeps._largest(duals, by_gap)) == ((0, 3.0) if by_gap else (1, 3.0))
    duals.beta[2] = -8.0
    duals.v[:] = [2.0, 3.0, 1.5, 9.0]
    expected = (2, 3.0) if by_gap else (1, 3.0)
    assert tuple(sweeps._largest(duals, by_gap)) == expected
    order, shares = np.zeros((1, 1), np.int64), np.ones(4)
    ends = Limits(3.0, 100, 100, INF)
    assert sweeps.sweep_slice(duals, rows, order, progress, shares, 2 if by_gap else 1, ends) == steps.AT_TOLERANCE
    assert progress.ints[steps.ITERATION] == 0


@pytest.mark.parametrize("unit", [1.0, 1e-6])
@pytest.mark.parametrize("greedy", [0, 1, 2])
@seeds(4)
def test_every_step_of_a_sweep_is_of_the_coordinate_that_is_meant(seed, greedy, unit):
    """In turn, or where the residual or its share of the gap is largest. Work is counted in numbers that are touched."""
    duals, rows, progress = random_problem(seed, equality=False)
    for part in (duals.c, duals.v, duals.lower, duals.upper):
        part *= unit
    duals.upper[2] = np.inf
    n = duals.n
    beta, v, steps_made = duals.beta.copy(), duals.v.copy(), 0
    order, shares = np.arange(n)[None] + np.zeros((2, 1), np.int64), np.linspace(0.7, 1.3, n)
    for t in order.ravel():
        pull = np.where(v > 0, np.where(beta < duals.upper, v, 0.0), np.where(beta > duals.lower, v, 0.0))
        if greedy:
            most = np.abs(beta).max() + 1.0
            rooms = np.where(pull > 0, np.minimum(duals.upper, most) - beta, beta - np.maximum(duals.lower, -most))
            t = int(np.argmax(np.abs(pull) * (rooms if greedy == 2 else 1.0)))
        if pull[t] != 0.0:
            now = np.clip(beta[t] + shares[t] * v[t] / duals.curvature[t], duals.lower[t], duals.upper[t])
            if now != beta[t]:
                steps_made += 1
                v -= (now - beta[t]) * rows.values[t]
                v[t] -= (now - beta[t]) * duals.diag[t]
                beta[t] = now
    progress = without_trace(progress)
    ends = Limits(0.0, 10_000, 10_000, INF)
    assert sweeps.sweep_slice(duals, rows, order, progress, shares, greedy, ends) == steps.SWEEP_DONE
    assert duals.beta == pytest.approx(beta, rel=1e-9, abs=1e-14 * unit)
    assert duals.v == pytest.approx(v, abs=1e-12 * unit)
    assert progress.ints[steps.ITERATION] == steps_made
    looks = 2 * n * ((2 * n if greedy else 0) + 4) + 2 * 2 * n
    assert progress.floats[steps.WORK] == looks + 2 * n * steps_made


@each("shape", [(1, 1), (3, 2), (7, 300), (70, 29), (200, 11)])
def test_one_pass_tells_what_numpy_tells(shape):
    rng = np.random.default_rng(3)
    X = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4, shape[1]) + 1e3
    look = look_at(X)
    glance = X[:: max(1, len(X) // max(8, min(64, 8192 // shape[1])))]
    ranges = np.ptp(glance, axis=0)
    assert look.wrong == 0.0
    assert look.variance == pytest.approx(X.var(), rel=1e-12)
    assert (look.least, look.most) == (ranges.min(), ranges.max())
    assert np.array_equal(look.low, glance.min(axis=0))
    assert np.array_equal(look.high, glance.max(axis=0))
    assert look_at(np.full(shape, 0.1)).variance == 0.0
    for wrong in (np.nan, np.inf, -np.inf, 1.1e150, -1.1e150):
        X[-1, -1] = X[0, 0] = wrong
        assert look_at(X).wrong == len({(0, 0), (shape[0] - 1, shape[1] - 1)})


def test_a_sweep_moves_each_variable_of_its_order():
    duals, rows, progress = random_problem(10, equality=False)
    order, shares = np.array([[2, 0], [1, 2]]), np.array([0.5, 1.0, 1.0] + 4 * [1.0])
    value, beta = objective(duals, rows), duals.beta.copy()
    v = residual(duals, rows)
    expected = {}
    for t in (2, 0, 1, 2):
        now = min(max(beta[t] + shares[t] * v[t] / duals.curvature[t], duals.lower[t]), duals.upper[t])
        v -= (now - beta[t]) * rows.values[t]
        v[t] -= (now - beta[t]) * duals.diag[t]
        expected[t] = beta[t] = now
    progress = without_trace(progress)
    assert sweeps.sweep_slice(duals, rows, order, progress, shares, 0, ENDS) == steps.SWEEP_DONE
    assert duals.beta == pytest.approx(beta, abs=1e-14)
    assert duals.v == pytest.approx(residual(duals, rows), abs=1e-13)
    assert progress.ints[sweeps.SWEEPS] == 2
    assert objective(duals, rows) == pytest.approx(value + progress.floats[steps.OBJECTIVE], abs=1e-13)


@pytest.mark.parametrize("q", [0, 2])
def test_pair_steps_count_eight_numbers_for_each_variable(q):
    """Of pairs, and of decomposition into pairs (q = 2): the work of every look for a pair, the last one included."""
    duals, rows, progress = random_problem(8)
    progress = without_trace(progress)
    found = decompose(duals, rows, progress, q) if q else pairs.pair_slice(duals, rows, progress, ENDS)
    assert found == steps.AT_TOLERANCE
    assert progress.ints[steps.ITERATION] > 2
    assert progress.floats[steps.WORK] == 8.0 * duals.n * (progress.ints[steps.ITERATION] + 1)


def test_a_working_set_counts_its_rows_and_its_own_matrix():
    duals, rows, progress = random_problem(8)
    progress = without_trace(progress)
    assert decompose(duals, rows, progress, 4, ENDS._replace(work=8.0 * duals.n)) == steps.SLICE_SPENT
    n, m = duals.n, 4
    assert progress.floats[steps.WORK] in (8.0 * n + 2.0 * n * k + 10.0 * k * k for k in range(2, m + 1))
