"""Newton's method on the primal of a machine over features, for every loss of the sign-free dual.

Minimise ``1/2 (|w|^2 + ridge w0^2) + sum loss_i(f_i)`` with ``f = X w + constant w0``. `_newton_jit` says what a loss is.
It is piecewise quadratic, and so is the sum. A step solves the quadratic that holds at w:

    (ridge + X_A' S X_A) dw = X'z - ridge w        A: the rows in a piece that moves

Where the dual variables z are those that belong to f, the duality gap is half the square of the right-hand side, plus terms
of rows whose loss is linear. The matrix of the rows A is kept from step to step: rows that came are added, rows that went
are taken away. X'z follows from the step itself but for rows that changed pieces.

Losses without curvature have an augmented Lagrangian around them. Where a round has come as far as is worth while, its dual
variables are the centre of the next one, which is stiffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack

from svmcore._control import Control
from svmcore._types import FloatArray, Status
from svmcore.solvers import _newton_jit as loops
from svmcore.solvers._losses import at_zero, gap_terms, is_open, violation
from svmcore.solvers._newton_jit import Losses, Surprises
from svmcore.solvers._rows import LEAST_ROWS, LEVEL, SHARE, DenseFeatures, SparseFeatures

REFRESH = 10  # steps until running sums are computed anew
PATIENCE = 400  # steps
# A machine of a squared loss that is not found after LATE steps begins again with smaller costs: those for which C k(x, x) is
# at most TAME. They grow where the gap is the share RUNG of the primal. Rows that are nearly separable take hundreds of steps
# at large costs, as each step leads through other pieces; by growing costs it is about thirty.
LATE, TAME, RUNG = 20, 1e4, 0.5
SINGLE, SINGLE_STEPS = (
    200,
    12,
)  # from so many dense features on, a machine's first steps come from a matrix in single precision
ROUGH = 1e-2  # the gap that such a start is worth
PROXIMAL = 1e-12  # share of its diagonal that an intercept which costs nothing has for a ridge
LOWER = 1e-12  # share of the primal by which a step is progress that lowers it by so much
BETTER = 0.5  # a point of a gap above this share of the least is no better: rounding may have decided
ROUNDING = 1e-15  # of a residual, as a share of the terms that it is made of
BALANCED = 1e-9  # share of sum |z| that may be missing in the sum of z, where this has to be zero


class Asking:
    """Whether somebody asks to stop. Once the answer is yes, it stays yes. Keeps the trace."""

    def __init__(self, control: Control, trace: bool) -> None:
        self.control, self.trace = control, trace
        self.status: Status | None = None
        self.machine: Any = None  # what has steps, gap and primal
        self.records: list[tuple[float, float]] = []

    def __call__(self) -> bool:
        at = self.machine
        if self.status is None:
            steps, gap, primal = (0, np.inf, np.nan) if at is None else (at.steps, at.gap, at.primal)
            self.status = self.control.check(steps, gap, gap - primal)
            if self.trace:
                self.records.append((gap - primal, gap))
        return self.status is not None

    @property
    def table(self) -> dict[str, FloatArray] | None:
        """The trace as columns."""
        columns = ("objective", "gap")
        return {name: np.array([r[k] for r in self.records]) for k, name in enumerate(columns)} if self.trace else None


class Newton:
    """The method at work on one machine: `advance` takes a step, `gap` and `primal` say where it has led.

    `free`: the intercept costs nothing, and the dual variables sum to zero. `unit` is the first stiffness of linear losses.
    `goal` is the relative gap that is asked for, if one is: no round is stiffer than that needs.
    """

    def __init__(
        self,
        rows: DenseFeatures | SparseFeatures,
        losses: Losses,
        *,
        free: bool,
        squared: bool,
        poll: Callable[[], bool],
        goal: float = 0.0,
    ) -> None:
        self.rows, self.losses, self.free, self.squared, self.poll = rows, losses, free, squared, poll
        self.goal, self.unbounded = goal, is_open(losses, squared)
        d = rows.d + 1
        self.ridge = np.ones(d)
        self.ridge[-1] = 0.0 if free else 1.0
        self.w, self.sums = np.zeros(d), np.zeros(d)  # sums: X'z
        single = squared and d > SINGLE and isinstance(rows, DenseFeatures)
        self.gram = np.zeros(
            (d, d), np.float32 if single else np.float64, order="F"
        )  # of `held` rows, in units of `unit`
        self.held, self.order = np.zeros(rows.n, bool), np.empty(rows.n, np.int64)
        self.unit = 1.0
        self.weight = losses.stiff.copy()
        self.changes = Surprises(np.empty(rows.n, np.int64), np.empty(rows.n))
        self.steps = self.running = 0
        self.begun = False
        self.foreseen = np.zeros(d)  # by how much a step changes X'z but for rows that change pieces
        self.rounds, self._last = 0, 0.0
        self.best, self._least = np.zeros(rows.n), np.inf

    # ---- where it is -------------------------------------------------------------------------------------------------

    def begin(self, w: FloatArray | None, z: FloatArray | None = None) -> None:
        """Start at w, and for linear losses around the dual variables z."""
        if w is not None:
            self.w[:] = w
        if z is not None and not self.squared:
            self.losses.centre[:] = z
        if self.w.any():
            self.losses.f[:] = self.rows.times(self.w)
        self._place()

    def renew(self) -> None:
        """f and X'z from the data: no running sum is believed."""
        self.losses.f[:] = self.rows.times(self.w)
        self._sum()
        self._measure()

    def take(self, z: FloatArray) -> None:
        """Other dual variables, and the sums X'z that belong to them."""
        self.losses.z[:] = z
        if self.squared:
            self.losses.stiff[:] = self.weight
        self._sum()

    def _sum(self) -> None:
        self.sums[:] = 0.0
        rows = np.flatnonzero(self.losses.z)
        self.rows.add(rows, self.losses.z[rows], self.sums)
        self.running = 0

    def _place(self) -> None:
        loops.place(self.losses)
        self._sum()
        self._measure()

    def _measure(self) -> None:
        loss, excess = gap_terms(self.losses, self.squared, self.unbounded)
        self.gradient = self.ridge * self.w - self.sums
        slack = self.gradient if not self.free else self.gradient[:-1]
        self.error = 0.5 * float(slack @ slack)
        self.primal = 0.5 * float(self.ridge @ (self.w * self.w)) + loss
        self.gap = self.error + excess
        if self.free:
            self.gap += abs(self.w[-1] * self.sums[-1])
        if self.gap < BETTER * self._least and self.whole:
            self._least = self.gap
            self.best[:] = self.losses.z

    @property
    def slope(self) -> float:
        """The length of the gradient: w - X'z."""
        return float(np.sqrt(2.0 * self.error))

    @property
    def violation(self) -> float:
        """The KKT violation of the dual variables at w, which is not quite X'z."""
        return violation(self.losses, self.squared, free=self.free)

    @property
    def whole(self) -> bool:
        """Whether its costs are all that they have to be."""
        return self.unit >= 1.0

    @property
    def balanced(self) -> bool:
        """Whether the dual variables sum to zero, where they have to."""
        if not self.free:
            return True
        return bool(abs(self.sums[-1]) <= BALANCED * self.rows.constant * float(np.abs(self.losses.z).sum()))

    # ---- a step ------------------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """One step; False where rounding leaves none, or somebody asks to stop."""
        losses, rounds = self.losses, self.rounds
        if self.squared:
            self._climb()
        elif self.balanced and loops.round_ends(
            self.error, self.gap - self.error, self.goal * self.primal, self.primal
        ):
            if self.rounds and self._last <= self.gap <= loops.ROUNDED * self.primal:
                return False
            self._stiffen()
        direction = self._direction()
        if direction is None:
            return False
        df = self.rows.times(direction)
        bend = self.ridge * direction
        decrease = float(self.gradient @ direction)
        if not decrease < 0.0:
            return self.rounds > rounds
        t = loops.length(losses, df, float(bend @ self.w), float(bend @ direction))
        count = loops.go(losses, df, t, self.changes)
        self.sums += t * self.foreseen
        self.rows.add(self.changes.rows[:count], self.changes.by[:count], self.sums)
        self.w += t * direction
        self.steps += 1
        self.running += 1
        if self.running >= REFRESH:
            self.renew()
        else:
            self._measure()
        return True

    def _climb(self) -> None:
        """Begin again with smaller costs where steps take long, and go on with larger ones."""
        if self.steps == LATE and self.whole:
            bend = float(self.weight.max(initial=0.0)) * self.rows.typical
            self.unit = min(1.0, TAME / max(bend, TAME))
        elif not self.whole and self.gap <= RUNG * self.primal:
            self.unit = min(1.0, loops.STIFFER * self.unit)
            self.rounds += 1
        else:
            return
        np.multiply(self.weight, self.unit, out=self.losses.stiff)
        self._place()

    def _stiffen(self) -> None:
        """The next round of linear losses."""
        self.losses.centre[:] = self.losses.z
        self.rounds += 1
        if self.gap >= loops.SHRINKS * self._last:
            self.unit *= loops.STIFFER
            np.multiply(self.weight, self.unit, out=self.losses.stiff)
        self._last = self.gap
        loops.place(self.losses)
        by = self.losses.z - self.losses.centre
        moved = np.flatnonzero(by)
        self.rows.add(moved, by[moved], self.sums)
        self.running += 1
        self._measure()

    def _direction(self) -> FloatArray | None:
        """Newton's step, by Cholesky's factor."""
        piece = self.losses.piece
        if not piece.any():
            if self.begun and not self.balanced:
                return self._shift()
            piece[:] = 0 if self.begun else loops.FORCED  # nothing moves yet: a step of least squares
        self.begun = True
        single = self.gram.dtype == np.float32
        if single and self.steps >= SINGLE_STEPS:
            return self._double()
        if not self._follow():
            return None
        matrix = self.gram * self.gram.dtype.type(self.unit)
        diagonal = matrix.ravel(order="K")[:: len(matrix) + 1]
        damped = self.ridge.copy()
        if self.free:
            damped[-1] = PROXIMAL * (diagonal[-1] + 1.0)
        diagonal += damped
        factor, failed = (lapack.spotrf if single else lapack.dpotrf)(matrix, lower=1, clean=0, overwrite_a=1)
        if not failed:
            found, _ = (lapack.spotrs if single else lapack.dpotrs)(factor, -self.gradient, lower=1)
            solution: FloatArray = found.astype(np.float64, copy=False)
            self.foreseen = self.gradient + damped * solution
            if np.isfinite(solution).all() and (not single or self.gradient @ solution < 0.0):
                return solution
        return self._double() if single else None

    def _double(self) -> FloatArray | None:
        """Newton's step in double precision, and all that follow."""
        self.gram, self.held = np.zeros(self.gram.shape, order="F"), np.zeros(self.rows.n, bool)
        self.rows.gram = None
        return self._direction()

    def _shift(self) -> FloatArray:
        """A step of the intercept alone: where no row moves, nothing else says how far it may go."""
        direction = np.zeros_like(self.w)
        direction[-1] = -np.sign(self.gradient[-1]) / self.rows.constant
        self.foreseen = np.zeros_like(self.w)
        return direction

    def _follow(self) -> bool:
        """Bring the Gram matrix to the rows that move now."""
        n = self.rows.n
        came, went, moving = loops.changed(self.losses.piece, self.held, self.order)
        new, old = self.order[:came], self.order[n - went :]
        if went and came + went >= moving:
            self.gram[:] = 0.0
            new, old = np.flatnonzero(self.losses.piece), old[:0]
        if len(new) == n and np.ptp(self.weight) == 0.0:
            self._take_all()
            new = new[:0]
        for rows, sign in ((new, 1.0), (old, -1.0)):
            if len(rows):
                self.rows.add_gram(rows, self.weight[rows], sign, self.gram, self.poll)
        return not self.poll()

    def _take_all(self) -> None:
        """The Gram matrix of all rows with one weight. Machines over the same rows, which all begin with it, share it."""
        rows = self.rows
        if rows.gram is None:
            every = np.arange(rows.n)
            whole = np.zeros_like(self.gram, order="F")
            rows.add_gram(every, np.ones(rows.n), 1.0, whole, self.poll)
            if not self.poll():
                rows.gram = whole
            np.multiply(whole, self.weight[0], out=self.gram)
        else:
            np.multiply(rows.gram, self.weight[0], out=self.gram)


