"""Small integer problems against a path in exact rational arithmetic: ties and dependent points included, and any boxes."""

from __future__ import annotations

from contextlib import nullcontext
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from engines import early_windows
from oracle_path import exact_box_path, exact_path, value
from repeats import seeds

from svmcore._control import new_control
from svmcore._types import Kernel, KernelKind
from svmcore.base.highs import solve_qp
from svmcore.kernel.matrix import KernelMatrix
from svmcore.path.driver import PathWatch, Way, svm_path, track
from svmcore.path.problem import BoxPath


def integer_problem(seed: int, n: int | None = None):
    rng = np.random.default_rng(seed)
    drawn = int(rng.integers(3, 7))
    n = drawn if n is None else n
    X = rng.integers(-2, 3, (n, int(rng.integers(1, 4))))
    y = np.where(rng.random(n) < 0.5, 1, -1)
    y[:2] = 1, -1
    if seed % 3 == 0:
        X[-1] = X[0]  # a duplicate, of equal or of opposite label
    weight = rng.integers(1, 4, n) if seed % 4 == 0 else np.ones(n, dtype=int)
    return X, y, weight


SMALL = [(seed, None) for seed in range(40)]
LARGER = [
    pytest.param(100, 7),
    pytest.param(101, 8, marks=[pytest.mark.ci, pytest.mark.compiled]),
    *(pytest.param(seed, 7 + seed % 2, marks=pytest.mark.slow) for seed in range(102, 120)),
]


either_way = pytest.mark.parametrize("tracker", [nullcontext, early_windows], ids=["steps", "windows"])


@cache
def exact_pieces(seed, n, degree, low, high, equality):
    X, y, weight = integer_problem(seed, n)
    return exact_path(((X @ X.T + 1) ** degree).tolist(), y.tolist(), weight.tolist(), low, high, equality)


@either_way
@pytest.mark.parametrize(("seed", "n"), SMALL + LARGER)
def test_path_equals_the_rational_path(seed, n, tracker):
    X, y, weight = integer_problem(seed, n)
    equality, degree = seed % 5 != 0, 2 - seed % 2
    K = (X @ X.T + 1) ** degree
    low, high = Fraction(1, 64), Fraction(4096)
    pieces = exact_pieces(seed, n, degree, low, high, equality)
    with tracker():
        path = svm_path(
            K.astype(float), y, kernel="precomputed", sample_weight=weight, fit_intercept=equality,
            lambda_max=float(high), lambda_min=float(low),
        )  # fmt: skip
    scale = float(np.abs(K).max()) * float(weight.sum())
    for piece in pieces:
        for lam in (piece.high, (piece.low + piece.high) / 2, (9 * piece.low + piece.high) / 10, piece.low):
            beta = value(piece, lam)
            product = [sum(int(K[i][j]) * beta[j] for j in range(len(y))) for i in range(len(y))]
            quadratic = sum(b * p for b, p in zip(beta, product, strict=True))
            objective = (quadratic / 2 - lam * sum(int(s) * b for s, b in zip(y, beta, strict=True))) / lam**2
            C = float(1 / lam)
            got = path.dual_coef(C)
            # K beta is unique; beta itself need not be
            assert K @ got * float(lam) == pytest.approx([float(p) for p in product], abs=1e-12 * scale)
            assert path.objective(C) == pytest.approx(float(objective), rel=1e-11, abs=1e-11)
            assert path.at(C).relative_gap <= 1e-10


@either_way
@pytest.mark.parametrize("seed", range(0, 40, 3))
def test_breakpoints_are_the_rational_ones(seed, tracker):
    X, y, weight = integer_problem(seed)
    K = (X @ X.T + 1) ** 3
    low, high = Fraction(1, 16), Fraction(1 << 14)
    pieces = exact_pieces(seed, None, 3, low, high, True)
    with tracker():
        path = svm_path(
            K.astype(float),
            y,
            kernel="precomputed",
            sample_weight=weight,
            lambda_max=float(high),
            lambda_min=float(low),
        )
    # where the slope of K beta changes, the path must have a breakpoint
    for first, second in pairwise(pieces):
        slopes = [
            [sum(int(K[i][j]) * p.beta[j][1] for j in range(len(y))) for i in range(len(y))] for p in (first, second)
        ]
        if slopes[0] != slopes[1]:
            assert np.min(np.abs(path.lambdas / float(second.high) - 1.0)) <= 1e-9


def test_most_of_these_problems_are_followed_in_windows():
    with early_windows() as windows:
        for seed, n in SMALL:
            X, y, weight = integer_problem(seed, n)
            K = (X @ X.T + 1 if seed % 2 else (X @ X.T + 1) ** 2).astype(float)
            ends = {"lambda_max": 4096.0, "lambda_min": 1 / 64}
            svm_path(K, y, kernel="precomputed", sample_weight=weight, fit_intercept=seed % 5 != 0, **ends)
    assert np.count_nonzero(windows) >= 20
    assert sum(windows) >= 200


# ---- a linear term fixed + t slope, and any boxes --------------------------------------------------------------------


class Followed(NamedTuple):
    """The knots of a path: t, bias, and all variables."""

    t: np.ndarray
    bias: np.ndarray
    beta: np.ndarray

    def at(self, t: float) -> np.ndarray:
        """The variables at t, between knots by interpolation."""
        return np.array([np.interp(-t, -self.t, column) for column in self.beta.T])


