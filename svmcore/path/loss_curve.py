"""The exact loss curve of a regression's path on any data.

Between two knots every prediction is linear in C (in epsilon, for a path over epsilon): lambda f is linear in lambda, so f
is linear in 1 / lambda. The absolute and the pinball loss are therefore piecewise linear, with a kink where the function
passes through a target. The curve is kept as its values at knots and kinks; its minimum is one of them.

The knots are worked through in stages. Successive values of the variables differ in few entries, so a stage needs the
kernel values between the rows and the variables that change in it. What is done when the work must stop is a curve over
a part of the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from svmcore._control import Control
from svmcore._errors import InputError
from svmcore._types import FloatArray, IntArray
from svmcore.path.cross import Cross

_KNOTS = 256
"""Knots of a stage."""
_BLOCK = 1 << 23
"""Kernel values, or predictions, held at a time."""


class LossCurve:
    """A loss as a continuous, piecewise linear function of the path's parameter.

    Attributes
    ----------
    parameter : "C" or "epsilon".
    breakpoints, values : where the slope changes, increasing, with both ends; and the loss there.

    Examples
    --------
    >>> import numpy as np
    >>> curve = LossCurve("C", np.array([0.0, 1.0, 3.0]), np.array([2.0, 1.0, 4.0]))
    >>> curve(0.5), curve.minimum, curve.best_C
    (1.5, 1.0, 1.0)
    """

    def __init__(self, parameter: str, breakpoints: FloatArray, values: FloatArray) -> None:
        self.parameter = parameter
        self.breakpoints = breakpoints
        self.values = values

    def __repr__(self) -> str:
        low, high = self.span
        return (
            f"<LossCurve: {self.parameter} from {low:.6g} to {high:.6g}, {self.breakpoints.size} breakpoints, "
            f"minimum {self.minimum:.6g} at {self.parameter}={self._best:.6g}>"
        )

    @property
    def span(self) -> tuple[float, float]:
        """Both ends of the curve."""
        return float(self.breakpoints[0]), float(self.breakpoints[-1])

    @overload
    def __call__(self, at: float) -> float: ...
    @overload
    def __call__(self, at: Sequence[float] | NDArray[Any]) -> FloatArray: ...
    def __call__(self, at: Any) -> Any:
        """The loss at one value of the parameter, or at several."""
        at = np.asarray(at, dtype=np.float64)
        low, high = self.span
        outside = ~((at >= low * (1.0 - 1e-9)) & (at <= high * (1.0 + 1e-9)))
        if outside.any():
            raise InputError(
                f"{self.parameter}={at[outside].flat[0]:g} lies outside the curve, {low:.6g} to {high:.6g}"
            )
        out = np.interp(at, self.breakpoints, self.values)
        return float(out) if out.ndim == 0 else out

    @property
    def minimum(self) -> float:
        """The smallest loss."""
        return float(self.values.min())

    @property
    def _best(self) -> float:
        best = np.flatnonzero(self.values == self.values.min())
        return float(self.breakpoints[best[0] if self.parameter == "C" else best[-1]])

    @property
    def best_C(self) -> float:
        """The C of the smallest loss; the smallest one where there are several."""
        if self.parameter != "C":
            raise AttributeError("this curve is over epsilon; see best_epsilon")
        return self._best

    @property
    def best_epsilon(self) -> float:
        """The epsilon of the smallest loss; the largest one where there are several."""
        if self.parameter != "epsilon":
            raise AttributeError("this curve is over C; see best_C")
        return self._best


class Rows(NamedTuple):
    """Data on which a loss is measured: targets and shares of the rows.

    A target above the function costs `above` for each unit of distance, one below it `below`.
    """

    target: FloatArray
    share: FloatArray
    above: float
    below: float

    def loss(self, residual: FloatArray) -> FloatArray:
        """The mean loss of residuals target - f, one per row of `residual`."""
        return np.asarray(np.where(residual > 0.0, self.above * residual, -self.below * residual) @ self.share)

    def part(self, some: slice) -> Rows:
        """Some of the rows."""
        return self._replace(target=self.target[some], share=self.share[some])


class Kinks(NamedTuple):
    """Where the slope of the loss grows between two knots: the stretch, the share of the way, and by how much."""

    stretch: IntArray
    way: FloatArray
    bend: FloatArray


class Knots(NamedTuple):
    """Some successive knots: lambda (or epsilon), bias, and the variables, twins together. `first`: the path begins here."""

    t: FloatArray
    bias: FloatArray
    beta: FloatArray
    first: bool


def loss_curve(path: Any, cross: Cross, rows: Rows, control: Control) -> tuple[LossCurve, bool]:
    """The loss over the path's range, and whether all of the range is done."""
    stages, total = _stages(path), int(path._track.knot.shape[0])
    ends: list[FloatArray] = []
    losses: list[FloatArray] = []
    last, F, done = np.zeros(path._data.n_groups), np.zeros(cross.n), 0
    for knots in stages:
        if ends and (control.reason() is not None or control.step(done / total) is not None):
            break
        value, loss, F = _stage(path, cross, rows, knots, (last, F))
        ends.append(value)
        losses.append(loss)
        last, done = knots.beta[-1], done + knots.t.size - (not knots.first)
    at, loss = np.concatenate(ends), np.concatenate(losses)
    if at[-1] < at[0]:
        at, loss = at[::-1], loss[::-1]
    keep = np.concatenate([[True], at[1:] > at[:-1]])
    whole = done >= total
    return LossCurve(path.parameter, np.ascontiguousarray(at[keep]), np.ascontiguousarray(loss[keep])), whole


