"""The loops of many small problems, each beside its plain meaning. These tests may be deleted with the loops."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import pytest
from repeats import seeds

from svmcore._types import LANES, Kernel, KernelKind
from svmcore.compiler.jit import DISABLED
from svmcore.kernel.points import new_scratch
from svmcore.solvers import _crowd, _crowd_forms_jit, _crowd_jit, _crowd_pairs_jit, _crowd_sets_jit

pytestmark = pytest.mark.home

plain = pytest.mark.skipif(not DISABLED, reason="compiled code is asked for whole machines")
SEEDS = range(6 if DISABLED else 12)
N = 17


def scene(seed: int, epsilon: float = 0.0, cost: float = 1.0, unit: float = 1.0):
    """A task somewhere in its box: at bounds, at zero, and between; the sum of beta is zero. K is in this unit."""
    rng = np.random.default_rng([seed, int(100 * epsilon)])
    X = rng.normal(size=(N, 3))
    K, cost = unit * (np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(axis=2)) + 0.01 * np.eye(N)), cost / unit
    matrices = _crowd.matrices_of(K)
    booth = _crowd.booth_for(matrices)
    booth = booth._replace(kept=np.empty_like(booth.factor))
    names = _crowd_sets_jit.OneTask._fields[:-1]
    piece = _crowd_sets_jit.OneTask(*(getattr(booth, name)[0] for name in names), epsilon)
    if epsilon:
        piece.c[:], piece.lower[:], piece.upper[:] = rng.normal(size=N), -cost, cost
    else:
        piece.c[:] = np.where(np.arange(N) % 2, 1.0, -1.0)
        piece.lower[:], piece.upper[:] = cost * np.minimum(piece.c, 0.0), cost * np.maximum(piece.c, 0.0)
    piece.lower[-1] = piece.upper[-1] = 0.0  # a row that does not train
    part = rng.choice([0.0, 0.3, 0.6, 1.0], N)
    piece.beta[:] = np.where(rng.random(N) < 0.5, part * piece.upper, part * piece.lower)
    balance(piece, rng)
    piece.v[:N] = piece.c - K @ piece.beta
    return SimpleNamespace(K=K, matrices=matrices, booth=booth, piece=piece, rng=rng, epsilon=epsilon)


def balance(piece, rng) -> None:
    """Shrink the side that has more until the sum is zero."""
    over = piece.beta.sum()
    side = np.flatnonzero(piece.beta * over > 0.0)
    for t in rng.permutation(side):
        by = np.sign(over) * min(abs(over), abs(piece.beta[t]))
        piece.beta[t] -= by
        over -= by


def slopes(piece, t: int, epsilon: float) -> tuple[float, float]:
    """The residual of growing and of shrinking; not finite where the box does not let it."""
    b, x = piece.beta[t], piece.v[t]
    up = x - epsilon if b >= 0.0 else x + epsilon
    down = x - epsilon if b > 0.0 else x + epsilon
    return (up if b < piece.upper[t] else -np.inf), (down if b > piece.lower[t] else np.inf)


@pytest.mark.parametrize("cost", [1.0, 1e-4])
@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@seeds(SEEDS)
def test_extremes_and_gap(seed, epsilon, cost):
    it = scene(seed, epsilon, cost)
    piece, ends = it.piece, [slopes(it.piece, t, epsilon) for t in range(N)]
    high, low, bias = _crowd_pairs_jit.extremes(piece)
    assert high == max(up for up, _ in ends)
    assert low == min(down for _, down in ends)
    free = [up for up, down in ends if up == down]
    assert bias == pytest.approx(np.mean(free) if free else 0.5 * (high + low))
    gap, primal = _crowd_pairs_jit.gap_of(piece, bias)
    f = piece.c - piece.v[:N] + bias
    u = piece.c - f
    loss = (piece.upper * np.maximum(u - epsilon, 0.0) + piece.lower * np.minimum(u + epsilon, 0.0)).sum()
    dual = piece.c @ piece.beta - epsilon * np.abs(piece.beta).sum() - 0.5 * piece.beta @ it.K @ piece.beta
    assert primal == pytest.approx(0.5 * piece.beta @ it.K @ piece.beta + loss)
    assert gap == pytest.approx(primal - dual, abs=1e-13)


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@seeds(SEEDS)
def test_a_sum_is_put_right_on_the_variable_with_most_room(seed, epsilon):
    it = scene(seed, epsilon)
    piece = it.piece
    before = piece.beta.copy()
    room = [
        min((0.0 if b < 0.0 else top) - b, b - (0.0 if b > 0.0 else bottom)) if b != 0.0 else 0.0
        for b, top, bottom in zip(before, piece.upper, piece.lower, strict=True)
    ]
    room[0] = 0.0
    piece.beta[0] = before[0] = piece.upper[0] * (1.0 - 1e-16)  # a bound but for rounding
    at = int(np.argmax(room))
    off = before.sum()
    _crowd_pairs_jit.repair(piece)
    assert piece.beta[0] == piece.upper[0]
    if abs(off) < max(room):
        assert piece.beta.sum() == pytest.approx(0.0, abs=1e-15)
        assert piece.beta[at] == pytest.approx(before[at] - off)
    assert np.delete(piece.beta, [0, at]) == pytest.approx(np.delete(before, [0, at]), abs=1e-14)


@seeds(SEEDS)
def test_a_residual_is_that_of_the_matrix(seed):
    it = scene(seed)
    it.piece.v[:] = np.nan
    _crowd_sets_jit.residual(it.matrices, it.piece, it.booth)
    assert it.piece.v[:N] == pytest.approx(it.piece.c - it.K @ it.piece.beta, abs=1e-13)


@seeds(SEEDS)
def test_a_factor_leaves_out_rows_that_depend_on_others(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(N, N))
    A[7] = A[2]
    K = A @ A.T
    rows, factor = rng.permutation(N)[:10], np.empty((N, N))
    rows[:2] = 7, 2
    rows = np.append(np.unique(rows), 0)
    count = len(rows) - 1
    given = rows[:count].copy()
    m = _crowd_sets_jit.grown(K, 0.7, rows, 0, count, factor)
    assert m == count - 1
    assert rows[:m].tolist() == [row for row in given if row != 7]
    x = rng.normal(size=m)
    found = np.append(x, 0.0)
    _crowd_sets_jit.solved(factor, m, found)
    assert (K[np.ix_(rows[:m], rows[:m])] + 0.7) @ found[:m] == pytest.approx(x, abs=1e-8)


def face_of(it):
    """The free variables off their kinks, and their factor."""
    m = _crowd_sets_jit._face(it.piece, it.booth.rows)
    m = _crowd_sets_jit.grown(it.matrices.double, it.matrices.size[0], it.booth.rows, 0, m, it.booth.factor)
    it.booth.inside[it.booth.rows[:m]] = 1
    it.booth.one[:m] = 1.0
    _crowd_sets_jit.solved(it.booth.factor, m, it.booth.one)
    return m


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@seeds(SEEDS)
def test_a_face_meets_and_follows(seed, epsilon):
    it = scene(seed, epsilon)
    piece, booth = it.piece, it.booth
    m = face_of(it)
    inside = (piece.lower < piece.beta) & (piece.beta < piece.upper) & (piece.beta != 0.0)
    assert sorted(booth.rows[:m]) == np.flatnonzero(inside).tolist()
    if m < 2:
        return
    face = booth.rows[:m].copy()
    pull = piece.v[face] - epsilon * np.sign(piece.beta[face])
    bias = booth.one[:m] @ pull / booth.one[:m].sum()
    _crowd_sets_jit._to_meet(piece, booth, m, bias)
    way = booth.way[:m].copy()
    left = pull - it.K[np.ix_(face, face)] @ way
    assert way.sum() == pytest.approx(0.0, abs=1e-10)
    assert left == pytest.approx(np.full(m, left.mean()), abs=1e-9)

    at, worst, sign = _crowd_sets_jit._worst(piece, booth.inside, bias)
    wants = {}
    for t in np.flatnonzero(~inside):
        up, down = slopes(piece, t, epsilon)
        wants[t] = max(up - bias, bias - down)
    t = max(wants, key=wants.get)
    assert (at, worst) == (t, pytest.approx(wants[t])) if wants[t] > 0.0 else at == -1
    for gone in np.flatnonzero(~inside)[:3]:
        bend = _crowd_sets_jit._to_follow(it.matrices, booth, m, gone, sign, booth.one[:m].sum())
        whole = np.zeros(N)
        whole[booth.rows[: m + 1]] = booth.way[: m + 1]
        assert whole[gone] == sign
        assert whole.sum() == pytest.approx(0.0, abs=1e-10)
        moved = it.K @ whole
        assert moved[face] == pytest.approx(np.full(m, moved[face].mean()), abs=1e-9)
        assert bend == pytest.approx(whole @ moved, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@seeds(SEEDS)
def test_a_way_is_free_up_to_the_first_end(seed, epsilon):
    it = scene(seed, epsilon)
    piece, booth, rng = it.piece, it.booth, it.rng
    rows = np.flatnonzero(piece.upper > piece.lower)
    booth.rows[: len(rows)], booth.way[: len(rows)] = rows, rng.normal(size=len(rows))
    booth.way[0] = 0.0
    ends = []
    for t, way in zip(rows[1:], booth.way[1 : len(rows)], strict=True):
        b = piece.beta[t]
        end = (0.0 if b < 0.0 else piece.upper[t]) if way > 0.0 else (0.0 if b > 0.0 else piece.lower[t])
        ends.append((end - b) / way)
    length, first = _crowd_sets_jit._first_stop(piece, booth, len(rows), 0.9)
    assert length == pytest.approx(min(0.9, *ends))
    assert first == (1 + int(np.argmin(ends)) if min(ends) < 0.9 else -1)
    before, way = piece.beta.copy(), booth.way[: len(rows)].copy()
    _crowd_sets_jit._go(it.matrices, piece, booth, len(rows), length, first)
    assert piece.beta[rows] == pytest.approx(before[rows] + length * way, abs=1e-12)
    assert piece.v[:N] == pytest.approx(piece.c - it.K @ piece.beta, abs=1e-12)
    if first >= 0:
        assert piece.beta[rows[first]] in (piece.lower[rows[first]], 0.0, piece.upper[rows[first]])


def optimal(K, piece, epsilon: float) -> float:
    """The violation at beta, its residual from the matrix."""
    piece.v[:N] = piece.c - K @ piece.beta
    ends = [slopes(piece, t, epsilon) for t in range(N)]
    return max(up for up, _ in ends) - min(down for _, down in ends)


@plain
@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
@seeds(4)
def test_pair_steps_of_several_tasks_are_those_of_each_alone(seed, count, epsilon):
    """In whatever order, each ends at its own violation, and its residuals follow its coefficients."""
    it = scene(seed, epsilon)
    booth = it.booth
    for g in range(count):
        piece = _crowd_pairs_jit.task_of(booth, g, epsilon)
        piece.c[:], piece.lower[:], piece.upper[:] = it.rng.normal(size=N), -0.5 - g, 0.5 + g
        piece.beta[:], piece.values[:N] = 0.0, piece.c
        for t in range(N):
            _crowd_pairs_jit.set_mask(piece, t)
    alone = copy.deepcopy(booth)
    booth.todo[:count] = it.rng.permutation(count)
    _crowd_pairs_jit.in_pairs(it.matrices, it.matrices, booth, count, epsilon, 1e-3, 10_000)
    for g in range(count):
        piece = _crowd_pairs_jit.task_of(booth, g, epsilon)
        assert piece.beta.sum() == pytest.approx(0.0, abs=1e-14)
        assert piece.values[:N] == pytest.approx(piece.c - it.K @ piece.beta, abs=1e-5)
        assert optimal(it.K, piece, epsilon) <= 1e-3 + 1e-5
        alone.todo[0] = g
        _crowd_pairs_jit.in_pairs(it.matrices, it.matrices, alone, 1, epsilon, 1e-3, 10_000)
        assert np.array_equal(alone.beta[g], booth.beta[g])
        assert alone.steps[g] == booth.steps[g] > 0


@pytest.mark.parametrize("cost", [2.0, 10.0, 1e3])
@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@seeds(SEEDS)
def test_what_the_inverse_answers_is_optimal(seed, epsilon, cost):
    it = scene(seed, epsilon, cost)
    turns = _crowd_sets_jit.by_inverse(it.matrices, it.piece, it.booth, True)
    assert 0 <= turns <= _crowd_sets_jit.MOST_TURNS
    if turns:
        assert abs(it.piece.beta.sum()) <= 1e-9 * cost
        assert ((it.piece.lower <= it.piece.beta) & (it.piece.beta <= it.piece.upper)).all()
        assert optimal(it.K, it.piece, epsilon) <= 1e-9
    elif not epsilon:
        assert cost < 1e3  # nearly all rows are free there


@pytest.mark.parametrize("unit", [1.0, 1e8])
@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@seeds(SEEDS)
def test_a_row_is_taken_out_along_the_face(seed, epsilon, unit):
    it = scene(seed, epsilon, unit=unit)
    piece, booth, K = it.piece, it.booth, it.K
    whole = piece.beta.copy()
    _crowd_sets_jit.keep_face(it.matrices, piece, booth, whole)
    m = booth.kept_rows[N]
    face = booth.kept_rows[:m].copy()
    inside = (piece.lower < whole) & (whole < piece.upper) & (whole != 0.0)
    assert sorted(face) == np.flatnonzero(inside).tolist()
    if m < 3:
        return
    for gone in range(N - 1):
        ways = _crowd_sets_jit._way_out(it.matrices, booth, gone, m)
        whole_way = np.zeros(N)
        whole_way[face] = booth.way[:m]
        assert ways
        if gone not in face:
            whole_way[gone] = -1.0
        assert whole_way[gone] == pytest.approx(-1.0)
        assert whole_way.sum() == pytest.approx(0.0, abs=1e-9)
        moved, rest = K @ whole_way, [t for t in face if t != gone]
        assert moved[rest] == pytest.approx(np.full(len(rest), moved[rest].mean()), abs=1e-8 * unit)
    for gone in range(N - 1):
        lower, upper = piece.lower[gone], piece.upper[gone]
        piece.lower[gone] = piece.upper[gone] = 0.0
        found = _crowd_sets_jit.withdrawn(it.matrices, piece, booth, whole)
        if whole[gone] == 0.0:
            assert found == _crowd_sets_jit.SAME
            assert piece.beta.tolist() == whole.tolist()
        elif found == _crowd_sets_jit.MOVED:
            assert piece.beta[gone] == 0.0
            assert piece.beta.sum() == pytest.approx(0.0, abs=1e-12 / unit)
            assert ((piece.lower <= piece.beta) & (piece.beta <= piece.upper)).all()
            outside = np.setdiff1d(np.arange(N), [*face, gone])
            assert piece.beta[outside].tolist() == whole[outside].tolist()
        piece.lower[gone], piece.upper[gone] = lower, upper


@pytest.mark.parametrize("cost", [0.1, 5.0])
@seeds(SEEDS)
def test_starts_are_the_best_point_of_their_line(seed, cost):
    it = scene(seed, 0.0, cost)
    piece, booth, K = it.piece, it.booth, it.K
    reach = _crowd_jit._difference_of_means(piece.lower, piece.upper, booth.ways, 3)
    way = piece.upper / piece.upper.sum() - piece.lower / piece.lower.sum()
    assert booth.ways[:, 3] == pytest.approx(way, abs=1e-7)
    assert reach == pytest.approx(min(piece.upper.sum(), -piece.lower.sum()))
    piece.values[:N] = K @ way
    _crowd_jit._go_along(piece, booth.ways, 3, reach)
    best = min(reach, way @ piece.c / (way @ K @ way))
    assert (best < reach) == (cost == 5.0)
    assert piece.beta == pytest.approx(np.clip(best * way, piece.lower, piece.upper), abs=1e-6)
    assert piece.values[:N] == pytest.approx(piece.c - best * K @ way, abs=1e-5)
    _crowd_jit._from_zero(piece)
    assert not piece.beta.any()
    assert piece.values[:N] == pytest.approx(piece.c - piece.c.mean(), abs=1e-6)


@plain
@seeds(4)
def test_balanced_costs_are_of_the_rows_that_train(seed):
    rng = np.random.default_rng(seed)
    y, folds, weights = rng.choice([-1.0, 0.0, 1.0], 30), rng.integers(-1, 3, 30), 1e-3 * rng.integers(0, 4, 30)
    w = weights * ((folds >= 0) & (folds != 1))
    wanted = [w.sum() / (2.0 * w[y == label].sum()) for label in (-1.0, 1.0)]
    assert _crowd_jit._factors(y, folds, 1, weights, 2.0) == pytest.approx(wanted, rel=1e-12)
    assert _crowd_jit._factors(np.ones(30), folds, 1, weights, 2.0)[0] > 1e9  # without a class there is no share of it


@pytest.mark.parametrize("near", [True, False])
@seeds(SEEDS)
def test_kernel_values_of_another_gamma(seed, near):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3))
    measure = ((X[:, None] - X) ** 2).sum(axis=2)
    kernel = Kernel(int(KernelKind.RBF), 0.3, 0.0, 1, 0.0)
    matrices = _crowd.matrices_of(np.exp(-0.3 * measure))
    own = _crowd.scaled(measure, X.mean(axis=1), 3 * X.var(axis=1), 3, kernel, 0.3)
    _, bits, power = new_scratch(0)
    own = own._replace(block=np.zeros(LANES), bits=bits, power=power)
    gamma = 0.3 + (0.9 / measure.max() if near else 2.0)
    _crowd_forms_jit._take_values(matrices, own, kernel._replace(gamma=1.0), gamma)
    assert matrices.double[:, :N] == pytest.approx(np.exp(-gamma * measure), rel=1e-12)
    assert matrices.single[:, :N] == pytest.approx(np.exp(-gamma * measure), rel=1e-6)
    folds = rng.integers(-1, 3, N)
    crowd = _crowd.crowd_of(np.ones((1, N)), folds, 3, 1.0, labels=False)
    for fold in range(3):
        train = (folds != fold) & (folds >= 0)
        assert _crowd_forms_jit._gamma_of(own, crowd, fold) == pytest.approx(1.0 / (3 * X[train].var()))
