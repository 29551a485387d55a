"""Gradient projection with conjugate directions on the face.

Solves   every formulation.
Cost     a kernel row for each index that ever enters J, once; |J| n a step.
Stops    at the tolerance of the chosen criterion.
Step     Polak-Ribiere+ on the free variables J, restarted whenever the face changes. The bound variable p with the most
         negative multiplier joins when ``-u_p > factor * max |d_J|``: a factor of 1 jams, 2 to 10 do not;
         of these 2 takes the fewest steps.
Reference  Lopez and Dorronsoro, Rosen's projection method for SVM training, of which this is the conjugate form.
"""

from __future__ import annotations

import numpy as np

from svmcore._control import Control
from svmcore._types import DualQP, FloatArray, Raw
from svmcore.kernel.matrix import KernelMatrix
from svmcore.solvers._contract import Capabilities
from svmcore.solvers._course import Between, Course
from svmcore.solvers._projection import project

CAPABILITIES = Capabilities(summary="gradient projection with conjugate directions on the face, for tight tolerances")

OPTION_VALUES = {"factor": Between(0.0, np.inf)}


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
    return project(course, factor=float(factor), d_tol=0.0)
