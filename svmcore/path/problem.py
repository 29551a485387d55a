"""What a path is of: one box problem whose linear term moves along a line.

    minimise   1/2 b'K b - (fixed + t slope)'b     subject to   lower <= b <= upper   [ and  sum b = 0 ]

The boxes do not move. The parameter t falls. On most paths it is lambda = 1 / C, and b is lambda times the dual variables.
Or it is the half-width epsilon of a regression's tube, and then b is the dual variables themselves.

| path                        | variables         | fixed | slope        | box                      | t       |
|-----------------------------|-------------------|-------|--------------|--------------------------|---------|
| SVC over C                  | 1 a point         | 0     | y            | [0, y w]                 | lambda  |
| SVR over C                  | 2 a point, (+, -) | 0     | y -+ epsilon | [0, +-w]                 | lambda  |
| SVR over epsilon            | 2 a point, (+, -) | y     | -+1          | [0, +-C w]               | epsilon |
| quantile regression over C  | 1 a point         | 0     | y            | [-(1 - tau) w, tau w]    | lambda  |
| one-class over C (over nu)  | 1 a point         | 0     | 1            | [0, w], without the sum  | lambda  |

With epsilon = 0 the two variables of a regression's point become one, as for the quantile of tau = 1/2. Targets are measured
from `Form.level`, which is added to the intercept again. Points that are equal, with equal targets, share their variables.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._types import NONZERO, DualQP, FloatArray, IntArray
from svmcore.problem.columns import Columns


class BoxPath(NamedTuple):
    """The problem above: arrays have one entry per variable."""

    fixed: FloatArray
    slope: FloatArray
    lower: FloatArray
    upper: FloatArray
    equality: bool
    to_zero: bool = False
    """Whether t may fall to zero."""

    @property
    def level(self) -> float:
        """The size of the part of the linear term that does not move. Sizes are measured against this plus t.

        Nothing is measured against zero: where all that does not move is zero, and t may fall to zero, it is 1.
        """
        largest = float(np.abs(self.fixed).max(initial=0.0))
        return 1.0 if self.to_zero and largest == 0.0 else largest

    @property
    def floor(self) -> float:
        """A primal objective below this is too small to measure a gap against it.

        Where a part of the linear term does not move, the objective vanishes at the top of the path.
        """
        reach = np.maximum(np.abs(self.lower), np.abs(self.upper))
        return max(_NEGLIGIBLE * float(np.abs(self.fixed) @ reach), NONZERO)

    def term(self, t: float) -> FloatArray:
        """The linear term at t."""
        return self.fixed + t * self.slope

    def scaled(self, unit: float) -> BoxPath:
        """The same problem with t measured in units of 1 / `unit`."""
        return self if unit == 1.0 else self._replace(slope=self.slope / unit)


_NEGLIGIBLE = 1e-6
"""Share of the largest linear objective below which a primal objective is too small to measure a gap against."""

_LOSSES = {
    "svc": "hinge", "svr": "epsilon_insensitive", "epsilon": "epsilon_insensitive", "quantile": "pinball",
    "one_class": "one_class",
}  # fmt: skip
_NOTHING = np.empty(0)


class Form(NamedTuple):
    """A row of the table, and its numbers. `target` has one entry per training point, measured from `level`."""

    kind: str = "svc"
    target: FloatArray = _NOTHING
    level: float = 0.0
    """The intercept is the bias of the path plus this."""
    epsilon: float = 0.0
    C: float = 1.0
    tau: float = 0.5

    @property
    def twins(self) -> bool:
        """Whether a point owns two variables: one that grows, one that shrinks."""
        return self.kind == "epsilon" or (self.kind == "svr" and self.epsilon > 0.0)

    @property
    def parameter(self) -> str:
        """What the path is over, in the users' words."""
        return "epsilon" if self.kind == "epsilon" else "C"

    @property
    def loss(self) -> str:
        """The name of the loss."""
        return _LOSSES[self.kind]

    @property
    def params(self) -> dict[str, float]:
        """What users chose, besides the parameter of the path."""
        names = {"svr": ("epsilon",), "epsilon": ("C",), "quantile": ("tau",)}.get(self.kind, ())
        return {name: getattr(self, name) for name in names}

    @property
    def shares(self) -> tuple[float, float]:
        """Both ends of the box of a point of weight one with a label of +1. They are those of both its variables together."""
        if self.kind in ("svc", "one_class"):
            return 0.0, 1.0
        if self.kind == "quantile":
            return self.tau - 1.0, self.tau
        return (-self.C, self.C) if self.kind == "epsilon" else (-1.0, 1.0)


