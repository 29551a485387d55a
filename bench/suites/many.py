"""Many fits over one kernel matrix: permutation tests beside scikit-learn's function, and fits beside LIBSVM's core.

Also a machine as it comes, whose kernel differs from fold to fold; runs of a scanner; stacks; many labels; searchlights; a
machine for every query; maps of lesions; folds of single rows; wide rows.
scikit-learn's seconds are those of few permutations, times what 10,000 have more. LIBSVM's core is the one in scikit-learn,
with a dense matrix of the training rows, which is copied before the clock starts. It neither certifies nor predicts. A fit of
ours is a fold of a permutation, with its certificate, its decision values out of fold and its score.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import svmcore
from bench import clock, data
from bench.contest import Context
from bench.peers import DEFAULT
from bench.suite import Suite

PERMUTATIONS, FOLDS = 10_000, 5
SIZES = (73, 100, 200, 500)
FITS = ("sonar", "heart", "ionosphere", "splice")
COSTS = (0.01, 1.0, 100.0)
_OURS, _THEIRS, _FITS = 1000, {73: 20, 100: 20, 200: 15, 500: 6}, 20
_HARD = 1e3  # a C that no multiplier of wide rows reaches
_ROUNDS = 3
LESIONS = 73, 300_515
_PRINTED = 3600.0 * 29 + 60.0 * 16
_MOST = 500  # rows of a set whose fits are compared
_MATRICES, _QUERIES = 1000, 2000
_SHORT = 1e-3  # seconds below which microseconds are shown


def rows(name: str, n: int) -> tuple[Any, Any]:
    """Some standardised rows of a set, and their labels."""
    found = data.load(name)
    at = np.random.default_rng(0).permutation(len(found.y))[:n]
    X = data.standardised(np.asarray(found.X)[at])
    return X, np.asarray(found.y)[at]


def _beside(
    context: Context, group: str, problem: dict[str, Any], ours: tuple[Any, float], others: dict[str, tuple[Any, float]]
) -> None:
    """Some work of ours and of others: what is called, and how many times that the row stands for."""
    ours[0]()
    works = {DEFAULT.name: ours, **{name: work for name, work in others.items() if context.wants(name)}}
    times, _ = clock.alternate({name: work for name, (work, _) in works.items()}, _ROUNDS)
    shown = []
    for name, took in times.items():
        took = took.shared(1.0 / works[name][1])
        context.record("many", group, problem, name, took)
        least = min(took.cpu)
        shown.append(f"{name} " + (f"{1e6 * least:.1f} us" if least < _SHORT else f"{least:.3g} s"))
    context.say(f"  {group}, {problem['name']}: {', '.join(shown)}")


def _size(shape: tuple[int, ...]) -> dict[str, Any]:
    """A problem that is called by its size."""
    return {"name": f"{shape[0]} x {shape[1]:,}", "n": shape[0], "d": shape[1]}


def _tests(context: Context, n: int, set_name: str) -> None:
    """10,000 permutations, five folds, C = 1: with a gamma, and as `SVC()` comes, whose gamma is that of a fold's rows."""
    from sklearn.model_selection import permutation_test_score
    from sklearn.svm import SVC

    X, y = rows(set_name, n)
    gamma, few = 1.0 / X.shape[1], _THEIRS[n]
    ours, theirs = PERMUTATIONS / _OURS, (PERMUTATIONS + 1) / (few + 1)
    _beside(
        context, "permutation test", {"name": f"n = {n}", "n": n, "d": X.shape[1]},
        (partial(svmcore.permutation_test, X, y, FOLDS, _OURS, gamma=gamma), ours),
        {"scikit-learn": (partial(permutation_test_score, SVC(gamma=gamma), X, y, cv=FOLDS, n_permutations=few), theirs)},
    )  # fmt: skip
    _beside(
        context, "SVC() as it is, 10,000 permutations", _size(X.shape),
        (partial(svmcore.permutation_test, SVC(), X, y, cv=FOLDS, n_permutations=_OURS), ours),
        {"scikit-learn": (partial(permutation_test_score, SVC(), X, y, cv=FOLDS, n_permutations=few), theirs)},
    )  # fmt: skip


