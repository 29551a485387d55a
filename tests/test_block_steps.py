"""The block solver's inner loops, each against its plain meaning: choices, pair steps, conjugate steps, single ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from repeats import seeds

from svmcore._types import LANES
from svmcore.simd import passes
from svmcore.simd.vector import BIG, BIG_32
from svmcore.solvers import _block_jit, _ends_jit
from svmcore.solvers._block_jit import NONCONVEX, RAY, WorkingSet

pytestmark = pytest.mark.home

M = 6


def working_set(
    H: np.ndarray, values: Any, beta: Any = 0.0, lower: Any = -1.0, upper: Any = 1.0, dtype: Any = np.float64
) -> WorkingSet:
    """Of a matrix, residuals and boxes; the padding holds rubbish until the masks are made."""
    m = len(H)
    gram = np.zeros((m + 1, LANES), dtype)
    gram[:m, :m] = H
    diagonal, padded_values = np.ones(LANES, dtype), np.full(LANES, 7.0, dtype)
    diagonal[:m], padded_values[:m] = np.diag(H), values
    vectors = [np.full(m, float(x)) if np.isscalar(x) else np.array(x, float) for x in (beta, lower, upper)]
    work = WorkingSet(gram, 1.0, diagonal, padded_values, np.empty(LANES, dtype), np.empty(LANES, dtype), *vectors)
    _block_jit.start_masks(work)
    return work


def random_set(
    seed: int, C: float = 0.3, size: int = M, unit: float = 1e-4
) -> tuple[WorkingSet, np.ndarray, np.ndarray]:
    """With its matrix and its linear term, from zero. Values and residuals are small: of this size."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(size, size + 2))
    H, c = A @ A.T / size, unit * rng.normal(size=size)
    up, C = rng.random(size) < 0.5, unit * C
    return working_set(H, c, 0.0, np.where(up, 0.0, -C), np.where(up, C, 0.0)), H, c


def violation(work: WorkingSet, v: np.ndarray, equality: bool) -> float:
    top = np.where(work.beta < work.upper, v, -np.inf).max()
    bottom = np.where(work.beta > work.lower, v, np.inf).min()
    return float(top - bottom if equality else max(top, -bottom))


def test_masks_tell_who_may_move():
    work = working_set(np.eye(4), [1.0, 2.0, 3.0, 4.0], [0.0, -1.0, 1.0, 0.5], -1.0, [1.0, 1.0, 1.0, 0.5])
    assert (work.rise[:4] == [0.0, 0.0, -BIG_32, -BIG_32]).all()
    assert (work.fall[:4] == [0.0, BIG_32, 0.0, 0.0]).all()
    assert (work.rise[4:] == -BIG_32).all()
    assert (work.fall[4:] == BIG_32).all()
    assert (work.values[4:] == 0.0).all()


def test_a_move_lands_on_the_bound_that_it_reaches():
    work = working_set(np.eye(2), [0.0, 0.0], [0.1, 0.1], -0.7, 0.9)
    for step, expected in ((0.25, 0.35), (0.55, 0.9), (-1.5, -0.6), (-0.2, -0.7), (9.0, 0.9), (-9.0, -0.7)):
        _block_jit._move(work, 0, step)
        assert work.beta[0] == pytest.approx(expected, abs=1e-15)
        assert (work.rise[0] == 0.0) == (work.beta[0] < 0.9)
        assert (work.fall[0] == 0.0) == (work.beta[0] > -0.7)
        assert (abs(expected) < 0.7) == (work.beta[0] not in (0.9, -0.7))


def solve(work: WorkingSet, kind: str, stop: float, relax: float = 1.0, most: int = 10_000) -> tuple[int, float, int]:
    tau = 1e-12
    if kind == "conjugate":
        direction = _block_jit.new_direction(work)
        found = _block_jit.conjugate_steps(work, direction, 4, stop, tau, most)
        assert not direction.inside.any()
        return found
    return (_block_jit.single_steps if kind == "single" else _block_jit.pair_steps)(work, stop, relax, tau, most)


