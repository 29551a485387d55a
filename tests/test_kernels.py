"""Kernel values against their definitions: rows, blocks, products, diagonals; dense, sparse, given, by function."""

from __future__ import annotations

import math

import numpy as np
import oracle
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from svmcore import InputError, _kernels
from svmcore._types import LANES, Kernel, KernelKind
from svmcore.base import threads as _threads
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.points import aligned, dense_points, new_scratch, padded, sparse_points
from svmcore.kernel.products import point_product
from svmcore.kernel.table import TABLE, facts_of, is_positive, name_of, parameters_of
from svmcore.simd.vector import exp_nonpositive, fmax, fmin

pytestmark = pytest.mark.home

KERNELS = {
    "linear": Kernel(int(KernelKind.LINEAR), 1.0, 0.0, 1, 0.0),
    "poly": Kernel(int(KernelKind.POLY), 0.5, 1.0, 3, 0.0),
    "poly0": Kernel(int(KernelKind.POLY), 0.5, 1.0, 0, 0.0),
    "sigmoid": Kernel(int(KernelKind.SIGMOID), 0.3, -0.5, 1, 0.0),
    "rbf": Kernel(int(KernelKind.RBF), 0.7, 0.0, 1, 0.0),
    "laplacian": Kernel(int(KernelKind.LAPLACIAN), 0.4, 0.0, 1, 0.0),
    "embedded": Kernel(int(KernelKind.RBF), 0.7, 0.0, 1, 2.25),
}


@pytest.mark.parametrize("degree", range(10))
def test_powers_are_powers(degree):
    base = np.array([-1.5, 0.0, 0.3, 2.0])
    kernel = Kernel(int(KernelKind.POLY), 2.0, 0.25, degree, 0.0)
    assert facts_of(kernel).value(kernel, base) == pytest.approx((2.0 * base + 0.25) ** degree, rel=1e-14)


@pytest.mark.parametrize("name", KERNELS)
def test_the_table_has_the_values_that_the_loops_have(name):
    X = np.random.default_rng(5).normal(size=(9, 3))
    kernel, facts = KERNELS[name], facts_of(KERNELS[name])
    apart = X[:, None] - X
    measure = {"product": X @ X.T, "square": (apart**2).sum(2), "cityblock": np.abs(apart).sum(2)}[facts.measure]
    found = matrix(name, X).rows(np.arange(9))[:, :9]
    assert facts.value(kernel, measure) + kernel.offset == pytest.approx(found, rel=1e-12, abs=1e-15)


