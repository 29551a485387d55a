"""The pieces of a window of events: tiles of rank-one terms, the lazy inverse, the choice of candidates."""

from __future__ import annotations

import numpy as np
import pytest

import svmcore
from svmcore.path import elbow_jit as ej
from svmcore.path import log_jit
from svmcore.path import stretch_jit as sj
from svmcore.path import window_jit as wj
from svmcore.path.record import Recorder
from svmcore.path.tracker import new_state
from svmcore.path.window import new_stretch, new_window


@pytest.mark.parametrize("pending", [0, 1, 9, sj.LONGEST])
@pytest.mark.parametrize("slots", [1, 6, 61])
def test_flush_adds_what_is_pending_to_the_lower_triangle(pending, slots):
    rng = np.random.default_rng([1, slots, pending])
    start = max(1, slots - 4)
    capacity = slots + sj.ROOM
    w, q = new_window(100, capacity, 40), new_stretch(100, np.ones(100), capacity)
    w.count[[wj.SLOTS, wj.START, wj.PENDING]] = slots, start, pending
    w.terms[:] = np.nan
    w.terms[:pending, :slots] = rng.normal(size=(pending, slots))
    w.sign[:pending] = rng.choice([-1.0, 1.0], pending)
    A = rng.normal(size=(capacity, capacity))
    expected = np.zeros((slots, slots))
    expected[:start, :start] = A[:start, :start]
    V = w.terms[:pending, :slots].copy()
    expected += (V * w.sign[:pending, None]).T @ V
    sj.flush_inverse(A, w, q.bend)
    assert np.tril(A[:slots, :slots]) == pytest.approx(np.tril(expected), abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_smallest_is_the_value_that_sorting_puts_there(seed):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 5, 50).astype(float) if seed % 2 else rng.normal(size=50)
    k = int(rng.integers(0, 50))
    assert sj.smallest(a.copy(), 50, k) == np.sort(a)[k]


# ---------------------------------------------------------------- the lazy inverse and the direction


def opened(seed: int, equality: bool):
    """A window just opened on a random elbow: setting, state, window, stretch, kernel matrix."""
    rng = np.random.default_rng([3, seed])
    n, m = 14, 5
    A = rng.normal(size=(n, n))
    K = A @ A.T / n + np.eye(n)
    order = rng.permutation(n)
    slot = rng.permutation(n)
    rows = np.empty((n, n))
    rows[slot] = K
    S = new_state(n, np.zeros(n), np.ones(n), n + sj.ROOM)
    S.side[:] = np.where(rng.random(n) < 0.5, ej.LOW, ej.UP)
    S.elbow[:m], S.cnt[ej.N_ELBOW] = order[:m], m
    S.side[order[:m]] = ej.ELBOW
    S.beta[:] = np.where(S.side == ej.UP, 1.0, np.where(S.side == ej.ELBOW, 0.2 + 0.6 * rng.random(n), 0.0))
    S.resid[:] = np.choose(S.side, [-1.0, 1.0, 1e-9]) * rng.random(n)
    S.num[ej.NOW] = 1.5
    bump = 0.75 if equality else 0.0
    P = ej.Setting(rows, slot, np.diag(K).copy(), np.zeros(n), rng.normal(size=n), bump, equality, 1e-13, 0.0, 1e-300)
    inverse = np.linalg.inv(K[np.ix_(order[:m], order[:m])] + bump)
    S.factor[:m, :m] = np.tril(inverse)
    w, q = new_window(n, n + sj.ROOM, n), new_stretch(n, np.diag(K).copy(), n + sj.ROOM)
    sj.open_window(P, S, w, q)
    outside = np.flatnonzero(S.side != ej.ELBOW)
    w.cand[: outside.size], w.count[wj.CANDIDATES] = outside, outside.size
    w.place[:] = -1
    w.place[outside] = np.arange(outside.size)
    w.kernel[: outside.size, :m] = K[np.ix_(outside, order[:m])]
    w.resid[: outside.size] = S.resid[outside]
    w.resid_at[0, : outside.size] = S.resid[outside]
    w.t_at[0], w.bias_at[0] = S.num[ej.NOW], S.num[ej.BIAS]
    return P, S, w, q, K


