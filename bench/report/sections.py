"""What the report says, suite by suite: the answer first, its evidence below, the raw figures folded away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers import BASELINE
from bench.peers.ours import PATH
from bench.report import plots
from bench.report.page import Grid, Part, Picture, Section, markdown, pictures
from bench.report.summary import OURS, Case, cases, groups, solvers, standings
from bench.results import Results, seconds, spread
from bench.tables.base import shown


def duration(value: float) -> str:
    """Seconds as a person reads them."""
    if value < 1e-3:
        return f"{1e6 * value:.0f} us"
    if value >= 1000.0:
        return f"{value:,.0f} s"
    return f"{1e3 * value:.3g} ms" if value < 1.0 else f"{value:.3g} s"


def times(value: float) -> str:
    """A ratio."""
    return "-" if value != value else f"{value:.1f}x"


def mark(ratio: float, met: bool = True) -> str:
    """A ratio: bold where we are slower, in parentheses where the other one did not arrive."""
    text = times(ratio)
    return f"({text})" if not met else f"**{text}**" if ratio < 1.0 else text


def small(value: float | None) -> str:
    """A certificate's figure."""
    return "-" if value is None else f"{value:.1e}"


def titled(row: dict[str, Any]) -> str:
    """A solver's name, marked where it misses its target."""
    return str(row["solver"]) + ("" if row["met"] else " (misses)")


def headline(results: Results) -> tuple[str, str]:
    """One sentence a reader came for, and what it rests on."""
    for suite, mode in [("fit", "gap"), ("fit", "tol"), ("smoke", "tol")]:
        found = cases(results, suite, mode)
        standing = next((s for s in standings(found) if s.solver == BASELINE and s.ratios), None)
        if standing is None:
            continue
        basis = "at equal certified gap" if mode == "gap" else "at the same tolerance"
        verb = "faster than" if standing.mean >= 1 else "slower than"
        factor = standing.mean if standing.mean >= 1 else 1.0 / standing.mean
        sentence = f"svmcore fits {factor:.1f} times {verb} {BASELINE}"
        lead = (
            f"Geometric mean over {len(standing.ratios)} problems {basis}; from {standing.worst:.1f}x to "
            f"{standing.best:.1f}x. Every answer was measured by one certificate, in double precision, from the data."
        )
        return sentence, lead
    return "svmcore benchmarks", "Results of the suites named below."


def _standing_grid(found: list[Case]) -> Grid:
    rows = [
        [s.solver, times(s.mean), times(s.worst), times(s.best), str(len(s.ratios)), str(s.missed)]
        for s in standings(found)
    ]
    return Grid(["peer", "time of peer / ours (mean)", "worst for us", "best for us", "compared", "missed"], rows)


def _group_grid(found: list[Case]) -> Grid:
    names = [name for name in solvers(found) if name != OURS]
    rows = []
    for group, part in groups(found).items():
        by_name = {standing.solver: standing for standing in standings(part)}
        cells = [times(by_name[name].mean) if name in by_name else "-" for name in names]
        rows.append([group, str(len(part)), *cells])
    return Grid(["class", "problems", *names], rows)


def _case_grid(found: list[Case]) -> Grid:
    """Every row of every case."""
    columns = [
        "problem",
        "solver",
        "time",
        "spread",
        "peer / ours",
        "asked",
        "relative gap",
        "KKT",
        "|SV|",
        "kernel values",
        "x limit",
    ]
    rows: list[list[str]] = []
    for case in found:
        for name in [OURS, *(other for other in case.rows if other != OURS)]:
            row = case.rows.get(name)
            if row is None:
                continue
            measured, limit = row["score"], row.get("limit")
            evaluated = measured.get("n_kernel_evals")
            per_block = evaluated / (measured["n_sv"] * case.problem["n"]) if evaluated and measured["n_sv"] else None
            ratio = case.ratio(name)
            rows.append(
                [
                    case.label, titled(row), duration(seconds(row)), f"+{100 * spread(row):.0f} %",
                    "" if name == OURS else (times(ratio) if ratio is not None else "-"), f"{row['asked']:.1e}",
                    small(measured.get("relative_gap")), small(measured.get("kkt_violation")),
                    "-" if measured.get("n_sv") is None else str(measured["n_sv"]),
                    "-" if per_block is None else f"{per_block:.1f} blocks",
                    "-" if not limit else f"{seconds(row) / limit['kernel_block']:.1f}",
                ]
            )  # fmt: skip
    return Grid(columns, rows)


