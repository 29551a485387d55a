"""Compile everything once, so that no later fit of any process waits for the compiler."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_matrix

from svmcore._control import new_control
from svmcore._errors import InputError
from svmcore._keywords import KernelName
from svmcore._types import LANES
from svmcore.compiler import bundle as _bundle
from svmcore.compiler import disk as _disk
from svmcore.compiler.jit import DISABLED
from svmcore.cv.search import cv_path
from svmcore.kernel.pairs import PairProduct
from svmcore.kernel.rough import RoughProduct
from svmcore.models.leave_out import leave_one_out
from svmcore.models.solution import Terms
from svmcore.path.driver import svm_path
from svmcore.problem.formulations import svc
from svmcore.simd.lanes import MULTIPLIES_PAIRS
from svmcore.solvers import block
from svmcore.solvers.small import MOST_POINTS
from svmcore.train.certificates import certificate
from svmcore.train.classes import train_classes
from svmcore.train.functions import train_svc, train_svr
from svmcore.train.heads import EXACT_ROWS, Aim, Head, solved
from svmcore.trials.permutations import permutation_test

KERNELS: tuple[KernelName, ...] = ("rbf", "linear", "poly", "sigmoid", "laplacian")
CHOICES = ("fit", "path", "all")
_GAP = 1e-6  # of a linear machine that is trained for its code

Work = Callable[[], Any]


def warmup(
    what: Literal["fit", "path", "all"] = "all",
    *,
    jobs: int = 1,
    bundle: str | os.PathLike[str] | None = None,
    processor: str = "native",
) -> None:
    """Compile ahead what training and prediction need; the machine code is kept on disk, for all later processes.

    `what` is "fit" (training, prediction, certificates and leave-one-out: every kernel, dense and sparse data, both
    precisions), "path" (`svm_path` and what a path answers), or "all": both, and many fits over one kernel matrix
    (`permutation_test`, `searchlight`, `exemplars`). `jobs` processes share the work.

    `bundle` names a file to write: all that machine code in one piece, for other machines and containers. A process with
    ``SVMCORE_BUNDLE=file`` in its environment loads it and compiles nothing. It fits the same numba, Python and svmcore.
    `processor` says what it is compiled for: "native" (this processor, and those that can do as much), or "x86-64-v3",
    "x86-64-v4" or "aarch64", for every processor of that level.

    >>> import svmcore
    >>> svmcore.warmup("fit")
    """
    if what not in CHOICES:
        raise InputError(f"what must be one of {', '.join(map(repr, CHOICES))}, not {what!r}")
    if jobs < 1:
        raise InputError(f"jobs must be a positive whole number, not {jobs!r}")
    if bundle is not None:
        _write_bundle(what, jobs, Path(bundle), processor)
    elif processor != "native":
        raise InputError(f"processor={processor!r} is about a bundle; name its file: bundle=...")
    else:
        _compile(what, jobs)


def _compile(what: str, jobs: int) -> None:
    helpers = [_process(f"warm._share({what!r}, {k}, {jobs})", {}) for k in range(1, jobs)]
    try:
        _share(what, 0, jobs)
    finally:
        for helper in helpers:
            helper.wait()
    if helpers:
        _share(what, 0, 1)  # what they compiled is read from the disk


def _process(call: str, environment: Mapping[str, str], errors: int | None = None) -> subprocess.Popen[str]:
    """Another process of this checkout or installation."""
    root = str(Path(__file__).parents[2])
    program = f"import sys; sys.path.insert(0, {root!r}); from svmcore.compiler import warm; {call}"
    settings = {**os.environ, "SVMCORE_QUIET": "1", **environment}
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, env=settings, text=True, stdout=subprocess.DEVNULL, stderr=errors)


def _write_bundle(what: str, jobs: int, file: Path, processor: str) -> None:
    """A bundle is made in a process of its own, which compiles for the processor and uses no other bundle."""
    environment = {_bundle.NAMED: ""}
    if DISABLED:
        raise InputError("bundle: nothing is compiled under NUMBA_DISABLE_JIT=1")
    if processor != "native":
        if processor not in _bundle.PROCESSORS:
            names = ", ".join(map(repr, ["native", *_bundle.PROCESSORS]))
            raise InputError(f"processor must be one of {names}, not {processor!r}")
        target = _bundle.PROCESSORS[processor]
        if lacking := _bundle.missing(target.features):
            raise InputError(f"processor={processor!r}: what it is made with must run here, which lacks {lacking[0]}")
        environment |= target.settings
    if not file.parent.is_dir():
        raise InputError(f"bundle={str(file)!r}: there is no folder {str(file.parent)!r}")
    call = f"warm._pack({what!r}, {jobs}, {str(file.absolute())!r})"
    made = _process(call, environment, subprocess.PIPE)
    try:
        _, errors = made.communicate()
    except BaseException:
        made.kill()
        made.wait()
        raise
    if made.returncode:
        why = errors.strip().rpartition("\n")[2] or f"exit status {made.returncode}"
        raise InputError(f"bundle={str(file)!r} was not written: {why}")


def _pack(what: str, jobs: int, file: str) -> None:
    _compile(what, jobs)
    if not _disk.pack(Path(file)):
        raise OSError(f"the cache folder {_disk.folder()} cannot be written to; set NUMBA_CACHE_DIR to one that can")


def _share(what: str, k: int, jobs: int) -> None:
    """Do every jobs-th piece of work: the large ones come first, each to another process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, work in enumerate(_works(what)):
            if number % jobs == k:
                work()


