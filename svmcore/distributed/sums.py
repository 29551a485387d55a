"""What a part says of a dual point, what all parts say together, and the certificate that follows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import DualQP, FloatArray
from svmcore.problem import measures

COUNT = 5  # totals of a measured point


class Sums(NamedTuple):
    """What a part answers: sums, least and largest values. Of weights: Z' E Z (lower half), Z' E for each, their sums."""

    totals: FloatArray
    columns: FloatArray = np.zeros(0)
    gram: FloatArray = np.zeros(0)
    low: FloatArray = np.zeros(0)
    high: FloatArray = np.zeros(0)


def joined(parts: list[Sums]) -> Sums:
    """The answers of several parts as one."""
    totals, columns, gram, low, high = parts[0]
    for part in parts[1:]:
        totals, columns, gram = totals + part.totals, columns + part.columns, gram + part.gram
        low, high = np.minimum(low, part.low), np.maximum(high, part.high)
    return Sums(totals, columns, gram, low, high)


def measured(qp: DualQP, beta: FloatArray, v: FloatArray, bias: float) -> Sums:
    """Free variables and the sum of their residuals, the dual objective, the gap, support; extremes of the residual."""
    free = (beta < qp.upper) & (beta > qp.lower)
    top, bottom = measures.extremes(qp, beta, v)
    totals = [
        np.count_nonzero(free), v[free].sum(), -measures.objective(qp, beta, v), measures.gap(qp, beta, v, bias),
        np.count_nonzero(beta),
    ]  # fmt: skip
    return Sums(np.array(totals, dtype=np.float64), low=np.array([bottom]), high=np.array([top]))


class Standing(NamedTuple):
    """How good a dual point is; at which bias its gap was measured."""

    violation: float
    bias: float
    dual: float
    gap: float
    free: int
    support: int


UNKNOWN = Standing(np.nan, np.nan, np.nan, np.nan, 0, 0)
"""What a sample tells of a point."""


def standing(at: Sums, bias: float, equality: bool) -> Standing:
    """What the parts say together of a point that all have measured at this bias."""
    (free, _, dual, gap, support), top, bottom = at.totals[:COUNT].tolist(), float(at.high[0]), float(at.low[0])
    return Standing(float(measures.spread(top, bottom, equality)), bias, dual, gap, int(free), int(support))


def bias_of(at: Sums, equality: bool) -> float:
    """The mean residual of the free variables; the midpoint of what is optimal where there are none."""
    free, total = at.totals[:2].tolist()
    return measures.middle(free, total, float(at.high[0]), float(at.low[0])) if equality else 0.0
