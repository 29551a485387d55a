"""One problem, many solvers: warm up, judge, find equal certified gap, then time in alternation."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import svmcore
from bench import clock, limits
from bench.objective import gap_target, meets, score
from bench.peers import DEFAULT, Solver
from bench.problems import Problem
from bench.results import Results

_STEP = math.sqrt(10.0)  # of the ladder of tolerances
_LOOSEST, _TIGHTEST = 2, -6  # steps from the nominal tolerance
_TOO_SLOW = 30.0  # seconds of a fit that is not repeated
_SLOW, _ENOUGH = 1.0, 2  # seconds of a fit that a few repeats are enough for


@dataclass
class Context:
    """What a suite works with: where results go, who takes part, and until when."""

    results: Results
    only: Sequence[str] = ()
    problems: Sequence[str] = ()
    deadline: float = math.inf
    full: bool = False  # also what takes minutes
    tiny: bool = False  # the least that has every kind of row: for tests, and to see whether a peer works
    say: Callable[[str], None] = print
    skipped: set[tuple[str, str]] = field(default_factory=set)

    def wants(self, name: str) -> bool:
        """Whether a solver takes part (all do, unless some were named; ours always does)."""
        return not self.only or name.startswith(DEFAULT.name) or any(word.lower() in name.lower() for word in self.only)

    def takes(self, problem: Problem) -> bool:
        """Whether a problem is wanted (all are, unless some were named)."""
        return self.named(problem.name)

    def named(self, name: str) -> bool:
        """The same by the name."""
        return not self.problems or any(word in name for word in self.problems)

    def out_of_time(self) -> bool:
        return time.perf_counter() > self.deadline

    def size(self, usual: int, least: int) -> int:
        """A number of rows, or of trials: less where only the way is tried."""
        return least if self.tiny else usual

    def record(
        self, suite: str, group: str, problem: dict[str, Any], who: str, took: clock.Times, *, met: bool = True,
        score: dict[str, Any] | None = None, threads: int = 1, tol: float = 1e-3,
    ) -> None:  # fmt: skip
        """Keep what somebody took."""
        self.results.add(
            {
                "kind": "row", "suite": suite, "group": group, "problem": problem, "solver": who, "mode": "tol", "tol": tol,
                "threads": threads, "asked": tol, "score": score or {}, "met": met, "wall": took.wall, "cpu": took.cpu,
            }
        )  # fmt: skip

    def skip(self, suite: str, who: str, why: str, problem: str = "") -> None:
        """Say that something did not run, once."""
        self.results.add({"kind": "skip", "suite": suite, "problem": problem, "solver": who, "why": why})
        if not problem and (who, why) not in self.skipped:
            self.skipped.add((who, why))
            self.say(f"  skipped: {who} ({why})")


@dataclass
class Entry:
    """A solver at one tolerance."""

    solver: Solver
    problem: Problem
    asked: float
    threads: int
    first: float = math.nan
    first_cpu: float = math.nan
    score: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.work = self.solver.prepare(self.problem, self.asked, self.threads)

    @property
    def name(self) -> str:
        return f"{self.solver.name} @ {self.asked:g}"

    def fit(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.work()

    def judge(self) -> None:
        """One untimed fit, measured."""
        fitted, self.first, self.first_cpu = clock.once(self.fit)
        self.score = score(self.problem, self.solver.answer(self.problem, fitted))


_warm: set[tuple[str, Problem]] = set()


def warm_up(solver: Solver, problem: Problem) -> None:
    """Import and compile what a solver needs for this kind of problem, on a tiny one, once."""
    name = "onehot-100-120" if problem.sparse else "waves-60-5" if problem.regression else "clusters-60-5"
    tiny = dataclasses.replace(problem, data=name, C=min(problem.C, 1.0))
    if (solver.name, tiny) not in _warm and not solver.refuses(tiny):
        _warm.add((solver.name, tiny))
        Entry(solver, tiny, 1e-2, 1).fit()


def enter(
    context: Context, suite: str, problem: Problem, solvers: Sequence[Solver], tol: float, threads: int
) -> list[Entry]:
    """The solvers that are here and do this problem, each warmed up and judged at the nominal tolerance."""
    entries: list[Entry] = []
    for solver in solvers:
        if not context.wants(solver.name):
            continue
        if why := solver.missing():
            context.skip(suite, solver.name, why)
            continue
        if entries and context.out_of_time():
            context.skip(suite, solver.name, "the suite's time was up", problem.name)
            continue
        if why := solver.refuses(problem):
            context.skip(suite, solver.name, why, problem.name)
            continue
        if tol < solver.tightest:
            context.skip(suite, solver.name, f"not asked for less than tol {solver.tightest:g}", problem.name)
            continue
        try:
            warm_up(solver, problem)
            entry = Entry(solver, problem, tol, threads)
            entry.judge()
        except Exception as error:  # a peer that fails is a result, not the end of the run
            refusal = isinstance(error, svmcore.InputError) and solver is not DEFAULT
            if solver.package == "svmcore" and not refusal:
                raise
            context.skip(suite, solver.name, f"failed: {type(error).__name__}: {error}", problem.name)
            continue
        entries.append(entry)
    return entries


def at_equal_gap(entry: Entry, target: float) -> Entry | None:
    """The same solver at the loosest tolerance of a ladder whose certified relative gap is within the target."""

    def asked(step: int) -> float:
        return entry.asked * _STEP**step

    def at(step: int) -> Entry:
        if step == 0:
            return entry
        other = Entry(entry.solver, entry.problem, asked(step), entry.threads)
        other.judge()
        return other

    gap = max(entry.score["relative_gap"], 1e-16)
    step = max(_TIGHTEST, min(_LOOSEST, math.floor(math.log(target / gap) / math.log(_STEP))))
    if asked(step) < entry.solver.tightest:
        return None
    found = at(step)
    while found.score["relative_gap"] > target:  # the gap is only about proportional to the tolerance
        step -= 1
        if step < _TIGHTEST or asked(step) < entry.solver.tightest:
            return None
        found = at(step)
    return found


def contest(
    context: Context, suite: str, problem: Problem, solvers: Sequence[Solver], *, tol: float = 1e-3, threads: int = 1,
    equal_gap: bool = True, time_for_it: float = 6.0, group: str = "",
    least_rounds: int = 3,
) -> list[dict[str, Any]]:  # fmt: skip
    """Run one case and record a row per solver and mode; return the rows."""
    if not context.takes(problem):
        return []
    if context.out_of_time():
        context.skip(suite, "everybody", "the suite's time was up", problem.name)
        return []
    started = time.perf_counter()
    target = gap_target(problem, tol)
    rows = []
    with clock.threads(threads):
        entries = enter(context, suite, problem, solvers, tol, threads)
        matched = {e.solver.name: at_equal_gap(e, target) if equal_gap else None for e in entries}
        works = {e.name: e for e in [*entries, *filter(None, matched.values())] if e.first < _TOO_SLOW}
        rounds = clock.rounds_for(time_for_it, sum(e.first for e in works.values() if e.first <= _SLOW), least_rounds)
        times, _ = clock.alternate(
            {name: e.fit for name, e in works.items()},
            rounds,
            lambda name, done: done >= _ENOUGH and works[name].first > _SLOW,
        )
        for nominal in entries:
            for mode, entry in [("tol", nominal), ("gap", matched[nominal.solver.name])]:
                if mode == "gap" and not equal_gap:
                    continue
                row: dict[str, Any] = {
                    "kind": "row", "suite": suite, "group": group, "problem": problem.described(),
                    "solver": nominal.solver.name, "mode": mode, "tol": tol, "gap_target": target, "threads": threads,
                    "asked": (entry or nominal).asked, "score": (entry or nominal).score,
                }  # fmt: skip
                took = times.get((entry or nominal).name)
                row["wall"] = took.wall if took else [(entry or nominal).first]
                row["cpu"] = took.cpu if took else [(entry or nominal).first_cpu]
                row["met"] = entry is not None and (mode == "gap" or meets(entry.score, tol, target))
                n_sv = row["score"]["n_sv"]
                if n_sv:
                    block = limits.kernel_block(problem, n_sv)
                    row["limit"] = {"kernel_block": block, "stream": limits.stream(problem, n_sv)}
                rows.append(row)
    for row in rows:
        context.results.add(row)
    _say(context, problem, rows, tol, threads, time.perf_counter() - started)
    return rows


def _say(context: Context, problem: Problem, rows: list[dict[str, Any]], tol: float, threads: int, took: float) -> None:
    """One line a case on the terminal."""
    parts = []
    for row in rows:
        if row["mode"] == "tol":
            best = min(row["cpu"] if threads == 1 else row["wall"])
            parts.append(f"{row['solver']} {1e3 * best:.3g} ms{'' if row['met'] else ' (misses tol)'}")
    context.say(
        f"  {problem.name}, tol {tol:g}, {threads} thread{'s'[: threads - 1]}: {', '.join(parts)} ({took:.0f} s)"
    )
