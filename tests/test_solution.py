"""The answer: decision values and predictions in every layout, files and what becomes of damaged ones, words."""

from __future__ import annotations

import dataclasses
import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import oracle
import pytest
from kept import packed, parts_of, stored
from refusals import refused
from scipy import sparse
from warned import quiet

import svmcore
from svmcore.models import decision

pytestmark = pytest.mark.compiled

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 4)) * (RNG.random((50, 4)) < 0.6)
Y = np.where(X[:, 0] + X[:, 1] + 0.3 * RNG.normal(size=50) > 0, "yes", "no")
TEST = RNG.normal(size=(30, 4)) * (RNG.random((30, 4)) < 0.6)
KERNELS = {
    "linear": {},
    "rbf": {"gamma": 0.5},
    "poly": {"gamma": 0.5, "coef0": 1.0, "degree": 2},
    "sigmoid": {"gamma": 0.1, "coef0": -0.2},
    "laplacian": {"gamma": 0.4},
}
LAYOUTS = {"dense": np.asarray, "csr": sparse.csr_matrix, "csc": sparse.csc_array, "list": lambda Z: Z.tolist()}


def train(layout: str = "dense", kernel: str = "rbf", **more) -> svmcore.Solution:
    with quiet(svmcore.ConvergenceWarning):
        return svmcore.train_svc(LAYOUTS[layout](X), Y, 2.0, kernel=kernel, **{**KERNELS.get(kernel, {}), **more})


def expected(solution: svmcore.Solution, kernel: str, Z: np.ndarray) -> np.ndarray:
    K = oracle.kernel_matrix(kernel, Z, X[solution.support], **KERNELS[kernel])
    return K @ solution.dual_coef + solution.intercept


