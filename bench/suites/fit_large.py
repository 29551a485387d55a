"""Fits where minutes matter: fewer repeats, and no search for equal gaps."""

from __future__ import annotations

from bench import data
from bench.contest import Context, contest
from bench.peers import DEFAULT, peers
from bench.problems import Problem
from bench.suite import Suite

CASES = [
    (Problem("clusters-20000-100"), 1),
    (Problem("onehot-20000-120", gamma=0.05), 1),
    (Problem("clusters-20000-20", C=100.0), 1),
    (Problem("a7a", gamma=0.05), 1),
    (Problem("clusters-50000-20"), 1),
    (Problem("clusters-50000-20"), 2),
]


def run(context: Context) -> None:
    for problem, threads in CASES:
        if why := data.missing(problem.data):
            context.skip("fit-large", "everybody", why, problem.data)
            continue
        contest(
            context, "fit-large", problem, [DEFAULT, *peers()], threads=threads, equal_gap=False, time_for_it=1.0,
            least_rounds=2, group="large, two threads" if threads > 1 else "large",
        )  # fmt: skip


SUITE = Suite("fit-large", "fits of 16,000 to 50,000 points", 14, run)
