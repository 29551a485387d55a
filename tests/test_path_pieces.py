"""The pieces of the path's tracker: what is booked when ties are spread, and records in which knots and events agree."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise, product

import numpy as np
import pytest
from engines import early_windows

import svmcore
from svmcore import _path_jit as pj
from svmcore.path import elbow_jit as ej
from svmcore.path import log_jit
from svmcore.path.record import Recorder
from svmcore.path.seat import new_state

either_way = pytest.mark.parametrize("tracker", [nullcontext, early_windows], ids=["steps", "windows"])


def state(n: int = 40):
    """Points of all sides, some of them tied: next to zero, or next to a bound."""
    rng = np.random.default_rng(4)
    S = new_state(n, np.zeros(n), np.ones(n), n)
    S.side[:] = rng.integers(0, 3, n)
    S.beta[:] = np.choose(S.side, [np.zeros(n), np.ones(n), rng.random(n)])
    tied = rng.random(n) < 0.5
    S.beta[tied & (S.side == ej.ELBOW)] = rng.choice([0.0, 1.0], n)[tied & (S.side == ej.ELBOW)]
    S.resid[:] = np.choose(S.side, [-1.0, 1.0, 0.0]) * np.where(tied, 0.0, rng.random(n) + 0.1)
    S.base[:] = rng.normal(size=n)
    return S, tied


@pytest.mark.parametrize("runs", [1, 3])
def test_spread_ties_are_booked_and_leave_the_state_optimal(runs):
    S, tied = state()
    before = [part.copy() for part in (S.resid, S.base, S.lower, S.upper)]
    S.cnt[ej.ZERO_RUN] = runs * pj.PERTURB_AFTER
    pj.spread_ties(S, 2.0)
    resid, base, lower, upper = before
    assert np.array_equal(S.resid - resid != 0.0, tied & (S.side != ej.ELBOW))
    assert S.resid - resid == pytest.approx(S.base - base, abs=1e-15)
    assert (S.resid[S.side == ej.UP] > 0.0).all()
    assert (S.resid[S.side == ej.LOW] < 0.0).all()
    moved = np.abs(S.resid - resid)[tied & (S.side != ej.ELBOW)]
    assert (moved >= 2.0 * runs * pj.SPREAD * (1.0 - 1e-6)).all()
    assert (moved < 4.0 * runs * pj.SPREAD * (1.0 + 1e-6)).all()
    assert len(set(moved.tolist())) == len(moved)  # apart from each other
    on = S.side == ej.ELBOW
    at_low, at_up = on & tied & (S.beta == 0.0), on & tied & (S.beta == 1.0)
    assert at_low.any()
    assert at_up.any()
    assert np.array_equal(S.lower < lower, at_low)
    assert np.array_equal(S.upper > upper, at_up)
    assert np.abs(S.lower - lower).max() <= 0.2 * pj.SPREAD
    assert np.abs(S.upper - upper).max() <= 0.2 * pj.SPREAD
    assert S.cnt[ej.N_PERTURB] == 1


def test_a_recorder_keeps_everything_in_order_and_outgrows_its_logs():
    n = 9
    recorder = Recorder(n, 4)
    S = new_state(n, np.zeros(n), np.ones(n), 4)
    S.cnt[ej.N_ELBOW], S.elbow[:2], S.beta[[3, 5]] = 2, [3, 5], [0.25, 0.5]
    S.num[ej.BIAS] = -1.0
    sizes = []
    count = 3 * recorder.log.event_t.shape[0]
    for k in range(count):
        recorder.event(100.0 / (k + 1), k % n, k % 3, (k + 1) % 3, ej.REPAIR)
        if k % 400 == 7:
            S.num[ej.NOW] = 100.0 / (k + 1)
            pj.log_knot(S, recorder.log)
            sizes.append(k + 1)
        if k == 500:
            recorder.grow(20)
            S = S._replace(elbow=np.append(S.elbow, np.zeros(16, np.int64)))
    track = recorder.track(np.zeros(n, np.int8), 0.5)
    assert track.event_lambda.tolist() == [100.0 / (k + 1) for k in range(count)]
    assert track.event_index.tolist() == [k % n for k in range(count)]
    assert track.event_move.tolist() == [[k % 3, (k + 1) % 3, ej.REPAIR] for k in range(count)]
    assert track.knot_events.tolist() == sizes
    assert track.knot[:, 0].tolist() == [100.0 / k for k in sizes]
    assert (track.knot[:, 1] == -1.0).all()
    assert track.offset.tolist() == list(range(0, 2 * len(sizes) + 1, 2))
    assert track.index.tolist() == [3, 5] * len(sizes)
    assert track.value.tolist() == [0.25, 0.5] * len(sizes)
    half = track.in_units_of(2.0)
    assert half.knot[:, 0].tolist() == [50.0 / k for k in sizes]
    assert (half.knot[:, 1] == -1.0).all()
    assert half.event_lambda[0] == 50.0


def test_a_log_is_full_before_a_step_would_not_fit():
    S, _ = state(6)
    recorder = Recorder(6, 6)
    L, m = recorder.log, 4
    S.cnt[ej.N_ELBOW] = m
    for end, size, room in (
        (log_jit.EVENTS, len(L.event_t), 6 + 4), (log_jit.KNOTS, len(L.knot), 3), (log_jit.VALUES, len(L.value), 3 * m + 8),
    ):  # fmt: skip
        L.end[:] = 0
        L.end[end] = size - room
        assert not pj.log_full(S, L)
        L.end[end] += 1
        assert pj.log_full(S, L)


def symmetric(size: int, d: int = 2):
    """A grid, whose symmetries make events tie."""
    X = np.array(list(product(range(size), repeat=d)), dtype=float)
    return X - X.mean(axis=0), np.where(X.sum(axis=1) % 2 == 0, 1, -1)


@either_way
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear", "poly"])
def test_knots_and_events_tell_of_the_same_elbow(kernel, tracker):
    X, y = symmetric(4)
    with tracker():
        path = svmcore.svm_path(X, y, kernel=kernel, gamma=0.5, coef0=1.0, lambda_min=0.01)
    track = path._track
    side, done = track.side0.copy(), 0
    for k, upto in enumerate(track.knot_events):
        for e in range(done, upto):
            i, (old, new, _) = track.event_index[e], track.event_move[e]
            assert side[i] == old
            assert old != new
            side[i] = new
        done = upto
        a, b = track.offset[k], track.offset[k + 1]
        assert sorted(track.index[a:b].tolist()) == np.flatnonzero(side == ej.ELBOW).tolist()
    assert all(first >= second for first, second in pairwise(track.knot[:, 0]))
    assert path.stats["n_events"] == len(track.event_index)
    if kernel in ("rbf", "laplacian") and tracker is nullcontext:
        assert path.stats["n_batched"] > 0
        assert np.count_nonzero(track.event_move[:, 2] == ej.BATCH) == path.stats["n_batched"]
    assert path.certify().relative_gap <= 1e-9
