"""Rosen's gradient projection, under two names: "rosen" is the literal method, "rosen-cg" takes conjugate directions.

Solves   every formulation. (The paper: the hinge with an equality row.)
Cost     a kernel row for each index that ever enters J, once; |J| n a step.
Stops    at the tolerance of the chosen criterion.
Literal  On the free variables J: d = v - mean of v over J (d_i of the paper). When d = 0 to tolerance the bound variable p
         with the most negative multiplier (4) joins and d is formula (5) on J + {p}. The dilation is exact, and ends at the
         first bound. J empty: the maximal violating pair stands for J. Zero curvature: on to the bound.
Conjugate  Polak-Ribiere+ on J, restarted whenever the face changes. The variable p joins when
         ``-u_p > factor * max |d_J|``: a factor of 1 jams, 2 to 10 do not; of these 2 takes the fewest steps.
Figures  stats["face_changes"] next to the steps; stats["paper_evals"] without any reuse of rows, |J| n a step.
Reference  Lopez and Dorronsoro, Rosen's projection method for SVM training.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore._control import Control
from svmcore._types import DualQP, FloatArray, Raw
from svmcore.kernel.matrix import KernelMatrix
from svmcore.solvers import _projection_jit
from svmcore.solvers._contract import Capabilities
from svmcore.solvers._course import Between, Course
from svmcore.solvers._projection_jit import Face
from svmcore.solvers._steps_jit import Limits

CAPABILITIES = Capabilities(
    summary="Rosen's gradient projection in closed form, steepest descent on the free variables"
)


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
    d_tol: float = 0.0,
    face_steps: bool = True,
) -> Raw:
    """Run the literal method. `d_tol`: when d counts as 0 (0.0: half of tol); `face_steps=False`: no rescue by a solve."""
    course = Course(qp, K, start, control=control, tol=tol, stopping=stopping, max_iter=max_iter, trace=trace)
    course.face_steps = face_steps
    return _project(course, factor=0.0, d_tol=d_tol if d_tol > 0 else 0.5 * tol)


class Conjugate:
    """What the registry finds under "rosen-cg"."""

    CAPABILITIES = Capabilities(
        summary="gradient projection with conjugate directions on the face, for tight tolerances"
    )
    OPTION_VALUES: dict[str, Any] = {"factor": Between(0.0, np.inf)}  # noqa: RUF012  (never mutated)

    @staticmethod
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
        factor: float = 2.0,
        face_steps: bool = True,
    ) -> Raw:
        """Run conjugate gradient projection. `face_steps=False`: no rescue by an exact solve on the face."""
        course = Course(qp, K, start, control=control, tol=tol, stopping=stopping, max_iter=max_iter, trace=trace)
        course.face_steps = face_steps
        return _project(course, factor=float(factor), d_tol=0.0)


def _project(course: Course, *, factor: float, d_tol: float) -> Raw:
    """Gradient projection; factor 0: literal, a new variable enters once d = 0 to d_tol."""
    n = course.duals.n + 2
    face = Face(np.zeros(n, np.int64), np.zeros(2, np.int64), np.zeros(n), np.zeros(n), np.zeros(n))
    previous = np.zeros(n)

    def work(limits: Limits) -> int:
        rows, progress = course.store.rows, course.progress
        return int(_projection_jit.rosen_slice(course.duals, rows, face, previous, progress, limits, factor, d_tol))

    status = course.follow(work)
    course.stats |= {
        "face_changes": int(course.ints[_projection_jit.FACES]),
        "paper_evals": float(course.floats[_projection_jit.PAPER]),
    }
    return course.raw(status)
