"""Pictures of results; the only importer of matplotlib. Every function takes a result and returns Axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore import _check
from svmcore._errors import MissingExtraError

POSITIVE, NEGATIVE, INK, SOFT, ACCENT = "#c8553d", "#2a6f97", "#22303c", "#9aa7b1", "#e0a030"
WHAT = ("alphas", "counts", "objective", "error", "all")


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtraError('plots need matplotlib: pip install "svmcore[plot]"') from None
    return plt


def _dress(ax: Any, title: str, ylabel: str) -> Any:
    ax.set_xscale("log")
    ax.set_xlabel("C = 1 / lambda", color=INK)
    ax.set_ylabel(ylabel, color=INK)
    ax.set_title(title, loc="left", fontsize=10.5, color=INK, fontweight="bold")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(SOFT)
    ax.tick_params(colors=INK, labelsize=8.5)
    ax.grid(True, axis="y", color="#e8ecef", linewidth=0.8)
    ax.set_axisbelow(True)
    return ax


def _values(path: Any, most: int = 500) -> Any:
    """Values of C to draw at: all breakpoints, or an even choice in log C where there are more."""
    low, high = float(path.Cs[0]), float(path.Cs[-1])
    if path.Cs.size <= most:
        return np.unique(np.concatenate([path.Cs, np.geomspace(low, high, most // 2)]))
    return np.geomspace(low, high, most)


def plot_path(path: Any, what: str = "alphas", *, ax: Any = None, X: Any = None, y: Any = None) -> Any:
    """Draw one view of a path over log C, or "all" of them as four panels.

    X, y : for "error": a second, held-out set to draw beside the training error.
    """
    plt = _pyplot()
    _check.choice("what", what, WHAT)
    if what == "all":
        _, axes = plt.subplots(2, 2, figsize=(10.5, 7.0), layout="constrained", sharex=True)
        for each, name in zip(axes.flat, WHAT, strict=False):
            plot_path(path, name, ax=each, X=X, y=y)
        for each in axes[0]:
            each.set_xlabel("")
        return axes
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    draw = {"alphas": _alphas, "counts": _counts, "objective": _objective}
    if what == "error":
        return _error(path, ax, X, y)
    return draw[what](path, ax)


def _alphas(path: Any, ax: Any) -> Any:
    """alpha / C of every point that is ever on the margin: where in its box it is."""
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    C = _values(path)
    share = path.alpha(C) / C[:, None]
    weights = np.where(path._data.weights > 0, path._data.weights, 1.0)
    share /= weights
    moving = np.flatnonzero(np.ptp(share, axis=0) > 1e-9)
    n_moving = max(1, moving.size)
    opacity = float(np.clip(12.0 / n_moving**0.75, 0.06, 0.85))
    for sign, colour in ((1.0, POSITIVE), (-1.0, NEGATIVE)):
        mine = moving[path._data.signs[moving] == sign]
        lines = [np.column_stack([C, share[:, i]]) for i in mine]
        ax.add_collection(LineCollection(lines, colors=colour, linewidths=0.9, alpha=opacity))
    ax.set_xlim(C[0], C[-1])
    ax.set_ylim(-0.03, 1.03)
    names = [str(name) for name in path._data.classes]
    handles = [Line2D([], [], color=POSITIVE, label=names[1]), Line2D([], [], color=NEGATIVE, label=names[0])]
    ax.legend(
        handles=handles,
        framealpha=0.9,
        edgecolor="none",
        fontsize=8.5,
        loc="upper right",
        title="class",
        title_fontsize=8.5,
    )
    return _dress(ax, f"Dual variables ({moving.size} points move)", "alpha / C")


def _counts(path: Any, ax: Any) -> Any:
    counts = path.support_counts()
    C = 1.0 / counts["lambda"]
    for name, colour, label in (
        ("L", NEGATIVE, "inside the margin (alpha = C)"),
        ("E", POSITIVE, "on the margin"),
        ("R", SOFT, "outside (alpha = 0)"),
    ):
        ax.step(C, counts[name], where="post", color=colour, linewidth=1.6, label=label)
    ax.set_xlim(C[0], C[-1])
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False, fontsize=8.5, loc="best")
    return _dress(ax, f"Where the points are ({path.stats['n_events']} events)", "points")


def _objective(path: Any, ax: Any) -> Any:
    C = _values(path)
    value = -path.objective(C)
    ax.plot(C, value, color=INK, linewidth=1.8)
    ax.set_yscale("log")
    ax.set_xlim(C[0], C[-1])
    return _dress(ax, "Optimal objective", "primal = dual objective")


def _stairs(ax: Any, curve: Any, colour: str, label: str) -> None:
    edges = np.concatenate([[curve.C_min], curve.breakpoints, [curve.C_max]])
    ax.stairs(100.0 * curve.values, edges, baseline=None, color=colour, linewidth=1.6, label=label)


def _error(path: Any, ax: Any, X: Any, y: Any) -> Any:
    train = path.error_curve()
    _stairs(ax, train, NEGATIVE, "training set")
    title = "Exact error"
    if X is not None:
        held = path.error_curve(X, y)
        _stairs(ax, held, POSITIVE, "held-out set")
        best = held.best_C
        ax.axvline(best, color=ACCENT, linewidth=1.2, linestyle=(0, (4, 3)))
        ax.annotate(
            f"C = {best:.3g}: {100 * held.minimum:.2f} %", (best, ax.get_ylim()[1]), xytext=(5, -10),
            textcoords="offset points", fontsize=8.5, color=INK,
        )  # fmt: skip
        title = f"Exact error ({train.breakpoints.size + held.breakpoints.size} steps)"
    ax.legend(frameon=False, fontsize=8.5, loc="best")
    ax.set_xlim(float(path.Cs[0]), float(path.Cs[-1]))
    ax.set_ylim(bottom=0)
    return _dress(ax, title, "error (%)")


def plot_plane(path: Any, X: Any, y: Any, C: float, *, ax: Any = None, resolution: int = 160) -> Any:
    """Decision values of the machine at C over the plane of two features, with margin and points."""
    plt = _pyplot()
    if ax is None:
        _, ax = plt.subplots(figsize=(5.2, 5.0), layout="constrained")
    X = np.asarray(X, dtype=np.float64)
    low, high = X.min(axis=0), X.max(axis=0)
    pad = 0.06 * (high - low)
    grid = [np.linspace(low[k] - pad[k], high[k] + pad[k], resolution) for k in range(2)]
    A, B = np.meshgrid(*grid)
    F = path.decision_function(np.column_stack([A.ravel(), B.ravel()]), C).reshape(A.shape)
    F = np.clip(F, -1.5, 1.5)
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("two classes", ["#a9cbe0", "#ffffff", "#f0c4b8"])
    ax.contourf(A, B, F, levels=np.linspace(-1.5, 1.5, 25), cmap=shades)
    ax.contour(A, B, F, levels=[-1.0, 0.0, 1.0], colors=INK, linewidths=[0.6, 1.5, 0.6], linestyles=["--", "-", "--"])
    on_margin = (path.alpha(C) > 0) & (path.alpha(C) < C)
    for label, colour in zip(path._data.classes, (NEGATIVE, POSITIVE), strict=True):
        mine = np.asarray(y) == label
        ax.scatter(X[mine, 0], X[mine, 1], s=13, color=colour, edgecolor="white", linewidth=0.4, zorder=3)
    if on_margin.size == X.shape[0]:
        ax.scatter(X[on_margin, 0], X[on_margin, 1], s=42, facecolor="none", edgecolor=INK, linewidth=0.8, zorder=4)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_color(SOFT)
    ax.set_title(f"The machine at C = {C:.3g}", loc="left", fontsize=10.5, color=INK, fontweight="bold")
    return ax


def plot_demo(path: Any, X: Any, y: Any, X_test: Any, y_test: Any) -> Any:
    """The demo's picture: the machine of smallest held-out error, and how one gets there."""
    plt = _pyplot()
    figure, axes = plt.subplot_mosaic(
        [["plane", "error"], ["plane", "alphas"]], figsize=(11.0, 5.8), layout="constrained", width_ratios=[1.05, 1.0]
    )
    best = path.error_curve(X_test, y_test).best_C
    plot_plane(path, X, y, best, ax=axes["plane"])
    plot_path(path, "error", ax=axes["error"], X=X_test, y=y_test)
    axes["error"].set_xlabel("")
    plot_path(path, "alphas", ax=axes["alphas"])
    axes["alphas"].axvline(best, color=ACCENT, linewidth=1.2, linestyle=(0, (4, 3)))
    figure.suptitle("Every C at once: two noisy spirals, rbf kernel", x=0.012, ha="left", fontsize=13, color=INK)
    return axes


def save(axes: Any, file: Any) -> None:
    """Write the figure that holds `axes` to a file and close it."""
    plt = _pyplot()
    one = axes
    if isinstance(axes, dict):
        one = next(iter(axes.values()))
    elif isinstance(axes, np.ndarray):
        one = axes.flat[0]
    one.figure.savefig(file, dpi=150, facecolor="white")
    plt.close(one.figure)
