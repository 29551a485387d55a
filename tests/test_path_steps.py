"""Single steps of the path, function by function: where the next event is, what it changes, and why a call returns."""

from __future__ import annotations

import numpy as np
import pytest
from repeats import seeds
from small_paths import check, hide_image, options, refit, scene, sides_told

from svmcore import _path_jit as pj
from svmcore.path import elbow_jit as ej
from svmcore.path.log_jit import EVENTS, KNOTS, VALUES
from svmcore.simd.vector import BIG

pytestmark = pytest.mark.home

both = pytest.mark.parametrize("equality", [True, False])


# ---------------------------------------------------------------- the next event


@pytest.mark.parametrize("scale", [1.0, 1e4])
@seeds(20)
def test_every_value_and_residual_blocks_at_its_own_step(seed, scale):
    at = scene(seed, m=5)
    S, W = at.S, at.W
    rng = np.random.default_rng(seed)
    W.rate[:] = rng.choice([-1.0, -0.25, -1e-3, 0.0, 1e-3, 0.0625, 2.0], 12)
    W.direction[:5] = rng.choice([-1.0, -1e-9, 0.0, 1e-9, 0.5, 3.0], 5)
    if seed % 3 == 0:  # some are a little beyond zero
        S.resid[:4] *= -1e-14
    W.step[:] = np.nan
    least, limit = pj.blocking_steps(S, W, 1e-3, 1e-9, scale)
    step, late = np.full(12, BIG), [BIG]
    for i in range(12):
        toward = -W.rate[i] if S.side[i] == ej.UP else W.rate[i]
        if S.side[i] != ej.ELBOW and toward > 1e-3:
            step[i] = (S.resid[i] if S.side[i] == ej.UP else -S.resid[i]) / toward
            late.append(step[i] + 1e-12 * scale / toward)
    for k, i in enumerate(at.elbow):
        if abs(W.direction[k]) > 1e-9:  # beta falls by d
            room = S.beta[i] - S.lower[i] if W.direction[k] > 0 else S.upper[i] - S.beta[i]
            step[i] = room / abs(W.direction[k])
            late.append(step[i] + 1e-12 * (S.upper[i] - S.lower[i]) / abs(W.direction[k]))
    assert W.step == pytest.approx(step, rel=1e-14, abs=1e-300)
    assert least == pytest.approx(max(step.min(), 0.0), rel=1e-14)
    assert limit == pytest.approx(max(least, min(min(late), least + 1e-12 * scale)), rel=1e-15, abs=1e-28)


