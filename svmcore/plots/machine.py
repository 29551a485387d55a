"""Pictures of one machine: boundary, margins and support vectors over two features; a function over one."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore._errors import InputError
from svmcore._types import FloatArray, KernelKind
from svmcore.kernel.points import is_sparse
from svmcore.models.solution import Solution
from svmcore.plots.canvas import INK, MARGIN, MUTED, Dots, canvas, draw_plane, legend_above, scatter, short
from svmcore.problem import border, labelling

_CELLS = 600  # values of a function over one feature


def plot_machine(machine: Solution, X: Any = None, y: Any = None, *, ax: Any = None) -> Any:
    """Draw a machine over its features; see `Solution.plot`."""
    width = machine.n_features
    most = 1 if machine.kind == "regression" else 2
    if machine.kernel.kind == KernelKind.PRECOMPUTED:
        raise InputError("a machine of a precomputed kernel knows no features, and cannot be drawn")
    if width > most:
        few = "one feature" if most == 1 else "one or two features"
        raise InputError(f"a {machine.kind} can be drawn over {few}; this machine has {width}")
    points, labels, support = _points(machine, X, y)
    with canvas(ax, (5.2, 5.2) if width == 2 else (6.4, 4.0)) as ax:
        if width == 2:
            margins = machine.kind == "classification"
            dots = Dots(points, _groups(machine, labels), support, machine.feature_names)
            draw_plane(ax, dots, machine.decision_function, _title(machine), margins)
        else:
            _draw_line(machine, ax, points[:, 0], labels, support)
    return ax


def _points(machine: Solution, X: Any, y: Any) -> tuple[FloatArray, Any, Any]:
    """The points to show, raw and dense; their labels, or None; which of them are support vectors.

    Those that are given; else those of training, where the machine has them; else the support vectors.
    """
    training = machine.training
    if X is not None:
        X = border.features(X)
        X = X.toarray() if is_sparse(X) else X
        own = machine.columns.apply(X)  # the width is right, or the message says so
        labels = None if y is None else labelling.label_array(y).reshape(-1)
        if labels is not None and len(labels) != len(X):
            raise InputError(f"y holds {len(labels)} labels for {len(X)} points; give one for each")
        vectors = machine.support_vectors if training is None else training.X[machine.support]
        vectors = vectors.toarray() if is_sparse(vectors) else vectors
        known = {row.tobytes() for row in np.asarray(vectors, dtype=np.float64) + 0.0}  # -0.0 is 0.0
        support = np.array([row.tobytes() in known for row in np.asarray(own, dtype=np.float64) + 0.0], dtype=bool)
        return X, labels, support
    if y is not None:
        raise InputError("y belongs to other points; give X as well")
    scaled = machine.support_vectors if training is None else training.X
    raw = machine.columns.raw(scaled)
    raw = raw.toarray() if is_sparse(raw) else np.asarray(raw, dtype=np.float64)
    support = np.ones(len(raw), bool)
    if training is None:
        classes = machine.classes if machine.kind == "classification" else None
        return raw, None if classes is None else classes[(machine.dual_coef > 0).astype(int)], support
    support[:] = False
    support[machine.support] = True
    return raw, None if training.y is None else labelling.label_array(training.y).reshape(-1), support


def _groups(machine: Solution, labels: Any) -> list[tuple[str, Any]]:
    """The points of each class; of a machine that knows none of them, all."""
    if labels is None or machine.classes is None or machine.kind != "classification":
        return [("points", np.ones(1, bool))]
    return [(f"class {str(name)[:20]}", labels == name) for name in machine.classes.tolist()]


def _title(machine: Solution) -> str:
    terms = [machine.kernel_name]
    terms += [
        f"{name} = {short(value)}" for name in ("gamma", "C", "nu") if (value := getattr(machine, name)) is not None
    ]
    return ", ".join(terms)


def _draw_line(machine: Solution, ax: Any, x: FloatArray, labels: Any, support: Any) -> None:
    """f over one feature: a regression with its tube and targets, or a decision function with its margins."""
    low, high = float(x.min()), float(x.max())
    room = 0.04 * (high - low) or 1.0
    at = np.linspace(low - room, high + room, _CELLS)
    f = machine.decision_function(at[:, None])
    regression = machine.kind == "regression"
    ax.plot(at, f, color=INK, linewidth=1.6, zorder=3)
    if regression and machine.epsilon:
        ax.fill_between(at, f - machine.epsilon, f + machine.epsilon, color=MARGIN, alpha=0.12, linewidth=0)
    if not regression:
        ax.axhline(0.0, color=INK, linewidth=0.8)
        for level in (-1.0, 1.0) if machine.kind == "classification" else ():
            ax.axhline(level, color=MUTED, linewidth=0.7, linestyle="--")
    heights = labels if regression and labels is not None else machine.decision_function(x[:, None])
    scatter(ax, Dots(np.stack([x, heights], axis=1), _groups(machine, labels), support, None), 16.0, zorder=4)
    ax.set_xlim(at[0], at[-1])
    name = "feature 1" if machine.feature_names is None else machine.feature_names[0][:30]
    notes = ["ringed: support vectors"] * bool(support.any())
    notes += ["green: the tube"] * bool(regression and machine.epsilon)
    notes += ["dashed: the margin"] * (machine.kind == "classification")
    ax.set_xlabel(name + (f"   ({'; '.join(notes)})" if notes else ""))
    ax.set_ylabel("target" if regression else "f(x)")
    ax.set_title(_title(machine), loc="left")
    if not regression:
        legend_above(ax, *ax.get_legend_handles_labels())
