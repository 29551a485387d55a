"""The path against the problem itself: optimality everywhere, other solvers, symmetries, and its own views."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from repeats import seeds
from scipy import sparse
from warned import quiet

from svmcore._errors import ConvergenceWarning, StoppedError
from svmcore.models.files import load
from svmcore.path.driver import svm_path
from svmcore.path.result import StepCurve
from svmcore.train.certificates import certificate
from svmcore.train.functions import train_svc


def random_problem(seed: int):
    """Tiny and hard: integer grids, few distinct points with both labels, collinear points, unbalanced classes."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(4, 60)), int(rng.integers(1, 6))
    kind = rng.integers(0, 5)
    if kind == 0:
        X = rng.integers(-2, 3, (n, d)).astype(float)
    elif kind == 1:
        X = rng.normal(size=(n, d))
    elif kind == 2:
        X = np.outer(rng.integers(-4, 5, n), rng.normal(size=d))
    elif kind == 3:
        X = rng.normal(size=(max(2, n // 4), d))[rng.integers(0, max(2, n // 4), n)]
    else:
        X = rng.integers(0, 2, (n, d)).astype(float)
    y = np.where(rng.random(n) < rng.choice([0.5, 0.2, 0.8]), 1, -1)
    if rng.random() < 0.4:
        y = np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0, 1, -1)
    y[:2] = 1, -1
    kernel = [
        {"kernel": "linear"},
        {"kernel": "rbf", "gamma": float(10 ** rng.uniform(-4, 1))},
        {"kernel": "poly", "gamma": 1.0, "coef0": 1.0, "degree": 3},
    ][rng.integers(0, 3)]
    weight = rng.integers(1, 4, n).astype(float) if rng.random() < 0.3 else None
    return X, y, kernel, weight, rng


def kernel_scale(X, kernel) -> float:
    if kernel["kernel"] == "rbf":
        return 1.0
    largest = float(np.max(np.sum(X * X, axis=1)))
    return max(1.0, largest) if kernel["kernel"] == "linear" else (largest + 1.0) ** 3


@pytest.mark.usefixtures("tracker")
@given(st.integers(0, 10**9))
def test_optimal_at_every_breakpoint_and_between(seed):
    X, y, kernel, weight, rng = random_problem(seed)
    equality = bool(rng.random() < 0.8)
    path = svm_path(X, y, sample_weight=weight, fit_intercept=equality, lambda_max=1e4, **kernel)
    assert path.ended == "done"
    assert (np.diff(path.lambdas) < 0).all()
    assert (np.diff(path.events["lambda"]) <= 0).all()
    assert path.lambdas[0] == 1e4
    assert path.lambdas[-1] == pytest.approx(1e-3, rel=1e-12)
    picked = path.Cs[rng.integers(0, path.Cs.size, 6)]
    between = 10.0 ** rng.uniform(-4, 3, 10)
    # the kernel's size times rounding limits what float64 can represent, let alone certify
    floor = 1e-14 * kernel_scale(X, kernel) * 1e3
    assert path.certify(np.concatenate([picked, between])).relative_gap <= 1e-8 + floor
    C = float(between[0])
    alpha = path.alpha(C)
    bound = C * (np.ones(len(y)) if weight is None else weight)
    assert (alpha >= 0).all()
    assert (alpha <= bound).all()
    measured = certificate(X, y, alpha, path.intercept(C), C, sample_weight=weight, fit_intercept=equality, **kernel)
    assert measured.relative_gap <= 1e-8 + floor
    assert measured.infeasibility <= 1e-9 * bound.sum()


@pytest.mark.usefixtures("tracker")
@given(st.integers(0, 10**9))
def test_equals_train_svc(seed):
    X, y, kernel, weight, rng = random_problem(seed)
    path = svm_path(X, y, sample_weight=weight, **kernel)
    C = float(10.0 ** rng.uniform(-3, 1))
    with quiet(ConvergenceWarning):  # 1e-9 may lie below the limit of float64
        solution = train_svc(X, y, C, sample_weight=weight, tol=1e-9, max_iter=100_000, **kernel)
    assert path.objective(C) <= solution.objective + 1e-9 * abs(solution.objective)
    if solution.converged and solution.relative_gap < 1e-8:
        assert path.objective(C) == pytest.approx(solution.objective, rel=1e-7)
        assert path.at(C).objective == pytest.approx(path.objective(C), rel=1e-7)


@pytest.mark.usefixtures("tracker")
@given(st.integers(0, 10**9))
def test_order_and_names_of_classes_do_not_matter(seed):
    X, y, kernel, weight, rng = random_problem(seed)
    path = svm_path(X, y, sample_weight=weight, **kernel)
    order = rng.permutation(len(y))
    shuffled = svm_path(X[order], y[order], sample_weight=None if weight is None else weight[order], **kernel)
    flipped = svm_path(X, -y, sample_weight=weight, **kernel)
    top = min(path.lambdas[0], shuffled.lambdas[0], flipped.lambdas[0])
    C = 10.0 ** rng.uniform(-np.log10(top), 3, 4)
    # rounding of K beta in float64 is what a cubic kernel's values of 1e6 leave
    tolerance = {"rel": 1e-7 + 1e-13 * kernel_scale(X, kernel), "abs": 1e-7}
    assert shuffled.objective(C) == pytest.approx(path.objective(C), **tolerance)
    assert flipped.objective(C) == pytest.approx(path.objective(C), **tolerance)


def two_clouds(n=80, seed=0, flips=0.1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] > 0.3, 1, -1)
    y[rng.random(n) < flips] *= -1
    return X, y


def test_every_C_below_the_first_breakpoint_is_answered_too():
    X, y = two_clouds()
    path = svm_path(X, y, gamma=0.5)
    assert path.C_range[0] == 0.0
    low = path.Cs[0] * np.array([0.9, 0.5, 1e-3, 1e-6])
    assert path.certify(low).relative_gap <= 1e-9
    assert path.objective(low) == pytest.approx([path.at(C).objective for C in low], rel=1e-10)


def test_lambda_max_below_the_first_event_starts_in_the_middle():
    X, y = two_clouds()
    whole, part = svm_path(X, y, gamma=0.5), svm_path(X, y, gamma=0.5, lambda_max=1.0, lambda_min=0.01)
    C = np.geomspace(1.0, 100.0, 9)
    assert part.C_range == pytest.approx((1.0, 100.0))
    assert part.objective(C) == pytest.approx(whole.objective(C), rel=1e-9)
    refused("outside the path", part.alpha, 0.5)
    refused("outside the path", part.alpha, 101.0)


def test_views_agree_with_each_other():
    X, y = two_clouds()
    path = svm_path(X, y, gamma=0.5)
    Cs = np.geomspace(path.Cs[0], path.Cs[-1], 7)
    Z = np.random.default_rng(1).normal(size=(11, 3))
    F = path.decision_function(Z, Cs)
    assert F.shape == (7, 11)
    for row, C in zip(F, Cs, strict=True):
        solution = path.at(float(C))
        assert row == pytest.approx(solution.decision_function(Z), rel=1e-9, abs=1e-9)
        assert path.decision_function(Z, float(C)) == pytest.approx(row)
        assert (path.predict(Z, float(C)) == solution.predict(Z)).all()
        assert path.intercept(float(C)) == pytest.approx(solution.intercept)
        assert solution.relative_gap <= 1e-9
    assert path.dual_coef(Cs) == pytest.approx(path.alpha(Cs) * y)
    counts = path.support_counts()
    assert (counts["E"] + counts["L"] + counts["R"] == len(y)).all()
    for k in range(0, counts.size - 1, 5):  # just after breakpoint k
        C = float(np.sqrt(path.Cs[k] * path.Cs[k + 1]))
        alpha = path.alpha(C)
        assert (alpha == C).sum() == counts["L"][k]
        assert (alpha == 0).sum() == counts["R"][k]
    table = path.table()
    assert table["objective"] == pytest.approx([path.objective(float(C)) for C in path.Cs])
    assert set(path.table("events")) == {"lambda", "index", "from", "to", "cause"}


@pytest.mark.parametrize("equality", [True, False])
def test_error_curve_is_exact(equality):
    X, y = two_clouds(60)
    rng = np.random.default_rng(2)
    Z = rng.normal(size=(40, 3))
    z = np.where(Z[:, 0] > 0, 1, -1)
    path = svm_path(X, y, gamma=0.5, fit_intercept=equality, lambda_min=1e-2)
    curve = path.error_curve(Z, z)
    for C in np.exp(rng.uniform(np.log(path.Cs[0]), np.log(path.Cs[-1]), 300)):
        if np.min(np.abs(curve.breakpoints / C - 1)) > 1e-9:
            assert curve(C) == pytest.approx(np.mean(path.predict(Z, float(C)) != z))
    around = curve.breakpoints[::3]
    for side in (1 - 1e-7, 1 + 1e-7):
        got = curve(np.clip(around * side, path.Cs[0], path.Cs[-1]))
        want = [np.mean(path.predict(Z, float(np.clip(C * side, path.Cs[0], path.Cs[-1]))) != z) for C in around]
        assert got == pytest.approx(want)
    assert curve.minimum == curve(curve.best_C) == curve.values.min()
    assert isinstance(path.error_curve(), StepCurve)


@given(st.integers(0, 10**9))
def test_error_curve_counts_weights_over_the_whole_range(seed):
    X, y, kernel, weight, rng = random_problem(seed)
    weight = rng.integers(0, 4, len(y)).astype(float)
    weight[:2] = 1.0
    path = svm_path(X, y, sample_weight=weight, **kernel)
    curve = path.error_curve()
    assert (curve.C_min, curve.C_max) == path.C_range == (path.C_min, path.C_max)
    Z, z = rng.normal(size=(9, X.shape[1])), rng.choice([-1, 1], 9)
    share = rng.uniform(size=9) * (np.arange(9) > 2)
    other = path.error_curve(Z, z, share)
    low = 1e-6 if path.C_min == 0.0 else path.C_min
    for C in np.geomspace(low, path.C_max, 12).clip(low, path.C_max).tolist():
        for found, A, b, w in ((curve, X, y, weight), (other, Z, z, share)):
            f = path.decision_function(A, C)
            if np.min(np.abs(f)) > 1e-6 * (1.0 + np.max(np.abs(f))):
                assert found(C) == pytest.approx(np.average((f > 0) != (b > 0), weights=w), abs=1e-12)


def test_error_below_the_first_event_changes_with_the_intercept():
    X, y = two_clouds()
    heavy = np.append(np.flatnonzero(y > 0)[:10], np.flatnonzero(y < 0))
    path = svm_path(X[heavy], y[heavy], gamma=0.5)
    curve = path.error_curve()
    assert curve.C_min == 0.0
    assert curve.breakpoints[0] < path.Cs[0]
    for C in np.append(0.999 * curve.breakpoints[:3], 1.001 * curve.breakpoints[:3]):
        assert curve(C) == pytest.approx(np.mean(path.predict(X[heavy], float(C)) != y[heavy]))
    assert curve(1e-9) == pytest.approx(10 / heavy.size)  # the majority's class for all


def test_error_curve_refuses_weights_that_are_none():
    X, y = two_clouds(20)
    path = svm_path(X, y)
    refused("belongs to other data", path.error_curve, sample_weight=np.ones(20))
    refused(r"shape \(3,\) for 20 rows", path.error_curve, X, y, np.ones(3))
    refused("not all zero", path.error_curve, X, y, np.zeros(20))


def test_duplicates_are_merged_and_share_their_alpha():
    X, y = two_clouds(40)
    X2, y2 = np.vstack([X, X[:10], X[:10]]), np.concatenate([y, y[:10], -y[:10]])
    path = svm_path(X2, y2, gamma=0.5)
    assert path._data.groups.first.size == 50
    weight = np.concatenate([np.full(10, 2.0), np.ones(40)])
    same = svm_path(np.vstack([X, X[:10]]), np.concatenate([y, -y[:10]]), gamma=0.5, sample_weight=weight)
    C = np.geomspace(1e-2, 1e2, 5)
    assert path.objective(C) == pytest.approx(same.objective(C), rel=1e-9)
    alpha = path.alpha(3.0)
    assert alpha[:10] == pytest.approx(alpha[40:50])
    assert path.certify().relative_gap <= 1e-9


@pytest.mark.parametrize("where", ["precomputed", "callable", "sparse", "laplacian", "embedded"])
def test_every_way_to_give_a_kernel(where):
    X, y = two_clouds(50)

    def rbf(A, B):
        return np.exp(-0.5 * ((A[:, None, :] - B[None, :, :]) ** 2).sum(axis=2))

    C = np.geomspace(1e-2, 1e2, 5)
    plain = svm_path(X, y, gamma=0.5)
    if where == "precomputed":
        path = svm_path(rbf(X, X), y, kernel="precomputed")
        assert path.decision_function(rbf(X[:4], X), 1.0) == pytest.approx(plain.decision_function(X[:4], 1.0))
    elif where == "callable":
        path = svm_path(X, y, kernel=rbf)
        assert path.decision_function(X[:4], 1.0) == pytest.approx(plain.decision_function(X[:4], 1.0))
    elif where == "sparse":
        path = svm_path(sparse.csr_matrix(X), y, gamma=0.5)
        assert path.decision_function(X[:4], 1.0) == pytest.approx(plain.decision_function(X[:4], 1.0))
    elif where == "laplacian":
        path = plain = svm_path(X, y, kernel="laplacian", gamma=0.5)
    else:
        path = svm_path(X, y, gamma=0.5, fit_intercept=False, intercept_scaling=2.0)
        plain = svm_path(rbf(X, X) + 4.0, y, kernel="precomputed", fit_intercept=False)
        assert path.decision_function(X[:4], 1.0) == pytest.approx(path.at(1.0).decision_function(X[:4]))
    assert path.objective(C) == pytest.approx(plain.objective(C), rel=1e-9)
    assert path.certify(C).relative_gap <= 1e-9


@pytest.mark.compiled
def test_an_elbow_beyond_the_row_budget_still_arrives():
    X, y = two_clouds(500)
    path = svm_path(X, y, gamma=30.0, cache_mb=0.5, lambda_min=0.1)
    assert path.stats["elbow_max"] > 300
    assert path.certify().relative_gap <= 1e-8


def test_class_weight_and_zero_weight():
    X, y = two_clouds(50)
    weight = np.ones(50)
    weight[3:9] = 0.0
    path = svm_path(X, y, gamma=0.5, class_weight="balanced", sample_weight=weight)
    solution = train_svc(X, y, 2.0, gamma=0.5, class_weight="balanced", sample_weight=weight, tol=1e-8)
    assert path.objective(2.0) == pytest.approx(solution.objective, rel=1e-9)
    assert (path.alpha(2.0)[3:9] == 0).all()


@pytest.mark.parametrize("stop", ["max_events", "time_limit", "callback"])
def test_a_cut_path_is_valid_down_to_where_it_came(stop, monkeypatch):
    monkeypatch.setattr("svmcore._control.GRACE", 600.0)  # on a slow machine, too, there is a beginning
    X, y = two_clouds(120)
    whole = svm_path(X, y, gamma=0.5)
    seen = []

    def callback(report):
        seen.append(report)
        return report.n_events > 0

    options = {"max_events": {"max_events": 40}, "time_limit": {"time_limit": 0.0}, "callback": {"callback": callback}}
    with pytest.warns(ConvergenceWarning, match="ended early"):
        path = svm_path(X, y, gamma=0.5, **options[stop])
    assert path.ended == stop
    if stop == "max_events":
        assert path.stats["n_events"] == 40
        with pytest.warns(ConvergenceWarning, match="max_events"):  # far enough for windows to be cut
            assert svm_path(*two_clouds(800), gamma=0.5, max_events=900).stats["n_events"] == 900
    if stop == "callback":
        assert 0.0 <= seen[-1].done <= 1.0
    C = np.geomspace(path.Cs[0], path.Cs[-1], 5)
    assert path.objective(C) == pytest.approx(whole.objective(C), rel=1e-9)


@pytest.mark.parametrize("mode", ["auto", "svd", "qr"])
@pytest.mark.parametrize("where", ["kernel", "start"])
def test_a_path_that_has_not_begun_is_an_error(where, mode, monkeypatch):
    X, y = two_clouds(60)
    monkeypatch.setattr("svmcore._control.GRACE", 0.0)
    with pytest.raises(StoppedError, match=r"path: time_limit after .* larger time_limit"):
        svm_path(X, y, gamma=0.5, time_limit=0.0, cache_mb=None if where == "kernel" else 1e-3, factorization=mode)


@pytest.mark.parametrize("stop", ["callback", "time_limit"])
def test_a_stopped_certificate_is_about_the_values_reached(stop, monkeypatch):
    monkeypatch.setattr("svmcore._control.GRACE", 600.0)  # on a slow machine, too, there is a beginning
    X, y = two_clouds(60)
    path = svm_path(X, y, gamma=0.5)
    options = {"callback": lambda r: r.done > 0.1} if stop == "callback" else {"time_limit": 0.0}
    with pytest.warns(
        ConvergenceWarning, match=rf"certify ended early \({stop}\): .* about {5 if stop == 'callback' else 1} of 20"
    ):
        part = path.certify(**options)
    assert part.n_values == (5 if stop == "callback" else 1)
    assert 0.0 <= part.relative_gap <= path.certify().relative_gap + 1e-16
    assert path.certify().n_values == 20
    refused("Cs is empty", path.certify, [])


@given(st.integers(0, 10**9))
def test_certificates_are_those_of_single_solutions(seed):
    X, y, kernel, weight, rng = random_problem(seed)
    path = svm_path(X, y, sample_weight=weight, fit_intercept=bool(rng.random() < 0.7), **kernel)
    C = 10.0 ** rng.uniform(-2, 2, 7).clip(np.log10(max(path.C_min, 1e-3)), 2)
    alone = [path.at(float(c)) for c in C]
    floor = 1e-14 * kernel_scale(X, kernel) * 1e3
    together = path.certify(C)
    assert together.relative_gap == pytest.approx(max(s.relative_gap for s in alone), rel=1e-3, abs=1e-11 + floor)
    assert together.kkt_violation == pytest.approx(
        max(s.kkt_violation for s in alone), rel=1e-3, abs=1e-7 + 1e4 * floor
    )


@pytest.mark.parametrize("labels", [["no", "yes"], [0, 1]])
def test_save_and_load(tmp_path, labels):
    X, y = two_clouds(50)
    named = np.array(labels)[(y > 0).astype(int)]
    for data in (X, sparse.csr_matrix(X)):
        path = svm_path(data, named, gamma=0.5)
        path.save(tmp_path / "path.npz")
        again = load(tmp_path / "path.npz")
        assert again.alpha(2.5).tolist() == path.alpha(2.5).tolist()
        assert again.predict(X, 2.5).tolist() == path.predict(X, 2.5).tolist()
        assert again.stats["n_events"] == path.stats["n_events"]
        assert again.error_curve().values.tolist() == path.error_curve().values.tolist()


def test_refusals_say_what_and_why():
    X, y = two_clouds(20)
    refused("piecewise linear", svm_path, X, y, loss="squared_hinge")
    refused("lambda_min", svm_path, X, y, lambda_min=0.0)
    refused("lambda_max", svm_path, X, y, lambda_max=1e-4, lambda_min=1e-3)
    refused("factorization", svm_path, X, y, factorization="lu")
    path = svm_path(X, y)
    refused("3", path.decision_function, X[:, :2], 1.0)
    refused("label", path.error_curve, X, np.full(20, 7))


@pytest.mark.parametrize("n_same", [0, 5])
def test_merge_tol_snaps_near_duplicates(n_same):
    X, y = two_clouds(40)
    rng = np.random.default_rng(3)
    near = X[:20] + 1e-9 * rng.normal(size=(20, 3))
    X2, y2 = np.vstack([X, near, X[:n_same]]), np.concatenate([y, y[:20], y[:n_same]])
    path = svm_path(X2, y2, gamma=0.5, merge_tol=1e-5)
    assert path._data.groups.first.size <= 42  # one of a pair may fall on the other side of a grid line
    exact = svm_path(X2, y2, gamma=0.5)
    C = np.geomspace(1e-2, 1e2, 5)
    assert path.objective(C) == pytest.approx(exact.objective(C), rel=1e-5)


def test_trivial_problems():
    two = svm_path([[0.0], [2.0]], [0, 1], kernel="linear")
    assert two.alpha(10.0) == pytest.approx([0.5, 0.5])
    same = svm_path([[1.0], [1.0]], [0, 1], kernel="linear")
    assert same.alpha(2.0) == pytest.approx([2.0, 2.0])
    zero = svm_path(np.zeros((5, 2)), [0, 0, 1, 1, 1], kernel="linear")
    assert zero.certify().relative_gap <= 1e-12
    assert zero.alpha(1.0).sum() == pytest.approx(4.0)


@pytest.mark.compiled
@pytest.mark.parametrize("mode", ["svd", "qr", "update"])
@seeds(25)
def test_published_algorithm_agrees_with_the_fast_tracker(mode, seed):
    X, y, kernel, weight, rng = random_problem(seed)
    fast = svm_path(X, y, sample_weight=weight, lambda_max=1e4, **kernel)
    published = svm_path(X, y, sample_weight=weight, lambda_max=1e4, factorization=mode, **kernel)
    assert published.ended == "done"
    C = 10.0 ** rng.uniform(-4, 3, 8)
    assert published.certify(C).relative_gap <= 1e-6  # its own loop has no repair beyond BR
    assert published.objective(C) == pytest.approx(fast.objective(C), rel=2e-6)
    # the decision function may differ along flat directions of the objective: by at most sqrt(2 gap) in the RKHS norm
    F, G = published.decision_function(X, C), fast.decision_function(X, C)
    size = np.sqrt(kernel_scale(X, kernel) * 2e-6 * (1.0 + np.abs(fast.objective(C))))[:, None]
    centred = (F - F.mean(axis=1, keepdims=True)) - (G - G.mean(axis=1, keepdims=True))
    assert (np.abs(centred) <= 4 * size + 1e-6).all()


def test_published_algorithm_uses_programs_only_where_the_system_is_singular():
    X, y = two_clouds(60)
    path = svm_path(X, y, gamma=0.5, factorization="update")
    assert path.stats["null_dim_max"] == 0
    assert path.stats["n_updates"] > 10 * path.stats["n_decompositions"]
    grid = np.array([[a, b] for a in range(5) for b in range(5)], dtype=float)
    tied = svm_path(grid, (grid.sum(axis=1) > 4).astype(int), kernel="linear", factorization="svd")
    assert tied.stats["null_dim_max"] > 0
    assert tied.stats["n_lp"] > 0
    assert tied.stats["n_kkt"] == 0  # a fall of lambda by 1,000 leaves nothing to repair
    assert tied.certify().relative_gap <= 1e-8


@pytest.mark.parametrize("both", [False, True], ids=["grids", "points with both labels"])
def test_linear_programs_lead_to_the_same_path_where_many_points_tie(both):
    programs = 0
    for seed in range(12):
        rng = np.random.default_rng([5, seed])
        n, d = int(rng.integers(10, 60)), int(rng.integers(1, 5))
        X, y = rng.integers(-2, 3, (n, d)).astype(float), np.where(rng.random(n) < 0.5, 1, -1)
        if both:
            X, y = np.vstack([X, X[: n // 2]]), np.concatenate([y, -y[: n // 2]])
        y[:2] = 1, -1
        fast = svm_path(X, y, kernel="linear", lambda_min=0.01)
        published = svm_path(X, y, kernel="linear", lambda_min=0.01, factorization="svd")
        programs += published.stats["n_lp"]
        C = np.geomspace(0.01, 100.0, 20)
        assert fast.objective(C) == pytest.approx(published.objective(C), rel=1e-9)
        assert fast.certify(C).relative_gap <= 1e-9
        # residuals on the elbow are zero at every lambda, so a point that depends on it stays where it is: see path.md
        assert fast.stats["n_exchange"] == 0
    assert programs > 30
