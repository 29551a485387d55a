"""Windows for the fast tracker. With them most events cost a pass over the elbow, and not a pass over all points.

A window follows up to `LONGEST` events on a few candidates with a lazy inverse (`path/window_jit`). All points are looked at
afterwards (`path/stretch_jit`). One call follows many windows. Small elbows, ties, nearly singular systems and repairs are
left to the factor, whose steps are the safety net. The tracker's refreshes measure what windows have done.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from svmcore import _path_jit as pj
from svmcore._types import NONZERO, FloatArray
from svmcore.path import elbow_jit as ej
from svmcore.path import opening_jit as oj
from svmcore.path import products_jit
from svmcore.path import stretch_jit as sj
from svmcore.path import window_jit as wj
from svmcore.path.tracker import GAP, RATE_TOL, SPARE, Tracker

WIDTH = 80  # the first window has so many candidates
FACTOR_EVERY = 8192  # the inverse is made afresh after so many events
FEWEST, WORTH = 8, 6e3  # windows pay where the elbow has at least FEWEST points, and at least WORTH / n
REST, LONGEST_REST = 64, 4096  # after trouble so many events follow without windows: the first time, and at most


def new_window(n: int, capacity: int, candidates: int) -> wj.Window:
    """Scratch for windows of `capacity` slots and `candidates` candidates."""

    def slots(kind: Any = np.float64) -> Any:
        return np.empty(capacity, dtype=kind)

    def choice(kind: Any = np.float64) -> Any:
        return np.empty(candidates, dtype=kind)

    steps = oj.LONGEST + 2
    return wj.Window(
        point=slots(np.int64), dead=slots(np.int8), spot=slots(np.int64), start=slots(), value=slots(), low=slots(),
        high=slots(), terms=np.empty((oj.LONGEST + 8, capacity)), sign=np.empty(oj.LONGEST + 8),
        solved_slope=slots(), solved_one=slots(), direction=slots(), solution=slots(), right=slots(),
        step=np.empty(capacity + candidates), cand=choice(np.int64),
        place=np.empty(n, dtype=np.int64), kernel=np.empty((candidates, capacity)),
        resid=choice(), rate=choice(),
        knots=np.empty(steps, dtype=np.int64),
        moved=np.empty((steps, capacity)), resid_at=np.empty((steps, candidates)), t_at=np.empty(steps),
        bias_at=np.empty(steps), count=np.zeros(8, dtype=np.int64),
    )  # fmt: skip


def new_stretch(n: int, diagonal: FloatArray, capacity: int) -> oj.Stretch:
    """What windows over n points share."""
    pace = np.zeros(16, dtype=np.int64)
    pace[oj.LENGTH], pace[oj.WIDTH] = oj.LONGEST, min(WIDTH, n)
    return oj.Stretch(
        rate=np.zeros(n), score=np.zeros(n), work=np.zeros(n), at=np.zeros((4, n)), **_by_slot(capacity),
        stray=np.zeros((oj.LONGEST + 2, 2)), root=np.sqrt(np.maximum(diagonal, NONZERO)), wanted=np.zeros(n, dtype=np.int8),
        old=np.zeros((3, n)), old_side=np.zeros(n, dtype=np.int8),
        old_num=np.zeros(5), old_end=np.zeros(3, dtype=np.int64), pace=pace,
    )  # fmt: skip


def _by_slot(capacity: int) -> dict[str, Any]:
    """The arrays of a `Stretch` that have a place for every slot."""
    return {
        "bend": np.empty((oj.LONGEST + 2, capacity)),
        "coef": np.empty((4, capacity)),
        "solved_slope": np.empty(capacity),
    }


class Inverse:
    """An explicit inverse of the elbow's matrix, with windows where they pay.

    Its lower triangle is in the array that holds the factor otherwise.
    """

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self.rest = 0  # so many events are still to be followed without windows
        self.penalty = REST  # the length of the next rest
        self.least = max(FEWEST, int(WORTH / tracker.n))
        self.slice = REST if 2 * self.least <= tracker.n else 1 << 60  # of few points no window will pay
        self.n_inverses = 0

    @cached_property
    def stretch(self) -> oj.Stretch:
        """What windows share. Many small paths have no window."""
        return new_stretch(self.tracker.n, self.tracker.store.diagonal, self.tracker.capacity)

    @cached_property
    def window(self) -> wj.Window:
        """Scratch for windows."""
        return new_window(self.tracker.n, self.tracker.capacity, min(WIDTH, self.tracker.n) + oj.ROOM)

    # ---- the inverse -----------------------------------------------------------------------------------------------

    def factorise(self) -> bool:
        """Compute the inverse from scratch, unless it is young enough."""
        return bool(self.stretch.pace[oj.FRESH_FOR] < FACTOR_EVERY) or self._invert()

    def _invert(self) -> bool:
        tracker, m = self.tracker, self.tracker.m
        matrix = tracker.store.block(tracker.elbow)
        matrix += tracker.bump
        diagonal = np.diag(matrix).copy()
        upper, info = dpotrf(matrix.T, lower=0, clean=1, overwrite_a=1)
        if info != 0 or not np.all(np.diag(upper) ** 2 > oj.PIVOT * diagonal):
            return False
        half, info = dpotri(upper, lower=0, overwrite_c=1)
        if info != 0:
            return False
        tracker.state.factor[:m, :m] = half.T
        self.stretch.pace[oj.FRESH_FOR] = 0
        self.n_inverses += 1
        return True

    def solve(self, b: FloatArray) -> FloatArray:
        """The product with the inverse."""
        x = np.zeros(b.size)
        products_jit.symmetric_product(self.tracker.state.factor, b.size, b, x)
        return x

    def doubt(self) -> bool:
        """Whether there were updates since the inverse was made. If so, the next `factorise` makes it afresh."""
        stale = bool(self.stretch.pace[oj.FRESH_FOR] > 0)
        if stale:
            self.stretch.pace[oj.FRESH_FOR] = FACTOR_EVERY
        return stale

    def leave(self) -> None:
        """Begin a rest, after trouble or on a small elbow. The next rest will be longer."""
        self.rest = self.penalty
        self.penalty = min(2 * self.penalty, LONGEST_REST)

    # ---- the way down ----------------------------------------------------------------------------------------------

    def advance(self, opt: pj.Options) -> int:
        """Follow windows. While the elbow is small, and during a rest, follow single steps."""
        tracker = self.tracker
        if tracker.m < self.least or self.rest > 0:
            return self._steps(opt) if self._left() else ej.SINGULAR
        if tracker.engine is not self:
            self.stretch.pace[[oj.RATED, oj.RETRIES, oj.WANTED, oj.CARRIED]] = 0
            self.stretch.wanted[:] = 0
            if not self._invert():
                self.leave()
                return self.advance(opt)
            tracker.engine = self
        begin = tracker.n_events
        code = self._windows(opt)
        if tracker.n_events - begin > REST:
            self.penalty = REST
        if code not in (ej.STOPPED, ej.DEFEATED):
            return code
        left = self._left()
        if code == ej.DEFEATED:  # the gap objects, or points object again and again
            self.rest = max(self.rest, REST)
        if not left:
            return ej.SINGULAR
        return ej.BUDGET if code == ej.DEFEATED else ej.REFRESH

    def _steps(self, opt: pj.Options) -> int:
        tracker = self.tracker
        known = tracker.n_events
        code = tracker.factor.advance(opt._replace(budget=min(opt.budget, max(self.rest, self.slice))))
        self.rest = max(0, self.rest - max(1, tracker.n_events - known))
        return code

    def _left(self) -> bool:
        """Go back to the triangular factor, with the elbow's residual as shift. Returns False when it is singular."""
        tracker = self.tracker
        if not tracker.use_factor():
            return True
        state, index = tracker.state, tracker.elbow
        state.base[index] -= state.resid[index]
        state.resid[index] = 0.0
        return tracker.factor.factorise()

    def _windows(self, opt: pj.Options) -> int:
        """`follow_windows`, with rows fetched and room made where it asks for them."""
        tracker = self.tracker
        course = sj.Reach(
            opt.t_end, RATE_TOL, opt.stretch, opt.refresh, opt.budget, opt.n_events_max, GAP, tracker.store.whole,
            tracker.lower, tracker.upper,
        )  # fmt: skip
        while True:
            log = tracker.recorder.log
            code = int(sj.follow_windows(tracker.setting, tracker.state, self.window, self.stretch, log, course))
            if code == ej.GROW:
                self._make_room()
            elif code == ej.ROWS:
                self._store_rows(tracker.state.cnt[[ej.WANT]])
            elif code == ej.AHEAD:
                cand = self.window.cand[: self.window.count[wj.CANDIDATES]]
                self._store_rows(cand[np.argsort(self.stretch.score[cand])[: oj.LONGEST]])
            else:
                return code

    def _store_rows(self, wanted: Any) -> None:
        tracker = self.tracker
        if tracker.store.fetch(wanted, tracker.elbow):
            tracker.set_slope(tracker.setting.slope)

    def _make_room(self) -> None:
        """Make room for the slots and candidates of the next window."""
        assert SPARE >= oj.ROOM  # otherwise this loop would not end
        tracker = self.tracker
        while tracker.m + oj.ROOM > tracker.capacity:
            tracker.grow()
        pace = self.stretch.pace
        candidates = int(
            max(
                self.window.kernel.shape[0],
                1.25 * (pace[oj.WIDTH] + pace[oj.WANTED] + oj.ROOM),
            )
        )
        kept = self.window.solved_slope
        self.window = new_window(tracker.n, tracker.capacity, candidates)
        self.window.solved_slope[: kept.size] = kept
        self.stretch = self.stretch._replace(**_by_slot(tracker.capacity))

    def counts(self) -> dict[str, int]:
        """The counts of inverses and windows."""
        pace = self.stretch.pace if "stretch" in vars(self) else np.zeros(16, dtype=np.int64)
        return {
            "n_inverses": self.n_inverses, "n_windows": int(pace[oj.N_WINDOWS]), "n_taken_back": int(pace[oj.N_BACK]),
            "n_window_events": int(pace[oj.N_INSIDE]),
        }  # fmt: skip
