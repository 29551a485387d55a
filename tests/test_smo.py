"""The compiled pieces of SMO, each against its plain meaning; the row cache; shrinking; the face step."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from warned import quiet

import svmcore
from svmcore import _smo_jit
from svmcore._types import LANES, Kernel, KernelKind, Status
from svmcore.compiler.jit import DISABLED
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import new_scratch, padded
from svmcore.problem import formulations, measures
from svmcore.simd.vector import BIG
from svmcore.solvers import _course, _steps_jit, smo
from svmcore.solvers._face import FaceResult, face_step

pytestmark = pytest.mark.home

TINY = 1e-12


@st.composite
def vectors(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """A residual on a grid full of ties, masks, kernel rows; padded to whole blocks as the solver pads them."""
    n = draw(st.sampled_from([1, 5, 64, 65, 140]))
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    size = padded(n)
    found = {"n": n, "v": np.zeros(size), "grow": np.full(size, -BIG), "shrink": np.full(size, BIG)}
    found["v"][:n] = rng.integers(-9, 10, n) / 4.0
    found["grow"][:n] = np.where(rng.random(n) < 0.7, 0.0, -BIG)
    found["shrink"][:n] = np.where(rng.random(n) < 0.7, 0.0, BIG)
    for name in ("row_i", "row_j"):
        found[name] = rng.integers(-4, 5, size) / 8.0
    found["curvature"] = np.ones(size)
    found["curvature"][:n] = rng.integers(1, 5, n) / 2.0
    found["score"], found["best"] = np.empty(size), np.empty(size // LANES)
    return found


@given(vectors(), st.sampled_from([0.0, 0.5, -2.0]))
def test_advance_moves_and_finds_extremes(a, step):
    expected = a["v"] - step * (a["row_i"] - a["row_j"])
    best = a["best"]
    top, bottom = _smo_jit.advance(a["v"], step, a["row_i"], a["row_j"], a["grow"], a["shrink"], best)
    assert np.array_equal(a["v"], expected)
    assert top == np.max(expected + a["grow"])
    assert bottom == np.min(expected + a["shrink"])
    assert np.array_equal(best, np.max((expected + a["grow"]).reshape(-1, LANES), axis=1))
    assert _smo_jit._find_top(a["v"], a["grow"], best, top) == np.argmax(expected + a["grow"])
    assert _smo_jit._find_bottom(a["v"], a["shrink"], bottom) == np.argmin(expected + a["shrink"])


@given(vectors())
def test_second_partner_has_the_largest_gain(a):
    v_i, q_i = 2.0, 1.0
    found = _smo_jit.second_partner(
        a["v"], a["shrink"], a["curvature"], a["row_i"], v_i, q_i, TINY, a["score"], a["best"]
    )
    gains = []
    for k in range(len(a["v"])):
        fall = max(v_i - a["v"][k], 0.0) if a["shrink"][k] == 0.0 else 0.0
        gains.append(fall**2 / max(q_i + a["curvature"][k] - 2.0 * a["row_i"][k], TINY))
    assert gains[found] == pytest.approx(max(gains), rel=1e-14)


@given(vectors())
def test_worst_coordinate_has_the_largest_gain(a):
    i, worst = _smo_jit.worst_coordinate(a["v"], a["grow"], a["shrink"], a["curvature"], TINY, a["score"], a["best"])
    pulls = [
        max(v if g == 0.0 else 0.0, -v if s == 0.0 else 0.0, 0.0)
        for v, g, s in zip(a["v"], a["grow"], a["shrink"], strict=True)
    ]
    gains = np.square(pulls) / a["curvature"]
    assert worst == max(pulls)
    assert gains[i] == pytest.approx(max(gains), rel=1e-14)


def problem(n: int = 90, C: float = 1.0, cache_bytes: int = 1 << 20, equality: bool = True) -> tuple:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    qp = formulations.svc(y, np.full(n, C), "hinge", equality)
    K = KernelMatrix(X, Kernel(int(KernelKind.RBF), 0.5, 0.0, 1, 0.0), cache_bytes=cache_bytes)
    return qp, K, smo._SMOProblem(qp, K, np.arange(n), np.zeros(n), qp.c.copy())


@pytest.mark.parametrize("step", [0.25, -0.25, 1.0, 5.0, np.inf])
def test_a_pair_moves_as_far_as_its_bounds(step):
    qp, _, work = problem(8)
    duals, scan = work.duals, work.scan
    up, down = int(np.argmax(qp.c)), int(np.argmin(qp.c))
    i, j = (up, down) if step > 0 else (down, up)
    taken = _steps_jit.move(duals, i, j, step)
    for t in (i, j):
        _smo_jit.set_masks(duals, scan, t)
    assert taken == np.sign(step) * min(abs(step), 1.0)
    assert duals.beta[i] == taken
    assert duals.beta[j] == -taken
    assert scan.grow[up] == (-BIG if abs(taken) == 1.0 else 0.0)
    assert scan.shrink[up] == 0.0
    assert scan.grow[down] == 0.0
    alone = _steps_jit.move(duals, up, -1, -abs(taken))
    _smo_jit.set_masks(duals, scan, up)
    assert alone == -abs(taken)
    assert duals.beta[up] == 0.0
    assert scan.shrink[up] == BIG


@pytest.mark.parametrize("rule", [_smo_jit.PLATT, _smo_jit.SIMPLIFIED])
def test_a_partner_that_lands_by_less_than_the_other_can_tell_is_no_extreme_any_more(rule):
    qp, K, work = problem(8, C=1e4)
    duals, scan, cache = work.duals, work.scan, work.cache
    i, j = int(np.argmax(qp.c)), int(np.argmin(qp.c))
    duals.beta[i], duals.lower[j], duals.beta[j] = 5e3, -1.0, np.nextafter(-1.0, 0.0)
    duals.v[j] = -3.0
    work.refresh_masks()
    progress = _steps_jit.Progress(np.zeros(16, np.int64), np.zeros(8), np.empty((0, 6)))
    _smo_jit.measure(duals, scan, cache, progress)
    assert progress.floats[_smo_jit.BOTTOM] == -3.0
    progress.ints[[_smo_jit.PENDING_I, _smo_jit.PENDING_J, _steps_jit.POSITION]] = i, j, 1
    limits = _steps_jit.Limits(tol=1e-3, max_iter=9, check_every=9, work=1.0)
    progress.ints[_steps_jit.NEXT_CHECK] = 9
    arguments = (duals, scan, cache, new_scratch(3), progress, rule, limits, 0)
    while _smo_jit.smo_slice(K.kernel, work.points, *arguments) == _steps_jit.SLICE_SPENT and duals.beta[j] > -1.0:
        pass
    assert (duals.beta[i], duals.beta[j]) == (5e3, -1.0)
    assert progress.floats[_smo_jit.TOP] == np.max(duals.v + scan.grow)
    assert progress.floats[_smo_jit.BOTTOM] == np.min(duals.v + scan.shrink) > -3.0


@pytest.mark.parametrize("winner", [0, 63, 64, 139])
def test_the_best_score_is_found_in_any_block(winner):
    score = np.zeros(3 * LANES)
    score[winner:140] = 2.5  # of equal ones the first
    assert _smo_jit._best_score(score, score.reshape(-1, LANES).max(axis=1)) == winner


@pytest.mark.parametrize("rule", [_smo_jit.SECOND, _smo_jit.MVP])
def test_a_point_without_violation_ends_at_once(rule):
    _, K, work = problem(8)
    work.duals.v[:8] = 0.5
    progress = _steps_jit.Progress(np.zeros(16, np.int64), np.zeros(8), np.empty((0, 6)))
    progress.ints[_steps_jit.NEXT_CHECK], progress.ints[_smo_jit.PENDING_I] = 9, -1
    _smo_jit.measure(work.duals, work.scan, work.cache, progress)
    limits = _steps_jit.Limits(tol=0.0, max_iter=9, check_every=9, work=1e9)
    arguments = (work.duals, work.scan, work.cache, new_scratch(3), progress, rule, limits, 0)
    assert _smo_jit.smo_slice(K.kernel, work.points, *arguments) == _steps_jit.AT_TOLERANCE
    assert progress.floats[_steps_jit.VIOLATION] == 0.0
    assert not work.duals.beta.any()


ALONE = [0.9, 0.9, 0.9, 1.0, 0.9, -1.2, 0.9, 0.9]
TOGETHER = [0.0, 0.1, 0.2, 1.0, 0.0, 0.0, -0.95, 0.0]


@pytest.mark.parametrize(
    ("rule", "v", "chosen", "violation"),
    [
        (_smo_jit.SECOND, ALONE, [3], 1.2),
        (_smo_jit.MVP, ALONE, [5], 1.2),
        (_smo_jit.SECOND, TOGETHER, [3, 6], 1.0),
        (_smo_jit.MVP, TOGETHER, [3], 1.0),
    ],
)
def test_without_equality_the_largest_gain_goes_first_of_one_or_two_or_the_largest_residual(rule, v, chosen, violation):
    _, K, work = problem(8, equality=False)
    duals = work.duals
    duals.lower[:8], duals.upper[:8] = -9.0, 9.0
    work.refresh_masks()
    duals.v[:8] = v
    duals.diag[5], duals.curvature[5] = 30.0, 31.0
    progress = _steps_jit.Progress(np.zeros(16, np.int64), np.zeros(8), np.empty((3, 6)))
    progress.ints[_steps_jit.NEXT_CHECK], progress.ints[_smo_jit.PENDING_I] = 9, -1
    _smo_jit.measure(duals, work.scan, work.cache, progress)
    limits = _steps_jit.Limits(tol=1e-3, max_iter=1, check_every=9, work=1e9)
    arguments = (duals, work.scan, work.cache, new_scratch(3), progress, rule, limits, 0)
    assert _smo_jit.smo_slice(K.kernel, work.points, *arguments) == _steps_jit.AT_MAX_ITER
    assert list(np.flatnonzero(duals.beta)) == chosen
    assert progress.trace[0, 1] == violation  # the residual


@pytest.mark.parametrize("pair", [(0, 3), (3, 0), (2, 1), (5, -1)])
def test_a_step_leaves_the_residual_of_the_new_point(pair):
    qp, K, work = problem(64, C=3.0, equality=pair[1] >= 0)
    duals, scan, cache = work.duals, work.scan, work.cache
    duals.diag[:64] = 0.25
    duals.curvature[:64] += 0.25
    duals.lower[:64], duals.upper[:64] = -1.0, 2.0
    work.refresh_masks()
    exact = oracle.kernel_matrix("rbf", K.X, K.X, 0.5) + 0.25 * np.eye(64)
    progress = _steps_jit.Progress(np.zeros(16, np.int64), np.zeros(8), np.empty((3, 6)))
    progress.ints[[_smo_jit.PENDING_I, _smo_jit.PENDING_J, _steps_jit.NEXT_CHECK]] = *pair, 9
    limits = _steps_jit.Limits(tol=1e-3, max_iter=1, check_every=9, work=1e9)
    arguments = (duals, scan, cache, new_scratch(3), progress, _smo_jit.SECOND, limits, 0)
    assert _smo_jit.smo_slice(K.kernel, work.points, *arguments) == _steps_jit.AT_MAX_ITER
    beta = duals.beta[:64]
    assert set(np.flatnonzero(beta)) == set(pair) - {-1}
    v = qp.c - exact @ beta
    assert duals.v[:64] == pytest.approx(v, abs=1e-13)
    assert progress.floats[_smo_jit.TOP] == np.max(duals.v + scan.grow)
    assert progress.floats[_smo_jit.BOTTOM] == np.min(duals.v + scan.shrink)
    objective = 0.5 * beta @ exact @ beta - qp.c @ beta
    assert progress.floats[_steps_jit.OBJECTIVE] == pytest.approx(objective, rel=1e-12)
    step = beta[pair[0]]
    assert list(progress.trace[0, 3:]) == [*pair, step]
    # along the pair nothing is left, unless a bound was met
    slope = v[pair[0]] - (v[pair[1]] if pair[1] >= 0 else 0.0)
    assert slope == pytest.approx(0.0, abs=1e-12) or max(abs(beta)) in (1.0, 2.0)


# ---------------------------------------------------------------- the sweeps of Platt's rule and of the simplified one

PLATT, SIMPLIFIED = _smo_jit.PLATT, _smo_jit.SIMPLIFIED


class Sweep:
    """Variables of these residuals, each "free", "low" (it can only grow) or "high" (it can only shrink)."""

    def __init__(self, v: list[float], where: str, equality: bool, **progress: float) -> None:
        _, _, work = problem(len(v), equality=equality)
        self.duals, self.scan, self.cache = work.duals, work.scan, work.cache
        n = self.duals.n
        places = where.split()
        self.duals.lower[:n], self.duals.upper[:n] = 0.0, 1.0
        self.duals.beta[:n] = [{"free": 0.5, "low": 0.0, "high": 1.0}[place] for place in places]
        self.duals.v[:n] = v
        work.refresh_masks()
        self.progress = _steps_jit.Progress(np.zeros(16, np.int64), np.zeros(8), np.empty((0, 6)))
        for name, value in progress.items():
            in_floats = name in ("THRESHOLD", "TOP", "BOTTOM", "VIOLATION")
            (self.progress.floats if in_floats else self.progress.ints)[getattr(_smo_jit, name)] = value

    def pair(self, position: int, rule: int, tol: float = 0.1) -> tuple[int, int]:
        self.progress.ints[_smo_jit.POSITION] = position
        with np.errstate(over="ignore"):  # the random numbers wrap around
            found = _smo_jit._sweep_pair(self.duals, self.scan, self.progress, rule, tol)
        assert self.progress.ints[_smo_jit.POSITION] == position + 1
        return tuple(found)

    def after(self, i: int, j: int) -> float:
        _smo_jit._after_sweep_step(self.duals, self.scan, self.progress, i, j)
        assert self.progress.ints[_smo_jit.CHANGED] == 1
        return self.progress.floats[_smo_jit.THRESHOLD]

    def end(self, rule: int, max_passes: int = 0) -> tuple[int, int, int]:
        _smo_jit.measure(self.duals, self.scan, self.cache, self.progress)
        ints = self.progress.ints
        passes = ints[_smo_jit.PASSES]
        ints[_smo_jit.POSITION] = self.duals.n
        found = _smo_jit._end_of_sweep(self.duals, self.scan, self.cache, self.progress, rule, max_passes)
        assert (ints[_smo_jit.CHANGED], ints[_smo_jit.POSITION], ints[_smo_jit.PASSES]) == (0, 0, passes + 1)
        return tuple(found)


@pytest.mark.parametrize("rule", [PLATT, SIMPLIFIED])
def test_a_sweep_without_equality_row_moves_each_violator_alone(rule):
    sweep = Sweep([0.3, -0.3, 0.3, -0.3, 0.0, 0.09], "low low high high free free", False, EXAMINE_ALL=1)
    assert [sweep.pair(i, rule) for i in range(6)] == [(0, -1), (-1, -1), (-1, -1), (3, -1), (-1, -1), (-1, -1)]
    assert sweep.pair(5, rule, 0.08) == (5, -1)  # the whole tolerance counts, not its half


def test_a_sweep_measures_from_its_threshold_and_takes_half_the_tolerance():
    sweep = Sweep([1.06, 1.04, 0.94, 0.0], "free free free free", True, EXAMINE_ALL=1, THRESHOLD=1.0)
    assert [sweep.pair(i, PLATT) for i in range(4)] == [(0, 3), (-1, -1), (2, 0), (3, 0)]


def test_platt_takes_the_farthest_free_variable_then_any_free_one_then_any():
    low, free = "low", "free"
    far = Sweep([5.0, 1.0, -9.0, 2.0, -2.0], f"{low} {free} {low} {free} {free}", True, EXAMINE_ALL=1)
    assert far.pair(0, PLATT) == (0, 4)
    far.duals.v[1] = -1.0  # far, and yet not the farthest
    assert far.pair(0, PLATT) == (0, 4)
    assert far.pair(2, PLATT) == (-1, -1)  # it can only grow, and its residual is the lowest
    assert Sweep([1.0, -4.0, -3.0], f"{low} {free} {free}", True, EXAMINE_ALL=1).pair(0, PLATT) == (0, 1)
    # the farthest free one is on the wrong side: another free one, which is the only one that helps
    near = Sweep([1.0, 9.0, 0.5, 3.0], f"{low} {free} {free} high", True, EXAMINE_ALL=1)
    assert near.pair(0, PLATT) == (0, 2)
    # no free one helps: one at a bound
    bound = Sweep([1.0, 9.0, 0.5, -3.0], f"{low} {free} high {low}", True, EXAMINE_ALL=1)
    assert bound.pair(0, PLATT) == (0, 2)
    shrinks = Sweep([-1.0, -9.0, 0.5, 3.0], f"high {free} {low} high", True, EXAMINE_ALL=1)
    assert shrinks.pair(0, PLATT) == (0, 2)
    alone = Sweep([1.0, 9.0, 0.96, -3.0], f"{low} {free} high {low}", True, EXAMINE_ALL=1)
    assert alone.pair(0, PLATT) == (-1, -1)  # less than half the tolerance is no progress


def test_platt_looks_at_bound_variables_in_full_sweeps_only():
    sweep = Sweep([1.0, -1.0, 1.0, -1.0], "low high free free", True)
    assert [sweep.pair(i, PLATT)[0] for i in range(4)] == [-1, -1, 2, 3]
    sweep.progress.ints[_smo_jit.EXAMINE_ALL] = 1
    assert [sweep.pair(i, PLATT)[0] for i in range(4)] == [0, 1, 2, 3]


def test_the_simplified_rule_draws_any_other_variable():
    sweep = Sweep([1.0, 0.0, -1.0, 0.5], "free free free free", True)
    assert {sweep.pair(0, SIMPLIFIED) for _ in range(64)} == {(0, 1), (0, 2), (0, 3)}
    sweep = Sweep([1.0, 0.0, -1.0, 0.5], "free low high low", True)
    assert {sweep.pair(0, SIMPLIFIED) for _ in range(64)} == {(-1, -1), (0, 2)}
    assert {sweep.pair(2, SIMPLIFIED) for _ in range(64)} == {(2, 0), (2, 1), (2, 3)}


def test_the_threshold_after_a_step_is_the_residual_of_a_free_variable():
    v = [1.0, 2.0, 4.0, 8.0]
    assert Sweep(v, "free low free high", True).after(0, 2) == 1.0
    assert Sweep(v, "free low free high", True).after(1, 2) == 4.0
    assert Sweep(v, "free low free high", True).after(3, 1) == 5.0
    assert Sweep(v, "free low free high", False, THRESHOLD=0.25).after(0, -1) == 0.25


@pytest.mark.parametrize("equality", [True, False])
def test_a_sweep_that_changed_nothing_ends_with_the_worst_pair(equality):
    sweep = Sweep([1.0, -0.5, 0.25, -2.0], "low low free free", equality, EXAMINE_ALL=1, THRESHOLD=9.0)
    assert sweep.end(PLATT) == ((-1, 0, 3) if equality else (-1, 3, -1))
    assert sweep.progress.floats[_smo_jit.THRESHOLD] == (-0.5 if equality else 0.0)
    assert sweep.progress.floats[_smo_jit.VIOLATION] == (3.0 if equality else 2.0)
    # the simplified rule has patience: ten such sweeps in a row
    sweep = Sweep([1.0, -0.5, 0.25, -2.0], "low low free free", equality, THRESHOLD=9.0)
    assert [sweep.end(SIMPLIFIED)[1] >= 0 for _ in range(20)] == ([False] * 9 + [True]) * 2


def test_sweeps_over_all_variables_and_over_free_ones_take_turns():
    sweep = Sweep([1.0, -0.5, 0.25, -2.0], "low low free free", True, EXAMINE_ALL=1, CHANGED=3)
    ints = sweep.progress.ints
    assert sweep.end(PLATT) == (-1, -1, -1)
    assert ints[_smo_jit.EXAMINE_ALL] == 0  # something changed: the free ones, until they are quiet
    ints[_smo_jit.CHANGED] = 1
    assert sweep.end(PLATT) == (-1, -1, -1)
    assert ints[_smo_jit.EXAMINE_ALL] == 0
    assert sweep.end(PLATT) == (-1, -1, -1)
    assert ints[_smo_jit.EXAMINE_ALL] == 1
    ints[[_smo_jit.EXAMINE_ALL, _smo_jit.CHANGED, _smo_jit.PASSES]] = 0, 1, 99
    assert sweep.end(PLATT) == (-1, -1, -1)
    assert ints[_smo_jit.EXAMINE_ALL] == 1  # after a hundred sweeps even without rest


def test_idle_sweeps_are_counted_in_a_row():
    sweep = Sweep([1.0, -0.5, 0.25, -2.0], "low low free free", True)
    assert [sweep.end(SIMPLIFIED, 3)[0] for _ in range(2)] == [-1, -1]
    sweep.progress.ints[_smo_jit.CHANGED] = 1
    assert [sweep.end(SIMPLIFIED, 3)[0] for _ in range(4)] == [-1, -1, -1, _steps_jit.PASSES_DONE]


@pytest.mark.parametrize("rule", smo.RULES)
def test_classes_on_one_point_have_no_finite_hard_margin(rule):
    X, y = np.array([[0.0], [0.0], [1.0], [2.0]]), np.array([1.0, -1.0, 1.0, -1.0])
    with quiet(svmcore.ConvergenceWarning):
        found = svmcore.train_svc(X, y, np.inf, gamma=1.0, solver="smo", rule=rule)
    assert found.status is Status.UNBOUNDED


def test_a_full_cache_gives_the_slot_that_was_used_least():
    _, _, work = problem(30, cache_bytes=8 * LANES * 3)
    cache = work.cache
    assert len(cache.owner) == 3
    for time, key in enumerate([5, 9, 2], 1):
        slot = _smo_jit.claim_slot(cache, key)
        cache.used[slot] = time
    cache.used[cache.slot[5]] = 7
    slot = _smo_jit.claim_slot(cache, 11)
    assert slot == 1
    assert cache.slot[9] == -1
    assert [cache.slot[key] for key in (5, 11, 2)] == [0, 1, 2]


def test_a_shrunken_problem_keeps_points_vectors_and_cached_rows():
    qp, K, work = problem(600)
    exact = oracle.kernel_matrix("rbf", K.X[:40], K.X, 0.5)
    scratch = smo.new_scratch(3)
    for key in range(40):
        _smo_jit.compute_row(K.kernel, work.points, work.duals, work.cache, scratch, key)
    assert work.cache.values[work.cache.slot[7], :600] == pytest.approx(exact[7], rel=1e-14)
    v = np.where(qp.c > 0, 1.0, -1.0)
    v[::2] *= -3.0  # half of them point outwards at their bound
    work.restart(np.zeros(600), v)
    child = work.shrunken(np.zeros(600), v.copy())
    assert child is not None
    assert np.array_equal(child.index, np.arange(1, 600, 2))
    n = child.duals.n
    assert np.array_equal(child.duals.c[:n], qp.c[1::2])
    for key in range(1, 40, 2):
        slot = child.cache.slot[np.flatnonzero(child.ids == key)[0]]
        assert child.cache.values[slot, :n] == pytest.approx(exact[key, 1::2], rel=1e-14)
    assert np.all(child.scan.grow[n:] == -BIG)
    assert np.all(child.scan.shrink[n:] == BIG)
    assert smo._SMOProblem(qp, K, np.arange(600), np.zeros(600), qp.c).shrunken(np.zeros(600), qp.c.copy()) is None


@pytest.mark.compiled
@pytest.mark.parametrize("task", ["svc", "svr"])
@pytest.mark.parametrize("stopping", ["kkt", "gap", "objective"])
def test_shrinking_changes_the_way_and_not_the_answer(task, stopping):
    n = 1500
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 2))
    noisy = X[:, 0] + 0.3 * rng.normal(size=n)
    options = {"gamma": 0.5, "tol": 1e-5, "stopping": stopping, "solver": "smo"}
    if task == "svc":
        fits = [svmcore.train_svc(X, np.sign(noisy), 10.0, shrinking=s, **options) for s in (True, False)]
    else:
        fits = [svmcore.train_svr(X, noisy, 1.0, 0.2, shrinking=s, **options) for s in (True, False)]
    assert all(fit.converged for fit in fits)
    with_it, without = fits
    assert abs(with_it.objective - without.objective) <= max(with_it.gap, without.gap) + 1e-9
    # the criterion that promises nothing must at least not be fooled by variables that were left out
    assert with_it.relative_gap <= 100.0 * max(without.relative_gap, 1e-6)


def test_objective_in_reports_is_that_of_the_whole_problem():
    n = 520 if DISABLED else 2000
    rng = np.random.default_rng(6)
    X = rng.normal(size=(n, 2))
    y = np.sign(X[:, 0] + 0.3 * rng.normal(size=n))
    seen: list[float] = []
    svmcore.train_svc(X, y, 100.0, tol=1e-2, callback=lambda report: seen.append(report.objective))
    assert np.all(np.diff(seen) <= 1e-9 * np.abs(seen[-1]))


# ---------------------------------------------------------------- the face step


@given(st.integers(2, 12), st.integers(1, 12), st.booleans(), st.integers(0, 2**20))
def test_the_face_step_minimises_over_the_face(n, rank, equality, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, rank))
    diag = np.where(rng.random(n) < 0.3, 0.5, 0.0)
    H = A @ A.T + np.diag(diag)
    positive = rng.random(n) < 0.5
    lower, upper = np.where(positive, 0.0, -4.0), np.where(positive, 4.0, 0.0)
    beta = np.where(positive, 1.0, -1.0) * rng.uniform(0.5, 3.5, n)
    v = rng.normal(size=n)
    after, result = face_step(H, diag, beta, v, lower, upper, equality, 1e-9)
    step = after - beta
    assert result in (FaceResult.MOVED, FaceResult.NOTHING)
    assert np.all(after >= lower)
    assert np.all(after <= upper)
    assert 0.5 * step @ H @ step - v @ step <= 1e-10
    if equality:
        assert abs(step.sum()) <= 64.0 * oracle.EPS * np.abs(after).sum()
    # what has not met a bound is stationary
    left = (v - H @ step)[(after > lower) & (after < upper)]
    if len(left):
        spread = np.ptp(left) if equality else np.abs(left).max()
        assert spread <= 1e-7 * (1.0 + np.abs(v).max())


def test_the_face_step_keeps_the_equality_row_on_nearly_singular_faces():
    x = np.sort(np.random.default_rng(1).normal(size=(40, 1)), axis=0)
    H = oracle.kernel_matrix("rbf", x, x, 0.05)
    rng = np.random.default_rng(2)
    beta = rng.uniform(10.0, 90.0, 40) * np.where(rng.random(40) < 0.5, 1.0, -1.0)
    lower, upper = np.where(beta > 0, 0.0, -100.0), np.where(beta > 0, 100.0, 0.0)
    after, result = face_step(H, np.zeros(40), beta, rng.normal(size=40), lower, upper, True, 1e-12)
    assert result is FaceResult.MOVED
    assert abs((after - beta).sum()) <= 1e-11


def test_the_face_step_finds_a_face_without_end():
    H = np.ones((3, 3))
    inf = np.full(3, np.inf)
    _, result = face_step(H, np.zeros(3), np.ones(3), np.array([1.0, 0.0, -1.0]), -inf, inf, True, 1e-9)
    assert result is FaceResult.UNBOUNDED


# ---------------------------------------------------------------- runs that once failed


@pytest.mark.filterwarnings("ignore:the tolerance is met but the objective")
@pytest.mark.parametrize("stopping", ["gap", "objective"])
def test_sweeps_without_tolerance_look_at_bound_variables_too(stopping):
    """Platt's rule went round for ever between free variables, exchanging rounding."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        X = np.random.default_rng(seed).normal(size=(40, 1)) * (rng.random((40, 1)) < 0.4)
        y = np.where(rng.random(40) < 0.5, 1.0, -1.0)
        y[:2] = 1.0, -1.0
        solution = svmcore.train_svc(
            X,
            y,
            0.1,
            kernel="poly",
            gamma=1.0,
            solver="smo",
            rule="platt",
            stopping=stopping,
            tol=1e-2,
            max_iter=20_000,
        )
        assert solution.n_iter < 20_000


