"""Calibration against slow and obvious versions, and against scikit-learn where it is installed."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from repeats import seeds
from test_cv import noisy

import svmcore
from svmcore.base.threads import one_blas_thread
from svmcore.cv.calibration import fit_isotonic, fit_venn_abers, models_of, pooled

pytestmark = pytest.mark.once


def fit_sigmoid(scores, positive, weight):
    return models_of("sigmoid", scores[None], positive[None], weight)[0]


def drawn(n: int, seed: int, ties: bool = False):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n)
    scores = np.round(scores, 1) if ties else scores
    positive = rng.random(n) < 1.0 / (1.0 + np.exp(-1.5 * scores))
    positive[:2] = True, False
    return scores, positive, rng.integers(1, 4, n).astype(float)


def platt_loss(a, b, scores, positive, weight):
    plus, minus = weight[positive].sum(), weight[~positive].sum()
    target = np.where(positive, (plus + 1) / (plus + 2), 1 / (minus + 2))
    p = 1.0 / (1.0 + np.exp(a * scores + b))
    return -(weight @ (target * np.log(p) + (1 - target) * np.log(1 - p)))


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_sigmoid_is_the_best_one(scale):
    optimize = pytest.importorskip("scipy.optimize")
    scores, positive, weight = drawn(150, 0)
    model = fit_sigmoid(scale * scores, positive, weight)
    best = optimize.minimize(lambda v: platt_loss(*v, scores, positive, weight), [0.0, 0.0], method="BFGS", tol=1e-10)
    assert model.a * scale == pytest.approx(best.x[0], abs=1e-5)
    assert model.b == pytest.approx(best.x[1], abs=1e-5)


def test_sigmoid_of_separable_and_of_constant_scores_is_finite():
    positive = np.arange(40) >= 20
    steep = fit_sigmoid(np.arange(40.0), positive, np.ones(40))
    assert (np.diff(steep.probability(np.arange(40.0))) >= 0).all()
    assert 0 < steep.probability(np.array([0.0]))[0] < 0.5 < steep.probability(np.array([39.0]))[0] < 1
    flat = fit_sigmoid(np.full(40, 3.0), positive, np.ones(40))
    assert flat.probability(np.array([3.0]))[0] == pytest.approx(0.5, abs=1e-6)
    assert np.isfinite(steep.probability(np.array([-1e9, 1e9]))).all()


def isotonic_by_minmax(values, weight):
    """The isotonic regression by its formula: max over i <= k of min over j >= k of the mean from i to j."""
    n = len(values)
    mean = [
        [np.average(values[i : j + 1], weights=weight[i : j + 1]) if j >= i else 0 for j in range(n)] for i in range(n)
    ]
    return np.array([max(min(mean[i][k:]) for i in range(k + 1)) for k in range(n)])


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=14))
def test_pooling_is_isotonic_regression(pairs):
    values, weight = np.array(pairs, dtype=float).T
    np.testing.assert_allclose(pooled(values, weight), isotonic_by_minmax(values, weight), atol=1e-12)


def test_isotonic_interpolates_and_keeps_the_order():
    scores, positive, weight = drawn(200, 1, ties=True)
    model = fit_isotonic(scores, positive, weight)
    grid = np.linspace(-6, 6, 1001)
    p = model.probability(grid)
    assert (np.diff(p) >= 0).all()
    assert 0 <= p.min() <= p.max() <= 1
    isotonic = pytest.importorskip("sklearn.isotonic")
    other = isotonic.IsotonicRegression(out_of_bounds="clip").fit(scores, positive.astype(float), weight)
    np.testing.assert_allclose(p, other.predict(grid), atol=1e-12)


@settings(max_examples=60)
@given(st.integers(2, 25), st.integers(0, 1000), st.booleans())
def test_venn_abers_is_two_isotonic_regressions_for_every_new_score(n, seed, ties):
    scores, positive, _ = drawn(n, seed, ties)
    model = fit_venn_abers(scores, positive, np.ones(n))
    for new in [*scores[:4], -9.0, 9.0, 0.03, -0.41]:
        for label, found in zip((0, 1), model.interval(np.array([new]))[0], strict=True):
            x = np.append(scores, new)
            every, place = np.unique(x, return_inverse=True)
            mass = np.bincount(place).astype(float)
            share = np.bincount(place, weights=np.append(positive, label)) / mass
            assert found == pytest.approx(isotonic_by_minmax(share, mass)[every == new][0], abs=1e-12)
    p = model.probability(scores)
    low, high = model.interval(scores).T
    assert (low <= high).all()
    assert ((low <= p + 1e-12) & (p <= high + 1e-12)).all()


@pytest.mark.parametrize("fit", [fit_isotonic, fit_venn_abers])
@seeds(5)
def test_ties_that_rounding_has_parted_are_ties(fit, seed):
    scores, positive, weight = drawn(150, seed, ties=True)
    noise = 1e-14 * np.random.default_rng(seed).normal(size=(2, 150))
    tied, parted = fit(scores, positive, weight), fit(scores + noise[0], positive, weight)
    assert len(tied.x) < 80
    assert len(parted.x) == len(tied.x)
    np.testing.assert_allclose(parted.probability(scores + noise[1]), tied.probability(scores), rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "venn-abers"])
def test_calibrator_of_a_cross_validation(method):
    X, y = noisy(200)
    cv = svmcore.cv_path(X, y, C_max=100.0)
    model = cv.calibrate(method)
    p = model.predict_proba(X)
    assert p.shape == (200, 2)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.scores, cv.decision_scores())
    np.testing.assert_allclose(p, model.from_scores(cv.refit().decision_function(X)))
    order = np.argsort(cv.refit().decision_function(X))
    assert (np.diff(p[order, 1]) >= -1e-12).all()
    guess = 1.0 - (y == "yes").mean()
    assert model.log_loss < -(guess * np.log(guess) + (1 - guess) * np.log(1 - guess))
    assert np.mean(model.predict(X) == y) > 0.7
    if method == "venn-abers":
        assert model.intervals(X).shape == (200, 2)
    else:
        refused("has no intervals", model.intervals, X)


def test_unknown_method_is_named():
    X, y = noisy(40)
    refused("method='platt' is not known; choose one of 'sigmoid'", svmcore.cv_path(X, y, C_max=1.0).calibrate, "platt")


def test_picture_of_a_calibration():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    X, y = noisy(120)
    ax = svmcore.cv_path(X, y, C_max=10.0).calibrate("venn-abers").plot()
    assert ax.get_xlabel() == "out-of-fold decision value"
    assert "yes" in ax.get_ylabel()
    ax.figure.canvas.draw()
    plt.close("all")


SETS = (
    "diabetes", "german", "heart", "hillvalley", "ionosphere", "madelon", "monk1", "monk2", "monk3", "noisy_spirals",
    "raetsch_breast_cancer", "raetsch_diabetis", "raetsch_flare_solar", "raetsch_heart", "raetsch_thyroid", "sonar",
    "splice", "svmguide1", "svmguide3", "wbc",
)  # fmt: skip


@pytest.fixture(scope="module")
def losses(data_set):
    """`losses(name)`, worked out once for each set."""
    return functools.cache(lambda name: measured(*data_set(name)))


def measured(X, y):
    """Log loss and Brier score on new rows, means of three splits, by method; scikit-learn's with the same folds and C."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.metrics import brier_score_loss, log_loss
    from sklearn.svm import SVC

    X = X.toarray() if hasattr(X, "toarray") else X
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    found = {}
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(y))[:900]
        train, test = order[: 2 * len(order) // 3], order[2 * len(order) // 3 :]
        cv = svmcore.cv_path(X[train], y[train], gamma="scale", C_max=100.0)
        real = y[test] == np.unique(y)[1]
        for method in ("sigmoid", "isotonic", "venn-abers"):
            p = cv.calibrate(method).predict_proba(X[test])[:, 1]
            found.setdefault(method, []).append((log_loss(real, p), brier_score_loss(real, p)))
        for method in ("sigmoid", "isotonic"):
            peer = SVC(C=cv.best_C, gamma=cv.best_gamma)
            peer = CalibratedClassifierCV(peer, cv=cv.folds, ensemble=False, method=method).fit(X[train], y[train])
            p = peer.predict_proba(X[test])[:, 1]
            found.setdefault(f"scikit-learn, {method}", []).append((log_loss(real, p), brier_score_loss(real, p)))
    return {method: np.mean(values, axis=0) for method, values in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_no_worse_than_scikit_learn(name, losses):
    pytest.importorskip("sklearn.calibration")
    found = losses(name)
    assert (found["sigmoid"] <= 1.002 * found["scikit-learn, sigmoid"]).all(), found
    assert (found["isotonic"] <= 1.015 * found["scikit-learn, isotonic"]).all(), found


@pytest.mark.slow
def test_venn_abers_does_not_share_the_large_losses_of_isotonic_regression(losses):
    pytest.importorskip("sklearn.calibration")
    log_loss, brier = np.mean([losses(name)["venn-abers"] for name in SETS], axis=0)
    peer = np.mean([losses(name)["scikit-learn, isotonic"] for name in SETS], axis=0)
    assert log_loss < 0.75 * peer[0]
    assert brier < peer[1]


@seeds(3)
def test_the_sigmoid_has_the_same_bits_on_any_number_of_threads(seed):
    """BLAS shares out sums of more than ten thousand numbers among its threads."""
    rng = np.random.default_rng(seed)
    scores, weight = rng.normal(size=30_000), rng.random(30_000)
    positive = rng.random(30_000) < 1.0 / (1.0 + np.exp(-scores))
    outside = fit_sigmoid(scores, positive, weight)
    with one_blas_thread:
        assert fit_sigmoid(scores, positive, weight) == outside
