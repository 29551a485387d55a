"""The pieces of a window of events: tiles of rank-one terms, the lazy inverse, the choice of candidates."""

from __future__ import annotations

import numpy as np
import pytest
from repeats import seeds
from small_paths import windowed

import svmcore
from svmcore.path import elbow_jit as ej
from svmcore.path import opening_jit
from svmcore.path import stretch_jit as sj
from svmcore.path import window_jit as wj
from svmcore.path.window import new_stretch, new_window


@pytest.mark.parametrize("pending", [0, 1, 9, opening_jit.LONGEST])
@pytest.mark.parametrize("slots", [1, 6, 61])
def test_flush_adds_what_is_pending_to_the_lower_triangle(pending, slots):
    rng = np.random.default_rng([1, slots, pending])
    start = max(1, slots - 4)
    capacity = slots + opening_jit.ROOM
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


# ---------------------------------------------------------------- the lazy inverse and the direction


@pytest.mark.parametrize("equality", [True, False])
@seeds(6)
def test_an_inverse_of_few_digits_gives_a_direction_of_twice_as_many(seed, equality):
    """What the rates on the elbow are, where they should be zero, corrects the direction of the next window."""
    (P, S, *_), w, q = windowed(seed, n=14, equality=equality).open()
    m = int(S.cnt[ej.N_ELBOW])
    noise = np.random.default_rng(seed).normal(size=(m, m))
    S.factor[:m, :m] *= 1.0 + 1e-4 * noise
    errors = []
    q.pace[opening_jit.CARRIED] = opening_jit.UNKNOWN
    for _ in range(3):
        opening_jit.open_window(P, S, w, q)
        sj.residuals_at_thirds(P, S, w, q)
        q.rate[:] = -q.at[3]
        errors.append(float(np.abs(q.rate[S.elbow[:m]]).max()))
        q.pace[opening_jit.CARRIED] = opening_jit.MEASURED
    assert 1e-6 < errors[0] < 1e-2
    assert errors[1] < 1e-3 * errors[0]
    assert errors[2] < 1e-2 * errors[1]
    known = w.solved_slope[:m].copy()
    q.pace[opening_jit.CARRIED] = opening_jit.KNOWN  # as after rows were fetched: nothing is corrected twice
    opening_jit.open_window(P, S, w, q)
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
@seeds(8)
def test_points_enter_and_leave_and_the_inverse_follows(seed, equality):
    (P, S, _, _, K), w, q = windowed(seed, n=14, equality=equality).open()
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


@pytest.mark.compiled
def test_a_wide_elbow_stays_exact():
    """In and out of windows."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(700, 6))
    y = np.where(X[:, 0] + rng.normal(size=700) > 0.0, 1, -1)
    path = svmcore.svm_path(X, y, gamma=0.4, C_min=0.1, C_max=30.0)
    assert path.stats["elbow_max"] > 320
    assert path.stats["n_window_events"] > 500
    assert path.stats["max_gap"] <= 1e-9
    for C in (1.0, 3.3, 20.0):
        machine = svmcore.train_svc(X, y, C, gamma=0.4, tol=1e-9)
        assert path.alpha(C) == pytest.approx(machine.alpha, abs=1e-6 * C)
