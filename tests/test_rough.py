"""Products in float32: the bound on their error holds, and they say where they know nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svmcore._types import Kernel, KernelKind
from svmcore.kernel.pairs import PairProduct
from svmcore.kernel.points import dense_points
from svmcore.kernel.products import point_product
from svmcore.kernel.rough import RoughProduct
from svmcore.simd.lanes import MULTIPLIES_PAIRS

KINDS = {
    "rbf": KernelKind.RBF,
    "laplacian": KernelKind.LAPLACIAN,
    "poly": KernelKind.POLY,
    "sigmoid": KernelKind.SIGMOID,
}


def exactly(kernel, X, sources, coef):
    targets, points = (dense_points(each, np.arange(len(each))) for each in (X, sources))
    return point_product(kernel, targets, points, coef, X.shape[1], 1)


def a_kernel(name, width, scale, degree=5):
    return Kernel(int(KINDS[name]), 1.0 / (width * scale**2), 0.5 if name != "sigmoid" else 0.1, degree, 0.0)


@given(
    name=st.sampled_from(list(KINDS)),
    width=st.sampled_from([1, 3, 47, 48, 90]),
    scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e4, 1e12]),
    size=st.sampled_from([1e-40, 1e-9, 1.0, 1e6, 1e45]),
    spread=st.sampled_from([0.01, 1.0, 4.0]),
    offset=st.sampled_from([0.0, 1.0, 50.0]),
    seed=st.integers(0, 1000),
)
def test_no_value_is_off_by_more_than_its_bound(name, width, scale, size, spread, offset, seed):
    """Whatever the units of features and coefficients are: float32 alone holds neither 1e-45 nor 1e45."""
    rng = np.random.default_rng(seed)
    sources, X = (scale * (spread * rng.normal(size=(m, width)) + offset) for m in (40, 70))
    coef = size * rng.normal(size=40)
    kernel = a_kernel(name, width, scale)
    values, bounds = RoughProduct(kernel, sources, coef)(X, 1)
    expected = exactly(kernel, X, sources, coef)
    known = np.isfinite(bounds)
    assert np.isfinite(values[known]).all()
    assert (np.abs(values - expected)[known] <= bounds[known]).all()
    if offset < 50.0 or name in ("rbf", "laplacian"):
        assert known.all()
    if name == "rbf" and spread <= 1.0 and offset == 0.0:
        assert (bounds < 1e-4 * np.abs(coef).sum()).all()


@pytest.mark.parametrize("name", list(KINDS))
def test_it_is_no_double_precision(name):
    rng = np.random.default_rng(0)
    sources, X, coef = rng.normal(size=(200, 5)), rng.normal(size=(100, 5)), rng.normal(size=200)
    values, _ = RoughProduct(a_kernel(name, 5, 1.0), sources, coef)(X, 1)
    assert np.abs(values - exactly(a_kernel(name, 5, 1.0), X, sources, coef)).max() > 1e-9


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
@pytest.mark.parametrize("width", [5, 60])
def test_small_kernel_values_have_small_bounds(name, width):
    """A value is off by a share of itself, or little more: four times the gamma makes values and bounds much smaller."""
    rng = np.random.default_rng(9)
    sources, X, coef = rng.normal(size=(200, width)), rng.normal(size=(300, width)), rng.normal(size=200)
    bounds = []
    for scale in (1.0, 0.5):
        kernel = a_kernel(name, width, scale)
        values, bound = RoughProduct(kernel, sources, coef)(X, 1)
        off = np.abs(values - exactly(kernel, X, sources, coef))
        assert (off <= bound).all()
        assert off.max() > 1e-3 * bound.max()
        bounds.append(np.median(bound))
    assert bounds[1] < 0.4 * bounds[0]


def test_one_far_row_keeps_its_neighbours_from_distances_by_squares_and_their_bound_still_holds():
    rng = np.random.default_rng(1)
    sources, X, coef = rng.normal(size=(130, 60)), rng.normal(size=(600, 60)), rng.normal(size=130)
    kernel = a_kernel("rbf", 60, 1.0)
    near, _ = RoughProduct(kernel, sources, coef)(X[:512], 1)
    X[5] *= 100.0
    values, bounds = RoughProduct(kernel, sources, coef)(X, 1)
    assert (np.abs(values - exactly(kernel, X, sources, coef)) <= bounds).all()
    assert not np.array_equal(values[6:512], near[6:])


@pytest.mark.parametrize("far", [1e25, 1e200, np.finfo(float).max])
@pytest.mark.parametrize("name", list(KINDS))
def test_rows_beyond_float32_are_right_or_unknown(name, far):
    rng = np.random.default_rng(2)
    sources, X, coef = rng.normal(size=(50, 4)), rng.normal(size=(30, 4)), rng.normal(size=50)
    X[3] = far
    kernel = a_kernel(name, 4, 1.0)
    values, bounds = RoughProduct(kernel, sources, coef)(X, 1)
    known = np.isfinite(bounds)
    others = np.arange(30) != 3
    assert known[others].all()
    with np.errstate(over="ignore", invalid="ignore"):
        expected = exactly(kernel, X, sources, coef)
    assert (np.abs(values - expected)[known] <= bounds[known]).all()


def test_bits_do_not_depend_on_threads():
    rng = np.random.default_rng(3)
    sources, X, coef = rng.normal(size=(500, 80)), rng.normal(size=(3000, 80)), rng.normal(size=500)
    rough = RoughProduct(a_kernel("rbf", 80, 1.0), sources, coef)
    (one, bound), (two, other) = rough(X, 1), rough(X, 2)
    assert np.array_equal(one, two)
    assert np.array_equal(bound, other)
    third, _ = rough(X, 3)
    assert np.array_equal(one, third)


pairs = pytest.mark.skipif(not MULTIPLIES_PAIRS, reason="this processor multiplies no pairs of integers")


def norm_of(kernel, sources, coef):
    return np.sqrt(coef @ exactly(kernel, sources, sources, coef))


@pairs
@given(
    width=st.sampled_from([48, 49, 90, 300]),
    scale=st.sampled_from([1e-12, 1.0, 1e12]),
    size=st.sampled_from([1e-9, 1.0, 1e6]),
    spread=st.sampled_from([0.0, 0.01, 0.5, 1.0, 3.0]),
    one=st.sampled_from([0.0, 0.5, 8.0]),
    signs=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 1000),
)
def test_no_value_of_integers_is_off_by_more_than_its_bound(width, scale, size, spread, one, signs, seed):
    """Of points that are alike or not, and of points of which one feature is larger than all others."""
    rng = np.random.default_rng(seed)
    sources, X = (spread * rng.normal(size=(m, width)) for m in (40, 70))
    sources[0, 0] += one
    X[0, 1] += one
    sources, X = sources * scale, X * scale
    coef = size * (rng.normal(size=40) + 3.0 * signs)
    kernel = a_kernel("rbf", width, scale)
    values, bounds = PairProduct(kernel, sources, coef, norm_of(kernel, sources, coef))(X, 1)
    known = np.isfinite(bounds)
    assert known.all() or spread == 3.0
    assert (np.abs(values - exactly(kernel, X, sources, coef))[known] <= bounds[known]).all()
    assert (bounds[known] < 3e-3 * np.abs(coef).sum()).all()


@pairs
def test_both_sides_of_the_rounding_to_integers_are_in_the_bound():
    rng = np.random.default_rng(5)
    sources, X = rng.normal(size=(200, 60)), rng.normal(size=(300, 60))
    coef = rng.normal(size=200)
    kernel = a_kernel("rbf", 60, 1.0)
    product = PairProduct(kernel, sources, coef, norm_of(kernel, sources, coef))
    values, bounds = product(X, 1)
    off = np.abs(values - exactly(kernel, X, sources, coef))
    assert 1e-5 < off.max() <= bounds.min()
    for what in ("norm", "moved"):
        kept = getattr(product, what)
        setattr(product, what, 0.0)
        _, less = product(X, 1)
        assert (less < bounds).all()
        setattr(product, what, kept)
    assert np.array_equal(product(X, 3)[0], values)


@pairs
def test_integers_of_one_row_against_one_source_are_off_by_up_to_their_bound():
    """There is little to gain from a sharper bound of the one value: that of a sum is for terms that all err to one side."""
    kernel = Kernel(int(KernelKind.RBF), 1.0, 0.0, 3, 0.0)
    rng = np.random.default_rng(6)
    X = 0.05 * rng.normal(size=(4000, 100))
    sources = np.concatenate([X[:1], X[:1] + 0.1 * rng.normal(size=(1, 100))])
    coef = np.array([1.0, 0.0])
    values, bounds = PairProduct(kernel, sources, coef, 1.0)(X, 1)
    off = np.abs(values - exactly(kernel, X, sources, coef))
    assert (off <= bounds).all()
    assert (off > 0.1 * bounds).any()


@pairs
def test_integers_say_nothing_of_points_that_are_far_away():
    rng = np.random.default_rng(7)
    sources, X, coef = rng.normal(size=(130, 60)), rng.normal(size=(1500, 60)), rng.normal(size=130)
    X[1100] *= 100.0
    kernel = a_kernel("rbf", 60, 1.0)
    product = PairProduct(kernel, sources, coef, norm_of(kernel, sources, coef))
    known = np.isfinite(product(X, 1)[1])
    assert known[:1024].all()
    assert not known[1024:].any()
    sources[3] *= 1e200
    assert np.isinf(PairProduct(kernel, sources, coef, 1.0)(X, 1)[1]).all()


def test_coefficients_of_zero_give_zero():
    values, bounds = RoughProduct(a_kernel("rbf", 2, 1.0), np.ones((3, 2)), np.zeros(3))(np.ones((5, 2)), 1)
    assert not values.any()
    assert not bounds.any()
