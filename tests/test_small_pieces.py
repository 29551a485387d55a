"""The pieces of the engine of small problems: steps on two sides, and of all free variables at once."""

from __future__ import annotations

import numpy as np
import pytest
from repeats import seeds

from svmcore._types import LANES
from svmcore.compiler.jit import DISABLED
from svmcore.simd.vector import BIG_32
from svmcore.solvers import _block_jit as block_pieces
from svmcore.solvers import _shares_jit
from svmcore.solvers import _small_jit as pieces

pytestmark = pytest.mark.home

apart = getattr(_shares_jit.sides_apart, "py_func", _shares_jit.sides_apart)  # compiled code hands no arrays to Python


def sides(K, values, beta, lower=None, upper=None):
    """Variables over a matrix of their own, in a box of size 1 above zero; the other lanes have no variable."""
    n = len(beta)
    floats, rows = np.zeros((4, LANES), np.float32), np.zeros((n + 1, LANES), np.float32)
    floats[1, :n] = values
    below = np.full(LANES, -BIG_32, np.float32), np.full(LANES, BIG_32, np.float32)
    slot, filled = np.full(n, -1), np.zeros(1, np.int64)
    face = np.zeros((2, pieces.FACE), np.int64), np.zeros((pieces.FACE + 3, pieces.FACE))
    desk = pieces.Desk(rows, *floats, *below, slot, filled, np.zeros(n + 1, np.int64), np.zeros(10), np.zeros(n), *face)
    box = np.zeros(n) if lower is None else lower, np.ones(n) if upper is None else upper
    work = block_pieces.WorkingSet(rows, 1.0, *floats, beta, *box)
    work.diagonal[:n] = K.diagonal()
    return work, apart(work, desk), desk, pieces.Copied(K, np.array([[0, n]]), np.arange(n), np.zeros(n), slot, filled)


def test_the_sum_of_a_side_is_put_right_by_the_variable_with_most_room():
    beta, lower, upper = (
        np.array([0.2, -0.1, 0.55, -0.6]),
        np.array([0.0, -1.0, 0.0, -1.0]),
        np.array([1.0, 0.0, 1.0, 0.0]),
    )
    floats = np.zeros((4, LANES), np.float32)
    work = block_pieces.WorkingSet(floats, 1.0, *floats, beta, lower, upper)
    assert _shares_jit._repair_side(work, True, 0.8) == pytest.approx(0.75)
    assert _shares_jit._repair_side(work, False, -0.9) == pytest.approx(-0.7)
    assert beta == pytest.approx([0.2, -0.1, 0.6, -0.8])
    _shares_jit._repair_side(work, True, 5.0)  # more than it has room for
    assert beta == pytest.approx([0.2, -0.1, 0.6, -0.8])


def test_a_negative_curvature_ends_at_a_bound_and_is_told():
    work, below, _, source = sides(np.array([[0.0, 2.0], [2.0, 0.0]]), [1.0, 0.0], np.array([0.25, 0.5]))
    steps, bits = _shares_jit.steps_on_sides(work, below, 1e-3, 1, source)
    assert (steps, bits) == (1, block_pieces.NONCONVEX)
    assert work.beta.tolist() == [0.75, 0.0]


def test_where_nothing_can_be_gained_no_step_is_taken():
    work, below, _, source = sides(np.eye(2), [0.5, 0.5], np.array([0.25, 0.5]))
    assert _shares_jit.steps_on_sides(work, below, -1.0, 5, source) == (0, 0)


@pytest.mark.skipif(not DISABLED, reason="numpy's largest value of some with NaN is NaN, that of instructions is any")
def test_a_partner_that_is_no_variable_ends_the_steps():
    work, below, _, source = sides(np.eye(2), [0.5, 0.0], np.array([0.25, 0.5]))
    work.diagonal[5] = np.nan
    assert _shares_jit.steps_on_sides(work, below, 1e-3, 5, source) == (0, 0)


plain = pytest.mark.skipif(not DISABLED, reason="compiled code is asked for whole machines")


