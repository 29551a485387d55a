"""Decomposition: working sets of fixed size q by steepest feasible direction.

Solves   every formulation.
Cost     the q kernel rows of each working set, unless they are stored; q n operations, and a small problem of q variables.
Stops    at the tolerance of the chosen criterion. An iteration is one working set.
Choice   that of SVM-light. Of the variables that can grow, it takes the q / 2 of largest residual. Of those that can shrink,
         it takes the q / 2 of smallest residual. With q = 2 the step has a closed form, and the run is that of the maximal
         violating pair. Without an equality row the q largest pulls are taken.
Reference  Cristianini and Shawe-Taylor (2000), section 7.4, table 7.2; Joachims (1999).
"""

from __future__ import annotations

from svmcore._types import Raw
from svmcore.solvers import _chunk_jit
from svmcore.solvers._contract import Capabilities, SolverTask
from svmcore.solvers._course import Course, WholeNumber
from svmcore.solvers._steps_jit import Limits

CAPABILITIES = Capabilities(summary="decomposition with working sets of fixed even size q, chosen as SVM-light does")

OPTION_VALUES = {"q": WholeNumber(2, even=True)}


def run(task: SolverTask, *, q: int = 10, face_steps: bool = True) -> Raw:
    """Run decomposition with working sets of `q` variables. q is even."""
    course = Course(task)
    course.face_steps = face_steps
    q = int(min(q, max(2, 2 * ((len(task.start) + 1) // 2))))
    room = _chunk_jit.new_small(course.duals, q)

    def work(limits: Limits) -> int:
        rows, progress = course.store.rows, course.progress
        return int(_chunk_jit.decompose_slice(course.duals, rows, *room, progress, limits, q))

    status = course.follow(work)
    course.stats["paper_evals"] = float(course.n_iter) * q * len(task.start)
    return course.raw(status)
