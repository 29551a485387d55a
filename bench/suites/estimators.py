"""scikit-learn's interface: our estimators against its own, on one thread, and what one costs on top of its function.

Both sides get the same parameters. `met` says that their predictions agree, but for some in a thousand rows at a tie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bench import data
from bench.contest import Context
from bench.race import race
from bench.suite import Suite

OURS, THEIRS = "svmcore", "scikit-learn"
CACHE_MB = 2000
_AGREE = 0.995
_CALLS = 100  # of what is over in no time, timed together
_CLOSE = 0.05  # difference of regressions, as a share of the spread of the targets


class Case(NamedTuple):
    """A comparison: how many times faster it is meant to be, and what makes the works to be timed."""

    name: str
    goal: float
    make: Callable[[], tuple[dict[str, Callable[[], Any]], Callable[[Any], np.ndarray], int, int]]


def _letters() -> tuple[np.ndarray, np.ndarray]:
    """26 letters, features scaled."""
    folder = data.folder()
    file = folder / "classes" / "letter.npz" if folder is not None else None
    if file is None or not file.is_file():
        raise FileNotFoundError("classes/letter.npz is not in the data folder")
    with np.load(file) as stored:
        return data.standardised(stored["X"].astype(float)), stored["y"].astype(np.int64)


def _fits(name: str, X: np.ndarray, y: Any, ours: dict[str, Any], theirs: Any = None, **both: Any) -> Any:
    """A fit by either side."""
    from sklearn import svm

    import svmcore

    own = getattr(svmcore, name)(n_threads=1, **both, **ours)
    other = getattr(svm, name)(cache_size=CACHE_MB, **both)
    other = other if theirs is None else theirs(other)
    few = X[:: max(1, len(X) // 2000)]
    return (
        {OURS: lambda: own.fit(X, y), THEIRS: lambda: other.fit(X, y)},
        lambda machine: machine.predict(few),
        *X.shape,
    )


def _one_against_one() -> Any:
    return _fits("SVC", *_letters(), {}, C=10.0)


def _one_against_the_rest() -> Any:
    from sklearn.multiclass import OneVsRestClassifier

    return _fits("SVC", *_letters(), {"multi_class": "ovr"}, OneVsRestClassifier, C=10.0)


def _one_class() -> Any:
    return _fits("OneClassSVM", data.load("mixture-50000-10").X, None, {}, nu=0.1)


def _nu_classes() -> Any:
    found = data.load("clusters-5000-10")
    return _fits("NuSVC", found.X, found.y, {}, nu=0.2)


def _nu_numbers() -> Any:
    found = data.load("clusters-5000-10")
    rng = np.random.default_rng(0)
    return _fits("NuSVR", found.X, np.sin(found.X[:, 0]) + found.X[:, 1] + 0.2 * rng.normal(size=5000), {}, nu=0.3)


def _predictions() -> Any:
    """Both sides predict with the same machine, which was trained on a fifth of the rows."""
    import svmcore

    X, y = _letters()
    own = svmcore.SVC(C=10.0, n_threads=1).fit(X[::5], y[::5])
    other = own.to_sklearn()
    return {OURS: lambda: own.predict(X), THEIRS: lambda: other.predict(X)}, lambda values: values, *X.shape


def _on_top() -> Any:
    """What an estimator's fit costs without its function, whose answer is there already; no goal as a ratio, but 0.1 ms."""
    import svmcore
    from svmcore.estimators import _base

    found = data.load("clusters-1000-10")
    own = svmcore.SVC(n_threads=1).fit(found.X, found.y)
    known, trained = own._fitted.found, _base._trained

    def added() -> Any:
        _base._trained = lambda *_: known
        try:
            for _ in range(_CALLS):
                own.fit(found.X, found.y)
        finally:
            _base._trained = trained
        return own

    return {OURS: added}, lambda machine: machine.predict(found.X), *found.X.shape


CASES = [
    Case("letters, one against one", 15.0, _one_against_one),
    Case("letters, one against the rest", 15.0, _one_against_the_rest),
    Case("one class, 50,000 rows", 15.0, _one_class),
    Case("nu, classes", 4.0, _nu_classes),
    Case("nu, numbers", 4.0, _nu_numbers),
    Case("predict 26 classes", 20.0, _predictions),
    Case("on top of the function, 0.1 ms at most", 0.0, _on_top),
]


def _agree(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two sides say the same."""
    if a.dtype.kind == "f" and len(np.unique(a)) > 26:
        return bool(np.abs(a - b).max() <= _CLOSE * np.ptp(b))
    return bool(np.mean(a == b) >= _AGREE)


def run(context: Context) -> None:
    """Time every case, the two sides in turn."""
    for case in CASES[:: context.size(1, len(CASES))]:
        if not context.named(case.name):
            continue
        try:
            works, look, n, d = case.make()
        except FileNotFoundError as error:
            context.skip("estimators", OURS, str(error), case.name)
            continue

        def judge(who: str, answers: Any, look: Any = look, goal: float = case.goal) -> tuple[bool, dict[str, float]]:
            said = [np.asarray(look(answers[name])) for name in (who, OURS)]
            return _agree(*said), {"goal": goal}

        race(
            context, "estimators", case.name, {"name": case.name, "n": n, "d": d}, works, judge=judge, seconds=8.0,
            calls=1 if case.goal else _CALLS,
        )  # fmt: skip


SUITE = Suite("estimators", "scikit-learn's interface against scikit-learn", 15, run)
