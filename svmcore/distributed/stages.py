"""One part of a linear machine: the interior point of `solvers/interior` in stages, each of which returns sums.

Every vector over the part's variables stays here; what leaves is d x d, d, or a number. A step takes three stages instead of
the five of its textbook form: `advance` moves and returns the next normal matrix, `predict` also returns what the corrector
will need for any mu, `correct` returns the way to the boundary. Rows are kept as panels in their own precision, and widened
to float64 a block at a time while that block is in the cache. Columns are centred where sum(beta) = 0 makes that free.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from svmcore._kernels import weighted_gram
from svmcore._threads import one_blas_thread
from svmcore._types import LANES, DualQP, FloatArray, IntArray
from svmcore.distributed.parts import BLOCK, Assignment, Part
from svmcore.kernel.points import is_sparse, padded
from svmcore.problem import measures
from svmcore.solvers import _ipm_jit as ipm
from svmcore.solvers import interior

_BLOCK = 1 << 17  # features of a block that is widened
BINS = 256  # a search along a line looks at so many bins
CHANGES_NOTHING = (
    "census", "sizes", "ridge", "farthest", "newton", "bounded", "weight", "measure", "heap", "slope", "vectors",
)  # fmt: skip
"""Stages that need not be done again on the way back to where a part was."""
WITHOUT_A_PASS = ("census", "begin", "inside", "spread", "heap", "slope", "move", "take")
"""Stages that all parts are asked for and that do not look at the rows."""


class Moments(NamedTuple):
    """Sums over the variables of a part, weighted: Z' E Z (lower half), Z' E for each weight, the sums of the weights."""

    gram: FloatArray
    columns: FloatArray
    totals: FloatArray


class Worst(NamedTuple):
    """Variables that a part hands to the master, with their centred rows."""

    at: IntArray
    pull: FloatArray
    rows: FloatArray
    beta: FloatArray
    c: FloatArray
    lower: FloatArray
    upper: FloatArray


class PartMeasures(NamedTuple):
    """What a part says of a dual point at (w, bias)."""

    top: float
    bottom: float
    free: int
    free_sum: float
    dual: float
    gap: float
    support: int
    worst: Worst


class Looked(NamedTuple):
    """What a part says of its exact point and of another (w, bias), seen in one pass.

    The columns and totals are (Z' beta, sum beta) of the exact point, and of one whose variables are all at the bound that
    (w, bias) wants.
    """

    measured: PartMeasures
    columns: FloatArray
    totals: FloatArray  # the sums of both, and then the sum of |beta| of the exact point
    loss: float


class Census(NamedTuple):
    """What a part holds: variables, those that start at their lower bound, the sum of upper bounds, the least diagonal."""

    variables: int
    rising: int
    upper: float
    diagonal: float
    features: int


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


class Stages:
    """The state of a part. Every method is one pass over its rows, unless it says otherwise."""

    def __init__(self, number: int, rows: int, qp: DualQP, panels: Any, centre: FloatArray) -> None:
        self.number, self.rows = number, rows
        self.qp, self.m, self.d = qp, len(qp.c), panels.shape[1]
        self.size, self.panels, self.centre = padded(self.m), panels, centre
        self.passes = 0
        count = max(1, _BLOCK // (max(1, self.d) * LANES))
        self._scratch = np.empty((count, self.d, LANES))
        self.begun = False
        self.x: ipm.Iterate
        self.step: ipm.NewtonStep
        self.exact = np.zeros(self.m)
        self.is_free = np.zeros(self.m, bool)
        self.residual = self.tried = qp.c
        self.sides = np.zeros(self.m)

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Blocks of the variables with their centred rows in float64."""
        count = len(self._scratch)
        self.passes += 1
        for a in range(0, len(self.panels), count):
            b = min(a + count, len(self.panels))
            Z = self._scratch[: b - a]
            np.subtract(self.panels[a:b], self.centre[:, None], out=Z)
            yield slice(a * LANES, b * LANES), Z

    def _padded(self, values: FloatArray, filling: float = 0.0) -> FloatArray:
        out = np.full(self.size, filling)
        out[: self.m] = values
        return out

    def _moments(self, weights: FloatArray, *, gram: bool = True) -> Moments:
        """Moments of padded weights, shape (c, size); the first ones weigh the Gram matrix."""
        d, c = self.d, len(weights)
        total, one = np.zeros((d, d)), np.empty((d, d))
        columns, some = np.zeros((c, d)), np.empty((c, d))
        for at, Z in self.blocks():
            if gram:
                weighted_gram(Z, np.ascontiguousarray(weights[0, at]), d, one)
                total += one
            ipm.columns_times(Z, np.ascontiguousarray(weights[:, at]), some)
            columns += some
        return Moments(np.tril(total), columns, weights.sum(axis=1))

    def _fitted(self, w: FloatArray) -> FloatArray:
        """Z w over the variables, padded."""
        out: FloatArray = np.empty(self.size)
        for at, Z in self.blocks():
            ipm.rows_times(Z, w[None, :], out[None, at])
        return out

    # ---- the start ---------------------------------------------------------------------------------------------------

    def sizes(self) -> tuple[int, float, float, float, float]:
        """(variables, sum |c|, sum of squares of Z, sum of bounds that exist, least diagonal)."""
        energy = sum(float(np.vdot(Z, Z)) for _, Z in self.blocks())
        qp = self.qp
        bounds = float(np.isfinite(qp.lower).sum() + np.isfinite(qp.upper).sum())
        return self.m, float(np.abs(qp.c).sum()), energy, bounds, float(qp.diag.min(initial=np.inf))

    def begin(self, unit: float, curvature: float) -> float:
        """Set what the start needs; the sum of the boxes."""
        qp = self.qp
        self.unit = unit
        self.rises = qp.lower >= 0.0
        self.sign, self.home = np.where(self.rises, 1.0, -1.0), np.where(self.rises, qp.lower, qp.upper)
        self.open = ~(np.isfinite(qp.lower) & np.isfinite(qp.upper))
        self.curvature = np.where(qp.diag > 0, qp.diag, curvature)
        with np.errstate(invalid="ignore"):
            self.box = np.where(self.open, unit / self.curvature, qp.upper - qp.lower)
        return float(self.box.sum())

    def ridge(self, steepest: float) -> Moments:
        """The ridge fit of c."""
        inverse = 1.0 / (self.qp.diag + 4.0 * self.unit / self.box + steepest)
        return self._moments(np.stack([self._padded(inverse), self._padded(inverse * self.qp.c)]))

    def force(self, w: FloatArray, bias: float) -> float:
        """What pulls each variable towards the bound it starts from; sum of box times its size."""
        self.pull = self.sign * (self._fitted(w)[: self.m] + bias - self.qp.c)
        return float(self.box @ np.maximum(np.abs(self.pull), interior.FLATTEST * self.unit))

    def centred(self, mu: float) -> Moments:
        """Variables that suit the force: (Z' beta, sum beta)."""
        slope = self.box * self.pull / mu
        root = np.sqrt(4.0 + slope * slope)
        self.near, self.far = self.box * (2.0 / (2.0 + slope + root)), self.box * (2.0 / (2.0 - slope + root))
        if self.open.any():
            root = np.sqrt(self.pull * self.pull + 4.0 * mu * self.curvature)
            self.near = np.where(self.open, 2.0 * mu / (self.pull + root), self.near)
            self.far = np.where(self.open, np.inf, self.far)
        self.beta = self.home + self.sign * self.near
        return self._moments(self._padded(self.beta)[None, :], gram=False)

    def farthest(self, wrong: FloatArray) -> float:
        """The largest margin of a weight vector."""
        return float(np.max(np.abs(self._fitted(wrong)[: self.m]), initial=0.0))

    def newton(self, mu: float) -> Moments:
        """The normal matrix of a step of the start."""
        stiffness = np.where(self.open, self.curvature, self.qp.diag)
        inverse = 1.0 / (stiffness + mu / self.near**2 + mu / self.far**2)
        return self._moments(self._padded(inverse)[None, :])

    def bounds(self, w: FloatArray, bias: float, mu: float) -> tuple[ipm.Arrival, Moments]:
        """Leave the start: slacks and multipliers, and the first stage. `w` is Z' beta of all parts."""
        qp, pad, n = self.qp, self._padded, self.size
        far = np.where(self.open, 1.0, self.far)
        pull, push = np.where(self.open, 0.0, mu / self.far), mu / self.near
        up = self.rises
        gradient = self._fitted(w)[: self.m] + qp.diag * self.beta - qp.c
        self.x = ipm.Iterate(
            beta=pad(self.beta),
            s=pad(np.where(up, self.near, far), 1.0),
            u=pad(np.where(up, far, self.near), 1.0),
            z=pad(np.where(up, push, pull)),
            t=pad(np.where(up, pull, push)),
            gradient=pad(gradient, -bias),
            diag=pad(qp.diag, interior.IMMOVABLE),
            lower_side=pad(np.isfinite(qp.lower) * 1.0),
            upper_side=pad(np.isfinite(qp.upper) * 1.0),
        )
        vectors, pairs = np.zeros((6, n)), np.zeros((2, 2, n))
        self.step = ipm.NewtonStep(vectors[0], vectors[1], pairs[0], pairs[1], *vectors[2:])
        self.begun = True
        del self.near, self.far, self.pull, self.beta, self.sign, self.home, self.box, self.curvature, self.open, up
        return self.advance(0.0, 0.0, bias)

    # ---- a step ------------------------------------------------------------------------------------------------------

    def advance(self, length: float, db: float, bias: float) -> tuple[ipm.Arrival, Moments]:
        """Take the step; the next normal matrix and right-hand side."""
        at = ipm.move(self.x, self.step, length, db, bias)
        return at, self._moments(self.step.weights)

    def _cut(self, at: slice) -> tuple[ipm.Iterate, ipm.NewtonStep]:
        step = ipm.NewtonStep(*(array[:, at] if array.ndim == 2 else array[at] for array in self.step))
        return ipm.Iterate(*(array[at] for array in self.x)), step

    def predict(self, h: FloatArray, db: float, bias: float) -> tuple[float, float, Moments]:
        """The step that aims at zero: its way to the boundary, its curvature, and the corrector's right-hand sides."""
        columns, some = np.zeros((2, self.d)), np.empty((2, self.d))
        totals, least, curve = np.zeros(2), 1.0, 0.0
        for at, Z in self.blocks():
            x, step = self._cut(at)
            fitted = np.empty((2, len(x.s)))
            ipm.rows_times(Z, h, fitted)
            step.fitted[:] = fitted
            inverse, weighted = step.weights
            np.subtract(inverse, inverse * fitted[0], out=step.unit)
            np.subtract(weighted, inverse * fitted[1], out=step.base)
            length, bend = ipm.predicted(x, step, db)
            least, curve = min(least, length), curve + bend
            ipm.correct(x, step, bias, db, 0.0)
            pair = np.stack([step.weights[1], step.weights[0] * (step.by_s - step.by_u)])
            ipm.columns_times(Z, pair, some)
            columns += some
            totals += pair.sum(axis=1)
        return least, curve, Moments(np.empty((0, 0)), columns, totals)

    def correct(self, h: FloatArray, before: float, db: float, mu: float, bias: float) -> float:
        """The corrected step; its way to the boundary. `before` is the predictor's db."""
        least = 1.0
        for at, Z in self.blocks():
            x, step = self._cut(at)
            ipm.correct(x, step, bias, before, mu)
            fitted = np.empty((1, len(x.s)))
            ipm.rows_times(Z, h[None, :], fitted)
            step.fitted[1] = fitted[0]
            np.subtract(step.weights[1], step.weights[0] * fitted[0], out=step.base)
            least = min(least, ipm.reach(x, step, db))
        return least

    # ---- from inside to exact bounds ---------------------------------------------------------------------------------

    def classify(self, size: float) -> tuple[Worst, Moments]:
        """Decide which variables are at a bound; the free ones, and the sums of all others. `size` stands for open boxes."""
        qp, x = self.qp, ipm.Iterate(*(vector[: self.m] for vector in self.x))
        boxed = np.isfinite(qp.upper) & np.isfinite(qp.lower)
        with np.errstate(invalid="ignore"):
            box = np.where(boxed, qp.upper - qp.lower, size)
        at_lower = (x.lower_side > 0) & (x.s / box < x.z / self.unit)
        at_upper = (x.upper_side > 0) & (x.u / box < x.t / self.unit)
        self.exact = np.where(at_lower, qp.lower, np.where(at_upper, qp.upper, x.beta))
        self.is_free = ~at_lower & ~at_upper
        return self._worst(np.flatnonzero(self.is_free)), self.bounded()

    def bounded(self) -> Moments:
        """(Z' beta, sum beta) of all variables that the master does not hold."""
        return self._moments(self._padded(np.where(self.is_free, 0.0, self.exact))[None, :], gram=False)

    def weight(self) -> Moments:
        """(Z' beta, sum beta) of the exact point, and sum |beta|."""
        found = self._moments(self._padded(self.exact)[None, :], gram=False)
        return found._replace(totals=np.append(found.totals, np.abs(self.exact).sum()))

    def features(self, index: IntArray) -> FloatArray:
        """Centred rows of some variables. No pass."""
        rows: FloatArray = self.panels[index // LANES, :, index % LANES].astype(np.float64)
        return rows - self.centre

    def _worst(self, index: IntArray, pull: FloatArray | None = None) -> Worst:
        qp = self.qp
        return Worst(
            index, np.zeros(len(index)) if pull is None else pull, self.features(index), self.exact[index],
            qp.c[index], qp.lower[index], qp.upper[index],
        )  # fmt: skip

    def place(self, index: IntArray, values: FloatArray) -> None:
        """Set variables that the master holds. No pass."""
        self.exact[index] = values
        self.is_free[index] = True

    def inside(self) -> FloatArray:
        """The interior point, if there is one, as the exact point: (sum beta, room below, room above). No pass."""
        qp = self.qp
        if self.begun:
            self.exact = np.clip(self.x.beta[: self.m], qp.lower, qp.upper)
        self.is_free[:] = False
        return np.array([self.exact.sum(), self._room(qp.lower).sum(), self._room(qp.upper).sum()])

    def _room(self, bound: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):
            return np.asarray(np.abs(np.where(np.isfinite(bound), self.exact - bound, self.exact)))

    def spread(self, share: float) -> None:
        """Every variable gives this share of its room: below it where the share is positive. No pass."""
        self.exact = self.exact - share * self._room(self.qp.lower if share > 0.0 else self.qp.upper)

    def measure(self, w: FloatArray, bias: float, most: int) -> PartMeasures:
        """Extremes of the residual, sums of the certificate at `bias`, and the worst variables that nobody holds."""
        v = self.qp.c - self._fitted(w)[: self.m] - self.qp.diag * self.exact
        return self._measured(v, bias, most)

    def _measured(self, v: FloatArray, bias: float, most: int) -> PartMeasures:
        qp, beta = self.qp, self.exact
        up, down = beta < qp.upper, beta > qp.lower
        free = up & down
        top, bottom = measures.extremes(qp, beta, v)
        pull = np.maximum(np.where(up, v - bias, 0.0), np.where(down, bias - v, 0.0))
        pull[self.is_free] = 0.0
        chosen = np.argsort(-pull, kind="stable")[:most] if most else np.empty(0, np.int64)
        chosen = chosen[pull[chosen] > 0.0]
        return PartMeasures(
            top, bottom, int(np.count_nonzero(free)), float(v[free].sum()), -measures.objective(qp, beta, v),
            measures.gap(qp, beta, v, bias), int(np.count_nonzero(beta)), self._worst(chosen, pull[chosen]),
        )  # fmt: skip

    def respond(self, w: FloatArray, bias: float) -> Moments:
        """Squared losses: every variable as (w, bias) wants it; the normal matrix of those inside, Z' beta, sum beta."""
        qp = self.qp
        d, weights = self.d, np.zeros((2, self.size))
        total, one, columns, some = np.zeros((d, d)), np.empty((d, d)), np.zeros((2, d)), np.empty((2, d))
        for at, Z in self.blocks():
            here = slice(at.start, min(at.stop, self.m))
            fitted = np.empty((1, at.stop - at.start))
            ipm.rows_times(Z, w[None, :], fitted)
            wanted = (qp.c[here] - fitted[0, : here.stop - here.start] - bias) / qp.diag[here]
            weights[1, here] = np.clip(wanted, qp.lower[here], qp.upper[here])
            weights[0, here] = np.where(weights[1, here] == wanted, 1.0 / qp.diag[here], 0.0)
            weighted_gram(Z, np.ascontiguousarray(weights[0, at]), d, one)
            total += one
            ipm.columns_times(Z, np.ascontiguousarray(weights[:, at]), some)
            columns += some
        self.exact = weights[1, : self.m].copy()
        return Moments(np.tril(total), columns, weights.sum(axis=1))

    # ---- a band around the margin -------------------------------------------------------------------------------------

    def census(self) -> Census:
        """Counts. No pass."""
        qp = self.qp
        rising = int(np.count_nonzero(qp.lower >= 0.0))
        return Census(self.m, rising, float(qp.upper.sum()), float(qp.diag.min(initial=np.inf)), self.d)

    def look(self, w: FloatArray, bias: float, values: FloatArray | None) -> Looked:
        """Try (w, bias), in one pass. With `values` of the last band the exact point is what `take` has left, and these."""
        qp, d = self.qp, self.d
        if values is not None:
            self.exact = self.sides
            self.exact[self.band] = values
        pair, fitted = np.zeros((2, self.size)), np.empty((1, self.size))
        pair[0, : self.m] = self.exact
        columns, some = np.zeros((2, d)), np.empty((2, d))
        self.tried = np.empty(self.m)
        for at, Z in self.blocks():
            ipm.rows_times(Z, w[None, :], fitted[:, at])
            here = slice(at.start, min(at.stop, self.m))
            self.tried[here] = qp.c[here] - fitted[0, here]
            pair[1, here] = np.where(self.tried[here] > bias, qp.upper[here], qp.lower[here])
            ipm.columns_times(Z, np.ascontiguousarray(pair[:, at]), some)
            columns += some
        self.sides = pair[1, : self.m].copy()
        totals = np.append(pair.sum(axis=1), np.abs(self.exact).sum())
        loss = float(self.sides @ (self.tried - bias))
        return Looked(self._measured(self.tried - qp.diag * self.exact, bias, 0), columns, totals, loss)

    def heap(self, what: str, low: float, high: float, bias: float, after: float) -> FloatArray:
        """Weights of what lies below `low`, and in bins from there to `high`. No pass.

        "distance": one for every variable, by its distance from the margin at `bias`. "bias": its box, by the bias at which
        it changes sides. "way": the slope that it adds to the loss, by where it changes sides on the way to what was tried.
        """
        box = self.qp.upper - self.qp.lower
        if what == "distance":
            place, weight = np.abs(self.residual - bias), np.ones(self.m)
        elif what == "bias":
            place, weight = self.residual, box
        else:
            step = (self.tried - after) - (self.residual - bias)
            place = np.divide(bias - self.residual, step, out=np.full(self.m, np.inf), where=step != 0.0)
            place[place <= 0.0] = np.inf
            weight = box * np.abs(step)
        some = (low <= place) & (place <= high)
        bins = np.histogram(place[some], bins=BINS, range=(low, high), weights=weight[some])[0]
        return np.append(float(weight[place < low].sum()), bins)

    def slope(self, bias: float, after: float) -> float:
        """How the loss changes at first on the way to what was tried. No pass."""
        here = self.residual - bias
        step = (self.tried - after) - here
        grows = (here > 0.0) | ((here == 0.0) & (step > 0.0))
        return float(np.where(grows, self.qp.upper, self.qp.lower) @ step)

    def move(self, share: float, bias: float) -> tuple[float, float]:
        """Go this share of the way to what was tried; the loss there, and the largest residual. No pass."""
        self.residual = self.tried if share == 1.0 else self.residual + share * (self.tried - self.residual)
        v = self.residual - bias
        with np.errstate(invalid="ignore"):
            loss = np.where(v == 0.0, 0.0, np.where(v > 0.0, self.qp.upper, self.qp.lower) * v)
        return float(loss.sum()), float(np.abs(v).max(initial=0.0))

    def take(self, bias: float, width: float, shares: tuple[float, float], seed: int) -> Taken:
        """The variables within `width` of the margin, or shares of those that grow and shrink. No pass, but a few rows.

        All others are put to the bound that they want. A sample stands for all variables of the band.
        """
        qp = self.qp
        v = self.residual - bias
        inside = np.abs(v) <= width
        sides = np.where(inside, 0.0, np.where(v > 0.0, qp.upper, qp.lower))
        changed = np.flatnonzero(sides != self.sides)
        step, w = (sides - self.sides)[changed], np.zeros(self.d)
        for first in range(0, len(changed), BLOCK):
            w += step[first : first + BLOCK] @ self.features(changed[first : first + BLOCK])
        self.sides = sides
        if min(shares) < 1.0:
            rng = np.random.default_rng([seed, self.number])
            inside &= rng.random(self.m) < np.where(qp.lower >= 0.0, shares[0], shares[1])
        self.band = np.flatnonzero(inside)
        at = self.band
        return Taken(
            at,
            self.features(at),
            qp.c[at],
            qp.lower[at],
            qp.upper[at],
            qp.diag[at],
            w,
            float(step.sum()),
            len(changed) + len(at),
        )

    def coefficients(self) -> FloatArray:
        """One signed coefficient for every row. No pass."""
        out = np.zeros(self.rows)
        np.add.at(out, self.qp.point, self.exact)
        return out

    def vectors(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Rows with a coefficient, these, and their features. No pass."""
        coef = self.coefficients()
        index = np.flatnonzero(coef)
        place = np.zeros(self.rows, np.int64)
        place[self.qp.point] = np.arange(self.m)
        return index, coef[index], self.features(place[index]) + self.centre


def _panels(X: Any, points: IntArray, centre: FloatArray) -> Any:
    """Rows in panels, in their own precision; padding is at the centre."""
    m, d = len(points), len(centre)
    dtype = np.float64 if is_sparse(X) else X.dtype
    panels = np.empty((padded(m) // LANES, d, LANES), dtype)
    for first in range(0, m, BLOCK):
        point = points[first : first + BLOCK]
        rows = _run(X, point) if (np.diff(point) == 1).all() else X[point]
        rows = rows.toarray() if is_sparse(rows) else rows
        block = np.empty((-(-len(point) // LANES) * LANES, d), dtype)
        block[: len(point)] = rows
        block[len(point) :] = centre
        panels[first // LANES : first // LANES + len(block) // LANES] = block.reshape(-1, LANES, d).transpose(0, 2, 1)
    return panels


def _run(X: Any, point: IntArray) -> Any:
    """Neighbouring rows."""
    return X[int(point[0]) : int(point[-1]) + 1] if len(point) else X[:0]


def member(number: int, source: Any, task: Assignment) -> Stages:
    """A part of a linear machine."""
    with one_blas_thread:
        part = Part(number, source, task)
        centre = task.centre if part.qp.equality else np.zeros(task.n_features)
        return Stages(number, part.n, part.qp, _panels(part.X, part.qp.point, centre), centre)


def member_of(Z: FloatArray, qp: DualQP) -> Stages:
    """Centred rows in memory as a part."""
    centre = np.zeros(Z.shape[1])
    return Stages(0, len(Z), qp, _panels(Z, qp.point, centre), centre)
