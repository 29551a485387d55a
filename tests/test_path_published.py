"""The published path algorithm: it ends, says how exact it is, and takes the inputs of the paper."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refused
from repeats import seeds
from scipy.optimize import linprog
from warned import heard, quiet

from svmcore import ConvergenceWarning, InputError, PublishedOptions, svm_path
from svmcore.base import highs
from svmcore.path import published as _path_paper
from svmcore.path.measure import Source, check_path, null_dim_of_duplicates, stretches
from svmcore.path.values import hat

MODES = ["svd", "qr", "update"]
needs_highspy = pytest.mark.skipif(highs.highspy() is None, reason="highspy is not installed")
KERNELS = [
    {"kernel": "linear"},
    {"kernel": "rbf", "gamma": 0.5},
    {"kernel": "rbf", "gamma": 2.0},
    {"kernel": "rbf", "gamma": 0.05},
    {"kernel": "poly", "degree": 3, "coef0": 0.0, "gamma": 1.0},
    {"kernel": "poly", "degree": 2, "coef0": 1.0, "gamma": 1.0},
]


def integer_grid(seed, low=40, high=290):
    """Points of an integer grid with random, symmetric or chequered labels, some points with both."""
    rng = np.random.default_rng([77, seed])
    n, d, half = int(rng.integers(low, high)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    X = rng.integers(-half, half + 1, (n, d)).astype(float)
    coin = np.where(rng.random(n) < 0.5, 1, -1)
    y = [coin, np.where(X.sum(axis=1) == 0, coin, np.sign(X.sum(axis=1))), 1 - 2 * (np.abs(X).sum(axis=1) % 2)][
        seed % 3
    ]
    if rng.random() < 0.6:
        k = n // 3
        X[-k:], y[-k:] = X[:k], -y[:k]
    if rng.random() < 0.3:
        k = n // 2
        X[-k:], y[-k:] = -X[:k], -y[:k]
    y[:2] = 1, -1
    return X, y.astype(int), KERNELS[int(rng.integers(len(KERNELS)))]


def ends_with_the_truth(X, y, mode, kernel, limit=60.0):
    """Follow the path; it must end in time, and either be exact or say how exact it is."""
    start = time.process_time()
    with heard() as caught:
        path = svm_path(X, y, factorization=mode, n_threads=1, **kernel)
    assert time.process_time() - start < limit
    assert path.ended == "done"
    at = path._track.knot[:, 0]
    assert (np.diff(at) <= 0.0).all()
    C = np.clip(1.0 / np.concatenate([at, 0.5 * (at[1:] + at[:-1])]), *path.C_range)
    gap = path.certify(C[:: max(1, C.size // 200)]).relative_gap
    said = [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)]
    if not gap <= 1e-6:
        assert said
        assert path.stats["max_gap"] >= 0.3 * gap
    return path, gap, said


@pytest.mark.compiled
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(5, 15))])
def test_integer_grids_end_exactly(mode, seed):
    X, y, kernel = integer_grid(seed, 40, 120)
    _, gap, said = ends_with_the_truth(X, y, mode, kernel)
    assert gap <= 1e-6
    assert not said


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("block", range(20))
def test_a_thousand_integer_grids_end(mode, block):
    for seed in range(50 * block, 50 * block + 50):
        X, y, kernel = integer_grid(seed)
        ends_with_the_truth(X, y, mode, kernel)


@pytest.mark.compiled
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(4, 12))])
def test_indefinite_kernels_and_near_duplicates_end_with_the_true_gap(mode, seed):
    rng = np.random.default_rng([99, seed])
    n = int(rng.integers(6, 60))
    X, y = rng.normal(size=(n, int(rng.integers(1, 4)))), np.where(rng.random(n) < 0.5, 1, -1)
    y[:2] = 1, -1
    kernel = {"kernel": "sigmoid", "gamma": float(10 ** rng.uniform(-1, 1)), "coef0": float(rng.normal())}
    if seed % 3 == 1:
        A = rng.normal(size=(n, n))
        X, kernel = A + A.T, {"kernel": "precomputed"}
    if seed % 3 == 2:
        X = np.vstack([X, X + 1e-7 * rng.normal(size=X.shape)])
        y = np.concatenate([y, np.where(rng.random(n) < 0.5, y, -y)])
    ends_with_the_truth(X, y, mode, kernel)


@pytest.mark.parametrize("mode", MODES)
def test_many_points_that_enter_together_are_not_switched_to_and_fro(mode):
    n = 120  # K = I: all of them meet the margin at lambda = 1
    y = np.where(np.arange(n) % 2, 1, -1)
    path, gap, said = ends_with_the_truth(np.eye(n), y, mode, {"kernel": "precomputed"})
    assert gap <= 1e-9
    assert not said
    assert path.stats["elbow_max"] == n
    assert path.stats["n_iterations"] <= 20
    assert path.stats["n_events"] <= 4 * n


@pytest.mark.compiled
@pytest.mark.parametrize("mode", ["qr", pytest.param("update", marks=pytest.mark.ci)])
def test_madelon_takes_a_few_steps(mode, data_set):
    X, y = data_set("madelon")
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    kernel = {"kernel": "rbf", "gamma": 2.0, "lambda_max": 1e4}
    path, gap, _ = ends_with_the_truth(X, y, mode, kernel)
    assert gap <= 1e-9
    assert path.stats["elbow_max"] == 2000
    assert path.stats["n_iterations"] <= 30
    assert path.stats["n_special"] <= 5


@pytest.mark.parametrize("lp", ["vertex", pytest.param("interior", marks=needs_highspy)])
@pytest.mark.parametrize("mode", MODES)
def test_one_program_for_every_step_with_a_null_space(mode, lp, monkeypatch):
    found = []
    step = _path_paper.PaperTracker._step

    def counted(self, way, nullity, low):
        before = self.program.n_solved
        step(self, way, nullity, low)
        found.append((nullity > 0 or way.elbow.size == 0, self.program.n_solved - before))

    monkeypatch.setattr(_path_paper.PaperTracker, "_step", counted)
    grid = np.array([[float(a), float(b)] for a in range(5) for b in range(5)])
    options = PublishedOptions(lp=lp)
    y = np.where(grid.sum(axis=1) > 4, 1, -1)
    path = svm_path(grid, y, kernel="linear", factorization=mode, published=options)
    assert set(found) == {(True, 1), (False, 0)}
    assert path.stats["n_lp"] == sum(programs for _, programs in found)
    assert path.stats["null_dim_max"] > 0


@seeds(6)
@pytest.mark.parametrize("mode", ["auto", "svd"])
def test_check_agrees_with_certificates_at_knots_and_between(mode, seed):
    X, y, kernel = integer_grid(seed, 20, 40)
    path = svm_path(X, y, factorization=mode, lambda_min=0.1, **kernel)
    at = path._track.knot[:, 0]
    both = np.concatenate([at, 0.5 * (at[1:] + at[:-1])])
    first = path._track.offset[np.flatnonzero(np.diff(path._track.offset) > 1)[-1]]
    path._track.value[first : first + 2] += [1e-4, -1e-4]  # an error that it must see
    found = check_path(path)
    truth = path.certify(np.clip(1.0 / both, *path.C_range))
    if (np.diff(at) < 0.0).all():
        assert found.relative_gap == pytest.approx(truth.relative_gap, rel=1e-6)
        assert found.kkt_violation == pytest.approx(truth.kkt_violation, rel=1e-6)
    else:  # two knots at one lambda: a certificate sees one of them
        assert found.relative_gap >= truth.relative_gap * (1.0 - 1e-6)
        assert found.kkt_violation >= truth.kkt_violation * (1.0 - 1e-6)


def test_the_null_dimension_is_that_of_all_points_on_the_margin():
    X = np.array([[float(a), float(b)] for a in range(6) for b in range(6)])
    y = np.where(X.sum(axis=1) > 5, 1, -1)
    for kernel in ({"kernel": "linear"}, {"kernel": "poly", "degree": 2, "coef0": 1.0, "gamma": 1.0}):
        path = svm_path(X, y, **kernel)
        largest = 0
        at = path._track.knot[:, 0]
        for lam in 0.5 * (at[1:] + at[:-1]):
            if not path.C_range[0] <= 1.0 / lam <= path.C_range[1]:
                continue
            margin = np.abs(y * path.decision_function(X, 1.0 / lam) - 1.0) <= 1e-9
            G = X[margin] @ X[margin].T
            G = G if kernel["kernel"] == "linear" else (G + 1.0) ** 2
            A = np.block([[np.zeros((1, 1)), np.ones((1, len(G)))], [np.ones((len(G), 1)), G]])
            largest = max(largest, len(A) - np.linalg.matrix_rank(A, tol=1e-9))
        assert 0 < path.stats["null_dim_max"] <= largest
        assert not path.stats["null_dim_exact"]
        assert path.null_dim_max() == largest
        assert (path.stats["null_dim_max"], path.stats["null_dim_exact"]) == (largest, True)


@pytest.mark.compiled
@seeds(4)
def test_the_null_dimension_counts_duplicates_over_all_of_the_path(seed):
    """With the rbf kernel nothing else depends on each other."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 2))[rng.integers(0, 40, 120)]
    y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0, 1, -1)
    y[rng.integers(0, 120, 10)] *= -1
    path = svm_path(X, y, gamma=1.0, lambda_min=0.01)
    assert path.stats["null_dim_max"] == check_path(path).null_dim == path.null_dim_max() > 5
    middle = np.sqrt(path.Cs[1:] * path.Cs[:-1])
    assert max(path.solution_set(C).null_space.shape[1] for C in middle) == path.stats["null_dim_max"]