def expected(name: str, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
    kernel = KERNELS[name]
    kind = {"poly0": "poly", "embedded": "rbf"}.get(name, name)
    return oracle.kernel_matrix(kind, X, Z, kernel.gamma, kernel.coef0, kernel.degree) + kernel.offset


def matrix(name: str, X, function=None, cache_bytes: int = 1 << 20, n_threads: int = 1) -> KernelMatrix:
    return KernelMatrix(X, KERNELS[name], function, cache_bytes=cache_bytes, n_threads=n_threads)


def bound(X: np.ndarray) -> float:
    """What rounding may do to a kernel value of these features."""
    largest = 1.0 + float(np.abs(X).max()) ** 2 * X.shape[1]
    return 64.0 * oracle.EPS * largest**3


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("name", KERNELS)
@given(strategies.points(2, 12), st.integers(0, 3))
def test_rows_blocks_products_and_diagonal(name, layout, X, extra):
    X = np.vstack([X, np.zeros((extra, X.shape[1]))])
    K = matrix(name, sparse.csr_matrix(X) if layout == "sparse" else X)
    exact, close = expected(name, X, X), {"rel": 1e-14, "abs": bound(X)}
    n = len(X)
    rows, columns = np.arange(0, n, 2), np.arange(n)[::-3].copy()
    coef = np.linspace(-1.0, 2.0, len(columns))
    assert K.diagonal == pytest.approx(np.diag(exact), **close)
    assert K.rows(rows) == pytest.approx(exact[rows], **close)
    assert K.block(rows, columns) == pytest.approx(exact[np.ix_(rows, columns)], **close)
    assert K.product(columns, coef) == pytest.approx(exact[:, columns] @ coef, rel=1e-13, abs=n * bound(X))
    assert K.n_evals == len(rows) * n + len(rows) * len(columns) + len(columns) * n


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 130])
def test_panels_end_anywhere(n, layout):
    X = np.random.default_rng(n).normal(size=(n, 3)) * (np.random.default_rng(0).random((n, 3)) < 0.7)
    for name in KERNELS:
        K = matrix(name, sparse.csr_matrix(X) if layout == "sparse" else X)
        index = np.array([0, n - 1, n // 2])
        assert K.rows(index) == pytest.approx(expected(name, X[index], X), rel=1e-13, abs=bound(X))
        out = aligned((1, padded(n)))
        _kernels.kernel_block(K.kernel, K.points, index[:1], K.points, new_scratch(3), out)
        assert np.isfinite(out).all()  # padding holds finite values


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_equal_points_have_kernel_one_and_distances_do_not_cancel(name, layout):
    rng = np.random.default_rng(0)
    X = np.repeat(1e3 + rng.normal(size=(40, 7)), 2, axis=0)
    X[:, 3] = 0.0
    K = matrix(name, layout(X))
    found = K.rows(np.arange(80))
    assert np.all(found[np.arange(0, 80, 2), np.arange(1, 80, 2)] == 1.0)
    assert np.all(np.diag(found) == 1.0)
    assert np.array_equal(found, found.T)
    # differences of neighbours of 1e3 are exact to 1e-13 of their size, squares of 1e3 would leave 1e-10
    assert found == pytest.approx(expected(name, X, X), rel=1e-14)


def test_sparse_distances_do_not_cancel_where_one_point_stores_less():
    X = np.array([[1e8, 0.0, 0.0], [1e8, 1.0, 0.0], [0.0, 1.0, 2.0], [1e8, 1.0, 1e-3]])
    for name in ("rbf", "laplacian"):
        found = matrix(name, sparse.csr_matrix(X)).rows(np.arange(4))
        assert found == pytest.approx(expected(name, X, X), rel=1e-14)


def test_far_points_have_a_kernel_of_nothing():
    for X in (np.array([[0.0], [1e150]]), sparse.csr_matrix([[0.0, 1.0], [1e150, 0.0]])):
        for name in ("rbf", "laplacian"):
            found = matrix(name, X).rows(np.arange(2))
            assert np.all(np.diag(found) == 1.0)
            assert 0.0 <= found[0, 1] < 1e-300
            assert 0.0 <= found[1, 0] < 1e-300


@given(st.floats(-800.0, 0.0))
def test_exponential_is_exact_to_two_ulps(x):
    block = np.full(LANES, x)
    bits = np.zeros(LANES, np.int64)
    exp_nonpositive(block, bits, bits.view(np.float64))
    assert np.all(block == block[0])
    assert block[0] == pytest.approx(math.exp(max(x, -708.0)), rel=2.5 * oracle.EPS)


def test_exponential_of_zero_is_one_and_of_minus_infinity_nothing():
    block = np.zeros(LANES)
    block[1::2] = -np.inf
    bits = np.zeros(LANES, np.int64)
    exp_nonpositive(block, bits, bits.view(np.float64))
    assert np.all(block[::2] == 1.0)
    assert np.all(block[1::2] < 1e-300)


def test_extremes_of_two():
    call = fmax, fmin
    if not strategies.DISABLED:
        pytest.skip("compiled: an instruction, run inside every other test")
    assert [f(a, b) for f in call for a, b in ((1.0, 2.0), (2.0, 1.0))] == [2.0, 2.0, 1.0, 1.0]


@pytest.mark.parametrize("pack", [dense_points, lambda X, order: sparse_points(sparse.csr_matrix(X), order)])
@pytest.mark.parametrize("name", KERNELS)
def test_products_do_not_depend_on_threads(name, pack, monkeypatch):
    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 1.0)
    rng = np.random.default_rng(1)
    X, Z, coef = rng.normal(size=(70, 5)), rng.normal(size=(150, 5)), rng.normal(size=70)
    targets, sources = pack(Z, np.arange(150)), pack(X, np.arange(70))
    one, two, three = [point_product(KERNELS[name], targets, sources, coef, 5, threads) for threads in (1, 2, 3)]
    assert np.array_equal(one, two)
    assert np.array_equal(one, three)
    assert one == pytest.approx(expected(name, Z, X) @ coef, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("pack", [dense_points, lambda X, order: sparse_points(sparse.csr_matrix(X), order)])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("panels", [1, 2, 9])
def test_a_product_is_the_sum_over_its_chunks(panels, name, pack):
    rng = np.random.default_rng(6)
    n, width = 2 * LANES + 9, padded(2 * LANES + 9)
    X, Z = rng.normal(size=(n, 3)), rng.normal(size=(5, 3))
    coef, out = np.zeros(width), np.full(5, 7.0)
    coef[:n] = rng.normal(size=n)
    targets, sources = pack(Z, np.arange(5)), pack(X, np.arange(n))
    row = np.empty(panels * LANES)
    _kernels.kernel_product(KERNELS[name], targets, 1, 4, sources, coef, new_scratch(3), row, out)
    assert out[1:4] == pytest.approx(expected(name, Z[1:4], X) @ coef[:n], rel=1e-11, abs=1e-11)
    assert list(out[[0, 4]]) == [7.0, 7.0]


def test_long_products_run_over_chunks():
    rng = np.random.default_rng(2)
    width = _kernels.CHUNK_VALUES // LANES // 2  # two panels a chunk
    X = rng.normal(size=(5 * LANES - 7, width)) / math.sqrt(width)
    X = X[:, :8] if strategies.DISABLED else X
    coef = rng.normal(size=len(X))
    exact = (X[:3] @ X.T) @ coef
    points = dense_points(X, np.arange(len(X)))
    targets = dense_points(X[:3], np.arange(3))
    assert point_product(KERNELS["linear"], targets, points, coef, X.shape[1], 1) == pytest.approx(exact, abs=1e-12)


def by_function(A, B):
    return oracle.kernel_matrix("rbf", A, B, 0.7)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_python_kernels(cache_bytes, layout):
    X = np.random.default_rng(3).normal(size=(9, 2))
    function = Kernel(int(KernelKind.CALLABLE), 1.0, 0.0, 1, 1.5)
    K = KernelMatrix(layout(X), function, by_function, cache_bytes=cache_bytes)
    exact = by_function(X, X) + 1.5
    index, coef = np.array([7, 0, 4]), np.array([1.0, -2.0, 0.5])
    assert (K.function is None) == (cache_bytes > 0)
    assert K.diagonal == pytest.approx(np.diag(exact), rel=1e-15)
    assert K.rows(index) == pytest.approx(exact[index], rel=1e-15)
    assert K.block(index, index[:2]) == pytest.approx(exact[np.ix_(index, index[:2])], rel=1e-15)
    assert K.product(index, coef) == pytest.approx(exact[:, index] @ coef, rel=1e-14)
    assert K.product(index[:0], coef[:0]) == pytest.approx(np.zeros(9))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda A, B: np.ones((len(A), len(B) + 1)), "returned shape .* it must return one value per pair"),
        (lambda A, B: np.full((len(A), len(B)), np.nan), "returned nan .* finite numbers"),
    ],
)
def test_a_bad_python_kernel_is_named(function, message):
    kernel = Kernel(int(KernelKind.CALLABLE), 1.0, 0.0, 1, 0.0)
    for cache_bytes in (0, 1 << 20):
        with pytest.raises(InputError, match=message):
            KernelMatrix(np.ones((4, 1)), kernel, function, cache_bytes=cache_bytes)


