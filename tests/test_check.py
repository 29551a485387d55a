"""The input border: every message names the argument, its value, and the remedy; what is usable is understood."""

from __future__ import annotations

import pickle
import traceback
import warnings
from fractions import Fraction

import numpy as np
import oracle
import pytest
from refusals import refused
from repeats import each
from scipy import sparse

import svmcore
from svmcore import _errors
from svmcore.base.threads import one_blas_thread
from svmcore.problem import border, labelling

X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 3.0], [3.0, 2.0]])
Y = [0, 0, 1, 1]
INF, NAN = np.inf, np.nan
GRAM = np.eye(4)


def changed(row: int, column: int, value: float) -> np.ndarray:
    Z = X.copy()
    Z[row, column] = value
    return Z


REFUSED = [
    # features
    ({"X": [1.0, 2.0, 3.0, 4.0]}, r"X has 1 dimension.*reshape\(-1, 1\).*reshape\(1, -1\)"),
    ({"X": np.ones((4, 1, 1))}, r"X has 3 dimension.*samples by features"),
    ({"X": 5.0}, r"X has 0 dimension"),
    ({"X": np.empty((0, 2)), "y": []}, r"X is empty, with shape \(0, 2\); give at least one sample"),
    ({"X": np.empty((4, 0))}, r"X is empty, with shape \(4, 0\)"),
    ({"X": changed(2, 1, NAN)}, r"X contains nan at row 2, column 1; remove or impute"),
    ({"X": changed(1, 0, -INF)}, r"X contains -inf at row 1, column 0; remove or impute"),
    ({"X": changed(3, 1, 1e200)}, r"X contains 1e\+200 at row 3, column 1; scale it down"),
    ({"X": sparse.csr_matrix(changed(3, 0, NAN))}, r"X contains nan at row 3, column 0"),
    ({"X": sparse.csc_matrix(changed(1, 1, INF))}, r"X contains inf at row 1, column 1"),
    ({"X": X + 1j}, r"X holds complex numbers; give real numbers"),
    (
        {"X": "parts/*.npz"},
        r"X='parts/\*.npz' is the name of a file; svmcore.load_data reads one, and svmcore.distributed",
    ),
    ({"X": [["a", "b"]] * 4}, r"X cannot be read as numbers .*; give a two-dimensional numeric array"),
    ({"X": [[1.0], [1.0, 2.0], [3.0], [4.0]]}, r"X cannot be read as numbers"),
    ({"X": sparse.csr_matrix((0, 3))}, r"X is empty, with shape \(0, 3\)"),
    ({"X": sparse.csr_matrix(X.astype(complex))}, r"X holds values of type complex128; give real numbers"),
    ({"X": sparse.coo_array(np.ones(4))}, r"X is a sparse array of 1 dimension"),
    # labels
    ({"y": [0, 1, 0]}, r"y has shape \(3,\) for 4 samples; give one label per sample"),
    ({"y": np.ones((4, 2))}, r"y has shape \(4, 2\) for 4 samples"),
    ({"y": [1, 1, 1, 1]}, r"y holds one class only \(1\); a classifier needs two"),
    (
        {"y": [0, 1, 2, 3]},
        r"y holds 4 classes \(0, 1, 2, 3\); this function separates two; train_classes and cv_path take several$",
    ),
    ({"y": [0.5, 1.25, 2.0, 3.0]}, r"y holds 4 different numbers \(0.5, .*\), not two classes; train_svr fits numbers"),
    ({"X": np.ones((30, 1)), "y": range(30)}, r"y holds 30 classes .*take several; to fit numbers use train_svr"),
    ({"y": [None, 1, 0, 1]}, r"y has no label at row 0 \(None\); every sample needs a label"),
    ({"y": np.array(["a", "b", NAN, "b"], dtype=object)}, r"y has no label at row 2 \(nan\)"),
    ({"y": np.ma.array([0, 1, 0, 1], mask=[0, 0, 1, 0])}, r"y is a masked array with masked values; fill them in"),
    ({"X": np.ma.array(X, mask=X[1, 0] == X)}, r"X is a masked array with masked values; fill them in"),
    ({"X": np.array([["2020-01-01"], ["2021-01-01"]] * 2, dtype="M8[D]")}, r"X holds dates or times; turn them"),
    ({"y": [0.0, 1.0, NAN, 1.0]}, r"y contains nan at row 2; every sample needs a label"),
    ({"y": np.array([0, "a", 1, "b"], dtype=object)}, r"y mixes labels of different types"),
    # numbers
    ({"C": 0}, r"C=0 is out of range; it must be greater than 0"),
    ({"C": -1.0}, r"C=-1.0 is out of range; it must be greater than 0"),
    ({"C": NAN}, r"C=nan is not finite"),
    ({"C": "big"}, r"C='big' is not a number; give a real number"),
    ({"C": True}, r"C=True is not a number"),
    ({"C": 1e-200}, r"C=1e-200 is out of range; it must be at least 1e-150"),
    ({"tol": 0.0}, r"tol=0.0 is out of range; it must be greater than 0"),
    ({"tol": INF}, r"tol=inf is not finite; give a finite number"),
    ({"max_iter": -2}, r"max_iter=-2 is out of range; it must be at least -1"),
    ({"max_iter": 1.5}, r"max_iter=1.5 is not a whole number; give an integer of at least -1"),
    ({"max_iter": True}, r"max_iter=True is not a whole number"),
    ({"time_limit": -1}, r"time_limit=-1 is out of range; it must be at least 0"),
    ({"cache_mb": 0}, r"cache_mb=0 is out of range; it must be greater than 0"),
    ({"n_threads": 0}, r"n_threads=0 is out of range; it must be at least 1"),
    ({"n_threads": -1}, r"n_threads=-1 is out of range; it must be at least 1; leave it out for all processors"),
    ({"random_state": -1}, r"random_state=-1 is out of range; it must be at least 0"),
    ({"random_state": 2**70}, r"random_state=\d+ is out of range; it must be at most"),
    ({"verbose": "much"}, r"verbose='much' is not a whole number"),
    ({"trace": 1}, r"trace=1 is neither True nor False"),
    ({"fit_intercept": "yes"}, r"fit_intercept='yes' is not known; choose True, False or 'embedded'"),
    ({"callback": 3}, r"callback=3 cannot be called; give a function of one progress report"),
    # kernels
    ({"kernel": "gauss"}, r"kernel='gauss' is not known; choose one of 'linear', .*or give a function"),
    ({"kernel": 3}, r"kernel=3 is not known"),
    ({"gamma": 0.0}, r"gamma=0.0 is out of range; it must be greater than 0"),
    ({"gamma": "wide"}, r'gamma=\'wide\' is not known; give "scale", "auto" or a positive number'),
    ({"gamma": None}, r"gamma=None is not a number"),
    ({"kernel": "poly", "degree": -1}, r"degree=-1 is out of range; it must be at least 0"),
    ({"kernel": "poly", "degree": 2.5}, r"degree=2.5 is not a whole number"),
    ({"kernel": "poly", "degree": 10**6}, r"degree=1000000 is out of range; it must be at most 1000"),
    ({"kernel": "sigmoid", "coef0": INF}, r"coef0=inf is not finite"),
    ({"kernel": "precomputed"}, r'kernel="precomputed" needs a square matrix of kernel values; X has shape \(4, 2\)'),
    (
        {"kernel": "precomputed", "X": GRAM + np.triu(np.ones((4, 4)), 1)},
        r"not symmetric: K\[\d, \d\] = . but K\[\d, \d\] = .; symmetrise it with \(K \+ K.T\) / 2",
    ),
    ({"kernel": "precomputed", "X": sparse.csr_matrix(GRAM)}, r"needs a dense matrix; convert with X.toarray\(\)"),
    # losses, criteria
    ({"loss": "logistic"}, r"loss='logistic' is not known; choose one of 'hinge', 'squared_hinge'"),
    ({"stopping": "never"}, r"stopping='never' is not known; choose one of 'kkt', 'gap', 'objective'"),
    ({"intercept_scaling": 1.0}, r"intercept_scaling=1.0 .* needs fit_intercept=False"),
    ({"intercept_scaling": -1.0, "fit_intercept": False}, r"intercept_scaling=-1.0 is out of range"),
    ({"rule": "best"}, r"rule='best' is not known; choose one of 'second', 'mvp', 'platt', 'simplified'"),
    ({"max_passes": None}, r"max_passes=None is not a whole number"),
    ({"shrinking": 3}, r"shrinking=3 is neither True nor False"),
    # weights
    ({"sample_weight": [1.0, -2.0, 1.0, 1.0]}, r"sample_weight contains -2 at row 1; weights must be at least 0"),
    ({"sample_weight": [1.0, NAN, 1.0, 1.0]}, r"sample_weight contains nan at row 1; give finite numbers"),
    ({"sample_weight": [1.0]}, r"sample_weight has shape \(1,\) for 4 samples"),
    ({"sample_weight": "all"}, r"sample_weight cannot be read as numbers"),
    ({"sample_weight": np.zeros(4)}, r"sample_weight is zero everywhere; at least one sample"),
    ({"sample_weight": [1.0, 1.0, 0.0, 0.0]}, r"all samples of one class have weight zero; both classes"),
    ({"class_weight": "even"}, r"class_weight='even' is not known; give \"balanced\" or a mapping"),
    ({"class_weight": {7: 1.0}}, r"class_weight names the label 7, but y holds 0 and 1"),
    ({"class_weight": {0: -1.0}}, r"class_weight\[0\]=-1.0 is out of range; it must be at least 0"),
    ({"class_weight": {0: 0.0}}, r"class_weight is 0 for a class; both classes need a positive weight"),
    ({"class_weight": [1.0, 2.0]}, r"class_weight=\[1.0, 2.0\] is not known"),
    # starts
    ({"alpha0": [1.0, -0.5, 0.0, 0.0]}, r"alpha0 contains -0.5; the dual variables of a classifier are at least 0"),
    ({"alpha0": [1.0]}, r"alpha0 has shape \(1,\) for 4 samples; give one number per sample"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), REFUSED, ids=[f"{next(iter(a))}-{i}" for i, (a, _) in enumerate(REFUSED)]
)
def test_what_cannot_be_used_is_refused_in_words(arguments, message):
    with pytest.raises(svmcore.InputError, match=message) as caught:
        svmcore.train_svc(**{"X": X, "y": Y, **arguments})
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, svmcore.SVMError)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": -0.1}, r"epsilon=-0.1 is out of range; it must be at least 0"),
        ({"epsilon": INF}, r"epsilon=inf is not finite"),
        ({"y": [0.0, 1.0, 2.0, INF]}, r"y contains inf at row 3; give finite numbers"),
        ({"y": ["a", "b", "c", "d"]}, r"y cannot be read as numbers .*; give one number per sample"),
        ({"loss": "hinge"}, r"loss='hinge' is not known; choose one of 'epsilon_insensitive', 'squared_epsilon"),
    ],
)
def test_regression_is_refused_in_words(arguments, message):
    refused(message, svmcore.train_svr, **{"X": X, "y": [0.0, 1.0, 2.0, 3.0], **arguments})


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([0, 0, 1, 1], [0, 1]),
        ([5, 5, -3, -3], [-3, 5]),
        ([True, True, False, False], [False, True]),
        (["spam", "spam", "ham", "ham"], ["ham", "spam"]),
        (np.array(["b", "b", "a", "a"], dtype=object), ["a", "b"]),
        ([1.5, 1.5, 0.5, 0.5], [0.5, 1.5]),
        (np.array([[2], [2], [1], [1]], dtype=np.int8), [1, 2]),
        (np.array([b"x", b"x", b"y", b"y"]), [b"x", b"y"]),
    ],
)
def test_labels_are_any_two_values(labels, classes):
    found = svmcore.train_svc(X, labels, 10.0, kernel="linear")
    assert found.classes.tolist() == classes
    assert found.predict(X).tolist() == np.ravel(labels).tolist()
    given = np.asarray(labels).dtype
    assert found.predict(X).dtype == (np.dtype("U1") if given.kind == "O" else given)


