"""The pictures of the report, as PNG bytes. The only file here that imports matplotlib."""

from __future__ import annotations

import io
import re
from typing import Any

from bench.peers import BASELINE
from bench.report.summary import OURS, Case, exponent, groups, profile, solvers, standings
from bench.results import geometric_mean, seconds

_COLOURS = ["#d1495b", "#30638e", "#00798c", "#66a5ad", "#edae49", "#8d6a9f", "#7a7a7a", "#4b4b4b"]
_OURS_COLOUR = "#d1495b"
_OURS_PALE = "#e8a5ae"


def _style() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
            "grid.alpha": 0.25, "figure.dpi": 130, "axes.axisbelow": True, "legend.frameon": False,
        }
    )  # fmt: skip
    return plt


def _colour(name: str, names: list[str]) -> str:
    if name.startswith(OURS):
        return _OURS_COLOUR if name == OURS else _OURS_PALE
    others = [other for other in names if not other.startswith(OURS)]
    return _COLOURS[1 + others.index(name) % (len(_COLOURS) - 1)]


def _plain(axis: Any) -> None:
    """Factors are read as 2 and 10, not as powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _png(plt: Any, figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    plt.close(figure)
    return buffer.getvalue()


def group_bars(found: list[Case]) -> bytes:
    """The answer in one picture: per class of problems, how many times as long as ours the peers take."""
    plt = _style()
    by_group = {name: part for name, part in groups(found).items() if any(s.ratios for s in standings(part))}
    names = [name for name in solvers(found) if name != OURS]
    figure, axis = plt.subplots(figsize=(9, 0.9 + 0.23 * sum(1 + len(standings(part)) for part in by_group.values())))
    position, ticks = 0.0, []
    for group, part in by_group.items():
        start = position
        for standing in standings(part):
            if not standing.ratios:
                continue
            colour = _colour(standing.solver, [OURS, *names])
            axis.barh(position, standing.mean - 1.0, left=1.0, height=0.85, color=colour)
            axis.plot([standing.worst, standing.best], [position, position], color="black", lw=1)
            axis.annotate(
                f"{standing.mean:.1f}x  {standing.solver}", (max(standing.best, 1.0), position), xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=8, color="#333333",
            )  # fmt: skip
            position -= 1.0
        ticks.append(((start + position + 1) / 2, group))
        position -= 0.8
    axis.axvline(1.0, color=_OURS_COLOUR, lw=2)
    axis.annotate("svmcore = 1", (1.0, 1.0), xytext=(4, 2), textcoords="offset points", color=_OURS_COLOUR, fontsize=9)
    axis.set_xscale("log")
    axis.set_yticks([tick for tick, _ in ticks], [label for _, label in ticks])
    axis.grid(visible=False, axis="y")
    axis.set_xlabel("time of the peer / time of svmcore at equal certified gap (right of the line: svmcore is faster)")
    low, high = axis.get_xlim()
    axis.set_xlim(min(low, 0.5), high * 2.5)
    _plain(axis)
    return _png(plt, figure)


def ratio_bars(found: list[Case], peer: str) -> bytes:
    """Every case against one peer, with the quartiles of the repeats."""
    plt = _style()
    kept = [(case, ratio) for case in found if (ratio := case.ratio(peer)) is not None]
    figure, axis = plt.subplots(figsize=(9, 0.8 + 0.26 * max(len(kept), 1)))
    for row, (case, ratio) in enumerate(kept):
        low, high = case.band(peer)
        axis.barh(-row, ratio - 1.0, left=1.0, color=_OURS_COLOUR if ratio < 1 else "#30638e", height=0.7)
        axis.plot([low, high], [-row, -row], color="black", lw=1.2)
        axis.annotate(
            f"{ratio:.1f}x",
            (max(ratio, high, 1.0), -row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axis.axvline(1.0, color="black", lw=1)
    axis.set_xscale("log")
    axis.set_yticks([-row for row in range(len(kept))], [case.label for case, _ in kept], fontsize=8)
    axis.grid(visible=False, axis="y")
    _plain(axis)
    axis.set_xlabel(f"time of {peer} / time of svmcore; line: quartiles of neighbouring repeats")
    return _png(plt, figure)


def performance_profile(found: list[Case]) -> bytes:
    """Share of the problems solved within a factor of the fastest."""
    plt = _style()
    figure, axis = plt.subplots(figsize=(7, 4))
    curves = profile(found)
    largest = max((factors[-1] for factors, _ in curves.values() if factors), default=1.0) * 1.2
    for name, (factors, share) in curves.items():
        if factors:
            axis.step(
                [1.0, *factors, largest], [0.0 if factors[0] > 1 else share[0], *share, share[-1]], where="post",
                label=name, color=_colour(name, list(curves)), lw=2.5 if name == OURS else 1.5,
            )  # fmt: skip
    axis.set_xscale("log")
    axis.set_ylim(0, 1.02)
    _plain(axis)
    axis.set_xlabel("factor of the fastest solver's time")
    axis.set_ylabel("share of the problems")
    axis.legend(fontsize=8, loc="lower right")
    return _png(plt, figure)


def scaling(found: list[Case]) -> bytes:
    """Time against n, one panel a class, and how much faster than the baseline at the largest size of both."""
    plt = _style()
    by_group, names = groups(found), solvers(found)
    figure, axes = plt.subplots(1, len(by_group), figsize=(4.4 * len(by_group), 4.4), squeeze=False, sharey=True)
    for axis, (group, part) in zip(axes[0], by_group.items(), strict=True):
        for name in solvers(part):
            points = sorted((case.problem["n"], seconds(case.rows[name])) for case in part if name in case.rows)
            sizes, spent = [n for n, _ in points], [t for _, t in points]
            style = {"lw": 3.5, "ms": 7, "zorder": 3} if name == OURS else {"lw": 1.8, "ms": 4}
            slope = f"n$^{{{exponent(sizes, spent):.1f}}}$" if name == OURS and len(sizes) > 3 else ""
            axis.plot(sizes, spent, "o-", color=_colour(name, names), label=name, **style)
            axis.annotate(
                slope, (sizes[-1], spent[-1]), xytext=(-4, -14), textcoords="offset points", color=_OURS_COLOUR
            )
        both = [case for case in part if case.ratio(BASELINE) is not None]
        if both:
            last = max(both, key=lambda case: int(case.problem["n"]))
            n, ours, theirs = last.problem["n"], seconds(last.rows[OURS]), seconds(last.rows[BASELINE])
            axis.annotate("", (n, ours), (n, theirs), arrowprops={"arrowstyle": "<->", "color": "#333333"})
            axis.annotate(
                f"{theirs / ours:.0f}x", (n, (theirs * ours) ** 0.5), xytext=(-5, 0), textcoords="offset points", ha="right",
                va="center", fontsize=15, fontweight="bold", bbox={"fc": "white", "ec": "none", "pad": 1.0, "alpha": 0.8},
            )  # fmt: skip
        sizes = sorted({case.problem["n"] for case in part})
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(sizes, [f"{n:,}" for n in sizes])
        axis.set_title(group)
        axis.set_xlabel("rows")
    for axis in axes[0]:
        _times(axis.yaxis, *axes[0][0].get_ylim())
    axes[0][0].set_ylabel("one fit")
    lines, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="upper center", ncols=len(labels), bbox_to_anchor=(0.5, 0.02), fontsize=9)
    return _png(plt, figure)


_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TICKS = [scale * k for scale in (1e-6, 1e-3) for k in (1, 10, 100)] + [
    1.0,
    10.0,
    60.0,
    600.0,
    3600.0,
    36000.0,
    864000.0,
]


def _times(axis: Any, low: float, high: float) -> None:
    """Seconds as a person reads them, at round values."""
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

    ticks = [tick for tick in _TICKS if low <= tick <= high]
    named = [
        max((unit for unit in _UNITS.items() if unit[1] <= 1.001 * tick), key=lambda unit: unit[1]) for tick in ticks
    ]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_ticklabels([f"{tick / size:.0f} {unit}" for tick, (unit, size) in zip(ticks, named, strict=True)])
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


_HOW = {"printed": "#c9ced6", "this machine": "#30638e"}


def tuning(found: list[Case]) -> bytes:
    """Who takes how long to tune, one panel a set: printed figures are pale, estimates hatched."""
    from bench.report.sections import duration, tuned_set

    plt = _style()
    figure, axes = plt.subplots(1, len(found), figsize=(3.8 * len(found), 3.6), squeeze=False, sharey=True)
    names = list(dict.fromkeys(name for case in found for name in case.rows))
    longest = max(seconds(row) for case in found for row in case.rows.values())
    for axis, case in zip(axes[0], found, strict=True):
        for place, name in enumerate(names):
            if name not in case.rows:
                continue
            spent = seconds(case.rows[name])
            colour = next((shade for how, shade in _HOW.items() if how in name), "#30638e")
            style = {"hatch": "///", "edgecolor": "white"} if "estimated" in name or "at least" in name else {}
            axis.barh(-place, spent, color=_OURS_COLOUR if name.startswith(OURS) else colour, height=0.72, **style)
            least = "> " if "at least" in name else ""
            axis.annotate(
                least + duration(spent), (spent, -place), xytext=(4, 0), textcoords="offset points", va="center"
            )
        axis.set_xscale("log")
        axis.set_xlim(1.0, 8.0 * longest)
        _times(axis.xaxis, 1.0, 8.0 * longest)
        axis.set_title(tuned_set(case))
        axis.grid(visible=False, axis="y")
    labels = [re.sub(r" \((printed)?(?:, on an (L40S))?.*\)", _where, name) for name in names]
    axes[0][0].set_yticks([-place for place in range(len(names))], labels)
    figure.suptitle("Tuning C: ten folds, a refit. Ours: every C. Others: 50 values", y=1.02)
    return _png(plt, figure)


def _where(match: re.Match[str]) -> str:
    """In a few words where a figure is from."""
    guessed = " (estimated)" if "estimated" in match[0] or "at least" in match[0] else ""
    return ", GPU (printed)" if match[2] else " (printed)" if match[1] else f", this CPU{guessed}"


def many(found: list[Case]) -> bytes:
    """Seconds of many fits: ours and others' beside each other, and how many times as long they take."""
    plt = _style()
    names = solvers(found)
    figure, axis = plt.subplots(figsize=(8, 4))
    width = 0.8 / len(names)
    for place, case in enumerate(found):
        for k, name in enumerate(names):
            if name in case.rows:
                spent = seconds(case.rows[name])
                x = place + (k - 0.5 * (len(names) - 1)) * width
                axis.bar(x, spent, width=0.94 * width, color=_colour(name, names), label=name if place == 0 else None)
                ratio = "" if name == OURS else f"{spent / seconds(case.rows[OURS]):.0f}x"
                axis.annotate(
                    ratio,
                    (x, spent),
                    xytext=(0, 3),
                    textcoords="offset points",
                    ha="center",
                    fontsize=13,
                    weight="bold",
                )
    axis.set_yscale("log")
    axis.set_xticks(range(len(found)), [f"{case.problem['n']} rows" for case in found])
    axis.grid(visible=False, axis="x")
    axis.set_title("A permutation test: 10,000 permutations x 5 folds, one thread")
    axis.legend(loc="upper left")
    axis.margins(y=0.15)
    _times(axis.yaxis, *axis.get_ylim())
    return _png(plt, figure)


