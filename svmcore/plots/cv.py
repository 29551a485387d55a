"""Pictures of a cross-validation: the curve over C, the map over C and gamma, and how good probabilities are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from svmcore._errors import InputError
from svmcore._types import FloatArray
from svmcore.cv.calibration import Calibrator, VennAbers
from svmcore.cv.means import Mean
from svmcore.cv.result import PathCV
from svmcore.models.loss_curve import LossCurve
from svmcore.plots.canvas import INK, MARGIN, MUTED, NEGATIVE, POSITIVE, canvas, percent, sheet, short
from svmcore.problem import border

_AFTER = 4.0  # times the last change's C is where the picture ends
_STEPS = 3000  # stretches drawn; more cannot be told apart
_TOP_TICKS = 7
_BINS = 12  # observed shares are drawn in so many bins


def plot_cv(cv: PathCV, what: str = "curve", *, ax: Any = None, **options: Any) -> Any:
    """Draw one view of a cross-validation; see `PathCV.plot`."""
    views: dict[str, Callable[..., None]] = {"curve": draw_curve, "map": draw_map}
    draw = views[border.choice("what", what, tuple(views))]
    with canvas(ax, (6.8, 4.3)) as ax:
        draw(cv, ax, **options)
    return ax


def save_cv(cv: PathCV, file: Any, *, format: str) -> None:  # noqa: A002
    """Write the curve over C to a file or a stream; of several gammas with the map beside it."""
    several = cv.gammas.size > 1
    with sheet(file, format, (13.6 if several else 6.8, 4.3)) as figure:
        axes = figure.subplots(1, 1 + several, squeeze=False)[0]
        draw_curve(cv, axes[0])
        if several:
            draw_map(cv, axes[1])


def _limits(means: list[Mean]) -> tuple[float, float]:
    """The range of C to show: where something changes, and a little around it."""
    low, high = means[0].C_range
    changes = np.concatenate([curve.edges[1:-1] for mean in means for curve in (mean.curve, mean.support_steps)])
    if not changes.size:
        return (low if low > 0.0 else 1e-3 * high), high
    return max(low, changes.min() / 2.0), min(high, _AFTER * changes.max())


def _stretches(mean: Mean, limits: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    """Edges and a C inside of each stretch that is seen; of very many a sample of equal distance in log C."""
    edges = mean.curve.edges
    edges = np.concatenate([limits[:1], edges[(edges > limits[0]) & (edges < limits[1])], limits[1:]])
    if edges.size > _STEPS or isinstance(mean.curve, LossCurve):
        edges = np.geomspace(*limits, _STEPS)
    return edges, np.sqrt(edges[:-1] * edges[1:])


def _unit(cv: PathCV) -> tuple[float, str, Callable[[float], str]]:
    """Factor, axis label, and how to write a value."""
    names = {
        "error": "wrong, in %", "balanced_error": "balanced error, in %", "auc": "1 - AUC, in %", "hinge": "hinge loss",
        "absolute_error": "mean absolute error", "squared_error": "mean squared error", "pinball": "pinball loss",
        "epsilon_insensitive": "epsilon-insensitive loss",
    }  # fmt: skip
    if cv._score.in_percent:
        return 100.0, names[cv.score], percent
    return 1.0, names[cv.score], lambda value: f"{value:.3g}"


def draw_curve(cv: PathCV, ax: Any, *, gamma: Any = None) -> None:
    """The mean score over C with its standard error, the best interval, the one-standard-error choice, and the number of
    support vectors on top."""
    mean = cv._mean(gamma)
    limits = _limits([mean])
    factor, label, write = _unit(cv)
    edges, at = _stretches(mean, limits)
    value, spread = factor * mean.curve(at), factor * np.nan_to_num(mean.spread(at))  # one fold has no spread
    low, high = (np.append(v, v[-1]) for v in (np.maximum(value - spread, 0.0), value + spread))
    many = edges.size > 1000
    ax.fill_between(edges, low, high, step="post", color=NEGATIVE, alpha=0.15, linewidth=0, rasterized=many)
    ax.plot(
        edges, np.append(value, value[-1]), drawstyle="steps-post", color=NEGATIVE, linewidth=1.6, rasterized=many,
        label="mean, and its standard error",
    )  # fmt: skip
    best, least = mean.best_C, mean.curve.minimum
    ax.axvspan(*np.clip(mean.curve.best_interval, *limits), color=MARGIN, alpha=0.25, linewidth=0, zorder=0)
    ax.plot([best], [factor * least], "o", color=MARGIN, markersize=6, zorder=4, label=f"best, C = {short(best)}")
    one = max(mean.one_se_C, limits[0])
    ax.axvline(one, color=POSITIVE, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
    ax.plot(
        [one], [factor * float(mean.curve(np.array([one]))[0])], "D", color=POSITIVE, markersize=5, zorder=4,
        label=f"within one standard error, C = {short(mean.one_se_C)}",
    )  # fmt: skip
    bottom, top = float((value - spread).min()), float((value + spread).max())  # where the curve lives
    room = 0.06 * (top - bottom) or 1.0
    ax.set(xscale="log", xlim=limits, xlabel="C", ylim=(max(bottom - room, -0.02 * top), top + room))
    ax.set_ylabel(label)
    ax.set_title(f"{len(mean.curves.scores)} folds, every C", pad=22, loc="left")
    ax.set_title(f"least {write(least)} at C = {short(best)}", loc="right", color=MARGIN, fontsize=8.5, pad=22)
    ax.legend(loc="best")
    above = ax.secondary_xaxis("top")
    ticks = np.geomspace(*limits, _TOP_TICKS + 2)[1:-1]
    above.set_xticks(ticks, [f"{count:,.0f}" for count in mean.support_steps(ticks)], minor=False)
    above.set_xticks([], minor=True)
    above.tick_params(length=0, labelsize=8, colors=MUTED, pad=2)
    above.spines["top"].set_visible(False)
    ax.text(0.0, 1.055, "support vectors", transform=ax.transAxes, fontsize=8, color=MUTED)


def draw_map(cv: PathCV, ax: Any) -> None:
    """The score over C and gamma: one strip per gamma with its own exact steps in C."""
    means = sorted(
        (mean for mean in cv._means if mean.curves.gamma is not None), key=lambda m: float(m.curves.gamma or 0)
    )
    if len(means) < 2:
        raise InputError('the map needs several gammas; call cv_path with gamma="search" or a list')
    limits = _limits(means)
    factor, label, write = _unit(cv)
    gammas = np.array([float(mean.curves.gamma or 0.0) for mean in means])
    inner = np.sqrt(gammas[1:] * gammas[:-1])
    bounds = np.concatenate([[gammas[0] ** 2 / inner[0]], inner, [gammas[-1] ** 2 / inner[-1]]])
    strips = [(*_stretches(mean, limits), mean) for mean in means]
    values = [factor * mean.curve(at) for _, at, mean in strips]
    low, high = min(v.min() for v in values), max(v.max() for v in values)
    for (edges, _, _), value, below, above in zip(strips, values, bounds[:-1], bounds[1:], strict=True):
        mesh = ax.pcolormesh(
            edges, [below, above], value[None, :], vmin=low, vmax=high, cmap="cividis_r", rasterized=True
        )
    ax.set(xscale="log", yscale="log", xlim=limits, ylim=(bounds[0], bounds[-1]), xlabel="C", ylabel="gamma")
    ax.grid(False)
    best = cv.best_gamma
    assert best is not None
    interval = np.clip(cv.best_interval, *limits)
    ax.plot(interval, [best, best], color="white", linewidth=3.5, solid_capstyle="butt")
    ax.plot(interval, [best, best], color=INK, linewidth=1.5, solid_capstyle="butt")
    ax.plot([cv.best_C], [best], "o", markersize=8, markerfacecolor=MARGIN, markeredgecolor="white")
    ax.figure.colorbar(mesh, ax=ax, label=label, pad=0.02)
    ax.set_title("Every C, by gamma", loc="left")
    ax.set_title(
        f"least {write(cv.best_error)} at C = {short(cv.best_C)}, gamma = {short(best)}", loc="right", color=MARGIN,
        fontsize=8.5,
    )  # fmt: skip


def plot_calibration(calibrator: Calibrator, ax: Any = None) -> Any:
    """The probability of the second class over the decision value, and shares observed in bins of equal weight."""
    with canvas(ax, (6.4, 4.0)) as ax:
        scores, model = calibrator.scores, calibrator.model
        low, high = float(scores.min()), float(scores.max())
        room = 0.04 * (high - low) or 1.0
        f = np.linspace(low - room, high + room, 800)
        if isinstance(model, VennAbers):
            p0, p1 = 100.0 * model.interval(f).T
            ax.fill_between(f, p0, p1, color=NEGATIVE, alpha=0.2, linewidth=0, label="interval (p0, p1)")
        ax.plot(f, 100.0 * model.probability(f), color=NEGATIVE, linewidth=1.6, label=calibrator.method)
        at, share, error = _observed(calibrator)
        ax.errorbar(
            at, 100 * share, 100 * error, fmt="o", color=INK, markersize=4, linewidth=1.0, zorder=4,
            label="observed, and its standard error",
        )  # fmt: skip
        for positive, level in ((True, 103.0), (False, -3.0)):
            own = scores[calibrator.positive == positive]
            colour = POSITIVE if positive else NEGATIVE
            ax.plot(
                own, np.full(own.size, level), "|", color=colour, markersize=5, alpha=0.4, rasterized=own.size > 1000
            )
        ax.set(xlim=(f[0], f[-1]), ylim=(-6.0, 106.0), xlabel="out-of-fold decision value")
        ax.set_ylabel(f"class {str(calibrator.classes[1])[:20]}, in %")
        ax.set_title("Probability", loc="left")
        ax.set_title(
            f"log loss {calibrator.log_loss:.3g}, Brier score {calibrator.brier:.3g}", loc="right", fontsize=8.5,
            color=MUTED,
        )  # fmt: skip
        ax.legend(loc="best")
    return ax


def _observed(calibrator: Calibrator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """In each bin: the mean score, the share of the second class, and its standard error."""
    order = np.argsort(calibrator.scores, kind="stable")
    weight = calibrator.weight[order]
    passed = np.cumsum(weight) - 0.5 * weight
    of = (passed / weight.sum() * min(_BINS, max(2, order.size // 8))).astype(int)
    total = np.bincount(of, weights=weight)
    mean, share = (
        np.bincount(of, weights=weight * values[order]) / total
        for values in (calibrator.scores, calibrator.positive.astype(np.float64))
    )
    count = np.bincount(of)
    near = (share * count + 1.0) / (count + 2.0)  # no bin is certain
    return mean, share, np.sqrt(near * (1.0 - near) / count)
