"""The elbow, function by function, against plain linear algebra: factor, direction, null vectors, measures."""

from __future__ import annotations

import numpy as np
import pytest
from repeats import seeds
from small_paths import boxes_met, check_factor, scene

from svmcore.path import elbow_jit as ej

pytestmark = pytest.mark.home

both = pytest.mark.parametrize("equality", [True, False])


# ---------------------------------------------------------------- the triangular factor


@pytest.mark.parametrize("m", [0, 1, 2, 5, 6])
def test_triangular_systems(m):
    rng = np.random.default_rng(m)
    R = np.full((8, 9), np.nan)
    R[:m, :m] = np.triu(rng.normal(size=(m, m))) + 2.0 * np.eye(m)
    b = np.append(rng.normal(size=m), [7.0, 8.0])
    b[: m // 2] = 0.0  # entries that are zero are passed over
    lower, upper = b.copy(), b.copy()
    ej.solve_lower(R, m, lower)
    ej.solve_upper(R, m, upper)
    assert R[:m, :m].T @ lower[:m] == pytest.approx(b[:m], abs=1e-12)
    assert R[:m, :m] @ upper[:m] == pytest.approx(b[:m], abs=1e-12)
    assert lower[m:].tolist() == upper[m:].tolist() == [7.0, 8.0]


@seeds(6)
@both
@pytest.mark.parametrize("m", [0, 1, 4])
@pytest.mark.parametrize("unit", [1.0, 1e-8])
def test_the_pivot_is_what_the_elbow_leaves_of_a_point(seed, equality, m, unit):
    """Relative to its own kernel value, so that it does not depend on the unit of the kernel."""
    at = scene(seed, m=m, equality=equality)
    K = unit * at.K
    P = at.P._replace(rows=unit * at.P.rows, diagonal=unit * at.P.diagonal, bump=unit * at.P.bump)
    at.S.factor[:] *= np.sqrt(unit)
    for i in np.flatnonzero(at.S.side != ej.ELBOW):
        a = K[at.elbow, i] + P.bump
        whole = K[i, i] + P.bump
        left = whole - a @ np.linalg.solve(unit * at.matrix(), a) if m else whole
        x = np.full(14, np.nan)
        assert ej.pivot_of(P, at.S, i, x) == pytest.approx(left / whole, abs=1e-11)
        assert at.S.factor[:m, :m].T @ x[:m] == pytest.approx(a, abs=1e-11 * unit)


def test_a_point_without_a_kernel_of_its_own_has_no_pivot():
    at = scene(0, equality=False)
    i = int(np.flatnonzero(at.S.side != ej.ELBOW)[0])
    at.P.rows[:, i] = at.P.rows[at.P.slot[i]] = at.P.diagonal[i] = 0.0
    assert ej.pivot_of(at.P, at.S, i, np.zeros(14)) == 0.0


@seeds(6)
@both
def test_points_join_and_leave_and_the_factor_follows(seed, equality):
    at = scene(seed, m=0, equality=equality)
    rng = np.random.default_rng(seed)
    order = rng.permutation(12)[:7].tolist()
    at.S.factor[:] = 0.0
    at.S.side[:], at.S.cnt[ej.N_ELBOW_MAX] = ej.LOW, 4
    x = np.zeros(14)
    for m, i in enumerate(order):
        pivot = ej.pivot_of(at.P, at.S, i, x)
        ej.append(at.P, at.S, i, x, pivot)
        assert at.elbow.tolist() == order[: m + 1]
        assert at.S.side[i] == ej.ELBOW
        assert at.S.cnt[ej.N_ELBOW_MAX] == max(4, m + 1)
        check_factor(at)
    left = list(order)
    at.S.factor[:, 7:], at.S.elbow[7:] = np.arange(0.0, 10.0), np.arange(90, 97)
    for place in (3, 5, 0, 2, 2, 1, 0):
        ej.delete(at.S, place)
        del left[place]
        assert at.elbow.tolist() == left
        check_factor(at)
        m = at.m
        assert not np.tril(at.S.factor[:m, :m], -1).any()
        # what was below the diagonal is zero, too, where it was turned away
        assert not np.diag(at.S.factor[: m + 1, : m + 1], -1)[place:m].any()
        assert at.S.cnt[ej.N_ELBOW_MAX] == 7
    # what is beyond the elbow is left alone
    assert (at.S.factor[:, 7:] == np.arange(0.0, 10.0)).all()
    assert (at.S.elbow[7:] == np.arange(90, 97)).all()


def test_a_rotation_turns_two_rows():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=6), rng.normal(size=6)
    old = np.array([a, b])
    c, s = np.cos(0.3), np.sin(0.3)
    ej.rotate(a, b, c, s, 2, 5)
    turned = np.array([[c, s], [-s, c]]) @ old
    assert np.array([a, b])[:, 2:5] == pytest.approx(turned[:, 2:5], abs=1e-15)
    assert np.array_equal(np.array([a, b])[:, [0, 1, 5]], old[:, [0, 1, 5]])


