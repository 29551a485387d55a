"""Block SMO: working sets larger than the free set, float32 tiles, a float64 gradient, refinement to any tolerance.

Solves   every formulation of the sign-free dual, and every kernel. Kernels without a tile go through `KernelMatrix`.
Cost     2 to 3 kernel values per support vector and point when C is small. They are not stored. Where values are costly and
         memory holds K, half of K is computed instead. Each outer step takes a Gram matrix of the working set. That has q
         variables, about 1.3 times as many as are free. A pair step takes O(q).
Stops    at the tolerance of the chosen criterion. Where float32 products could have spoilt the gradient, it is computed
         again in float64 first.
Idea     Joachims 1998; Wen et al. (ThunderSVM) 2018. Pairs are chosen by Fan, Chen and Lin's second order (2005), and
         over-relaxed.

The gradient is kept in float64 as ``field = K beta`` over the points (`_field`). Inside a block all is float32. Residuals are
shifted there to lie around zero: the block solves for a correction, as in iterative refinement. There are three levels of
precision. A run goes up by one level when rounding gets in the way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._types import LANES, DualQP, FloatArray, IntArray, Raw, Status
from svmcore.kernel.matrix import KernelMatrix
from svmcore.kernel.table import is_positive
from svmcore.problem import measures
from svmcore.simd.lanes import UNITS_16
from svmcore.simd.vector import BIG
from svmcore.solvers import _block_jit as block_jit
from svmcore.solvers._contract import STOPPED, Capabilities, Crawl, Criterion, SolverTask, product_work, rounding
from svmcore.solvers._face import FaceResult, face_step
from svmcore.solvers._field import BRIEF, DOUBLE, MIXED, SINGLE, Field
from svmcore.solvers._watch import PROGRESS, Watch

CAPABILITIES = Capabilities(
    summary="block SMO on float32 tiles with a float64 gradient: the fastest for most problems",
    equality=True,
    no_equality=True,
    infinite_bounds=True,
    warm_start=True,
)

OPTION_VALUES: dict[str, tuple[Any, ...]] = {}

# The size of a working set. It holds all variables, up to SMALL of them. The limit is SMALL_COSTLY where kernel values are
# costly, and SMALL_KEPT where all of them are in memory. Otherwise it has at least LEAST_BLOCK variables, or LEAST_COSTLY,
# and FREE_FACTOR times as many as are free: with fewer than are free the method thrashes. A small set chooses with more care:
# of costly columns of K fewer are computed for variables that end at zero.
SMALL, SMALL_COSTLY, SMALL_KEPT = 1900, 3500, 6000
LEAST_BLOCK, LEAST_COSTLY = 1024, 640
FREE_FACTOR = 1.3

# What the next working set inherits: the free variables of the last one, up to the share KEEP of its own size, and others
# of the last one up to the share KEEP_LEAST.
KEEP, KEEP_LEAST = 0.7, 0.3

# K is kept in memory when more than this share of the first working set carries weight: that set is close to a sample. Of
# more than SMALL_KEPT points, whose working sets are copied from it, it saves nothing.
CROWDED = 0.6

# How far a block is solved: to the share INNER of the outer violation. Where that violation is at most CLOSE times the goal,
# and where a block holds all variables, it is solved to the goal, the share INNER_TOL of the tolerance: another block for the
# little that is left would cost more, unless kernel values are cheap. It is solved no further than to the
# share NOISE of the violation: float32 residuals drift by so much. The last two stand with the loops.
INNER, CLOSE = 0.05, 200.0

RUNAWAY = 1e50  # an objective below minus this counts as minus infinity
HULLS_MEET = 1e-14  # the classes' hulls meet where their squared distance is below this share of the largest k(x, x)

# A curvature counts as zero below the share FLAT of the largest k(x, x), and below LEAST_CURVATURE where all are zero.
# FLAT_16 is that share for a Gram matrix in 16 bits, which is in units of the largest k(x, x).
FLAT, FLAT_16 = 1e-12, 1e-6
LEAST_CURVATURE = 1e-30

# Long runs of pair steps go along conjugate directions, in blocks of up to CONJUGATE free variables. A direction has MEMBERS
# variables at most: with more of them, keeping to their boxes costs more than it saves.
CONJUGATE = 500
MEMBERS = 16

# Exact steps over the free variables follow soon where there are up to FEW_FREE of them. A face step decomposes the matrix
# of up to MOST_FACE.
FEW_FREE, MOST_FACE = 250, 400

# Working sets of more than LEAST_HALF variables keep their Gram matrix in 16 bits, where HALF_ERROR times the largest |beta|
# and the root of the free count stays below 0.1.
LEAST_HALF = 2048
HALF_ERROR = 5e-6

# A working set gets STEPS_PER_VARIABLE pair steps for each of its variables. Between two looks at the clock lie LEAST_PIECE
# pair steps, or PIECE_PER_VARIABLE for each variable if that is more.
STEPS_PER_VARIABLE = 200
LEAST_PIECE, PIECE_PER_VARIABLE = 5000, 2


class Gauge(NamedTuple):
    """Where the run stands."""

    v: FloatArray
    high: float
    low: float
    free: int
    violation: float


class _BlockRun(Field):
    """The state of one run."""

    def __init__(self, qp: DualQP, K: KernelMatrix, start: FloatArray) -> None:
        super().__init__(qp, K, start)
        self.open_box = qp.open_box
        self.plain = self.one_each and not qp.diag.any()  # the residual is c - field
        self.previous = np.empty(0, np.int64)
        self.previous_free = 0
        self.taken = np.zeros(len(start), bool)
        self.keys = np.empty(len(start))
        self.ids = np.empty(len(start), np.int64)
        self.crawl = Crawl(len(start), 100 * len(start) + 20000, float(len(start)))
        self.gram: Any = None
        self.gram_of: tuple[IntArray, Any] | None = None
        self.outer = 0
        self.last_steps = self.last_free = 0
        self.last_face = (BIG, 0)  # the objective and the number of pair steps at the last face step
        self.bits = 0
        self.halves = bool(self.tiles.fits_16_bits and not qp.diag.any())
        self.last_half = (0, 0.0)
        self.first_violation = 0.0
        self.whole = True  # the field belongs to beta
        self.relax = block_jit.RELAX

    def gauge(self) -> Gauge:
        """Compute the residual, its extremes and the violation."""
        qp = self.qp
        v = qp.c - self.field[: len(qp.c)] if self.plain else measures.residual(qp, self.beta, self.field)
        high, low, free = block_jit.extremes(v, self.beta, qp.lower, qp.upper)
        return Gauge(v, high, low, free, float(measures.spread(high, low, qp.equality)))

    def objective(self, gauge: Gauge) -> float:
        return measures.objective(self.qp, self.beta, gauge.v)

    def block_size(self, free: int) -> int:
        """How many variables the next working set takes."""
        n = len(self.beta)
        room = int(np.sqrt(self.K.cache_bytes / (4 if self.level < DOUBLE else 8)))
        if n <= min(self.small, room):
            return n
        return min(
            n, max(LEAST_COSTLY if self.tiles.costly else LEAST_BLOCK, int(FREE_FACTOR * free) + 256), max(room, 256)
        )

    @property
    def small(self) -> int:
        """Up to how many variables are in one working set."""
        return SMALL_KEPT if self.tiles.keeps else SMALL_COSTLY if self.tiles.costly else SMALL

    def choose(self, gauge: Gauge, size: int) -> IntArray:
        """Choose a working set: a part of the last one, and the worst violators of both kinds, half of each."""
        qp, taken = self.qp, self.taken
        n = len(self.beta)
        if size == n and n <= self.small:
            return np.arange(n)
        kept = self.previous[: int(size * min(KEEP, max(KEEP_LEAST, self.previous_free / size)))]
        taken[kept] = True
        m = len(kept)
        above, below = (gauge.low, -gauge.high) if qp.equality else (0.0, 0.0)
        for sign, bound, threshold, share in ((1.0, qp.upper, above, 2), (-1.0, qp.lower, below, 1)):
            count = block_jit.candidates(gauge.v, self.beta, bound, sign, threshold, taken, self.keys, self.ids)
            room = min((size - m) // share, count)
            if room > 0:
                taken[self.ids[np.argpartition(self.keys[:count], room - 1)[:room]]] = True
                m += room
        chosen = np.flatnonzero(taken)  # in order: memory is read in this order
        taken[chosen] = False
        return chosen

    def working_set(self, chosen: IntArray, gauge: Gauge) -> block_jit.WorkingSet:
        """Everything that the inner steps need."""
        qp = self.qp
        m = len(chosen)
        dtype = self.gram_type(m, gauge)
        same = self.gram_of is not None and self.gram_of[1] == dtype and np.array_equal(self.gram_of[0], chosen)
        if not same:
            if m >= self.K.n and self.level == SINGLE:
                self.tiles.keep()
            plain = not qp.diag.any()
            self.gram = self.tiles.gram(qp.point[chosen], dtype, shared=plain)
            if not plain and dtype != np.uint16:
                np.einsum("ii->i", self.gram[:m, :m])[:] += qp.diag[chosen]
            self.gram_of = (chosen, dtype)
        width = -(-m // LANES) * LANES
        shift = 0.5 * (gauge.high + gauge.low) if qp.equality else 0.0
        unit = 1.0 / UNITS_16 if dtype == np.uint16 else 1.0
        dtype = np.float64 if dtype == np.float64 else np.float32
        work = block_jit.WorkingSet(self.gram, unit, *np.empty((4, width), dtype), *np.empty((3, m)))
        block_jit.fill(work, gauge.v, shift, chosen, self.beta, qp.lower, qp.upper)
        return work

    def steps_allowed(self, free: int) -> int:
        """After so many pair steps an exact step over the free variables is cheaper than more pairs, where these are few."""
        return 100 * free + 10000

    def ripe(self, free: int) -> bool:
        """Whether the last block ran into that limit."""
        return 2 <= free <= FEW_FREE and self.last_free > 0 and self.last_steps >= self.steps_allowed(free)

    def solve_block(
        self, work: block_jit.WorkingSet, free: int, stop: float, limit: int, control: Control
    ) -> Status | None:
        """Pair steps until the block is solved to `stop`."""
        m, equality = len(work.beta), self.qp.equality
        plain = self.level == DOUBLE or work.unit == 1.0
        tau = max(FLAT * self.largest, LEAST_CURVATURE) if plain else FLAT_16
        end = self.steps + min(
            self.steps_allowed(free) if 0 < free <= FEW_FREE else STEPS_PER_VARIABLE * m + 10000, limit
        )
        piece = max(LEAST_PIECE, PIECE_PER_VARIABLE * m)
        solve = block_jit.pair_steps if equality else block_jit.single_steps
        direction: block_jit.Direction | None = None
        while self.steps < end:
            most = min(piece, end - self.steps)
            if direction is None:
                steps, violation, bits = solve(work, stop, self.relax, tau, most)
            else:
                steps, violation, bits = block_jit.conjugate_steps(work, direction, MEMBERS, stop, tau, most)
            self.steps += steps
            self.bits |= bits
            if steps < piece:
                return None
            status = control.check(self.steps, violation, np.nan)
            if status is not None:
                return status
            if equality and np.count_nonzero((work.beta > work.lower) & (work.beta < work.upper)) <= CONJUGATE:
                direction = direction or block_jit.new_direction(work)
            else:
                direction = None
        return None

    def gram_type(self, m: int, gauge: Gauge) -> Any:
        """The number type of the next Gram matrix. It is 16 bits if the matrix is large and their rounding cannot matter."""
        if self.level == DOUBLE:
            return np.float64
        kept = self.tiles.costly and m == len(self.beta)  # then no copy is needed
        if not self.halves or m <= LEAST_HALF or kept:
            return np.float32
        last_m, last_violation = self.last_half
        late = gauge.violation < self.first_violation and last_m > FREE_FACTOR * gauge.free
        if late and gauge.violation > 0.5 * last_violation:
            self.halves = False  # the last 16-bit block held all free variables and did not help
            return np.float32
        box = float(np.max(np.abs(self.beta), initial=0.0))
        if HALF_ERROR * box * np.sqrt(gauge.free) > 0.1:
            return np.float32
        self.last_half = (m, gauge.violation)
        return np.uint16

    def success(self) -> Status:
        """The status of a run that has met its criterion."""
        bent = self.bits & block_jit.NONCONVEX and not is_positive(self.K.kernel)  # else it is rounding that bends
        return Status.STATIONARY if bent else Status.CONVERGED

    def sharpen(self, level: int, control: Control, unbounded: bool) -> Status | None:
        """Go up to more precision. Where there is no higher level, return how the run ends."""
        if self.level == DOUBLE:
            return Status.UNBOUNDED if unbounded else Status.PRECISION
        self.halves = False
        return self.refresh(level, control)

    def retreat(self, safe: FloatArray | None, control: Control) -> Status | None:
        """Go back to the best point, in float64 throughout. The second time, from float64, the run ends."""
        finished = self.level == DOUBLE and self.relax == 1.0
        self.relax = 1.0 if self.level == DOUBLE else self.relax
        if safe is not None:
            self.beta = safe
        status = self.refresh(DOUBLE, control)
        return Status.PRECISION if finished else status

    def face(self, noise: float, control: Control) -> Status | None:
        """Take an exact step over all free variables, if they are few enough."""
        qp = self.qp
        if not self.exact:
            status = self.refresh(MIXED, control)
            if status is not None:
                return status
        v = measures.residual(qp, self.beta, self.field)
        free = np.flatnonzero((self.beta > qp.lower) & (self.beta < qp.upper))
        if not 2 <= len(free) <= MOST_FACE:
            return None
        self.gram_of = None
        H = np.array(self.tiles.gram(qp.point[free], np.float64)[: len(free), : len(free)])
        H.flat[:: len(free) + 1] += qp.diag[free]
        after, result = face_step(
            H, qp.diag[free], self.beta[free], v[free], qp.lower[free], qp.upper[free], qp.equality, noise,
            self.crawl.spend,
        )  # fmt: skip
        if result is FaceResult.UNBOUNDED:
            return self.sharpen(DOUBLE, control, unbounded=True)
        step = after - self.beta[free]
        changed = np.flatnonzero(step)
        self.beta[free] = after
        self.level = max(self.level, MIXED)
        status = self.change(free[changed], step[changed], control)
        return status or self.compare_faces(control)

    def compare_faces(self, control: Control) -> Status | None:
        """Go up to more precision after a face step, if the blocks since the last one have not led to a better point."""
        reached, steps = self.objective(self.gauge()), self.steps
        (best, before), self.last_face = self.last_face, (reached, steps)
        self.steps += 1
        if steps == before + 1 or reached < best - PROGRESS * abs(best) or self.level == DOUBLE:
            return None
        return self.sharpen(DOUBLE, control, unbounded=False)

    def hopeless(self, gauge: Gauge) -> bool:
        """Whether boxes are open and the hulls of the classes meet to within rounding: |w|^2 / sum(beta)^2 vanishes."""
        if not self.open_box:
            return False
        size = float(np.abs(self.beta).sum())
        norm = float(self.beta @ (self.qp.c - gauge.v - self.qp.diag * self.beta))
        return size > 0 and norm <= HULLS_MEET * self.largest * size**2


def run(task: SolverTask) -> Raw:
    """Solve the dual from `start`, as the text of this file says. `n_iter` counts pair steps."""
    qp, K, control, tol, start, stopping, max_iter, _, trace = task
    state = _BlockRun(qp, K, start)
    if stopping == "kkt":
        state.foresee(tol)
    status = state.refresh(state.level, control) if state.beta.any() else None
    limit = max_iter if max_iter >= 0 else np.iinfo(np.int64).max
    criterion, watch = Criterion(stopping, tol), Watch(state.crawl, len(start))
    records: list[tuple[float, float, int, int]] = []
    while status is None:
        gauge = state.gauge()
        objective = state.objective(gauge)
        if trace:
            records.append((objective, gauge.violation, state.tiles.n_evals, gauge.free))
        goal = state.goal(tol, close=gauge.violation <= CLOSE * tol) if stopping == "kkt" else 0.0
        target = block_jit.INNER_TOL * (goal or tol) if stopping == "kkt" else 0.0
        met = gauge.violation <= goal if stopping == "kkt" else criterion.met(qp, state.beta, gauge.v, objective)
        if met or gauge.violation == 0.0:
            status = state.refresh(MIXED, control) if state.doubtful(tol) else state.success()
            watch.forget()
        elif state.steps >= limit:
            status = Status.MAX_ITER
        elif goal == 0.0 and stopping == "kkt":
            status = state.refresh(MIXED, control)
            watch.forget()
        elif not objective >= -RUNAWAY:
            status = Status.UNBOUNDED
        elif watch.harmed(objective, state.beta):
            status = state.retreat(watch.safe, control)
            watch.forget()
        elif watch.idles(gauge.violation, objective) or state.hopeless(gauge):
            status = state.sharpen(state.level + 1, control, state.hopeless(gauge))
            watch.forget()
        elif watch.crawls(gauge.violation, objective, state.steps, state.outer):
            hidden = watch.endless or gauge.violation <= rounding(qp, K, state.beta)
            status = Status.PRECISION if hidden else state.face(0.1 * tol, control)
            watch.forget()
        elif state.ripe(gauge.free):
            status = state.face(0.1 * tol, control)
            watch.forget()
            state.last_steps = 0
        else:
            status = control.check(state.steps, gauge.violation, objective)
            if status is None:
                before = state.steps
                status = _outer_step(state, gauge, target, limit - state.steps, control)
                state.outer += 1
                if state.fresh:
                    watch.forget()
                ray = bool(state.bits & block_jit.RAY)
                if status is None and (ray or state.steps == before):
                    status = state.sharpen(DOUBLE, control, ray)
    K.n_evals += state.tiles.n_evals
    return _answer(state, start, status, objective, records if trace else None)


def _answer(
    state: _BlockRun,
    start: FloatArray,
    status: Status,
    objective: float,
    records: list[tuple[float, float, int, int]] | None,
) -> Raw:
    """What the run hands over, with the residual if nobody else knows it."""
    table = None
    if records is not None:
        columns = ("objective", "violation", "n_kernel_evals", "free")
        table = {name: np.array(column) for name, column in zip(columns, zip(*records, strict=True), strict=False)}
    state.gram = None
    state.tiles.release()
    stats = {"n_outer": state.outer, "precision": ("float32", "mixed", "float64")[state.level], "exact": state.exact}
    if status is Status.PRECISION and not objective >= -RUNAWAY:
        status = Status.UNBOUNDED
    worse = not np.isfinite(state.beta).all() or (not status.ok and objective > 0.0)
    if worse:
        state.beta[:] = start  # the point has become worse than the start
    raw = Raw(state.beta, status, state.steps, table, stats)
    if worse or state.remembered or not state.whole or not (status.ok or status in STOPPED):
        return raw  # the certificate computes the residual itself, perhaps from a product that is remembered
    return raw._replace(
        residual=measures.residual(state.qp, state.beta, state.field), residual_error=state.residual_error()
    )


def _outer_step(state: _BlockRun, gauge: Gauge, target: float, limit: int, control: Control) -> Status | None:
    """One working set: choose, solve, apply. Returns the reason to stop, if any."""
    chosen = state.choose(gauge, state.block_size(gauge.free))
    work = state.working_set(chosen, gauge)
    whole = len(chosen) == len(state.beta)
    last = target > 0 and (whole or (gauge.violation <= CLOSE * target and not state.tiles.cheap))
    share = (block_jit.NOISE if state.level < DOUBLE else 0.0) if last else INNER
    stop = max(target, share * gauge.violation)
    state.bits &= ~block_jit.RAY
    first = not state.first_violation
    state.first_violation = state.first_violation or gauge.violation
    before, state.last_free = state.steps, gauge.free
    status = state.solve_block(work, gauge.free, stop, limit, control)
    state.last_steps = state.steps - before
    (changed, state.previous), step = np.empty((2, len(chosen)), np.int64), np.empty(len(chosen))
    count, state.previous_free = block_jit.outcome(work, chosen, state.beta, changed, step, state.previous)
    brief = product_work(state.K, count) <= BRIEF
    known, point = state.known(), state.beta.copy()
    state.beta[chosen] = work.beta
    crowded = len(point) <= SMALL_KEPT and np.count_nonzero(work.beta) > CROWDED * len(chosen)
    if first and state.level == SINGLE and state.tiles.costly and crowded:
        state.tiles.keep()
    done = status is None or brief
    if done:
        if stop == target and state.level == SINGLE and state.doubtful(target / block_jit.INNER_TOL):
            ended = state.refresh(MIXED, control)
        else:
            ended = state.change(changed[:count], step[:count], control)
        status, done = status or ended, ended is None
    if (
        not done
    ):  # the product was not finished, so the run goes back to the point whose field is known, unless that is zero
        state.back_to(known)
        state.whole = bool(point.any())
        if state.whole:
            state.beta = point
    return status
