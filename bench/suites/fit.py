"""Fits of small and middling problems, at the tolerance a user asks for and at equal certified gap."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from bench import clock, data
from bench.contest import Context, Entry, contest
from bench.peers import DEFAULT, peers
from bench.problems import Problem
from bench.suite import Suite


class Case(NamedTuple):
    """A problem with how to run it; `group` is the class it is averaged in."""

    group: str
    problem: Problem
    tol: float = 1e-3
    threads: int = 1


TINY = "rbf, n = 200"
SMALL = "rbf, d <= 20, C <= 1"
WIDE = "rbf, d = 60 to 500"
EMBEDDED = "wide dense, d = 256 to 1,536"
COSTLY = "rbf, C >= 100"
TIGHT = "rbf, C <= 1, tol 1e-6"
COSTLY_TIGHT = "rbf, C >= 100, tol 1e-6"
SPARSE = "one-hot, sparse, C = 1"
SPARSE_COSTLY = "one-hot, sparse, C = 100"
TEXT = "text, sparse"
LINEAR = "linear, d <= 50, n >= 2,000"
LINEAR_OTHER = "linear, other"
POLY = "poly, degree 3"
REGRESSION = "regression"
TWO = "rbf, two threads"

CASES = [
    Case(TINY, Problem("clusters-200-20")),
    Case(TINY, Problem("classification-200-2")),
    Case(TINY, Problem("classification-200-10")),
    Case(TINY, Problem("classification-200-100")),
    Case(SMALL, Problem("clusters-1000-20")),
    Case(SMALL, Problem("classification-5000-20")),
    Case(SMALL, Problem("classification-5000-20", C=0.1)),
    Case(SMALL, Problem("classification-5000-20-30")),
    Case(SMALL, Problem("classification-5000-10")),
    Case(SMALL, Problem("classification-5000-2")),
    Case(SMALL, Problem("mixture-5000-20")),
    Case(SMALL, Problem("svmguide1")),
    Case(SMALL, Problem("classification-1000-20")),
    Case(SMALL, Problem("clusters-5000-20")),
    Case(SMALL, Problem("classification-20000-20")),
    Case(SMALL, Problem("classification-20000-10")),
    Case(SMALL, Problem("classification-20000-2")),
    Case(WIDE, Problem("classification-5000-100")),
    Case(WIDE, Problem("classification-5000-300")),
    Case(WIDE, Problem("clusters-2000-300")),
    Case(WIDE, Problem("splice")),
    Case(WIDE, Problem("madelon")),
    Case(EMBEDDED, Problem("usps_odd")),
    Case(EMBEDDED, Problem("embedding-5000-256")),
    Case(EMBEDDED, Problem("embedding-2000-768", C=10.0)),
    Case(EMBEDDED, Problem("embedding-5000-256", kernel="poly", coef0=1.0)),
    Case(EMBEDDED, Problem("embedding-2000-1536", C=100.0)),
    Case(EMBEDDED, Problem("embedding-5000-768", kernel="poly", coef0=1.0, C=10.0)),
    Case(EMBEDDED, Problem("embedding-5000-768", C=100.0)),
    Case(EMBEDDED, Problem("embedding-5000-256", C=10.0), tol=1e-6),
    Case(COSTLY, Problem("classification-5000-20", C=1000.0)),
    Case(COSTLY, Problem("classification-5000-20-30", C=100.0)),
    Case(COSTLY, Problem("classification-2000-10-30", C=1000.0)),
    Case(COSTLY, Problem("svmguide1", C=100.0)),
    Case(COSTLY, Problem("svmguide1", C=1000.0)),
    Case(COSTLY, Problem("clusters-1000-20", C=100.0)),
    Case(COSTLY, Problem("classification-5000-2", C=1000.0)),
    Case(COSTLY, Problem("mixture-2000-2", C=1000.0)),
    Case(TIGHT, Problem("classification-1000-20"), tol=1e-6),
    Case(TIGHT, Problem("classification-5000-20-30"), tol=1e-6),
    Case(TIGHT, Problem("classification-5000-2"), tol=1e-6),
    Case(COSTLY_TIGHT, Problem("classification-5000-20", C=1000.0), tol=1e-6),
    Case(COSTLY_TIGHT, Problem("classification-2000-10-30", C=1000.0), tol=1e-6),
    Case(SPARSE, Problem("onehot-5000-120", gamma=0.05)),
    Case(SPARSE, Problem("a1a", gamma=0.05)),
    Case(SPARSE, Problem("a4a", gamma=0.05)),
    Case(SPARSE_COSTLY, Problem("a1a", gamma=0.05, C=100.0)),
    Case(SPARSE_COSTLY, Problem("a4a", gamma=0.05, C=100.0)),
    Case(TEXT, Problem("text-2000-20000", gamma=1.0)),
    Case(LINEAR, Problem("classification-5000-20-10", kernel="linear")),
    Case(LINEAR, Problem("classification-2000-10-10", kernel="linear", C=0.1)),
    Case(LINEAR, Problem("classification-2000-10-10", kernel="linear")),
    Case(LINEAR, Problem("classification-5000-50-10", kernel="linear")),
    Case(LINEAR, Problem("svmguide1", kernel="linear")),
    Case(LINEAR, Problem("svmguide1", kernel="linear", C=100.0)),
    Case(LINEAR, Problem("classification-2000-10-10", kernel="linear", C=100.0)),
    Case(LINEAR, Problem("classification-20000-10", kernel="linear")),
    Case(LINEAR_OTHER, Problem("splice", kernel="linear", C=0.1)),
    Case(LINEAR_OTHER, Problem("text-2000-20000", kernel="linear")),
    Case(LINEAR_OTHER, Problem("clusters-2000-20", kernel="linear", fit_intercept=False)),
    Case(LINEAR_OTHER, Problem("onehot-2000-120", kernel="linear", fit_intercept=False, loss="squared_hinge")),
    Case(POLY, Problem("classification-2000-10", kernel="poly", coef0=1.0)),
    Case(POLY, Problem("classification-5000-20", kernel="poly", coef0=1.0)),
    Case(POLY, Problem("splice", kernel="poly", coef0=1.0)),
    Case(POLY, Problem("svmguide1", kernel="poly", coef0=1.0)),
    Case(REGRESSION, Problem("waves-2000-5", epsilon=0.1)),
    Case(REGRESSION, Problem("waves-5000-5", epsilon=0.1, C=10.0)),
    Case(TWO, Problem("classification-5000-20"), threads=2),
    Case(TWO, Problem("classification-20000-20"), threads=2),
    Case(TWO, Problem("classification-5000-100"), threads=2),
    Case(TWO, Problem("embedding-5000-768"), threads=2),
]


def for_liblinear(case: Case) -> Case:
    """The same rows as LIBLINEAR's problem: a feature of ones in place of the intercept."""
    return case._replace(
        problem=dataclasses.replace(case.problem, data=case.problem.data + data.ONES, fit_intercept=False)
    )


