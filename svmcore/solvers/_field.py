"""The products of a block run: K beta over all points, at three levels of precision, and what is known of its rounding."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from svmcore._control import Control
from svmcore._types import LANES, DualQP, FloatArray, IntArray, Status
from svmcore.kernel.matrix import KernelMatrix, kernel_product
from svmcore.kernel.tiles import make_tiles
from svmcore.simd.vector import ROWS
from svmcore.solvers._contract import product_work

SINGLE, MIXED, DOUBLE = range(3)
"""The levels of precision: all in float32, products in float64, and products and blocks in float64."""

# Rounding of products. ROUNDING is the error of float32 ones per unit of |beta|; measured were 0.9 to 2.2 times that.
# ROUNDING_64 is the error of float64 ones per unit of sum |beta|. Float32 will do while its rounding leaves the share
# LEAST_GOAL of the tolerance. Rounding above the share SPOILT of it would call for another block. Before beta is known, its
# norm counts as TYPICAL, or less where its box is smaller.
ROUNDING, ROUNDING_64 = 2e-7, 1e-15
LEAST_GOAL = 0.3
SPOILT = 0.7
TYPICAL = 10.0

# A product of at most SHORT kernel values is computed in one go. Nobody minds waiting for one of at most BRIEF operations,
# which takes about a third of a second.
SHORT = 1 << 28
BRIEF = 1e10

_PIECE = 1 << 26  # so many kernel values lie between two looks at the clock


class Field:
    """``field = K beta`` in float64. What is added to it is computed in float32 at first."""

    def __init__(self, qp: DualQP, K: KernelMatrix, start: FloatArray) -> None:
        self.qp = qp
        self.K = K
        self.beta = start.copy()
        self.tiles = make_tiles(K, centred=qp.centred)
        self.field = np.zeros(-(-K.n // LANES) * LANES)
        self.largest = float(np.max(np.abs(K.diagonal), initial=0.0))
        self.level = SINGLE if self.largest < 1e30 else DOUBLE
        self.one_each = qp.one_each(K.n)
        self.steps = 0
        self.fresh = False  # whether the field has just been computed in float64
        self.remembered = False  # whether that was the very product that the certificate will ask for
        self.exact = True  # the field carries no float32 error
        self.moved = 0.0  # the sum of |coefficients| whose products went into the field
        self.moved_single = 0.0  # the same of those that went in through float32, each times its error factor

    def rounding(self) -> float:
        """How far float32 products have moved the residual, at most in typical cases."""
        if self.exact:
            return 0.0
        moved = self.rounding_of_each * self.beta
        return float(np.sqrt(np.vdot(moved, moved)))

    @cached_property
    def rounding_of_each(self) -> FloatArray:
        """How far the float32 product of each variable alone moves the residual, for each unit of its coefficient."""
        root = np.sqrt(np.abs(self.K.diagonal[self.qp.point]))
        return np.asarray(ROUNDING * root.max(initial=0.0) * root)

    def goal(self, tol: float, *, close: bool) -> float:
        """If this field's violation is at most this, the exact one is below `tol`. 0 where rounding is too large to say so.

        Without stored columns a product in float64 costs little more than the certificate that finds it remembered. So it
        is left for the end. Where rounding would spoil the last block, it is made before that one, when a run is `close`.
        """
        if not self.tiles.by_columns:
            return 0.0 if close and self.rounding() > SPOILT * tol else tol
        left = tol - 2.0 * self.rounding()
        return left if left >= LEAST_GOAL * tol else 0.0

    def doubtful(self, tol: float) -> bool:
        """Whether rounding may have moved the residual by more than it may since it was computed."""
        if self.fresh:
            return False
        single = 0.0 if self.tiles.by_columns else self.rounding()  # with stored columns the goal has seen to it
        return single + ROUNDING_64 * self.largest * self.moved > 0.1 * tol

    def residual_error(self) -> FloatArray:
        """A bound on the error of each entry of the residual."""
        double = ROUNDING_64 * self.largest * (self.moved + 1.0)
        return double + self.moved_single * self.tiles.error_factor[self.qp.point]

    def change(self, index: IntArray, step: FloatArray, control: Control | None) -> Status | None:
        """field += K step, in pieces."""
        if self.one_each:
            points, coef = index, step
        else:
            total: FloatArray = np.bincount(self.qp.point[index], weights=step, minlength=self.K.n).astype(np.float64)
            points = np.flatnonzero(total)
            coef = total[points]
        add = self.tiles.add if self.level == SINGLE else self.tiles.add_exactly
        self.fresh = self.remembered = False
        single = self.level == SINGLE and not self.tiles.exact_products
        self.exact = self.exact and not single
        size = float(np.abs(coef).sum())
        self.moved += size
        if single:
            self.moved_single += float(np.abs(coef) @ self.tiles.error_factor[points])
        rows = max(ROWS, _PIECE // max(self.K.n, 1) // ROWS * ROWS)
        brief = product_work(self.K, len(points)) <= BRIEF
        for first in range(0, len(points), rows):
            add(points[first : first + rows], coef[first : first + rows], self.field)
            if control is not None and not brief and first + rows < len(points):
                status = control.check(self.steps, np.nan, np.nan)
                if status is not None:
                    return status
        return None

    def known(self) -> tuple[Any, ...]:
        """The field, and all that is known of it."""
        return self.field.copy(), self.level, self.exact, self.moved, self.moved_single, self.fresh, self.remembered

    def back_to(self, known: tuple[Any, ...]) -> None:
        """Put the field back as it was, where a new one is only half done."""
        self.field[:] = known[0]
        self.level, self.exact, self.moved, self.moved_single, self.fresh, self.remembered = known[1:]

    def refresh(self, level: int, control: Control | None) -> Status | None:
        """Compute the field afresh, at a higher level of precision."""
        support = np.flatnonzero(self.beta)
        short = len(support) * self.K.n <= SHORT and product_work(self.K, len(support)) <= 10.0 * BRIEF
        before = () if short else self.known()
        self.level = max(self.level, level)
        self.field[:] = 0.0
        self.exact, self.moved, self.moved_single = True, 0.0, 0.0
        self.fresh = self.level > SINGLE
        if self.fresh and short and not self.tiles.by_columns:
            # The product is computed in one piece, and the certificate will find it remembered.
            self.field[: self.K.n] = kernel_product(self.qp, self.K, self.beta)
            self.moved, self.remembered = float(np.abs(self.beta).sum()), True
            return None
        status = self.change(support, self.beta[support], None if short else control)
        if status is not None:
            self.back_to(before)
            return status
        self.fresh = self.level > SINGLE
        return None

    def foresee(self, tol: float) -> None:
        """Start with float64 columns where float32 ones would not do in the end."""
        if not self.tiles.by_columns:
            return
        box = float(np.minimum(np.maximum(self.qp.upper, -self.qp.lower), TYPICAL).max(initial=0.0))
        size = min(TYPICAL, box * float(np.sqrt(len(self.beta))))
        if 2.0 * ROUNDING * self.largest * size > (1.0 - LEAST_GOAL) * tol:
            self.level = max(self.level, MIXED)