RINGED = "support vectors"
"""A series of this name is drawn as rings around the points of others."""
PRINTED = " printed"
"""The series of such an end are drawn as points, in the colour of what they are the print of."""
TEST = "test, "
"""Points of such a name are hollow, in the colour of the training points of the same label."""


def _series(axis: Any, series: dict[str, Any], marks: bool) -> None:
    """Lines or points. Of two equal lines the second is dashed, so that both are seen."""
    colours: dict[str, str] = {}
    lines: list[Any] = []
    for name, (x, y) in series.items():
        what = name.removesuffix(PRINTED)
        what = what.split(", ")[-1] if marks else what
        colour = colours.setdefault(what, _COLOURS[len(colours) % len(_COLOURS)])
        style: dict[str, Any] = {"lw": 1.5, "color": colour, "ls": "--" if list(y) in lines else "-"}
        if name == RINGED:
            style = {"ls": "", "marker": "o", "ms": 6, "mfc": "none", "mew": 0.7, "color": "black"}
        elif marks:
            hollow = {"mfc": "none", "mew": 0.8} if name.startswith(TEST) else {"mew": 0.0}
            style = {"ls": "", "marker": "o", "ms": 3.5, "color": colour, **hollow}
        elif name.endswith(PRINTED):
            style = {"ls": "", "marker": "o", "ms": 4, "color": colour, "mfc": "white", "zorder": 3}
        else:
            lines.append(list(y))
        axis.plot(x, y, label=name, **style)


