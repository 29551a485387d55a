"""Chunking: a chunk of variables is solved. Its support vectors stay, and the worst violators are added for the next chunk.

Solves   every formulation.
Cost     the kernel rows of a chunk that are not stored, and one quadratic program of its size for each chunk.
Stops    at the tolerance of the chosen criterion. An iteration is one chunk.
Chunk    the support vectors, and the `size` variables outside that violate most. Up to `highs_limit` variables HiGHS solves
         its program, by an active-set method on a dense matrix. Then pair steps solve it to the tolerance. They solve larger
         programs alone, from the present point, and all programs where highspy is not there.
Reference  Cristianini and Shawe-Taylor (2000), section 7.4, table 7.2.
"""

from __future__ import annotations

import numpy as np

from svmcore._types import NONZERO, FloatArray, IntArray, Raw, Status
from svmcore.base import highs as _highs
from svmcore.problem import measures
from svmcore.solvers import _chunk_jit, _steps_jit
from svmcore.solvers._contract import Capabilities, Crawl, SolverTask
from svmcore.solvers._course import Course, WholeNumber
from svmcore.solvers._pairs_jit import pair_slice
from svmcore.solvers._steps_jit import Duals, Limits

CAPABILITIES = Capabilities(summary="chunking with HiGHS's quadratic programming on each chunk")

OPTION_VALUES = {"size": WholeNumber(2), "highs_limit": WholeNumber(0)}

CHUNKS = 30  # so many chunks that do not halve the violation are a crawl
CHUNK_COST = 1e6
# Pair steps solve a chunk to the share _POLISHED of the tolerance. They are at most _POLISH, and 20 more for each variable.
_POLISH, _POLISHED = 20000, 0.3
_AT_BOUND = 1e-9  # a value of HiGHS that is so close to its bound, relative to the largest value, is put onto it


