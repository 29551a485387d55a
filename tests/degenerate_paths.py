"""Problems at which a path may go wrong: constant, tied, tiny, huge, indefinite and unsymmetric ones, from a seed.

And a judge, in plain numpy, that knows nothing of the library.
"""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

import svmcore

SCALES = (1e-300, 1e-150, 1e-30, 1e-8, 1.0, 1.0, 1.0, 1e8, 1e30, 1e140)
OURS = (svmcore.ConvergenceWarning, svmcore.ScaleWarning, svmcore.CostWarning)
VANISHES = 1e-240
"""An objective below this is zero: its parts underflow."""
WRONG = 1e-4
"""A relative gap above this is no answer, unless there is a warning."""


TICK = 0.1
"""Seconds of CPU time between two looks at what is running."""
COMPILERS = {"numba", "llvmlite"}


def _compiles(frame: FrameType | None) -> bool:
    """Whether a compiler is at work."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in COMPILERS:
            return True
        frame = frame.f_back
    return False


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """An AssertionError after so many seconds of CPU time, wherever the main thread is. Compiling does not count."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    last, used = time.process_time(), 0.0

    def look(_: int, frame: FrameType | None) -> None:
        nonlocal last, used
        now = time.process_time()
        used += 0.0 if _compiles(frame) else now - last
        last = now
        if used > seconds:
            raise AssertionError(f"no end within {seconds} s of CPU time")

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, TICK, TICK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


class Case(NamedTuple):
    """A call of a path, and the kernel matrix among its points, where the judge can have it."""

    name: str
    args: tuple[Any, ...]
    words: dict[str, Any]
    gram: Any
    weights: Any

    def call(self) -> Any:
        """Follow the path."""
        return getattr(svmcore, self.name)(*self.args, **self.words)


def _points(rng: Any, n: int) -> Any:
    d = int(rng.integers(1, 4))
    X = [
        lambda: rng.normal(size=(n, d)),
        lambda: rng.integers(0, 3, size=(n, d)).astype(float),
        lambda: np.full((n, d), float(rng.integers(0, 3))),
        lambda: rng.normal(size=(n, d))[rng.integers(0, n, n)],
    ][rng.choice(4, p=[0.4, 0.3, 0.1, 0.2])]()
    return X * (rng.choice(SCALES) if rng.random() < 0.15 else 1.0)


def _targets(rng: Any, n: int) -> Any:
    y = [
        lambda: rng.normal(size=n),
        lambda: rng.integers(0, 3, size=n).astype(float),
        lambda: np.full(n, float(rng.integers(-3, 6))),
        lambda: np.arange(n) % 2.0,
        lambda: np.where(np.arange(n) == 0, 7.0, 1.0),
    ][rng.integers(5)]()
    return y * (rng.choice(SCALES) if rng.random() < 0.3 else 1.0)


def _kernel(rng: Any, X: Any) -> tuple[Any, dict[str, Any], Any]:
    """Points, words, and the kernel matrix, or None where it is not to be judged."""
    n = X.shape[0]
    scale = float(rng.choice(SCALES)) if rng.random() < 0.4 else 1.0
    R = rng.normal(size=(n, n))
    rbf = lambda a, b: np.exp(-((a[:, None] - b[None]) ** 2).sum(-1))  # noqa: E731
    choice = rng.integers(9)
    if choice == 0:
        return X, {"kernel": "rbf", "gamma": 1.0}, rbf(X, X)
    if choice == 1:
        return X, {"kernel": "linear"}, X @ X.T
    if choice == 2:
        return X, {"kernel": "poly", "gamma": 1.0, "coef0": float(rng.integers(0, 2))}, None
    if choice == 3:
        return X * 3.0, {"kernel": "sigmoid", "gamma": 1.0, "coef0": float(rng.integers(-1, 2))}, None
    if choice == 4:
        low = R[:, : int(rng.integers(1, n + 1))]
        return low @ low.T * scale, {"kernel": "precomputed"}, low @ low.T * scale
    if choice == 5:
        return (R + R.T) * scale, {"kernel": "precomputed"}, None
    if choice == 6:
        return R * scale, {"kernel": "precomputed"}, None
    if choice == 7:
        return X, {"kernel": lambda a, b: scale * rbf(a, b)}, scale * rbf(X, X)
    return X, {"kernel": lambda a, b: scale * (a @ b.T + a[:, :1])}, None


def _weights(rng: Any, n: int) -> Any:
    return [
        lambda: None,
        lambda: rng.integers(0, 3, size=n).astype(float),
        lambda: np.full(n, float(rng.choice(SCALES))),
        lambda: np.where(rng.random(n) < 0.5, float(rng.choice(SCALES)), 1.0),
    ][rng.choice(4, p=[0.6, 0.15, 0.1, 0.15])]()


