"""Single steps of a window, function by function: directions, the next event, slots that open and close, and why it ends."""

from __future__ import annotations

import numpy as np
import pytest
from repeats import seeds
from small_paths import refit, sides_told, windowed

from svmcore.path import elbow_jit as ej
from svmcore.path import products_jit
from svmcore.path import window_jit as wj
from svmcore.path.log_jit import EVENTS, KNOTS, VALUES
from svmcore.simd.vector import BIG

pytestmark = pytest.mark.home

both = pytest.mark.parametrize("equality", [True, False])


def closing(**other):
    """No limit that closes a window early, but for those named."""
    return wj.Closing(**{"t_end": 0.3, "region": 1e9, "steps": 9, "pivot": 1e-8, "rate_tol": 1e-9, **other})


# ---------------------------------------------------------------- products


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("columns", [0, 1, 6])
def test_a_product_of_some_rows_and_columns(rows, columns):
    rng = np.random.default_rng(rows)
    K, d, out = np.full((12, 7), np.nan), np.full(7, np.nan), np.full(12, 9.0)
    K[:rows, :columns], d[:columns] = rng.normal(size=(rows, columns)), rng.normal(size=columns)
    products_jit.product(K, rows, d, columns, out)
    assert out[:rows] == pytest.approx(K[:rows, :columns] @ d[:columns], abs=1e-14)
    assert (out[rows:] == 9.0).all()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 7, 8, 9])
def test_a_product_with_a_lower_triangle(n):
    rng = np.random.default_rng(n)
    A, b, x = np.full((n + 2, n + 2), np.nan), rng.normal(size=n + 2), np.full(n + 2, 9.0)
    whole = rng.normal(size=(n, n))
    whole += whole.T
    A[:n, :n] = np.where(np.tri(n) > 0, whole, np.nan)
    products_jit.symmetric_product(A, n, b, x)
    assert x[:n] == pytest.approx(whole @ b[:n], abs=1e-13)
    assert (x[n:] == 9.0).all()


@pytest.mark.parametrize("slots", [0, 1, 3, 4, 5, 8, 10])
@pytest.mark.parametrize("n", [3, 1024, 1030])
def test_four_products_in_one_pass(slots, n):
    rng = np.random.default_rng(slots)
    point, slot = rng.permutation(12)[:slots], rng.permutation(12)
    rows = rng.normal(size=(len(slot), n))
    coef, out = rng.normal(size=(4, slots + 2)), rng.normal(size=(4, n))
    wanted = out - coef[:, :slots] @ rows[slot[point]]
    products_jit.four_products(rows, slot, point, coef, slots, out)
    assert out == pytest.approx(wanted, abs=1e-12)


# ---------------------------------------------------------------- the direction


@seeds(6)
@both
def test_pending_terms_are_added_to_a_product(seed, equality):
    _, window, _ = windowed(seed, equality=equality).open()
    rng = np.random.default_rng(seed)
    window.count[[wj.SLOTS, wj.START, wj.PENDING]] = 8, 5, 3
    window.terms[:3, :8], window.sign[:3] = rng.normal(size=(3, 8)), [1.0, -1.0, 1.0]
    window.dead[:8] = [0, 0, 1, 0, 0, 0, 1, 0]
    b, x = rng.normal(size=9), rng.normal(size=9)
    wanted = np.append(x[:5], np.zeros(3))
    for term, sign in zip(window.terms[:3, :8], window.sign[:3], strict=True):
        wanted += sign * term * (term @ b[:8])
    wanted[[2, 6]] = 0.0
    last = x[8]
    wj.add_pending(window, b, x)
    assert x == pytest.approx([*wanted, last], abs=1e-12)


# ---------------------------------------------------------------- the next event


