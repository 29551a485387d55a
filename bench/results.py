"""Results are JSON lines: one `environment`, then `row`s, `skip`s, `threads` and `table`s, written as they come.

An unfinished run is therefore a valid file. Keys of a row: suite, problem, solver, tol, asked (the tolerance really
passed), mode ("tol": the tolerance as asked by a user; "gap": equal certified gap), threads, wall, cpu, score, met.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


def _plain(value: Any) -> Any:
    """Numpy scalars and arrays as JSON."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value)} cannot be written")


@dataclass
class Results:
    """The records of one run, in memory and in a file."""

    file: Path | None = None
    records: list[dict[str, Any]] = field(default_factory=list)

    def add(self, record: dict[str, Any]) -> None:
        """Keep a record, and write it at once."""
        self.records.append(record)
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(record, default=_plain) + "\n")

    def kind(self, kind: str, suite: str | None = None) -> list[dict[str, Any]]:
        """The records of a kind, of one suite or of all."""
        return [r for r in self.records if r["kind"] == kind and suite in (None, r.get("suite"))]

    @property
    def environment(self) -> dict[str, Any]:
        return next((r for r in self.records if r["kind"] == "environment"), {})


def read(files: Iterable[Path]) -> Results:
    """The records of some files, one after another. Under "from" each has the environment that stands before it."""
    results = Results()
    origin: dict[str, Any] = {}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.strip():
                record = json.loads(line)
                origin = record if record["kind"] == "environment" else origin
                results.records.append(record if record is origin else {**record, "from": origin})
    return results


def judged(row: dict[str, Any]) -> list[float]:
    """The repeats that count: CPU seconds at one thread, wall seconds at more."""
    times: list[float] = row["cpu"] if row["threads"] == 1 else row["wall"]
    return times


def seconds(row: dict[str, Any]) -> float:
    """The minimum over the repeats."""
    return min(judged(row))


def spread(row: dict[str, Any]) -> float:
    """How far the median of the repeats is above their minimum, relatively."""
    times = judged(row)
    return float(np.median(times)) / min(times) - 1.0


def paired_ratios(row: dict[str, Any], ours: dict[str, Any]) -> list[float]:
    """row / ours of neighbours in time: what the machine did to one it did to the other."""
    return [a / b for a, b in zip(judged(row), judged(ours), strict=False) if b > 0]


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean; nan of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan
