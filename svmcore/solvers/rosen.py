"""Rosen's gradient projection, literal: closed-form projections and multipliers, exact dilation.

Solves   every formulation. (The paper: the hinge with an equality row.)
Cost     a kernel row for each index that ever enters J, once; |J| n a step.
Stops    at the tolerance of the chosen criterion.
Step     on the free variables J: d = v - mean of v over J (d_i of the paper); when d = 0 to tolerance the bound variable p
         with the most negative multiplier (4) joins and d is formula (5) on J + {p}. The dilation is exact, and ends at the
         first bound. J empty: the maximal violating pair stands for J. Zero curvature: on to the bound.
Figures  stats["face_changes"] next to the steps; stats["paper_evals"] without any reuse of rows, |J| n a step.
Reference  Lopez and Dorronsoro, Rosen's projection method for SVM training.
"""

from __future__ import annotations

from svmcore._control import Control
from svmcore._types import DualQP, FloatArray, Raw
from svmcore.kernel.matrix import KernelMatrix
from svmcore.solvers._contract import Capabilities
from svmcore.solvers._course import Course
from svmcore.solvers._projection import project

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
    return project(course, factor=0.0, d_tol=d_tol if d_tol > 0 else 0.5 * tol)
