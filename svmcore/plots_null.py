"""The picture of a permutation test: the null distribution, the score, its p-value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from svmcore._errors import InputError
from svmcore.plots import INK, NEGATIVE, POSITIVE, canvas, sheet

if TYPE_CHECKING:
    from svmcore.permutations import PermutationTest

_BARS = 40  # at most; scores that are counts have fewer values
_SAME = 1e-9  # counts that are nearer are one level
_ROOM = 1.3  # the axis ends so many times above the highest bar


def draw_null(test: PermutationTest, ax: Any = None, column: int = 0) -> Any:
    """Draw one column of a permutation test; see `PermutationTest.plot`."""
    with canvas(ax, (6.4, 4.0)) as ax:
        _draw(test, ax, column)
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
        raise InputError(
            "there is no permutation to draw; n_permutations was 0, or the test ended before the first one"
        )
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
    ax.set_xlim(low - room, high + room)
    ax.set_ylim(0.0, top)
    right = score > 0.5 * (low + high)
    ax.annotate(
        f"{name} {score:.3g}\np = {pvalue:.3g}", (score, 0.93 * top), xytext=(-6 if right else 6, 0),
        textcoords="offset points", ha="right" if right else "left", va="top", color=INK, fontsize=9.0, fontweight="bold",
    )  # fmt: skip
    largest = " (the largest of all columns)" if several and scores.ndim == 1 else ""
    ax.set_xlabel(f"{name}{largest}   (orange: permutations that reach the score)")
    ax.set_ylabel("permutations")
    ax.set_title(f"{test.n_permutations:,} permutations", loc="left")


__all__ = ["draw_null", "save_null"]
