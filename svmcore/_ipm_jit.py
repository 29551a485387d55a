"""Inner loops of the interior-point method for the linear kernel: products with the features, vector passes, a step.

Every vector has one entry per variable unless said otherwise. `lower_side` and `upper_side` are 1 where the variable has
that bound and 0 where it has not; there the slack is 1 and the multiplier 0 for ever. Divisions are made once an iteration
(`measure`), and maxima are taken over stored values, a lane each: what else keeps the passes from using full vectors.
"""

from __future__ import annotations

from typing import NamedTuple

from svmcore._jit import jit
from svmcore._types import LANES, FloatArray, IntArray

BACK_OFF = 0.995  # share of the way to the boundary
SMALLEST = 1e-300  # keeps 0 / 0, of multipliers that stay zero, at zero
ROWS = 8  # points that enter `weighted_gram` at a time
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
    right: FloatArray
    first: FloatArray  # right-hand side of s z = mu, less s z
    second: FloatArray  # the same of u t
    inverse: FloatArray  # 1 / (diag + z / s + t / u)
    by_s: FloatArray  # 1 / s, and so on
    by_u: FloatArray
    by_z: FloatArray
    by_t: FloatArray
    unit: FloatArray  # what db = -1 alone adds to d beta
    fitted: FloatArray  # Z h
    fitted_unit: FloatArray
    scratch: FloatArray


class Design(NamedTuple):
    """The features Z of the points in two layouts, the point of every variable, and scratch."""

    panels: FloatArray  # (panels, d, LANES)
    rows: FloatArray  # (points, d), whole panels of them
    point: IntArray
    one_each: bool  # variable i is of point i
    values: FloatArray  # (2, points): vectors over the points
    sums: FloatArray  # (2, d)
    normal: FloatArray  # (d, d)
    most: FloatArray  # (LANES)


@jit(sums=True)
def to_points(design, values, out):
    """Sums over the variables of each point. In place: out."""
    if design.one_each:
        for i in range(values.shape[0]):
            out[i] = values[i]
        return
    out[:] = 0.0
    for i in range(values.shape[0]):
        out[design.point[i]] += values[i]


@jit
def to_variables(design, values, out):
    """The value of each variable's point. In place: out."""
    if design.one_each:
        for i in range(out.shape[0]):
            out[i] = values[i]
        return
    for i in range(out.shape[0]):
        out[i] = values[design.point[i]]


@jit(sums=True)
def weighted_gram(rows, weight, out):
    """out = Z' diag(weight) Z, its lower half at least. In place: out (d x d)."""
    d = rows.shape[1]
    out[:] = 0.0
    for first in range(0, rows.shape[0], ROWS):
        a, b, c, e = rows[first], rows[first + 1], rows[first + 2], rows[first + 3]
        f, g, h, o = rows[first + 4], rows[first + 5], rows[first + 6], rows[first + 7]
        w = weight[first : first + ROWS]
        for i in range(d):
            p, q, r, s = w[0] * a[i], w[1] * b[i], w[2] * c[i], w[3] * e[i]
            t, u, v, x = w[4] * f[i], w[5] * g[i], w[6] * h[i], w[7] * o[i]
            row = out[i]
            for j in range(i + 1):
                row[j] += p * a[j] + q * b[j] + r * c[j] + s * e[j] + t * f[j] + u * g[j] + v * h[j] + x * o[j]


@jit(sums=True)
def columns_times(panels, vectors, out):
    """out = vectors Z, one row per vector over the points. In place: out (c x d)."""
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
    """out = weights Z', one row per weight vector. In place: out (c x points)."""
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
    """Cholesky's lower factor of a positive definite matrix, from and to its lower half; False when it is not. In place."""
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


@jit(sums=True)
def solve(factor, x):
    """x = (L L')^-1 x for the lower factor L. In place: x."""
    d = factor.shape[0]
    for i in range(d):
        total = x[i]
        for k in range(i):
            total -= factor[i, k] * x[k]
        x[i] = total / factor[i, i]
    for i in range(d - 1, -1, -1):
        x[i] /= factor[i, i]
        for k in range(i):
            x[k] -= factor[i, k] * x[i]


@jit
def largest(values, most):
    """The largest of 0 and some values. In place: most (scratch of LANES)."""
    n = values.shape[0]
    whole = n // LANES
    most[:] = 0.0
    for p in range(whole):
        part = values[p * LANES : (p + 1) * LANES]
        for lane in range(LANES):
            most[lane] = part[lane] if part[lane] > most[lane] else most[lane]
    found = 0.0
    for i in range(whole * LANES, n):
        found = max(found, values[i])
    for lane in range(LANES):
        found = max(found, most[lane])
    return found


