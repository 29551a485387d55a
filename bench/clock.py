"""Timing that survives a busy machine: contestants alternate in one process, wall and CPU time, every repeat kept.

The minimum of the repeats estimates the cost of the work; the median and the ratios of neighbours in time show the
spread. CPU time is the judge at one thread, wall time at more.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Times:
    """Seconds of every repeat."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, wall: float, cpu: float) -> None:
        self.wall.append(wall)
        self.cpu.append(cpu)

    def shared(self, calls: float) -> Times:
        """Of one of so many calls that were timed together."""
        return Times([x / calls for x in self.wall], [x / calls for x in self.cpu])


def once(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Result, wall seconds, CPU seconds of one call, with the garbage collector out of the way."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        cpu, wall = time.process_time(), time.perf_counter()
        result = work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        if enabled:
            gc.enable()
    return result, wall, cpu


def repeated(work: Callable[[], Any], calls: int) -> Callable[[], Any]:
    """So many calls as one, which gives the last answer: for what is too short to be timed alone."""

    def several() -> Any:
        for _ in range(calls - 1):
            work()
        return work()

    return several


def alternate(
    works: dict[str, Callable[[], Any]], rounds: int, sits_out: Callable[[str, int], bool] = lambda name, done: False
) -> tuple[dict[str, Times], dict[str, Any]]:
    """Call all of them in turn, `rounds` times. Times and last results, by name.

    Always in the same order: whoever ran twice in a row would find the memory it just gave back still warm. `sits_out`
    tells whether somebody has been timed often enough after some rounds.
    """
    times = {name: Times() for name in works}
    results: dict[str, Any] = {}
    gc.collect()
    gc.freeze()  # modules loaded by now are no garbage: collections between repeats stay short
    for done in range(rounds):
        for name, work in works.items():
            if sits_out(name, done):
                continue
            results[name], wall, cpu = once(work)
            times[name].add(wall, cpu)
    return times, results


def rounds_for(seconds: float, one_round: float, least: int = 3, most: int = 15) -> int:
    """How many rounds fit into some seconds."""
    return max(least, min(most, int(seconds / max(one_round, 1e-6))))


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Hold BLAS and OpenMP to a number of threads. oneDAL is told by its peer file, our own solvers by `n_threads`."""
    with contextlib.ExitStack() as stack:
        if importlib.util.find_spec("threadpoolctl"):
            from threadpoolctl import threadpool_limits

            stack.enter_context(threadpool_limits(limits=count))
        yield
