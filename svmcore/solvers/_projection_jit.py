"""Gradient projection on the sign-free dual: faces, directions on them, and exact steps (the paper's dilations)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import FloatArray, IntArray
from svmcore.compiler.jit import jit
from svmcore.simd.sums import add_multiple
from svmcore.solvers._steps_jit import (
    AT_TOLERANCE,
    NEED_ROW,
    NO_BOUND,
    OWN_FLOAT,
    OWN_INT,
    RESTART,
    STUCK,
    VIOLATION,
    WORK,
    count_step,
    due,
    find_rows,
    room,
    stronger,
    worst_pair,
)

FACES = OWN_INT
PAPER = OWN_FLOAT
_FLAT = 1e-14  # a curvature below this share of its terms counts as zero
_TOUCHING = 4.0e-16  # a step that misses a bound by less than this share of itself lands on the bound


WORST, PAIR, SIDES = range(3)
"""What enters a face on which d = 0: see `Rule`."""


class Rule(NamedTuple):
    """When variables at a bound enter the face, which ones, and when that ends a run.

    With a factor above 0 directions are conjugate, and variables enter whose multipliers are that much larger than d. Else
    they enter once d counts as zero, which it does where the sum of its absolute values is at most `d_tol`. These are the
    variable p of the most negative multiplier (WORST); p, and each of the maximal violating pair (PAIR); or the worst one
    that would grow and the worst one that would shrink (SIDES). A multiplier above -`least` is none. With `ends` the run is
    over where d = 0 and there is none, whatever the free variables violate.
    """

    factor: float
    d_tol: float
    enters: int
    least: float
    ends: bool


class Face(NamedTuple):
    """Scratch of gradient projection: the free variables J and their direction."""

    J: IntArray
    sizes: IntArray  # sizes[0] is |J|
    d: FloatArray  # the direction, by position in J
    r: FloatArray  # the projected residual, by position in J
    z: FloatArray  # (K + D) d, of all variables


@jit
def _collect(duals, face):
    """J becomes the set of free variables. Returns their mean residual, or 0 without an equality row. In place: face."""
    m = 0
    total = 0.0
    for t in range(duals.n):
        if duals.lower[t] < duals.beta[t] < duals.upper[t]:
            face.J[m] = t
            total += duals.v[t]
            m += 1
    face.sizes[0] = m
    if m == 0 or not duals.equality:
        return 0.0
    return total / m


@jit
def _worst_multipliers(duals, b):
    """The variables at a lower and at an upper bound with the most negative multipliers u, formula (4): (t, -u, t, -u).

    (-1, 0) where there is none.
    """
    low = -1
    high = -1
    at_low = 0.0
    at_high = 0.0
    for t in range(duals.n):
        if duals.lower[t] == duals.upper[t]:
            continue
        if duals.beta[t] <= duals.lower[t]:
            if duals.v[t] - b > at_low:
                at_low = duals.v[t] - b
                low = t
        elif duals.beta[t] >= duals.upper[t] and b - duals.v[t] > at_high:
            at_high = b - duals.v[t]
            high = t
    return low, at_low, high, at_high


@jit
def _enter(duals, face, b, pair, enters, least):
    """Variables at a bound enter the face, as `Rule` says. Returns whether one did. In place: face.J, face.sizes."""
    low, at_low, high, at_high = _worst_multipliers(duals, b)
    m = face.sizes[0]
    if at_low > least and (at_low >= at_high or enters == SIDES or (enters == PAIR and low == pair[0])):
        face.J[m] = low
        m += 1
    if at_high > least and (at_high > at_low or enters == SIDES or (enters == PAIR and high == pair[1])):
        face.J[m] = high
        m += 1
    entered = m > face.sizes[0]
    face.sizes[0] = m
    return entered


@jit
def _set_residual(duals, face):
    """r becomes the projection of the residual on J, which the paper calls d_i. Returns max |r|. In place: face."""
    m = face.sizes[0]
    mean = 0.0
    if duals.equality:
        for a in range(m):
            mean += duals.v[face.J[a]]
        mean /= m
    largest = 0.0
    for a in range(m):
        face.r[a] = duals.v[face.J[a]] - mean
        largest = max(largest, abs(face.r[a]))
    return largest


@jit
def _choose_face(duals, face, progress, limits, rule):
    """Choose the face to step on. Returns (reason or -1, whether the face has changed)."""
    i, j, progress.floats[VIOLATION] = worst_pair(duals)
    if progress.floats[VIOLATION] <= limits.tol:
        return AT_TOLERANCE, False
    b = _collect(duals, face)
    if face.sizes[0] == 0:
        if duals.equality:
            face.J[0] = i
            face.J[1] = j
            face.sizes[0] = 2
        else:
            face.J[0] = stronger(duals, i, j)
            face.sizes[0] = 1
        progress.ints[FACES] += 1
        return -1, True
    largest = 0.0
    total = 0.0
    for a in range(face.sizes[0]):
        size = abs(duals.v[face.J[a]] - b)
        largest = max(largest, size)
        total += size
    if rule.factor <= 0.0 and total > rule.d_tol:
        return -1, False
    least = rule.factor * largest if rule.factor > 0.0 else rule.least
    if _enter(duals, face, b, (i, j), rule.enters, least):
        progress.ints[FACES] += 1
        return -1, True
    return AT_TOLERANCE if rule.ends else -1, False


@jit
def _direction(face, previous, conjugate):
    """d from r: the steepest direction, or that of Polak-Ribiere+ with the former residual. Returns the slope r'd.

    In place: face.d, previous.
    """
    m = face.sizes[0]
    share = 0.0
    if conjugate:
        new = 0.0
        old = 0.0
        for a in range(m):
            new += face.r[a] * (face.r[a] - previous[a])
            old += previous[a] * previous[a]
        if old > 0.0:
            share = max(new / old, 0.0)
    slope = 0.0
    for a in range(m):
        face.d[a] = face.r[a] + share * face.d[a]
        slope += face.r[a] * face.d[a]
    if slope <= 0.0:
        slope = 0.0
        for a in range(m):
            face.d[a] = face.r[a]
            slope += face.r[a] * face.r[a]
    for a in range(m):
        previous[a] = face.r[a]
    return slope


@jit
def _balance(duals, face):
    """The variable of J that has most room takes what rounding has added to the sum of beta. In place: beta."""
    excess = -duals.total
    for t in range(duals.n):
        excess += duals.beta[t]
    widest = -1
    most = abs(excess)
    for a in range(face.sizes[0]):
        t = face.J[a]
        room = min(duals.upper[t] - duals.beta[t], duals.beta[t] - duals.lower[t])
        if room > most:
            most = room
            widest = t
    if widest >= 0:
        duals.beta[widest] -= excess


@jit
def _face_move(duals, face, progress, slope):
    """The exact step along d, which ends at the first bound. Returns -1 when something moved, else STUCK or NO_BOUND."""
    m = face.sizes[0]
    curvature = 0.0
    scale = 0.0
    for a in range(m):
        curvature += face.d[a] * face.z[face.J[a]]
        scale += face.d[a] * face.d[a] * duals.curvature[face.J[a]]
    step = slope / curvature if curvature > _FLAT * scale else np.inf
    blocker = -1
    for a in range(m):
        t = face.J[a]
        if face.d[a] != 0.0:
            space = room(duals, t, face.d[a]) / abs(face.d[a])
            if space <= step:
                step = space
                blocker = a
    if np.isinf(step):
        return NO_BOUND
    moved = False
    for a in range(m):
        t = face.J[a]
        before = duals.beta[t]
        space = room(duals, t, face.d[a])
        if a == blocker or space <= step * abs(face.d[a]) * (1.0 + _TOUCHING):
            if face.d[a] != 0.0:
                duals.beta[t] = duals.upper[t] if face.d[a] > 0 else duals.lower[t]
        else:
            duals.beta[t] += step * face.d[a]
        moved = moved or duals.beta[t] != before
    if duals.equality:
        _balance(duals, face)
    for k in range(duals.n):
        duals.v[k] -= step * face.z[k]
    if blocker >= 0:
        progress.ints[RESTART] = 1
        progress.ints[FACES] += 1
    count_step(progress, step * slope - 0.5 * curvature * step * step, m, blocker, step)
    return -1 if moved else STUCK


@jit
def rosen_slice(duals, rows, face, previous, progress, limits, rule):
    """Gradient projection: steepest descent as published, or with a factor conjugate directions. In place: the state."""
    ints = progress.ints
    while True:
        reason = due(progress, limits)
        if reason >= 0:
            return reason
        reason, changed = _choose_face(duals, face, progress, limits, rule)
        if reason >= 0:
            return reason
        m = face.sizes[0]
        if not find_rows(duals, rows, progress, face.J, m):
            if changed:
                ints[FACES] -= 1
            return NEED_ROW
        _set_residual(duals, face)
        conjugate = rule.factor > 0.0 and not changed and ints[RESTART] == 0
        if not conjugate:
            for a in range(m):
                face.d[a] = 0.0
        ints[RESTART] = 1 if changed else 0
        slope = _direction(face, previous, conjugate)
        for k in range(duals.n):
            face.z[k] = 0.0
        for a in range(m):
            t = face.J[a]
            add_multiple(face.z, face.d[a], rows.values[rows.slot[duals.point[t]]], duals.n)
        for a in range(m):
            face.z[face.J[a]] += duals.diag[face.J[a]] * face.d[a]
        progress.floats[WORK] += 2.0 * duals.n * (m + 4.0)
        progress.floats[PAPER] += float(m) * duals.n
        reason = _face_move(duals, face, progress, slope)
        if reason >= 0:
            return reason