def test_the_null_dimension_is_known_where_nothing_can_depend_on_anything(monkeypatch):
    monkeypatch.setattr("svmcore.path.measure.check_path", None)  # nobody looks where it is known
    X, y = clouds(40)
    path = svm_path(X, y, gamma=1e-3)  # K is singular to rounding, and definite
    assert (path.stats["null_dim_max"], path.stats["null_dim_exact"]) == (0, True)
    assert path.null_dim_max(time_limit=1e-9) == 0
    assert path.stats["null_dim_exact"]
    few = svm_path([[0.0], [1.0], [4.0], [5.0]], [-1, -1, 1, 1], kernel="linear", lambda_min=0.1)
    assert (few.stats["null_dim_max"], few.stats["null_dim_exact"]) == (0, True)  # every stretch was looked at


def test_a_margin_of_the_elbow_alone_needs_no_rank(monkeypatch):
    X, y = clouds(40)
    monkeypatch.setattr("svmcore.path.measure._rank", None)
    path = svm_path(X, y, kernel="linear")
    assert path.stats["n_distinct"] > 20
    assert path.null_dim_max() == 0


def test_a_null_dimension_that_is_cut_short_says_so():
    X, y, _ = integer_grid(1, 60, 90)
    path = svm_path(X, y, kernel="linear")
    before = path.stats["null_dim_max"]
    with pytest.warns(ConvergenceWarning, match="null_dim_max ended early"):
        found = path.null_dim_max(time_limit=1e-9)
    assert found <= path.stats["null_dim_max"] == before
    assert not path.stats["null_dim_exact"]
    assert path.null_dim_max() >= before
    assert path.stats["null_dim_exact"]


