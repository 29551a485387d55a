"""The path algorithm of Ong, Shao and Yang (SVMP) as published, corrected.

In the paper's order: IR (SMO at lambda_max), then events: decompose A, direction d and null basis U (27), rates p (35),
special-event routine SR (S1)-(S4), the step (closed form (47)-(49) when U is empty, else the linear program (30)-(34) by
HiGHS), updates (36)-(46), looping check with the backup routine BR at (1 - gamma) lambda, KKT check (56) with BR.

The rank of A comes from its SVD ("svd"), from QR with column pivoting ("qr"), or QR is updated ("update") where A is
known to be non-singular: a point that leaves, and a point that enters when the indicator 1 + v'A^-1 u (over the two rank-one
changes of an insertion: the relative Schur complement) is not near zero.

Signs are folded into beta = y alpha-hat, so A = [[0, 1'], [1, K_EE]]: the paper's (22) up to a diagonal of signs.
Deviations from the print (numbers of `path.md`): C1 sizes and null sums; C1b V is not U for an indefinite A; C2 U moves
no residual when the elbow is not empty, so (32)-(33) bound the step alone and the program has the box rows only; C3 the
empty elbow is a program over the bias; C4 the step ends at lambda_min; C5 residuals from (16), as lambda times xi; C6
truncated QR solution; C9 order of tests in the loop, and resets; C10 a step ends where lambda has shrunk tenfold.
Added: the residual that the elbow keeps is put through the decomposition at hand before each step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore import _qr_jit
from svmcore._follow import Record
from svmcore._highs import LinearProgram
from svmcore._rows import RowStore
from svmcore._types import FloatArray

LOW, UP, ELBOW = 0, 1, 2
BOX, MARGIN, SPECIAL, RESTART = 0, 1, 5, 6


class Settings(NamedTuple):
    """The paper's constants: eps of the rank, tau and tau_2 of SR, gamma of BR, l of the loops, eps of (56) and of SMO."""

    rank: float = 1e-14
    tau: float = 1e-4
    tau2: float = 1e-8
    gamma: float = 0.01
    loops: int = 50
    kkt: float = 1e-7
    smo: float = 1e-11
    active: float = 1e-9
    box: float = 1e-11
    indicator: float = 1e-8


class Decomposition:
    """A of (22) for the present elbow: solves, null space, and updates where they are safe."""

    def __init__(self, mode: str, store: RowStore, border: int, settings: Settings) -> None:
        self.mode, self.store, self.border, self.settings = mode, store, border, settings
        self.index: list[int] = []
        self.qr: tuple[Any, Any, Any] | None = None
        self.n_fresh = self.n_updates = 0
        self.rank = 0

    def matrix(self) -> FloatArray:
        """A."""
        m, border = len(self.index), self.border
        A = np.zeros((m + border, m + border))
        if border:
            A[0, 1:] = A[1:, 0] = 1.0
        A[border:, border:] = self.store.block(np.array(self.index, dtype=np.int64))
        return A

    @property
    def nullity(self) -> int:
        """Dimension of the null space."""
        return len(self.index) + self.border - self.rank

    def become(self, index: list[int]) -> None:
        """Decompose for a new elbow; `index` keeps the order of what stays and appends what comes."""
        old = self.index
        was_full = self.nullity == 0 and self.qr is not None
        changed = set(index) ^ set(old)
        if self.mode == "update" and was_full and old and index and len(changed) <= 4 and self._update(index):
            return
        self.index = list(index)
        self._fresh()

    def _fresh(self) -> None:
        A = self.matrix()
        self.n_fresh += 1
        size = A.shape[0]
        if self.mode == "svd":
            self.U, self.sigma, self.Vt = np.linalg.svd(A)
            self.rank = int((self.sigma >= self._threshold(size, self.sigma)).sum()) if size else 0
            return
        Qt, R, order = _qr_jit.pivoted_qr(A)
        diagonal = np.abs(np.diag(R))
        self.rank = int((diagonal >= self._threshold(size, diagonal)).sum()) if size else 0
        self.qr = (Qt, R, order)

    def _threshold(self, size: int, values: FloatArray) -> float:
        return size * self.settings.rank * max(1.0, float(values[0])) if size else 0.0

    def _update(self, index: list[int]) -> bool:
        """Follow the changes one by one; False when the indicator warns of rank deficiency."""
        assert self.qr is not None
        factors, now = self.qr, list(self.index)
        for i in [i for i in now if i not in set(index)]:
            k = now.index(i)
            factors = _qr_jit.remove_at(*factors, k + self.border)
            now.pop(k)
        if not now:
            return False
        for i in [i for i in index if i not in set(now)]:
            column = np.ones(len(now) + self.border)
            row = self.store.rows[self.store.slot[i]]
            column[self.border :] = row[np.array(now, dtype=np.int64)]
            corner = float(row[i])
            x = _qr_jit.basic_solution(*factors, column.size, column)
            schur = corner - float(column @ x)
            if not abs(schur) > self.settings.indicator * max(corner, 1e-300):
                return False
            factors = _qr_jit.insert_last(*factors, column, corner)
            now.append(i)
        self.qr, self.index = factors, now
        self.rank = len(now) + self.border
        self.n_updates += 1
        return True

    def solve(self, right: FloatArray) -> FloatArray:
        """A particular solution: of least norm (SVD), or basic (QR)."""
        if self.mode == "svd":
            r = self.rank
            return np.asarray(self.Vt[:r].T @ ((self.U[:, :r].T @ right) / self.sigma[:r]))
        assert self.qr is not None
        return np.asarray(_qr_jit.basic_solution(*self.qr, self.rank, right))

    def null_basis(self) -> FloatArray:
        """Columns that span the null space of A."""
        if self.mode == "svd":
            return np.asarray(self.Vt[self.rank :].T)
        assert self.qr is not None
        return np.asarray(self.qr[0][self.rank :].T)