@plain
@pytest.mark.parametrize("unit", [1.0, 1e-4])
@seeds(6)
def test_steps_on_two_sides_end_at_the_optimum_of_each_with_its_sum(seed, unit):
    rng = np.random.default_rng(seed)
    n = 9
    A = rng.normal(size=(n, n + 2))
    K, c, above = A @ A.T / n, unit * rng.normal(size=n), np.arange(n) % 2 == 0
    lower, upper = np.where(above, 0.0, -0.5 * unit), np.where(above, 0.5 * unit, 0.0)
    beta = lower + (upper - lower) * rng.choice([0.0, 0.3, 0.6, 1.0], n)
    sums = beta[above].sum(), beta[~above].sum()
    work, below, _, source = sides(K, c - K @ beta, beta, lower, upper)
    steps, bits = _shares_jit.steps_on_sides(work, below, 1e-5 * unit, 1000, source)
    assert (0 < steps < 1000, bits) == (True, 0)
    assert (beta[above].sum(), beta[~above].sum()) == pytest.approx(sums, abs=1e-14)
    v = c - K @ beta
    assert work.values[:n] == pytest.approx(v, abs=1e-5 * unit)
    for side in (above, ~above):
        top, bottom = v[side & (beta < upper)].max(initial=-np.inf), v[side & (beta > lower)].min(initial=np.inf)
        assert top - bottom <= 3e-5 * unit
    again = sides(K, c - K @ beta, beta.copy(), lower, upper)
    assert _shares_jit.steps_on_sides(again[0], again[1], 3e-5 * unit, 1000, again[3])[0] == 0


@plain
@pytest.mark.parametrize("share", [0.2, 0.7])
@seeds(4)
def test_a_start_fills_boxes_in_turn_until_either_side_has_its_share(seed, share):
    rng = np.random.default_rng(seed)
    width, above = rng.uniform(0.5, 2.0, 8), np.arange(8) % 2 == 0
    lower, upper, beta = np.where(above, 0.0, -width), np.where(above, width, 0.0), np.full(8, 7.0)
    work = sides(np.eye(8), np.zeros(8), beta, lower, upper)[0]
    assert _shares_jit._filled(work, share) == pytest.approx((upper.sum(), -lower.sum(), width.max()))
    for side in (above, ~above):
        before = np.cumsum(width[side]) - width[side]
        wanted = np.clip(0.5 * share * width.sum() - before, 0.0, width[side])
        assert np.abs(beta[side]) == pytest.approx(wanted)
    assert ((lower <= beta) & (beta <= upper)).all()


@plain
def test_a_machine_without_a_variable_at_its_bound_is_that_of_larger_costs():
    """`least` over the sum is its 1 / C, as long as all variables stay inside of that box, too."""
    beta, own = np.array([0.25, 0.0, -0.5]), np.array([1.0, 1.0, 2.0])  # widths of boxes at C = 1
    boxes = _shares_jit.Shares(0.3, 1.0, np.array([0.0, 0.0, -2.0]), np.array([1.0, 1.0, 0.0]), np.zeros(3))
    for scale, least, found in ((1.0, 0.3, 0.4), (1.0, 3.0, 4.0 * 0.75), (1.0, 3.1, 0.0), (0.25, 0.3, 0.0)):
        work = sides(np.eye(3), np.zeros(3), beta.copy(), scale * boxes.lower, scale * boxes.upper)[0]
        total, inverse = _shares_jit._free_at(work, boxes, least)
        assert total == 0.75
        most = (np.abs(beta) / own).max()
        inside = (np.abs(beta) < scale * own)[beta != 0.0].all() and least * most <= total
        assert inverse == pytest.approx(least / total if inside else 0.0)
        assert (inverse > 0.0) == (found > 0.0)
    assert _shares_jit._free_at(work._replace(beta=np.zeros(3)), boxes, 0.3) == (0.0, 0.0)


def face(K, beta, lower, upper, diag=0.0):
    """Variables over a matrix of their own, with room for a step of those that are free."""
    n = len(beta)
    work, _, desk, source = sides(K[:2, :2], [0.0, 0.0], np.zeros(2))
    work = work._replace(beta=beta.copy(), lower=lower, upper=upper)
    dual = pieces.Dual(np.zeros(n), np.full(n, diag), 0.0, np.zeros(n), np.zeros(pieces.TOLD))
    return work, desk, source._replace(gram=K, point=np.arange(n)), dual


