"""Where several intercepts are optimal, a path has the middle of them, whatever its range is."""

import numpy as np
import pytest
from repeats import seeds

import svmcore

CALLS = {
    "svm": (svmcore.svm_path, {}, 0.3),
    "svr": (svmcore.svr_path, {"epsilon": 0.3}, 0.3),
    "quantile": (svmcore.quantile_path, {"tau": 0.5}, 0.3),
    "epsilon": (svmcore.epsilon_path, {}, 0.2),
}
VALUES = [1e-5, 1e-3, 0.01, 0.03, 0.1, 0.2, 0.29, 0.3]
EPSILONS = [0.2, 0.21, 0.3, 0.5, 0.9, 1.5, 10.0, 1e4]


def problem(seed):
    """Points, labels and targets; every second time on a grid, so that ties are frequent."""
    rng = np.random.default_rng(seed)
    n = 2 * int(rng.integers(1, 7))
    X = rng.normal(size=(n, 2)) if seed % 2 else rng.integers(0, 3, (n, 2)).astype(float)
    target = rng.normal(size=n) if seed % 3 else rng.integers(0, 4, n).astype(float)
    return X, np.arange(n) % 2, target


def optimal_intercepts(X, target, beta, lower, upper, shift):
    """The interval of optimal intercepts of a machine, by a plain kernel matrix. `shift` is the half-width of the tube."""
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1))
    rest, near = target - K @ beta, 1e-9 * (upper - lower)
    # A positive part can grow, or a negative part can shrink, where the target is above; and the other way round.
    grow = np.where(beta < upper - near, rest - np.where(beta >= -near, shift, -shift), -np.inf)
    shrink = np.where(beta > lower + near, rest - np.where(beta <= near, -shift, shift), np.inf)
    return float(grow.max()), float(shrink.min())


@pytest.mark.parametrize("name", CALLS)
@seeds(12)
def test_the_intercept_is_the_middle_and_does_not_depend_on_the_range(name, seed):
    X, labels, target = problem(seed)
    follow, words, end = CALLS[name]
    y = labels if name == "svm" else target
    wide = follow(X, y, gamma=1.0, **words)
    range_of = {"epsilon_min": end} if name == "epsilon" else {"C_max": end}
    narrow = follow(X, y, gamma=1.0, **words, **range_of)
    for value in EPSILONS if name == "epsilon" else VALUES:
        intercept = wide.intercept(value)
        assert narrow.intercept(value) == pytest.approx(intercept, rel=1e-9, abs=1e-9)
        C = 1.0 if name == "epsilon" else value
        shift = value if name == "epsilon" else words.get("epsilon", 0.0)
        signs = np.where(labels == 1, 1.0, -1.0)
        if name == "svm":
            bounds = np.minimum(0.0, signs * C), np.maximum(0.0, signs * C)
        else:
            share = 0.5 if name == "quantile" else 1.0
            bounds = np.full(len(y), -share * C), np.full(len(y), share * C)
        low, high = optimal_intercepts(X, signs if name == "svm" else target, wide.dual_coef(value), *bounds, shift)
        assert intercept == pytest.approx(0.5 * (low + high), rel=1e-7, abs=1e-7)


def test_curves_and_machines_agree_where_nothing_moves():
    X, y, target = problem(3)
    path = svmcore.svm_path(X, y, gamma=1.0)
    curve = path.error_curve()
    for C in [1e-4, 0.01, 0.1, 0.5, 3.0]:
        assert curve(C) == np.mean(path.predict(X, C) != y)
    numbers = svmcore.svr_path(X, target, gamma=1.0, epsilon=0.3)
    curve = numbers.error_curve()
    for C in [1e-4, 0.01, 0.1, 0.5, 3.0]:
        assert curve(C) == pytest.approx(np.abs(numbers.predict(X, C) - target).mean(), rel=1e-9)
