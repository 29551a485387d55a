"""NPA: the nearest point of two hulls.

Solves   classification with an equality row and unbounded variables: squared hinge and hard margin. The paper of SimpleSVM
         compares with this method.
Cost     a kernel row for each index that ever enters a hull's point. A step takes O(n).
Stops    at the tolerance of the chosen criterion. Passes go on until no point lags behind by eps, in units of the functional
         margin. Where the criterion does not hold then, eps is halved.
Step     passes of type I look at all points once. Those of type II look at the support until none lags. The new point of a
         hull is the best point of the triangle (u, x_k, u + a_m (x_k - x_m)). Then beta = 2 a / |z|^2.
Figures  stats["paper_evals"] counts |S| values for each point outside the support that is looked at, and for each row of a
         step.
Reference  Keerthi, Shevade, Bhattacharyya and Murthy (2000).
"""

from __future__ import annotations

import numpy as np

from svmcore._types import NONZERO, Raw, Status
from svmcore.solvers import _npa_jit, _steps_jit
from svmcore.solvers._contract import Capabilities, SolverTask
from svmcore.solvers._course import Course
from svmcore.solvers._npa_jit import Hulls

CAPABILITIES = Capabilities(
    summary="nearest point of two hulls, for squared hinge and hard margin with an intercept",
    no_equality=False,
    finite_bounds=False,
    twins=False,
    totals=False,
)

_NARROWEST = 1e-17  # the smallest eps that is tried: below it rounding decides who lags behind


class _NPAHulls:
    """The two hulls, and the way between them and the dual variables."""

    def __init__(self, course: Course) -> None:
        self.course = course
        n = course.duals.n
        self.hulls = Hulls(np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(4))

    def from_beta(self) -> None:
        """The hulls' points of the present dual point. A class without weight begins with its first point."""
        course, theta = self.course, self.hulls.theta
        beta = course.duals.beta
        theta[:] = beta
        for side in (course.duals.upper > 0, course.duals.lower < 0):
            total = np.abs(beta[side]).sum()
            if total > 0:
                theta[side] /= total
            else:
                first = int(np.argmax(side))
                theta[first] = 1.0 if course.duals.upper[first] > 0 else -1.0
        course.supply(course.qp.point[np.flatnonzero(theta)])
        _npa_jit.rebuild(course.duals, course.store.rows, self.hulls)

    def to_beta(self) -> None:
        """The dual point of the present hulls, and its residual."""
        duals = self.course.duals
        uu, vv, uv, _ = self.hulls.numbers
        scale = 2.0 / max(uu + vv - 2.0 * uv, NONZERO)
        theta = self.hulls.theta
        positive, negative = theta[theta > 0].sum(), -theta[theta < 0].sum()
        duals.beta[:] = scale * np.where(theta > 0, theta / positive, theta / negative)
        duals.v[:] = duals.c - scale * (self.hulls.U - self.hulls.V)


def run(task: SolverTask, *, eps: float = 0.0, face_steps: bool = True) -> Raw:
    """Run NPA. `eps` is the tolerance of the passes, as published. 0.0 stands for half of tol."""
    course = Course(task)
    course.face_steps = face_steps
    if not (np.any(task.qp.upper > 0) and np.any(task.qp.lower < 0)):
        return course.raw(Status.CONVERGED)
    state = _NPAHulls(course)
    state.from_beta()
    eps = eps if eps > 0 else 0.5 * task.tol
    floats, ints = course.floats, course.ints
    status = course.outside()
    while status is None:
        limits = course.limits()
        reason = int(_npa_jit.npa_slice(course.duals, course.store.rows, state.hulls, course.progress, limits, eps))
        if reason in (_steps_jit.NEED_ROW, _steps_jit.TRACE_FULL):
            _, status = course.common(reason)
            continue
        if reason in (_steps_jit.SWEEP_DONE, _steps_jit.AT_TOLERANCE) and "paper_evals" not in course.stats:
            quiet = ints[_steps_jit.CHANGED] == 0
            if quiet or reason == _steps_jit.AT_TOLERANCE:
                support = int(np.count_nonzero(state.hulls.theta))
                course.stats |= {"paper_evals": float(floats[_npa_jit.PAPER]), "members": support}
        if reason != _steps_jit.NO_BOUND:
            state.to_beta()
        if reason == _steps_jit.SWEEP_DONE:
            if ints[_steps_jit.CHANGED] == 0:
                eps *= 0.5
                status = course.settle(True) if eps < _NARROWEST else None
            ints[_steps_jit.POSITION] = ints[_steps_jit.CHANGED] = 0
            if status is None and task.stopping != "kkt":
                status = course.checked()
        else:
            ints[_steps_jit.POSITION] = 0 if reason == _steps_jit.AT_TOLERANCE else ints[_steps_jit.POSITION]
            _, status = course.common(reason)
        if status is None and (reason == _steps_jit.AT_TOLERANCE or "face_steps" in course.stats):
            course.stats.pop("face_steps", None)
            state.from_beta()
    course.stats.setdefault("paper_evals", float(floats[_npa_jit.PAPER]))
    return course.raw(status)