def _stages(path: Any) -> Any:
    """Knots in groups, each beginning with the last one of the group before."""
    data, track = path._data, path._track
    size = max(2, min(_KNOTS, _BLOCK // max(1, data.n_groups)))
    held: list[FloatArray] = []
    first = 0
    for k, vector in enumerate(path._vectors(np.arange(track.knot.shape[0]))):
        held.append(vector[: data.n_groups] + vector[data.n_groups :] if data.form.twins else vector)
        if len(held) == size or k == track.knot.shape[0] - 1:
            t, bias = track.knot[first : k + 1].T
            yield Knots(t, bias, np.array(held), first == 0)
            held, first = held[-1:], k


def _stage(
    path: Any, cross: Cross, rows: Rows, knots: Knots, before: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Parameter and loss at the knots and kinks of a stage, and the sums of kernel values at its end."""
    last, F = before
    data = path._data
    offset = 0.0 if data.equality else data.spec.kernel.offset
    moved = np.flatnonzero(np.any(knots.beta != last, axis=0))
    change = knots.beta[:, moved] - last[moved]
    columns = cross.columns(moved)
    over_C = path.parameter == "C"
    at_zero = over_C and path._track.open_top and knots.first  # where the function is the intercept alone
    value = 1.0 / knots.t if over_C else knots.t
    value = np.concatenate([[0.0], value]) if at_zero else value
    end = np.empty(cross.n)
    loss = np.zeros(value.size)
    kinks: list[Kinks] = []
    step = max(1, _BLOCK // max(1, moved.size, value.size))
    for start in range(0, cross.n, step):
        some = slice(start, min(start + step, cross.n))
        index = np.arange(some.start, some.stop)
        sums = F[some] + change @ cross.block(index, columns).T if moved.size else np.tile(F[some], (knots.t.size, 1))
        end[some] = sums[-1]
        f = sums + (knots.bias + offset * knots.beta.sum(axis=1))[:, None]
        f = (f / knots.t[:, None] if over_C else f) + data.form.level
        if at_zero:
            f = np.vstack([np.full(f.shape[1], path._track.bias_slope + data.form.level), f])
        part = rows.part(some)
        residual = part.target - f
        loss += part.loss(residual)
        kinks.append(_kinks(residual, part))
    return *_joined(value, loss, Kinks(*(np.concatenate(column) for column in zip(*kinks, strict=True)))), end


def _kinks(residual: FloatArray, rows: Rows) -> Kinks:
    """Where rows pass through their targets."""
    positive = residual > 0.0
    stretch, row = np.nonzero(positive[1:] != positive[:-1])
    a, b = residual[stretch, row], residual[stretch + 1, row]
    return Kinks(stretch, a / (a - b), (rows.above + rows.below) * rows.share[row] * np.abs(a - b))


def _joined(value: FloatArray, loss: FloatArray, kinks: Kinks) -> tuple[FloatArray, FloatArray]:
    """Parameter and loss at all knots and kinks in order: between two knots the loss is its chord less what kinks bend it."""
    order = np.lexsort((kinks.way, kinks.stretch))
    k, way, bend = (column[order] for column in kinks)
    # at the share s of a stretch the loss lies below its chord by sum_j bend_j (min(s, s_j) - s s_j)
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
    return out_value, out_loss
