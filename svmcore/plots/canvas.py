"""What pictures share: colours, axes, figures that become files, and points in a plane.

The only importer of matplotlib, and only when something is drawn. Colours are those of Okabe and Ito, which people who
confuse red and green tell apart.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError, MissingExtraError
from svmcore._types import FloatArray

NEGATIVE, POSITIVE = "#0072B2", "#D55E00"
MARGIN, BOUND, OUTSIDE = "#009E73", "#56B4E9", "#8C8C8C"
HELD_OUT, CROSS = "#CC79A7", "#E69F00"
INK, MUTED = "#222222", "#6B6B6B"
_GRID = 220  # cells along an axis of the decision boundary
_DOTS = 3000  # training points drawn
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#B0B0B0",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#ECECEC",
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def matplotlib(module: str = "") -> Any:
    """The package or one of its modules, or the word about what is missing."""
    try:
        import matplotlib as mpl

        return importlib.import_module(f"matplotlib.{module}") if module else mpl
    except ImportError:
        raise MissingExtraError('pictures need matplotlib: pip install "svmcore[plot]"') from None


def styled() -> Any:
    """A context in the style of the house."""
    return matplotlib().rc_context(_STYLE)


def check_file(file: str) -> None:
    """Refuse early what cannot be written at the end: no matplotlib, or a file type that it does not know."""
    known = matplotlib("figure").Figure().canvas.get_supported_filetypes()
    kind = file.rpartition(".")[2].lower() if "." in file else ""
    if kind not in known:
        raise InputError(f"{file!r} is no picture file; end its name in .png, .pdf or .svg")


@contextmanager
def canvas(ax: Any, size: tuple[float, float]) -> Iterator[Any]:
    """The axes to draw on: those given, or new ones in the style of the house."""
    if ax is not None:
        yield ax
        return
    with styled():
        yield matplotlib("pyplot").subplots(figsize=size, layout="constrained")[1]


@contextmanager
def sheet(file: Any, format: str, size: tuple[float, float]) -> Iterator[Any]:  # noqa: A002
    """A figure that is written to a file at the end, without touching pyplot's list of open figures."""
    with styled():
        figure = matplotlib("figure").Figure(figsize=size, layout="constrained")
        yield figure
        figure.savefig(file, dpi=120, format=format)


def legend_above(ax: Any, handles: list[Any], labels: list[str]) -> None:
    """A legend in the line of the title, where it hides nothing."""
    ax.legend(
        handles, labels, loc="lower right", bbox_to_anchor=(1.02, 0.985), ncols=len(labels), handlelength=1.0,
        columnspacing=0.8, handletextpad=0.4,
    )  # fmt: skip


def percent(value: float) -> str:
    """A share in per cent."""
    return f"{100 * value:.3g} %"


def short(value: float) -> str:
    """A number in three digits: 0.0354, 17.7, 1,000."""
    return f"{value:,.0f}" if 100 <= value < 1e6 else f"{value:.3g}"


class Dots(NamedTuple):
    """Points of two features: their groups (name, which of the points), and which of them are support vectors."""

    X: FloatArray
    groups: list[tuple[str, NDArray[np.bool_]]]
    support: NDArray[np.bool_]
    names: Sequence[str] | None


def scatter(ax: Any, dots: Dots, size: float, zorder: int = 1) -> None:
    """Points in the colours of their groups, or a sample of them; support vectors are ringed."""
    shown = np.zeros(len(dots.X), bool)
    shown[np.linspace(0, len(shown) - 1, min(len(shown), _DOTS)).astype(int)] = True
    for (name, group), colour, marker in zip(dots.groups, (NEGATIVE, POSITIVE), "os", strict=False):
        own = np.flatnonzero(group & shown)
        ax.scatter(
            dots.X[own, 0], dots.X[own, 1], s=size, c=colour, marker=marker, linewidths=0.7 * dots.support[own],
            edgecolors=INK, label=name, zorder=zorder, rasterized=own.size > 1000,
        )  # fmt: skip


def draw_plane(ax: Any, dots: Dots, f: Callable[[FloatArray], FloatArray], title: str, margins: bool = True) -> None:
    """A decision function over the plane: its sign, its zero line, its margins (-1 and 1), and points on it."""
    X = dots.X
    low, high = X.min(axis=0), X.max(axis=0)
    half = 0.56 * np.where(high > low, high - low, 1.0)
    square = 0.5 < half[0] / half[1] < 2.0  # comparable scales: draw both the same
    half = np.full(2, half.max()) if square else half
    middle = 0.5 * (low + high)
    x, y = (np.linspace(m - h, m + h, _GRID) for m, h in zip(middle, half, strict=True))
    values = f(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)).reshape(y.size, x.size)
    limit = float(np.abs(values).max()) + 1.0
    ax.contourf(x, y, values, levels=[-limit, 0.0, limit], colors=[NEGATIVE, POSITIVE], alpha=0.10)
    inside = [level for level in (-1.0, 1.0) if margins and values.min() < level < values.max()]
    if inside:
        ax.contour(x, y, values, levels=inside, colors=[MUTED], linewidths=0.7, linestyles="--")
    if values.min() < 0.0 < values.max():
        ax.contour(x, y, values, levels=[0.0], colors=[INK], linewidths=1.4)
    scatter(ax, dots, 16.0 if len(X) <= 800 else 6.0)
    ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    if square:
        ax.set_aspect("equal", anchor="NW")
    ax.grid(False)
    first, second = ("feature 1", "feature 2") if dots.names is None else (str(name)[:30] for name in dots.names)
    notes = ["ringed: support vectors"] * bool(dots.support.any()) + ["dashed: the margin"] * bool(inside)
    ax.set_xlabel(first + (f"   ({'; '.join(notes)})" if notes else ""))
    ax.set_ylabel(second)
    legend_above(ax, *ax.get_legend_handles_labels())
    ax.set_title(title, loc="left")
