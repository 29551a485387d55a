"""Paths of regressions, quantiles and one class: against fits, other libraries and certificates."""

from __future__ import annotations

import numpy as np
import pytest
import strategies
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import refused
from repeats import brief
from warned import quiet

import svmcore

pytestmark = pytest.mark.compiled

TIGHT = {"tol": 1e-9}


def waves(n: int = 60, d: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, 3.0 + np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=n)


PATHS = {
    "svr": (svmcore.svr_path, {"epsilon": 0.2}),
    "svr without a tube": (svmcore.svr_path, {"epsilon": 0.0}),
    "quantile": (svmcore.quantile_path, {"tau": 0.8}),
    "median": (svmcore.quantile_path, {"tau": 0.5}),
}


def fit(kind, X, y, C, numbers, **form):
    loss = {"loss": "pinball"} if kind in ("quantile", "median") else {}
    with quiet(svmcore.ScaleWarning):
        return svmcore.train_svr(X, y, C, **numbers, **loss, **form, **TIGHT)


@pytest.mark.parametrize(
    "form",
    [
        {"gamma": 0.5},
        {"kernel": "linear"},
        {"kernel": "poly", "degree": 2, "coef0": 1.0, "gamma": 0.5},
        {"gamma": 0.5, "fit_intercept": False},
        {"gamma": 0.5, "sample_weight": np.arange(60) % 3.0},
        {"standardize": True},
    ],
    ids=brief,
)
@pytest.mark.parametrize("kind", PATHS)
def test_every_C_is_what_a_fit_gives(kind, form):
    X, y = waves()
    follow, numbers = PATHS[kind]
    path = follow(X, y, **numbers, **form, C_max=50.0)
    rng = np.random.default_rng(1)
    for C in np.exp(rng.uniform(np.log(1e-2), np.log(50.0), 6)):
        machine = fit(kind, X, y, C, numbers, **form)
        assert path.objective(C) == pytest.approx(machine.objective, rel=1e-8, abs=1e-10)
        f = path.decision_function(X, C) - path.intercept(C)
        other = machine.decision_function(X) - machine.intercept
        if form.get("kernel") != "linear" and not form.get("standardize"):
            np.testing.assert_allclose(f, other, atol=1e-6)
    found = path.certify()
    assert found.kkt_violation < 1e-8
    assert found.relative_gap < 1e-9
    assert path.at(1.0).relative_gap < 1e-9


@pytest.mark.parametrize(
    "form", [{"gamma": 0.5}, {"kernel": "linear"}, {"gamma": 0.5, "fit_intercept": False}], ids=brief
)
def test_every_epsilon_is_what_a_fit_gives(form):
    X, y = waves()
    path = svmcore.epsilon_path(X, y, C=2.0, **form)
    rng = np.random.default_rng(2)
    widest = float(path.epsilons[0])
    for epsilon in rng.uniform(0.0, widest, 8):
        machine = svmcore.train_svr(X, y, 2.0, epsilon, **form, **TIGHT)
        assert path.objective(epsilon) == pytest.approx(machine.objective, rel=1e-8, abs=1e-10)
        np.testing.assert_allclose(
            path.predict(X, epsilon), machine.predict(X), atol=2e-4 if epsilon > 0.9 * widest else 1e-5
        )
    assert path.certify().relative_gap < 1e-8
    assert not path.dual_coef(widest * 1.01).any()


def test_paths_are_scikit_learns():
    svm = pytest.importorskip("sklearn.svm")
    X, y = waves()
    path, wide = svmcore.svr_path(X, y, epsilon=0.2, gamma=0.5), svmcore.epsilon_path(X, y, C=2.0, gamma=0.5)
    for C in (0.1, 1.0, 20.0):
        theirs = svm.SVR(C=C, epsilon=0.2, gamma=0.5, tol=1e-10).fit(X, y)
        coef = np.zeros(len(y))
        coef[theirs.support_] = theirs.dual_coef_[0]
        np.testing.assert_allclose(path.dual_coef(C), coef, atol=1e-4 * C)  # flat directions: the function tells more
        np.testing.assert_allclose(path.predict(X, C), theirs.predict(X), atol=1e-5)
    for epsilon in (0.05, 0.3):
        theirs = svm.SVR(C=2.0, epsilon=epsilon, gamma=0.5, tol=1e-10).fit(X, y)
        np.testing.assert_allclose(wide.predict(X, epsilon), theirs.predict(X), atol=1e-6)


