"""Inner loops of the interior-point method for the linear kernel: products with the panels, and the vector passes.

Every vector has one entry per variable. `lower_side` and `upper_side` are 1 where the variable has that bound and 0 where
it has not; there the slack is 1 and the multiplier 0 for ever.
"""

from __future__ import annotations

from typing import NamedTuple

from svmcore._jit import jit
from svmcore._types import LANES, FloatArray

_STAMP = "8fc5c8bf0b6c"


class Iterate(NamedTuple):
    """An interior point: slacks, multipliers, and what the Newton step needs of them."""

    beta: FloatArray
    s: FloatArray  # beta - lower
    u: FloatArray  # upper - beta
    z: FloatArray  # multiplier of the lower bound
    t: FloatArray  # multiplier of the upper bound
    gradient: FloatArray  # K beta + diag beta - c
    diag: FloatArray
    lower_side: FloatArray
    upper_side: FloatArray


class Direction(NamedTuple):
    """A search direction, its right-hand side, and the scratch it is computed with."""

    beta: FloatArray
    z: FloatArray
    t: FloatArray
    inverse: FloatArray  # 1 / (diag + z / s + t / u)
    right: FloatArray
    first: FloatArray  # right-hand side of s z = mu, less s z
    second: FloatArray  # the same of u t


@jit(sums=True)
def weighted_gram(panels, weight, scaled, out):
    """out = Z' diag(weight) Z for the points in panels. In place: out (d x d), scaled (scratch of one panel)."""
    d = panels.shape[1]
    out[:] = 0.0
    for p in range(panels.shape[0]):
        panel = panels[p]
        w = weight[p * LANES : (p + 1) * LANES]
        for i in range(d):
            a = panel[i]
            for lane in range(LANES):
                scaled[lane] = a[lane] * w[lane]
            for j in range(i + 1):
                b = panel[j]
                total = 0.0
                for lane in range(LANES):
                    total += scaled[lane] * b[lane]
                out[i, j] += total
    for i in range(d):
        for j in range(i):
            out[j, i] = out[i, j]


@jit(sums=True)
def columns_times(panels, vectors, out):
    """out = vectors Z, one row per vector. In place: out (c x d)."""
    out[:] = 0.0
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
    """out = weights Z', one row per weight vector. In place: out (c x n, padded)."""
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
def measure(x, bias, step):
    """(mean complementarity, largest dual residual); also 1 / E and the affine right-hand side. In place: step."""
    total, count, worst = 0.0, 0.0, 0.0
    for i in range(x.s.shape[0]):
        total += x.s[i] * x.z[i] + x.u[i] * x.t[i]
        count += x.lower_side[i] + x.upper_side[i]
        force = x.gradient[i] + bias
        step.inverse[i] = 1.0 / (x.diag[i] + x.z[i] / x.s[i] + x.t[i] / x.u[i])
        step.right[i] = -force
        worst = max(worst, abs(force - x.z[i] + x.t[i]))
    return total / max(count, 1.0), worst


@jit(sums=True)
def finish_direction(x, step, fitted, unit, db):
    """d beta = inverse (right - Z h) - db unit, and its multipliers for `first` and `second`. In place: step."""
    for i in range(x.s.shape[0]):
        d = step.inverse[i] * (step.right[i] - fitted[i]) - db * unit[i]
        step.beta[i] = d
        step.z[i] = (step.first[i] - x.z[i] * d) / x.s[i]
        step.t[i] = (step.second[i] + x.t[i] * d) / x.u[i]


@jit(sums=True)
def affine_targets(x, step):
    """Right-hand sides of the predictor: complementarity zero. In place: first, second."""
    for i in range(x.s.shape[0]):
        step.first[i] = -x.s[i] * x.z[i]
        step.second[i] = -x.u[i] * x.t[i]


@jit(sums=True)
def corrected_targets(x, bias, step, mu):
    """Right-hand sides of the corrector, after the predictor `step`: complementarity mu. In place: first, second, right."""
    for i in range(x.s.shape[0]):
        first = x.lower_side[i] * (mu - step.beta[i] * step.z[i]) - x.s[i] * x.z[i]
        second = x.upper_side[i] * (mu + step.beta[i] * step.t[i]) - x.u[i] * x.t[i]
        dual = x.gradient[i] + bias - x.z[i] + x.t[i]
        step.first[i] = first
        step.second[i] = second
        step.right[i] = -dual + first / x.s[i] - second / x.u[i]


@jit
def longest_step(x, step):
    """The longest step in [0, 1] that keeps slacks and multipliers non-negative."""
    worst = 1.0
    for i in range(x.s.shape[0]):
        a = -x.lower_side[i] * step.beta[i] / x.s[i]
        b = x.upper_side[i] * step.beta[i] / x.u[i]
        c = -step.z[i] / x.z[i] if x.z[i] > 0.0 else 0.0
        d = -step.t[i] / x.t[i] if x.t[i] > 0.0 else 0.0
        worst = max(worst, max(max(a, b), max(c, d)))
    return 1.0 / worst


@jit(sums=True)
def complementarity_after(x, step, length):
    """Mean complementarity after a step."""
    total, count = 0.0, 0.0
    for i in range(x.s.shape[0]):
        s = x.s[i] + x.lower_side[i] * length * step.beta[i]
        u = x.u[i] - x.upper_side[i] * length * step.beta[i]
        total += s * (x.z[i] + length * step.z[i]) + u * (x.t[i] + length * step.t[i])
        count += x.lower_side[i] + x.upper_side[i]
    return total / max(count, 1.0)


@jit(sums=True)
def advance(x, step, length, product):
    """Take the step; `product` is K d beta. Returns sum(beta). In place: x."""
    total = 0.0
    for i in range(x.s.shape[0]):
        move = length * step.beta[i]
        x.beta[i] += move
        x.s[i] += x.lower_side[i] * move
        x.u[i] -= x.upper_side[i] * move
        x.z[i] += length * step.z[i]
        x.t[i] += length * step.t[i]
        x.gradient[i] += length * product[i] + x.diag[i] * move
        total += x.beta[i]
    return total
