"""The exact error curve of a path on any data.

Between two knots lambda f(x) is linear in lambda, so a row of data changes its class at lambdas in closed form, once
lambda f is known at the knots. It is computed at every `length` knots only: between two of these lambda f(x) differs from its
chord by at most sqrt(k(x, x)) D + D0, where D is the largest deviation of the variables from their own chords in the
kernel's norm, and D0 that of the bias. Rows that this does not keep away from zero are computed at the knots between.

The path is worked through in stages, each of windows of `length` knots. A stage holds the kernel values between some rows
and the variables that change in it. What is done when the work must stop is a curve over a part of the range.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._control import Control
from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray
from svmcore.kernel.whole import part_of
from svmcore.path import curve_jit
from svmcore.path.cross import Cross
from svmcore.path.loss_curve import distances, loss_curve
from svmcore.path.replay import replay
from svmcore.problem import border
from svmcore.step_curve import StepCurve, merged

_STAGE = (1 << 18, 1 << 22)
"""Values of variables that a stage holds: the first stage, and the largest."""
_BLOCK = 1 << 23  # kernel values held
_PIECE = 1 << 26  # kernel values times features computed between two looks at the clock
_CHORD = 32  # knots of a first window
_SHORTEST, _LONGEST = 8, 128
_LOOKED_AT = 96  # members of a window of which K times the deviation is computed
_PROBES = 16  # of them so many at least that stay on the elbow
_OVERHEAD = 2e6  # operations that a window costs in any case
_ROUNDING = 1e-12  # a value of lambda f, and the bias, count as known to this share of them
_MARGIN = 1.0 + 1e-6  # bounds are widened by this, against the rounding of what they are made of


class Section(NamedTuple):
    """Knots `first` to `last`, and what changes between them: row k of `values` is that of knot first + k.

    A row x of data stays within sqrt(k(x, x)) `reach` + `shift` of its chord.
    """

    first: int
    last: int
    members: IntArray
    values: FloatArray
    reach: float
    shift: float


class Flips(NamedTuple):
    """Where rows change their class: lambda, the row, and whether it is the positive class below."""

    lam: FloatArray
    row: IntArray
    positive: Any


class Progress(NamedTuple):
    """The control, and the share of the work that the present stage begins with and adds."""

    control: Control
    begin: float
    more: float


class Follower:
    """lambda f of all rows, followed down the path."""

    def __init__(self, path: Any, cross: Cross) -> None:
        self.track, self.cross = path._track, cross
        self.within = Cross(path._data, path._data.X)
        self.at = np.ascontiguousarray(path._track.knot[:, 0])
        self.bias = path._track.knot[:, 1] + path._data.form.level * self.at  # of lambda f, whole
        self.offset = 0.0 if path._data.equality else path._data.spec.kernel.offset
        self.sign = path._sign
        self.replay = replay(path)
        self.roots = cross.roots()
        self.length, self.budget = _CHORD, _STAGE[0]
        self.done = 0
        self.lam_f = np.empty(cross.n)
        self.members, self.count = np.empty(self.sign.size, dtype=np.int64), np.empty(self.sign.size, dtype=np.int64)

    def start(self, control: Control) -> None:
        """lambda f at the first knot."""
        beta = self.replay.beta
        support = np.flatnonzero(beta)
        step = max(1, _PIECE // max(1, support.size * (4 + self.cross.X.shape[1])))
        for begin in range(0, self.cross.n, step):
            control.demand()
            self.lam_f[begin : begin + step] = self.cross.values(slice(begin, begin + step), support, beta[support])
        self.lam_f += self.bias[0] + self.offset * float(beta.sum())

    # ---- windows -------------------------------------------------------------------------------------------------

    def stage(self, control: Control) -> list[Section] | None:
        """The next windows; None when the work must stop."""
        windows: list[Section] = []
        size, first = 0, self.done
        while size < self.budget and first < self.at.size - 1:
            if control.reason() is not None:
                return None
            elbow = int(self.track.offset[first + 1] - self.track.offset[first])
            chords = self._chords_pay(elbow)
            length = self.length if chords else int(np.clip(elbow, 32, 256))
            windows.append(self._window(first, min(first + length, self.at.size - 1), chords))
            size += windows[-1].values.size
            first = windows[-1].last
        self.budget = min(2 * self.budget, _STAGE[1])
        return windows

    def _chords_pay(self, elbow: int) -> bool:
        if self.roots is None:
            return False
        costs = _LOOKED_AT * elbow * (_CHORD + 20 + self.cross.X.shape[1]) + _OVERHEAD
        return bool(0.4 * self.cross.n * elbow * _CHORD > costs)

    def _window(self, first: int, last: int, chords: bool) -> Section:
        n = int(curve_jit.changing(self.replay, first, last, self.members, self.count))
        values = np.empty((last - first + 1, n))
        curve_jit.play(self.replay, first, last, self.members, n, values)
        window = Section(first, last, self.members[:n].copy(), values, np.inf, np.inf)
        if not chords:
            return window
        reach, shift = self._deviation(window, self.count[:n] == last - first + 1)
        return window._replace(reach=reach, shift=shift)

    def _deviation(self, window: Section, stays: Any) -> tuple[float, float]:
        """(reach, shift) of a window.

        Where a variable `stays` on the elbow, lambda f is lambda times its label, so K times the deviation is minus the
        deviation of the bias. It is computed for the others, and for those that move most: what the path's own rounding
        leaves there, times 4, is taken for the rest.
        """
        at, bias = self.at[window.first : window.last + 1], self.bias[window.first : window.last + 1]
        span = at[0] - at[-1]
        share = ((at[0] - at) / span if span > 0.0 else np.zeros(at.size))[1:-1, None]
        values = window.values
        bend = values[1:-1] - (values[0] + share * (values[-1] - values[0]))
        level = bias[1:-1] - (bias[0] + share[:, 0] * (bias[-1] - bias[0])) + self.offset * bend.sum(axis=1)
        if bend.size == 0:
            return 0.0, 0.0
        size = np.abs(bend).max(axis=0)
        size[~stays] = np.inf
        moving = int(np.count_nonzero(~stays))
        look = max(_LOOKED_AT, moving + _PROBES)
        chosen = np.argpartition(-size, look)[:look] if size.size > look else np.arange(size.size)
        columns = self.within.columns(window.members)
        product = bend @ self.within.block(self.within.data.groups.first[window.members[chosen]], columns).T
        square = np.einsum("kj,kj->k", bend[:, chosen], product)
        if chosen.size < size.size:
            rest = np.ones(size.size, dtype=bool)
            rest[chosen] = False
            probes = np.flatnonzero(stays[chosen])
            error = 4.0 * np.abs(product[:, probes] + level[:, None]).max(axis=1)
            square += -level * bend[:, rest].sum(axis=1) + error * np.abs(bend[:, rest]).sum(axis=1)
        reach = float(np.sqrt(np.maximum(square, 0.0).max()))
        scale = float(at[0]) + float(np.abs(bias).max())
        return _MARGIN * reach, _MARGIN * float(np.abs(level).max()) + _ROUNDING * scale

    # ---- rows ----------------------------------------------------------------------------------------------------

    def follow(self, windows: list[Section], progress: Progress) -> list[Flips] | None:
        """Take all rows through the windows; None (and nothing has changed) when the work must stop."""
        union = np.unique(np.concatenate([each.members for each in windows]))
        places = [np.searchsorted(union, each.members) for each in windows]
        moves, levels = np.zeros((len(windows), union.size)), np.empty(len(windows))
        for k, (window, place) in enumerate(zip(windows, places, strict=True)):
            moves[k, place] = window.values[-1] - window.values[0]
            levels[k] = self.bias[window.last] - self.bias[window.first] + self.offset * float(moves[k].sum())
        columns = self.cross.columns(union)
        step = max(1, _BLOCK // max(1, union.size))
        end, flips, looked_at = np.empty(self.cross.n), [], 0
        chords = sum(np.isfinite(each.reach) for each in windows)
        for start in range(0, self.cross.n, step):
            rows = np.arange(start, min(start + step, self.cross.n))
            K = self._kernel(rows, columns, union.size, progress.control)
            if K is None or progress.control.step(progress.begin + progress.more * start / self.cross.n) is not None:
                return None
            lam_f = np.empty((len(windows) + 1, rows.size))
            lam_f[0] = self.lam_f[rows]
            lam_f[1:] = moves @ K.T
            lam_f[1:] += levels[:, None]
            np.cumsum(lam_f, axis=0, out=lam_f)
            end[rows] = lam_f[-1]
            for k, (window, place) in enumerate(zip(windows, places, strict=True)):
                if progress.control.reason() is not None:
                    return None
                near = self._near(window, lam_f[k], lam_f[k + 1], rows)
                looked_at += near.size if np.isfinite(window.reach) else 0
                if near.size:
                    flips.append(self._flips(window, K, place, near, lam_f[k : k + 2, near], start))
        self.lam_f = end
        self.done = windows[-1].last
        if chords:
            self._pace(looked_at / (chords * self.cross.n))
        return flips

    def _kernel(self, rows: IntArray, columns: Any, width: int, control: Control) -> FloatArray | None:
        """Kernel values of some rows, computed some at a time; None when the work must stop."""
        step = max(1, _PIECE // (max(1, width) * (4 + self.cross.X.shape[1])))
        if step >= rows.size:
            return self.cross.block(rows, columns)
        out = np.empty((rows.size, width))
        for begin in range(0, rows.size, step):
            if control.reason() is not None:
                return None
            out[begin : begin + step] = self.cross.block(rows[begin : begin + step], columns)
        return out

    def _near(self, window: Section, before: FloatArray, after: FloatArray, rows: IntArray) -> IntArray:
        """The rows that may change their class in a window."""
        if self.roots is None or not np.isfinite(window.reach):
            return np.arange(rows.size)
        room = np.minimum(np.abs(before), np.abs(after)) - (window.shift + _ROUNDING * np.abs(before))
        return np.flatnonzero((room <= self.roots[rows] * window.reach) | ((before > 0.0) != (after > 0.0)))

    def _flips(
        self, window: Section, K: FloatArray, place: IntArray, near: IntArray, ends: FloatArray, start: int
    ) -> Flips:
        """Where some rows change their class in a window."""
        first, last = window.first, window.last
        delta = window.values[1:-1] - window.values[0]
        level = self.bias[first + 1 : last] - self.bias[first] + self.offset * delta.sum(axis=1)
        part = part_of(K, near, place)
        lam_f = np.empty((last - first + 1, near.size))
        lam_f[0], lam_f[-1] = ends
        lam_f[1:-1] = delta @ part.T
        lam_f[1:-1] += level[:, None] + ends[0]
        positive = lam_f > 0.0
        knot, row = np.nonzero(positive[1:] != positive[:-1])
        before, after = lam_f[knot, row], lam_f[knot + 1, row]
        high, low = self.at[first + knot], self.at[first + knot + 1]
        return Flips(high + before / (before - after) * (low - high), start + near[row], positive[knot + 1, row])

    def _pace(self, share: float) -> None:
        """Windows so long that the rows left open cost about as much as those that are not."""
        if share * self.length > 2.0:
            self.length = max(_SHORTEST, self.length // 2)
        elif share * self.length < 0.5:
            self.length = min(_LONGEST, 2 * self.length)


def curve_of(path: Any, X: Any, y: Any, sample_weight: Any, control: Control) -> tuple[Any, bool]:
    """The error of a path on checked data, and whether all of its range is done; see `Path.error_curve`."""
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
    """Labels as +-1, or targets."""
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
    return _assemble(track.event_lambda, change, float(size[track.side0 == 1].sum()), float(size.sum()), path.C_range)


def error_curve(path: Any, cross: Cross, positive: Any, weight: FloatArray, control: Control) -> tuple[StepCurve, bool]:
    """The weighted share of rows whose class is not `positive`, over C; and whether all of the path's range is done."""
    start, (lam, row, now), end = sign_changes(path, cross, control)
    change = np.where(now == positive[row], -1.0, 1.0) * weight[row]
    wrong = start != positive
    last = float(path._track.knot[-1, 0])
    span = path.C_min, path.C_max if end == last else 1.0 / end
    return _assemble(lam, change, float(wrong @ weight), float(weight.sum()), span), end == last