def solve(newton: Newton, near: Callable[[Newton], bool], met: Callable[[Newton], bool], most: int) -> Status:
    """Steps until `near` holds, and then `met`, which may cost more: it believes no running sum."""
    least, lowest, since, rounds = np.inf, np.inf, 0, 0

    def ready() -> bool:
        return newton.whole and newton.balanced and near(newton)

    while True:
        if ready():
            if met(newton):
                return Status.CONVERGED
            if newton.running:
                newton.renew()
        if newton.rounds > rounds:
            least, lowest, since, rounds = np.inf, np.inf, newton.steps, newton.rounds
        if newton.gap < least or newton.primal < (1.0 - LOWER) * lowest:
            since = newton.steps
        least, lowest = min(least, newton.gap), min(lowest, newton.primal)
        if newton.steps - since > loops.IDLE or newton.unit > loops.STIFFEST:
            return Status.PRECISION
        if newton.steps >= most:
            return Status.MAX_ITER
        if not newton.advance():
            return Status.PRECISION


def started(newton: Newton) -> None:
    """Begin where the machine of every `LEVEL`-th row is. One of linear losses finds its first round as quickly."""
    n, d = newton.rows.n, newton.rows.d
    w = None
    if newton.squared and n >= LEAST_ROWS and n >= LEVEL * SHARE * d:
        pick = slice(None, None, LEVEL)
        few = [np.ascontiguousarray(one[pick]) for one in newton.losses[:6]]
        few[2:] = [LEVEL * one for one in few[2:]]
        part = Newton(
            newton.rows.part,
            at_zero(*few),
            free=newton.free,
            squared=True,
            poll=newton.poll,
        )
        part.begin(None)
        solve(part, lambda p: p.gap <= ROUGH * p.primal, lambda _: True, PATIENCE)
        w = part.w
    newton.begin(w)
