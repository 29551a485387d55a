"""Fits where minutes matter: fewer repeats, and no search for equal gaps."""

from __future__ import annotations

from bench import data
from bench.contest import Context, contest
from bench.peers import DEFAULT, peers
from bench.problems import Problem
from bench.suite import Suite
from bench.suites.fit import COSTLY, EMBEDDED, SMALL, SPARSE, TEXT, TWO, WIDE, Case

CASES = [
    Case(WIDE, Problem("clusters-20000-100")),
    Case(EMBEDDED, Problem("embedding-10000-256")),
    Case(EMBEDDED, Problem("embedding-10000-1536", C=10.0)),
    Case(EMBEDDED, Problem("embedding-20000-768")),
    Case(SPARSE, Problem("onehot-20000-120", gamma=0.05)),
    Case(COSTLY, Problem("clusters-20000-20", C=100.0)),
    Case(SPARSE, Problem("a7a", gamma=0.05)),
    Case(TEXT, Problem("text-5000-50000", gamma=1.0)),
    Case(SMALL, Problem("clusters-50000-20")),
    Case(TWO, Problem("clusters-50000-20"), threads=2),
]


def run(context: Context) -> None:
    for case in CASES:
        if why := data.missing(case.problem.data):
            context.skip("fit-large", "everybody", why, case.problem.data)
            continue
        contest(
            context, "fit-large", case.problem, [DEFAULT, *peers()], threads=case.threads, equal_gap=False,
            time_for_it=1.0, least_rounds=2, group=case.group,
        )  # fmt: skip


SUITE = Suite("fit-large", "fits of 16,000 to 50,000 points", 14, run)
