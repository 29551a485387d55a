"""Events of the path and its start, function by function: who joins, who leaves, and what is booked."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from repeats import seeds
from small_paths import boxes_met, check, check_factor, options, plane, refit, scene, sides_told

from svmcore import _path_jit as pj
from svmcore.path import crash_jit
from svmcore.path import elbow_jit as ej
from svmcore.path.log_jit import EVENTS, KNOTS

pytestmark = pytest.mark.home

both = pytest.mark.parametrize("equality", [True, False])


# ---------------------------------------------------------------- who joins, who leaves


def test_bounds_are_met_exactly():
    at = scene(0)
    S = at.S
    S.resid[:2] = 1.0
    assert pj.to_bound(S, 0, True) == ej.UP
    assert pj.to_bound(S, 1, False) == ej.LOW
    assert S.beta[:2].tolist() == [S.upper[0], S.lower[1]]
    assert S.side[:2].tolist() == [ej.UP, ej.LOW]
    assert S.resid[:2].tolist() == [0.0, 0.0]


@seeds(6)
@both
def test_who_enters_leaves_its_residual_in_the_shift(seed, equality):
    at = scene(seed, equality=equality)
    i = int(np.flatnonzero(at.S.side != ej.ELBOW)[-1])
    pivot = ej.pivot_of(at.P, at.S, i, at.W.column)
    pj.enter(at.P, at.S, i, at.W.column, pivot)
    assert at.elbow[-1] == i
    check(at)


def test_a_point_that_depends_on_the_elbow_is_exchanged():
    """Along the null vector to the first box: nobody's residual moves but by what is booked."""
    seen = set()
    for equality, unit in product((True, False), (1.0, 1e4)):
        for seed in range(8):
            for i in range(3, 12):
                at = plane(seed, equality, unit)
                if seed == 5:  # a narrow box is crossed as a whole
                    low = at.S.side[i] == ej.LOW
                    bound, other = (at.S.upper, at.S.lower) if low else (at.S.lower, at.S.upper)
                    bound[i] = other[i] + (1e-3 if low else -1e-3) / unit
                if seed >= 6 and i % 2:  # a value that is at its bound already: no way to go
                    j = at.elbow[seed % 2]
                    at.S.beta[j] = at.S.lower[j] if i % 4 == 1 else at.S.upper[j]
                    refit(at)
                seen.add((at.S.side[i], *exchanged(at, i, record=seed % 2 == 0)))
    for side in (ej.LOW, ej.UP):
        assert {place for old, place, far in seen if far and old == side} == {0, 1, 2, -1}
        assert (side, 0, False) in seen


def exchanged(at, i, record):
    """Exchange point i and check everything; returns (place that left, or -1; whether anything moved)."""
    S, on, m = at.S, at.elbow.tolist(), at.m
    beta, side, old, Kb = S.beta.copy(), S.side.copy(), S.side[i], at.K @ S.beta
    x = np.linalg.solve(at.matrix(), at.K[on, i] + at.P.bump)
    sign = -1.0 if old == ej.UP else 1.0
    boxes = boxes_met(at, x, sign, S.upper[i] - S.lower[i])
    together = [box for box in boxes if box[0] <= min(other[1] for other in boxes)]
    far, _, place, _ = max(together, key=lambda box: box[3])
    assert ej.pivot_of(at.P, S, i, at.W.column) <= pj.DEPENDENT
    assert pj.exchange(at.P, S, at.W, at.L, i, record)
    beta[i] += sign * far
    beta[on] -= sign * far * x
    beta[on] = np.clip(beta[on], S.lower[on], S.upper[on])
    assert S.beta == pytest.approx(beta, abs=1e-12)
    assert at.K @ S.beta == pytest.approx(Kb, abs=1e-11)
    assert S.beta.sum() == pytest.approx(beta.sum(), abs=1e-12)
    assert not at.P.equality or x.sum() == pytest.approx(1.0, abs=1e-12)
    check(at)
    assert (sides_told(at, side) == S.side).all()
    assert (at.L.event_move[: at.L.end[EVENTS], 2] == ej.EXCHANGE).all()
    assert S.cnt[[ej.N_EXCHANGE, ej.N_FLIP, ej.N_EVENT]].tolist() == ([1, 1, 1] if place < 0 else [1, 0, 2])
    assert at.m == m
    if place < 0:
        assert S.side[i] == (ej.UP if old == ej.LOW else ej.LOW)
        assert at.elbow.tolist() == on
    else:
        assert at.elbow.tolist() == [*on[:place], *on[place + 1 :], i]
        assert S.side[on[place]] == (ej.UP if sign * x[place] < 0.0 else ej.LOW)
    assert at.L.end[KNOTS] == (far > 0.0 and record)
    return place, bool(far > 0.0)