def test_labels_may_be_tuples():
    labels = np.empty(4, dtype=object)
    labels[:] = [("b", 2), ("b", 2), ("a", 1), ("a", 1)]
    found = svmcore.train_svc(X, labels, 10.0, kernel="linear")
    assert found.classes.tolist() == [("a", 1), ("b", 2)]
    assert found.predict(X).tolist() == labels.tolist()


@pytest.mark.parametrize(
    "form",
    [
        lambda Z: Z.tolist(),
        lambda Z: Z.astype(np.float32),
        lambda Z: Z.astype(int),
        lambda Z: np.asfortranarray(Z),
        lambda Z: np.repeat(Z, 2, axis=0)[::2],
        lambda Z: Z.astype(">f8"),
        lambda Z: Z.astype(object),
        sparse.csc_matrix,
        sparse.coo_array,
        lambda Z: sparse.csr_array(Z.astype(int)),
        lambda Z: sparse.csr_matrix((np.ones(9), np.array([1, 0, 0, 0, 1, 1, 1, 0, 0]), [0, 1, 2, 6, 9]), shape=(4, 2)),
    ],
    ids=["list", "float32", "int", "fortran", "strided", "big-endian", "object", "csc", "coo", "int-csr", "duplicates"],
)
def test_every_layout_of_the_same_numbers_gives_the_same_machine(form):
    given = form(X)
    plain = np.asarray(given.toarray() if sparse.issparse(given) else given, dtype=float)
    first, second = svmcore.train_svc(given, Y, 2.0, gamma=0.5), svmcore.train_svc(plain, Y, 2.0, gamma=0.5)
    assert first.alpha == pytest.approx(second.alpha, rel=1e-12)
    assert first.decision_function(given) == pytest.approx(second.decision_function(plain), rel=1e-12)


