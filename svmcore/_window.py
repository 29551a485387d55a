"""The fast tracker with windows: most events cost a pass over the elbow instead of one over all points.

A window follows up to `STEPS` events on a few candidates with a lazy inverse (`_window_jit`). Then one pass over all
points gives every residual at a third, two thirds and the end, and a chord certificate clears the points in between:
between two of those times a residual differs from its chord by at most sqrt(k_ii) D + D0, where D is the largest
deviation of beta from its own chord in the kernel's norm and D0 that of the bias. Points that this does not clear are
looked at exactly. Where a point objects, the window is taken back and the point becomes a candidate.

Small elbows, ties, near-singular systems and repairs are left to `Tracker`, whose steps are the safety net, and whose
refreshes measure what windows did.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotri

from svmcore import _elbow_jit as ej
from svmcore import _path_jit as pj
from svmcore import _window_jit as wj
from svmcore._follow import GAP, RATE_TOL, Tracker
from svmcore._types import FloatArray, IntArray

STEPS = 32
PIVOT = 1e-8
"""A window neither starts with nor accepts a smaller relative pivot."""
FACTOR_EVERY = 1024
RESIDUAL = 1e-8
"""An elbow residual above this times lambda asks for a refresh."""
FEWEST = 40
WORTH = 8e4  # windows pay from an elbow of WORTH / n on
REST = 64
GO_ON = -1


class WindowTracker(Tracker):
    """`Tracker` whose `_advance` uses windows where they pay."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.inverse = np.zeros((0, 0))
        self.windowed = False
        self.fresh_for = 0  # events since the inverse was computed
        self.retries = 0
        self.rest = 0  # events to follow without windows
        self.penalty = REST
        self.steps = STEPS
        self.width = int(2.5 * STEPS)
        self.root = np.sqrt(np.maximum(self.store.diagonal, 1e-300))
        self.rate: FloatArray | None = None
        self.objectors: IntArray = np.empty(0, dtype=np.int64)
        self.least = max(FEWEST, int(WORTH / max(1, self.n)))
        self.stats.update(n_windows=0, n_taken_back=0, n_window_events=0, n_inverses=0)

    # ---- the inverse -----------------------------------------------------------------------------------------------

    def _invert(self) -> bool:
        """The inverse of the elbow's matrix, its lower triangle. False when a pivot is too small for windows."""
        index = self.elbow
        m = index.size
        self._room(m + STEPS + 4)
        A = self.store.block(index)
        A += self.bump
        diagonal = np.diag(A).copy()
        upper, info = dpotrf(A.T, lower=0, clean=1, overwrite_a=1)
        if info != 0 or not np.all(np.diag(upper) ** 2 > PIVOT * diagonal):
            return False
        half, info = dpotri(upper, lower=0, overwrite_c=1)
        if info != 0:
            return False
        self.inverse[:m, :m] = half.T
        self.fresh_for = 0
        self.stats["n_inverses"] += 1
        return True

    def _room(self, size: int) -> None:
        """Room for `size` slots in the inverse, and not much more: a flush works on all of it."""
        old = self.inverse.shape[0]
        if not size <= old <= 1.25 * size + 64:
            larger = np.zeros((size + 64, size + 64))
            kept = min(old, size)
            larger[:kept, :kept] = self.inverse[:kept, :kept]
            self.inverse = larger

    def _apply(self, b: FloatArray) -> FloatArray:
        """The inverse times b."""
        x = np.zeros(b.size)
        wj.symmetric_product(self.inverse, b.size, b, x)
        return x

    def _factorise(self) -> bool:
        if not self.windowed:
            return super()._factorise()
        if self.fresh_for < FACTOR_EVERY or self._invert():
            return True
        self._stop_windows()
        return super()._factorise()

    def _refresh(self, lam: float, factor: bool) -> float:
        gap = super()._refresh(lam, factor)
        if self.windowed and not gap <= GAP and self.fresh_for > 0:  # perhaps the inverse is stale
            self.fresh_for = FACTOR_EVERY
            gap = super()._refresh(lam, factor=True)
        return gap

    def _solve_elbow(self, b: FloatArray) -> FloatArray:
        return self._apply(b) if self.windowed else super()._solve_elbow(b)

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
        self.rate = None
        return super()._restore(shot, clear)

    # ---- the loop --------------------------------------------------------------------------------------------------

    def _advance(self, opt: pj.Options) -> int:
        if self.m < self.least or self.rest > 0:
            if self.windowed:
                self._stop_windows()
                self._absorb_elbow()
                if not super()._factorise():
                    return pj.SINGULAR
            known = self.n_events
            code = self._call(opt._replace(budget=min(opt.budget, max(self.rest, REST))), self.log)
            self.rest = max(0, self.rest - max(1, self.n_events - known))
            return code
        if not self.windowed:
            self.rate = None
            if not self._invert():
                self.rest = self.penalty
                self.penalty = min(2 * self.penalty, 4096)
                return self._advance(opt)
            self.windowed = True
        begin = self.n_events
        while self.n_events - begin < opt.budget and self.n_events < opt.n_events_max:
            code = self._window(opt)
            if self.n_events - begin > REST:
                self.penalty = REST
            if code != GO_ON:
                return code
        return pj.BUDGET

    def _absorb_elbow(self) -> None:
        S = self.S
        index = self.elbow
        S.base[index] -= S.resid[index]
        S.resid[index] = 0.0

    def _window(self, opt: pj.Options) -> int:
        """One window. Returns a code for `run`, or GO_ON."""
        S, L = self.S, self.log
        steps = int(min(self.steps, opt.n_events_max - self.n_events))
        m = self.m
        while m + STEPS + 4 > self.capacity and self.capacity < self.n + 2:
            self._grow()
            S, L = self.S, self.log
        size = m + STEPS + 4
        if (
            L.end[pj.EVENTS] + STEPS + 4 > L.event_t.shape[0]
            or L.end[pj.KNOTS] + STEPS + 3 > L.knot.shape[0]
            or L.end[pj.VALUES] + (STEPS + 2) * size > L.value.shape[0]
        ):
            return pj.FLUSH
        self._room(size)
        w, step, bias_step, region = self._prepare(size)
        S = self.S
        before = (S.beta.copy(), S.side.copy(), S.base.copy(), S.num.copy(), L.end.copy())
        f = wj.Field(
            self.P.rows, self.P.slot, self.P.diagonal, self.P.slope, S.beta, S.base, S.lower, S.upper, S.side, S.num,
            self.bump, self.equality,
        )  # fmt: skip
        wj.open_window(f, w, step, bias_step)
        limits = wj.Limits(opt.t_end, region, steps, PIVOT, RATE_TOL)
        code = int(wj.run_window(f, w, L, limits))
        self.stats["n_windows"] += 1
        objectors, resid = self._examine(w, before)
        gap = np.inf
        if objectors.size == 0:
            keep = S.resid.copy()
            S.resid[:] = resid
            self._last_resid = keep
            gap = self.relative_gap(float(S.num[ej.T]))
        if objectors.size or not gap <= 3 * GAP:
            if objectors.size == 0:
                S.resid[:] = keep
            S.beta[:], S.side[:], S.base[:], S.num[:], L.end[:] = before
            return self._taken_back(objectors, w)
        return self._accept(w, code, gap, before[3][ej.T], opt)

    def _taken_back(self, objectors: IntArray, w: wj.Window) -> int:
        self.stats["n_taken_back"] += 1
        self.objectors = np.union1d(self.objectors, objectors)
        done = int(w.count[wj.STEPS])
        self.retries += 1
        if objectors.size == 0 or self.retries > 6:
            # the gap objects, or candidates do not help: the tracker with the factor takes over
            self._stop_windows()
            self.objectors = np.empty(0, dtype=np.int64)
            self._absorb_elbow()
            self.rest = max(self.rest, REST)
            return pj.BUDGET if super()._factorise() else pj.SINGULAR
        self.width = int(min(self.n, 1.1 * self.width + 4))
        self.steps = max(1, min(self.steps, done) // 2)
        return GO_ON

    def _prepare(self, size: int) -> tuple[wj.Window, FloatArray, float, float]:
        """Candidates, scratch, and the correction of the elbow's residual."""
        S, m = self.S, self.m
        index = self.elbow.copy()
        u1, u2 = np.zeros(size), np.zeros(size)
        u1[:m] = self._apply(self.c[index])
        u2[:m] = self._apply(np.ones(m))
        step, bias_step = self._correction(index, u2[:m])
        if self.rate is None:
            d0 = float(u1.sum() / u2.sum()) if self.equality else 0.0
            rate = np.full(self.n, d0) - self.c
            ej.add_rows(rate, self.P, S, np.ascontiguousarray(u1[:m] - d0 * u2[:m]), m)
            self.rate = rate
        cand, region = self._candidates(index)
        room = cand.size + STEPS + 4
        inverse = self.inverse
        inverse[m:size, :size] = 0.0
        point = np.zeros(size, dtype=np.int64)
        point[:m] = index
        place = np.full(self.n, -1, dtype=np.int64)
        place[cand] = np.arange(cand.size)
        spot = np.full(size, -1, dtype=np.int64)
        start = np.zeros(size)
        start[:m] = S.beta[index]
        padded = np.zeros(room, dtype=np.int64)
        padded[: cand.size] = cand
        r = np.zeros(room)
        r[: cand.size] = S.resid[cand]
        count = np.zeros(10, dtype=np.int64)
        count[[wj.SLOTS, wj.LIVE, wj.START]] = m
        count[wj.CANDIDATES] = cand.size
        capacity = self.inverse.shape[0]
        w = wj.Window(
            point=point, dead=np.zeros(size, dtype=np.int8), spot=spot, start=start, M0=inverse,
            VP=np.zeros((STEPS + 1, capacity)), VM=np.zeros((STEPS + 1, capacity)), u1=u1, u2=u2, d=np.zeros(size),
            x=np.zeros(size), b=np.zeros(size), cand=padded, place=place, K=np.empty((room, size)), r=r,
            p=np.zeros(room), moved=np.zeros((STEPS + 2, size)), r_at=np.zeros((STEPS + 2, room)),
            t_at=np.zeros(STEPS + 2), bias_at=np.zeros(STEPS + 2), count=count,
        )  # fmt: skip
        return w, step, bias_step, region

    def _correction(self, index: IntArray, u2: FloatArray) -> tuple[FloatArray, float]:
        """A Newton step for the elbow's residual where it fits; otherwise the residual is booked as shift."""
        S = self.S
        rest = S.resid[index]
        if float(np.max(np.abs(rest), initial=0.0)) <= 1e-15 * float(S.num[ej.T]):
            return np.zeros(index.size), 0.0
        step = self._apply(rest)
        e = 0.0
        if self.equality:
            e = float(step.sum() / u2.sum())
            step -= e * u2
        new = S.beta[index] + step
        fits = (new >= S.lower[index]).all() and (new <= S.upper[index]).all()
        if fits and float(np.max(np.abs(step))) <= 1e-6:
            return step, e
        self._absorb_elbow()
        return np.zeros(index.size), 0.0

    def _candidates(self, index: IntArray) -> tuple[IntArray, float]:
        """The points that may meet zero soonest, and how far in lambda the others are safe if rates stay."""
        S = self.S
        assert self.rate is not None
        approach = np.where(S.side == ej.UP, -self.rate, self.rate)
        score = np.abs(S.resid) / (np.maximum(approach, 0.0) + 0.5 * float(np.mean(np.abs(self.rate))) + 1e-200)
        score[index] = np.inf
        want = min(self.width, self.n - index.size)
        if want <= 0:
            return np.empty(0, dtype=np.int64), np.inf
        if want >= self.n - index.size:
            return np.flatnonzero(S.side != ej.ELBOW), np.inf
        order = np.argpartition(score, want)
        cand = order[:want]
        region = float(score[order[want]])
        if self.objectors.size:
            extra = self.objectors[(S.side[self.objectors] != ej.ELBOW) & ~np.isin(self.objectors, cand)]
            cand = np.concatenate([cand, extra])
        if not self.store.whole:
            near = cand[np.argsort(score[cand])[:STEPS]]
            if self.store.fetch(near, index):
                self._set_slope(self.P.slope)
        return cand, region

    # ---- afterwards --------------------------------------------------------------------------------------------------

    def _examine(self, w: wj.Window, before: tuple[Any, ...]) -> tuple[IntArray, FloatArray]:
        """Residuals of all points at the end, and the points outside the candidates that changed sign on the way."""
        S = self.S
        n_steps, slots = int(w.count[wj.STEPS]), int(w.count[wj.SLOTS])
        ends = [0, n_steps // 3, (2 * n_steps) // 3, n_steps]
        t0, bias0 = float(before[3][ej.T]), float(before[3][ej.BIAS])
        shifted = S.resid + (S.base - before[2])
        at = [S.resid, *(shifted + (w.t_at[k] - t0) * self.c - (w.bias_at[k] - bias0) for k in ends[1:])]
        wj.three_products(
            self.P.rows, self.P.slot, w.point, w.moved[ends[1]], w.moved[ends[2]], w.moved[ends[3]], slots,
            at[1], at[2], at[3],
        )  # fmt: skip
        outside = w.place < 0
        outside[w.point[:slots]] = False
        sign = np.where(S.side == ej.UP, 1.0, -1.0)
        t = float(w.t_at[n_steps])
        bad = outside & (sign * at[3] < -1e-11 * t)
        for third in range(3):
            a, b = ends[third], ends[third + 1]
            if third < 2:
                bad |= outside & (sign * at[third + 1] < -1e-11 * t)
            if b > a + 1 and not bad.any():
                bad |= self._between(w, a, b, sign, at[third], at[third + 1], outside)
        return np.flatnonzero(bad), at[3]

    def _between(
        self, w: wj.Window, a: int, b: int, sign: FloatArray, first: FloatArray, last: FloatArray, outside: Any
    ) -> Any:
        """Which outside points change sign strictly between steps a and b, by the chord certificate."""
        slots = int(w.count[wj.SLOTS])
        inner = np.arange(a + 1, b)
        span = w.t_at[a] - w.t_at[b]
        theta = (w.t_at[a] - w.t_at[inner]) / span if span > 0.0 else np.zeros(inner.size)
        bend = w.moved[inner, :slots] - (
            w.moved[a, :slots] + theta[:, None] * (w.moved[b, :slots] - w.moved[a, :slots])
        )
        bias = w.bias_at[inner] - (w.bias_at[a] + theta * (w.bias_at[b] - w.bias_at[a]))
        # K bend on the slots: residuals there are known (zero on the elbow), and so are their chords
        spot = w.spot[:slots]
        known = np.flatnonzero(spot >= 0)
        r = w.r_at[:, spot[known]]
        r_bend = r[inner] - (r[a] + theta[:, None] * (r[b] - r[a]))
        norm = -(bend.sum(axis=1) * bias) - np.einsum("kj,kj->k", bend[:, known], r_bend)
        D = float(np.sqrt(max(norm.max(initial=0.0), 0.0)))
        D0 = float(np.max(np.abs(bias), initial=0.0))
        t = float(w.t_at[b])
        reach = self.root * (D * (1.0 + 1e-6)) + D0 + 1e-11 * t
        unclear = np.flatnonzero(outside & (np.minimum(sign * first, sign * last) < reach))
        bad = np.zeros(self.n, dtype=bool)
        if unclear.size:
            K = self.P.rows[self.P.slot[w.point[:slots]][:, None], unclear[None, :]]
            value = first[unclear] + theta[:, None] * (last[unclear] - first[unclear]) - bend @ K - bias[:, None]
            bad[unclear] = (sign[unclear] * value < -1e-10 * t).any(axis=0)
        return bad

    def _accept(self, w: wj.Window, code: int, gap: float, t_before: float, opt: pj.Options) -> int:
        """Flush the inverse, compact the slots, adapt, and say how to go on."""
        S = self.S
        n_steps, slots = int(w.count[wj.STEPS]), int(w.count[wj.SLOTS])
        added, removed = int(w.count[wj.ADDED]), int(w.count[wj.REMOVED])
        if added:
            dsyrk(1.0, w.VP[:added].T, 1.0, self.inverse.T, overwrite_c=1)
        if removed:
            dsyrk(-1.0, w.VM[:removed].T, 1.0, self.inverse.T, overwrite_c=1)
        point = w.point[:slots].copy()
        live = (w.dead[:slots] == 0) & (S.side[point] == ej.ELBOW)  # a point may have left one slot for another
        m = self._compact(point, live)
        S.elbow[:m] = point[:m]
        S.cnt[ej.M] = m
        S.cnt[ej.M_MAX] = max(int(S.cnt[ej.M_MAX]), int(w.count[wj.LIVE]), m)
        events = int(added + removed)
        S.cnt[ej.N_EVENT] += events
        S.cnt[ej.N_STEP] += n_steps
        S.cnt[ej.SINCE] += events
        S.cnt[ej.ZERO_RUN] = 0
        self.fresh_for += events
        self.stats["n_window_events"] += events
        t = float(S.num[ej.T])
        self._update_rate(w, n_steps, t_before - t)
        self.objectors = np.empty(0, dtype=np.int64)
        self.retries = 0
        self.steps = min(STEPS, 4 * self.steps)
        if code == wj.LEFT_REGION:
            self.width = int(min(self.n, 1.25 * self.width + 8))
        elif code == wj.FULL:
            self.width = max(2 * STEPS, int(0.97 * self.width))
        worst = float(np.max(np.abs(S.resid[S.elbow[:m]]), initial=0.0))
        if worst > RESIDUAL * t or gap > GAP:
            S.cnt[ej.SINCE] = opt.refresh
        if code == wj.NEED_ROW:
            self.store.fetch(np.array([w.count[wj.WANTED]]), self.elbow)
            self._set_slope(self.P.slope)
            return GO_ON
        return self._after(code, t, opt)

    def _update_rate(self, w: wj.Window, n_steps: int, travelled: float) -> None:
        """Rates of all residuals as they were seen over the window."""
        if n_steps and travelled > 0.0:
            self.rate = (self.S.resid - self._last_resid) / travelled

    def _compact(self, point: IntArray, live: Any) -> int:
        """Fill dead slots with the last live ones, in the inverse and in `point`. Returns how many are left."""
        last = point.size - 1
        for k in np.flatnonzero(~live):
            while last > k and not live[last]:
                last -= 1
            if last <= k:
                break
            wj.move_last(self.inverse, last, k)
            point[k] = point[last]
            live[k], live[last] = True, False
            last -= 1
        return int(np.count_nonzero(live))

    def _after(self, code: int, t: float, opt: pj.Options) -> int:
        """What a closed window means for the loop."""
        S = self.S
        if code in (wj.NEAR_SINGULAR, wj.TIED):
            self._stop_windows()
            self._absorb_elbow()
            return pj.REFRESH if Tracker._factorise(self) else pj.SINGULAR
        if code == wj.END:
            return pj.DONE if t <= opt.t_end * (1.0 + 1e-13) else pj.REFRESH
        if S.cnt[ej.SINCE] >= opt.refresh or t < opt.stretch * S.num[ej.T_REFRESH]:
            return pj.REFRESH
        return GO_ON
