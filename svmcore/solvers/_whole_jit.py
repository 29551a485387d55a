"""A problem of one working set, solved and measured in one call: loops of the block solver, and measures of `_near_jit`."""

from __future__ import annotations

from svmcore._jit import jit
from svmcore.solvers._block_jit import INNER_TOL, NOISE, RELAX, TAU, pair_steps, repair_sum, start_masks
from svmcore.solvers._near_jit import extremes_of, finish, residuals


@jit
def _is_zero(beta):
    """Whether there is no coefficient."""
    for t in range(beta.shape[0]):
        if beta[t] != 0.0:
            return False
    return True


@jit
def solve(shape, points, one, spans, packed, work, lines, total, tol, most_steps, most_rounds):
    """Pair steps in float32 and residuals in float64, in turn, until the violation is at most `tol`.

    Returns (steps, rounds, residuals in float64, violation, bias, objective, gap). If the violation is above the tolerance,
    another solver is needed. A start of zeros has the residual c, which must be there. In place: one, and the room.
    """
    steps, rounds, known, error, every, objective, gap = 0, 0, 0, 0.0, True, 0.0, 0.0
    fresh = not _is_zero(work.beta)  # the residual has not been measured
    high, low, bias = extremes_of(one, spans)
    while True:
        if fresh or high - low <= tol:
            count, support, high, low, bias, objective, gap = finish(
                shape, points, one, spans, packed, high, low, bias, error, every
            )
            known += count * support
        violation = max(high - low, 0.0)
        if violation <= tol or rounds >= most_rounds or steps >= most_steps:
            break
        shift = 0.5 * (high + low)
        for t in range(work.beta.shape[0]):
            work.values[t] = one.v[t] - shift
        start_masks(work)
        stop = max(INNER_TOL * tol, NOISE * violation)
        taken, _, bits = pair_steps(work, stop, RELAX, TAU, most_steps - steps, shape, lines)
        repair_sum(work, total)
        steps += taken
        rounds = rounds + 1 if bits == 0 and taken > 0 else most_rounds
        error = 2.0 * points.error * residuals(shape, one, spans, work, lines, packed)
        high, low, bias = extremes_of(one, spans)
        fresh, every = True, False
    return steps, rounds, known, violation, bias, objective, gap
