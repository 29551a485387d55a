"""Pictures of a path: dual variables, sets, objective and error over C, and the decision boundary of two features.

A long path is drawn at `_POINTS` values of C and many points as a sample of them; what is many is rasterised, so that
vector files stay small.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from svmcore._errors import InputError
from svmcore._types import FloatArray, KernelKind
from svmcore.base.door import entered
from svmcore.kernel.points import is_sparse
from svmcore.models.loss_curve import LossCurve
from svmcore.path.result import Path, StepCurve
from svmcore.plots.canvas import (
    BOUND,
    CROSS,
    HELD_OUT,
    INK,
    MARGIN,
    MUTED,
    NEGATIVE,
    OUTSIDE,
    POSITIVE,
    Dots,
    canvas,
    draw_plane,
    legend_above,
    matplotlib,
    percent,
    sheet,
    short,
    styled,
)
from svmcore.problem import border

_POINTS = 400  # values of C at which curves are drawn
_LINES = 150  # dual variables drawn
_HIGHLIGHTS = 3  # so many points of each class are highlighted
_AFTER = 4.0  # times the last event's C is where the picture ends
_EXACT_WORK = 2e10  # rows times breakpoints up to which an error curve is worked out exactly


class ErrorCurves(NamedTuple):
    """Error over C: exact step functions, for the training set and, where there are such, other data and folds."""

    training: StepCurve | LossCurve
    test: StepCurve | LossCurve | None = None
    cross_validated: StepCurve | LossCurve | None = None

    @property
    def best(self) -> StepCurve | LossCurve | None:
        """The curve by which to choose C. The training error is none: it falls with C whatever the data."""
        return self.test if self.cross_validated is None else self.cross_validated


def error_curves(
    path: Path,
    test: tuple[Any, Any] | None = None,
    cv: StepCurve | None = None,
    *,
    time_limit: float | None = None,
    callback: Any = None,
    verbose: int = 0,
) -> ErrorCurves:
    """The error curves of a path; where rows times breakpoints are very many, at `_POINTS` values of C only.

    `test`: a pair X, y; `cv`: a cross-validated error. The limits are those of `Path.error_curve`, for all curves together.
    """
    begin = time.perf_counter()
    training = _curve(path, None, time_limit=time_limit, callback=callback, verbose=verbose)
    if test is None:
        return ErrorCurves(training, None, cv)
    left = None if time_limit is None else max(0.0, time_limit - (time.perf_counter() - begin))
    pair: Any = test
    if not (isinstance(pair, tuple | list) and len(pair) == 2):
        raise InputError('test must be a pair of data and labels, as in path.plot("error", test=(X, y))')
    held_out = _curve(path, (pair[0], pair[1]), time_limit=left, callback=callback, verbose=verbose)
    return ErrorCurves(training, held_out, cv)


def _curve(path: Path, test: tuple[Any, Any] | None, **limits: Any) -> StepCurve | LossCurve:
    data = path._data
    X, y = (None, None) if test is None else (border.features(test[0]), entered(test[1], "y").reshape(-1))
    rows = data.X.shape[0] if X is None else X.shape[0]
    if rows * path.lambdas.size <= _EXACT_WORK or data.form.kind != "svc":
        return path.error_curve(X, y, **limits)
    assert data.classes is not None
    labels = data.classes[(data.signs > 0).astype(int)] if y is None else y
    Cs = _values(path, _limits(path))
    wrong = [
        (path.predict(data.raw if X is None else X, Cs[k : k + 16]) != labels).mean(axis=1)
        for k in range(0, Cs.size, 16)
    ]
    return StepCurve(np.sqrt(Cs[1:] * Cs[:-1]), np.concatenate(wrong), float(Cs[0]), float(Cs[-1]))


def is_exact(path: Path) -> bool:
    """Whether `error_curves` is exact for the training set of this path."""
    return bool(path._data.X.shape[0] * path.lambdas.size <= _EXACT_WORK)


# ---- entry points ----------------------------------------------------------------------------------------------------


def plot_path(path: Path, what: str = "alphas", *, ax: Any = None, **options: Any) -> Any:
    """Draw one view of a path; see `Path.plot`."""
    views: dict[str, Callable[..., Any]] = {
        "alphas": draw_alphas,
        "sets": draw_sets,
        "objective": draw_objective,
        "error": draw_error,
        "boundary": draw_boundary,
        "overview": draw_overview,
    }
    draw = views[border.choice("what", what, tuple(views))]
    if path.parameter != "C":
        raise InputError(f"pictures are of paths over C, and this one is over {path.parameter}; draw its `table`")
    parameters = inspect.signature(draw).parameters
    has = [name for name in parameters if name not in ("path", "ax", "figure", "curves", "span")]
    for name in options:
        if name not in has:
            remedy = f"its options are {', '.join(has)}" if has else "it has none"
            raise InputError(f'path.plot("{what}") has no option {name!r}; {remedy}')
    if what == "overview":
        if ax is not None:
            raise InputError('what="overview" is a figure of several pictures; leave ax out')
        with styled():
            figure = matplotlib("pyplot").figure(figsize=_size(path), layout="constrained")
            return draw_overview(path, figure, **options)
    if "span" in parameters and what != "error":
        options["span"] = _limits(path)
    with canvas(ax, (5.2, 5.2) if what == "boundary" else (6.4, 4.0)) as ax:
        draw(path, ax, **options)
    return ax


def save_overview(path: Path, file: Any, *, format: str, **options: Any) -> None:  # noqa: A002
    """Write the overview to a file or a stream."""
    with sheet(file, format, _size(path)) as figure:
        draw_overview(path, figure, **options)


# ---- what is shared --------------------------------------------------------------------------------------------------


Span = tuple[float, float]
"""The values of C from which to which a picture goes."""


def _values(path: Path, span: Span) -> FloatArray:
    """The values of C at which to draw: `_POINTS` of equal distance in log C, and the breakpoints if they are few."""
    low, high = span
    if not low < high:
        return np.array([high])
    Cs = np.clip(np.geomspace(low, high, _POINTS), low, high)
    few = path.Cs[(path.Cs >= low) & (path.Cs <= high)]
    return np.union1d(Cs, few) if few.size <= _POINTS else Cs


def _limits(path: Path, best: StepCurve | LossCurve | None = None) -> Span:
    """The range of C to show: all of the path, but not long after the last event, when nothing happens any more.

    The best C is inside, wherever it lies.
    """
    low, high = float(path.Cs[0]), float(path.Cs[-1])
    last = float(path.Cs[-2]) if path.Cs.size > 2 else high
    shown = min(high, max(_AFTER * last, low * _AFTER))
    if best is not None and low < high:
        low = max(path.C_min, min(low, 0.5 * best.best_C))
        shown = min(high, max(shown, 2.0 * best.best_C))
    return low, shown


def _over_C(ax: Any, span: Span, title: str, label: str) -> None:
    ax.set_xscale("log")
    if span[0] < span[1]:
        ax.set_xlim(*span)
    ax.set(xlabel="C", ylabel=label)
    ax.set_title(title, loc="left")


def _class_names(path: Path) -> list[str]:
    classes = path._data.classes
    assert classes is not None
    return [str(value)[:20] for value in classes.tolist()]


# ---- the views -------------------------------------------------------------------------------------------------------


def draw_alphas(path: Path, ax: Any, *, span: Span, max_lines: int = _LINES) -> None:
    """The weight alpha of points over C, as a share of its limit C; those longest on the margin in front.

    Of a regression the signed coefficients.
    """
    LineCollection, Line2D = matplotlib("collections").LineCollection, matplotlib("lines").Line2D
    Cs = _values(path, span)
    first = path._data.groups.first[: path._data.n_groups]
    shown = first
    weight = path.alpha if path._data.classes is not None else path.dual_coef
    if first.size > max_lines:
        shown = first[np.linspace(0, first.size - 1, max_lines).astype(int)]
    share = np.concatenate([weight(Cs[k : k + 64])[:, shown] for k in range(0, Cs.size, 64)]) / Cs[:, None]
    share /= path._data.weights[shown]
    signs = path._data.signs[shown]
    middling = (np.abs(share) * (1.0 - np.abs(share))).sum(axis=0)  # long on the margin, away from both ends
    x = np.broadcast_to(Cs[:, None], share.shape)
    lines = np.stack([x, share], axis=-1).transpose(1, 0, 2)
    for sign, colour in ((-1.0, NEGATIVE), (1.0, POSITIVE)):
        own = np.flatnonzero(signs == sign)
        ax.add_collection(LineCollection(list(lines[own]), colors=colour, linewidths=0.6, alpha=0.25, rasterized=True))
        front = own[np.argsort(-middling[own], kind="stable")[:_HIGHLIGHTS]]
        ax.add_collection(LineCollection(list(lines[front]), colors=colour, linewidths=1.5, zorder=3))
    top, bottom = float(share.max(initial=0.0)) or 1.0, float(share.min(initial=0.0))
    ax.set_ylim(1.04 * bottom - 0.02 * top, 1.04 * top)
    _over_C(ax, span, "Weights", r"share of their limit, $\alpha_i \,/\, C$")
    if shown.size < first.size:
        ax.set_xlabel(f"C   ({shown.size} of {first.size:,} points shown)")
    if path._data.classes is not None:
        handles = [Line2D([], [], color=colour, linewidth=1.5) for colour in (NEGATIVE, POSITIVE)]
        legend_above(ax, handles, [f"class {name}" for name in _class_names(path)])


def draw_sets(path: Path, ax: Any, *, span: Span) -> None:
    """How many points are on the margin, within it (wrong ones too: weight C), and beyond it (without weight)."""
    counts = path.support_counts()
    Cs = 1.0 / counts["lambda"]
    if Cs.size > 4 * _POINTS:
        keep = np.unique(np.searchsorted(Cs, np.geomspace(Cs[0], Cs[-1], 4 * _POINTS)).clip(0, Cs.size - 1))
        counts, Cs = counts[keep], Cs[keep]
    for name, label, colour, width in (
        ("R", "beyond", OUTSIDE, 1.4),
        ("L", "within", BOUND, 1.4),
        ("E", "on the margin", MARGIN, 1.8),
    ):
        ax.plot(Cs, counts[name], drawstyle="steps-post", color=colour, linewidth=width, label=label)
    ax.fill_between(Cs, counts["E"], step="post", color=MARGIN, alpha=0.12, linewidth=0)
    n = sum(int(counts[name][0]) for name in "ELR")
    ax.set_ylim(0, 1.02 * n)
    _over_C(ax, span, "Margin", "number of points")
    handles, labels = ax.get_legend_handles_labels()
    legend_above(ax, handles[::-1], labels[::-1])


def draw_objective(path: Path, ax: Any, *, span: Span) -> None:
    """What training minimises, over C: the smallest value of 1/2 |w|^2 + C sum xi."""
    Cs = _values(path, span)
    value = -np.asarray(path.objective(Cs))
    ax.plot(Cs, value, color=INK, linewidth=1.6)
    if value.min() > 0 and value.max() > 30.0 * value.min():
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=0)
    _over_C(ax, span, "What training minimises", r"$|w|^2/2 \, + \, C \, \Sigma \, \xi_i$")


def draw_error(
    path: Path,
    ax: Any,
    *,
    test: tuple[Any, Any] | None = None,
    cv: StepCurve | None = None,
    curves: ErrorCurves | None = None,
    span: Span | None = None,
) -> None:
    """The error over C, of classes the share of wrong ones: training, held out (`test`, a pair X, y), cross-validated (`cv`).

    The best C is that of the cross-validated or held-out error. The training error alone says nothing about it.
    """
    curves = error_curves(path, test, cv) if curves is None else curves
    span = _limits(path, curves.best) if span is None else span
    shown = [
        (label, curve, colour)
        for label, curve, colour in (
            ("training", curves.training, INK),
            ("held out", curves.test, HELD_OUT),
            ("cross-validated", curves.cross_validated, CROSS),
        )
        if curve is not None
    ]
    smooth = isinstance(curves.training, LossCurve)
    factor, write = (1.0, "{:.3g}".format) if smooth else (100.0, percent)
    for label, curve, colour in shown:
        edges, values = _steps(curve, span)
        ax.plot(
            edges, factor * values, drawstyle="default" if smooth else "steps-post", color=colour, linewidth=1.6,
            label=label, rasterized=edges.size > 20_000,
        )  # fmt: skip
    ax.set_ylim(
        *(factor * end for end in _of_interest([curve for _, curve, _ in shown], span, 0.0 if smooth else 0.02))
    )
    best = curves.best
    if best is not None:
        at = best.best_C
        ax.axvline(at, color=MARGIN, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
        ax.plot([at], [factor * best.minimum], "o", color=MARGIN, markersize=6, zorder=4)
        note, colour = f"least {write(best.minimum)} at C = {short(at)}, {shown[-1][0]}", MARGIN
    else:
        note, colour = f"least training error {write(curves.training.minimum)}", MUTED
    if len(shown) > 1:
        ax.legend(loc="best")
    losses = {"quantile": "mean pinball loss", "one_class": "outside, in %"}
    label = losses.get(path._data.form.kind, "mean absolute error" if smooth else "wrong, in %")
    _over_C(ax, span, "Error", label)
    ax.set_title(note, loc="right", color=colour, fontsize=7.5, fontweight="normal")


def _steps(curve: StepCurve | LossCurve, span: Span) -> tuple[FloatArray, FloatArray]:
    """The part of a curve inside a picture: where steps begin, its end, and the values from there on."""
    low, high = max(span[0], curve.C_min), min(span[1], curve.C_max)
    inside = curve.breakpoints[(curve.breakpoints > low) & (curve.breakpoints < high)]
    edges = np.concatenate([[low], inside, [high]])
    if isinstance(curve, LossCurve):
        edges = np.union1d(edges, np.geomspace(low, high, _POINTS))
        return edges, curve(edges)
    values = curve.values[np.searchsorted(curve.breakpoints, edges[:-1], side="right")]
    return edges, np.concatenate([values, values[-1:]])


def _of_interest(curves: Sequence[StepCurve | LossCurve], span: Span, least: float) -> tuple[float, float]:
    """The range of errors to show: what nine tenths of the picture's width need, and every minimum; `least`: room for it."""
    ends = [(max(span[0], c.C_min), min(span[1], c.C_max)) for c in curves]
    values = np.stack([c(np.clip(np.geomspace(*span, _POINTS), *e)) for c, e in zip(curves, ends, strict=True)])
    low, high = float(values.min()), float(np.quantile(values, 0.9, axis=1).max())
    room = max(high - low, least, 0.1 * high) or 1.0
    return (low - 0.08 * room if low > 0.5 * high else -0.03 * high), high + 0.15 * room