CASES += [for_liblinear(case) for case in CASES if case.problem.kernel == "linear" and case.problem.fit_intercept]


def by_turns(cases: list[Case]) -> list[Case]:
    """One case of every class, then the second of every class, and so on: a run cut short has something of each.

    LIBLINEAR's problems take turns as a class of their own.
    """
    kinds = [(case.group, case.problem.data.endswith(data.ONES)) for case in cases]
    return [cases[k] for k in sorted(range(len(cases)), key=lambda k: kinds[:k].count(kinds[k]))]


_SECONDS = 3.0  # for the fits of `on_threads`


def on_threads(context: Context, case: Case) -> None:
    """Record our own fit on one thread and on two, which take turns, and the kernel values that it computes."""
    if context.out_of_time() or not context.takes(case.problem):
        return
    entries = {str(count): Entry(DEFAULT, case.problem, case.tol, count) for count in (1, 2)}
    for entry in entries.values():
        entry.judge()
    rounds = clock.rounds_for(_SECONDS, sum(entry.first for entry in entries.values()))
    took, _ = clock.alternate({count: entry.fit for count, entry in entries.items()}, rounds)
    context.results.add(
        {
            "kind": "threads", "suite": "fit", "group": case.group, "problem": case.problem.described(), "tol": case.tol,
            "wall": {count: times.wall for count, times in took.items()}, "score": entries["1"].score,
        }
    )  # fmt: skip


def run(context: Context) -> None:
    for case in by_turns(CASES):
        if why := data.missing(case.problem.data):
            context.skip("fit", "everybody", why, case.problem.data)
            continue
        contest(context, "fit", case.problem, [DEFAULT, *peers()], tol=case.tol, threads=case.threads, group=case.group)
        if case.group == EMBEDDED:
            on_threads(context, case)


SUITE = Suite("fit", "one fit: every solver at the same tolerance, and at equal certified gap", 20, run)
