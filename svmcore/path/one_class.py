"""`OneClassPath`: a path of one class, with nu in place of C."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svmcore._control import new_control
from svmcore._errors import InputError
from svmcore._types import FloatArray
from svmcore.base.door import reals
from svmcore.base.threads import one_blas_thread
from svmcore.path.cross import Cross
from svmcore.path.error_curve import sign_changes
from svmcore.path.result import Path

_ROUNDING = 1e-12  # a nu that lies outside of the path's range by at most this share counts as its end
_BORDER = 1e-12  # a decision value up to this is zero but for rounding: the function is around 1


class OneClassPath(Path):
    """The one-class machine for every C, and so for every nu. `one_class_path` makes it: see there.

    At ``nu = path.nu(C)`` the machine of Schoelkopf et al. has the same support vectors and the same inside. Its dual
    variables are ``alpha(C) / C``, and their sum is nu times the sum of the weights. Its offset is 1 / C. The sets of
    different nu are not nested. `depth` is about the smallest nested sets that hold them.
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
        """The C that belongs to nu. Where several do, it is the smallest of them."""
        wanted = reals(nu, "nu")
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
        out = 1.0 / np.interp(
            np.clip(wanted, share[0], share[-1]), share, at[::-1]
        )  # of a flat stretch the largest lambda
        return float(out) if out.ndim == 0 else out

    def predict(self, X: Any, C: Any) -> NDArray[Any]:
        """1 for rows that are inside or on the border, -1 for others.

        With an array of C: one row of the result for each C.
        """
        return np.where(self.decision_function(X, C) >= -_BORDER, 1, -1)

    @one_blas_thread
    def depth(self, X: Any) -> FloatArray:
        """For every row the largest nu whose set holds it, exactly. It is 0 where no set of the path holds it.

        The sets of different nu are not nested. The points of depth nu or more are those that are inside for nu or for a
        larger one. These are the smallest nested sets that hold the sets of the machines.
        """
        wide = copy.copy(self)  # a point on the border counts as inside, whatever rounding does
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
