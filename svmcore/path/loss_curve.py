"""The exact loss of a path on any data, a `LossCurve`.

Between two knots lambda f is linear in lambda, so f is linear in C = 1 / lambda. On a path over epsilon f is linear in
epsilon. So absolute, pinball, hinge and tube losses are piecewise linear. They have a kink where the function passes
through a target. The squared loss is piecewise quadratic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._types import FloatArray, IntArray
from svmcore.models.loss_curve import LossCurve
from svmcore.path.cross import Cross
from svmcore.path.follower import Follower, ways_of


class LossRows(NamedTuple):
    """Losses to be added up: the row of each, its target, and its share in the mean.

    A target above the function costs `above` for each unit of distance, and one below the function costs `below`. Where
    `squared` is true, the cost is the square of the distance.
    """

    row: IntArray
    target: FloatArray
    share: FloatArray
    above: FloatArray
    below: FloatArray
    squared: bool = False

    def loss(self, residual: FloatArray) -> FloatArray:
        """The mean loss of residuals target - f, one per row of `residual`."""
        if self.squared:
            return np.asarray(residual**2 @ self.share)
        over, under = np.maximum(residual, 0.0), np.minimum(residual, 0.0)
        return np.asarray(over @ (self.above * self.share) - under @ (self.below * self.share))

    def part(self, start: int, stop: int) -> LossRows:
        """The losses of some rows, counted from `start`."""
        own = (self.row >= start) & (self.row < stop)
        return LossRows(
            self.row[own] - start, self.target[own], self.share[own], self.above[own], self.below[own], self.squared
        )


def distances(
    target: FloatArray, weight: FloatArray, above: Any = 1.0, below: Any = 1.0, tube: float = 0.0, squared: bool = False
) -> LossRows:
    """The weighted mean of the loss of |target - f|. Within a `tube` of this half-width the loss is zero."""
    every = np.arange(target.size)
    share = weight / weight.sum()
    above, below = (np.broadcast_to(np.asarray(cost, dtype=np.float64), target.shape) for cost in (above, below))
    if tube == 0.0 or squared:
        return LossRows(every, target, share, above, below, squared)
    none = np.zeros(target.size)
    return LossRows(  # the losses beyond one side of the tube, and those beyond the other
        np.concatenate([every, every]), np.concatenate([target - tube, target + tube]), np.concatenate([share, share]),
        np.concatenate([above, none]), np.concatenate([none, below]),
    )  # fmt: skip


class Kinks(NamedTuple):
    """Where the slope of the loss grows between two knots: the stretch, the share of it that is passed, and by how much."""

    stretch: IntArray
    way: FloatArray
    bend: FloatArray


class CurvePiece(NamedTuple):
    """A curve over some knots: the parameter, the loss, and how far each stretch lies below its chord."""

    at: FloatArray
    loss: FloatArray
    bends: FloatArray


def loss_curve(path: Any, cross: Cross, rows: LossRows, control: Control) -> tuple[LossCurve, bool]:
    """The loss over the path's range, and whether all of the range is done."""
    follower = LossFollower(path, cross, rows)
    with control.beginning():
        follower.start(control)
    pieces = [follower.begin()]
    last = follower.last
    while follower.done < last and control.step(follower.done / last) is None:
        pieces.append(follower.follow())
    at, loss, bends = (np.concatenate(column) for column in zip(*pieces, strict=True))
    if path.parameter == "epsilon":
        at, loss, bends = at[::-1], loss[::-1], bends[::-1]
    wide = at[1:] > at[:-1]
    keep = np.concatenate([[True], wide])
    curve = LossCurve(path.parameter, at[keep], loss[keep], bends[wide] if rows.squared else None)
    return curve, follower.done == last


