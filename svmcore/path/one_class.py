"""`OneClassPath`: a path of one class, with nu in place of C."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svmcore._control import new_control
from svmcore._errors import InputError
from svmcore._threads import one_blas_thread
from svmcore._types import FloatArray
from svmcore.path.cross import Cross
from svmcore.path.error_curve import sign_changes
from svmcore.path.result import Path

_ROUNDING = 1e-12  # values of nu outside of the path by this share are its ends
_BORDER = 1e-12  # decision values, of functions around 1, that are zero but for rounding


class OneClassPath(Path):
    """The one-class machine for every C, which is: for every nu. Made by `one_class_path`; see there.

    The machine of Schoelkopf et al. at ``nu = path.nu(C)`` has the dual variables ``alpha(C) / C`` (their sum is nu times
    the sum of the weights) and the offset 1 / C: it has the same support vectors and the same inside. The sets of
    different nu are not nested; `depth` is about the smallest nested sets that hold them.
    """

    def nu(self, C: Any) -> Any:
        """The nu that belongs to C: the sum of alpha over C times the sum of the weights. It falls as C grows."""
        lam, _, scalar = self._lambdas_of(C)
        at, total, _ = self._potential()
        out = np.interp(-lam, -at, total) / self._whole
        return float(out[0]) if scalar else out

    def rho(self, C: Any) -> Any:
        """The offset of the machine whose dual variables have the sum 1: 1 / sum(alpha)."""
        lam, _, scalar = self._lambdas_of(C)
        out = lam / (np.atleast_1d(self.nu(C)) * self._whole)
        return float(out[0]) if scalar else out

    @property
    def nu_range(self) -> tuple[float, float]:
        """The smallest and the largest nu that the path covers."""
        _, total, _ = self._potential()
        return float(total[-1] / self._whole), float(total[0] / self._whole)

    def C_of(self, nu: Any) -> Any:
        """The C that belongs to nu; where several do, the smallest of them."""
        wanted = np.asarray(nu, dtype=np.float64)
        low, high = self.nu_range
        bad = ~((wanted >= low * (1.0 - _ROUNDING)) & (wanted <= high * (1.0 + _ROUNDING)))
        if bad.any():
            more = "a smaller lambda_min" if wanted[bad].flat[0] < low else "a larger lambda_max"
            reach = f"this path covers nu from {low:.6g} to {high:.6g}"
            hint = f"compute it with {more}" if wanted[bad].flat[0] <= 1.0 else "nu is at most 1"
            raise InputError(f"nu={wanted[bad].flat[0]:g} is not feasible: {reach}; {hint}")
        at, total, _ = self._potential()
        share = np.maximum.accumulate(
            total[::-1] / self._whole
        )  # from small lambda to large: it grows, but for rounding
        lam = at[::-1]
        # of a flat stretch the largest lambda
        last = np.concatenate([share[1:] > share[:-1], [True]])
        out = 1.0 / _inverse(lam, share, last, np.clip(wanted, share[0], share[-1]))
        return float(out) if out.ndim == 0 else out

    def predict(self, X: Any, C: Any) -> NDArray[Any]:
        """1 for rows that are inside or on the border, -1 for others; with an array of C, one row of the result per C."""
        return np.where(self.decision_function(X, C) >= -_BORDER, 1, -1)

    @one_blas_thread
    def depth(self, X: Any) -> FloatArray:
        """For every row the largest nu whose set holds it, exactly; 0 where no set of the path does.

        The sets of different nu are not nested. The rows of depth nu or more are the smallest nested sets that hold
        them: all points that are inside for nu or for any larger one.
        """
        wide = copy.copy(self)  # a point on the border is inside, whatever rounding says
        wide._data = self._data._replace(form=self._data.form._replace(level=_BORDER - 1.0))
        cross = Cross(self._data, self._data.columns.apply(X))
        start, flips, _ = sign_changes(wide, cross, new_control("depth", None, None, 0))
        first = np.where(start, 0.0, np.inf)
        enters = np.asarray(flips.positive, dtype=bool)
        np.minimum.at(first, flips.row[enters], 1.0 / flips.lam[enters])
        inside = np.isfinite(first)
        out = np.zeros(cross.n)
        low, high = self.C_range
        out[inside] = self.nu(np.clip(first[inside], max(low, 1.0 / self._track.knot[0, 0]), high))
        return out

    @property
    def _whole(self) -> float:
        return float(self._problem.upper.sum())


def _inverse(lam: FloatArray, share: FloatArray, last: Any, wanted: FloatArray) -> FloatArray:
    """The largest lambda at which the growing, piecewise linear share is `wanted`."""
    right = np.searchsorted(share, wanted, side="right")
    ends = np.flatnonzero(last)
    exact = np.minimum(np.searchsorted(share[ends], wanted, side="left"), ends.size - 1)
    k = np.clip(right, 1, share.size - 1)
    rise = share[k] - share[k - 1]
    between = lam[k - 1] + np.divide(wanted - share[k - 1], rise, out=np.zeros_like(rise), where=rise > 0.0) * (
        lam[k] - lam[k - 1]
    )
    return np.asarray(np.where(share[ends][exact] == wanted, lam[ends][exact], between))
