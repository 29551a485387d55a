"""Tuning by the protocol of a paper about GPUs, and beside it the seconds that the paper printed.

TorchKM (2026), table 2, and a7a of table 3: ten folds, 50 values of C, a refit; the time is that of all of it. We follow
every C of that range, exactly, on the processor of this machine. Others would take hours here. So their time is estimated
from a few of their fits, and the row says from which.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import svmcore
from bench import clock, data
from bench.contest import Context
from bench.environment import version
from bench.race import race
from bench.suite import Suite

OURS = "svmcore, every C"
PRINTED = {  # seconds of table 2, and of a row of table 3: data -> who -> time
    "10 columns": {"TorchKM": 23.3, "ThunderSVM": 38.0, "scikit-learn": 1131.0},
    "100 columns": {"TorchKM": 17.9, "ThunderSVM": 62.7, "scikit-learn": 1974.0},
    "1000 columns": {"TorchKM": 37.7, "ThunderSVM": 279.0, "scikit-learn": 14323.0},
    "a7a": {"TorchKM": 48.5},
}
ROWS, FOLDS, VALUES = 10_000, 10, 50
COLUMNS = " columns"
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


def _scikit(X: np.ndarray, y: np.ndarray, gamma: float, folds: Any, Cs: np.ndarray) -> None:
    """Fits and predictions of scikit-learn on one fold."""
    from sklearn.svm import SVC

    train, test = folds[0]
    for C in Cs:
        SVC(C=C, gamma=gamma, cache_size=2000).fit(X[train], y[train]).predict(X[test])


def _thunder(X: np.ndarray, y: np.ndarray, gamma: float, folds: Any, Cs: np.ndarray) -> None:
    """The same of ThunderSVM."""
    from thundersvm import SVC

    train, test = folds[0]
    for C in Cs:
        SVC(C=C, gamma=gamma, n_jobs=clock.cores()).fit(X[train], y[train]).predict(X[test])


def _torch(X: np.ndarray, y: np.ndarray, gamma: float, folds: Any, Cs: np.ndarray) -> Any:
    import torch
    from torchkm.cvksvm import cvksvm

    torch.set_num_threads(clock.cores())
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


class Peer(NamedTuple):
    """Somebody whose time is estimated: how, from how much of the work, and by which factor."""

    name: str
    package: str
    sample: Callable[[np.ndarray, np.ndarray, float, Any, np.ndarray], Any]
    how: str
    values: int  # of the 50
    share: float  # of the rows
    factor: float
    most_columns: int = 1000


PEERS = [
    Peer("scikit-learn", "scikit-learn", _scikit, "estimated from 3 of 500 fits", 3, 1.0, 500 / 3),
    Peer("ThunderSVM", "thundersvm-cpu", _thunder, "estimated from 3 of 500 fits", 3, 1.0, 500 / 3, 100),
    Peer("TorchKM", "torchkm", _torch, "at least: 4 times 5 of 50 values with half of the rows", 5, 0.5, 40.0),
]  # fmt: skip


def _cut(X: np.ndarray, y: np.ndarray) -> Any:
    from sklearn.model_selection import StratifiedKFold

    return list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))


def _estimate(
    context: Context, peer: Peer, X: np.ndarray, y: np.ndarray, gamma: float, problem: dict[str, Any]
) -> None:
    few = int(peer.share * len(X))
    Cs = _grid(few)
    some = Cs[np.linspace(0, len(Cs), peer.values + 1)[:-1].astype(int) + len(Cs) // peer.values // 2]
    peer.sample(X[:60], y[:60], gamma, _cut(X[:60], y[:60]), some[:2])  # not timed: modules are loaded
    work = partial(peer.sample, X[:few], y[:few], gamma, _cut(X[:few], y[:few]), some)
    race(
        context, "gpu", "", problem, {f"{peer.name} (this machine, {peer.how})": work}, threads=clock.cores(),
        each=peer.factor, seconds=0.0, once=True,
    )  # fmt: skip


def _grid(n: int) -> np.ndarray:
    return 0.5 / (n * np.logspace(np.log10(_LARGEST), np.log10(_LEAST), VALUES))


def run(context: Context) -> None:
    """A row for every cell of the table, printed or measured."""
    X, y = hidden_centres(100, 10)
    _ours(X, y, 0.1, 2, 1e-3, 1.0)  # not timed: machine code is loaded
    for name, printed in PRINTED.items():
        if not context.named(name):
            continue
        lacks = "" if name.endswith(COLUMNS) else data.missing(name)
        if lacks:
            context.skip("gpu", "everybody", lacks, name)
            continue
        X, y = _rows(name, 300 if context.tiny else None)
        problem: dict[str, Any] = {"name": name, "n": len(X), "d": X.shape[1]}
        gamma, Cs = width(X), _grid(len(X))
        work = partial(_ours, X, y, gamma, _cut(X, y), float(Cs[0]), float(Cs[-1]))
        race(
            context, "gpu", "", problem, {f"{OURS} (this machine, {clock.cores()} cores)": work}, judge=_judged,
            threads=clock.cores(), once=True,
        )  # fmt: skip
        for who, seconds in printed.items():
            how = "printed" if who == "scikit-learn" else "printed, on an L40S"
            context.record(
                "gpu", "", problem, f"{who} ({how})", clock.Times([seconds], [seconds]), threads=clock.cores()
            )
        for peer in PEERS:
            if not context.wants(peer.name):
                continue
            if version(peer.package) is None:
                context.skip("gpu", peer.name, f"{peer.package} is not installed")
            elif X.shape[1] > peer.most_columns:
                context.skip(
                    "gpu", peer.name, f"minutes for one fit of more than {peer.most_columns} columns", problem["name"]
                )
            else:
                _estimate(context, peer, X, y, gamma, problem)


def _rows(name: str, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    if name.endswith(COLUMNS):
        return hidden_centres(most or ROWS, int(name.removesuffix(COLUMNS)))
    found = data.load(name)
    return found.X[:most].toarray(), (found.y[:most] > 0).astype(int)


def _judged(who: str, answers: Any) -> tuple[bool, dict[str, Any]]:
    found, machine = answers[who]
    score = {"best_error": found.best_error, "best_C": found.best_C, "relative_gap": machine.relative_gap}
    return machine.converged, score


SUITE = Suite("gpu", "tuning as a paper about GPUs does, beside the seconds that it printed", 15, run)
