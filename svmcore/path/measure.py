"""How good a path is: duality gap and KKT violation, recomputed from kernel products and from what the path stores.

A path that has just been computed is measured at knots, and half way between two knots (`check_path`). Between two knots
values and residuals are linear, and the KKT conditions stay the same. So if both ends and the middle are good, all places
between them are good. All stretches are looked at, or the longest and some others that are evenly spread.

A finished path is measured for any C (`certify`). A few values come first, so that there is an answer when the work must
stop. Then all others follow.

Cost: one product with K for some places together. Its rows are those of the tracker if it has all of them. Otherwise they
are computed from the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from svmcore._control import Control
from svmcore._types import NONZERO, FloatArray, IntArray, Status
from svmcore.kernel.rows import RowStore
from svmcore.kernel.table import facts_of
from svmcore.path.cross import Cross
from svmcore.path.elbow_jit import LOST
from svmcore.path.values import hat, vectors
from svmcore.problem import measures

ZERO = 1e-10
"""A residual below this share of lambda is zero: the point lies on the margin."""
_RANK = 1e-14
"""A pivot is zero if it is below this share of the largest one, times the number of points."""
_REGULAR = 1e-6
"""If no pivot of Cholesky's factor is below this share of the largest one, the rank is full without a search."""
# Stretches. So many are measured together. The first so many of a path that must be measured are measured in any case.
_TOGETHER, _FIRST_STRETCHES = 64, 4
# At most so many knots are looked at for a sum of values that is not zero: those where it is above this share of LOST.
_FIRST_SUSPECTS, _SUSPECT = 64, 0.5
# Between two looks at the clock there are at most _PIECE kernel values times features, or products. At most _HELD values of
# variables are held at a time.
_PIECE, _HELD = 1 << 26, 1 << 21
# The first pass over the kernel measures _FIRST values of C. Each pass that follows measures _MORE times as many.
_FIRST, _MORE = 1, 4

GoOn = Callable[[], bool]


def _always() -> bool:
    return True


class Point(NamedTuple):
    """The places that are measured: lambda, the variables, with one row per lambda, and the bias. They are hat variables."""

    lam: FloatArray
    beta: FloatArray
    bias: FloatArray


class KnotMeasures(NamedTuple):
    """The KKT violation, as LIBSVM has it, and the relative duality gap at each lambda.

    And the residuals of all variables.
    """

    violation: FloatArray
    gap: FloatArray
    residual: FloatArray


def measure(path: Any, point: Point, product: FloatArray) -> KnotMeasures:
    """The measures, from K beta with the embedded offset. `product` has a row for each row of `point.beta`."""
    lam, beta, bias = point
    problem = path._problem
    room, back = problem.upper - beta, problem.lower - beta
    term = _terms(path, point)
    unshifted = term - product
    residual = unshifted - bias[:, None]
    gap = np.maximum(residual * room, residual * back).sum(axis=1) - bias * beta.sum(axis=1)
    dual = -0.5 * (beta * (term + unshifted)).sum(axis=1)
    top = np.where(room > 0.0, unshifted, -np.inf).max(axis=1, initial=-np.inf)
    bottom = np.where(back < 0.0, unshifted, np.inf).min(axis=1, initial=np.inf)
    violation = measures.spread(top, bottom, path._data.equality)
    size = 1.0 if path.parameter == "epsilon" else lam  # the violation is that of the dual variables themselves
    return KnotMeasures(violation / size, gap / np.maximum(np.abs(gap - dual), problem.floor), residual)


def _terms(path: Any, point: Point) -> FloatArray:
    """The linear term at every lambda."""
    return np.asarray(path._problem.fixed + point.lam[:, None] * path._problem.slope)


# ---- products with the kernel ------------------------------------------------------------------------------------------


