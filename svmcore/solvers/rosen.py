"""Rosen's gradient projection, under two names. "rosen" is the method as published, "rosen-cg" takes conjugate directions.

Solves   every formulation. The paper has the hinge with an equality row.
Cost     a kernel row, once, for each index that ever enters J, and |J| n a step.
Stops    at the tolerance of the chosen criterion; or with ``ends="multipliers"`` as the paper does: d = 0, and no multiplier
         is below -tol / 2. That asks nothing of the free variables, so such a run may end far from its tolerance.
Literal  The free variables are J. The direction is d = v - mean of v over J, which the paper calls d_i. d counts as 0 when
         the sum of |d_i| is at most `d_tol`. Then the variable p at a bound with the most negative multiplier (4) joins, and
         d is formula (5) on J + {p}. `enters` has more join at once. The step is exact, and ends at the first bound. An empty
         J is replaced by the maximal violating pair. Without curvature the step goes on to the bound.
Conjugate  Polak-Ribiere+ on J, restarted whenever the face changes. The variable p joins when
         ``-u_p > factor * max |d_J|``. A factor of 1 jams. Factors of 2 to 10 do not, and 2 takes the fewest steps.
Figures  stats["face_changes"], and stats["paper_evals"]: |J| n a step, as if no row were ever used again.
Reference  Lopez and Dorronsoro, Rosen's projection method for SVM training.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from svmcore._types import Raw, Status
from svmcore.solvers import _projection_jit
from svmcore.solvers._contract import Capabilities, SolverTask
from svmcore.solvers._course import Between, Course
from svmcore.solvers._projection_jit import Face, Rule
from svmcore.solvers._steps_jit import Limits

CAPABILITIES = Capabilities(
    summary="Rosen's gradient projection in closed form, steepest descent on the free variables"
)
ENTERS = ("worst", "pair", "sides")
"""What joins J: the worst multiplier's variable p; p and the maximal violating pair; or the worst of either side."""
OPTION_VALUES: dict[str, Any] = {"d_tol": Between(0.0, np.inf), "enters": ENTERS, "ends": ("kkt", "multipliers")}
D_TOL = 1.5
"""The paper does not say when d counts as 0. Here its printed counts are met best, and smaller values take more steps."""


def run(
    task: SolverTask, *, d_tol: float = D_TOL, enters: str = "worst", ends: str = "kkt", face_steps: bool = True
) -> Raw:
    """Run the method as published. With `face_steps=False` no exact solve on the face rescues it."""
    published = ends == "multipliers"
    kind = _PublishedCourse if published else Course
    course = kind(task)
    course.face_steps = face_steps
    rule = Rule(0.0, float(d_tol), ENTERS.index(enters), 0.5 * task.tol if published else 0.0, published)
    return _project(course, rule)


class _PublishedCourse(Course):
    """A run that ends by the multipliers alone."""

    _claimed = -1  # the iteration at which it was last said that d = 0 and no multiplier is negative

    def settle(self, stuck: bool) -> Status | None:
        """Decide by a fresh residual, as every run does. Said again with that residual, it is true, and ends the run."""
        if not stuck and self._claimed == self.n_iter:
            return Status.PUBLISHED
        self._claimed = -1 if stuck else self.n_iter
        return super().settle(stuck)


class Conjugate:
    """The solver that the registry finds under "rosen-cg"."""

    CAPABILITIES = Capabilities(
        summary="gradient projection with conjugate directions on the face, for tight tolerances"
    )
    OPTION_VALUES: dict[str, Any] = {"factor": Between(0.0, np.inf)}  # noqa: RUF012  (never mutated)

    @staticmethod
    def run(task: SolverTask, *, factor: float = 2.0, face_steps: bool = True) -> Raw:
        """Run conjugate gradient projection. With `face_steps=False` no exact solve on the face rescues it."""
        course = Course(task)
        course.face_steps = face_steps
        return _project(course, Rule(float(factor), 0.0, ENTERS.index("worst"), 0.0, False))


def _project(course: Course, rule: Rule) -> Raw:
    """Run gradient projection."""
    n = course.duals.n + 2
    face = Face(np.zeros(n, np.int64), np.zeros(1, np.int64), np.zeros(n), np.zeros(n), np.zeros(n))
    previous = np.zeros(n)

    def work(limits: Limits) -> int:
        rows, progress = course.store.rows, course.progress
        return int(_projection_jit.rosen_slice(course.duals, rows, face, previous, progress, limits, rule))

    status = course.follow(work)
    course.stats |= {
        "face_changes": int(course.ints[_projection_jit.FACES]),
        "paper_evals": float(course.floats[_projection_jit.PAPER]),
    }
    return course.raw(status)
