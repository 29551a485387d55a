"""Columns of K that are kept: what is computed, what makes way, and what is read, held against the matrix itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

from svmcore._types import LANES, Kernel, KernelKind
from svmcore.base import threads as _threads
from svmcore.kernel import matrix, tiles, whole
from svmcore.kernel.columns import ColumnStore
from svmcore.kernel.matrix import KernelMatrix
from svmcore.simd.lanes import UNITS_16
from svmcore.simd.vector import ROWS

pytestmark = pytest.mark.compiled


class Matrix:
    """A symmetric matrix that counts the columns it is asked for."""

    def __init__(self, n: int) -> None:
        self.values = np.add.outer(np.arange(n), 1000.0 * np.arange(n))
        self.asked: list[int] = []

    def compute(self, points, out):
        self.asked += points.tolist()
        groups = -(-len(points) // ROWS) * ROWS
        assert len(out) >= groups
        out[:groups] = np.nan
        out[: len(points), : len(self.values)] = self.values[points]


def store(matrix: Matrix, columns: int) -> ColumnStore:
    n = len(matrix.values)
    width = -(-n // LANES) * LANES + 32
    return ColumnStore(n, 8 * width * (columns + ROWS), np.float64, matrix.compute)


def holds(kept: ColumnStore, matrix: Matrix, points) -> None:
    slots = kept.find(np.array(points))
    assert (slots >= 0).all()
    assert (kept.rows[slots, : len(matrix.values)] == matrix.values[points]).all()


def test_a_column_is_computed_once():
    matrix = Matrix(40)
    kept = store(matrix, 40)
    for points in ([3, 1, 39], [1, 2], list(range(40)), [0, 39]):
        slots, _ = kept.fetch(np.array(points))
        assert (slots >= 0).all()
        holds(kept, matrix, points)
    assert sorted(matrix.asked) == list(range(40))


def test_what_was_unused_longest_makes_way():
    matrix = Matrix(60)
    kept = store(matrix, 4)
    assert kept.capacity == 4
    for point in (10, 11, 12, 13):
        kept.fetch(np.array([point]))
    kept.find(np.array([10]))
    kept.fetch(np.array([20, 21]))
    holds(kept, matrix, [10, 13, 20, 21])
    assert (kept.slot[[11, 12]] == -1).all()


def test_columns_in_use_stay_and_the_rest_is_left_to_the_caller():
    matrix = Matrix(60)
    kept = store(matrix, 4)
    kept.fetch(np.array([1, 2]))
    slots, computed = kept.fetch(np.array([2, 50, 51, 52, 53, 54]))
    assert computed == 3
    assert (slots >= 0).tolist() == [True, True, True, True, False, False]
    holds(kept, matrix, [2, 50, 51, 52])


def test_a_store_without_room_keeps_nothing():
    matrix = Matrix(20)
    kept = ColumnStore(20, 100, np.float32, matrix.compute)
    slots, computed = kept.fetch(np.array([4, 5]))
    assert computed == 0
    assert (slots == -1).all()


@pytest.mark.parametrize("gamma", [0.01, 0.3, 2.5, 3.5, 50.0])
def test_distances_from_squares_where_these_are_small(gamma):
    """Near points in float32, with a rigorous bound; beyond a size of the squares, sums of squared differences."""
    n, d = 90, 100
    rng = np.random.default_rng(8)
    X = 7.0 + rng.standard_normal((n, d)) / np.sqrt(d)
    X[1:20] = X[0] + 1e-4 * rng.standard_normal((19, d))
    X[20] = X[0]
    K = KernelMatrix(X, Kernel(int(KernelKind.RBF), gamma, 0.0, 3, 0.0), cache_bytes=1 << 20, n_threads=1)
    mine = tiles.make_tiles(K, centred=False)
    assert type(mine.single_shape).__name__ == ("NearRbf" if gamma < 2.0 else "Rbf")
    found, exact = mine.gram(np.arange(n))[:n, :n].astype(float), K.rows(np.arange(n))
    bound = mine.error_factor[:, None] * mine.error_factor
    assert (np.abs(found - exact) <= bound).all()
    assert bound.max() < 3e-5
    assert found[0, 0] == found[0, 20] == found[20, 20]
    assert np.linalg.eigvalsh(found).min() > -1e-5
    field = np.zeros(-(-n // LANES) * LANES)
    mine.add(np.arange(20), np.ones(20), field)
    assert np.abs(field[:n] - exact[:, :20].sum(axis=1)).max() < 2e-5
    mine.release()


@pytest.mark.parametrize(("gamma", "d", "near"), [(0.6, 60, True), (4.0, 60, False), (0.6, 40, False)])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_float64_products_of_wide_points_of_small_norm(gamma, d, near, n_threads, monkeypatch):
    """From squares where these are small: products, those with what is in both sets, columns and Gram matrices."""
    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 1.0)
    monkeypatch.setattr(matrix, "_SYMMETRIC_POINTS", 20)
    rng = np.random.default_rng(12)
    X = 0.1 + rng.standard_normal((150, d)) / np.sqrt(d)
    X[9] = X[8]
    K = KernelMatrix(X, Kernel(int(KernelKind.RBF), gamma, 0.0, 3, 0.25), cache_bytes=1 << 20, n_threads=n_threads)
    assert (K.squares is not None) == near
    exact = np.exp(-gamma * ((X[:, None] - X[None]) ** 2).sum(axis=2)) + 0.25
    targets, index = np.sort(rng.permutation(150)[:90]), np.sort(rng.permutation(150)[:70])
    coef = rng.standard_normal(70)
    for at in (targets, targets[:10], np.arange(150)):
        assert np.abs(K.product_at(at, index, coef) - exact[at][:, index] @ coef).max() < 70 * 3e-15
    mine = tiles.make_tiles(K, centred=False)
    field = np.zeros(-(-150 // LANES) * LANES)
    mine.add_exactly(index, coef, field)
    assert np.abs(field[:150] - exact[:, index] @ coef).max() < 70 * 3e-15
    assert np.abs(mine.gram(targets, np.float64)[:90, :90] - exact[np.ix_(targets, targets)]).max() < 3e-15
    mine.release()


@pytest.mark.parametrize("kind", [KernelKind.RBF, KernelKind.POLY, KernelKind.SIGMOID, KernelKind.LAPLACIAN])
@pytest.mark.parametrize("offset", [0.0, 0.5])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_products_and_gram_matrices_of_wide_data(kind, offset, n_threads, monkeypatch):
    """Both number types, against the matrix, with and without columns for all points; the same bits on two threads."""
    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 1.0)
    n, d = 150, 131
    rng = np.random.default_rng(5)
    X = rng.standard_normal((n, d))
    K = KernelMatrix(X, Kernel(int(kind), 0.3 / d, 0.5, 3, offset), cache_bytes=1 << 20, n_threads=n_threads)
    exact = K.rows(np.arange(n))
    points, coef = np.sort(rng.permutation(n)[:70]), rng.standard_normal(70)
    some = np.sort(rng.permutation(n)[:90])
    for real, error in ((np.float32, 3e-6), (np.float64, 1e-13)):
        mine = tiles.make_tiles(K, centred=False)
        assert mine.by_columns
        add = mine.add if real == np.float32 else mine.add_exactly
        for _ in range(2):
            field = np.zeros(-(-n // LANES) * LANES)
            add(points, coef, field)
            assert np.abs(field[:n] - exact[:, points] @ coef).max() < error * 70
            assert mine.n_evals == 70 * n
        bound = mine.error_factor[:, None] * mine.error_factor
        for dtype in (np.float32, np.float64) if real == np.float64 else (np.float32,):
            found = mine.gram(some, dtype)[:90, :90]
            assert (np.abs(found - exact[np.ix_(some, some)]) <= bound[np.ix_(some, some)] + 1e-12).all()
            assert (mine.gram(some, dtype)[90:] == 0).all()
        if mine.fits_16_bits:
            found = mine.gram(some, np.uint16)[:90, :90] / UNITS_16
            assert np.abs(found - exact[np.ix_(some, some)]).max() < 0.51 / UNITS_16 + 1e-5
        mine.release()


@pytest.mark.parametrize("kind", [KernelKind.RBF, KernelKind.POLY, KernelKind.LAPLACIAN])
@pytest.mark.parametrize("width", [5, 41])
def test_the_matrix_of_all_points_on_any_number_of_threads_and_in_pieces(kind, width, monkeypatch):
    """Of few or wide points half of it is computed, and mirrored: symmetric to the bit, and the bits are always the same."""
    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 1.0)
    n = 150
    X, found = np.random.default_rng(6).standard_normal((n, width)), []
    for n_threads, between, few in ((1, 1e9, 0), (2, 1e9, 0), (3, 5e5, 0), (2, 1.0, 0), (1, 1e9, n)):
        monkeypatch.setattr(whole, "_BETWEEN_LOOKS", between)
        monkeypatch.setattr(whole, "_FEW", few)
        K = KernelMatrix(X, Kernel(int(kind), 0.3 / width, 0.5, 3, 0.25), cache_bytes=0, n_threads=n_threads)
        found.append(whole.exact_gram(K, lambda _: True)[:, :n].copy())
        assert K.n_evals == (n * n if width == 5 and not few else n * (n + 1) // 2)
    assert all(np.array_equal(each, found[0]) for each in found)
    assert np.array_equal(found[0], found[0].T)
    assert np.abs(found[0] - K.rows(np.arange(n))).max() < 1e-13


@pytest.mark.parametrize("few", [0, 90])
@pytest.mark.parametrize("width", [5, 41])
@pytest.mark.parametrize("kind", [KernelKind.RBF, KernelKind.POLY])
def test_a_matrix_of_all_points_asks_nothing_of_the_memory_that_it_gets(kind, width, few, monkeypatch):
    """Arithmetic with what is there already would warn of a signalling NaN."""
    monkeypatch.setattr(whole, "_FEW", few)
    X = np.random.default_rng(6).standard_normal((90, width))
    K = KernelMatrix(X, Kernel(int(kind), 0.3 / width, 0.5, 3, 0.25), cache_bytes=0, n_threads=1)
    signalling = np.array([0x7FF0000000000001], np.uint64).view(np.float64)
    found = whole.exact_gram(K, lambda _: True, lambda shape: np.repeat(signalling, math.prod(shape)).reshape(shape))
    assert np.abs(found[:, :90] - K.rows(np.arange(90))).max() < 1e-13


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 100])
def test_falling_work_is_cut_into_all_of_it(count, n_threads, monkeypatch):
    """Every place once; and with as much work in every range as the others have."""
    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 1.0)
    ranges = []
    _threads.split_falling(lambda a, b: ranges.append((a, b)), count, 2.0, n_threads)
    assert sorted(place for a, b in ranges for place in range(a, b)) == list(range(count))
    if count == 100:
        shares = [sum(count - place for place in range(a, b)) for a, b in ranges]
        assert len(shares) == n_threads
        assert max(shares) - min(shares) <= 1.5 * count  # a place at the beginning is worth so much