class _Chunks:
    """The choice of chunks, and what happens to one."""

    def __init__(self, course: Course, size: int, highs_limit: int) -> None:
        self.course, self.size = course, size
        self.highs_limit = highs_limit if highs_limit and _highs.highspy() is not None else 0
        course.stats |= {"highs": 0, "highs_failures": 0, "largest_chunk": 0, "paper_evals": 0.0}

    def choose(self) -> IntArray:
        """The support vectors and the worst violators outside."""
        duals = self.course.duals
        b = measures.bias(self.course.qp, duals.beta, duals.v)
        grow = np.where(duals.beta < duals.upper, duals.v - b, -np.inf)
        shrink = np.where(duals.beta > duals.lower, b - duals.v, -np.inf)
        support = duals.beta != 0.0
        violation = np.where(support, -np.inf, np.maximum(grow, shrink))
        worst = np.argsort(-violation, kind="stable")[: self.size]
        if not support.any() and self.course.qp.equality:  # a first chunk needs variables of both directions
            half = max(self.size // 2, 1)
            up = np.argsort(-np.where(duals.upper > 0, duals.v, -np.inf), kind="stable")[:half]
            down = np.argsort(np.where(duals.lower < 0, duals.v, np.inf), kind="stable")[:half]
            worst = np.union1d(up, down)
        else:
            worst = worst[violation[worst] > 0.0]
            if self.course.qp.equality:  # nothing moves without one variable of each direction
                can_grow, can_shrink = duals.beta < duals.upper, duals.beta > duals.lower
                top = int(np.argmax(np.where(can_grow, duals.v, -np.inf)))
                bottom = int(np.argmin(np.where(can_shrink, duals.v, np.inf)))
                worst = np.append(worst, [t for t, able in ((top, can_grow), (bottom, can_shrink)) if able[t]])
        return np.union1d(np.flatnonzero(support), worst)

    def solve(self, chunk: IntArray) -> int:
        """Solve the program of a chunk. Returns a reason, as a slice does."""
        course, duals = self.course, self.course.duals
        m = len(chunk)
        course.supply(course.qp.point[chunk])
        small, part, matrix, progress = _chunk_jit.new_small(duals, m)
        small.chosen[:] = chunk
        _chunk_jit.load(duals, course.store.rows, small, part, matrix, m)
        course.stats["largest_chunk"] = max(course.stats["largest_chunk"], m)
        course.stats["paper_evals"] += float(m) * duals.n
        if m <= self.highs_limit:
            self._highs(part, matrix.values)
        most = _POLISH + 20 * m
        if (
            pair_slice(part, matrix, progress, Limits(_POLISHED * course.tol, most, most, np.inf))
            == _steps_jit.NO_BOUND
        ):
            return _steps_jit.NO_BOUND
        before = float(course.floats[_steps_jit.OBJECTIVE])
        moved = float(_chunk_jit.store(duals, course.store.rows, small, part, m))
        after = measures.objective(course.qp, duals.beta, duals.v)
        course.floats[_steps_jit.VIOLATION] = measures.violation(course.qp, duals.beta, duals.v)
        course.floats[_steps_jit.OBJECTIVE] = before
        _steps_jit.count_step(course.progress, before - after, m, -1, moved)
        if course.n_iter >= course.max_iter:
            return _steps_jit.AT_MAX_ITER
        if course.progress.trace.shape[0] and course.ints[_steps_jit.TRACED] >= course.progress.trace.shape[0]:
            course.flush()
        if course.violation <= course.limits().tol:
            return _steps_jit.AT_TOLERANCE
        return _steps_jit.CHECK_DUE if moved > 0 else _steps_jit.STUCK

    def _highs(self, part: Duals, matrix: FloatArray) -> None:
        """Take the answer of HiGHS, if it is feasible and no worse than the present point. In place: part."""
        H = matrix + np.diag(part.diag)
        x, g = part.beta.copy(), part.v.copy()
        linear = g + H @ x  # the program is 1/2 x'Hx - linear'x over the chunk
        A = np.ones((1, len(x))) if self.course.qp.equality else np.empty((0, len(x)))
        level = np.array([x.sum()]) if self.course.qp.equality else np.empty(0)
        optimum = _highs.solve_qp(H, -linear, A, level, level, part.lower, part.upper, 20 * len(x) + 200)
        self.course.stats["highs"] += 1
        new = np.clip(optimum.x, part.lower, part.upper) if optimum.ok else x
        if self.course.qp.equality and optimum.ok:
            new = _balanced(new, x.sum(), part.lower, part.upper)
        residual = linear - H @ new
        if not optimum.ok or not np.isfinite(new).all() or (new - x) @ (residual + g) < 0.0:
            self.course.stats["highs_failures"] += 1
            return
        part.beta[:], part.v[:] = new, residual


def _balanced(x: FloatArray, total: float, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """x with the sum `total`. Variables next to a bound are put onto it, and those with most room make up for the sum."""
    near = _AT_BOUND * max(float(np.abs(x).max(initial=0.0)), NONZERO)
    x = np.where(x - lower <= near, lower, np.where(upper - x <= near, upper, x))
    missing = total - x.sum()
    for t in np.argsort(-np.minimum(x - lower, upper - x)):
        if missing == 0.0:
            break
        change = min(max(missing, lower[t] - x[t]), upper[t] - x[t])
        x[t] += change
        missing -= change
    return np.asarray(x)


def run(task: SolverTask, *, size: int = 50, highs_limit: int = 300) -> Raw:
    """Run chunking. `size` violators are added at a time."""
    course = Course(task)
    course.crawl = Crawl(len(task.start), CHUNKS, CHUNK_COST)
    chunks = _Chunks(course, max(int(size), 2), int(highs_limit))
    status = course.outside()
    if status is None and task.max_iter == 0:
        status = Status.CONVERGED if course.refresh() else Status.MAX_ITER
    if status is None and len(task.start) and course.refresh() and task.stopping != "objective":
        status = Status.CONVERGED
    while status is None:
        chunk = chunks.choose()
        if not len(chunk):
            status = course.settle(True)
            continue
        _, status = course.common(chunks.solve(chunk))
    return course.raw(status)