def test_input_is_not_changed():
    S = sparse.csr_matrix((np.ones(5), np.array([1, 0, 1, 0, 0]), [0, 2, 3, 4, 5]), shape=(4, 2))
    before = S.indices.copy()
    w, start = np.ones(4), np.full(4, 9.0)
    svmcore.train_svc(S, Y, 1.0, sample_weight=w, alpha0=start)
    assert np.array_equal(S.indices, before)
    assert start.tolist() == [9.0] * 4


def test_read_only_input_is_used_as_it_is():
    def frozen(a):
        a.flags.writeable = False
        return a

    S = sparse.csr_matrix(X)
    for part in (S.data, S.indices, S.indptr):
        part.flags.writeable = False
    for given, kernel in ((frozen(X.copy()), "rbf"), (frozen(X @ X.T), "precomputed"), (S, "rbf")):
        assert svmcore.train_svc(given, frozen(np.array(Y)), kernel=kernel).converged


def test_numbers_of_any_kind_are_numbers():
    for C in (2, np.float32(2.0), np.int64(2), Fraction(2, 1)):
        assert svmcore.train_svc(X, Y, C).alpha == pytest.approx(svmcore.train_svc(X, Y, 2.0).alpha)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("weights", [None, np.array([1.0, 2.0, 0.0, 3.0])])
