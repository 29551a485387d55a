"""Data sets by name: generated, built in, or from a folder of .npz files.

Names of generated sets carry their size: ``clusters-5000-20`` has 5,000 points of 20 features. The folder is the one
given by ``--data``, else the environment variable SVMCORE_DATA, else ``../shared/data`` next to the checkout when it
exists; a file in it holds ``X`` (or the parts of a CSR matrix) and ``y`` in {-1, +1}.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

ROOT = Path(__file__).parents[1]
_DEFAULT = ROOT.parent / "shared" / "data"


class DataSet(NamedTuple):
    """Points and labels in {-1, +1}, or targets. `test` holds a second part where the set has one."""

    X: Any
    y: np.ndarray
    test: tuple[Any, np.ndarray] | None = None


def folder() -> Path | None:
    """Where the data files are, if anywhere."""
    chosen = Path(os.environ.get("SVMCORE_DATA") or _DEFAULT)
    return chosen if chosen.is_dir() else None


def standardised(X: np.ndarray) -> np.ndarray:
    spread = X.std(axis=0)
    return np.ascontiguousarray((X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def clusters(n: int, d: int, flip: float = 0.02) -> DataSet:
    """Four Gaussian clusters a class at corners of a cube, in up to 10 of d features; the others are noise."""
    rng = np.random.default_rng(1)
    informative = min(d, 10)
    corners = rng.permuted(np.array([-1.0, 1.0] * (4 * informative)).reshape(8, informative), axis=1)
    shape = rng.uniform(-1.0, 1.0, (8, informative, informative))
    if informative < 3:
        shape = np.broadcast_to(0.5 * np.eye(informative), shape.shape)
    which = rng.integers(0, 8, n)
    X = rng.standard_normal((n, d))
    X[:, :informative] = 1.5 * corners[which] + np.einsum("ni,nij->nj", X[:, :informative], shape[which])
    y = np.where(which % 2 == 0, 1.0, -1.0)
    y[rng.random(n) < flip] *= -1.0
    return DataSet(standardised(X), y)


def classification(n: int, d: int, percent: int = 2) -> DataSet:
    """scikit-learn's `make_classification`: redundant features, and some percent of the labels drawn anew."""
    from sklearn.datasets import make_classification

    X, y = make_classification(
        n, d, n_informative=max(2, min(d // 2, 20)), n_redundant=d // 5, n_clusters_per_class=4 if d > 4 else 1,
        flip_y=percent / 100.0, random_state=3,
    )  # fmt: skip
    return DataSet(standardised(X), np.where(y > 0, 1.0, -1.0))


def noisy(n: int, d: int) -> DataSet:
    """`clusters` with 30 % of the labels wrong: most points become bounded support vectors."""
    return clusters(n, d, flip=0.3)


def mixture(n: int, d: int) -> DataSet:
    """16 overlapping Gaussians a class."""
    rng = np.random.default_rng(2)
    centres = 1.2 * rng.standard_normal((32, d))
    which = rng.integers(0, 32, n)
    X = centres[which] + rng.standard_normal((n, d))
    return DataSet(standardised(X), np.where(which % 2 == 0, 1.0, -1.0))


def onehot(n: int, d: int) -> DataSet:
    """Categorical columns, one-hot coded as CSR: 14 ones a row."""
    rng = np.random.default_rng(3)
    levels = np.array([5, 8, 16, 7, 14, 6, 5, 2, 2, 2, 2, 5, 41, d - 115])
    shares = [rng.dirichlet(np.ones(count)) for count in levels]
    weights = [rng.standard_normal(count) for count in levels]
    columns, score, start = [], np.zeros(n), 0
    for count, share, weight in zip(levels, shares, weights, strict=True):
        value = rng.choice(count, n, p=share)
        score += weight[value]
        columns.append(start + value)
        start += count
    score = 3.0 * (score - score.mean()) / score.std() - 1.5
    y = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-score)), 1.0, -1.0)
    indices = np.stack(columns, axis=1).ravel()
    indptr = np.arange(0, 14 * n + 1, 14)
    return DataSet(sparse.csr_matrix((np.ones(14 * n), indices, indptr), shape=(n, d)), y)


def text(n: int, d: int) -> DataSet:
    """Documents of about 75 words out of d, as frequent as in a language, some of them about a topic: tf-idf of length 1."""
    rng = np.random.default_rng(5)
    share = 1.0 / np.arange(1.0, d + 1.0)
    edges = np.cumsum(share / share.sum())
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    words = np.searchsorted(edges, rng.random((n, 90)))
    topic = rng.permutation(d)
    words[:, :15] = np.where(y[:, None] > 0, topic[words[:, :15]], words[:, :15])
    counts = sparse.csr_matrix((np.ones(words.size), (np.repeat(np.arange(n), 90), words.ravel())), shape=(n, d))
    counts.data[:] = 1.0
    idf = np.log(n / (1.0 + np.bincount(counts.indices, minlength=d))) + 1.0
    X = sparse.csr_matrix(counts.multiply(idf))
    X.sort_indices()
    length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
    X.data /= np.repeat(length, np.diff(X.indptr))
    return DataSet(X, y)


def embedding(n: int, d: int) -> DataSet:
    """What a random network of two layers makes of 20 latent features, in float32, with noise: like learned embeddings."""
    rng = np.random.default_rng(6)
    latent = rng.standard_normal((n, 20))
    hidden = np.tanh(latent @ rng.standard_normal((20, 64)) / np.sqrt(20.0))
    X = np.tanh(hidden @ rng.standard_normal((64, d)) / 8.0) + 0.05 * rng.standard_normal((n, d))
    score = 2.0 * latent[:, 0] + latent[:, 1] * latent[:, 2] + latent[:, 3] + 0.2 * rng.standard_normal(n)
    return DataSet(standardised(X).astype(np.float32), np.where(score > 0.0, 1.0, -1.0))