@seeds(6)
@both
def test_right_hand_sides_of_a_new_slope(seed, equality):
    at = scene(seed, equality=equality)
    at.P.slope[:] = np.random.default_rng(seed).normal(size=12)
    at.S.half_one[:] = np.nan
    ej.restart_rhs(at.P, at.S)
    check_factor(at)


# ---------------------------------------------------------------- the direction


@seeds(6)
@both
@pytest.mark.parametrize("m", [0, 1, 5])
def test_the_direction_keeps_the_elbow_at_zero(seed, equality, m):
    at = scene(seed, m=m, equality=equality)
    d = np.full(14, np.nan)
    d0 = ej.direction(at.P, at.S, d)
    if m == 0:
        assert d0 == 0.0
        return
    on = at.elbow
    assert at.K[np.ix_(on, on)] @ d[:m] + d0 == pytest.approx(at.P.slope[on], abs=1e-10)
    assert d0 == 0.0 or equality
    assert not equality or abs(d[:m].sum()) <= 1e-10


@pytest.mark.parametrize("m", [0, 1, 2, 3, 4, 5, 7, 8, 9])
def test_rows_are_added(m):
    at = scene(m, m=m)
    rng = np.random.default_rng(m)
    coef, out = rng.normal(size=10), rng.normal(size=12)
    wanted = out + coef[:m] @ at.K[at.elbow]
    ej.add_rows(out, at.P, at.elbow, coef, m)
    assert out == pytest.approx(wanted, abs=1e-12)


# ---------------------------------------------------------------- null vectors


@pytest.mark.parametrize(("slack", "width"), [(0.0, 1.0), (1e-13, 1.0), (1e-9, 1.0), (1e-9, 1e5)])
@seeds(20)
def test_among_boxes_that_are_met_together_the_largest_entry_is_taken(seed, slack, width):
    """Together means within a hair of the boxes: 1e-13 of a box of 1 is, 1e-9 is not, but it is of a box of 1e5."""
    at = scene(seed, m=5)
    S, on = at.S, at.elbow
    rng = np.random.default_rng([seed, 1])
    x = rng.permutation([0.25, -0.5, 1.5, -3.0, 1e-14])
    late = slack * np.array([3.0, 0.0, 2.0, 1.0, 4.0])[rng.permutation(5)]
    for k, j in enumerate(on):  # along +n entry k moves by -x_k, and meets its box after 0.125 + late
        S.beta[j] = 0.0
        S.upper[j], S.lower[j] = width, -width
        if x[k] > 0.0:
            S.lower[j] = -(0.125 + late[k]) * x[k]
        else:
            S.upper[j] = (0.125 + late[k]) * -x[k]
    length, place = ej.first_box(S, x, 1.0, 9.0)
    together = [box for box in boxes_met(at, x, 1.0, 9.0) if box[0] <= min(b[1] for b in boxes_met(at, x, 1.0, 9.0))]
    assert len(together) == (1 if slack > 1e-12 * width else 4)
    wanted = max(together, key=lambda box: box[3])
    assert (length, place) == (pytest.approx(wanted[0], rel=1e-14), wanted[2])
    # the point itself counts with an entry of one
    together = [
        box for box in boxes_met(at, x, 1.0, 0.125) if box[0] <= min(b[1] for b in boxes_met(at, x, 1.0, 0.125))
    ]
    wanted = max(together, key=lambda box: box[3])
    assert ej.first_box(S, x, 1.0, 0.125) == (pytest.approx(wanted[0], rel=1e-14), wanted[2])