class PaperTracker:
    """The published algorithm over the same problem as `_follow.Tracker`, with the same record at the end."""

    def __init__(
        self, K: Any, c: FloatArray, lower: FloatArray, upper: FloatArray, *, equality: bool, mode: str, budget: float,
        solver: Any, settings: Settings,
    ) -> None:  # fmt: skip
        self.c, self.lower, self.upper, self.equality = c, lower, upper, equality
        self.width = upper - lower
        self.store = RowStore(K, budget)
        self.settings = settings
        self.solver = solver
        self.A = Decomposition(mode, self.store, int(equality), settings)
        self.program = LinearProgram()
        self.beta = lower.copy()
        self.bias = 0.0
        self.side = np.zeros(c.size, dtype=np.int8)
        self.elbow: list[int] = []
        self.lam = np.inf
        self.resid = np.zeros(c.size)
        self.fixed = np.zeros(c.size)  # K times the values outside of the elbow
        self.events: list[tuple[float, int, int, int, int]] = []
        self.knots: list[tuple[float, float, int, Any, FloatArray]] = []
        self.stats: dict[str, Any] = {
            "n_lp": 0, "n_special": 0, "n_kkt": 0, "n_backup": 0, "n_iterations": 0, "n_steps": 0,
            "null_dim_max": 0, "elbow_max": 0, "max_gap": 0.0, "n_lp_failed": 0,
        }  # fmt: skip
        self.n_blocked = self.n_special_run = 0
        self.flipped: set[int] = set()

    @property
    def n_events(self) -> int:
        """Events so far."""
        return len(self.events)

    @property
    def m(self) -> int:
        """Points on the elbow."""
        return len(self.elbow)

    # ---- state ---------------------------------------------------------------------------------------------------

    def begin(self, lam: float, beta: FloatArray) -> None:
        """Start at lambda from a solver's beta."""
        self.lam = self.fresh_at = lam
        self._take(beta)
        self.side0 = self.side.copy()
        self.events.clear()
        self._knot()

    def _take(self, beta: FloatArray) -> None:
        """Sides, elbow and bias from beta."""
        near = 1e-12 * self.width
        self.beta = np.where(
            beta <= self.lower + near, self.lower, np.where(beta >= self.upper - near, self.upper, beta)
        )
        inside = (self.beta > self.lower) & (self.beta < self.upper)
        self.side = np.where(inside, ELBOW, np.where(self.beta >= self.upper, UP, LOW)).astype(np.int8)
        self.elbow = [int(i) for i in np.flatnonzero(inside)]
        self._fetch()
        outside = np.where(inside, 0.0, self.beta)
        self.fixed = self.store.product(outside)
        self.bias = 0.0
        self._residuals()
        self.bias = self._best_bias()
        self.resid = self.resid - self.bias
        self.A.qr = None
        self.A.become(self.elbow)

    def _best_bias(self) -> float:
        g = self.resid
        if not self.equality:
            return 0.0
        if self.elbow:
            return float(np.mean(g[self.elbow]))
        ends = [g[self.side == UP].min(initial=np.inf), g[self.side == LOW].max(initial=-np.inf)]
        return float(np.mean([e for e in ends if np.isfinite(e)]))

    def _fetch(self) -> None:
        if not self.store.whole and self.elbow:
            index = np.array(self.elbow, dtype=np.int64)
            self.store.fetch(index, index)

    def _rows(self) -> FloatArray:
        return np.asarray(self.store.rows[self.store.slot[np.array(self.elbow, dtype=np.int64)], : self.store.n])

    def _residuals(self) -> None:
        """(16) times lambda: r = lambda c - K beta - bias, with the elbow's part computed afresh."""
        f = self.fixed.copy()
        if self.elbow:
            f += self.beta[self.elbow] @ self._rows()
        self.resid = self.lam * self.c - f - self.bias

    def _move(self, i: int, side: int, cause: int) -> None:
        """Point i changes sides; the product of the outside values follows."""
        old = int(self.side[i])
        row = self._row(i)
        if old == ELBOW:
            self.elbow.remove(i)
            self.beta[i] = self.upper[i] if side == UP else self.lower[i]
            self.fixed += self.beta[i] * row
        else:
            self.elbow.append(i)
            self.fixed -= self.beta[i] * row
        self.side[i] = side
        self.events.append((self.lam, i, old, side, cause))

    def _row(self, i: int) -> FloatArray:
        if self.store.slot[i] < 0:
            self.store.fetch(np.array([i]), np.array(self.elbow, dtype=np.int64))
        return np.asarray(self.store.rows[self.store.slot[i], : self.store.n])

    def _knot(self) -> None:
        index = np.array(self.elbow, dtype=np.int32)
        self.knots.append((self.lam, self.bias, len(self.events), index, self.beta[self.elbow].copy()))

    # ---- one event -------------------------------------------------------------------------------------------------

    def run(self, low: float, watch: Any, max_events: int | None) -> str:
        """Follow the path down to lambda = low."""
        last = self.lam
        while self.lam > low * (1.0 + 1e-12):
            self.stats["n_iterations"] += 1
            stop = "max_events" if max_events is not None and self.n_events >= max_events else watch(self)
            if stop is not None:
                return str(stop)
            if self.A.index != self.elbow:
                self.A.become(self.elbow)
                self.elbow = list(self.A.index)
            if self.lam < 0.5 * self.fresh_at:
                self.fixed = self.store.product(np.where(self.side == ELBOW, 0.0, self.beta))
                self._residuals()
                self.fresh_at = self.lam
            nullity = self.A.nullity if self.elbow else 0
            self.stats["null_dim_max"] = max(self.stats["null_dim_max"], nullity)
            self.stats["elbow_max"] = max(self.stats["elbow_max"], self.m)
            self._refine()
            if not np.any(np.abs(self.beta) == self.width):
                self._scale_to(low)  # nobody at C: no event is left
                break
            d0, d, p = self._direction()
            if nullity == 0 and self.n_special_run <= self.settings.loops and self._special(d, p):
                self.n_special_run += 1
                self.stats["n_special"] += 1
                continue
            if self.n_blocked > self.settings.loops:
                self._backup(max((1.0 - self.settings.gamma) * self.lam, low))
                self.n_blocked, last = 0, self.lam
                continue
            known = self.n_events
            self._careful_step(d0, d, p, nullity, low)
            self.stats["n_steps"] += int(self.n_events > known)
            if last - self.lam < self.settings.tau2 * last:
                self.n_blocked += 1
            else:
                self.n_blocked = self.n_special_run = 0
                last = self.lam
        return "done"

    def _refine(self) -> None:
        """Put the residual that the elbow keeps, and the defect of the sum, through the decomposition at hand."""
        if not self.elbow:
            return
        r = self.resid[self.elbow]
        defect = float(self.beta.sum()) if self.equality else 0.0
        if max(float(np.max(np.abs(r))), abs(defect)) <= 1e-14 * self.lam:
            return
        right = np.concatenate([[-defect], r]) if self.equality else r
        step = self.A.solve(right)
        border = self.A.border
        now = self.beta[self.elbow]
        new = np.clip(now + step[border:], self.lower[self.elbow], self.upper[self.elbow])
        if not np.isfinite(step).all() or np.max(np.abs(new - now)) > 1e-3 * np.max(self.width):
            return
        before = float(np.max(np.abs(r)))
        self.beta[self.elbow] = new
        if border:
            self.bias += float(step[0])
        self._residuals()
        if float(np.max(np.abs(self.resid[self.elbow]))) > before:  # clipped too much: undo
            self.beta[self.elbow] = now
            if border:
                self.bias -= float(step[0])
            self._residuals()

    def _direction(self) -> tuple[float, FloatArray, FloatArray]:
        """d0 = dbias/dlambda, d = dbeta_E/dlambda and the rates p (35) of all residuals, per decrease of lambda."""
        if not self.elbow:
            return 0.0, np.empty(0), -self.c
        right = self.c[self.elbow]
        border = self.A.border
        full = self.A.solve(np.concatenate([np.zeros(border), right]))
        d0 = float(full[0]) if border else 0.0
        d = full[border:]
        return d0, d, d @ self._rows() + d0 - self.c

    def _special(self, d: FloatArray, p: FloatArray) -> bool:
        """SR: change the sides of all points that block descent at once, (S1)-(S4)."""
        s = self.settings
        moves: list[tuple[int, int]] = []
        for k, i in enumerate(self.elbow):
            room_low, room_up = self.beta[i] - self.lower[i], self.upper[i] - self.beta[i]
            if d[k] > s.tau / self.lam and room_low < s.tau * self.width[i] and room_low < s.tau2 * self.lam * d[k]:
                moves.append((i, LOW))
            elif d[k] < -s.tau / self.lam and room_up < s.tau * self.width[i] and room_up < -s.tau2 * self.lam * d[k]:
                moves.append((i, UP))
        xi = self.resid / self.lam
        low = (self.side == LOW) & (p > s.tau) & (-xi < s.tau) & (-self.resid < s.tau2 * self.lam * p)
        up = (self.side == UP) & (p < -s.tau) & (xi < s.tau) & (self.resid < -s.tau2 * self.lam * p)
        moves += [(int(i), ELBOW) for i in np.flatnonzero(low | up)]
        for i, side in moves:
            self._move(i, side, SPECIAL)
        if moves:
            self._fetch()
            self._residuals()
        return bool(moves)

    def _careful_step(self, d0: float, d: FloatArray, p: FloatArray, nullity: int, low: float) -> None:
        """A step; where (56) fails after it, shorter ones (the null space magnifies rounding), and at last BR."""
        before = (
            self.lam, self.bias, self.beta.copy(), self.side.copy(), self.fixed.copy(), list(self.elbow), self.resid,
            len(self.events), len(self.knots),
        )  # fmt: skip
        longest = self.lam - low if nullity else min(self.lam - low, 0.9 * self.lam)
        for attempt in range(4):
            self._step(d0, d, p, nullity, longest)
            moved = before[0] - self.lam
            if self._violation() <= self.settings.kkt:
                return
            if attempt == 3 or moved <= 1e-9 * before[0]:
                break
            longest = 0.1 * moved
            self.lam, self.bias = before[0], before[1]
            self.beta, self.side, self.fixed = before[2].copy(), before[3].copy(), before[4].copy()
            self.elbow, self.resid = list(before[5]), before[6]
            del self.events[before[7] :]
            del self.knots[before[8] :]
        self.stats["n_kkt"] += 1
        self._backup(self.lam)

    def _step(self, d0: float, d: FloatArray, p: FloatArray, nullity: int, longest: float) -> None:
        """The step of the linear program, in closed form where there is no null space; then (36)-(46)."""
        bias_step = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            blocks = ((self.side == UP) & (p < -1e-9)) | ((self.side == LOW) & (p > 1e-9))
            h_outside = float(np.min(np.where(blocks, -self.resid / p, np.inf), initial=np.inf))
        shift = np.zeros(self.m)
        if not self.elbow and self.equality:
            h, bias_step = self._empty(longest)
        elif nullity == 0:
            with np.errstate(divide="ignore", invalid="ignore"):
                b = self.beta[self.elbow]
                room = np.where(d > 0, b - self.lower[self.elbow], b - self.upper[self.elbow])
                h_box = float(np.min(np.where(np.abs(d) > 1e-13, room / d, np.inf), initial=np.inf))
            h = max(min(h_outside, h_box, longest), 0.0)
        else:
            h, shift = self._program(d, max(min(h_outside, longest), 0.0))
        index = list(self.elbow)
        self.lam -= h
        self.bias += bias_step - h * d0
        if index:
            self.beta[index] = np.clip(self.beta[index] - h * d + shift, self.lower[index], self.upper[index])
        self._residuals()
        self._refine()
        self._classify(index)
        self._knot()

    def _empty(self, longest: float) -> tuple[float, float]:
        """|E| = 0: the bias is the null space; the program has one row per point (C3)."""
        rows = np.column_stack([-self.c, -np.ones(self.c.size)])
        up = self.side == UP
        got = self.program.solve(
            [-1.0, 0.0], rows, np.where(up, -self.resid, -np.inf), np.where(up, np.inf, -self.resid),
            [0.0, -np.inf], [longest, np.inf],
        )  # fmt: skip
        self.stats["n_lp"] += 1
        if not got.ok:
            self.stats["n_lp_failed"] += 1
            return 0.0, 0.0
        return float(got.x[0]), float(got.x[1])

    def _program(self, d: FloatArray, longest: float) -> tuple[float, FloatArray]:
        """(30)-(34): the longest step for which some element of the null space keeps the elbow in its boxes."""
        U = self.A.null_basis()[self.A.border :]
        b = self.beta[self.elbow]
        scale = max(longest, 1e-300)
        rows = np.column_stack([-d * scale, U])
        rows[np.abs(rows) < 1e-13] = 0.0  # rounding, which would only spoil the program
        room_low = np.minimum(self.lower[self.elbow] - b, 0.0)
        room_up = np.maximum(self.upper[self.elbow] - b, 0.0)
        free = np.full(U.shape[1], np.inf)
        got = self.program.solve(
            np.concatenate([[-1.0], np.zeros(free.size)]), rows, room_low, room_up,
            np.concatenate([[0.0], -free]), np.concatenate([[1.0], free]),
        )  # fmt: skip
        self.stats["n_lp"] += 1
        if not got.ok:
            self.stats["n_lp_failed"] += 1
            return 0.0, np.zeros(len(self.elbow))
        return float(got.x[0]) * scale, U @ got.x[1:]

    def _classify(self, index: list[int]) -> None:
        """(40)-(46): who met a box leaves, whose residual met zero enters."""
        near, box = self.settings.active, self.settings.box
        leave = []
        for i in index:
            if self.beta[i] <= self.lower[i] + box * self.width[i]:
                leave.append((i, LOW))
            elif self.beta[i] >= self.upper[i] - box * self.width[i]:
                leave.append((i, UP))
        wrong = ((self.side == UP) & (self.resid < near * self.lam)) | (
            (self.side == LOW) & (self.resid > -near * self.lam)
        )
        enter = np.flatnonzero(wrong & (self.side != ELBOW))
        for i, side in leave:
            self._move(i, side, BOX)
        for i in enter.tolist():
            self._move(i, ELBOW, MARGIN)
        if leave or enter.size:
            self._fetch()
            self._residuals()

    def _violation(self) -> float:
        """The largest violation of (56)."""
        xi = self.resid / self.lam
        return max(
            float(np.max(np.abs(xi[self.elbow]), initial=0.0)),
            float(np.max(xi[self.side == LOW], initial=0.0)),
            float(np.max(-xi[self.side == UP], initial=0.0)),
        )

    def _backup(self, lam: float) -> None:
        """BR: SMO at lambda from the present point; sides anew."""
        self.stats["n_backup"] += 1
        before = self.side.copy()
        self.lam = lam
        self._take(self.solver(lam, np.clip(self.beta, self.lower, self.upper)))
        for i in np.flatnonzero(before != self.side).tolist():
            self.events.append((lam, i, int(before[i]), int(self.side[i]), RESTART))
        self._knot()

    def _scale_to(self, low: float) -> None:
        """No point at C: alpha is constant, beta-hat and the bias are proportional to lambda."""
        ratio = low / self.lam
        self.beta *= ratio
        self.fixed *= ratio
        self.bias *= ratio
        self.lam = low
        self._residuals()
        self._knot()

    # ---- the end -----------------------------------------------------------------------------------------------------

    def record(self, ended: str) -> Record:
        """The finished path."""
        b = self.beta
        stats = dict(self.stats)
        stats["phi_end"] = float(0.5 * b @ self.store.product(b) - self.lam * (self.c @ b))
        stats["n_decompositions"] = self.A.n_fresh
        stats["n_updates"] = self.A.n_updates
        events = np.array([(i, old, new, cause) for _, i, old, new, cause in self.events], dtype=np.int64).reshape(
            -1, 4
        )
        return Record(
            side0=self.side0,
            event_t=np.array([e[0] for e in self.events]),
            event_index=events[:, 0].copy(),
            event_move=events[:, 1:].astype(np.int8),
            knot=np.array([[k[0], k[1]] for k in self.knots]),
            knot_at=np.array([[k[2], k[3].size] for k in self.knots], dtype=np.int64),
            index=np.concatenate([k[3] for k in self.knots]) if self.knots else np.empty(0, dtype=np.int32),
            value=np.concatenate([k[4] for k in self.knots]) if self.knots else np.empty(0),
            stats=stats,
            ended=ended,
        )
