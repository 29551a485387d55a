"""Correctness in under a minute: certificates, agreement with every peer that is here, and the runner itself.

Nothing here judges time. A failed check raises `AssertionError` with the sentence to read.
"""

from __future__ import annotations

from typing import Any

from bench.contest import Context, contest
from bench.peers import DEFAULT, every, peers
from bench.problems import Problem, reference
from bench.suite import Suite

CASES = [
    (Problem("clusters-200-20"), 1e-3),
    (Problem("clusters-500-10", C=100.0), 1e-3),
    (Problem("clusters-200-20"), 1e-6),
    (Problem("noisy_spirals", gamma=10.0, C=0.5), 1e-3),
    (Problem("monk1", kernel="poly", coef0=1.0), 1e-3),
    (Problem("onehot-300-120", gamma=0.05), 1e-3),
    (Problem("clusters-200-20", kernel="linear", fit_intercept=False), 1e-3),
    (Problem("two_spirals", gamma=1.0, loss="squared_hinge"), 1e-3),
    (Problem("waves-200-5", epsilon=0.1), 1e-3),
]

EVERYBODY = CASES[0][0]  # where all our solvers are looked at; the other problems see the default and the peers


def check(row: dict[str, Any], best: float) -> None:
    """An answer of ours: feasible, within its tolerance, its gap honest about the optimum."""
    who = f"{row['solver']} on {row['problem']['name']} at tol {row['tol']:g}"
    measured = row["score"]
    assert row["met"], f"{who} misses its tolerance: violation {measured['kkt_violation']:.3g}"
    scale = max(row["problem"]["C"], 1.0)
    assert measured["infeasibility"] <= 1e-9 * scale * row["problem"]["n"], f"{who} leaves its constraints"
    assert measured["relative_gap"] >= -1e-12, f"{who} has a negative gap: its certificate is wrong"
    above = measured["primal_objective"] - best
    allowed = measured["relative_gap"] * abs(measured["primal_objective"]) + 1e-9 * abs(best)
    assert above <= allowed, f"{who} is further from the optimum than its certificate says"


def run(context: Context) -> None:
    for problem, tol in CASES:
        own = every() if problem == EVERYBODY and tol == CASES[0][1] else []
        rows = contest(
            context,
            "smoke",
            problem,
            [DEFAULT, *own, *peers()],
            tol=tol,
            equal_gap=False,
            time_for_it=0.0,
            least_rounds=1,
        )
        best = reference(problem)
        assert any(row["solver"] == DEFAULT.name for row in rows), f"{DEFAULT.name} did not run {problem.name}"
        for row in rows:
            if row["solver"].startswith("svmcore"):
                check(row, best)
            elif row["met"]:
                # a certified peer and a certified bound cannot disagree: weak duality
                primal, gap = row["score"]["primal_objective"], row["score"]["relative_gap"]
                assert primal >= best - 1e-6 * abs(best), f"{row['solver']} beats the bound on {problem.name}"
                assert primal * (1 - gap) <= best * (1 + 1e-6), f"{row['solver']} disagrees on {problem.name}"


SUITE = Suite("smoke", "correctness only: certificates and agreement, in under a minute on an idle machine", 5, run)