def waves(n: int, d: int) -> DataSet:
    """A smooth function of d features with noise: a regression."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((n, d))
    target = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2 % d] + 0.2 * rng.standard_normal(n)
    return DataSet(standardised(X), target)


def checkerboard() -> DataSet:
    """2,000 points on a 4 x 4 board."""
    X = np.random.default_rng(0).uniform(-2.0, 2.0, (2000, 2))
    return DataSet(X, np.where(np.floor(X).sum(axis=1) % 2 == 0, 1.0, -1.0))


def noisy_spirals() -> DataSet:
    """Two noisy spirals of 300 points, half of the points for training (B. Ding 2022)."""
    rng = np.random.default_rng(20040741)
    r = 1.0 + 2.0 * np.pi * np.arange(300) / 299
    arms = [np.column_stack([r * np.sin(2 * r + turn), r * np.cos(2 * r + turn)]) for turn in (0.0, np.pi)]
    X = np.vstack(arms) + rng.normal(0.0, 0.2, (600, 2))
    y = np.repeat([1.0, -1.0], 300)
    order = rng.permutation(600)
    train, test = np.sort(order[:300]), np.sort(order[300:])
    return DataSet(X[train], y[train], (X[test], y[test]))


def two_spirals() -> DataSet:
    """The 194 points of the CMU spirals."""
    i = np.arange(97)
    radius = 6.5 * (104 - i) / 104
    arm = np.column_stack([radius * np.sin(i * np.pi / 16), radius * np.cos(i * np.pi / 16)])
    X = np.empty((194, 2))
    X[::2], X[1::2] = arm, -arm
    return DataSet(X, np.tile([1.0, -1.0], 97))


def monk(which: int) -> DataSet:
    """The MONK's problems: all 432 combinations of six attributes, standardised."""
    grid = np.stack(np.meshgrid(*[np.arange(1, k + 1) for k in (3, 3, 2, 3, 4, 2)], indexing="ij"), axis=-1).reshape(
        -1, 6
    )
    a = grid.T
    rule = {
        1: (a[0] == a[1]) | (a[4] == 1),
        2: (grid == 1).sum(axis=1) == 2,
        3: ((a[4] == 3) & (a[3] == 1)) | ((a[4] != 4) & (a[1] != 3)),
    }[which]
    return DataSet(standardised(grid.astype(float)), np.where(rule, 1.0, -1.0))


GENERATED: dict[str, Callable[..., DataSet]] = {
    "clusters": clusters,
    "classification": classification,
    "noisy": noisy,
    "mixture": mixture,
    "onehot": onehot,
    "text": text,
    "waves": waves,
    "embedding": embedding,
}
BUILT_IN: dict[str, Callable[[], DataSet]] = {
    "checkerboard": checkerboard,
    "noisy_spirals": noisy_spirals,
    "two_spirals": two_spirals,
    **{f"monk{k}": functools.partial(monk, k) for k in (1, 2, 3)},
}


def usps_odd() -> DataSet:
    """Handwritten digits of 256 grey pixels: the odd ones against the even ones."""
    where = folder()
    assert where is not None
    with np.load(where / "classes" / "usps.npz", allow_pickle=False) as stored:
        return DataSet(stored["X"], np.where(stored["y"] % 2 == 1, 1.0, -1.0))  # classes are named after the digits


FROM_CLASSES: dict[str, tuple[str, Callable[[], DataSet]]] = {"usps_odd": ("usps", usps_odd)}
"""Sets made of those of several classes: which file, and how."""


def from_folder(name: str) -> DataSet:
    """A set of the data folder; dense features are standardised."""
    where = folder()
    assert where is not None
    with np.load(where / f"{name}.npz", allow_pickle=False) as stored:
        y = stored["y"].astype(float)
        if "X" in stored:
            return DataSet(standardised(stored["X"]), y)
        X = sparse.csr_matrix((stored["data"], stored["indices"], stored["indptr"]), shape=tuple(stored["shape"]))
        X.sort_indices()
        return DataSet(X, y)


ONES = "+1"
"""The end of a name of a set that has a feature of ones, as LIBLINEAR has in place of an intercept."""


def with_ones(found: DataSet) -> DataSet:
    """The set with a feature that is one everywhere."""
    both: list[Any] = [found.X, np.ones((len(found.y), 1))]
    return DataSet(sparse.hstack(both, format="csr") if sparse.issparse(found.X) else np.hstack(both), found.y)


def missing(name: str) -> str:
    """Why a set is not at hand; empty when it is."""
    name = name.removesuffix(ONES)
    kind = name.split("-")[0]
    if kind in GENERATED or name in BUILT_IN:
        lacks = kind == "classification" and importlib.util.find_spec("sklearn") is None
        return "scikit-learn, which generates it, is not installed" if lacks else ""
    where = folder()
    if where is None:
        return "no data folder; give --data or set SVMCORE_DATA"
    path = where / "classes" / f"{FROM_CLASSES[name][0]}.npz" if name in FROM_CLASSES else where / f"{name}.npz"
    return "" if path.is_file() else "not in the data folder"


@functools.lru_cache(maxsize=8)
def load(name: str) -> DataSet:
    """A data set by name."""
    if name.endswith(ONES):
        return with_ones(load(name.removesuffix(ONES)))
    kind, *sizes = name.split("-")
    if kind in GENERATED:
        return GENERATED[kind](*(int(size) for size in sizes))
    if name in BUILT_IN:
        return BUILT_IN[name]()
    if name in FROM_CLASSES:
        return FROM_CLASSES[name][1]()
    return from_folder(name)
