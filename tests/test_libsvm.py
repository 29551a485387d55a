"""Models of LIBSVM, both ways, with LIBSVM itself as the judge where it is installed."""

from __future__ import annotations

import ctypes
import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept import stored
from refusals import refused
from scipy import sparse

import svmcore

pytestmark = pytest.mark.once

try:
    from libsvm import svmutil
except ImportError:
    svmutil = None

needs_libsvm = pytest.mark.skipif(svmutil is None, reason="libsvm-official is not installed")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 4)) * (RNG.random((90, 4)) < 0.7)
TEST = RNG.normal(size=(200, 4)) * (RNG.random((200, 4)) < 0.7)
CENTRES = np.array([[2.0, 0, 0, 0], [0, 2.0, 0, 0], [0, 0, 2.0, 0]])
NOISE = RNG.normal(size=90)
Y = {
    "two": np.where(X[:, 0] + X[:, 1] + 0.5 * NOISE > 0, 1, -1),
    "turned": np.where(X[:, 0] + X[:, 1] + 0.5 * NOISE > 0, -7, 3),
    "three": np.array([5, 2, 9])[np.argmin(((X[:, None] - CENTRES) ** 2).sum(axis=2) + NOISE[:, None] ** 2, axis=1)],
    "number": X[:, 0] - X[:, 2] + 0.1 * NOISE,
}
KERNELS = {"linear": "-t 0", "poly": "-t 1 -g 0.5 -d 2 -r 1", "rbf": "-t 2 -g 0.5", "sigmoid": "-t 3 -g 0.1 -r -0.2"}
TYPES = {
    "c_svc": ("-s 0 -c 2", "two"), "turned": ("-s 0 -c 2", "turned"), "c_svc of three": ("-s 0 -c 2", "three"),
    "nu_svc": ("-s 1 -n 0.4", "two"), "nu_svc of three": ("-s 1 -n 0.3", "three"), "one_class": ("-s 2 -n 0.2", "two"),
    "epsilon_svr": ("-s 3 -c 2 -p 0.05", "number"), "nu_svr": ("-s 4 -c 2 -n 0.4", "number"),
}  # fmt: skip