@pytest.mark.parametrize("trained", LAYOUTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_decision_values_in_every_layout(trained, kernel):
    found = train(trained, kernel)
    for layout in LAYOUTS.values():
        values = found.decision_function(layout(TEST))
        assert values == pytest.approx(expected(found, kernel, TEST), rel=1e-11, abs=1e-11)
        assert found.predict(layout(TEST)).tolist() == np.where(values > 0, "yes", "no").tolist()


def signs_of(machine, rows, monkeypatch):
    """The classes of the rows, and how many of them were asked for in double precision."""
    asked = []
    exactly = decision.Decision._tiled
    with monkeypatch.context() as patch:
        patch.setattr(decision, "_WORTH_TWO", 0.0)
        patch.setattr(decision.Decision, "_tiled", lambda self, Z, n: asked.append(Z.shape[0]) or exactly(self, Z, n))
        found = machine.predict(rows)
    return found, sum(asked)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly", "sigmoid"])
@pytest.mark.parametrize("width", [3, 60])
def test_classes_are_those_of_exact_values_and_single_precision_finds_nearly_all(kernel, width, monkeypatch):
    rng = np.random.default_rng(width)
    points = rng.normal(size=(1500, width))
    labels = np.where(points[:, 0] + np.abs(points[:, 1]) > 0.5, 1, -1)
    options = {"gamma": 1.0 / width, "coef0": 0.2, "degree": 4} if kernel != "sigmoid" else {"gamma": 0.1 / width}
    with quiet(svmcore.ConvergenceWarning):
        machine = svmcore.train_svc(points[:500], labels[:500], 10.0, kernel=kernel, **options)
    rows = points[500:]
    exact = machine.decision_function(rows)
    rows = np.concatenate([rows, rows[np.abs(exact).argsort()[:5]]])
    found, asked = signs_of(machine, rows, monkeypatch)
    assert found.tolist() == np.where(machine.decision_function(rows) > 0.0, 1, -1).tolist()
    assert asked < 0.2 * len(rows)
    threads = dataclasses.replace(machine, n_threads=3)
    assert signs_of(threads, rows, monkeypatch)[0].tolist() == found.tolist()


def test_an_estimator_of_two_classes_asks_single_precision_first(monkeypatch):
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(4)
    points = rng.normal(size=(1500, 3))
    labels = np.where(np.abs(points[:, 0]) > 0.6, "far", "close")
    machine = svmcore.SVC(C=5.0).fit(points[:500], labels[:500])
    found, asked = signs_of(machine, points, monkeypatch)
    assert found.tolist() == np.where(machine.decision_function(points) > 0.0, "far", "close").tolist()
    assert asked < 0.05 * len(points)


def test_what_single_precision_leaves_open_is_asked_in_double(monkeypatch):
    """Halfway between two points the value is zero, or what rounding makes of it."""
    machine = svmcore.train_svc([[-1.0, 0.0], [1.0, 0.0]], [-1, 1], 10.0, gamma=0.5)
    rows = np.random.default_rng(0).normal(size=(900, 2))
    rows[::3, 0] = 1e-9 * rows[::3, 1]
    found, asked = signs_of(machine, rows, monkeypatch)
    assert 300 <= asked < 310
    assert found.tolist() == np.where(machine.decision_function(rows) > 0.0, 1, -1).tolist()
    assert set(found[::3].tolist()) == {-1, 1}


def test_one_class_says_inside_on_the_boundary_too(monkeypatch):
    points = np.random.default_rng(1).normal(size=(200, 2))
    machine = svmcore.train_one_class(points, 0.3, gamma=0.5)
    found, asked = signs_of(machine, points, monkeypatch)
    assert found.tolist() == np.where(machine.decision_function(points) >= 0.0, 1, -1).tolist()
    assert asked < 200


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_function_as_kernel(layout, monkeypatch):
    from svmcore.kernel import matrix

    def kernel(A, B):
        assert sparse.issparse(A) == (layout == "csr")
        return oracle.kernel_matrix("rbf", A, B, 0.5)

    found, built_in = train(layout, kernel), train(layout)
    Z = LAYOUTS[layout](TEST)
    assert found.decision_function(Z) == pytest.approx(built_in.decision_function(Z), abs=1e-9)
    monkeypatch.setattr(matrix, "BLOCK_VALUES", 100)
    assert found.decision_function(Z) == pytest.approx(built_in.decision_function(Z), abs=1e-9)
    refused("a Python kernel function cannot be saved: a file holds data, not code", found.save, io.BytesIO())


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", [1, 3, 9, decision.FEW, decision.FEW + 1])
def test_a_row_is_told_the_same_alone_and_among_others(layout, kernel, size):
    found = train(layout, kernel)
    Z = LAYOUTS[layout](
        np.vstack([TEST, TEST[::-1], X[found.support[:20]]])
    )  # support vectors, too: a distance of zero
    many = found.decision_function(Z)
    few = np.concatenate([found.decision_function(Z[k : k + size]) for k in range(0, Z.shape[0], size)])
    scale = np.abs(found.dual_coef).sum()
    assert few == pytest.approx(many, rel=0, abs=1e-14 * scale * (20.0 if kernel == "poly" else 1.0))
    one = dataclasses.replace(found, n_threads=1), dataclasses.replace(found, n_threads=7)
    assert np.array_equal(*(machine.decision_function(Z[:size]) for machine in one))


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_close_points_far_from_the_origin_keep_their_distances(layout):
    far = X * 1e-3 + 1e6
    found = svmcore.train_svc(LAYOUTS[layout](far), Y, 2.0, gamma=1e5)
    Z = far[:3] + 1e-3
    K = oracle.kernel_matrix("rbf", Z, far[found.support], 1e5)
    for rows in (Z[:1], Z, np.resize(Z, (20, 4))):
        want = np.resize(K @ found.dual_coef + found.intercept, len(rows))
        assert found.decision_function(LAYOUTS[layout](rows)) == pytest.approx(want, abs=1e-6)


def test_threads_may_predict_with_one_machine_at_once():
    found, rows = train(), [TEST[k : k + 1] for k in range(30)]
    want = [train().decision_function(row)[0] for row in rows]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda row: found.decision_function(row)[0], rows)) == want


def test_a_given_matrix_wants_kernel_values_with_all_training_points():
    K = oracle.kernel_matrix("rbf", X, X, 0.5)
    found = svmcore.train_svc(K, Y, 2.0, kernel="precomputed")
    values = oracle.kernel_matrix("rbf", TEST, X, 0.5)
    assert found.decision_function(values) == pytest.approx(train().decision_function(TEST), abs=1e-9)
    refused("X has 4 kernel values a row; this machine was trained with 50", found.decision_function, TEST)


def test_test_points_are_checked():
    found = train()
    refused("X has 3 features a row; this machine was trained with 4", found.predict, TEST[:, :3])
    refused("X contains nan at row 0, column 2", found.predict, [[0.0, 0.0, np.nan, 0.0]])
    refused("X has 1 dimension", found.predict, TEST[0])


