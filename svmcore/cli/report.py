"""Data, paths and machines in lines of text."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from svmcore.cli.output import number

if TYPE_CHECKING:
    from svmcore.path_result import Path, StepCurve
    from svmcore.solution import Solution


def described(args: argparse.Namespace, X: Any, y: Any) -> str:
    """The data in one line."""
    import numpy as np

    classes, counts = np.unique(y, return_counts=True)
    shown = ", ".join(
        f"{name} ({count:,})" for name, count in zip(classes[:4].tolist(), counts[:4].tolist(), strict=True)
    )
    more = ", ..." if classes.size > 4 else ""
    return f"{args.data}: {X.shape[0]:,} points, {X.shape[1]:,} features, classes {shown}{more}"


def kernel_text(kernel: Any) -> str:
    """A kernel and those of its parameters that count."""
    from svmcore._types import KernelKind

    kind = KernelKind(kernel.kind)
    name = kind.name.lower()
    parts = [name]
    if name in ("rbf", "poly", "sigmoid", "laplacian"):
        parts.append(f"gamma {kernel.gamma:.6g}")
    if name == "poly":
        parts.append(f"degree {kernel.degree}")
    if name in ("poly", "sigmoid"):
        parts.append(f"coef0 {kernel.coef0:g}")
    return ", ".join(parts)


def best_range(curve: StepCurve, start: float) -> tuple[float, float]:
    """The ends of the interval of C around the best one, in a path that begins at `start`."""
    import numpy as np

    edges = np.concatenate([[curve.C_min], curve.breakpoints, [curve.C_max]])
    k = int(np.clip(np.searchsorted(edges, curve.best_C, side="right") - 1, 0, edges.size - 2))
    return max(start, float(edges[k])), float(edges[k + 1])


def path_lines(path: Path) -> list[tuple[str, str]]:
    """What a path is, its stored record alone."""
    stats = path.stats
    Cs, lambdas = path.Cs[[0, -1]], path.lambdas[[0, -1]]
    inverse = f"lambda = 1/C from {lambdas[0]:.3g} to {lambdas[1]:.3g}"
    early = "" if path.ended == "done" else f"; ended early ({path.ended.replace('_', ' ')})"
    values = f"{stats['n_distinct']:,} value{'s' if stats['n_distinct'] != 1 else ''} of C"
    return [
        ("kernel", kernel_text(path._data.spec.kernel)),
        ("path", f"every C from {number(Cs[0])} to {number(Cs[1])}, {inverse}{early}"),
        ("events", f"{stats['n_events']:,} at {values}; at most {stats['elbow_max']:,} points on the margin"),
    ]  # fmt: skip


def solution_lines(solution: Solution) -> list[tuple[str, str]]:
    """What a machine is."""
    certificate = f"relative duality gap {solution.relative_gap:.1e}, KKT violation {solution.kkt_violation:.1e}"
    return [
        ("kernel", kernel_text(solution.kernel)),
        ("vectors", f"{len(solution.support):,} of {len(solution.alpha):,} points support the machine"),
        ("objective", f"{solution.objective:.8g} (dual, minimised)"),
        ("certificate", certificate),
        ("status", f"{solution.status}"),
    ]
