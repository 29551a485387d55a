"""What stays in memory after a fit, and that equal rows are told apart by their values."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from checkouts import ran
from scipy import sparse

import svmcore
from svmcore.base import parallel
from svmcore.kernel import spare
from svmcore.path import data

pytestmark = pytest.mark.once


def train(n=500):
    X = np.random.default_rng(0).normal(size=(n, 30))
    return svmcore.train_svc(X, X[:, 0] * X[:, 1] > 0, solver="block")


def test_a_fit_leaves_one_buffer_behind_that_can_be_given_back():
    svmcore.release_memory()
    first = train()
    assert list(spare.spare._buffers) == ["gram"]
    freed = svmcore.release_memory()
    assert 4 * 500 * 500 <= freed <= 4 * spare._KEPT_VALUES
    assert not spare.spare._buffers
    assert svmcore.release_memory() == 0
    assert np.array_equal(train().alpha, first.alpha)
    assert svmcore.release_memory() == freed


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_of_an_array_is_handed_on_when_its_last_view_is_gone():
    svmcore.release_memory()
    first = spare.lent("use", (600, 500))
    place, view = address(first), first[1:, :3]
    assert place % 64 == 0
    assert first.flags.writeable
    del first
    assert "use" not in spare.spare._buffers
    del view
    assert spare.spare._buffers["use"][1] == 2 * 600 * 500 + 16
    again = spare.lent("use", (500, 1000), np.float32)  # half as large, of another type
    assert address(again) == place
    more = spare.lent("use", (700, 500))  # at the same time
    assert not np.shares_memory(again, more)
    del again, more
    assert spare.spare._buffers["use"][1] == 2 * 700 * 500 + 16  # of two the larger one
    huge = spare.lent("use", (9 * 700, 500))
    del huge
    modest = spare.lent("use", (600, 500))  # does not sit on all of that for as long as it lives
    assert len(modest.base.base._back.args[1]) == 2 * 600 * 500 + 16
    with spare.spare._lock:  # memory that dies while somebody looks through the buffers is let go
        del modest
    assert spare.spare._buffers["use"][1] == 2 * 9 * 700 * 500 + 16
    assert spare.lent("use", (3, 4)).flags.owndata  # not worth it
    svmcore.release_memory()


def test_fits_hand_on_the_memory_of_converted_points_without_the_garbage_collector():
    svmcore.release_memory()
    X = np.random.default_rng(0).normal(size=(1400, 200)).astype(np.float32)
    y = X[:, 0] * X[:, 1] > 0
    gc.collect()
    gc.disable()
    try:
        machine = svmcore.train_svc(X, y, 10.0, tol=1e-4, solver="block", n_threads=1)
        alpha = machine.alpha
        del machine
        kept = {use: address(buffer) for use, (buffer, _) in spare.spare._buffers.items()}
        assert {"points", "panels", "packed"} <= kept.keys()
        machine = svmcore.train_svc(X, y, 10.0, tol=1e-4, solver="block", n_threads=1)
        assert np.array_equal(machine.alpha, alpha)
        del machine
        assert kept.items() <= {use: address(buffer) for use, (buffer, _) in spare.spare._buffers.items()}.items()
    finally:
        gc.enable()
    svmcore.release_memory()


GROWTH = """
import sys, warnings
import numpy as np
import svmcore
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 5))
y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=60) > 0, 1, -1)
def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
after = []
for k in range(int(sys.argv[1])):
    svmcore.cv_path(X, y, cv=3, C_max=10.0, n_jobs=2)
    after.append(held())
print(min(after[-20:]) - after[4])  # what comes back within a few runs has not grown
"""


@pytest.mark.ci
@pytest.mark.compiled
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for the memory of a process")
@pytest.mark.parametrize("runs", [120, pytest.param(500, marks=pytest.mark.slow)])
def test_cross_validations_side_by_side_do_not_grow(runs):
    """What threads leave free in their heaps goes back to the system: without that it is 15 to 30 MB by then, and more."""
    assert int(ran(GROWTH, runs)[0]) < 6e6


@pytest.mark.parametrize("with_joblib", [True, False])
def test_free_memory_goes_back_where_it_can(monkeypatch, with_joblib):
    asked = []
    monkeypatch.setattr(spare, "_trim", lambda: asked.append)
    svmcore.release_memory()
    assert asked == [0]
    if not with_joblib:
        monkeypatch.setattr(parallel, "_joblib", lambda: None)
    assert list(parallel.run_all(abs, [(-1,), (-2,), (-3,)], 2)) == [1, 2, 3]
    assert asked == [0, 0]
    assert list(parallel.run_all(abs, [(-1,)], None)) == [1]
    assert asked == [0, 0]
    monkeypatch.setattr(spare, "_trim", lambda: None)  # another C library
    assert svmcore.release_memory() == 0


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_rows_are_merged_by_their_values_and_never_by_a_hash(layout, monkeypatch):
    monkeypatch.setattr(data, "hash", lambda _: 7, raising=False)  # every row collides
    X = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 1.0], [-0.0, 1.0], [3.0, 0.0], [0.0, 2.0]])
    y = np.array([1, 1, 1, -1, -1, -1])
    path = svmcore.svm_path(layout(X), y, gamma=1.0, lambda_min=0.1)
    assert path._data.groups.of.tolist() == [0, 1, 0, 2, 3, 4]


def test_stored_zeros_and_any_order_of_entries_are_no_difference():
    rows = sparse.csr_matrix(([1.0, 2.0, 2.0, 1.0, 0.0, 5.0], [0, 1, 1, 0, 2, 0], [0, 2, 5, 6]), shape=(3, 3))
    path = svmcore.svm_path(rows, [1, 1, -1], gamma=1.0, lambda_min=0.1)
    assert path._data.groups.of.tolist() == [0, 0, 1]


# In a process of its own: in an older one, memory may have been touched before.
FILLED = """
import os, sys
from pathlib import Path
import numpy as np
from svmcore._types import Kernel, KernelKind
from svmcore.cv.grams import Gram, Grams, WholeGram, part_for
from svmcore.kernel import spare, whole
from svmcore.kernel.matrix import KernelMatrix

