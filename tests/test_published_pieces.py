"""The pieces of the published algorithm against plain loops that follow its formulas, and starts of paths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from svmcore.path import published_jit as pub
from svmcore.path.elbow_jit import ELBOW, LOW, UP
from svmcore.path.problem import BoxPath
from svmcore.path.start import limit_of, limit_point
from svmcore.simd.vector import BIG

pytestmark = pytest.mark.home

SEEDS = st.integers(0, 2**20)
N = 40


def scene(seed: int):
    """A state with ties, arrivals and moves pending; elbow, d, rate, lambda. Of odd ones values and rates are small."""
    rng = np.random.default_rng(seed)
    unit = 1e-4 if seed % 2 else 1.0
    lower, upper = -unit * rng.integers(0, 2, N).astype(float), unit * rng.integers(1, 4, N).astype(float)
    side = rng.integers(0, 3, N).astype(np.int8)
    share = rng.choice([0.0, 1e-14, 0.3, 1.0 - 1e-14, 1.0], N)
    share = np.where(rng.random(N) < 0.5, 10.0 ** rng.uniform(-5.0, -2.5, N), share)
    inside = lower + share * (upper - lower)
    beta = np.choose(side, [lower, upper, inside])
    resid = np.choose(side, [-1.0, 1.0, 0.0]) * rng.choice([0.0, 1e-12, 1e-3, 1.0, -1e-3], N)
    S = pub.PublishedState(
        beta=beta, resid=resid, fixed=rng.normal(size=N), side=side, move=np.full(N, 7, np.int8),
        switched=rng.integers(0, 2, N).astype(np.int8), slope=rng.normal(size=N), lower=lower, upper=upper,
    )  # fmt: skip
    elbow = rng.permutation(np.flatnonzero(side == ELBOW))
    d = rng.choice([0.0, 1e-14, -1e-3, 0.5, -2.0, 0.02, 0.1], elbow.size)
    rate = rng.choice([0.0, 1e-12, -1e-3, 1e-3, 0.7, -0.7], N)
    d, rate, resid = unit * d, unit * rate, unit * resid
    S.resid[:] = resid
    return rng, S, elbow, d, rate, float(10.0 ** rng.uniform(-2.0, 0.5))


def box_steps(S, elbow, d):
    """How far lambda can fall until each elbow value that moves meets its box: beta falls by d per unit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(d > 0, S.beta[elbow] - S.lower[elbow], S.beta[elbow] - S.upper[elbow]) / d
    return np.where(np.abs(d) > pub.STILL, room, np.inf)


def zero_steps(S, rate, least):
    """How far lambda can fall until each outside residual that comes nearer meets zero."""
    nearer = ((S.side == UP) & (rate < -least)) | ((S.side == LOW) & (rate > least))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(nearer, -S.resid / rate, np.inf)


@given(SEEDS)
def test_steps_end_where_the_first_one_meets_zero_or_its_box(seed):
    _, S, elbow, d, rate, _ = scene(seed)
    outside, box = zero_steps(S, rate, 1e-9), box_steps(S, elbow, d)
    assert pub.outside_step(S, rate, 1e-9) == min(max(outside.min(), 0.0), BIG)
    assert pub.box_step(S, elbow, d) == min(max(box.min(initial=np.inf), 0.0), BIG)


@given(SEEDS, st.booleans(), st.sampled_from([0.0, 1e-3, 2.0]))
def test_blockers_are_those_whose_own_step_is_within_the_limit(seed, closed, limit):
    _, S, elbow, d, rate, _ = scene(seed)
    count = pub.blockers(S, elbow, d, rate, limit, 1e-9, closed)
    move = np.full(N, pub.STAY)
    move[zero_steps(S, rate, 1e-9) <= limit] = ELBOW
    if closed:
        blocked = box_steps(S, elbow, d) <= limit
        move[elbow[blocked]] = np.where(d > 0, LOW, UP)[blocked]
    assert S.move.tolist() == move.tolist()
    assert count == np.count_nonzero(move != pub.STAY)


@given(SEEDS)
def test_arrivals_are_next_to_zero_or_to_a_bound(seed):
    _, S, elbow, _, _, lam = scene(seed)
    count = pub.arrivals(S, elbow, lam, 1e-9, 1e-11)
    move = np.full(N, pub.STAY)
    for i in range(N):
        width = S.upper[i] - S.lower[i]
        if (S.side[i] == UP and S.resid[i] < 1e-9 * lam) or (S.side[i] == LOW and S.resid[i] > -1e-9 * lam):
            move[i] = ELBOW
        elif S.side[i] == ELBOW and S.beta[i] - S.lower[i] <= 1e-11 * width:
            move[i] = LOW
        elif S.side[i] == ELBOW and S.upper[i] - S.beta[i] <= 1e-11 * width * (1.0 + 1e-3):
            move[i] = UP
    assert S.move.tolist() == move.tolist()
    assert count == np.count_nonzero(move != pub.STAY)


