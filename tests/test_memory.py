"""What stays in memory after a fit, and that equal rows are told apart by their values."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import svmcore
from svmcore import parallel
from svmcore.cv.grams import Gram, Grams, WholeGram, part_for
from svmcore.kernel import spare, tiles
from svmcore.path import data
from svmcore.problem import border
from svmcore.solvers import block

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]


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


def train_wide(**options):
    X = np.random.default_rng(1).normal(size=(700, 60))
    return svmcore.train_svc(X, X[:, 0] + X[:, 1] > 0, solver="block", n_threads=1, **options)


def test_columns_leave_their_memory_to_the_next_fit(monkeypatch):
    monkeypatch.setattr(block, "SMALL_COSTLY", 300)  # more than one working set, so that columns are kept
    monkeypatch.setattr(block, "LEAST_BLOCK", 200)
    monkeypatch.setattr(tiles, "_KEPT_LEAST", 0)
    monkeypatch.setattr(tiles, "_KEPT_PER_FEATURE", 0)
    svmcore.release_memory()
    first = train_wide(C=10.0)
    kept = dict(spare.spare._buffers)
    assert sorted(kept) == ["columns", "gram"]
    assert 4 * 700 < kept["columns"][1] <= len(kept["columns"][0])
    again = train_wide(C=10.0)
    assert np.array_equal(again.alpha, first.alpha)
    assert spare.spare._buffers["columns"][0] is kept["columns"][0]
    train_wide(C=10.0, tol=1e-9)  # columns in double precision, too
    assert spare.spare._buffers["columns"][1] >= kept["columns"][1]
    assert np.array_equal(train_wide(C=10.0).alpha, first.alpha)
    written = sum(touched for _, touched in spare.spare._buffers.values())
    assert svmcore.release_memory() == 4 * written


def test_buffers_together_stay_below_the_limit(monkeypatch):
    monkeypatch.setattr(spare, "_KEPT_VALUES", 1000)
    kept, (one, other) = spare._Spare(), np.empty((2, 900), np.float32)
    kept.give("one", one, 600)
    kept.give("other", other, 500)
    assert kept.take("other", 10)[0] is not other
    kept.give("other", other, 400)
    buffer, written = kept.take("other", 900)
    assert buffer is other
    assert written == 400
    assert kept.take("one", 901)[1] == 0
    assert kept.clear() == 0


def test_buffers_of_earlier_work_make_way(monkeypatch):
    monkeypatch.setattr(spare, "_KEPT_VALUES", 1000)
    kept, (one, other, third) = spare._Spare(), np.empty((3, 900), np.float32)
    kept.give("one", one, 300)
    kept.give("other", other, 300)
    kept.take("third", 500)
    kept.give("third", third, 1001)  # too much by itself: nothing makes way
    assert sorted(kept._buffers) == ["one", "other"]
    kept.give("third", third, 600)
    assert sorted(kept._buffers) == ["other", "third"]  # one is enough, the oldest
    assert kept.take("one", 900)[1] == 0


def separated(n=150):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1)


def test_a_path_leaves_its_rows_to_the_next_one():
    X, y = separated()
    svmcore.release_memory()
    first = svmcore.svm_path(X, y, lambda_min=0.1)
    (use,) = spare.spare._buffers
    assert use == "rows"
    memory = spare.spare._buffers[use][0]
    memory[:] = np.nan  # whatever it holds, nobody reads it
    again = svmcore.svm_path(X, y, lambda_min=0.1)
    assert spare.spare._buffers[use][0] is memory
    assert np.allclose(again.alpha(2.0), first.alpha(2.0), rtol=1e-9, atol=1e-9)
    assert svmcore.release_memory() >= 8 * 150**2


def test_folds_share_memory_and_leave_it_to_the_next_cross_validation():
    X, y = separated()
    svmcore.release_memory()
    first = svmcore.cv_path(X, y, cv=3, C_max=10.0, n_jobs=1)
    kept = {use: buffer for use, (buffer, _) in spare.spare._buffers.items()}
    assert {"rows", "part"} <= set(kept)
    for use in ("rows", "part"):
        kept[use][:] = np.nan
    again = svmcore.cv_path(X, y, cv=3, C_max=10.0, n_jobs=1)
    assert spare.spare._buffers["part"][0] is kept["part"]
    at = np.geomspace(0.01, 10.0, 7)
    assert np.allclose(again.decision_scores(at), first.decision_scores(at), rtol=1e-7, atol=1e-7)


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
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(runs)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 6e6


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


def test_another_c_library_has_no_such_function(monkeypatch):
    for error in (OSError, TypeError, AttributeError):

        def fails(name, error=error):
            raise error

        monkeypatch.setattr(spare.ctypes, "CDLL", fails)
        assert spare._trim.__wrapped__() is None


def test_the_kernel_among_rows_of_a_fold():
    svmcore.release_memory()
    K = np.random.default_rng(3).normal(size=(20, 20))
    rows = np.array([1, 4, 5, 19])
    gram = WholeGram(K)
    with part_for(gram, rows) as one, part_for(gram, rows[:2]) as other:
        assert np.array_equal(one, K[np.ix_(rows, rows)])
        assert np.array_equal(other, K[np.ix_(rows[:2], rows[:2])])
        assert one.flags.c_contiguous
        assert not np.shares_memory(one, other)
    with part_for(gram, rows[1:]) as third:
        assert np.array_equal(third, K[np.ix_(rows[1:], rows[1:])])
        assert np.shares_memory(one, third)
    place = np.arange(20)[::-1].copy()
    with part_for(WholeGram(K[np.ix_(place, place)], place), rows) as placed:
        assert np.array_equal(placed, K[np.ix_(rows, rows)])
    with part_for(None, rows) as nothing:
        assert nothing is None


def test_a_matrix_that_is_sent_away_is_not_overwritten():
    X, _ = separated(20)
    for sent in (False, True):
        svmcore.release_memory()
        grams = Grams(X, 1, 1, np.zeros(len(X), dtype=np.int64))
        grams.announce(0.5, 1)
        gram = Gram(grams, 0.5, border.kernel("rbf", X, 0.5, 3, 0.0, 0.0))
        matrix = gram.__reduce__()[1][0] if sent else gram.get()
        if not sent:
            gram.release()
        assert np.allclose(np.diag(matrix.matrix), 1.0)
        assert ("rows" in spare.spare._buffers) is not sent


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
from svmcore.kernel import spare, tiles
from svmcore.kernel.matrix import KernelMatrix

rng = np.random.default_rng(0)
K = KernelMatrix(rng.normal(size=(3000, 4)), Kernel(int(KernelKind.RBF), 0.5, 0.0, 1, float(sys.argv[1])), cache_bytes=0)
tiles._BETWEEN_LOOKS = 1e6
seen = []

def look(done):
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    seen.append((done, pages * os.sysconf("SC_PAGE_SIZE") / (8 * 3000**2)))
    return True

tiles.exact_gram(K, lambda done: False)  # compiles
G = tiles.exact_gram(K, look)
done, memory = np.array(seen).T
assert len(done) > 20
assert np.abs(memory - memory[0] - done).max() < 0.1, memory
some = np.arange(0, 3000, 7)
np.testing.assert_allclose(G[some, :3000], K.rows(some), rtol=0.0, atol=1e-13)
assert tiles.exact_gram(K, lambda done: done < 0.5) is None
"""


@pytest.mark.compiled
@pytest.mark.skipif(sys.platform != "linux", reason="reads what the kernel of Linux says of memory")
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_a_gram_matrix_touches_memory_as_it_is_filled(offset):
    """Fresh memory costs time, which a time limit must see."""
    command = [sys.executable, "-c", FILLED, str(offset)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stderr


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
@pytest.mark.parametrize("options", [{"cache_mb": 4.0}, {"cache_mb": 4.0, "solver": "smo"}], ids=["together", "each"])
@pytest.mark.parametrize("strategy", ["ovo", "ovr"])
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
