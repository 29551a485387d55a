"""How the whole path grows with n, and where its time goes: no published table, but a question everybody asks."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import data
from bench.clock import once
from bench.peers.ours import WholePath
from bench.problems import Problem
from bench.tables.base import Table, libsvm_seconds, told

TITLE = "Growth of the path"
SOURCE = "svmcore"

SIZES = (500, 1000, 2000, 4000, 8000, 16000)
KINDS = {"clusters": "2 % of the labels wrong", "noisy": "30 % wrong"}
MOST = {"clusters": 16000, "noisy": 4000}


def run(full: bool) -> list[Table]:
    solver = WholePath()
    solver.prepare(Problem("clusters-60-5"), 1e-3, 1)()  # compiled before the clock runs
    rows: list[list[Any]] = []
    for kind, what in KINDS.items():
        for n in told(f"growth, {what}", [size for size in SIZES if size <= MOST[kind]]):
            problem = Problem(f"{kind}-{n}-20")
            path, _, cpu = once(solver.prepare(problem, 1e-3, 1))
            spent, stats = path.stats["seconds"], path.stats
            rest = spent["total"] - spent["kernel"] - spent["start"] - spent["track"]
            X, y = data.load(problem.data)[:2]
            fit = libsvm_seconds([(X, y)], 1.0, problem.gamma_value, 1e-3)
            gap = path.certify(np.geomspace(solver.LOW, solver.HIGH, 20)).relative_gap
            rows.append(
                [
                    what, n, stats["n_events"], stats["elbow_max"], stats["n_refresh"], gap, cpu, spent["kernel"],
                    spent["start"], spent["track"], rest, None if fit is None else cpu / fit,
                ]
            )  # fmt: skip
    columns = [
        "labels", "n", "events", "largest elbow", "refreshes", "largest relative gap", "seconds", "kernel s", "start s",
        "events s", "rest s", "in fits of LIBSVM",
    ]  # fmt: skip
    note = (
        "rbf, gamma = 1/20, C from 0.01 to 100, one thread. A fit of LIBSVM: C = 1, tol 1e-3. Each event costs elbow^2 for "
        "the factor and elbow x n for the rates of change; both the number of events and the elbow grow with n."
    )
    return [Table("The whole path from 500 to 16,000 points", columns, rows, note)]
