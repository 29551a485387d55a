"""Cross-validation by threads and by processes: the same bits, one progress, one Ctrl-C."""

from __future__ import annotations

import pickle
import threading
import time

import numpy as np
import pytest
from test_cv import noisy

import svmcore
from svmcore.cv import progress as progress_room
from svmcore.cv.progress import SharedProgress

pytestmark = pytest.mark.compiled  # whole paths and fits: minutes without

FORMS = [
    {"gamma": 0.3},
    {"gamma": [0.1, 0.3]},
    {"gamma": 0.3, "standardize": True},
    {"kernel": "linear", "C_max": 10.0},
    {"gamma": 0.3, "score": "auc"},
    {"gamma": 0.3, "classes": "ovr"},
    {"kernel": "precomputed"},
]


def assert_same(one, many):
    C = 0.7 * one.C_range[1]
    np.testing.assert_array_equal(one.breakpoints, many.breakpoints)
    np.testing.assert_array_equal(one.values, many.values)
    np.testing.assert_array_equal(one.decision_scores(C), many.decision_scores(C))
    assert one.stats["n_paths"] == many.stats["n_paths"] == one.stats["n_planned"]


@pytest.mark.parametrize("n_jobs", [2, -1])
def test_number_of_workers_changes_nothing(n_jobs):
    X, y = noisy()
    assert_same(svmcore.cv_path(X, y, gamma=0.3), svmcore.cv_path(X, y, gamma=0.3, n_jobs=n_jobs))


def test_workers_without_joblib_give_the_same(monkeypatch):
    from svmcore.base import parallel

    X, y = noisy()
    one = svmcore.cv_path(X, y, gamma=0.3)
    monkeypatch.setattr(parallel, "_joblib", lambda: None)
    assert_same(one, svmcore.cv_path(X, y, gamma=0.3, n_jobs=3))


def test_processes_give_the_same_bits():
    joblib = pytest.importorskip("joblib")
    X, y = noisy(120)
    for form in FORMS:
        points, labels = X, y
        if form.get("classes"):
            labels = np.where(X[:, 1] > 0.7, "third", y)
        if form.get("kernel") == "precomputed":
            points = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
        one = svmcore.cv_path(points, labels, cv=3, **form)
        with joblib.parallel_backend("loky", n_jobs=2):
            assert_same(one, svmcore.cv_path(points, labels, cv=3, **form))


def test_backends_that_hand_over_all_results_at_once_serve_too(monkeypatch):
    """As joblib's "multiprocessing" does."""
    joblib = pytest.importorskip("joblib")
    monkeypatch.setattr(joblib.parallel.BACKENDS["loky"], "supports_return_generator", False)
    X, y = noisy(60)
    with joblib.parallel_backend("loky", n_jobs=2):
        many = svmcore.cv_path(X, y, cv=3, gamma=0.3, C_max=10.0)
    assert_same(svmcore.cv_path(X, y, cv=3, gamma=0.3, C_max=10.0), many)


def test_large_matrices_reach_processes_as_files():
    """Beyond a megabyte joblib maps arrays into the memory of its processes."""
    joblib = pytest.importorskip("joblib")
    X, y = noisy(400)
    with joblib.parallel_backend("loky", n_jobs=2):
        many = svmcore.cv_path(X, y, cv=3, gamma=0.3, C_max=10.0)
    assert_same(svmcore.cv_path(X, y, cv=3, gamma=0.3, C_max=10.0), many)


@pytest.mark.parametrize("n_classes", [1, 2, 5])
def test_a_matrix_can_be_sent_on(n_classes):
    from svmcore.cv.grams import Gram, Grams
    from svmcore.problem import border

    X, _ = noisy(60)
    codes = np.random.default_rng(0).integers(0, n_classes, len(X))
    grams = Grams(X, 1, 1, codes)
    grams.announce(0.3, 2)
    gram = Gram(grams, 0.3, border.kernel("rbf", X, 0.3, 3, 0.0, 0.0))
    rows, columns = np.array([5, 0, 17]), np.arange(59, -1, -1)
    part = gram.get().part(rows, columns).copy()
    np.testing.assert_allclose(part, np.exp(-0.3 * ((X[rows, None] - X[columns]) ** 2).sum(-1)), rtol=1e-12)
    sent = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(gram))))
    np.testing.assert_array_equal(sent.get().part(rows, columns), part)
    np.testing.assert_array_equal(gram.get().part(rows, columns), part)


def until(condition):
    end = time.perf_counter() + 600.0
    while not condition():
        assert time.perf_counter() < end
        time.sleep(0.01)


def test_a_copy_in_another_process_says_how_far_it_is_and_hears_the_end():
    reports = []
    with SharedProgress(None, lambda report: reports.append(report) and False, 0) as progress:
        progress.more(3)
        copy = pickle.loads(pickle.dumps(progress))
        assert not copy.at(1, 0.75)
        until(lambda: reports and reports[-1].done == 0.25)
        progress.more(2)  # a further round, after which copies know all five
        later = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(progress))))  # clusters send tasks on
        assert not later.at(4, 1.0)
        until(lambda: reports[-1].done == 0.35)
        assert not copy.ended()
        progress.control._interrupted = 0.0
        until(lambda: copy.ended() and later.ended())
        assert progress.reason == "interrupted"


def test_it_serves_one_piece_of_work_after_another():
    progress = SharedProgress(None, None, 0)
    for number in range(2):
        with progress:
            progress.more(1)
            copy = pickle.loads(pickle.dumps(progress))
            assert not copy.at(number, 0.5)
            until(lambda number=number: progress._share.get(number) == 0.5)
        assert copy.ended()
    assert not [thread for thread in threading.enumerate() if thread.name == progress_room.WATCH and thread.is_alive()]


def test_a_copy_on_another_machine_knows_the_time_limit_alone():
    with SharedProgress(1000.0, None, 0) as progress:
        state = progress.__getstate__()
    copy = SharedProgress.__new__(SharedProgress)
    copy.__setstate__(state)  # its file is gone
    assert not copy.at(0, 0.5)
    assert 0.0 < copy.control.time_limit <= 1000.0


def test_what_a_callback_raises_while_processes_work_is_raised():
    def refuse(report):
        raise RuntimeError("not today")

    def slow(copy):
        until(copy.ended)

    with SharedProgress(None, refuse, 0) as progress:
        progress.more(1)
        copy = pickle.loads(pickle.dumps(progress))
        with pytest.raises(RuntimeError, match="not today"):
            progress.gathered(slow, [(copy,)], 1, [[0]])


def test_copies_that_still_work_when_all_is_over_end():
    with SharedProgress(None, None, 0) as progress:
        progress.more(1)
        copy = pickle.loads(pickle.dumps(progress))
        assert not copy.ended()
    assert copy.ended()


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_process_that_the_same_interrupt_ended_leaves_what_was_complete(monkeypatch, interrupted):
    def failing(function, tasks, n_jobs):
        yield from (function(*task) for task in tasks[:2])
        raise RuntimeError("a worker process was terminated")

    monkeypatch.setattr(progress_room, "run_all", failing)
    with SharedProgress(None, None, 0) as progress:
        progress.more(4)
        progress.control._interrupted = 0.0 if interrupted else None
        tasks, numbers = [(k,) for k in range(4)], list(range(4))
        if interrupted:
            assert progress.gathered(lambda k: 10 * k, tasks, 2, numbers) == [0, 10, None, None]
            assert progress.n_done == 2
        else:
            with pytest.raises(RuntimeError):
                progress.gathered(lambda k: 10 * k, tasks, 2, numbers)
