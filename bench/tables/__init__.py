"""The published tables, recomputed: one module each, with the printed figures next to ours and what explains them.

A module has `TITLE`, `SOURCE` and `run(full)`, which yields `Table`s; `full` adds what takes minutes. Their figures are
drawn into a folder beside the results, where matplotlib is there.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import svmcore
from bench.contest import Context
from bench.suite import Suite

MODULES = ("spirals", "stopping", "working_sets", "gaussian", "projection", "simplesvm", "growth", "ong")


def run(context: Context) -> None:
    """Every module. One that fails does not stop the others; the failure is raised at the end."""
    svmcore.warmup()
    failed = []
    for name in MODULES:
        module = importlib.import_module(f"bench.tables.{name}")
        if context.problems and not any(word in name for word in context.problems):
            continue
        if context.out_of_time():
            context.skip("tables", name, "the suite's time was up")
            continue
        context.say(f"  {module.SOURCE}")
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            recompute(context, name, module)
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
            context.skip("tables", name, f"failed: {type(error).__name__}: {error}")
        context.say(f"  {name}: {time.perf_counter() - wall:.0f} s, {time.process_time() - cpu:.0f} s of CPU")
    assert not failed, "; ".join(failed)


def recompute(context: Context, name: str, module: Any) -> None:
    """The tables and figures of a module, as long as there is time."""
    for table in module.run(context.full):
        record = {"kind": "table", "suite": "tables", "module": name, "source": module.SOURCE, **asdict(table)}
        context.results.add(record)
        context.say(table.text())
        if context.results.file is not None and importlib.util.find_spec("matplotlib") is not None:
            for file in draw(record, context.results.file.with_suffix("")):
                context.say(f"    {file}")
        if context.out_of_time():
            context.skip("tables", f"{name}, after {table.title!r}", "the suite's time was up")
            return


def draw(record: dict[str, Any], folder: Path) -> list[Path]:
    """The figures of a table as PNG files."""
    from bench.report import plots

    files = []
    for figure in record["figures"]:
        words = "".join(letter if letter.isalnum() else " " for letter in figure["title"]).split()
        folder.mkdir(parents=True, exist_ok=True)
        files.append(folder / f"{'-'.join(words).lower()}.png")
        files[-1].write_bytes(plots.figure(figure))
    return files


SUITE = Suite("tables", "the papers' tables and figures, recomputed next to the printed values", 15, run)
