"""Products of rbf values of many features with coefficients, in integers of 16 bits: a coarse answer at twice float32's rate.

Both sides are rounded to integers. Products and their sums are exact, so nothing else of a distance is lost. What rounding
changes is bounded for each side in its own way:

- A row x moves by a distance e. The machine f has the norm |f| over the features of its kernel, and there a row moves by at
  most (2 log 2)^1/2 e, in units of the kernel. So f(x) moves by at most |f| times that, which is little.
- A source moves by a distance e, and each of its values K = 2^-m by at most log 2 (2 m^1/2 e + e^2) K. Terms of both signs
  may all err to one side. So the integers of sources are finer than those of rows.
"""

from __future__ import annotations

import numpy as np

from svmcore._types import LANES, FloatArray, Kernel, KernelKind
from svmcore.kernel.points import Real
from svmcore.kernel.products import NEAR, NEAR_FEATURES
from svmcore.kernel.rough import _WIDER, ROUNDING, SLACK, SUMMED, RoughProduct
from svmcore.kernel.spare import lent
from svmcore.simd import packing, vector
from svmcore.simd.lanes import MULTIPLIES_PAIRS

_ROWS_REACH = 13000.0  # the norm of the longest row, in its integers
_SUM = 0.9 * 2.0**31  # no sum of products gets larger, of points that have not been rounded yet
_INTEGER = 32700.0
_LEAST = 1e-12  # what is shorter counts as so much
_MOST_FEATURES = 1 << 16  # of more, sums of rounded features might not have the room that is left for them


class PairProduct(RoughProduct):
    """`RoughProduct` for an rbf machine whose `norm` is known."""

    def __init__(self, kernel: Kernel, sources: FloatArray, coef: FloatArray, norm: float) -> None:
        self.norm = norm
        with np.errstate(all="ignore"):
            super().__init__(kernel, sources, coef)

    @staticmethod
    def serves(kernel: Kernel, n_features: int, sources: int) -> bool:
        """Whether there is one, and is worth it."""
        wide = kernel.kind == KernelKind.RBF and NEAR_FEATURES <= n_features <= _MOST_FEATURES
        return wide and MULTIPLIES_PAIRS and sources > 0

    def _sources(self, panels: Real) -> Real:
        """As `RoughProduct._sources`."""
        reach = max(float(np.sqrt(self.largest)), _LEAST)
        features = panels[:, : self.width]
        self.scale = min(
            _SUM / _ROWS_REACH / reach, _INTEGER / max(float(features.max()), -float(features.min()), _LEAST)
        )
        pairs, moved = self._rounded(panels, self.scale)
        self.moved = float(moved[: len(self.sizes)].max(initial=0.0))
        return pairs

    def _rounded(self, panels: Real, scale: float) -> tuple[Real, FloatArray]:
        """Panels as integers of so much `scale`, and how far each point has moved."""
        out = lent("pairs", (len(panels), -(-self.width // 2) + 1, LANES), np.int32)
        squares, left = np.empty((len(panels), LANES)), np.empty((len(panels), LANES), np.float32)
        packing.pack_pairs(panels, self.width, np.float32(scale), out, squares.ravel(), left.ravel())
        out[:, -1].view(np.float32)[:] = squares / scale**2
        return out, SLACK * np.sqrt(left.ravel().astype(np.float64)) / scale + 4.0 * ROUNDING * np.sqrt(NEAR)

    def _bounded(self, panels: Real, sizes: FloatArray, largest: float) -> tuple[FloatArray, FloatArray]:
        """As `RoughProduct._bounded`. Where points are far away it says nothing."""
        if not largest <= NEAR:
            return np.zeros((2, len(sizes))), np.full(len(sizes), np.inf)
        scale = _ROWS_REACH / max(float(np.sqrt(sizes.max())), _LEAST)
        pairs, moved = self._rounded(panels, scale)
        sums = self._sums(vector.PairRbf(2.0 / (scale * self.scale), 0.0, 1), self.sides, pairs)
        total = float(self.coef.sum())
        each = ROUNDING * (8.4 * SLACK * largest + 8.0 + SUMMED) + 0.7 * self.moved**2
        crude = (0.72 * SLACK * self.moved + each) * total
        mean = np.clip((sums.sum(axis=0) + crude) / max(total, _LEAST), _LEAST, 1.0)
        half = np.minimum(mean, np.exp(-0.5))
        error = (1.67 * self.moved * half * np.sqrt(-np.log(half)) + each * mean) * total
        return sums, _WIDER * (error + 1.18 * self.norm / self.unit * moved)
