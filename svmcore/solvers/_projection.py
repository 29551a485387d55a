"""The run of both gradient projections."""

from __future__ import annotations

import numpy as np

from svmcore._types import Raw
from svmcore.solvers import _steps_jit
from svmcore.solvers._course import Course
from svmcore.solvers._steps_jit import Face, Limits


def project(course: Course, *, factor: float, d_tol: float) -> Raw:
    """Gradient projection; factor 0: literal, a new variable enters once d = 0 to d_tol."""
    n = course.duals.n + 2
    face = Face(np.zeros(n, np.int64), np.zeros(2, np.int64), np.zeros(n), np.zeros(n), np.zeros(n))
    previous = np.zeros(n)

    def work(limits: Limits) -> int:
        rows, progress = course.store.rows, course.progress
        return int(_steps_jit.rosen_slice(course.duals, rows, face, previous, progress, limits, factor, d_tol))

    status = course.follow(work)
    course.stats |= {
        "face_changes": int(course.ints[_steps_jit.FACES]),
        "paper_evals": float(course.floats[_steps_jit.PAPER]),
    }
    return course.raw(status)
