"""The exact error curve of a path on any data.

Between two knots lambda f(x) is linear in lambda. So where it is known at the knots, there is a closed form for the lambdas
at which a row changes its class. At some knots the path says how far lambda f can be from the chord between knots that lie
farther apart (`path/record.Track`). So lambda f is computed for all rows at the ends of chords. At knots between them it is
computed only for rows that may come near zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._control import Control
from svmcore._errors import ConvergenceWarning, InputError, warn
from svmcore._types import FloatArray, IntArray
from svmcore.base.door import reals
from svmcore.models.loss_curve import LossCurve
from svmcore.models.step_curve import StepCurve, steps
from svmcore.path import curve_jit
from svmcore.path.cross import Cross
from svmcore.path.follower import Follower, dense
from svmcore.path.loss_curve import distances, loss_curve
from svmcore.problem import border, labelling

_ROUNDING = 1e-11  # a value of lambda f is known to this share of itself
_ROOM = 4096  # changes of class that are written down at once


class Flips(NamedTuple):
    """Where rows change their class: lambda, the row, and whether it is of the positive class at smaller lambda."""

    lam: FloatArray
    row: IntArray
    positive: Any


class SignLeg(NamedTuple):
    """The chords of a leg, the moves from end to end and from knot to knot, and both as matrices, where many move."""

    chords: curve_jit.Chords
    joined: curve_jit.Moves
    steps: FloatArray
    moves: curve_jit.Moves
    every: FloatArray


class SignFollower(Follower):
    """lambda f of all rows, followed down the path, and where it changes its sign."""

    def __init__(self, path: Any, cross: Cross) -> None:
        super().__init__(path, cross)
        roots = cross.roots()
        self.roots = np.zeros(cross.n) if roots is None else np.sqrt(roots**2 + self.offset) if self.offset else roots
        self.chord = np.ascontiguousarray(self.track.chord)
        ends = np.ones(self.at.size, dtype=np.bool_) if roots is None else self.chord[:, 0] == 0.0
        ends[[0, -1]] = True
        self.ends = ends.nonzero()[0]
        self.looked_at = 0
        """How many rows were looked at between two ends."""
        self.room = _ROOM

    def follow(self, control: Control) -> list[Flips] | None:
        """Take all rows through the next leg. Returns None when the work must stop: then nothing has changed."""
        leg = self.leg(self.ends)
        begin, more = self.done / self.last, (leg.last - self.done) / self.last
        place = np.searchsorted(self.ends, [leg.first, leg.last])
        part = slice(leg.first, leg.last + 1)
        chords = curve_jit.Chords(
            self.at[part], np.ascontiguousarray(leg.level), self.chord[part],
            self.ends[place[0] : place[1] + 1] - leg.first,
        )  # fmt: skip
        joined, every = leg.moves, np.empty((0, 0))
        if chords.ends.size <= leg.last - leg.first:
            joined = curve_jit.Moves(
                np.empty(chords.ends.size, dtype=np.int64), np.empty_like(leg.moves.member), np.empty_like(leg.moves.by)
            )
            curve_jit.join(leg.moves, chords.ends, np.zeros(leg.members.size), joined)
            every = dense(leg.moves, leg.members.size)
        way = SignLeg(chords, joined, dense(joined, leg.members.size), leg.moves, every)
        last, flips = np.empty(self.rows.size), []
        for some, K in self.blocks(leg, chords.ends.size, lambda: control.reason() is None):
            if K is None or control.step(begin + more * some.start / self.rows.size) is not None:
                return None
            flips.append(self._flips(way, K, some, last[some]))
        self.lam_f, self.done = last, leg.last
        return flips

    def _flips(self, way: SignLeg, K: FloatArray, some: slice, last: FloatArray) -> Flips:
        """Where some rows change their class in a leg. In place: last."""
        tile = np.empty((K.shape[1] + 2, curve_jit.TILE))
        steps = way.steps @ K.T if way.steps.size else way.steps
        while True:
            room = self.room
            changes = curve_jit.Changes(np.empty(room), np.empty(room, dtype=np.int64), np.empty(room, dtype=np.bool_))
            n, looked_at = curve_jit.sign_changes(
                way.chords, way.joined, steps, way.moves, way.every, self.lam_f[some], K, self.roots[some], _ROUNDING,
                tile, changes, last,
            )  # fmt: skip
            if n <= room:
                break
            self.room = 2 * int(n)
        self.looked_at += int(looked_at)
        return Flips(changes.at[:n], some.start + changes.row[:n], changes.positive[:n])


def curve_of(path: Any, X: Any, y: Any, sample_weight: Any, control: Control) -> StepCurve | LossCurve:
    """See `Path.error_curve`."""
    curve, whole = _curve_of(path, X, y, sample_weight, control)
    if not whole:
        upper = path.parameter == "C"
        reached = curve.C_max if isinstance(curve, StepCurve) else curve.span[upper]
        warn(
            f"the error curve ended early ({control.why}); it is exact up to {path.parameter}={reached:.6g} of "
            f"{path._range[upper]:.6g}. Remedy: a larger time_limit, or fewer rows.",
            ConvergenceWarning,
        )
    return curve


def _curve_of(path: Any, X: Any, y: Any, sample_weight: Any, control: Control) -> tuple[StepCurve | LossCurve, bool]:
    """The error, and whether all of the path's range is done."""
    data, kind = path._data, path._data.form.kind
    if X is None:
        if sample_weight is not None:
            raise InputError("sample_weight belongs to other data X, y; the training set has its own weights")
        if kind == "one_class":
            return _outside(path), True
        X, weight = data.X, data.weights
        wanted = data.form.target + data.form.level if data.form.target.size else data.signs
    else:
        X = data.columns.apply(X)
        wanted = _wanted(path, y, X.shape[0])
        weight = _weights_of(sample_weight, X.shape[0])
    there = weight > 0.0
    if not there.all():
        X, wanted, weight = X[there], wanted[there], weight[there]
    if data.classes is not None:
        return error_curve(path, Cross(data, X), wanted > 0.0, weight, control)
    above, below = (data.form.tau, 1.0 - data.form.tau) if kind == "quantile" else (1.0, 1.0)
    return loss_curve(path, Cross(data, X), distances(wanted, weight, above, below), control)


