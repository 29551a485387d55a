"""Time against n, doubling: how a fit grows."""

from __future__ import annotations

from bench.contest import Context, contest
from bench.peers import DEFAULT, peers
from bench.peers.ours import WholePath
from bench.problems import Problem
from bench.suite import Suite

SIZES = [500, 1000, 2000, 4000, 8000, 16000]
SLOW = ("LIBSVM", "ThunderSVM")  # the fit suite has them; here they would only cost time


def run(context: Context) -> None:
    solvers = [DEFAULT, *(peer for peer in peers() if peer.name not in SLOW)]
    for n in SIZES:
        for C in (1.0, 100.0) if n < SIZES[-1] else (1.0,):
            contest(
                context, "scaling", Problem(f"clusters-{n}-20", C=C), [*solvers, WholePath()] if C == 1.0 else solvers,
                equal_gap=False, time_for_it=6.0, group=f"C = {C:g}",
            )  # fmt: skip


SUITE = Suite("scaling", "time against n, doubled from 500 to 16,000, with the fitted exponent", 7, run)