class LossFollower(Follower):
    """The losses of all rows, followed down the path."""

    def __init__(self, path: Any, cross: Cross, rows: LossRows) -> None:
        super().__init__(path, cross, whole=False)
        self.losses = rows
        self.over_C = path.parameter == "C"
        self.level = path._data.form.level

    def begin(self) -> CurvePiece:
        """The curve from where only the intercept is left down to the first knot.

        Or that knot alone, if nothing lies above.
        """
        t, rows = self.at[:1], self.losses
        f = self.function(self.lam_f[None].copy(), t)
        value = 1.0 / t if self.over_C else t
        if self.over_C and self.track.open_top:
            intercept = np.full((1, self.cross.n), self.track.bias_slope + self.level)
            value, f = np.concatenate([[0.0], value]), np.concatenate([intercept, f])
        residual = rows.target - f[:, rows.row]
        return _joined(value, rows.loss(residual), _kinks(residual, rows), _bends(residual, rows))

    def function(self, lam_f: FloatArray, t: FloatArray) -> FloatArray:
        """Predictions at knots, one row for each knot. In place: lam_f."""
        if self.over_C:
            lam_f /= t[:, None]
        lam_f += self.level
        return lam_f

    def follow(self) -> CurvePiece:
        """The curve over the knots of the next leg, without the first of them, which is known."""
        leg = self.leg()
        t = self.at[leg.first : leg.last + 1]
        loss, bends = np.zeros(t.size), np.zeros(t.size - 1)
        kinks: list[Kinks] = []
        ways = ways_of(leg)
        for some, K in self.blocks(leg, t.size, lambda: True):
            assert K is not None
            f = self.function(self.values(leg, some, K, ways), t)
            whole = f.shape[1] == self.rows.size
            part = self.losses if whole else self.losses.part(some.start, some.stop)
            residual = part.target - f[:, part.row]
            loss += part.loss(residual)
            bends += _bends(residual, part)
            kinks.append(_kinks(residual, part))
        self.done = leg.last
        every = Kinks(*(np.concatenate(column) for column in zip(*kinks, strict=True)))
        piece = _joined(1.0 / t if self.over_C else t, loss, every, bends)
        return CurvePiece(piece.at[1:], piece.loss[1:], piece.bends)


def _bends(residual: FloatArray, rows: LossRows) -> FloatArray:
    """How far a squared loss lies below its chord in each stretch: the factor of s (1 - s), at the share s of the stretch."""
    if not rows.squared:
        return np.zeros(residual.shape[0] - 1)
    return np.asarray(np.diff(residual, axis=0) ** 2 @ rows.share)


def _kinks(residual: FloatArray, rows: LossRows) -> Kinks:
    """Where rows pass through their targets."""
    if rows.squared:
        return Kinks(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
    positive = residual > 0.0
    stretch, row = np.nonzero(positive[1:] != positive[:-1])
    before, after = residual[stretch, row], residual[stretch + 1, row]
    size = (rows.above[row] + rows.below[row]) * rows.share[row] * np.abs(before - after)
    return Kinks(stretch, before / (before - after), size)


def _joined(value: FloatArray, loss: FloatArray, kinks: Kinks, bends: FloatArray) -> CurvePiece:
    """The parameter and the loss at all knots and kinks, in order.

    At a kink the loss is the chord less what kinks bend it.
    """
    if not kinks.stretch.size:
        return CurvePiece(value, loss, bends)
    order = np.lexsort((kinks.way, kinks.stretch))
    k, way, bend = (column[order] for column in kinks)
    # At the share s of a stretch the loss lies below its chord by sum_j bend_j (min(s, s_j) - s s_j).
    start = np.searchsorted(k, np.arange(value.size))
    before = np.concatenate([[0.0], np.cumsum(bend * way)])
    size = np.concatenate([[0.0], np.cumsum(bend)])
    here = np.arange(k.size)
    first, stop = start[k], start[k + 1]
    below = (before[here + 1] - before[first]) + way * (size[stop] - size[here + 1])
    below -= way * (before[stop] - before[first])
    chord = loss[k] + way * (loss[k + 1] - loss[k])
    at = value[k] + way * (value[k + 1] - value[k])
    place = start + np.arange(value.size)
    out_value, out_loss = np.empty(value.size + k.size), np.empty(value.size + k.size)
    inner = np.ones(out_value.size, dtype=bool)
    inner[place] = False
    out_value[place], out_loss[place] = value, loss
    out_value[inner], out_loss[inner] = at, chord - below
    return CurvePiece(out_value, out_loss, np.zeros(out_value.size - 1))