@pytest.mark.parametrize("kind", ["pair", "conjugate", "single"])
@pytest.mark.parametrize("C", [0.1, 2.0, np.inf])
@seeds(4)
def test_steps_reach_the_minimum(seed, C, kind):
    work, H, c = random_set(seed, C)
    steps, left, bits = solve(work, kind, 1e-9)
    assert bits == 0
    v = c - H @ work.beta
    assert np.abs(work.values[:M] - v).max() <= 1e-12
    assert left <= 1e-9
    assert violation(work, v, kind != "single") == pytest.approx(left, abs=1e-11)
    assert 0 < steps < 10_000
    if kind != "single":
        assert work.beta.sum() == pytest.approx(0.0, abs=1e-14)
    # each kind goes no further than it is told
    again, _, _ = random_set(seed, C)
    assert solve(again, kind, 1e-9, most=1)[0] == 1
    assert 1 <= np.count_nonzero(again.beta) <= 2
    lenient, H, c = random_set(seed, C)
    fewer, left, _ = solve(lenient, kind, 0.4)
    assert fewer <= steps
    assert left <= 0.4


@pytest.mark.parametrize("kind", ["pair", "single"])
def test_steps_may_be_longer_than_to_the_minimum(kind):
    ends = []
    for relax in (1.0, 1.5):
        work = working_set(2.0 * np.eye(2), [1.0, -1.0])
        assert solve(work, kind, 1e-9, relax, most=1)[0] == 1
        ends.append(np.abs(work.beta).max())
    assert ends == [0.5, 0.75]
    work = working_set(np.eye(2), [1.0, -1.0], 0.0, -0.25, 0.25)
    solve(work, kind, 1e-9, 1.5, most=1)
    assert np.abs(work.beta).max() == 0.25


@pytest.mark.parametrize("kind", ["pair", "conjugate", "single"])
def test_a_matrix_that_is_not_positive_is_told(kind):
    H = np.array([[-1.0, 0.0], [0.0, -1.0]])
    work = working_set(H, [1.0, -1.0])
    steps, _, bits = solve(work, kind, 1e-9)
    assert bits & NONCONVEX
    assert steps == (2 if kind == "single" else 1)
    assert list(work.beta) == [1.0, -1.0]
    # without bounds nothing stops it
    work = working_set(H, [1.0, -1.0], 0.0, -np.inf, np.inf)
    assert solve(work, kind, 1e-9)[::2] == (0, NONCONVEX | RAY)
    assert list(work.beta) == [0.0, 0.0]


@pytest.mark.parametrize("kind", ["pair", "conjugate", "single"])
def test_a_ray_without_end_is_told(kind):
    for bound, bits in ((np.inf, RAY), (1.0, 0)):
        work = working_set(np.zeros((2, 2)), [1.0, -1.0], 0.0, -bound, bound)
        assert solve(work, kind, 1e-9)[2] == bits
        assert list(work.beta) == ([0.0, 0.0] if bits else [1.0, -1.0])


@pytest.mark.parametrize("kind", ["pair", "conjugate", "single"])
def test_steps_end_where_there_is_no_room(kind):
    """Masks that are out of date: the variable is at its bound already."""
    work = working_set(np.eye(3), [1.0, 0.0, -1.0], [1.0, 0.0, 0.0])
    work.rise[0] = 0.0
    steps, left, bits = solve(work, kind, 1e-9)
    assert (steps, left, bits) == (0, 1.0 if kind == "single" else 2.0, 0)
    assert list(work.beta) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["pair", "conjugate", "single"])
@pytest.mark.parametrize("mask", ["rise", "fall"])
def test_steps_end_where_the_padding_is_chosen(mask, kind):
    """Residuals that are no numbers are found nowhere, and a search ends in the padding."""
    work = working_set(np.eye(3), [1.0, 0.0, -1.0])
    work.values[3], getattr(work, mask)[3] = (5.0 if mask == "rise" else -5.0), 0.0
    assert solve(work, kind, 1e-9)[0] == 0
    assert list(work.beta) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["pair", "conjugate", "single"])
def test_not_a_number_ends_the_steps(kind):
    work = working_set(np.eye(3), [np.nan, np.nan, np.nan])
    solve(work, kind, 1e-9, most=5)
    assert (work.beta == 0.0).all()


def test_single_steps_take_the_larger_violation():
    for values, moved in (([1.0, -0.5, 0.2], 0), ([0.5, -0.2, -1.0], 2)):
        work = working_set(np.eye(3), values)
        assert solve(work, "single", 1e-9, most=1)[0] == 1
        assert list(np.flatnonzero(work.beta)) == [moved]
        assert work.beta[moved] == values[moved]


def test_single_steps_are_cut_by_either_bound():
    work = working_set(np.eye(2), [3.0, -4.0], 0.0, -0.5, 0.25)
    steps, left, _ = solve(work, "single", 1e-9)
    assert (steps, left) == (2, -2.75)  # neither wants to go back
    assert list(work.beta) == [0.25, -0.5]


