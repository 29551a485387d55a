"""One class, quantiles, and nu in place of C or epsilon: against scikit-learn, and by what they promise."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from kept import stored
from refusals import refused
from sklearn.linear_model import QuantileRegressor
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import NuSVC, NuSVR, OneClassSVM

import svmcore
from svmcore import solvers
from svmcore.kernel.points import is_sparse

pytestmark = pytest.mark.compiled

TIGHT = 1e-9
PEER = 1e-10  # tolerance of the peer


def cloud(n: int, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, noisy labels, targets."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] + X[:, 1] ** 2 - 1.0 + 0.5 * rng.normal(size=n) > 0, 1, -1)
    return X, y, X[:, 0] * X[:, -1] + 0.1 * rng.normal(size=n)


def gram(X, kernel: str, gamma: float = 0.5) -> np.ndarray:
    X = X.toarray() if is_sparse(X) else X
    return X @ X.T if kernel == "linear" else pairwise_kernels(X, metric=kernel, gamma=gamma)


def standard(X) -> np.ndarray:
    X = X.toarray() if is_sparse(X) else X
    return (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)


def spread(n: int, support, coef) -> np.ndarray:
    out = np.zeros(n)
    out[support] = np.ravel(coef)
    return out


# ---- one class ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian"])
@pytest.mark.parametrize("nu", [0.03, 0.25, 0.7])
def test_one_class_is_scikit_learns(kernel, nu):
    X, _, _ = cloud(240)
    X = X + 2.0  # for the linear kernel, which separates from the origin
    K = gram(X, kernel)
    weights = np.random.default_rng(3).uniform(0.2, 3.0, 240)
    for weight in (None, weights):
        mine = svmcore.train_one_class(X, nu, kernel=kernel, gamma=0.5, tol=TIGHT, sample_weight=weight)
        peer = OneClassSVM(nu=nu, kernel="precomputed", tol=PEER).fit(K, sample_weight=weight)
        a, b = spread(240, mine.support, mine.dual_coef), spread(240, peer.support_, peer.dual_coef_)
        assert mine.converged
        assert a @ K @ a == pytest.approx(b @ K @ b, rel=1e-9)
        assert a.sum() == pytest.approx(nu * (240 if weight is None else weights.sum()), rel=1e-12)
        assert mine.intercept == pytest.approx(peer.intercept_[0], rel=1e-6)
        assert np.allclose(mine.decision_function(X), peer.decision_function(K), atol=1e-6 * np.abs(K).max())
        assert mine.objective == pytest.approx(0.5 * a @ K @ a, rel=1e-10)
        assert abs(mine.gap) <= 1e-6 * abs(mine.objective)


def test_one_class_keeps_its_promise_about_nu():
    X, _, _ = cloud(500)
    for nu in (0.05, 0.3, 0.9, 1.0):
        machine = svmcore.train_one_class(X, nu, tol=1e-6)
        values = machine.decision_function(X)
        assert np.mean(values < -1e-5) <= nu
        assert len(machine.support) >= nu * 500 - 1e-9
        assert set(machine.predict(X)) <= {-1, 1}
        assert machine.kind == "one class"
        assert machine.nu == nu
        assert machine.C is None
        assert "nu=" in repr(machine)


def test_one_class_of_one_point_and_of_equal_points():
    for X in ([[1.0, 2.0]], [[1.0, 2.0]] * 5):
        machine = svmcore.train_one_class(X, 0.5)
        assert machine.converged
        assert machine.decision_function(X) == pytest.approx(0.0, abs=1e-12)
        assert machine.predict([[9.0, 9.0]]).tolist() == [-1]


def test_one_class_is_saved_and_changed():
    X, _, _ = cloud(120)
    machine = svmcore.train_one_class(X, 0.2, gamma=0.5, tol=1e-8)
    again = stored(machine)
    assert again.kind == "one class"
    assert again.nu == 0.2
    assert np.array_equal(again.predict(X), machine.predict(X))
    more = machine.add(X[:7] + 0.5)
    whole = svmcore.train_one_class(np.vstack([X, X[:7] + 0.5]), 0.2, gamma=0.5, tol=1e-8)
    assert np.allclose(more.decision_function(X), whole.decision_function(X), atol=1e-6)
    fewer = more.remove(np.arange(7))
    rest = svmcore.train_one_class(np.vstack([X[7:], X[:7] + 0.5]), 0.2, gamma=0.5, tol=1e-8)
    assert np.allclose(fewer.decision_function(X), rest.decision_function(X), atol=1e-6)


def test_one_class_refuses_in_words():
    X, _, _ = cloud(20)
    for nu, message in ((0.0, "nu=0.0 is out of range"), (1.5, r"nu=1.5 is out of range"), ("x", "is not a number")):
        refused(message, svmcore.train_one_class, X, nu)
    refused("zero everywhere", svmcore.train_one_class, X, sample_weight=np.zeros(20))
    refused("train_one_class has no parameter 'C'", svmcore.train_one_class, X, C=1.0)


# ---- quantiles ---------------------------------------------------------------------------------------------------------


def pinball(residual: np.ndarray, tau: float) -> float:
    return float((tau * np.maximum(residual, 0.0) + (1.0 - tau) * np.maximum(-residual, 0.0)).sum())


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.85])
def test_a_quantile_is_the_linear_programs_where_the_penalty_counts_for_nothing(tau):
    """QuantileRegressor's penalty is another one (L1), so both are compared without: at a large C, and with alpha = 0."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(101, 2))
    y = X @ [1.0, -2.0] + (1.0 + 0.3 * X[:, 0]) * rng.normal(size=101)
    machine = svmcore.train_svr(X, y, 1e3, loss="pinball", tau=tau, kernel="linear", tol=1e-9)
    peer = QuantileRegressor(quantile=tau, alpha=0.0, solver="highs").fit(X, y)
    assert machine.converged
    assert pinball(y - machine.predict(X), tau) == pytest.approx(pinball(y - peer.predict(X), tau), rel=1e-9)
    assert machine.coef_ == pytest.approx(peer.coef_, abs=1e-6)
    assert machine.intercept_ == pytest.approx(peer.intercept_, abs=1e-6)


