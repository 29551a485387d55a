"""`cv_path` of regressions, quantiles and one class, against a machine per fold and C."""

from __future__ import annotations

import numpy as np
import pytest
import strategies
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import refused
from warned import quiet

import svmcore

pytestmark = pytest.mark.compiled

TIGHT = 1e-9
HALVES = [(range(20, 40), range(20)), (range(20), range(20, 40))]
LOSSES = {"epsilon_insensitive": {"epsilon": 0.2}, "pinball": {"tau": 0.7}}
SCORES = {
    "absolute_error": np.abs,
    "squared_error": np.square,
    "epsilon_insensitive": lambda r: np.maximum(np.abs(r) - 0.2, 0.0),
    "pinball": lambda r: np.maximum(0.7 * r, -0.3 * r),
}


def waves(n: int = 80, d: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, 50.0 + np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=n)


def residuals(X, y, fold, C, weights=None, **problem):
    """Of a machine trained to a tight tolerance; and whether its intercept is the only one."""
    own = None if weights is None else weights[fold.train]
    with quiet():
        machine = svmcore.train_svr(X[fold.train], y[fold.train], C, tol=TIGHT, sample_weight=own, **problem)
    tau = problem.get("tau", 0.5)
    most = C * (np.ones(len(fold.train)) if own is None else own)
    high, low = (tau * most, (tau - 1.0) * most) if problem["loss"] == "pinball" else (most, -most)
    coef = np.zeros(len(most))
    coef[machine.support] = machine.dual_coef
    room = 1e-7 * most
    inside = (coef > low + room) & (coef < high - room)
    if problem["loss"] == "epsilon_insensitive" and problem["epsilon"] > 0.0:
        inside &= np.abs(coef) > room
    free = bool(inside.any()) or problem.get("fit_intercept") is False
    return y[fold.test] - machine.decision_function(X[fold.test]), free


def check(X, y, cv, score, weights=None, **problem) -> int:
    """Compare with brute force; returns how many machines were compared."""
    rng = np.random.default_rng(1)
    some = rng.choice(cv.breakpoints, min(4, len(cv.breakpoints)), replace=False)
    compared = 0
    for C in [*some[some > 1e-3], *np.exp(rng.uniform(np.log(1e-2), np.log(cv.C_range[1]), 5))]:
        found = cv.fold_errors(C)
        for k, fold in enumerate(cv.folds):
            left, free = residuals(X, y, fold, C, weights, **problem)
            if free:
                own = np.ones(len(fold.test)) if weights is None else weights[fold.test]
                wanted = SCORES[score](left) @ own / own.sum()
                assert found[k] == pytest.approx(wanted, rel=1e-6, abs=1e-6)
                compared += 1
    return compared


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("loss", LOSSES)
def test_curve_is_that_of_brute_force(loss, score):
    X, y = waves()
    numbers = LOSSES[loss]
    more = {} if score not in ("pinball", "epsilon_insensitive") else dict(LOSSES[score])
    cv = svmcore.cv_path(X, y, loss=loss, score=score, cv=3, gamma=0.5, C_max=100.0, **{**more, **numbers})
    assert check(X, y, cv, score, loss=loss, gamma=0.5, **numbers) > 15
    everywhere = cv.error(np.concatenate([np.geomspace(1e-3, 100.0, 5000), [cv.best_C]]))
    assert everywhere.min() == pytest.approx(cv.best_error, rel=1e-12)
    assert (everywhere >= cv.best_error * (1.0 - 1e-12)).all()
    assert cv.error(cv.one_se_C) <= cv.best_error + cv.standard_error(cv.best_C) + 1e-9
    assert cv.one_se_C <= cv.best_C
    assert cv.n_support(cv.smallest_C) <= cv.n_support(cv.best_C)