@pytest.mark.parametrize(("tau", "tau2"), [(1e-3, 1e-2), (1e-3, 1e-3), (1e-3, 10.0), (1e-9, 1e-2)])
@given(seed=SEEDS)
def test_special_moves_are_of_those_who_block_and_have_not_been_moved(seed, tau, tau2):
    _, S, elbow, d, rate, lam = scene(seed)
    before = S.switched.copy()
    count = pub.special_moves(S, elbow, d, rate, lam, tau, tau2)
    move = np.full(N, pub.STAY)
    for k, i in enumerate(elbow):
        room = (S.beta[i] - S.lower[i]) if d[k] > 0 else (S.upper[i] - S.beta[i])
        width, speed = S.upper[i] - S.lower[i], abs(d[k])
        if not before[i] and speed * lam > tau and room < tau * width and room < tau2 * lam * speed:
            move[i] = LOW if d[k] > 0 else UP
    for i in np.flatnonzero(S.side != ELBOW):
        toward = rate[i] if S.side[i] == LOW else -rate[i]
        room = abs(S.resid[i]) if S.resid[i] * (1 if S.side[i] == UP else -1) >= 0 else -abs(S.resid[i])
        if not before[i] and toward > tau and room < tau * lam and room < tau2 * lam * toward:
            move[i] = ELBOW
    assert S.move.tolist() == move.tolist()
    assert count == np.count_nonzero(move != pub.STAY)
    assert np.array_equal(S.switched != 0, (before != 0) | (move != pub.STAY))


@given(SEEDS)
def test_of_several_moves_the_first_is_kept(seed):
    rng, S, *_ = scene(seed)
    S.move[:] = rng.choice([pub.STAY, LOW, UP, ELBOW], N)
    wanted = S.move.copy()
    pub.keep_first(S)
    moves = np.flatnonzero(wanted != pub.STAY)
    assert np.flatnonzero(S.move != pub.STAY).tolist() == moves[:1].tolist()
    assert np.array_equal(S.move[moves[:1]], wanted[moves[:1]])


@given(SEEDS)
def test_moves_are_carried_out(seed):
    rng, S, elbow, *_ = scene(seed)
    K = rng.normal(size=(N, N))
    slot = rng.permutation(N)
    rows = K[np.argsort(slot)]  # row i stands at slot[i]
    S.fixed[:] = K.T @ np.where(S.side == ELBOW, 0.0, S.beta)
    S.move[:] = pub.STAY
    S.move[elbow] = rng.choice([pub.STAY, LOW, UP], elbow.size)
    others = np.flatnonzero(S.side != ELBOW)
    S.move[others] = rng.choice([pub.STAY, ELBOW], others.size)
    wanted = np.where(S.move == pub.STAY, S.side, S.move)
    kept = np.empty(N, np.int64)
    m = pub.carry_out(S, rows, slot, elbow, kept)
    stay = [i for i in elbow if wanted[i] == ELBOW]
    assert kept[:m].tolist() == stay + [i for i in range(N) if wanted[i] == ELBOW and i not in elbow]
    assert np.array_equal(S.side, wanted)
    outside = S.side != ELBOW
    assert np.array_equal(S.beta[outside], np.where(S.side == UP, S.upper, S.lower)[outside])
    assert S.fixed == pytest.approx(K.T @ np.where(outside, S.beta, 0.0), abs=1e-12)


@given(SEEDS)
def test_measures_of_a_point(seed):
    rng, S, _, _, _, lam = scene(seed)
    worst = [
        abs(r) if s == ELBOW else max(r, 0.0) if s == LOW else max(-r, 0.0)
        for r, s in zip(S.resid, S.side, strict=True)
    ]
    assert pub.violation(S, lam) == pytest.approx(max(worst) / lam, rel=1e-14)
    A = rng.normal(size=(N, N))
    K, bias = A @ A.T, float(rng.normal())
    resid = lam * S.slope - K @ S.beta - bias
    hinge = np.where(resid > 0, S.upper, S.lower) * resid
    primal = 0.5 * S.beta @ K @ S.beta + hinge.sum()
    dual = lam * S.slope @ S.beta - 0.5 * S.beta @ K @ S.beta
    gap = primal - dual + bias * S.beta.sum() + abs(bias * S.beta.sum())
    found = pub.relative_gap(S, S.beta, resid, bias, lam)
    assert found == pytest.approx(gap / abs(primal), rel=1e-9, abs=1e-12)


# ---------------------------------------------------------------- where a path begins


@given(SEEDS, st.booleans())
def test_the_limit_point_solves_the_linear_problem(seed, labels):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    slope = rng.choice([-1.0, 1.0], n) if labels else rng.integers(-3, 4, n) / 2.0
    lower, upper = -rng.integers(0, 3, n).astype(float), rng.integers(0, 3, n).astype(float)
    v = BoxPath(np.zeros(n), slope, lower, upper, True)
    limit = limit_of(v)
    beta = limit_point(v, limit)
    best = linprog(-slope, A_eq=np.ones((1, n)), b_eq=[0.0], bounds=list(zip(lower, upper, strict=True)))
    assert abs(beta.sum()) <= 1e-12
    assert (beta >= lower).all()
    assert (beta <= upper).all()
    assert slope @ beta == pytest.approx(-best.fun, abs=1e-9)
    rest = ~limit.tied
    assert np.array_equal(beta[rest], np.where(slope > limit.level, upper, lower)[rest])


def test_without_the_sum_everything_is_at_its_end():
    v = BoxPath(np.zeros(3), np.array([1.0, -1.0, 0.0]), -np.ones(3), 2.0 * np.ones(3), False)
    limit = limit_of(v)
    assert limit.level == 0.0
    assert limit.tied.tolist() == [False, False, True]
    assert limit_point(v, limit).tolist() == [2.0, -1.0, 0.0]
