"""The compiled steps of the regularization path: the parametric box problem followed event by event.

The problem, sign-free (see `_types`), with a linear term that moves with a parameter t:

    minimise  1/2 b'K b - l(t)'b   over  lower <= b <= upper  [ and  sum b = 0 ],     l(t) = fixed + base + t slope

Here `base` is a shift that should be zero. It holds what rounding has done to the residuals, and ties that were spread. The
residual is ``r = l(t) - K b - bias``. Without the equality row there is no bias. A point is optimal under these conditions:

- ``r <= 0`` where b is at its lower end (side LOW),
- ``r >= 0`` where b is at its upper end (side UP),
- ``r = 0`` in between (side ELBOW).

Between two events b, bias and r are linear in t. For the path of a classifier the slope holds the labels, and t is lambda.
Then b = lambda y alpha, and bias = lambda intercept. `path/problem` lists the other paths. Where an error is removed, the
slope is the error, and t falls from 1 to 0. The same `follow` does all of this.

A point that depends on the elbow (`path/elbow_jit`) is exchanged along its null vector. This needs no linear program, because
that vector moves no other residual.

No residual is ever dropped. Whatever is set to zero is added to `base`. So the state stays exactly optimal for a problem
whose distance from the true one is known.

Reference: path.md on Ong, Shao and Yang. The steps (S1)-(S4) of the paper are not needed here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import NONZERO, FloatArray
from svmcore.compiler.jit import jit
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
    N_ELBOW,
    N_EVENT,
    N_EXCHANGE,
    N_FLIP,
    N_PERTURB,
    N_STEP,
    N_ZERO,
    N_ZERO_MAX,
    NOISE,
    NOW,
    REFRESH,
    ROWS,
    SINCE,
    STALLED,
    T_REFRESH,
    UP,
    WANT,
    ZERO_RUN,
    add_rows,
    append,
    delete,
    direction,
    first_box,
    look,
    mend,
    null_change,
    pivot_of,
    size_at,
    solve_upper,
)  # fmt: skip
from svmcore.path.log_jit import EVENTS, KNOTS, VALUES, loosen_chord, write_event, write_knot
from svmcore.simd.vector import BIG, fmin

# Points that depend on others: a relative pivot below DEPENDENT may be that of such a point. Of points that join at once,
# each has at least the pivot SAFE_PIVOT with respect to those before.
DEPENDENT, SAFE_PIVOT = 1e-14, 1e-9
# Ties, in units of the linear term's size: events that are closer than TIE happen at the same time. 1e-10 loses digits. After
# PERTURB_AFTER zero steps in a row ties are spread. They are moved apart by about SPREAD times the size of the linear term,
# if they are within NEAR_TIE times that size, or within that share of a box.
TIE, PERTURB_AFTER, SPREAD, NEAR_TIE = 1e-12, 40, 1e-10, 1e-7


class Options(NamedTuple):
    """The limits of one call. Ties are measured against `scale`. 0 stands for the present size of the linear term."""

    t_end: float
    rate_tol: float
    scale: float
    stretch: float
    refresh: int
    budget: int
    batch: bool
    record: bool
    n_events_max: int
    lower: FloatArray  # the boxes as they are where no ties are spread
    upper: FloatArray


# ---- direction, rates, next event --------------------------------------------------------------------------------


@jit
def blocking_steps(state, work, rate_tol, still, scale):
    """The step, by which t falls, until each elbow value meets its box and each residual meets zero. In place: work.step.

    These are the ratios (47)-(49) with h = -delta lambda. They are `BIG` where nothing blocks. Returns the smallest step,
    and the largest step up to which all events are ties. Ties are within TIE * scale in t and in every residual, and within
    GIVE in every box. If they were measured in t alone, fast values of a nearly singular elbow would leave their boxes
    unseen.
    """
    least = BIG
    loose = BIG
    slack = TIE * scale
    for i in range(state.side.shape[0]):
        up = state.side[i] == UP
        toward = 0.0 if state.side[i] == ELBOW else (-work.rate[i] if up else work.rate[i])
        blocks = toward > rate_tol
        speed = toward if blocks else 1.0
        away = state.resid[i] if up else -state.resid[i]
        fall = away / speed if blocks else BIG
        work.step[i] = fall
        least = fmin(least, fall)
        loose = fmin(loose, fall + slack / speed)
    for k in range(state.cnt[N_ELBOW]):
        i = state.elbow[k]
        rate = work.direction[k]
        fall = BIG
        if abs(rate) > still:
            fall = (state.beta[i] - (state.lower[i] if rate > 0.0 else state.upper[i])) / rate
            least = min(least, fall)
            loose = min(loose, fall + GIVE * (state.upper[i] - state.lower[i]) / abs(rate))
        work.step[i] = fall
    least = max(least, 0.0)
    return least, max(least, min(loose, least + slack))


@jit
def choose(setting, state, work, limit):
    """Of the events within `limit`, choose the one with the largest rate, which is the safest pivot.

    Returns (point, its place on the elbow or -1). The point is -1 when there is no event.
    """
    best = -1.0
    point = -1
    place = -1
    for k in range(state.cnt[N_ELBOW]):
        i = state.elbow[k]
        if work.step[i] <= limit and abs(work.direction[k]) > best:
            best = abs(work.direction[k])
            point = i
            place = k
    for i in range(state.side.shape[0]):
        if work.step[i] <= limit and state.side[i] != ELBOW:
            speed = abs(work.rate[i]) / np.sqrt(setting.diagonal[i] + setting.bump + NONZERO)
            if speed > best:
                best = speed
                point = i
                place = -1
    return point, place


@jit
def advance(state, work, fall, bias_rate):
    """Decrease t by `fall` along the direction. Residuals on the elbow stay zero. In place: state."""
    for k in range(state.cnt[N_ELBOW]):
        i = state.elbow[k]
        state.beta[i] = min(max(state.beta[i] - fall * work.direction[k], state.lower[i]), state.upper[i])
    state.num[BIAS] -= fall * bias_rate
    for i in range(state.side.shape[0]):
        state.resid[i] += fall * work.rate[i]
    for k in range(state.cnt[N_ELBOW]):
        state.resid[state.elbow[k]] = 0.0
    state.num[NOW] -= fall


# ---- log ---------------------------------------------------------------------------------------------------------


@jit
def log_event(state, log, i, old, new, cause):
    """Count an event, and append it if there is room. The log of a polish, which nobody reads, may be full.

    In place: log, state.cnt.
    """
    state.cnt[N_EVENT] += 1
    if log.end[EVENTS] < log.event_t.shape[0]:
        write_event(log, state.num[NOW], i, old, new, cause)


@jit
def log_knot(state, log):
    """Append a knot: t, bias and the elbow with its values, after all events logged so far. In place: log."""
    at = log.end[VALUES]
    m = state.cnt[N_ELBOW]
    for j in range(m):
        i = state.elbow[j]
        log.index[at + j] = i
        log.value[at + j] = state.beta[i]
    write_knot(log, state.num[NOW], state.num[BIAS], m)


@jit
def correct_knot(state, log):
    """Write the last knot again if it is at the present t, with what has been corrected since. In place: log.

    All values may have moved. So may those of points that entered after the knot: it now stands behind their events.
    """
    k = log.end[KNOTS] - 1
    if k >= 0 and log.knot[k, 0] == state.num[NOW]:
        log.end[KNOTS] = k
        log.end[VALUES] -= log.knot_at[k, 1]
        log_knot(state, log)


@jit
def log_full(state, log):
    """Whether the log might be too short for one more step."""
    n = state.side.shape[0]
    return (
        log.end[EVENTS] + n + 4 > log.event_t.shape[0]
        or log.end[KNOTS] + 3 > log.knot.shape[0]
        or log.end[VALUES] + 3 * state.cnt[N_ELBOW] + 8 > log.value.shape[0]
    )


@jit
def look_twice(setting, state, work, log, opt, factored):
    """`look`. Where it finds fault and there is a factor, the elbow is mended first, and the last knot with it.

    In place: state, work, log.
    """
    if look(setting, state, opt.lower, opt.upper):
        return True
    if not (factored and mend(setting, state, work.column)):
        return False
    loosen_chord(log, np.inf, np.inf)  # it is not known by how much
    correct_knot(state, log)
    return look(setting, state, opt.lower, opt.upper)


# ---- events ------------------------------------------------------------------------------------------------------


@jit
def to_bound(state, i, upper):
    """Set point i exactly at a bound. In place: state. Returns the new side."""
    side = UP if upper else LOW
    state.beta[i] = state.upper[i] if upper else state.lower[i]
    state.side[i] = side
    state.resid[i] = 0.0
    return side


@jit
def enter(setting, state, i, x, pivot):
    """Point i joins the elbow. What is left of its residual goes into `base`. In place: state."""
    append(setting, state, i, x, pivot)
    state.base[i] -= state.resid[i]
    state.resid[i] = 0.0


@jit
def exchange(setting, state, work, log, i, record):
    """Exchange point i, which depends on the elbow: move along its null vector to the first box. In place: state, work, log.

    Either i crosses its own box, or a point j of the elbow meets its box first. Then j leaves, and i takes its place. With
    n the null vector, n_j != 0 keeps the factor non-singular. Over i and the elbow, sum n_k r_k stays proportional to t. So
    the residual of the point that leaves moves to its proper side. Returns False when i depends only nearly on the elbow:
    then nothing has changed.
    """
    m = state.cnt[N_ELBOW]
    x = work.column
    solve_upper(state.factor, m, x)
    old = state.side[i]
    sign = -1.0 if old == UP else 1.0
    far, place = first_box(state, x, sign, state.upper[i] - state.lower[i])
    if not null_change(setting, state, work, i, sign * far):
        return False
    state.cnt[N_EXCHANGE] += 1
    for k in range(m):
        j = state.elbow[k]
        state.beta[j] = min(max(state.beta[j] + work.direction[k], state.lower[j]), state.upper[j])
    state.beta[i] += sign * far
    if place < 0:
        state.cnt[N_FLIP] += 1
        kept = state.resid[i]
        side = to_bound(state, i, old == LOW)
        state.base[i] -= kept
        log_event(state, log, i, old, side, EXCHANGE)
    else:
        j = state.elbow[place]
        side = to_bound(state, j, -sign * x[place] > 0.0)
        delete(state, place)
        log_event(state, log, j, ELBOW, side, EXCHANGE)
        enter(setting, state, i, x, max(pivot_of(setting, state, i, x), LEAST_PIVOT))
        log_event(state, log, i, old, ELBOW, EXCHANGE)
    if far > 0.0 and record:
        log_knot(state, log)
    return True


@jit
def enter_tied(setting, state, work, log, limit, most):
    """Let all points outside whose event lies within `limit` join at once, if there are several.

    In place: state, work, log.
    """
    tied = 0
    for i in range(state.side.shape[0]):
        tied += state.side[i] != ELBOW and work.step[i] <= limit
    joined = 0 if tied > 1 else most
    for i in range(state.side.shape[0]):
        if joined >= most:
            break
        side = state.side[i]
        if side == ELBOW or work.step[i] > limit or setting.slot[i] < 0:
            continue
        pivot = pivot_of(setting, state, i, work.column)
        if pivot > SAFE_PIVOT:
            enter(setting, state, i, work.column, pivot)
            log_event(state, log, i, side, ELBOW, BATCH)
            joined += 1
    if tied < 2:
        return 0
    state.cnt[BATCHED] += joined
    return joined


@jit
def noise(state):
    """A repeatable number in [1, 2). In place: state.num."""
    value = state.num[NOISE] * 1103.0 + 0.7390851332151607
    value -= np.floor(value)
    state.num[NOISE] = value
    return 1.0 + value


@jit
def spread_ties(state, scale):
    """Spread ties: loosen residuals and boxes near them by about 1e-10 of their size. In place: state.

    It is called after many zero steps in a row.
    """
    size = SPREAD * (state.cnt[ZERO_RUN] // PERTURB_AFTER)
    state.cnt[N_PERTURB] += 1
    for i in range(state.side.shape[0]):
        side = state.side[i]
        if side == UP and state.resid[i] < NEAR_TIE * scale:
            shift = scale * size * noise(state)
            state.base[i] += shift
            state.resid[i] += shift
        elif side == LOW and state.resid[i] > -NEAR_TIE * scale:
            shift = scale * size * noise(state)
            state.base[i] -= shift
            state.resid[i] -= shift
        elif side == ELBOW:  # a box moves ten times less, because it takes a step to shift it back
            width = 0.1 * (state.upper[i] - state.lower[i])
            if state.beta[i] < state.lower[i] + NEAR_TIE * width:
                state.lower[i] -= SPREAD * width * noise(state)
            elif state.beta[i] > state.upper[i] - NEAR_TIE * width:
                state.upper[i] += SPREAD * width * noise(state)


@jit
def event(setting, state, work, log, point, place, limit, opt):
    """Carry out the event at the present t. In place: state, work, log. Returns a code. DONE means go on."""
    if place >= 0:
        side = to_bound(state, point, work.direction[place] < 0.0)
        delete(state, place)
        log_event(state, log, point, ELBOW, side, BOX)
        return DONE
    if setting.slot[point] < 0:
        state.cnt[WANT] = point
        return ROWS
    if opt.batch and state.cnt[ZERO_RUN] <= 1:
        room = min(state.factor.shape[0] - state.cnt[N_ELBOW] - 2, 512)
        if enter_tied(setting, state, work, log, limit, room) > 0:
            state.cnt[N_BATCH] += 1
            return DONE
    pivot = pivot_of(setting, state, point, work.column)
    if pivot <= DEPENDENT:
        if exchange(setting, state, work, log, point, opt.record):
            return DONE
        pivot = max(pivot_of(setting, state, point, work.column), LEAST_PIVOT)
    old = state.side[point]
    enter(setting, state, point, work.column, pivot)
    log_event(state, log, point, old, ELBOW, MARGIN)
    return DONE


@jit
def follow(setting, state, work, log, opt):
    """Follow the optimum from the present t down to opt.t_end, or until Python is needed. In place: state, work, log.

    Returns DONE where it has arrived. Otherwise it returns why it stopped: STALLED, SINGULAR, REFRESH, GROW, ROWS, FLUSH or
    BUDGET (`path/elbow_jit` says what they mean). After any of these it can be called again.
    """
    for _ in range(opt.budget):
        if state.cnt[N_ELBOW] + 2 > state.factor.shape[0]:
            return GROW
        if opt.record and log_full(state, log):
            return FLUSH
        t = state.num[NOW]
        bias_rate = direction(setting, state, work.direction)
        for i in range(work.rate.shape[0]):
            work.rate[i] = bias_rate - setting.slope[i]
        add_rows(work.rate, setting, state.elbow, work.direction, state.cnt[N_ELBOW])
        longest = t - opt.t_end
        size = size_at(setting, t)
        if longest > (1.0 - opt.stretch) * size:
            longest = (1.0 - opt.stretch) * size
        scale = opt.scale if opt.scale > 0.0 else size
        least, limit = blocking_steps(state, work, opt.rate_tol, setting.still, scale)
        point = -1
        place = -1
        fall = longest
        if least < longest:
            point, place = choose(setting, state, work, limit)
            fall = min(max(work.step[point], 0.0), longest)
        if fall > 0.0:
            advance(state, work, fall, bias_rate)
            if place >= 0:  # in the knot the point that leaves is exactly at its bound
                state.beta[point] = state.lower[point] if work.direction[place] > 0.0 else state.upper[point]
            if opt.record:
                log_knot(state, log)
        state.cnt[N_STEP] += 1
        if fall <= TIE * scale:
            state.cnt[N_ZERO] += 1
            state.cnt[ZERO_RUN] += 1
            state.cnt[N_ZERO_MAX] = max(state.cnt[N_ZERO_MAX], state.cnt[ZERO_RUN])
        else:
            state.cnt[ZERO_RUN] = 0
        if point < 0:
            if longest >= t - opt.t_end:
                return DONE
            if look_twice(setting, state, work, log, opt, True):
                continue
            return REFRESH
        if state.cnt[ZERO_RUN] > 20 * state.side.shape[0] + 1000:
            return STALLED
        code = event(setting, state, work, log, point, place, limit, opt)
        if code != DONE:
            return code
        if state.cnt[N_EVENT] >= opt.n_events_max:
            return BUDGET
        state.cnt[SINCE] += 1
        if state.cnt[ZERO_RUN] > 0 and state.cnt[ZERO_RUN] % PERTURB_AFTER == 0:
            spread_ties(state, scale)
        size = size_at(setting, state.num[NOW])
        far = opt.scale == 0.0 and size < opt.stretch * size_at(setting, state.num[T_REFRESH])
        if state.cnt[SINCE] >= opt.refresh or (far and not look_twice(setting, state, work, log, opt, True)):
            return REFRESH
    return BUDGET


# ---- start -------------------------------------------------------------------------------------------------------