def copied(seed, equality, share=1.0):
    """A scene where `i` has the kernel of the point at place 1 of the elbow (times `share`)."""
    rng = np.random.default_rng([seed, 5])
    n = 12
    A = rng.normal(size=(n, 4))
    i, twin = 7, 3
    A[i] = share * A[twin]
    elbow = np.array([5, twin, 9])
    return scene(seed, kernel=A @ A.T, elbow=elbow, equality=equality), i


@seeds(6)
@both
def test_a_null_vector_changes_nothing_but_values(seed, equality):
    at, i = copied(seed, equality)
    at.W.column[:3] = [0.0, 1.0, 0.0]
    at.W.column[3:] = np.nan
    assert ej.null_change(at.P, at.S, at.W, i, -0.25)
    assert at.W.direction[:3].tolist() == [0.0, 0.25, 0.0]
    assert at.W.rate == pytest.approx(0.0, abs=1e-15)
    move = np.zeros(12)
    x = np.array([0.3, 0.5, -0.2])
    at.W.column[:3] = x
    assert not ej.null_change(at.P, at.S, at.W, i, 0.5)
    move[i], move[at.elbow] = 0.5, -0.5 * x
    assert at.W.rate == pytest.approx(at.K @ move, abs=1e-14)


@seeds(6)
@pytest.mark.parametrize("unit", [1.0, 1e-8])
@pytest.mark.parametrize("length", [0.125, -8.0])
def test_a_null_vector_may_move_others_by_rounding_only(seed, length, unit):
    """In units of how far it moves itself: the norms of all that move, times the largest norm."""
    at, i = copied(seed, False)
    at.P.rows[:] *= unit
    at.P.diagonal[:] *= unit
    x = np.array([0.0, 1.0, 0.0])
    at.W.column[:3] = x
    norms = np.sqrt(at.P.diagonal)
    felt = 1e-13 * (norms[i] + np.abs(x) @ norms[at.elbow]) * norms.max()
    j = int(np.flatnonzero(at.S.side != ej.ELBOW)[0])
    row, kept = at.P.rows[at.P.slot[i]], at.P.rows[at.P.slot[i], j]
    for share, fits in ((0.9, True), (1.1, False), (-0.9, True), (-1.1, False)):
        row[j] = at.P.rows[at.P.slot[at.elbow[1]], j] + share * felt
        assert ej.null_change(at.P, at.S, at.W, i, length) == fits, share
    row[j] = kept