def case_of(seed: int) -> Case:
    """The problem of a seed."""
    rng = np.random.default_rng(seed)
    name = ["svm_path", "svr_path", "epsilon_path", "quantile_path", "one_class_path", "cv_path"][seed % 6]
    sizes = [8, 13, 40] if name == "cv_path" else [1, 2, 3, 5, 8, 13, 40]
    n = int(rng.choice(sizes))
    with np.errstate(all="ignore"):
        X, words, gram = _kernel(rng, _points(rng, n))
    y, labels, weights = _targets(rng, n), rng.integers(0, 2, size=n), _weights(rng, n)
    if weights is not None:
        words["sample_weight"] = weights
    if name != "one_class_path" and rng.random() < 0.2:
        words["fit_intercept"] = False
    if name != "epsilon_path" and rng.random() < 0.4:
        words["C_max"] = float(rng.choice([1e-6, 1.0, 1e8]))
    if name == "svr_path":
        words["epsilon"] = float(rng.choice([0.0, 0.1, 1e-300, 1e30]))
    if name == "epsilon_path":
        words["C"] = float(rng.choice([1e-150, 1e-8, 1.0, 1.0, 1e30]))
        if rng.random() < 0.2:
            words["epsilon_max"] = float(rng.choice([1e-300, 1.0, 1e30]))
    if name == "quantile_path":
        words["tau"] = float(rng.choice([0.5, 0.1, 1e-6]))
    args: tuple[Any, ...] = (X,) if name == "one_class_path" else (X, labels if name == "svm_path" else y)
    if name == "cv_path":
        words |= {"cv": 2, "loss": str(rng.choice(["hinge", "epsilon_insensitive", "pinball", "one_class"]))}
        args = (X, labels if words["loss"] in ("hinge", "one_class") else y)
        if words["loss"] == "one_class":
            words.pop("fit_intercept", None)
    return Case(name, args, words, gram, weights)


def judged(case: Case, path: Any) -> float:
    """The largest relative gap of the machines at some values of the parameter."""
    low, high = path.epsilon_range if path.parameter == "epsilon" else path.C_range
    ends = [v for v in (low, high) if 0.0 < v < np.inf] or [1.0]
    inner = path.epsilons if path.parameter == "epsilon" else path.Cs
    values = np.unique(np.concatenate([ends, inner, np.sqrt(inner[1:]) * np.sqrt(inner[:-1])]))
    values = values[(values >= low) & (values <= high)]
    return max((_gap(case, path, float(v)) for v in values[:: max(1, values.size // 12)]), default=0.0)


def _gap(case: Case, path: Any, value: float) -> float:
    K, n = case.gram, case.gram.shape[0]
    w = np.ones(n) if case.weights is None else np.where(case.weights < 1e-150, 0.0, case.weights)
    C, epsilon = (case.words["C"], value) if path.parameter == "epsilon" else (value, case.words.get("epsilon", 0.0))
    tau = case.words.get("tau", 0.5)
    beta = path.dual_coef(value)
    f = K @ beta + (path.intercept(value) if case.words.get("fit_intercept", True) else 0.0)
    target, insensitive = None, 0.0
    if case.name == "svm_path":
        s = np.where(case.args[1] == np.max(case.args[1]), 1.0, -1.0)
        losses, linear = np.maximum(0.0, 1.0 - s * f), s @ beta
    elif case.name == "one_class_path":
        f = K @ beta
        losses, linear = np.maximum(0.0, 1.0 - f), beta.sum()
    else:
        target = case.args[1]
        r = target - f
        linear = target @ beta
        if case.name == "quantile_path":
            losses = np.maximum(tau * r, (tau - 1.0) * r)
        else:
            losses, insensitive = np.maximum(0.0, np.abs(r) - epsilon), epsilon * np.abs(beta).sum()
    quadratic = float(beta @ K @ beta)
    primal = 0.5 * quadratic + C * float(w @ losses)
    dual = float(linear - insensitive) - 0.5 * quadratic
    floor = 1e-3 * C * float(w @ np.abs(target)) if target is not None else 1e-6 * C * float(w.sum())
    rounding = 1e-13 * float(np.abs(beta) @ np.abs(K) @ np.abs(beta))
    if target is not None:
        rounding += 1e-14 * C * float(w.sum() * np.abs(target).max())
    return (primal - dual - rounding) / max(abs(primal), floor, VANISHES)


def verdict(case: Case, seconds: float = 20.0) -> str:
    """How the case ends. AssertionError where that is not allowed."""
    with cpu_limit(seconds), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            path = case.call()
        except svmcore.InputError:
            return "refused"
    strange = [str(w.message) for w in said if not issubclass(w.category, OURS)]
    assert not strange, strange
    if any(issubclass(w.category, svmcore.ConvergenceWarning) for w in said):
        return "warned"
    assert path.ended == "done"
    if case.gram is None or case.name == "cv_path":
        return "done"
    gap = judged(case, path)
    assert gap <= WRONG, gap
    return "right"