@seeds(12)
def test_every_slot_meets_its_box_at_its_own_step(seed):
    _, window, _ = windowed(seed).open()
    rng = np.random.default_rng(seed)
    window.direction[:5] = rng.choice([-2.0, -1e-5, -1e-9, 0.0, 1e-9, 1e-5, 0.5], 5)
    window.high[:5] += rng.choice([0.0, 1e5], 5)
    least, loose = wj.slot_steps(window, 1e-9)
    step, late = np.full(5, BIG), [BIG]
    for k in range(5):
        speed = abs(window.direction[k])
        if speed > 1e-9:
            falls = window.direction[k] > 0.0
            step[k] = (window.value[k] - window.low[k] if falls else window.high[k] - window.value[k]) / speed
            late.append(step[k] + 1e-12 * (window.high[k] - window.low[k]) / speed)
    assert window.step[:5] == pytest.approx(step, rel=1e-14)
    assert least == pytest.approx(step.min(), rel=1e-14)
    assert loose == pytest.approx(min(late), rel=1e-15)


@pytest.mark.parametrize(
    ("side", "resid", "rate", "step"),
    [
        (ej.UP, 0.5, -0.25, 2.0), (ej.UP, 0.5, 0.25, BIG), (ej.LOW, -0.5, 0.25, 2.0), (ej.LOW, -0.5, -0.25, BIG),
        (ej.UP, 0.5, -1e-3, BIG), (ej.UP, 0.5, -1.1e-3, 0.5 / 1.1e-3), (ej.LOW, -0.5, 1e-3, BIG),
        (ej.LOW, -0.5, 1.1e-3, 0.5 / 1.1e-3), (ej.ELBOW, 0.5, -0.25, BIG), (ej.ELBOW, 0.5, 0.25, BIG),
        (ej.UP, -1e-9, -0.25, -4e-9),
    ],
)  # fmt: skip
def test_a_candidate_meets_zero_from_its_side(side, resid, rate, step):
    at, window, _ = windowed(0).open()
    at.S.side[window.cand[3]], window.resid[3], window.rate[3] = side, resid, rate
    assert wj.candidate_step(at.S, window, 3, 1e-3) == pytest.approx(step, rel=1e-14)


@both
@pytest.mark.parametrize("unit", [1.0, 1e8, 1e-8])
@seeds(12)
def test_the_first_event_is_the_fastest_of_those_that_tie(seed, equality, unit):
    """Ties are within 1e-12 of the linear term, or of the width of a box; residuals are measured by norms."""
    at, window, _ = windowed(seed, equality=equality, unit=unit, level=2.5).open()
    rng = np.random.default_rng(seed)
    S, count = at.S, int(window.count[wj.CANDIDATES])
    cand = window.cand[:count]
    window.direction[:5] = rng.choice([-2.0, 0.0, 0.5, 3.0], 5) / np.sqrt(unit)
    window.rate[:count] = rng.choice([-1.0, -0.25, 0.0, 0.25, 2.0], count)
    for k in range(5):  # all boxes are met at 0.25, and all residuals too, but for a hair and for a few that come later
        late = rng.choice([0.0, 0.0, 1e-13, 0.125])
        room = (0.25 + late) * abs(window.direction[k])
        window.low[k], window.high[k] = window.value[k] - room, window.value[k] + room
    toward = np.where(S.side[cand] == ej.UP, -window.rate[:count], window.rate[:count])
    late = rng.choice([0.0, 1e-13, 3e-12, 0.125], count)
    window.resid[:count] = np.where(S.side[cand] == ej.UP, 1.0, -1.0) * np.abs(toward) * (0.25 + late)
    steps, speeds, loose = [], [], []
    for k in range(5):
        speed = abs(window.direction[k])
        moves = speed > 1e-13
        room = window.value[k] - window.low[k] if window.direction[k] > 0.0 else window.high[k] - window.value[k]
        steps.append(room / speed if moves else BIG)
        speeds.append(speed)
        loose.append(steps[-1] + 1e-12 * (window.high[k] - window.low[k]) / speed if moves else BIG)
    for s in range(count):
        steps.append(abs(window.resid[s]) / toward[s] if toward[s] > 1e-9 else BIG)
        speeds.append(abs(window.rate[s]) / np.sqrt(at.P.diagonal[cand[s]] + at.P.bump))
        loose.append(steps[-1] + 4e-12 / toward[s] if toward[s] > 1e-9 else BIG)
    least = min(steps)
    limit = max(least, min(*loose, least + 4e-12))
    tied = [j for j in range(5 + count) if steps[j] <= limit]
    first = max(tied, key=lambda j: speeds[j])
    wanted = (steps[first], -1, first) if first < 5 else (steps[first], first - 5, -1)
    found = wj.next_event(at.P, S, window, 1e9, 1e-9)
    assert found == (pytest.approx(wanted[0], rel=1e-14), *wanted[1:])
    assert window.step[: 5 + count] == pytest.approx(steps, rel=1e-14)
    assert wj.next_event(at.P, S, window, 0.1875, 1e-9) == (0.1875, -1, -1)
    assert wj.next_event(at.P, S, window, least, 1e-9) == (least, -1, -1)