class Groups(NamedTuple):
    """How training points share the tracker's variables. Equal points with equal targets are a group.

    `of[i]` is the group of point i, or -1 where its weight is zero. `share[i]` is its part of the boxes of the group.
    `first[v]` is the first point of variable v, and `count[v]` is the number of its points. A group owns one variable,
    which has its number. Where points own two variables, v and v + (number of groups) belong to group v.
    """

    of: IntArray
    share: FloatArray
    first: IntArray
    count: IntArray  # type: ignore[assignment]


class Data(NamedTuple):
    """The problem behind a path: scaled features, signs and weights per point, kernel, classes, and the variables.

    Where there are no labels, signs are +1.
    """

    X: Any
    signs: FloatArray
    weights: FloatArray
    spec: Any
    classes: NDArray[Any] | None
    equality: bool
    groups: Groups
    n_threads: int
    columns: Columns
    form: Form = Form()

    @property
    def raw(self) -> Any:
        """The features in the units that users know."""
        return self.columns.raw(self.X)

    @property
    def n_groups(self) -> int:
        """The number of points that differ."""
        return self.groups.first.size // 2 if self.form.twins else self.groups.first.size


def variables_of(data: Data) -> BoxPath:
    """The problem of the path over its variables, in the form that its loops take."""
    groups, form = data.groups, data.form
    real = groups.of >= 0
    count = data.n_groups
    first = groups.first[:count]
    size: FloatArray = np.bincount(groups.of[real], weights=data.weights[real], minlength=count).astype(np.float64)
    zero = np.zeros(groups.first.size)
    low, high = form.shares
    if form.kind == "svc":
        sign = data.signs[first]
        return BoxPath(zero, sign, np.where(sign > 0, 0.0, -size), np.where(sign > 0, size, 0.0), data.equality)
    if form.kind == "one_class":
        return BoxPath(zero, np.ones(count), zero, size, data.equality)
    target = form.target[first]
    lower: FloatArray = np.asarray(low * size, dtype=np.float64)
    upper: FloatArray = np.asarray(high * size, dtype=np.float64)
    if not form.twins:
        return BoxPath(zero, target, lower, upper, data.equality)
    none = np.zeros(count)
    lower, upper = np.concatenate([none, lower]), np.concatenate([upper, none])
    both = np.concatenate([target, target])
    sign = np.repeat([1.0, -1.0], count)
    if form.kind == "epsilon":
        return BoxPath(both, -sign, lower, upper, data.equality, to_zero=True)
    return BoxPath(zero, both - form.epsilon * sign, lower, upper, data.equality)


def idle_sides(problem: BoxPath) -> IntArray:
    """The side of every variable at which it is zero: 0 low, 1 up, -1 neither."""
    return np.where(problem.lower == 0.0, 0, np.where(problem.upper == 0.0, 1, -1))


def unit_of(problem: BoxPath) -> float:
    """A power of two by which the slope is divided, so that t and the linear term are of one size. For labels it is 1."""
    largest = 0.0 if problem.fixed.any() else float(np.abs(problem.slope).max(initial=0.0))
    return 2.0 ** round(math.log2(largest)) if largest else 1.0


def dual_at(problem: BoxPath, data: Data, value: float) -> DualQP:
    """The dual of one machine of the path, over the points that differ. `value` is C, or epsilon."""
    if data.form.parameter == "epsilon":
        linear, times = problem.term(value), 1.0
    else:
        linear, times = problem.slope, value
    point = np.arange(linear.size) % data.n_groups
    return DualQP(linear, times * problem.lower, times * problem.upper, np.zeros(linear.size), point, problem.equality)