@pytest.mark.parametrize("tau", [0.2, 0.5])
def test_a_quantile_without_penalty_is_scikit_learns(tau):
    linear = pytest.importorskip("sklearn.linear_model")
    X, y = waves(41)
    path = svmcore.quantile_path(X, y, tau, kernel="linear", C_max=1e5)
    theirs = linear.QuantileRegressor(quantile=tau, alpha=0.0, solver="highs").fit(X, y)
    np.testing.assert_allclose(path.coef(1e5), theirs.coef_, atol=1e-6)
    assert path.intercept(1e5) == pytest.approx(theirs.intercept_, abs=1e-6)


def test_one_class_is_scikit_learns_at_every_nu():
    svm = pytest.importorskip("sklearn.svm")
    X, _ = waves(90)
    path = svmcore.one_class_path(X, gamma=0.5)
    for nu in (0.07, 0.2, 0.5, 0.93):
        C = path.C_of(nu)
        assert path.nu(C) == pytest.approx(nu, rel=1e-9)
        theirs = svm.OneClassSVM(nu=nu, gamma=0.5, tol=1e-10).fit(X)
        coef = np.zeros(90)
        coef[theirs.support_] = theirs.dual_coef_[0]
        np.testing.assert_allclose(path.alpha(C) / C, coef, atol=1e-5)
        ours = svmcore.train_one_class(X, nu, gamma=0.5, **TIGHT)
        np.testing.assert_allclose(path.alpha(C) / C, ours.alpha, atol=1e-6)
    refused(r"nu=1.5 is not feasible: this path covers nu from", path.C_of, 1.5)
    low, _ = path.nu_range
    refused("a smaller lambda_min", path.C_of, 0.5 * low)


def test_depth_is_the_largest_nu_that_holds_a_row():
    X, _ = waves(70)
    rng = np.random.default_rng(5)
    new = rng.uniform(-4.0, 4.0, size=(60, 2))
    path = svmcore.one_class_path(X, gamma=1.5)
    depth = path.depth(new)
    Cs = np.geomspace(path.Cs[0] * (1.0 + 1e-9), path.Cs[-1], 3000)
    f, nu = path.decision_function(new, Cs), path.nu(Cs)
    seen = np.where(f > 0.0, nu[:, None], 0.0).max(axis=0)
    assert (depth >= seen - 1e-9).all()  # the grid may miss where a row enters,
    step = np.abs(np.diff(nu)).max()
    assert (depth <= seen + 2.0 * step)[seen > 0.0].all()  # but not by much
    assert ((depth == 0.0) == (seen == 0.0)).mean() > 0.95
    inside = f > 0.0
    assert (inside[:-1] & ~inside[1:]).any()  # the sets themselves are not nested
    assert path.depth(X).min() > 0.0


@pytest.mark.parametrize("kind", PATHS)
def test_error_curves_are_the_losses_of_predictions(kind):
    X, y = waves()
    new, target = waves(40, seed=3)
    follow, numbers = PATHS[kind]
    path = follow(X, y, **numbers, gamma=0.5, C_max=50.0)
    curve = path.error_curve(new, target)
    tau = numbers.get("tau")
    for C in np.geomspace(1e-3, 50.0, 40):
        left = target - path.predict(new, C)
        wanted = np.abs(left) if tau is None else np.maximum(tau * left, (tau - 1.0) * left)
        assert curve(C) == pytest.approx(wanted.mean(), rel=1e-9)
    assert curve(curve.best_C) == pytest.approx(curve.minimum, rel=1e-12)
    assert curve.minimum <= curve(np.geomspace(1e-3, 50.0, 2000)).min() + 1e-12


def test_saved_and_loaded_they_answer_alike(tmp_path):
    X, y = waves(40)
    one = svmcore.one_class_path(X)
    for k, path in enumerate(
        (svmcore.svr_path(X, y), svmcore.quantile_path(X, y, 0.3), svmcore.epsilon_path(X, y), one)
    ):
        path.save(tmp_path / f"{k}.npz")
        same = svmcore.load(tmp_path / f"{k}.npz")
        assert (type(same), repr(same)) == (type(path), repr(path))
        at = 0.05 if path.parameter == "epsilon" else 2.0
        np.testing.assert_array_equal(same.predict(X, at), path.predict(X, at))
    np.testing.assert_array_equal(svmcore.load(tmp_path / "3.npz").depth(X), one.depth(X))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda X, y: svmcore.svr_path(X, y, epsilon=-0.1), "epsilon=-0.1 is out of range"),
        (lambda X, y: svmcore.quantile_path(X, y, 1.0), "tau=1.0 is no quantile"),
        (lambda X, y: svmcore.quantile_path(X, y, 0.0), "tau=0.0"),
        (lambda X, y: svmcore.epsilon_path(X, y, np.inf), "C=inf"),
        (lambda X, y: svmcore.epsilon_path(X, y, 1.0, epsilon_max=0.1, epsilon_min=0.2), "epsilon_max=0.1"),
        (lambda X, y: svmcore.svr_path(X, y[:-1]), "one number per sample"),
        (lambda X, y: svmcore.svr_path(X, np.where(y > 3, np.nan, y)), "nan"),
        (lambda X, y: svmcore.one_class_path(np.empty((0, 2))), "X is empty"),
        (lambda X, y: svmcore.one_class_path(np.array(1.0)), "X has 0 dimension"),
        (lambda X, y: svmcore.svr_path(X, y, C_max=1.0, C_min=2.0), "C_min=2.0 lies above"),
    ],
)
def test_what_cannot_be_is_refused_in_words(call, words):
    X, y = waves(20)
    refused(words, call, X, y)


