"""Many problems over one matrix: every answer is optimal by an independent judge, on every way that leads to it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svmcore._types import Kernel, KernelKind
from svmcore.simd import passes
from svmcore.solvers import _crowd as crowd
from svmcore.solvers import _crowd_jit as loops

pytestmark = pytest.mark.home

FOLDS = 3


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] * X[:, 1] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    y[:4] = [1.0, -1.0, 1.0, -1.0][:n]
    return X, y


def rbf(X, gamma=0.5):
    return np.exp(-gamma * ((X[:, None] - X) ** 2).sum(-1))


def matrix(name, n):
    X, _ = rows(n)
    return {
        "rbf": lambda: rbf(X),
        "smooth": lambda: rbf(X, 0.05),
        "low rank": lambda: X @ X.T,
        "rank one": lambda: np.ones((n, n)),
        "unit": lambda: np.eye(n),
        "equal rows": lambda: rbf(np.repeat(X[: n // 2 + 1], 2, axis=0)[:n]),
        "tiny": lambda: 1e-8 * rbf(X),
        "huge": lambda: 1e8 * rbf(X),
    }[name]()


def labellings(n, columns, seed=1):
    rng = np.random.default_rng(seed)
    y = rows(n)[1]
    return np.array([y] + [rng.permutation(y) for _ in range(columns - 1)])


def targets(n, columns):
    X, _ = rows(n)
    rng = np.random.default_rng(5)
    return np.array([np.sin(X[:, 0]) + 0.3 * rng.normal(size=n) for _ in range(columns)])


def judge(K, task, beta, told, tol, slack=1e-9):
    """Hold what is told of a task against the problem itself: sums, boxes, violation, gap, decision values."""
    c, lower, upper, epsilon = task
    assert ((lower <= beta) & (beta <= upper)).all()
    size = max(1.0, float(np.abs(beta).sum()))
    assert abs(beta.sum()) <= 1e-12 * size
    v = c - K @ beta
    up = np.where(beta < 0, v + epsilon, v - epsilon)[beta < upper]
    down = np.where(beta > 0, v - epsilon, v + epsilon)[beta > lower]
    violation = max(0.0, up.max() - down.min())
    scale = slack * (1.0 + size * float(np.abs(K).max()))
    assert violation == pytest.approx(told[loops.VIOLATION], abs=scale)
    assert told[loops.VIOLATION] <= tol
    u = v - told[loops.BIAS]
    gap = (
        upper * np.maximum(u - epsilon, 0) + lower * np.minimum(u + epsilon, 0) - u * beta + epsilon * abs(beta)
    ).sum()
    assert gap == pytest.approx(told[loops.GAP], abs=scale * size)
    assert gap >= -scale * size
    dual = 0.5 * beta @ (c + v) - epsilon * np.abs(beta).sum()
    assert told[loops.PRIMAL] - told[loops.GAP] == pytest.approx(dual, abs=scale * size)
    return K @ beta + told[loops.BIAS]


def held_against_the_problem(K, tasks, found, tol):
    n, folds = len(K), tasks.n_folds
    for k, told in enumerate(found.told):
        own = tasks.folds[min(k // folds, len(tasks.folds) - 1)]
        trains = (own != k % folds) & (own >= 0)
        c, box = tasks.values[k // folds], tasks.cost * tasks.weights[min(k // folds, len(tasks.weights) - 1)] * trains
        lower, upper = (box * np.minimum(c, 0), box * np.maximum(c, 0)) if tasks.labels else (-box, box)
        beta = found.coef[k]
        assert not beta[~trains].any()
        kept = np.ix_(trains, trains)
        judge(K[kept], (c[trains], lower[trains], upper[trains], tasks.epsilon), beta[trains], told, tol)
        out = own == k % folds
        np.testing.assert_allclose(
            found.decisions[k // folds][out],
            K[out] @ beta + told[loops.BIAS],
            rtol=1e-9,
            atol=1e-9 * abs(K).max() * abs(beta).sum(),
        )
    assert n == found.decisions.shape[1]


def solved(K, values, *, C, labels=True, epsilon=0.0, tol=1e-6, inverse=False, folds=None, weights=None, certain=False):
    n = len(K)
    folds = np.arange(n) % FOLDS if folds is None else folds
    tasks = crowd.crowd_of(values, folds, FOLDS, C, labels=labels, epsilon=epsilon, weights=weights)
    return tasks, crowd.harvest(crowd.matrices_of(K), tasks, crowd.Manner(tol, inverse, certain, True))


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("name", ["rbf", "smooth", "low rank", "rank one", "unit", "equal rows"])
def test_labels_are_answered_optimally(name, C, inverse):
    K = matrix(name, 33)
    tasks, found = solved(K, labellings(33, 4), C=C, inverse=inverse)
    held_against_the_problem(K, tasks, found, 1e-6)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize(
    ("name", "epsilon"), [("rbf", 0.1), ("rbf", 0.0), ("low rank", 0.2), ("unit", 0.3), ("smooth", 2.0)]
)
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_targets_are_answered_optimally(name, epsilon, C, inverse):
    K = matrix(name, 33)
    tasks, found = solved(K, targets(33, 3), C=C, labels=False, epsilon=epsilon, inverse=inverse)
    held_against_the_problem(K, tasks, found, 1e-6)


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("name", ["rbf", "smooth", "low rank", "rank one", "unit", "equal rows"])
@pytest.mark.parametrize("labels", [True, False])
def test_rows_are_taken_out_of_the_machine_of_all(labels, name, C):
    n, rng = 33, np.random.default_rng(4)
    K, values = matrix(name, n), labellings(n, 3) if labels else targets(n, 3)
    folds, weights = np.r_[rng.permutation(n - 3), [-1, -1, n]], rng.integers(0, 3, n) * 1.0
    words = {"labels": labels, "epsilon": 0.0 if labels else 0.1, "weights": weights}
    tasks = crowd.crowd_of(values, folds, n - 3, C, **words)
    assert crowd.leaves_one_out(tasks)
    matrices = crowd.matrices_of(K)
    found = crowd.harvest(matrices, tasks, crowd.Manner(1e-7, False, False, True))
    held_against_the_problem(K, tasks, found, 1e-7)
    everybody = crowd.crowd_of(values, np.where(folds < 0, -1, 1), 1, C, **words)
    whole = crowd.harvest(matrices, everybody, crowd.Manner(1e-7, False, False, True))
    row_of = np.argsort(folds[: n - 3])
    for k, told in enumerate(found.told):
        at, row = divmod(k, n - 3)
        if whole.coef[at, row_of[row]] == 0.0:
            assert told[loops.MOVES] == 0.0
            np.testing.assert_allclose(found.coef[k], whole.coef[at], rtol=0, atol=1e-5 * C)


def test_a_row_without_a_multiplier_costs_nothing_and_others_cost_less():
    n, K = 60, matrix("rbf", 60)
    tasks = crowd.crowd_of(labellings(n, 2), np.arange(n), n, 10.0, labels=True)
    found = crowd.harvest(crowd.matrices_of(K), tasks, crowd.Manner(1e-4, False, False, True))
    held_against_the_problem(K, tasks, found, 1e-4)
    whole = crowd.harvest(
        crowd.matrices_of(K), tasks._replace(folds=np.ones((1, n), np.int64), n_folds=1),
        crowd.Manner(1e-4, False, False, True),
    )  # fmt: skip
    free = whole.coef.reshape(-1) == 0.0
    assert free.any()
    assert not found.told[free, loops.STEPS].any()
    assert found.told[:, loops.STEPS].mean() < 0.6 * whole.told[:, loops.STEPS].mean()


def test_folds_of_several_rows_and_costs_of_folds_start_anew():
    values, n = labellings(20, 2), 20
    for folds, count, factors, expected in (
        (np.arange(n), n, None, True),
        (np.arange(n) // 2, n // 2, None, False),
        (np.r_[0, 0, np.arange(2, n)], n, None, False),
        (np.array([np.arange(n), np.arange(n)]), n, None, False),
        (np.arange(n), n, np.full(2, -2.0), False),
        (np.r_[np.arange(3), np.full(n - 3, 9)], 3, None, False),
    ):
        tasks = crowd.crowd_of(values, folds, count, 1.0, labels=True, factors=factors)
        assert crowd.leaves_one_out(tasks) is expected
        found = crowd.harvest(crowd.matrices_of(rbf(rows(n)[0])), tasks, crowd.Manner(1e-8, False, False))
        assert (found.told[:, loops.VIOLATION] <= 1e-8).all()


@pytest.mark.parametrize(("name", "unit"), [("tiny", 1e8), ("huge", 1e-8)])
def test_the_scale_of_the_kernel_changes_nothing(name, unit):
    K, values = matrix(name, 20), labellings(20, 3)
    _, found = solved(K, values, C=2.0 * unit)
    _, plain = solved(matrix("rbf", 20), values, C=2.0)
    np.testing.assert_allclose(found.decisions, plain.decisions, atol=1e-5)
    assert (found.told[:, loops.VIOLATION] <= 1e-6).all()


def test_every_way_is_gone():
    """Pair steps, the inverse and the active set each answer some task; here it is said which."""
    K = matrix("unit", 33)
    _, found = solved(K, labellings(33, 2), C=100.0, inverse=True)
    assert (found.told[:, loops.TURNS] > 0).all()
    assert not found.told[:, loops.STEPS].any()
    _, found = solved(matrix("rbf", 33), labellings(33, 2), C=1.0, inverse=False)
    assert (found.told[:, loops.STEPS] > 0).all()
    assert not found.told[:, loops.TURNS].any()
    K = matrix("low rank", 40)
    tasks, found = solved(K, labellings(40, 3), C=1e4, inverse=True)
    assert (found.told[:, loops.MOVES] > 0).any()
    assert not found.told[:, loops.TURNS].any(), "the inverse of a matrix of low rank is none"
    held_against_the_problem(K, tasks, found, 1e-6)


def test_targets_reach_the_active_set():
    K = matrix("low rank", 40)
    tasks, found = solved(K, 10.0 * targets(40, 2), C=1e4, labels=False, epsilon=0.1)
    assert (found.told[:, loops.MOVES] > 0).any()
    held_against_the_problem(K, tasks, found, 1e-6)


@pytest.mark.parametrize("n", [2, 3, 17, 32, 33])
@pytest.mark.parametrize("inverse", [False, True])
def test_any_number_of_rows(n, inverse):
    X, _ = rows(n)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)[None]
    tasks = crowd.crowd_of(y, np.full(n, 9), 1, 1.0, labels=True)
    found = crowd.harvest(crowd.matrices_of(rbf(X)), tasks, crowd.Manner(1e-7, inverse, False, True))
    held_against_the_problem(rbf(X), tasks, found, 1e-7)
    assert np.isnan(found.decisions).all(), "no row was left out"


@pytest.mark.parametrize("columns", [1, 3])
def test_weights_rows_of_other_classes_and_rows_that_never_train(columns):
    n, rng = 33, np.random.default_rng(3)
    values, weights = labellings(n, 3), rng.integers(0, 3, (columns, n)) * 1.0
    values[:, ::5] = 0.0
    folds = np.arange(n) % FOLDS
    folds[-4:] = -1
    tasks, found = solved(matrix("rbf", n), values, C=3.0, weights=weights, folds=folds)
    held_against_the_problem(matrix("rbf", n), tasks, found, 1e-6)
    assert np.isnan(found.decisions[:, -4:]).all()
    assert np.isfinite(found.decisions[:, :-4]).all()


def test_balanced_costs_are_those_of_each_fold():
    n, values = 30, labellings(30, 2)
    folds, K = np.arange(n) % FOLDS, matrix("rbf", n)
    balanced = crowd.crowd_of(values, folds, FOLDS, 1.5, labels=True, factors=np.full(2, -2.0))
    found = crowd.harvest(crowd.matrices_of(K), balanced, crowd.Manner(1e-8, False, False, True))
    for k, beta in enumerate(found.coef):
        y, trains = values[k // FOLDS], folds != k % FOLDS
        for sign in (-1.0, 1.0):
            own = trains & (y == sign)
            top = 1.5 * trains.sum() / (2.0 * own.sum())
            assert np.abs(beta[own]).max() <= top * (1 + 1e-12)
    assert np.abs(found.coef).max() > 1.5, "a box that is larger than C is used"


def test_boxes_that_hold_a_sum_of_zero_but_for_rounding_say_the_bias():
    """All 12 and 20 variables are at their bounds. Their sum is rounding, which one variable would have to take."""
    X, y = rows(32)[0], np.where(np.arange(32) < 12, 1.0, -1.0)
    K = rbf(X)
    for costs, end in (((0.5, 0.3), None), ((0.5 * (1 + 1e-15), 0.3), min), ((0.5, 0.3 * (1 + 1e-15)), max)):
        tasks = crowd.crowd_of(y[None], np.full(32, 9), 1, 0.01, labels=True, factors=np.array([costs[1], costs[0]]))
        found = crowd.harvest(crowd.matrices_of(K), tasks, crowd.Manner(1e-6, False, False, True))
        beta, bias = found.coef[0], found.told[0, loops.BIAS]
        np.testing.assert_allclose(np.abs(beta), 0.01 * np.where(y > 0, *costs), rtol=1e-13)
        v = y - K @ beta
        ends = v[y < 0].max(), v[y > 0].min()  # of those that can grow, and of those that can shrink
        over = math.fsum(beta)
        expected = 0.5 * sum(ends) if over == 0.0 else ends[1 if over > 0.0 else 0]
        assert bias == pytest.approx(expected, abs=1e-12)
        assert end is None or over != 0.0


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize(("kind", "usual"), [("rbf", 1.0), ("rbf", 30.0), ("poly", 1.0)])
def test_the_rows_that_train_say_what_gamma_is(columns, kind, usual):
    """Near the usual gamma by a series, else anew."""
    n, values = 70, labellings(70, columns)
    X = rows(n)[0] + (5.0 if kind == "rbf" else 0.0)
    usual /= 3 * X.var()
    folds = np.array([np.random.default_rng(k).permutation(np.arange(n) % FOLDS) for k in range(columns)])
    folds[:, :3] = -1
    square = ((X[:, None] - X) ** 2).sum(-1)
    means = X.mean(axis=1)
    kernel = Kernel(int(KernelKind[kind.upper()]), 1.0, 1.0 if kind == "poly" else 0.0, 2, 0.0)
    measure = square if kind == "rbf" else X @ X.T
    own = crowd.scaled(measure, means, ((X - means[:, None]) ** 2).sum(axis=1), 3, kernel, usual)
    tasks = crowd.crowd_of(values, folds, FOLDS, 2.0, labels=True)
    found = crowd.harvest(crowd.matrices_of(np.eye(n)), tasks, crowd.Manner(1e-9, False, False, own=(own, kernel)))
    assert (found.told[:, loops.VIOLATION] <= 1e-9).all()
    for k in range(columns):
        for f in range(FOLDS):
            trains, out = (folds[k] != f) & (folds[k] >= 0), folds[k] == f
            gamma = 1.0 / (3 * X[trains].var())
            K = np.exp(-gamma * square) if kind == "rbf" else (gamma * measure + 1.0) ** 2
            alone = crowd.crowd_of(values[k : k + 1], np.where(out, 0, np.where(trains, 1, -1)), 1, 2.0, labels=True)
            plain = crowd.harvest(crowd.matrices_of(K), alone, crowd.Manner(1e-9, False, False))
            np.testing.assert_allclose(found.decisions[k, out], plain.decisions[0, out], atol=1e-8)
            assert found.told[k * FOLDS + f, loops.GAP] <= 1e-6
    tasks = crowd.crowd_of(values, np.full(n, 9), 1, 2.0, labels=True)
    same = crowd.scaled(np.zeros((n, n)), np.ones(n), np.zeros(n), 3, kernel, usual)
    found = crowd.harvest(crowd.matrices_of(np.eye(n)), tasks, crowd.Manner(1e-9, False, False, own=(same, kernel)))
    assert (found.told[:, loops.VIOLATION] <= 1e-9).all(), "rows without a variance have gamma 1"


def test_one_class_alone_is_a_constant():
    K = matrix("rbf", 12)
    for sign in (1.0, -1.0):
        _, found = solved(K, np.full((1, 12), sign), C=1.0)
        np.testing.assert_allclose(found.decisions, sign)


def test_rows_near_the_threshold_are_brought_to_more_digits():
    n, tol = 40, 0.03
    K, values = matrix("rbf", n), labellings(n, 40)
    _, loose = solved(K, values, C=1.0, tol=tol)
    tasks, sure = solved(K, values, C=1.0, tol=tol, certain=True)
    _, exact = solved(K, values, C=1.0, tol=1e-10)
    held_against_the_problem(K, tasks, sure, tol)
    own = np.arange(n) % FOLDS
    near = np.array([np.abs(loose.decisions[:, own == f]).min(axis=1) for f in range(FOLDS)]).T.reshape(-1)
    late = near <= loops.SURE * loose.told[:, loops.VIOLATION]
    assert late.any()
    assert not late.all()
    np.testing.assert_array_equal(sure.told[:, loops.VIOLATION] <= loops.SHARP, late)
    assert ((sure.decisions > 0) == (exact.decisions > 0)).all()


@pytest.mark.parametrize("inverse", [False, True])
def test_slices_of_any_size_give_the_same_bits(inverse):
    K, values, folds = matrix("rbf", 33), labellings(33, 7), np.arange(33) % FOLDS
    matrices, way = crowd.matrices_of(K), crowd.Manner(1e-4, inverse, True, True)

    def run(columns):
        return crowd.harvest(matrices, crowd.crowd_of(values[columns], folds, FOLDS, 10.0, labels=True), way)

    whole = run(slice(None))
    for cut in ([0, 1, 2, 3, 4, 5, 6, 7], [0, 3, 7], [0, 4, 7]):
        pieces = [run(slice(a, b)) for a, b in itertools.pairwise(cut)]
        for name in ("decisions", "told", "coef"):
            joined = np.concatenate([getattr(piece, name) for piece in pieces])
            np.testing.assert_array_equal(joined, getattr(whole, name), err_msg=name)


def test_the_pilot_counts():
    tasks = crowd.crowd_of(labellings(33, 4), np.arange(33) % FOLDS, FOLDS, 100.0, labels=True)
    assert crowd.pilot(crowd.matrices_of(rbf(rows(33)[0], 5.0)), tasks, 1e-3)
    assert not crowd.pilot(crowd.matrices_of(np.eye(33)), tasks, 1e-3), "the start is the answer"
    assert not crowd.pilot(crowd.matrices_of(matrix("rbf", 33)), tasks._replace(cost=0.01), 1e-3)
    assert not crowd.pilot(crowd.matrices_of(matrix("low rank", 33)), tasks, 1e-3)


def test_indefinite_kernels_end():
    K = matrix("rbf", 33)
    K = K - 0.5 * np.eye(33)
    for C in (1.0, 100.0):
        _, found = solved(K, labellings(33, 3), C=C, inverse=True)
        assert np.isfinite(found.decisions).all()


def test_a_kernel_of_zeros():
    K = np.zeros((12, 12))
    _, found = solved(K, labellings(12, 2), C=1.0)
    assert (found.told[:, loops.VIOLATION] <= 1e-6).all()


@given(st.integers(0, 2**32 - 1))
def test_new_passes_mean_what_they_say(seed):
    rng = np.random.default_rng(seed)
    n, width = 37, 64
    for real in (np.float32, np.float64):
        values, fall = rng.normal(size=(2, width)).astype(real)
        gain = rng.random((n, width)).astype(real)
        row, top = int(rng.integers(n)), real(2.0)
        j = run_gain(values, gain, row, top, fall)
        score = (top - (values + fall)) * gain[row]
        assert score[j] >= score.max() - 1e-5
        matrix = rng.normal(size=(n, width)).astype(real)
        coef = rng.normal(size=(n, passes.TOGETHER)).astype(real)
        out = np.zeros((passes.TOGETHER, width), real)
        loops._products(matrix, coef, out)
        np.testing.assert_allclose(out, coef.T @ matrix, rtol=0, atol=1e-4 if real is np.float32 else 1e-12)


@loops.jit
def run_gain(values, gain, row, top, fall):
    return passes.best_gain(values, gain, row, top, fall)
