"""Compile everything once, so that no later fit of any process waits for the compiler."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from svmcore._errors import ConvergenceWarning
from svmcore._keywords import KernelName
from svmcore.solve import train_svc, train_svr
from svmcore.solvers import block

KERNELS: tuple[KernelName, ...] = ("rbf", "linear", "poly", "sigmoid", "laplacian")


def warmup() -> None:
    """Run every compiled path of training and prediction on tiny data; the machine code is kept on disk.

    >>> import svmcore
    >>> svmcore.warmup()
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    ones = (rng.random((40, 20)) < 0.15) * 1.0
    values = ones * rng.standard_normal(ones.shape)
    with warnings.catch_warnings(), _no_collections():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for kernel in KERNELS:
            for some in (X, csr_matrix(ones), csr_matrix(values)):
                _exercise(some, y, kernel)
            _exercise(rng.standard_normal((40, 48)), y, kernel)  # features enough to keep K
        train_svc(X, y, 1.0, kernel="linear", solver="interior")
        train_svc(X, y, 1.0, fit_intercept=False, solver="block")
        train_svr(X, X[:, 0], 1.0, solver="block")
        wide = np.zeros((40, 20_000))
        wide[:, :20] = values
        train_svc(csr_matrix(wide), y, 1.0, solver="block")  # more features than a panel holds
        large = rng.standard_normal((700, 2))
        labels = np.where(large[:, 0] * large[:, 1] > 0, 1, -1)
        train_svc(large, labels, 1e4, gamma=0.5, tol=1e-6, solver="block")  # so many steps that they become conjugate
        train_svc(large, labels, 1e-3, solver="block", stopping="gap")  # a product of all points with all
        for rule in ("second", "mvp", "platt", "simplified"):
            train_svc(X, y, 1.0, solver="smo", rule=rule)


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """The compiler leaves little garbage, and looking for it takes a tenth of its time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _exercise(X: Any, y: Any, kernel: KernelName) -> None:
    """Both precisions of one kernel, and a problem of more than one block: a tight tolerance needs the second."""
    solution = train_svc(X, y, 10.0, kernel=kernel, coef0=0.5, solver="block", tol=1e-9, time_limit=5.0)
    solution.decision_function(X)
    many = np.resize(np.arange(len(y)), block.SMALL_COSTLY + 1)
    train_svc(X[many], y[many], 1e-3, kernel=kernel, coef0=0.5, solver="block", tol=0.5, max_iter=100)