def figure(drawn: dict[str, Any]) -> bytes:
    """A figure of a table (`bench.tables.base.Figure`, as a mapping)."""
    plt = _style()
    picture, axis = plt.subplots(figsize=(6.6, 5.0) if drawn["marks"] else (7, 3.4))
    if drawn["field"]:
        x, y, values = drawn["field"]
        largest = 1.0 + max(abs(value) for row in values for value in row)
        axis.contourf(x, y, values, levels=[-largest, 0.0, largest], colors=[_COLOURS[1], _COLOURS[0]], alpha=0.15)
        axis.contour(x, y, values, levels=[-1.0, 0.0, 1.0], colors="black", linewidths=[0.6, 1.4, 0.6], linestyles="-")
    _series(axis, drawn["series"], drawn["marks"])
    if "x" in drawn["log"]:
        axis.set_xscale("log")
    if "y" in drawn["log"]:
        axis.set_yscale("log")
    axis.set_title(drawn["title"], fontsize=9)
    axis.set_xlabel(drawn["x"])
    axis.set_ylabel(drawn["y"])
    if drawn["marks"]:  # points are everywhere: the legend stands beside them
        axis.set_aspect("equal")
        axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    elif len(drawn["series"]) > 1:
        axis.legend(fontsize=8)
    return _png(plt, picture)


def limit_bars(found: list[Case]) -> bytes:
    """Our time in units of one |SV| x n kernel block, by class."""
    plt = _style()
    figure, axis = plt.subplots(figsize=(9, 3.2))
    labels, values = [], []
    for group, part in groups(found).items():
        ratios = [
            seconds(case.ours) / case.ours["limit"]["kernel_block"]
            for case in part
            if case.ours and case.ours.get("limit")
        ]
        if ratios:
            labels.append(group)
            values.append((geometric_mean(ratios), min(ratios), max(ratios)))
    for row, (mean, low, high) in enumerate(values):
        axis.barh(-row, mean - 1.0, left=1.0, color=_OURS_COLOUR, height=0.7)
        axis.plot([low, high], [-row, -row], color="black", lw=1.2)
        axis.annotate(f"{mean:.1f}x", (high, -row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axis.axvline(1.0, color="black", lw=1)
    axis.set_xscale("log")
    axis.set_yticks([-row for row in range(len(labels))], labels)
    axis.grid(visible=False, axis="y")
    _plain(axis)
    axis.set_xlabel("our time / time of one |SV| x n kernel block by our own kernel (1 = the limit)")
    return _png(plt, figure)
