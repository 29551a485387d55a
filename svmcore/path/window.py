"""The fast tracker with windows: most events cost a pass over the elbow instead of one over all points.

A window follows up to `LONGEST` events on a few candidates with a lazy inverse (`path/window_jit`), and all points are
looked at afterwards (`path/stretch_jit`), many windows in one call. Small elbows, ties, near-singular systems and repairs
are left to `Tracker`, whose steps are the safety net, and whose refreshes measure what windows did.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from svmcore import _path_jit as pj
from svmcore._types import FloatArray
from svmcore.path import elbow_jit as ej
from svmcore.path import stretch_jit as sj
from svmcore.path import window_jit as wj
from svmcore.path.tracker import GAP, RATE_TOL, SPARE, Tracker

WIDTH = 80  # candidates of the first window
FACTOR_EVERY = 8192
FEWEST, WORTH = 8, 6e3  # windows pay from so many points on the elbow on, and from WORTH / n
REST = 64
_CODES = {sj.DONE: pj.DONE, sj.REFRESH: pj.REFRESH, sj.BUDGET: pj.BUDGET, sj.FLUSH: pj.FLUSH}


def new_window(n: int, capacity: int, candidates: int) -> wj.Window:
    """Scratch for windows of `capacity` slots and so many candidates."""

    def slots(kind: Any = np.float64) -> Any:
        return np.empty(capacity, dtype=kind)

    def choice(kind: Any = np.float64) -> Any:
        return np.empty(candidates, dtype=kind)

    steps = sj.LONGEST + 2
    return wj.Window(
        point=slots(np.int64), dead=slots(np.int8), spot=slots(np.int64), start=slots(), value=slots(), low=slots(),
        high=slots(), V=np.empty((sj.LONGEST + 8, capacity)), sign=np.empty(sj.LONGEST + 8), u1=slots(), u2=slots(),
        d=slots(), x=slots(), b=slots(), step=np.empty(capacity + candidates), cand=choice(np.int64),
        place=np.empty(n, dtype=np.int64), K=np.empty((candidates, capacity)), r=choice(), p=choice(),
        moved=np.empty((steps, capacity)), r_at=np.empty((steps, candidates)), t_at=np.empty(steps),
        bias_at=np.empty(steps), count=np.empty(8, dtype=np.int64),
    )  # fmt: skip


def new_stretch(n: int, diagonal: FloatArray, capacity: int) -> sj.Stretch:
    """What windows over n points share."""
    pace = np.zeros(16, dtype=np.int64)
    pace[sj.LENGTH], pace[sj.WIDTH] = sj.LONGEST, min(WIDTH, n)
    return sj.Stretch(
        rate=np.zeros(n), score=np.zeros(n), work=np.zeros(n), at=np.zeros((3, n)),
        root=np.sqrt(np.maximum(diagonal, 1e-300)), wanted=np.zeros(n, dtype=np.int8),
        bend=np.empty((sj.LONGEST + 2, capacity)), old=np.zeros((3, n)), old_side=np.zeros(n, dtype=np.int8),
        old_num=np.zeros(5), old_end=np.zeros(3, dtype=np.int64), pace=pace,
    )  # fmt: skip


class WindowTracker(Tracker):
    """`Tracker` whose `_advance` uses windows where they pay."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.windowed = False  # then the inverse is where the factor was
        self.rest = 0  # events to follow without windows
        self.penalty = REST
        self.least = max(FEWEST, int(WORTH / max(1, self.n)))
        self.q = new_stretch(self.n, self.store.diagonal, self.capacity)
        self.w = new_window(self.n, self.capacity, min(WIDTH, self.n) + sj.ROOM)
        self.stats["n_inverses"] = 0

    # ---- the inverse -----------------------------------------------------------------------------------------------

    def _invert(self) -> bool:
        """The inverse of the elbow's matrix, its lower triangle. False when a pivot is too small for windows."""
        m = self.m
        A = self.store.block(self.elbow)
        A += self.bump
        diagonal = np.diag(A).copy()
        upper, info = dpotrf(A.T, lower=0, clean=1, overwrite_a=1)
        if info != 0 or not np.all(np.diag(upper) ** 2 > sj.PIVOT * diagonal):
            return False
        half, info = dpotri(upper, lower=0, overwrite_c=1)
        if info != 0:
            return False
        self.S.factor[:m, :m] = half.T
        self.q.pace[sj.FRESH_FOR] = 0
        self.stats["n_inverses"] += 1
        return True

    def _factorise(self) -> bool:
        if not self.windowed:
            return super()._factorise()
        if self.q.pace[sj.FRESH_FOR] < FACTOR_EVERY or self._invert():
            return True
        self._stop_windows()
        return super()._factorise()

    def _refresh(self, lam: float, factor: bool) -> float:
        gap = super()._refresh(lam, factor)
        if self.windowed and not gap <= GAP and self.q.pace[sj.FRESH_FOR] > 0:  # perhaps the inverse is stale
            self.q.pace[sj.FRESH_FOR] = FACTOR_EVERY
            gap = super()._refresh(lam, factor=True)
        return gap

    def _solve_elbow(self, b: FloatArray) -> FloatArray:
        if not self.windowed:
            return super()._solve_elbow(b)
        x = np.zeros(b.size)
        wj.symmetric_product(self.S.factor, b.size, b, x)
        return x

    def _stop_windows(self) -> None:
        """Go on with the factor: after trouble, or on a small elbow."""
        if self.windowed:
            self.windowed = False
            self.rest = self.penalty
            self.penalty = min(2 * self.penalty, 4096)

    def _polish(self) -> bool:
        if self.windowed:
            self._stop_windows()
            Tracker._factorise(self)
        return super()._polish()

    def _seat(self, lam: float) -> None:
        self.windowed = False
        super()._seat(lam)

    def _restore(self, shot: tuple[Any, ...], clear: bool = True) -> bool:
        self._stop_windows()
        return super()._restore(shot, clear)

    # ---- the loop --------------------------------------------------------------------------------------------------

    def _advance(self, opt: pj.Options) -> int:
        if self.m < self.least or self.rest > 0:
            if self.windowed:
                self._stop_windows()
                if not self._leave_windows():
                    return pj.SINGULAR
            known = self.n_events
            code = self._call(opt._replace(budget=min(opt.budget, max(self.rest, REST))), self.log)
            self.rest = max(0, self.rest - max(1, self.n_events - known))
            return code
        if not self.windowed:
            self.q.pace[[sj.RATED, sj.RETRIES, sj.WANTED]] = 0
            self.q.wanted[:] = 0
            if not self._invert():
                self.rest = self.penalty
                self.penalty = min(2 * self.penalty, 4096)
                return self._advance(opt)
            self.windowed = True
        begin = self.n_events
        code = self._windows(opt)
        if self.n_events - begin > REST:
            self.penalty = REST
        if code in (sj.STOPPED, sj.DEFEATED):
            self._stop_windows()
            if code == sj.DEFEATED:  # the gap objects, or candidates do not help
                self.rest = max(self.rest, REST)
            if not self._leave_windows():
                return pj.SINGULAR
            return pj.BUDGET if code == sj.DEFEATED else pj.REFRESH
        return _CODES[code]

    def _leave_windows(self) -> bool:
        """The triangular factor again, the elbow's residual booked as shift. False when it is singular."""
        S = self.S
        index = self.elbow
        S.base[index] -= S.resid[index]
        S.resid[index] = 0.0
        return Tracker._factorise(self)

    def _windows(self, opt: pj.Options) -> int:
        """`follow_windows`, with rows fetched and room made where it asks for them."""
        course = sj.Course(
            opt.t_end, RATE_TOL, opt.stretch, opt.refresh, opt.budget, opt.n_events_max, GAP, self.store.whole,
            self.lower, self.upper,
        )  # fmt: skip
        while True:
            code = int(sj.follow_windows(self.P, self.S, self.w, self.q, self.log, course))
            if code == sj.GROW:
                self._make_room()
            elif code == sj.ROWS:
                self._store_rows(self.S.cnt[[ej.WANT]])
            elif code == sj.AHEAD:
                cand = self.w.cand[: self.w.count[wj.CANDIDATES]]
                self._store_rows(cand[np.argsort(self.q.score[cand])[: sj.LONGEST]])
            else:
                return code

    def _store_rows(self, wanted: Any) -> None:
        if self.store.fetch(wanted, self.elbow):
            self._set_slope(self.P.slope)

    def _make_room(self) -> None:
        """Room for the next window's slots and candidates."""
        assert SPARE >= sj.ROOM  # else this would not end
        while self.m + sj.ROOM > self.capacity:
            self._grow()
        pace = self.q.pace
        candidates = int(max(self.w.K.shape[0], 1.25 * (pace[sj.WIDTH] + pace[sj.WANTED] + sj.ROOM)))
        self.w = new_window(self.n, self.capacity, candidates)
        self.q = self.q._replace(bend=np.empty((sj.LONGEST + 2, self.capacity)))

    def record(self, ended: str) -> Any:
        """What was followed, with the counts of the windows."""
        pace = self.q.pace
        self.stats.update(
            n_windows=int(pace[sj.N_WINDOWS]), n_taken_back=int(pace[sj.N_BACK]),
            n_window_events=int(pace[sj.N_INSIDE]),
        )  # fmt: skip
        return super().record(ended)
