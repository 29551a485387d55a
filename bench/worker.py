"""What has to happen in a process of its own: a cold start, and a peak of memory. Prints one JSON line.

python -m bench.worker SOLVER PROBLEM_AS_JSON
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.data import ROOT

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_STATUS = Path("/proc/self/status")
_NOT_TWICE = 10.0  # seconds of a first fit that has no second


def _status(key: str) -> float:
    """Megabytes under a key of /proc/self/status; nan where there is none."""
    if _STATUS.is_file():
        for line in _STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith(key):
                return float(line.split()[1]) / 1024.0
    return float("nan")


def _forget_peak() -> None:
    """Let the peak of resident memory start from here (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def measure(name: str, fields: dict[str, Any], tol: float = 1e-3, threads: int = 1) -> dict[str, float]:
    """Import, first fit and second fit in seconds, and the memory they take on top of the loaded data."""
    started = time.perf_counter()
    from bench.problems import Problem

    problem = Problem(**fields)
    X, y = problem.X, problem.y
    ready = time.perf_counter()
    from bench.peers import by_name

    solver = by_name(name)
    work = solver.prepare(problem, tol, threads)
    imported = time.perf_counter()
    _forget_peak()
    before = _status("VmRSS")
    spent = time.process_time()
    work()
    spent = time.process_time() - spent
    first = time.perf_counter()
    peak = _status("VmHWM")
    repeated = first - imported < _NOT_TWICE
    if repeated:
        work()
    second = time.perf_counter() if repeated else float("nan")
    assert X.shape[0] == len(y)
    return {
        "data_seconds": ready - started,
        "import_seconds": imported - ready,
        "first_fit": first - imported,
        "second_fit": second - first,
        "first_fit_cpu": spent,
        "peak_mb": peak - before,
        "data_mb": (X.data.nbytes + X.indices.nbytes if problem.sparse else X.nbytes) / 2**20,
    }


def spawn(name: str, problem: Any, extra: Mapping[str, str] | None = None, timeout: float = 300.0) -> dict[str, float]:
    """Run `measure` in a fresh process, with further environment variables."""
    import os

    fields = json.dumps(asdict(problem))
    command = [sys.executable, "-W", "ignore", "-m", "bench.worker", name, fields]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD, **(extra or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done after {timeout:g} s") from None
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "the process died")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], json.loads(sys.argv[2]))))