# ---------------------------------------------------------------- conjugate directions


def direction_of(work: WorkingSet, coef: dict[int, float]) -> tuple[_block_jit.Direction, int]:
    direction = _block_jit.new_direction(work)
    for k, (q, value) in enumerate(coef.items()):
        direction.members[k], direction.coef[q], direction.inside[q] = q, value, True
    return direction, len(coef)


@pytest.mark.parametrize(("keep", "members"), [(0.5, {2, 4, 1}), (0.0, {2, 1})])
def test_a_direction_turns(keep, members):
    work = working_set(np.eye(M), np.zeros(M))
    direction, count = direction_of(work, {2: 1.0, 4: -3.0})
    count = _block_jit._turn(direction, count, keep, 1, 2)
    assert set(direction.members[:count]) == members
    assert {q for q in range(M) if direction.inside[q]} == members
    expected = keep * np.array([0, 0, 1.0, 0, -3.0, 0]) + np.array([0, 1.0, -1.0, 0, 0, 0])
    assert all(direction.coef[q] == expected[q] for q in members)


@seeds(40)
def test_whether_a_step_along_a_direction_fits(seed):
    rng = np.random.default_rng(seed)
    work = working_set(np.eye(M), np.zeros(M), rng.uniform(-0.9, 0.9, M))
    old = dict.fromkeys(rng.permutation(M)[:3], 0.0) | {}
    direction, count = direction_of(work, {int(q): float(rng.normal()) for q in old})
    keep, step = float(rng.normal()), float(rng.uniform(0.0, 0.8))
    i, j = (int(q) for q in rng.permutation(M)[:2])
    move = keep * np.where(direction.inside, direction.coef, 0.0)
    move[i] += 1.0
    move[j] -= 1.0
    expected = bool((np.abs(work.beta + step * move) < 1.0).all())
    assert _block_jit._fits(work, direction, count, keep, i, j, step) == expected


def test_conjugate_steps_end_at_once_where_no_bound_is_met():
    """A quadratic in k dimensions takes k steps, whatever its shape; pair steps take many more."""
    rng = np.random.default_rng(5)
    A = rng.normal(size=(4, 6))
    H, c = A @ A.T, 1e-3 * rng.normal(size=4)
    taken = {}
    for kind in ("pair", "conjugate"):
        work = working_set(H, c, 0.0, -9.0, 9.0)
        taken[kind], left, _ = solve(work, kind, 1e-12)
        assert left <= 1e-12
        assert np.ptp(c - H @ work.beta) <= 1e-12
    assert taken["conjugate"] < taken["pair"]


# ---------------------------------------------------------------- the choice of a working set


@seeds(4)
def test_extremes(seed):
    rng = np.random.default_rng(seed)
    v, place = rng.normal(size=9), rng.integers(0, 3, 9)
    beta = np.array([-1.0, 0.0, 1.0])[place]
    high, low, free = _block_jit.extremes(v, beta, np.full(9, -1.0), np.full(9, 1.0))
    assert high == max(v[place < 2], default=-BIG)
    assert low == min(v[place > 0], default=BIG)
    assert free == (place == 1).sum()