def theirs(model: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels and decision values by LIBSVM (whose own svm_predict has too little room for values of nu-SVC)."""
    k = model.get_nr_class()
    room = (ctypes.c_double * (k * k))()
    labels, values = [], []
    for row in rows:
        nodes, _ = svmutil.gen_svm_nodearray({j + 1: float(value) for j, value in enumerate(row) if value})
        labels.append(svmutil.libsvm.svm_predict_values(model, nodes, room))
        values.append(list(room)[: max(1, k * (k - 1) // 2)])
    return np.array(labels), np.array(values)


def agree(machine: Any, model: Any, rows: np.ndarray = TEST) -> None:
    """The same predictions, and the same values up to signs and rounding."""
    labels, values = theirs(model, rows)
    np.testing.assert_allclose(machine.predict(rows), labels, rtol=1e-9, atol=1e-9)
    if not isinstance(machine, svmcore.Machines):
        np.testing.assert_allclose(np.abs(machine.decision_function(rows)), np.abs(values[:, 0]), rtol=1e-7, atol=1e-9)


def trained(kind: str, kernel: str, folder: Path) -> tuple[Any, str]:
    """A model by LIBSVM, as its file says it (with eight digits)."""
    options, y = TYPES[kind]
    file = str(folder / "their.model")
    model = svmutil.svm_train(Y[y].tolist(), sparse.csr_matrix(X), f"{options} {KERNELS[kernel]} -q")
    svmutil.svm_save_model(file, model)
    return svmutil.svm_load_model(file), file


@needs_libsvm
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", TYPES)
def test_what_libsvm_trained_predicts_alike_here_and_back(kind, kernel, tmp_path):
    model, file = trained(kind, kernel, tmp_path)
    found = svmcore.load(file)
    agree(found, model)
    one = found.machines[0] if isinstance(found, svmcore.Machines) else found
    assert one.kernel_name == kernel
    found.save(tmp_path / "back.model", format="libsvm")
    agree(found, svmutil.svm_load_model(str(tmp_path / "back.model")))
    found.save(tmp_path / "own.npz")
    again = svmcore.load(tmp_path / "own.npz")
    np.testing.assert_array_equal(again.decision_function(TEST), found.decision_function(TEST))
    assert not found.converged
    assert "not known" in str(found.status)
    repr(found), found._repr_html_()


TRAIN = {
    "two": lambda **o: svmcore.train_svc(X, Y["two"], 3.0, **o),
    "turned": lambda **o: svmcore.train_svc(X, Y["turned"], 3.0, **o),
    "squared": lambda **o: svmcore.train_svc(X, Y["two"], 3.0, loss="squared_hinge", **o),
    "truth": lambda **o: svmcore.train_svc(X, Y["two"] > 0, 3.0, **o),
    "three": lambda **o: svmcore.train_classes(X, Y["three"], 3.0, **o),
    "tube": lambda **o: svmcore.train_svr(X, Y["number"], 3.0, 0.05, **o),
    "quantile": lambda **o: svmcore.train_svr(X, Y["number"], 3.0, loss="pinball", tau=0.8, **o),
    "one class": lambda **o: svmcore.train_one_class(X + 1.0, 0.3, tol=1e-6, **o),
    "nu": lambda **o: svmcore.train_svc(X, Y["two"], nu=0.4, **o),
}


@needs_libsvm
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("kind", TRAIN)
def test_what_was_trained_here_predicts_alike_there(kind, kernel, tmp_path):
    machine = TRAIN[kind](kernel=kernel, gamma=0.5, coef0=0.0)
    file = str(tmp_path / "our.model")
    machine.save(file, format="libsvm")
    agree(machine, svmutil.svm_load_model(file))
    again = svmcore.load(file)
    np.testing.assert_array_equal(again.predict(TEST), machine.predict(TEST))
    if kind != "three":
        np.testing.assert_allclose(
            again.decision_function(TEST), machine.decision_function(TEST), rtol=1e-10, atol=1e-12
        )
    assert again.support.size == machine.support.size


@needs_libsvm
@pytest.mark.parametrize("kind", ["two", "three"])
def test_precomputed_kernels(kind, tmp_path):
    K = X @ X.T + 1.0
    rows = [{0: i + 1, **{j + 1: float(v) for j, v in enumerate(row)}} for i, row in enumerate(K)]
    model = svmutil.svm_train(Y[kind].tolist(), rows, "-t 4 -c 2 -q")
    svmutil.svm_save_model(str(tmp_path / "their.model"), model)
    found = svmcore.load(tmp_path / "their.model")
    other = TEST @ X.T + 1.0
    tests = [{0: 1, **{j + 1: float(v) for j, v in enumerate(row)}} for row in other]
    labels, *_ = svmutil.svm_predict([0.0] * len(tests), tests, model, "-q")
    assert found.predict(other).tolist() == labels
    train = svmcore.train_classes if kind == "three" else svmcore.train_svc
    own = train(K, Y[kind], 2.0, kernel="precomputed")
    own.save(tmp_path / "our.model", format="libsvm")
    labels, *_ = svmutil.svm_predict(
        [0.0] * len(tests), tests, svmutil.svm_load_model(str(tmp_path / "our.model")), "-q"
    )
    assert own.predict(other).tolist() == labels


# ---- without LIBSVM --------------------------------------------------------------------------------------------------

MODEL = """svm_type c_svc
kernel_type rbf
gamma 0.5
nr_class 2
total_sv 3
rho 0.25
label 1 -1
nr_sv 1 2
SV
0.75 1:1 3:-2
-0.5 2:0.5
-0.25 1:3 2:1
"""


def test_a_model_is_the_sum_it_says():
    found = svmcore.load(io.BytesIO(MODEL.encode()))
    x = np.array([1.0, 1.0, 0.0])
    support = np.array([[1.0, 0.0, -2.0], [0.0, 0.5, 0.0], [3.0, 1.0, 0.0]])
    value = np.array([0.75, -0.5, -0.25]) @ np.exp(-0.5 * ((support - x) ** 2).sum(axis=1)) - 0.25
    assert found.decision_function([x])[0] == pytest.approx(value, rel=1e-12)
    assert found.classes.tolist() == [-1, 1]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "polynomial"])
def test_rows_may_be_wider_or_narrower_than_support_vectors(form, kernel):
    """Features that no support vector has count in distances, and only there."""
    text = MODEL.replace("kernel_type rbf", f"kernel_type {kernel}").replace(
        "gamma 0.5", "gamma 0.5\ndegree 2\ncoef0 1"
    )
    found = svmcore.load(io.BytesIO(text.encode()))
    support = np.array([[1.0, 0.0, -2.0, 0, 0], [0.0, 0.5, 0.0, 0, 0], [3.0, 1.0, 0.0, 0, 0]])
    for x in ([0.5, 1.0], [0.5, 1.0, 2.0], [0.5, 1.0, 2.0, 3.0, -0.25]):
        z = np.pad(x, (0, 5 - len(x)))
        values = {
            "rbf": np.exp(-0.5 * ((support - z) ** 2).sum(axis=1)), "linear": support @ z,
            "polynomial": (0.5 * support @ z + 1.0) ** 2,
        }[kernel]  # fmt: skip
        want = np.array([0.75, -0.5, -0.25]) @ values - 0.25
        assert found.decision_function(form([x]))[0] == pytest.approx(want, rel=1e-12)


def test_columns_that_are_not_there_take_no_memory():
    text = MODEL.replace("2:0.5", "2:0.5 99999999:2")
    found = svmcore.load(io.BytesIO(text.encode()))
    x = np.array([[1.0, 1.0, 0.0]])
    values = np.exp(-0.5 * np.array([5.0, 1.25 + 4.0, 4.0]))
    want = np.array([0.75, -0.5, -0.25]) @ values - 0.25
    for form in (np.asarray, sparse.csr_matrix):
        assert found.decision_function(form(x))[0] == pytest.approx(want, rel=1e-12)
    several = (
        text.replace("nr_class 2", "nr_class 3")
        .replace("rho 0.25", "rho 0.25 0 0")
        .replace("label 1 -1", "label 1 2 3")
    )
    several = (
        several.replace("nr_sv 1 2", "nr_sv 1 1 1").replace("\n0.75 ", "\n0.75 1 ").replace("\n-0.5 ", "\n-0.5 1 ")
    )
    several = several.replace("\n-0.25 ", "\n-0.25 -1 ")
    assert svmcore.load(io.BytesIO(several.encode())).predict(x).shape == (1,)


def test_features_may_be_numbered_from_0():
    ours = svmcore.load(io.BytesIO(MODEL.replace("1:3 2:1", "0:3 1:1").encode()))
    assert ours.columns.base == 0
    room = io.BytesIO()
    ours.save(room, format="libsvm")
    again = svmcore.load(io.BytesIO(room.getvalue()))
    assert again.columns.base == 0
    rows = RNG.normal(size=(9, ours.n_features))
    np.testing.assert_array_equal(again.decision_function(rows), ours.decision_function(rows))


DAMAGE = [
    ("svm_type c_svc", "svm_type d_svc", "is none of c_svc"),
    ("kernel_type rbf\n", "", "kernel_type is missing"),
    ("gamma 0.5\n", "", "gamma is missing"),
    ("gamma 0.5", "gamma inf", "line 3: gamma holds 'inf'"),
    ("nr_class 2", "nr_class 3", "rho has 1 numbers"),
    ("nr_class 2", "nr_class 1e9", "nr_class is out of range"),
    ("total_sv 3", "total_sv 4", "total_sv is 4, and there are 3"),
    ("label 1 -1", "label 1 1", "label does not name 2 different classes"),
    ("nr_sv 1 2", "nr_sv 2 2", "nr_sv does not add up"),
    ("1:3 2:1", "1:3 2:x", "line 12, column 13: 'x' is not a finite number"),
    ("SV\n", "VS\n", "line 9: 'VS' has no place"),
    ("SV\n", "colour red\nSV\n", "line 9: 'colour red' has no place"),
]


@pytest.mark.parametrize(("before", "after", "message"), DAMAGE)
def test_damaged_models_are_refused_with_the_place(before, after, message):
    assert before in MODEL
    refused(message, svmcore.load, io.BytesIO(MODEL.replace(before, after).encode()))


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (lambda: svmcore.train_svc(X, Y["two"], kernel="laplacian"), "no kernel 'laplacian'"),
        (lambda: svmcore.train_svc(X, Y["two"], standardize=True), "no place for the scaling"),
        (lambda: svmcore.train_svc(X, np.where(Y["two"] > 0, "a", "b")), "labels of LIBSVM are whole numbers"),
        (lambda: svmcore.train_classes(X, Y["three"], strategy="ovr"), 'strategy="ovo"'),
        (lambda: svmcore.train_svc(X, Y["two"], kernel=lambda A, B: A @ B.T), "no kernel 'callable'"),
    ],
)
def test_what_libsvm_has_no_place_for(machine, message):
    refused(message, machine().save, io.BytesIO(), format="libsvm")


def test_formats_have_names():
    refused("format='text'", svmcore.train_svc(X, Y["two"]).save, io.BytesIO(), format="text")


@pytest.mark.parametrize("kind", ["two", "three"])
def test_data_far_from_zero_keep_their_classes(kind):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 3))
    y = np.digitize(rows[:, 0] + 0.5 * rows[:, 1] ** 2, [-0.3, 0.6] if kind == "three" else [0.0])
    rows += 100.0
    machine = svmcore.train_classes(rows, y, 2.0, kernel="linear")
    read = stored(machine, format="libsvm")
    np.testing.assert_array_equal(read.predict(rows), machine.predict(rows))
    np.testing.assert_array_equal(machine.support_vectors, rows[machine.support])
    for one, other in zip(getattr(read, "machines", (read,)), machine, strict=True):
        values = other.decision_function(rows)
        np.testing.assert_allclose(one.decision_function(rows), values, atol=1e-8 * np.abs(values).max())


def test_time_stamps_keep_their_digits():
    """Weights of raw support vectors would lose all digits in sums of terms that cancel."""
    days = np.arange(40.0)[:, None]
    stamps = 1.7e9 + 86400.0 * days
    y = np.where(days[:, 0] > 19.5, 1, -1)
    machine = svmcore.train_svc(stamps, y, 1.0, kernel="linear")
    np.testing.assert_array_equal(machine.support_vectors, stamps[machine.support])
    assert machine.coef_[0] == pytest.approx(2.0 / 86400.0, rel=1e-6)
    np.testing.assert_array_equal(machine.predict(stamps), y)


@pytest.mark.compiled
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly", "linear"])
@pytest.mark.parametrize("classes", [2, 3])
def test_columns_that_hold_nothing_take_no_memory(kernel, classes):
    """A file of a few lines may name feature 2**31 - 1; an array as long as a row would take 16 GB."""
    rng = np.random.default_rng(0)
    X, Z = (sparse.random(n, 30, 0.3, format="csr", random_state=n) for n in (60, 90))
    train = svmcore.train_classes if classes > 2 else svmcore.train_svc
    machine = train(X, np.arange(60) % classes, kernel=kernel, gamma=0.5)
    width = 2**31 - 1
    place = np.sort(rng.choice(width, 30, replace=False))

    def spread(M):
        return sparse.csr_matrix((M.data, place[M.indices], M.indptr), shape=(M.shape[0], width))

    def wide(one):
        columns = dataclasses.replace(one.columns, count=width)
        return dataclasses.replace(one, support_vectors=spread(one.support_vectors), columns=columns)

    if classes > 2:
        far = dataclasses.replace(machine, machines=tuple(map(wide, machine.machines)))
    else:
        far = wide(machine)
    for rows in (Z, Z[:3]):
        np.testing.assert_array_equal(far.decision_function(spread(rows)), machine.decision_function(rows))


FOUR = np.array([7, 2, 9, 4])[np.random.default_rng(4).integers(0, 4, 90)]  # without a pattern, so that votes are tied


@needs_libsvm
@pytest.mark.parametrize("weight", ["", "-w9 3"], ids=["plain", "weighted"])
def test_tied_votes_go_to_the_class_that_they_go_to_there(weight, tmp_path, monkeypatch):
    from svmcore.cli import main

    monkeypatch.chdir(tmp_path)
    svmcore.save_data("four.txt", X, FOUR)
    options = f"-s 0 -t 2 -c 2 -g 0.5 -e 1e-6 {weight} -q"
    assert main(["train", *options.split(), "four.txt", "ours.model"]) == 0
    model = svmutil.svm_train(FOUR.tolist(), sparse.csr_matrix(X), options)
    svmutil.svm_save_model("theirs.model", model)
    label = [next(line for line in Path(name).read_text().splitlines() if line.startswith("label"))
             for name in ("ours.model", "theirs.model")]  # fmt: skip
    assert label[0] == label[1]
    expected = theirs(model, TEST)[0]
    assert np.array_equal(theirs(svmutil.svm_load_model("ours.model"), TEST)[0], expected)
    assert np.array_equal(svmcore.load("ours.model").predict(TEST), expected)
    sorted_one = svmcore.train_classes(X, FOUR, 2.0, gamma=0.5, tol=1e-6, class_weight={9: 3.0} if weight else None)
    assert not np.array_equal(sorted_one.predict(TEST), expected)  # or the order would not matter
