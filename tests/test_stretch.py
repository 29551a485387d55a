"""Windows one after another, function by function: how they open, what is taken over or back, and why they end."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from repeats import seeds
from small_paths import FOREVER, check_inverse, check_sides, hide_image, refit, sides_told, windowed

from svmcore import _path_jit as pj
from svmcore.path import elbow_jit as ej
from svmcore.path import opening_jit as oj
from svmcore.path import stretch_jit as sj
from svmcore.path import window_jit as wj
from svmcore.path.log_jit import EVENTS, KNOTS, VALUES

pytestmark = pytest.mark.home

both = pytest.mark.parametrize("equality", [True, False])


def reach(at, **other):
    """No limit that ends a call early, but for those named."""
    limits = {
        "t_end": 0.3, "rate_tol": 1e-9, "stretch": 0.0, "refresh": FOREVER, "budget": 1, "n_events_max": FOREVER,
        "gap": 1e9, "whole": True, "lower": at.S.lower.copy(), "upper": at.S.upper.copy(),
    }  # fmt: skip
    return sj.Reach(**{**limits, **other})


# ---------------------------------------------------------------- opening


@seeds(6)
@both
@pytest.mark.parametrize("unit", [1.0, 1e6])
def test_a_newton_step_removes_the_residual_of_the_elbow(seed, equality, unit):
    at, window, _ = windowed(seed, equality=equality, unit=unit)
    m, on = at.m, at.elbow
    resid = 1e-8 * np.random.default_rng(seed).normal(size=m)
    at.S.resid[on] = resid
    window.solved_one[:m] = np.linalg.inv(at.matrix()).sum(axis=1)
    taken, fits, change = sj.elbow_step(at.P, at.S, window)
    assert (taken, fits) == (True, True)
    step = window.solution[:m]
    assert at.K[np.ix_(on, on)] @ step + change == pytest.approx(resid, abs=1e-18)
    assert (abs(step.sum()) <= 1e-16 / unit) if equality else (change == 0.0)
    window.value[:m], bias = 0.0, at.S.num[ej.BIAS]
    oj.correct_elbow(at.P, at.S, window)
    assert at.S.num[ej.BIAS] == bias + change
    assert window.value[:m] == pytest.approx(step, rel=1e-12, abs=1e-30)
    assert window.moved[0, :m] == pytest.approx(step, rel=1e-12, abs=1e-30)


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("length", "room", "fits"), [
    (1.0, np.inf, True), (4.9, np.inf, True), (5.1, np.inf, False), (1.0, 2.1e-7, True), (1.0, 1.9e-7, False),
])  # fmt: skip
def test_a_newton_step_fits_when_every_value_stays_in_its_box_and_moves_little(place, sign, length, room, fits):
    at, window, _ = windowed(0, equality=False)
    S, j, step = at.S, at.elbow[place], np.zeros(5)
    step[place] = sign * length * 2e-7
    if np.isfinite(room):
        (S.upper if sign > 0.0 else S.lower)[j] = S.beta[j] + sign * room
    S.resid[at.elbow] = at.matrix() @ step
    window.solved_one[:5] = np.linalg.inv(at.matrix()).sum(axis=1)
    assert sj.elbow_step(at.P, S, window)[:2] == (True, fits)


@pytest.mark.parametrize(("share", "worth"), [(0.9, False), (1.1, True)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_residual_of_rounding_is_left_alone(share, worth, sign):
    at, window, _ = windowed(1, level=2.5)  # the linear term is of size 4
    at.S.resid[at.elbow[-1]] = sign * share * 4e-15
    window.solved_one[:5] = 1.0
    found = sj.elbow_step(at.P, at.S, window)
    assert found[0] == worth
    assert found[1]
    assert worth or found[2] == 0.0


@seeds(6)
def test_a_step_that_does_not_fit_is_booked_at_all_points_of_the_elbow(seed):
    at, window, _ = windowed(seed)
    S, on = at.S, at.elbow
    S.resid[on] = resid = 1e-8 * np.random.default_rng(seed).normal(size=5)
    S.base[:] = 1.0
    S.lower[on[2]] = S.upper[on[2]] = S.beta[on[2]]
    window.value[:5] = S.beta[on]
    window.solved_one[:5] = np.linalg.inv(at.matrix()).sum(axis=1)
    bias = S.num[ej.BIAS]
    oj.correct_elbow(at.P, S, window)
    assert not S.resid[on].any()
    assert S.base[on] == pytest.approx(1.0 - resid, abs=1e-16)
    assert (np.delete(S.base, on) == 1.0).all()
    assert np.array_equal(window.value[:5], S.beta[on])
    assert S.num[ej.BIAS] == bias


@seeds(6)
@pytest.mark.parametrize("carried", [oj.UNKNOWN, oj.KNOWN, oj.MEASURED])
def test_the_solution_for_the_slopes_is_made_kept_or_corrected(seed, carried):
    at, window, stretch = windowed(seed)
    rng = np.random.default_rng(seed)
    inverse = np.linalg.inv(at.matrix())
    stretch.pace[oj.CARRIED] = carried
    window.right[:5], stretch.rate[:] = rng.normal(size=5), rng.normal(size=16)
    if carried != oj.UNKNOWN:
        window.solved_slope[:5] = rng.normal(size=5)
    kept = window.solved_slope[:5].copy()
    wanted = {
        oj.UNKNOWN: inverse @ window.right[:5], oj.KNOWN: kept, oj.MEASURED: kept - inverse @ stretch.rate[at.elbow],
    }[carried]  # fmt: skip
    oj.open_direction(at.S, window, stretch)
    assert window.solved_slope[:5] == pytest.approx(wanted, abs=1e-12)
    assert np.array_equal(stretch.solved_slope[:5], window.solved_slope[:5])
    assert stretch.pace[oj.CARRIED] == oj.KNOWN


@seeds(6)
@both
@pytest.mark.parametrize("m", [1, 2, 5])
def test_a_window_opens_with_the_elbow_in_its_slots(seed, equality, m):
    at, window, stretch = windowed(seed, m=m, equality=equality)
    S, on = at.S, at.elbow
    window.count[:] = 99
    oj.open_window(at.P, S, window, stretch)
    assert window.count[[wj.SLOTS, wj.START, wj.STEPS, wj.PENDING]].tolist() == [m, m, 0, 0]
    assert window.point[:m].tolist() == on.tolist()
    assert not window.dead[:m].any()
    assert (window.spot[:m] == -1).all()
    for part, wanted in ((window.start, S.beta), (window.value, S.beta), (window.low, S.lower), (window.high, S.upper)):
        assert np.array_equal(part[:m], wanted[on])
    inverse = np.linalg.inv(at.matrix())
    assert window.solved_one[:m] == pytest.approx(inverse.sum(axis=1), abs=1e-12)
    assert window.solved_slope[:m] == pytest.approx(inverse @ at.P.slope[on], abs=1e-12)
    d0 = window.solved_slope[:m].sum() / window.solved_one[:m].sum() if equality else 0.0
    d = window.solved_slope[:m] - d0 * window.solved_one[:m]
    assert stretch.rate == pytest.approx(at.K[:, on] @ d + d0 - at.P.slope, abs=1e-11)
    assert stretch.rate[on] == pytest.approx(0.0, abs=1e-11)
    assert stretch.pace[oj.RATED] == 1
    stretch.rate[:] = kept = np.arange(16.0)  # known: they are not computed again
    oj.open_window(at.P, S, window, stretch)
    assert np.array_equal(stretch.rate, kept)


def test_smallest_of_all_short_lists():
    for size in range(1, 6):
        for values in product([0.0, 1.0, 2.0], repeat=size):
            for k in range(size):
                a = np.array([*values, -5.0, 9.0])
                assert oj.smallest(a, size, k) == sorted(values)[k]
                assert a[size:].tolist() == [-5.0, 9.0]
                assert sorted(a[:size]) == sorted(values)


def test_the_mean_size():
    assert oj.mean_size(np.array([1.0, -2.0, 0.0, 5.0])) == 2.0


@seeds(6)
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_scores_are_steps_to_zero_and_a_little_less(seed, scale):
    """As if everybody came nearer by half of the mean rate on top of its own."""
    at, window, stretch = windowed(seed)
    S = at.S
    stretch.rate[:] = scale * np.random.default_rng(seed).normal(size=16)
    oj.choose_candidates(S, window, stretch)
    toward = np.maximum(np.where(S.side == ej.UP, -stretch.rate, stretch.rate), 0.0)
    score = np.abs(S.resid) / (toward + 0.5 * np.abs(stretch.rate).mean())
    assert stretch.score == pytest.approx(np.where(S.side == ej.ELBOW, np.inf, score), rel=1e-12)


@seeds(6)
def test_candidates_know_their_kernel_values_and_residuals(seed):
    """From their own rows, or from those of the slots; residuals after the correction of the elbow."""
    at, window, stretch = windowed(seed)
    S, on = at.S, at.elbow
    rng = np.random.default_rng(seed)
    sj.keep_state(S, at.L, stretch)
    oj.open_window(at.P, S, window, stretch)
    oj.choose_candidates(S, window, stretch)
    s = int(window.count[wj.CANDIDATES])
    cand = window.cand[:s]
    at.P.slot[cand[rng.random(s) < 0.5]] = -1
    window.moved[0, :5] = move = rng.normal(size=5)
    S.num[ej.BIAS] += 0.3
    oj.fill_candidates(at.P, S, window, stretch)
    assert window.kernel[:s, :5] == pytest.approx(at.K[np.ix_(cand, on)], abs=1e-15)
    wanted = S.resid[cand] - at.K[np.ix_(cand, on)] @ move - 0.3
    assert window.resid[:s] == pytest.approx(wanted, abs=1e-13)
    assert np.array_equal(window.resid_at[0, :s], window.resid[:s])
    assert (window.t_at[0], window.bias_at[0]) == (1.5, S.num[ej.BIAS])


# ---------------------------------------------------------------- the certificate


@pytest.mark.parametrize("third", [0, 1, 2])
@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize(("share", "objects"), [(0.9, False), (1.1, True)])
def test_points_object_beyond_a_hair_at_thirds(third, up, share, objects):
    """1e-11 of the size of the linear term at the end, which is 4 at t = 1.5."""
    at, window, stretch = windowed(3, n=8, m=1, equality=False, level=2.5).open()
    window.count[wj.STEPS], window.place[:] = 3, -1  # a step in each third: nothing in between
    window.t_at[:4] = 4.0, 3.0, 2.0, 1.5
    i = int(np.flatnonzero(at.S.side == (ej.UP if up else ej.LOW))[0])
    sign = 1.0 if up else -1.0
    stretch.at[:3] = np.where(at.S.side == ej.UP, 1.0, -1.0)
    stretch.at[third, i] = -sign * share * 4e-11
    window.place[at.elbow] = 0
    assert sj.find_objectors(at.P, at.S, window, stretch) == objects
    assert np.flatnonzero(stretch.wanted).tolist() == ([i] if objects else [])
    assert sj.find_objectors(at.P, at.S, window, stretch) == 0  # it is counted once
    stretch.wanted[:] = 0
    window.place[i] = 0  # candidates have been followed
    assert sj.find_objectors(at.P, at.S, window, stretch) == 0


@pytest.mark.parametrize(("share", "crosses"), [(0.9, False), (1.1, True)])
@pytest.mark.parametrize("own_row", [True, False])
def test_points_object_beyond_ten_hairs_between_thirds(share, crosses, own_row):
    """1e-10 of the size of the linear term at the end of the third, which is 4."""
    at, window, stretch = windowed(3, n=8, m=2, equality=False, level=2.5).open()
    window.t_at[:4] = 4.5, 3.0, 2.0, 1.5
    i = int(np.flatnonzero(at.S.side == ej.UP)[0])
    if not own_row:
        at.P.slot[i] = -1
    # at step 1, a share of 0.5 of the way, the chord is at 0.5, and the bend takes it beyond zero
    stretch.bend[1, :2] = [0.0, (0.25 + share * 4e-10) / at.K[i, at.elbow[1]]]
    stretch.bend[1, 2] = 0.25
    stretch.bend[2, :3] = 0.0
    assert sj.crosses_between(at.P, window, stretch, i, 1.0, (0.75, 0.25), (0, 3)) == crosses
    assert not sj.crosses_between(at.P, window, stretch, i, -1.0, (-0.75, -0.25), (1, 3))


# ---------------------------------------------------------------- afterwards


def taken_over(seed, equality=True, steps=6, **more):
    """A window that has run and been accepted: (scene, window, stretch, code, counts before)."""
    at, window, stretch = windowed(seed, equality=equality, **more).open()
    S = at.S
    code = wj.run_window(at.P, S, window, at.L, wj.Closing(0.3, 1e9, steps, 1e-8, 1e-9))
    alive = np.flatnonzero(window.dead[: window.count[wj.SLOTS]] == 0)
    S.beta[window.point[alive]] = window.value[alive]
    sj.residuals_at_thirds(at.P, S, window, stretch)
    return at, window, stretch, code


@seeds(6)
@both
@pytest.mark.parametrize("steps", [1, 6, 20])
def test_a_window_that_is_accepted_leaves_the_state_as_it_should_be(seed, equality, steps):
    at, window, stretch, code = taken_over(seed, equality, steps)
    S = at.S
    before, events, made = S.cnt.copy(), int(at.L.end[EVENTS]), int(window.count[wj.STEPS])
    stretch.pace[:] = 5
    stretch.wanted[:] = 1
    S.cnt[ej.ZERO_RUN], S.cnt[ej.N_ELBOW_MAX] = 3, 1
    sj.accept(at.P, S, window, stretch, code, 0.0, reach(at))
    check_sides(at)
    check_inverse(at)
    assert S.resid == pytest.approx(at.residuals(), abs=1e-10)
    m, on = at.m, at.elbow
    assert S.cnt[ej.N_ELBOW_MAX] == max(1, m)
    inverse = np.linalg.inv(at.matrix())
    assert window.solved_slope[:m] == pytest.approx(inverse @ at.P.slope[on], abs=1e-9)
    d0 = (inverse @ at.P.slope[on]).sum() / inverse.sum() if equality else 0.0
    d = inverse @ (at.P.slope[on] - d0)
    assert stretch.rate == pytest.approx(at.K[:, on] @ d + d0 - at.P.slope, abs=1e-9)
    for counter, more in ((ej.N_EVENT, events), (ej.N_STEP, made), (ej.SINCE, events)):
        assert S.cnt[counter] == before[counter] + more
    assert S.cnt[ej.ZERO_RUN] == 0
    pace = stretch.pace
    assert pace[[oj.WANTED, oj.RETRIES, oj.CARRIED]].tolist() == [0, 0, oj.MEASURED]
    assert pace[[oj.FRESH_FOR, oj.N_INSIDE]].tolist() == [5 + events, 5 + events]
    assert pace[oj.LENGTH] == 20
    assert not stretch.wanted.any()


@pytest.mark.parametrize("dead", [[], [0], [4], [0, 1], [3, 4], [0, 2, 4], [1, 2, 3], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("gone", [None, 0, 2, 4])
def test_slots_in_use_are_brought_together(dead, gone):
    """A slot is out of use when it is dead, or when its point has left the elbow all the same."""
    at, window, _ = windowed(4)
    S, on = at.S, at.elbow.tolist()
    window.count[wj.SLOTS], window.dead[:5], window.point[:5] = 5, 0, on
    window.dead[dead], window.solved_slope[:5] = 1, np.arange(5.0)
    if gone is not None:
        S.side[on[gone]] = ej.LOW
    left = [k for k in range(5) if k not in dead and k != gone]
    A = np.tril(S.factor[:5, :5]) + np.tril(S.factor[:5, :5], -1).T
    S.cnt[ej.N_ELBOW_MAX] = 3
    sj.compact(S, window)
    m = at.m
    assert m == len(left)
    assert sorted(at.elbow.tolist()) == sorted(on[k] for k in left)
    place = [on.index(i) for i in at.elbow]
    assert np.tril(S.factor[:m, :m]) == pytest.approx(np.tril(A[np.ix_(place, place)]), abs=0.0)
    assert window.solved_slope[:m].tolist() == [float(k) for k in place]
    assert window.point[:m].tolist() == at.elbow.tolist()
    assert S.cnt[ej.N_ELBOW_MAX] == max(3, m)


@seeds(6)
@both
def test_a_look_with_care_corrects_the_elbow_first(seed, equality):
    at, window, _ = windowed(seed, equality=equality)
    S, on = at.S, at.elbow
    P = at.P._replace(floor=100.0)
    S.num[ej.T_REFRESH], S.cnt[ej.SINCE] = 9.0, 7
    pj.log_knot(S, at.L)
    error = 1e-8 * np.random.default_rng(seed).normal(size=5)
    at.P.fixed[on] += error
    S.resid[:] = at.residuals()
    assert sj.look_with_care(P, S, window, at.L, reach(at))
    assert S.resid[on] == pytest.approx(0.0, abs=1e-14)
    assert S.resid == pytest.approx(at.residuals(), abs=1e-13)
    assert np.abs(S.base).max() <= 1e-14
    assert S.cnt[ej.SINCE] == 0
    assert S.num[ej.T_REFRESH] == 1.5
    assert at.L.end.tolist() == [0, 1, 5]
    assert at.L.value[:5].tolist() == S.beta[on].tolist()
    assert at.L.knot[0].tolist() == [1.5, S.num[ej.BIAS]]


@both
def test_a_look_that_would_leave_a_box_corrects_nothing(equality):
    at, window, _ = windowed(0, equality=equality)
    S, on = at.S, at.elbow
    S.resid[on] = 1e-8 * np.arange(1.0, 6.0)
    S.upper[on] = S.lower[on] = S.beta[on]
    beta, bias = S.beta.copy(), S.num[ej.BIAS]
    then, slot = S.then.copy(), at.P.slot.copy()
    S.cnt[ej.SINCE] = 7
    hide_image(at)
    assert not sj.look_with_care(at.P, S, window, at.L, reach(at))
    assert np.array_equal(S.beta, beta)
    assert S.num[ej.BIAS] == bias
    assert S.cnt[ej.SINCE] == 7
    S.resid[on], S.then[:], at.P.slot[:] = 0.0, then, slot  # nor one that is not worth it
    window.solution[:] = 1.0
    assert sj.look_with_care(at.P._replace(floor=100.0), S, window, at.L, reach(at))
    assert np.array_equal(S.beta, beta)


@pytest.mark.parametrize(
    ("code", "t_end", "since", "before", "blind", "wanted", "looks"),
    [
        (wj.NEED_ROW, 1.5, 9, 9.0, False, ej.ROWS, 0),
        (wj.NEAR_SINGULAR, 1.5, 9, 9.0, False, ej.STOPPED, 0),
        (wj.TIED, 1.5, 9, 9.0, False, ej.STOPPED, 0),
        (wj.END, 1.5, 0, 1.5, True, ej.DONE, 0),
        (wj.END, 1.5 * (1.0 - 0.9e-13), 0, 1.5, True, ej.DONE, 0),
        (wj.END, 1.5 * (1.0 - 1.2e-13), 0, 1.5, True, ej.REFRESH, 0),
        (wj.END, 1.0, 0, 1.5, False, -1, 1), (wj.END, 1.0, 0, 1.5, True, ej.REFRESH, 0),
        (wj.FULL, 1.5, 0, 1.5, True, -1, 0),
        (wj.FULL, 1.0, 7, 1.5, True, -1, 0),
        (wj.FULL, 1.0, 8, 1.5, True, ej.REFRESH, 0), (wj.FULL, 1.0, 8, 1.5, False, -1, 1),
        (wj.FULL, 1.0, 0, 5.4, True, -1, 0),
        (wj.FULL, 1.0, 0, 5.6, True, ej.REFRESH, 0), (wj.HALVED, 1.0, 0, 5.6, False, -1, 1),
        (wj.LEFT_REGION, 1.0, 0, 1.5, True, -1, 0),
        (wj.LONG_STEP, 1.0, 9, 1.5, True, ej.REFRESH, 0),
    ],
)  # fmt: skip
def test_why_windows_return(code, t_end, since, before, blind, wanted, looks):
    """At t = 1.5; the linear term is of size 4, which is half of 8, that of t = 5.5."""
    at, window, _ = windowed(0, level=2.5)
    S = at.S
    S.cnt[ej.SINCE], S.num[ej.T_REFRESH] = since, before
    if blind:
        hide_image(at)
    course = reach(at, t_end=t_end, refresh=8, stretch=0.5)
    assert sj.why_return(at.P._replace(floor=100.0), S, window, at.L, code, course) == wanted
    assert S.cnt[ej.N_LOOK] == looks


def test_residuals_are_exchanged():
    at, _, _ = windowed(0)
    mine, other = at.S.resid.copy(), np.arange(16.0)
    sj.swapped(at.S, other)
    assert at.S.resid.tolist() == list(range(16))
    assert np.array_equal(other, mine)


# ---------------------------------------------------------------- all of it


def check_windows(at, tol=1e-9):
    check_sides(at, tol)
    check_inverse(at, 1e-7)
    assert at.S.resid == pytest.approx(at.residuals(), abs=tol)


def test_a_log_has_room_for_a_window():
    at, _, _ = windowed(0)
    L = at.L
    for end, size, room in (
        (EVENTS, len(L.event_t), oj.ROOM), (KNOTS, len(L.knot), oj.ROOM), (VALUES, len(L.value), 34 * (5 + oj.ROOM)),
    ):  # fmt: skip
        L.end[:] = 0
        L.end[end] = size - room
        assert sj.fits_log(at.S, L)
        L.end[end] += 1
        assert not sj.fits_log(at.S, L)


@both
@pytest.mark.parametrize("width", [1, 4, 80])
@pytest.mark.parametrize("whole", [True, False])
@seeds(4)
def test_the_path_is_optimal_after_every_window(seed, equality, width, whole):
    at, window, stretch = windowed(seed, n=24, m=6, equality=equality, room=1)
    S, side = at.S, at.S.side.copy()
    stretch.pace[oj.WIDTH] = width
    at.L.end[:] = 0
    course = reach(at, whole=whole, gap=1e-6)
    P = at.P._replace(floor=10.0)
    codes, t = [], S.num[ej.NOW]
    for _ in range(400):
        before, tried = [part.copy() for part in S], int(stretch.pace[oj.N_WINDOWS])
        code = sj.follow_windows(P, S, window, stretch, at.L, course)
        codes.append(code)
        if code == ej.AHEAD and stretch.pace[oj.N_WINDOWS] == tried:
            assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, S, strict=True))
            assert not whole
            continue
        check_windows(at)
        assert np.abs(S.base).max() <= 1e-9
        assert S.num[ej.NOW] <= t
        t = S.num[ej.NOW]
        if code not in (ej.BUDGET, ej.AHEAD):
            break
    assert code == ej.DONE
    assert S.num[ej.NOW] == pytest.approx(0.3, abs=1e-12)
    assert (sides_told(at, side) == S.side).all()
    assert S.cnt[ej.N_EVENT] == stretch.pace[oj.N_INSIDE] == at.L.end[EVENTS]
    assert stretch.pace[oj.N_WINDOWS] > stretch.pace[oj.N_BACK] >= 0
    # rows are asked for before every window
    assert codes.count(ej.AHEAD) == (0 if whole else stretch.pace[oj.N_WINDOWS])


@both
def test_points_that_object_become_candidates(equality):
    """The first window believes that nobody moves, and follows one candidate as far as it likes."""
    taken_back = []
    for seed in range(8):
        at, window, stretch = windowed(seed, n=24, m=6, equality=equality, room=1)
        stretch.rate[:], stretch.pace[[oj.RATED, oj.WIDTH]] = 0.0, [1, 1]
        at.S.resid[np.flatnonzero(at.S.side == ej.UP)[0]] *= 1e-9  # next to zero: the one candidate
        refit(at)
        while (code := sj.follow_windows(at.P, at.S, window, stretch, at.L, reach(at))) == ej.BUDGET:
            check_windows(at)
            assert np.abs(at.S.base).max() <= 1e-9
        assert code == ej.DONE
        taken_back.append(int(stretch.pace[oj.N_BACK]))
    assert np.count_nonzero(taken_back) >= 3


def test_the_gap_can_object_to_a_window():
    """Three times: each time a shorter one is tried. After that the state is as it was."""
    at, window, stretch = windowed(0, n=24, m=6)
    before = [part.copy() for part in (at.S.beta, at.S.side, at.S.resid, at.S.num)]
    assert sj.follow_windows(at.P, at.S, window, stretch, at.L, reach(at, gap=-1.0)) == ej.DEFEATED
    assert stretch.pace[oj.N_BACK] == stretch.pace[oj.N_WINDOWS] == 3
    assert all(np.array_equal(a, b) for a, b in zip(before, (at.S.beta, at.S.side, at.S.resid, at.S.num), strict=True))
    assert not at.L.end.any()


def test_a_gap_that_is_not_a_number_objects():
    at, window, stretch = windowed(0, n=24, m=6)
    at.P.fixed[3] = np.nan
    assert sj.follow_windows(at.P, at.S, window, stretch, at.L, reach(at)) == ej.DEFEATED


@pytest.mark.parametrize(("share", "code"), [(0.9, ej.DEFEATED), (1.1, ej.REFRESH)])
def test_a_window_may_end_with_three_times_the_gap(share, code):
    """Measured without the shift that is booked: a share of the residual of one point."""
    at, window, stretch = windowed(0, n=24, m=6, equality=False)
    P = at.P._replace(floor=100.0)
    probe, other, more = windowed(0, n=24, m=6, equality=False)
    for one in (at, probe):
        one.S.base[one.elbow] += 1e-3
        one.P.fixed[one.elbow] -= 1e-3
    sj.follow_windows(P, probe.S, other, more, probe.L, reach(probe))
    gap = ej.exact_gap(P, probe.S, probe.S.num[ej.NOW], probe.S.lower, probe.S.upper)
    assert gap > 1e-6
    assert sj.follow_windows(P, at.S, window, stretch, at.L, reach(at, gap=share * gap / 3.0)) == code


@pytest.mark.parametrize(("distance", "enters"), [(1e-3, True), (1e-6, False)])
def test_who_enters_in_a_window_is_independent(distance, enters):
    """A relative pivot of 1e-8 is needed: that of a distance of 1e-4 or so. The factor may do more."""
    rng = np.random.default_rng(3)
    A = rng.normal(size=(24, 12))
    i, twin = 7, 3
    A[i] = A[twin] + distance * rng.normal(size=12)
    at, window, stretch = windowed(0, n=24, kernel=A @ A.T, elbow=np.array([5, twin, 9]))
    S = at.S
    outside = S.side != ej.ELBOW
    S.resid[outside] *= 1e3
    d0 = np.linalg.inv(at.matrix())
    d0 = (d0 @ at.P.slope[at.elbow]).sum() / d0.sum()
    d = np.linalg.solve(at.matrix(), at.P.slope[at.elbow] - d0)
    at.P.slope[i] = at.K[i, at.elbow] @ d + d0 - (1.0 if S.side[i] == ej.LOW else -1.0)
    S.resid[i] = -0.01 if S.side[i] == ej.LOW else 0.01
    middle = 0.5 * (S.upper - S.lower)[at.elbow]
    S.lower[at.elbow], S.upper[at.elbow] = S.beta[at.elbow] - 1e3 * middle, S.beta[at.elbow] + 1e3 * middle
    refit(at)
    stretch.pace[oj.LENGTH] = 1
    code = sj.follow_windows(at.P, S, window, stretch, at.L, reach(at, gap=1e300))
    assert code == (ej.BUDGET if enters else ej.STOPPED)
    assert (i in at.elbow.tolist()) == enters


def test_room_is_made_before_a_window():
    slots = 6 + oj.ROOM
    for width, size, candidates, code in (
        (5, slots, 6 + oj.ROOM, ej.BUDGET), (5, slots - 1, 6 + oj.ROOM, ej.GROW), (5, slots, 5 + oj.ROOM, ej.GROW),
    ):  # fmt: skip
        at, window, stretch = windowed(0, n=24, m=6)
        window = window._replace(solution=np.empty(size), kernel=window.kernel[:candidates])
        stretch.pace[[oj.WIDTH, oj.WANTED]] = width, 1
        assert sj.follow_windows(at.P, at.S, window, stretch, at.L, reach(at)) == code
    at, window, stretch = windowed(0, n=24, m=6)
    at.L.end[EVENTS] = len(at.L.event_t) - oj.ROOM + 1
    assert sj.follow_windows(at.P, at.S, window, stretch, at.L, reach(at)) == ej.FLUSH
