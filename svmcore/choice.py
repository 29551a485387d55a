"""What ``solver="auto"`` runs: the one table of choices. Measurements behind it: docs/fit.md.

| problem                                                                    | solver                   |
|----------------------------------------------------------------------------|--------------------------|
| a Python kernel whose matrix does not fit the memory                       | smo                      |
| at most 100 variables; at most 2,000 with neither bound nor diagonal        | smo                      |
| linear kernel, bounded boxes or a positive diagonal, few features, no start | interior, then block     |
| everything else                                                            | block, then smo          |

A solver is followed by the next one, from where it came, when it ends at a limit of its own.
"""

from __future__ import annotations

import numpy as np

from svmcore._types import DualQP, KernelKind
from svmcore.gram import KernelMatrix

MOST_FEATURES = 150  # an interior-point step costs n d^2 / 2
LEAST_POINTS = 300  # below, an iteration is all overhead
TINY = 100  # here nothing takes long, except what face steps cut short
MOST_OPEN = 2000  # hard margins: face steps find the answer, or that there is none


def choose(qp: DualQP, K: KernelMatrix, *, warm: bool) -> tuple[str, ...]:
    """Solvers in the order in which they are tried."""
    open_box = bool(((qp.diag == 0) & (np.isinf(qp.lower) | np.isinf(qp.upper))).any())
    if K.function is not None or len(qp.c) <= (MOST_OPEN if open_box else TINY):
        return ("smo",)
    bounded = bool(np.isfinite(qp.lower).all() and np.isfinite(qp.upper).all())
    if (
        K.kernel.kind == KernelKind.LINEAR
        and not warm
        and len(qp.c) >= LEAST_POINTS
        and K.n_features <= min(MOST_FEATURES, len(qp.c) // 4)
        and (bounded or bool((qp.diag > 0).all()))
    ):
        return ("interior", "block", "smo")
    return ("block", "smo")
