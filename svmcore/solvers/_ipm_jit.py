"""The inner loops of the interior-point method over features: products with the features, passes over vectors, a step.

Every vector has one entry per variable, padded to whole panels. `lower_side` and `upper_side` are 1 where the variable has
that bound, and 0 where it has not. Without the bound the slack stays 1 and the multiplier stays 0. Padding has neither bound,
and its diagonal is so large that nothing moves it.

The relative moves ``d beta / s`` and ``d beta / u`` are all that a predictor needs. With ``first = -s z`` its dz / z is
``-1 - d beta / s``. So the way to the boundary, and the complementarity there, need no division.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._kernels import weighted_gram
from svmcore._types import LANES, NONZERO, FloatArray
from svmcore.compiler.jit import jit
from svmcore.simd.sums import backward, forward
from svmcore.simd.vector import fmax

BACK_OFF = 0.995  # a step goes at most this share of the way to the boundary


class Iterate(NamedTuple):
    """An interior point."""

    beta: FloatArray
    s: FloatArray  # beta - lower
    u: FloatArray  # upper - beta
    z: FloatArray  # the multiplier of the lower bound
    t: FloatArray  # the multiplier of the upper bound
    gradient: FloatArray  # K beta + diag beta - c
    diag: FloatArray
    lower_side: FloatArray
    upper_side: FloatArray


class NewtonStep(NamedTuple):
    """Newton's step, and what it is computed from."""

    by_s: FloatArray  # lower_side / s
    by_u: FloatArray  # upper_side / u
    weights: FloatArray  # (2, n): 1 / (diag + z / s + t / u), and this times the right-hand side
    fitted: FloatArray  # (2, n): Z (I + Z' E^-1 Z)^-1 Z' times each row of `weights`
    first: FloatArray  # the right-hand side of s z = mu, less s z
    second: FloatArray  # the same for u t
    base: FloatArray  # d beta where db = 0
    unit: FloatArray  # db = -1 adds this to d beta


class Design(NamedTuple):
    """The features Z of the variables, and scratch."""

    panels: FloatArray  # (panels, d, LANES)
    sums: FloatArray  # (2, d)
    normal: FloatArray  # (d, d)


class Arrival(NamedTuple):
    """Where a step has led."""

    length: float  # the length of the step, or 0 if the system could not be factorised
    bias: float
    excess: float  # sum(beta)
    size: float  # sum |beta|
    complementarity: float  # the sum of s z + u t
    dual: float  # the largest dual residual


@jit(sums=True)
def columns_times(panels, vectors, out):
    """out = vectors Z, with one row for each vector over the points. In place: out (c x d)."""
    for c in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[c, k] = 0.0
    for p in range(panels.shape[0]):
        panel = panels[p]
        for c in range(vectors.shape[0]):
            r = vectors[c, p * LANES : (p + 1) * LANES]
            for k in range(panels.shape[1]):
                z = panel[k]
                total = 0.0
                for lane in range(LANES):
                    total += z[lane] * r[lane]
                out[c, k] += total


@jit(sums=True)
def rows_times(panels, weights, out):
    """out = weights Z', with one row for each vector of weights. In place: out (c x points)."""
    for p in range(panels.shape[0]):
        panel = panels[p]
        for c in range(weights.shape[0]):
            o = out[c, p * LANES : (p + 1) * LANES]
            for lane in range(LANES):
                o[lane] = 0.0
            for k in range(panels.shape[1]):
                z = panel[k]
                w = weights[c, k]
                for lane in range(LANES):
                    o[lane] += w * z[lane]


@jit(sums=True)
def factorise(a):
    """Replace the lower half of a matrix by Cholesky's factor. Returns False if it is not positive definite. In place: a."""
    for i in range(a.shape[0]):
        for j in range(i + 1):
            total = a[i, j]
            for k in range(j):
                total -= a[i, k] * a[j, k]
            if i == j:
                if not total > 0.0:
                    return False
                a[i, i] = total**0.5
            else:
                a[i, j] = total / a[j, j]
    return True


@jit
def _fit(step, design, first):
    """fitted = Z (I + Z' E^-1 Z)^-1 Z' weights, for the rows from `first` on, by the factor in `design`. In place: step."""
    weights, fitted, sums = step.weights[first:], step.fitted[first:], design.sums[first:]
    columns_times(design.panels, weights, sums)
    for c in range(sums.shape[0]):
        forward(design.normal, sums.shape[1], sums[c])
        backward(design.normal, sums.shape[1], sums[c])
    rows_times(design.panels, sums, fitted)


@jit(sums=True)
def _response(inverse, weighted, fitted, out):
    """out = E^-1 (right - Z h), from E^-1 right and Z h. Returns its sum. In place: out."""
    total = 0.0
    for i in range(out.shape[0]):
        out[i] = weighted[i] - inverse[i] * fitted[i]
        total += out[i]
    return total