def test_of_equal_speeds_the_first_slot_is_taken():
    at, window, _ = windowed(0, kernel=np.eye(16), equality=False).open()
    count = int(window.count[wj.CANDIDATES])
    window.direction[:5], window.rate[:count] = 1.0, np.where(at.S.side[window.cand[:count]] == ej.UP, -1.0, 1.0)
    window.low[:5], window.resid[:count] = window.value[:5] - 0.5, 0.0
    window.resid[:count] = -0.5 * window.rate[:count]
    assert wj.next_event(at.P, at.S, window, 1.0, 1e-9)[1:] == (-1, 0)
    window.direction[:5] = 0.0
    assert wj.next_event(at.P, at.S, window, 1.0, 1e-9)[1:] == (0, -1)
    at.P.diagonal[:] = 0.0  # nothing is divided by zero
    window.rate[:count] *= np.linspace(1.0, 2.0, count)
    window.resid[:count] = -0.5 * window.rate[:count]
    assert wj.next_event(at.P, at.S, window, 1.0, 1e-9)[1:] == (count - 1, -1)


@pytest.mark.parametrize("fall", [0.0, 0.125, 50.0])
def test_a_step_moves_values_within_their_boxes_and_residuals_of_candidates(fall):
    at, window, _ = windowed(1).open()
    S, count = at.S, int(window.count[wj.CANDIDATES])
    rng = np.random.default_rng(0)
    window.direction[:5], window.rate[:count] = rng.normal(size=5), rng.normal(size=count)
    S.side[window.cand[2]] = ej.ELBOW
    window.count[wj.STEPS] = 3
    value, resid, bias = window.value[:5].copy(), window.resid[:count].copy(), S.num[ej.BIAS]
    wj.make_step(S, window, fall, 0.75)
    moved = np.clip(value - fall * window.direction[:5], window.low[:5], window.high[:5])
    assert window.value[:5] == pytest.approx(moved, abs=1e-13)
    resid += fall * window.rate[:count]
    resid[2] = 0.0
    assert window.resid[:count] == pytest.approx(resid, abs=1e-13)
    assert np.array_equal(window.resid_at[4, :count], window.resid[:count])
    assert S.num[[ej.NOW, ej.BIAS]] == pytest.approx([1.5 - fall, bias - 0.75 * fall], abs=1e-13)
    assert (window.t_at[4], window.bias_at[4]) == (S.num[ej.NOW], S.num[ej.BIAS])
    assert window.count[wj.STEPS] == 4
    wj.remember(window)
    assert window.moved[4, :5] == pytest.approx(moved - window.start[:5], abs=1e-13)
    assert np.isnan(window.moved[5]).all()


# ---------------------------------------------------------------- slots


@pytest.mark.parametrize("entry", [0.0, -1e-9])
def test_an_inverse_that_has_broken_down_is_seen_when_a_slot_closes(entry):
    at, window, _ = windowed(2).open()
    at.S.factor[3, 3] = entry
    before = window.count.copy()
    assert not wj.leave_slot(at.P, at.S, window, 3)
    assert np.array_equal(window.count, before)
    assert window.dead[3] == 0
    at.S.factor[3, 3] = 1e-6
    assert wj.leave_slot(at.P, at.S, window, 3)


@pytest.mark.parametrize(("share", "enters"), [(0.9, False), (1.1, True)])
@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_a_slot_is_for_points_with_a_pivot(share, enters, unit):
    at, window, _ = windowed(2, unit=unit).open()
    i = int(window.cand[3])
    a = at.K[at.elbow, i] + at.P.bump
    whole = at.P.diagonal[i] + at.P.bump
    pivot = (whole - a @ np.linalg.solve(at.matrix(), a)) / whole
    before = window.count.copy()
    assert wj.enter_slot(at.P, at.S, window, 3, pivot / share) == enters
    assert np.array_equal(window.count, before) == (not enters)


