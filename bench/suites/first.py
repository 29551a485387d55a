"""What a newcomer measures first: our estimators beside scikit-learn's, on its own small sets, made ones, text, one-hot rows.

Both sides get the same parameters and one thread. `met` says that scikit-learn's predictions on the training rows are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from bench.contest import Context
from bench.race import agreeing, race
from bench.suite import Suite

OURS, THEIRS = "svmcore", "scikit-learn"
_SECONDS = 1.0
_OTHER, _FAR = (
    0.02,
    0.05,
)  # rows with another prediction, or the largest difference of values, from which answers differ
_CLASSIFIERS: list[tuple[str, dict[str, Any]]] = [
    ("SVC", {}), ("SVC", {"kernel": "linear"}), ("SVC", {"kernel": "poly"}), ("SVC", {"C": 100.0}),
    ("NuSVC", {"nu": 0.05}), ("LinearSVC", {}), ("OneClassSVM", {}),
]  # fmt: skip
# What comes next, on sets whose classes overlap: other costs, other kernels, a nu that nobody can have.
_OTHER_CLASSIFIERS: list[tuple[str, dict[str, Any]]] = [
    ("SVC", {"C": 1e3}), ("SVC", {"kernel": "linear", "C": 100.0}), ("SVC", {"kernel": "sigmoid"}),
    ("NuSVC", {"nu": 0.3}), ("NuSVC", {"kernel": "linear", "nu": 0.2}), ("OneClassSVM", {"kernel": "linear"}),
    ("LinearSVC", {"C": 100.0}), ("LinearSVC", {"penalty": "l1", "dual": False}),
]  # fmt: skip
_OTHER_REGRESSIONS: list[tuple[str, dict[str, Any]]] = [
    ("SVR", {"C": 100.0}), ("SVR", {"C": 1e3, "gamma": 0.1}), ("NuSVR", {"C": 100.0}), ("NuSVR", {"C": 10.0, "nu": 0.9}),
]  # fmt: skip
_REGRESSIONS: list[tuple[str, dict[str, Any]]] = [
    ("SVR", {}), ("SVR", {"kernel": "linear"}), ("NuSVR", {}), ("LinearSVR", {}),
    ("LinearSVR", {"loss": "squared_epsilon_insensitive"}),
]  # fmt: skip
_LINEAR: list[tuple[str, dict[str, Any]]] = [
    ("LinearSVC", {}),
    ("LinearSVC", {"loss": "hinge"}),
    ("LinearSVC", {"C": 0.01}),
]


def _text(n: int, d: int, topics: int, seed: int) -> tuple[Any, np.ndarray]:
    """Rows of word weights, each about one of the topics: tf-idf with rare and frequent words."""
    from sklearn.preprocessing import normalize

    rng = np.random.default_rng(seed)
    frequent = np.arange(1, d + 1) ** -1.05
    own = [rng.choice(d, 40, replace=False) for _ in range(topics)]
    y = rng.integers(0, topics, n)
    counts = (rng.lognormal(4.0, 0.5, n) + 5.0).astype(int)
    words = [
        np.concatenate([rng.choice(d, count, p=frequent / frequent.sum()), rng.choice(own[topic], count // 6 + 1)])
        for count, topic in zip(counts, y, strict=True)
    ]
    rows = np.repeat(np.arange(n), [len(each) for each in words])
    X = sparse.csr_matrix((np.ones(len(rows)), (rows, np.concatenate(words))), shape=(n, d))
    X.data = 1.0 + np.log(X.data)
    rarity = np.log((1.0 + n) / (1.0 + np.bincount(X.indices, minlength=d))) + 1.0
    return sparse.csr_matrix(normalize(X @ sparse.diags(rarity))), y


def _words(n: int, groups: int, levels: int, seed: int) -> tuple[Any, np.ndarray]:
    """One-hot rows: a word of each group."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, levels, (n, groups))
    effect = rng.normal(size=(groups, levels))
    y = (effect[np.arange(groups), chosen].sum(axis=1) + rng.normal(size=n) > 1.0).astype(int)
    columns = (chosen + levels * np.arange(groups)).ravel()
    ends = np.arange(0, n * groups + 1, groups)
    return sparse.csr_matrix((np.ones(n * groups), columns, ends), shape=(n, groups * levels)), y