rng = np.random.default_rng(0)
K = KernelMatrix(rng.normal(size=(3000, 4)), Kernel(int(KernelKind.RBF), 0.5, 0.0, 1, float(sys.argv[1])), cache_bytes=0)
whole._BETWEEN_LOOKS = 1e6
seen = []

def look(done):
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    seen.append((done, pages * os.sysconf("SC_PAGE_SIZE") / (8 * 3000**2)))
    return True

whole.exact_gram(K, lambda done: False)  # compiles
G = whole.exact_gram(K, look)
done, memory = np.array(seen).T
assert len(done) > 20
assert np.abs(memory - memory[0] - done).max() < 0.1, memory
some = np.arange(0, 3000, 7)
np.testing.assert_allclose(G[some, :3000], K.rows(some), rtol=0.0, atol=1e-13)
assert whole.exact_gram(K, lambda done: done < 0.5) is None
"""


@pytest.mark.compiled
@pytest.mark.skipif(sys.platform != "linux", reason="reads what the kernel of Linux says of memory")
@pytest.mark.parametrize("offset", [pytest.param(0.0, marks=pytest.mark.ci), 1.0])
def test_a_gram_matrix_touches_memory_as_it_is_filled(offset):
    """Fresh memory costs time, which a time limit must see."""
    ran(FILLED, offset)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("follow", [svmcore.svm_path, svmcore.svr_path])
def test_a_path_owns_its_points(layout, follow):
    rng = np.random.default_rng(0)
    X = layout(rng.normal(size=(40, 2)))
    y = np.where(rng.random(40) > 0.5, 1.0, -1.0)
    new = rng.normal(size=(5, 2))
    path = follow(X, y, gamma=0.5, lambda_min=0.1)
    before = path.decision_function(new, 3.0) if follow is svmcore.svm_path else path.predict(new, 3.0)
    if sparse.issparse(X):
        X.data[:] = 0.0
    else:
        X[:] = 0.0
    after = path.decision_function(new, 3.0) if follow is svmcore.svm_path else path.predict(new, 3.0)
    assert np.array_equal(before, after)
    assert path.at(3.0).kkt_violation < 1e-6


def peak_of(k, **options):
    """What training so many classes of the same rows takes at most, in bytes, and the machines."""
    rng = np.random.default_rng(0)
    y = np.arange(1200) % k
    X = rng.normal(size=(1200, 3)) + 2.0 * rng.normal(size=(k, 3))[y]
    svmcore.train_classes(X, y, n_threads=1, **options)  # what is made once only is no part of it
    svmcore.release_memory()
    gc.collect()
    tracemalloc.start()
    try:
        machines = svmcore.train_classes(X, y, n_threads=1, **options)
        return tracemalloc.get_traced_memory()[1], machines
    finally:
        tracemalloc.stop()


@pytest.mark.compiled
@pytest.mark.parametrize(
    "options",
    [{"cache_mb": 4.0}, pytest.param({"cache_mb": 4.0, "solver": "smo"}, marks=pytest.mark.ci)],
    ids=["together", "each"],
)
@pytest.mark.parametrize("strategy", ["ovo", pytest.param("ovr", marks=pytest.mark.ci)])
def test_all_machines_of_several_classes_share_one_cache(strategy, options):
    """66 machines take no more than three do, but for what they are: support vectors, coefficients, a few numbers."""
    few, _ = peak_of(3, strategy=strategy, **options)
    many, machines = peak_of(12, strategy=strategy, **options)
    assert len(machines) == (66 if strategy == "ovo" else 12)
    assert {machine.solver for machine in machines} == {options.get("solver", "block")}
    answers = sum(6000 + 8 * (3 + 2) * machine.support.size for machine in machines)
    assert many <= few + answers + 2e5
    assert many <= 4e6 + answers + 100 * 8 * 1200  # vectors of the points' length
    assert not any("alpha" in vars(machine) for machine in machines)
    assert machines.machines[5].alpha.sum() == pytest.approx(np.abs(machines.machines[5].dual_coef).sum())