def _works(what: str) -> Iterator[Work]:
    if what in ("path", "all"):
        yield from _path_works()
    if what in ("fit", "all"):
        yield from _fit_works()
    if what == "all":
        X, y = _labelled(40, 3)
        yield lambda: permutation_test(X, y, n_permutations=20)
        if find_spec("sklearn") is not None:
            from svmcore.estimators import SVC

            yield lambda: permutation_test(SVC(), X, y, n_permutations=20)  # another kernel matrix for each fold


def _labelled(n: int, d: int) -> tuple[Any, Any]:
    """Two classes that no plane separates."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, np.where(X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(n) > 0, 1, -1)


def _sparse() -> tuple[Any, Any]:
    """Sparse data of ones, and of other values."""
    rng = np.random.default_rng(0)
    ones = (rng.random((40, 20)) < 0.15) * 1.0
    return csr_matrix(ones), csr_matrix(ones * rng.standard_normal(ones.shape))


def _path_works() -> Iterator[Work]:
    from svmcore.data import load_data

    def follow(X: Any, y: Any, **options: Any) -> None:
        path = svm_path(X, y, lambda_min=0.01, **options)
        path.certify()
        path.error_curve()
        path.predict(X[:3], C=[1.0, 2.0])

    spirals, turns = load_data("demo:spirals")
    monks, classes = load_data("demo:monk1")
    X, y = _labelled(200, 2)
    yield lambda: follow(spirals, turns, gamma=0.15)  # windows
    yield lambda: follow(monks, classes, gamma=0.5)  # ties
    yield lambda: follow(X, y, gamma=1.0)
    for kernel in KERNELS[1:]:
        yield functools.partial(follow, X[:60], y[:60], kernel=kernel, coef0=0.5)
    for some in _sparse():
        yield functools.partial(follow, some, y[:40], gamma=0.5)
    yield lambda: cv_path(X[:90], y[:90], C_min=0.1, C_max=10.0)  # parts of a matrix whose rows are padded


def _fit_works() -> Iterator[Work]:
    X, y = _labelled(40, 3)
    many_features, _ = _labelled(40, 48)  # enough of them to keep K
    large, labels = _labelled(700, 2)
    crowd, thirds = _labelled(MOST_POINTS + 1, 2)[0], np.arange(MOST_POINTS + 1) % 3
    sparse = _sparse()
    wide = csr_matrix((sparse[1].data, sparse[1].indices, sparse[1].indptr), (40, 20_000))  # more than a panel holds
    for kernel in KERNELS:
        for some in (X, *sparse, many_features):
            yield functools.partial(_exercise, some, y, kernel)
        yield functools.partial(train_svc, large, labels, 1.0, kernel=kernel)  # at once
        yield functools.partial(_several, X, kernel)  # pairs at once
        yield functools.partial(train_classes, crowd, thirds, 0.01, kernel=kernel)  # near their margins
    yield lambda: train_svc(large, labels, 1e4, gamma=0.5, tol=1e-6, solver="block")  # so many steps: conjugate ones
    yield lambda: train_svc(large, labels, 1e-3, solver="block", stopping="gap")  # a product of all points with all
    for rule in ("second", "mvp", "platt", "simplified"):
        yield functools.partial(train_svc, X, y, 1.0, solver="smo", rule=rule)
    yield lambda: train_svc(X, y, 1.0, kernel="linear", solver="interior")
    for some in (X, *sparse):
        yield functools.partial(train_svc, some, y, 1.0, kernel="linear", solver="newton")
    yield lambda: train_svc(wide, y, 1.0, kernel="linear", solver="coordinate", fit_intercept=False)
    yield lambda: train_svc(X, y, nu=0.3)
    yield lambda: _linear(X, [y == y[0]])  # in one call
    words = np.arange(EXACT_ROWS + 1, dtype=np.int32)  # linear machines over so many rows share the passes over them
    identity = csr_matrix((np.ones(len(words)), words, np.arange(len(words) + 1, dtype=np.int32)))
    yield lambda: _linear(identity, [words % 3 == k for k in range(3)])
    yield lambda: train_svc(X, y, 1.0, fit_intercept=False, solver="block")
    yield lambda: train_svr(X, X[:, 0], 1.0, solver="block")
    yield lambda: train_svc(wide, y, 1.0, solver="block")
    yield lambda: leave_one_out(X, y, 1.0, gamma=0.5)


def _several(X: Any, kernel: KernelName) -> None:
    """Three classes, and what their machines say together."""
    machines = train_classes(X, np.arange(len(X)) % 3, 1.0, kernel=kernel)
    machines.predict(np.resize(X, (LANES, X.shape[1])))  # so many rows that all of them vote at once


def _linear(X: Any, classes: list[Any]) -> None:
    costs, terms = np.ones(X.shape[0]), Terms(1.0, None)
    heads = [Head(svc(np.where(own, 1.0, -1.0), costs, "squared_hinge", False), None, terms) for own in classes]
    solved(X, heads, tau=1.0, goal=Aim(_GAP, _GAP, 100), control=new_control("fit", None, None, 0))


def _exercise(X: Any, y: Any, kernel: KernelName) -> None:
    """Both precisions of one kernel, and a problem of more than one block: a tight tolerance needs the second."""
    options: dict[str, Any] = {"kernel": kernel, "coef0": 0.5, "gamma": 0.5}
    solution = train_svc(X, y, 10.0, solver="block", tol=1e-9, time_limit=1.0, **options)
    solution.decision_function(X)
    solution.predict(X[:1])
    train_svc(X.astype(np.float32), y, 10.0, **options).predict(X[:1])
    certificate(X, y, solution.alpha, solution.intercept, C=10.0, **options)
    many = np.resize(np.arange(len(y)), block.SMALL_COSTLY + 1)
    train_svc(X[many], y[many], 1e-3, solver="block", tol=0.5, max_iter=100, **options)
    if kernel != "linear" and isinstance(X, np.ndarray):
        rough = solution.kernel, solution.support_vectors, solution.dual_coef
        RoughProduct(*rough)(X, 1)
        if kernel == "rbf" and MULTIPLIES_PAIRS:
            PairProduct(rough[0]._replace(gamma=0.01), *rough[1:], 1.0)(X, 1)  # near points