def _runs(context: Context) -> None:
    """Two categories in twelve runs of nine images each, as of Haxby and others (2001): labels are shuffled within runs."""
    from sklearn.model_selection import LeaveOneGroupOut, permutation_test_score
    from sklearn.svm import SVC, LinearSVC

    rng = np.random.default_rng(0)
    y, run = np.tile(np.repeat([0, 1], 9), 12), np.repeat(np.arange(12), 18)
    X = rng.normal(size=(len(y), 577)) + 0.2 * y[:, None] * rng.normal(size=577) + 0.5 * rng.normal(size=(12, 577))[run]
    words: dict[str, Any] = {"groups": run, "cv": LeaveOneGroupOut()}
    machines = {"scikit-learn": SVC(kernel="linear"), "scikit-learn, LinearSVC": LinearSVC()}
    few, ours = 2, partial(svmcore.permutation_test, machines["scikit-learn"], X, y, n_permutations=_OURS, **words)
    _beside(
        context, "10,000 permutations within 12 runs", _size(X.shape),
        (ours, PERMUTATIONS / _OURS),
        {name: (partial(permutation_test_score, machine, X, y, n_permutations=few, **words), (PERMUTATIONS + 1) / (few + 1))
         for name, machine in machines.items()},
    )  # fmt: skip


def _shared(context: Context) -> None:
    """A stack of kernel matrices in single precision with 8 folds, and 500 columns of labels: a fit of each."""
    from sklearn.model_selection import cross_val_score
    from sklearn.svm import SVC

    rng, n = np.random.default_rng(0), 200
    X = rng.normal(size=(n, 10))
    y = (X[:, 0] + rng.normal(size=n) > 0).astype(int)
    stack = np.empty((_MATRICES, n, n), np.float32)
    for K in stack:
        features = rng.normal(size=(n, 50)) + 0.3 * rng.random() * y[:, None]
        K[:] = features @ features.T / 50.0
    _beside(
        context, "a fit of a stack of kernel matrices", _size((n, n)),
        (partial(svmcore.cross_val_many, stack, y, 8, kernel="precomputed"), 1 / (8 * len(stack))),
        {"scikit-learn": (partial(cross_val_score, SVC(kernel="precomputed"), stack[0], y, cv=8), 1 / 8)},
    )  # fmt: skip
    Y = np.array([rng.permutation(y) for _ in range(500)]).T

    def theirs() -> None:
        for k in range(_FITS):
            SVC(gamma=0.1).fit(X, Y[:, k])

    _beside(
        context, "a machine of many labels", _size(X.shape), (partial(svmcore.train_many, X, Y, gamma=0.1), 1 / 500),
        {"scikit-learn": (theirs, 1 / _FITS)},
    )  # fmt: skip


def _searchlight(context: Context) -> None:
    from sklearn.model_selection import cross_val_score
    from sklearn.svm import SVC

    rng, spheres, permutations = np.random.default_rng(0), 100, 100
    voxels, y = rng.normal(size=(73, 3000)), np.arange(73) % 2
    groups = [np.arange(k, k + 30) for k in range(0, 30 * spheres, 30)]
    times = float((1 + permutations) * 1000)
    _beside(
        context, "a searchlight: 1,000 spheres, 100 permutations", _size(voxels.shape),
        (partial(svmcore.searchlight, voxels, y, groups, n_permutations=permutations), 1000 / spheres),
        {"scikit-learn": (partial(cross_val_score, SVC(kernel="linear"), voxels[:, :30], y, cv=FOLDS), times)},
    )  # fmt: skip


def _queries(context: Context) -> None:
    """A machine for every query against 500 negatives: with the costs of exemplar machines, and with C = 1."""
    from sklearn.svm import SVC

    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(500, 20)), rng.normal(size=(_QUERIES, 20))
    labels = np.r_[1, -np.ones(len(X))]
    for kernel, cost, weight in (("linear", 0.01, 50.0), ("rbf", 1.0, 1.0)):
        words: dict[str, Any] = {"kernel": kernel, "gamma": 0.05, "class_weight": {1: weight}}
        machine = SVC(C=cost, **words)

        def theirs(machine: Any = machine) -> None:
            for q in Q[:_FITS]:
                machine.fit(np.vstack([q, X]), labels)

        _beside(
            context, f"exemplars: a machine of a query, {kernel}", _size(X.shape),
            (partial(svmcore.exemplars, Q, X, cost, **words), 1 / _QUERIES), {"scikit-learn": (theirs, 1 / _FITS)},
        )  # fmt: skip