def test_gamma_scale_is_the_weighted_variance(form, weights):
    for gamma in ("scale", "auto", 0.3):
        found = svmcore.train_svc(form(X), [0, 1, 1, 0], gamma=gamma, sample_weight=weights)
        assert found.kernel.gamma == pytest.approx(oracle.gamma_value(gamma, X, weights), rel=1e-14)
    assert svmcore.train_svc(np.ones((4, 2)), Y).kernel.gamma == 1.0


@pytest.mark.parametrize("weighted", [False, True])
def test_gamma_scale_has_the_same_bits_on_any_number_of_threads(weighted):
    """BLAS shares out sums of more than ten thousand numbers among its threads."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(21_000, 4))
        weights = rng.random(len(rows)) if weighted else None
        outside = border.kernel("rbf", rows, "scale", 3, 0.0, weights=weights).kernel.gamma
        with one_blas_thread:
            assert border.kernel("rbf", rows, "scale", 3, 0.0, weights=weights).kernel.gamma == outside


def test_class_weights_multiply_sample_weights():
    w = np.array([1.0, 2.0, 1.0, 0.5])
    by_class = svmcore.train_svc(X, Y, 0.1, sample_weight=w, class_weight={1: 4.0}, gamma=1.0)
    by_hand = svmcore.train_svc(X, Y, 0.1, sample_weight=w * [1.0, 1.0, 4.0, 4.0], gamma=1.0)
    assert np.array_equal(by_class.alpha, by_hand.alpha)
    balanced = svmcore.train_svc(X, Y, 0.1, sample_weight=w, class_weight="balanced", gamma=1.0)
    shares = w * np.repeat([4.5 / 6.0, 4.5 / 3.0], 2)
    assert balanced.alpha == pytest.approx(
        svmcore.train_svc(X, Y, 0.1, sample_weight=shares, gamma=1.0).alpha, rel=1e-12
    )


def test_an_embedded_intercept_is_a_constant_feature():
    tau = 2.5
    Z = np.hstack([X, np.full((4, 1), tau)])
    embedded = svmcore.train_svc(X, Y, 3.0, kernel="linear", fit_intercept=False, intercept_scaling=tau, tol=1e-9)
    explicit = svmcore.train_svc(Z, Y, 3.0, kernel="linear", fit_intercept=False, tol=1e-9)
    assert embedded.objective == pytest.approx(explicit.objective, rel=1e-12)
    assert embedded.decision_function(X) == pytest.approx(explicit.decision_function(Z), rel=1e-7, abs=1e-7)
    assert embedded.intercept == pytest.approx(tau**2 * embedded.dual_coef.sum(), rel=1e-12)
    assert explicit.intercept == 0.0


def test_memory_that_cannot_be_had_is_refused_with_both_figures(monkeypatch):
    monkeypatch.setattr(border, "available_bytes", lambda: 2e8)
    with pytest.raises(svmcore.NotEnoughMemoryError, match=r"cache_mb=1000 needs 1.00 GB and 0.20 GB are available"):
        svmcore.train_svc(X, Y, cache_mb=1000)
    monkeypatch.setattr(border, "available_bytes", lambda: 0.0)
    assert svmcore.train_svc(X, Y).converged  # small requests are not looked at


def test_available_memory_is_read_or_taken_as_unlimited(monkeypatch):
    assert border.available_bytes() > 0

    def missing(*args, **kwargs):
        raise OSError

    monkeypatch.setattr("builtins.open", missing)
    assert border.available_bytes() == INF


@pytest.mark.parametrize("size", [1e100, 1e-100, 1e140])
def test_extreme_but_finite_features_end_quietly(size):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", svmcore.ConvergenceWarning)
        warnings.simplefilter("ignore", svmcore.ScaleWarning)
        for kernel in ("linear", "rbf", "laplacian"):
            found = svmcore.train_svc(size * X, Y, kernel=kernel, time_limit=600.0, max_iter=1000)
            assert np.isfinite(found.alpha).all()
            assert np.isfinite([found.intercept, found.objective, found.kkt_violation]).all()


FRAME_FAULTS = [
    (
        {"a": [1, 2, 3, 4], "sex": ["F", "M", "F", "F"]},
        "X holds 'F' at row 0, column 'sex', which is not a number; turn",
    ),
    ({"a": [1.0, 2.0, NAN, 4.0], "b": [1, 2, 3, 4]}, "X contains nan at row 2, column 'a'; remove or impute"),
    ({"a": [1, 2, 3, 4], "b": [1, None, 3, 4]}, "X (contains nan|has a missing value) at row 1, column 'b'; remove or"),
]


@pytest.mark.parametrize(("columns", "message"), FRAME_FAULTS)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_messages_name_the_column_of_a_frame(library, columns, message):
    frame = pytest.importorskip(library).DataFrame(columns)
    refused(message, svmcore.train_svc, frame, [0, 1, 0, 1])


def test_errors_show_their_public_names():
    with pytest.raises(svmcore.InputError, match="no built-in set") as caught:
        svmcore.load_data("demo:nothing")
    assert traceback.format_exception_only(caught.value)[0].startswith("svmcore.InputError: ")
    assert type(pickle.loads(pickle.dumps(caught.value))) is svmcore.InputError
    for name in _errors.__all__:
        assert getattr(svmcore, name).__module__ == "svmcore"


@pytest.mark.parametrize("kind", ["u8", "i1", "i8", "?", "f8", "f4", "U3"])
@pytest.mark.parametrize("values", [[0, 1], [0, 1, 2], [1, 2], [0, 2, 5], [3, 70, 100]])
def test_labels_are_places_among_their_sorted_values(kind, values):
    y = np.random.default_rng(0).choice(np.array(values).astype(kind), 40)
    if len(set(y.tolist())) > 1:
        codes, classes = labelling.label_codes(y, 40)
        np.testing.assert_array_equal(classes, np.unique(y))
        np.testing.assert_array_equal(classes[codes], y)
        assert classes.dtype == y.dtype
        assert codes.dtype == np.int64
        assert not np.shares_memory(codes, y)


# ---- limits, of everything that works for long -----------------------------------------------------------------------


ROWS, CLASSES = np.arange(8.0).reshape(-1, 1), np.arange(8) % 2
WORKERS = {
    "train_svc": lambda **limit: svmcore.train_svc(ROWS, CLASSES, **limit),
    "train_svr": lambda **limit: svmcore.train_svr(ROWS, CLASSES, **limit),
    "train_classes": lambda **limit: svmcore.train_classes(ROWS, CLASSES, **limit),
    "leave_one_out": lambda **limit: svmcore.leave_one_out(ROWS, CLASSES, **limit),
    "svm_path": lambda **limit: svmcore.svm_path(ROWS, CLASSES, **limit),
    "gp_regression": lambda **limit: svmcore.gp_regression(ROWS, CLASSES, noise=0.1, **limit),
    "cv_path": lambda **limit: svmcore.cv_path(ROWS, CLASSES, cv=2, **limit),
}
WRONG = [
    ("time_limit", -1.0), ("time_limit", "long"), ("time_limit", np.nan), ("callback", 3), ("verbose", "loud"),
    ("verbose", -1), ("cache_mb", 0.0), ("cache_mb", "all"), ("n_threads", 0), ("n_threads", 1.5),
]  # fmt: skip


@pytest.mark.parametrize("worker", WORKERS)
@each("limit", WRONG)
def test_wrong_limits_are_refused_by_name(worker, limit):
    name, value = limit
    if worker != "cv_path" or name != "n_threads":  # which has n_jobs
        refused(rf"^{name}=", WORKERS[worker], **{name: value})


@pytest.mark.parametrize("worker", ["train_svc", "train_svr", "leave_one_out", "gp_regression"])
def test_a_cache_larger_than_the_memory_is_refused(worker):
    with pytest.raises(svmcore.NotEnoughMemoryError, match=r"cache_mb=.*smaller cache_mb"):
        WORKERS[worker](cache_mb=1e12)
