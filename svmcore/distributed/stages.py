"""What a part does for a linear machine: pure functions of a part and its state, which return sums.

Questions give an answer; turns give the next state and an answer. Arrays are never written to once they are in a state, so
states share what has not changed, and a stage can be done again by anybody who has the part and the state before it.

Rows are panels in their own precision, widened to float64 a block at a time. Columns are centred where sum(beta) = 0 makes
that free.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from svmcore._kernels import weighted_gram
from svmcore._types import LANES, DualQP, FloatArray, IntArray
from svmcore.base.threads import one_blas_thread
from svmcore.distributed.parts import BLOCK, Assignment, Part, coefficients_of
from svmcore.distributed.sums import Sums, measured
from svmcore.kernel.points import is_sparse, padded
from svmcore.solvers import _ipm_jit as ipm

_BLOCK = 1 << 17  # features of a block that is widened
BINS = 256  # a search along a line looks at so many bins


class LinearPart(NamedTuple):
    """What never changes."""

    first: int  # rows of the parts before it
    rows: int
    qp: DualQP
    panels: Any
    centre: FloatArray


class LinearState(NamedTuple):
    """Where a part stands: its exact point, and margins."""

    exact: FloatArray
    residual: FloatArray  # c - Z w where the rounds of bands stand
    tried: FloatArray  # the same where they have looked
    sides: FloatArray  # the bounds that these want
    band: IntArray  # the variables that the master has taken


class Taken(NamedTuple):
    """The variables of a band, with their centred rows; what all others add to (Z' beta, sum beta) since the last look."""

    at: IntArray
    rows: FloatArray
    c: FloatArray
    lower: FloatArray
    upper: FloatArray
    diag: FloatArray
    w: FloatArray
    total: float
    gathered: int


# ---- a part ----------------------------------------------------------------------------------------------------------


@one_blas_thread
def member(first: int, source: Any, task: Assignment) -> LinearPart:
    """A part of a linear machine."""
    part = Part(0, source, task)
    centre = task.centre if part.qp.equality else np.zeros(task.n_features)
    return LinearPart(first, part.n, part.qp, _panels(part.X, part.qp.point, centre), centre)


def state_of(part: LinearPart) -> LinearState:
    """Where it begins."""
    zeros, c = np.zeros(len(part.qp.c)), part.qp.c
    return LinearState(zeros, c, c, zeros, np.empty(0, np.int64))


def _panels(X: Any, points: IntArray, centre: FloatArray) -> Any:
    """Rows in panels, in their own precision; padding is at the centre."""
    m, d = len(points), len(centre)
    dtype = np.float64 if is_sparse(X) else X.dtype
    panels = np.empty((padded(m) // LANES, d, LANES), dtype)
    for first in range(0, m, BLOCK):
        point = points[first : first + BLOCK]
        rows = X[int(point[0]) : int(point[-1]) + 1] if (np.diff(point) == 1).all() else X[point]
        rows = rows.toarray() if is_sparse(rows) else rows
        block = np.empty((-(-len(point) // LANES) * LANES, d), dtype)
        block[: len(point)] = rows
        block[len(point) :] = centre
        panels[first // LANES : first // LANES + len(block) // LANES] = block.reshape(-1, LANES, d).transpose(0, 2, 1)
    return panels


def _blocks(part: LinearPart) -> Iterator[tuple[slice, FloatArray]]:
    """Blocks of the variables, and their centred rows in float64, with padding."""
    panels, m = part.panels, len(part.qp.c)
    d = panels.shape[1]
    count = max(1, _BLOCK // (max(1, d) * LANES))
    scratch = np.empty((min(count, len(panels)), d, LANES))
    for a in range(0, len(panels), count):
        b = min(a + count, len(panels))
        Z = scratch[: b - a]
        np.subtract(panels[a:b], part.centre[:, None], out=Z)
        yield slice(a * LANES, min(b * LANES, m)), Z


def _features(part: LinearPart, index: IntArray) -> FloatArray:
    """Centred rows of some variables."""
    rows: FloatArray = part.panels[index // LANES, :, index % LANES].astype(np.float64)
    return rows - part.centre


def _times(Z: FloatArray, w: FloatArray, here: slice) -> FloatArray:
    """Z w over a block, without its padding."""
    out: FloatArray = np.empty((1, len(Z) * LANES))
    ipm.rows_times(Z, w[None], out)
    return out[0, : here.stop - here.start]


class _Moments:
    """Moments of weights, added up block by block; `gram` are those of the first ones."""

    def __init__(self, part: LinearPart, count: int, *, gram: bool = True) -> None:
        d = part.panels.shape[1]
        self.with_gram, self.totals = gram, np.zeros(count)
        self.gram, self._one = np.zeros((d, d) if gram else 0), np.empty((d, d))
        self.columns, self._some = np.zeros((count, d)), np.empty((count, d))

    def add(self, Z: FloatArray, weights: FloatArray) -> None:
        """Weights of a block, one row each; without padding they get zeros."""
        if weights.shape[1] < len(Z) * LANES:
            weights = np.hstack([weights, np.zeros((len(weights), len(Z) * LANES - weights.shape[1]))])
        weights = np.ascontiguousarray(weights)
        if self.with_gram:
            weighted_gram(Z, weights[0], len(self._one), self._one)
            self.gram += self._one
        ipm.columns_times(Z, weights, self._some)
        self.columns += self._some
        self.totals += weights.sum(axis=1)

    def sums(self) -> Sums:
        """All of them."""
        return Sums(self.totals, self.columns, np.tril(self.gram) if self.with_gram else np.zeros(0))


# ---- exact points -----------------------------------------------------------------------------------------------------


def rooms(part: LinearPart, state: LinearState) -> Sums:
    """Of the exact point: sum beta, and the room below and above."""
    beta, qp = state.exact, part.qp
    return Sums(np.array([beta.sum(), _room(beta, qp.lower).sum(), _room(beta, qp.upper).sum()]))


def _room(beta: FloatArray, bound: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(np.where(np.isfinite(bound), beta - bound, beta)))


def spread(part: LinearPart, state: LinearState, share: float) -> tuple[LinearState, Sums]:
    """Every variable gives this share of its room: below it where the share is positive. Z' beta, sum beta, sum |beta|."""
    exact = state.exact - share * _room(state.exact, part.qp.lower if share > 0.0 else part.qp.upper)
    moments = _Moments(part, 1, gram=False)
    for here, Z in _blocks(part):
        moments.add(Z, exact[None, here])
    found = moments.sums()
    return state._replace(exact=exact), found._replace(totals=np.append(found.totals, np.abs(exact).sum()))


def measure(part: LinearPart, state: LinearState, w: FloatArray, bias: float) -> Sums:
    """The certificate of the exact point at (w, bias)."""
    qp = part.qp
    v = qp.c - qp.diag * state.exact
    for here, Z in _blocks(part):
        v[here] -= _times(Z, w, here)
    return measured(qp, state.exact, v, bias)


def respond(part: LinearPart, state: LinearState, w: FloatArray, bias: float) -> tuple[LinearState, Sums]:
    """Squared losses: every variable as (w, bias) wants it; the normal matrix of those inside, Z' beta, sum beta."""
    qp, found, exact = part.qp, _Moments(part, 2), np.empty(len(part.qp.c))
    for here, Z in _blocks(part):
        wanted = (qp.c[here] - _times(Z, w, here) - bias) / qp.diag[here]
        exact[here] = np.clip(wanted, qp.lower[here], qp.upper[here])
        found.add(Z, np.stack([np.where(exact[here] == wanted, 1.0 / qp.diag[here], 0.0), exact[here]]))
    return state._replace(exact=exact), found.sums()


# ---- a band around the margin ----------------------------------------------------------------------------------------


def census(part: LinearPart, _state: LinearState) -> Sums:
    """Variables, those that start at their lower bound, the sum of upper bounds; a column each; the least diagonal."""
    qp = part.qp
    totals = np.array([len(qp.c), np.count_nonzero(qp.lower >= 0.0), qp.upper.sum()])
    return Sums(totals, np.zeros(len(part.centre)), low=np.array([qp.diag.min(initial=np.inf)]))


def look(
    part: LinearPart, state: LinearState, w: FloatArray, bias: float, values: FloatArray | None
) -> tuple[LinearState, Sums]:
    """Try (w, bias), in one pass. With `values` of the last band the exact point is what `take` has left, and these.

    Sums: of the exact point as `measure`; then (Z' beta, sum beta) of it and of the point whose variables are all at the
    bound that (w, bias) wants, sum |beta|, and the loss.
    """
    qp, exact = part.qp, state.exact
    if values is not None:
        exact = state.sides.copy()
        exact[state.band] = values
    found, tried, sides = _Moments(part, 2, gram=False), np.empty(len(exact)), np.empty(len(exact))
    for here, Z in _blocks(part):
        tried[here] = qp.c[here] - _times(Z, w, here)
        sides[here] = np.where(tried[here] > bias, qp.upper[here], qp.lower[here])
        found.add(Z, np.stack([exact[here], sides[here]]))
    state = state._replace(exact=exact, tried=tried, sides=sides)
    at, sums = measured(qp, exact, tried - qp.diag * exact, bias), found.sums()
    more = [*sums.totals, np.abs(exact).sum(), sides @ (tried - bias)]
    return state, at._replace(totals=np.append(at.totals, more), columns=sums.columns)


def heap(part: LinearPart, state: LinearState, what: str, ends: tuple[float, float], bias: float, after: float) -> Sums:
    """Weights of what lies below the first end, and in bins from there to the other.

    "distance": one for every variable, by its distance from the margin at `bias`. "bias": its box, by the bias at which
    it changes sides. "way": the slope that it adds to the loss, by where it changes sides on the way to what was tried.
    """
    box = part.qp.upper - part.qp.lower
    if what == "distance":
        place, weight = np.abs(state.residual - bias), np.ones(len(box))
    elif what == "bias":
        place, weight = state.residual, box
    else:
        step = (state.tried - after) - (state.residual - bias)
        place = np.divide(bias - state.residual, step, out=np.full(len(box), np.inf), where=step != 0.0)
        place[place <= 0.0] = np.inf
        weight = box * np.abs(step)
    some = (ends[0] <= place) & (place <= ends[1])
    bins = np.histogram(place[some], bins=BINS, range=ends, weights=weight[some])[0]
    return Sums(np.append(float(weight[place < ends[0]].sum()), bins))


def slope(part: LinearPart, state: LinearState, bias: float, after: float) -> Sums:
    """How the loss changes at first on the way to what was tried."""
    here = state.residual - bias
    step = (state.tried - after) - here
    grows = (here > 0.0) | ((here == 0.0) & (step > 0.0))
    return Sums(np.array([np.where(grows, part.qp.upper, part.qp.lower) @ step]))


def move(part: LinearPart, state: LinearState, share: float, bias: float) -> tuple[LinearState, Sums]:
    """Go this share of the way to what was tried; the loss there, and the largest residual."""
    residual = state.tried if share == 1.0 else state.residual + share * (state.tried - state.residual)
    v = residual - bias
    with np.errstate(invalid="ignore"):
        loss = np.where(v == 0.0, 0.0, np.where(v > 0.0, part.qp.upper, part.qp.lower) * v)
    return state._replace(residual=residual), Sums(
        np.array([loss.sum()]), high=np.abs(v).max(initial=0.0, keepdims=True)
    )


def take(
    part: LinearPart, state: LinearState, bias: float, width: float, shares: tuple[float, float], seed: int
) -> tuple[LinearState, Taken]:
    """The variables within `width` of the margin, or shares of those that grow and shrink: a few rows, no pass.

    All others are put to the bound that they want. A sample stands for all variables of the band; it is the same rows
    whatever the parts are.
    """
    qp = part.qp
    v = state.residual - bias
    near = np.abs(v) <= width
    sides = np.where(near, 0.0, np.where(v > 0.0, qp.upper, qp.lower))
    changed = np.flatnonzero(sides != state.sides)
    step, w = (sides - state.sides)[changed], np.zeros(len(part.centre))
    for first in range(0, len(changed), BLOCK):
        w += step[first : first + BLOCK] @ _features(part, changed[first : first + BLOCK])
    if min(shares) < 1.0:
        grows = (qp.lower >= 0.0).astype(int)
        draws = np.random.Generator(np.random.PCG64(seed).advance(2 * part.first)).random((part.rows, 2))
        near &= draws[qp.point, grows] < np.where(grows, shares[0], shares[1])
    at = np.flatnonzero(near)
    taken = Taken(
        at, _features(part, at), qp.c[at], qp.lower[at], qp.upper[at], qp.diag[at], w, float(step.sum()),
        len(changed) + len(at),
    )  # fmt: skip
    return state._replace(sides=sides, band=at), taken


def coefficients(part: LinearPart, state: LinearState) -> tuple[IntArray, FloatArray]:
    """Rows with a signed coefficient, and these."""
    return coefficients_of(part.qp, state.exact, part.rows)
