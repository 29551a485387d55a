"""What estimators keep: their own copy of the rows, the parameters of their fit, and all of it where a later call fails."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from refusals import refused
from repeats import brief
from scipy.sparse import csr_matrix, issparse
from sklearn.base import clone

import svmcore

pytestmark = pytest.mark.once
rng = np.random.default_rng(2)
N = 40
X = rng.normal(size=(N, 3))
TWO = (X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=N) > 0).astype(int)
THREE = (2.0 * X[:, 0]).round().clip(-1, 1).astype(int)
NUMBERS = X[:, 0] ** 2 + X[:, 1]
MORE, MORE_TWO = rng.normal(size=(10, 3)), np.tile([0, 1], 5)


def values(machine, points=X):
    return machine.decision_function(points) if hasattr(machine, "decision_function") else machine.predict(points)


def squares(A, B):
    return (1.0 + A @ B.T) ** 2


# ---- their own rows ----------------------------------------------------------------------------------------------------


OWNERS = [
    ("SVC", {"gamma": 0.4}, TWO), ("SVC", {"gamma": 0.4}, THREE), ("SVC", {"kernel": "linear"}, TWO),
    ("SVC", {"kernel": squares}, TWO), ("SVR", {"gamma": 0.4}, NUMBERS), ("LinearSVC", {}, THREE),
    ("SVCPath", {"gamma": 0.4}, TWO), ("SVRPathCV", {"cv": 3, "C_max": 10.0, "gamma": 0.4}, NUMBERS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "params", "y"), OWNERS, ids=lambda each: each if isinstance(each, str) else "")
@pytest.mark.parametrize("kind", [np.array, csr_matrix], ids=["dense", "sparse"])
def test_the_array_of_a_fit_may_be_written_to_afterwards(name, params, y, kind):
    if callable(params.get("kernel")) and kind is csr_matrix:
        pytest.skip("the function is for arrays")
    machine = getattr(svmcore, name)(**params)
    if "tol" in machine.get_params():
        machine.set_params(tol=1e-9)
    given = kind(X), y.copy(), np.ones(N)
    machine.fit(*given)
    for array in given:
        array *= 0
    whole = clone(machine).fit(kind(X[1:]), y[1:])
    assert np.allclose(values(machine.forget([0]), kind(X)), values(whole, kind(X)), atol=1e-5)


def test_one_array_may_bring_all_rows():
    machine, buffer = svmcore.SVC(gamma=0.4, tol=1e-9), X[:20].copy()
    machine.partial_fit(buffer, TWO[:20])
    buffer[:] = X[20:]
    machine.partial_fit(buffer, TWO[20:])
    assert np.allclose(values(machine), values(svmcore.SVC(gamma=0.4, tol=1e-9).fit(X, TWO)), atol=1e-6)


@pytest.mark.parametrize("weights", [None, np.ones(N)], ids=["plain", "weighted"])
def test_machines_of_functions_own_their_rows_too(weights):
    given = X.copy(), NUMBERS.copy(), None if weights is None else weights.copy()
    machine = svmcore.train_svr(*given[:2], gamma=0.4, tol=1e-9, sample_weight=given[2])
    for array in given:
        if array is not None:
            array *= 0.0
    whole = svmcore.train_svr(X[1:], NUMBERS[1:], gamma=0.4, tol=1e-9)
    assert np.allclose(machine.remove([0]).predict(X), whole.predict(X), atol=1e-6)


def test_what_is_worked_out_later_is_that_of_the_fit():
    points = X.copy()
    machines = svmcore.SVCPath(gamma=0.4).fit(points, TWO), svmcore.GPRegressor(gamma=0.4).fit(points, NUMBERS)
    points *= 0.0
    once = svmcore.SVC(C=5.0, gamma=0.4, tol=1e-9).fit(X, TWO)
    assert np.allclose(values(machines[0].set_params(C=5.0)), values(once), atol=1e-6)
    assert np.allclose(values(machines[1]), values(svmcore.GPRegressor(gamma=0.4).fit(X, NUMBERS)))


# ---- the parameters of the fit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params", [{"C": 100.0}, {"kernel": "poly", "degree": 2}, {"gamma": 3.0}, {"class_weight": {0: 5.0}}], ids=brief
)
def test_parameters_that_come_after_the_fit_count(params):
    machine = svmcore.SVC(gamma=0.4, tol=1e-9).fit(X, TWO).set_params(**params)
    whole = clone(machine).fit(np.concatenate([X, MORE]), np.concatenate([TWO, MORE_TWO]))
    assert np.allclose(values(machine.partial_fit(MORE, MORE_TWO)), values(whole), atol=1e-6)
    assert np.allclose(values(machine.forget(np.arange(N, N + 10))), values(clone(machine).fit(X, TWO)), atol=1e-6)
    assert machine._fitted.found.solver == "simple"  # the second change moves the machine again


def test_a_weight_that_is_written_to_counts():
    factors = {0: 1.0, 1: 1.0}
    machine = svmcore.SVC(gamma=0.4, class_weight=factors, tol=1e-9).fit(X, TWO)
    factors[0] = 9.0
    assert np.allclose(values(machine.forget([0])), values(clone(machine).fit(X[1:], TWO[1:])), atol=1e-6)


def test_gamma_scale_stays_until_another_is_asked_for():
    machine = svmcore.NuSVC(nu=0.2).fit(X, TWO)
    gamma = machine._gamma
    assert machine.forget([0])._gamma == gamma
    assert machine.gamma == "scale"
    assert machine.set_params(gamma="auto").forget([0])._gamma == 1.0 / 3.0


def test_data_of_a_kernel_of_another_kind_are_refused():
    given = svmcore.SVC(kernel="precomputed").fit(X @ X.T, TWO).set_params(kernel="linear")
    refused("kernel='linear' came after the fit", given.forget, [0])


# ---- all or nothing ----------------------------------------------------------------------------------------------------


def test_a_calibration_is_looked_at_first():
    machine = svmcore.SVCPathCV(cv=3, C_max=10.0).fit(X, TWO)
    before = machine.predict_proba(X), machine.best_C_
    refused("calibration='none' is not known", machine.set_params(calibration="none").fit, X[:30], TWO[:30])
    assert np.array_equal(machine.predict_proba(X), before[0])
    assert machine.best_C_ == before[1]


def test_classes_are_compared_before_rows_are_added():
    machine = svmcore.SVC()
    refused(r"classes names \[2\]", machine.partial_fit, X, TWO, classes=[0, 1, 2])
    assert not hasattr(machine, "shape_fit_")
    machine.partial_fit(X, TWO, classes=[0, 1])
    refused("classes names fewer classes than y has", machine.partial_fit, MORE, MORE_TWO, classes=[0])
    assert machine.shape_fit_ == (N, 3)


def test_a_kernel_function_of_objects_hears_of_its_own_errors():
    words = ["one", "two", "three", "four"]
    with pytest.raises(svmcore.InputError, match=r"C=-1.0 is out of range"):
        svmcore.SVC(C=-1.0, kernel=lambda A, B: np.eye(len(A), len(B))).fit(words, [0, 1, 0, 1])


def test_a_fit_that_fails_changes_nothing():
    machine = svmcore.SVC(class_weight={0: 2.0}).fit(X, TWO)
    before = dict(vars(machine))
    for points, y in ((X[:, :2], np.zeros(N)), (X[:, :2] * np.nan, TWO)):
        with pytest.raises(ValueError, match=r"class|NaN"):
            machine.fit(points, y)
        assert vars(machine) == before
    refused(r"C=-1\.0", machine.set_params(C=-1.0).partial_fit, MORE, MORE_TWO)
    assert vars(machine) == before | {"C": -1.0}


def test_fewer_kernel_values_are_fewer_features():
    machine = svmcore.SVC(kernel="precomputed").fit(X @ X.T, TWO).forget([0, 1])
    assert machine.n_features_in_ == N - 2
    assert values(machine, (X @ X.T)[:, 2:]).shape == (N,)


def test_places_are_none_some_or_wrong():
    machine = svmcore.SVC(gamma=0.4).fit(X, TWO)
    before = values(machine)
    assert np.array_equal(values(machine.forget([])), before)
    assert machine.forget(np.arange(N) == 3).shape_fit_ == (N - 1, 3)
    refused("indices reach from 99 to 99; there are 39", machine.forget, [99])
    refused("are not whole numbers", machine.forget, ["first"])


def test_one_weight_for_all_is_taken_early_and_late():
    machine = svmcore.SVC(gamma=0.4, tol=1e-9).partial_fit(X, TWO, sample_weight=2.0)
    machine.partial_fit(MORE, MORE_TWO, sample_weight=3.0)
    whole = svmcore.SVC(gamma=0.4, tol=1e-9)
    whole.fit(np.concatenate([X, MORE]), np.concatenate([TWO, MORE_TWO]), np.repeat([2.0, 3.0], [N, 10]))
    assert np.allclose(values(machine), values(whole), atol=1e-6)


# ---- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "params", "y", "message"),
    [
        ("SVC", {"tol": None}, TWO, "^tol=None is not a number"),
        ("SVC", {"tol": "a"}, TWO, "^tol='a' is not a number"),
        ("SVC", {"max_iter": None}, TWO, "^max_iter=None is not a whole number"),
        ("SVC", {"cache_size": -1.0}, TWO, r"^cache_size=-1\.0 is out of range"),
        ("SVC", {"shrinking": "no"}, TWO, "^shrinking='no' is neither True nor False"),
        ("SVC", {}, 3, "y"),
        ("LinearSVC", {"loss": None}, TWO, "^loss=None is not known; choose one of 'hinge'"),
        ("LinearSVR", {"loss": "pinball"}, NUMBERS, "^loss='pinball' is not known"),
        ("QuantileSVR", {"quantile": 1.0}, NUMBERS, "^quantile=1 is out of range"),
        ("SVRPathCV", {"loss": "hinge"}, NUMBERS, "^loss='hinge' is not known; choose one of 'epsilon_insensitive'"),
        ("SVRPathCV", {"loss": "pinball", "quantile": 2.0}, NUMBERS, r"^quantile=2\.0 is out of range"),
        ("SVCPathCV", {"scoring": "best"}, TWO, "^scoring='best'"),
        ("SVCPathCV", {"multi_class": "all"}, THREE, "^multi_class='all' is not known"),
    ],
    ids=brief,
)
def test_errors_name_the_parameter(name, params, y, message):
    with pytest.raises(ValueError, match=message):
        getattr(svmcore, name)(**params).fit(X, y)


def test_a_cost_beyond_the_path_names_its_end():
    machine = svmcore.SVCPath(C_max=10.0).fit(X, TWO)
    refused(r"^C=20 lies above 10.*fit again with C_max=20 or more", machine.set_params(C=20.0).predict, X)
    assert machine.set_params(C=10.0).predict(X).shape == (N,)


def test_classes_that_the_kernel_does_not_tell_apart_have_a_machine_and_a_warning():
    with pytest.warns(svmcore.ConvergenceWarning, match=r"nu=0\.5 is out of reach: the share is still 1 at C="):
        machine = svmcore.NuSVC().fit(np.ones((10, 2)), np.arange(10) % 2)
    assert np.array_equal(machine.decision_function(np.ones((1, 2))), [0.0])
    noise = np.random.default_rng(0)
    points, labels = noise.normal(size=(40, 2)), noise.random(40) < 0.5
    with pytest.warns(svmcore.ConvergenceWarning, match=r"nu=0\.05 is out of reach: the share is still 0\.\d+ at C="):
        machine = svmcore.NuSVC(kernel="linear", nu=0.05).fit(points, labels)
    assert machine.score(points, labels) >= max(labels.mean(), 1.0 - labels.mean())


# ---- files -------------------------------------------------------------------------------------------------------------


def leaves(value):
    """What a state is made of."""
    if isinstance(value, dict | list | tuple):
        assert type(value) in (dict, list, tuple)
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    else:
        yield value


STORED = [
    ("SVC", {}, TWO), ("SVC", {"kernel": "linear", "class_weight": {0: 2.0}}, THREE), ("NuSVC", {"nu": 0.3}, THREE),
    ("SVC", {"kernel": "precomputed", "multi_class": "ovr"}, THREE), ("SVR", {}, NUMBERS), ("NuSVR", {}, NUMBERS),
    ("QuantileSVR", {"quantile": 0.8}, NUMBERS), ("OneClassSVM", {"kernel": "poly"}, None), ("LinearSVC", {}, THREE),
    ("LinearSVR", {}, NUMBERS),
]  # fmt: skip


PATHS = [
    ("SVCPath", {}, TWO), ("SVCPath", {"kernel": "linear"}, TWO), ("SVCPath", {"kernel": "precomputed"}, TWO),
    ("SVCPathCV", {"cv": 3}, TWO), ("SVCPathCV", {"cv": 3, "calibration": "isotonic"}, THREE),
    ("SVCPathCV", {"cv": 3, "calibration": "venn-abers", "multi_class": "ovr", "gamma": [0.1, 1.0]}, THREE),
    ("SVRPathCV", {"cv": 3}, NUMBERS), ("SVRPathCV", {"cv": 3, "loss": "pinball"}, NUMBERS),
    ("GPRegressor", {}, NUMBERS), ("GPRegressor", {"solver": "cg", "normalize_y": True}, NUMBERS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "params", "y"), STORED + PATHS, ids=brief)
@pytest.mark.filterwarnings("ignore:the score still falls")
def test_a_fitted_estimator_is_arrays_numbers_and_strings(name, params, y):
    """Files of other libraries, as skops, then need no trust in classes but that of the estimator."""
    points = X @ X.T if params.get("kernel") == "precomputed" else X
    machine = getattr(svmcore, name)(**params).fit(points, y)
    kinds = {type(value) for value in leaves(machine.__getstate__())}
    assert kinds <= {np.ndarray, np.float64, np.int64, float, int, bool, str, type(None)}
    again = pickle.loads(pickle.dumps(machine))
    assert np.array_equal(values(again, points), values(machine, points))
    if name == "SVCPath":
        assert again.path_ is again._fitted.path
        for C in (0.01, 500.0):
            assert np.array_equal(again.set_params(C=C).predict(points), machine.set_params(C=C).predict(points))
    elif name == "GPRegressor":
        for one, other in zip(again.predict(X, return_std=True), machine.predict(X, return_std=True), strict=True):
            assert np.array_equal(one, other)
        assert again.gp_.residual == machine.gp_.residual
    elif name.endswith("PathCV"):
        assert np.array_equal(again.cv_.breakpoints, machine.cv_.breakpoints)
        assert again.cv_.best_C == machine.cv_.best_C == again.best_C_
        assert np.array_equal(again.cv_.refit().predict(X), machine.cv_.refit().predict(X))
    if hasattr(machine, "predict_proba"):
        assert np.array_equal(again.predict_proba(X), machine.predict_proba(X))
        assert again._calibrator.log_loss == machine._calibrator.log_loss
    assert again.get_params() == machine.get_params()
    for attribute in ("dual_gap_", "kkt_violation_", "converged_", "n_iter_", "intercept_", "dual_coef_", "support_"):
        if hasattr(machine, attribute):
            assert np.array_equal(getattr(again, attribute), getattr(machine, attribute))


@pytest.mark.parametrize("name", ["SVC", "GPRegressor"])
def test_a_machine_of_a_kernel_function_is_pickled_as_it_is(name):
    machine = getattr(svmcore, name)(kernel=squares).fit(X, THREE)
    assert np.array_equal(values(pickle.loads(pickle.dumps(machine))), values(machine))


def test_sparse_rows_come_back_from_a_file():
    thin = svmcore.SVC().fit(csr_matrix(X), THREE)
    again = pickle.loads(pickle.dumps(thin))
    assert np.array_equal(again.predict(csr_matrix(X)), thin.predict(csr_matrix(X)))
    assert issparse(again.dual_coef_)


@pytest.mark.parametrize(
    ("name", "params", "y"), [STORED[0], ("SVC", {}, THREE), *PATHS[3:5], PATHS[6], PATHS[8], PATHS[0]], ids=brief
)
@pytest.mark.filterwarnings("ignore:the score still falls")
def test_pickles_of_the_first_version_are_read(name, params, y):
    machine = getattr(svmcore, name)(**params).fit(X, y)
    state = pickle.loads(pickle.dumps({**vars(machine), "_rows": None}))  # which held the objects
    again = type(machine).__new__(type(machine))
    again.__setstate__(state)
    assert np.array_equal(values(again), values(machine))


@pytest.mark.parametrize(
    ("name", "params", "y"),
    [case for case in STORED + PATHS if case[1].get("kernel") != "precomputed"]
    + [("SVC", {"probability": True}, THREE)],
    ids=brief,
)
@pytest.mark.filterwarnings("ignore:the score still falls", "ignore:.*robability:FutureWarning")
def test_skops_trusts_the_estimator_and_nothing_else(name, params, y):
    skops = pytest.importorskip("skops.io")
    machine = getattr(svmcore, name)(**params).fit(X, y)
    data = skops.dumps(machine)
    assert skops.get_untrusted_types(data=data) == [f"svmcore.{name}"]
    assert np.array_equal(values(skops.loads(data, trusted=[f"svmcore.{name}"])), values(machine))
