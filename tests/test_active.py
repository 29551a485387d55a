"""The active set on its updated factor, piece by piece, against dense linear algebra."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from repeats import seeds

from svmcore.solvers import _active_jit, _steps_jit
from svmcore.solvers._active import ActiveSet
from svmcore.solvers._active_jit import ADDS, BIAS, DROPS, IDLE, PAPER

pytestmark = pytest.mark.home

N = 7


class Small:
    """A random problem of seven variables whose rows are all there, at a random point."""

    def __init__(self, seed: int = 0, equality: bool = True, diag: float = 0.0, rank: int = 9) -> None:
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(N, rank))
        self.K = A @ A.T / rank
        self.H = self.K + diag * np.eye(N)
        lower, upper = np.where(np.arange(N) % 2, -1.0, 0.0), np.where(np.arange(N) % 2, 0.0, 1.0)
        beta = (lower + upper) * rng.uniform(0.2, 0.8, N)
        self.duals = _steps_jit.Duals(
            n=N, equality=equality, total=0.0, beta=beta, v=np.zeros(N), c=rng.normal(size=N), lower=lower, upper=upper,
            diag=np.full(N, diag), curvature=np.diag(self.H).copy(), point=np.arange(N), tiny=1e-12,
        )  # fmt: skip
        self.rows = _steps_jit.Rows(self.K.copy(), np.arange(N), np.zeros(N, np.int64))
        self.progress = _steps_jit.Progress(np.zeros(16, np.int64), np.zeros(8), np.empty((0, 6)))
        self.progress.ints[_steps_jit.NEXT_CHECK] = 1000
        owner = SimpleNamespace(shift=1.3 if equality else 0.0)
        self.active = ActiveSet._allocate(owner, N + 2, np.full(N, -1, np.int64), np.full(N, -1, np.int64))
        _active_jit.file_all(self.duals, self.active)
        self.refresh()

    def refresh(self) -> None:
        self.duals.v[:] = self.duals.c - self.H @ self.duals.beta

    def objective(self) -> float:
        beta = self.duals.beta
        return float(0.5 * beta @ self.H @ beta - self.duals.c @ beta)

    def enter(self, *variables: int) -> Small:
        """Members, whose residuals become one by another choice of the linear term."""
        for t in variables:
            _active_jit._load_column(self.duals, self.rows, self.active, t)
            _active_jit.append(self.active, t, self.duals.curvature[t] + self.active.shift)
        _active_jit.file_all(self.duals, self.active)
        self.progress.floats[BIAS] = 0.25 if self.duals.equality else 0.0
        S = list(variables)
        self.duals.c[S] += self.progress.floats[BIAS] - self.duals.v[S]
        self.refresh()
        return self

    @property
    def members(self) -> list[int]:
        return list(self.active.members[: self.active.sizes[0]])

    def check(self) -> None:
        """The factor is that of the members, and both lists tell the same."""
        S, a = self.members, self.active
        m = len(S)
        L = np.tril(a.L[:m, :m])
        assert np.abs(L @ L.T - self.H[np.ix_(S, S)] - a.shift).max(initial=0.0) <= 1e-12
        assert np.abs(L @ a.u[:m] - 1.0).max(initial=0.0) <= 1e-12
        assert [a.where[t] for t in S] == list(range(m))
        assert (a.where >= 0).sum() == m
        bounded = list(a.bounded[: a.sizes[1]])
        assert set(bounded) == {t for t in range(N) if self.duals.beta[t] != 0.0 and t not in S}
        assert [a.place[t] for t in bounded] == list(range(len(bounded)))
        assert (a.place >= 0).sum() == len(bounded)

    def compensation(self, c: int) -> tuple[np.ndarray, float, float]:
        """(dS, b', gamma) of a unit move of c, from a dense system."""
        S = self.members
        m = len(S)
        system, right = np.zeros((m + 1, m + 1)), np.zeros(m + 1)
        system[:m, :m], right[:m] = self.H[np.ix_(S, S)], -self.K[S, c]
        system[m, m] = 1.0
        if self.duals.equality:
            system[:m, m], system[m, :m], system[m, m], right[m] = 1.0, 1.0, 0.0, -1.0
        found = np.linalg.solve(system, right)
        return found[:m], found[m], self.H[c, c] + self.K[S, c] @ found[:m] + found[m]

    def move(self, c: int, limit: float = np.inf) -> tuple[int, float]:
        gap = self.duals.v[c] - self.progress.floats[BIAS]
        rows, active, progress = self.rows, self.active, self.progress
        m = active.sizes[0]
        assert _active_jit.hold(self.duals, rows, active, progress, c) == -1
        if np.isfinite(limit):
            gap = np.sign(limit)
        found = _active_jit.move(self.duals, rows, active, progress, c, gap, abs(limit))
        _active_jit.carry(self.duals, rows, active, progress, m + 1)
        assert np.abs(self.duals.v - (self.duals.c - self.H @ self.duals.beta)).max() <= 1e-12
        return found


@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize("place", range(5))
def test_the_factor_follows_its_members(place, equality):
    small = Small(1, equality, diag=0.1).enter(6, 0, 3, 2, 5)
    small.check()
    _active_jit._load_column(small.duals, small.rows, small.active, 1)
    left = small.members
    _active_jit.remove(small.active, place)
    del left[place]
    assert small.members == left
    _active_jit.file_all(small.duals, small.active)
    small.check()
    # the column of a variable that is about to enter is carried over
    L = np.tril(small.active.L[:4, :4])
    assert np.abs(L @ small.active.w[:4] - small.K[left, 1] - small.active.shift).max() <= 1e-12
    if place > 0:
        _active_jit.append(small.active, 1, small.duals.curvature[1] + small.active.shift)
        _active_jit.file_all(small.duals, small.active)
        small.check()


def test_bounded_variables_are_filed_one_by_one():
    small = Small(2).enter(1)
    for t, value in ((3, 0.0), (0, 0.0), (3, -1.0), (5, 0.0), (0, 0.0), (0, 0.5)):
        small.duals.beta[t] = value
        _active_jit._file(small.duals, small.active, t)
        small.check()


def test_a_member_that_depends_on_the_others_has_a_factor_still():
    small = Small(3, rank=2, equality=False).enter(0, 1, 2)
    assert np.isfinite(small.active.L[:3, :3]).all()
    assert small.active.L[2, 2] >= 1e-15


@pytest.mark.parametrize("equality", [True, False])
def test_members_compensate_a_move(equality):
    small = Small(4, equality, diag=0.2).enter(5, 2, 4)
    _active_jit._load_column(small.duals, small.rows, small.active, 1)
    gamma, slope = _active_jit._compensate(small.duals, small.active, 1)
    d, b, fall = small.compensation(1)
    assert small.active.d[:3] == pytest.approx(d, rel=1e-10)
    assert slope == pytest.approx(b if equality else 0.0, rel=1e-10)
    assert gamma == pytest.approx(fall, rel=1e-10)


def test_what_stops_a_move_first():
    small = Small(5).enter(1, 2)
    duals, active = small.duals, small.active
    duals.beta[:3] = 0.5, -0.25, 0.5
    stop = _active_jit._first_blocker
    active.d[:2] = 0.0, 0.0
    assert stop(duals, active, 0, 1.0, 0.25) == (0.25, -1)
    assert stop(duals, active, 0, 1.0, 0.5) == (0.5, -2)
    assert stop(duals, active, 0, -1.0, 9.0) == (0.5, -2)
    active.d[:2] = 1.0, -2.0  # they meet bounds after 0.25 and 0.25: the first one keeps the tie
    assert stop(duals, active, 0, 1.0, np.inf) == (0.25, 0)
    active.d[:2] = 1.0, -4.0
    assert stop(duals, active, 0, 1.0, np.inf) == (0.125, 1)
    assert stop(duals, active, 0, -1.0, np.inf) == (0.125, 1)
    active.d[:2] = -1.0, 0.0  # 0.75 away, the variable itself 0.5
    assert stop(duals, active, 0, 1.0, np.inf) == (0.5, -2)
    duals.beta[1] = 1e-17  # beyond its bound by rounding
    active.d[:2] = 1.0, 0.0
    assert stop(duals, active, 0, 1.0, np.inf) == (0.0, 0)


@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize("c", [0, 1])
def test_a_variable_enters_where_its_residual_is_that_of_the_members(c, equality):
    small = Small(6, equality, diag=0.2).enter(5, 2, 4)
    small.duals.lower[:], small.duals.upper[:] = -9.0, 9.0
    before, sum_before = small.objective(), small.duals.beta.sum()
    reason, gain = small.move(c)
    assert reason == -1
    assert small.members == [5, 2, 4, c]
    small.check()
    b = small.progress.floats[BIAS]
    assert small.duals.v[small.members] == pytest.approx(np.full(4, b), abs=1e-12)
    assert (b == 0.0) == (not equality)
    assert gain == pytest.approx(before - small.objective(), rel=1e-10)
    assert gain > 0.0
    if equality:
        assert small.duals.beta.sum() == pytest.approx(sum_before, abs=1e-14)


@pytest.mark.parametrize("equality", [True, False])
@seeds(6)
def test_members_that_meet_a_bound_leave_on_the_way(seed, equality):
    small = Small(10 + seed, equality, diag=0.05).enter(5, 2, 4)
    small.duals.c[1] = small.duals.c[1] + (3.0 if seed % 2 else -3.0)
    small.refresh()
    before = small.objective()
    _, gain = small.move(1)
    small.check()
    duals, members = small.duals, small.members
    assert gain == pytest.approx(before - small.objective(), rel=1e-9)
    assert (duals.lower <= duals.beta).all()
    assert (duals.beta <= duals.upper).all()
    outside = {5, 2, 4} - set(members)
    assert all(duals.beta[t] in (duals.lower[t], duals.upper[t]) for t in outside)
    assert small.progress.ints[DROPS] == len(outside)
    # the evaluations that the paper counts for each that left: what is left of the set, and one
    assert small.progress.floats[PAPER] == sum(3 - k for k in range(len(outside)))
    b = small.progress.floats[BIAS]
    assert duals.v[members] == pytest.approx(np.full(len(members), b), abs=1e-11)
    assert 1 in members or duals.beta[1] in (duals.lower[1], duals.upper[1])


@pytest.mark.parametrize("equality", [True, False])
def test_an_exact_move_goes_as_far_as_it_is_told_and_stays_outside(equality):
    small = Small(7, equality).enter(5, 2, 4)
    small.duals.lower[:], small.duals.upper[:] = -9.0, 9.0
    start = small.duals.beta[0]
    assert small.move(0, -0.3)[0] == -1
    assert small.duals.beta[0] == pytest.approx(start - 0.3, rel=1e-14)
    assert small.members == [5, 2, 4]
    small.check()
    b = small.progress.floats[BIAS]
    assert small.duals.v[[5, 2, 4]] == pytest.approx(np.full(3, b), abs=1e-12)
    # a member that meets its bound on the way does not make the way longer
    small = Small(7, equality).enter(5, 2, 4)
    small.duals.lower[:], small.duals.upper[:] = -9.0, 9.0
    small.duals.lower[5], small.duals.upper[5] = small.duals.beta[5] - 1e-3, small.duals.beta[5] + 1e-3
    small.move(0, -0.3)
    assert small.members == [2, 4]
    assert small.duals.beta[0] == pytest.approx(start - 0.3, rel=1e-14)


def test_a_variable_alone():
    small = Small(8)
    gap = small.duals.v[0] - small.progress.floats[BIAS]
    assert small.move(0, 0.1) == (_steps_jit.STUCK, 0.0)  # nobody compensates
    assert small.move(0) == (-1, 0.0)
    assert small.members == [0]
    assert small.progress.floats[BIAS] == pytest.approx(gap)
    small.check()


def test_a_move_along_which_nothing_curves():
    small = Small(9, equality=False, rank=1).enter(0)
    small.duals.lower[:], small.duals.upper[:] = -np.inf, np.inf
    assert small.move(2) == (_steps_jit.NO_BOUND, 0.0)
    assert small.members == [0]
    # what the loss adds to the diagonal curves, however little that is
    small = Small(9, equality=False, rank=1, diag=1e-13).enter(0)
    before = small.duals.beta[2]
    assert _active_jit.hold(small.duals, small.rows, small.active, small.progress, 2) == -1
    found = _active_jit.move(small.duals, small.rows, small.active, small.progress, 2, -1e-14, np.inf)
    assert found[0] == -1
    assert small.duals.beta[2] - before == pytest.approx(-0.1, rel=0.9)
    assert small.members == [0, 2]


@pytest.mark.parametrize(("lower", "upper"), [(-1.0, 3.0), (-1.0, np.inf), (-np.inf, 3.0)])
@pytest.mark.parametrize("off", [0.0, 1e-13, 1e-3])
def test_members_land_on_bounds_that_rounding_missed(lower, upper, off):
    small = Small(12).enter(5, 2, 4)
    duals, active = small.duals, small.active
    bound = lower if np.isfinite(lower) else upper
    duals.lower[2], duals.upper[2] = lower, upper
    duals.beta[2] = bound + (off if bound == lower else -off)
    active.d[:3] = 0.0, 1.0, 0.0
    _active_jit._land_ties(duals, active, small.progress, -0.5)
    landed = off < 1e-6
    assert small.members == ([5, 4] if landed else [5, 2, 4])
    assert (duals.beta[2] == bound) == landed
    assert small.progress.ints[DROPS] == landed
    small.check()


def test_rows_that_are_missing_are_asked_for():
    small = Small(13).enter(5, 2)
    small.rows.slot[2] = -1
    assert _active_jit.hold(small.duals, small.rows, small.active, small.progress, 3) == _steps_jit.NEED_ROW
    assert small.progress.ints[_steps_jit.ROW] == 2
    small.rows.slot[[2, 3]] = 2, -1
    assert _active_jit.hold(small.duals, small.rows, small.active, small.progress, 3) == _steps_jit.NEED_ROW
    assert small.progress.ints[_steps_jit.ROW] == 3


@pytest.mark.parametrize("b", [-1.0, 0.0, 0.7])
@seeds(4)
def test_the_worst_outsider(seed, b):
    small = Small(20 + seed).enter(5, 2)
    duals = small.duals
    duals.beta[[0, 1, 3]] = duals.lower[0], duals.upper[1], duals.lower[3]
    gaps = np.zeros(N)
    for t in set(range(N)) - {5, 2}:
        gap = duals.v[t] - b
        can = duals.beta[t] < duals.upper[t] if gap > 0 else duals.beta[t] > duals.lower[t]
        gaps[t] = gap if can else 0.0
    chosen = int(np.argmax(np.abs(gaps)))
    assert _active_jit._worst(duals, small.active, b) == (chosen, gaps[chosen])
    duals.lower[:] = duals.upper[:] = duals.beta
    assert _active_jit._worst(duals, small.active, b) == (-1, 0.0)


def test_one_residual_from_the_support():
    small = Small(14, diag=0.3).enter(5, 2)
    small.duals.beta[[0, 6]] = 0.0
    _active_jit.file_all(small.duals, small.active)
    small.refresh()
    for t in range(N):
        found = _active_jit._value(small.duals, small.rows, small.active, t)
        assert found == pytest.approx(small.duals.v[t], abs=1e-13)


@pytest.mark.parametrize("equality", [True, False])
@seeds(4)
def test_settling_minimises_over_the_members(seed, equality):
    small = Small(30 + seed, equality, diag=0.1)
    duals = small.duals
    duals.c[:] *= 0.3
    duals.lower[:], duals.upper[:] = (-9.0, 9.0) if seed == 0 else (duals.lower, duals.upper)
    small.enter(5, 2, 4, 1)
    duals.c[[5, 2]] += 0.4, -0.7
    small.refresh()
    before, total = small.objective(), duals.beta.sum()
    b = _active_jit.settle(duals, small.active, np.empty(N))
    small.refresh()
    small.check()
    members = small.members
    assert duals.v[members] == pytest.approx(np.full(len(members), b), abs=1e-12)
    assert small.objective() < before
    assert (duals.lower <= duals.beta).all()
    assert (duals.beta <= duals.upper).all()
    assert all(duals.beta[t] in (duals.lower[t], duals.upper[t]) for t in {5, 2, 4, 1} - set(members))
    assert len(members) == 4 or seed > 0
    if equality:
        assert duals.beta.sum() == pytest.approx(total, abs=1e-14)
    else:
        assert b == 0.0


def test_a_single_member_that_meets_its_bound_leaves_nobody():
    small = Small(34, equality=False).enter(0)
    small.duals.c[0] += 9.0
    small.refresh()
    assert _active_jit.settle(small.duals, small.active, np.empty(N)) == 0.0
    assert small.duals.beta[0] == small.duals.upper[0]
    assert small.members == []
    small.check()


# ---------------------------------------------------------------- the two scans


def limits(tol: float = 1e-10) -> _steps_jit.Limits:
    return _steps_jit.Limits(tol=tol, max_iter=100, check_every=100, work=1e9)


def run(small: Small, tol: float = 1e-10) -> int:
    return int(_active_jit.max_slice(small.duals, small.rows, small.active, small.progress, limits(tol)))


@pytest.mark.parametrize("equality", [True, False])
def test_the_largest_violators_lead_to_the_minimum(equality):
    small = Small(15, equality, diag=0.1)
    small.duals.beta[:] = 0.0
    _active_jit.file_all(small.duals, small.active)
    small.refresh()
    assert run(small) == _steps_jit.AT_TOLERANCE
    duals = small.duals
    v = duals.c - small.H @ duals.beta
    top = np.where(duals.beta < duals.upper, v, -np.inf).max()
    bottom = np.where(duals.beta > duals.lower, v, np.inf).min()
    assert (top - bottom if equality else max(top, -bottom)) <= 1e-10
    assert small.progress.ints[ADDS] == small.progress.ints[_steps_jit.ITERATION] > 0
    small.check()


def test_the_scan_of_largest_violators_returns_for_what_it_lacks():
    small = Small(16).enter(*range(5))
    tight = small.active._replace(L=np.zeros((6, 6)))
    ends = limits()
    assert _active_jit.max_slice(small.duals, small.rows, tight, small.progress, ends) == _steps_jit.NEED_ROOM
    for missing in (0, 1):
        small = Small(16)
        pair = _steps_jit.worst_pair(small.duals)[:2]
        small.rows.slot[pair[missing]] = -1
        assert run(small) == _steps_jit.NEED_ROW
        assert small.progress.ints[_steps_jit.ROW] == pair[missing]
    small.progress.ints[_steps_jit.ITERATION] = 100
    assert run(small) == _steps_jit.AT_MAX_ITER
    small = Small(16).enter(0)
    chosen, _ = _active_jit._worst(small.duals, small.active, small.progress.floats[BIAS])
    small.rows.slot[chosen] = -1
    assert run(small) == _steps_jit.NEED_ROW
    assert small.progress.ints[_steps_jit.ROW] == chosen


def test_members_that_disagree_while_nobody_else_objects_are_stuck():
    small = Small(17).enter(0, 1, 2, 3, 4, 5, 6)
    small.duals.v[0] += 1.0  # the factor is said to be right, yet the residuals differ
    assert run(small) == _steps_jit.STUCK


def test_moves_that_gain_nothing_end_for_want_of_progress():
    for idle, reason in ((21, _steps_jit.STUCK), (20, _steps_jit.AT_MAX_ITER)):
        small = Small(18).enter(0)
        duals = small.duals
        duals.lower[1:], duals.upper[1:] = duals.beta[1:], duals.beta[1:]
        duals.upper[4], duals.lower[6] = 1.0, 0.0  # 4 can grow, 6 can shrink
        duals.beta[0] = 0.0  # the member could only shrink along with 4, and cannot: 4 takes its place, at no gain
        duals.v[[4, 6]] = 1.25, 0.15
        ints = small.progress.ints
        ints[[IDLE, _steps_jit.ITERATION, _steps_jit.NEXT_CHECK]] = idle, 99, 1000
        assert run(small) == reason
        assert ints[_steps_jit.ITERATION] == 100
        assert small.members == [4]
        assert ints[IDLE] == (0 if reason == _steps_jit.STUCK else 21)


def test_any_gain_is_progress():
    small = Small(15, diag=0.1)
    small.duals.beta[:] = 0.0
    small.duals.c[:] *= 1e-3
    _active_jit.file_all(small.duals, small.active)
    small.refresh()
    small.progress.ints[IDLE] = 15
    assert run(small, 1e-10) == _steps_jit.AT_TOLERANCE
    assert small.progress.ints[IDLE] == 0
    assert 0.0 < -small.progress.floats[_steps_jit.OBJECTIVE] < 1e-4


def scan(small: Small, order: np.ndarray, eps: float = 1e-9) -> int:
    ends = limits()
    return int(_active_jit.paper_slice(small.duals, small.rows, small.active, order, small.progress, ends, eps))


def test_the_published_scan_goes_round_until_nobody_violates():
    small = Small(19, diag=0.1)
    small.duals.beta[:] = 0.0
    small.refresh()
    small.enter(3)
    small.progress.ints[IDLE] = 0
    assert scan(small, np.arange(N)) == _steps_jit.AT_TOLERANCE
    small.refresh()
    duals, b = small.duals, small.progress.floats[BIAS]
    assert np.where(duals.beta < duals.upper, duals.v - b, 0.0).max() <= 1e-8
    assert np.where(duals.beta > duals.lower, b - duals.v, 0.0).max() <= 1e-8
    small.check()


def test_the_published_scan_returns_for_what_it_lacks():
    order = np.arange(N)
    small = Small(21).enter(0, 1)
    small.duals.lower[:], small.duals.upper[:] = -9.0, 9.0
    small.rows.slot[2] = -1
    small.duals.beta[2] = 0.0  # the rows of the support are there: only a newcomer's may be missing
    _active_jit.file_all(small.duals, small.active)
    small.refresh()
    assert scan(small, order) == _steps_jit.NEED_ROW
    assert small.progress.ints[_steps_jit.ROW] == 2
    small = Small(21)  # no member who could compensate
    assert scan(small, order) == _steps_jit.STUCK
    small.progress.ints[_steps_jit.ITERATION] = 100
    assert scan(small, order) == _steps_jit.AT_MAX_ITER
    small = Small(22).enter(*range(5))
    tight = small.active._replace(L=np.zeros((6, 6)))
    found = _active_jit.paper_slice(small.duals, small.rows, tight, order, small.progress, limits(), 1e-9)
    assert found == _steps_jit.NEED_ROOM


def test_a_newcomer_without_end_is_told():
    small = Small(23, equality=False, rank=1).enter(0)
    small.duals.lower[:], small.duals.upper[:] = -np.inf, np.inf
    assert run(small) == _steps_jit.NO_BOUND
    small = Small(23, equality=False, rank=1).enter(0)
    small.duals.lower[:], small.duals.upper[:] = -np.inf, np.inf
    assert scan(small, np.arange(N)) == _steps_jit.NO_BOUND
