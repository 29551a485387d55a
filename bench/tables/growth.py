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


COLUMNS = [
    "labels", "n", "events", "largest elbow", "refreshes", "largest relative gap", "seconds", "kernel s", "start s",
    "events s", "rest s", "in fits of LIBSVM",
]  # fmt: skip


def row(size: tuple[str, int]) -> list[Any]:
    """One kind of labels and one n."""
    kind, n = size
    solver, problem = WholePath(), Problem(f"{kind}-{n}-20")
    path, _, cpu = once(solver.prepare(problem, 1e-3, 1))
    spent, stats = path.stats["seconds"], path.stats
    rest = spent["total"] - spent["kernel"] - spent["start"] - spent["track"]
    X, y = data.load(problem.data)[:2]
    fit = libsvm_seconds([(X, y)], 1.0, problem.gamma_value, 1e-3)
    gap = path.certify(np.geomspace(solver.LOW, solver.HIGH, 20)).relative_gap
    return [
        KINDS[kind], n, stats["n_events"], stats["elbow_max"], stats["n_refresh"], gap, cpu, spent["kernel"],
        spent["start"], spent["track"], rest, None if fit is None else cpu / fit,
    ]  # fmt: skip


def run(full: bool) -> list[Table]:
    WholePath().prepare(Problem("clusters-60-5"), 1e-3, 1)()  # compiled before the clock runs
    sizes = [(kind, size) for kind in KINDS for size in SIZES if size <= MOST[kind]]
    note = (
        "rbf, gamma = 1/20, C from 0.01 to 100, one thread. A fit of LIBSVM: C = 1, tol 1e-3. Each event costs elbow^2 for "
        "the factor and elbow x n for the rates of change; both the number of events and the elbow grow with n. No paper "
        "prints such a table."
    )
    rows = told("growth", sizes, COLUMNS, row)
    return [Table("The whole path from 500 to 16,000 points", COLUMNS, rows, note)]
