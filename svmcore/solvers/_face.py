"""The face step: an exact minimisation over the free variables, for runs that pair steps no longer help.

With C large, or kernels of low rank, pair steps shrink while many variables stay free. Here the free variables F move
together: the direction solves ``(K_FF + D) d + 1 rho = v_F, sum(d) = 0``, the step ends at the first bound, the variable
that met it leaves F, and so on until the full step fits. Where the matrix is singular and the residual has a part in its
null space, that part is a direction without curvature: it is followed to the first bound, and when there is none the
problem has no finite solution.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

import numpy as np
from scipy.linalg import lapack

from svmcore._types import NONZERO, FloatArray

_WORK = 2e8  # the cubes of the sizes decomposed in one call: about 0.2 s between two looks at the limits
_FLAT = 5e-16  # eigenvalues below this share of the largest, times the size, are rounding errors
_REGULAR = 1e-5  # smallest pivot, relative to the largest, with which Cholesky's factor is as good as eigenvectors


class FaceResult(Enum):
    """What a face step found."""

    MOVED = auto()
    UNBOUNDED = auto()
    NOTHING = auto()


def _direction(H: FloatArray, v: FloatArray, equality: bool, noise: float) -> tuple[FloatArray, bool]:
    """A descent direction on the face, and whether it has no curvature (then its length is free).

    Each variable is measured in units of its own curvature: what is rounding for one point of size 1e8 is not for its
    neighbours of size 1.
    """
    diagonal = np.diag(H)
    unit = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    M = H * unit * unit[:, None]
    target = unit * v
    row = unit / np.linalg.norm(unit)  # the equality row, in these units
    if equality:
        M += row[:, None] * row
        target -= row * (row @ target)
    right = np.column_stack([target, row])
    x = _regular_solution(M, right)
    if x is None:
        w, U = np.linalg.eigh(M)
        flat = w <= _FLAT * max(float(w[-1]), NONZERO) * len(v)
        along = U.T @ right
        if flat.any():
            null = U[:, flat] @ along[flat, 0]
            if equality:
                null -= row * (row @ null)
            if np.abs(null / unit).max() > noise:
                return unit * null, True
        x = U @ (np.where(flat, 0.0, 1.0 / np.where(flat, 1.0, w))[:, None] * along)
    d, e = x[:, 0], x[:, 1]
    if equality:
        total = float(row @ e)
        if total > 0:
            d = d - e * (float(row @ d) / total)
        d = d - row * (row @ d)  # what rounding left of the sum, which a nearly singular matrix makes large
    return unit * d, False


def _regular_solution(M: FloatArray, right: FloatArray) -> FloatArray | None:
    """M^-1 right by Cholesky's factor; None where M is not safely positive definite."""
    factor, failed = lapack.dpotrf(M, lower=1)
    pivots = np.diag(factor)
    if failed or not pivots.min() > _REGULAR * pivots.max():
        return None
    x, _ = lapack.dpotrs(factor, right, lower=1)
    return np.asarray(x)


def face_step(
    H: FloatArray,
    diag: FloatArray,
    beta: FloatArray,
    v: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    equality: bool,
    noise: float,
    spend: Callable[[float], None] = lambda work: None,
) -> tuple[FloatArray, FaceResult]:
    """Minimise over free variables with matrix H = K_FF + diag and residual v. Returns the new beta of these variables.

    `spend` is told how much work each direction was.

    `noise` is the size below which a residual along a direction without curvature means nothing.
    """
    total = float(beta.sum())
    beta, v = beta.copy(), v.copy()
    free = np.ones(len(beta), bool)
    result = FaceResult.NOTHING
    work = 0.0
    while free.sum() > (1 if equality else 0) and work <= _WORK:
        F = np.flatnonzero(free)
        work += float(len(F)) ** 3
        spend(float(len(F)) ** 3)
        d, flat = _direction(H[np.ix_(F, F)], v[F], equality, noise)
        if not np.isfinite(d).all() or np.abs(d).max(initial=0.0) == 0.0:
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(d > 0, (upper[F] - beta[F]) / d, np.where(d < 0, (lower[F] - beta[F]) / d, np.inf))
        first = int(np.argmin(room))
        limit = 1.0
        if flat:  # what curvature it has comes from the diagonal
            bend = float(np.dot(diag[F] * d, d))
            limit = float(np.dot(v[F], d)) / bend if bend > 0 else np.inf
        if np.isinf(room[first]) and np.isinf(limit):
            return beta, FaceResult.UNBOUNDED
        step = min(limit, float(room[first]))
        beta[F] += step * d
        v -= H[:, F] @ (step * d)
        result = FaceResult.MOVED
        if room[first] > limit:
            break
        hit = F[first]
        beta[hit] = upper[hit] if d[first] > 0 else lower[hit]
        free[hit] = False
    beta = np.clip(beta, lower, upper)
    if equality:  # the steps' rounding goes to the variable that has most room
        room = np.minimum(upper - beta, beta - lower)
        widest = int(np.argmax(room))
        excess = float(beta.sum()) - total
        if abs(excess) < room[widest]:
            beta[widest] -= excess
    return beta, result
