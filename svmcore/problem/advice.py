"""Whether an answer that meets its tolerance is of any use: what the driver warns about besides the tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore._types import DualQP, KernelKind

LARGE_GAP = 0.01  # relative; from it on the driver has something to say
MEANS_LITTLE = (
    f"the tolerance is met but the objective may be off by more than {100 * LARGE_GAP:g} %: relative_gap, of an estimator "
    "dual_gap_, says by how much. Remedy: a smaller tol, or stopping='gap' where that is a parameter."
)
"""Without numbers, so that Python says it once where many machines are trained."""

_ROUNDING = 1e-10  # relative difference of a share from nu that is rounding of sums
_PRESSED = 0.9  # share of points at their bound from which C may be what holds the function down
_FLAT = 0.05  # spread of the function, relative to that of the targets, from which it counts as constant
_FOLLOWS = 0.3  # correlation of function and coefficients from which a larger C would follow the targets
_LOOKED_AT = 500  # points


def out_of_reach(nu: float, share: float, C: float) -> str | None:
    """What to say of a machine whose share is larger than nu; None where it is not."""
    if share <= nu * (1.0 + _ROUNDING):
        return None
    return (
        f"nu={nu:g} is out of reach: the share is still {share:.4g} at C={C:.3g}, and falls too slowly to wait for "
        f"a larger one. The classes overlap. The machine of that C is returned. Remedy: a nu above {share:.4g}, or C in "
        "place of nu."
    )


def nearly_constant(solution: Any, qp: DualQP, X: Any) -> tuple[float, float] | None:
    """The spreads of function and targets where a regression is nearly constant because C is small; else None.

    Three things must hold: nearly all points are at their bound (for squared losses: about half of the residuals are as
    large as the targets), the function hardly varies, and it varies with the signs of the residuals, so that more of it
    would fit better. The last one is not true of targets in which there is nothing to find.
    """
    m = len(qp.c) // 2 if qp.twins else len(qp.c)  # first all growing variables, then all shrinking ones
    if m < 2:
        return None
    point = qp.point[:m]
    targets = 0.5 * (qp.c[:m] + qp.c[m:]) if qp.twins else qp.c
    spread = float(targets.std())
    coef = np.zeros(solution.n_points)
    coef[solution.support] = solution.dual_coef
    coef = coef[point]
    if np.isfinite(qp.upper[:m]).all():
        at_bound = (coef >= 0.999 * qp.upper[:m]) | (coef <= 0.999 * qp.lower[-m:])
        pressed = np.mean(at_bound) >= _PRESSED
    else:
        pressed = np.mean(qp.diag[:m] * np.abs(coef) >= 0.1 * spread) >= 0.5 * _PRESSED
    if spread == 0.0 or not pressed:
        return None
    few = np.unique(np.linspace(0, m - 1, min(m, _LOOKED_AT)).astype(np.int64))
    rows = X[point[few]]
    if solution.kernel.kind == KernelKind.PRECOMPUTED:
        rows = rows[:, solution.support]
    values = solution._decision(rows, 1)
    flat = float(values.std())
    if not 0.0 < flat < _FLAT * spread:
        return None
    with np.errstate(all="ignore"):  # squares of tiny numbers vanish: then nothing is known
        follows = np.corrcoef(values, coef[few])[0, 1]
    return (flat, spread) if follows >= _FOLLOWS else None
