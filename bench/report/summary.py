"""The arithmetic of the report: rows grouped into cases, ratios with their spread, means."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bench.peers import DEFAULT
from bench.results import Results, geometric_mean, paired_ratios, seconds

OURS = DEFAULT.name
Row = dict[str, Any]


@dataclass
class Case:
    """One problem at one tolerance, thread count and mode, with a row per solver."""

    suite: str
    group: str
    problem: dict[str, Any]
    tol: float
    threads: int
    mode: str
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What distinguishes the case, for a table."""
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        tol = f", tol {self.tol:g}" if self.tol != 1e-3 else ""
        return f"{self.problem['name']}{tol}{threads}"

    @property
    def ours(self) -> Row | None:
        return self.rows.get(OURS)

    @property
    def best(self) -> Row | None:
        """Our row: the one for every C where there is one, or the first that begins with our name."""
        own = [name for name in self.rows if name.startswith(OURS)]
        return self.rows[next((name for name in own if "every C" in name), own[0])] if own else None

    def ratio(self, solver: str) -> float | None:
        """How many times as long as ours a solver takes; None where either is missing or misses the target."""
        ours, other = self.ours, self.rows.get(solver)
        if ours is None or other is None or not ours["met"] or not other["met"]:
            return None
        return seconds(other) / seconds(ours)

    def band(self, solver: str) -> tuple[float, float]:
        """The quartiles of the ratios of neighbouring repeats."""
        assert self.ours is not None
        ratios = paired_ratios(self.rows[solver], self.ours)
        low, high = np.percentile(ratios, [25, 75])
        return float(low), float(high)


class Comparison(NamedTuple):
    """Somebody's time beside ours."""

    suite: str
    problem: str
    peer: str
    theirs: float
    ours: float
    same: bool  # answer

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours


COMPARED = {
    "fit": "gap", "linear": "gap", "fit-large": "tol", "small": "tol", "predict": "tol", "first": "tol", "estimators": "tol",
    "cv": "tol", "gpu": "tol", "scaling": "tol", "intel": "tol", "bilevel": "tol", "many": "tol",
}  # fmt: skip
"""Suites that measure others beside us, and at which tolerance."""


def comparisons(results: Results) -> list[Comparison]:
    """Every row of somebody else that has an answer, beside ours; of a newcomer's fits those with another answer, too."""
    found = []
    for suite, mode in COMPARED.items():
        for case in cases(results, suite, mode):
            ours = case.best
            if ours is None or not (ours["met"] or suite == "first"):
                continue
            gap = f", gap {case.tol:g}" if suite == "linear" else ""
            label = f"{case.label if not gap else case.problem['name']}{gap}"
            label = label if case.group in ("", case.problem["name"]) or suite == "fit" else f"{case.group}, {label}"
            found += [
                Comparison(suite, label, name, seconds(row), seconds(ours), row["met"])
                for name, row in case.rows.items()
                if not name.startswith(OURS) and (row["met"] or suite == "first")
            ]
    return found


def cases(results: Results, suite: str, mode: str = "tol") -> list[Case]:
    """The cases of a suite in the order of the run."""
    found: dict[tuple[Any, ...], Case] = {}
    for row in results.kind("row", suite):
        if row["mode"] != mode:
            continue
        key = (row["group"], row["problem"]["name"], row["tol"], row["threads"], row.get("points"))
        case = found.setdefault(key, Case(suite, row["group"], row["problem"], row["tol"], row["threads"], mode))
        case.rows[row["solver"]] = row
    return list(found.values())


def solvers(found: list[Case]) -> list[str]:
    """Every solver that has a row, ours first."""
    names = dict.fromkeys(name for case in found for name in case.rows)
    return sorted(names, key=lambda name: (name != OURS, list(names).index(name)))


@dataclass
class Standing:
    """How one peer compares with ours over some cases."""

    solver: str
    ratios: list[float]
    missed: int

    @property
    def mean(self) -> float:
        return geometric_mean(self.ratios)

    @property
    def worst(self) -> float:
        return min(self.ratios, default=float("nan"))

    @property
    def best(self) -> float:
        return max(self.ratios, default=float("nan"))


def standings(found: list[Case]) -> list[Standing]:
    """Every peer against ours, most compared first."""
    table = []
    for solver in solvers(found):
        if solver == OURS:
            continue
        ratios = [ratio for case in found if (ratio := case.ratio(solver)) is not None]
        missed = sum(not case.rows[solver]["met"] for case in found if solver in case.rows)
        table.append(Standing(solver, ratios, missed))
    return table


def groups(found: list[Case]) -> dict[str, list[Case]]:
    """The cases by class."""
    result: dict[str, list[Case]] = {}
    for case in found:
        result.setdefault(case.group, []).append(case)
    return result


def exponent(sizes: list[int], times: list[float]) -> float:
    """The slope of log time over log n over the larger half of the sizes."""
    kept = slice(len(sizes) // 2 - 1, None)
    return float(np.polyfit(np.log(sizes[kept]), np.log(times[kept]), 1)[0])


def profile(found: list[Case]) -> dict[str, tuple[list[float], list[float]]]:
    """Performance profile: for every solver the share of cases solved within a factor of the fastest."""
    curves = {}
    for solver in solvers(found):
        factors = []
        for case in found:
            best = min((seconds(row) for row in case.rows.values() if row["met"]), default=None)
            row = case.rows.get(solver)
            if best is not None and row is not None and row["met"]:
                factors.append(seconds(row) / best)
        factors.sort()
        curves[solver] = (factors, [(k + 1) / len(found) for k in range(len(factors))])
    return curves