@pytest.mark.parametrize("mode", ["auto", "qr"])
def test_all_solutions_at_one_C(mode):
    X = np.array([[float(a), float(b)] for a in range(-2, 3) for b in range(-2, 3)] * 2)
    y = np.where(X[:, 0] + 0.1 * np.resize([1, -1], len(X)) > 0, 1, -1)
    path = svm_path(X, y, kernel="linear", factorization=mode)
    C = 0.3
    found = path.solution_set(C)
    assert found.null_space.shape[1] > 3
    low, high = found.extent()
    assert (high - low).max() > 0.5 * C
    rng = np.random.default_rng(0)
    value, here, f = path.objective(C), path.dual_coef(C), path.decision_function(X, C)
    assert found.dual_coef == pytest.approx(here[found.index])
    room = np.concatenate([found.upper - found.dual_coef, found.dual_coef - found.lower])
    rows = np.vstack([found.null_space, -found.null_space])
    corners = [
        linprog(rng.normal(size=rows.shape[1]), rows, np.maximum(room, 0.0), bounds=(None, None)).x for _ in range(6)
    ]
    inside = np.mean(corners, axis=0)
    other = here.copy()
    other[found.index] = found.dual_coef + found.null_space @ inside
    assert np.abs(other - here).max() > 1e-3 * C
    assert (other[found.index] >= low - 1e-9).all()
    assert (other[found.index] <= high + 1e-9).all()
    assert 0.5 * other @ (X @ X.T) @ other - np.abs(other).sum() == pytest.approx(value, rel=1e-10)
    assert X @ (X.T @ other) + path.intercept(C) == pytest.approx(f, abs=1e-9)