def nearly_twins(seed, equality, distance=1e-8):
    """Point 7 is next to point 3, which is on the elbow: dependent to rounding, and yet it moves other residuals."""
    rng = np.random.default_rng([23, seed])
    A = rng.normal(size=(12, 6))
    A[7] = A[3] + distance * rng.normal(size=6)
    return scene(seed, kernel=A @ A.T, elbow=np.array([5, 3, 9]), equality=equality), 7


@seeds(6)
@both
def test_a_point_that_only_nearly_depends_is_not_exchanged(seed, equality):
    at, i = nearly_twins(seed, equality)
    S = at.S
    before = [part.copy() for part in (S.beta, S.base, S.resid, S.side, S.num, S.cnt)]
    assert ej.pivot_of(at.P, S, i, at.W.column) <= pj.DEPENDENT
    assert not pj.exchange(at.P, S, at.W, at.L, i, True)
    assert all(
        np.array_equal(a, b) for a, b in zip(before, (S.beta, S.base, S.resid, S.side, S.num, S.cnt), strict=True)
    )
    assert not at.L.end.any()
    # the event lets it join all the same, with a pivot that is large enough to divide by
    assert pj.event(at.P, S, at.W, at.L, i, -1, 0.0, options(at)) == ej.DONE
    assert at.elbow.tolist() == [5, 3, 9, 7]
    whole = at.P.diagonal[i] + at.P.bump
    assert np.sqrt(1e-15 * whole) * (1.0 - 1e-12) <= S.factor[3, 3] <= np.sqrt(1e-13 * whole)
    assert np.isfinite(S.half_slope[:4]).all()
    assert S.factor[:4, :4].T[3, :3] @ S.factor[:3, 2] == pytest.approx(at.K[7, 9] + at.P.bump, abs=1e-12)


def tied_scene(m=2, kernel=None):
    """Points 2, 4, 6 and 8 meet zero within the limit of 0.5, the others later."""
    at = scene(5, m=m, elbow=np.array([0, 1][:m]), kernel=kernel)
    at.W.step[:] = 1.0
    at.W.step[[2, 4, 6, 8]] = 0.5
    return at


def test_tied_points_join_together():
    at = tied_scene()
    side = at.S.side.copy()
    assert pj.enter_tied(at.P, at.S, at.W, at.L, 0.5, 10) == 4
    assert at.elbow.tolist() == [0, 1, 2, 4, 6, 8]
    assert at.S.cnt[ej.BATCHED] == 4
    assert (at.L.event_move[:4, 2] == ej.BATCH).all()
    assert (sides_told(at, side) == at.S.side).all()
    check(at)


def test_of_tied_points_no_more_join_than_there_is_room_for():
    at = tied_scene()
    at.P.slot[at.P.slot] = at.P.slot[at.P.slot]
    assert pj.enter_tied(at.P, at.S, at.W, at.L, 0.5, 3) == 3
    assert at.elbow.tolist() == [0, 1, 2, 4, 6]
    at = tied_scene()
    assert pj.enter_tied(at.P, at.S, at.W, at.L, 0.5, 0) == 0
    assert at.S.cnt[ej.BATCHED] == 0


def test_a_single_point_joins_by_itself():
    at = tied_scene()
    at.W.step[[4, 6, 8]] = 1.0
    assert pj.enter_tied(at.P, at.S, at.W, at.L, 0.5, 10) == 0
    assert at.m == 2
    assert at.S.cnt[ej.BATCHED] == 0
    at.W.step[4] = 0.5
    assert pj.enter_tied(at.P, at.S, at.W, at.L, 0.5, 10) == 2


def test_noise_is_the_same_every_time():
    """Ties are spread by it, and published tables stand on how they are."""
    at = scene(0)
    v, numbers = 0.37, []
    assert at.S.num[ej.NOISE] == v
    for _ in range(50):
        v = (1103.0 * v + 0.7390851332151607) % 1.0
        numbers.append(pj.noise(at.S))
        assert numbers[-1] == pytest.approx(1.0 + v, abs=1e-12)
        v = at.S.num[ej.NOISE]
    assert min(numbers) >= 1.0
    assert max(numbers) < 2.0
    assert len(set(numbers)) == 50