@seeds(6)
def test_a_null_vector_may_move_the_sum_by_rounding_only(seed):
    """In units of its own size. The norm of a point far from all others leaves room for the residuals."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(12, 5))
    A[:, 4], A[0] = 0.0, [0.0, 0.0, 0.0, 0.0, 4.0]
    A[1:] /= np.sqrt((A[1:] ** 2).sum(axis=1))[:, None]
    A[7] = A[3]
    at = scene(seed, kernel=A @ A.T, elbow=np.array([5, 3, 9]))
    at.S.elbow[2] = 5  # twice the same point, with entries that are equal and opposite
    for share, fits in ((0.9, True), (1.1, False), (-0.9, True), (-1.1, False)):
        size = 1.0 + 2.0 + 1.0 + 2.0
        at.W.column[:3] = [2.0, 1.0 - share * 1e-13 * size, -2.0]
        assert ej.null_change(at.P, at.S, at.W, 7, 0.5) == fits, share


# ---------------------------------------------------------------- measures


@seeds(6)
@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_what_contradicts_a_side_is_booked(seed, unit):
    at = scene(seed, fixed=False)
    rng = np.random.default_rng(seed)
    at.S.resid[:] = unit * rng.normal(size=12)
    at.S.base[:] = 0.01 * unit * rng.normal(size=12)
    resid, base, side = at.S.resid.copy(), at.S.base.copy(), at.S.side
    largest = ej.absorb(at.S)
    fits = np.where(side == ej.UP, np.maximum(resid, 0.0), np.where(side == ej.LOW, np.minimum(resid, 0.0), 0.0))
    assert at.S.resid == pytest.approx(fits, abs=1e-15)
    assert at.S.base == pytest.approx(base - (resid - fits), abs=1e-15)
    assert largest == np.abs(at.S.base).max()


@seeds(6)
@both
def test_the_gap_is_that_of_the_problem_without_shift(seed, equality):
    """Primal minus dual, and what an unbalanced sum costs; beta is taken back into the boxes as they were."""
    at = scene(seed, equality=equality)
    rng = np.random.default_rng([seed, 2])
    P, S = at.P, at.S
    lower, upper = S.lower - 1e-3, S.upper - 1e-3 * rng.random(12)
    S.base[:] = 0.1 * rng.normal(size=12)
    S.resid[:] = S.resid + S.base
    t, bias = 1.5, S.num[ej.BIAS]
    b = np.clip(S.beta, lower, upper)
    r = S.resid - S.base
    hinge = np.where(r > 0, upper, lower) * r
    # K b from the residuals: what the function knows
    Kb = t * P.slope + P.fixed - bias - r
    primal = 0.5 * b @ Kb + hinge.sum()
    dual = b @ (t * P.slope + P.fixed) - 0.5 * b @ Kb
    gap = primal - dual + bias * b.sum() + abs(bias * b.sum())
    P = P._replace(floor=1e-300 if primal > 0.0 else 2.0)
    found = ej.exact_gap(P, S, t, lower, upper)
    assert found == pytest.approx(gap / max(primal, P.floor), rel=1e-10)
    floor = 7.0 + abs(primal)
    assert ej.exact_gap(P._replace(floor=floor), S, t, lower, upper) == pytest.approx(gap / floor, rel=1e-10)


@pytest.mark.parametrize("share", [0.99, 1.01])
@both
def test_a_sum_is_lost_from_a_share_of_the_sizes_on(equality, share):
    at = scene(3, equality=equality)
    at.S.beta[:] = 0.0
    at.S.beta[[1, 4]] = 3.0, -3.0 + share * 6.0 * ej.LOST
    assert ej.is_lost(at.P, at.S) == (equality and share > 1.0)


@pytest.mark.parametrize("changed", [0, 1, 2, 3, 4, 5, 8, 12])
def test_the_image_follows_beta(changed):
    at = scene(changed)
    S = at.S
    rng = np.random.default_rng(changed)
    S.beta[rng.permutation(12)[:changed]] += 0.3 + rng.random(changed)
    S.image[:] += 7.0  # changes are added to what is there
    S.moved[:] = 10**6
    assert ej.renew_image(at.P, S)
    assert S.image == pytest.approx(at.K @ S.beta + 7.0, abs=1e-12)
    assert np.array_equal(S.then, S.beta)
    assert S.cnt[ej.AGE] == 1
    for age in range(2, 11):
        assert ej.renew_image(at.P, S)
        assert S.cnt[ej.AGE] == age
    S.beta[:3] = 0.0, 0.5, 1.0
    assert ej.renew_image(at.P, S)  # ten times, then afresh
    assert S.image == pytest.approx(at.K @ S.beta, abs=1e-12)
    assert np.array_equal(S.then, S.beta)
    assert S.cnt[ej.AGE] == 0


def test_the_image_needs_the_rows_of_what_has_changed():
    at = scene(0)
    at.P.slot[[2, 5]] = -1
    at.S.beta[3] += 1.0
    assert ej.renew_image(at.P, at.S)
    at.S.beta[5] += 1.0
    before = at.S.image.copy()
    assert not ej.renew_image(at.P, at.S)
    assert np.array_equal(at.S.image, before)
    assert at.S.cnt[ej.AGE] == 1
    i = int(np.flatnonzero(at.P.slot == 0)[0])  # the first of the rows that are kept is a row
    at.S.beta[:] = at.S.then
    at.S.beta[i] += 1.0
    assert ej.renew_image(at.P, at.S)


def test_the_size_of_the_linear_term():
    at = scene(0, level=2.0)
    assert ej.size_at(at.P, 1.5) == 3.5


@seeds(6)
@both
def test_a_look_takes_residuals_from_beta(seed, equality):
    at = scene(seed, equality=equality)
    S, P = at.S, at.P
    P = P._replace(floor=50.0)
    wanted = at.residuals()
    rng = np.random.default_rng(seed)
    S.resid[:], S.base[:] = wanted + 1e-8 * rng.normal(size=12), 1e-9 * rng.normal(size=12)
    S.num[ej.T_REFRESH], S.num[ej.WORST_GAP], S.cnt[ej.N_LOOK] = 9.0, 0.0, 3
    assert ej.look(P, S, S.lower, S.upper)
    assert S.resid == pytest.approx(wanted, abs=1e-13)
    assert np.abs(S.base).max() <= 1e-12
    assert S.num[ej.T_REFRESH] == 1.5
    assert S.cnt[ej.N_LOOK] == 4
    assert S.num[ej.WORST_GAP] == ej.exact_gap(P, S, 1.5, S.lower, S.upper)
    S.num[ej.WORST_GAP] = 1e-3
    assert ej.look(P, S, S.lower, S.upper)
    assert S.num[ej.WORST_GAP] == 1e-3


@pytest.mark.parametrize(("before", "age"), [(2.1, 5), (1.99, 0)])
def test_a_look_after_a_long_way_ages_the_image(before, age):
    """At t = 1.5: from 2.0 on the way down to it is long."""
    at = scene(0)
    at.S.num[ej.T_REFRESH] = before
    assert ej.look(at.P._replace(floor=100.0), at.S, at.S.lower, at.S.upper)
    assert at.S.cnt[ej.AGE] == age + 1
    at.S.num[ej.T_REFRESH], at.S.cnt[ej.AGE], at.S.image[:] = before, 5, np.nan
    assert ej.look(at.P._replace(floor=100.0), at.S, at.S.lower, at.S.upper) == (age > 0)  # afresh, or not


@seeds(6)
@both
def test_a_newton_step_removes_what_a_look_has_found(seed, equality):
    at = scene(seed, equality=equality)
    S, P = at.S, at.P._replace(floor=50.0)
    before, bias = S.beta.copy(), float(S.num[ej.BIAS])
    index = at.elbow
    S.beta[index] += 1e-6 * np.random.default_rng(seed).normal(size=index.size)
    assert not ej.look(P, S, S.lower, S.upper)
    assert ej.mend(P, S, at.W.column)
    assert S.beta == pytest.approx(before, abs=1e-12)
    assert S.num[ej.BIAS] == pytest.approx(bias, abs=1e-12)
    assert ej.look(P, S, S.lower, S.upper)


def test_a_newton_step_stays_within_the_boxes():
    at = scene(0)
    S, i = at.S, at.elbow[0]
    S.resid[:], S.base[:] = 0.0, 0.0
    S.resid[i] = 1e3
    beta, bias = S.beta.copy(), float(S.num[ej.BIAS])
    assert not ej.mend(at.P, S, at.W.column)
    assert np.array_equal(S.beta, beta)
    assert S.num[ej.BIAS] == bias
    S.cnt[ej.N_ELBOW] = 0
    assert not ej.mend(at.P, S, at.W.column)
