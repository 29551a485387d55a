"""What may be set of the published path algorithm: a table, which the command line reads, too."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from svmcore._errors import InputError

INTERIOR = "interior"
SOLUTIONS = ("vertex", INTERIOR)


class PublishedOptions(NamedTuple):
    """The input of the published path algorithm besides the data. Letters in brackets are those of the paper.

    rank_tol : rank of the system: values above this, times its size and the largest, count (eps_svd).
    start_tol, backup_tol : tolerance of SMO in the initial and in the backup routine (eps_smo), relative to lambda.
    check : whether the KKT conditions (56) are checked after every step.
    kkt_tol : violation above which the check calls the backup routine (eps_kkt).
    gap_tol : relative duality gap above which the check calls it as well. The paper checks (56) alone: `math.inf`.
    rate_tol, step_tol : what the special-event routine takes for a rate and for a blocked step (tau, tau_2).
    back : the backup routine goes on at (1 - back) lambda at the latest (gamma).
    most_blocked : steps without progress, and calls in a row of the special-event routine, before the next remedy (l).
    increments : update residuals by (39) instead of computing them by (16).
    lp : which of many solutions of a linear program is taken: a "vertex" of them, or one from their "interior".
    refine : correct values on the margin before each step, and what SMO leaves at its tolerance. The paper does not.
    """

    rank_tol: float = 1e-14
    start_tol: float = 1e-11
    backup_tol: float = 1e-11
    check: bool = True
    kkt_tol: float = 1e-7
    gap_tol: float = 1e-8
    rate_tol: float = 1e-4
    step_tol: float = 1e-8
    back: float = 0.01
    most_blocked: int = 50
    increments: bool = False
    lp: Literal["vertex", "interior"] = "vertex"
    refine: bool = True


def checked_options(published: Any, mode: str) -> PublishedOptions:
    """The options of a published mode. The fast tracker takes none."""
    from svmcore.base.highs import highspy  # the command line reads the table above without these
    from svmcore.problem import border

    if published is None:
        return PublishedOptions()
    if not isinstance(published, PublishedOptions):
        raise InputError(
            f"published={published!r} is no PublishedOptions; give svmcore.PublishedOptions(check=False, ...)"
        )
    if mode == "auto":
        raise InputError('published= is for factorization="svd", "qr" or "update"; "auto" takes none of its options')
    for name in ("rank_tol", "start_tol", "backup_tol", "kkt_tol", "rate_tol", "step_tol"):
        border.number(name, getattr(published, name), low=0.0, strict=True)
    border.number("gap_tol", published.gap_tol, low=0.0, strict=True, infinite=True)
    border.number("back", published.back, low=0.0, high=0.9, strict=True)
    border.integer("most_blocked", published.most_blocked, low=1)
    if border.choice("lp", published.lp, SOLUTIONS) == INTERIOR and highspy() is None:
        raise InputError(
            "lp='interior' needs highspy, since scipy's HiGHS ends at a vertex: pip install highspy, or leave lp out"
        )
    return published
