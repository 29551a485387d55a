"""Our fits with narrower vectors: the classes of README's table in processes that compile for other processors.

Most laptops have no AVX-512. The clock is that of this machine, so a row says what vectors are worth, not what an old
processor is. CPU seconds of one thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from bench import clock, data
from bench.contest import Context
from bench.data import ROOT
from bench.environment import environment
from bench.peers import DEFAULT
from bench.problems import Problem
from bench.suite import Suite
from bench.suites.fit import CASES, TWO, Case, by_turns
from bench.worker import ONE_THREAD

NARROWER = {
    "256 bits (AVX2)": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"},
    "128 bits (SSE2)": {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "+sse2"},
}
EACH = 2  # problems of a class
_SECONDS = 1.0


def chosen(context: Context) -> list[Case]:
    """The first problems of every class of one thread."""
    found: dict[str, list[Case]] = {}
    for case in by_turns(CASES):
        part = found.setdefault(case.group, [])
        if case.group != TWO and context.takes(case.problem) and not data.missing(case.problem.data):
            part += [case] * (len(part) < context.size(EACH, 1))
    cases = [case for part in found.values() for case in part]
    return cases[: context.size(len(cases), 2)]


def measure(fields: dict[str, Any], tol: float) -> dict[str, list[float]]:
    """Seconds of the repeats of a fit."""
    work = DEFAULT.prepare(Problem(**fields), tol, 1)
    _, wall, _ = clock.once(work)
    _, wall, _ = clock.once(work)  # the first one compiled
    times, _ = clock.alternate({"": work}, clock.rounds_for(_SECONDS, wall))
    return {"wall": times[""].wall, "cpu": times[""].cpu}


def run(context: Context) -> None:
    """A process for every width of vectors; a row for every fit in it."""
    cases = chosen(context)
    asked = json.dumps([(asdict(case.problem), case.tol) for case in cases])
    for who, extra in {f"own ({environment()['vectors']})": {}, **NARROWER}.items():
        if context.out_of_time():
            context.skip("processors", who, "the suite's time was up")
            continue
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "bench.suites.processors"], input=asked, cwd=ROOT, check=False,
            env={**os.environ, **ONE_THREAD, **extra}, capture_output=True, text=True,
        )  # fmt: skip
        if ended.returncode:
            context.skip("processors", who, f"failed: {(ended.stderr.strip() or 'no output').splitlines()[-1]}")
            continue
        lines = [json.loads(line) for line in ended.stdout.splitlines()]
        for case, line in zip(cases, lines, strict=True):
            took = clock.Times(line["wall"], line["cpu"])
            context.record("processors", case.group, case.problem.described(), who, took, tol=case.tol)
        context.say(f"  {who}: {len(lines)} fits, {sum(min(line['cpu']) for line in lines):.3g} s")


SUITE = Suite("processors", "our fits with the vectors of other processors: AVX2, and 128 bits", 6, run)

if __name__ == "__main__":
    for problem, tol in json.load(sys.stdin):
        print(json.dumps(measure(problem, tol)), flush=True)
