"""Every path ends: in a right answer, in a warning that says what was reached, or in an `InputError`."""

import warnings

import numpy as np
import pytest
from degenerate_paths import OURS, case_of, cpu_limit, verdict
from refusals import refused

import svmcore
from svmcore._types import Kernel, KernelKind
from svmcore.kernel.matrix import KernelMatrix
from svmcore.path.problem import BoxPath
from svmcore.path.seat import seat
from svmcore.path.tracker import Tracker

pytestmark = pytest.mark.compiled  # seconds of CPU time mean little without

POINTS = np.random.default_rng(0).normal(size=(60, 3))
SOON = 5.0


def quiet(call):
    """The answer, and what was said of it."""
    with cpu_limit(SOON), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        path = call()
    assert all(issubclass(w.category, OURS) for w in said), [str(w.message) for w in said]
    return path, " ".join(str(w.message) for w in said)


@pytest.fixture(autouse=True, scope="module")
def compiled():
    """Compiling is not what is measured here."""
    X, y, target = POINTS[:12], POINTS[:12, 0] > 0.0, POINTS[:12, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for factorization in ("auto", "svd", "qr", "update"):
            svmcore.svm_path(X, y, kernel="sigmoid", gamma=1.0, factorization=factorization)
        for follow in (svmcore.svr_path, svmcore.epsilon_path, svmcore.quantile_path):
            follow(X, target)
            follow(X @ X.T, target, kernel="precomputed")
        svmcore.one_class_path(X)
        svmcore.svm_path(X, y, cache_mb=1e-3)
        svmcore.cv_path(X, y, cv=2)
        svmcore.train_svc(X, y)
        svmcore.train_svr(X, target)


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        ([[1.0]], [5.0], {}),
        ([[1.0]], [5.0], {"max_events": 10}),
        ([[1.0]], [5.0], {"time_limit": 100.0}),
        (POINTS[:10, :2], np.full(10, 5.0), {}),
        (POINTS[:10, :2], np.zeros(10), {"fit_intercept": False}),
        (POINTS[:10, :2], np.zeros(10), {"epsilon_max": 1e-300}),
        (POINTS[:10, :2], np.arange(10.0), {"sample_weight": np.arange(10) == 3}),
    ],
)
def test_equal_targets_make_an_epsilon_path_without_events(X, y, words):
    path, said = quiet(lambda: svmcore.epsilon_path(X, y, **words))
    level = float(y[3]) if "sample_weight" in words else float(y[0])
    assert (path.ended, path.stats["n_events"], said) == ("done", 0, "")
    assert path.epsilon_range[0] == 0.0
    assert path.epsilons[0] < 10.0
    for epsilon in {0.0, float(path.epsilons[0])}:
        assert np.abs(path.predict(X, epsilon) - level).max() <= 1e-12
        assert not path.dual_coef(epsilon).any()


INDEFINITE = (POINTS[:, :3] @ np.array([1.0, -2.0, 0.5]))[:, None] * np.random.default_rng(1).normal(size=(60, 60))


@pytest.mark.parametrize("factorization", ["auto", "svd", "qr", "update"])
def test_a_path_of_an_indefinite_kernel_ends(factorization):
    y = POINTS[:, 0] * POINTS[:, 1] > 0.0
    words = {"kernel": "sigmoid", "gamma": 1.0, "factorization": factorization}
    path, said = quiet(lambda: svmcore.svm_path(POINTS * 3.0, y, **words))
    assert "positive semi-definite" in said
    assert path.ended == ("stalled" if factorization == "auto" else "done")
    if factorization == "auto":
        assert "ended early (stalled) at C=" in said
        assert "Remedy" in said
        assert 0.1 < path.C_max < 0.3
        assert path.stats["n_events"] < 1000  # what was only repeated is not kept
        again, nothing = quiet(lambda: svmcore.svm_path(POINTS * 3.0, y, **words, C_max=0.9 * path.C_max))
        assert again.ended == "done"
        assert "stalled" not in nothing


