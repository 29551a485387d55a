"""The fast tracker: Python's half of the regularization path (`_path_jit` holds the compiled half).

`Tracker` owns the state, fetches kernel rows, factorises with LAPACK, and measures the exact duality gap at every refresh. It
repairs what rounding has spoiled, in this order:

1. *refresh*: residuals are computed from scratch. What does not fit the sides becomes a shift of the linear term. So the
   state is exactly optimal for a neighbouring problem.
2. *redo*: a stretch that ended with a gap above `REDO_GAP` is followed again from its start, with more refreshes.
3. *polish*: the same tracker removes the shift, with t from 1 to 0 at a fixed lambda.
4. *backup*: start again at this lambda from the best feasible point, with sides anew, and polish that.

Cost: an event takes one pass over n x |E| kernel values, one triangular solve and one update of the factor. A refresh takes a
Cholesky factorisation of |E|.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from svmcore import _path_jit as pj
from svmcore._types import FloatArray, IntArray
from svmcore.kernel.rows import RowStore
from svmcore.path import elbow_jit as ej
from svmcore.path.engine import Engine, Factor
from svmcore.path.headway import STALLED, Headway
from svmcore.path.log_jit import KNOTS, loosen_chord
from svmcore.path.problem import BoxPath
from svmcore.path.record import REFRESH_EVERY, Followed, Recorder
from svmcore.path.seat import ROUNDING, new_state, newton, seat
from svmcore.simd.vector import BIG

GAP = 1e-9
"""The shift is removed where the relative gap is above this."""
REDO_GAP = 5e-9
"""A stretch is followed again where the relative gap at its end is above this."""
STRETCH = 0.5
"""Between two refreshes lambda falls at most to this share of itself. Interpolation magnifies rounding by the ratio."""
RATE_TOL = 1e-9
"""A residual with a smaller rate meets nothing on the path."""
POLISH_RATE_TOL = 1e-10
"""The same in a polish."""
STILL = 1e-13
"""An elbow value with a smaller rate does not move. The unit is one over a kernel value of typical size."""
START_GAP = 1e-11
"""The start of a path needs no further polish where the relative gap is at most this."""
VAIN = 20
"""Repairs do not ask the solver again when it has not mended so many of them."""
NEARLY = 1e-9
"""A polish that gets stuck at this share of lambda, or later, has done its work."""
WORK_PER_SLICE = 2e8
ELBOW = 224
"""So many places on the elbow are there at the start. More are made when they are needed."""
SPARE = 80
"""There may be so many more places on the elbow than points, because a window (`path/window_jit`) uses no place twice."""


class Tracker:
    """Follows the solution of a box problem while its parameter t falls (`path/problem`). For a classifier t is lambda."""

    def __init__(
        self,
        oracle: Any,
        problem: BoxPath,
        *,
        budget: float = 2e9,
        batch: bool = False,
        solver: Any = None,
        go_on: Callable[[], bool] = lambda: True,
        rows_while: Callable[[float], bool] | None = None,
        windows: Callable[[Tracker], Engine] = Factor,
    ) -> None:
        n = oracle.n
        self.solver, self.vain = solver, 0
        self.go_on = go_on  # asked inside of repairs
        self.n, self.problem = n, problem
        self.lower, self.upper, self.equality = problem.lower, problem.upper, problem.equality
        self.level, self.floor, self.batch = problem.level, problem.floor, batch
        self.store = RowStore(oracle, budget, go_on=rows_while or (lambda done: go_on()))
        mean = float(self.store.diagonal.sum()) / n
        self.bump = (mean if mean > 0.0 else 1.0) if self.equality else 0.0
        curved = np.sort(self.store.diagonal[self.store.diagonal > 0.0])
        self.still = STILL / float(curved[curved.size // 2]) if curved.size else STILL
        self.capacity = int(min(n + SPARE, ELBOW))
        self.state = new_state(n, self.lower, self.upper, self.capacity)
        self.work = ej.Work(np.zeros(n + 2), np.zeros(n + 2), np.zeros(n), np.zeros(n))
        self.recorder = Recorder(n, self.capacity)
        self.refresh_every = REFRESH_EVERY
        self.stats = {
            "n_polish": 0, "n_backup": 0, "n_redo": 0, "n_refresh": 0, "max_gap": 0.0, "max_shift": 0.0,
            "n_polish_events": 0,
        }  # fmt: skip
        self.set_slope(problem.slope)
        self.factor: Engine = Factor(self)
        self.engine: Engine = self.factor
        """The engine whose form of the elbow's matrix is the present one."""
        self.guide = windows(self)
        """The engine that goes on down the path. It may use the factor, or be the factor."""

    # ---- small pieces ------------------------------------------------------------------------------------------

    def set_slope(self, slope: FloatArray) -> None:
        """Set the problem as compiled code sees it, with this slope and the rows that are stored."""
        store = self.store
        self.setting = ej.Setting(
            store.rows, store.slot, store.diagonal, self.problem.fixed, slope, self.bump, self.equality, self.still,
            self.level, self.floor,
        )  # fmt: skip

    def size(self, t: float) -> float:
        """The size of the linear term at t, against which errors are measured."""
        return self.level + t

    @property
    def m(self) -> int:
        """The number of points on the elbow."""
        return int(self.state.cnt[ej.N_ELBOW])

    @property
    def elbow(self) -> IntArray:
        """The points on the elbow, in the order of the factor. This is a view."""
        return self.state.elbow[: self.m]

    @property
    def n_events(self) -> int:
        """The number of events so far."""
        return int(self.state.cnt[ej.N_EVENT])

    @property
    def lam(self) -> float:
        """The present lambda. Within a polish it is something else."""
        return float(self.state.num[ej.NOW])

    def grow(self) -> None:
        """Make room for more points on the elbow."""
        old = self.capacity
        self.capacity = int(min(self.n + SPARE, max(old + 64, 1.5 * old)))
        state = self.state
        factor = np.zeros((self.capacity, self.capacity))
        factor[:old, :old] = state.factor
        more = np.zeros(self.capacity - old)
        self.state = state._replace(
            factor=factor,
            elbow=np.concatenate([state.elbow, more.astype(np.int64)]),
            half_slope=np.concatenate([state.half_slope, more]),
            half_one=np.concatenate([state.half_one, more]),
        )
        self.recorder.grow(self.capacity)

    def _fetch(self, point: int) -> None:
        """Store the kernel row of `point`, and those that will probably be needed next."""
        state, work = self.state, self.work
        outside = np.flatnonzero((self.store.slot < 0) & (state.side != ej.ELBOW) & (work.step < BIG))
        if outside.size > self.store.ahead:
            near = np.argpartition(work.step[outside], self.store.ahead)[: self.store.ahead]
            outside = outside[near]
        wanted = np.unique(np.append(outside, point))
        wanted = np.concatenate([[point], wanted[wanted != point]])
        if self.store.fetch(wanted, self.elbow):
            self.set_slope(self.setting.slope)

    # ---- residuals, gap, factor ----------------------------------------------------------------------------------

    def _product(self) -> FloatArray:
        """K beta, from rows that are kept or from the data."""
        state = self.state
        if not ej.renew_image(self.setting, state):
            state.image[:] = self.store.product(state.beta)
            state.then[:] = state.beta
            state.cnt[ej.AGE] = 0
        return state.image

    def _measure(self, lam: float) -> tuple[float, float]:
        """Residuals from beta alone, and a new shift. Returns its largest entry, and the relative gap."""
        self._product()
        shift, gap = ej.measure(self.setting, self.state, lam, self.lower, self.upper)
        return float(shift), gap if math.isfinite(gap) else math.inf

    def relative_gap(self, lam: float) -> float:
        """The exact relative duality gap of the present point at `lam`, for the problem without shift.

        It is infinite where the sum of the values is lost.
        """
        gap = float(ej.sure_gap(self.setting, self.state, lam, self.lower, self.upper))
        return gap if math.isfinite(gap) else math.inf

    def use_factor(self) -> bool:
        """Use the triangular factor from here on. It is still to be made. Returns whether another form was in use."""
        if self.engine is self.factor:
            return False
        self.engine.leave()
        self.engine = self.factor
        return True

    def _refresh(self, lam: float, factor: bool) -> float:
        """`_renew`. It is done once more where the form of the matrix may be to blame for a large gap."""
        gap = self._renew(lam, factor)
        if not gap <= GAP and self.engine.doubt():
            gap = self._renew(lam, factor=True)
        return gap

    def _renew(self, lam: float, factor: bool) -> float:
        """Recompute, correct, absorb, measure. Returns the relative gap. It is infinite when the factor broke down.

        The shift is decided anew: a residual that fits its side needs none. What is left on the elbow is first corrected by
        a Newton step. The step is kept only if the exact gap says that it has helped.
        """
        state = self.state
        self.stats["n_refresh"] += 1
        if factor:
            state.cnt[ej.SINCE] = 0
            if not (self.engine.factorise() or (self.use_factor() and self.factor.factorise())):
                return np.inf
            # Undo what spread ties did to the boxes, and move beta into them.
            state.lower[:], state.upper[:] = self.lower, self.upper
            inside = np.clip(state.beta, self.lower, self.upper)
            state.beta[:] = np.where(
                state.side == ej.LOW, self.lower, np.where(state.side == ej.UP, self.upper, inside)
            )
        shift, gap = self._measure(lam)
        state.num[ej.T_REFRESH] = lam
        for _ in range(2):
            if gap <= ej.FINE or self.m == 0:
                break
            before = (state.beta.copy(), float(state.num[ej.BIAS]), state.resid.copy(), state.base.copy())
            state.resid[:] -= state.base
            newton(self)
            moved, better = self._measure(lam)
            if not better < gap:
                state.beta[:], state.num[ej.BIAS], state.resid[:], state.base[:] = before
                break
            shift, gap = moved, better
        self.stats["max_shift"] = max(self.stats["max_shift"], shift / self.size(lam))
        return gap

    # ---- repairs -----------------------------------------------------------------------------------------------

    def _polish(self) -> bool:
        """Remove the shift at the present lambda: run the tracker with the shift as slope, from t = 1 to 0."""
        if self.use_factor():
            self.factor.factorise()
        state = self.state
        lam = self.lam
        shift = state.base.copy()
        size = float(np.max(np.abs(shift), initial=0.0))
        if size == 0.0:
            return True
        self.stats["n_polish"] += 1
        before = int(state.cnt[ej.N_EVENT])
        state.base[:] = self.problem.term(lam)
        state.num[ej.NOW] = size
        self.set_slope(shift / size)
        ej.restart_rhs(self.setting, state)
        state.cnt[ej.ZERO_RUN] = 0
        budget = 40 * self.n + 4000
        fine = False
        code = ej.BUDGET
        while budget > 0:
            step = min(budget, 500)
            opt = pj.Options(
                0.0, POLISH_RATE_TOL, size, 0.0, 1 << 60, step, False, False, 1 << 60, self.lower, self.upper
            )  # fmt: skip
            code = self.follow(opt, polish=True)
            self.recorder.scratch.end[:] = 0
            budget -= step
            if code == ej.DONE:
                fine = True
                break
            if not self.go_on():
                break
            if code != ej.BUDGET or state.num[ej.NOW] <= NEARLY * self.size(lam):
                # Only ties are left, and spreading them would cost more.
                break
        self.stats["n_polish_events"] += int(state.cnt[ej.N_EVENT]) - before
        state.cnt[ej.N_EVENT] = before
        state.cnt[ej.ZERO_RUN] = 0
        state.num[ej.NOW] = lam
        self.set_slope(self.problem.slope)
        if code == ej.SINGULAR:  # beta is feasible, but the sides no longer describe it
            seat(self, lam)
            return False
        return bool(np.isfinite(self._refresh(lam, factor=True))) and fine

    def follow(self, opt: pj.Options, polish: bool) -> int:
        """Run `_path_jit.follow`. Fetch rows and make room where it asks for them. Nobody reads the log of a polish."""
        while True:
            log = self.recorder.scratch if polish else self.recorder.log
            code = int(pj.follow(self.setting, self.state, self.work, log, opt))
            if code == ej.GROW:
                self.grow()
            elif code == ej.ROWS:
                self._fetch(int(self.state.cnt[ej.WANT]))
            else:
                return code

    def settle(self, lam: float, beta: FloatArray) -> float:
        """Make `beta` the start at `lam`: elbow, bias, polish. Keeps the best state, and returns its relative gap."""
        self.state.beta[:] = beta
        seat(self, lam)
        best, gap = None, self.relative_gap(lam)
        for _ in range(3):
            if not self.go_on():
                break
            # At large lambda the primal is almost all slack, so the gap alone says little.
            shift = float(np.abs(self.state.base).max())
            if gap <= START_GAP and shift <= 2 * ROUNDING * self.size(lam):
                return gap
            best = best or self._snapshot()
            self._polish()
            now = self.relative_gap(lam)
            if now <= gap:
                best, gap = self._snapshot(), now
        if best is not None and not self.relative_gap(lam) <= gap:
            self._restore(best, clear=False)
        return self.relative_gap(lam)

    def improve(self, gap: float) -> float:
        """Bring the gap below `GAP` at the present lambda. The best state stays.

        An infinite `gap` says that the present state is useless.
        """
        lam = self.lam
        best = self._snapshot()
        for attempt in range(3 if self.vain < VAIN else 2):
            if not self.go_on():
                break
            if attempt == 0:
                if not np.isfinite(gap):
                    continue
                self._polish()
            else:
                self.stats["n_backup"] += 1
                self.settle(lam, best[0] if attempt == 1 or self.solver is None else self.solver(lam, best[0]))
            now = self.relative_gap(lam)
            if now < gap:
                best, gap = self._snapshot(), now
            if gap <= GAP:
                return gap
        self.vain += 1
        self._restore(best, clear=False)
        return gap

    def _repair(self, trouble: bool) -> None:
        """Improve the present point, and log what changed."""
        lam = self.lam
        before = self.state.side.copy()
        found = np.inf if trouble else self.relative_gap(lam)
        gap = self.improve(found)
        self.stats["max_gap"] = max(self.stats["max_gap"], gap)
        self.gap_now = gap
        state, log = self.state, self.recorder.log
        for i in np.flatnonzero(state.side != before).tolist():
            self.recorder.event(lam, i, before[i], state.side[i], ej.REPAIR)
        if pj.log_full(state, log):
            self.recorder.keep()
        if not np.isfinite(found) and log.end[KNOTS] and log.knot[log.end[KNOTS] - 1, 0] == lam:
            pj.correct_knot(state, log)  # what was there is no solution
        else:
            pj.log_knot(state, log)

    # ---- snapshots -----------------------------------------------------------------------------------------------

    def _snapshot(self) -> tuple[Any, ...]:
        state = self.state
        m = self.m
        return (
            state.beta.copy(), state.base.copy(), state.lower.copy(), state.upper.copy(), state.side.copy(),
            state.elbow[:m].copy(), state.num.copy(), state.cnt.copy(),
        )  # fmt: skip

    def _restore(self, shot: tuple[Any, ...], clear: bool = True) -> bool:
        self.use_factor()
        state = self.state
        state.beta[:], state.base[:], state.lower[:], state.upper[:], state.side[:] = shot[:5]
        state.elbow[: shot[5].size] = shot[5]
        state.num[:] = shot[6]
        state.cnt[:] = shot[7]
        if clear:
            self.recorder.forget()
        if not self.store.whole:
            self.store.fetch(self.elbow, self.elbow)
            self.set_slope(self.problem.slope)
        return bool(np.isfinite(self._refresh(self.lam, factor=True)))

    # ---- the path ------------------------------------------------------------------------------------------------

    def start_record(self) -> None:
        """Begin to record, with the sides and a knot as they are now."""
        state = self.state
        self.side0 = state.side.copy()
        kept = state.cnt[[ej.N_ELBOW, ej.AGE]]
        state.cnt[:] = 0
        state.cnt[[ej.N_ELBOW, ej.AGE]] = kept
        state.num[ej.WORST_GAP] = 0.0
        state.cnt[ej.N_ELBOW_MAX] = self.m
        self.recorder.forget()
        self.recorder.chunks = []
        pj.log_knot(state, self.recorder.log)
        self.recorder.keep()

    def run(self, lam_end: float, watch: Any, max_events: int | None = None) -> str:
        """Follow the path down to `lam_end`. `watch(self)` is called now and then. If it returns a string, the run ends.

        Where events repeat and t falls no more, the record ends where it last fell, and the answer is `STALLED`.
        """
        most = (1 << 60) if max_events is None else max_events
        shot = self._snapshot()
        headway = Headway(self.n, self.size(self.lam))
        good = self._place(shot)
        redo = trouble = False
        known = self._work()
        while True:
            state = self.state
            size = max(1.0, float(self.n) * max(1, self.m))
            budget = int(min(max(WORK_PER_SLICE / size, 8), 4096))
            opt = pj.Options(
                lam_end, RATE_TOL, 0.0, STRETCH, self.refresh_every, budget, self.batch, True, most, self.lower, self.upper
            )  # fmt: skip
            if headway.stalled(self.size(self.lam), 1 + self._work() - known, trouble):
                return self._end_at(good)
            known = self._work()
            code = self.guide.advance(opt)
            ended, log = code == ej.DONE, self.recorder.log
            stop = None
            trouble = code in (ej.STALLED, ej.SINGULAR)
            if code == ej.BUDGET:
                stop = "max_events" if state.cnt[ej.N_EVENT] >= most else watch(self)
                if stop is None:
                    continue
            factor = ended or stop is not None or state.cnt[ej.SINCE] >= self.refresh_every or code == ej.FLUSH
            if trouble or ej.is_lost(self.setting, self.state):
                gap = np.inf
            elif ended and pj.look_twice(self.setting, state, self.work, log, opt, self.engine is self.factor):
                gap = 0.0  # as good as can be, and the state has noted it
            else:
                gap = self._refresh(self.lam, factor)
            loosen_chord(log, np.inf, np.inf)  # it is not known by how much
            pj.correct_knot(self.state, log)
            if not gap <= REDO_GAP and self.refresh_every > 4:
                self.stats["n_redo"] += 1
                self.refresh_every = max(4, self.refresh_every // 5)
                redo = True
                if self._restore(shot):
                    continue
                trouble = True
            if not gap <= GAP:
                self._repair(trouble)
                if (
                    not self.go_on() and self.gap_now > GAP and self._restore(shot)
                ):  # the repair was stopped early, so the record goes back to where the point was good
                    return str(watch(self) or "done")
                if not np.isfinite(self.gap_now):
                    return self._end_at(good)
            elif redo and self.refresh_every < REFRESH_EVERY:
                self.refresh_every = min(REFRESH_EVERY, 2 * self.refresh_every)
            self.stats["max_gap"] = max(self.stats["max_gap"], gap if np.isfinite(gap) else 0.0)
            self.recorder.keep()
            if ended or stop is not None:
                return str(stop or "done")
            shot = self._snapshot()
            if headway.moved(self.size(self.lam)):
                good = self._place(shot)
            stop = watch(self)
            if stop is not None:
                return str(stop)

    def _work(self) -> int:
        """The events so far, with those of polishes."""
        return self.n_events + int(self.stats["n_polish_events"])

    def _place(self, shot: tuple[Any, ...]) -> tuple[tuple[Any, ...], int, float]:
        """A state, how much of the record leads there, and the largest gap on the way."""
        return shot, len(self.recorder.chunks), float(self.stats["max_gap"])

    def _end_at(self, place: tuple[tuple[Any, ...], int, float]) -> str:
        """Go back to a place of the record. It is the end of the path."""
        shot, chunks, gap = place
        del self.recorder.chunks[chunks:]
        self._restore(shot)
        self.stats["max_gap"] = gap
        return STALLED

    def record(self, ended: str) -> Followed:
        """The finished path."""
        cnt = self.state.cnt
        stats = {**self.stats, **self.guide.counts()}
        stats["max_gap"] = max(stats["max_gap"], float(self.state.num[ej.WORST_GAP]))
        stats["n_refresh"] += int(cnt[ej.N_LOOK])
        stats.update(
            n_steps=int(cnt[ej.N_STEP]), n_zero_steps=int(cnt[ej.N_ZERO]), n_exchange=int(cnt[ej.N_EXCHANGE]),
            n_flip=int(cnt[ej.N_FLIP]), n_batched=int(cnt[ej.BATCHED]), n_spread=int(cnt[ej.N_PERTURB]),
            elbow_max=int(cnt[ej.N_ELBOW_MAX]), zero_run_max=int(cnt[ej.N_ZERO_MAX]),
        )  # fmt: skip
        beta, problem = self.state.beta, self.problem
        phi = float(0.5 * beta @ self._product() - problem.fixed @ beta - self.lam * (problem.slope @ beta))
        return Followed(self.recorder.track(self.side0, phi), stats, ended)
