"""Pictures of permutation tests: the null distribution of a score, and that of the largest of many values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from svmcore._errors import InputError
from svmcore._types import FloatArray
from svmcore.plots.canvas import INK, MUTED, NEGATIVE, POSITIVE, canvas, sheet
from svmcore.problem import border

if TYPE_CHECKING:
    from svmcore.trials.permutations import PermutationTest
    from svmcore.trials.spheres import Searchlight

_BARS = 40  # at most; scores that are counts have fewer values
_SAME = 1e-9  # counts that are nearer are one level
_MANY = 3000  # from so many values on, vector files get them as an image
_NOTHING = "there is no permutation to draw; n_permutations was 0, or the test ended before the first one"
_ROOM = 1.3  # the axis ends so many times above the highest bar


def draw_null(test: PermutationTest, ax: Any = None, column: int = 0, of: str = "score", level: float = 0.05) -> Any:
    """Draw one column of a permutation test, or its map; see `PermutationTest.plot`."""
    if border.choice("of", of, ("score", "map")) == "map":
        if test.map is None or test.map_maxima is None:
            raise InputError('of="map" needs a test with maps=True')
        return _draw_maxima(np.abs(test.map), test.map_maxima, ("feature", "size of the weight"), ax, level)
    with canvas(ax, (6.4, 4.0)) as ax:
        _draw(test, ax, column)
    return ax


def draw_light(light: Searchlight, ax: Any = None, level: float = 0.05) -> Any:
    """Draw the scores of a searchlight; see `Searchlight.plot`."""
    names = ("group", light.score.replace("_", " "))
    return _draw_maxima(light.scores, light.permutation_maxima, names, ax, level)


def _draw_maxima(values: FloatArray, maxima: FloatArray, names: tuple[str, str], ax: Any, level: float) -> Any:
    """Every value, what it must be above, and beside it the null distribution of the largest."""
    level = border.number("level", level, low=0.0, high=1.0, strict=True)
    ordered = np.sort(maxima)[::-1]
    if not ordered.size or np.isnan(ordered).any():
        raise InputError(_NOTHING)
    above = int(level * (1 + len(ordered)) * (1.0 + _SAME)) - 1  # so many maxima may reach a value of this level
    limit = float(ordered[above]) if above >= 0 else np.inf
    beyond = values > limit + _SAME * abs(limit) if above >= 0 else np.zeros(len(values), bool)
    with canvas(ax, (7.2, 3.6)) as ax:
        for part, colour in ((~beyond, NEGATIVE), (beyond, POSITIVE)):
            ax.plot(
                np.flatnonzero(part), values[part], ".", color=colour, markersize=4.0, rasterized=len(values) > _MANY
            )
        side = ax.inset_axes((1.01, 0.0, 0.16, 1.0), sharey=ax)
        counts, edges = np.histogram(ordered, bins=min(_BARS, len(np.unique(ordered.round(12)))))
        side.barh(edges[:-1], counts, np.diff(edges), align="edge", color=MUTED, alpha=0.6, linewidth=0)
        side.tick_params(labelleft=False)
        side.set_xlabel("largest, by\npermutation")
        if np.isfinite(limit):
            for part in (ax, side):
                part.axhline(limit, color=INK, linewidth=1.2)
        ax.set(xlabel=names[0], ylabel=names[1])
        found = f"{int(beyond.sum())} of {int(np.isfinite(values).sum()):,} at level {level:g}, for all together"
        ax.set_title(found, loc="left")
    return ax


def save_null(test: PermutationTest, file: Any, *, format: str) -> None:  # noqa: A002
    """Write the picture to a file or a stream."""
    with sheet(file, format, (6.4, 4.0)) as figure:
        _draw(test, figure.subplots(), 0)


def _draw(test: PermutationTest, ax: Any, column: int) -> None:
    scores = np.asarray(test.permutation_scores)
    several = np.ndim(test.score) > 0
    if several and not 0 <= column < len(test.score):
        raise InputError(f"column={column!r} is not there; columns go from 0 to {len(test.score) - 1}")
    if not len(scores):
        raise InputError(_NOTHING)
    null = scores[:, column] if scores.ndim == 2 else scores
    score, pvalue = (test.score[column], test.pvalue[column]) if several else (test.score, test.pvalue)
    name = test.scoring.replace("_", " ")
    levels = np.unique(null.round(12))
    low, high = float(min(null.min(), score)), float(max(null.max(), score))
    if len(levels) <= _BARS:  # a bar for each value that a count can have
        count = np.array([np.isclose(null, level, rtol=0.0, atol=_SAME).sum() for level in levels])
        gap = float(np.diff(levels).min()) if len(levels) > 1 else (high - low or 1.0) / _BARS
        left, width = levels - 0.45 * gap, np.full(len(levels), 0.9 * gap)
    else:
        count, edges = np.histogram(null, bins=_BARS)
        left, width = edges[:-1], np.diff(edges)
    middle = left + 0.5 * width
    beyond = middle <= score if test.alternative == "less" else middle >= score - 0.5 * width
    for part, colour in ((~beyond, NEGATIVE), (beyond, POSITIVE)):
        ax.bar(left[part], count[part], width[part], align="edge", color=colour, alpha=0.75, linewidth=0)
    top = _ROOM * float(count.max())
    ax.plot([score, score], [0.0, top], color=INK, linewidth=1.6)
    room = 0.05 * (high - low or 1.0)
    ax.set(xlim=(low - room, high + room), ylim=(0.0, top))
    right = score > 0.5 * (low + high)
    ax.annotate(
        f"{name} {score:.3g}\np = {pvalue:.3g}", (score, 0.93 * top), xytext=(-6 if right else 6, 0),
        textcoords="offset points", ha="right" if right else "left", va="top", color=INK, fontsize=9.0, fontweight="bold",
    )  # fmt: skip
    largest = " (the largest of all columns)" if several and scores.ndim == 1 else ""
    ax.set_xlabel(f"{name}{largest}   (orange: permutations that reach the score)")
    ax.set_ylabel("permutations")
    ax.set_title(f"{test.n_permutations:,} permutations", loc="left")