def test_ties_are_near_or_not():
    """Residuals within 1e-7 of the scale, values within a tenth of that of their boxes."""
    for share, near in ((0.9, True), (1.1, False)):
        at = scene(0, m=4, elbow=np.array([1, 2]))
        S = at.S
        S.cnt[ej.ZERO_RUN] = pj.PERTURB_AFTER
        S.side[[0, 3]] = ej.LOW, ej.UP
        S.resid[[0, 3]] = -share * 2e-7, share * 2e-7
        width = S.upper - S.lower
        S.beta[1] = S.lower[1] + share * 1e-8 * width[1]
        S.beta[2] = S.upper[2] - share * 1e-8 * width[2]
        resid, lower, upper = S.resid.copy(), S.lower.copy(), S.upper.copy()
        pj.spread_ties(S, 2.0)
        assert (S.resid[0] < resid[0]) == near
        assert (S.resid[3] > resid[3]) == near
        assert (S.lower[1] < lower[1]) == near
        assert (S.upper[2] > upper[2]) == near
        if near:
            assert 1e-11 * width[1] <= lower[1] - S.lower[1] + 1e-16 <= 2e-11 * width[1] + 1e-15
            assert 1e-11 * width[2] <= S.upper[2] - upper[2] + 1e-16 <= 2e-11 * width[2] + 1e-15


# ---------------------------------------------------------------- one event after another


@pytest.mark.parametrize("direction", [1.0, 1e-6, -1e-6, -1.0])
def test_a_value_that_meets_its_box_leaves(direction):
    at = scene(2, m=4)
    side, j = at.S.side.copy(), int(at.elbow[2])
    at.W.direction[2] = direction
    at.S.beta[j] = at.S.lower[j] if direction > 0.0 else at.S.upper[j]
    refit(at)
    assert pj.event(at.P, at.S, at.W, at.L, j, 2, 0.0, options(at)) == ej.DONE
    assert at.S.side[j] == (ej.LOW if direction > 0.0 else ej.UP)
    assert at.L.event_move[0].tolist() == [ej.ELBOW, at.S.side[j], ej.BOX]
    assert (sides_told(at, side) == at.S.side).all()
    assert at.m == 3
    check(at)


@pytest.mark.parametrize(("batch", "run", "joined"), [(True, 0, 4), (True, 1, 4), (True, 2, 1), (False, 0, 1)])
def test_ties_are_batched_at_the_first_of_them(batch, run, joined):
    at = tied_scene()
    at.S.cnt[ej.ZERO_RUN] = run
    side = at.S.side.copy()
    assert pj.event(at.P, at.S, at.W, at.L, 4, -1, 0.5, options(at, batch=batch)) == ej.DONE
    assert at.m == 2 + joined
    assert at.S.cnt[ej.N_BATCH] == (joined > 1)
    assert at.L.event_move[0, 2] == (ej.BATCH if joined > 1 else ej.MARGIN)
    assert (sides_told(at, side) == at.S.side).all()
    check(at)


# ---------------------------------------------------------------- where a path begins


@both
@seeds(12)
def test_a_start_has_an_independent_elbow_and_the_same_residuals(seed, equality):
    """Free points that depend on others move along their null vectors; nobody's residual notices."""
    at = plane(seed, equality)
    S, rng = at.S, np.random.default_rng(seed)
    free = rng.permutation(12)[: 3 + seed % 8]
    S.beta[free] = S.lower[free] + (0.2 + 0.6 * rng.random(len(free))) * (S.upper - S.lower)[free]
    free = np.flatnonzero((S.beta > S.lower) & (S.beta < S.upper))
    Kb, total = at.K @ S.beta, S.beta.sum()
    S.side[:] = ej.LOW
    S.cnt[[ej.N_ELBOW, ej.N_ELBOW_MAX]] = 11, 0
    crash_jit.crash(at.P, S, at.W)
    assert at.K @ S.beta == pytest.approx(Kb, abs=1e-11)
    assert not equality or S.beta.sum() == pytest.approx(total, abs=1e-12)
    assert (S.beta >= S.lower).all()
    assert (S.beta <= S.upper).all()
    inside = (S.beta > S.lower) & (S.beta < S.upper)
    assert np.array_equal(S.side == ej.ELBOW, inside)
    assert np.array_equal(S.side == ej.UP, S.beta == S.upper)
    assert sorted(at.elbow.tolist()) == np.flatnonzero(inside).tolist()
    assert set(at.elbow.tolist()) <= set(free.tolist())
    assert at.m == np.linalg.matrix_rank(at.matrix()) <= (3 if equality else 2)
    check_factor(at)


