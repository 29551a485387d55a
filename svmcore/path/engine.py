"""The engines of the fast tracker. An engine is a form of the elbow's matrix, with a way down the path that uses this form.

Here are the interface and the factor. The inverse, which follows windows of events, is in `path/window`.
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
"""If an elbow is singular to rounding, its diagonal may be lifted by these shares of itself, the smallest first."""


class Engine(Protocol):
    """A form of the elbow's matrix, and a way down the path that uses it."""

    def factorise(self) -> bool:
        """Bring the matrix of the present elbow into this form. Returns False when it is too near to a singular one."""

    def solve(self, b: FloatArray) -> FloatArray:
        """(K_EE + bump 11')^-1 b."""

    def doubt(self) -> bool:
        """Whether updates may have spoiled the form. If so, the next `factorise` makes it afresh."""

    def advance(self, opt: pj.Options) -> int:
        """Go on down the path, and record it. Returns why it stopped."""

    def leave(self) -> None:
        """Called when another engine takes over."""

    def counts(self) -> dict[str, int]:
        """How often it has done what, for the statistics."""


class Factor:
    """The triangular factor, which `_path_jit.follow` brings up to date at every event."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker

    def factorise(self) -> bool:
        """Compute R from scratch."""
        tracker, m = self.tracker, self.tracker.m
        upper = self._cholesky(tracker.elbow) if m else np.empty((0, 0))
        if upper is None:
            return False
        tracker.state.factor[:m, :m] = upper
        ej.restart_rhs(tracker.setting, tracker.state)
        return True

    def _cholesky(self, index: IntArray) -> FloatArray | None:
        """R with R'R = K + bump 11' on `index`. The diagonal is lifted as little as it takes. None when nothing helps."""
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
        """Never: every refresh makes the factor afresh."""
        return False

    def advance(self, opt: pj.Options) -> int:
        """Follow the path event by event."""
        return self.tracker.follow(opt, polish=False)

    def leave(self) -> None:
        """Nothing to do."""

    def counts(self) -> dict[str, int]:
        """Nothing, because the tracker counts its steps itself."""
        return {}
