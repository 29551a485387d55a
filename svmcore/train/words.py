"""What is said of an answer that is not what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from svmcore._errors import ConvergenceWarning, warn
from svmcore._types import KernelKind, Status
from svmcore.models.solution import Solution
from svmcore.problem.advice import LARGE_GAP, MEANS_LITTLE
from svmcore.problem.scales import warn_of_scales
from svmcore.solvers import AUTO
from svmcore.train.forms import Problem

if TYPE_CHECKING:
    from svmcore.train.solve import Measured, Run

REMEDIES = {
    Status.MAX_ITER: "raise max_iter (-1: no limit) or tol",
    Status.TIME_LIMIT: "raise time_limit or tol",
    Status.INTERRUPTED: "pass alpha0=solution.alpha to go on from it",
    Status.CALLBACK: "pass alpha0=solution.alpha to go on from it",
    Status.PRECISION: "raise tol, scale the features, or lower C",
    Status.UNBOUNDED: "use a finite C, or loss='squared_hinge' with a finite C",
    Status.LIMITED: "choose another solver",
    Status.PUBLISHED: "leave ends='multipliers' out for an answer at the tolerance",
    Status.STATIONARY: "use a positive semi-definite kernel (rbf, linear, poly with coef0 >= 0) when that matters",
}
_OWN_LIMITS = {
    "smo": (
        "max_passes idle sweeps, and without progress the work of an exact method",
        "raise max_passes, or set it to 0, which is no limit; or raise tol, lower C, or choose another solver",
    ),
    "small": (
        "2,000 variables, and steps enough for most problems of this size",
        "use solver='auto', which goes on from there",
    ),
    "interior": (
        "as many steps, or crossovers to an exact answer, as it makes, and 64 MB for sparse points, which it makes dense",
        "use solver='auto', which goes on from there",
    ),
}
"""The limit that a solver has of its own, by name, and what to do about it."""


def speak(solution: Solution, measured: Measured, problem: Problem, run: Run, noise: float = 0.0) -> None:
    """Warn when the answer is not what was asked for, or when meeting the tolerance means little.

    `noise` is what rounding does to a violation, where precision ended the run.
    """
    status, relative_gap = solution.status, measured.relative_gap
    if status is not Status.CONVERGED and status in REMEDIES:
        linear = problem.spec.kernel.kind == KernelKind.LINEAR
        starts = solution.nu is None and not (run.solver == AUTO and linear)
        _say_what_is_lost(solution, measured, run, noise, starts=starts)
    elif run.stopping != "gap" and abs(relative_gap) > LARGE_GAP:  # below zero: rounding larger than the objective
        warn(MEANS_LITTLE, ConvergenceWarning)
    slow = not status.ok or (solution.solver == "smo" and solution.n_iter > 100 * len(problem.qp.c))
    slow = slow and status is not Status.UNBOUNDED
    names, look = problem.columns.names, problem.look
    warn_of_scales(problem.X, problem.spec.kernel, problem.by_scale, slow=slow, names=names, look=look)


def _say_what_is_lost(solution: Solution, measured: Measured, run: Run, noise: float, *, starts: bool) -> None:
    """Warn of a run that ended without what was asked for. `starts`: whether a point to start from counts."""
    status, relative_gap = solution.status, measured.relative_gap
    about = "about " if measured.estimated else ""
    lost = (
        f"KKT violation {about}{solution.kkt_violation:.1e} (tol {run.tol:g}), relative gap {about}{relative_gap:.1e}"
    )
    if measured.estimated:
        lost += " by the solver's own numbers, since a certificate takes long"
    if noise > run.tol:
        lost += f"; rounding alone makes violations of about {noise:.1e}"
    if status is Status.LIMITED and solution.solver in _OWN_LIMITS:
        limit, remedy = _OWN_LIMITS[solution.solver]
        warn(f"{status}: {lost}. The limit of {solution.solver!r} is {limit}. Remedy: {remedy}.", ConvergenceWarning)
    elif not starts and "alpha0" in REMEDIES[status]:
        warn(f"{status}: {lost}.", ConvergenceWarning)
    else:
        warn(f"{status}: {lost}. Remedy: {REMEDIES[status]}.", ConvergenceWarning)
