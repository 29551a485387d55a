"""SimpleSVM: an active set S with an updated Cholesky factor. Violators enter it, and members that block them leave.

Solves   every formulation: the 2-norm of the paper, the hard margin, and the hinge, whose steps end at either bound.
Cost     |S|^2 for each variable that enters or leaves, and a kernel row for each index that was ever in S. The factor has
         room for more members than S has, so it takes 8 |S|^2 bytes or a few times as many.
Stops    at the tolerance of the chosen criterion. On its active set the answer is exact up to rounding.
Scans    None: pair steps to a loose tolerance, LAPACK's Cholesky factor of the free variables, then the largest violators.
         "max": the largest violator, from the closest pair on.
         "paper": as published. A cyclic scan in the order of the file takes the next violator (y f < 1 - tol / 2).
         stats["paper_evals"] counts kernel values as if none were used again: |S| for a test, |S| + 1 for a variable that
         enters, and the same again after one that leaves.
Reference  Vishwanathan and Murty (2002); Cauwenberghs and Poggio (2001) for the updates.
"""

from __future__ import annotations

import numpy as np

from svmcore._types import Raw, Status
from svmcore.solvers import _active_jit, _steps_jit
from svmcore.solvers._active import ActiveSet, pair_slice
from svmcore.solvers._contract import Capabilities, SolverTask
from svmcore.solvers._course import Course, Pair

CAPABILITIES = Capabilities(summary="SimpleSVM: a growing and pruned active set on a Cholesky factor, exact at its end")

OPTION_VALUES = {"scan": ("max", "paper"), "pair": Pair()}

_LOOSE = 5e-2  # pair steps end at this share of the first violation, and the active set takes over


def run(task: SolverTask, *, scan: str | None = None, pair: tuple[int, int] | None = None) -> Raw:
    """Run SimpleSVM. `pair` are the two points to begin with, in place of the closest pair."""
    course = Course(task)
    course.check_every = 100
    ints = course.ints
    simple = ActiveSet(course)
    status = None
    if scan is None:
        status = _warm_up(course)
    if status is None and (task.start.any() or scan is None):
        simple.load()
    elif status is None and task.qp.equality:
        simple.begin_with_pair(pair)
    sequence = np.arange(len(task.start))

    def work(limits: _steps_jit.Limits) -> int:
        duals, rows, active = course.duals, course.store.rows, simple.active
        if scan == "paper" and not course.stats.get("scanned"):
            eps = 0.5 * limits.tol if task.qp.equality else limits.tol
            reason = int(_active_jit.paper_slice(duals, rows, active, sequence, course.progress, limits, eps))
            if reason in (_steps_jit.AT_TOLERANCE, _steps_jit.STUCK, _steps_jit.CHECK_DUE):
                course.refresh()
                if reason != _steps_jit.CHECK_DUE:
                    course.stats |= {
                        "scanned": True,
                        "adds": int(ints[_active_jit.ADDS]),
                        "members": int(active.sizes[0]),
                    }
            return reason
        return int(_active_jit.max_slice(duals, rows, active, course.progress, limits))

    reasons = (_steps_jit.AT_TOLERANCE, _steps_jit.STUCK)
    status = course.outside() if status is None else status
    while status is None:
        reason = work(course.limits())
        if reason == _steps_jit.NEED_ROOM:
            simple.grow()
        elif reason in reasons:
            status = simple.rescue()
        else:
            _, status = course.common(reason)
            if "face_steps" in course.stats and status is None:
                del course.stats["face_steps"]
                simple.load()
    course.stats |= {
        "adds": int(ints[_active_jit.ADDS]), "drops": int(ints[_active_jit.DROPS]),
        "members": int(simple.active.sizes[0]), "paper_evals": float(course.floats[_active_jit.PAPER]),
    }  # fmt: skip
    return course.raw(status)


def _warm_up(course: Course) -> Status | None:
    """Take pair steps to a loose tolerance, or until they crawl. Returns a status only where the run ends here."""
    status = course.outside()
    first = float(_steps_jit.worst_pair(course.duals)[2])
    limits = course.limits(max(course.limits().tol, _LOOSE * first))
    while status is None:
        reason = pair_slice(course, limits)
        if reason in (_steps_jit.AT_TOLERANCE, _steps_jit.STUCK):
            return None
        _, status = course.common(reason)
    return None if status is Status.LIMITED else status