# ---------------------------------------------------------------- a window


def still_window(meeting=None, **form):
    """Nobody meets anything for long but these of the points outside, after these steps: no value moves. Not yet open."""
    it = windowed(4, **{"m": 3, "level": 2.5, "equality": False, **form})
    S, P = it.at.S, it.at.P
    S.resid[S.side != ej.ELBOW] *= 1e3
    P.slope[:] = np.where(S.side == ej.UP, 1e-3, -1e-3)
    P.slope[it.at.elbow] = 0.0
    for k, step in (meeting or {}).items():
        i = outside(it.at, k)
        P.slope[i] = 1.0 if S.side[i] == ej.UP else -1.0
        S.resid[i] = step * P.slope[i]
    refit(it.at)
    return it


def outside(at, k):
    return int(np.flatnonzero(at.S.side != ej.ELBOW)[k])


def apart(at, points, others):
    """These points no longer feel the others."""
    for i in points:
        for j in others:
            if i != j:
                at.K[i, j] = at.K[j, i] = at.P.rows[at.P.slot[i], j] = at.P.rows[at.P.slot[j], i] = 0.0


def run(it, **how):
    """Open the window, of all points, and run it."""
    at, window, _ = it.open()
    return wj.run_window(at.P, at.S, window, at.L, closing(**how))


def test_a_window_ends_where_it_is_told_or_after_half_the_way():
    for level, to, end in ((2.5, 1.25, 1.25), (0.5, 0.0, 0.5)):  # of size 4, and of size 2
        it = still_window(level=level)
        assert run(it, t_end=to) == wj.END
        assert it.at.S.num[ej.NOW] == end
        assert it.at.L.end[[EVENTS, KNOTS]].tolist() == [0, 1]


@pytest.mark.parametrize(("region", "code"), [(0.0, wj.END), (0.29, wj.LEFT_REGION), (0.31, wj.END)])
def test_a_window_stays_where_its_candidates_are_those_that_matter(region, code):
    """But its first step may be longer."""
    it = still_window({2: 0.05} if region else None)
    assert run(it, t_end=1.2, region=region) == code
    assert it.at.S.num[ej.NOW] == pytest.approx(1.2 if code == wj.END else 1.45, abs=1e-12)


@pytest.mark.parametrize(("second", "code"), [(0.38, wj.FULL), (0.42, wj.LONG_STEP)])
def test_a_long_step_is_the_first_of_a_window(second, code):
    """A tenth of the size of the linear term, which is 4 - 0.05 after the first event."""
    it = still_window({2: 0.05, 4: 0.05 + second})
    apart(it.at, [outside(it.at, 4)], [outside(it.at, 2)])
    assert run(it, steps=2) == code
    assert it.at.L.end[EVENTS] == (2 if code == wj.FULL else 1)
    assert run(still_window({2: 0.5}), steps=1) == wj.FULL  # a long one, but the first


@pytest.mark.parametrize(
    ("level", "step", "code"), [(0.0, 0.76, wj.HALVED), (0.0, 0.74, wj.FULL), (2.5, 0.76, wj.FULL)]
)
def test_a_window_closes_when_the_linear_term_has_halved(level, step, code):
    few = {} if level else {k: 1.5 * (1.0 - 0.93 ** (k + 1)) for k in range(9)}  # no step is a long one
    it = still_window({**few, 10: step}, level=level)
    at, far = it.at, np.flatnonzero(it.at.S.side != ej.ELBOW)
    apart(at, range(16), far)
    at.K[far, far] = at.P.rows[at.P.slot[far], far] = at.P.diagonal[far] = 1e9
    assert run(it, t_end=0.0, steps=1 if level else 10) == code
    assert at.S.num[ej.NOW] == pytest.approx(1.5 - step, abs=1e-9)