@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_an_inverse_of_few_digits_gives_a_direction_of_twice_as_many(seed, equality):
    """What the rates on the elbow are, where they should be zero, corrects the direction of the next window."""
    P, S, w, q, _ = opened(seed, equality)
    m = int(S.cnt[ej.N_ELBOW])
    noise = np.random.default_rng(seed).normal(size=(m, m))
    S.factor[:m, :m] *= 1.0 + 1e-4 * noise
    errors = []
    q.pace[sj.CARRIED] = sj.UNKNOWN
    for _ in range(3):
        sj.open_window(P, S, w, q)
        sj.residuals_at_thirds(P, S, w, q)
        q.rate[:] = -q.at[3]
        errors.append(float(np.abs(q.rate[S.elbow[:m]]).max()))
        q.pace[sj.CARRIED] = sj.MEASURED
    assert 1e-6 < errors[0] < 1e-2
    assert errors[1] < 1e-3 * errors[0]
    assert errors[2] < 1e-2 * errors[1]
    known = w.solved_slope[:m].copy()
    q.pace[sj.CARRIED] = sj.KNOWN  # as after rows were fetched: nothing is corrected twice
    sj.open_window(P, S, w, q)
    assert np.array_equal(w.solved_slope[:m], known)


def check_inverse(P, w, K):
    """u1, u2, products with the inverse, the direction and the rates are those of the present elbow."""
    slots = w.count[wj.SLOTS]
    alive = np.flatnonzero(w.dead[:slots] == 0)
    points = w.point[alive]
    M = np.linalg.inv(K[np.ix_(points, points)] + P.bump)
    assert w.solved_slope[alive] == pytest.approx(M @ P.slope[points], abs=1e-9)
    assert w.solved_one[alive] == pytest.approx(M @ np.ones(alive.size), abs=1e-9)
    assert d0_of(P, w) == pytest.approx(wj.window_direction(P, w))
    d0, d = d0_of(P, w), np.zeros(len(K))
    d[points] = w.direction[alive]
    assert not w.direction[:slots][w.dead[:slots] != 0].any()
    assert (K @ d)[points] + d0 == pytest.approx(P.slope[points], abs=1e-9)
    assert not P.equality or abs(d.sum()) <= 1e-9
    candidates = w.cand[: w.count[wj.CANDIDATES]]
    assert w.rate[: candidates.size] == pytest.approx((K @ d)[candidates] + d0 - P.slope[candidates], abs=1e-9)


def d0_of(P, w):
    slots = w.count[wj.SLOTS]
    return w.solved_slope[:slots].sum() / w.solved_one[:slots].sum() if P.equality else 0.0


@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_points_enter_and_leave_and_the_inverse_follows(seed, equality):
    P, S, w, q, K = opened(seed, equality)
    rng = np.random.default_rng(seed)
    check_inverse(P, w, K)
    assert q.rate[w.point[: w.count[wj.SLOTS]]] == pytest.approx(0.0, abs=1e-9)
    for _ in range(9):
        slots = w.count[wj.SLOTS]
        alive = np.flatnonzero(w.dead[:slots] == 0)
        outside = [s for s in range(w.count[wj.CANDIDATES]) if S.side[w.cand[s]] != ej.ELBOW]
        if alive.size > 2 and (rng.random() < 0.5 or not outside):
            k = int(rng.choice(alive))
            S.side[w.point[k]] = ej.LOW
            assert wj.leave_slot(P, S, w, k)
            assert w.dead[k]
            assert w.cand[w.spot[k]] == w.point[k]
        else:
            s = int(rng.choice(outside))
            assert wj.enter_slot(P, S, w, s, 1e-8)
            S.side[w.cand[s]] = ej.ELBOW
            assert w.point[w.count[wj.SLOTS] - 1] == w.cand[s]
        check_inverse(P, w, K)


