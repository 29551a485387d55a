"""The cheap confirmation of a certificate against the whole of it: the same numbers, or no word at all."""

from __future__ import annotations

import numpy as np
import pytest

from svmcore._types import Kernel, KernelKind
from svmcore.kernel.matrix import KernelMatrix, kernel_product
from svmcore.problem import certify, formulations, measures
from svmcore.problem.certify import certificate, confirm

N = 60


def point(seed: int, regression: bool, equality: bool):
    """A dual point with most variables at their bounds, near the optimum's pattern, and its exact residual."""
    rng = np.random.default_rng([21, seed])
    X = rng.normal(size=(N, 3))
    costs = rng.uniform(0.5, 2.0, N)
    if regression:
        qp = formulations.svr(np.sin(X[:, 0]), costs, 0.1, "epsilon_insensitive", equality)
    else:
        qp = formulations.svc(np.where(rng.random(N) < 0.5, 1.0, -1.0), costs, "hinge", equality)
    side = rng.integers(0, 8, len(qp.c))
    share = np.where(side < 4, 0.0, np.where(side < 7, 1.0, rng.random(len(qp.c))))
    beta = np.where(qp.upper > 0, share * qp.upper, share * qp.lower)
    K = KernelMatrix(X, Kernel(int(KernelKind.RBF), 0.5, 0.0, 3, 0.5), cache_bytes=1 << 20)
    return qp, K, beta, measures.residual(qp, beta, kernel_product(qp, K, beta)), rng


@pytest.mark.parametrize("brief", [0.0, certify._BRIEF])
@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.parametrize("error", [0.0, 1e-6, 0.05, 0.3])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_confirmed_is_what_the_whole_certificate_says(seed, error, regression, equality, brief, monkeypatch):
    monkeypatch.setattr(certify, "_BRIEF", brief)
    qp, K, beta, exact, rng = point(seed, regression, equality)
    bound = error * rng.random(len(beta)) if seed % 2 else error
    rough = exact + bound * rng.uniform(-1.0, 1.0, len(beta))
    found, full = confirm(qp, K, beta, rough, bound), certificate(qp, K, beta)
    if found is None:
        assert error == 0.3
        return
    assert found[0] == pytest.approx(full.kkt_violation, abs=1e-12)
    assert found[1] == pytest.approx(full.intercept, abs=1e-12)


@pytest.mark.parametrize("error", [1e-6, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_little_is_computed_afresh(monkeypatch, seed, error):
    """The free variables, and then what may lie beyond them for all that is known; both in one product where it is brief."""
    asked = []
    product_at = KernelMatrix.product_at
    monkeypatch.setattr(
        KernelMatrix,
        "product_at",
        lambda K, targets, *rest: asked.append(len(targets)) or product_at(K, targets, *rest),
    )
    qp, K, beta, exact, _ = point(seed, False, True)
    up, down = beta < qp.upper, beta > qp.lower
    free = up & down
    asked.clear()
    assert confirm(qp, K, beta, exact, error) is not None
    top, bottom = max(exact[free].max(), exact[up].max() - error), min(exact[free].min(), exact[down].min() + error)
    beyond = ((up & (exact + error >= top)) | (down & (exact - error <= bottom))) & ~free
    at_once = (
        (up & (exact + error >= (exact[up] - error).max())) | (down & (exact - error <= (exact[down] + error).min()))
    ) & ~free
    assert asked == [np.count_nonzero(free | at_once)]
    monkeypatch.setattr(certify, "_BRIEF", 0.0)
    asked.clear()
    assert confirm(qp, K, beta, exact, error) is not None
    assert asked == [np.count_nonzero(free), np.count_nonzero(beyond)]


@pytest.mark.parametrize("error", [np.inf, np.nan, 1e3])
def test_nothing_is_said_where_nothing_is_known(error):
    qp, K, beta, exact, _ = point(0, False, True)
    assert confirm(qp, K, beta, exact, error) is None


def test_an_extreme_that_does_not_exist_is_not_confirmed():
    """All variables at their upper ends: none can grow."""
    qp, K, _, _, _ = point(0, False, True)
    top = qp.upper.copy()
    exact = measures.residual(qp, top, kernel_product(qp, K, top))
    assert confirm(qp, K, top, exact, 1e-6) is None
