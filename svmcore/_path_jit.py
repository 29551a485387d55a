"""The compiled steps of the regularization path: the parametric box problem followed event by event.

The problem, sign-free (see `_types`), with a linear term that moves with a parameter t:

    minimise  1/2 b'K b - l(t)'b   over  lower <= b <= upper  [ and  sum b = 0 ],     l(t) = fixed + base + t slope

Here `base` is a shift that is to be nothing: what rounding has done to the residuals, and ties that were spread.
Written ``r = l(t) - K b - bias`` (no bias without the equality row), a point is optimal when ``r <= 0`` where b is at
its lower end (side LOW), ``r >= 0`` at the upper end (UP) and ``r = 0`` in between (ELBOW). Between two events b, bias
and r are linear in t. The path of a classifier has slope = labels and t = lambda (b = lambda y alpha, bias = lambda
intercept), and `path/problem` lists the others; removing an error has slope = the error and t from 1 to 0. All of them run
through the same `follow`.

A point that depends on the elbow (`path/elbow_jit`) is exchanged along its null vector; it needs no linear program,
because that vector moves no other residual.

No residual is ever dropped: whatever is set to zero is booked in `base`, so that the state stays exactly optimal for a
problem whose distance from the true one is known.

Reference: path.md on Ong, Shao and Yang. Steps (S1)-(S4) of the paper are not needed here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._jit import jit
from svmcore._types import FloatArray
from svmcore.path.elbow_jit import (
    BATCH,
    BATCHED,
    BIAS,
    BOX,
    BUDGET,
    DONE,
    ELBOW,
    EXCHANGE,
    FLUSH,
    GIVE,
    GROW,
    LEAST_PIVOT,
    LOW,
    MARGIN,
    N_BATCH,
    N_EVENT,
    N_EXCHANGE,
    N_FLIP,
    N_PERTURB,
    N_STEP,
    N_ZERO,
    N_ZERO_MAX,
    NOISE,
    REFRESH,
    ROWS,
    SINCE,
    STALLED,
    T_REFRESH,
    UP,
    WANT,
    ZERO_RUN,
    M,
    T,
    add_rows,
    append,
    delete,
    direction,
    first_box,
    look,
    null_change,
    pivot_of,
    size_at,
    solve_upper,
)  # fmt: skip
from svmcore.path.log_jit import EVENTS, KNOTS, VALUES, write_event, write_knot
from svmcore.simd.vector import BIG, fmin

DEPENDENT = 1e-14  # a pivot below this times k_ii + bump may be that of a dependent point
TIE = 1e-12  # events closer than this (times t) are simultaneous; 1e-10 already costs digits
PERTURB_AFTER = 40  # zero steps in a row before ties are spread
SPREAD = 1e-10  # times the size of the linear term: how far apart ties are spread
NEAR_TIE = 1e-7  # ties within this many times that size, or share of a box, are spread
SAFE_PIVOT = 1e-9  # of points that join together, each is at least so independent of those before


class Options(NamedTuple):
    """Limits of one call. `scale` is what ties are measured against (0: the present size of the linear term)."""

    t_end: float
    rate_tol: float
    scale: float
    stretch: float
    refresh: int
    budget: int
    batch: bool
    record: bool
    n_events_max: int
    lower: FloatArray  # the boxes as they are without spread ties
    upper: FloatArray


# ---- direction, rates, next event --------------------------------------------------------------------------------


@jit
def blocking_steps(S, W, rate_tol, still, scale):
    """Step (decrease of t) at which each moving elbow value meets its box and each residual meets zero. In place: W.step.

    These are the ratios (47)-(49) with h = -delta lambda, `BIG` where nothing blocks. Returns the smallest, and the
    largest step at which all that blocks before is a tie: within TIE * scale in t and in every residual, within GIVE
    in every box. (Measured in t alone, fast values of a near-singular elbow would leave their boxes unseen.)
    """
    least = BIG
    loose = BIG
    slack = TIE * scale
    for i in range(S.side.shape[0]):
        up = S.side[i] == UP
        toward = 0.0 if S.side[i] == ELBOW else (-W.rate[i] if up else W.rate[i])
        blocks = toward > rate_tol
        speed = toward if blocks else 1.0
        away = S.resid[i] if up else -S.resid[i]
        h = away / speed if blocks else BIG
        W.step[i] = h
        least = fmin(least, h)
        loose = fmin(loose, h + slack / speed)
    for k in range(S.cnt[M]):
        i = S.elbow[k]
        dk = W.d[k]
        h = BIG
        if abs(dk) > still:
            h = (S.beta[i] - (S.lower[i] if dk > 0.0 else S.upper[i])) / dk
            least = min(least, h)
            loose = min(loose, h + GIVE * (S.upper[i] - S.lower[i]) / abs(dk))
        W.step[i] = h
    least = max(least, 0.0)
    return least, max(least, min(loose, least + slack))


@jit
def choose(P, S, W, limit):
    """Among the events within `limit` the one with the largest rate, which is the safest pivot.

    Returns (point, its place on the elbow or -1); the point is -1 when there is none.
    """
    best = -1.0
    point = -1
    place = -1
    for k in range(S.cnt[M]):
        i = S.elbow[k]
        if W.step[i] <= limit and abs(W.d[k]) > best:
            best = abs(W.d[k])
            point = i
            place = k
    for i in range(S.side.shape[0]):
        if W.step[i] <= limit and S.side[i] != ELBOW:
            speed = abs(W.rate[i]) / np.sqrt(P.diagonal[i] + P.bump + 1e-300)
            if speed > best:
                best = speed
                point = i
                place = -1
    return point, place


@jit
def advance(S, W, h, d0):
    """Decrease t by h along the direction. In place: S. Elbow residuals stay as bookkept: zero."""
    for k in range(S.cnt[M]):
        i = S.elbow[k]
        S.beta[i] = min(max(S.beta[i] - h * W.d[k], S.lower[i]), S.upper[i])
    S.num[BIAS] -= h * d0
    for i in range(S.side.shape[0]):
        S.resid[i] += h * W.rate[i]
    for k in range(S.cnt[M]):
        S.resid[S.elbow[k]] = 0.0
    S.num[T] -= h


# ---- log ---------------------------------------------------------------------------------------------------------


@jit
def log_event(S, L, i, old, new, cause):
    """Count an event, and append it (a polish, whose log nobody reads, may run out of room). In place: L, S.cnt."""
    S.cnt[N_EVENT] += 1
    if L.end[EVENTS] < L.event_t.shape[0]:
        write_event(L, S.num[T], i, old, new, cause)


@jit
def log_knot(S, L):
    """Append a knot: t, bias and the elbow with its values, after all events logged so far. In place: L."""
    v = L.end[VALUES]
    m = S.cnt[M]
    for j in range(m):
        i = S.elbow[j]
        L.index[v + j] = i
        L.value[v + j] = S.beta[i]
    write_knot(L, S.num[T], S.num[BIAS], m)


@jit
def correct_knot(S, L):
    """The knot that was just written at t, once more, with what has been corrected since. In place: L.

    All values may have moved, those of points that entered after it as well: it now stands behind their events.
    """
    k = L.end[KNOTS] - 1
    if k >= 0 and L.knot[k, 0] == S.num[T]:
        L.end[KNOTS] = k
        L.end[VALUES] -= L.knot_at[k, 1]
        log_knot(S, L)


@jit
def log_full(S, L):
    """True when the log might not hold what one more step writes."""
    n = S.side.shape[0]
    return (
        L.end[EVENTS] + n + 4 > L.event_t.shape[0]
        or L.end[KNOTS] + 3 > L.knot.shape[0]
        or L.end[VALUES] + 3 * S.cnt[M] + 8 > L.value.shape[0]
    )


# ---- events ------------------------------------------------------------------------------------------------------


@jit
def to_bound(S, i, upper):
    """Set point i exactly at a bound. In place: S. Returns the new side."""
    side = UP if upper else LOW
    S.beta[i] = S.upper[i] if upper else S.lower[i]
    S.side[i] = side
    S.resid[i] = 0.0
    return side


@jit
def enter(P, S, i, x, pivot):
    """Point i joins the elbow; what is left of its residual goes into `base`. In place: S."""
    append(P, S, i, x, pivot)
    S.base[i] -= S.resid[i]
    S.resid[i] = 0.0


@jit
def exchange(P, S, W, L, i, record):
    """Point i depends on the elbow: move along its null vector to the first box. In place: S, W, L.

    With n the null vector, sum n_k r_k keeps its value times t on all of the elbow and i, so the residual of the point
    that leaves moves to its proper side. Either i crosses its own box (a flip) or a point j leaves and i takes its
    place; n_j != 0 keeps the factor non-singular. Returns False, nothing changed, when i only nearly depends.
    """
    m = S.cnt[M]
    x = W.x
    solve_upper(S.factor, m, x)
    old = S.side[i]
    sign = -1.0 if old == UP else 1.0
    far, place = first_box(S, x, sign, S.upper[i] - S.lower[i])
    if not null_change(P, S, W, i, sign * far):
        return False
    S.cnt[N_EXCHANGE] += 1
    for k in range(m):
        j = S.elbow[k]
        S.beta[j] = min(max(S.beta[j] + W.d[k], S.lower[j]), S.upper[j])
    S.beta[i] += sign * far
    if place < 0:
        S.cnt[N_FLIP] += 1
        kept = S.resid[i]
        side = to_bound(S, i, old == LOW)
        S.base[i] -= kept
        log_event(S, L, i, old, side, EXCHANGE)
    else:
        j = S.elbow[place]
        side = to_bound(S, j, -sign * x[place] > 0.0)
        delete(S, place)
        log_event(S, L, j, ELBOW, side, EXCHANGE)
        enter(P, S, i, x, max(pivot_of(P, S, i, x), LEAST_PIVOT))
        log_event(S, L, i, old, ELBOW, EXCHANGE)
    if far > 0.0 and record:
        log_knot(S, L)
    return True


@jit
def enter_tied(P, S, W, L, limit, most):
    """Let all outside points whose event lies within `limit`, if several, join at once. In place: S, W, L."""
    tied = 0
    for i in range(S.side.shape[0]):
        tied += S.side[i] != ELBOW and W.step[i] <= limit
    joined = 0 if tied > 1 else most
    for i in range(S.side.shape[0]):
        if joined >= most:
            break
        side = S.side[i]
        if side == ELBOW or W.step[i] > limit or P.slot[i] < 0:
            continue
        pivot = pivot_of(P, S, i, W.x)
        if pivot > SAFE_PIVOT:
            enter(P, S, i, W.x, pivot)
            log_event(S, L, i, side, ELBOW, BATCH)
            joined += 1
    if tied < 2:
        return 0
    S.cnt[BATCHED] += joined
    return joined


@jit
def noise(S):
    """A repeatable number in [1, 2). In place: S.num."""
    v = S.num[NOISE] * 1103.0 + 0.7390851332151607
    v -= np.floor(v)
    S.num[NOISE] = v
    return 1.0 + v


@jit
def spread_ties(S, scale):
    """Many zero steps in a row: loosen residuals and boxes near ties by about 1e-10 of their size. In place: S."""
    size = SPREAD * (S.cnt[ZERO_RUN] // PERTURB_AFTER)
    S.cnt[N_PERTURB] += 1
    for i in range(S.side.shape[0]):
        side = S.side[i]
        if side == UP and S.resid[i] < NEAR_TIE * scale:
            e = scale * size * noise(S)
            S.base[i] += e
            S.resid[i] += e
        elif side == LOW and S.resid[i] > -NEAR_TIE * scale:
            e = scale * size * noise(S)
            S.base[i] -= e
            S.resid[i] -= e
        elif side == ELBOW:  # ten times less: a box cannot be shifted back without a step
            width = 0.1 * (S.upper[i] - S.lower[i])
            if S.beta[i] < S.lower[i] + NEAR_TIE * width:
                S.lower[i] -= SPREAD * width * noise(S)
            elif S.beta[i] > S.upper[i] - NEAR_TIE * width:
                S.upper[i] += SPREAD * width * noise(S)


@jit
def event(P, S, W, L, point, place, limit, opt):
    """Carry out the event at the present t. In place: S, W, L. Returns a code; DONE means go on."""
    if place >= 0:
        side = to_bound(S, point, W.d[place] < 0.0)
        delete(S, place)
        log_event(S, L, point, ELBOW, side, BOX)
        return DONE
    if P.slot[point] < 0:
        S.cnt[WANT] = point
        return ROWS
    if opt.batch and S.cnt[ZERO_RUN] <= 1:
        room = min(S.factor.shape[0] - S.cnt[M] - 2, 512)
        if enter_tied(P, S, W, L, limit, room) > 0:
            S.cnt[N_BATCH] += 1
            return DONE
    pivot = pivot_of(P, S, point, W.x)
    if pivot <= DEPENDENT:
        if exchange(P, S, W, L, point, opt.record):
            return DONE
        pivot = max(pivot_of(P, S, point, W.x), LEAST_PIVOT)
    old = S.side[point]
    enter(P, S, point, W.x, pivot)
    log_event(S, L, point, old, ELBOW, MARGIN)
    return DONE


@jit
def follow(P, S, W, L, opt):
    """Follow the optimum from the present t down to opt.t_end, or until Python is needed. In place: S, W, L.

    Returns DONE (arrived), or why it stopped: STALLED, SINGULAR, REFRESH, GROW, ROWS (kernel row S.cnt[WANT] is
    missing), FLUSH (log full), BUDGET. After any of these it can be called again.
    """
    for _ in range(opt.budget):
        if S.cnt[M] + 2 > S.factor.shape[0]:
            return GROW
        if opt.record and log_full(S, L):
            return FLUSH
        t = S.num[T]
        d0 = direction(P, S, W.d)
        for i in range(W.rate.shape[0]):
            W.rate[i] = d0 - P.slope[i]
        add_rows(W.rate, P, S, W.d, S.cnt[M])
        longest = t - opt.t_end
        size = size_at(P, t)
        if longest > (1.0 - opt.stretch) * size:
            longest = (1.0 - opt.stretch) * size
        scale = opt.scale if opt.scale > 0.0 else size
        least, limit = blocking_steps(S, W, opt.rate_tol, P.still, scale)
        point = -1
        place = -1
        h = longest
        if least < longest:
            point, place = choose(P, S, W, limit)
            h = min(max(W.step[point], 0.0), longest)
        if h > 0.0:
            advance(S, W, h, d0)
            if place >= 0:  # the point that leaves is exactly at its bound in the knot
                S.beta[point] = S.lower[point] if W.d[place] > 0.0 else S.upper[point]
            if opt.record:
                log_knot(S, L)
        S.cnt[N_STEP] += 1
        if h <= TIE * scale:
            S.cnt[N_ZERO] += 1
            S.cnt[ZERO_RUN] += 1
            S.cnt[N_ZERO_MAX] = max(S.cnt[N_ZERO_MAX], S.cnt[ZERO_RUN])
        else:
            S.cnt[ZERO_RUN] = 0
        if point < 0:
            if longest >= t - opt.t_end:
                return DONE
            if look(P, S, opt.lower, opt.upper):
                continue
            return REFRESH
        if S.cnt[ZERO_RUN] > 20 * S.side.shape[0] + 1000:
            return STALLED
        code = event(P, S, W, L, point, place, limit, opt)
        if code != DONE:
            return code
        if S.cnt[N_EVENT] >= opt.n_events_max:
            return BUDGET
        S.cnt[SINCE] += 1
        if S.cnt[ZERO_RUN] > 0 and S.cnt[ZERO_RUN] % PERTURB_AFTER == 0:
            spread_ties(S, scale)
        far = opt.scale == 0.0 and size_at(P, S.num[T]) < opt.stretch * size_at(P, S.num[T_REFRESH])
        if S.cnt[SINCE] >= opt.refresh or (far and not look(P, S, opt.lower, opt.upper)):
            return REFRESH
    return BUDGET


# ---- start -------------------------------------------------------------------------------------------------------


@jit
def crash_point(P, S, W, i):
    """Point i of a solver's answer lies inside its box: append it, or move it out along its null vector. In place: S."""
    x = W.x
    pivot = pivot_of(P, S, i, x)
    if pivot > DEPENDENT:
        append(P, S, i, x, pivot)
        return
    m = S.cnt[M]
    solve_upper(S.factor, m, x)
    best, place = first_box(S, x, -1.0, S.beta[i] - S.lower[i])
    sign = -1.0
    up, up_place = first_box(S, x, 1.0, S.upper[i] - S.beta[i])
    if up < best:
        best = up
        place = up_place
        sign = 1.0
    if not null_change(P, S, W, i, sign * best):
        append(P, S, i, x, max(pivot_of(P, S, i, x), LEAST_PIVOT))
        return
    for k in range(m):
        j = S.elbow[k]
        S.beta[j] = min(max(S.beta[j] + W.d[k], S.lower[j]), S.upper[j])
    S.beta[i] = min(max(S.beta[i] + sign * best, S.lower[i]), S.upper[i])
    if place < 0:
        to_bound(S, i, sign > 0.0)
        return
    j = S.elbow[place]
    to_bound(S, j, -sign * x[place] > 0.0)
    delete(S, place)
    append(P, S, i, x, max(pivot_of(P, S, i, x), LEAST_PIVOT))


@jit
def crash(P, S, W):
    """Sides from beta, and an independent elbow out of the points inside their boxes. In place: S.

    The answer of a solver may have dependent free points; each is moved along its null vector, which changes no
    residual, until one value meets its box. Needs the kernel rows of every free point.
    """
    S.cnt[M] = 0
    for i in range(S.side.shape[0]):
        if S.beta[i] <= S.lower[i]:
            S.side[i] = LOW
        elif S.beta[i] >= S.upper[i]:
            S.side[i] = UP
        else:
            S.side[i] = ELBOW
    for i in range(S.side.shape[0]):
        if S.side[i] == ELBOW:
            crash_point(P, S, W, i)
