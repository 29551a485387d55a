"""Linear machines: `LinearSVC` against LIBLINEAR and SGDClassifier, as whole estimators on one thread, at equal gaps.

LIBLINEAR has its choice of solver and tolerance: for each gap that which takes least time of those that reach it. Ours is the
loosest of three that reaches it. A gap is the distance of a primal objective from that of an answer of ours with a
certificate of 1e-8 or better, which is kind to LIBLINEAR: our answers are certified. SGDClassifier has the same problem: a
constant feature in place of its intercept, which costs nothing there, and alpha = 1 / (C n). It shows where it reaches a gap.
Rows that are lost are shown like the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bench import clock, data
from bench.contest import Context
from bench.suite import Suite

OURS, THEIRS, STEPS = "svmcore", "LIBLINEAR", "SGDClassifier"
GAPS = (1e-2, 1e-3, 1e-4, 1e-6)
TOLERANCES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
SHARE = 0.01  # of our tolerance: the gap that it stands for
_SLOW = 60.0  # seconds of a fit after which no tighter one is tried
_ONCE = 3.0  # seconds of a fit that is not repeated
_SECONDS = 2.0


class Case(NamedTuple):
    """Data, and the loss. `classes` of labels are made of a generated set."""

    data: str
    classes: int = 2
    loss: str = "squared_hinge"
    penalty: str = "l2"

    @property
    def name(self) -> str:
        return f"{self.data}, {self.classes} classes, {self.loss}" + (", l1" if self.penalty == "l1" else "")


CASES = [
    Case("iris", 3),
    Case("wine", 3),
    Case("breast_cancer"),
    Case("digits", 10),
    Case("classification-20000-10-10"),
    Case("classification-20000-30-10"),
    Case("onehot-32000-123"),
    Case("onehot-100000-200"),
    Case("text-6000-20000"),
    Case("text-6000-20000", 10),
    Case("text-6000-20000", 20),
    Case("classification-100-20000-5"),
    Case("embedding-10000-784"),
    Case("embedding-10000-784", 10),
    Case("classification-10000-2000-5"),
    Case("classification-20000-10-10", loss="hinge"),
    Case("onehot-32000-123", loss="hinge"),
    Case("text-6000-20000", loss="hinge"),
    Case("breast_cancer", penalty="l1"),
    Case("onehot-32000-123", penalty="l1"),
    Case("text-6000-20000", penalty="l1"),
    Case("text-6000-20000", 10, penalty="l1"),
]


def rows_of(case: Case) -> tuple[Any, np.ndarray]:
    """The rows and labels of a case."""
    from sklearn import datasets

    if hasattr(datasets, f"load_{case.data}"):
        X, y = getattr(datasets, f"load_{case.data}")(return_X_y=True)
        return data.standardised(X), y
    found = data.load(case.data)
    X = found.X if hasattr(found.X, "indptr") else np.ascontiguousarray(found.X, dtype=np.float64)
    if case.classes == 2:
        return X, found.y
    rng = np.random.default_rng(case.classes)
    scores = X @ rng.standard_normal((X.shape[1], case.classes))
    scores = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    return X, np.argmax(scores + 0.5 * rng.standard_normal(scores.shape), axis=1)


def objectives(machine: Any, X: Any, y: np.ndarray, case: Case) -> np.ndarray:
    """LIBLINEAR's objective of every machine for two of an estimator, by its definition, at C = 1."""
    out = []
    for k, (w, b) in enumerate(zip(machine.coef_, np.ravel(machine.intercept_), strict=True)):
        signs = np.where(y == machine.classes_[1 if len(machine.coef_) == 1 else k], 1.0, -1.0)
        short = np.maximum(0.0, 1.0 - signs * (X @ w + b))
        losses = float((short**2 if case.loss == "squared_hinge" else short).sum())
        out.append((np.abs(w).sum() + abs(b) if case.penalty == "l1" else 0.5 * (w @ w + b * b)) + losses)
    return np.array(out)


def _theirs(case: Case, X: Any, y: np.ndarray, best: np.ndarray) -> dict[float, tuple[float, Callable[[], Any]]]:
    """For every gap: the seconds of LIBLINEAR's quickest fit that reaches it, and that fit."""
    from sklearn.svm import LinearSVC

    found: dict[float, tuple[float, Callable[[], Any]]] = {}
    ways = (False, True) if case.loss == "squared_hinge" else (True,)
    for dual in (False,) if case.penalty == "l1" else ways:
        for tol in TOLERANCES:
            words = {"loss": case.loss, "penalty": case.penalty, "dual": dual, "tol": tol}
            machine = LinearSVC(**words, max_iter=10_000, random_state=0)
            work = partial(machine.fit, X, y)
            answer, _, cpu = clock.once(work)
            gap = float(np.max(objectives(answer, X, y, case) / best - 1.0))
            for goal in GAPS:
                if gap <= goal and cpu < found.get(goal, (np.inf,))[0]:
                    found[goal] = (cpu, work)
            if gap <= GAPS[-1] or cpu > found.get(GAPS[-1], (_SLOW,))[0]:
                break
    return found