def _lesions(context: Context) -> None:
    """Lesion mapping by regression, with the map of every permutation. The paper's seconds are of MATLAB in parallel."""
    rng = np.random.default_rng(0)
    X = np.zeros(LESIONS, np.float32)
    for row in X:
        first = rng.integers(0, LESIONS[1] // 2)
        row[first : first + rng.integers(1000, LESIONS[1] // 2)] = 1.0
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = rng.normal(size=len(X))
    group, problem = "lesion mapping, 10,000 permutations and their maps", _size(LESIONS)
    words: dict[str, Any] = {"loss": "epsilon_insensitive", "gamma": 5.0, "C": 30.0, "score": "correlation"}
    ours = partial(svmcore.permutation_test, X, y, FOLDS, _OURS, pooled=True, maps=True, **words)
    _beside(context, group, problem, (ours, PERMUTATIONS / _OURS), {})
    context.record("many", group, problem, "MATLAB, parallel (printed)", clock.Times([_PRINTED], [_PRINTED]))


def _fits(context: Context, group: str, problem: dict[str, Any], K: Any, y: Any, cost: float, cv: Any = FOLDS) -> None:
    """One certified fit beside one call of LIBSVM's core."""
    n = len(y)
    folds, permutations = n if cv == "loo" else cv, _OURS // (40 if cv == "loo" else 4)
    ours = partial(svmcore.permutation_test, K, y, cv, permutations, C=cost, kernel="precomputed")
    theirs = partial(_libsvm, _tasks(K, y, folds), cost)
    _beside(
        context, group, problem, (ours, 1.0 / (folds * (permutations + 1))), {"LIBSVM's core": (theirs, 1.0 / _FITS)}
    )  # fmt: skip


def _rbf(X: Any) -> Any:
    squares = (X * X).sum(axis=1)
    K = np.exp(-np.maximum(squares[:, None] + squares - 2.0 * X @ X.T, 0.0) / X.shape[1])
    return 0.5 * (K + K.T)


def _tasks(K: Any, y: Any, folds: int) -> list[tuple[Any, Any]]:
    """Kernel matrices and permuted labels of training rows, as LIBSVM wants them."""
    rng, found = np.random.default_rng(1), []
    for k in range(_FITS):
        train = np.flatnonzero(np.arange(len(y)) % folds != k % folds)
        found.append((np.ascontiguousarray(K[np.ix_(train, train)]), (rng.permutation(y)[train] == y.max()) * 1.0))
    return found


def _libsvm(tasks: list[tuple[Any, Any]], cost: float) -> None:
    from sklearn.svm import _libsvm as core  # type: ignore[attr-defined, unused-ignore]

    words: dict[str, Any] = {"svm_type": 0, "kernel": "precomputed", "C": cost, "tol": 1e-3}
    words |= dict.fromkeys(("class_weight", "sample_weight"), np.empty(0))
    for matrix, signs in tasks:
        core.fit(matrix, signs, **words)


def _all_fits(context: Context, set_name: str) -> None:
    for name in FITS:
        if why := data.missing(name):
            context.skip("many", "everybody", why, name)
            continue
        X, y = rows(name, _MOST)
        for cost in COSTS:
            _fits(context, f"fit, C = {cost:g}", {"name": name, "n": len(y), "d": X.shape[1]}, _rbf(X), y, cost)
    for n in SIZES[1:3]:
        X, y = rows(set_name, n)
        _fits(context, "fit of leave-one-out, C = 1", _size(X.shape), _rbf(X), y, 1.0, "loo")
    X = np.random.default_rng(0).normal(size=(100, 10_000))
    _fits(context, "fit of wide rows, hard margin", _size(X.shape), X @ X.T / X.shape[1], np.arange(100) % 2, _HARD)


def run(context: Context) -> None:
    set_name = "splice" if not data.missing("splice") else "clusters-1000-60"
    with clock.threads(1):
        for n in SIZES[: context.size(len(SIZES), 1)]:
            _tests(context, n, set_name)
        if context.tiny:
            return
        for each in (_runs, _shared, _searchlight, _queries, _lesions):
            each(context)
        _all_fits(context, set_name)


SUITE = Suite("many", "many fits over one kernel matrix: permutation tests, and certified fits", 3, run)
