"""The regular cases of Intel's scikit-learn_bench (configs/regular/svm.json) whose data can be made or are at hand.

Whole estimators with its parameters: gamma="scale", tol 1e-3, standardised features, and for the others at most 10,000
iterations, which some cases need more of. Ours has no limit. `met` says that somebody predicts what we do: who was stopped
does not. Letters and usps stand where it has connect-4 and mnist. Not at hand: gisette, ijcnn, skin, codrna.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bench import clock, data
from bench.contest import Context
from bench.environment import version
from bench.race import agreeing, race
from bench.suite import Suite

OURS = "svmcore"
PEERS = {"scikit-learn": ("sklearn.svm", "scikit-learn"), "oneDAL": ("sklearnex.svm", "scikit-learn-intelex")}
LIMIT, CACHE_MB = 10_000, 4000
_LOOKED_AT = 2000
_OTHER, _FAR = (
    0.005,
    0.02,
)  # share of other classes; root mean square of differences, by the spread of what is predicted
_TINY = 300


class Case(NamedTuple):
    """Rows of a set, a machine, and its words."""

    data: str
    rows: int
    machine: str
    words: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.machine}({', '.join(f'{key}={value}' for key, value in self.words.items())})"


CASES = [  # the quick ones first: a run that is cut short has most of them
    Case("a7a", 5000, "SVC", {"kernel": "linear", "C": 1.0}),
    Case("a7a", 5000, "NuSVC", {"kernel": "poly", "nu": 0.1}),
    Case("a7a", 5000, "NuSVC", {"kernel": "rbf", "nu": 0.1}),
    Case("letter", 20_000, "SVC", {"kernel": "rbf", "C": 10.0}),
    Case("letter", 20_000, "SVC", {"kernel": "poly", "C": 10.0}),
    Case("usps", 9298, "SVC", {"kernel": "rbf", "C": 1.0}),
    Case("usps", 9298, "SVC", {"kernel": "poly", "C": 1.0}),
    Case("fried", 20_384, "SVR", {"kernel": "rbf", "C": 2.0}),
    Case("twodplanes", 25_000, "SVR", {"kernel": "linear", "C": 1.0}),
    Case("twodplanes", 25_000, "SVR", {"kernel": "poly", "C": 1.0}),
    Case("twodplanes", 25_000, "SVR", {"kernel": "rbf", "C": 1.0}),
    Case("fried", 30_576, "NuSVR", {"kernel": "rbf", "C": 2.0, "nu": 0.8}),
    Case("twodplanes", 25_000, "NuSVR", {"kernel": "linear", "C": 1.0}),
    Case("twodplanes", 25_000, "NuSVR", {"kernel": "poly", "C": 1.0}),
    Case("twodplanes", 25_000, "NuSVR", {"kernel": "rbf", "C": 1.0}),
    Case("regression", 10_000, "SVR", {"kernel": "linear", "C": 0.1}),
    Case("regression", 10_000, "NuSVR", {"kernel": "linear", "C": 0.1, "nu": 0.5}),
]


def fried(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Friedman's regression: ten features, five of which matter."""
    X = rng.random((n, 10))
    smooth = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2
    return X, smooth + 10.0 * X[:, 3] + 5.0 * X[:, 4] + rng.standard_normal(n)


def twodplanes(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Breiman's two planes: the first feature, -1 or 1, says on which one the others count."""
    X = rng.integers(-1, 2, (n, 10)).astype(float)
    X[:, 0] = 2.0 * rng.integers(0, 2, n) - 1.0
    plane = np.where(X[:, 0] > 0, 3.0 + X[:, 1:4] @ [3.0, 2.0, 1.0], -3.0 + X[:, 4:7] @ [3.0, 2.0, 1.0])
    return X, plane + rng.standard_normal(n)


def regression(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's `make_regression`: 1,000 features, half of which matter."""
    from sklearn.datasets import make_regression

    X, y = make_regression(n, 1000, n_informative=500, random_state=int(rng.integers(1 << 31)))
    return X, y


MADE = {"fried": fried, "twodplanes": twodplanes, "regression": regression}
FILES = {"letter": "classes/letter", "usps": "classes/usps"}


def rows_of(case: Case, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Some rows, standardised, and their classes or targets."""
    rng = np.random.default_rng(0)
    if case.data in MADE:
        X, y = MADE[case.data](n, rng)
    else:
        found = data.load(FILES.get(case.data, case.data))
        chosen = rng.permutation(len(found.y))[:n]
        X, y = found.X[chosen], found.y[chosen]
    return data.standardised(np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)), y


def _agree(few: np.ndarray, theirs: Any, ours: Any) -> bool:
    a, b = theirs.predict(few), ours.predict(few)
    if hasattr(ours, "classes_"):
        return bool(np.mean(a != b) <= _OTHER)
    return bool(np.sqrt(np.mean((a - b) ** 2)) <= _FAR * b.std())


def run(context: Context) -> None:
    """Every case, by us, by scikit-learn and by oneDAL, each of which may use every processor."""
    from importlib import import_module

    import svmcore

    for case in CASES:
        name = f"{case.data}, {case.name}"
        if not context.named(name):
            continue
        if case.data not in MADE and (why := data.missing(FILES.get(case.data, case.data))):
            context.skip("intel", "everybody", why, name)
            continue
        X, y = rows_of(case, context.size(case.rows, _TINY))
        own = getattr(svmcore, case.machine)
        own(**case.words).fit(X[:_TINY], y[:_TINY])  # not timed: machine code is loaded
        works = {OURS: partial(own(**case.words).fit, X, y)}
        for peer, (module, package) in PEERS.items():
            if version(package) is None:
                context.skip("intel", peer, f"{package} is not installed")
                continue
            made = getattr(import_module(module), case.machine)
            works[peer] = partial(made(**case.words, max_iter=LIMIT, cache_size=CACHE_MB).fit, X, y)
        few = X[:: max(1, len(X) // _LOOKED_AT)]
        race(
            context, "intel", case.data, {"name": case.name, "n": len(X), "d": X.shape[1]}, works,
            judge=agreeing(OURS, partial(_agree, few)), seconds=2.0, least=1, threads=clock.cores(),
        )  # fmt: skip


SUITE = Suite("intel", "the regular cases of Intel's scikit-learn_bench, beside scikit-learn and oneDAL", 8, run)