def threads_grid(results: Results) -> Grid:
    """What our own fits compute, in blocks of support vectors times points, and what a second thread brings."""
    rows = []
    for record in results.kind("threads", "fit"):
        measured = record["score"]
        block = max(measured["n_sv"] * record["problem"]["n"], 1)
        one, two = (min(record["wall"][count]) for count in ("1", "2"))
        rows.append(
            [
                record["problem"]["name"], f"{record['tol']:g}", f"{measured['n_sv']:,}",
                *(f"{measured[key] / block:.2f}" for key in ("n_kernel_evals", "certificate_evals")),
                duration(one), duration(two), times(one / two),
            ]
        )  # fmt: skip
    columns = ["problem", "tol", "|SV|", "values by the solver / |SV| n", "by the certificate", "1 thread", "2 threads"]
    return Grid([*columns, "ratio"], rows)


def fit(results: Results) -> Iterator[Section]:
    """The suite most readers want."""
    equal, nominal = cases(results, "fit", "gap"), cases(results, "fit", "tol")
    if not nominal:
        return
    blocks: list[Any] = [
        Picture("fit-groups", "time of each peer relative to svmcore, by class of problems", plots.group_bars(equal)),
        (
            "Each bar is a geometric mean, each thin line runs from the worst to the best problem of the class. Equal "
            "certified gap: every solver runs at the loosest tolerance with which its answer reaches the same duality gap."
        ),
        _standing_grid(equal),
        "missed: no tolerance of the ladder brought the answer to the target gap. Such rows are not compared.",
        Part("By class, at equal certified gap", [_group_grid(equal)]),
        Part(
            "At the same tolerance, as a user types it",
            [
                "missed: the certified KKT violation is above the tolerance that was asked for.",
                _standing_grid(nominal),
                _group_grid(nominal),
            ],
        ),
        Picture("fit-profile", "performance profile", plots.performance_profile(equal)),
        "Higher is better: the share of problems that a solver finishes within a factor of the fastest one.",
        Picture("fit-limit", "our time in units of the physical limit", plots.limit_bars(nominal)),
        (
            "The limit: every kernel row of a support vector has to be computed once, here by our own kernel on one thread. "
            "Below 1 is possible only where rows are shared or threads are two."
        ),
    ]
    blocks += [
        Part(
            f"Every problem against {name}",
            [Picture(f"fit-{name.replace(' ', '-')}", f"ratios to {name}", plots.ratio_bars(equal, name))],
        )
        for name in solvers(equal)
        if name != OURS and any(case.ratio(name) is not None for case in equal)
    ]
    if results.kind("threads", "fit"):
        blocks.append(Part("Wide dense data: kernel values, and two threads", [threads_grid(results)]))
    blocks += [
        Part("Every row at equal certified gap", [_case_grid(equal)]),
        Part("Every row at the tolerance asked for", [_case_grid(nominal)]),
    ]
    yield Section("Fit", blocks)


def contests(suite: str, title: str) -> Callable[[Results], Iterator[Section]]:
    """A section for a suite that is a list of cases."""

    def section(results: Results) -> Iterator[Section]:
        found = cases(results, suite)
        if found:
            yield Section(title, [_standing_grid(found), Part("Every row", [_case_grid(found)])])

    return section


def own_solvers(results: Results) -> Iterator[Section]:
    """Our solvers side by side."""
    found = cases(results, "solvers")
    if not found:
        return
    rows: list[list[str]] = []
    for case in found:
        for row in case.rows.values():
            measured = row["score"]
            rows.append(
                [
                    case.problem["name"], titled(row), duration(seconds(row)), str(measured["n_iter"]),
                    str(measured["n_kernel_evals"]), small(measured["relative_gap"]), small(measured["kkt_violation"]),
                ]
            )  # fmt: skip
    grid = Grid(["problem", "solver", "time", "iterations", "kernel values", "relative gap", "KKT"], rows)
    yield Section("Our solvers", [("The fastest of each problem is marked."), grid])


def predict(results: Results) -> Iterator[Section]:
    """Decision values."""
    found = cases(results, "predict")
    if not found:
        return
    rows: list[list[str]] = []
    for case in found:
        for name, row in case.rows.items():
            ratio = case.ratio(name)
            rows.append(
                [
                    case.label, str(row["points"]), name, duration(seconds(row)), str(row["score"]["n_sv"]),
                    "" if name == OURS else (times(ratio) if ratio else "-"), small(row["score"]["error"]),
                ]
            )  # fmt: skip
    grid = Grid(["problem", "points", "solver", "time", "|SV|", "peer / ours", "largest error"], rows)
    yield Section("Predict", [_standing_grid(found), Part("Every row", [grid])])