def sign_changes(path: Any, cross: Cross, control: Control) -> tuple[Any, Flips, float]:
    """Whether rows are of the positive class for the smallest C; where that changes; and down to which lambda it is known."""
    follower = Follower(path, cross)
    with control.beginning():
        follower.start(control)
    flips = [_above(follower, path._track.bias_slope + path._data.form.level)]
    start = _at_the_top(follower.lam_f, flips[0])
    last = follower.at.size - 1
    while follower.done < last:
        windows = follower.stage(control)
        if windows is None:
            break
        share = (windows[-1].last - follower.done) / last
        new = follower.follow(windows, Progress(control, follower.done / last, share))
        if new is None:
            break
        flips += new
    every = Flips(*(np.concatenate([part[k] for part in flips]) for k in range(3)))
    return start, every, float(follower.at[follower.done])


def _above(follower: Follower, slope: float) -> Flips:
    """Above the first knot only the intercept changes: its sign wins in the end."""
    now = follower.lam_f > 0.0
    row = np.flatnonzero(now != (slope > 0.0)) if slope else np.empty(0, dtype=np.int64)
    lam = follower.at[0] - follower.lam_f[row] / slope if slope else np.empty(0)
    return Flips(lam, row, now[row])


def _at_the_top(lam_f: FloatArray, flips: Flips) -> Any:
    """The classes at the largest lambda of all."""
    positive = lam_f > 0.0
    positive[flips.row] = ~flips.positive
    return positive