@both
@pytest.mark.parametrize("unit", [1.0, 1e-10])
@seeds(10)
def test_among_ties_the_fastest_is_chosen(seed, unit, equality):
    """Residuals count in units of the point's norm, values as they are."""
    at = scene(seed, m=5, equality=equality)
    P = at.P._replace(diagonal=unit * at.P.diagonal, bump=unit * at.P.bump)
    S, W = at.S, at.W
    rng = np.random.default_rng(seed)
    W.rate[:], W.direction[:5] = np.sqrt(unit) * rng.normal(size=12), rng.normal(size=5)
    for ties in (0, 1, 4, 8):
        W.step[:] = 1.0
        W.step[rng.permutation(12)[:ties]] = 0.5
        W.step[rng.permutation(12)[: ties // 2]] = -1e-15
        speed = np.abs(W.rate) / np.sqrt(P.diagonal + P.bump)
        speed[at.elbow] = np.abs(W.direction[:5])
        tied = np.flatnonzero(W.step <= 0.5)
        point, place = pj.choose(P, S, W, 0.5)
        if not tied.size:
            assert (point, place) == (-1, -1)
            continue
        assert point == tied[np.argmax(speed[tied])]
        assert place == (at.elbow.tolist().index(point) if S.side[point] == ej.ELBOW else -1)


def test_of_equally_fast_ones_the_first_is_chosen_and_values_come_first():
    at = scene(0, m=3, equality=False)
    W = at.W
    outside = np.flatnonzero(at.S.side != ej.ELBOW)
    W.step[:], W.direction[:3] = 0.0, [1.0, -1.0, 1.0]
    W.rate[:] = np.sqrt(at.P.diagonal)
    assert pj.choose(at.P, at.S, W, 0.0) == (at.elbow[0], 0)
    W.direction[:3] = 0.0
    W.rate[outside] = -4.0
    at.P.diagonal[outside] = 4.0
    assert pj.choose(at.P, at.S, W, 0.0) == (outside[0], -1)
    W.rate[:] = 0.0  # even one that does not move is better than none
    W.step[at.elbow] = 1.0
    assert pj.choose(at.P, at.S, W, 0.0) == (outside[0], -1)
    W.step[outside] = 1.0
    W.step[at.elbow] = 0.0
    assert pj.choose(at.P, at.S, W, 0.0) == (at.elbow[0], 0)
    at.P.diagonal[:], W.rate[:], W.step[:] = 0.0, 0.0, 0.0  # nothing is divided by zero
    W.rate[outside[2]] = 1e-12
    assert pj.choose(at.P, at.S, W, 0.0) == (outside[2], -1)


@pytest.mark.parametrize("h", [0.0, 0.01, 50.0])
def test_a_step_moves_values_within_their_boxes_and_residuals_outside_the_elbow(h):
    at = scene(1, m=4)
    S, W = at.S, at.W
    rng = np.random.default_rng(0)
    W.direction[:4], W.rate[:] = rng.normal(size=4), rng.normal(size=12)
    S.resid[at.elbow] = 1e-17
    beta, resid, (t, bias) = S.beta.copy(), S.resid.copy(), S.num[[ej.NOW, ej.BIAS]]
    pj.advance(S, W, h, 0.7)
    beta[at.elbow] = np.clip(beta[at.elbow] - h * W.direction[:4], S.lower[at.elbow], S.upper[at.elbow])
    resid += h * W.rate
    resid[at.elbow] = 0.0
    assert S.beta == pytest.approx(beta, abs=1e-13)
    assert S.resid == pytest.approx(resid, abs=1e-13)
    assert not S.resid[at.elbow].any()
    assert S.num[[ej.NOW, ej.BIAS]] == pytest.approx([t - h, bias - h * 0.7], abs=1e-13)


# ---------------------------------------------------------------- the log


def test_a_correction_is_of_the_last_knot_at_this_t():
    at = scene(0, m=3)
    S, L = at.S, at.L
    pj.correct_knot(S, L)
    assert L.end.tolist() == [0, 0, 0]
    pj.log_knot(S, L)
    S.num[ej.NOW] = 1.25
    pj.log_knot(S, L)
    S.beta[at.elbow] += 0.125
    pj.correct_knot(S, L)
    assert L.end.tolist() == [0, 2, 6]
    assert L.value[3:6].tolist() == S.beta[at.elbow].tolist()
    assert L.value[:3] == pytest.approx(S.beta[at.elbow] - 0.125)
    S.num[ej.NOW] = 1.0
    pj.correct_knot(S, L)
    assert L.end.tolist() == [0, 2, 6]


# ---------------------------------------------------------------- one event after another


@both
@seeds(6)
@pytest.mark.parametrize(("m", "unit"), [(1, 1.0), (4, 1.0), (4, 1e4), (4, 1e-4)])
def test_the_path_is_optimal_after_every_event(seed, equality, m, unit):
    at = scene(seed, m=m, equality=equality, unit=unit)
    S, L = at.S, at.L
    side = S.side.copy()
    opt = options(at)
    events, knots, t = 0, 0, S.num[ej.NOW]
    for step in range(1, 200):
        elbow = at.elbow.copy()
        code = pj.follow(at.P, S, at.W, L, opt)
        check(at)
        assert np.abs(S.base).max() <= 1e-12
        assert S.cnt[ej.N_STEP] == step
        assert opt.t_end - 1e-15 <= S.num[ej.NOW] <= t
        moved = S.num[ej.NOW] < t
        assert L.end[KNOTS] == knots + moved
        if moved:
            knots, t = knots + 1, S.num[ej.NOW]
            assert L.knot[knots - 1].tolist() == [t, S.num[ej.BIAS]]
            assert L.knot_at[knots - 1].tolist() == [events, len(elbow)]
            told = slice(L.end[VALUES] - len(elbow), L.end[VALUES])
            assert L.index[told].tolist() == elbow.tolist()
            assert L.value[told].tolist() == S.beta[elbow].tolist()  # exactly at a bound already, for who leaves
        if code == ej.DONE:
            break
        assert code == ej.BUDGET
        events += 1
        assert S.cnt[ej.N_EVENT] == S.cnt[ej.SINCE] == L.end[EVENTS] == events
    assert code == ej.DONE
    assert S.num[ej.NOW] == pytest.approx(0.2, abs=1e-15)
    assert events > 3
    assert S.cnt[[ej.N_ZERO, ej.ZERO_RUN]].tolist() == [0, 0]
    assert (sides_told(at, side) == S.side).all()


def test_nothing_is_written_without_a_record():
    at = scene(3)
    at.L.end[:] = [at.L.event_t.shape[0], at.L.knot.shape[0], 0]
    before = at.L.end.copy()
    assert pj.follow(at.P, at.S, at.W, at.L, options(at, record=False)) == ej.BUDGET
    assert at.L.end.tolist() == before.tolist()
    assert pj.follow(at.P, at.S, at.W, at.L, options(at)) == ej.FLUSH


@pytest.mark.parametrize(("capacity", "code"), [(5, ej.GROW), (6, ej.BUDGET)])
def test_room_for_two_more_on_the_elbow(capacity, code):
    at = scene(3, capacity=capacity)
    assert pj.follow(at.P, at.S, at.W, at.L, options(at)) == code


def test_a_row_that_is_missing_ends_the_call_before_the_event():
    at = far_scene()
    S = at.S
    stop_at(at, 3, 0.5)
    slot = at.P.slot[3]
    at.P.slot[3] = -1
    assert pj.follow(at.P, S, at.W, at.L, options(at, budget=3)) == ej.ROWS
    assert S.cnt[[ej.WANT, ej.N_EVENT, ej.SINCE]].tolist() == [3, 0, 0]
    assert (at.m, S.num[ej.NOW]) == (0, 1.0)
    at.P.slot[3] = slot
    assert pj.follow(at.P, S, at.W, at.L, options(at)) == ej.BUDGET
    assert (at.elbow.tolist(), S.num[ej.NOW]) == ([3], 1.0)
    check(at)


def far_scene(**other):
    """Nobody meets anything on the way to t = 0: residuals are large, and no value moves."""
    at = scene(4, m=0, elbow=np.array([], np.int64), equality=False, **other)
    at.S.resid[:] *= 1e3
    refit(at)
    return at


def test_without_an_event_steps_end_where_a_refresh_is_due():
    at = far_scene()
    S = at.S
    opt = options(at, t_end=0.5, stretch=0.5, rate_tol=0.0)
    assert pj.follow(at.P, S, at.W, at.L, opt) == ej.BUDGET  # had a look, and would go on
    assert S.num[[ej.NOW, ej.T_REFRESH]].tolist() == [0.75, 0.75]
    assert S.cnt[[ej.N_LOOK, ej.N_STEP, ej.N_EVENT]].tolist() == [1, 1, 0]
    assert S.cnt[ej.SINCE] == 0
    assert pj.follow(at.P, S, at.W, at.L, opt) == ej.DONE
    assert S.num[ej.NOW] == 0.5
    at = far_scene()
    hide_image(at)  # no look: Python must do it
    assert pj.follow(at.P, at.S, at.W, at.L, opt) == ej.REFRESH
    assert at.S.num[ej.NOW] == 0.75
    at = far_scene()
    assert pj.follow(at.P, at.S, at.W, at.L, opt._replace(budget=9)) == ej.DONE
    assert at.S.num[ej.NOW] == 0.5
    assert at.L.knot[: at.L.end[KNOTS], 0].tolist() == [0.75, 0.5]
    at = far_scene()
    assert pj.follow(at.P, at.S, at.W, at.L, opt._replace(t_end=1.0)) == ej.DONE
    assert at.S.num[ej.NOW] == 1.0


def test_a_second_look_comes_after_a_mended_elbow():
    for factored in (True, False):
        at = scene(1)
        P = at.P._replace(floor=50.0)
        pj.log_knot(at.S, at.L)
        at.L.chord[0] = 0.5
        pj.log_knot(at.S, at.L)
        good = at.S.beta.copy()
        at.S.beta[at.elbow[0]] += 1e-6
        assert pj.look_twice(P, at.S, at.W, at.L, options(at), factored) == factored
        assert (at.L.chord[0] == np.inf).all() == factored  # nobody knows by how much
        if factored:
            assert at.S.beta == pytest.approx(good, abs=1e-12)
            assert np.array_equal(at.L.value[at.m : 2 * at.m], at.S.beta[at.elbow])
            assert pj.look_twice(P, at.S, at.W, at.L, options(at), factored)


def test_the_stretch_is_of_the_linear_term():
    at = far_scene(level=2.5)  # of size 4 at t = 1.5
    assert pj.follow(at.P, at.S, at.W, at.L, options(at, t_end=0.0, stretch=0.75)) == ej.BUDGET
    assert at.S.num[ej.NOW] == 0.5


def stop_at(at, i, step, rate=1.0):
    """Point i of `far_scene` will meet zero after this step."""
    S = at.S
    at.P.slope[i] = rate if S.side[i] == ej.UP else -rate
    S.resid[i] = step * at.P.slope[i]
    refit(at)


@pytest.mark.parametrize(
    ("scale", "step", "zero"),
    [(0.0, 5e-7, False), (1e6, 5e-7, True), (1e5, 5e-7, False), (0.0, 1e-13, True), (1e-4, 1e-13, False)],
)
def test_steps_shorter_than_a_tie_are_none(scale, step, zero):
    at = far_scene()
    stop_at(at, 3, step)
    at.S.cnt[ej.ZERO_RUN] = 6
    assert pj.follow(at.P, at.S, at.W, at.L, options(at, scale=scale)) == ej.BUDGET
    assert at.elbow.tolist() == [3]
    assert at.S.cnt[[ej.N_ZERO, ej.ZERO_RUN, ej.N_ZERO_MAX]].tolist() == ([1, 7, 7] if zero else [0, 0, 0])


@pytest.mark.parametrize(
    ("run", "code", "spread"),
    [(38, ej.BUDGET, 0), (39, ej.BUDGET, 1), (40, ej.BUDGET, 0), (1239, ej.BUDGET, 1), (1240, ej.STALLED, 0)],
)
def test_every_forty_zero_steps_ties_are_spread_and_without_end_they_stall(run, code, spread):
    """There are twelve points: a thousand zero steps, and twenty for each of them."""
    at = far_scene()
    stop_at(at, 3, 0.0)
    at.S.cnt[ej.ZERO_RUN] = run
    assert pj.follow(at.P, at.S, at.W, at.L, options(at)) == code
    assert at.S.cnt[ej.N_PERTURB] == spread
    assert at.m == (code != ej.STALLED)


def test_rates_within_the_tolerance_meet_nothing():
    for rate, stops in ((0.9e-3, False), (1.1e-3, True)):
        at = far_scene()
        stop_at(at, 3, 0.5, rate=rate)
        pj.follow(at.P, at.S, at.W, at.L, options(at, rate_tol=1e-3))
        assert (at.m == 1) == stops


@pytest.mark.parametrize(("limit", "code"), [(1, ej.BUDGET), (2, ej.DONE)])
def test_no_more_events_than_asked_for(limit, code):
    at = far_scene()
    stop_at(at, 3, 0.5)
    at.K[3, :] = at.K[:, 3] = at.P.rows[:, 3] = at.P.rows[at.P.slot[3]] = 0.0
    at.K[3, 3] = at.P.rows[at.P.slot[3], 3] = at.P.diagonal[3] = 1e9  # hardly moves once it is on the elbow
    assert pj.follow(at.P, at.S, at.W, at.L, options(at, budget=50, n_events_max=limit)) == code
    assert at.S.cnt[ej.N_EVENT] == 1


@pytest.mark.parametrize(
    ("before", "blind", "scale", "code", "looks"),
    [
        (2.1, False, 0.0, ej.BUDGET, 1), (2.1, True, 0.0, ej.REFRESH, 0), (2.1, True, 1.0, ej.BUDGET, 0),
        (1.9, False, 0.0, ej.BUDGET, 0), (1.9, True, 0.0, ej.BUDGET, 0),
    ],
)  # fmt: skip
def test_a_look_is_due_after_half_the_way(before, blind, scale, code, looks):
    at = far_scene()
    stop_at(at, 3, 0.5)  # t falls to 1
    at.S.num[ej.T_REFRESH] = before
    if blind:
        hide_image(at, 5)
    assert pj.follow(at.P, at.S, at.W, at.L, options(at, stretch=0.5, scale=scale)) == code
    assert at.S.cnt[ej.N_LOOK] == looks
    assert at.S.num[ej.T_REFRESH] == (1.0 if looks else before)