def test_pictures_say_what_they_are_of():
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot as plt

    X, y = waves(40)
    paths = {"mean absolute error": svmcore.svr_path(X, y), "mean pinball loss": svmcore.quantile_path(X, y, 0.3)}
    for label, path in paths.items():
        ax = path.plot("error", test=(X[:10], y[:10]))
        assert ax.get_ylabel() == label
        drawn = ax.lines[0].get_xydata()
        curve = path.error_curve()
        np.testing.assert_allclose(drawn[:, 1], curve(drawn[:, 0]))
        assert path.plot("alphas").get_legend() is None
        assert "boundary" not in path.plot("overview")
        refused("for classes and two features", path.plot, "boundary")
    assert svmcore.one_class_path(X).plot("error").get_ylabel() == "outside, in %"
    refused("over epsilon", svmcore.epsilon_path(X, y).plot)
    plt.close("all")


def test_few_points_and_equal_targets():
    for n in (1, 2, 3):
        X, y = np.arange(n, dtype=float).reshape(-1, 1), np.full(n, 2.0)
        for path in (svmcore.svr_path(X, y, gamma=1.0), svmcore.quantile_path(X, y, gamma=1.0)):
            np.testing.assert_allclose(path.predict(X, 10.0), 2.0)
    path = svmcore.one_class_path([[0.0]], gamma=1.0)
    assert path.predict([[0.0]], 2.0).tolist() == [1]


@settings(max_examples=25)
@given(
    strategies.points(low=3, high=25),
    st.integers(0, 1000),
    st.sampled_from(sorted(PATHS)),
    st.booleans(),
    st.booleans(),
)
def test_any_path_is_certified_and_agrees_with_fits(X, seed, kind, linear, intercept):
    rng = np.random.default_rng(seed)
    y = rng.integers(-2, 3, len(X)).astype(float) if seed % 2 else rng.normal(size=len(X))
    assume(np.ptp(y) > 0.0)
    follow, numbers = PATHS[kind]
    form = {"fit_intercept": intercept, **({"kernel": "linear"} if linear else {"gamma": 0.7})}
    path = follow(X, y, **numbers, **form, C_max=10.0)
    assert path.certify().kkt_violation < 1e-7 * (1.0 + np.abs(y).max())
    for C in np.exp(rng.uniform(np.log(1e-2), np.log(10.0), 2)):
        assert path.objective(C) == pytest.approx(fit(kind, X, y, C, numbers, **form).objective, rel=1e-7, abs=1e-8)


@settings(max_examples=15)
@given(strategies.points(low=2, high=25), st.sampled_from([0.1, 1.0]), st.booleans())
def test_any_one_class_path_has_its_nu(X, gamma, weighted):
    weights = np.arange(len(X)) % 3 + 0.5 if weighted else None
    path = svmcore.one_class_path(X, gamma=gamma, sample_weight=weights, C_max=1e3)
    low, high = path.nu_range
    assert high == pytest.approx(1.0)
    for nu in np.linspace(low * 1.001, 0.999, 4):
        C = path.C_of(nu)
        own = np.ones(len(X)) if weights is None else weights
        assert path.alpha(C).sum() / (C * own.sum()) == pytest.approx(nu, rel=1e-7)
        machine = svmcore.train_one_class(X, nu, gamma=gamma, sample_weight=weights, **TIGHT)
        squares = (path.alpha(C) / C) @ path.decision_function(X, C) / C
        ours = 0.5 * (squares + (path.alpha(C) / C).sum() / C)
        assert ours == pytest.approx(machine.objective, rel=1e-6, abs=1e-9)
