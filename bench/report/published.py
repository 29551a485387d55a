"""The figures that README.md and docs/ show: generated between markers from bench/published.jsonl.

`python -m bench readme RESULTS...` publishes new results; without files it only rewrites the tables; `--check` fails where
a table is not what the published results and the code of today make of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.data import ROOT
from bench.peers import BASELINE
from bench.report.fast import (
    DRAWINGS,
    classes_grid,
    drawn,
    gamma_block,
    lost_grid,
    missed,
    of_suites,
    origin,
    page,
    picture,
)
from bench.report.page import Grid
from bench.report.sections import (
    duration,
    estimators_grid,
    first_grid,
    first_rows_grid,
    gpu_grid,
    path_grid,
    processes,
    scale_grid,
    small,
    small_calls_grid,
    threads_grid,
    times,
)
from bench.report.summary import OURS, Case, cases, groups, solvers, standings
from bench.results import Results, read, seconds
from bench.tables.base import shown

PUBLISHED = ROOT / "bench" / "published.jsonl"
_FACTS = (
    "kind",
    "suite",
    "group",
    "problem",
    "solver",
    "mode",
    "tol",
    "gap_target",
    "threads",
    "asked",
    "met",
    "points",
)
_SCORES = (
    "relative_gap", "kkt_violation", "n_sv", "n_kernel_evals", "error", "n_events", "elbow_max", "import_seconds",
    "first_fit", "first_fit_cpu", "second_fit", "peak_mb", "data_mb", "best_error", "disagree",
)  # fmt: skip
_SUITES = (
    "fit", "linear", "fit-large", "predict", "path", "cv", "gpu", "intel", "many", "bilevel", "gamma", "scaling",
    "processors", "cold", "memory", "small", "first", "estimators", "scale",
)  # fmt: skip
_WHOLE = ("estimators", "scale", "bilevel", "gamma")  # suites all of whose scores are shown
_ENVIRONMENT = (
    "kind", "when", "svmcore", "commit", "cpu", "cores", "vectors", "python", "packages", "load", "command",
)  # fmt: skip


def _short(value: Any) -> Any:
    """Three digits of a number, and of every number of a list or a mapping."""
    if isinstance(value, float):
        return float(f"{value:.3g}")
    return {key: _short(item) for key, item in value.items()} if isinstance(value, dict) else value


def _kept(record: dict[str, Any]) -> dict[str, Any] | None:
    """What the tables need of a record, to three digits."""
    if record["kind"] == "environment":
        return {key: record[key] for key in _ENVIRONMENT}
    if record["kind"] == "table":
        return {key: value for key, value in record.items() if key != "from"} | {"figures": []}
    if record["kind"] == "threads":
        wall = {count: [_short(float(min(each)))] for count, each in record["wall"].items()}
        score = {key: record["score"][key] for key in ("n_sv", "n_kernel_evals", "certificate_evals")}
        problem = {key: record["problem"][key] for key in ("name", "n", "d")}
        kept = {key: record[key] for key in ("kind", "suite", "group", "tol")}
        return {**kept, "problem": problem, "wall": wall, "score": score}
    if record["kind"] != "row" or record["suite"] not in _SUITES:
        return None
    return {
        **{key: record[key] for key in _FACTS if key in record},
        "problem": {key: record["problem"][key] for key in ("name", "n", "d") if key in record["problem"]},
        "wall": [_short(float(min(record["wall"])))],
        "cpu": [_short(float(min(record["cpu"])))],
        "score": _short(
            {
                key: value
                for key, value in record["score"].items()
                if value is not None and (key in _SCORES or record["suite"] in _WHOLE)
            }
        ),
        **({"limit": _short(record["limit"])} if "limit" in record else {}),
    }


def _place(record: dict[str, Any]) -> tuple[Any, ...]:
    """What a later run replaces: a case is always of one run, with everybody in it."""
    if record["kind"] == "table":
        return "table", record["title"]
    keys = ("kind", "suite", "mode", "group", "tol", "threads", "points")
    return (*(record.get(key) for key in keys), record.get("problem", {}).get("name"))


def publish(results: Results) -> None:
    """Keep the figures to show: of every case those of the last run that has it."""
    figures = [record for record in results.records if record["kind"] in ("row", "table", "threads")]
    last = {_place(record): id(record["from"]) for record in figures}
    lines = []
    for env in results.kind("environment"):
        mine = [each for each in figures if each["from"] is env and last[_place(each)] == id(env)]
        kept = [json.dumps(each) for each in map(_kept, mine) if each is not None]
        lines += [json.dumps(_kept(env)), *kept] if kept else []
    PUBLISHED.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _source(results: Results) -> str:
    """One sentence: which code, which machine, when, under which load."""
    env = results.environment
    commits = dict.fromkeys(each["from"]["commit"] for each in results.kind("row") if each["suite"] in _FRONT)
    load = f", load {env['load'][0]:.1f}" if env["load"] else ""
    return (
        f"svmcore {env['svmcore']} ({', '.join(commits)}), {env['when']}; {env['cpu']} with {env['vectors']}, {env['cores']} "
        f"cores{load}; [pictures, peers, each suite's commit and load, and every row that is lost](docs/fast.md)."
    )


_FRONT = ("fit", "gpu", "first")  # what README shows


def readme_block(results: Results) -> str:
    """The tables of README.md, and a picture."""
    parts = [picture(results, "fast-scaling", "docs/")] if cases(results, "scaling") else []
    if tuned := cases(results, "gpu"):
        parts += [
            "Tuning C with ten folds. We follow *every* C exactly; the others try 50 values. The paper on TorchKM printed "
            "the seconds of the graphics card:",
            gpu_grid(tuned).markdown(),
        ]
    parts += [
        "Time of a peer divided by ours, geometric mean, at equal certified duality gap (more than 1: svmcore is faster; "
        "**bold**: lost).",
        classes_grid(results).markdown(),
        missed(results),
    ]
    if look := cases(results, "first"):
        parts += [
            "What one tries first: scikit-learn's time divided by ours, whole estimators, one thread "
            "([every fit](docs/benchmarks.md)):",
            first_grid(look).markdown(),
        ]
    share, _ = lost_grid(results)
    parts += [f"Lost: {share} comparisons ([all of them](docs/fast.md#what-is-lost)).", _source(results)]
    return "\n\n".join(parts)


def tables_block(results: Results) -> str:
    """The tables of docs/benchmarks.md, each with its origin."""
    parts = []
    for suite, title, made in _TABLES:
        if found := cases(results, suite):
            parts += [f"### {title}", made(found).markdown(), of_suites(results, suite)]
    if results.kind("threads", "fit"):
        parts += ["### Wide dense data: kernel values, and two threads", threads_grid(results).markdown()]
    if found := cases(results, "scale"):
        parts += ["### Over parts", scale_grid(found).markdown(), of_suites(results, "scale")]
    for suite, title in [("cold", "Cold start"), ("memory", "Peak memory")]:
        section = next((section for section in processes(results) if section.title.startswith(title)), None)
        if cases(results, suite) and section is not None:
            blocks = [block.markdown() for block in section.blocks if isinstance(block, Grid)]
            parts += [f"### {section.title}", *blocks, of_suites(results, suite)]
    for table in results.kind("table"):
        grid = Grid(table["columns"], [[shown(cell) for cell in row] for row in table["rows"]])
        note = f"{table['source']}. {table['note']}".strip()
        parts += [f"### {table['title']}", note, grid.markdown(), origin([table["from"]])]
    return "\n\n".join(parts)


_TABLES: list[tuple[str, str, Callable[[list[Case]], Grid]]] = [
    ("small", "Calls of less than a millisecond", small_calls_grid),
    ("first", "What a newcomer measures first", first_rows_grid),
    ("estimators", "scikit-learn's interface", estimators_grid),
]


def _summary(found: list[Case]) -> str:
    """Geometric mean and worst case against every peer."""
    return "; ".join(
        f"{s.solver}: mean {times(s.mean)}, worst {times(s.worst)}" + (f" (missed {s.missed})" if s.missed else "")
        for s in standings(found)
        if s.ratios
    )


def _details(found: list[Case]) -> Grid:
    """Every problem of a class: ours, and the baseline beside it."""
    rows = []
    for case in found:
        ours, theirs = case.ours, case.rows.get(BASELINE)
        if ours is None or theirs is None:
            continue
        score, other = ours["score"], theirs["score"]
        ratio = times(seconds(theirs) / seconds(ours))
        blocks = score["n_kernel_evals"] / max(score["n_sv"] * case.problem["n"], 1)
        rows.append(
            [
                case.label, duration(seconds(theirs)), duration(seconds(ours)), ratio if theirs["met"] else f"({ratio})",
                small(other["kkt_violation"]), small(score["kkt_violation"]), small(other["relative_gap"]),
                small(score["relative_gap"]), str(score["n_sv"]), f"{blocks:.1f}",
                f"{seconds(ours) / ours['limit']['kernel_block']:.1f}" if "limit" in ours else "-",
            ]
        )  # fmt: skip
    columns = [
        "problem", BASELINE, "svmcore", "ratio", "its violation", "ours", "its gap", "ours", "vectors", "blocks", "x limit",
    ]  # fmt: skip
    return Grid(columns, rows)


def fit_block(results: Results) -> str:
    """The tables of docs/fit.md: every problem, class by class, at the tolerance asked for and at equal gap."""
    parts = [of_suites(results, "fit", "fit-large", "predict")]
    both = {
        "tol": groups(cases(results, "fit") + cases(results, "fit-large")),
        "gap": groups(cases(results, "fit", "gap")),
    }
    for group, found in both["tol"].items():
        parts += [f"### {group}", _details(found).markdown(), f"At the same tolerance: {_summary(found)}."]
        if group in both["gap"]:
            parts.append(f"At equal certified gap: {_summary(both['gap'][group])}.")
    if predicted := cases(results, "predict"):
        rows = [
            [
                case.label, str(case.rows[OURS]["points"]), str(case.rows[OURS]["score"]["n_sv"]),
                *(duration(seconds(case.rows[name])) for name in (BASELINE, OURS)), times(case.ratio(BASELINE) or 0.0),
                small(case.rows[BASELINE]["score"]["error"]), small(case.rows[OURS]["score"]["error"]),
            ]
            for case in predicted
            if BASELINE in case.rows
        ]  # fmt: skip
        grid = Grid(["problem", "points", "vectors", BASELINE, "svmcore", "ratio", "its error", "ours"], rows)
        parts += ["### decision values", grid.markdown(), f"{_summary(predicted)}."]
    return "\n\n".join(parts)


def path_block(results: Results) -> str:
    """The table of docs/path.md: the whole path in units of one fit, and of what a grid of a hundred fits takes."""
    return f"{of_suites(results, 'path')}\n\n{path_grid(cases(results, 'path')).markdown()}"


def cost_block(results: Results) -> str:
    """The tables of docs/cost.md: how fast, how long, how much memory, what tuning takes."""
    found = cases(results, "fit") + cases(results, "fit-large")
    names = [name for name in solvers(found) if name != OURS]
    sizes = sorted((case for case in found if _SIZES.search(case.label)), key=lambda case: case.problem["n"])
    tuned = cases(results, "cv")
    tuners = [name for name in solvers(tuned) if name != OURS]
    memory = [section.blocks[0] for section in processes(results) if section.title.startswith("Peak memory")]
    return "\n\n".join(
        [
            of_suites(results, "fit", "fit-large", "memory", "cv"),
            "### How long",
            _durations(sizes, [OURS, *names]).markdown(),
            "### How much memory: MB above the loaded data",
            *(grid.markdown() for grid in memory if isinstance(grid, Grid)),
            "### How long a choice of C takes, by cross-validation",
            _durations(tuned, [OURS, *tuners], grouped=True).markdown(),
        ]
    )


_SIZES = re.compile(r"^(clusters|onehot|text)-\d+-\d+ rbf C=1( gamma=\S+)?$")


def _durations(found: list[Case], names: list[str], *, grouped: bool = False) -> Grid:
    """A row a problem, a column a solver: its time, in parentheses where it misses the tolerance."""
    rows = []
    for case in found:
        cells = []
        for name in names:
            row = case.rows.get(name)
            cells.append(
                "-" if row is None else duration(seconds(row)) if row["met"] else f"({duration(seconds(row))})"
            )
        rows.append([f"{case.problem['name']}{f', {case.group}' if grouped else ''}", *cells])
    return Grid(["problem", *names], rows)


BLOCKS = {
    ROOT / "README.md": readme_block,
    ROOT / "docs" / "fast.md": page,
    ROOT / "docs" / "tune.md": gamma_block,
    ROOT / "docs" / "benchmarks.md": tables_block,
    ROOT / "docs" / "cost.md": cost_block,
    ROOT / "docs" / "fit.md": fit_block,
    ROOT / "docs" / "path.md": path_block,
}
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
    for name, drawing in DRAWINGS.items():
        if not check and (found := drawn(results, name)):
            (ROOT / "docs" / f"{name}.png").write_bytes(drawing.draw(found))
    return int(check and stale > 0)