def followed(K, problem: BoxPath, low: float, high: float | None) -> Followed:
    n = problem.slope.size
    matrix = KernelMatrix(
        np.ascontiguousarray(K, dtype=float), Kernel(int(KernelKind.PRECOMPUTED), 1.0, 0.0, 1, 0.0), cache_bytes=1 << 25
    )
    control = new_control("path", None, None, 0)
    with control:
        way = Way(high, low)
        told, _, _ = track(problem, matrix, way, PathWatch(control, way))
    assert told.ended == "done"
    record = told.track
    side, out, start, event = record.side0.astype(int), [], 0, 0
    ends = np.stack([problem.lower, problem.upper])
    for upto, end in zip(record.knot_events, record.offset[1:], strict=True):
        side[record.event_index[event:upto]] = record.event_move[event:upto, 1]
        beta = ends[np.minimum(side, 1), np.arange(n)]
        beta[record.index[start:end]] = record.value[start:end]
        out.append(beta)
        start, event = end, upto
    return Followed(record.knot[:, 0], record.knot[:, 1], np.array(out))


def rational_problem(seed: int, n: int | None = None):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7)) if n is None else n
    X = rng.integers(-2, 3, (n, int(rng.integers(1, 4))))
    if seed % 3 == 0:
        X[-1] = X[0]
    K = X @ X.T + 1 if seed % 2 else (X @ X.T + 1) ** 2
    fixed = rng.integers(-3, 4, n) if seed % 4 else np.zeros(n, dtype=int)
    slope = rng.integers(-2, 3, n)
    lower = -rng.integers(0, 3, n)
    upper = lower + rng.integers(1, 4, n)
    equality = seed % 5 != 0 and lower.sum() <= 0 <= upper.sum()
    return K, fixed, slope, lower, upper, bool(equality)


@cache
def exact_box_pieces(seed, n, low, high):
    K, *vectors, equality = rational_problem(seed, n)
    return exact_box_path(K.tolist(), *(v.tolist() for v in vectors), low, high, equality)


def check_against_oracle(seed, n, tracker):
    K, fixed, slope, lower, upper, equality = rational_problem(seed, n)
    low, high = Fraction(1, 64), Fraction(64)
    pieces = exact_box_pieces(seed, n, low, high)
    numbers = (np.asarray(v, dtype=float) for v in (fixed, slope, lower, upper))
    with tracker():
        path = followed(K, BoxPath(*numbers, equality), float(low), float(high))
    scale = float(np.abs(K).max()) * float(np.abs([lower, upper]).max()) * len(slope) + 64.0
    for piece in pieces:
        for t in (piece.high, (piece.low + piece.high) / 2, (9 * piece.low + piece.high) / 10, piece.low):
            product = [float(sum(int(k) * b for k, b in zip(row, value(piece, t), strict=True))) for row in K]
            got = path.at(float(t))
            assert K @ got == pytest.approx(product, abs=1e-12 * scale)  # unique; b itself need not be
            assert (got >= lower - 1e-12).all()
            assert (got <= upper + 1e-12).all()
            assert not equality or abs(got.sum()) <= 1e-12 * scale


@either_way
@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(20, 60))])
def test_path_of_any_boxes_equals_the_rational_path(seed, tracker):
    check_against_oracle(seed, None, tracker)


@either_way
@pytest.mark.parametrize(
    "seed",
    [100, pytest.param(101, marks=[pytest.mark.ci, pytest.mark.compiled]), pytest.param(102, marks=pytest.mark.slow)],
)
def test_path_of_eight_variables_equals_the_rational_path(seed, tracker):
    check_against_oracle(seed, 8 if seed > 100 else 7, tracker)


@seeds(12)
def test_the_top_is_found(seed):
    """Without an end given, the path begins where nothing changes above, and the first event is below."""
    K, fixed, slope, lower, upper, equality = rational_problem(seed)
    numbers = [np.asarray(v, dtype=float) for v in (fixed, slope, lower, upper)]
    path = followed(K, BoxPath(*numbers, equality), 1 / 64, None)
    top = Fraction(float(path.t[0]))
    pieces = exact_box_pieces(seed, None, top / 2, 8 * top)
    assert pieces[0].low <= top
    product = [float(sum(int(k) * b for k, b in zip(row, value(pieces[0], 8 * top), strict=True))) for row in K]
    assert K @ path.beta[0] == pytest.approx(product, abs=1e-9)


@seeds(6)
def test_path_of_any_boxes_equals_quadratic_programs(seed):
    pytest.importorskip("highspy")
    rng = np.random.default_rng(seed)
    n = 30
    X = rng.standard_normal((n, 3))
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
    lower, upper = -rng.random(n) - 0.1 * (seed % 2), rng.random(n)
    problem = BoxPath(rng.standard_normal(n) * (seed % 3), rng.standard_normal(n), lower, upper, seed % 4 != 0)
    path = followed(K, problem, 1e-2, None)
    for t in np.exp(rng.uniform(np.log(1e-2), np.log(path.t[0]), 6)):
        rows, bound = (np.ones((1, n)), 0.0) if problem.equality else (np.empty((0, n)), np.empty(0))
        best = solve_qp(K, -problem.term(t), rows, bound, bound, lower, upper)
        got = path.at(t)
        assert best.ok
        assert (got >= lower - 1e-12).all()
        assert (got <= upper + 1e-12).all()
        assert not problem.equality or abs(got.sum()) <= 1e-12 * n
        assert objective(K, problem, t, got) <= objective(K, problem, t, best.x) + 1e-9 * (1.0 + t)


def objective(K, problem, t, b):
    return 0.5 * b @ K @ b - problem.term(t) @ b


def test_many_of_these_problems_are_followed_in_windows():
    with early_windows() as windows:
        for seed in range(30):
            K, fixed, slope, lower, upper, equality = rational_problem(seed)
            numbers = (np.asarray(v, dtype=float) for v in (fixed, slope, lower, upper))
            followed(K, BoxPath(*numbers, equality), 1 / 64, 64.0)
    assert np.count_nonzero(windows) >= 10
    assert sum(windows) >= 50