@pytest.mark.parametrize("tau", [0.05, 0.3, 0.5])
@pytest.mark.parametrize("name", ["boston", "ozone"])
def test_quantiles_of_real_data(name, tau, data_set):
    X, y = data_set(f"targets/{name}")
    machine = svmcore.train_svr(standard(X), y, 5.0, loss="pinball", tau=tau, tol=1e-8)
    residual = y - machine.predict(standard(X))
    assert np.mean(residual < -1e-6) <= tau + 1e-12
    assert np.mean(residual > 1e-6) <= 1.0 - tau + 1e-12
    w = machine.dual_coef @ gram(standard(X)[machine.support], "rbf", machine.gamma) @ machine.dual_coef
    assert machine.primal_objective == pytest.approx(0.5 * w + 5.0 * pinball(residual, tau), rel=1e-9)
    assert machine.relative_gap < 1e-8


def test_the_median_is_the_absolute_loss():
    X, _, y = cloud(150)
    half = svmcore.train_svr(X, y, 4.0, loss="pinball", tau=0.5, gamma=0.5, tol=TIGHT)
    full = svmcore.train_svr(X, y, 2.0, 0.0, gamma=0.5, tol=TIGHT)
    assert half.objective == pytest.approx(full.objective, rel=1e-9)
    assert np.allclose(half.predict(X), full.predict(X), atol=1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", solvers.names())
def test_every_solver_that_can_fits_a_quantile(name, fit_intercept):
    can = solvers.capabilities()[name]
    if not (can.finite_bounds and (can.equality if fit_intercept else can.no_equality)):
        pytest.skip("it does not do such problems")
    X, _, y = cloud(80)
    form = {"loss": "pinball", "tau": 0.3, "fit_intercept": fit_intercept, "kernel": "linear", "tol": 1e-6}
    mine = svmcore.train_svr(X, y, 0.5, **form, solver=name)
    best = svmcore.train_svr(X, y, 0.5, **form)
    assert mine.solver == name
    assert mine.converged
    assert mine.objective == pytest.approx(best.objective, rel=1e-6)


def test_weights_of_a_quantile_are_repetitions():
    X, _, y = cloud(60)
    times = np.random.default_rng(0).integers(0, 4, 60)
    form = {"loss": "pinball", "tau": 0.7, "gamma": 0.5, "tol": TIGHT}
    weighted = svmcore.train_svr(X, y, sample_weight=times, **form)
    repeated = svmcore.train_svr(np.repeat(X, times, axis=0), np.repeat(y, times), **form)
    assert weighted.objective == pytest.approx(repeated.objective, rel=1e-9)


def test_a_quantile_is_saved_changed_and_certified():
    X, _, y = cloud(90)
    form = {"loss": "pinball", "tau": 0.2, "gamma": 0.5}
    machine = svmcore.train_svr(X, y, 2.0, **form, tol=1e-8)
    again = stored(machine)
    assert (again.tau, again.loss, again.epsilon) == (0.2, "pinball", None)
    assert np.array_equal(again.predict(X), machine.predict(X))
    coef = spread(90, machine.support, machine.dual_coef)
    found = svmcore.certificate(X, y, coef, machine.intercept, 2.0, **form)
    assert found.gap == pytest.approx(machine.gap, abs=1e-9)
    assert found.kkt_violation <= 1e-8
    more = machine.add(X[:5] + 0.3, y[:5])
    whole = svmcore.train_svr(np.vstack([X, X[:5] + 0.3]), np.append(y, y[:5]), 2.0, **form, tol=1e-8)
    assert more.objective == pytest.approx(whole.objective, rel=1e-7)
    fewer = more.remove(np.arange(90, 95))
    assert fewer.objective == pytest.approx(machine.objective, rel=1e-7)


def test_leave_one_out_of_quantiles_is_refused():
    X, _, y = cloud(30)
    refused("loss='pinball' has no leave-one-out here", svmcore.leave_one_out, X, y, 2.0, epsilon=0.0, loss="pinball")


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"tau": 0.3}, "tau=0.3 belongs to loss='pinball'"),
        ({"loss": "pinball", "tau": 1.0}, "between 0 and 1, both excluded"),
        ({"loss": "pinball", "tau": -0.1}, "tau=-0.1 is out of range"),
        ({"loss": "pinball", "C": np.inf}, "give a finite C"),
        ({"loss": "pinball", "nu": 0.3}, "nu=0.3 cannot be used with loss='pinball'"),
    ],
)
def test_quantiles_refuse_in_words(form, message):
    X, _, y = cloud(20)
    refused(re.escape(message), svmcore.train_svr, X, y, **form)


