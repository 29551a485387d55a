"""Block SMO: working sets larger than the free set, float32 tiles, a float64 gradient, refinement to any tolerance.

Solves   every formulation of the sign-free dual, and every kernel. Kernels without a tile go through `KernelMatrix`.
Cost     2 to 3 kernel values per support vector and point when C is small. They are not stored. Where values are costly and
         memory holds K, half of K is computed instead. Each outer step takes a Gram matrix of the working set. That has q
         variables, about 1.3 times as many as are free. A pair step takes O(q).
Stops    at the tolerance of the chosen criterion. Where float32 products could have spoilt the gradient, it is computed
         again in float64 first.
Idea     Joachims 1998; Wen et al. (ThunderSVM) 2018. Pairs are chosen by Fan, Chen and Lin's second order (2005), and
         over-relaxed.

The gradient is kept in float64 as ``field = K beta`` over the points. Inside a block all is float32. Residuals are shifted
there to lie around zero: the block solves for a correction, as in iterative refinement. There are three levels of precision.
A run goes up by one level when rounding gets in the way.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._types import LANES, DualQP, FloatArray, IntArray, Raw, Status
from svmcore.kernel.matrix import KernelMatrix, kernel_product
from svmcore.kernel.table import is_positive
from svmcore.kernel.tiles import PIECE, gram_among, make_tiles
from svmcore.problem import measures
from svmcore.simd import loops
from svmcore.simd.lanes import UNITS_16
from svmcore.simd.vector import BIG, ROWS
from svmcore.solvers import _block_jit as block_jit
from svmcore.solvers._contract import STOPPED, Capabilities, Crawl, Criterion, SolverTask, product_work, rounding
from svmcore.solvers._face import FaceResult, face_step
from svmcore.solvers._watch import PROGRESS, Watch

CAPABILITIES = Capabilities(
    summary="block SMO on float32 tiles with a float64 gradient: the fastest for most problems",
    equality=True,
    no_equality=True,
    infinite_bounds=True,
    warm_start=True,
)

OPTION_VALUES: dict[str, tuple[Any, ...]] = {}

SINGLE, MIXED, DOUBLE = range(3)
"""The levels of precision: all in float32, products in float64, and products and blocks in float64."""

# The size of a working set. It holds all variables, up to SMALL of them. The limit is SMALL_COSTLY where kernel values are
# costly, and SMALL_KEPT where all of them are in memory. Otherwise it has at least LEAST_BLOCK variables, and FREE_FACTOR
# times as many as are free: with fewer than are free the method thrashes.
SMALL, SMALL_COSTLY, SMALL_KEPT = 1900, 3500, 6000
LEAST_BLOCK = 1024
FREE_FACTOR = 1.3

# What the next working set inherits: the free variables of the last one, up to the share KEEP of its own size, and others
# of the last one up to the share KEEP_LEAST.
KEEP, KEEP_LEAST = 0.7, 0.3

# K is kept in memory when more than this share of the first working set carries weight: that set is close to a sample.
CROWDED = 0.55

# How far a block is solved: to the share INNER of the outer violation, or to the share INNER_TOL of the tolerance, whichever
# is larger. A block of all variables is solved to the tolerance's share, but no further than to the share NOISE of the
# violation: float32 residuals drift by so much. The last two stand with the loops.
INNER = 0.05

# Rounding of products. ROUNDING is the error of float32 ones per unit of |beta|; measured were 0.9 to 2.2 times that.
# ROUNDING_64 is the error of float64 ones per unit of sum |beta|. Float32 will do while its rounding leaves the share
# LEAST_GOAL of the tolerance. Before beta is known, its norm counts as TYPICAL, or less where its box is smaller.
ROUNDING, ROUNDING_64 = 2e-7, 1e-15
LEAST_GOAL = 0.3
TYPICAL = 10.0

# A product of at most SHORT kernel values is computed in one go. Nobody minds waiting for one of at most BRIEF operations,
# which takes about a third of a second.
SHORT = 1 << 28
BRIEF = 1e10

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

# A working set gets STEPS_PER_VARIABLE pair steps for each of its variables. Between two looks at the clock, and for
# variables that no longer move, lie LEAST_PIECE pair steps, or PIECE_PER_VARIABLE for each variable if that is more. A
# working set of at least LEAST_SHRUNK variables is left for those that still move, where they are less than the share SHRINK.
STEPS_PER_VARIABLE = 200
LEAST_PIECE, PIECE_PER_VARIABLE = 5000, 2
SHRINK = 0.7
LEAST_SHRUNK = 512


class Gauge(NamedTuple):
    """Where the run stands."""

    v: FloatArray
    high: float
    low: float
    free: int
    violation: float


class _BlockRun:
    """The state of one run."""

    def __init__(self, qp: DualQP, K: KernelMatrix, start: FloatArray) -> None:
        self.qp = qp
        self.K = K
        self.beta = start.copy()
        self.tiles = make_tiles(K, centred=qp.centred)
        self.field = np.zeros(-(-K.n // LANES) * LANES)
        self.level = SINGLE
        self.largest = float(np.max(np.abs(K.diagonal), initial=0.0))
        self.open_box = qp.open_box
        self.one_each = qp.one_each(K.n)
        self.plain = self.one_each and not qp.diag.any()  # the residual is c - field
        self.previous = np.empty(0, np.int64)
        self.previous_free = 0
        self.taken = np.zeros(len(start), bool)
        self.keys = np.empty(len(start))
        self.ids = np.empty(len(start), np.int64)
        self.crawl = Crawl(len(start), 100 * len(start) + 20000, float(len(start)))
        self.gram: Any = None
        self.gram_of: tuple[IntArray, Any] | None = None
        self.steps = 0
        self.outer = 0
        self.last_steps = self.last_free = 0
        self.last_face = (BIG, 0)  # the objective and the number of pair steps at the last face step
        self.bits = 0
        self.halves = bool(self.tiles.fits_16_bits and not qp.diag.any())
        self.last_half = (0, 0.0)
        self.first_violation = 0.0
        self.fresh = False  # whether the field has just been computed in float64
        self.remembered = False  # whether that was the very product that the certificate will ask for
        self.whole = True  # the field belongs to beta
        self.relax = block_jit.RELAX
        self.exact = True  # the field carries no float32 error
        self.moved = 0.0  # the sum of |coefficients| whose products went into the field
        self.moved_single = 0.0  # the same of those that went in through float32, each times its error factor
        if not self.largest < 1e30:
            self.level = DOUBLE

    def gauge(self) -> Gauge:
        """Compute the residual, its extremes and the violation."""
        qp = self.qp
        v = qp.c - self.field[: len(qp.c)] if self.plain else measures.residual(qp, self.beta, self.field)
        high, low, free = block_jit.extremes(v, self.beta, qp.lower, qp.upper)
        return Gauge(v, high, low, free, float(measures.spread(high, low, qp.equality)))

    def objective(self, gauge: Gauge) -> float:
        return measures.objective(self.qp, self.beta, gauge.v)

    def rounding(self) -> float:
        """How far float32 products have moved the residual, at most in typical cases."""
        if self.exact:
            return 0.0
        moved = self.rounding_of_each * self.beta
        return float(np.sqrt(np.vdot(moved, moved)))

    @cached_property
    def rounding_of_each(self) -> FloatArray:
        """How far the float32 product of each variable alone moves the residual, for each unit of its coefficient."""
        root = np.sqrt(np.abs(self.K.diagonal[self.qp.point]))
        return np.asarray(ROUNDING * root.max(initial=0.0) * root)

    def goal(self, tol: float) -> float:
        """If this field's violation is at most this, the exact one is below `tol`. 0 where rounding is too large to say so.

        Without stored columns a product in float64 costs little more than the certificate that finds it remembered.
        """
        if not self.tiles.by_columns:
            return tol
        left = tol - 2.0 * self.rounding()
        return left if left >= LEAST_GOAL * tol else 0.0

    def doubtful(self, tol: float) -> bool:
        """Whether rounding may have moved the residual by more than it may since it was computed."""
        if self.fresh:
            return False
        single = 0.0 if self.tiles.by_columns else self.rounding()  # with stored columns the goal has seen to it
        return single + ROUNDING_64 * self.largest * self.moved > 0.1 * tol

    def residual_error(self) -> FloatArray:
        """A bound on the error of each entry of the residual."""
        double = ROUNDING_64 * self.largest * (self.moved + 1.0)
        return double + self.moved_single * self.tiles.error_factor[self.qp.point]

    def change(self, index: IntArray, step: FloatArray, control: Control | None) -> Status | None:
        """field += K step, in pieces."""
        if self.one_each:
            points, coef = index, step
        else:
            total: FloatArray = np.bincount(self.qp.point[index], weights=step, minlength=self.K.n).astype(np.float64)
            points = np.flatnonzero(total)
            coef = total[points]
        add = self.tiles.add if self.level == SINGLE else self.tiles.add_exactly
        self.fresh = self.remembered = False
        single = self.level == SINGLE and not self.tiles.exact_products
        self.exact = self.exact and not single
        size = float(np.abs(coef).sum())
        self.moved += size
        if single:
            self.moved_single += float(np.abs(coef) @ self.tiles.error_factor[points])
        rows = max(ROWS, PIECE // max(self.K.n, 1) // ROWS * ROWS)
        brief = product_work(self.K, len(points)) <= BRIEF
        for first in range(0, len(points), rows):
            add(points[first : first + rows], coef[first : first + rows], self.field)
            if control is not None and not brief and first + rows < len(points):
                status = control.check(self.steps, np.nan, np.nan)
                if status is not None:
                    return status
        return None

    def known(self) -> tuple[Any, ...]:
        """The field, and all that is known of it."""
        return self.field.copy(), self.level, self.exact, self.moved, self.moved_single, self.fresh, self.remembered

    def back_to(self, known: tuple[Any, ...]) -> None:
        """Put the field back as it was, where a new one is only half done."""
        self.field[:] = known[0]
        self.level, self.exact, self.moved, self.moved_single, self.fresh, self.remembered = known[1:]

    def refresh(self, level: int, control: Control | None) -> Status | None:
        """Compute the field afresh, at a higher level of precision."""
        support = np.flatnonzero(self.beta)
        short = len(support) * self.K.n <= SHORT and product_work(self.K, len(support)) <= 10.0 * BRIEF
        before = () if short else self.known()
        self.level = max(self.level, level)
        self.field[:] = 0.0
        self.exact, self.moved, self.moved_single = True, 0.0, 0.0
        self.fresh = self.level > SINGLE
        if self.fresh and short and not self.tiles.by_columns:
            # The product is computed in one piece, and the certificate will find it remembered.
            self.field[: self.K.n] = kernel_product(self.qp, self.K, self.beta)
            self.moved, self.remembered = float(np.abs(self.beta).sum()), True
            return None
        status = self.change(support, self.beta[support], None if short else control)
        if status is not None:
            self.back_to(before)
            return status
        self.fresh = self.level > SINGLE
        return None

    def foresee(self, tol: float) -> None:
        """Start with float64 columns where float32 ones would not do in the end."""
        if not self.tiles.by_columns:
            return
        box = float(np.minimum(np.maximum(self.qp.upper, -self.qp.lower), TYPICAL).max(initial=0.0))
        size = min(TYPICAL, box * float(np.sqrt(len(self.beta))))
        if 2.0 * ROUNDING * self.largest * size > (1.0 - LEAST_GOAL) * tol:
            self.level = max(self.level, MIXED)

    def block_size(self, free: int) -> int:
        """How many variables the next working set takes."""
        n = len(self.beta)
        room = int(np.sqrt(self.K.cache_bytes / (4 if self.level < DOUBLE else 8)))
        small = SMALL_KEPT if self.tiles.keeps else SMALL_COSTLY if self.tiles.costly else SMALL
        if n <= min(small, room):
            return n
        return min(n, max(LEAST_BLOCK, int(FREE_FACTOR * free) + 256), max(room, 256))

    def choose(self, gauge: Gauge, size: int) -> IntArray:
        """Choose a working set: a part of the last one, and the worst violators of both kinds, half of each."""
        qp, taken = self.qp, self.taken
        n = len(self.beta)
        if size == n:
            return np.arange(n)
        kept = self.previous[: int(size * min(KEEP, max(KEEP_LEAST, self.previous_free / size)))]
        taken[kept] = True
        m = len(kept)
        above, below = (gauge.low, -gauge.high) if qp.equality else (0.0, 0.0)
        for sign, bound, threshold, share in ((1.0, qp.upper, above, 2), (-1.0, qp.lower, below, 1)):
            count = block_jit.candidates(gauge.v, self.beta, bound, sign, threshold, taken, self.keys, self.ids)
            room = min((size - m) // share, count)
            if room > 0:
                limit = np.partition(self.keys[:count], room - 1)[room - 1] if room < count else np.inf
                block_jit.take(self.keys, self.ids, count, limit, room, taken)
                m += room
        chosen = np.empty(m, np.int64)
        block_jit.collect(taken, chosen)
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
        plain = self.level == DOUBLE or work.unit == 1.0
        tau = max(FLAT * self.largest, LEAST_CURVATURE) if plain else FLAT_16
        budget = min(
            self.steps_allowed(free) if 0 < free <= FEW_FREE else STEPS_PER_VARIABLE * len(work.beta) + 10000, limit
        )
        return self.solve_part(work, stop, tau, self.steps + budget, control)

    def solve_part(
        self, work: block_jit.WorkingSet, stop: float, tau: float, end: int, control: Control
    ) -> Status | None:
        """`solve_block` until `end` pair steps have been taken. Calls itself for the variables that still move."""
        m, equality = len(work.beta), self.qp.equality
        solve = block_jit.pair_steps if equality else block_jit.single_steps
        piece = max(LEAST_PIECE, PIECE_PER_VARIABLE * m)
        members = np.empty(m, np.int64)
        direction: block_jit.Direction | None = None
        while self.steps < end:
            most = min(piece, end - self.steps)
            if direction is None:
                steps, violation, bits = solve(work, stop, self.relax, tau, most)
            else:
                steps, violation, bits = block_jit.conjugate_steps(work, direction, MEMBERS, stop, tau, most)
            if equality and np.count_nonzero((work.beta > work.lower) & (work.beta < work.upper)) <= CONJUGATE:
                direction = direction or block_jit.new_direction(work)
            else:
                direction = None
            self.steps += steps
            self.bits |= bits
            if steps < piece:
                return None
            status = control.check(self.steps, violation, np.nan)
            count = block_jit.still_moving(work, members)
            if status is None and 0 < count < SHRINK * m and m >= LEAST_SHRUNK:
                part = _part(work, members[:count])
                status = self.solve_part(part, stop, tau, end, control)
                _put_back(part, work, members[:count])
            if status is not None:
                return status
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


def _part(work: block_jit.WorkingSet, members: IntArray) -> block_jit.WorkingSet:
    """Some of the variables of a working set, as one of their own."""
    m = len(members)
    width = -(-m // LANES) * LANES
    diagonal, values, rise, fall = (np.ones(width, work.values.dtype) for _ in range(4))
    diagonal[:m], values[:m] = work.diagonal[members], work.values[members]
    beta, lower, upper = work.beta[members], work.lower[members], work.upper[members]
    gram = gram_among(work.gram, members)
    part = block_jit.WorkingSet(gram, work.unit, diagonal, values, rise, fall, beta, lower, upper)
    block_jit.start_masks(part)
    return part


def _put_back(part: block_jit.WorkingSet, work: block_jit.WorkingSet, members: IntArray) -> None:
    """What has become of a `_part`, and the residuals of the others after it. In place: work."""
    step = part.beta - work.beta[members]
    moved = np.flatnonzero(step)
    change = np.zeros(len(work.values))
    coef = (work.unit * step[moved]).astype(work.values.dtype)
    loops.add_rows(work.gram, members[moved], coef, 0, len(work.values), change)
    work.values[:] -= change
    work.values[members] = part.values[: len(members)]
    work.beta[members] = part.beta
    block_jit.start_masks(work)


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
        goal = state.goal(tol) if stopping == "kkt" else 0.0
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
    share = (block_jit.NOISE if state.level < DOUBLE else 0.0) if whole and target > 0 else INNER
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
    known, point = ((), state.beta) if brief else (state.known(), state.beta.copy())
    state.beta[chosen] = work.beta
    if first and state.level == SINGLE and state.tiles.costly and np.count_nonzero(work.beta) > CROWDED * len(chosen):
        state.tiles.keep()
    done = status is None or brief
    if done:
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
