"""The page "How fast, beside whom": what is lost first, then others' protocols, each with its origin."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bench.data import ROOT
from bench.peers import BASELINE
from bench.report import plots
from bench.report.page import Grid, Section
from bench.report.sections import duration, gpu_grid, many_grid, mark, times
from bench.report.summary import OURS, Case, cases, comparisons, groups, solvers, standings
from bench.results import Results, geometric_mean, seconds
from bench.suites import bilevel, gamma, linear, processors

BUSY = 3.0  # load average above which times mean little
_RELEASE = re.compile(r"^## (\d\S*) - (\S+)$", re.MULTILINE)


def release() -> tuple[str, str]:
    """The last release: its number and its day."""
    found = _RELEASE.search((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert found is not None
    return found[1], found[2]


def origin(environments: list[dict[str, Any]]) -> str:
    """By which code figures are, when, on what; and what speaks against them."""
    number, day = release()
    said = []
    for env in {id(env): env for env in environments}.values():
        load = f"load {env['load'][0]:.1f}" if env["load"] else "load unknown"
        busy = " (busy: believe its counts, not its times)" if env["load"] and env["load"][0] > BUSY else ""
        old = f", **older than {number}**" if env["when"][:10] < day else ""
        said.append(
            f"`{env['command']}` by {env['commit']}, {env['when']}, {env['cpu']} with {env['vectors']}, {env['cores']} "
            f"cores, {load}{busy}{old}"
        )
    return "; ".join(said) + "."


def versions(results: Results) -> str:
    """Of the packages and of Python, in all runs that are shown."""
    found: dict[str, dict[str, None]] = {}
    for env in results.kind("environment"):
        for name, number in {"Python": env["python"], **env["packages"]}.items():
            found.setdefault(name, {})[number] = None
    return "Versions: " + ", ".join(f"{name} {' and '.join(numbers)}" for name, numbers in found.items()) + "."


def of_suites(results: Results, *suites: str) -> str:
    """The origin of the rows of some suites."""
    return origin([r["from"] for r in results.records if r.get("suite") in suites and "from" in r])


# ---- grids -------------------------------------------------------------------------------------------------------------


def lost_grid(results: Results) -> tuple[str, Grid]:
    """How many comparisons are lost, and all of them."""
    found = comparisons(results)
    lost = sorted((each for each in found if each.ratio < 1.0), key=lambda each: each.ratio)
    rows = [
        [
            each.suite, each.problem, each.peer, duration(each.theirs), duration(each.ours), f"{each.ratio:.2f}x",
            "yes" if each.same else "no",
        ]
        for each in lost
    ]  # fmt: skip
    return f"{len(lost)} of {len(found)}", Grid(
        ["suite", "problem", "who is faster", "its time", "ours", "its / ours", "the same answer"], rows
    )


def classes_grid(results: Results) -> Grid:
    """A row a class of problems, a column a peer: geometric mean, and the worst case against the baseline."""
    found = cases(results, "fit", "gap") + [case for case in cases(results, "predict") if case.group]
    names = [name for name in solvers(found) if name != OURS and name != "ThunderSVM"]
    rows = []
    for group, part in groups(found).items():
        by_name = {standing.solver: standing for standing in standings(part)}
        cells = [mark(by_name[name].mean) if name in by_name else "-" for name in names]
        worst = mark(by_name[BASELINE].worst) if BASELINE in by_name else "-"
        rows.append([group, str(len(part)), *cells, worst])
    return Grid(["class of problems", "problems", *names, f"worst, {BASELINE}"], rows)


def missed(results: Results) -> str:
    """Who misses the gap, which no mean shows."""
    counts = {s.solver: s.missed for s in standings(cases(results, "fit", "gap")) if s.missed}
    said = ", ".join(f"{name} {count}" for name, count in counts.items())
    return (
        f"Problems on which no tolerance of theirs reaches the gap, so that they are in no mean: {said}."
        if said
        else ""
    )


def intel_grid(found: list[Case]) -> Grid:
    """A row a case; a time in parentheses is that of somebody who stopped before the answer."""
    rows = []
    names = solvers(found)
    for case in found:
        assert case.ours is not None
        cells = []
        for name in names:
            row = case.rows.get(name)
            text = "-" if row is None else duration(seconds(row))
            cells.append(text if row is None or row["met"] else f"({text})")
        ratios = []
        for name in names[1:]:
            row = case.rows.get(name)
            ratios.append("-" if row is None else mark(seconds(row) / seconds(case.ours), row["met"]))
        size = f"{case.problem['n']:,} x {case.problem['d']}"
        rows.append([case.group, case.problem["name"], size, *cells, *ratios])
    return Grid(["data", "machine", "rows x features", *names, *(f"{name} / ours" for name in names[1:])], rows)


def bilevel_grid(found: list[Case]) -> Grid:
    """A row a set: seconds, error of the folds, error of the test, for everybody."""
    names = list(dict.fromkeys(name for case in found for name in case.rows))
    rows = []
    for case in found:
        cells = []
        for name in names:
            row = case.rows.get(name)
            if row is None:
                cells.append("-")
                continue
            score = row["score"]
            cells.append(f"{duration(seconds(row))}, {100 * score['best_error']:.1f} %, {100 * score['error']:.1f} %")
        rows.append([case.problem["name"], f"{case.problem['n']:,} x {case.problem['d']}", *cells])
    return Grid(["set", "rows x features", *names], rows)


def gamma_differences(found: list[Case]) -> dict[str, dict[str, np.ndarray]]:
    """For every way the seconds, errors and log losses of all sets: each the mean over the trials of a set."""
    kept: dict[str, dict[str, list[float]]] = {}
    for part in groups(found).values():
        for name in part[0].rows:
            rows = [case.rows[name] for case in part if name in case.rows]
            into = kept.setdefault(name, {"seconds": [], "error": [], "log_loss": []})
            into["seconds"].append(float(np.mean([seconds(row) for row in rows])))
            for key in ("error", "log_loss"):
                into[key].append(float(np.mean([row["score"][key] for row in rows])))
    return {name: {key: np.array(values) for key, values in each.items()} for name, each in kept.items()}


def gamma_grid(found: list[Case]) -> Grid:
    """A row a way: what it costs, and how much worse it is than the search, with the standard error over the sets."""
    ways = gamma_differences(found)
    rows = []
    for name, each in ways.items():
        cells = [name.removeprefix("svmcore, "), duration(float(each["seconds"].sum()))]
        for key in ("error", "log_loss"):
            mean, noise = _apart(each[key], ways[gamma.SEARCH][key])
            cells += [f"{each[key].mean():.3f}", "-" if name == gamma.SEARCH else f"{mean:+.3f} ± {noise:.3f}"]
        rows.append(cells)
    sets = groups(found)
    head = f"way, {len(sets)} sets, {max(map(len, sets.values()))} times each"
    return Grid([head, "all sets", "error", "more than the search", "log loss", "more than the search"], rows)


def gamma_verdict(found: list[Case]) -> str:
    """Which ways differ from the search by more than two standard errors."""
    ways, said = gamma_differences(found), []
    for key, called in (("error", "error"), ("log_loss", "log loss")):
        for name, each in ways.items():
            mean, noise = _apart(each[key], ways[gamma.SEARCH][key])
            if name != gamma.SEARCH and abs(mean) > 2.0 * noise > 0.0:
                said.append(f"{name.removeprefix('svmcore, ')} has {'more' if mean > 0 else 'less'} {called}")
    beyond = (
        f"Beyond noise, two standard errors: {'; '.join(said)}."
        if said
        else "No difference is beyond two standard errors."
    )
    cheap, dear = (float(ways[name]["seconds"].sum()) for name in (gamma.DRAWS, gamma.GRID))
    return f"{beyond} The grid costs {dear / cheap:.0f} times what the draws do."


def _apart(values: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """The mean difference, and its standard error."""
    apart = values - others
    return float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(len(apart))) if len(apart) > 1 else 0.0


def linear_grid(found: list[Case]) -> Grid:
    """A row a problem, a column a gap: LIBLINEAR's time by ours, and SGDClassifier's where it arrives."""
    by_name: dict[str, dict[float, Case]] = {}
    for case in found:
        by_name.setdefault(case.problem["name"], {})[case.tol] = case
    rows = []
    for name, by_gap in by_name.items():
        problem = next(iter(by_gap.values())).problem
        cells = []
        for gap in linear.GAPS:
            ours = by_gap[gap].ours if gap in by_gap else None
            ratio = None if ours is None else by_gap[gap].ratio(linear.THEIRS)
            said = "-" if ratio is None else mark(ratio)
            cells.append("-" if ours is None else f"{duration(seconds(ours))}, {said}")
        rows.append([name, f"{problem['n']:,} x {problem['d']:,}", *cells])
    return Grid(["data, classes, loss", "rows x features", *(f"gap {gap:g}" for gap in linear.GAPS)], rows)


def processors_grid(results: Results) -> Grid:
    """A row a class: the share of our speed that narrower vectors keep, and what is left of the ratio to the baseline."""
    found, fits = cases(results, "processors"), groups(cases(results, "fit", "gap"))
    means = {name: {s.solver: s.mean for s in standings(part)} for name, part in fits.items()}
    rows = []
    for group, part in groups(found).items():
        own, *narrow = part[0].rows
        ratio = means.get(group, {}).get(BASELINE)
        cells = []
        for name in narrow:
            pairs = [(case.rows[own], case.rows[name]) for case in part if name in case.rows]
            share = geometric_mean(seconds(wide) / seconds(thin) for wide, thin in pairs)
            cells += [f"{share:.2f}", "-" if ratio is None else mark(share * ratio)]
        rows.append([group, str(len(part)), "-" if ratio is None else times(ratio), *cells])
    heads = [head for name in processors.NARROWER for head in (f"{name}: our speed", "ratio")]
    return Grid(["class of problems", "problems", f"{BASELINE} / ours here", *heads], rows)


# ---- pictures ----------------------------------------------------------------------------------------------------------


class Drawing(NamedTuple):
    """A picture: whose figures it shows, how it is drawn, and the words that stand for it."""

    suite: str
    draw: Callable[[list[Case]], bytes]
    alt: str
    group: str = ""  # the beginning of the groups that it shows


DRAWINGS = {
    "fast-scaling": Drawing("scaling", plots.scaling, "seconds of a fit over the rows, for every solver"),
    "fast-tuning": Drawing("gpu", plots.tuning, "seconds of tuning C, ours beside others"),
    "fast-many": Drawing("many", plots.many, "seconds of 10,000 permutations, ours beside others", "permutation"),
}


def drawn(results: Results, name: str) -> list[Case]:
    """The cases of a picture; none where there are no figures."""
    drawing = DRAWINGS[name]
    return [case for case in cases(results, drawing.suite) if case.group.startswith(drawing.group)]


def picture(results: Results, name: str, folder: str = "") -> str:
    """The line that shows a picture, with a sum of its figures: who changes them has to draw it again."""
    found = drawn(results, name)
    if not found:
        return ""
    figures = [(case.label, solver, seconds(row)) for case in found for solver, row in case.rows.items()]
    total = hashlib.sha256(json.dumps(figures).encode()).hexdigest()[:8]
    return f"![{DRAWINGS[name].alt}]({folder}{name}.png)\n<!-- drawn from {total} -->"


_SCALING = "CPU seconds of one thread at tolerance 1e-3. Whoever takes more than a second sits out larger sizes."
_CLASSES = (
    "Time of a peer divided by ours at equal certified duality gap, geometric mean over the problems of a class. "
    "LIBLINEAR has its own problem, with a feature of ones in place of the intercept, and so have we in its column."
)
_GPU = (
    "Ten folds and a refit. We follow *every* C exactly; the others try 50 values. What is printed is from the paper on "
    "TorchKM. An estimate says what it is from."
)
_BILEVEL = (
    f"Linear machines without an intercept, {bilevel.FOLDS} folds: seconds, error of the folds, error on other rows. "
    "[The papers](#the-protocols) find stationary points of the error of the folds; this is its global minimum."
)
_INTEL = (
    "Whole estimators on all processors, with the parameters of its file. The others stop after 10,000 iterations: a time in "
    "parentheses is that of another answer than ours."
)
_LINEAR = (
    "`LinearSVC`: our time to each gap, and LIBLINEAR's divided by ours. LIBLINEAR has its best choice of solver and "
    "tolerance; a dash: it does not arrive."
)
_PROCESSORS = (
    "Most laptops have no AVX-512. Our fits, compiled for narrower vectors: the share of our speed that remains, and what "
    f"remains of the ratio to {BASELINE}, which keeps its own vectors."
)
_MANY = (
    "10,000 permutations of five folds, beside scikit-learn's function; one certified fit, beside LIBSVM's core alone; "
    "stacks of kernel matrices, many labels, a searchlight, a machine for every query. Of others few fits are timed, and "
    "multiplied. Lesion mapping is beside the printed time of its paper, on several processors."
)
_GAMMA = (
    f"C and gamma by the error of five folds of up to {gamma.ROWS} rows, each time of other ones. Error and log loss are "
    "those of the rows left, and the seconds those of one time over all sets. After ± is the standard error over the sets."
)


class Protocol(NamedTuple):
    """A section of the page: its title, its suite, what to know, its table, its picture."""

    title: str
    suite: str
    text: str
    grid: Callable[[Results], Grid] | None
    picture: str = ""

    def blocks(self, results: Results) -> list[str | Grid]:
        """Words and table; nothing where there are no figures."""
        if not any(row["suite"] == self.suite for row in results.kind("row")):
            return []
        return [self.text, *([self.grid(results)] if self.grid else [])]


def _cases_of(suite: str, grid: Callable[[list[Case]], Grid], mode: str = "tol") -> Callable[[Results], Grid]:
    return lambda results: grid(cases(results, suite, mode))


PROTOCOLS = [
    Protocol("One fit", "scaling", _SCALING, None, "fast-scaling"),
    Protocol("Classes of problems", "fit", _CLASSES, classes_grid),
    Protocol("Tuning C", "gpu", _GPU, _cases_of("gpu", gpu_grid), "fast-tuning"),
    Protocol("Tuning a linear machine", "bilevel", _BILEVEL, _cases_of("bilevel", bilevel_grid)),
    Protocol("Many fits", "many", _MANY, _cases_of("many", many_grid), "fast-many"),
    Protocol("Intel's benchmark", "intel", _INTEL, _cases_of("intel", intel_grid)),
    Protocol("Linear machines, beside LIBLINEAR", "linear", _LINEAR, _cases_of("linear", linear_grid, "gap")),
    Protocol("Other processors", "processors", _PROCESSORS, processors_grid),
    Protocol("Choosing gamma", "gamma", _GAMMA, _cases_of("gamma", gamma_grid)),
]


def page(results: Results) -> str:
    """The generated part of docs/fast.md."""
    share, lost = lost_grid(results)
    said = f"{share} comparisons are lost: somebody else is faster. All of them:"
    parts = ["## What is lost", said, lost.markdown()]
    for each in PROTOCOLS:
        if blocks := each.blocks(results):
            parts += [f"## {each.title}", *([picture(results, each.picture)] if each.picture else [])]
            parts += [block if isinstance(block, str) else block.markdown() for block in blocks]
            parts += [missed(results)] * (each.suite == "fit") + [of_suites(results, each.suite)]
    return "\n\n".join(part for part in [versions(results), *parts] if part)


def sections(results: Results) -> Iterator[Section]:
    """The same for a report, which has the other suites of its own."""
    for each in PROTOCOLS:
        if each.suite not in ("scaling", "fit") and (blocks := each.blocks(results)):
            yield Section(each.title, [*blocks])


def gamma_block(results: Results) -> str:
    """The measured part of docs/tune.md."""
    if not cases(results, "gamma"):
        return "Not measured yet: `python -m bench run gamma`."
    found = cases(results, "gamma")
    return "\n\n".join([_GAMMA, gamma_grid(found).markdown(), gamma_verdict(found), of_suites(results, "gamma")])
