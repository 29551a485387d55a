"""Names and scales of features: raw data in, in any order of columns, to machines and paths that keep both."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from kept import packed, parts_of, stored
from refusals import refused
from scipy import sparse
from sklearn.preprocessing import StandardScaler

import svmcore
from svmcore.problem import columns as _columns

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.filterwarnings("ignore::svmcore.ScaleWarning"),  # the features are as uneven as users' are
]

RNG = np.random.default_rng(3)
NAMES = ("age", "income", "height")
X = RNG.normal(size=(60, 3)) * [10.0, 2e4, 0.1] + [40.0, 5e4, 1.7]
SIGNAL = (X[:, 0] - 40) / 10 + (X[:, 1] - 5e4) / 2e4
Y = np.where(SIGNAL + 0.3 * RNG.normal(size=60) > 0, "ill", "well")
NEW = RNG.normal(size=(20, 3)) * [10.0, 2e4, 0.1] + [40.0, 5e4, 1.7]
FRAMES = {
    "pandas": lambda Z, names=NAMES: pd.DataFrame(dict(zip(names, np.asarray(Z).T, strict=True))),
    "polars": lambda Z, names=NAMES: pl.DataFrame(dict(zip(names, np.asarray(Z).T, strict=True))),
}
ORDER = [2, 0, 1]


def fit_svc(data, **more):
    return svmcore.train_svc(data, Y, 2.0, **more)


def fit_svr(data, **more):
    return svmcore.train_svr(data, SIGNAL, 2.0, **more)


class AtOneC(SimpleNamespace):
    """A path as a machine of one C."""

    def __init__(self, path):
        super().__init__(path=path, columns_of=path.columns_of, standardized=path.standardized)
        self.feature_names = path.feature_names

    def decision_function(self, Z):
        return self.path.decision_function(Z, 2.0)

    def predict(self, Z):
        return self.path.predict(Z, 2.0)


def fit_path(data, **more):
    return AtOneC(svmcore.svm_path(data, Y, lambda_min=0.1, **more))


FITS = {"svc": fit_svc, "svr": fit_svr, "path": fit_path}


@pytest.fixture(params=FITS)
def fit(request):
    return FITS[request.param]


# ---- scaling ---------------------------------------------------------------------------------------------------------


def test_a_standardised_machine_is_the_machine_of_standardised_data(fit):
    scaler = StandardScaler().fit(X)
    machine, plain = fit(X, standardize=True), fit(scaler.transform(X))
    np.testing.assert_allclose(machine.standardized.mean, scaler.mean_, rtol=1e-12)
    np.testing.assert_allclose(machine.standardized.scale, scaler.scale_, rtol=1e-12)
    assert plain.standardized is None
    np.testing.assert_allclose(
        machine.decision_function(NEW), plain.decision_function(scaler.transform(NEW)), rtol=1e-6, atol=1e-8
    )
    np.testing.assert_array_equal(machine.predict(NEW)[:3], [machine.predict(row[None])[0] for row in NEW[:3]])


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_weights_count_in_mean_and_scale_and_rows_without_weight_do_not(layout):
    weights = RNG.integers(0, 4, size=60).astype(float)
    data = np.where(RNG.random(X.shape) < 0.5, X, 0.0)
    data[weights == 0] = 1e30
    many = np.repeat(data, weights.astype(int), axis=0)
    mean, scale = _columns._spread(layout(data), weights)
    np.testing.assert_allclose(scale, many.std(axis=0), rtol=1e-12)
    np.testing.assert_allclose(mean, many.mean(axis=0) if layout is np.asarray else 0.0, rtol=1e-12)


def test_sparse_data_are_scaled_without_centring_and_stay_sparse():
    data = sparse.random(60, 30, 0.2, format="csr", random_state=np.random.default_rng(1)) * 1000.0
    machine = svmcore.train_svc(data, Y, standardize=True)
    mean, scale = machine.standardized
    assert not mean.any()
    filled = data.toarray().std(axis=0) > 0
    np.testing.assert_allclose(scale[filled], data.toarray().std(axis=0)[filled], rtol=1e-12)
    assert sparse.issparse(machine.support_vectors)
    plain = svmcore.train_svc(sparse.csr_matrix(data / scale), Y)
    np.testing.assert_allclose(machine.decision_function(data), plain.decision_function(data / scale), atol=1e-12)
    np.testing.assert_allclose(machine.decision_function(data.toarray()), machine.decision_function(data), atol=1e-12)


def test_sparse_rows_are_centred_where_the_machine_was_trained_on_dense_ones(fit):
    machine = fit(X, standardize=True)
    np.testing.assert_allclose(machine.decision_function(sparse.csr_matrix(NEW)), machine.decision_function(NEW))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e30, -7e-200])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_a_constant_column_is_not_blown_up(value, layout):
    data = X.copy()
    data[:, 1] = value
    mean, scale = _columns._spread(layout(data), np.linspace(0.1, 3.0, 60))
    assert scale[1] == 1.0
    if layout is np.asarray:
        assert mean[1] == value
    data[::2, 1] = np.nextafter(value, np.inf)  # constant but for rounding
    if value > 1e-300:
        assert _columns._spread(layout(data), None).scale[1] == 1.0


@pytest.mark.parametrize("unit", [1e-150, 1e-30, 1e140])
def test_any_unit_of_measurement_gives_the_same_machine(unit):
    want = fit_svc(X, standardize=True, tol=1e-10)
    got = fit_svc(X * [1.0, unit, 1.0], standardize=True, tol=1e-10)
    np.testing.assert_allclose(
        got.decision_function(NEW * [1.0, unit, 1.0]), want.decision_function(NEW), rtol=1e-6, atol=1e-8
    )


def test_what_cannot_be_standardised_is_refused_in_words():
    K = X @ X.T
    with pytest.raises(svmcore.InputError, match='standardize=True needs features, and kernel="precomputed" gives'):
        svmcore.train_svc(K, Y, kernel="precomputed", standardize=True)
    with pytest.raises(svmcore.InputError, match="standardize=True cannot be used with a kernel function"):
        svmcore.train_svc(X, Y, kernel=lambda A, B: A @ B.T, standardize=True)
    refused("standardize='yes' is neither True nor False", svmcore.train_svc, X, Y, standardize="yes")
    small = svmcore.train_svc(X * 1e-140, Y, standardize=True)
    refused("too large once it is standardised", small.predict, np.full((1, 3), 1e40))


def test_leave_one_out_and_certificates_take_raw_data():
    scaled = StandardScaler().fit_transform(X)
    raw = svmcore.leave_one_out(X, Y, 2.0, standardize=True)
    plain = svmcore.leave_one_out(scaled, Y, 2.0)
    np.testing.assert_allclose(raw.decision_values, plain.decision_values, atol=1e-6)
    machine = fit_svc(X, standardize=True)
    measured = svmcore.certificate(X, Y, machine.alpha, machine.intercept, 2.0, standardize=True)
    assert measured.gap == pytest.approx(machine.gap, abs=1e-9)


@pytest.mark.parametrize("options", [{"standardize": True}, {"kernel": "precomputed"}])
@pytest.mark.filterwarnings("ignore::svmcore.ConvergenceWarning")
def test_leave_one_out_that_is_stopped_predicts_the_others_by_the_machine_of_all(options):
    data = X if "standardize" in options else np.outer(SIGNAL, SIGNAL) + 1.0
    calls = iter(range(100))
    stopped = svmcore.leave_one_out(data, Y, 2.0, callback=lambda _: next(calls) > 2, **options)
    left = np.isnan(stopped.decision_values)
    assert left.sum() > 10
    np.testing.assert_array_equal(
        stopped.predictions[left], svmcore.train_svc(data, Y, 2.0, **options).predict(data)[left]
    )


def test_points_are_added_raw_and_removed():
    machine = fit_svc(X, standardize=True, tol=1e-8)
    larger = machine.add(FRAMES["pandas"](NEW), np.where(NEW[:, 0] > 40, "well", "ill"))
    np.testing.assert_array_equal(larger.standardized.mean, machine.standardized.mean)
    mean, scale = machine.standardized
    both, labels = np.vstack([X, NEW]), np.concatenate([Y, np.where(NEW[:, 0] > 40, "well", "ill")])
    want = svmcore.train_svc((both - mean) / scale, labels, 2.0, gamma=machine.gamma, tol=1e-8)
    np.testing.assert_allclose(larger.decision_function(NEW), want.decision_function((NEW - mean) / scale), atol=1e-5)
    smaller = larger.remove(np.arange(60, 80))
    np.testing.assert_allclose(smaller.decision_function(NEW), machine.decision_function(NEW), atol=1e-5)
    assert smaller.standardized is machine.standardized


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", FRAMES)
@pytest.mark.parametrize("standardize", [False, True])
def test_columns_in_another_order_are_put_right(fit, library, standardize):
    frame = FRAMES[library]
    machine = fit(frame(X), standardize=standardize)
    assert machine.feature_names == NAMES
    want = machine.decision_function(frame(NEW))
    shuffled = frame(NEW[:, ORDER], [NAMES[k] for k in ORDER])
    np.testing.assert_array_equal(machine.decision_function(shuffled), want)
    np.testing.assert_array_equal(machine.decision_function(NEW), want)  # an array is taken by position
    other = FRAMES["polars" if library == "pandas" else "pandas"]
    np.testing.assert_array_equal(
        machine.predict(other(NEW[:, ORDER], [NAMES[k] for k in ORDER])), machine.predict(NEW)
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("age", "income", "weight"), "it lacks 'height' and it has 'weight', which the training data did not have"),
        (("age", "income"), "it lacks 'height'; give the same columns, in any order"),
        (("age", "income", "height", "id"), "it has 'id', which the training data did not have"),
    ],
)
def test_other_columns_are_refused_by_name(fit, names, message):
    machine = fit(FRAMES["pandas"](X))
    refused(message, machine.predict, FRAMES["pandas"](np.ones((2, len(names))), names))
    refused(message, machine.columns_of, names)


def test_columns_of_names_are_places(fit):
    machine = fit(X, feature_names=NAMES)
    assert machine.columns_of(["height", "age", "income"]).tolist() == [1, 2, 0]
    nameless = fit(X)
    assert nameless.feature_names is None
    assert nameless.columns_of(["a", "b", "c"]).tolist() == [0, 1, 2]
    refused("X has 2 features a row; this machine was trained with 3", nameless.columns_of, ["a", "b"])


def test_many_strangers_are_counted():
    machine = fit_svc(X, feature_names=NAMES)
    refused("'c4' and 3 more, which", machine.columns_of, [f"c{k}" for k in range(8)])


def test_a_name_used_twice_is_no_name():
    twice = pd.DataFrame(X, columns=["a", "b", "a"])
    machine = fit_svc(twice)
    np.testing.assert_array_equal(machine.predict(twice), machine.predict(X))
    refused("more than one column is called 'a'", machine.predict, pd.DataFrame(X, columns=["a", "a", "b"]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a", "b"], "feature_names holds 2 names for 3 columns of X"),
        ("abc", "feature_names='abc' are not names"),
        ([1, 2, 3], r"feature_names=\[1, 2, 3\] are not names"),
        (7, "feature_names=7 are not names"),
    ],
)
def test_names_that_are_none_are_refused(fit, given, message):
    refused(message, fit, X, feature_names=given)


def test_names_may_not_contradict_the_frame():
    frame = FRAMES["pandas"](X)
    assert fit_svc(frame, feature_names=list(NAMES)).feature_names == NAMES
    with pytest.raises(svmcore.InputError, match="feature_names differ from the names that the data frame X has"):
        fit_svc(frame, feature_names=["a", "b", "c"])


def test_columns_without_names_have_places_only():
    machine = fit_svc(pd.DataFrame(X))
    assert machine.feature_names is None
    np.testing.assert_array_equal(machine.predict(pd.DataFrame(NEW)), machine.predict(NEW))


def test_a_given_kernel_has_no_names():
    K = X @ X.T / 1e9
    machine = svmcore.train_svc(pd.DataFrame(K, columns=[f"p{k}" for k in range(60)]), Y, kernel="precomputed")
    assert machine.feature_names is None
    refused("X has 3 kernel values a row", machine.predict, X)


# ---- both travel -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("travel", [stored, lambda machine: pickle.loads(pickle.dumps(machine)), copy.deepcopy])
@pytest.mark.parametrize("kind", ["svc", "path"])
def test_names_and_scales_travel_with_the_machine(travel, kind):
    frame = FRAMES["pandas"](X)
    machine = fit_svc(frame, standardize=True) if kind == "svc" else fit_path(frame, standardize=True).path
    again = travel(machine)
    assert again.feature_names == NAMES
    for ours, theirs in zip(machine.standardized, again.standardized, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    C = () if kind == "svc" else (2.0,)
    shuffled = FRAMES["pandas"](NEW[:, ORDER], [NAMES[k] for k in ORDER])
    np.testing.assert_array_equal(again.decision_function(shuffled, *C), machine.decision_function(NEW, *C))


def test_one_C_of_a_path_keeps_both():
    path = svmcore.svm_path(FRAMES["polars"](X), Y, standardize=True, lambda_min=0.1)
    machine = path.at(2.0)
    assert machine.feature_names == NAMES
    assert machine.standardized is path.standardized
    np.testing.assert_allclose(machine.decision_function(NEW), path.decision_function(NEW, 2.0), atol=1e-9)
    assert machine.params["C"] == 2.0


def test_the_error_curve_takes_raw_data():
    frame = FRAMES["pandas"](X)
    path = svmcore.svm_path(frame, Y, standardize=True, lambda_min=0.1)
    shuffled = FRAMES["pandas"](X[:, ORDER], [NAMES[k] for k in ORDER])
    ours, given = path.error_curve(), path.error_curve(shuffled, Y)
    for C in np.geomspace(path.Cs[0] * 1.01, path.Cs[-1] * 0.99, 7):
        assert ours(C) == given(C) == np.mean(path.predict(X, C) != Y)


def test_merged_points_keep_their_names():
    path = svmcore.svm_path(FRAMES["pandas"](X), Y, merge_tol=1e-3, standardize=True, lambda_min=1.0)
    assert path.feature_names == NAMES


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("feature_names", np.array(["a", "b"])),
        ("feature_names", np.array([1, 2, 3])),
        ("feature_mean", np.zeros(2)),
        ("feature_mean", np.array([0.0, np.nan, 0.0])),
        ("feature_scale", np.array([1.0, 0.0, 1.0])),
    ],
)
@pytest.mark.parametrize("kind", ["svc", "path"])
def test_damaged_columns_are_refused(kind, field, value):
    frame = FRAMES["pandas"](X)
    machine = fit_svc(frame, standardize=True) if kind == "svc" else fit_path(frame, standardize=True).path
    refused("is damaged", svmcore.load, packed(**parts_of(machine) | {field: value}))


@pytest.mark.parametrize("kind", ["svc", "path"])
def test_files_of_the_format_before_are_read(kind):
    machine = fit_svc(X) if kind == "svc" else fit_path(X).path
    fields = parts_of(machine)
    fields["format"] = np.array(str(fields["format"]).replace("-2", "-1"))
    for name in ("C", "loss", "epsilon"):
        fields.pop(name, None)
    again = svmcore.load(packed(**fields))
    C = () if kind == "svc" else (2.0,)
    np.testing.assert_array_equal(again.decision_function(NEW, *C), machine.decision_function(NEW, *C))
    assert again.standardized is None
    if kind == "svc":
        assert again.C is again.loss is again.epsilon is None


# ---- weights of linear machines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("more", [{}, {"fit_intercept": False, "intercept_scaling": 0.5}])
def test_a_linear_machine_is_its_weights(layout, standardize, more):
    data = layout(X / 1e4)
    machine = svmcore.train_svc(data, Y, 1.0, kernel="linear", standardize=standardize, **more)
    assert machine.coef_.shape == (3,)
    want = machine.decision_function(data)
    np.testing.assert_allclose(np.asarray(data @ machine.coef_) + machine.intercept_, want, rtol=1e-9, atol=1e-12)
    path = svmcore.svm_path(data, Y, kernel="linear", standardize=standardize, lambda_min=0.1, **more)
    Cs = np.array([0.5, 2.0])
    for C, coef in zip(Cs, path.coef(Cs), strict=True):
        np.testing.assert_allclose(coef, path.coef(C), rtol=1e-9)
        np.testing.assert_allclose(coef, path.at(C).coef_, rtol=1e-9, atol=1e-12)
        f0 = path.decision_function(np.zeros((1, 3)), C)
        np.testing.assert_allclose(np.asarray(data @ coef) + f0, path.decision_function(data, C), rtol=1e-9, atol=1e-9)


def test_weights_need_the_linear_kernel():
    with pytest.raises(svmcore.InputError, match="coef_ needs the linear kernel; this machine has kernel='rbf'"):
        _ = fit_svc(X).coef_
    refused("coef needs the linear kernel; this path has kernel='rbf'", fit_path(X).path.coef, 1.0)


def test_a_path_knows_its_problem():
    path = svmcore.svm_path(X, Y, kernel="poly", gamma=0.5, coef0=1.0, standardize=True, lambda_min=0.5)
    assert path.params == {"kernel": "poly", "gamma": 0.5, "degree": 3, "coef0": 1.0, "standardize": True}
    assert stored(path).params == path.params == {k: path.at(1.0).params[k] for k in path.params}