@jit(sums=True)
def predicted(x, step, db):
    """For the direction that aims at zero: (its length to the boundary, the factor of length^2 in the sum of s z + u t)."""
    most, curve = 1.0, 0.0
    for i in range(x.s.shape[0]):
        move = step.base[i] - db * step.unit[i]
        a, b = move * step.by_s[i], move * step.by_u[i]
        most = fmax(most, fmax(fmax(-a, 1.0 + a), fmax(b, 1.0 - b)))
        curve += x.u[i] * x.t[i] * b * (1.0 - b) - x.s[i] * x.z[i] * a * (1.0 + a)
    return 1.0 / most, curve


@jit(sums=True)
def correct(x, step, bias, db, mu):
    """Set right-hand sides that aim at mu, corrected for the curvature of the predictor. In place: step."""
    for i in range(x.s.shape[0]):
        move = step.base[i] - db * step.unit[i]
        a, b = move * step.by_s[i], move * step.by_u[i]
        low, high = x.s[i] * x.z[i], x.u[i] * x.t[i]
        first = x.s[i] * step.by_s[i] * mu + low * (a * (1.0 + a) - 1.0)
        second = x.u[i] * step.by_u[i] * mu - high * (b * (1.0 - b) + 1.0)
        dual = x.gradient[i] + bias - x.z[i] + x.t[i]
        step.first[i] = first
        step.second[i] = second
        step.weights[1, i] = step.weights[0, i] * (first * step.by_s[i] - second * step.by_u[i] - dual)


@jit(sums=True)
def reach(x, step, db):
    """The length of the corrected direction to the boundary."""
    most = 1.0
    for i in range(x.s.shape[0]):
        move = step.base[i] - db * step.unit[i]
        dz = (step.first[i] - x.z[i] * move) * step.by_s[i]
        dt = (step.second[i] + x.t[i] * move) * step.by_u[i]
        primal = fmax(-move * step.by_s[i], move * step.by_u[i])
        dual = fmax(-dz / (x.z[i] + NONZERO), -dt / (x.t[i] + NONZERO))
        most = fmax(most, fmax(primal, dual))
    return 1.0 / most


@jit(sums=True)
def move(x, step, length, db, bias):
    """Take the step and prepare the next one: inverses, and the right-hand side that aims at zero. In place: x, step.

    The loops are short, because LLVM cannot prove that many arrays do not overlap when all of them are written to.
    """
    n = x.s.shape[0]
    for i in range(n):
        move = step.base[i] - db * step.unit[i]
        x.z[i] += length * (step.first[i] - x.z[i] * move) * step.by_s[i]
        x.t[i] += length * (step.second[i] + x.t[i] * move) * step.by_u[i]
        step.base[i] = length * move
    excess, size = 0.0, 0.0
    for i in range(n):
        x.beta[i] += step.base[i]
        x.gradient[i] += length * (step.fitted[1, i] - db * step.fitted[0, i]) + x.diag[i] * step.base[i]
        excess += x.beta[i]
        size += abs(x.beta[i])
    complementarity, worst = 0.0, 0.0
    for i in range(n):
        x.s[i] += x.lower_side[i] * step.base[i]
        x.u[i] -= x.upper_side[i] * step.base[i]
        complementarity += x.s[i] * x.z[i] + x.u[i] * x.t[i]
    for i in range(n):
        step.by_s[i] = x.lower_side[i] / x.s[i]
        step.by_u[i] = x.upper_side[i] / x.u[i]
    inverse, right = step.weights[0], step.weights[1]
    for i in range(n):
        force = x.gradient[i] + bias
        worst = fmax(worst, abs(force - x.z[i] + x.t[i]))
        inverse[i] = 1.0 / (x.diag[i] + x.z[i] * step.by_s[i] + x.t[i] * step.by_u[i])
        right[i] = -inverse[i] * force
    return Arrival(length, bias, excess, size, complementarity, worst)


@jit(sums=True)
def advance(x, step, design, at, count, equality, factorised):
    """One predictor-corrector step. `at` is where the last one has led, and `count` bounds exist. In place: x, step, design.

    With `factorised` the caller has already formed and factorised the normal matrix, because that takes long.
    """
    normal = design.normal
    if not factorised:
        weighted_gram(design.panels, step.weights[0], normal.shape[0], normal)
        for k in range(normal.shape[0]):
            normal[k, k] += 1.0
        if not factorise(normal):
            return Arrival(0.0, at.bias, at.excess, at.size, at.complementarity, at.dual)
    inverse, weighted = step.weights[0], step.weights[1]
    _fit(step, design, np.int64(0))
    unit = fmax(_response(inverse, inverse, step.fitted[0], step.unit), NONZERO)
    free = _response(inverse, weighted, step.fitted[1], step.base) + at.excess
    db = free / unit if equality else 0.0
    length, curve = predicted(x, step, db)
    mu = at.complementarity / count
    after = (1.0 - length) * mu + length * length * curve / count
    correct(x, step, at.bias, db, mu * min((after / mu) ** 3, 1.0))
    _fit(step, design, np.int64(1))
    free = _response(inverse, weighted, step.fitted[1], step.base) + at.excess
    db = free / unit if equality else 0.0
    length = min(1.0, BACK_OFF * reach(x, step, db))
    return move(x, step, length, db, at.bias + length * db)
