"""Small integer problems against a path in exact rational arithmetic, ties and dependent points included."""

from __future__ import annotations

from contextlib import nullcontext
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from engines import early_windows
from oracle_path import exact_path, value

from svmcore.path.driver import svm_path


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
