"""Machines on landmarks: the optimum lies between their bounds, and they predict what their features say."""

from __future__ import annotations

import numpy as np
import pytest

import svmcore
from svmcore.distributed import train_approximate

pytestmark = pytest.mark.compiled


def wavy(n=800):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.sign(np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.7 * rng.normal(size=n))


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
def test_the_optimum_is_between_the_bounds(kernel):
    X, y = wavy()
    form = {"kernel": kernel, "C": 2.0, "coef0": 1.0 if kernel == "poly" else 0.0}
    best = -svmcore.train_svc(X, y, tol=1e-8, **form).objective
    gaps = []
    for m in (20, 100, 400):
        found = train_approximate(X, y, landmarks=m, parts=3, **form)
        assert found.lower_bound <= best * (1.0 + 1e-9)
        assert found.upper_bound >= best * (1.0 - 1e-6)
        assert len(found.landmarks) == m
        gaps.append(found.relative_gap)
    assert gaps[2] < max(0.7 * gaps[0], 1e-6)  # the polynomial has 20 dimensions
    # the upper bound is the primal objective of the machine that predicts
    values = found.decision_function(X)
    ours = y * values
    hinge = 2.0 * np.maximum(0.0, 1.0 - ours).sum()
    assert abs(found.upper_bound - hinge - 0.5 * found.linear.coef_ @ found.linear.coef_) < 1e-3 * found.upper_bound
    assert np.array_equal(found.predict(X), np.where(values > 0, 1.0, -1.0))


def test_regression_and_messages():
    X, _ = wavy()
    y = np.sin(X[:, 0]) + X[:, 1]
    found = train_approximate(X, y, 5.0, loss="epsilon_insensitive", epsilon=0.05, landmarks=150, parts=2)
    best = -svmcore.train_svr(X, y, C=5.0, epsilon=0.05, tol=1e-6).objective
    assert found.lower_bound <= best <= found.upper_bound
    assert found.gap > 0.0
    again = train_approximate(X, y, 5.0, loss="epsilon_insensitive", epsilon=0.05, landmarks=150, parts=2)
    assert again.upper_bound == found.upper_bound
    assert "certified gap" in repr(found)
    with pytest.raises(svmcore.InputError, match="not linear"):
        train_approximate(X, y > 0, kernel="linear")
    with pytest.raises(svmcore.InputError, match="trained with 3"):
        found.predict(X[:, :2])