@pytest.mark.filterwarnings("ignore:the score still falls at the end")
@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "linear", "sample_weight": np.arange(80) % 3 + 1.0},
        {"standardize": True},
        {"fit_intercept": False, "gamma": 0.3},
        {"epsilon": 0.0, "gamma": 0.3},
        {"align": "C*n", "gamma": 0.3, "cv": 2},
    ],
    ids=str,
)
def test_options_of_training(options):
    X, y = waves()
    options = {"epsilon": 0.2, **options}
    cv = svmcore.cv_path(X, y, loss="epsilon_insensitive", C_max=20.0, **options)
    C = np.array([0.1, 1.0, 10.0])
    scores = cv.decision_scores(C)
    ratio = 2.0 if options.get("align") else 1.0
    weights = options.pop("sample_weight", None)
    form = {name: value for name, value in options.items() if name not in ("align", "cv")}
    form |= {} if cv.best_gamma is None else {"gamma": cv.best_gamma}
    for k, value in enumerate(C):
        for fold in cv.folds:
            left, free = residuals(X, y, fold, value * ratio, weights, loss="epsilon_insensitive", **form)
            if free:
                np.testing.assert_allclose(y[fold.test] - scores[k, fold.test], left, atol=2e-6)
    assert cv.classes is None
    assert cv.refit().epsilon == options["epsilon"]


def test_workers_files_groups_and_search_give_the_same(tmp_path):
    X, y = waves(60)
    groups = np.arange(60) // 3
    options = {"loss": "pinball", "tau": 0.3, "C_max": 30.0, "gamma": [0.1, 1.0], "groups": groups, "cv": 4}
    one, two = svmcore.cv_path(X, y, **options), svmcore.cv_path(X, y, n_jobs=2, **options)
    np.testing.assert_array_equal(one.values, two.values)
    for fold in one.folds:
        assert not np.isin(groups[fold.test], groups[fold.train]).any()
    one.save(tmp_path / "cv.npz")
    same = svmcore.load(tmp_path / "cv.npz")
    assert repr(same) == repr(one)
    assert (same.loss, same.score) == ("pinball", "pinball")
    np.testing.assert_array_equal(same.decision_scores(2.0), one.decision_scores(2.0))
    np.testing.assert_array_equal(same.refit(3.0).dual_coef, one.refit(3.0).dual_coef)
    squared = svmcore.cv_path(X, y, loss="epsilon_insensitive", score="squared_error", C_max=30.0)
    squared.save(tmp_path / "squared.npz")
    C = np.geomspace(1e-3, 30.0, 100)
    np.testing.assert_array_equal(svmcore.load(tmp_path / "squared.npz").error(C), squared.error(C))


@pytest.mark.parametrize("loss", LOSSES)
def test_leave_one_out_is_n_refits(loss):
    X, y = waves(24)
    numbers = LOSSES[loss]
    score = {"epsilon_insensitive": "squared_error", "pinball": "pinball"}[loss]
    cv = svmcore.cv_path(X, y, loss=loss, score=score, cv="loo", gamma=0.5, C_max=30.0, **numbers)
    assert len(cv.folds) == 24
    assert check(X, y, cv, score, loss=loss, gamma=0.5, **numbers) > 60


@pytest.mark.filterwarnings("ignore:the score still falls at the end")
def test_splitters_see_the_targets():
    selection = pytest.importorskip("sklearn.model_selection")
    X, y = waves(40)
    folds = selection.KFold(4).split(X, y)
    ours = svmcore.cv_path(X, y, cv=selection.KFold(4), loss="epsilon_insensitive", C_max=1.0)
    for fold, (_, test) in zip(ours.folds, folds, strict=True):
        np.testing.assert_array_equal(fold.test, test)