def test_given_matrix_is_read_by_index():
    G = np.arange(16.0).reshape(4, 4)
    G = G + G.T
    K = KernelMatrix(G, Kernel(int(KernelKind.PRECOMPUTED), 1.0, 0.0, 1, 0.25), cache_bytes=0)
    assert np.array_equal(K.diagonal, np.diag(G) + 0.25)
    assert np.array_equal(K.block(np.array([3, 1]), np.array([0, 2])), G[[3, 1]][:, [0, 2]] + 0.25)


def test_the_same_product_is_answered_from_memory():
    X = np.random.default_rng(4).normal(size=(6, 2))
    K = matrix("rbf", X)
    first = K.product(np.arange(6), np.ones(6))
    count = K.n_evals
    assert K.product(np.arange(6), np.ones(6)) is first
    assert K.n_evals == count
    assert not first.flags.writeable
    assert K.product(np.arange(6), np.full(6, 2.0)) == pytest.approx(2.0 * first, rel=1e-15)


@pytest.mark.compiled  # numpy's scalars would warn
def test_a_kernel_that_overflows_is_refused():
    with pytest.raises(InputError, match="kernel of sample 1 with itself is inf; scale the features down"):
        matrix("poly", np.array([[0.0], [1e140]]))


# ---------------------------------------------------------------- the table of kernels