def small_calls_grid(found: list[Case]) -> Grid:
    """A row a call, a column a solver."""
    names = solvers(found)
    rows = [
        [
            f"{case.group}, {case.label}",
            *(duration(seconds(case.rows[name])) if name in case.rows else "-" for name in names),
        ]
        for case in found
    ]
    return Grid(["call", *names], rows)


def small_calls(results: Results) -> Iterator[Section]:
    """Calls of less than a millisecond."""
    found = cases(results, "small")
    if found:
        yield Section("Small calls", [small_calls_grid(found)])


def estimators_grid(found: list[Case]) -> Grid:
    """A row a case: our estimator, the one of the same name, and how far the goal is."""
    rows = []
    for case in found:
        assert case.ours is not None
        theirs, goal = case.rows.get(BASELINE), case.ours["score"]["goal"]
        rows.append(
            [
                case.group, f"{case.problem['n']} x {case.problem['d']}",
                "-" if theirs is None else duration(seconds(theirs)), duration(seconds(case.ours)),
                "-" if theirs is None else times(seconds(theirs) / seconds(case.ours)), f"{goal:g}" if goal else "-",
                _same(case),
            ]
        )  # fmt: skip
    return Grid(["what", "rows x features", BASELINE, "svmcore", "ratio", "goal", "the same answer"], rows)


def estimators(results: Results) -> Iterator[Section]:
    """scikit-learn's interface."""
    found = cases(results, "estimators")
    if found:
        yield Section("Estimators", [estimators_grid(found)])


def _same(case: Case) -> str:
    """Whether everybody has the same answer."""
    return "yes" if all(row["met"] for row in case.rows.values()) else "no"


def _quotient(case: Case) -> float:
    """How many times faster than scikit-learn's estimator of the same name."""
    assert case.ours is not None
    return seconds(case.rows[BASELINE]) / seconds(case.ours)


def first_grid(found: list[Case]) -> Grid:
    """A row a data set: how its fits compare with scikit-learn's, and which of them is the slowest by comparison."""
    rows = []
    for group, every in groups(found).items():
        part = [case for case in every if BASELINE in case.rows and case.ours is not None]
        quotients = [_quotient(case) for case in part]
        least = int(np.argmin(quotients))
        problem = part[least].problem
        rows.append(
            [
                group, f"{problem['n']} x {problem['d']}", str(len(part)), mark(float(np.exp(np.mean(np.log(quotients))))),
                f"{mark(quotients[least])}, {problem['name']}", str(sum(quotient < 1.0 for quotient in quotients)),
            ]
        )  # fmt: skip
    return Grid(["data", "rows x features", "fits", "geometric mean", "worst", "slower"], rows)


def first_rows_grid(found: list[Case]) -> Grid:
    """A row a fit."""
    rows = [
        [
            case.group, case.problem["name"], duration(seconds(case.rows[BASELINE])), duration(seconds(case.ours)),
            mark(_quotient(case)), _same(case),
        ]
        for case in found
        if BASELINE in case.rows and case.ours is not None
    ]  # fmt: skip
    return Grid(["data", "machine", BASELINE, "svmcore", "ratio", "the same answer"], rows)


def gpu_grid(found: list[Case]) -> Grid:
    """Seconds of tuning: a row for everybody, a column for every set."""
    names = dict.fromkeys(name for case in found for name in case.rows)
    rows = [
        [name, *(duration(seconds(case.rows[name])) if name in case.rows else "-" for case in found)] for name in names
    ]
    return Grid(["ten folds, a refit", *(tuned_set(case) for case in found)], rows)


def tuned_set(case: Case) -> str:
    """The size of a set, behind its name where it has one."""
    name = case.problem["name"]
    size = f"{case.problem['n']:,} x {case.problem['d']:,}"
    return size if name.endswith("columns") else f"{name}, {size}"


def many_grid(found: list[Case]) -> Grid:
    """Many fits over one kernel matrix: a row for every case, and how many times as long others take."""
    rows = []
    for case in found:
        own, *others = case.rows.items()
        times = [
            f"{name} {duration(seconds(row))} ({seconds(row) / seconds(own[1]):.1f} times)" for name, row in others
        ]
        rows.append([case.problem["name"], case.group, duration(seconds(own[1])), ", ".join(times) or "-"])
    return Grid(["rows", "what", "svmcore", "others"], rows)