@jit(sums=True)
def measure(x, bias, step, most):
    """(mean complementarity, largest dual residual); also the inverses and the predictor's right-hand sides.

    In place: step, most (scratch).
    """
    total, count = 0.0, 0.0
    for i in range(x.s.shape[0]):
        total += x.s[i] * x.z[i] + x.u[i] * x.t[i]
        count += x.lower_side[i] + x.upper_side[i]
    for i in range(x.s.shape[0]):
        step.by_s[i] = 1.0 / x.s[i]
        step.by_u[i] = 1.0 / x.u[i]
        step.by_z[i] = 1.0 / (x.z[i] + SMALLEST)
        step.by_t[i] = 1.0 / (x.t[i] + SMALLEST)
    for i in range(x.s.shape[0]):
        step.inverse[i] = 1.0 / (x.diag[i] + x.z[i] * step.by_s[i] + x.t[i] * step.by_u[i])
    for i in range(x.s.shape[0]):
        force = x.gradient[i] + bias
        step.right[i] = -force
        step.first[i] = -x.s[i] * x.z[i]
        step.second[i] = -x.u[i] * x.t[i]
        step.scratch[i] = abs(force - x.z[i] + x.t[i])
    return total / max(count, 1.0), largest(step.scratch, most)


@jit(sums=True)
def direction(x, step, design, excess, equality):
    """The Newton step for the right-hand sides in `step`; returns (db, length to the boundary). In place: step, design."""
    n = x.s.shape[0]
    for i in range(n):
        step.scratch[i] = step.inverse[i] * step.right[i]
    to_points(design, step.scratch, design.values[0])
    columns_times(design.panels, design.values[:1], design.sums[:1])
    solve(design.normal, design.sums[0])
    rows_times(design.panels, design.sums[:1], design.values[:1])
    to_variables(design, design.values[0], step.fitted)
    db = 0.0
    if equality:
        free, unit = 0.0, 0.0
        for i in range(n):
            free += step.inverse[i] * (step.right[i] - step.fitted[i])
            unit += step.unit[i]
        db = (free + excess) / max(unit, SMALLEST)
    for i in range(n):
        move = step.inverse[i] * (step.right[i] - step.fitted[i]) - db * step.unit[i]
        step.beta[i] = move
        step.z[i] = (step.first[i] - x.z[i] * move) * step.by_s[i]
        step.t[i] = (step.second[i] + x.t[i] * move) * step.by_u[i]
    for i in range(n):
        lower = -x.lower_side[i] * step.beta[i] * step.by_s[i]
        upper = x.upper_side[i] * step.beta[i] * step.by_u[i]
        low = -step.z[i] * step.by_z[i]
        high = -step.t[i] * step.by_t[i]
        lower = lower if lower > upper else upper
        low = low if low > high else high
        step.scratch[i] = lower if lower > low else low
    return db, 1.0 / max(largest(step.scratch, design.most), 1.0)


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
def corrected_targets(x, bias, step, mu):
    """Right-hand sides of the corrector, after the predictor `step`: complementarity mu. In place: first, second, right."""
    for i in range(x.s.shape[0]):
        first = x.lower_side[i] * (mu - step.beta[i] * step.z[i]) - x.s[i] * x.z[i]
        second = x.upper_side[i] * (mu + step.beta[i] * step.t[i]) - x.u[i] * x.t[i]
        dual = x.gradient[i] + bias - x.z[i] + x.t[i]
        step.first[i] = first
        step.second[i] = second
        step.right[i] = -dual + first * step.by_s[i] - second * step.by_u[i]


@jit(sums=True)
def move(x, step, length, db):
    """Take the step. Returns sum(beta). In place: x."""
    total = 0.0
    for i in range(x.s.shape[0]):
        by = length * step.beta[i]
        x.beta[i] += by
        x.s[i] += x.lower_side[i] * by
        x.u[i] -= x.upper_side[i] * by
        x.z[i] += length * step.z[i]
        x.t[i] += length * step.t[i]
        x.gradient[i] += length * (step.fitted[i] - db * step.fitted_unit[i]) + x.diag[i] * by
        total += x.beta[i]
    return total


@jit(sums=True)
def advance(x, step, design, bias, excess, mu, equality):
    """One predictor-corrector step at complementarity mu: (its length, the bias, sum(beta)). In place: x, step, design.

    Length 0: the system could not be factorised.
    """
    normal, n = design.normal, x.s.shape[0]
    to_points(design, step.inverse, design.values[0])
    weighted_gram(design.rows, design.values[0], normal)
    for k in range(normal.shape[0]):
        normal[k, k] += 1.0
    if not factorise(normal):
        return 0.0, bias, excess
    columns_times(design.panels, design.values[:1], design.sums[:1])
    solve(normal, design.sums[0])
    rows_times(design.panels, design.sums[:1], design.values[:1])
    to_variables(design, design.values[0], step.fitted_unit)
    for i in range(n):
        step.unit[i] = step.inverse[i] * (1.0 - step.fitted_unit[i])
    reach = direction(x, step, design, excess, equality)[1]
    after = complementarity_after(x, step, reach)
    corrected_targets(x, bias, step, mu * min((after / mu) ** 3, 1.0))
    db, reach = direction(x, step, design, excess, equality)
    length = min(1.0, BACK_OFF * reach)
    return length, bias + length * db, move(x, step, length, db)
