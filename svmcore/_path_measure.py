"""How good a path is: duality gap and KKT violation at values of lambda, recomputed from kernel products.

Of a path that has just been computed the gap is measured at knots and between them, over all of its length (`largest_gap`),
with the kernel rows that are there. A finished path is measured from the data, for any C (`certify`): a few values first,
so that there is an answer when the work must stop, then all others in one pass over the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from svmcore._control import Control
from svmcore._cross import Cross
from svmcore._rows import RowStore
from svmcore._types import FloatArray, Status

SAMPLE = 24
"""Values of lambda at which a new path is measured, at most."""
_PIECE = 1 << 26  # kernel values times features, or products, computed between two looks at the clock
_HELD = 1 << 21  # values of variables held
_FIRST = 1  # values of C in the first pass over the kernel
_MORE = 4  # so many times as many in each pass that follows


class Measured(NamedTuple):
    """KKT violation (LIBSVM's) and relative duality gap, one per value of lambda."""

    violation: FloatArray
    gap: FloatArray


class Point(NamedTuple):
    """What is measured: lambda, the variables (one row per lambda) and the bias, in hat variables."""

    lam: FloatArray
    beta: FloatArray
    bias: FloatArray


def at_lambda(path: Any, lam: FloatArray) -> Point:
    """The path's own record at values of lambda."""
    return Point(lam, *path._hat(lam))


def measure(path: Any, point: Point, product: FloatArray) -> Measured:
    """The measures, given K beta (with the embedded offset) in rows as `point.beta`."""
    lam, beta, bias = point
    lower, upper = _boxes(path)
    v = lam[:, None] * path._sign - product
    u = v - bias[:, None]
    gap = np.maximum(u * (upper - beta), u * (lower - beta)).sum(axis=1) - bias * beta.sum(axis=1)
    dual = -0.5 * np.einsum("ij,ij->i", beta, lam[:, None] * path._sign + v)
    top = np.where(beta < upper, v, -np.inf).max(axis=1, initial=-np.inf)
    bottom = np.where(beta > lower, v, np.inf).min(axis=1, initial=np.inf)
    violation = np.maximum(top - bottom, 0.0) if path._data.equality else np.maximum(np.maximum(top, -bottom), 0.0)
    return Measured(violation / lam, gap / np.maximum(np.abs(gap - dual), 1e-300))


def _boxes(path: Any) -> tuple[FloatArray, FloatArray]:
    return np.where(path._sign > 0, 0.0, -path._upper), np.where(path._sign > 0, path._upper, 0.0)


# ---- a path that has just been computed --------------------------------------------------------------------------------


def sample(path: Any, most: int = SAMPLE) -> FloatArray:
    """Values of lambda over all of a path: knots at equal distances in their order, and the middles behind them.

    A quarter of them are the longest steps in log lambda, where rounding has most room.
    """
    at = np.unique(path._track.knot[:, 0])[::-1]
    if at.size < 2:
        return at
    steps = max(1, most // 2)
    spread = np.linspace(0, at.size - 2, max(1, steps - steps // 4)).astype(int)
    long = np.argsort(-np.log(at[:-1] / at[1:]), kind="stable")[: steps // 4]
    chosen = np.union1d(spread, long)
    return np.unique(np.concatenate([at[chosen], 0.5 * (at[chosen] + at[chosen + 1]), at[-1:]]))[::-1]


def largest_gap(path: Any, store: RowStore, control: Control, most: int = SAMPLE) -> float:
    """The largest relative gap over `sample(path)`; -inf when the work must stop before it is known."""
    point = at_lambda(path, sample(path, most))
    product = _stored_products(store, point.beta, control) if store.whole else None
    if product is None:
        product = _products(path, point.beta, lambda: control.reason() is None)
    return -np.inf if product is None else float(measure(path, point, product).gap.max())


def _stored_products(store: RowStore, beta: FloatArray, control: Control) -> FloatArray | None:
    n = store.n
    out = np.empty((beta.shape[0], n))
    step = max(1, _PIECE // (n * max(1, beta.shape[0])))
    for a in range(0, n, step):
        if control.reason() is not None:
            return None
        out[:, a : a + step] = beta @ store.rows[a : min(a + step, n), :n].T
    return out


# ---- a finished path ---------------------------------------------------------------------------------------------------


def _products(path: Any, beta: FloatArray, go_on: Callable[[], bool]) -> FloatArray | None:
    """K beta in one pass over the kernel; None when the work must stop."""
    data = path._data
    first = data.groups.first
    cross = Cross(data, data.X)
    support = np.flatnonzero(np.any(beta != 0.0, axis=0))
    coef, columns = np.ascontiguousarray(beta[:, support]), cross.columns(support)
    out = np.empty((beta.shape[0], first.size))
    step = max(1, _PIECE // (max(1, support.size) * (4 + beta.shape[0] + data.X.shape[1])))
    for a in range(0, first.size, step):
        if not go_on():
            return None
        rows = first[a : a + step]
        if beta.shape[0] == 1:
            out[0, a : a + step] = cross.values(rows, support, coef[0])
        else:
            out[:, a : a + step] = coef @ cross.block(rows, columns).T
    out += data.spec.kernel.offset * beta.sum(axis=1)[:, None]
    return out


def _groups(n: int, most: int) -> Iterator[slice]:
    size, done = _FIRST, 0
    while done < n:
        yield slice(done, min(done + size, n))
        done, size = done + size, min(size * _MORE, most)


def certify(path: Any, Cs: FloatArray, control: Control) -> tuple[Measured, Status | None]:
    """The measures at the first of `Cs`, as many as could be done, and why not all."""
    lam, C, _ = path._lambdas_of(Cs)

    def demanded() -> bool:
        control.demand()
        return True

    parts: list[Measured] = []
    for group in _groups(C.size, max(1, _HELD // path._sign.size)):
        point = at_lambda(path, lam[group])
        if not parts:
            with control.beginning():
                product = _products(path, point.beta, demanded)
        else:
            product = _products(path, point.beta, lambda: control.reason() is None)
        if product is None:
            return _joined(parts), control.reason()
        parts.append(measure(path, point, product))
        if group.stop < C.size and (status := control.step(group.stop / C.size)) is not None:
            return _joined(parts), status
    return _joined(parts), None


def _joined(parts: list[Measured]) -> Measured:
    return Measured(*(np.concatenate(column) for column in zip(*parts, strict=True)))
