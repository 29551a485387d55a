"""The face step: an exact minimisation over the free variables, for runs that pair steps no longer help.

With a large C, or a kernel of low rank, pair steps become short while many variables stay free. Here the free variables F
move together. The direction solves ``(K_FF + D) d + 1 rho = v_F, sum(d) = 0``. The step ends at the first bound, and the
variable that met it leaves F. This is repeated until a full step fits.

The matrix may be singular, and the residual may have a part in its null space. That part is a direction without curvature.
It is followed to the first bound. If there is no bound, the problem has no finite solution.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

import numpy as np
from scipy.linalg import lapack

from svmcore._types import NONZERO, FloatArray

# One call ends when the cubes of the sizes that it has decomposed exceed this. It takes about 0.2 s.
_WORK = 2e8
_FLAT = 5e-16  # an eigenvalue below this share of the largest one, times the size, is rounding
# With a smallest pivot above this share of the largest one, Cholesky's factor is as good as eigenvectors.
_REGULAR = 1e-5


class FaceResult(Enum):
    """What a face step found."""

    MOVED = auto()
    UNBOUNDED = auto()
    NOTHING = auto()


def _direction(H: FloatArray, v: FloatArray, equality: bool, noise: float) -> tuple[FloatArray, bool]:
    """A descent direction on the face, and whether it has no curvature. Then its length means nothing.

    Each variable is measured in units of its own curvature. What is rounding for a point of size 1e8 need not be rounding for
    its neighbours of size 1.
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
        d = d - row * (row @ d)  # the sum is zero but for rounding, which a nearly singular matrix makes large
    return unit * d, False


def _regular_solution(M: FloatArray, right: FloatArray) -> FloatArray | None:
    """M^-1 right by Cholesky's factor. None where M is not safely positive definite."""
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
    """Minimise over free variables with matrix H = K_FF + diag and residual v. Returns their new beta, and what was found.

    `spend` is called with the number of operations of each direction. A residual along a direction without curvature means
    nothing below the size `noise`.
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
        if flat:  # the only curvature that it may have comes from the diagonal
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
    if equality:  # the variable that has most room takes the rounding of the sum
        room = np.minimum(upper - beta, beta - lower)
        widest = int(np.argmax(room))
        excess = float(beta.sum()) - total
        if abs(excess) < room[widest]:
            beta[widest] -= excess
    return beta, result
