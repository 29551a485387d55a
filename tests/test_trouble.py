"""Trouble from outside: processes that are killed, full disks, no more memory, Ctrl-C; and data at the edge."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from checkouts import PROGRAM, ROOT, checkout, files, finish, finish_all, posix, ran, start
from refusals import refused
from warned import heard, quiet

import svmcore
from svmcore.compiler import files as _files
from svmcore.distributed import train_linear, train_svc

pytestmark = pytest.mark.once

# ---- machine code ----------------------------------------------------------------------------------------------------

FIT = """
import numpy as np, svmcore
X = np.random.default_rng(0).standard_normal((60, 3))
machine = svmcore.train_svc(X, X[:, 0] * X[:, 1] > 0, 1.0, gamma=0.5, solver="block")
print(repr(float(machine.objective)))
"""


@posix
@pytest.mark.compiled
@pytest.mark.parametrize(
    ("program", "count"),
    [
        pytest.param(PROGRAM, 3, marks=pytest.mark.ci),
        pytest.param(PROGRAM, 50, marks=pytest.mark.slow),
        pytest.param(FIT, 50, marks=pytest.mark.slow),
    ],
)
def test_a_process_that_is_killed_while_it_compiles_leaves_no_harm(tmp_path, program, count):
    root = checkout(tmp_path) if program is PROGRAM else ROOT
    cache, rng = tmp_path / "cache", random.Random(0)
    begin = time.perf_counter()
    expected = finish(start(program, root, tmp_path / "other")).split()[0]
    longest = time.perf_counter() - begin
    for _ in range(count):
        process = start(program, root, cache)
        time.sleep(longest * rng.random())
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert all(_files.read(file) is not None for file in files(cache))  # whole, or not there
    assert [finish(start(program, root, cache)).split()[0] for _ in range(2)] == [expected] * 2


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 kB, which a few functions fill."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run([mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True)
    if not made or made.returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.ci
@posix
@pytest.mark.compiled
@pytest.mark.parametrize("count", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_cold_processes_on_a_full_disk(small_disk, tmp_path, count):
    expected = finish(start(FIT, ROOT, tmp_path / "cache"))
    assert finish_all([start(FIT, ROOT, small_disk) for _ in range(count)]) == [expected] * count
    assert all(_files.read(file) is not None for file in files(small_disk))
    assert list(small_disk.rglob(f"*{_files.UNFINISHED}")) == []


# ---- memory ----------------------------------------------------------------------------------------------------------

HUNGRY = """
import resource, sys, warnings
import numpy as np
import svmcore
from svmcore import distributed, estimators
warnings.simplefilter("ignore")
n = int(sys.argv[1])
X = np.random.default_rng(0).normal(size=(n, 20))
y, t, k = np.where(X[:, 0] * X[:, 1] > 0, 1, -1), X[:, 0], np.digitize(X[:, 0], [-0.5, 0.5])
few = slice(0, 150)
machine = svmcore.train_svc(X[few], y[few])
calls = {
    "rbf": lambda: svmcore.train_svc(X, y), "smo": lambda: svmcore.train_svc(X, y, solver="smo"),
    "interior": lambda: svmcore.train_svc(X, y, solver="interior"), "own": lambda: svmcore.train_svc(X, y, kernel=np.inner),
    "adatron": lambda: svmcore.train_svc(X, y, solver="adatron", fit_intercept=False, max_iter=9000),
    "precomputed": lambda: svmcore.train_svc(X @ X.T, y, kernel="precomputed"), "svr": lambda: svmcore.train_svr(X, t),
    "nu": lambda: svmcore.train_svc(X, y, nu=0.3), "one class": lambda: svmcore.train_one_class(X),
    "classes": lambda: svmcore.train_classes(X, k).predict(X), "predict": lambda: machine.predict(X),
    "many": lambda: svmcore.train_many(X, np.stack([y, -y], axis=1)), "gp": lambda: svmcore.gp_regression(X, t, noise=0.1),
    "cholesky": lambda: svmcore.gp_regression(X, t, noise=0.1, solver="cholesky"),
    "path": lambda: svmcore.svm_path(X, y, C_max=0.01), "svr path": lambda: svmcore.svr_path(X, t, C_max=0.01),
    "cv": lambda: svmcore.cv_path(X, y, cv=3, C_max=0.01), "parts": lambda: distributed.train_svc(X, y, parts=3),
    "linear parts": lambda: distributed.train_linear(X, y, parts=3),
    "SVC": lambda: estimators.SVC().fit(X, y).predict(X), "loo": lambda: svmcore.leave_one_out(X[few], y[few]),
    "certificate": lambda: svmcore.certificate(X, y, np.full(n, 0.1), 0.0),
    "error curve": lambda: svmcore.svm_path(X[few], y[few]).error_curve(X, y),
}
names = sys.argv[3:] or list(calls)
def size():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * 4096
def limited(extra):
    resource.setrlimit(resource.RLIMIT_AS, (int(size() + extra), resource.RLIM_INFINITY) if extra else (-1, -1))
