"""`cv_path` against brute force: a machine per fold and C, trained to a tight tolerance, on both sides of breakpoints."""

from __future__ import annotations

import signal

import numpy as np
import pytest
import strategies
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kept import parts_of
from refusals import refused
from scipy import sparse
from warned import quiet

import svmcore

pytestmark = pytest.mark.compiled  # whole paths and fits: minutes without

TIGHT = 1e-9
NEAR = 1e-5  # decision values nearer to zero than this are undecided


def noisy(n: int = 90, d: int = 3, seed: int = 0, share: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    f = X[:, 0] + np.abs(X[:, -1]) + 0.8 * rng.normal(size=n)
    return X, np.where(f > np.quantile(f, 1.0 - share), "yes", "no")


def fit(X, y, fold, C, cv, weights=None, **problem):
    """The machine of a fold, and whether its intercept is the only one."""
    if cv.best_gamma is not None:
        problem["gamma"] = cv.best_gamma
    own = None if weights is None else weights[fold.train]
    precomputed = problem.get("kernel") == "precomputed"
    part = X[np.ix_(fold.train, fold.train)] if precomputed else X[fold.train]
    with quiet(svmcore.ConvergenceWarning):
        machine = svmcore.train_svc(part, y[fold.train], C, sample_weight=own, tol=TIGHT, **problem)
    own = np.ones(len(fold.train)) if own is None else own
    limit = C * own * strategies.class_factors(strategies.Case(part, y[fold.train], problem), own)
    free = (machine.alpha > 1e-7 * limit) & (machine.alpha < (1 - 1e-7) * limit)
    unique = bool(free.any()) or problem.get("fit_intercept") is False
    values = machine.decision_function(X[np.ix_(fold.test, fold.train)] if precomputed else X[fold.test])
    return machine, values, unique


def near_breakpoints(cv, rng, most: int = 6) -> np.ndarray:
    """C on both sides of some breakpoints, and some at random."""
    some = rng.choice(cv.breakpoints, min(most, len(cv.breakpoints)), replace=False) if len(cv.breakpoints) else []
    low, high = np.log(1e-3), np.log(cv.C_range[1])
    values = np.concatenate(
        [*(np.array([b * (1 - 1e-4), b * (1 + 1e-4)]) for b in some), np.exp(rng.uniform(low, high, 6))]
    )
    return values[(values > 0) & (values < cv.C_range[1])]


def check(X, y, cv, weights=None, score_weights=None, most=6, **problem) -> int:
    """Compare the curve with brute force; returns how many values of C were decided."""
    rng = np.random.default_rng(1)
    decided = 0
    for C in near_breakpoints(cv, rng, most):
        found = cv.fold_errors(C)
        for k, fold in enumerate(cv.folds):
            machine, values, unique = fit(X, y, fold, C, cv, weights, **problem)
            if not unique:
                continue
            own = np.ones(len(fold.test)) if score_weights is None else score_weights[fold.test]
            wrong = (np.where(values > 0, machine.classes[1], machine.classes[0]) != y[fold.test]) @ own / own.sum()
            doubt = (np.abs(values) < NEAR) @ own / own.sum()
            assert abs(found[k] - wrong) <= doubt + 1e-12, (C, k)
            decided += doubt == 0
    return decided


@pytest.mark.parametrize(
    "problem",
    [
        {"gamma": 0.3},
        {"gamma": "scale"},
        {"kernel": "linear"},
        {"kernel": "poly", "degree": 2, "coef0": 1.0},
        {"kernel": "laplacian", "gamma": 0.4},
        {"gamma": 0.3, "fit_intercept": False, "intercept_scaling": 1.5},
        {"gamma": 0.3, "class_weight": "balanced"},
        {"gamma": 0.3, "class_weight": {"yes": 3.0}},
        {"standardize": True},
    ],
    ids=str,
)
def test_curve_is_that_of_brute_force(problem):
    X, y = noisy(share=0.3)
    X = X * [1.0, 5.0, 0.2] if "standardize" in problem else X
    cv = svmcore.cv_path(X, y, cv=3, C_max=300.0, **problem)
    assert check(X, y, cv, **problem) > 20
    assert cv.ended == "done"
    assert cv.error(cv.best_C) == cv.best_error == cv.values.min()


def test_kernel_matrix_sparse_data_and_functions_give_the_same():
    X, y = noisy()
    plain = svmcore.cv_path(X, y, kernel="linear", C_max=10.0)
    others = [
        svmcore.cv_path(X @ X.T, y, kernel="precomputed", C_max=10.0),
        svmcore.cv_path(sparse.csr_matrix(X), y, kernel="linear", C_max=10.0),
        svmcore.cv_path(X, y, kernel=lambda A, B: A @ B.T, C_max=10.0),
    ]
    C = np.geomspace(1e-3, 10.0, 50)
    for other in others:
        np.testing.assert_allclose(other.fold_errors(C), plain.fold_errors(C))
        np.testing.assert_allclose(other.decision_scores(1.0), plain.decision_scores(1.0), rtol=1e-6, atol=1e-8)
        assert other.best_gamma is None


def test_weights_count_in_training_and_in_the_score_by_two_switches():
    X, y = noisy()
    weights = np.random.default_rng(3).integers(0, 4, len(y)).astype(float)
    for train, score in ((True, True), (True, False), (False, True)):
        cv = svmcore.cv_path(
            X, y, cv=3, gamma=0.3, C_max=100.0, sample_weight=weights, weight_training=train, weight_score=score
        )
        assert check(X, y, cv, weights if train else None, weights if score else None) > 15


def test_balanced_error_and_costs():
    X, y = noisy(share=0.25)
    plain = svmcore.cv_path(X, y, gamma=0.3, C_max=100.0)
    balanced = svmcore.cv_path(X, y, gamma=0.3, C_max=100.0, score="balanced_error")
    dear = svmcore.cv_path(X, y, gamma=0.3, C_max=100.0, costs={"yes": 5.0, "no": 1.0})
    table = svmcore.cv_path(X, y, gamma=0.3, C_max=100.0, costs=[[0.0, 1.0], [5.0, 0.0]])
    for C in (0.01, 0.3, 2.0, 30.0):
        guess = plain.decision_scores(C) > 0
        for k, fold in enumerate(plain.folds):
            real = y[fold.test] == "yes"
            missed, alarm = ~guess[fold.test] & real, guess[fold.test] & ~real
            rate = 0.5 * (missed.sum() / real.sum() + alarm.sum() / (~real).sum())
            assert balanced.fold_errors(C)[k] == pytest.approx(rate, abs=1e-12)
            assert dear.fold_errors(C)[k] == pytest.approx((5 * missed + alarm).mean(), abs=1e-12)
    np.testing.assert_array_equal(dear.values, table.values)


@pytest.mark.parametrize("weighted", [False, True])
def test_hinge_is_linear_between_breakpoints(weighted):
    X, y = noisy(share=0.3)
    weights = np.random.default_rng(3).integers(1, 4, len(y)).astype(float) if weighted else None
    cv = svmcore.cv_path(X, y, gamma=0.3, C_max=100.0, score="hinge", sample_weight=weights, weight_training=False)
    inner = cv.breakpoints
    inner = inner[inner > 1e-3]
    between = np.sqrt(inner[1:] * inner[:-1])
    for C in [*between[:: max(1, len(between) // 12)], 1e-4, 0.01, 99.0]:
        values = cv.decision_scores(C)
        loss = np.maximum(0.0, 1.0 - np.where(y == "yes", 1.0, -1.0) * values)
        for k, fold in enumerate(cv.folds):
            own = np.ones(len(fold.test)) if weights is None else weights[fold.test]
            assert cv.fold_errors(C)[k] == pytest.approx(own @ loss[fold.test] / own.sum(), rel=1e-7)
    grid = np.geomspace(1e-4, 100.0, 5000)
    assert cv.error(grid).min() >= cv.best_error
    assert cv.error(cv.best_C) == pytest.approx(cv.best_error, rel=1e-12)
    within = cv.best_error + cv.standard_error(cv.best_C)
    assert cv.error(cv.one_se_C) <= within * (1 + 1e-5)
    assert (cv.error(grid[grid < cv.one_se_C * (1 - 1e-5)]) > within).all()
    assert cv.error(cv.smallest_C) <= within * (1 + 1e-9)


def auc(values: np.ndarray, real: np.ndarray, weights: np.ndarray) -> float:
    a, b = values[real][:, None], values[~real][None, :]
    w = weights[real][:, None] * weights[~real][None, :]
    return float((((a > b) + 0.5 * (a == b)) * w).sum() / w.sum())


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_auc_is_a_step_function(kernel):
    X, y = noisy(share=0.3)
    weights = np.random.default_rng(3).integers(1, 4, len(y)).astype(float)
    cv = svmcore.cv_path(X, y, kernel=kernel, C_max=100.0, score="auc", sample_weight=weights)
    near = cv.breakpoints[:: max(1, len(cv.breakpoints) // 15)]
    for C in [*(near * (1 - 1e-7)), *(near * (1 + 1e-7)), 1e-4, 0.5, 99.0]:
        values = cv.decision_scores(C)
        for k, fold in enumerate(cv.folds):
            truth = auc(values[fold.test], y[fold.test] == "yes", weights[fold.test])
            assert cv.fold_errors(C)[k] == pytest.approx(1.0 - truth, abs=1e-12)


def test_auc_counts_equal_rows_as_ties():
    X, y = noisy(80)
    X[::2] = X[1::2]
    y[::2], y[1::2] = "yes", "no"
    X[0] += 1.0
    cv = svmcore.cv_path(
        X, y, gamma=0.5, C_max=10.0, score="auc", cv=[(np.r_[0:40], np.r_[40:80]), (np.r_[40:80], np.r_[0:40])]
    )
    assert set(cv.fold_errors([0.1, 1.0, 9.0])[0]) == {0.5}


def test_leave_one_out_is_that_of_the_other_function():
    X, y = noisy(50)
    cv, hinge = (svmcore.cv_path(X, y, cv="loo", gamma=0.3, C_max=50.0, score=score) for score in ("error", "hinge"))
    for C in (0.02, 0.5, 3.0, 40.0):
        other = svmcore.leave_one_out(X, y, C, gamma=0.3, tol=1e-8)
        loss = np.maximum(0.0, 1.0 - np.where(y == "yes", 1.0, -1.0) * other.decision_values)
        assert hinge.error(C) == pytest.approx(loss.mean(), rel=1e-4)
        np.testing.assert_allclose(cv.decision_scores(C), other.decision_values, atol=1e-5)
        assert cv.error(C) == pytest.approx(other.error)
    assert len(cv.folds) == 50
    assert (
        sum(m.strands[0].path is None or m.strands[0].until < np.inf for m in cv._members) > 5
    )  # not all went all the way


def test_leave_one_out_balanced_counts_the_classes_alike():
    X, y = noisy(60, share=0.2)
    cv = svmcore.cv_path(X, y, cv="loo", gamma=0.3, C_max=50.0, score="balanced_error")
    guess = np.where(cv.decision_scores(1.0) > 0, "yes", "no")
    rates = [np.mean(guess[y == label] != label) for label in ("no", "yes")]
    assert cv.error(1.0) == pytest.approx(np.mean(rates))


@pytest.mark.parametrize("share", [0.5, 0.3])
def test_choices_keep_their_promises(share):
    X, y = noisy(150, share=share)
    cv = svmcore.cv_path(X, y, gamma=0.5, C_max=1000.0)
    low, high = cv.best_interval
    assert low < cv.best_C < high
    assert cv.best_C == pytest.approx(np.sqrt(low * high))
    grid = np.geomspace(1e-3, 999.0, 4000)
    errors = cv.error(grid)
    assert errors.min() >= cv.best_error
    assert cv.error(np.geomspace(low * 1.0000001, high * 0.9999999, 9)) == pytest.approx(cv.best_error)
    within = cv.best_error + cv.standard_error(cv.best_C) + 1e-12
    assert cv.error(cv.one_se_C) <= within
    before = cv.breakpoints[cv.breakpoints < cv.one_se_C]  # the first stretch, or one that ends above it
    assert (cv.error(before * (1 - 1e-9)) > within).all()
    assert cv.error(cv.smallest_C) <= within
    assert cv.n_support(cv.smallest_C) <= cv.n_support(grid[errors <= within]).min()
    spread = cv.fold_errors(grid)
    np.testing.assert_allclose(cv.standard_error(grid), spread.std(axis=0, ddof=1) / np.sqrt(5))
    np.testing.assert_allclose(errors, spread.mean(axis=0))


def test_support_vectors_are_counted():
    X, y = noisy()
    cv = svmcore.cv_path(X, y, cv=3, gamma=0.3, C_max=100.0)
    for C in (0.05, 0.9, 33.0):
        counts = [len(svmcore.train_svc(X[f.train], y[f.train], C, gamma=0.3, tol=TIGHT).support) for f in cv.folds]
        assert cv.n_support(C) == pytest.approx(np.mean(counts), abs=0.34)


def test_refit_is_the_machine_of_all_rows():
    X, y = noisy()
    cv = svmcore.cv_path(X, y, class_weight={"yes": 2.0}, standardize=True)
    machine = cv.refit(tol=1e-6)
    other = svmcore.train_svc(X, y, cv.best_C, class_weight={"yes": 2.0}, standardize=True, tol=1e-6)
    np.testing.assert_allclose(machine.decision_function(X), other.decision_function(X), atol=1e-4)
    assert cv.refit(2.0).C == 2.0


def test_equal_costs_per_row_are_another_alignment():
    X, y = noisy(60)
    same = svmcore.cv_path(X, y, gamma=0.3, C_max=100.0, cv=3)
    row = svmcore.cv_path(X, y, gamma=0.3, C_max=100.0, cv=3, align="C*n")
    C = np.geomspace(1e-2, 60.0, 100)
    np.testing.assert_array_equal(row.fold_errors(C), same.fold_errors(1.5 * C))
    np.testing.assert_allclose(row.decision_scores(2.0), same.decision_scores(3.0), rtol=1e-9)


# ---- gamma -----------------------------------------------------------------------------------------------------------


def test_every_gamma_of_a_list_has_the_curve_that_it_has_alone():
    X, y = noisy()
    gammas = [2.0, "scale", 0.05]
    plain = {"C_max": 100.0, "fit_intercept": False}  # an intercept without free vectors is not unique
    cv = svmcore.cv_path(X, y, gamma=gammas, n_jobs=2, **plain)
    assert list(cv.gammas) == sorted(cv.gammas)
    C = np.geomspace(1e-3, 100.0, 200)
    for gamma in cv.gammas:
        alone = svmcore.cv_path(X, y, gamma=gamma, **plain)
        np.testing.assert_array_equal(cv.fold_errors(C, gamma), alone.fold_errors(C))
        assert alone.best_error >= cv.best_error
        if gamma == cv.best_gamma:
            assert alone.best_C == pytest.approx(cv.best_C, rel=1e-6)
            np.testing.assert_allclose(cv.decision_scores(1.0), alone.decision_scores(1.0), atol=1e-7)
    assert cv.best_error == cv.gamma_errors.min()
    assert cv.refit().gamma == cv.best_gamma


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_search_finds_what_a_fine_list_finds(kernel):
    X, y = noisy(80, d=2)
    X *= 1e-3  # gamma="scale" is no help to a search
    found = svmcore.cv_path(X, y, kernel=kernel, gamma="search", C_max=100.0)
    centre = 1e6 if kernel == "rbf" else 1e3
    fine = svmcore.cv_path(X, y, kernel=kernel, gamma=list(centre * np.geomspace(1e-3, 1e3, 16)), C_max=100.0)
    assert found.best_error <= fine.best_error + fine.standard_error(fine.best_C)
    near = found.gammas[np.abs(np.log(found.gammas / found.best_gamma)) < 1.0]
    assert len(near) >= 3  # it looked closely
    assert len(found.gammas) < 20


def test_shared_distances_are_exact():
    from svmcore.cv.grams import squared_distances

    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 3)) + 1e4  # far from the origin
    X[350:] = X[:350] * (1.0 + 1e-9)
    truth = np.square(X[:, None] - X[None]).sum(axis=2)
    for form in (X, sparse.csr_matrix(X)):
        found = squared_distances(form)
        np.testing.assert_allclose(found, truth, rtol=1e-9 if form is X else 1e-3)
        np.testing.assert_array_equal(found, found.T)
        assert (np.diag(found) == 0.0).all()


def test_squared_distances_have_the_same_bits_on_any_number_of_threads():
    from svmcore.base.threads import one_blas_thread
    from svmcore.cv.grams import squared_distances

    X = np.random.default_rng(0).normal(size=(1500, 200))
    outside = squared_distances(X)
    with one_blas_thread:
        assert np.array_equal(squared_distances(X), outside)


def test_memory_for_a_shared_kernel_is_no_condition(monkeypatch):
    from svmcore.cv import grams

    X, y = noisy()
    shared = svmcore.cv_path(X, y, gamma=[0.1, 1.0], fit_intercept=False)
    monkeypatch.setattr(grams, "_LIMIT", 0.0)
    alone = svmcore.cv_path(X, y, gamma=[0.1, 1.0], fit_intercept=False)
    np.testing.assert_allclose(shared.breakpoints, alone.breakpoints, rtol=1e-6)
    np.testing.assert_array_equal(shared.values, alone.values)


# ---- files and pictures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"gamma": [0.1, 1.0], "class_weight": {"yes": 2.0}},
        {"cv": "loo", "standardize": True},
        {"kernel": "linear", "score": "balanced_error", "class_weight": "balanced"},
        {"kernel": "precomputed"},
        {"score": "hinge"},
        {"score": "auc"},
    ],
    ids=str,
)
def test_saved_and_loaded_it_answers_alike(options, tmp_path):
    X, y = noisy(40)
    X = X @ X.T if options.get("kernel") == "precomputed" else X
    cv = svmcore.cv_path(X, y, C_max=10.0, sample_weight=np.arange(40) % 3 + 1.0, **options)
    file = tmp_path / "cv.npz"
    cv.save(file)
    same = svmcore.load(file)
    assert repr(same) == repr(cv)
    np.testing.assert_array_equal(same.values, cv.values)
    np.testing.assert_array_equal(same.decision_scores(2.0), cv.decision_scores(2.0))
    np.testing.assert_array_equal(same.refit(3.0).alpha, cv.refit(3.0).alpha)
    assert same.smallest_C == cv.smallest_C


def test_damaged_files_are_refused(tmp_path):
    X, y = noisy(40)
    file = tmp_path / "cv.npz"
    svmcore.cv_path(X, y, C_max=1.0).save(file)
    parts = parts_of(file)
    for name in ("about", "codes", "member0_train", "scores0_values"):
        np.savez(file, **{key: value for key, value in parts.items() if key != name})
        refused("is damaged", svmcore.load, file)
    refused("a file holds data, not code", svmcore.cv_path(X, y, kernel=lambda A, B: A @ B.T, C_max=1.0).save, file)


def test_pictures_say_what_they_show():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    X, y = noisy()
    cv = svmcore.cv_path(X, y, gamma=[0.1, 1.0])
    for what in ("curve", "map"):
        ax = cv.plot(what)
        assert ax.get_xscale() == "log"
        assert ax.get_xlabel() == "C"
        assert ax.get_ylabel()
        assert "least" in ax.get_title(loc="right")
        ax.figure.canvas.draw()
    plt.close("all")
    refused("choose one of 'curve', 'map'", cv.plot, "error")
    refused("needs several gammas", svmcore.cv_path(X, y, C_max=1.0).plot, "map")
    plt.close("all")


def test_table_has_a_row_for_every_stretch():
    X, y = noisy()
    cv = svmcore.cv_path(X, y, gamma=[0.1, 1.0])
    table = cv.table()
    assert len(table["C_from"]) == sum(len(cv._mean(g).curve.values) for g in cv.gammas)
    np.testing.assert_allclose(np.mean([table[f"fold_{k}"] for k in range(5)], axis=0), table["error"])
    assert (table["C_to"] > table["C_from"]).all()


# ---- ends ------------------------------------------------------------------------------------------------------------


def test_callback_ends_it_and_keeps_complete_folds():
    X, y = noisy(120)
    reports = []

    def stop(report):
        reports.append(report)
        return report.n_done == 2

    with pytest.warns(svmcore.ConvergenceWarning, match=r"ended early \(callback\): 2 of 5 folds"):
        cv = svmcore.cv_path(X, y, gamma=0.3, callback=stop)
    assert cv.ended == "callback"
    assert len(cv.folds) == 2
    whole = svmcore.cv_path(X, y, gamma=0.3)
    np.testing.assert_array_equal(cv.fold_errors(1.0), whole.fold_errors(1.0)[:2])
    assert reports[-1].n_paths == 5
    assert 0.0 < reports[-1].done < 1.0


def test_a_limit_before_the_first_complete_fold_is_an_error():
    X, y = noisy(60)
    for words in ({"gamma": 0.5}, {"gamma": [0.5, 1.0]}, {"gamma": "search"}, {"cv": "loo"}):
        for stop, why in (({"time_limit": 0.0}, "time_limit"), ({"callback": lambda report: True}, "callback")):
            with pytest.raises(
                svmcore.StoppedError, match=rf"ended \({why}\) before the first of \d+ folds was complete"
            ):
                svmcore.cv_path(X, y, **words, **stop)


@pytest.mark.parametrize("gamma", [0.5, "search"])
@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_before_the_first_complete_fold_is_one(gamma):
    X, y = noisy(60)
    with pytest.raises(KeyboardInterrupt):
        svmcore.cv_path(X, y, gamma=gamma, callback=lambda report: signal.raise_signal(signal.SIGINT))


@pytest.mark.usefixtures("ctrl_c")
def test_interrupt_keeps_complete_folds(monkeypatch):
    from svmcore.cv import members

    X, y = noisy(120)
    real, seen = members.follow_data, []

    def follow(*arguments, **options):
        seen.append(1)
        if len(seen) == 4:
            signal.raise_signal(signal.SIGINT)
        return real(*arguments, **options)

    monkeypatch.setattr(members, "follow_data", follow)
    with pytest.warns(svmcore.ConvergenceWarning, match=r"ended early \(interrupted\): 3 of 5 folds"):
        cv = svmcore.cv_path(X, y, gamma=0.3)
    assert len(cv.folds) == 3


# ---- real data -------------------------------------------------------------------------------------------------------

SETS = (
    "heart", "ionosphere", "sonar", "monk1", "monk3", "german", "diabetes", "raetsch_titanic", "wbc", "two_spirals", "monk2",
    "hillvalley", "madelon", "noisy_spirals", "raetsch_breast_cancer", "raetsch_flare_solar", "raetsch_thyroid", "splice",
    "svmguide1", "svmguide3",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("name", SETS)
def test_curves_of_real_data_are_those_of_brute_force(name, kernel, data_set):
    X, y = data_set(name)
    X = X.toarray() if hasattr(X, "toarray") else X
    rows = np.random.default_rng(0).permutation(len(y))[:220]
    X, y = X[rows], y[rows]
    cv = svmcore.cv_path(X, y, kernel=kernel, standardize=True, C_max=100.0 if kernel == "rbf" else 3.0)
    assert check(X, y, cv, most=40, kernel=kernel, standardize=True) > 20


# ---- by hypothesis ---------------------------------------------------------------------------------------------------


@st.composite
def problems(draw):
    case = draw(strategies.cases(forms=("svc",), costs=st.just(1.0), n=(12, 40)))
    k = draw(st.sampled_from([2, 3]))
    return case, k, draw(st.integers(0, 5))


@settings(max_examples=25)
@given(problems())
def test_any_problem_agrees_with_brute_force(problem):
    case, k, seed = problem
    options = {name: value for name, value in case.options.items() if name not in ("C", "loss")}
    weights = options.pop("sample_weight", None)
    alive = np.ones(len(case.y), dtype=bool) if weights is None else weights > 0
    assume(min(np.sum(alive & (case.y == label)) for label in (-1.0, 1.0)) > 2 * k)  # every fold has both classes
    try:
        with quiet(svmcore.ConvergenceWarning):
            cv = svmcore.cv_path(
                case.X,
                case.y,
                cv=k,
                random_state=seed,
                C_max=100.0,
                sample_weight=weights,
                weight_score=False,
                **options,
            )
    except svmcore.InputError as error:
        assume("trains without" not in str(error))  # weights of zero can be dealt to one fold
        raise
    check(case.X, case.y, cv, weights, None, most=3, **options)


@pytest.mark.parametrize("problem", [{"standardize": True}, {"class_weight": "balanced"}], ids=str)
def test_leave_one_out_where_every_row_scales_or_weighs_the_others(problem):
    X, y = noisy(24, share=0.3)
    cv = svmcore.cv_path(X, y, cv="loo", gamma=0.3, C_max=50.0, **problem)
    for C in (0.3, 40.0):
        scores = cv.decision_scores(C)
        for k, fold in enumerate(cv.folds):
            _, values, unique = fit(X, y, fold, C, cv, **problem)
            if unique:
                assert scores[k] == pytest.approx(values[0], abs=1e-5)


@pytest.mark.parametrize("sparsely", [False, True])
def test_later_changes_of_the_data_change_nothing(sparsely):
    X, y = noisy(40)
    weights = np.linspace(0.5, 1.5, 40)
    given = sparse.csr_matrix(X) if sparsely else X.copy()
    cv = svmcore.cv_path(given, y, gamma=0.3, C_max=5.0, cv=2, sample_weight=weights)
    scores, alpha = cv.decision_scores(1.0), cv.refit(1.0).alpha
    given *= 0.0
    weights *= 0.0
    np.testing.assert_array_equal(cv.decision_scores(1.0), scores)
    np.testing.assert_array_equal(cv.refit(1.0).alpha, alpha)


def test_one_fold_has_no_standard_error():
    model_selection = pytest.importorskip("sklearn.model_selection")
    X, y = noisy(40)
    cv = svmcore.cv_path(X, y, gamma=0.3, C_max=5.0, cv=model_selection.ShuffleSplit(1, random_state=0))
    assert np.isnan(cv.standard_error(1.0))
    assert "+-" not in repr(cv)
    assert "nan" not in repr(cv) + cv._repr_html_()
    assert cv.error(cv.one_se_C) == cv.error(cv.smallest_C) == cv.best_error
    assert np.isnan(cv.table()["standard_error"]).all()
    pyplot = pytest.importorskip("matplotlib.pyplot")
    assert all(np.isfinite(cv.plot().get_ylim()))
    pyplot.close("all")


def test_a_range_of_one_C():
    X, y = noisy(40)
    for C in (93.0, 49.0, 0.1):  # 1 / (1 / C) rounds to less, to less, and to C
        cv = svmcore.cv_path(X, y, gamma=0.3, cv=2, C_min=C, C_max=C)
        assert cv.error(C) == cv.best_error


@pytest.mark.filterwarnings("ignore:the score still falls at the end")
def test_names_of_scores_may_be_those_of_scikit_learn():
    X, y = svmcore.load_data("demo:spirals")
    for theirs, ours in {"accuracy": "error", "balanced_accuracy": "balanced_error", "roc_auc": "auc"}.items():
        a, b = (svmcore.cv_path(X, y, cv=3, gamma=0.5, C_max=10.0, score=name) for name in (theirs, ours))
        assert a.score == ours
        assert (a.best_C, a.best_error) == (b.best_C, b.best_error)
    for theirs, ours in {
        "neg_mean_absolute_error": "absolute_error",
        "neg_mean_squared_error": "squared_error",
    }.items():
        found = svmcore.cv_path(X, X[:, 0], cv=2, loss="epsilon_insensitive", C_max=1.0, score=theirs)
        assert found.score == ours