def test_regression_predicts_values():
    found = svmcore.train_svr(X, X[:, 0], 10.0, 0.01, kernel="linear", tol=1e-6)
    assert found.classes is None
    assert np.array_equal(found.predict(TEST), found.decision_function(TEST))
    assert np.array_equal(found.alpha[found.support], np.abs(found.dual_coef))
    assert "regression" in repr(found)


def test_no_support_vectors_is_an_answer():
    found = svmcore.train_svr(X, np.full(50, 3.0), 1.0, 0.1)
    assert len(found.support) == 0
    assert found.intercept == 3.0
    assert np.array_equal(found.predict(TEST), np.full(30, 3.0))
    again = stored(found)
    assert np.array_equal(again.predict(TEST), np.full(30, 3.0))


def test_repr_and_status_speak():
    found = train()
    assert repr(found).startswith("<Solution: classification, ")
    assert f"{len(found.support)} of 50 support vectors, small" in repr(found)
    assert "converged" in repr(found)
    assert str(found.status).startswith("converged: ")
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.intercept = 0.0


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("kernel", [*KERNELS, "precomputed"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_file_gives_the_same_machine(kernel, layout):
    if kernel == "precomputed":
        found, Z = svmcore.train_svc(X @ X.T, Y, kernel="precomputed"), TEST @ X.T
    else:
        found, Z = train(layout, kernel), TEST
    again = stored(found)
    assert np.array_equal(again.decision_function(Z), found.decision_function(Z))
    assert again.predict(Z).tolist() == found.predict(Z).tolist()
    for name in ("intercept", "objective", "primal_objective", "gap", "relative_gap", "kkt_violation", "status"):
        assert getattr(again, name) == getattr(found, name)
    for name in ("converged", "n_iter", "n_kernel_evals", "fit_seconds", "solver", "kernel", "n_features"):
        assert getattr(again, name) == getattr(found, name)
    assert np.array_equal(again.alpha, found.alpha)
    assert np.array_equal(again.support, found.support)
    assert repr(again) == repr(found)


@pytest.mark.parametrize("name", ["model", "model.npz", "model.svm"])
def test_a_name_is_taken_as_it_is(tmp_path, name):
    found = train()
    for path in (tmp_path / name, str(tmp_path / name)):
        found.save(path)
        assert np.array_equal(svmcore.load(path).alpha, found.alpha)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def frames() -> dict[str, object]:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    return {
        "object": pd.Series(Y.astype(object), dtype=object),
        "string": pd.Series(Y, dtype="string"),
        "default": pd.Series(Y.tolist()),
        "categorical": pd.Categorical(Y),
        "categorical series": pd.Series(Y, dtype="category"),
        "frame": pd.DataFrame({"y": Y}),
        "polars": pl.Series(Y.tolist()),
        "polars enum": pl.Series(Y.tolist(), dtype=pl.Enum(["yes", "no"])),
        "variable width": Y.astype(np.dtypes.StringDType()),
    }


@pytest.mark.parametrize("kind", list(frames()))
def test_labels_of_data_frames_are_strings(kind):
    labels = frames()[kind]
    found = svmcore.train_svc(X, labels)
    assert found.classes.dtype.kind == "U"
    again = stored(found)
    assert (
        again.predict(TEST).tolist() == found.predict(TEST).tolist() == svmcore.train_svc(X, Y).predict(TEST).tolist()
    )
    path = svmcore.svm_path(X, labels, lambda_min=0.5)
    assert stored(path).predict(TEST, 1.0).dtype.kind == "U"
    assert path.error_curve(X, labels)(1.0) == path.error_curve()(1.0)
    assert found.add(TEST[:1], np.array(["yes"], dtype=object)).classes.tolist() == ["no", "yes"]
    assert svmcore.leave_one_out(X, labels).error == svmcore.leave_one_out(X, Y).error


def test_labels_that_are_objects_cannot_be_saved():
    found = svmcore.train_svc(X, np.array([(3 if label == "yes" else 2) ** 70 for label in Y], dtype=object))
    refused("labels of Python object type cannot be saved", found.save, io.BytesIO())


@pytest.mark.parametrize("again", [lambda found: found, stored])
def test_a_machine_knows_its_problem(again):
    found = again(train("dense", "poly"))
    assert found.params == {
        "C": 2.0, "loss": "hinge", "kernel": "poly", "gamma": 0.5, "degree": 2, "coef0": 1.0, "standardize": False,
    }  # fmt: skip
    assert (found.C, found.epsilon, found.loss, found.gamma, found.kernel_name) == (2.0, None, "hinge", 0.5, "poly")
    assert "poly gamma=0.5 C=2" in repr(found)
    tube = again(svmcore.train_svr(X, X[:, 0], 3.0, 0.25, kernel="linear", loss="squared_epsilon_insensitive"))
    assert tube.params == {
        "C": 3.0, "epsilon": 0.25, "loss": "squared_epsilon_insensitive", "kernel": "linear", "standardize": False,
    }  # fmt: skip
    assert "regression, linear C=3 epsilon=0.25" in repr(tube)
    assert tube.gamma is None


@pytest.mark.filterwarnings("ignore:stationary")  # an indefinite kernel
def test_params_train_the_same_machine_again():
    found = svmcore.train_svc(X, Y, 3.0, kernel="sigmoid", gamma="auto", fit_intercept=False, intercept_scaling=0.5)
    again = svmcore.train_svc(X, Y, **found.params, fit_intercept=False)
    assert np.array_equal(found.alpha, again.alpha)
    assert svmcore.train_svc(X, Y, kernel=lambda A, B: A @ B.T).kernel_name == "callable"


def test_repr_computes_nothing():
    many = np.random.default_rng(0).normal(size=(300, 4))
    found = svmcore.train_svc(many, many[:, 0] > 0, solver="block")
    assert callable(found.measured)
    assert "relative gap" not in repr(found)
    assert callable(found.measured)
    gap = found.relative_gap
    assert f"relative gap {gap:.1e}" in repr(found)


DAMAGE = {
    "n": [np.array(0), np.array(-5), np.array(10**17), np.array(np.inf), np.array("many"), np.array(3)],
    "kernel": [
        np.zeros(3),
        np.array([99.0, 1.0, 0.0, 1.0, 0.0]),
        np.array([6.0, 1.0, 0.0, 1.0, 0.0]),
        np.full(5, np.nan),
    ],
    "numbers": [np.zeros(4), np.array(["a"] * 10)],
    "status": [np.array("FINE"), np.array(3)],
    "support": [np.array([0]), np.array([[0]]), np.array(["a"]), np.full(50, -1)],
    "dual_coef": [np.zeros(2), np.array("x")],
    "support_vectors": [np.zeros((2, 2)), np.zeros(7), np.array([["a"]])],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in DAMAGE.items() for value in values])
def test_a_damaged_field_is_refused(name, value):
    refused("is damaged", svmcore.load, packed(**{**parts_of(train()), name: value}))


@pytest.mark.parametrize(
    "name", ["kernel", "numbers", "n", "status", "solver", "support", "dual_coef", "support_vectors"]
)
def test_a_missing_field_is_refused(name):
    parts = parts_of(train())
    del parts[name]
    refused(f"is damaged: .*{name}", svmcore.load, packed(**parts))


def wrapping(starts):
    """Row starts far outside of the arrays, whose 32-bit differences wrap around to numbers that are not negative."""
    out = starts.astype(np.int32)
    out[1:3] = 2**30, -3 * 2**29
    assert (np.diff(out) >= 0).all()
    return out


def test_sparse_vectors_that_point_outside_are_refused():
    parts = parts_of(train("csr"))
    for change in (
        {"sv_indices": parts["sv_indices"] + 100},
        {"sv_indptr": parts["sv_indptr"][::-1]},
        {"sv_data": parts["sv_data"][:-1]},
        {"sv_indptr": wrapping(parts["sv_indptr"])},
    ):
        refused("is damaged", svmcore.load, packed(**{**parts, **change}))


def test_what_is_no_model_is_refused(tmp_path):
    for content in (b"", b"hello", b"PK\x03\x04 cut short"):
        (tmp_path / "model").write_bytes(content)
        refused(r"model is not a file that svmcore wrote", svmcore.load, tmp_path / "model")
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    refused("is not a file that this version of svmcore reads", svmcore.load, tmp_path / "other.npz")
    np.savez(tmp_path / "pickled.npz", format=np.array({"a": 1}, dtype=object))
    refused("is not a file that svmcore wrote", svmcore.load, tmp_path / "pickled.npz")
    with pytest.raises(FileNotFoundError):
        svmcore.load(tmp_path / "nothing.npz")