def test_a_start_is_taken_into_its_boxes_and_to_bounds_that_are_near():
    S = scene(0, m=0, elbow=np.array([], np.int64)).S
    lower, upper = -1.0 - np.arange(12.0), 2.0 + np.arange(12.0)
    width = upper - lower
    S.beta[:] = 0.25
    S.beta[:6] = np.nan, lower[1] - 1.0, upper[2] + 1.0, *(lower + 0.009 * width)[3:5], upper[5] - 0.009 * width[5]
    S.beta[6] = lower[6] + 0.011 * width[6]
    expected = [0.0, lower[1], upper[2], lower[3], lower[4], upper[5], S.beta[6], *S.beta[7:]]
    crash_jit.seat(S, lower, upper, 0.01)
    assert S.beta.tolist() == expected
    assert (S.lower.tolist(), S.upper.tolist()) == (lower.tolist(), upper.tolist())


@both
@pytest.mark.parametrize("unit", [1.0, 1e4])
@seeds(12)
def test_a_dependent_value_takes_the_shorter_way_out(seed, equality, unit):
    at = plane(seed, equality, unit)
    S, on = at.S, at.elbow.tolist()
    rng = np.random.default_rng(seed)
    i = 4 + seed % 8
    S.side[i] = ej.ELBOW
    S.beta[i] = S.lower[i] + rng.choice([0.05, 0.5, 0.95]) * (S.upper[i] - S.lower[i])
    x = np.linalg.solve(at.matrix(), at.K[on, i] + at.P.bump)
    down = min(boxes_met(at, x, -1.0, S.beta[i] - S.lower[i]))
    up = min(boxes_met(at, x, 1.0, S.upper[i] - S.beta[i]))
    sign, box = (1.0, up) if up[0] < down[0] else (-1.0, down)
    beta = S.beta.copy()
    beta[i] += sign * box[0]
    beta[on] -= sign * box[0] * x
    S.resid[i] = 0.5
    crash_jit.crash_point(at.P, S, at.W, i)
    assert S.beta == pytest.approx(beta, abs=1e-12)
    check_factor(at)
    if box[2] < 0:
        assert at.elbow.tolist() == on
        assert (S.side[i], S.beta[i]) == ((ej.UP, S.upper[i]) if sign > 0.0 else (ej.LOW, S.lower[i]))
    else:
        j = on.pop(box[2])
        assert at.elbow.tolist() == [*on, i]
        assert (S.side[j], S.beta[j]) in ((ej.UP, S.upper[j]), (ej.LOW, S.lower[j]))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("share", [1e-4, -1e-4])
def test_a_value_that_hardly_moves_may_leave_all_the_same(share, sign):
    """A point next to the origin is a small share of one on the elbow, which is next to its bound."""
    rng = np.random.default_rng(7)
    X = np.concatenate([[[1.0, 0.0], [0.0, 1.0], [share, 0.0]], rng.integers(1, 4, (9, 2))])
    for start in (False, True):
        at = scene(0, kernel=X @ X.T, elbow=np.arange(2), equality=False)
        S, side = at.S, ej.LOW if share * sign > 0.0 else ej.UP
        S.side[2] = ej.UP if sign < 0.0 else ej.LOW
        S.beta[2] = S.upper[2] if sign < 0.0 else S.lower[2]
        S.beta[0] = S.lower[0] + 1e-6 if side == ej.LOW else S.upper[0] - 1e-6
        S.resid[2] = 0.0
        refit(at)
        if start:
            S.beta[2], S.side[2] = 0.5 * (S.lower[2] + S.upper[2]), ej.ELBOW
            crash_jit.crash_point(at.P, S, at.W, 2)
        else:
            assert pj.event(at.P, S, at.W, at.L, 2, -1, 0.0, options(at)) == ej.DONE
        assert at.elbow.tolist() == [1, 2]
        assert S.side[0] == side
        assert S.beta[0] == (S.lower[0] if side == ej.LOW else S.upper[0])


@seeds(6)
@both
@pytest.mark.parametrize("distance", [1e-8, 3e-9])
def test_a_start_keeps_a_value_that_only_nearly_depends(seed, equality, distance):
    at, i = nearly_twins(seed, equality, distance)
    S = at.S
    S.side[i], S.beta[i] = ej.ELBOW, 0.5 * (S.lower[i] + S.upper[i])
    beta = S.beta.copy()
    crash_jit.crash_point(at.P, S, at.W, i)
    assert at.elbow.tolist() == [5, 3, 9, 7]
    assert np.array_equal(S.beta, beta)
    whole = at.P.diagonal[i] + at.P.bump
    assert np.sqrt(1e-15 * whole) * (1.0 - 1e-12) <= S.factor[3, 3] <= np.sqrt(1e-13 * whole)
    assert np.isfinite(S.half_slope[:4]).all()
    assert S.factor[:3, 3] @ S.factor[:3, 0] == pytest.approx(at.K[7, 5] + at.P.bump, abs=1e-11)