@pytest.mark.parametrize("name", ["svr_path", "epsilon_path", "quantile_path", "one_class_path"])
def test_the_other_paths_of_indefinite_kernels_end(name):
    args = (POINTS * 3.0,) if name == "one_class_path" else (POINTS * 3.0, POINTS[:, 0])
    path, said = quiet(lambda: getattr(svmcore, name)(*args, kernel="sigmoid", gamma=1.0))
    assert path.ended in ("done", "stalled")
    assert path.stats["max_gap"] <= 1e-6 or "positive semi-definite" in said
    K = INDEFINITE + INDEFINITE.T
    args = (K,) if name == "one_class_path" else (K, POINTS[:, 0])
    path, said = quiet(lambda: getattr(svmcore, name)(*args, kernel="precomputed"))
    assert path.ended in ("done", "stalled")
    assert "positive semi-definite" in said


def test_values_that_are_no_numbers_find_a_place():
    """More than the elbow had room for: what a step along an indefinite kernel had left."""
    rng = np.random.default_rng(2)
    X, R = rng.normal(size=(200, 3)), rng.normal(size=(200, 200))
    path, said = quiet(lambda: svmcore.svr_path(R + R.T, X[:, 0], kernel="precomputed"))
    assert path.ended in ("done", "stalled")
    assert "positive semi-definite" in said
    oracle = KernelMatrix(X @ X.T, Kernel(int(KernelKind.PRECOMPUTED), 1.0, 0.0, 1, 0.0), cache_bytes=1 << 24)
    n = oracle.n
    tracker = Tracker(oracle, BoxPath(np.zeros(n), np.sign(X[:, 0]), -np.ones(n), np.ones(n), True))
    tracker.state.beta[:] = np.nan
    seat(tracker, 1.0)
    assert np.isfinite(tracker.state.beta).all()
    assert tracker.m <= tracker.capacity


def test_cross_validation_says_how_far_the_path_of_a_fold_can_be_followed(monkeypatch):
    X, y = POINTS, POINTS[:, 0] * POINTS[:, 1] > 0.0
    monkeypatch.setattr(
        "svmcore.path.headway.Headway.stalled", lambda self, size, work, trouble=False: size < 1.0 / 1.5
    )
    monkeypatch.setattr("svmcore.path.tracker.WORK_PER_SLICE", 1.0)  # it is asked after every slice
    with pytest.raises(svmcore.InputError, match=r"cannot be followed beyond C=.*smaller C_max") as error:
        svmcore.cv_path(X, y, gamma=1.0)
    C = float(str(error.value).split("beyond C=")[1].split(":")[0])
    assert 0.05 < C < 1000.0  # where the last of its slices ended
    assert svmcore.cv_path(X, y, gamma=1.0, C_max=0.5).ended == "done"
    with pytest.warns(svmcore.ConvergenceWarning, match=r"ended early \(stalled\) at C=.*1.0e\+00"):
        path = svmcore.svm_path(X, y, gamma=1.0)
    assert path.at(path.C_max).certificate.relative_gap <= 1e-9


def unsymmetric(a, b):
    return a @ b.T + a[:, :1]


@pytest.mark.parametrize(
    "call",
    [
        lambda X, y, k: svmcore.svm_path(X, y, kernel=k),
        lambda X, y, k: svmcore.svm_path(X, y, kernel=k, cache_mb=1e-3),
        lambda X, y, k: svmcore.svr_path(X, X[:, 0], kernel=k),
        lambda X, y, k: svmcore.epsilon_path(X, X[:, 0], kernel=k),
        lambda X, y, k: svmcore.one_class_path(X, kernel=k),
        lambda X, y, k: svmcore.cv_path(X, y, kernel=k, cv=2),
        lambda X, y, k: svmcore.train_svc(X, y, kernel=k),
        lambda X, y, k: svmcore.train_svr(X, X[:, 0], kernel=k),
    ],
)
def test_an_unsymmetric_kernel_is_refused_where_it_is_seen(call):
    X, y = POINTS, POINTS[:, 0] > 0.0
    with cpu_limit(SOON), pytest.raises(svmcore.InputError, match=r"is not symmetric: .*; give"):
        call(X, y, unsymmetric)