@pytest.mark.parametrize("rule", smo.RULES)
def test_sums_of_dual_variables_stay_zero_where_faces_are_singular(rule):
    x = np.random.default_rng(3).normal(size=(36, 1))
    with quiet(svmcore.ConvergenceWarning):
        found = svmcore.train_svr(
            x, np.sin(x.sum(axis=1)), 1e5, 0.1, gamma=3.0, solver="smo", rule=rule, tol=1e-3, time_limit=600.0
        )
    assert abs(found.dual_coef.sum()) <= 1e-12 * np.abs(found.dual_coef).sum()


def test_the_running_residual_does_not_drift():
    """Tolerances far below what millions of updates would leave are reached, and measured afresh."""
    rng = np.random.default_rng(8)
    n = 60 if DISABLED else 300
    X = rng.normal(size=(n, 2))
    y = np.sign(X[:, 0] * X[:, 1] + 0.2 * rng.normal(size=n))
    found = svmcore.train_svc(X, y, 100.0, tol=1e-9, gamma=1.0)
    assert found.converged
    qp = formulations.svc(y, np.full(n, 100.0), "hinge", True)
    coef = found.alpha * y
    v = measures.residual(qp, coef, oracle.kernel_matrix("rbf", X, X, 1.0) @ coef)
    assert measures.violation(qp, coef, v) <= 1e-9 + 16.0 * oracle.EPS * found.alpha.sum()


