"""The figures that README.md and docs/benchmarks.md show: generated between markers from bench/published.jsonl.

`python -m bench readme RESULTS...` publishes new results; without files it only rewrites the tables; `--check` fails where
a table is not what the published results and the code of today make of them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bench.data import ROOT
from bench.peers import BASELINE
from bench.report.page import Grid
from bench.report.sections import times
from bench.report.summary import OURS, cases, groups, solvers, standings
from bench.results import Results, read
from bench.tables.base import shown

PUBLISHED = ROOT / "bench" / "published.jsonl"
_KEPT = ("kind", "suite", "group", "problem", "solver", "mode", "tol", "gap_target", "threads", "asked", "met")
_SUITES = ("fit",)


def _kept(record: dict[str, Any]) -> dict[str, Any] | None:
    """What the tables need of a record, at equal gap, to three digits."""
    if record["kind"] == "environment":
        return {
            key: record[key]
            for key in (
                "kind",
                "when",
                "svmcore",
                "commit",
                "cpu",
                "cores",
                "vectors",
                "python",
                "packages",
                "load",
                "command",
            )
        }
    if record["kind"] == "table":
        return {**record, "curves": {}}
    if record["kind"] != "row" or record["suite"] not in _SUITES or record["mode"] != "gap":
        return None
    short = {key: record[key] for key in _KEPT if key in record}
    short["problem"] = {key: record["problem"][key] for key in ("name", "n", "d")}
    short["wall"] = [float(f"{min(record['wall']):.3g}")]
    short["cpu"] = [float(f"{min(record['cpu']):.3g}")]
    short["score"] = {"relative_gap": float(f"{record['score']['relative_gap']:.3g}")}
    return short


def publish(results: Results) -> None:
    """Keep the figures to show."""
    lines = [json.dumps(kept) for record in results.records if (kept := _kept(record))]
    PUBLISHED.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _origin(results: Results) -> str:
    env = results.environment
    packages = env["packages"]
    names = {"scikit-learn": "scikit-learn", "oneDAL": "scikit-learn-intelex", "LIBSVM": "libsvm-official"}
    peers = ", ".join(f"{name} {packages.get(package, '-')}" for name, package in names.items())
    commands = "; ".join(f"`{env['command']}`" for env in results.kind("environment"))
    return (
        f"svmcore {env['svmcore']} ({env['commit']}), {env['cpu']} with {env['vectors']}, {env['cores']} cores, "
        f"load average {env['load'][0]:.0f}, {env['when']}; {peers}. {commands}"
    )


def _classes(results: Results) -> Grid:
    """A row a class of problems, a column a peer: geometric mean, and the worst case against the baseline."""
    found = cases(results, "fit", "gap")
    names = [name for name in solvers(found) if name != OURS and name != "ThunderSVM"]
    rows = []
    for group, part in groups(found).items():
        by_name = {standing.solver: standing for standing in standings(part)}
        cells = [times(by_name[name].mean) if name in by_name else "-" for name in names]
        worst = times(by_name[BASELINE].worst) if BASELINE in by_name else "-"
        rows.append([group, str(len(part)), *cells, worst])
    return Grid(["class of problems", "problems", *names, f"worst, {BASELINE}"], rows)


def readme_block(results: Results) -> str:
    """The table of README.md."""
    return (
        "Time of a peer divided by ours, geometric mean, at equal certified duality gap (more than 1: svmcore is faster):\n\n"
        f"{_classes(results).markdown()}\n\n{_origin(results)}\n"
        "[How it is measured](docs/benchmarks.md)"
    )


def docs_block(results: Results) -> str:
    """The tables of docs/benchmarks.md."""
    parts = [_origin(results), _classes(results).markdown()]
    for table in results.kind("table"):
        grid = Grid(table["columns"], [[shown(cell) for cell in row] for row in table["rows"]])
        parts += [f"### {table['title']}", f"{table['source']}. {table['note']}".strip(), grid.markdown()]
    return "\n\n".join(parts)


BLOCKS = {ROOT / "README.md": readme_block, ROOT / "docs" / "benchmarks.md": docs_block}
_MARKS = re.compile(r"(<!-- bench:begin -->\n).*?(<!-- bench:end -->)", re.DOTALL)


def renewed(file: Path, results: Results) -> tuple[str, str]:
    """A file's text as it is, and as it should be."""
    text = file.read_text(encoding="utf-8")
    if not _MARKS.search(text):
        raise ValueError(f"{file.name} has no lines <!-- bench:begin --> and <!-- bench:end -->")
    block = BLOCKS[file](results)
    return text, _MARKS.sub(lambda match: f"{match[1]}\n{block}\n\n{match[2]}", text)


def published(files: list[Path] | None, *, check: bool) -> int:
    """The command `readme`; its exit status."""
    if files:
        publish(read(files))
    results = read([PUBLISHED])
    stale = 0
    for file in BLOCKS:
        now, wanted = renewed(file, results)
        if now != wanted:
            stale += 1
            print(f"{file.name} is stale: run python -m bench readme" if check else f"{file.name} rewritten")
            if not check:
                file.write_text(wanted, encoding="utf-8")
    return int(check and stale > 0)
