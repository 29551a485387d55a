"""Gradient projection and the nearest points of two hulls, piece by piece, against their plain meaning."""

from __future__ import annotations

import numpy as np
import pytest
from repeats import seeds
from small_duals import ENDS, INF, objective, problem, random_problem, residual, without_trace

from svmcore.solvers import _npa_jit as npa
from svmcore.solvers import _projection_jit as projection
from svmcore.solvers import _steps_jit as steps
from svmcore.solvers._steps_jit import Limits

pytestmark = pytest.mark.home

# ---------------------------------------------------------------- gradient projection

RULE = projection.Rule(2.0, 1e-8, projection.WORST, 0.0, False)


def face_of(duals, members, d=None):
    n = duals.n
    face = projection.Face(np.zeros(n + 1, np.int64), np.zeros(2, np.int64), np.zeros(n), np.zeros(n), np.zeros(n))
    face.J[: len(members)], face.sizes[0] = members, len(members)
    face.d[: len(members)] = 0.0 if d is None else d
    return face


@pytest.mark.parametrize("unit", [1.0, 1e-6])
@pytest.mark.parametrize("equality", [True, False])
def test_the_face_of_free_variables_and_its_projected_residual(equality, unit):
    duals, _, _ = random_problem(12, equality=equality, unit=unit)
    duals.beta[[0, 1, 4]] = 0.5 * unit, -0.5 * unit, 2.0 * unit
    face = face_of(duals, [])
    mean = 0.5 * (duals.v[0] + duals.v[1]) if equality else 0.0
    assert projection._collect(duals, face) == pytest.approx(mean)
    assert list(face.J[: face.sizes[0]]) == [0, 1]
    largest = projection._set_residual(duals, face)
    assert face.r[:2] == pytest.approx(duals.v[:2] - mean)
    assert largest == np.abs(face.r[:2]).max()


def test_the_worst_multipliers_of_both_sides():
    duals, _, _ = random_problem(13, unit=1.0)
    duals.v[:] = [3.0, 9.0, 2.0, -4.0, -9.0, 0.0, 1.0]
    duals.beta[[4, 5]] = 1.0, -1.0  # free
    assert projection._worst_multipliers(duals, 0.5)[2:] == (3, 4.5)
    duals.upper[0] = 0.0  # it cannot move at all
    low, size, high, other = projection._worst_multipliers(duals, -9.0)
    assert max((size, low), (other, high)) == (11.0, 2)
    assert projection._worst_multipliers(duals, 9.5)[2:] == (3, 13.5)
    duals.beta[:] = 0.5 * (duals.lower + duals.upper)
    duals.beta[0] = 0.0
    assert projection._worst_multipliers(duals, 0.5) == (-1, 0.0, -1, 0.0)


# four variables at a lower bound, one at an upper bound, and one free variable in between, whose residual is b = 0
AT_BOUNDS = [(3.0, 0.0), (2.0, 0.0), (-1.0, 0.0), (0.5, 0.0), (-2.5, 1.0), (0.0, 0.5)]