# ---- nu in place of C or epsilon ---------------------------------------------------------------------------------------


def classifier_objective(K: np.ndarray, coef: np.ndarray, C: float) -> float:
    """nu-SVC's own dual objective, of variables up to 1."""
    a = coef / C
    return float(0.5 * a @ K @ a)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("nu", [0.4, 0.55, 0.7])
def test_nu_of_a_classifier_is_scikit_learns(kernel, nu):
    X, y, _ = cloud(260)
    if kernel == "linear":
        y = np.where(X[:, 0] + 0.3 * np.random.default_rng(1).normal(size=260) > 0, 1, -1)
    K = gram(X, kernel)
    mine = svmcore.train_svc(X, y, nu=nu, kernel=kernel, gamma=0.5, tol=TIGHT)
    peer = NuSVC(nu=nu, kernel="precomputed", tol=PEER).fit(K, y)
    a, b = spread(260, mine.support, mine.dual_coef), spread(260, peer.support_, peer.dual_coef_)
    assert mine.converged
    assert mine.nu == nu
    assert mine.alpha.sum() / (260 * mine.C) == pytest.approx(nu, rel=1e-10)
    # scikit-learn's scale is its own; its largest variable is at its bound
    assert classifier_objective(K, a, mine.C) == pytest.approx(classifier_objective(K, b, np.abs(b).max()), rel=1e-9)
    same = svmcore.train_svc(X, y, mine.C, kernel=kernel, gamma=0.5, tol=TIGHT)
    assert same.objective == pytest.approx(mine.objective, rel=1e-9)
    assert np.mean(y * mine.decision_function(X) < 1.0 - 1e-6) <= nu
    assert len(mine.support) >= 260 * nu - 1e-6