class _Steps:
    """SGDClassifier of LIBLINEAR's problem at C = 1: rows with a constant feature, and the penalty of one row."""

    def __init__(self, case: Case, n: int, tol: float) -> None:
        from sklearn.linear_model import SGDClassifier

        self.inner = SGDClassifier(
            loss=case.loss,
            penalty=case.penalty,
            alpha=1.0 / n,
            fit_intercept=False,
            tol=tol,
            max_iter=1000,
            random_state=0,
        )

    def fit(self, X: Any, y: np.ndarray) -> _Steps:
        from scipy import sparse

        both: list[Any] = [X, np.ones((X.shape[0], 1))]
        self.inner.fit(sparse.hstack(both, format="csr") if sparse.issparse(X) else np.hstack(both), y)
        self.classes_, self.coef_, self.intercept_ = (
            self.inner.classes_,
            self.inner.coef_[:, :-1],
            self.inner.coef_[:, -1],
        )
        return self


def _of_steps(case: Case, X: Any, y: np.ndarray, best: np.ndarray) -> dict[float, tuple[float, Callable[[], Any]]]:
    """The same for SGDClassifier, at its own tolerance and two tighter ones."""
    found: dict[float, tuple[float, Callable[[], Any]]] = {}
    for tol in (1e-3, 1e-4, 1e-5):
        machine = _Steps(case, X.shape[0], tol)
        work = partial(machine.fit, X, y)
        answer, _, cpu = clock.once(work)
        gap = float(np.max(objectives(answer, X, y, case) / best - 1.0))
        for goal in GAPS:
            if gap <= goal and cpu < found.get(goal, (np.inf,))[0]:
                found[goal] = (cpu, work)
        if gap <= GAPS[-1] or cpu > _SLOW:
            break
    return found


def _ours(case: Case, tol: float) -> Any:
    """Our estimator. Its tolerance stands for a gap between that share of it and all of it."""
    import svmcore

    words: dict[str, Any] = {"loss": case.loss, "penalty": case.penalty, "tol": tol, "n_threads": 1}
    return svmcore.LinearSVC(**words)


def _compare(context: Context, case: Case) -> None:
    X, y = rows_of(case)
    best = objectives(_ours(case, 1e-8).fit(X, y), X, y, case)
    peers = {THEIRS: _theirs(case, X, y, best)}
    if case.penalty == "l2":
        peers[STEPS] = _of_steps(case, X, y, best)
    shown = []
    for goal in GAPS:
        for tol in (goal / SHARE, 10 * goal, goal):
            machine = _ours(case, tol)
            if np.max(objectives(machine.fit(X, y), X, y, case) / best - 1.0) <= goal:
                break
        works: dict[str, Callable[[], Any]] = {OURS: partial(machine.fit, X, y)}
        works |= {name: found[goal][1] for name, found in peers.items() if goal in found}
        first = {name: clock.once(work) for name, work in works.items()}
        short = {name: works[name] for name, (_, _, cpu) in first.items() if cpu < _ONCE}
        one_round = sum(first[name][2] for name in short)
        times, answers = clock.alternate(short, clock.rounds_for(_SECONDS, one_round, least=2))
        for name in works.keys() - short.keys():
            answers[name], wall, cpu = first[name]
            times[name] = clock.Times([wall], [cpu])
        for name, took in times.items():
            gap = float(np.max(objectives(answers[name], X, y, case) / best - 1.0))
            context.results.add(
                {
                    "kind": "row", "suite": "linear", "group": case.name, "solver": name, "mode": "gap", "tol": goal,
                    "problem": {"name": case.name, "n": X.shape[0], "d": X.shape[1]}, "threads": 1, "asked": goal,
                    "score": {"relative_gap": gap}, "met": gap <= goal, "wall": took.wall, "cpu": took.cpu,
                }
            )  # fmt: skip
        ours = min(times[OURS].cpu)
        ratios = [
            f"{name} {min(times[name].cpu) / ours:.2f}x" if name in times else f"{name} does not reach it"
            for name in peers
        ]
        shown.append(f"{goal:g}: {1e3 * ours:.3g} ms, " + ", ".join(ratios))
    context.say(f"  {case.name}: " + "; ".join(shown))


def run(context: Context) -> None:
    """Every case, at every gap."""
    import importlib.util

    if importlib.util.find_spec("sklearn") is None:
        context.skip("linear", THEIRS, "scikit-learn, which brings it, is not installed")
        return
    for case in CASES:
        if context.problems and not any(word in case.name for word in context.problems):
            continue
        if context.out_of_time():
            context.skip("linear", "everybody", "the suite's time was up", case.name)
            continue
        with clock.threads(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # LIBLINEAR's limits
            _compare(context, case)


SUITE = Suite("linear", "linear machines against LIBLINEAR, at equal gaps", 20, run)
