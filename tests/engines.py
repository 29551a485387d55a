"""The engines that answer, on problems as small as tests like them, and the proof that they did.

By themselves small problems go to `small`, the block solver takes them whole, and their paths have no windows. Here
thresholds are lowered, so that every engine is within reach; each fit asserts who gave the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import comb
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings
from strategies import RULES, Case

import svmcore
from svmcore.path import window
from svmcore.solvers import block, small
from svmcore.train import auto

Thresholds = tuple[tuple[Any, dict[str, Any]], ...]


class Engine(NamedTuple):
    """A way to train: the solver's name, its options, and the thresholds at which small problems reach it."""

    solver: str
    options: dict[str, Any] = {}  # noqa: RUF012  (never changed)
    thresholds: Thresholds = ()

    @property
    def starts_anywhere(self) -> bool:
        """Whether it sets out from where it is told to."""
        return self.solver == "auto" or svmcore.solvers()[self.solver].warm_start

    def fit(self, case: Case, **more: Any) -> svmcore.Solution:
        """Train, and make sure that this engine has answered: of "auto" the one that was chosen, or one that relieved it."""
        chains: list[tuple[str, ...]] = []
        warm: list[bool] = []

        def choose(*args: Any, **facts: Any) -> tuple[str, ...]:
            chains.append(choice_of(*args, **facts))
            warm.append(facts["warm"])
            return chains[-1]

        choice_of = auto.choose
        with patched(((auto, {"choose": choose}), *self.thresholds)):
            solution = case.fit(**{"solver": self.solver, **self.options, **more})
        if self.solver == "auto" and not chains:
            assert solution.solver == "small"
        elif self.solver == "auto":
            assert solution.solver in chains[-1] or (solution.solver == "small" and not self.thresholds)
            assert not self.thresholds or chains[-1][0] == first_of_auto(case, more, warm[-1])
        else:
            assert not chains
            assert solution.solver == self.solver
        return solution


@contextmanager
def patched(thresholds: Thresholds) -> Iterator[None]:
    """Other values of names in modules, for a while."""
    with ExitStack() as stack:
        for module, values in thresholds:
            stack.enter_context(mock.patch.multiple(module, **values))
        yield


@contextmanager
def early_windows() -> Iterator[list[int]]:
    """Windows wherever two points are on the elbow; the list tells how many there were in each path."""
    counts: list[int] = []
    told = window.Inverse.counts

    def counted(windows: Any) -> Any:
        counts.append(told(windows)["n_windows"])
        return told(windows)

    thresholds = ((window, {"FEWEST": 2, "WORTH": 1.0, "REST": 8}), (window.Inverse, {"counts": counted}))
    with patched(thresholds):
        yield counts


def first_of_auto(case: Case, limits: dict[str, Any], warm: bool) -> str:
    """Whom "auto" asks first at `AUTO_AT_ANY_SIZE`, where no box is small, in the words of the table in `auto`."""
    o = case.options
    if callable(o["kernel"]) and 8 * len(case.y) ** 2 > 1e6 * (limits.get("cache_mb") or 512.0):
        return "smo"
    n, d = np.count_nonzero(case.dual().cost_of_variable), case.X.shape[1]
    few = False
    if o["kernel"] == "linear":
        few = d <= n // 4
        curved = o.get("loss", "").startswith("squared") or not isinstance(case.X, np.ndarray)
        if not warm and curved and np.isfinite(o["C"]) and d <= n:
            return "newton"
    elif o["kernel"] == "poly" and o.get("coef0", 0.0) >= 0.0:
        degree = o.get("degree", 3)
        lengths = range(degree + 1) if o.get("coef0", 0.0) else [degree]  # of the monomials
        few = sum(comb(d + length - 1, length) for length in lengths) <= min(n // 8, 150)
    return "interior" if np.isfinite(o["C"]) and few and not warm else "block"


def small_block(run: Any, free: int) -> int:
    """Working sets of a few variables, yet larger than the free set."""
    return min(len(run.beta), 6 + int(block.FREE_FACTOR * free))


AUTO_AT_ANY_SIZE: Thresholds = (
    (auto, {"TINY": 0, "MOST_OPEN": 0, "LEAST_POINTS": 1, "TAME": -1.0}),
    (small, {"MOST": 0}),
)
SEVERAL_SETS: Thresholds = ((block._BlockRun, {"block_size": small_block}),)

ENGINES = {rule: Engine("smo", {"rule": rule}) for rule in RULES} | {
    "block": Engine("block"),
    "blocks": Engine("block", {}, SEVERAL_SETS),
    "interior": Engine("interior"),
    "newton": Engine("newton"),
    "auto": Engine("auto", {}, AUTO_AT_ANY_SIZE),
    "small": Engine("auto"),
}
REFERENCE = ENGINES["second"]


def over(*names: str) -> Any:
    """A property of these engines (of all, when none is named); each gets a quarter of the examples."""

    def decorate(test: Any) -> Any:
        share = settings(max_examples=max(1, settings.default.max_examples // 4))(test)
        chosen = names or tuple(ENGINES)
        return pytest.mark.parametrize("engine", [ENGINES[name] for name in chosen], ids=chosen)(share)

    return decorate


def but(*names: str) -> Any:
    """A property of all engines but these."""
    return over(*(name for name in ENGINES if name not in names))