def test_extremes_of_variables_that_cannot_move():
    fixed = np.zeros(3)
    assert _block_jit.extremes(np.ones(3), fixed, fixed, fixed) == (-BIG, BIG, 0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_candidates(sign):
    v = np.array([0.5, 2.0, -3.0, 1.0, -1.0, 2.0, 4.0])
    beta, bound = np.zeros(7), np.array([1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    taken = np.array([False, False, False, False, False, False, True])
    keys, ids = np.empty(8), np.empty(8, np.int64)
    count = _block_jit.candidates(v, beta, bound, sign, 0.5, taken, keys, ids)
    expected = {1: -2.0, 5: -2.0} if sign > 0 else {2: -3.0, 4: -1.0}
    assert dict(zip(ids[:count], keys[:count], strict=True)) == expected
    assert list(ids[:count]) == list(expected)


@pytest.mark.parametrize("unit", [1.0, 0.25])
def test_a_working_set_begins_with_its_variables_and_says_what_has_changed(unit):
    rng = np.random.default_rng(3)
    beta, lower, upper = np.array([0.0, 0.5, 1.0, -1.0, 0.25]), np.full(5, -1.0), np.full(5, 1.0)
    v, variables, width = rng.normal(size=5), np.array([1, 2, 3, 4]), 64
    gram = np.zeros((5, width))
    gram[:4, :4] = rng.normal(size=(4, 4))
    work = WorkingSet(gram, unit, *np.full((4, width), 7.0), *np.full((3, 4), 7.0))
    _block_jit.fill(work, v, 0.125, variables, beta, lower, upper)
    assert np.array_equal(work.values[:4], v[1:] - 0.125)
    assert np.array_equal(work.diagonal[:4], unit * np.diag(gram[:4, :4]))
    assert (work.diagonal[4:] == 1.0).all()
    assert (work.values[4:] == 0.0).all()
    assert np.array_equal(work.rise[:5] == 0.0, [True, False, True, True, False])
    assert np.array_equal(work.fall[:5] == 0.0, [True, True, False, True, False])
    for mine, all_ in ((work.beta, beta), (work.lower, lower), (work.upper, upper)):
        assert np.array_equal(mine, all_[1:])
    work.beta[:] = 1.0, 1.0, -0.5, 0.25
    for k in range(4):
        _block_jit.set_masks(work, k)
    changed, steps, order = np.full(4, -1), np.zeros(4), np.full(4, -1)
    assert _block_jit.outcome(work, variables, beta, changed, steps, order) == (2, 2)
    assert list(changed[:2]) == [1, 3]
    assert list(steps[:2]) == [0.5, 0.5]
    assert list(order) == [3, 4, 1, 2]


@pytest.mark.parametrize(
    ("beta", "bias"),
    [([0.5, 1.0, -1.0], 2.0), ([-1.0, 1.0, -1.0], 1.0), ([-1.0, -1.0, -1.0], 3.0), ([1.0, 1.0, 1.0], -1.0)],
)
def test_the_bias_is_that_of_free_variables_or_the_middle(beta, bias):
    v = np.array([2.0, -1.0, 3.0])
    work = working_set(np.eye(3), v, beta)
    assert _ends_jit.bias_of(v, work)[2] == bias


def test_the_bias_of_variables_that_cannot_move_is_zero():
    work = working_set(np.eye(2), [1.0, 2.0], 0.0, 0.0, 0.0)
    assert _ends_jit.bias_of(work.values[:2].astype(np.float64), work) == (-BIG, BIG, 0.0)


@pytest.mark.parametrize("unit", [1.0, 1e-4])
@seeds(12)
def test_what_each_pass_means(seed, unit):
    """The loops that compiled passes are compared with, in other words: one variable after the other."""
    rng = np.random.default_rng(seed)
    m = 12
    A = rng.normal(size=(m, m))
    gram = A @ A.T / unit
    values, along = unit * rng.normal(size=m), unit * rng.normal(size=m)
    rise, fall = 1e9 * unit * np.where(rng.random((2, m)) < 0.2, [[-1.0], [1.0]], 0.0)
    diagonal, inverse, tau, i = unit * np.diag(gram), 0.8 / unit**2, 1e-12, int(np.argmax(values))
    gains, conjugate = [], []
    for j in range(m):
        slope = max(values[i] - values[j] - fall[j], 0.0)
        curvature = diagonal[i] + diagonal[j] - 2.0 * unit * gram[i, j]
        gains.append(slope**2 / max(curvature, tau))
        conjugate.append(slope**2 / max(curvature - inverse * (along[i] - along[j]) ** 2, tau))
    assert passes._best_partner(values, gram, i, unit, i, diagonal, tau, fall) == int(np.argmax(gains))
    assert passes._best_conjugate(values, along, inverse, gram, unit, i, diagonal, tau, fall) == int(
        np.argmax(conjugate)
    )
    direction = 0.25 * along + unit * (gram[1] - gram[4])
    after = values - 0.5 * direction
    found = passes._update_along(values, along, gram, unit, 1, 4, 0.25, 0.5, rise, fall)
    assert along == pytest.approx(direction, rel=1e-12)
    assert values == pytest.approx(after, rel=1e-9, abs=1e-15)
    assert found == (int(np.argmax(after + rise)), pytest.approx(max(after + rise)), pytest.approx(min(after + fall)))
    after = values - 0.5 * (gram[1] - gram[4])
    found = passes._update_pair(values, gram, 1, 4, 0.5, rise, fall)
    assert values == pytest.approx(after, rel=1e-12)
    assert found == (int(np.argmax(after + rise)), pytest.approx(max(after + rise)), pytest.approx(min(after + fall)))
