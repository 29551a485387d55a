"""Many fits over one kernel matrix: permutation tests beside scikit-learn's function, and fits beside LIBSVM's core.

Also a machine as it comes, whose kernel differs from fold to fold; stacks; many labels; searchlights; maps of lesions.
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
_ROUNDS = 3
LESIONS = 73, 300_515
_PRINTED = 3600.0 * 29 + 60.0 * 16
_MOST = 500  # rows of a set whose fits are compared


def rows(name: str, n: int) -> tuple[Any, Any]:
    """Some standardised rows of a set, and their labels."""
    found = data.load(name)
    at = np.random.default_rng(0).permutation(len(found.y))[:n]
    X = data.standardised(np.asarray(found.X)[at])
    return X, np.asarray(found.y)[at]


def _add(
    context: Context, group: str, problem: dict[str, Any], who: str, took: clock.Times, calls: float, tol: float
) -> None:
    times = took.shared(1)  # a copy
    times.wall, times.cpu = [x * calls for x in times.wall], [x * calls for x in times.cpu]
    context.results.add(
        {
            "kind": "row", "suite": "many", "group": group, "problem": problem, "solver": who, "mode": "tol", "tol": tol,
            "threads": 1, "asked": tol, "score": {}, "met": True, "wall": times.wall, "cpu": times.cpu,
        }
    )  # fmt: skip


def _tests(context: Context, n: int, set_name: str) -> None:
    """10,000 permutations, five folds, C = 1."""
    X, y = rows(set_name, n)
    gamma = 1.0 / X.shape[1]
    ours = partial(svmcore.permutation_test, X, y, FOLDS, _OURS, gamma=gamma)
    ours()
    works: dict[str, Any] = {DEFAULT.name: ours}
    calls = {DEFAULT.name: PERMUTATIONS / _OURS}
    if context.wants("scikit-learn"):
        from sklearn.model_selection import permutation_test_score
        from sklearn.svm import SVC

        works["scikit-learn"] = partial(
            permutation_test_score, SVC(gamma=gamma), X, y, cv=FOLDS, n_permutations=_THEIRS[n]
        )
        calls["scikit-learn"] = (PERMUTATIONS + 1) / (_THEIRS[n] + 1)
    times, _ = clock.alternate(works, _ROUNDS)
    for name, took in times.items():
        _add(context, "permutation test", {"name": f"n = {n}", "n": n, "d": X.shape[1]}, name, took, calls[name], 1e-3)
    shown = ", ".join(f"{name} {min(took.cpu) * calls[name]:.2f} s" for name, took in times.items())
    context.say(f"  10,000 permutations x 5 folds, n = {n}: {shown}")


def _beside(
    context: Context, group: str, size: tuple[int, int], ours: tuple[Any, float], theirs: tuple[str, Any, float] | None
) -> None:
    """Some work of ours and of others: what is called, and how many times that the row stands for."""
    ours[0]()
    works, calls = {DEFAULT.name: ours[0]}, {DEFAULT.name: ours[1]}
    if theirs is not None and context.wants(theirs[0]):
        works[theirs[0]], calls[theirs[0]] = theirs[1:]
    times, _ = clock.alternate(works, _ROUNDS)
    for who, took in times.items():
        _add(
            context,
            group,
            {"name": f"{size[0]} x {size[1]:,}", "n": size[0], "d": size[1]},
            who,
            took,
            calls[who],
            1e-3,
        )
    shown = ", ".join(f"{who} {min(took.cpu) * calls[who]:.3g} s" for who, took in times.items())
    context.say(f"  {group}, {size[0]} x {size[1]:,}: {shown}")


def _defaults(context: Context, n: int, set_name: str) -> None:
    """`permutation_test_score(SVC(), X, y)`: gamma is that of the rows that train."""
    from sklearn.model_selection import permutation_test_score
    from sklearn.svm import SVC

    X, y = rows(set_name, n)
    few = _THEIRS[n]
    _beside(
        context, "SVC() as it is, 10,000 permutations", X.shape,
        (partial(svmcore.permutation_test, SVC(), X, y, cv=FOLDS, n_permutations=_OURS), PERMUTATIONS / _OURS),
        ("scikit-learn", partial(permutation_test_score, SVC(), X, y, cv=FOLDS, n_permutations=few),
         (PERMUTATIONS + 1) / (few + 1)),
    )  # fmt: skip


def _shared(context: Context) -> None:
    """A stack of 200 kernel matrices with 8 folds, 500 columns of labels, and a searchlight, a fit of each."""
    from sklearn.model_selection import cross_val_score
    from sklearn.svm import SVC

    rng, n = np.random.default_rng(0), 200
    X = rng.normal(size=(n, 10))
    y = (X[:, 0] + rng.normal(size=n) > 0).astype(int)
    K = np.exp(-0.1 * ((X[:, None] - X) ** 2).sum(axis=-1))
    stack, machine = np.array([K] * 200, np.float32), SVC(kernel="precomputed")
    _beside(
        context, "a fit of a stack of kernel matrices", (n, n),
        (partial(svmcore.cross_val_many, stack, y, 8, kernel="precomputed"), 1 / (8 * len(stack))),
        ("scikit-learn", partial(cross_val_score, machine, K, y, cv=8), 1 / 8),
    )  # fmt: skip
    Y = np.array([rng.permutation(y) for _ in range(500)]).T

    def theirs() -> None:
        for k in range(_FITS):
            SVC(gamma=0.1).fit(X, Y[:, k])

    _beside(
        context, "a machine of many labels", X.shape, (partial(svmcore.train_many, X, Y, gamma=0.1), 1 / 500),
        ("scikit-learn", theirs, 1 / _FITS),
    )  # fmt: skip
    voxels, spheres, permutations = rng.normal(size=(73, 3000)), 100, 100
    groups = [np.arange(k, k + 30) for k in range(0, 30 * spheres, 30)]
    times = (1 + permutations) * 1000
    _beside(
        context, "a searchlight: 1,000 spheres, 100 permutations", voxels.shape,
        (partial(svmcore.searchlight, voxels, y[:73], groups, n_permutations=permutations), 1000 / spheres),
        ("scikit-learn", partial(cross_val_score, SVC(kernel="linear"), voxels[:, :30], y[:73], cv=FOLDS), float(times)),
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
    group = "lesion mapping, 10,000 permutations and their maps"
    words: dict[str, Any] = {
        "loss": "epsilon_insensitive",
        "gamma": 5.0,
        "C": 30.0,
        "score": "correlation",
        "pooled": True,
        "maps": True,
    }
    _beside(
        context, group, LESIONS, (partial(svmcore.permutation_test, X, y, FOLDS, _OURS, **words), PERMUTATIONS / _OURS), None
    )  # fmt: skip
    printed = clock.Times([_PRINTED], [_PRINTED])
    problem = {"name": f"{LESIONS[0]} x {LESIONS[1]:,}", "n": LESIONS[0], "d": LESIONS[1]}
    _add(context, group, problem, "MATLAB, parallel (printed)", printed, 1.0, 1e-3)


def _fits(context: Context, name: str, cost: float) -> None:
    """One certified fit beside one call of LIBSVM's core."""
    X, y = rows(name, _MOST)
    n, gamma = len(y), 1.0 / X.shape[1]
    squares = (X * X).sum(axis=1)
    K = np.exp(-gamma * np.maximum(squares[:, None] + squares - 2.0 * X @ X.T, 0.0))
    K = 0.5 * (K + K.T)
    ours = partial(svmcore.permutation_test, K, y, FOLDS, _OURS // 4, C=cost, kernel="precomputed")
    ours()
    works: dict[str, Any] = {DEFAULT.name: ours}
    calls = {DEFAULT.name: 1.0 / (FOLDS * (_OURS // 4 + 1))}
    if context.wants("scikit-learn"):
        works["LIBSVM's core"] = partial(_libsvm, _tasks(K, y, n), cost)
        calls["LIBSVM's core"] = 1.0 / _FITS
    times, _ = clock.alternate(works, _ROUNDS)
    for who, took in times.items():
        _add(context, f"fit, C = {cost:g}", {"name": name, "n": n, "d": X.shape[1]}, who, took, calls[who], 1e-3)
    shown = ", ".join(f"{who} {1e6 * min(took.cpu) * calls[who]:.1f} us" for who, took in times.items())
    context.say(f"  a fit of {name}, n = {n}, C = {cost:g}: {shown}")


def _tasks(K: Any, y: Any, n: int) -> list[tuple[Any, Any]]:
    """Kernel matrices and permuted labels of training rows, as LIBSVM wants them."""
    rng, found = np.random.default_rng(1), []
    for k in range(_FITS):
        train = np.flatnonzero(np.arange(n) % FOLDS != k % FOLDS)
        found.append((np.ascontiguousarray(K[np.ix_(train, train)]), (rng.permutation(y)[train] == y.max()) * 1.0))
    return found


def _libsvm(tasks: list[tuple[Any, Any]], cost: float) -> None:
    from sklearn.svm import _libsvm as core  # type: ignore[attr-defined, unused-ignore]

    nothing = np.empty(0)
    for matrix, signs in tasks:
        core.fit(
            matrix,
            signs,
            svm_type=0,
            kernel="precomputed",
            C=cost,
            tol=1e-3,
            class_weight=nothing,
            sample_weight=nothing,
        )


def run(context: Context) -> None:
    with clock.threads(1):
        set_name = "splice" if not data.missing("splice") else "clusters-1000-60"
        sizes = SIZES[: context.size(len(SIZES), 1)]
        for n in sizes:
            _tests(context, n, set_name)
        if context.wants("scikit-learn"):
            for n in sizes[:3]:
                _defaults(context, n, set_name)
        if context.tiny:
            return
        _shared(context)
        _lesions(context)
        for name in FITS:
            if why := data.missing(name):
                context.skip("many", "everybody", why, name)
                continue
            for cost in COSTS:
                _fits(context, name, cost)


SUITE = Suite("many", "many fits over one kernel matrix: permutation tests, and certified fits", 3, run)