def first(results: Results) -> Iterator[Section]:
    """What a newcomer measures."""
    found = cases(results, "first")
    if found:
        yield Section("First look", [first_grid(found), Part("Every fit", [first_rows_grid(found)])])


_COUNTS = {
    "rounds": "rounds", "passes": "passes", "support": "vectors", "rows_seen": "rows sent up", "bytes_up": "MB up",
    "bytes_down": "MB down", "peak_mb": "peak MB", "relative_gap": "gap", "cpu": "CPU s", "cpu_ratio": "to one machine: CPU",
    "wall_ratio": "wall",
}  # fmt: skip


def _counted(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1e6:.1f}" if name.startswith("bytes") else f"{value:.4g}" if value < 1e4 else f"{value:,.0f}"


def scale_grid(found: list[Case]) -> Grid:
    """What was counted in every fit over parts."""
    rows = [
        [case.group, case.problem["name"], solver, *(_counted(name, row["score"].get(name)) for name in _COUNTS)]
        for case in found
        for solver, row in case.rows.items()
    ]
    return Grid(["what", "rows and features", "fit", *_COUNTS.values()], rows)


def scale(results: Results) -> Iterator[Section]:
    """Beyond one machine."""
    found = cases(results, "scale")
    if found:
        yield Section("Over parts", [scale_grid(found)])


EVERY_C = "svmcore, every C"


def cv(results: Results) -> Iterator[Section]:
    """Tuning."""
    found = cases(results, "cv")
    if not found:
        return
    rows: list[list[str]] = []
    for case in found:
        reference = EVERY_C if EVERY_C in case.rows else OURS
        for name, row in case.rows.items():
            score = row["score"]
            rows.append(
                [
                    case.problem["name"].replace(" C=1", ""), str(case.problem["n"]), case.group, name,
                    duration(seconds(row)),
                    "" if name == reference else times(seconds(row) / seconds(case.rows[reference])),
                    f"{100 * score['best_error']:.3g} %", f"{100 * score['disagree']:.2f} %",
                    f"{score['curve_share']:.2f}" if "curve_share" in score else "",
                ]
            )  # fmt: skip
    head = [
        "problem",
        "n",
        "grid of others",
        "solver",
        "time",
        "others / every C",
        "best error",
        "signs unlike ours",
        "curve / path",
    ]
    text = (
        "Five folds, kernel values included. Ours is exact for every C from 0.001 to 1,000; the others are fitted at values "
        "in it. The error of a grid is that over its own values."
    )
    yield Section("Tuning C", [text, Grid(head, rows)])


def path_grid(found: list[Case]) -> Grid:
    """A row a problem: the path, and everybody else in units of it."""
    names = [name for name in solvers(found) if name != PATH]
    rows = []
    for case in found:
        if PATH not in case.rows:
            continue
        whole, score = seconds(case.rows[PATH]), case.rows[PATH]["score"]
        cells = [times(seconds(case.rows[name]) / whole) if name in case.rows else "-" for name in names]
        facts = [duration(whole), str(score["n_events"]), str(score["elbow_max"]), small(score["relative_gap"])]
        rows.append([case.problem["name"].replace(" C=1", ""), str(case.problem["n"]), *facts, *cells])
    others = [f"{name.removeprefix(f'{PATH}, ')} / path" for name in names]
    return Grid(["problem", "n", "path", "events", "largest elbow", "largest gap", *others], rows)


def path(results: Results) -> Iterator[Section]:
    """Whole paths."""
    found = cases(results, "path")
    if not found:
        return
    rows: list[list[str]] = []
    for case in found:
        for name, row in case.rows.items():
            gap = small(row["score"]["relative_gap"])
            rows.append([case.problem["name"].replace(" C=1", ""), name, duration(seconds(row)), gap])
    text = (
        "Every C from 0.01 to 100. The path is exact between its breakpoints; grids answer at 100 values. Below 1: quicker "
        "than the whole path."
    )
    every = Grid(["problem", "who", "time", "largest relative gap"], rows)
    yield Section("The whole path", [text, path_grid(found), Part("Every row, with its certified gap", [every])])


