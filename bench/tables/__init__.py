"""The published tables, recomputed: one module each, with the printed figures next to ours and what explains them.

A module has `TITLE`, `SOURCE` and `run()`, which returns `Table`s.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict

import svmcore
from bench.contest import Context
from bench.suite import Suite

MODULES = ("spirals", "stopping", "working_sets", "projection", "simplesvm", "ong", "growth")


def run(context: Context) -> None:
    svmcore.warmup()
    for name in MODULES:
        module = importlib.import_module(f"bench.tables.{name}")
        if context.out_of_time():
            context.skip("tables", name, "the suite's time was up")
            continue
        context.say(f"  {module.SOURCE}")
        for table in module.run():
            context.results.add(
                {"kind": "table", "suite": "tables", "module": name, "source": module.SOURCE, **asdict(table)}
            )
            context.say(table.text())


SUITE = Suite("tables", "the papers' tables and figures, recomputed next to the printed values", 10, run)