@pytest.mark.parametrize("nu", [0.02, 0.2, 0.6, 0.95])
def test_nu_of_a_regression_is_scikit_learns(nu):
    X, _, y = cloud(200)
    K = gram(X, "rbf")
    mine = svmcore.train_svr(X, y, 3.0, nu=nu, gamma=0.5, tol=TIGHT)
    peer = NuSVR(nu=nu, C=3.0, kernel="precomputed", tol=PEER).fit(K, y)
    a, b = spread(200, mine.support, mine.dual_coef), spread(200, peer.support_, peer.dual_coef_)
    assert mine.converged
    assert 0.5 * a @ K @ a - y @ a == pytest.approx(0.5 * b @ K @ b - y @ b, rel=1e-9)
    assert np.allclose(mine.predict(X), peer.predict(K), atol=1e-5)
    if mine.epsilon > 0:
        assert mine.alpha.sum() / 600 == pytest.approx(nu, rel=1e-10)
        assert np.mean(np.abs(y - mine.predict(X)) > mine.epsilon + 1e-6) <= nu


@pytest.mark.compiled
def test_many_points_are_looked_at_in_part_first(monkeypatch):
    from svmcore.train import nu as module

    X, y, target = cloud(600)
    plain = svmcore.train_svc(X, y, nu=0.5, gamma=0.5, tol=TIGHT), svmcore.train_svr(X, target, nu=0.3, tol=TIGHT)
    assert {machine.solver for machine in plain} == {"small"}
    monkeypatch.setattr(module.auto, "is_small", lambda *_, **__: False)  # as if they were many
    monkeypatch.setattr(module, "_MANY", 500)
    monkeypatch.setattr(module, "_SOME", 250)
    seen = []
    look = module._preview
    monkeypatch.setattr(module, "_preview", lambda *a: seen.append(look(*a)) or seen[-1])
    after = svmcore.train_svc(X, y, nu=0.5, gamma=0.5, tol=TIGHT), svmcore.train_svr(X, target, nu=0.3, tol=TIGHT)
    assert len(seen) == 2
    assert seen[0] == pytest.approx(1.0 / plain[0].C, rel=0.5)
    assert seen[1] == pytest.approx(plain[1].epsilon, rel=0.5)
    for one, other in zip(plain, after, strict=True):
        assert one.objective == pytest.approx(other.objective, rel=1e-8)


def test_a_mean_of_two_answers_costs_no_product(monkeypatch):
    """Blocks hand over their residuals: the mean of two is the mean's, and its certificate is that of anybody's answer."""
    from svmcore.train import nu as module

    def none(*_):
        raise AssertionError("a product of an end")

    X, y, target = cloud(120)
    monkeypatch.setattr(module, "kernel_product", none)
    classes = svmcore.train_svc(X, y, nu=0.4, gamma=0.5, solver="block", tol=1e-6)
    numbers = svmcore.train_svr(X, target, nu=0.3, gamma=0.5, solver="block", tol=1e-6)
    signed = spread(120, numbers.support, numbers.dual_coef)
    for machine, told in (
        (classes, svmcore.certificate(X, y, classes.alpha, None, classes.C, gamma=0.5)),
        (numbers, svmcore.certificate(X, target, signed, None, numbers.C, epsilon=numbers.epsilon, gamma=0.5)),
    ):
        assert machine.converged
        assert machine.solver == "block"
        assert machine.stats["fits"] > 1
        assert told.kkt_violation <= 1e-6
        assert told.kkt_violation == pytest.approx(machine.kkt_violation, rel=1e-6, abs=1e-12)
        assert told.intercept == pytest.approx(machine.intercept, rel=1e-9)


