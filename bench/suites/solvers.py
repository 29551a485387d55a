"""Our solvers against each other on problems small enough for all of them: iterations, kernel values, time."""

from __future__ import annotations

from bench.contest import Context, contest
from bench.peers import DEFAULT, every
from bench.problems import Problem
from bench.suite import Suite

CASES = [
    Problem("noisy_spirals", gamma=10.0, C=0.5),
    Problem("monk1", gamma=2.0),
    Problem("two_spirals", gamma=1.0, C=10.0, loss="squared_hinge"),
    Problem("clusters-500-10"),
    Problem("clusters-500-10", C=100.0),
    Problem("clusters-500-10", kernel="linear", fit_intercept=False),
    Problem("checkerboard", gamma=10.0, C=10.0),
    Problem("waves-500-5", epsilon=0.1),
]


def run(context: Context) -> None:
    for problem in CASES:
        contest(context, "solvers", problem, [DEFAULT, *every()], equal_gap=False, time_for_it=4.0)


SUITE = Suite("solvers", "every solver of ours on the same small problems", 5, run)