def test_a_unique_solution_has_no_null_space():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(30, 3)), np.resize([1, -1], 30)
    found = svm_path(X, y, gamma=0.5).solution_set(1.0)
    assert found.null_space.shape[1] == 0
    assert found.extent()[0] == pytest.approx(found.dual_coef)


# ---- the inputs of the printed algorithm -------------------------------------------------------------------------


def clouds(n=60):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, 1, -1)
    return X, y


def test_options_are_refused_by_name():
    X, y = clouds(20)
    with pytest.raises(TypeError, match="epsilon"):
        PublishedOptions(epsilon=1e-3)
    refused("factorization", svm_path, X, y, published=PublishedOptions(check=False))
    refused("PublishedOptions", svm_path, X, y, factorization="qr", published={"check": False})
    for name, bad in [("rank_tol", 0.0), ("kkt_tol", -1.0), ("back", 1.5), ("most_blocked", 0), ("start_tol", "x")]:
        refused(name, svm_path, X, y, factorization="qr", published=PublishedOptions(**{name: bad}))


def test_interior_solutions_need_highspy(monkeypatch):
    X, y = clouds(20)
    refused("lp='middle' is not known", svm_path, X, y, factorization="qr", published=PublishedOptions(lp="middle"))
    monkeypatch.setattr(highs, "highspy", lambda: None)
    with pytest.raises(InputError, match=r"lp='interior' needs highspy, since scipy's HiGHS ends at a vertex"):
        svm_path(X, y, factorization="qr", published=PublishedOptions(lp="interior"))
    assert svm_path(X, y, factorization="qr", published=PublishedOptions()).ended == "done"


@needs_highspy
@pytest.mark.compiled
@pytest.mark.parametrize("mode", MODES)
@seeds(8)
def test_interior_solutions_lead_to_the_truth_too(mode, seed):
    X, y, kernel = integer_grid(seed, 40, 120)
    path, gap, said = ends_with_the_truth(X, y, mode, kernel | {"published": PublishedOptions(lp="interior")})
    assert gap <= 1e-6
    assert not said
    vertex = svm_path(X, y, factorization=mode, n_threads=1, **kernel)
    C = np.geomspace(1e-3, 1.0, 20) * path.C_range[1]
    assert path.objective(C) == pytest.approx(vertex.objective(C), rel=1e-6)


@needs_highspy
@pytest.mark.compiled
def test_interior_solutions_hold_more_points_on_the_margin(data_set):
    """Monk3, linear: 119 / 74 / 86 are printed."""
    from bench.tables import ong

    X, y = data_set("monk3")
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    found = {
        lp: ong.counted(ong.path(X, y, "linear", "update", published=ong.AS_PRINTED._replace(lp=lp)))
        for lp in ("vertex", "interior")
    }
    assert found["vertex"].elbow < 119 < found["interior"].elbow
    assert (found["interior"].elbow, found["interior"].null) == pytest.approx((144, 137), abs=3)
    assert 45 <= found["interior"].events <= 67  # 64 with HiGHS 1.15, and 49 with 1.8, which has other interior points