def _assemble(lam: FloatArray, change: FloatArray, begin: float, total: float, span: tuple[float, float]) -> StepCurve:
    """The step function of C that begins at `begin` of `total`, and changes at values of lambda."""
    low, high = span
    C = 1.0 / lam
    order = np.argsort(C, kind="stable")
    C, change = C[order], change[order]
    count = begin + np.concatenate([[0.0], np.cumsum(change)])
    first = int(np.searchsorted(C, low, side="right"))  # what happens at the end of the range happens outside
    stop = max(first, int(np.searchsorted(C, high, side="left")))
    C, count = C[first:stop], count[first : stop + 1]
    last = np.concatenate([C[1:] > C[:-1], [True]]) if C.size else np.empty(0, dtype=bool)
    return merged(C[last], np.clip(np.concatenate([count[:1], count[1:][last]]) / total, 0.0, 1.0), low, high)


def _signs_of(y: Any, classes: NDArray[Any], n: int) -> FloatArray:
    labels = border.label_array(y).reshape(-1)
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
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,):
        raise InputError(f"sample_weight has shape {weight.shape} for {n} rows of X; give one weight per row")
    if not (np.isfinite(weight).all() and (weight >= 0.0).all() and weight.sum() > 0.0):
        raise InputError("sample_weight must be finite, not negative, and not all zero")
    return weight