def test_a_trace_longer_than_its_buffer_is_whole(monkeypatch):
    X, y = np.random.default_rng(3).normal(size=(30, 2)), np.arange(30) % 2
    whole = svmcore.train_svc(X, y, 10.0, solver="smo", trace=True).trace
    monkeypatch.setattr(_course, "_TRACE_ROWS", 4)
    pieces = svmcore.train_svc(X, y, 10.0, solver="smo", trace=True).trace
    assert len(whole["objective"]) > 4
    for name, column in whole.items():
        np.testing.assert_array_equal(column, pieces[name])


def test_idle_sweeps_end_the_simplified_rule():
    X, y = np.random.default_rng(4).normal(size=(12, 2)), np.arange(12) % 2
    with quiet(svmcore.ConvergenceWarning):
        found = svmcore.train_svc(X, y, 1.0, solver="smo", rule="simplified", max_passes=1, tol=1e-6)
    patient = svmcore.train_svc(X, y, 1.0, solver="smo", rule="simplified", tol=1e-6)
    assert found.status in (Status.LIMITED, Status.CONVERGED)
    assert found.stats["passes"] <= patient.stats["passes"]
    assert patient.converged


def test_short_slices_change_nothing(monkeypatch):
    X, y = np.random.default_rng(5).normal(size=(30, 2)), np.arange(30) % 2
    long = svmcore.train_svc(X, y, 10.0, solver="smo")
    monkeypatch.setattr(_course, "_SLICE_WORK", 1.0)
    short = svmcore.train_svc(X, y, 10.0, solver="smo")
    assert short.n_iter == long.n_iter
    np.testing.assert_array_equal(short.alpha, long.alpha)