class Source:
    """The kernel among the variables of a path. Rows are read if all of them are stored, or else computed from the data."""

    def __init__(self, path: Any, store: RowStore | None = None) -> None:
        self.data = path._data
        self.n = int(path._problem.slope.size)
        self.rows = None if store is None or not store.whole else store.rows[:, : self.n]
        self.cross = Cross(self.data, self.data.X) if self.rows is None else None

    def times(self, beta: FloatArray, go_on: GoOn) -> FloatArray | None:
        """K times every row of beta, in one pass over the columns that have a value. None when the work must stop."""
        support = np.flatnonzero(np.any(beta != 0.0, axis=0))
        coef = np.ascontiguousarray(beta[:, support])
        columns = None if self.cross is None else self.cross.columns(support)
        features = 0 if self.cross is None else 4 + self.data.X.shape[1]
        out = np.empty((beta.shape[0], self.n))
        step = max(1, _PIECE // (max(1, support.size) * (beta.shape[0] + features)))
        for begin in range(0, self.n, step):
            if not go_on():
                return None
            some = slice(begin, min(begin + step, self.n))
            if self.cross is None:
                assert self.rows is not None
                few = 2 * support.size < self.n
                out[:, some] = coef @ self.rows[support, some] if few else beta @ self.rows[some].T
            elif beta.shape[0] == 1:
                out[0, some] = self.cross.values(self.data.groups.first[some], support, coef[0])
            else:
                out[:, some] = coef @ self.cross.block(self.data.groups.first[some], columns).T
        if self.cross is not None:
            out += self.data.spec.kernel.offset * beta.sum(axis=1)[:, None]
        return out

    def block(self, index: IntArray) -> FloatArray:
        """K among some variables, stored by columns, as LAPACK wants it."""
        if self.cross is None:
            assert self.rows is not None
            return np.ascontiguousarray(self.rows[np.ix_(index, index)]).T
        block = self.cross.block(self.data.groups.first[index], self.cross.columns(index))
        return np.ascontiguousarray(block + self.data.spec.kernel.offset).T


# ---- a path that has just been computed --------------------------------------------------------------------------------


class Checked(NamedTuple):
    """The largest KKT violation and relative gap, the C or epsilon of that gap, and the largest null dimension.

    -inf means that nothing was measured. The null dimension is that of the bordered system of all points on the margin.
    Merged duplicates count as several points there. `complete` says that it is the largest of all stretches.
    """

    kkt_violation: float
    relative_gap: float
    C: float
    null_dim: int
    complete: bool = False


def check_path(
    path: Any, store: RowStore | None = None, go_on: GoOn = _always, *, most: int | None = None,
    null: int | None = None, sure: bool = False, knots: bool = True,
) -> Checked:  # fmt: skip
    """Measure `path`, a `Path`, at all of its stretches or at most `most` of them.

    Its null dimension is that of each margin half way between two knots, or of at most `null` margins in a group. When
    `go_on()` says no, the answer is about the places reached. With `sure` a few places are measured whatever it says. Without
    `knots` these are the middles alone.
    """
    source = Source(path, store)
    starts = stretches(path, most)
    first = path._value_of(float(path._track.knot[0, 0]))
    worst = Checked(-np.inf, -np.inf, first, null_dim_of_duplicates(path))
    few = _spread(starts, _FIRST_STRETCHES)
    for some, allowed in ((few, _always), (np.setdiff1d(starts, few), go_on)) if sure else ((starts, go_on),):
        for point, middle in _places(path, some, knots=knots):
            product = source.times(point.beta, allowed)
            if product is None:
                return worst
            found = measure(path, point, product)
            worst = _worse(path, worst, point, found)
            margins = [] if null == 0 else _margins(path, point, found.residual, middle)[:null]
            worst = worst._replace(null_dim=_null_dim(path, source, margins, worst.null_dim, allowed))
    return worst._replace(complete=null is None and starts.size == path._track.knot.shape[0] and go_on())


def stretches(path: Any, most: int | None = None) -> IntArray:
    """The knots that begin stretches of a path, and the last knot. With `most` these are at most so many stretches.

    A quarter of them are the longest, in the logarithm of the linear term's size. Rounding has most room there. The others
    are evenly spread.
    """
    lam = path._track.knot[:, 0]
    last = lam.size - 1
    proper = np.flatnonzero(lam[1:] < lam[:-1])
    if most is None or proper.size <= most:
        return np.arange(last + 1)
    size = path._problem.level + lam
    long = np.argsort(-np.log(size[proper] / np.maximum(size[proper + 1], NONZERO)), kind="stable")[: most // 4]
    return np.unique(np.concatenate([_spread(proper, most - most // 4), proper[long], [last]]))


def _spread(values: IntArray, most: int) -> IntArray:
    """At most `most` of the values, evenly spread."""
    if values.size <= most:
        return values
    return values[np.linspace(0, values.size - 1, most).astype(np.int64)]


def _places(path: Any, starts: IntArray, *, knots: bool = True) -> Iterator[tuple[Point, NDArray[np.bool_]]]:
    """The knots `starts` and the middles of the stretches that begin there, in groups. Without `knots` only the middles.

    Each group comes with an array that says which places are middles.
    """
    knot = path._track.knot
    last = knot.shape[0] - 1
    follows = np.minimum(starts + 1, last)
    kept = vectors(path, np.unique(np.concatenate([starts, follows])))
    known, held = -1, np.empty(0)
    for begin in range(0, starts.size, _TOGETHER):
        here, then = starts[begin : begin + _TOGETHER], follows[begin : begin + _TOGETHER]
        needed = np.unique(np.concatenate([here, then]))
        b = np.array([held if k == known else next(kept) for k in needed.tolist()])
        known, held = int(needed[-1]), b[-1]
        now, end = b[np.searchsorted(needed, here)], b[np.searchsorted(needed, then)]
        at, beta = np.repeat(knot[here], 2, axis=0), np.repeat(now, 2, axis=0)  # each knot, and the middle behind it
        at[1::2], beta[1::2] = 0.5 * (knot[here] + knot[then]), 0.5 * (now + end)
        middle = np.tile([False, True], here.size)
        wanted = np.where(middle, np.repeat(knot[then, 0] < knot[here, 0], 2), knots)
        if wanted.any():
            yield Point(at[wanted, 0], beta[wanted], at[wanted, 1]), middle[wanted]


def lost_share(path: Any) -> float:
    """How far the sum of the values is from zero at the knots, as a share of the sum of their sizes: the largest share.

    A first pass takes sums alone, whose rounding adds up. The knots that it suspects are looked at in full.
    """
    track, problem = path._track, path._problem
    if not path._data.equality:
        return 0.0
    ends, value = np.zeros((3, problem.lower.size)), np.zeros(track.value.size + 1)
    ends[0], ends[1], value[:-1] = problem.lower, problem.upper, track.value  # what is on the elbow has its own value
    moved, (old, new, _) = track.event_index, track.event_move.T
    begin, every, sums = track.offset[:-1], np.arange(ends.shape[1]), []
    for end, own in ((ends, value), (np.abs(ends), np.abs(value))):
        bound = np.empty(moved.size + 1)
        bound[0], bound[1:] = np.add.reduce(end[track.side0, every]), end[new, moved] - end[old, moved]
        elbow = np.add.reduceat(own, begin)
        elbow[begin == track.offset[1:]] = 0.0
        sums.append(bound.cumsum()[track.knot_events] + elbow)
    suspects = (np.abs(sums[0]) > _SUSPECT * LOST * sums[1]).nonzero()[0][:_FIRST_SUSPECTS]
    shares = [abs(b.sum()) / max(np.abs(b).sum(), NONZERO) for b in vectors(path, suspects)]
    return float(max(shares, default=0.0))


def _worse(path: Any, worst: Checked, point: Point, found: KnotMeasures) -> Checked:
    """The worst of what was known and of these places."""
    k = int(np.argmax(np.where(np.isfinite(found.gap), found.gap, np.inf)))
    worst = worst._replace(kkt_violation=max(worst.kkt_violation, float(found.violation.max())))
    if found.gap[k] <= worst.relative_gap:
        return worst
    return worst._replace(relative_gap=float(found.gap[k]), C=path._value_of(float(point.lam[k])))


class Margin(NamedTuple):
    """The variables whose residual is zero at one place, and the largest null dimension that they can have."""

    members: IntArray
    most: int


def _margins(path: Any, point: Point, residual: FloatArray, middle: NDArray[np.bool_]) -> list[Margin]:
    """The different margins in the middles of stretches. Those of the largest possible null dimension come first.

    The elbow of the fast tracker is independent. If no other point is on a margin, it has the null dimension of its
    duplicates.
    """
    problem, count = path._problem, path._data.groups.count
    zero = np.abs(residual) <= ZERO * (problem.level + point.lam[:, None])
    inside = (problem.lower < point.beta) & (point.beta < problem.upper)
    inside &= path.stats.get("factorization") == "auto"
    margins = {}
    for on, elbow in zip((zero | inside)[middle], inside[middle], strict=True):
        most = int(count[on].sum()) - max(1, int(elbow.sum()))
        margins[on.tobytes()] = Margin(np.flatnonzero(on), most)
    return sorted(margins.values(), key=lambda margin: -margin.most)


def _null_dim(path: Any, source: Source, margins: list[Margin], known: int, go_on: GoOn) -> int:
    """The largest null dimension among the systems of some margins, if it is above `known`.

    It is the number of points less the rank of K + s 11' among them. Without an intercept it is the rank of K alone. Points
    that differ are independent where the kernel is an exponential of their distance.
    """
    data, independent = path._data, _independent(path)
    for index, most in margins:
        if most <= known or not go_on():
            break
        points = int(data.groups.count[index].sum())
        known = max(known, points - (index.size if independent else _rank(source, index, data.equality)))
    return known


def _independent(path: Any) -> bool:
    """Whether variables on one margin are always independent: equal points are merged, and K is definite."""
    kernel, data = path._data.spec.kernel, path._data
    merged = path.stats.get("factorization") == "auto" and not data.form.twins
    return merged and facts_of(kernel).exponential and kernel.gamma > 0.0


def null_dim_is_zero(path: Any) -> bool:
    """Whether the null dimension is known to be 0.

    No two points are equal, and the kernel makes different ones independent.
    """
    return _independent(path) and int(path._data.groups.count.max(initial=1)) == 1


def null_dim_of_duplicates(path: Any) -> int:
    """The largest null dimension that comes from duplicates on the elbow alone. k equal points make k - 1."""
    track = path._track
    others = np.concatenate([[0], np.cumsum(path._data.groups.count[track.index] - 1)])
    return int(np.max(others[track.offset[1:]] - others[track.offset[:-1]], initial=0))


def _rank(source: Source, index: IntArray, equality: bool) -> int:
    """The rank of K among some variables. Where there is an intercept, its border counts, too."""

    def system() -> tuple[FloatArray, float]:
        matrix = source.block(index)
        if equality:
            largest = float(np.max(np.diag(matrix)))
            matrix += largest if largest > 0.0 else 1.0
        return matrix, float(np.max(np.diag(matrix)))

    matrix, largest = system()
    root, failed = lapack.dpotrf(matrix, clean=0, overwrite_a=1)  # this is several times as fast as a search for pivots
    if failed == 0 and float(np.min(np.diag(root))) ** 2 > _REGULAR * largest:
        return index.size
    return int(lapack.dpstrf(system()[0], tol=index.size * _RANK * largest, overwrite_a=1)[2])


# ---- a finished path ---------------------------------------------------------------------------------------------------


def certify(path: Any, Cs: FloatArray, control: Control) -> tuple[KnotMeasures, Status | None]:
    """The measures at the first of `Cs`, at as many as could be done. And why it was not all of them, or None."""
    lam, C, _ = path._lambdas_of(Cs)
    source = Source(path)

    def demanded() -> bool:
        control.demand()
        return True

    parts: list[KnotMeasures] = []
    for group in _groups(C.size, max(1, _HELD // path._problem.slope.size)):
        point = Point(lam[group], *hat(path, lam[group]))
        if not parts:
            with control.beginning():
                product = source.times(point.beta, demanded)
        else:
            product = source.times(point.beta, lambda: control.reason() is None)
        if product is None:
            return _joined(parts), control.reason()
        parts.append(measure(path, point, product)._replace(residual=np.empty((0, 0))))
        if group.stop < C.size and (status := control.step(group.stop / C.size)) is not None:
            return _joined(parts), status
    return _joined(parts), None


def _groups(n: int, most: int) -> Iterator[slice]:
    size, done = _FIRST, 0
    while done < n:
        yield slice(done, min(done + size, n))
        done, size = done + size, min(size * _MORE, most)


def _joined(parts: list[KnotMeasures]) -> KnotMeasures:
    return KnotMeasures(*(np.concatenate(column) for column in zip(*parts, strict=True)))
