"""The block solver and the interior point: any formulation, any kernel, the tolerance truly met."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from warned import quiet

import svmcore
from svmcore._types import Kernel, KernelKind, Status
from svmcore.base import threads as _threads
from svmcore.compiler.jit import DISABLED
from svmcore.kernel import grams, matrix, tiles
from svmcore.kernel.matrix import KernelMatrix
from svmcore.solvers import _block_jit as block_jit
from svmcore.solvers import _watch, block

SIZE = 60 if DISABLED else 400


def mixture(n=SIZE, d=5, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.where(X[:, 0] * X[:, 1] + 0.5 * X[:, 2] > 0, 1, -1)
    flip = rng.random(n) < noise
    return X, np.where(flip, -y, y)


def certified(solution, X, y, C, tol, **problem):
    """Everything the answer claims, measured again from the data."""
    signs = np.where(y == solution.classes[1], 1.0, -1.0)
    assert solution.converged
    violation = svmcore.kkt_violation(X, y, solution.alpha, C, **problem)
    assert violation <= tol * (1 + 1e-6)
    assert violation == pytest.approx(solution.kkt_violation, abs=1e-3 * tol)
    if problem.get("fit_intercept", True):
        assert abs((signs * solution.alpha).sum()) <= 1e-9 * max(1.0, solution.alpha.sum())
    if problem.get("loss", "hinge") == "hinge":
        assert solution.alpha.max() <= C


@pytest.mark.filterwarnings("ignore:the tolerance is met")
@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("C", [0.01, 1.0, 1000.0])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "laplacian"])
def test_tolerance_is_met(kernel, C, tol):
    X, y = mixture()
    solution = svmcore.train_svc(X, y, C, kernel=kernel, coef0=1.0, tol=tol, solver="block")
    certified(solution, X, y, C, tol, kernel=kernel, coef0=1.0)


@pytest.mark.compiled
def test_near_duplicates_at_large_cost():
    X, y = mixture(1200)
    rng = np.random.default_rng(0)
    X = np.vstack([X, X[:600] + 0.01 * rng.standard_normal((600, X.shape[1]))])
    y = np.concatenate([y, -y[:600]])
    certified(svmcore.train_svc(X, y, 1e3, solver="block"), X, y, 1e3, 1e-3)


@pytest.mark.compiled
@pytest.mark.parametrize("solver", ["block", "auto"])
def test_uncentred_data(solver):
    X, y = mixture()
    for kernel in ("rbf", "linear"):
        moved = X + 1e4
        solution = svmcore.train_svc(moved, y, 1.0, kernel=kernel, gamma=0.2, tol=1e-5, solver=solver)
        certified(solution, moved, y, 1.0, 1e-5, kernel=kernel, gamma=0.2)


@pytest.mark.compiled
@pytest.mark.parametrize("n", [2100, 4000])
def test_blocks_smaller_than_the_problem(n):
    X, y = mixture(n, 6, noise=0.2)
    for C in (1.0, 100.0):
        solution = svmcore.train_svc(X, y, C, gamma=0.2, solver="block")
        certified(solution, X, y, C, 1e-3, gamma=0.2)
        assert solution.stats["n_outer"] > 1


def watch_of(n, stretch):
    """A watch whose stretches have so many pair steps."""
    return _watch.Watch(_watch.Crawl(n, stretch, 1.0), n)


def test_a_stretch_without_progress_is_a_crawl_and_too_many_of_them_never_end():
    watch = watch_of(10, 50)
    assert not watch.crawls(1.0, -100.0, 0, 0)
    assert not watch.crawls(0.9, -100.0, 9, 4)
    assert not watch.crawls(
        0.9, -101.0, 10, 4
    )  # mostly outer steps, and the objective has moved by more than a thousandth
    assert not watch.crawls(0.9, -101.0, 59, 4)
    assert watch.crawls(0.9, -103.0, 60, 4)  # pair steps alone
    assert not watch.crawls(0.9, -103.0, 69, 8)
    assert watch.crawls(
        0.9, -103.0, 70, 8
    )  # outer steps count as many pair steps as there are variables; nothing moved
    assert not watch.crawls(0.4, -103.0, 160, 5)  # the violation has halved
    watch = watch_of(10, 50)
    assert not watch.crawls(0.4, -103.0, 0, 0)
    assert watch.crawls(0.4, -103.0, 50, 0)  # nothing is known of the objective yet
    for k in range(_watch.MOST_CRAWLS + 1):
        assert not watch.endless
        assert watch.crawls(0.4, -103.0, 100 + 50 * k, 0)
    assert watch.endless


@pytest.mark.parametrize("points", [[[0.0], [1.0], [0.0]], [[0.0], [2.0], [1.0]]], ids=["shared", "overlapping"])
def test_unbounded_hard_margin_says_so(points):
    with quiet(svmcore.ConvergenceWarning):
        solution = svmcore.train_svc(points, [-1, -1, 1], np.inf, kernel="linear", solver="block", time_limit=600.0)
    assert solution.status is Status.UNBOUNDED


def test_working_sets_of_duplicates_hold_the_worst_pair(monkeypatch):
    """A working set without it stands still, far from the optimum."""
    rng = np.random.default_rng(2)
    X = np.vstack([rng.standard_normal((12, 2)), np.zeros((20, 2))])[::-1]
    y = np.where(rng.random(32) < 0.5, 1, -1)[::-1]
    monkeypatch.setattr(block._BlockRun, "block_size", lambda run, free: 6 + int(1.3 * free))
    pairs = []
    whole = block._BlockRun.choose

    def choose(run, gauge, size):
        chosen = whole(run, gauge, size)
        grows, shrinks = run.beta < run.qp.upper, run.beta > run.qp.lower
        pairs.append(np.max(gauge.v[chosen][grows[chosen]]) == np.max(gauge.v[grows]))
        pairs.append(np.min(gauge.v[chosen][shrinks[chosen]]) == np.min(gauge.v[shrinks]))
        return chosen

    monkeypatch.setattr(block._BlockRun, "choose", choose)
    solution = svmcore.train_svc(X, y, 0.01, gamma=0.5, tol=1e-7, solver="block")
    assert len(pairs) > 4
    assert all(pairs)
    certified(solution, X, y, 0.01, 1e-7, gamma=0.5)


def small_matrix(X, kernel):
    return KernelMatrix(X, kernel, cache_bytes=1 << 20)


@pytest.mark.parametrize("kind", [KernelKind.LINEAR, KernelKind.POLY, KernelKind.RBF, KernelKind.LAPLACIAN])
@pytest.mark.parametrize(("sparse", "d"), [(False, 24), (True, 24), (True, 20_000)])
def test_tiles_speak_of_the_kernel_matrix(kind, sparse, d):
    rng = np.random.default_rng(4)
    X = np.zeros((90, d))
    X[:, rng.permutation(d)[:24]] = (rng.random((90, 24)) < 0.15) * rng.standard_normal((90, 24))
    K = small_matrix(csr_matrix(X) if sparse else X, Kernel(int(kind), 0.3, 0.5, 3, 0.25))
    mine = tiles.make_tiles(K, centred=False)
    points, coef = np.array([3, 50, 7, 89, 11, 12, 13]), rng.standard_normal(7)
    expected = K.rows(points)
    matrix = mine.gram(points)
    assert np.abs(matrix[:7, :7] - expected[:, points]).max() < 1e-5
    assert not matrix[7:].any()
    assert np.abs(mine.gram(points, np.float64)[:7, :7] - expected[:, points]).max() < 1e-13
    field = np.zeros(128)
    mine.add(points, coef, field)
    assert np.abs(field[:90] - coef @ expected).max() < 1e-5
    field[:] = 0.0
    mine.add_exactly(points, coef, field)
    assert np.abs(field[:90] - coef @ expected).max() < 1e-13
    assert np.abs(K.product(points, coef) - coef @ expected).max() < 1e-13
    assert np.abs(K.product_at(np.array([5, 2]), points, coef) - (coef @ expected)[[5, 2]]).max() < 1e-13


@pytest.mark.parametrize("kind", [KernelKind.SIGMOID, KernelKind.RBF])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_symmetric_products_use_every_value_twice(kind, n_threads, monkeypatch):
    """Targets and sources that overlap in part, repeated targets, and the same bits on two threads."""
    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 1.0)
    rng = np.random.default_rng(9)
    X = rng.standard_normal((300, 7))
    K = KernelMatrix(X, Kernel(int(kind), 0.2, 0.5, 3, 0.25), cache_bytes=1 << 20, n_threads=n_threads)
    index = np.sort(rng.permutation(300)[:200])
    coef = rng.standard_normal(200)
    full = K.rows(np.arange(300))
    calls = []
    whole = matrix.symmetric_product
    monkeypatch.setattr(matrix, "symmetric_product", lambda *args: calls.append(len(args[3])) or whole(*args))
    monkeypatch.setattr(matrix, "_SYMMETRIC_POINTS", 20)
    monkeypatch.setattr(matrix, "_SYMMETRY_SAVES", 0.0)
    for targets in (index, np.arange(300), index[::-1][:70], np.array([3, 299] * 40)):
        found = K.product_at(targets, index, coef)
        assert np.abs(found - full[targets][:, index] @ coef).max() < 1e-11
        one = KernelMatrix(X, K.kernel, cache_bytes=1 << 20).product_at(targets, index, coef)
        assert (found == one).all()
    assert calls == [200, 200, 300, 300, 70, 70]


def test_values_that_symmetry_saves_are_not_counted(monkeypatch):
    monkeypatch.setattr(matrix, "_SYMMETRIC_POINTS", 20)
    rng = np.random.default_rng(9)
    for d, half in ((7, False), (grams.WIDE + 2, True)):
        X = rng.standard_normal((100, d))
        K = KernelMatrix(X, Kernel(int(KernelKind.RBF), 0.2, 0.5, 3, 0.0), cache_bytes=1 << 20)
        index = np.arange(0, 100, 2)
        K.product_at(index, index, np.ones(50))
        assert K.n_evals == 50 * 51 // 2
        K.product_at(index, np.arange(100), np.ones(100))  # half of the sources are targets
        assert K.n_evals == 2 * (50 * 51 // 2) + 50 * 50
        mine = tiles.make_tiles(K, centred=False)
        mine.gram(index, np.float32)
        assert mine.n_evals == (50 * 51 // 2 if half else 50 * 50)


@pytest.mark.parametrize("d", [3, grams.WIDE + 2])
@pytest.mark.parametrize("dtype", [np.float32, np.uint16, np.float64])
def test_padding_of_gram_matrices_does_not_depend_on_old_memory(d, dtype):
    X = np.random.default_rng(0).standard_normal((100, d))
    kernel = Kernel(int(KernelKind.RBF), 1 / d, 0.0, 3, 0.0)
    mine = tiles.make_tiles(KernelMatrix(X, kernel, cache_bytes=1 << 20), centred=True)
    blocks = []
    for old in (np.nan, 7.0):
        mine._buffer = np.full(1 << 16, old, np.float32)
        blocks.append(mine.gram(np.arange(5, 75), dtype)[:71, :128].copy())
    assert np.array_equal(*blocks)


@pytest.mark.parametrize("kind", [KernelKind.POLY, KernelKind.RBF])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_kept_matrix_serves_the_same_values(kind, sparse):
    rng = np.random.default_rng(6)
    X = (rng.random((90, 70)) < 0.15) * rng.standard_normal((90, 70))
    K = small_matrix(csr_matrix(X) if sparse else X, Kernel(int(kind), 0.3, 0.5, 3, 0.25))
    mine = tiles.make_tiles(K, centred=False)
    points, coef = np.array([3, 50, 7, 89, 11, 12, 13]), rng.standard_normal(7)
    before, field = mine.gram(points).copy(), np.zeros((2, 128))
    mine.add(points, coef, field[0])
    mine.keep()
    mine.add(points, coef, field[1])
    assert mine.gram(points)[:8, :7] == pytest.approx(before[:8, :7], rel=1e-5, abs=1e-5)
    assert field[1, :90] == pytest.approx(field[0, :90], rel=1e-5, abs=1e-5)
    assert mine.gram(np.arange(90), shared=True) is mine.gram(np.arange(90), shared=True)
    assert mine.gram(np.arange(90)) is not mine.gram(np.arange(90), shared=True)


@pytest.mark.parametrize("kind", [KernelKind.RBF, KernelKind.LAPLACIAN, KernelKind.POLY, KernelKind.SIGMOID])
@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.compiled
def test_the_bound_on_float32_kernel_values_holds(kind, scale, sparse):
    rng = np.random.default_rng(8)
    X = scale * rng.standard_normal((128, 12)) * np.exp(rng.standard_normal((128, 1)))
    if sparse:
        X = csr_matrix(X * (rng.random(X.shape) < 0.4))
    elif kind in (KernelKind.RBF, KernelKind.LAPLACIAN):
        X += 100.0
    K = small_matrix(X, Kernel(int(kind), 0.05, -0.5, 3, 0.0))
    mine = tiles.make_tiles(K, centred=True)
    everything = np.arange(128)
    error = np.abs(mine.gram(everything)[:128, :128] - K.rows(everything))
    assert (error <= np.outer(mine.error_factor, mine.error_factor)).all()
    K = small_matrix(X, K.kernel._replace(offset=1e4))
    mine = tiles.make_tiles(K, centred=True)
    coef, field = rng.standard_normal(128), np.zeros(128)
    for _ in range(2):
        field[:] = 0.0
        mine.add(everything, coef, field)
        rounding = 1e-14 * np.abs(K.rows(everything)) @ np.abs(coef)
        bound = mine.error_factor * (mine.error_factor @ np.abs(coef))
        assert (np.abs(field - K.rows(everything) @ coef) <= bound + rounding).all()
        mine.keep()


@pytest.mark.parametrize("d", [1, 4, 11])
@pytest.mark.parametrize("degree", [2, 3])
@pytest.mark.parametrize("coef0", [1.0, 0.0, -0.7])
def test_sums_of_polynomial_kernels_are_one_polynomial(d, degree, coef0):
    rng = np.random.default_rng(d)
    X = rng.standard_normal((150, d))
    K = small_matrix(X, Kernel(int(KernelKind.POLY), 0.3, coef0, degree, 0.25))
    mine = tiles.make_tiles(K, centred=False)
    assert mine.exact_products
    points, coef = rng.permutation(150)[:90], rng.standard_normal(90)
    expected = K.rows(points).T @ coef
    field = np.zeros(192)
    mine.add(points, coef, field)
    assert np.abs(field[:150] - expected).max() <= 1e-13 * np.abs(expected).max()
    assert np.abs(K.product(points, coef) - expected).max() <= 1e-13 * np.abs(expected).max()
    mine.keep()
    field[:] = 0.0
    mine.add(points, coef, field)
    assert np.abs(field[:150] - expected).max() <= 1e-13 * np.abs(expected).max()


def test_solutions_can_be_pickled_before_they_are_measured():
    import pickle

    X, y = mixture()
    solution = svmcore.train_svc(X, y, 1.0, solver="block")
    copy = pickle.loads(pickle.dumps(solution))
    assert copy.gap == solution.gap
    assert (copy.alpha == solution.alpha).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("C", [1.0, 1e4])
def test_conjugate_steps_reach_the_optimum_of_plain_ones(dtype, C):
    rng = np.random.default_rng(3)
    n, width = 100, 128
    X = rng.standard_normal((n, 2))
    y = np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)
    K = np.zeros((n + 1, width))
    K[:n, :n] = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2)) + 1e-3 * np.eye(n)
    values = np.concatenate([y, np.zeros(width - n)])
    found, steps = [], []
    for conjugate in (False, True):
        floats = [np.ones(width, dtype), values.astype(dtype), np.empty(width, dtype), np.empty(width, dtype)]
        work = block_jit.WorkingSet(
            K.astype(dtype), 1.0, *floats, np.zeros(n), np.where(y < 0, -C, 0.0), np.where(y > 0, C, 0.0)
        )
        work.diagonal[:n] = np.diag(K[:n, :n])
        block_jit.start_masks(work)
        if conjugate:
            taken, violation, bits = block_jit.conjugate_steps(
                work, block_jit.new_direction(work), 16, 1e-3, 1e-12, 50_000
            )
        else:
            taken, violation, bits = block_jit.pair_steps(work, 1e-3, 1.0, 1e-12, 50_000)
        assert violation <= 1e-3
        assert not bits
        assert abs(work.beta.sum()) < 1e-9 * C
        assert (work.beta >= work.lower).all()
        assert (work.beta <= work.upper).all()
        exact = y - K[:n, :n] @ work.beta
        assert np.abs(work.values[:n] - exact).max() <= (1e-9 if dtype == np.float64 else 2e-6) * max(1.0, C / 10)
        found.append(0.5 * work.beta @ K[:n, :n] @ work.beta - y @ work.beta)
        steps.append(taken)
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert C == 1.0 or steps[1] < 0.6 * steps[0]


@pytest.mark.compiled
def test_long_runs_of_steps_are_conjugate(monkeypatch):
    """Few free variables and large costs: the same answers in fewer steps, where one run may be lucky."""
    steps = {0: 0, block.CONJUGATE: 0}
    for seed in range(3, 8):
        X = np.random.default_rng(seed).standard_normal((800, 2))
        y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
        found = []
        for most in steps:
            monkeypatch.setattr(block, "CONJUGATE", most)
            found.append(svmcore.train_svc(X, y, 1e4, gamma=0.5, tol=1e-6, solver="block"))
            certified(found[-1], X, y, 1e4, 1e-6, gamma=0.5)
            steps[most] += found[-1].n_iter
        assert found[1].objective == pytest.approx(found[0].objective, rel=1e-7)
    plain, conjugate = steps.values()
    assert conjugate < 0.8 * plain


@pytest.mark.compiled
def test_blocks_that_lead_to_nothing_better_than_a_face_step_become_precise():
    """Fifteen points whose float32 blocks undo what exact steps over the free variables gain."""
    X = [
        [-1, 2, 1], [-2, -2, 2], [-1, 0, 0], [-1, 0, 2], [1, 2, -2], [0, 1, -1], [1, 2, -2], [1, -1, 2], [2, 0, 0],
        [-2, 0, 2], [1, 0, 2], [-1, -2, 1], [0, 0, 2], [2, -1, -2], [-2, -1, 2],
    ]  # fmt: skip
    y = [-1, 1, 1, 1, 1, 1, 1, -1, 1, 1, 1, 1, 1, -1, -1]
    words = {"C": 1e6, "kernel": "poly", "degree": 2, "gamma": 0.5, "coef0": 1.0, "loss": "squared_hinge"}
    words["sample_weight"] = [2, 3, 3, 1, 3, 1, 3, 3, 2, 3, 1, 2, 1, 1, 3]
    found = svmcore.train_svc(X, y, solver="block", **words)
    assert found.converged
    assert found.stats["precision"] == "float64"
    assert found.objective == pytest.approx(
        svmcore.train_svc(X, y, solver="smo", tol=1e-6, **words).objective, rel=1e-8
    )


@pytest.mark.compiled
def test_a_block_does_not_circle_in_its_rounding():
    """float32 residuals that drift together cannot settle to any tolerance in one go: the block has to be set up afresh."""
    X, y = mixture(1000, 10, noise=0.02)
    alpha = None
    for C in np.geomspace(0.1, 100.0, 25):
        warm = svmcore.train_svc(X, y, C, gamma=0.1, solver="block", tol=1e-6, alpha0=alpha)
        cold = svmcore.train_svc(X, y, C, gamma=0.1, solver="block", tol=1e-6)
        assert warm.n_iter <= 2 * cold.n_iter + len(y)
        alpha = warm.alpha


@pytest.mark.compiled
@pytest.mark.parametrize("C", [1.0, 100.0])
def test_near_the_end_a_block_is_solved_to_the_tolerance(C, monkeypatch):
    """No other block follows for the little that is left."""
    X, y = mixture(2500, 10, noise=0.02)
    found = svmcore.train_svc(X, y, C, gamma=0.1)
    monkeypatch.setattr(block, "CLOSE", 0.0)
    slower = svmcore.train_svc(X, y, C, gamma=0.1)
    assert max(found.kkt_violation, slower.kkt_violation) <= 1e-3
    assert found.stats["n_outer"] < slower.stats["n_outer"]
    assert found.n_kernel_evals < slower.n_kernel_evals


@pytest.mark.compiled
def test_where_the_last_product_has_to_be_precise_no_other_one_comes_before_it():
    """It takes the place of the last block's product, and the certificate finds it remembered."""
    X, y = mixture(2500, 10, noise=0.02)
    records = svmcore.train_svc(X, y, 100.0, gamma=0.1, solver="block", trace=True)
    assert records.stats["exact"]
    assert records.stats["certificate_evals"] == 0
    last = records.n_kernel_evals - int(records.trace["n_kernel_evals"][-2])
    assert last < 1.5 * len(records.support) * len(y)
