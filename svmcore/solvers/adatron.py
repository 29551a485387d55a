"""Kernel-Adatron (Hildreth's method) and its over-relaxed form SOR: one variable at a time, no bias.

Solves   the dual without equality row: fixed bias, or the embedding K + tau^2; finite or infinite boxes.
Cost     a kernel row of n values for each variable that ever moves; O(n) an update.
Stops    at the tolerance of the chosen criterion, looked at after every sweep.
Step     beta_t += omega v_t / (K_tt + D_t), clipped to its box; any omega in (0, 2) converges, linearly.
Order    "sequential"; "random": a new permutation every sweep; "violation": the largest residual first;
         "two-stage": the non-zero variables in ascending order of size until they make no progress, then the others.
Reference  Cristianini and Shawe-Taylor (2000), section 7.2, table 7.1, remarks 7.4 to 7.10.
"""

from __future__ import annotations

import numpy as np

from svmcore._control import Control
from svmcore._types import DualQP, FloatArray, IntArray, Raw, Status
from svmcore.kernel.matrix import KernelMatrix
from svmcore.solvers import _steps_jit
from svmcore.solvers._contract import Capabilities
from svmcore.solvers._course import Between, Course

CAPABILITIES = Capabilities(
    summary="kernel-Adatron, Hildreth's coordinate ascent and SOR, for problems without an equality row",
    equality=False,
)

ORDERS = ("sequential", "random", "violation", "two-stage")
OPTION_VALUES = {"order": ORDERS, "omega": Between(0.0, 2.0)}

_UPDATES = 2000  # updates between two visits to Python
_PROGRESS = 1e-2  # a sweep of the first stage that gains less than this share of the first one's gain ends the stage


class _Orders:
    """Which variables the next sweep visits."""

    def __init__(self, course: Course, order: str, seed: int) -> None:
        self.course, self.order = course, order
        self.random = np.random.default_rng(seed)
        self.all = np.arange(course.duals.n)
        self.repeats = _UPDATES // max(len(self.all), 1) + 1
        self.inner = False
        self.gain = self.objective = np.inf

    def next(self) -> IntArray:
        """One sweep a row; several at a time where the next one does not depend on the last."""
        if self.order == "two-stage":
            return self._two_stage()[None, :]
        several = np.tile(self.all, (self.repeats, 1))
        return self.random.permuted(several, axis=1) if self.order == "random" else several

    def _two_stage(self) -> IntArray:
        beta = np.abs(self.course.duals.beta)
        support = np.flatnonzero(beta)
        now = float(self.course.floats[_steps_jit.OBJECTIVE])
        gained, self.objective = self.objective - now, now
        if not len(support) or len(support) == len(beta):
            return self.all
        if self.inner and gained <= _PROGRESS * self.gain:
            self.inner = False
            return np.flatnonzero(beta == 0.0)
        self.gain = max(self.gain, gained) if self.inner and np.isfinite(self.gain) else gained
        self.inner = True
        return support[np.argsort(beta[support], kind="stable")]


def run(
    qp: DualQP,
    K: KernelMatrix,
    *,
    control: Control,
    tol: float,
    stopping: str,
    max_iter: int,
    start: FloatArray,
    seed: int,
    trace: bool,
    order: str = "sequential",
    omega: float = 1.0,
    face_steps: bool = True,
) -> Raw:
    """Run coordinate ascent. `face_steps=False` leaves single steps alone even where they no longer help."""
    course = Course(qp, K, start, control=control, tol=tol, stopping=stopping, max_iter=max_iter, trace=trace)
    course.face_steps = face_steps
    orders = _Orders(course, order, seed)
    ints = course.ints
    current = orders.next()
    omega = float(omega)
    idle = 0

    def sweep_done(reason: int) -> Status | None:
        nonlocal current, idle
        quiet = ints[_steps_jit.CHANGED] == 0
        idle = idle + 1 if quiet else 0
        ints[_steps_jit.CHANGED] = ints[_steps_jit.POSITION] = 0
        current = orders.next()
        if idle > 2:
            idle = 0
            return course.settle(True)
        if stopping != "kkt":
            return course.checked()
        return None

    def work(limits: _steps_jit.Limits) -> int:
        return int(
            _steps_jit.sweep_slice(
                course.duals, course.store.rows, current, course.progress, omega, order == "violation", limits
            )
        )

    status = course.follow(work, sweep_done)
    sweeps = int(ints[_steps_jit.SWEEPS])
    course.stats |= {"sweeps": sweeps, "paper_evals": float(sweeps) * len(start) ** 2}
    return course.raw(status)
