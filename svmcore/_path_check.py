"""How good a path is over its whole length, recomputed from the kernel and what the path stores, not a tracker's word.

At every knot and half way between two of them the residuals of all points are formed. Values and residuals are linear in
between, and the KKT conditions are the same there: where both ends and the middle are good, nothing in between hides.

Cost: one product with K per 64 knots, and for each knot one pass over the rows of K whose values change among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack

from svmcore._types import FloatArray, IntArray

_TOGETHER = 64
_FALL = 0.25
"""Products of knots whose lambda is below this share of another's are computed apart, or rounding would hide them."""
ZERO = 1e-10
"""A residual this small, relative to lambda, is zero: the point lies on the margin."""
_RANK = 1e-14
"""A pivot this small, relative to the largest and for each point, is zero."""


class Checked(NamedTuple):
    """The largest KKT violation (LIBSVM's measure) and relative gap, the C of that gap, and the largest null dimension.

    The null dimension is that of the bordered system of all points on the margin, merged duplicates counted apart.
    """

    kkt_violation: float
    relative_gap: float
    C: float
    null_dim: int


class _Places(NamedTuple):
    """Places on the path, one row each: lambda, bias, variables, K times them."""

    lam: FloatArray
    bias: FloatArray
    beta: FloatArray
    image: FloatArray


def check_path(path: Any, K: Any, most: int | None = None) -> Checked:
    """Check `path` (a `Path`) against the kernel matrix `K` of its variables, at `most` stretches, evenly spread."""
    starts = np.arange(max(path._track.knot.shape[0] - 1, 1))
    if most is not None and starts.size > most:
        starts = np.unique(np.linspace(0, starts.size - 1, most).astype(np.int64))
    violation, gap, C, null = 0.0, 0.0, 1.0 / float(path._track.knot[0, 0]), 0
    for places, inner in _places(path, K, starts):
        violations, gaps, residuals = _measure(path, places)
        k = int(np.argmax(np.where(np.isfinite(gaps), gaps, np.inf)))
        violation = max(violation, float(violations.max()))
        if not gaps[k] <= gap:
            gap, C = float(gaps[k]), 1.0 / float(places.lam[k])
        if inner:
            null = max(null, _null_dim(path, K, np.abs(residuals) <= ZERO * places.lam[:, None], null))
    return Checked(violation, gap, C, null)


def _places(path: Any, K: Any, starts: IntArray) -> Iterator[tuple[_Places, bool]]:
    """The knots that begin or end a stretch of `starts` (False) and the middles of these stretches (True), in groups."""
    knot = path._track.knot
    knots = np.unique(np.concatenate([starts, np.minimum(starts + 1, knot.shape[0] - 1)]))
    vectors = path._vectors(knots)
    last: _Places | None = None
    start = 0
    while start < knots.size:
        near = int(np.count_nonzero(knot[knots[start:], 0] > _FALL * knot[knots[start], 0]))
        group = knots[start : start + max(1, min(near, _TOGETHER))]
        V = np.stack([next(vectors) for _ in group])
        here = _Places(knot[group, 0], knot[group, 1], V, _products(K, V))
        yield here, False
        if last is not None:  # the stretch that leads into this group
            group = np.append(knots[start - 1], group)
            here = _Places(*(np.concatenate([a[-1:], b]) for a, b in zip(last, here, strict=True)))
        left = np.flatnonzero(np.isin(group[:-1], starts) & (np.diff(group) == 1) & (here.lam[1:] < here.lam[:-1]))
        if left.size:
            yield _Places(*(0.5 * (part[left] + part[left + 1]) for part in here)), True
        last, start = here, start + int(np.count_nonzero(group >= knots[start]))


def _products(K: Any, V: FloatArray) -> FloatArray:
    """K times every row of V, which differ in few places."""
    index = np.flatnonzero(V[0])
    base = K.product(index, np.ascontiguousarray(V[0, index]))
    out = np.tile(base, (V.shape[0], 1))
    moved = np.flatnonzero(np.any(V[0] != V, axis=0))
    for some in np.array_split(moved, max(1, moved.size // 1024)):
        if some.size:
            out += (V[:, some] - V[0, some]) @ K.rows(some)
    return out


def _measure(path: Any, places: _Places) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Violations, relative gaps and residuals."""
    sign, width = path._sign, path._upper
    lower, upper = np.where(sign > 0, 0.0, -width), np.where(sign > 0, width, 0.0)
    beta, image = places.beta, places.image
    free = places.lam[:, None] * sign - image
    top = np.where(beta < upper, free, -np.inf).max(axis=1)
    bottom = np.where(beta > lower, free, np.inf).min(axis=1)
    apart = top - bottom if path._data.equality else np.maximum(top, -bottom)
    residual = free - places.bias[:, None]
    hinge = np.where(residual > 0.0, upper, lower) * residual
    gap = np.sum(hinge - beta * residual, axis=1) + np.abs(places.bias * beta.sum(axis=1))
    primal = 0.5 * np.sum(beta * image, axis=1) + hinge.sum(axis=1)
    return np.maximum(apart, 0.0) / places.lam, gap / np.maximum(np.abs(primal), 1e-300), residual


def _null_dim(path: Any, K: Any, margins: Any, known: int) -> int:
    """The largest null dimension of the systems of the points in one row of `margins`, if it is above `known`.

    It is the number of points less the rank of K + s 11' among them (K alone without an intercept).
    """
    count = path._data.groups.count
    for margin in sorted(np.unique(margins, axis=0), key=lambda row: -int(count[row].sum())):
        index = np.flatnonzero(margin)
        points = int(count[index].sum())
        if points - 1 <= known:
            break
        A = np.array(K.block(index, index), order="F")
        diagonal = float(np.max(np.diag(A)))
        A += (diagonal if diagonal > 0.0 else 1.0) * path._data.equality
        rank = lapack.dpstrf(A, tol=index.size * _RANK * float(np.max(np.diag(A))), overwrite_a=1)[2]
        known = max(known, points - int(rank))
    return known