def _wanted(path: Any, y: Any, n: int) -> FloatArray:
    """The labels as +-1, or the targets."""
    data = path._data
    if y is None:
        if data.form.kind == "one_class":
            return np.ones(n)
        raise InputError(f"error_curve needs the {'targets' if data.classes is None else 'labels'} y of X")
    return border.vector(y, "y", n) if data.classes is None else _signs_of(y, data.classes, n)


def _outside(path: Any) -> StepCurve:
    """The share of the training points of one class that lie outside. Those on the border count as inside."""
    track, size = path._track, path._problem.upper
    moved = size[track.event_index]
    change = moved * ((track.event_move[:, 1] == 1).astype(float) - (track.event_move[:, 0] == 1))
    return steps(1.0 / track.event_lambda, change, float(size[track.side0 == 1].sum()), float(size.sum()), path.C_range)


def error_curve(path: Any, cross: Cross, positive: Any, weight: FloatArray, control: Control) -> tuple[StepCurve, bool]:
    """The weighted share of rows that get a wrong class, over C. Returns also whether all of the path's range is done.

    `positive` says which rows are of the positive class.
    """
    start, (lam, row, now), end = sign_changes(path, cross, control)
    change = np.where(now == positive[row], -1.0, 1.0) * weight[row]
    wrong = start != positive
    last = float(path._track.knot[-1, 0])
    span = path.C_min, path.C_max if end == last else 1.0 / end
    return steps(1.0 / lam, change, float(wrong @ weight), float(weight.sum()), span), end == last


def sign_changes(path: Any, cross: Cross, control: Control) -> tuple[Any, Flips, float]:
    """Which rows get the positive class for the smallest C, where that changes, and the lambda at which the work ended."""
    follower = SignFollower(path, cross)
    with control.beginning():
        follower.start(control)
    # Only the intercept changes above the first knot, and its sign wins for large lambda.
    slope = path._track.bias_slope + path._data.form.level
    now = follower.lam_f > 0.0
    row = (now != (slope > 0.0)).nonzero()[0] if slope else np.empty(0, dtype=np.int64)
    flips = [Flips(follower.at[0] - follower.lam_f[row] / slope if slope else np.empty(0), row, now[row])]
    start = now.copy()
    start[row] = ~now[row]
    while follower.done < follower.last:
        new = None if control.reason() is not None else follower.follow(control)
        if new is None:
            break
        flips += new
    every = Flips(*(np.concatenate([part[k] for part in flips]) for k in range(3)))
    return start, every, float(follower.at[follower.done])


def _signs_of(y: Any, classes: NDArray[Any], n: int) -> FloatArray:
    labels = labelling.label_array(y).reshape(-1)
    if labels.size != n:
        raise InputError(f"y has {labels.size} labels for {n} rows of X; give one label per row")
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        raise InputError(
            f"y holds the label {labels[unknown][0]!r}; this path separates {classes[0]!r} and {classes[1]!r}"
        )
    return np.where(labels == classes[1], 1.0, -1.0)


def _weights_of(sample_weight: Any, n: int) -> FloatArray:
    if sample_weight is None:
        return np.ones(n)
    weight = reals(sample_weight, "sample_weight")
    if weight.shape != (n,):
        raise InputError(f"sample_weight has shape {weight.shape} for {n} rows of X; give one weight per row")
    if not (np.isfinite(weight).all() and (weight >= 0.0).all() and weight.sum() > 0.0):
        raise InputError("sample_weight must be finite, not negative, and not all zero")
    return weight
