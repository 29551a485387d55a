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
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from svmcore._control import Control
from svmcore._types import DualQP, FloatArray, IntArray, Status
from svmcore.kernel.points import is_sparse
from svmcore.solvers import _newton_jit as loops
from svmcore.solvers._newton_jit import Losses, Surprises

REFRESH = 10  # steps until running sums are computed anew
PATIENCE = 400  # steps
# A machine of a squared loss that is not found after LATE steps begins again with smaller costs: those for which C k(x, x) is
# at most TAME. They grow where the gap is the share RUNG of the primal. Rows that are nearly separable take hundreds of steps
# at large costs, as each step leads through other pieces; by growing costs it is about thirty.
LATE, TAME, RUNG = 20, 1e4, 0.5
LEVEL, LEAST_ROWS, SHARE = 8, 4000, 8  # a start on every 8th row, from so many rows on, and so many of them a feature
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
NARROW = 16  # features
# Entries of the rows that are copied at a time, and the fewest rows. New memory takes longer than what is done with it, and
# as little as this stays with the process.
_BLOCK, _LEAST_BLOCK = 1 << 16, 128


class DenseFeatures:
    """Rows of a C-ordered matrix, followed by a constant."""

    def __init__(self, X: FloatArray, constant: float) -> None:
        self.X, self.constant = X, constant
        self.n, self.d = X.shape
        self.gram: FloatArray | None = None  # of all rows, once a machine has asked for it

    @cached_property
    def part(self) -> DenseFeatures:
        """One row in `LEVEL`, for all machines over these rows."""
        return DenseFeatures(np.ascontiguousarray(self.X[::LEVEL]), self.constant)

    @cached_property
    def typical(self) -> float:
        """The mean of k(x, x)."""
        return float(np.vdot(self.X, self.X) / self.n + self.constant**2)

    def times(self, w: FloatArray) -> FloatArray:
        """X w + constant w0."""
        out: FloatArray = self.X @ w[:-1]
        if w[-1]:
            out += self.constant * w[-1]
        return out

    def add(self, rows: IntArray, by: FloatArray, out: FloatArray) -> None:
        """out += X[rows]' by. In place: out."""
        if 3 * len(rows) > self.n:
            full = np.zeros(self.n)
            full[rows] = by
            out[:-1] += full @ self.X
        elif len(rows):
            out[:-1] += by @ self.X[rows]
        out[-1] += self.constant * by.sum()

    def add_gram(self, rows: IntArray, by: FloatArray, sign: float, out: FloatArray, poll: Callable[[], bool]) -> None:
        """out += sign X[rows]' diag(by) X[rows], the lower half in Fortran's order. In place: out."""
        most = max(_LEAST_BLOCK, _BLOCK // (self.d + 1))
        add = self._add_narrow if self.d <= NARROW else self._add_wide
        for first in range(0, len(rows), most):
            chosen, weights = rows[first : first + most], by[first : first + most]
            part = self.X if len(chosen) == self.n else self.X[chosen]
            add(part, weights, sign, out)
            if poll():
                return

    def _add_narrow(self, part: FloatArray, by: FloatArray, sign: float, out: FloatArray) -> None:
        """Rows of few features, whose products take less time than to copy them once more."""
        weighted = part * (sign * by)[:, None]
        out[:-1, :-1] += part.T @ weighted
        out[-1, :-1] += self.constant * (np.ones(len(part)) @ weighted)
        out[-1, -1] += sign * self.constant**2 * by.sum()

    def _add_wide(self, part: FloatArray, by: FloatArray, sign: float, out: FloatArray) -> None:
        block = np.empty((len(part), self.d + 1), out.dtype)
        np.multiply(part, np.sqrt(by)[:, None], out=block[:, :-1])
        np.multiply(self.constant, np.sqrt(by), out=block[:, -1])
        syrk = blas.ssyrk if out.dtype == np.float32 else blas.dsyrk
        syrk(sign, block.T, beta=1.0, c=out, lower=1, overwrite_c=1)


class SparseFeatures:
    """Rows of a CSR matrix with sorted indices, followed by a constant."""

    def __init__(self, X: Any, constant: float) -> None:
        self.X, self.constant = X, constant
        self.n, self.d = X.shape
        self.gram: FloatArray | None = None  # of all rows, once a machine has asked for it
        self.squares: FloatArray | None = None  # of the lengths of the rows, once a machine has asked for them
        self.lists = loops.Compressed(X.data, X.indices.view(np.uint32), X.indptr, constant)

    @cached_property
    def part(self) -> SparseFeatures:
        """One row in `LEVEL`, for all machines over these rows."""
        return SparseFeatures(self.X[::LEVEL], self.constant)

    @cached_property
    def typical(self) -> float:
        """The mean of k(x, x)."""
        return float(self.X.data @ self.X.data / self.n + self.constant**2)

    def times(self, w: FloatArray) -> FloatArray:
        """X w + constant w0."""
        out = np.empty(self.n)
        loops.sparse_times(self.lists, w, out)
        return out

    def add(self, rows: IntArray, by: FloatArray, out: FloatArray) -> None:
        """out += X[rows]' by. In place: out."""
        loops.sparse_add(self.lists, rows, by, len(rows), out)

    def add_gram(self, rows: IntArray, by: FloatArray, sign: float, out: FloatArray, poll: Callable[[], bool]) -> None:
        """out += sign X[rows]' diag(by) X[rows], the lower half in Fortran's order. In place: out."""
        loops.sparse_gram(self.lists, rows, sign * by, out.T)


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


def losses_from(qp: DualQP, n: int) -> Losses:
    """The losses of n points, whose dual variables these are. A point has one variable, or the two of a tube."""
    squared = bool(qp.diag.any())
    if qp.one_each(n):
        return _losses(qp.c, np.zeros(n), qp.lower, qp.upper, qp.diag)
    target, half, lower, upper = np.zeros((4, n))
    diag = np.ones(n) if squared else np.zeros(n)
    m = len(qp.point)
    if m and qp.point[0] == qp.point[m // 2] and m > 1:  # two variables a point, those that grow first
        m //= 2
        point = qp.point[:m]
        target[point] = 0.5 * (qp.c[:m] + qp.c[m:])
        half[point] = 0.5 * (qp.c[m:] - qp.c[:m])
    else:
        point = qp.point
        target[point] = qp.c
    lower[point], upper[point], diag[point] = qp.lower[len(qp.point) - m :], qp.upper[:m], qp.diag[:m]
    return _losses(target, half, lower, upper, diag)


def variables(qp: DualQP, z: FloatArray) -> FloatArray:
    """The dual variables of the points as those of the problem."""
    beta = z[qp.point]
    return np.clip(beta, qp.lower, qp.upper)


def _losses(target: FloatArray, half: FloatArray, lower: FloatArray, upper: FloatArray, diag: FloatArray) -> Losses:
    """Losses at f = 0. A linear one is as stiff as takes a variable through its box where f moves by a typical target.

    It begins around the middle of its box, from where neither bound is far.
    """
    n = len(target)
    centre = np.zeros(n)
    if diag.any():
        stiff = 1.0 / diag
    else:
        stiff = upper - lower
        spread = float(np.std(target)) if n else 0.0
        typical = np.isfinite(stiff) & (stiff > 0.0)
        size = float(np.mean(stiff[typical])) if typical.any() else 1.0
        stiff = np.where(typical, stiff, size) / (spread or 1.0)
        centre[typical] = 0.5 * (lower + upper)[typical]
    return _at_zero(target, half, lower, upper, stiff, centre)


def _at_zero(*given: FloatArray) -> Losses:
    """Losses from their numbers, at f = 0."""
    target, half, lower, upper, stiff, centre = given
    f, z = np.zeros((2, len(target)))
    return Losses(target, half, lower, upper, stiff, centre, f, z, np.zeros(len(f), np.int8))


def rows_of(X: Any, constant: float) -> DenseFeatures | SparseFeatures:
    """The rows of a matrix as steps read them."""
    return SparseFeatures(X, constant) if is_sparse(X) else DenseFeatures(X, constant)


class Measures(NamedTuple):
    """How good X'z is: its primal objective, the duality gap, and the KKT violation of the dual variables."""

    primal: float
    gap: float
    violation: float


class Enough(NamedTuple):
    """When a machine is good enough: at a relative gap of `gap`; or where no variable violates by more than `violation`, and
    the relative gap is at most `largest`."""

    gap: float
    violation: float = 0.0
    largest: float = 0.0

    def met(self, found: Measures | Newton) -> bool:
        """Whether it is."""
        level = abs(found.primal)
        if found.gap <= self.gap * level:
            return True
        return bool(found.gap <= self.largest * level and found.violation <= self.violation)


def is_open(losses: Losses, squared: bool) -> bool:
    """Whether a box is infinite that nothing else closes."""
    return not squared and not (np.isfinite(losses.lower).all() and np.isfinite(losses.upper).all())


def gap_terms(losses: Losses, squared: bool, unbounded: bool) -> tuple[float, float]:
    """`measure` of losses; an infinite box that nothing else closes is closed at the running bound max |z| + 1."""
    if unbounded:
        running = float(np.abs(losses.z).max(initial=0.0)) + 1.0
        lower, upper = np.maximum(losses.lower, -running), np.minimum(losses.upper, running)
        losses = losses._replace(lower=lower, upper=upper)
    loss, excess = loops.measure(losses, squared)
    return float(loss), float(excess)


def measured(
    rows: DenseFeatures | SparseFeatures, losses: Losses, squared: bool
) -> tuple[Losses, FloatArray, Measures]:
    """The losses at X'z, X'z itself, from the data, and how good it is. For an intercept that is not free."""
    sums = np.zeros(rows.d + 1)
    support = np.flatnonzero(losses.z)
    f = np.zeros(rows.n)
    if len(support):
        rows.add(support, losses.z[support], sums)
        f = rows.times(sums)
    there, found = assessed(losses, sums, f, squared)
    return there, sums, found


def assessed(losses: Losses, sums: FloatArray, f: FloatArray, squared: bool) -> tuple[Losses, Measures]:
    """`measured` where X'z and f = X X'z are known."""
    there = losses._replace(f=f)
    loss, excess = gap_terms(there, squared, is_open(there, squared))
    return there, Measures(0.5 * float(sums @ sums) + loss, excess, violation(there, squared, free=False))


def violation(losses: Losses, squared: bool, *, free: bool) -> float:
    """The KKT violation of the dual variables at f."""
    top, bottom = loops.residuals(losses, squared)
    return float(max(top - bottom if free else max(top, -bottom), 0.0))


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
            _at_zero(*few),
            free=newton.free,
            squared=True,
            poll=newton.poll,
        )
        part.begin(None)
        solve(part, lambda p: p.gap <= ROUGH * p.primal, lambda _: True, PATIENCE)
        w = part.w
    newton.begin(w)