@pytest.mark.parametrize("apart", [False, True])
@seeds(10)
def test_free_variables_move_together_to_their_optimum_or_to_the_first_bound(seed, apart):
    rng = np.random.default_rng(seed)
    n = 12
    X = rng.normal(size=(n, 4))
    K = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(-1))
    above = np.arange(n) % (2 if seed % 2 else n) != 0  # or one variable alone is below
    lower, upper = np.where(above, 0.0, -1.0), np.where(above, 1.0, 0.0)
    beta = 0.5 * (lower + upper)
    beta[2], beta[5] = upper[2], lower[5]
    free = (lower < beta) & (beta < upper)
    work, desk, source, dual = face(K, beta, lower, upper)
    dual.v[:] = (1e-3 if seed < 5 else 1.0) * rng.normal(size=n)
    length = pieces._on_face(source, work, dual, desk, apart)
    rows = [above[free] * 1.0, 1.0 - above[free]] if apart else [np.ones(free.sum())]
    E, k = np.array(rows), free.sum()
    system = np.block([[K[np.ix_(free, free)], E.T], [E, np.zeros((len(E), len(E)))]])
    way = np.linalg.solve(system, np.r_[dual.v[free], np.zeros(len(E))])[:k]
    room = np.where(way > 0, upper[free] - beta[free], beta[free] - lower[free]) / np.abs(way)
    assert length == pytest.approx(min(1.0, room.min()), rel=1e-6)
    np.testing.assert_allclose(work.beta[free] - beta[free], length * way, atol=1e-9 * np.abs(way).max())
    np.testing.assert_array_equal(work.beta[~free], beta[~free])
    if length < 1.0:
        at = np.flatnonzero(free)[room.argmin()]
        assert work.beta[at] in (lower[at], upper[at])


def almost_alike():
    """Two variables whose sums cannot be told apart."""
    work, desk, _, dual = face(np.eye(2), np.array([0.5, -0.5]), np.array([0.0, -1.0]), np.array([1.0, 0.0]))
    desk.face[1, :2] = 0, 1
    desk.factor[0, 0], desk.factor[1, :2] = 1.0, (1.0, 1e8)
    return work, dual.v, desk, 2


def test_free_variables_that_cannot_move_together_stay():
    n = pieces.FACE + 1
    many, box = np.full(n, 0.5), (np.zeros(n), np.ones(n))
    rank_one = np.ones((4, 4))
    twice = np.kron(np.eye(2), np.ones((2, 2)))
    for K, beta, (lower, upper), diag, moved in (
        (np.eye(n), many, box, 0.0, False),
        (np.eye(n)[1:, 1:], many[1:], (box[0][1:], box[1][1:]), 0.0, True),
        (np.eye(4), many[:4], (np.zeros(4), np.ones(4)), 0.1, False),
        (np.eye(4), np.array([0.5, 0.0, 1.0, 0.0]), (np.zeros(4), np.ones(4)), 0.0, False),
        (np.eye(4), np.array([1.0, 0.0, 1.0, 0.0]), (np.zeros(4), np.ones(4)), 0.0, False),
        (rank_one, many[:4], (np.zeros(4), np.ones(4)), 0.0, False),
        (twice, many[:4], (np.zeros(4), np.ones(4)), 0.0, True),
        (np.zeros((4, 4)), many[:4], (np.zeros(4), np.ones(4)), 0.0, False),
    ):
        work, desk, source, dual = face(K, beta, lower, upper, diag)
        dual.v[:] = np.linspace(-0.1, 0.1, len(beta))
        assert (pieces._on_face(source, work, dual, desk, False) > 0.0) == moved
        assert np.array_equal(work.beta, beta) != moved
        if moved:
            assert work.beta.sum() == pytest.approx(beta.sum(), abs=1e-12)
    assert not pieces._way_of_face(*almost_alike(), True)
