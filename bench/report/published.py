"""The figures that README.md and docs/ show: generated between markers from bench/published.jsonl.

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
BUSY = 3.0  # load average above which times mean little
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
    "fit",
    "fit-large",
    "predict",
    "path",
    "cv",
    "gpu",
    "cold",
    "memory",
    "small",
    "first",
    "estimators",
    "scale",
)
_WHOLE = ("estimators", "scale")  # suites all of whose scores are shown
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
        return {**record, "figures": []}
    if record["kind"] == "threads":
        wall = {count: [_short(float(min(each)))] for count, each in record["wall"].items()}
        score = {key: record["score"][key] for key in ("n_sv", "n_kernel_evals", "certificate_evals")}
        problem = {key: record["problem"][key] for key in ("name", "n", "d")}
        return {**record, "problem": problem, "wall": wall, "score": score}
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


def publish(results: Results) -> None:
    """Keep the figures to show."""
    lines = [json.dumps(kept) for record in results.records if (kept := _kept(record))]
    PUBLISHED.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _source(results: Results) -> str:
    """One sentence: which code, which machine, when. The table of classes may be older than the others."""
    env, newest = results.environment, results.kind("environment")[-1]
    code = f"svmcore {env['svmcore']} ({env['commit']}, {env['when']})"
    if newest["commit"] != env["commit"]:
        code = f"The table of classes: {code}; the others: {newest['commit']}, {newest['when']}"
    return (
        f"{code}; {env['cpu']} with {env['vectors']}, {env['cores']} cores; "
        "[how it is measured, and each suite's code and machine](docs/benchmarks.md)."
    )


def _busy(load: list[float]) -> str:
    """What to say of a machine that did much else at the time."""
    return f", load average {load[0]:.0f}: believe its counts, not its times" if load and load[0] > BUSY else ""


def _origin(results: Results) -> str:
    env = results.environment
    packages = env["packages"]
    names = {"scikit-learn": "scikit-learn", "oneDAL": "scikit-learn-intelex", "LIBSVM": "libsvm-official"}
    peers = ", ".join(f"{name} {packages.get(package, '-')}" for name, package in names.items())
    commands = "; ".join(
        f"`{each['command']}`"
        + ("" if each["commit"] == env["commit"] else f" (by {each['commit']}, on {each['cpu']}{_busy(each['load'])})")
        for each in results.kind("environment")
    )
    return (
        f"svmcore {env['svmcore']} ({env['commit']}), {env['cpu']} with {env['vectors']}, {env['cores']} cores, "
        f"load average {env['load'][0]:.0f}, {env['when']}; {peers}. {commands}"
    )


def _classes(results: Results) -> Grid:
    """A row a class of problems, a column a peer: geometric mean, and the worst case against the baseline."""
    found = cases(results, "fit", "gap") + [case for case in cases(results, "predict") if case.group]
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
    look = cases(results, "first")
    first = (
        "What one tries first: scikit-learn's time divided by ours, whole estimators, one thread "
        f"([every fit](docs/benchmarks.md)):\n\n{first_grid(look).markdown()}\n\n"
    )
    tuned = cases(results, "gpu")
    beside = (
        "Tuning C with ten folds of 10,000 rows. We follow *every* C exactly; the others try 50 values. The paper on TorchKM "
        f"printed the seconds of the graphics card:\n\n{gpu_grid(tuned).markdown()}\n\n"
    )
    return (
        f"{beside if tuned else ''}"
        "Time of a peer divided by ours, geometric mean, at equal certified duality gap (more than 1: svmcore is faster):\n\n"
        f"{_classes(results).markdown()}\n\n{first if look else ''}{_source(results)}"
    )


def tables_block(results: Results) -> str:
    """The tables of docs/benchmarks.md."""
    parts = [_origin(results), _classes(results).markdown()]
    if found := cases(results, "small"):
        parts += ["### Calls of less than a millisecond", small_calls_grid(found).markdown()]
    if found := cases(results, "gpu"):
        parts += ["### Tuning, beside a graphics card", gpu_grid(found).markdown()]
    if found := cases(results, "first"):
        parts += ["### What a newcomer measures first", first_rows_grid(found).markdown()]
    if results.kind("threads", "fit"):
        parts += ["### Wide dense data: kernel values, and two threads", threads_grid(results).markdown()]
    if found := cases(results, "estimators"):
        parts += ["### scikit-learn's interface", estimators_grid(found).markdown()]
    if found := cases(results, "scale"):
        parts += ["### Over parts", scale_grid(found).markdown()]
    for suite, title in [("cold", "Cold start"), ("memory", "Peak memory")]:
        section = next((section for section in processes(results) if section.title.startswith(title)), None)
        if cases(results, suite) and section is not None:
            parts += [
                f"### {section.title}",
                *(block.markdown() for block in section.blocks if isinstance(block, Grid)),
            ]
    for table in results.kind("table"):
        grid = Grid(table["columns"], [[shown(cell) for cell in row] for row in table["rows"]])
        parts += [f"### {table['title']}", f"{table['source']}. {table['note']}".strip(), grid.markdown()]
    return "\n\n".join(parts)


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
    parts = [_origin(results)]
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
    return f"{_origin(results)}\n\n{path_grid(cases(results, 'path')).markdown()}"


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
            _origin(results),
            "### How fast",
            _classes(results).markdown(),
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
    return int(check and stale > 0)
