"""Many threads of a program train, follow paths and ask shared machines at once: every bit is that of one after another.

Nothing relies on the interpreter's lock. Where Python has none, the same test runs without it.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from checkouts import ROOT, finish, start
from scipy.sparse import csr_matrix

import svmcore
from svmcore.base import threads as _threads

THREADS, FITS = 8, 50


def bits(*values) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(value).tobytes() for value in values)).hexdigest()


def problem(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, np.where(X[:, 0] * X[:, 1] + 0.3 * rng.standard_normal(n) > 0, 1, -1)


def fit(seed: int) -> str:
    """One fit; kernels, solvers, sizes and data take turns."""
    X, y = problem(seed, 30 + 17 * (seed % 11))
    kernel = ("rbf", "linear", "poly", "laplacian")[seed % 4]
    solver = ("auto", "smo", "block")[seed % 3]
    data = csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0)) if seed % 5 == 0 else X
    found = svmcore.train_svc(data, y, 10.0 ** (seed % 3), kernel=kernel, gamma=0.5, coef0=0.5, solver=solver)
    return bits(found.alpha, found.intercept, found.gap, found.decision_function(data))


class Shared:
    """Machines that all threads ask, and that have not been asked before."""

    def __init__(self) -> None:
        X, y = problem(1000, 200)
        self.X, self.labels = X, np.arange(200) % 3
        self.machine = svmcore.train_svc(X, y, 1.0, gamma=0.5)
        self.classes = svmcore.train_classes(X, self.labels, 1.0, gamma=0.5)
        self.path = svmcore.svm_path(X[:80], y[:80], gamma=0.5, C_max=100.0)

    def ask(self, seed: int) -> str:
        X = problem(seed, 90)[0]
        certificate = self.machine.certificate
        path = self.path.decision_function(X, [0.1, 1.0 + seed % 50, 50.0]), self.path.objective([0.5, 5.0])
        return bits(self.machine.decision_function(X), self.classes.predict(X), certificate.gap, *path)


def works(seeds: range, shared: Shared) -> Iterator[Callable[[], str]]:
    for seed in seeds:
        yield lambda seed=seed: fit(seed)
        if seed % 5 == 1:
            yield lambda seed=seed: shared.ask(seed)
        if seed % 10 == 2:
            X, y = problem(seed, 50)
            yield lambda X=X, y=y: bits(
                *(lambda path: (path.lambdas, path.alpha(3.0)))(svmcore.svm_path(X, y, gamma=0.5))
            )


@pytest.mark.compiled
def test_threads_find_the_bits_of_one_after_another():
    shares = [range(k * FITS, (k + 1) * FITS) for k in range(THREADS)]
    expected = [[work() for work in works(seeds, Shared())] for seeds in shares]
    shared, found = Shared(), [[] for _ in shares]
    together = threading.Barrier(THREADS)

    def run(k: int) -> None:
        together.wait()
        found[k] = [work() for work in works(shares[k], shared)]

    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run, args=(k,)) for k in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(often)
    assert found == expected


FIRST = """
import sys, threading
sys.setswitchinterval(1e-5)
import numpy as np
import svmcore
from svmcore.base import threads as _threads
X = np.random.default_rng(0).standard_normal((60, 3))
y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
together, found = threading.Barrier(4), []
def run():
    together.wait()
    found.append(svmcore.train_svc(X, y, 1.0).alpha.tobytes())
threads = [threading.Thread(target=run) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(found), len(set(found)))
"""


@pytest.mark.ci
@pytest.mark.compiled
def test_threads_may_be_the_first_to_compile(tmp_path):
    assert finish(start(FIRST, ROOT, tmp_path)) == "4 1\n"


@pytest.mark.parametrize("cut", [_threads.split, _threads.split_falling])
@pytest.mark.parametrize("work", [1e9, _threads.WORTH_A_THREAD, np.inf])
@pytest.mark.parametrize("count", [0, 1, 5, 100])
def test_ranges_are_taken_once_each_though_every_other_thread_is_busy(cut, count, work):
    pool, busy, go = (
        _threads._shared_pool(),
        threading.Barrier(_threads._shared_pool()._max_workers + 1),
        threading.Event(),
    )

    def blocked():
        busy.wait(60)
        go.wait(60)

    others = [pool.submit(blocked) for _ in range(pool._max_workers)]
    busy.wait(60)
    taken = []
    try:
        cut(lambda first, last: taken.extend(range(first, last)), count, work, 3)
    finally:
        go.set()
    for other in others:
        other.result()
    assert taken == list(range(count))


def test_an_error_in_a_range_ends_the_others():
    begun = []

    def run(first, last):
        begun.append(first)
        raise ValueError(first)

    with pytest.raises(ValueError, match=r"^\d+$"):
        _threads.split(run, 100, 1e12, 2)
    assert len(begun) <= 2