def draw_boundary(path: Path, ax: Any, *, C: float | None = None, title: str | None = None) -> None:
    """The decision function of two features at one C (default: 1, or the path's end next to it), and the training points."""
    data = path._data
    if not has_boundary(path):
        raise InputError("the decision boundary can be drawn for classes and two features in a dense X only")
    at = float(np.clip(1.0, path.Cs[0], path.Cs[-1])) if C is None else C
    groups = [(f"class {name}", data.signs == sign) for sign, name in zip((-1, 1), _class_names(path), strict=True)]
    dots = Dots(data.raw, groups, path.alpha(at) > 0, getattr(path, "feature_names", None))
    draw_plane(
        ax, dots, lambda mesh: path.decision_function(mesh, at), title or f"Decision boundary at C = {short(at)}"
    )


def has_boundary(path: Path) -> bool:
    """Whether a decision boundary can be drawn."""
    data = path._data
    plane = data.X.shape[1] == 2 and not is_sparse(data.X) and data.spec.kernel.kind != KernelKind.PRECOMPUTED
    return bool(plane and data.classes is not None)


def _size(path: Path) -> tuple[float, float]:
    return (13.0, 6.4) if has_boundary(path) else (10.0, 6.4)


def draw_overview(
    path: Path,
    figure: Any,
    *,
    title: str | None = None,
    test: tuple[Any, Any] | None = None,
    cv: StepCurve | None = None,
    C: float | None = None,
    curves: ErrorCurves | None = None,
) -> Any:
    """All views in one figure; returns their axes by name. `C`: that of the boundary (default: the best one, if known)."""
    curves = error_curves(path, test, cv) if curves is None else curves
    best = curves.best
    span = _limits(path, best)
    if has_boundary(path):
        axes = figure.subplot_mosaic(
            [["boundary", "error", "alphas"], ["boundary", "sets", "objective"]], width_ratios=[1.8, 1.0, 1.0]
        )
        draw_boundary(path, axes["boundary"], C=best.best_C if C is None and best is not None else C)
    else:
        axes = figure.subplot_mosaic([["error", "alphas"], ["sets", "objective"]])
    draw_error(path, axes["error"], curves=curves, span=span)
    draw_alphas(path, axes["alphas"], span=span)
    draw_sets(path, axes["sets"], span=span)
    draw_objective(path, axes["objective"], span=span)
    way = f"every C from {short(path.Cs[0])} to {short(path.Cs[-1])}, {path.stats['n_events']:,} changes"
    figure.suptitle(f"{title}: {way}" if title else way[0].upper() + way[1:], fontsize=12.5, x=0.008, ha="left")
    return axes
