"""Time against n, doubling: how a fit grows. Who takes more than a second sits out larger sizes."""

from __future__ import annotations

from collections.abc import Callable

from bench.contest import Context, contest
from bench.peers import DEFAULT, peers
from bench.peers.ours import WholePath
from bench.problems import Problem
from bench.results import seconds
from bench.suite import Suite

SIZES = [500, 1000, 2000, 4000, 8000, 16000]
CLASSES: dict[str, Callable[[int], Problem]] = {
    "rbf, 20 features, C = 1": lambda n: Problem(f"clusters-{n}-20"),
    "rbf, 20 features, C = 100": lambda n: Problem(f"clusters-{n}-20", C=100.0),
    "one-hot, sparse, C = 1": lambda n: Problem(f"onehot-{n}-120", gamma=0.05),
}
_PATIENCE = 1.0  # seconds


def run(context: Context) -> None:
    for group, made in CLASSES.items():
        solvers = [DEFAULT, *peers(), WholePath()]
        for n in SIZES[: context.size(len(SIZES), 1)]:
            rows = contest(context, "scaling", made(n), solvers, equal_gap=False, time_for_it=2.0, group=group)
            slow = {row["solver"] for row in rows if seconds(row) > _PATIENCE}
            solvers = [solver for solver in solvers if solver is DEFAULT or solver.name not in slow]


SUITE = Suite("scaling", "time against n, doubled from 500 to 16,000, with the fitted exponent", 7, run)