def test_increments_follow_the_same_path_and_lose_digits():
    X, y = clouds()
    exact = svm_path(X, y, gamma=0.5, factorization="svd", lambda_max=100.0)
    loose = svm_path(
        X,
        y,
        gamma=0.5,
        factorization="svd",
        lambda_max=100.0,
        published=PublishedOptions(increments=True, refine=False),
    )
    assert loose.stats["n_events"] == pytest.approx(exact.stats["n_events"], abs=6)
    assert exact.stats["max_gap"] < 1e-10
    assert exact.stats["max_gap"] < loose.stats["max_gap"] < 1e-6


def test_without_check_and_refinement_what_the_start_leaves_stays():
    X, y = clouds()
    options = PublishedOptions(start_tol=1e-4, refine=False, check=False, increments=True)
    with pytest.warns(ConvergenceWarning, match="gap"):
        loose = svm_path(X, y, gamma=0.5, factorization="qr", lambda_max=100.0, published=options)
    assert loose.stats["n_kkt"] == 0
    assert loose.ended == "done"
    assert loose.certify(np.geomspace(0.01, 1000.0, 60)).relative_gap > 1e-6
    with quiet(ConvergenceWarning):
        checked = svm_path(
            X, y, gamma=0.5, factorization="qr", lambda_max=100.0, published=options._replace(check=True)
        )
    assert checked.stats["n_kkt"] > 0
    assert checked.stats["max_gap"] < loose.stats["max_gap"]


def test_the_check_can_be_that_of_the_kkt_conditions_alone():
    X, y = clouds()
    options = PublishedOptions(start_tol=1e-6, backup_tol=1e-6, kkt_tol=1e-3, refine=False, increments=True)
    found = {}
    for gap_tol in (1e-8, np.inf):
        with quiet(ConvergenceWarning):
            found[gap_tol] = svm_path(
                X, y, gamma=0.5, factorization="qr", lambda_max=100.0, published=options._replace(gap_tol=gap_tol)
            ).stats
    assert found[1e-8]["n_kkt"] > found[np.inf]["n_kkt"]
    assert found[np.inf]["max_gap"] > found[1e-8]["max_gap"]
    refused("gap_tol", svm_path, X, y, factorization="qr", published=PublishedOptions(gap_tol=0.0))


@pytest.mark.compiled
def test_monk2_starts_with_the_elbow_that_is_printed(data_set):
    X, y = data_set("monk2")
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    path = svm_path(X, y, kernel="linear", lambda_max=1e4, factorization="svd")
    assert (path.stats["elbow_max"], path.stats["null_dim_max"]) == (288, 281)  # printed: 290, 283
    assert svm_path(X, y, kernel="linear", lambda_max=1e4).stats["null_dim_max"] == 283


@pytest.mark.parametrize("mode", MODES)
@seeds(5)
def test_refinement_keeps_a_sum_that_huge_kernel_values_drown(mode, seed):
    rng = np.random.default_rng(seed)
    slope = np.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
    beta = 0.5 * slope + 1e-4 * rng.normal(size=6)
    beta -= beta.mean()
    Z = rng.normal(size=(6, 2))
    Z = Z - np.outer(beta, beta @ Z) / (beta @ beta) + 1e-4 * rng.normal(size=(6, 2))  # so that beta is nearly right
    K = 1e16 * Z @ Z.T
    kernel = SimpleNamespace(n=6, diagonal=np.diag(K), gram=lambda go_on: K)
    tracker = _path_paper.PaperTracker(
        kernel, slope, np.minimum(slope, 0.0), np.maximum(slope, 0.0), equality=True, mode=mode, budget=1e9, solver=None,
        options=PublishedOptions(),
    )  # fmt: skip
    tracker.lam = 1.0
    tracker._take(beta)
    tracker._decompose()
    before = np.abs(tracker.state.resid).max()
    tracker._refine()
    assert abs(tracker.state.beta.sum()) <= 1e-10 * np.abs(tracker.state.beta).sum()
    assert np.abs(tracker.state.resid).max() <= before