@pytest.mark.parametrize("equality", [True, False])
def test_a_dependent_point_may_not_enter(equality):
    P, S, w, _, K = opened(0, equality)
    s, twin = 0, w.point[0]
    i = w.cand[s]
    P.rows[P.slot[i]] = K[twin]
    P.diagonal[i] = K[twin, twin]
    w.kernel[s, : w.count[wj.SLOTS]] = K[twin, w.point[: w.count[wj.SLOTS]]]
    before = int(w.count[wj.PENDING]), int(w.count[wj.SLOTS])
    assert not wj.enter_slot(P, S, w, s, 1e-8)
    assert (w.count[wj.PENDING], w.count[wj.SLOTS]) == before


@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_a_window_opens_with_the_elbow_corrected(seed, equality):
    """A Newton step removes the residual of the elbow and keeps the sum; where it does not fit, it is booked as shift."""
    P, S, w, _, K = opened(seed, equality)
    m = w.count[wj.SLOTS]
    points = w.point[:m]
    move, e = w.moved[0, :m], S.num[ej.BIAS]
    assert move.any()
    assert K[np.ix_(points, points)] @ move + e == pytest.approx(S.resid[points], abs=1e-15)
    assert not equality or abs(move.sum()) <= 1e-15
    assert w.value[:m] == pytest.approx(w.start[:m] + move)
    S.num[ej.BIAS] = 0.0
    S.upper[points[0]] = S.lower[points[0]] = S.beta[points[0]]  # no room
    resid = S.resid[points].copy()
    sj.correct_elbow(P, S, w)
    assert not S.resid[points].any()
    assert S.base[points] == pytest.approx(-resid)
    assert S.num[ej.BIAS] == 0.0
    assert not w.moved[0, :m].any()


def test_the_first_event_of_a_window():
    P, S, w, _, _ = opened(1, True)
    wj.window_direction(P, w)
    slots, count = w.count[wj.SLOTS], w.count[wj.CANDIDATES]
    h, s, k = wj.next_event(P, S, w, 1e9, 1e-9)
    steps = []
    for j in range(slots):
        room = w.value[j] - w.low[j] if w.direction[j] > 0 else w.high[j] - w.value[j]
        steps.append(room / abs(w.direction[j]))
    for c in range(count):
        side, p = S.side[w.cand[c]], w.rate[c]
        meets = (side == ej.UP and p < 0) or (side == ej.LOW and p > 0)
        steps.append(abs(w.resid[c] / p) if meets else np.inf)
    assert h == pytest.approx(min(steps))
    assert int(np.argmin(steps)) == (k if k >= 0 else slots + s)
    assert wj.next_event(P, S, w, 0.5 * h, 1e-9) == (0.5 * h, -1, -1)