for name in names:
    calls[name]()  # compiles
for extra in [float(word) for word in sys.argv[2].split(",")]:
    for name in names:
        svmcore.release_memory()
        limited(1e6 * extra)
        try:
            calls[name]()
            said = "done"
        except MemoryError as error:
            said = f"{type(error).__name__} {error}"
        limited(0)
        print(name, "|", said, flush=True)
again = svmcore.train_svc(X[few], y[few])
print("end |", "done" if again.objective == machine.objective else "another answer")
"""


@pytest.mark.ci
@pytest.mark.compiled
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for the memory of a process")
@pytest.mark.parametrize(
    ("n", "extra", "names"),
    [
        (1500, "1", ("precomputed", "cholesky", "predict")),
        pytest.param(2500, "1,20,60,120", (), marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_no_more_memory_is_a_sentence_and_not_the_end(n, extra, names):
    said = [line.split(" | ", 1) for line in ran(HUNGRY, n, extra, *names)[0].splitlines()]
    assert said[-1] == ["end", "done"]
    kinds = {words.split(" ", 1)[0] for _, words in said}
    assert kinds <= {"done", "NotEnoughMemoryError", "MemoryError"}
    assert {name for name, words in said if "NotEnoughMemoryError" in words} >= {"cholesky"}
    for _, words in said:
        assert words == "done" or "allocate" in words or "memory" in words.partition(" ")[2]


# ---- Ctrl-C ----------------------------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys, threading, time, warnings
import numpy as np
import svmcore
signal.signal(signal.SIGINT, signal.default_int_handler)
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(500, 8))
y = np.where(X[:, :2].sum(axis=1) + rng.normal(size=500) > 0, 1, -1)
k = np.digitize(X[:, 0] + 0.3 * rng.normal(size=500), [-0.5, 0.5])
two, three = (svmcore.cv_path(X, labels, gamma=0.05, C_max=10.0) for labels in (y, k))
calls = {
    "calibrate": lambda: two.calibrate("venn-abers", 4.4).predict_proba(X[:9]),
    "calibrate several": lambda: three.calibrate("sigmoid", 4.4).predict_proba(X[:9]),
    "classes": lambda: svmcore.train_classes(X, k, 1e5, gamma=0.05, tol=1e-9).decision_function(X[:9]),
    "cv of classes": lambda: svmcore.cv_path(X, k, gamma=0.05, C_max=10.0, n_jobs=2).error(1.0),
    "search": lambda: svmcore.cv_path(X[:150], y[:150], gamma="search", C_max=10.0).error(1.0),
}
for name, call in calls.items():
    begin = time.perf_counter()
    whole = call()
    longest = time.perf_counter() - begin
    for _ in range(int(sys.argv[1])):
        after, kept, stopped = longest * rng.random(), None, False
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                begin = time.perf_counter()
                kept = call()
                timer.join()
                time.sleep(0.01)  # the signal is heard here if it came too late
            except KeyboardInterrupt:
                stopped = True
        waited = time.perf_counter() - begin - after
        stopped |= any("interrupted" in str(each.message) for each in caught)
        right = stopped or np.array_equal(kept, whole)
        print(name, "|", right, signal.getsignal(signal.SIGINT) is signal.default_int_handler, waited, flush=True)
    print(name, "|", np.array_equal(call(), whole), True, 0.0, flush=True)  # nothing half-done was kept
"""


@pytest.mark.ci
@posix
@pytest.mark.compiled
@pytest.mark.parametrize("count", [1, pytest.param(25, marks=pytest.mark.slow)])
def test_ctrl_c_at_any_moment_of_calibrations_and_classes(count):
    lines = [line.split(" | ") for line in ran(INTERRUPTED, count)[0].splitlines()]
    assert len(lines) == 5 * (count + 1)
    for name, said in lines:
        right, held, waited = said.split()
        assert (right, held) == ("True", "True"), name
        assert float(waited) < 3.0, name  # what a loaded machine may take


