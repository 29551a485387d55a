"""The path algorithm of Ong, Shao and Yang (SVMP) as published, with corrections.

In the order of the paper, it begins with IR: SMO at lambda_max. Then every event takes these steps:

1. Decompose A. Compute the direction d and the null basis U (27), and the rates p (35).
2. The special-event routine SR (S1)-(S4).
3. The step. It has the closed form (47)-(49) when U is empty. Otherwise HiGHS solves the linear program (30)-(34) once.
4. The updates (36)-(46).
5. The check for loops, with the backup routine BR at (1 - gamma) lambda. Then the KKT check (56), with BR where it fails.

`path/bordered` holds A, `path/programs` the linear programs. `path/published_jit` has what is done point by point.

Deviations from the print, with the numbers of `path.md`:

- C1: sizes and sums of null vectors. C1b: V is not U for an indefinite A.
- C2: when the elbow is not empty, U moves no residual. So (32)-(33) bound the step alone, and the program has only box rows.
- C3: for an empty elbow there is a program over the bias.
- C4: the step ends at lambda_min.
- C5: residuals come from (16), as lambda times xi.
- C6: the solution by QR is truncated.
- C9: the order of tests in the loop, and what is reset.
- C10: a step ends where lambda has shrunk tenfold.

Against switching without end: SR moves a point at most once before lambda falls again. Where a step makes no way, only the
points that block it change sides. With a null space these are the points that bear on the program, by its multipliers. After
two such steps only the one of least index changes sides. After `most_blocked` of them BR goes on below. It goes down by
`back` / 10,000 first, and by up to `back` where that does not help. Values in between are interpolated.

Added to the paper: before each step the residual that the elbow keeps is removed by the decomposition at hand. The fast
tracker removes what SMO leaves at its tolerance, or cannot remove for rounding. The relative gap is checked beside (56).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.base.highs import LinearProgram
from svmcore.kernel.rows import RowStore
from svmcore.path import published_jit as pub
from svmcore.path.bordered import Bordered
from svmcore.path.elbow_jit import BOX, ELBOW, LOW, MARGIN, RESTART, SPECIAL, UP
from svmcore.path.headway import STALLED, Headway
from svmcore.path.options import INTERIOR, PublishedOptions
from svmcore.path.problem import BoxPath
from svmcore.path.programs import Advance, empty_step, null_step
from svmcore.path.record import Followed, Track, offsets
from svmcore.path.seat import best_bias
from svmcore.path.tracker import Tracker
from svmcore.simd.loops import add_rows

# When something has arrived: a residual within NEAR of zero, relative to lambda; a value within TOUCH of its box, relative to
# the width of the box; a value of a solver within AT_BOX of its box, in the same units; lambda within ARRIVED of its end,
# relatively.
NEAR, TOUCH, AT_BOX, ARRIVED = 1e-9, 1e-11, 1e-12, 1e-12
LEAST_RATE = 1e-9  # a residual that changes more slowly with lambda does not block
BEARS = 1e-7  # a point bears on the linear program where its multiplier is above this, relative to the largest one
# Refinement. A residual below ROUNDING, relative to lambda, needs none. It is not carried out where it would move a value by
# more than the share FAR of the widest box.
ROUNDING, FAR = 1e-14, 1e-3
ITERATION = 5.0  # what an iteration counts, in events of the fast tracker (`path/headway`)
ITERATIONS_PAID = 1.0  # and how much of them a way is worth
LOST = 1e-10  # a sum of beta that is off by more, relative to the sum of |beta|, is mended at once
# BR is content with a violation of EXACT, and a relative gap of ten times EXACT. At first it goes back by the share
# FIRST_BACK of `back`.
EXACT, FIRST_BACK = 1e-10, 1e-4


class Heading(NamedTuple):
    """Changes when lambda falls by 1: of the bias, of -beta on the elbow, and of every residual."""

    bias: float
    elbow: FloatArray
    rate: FloatArray


class Shot(NamedTuple):
    """A state to which the record can return. It must be that of the last knot."""

    lam: float
    bias: float
    beta: FloatArray
    n_knots: int
    n_logged: int
    n_events: int
    n_backup: int


class PaperTracker:
    """The published algorithm. It has the same problem as `tracker.Tracker`, and the same record at its end."""

    def __init__(
        self, K: Any, slope: FloatArray, lower: FloatArray, upper: FloatArray, *, equality: bool, mode: str, budget: float,
        solver: Any, options: PublishedOptions, go_on: Callable[[], bool] = lambda: True,
        rows_while: Callable[[float], bool] = lambda done: True,
    ) -> None:  # fmt: skip
        n = slope.size
        self.state = pub.PublishedState(
            beta=lower.copy(), resid=np.zeros(n), fixed=np.zeros(n), side=np.zeros(n, dtype=np.int8),
            move=np.zeros(n, dtype=np.int8), switched=np.zeros(n, dtype=np.int8),
            slope=np.ascontiguousarray(slope), lower=np.ascontiguousarray(lower), upper=np.ascontiguousarray(upper),
        )  # fmt: skip
        self.K, self.equality, self.solver, self.options = K, equality, solver, options
        self.go_on = go_on  # asked inside of repairs
        self.width = upper - lower
        self.store = RowStore(K, budget, go_on=rows_while)
        self.system = Bordered(mode, self.store, int(equality), options.rank_tol)
        self.program = LinearProgram(interior=options.lp == INTERIOR)
        self.elbow: IntArray = np.empty(0, dtype=np.int64)
        self.bias, self.lam = 0.0, np.inf
        self.corrector: Tracker | None = None
        self.n_events = 0
        self.events: list[tuple[float, IntArray, Any]] = []
        self.knots: list[tuple[float, float, int, Any, FloatArray]] = []
        self.stats: dict[str, Any] = {
            "n_lp": 0, "n_special": 0, "n_kkt": 0, "n_backup": 0, "n_iterations": 0, "n_steps": 0,
            "null_dim_max": 0, "elbow_max": 0, "n_lp_failed": 0, "n_corrected": 0, "max_gap": 0.0,
        }  # fmt: skip
        self.n_blocked = self.n_special_run = 0
        self.back = options.back * FIRST_BACK
        self.borne = (0.0, 0.0)  # the violation and the gap that BR could not remove

    @property
    def m(self) -> int:
        """The number of points on the elbow."""
        return int(self.elbow.size)

    # ---- state ---------------------------------------------------------------------------------------------------

    def begin(self, lam: float, beta: FloatArray) -> None:
        """IR: begin at lambda, with SMO from beta."""
        self._solve(lam, beta, self.options.start_tol)
        self.side0 = self.state.side.copy()
        self._knot()

    def _solve(self, lam: float, beta: FloatArray, tol: float) -> None:
        """Solve at lambda by SMO. The fast tracker removes what SMO leaves."""
        self.lam = self.fresh_at = lam
        self._take(self.solver(lam, np.clip(beta, self.state.lower, self.state.upper), tol))
        if not self.options.refine:
            return
        self._decompose()
        self._refine()
        violation, gap = self._measure()
        if violation <= EXACT and gap <= 10 * EXACT:
            return
        if self.corrector is None:
            state = self.state
            self.corrector = Tracker(
                self.K, BoxPath(np.zeros(state.slope.size), state.slope, state.lower, state.upper, self.equality), budget=0.0,
                solver=lambda lam, beta: self.solver(lam, beta, tol), go_on=self.go_on,
            )  # fmt: skip
            self.corrector.store = self.store
        self.stats["n_corrected"] += 1
        before = self.state.beta.copy()
        left = self.corrector.settle(lam, before)
        if not left <= 10 * EXACT:
            self.corrector.improve(left)
        self._take(self.corrector.state.beta)
        if not self._measure()[1] <= gap:
            self._take(before)

    def _take(self, beta: FloatArray) -> None:
        """Sides, elbow and bias from beta."""
        state, near = self.state, AT_BOX * self.width
        state.beta[:] = np.where(
            beta <= state.lower + near, state.lower, np.where(beta >= state.upper - near, state.upper, beta)
        )
        inside = (state.beta > state.lower) & (state.beta < state.upper)
        state.side[:] = np.where(inside, ELBOW, np.where(state.beta >= state.upper, UP, LOW))
        self.elbow = np.flatnonzero(inside)
        self._fetch(self.elbow)
        self.bias = 0.0
        self._from_scratch()
        self.bias = best_bias(state.resid, state.side, self.elbow) if self.equality else 0.0
        state.resid[:] -= self.bias
        self.system.clear()

    def _fetch(self, wanted: IntArray) -> None:
        if not self.store.whole and wanted.size:
            self.store.fetch(wanted, np.concatenate([self.elbow, wanted]))

    def _from_scratch(self) -> None:
        """Compute residuals, with a fresh product of K with the values outside of the elbow."""
        state = self.state
        state.fixed[:] = self.store.product(np.where(state.side == ELBOW, 0.0, state.beta))
        self._residuals()

    def _residuals(self) -> None:
        """Residuals by (16) times lambda: r = lambda c - K beta - bias. The elbow's part of K beta is computed afresh."""
        state = self.state
        product = state.fixed.copy()
        add_rows(self.store.rows, self.store.slot[self.elbow], state.beta[self.elbow], 0, len(product), product)
        state.resid[:] = self.lam * state.slope - product - self.bias

    def _measure(self) -> tuple[float, float]:
        """The largest violation of (56), and the relative gap."""
        state = self.state
        gap = pub.relative_gap(state, state.beta, state.resid, self.bias, self.lam)
        return float(pub.violation(state, self.lam)), float(gap)

    def _carry_out(self, special: bool = False) -> None:
        """Log and carry out the moves of state.move."""
        state = self.state
        index = np.flatnonzero(state.move != pub.STAY)
        if index.size == 0:
            return
        come = index[state.move[index] == ELBOW]
        self._fetch(come)
        cause = np.where(state.move[index] == ELBOW, MARGIN, BOX) if not special else np.full(index.size, SPECIAL)
        self._log(index, np.column_stack([state.side[index], state.move[index], cause]))
        kept = np.empty(self.m + come.size, dtype=np.int64)
        m = pub.carry_out(state, self.store.rows, self.store.slot, self.elbow, kept)
        self.elbow = kept[:m]
        if not self.options.increments:
            self._residuals()

    def _log(self, index: IntArray, moves: Any) -> None:
        self.events.append((self.lam, index, moves))
        self.n_events += index.size

    def _shot(self) -> Shot:
        return Shot(
            self.lam, self.bias, self.state.beta.copy(), len(self.knots), len(self.events), self.n_events,
            self.stats["n_backup"],
        )  # fmt: skip

    def _return_to(self, shot: Shot) -> None:
        """Go back to this state. The record ends there, and what came after is forgotten."""
        self.lam, self.bias, self.n_events = shot.lam, shot.bias, shot.n_events
        self.state.beta[:] = shot.beta
        del self.knots[shot.n_knots :], self.events[shot.n_logged :]

    def _knot(self) -> None:
        """Record a knot: the values at this lambda."""
        index = self.elbow.astype(np.int32)
        self.knots.append((self.lam, self.bias, self.n_events, index, self.state.beta[self.elbow].copy()))

    # ---- one event -------------------------------------------------------------------------------------------------

    def run(self, low: float, watch: Any, max_events: int | None) -> str:
        """Follow the path down to lambda = low."""
        most, last = self.options.most_blocked, self.lam
        before = self._shot()
        headway = Headway(self.width.size, self.lam, ITERATIONS_PAID)
        while self.lam > low * (1.0 + ARRIVED):
            if headway.stalled(self.lam, ITERATION):
                return STALLED
            self.stats["n_iterations"] += 1
            stop = "max_events" if max_events is not None and self.n_events >= max_events else watch(self)
            if stop is not None:
                if (
                    not self.go_on()
                    and self.stats["n_backup"] > before.n_backup
                    and not self._measure()[1] <= self.options.gap_tol
                ):
                    self._return_to(before)  # BR was stopped before its end
                return str(stop)
            before = self._shot()
            nullity = self._decompose()
            self.stats["null_dim_max"] = max(self.stats["null_dim_max"], nullity)
            self.stats["elbow_max"] = max(self.stats["elbow_max"], self.m)
            self._refine()
            if not np.any(np.abs(self.state.beta) == self.width):
                self._scale_to(low)  # no point is at C, so no event is left
                break
            way = self._direction()
            # SR changes the sides of all points that block descent at once, by (S1)-(S4) and (57)-(63).
            if (
                nullity == 0
                and self.n_special_run <= most
                and pub.special_moves(
                    self.state, self.elbow, way.elbow, way.rate, self.lam, self.options.rate_tol, self.options.step_tol
                )
            ):
                self._carry_out(special=True)
                self.n_special_run += 1
                self.stats["n_special"] += 1
                continue
            if self.n_blocked > most:
                self._back_up(max((1.0 - self.back) * self.lam, low), "n_backup")
                self.back = min(10.0 * self.back, self.options.back)
                self.n_blocked, last = 0, self.lam
                continue
            known = self.n_events
            self._step(way, nullity, low)
            self.stats["n_steps"] += int(self.n_events > known)
            if self.options.check:
                self._check()
            if last - self.lam < self.options.step_tol * last:
                self.n_blocked += 1
            else:
                self.n_blocked = self.n_special_run = 0
                self.state.switched[:] = 0
                self.back = max(0.5 * self.back, self.options.back * FIRST_BACK)
                last = self.lam
        return "done"

    def _decompose(self) -> int:
        """Decompose A for the present elbow, which takes the order of A's columns.

        Returns the dimension of the null space.
        """
        if not self.m:
            return 0
        if not np.array_equal(self.system.points, self.elbow):
            self.system.become(self.elbow)
            self.elbow = self.system.points.copy()
        return self.system.nullity

    def _refine(self) -> None:
        """Remove the residual that the elbow keeps, and the defect of the sum, by the decomposition at hand."""
        if not (self.m and self.options.refine):
            return
        state, index, border = self.state, self.elbow, self.system.border
        r = state.resid[index]
        defect = float(state.beta.sum()) if self.equality else 0.0
        before = max(float(np.max(np.abs(r))), abs(defect))
        if before <= ROUNDING * self.lam:
            return
        step = self.system.solve(np.concatenate([[-defect], r]) if border else r)
        now, bias = state.beta[index], self.bias
        new = np.clip(now + step[border:], state.lower[index], state.upper[index])
        if not np.isfinite(step).all() or np.max(np.abs(new - now)) > FAR * np.max(self.width):
            return
        state.beta[index] = new
        self.bias += float(step[0]) if border else 0.0
        self._keep_sum(index)
        self._residuals()
        if float(np.max(np.abs(state.resid[index]))) > before:  # too much was clipped, so this is undone
            state.beta[index] = now
            self.bias = bias
            self._residuals()

    def _direction(self) -> Heading:
        """(27) and (35). d is the solution of least norm, or the basic one."""
        state = self.state
        if not self.m:
            return Heading(0.0, np.empty(0), -state.slope)
        border = self.system.border
        full = self.system.solve(np.concatenate([np.zeros(border), state.slope[self.elbow]]))
        bias = float(full[0]) if border else 0.0
        d = np.ascontiguousarray(full[border:])
        rate = bias - state.slope
        add_rows(self.store.rows, self.store.slot[self.elbow], d, 0, len(rate), rate)
        return Heading(bias, d, rate)

    def _step(self, way: Heading, nullity: int, low: float) -> None:
        """Take the step of the linear program, which has a closed form where there is no null space. Then (36)-(46)."""
        state, lam, index = self.state, self.lam, self.elbow
        outside = float(pub.outside_step(state, way.rate, LEAST_RATE))
        longest = min(lam - low, 0.9 * lam)
        if self.m == 0 and self.equality:
            step = empty_step(self.program, state, longest)
        elif nullity == 0:
            step = Advance(min(outside, float(pub.box_step(state, index, way.elbow)), longest))
        else:
            # Increments are the printed form: there a program takes lambda as far as it can.
            reach = min(outside, lam - low if self.options.increments else longest)
            step = null_step(
                self.program, state, index, self.system.null_basis()[self.system.border :], way.elbow, reach
            )
        self.stats["n_lp"] += int(step.found is not None)
        self.stats["n_lp_failed"] += int(step.found is False)
        stuck = step.length <= self.options.step_tol * lam
        if stuck:
            if step.shift is not None:
                step = step._replace(length=0.0, shift=None)
            self._mark_blockers(way, step, outside)
        self.lam = max(
            self.lam - step.length, low
        )  # rounding could make zero of a step that takes most of a huge lambda
        self.bias += step.bias - step.length * way.bias
        change = -step.length * way.elbow if step.shift is None else step.shift - step.length * way.elbow
        state.beta[index] = np.clip(state.beta[index] + change, state.lower[index], state.upper[index])
        if self.options.increments:
            state.resid[:] += step.length * way.rate - step.bias
        elif self.lam < 0.5 * self.fresh_at:  # what was rounded at a large lambda is no longer small
            self._from_scratch()
            self.fresh_at = self.lam
            self.borne = (0.0, 0.0)
        else:
            self._residuals()
        if not stuck:
            self._refine()
        self._keep_sum(index)
        if not stuck:
            pub.arrivals(state, index, self.lam, NEAR, TOUCH)
        self._carry_out()
        self._knot()

    def _keep_sum(self, index: IntArray) -> None:
        """Mend a sum of beta that is lost, where there is most room.

        Huge kernel values drown the ones of the border, and the decomposition does not see them then.
        """
        beta, low, up = (values[index] for values in (self.state.beta, self.state.lower, self.state.upper))
        rest = float(self.state.beta.sum())
        if self.equality and index.size and abs(rest) > LOST * float(np.sum(np.abs(self.state.beta))):
            room = beta - low if rest > 0.0 else up - beta
            widest = int(np.argmax(room))
            self.state.beta[index[widest]] -= np.clip(rest, -room[widest], room[widest])
            self._residuals()

    def _mark_blockers(self, way: Heading, step: Advance, outside: float) -> None:
        """Mark the points that block a step without way: all of them, or after two such steps the first.

        In place: state.move.
        """
        state = self.state
        if not self.m:
            count = pub.arrivals(state, self.elbow, self.lam, NEAR, TOUCH)
        else:
            limit = step.length + pub.TIE * self.lam
            count = pub.blockers(state, self.elbow, way.elbow, way.rate, limit, LEAST_RATE, step.dual is None)
            if step.dual is not None and outside > limit:
                bears = np.abs(step.dual) > BEARS * np.max(np.abs(step.dual), initial=0.0)
                at_low = state.beta[self.elbow] <= state.lower[self.elbow] + TOUCH * self.width[self.elbow]
                at_up = state.beta[self.elbow] >= state.upper[self.elbow] - TOUCH * self.width[self.elbow]
                state.move[self.elbow[bears & at_low]] = LOW
                state.move[self.elbow[bears & at_up]] = UP
                count = int((bears & (at_low | at_up)).sum())
        if count == 0:
            self.n_blocked = self.options.most_blocked  # there is no point to move, so BR is next
        elif self.n_blocked > 2:
            pub.keep_first(state)

    def _check(self) -> None:
        """Check (56) and the gap. BR runs at the same lambda where they fail by more than BR has left the last time.

        Its solution replaces what failed. Between solutions at both ends, all values in between are solutions, too.
        """
        violation, gap = self._measure()
        if violation <= max(self.options.kkt_tol, self.borne[0]) and gap <= max(self.options.gap_tol, self.borne[1]):
            self.stats["max_gap"] = max(self.stats["max_gap"], gap)
            return
        if len(self.knots) > 1:
            self.knots.pop()
        self._back_up(self.lam, "n_kkt")
        violation, gap = self._measure()
        self.borne = (4.0 * violation, 4.0 * gap)
        self.stats["max_gap"] = max(self.stats["max_gap"], gap)

    def _back_up(self, lam: float, why: str) -> None:
        """BR: SMO at lambda from the present point. Sides are decided anew."""
        self.stats["n_backup"] += 1
        self.stats[why] += int(why != "n_backup")
        before = self.state.side.copy()
        self._solve(lam, self.state.beta, self.options.backup_tol)
        index = np.flatnonzero(before != self.state.side)
        self._log(index, np.column_stack([before[index], self.state.side[index], np.full(index.size, RESTART)]))
        self._knot()

    def _scale_to(self, low: float) -> None:
        """Go down to `low` where no point is at C. There alpha is constant, and beta-hat and the bias scale with lambda."""
        ratio = low / self.lam
        self.state.beta[:] *= ratio
        self.state.fixed[:] *= ratio
        self.bias *= ratio
        self.lam = low
        self._residuals()
        self._knot()
        if self.options.check:  # the relative gap grows while lambda falls
            self._check()

    # ---- the end -----------------------------------------------------------------------------------------------------

    def record(self, ended: str) -> Followed:
        """The finished path."""
        b = self.state.beta
        stats = {**self.stats, "n_decompositions": self.system.n_fresh, "n_updates": self.system.n_updates}
        moves = np.concatenate([np.empty((0, 3)), *(move for _, _, move in self.events)])
        track = Track(
            side0=self.side0,
            event_lambda=np.repeat([lam for lam, _, _ in self.events], [index.size for _, index, _ in self.events]),
            event_index=np.concatenate([np.empty(0, dtype=np.int64), *(index for _, index, _ in self.events)]),
            event_move=moves.astype(np.int8),
            knot=np.array([[k[0], k[1]] for k in self.knots]),
            chord=np.zeros((len(self.knots), 2)),
            knot_events=np.array([k[2] for k in self.knots], dtype=np.int64),
            offset=offsets(np.array([k[3].size for k in self.knots], dtype=np.int64)),
            index=np.concatenate([k[3] for k in self.knots]),
            value=np.concatenate([k[4] for k in self.knots]),
            phi_end=float(0.5 * b @ self.store.product(b) - self.lam * (self.state.slope @ b)),
        )
        return Followed(track, stats, ended)
