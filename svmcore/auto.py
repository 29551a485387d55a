"""What ``solver="auto"`` runs: the one table of choices. Measurements behind it: docs/fit.md.

| problem                                                                    | solver                   |
|----------------------------------------------------------------------------|--------------------------|
| a Python kernel whose matrix does not fit the memory                       | smo                      |
| at most 100 variables; at most 2,000 with neither bound nor diagonal        | smo                      |
| linear kernel, bounded boxes or a positive diagonal, few features, no start | interior, then block     |
| everything else                                                            | block, then smo          |

A solver is followed by the next one, from the best point so far, when it ends at a limit of its own or of double
precision; where it can be, the interior point is among them. The chain ends where rounding explains the violation and
hides the tolerance.
"""

from __future__ import annotations

import numpy as np

from svmcore._types import DualQP, KernelKind
from svmcore.kernel.matrix import KernelMatrix

MOST_FEATURES = 150  # an interior-point step costs n d^2 / 2
LEAST_POINTS = 300  # below, an iteration is all overhead
TINY = 100  # here nothing takes long, except what face steps cut short
MOST_OPEN = 2000  # hard margins: face steps find the answer, or that there is none


def choose(qp: DualQP, K: KernelMatrix, *, warm: bool) -> tuple[str, ...]:
    """Solvers in the order in which they are tried."""
    n = len(qp.c)
    open_box = bool(((qp.diag == 0) & (np.isinf(qp.lower) | np.isinf(qp.upper))).any())
    bounded = bool(np.isfinite(qp.lower).all() and np.isfinite(qp.upper).all())
    closed = bounded or bool((qp.diag > 0).all())
    linear = K.kernel.kind == KernelKind.LINEAR and closed and K.n_features <= MOST_FEATURES
    rescue = ("interior",) if linear else ()
    if K.function is not None or n <= (MOST_OPEN if open_box else TINY):
        return ("smo", *rescue)
    if linear and not warm and n >= LEAST_POINTS and K.n_features <= n // 4:
        return ("interior", "block", "smo")
    return ("block", *rescue, "smo")
