"""The chord certificate of windows against a slow oracle that looks at every point after every step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from repeats import seeds
from small_paths import windowed

from svmcore.path import elbow_jit as ej
from svmcore.path import opening_jit
from svmcore.path import stretch_jit as sj
from svmcore.path import window_jit as wj
from svmcore.path.record import Recorder
from svmcore.path.window import new_stretch, new_window

pytestmark = pytest.mark.home

N, JOINED, ELBOW = 40, 3, 4
SEEDS = range(30)


class Problem(NamedTuple):
    rows: np.ndarray
    slot: np.ndarray
    slope: np.ndarray
    equality: bool
    level: float = 0.0


class State(NamedTuple):
    side: np.ndarray
    resid: np.ndarray
    base: np.ndarray


class Scene(NamedTuple):
    """A window that has run, and the residuals of all points after each of its steps."""

    P: Problem
    S: State
    w: Any
    q: Any
    K: np.ndarray
    truth: np.ndarray
    slots: int


def scene(seed: int, steps: int = 9, reach: float = 1.0) -> Scene:
    """Random moves of beta: points that are on the elbow all the time keep residual zero, others joined on the way."""
    rng = np.random.default_rng([11, seed])
    X = rng.normal(size=(N, 3))
    norms = np.random.default_rng([13, seed]).uniform(0.7, 1.4, N)
    K = (np.exp(-0.4 * ((X[:, None] - X[None]) ** 2).sum(axis=2)) + 1e-6 * np.eye(N)) * np.outer(norms, norms)
    slots = ELBOW + JOINED
    points = rng.permutation(N)[:slots]
    elbow, joined = points[:ELBOW], points[ELBOW:]
    t_at = 2.0 - np.cumsum(np.append(0.0, rng.random(steps) * (rng.random(steps) < 0.9))) / steps
    slope = rng.choice([-1.0, 1.0], N)
    bias = np.append(0.0, np.cumsum(0.3 * rng.normal(size=steps)))
    moved = np.zeros((steps + 1, slots))
    for n in range(1, steps + 1):
        moved[n, ELBOW:] = moved[n - 1, ELBOW:] + 0.3 * rng.normal(size=JOINED)
        right = (t_at[n] - t_at[0]) * slope[elbow] - bias[n] - K[np.ix_(elbow, joined)] @ moved[n, ELBOW:]
        moved[n, :ELBOW] = np.linalg.solve(K[np.ix_(elbow, elbow)], right)
    side = np.where(rng.random(N) < 0.5, ej.UP, ej.LOW).astype(np.int8)
    travel = np.abs(moved @ K[points]).max() + np.abs(bias).max() + 1.0
    resid = np.where(side == ej.UP, 1.0, -1.0) * rng.random(N) * travel * reach
    resid[elbow] = 0.0
    truth = resid + np.outer(t_at - t_at[0], slope) - bias[:, None] - moved @ K[points]
    w, q = new_window(N, slots + opening_jit.ROOM, N), new_stretch(N, np.diag(K).copy(), slots + opening_jit.ROOM)
    w.count[[wj.SLOTS, wj.STEPS]] = slots, steps
    w.point[:slots], w.dead[:slots] = points, 0
    w.t_at[: steps + 1], w.bias_at[: steps + 1] = t_at, 5.0 + bias
    w.moved[: steps + 1, :slots] = moved
    w.solved_slope[:slots], w.solved_one[:slots] = rng.normal(size=slots), 1.0 + rng.random(slots)
    w.spot[:ELBOW], w.spot[ELBOW:slots] = -1, np.arange(JOINED)
    w.resid_at[: steps + 1, :JOINED] = truth[:, joined]
    w.place[:] = -1
    w.place[joined] = 0
    q.old[2], q.old_num[ej.NOW], q.old_num[ej.BIAS] = resid, t_at[0], 5.0
    slot = np.arange(N)
    others = np.setdiff1d(np.arange(N), points)
    slot[others[rng.random(len(others)) < 0.5]] = -1  # no row of its own
    return Scene(Problem(K.copy(), slot, slope, True), State(side, resid, np.zeros(N)), w, q, K, truth, slots)


@seeds(SEEDS)
def test_residuals_at_thirds_are_those_of_all_points(seed):
    at = scene(seed)
    at.S.base[:], at.q.old[1] = np.random.default_rng(seed).normal(size=(2, N))
    sj.residuals_at_thirds(at.P, at.S, at.w, at.q)
    steps = at.w.count[wj.STEPS]
    for k, step in enumerate((steps // 3, 2 * steps // 3, steps)):
        assert at.q.at[k] == pytest.approx(at.truth[step] + at.S.base - at.q.old[1], abs=1e-12)
    assert (at.w.place[at.w.point[: at.slots]] == 0).all()


@seeds(SEEDS)
def test_rates_at_the_end_are_those_of_all_points(seed):
    """Not that of the direction of the last step: an event came after it."""
    at = scene(seed)
    sj.residuals_at_thirds(at.P, at.S, at.w, at.q)
    u1, u2 = at.w.solved_slope[: at.slots], at.w.solved_one[: at.slots]
    d0 = u1.sum() / u2.sum()
    d = u1 - d0 * u2
    assert at.q.at[3] == pytest.approx(at.P.slope - d0 - d @ at.K[at.w.point[: at.slots]], abs=1e-12)


@pytest.mark.parametrize("span", [(0, 3), (3, 9), (2, 4), (0, 9), (4, 5)])
@seeds(SEEDS)
def test_the_bend_bounds_how_far_any_residual_strays_from_its_chord(seed, span):
    at = scene(seed)
    a, b = span
    D, D0 = sj.bend_of(at.w, at.q, a, b)
    points, t = at.w.point[: at.slots], at.w.t_at
    energy, shift = 0.0, 0.0
    for n in range(a + 1, b):
        theta = (t[a] - t[n]) / (t[a] - t[b]) if t[a] > t[b] else 0.0
        chord = at.truth[a] + theta * (at.truth[b] - at.truth[a])
        move = at.w.moved[:, : at.slots]
        stray = move[n] - (move[a] + theta * (move[b] - move[a]))
        energy = max(energy, stray @ at.K[np.ix_(points, points)] @ stray)
        bias = at.w.bias_at[n] - (at.w.bias_at[a] + theta * (at.w.bias_at[b] - at.w.bias_at[a]))
        shift = max(shift, abs(bias))
        assert at.q.bend[n, : at.slots] == pytest.approx(stray, abs=1e-12)
        assert at.q.bend[n, at.slots] == pytest.approx(bias, abs=1e-12)
        assert (np.abs(at.truth[n] - chord) <= at.q.root * D * (1.0 + 1e-6) + D0 + 1e-9).all()
    assert pytest.approx(np.sqrt(energy), abs=1e-7) == D
    assert pytest.approx(shift, abs=1e-12) == D0


def test_bends_and_crossings_do_not_depend_on_the_unit_of_time():
    at = scene(1)
    bends = []
    for unit in (1.0, 1e-5):
        at.w.t_at[:10] *= unit
        D, D0 = sj.bend_of(at.w, at.q, 0, 9)
        i = int(np.setdiff1d(np.arange(N), at.w.point[: at.slots])[0])
        step = int(np.argmax(np.abs(at.truth[1:9, i]))) + 1
        sign = -np.sign(at.truth[step, i])
        crosses = sj.crosses_between(at.P, at.w, at.q, i, sign, (at.truth[0, i], at.truth[9, i]), (0, 9))
        bends.append((D, D0, *at.q.bend[4, : at.slots + 1], crosses))
    assert bends[0] == pytest.approx(bends[1], rel=1e-9)
    assert bends[0][-1]


@seeds(SEEDS)
def test_crossings_between_two_steps_are_those_of_every_step(seed):
    at = scene(seed)
    seen = set()
    for a, b in ((0, 9), (0, 3), (3, 6)):
        sj.bend_of(at.w, at.q, a, b)
        for i in np.setdiff1d(np.arange(N), at.w.point[: at.slots]):
            sign = 1.0 if at.S.side[i] == ej.UP else -1.0
            inside = sign * at.truth[a + 1 : b, i]
            if np.min(np.abs(inside)) < 1e-9:
                continue
            found = sj.crosses_between(at.P, at.w, at.q, i, sign, (at.truth[a, i], at.truth[b, i]), (a, b))
            assert found == bool((inside < 0.0).any())
            seen.add(bool(found))
    assert seen == {True, False}


@pytest.mark.parametrize("reach", [0.3, 1.0, 1.5, 4.0])
@pytest.mark.parametrize("steps", [1, 2, 5, 9, opening_jit.LONGEST])
@seeds(SEEDS)
def test_every_point_that_crosses_objects_and_no_other(seed, steps, reach):
    at = scene(seed, steps, reach)
    sj.residuals_at_thirds(at.P, at.S, at.w, at.q)
    found = sj.find_objectors(at.P, at.S, at.w, at.q)
    sign = np.where(at.S.side == ej.UP, 1.0, -1.0)
    free = at.w.place < 0
    wanted = np.zeros(N, dtype=bool)
    for third in range(3):
        a, b = third * steps // 3, (third + 1) * steps // 3
        # the steps between are looked at until somebody has objected: the window is taken back then
        looked = range(a + 1, b + 1) if not wanted.any() else [b]
        for n in looked:
            wanted |= free & (sign * at.truth[n] < 0.0)
    assert np.array_equal(at.q.wanted != 0, wanted)
    assert found == np.count_nonzero(wanted)


@pytest.mark.parametrize("found", [0, 3])
def test_a_window_that_is_taken_back_makes_the_next_one_shorter_and_wider(found):
    at, w, q = windowed(0, n=40, m=7)
    parts = (at.S.beta, at.S.base, at.S.resid, at.S.side, at.S.num, at.L.end)
    before = [part.copy() for part in parts]
    sj.keep_state(at.S, at.L, q)
    for part in parts:
        part += 1
    w.count[[wj.STEPS, wj.START]] = 12, 7
    q.solved_slope[:] = np.random.default_rng(0).normal(size=q.solved_slope.size)
    q.pace[opening_jit.WIDTH] = 20
    assert sj.take_back(at.S, at.L, w, q, found)
    assert all(np.array_equal(part, old, equal_nan=True) for part, old in zip(parts, before, strict=True))
    assert q.pace[[opening_jit.LENGTH, opening_jit.WIDTH]].tolist() == [6, int(1.1 * 20) + 4]
    assert q.pace[[opening_jit.WANTED, opening_jit.N_BACK]].tolist() == [found, 1]
    assert np.array_equal(w.solved_slope[:7], q.solved_slope[:7])
    again = [sj.take_back(at.S, at.L, w, q, found) for _ in range(6)]
    assert again == [k < (5 if found else 1) for k in range(6)]  # not for ever, and less often where the gap objects
    assert q.pace[opening_jit.LENGTH] == 1


@pytest.mark.parametrize("width", [1, 5, 12, N])
@seeds(SEEDS)
def test_candidates_are_those_that_may_meet_zero_soonest(seed, width):
    """Ties included: rounded residuals and rates make many."""
    rng = np.random.default_rng([12, seed])
    w, q = new_window(N, 60, N), new_stretch(N, np.ones(N), 60)
    side = rng.choice(np.array([ej.LOW, ej.UP, ej.ELBOW], np.int8), N, p=[0.4, 0.4, 0.2])
    resid = np.round(rng.normal(size=N)) if seed % 2 else rng.normal(size=N)
    S = State(side, resid, np.zeros(N))
    q.rate[:] = rng.integers(-1, 2, N) if seed % 2 else rng.normal(size=N)
    q.wanted[rng.integers(0, N, 2)] = 1
    q.pace[opening_jit.WIDTH], q.pace[opening_jit.WANTED] = width, 1
    region = opening_jit.choose_candidates(S, w, q)
    slack = 0.5 * np.mean(np.abs(q.rate)) + 1e-200
    approach = np.maximum(np.where(side == ej.UP, -q.rate, q.rate), 0.0)
    score = np.where(q.wanted != 0, 0.0, np.abs(resid) / (approach + slack))
    outside = np.flatnonzero(side != ej.ELBOW)
    want = min(width + 1, len(outside))
    chosen = w.cand[: w.count[wj.CANDIDATES]]
    assert len(chosen) == len(set(chosen.tolist())) == want
    assert set(chosen.tolist()) <= set(outside.tolist())
    assert np.sort(score[chosen]) == pytest.approx(np.sort(score[outside])[:want], rel=1e-12)
    rest = np.setdiff1d(outside, chosen)
    assert (score[rest] >= region * (1.0 - 1e-12)).all()
    assert region == (np.sort(score[outside])[want] if want < len(outside) else np.inf) or len(rest)
    assert np.array_equal(w.place[chosen], np.arange(want))
    assert (np.delete(w.place, chosen) == -1).all()


@pytest.mark.parametrize("without", [(), (3,), (9,), (2, 3), (6, 8)])
@seeds(5)
def test_the_log_is_told_how_far_its_knots_are_from_the_chords_of_thirds(seed, without):
    """`without`: steps of no length, which have no knot of their own."""
    at = scene(seed)
    at.S.resid[:] = np.where(at.S.resid < 0.0, -1e3, 1e3) * (at.S.resid != 0.0)  # nobody objects
    at.q.old[2] = at.S.resid
    sj.residuals_at_thirds(at.P, at.S, at.w, at.q)
    assert sj.find_objectors(at.P, at.S, at.w, at.q) == 0
    log = Recorder(N, N).log
    log.chord[:] = 7.0
    before = 4
    at.w.knots[:10] = before + np.cumsum([n > 0 and n not in without for n in range(10)])
    log.chord[before : at.w.knots[9]] = 0.0
    at.q.stray[0] = 0.5, 0.25
    wj.write_chords(at.w, at.q.stray, log)
    for n in range(1, 10):
        if n in without:
            continue
        chord = log.chord[at.w.knots[n] - 1]
        later = n + 1
        while later in without:  # the end of a third moves to the last step before it that has a knot
            later += 1
        if any(end in range(n, later) for end in (3, 6, 9)):
            assert chord[0] == 0.0
        else:
            first = n < 3
            assert chord == pytest.approx(at.q.stray[n] + (np.array([0.5, 0.25]) if first else 0.0))
            assert chord[0] > 0.0
    assert (log.chord[:before] == 7.0).all()
    assert (log.chord[at.w.knots[9] :] == 7.0).all()