def test_every_kernel_has_a_row():
    assert set(TABLE) == set(KernelKind)


@pytest.mark.parametrize("name", ["linear", "poly", "sigmoid", "rbf", "laplacian"])
def test_a_kernel_depends_on_its_parameters_and_on_no_other(name):
    kernel = Kernel(int(KernelKind[name.upper()]), 0.3, 0.7, 2, 0.0)
    X = np.random.default_rng(0).standard_normal((6, 3))
    values = KernelMatrix(X, kernel, cache_bytes=1 << 20).rows(np.arange(6))
    found = {"gamma": 0.4, "coef0": 0.9, "degree": 3}
    assert name_of(kernel) == name
    assert parameters_of(kernel) == {key: getattr(kernel, key) for key in facts_of(kernel).parameters}
    for field, value in found.items():
        other = KernelMatrix(X, kernel._replace(**{field: value}), cache_bytes=1 << 20).rows(np.arange(6))
        assert np.array_equal(other, values) == (field not in facts_of(kernel).parameters)
    if facts_of(kernel).exponential:
        assert values.min() > 0.0
        assert np.diag(values) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["linear", "poly", "sigmoid", "rbf", "laplacian"])
@given(strategies.points(2, 30), st.sampled_from([0.0, 0.1, 2.0]), st.sampled_from([0.0, 0.5]), st.integers(1, 4))
def test_positive_kernels_have_positive_matrices(name, X, gamma, coef0, degree):
    kernel = Kernel(int(KernelKind[name.upper()]), gamma, coef0, degree, 0.0)
    K = KernelMatrix(X, kernel, cache_bytes=1 << 20).rows(np.arange(len(X)))[:, : len(X)]
    assert is_positive(kernel) == (name != "sigmoid")
    if is_positive(kernel):
        assert np.linalg.eigvalsh(K).min() >= -1e-12 * max(1.0, np.abs(K).max()) * len(X)


def test_signs_decide_whether_a_polynomial_is_positive():
    poly = Kernel(int(KernelKind.POLY), 0.5, 1.0, 3, 0.0)
    assert is_positive(poly)
    for change in ({"gamma": -0.5}, {"coef0": -1.0}):
        assert not is_positive(poly._replace(**change))
    X = np.array([[1.0], [2.0]])
    K = KernelMatrix(X, poly._replace(coef0=-1.0), cache_bytes=1 << 20).rows(np.arange(2))
    assert np.linalg.eigvalsh(K).min() < 0.0