def scaling(results: Results) -> Iterator[Section]:
    """Growth."""
    found = cases(results, "scaling")
    if found:
        text = "The exponent in the legend is fitted to the larger half of the sizes."
        yield Section(
            "How time grows",
            [
                Picture("scaling", "time against n", plots.scaling(found)),
                text,
                Part("Every row", [_case_grid(found)]),
            ],
        )


def processes(results: Results) -> Iterator[Section]:
    """Cold starts and memory."""
    cold = cases(results, "cold")
    if cold:
        rows = [
            [
                name,
                *(
                    duration(row["score"][key])
                    for key in ("import_seconds", "first_fit", "first_fit_cpu", "second_fit")
                ),
            ]
            for case in cold
            for name, row in case.rows.items()
        ]
        yield Section("Cold start", [Grid(["solver", "import", "first fit", "its CPU time", "second fit"], rows)])
    memory = cases(results, "memory")
    if memory:
        names = solvers(memory)
        rows = [
            [
                case.problem["name"], f"{next(iter(case.rows.values()))['score']['data_mb']:.1f}",
                *(f"{case.rows[name]['score']['peak_mb']:.0f}" if name in case.rows else "-" for name in names),
            ]
            for case in memory
        ]  # fmt: skip
        yield Section("Peak memory of a fit, MB above the loaded data", [Grid(["problem", "data", *names], rows)])


def tables(results: Results) -> Iterator[Section]:
    """The published tables."""
    blocks: list[Any] = []
    source = ""
    for number, table in enumerate(results.kind("table")):
        if table["source"] != source:
            source = table["source"]
            blocks.append(source + ".")
        grid = Grid(table["columns"], [[shown(cell) for cell in row] for row in table["rows"]])
        inside: list[Any] = [grid, *([(table["note"])] if table["note"] else [])]
        inside += [
            Picture(f"table-{number}-{k}", figure["title"], plots.figure(figure))
            for k, figure in enumerate(table.get("figures", []))
        ]
        blocks.append(Part(table["title"], inside))
    if blocks:
        yield Section("Published tables, recomputed", blocks)


def circumstances(results: Results) -> Iterator[Section]:
    """Where, with what, and what did not run."""
    blocks: list[Any] = []
    for env in results.kind("environment"):
        versions = ", ".join(f"{name} {number}" for name, number in env["packages"].items())
        changed = (
            " with local changes" if env.get("dirty") else ""
        )  # published results keep neither this nor the system
        system = f" {env['system']}," if "system" in env else ""
        blocks.append(
            f"{env['when']}: svmcore {env['svmcore']} at {env['commit']}{changed}, "
            f"{env['cpu']} ({env['cores']} cores, {env['vectors']}),{system} Python {env['python']}, "
            f"load {env['load']}. {versions}."
        )
    skips = list(dict.fromkeys((s["suite"], s["solver"], s["why"], s["problem"]) for s in results.kind("skip")))
    if skips:
        blocks.append(
            Part(
                f"Not run: {len(skips)} entries",
                [Grid(["suite", "solver", "why", "problem"], [list(s) for s in skips])],
            )
        )
    minutes = [
        [s["suite"], f"{s['minutes']:.1f}", "FAILED" if s["failed"] else "passed"] for s in results.kind("suite")
    ]
    blocks.append(Grid(["suite", "minutes", "checks"], minutes))
    blocks.append(
        "Times are minima over repeats in which the solvers alternate: CPU seconds at one thread, wall seconds at more. "
        "Only the fit is timed. How to read and rerun all this: docs/benchmarks.md."
    )
    yield Section("Circumstances", blocks)


SECTIONS: list[Callable[[Results], Iterator[Section]]] = [
    fit,
    contests("fit-large", "Large fits"),
    path,
    cv,
    predict,
    small_calls,
    first,
    estimators,
    scale,
    scaling,
    own_solvers,
    processes,
    tables,
    contests("smoke", "Smoke"),
    circumstances,
]


def write(results: Results, folder: Path) -> list[Path]:
    """Write report.md with its pictures. Returns the files of text."""
    from bench.report.fast import sections as protocols  # which is made of tables of this file

    title, lead = headline(results)
    sections = [section for make in [protocols, *SECTIONS] for section in make(results)]
    folder.mkdir(parents=True, exist_ok=True)
    for picture in pictures(sections):
        (folder / f"{picture.name}.png").write_bytes(picture.png)
    file = folder / "report.md"
    file.write_text(markdown(title, lead, sections), encoding="utf-8")
    return [file]