@pytest.mark.parametrize("candidate", [0, 2])
def test_a_dependent_point_and_a_missing_row_close_a_window_before_it_moves(candidate):
    it = still_window({candidate: 0.05})
    at, i = it.at, outside(it.at, candidate)
    assert run(it, pivot=0.9999) == wj.NEAR_SINGULAR
    it.open()
    slot, at.P.slot[i] = at.P.slot[i], -1
    assert wj.run_window(at.P, at.S, it.window, at.L, closing()) == wj.NEED_ROW
    assert (at.S.cnt[ej.WANT], at.S.num[ej.NOW]) == (i, 1.5)
    assert not at.L.end.any()
    at.P.slot[at.P.slot == 0], at.P.slot[i] = slot, 0  # the first row is a row
    at.P.rows[[0, slot]] = at.P.rows[[slot, 0]]
    assert wj.run_window(at.P, at.S, it.window, at.L, closing(steps=1)) == wj.FULL


@pytest.mark.parametrize("step", [0.1, 0.11, 0.123, 0.13, 0.17, 0.19])
@pytest.mark.parametrize("direction", [1e-6, -1e-6, 0.3, -0.7])
def test_a_value_that_meets_its_box_is_exactly_there(direction, step):
    """However slow it is, and whatever rounding makes of the step."""
    it = still_window()
    at, window, _ = it
    window.direction[:] = 0.0
    j = int(at.elbow[1])
    at.P.slope[at.elbow] = at.matrix() @ [0.0, direction, 0.0]
    bound = at.S.lower if direction > 0.0 else at.S.upper
    bound[j] = at.S.beta[j] - step * direction
    refit(at)
    side = at.S.side.copy()
    assert run(it, steps=1) == wj.FULL
    assert at.S.num[ej.NOW] == pytest.approx(1.5 - step, abs=1e-6)
    assert at.S.side[j] == (ej.LOW if direction > 0.0 else ej.UP)
    assert at.S.beta[j] == at.L.value[1] == bound[j]
    assert window.moved[1, 1] == bound[j] - window.start[1]
    assert at.L.event_move[0].tolist() == [ej.ELBOW, at.S.side[j], ej.BOX]
    assert (sides_told(at, side) == at.S.side).all()


def test_a_window_stops_when_the_inverse_has_broken_down():
    it = still_window()
    at, window, _ = it
    j = int(at.elbow[1])
    at.P.slope[at.elbow] = at.matrix() @ [0.0, 1e-3, 0.0]
    at.S.lower[j] = at.S.beta[j] - 1e-4
    refit(at)
    it.open()
    at.S.factor[1, 1] = -1.0
    assert wj.run_window(at.P, at.S, window, at.L, closing()) == wj.NEAR_SINGULAR
    assert (at.S.side[j], window.dead[1]) == (ej.LOW, 0)


@pytest.mark.parametrize(("ties", "code"), [(29, wj.FULL), (30, wj.TIED)])
def test_thirty_zero_steps_in_a_row_close_a_window(ties, code):
    meeting = dict.fromkeys(range(ties), 0.0) | {ties: 1e-3}  # the last one makes way
    it = still_window(meeting, n=40, m=1, kernel=np.eye(40))
    more = code == wj.FULL
    assert run(it, steps=ties + more) == code
    assert it.at.L.end[[EVENTS, KNOTS]].tolist() == [ties + more, more]


@seeds(6)
@both
def test_what_enters_leaves_its_residual_in_the_shift(seed, equality):
    at, window, _ = windowed(seed, equality=equality).open()
    S, side = at.S, at.S.side.copy()
    wj.run_window(at.P, S, window, at.L, closing(steps=6))
    entered = [i for i in range(16) if S.side[i] == ej.ELBOW and side[i] != ej.ELBOW]
    for i in entered:
        assert window.resid[window.place[i]] == 0.0
    assert np.abs(S.base).max() <= 1e-12
    told = at.L.event_move[: at.L.end[EVENTS]]
    assert {tuple(move[1:]) for move in told.tolist()} <= {(ej.ELBOW, ej.MARGIN), (ej.LOW, ej.BOX), (ej.UP, ej.BOX)}
    assert (sides_told(at, side) == S.side).all()
    assert at.L.end[VALUES] == at.L.knot_at[: at.L.end[KNOTS], 1].sum()
