"""The face step: an exact minimisation over the free variables, for runs that pair steps no longer help.

With C large, or kernels of low rank, pair steps shrink while many variables stay free. Here the free variables F move
together: the direction solves ``(K_FF + D) d + 1 rho = v_F, sum(d) = 0``, the step ends at the first bound, the variable
that met it leaves F, and so on until the full step fits. Where the matrix is singular and the residual has a part in its
null space, that part is a direction without curvature: it is followed to the first bound, and when there is none the
problem has no finite solution.
"""

from __future__ import annotations

from enum import Enum, auto

import numpy as np

from svmcore._types import FloatArray

_WORK = 2e8  # the cubes of the sizes decomposed in one call: about 0.2 s between two looks at the limits
_FLAT = 5e-16  # eigenvalues below this share of the largest, times the size, are rounding errors


class FaceResult(Enum):
    """What a face step found."""

    MOVED = auto()
    UNBOUNDED = auto()
    NOTHING = auto()


def _direction(H: FloatArray, v: FloatArray, equality: bool, noise: float) -> tuple[FloatArray, bool]:
    """A descent direction on the face, and whether it has no curvature (then its length is free)."""
    n = len(v)
    ones = np.ones(n)
    shift = max(float(np.mean(np.diag(H))), 1e-300) if equality else 0.0
    M = H + shift
    w, U = np.linalg.eigh(M)
    flat = w <= _FLAT * max(float(w[-1]), 1e-300) * n
    target = v - v.mean() if equality else v
    along = U.T @ target
    if flat.any():
        null = U[:, flat] @ along[flat]
        if np.abs(null).max() > noise:
            return null - null.mean() if equality else null, True
    inverse = np.where(flat, 0.0, 1.0 / np.where(flat, 1.0, w))
    d = U @ (inverse * along)
    if equality:
        e = U @ (inverse * (U.T @ ones))
        total = e.sum()
        if total > 0:
            d -= e * (d.sum() / total)
        d -= d.mean()  # what rounding left of the sum, which a nearly singular matrix makes large
    return d, False


def face_step(
    H: FloatArray,
    diag: FloatArray,
    beta: FloatArray,
    v: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    equality: bool,
    noise: float,
) -> tuple[FloatArray, FaceResult]:
    """Minimise over free variables with matrix H = K_FF + diag and residual v. Returns the new beta of these variables.

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
