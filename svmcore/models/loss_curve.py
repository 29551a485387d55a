"""`LossCurve`: an exact, continuous loss as a function of C (or of epsilon), such as that of every machine of a path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore._types import FloatArray
from svmcore.base.door import reals
from svmcore.models.step_curve import OUTSIDE

_SAME = 1e-12
"""Values that are nearer are one value, relative to the largest."""


class LossCurve:
    """A loss as a continuous function of the path's parameter: piecewise linear, or piecewise quadratic.

    Between two breakpoints the function lies below its chord by ``bend * s * (1 - s)``, where s is the share of the way.

    Attributes
    ----------
    parameter : "C" or "epsilon".
    span : both ends of the curve; C_min and C_max are the same by themselves, and edges the ends of all pieces.
    breakpoints, values : where the piece changes, increasing, with both ends; and the loss there.
    bends : one number of at least 0 for each piece; None where all are 0.

    Examples
    --------
    >>> import numpy as np, svmcore
    >>> curve = svmcore.LossCurve("C", np.array([0.0, 1.0, 3.0]), np.array([2.0, 1.0, 4.0]))
    >>> curve(0.5), curve.minimum, curve.best_C
    (1.5, 1.0, 1.0)
    """

    def __init__(
        self, parameter: str, breakpoints: FloatArray, values: FloatArray, bends: FloatArray | None = None
    ) -> None:
        self.parameter = parameter
        self.breakpoints = breakpoints
        self.values = values
        self.bends = bends
        self.edges = breakpoints
        self.C_min, self.C_max = self.span = float(breakpoints[0]), float(breakpoints[-1])

    def __repr__(self) -> str:
        low, high = self.span
        best = self.best_C if self.parameter == "C" else self.best_epsilon
        return (
            f"<LossCurve: {self.parameter} from {low:.6g} to {high:.6g}, {self.breakpoints.size} breakpoints, "
            f"minimum {self.minimum:.6g} at {self.parameter}={best:.6g}>"
        )

    @overload
    def __call__(self, at: float) -> float: ...
    @overload
    def __call__(self, at: Sequence[float] | NDArray[Any]) -> FloatArray: ...
    def __call__(self, at: Any) -> Any:
        """The loss at one value of the parameter, or at several."""
        at = reals(at, "the parameter")
        low, high = self.span
        outside = ~((at >= low * (1.0 - OUTSIDE)) & (at <= high * (1.0 + OUTSIDE)))
        if outside.any():
            raise InputError(
                f"{self.parameter}={at[outside].flat[0]:g} lies outside the curve, {low:.6g} to {high:.6g}"
            )
        out = np.interp(at, self.breakpoints, self.values)
        if self.bends is not None:
            piece, share = self._place(np.clip(at, low, high))
            out = out - self.bends[piece] * share * (1.0 - share)
        return float(out) if out.ndim == 0 else out

    def _place(self, at: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
        """The piece of each value, and its share of the way there."""
        piece = np.clip(np.searchsorted(self.breakpoints, at, side="right") - 1, 0, self.breakpoints.size - 2)
        begin = self.breakpoints[piece]
        width = self.breakpoints[piece + 1] - begin
        return piece, np.divide(at - begin, width, out=np.zeros_like(width), where=width > 0.0)

    @property
    def _turns(self) -> tuple[FloatArray, FloatArray]:
        """Where a minimum can be, increasing, and the values there: breakpoints, and the lowest points of bent pieces."""
        at, values = self.breakpoints, self.values
        if self.bends is not None:
            rise = np.diff(values)
            k = np.flatnonzero(self.bends > np.abs(rise))
            share = 0.5 * (self.bends[k] - rise[k]) / self.bends[k]
            at = np.insert(at, k + 1, at[k] + share * (at[k + 1] - at[k]))
            values = np.insert(values, k + 1, values[k] - self.bends[k] * share**2)
        real = (at > 0.0) | (self.parameter != "C")  # 0 is no C
        return at[real], values[real]

    @property
    def minimum(self) -> float:
        """The smallest loss."""
        return float(self._turns[1].min())

    @property
    def best_interval(self) -> tuple[float, float]:
        """The widest interval that attains the minimum, most often one point."""
        at, values = self._turns
        least = values <= values.min() + _SAME * float(np.abs(self.values).max())
        change = np.flatnonzero(np.diff(np.concatenate([[False], least, [False]]).astype(np.int8)))
        begin, end = at[change[::2]], at[change[1::2] - 1]
        k = int(np.argmax(end / begin if self.parameter == "C" else end - begin))
        return float(begin[k]), float(end[k])

    @property
    def best_C(self) -> float:
        """The C of the smallest loss: the geometric middle of `best_interval`."""
        if self.parameter != "C":
            raise AttributeError("this curve is over epsilon; see best_epsilon")
        low, high = self.best_interval
        return low if low == high else float(np.sqrt(low * high))

    @property
    def best_epsilon(self) -> float:
        """The epsilon of the smallest loss; the largest one of `best_interval`."""
        if self.parameter != "epsilon":
            raise AttributeError("this curve is over C; see best_C")
        return self.best_interval[1]

    def crossings(self, level: float) -> FloatArray:
        """Where the curve has this value."""
        begin, end = self.values[:-1] - level, self.values[1:] - level
        if self.bends is None:
            k = np.flatnonzero((begin > 0.0) != (end > 0.0))
            shares = [(k, begin[k] / (begin[k] - end[k]))]
        else:  # bend s^2 + slope s + begin = 0, without cancellation
            slope = end - begin - self.bends
            root = slope**2 - 4.0 * self.bends * begin
            k = np.flatnonzero(root >= 0.0)
            q = -0.5 * (slope[k] + np.copysign(np.sqrt(root[k]), slope[k]))
            with np.errstate(divide="ignore", invalid="ignore"):
                shares = [(k, q / self.bends[k]), (k, begin[k] / q)]
        at = [
            self.breakpoints[k] + share * (self.breakpoints[k + 1] - self.breakpoints[k])
            for piece, each in shares
            for k, share in [(piece[(each > 0.0) & (each < 1.0)], each[(each > 0.0) & (each < 1.0)])]
        ]
        return np.unique(np.concatenate(at))

    def on(self, points: FloatArray) -> LossCurve:
        """The same function between the first and the last of some points, which are its breakpoints then.

        Every breakpoint of its own in between must be among them.
        """
        values = np.asarray(self(points))
        if self.bends is None:
            return LossCurve(self.parameter, points, values)
        piece, _ = self._place(0.5 * (points[1:] + points[:-1]))
        width = self.breakpoints[piece + 1] - self.breakpoints[piece]
        share = np.divide(np.diff(points), width, out=np.zeros_like(width), where=width > 0.0)
        return LossCurve(self.parameter, points, values, self.bends[piece] * share**2)

    def between(self, low: float, high: float) -> LossCurve:
        """The part between two values of the parameter."""
        inner = self.breakpoints[(low < self.breakpoints) & (high > self.breakpoints)]
        return self.on(np.concatenate([[low], inner, [high]]))

    def scaled(self, ratio: float) -> LossCurve:
        """The same over the parameter divided by `ratio`."""
        return LossCurve(self.parameter, self.breakpoints / ratio, self.values, self.bends)

    def joined(self, other: LossCurve, at: float) -> LossCurve:
        """This curve below `at`, the other one from there on."""
        parts = self.between(self.span[0], at), other.between(at, other.span[1])
        bends = [np.zeros(part.breakpoints.size - 1) if part.bends is None else part.bends for part in parts]
        return LossCurve(
            self.parameter,
            np.concatenate([parts[0].breakpoints[:-1], parts[1].breakpoints]),
            np.concatenate([parts[0].values[:-1], parts[1].values]),
            None if self.bends is None and other.bends is None else np.concatenate(bends),
        )

    @staticmethod
    def mean(curves: Sequence[LossCurve]) -> LossCurve:
        """The mean of several curves over the range that they share."""
        low, high = max(c.span[0] for c in curves), min(c.span[1] for c in curves)
        every = np.unique(np.concatenate([[low, high], *(c.breakpoints for c in curves)]))
        every = every[(low <= every) & (high >= every)]
        parts = [curve.on(every if every.size > 1 else np.array([low, high])) for curve in curves]
        bent = [part.bends for part in parts if part.bends is not None]
        return LossCurve(
            curves[0].parameter,
            parts[0].breakpoints,
            np.mean([part.values for part in parts], axis=0),
            np.sum(bent, axis=0) / len(curves) if bent else None,
        )
