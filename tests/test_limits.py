"""Limits are checked alike by everything that works for long: a wrong one is refused by name, before any work."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused
from repeats import each

import svmcore

X, Y = np.arange(8.0).reshape(-1, 1), np.arange(8) % 2
WORKERS = {
    "train_svc": lambda **limit: svmcore.train_svc(X, Y, **limit),
    "train_svr": lambda **limit: svmcore.train_svr(X, Y, **limit),
    "train_classes": lambda **limit: svmcore.train_classes(X, Y, **limit),
    "leave_one_out": lambda **limit: svmcore.leave_one_out(X, Y, **limit),
    "svm_path": lambda **limit: svmcore.svm_path(X, Y, **limit),
    "gp_regression": lambda **limit: svmcore.gp_regression(X, Y, noise=0.1, **limit),
    "cv_path": lambda **limit: svmcore.cv_path(X, Y, cv=2, **limit),
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
