"""Data, paths, machines and predictions, as lines for a person and as facts for a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from svmcore.cli.output import Report, interval, number, percent

if TYPE_CHECKING:
    from svmcore.models.loss_curve import LossCurve
    from svmcore.models.step_curve import StepCurve
    from svmcore.path.result import Path


def add_data(report: Report, name: str, X: Any, y: Any, regression: bool = False) -> None:
    """The data."""
    size = {"file": name, "points": X.shape[0], "features": X.shape[1]}
    text = f"{name}: {X.shape[0]:,} points, {X.shape[1]:,} features"
    if y is None:
        report.add("data", text, **size)
        return
    if regression:
        low, high = float(y.min()), float(y.max())
        report.add("data", f"{text}, targets from {low:.6g} to {high:.6g}", **size, target=[low, high])
        return
    classes, counts = (values.tolist() for values in np.unique(y, return_counts=True))
    shown = ", ".join(f"{label} ({count:,})" for label, count in zip(classes[:4], counts[:4], strict=True))
    more = ", ..." if len(classes) > 4 else ""
    report.add("data", f"{text}, classes {shown}{more}", **size, classes=dict(zip(classes, counts, strict=True)))


def add_kernel(report: Report, kernel: Any, standardized: bool, kept: bool = True) -> None:
    """A kernel, those of its parameters that count, and whether features are scaled before it (`kept`: in a file)."""
    from svmcore.kernel.table import name_of, parameters_of

    facts: dict[str, Any] = {"name": name_of(kernel), **parameters_of(kernel)}
    text = ", ".join([name_of(kernel), *(f"{key} {value:.6g}" for key, value in facts.items() if key != "name")])
    scaled = ", of standardised features" if standardized else ""
    scaled += " (kept in the file, predict does the same)" if standardized and kept else ""
    report.add("kernel", text + scaled, **facts, standardized=standardized)


def add_path(report: Report, path: Path) -> None:
    """What a path is, its stored record alone."""
    stats = path.stats
    low, high = sorted(float(path._values[k]) for k in (0, -1))
    early = "" if path.ended == "done" else f"; ended early ({path.ended.replace('_', ' ')})"
    add_kernel(report, path._data.spec.kernel, path.standardized is not None)
    report.add("path", f"every {path.parameter} from {number(low)} to {number(high)}{early}",
               **{f"{path.parameter}_min": low, f"{path.parameter}_max": high}, ended=path.ended)  # fmt: skip
    values = f"{stats['n_distinct']:,} value{'s' if stats['n_distinct'] != 1 else ''} of {path.parameter}"
    report.add(
        "changes",
        f"{stats['n_events']:,} at {values} (points that reach or leave the margin); "
        f"at most {stats['elbow_max']:,} on it at once",
        events=stats["n_events"], values_of_C=stats["n_distinct"], most_on_the_margin=stats["elbow_max"],
    )  # fmt: skip


def bound(gap: float) -> str:
    """What a relative duality gap says."""
    share = 100.0 * max(gap, 0.0)
    return (
        f"at most {share:,.0f} % from the best possible"
        if share > 99.0
        else f"at most {share:.2g} % from the best possible"
    )


def add_certificate(report: Report, found: Any, worst: str = "", **more: Any) -> None:
    """How good an answer is: a machine, or the `worst` of several."""
    report.add(
        "certificate",
        f"the answer is {bound(found.relative_gap)} ({worst}relative duality gap {found.relative_gap:.1e}, "
        f"KKT violation {found.kkt_violation:.1e})",
        relative_gap=found.relative_gap, kkt_violation=found.kkt_violation, **more,
    )  # fmt: skip


def add_solution(report: Report, solution: Any) -> None:
    """What a machine is, or several for several classes."""
    add_kernel(report, solution.kernel, solution.standardized is not None)
    several = hasattr(solution, "machines")
    for name in ("C",) if several else ("C", "epsilon", "nu"):
        if getattr(solution, name) is not None:
            report.tell(name, getattr(solution, name), f"{getattr(solution, name):.6g}")
    worst = ""
    if several:
        way = "every pair of classes (ovo)" if solution.strategy == "ovo" else "every class against the rest (ovr)"
        report.add(
            "machines", f"{len(solution)}, one for {way}", number=len(solution), strategy=solution.strategy,
        )  # fmt: skip
        worst = f"the worst of {len(solution)} machines: "
    support, points = len(solution.support), solution.n_points
    if solution.status.name == "UNKNOWN":
        report.add("vectors", f"{support:,}", support=support)
    else:
        what = "them" if several else "the machine"
        report.add("vectors", f"{support:,} of {points:,} points support {what}", support=support, points=points)
        if not several:
            value = solution.primal_objective
            report.tell("objective", value, f"{value:.8g} (half of |w|^2, plus C times losses)")
        add_certificate(report, solution, worst)
    report.add("status", f"{solution.status}", name=solution.status.name.lower(), converged=solution.converged)


def add_least(report: Report, name: str, curve: StepCurve | LossCurve, start: float, note: str) -> None:
    """Where an error curve is least, in a path that begins at `start`."""
    low, high = curve.best_interval
    if high > start > low:
        low = start
    report.add(
        name, f"least error {percent(curve.minimum)} for {interval(low, high)} ({note})",
        error=curve.minimum, C_from=low, C_to=high, best_C=curve.best_C,
    )  # fmt: skip


# ---- how good predictions are ----------------------------------------------------------------------------------------


def add_agreement(report: Report, machine: Any, found: Any, y: Any, where: str) -> None:
    """How good predictions are on labelled data; of one class the share outside."""
    if getattr(machine, "kind", "") == "one class":
        share = float((found < 0).mean())
        report.tell("outside", share, f"{percent(share)} {where}")
    elif machine.classes is None:
        add_regressed(report, found, y, where)
    else:
        add_classified(report, found, y, machine.classes, where)


def add_classified(report: Report, found: Any, y: Any, classes: Any, where: str) -> None:
    """The share of wrong classes; beside it what accuracy hides where one class is rare."""
    wrong = float((found != y).mean())
    counts = {
        str(true): {str(named): int(((y == true) & (found == named)).sum()) for named in classes.tolist()}
        for true in classes.tolist()
    }
    present = [true for true in classes.tolist() if (y == true).any()]
    balanced = float(np.mean([(found[y == true] != true).mean() for true in present]))
    report.add(
        "wrong", f"{percent(wrong)} {where}; mean over the classes {percent(balanced)}", "error", share=wrong,
        balanced=balanced, wrong=int((found != y).sum()), points=int(y.size),
    )  # fmt: skip
    cells = (
        f"{true}: " + ", ".join(f"{count:,} as {named}" for named, count in row.items()) for true, row in counts.items()
    )
    report.add("classified", "; ".join(cells), **counts)


def add_regressed(report: Report, found: Any, y: Any, where: str, into: str = "error") -> None:
    """Root mean square error and the share of variance explained."""
    rmse = float(np.sqrt(np.mean((found - y) ** 2)))
    spread = float(np.mean((y - y.mean()) ** 2))
    r2 = 1.0 - rmse**2 / spread if spread > 0 else float("nan")
    shown = f", R2 {r2:.4g}" if spread > 0 else ""
    report.add("off by", f"{rmse:.4g} {where} (root mean square){shown}", into, rmse=rmse, r2=r2, points=int(y.size))