def test_the_rounding_of_float32_is_no_asymmetry():
    noise = np.random.default_rng(2)

    def rounded(a, b):
        K = np.exp(-((a[:, None] - b[None]) ** 2).sum(-1))
        return K * (1.0 + 1e-7 * noise.uniform(-1.0, 1.0, K.shape))

    svmcore.train_svc(POINTS, POINTS[:, 0] > 0.0, kernel=rounded)


@pytest.mark.parametrize("scale", [1e15, 1e30, 1e100])
@pytest.mark.parametrize("seed", range(4))
def test_a_path_with_huge_kernel_values_ends(scale, seed):
    X = np.random.default_rng(seed).normal(size=(10, 3))

    def kernel(a, b):
        return scale * np.exp(-((a[:, None] - b[None]) ** 2).sum(-1))

    path, said = quiet(lambda: svmcore.svr_path(X, X[:, 0], kernel=kernel))
    assert path.ended in ("done", "stalled")
    assert path.stats["max_gap"] <= 1e-6 or said


@pytest.mark.parametrize("weight", [1e-160, 1e-300, 5e-324])
@pytest.mark.parametrize(
    "call",
    [
        lambda X, y, w: svmcore.svm_path(X, y, sample_weight=w),
        lambda X, y, w: svmcore.svr_path(X, X[:, 0], sample_weight=w),
        lambda X, y, w: svmcore.epsilon_path(X, X[:, 0], sample_weight=w),
        lambda X, y, w: svmcore.quantile_path(X, X[:, 0], sample_weight=w),
        lambda X, y, w: svmcore.one_class_path(X, sample_weight=w),
        lambda X, y, w: svmcore.cv_path(X, y, sample_weight=w),
        lambda X, y, w: svmcore.train_one_class(X, sample_weight=w),
        lambda X, y, w: svmcore.train_svc(X, y, sample_weight=w),
    ],
)
def test_weights_that_vanish_are_zero(call, weight):
    X, y = POINTS[:20], POINTS[:20, 0] > 0.0
    refused(f"sample_weight is at most {weight:g} everywhere.*count as zero", call, X, y, np.full(20, weight))


def test_a_weight_that_vanishes_leaves_its_point_out():
    X, y = POINTS[:20], POINTS[:20, 0] > 0.0
    weights = np.where(np.arange(20) < 15, 1.0, 1e-200)
    some, without = (svmcore.svm_path(X, y, gamma=0.5, sample_weight=w) for w in (weights, (weights == 1.0) * 1.0))
    assert np.array_equal(some.dual_coef([0.1, 1.0, 100.0]), without.dual_coef([0.1, 1.0, 100.0]))
    refused("of a class, which counts as zero", svmcore.svm_path, X, y, class_weight={True: 1e-300})
    with pytest.raises(svmcore.InputError, match="C times the largest weight is 1e-200"):
        svmcore.epsilon_path(X, X[:, 0], 1e-100, sample_weight=np.full(20, 1e-100))
    refused("so near to an end", svmcore.quantile_path, X, X[:, 0], tau=1e-12)


def test_degenerate_paths_end():
    verdicts = [verdict(case_of(seed)) for seed in range(120)]
    assert {"right", "done", "warned", "refused"} == set(verdicts)
    assert verdicts.count("right") > 30


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(20))
def test_two_thousand_degenerate_paths_end(hundred):
    for seed in range(1000 + 100 * hundred, 1100 + 100 * hundred):
        verdict(case_of(seed))
