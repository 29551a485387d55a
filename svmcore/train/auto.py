"""What ``solver="auto"`` runs: the one table of choices. Measurements behind it: docs/fit.md.

| problem                                                                    | solver                   |
|----------------------------------------------------------------------------|--------------------------|
| small (`solvers/small`): closed boxes, an equality row; if linear, at most | small, then as below     |
| 600 variables; at most 125 sparse points, 400 with nu; at most 1,200 dense |                          |
| points of 48 features or more                                              |                          |
| a Python kernel whose matrix does not fit the memory                       | smo                      |
| at most 2,000 variables with neither bound nor diagonal                    | smo                      |
| linear kernel of no more features than points, no start: a positive         | newton, then interior    |
| diagonal, sparse points, or features beyond some dozens                     | and block                |
| linear kernel, or a polynomial one of few monomials where C K_ii is large;  | interior, then block     |
| bounded boxes or a positive diagonal, no start                              |                          |
| at most 100 variables                                                      | smo                      |
| everything else                                                            | block, then smo          |

A start of a linear machine that is not an answer already counts for nothing where one of the first two of these rows serves
and costs are not small: pair steps from it take up to a hundred times as long as the solvers that need none.

`small` is asked where nobody looks on: without a callback, a trace, options of other solvers, or another stopping rule.
For linear and polynomial kernels there is an equality row of total zero, or none. A solver is followed by the next one, from
the best point so far, when it ends at a limit of its own or of double precision; where it can be, the interior point is among
them. The chain ends where rounding explains the violation and hides the tolerance.
"""

from __future__ import annotations

import math

import numpy as np

from svmcore._types import DualQP, FloatArray, KernelKind
from svmcore.kernel.grams import COSTLY
from svmcore.kernel.matrix import KernelMatrix, kernel_product
from svmcore.kernel.table import is_positive
from svmcore.problem import measures
from svmcore.solvers import interior, small

MOST_FEATURES = 150  # an interior-point step costs n d^2 / 2
NEWTON_FEATURES = 1000  # a step of Newton's method costs d^3 / 6
DOZENS = 64  # dense features up to which the interior point takes as long as Newton's method, and comes closer
SHARE, SHARE_OF_MONOMIALS = 4, 8  # at least so many points a feature; monomials have to be made first
LEAST_POINTS = 30  # below, an iteration is all overhead
TAME = 4.0  # median C times median K_ii of a polynomial kernel: below, blocks take half the time of the interior point
TINY = 100  # here nothing else takes long, except what face steps cut short
HASTE = 3000  # pair steps before a method that takes as long as they do, however hard the problem is
MOST_LINEAR = 600  # of more variables on a line of few features, the interior point is faster than pair steps
MOST_SPARSE = 125  # of more sparse points, blocks over tiles take less time than the kernel matrix, soon a tenth
MOST_SPARSE_NU = 400  # the same where several machines are looked for
MOST_WIDE = 1200  # of more wide points, blocks over float32 tiles take less time than the float64 matrix
MOST_OPEN = 2000  # hard margins: face steps find the answer, or that there is none


def n_monomials(K: KernelMatrix) -> float:
    """The dimension of the feature space of a polynomial kernel, which is its largest rank; infinite for other kernels."""
    kernel, d = K.kernel, K.n_features
    if K.function is not None or kernel.kind != KernelKind.POLY or not is_positive(kernel):
        return math.inf
    return math.comb(d + kernel.degree - (kernel.coef0 == 0.0), kernel.degree)


def is_tame(qp: DualQP, K: KernelMatrix) -> bool:
    """Whether the boxes are so small that pair steps soon reach their ends."""
    if qp.infinite:
        return False
    return _median(np.maximum(qp.upper, -qp.lower)) * _median(np.abs(K.diagonal)) <= TAME


def _median(values: FloatArray) -> float:
    """That of numpy takes ten times as long for few values."""
    low, high = (len(values) - 1) // 2, len(values) // 2
    parted = np.partition(values, (low, high))
    return 0.5 * (parted.item(low) + parted.item(high))


def is_small(qp: DualQP, K: KernelMatrix, *, several: bool = False) -> bool:
    """Whether `small` is asked first, for one machine or in place of a search that takes `several`."""
    kind = K.kernel.kind
    sparse = not K.dense and K.function is None and kind != KernelKind.PRECOMPUTED
    wide = K.dense and K.n_features >= COSTLY and not several
    much = (kind == KernelKind.LINEAR and len(qp.c) > MOST_LINEAR) or (wide and K.n > MOST_WIDE)
    much = much or (sparse and K.n > (MOST_SPARSE_NU if several else MOST_SPARSE))
    return small.has_way(qp) and (small.serves(K) if several else small.reaches(K)) and not much


def hasty(max_iter: int, times: int = 1) -> int:
    """So many pair steps, or fewer if no more are allowed."""
    return max_iter if 0 <= max_iter < times * HASTE else times * HASTE


def counts(qp: DualQP, K: KernelMatrix, start: FloatArray, tol: float) -> bool:
    """Whether a start is worth more than a solver that needs none.

    Of a linear kernel, where there is such a solver and pair steps are not tame, only a start that is an answer already is.
    """
    needs_none = K.kernel.kind == KernelKind.LINEAR and choose(qp, K, warm=False)[0] in ("newton", "interior")
    if not needs_none or is_tame(qp, K):
        return True
    return measures.violation(qp, start, measures.residual(qp, start, kernel_product(qp, K, start))) <= tol


def may_be_exact(qp: DualQP, K: KernelMatrix) -> bool:
    """Whether a method whose steps are exact may be chosen first."""
    return len(qp.c) >= LEAST_POINTS and K.kernel.kind in (KernelKind.LINEAR, KernelKind.POLY)


def choose(qp: DualQP, K: KernelMatrix, *, warm: bool) -> tuple[str, ...]:
    """Solvers in the order in which they are tried, after `small` where it is asked."""
    n = len(qp.c)
    linear = K.kernel.kind == KernelKind.LINEAR
    width, share = (K.n_features, SHARE) if linear else (n_monomials(K), SHARE_OF_MONOMIALS)
    served = (qp.total == 0.0 or not qp.equality) and (not qp.infinite or bool((qp.diag > 0).all()))
    narrow = served and width <= MOST_FEATURES and (interior.has_features(K) or not interior.few_features(K))
    rescue = ("interior",) if narrow else ()
    if K.function is not None or (n <= MOST_OPEN and qp.open_box):
        return ("smo", *rescue)
    cold = served and not warm and n >= LEAST_POINTS
    if cold and linear and width <= min(n, NEWTON_FEATURES) and (qp.diag.any() or not K.dense or width > DOZENS):
        return ("newton", *rescue, "block", "smo")
    few = cold and narrow and width <= n // share
    if few and (linear or not is_tame(qp, K)):
        return ("interior", "smo") if n <= TINY else ("interior", "block", "smo")
    if n <= TINY:
        return ("smo", *rescue)
    return ("block", *rescue, "smo")