@pytest.mark.parametrize(
    ("enters", "least", "leads", "expected"),
    [
        (projection.WORST, 0.0, (0, 4), [0]),
        (projection.SIDES, 0.0, (0, 4), [0, 4]),
        (projection.SIDES, 2.6, (0, 4), [0]),
        (projection.PAIR, 0.0, (0, 4), [0, 4]),
        (projection.PAIR, 0.0, (0, 5), [0]),  # a free variable violates more than the bounded one
        (projection.PAIR, 3.0, (0, 4), []),
        (projection.WORST, 3.0, (0, 4), []),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_what_enters_a_face(enters, least, leads, expected, turned):
    """Turned around, what grew shrinks, and all of it is the same."""
    v, share = np.array(AT_BOUNDS).T
    lower, upper = np.zeros(6), np.ones(6)
    if turned:
        v, lower, upper, share, leads = -v, -upper, -lower, -share, leads[::-1]
    duals, _, _ = problem(np.eye(6), v, lower, upper, beta=share)
    duals.v[:] = v
    face = face_of(duals, [])
    assert projection._collect(duals, face) == 0.0
    entered = projection._enter(duals, face, 0.0, leads, enters, least)
    assert entered == bool(expected)
    assert sorted(face.J[: face.sizes[0]]) == sorted([*expected, 5])


def test_directions_are_steepest_or_conjugate():
    duals, _, _ = random_problem(14)
    face = face_of(duals, [0, 1, 2], [1.0, -2.0, 1.0])
    previous = np.array([2.0, -1.0, -1.0])
    face.r[:3] = [1.0, 1.0, -2.0]
    share = (np.array([1.0, 1.0, -2.0]) @ np.array([-1.0, 2.0, -1.0])) / 6.0
    expected = face.r[:3] + share * face.d[:3]
    slope = projection._direction(face, previous, True)
    assert face.d[:3] == pytest.approx(expected if face.r[:3] @ expected > 0 else face.r[:3])
    assert slope == pytest.approx(face.r[:3] @ face.d[:3])
    assert list(previous[:3]) == [1.0, 1.0, -2.0]
    # a direction that would not descend is dropped
    face.d[:3] = [-50.0, -50.0, 100.0]
    previous[:3] = 0.5, -1.0, 0.5
    assert projection._direction(face, previous, True) == 6.0
    assert list(face.d[:3]) == [1.0, 1.0, -2.0]
    # a share below zero too; and the first one has no other
    for old in ([2.0, 2.0, -4.0], [0.0, 0.0, 0.0]):
        face.d[:3], previous[:3] = 7.0, old
        assert projection._direction(face, previous, True) == pytest.approx(face.r[:3] @ face.d[:3])
        assert list(face.d[:3]) == [1.0, 1.0, -2.0]


def test_what_rounding_adds_to_the_sum_is_taken_by_the_widest():
    duals, _, _ = random_problem(15, unit=1.0)
    duals.beta[:3] = 1.9, -1.0, 0.2
    face = face_of(duals, [0, 1, 2])
    projection._balance(duals, face)
    assert duals.beta[:3] == pytest.approx([1.9, -1.0, 0.2])  # nobody has that much room
    duals.beta[:3] = 1.2, -1.1, 0.0
    projection._balance(duals, face)
    assert duals.beta[:3] == pytest.approx([1.2, -1.2, 0.0])
    duals.beta[:3] = 1.1, -1.2, 0.0
    projection._balance(duals, face)
    assert duals.beta[:3] == pytest.approx([1.2, -1.2, 0.0])


def test_dilations_end_at_the_minimum_or_on_the_first_bound():
    for d, beta, reason in (
        ([1.0, -1.0], [0.5, -0.5], -1),
        ([8.0, -8.0], [2.0, -2.0], -1),
        ([1e-12, -1e-12], [0.5, -0.5], -1),
    ):
        duals, _, progress = problem(np.eye(2), [0.5, -0.5], [0.0, -2.0], [2.0, 0.0], beta=[0.0, 0.0])
        if d[0] == 8.0:
            duals.v[:] = 9.0, -9.0
        face = face_of(duals, [0, 1], d)
        face.z[:] = d
        slope = float(duals.v @ np.array(d))
        assert projection._face_move(duals, face, progress, slope) == reason
        assert duals.beta == pytest.approx(beta)
        assert progress.ints[steps.RESTART] == (d[0] == 8.0)
    duals, _, progress = problem(np.zeros((2, 2)), [1.0, -1.0], [0.0, -INF], [INF, 0.0])
    assert projection._face_move(duals, face_of(duals, [0, 1], [1.0, -1.0]), progress, 2.0) == steps.NO_BOUND
    duals.upper[0] = 0.0
    assert projection._face_move(duals, face_of(duals, [0, 1], [1.0, -1.0]), progress, 2.0) == steps.STUCK
    assert not duals.beta.any()


@pytest.mark.parametrize("share", np.linspace(0.1, 0.9, 9))
def test_all_that_meet_their_bounds_together_are_exactly_there(share):
    """Rounding may leave any but the first a little inside."""
    d = np.array([3.0, -1.0, -2.0]) * 0.37
    duals, _, progress = problem(np.eye(3) * 1e-9, d, [0.0, -share / 3.0, -2.0 * share / 3.0], [share, 0.0, 0.0])
    face = face_of(duals, [0, 1, 2], d.tolist())
    face.z[:] = 1e-9 * d
    assert projection._face_move(duals, face, progress, float(d @ d)) == -1
    assert duals.beta.tolist() == [duals.upper[0], duals.lower[1], duals.lower[2]]


@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize("rule", [RULE, *[RULE._replace(factor=0.0, enters=k) for k in range(3)]])
def test_projections_end_at_the_optimum(rule, equality):
    duals, rows, progress = random_problem(16, equality=equality)
    progress = without_trace(progress)
    face, previous = face_of(duals, []), np.zeros(7)
    ends = ENDS._replace(tol=1e-6)
    for missing in range(7):
        rows.slot[missing] = -1
    found = projection.rosen_slice(duals, rows, face, previous, progress, ends, rule)
    assert found == steps.NEED_ROW
    assert progress.ints[projection.FACES] == 0
    rows.slot[:] = np.arange(7)
    found = projection.rosen_slice(duals, rows, face, previous, progress, ends, rule)
    assert found == steps.AT_TOLERANCE
    assert progress.floats[steps.WORK] >= 12.0 * duals.n * progress.ints[steps.ITERATION] > 0.0
    assert duals.v == pytest.approx(residual(duals, rows), abs=1e-10)
    assert steps.worst_pair(duals)[2] <= 1e-6
    assert progress.floats[steps.OBJECTIVE] == pytest.approx(objective(duals, rows), rel=1e-7)
    assert (
        projection.rosen_slice(duals, rows, face, previous, progress, Limits(0.0, 0, 100, INF), rule)
        == steps.AT_MAX_ITER
    )


@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize("enters", range(3))
def test_the_published_rule_ends_where_no_multiplier_is_negative(enters, equality):
    """d is 0 to d_tol there, and the free variables may violate as they like."""
    ended = 0
    for seed in range(30):
        duals, rows, progress = random_problem(seed, equality=equality, unit=1.0)
        progress = without_trace(progress)
        rows.slot[:] = np.arange(7)
        rule = projection.Rule(0.0, 0.8, enters, 1e-3, True)
        face = face_of(duals, [])
        found = projection.rosen_slice(duals, rows, face, np.zeros(7), progress, ENDS._replace(tol=2e-3), rule)
        assert found == steps.AT_TOLERANCE
        if steps.worst_pair(duals)[2] <= 2e-3:
            continue
        ended += 1
        free = (duals.beta > duals.lower) & (duals.beta < duals.upper)
        b = duals.v[free].mean() if equality else 0.0
        assert np.abs(duals.v[free] - b).sum() <= 0.8
        assert (duals.v[duals.beta == duals.lower] - b <= 1e-3).all()
        assert (b - duals.v[duals.beta == duals.upper] <= 1e-3).all()
    assert ended > 5


def test_a_projection_without_end_is_told():
    duals, rows, progress = problem(np.ones((2, 2)), [1.0, -1.0], [0.0, -INF], [INF, 0.0])
    face = face_of(duals, [])
    assert projection.rosen_slice(duals, rows, face, np.zeros(2), progress, ENDS, RULE) == steps.NO_BOUND


# ---------------------------------------------------------------- the nearest points of two hulls


@seeds(30)
def test_the_minimum_on_a_triangle(seed):
    rng = np.random.default_rng(seed)
    g1, g2 = rng.normal(size=2)
    A = rng.normal(size=(2, 1 if seed % 3 == 0 else 2))  # flat in one direction, too
    Q = A @ A.T
    p, q = npa._triangle(g1, g2, Q[0, 0], Q[1, 1], Q[0, 1])
    assert p >= 0.0
    assert q >= 0.0
    assert p + q <= 1.0 + 1e-15
    grid = np.linspace(0.0, 1.0, 101)
    P, R = np.meshgrid(grid, grid)
    value = g1 * P + g2 * R + 0.5 * (Q[0, 0] * P**2 + Q[1, 1] * R**2) + Q[0, 1] * P * R
    mine = g1 * p + g2 * q + 0.5 * (Q[0, 0] * p**2 + Q[1, 1] * q**2) + Q[0, 1] * p * q
    assert mine <= value[P + R <= 1.0].min() + 1e-12


@pytest.mark.parametrize(
    ("g", "curvature", "s", "value"),
    [
        (-1.0, 2.0, 0.5, -0.25),
        (-4.0, 2.0, 1.0, -3.0),
        (1.0, 2.0, 0.0, 0.0),
        (-1.0, 0.0, 1.0, -1.0),
        (1.0, 0.0, 0.0, 0.0),
    ],
)
def test_the_minimum_on_an_edge(g, curvature, s, value):
    assert npa._edge(g, curvature) == (s, value)


def hulls_of(duals, rows, theta):
    n = duals.n
    hulls = npa.Hulls(np.array(theta, dtype=float), np.empty(n), np.empty(n), np.zeros(4))
    npa.rebuild(duals, rows, hulls)
    return hulls


THETA = [0.25, -1.0, 0.75, 0.0, 0.0, 0.0, 0.0]


def check_hulls(duals, rows, hulls):
    H = rows.values + np.diag(duals.diag)
    u, v = np.maximum(hulls.theta, 0.0), np.maximum(-hulls.theta, 0.0)
    assert u.sum() == pytest.approx(1.0)
    assert v.sum() == pytest.approx(1.0)
    assert np.abs(hulls.U - H @ u).max() <= 1e-12
    assert np.abs(hulls.V - H @ v).max() <= 1e-12
    assert hulls.numbers == pytest.approx([u @ H @ u, v @ H @ v, u @ H @ v, np.count_nonzero(hulls.theta)])


def test_points_of_hulls_and_how_far_others_lag():
    duals, rows, _ = random_problem(17)
    hulls = hulls_of(duals, rows, THETA)
    check_hulls(duals, rows, hulls)
    H = rows.values + np.diag(duals.diag)
    z = H @ hulls.theta
    u, v = np.maximum(hulls.theta, 0.0), np.maximum(-hulls.theta, 0.0)
    for t in range(7):
        lag = z @ u - z[t] if t % 2 == 0 else z[t] - z @ v
        assert npa._lag(duals, hulls, t) == pytest.approx(lag)
    assert npa._square(hulls.numbers) == pytest.approx(hulls.theta @ z)
    assert npa._worst_support(duals, hulls, True) == (0 if z[0] > z[2] else 2)
    assert npa._worst_support(duals, hulls, False) == 1


@pytest.mark.parametrize("k", range(7))
@pytest.mark.parametrize("light", [0.0, 2e-4])
def test_a_step_on_a_triangle_comes_closer(k, light):
    duals, rows, progress = random_problem(18)
    hulls = hulls_of(duals, rows, np.array(THETA) + light * np.array([0.0, 1.0, -1.0, -1.0, 1.0, 0.0, 0.0]))
    before = npa._square(hulls.numbers)
    assert npa._step(duals, rows, hulls, progress, k, False) == -1
    check_hulls(duals, rows, hulls)
    after = npa._square(hulls.numbers)
    assert after <= before * (1.0 + 1e-14)
    assert progress.ints[steps.ITERATION] == 1 or after == before
    assert progress.floats[steps.OBJECTIVE] == pytest.approx(2.0 / before - 2.0 / after, abs=1e-12)


def test_nearest_points_of_two_hulls():
    duals, rows, progress = random_problem(19)
    duals.c[:] = np.where(np.arange(7) % 2 == 0, 1.0, -1.0)
    progress = without_trace(progress)
    hulls = hulls_of(duals, rows, THETA)
    ends = Limits(1e-5, 10_000, 10_000, INF)
    for _ in range(200):
        progress.ints[steps.POSITION] = 0
        reason = npa.npa_slice(duals, rows, hulls, progress, ends, 1e-9)
        if reason != steps.SWEEP_DONE:
            break
    assert reason == steps.AT_TOLERANCE
    check_hulls(duals, rows, hulls)
    H = rows.values + np.diag(duals.diag)
    z = H @ hulls.theta
    square = hulls.theta @ z
    up = np.arange(7) % 2 == 0
    # no point of either hull lies further towards the other: the gap of the problem of nearest points
    assert z[up].min() - z[~up].max() == pytest.approx(square, abs=1e-4)


def test_hulls_return_for_what_they_lack():
    ends = Limits(1e-9, 100, 100, INF)
    for missing in (3, 1):
        duals, rows, progress = random_problem(20)
        hulls = hulls_of(duals, rows, THETA)
        rows.slot[missing] = -1
        assert npa._step(duals, rows, hulls, progress, 3, True) == steps.NEED_ROW
        assert progress.ints[steps.ROW] == missing
    progress.ints[steps.ITERATION] = 100
    assert npa.npa_slice(duals, rows, hulls, progress, ends, 1e-3) == steps.AT_MAX_ITER
    progress.ints[steps.POSITION] = 7
    assert npa.npa_slice(duals, rows, hulls, progress, ends, 1e-3) == steps.AT_MAX_ITER
    # type two wants the row of a support vector
    duals, rows, progress = random_problem(20)
    hulls = hulls_of(duals, rows, THETA)
    rows.slot[:] = -1
    progress.ints[steps.POSITION] = 7
    assert npa.npa_slice(duals, rows, hulls, progress, ends, 1e-3) == steps.NEED_ROW


def test_hulls_that_meet_are_told():
    duals, rows, progress = problem(np.ones((2, 2)), [1.0, -1.0], [0.0, -INF], [INF, 0.0])
    K = np.array(
        [[1.0, 0.0, -1.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 1.0]]
    )  # points 1, 0, -1: the middle one is the other class
    duals, rows, progress = problem(K, [1.0, -1.0, 1.0], [0.0, -INF, 0.0], [INF, 0.0, INF])
    hulls = hulls_of(duals, rows, [1.0, -1.0, 0.0])
    assert npa._step(duals, rows, hulls, progress, 2, True) == steps.NO_BOUND
    hulls = hulls_of(duals, rows, [1.0, -1.0, 0.0])
    progress.ints[steps.POSITION] = 0
    assert npa.npa_slice(duals, rows, hulls, progress, ENDS, 1e-3) == steps.NO_BOUND


@pytest.mark.parametrize("eps", [0.5, 0.05, 1e-4])
def test_support_vectors_are_moved_until_none_lags_by_half_of_eps(eps):
    for seed in range(5):
        duals, rows, progress = random_problem(60 + seed)
        hulls = hulls_of(duals, rows, np.where(np.arange(7) % 2 == 0, 0.25, -1.0 / 3.0))
        before = npa._square(hulls.numbers)
        lags = [npa._lag(duals, hulls, t) for t in range(7)]
        assert npa._type_two(duals, rows, hulls, without_trace(progress), ENDS, eps) == -1
        assert (progress.ints[steps.ITERATION] > 0) == (max(lags) > 0.5 * eps * before)
        left = [npa._lag(duals, hulls, t) for t in range(7) if hulls.theta[t] != 0.0]
        assert max(left) <= 0.5 * eps * npa._square(hulls.numbers)


def test_a_step_that_is_no_step_ends_the_steps_on_support_vectors():
    duals, rows, progress = random_problem(20)
    hulls = hulls_of(duals, rows, THETA)
    duals.curvature[:] = INF
    with np.errstate(invalid="ignore"):
        assert npa._type_two(duals, rows, hulls, progress, ENDS, 1e-9) == -1
    assert progress.ints[steps.ITERATION] == 0


def test_a_pass_over_all_points_counts_the_evaluations_of_the_paper():
    duals, rows, progress = random_problem(21)
    hulls = hulls_of(duals, rows, THETA)
    progress = without_trace(progress)
    for _ in range(30):
        progress.ints[steps.POSITION] = 0
        assert npa.npa_slice(duals, rows, hulls, progress, Limits(0.0, 10_000, 10_000, INF), 1e-2) == steps.SWEEP_DONE
    made, paper, support = progress.ints[steps.ITERATION], progress.floats[npa.PAPER], hulls.numbers[npa.SUPPORT]
    progress.ints[steps.POSITION] = 0
    assert npa.npa_slice(duals, rows, hulls, progress, Limits(0.0, 10_000, 10_000, INF), 1e-2) == steps.SWEEP_DONE
    # nothing lags any more: each point outside is looked at once, and its products with the support are evaluations
    assert progress.ints[steps.ITERATION] == made
    assert progress.floats[npa.PAPER] - paper == (7 - support) * support
