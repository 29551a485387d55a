"""Machines between classes, over points near the margin: what is said of an answer is the truth, or nothing is said."""

from __future__ import annotations

import math

import numpy as np
import pytest
from repeats import seeds

from svmcore._types import LANES, Kernel, KernelKind
from svmcore.compiler.jit import DISABLED
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.tiles import make_tiles
from svmcore.problem import formulations
from svmcore.problem.certify import certificate
from svmcore.simd.vector import BIG
from svmcore.solvers import _near
from svmcore.solvers import _near_jit as jit

pytestmark = pytest.mark.home

KERNELS = {KernelKind.RBF: (0.5, 0.0), KernelKind.LAPLACIAN: (0.4, 0.0), KernelKind.POLY: (0.1, 1.0)}


def points(n, k=3, seed=7):
    """Classes in blobs that overlap a little, with weights, some of them zero."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, k, n)
    X = rng.normal(size=(n, 3)) + 1.5 * np.array([[c, -c, c % 2] for c in codes])
    weight = rng.uniform(0.5, 1.5, n)
    weight[::11] = 0.0
    return X, codes, weight


def room_of(X, codes, weight, kind=KernelKind.RBF, most_bytes=1 << 24):
    gamma, coef0 = KERNELS[kind]
    K = KernelMatrix(X, Kernel(int(kind), gamma, coef0, 2, 0.0), cache_bytes=1 << 24)
    return K, _near.Room(_near.Classes(K, make_tiles(K, centred=True), codes, int(codes.max()) + 1, weight), most_bytes)


def said_and_true(K, codes, weight, minus, plus, cost, support, found):
    """The certificate of what was found, and the dual problem."""
    rows = np.flatnonzero(np.isin(codes, minus + plus))
    signs = np.where(np.isin(codes[rows], plus), 1.0, -1.0)
    qp = formulations.svc(signs, cost * weight[rows], "hinge", True)
    qp = qp._replace(point=rows[qp.point])
    coef = np.zeros(K.n)
    coef[support] = found.beta
    beta = coef[qp.point]
    assert np.count_nonzero(beta) == len(support)
    assert formulations.balanced(qp, beta) is beta
    return certificate(qp, K, beta)


@pytest.mark.parametrize("tol", [1e-3, *(pytest.param(tol, marks=pytest.mark.ci) for tol in (1e-2, 1e-7))])
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if DISABLED or k != KernelKind.LAPLACIAN else pytest.mark.ci) for k in KERNELS]
)
@pytest.mark.parametrize("sides", [((0,), (2,)), ((0, 2), (1,)), ((1, 2), (0,))], ids=str)
def test_all_that_is_said_is_what_the_certificate_says(sides, kind, tol):
    X, codes, weight = points(220)
    K, room = room_of(X, codes, weight, kind)
    support, found = room.solve(*sides, 3.0, tol)
    full = said_and_true(K, codes, weight, *sides, 3.0, support, found)
    assert found.violation <= tol
    assert (np.diff(support) > 0).all()
    size = np.abs(found.beta).sum() * float(K.diagonal.max())
    for mine, exact in (
        (found.violation, full.kkt_violation),
        (found.bias, full.intercept),
        (found.objective, full.objective),
        (found.gap, full.gap),
    ):
        assert mine == pytest.approx(exact, rel=1e-11, abs=1e-13 * max(1.0, size))


@pytest.mark.compiled
@pytest.mark.parametrize("large", [False, True])
def test_far_points_are_told_and_looked_at_again(large, monkeypatch):
    """A sample knows little: the next turns find what it missed, and only few residuals are computed in float64."""
    monkeypatch.setattr(_near, "_SAMPLE", 64)
    monkeypatch.setattr(_near, "_MEMBERS", 1024)
    monkeypatch.setattr(_near, "_LARGE", 0 if large else 10**9)
    monkeypatch.setattr(_near, "from_all", None)
    X, codes, weight = points(3000)
    K, room = room_of(X, codes, weight)
    for sides in (((0,), (1,)), ((0, 1), (2,))):
        support, found = room.solve(*sides, 10.0, 1e-4)
        assert found.n_rounds >= 3
        assert found.certificate_evals < 0.6 * len(support) * len(X)
        full = said_and_true(K, codes, weight, *sides, 10.0, support, found)
        assert found.violation == pytest.approx(full.kkt_violation, abs=1e-11)
        assert found.gap == pytest.approx(full.gap, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("sides", [((0,), (2,)), ((0, 2), (1,))], ids=str)
def test_what_fits_begins_with_all_and_ends_in_a_strip(sides, monkeypatch):
    """Few of the points are near the margin. Rows of all points are computed for support vectors, and hardly for others."""
    monkeypatch.setattr(_near, "turn", None)
    X, codes, weight = points(1400)
    K, room = room_of(2.0 * X, codes, weight)
    support, found = room.solve(*sides, 10.0, 1e-3)
    full = said_and_true(K, codes, weight, *sides, 10.0, support, found)
    size = np.isin(codes, sides[0] + sides[1]).sum()
    assert found.n_rounds > 1
    assert found.n_evals < 2.0 * len(support) * size
    assert found.certificate_evals < 0.7 * len(support) * size
    assert found.violation == pytest.approx(full.kkt_violation, abs=1e-11)
    assert found.gap == pytest.approx(full.gap, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("width", [0.1, 0.2])
def test_whole_rows_make_way_where_there_is_no_room(width, monkeypatch):
    """Nearly all points are at their bounds, so that the first steps fill the room. Few are near the margin, or some are."""
    monkeypatch.setattr(_near, "_WIDTH_ALL", width)
    X, codes, weight = points(330, k=2)
    weight[weight > 0.0] = 1.0
    K, room = room_of(X, codes, weight)
    size = len(room.work.gram) - 1
    support, found = room.solve((0,), (1,), 0.01, 1e-3)
    said_and_true(K, codes, weight, (0,), (1,), 0.01, support, found)
    assert found.violation <= 1e-3
    assert len(support) > 0.8 * len(X)
    assert found.n_evals == (2 if width > 0.1 else 1) * len(support) * size


@pytest.mark.compiled
def test_what_is_crowded_is_given_up_early(monkeypatch):
    """Labels of chance: most points are at their bounds, and no strip along the margin is thin."""
    monkeypatch.setattr(_near, "_MEMBERS", 256)
    X, _, weight = points(4000)
    codes = np.random.default_rng(0).integers(0, 2, 4000)
    _, room = room_of(X, codes, weight)
    turns = []
    turn = _near.turn
    monkeypatch.setattr(_near, "turn", lambda *task: turns.append(1) or turn(*task))
    assert room.solve((0,), (1,), 0.1, 1e-3) is None
    assert len(turns) == 1


@pytest.mark.parametrize("most_bytes", [1 << 24, 4 * LANES**2])
def test_a_side_without_weight_has_no_machine(most_bytes):
    X, codes, weight = points(90)
    _, room = room_of(X, codes, np.where(codes == 1, 0.0, weight), most_bytes=most_bytes)
    assert room.solve((0,), (1,), 1.0, 1e-3) is None


def test_a_room_is_used_again_and_forgets():
    X, codes, weight = points(200)
    _, room = room_of(X, codes, weight)
    rows, first = room.solve((0,), (1,), 2.0, 1e-5)
    room.solve((0, 1), (2,), 50.0, 1e-5)
    same, again = room.solve((0,), (1,), 2.0, 1e-5)
    assert np.array_equal(rows, same)
    assert np.array_equal(first.beta, again.beta)
    assert first[1:] == again[1:]


def everyone(v, beta, upper):
    """The variables of one panel: all may grow to `upper` from zero."""
    n = len(v)
    return jit.Everyone(beta, v, np.ones(n), np.zeros(n), upper, np.zeros(n), np.empty(n), np.empty(n, np.int64))


def test_the_strip_becomes_narrow_where_many_points_are_near():
    n = 4 * LANES
    v = np.linspace(-1.0, 1.0, n)
    one, members = everyone(v, np.zeros(n), np.ones(n)), np.empty(n, np.int64)
    for width, most in ((2.0, n), (0.5, n), (0.5, 2 * n // 3), (1.0, int(0.55 * n))):
        count = jit.choose(one, 0.0, width, most, members)
        narrow = next(w for w in (width / 2**k for k in range(9)) if (v >= -w).sum() <= most)
        assert members[:count].tolist() == np.flatnonzero(v >= -narrow).tolist()


def test_some_of_too_many_violators_are_taken_and_all_that_have_a_coefficient():
    n = 4 * LANES
    beta = np.where(np.arange(n) % 8 == 0, 0.5, 0.0)
    one, members = everyone(np.ones(n), beta, np.ones(n)), np.empty(n, np.int64)
    most = n // 2
    count = jit.choose(one, 0.0, 0.3, most, members)
    chosen = members[:count]
    assert n // 4 < count <= most
    assert set(np.flatnonzero(beta)) <= set(chosen.tolist())
    assert (np.diff(chosen) > 0).all()
    crowded = everyone(np.ones(n), np.full(n, 0.5), np.ones(n))
    assert jit.choose(crowded, 0.0, 0.3, most, members) == n  # no room: that is the answer


plain = pytest.mark.skipif(not DISABLED, reason="compiled code is asked for whole machines")


@plain
@pytest.mark.parametrize("unit", [1.0, 1e-4])
@pytest.mark.parametrize("count", [LANES - 5, 2 * LANES])
@seeds(3)
def test_members_enter_with_their_boxes_and_their_residuals_from_the_middle(seed, count, unit):
    rng = np.random.default_rng(seed)
    X, codes, weight = points(200, k=2)
    _, room = room_of(X, codes, weight)
    own, lanes, sides = room.classes.part((0,), (1,))
    one = room._begin(lanes, sides, unit)
    one.beta[:] = rng.choice([0.0, 0.4, 1.0], len(lanes)) * (one.lower + one.upper)
    one.v[:] = unit * rng.normal(size=len(lanes))
    members = np.sort(rng.permutation(len(lanes))[:count])
    size = 2 * LANES
    part, lines = jit._first(room.work, room.few, size)
    top = one.v[members][one.beta[members] < one.upper[members]].max()
    bottom = one.v[members][one.beta[members] > one.lower[members]].min()
    assert jit._enter(own, one, members, count, part) == top - bottom
    for mine, all_ in ((part.beta, one.beta), (part.lower, one.lower), (part.upper, one.upper)):
        assert np.array_equal(mine[:count], all_[members])
        assert not mine[count:].any()
    assert part.values[:count] == pytest.approx(one.v[members] - 0.5 * (top + bottom), rel=1e-6, abs=1e-6 * unit)
    assert not part.values[count:].any()
    assert (part.rise[:count] == 0.0).tolist() == (part.beta[:count] < part.upper[:count]).tolist()
    assert (part.fall[:count] == 0.0).tolist() == (part.beta[:count] > part.lower[:count]).tolist()
    assert (part.rise[count:] < 0.0).all()
    assert np.array_equal(part.diagonal[:count], own.diagonal[members].astype(np.float32))
    jit._forget(lines, 3)
    assert (lines.slot == -1).all()
    assert lines.filled[0] == 3


@plain
@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("bias", [-0.6, 0.1, 0.7])
@seeds(4)
def test_residuals_that_may_decide_are_those_of_support_vectors_and_beyond_an_end_or_the_bias(seed, bias, every):
    rng = np.random.default_rng(seed)
    n, high, low, error = 2 * LANES, 0.5, -0.3, 0.05
    upper = np.where(rng.random(n) < 0.2, 0.0, 1.0)
    beta = upper * rng.choice([0.0, 0.0, 0.5, 1.0], n)
    one = everyone(rng.normal(size=n), beta, upper)
    grows = (beta < upper) & (one.v >= min(high, bias) - error)
    shrinks = (beta > 0.0) & (one.v <= max(low, bias) + error)
    wanted = np.flatnonzero((beta != 0.0) | grows | shrinks | every)
    count, support = jit._decisive(one, high, low, bias, error, every)
    assert one.chosen[:count].tolist() == wanted.tolist()
    assert support == np.count_nonzero(beta)


def test_more_support_vectors_than_there_is_room_for_are_told():
    X, codes, weight = points(150)
    _, room = room_of(X, codes, weight)
    n = 4 * LANES
    one = everyone(np.ones(n), np.full(n, 0.5), np.ones(n))
    classes, small = room.classes, room.packed._replace(coef=np.zeros(n))
    found = jit.finish(classes.shape, classes.points, one, small, 1.0, 1.0, 1.0, 0.0, True)
    assert tuple(found) == (0, n, BIG, -BIG, 0.0, 0.0, 0.0)


def test_a_small_cache_is_a_small_room():
    """Kernel values take no more than they may; where that is too little for a machine, nothing is said."""
    X, codes, weight = points(700)
    wide = room_of(X, codes, weight)[1]
    for most in (1, 4 * LANES**2, 4 * (3 * LANES) ** 2):
        room = room_of(X, codes, weight, most_bytes=most)[1]
        width = max(LANES, math.isqrt(most // 4))
        assert len(room.members) == width if most > 1 else len(room.members) <= width
        found = room.solve((0,), (1,), 3.0, 1e-3)
        if found is not None:
            assert found[1].violation <= 1e-3
            assert found[1].objective == pytest.approx(wide.solve((0,), (1,), 3.0, 1e-3)[1].objective, rel=1e-4)
    assert found is not None
    assert room_of(X, codes, weight, most_bytes=1)[1].solve((0,), (1,), 3.0, 1e-3) is None


@pytest.mark.parametrize("most", [8, 64, 4 * LANES])
def test_a_sample_has_points_of_both_sides_at_equal_distances(most):
    """Points that cannot move are left out. A room that is full takes no more."""
    X, codes, weight = points(4 * LANES, k=2)
    weight = np.where(np.arange(4 * LANES) % 3 == 0, 0.0, 1.0)
    room = room_of(X, codes, weight, most_bytes=4 * LANES**2)[1]
    _, lanes, sides = room.classes.part((0,), (1,))
    one = room._begin(lanes, sides, 2.0)
    assert np.array_equal(one.upper - one.lower, 2.0 * room.classes.weight)
    minus, plus = (np.flatnonzero((room.classes.weight > 0.0) & (sides == side)) for side in (-1.0, 1.0))
    expected = np.concatenate([side[:: max(1, 2 * len(side) // most)] for side in (minus, plus)])[: len(room.members)]
    assert room.members[: room._sample(one, most)].tolist() == expected.tolist()
    one.upper[:] = 0.0
    assert room._sample(one, most) == 0


def test_steps_kernel_values_and_changes_are_counted(monkeypatch):
    """The first turn ends early, and the others are of the kind that computes the rows of its members only."""
    X, codes, weight = points(200, k=2)
    _, room = room_of(X, codes, weight)
    size, first, told, looked = len(room.one.beta), [], [], []
    from_all, turn, finish = jit.from_all, jit.turn, jit.finish

    def noted(*task):
        before = room.one.beta.copy()
        answer = turn(*task)
        told.append((answer, int(room.few.filled[0]) * task[4], room.one.beta - before))
        return answer

    monkeypatch.setattr(_near, "_TURNS_ALL", 1)
    monkeypatch.setattr(_near, "_ROUGH_ALL", 0.95)
    monkeypatch.setattr(_near, "finish", lambda *task: looked.append(finish(*task)) or looked[-1])
    monkeypatch.setattr(_near, "from_all", lambda *task: first.append(from_all(*task)) or first[-1])
    monkeypatch.setattr(_near, "turn", noted)
    _, found = room.solve((0,), (1,), 1.0, 1e-6)
    assert told
    assert found.n_iter == first[0][0] + sum(answer[0] for answer, _, _ in told)
    assert found.n_rounds == first[0][6] + len(told)
    assert found.n_evals == first[0][1] + sum(answer[1] * size + rows for answer, rows, _ in told)
    assert found.certificate_evals > looked[0][0] * looked[0][1] > 0
    for answer, _, change in told:
        assert answer[1] == np.count_nonzero(change)
        assert answer[2] == pytest.approx(np.abs(change).sum(), rel=1e-12)
