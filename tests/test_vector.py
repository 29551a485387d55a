"""The hand-written vector code against its plain definitions, and the plain definitions against float64 numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from checkouts import ran

from svmcore._kernels import add_forms, weighted_gram
from svmcore._types import LANES
from svmcore.compiler.jit import DISABLED
from svmcore.kernel.points import near_points
from svmcore.simd import line, loops, packing, passes, sparse, vector
from svmcore.simd.lanes import MULTIPLIES_PAIRS

pytestmark = pytest.mark.home

ROOT = Path(__file__).parents[1]
SHAPES = [
    vector.Poly(1.0, 0.0, 1),
    vector.Poly(0.3, 0.7, 3),
    vector.Poly(0.3, 0.7, 0),
    vector.Sigmoid(0.2, -0.4, 1),
    vector.Rbf(0.37, 0.0, 1),
    vector.Laplacian(0.21, 0.0, 1),
]
IDS = [f"{type(shape).__name__}-{shape.degree}" for shape in SHAPES]


def exact_kernel(shape, x, z):
    """K[i, j] in float64 from its formula."""
    if isinstance(shape, vector.Rbf):
        return 2.0 ** (-shape.scale * ((x[:, None] - z[None]) ** 2).sum(axis=2))
    if isinstance(shape, vector.Laplacian):
        return 2.0 ** (-shape.scale * np.abs(x[:, None] - z[None]).sum(axis=2))
    dot = x @ z.T
    dot = shape.scale * dot + shape.coef0
    return dot**shape.degree if isinstance(shape, vector.Poly) else np.tanh(dot)


def prescaled(shape, x, dtype):
    """Features as the tile of this type wants them."""
    if dtype == np.float32 and isinstance(shape, vector.Rbf):
        x = x * np.sqrt(shape.scale)
    if dtype == np.float32 and isinstance(shape, vector.Laplacian):
        x = x * shape.scale
    return x


def panels_of(x, dtype):
    out = np.zeros((-(-len(x) // LANES), x.shape[1], LANES), dtype)
    for t, row in enumerate(x):
        out[t // LANES, :, t % LANES] = row
    return out


def rows_of(x, dtype):
    panels = panels_of(x, dtype)
    out = np.empty((-(-len(x) // vector.ROWS), x.shape[1], vector.ROWS), dtype)
    packing.pack_rows(panels, np.arange(len(x)), out)
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["single", "double"])
@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
@pytest.mark.parametrize("d", [1, 3, 20])
def test_tiles_match_the_formula(shape, dtype, d):
    rng = np.random.default_rng(d)
    x, z = rng.standard_normal((14, d)), rng.standard_normal((70, d))
    expected = exact_kernel(shape, x, z)
    tolerance = {np.float32: 3e-6, np.float64: 3e-15}[dtype] * max(1.0, np.abs(expected).max())
    rows, panels = rows_of(prescaled(shape, x, dtype), dtype), panels_of(prescaled(shape, z, dtype), dtype)
    stored = np.zeros((rows.shape[0] * vector.ROWS, 2 * LANES), dtype)
    loops.store_block(shape, rows, panels, False, 0, 2, stored)
    assert np.abs(stored[:14, :70] - expected).max() <= tolerance
    coef = np.zeros(rows.shape[0] * vector.ROWS, dtype)
    coef[:14] = rng.standard_normal(14)
    out = np.ones(2 * LANES)
    loops.add_block(shape, rows, coef, panels, 0, 2, out)
    assert np.abs(out[:70] - 1.0 - coef[:14].astype(float) @ expected).max() <= 14 * tolerance


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["single", "double"])
@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
def test_tiles_match_their_plain_definition(shape, dtype):
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((2, 5, vector.ROWS)).astype(dtype)
    panels = rng.standard_normal((2, 5, LANES)).astype(dtype)
    coef = rng.standard_normal(2 * vector.ROWS).astype(dtype)
    compiled, plain = np.zeros(2 * LANES), np.zeros(2 * LANES)
    single = dtype == np.float32
    loops.add_block(shape, rows, coef, panels, 0, 2, compiled)
    step = vector.COLUMNS_32 if single else vector.COLUMNS_64
    for p in range(2):
        for lane in range(0, LANES, step):
            for g in range(2):
                vector._add_tile(shape, rows, g, panels, p, lane, coef, plain)
    scale = max(1.0, np.abs(plain).max())
    assert np.abs(compiled - plain).max() <= scale * (2e-6 if single else 1e-14)


@pytest.mark.parametrize("d", [1, 20, 130])
def test_distances_from_squares(d):
    """The last feature is the square of the others; equal points have the same values, the larger square none below 0."""
    rng = np.random.default_rng(d)
    x, z = rng.standard_normal((14, d)) / np.sqrt(d), rng.standard_normal((70, d)) / np.sqrt(d)
    x[5] = x[4]
    z[:14] = x
    shape = vector.NearRbf(1.0, 0.0, 1)
    expected = exact_kernel(vector.Rbf(1.0, 0.0, 1), x, z)
    rows, panels = (
        make(np.column_stack([a, (a * a).sum(axis=1)]), np.float32) for make, a in ((rows_of, x), (panels_of, z))
    )
    stored = np.zeros((rows.shape[0] * vector.ROWS, 2 * LANES), np.float32)
    loops.store_block(shape, rows, panels, False, 0, 2, stored)
    assert np.abs(stored[:14, :70] - expected).max() <= 2e-6
    assert stored.max() <= 1.0
    among = stored[:14, :14]
    if not DISABLED:  # numpy multiplies matrices in an order of its own
        assert (among == among.T).all()
        assert among[4, 4] == among[4, 5] == among[5, 5]
    coef = np.zeros(rows.shape[0] * vector.ROWS, np.float32)
    coef[:14] = rng.standard_normal(14)
    out = np.zeros(2 * LANES)
    loops.add_block(shape, rows, coef, panels, 0, 2, out)
    assert np.abs(out[:70] - coef[:14].astype(float) @ expected).max() <= 14 * 2e-6
    packed, squares = np.empty((1, d + 1, LANES), np.float32), np.empty(LANES)
    packing.pack_panels(x, np.arange(len(x)), np.zeros(d), 2.0, 0, 1, packed, squares)
    assert np.allclose(packed[0, d, :14], 4.0 * (x * x).sum(axis=1), rtol=1e-6, atol=0.0)
    assert (packed[0, :, 14:] == 0).all()


@pytest.mark.skipif(not (DISABLED or MULTIPLIES_PAIRS), reason="this processor multiplies no pairs of integers")
@pytest.mark.parametrize("d", [1, 20, 131])
def test_distances_of_integers(d):
    """Features are rounded to integers, of which two share a number. Nothing else is lost but what float32 rounds at the end.

    The integers have the largest norms whose products fit, and have both signs.
    """
    rng = np.random.default_rng(d)
    panels = np.zeros((1, d + 1, LANES), np.float32)
    panels[0, :d] = rng.uniform(-0.9, 0.9, (d, LANES)) / np.sqrt(d)
    panels[0, 0, :2], panels[0, 1:d, :2] = [0.9, -0.9], 0.0
    panels[0, d] = np.nan  # no feature
    both, integers = [], []
    for unit in (13000.0, 36000.0):
        out = np.zeros((1, (d + 1) // 2 + 1, LANES), np.int32)
        squares, left = np.empty(LANES), np.empty(LANES, np.float32)
        packing.pack_pairs(panels, d, np.float32(unit), out, squares, left)
        scaled = panels[0, :d] * np.float32(unit)
        whole = np.rint(scaled)
        halves = out[0, :-1].view(np.int16).reshape(-1, LANES, 2).transpose(0, 2, 1).reshape(-1, LANES)
        assert np.array_equal(halves[:d], whole)
        assert not halves[d:].any()
        assert np.array_equal(squares, (whole.astype(float) ** 2).sum(axis=0))
        assert np.allclose(left, ((scaled - whole).astype(float) ** 2).sum(axis=0), rtol=1e-4)
        out[:, -1].view(np.float32)[:] = squares / unit**2
        both.append(out)
        integers.append(whole.T.astype(float) / unit)
    rows = np.empty((2, both[0].shape[1], vector.ROWS), np.int32)
    packing.pack_rows(both[0], np.arange(2 * vector.ROWS), rows)
    expected = exact_kernel(vector.Rbf(1.0, 0.0, 1), integers[0][: 2 * vector.ROWS], integers[1])
    coef = rng.standard_normal(2 * vector.ROWS).astype(np.float32)
    out = np.ones(LANES)
    shape = vector.PairRbf(2.0 / (13000.0 * 36000.0), 0.0, 1)
    loops.add_block(shape, rows, coef, both[1], 0, 1, out)
    assert np.abs(out - 1.0 - coef.astype(float) @ expected).max() <= 12 * 2e-6


@pytest.mark.parametrize("d", [1, 20, 130])
def test_distances_from_squares_in_float64(d):
    """Scaled after the distance, unlike in float32; stored, summed, and summed from both sides."""
    rng = np.random.default_rng(d)
    X = rng.standard_normal((80, d)) / np.sqrt(d)
    X[5] = X[4]
    squares = (X * X).sum(axis=1)
    order = rng.permutation(80)[:70]
    order[:2] = 4, 5
    panels = near_points(X, squares, order, 1).panels
    assert panels.shape == (2, d + 1, LANES)
    assert (panels[0, :d] == X[order[:LANES]].T).all()
    assert (panels[1, :d, : 70 - LANES] == X[order[LANES:]].T).all()
    assert (panels[1, d, : 70 - LANES] == squares[order[LANES:]]).all()
    assert (panels[1, :, 70 - LANES :] == 0).all()
    expected = exact_kernel(vector.Rbf(0.7, 0.0, 1), X[order], X[order])
    rows = np.empty((12, d + 1, vector.ROWS))
    packing.pack_rows(panels, np.arange(70), rows)
    stored = np.zeros((72, 2 * LANES))
    shape = vector.NearRbf(0.7, 0.0, 1)
    loops.store_block(shape, rows, panels, False, 0, 2, stored)
    assert np.abs(stored[:70, :70] - expected).max() <= 2e-15
    coef = np.zeros(72)
    coef[:70] = rng.standard_normal(70)
    out = np.zeros(2 * LANES)
    loops.add_block(shape, rows, coef, panels, 0, 2, out)
    assert np.abs(out[:70] - coef[:70] @ expected).max() <= 70 * 2e-15


@pytest.mark.skipif(not DISABLED, reason="compiled code is asked for whole machines")
@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
def test_a_row_of_a_working_set_is_that_of_the_formula(shape):
    x = np.random.default_rng(4).standard_normal((2 * LANES, 3))
    panels, out = panels_of(prescaled(shape, x, np.float32), np.float32), np.zeros((3, 2 * LANES), np.float32)
    expected = exact_kernel(shape, x, x)
    for t in (0, 5, LANES - 1, LANES, 2 * LANES - 1):
        line.store_row(shape, panels, t, out, 1)
        assert np.abs(out[1] - expected[t]).max() <= 4e-6 * max(1.0, np.abs(expected).max())
    assert not out[[0, 2]].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["single", "double"])
def test_equal_points_have_kernel_one_and_far_ones_nothing(dtype):
    x = np.array([[0.3, -7.0], [1e4, 0.1], [-1e4, 3.0]])
    stored = np.zeros((vector.ROWS, LANES), dtype)
    loops.store_block(vector.Rbf(1.0, 0.0, 1), rows_of(x, dtype), panels_of(x, dtype), False, 0, 1, stored)
    assert (np.diag(stored[:3, :3]) == 1.0).all()
    assert (stored[:3, :3] == stored[:3, :3].T).all()
    assert (stored[:3, :3][~np.eye(3, dtype=bool)] < 1e-30).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["single", "double"])
def test_the_lower_triangle_is_all_there_and_little_else(dtype):
    x = np.random.default_rng(2).standard_normal((150, 3)).astype(dtype)
    rows, panels = rows_of(x, dtype), panels_of(x, dtype)
    whole, lower = np.full((2, len(rows) * vector.ROWS, 3 * LANES), np.nan, dtype)
    loops.store_block(vector.Rbf(0.5, 0.0, 1), rows, panels, False, 0, 3, whole)
    loops.store_block(vector.Rbf(0.5, 0.0, 1), rows, panels, True, 0, 3, lower)
    below = np.tri(150, dtype=bool)
    assert (lower[:150, :150][below] == whole[:150, :150][below]).all()
    assert np.isnan(lower).sum() > 3000
    assert not np.isnan(whole).any()


def test_the_exponential_is_accurate_over_its_range():
    for dtype, ulps in ((np.float32, 3.0), (np.float64, 3.0)):
        r = np.linspace(0.0, 100.0, 4096).astype(dtype)
        x = np.zeros((1, 1, vector.ROWS), dtype)
        panels = r.reshape(-1, 1, LANES)
        stored = np.zeros((vector.ROWS, 4096), dtype)
        loops.store_block(vector.Laplacian(1.0, 0.0, 1), x, panels, False, 0, len(panels), stored)
        relative = stored[0].astype(np.longdouble) / np.exp2(-r.astype(np.longdouble)) - 1.0
        assert np.abs(relative).max() <= ulps * np.finfo(dtype).eps


def test_known_columns_complete_a_matrix():
    rng = np.random.default_rng(16)
    n = 21
    K = rng.random((n, n)).round(3)
    K = K + K.T
    slots = np.where(rng.random(n) < 0.5, 0, -1)
    places = np.flatnonzero(slots < 0)
    out = np.full((n, n), np.nan)
    out[slots >= 0] = 2.0 * K[slots >= 0] + 0.5
    block = K[np.ix_(places, places)]
    for first, last in ((0, 3), (3, len(places))):
        loops.complete_known(slots, block, places, 2.0, 0.5, first, last, out)
    assert (out == 2.0 * K + 0.5).all()


def test_packed_rows_end_in_zeros():
    x = np.arange(1.0, 11.0).reshape(5, 2)
    packed = np.full((2, 2, vector.ROWS), np.nan)
    points = np.array([4, 0, 2])
    packing.pack_rows(panels_of(x, np.float64), points, packed)
    flat = packed.transpose(0, 2, 1).reshape(-1, 2)
    assert (flat[:3] == x[points]).all()
    assert (flat[3:] == 0.0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.uint16, np.float64])
def test_a_triangle_is_mirrored(dtype):
    n = 2 * packing.MIRROR + 5
    out = np.random.default_rng(0).integers(1, 1000, (n + 1, n + 3)).astype(dtype)
    expected = out.copy()
    below = np.tril(out[:n, :n])
    expected[:n, :n] = below + np.tril(below, -1).T
    for first, last in ((1, 3), (0, 1)):
        packing.mirror(out, n, first, last)
    assert (out == expected).all()


@pytest.mark.parametrize("moved", [False, True])
def test_points_are_packed_in_both_precisions_at_once(moved):
    x, order = np.random.default_rng(6).standard_normal((90, 9)), np.random.default_rng(7).permutation(90)[:70]
    single, double = (np.full((2, 9, LANES), np.nan, dtype) for dtype in (np.float32, np.float64))
    centre, squares = np.full(9, np.nan), np.full(2 * LANES, np.nan)
    packing.pack_twice(x, order, moved, 0.7, centre, single, double, squares)
    assert centre == pytest.approx(x.mean(axis=0) if moved else np.zeros(9), rel=1e-13)
    for panels, expected in ((double, x), (single, ((x - centre) * 0.7).astype(np.float32))):
        flat = panels.transpose(0, 2, 1).reshape(-1, 9)
        assert (flat[:70] == expected[order]).all()
        assert (flat[70:] == 0.0).all()


@pytest.mark.parametrize("offset", [0.0, 0.25])
@pytest.mark.parametrize("n", [5, 130])
def test_the_matrix_of_few_points_in_one_call(n, offset):
    x, shape = np.random.default_rng(8).standard_normal((n, 9)), vector.Rbf(0.1, 0.0, 1)
    rows, panels = np.full((-(-n // vector.ROWS), 9, vector.ROWS), np.nan), np.full((-(-n // LANES), 9, LANES), np.nan)
    out = np.full((len(rows) * vector.ROWS, len(panels) * LANES), np.nan)
    loops.gram_of_few(shape, x, np.arange(n), np.zeros(9), offset, rows, panels, out)
    assert np.abs(out[:n, :n] - exact_kernel(shape, x, x) - offset).max() < 1e-14
    assert (out[:n, :n] == out[:n, :n].T).all()


def test_points_are_packed_in_double_precision_as_they_are():
    x = np.random.default_rng(4).standard_normal((75, 9))
    panels, squares = np.full((2, 10, LANES), np.nan), np.full(2 * LANES, np.nan)
    packing.pack_panels(x, np.arange(75), np.zeros(9), 1.0, 0, 2, panels, squares)
    flat = panels.transpose(0, 2, 1).reshape(-1, 10)
    assert (flat[:75, :9] == x).all()
    assert (flat[:, 9] == squares).all()
    assert (flat[75:] == 0.0).all()


@pytest.mark.parametrize("width", [5, 21])
@pytest.mark.parametrize("squares", [False, True])
def test_single_precision_is_packed_from_any_points_the_same_way(squares, width):
    """Panels and row groups, of all points and of some, hold the same numbers: (x - centre) factor, rounded once."""
    rng = np.random.default_rng(3)
    x, centre, factor = rng.standard_normal((90, width)), rng.standard_normal(width), 0.7
    expected = ((x - centre) * factor).astype(np.float32)
    order = rng.permutation(90)[:70]
    panels, sums = np.full((2, width + squares, LANES), np.nan, np.float32), np.full(2 * LANES, np.nan)
    packing.pack_panels(x, order, centre, factor, 0, 2, panels, sums)
    flat = panels.transpose(0, 2, 1).reshape(-1, width + squares)
    assert (flat[:70, :width] == expected[order]).all()
    assert (flat[70:] == 0.0).all()
    assert sums[:70] == pytest.approx((((x - centre) * factor)[order] ** 2).sum(axis=1), rel=1e-14)
    assert (sums[70:] == 0.0).all()
    last = rng.standard_normal(90)
    rows = np.full((12, width + squares, vector.ROWS), np.nan, np.float32)
    packing.pack_rows_of(x, order, centre, factor, last, rows)
    grouped = rows.transpose(0, 2, 1).reshape(-1, width + squares)
    assert (grouped[:70, :width] == expected[order]).all()
    assert (grouped[70:] == 0.0).all()
    double = np.full((12, width, vector.ROWS), np.nan)
    packing.pack_rows_of(x, order, np.zeros(width), 1.0, last, double)
    assert (double.transpose(0, 2, 1).reshape(-1, width)[:70] == x[order]).all()
    if squares:
        assert (flat[:70, width] == sums[:70].astype(np.float32)).all()
        assert (grouped[:70, width] == last[order].astype(np.float32)).all()


def test_values_off_the_diagonal_panels_are_used_twice():
    rng = np.random.default_rng(15)
    n = LANES + vector.ROWS
    x, coef = rng.standard_normal((n, 3)), rng.standard_normal(n)
    groups = -(-LANES // vector.ROWS)
    rows = np.zeros((2 * groups, 3, vector.ROWS))
    by_row, by_column = np.zeros(2 * groups * vector.ROWS), np.zeros(2 * LANES)
    by_column[:n] = coef
    place = np.concatenate([np.arange(LANES), groups * vector.ROWS + np.arange(vector.ROWS)])
    by_row[place] = coef
    for k, t in enumerate(place):
        rows[t // vector.ROWS, :, t % vector.ROWS] = x[k]
    out, sums = np.zeros((2, 2 * LANES)), np.zeros((2, len(by_row)))
    panels = panels_of(x, np.float64)
    for first in range(2):  # as two threads would
        loops.add_symmetric(vector.Rbf(0.7, 0.0, 1), rows, by_row, panels, by_column, first, first + 1, out, sums)
    out, sums = out.sum(axis=0), sums.sum(axis=0)
    K = np.exp2(-0.7 * ((x[:, None] - x) ** 2).sum(axis=2))
    assert np.abs(out[:n] + sums[place] - K @ coef).max() <= 1e-12


def test_a_tile_serves_its_columns_and_its_rows():
    rng = np.random.default_rng(12)
    x, z = rng.standard_normal((2 * vector.ROWS, 3)), rng.standard_normal((2 * LANES, 3))
    shape = vector.Rbf(0.7, 0.0, 1)
    coef, weights = rng.standard_normal(len(x)), rng.standard_normal(len(z))
    out, sums = np.ones(len(z)), np.ones(len(x))
    rows, panels = rows_of(x, np.float64), panels_of(z, np.float64)
    for lane in range(0, LANES, vector.COLUMNS_64):
        vector._add_tile_twice(shape, rows, 1, panels, 1, lane, coef, weights, out, sums)
    K = np.exp2(-0.7 * ((x[vector.ROWS :, None] - z[LANES:]) ** 2).sum(axis=2))
    assert np.abs(out[LANES:] - 1.0 - coef[vector.ROWS :] @ K).max() <= 1e-13
    assert np.abs(sums[vector.ROWS :] - 1.0 - K @ weights[LANES:]).max() <= 1e-13
    assert (out[:LANES] == 1.0).all()
    assert (sums[: vector.ROWS] == 1.0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.uint16], ids=["single", "half"])
def test_a_stored_sparse_tile_is_a_row_of_kernel_values(dtype):
    rng = np.random.default_rng(13)
    x, csr = csr_points(rng, 5, 7, False, np.float32, False)
    panel, stored = panels_of(x, np.float32)[0], np.zeros((3, 2 * LANES), dtype)
    shape = vector.Rbf(0.4, 0.0, 1)
    for lane in range(0, LANES, vector.COLUMNS_32):
        sparse._store_sparse_tile(shape, csr, 3, panel, None, csr.norms, lane, stored, 1)
    values = np.exp2(-0.4 * ((x[3] - x) ** 2).sum(axis=1)) * (vector.UNITS_16 if dtype == np.uint16 else 1.0)
    assert np.abs(stored[1, :5] - values).max() <= (0.51 if dtype == np.uint16 else 1e-6)
    assert not stored[[0, 2]].any()


def test_products_of_columns_are_added_to_their_square():
    rng = np.random.default_rng(14)
    n = vector.COLUMNS_64 + vector.OUTER_ROWS
    left, right = rng.standard_normal((2, 4, n))
    A = np.ones((n, n))
    k, first = vector.OUTER_ROWS, n - vector.COLUMNS_64
    vector._add_outer(A, k, first, left, right, 3)
    expected = np.ones((n, n))
    square = np.ix_(range(k, k + vector.OUTER_ROWS), range(first, n))
    expected[square] += (left[:3].T @ right[:3])[square]
    assert np.abs(A - expected).max() <= 1e-14


@pytest.mark.compiled
@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
def test_tiles_used_twice_match_their_plain_definition(shape):
    rng = np.random.default_rng(4)
    rows, panels = rng.standard_normal((22, 5, vector.ROWS)), rng.standard_normal((2, 5, LANES))
    coef, weights = rng.standard_normal(22 * vector.ROWS), rng.standard_normal(2 * LANES)
    found, plain = [np.zeros((2, 2 * LANES)) for _ in range(2)], [np.zeros((2, 22 * vector.ROWS)) for _ in range(2)]
    loops.add_symmetric(shape, rows, coef, panels, weights, 0, 1, found[0], plain[0])
    for lane in range(0, LANES, vector.COLUMNS_64):
        for g in range(22):
            if g < 11:
                vector._add_tile(shape, rows, g, panels, 0, lane, coef, found[1][0])
            else:
                vector._add_tile_twice(shape, rows, g, panels, 0, lane, coef, weights, found[1][0], plain[1][0])
    for mine, expected in (found, plain):
        assert np.abs(mine - expected).max() <= 1e-13 * max(1.0, np.abs(expected).max())
        assert expected.any()


@pytest.mark.parametrize("d", [1, 4, vector.EDGE, 2 * vector.EDGE + 1])
def test_blocks_of_the_features_gram_matrix(d):
    rng = np.random.default_rng(d)
    panels, weight = rng.standard_normal((3, d, LANES)), rng.random(3 * LANES)
    rows = panels.transpose(0, 2, 1).reshape(-1, d)
    out, plain = np.full((d, d), np.nan), np.full((d, d), np.nan)
    weighted_gram(panels, weight, d, out)
    for i in range(0, d, vector.EDGE):
        for j in range(0, i + 1, vector.EDGE):
            vector._store_products(panels, weight, i, j, plain)
    lower = np.tril_indices(d)
    assert np.abs(out - (rows.T * weight) @ rows)[lower].max() <= 1e-13 * len(rows)
    assert np.abs(plain - out)[lower].max() <= 1e-13 * len(rows)


def test_a_polynomial_of_the_features():
    rng = np.random.default_rng(6)
    d = 4
    panels, first = rng.standard_normal((2, d, LANES)), 1
    terms = [(i, j, k) for i in range(first, d) for j in range(i + 1) for k in range(j + 1)]
    weights = rng.standard_normal(len(terms))
    expected, plain = np.ones(2 * LANES), np.ones(2 * LANES)
    for weight, (i, j, k) in zip(weights, terms, strict=True):
        expected += weight * (panels[:, i] * panels[:, j] * panels[:, k]).ravel()
    for p in range(2):
        for lane in range(0, LANES, vector.FORM_COLUMNS):
            vector._add_form(panels, p, lane, weights, first, plain)
    assert np.abs(plain - expected).max() <= 1e-13
    cubes = rng.standard_normal(d * (d + 1) * (d + 2) // 6)
    for degree, count in ((2, d * (d + 1) // 2), (3, len(cubes))):
        compiled, plain = np.zeros(2 * LANES), np.zeros(2 * LANES)
        add_forms(panels, cubes[:count], degree, 0, 2, compiled)
        for p in range(2):
            for lane in range(0, LANES, vector.FORM_COLUMNS):
                vector._add_form(panels, p, lane, cubes[:count], d - 1 if degree == 2 else 0, plain)
        assert np.abs(compiled - plain).max() <= 1e-13 * np.abs(plain).max()


def csr_points(rng, n, d, binary, dtype, absolute):
    x = (rng.random((n, d)) < 0.3) * (1.0 if binary else rng.standard_normal((n, d)))
    x[2] = 0.0
    indptr = np.concatenate([[0], np.cumsum((x != 0).sum(axis=1))]).astype(np.int64)
    indices = np.nonzero(x)[1].astype(np.int32)
    data = x[x != 0]
    norms = np.zeros(2 * LANES, dtype)
    norms[:n] = (abs(x) if absolute else x**2).sum(axis=1)
    return x, sparse.Csr(indptr, indices, data.astype(dtype), norms)


def sparse_kinds():
    """(shape, some columns only, values of one, number type): each pair of them compiled, all of them in plain Python."""
    types = [vector.Poly, vector.Sigmoid, vector.Rbf, vector.Laplacian]
    for shape in SHAPES:
        k = types.index(type(shape))
        for bits in range(8) if DISABLED else (k, 7 - k):
            yield shape, bool(bits & 1), bool(bits & 2), np.float64 if bits & 4 else np.float32


@pytest.mark.parametrize(("shape", "table", "binary", "dtype"), list(sparse_kinds()))
def test_sparse_tiles_match_the_formula(shape, table, binary, dtype):
    rng = np.random.default_rng(5)
    x, csr = csr_points(rng, 70, 9, binary, dtype, isinstance(shape, vector.Laplacian))
    columns = sparse.SpreadColumns(csr, np.arange(70), csr.norms)
    panels = np.zeros((1, 10, LANES) if table else (2, 9, LANES), np.uint8 if binary else dtype)
    if not table:
        sparse.spread_all(columns, panels)
    places = np.zeros(9, np.int32) if table else None
    expected = exact_kernel(shape, x, x)
    tolerance = {np.float32: 4e-6, np.float64: 1e-14}[dtype] * max(1.0, np.abs(expected).max())
    points = np.array([0, 2, 3, 69, 11, 12, 13, 14, 15, 16])
    stored = np.zeros((len(points), 2 * LANES), dtype)
    sparse.store_sparse(shape, csr, points, columns, places, panels, False, 0, 2, stored)
    assert np.abs(stored[:, :70] - expected[points]).max() <= tolerance
    coef, out = rng.standard_normal(len(points)).astype(dtype), np.zeros(2 * LANES)
    sparse.add_sparse(shape, csr, points, coef, columns, places, panels, 0, 2, out)
    assert np.abs(out[:70] - coef.astype(float) @ expected[points]).max() <= 20 * tolerance
    assert not table or not places.any()
    if binary and isinstance(shape, vector.Rbf):
        assert (stored[np.arange(len(points)), points] == 1.0).all()
    half = np.full((70, 2 * LANES), np.nan, dtype)
    sparse.store_sparse(shape, csr, np.arange(70), columns, places, panels, True, 0, 2, half)
    lower = np.tril_indices(70)
    assert np.abs(half[lower] - expected[lower]).max() <= tolerance


def test_sixteen_bit_blocks_are_rounded_kernel_values():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, 3)).astype(np.float32)
    shape = vector.Rbf(1.0, 0.0, 1)
    full, half = np.zeros((42, LANES), np.float32), np.zeros((42, LANES), np.uint16)
    loops.store_block(shape, rows_of(x, np.float32), panels_of(x, np.float32), False, 0, 1, full)
    loops.store_block(shape, rows_of(x, np.float32), panels_of(x, np.float32), False, 0, 1, half)
    assert np.abs(half[:40, :40] - full[:40, :40] * vector.UNITS_16).max() <= 0.51


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint16], ids=["single", "double", "half"])
def test_passes_match_their_plain_definition(dtype):
    rng = np.random.default_rng(11)
    real = np.float64 if dtype == np.float64 else np.float32
    for n in (LANES, 5 * LANES):
        gram = (rng.random((n, n)) * (65535 if dtype == np.uint16 else 1)).astype(dtype)
        unit = 1 / 65535 if dtype == np.uint16 else 1.0
        values = rng.standard_normal(n).astype(real)
        values[n // 2] = values[n // 2 + 1] = values.max() + 1  # a tie: the first index must win
        rise = np.where(rng.random(n) < 0.3, -vector.BIG_32, 0.0).astype(real)
        fall = np.where(rng.random(n) < 0.3, vector.BIG_32, 0.0).astype(real)
        rise[n // 2 : n // 2 + 2] = 0.0
        diagonal = rng.random(n).astype(real) + real(1)
        mine, plain = values.copy(), values.copy()
        i, high, low = _run_update(mine, gram, 3, 3, 0.0, rise, fall)
        j, high_, low_ = passes._update_pair(plain, gram, 3, 3, real(0), rise, fall)
        assert (i, high, low) == (j, high_, low_)
        assert i == n // 2
        _run_update(mine, gram, 1, 2, 0.25 * unit, rise, fall)
        passes._update_pair(plain, gram, 1, 2, real(0.25 * unit), rise, fall)
        assert np.abs(mine - plain).max() <= 4 * np.finfo(real).eps * np.abs(plain).max()
        mine[:] = plain
        k = _run_partner(mine, gram, unit, i, diagonal, 1e-6, fall)
        slope = np.maximum(mine[i] - (mine + fall), 0.0)
        gain = slope**2 / np.maximum(diagonal[i] + diagonal - 2 * real(unit) * gram[i], 1e-6)
        assert gain[k] >= gain.max() * (1 - 1e-4)
        along = rng.standard_normal(n).astype(real)
        found = along.copy()
        first = _run_along(mine, found, gram, unit, 1, 2, 0.7, 0.25, rise, fall)
        second = passes._update_along(plain, along, gram, real(unit), 1, 2, real(0.7), real(0.25), rise, fall)
        assert first[0] == second[0]
        for x, z in ((found, along), (mine, plain), (np.array(first), np.array(second))):
            assert np.abs(x - z).max() <= 8 * np.finfo(real).eps * np.abs(z).max()
        mine[:], found[:] = plain, along
        k = _run_conjugate(mine, found, 0.2, gram, unit, i, diagonal, 1e-6, fall)
        slope = np.maximum(mine[i] - (mine + fall), 0.0)
        bent = diagonal[i] + diagonal - 2 * real(unit) * gram[i] - real(0.2) * (found[i] - found) ** 2
        gain = slope**2 / np.maximum(bent, 1e-6)
        assert gain[k] >= gain.max() * (1 - 1e-4)


if not DISABLED:
    from svmcore.compiler.jit import jit

    @jit
    def _run_update(values, gram, i, j, step, rise, fall):
        return passes.update_pair(values, gram, i, j, step, rise, fall)

    @jit
    def _run_partner(values, gram, unit, i, diagonal, tau, fall):
        return passes.best_partner(values, gram, i, unit, i, diagonal, tau, fall)

    @jit
    def _run_along(values, along, gram, unit, i, j, keep, step, rise, fall):
        return passes.update_along(values, along, gram, unit, i, j, keep, step, rise, fall)

    @jit
    def _run_conjugate(values, along, inverse, gram, unit, i, diagonal, tau, fall):
        return passes.best_conjugate(values, along, inverse, gram, unit, i, diagonal, tau, fall)


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("cpu", "features"),
    [
        pytest.param("x86-64-v3", "+avx2,+fma", marks=pytest.mark.ci),
        pytest.param("x86-64", "+sse2", marks=pytest.mark.ci),
        pytest.param("generic", "", marks=pytest.mark.ci),
    ],
)
def test_narrower_processors_give_the_same_answer(cpu, features, tmp_path):
    program = (
        "import numpy as np, svmcore, warnings; rng = np.random.default_rng(0); X = rng.standard_normal((300, 7));"
        "y = X[:, 0] * X[:, 1] > 0.1 * rng.standard_normal(300);"
        "s = svmcore.train_svc(X, y, 10.0, solver='block', n_threads=1); print(s.objective, s.converged)"
    )
    narrow = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features, "NUMBA_CACHE_DIR": str(tmp_path)}
    outputs = [ran(program, **environment)[0] for environment in (narrow, {})]
    values = [output.split() for output in outputs]
    assert values[0][1] == values[1][1] == "True"
    assert float(values[0][0]) == pytest.approx(float(values[1][0]), rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_parts_of_what_is_stored_are_gathered(dtype):
    """In their own number type; rows that are not there are left as they were."""
    rng = np.random.default_rng(0)
    stored = rng.random((9, 9)).astype(np.float32)
    points, slots = np.array([7, 2, 5, 0]), np.array([-1, 3, 0, -1])
    out = np.full((4, 4), 9, dtype)
    loops.gather_known(stored, slots, points, 50.0, 0.25, 0, 3, out)
    wanted = (stored[np.ix_(slots, points)].astype(np.float64) * 50.0 + 0.25).astype(dtype)
    assert out[1:3] == pytest.approx(wanted[1:3], rel=1e-6)
    assert (out[[0, 3]] == 9).all()
    out[:] = 9
    loops.gather_known(stored, slots, points, 50.0, 0.25, 2, 4, out)
    assert (out[:2] == 9).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stored_rows_are_summed_and_copied(dtype):
    rng = np.random.default_rng(1)
    stored, rows = rng.random((9, 40)).astype(dtype), np.array([7, 2, 5, 0, 8, 3])
    coef, out = rng.standard_normal(6).astype(dtype), np.ones(40)
    loops.add_rows(stored, rows, coef, 10, 40, out)
    assert out[10:] == pytest.approx(1.0 + coef.astype(float) @ stored[rows, 10:], rel=1e-5)
    assert (out[:10] == 1.0).all()
    index, columns, copied = np.array([4, 1]), np.array([30, 2, 2]), np.empty((2, 3), dtype)
    loops.copy_block(copied, stored, rows, index, columns)
    assert (copied == stored[np.ix_(rows[index], columns)]).all()


def test_points_are_gathered_to_panels():
    x = np.random.default_rng(2).standard_normal((80, 3))
    points = np.concatenate([np.arange(70), [79, 0]])
    out = np.full((2, 3, LANES), np.nan)
    packing.gather_panels(panels_of(x, np.float64), points, out)
    flat = out.transpose(0, 2, 1).reshape(-1, 3)
    assert (flat[:72] == x[points]).all()
    assert (flat[72:] == 0.0).all()
