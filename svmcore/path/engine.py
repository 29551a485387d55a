"""The engines of the fast tracker: forms of the elbow's matrix, each with a way down the path that lives on it.

Here are the interface and the factor; the inverse, which follows windows of events, is in `path/window`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.linalg.lapack import dpotrf

from svmcore import _path_jit as pj
from svmcore._types import FloatArray, IntArray
from svmcore.path import elbow_jit as ej

if TYPE_CHECKING:
    from svmcore.path.tracker import Tracker

LIFTS = (2e-15, 2e-14, 2e-13, 2e-12)
"""What the diagonal of an elbow that is singular to rounding may be lifted by, relatively."""


class Engine(Protocol):
    """A form of the elbow's matrix, and a way down the path that lives on it."""

    def factorise(self) -> bool:
        """Bring the matrix of the present elbow into this form. False when it is too near to a singular one."""

    def solve(self, b: FloatArray) -> FloatArray:
        """(K_EE + bump 11')^-1 b."""

    def doubt(self) -> bool:
        """Whether the form may be stale; then the next `factorise` makes it afresh."""

    def advance(self, opt: pj.Options) -> int:
        """Go on down the path, recording. Returns why it stopped."""

    def leave(self) -> None:
        """Another engine takes over."""

    def counts(self) -> dict[str, int]:
        """What it has done."""


class Factor:
    """The triangular factor, brought up to date at every event: `_path_jit.follow`."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker

    def factorise(self) -> bool:
        """R from scratch."""
        tracker, m = self.tracker, self.tracker.m
        upper = self._cholesky(tracker.elbow) if m else np.empty((0, 0))
        if upper is None:
            return False
        tracker.state.factor[:m, :m] = upper
        ej.restart_rhs(tracker.setting, tracker.state)
        return True

    def _cholesky(self, index: IntArray) -> FloatArray | None:
        """R with R'R = K + bump 11' on `index`, its diagonal lifted as little as it takes. None when nothing helps."""
        for lift in LIFTS:
            matrix = self.tracker.store.block(index)
            matrix += self.tracker.bump
            matrix.flat[:: index.size + 1] *= 1.0 + lift
            upper, info = dpotrf(matrix.T, lower=0, clean=1, overwrite_a=1)
            if info == 0:
                return np.asarray(upper)
        return None

    def solve(self, b: FloatArray) -> FloatArray:
        """Two triangular solves."""
        x = b.copy()
        ej.solve_lower(self.tracker.state.factor, self.tracker.m, x)
        ej.solve_upper(self.tracker.state.factor, self.tracker.m, x)
        return x

    def doubt(self) -> bool:
        """It was made at this refresh."""
        return False

    def advance(self, opt: pj.Options) -> int:
        """Event by event."""
        return self.tracker.follow(opt, polish=False)

    def leave(self) -> None:
        """Nothing to do."""

    def counts(self) -> dict[str, int]:
        """The tracker counts its steps itself."""
        return {}
