"""Who competes. A new peer is a file here and a line in `peers`; one that is not installed is skipped with its name."""

from __future__ import annotations

import numpy as np

from bench.peers.base import Solver
from bench.peers.intelex import Intelex
from bench.peers.liblinear import LibLinear
from bench.peers.libsvm import LibSVM
from bench.peers.ours import DEFAULT, Ours, every
from bench.peers.scikit import ScikitLearn
from bench.peers.thunder import Thunder

__all__ = ["BASELINE", "DEFAULT", "Ours", "Solver", "by_name", "every", "peers"]

BASELINE = ScikitLearn.name


def peers() -> list[Solver]:
    """Everybody else's solvers of one problem."""
    return [ScikitLearn(), Intelex(np.float64), Intelex(np.float32), LibSVM(), LibLinear(), Thunder()]


def by_name(name: str) -> Solver:
    """A solver or peer by its name."""
    for solvers in (lambda: [DEFAULT, *peers()], every):  # ours one by one only when asked for: they import a lot
        for solver in solvers():
            if solver.name == name:
                return solver
    raise KeyError(name)