def test_a_mean_far_away_and_tiny_targets_cost_no_digits():
    X, y = waves(50)
    plain = svmcore.cv_path(X, y - 50.0, loss="epsilon_insensitive", epsilon=0.2, gamma=0.5, C_max=10.0)
    for shift, scale in ((1e6, 1.0), (0.0, 1e-6)):
        other = svmcore.cv_path(
            X,
            shift + scale * (y - 50.0),
            loss="epsilon_insensitive",
            epsilon=0.2 * scale,
            gamma=0.5,
            C_max=10.0 * scale,
        )
        assert other.best_error == pytest.approx(scale * plain.best_error, rel=1e-6)
        assert other.best_C == pytest.approx(scale * plain.best_C, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": "squared"}, "loss='squared' is not known"),
        ({"loss": "epsilon_insensitive", "score": "auc"}, "does not go with loss='epsilon_insensitive'"),
        ({"loss": "pinball", "score": "mse"}, "score='mse' is not known"),
        ({"loss": "pinball", "epsilon": 0.1}, "epsilon=0.1 belongs to loss='epsilon_insensitive'"),
        ({"epsilon": 0.1}, "epsilon=0.1 belongs to loss='epsilon_insensitive'"),
        ({"loss": "epsilon_insensitive", "tau": 0.1}, "tau=0.1 belongs to loss='pinball'"),
        ({"loss": "pinball", "tau": 1.0}, "tau=1 is no quantile"),
        ({"loss": "epsilon_insensitive", "epsilon": -1.0}, "epsilon=-1"),
        ({"loss": "epsilon_insensitive", "class_weight": "balanced"}, "class_weight goes with loss='hinge'"),
        ({"loss": "epsilon_insensitive", "costs": {1: 2}}, "costs go with"),
        ({"eps": 0.1}, "cv_path has no parameter 'eps'; .*; bands of errors are gone"),
        ({"loss": "epsilon_insensitive", "cv": 41}, "cv=41 needs at least 41 rows, and y holds 40"),
        ({"loss": "one_class"}, "not classes"),
        ({"loss": "pinball", "sample_weight": np.arange(40) < 10, "cv": HALVES}, "rows of fold 0 have weight zero"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_words(options, words):
    X, y = waves(40)
    refused(words, svmcore.cv_path, X, y, **options)


@pytest.mark.filterwarnings("ignore:the score still falls at the end")
def test_numbers_have_no_probabilities():
    X, y = waves(40)
    refused("probabilities of classes", svmcore.cv_path(X, y, loss="epsilon_insensitive", C_max=1.0).calibrate)


def test_picture_of_a_continuous_curve():
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot as plt

    X, y = waves(40)
    cv = svmcore.cv_path(X, y, loss="epsilon_insensitive", score="squared_error", gamma=[0.1, 1.0], C_max=10.0)
    for what in ("curve", "map"):
        ax = cv.plot(what)
        assert "least" in ax.get_title(loc="right")
        ax.figure.canvas.draw()
    assert cv.plot().get_ylabel() == "mean squared error"
    plt.close("all")


@settings(max_examples=15)
@given(strategies.points(low=8, high=30), st.integers(0, 1000), st.sampled_from(sorted(LOSSES)), st.booleans())
def test_any_regression_agrees_with_brute_force(X, seed, loss, linear):
    rng = np.random.default_rng(seed)
    y = rng.integers(-3, 4, len(X)).astype(float) if seed % 2 else rng.normal(size=len(X))
    assume(np.ptp(y) > 0.0)
    kernel = {"kernel": "linear"} if linear else {"gamma": 0.7}
    with quiet():
        cv = svmcore.cv_path(
            X, y, loss=loss, score="squared_error", cv=2, random_state=seed, C_max=10.0, **LOSSES[loss], **kernel
        )
    check(X, y, cv, "squared_error", loss=loss, **LOSSES[loss], **kernel)


# ---- one class -------------------------------------------------------------------------------------------------------


def strangers(n: int = 70) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    inside = rng.normal(size=(n, 2))
    outside = rng.normal(size=(n // 2, 2)) * 3.0
    return np.concatenate([inside, outside]), np.repeat(["usual", "strange"], [n, n // 2])


@pytest.mark.parametrize("score", ["error", "balanced_error", "auc"])
def test_one_class_is_learned_from_its_rows_alone(score):
    X, y = strangers()
    cv = svmcore.cv_path(X, y, loss="one_class", score=score, gamma=0.3, cv=3, C_max=5.0)
    compared = 0
    for C in np.geomspace(0.01, 4.0, 9):
        for k, fold in enumerate(cv.folds):
            own = fold.train[y[fold.train] == "usual"]
            scaled = C * np.sum(y == "usual") / own.size  # the default: C times the number of rows
            nu = svmcore.one_class_path(X[own], gamma=0.3, C_min=scaled, C_max=scaled).nu(scaled)
            if nu > 0.999:
                continue  # the border is not unique
            machine = svmcore.train_one_class(X[own], nu, gamma=0.3, tol=TIGHT)
            f, real = machine.decision_function(X[fold.test]), y[fold.test] == "usual"
            doubt = np.mean(np.abs(f) < 1e-6 * nu * own.size)
            if score == "auc":
                wanted = 1.0 - np.mean(f[real][:, None] > f[~real])
            elif score == "error":
                wanted = np.mean((f >= 0) != real)
            else:
                wanted = 0.5 * (np.mean(f[real] < 0) + np.mean(f[~real] >= 0))
            if doubt == 0:
                assert cv.fold_errors(C)[k] == pytest.approx(wanted, abs=1e-9)
                compared += 1
    assert compared > 10
    machine = cv.refit()
    assert machine.alpha.size == 70
    assert cv.best_error < 0.4
    assert list(cv.classes) == ["strange", "usual"]
    refused("probabilities", cv.calibrate)


def test_refit_of_one_class_is_as_good_as_its_path():
    """Decision values are of size 1 / C: by the usual tolerance alone half of the objective would be open."""
    X, y = svmcore.load_data("demo:monk3")
    cv = svmcore.cv_path(X, y, loss="one_class", cv=4, gamma=0.2)
    for C in (1.0, cv.best_C, cv.C_range[1]):
        assert cv.refit(C).relative_gap < 1e-2
    assert cv.refit(tol=1e-3).relative_gap < 1e-2
    with pytest.warns(svmcore.ConvergenceWarning, match="the objective may be off"):
        assert cv.refit(tol=1e-3, solver="block").relative_gap > 0.1


def test_one_class_is_saved_and_loaded(tmp_path):
    X, y = strangers(30)
    cv = svmcore.cv_path(X, y, loss="one_class", gamma="search", cv=3, C_max=5.0, standardize=True)
    cv.save(tmp_path / "cv.npz")
    same = svmcore.load(tmp_path / "cv.npz")
    np.testing.assert_array_equal(same.values, cv.values)
    np.testing.assert_array_equal(same.decision_scores(1.0), cv.decision_scores(1.0))
    np.testing.assert_array_equal(same.refit(1.0).alpha, cv.refit(1.0).alpha)
    refused("y holds 3", svmcore.cv_path, X, np.arange(len(y)) % 3, loss="one_class")


def test_one_class_needs_rows_of_its_own_class_alone():
    X, y = strangers(20)
    X, y = X[:21], y[:21]  # one stranger
    for cv in (4, "loo"):
        found = svmcore.cv_path(X, y, loss="one_class", gamma=0.3, cv=cv, C_max=1.0, align="C")
        assert sum(fold.test.size for fold in found.folds) == 21
        row = found.folds[next(k for k, fold in enumerate(found.folds) if 20 in fold.test)]
        machine = svmcore.one_class_path(X[row.train[row.train < 20]], gamma=0.3, C_min=0.5, C_max=0.5)
        expected = machine.decision_function(X[20:], 0.5)
        assert found.decision_scores(0.5)[20] == pytest.approx(float(np.ravel(expected)[0]), abs=1e-6)
    refused("cv=21 needs at least 21 rows of the class that is learned", svmcore.cv_path, X, y, loss="one_class", cv=21)
    with pytest.raises(svmcore.InputError, match=r"only row cannot be both .* join its class"):
        svmcore.cv_path(X, np.where(y == "usual", "strange", "usual"), loss="one_class", cv="loo")


def test_the_range_follows_the_spread_of_large_targets():
    """Targets in other units are the same problem: C is larger by the factor, and so is the end of its range."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(60, 2))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=60)
    y /= y.std()
    one = svmcore.cv_path(X, y, loss="epsilon_insensitive", epsilon=0.1, cv=3)
    other = svmcore.cv_path(X, 2e4 * y, loss="epsilon_insensitive", epsilon=2e3, cv=3)
    assert one.C_range[1] == pytest.approx(1000.0)
    assert other.C_range[1] == pytest.approx(100.0 * 2e4)
    assert other.best_C == pytest.approx(2e4 * one.best_C, rel=1e-4)
    machine = svmcore.SVRPathCV(epsilon=2e3, cv=3).fit(X, 2e4 * y)
    assert machine.best_C_ == pytest.approx(other.best_C, rel=1e-6)
    assert machine.score(X, 2e4 * y) > 0.8
    tiny = svmcore.cv_path(X, 0.01 * y, loss="epsilon_insensitive", epsilon=1e-3, cv=3)
    assert tiny.C_range[1] == pytest.approx(1000.0)


def test_an_end_of_the_range_where_the_score_still_falls_is_told():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(60, 2))
    y = 2e4 * X[:, 0]
    with pytest.warns(svmcore.ConvergenceWarning, match="the score still falls at the end of the range, C = 1000"):
        svmcore.cv_path(X, y, loss="epsilon_insensitive", epsilon=0.1, cv=3, C_max=1000.0)