@pytest.mark.filterwarnings("ignore:the path's largest relative duality gap is .*e-06:svmcore.ConvergenceWarning")
@pytest.mark.parametrize("mode", MODES)
def test_a_long_last_stretch_keeps_the_digits_of_small_coefficients(mode):
    """Features in thousands: the last event is at C = 1e-6, and from there to C = 1000 lambda times alpha is tiny."""
    rng = np.random.default_rng(0)
    X = 1000.0 * rng.normal(size=(6, 12))
    path = svm_path(X, [-1, 1, 1, -1, 1, -1], kernel="linear", fit_intercept=False, factorization=mode)
    assert path.Cs[-2] < 1e-4
    assert path.certify(path.Cs).relative_gap <= 1e-4
    assert path.certify(np.geomspace(1.0, 1e3, 20)).relative_gap <= 1e-4
    assert path.at(1e3).relative_gap <= 1e-4


@pytest.mark.parametrize("mode", MODES)
def test_a_path_from_a_huge_lambda_ends_where_it_was_asked_to(mode):
    """lambda is 1e60 at the start, where subtracting lambda_min changes nothing."""
    X = np.array([[-2.0], [1.0], [1.0], [-1.0], [0.0], [2.0], [-1.0]])
    with quiet(ConvergenceWarning):
        path = svm_path(X, [-1, 1, -1, 1, 1, 1, -1], kernel="poly", gamma=1e15, degree=4, coef0=1.0, factorization=mode)
    assert 1.0 / path.lambdas[-1] <= 1e3 * (1.0 + 1e-9)
    assert np.isfinite(path.alpha(path.Cs)).all()


@pytest.mark.parametrize("mode", ["auto", "qr"])
def test_a_path_that_is_measured_in_part_says_what_it_saw(mode):
    X, y, kernel = integer_grid(4, 60, 90)
    path = svm_path(X, y, factorization=mode, lambda_min=0.01, **kernel)
    path._track.value[:] += 1e-5 * np.random.default_rng(0).normal(size=path._track.value.size)
    whole = check_path(path)
    assert whole.relative_gap > 1e-6
    some = check_path(path, most=8)
    assert 0.01 * whole.relative_gap < some.relative_gap <= whole.relative_gap * (1.0 + 1e-12)
    none = check_path(path, go_on=lambda: False)
    assert none.relative_gap == none.kkt_violation == -np.inf
    assert none.null_dim == null_dim_of_duplicates(path)  # which the record tells
    few = check_path(path, go_on=lambda: False, sure=True)
    assert 0.0 < few.relative_gap <= whole.relative_gap * (1.0 + 1e-12)
    chosen = stretches(path, 8)
    lam = path._track.knot[:, 0]
    assert chosen.size <= 9
    assert chosen[-1] == lam.size - 1
    assert np.argmax(lam[:-1] / lam[1:]) in chosen


@pytest.mark.parametrize("embedded", [True, False])
def test_products_of_many_places_are_those_of_each(embedded, monkeypatch):
    X, y, _ = integer_grid(5, 60, 90)
    kept = {}
    check = check_path
    monkeypatch.setattr(
        "svmcore.path.driver.check_path", lambda path, store, *a, **k: kept.update(s=store) or check(path)
    )
    path = svm_path(
        X, y, gamma=0.5, lambda_min=1e-4, fit_intercept=not embedded, intercept_scaling=2.0 if embedded else None
    )
    assert kept["s"].whole
    stored, computed = Source(path, kept["s"]), Source(path)
    lam = path._track.knot[:, 0]
    beta, _ = hat(path, lam)
    exact = beta @ kept["s"].rows[:, : len(beta[0])].T
    for source in (stored, computed):
        for part in (slice(None), slice(0, 40), slice(0, None, 7), slice(3, 4)):
            product = source.times(beta[part], lambda: True)
            assert np.abs(product - exact[part]).max(axis=1) == pytest.approx(
                0.0, abs=1e-13 * np.abs(exact[part]).max()
            )
        assert source.times(beta, lambda: False) is None
    index = np.array([3, 0, 5])
    assert stored.block(index) == pytest.approx(computed.block(index), rel=1e-12)