def _problems() -> Iterator[tuple[str, Any, Any, list[tuple[str, dict[str, Any]]]]]:
    """Name, rows, targets, and the machines that are fitted to them."""
    from sklearn import datasets
    from sklearn.preprocessing import StandardScaler

    sets = {
        "iris": datasets.load_iris(return_X_y=True),
        "wine": datasets.load_wine(return_X_y=True),
        "cancer": datasets.load_breast_cancer(return_X_y=True),
        "moons": datasets.make_moons(300, noise=0.2, random_state=0),
        "blobs": datasets.make_blobs(500, centers=6, random_state=0),
        "class100": datasets.make_classification(100, 20, random_state=0),
        "class1000": datasets.make_classification(1000, 20, random_state=0),
        "wide80": datasets.make_classification(80, 5000, n_informative=20, random_state=0),
        "digits": datasets.load_digits(return_X_y=True),
    }
    for name, (X, y) in sets.items():
        yield name, StandardScaler().fit_transform(X), y, _CLASSIFIERS
    X, y = datasets.load_diabetes(return_X_y=True)
    yield "diabetes", StandardScaler().fit_transform(X), (y - y.mean()) / y.std(), _REGRESSIONS
    second = {
        "circles": datasets.make_circles(200, noise=0.1, factor=0.5, random_state=0),
        "noisy blobs": datasets.make_blobs(400, centers=2, cluster_std=3.0, random_state=1),
        "noisy classes": datasets.make_classification(400, 10, n_informative=5, flip_y=0.1, random_state=2),
    }
    for name, (X, y) in second.items():
        yield name, X, y, _OTHER_CLASSIFIERS
    rng = np.random.default_rng(0)
    x = np.sort(5.0 * rng.random((200, 1)), axis=0)
    yield "noisy sine", x, np.sin(x[:, 0]) + 0.2 * rng.normal(size=200), _OTHER_REGRESSIONS
    x = np.sort(10.0 * rng.random((1000, 1)), axis=0)
    yield "sine", x, np.sin(x[:, 0]), _OTHER_REGRESSIONS
    yield "text, 2 topics", *_text(2000, 8000, 2, 1), _LINEAR
    yield "text, 10 topics", *_text(2000, 8000, 10, 2), _LINEAR
    yield "one-hot", *_words(10_000, 14, 9, 3), _LINEAR


def _agree(X: Any, theirs: Any, ours: Any) -> bool:
    """Whether both sides say the same of the training rows; of one class the sides of its boundary are compared by values."""
    if type(ours).__name__ == "OneClassSVM":
        a, b = ours.decision_function(X), theirs.decision_function(X)
        largest = np.abs(a).max(), np.abs(b).max()
        return bool(min(largest) > 0.0 and np.abs(a / largest[0] - b / largest[1]).max() <= _FAR)
    a, b = ours.predict(X), theirs.predict(X)
    if hasattr(ours, "classes_"):
        return bool(np.mean(a != b) <= _OTHER)
    return bool(np.abs(a - b).max() <= _FAR)


def _works(kind: str, words: dict[str, Any], X: Any, y: Any) -> dict[str, Callable[[], Any]]:
    from sklearn import svm

    import svmcore

    own, other = getattr(svmcore, kind), getattr(svm, kind)
    return {OURS: lambda: own(n_threads=1, **words).fit(X, y), THEIRS: lambda: other(**words).fit(X, y)}


def run(context: Context) -> None:
    """Time every fit, the two sides in turn."""
    for name, X, y, machines in _problems():
        if not context.named(name):
            continue
        for kind, words in machines[: context.size(len(machines), 1)]:
            works = _works(kind, words, X, y)
            group = kind + (f"({', '.join(f'{k}={v}' for k, v in words.items())})" if words else "")
            race(
                context, "first", name, {"name": group, "n": X.shape[0], "d": X.shape[1]}, works,
                judge=agreeing(OURS, partial(_agree, X)), seconds=_SECONDS,
            )  # fmt: skip


SUITE = Suite(
    "first",
    "what a newcomer measures: scikit-learn's own small sets, overlapping classes, curves, text, one-hot",
    4,
    run,
)
