"""What crosses the borders between rooms: plain named tuples and enums, no behaviour beyond a message and simple facts.

Inside, a dual problem is written without signs. With ``beta_t = s_t alpha_t`` every formulation is

    minimise   1/2 beta' (K + D) beta - c' beta     subject to   lower <= beta <= upper   [ and  sum beta = total ]

where ``K_st = k(x_point(s), x_point(t))`` is the plain kernel. A C-SVC variable lives in [0, C] when its label is +1
and in [-C, 0] when it is -1; a regression point owns one variable of each kind. Solvers never see a label or a loss.
The decision function is ``f(x) = sum_t beta_t k(x_point(t), x) + intercept``.
"""

from __future__ import annotations

import math
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

NONZERO = 1e-300
"""What a divisor that may be zero is raised to. It keeps 0 / 0 at 0."""

LANES = 64
"""Points per panel of the dense layout; vectors over points or variables are padded to a multiple of it."""


class KernelKind(IntEnum):
    """The kernels the compiled code knows; `CALLABLE` values are produced by Python and handed over."""

    LINEAR = 0
    POLY = 1
    SIGMOID = 2
    RBF = 3
    LAPLACIAN = 4
    PRECOMPUTED = 5
    CALLABLE = 6


class Kernel(NamedTuple):
    """A kernel as data. `offset` is added to every value (tau^2 of the bias embedding)."""

    kind: int
    gamma: float
    coef0: float
    degree: int
    offset: float


class Points(NamedTuple):
    """`n` points in the layout the kernels read. Exactly one of the three storages is filled.

    dense:        `panels[p, k, lane]` is feature k of point ``p * LANES + lane``; zero padded in k and lane
    sparse:       CSR with sorted indices, and the squared norm of every row
    precomputed:  `ids[t]` is the row and column of point t in `gram`
    """

    n: int
    panels: NDArray[np.float64]
    indptr: IntArray
    indices: NDArray[np.int32]
    data: FloatArray
    norms: FloatArray
    ids: IntArray
    gram: FloatArray


_FEW = 2048


@lru_cache(maxsize=16)
def _few(n: int) -> IntArray:
    return np.arange(n)


def every(n: int) -> IntArray:
    """The places 0 to n - 1. Of few it is one array for all, which nobody writes to: who finds it need not look at it."""
    return _few(n) if n <= _FEW else np.arange(n)


class DualQP(NamedTuple):
    """The sign-free dual problem of the module docstring. Arrays have one entry per variable.

    `point` maps a variable to its training point. `equality` says whether sum(beta) = total is required.
    The total is 0 for machines with an intercept, and another number for one-class machines, say.
    """

    c: FloatArray
    lower: FloatArray
    upper: FloatArray
    diag: FloatArray
    point: IntArray
    equality: bool
    total: float = 0.0

    @property
    def centred(self) -> bool:
        """Whether the sum of beta must be zero: then a translation of the points (linear kernel) changes nothing."""
        return self.equality and self.total == 0.0

    @property
    def twins(self) -> bool:
        """Whether two variables share a point, as those of a regression do."""
        return bool(np.bincount(self.point).max(initial=0) > 1)

    @property
    def squared(self) -> bool:
        """Whether a variable pays on the diagonal, where nothing is negative."""
        return len(self.diag) > 0 and self.diag.item(self.diag.argmax()) > 0.0  # a ufunc takes ten times as long

    @property
    def infinite(self) -> bool:
        """Whether a variable has an infinite bound."""
        if not len(self.c):
            return False
        least, most = self.lower.item(self.lower.argmin()), self.upper.item(self.upper.argmax())
        return math.isinf(least) or math.isinf(most)

    @property
    def open_box(self) -> bool:
        """Whether variables can run to infinity without paying on the diagonal. Then there may be no solution.

        With an equality row it takes two of them, one that grows for ever and one that shrinks for ever.
        """
        flat = self.diag == 0
        up, down = bool((flat & np.isinf(self.upper)).any()), bool((flat & np.isinf(self.lower)).any())
        return up and down if self.equality else up or down

    def one_each(self, n: int) -> bool:
        """Whether variable t owns point t, for all of n points."""
        whole = every(n)
        return self.point is whole or (len(self.point) == n and bool(np.logical_and.reduce(self.point == whole)))

    def excess(self, beta: FloatArray) -> float:
        """By how much the sum of beta is too large. Zero without an equality row."""
        return float(beta.sum()) - self.total if self.equality else 0.0

    def part(self, chosen: IntArray | NDArray[np.bool_]) -> DualQP:
        """The problem of some of the variables. Its total is still that of all."""
        c, lower, upper, diag = self.c[chosen], self.lower[chosen], self.upper[chosen], self.diag[chosen]
        return DualQP(c, lower, upper, diag, self.point[chosen], self.equality, self.total)


class Status(Enum):
    """How a run ended. A member is its own message."""

    CONVERGED = "converged: the optimality conditions hold to the requested tolerance"
    STATIONARY = (
        "stationary: the optimality conditions hold to the requested tolerance, but the kernel matrix is not positive "
        "semi-definite, so the answer may be a local optimum and the duality gap bounds nothing"
    )
    MAX_ITER = "stopped at max_iter: the answer is feasible but not optimal to the requested tolerance"
    TIME_LIMIT = "stopped at time_limit: the answer is feasible but not optimal to the requested tolerance"
    INTERRUPTED = "interrupted: the answer is what had been reached, feasible but not optimal"
    CALLBACK = "stopped by the callback: the answer is what had been reached, feasible but not optimal"
    PRECISION = "stopped at the limit of double precision: rounding hides any further progress towards the tolerance"
    UNBOUNDED = (
        "unbounded: the problem has no finite solution. With C=inf the classes cannot be separated (or the targets not "
        "reached within epsilon) to double precision; or the kernel is not positive semi-definite"
    )
    LIMITED = "stopped by the method's own limit before the tolerance was met: the answer is feasible but not optimal"
    PUBLISHED = (
        "stopped by the published rule, which was asked for and asks less than the tolerance: the answer is feasible but not "
        "optimal to it"
    )
    UNKNOWN = "not known: a file of another program does not say how good its answer is; svmcore.verify measures it"

    def __str__(self) -> str:
        return self.value

    @property
    def ok(self) -> bool:
        """True when the optimality conditions hold to the tolerance."""
        return self is Status.CONVERGED or self is Status.STATIONARY


class Raw(NamedTuple):
    """What a solver returns. The driver certifies `beta`; it never reports the solver's own word.

    `trace` maps a column name to an array with one entry per recorded iteration; `stats` holds the solver's counters.
    `residual` is the solver's own c - K beta - diag beta, if it has it, each entry within `residual_error` of the truth:
    a certificate then needs to recompute only the entries that could decide.
    """

    beta: FloatArray
    status: Status
    n_iter: int
    trace: dict[str, NDArray[Any]] | None = None
    stats: dict[str, Any] = {}  # noqa: RUF012  (never mutated)
    residual: FloatArray | None = None
    residual_error: float | FloatArray = np.inf