def random_nu(seed: int) -> None:
    """A random problem of a random kind: the machine has its nu exactly and is optimal at its C, or nu is refused."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(4, 60)), int(rng.integers(1, 4))
    X = rng.integers(-2, 3, (n, d)).astype(float) if rng.random() < 0.3 else rng.normal(size=(n, d))
    kernel = str(rng.choice(["rbf", "linear", "laplacian"]))
    weights = rng.uniform(0.1, 3.0, n) if rng.random() < 0.3 else None
    share = np.ones(n) if weights is None else weights
    nu, form = float(rng.uniform(0.02, 1.0)), {"kernel": kernel, "gamma": 0.7, "tol": 1e-7, "sample_weight": weights}
    if rng.random() < 0.5:
        y = np.where(rng.random(n) < 0.5, 1, -1)
        y[:2] = 1, -1
        most = 2.0 * min(share[y > 0].sum(), share[y < 0].sum()) / share.sum()
        try:
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always", svmcore.ConvergenceWarning)
                machine = svmcore.train_svc(X, y, nu=nu, **form)
        except svmcore.InputError as error:
            text = str(error)
            assert text.startswith("specified nu is infeasible")
            if nu > most:
                assert f"at most {most:.6g}" in text
            else:  # the machine for every large C is a constant
                (only,) = re.findall(r"can only be ([\d.e-]+) here", text)
                assert float(only) == pytest.approx(most, rel=1e-3)
                assert (
                    svmcore.train_svc(X, y, 1e5, **form | {"tol": 1e-3}).alpha.sum() >= 1e5 * most * share.sum() / 1.001
                )
            return
        out_of_reach = [str(one.message) for one in heard if "out of reach" in str(one.message)]
        if out_of_reach:  # the machine with the least share that there is
            least = machine.alpha.sum() / (machine.C * share.sum())
            assert nu < least <= most * (1 + 1e-9)
            assert f"the share is still {least:.4g} at C=" in out_of_reach[0]
            size = np.square(X).sum() / n if kernel == "linear" else 1.0
            if machine.C * size * share.max() < 99.9:  # what larger ones would change is not waited for
                assert machine.C * size * share.max() >= 9.99
                larger = svmcore.train_svc(X, y, 10.0 * machine.C, **form)
                assert larger.alpha.sum() / (larger.C * share.sum()) >= 0.95 * least
            return
        found = machine.alpha.sum() / (machine.C * share.sum())
        assert found == pytest.approx(nu, rel=1e-9)
    else:
        y = rng.normal(size=n)
        machine = svmcore.train_svr(X, y, 2.0, nu=nu, **form)
        found = machine.alpha.sum() / (2.0 * share.sum())
        assert found == pytest.approx(nu, rel=1e-9) if machine.epsilon > 0 else found <= nu * (1 + 1e-9)
    assert machine.kkt_violation <= 1e-7


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:the tolerance is met but the objective may be off")
@pytest.mark.parametrize(
    "seeds",  # in two of them even the widest tube has answers with more
    [range(60), [1288, 1675], pytest.param(range(1000, 2000), marks=pytest.mark.slow)],
    ids=["some", "wide", "thousand"],
)
def test_random_problems_have_their_nu(seeds):
    for seed in seeds:
        random_nu(seed)


@pytest.mark.compiled
def test_a_nu_that_is_out_of_reach_ends_with_a_machine_and_a_warning(monkeypatch):
    """Noisy labels in the plane: in theory some C gives every nu; in practice the share hardly falls any more."""
    monkeypatch.setattr("svmcore.train.nu._LONG", 2000)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = np.where(X[:, 0] + rng.normal(size=600) > 0.0, 1, -1)
    with pytest.warns(svmcore.ConvergenceWarning, match=r"nu=0.2 is out of reach: the share is still 0\.\d+ at C="):
        machine = svmcore.train_svc(X, y, nu=0.2, gamma=0.5)
    assert machine.converged
    assert machine.kkt_violation <= 1e-3
    share = machine.alpha.sum() / (machine.C * 600)
    assert 0.2 < share < 0.6
    near = svmcore.train_svc(X, y, nu=share + 0.005, gamma=0.5)  # what the remedy says
    assert near.alpha.sum() / (near.C * 600) == pytest.approx(share + 0.005, rel=1e-9)


def no_search(*_):
    raise AssertionError("a search for nu")


@pytest.mark.compiled
def test_a_nu_below_what_small_overlapping_classes_allow_is_not_searched_for(monkeypatch):
    """The engine of small problems says so itself, and gives a machine of a large C, which is nearly that of the least nu."""
    monkeypatch.setattr("svmcore.train.nu._NuSearch", no_search)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = np.where(X[:, 0] + rng.normal(size=120) > 0.0, 1, -1)
    with pytest.warns(svmcore.ConvergenceWarning, match=r"nu=0.02 is out of reach: the share is still 0\.\d+ at C=\d"):
        machine = svmcore.train_svc(X, y, nu=0.02, gamma=0.5)
    least = machine.alpha.sum() / (machine.C * 120)
    told = svmcore.certificate(X, y, machine.alpha, machine.intercept, C=machine.C, gamma=0.5)
    assert machine.solver == "small"
    assert machine.converged
    assert told.kkt_violation <= 1e-3
    assert told.kkt_violation == pytest.approx(machine.kkt_violation, rel=1e-6)
    assert machine.C >= 100.0
    assert 0.02 < least < 0.5
    near = svmcore.train_svc(X, y, nu=least + 0.01, gamma=0.5)  # what the remedy says
    assert near.alpha.sum() / (near.C * 120) == pytest.approx(least + 0.01, rel=1e-9)
    assert near.C < machine.C


@pytest.mark.compiled
def test_a_nu_that_no_cost_will_reach_is_given_up_after_three_fits(monkeypatch):
    """Two costs and their shares foretell which cost would have share nu: larger ones than this crawl."""
    monkeypatch.setattr("svmcore.train.auto.is_small", lambda *_, **__: False)
    rng = np.random.default_rng(0)
    y = np.where(np.arange(800) % 2, 1, -1)
    X = 3.0 * rng.normal(size=(800, 2)) + np.outer(y, [1.5, 0.0])
    with pytest.warns(svmcore.ConvergenceWarning, match=r"nu=0.3 is out of reach: the share is still 0\.6\d+ at C=64,"):
        machine = svmcore.train_svc(X, y, nu=0.3, gamma=0.05)
    assert machine.stats["fits"] == 3
    assert machine.converged
    assert machine.kkt_violation <= 1e-3


@pytest.mark.compiled
def test_one_fit_of_few_features_says_whether_a_nu_is_within_reach(monkeypatch):
    """An interior point takes as long for any C. Two points that are close to one another do not keep a nu away."""
    monkeypatch.setattr("svmcore.train.auto.is_small", lambda *_, **__: False)
    rng = np.random.default_rng(0)
    y = np.where(np.arange(800) % 2, 1, -1)
    X = rng.normal(size=(800, 2)) + np.outer(y, [1.0, 0.0])
    with pytest.warns(svmcore.ConvergenceWarning, match=r"nu=0.1 is out of reach: the share is still 0\.\d+ at C="):
        machine = svmcore.train_svc(X, y, nu=0.1, kernel="linear")
    least = machine.alpha.sum() / (machine.C * 800)
    assert machine.stats["fits"] == 1
    large = svmcore.train_svc(X, y, 1e4, kernel="linear")
    assert least <= large.alpha.sum() / (1e4 * 800)
    near = svmcore.train_svc(X, y, nu=least + 1e-3, kernel="linear")
    assert near.alpha.sum() == pytest.approx((least + 1e-3) * near.C * 800, rel=1e-9)
    X = X + np.outer(y, [5.0, 0.0])
    X[0], X[1] = [0.0, 0.0], [0.01, 0.0]
    found = svmcore.train_svc(X, y, nu=0.005, kernel="linear")
    assert found.alpha.sum() == pytest.approx(0.005 * found.C * 800, rel=1e-9)
    for one in (machine, near, found):
        assert one.converged
        assert one.kkt_violation <= 1e-3


@pytest.mark.compiled
def test_a_nu_of_a_sigmoid_is_not_followed_far():
    """Noisy labels: the share stays above nu for any C, and a kernel that is not positive has no limit to speak of."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(150, 4)), rng.integers(0, 2, 150)
    with pytest.warns(svmcore.ConvergenceWarning, match="nu=0.3 is out of reach"):
        machine = svmcore.train_svc(X, y, nu=0.3, kernel="sigmoid", gamma=0.25)
    assert machine.stats["fits"] <= 6
    assert machine.alpha.sum() > 0.3 * machine.C * 150


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:the tolerance is met but the objective may be off")
def test_one_fit_without_a_tube_says_whether_there_are_so_many_vectors():
    """Targets on a line have few of them; noisy ones have a tube of every share. Large kernel values make steps slow."""
    rng = np.random.default_rng(1)
    X = 3.0 * rng.normal(size=(400, 4))
    exact = svmcore.train_svr(X, X.sum(axis=1), 10.0, nu=0.3, kernel="linear")
    assert exact.stats["fits"] == 1
    assert exact.epsilon == 0.0
    noisy = svmcore.train_svr(X, X.sum(axis=1) + rng.normal(size=400), 10.0, nu=0.3, kernel="linear")
    assert noisy.epsilon > 0.0
    assert noisy.solver == "interior"
    assert noisy.alpha.sum() == pytest.approx(0.3 * 10.0 * 400, rel=1e-9)
    for one in (exact, noisy):
        assert one.converged
        assert one.kkt_violation <= 1e-3


