"""Beyond one machine: what parts cost against all rows in memory, and how counts grow.

Every fit runs in a process of its own, over parts in files. The largest take minutes and run with `--full`. Rounds, passes,
rows and bytes do not depend on the load of the machine; seconds are of the processor, those of dask of all its processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import data
from bench.contest import Context
from bench.data import ROOT
from bench.suite import Suite
from bench.worker import _forget_peak, _status

KINDS = {"clean": data.clusters, "noisy": data.noisy, "classification": data.classification}


class Case(NamedTuple):
    """A fit: of which kind ("kernel", "dask", "linear", "one"), over which data, in how many parts."""

    group: str
    fit: str
    kind: str
    n: int
    d: int
    parts: int
    full: bool = False


OVERHEAD, GROWTH, WORKERS, LARGE = "overhead", "growth with n", "growth with parts", "large"
CASES = [
    *(Case(OVERHEAD, fit, kind, 200_000, d, 16) for kind, d in (("clean", 20), ("classification", 10))
      for fit in ("one", "kernel", "dask")),
    *(Case(GROWTH, "kernel", kind, n, d, n // 12_500) for kind, d in (("clean", 20), ("noisy", 20), ("classification", 10))
      for n in (25_000, 50_000, 100_000)),
    *(Case(WORKERS, "kernel", "clean", 50_000, 20, parts) for parts in (2, 8, 32)),
    Case(LARGE, "linear", "classification", 200_000, 20, 16),
    Case(LARGE, "linear", "classification", 2_000_000, 20, 16),
    Case(LARGE, "kernel", "classification", 1_000_000, 10, 16, full=True),
    Case(LARGE, "kernel", "classification", 1_000_000, 20, 16, full=True),
]  # fmt: skip


def write(folder: Path, case: Case) -> str:
    """The parts of a case as files; their pattern."""
    sets = KINDS[case.kind](case.n, case.d)
    order = np.random.default_rng(0).permutation(case.n)
    for k, rows in enumerate(np.array_split(order, case.parts)):
        np.savez(folder / f"{k:04d}.npz", X=sets.X[rows].astype(np.float32), y=sets.y[rows].astype(np.int8))
    return str(folder / "*.npz")


def measure(pattern: str, case: Case) -> dict[str, float]:
    """One fit: counts, seconds of the processor, memory on top of what was there."""
    from svmcore import distributed
    from svmcore.distributed import files

    warnings.simplefilter("ignore")
    warm = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    distributed.train_svc(warm, warm[:, 0] > 0, parts=2)
    distributed.train_linear(warm, warm[:, 0] > 0, parts=2)
    X = y = np.empty(0)
    if case.fit == "one":
        pieces = [np.load(name) for name in files.names_of(pattern) or []]
        X = np.concatenate([piece["X"] for piece in pieces]).astype(np.float64)
        y = np.concatenate([piece["y"] for piece in pieces])
    with _cluster(case) as client:
        _forget_peak()
        before, wall, cpu = _status("VmRSS"), time.perf_counter(), _seconds(client)
        found = _fit(pattern, case, X, y, client)
        found |= {"cpu": _seconds(client) - cpu, "wall": time.perf_counter() - wall}
        if client is not None:
            found["worker_mb"] = max(client.run(_status, "VmHWM").values())
    return found | {"peak_mb": _status("VmHWM"), "before_mb": before}


@contextmanager
def _cluster(case: Case) -> Iterator[Any]:
    """Two worker processes of one thread, where the case asks for them; they compile before the clocks start."""
    if case.fit != "dask":
        yield None
        return
    from distributed import Client, LocalCluster

    from svmcore import distributed

    words = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "memory_limit": 0}
    with LocalCluster(**words) as cluster, Client(cluster) as client:
        warm = np.random.default_rng(0).normal(size=(600, 2)).astype(np.float32)
        distributed.train_svc(warm, warm[:, 0] > 0, parts=4, client=client)
        yield client


def _seconds(client: Any) -> float:
    """Of the processor, in this process and in the workers."""
    return time.process_time() + (0.0 if client is None else sum(client.run(time.process_time).values()))


def _fit(pattern: str, case: Case, X: np.ndarray, y: np.ndarray, client: Any) -> dict[str, float]:
    """One fit, and what it says of itself."""
    import svmcore
    from svmcore import distributed

    if case.fit == "one":
        one = svmcore.train_svc(X, y)
        return {"support": len(one.support), "objective": -one.objective}
    if case.fit == "linear":
        parts = distributed.train_linear(pattern)
    else:
        parts = distributed.train_svc(pattern, client=client)
    counts = ("passes", "syncs", "rows_seen", "rows_up", "bytes_up", "bytes_down", "decisive")
    return {
        "rounds": len(parts.rounds), "support": parts.n_support, "free": parts.n_free, "objective": -parts.objective,
        "relative_gap": parts.relative_gap, "violation": parts.kkt_violation, "converged": float(parts.converged),
    } | {name: float(parts.stats[name]) for name in counts if name in parts.stats}  # fmt: skip


def _spawn(case: Case) -> dict[str, float]:
    """`measure` in a process of its own, over files that are gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        pattern = write(Path(folder), case)
        command = [sys.executable, "-m", "bench.suites.scale", pattern, json.dumps(case)]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if ended.returncode:
        raise RuntimeError((ended.stderr.strip() or "no output").splitlines()[-1])
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found


def run(context: Context) -> None:
    one: dict[tuple[str, int], dict[str, float]] = {}
    for case in CASES:
        if case.full and not context.full:
            continue
        if context.out_of_time():
            return
        name = f"{case.kind}-{case.n}-{case.d}"
        try:
            found = _spawn(case)
        except RuntimeError as error:
            context.skip("scale", case.fit, f"failed: {error}", name)
            continue
        if case.fit == "one":
            one[case.kind, case.n] = found
        elif (case.kind, case.n) in one and case.group == OVERHEAD:
            found |= {f"{clock}_ratio": found[clock] / one[case.kind, case.n][clock] for clock in ("cpu", "wall")}
        context.results.add(
            {
                "kind": "row", "suite": "scale", "group": case.group, "problem": {"name": name}, "solver": _called(case),
                "mode": "tol", "tol": 1e-3, "threads": 2, "asked": 1e-3, "score": found, "met": True,
                "wall": [found["wall"]], "cpu": [found["cpu"]],
            }
        )  # fmt: skip
        shown = ", ".join(f"{key} {value:.4g}" for key, value in found.items())
        context.say(f"  {case.group}, {name}, {_called(case)}: {shown}")


def _called(case: Case) -> str:
    return {
        "one": "in memory", "kernel": f"{case.parts} parts", "linear": f"linear, {case.parts} parts",
        "dask": f"{case.parts} parts, dask, 2 processes",
    }[case.fit]  # fmt: skip


SUITE = Suite("scale", "over parts in files: overhead, growth, memory (the largest: --full)", 12, run)

if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Case(*json.loads(sys.argv[2])))))