# ---- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("train", [train_linear, train_svc])
def test_a_checkpoint_of_any_round_leads_to_the_same_answer(tmp_path, train, count):
    """And one that was cut anywhere, or in which a byte is another, is refused or leads there, too."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 4))
    y = np.where(X[:, 0] + np.sin(3.0 * X[:, 1]) + 0.5 * rng.normal(size=400) > 0, 1, -1)
    words = {"parts": 3, "C": 10.0, "tol": 1e-6} | ({"working_set": 60} if train is train_svc else {})
    whole = train(X, y, **words)
    file = tmp_path / "run.npz"
    for k in range(count):
        file.unlink(missing_ok=True)
        with quiet(svmcore.ConvergenceWarning):
            train(X, y, **words, checkpoint=file, callback=lambda report, k=k: report.n_iter >= 1 + k % 5)
        if not file.exists():  # over before the first round was
            continue
        content = file.read_bytes()
        rest = train(X, y, **words, checkpoint=file)
        assert rest.converged
        assert abs(rest.objective - whole.objective) <= 1e-5 * abs(whole.objective)
        place = int(rng.integers(len(content)))
        for damaged in (content[:place], content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]):
            file.write_bytes(damaged)
            try:
                rest = train(X, y, **words, checkpoint=file)
            except svmcore.InputError as error:
                assert "checkpoint" in str(error)  # noqa: PT017  (it may be no error at all)
            else:
                assert abs(rest.objective - whole.objective) <= 1e-5 * abs(whole.objective)


# ---- nu at its ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 120), marks=pytest.mark.slow)])
def test_nu_at_its_ends_with_classes_of_different_size(seeds):
    """An answer that is right by its certificate, one that says what it lacks, or the sentence that names the end."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(6, 60))
        few = int(rng.integers(1, max(2, n // 5)))
        X, y = rng.normal(size=(n, 2)), np.repeat([1, -1], [few, n - few])
        weights = None if seed % 2 else rng.uniform(0.1, 2.0, size=n)
        mass = np.ones(n) if weights is None else weights
        most = 2.0 * min(mass[:few].sum(), mass[few:].sum()) / mass.sum()
        for nu in (most * (1.0 - 1e-6), most, most * 1.01, 0.5 * most, 1e-6, 1e-12, 1e-300):
            with heard() as caught:
                try:
                    found = svmcore.train_svc(X, y, nu=nu, sample_weight=weights)
                except svmcore.InputError as error:
                    assert "nu" in str(error)  # noqa: PT017
                    assert nu > most * (1.0 - 1e-9) or nu <= 1e-6
                    continue
            assert nu <= most * (1.0 + 1e-9)
            assert np.isfinite(found.intercept)
            assert caught or (found.converged and found.relative_gap < 0.05)
        with quiet(svmcore.ConvergenceWarning):
            for nu in (1.0, 1.0 / n, 1e-12):
                assert np.isfinite(svmcore.train_one_class(X, nu=nu, sample_weight=weights).intercept)


# ---- the types of pandas ---------------------------------------------------------------------------------------------


def test_nullable_types_are_the_numbers_and_labels_they_hold():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    values, whole = np.round(rng.normal(size=24), 2), rng.integers(-9, 9, size=24)
    y = np.arange(24) % 3 > 0
    frame = pandas.DataFrame(
        {"a": pandas.array(values, "Float64"), "b": pandas.array(whole, "Int64"), "c": pandas.array(y, "boolean")}
    )
    plain = np.stack([values, whole, y], axis=1).astype(float)
    known = svmcore.train_svc(plain, y).decision_function(plain)
    machine = svmcore.train_svc(frame, y)
    assert machine.feature_names == ("a", "b", "c")
    assert np.array_equal(machine.decision_function(frame[["c", "a", "b"]]), known)
    words = np.where(y, "yes", "no")
    for labels, kinds in [
        (y.astype(int), ["Int64", "Int8", "Float64"]), (y, ["boolean"]), (words, ["string", "category", "str"]),
    ]:  # fmt: skip
        for kind in kinds:
            series = pandas.Series(labels, index=np.arange(24)[::-1]).astype(kind)
            for train in (svmcore.train_svc, svmcore.train_classes, train_linear):
                found = train(plain, series)
                assert found.classes.tolist() == np.unique(labels).tolist()
    target = pandas.array(values, "Float64")
    assert svmcore.train_svr(plain, target).objective == svmcore.train_svr(plain, values).objective
    share = pandas.array(1 + whole % 3, "Int64")
    weighted = svmcore.train_svc(plain, y, sample_weight=share)
    assert weighted.objective == svmcore.train_svc(plain, y, sample_weight=1.0 + whole % 3).objective


@pytest.mark.parametrize("kind", ["Float64", "Int64", "boolean", "string", "category"])
def test_a_value_that_pandas_calls_missing_has_a_place(kind):
    pandas = pytest.importorskip("pandas")
    X = np.random.default_rng(0).normal(size=(24, 2))
    y = (X[:, 0] > 0).astype(int)
    series = pandas.Series(y.astype(str) if kind in ("string", "category") else y).astype(kind)
    series[5] = pandas.NA
    for train in (svmcore.train_svc, svmcore.train_classes, svmcore.svm_path, svmcore.cv_path, train_linear):
        refused(r"y.* at row 5", train, X, series)
    if kind in ("string", "category"):
        return
    frame = pandas.DataFrame({"a": X[:, 0], "b": series})
    for train in (svmcore.train_svc, svmcore.train_svr, svmcore.cv_path):
        refused(r"X (contains nan|has a missing value) at row 5, column 'b'", train, frame, y)
    refused(r"y .* at row 5", svmcore.train_svr, X, series)
    refused(r"sample_weight .* at row 5", svmcore.train_svc, X, y, sample_weight=series)
