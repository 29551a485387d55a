"""Python's half of SimpleSVM's active set. It loads the set, makes room in it, rescues it, and removes a variable exactly.

Two users share it: the solver (`solvers/simple`), and the updates of a trained machine (`models/incremental`). The loops are
in `_active_jit`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore._types import DualQP, FloatArray, IntArray, KernelKind, Status
from svmcore.kernel.matrix import KernelMatrix
from svmcore.problem import measures
from svmcore.simd.sums import forward
from svmcore.solvers import _active_jit, _pairs_jit, _steps_jit
from svmcore.solvers._active_jit import Active
from svmcore.solvers._course import Course

_REGULAR = 1e-6  # LAPACK's factor is used if its smallest pivot is above this share of its largest one
_FLAT = 1e-12  # a curvature below this share of its terms is zero
_RESCUE = 200  # a rescue makes so many pair steps, or one for each variable if that is more


class ActiveSet:
    """The active set S, its factor, and the course that it belongs to."""

    def __init__(self, course: Course) -> None:
        self.course = course
        n = course.duals.n
        self.shift = float(np.mean(course.duals.curvature)) if course.qp.equality and n else 0.0
        self.age = 0  # how often this set has been carried over to a changed problem
        self.active = self._allocate(min(64, n + 2), np.full(n, -1, np.int64), np.full(n, -1, np.int64))
        _active_jit.file_all(course.duals, self.active)

    def _allocate(self, capacity: int, where: IntArray, place: IntArray) -> Active:
        n = len(where)
        return Active(
            members=np.zeros(capacity, np.int64), where=where, sizes=np.zeros(2, np.int64),
            bounded=np.zeros(n + 1, np.int64), place=place, L=np.zeros((capacity, capacity)), u=np.zeros(capacity),
            w=np.zeros(capacity), d=np.zeros(capacity), cos=np.zeros(capacity), sin=np.zeros(capacity),
            before=np.zeros(capacity), touched=np.zeros(capacity, np.int64), shift=self.shift,
        )  # fmt: skip

    def grow(self) -> None:
        """More room in the factor."""
        old = self.active
        m, e = old.sizes
        capacity = min(int(1.5 * len(old.members)) + 64, self.course.duals.n + 2)
        new = self._allocate(capacity, old.where, old.place)
        new.L[:m, :m] = old.L[:m, :m]
        new.u[:m], new.w[:m], new.members[:m] = old.u[:m], old.w[:m], old.members[:m]
        new.bounded[:e] = old.bounded[:e]
        new.sizes[:] = old.sizes
        self.active = new

    def carried(self, course: Course, before: IntArray, after: IntArray) -> ActiveSet:
        """The same set and factor for another problem. Its variables `after` are the variables `before` of this one.

        All members of S must be among them.
        """
        course.store.inherit(self.course.store, before, after)
        new = ActiveSet(course)
        new.shift, new.age = self.shift, self.age + 1
        m = int(self.active.sizes[0])
        new.active = new._allocate(m + 64, new.active.where, new.active.place)
        renamed = np.full(self.course.duals.n, -1, np.int64)
        renamed[before] = after
        members = renamed[self.active.members[:m]]
        new.active.members[:m] = members
        new.active.where[members] = np.arange(m)
        new.active.sizes[0] = m
        new.active.L[:m, :m], new.active.u[:m] = self.active.L[:m, :m], self.active.u[:m]
        course.floats[_active_jit.BIAS] = self.course.floats[_active_jit.BIAS]
        _active_jit.file_all(course.duals, new.active)
        return new

    def clear(self) -> None:
        self.active.sizes[0] = 0
        self.active.where[:] = -1

    def load(self) -> None:
        """S becomes the set of the free variables, with a factor from LAPACK. Then the objective is minimised over S.

        Where the matrix is singular, S becomes empty.
        """
        course, duals = self.course, self.course.duals
        self.clear()
        F = np.flatnonzero((duals.beta > duals.lower) & (duals.beta < duals.upper))
        m = len(F)
        while len(self.active.members) < m + 2:
            self.grow()
        if m:
            course.supply(course.qp.point[F])
            columns = course.store.values[course.store.slot[course.qp.point[F]]]
            H = columns[:, F] + self.shift
            H[np.diag_indices(m)] += duals.diag[F]
            self._factor(F, H)
        self.settle()
        gain = float(course.floats[_steps_jit.OBJECTIVE]) - measures.objective(course.qp, duals.beta, duals.v)
        if gain > 0.0:
            if 0 < course.progress.trace.shape[0] <= course.ints[_steps_jit.TRACED]:
                course.flush()
            _steps_jit.count_step(course.progress, gain, m, -1, 0.0)
        _active_jit.file_all(duals, self.active)

    def settle(self) -> None:
        """Minimise over S. Members that meet a bound leave. Missing kernel rows are computed first."""
        m = int(self.active.sizes[0])
        if not m:
            return
        course, duals = self.course, self.course.duals
        F = self.active.members[:m].copy()
        course.supply(course.qp.point[F])
        before, residual = duals.beta[F].copy(), duals.v.copy()
        course.floats[_active_jit.BIAS] = _active_jit.settle(duals, self.active, np.empty(m))
        change = duals.beta[F] - before
        duals.v[:] = residual - change @ course.store.values[course.store.slot[course.qp.point[F]]]
        duals.v[F] -= duals.diag[F] * change

    def _factor(self, F: IntArray, H: FloatArray) -> None:
        try:
            L = np.linalg.cholesky(H)
        except np.linalg.LinAlgError:
            return
        pivots = np.diag(L)
        if pivots.min() <= _REGULAR * pivots.max():
            return
        m = len(F)
        active = self.active
        active.L[:m, :m] = L
        active.u[:m] = 1.0
        forward(active.L, m, active.u)
        active.members[:m] = F
        active.where[F] = np.arange(m)
        active.sizes[0] = m

    def begin_with_pair(self, pair: tuple[int, int] | None) -> None:
        """S becomes the closest pair of variables of opposite direction. Both get the step that is best for the pair."""
        course, duals = self.course, self.course.duals
        if pair is None:
            i, j = closest_pair(course.qp, course.K)
        else:
            own = [np.flatnonzero(course.qp.point == point) for point in pair]
            i, j = (int(t[0]) if len(t) else -1 for t in own)
        if i < 0 or j < 0 or i == j:
            return
        course.supply(course.qp.point[[i, j]])
        kij = float(course.store.values[course.store.slot[course.qp.point[i]], j])
        i, j = (i, j) if duals.upper[i] > 0 else (j, i)
        if duals.upper[i] <= 0 or duals.lower[j] >= 0:
            return
        curvature = duals.curvature[i] + duals.curvature[j] - 2.0 * kij
        pull = duals.v[i] - duals.v[j]
        if pull <= 0 or curvature <= _FLAT * (duals.curvature[i] + duals.curvature[j]):
            return
        step = min(pull / curvature, duals.upper[i], -duals.lower[j])
        duals.beta[i], duals.beta[j] = step, -step
        for t, change in ((i, step), (j, -step)):
            duals.v[:] -= change * course.store.values[course.store.slot[course.qp.point[t]]]
            duals.v[t] -= change * duals.diag[t]
        self.load()

    def rescue(self) -> Status | None:
        """Go on where the active set is stuck: pair steps from a fresh residual, and then a new set and factor."""
        course = self.course
        status = course.settle(True)
        if status is not None:
            return status
        limits = course.limits()._replace(max_iter=min(course.n_iter + max(_RESCUE, course.duals.n), course.max_iter))
        while status is None:
            reason = pair_slice(course, limits)
            if reason == _steps_jit.AT_MAX_ITER and course.n_iter < course.max_iter:
                break
            if reason == _steps_jit.STUCK or reason == _steps_jit.AT_TOLERANCE:
                break
            _, status = course.common(reason)
        course.stats["rescues"] = course.stats.get("rescues", 0) + 1
        if status is None:
            self.load()
        return status

    def exit(self, r: int) -> bool:
        """Take variable r to zero while S compensates exactly, and close the box of r. Returns whether that worked."""
        course, duals, progress = self.course, self.course.duals, self.course.progress
        if self.active.where[r] >= 0:
            _active_jit.remove(self.active, self.active.where[r])
            _active_jit.file_all(duals, self.active)
        for _ in range(2 * duals.n + 10):
            if duals.beta[r] == 0.0:
                break
            if len(self.active.members) < self.active.sizes[0] + 3:
                self.grow()
            sign = -1.0 if duals.beta[r] > 0 else 1.0
            if not self.active.sizes[0] and course.qp.equality and not self._lend(r, sign):
                return False
            course.supply(course.qp.point[np.append(self.active.members[: self.active.sizes[0]], r)])
            m = int(self.active.sizes[0])
            rows = course.store.rows
            _active_jit.hold(duals, rows, self.active, progress, r)
            reason, _ = _active_jit.move(duals, rows, self.active, progress, r, sign, abs(duals.beta[r]))
            _active_jit.carry(duals, rows, self.active, progress, m + 1)
            if reason == _steps_jit.NO_BOUND:
                return False
        duals.lower[r] = duals.upper[r] = 0.0
        return bool(duals.beta[r] == 0.0)

    def _lend(self, r: int, sign: float) -> bool:
        """Give the empty set S its first member: the variable that takes over what r gives at the least cost."""
        duals = self.course.duals
        able = duals.beta < duals.upper if sign < 0 else duals.beta > duals.lower
        able[r] = False
        if not able.any():
            return False
        value = np.where(able, -sign * duals.v, -np.inf)
        j = int(np.argmax(value))
        self.course.floats[_active_jit.BIAS] = duals.v[j]
        _active_jit.append(self.active, j, duals.curvature[j] + self.shift)
        _active_jit.file_all(duals, self.active)
        return True


def pair_slice(course: Course, limits: _steps_jit.Limits) -> int:
    """Second-order pair steps on the problem of a course."""
    return int(_pairs_jit.pair_slice(course.duals, course.store.rows, course.progress, limits))


def closest_pair(qp: DualQP, K: KernelMatrix) -> tuple[int, int]:
    """The two nearest variables of opposite direction. Of equal pairs, the one whose growing variable comes first.

    For the linear and the rbf kernel distances are those between the inputs.
    """
    up, down = np.flatnonzero(qp.upper > 0), np.flatnonzero(qp.lower < 0)
    if not len(up) or not len(down) or qp.twins:
        return -1, -1
    X: Any = K.X
    euclid = K.function is None and K.kernel.kind in (KernelKind.LINEAR, KernelKind.RBF)
    first, second = up, down
    best, pair = np.inf, (-1, -1)
    if euclid:
        A, B = X[qp.point[first]], X[qp.point[second]]
        norms = [np.asarray((Z.multiply(Z) if hasattr(Z, "indptr") else Z * Z).sum(axis=1)).ravel() for Z in (A, B)]
    for start in range(0, len(first), 512):
        rows = first[start : start + 512]
        if euclid:
            product = A[start : start + 512] @ B.T
            product = product.toarray() if hasattr(product, "toarray") else product
            distance = norms[0][start : start + 512, None] + norms[1][None, :] - 2.0 * product
        else:
            block = K.block(qp.point[rows], qp.point[second])
            distance = K.diagonal[qp.point[rows]][:, None] + K.diagonal[qp.point[second]][None, :] - 2.0 * block
        k = int(np.argmin(distance))
        if distance.flat[k] < best:
            best = float(distance.flat[k])
            pair = (int(rows[k // distance.shape[1]]), int(second[k % distance.shape[1]]))
    return pair
