"""Tuning by the protocol of a paper about GPUs, and beside it the seconds that the paper printed.

TorchKM (2026), table 2: n = 10,000 rows, ten folds, 50 values of C, a refit; the time is that of all of it. We follow
every C of that range, exactly, on the processor of this machine. scikit-learn gets every tenth value of one fold, and its
time is estimated from these fits: the row says so. `--full` runs TorchKM on this processor, too.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

import svmcore
from bench import clock
from bench.contest import Context
from bench.suite import Suite

OURS = "svmcore, every C"
PRINTED = {  # seconds of table 2: columns -> who -> time
    10: {"TorchKM": 23.3, "ThunderSVM": 38.0, "scikit-learn": 1131.0},
    100: {"TorchKM": 17.9, "ThunderSVM": 62.7, "scikit-learn": 1974.0},
    1000: {"TorchKM": 37.7, "ThunderSVM": 279.0, "scikit-learn": 14323.0},
}
ROWS, FOLDS, VALUES, EVERY = 10_000, 10, 50, 10
_LEAST, _LARGEST = 1e-3, 1e3  # lambda; C = 1 / (2 n lambda)
_CENTRES, _MOVED, _NOISE = 5, 2.0, 3.0


def hidden_centres(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes around five centres each, which noise of three times the unit hides. Columns have mean 0 and variance 1."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(2, _CENTRES, p))
    centres[0, :, : p // 2] += _MOVED
    centres[1, :, p // 2 :] += _MOVED
    y = rng.integers(0, 2, n)
    X = centres[y, rng.integers(0, _CENTRES, n)] + _NOISE * rng.normal(size=(n, p))
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def width(X: np.ndarray, seed: int = 0) -> float:
    """The paper's gamma: twice the mean of one over the first and the last tenth of squared distances."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, len(X), (2, len(X) // 2))
    distances = np.square(X[i] - X[j]).sum(axis=1)
    low, high = np.quantile(distances[distances > 0.0], [0.1, 0.9])
    return float(1.0 / low + 1.0 / high)


def _ours(X: np.ndarray, y: np.ndarray, gamma: float, folds: Any, low: float, high: float) -> tuple[Any, Any]:
    found = svmcore.cv_path(X, y, gamma=gamma, cv=folds, C_min=low, C_max=high, n_jobs=clock.cores())
    return found, found.refit()


def _sample(X: np.ndarray, y: np.ndarray, gamma: float, folds: Any, Cs: np.ndarray) -> None:
    """Fits and predictions of scikit-learn on one fold."""
    from sklearn.svm import SVC

    train, test = folds[0]
    for C in Cs:
        SVC(C=C, gamma=gamma, cache_size=2000).fit(X[train], y[train]).predict(X[test])


def _torch(X: np.ndarray, y: np.ndarray, gamma: float, folds: Any, Cs: np.ndarray) -> Any:
    import torch
    from torchkm.cvksvm import cvksvm

    number = np.empty(len(y), dtype=np.int64)
    for fold, (_, test) in enumerate(folds):
        number[test] = fold + 1
    squares = np.square(X).sum(axis=1)
    kernel = np.exp(-gamma * np.maximum(squares[:, None] + squares[None, :] - 2.0 * (X @ X.T), 0.0))
    model = cvksvm(
        Kmat=torch.from_numpy(kernel), y=torch.from_numpy(2.0 * y - 1.0), nlam=len(Cs),
        ulam=torch.from_numpy(0.5 / (len(y) * Cs)), foldid=torch.from_numpy(number), nfolds=len(folds), device="cpu",
    )  # fmt: skip
    return model.fit()


def _add(context: Context, p: int, who: str, wall: float, cpu: float, score: dict[str, Any], how: str) -> None:
    context.results.add(
        {
            "kind": "row", "suite": "gpu", "group": "", "solver": f"{who} ({how})", "mode": "tol", "tol": 1e-3,
            "score": score, "problem": {"name": f"{p} columns", "n": ROWS, "d": p}, "threads": clock.cores(),
            "asked": 1e-3, "met": True,
            "wall": [wall], "cpu": [cpu],
        }
    )  # fmt: skip
    context.say(f"  {p} columns, {who} ({how}): {wall:.3g} s")


def run(context: Context) -> None:
    """A row for every cell of the table, printed or measured."""
    from sklearn.model_selection import StratifiedKFold

    X, y = hidden_centres(100, 10)
    _ours(X, y, 0.1, 2, 1e-3, 1.0)  # not timed: machine code is loaded
    Cs = 0.5 / (ROWS * np.logspace(np.log10(_LARGEST), np.log10(_LEAST), VALUES))
    for p, printed in PRINTED.items():
        if context.problems and str(p) not in context.problems:
            continue
        if context.out_of_time():
            context.skip("gpu", "everybody", "the suite's time was up", f"{p} columns")
            continue
        X, y = hidden_centres(ROWS, p)
        gamma = width(X)
        folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))
        work = partial(_ours, X, y, gamma, folds, float(Cs[0]), float(Cs[-1]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (found, machine), wall, cpu = clock.once(work)
        score = {"best_error": found.best_error, "best_C": found.best_C, "relative_gap": machine.relative_gap}
        _add(context, p, OURS, wall, cpu, score, f"this machine, {clock.cores()} cores")
        for who, seconds in printed.items():
            _add(context, p, who, seconds, seconds, {}, "printed" if who == "scikit-learn" else "printed, on an L40S")
        if context.wants("scikit-learn"):
            _, wall, cpu = clock.once(partial(_sample, X, y, gamma, folds, Cs[EVERY // 2 :: EVERY]))
            share = EVERY * FOLDS
            _add(
                context, p, "scikit-learn", share * wall, share * cpu, {}, "this machine, estimated from 5 of 500 fits"
            )
        if context.full and context.wants("TorchKM"):
            _, wall, cpu = clock.once(partial(_torch, X, y, gamma, folds, Cs))
            _add(context, p, "TorchKM", wall, cpu, {}, f"this machine, {clock.cores()} cores")


SUITE = Suite("gpu", "tuning 10,000 rows as a paper about GPUs does, beside the seconds that it printed", 20, run)