@pytest.mark.compiled
def test_a_nu_that_two_points_alone_keep_away_is_found_at_any_cost():
    """The share stays where it is from C = 100 to 1e7, and falls then: where steps are few, a search goes on."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(3000) % 2, 1, -1)
    X = 0.3 * rng.normal(size=(3000, 2)) + np.outer(y, [3.0, 0.0])
    X[0] = X[1] + [0.1, 0.0]
    machine = svmcore.train_svc(X, y, nu=0.0005, gamma=0.5)
    assert machine.C > 1e6
    assert machine.alpha.sum() == pytest.approx(0.0005 * machine.C * 3000, rel=1e-9)
    assert machine.kkt_violation <= 1e-3


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:the tolerance is met but the objective may be off")
@pytest.mark.parametrize(("cost", "nu", "n"), [(100.0, 0.5, 160), (10.0, 0.9, 160), (1e3, 0.3, 120)])
def test_nu_of_targets_without_noise_needs_no_search_among_the_narrowest_tubes(cost, nu, n):
    """A tube narrower than the tolerance is none, and which variables it has is a matter of rounding."""
    X = np.sort(10.0 * np.random.default_rng(0).random((n, 1)), axis=0)
    machine = svmcore.train_svr(X, np.sin(X[:, 0]), cost, nu=nu)
    assert machine.stats.get("fits", 1) <= 3
    assert machine.epsilon <= 1e-3
    assert np.abs(machine.dual_coef).sum() <= nu * cost * n * (1.0 + 1e-9)
    assert machine.kkt_violation <= 1e-3


@pytest.mark.compiled
def test_sums_of_both_sides_are_kept_where_points_nearly_span_one_another():
    """Steps of all free variables at once lose the sums where their matrix is nearly singular."""
    rng = np.random.default_rng(0)
    X = np.sort(5.0 * rng.random((200, 1)), axis=0)
    y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=200)
    machine = svmcore.train_svr(X, y, 100.0, nu=0.5)
    assert machine.solver == "small"
    assert "fits" not in machine.stats
    assert np.abs(machine.dual_coef).sum() == pytest.approx(0.5 * 100.0 * 200, rel=1e-9)
    assert machine.kkt_violation <= 1e-3


@pytest.mark.compiled
def test_nu_of_a_narrow_hard_margin_is_exact_without_a_search(monkeypatch):
    monkeypatch.setattr("svmcore.train.nu._NuSearch", no_search)
    x = np.concatenate([-np.linspace(1e-3, 1.0, 20), np.linspace(1e-3, 1.0, 20)])
    machine = svmcore.train_svc(x[:, None], np.sign(x), nu=0.04, kernel="linear", tol=1e-6)
    assert (machine.solver, machine.support.tolist()) == ("small", [0, 20])
    assert machine.alpha.sum() == pytest.approx(0.04 * machine.C * 40, rel=1e-9)
    assert machine.coef_ == pytest.approx([1e3], rel=1e-6)
    assert machine.kkt_violation <= 1e-6


def test_infeasible_nu_is_refused_with_its_range():
    X, y, _ = cloud(100)
    rare = np.where(np.arange(100) < 20, 1, -1)
    refused(r"specified nu is infeasible: nu=0.5, and it can be at most 0.4 here", svmcore.train_svc, X, rare, nu=0.5)
    overlap = np.vstack([X[:50], X[:50]])
    with pytest.warns(svmcore.ConvergenceWarning, match=r"nu=0.5 is out of reach: the share is still 1 at C="):
        svmcore.train_svc(overlap, np.where(np.arange(100) < 50, 1, -1), nu=0.5)
    refused(r"takes the place of C, and C=2.0 is given", svmcore.train_svc, X, y, 2.0, nu=0.3)
    refused(r"takes the place of epsilon, and epsilon=0.3 is given", svmcore.train_svr, X, y, 2.0, 0.3, nu=0.3)
    refused("it needs 'hinge' or 'epsilon_insensitive'", svmcore.train_svc, X, y, nu=0.3, loss="squared_hinge")
    refused("stopping='gap' cannot be used with nu", svmcore.train_svc, X, y, nu=0.3, stopping="gap")


def test_a_machine_with_nu_does_not_change():
    X, y, _ = cloud(60)
    machine = svmcore.train_svc(X, y, nu=0.5)
    refused(r"has another C once points change; train again with nu=0.5, or with C=", machine.remove, [0])
    regression = svmcore.train_svr(X, y, nu=0.5)
    refused(r"another epsilon once points change", regression.add, X[:1], [0.0])


def test_a_search_that_is_stopped_says_so():
    X, y, _ = cloud(400)
    with pytest.warns(svmcore.ConvergenceWarning) as caught:
        machine = svmcore.train_svc(X, y, nu=0.4, time_limit=0.0)
    assert not machine.converged
    assert any("while looking for nu=0.4: the machine has share" in str(w.message) for w in caught)
    with pytest.warns(svmcore.ConvergenceWarning) as caught:
        machine = svmcore.train_svc(X, y, nu=0.4, callback=lambda _: True)
    assert machine.status.name == "CALLBACK"
    assert not any("alpha0" in str(w.message) for w in caught)  # a search for nu takes none


@pytest.mark.parametrize(
    ("solver", "kernel", "starts"), [("auto", "linear", False), ("auto", "rbf", True), ("block", "linear", True)]
)
def test_a_start_is_the_remedy_where_it_counts(solver, kernel, starts):
    """A linear machine that "auto" trains takes a start only where it is an answer already."""
    X = np.random.default_rng(0).normal(size=(300, 4))
    y = np.where(X[:, 0] * X[:, 1] + X[:, 2] > 0, 1, -1)
    with pytest.warns(svmcore.ConvergenceWarning) as caught:
        svmcore.train_svc(X, y, 1e3, kernel=kernel, solver=solver, tol=1e-9, callback=lambda report: True)
    assert any("alpha0" in str(w.message) for w in caught) == starts


@pytest.mark.compiled
def test_kernel_values_beyond_single_precision_have_a_nu_or_another_engine_finds_it():
    """What overflows in float32 is no number there, and no number is no C."""
    X, _, _ = cloud(60)
    y = np.where(X[:, 0] + 0.5 * np.random.default_rng(1).normal(size=60) > 0.0, 1, -1)
    plain, large = (svmcore.train_svc(unit * X, y, nu=0.4, kernel="linear") for unit in (1.0, 1e22))
    assert large.solver != "small"
    assert large.converged
    assert large.alpha.sum() == pytest.approx(0.4 * large.C * 60, rel=1e-9)
    assert pytest.approx(plain.C, rel=1e-2) == large.C * 1e44
    with pytest.warns(svmcore.ConvergenceWarning, match="out of reach"):
        machines = svmcore.train_classes(1e22 * X, np.arange(60) % 3, nu=0.4, kernel="linear")
    assert np.isfinite([machine.C for machine in machines]).all()