@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_a_window_follows_the_path_of_the_whole_problem(seed, equality):
    P, S, w, _, K = opened(seed, equality)
    n = len(K)
    at = w.point[: w.count[wj.SLOTS]]

    def whole():
        beta = S.beta.copy()
        slots = np.flatnonzero(w.dead[: w.count[wj.SLOTS]] == 0)
        beta[w.point[slots]] = w.value[slots]
        return beta

    before, began, t, bias = whole(), S.side.copy(), S.num[ej.NOW], S.num[ej.BIAS]
    log = Recorder(n, n).log
    code = wj.run_window(P, S, w, log, wj.Closing(t_end=0.3, region=1e9, steps=6, pivot=1e-8, rate_tol=1e-13))
    after, made = whole(), int(w.count[wj.STEPS])
    assert 0.3 <= S.num[ej.NOW] < t
    assert (after >= S.lower).all()
    assert (after <= S.upper).all()
    # the last step has moved everything by what its rates say
    moved = P.slope * (S.num[ej.NOW] - t) - K @ (after - before) - (S.num[ej.BIAS] - bias)
    candidates = w.cand[: w.count[wj.CANDIDATES]]
    still = np.array([S.side[c] != ej.ELBOW and began[c] == S.side[c] for c in candidates])
    assert w.resid[: candidates.size][still] == pytest.approx((S.resid + moved)[candidates[still]], abs=1e-9)
    assert moved[S.side == ej.ELBOW][np.isin(np.flatnonzero(S.side == ej.ELBOW), at)] == pytest.approx(0.0, abs=1e-9)
    assert not equality or after.sum() == pytest.approx(before.sum(), abs=1e-12)
    # whoever left is exactly at a bound, and the log tells of each event
    for i in at[S.side[at] != ej.ELBOW]:
        assert S.beta[i] == (S.lower[i] if S.side[i] == ej.LOW else S.upper[i])
    told = began.copy()
    for k in range(int(log.end[log_jit.EVENTS])):
        i, (old, new, _) = log.event_index[k], log.event_move[k]
        assert told[i] == old != new
        told[i] = new
    assert (told == S.side).all()
    assert code in (wj.FULL, wj.END, wj.HALVED, wj.TIED, wj.LONG_STEP, wj.NEAR_SINGULAR)
    assert code != wj.FULL or made == 6


def test_a_window_asks_for_the_row_of_whoever_enters():
    for seed in range(20):
        P, S, w, _, _ = opened(seed, True)
        wj.window_direction(P, w)
        longest = min(S.num[ej.NOW] - 0.3, 0.5 * ej.size_at(P, S.num[ej.NOW]))
        _, s, _ = wj.next_event(P, S, w, longest, 1e-13)
        if s >= 0:
            P.slot[w.cand[s]] = -1
            closing = wj.Closing(t_end=0.3, region=1e9, steps=1, pivot=1e-8, rate_tol=1e-13)
            assert wj.run_window(P, S, w, Recorder(14, 14).log, closing) == wj.NEED_ROW
            assert S.cnt[wj.WANT] == w.cand[s]
            assert w.count[wj.STEPS] == 0


@pytest.mark.parametrize("n", [1, 4, 15, 16, 19, 70, 300])
def test_products_read_together_are_those_read_alone(n):
    """Tiles of the lower triangle, the diagonal in one of them, and rows beyond the last four."""
    rng = np.random.default_rng(n)
    A, B, X = rng.normal(size=(n + 3, n + 3)), rng.normal(size=(3, n + 3)), np.full((5, n + 3), np.nan)
    lower = np.tril(A[:n, :n])
    expected = B[:, :n] @ (lower + np.tril(lower, -1).T)
    chosen = np.array([4, 0, 2])
    wj.several_products(A, n, B, X, chosen, 3)
    assert X[chosen][:, :n] == pytest.approx(expected, abs=1e-11)
    assert np.isnan(X[[1, 3]]).all()
    assert np.isnan(X[:, n:]).all()
    x = np.empty(n + 3)
    wj.symmetric_product(A, n, B[1], x)
    assert x[:n] == pytest.approx(expected[1], abs=1e-11)


@pytest.mark.compiled
def test_a_wide_elbow_looks_ahead_and_stays_exact():
    """So many points on the elbow that the inverse is read for several candidates at once, in and out of windows."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(700, 6))
    y = np.where(X[:, 0] + rng.normal(size=700) > 0.0, 1, -1)
    path = svmcore.svm_path(X, y, gamma=0.4, C_min=0.1, C_max=30.0)
    assert path.stats["elbow_max"] > wj.WIDE
    assert path.stats["n_window_events"] > 500
    assert path.stats["max_gap"] <= 1e-9
    for C in (1.0, 3.3, 20.0):
        machine = svmcore.train_svc(X, y, C, gamma=0.4, tol=1e-9)
        assert path.alpha(C) == pytest.approx(machine.alpha, abs=1e-6 * C)
