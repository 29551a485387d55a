"""Whether features are of one scale, and the warning where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import ScaleWarning, warn
from svmcore._types import FloatArray, Kernel
from svmcore.kernel.points import is_sparse
from svmcore.kernel.table import facts_of
from svmcore.simd.sums import look_over

LARGEST = 1e150  # squares of larger numbers overflow

# Ratios of spreads. From _UNEVEN on distances are those of one feature alone. From _SLOW on it explains why a fit was slow.
_UNEVEN, _SLOW = 100.0, 1e3
_GLANCE, _LEAST, _LOOKED_AT = 64, 8, 1 << 13  # rows that are looked at first: at most, at least, and their values
_AT_ONCE = 1 << 14  # values that are centred together
_NO_DOUBT = 20.0  # a ratio of ranges there that leaves nothing to look for
_AT_AN_END = 0.9  # share of values at the least or the largest one from which a feature counts as a rare event
_PRESENT = 0.01  # share of the rows in which a sparse feature must be present to count

_REMEDY = "Scale the features first: standardize=True does it (on the command line: --standardize)"


class Look(NamedTuple):
    """What one pass over dense points tells.

    How many values are no numbers of at most `LARGEST`, the variance of all of them, and of a few rows the least and the
    largest range of a feature, and the ends of all.
    """

    wrong: float
    variance: float
    least: float
    most: float
    low: FloatArray
    high: FloatArray


def look_at(X: FloatArray) -> Look:
    """One pass over points, which are there."""
    n, d = X.shape
    low, high, seen = np.empty(d), np.empty(d), np.empty(4)
    rows = max(_LEAST, min(_GLANCE, _LOOKED_AT // d))
    with np.errstate(invalid="ignore", over="ignore"):  # plain Python tells of infinite values, which are counted here
        look_over(X, X.reshape(-1), LARGEST, max(1, n // rows), low, high, seen)
    wrong, variance, least, most = seen.tolist()
    return Look(wrong, variance, least, most, low, high)


def _dense_spreads(X: FloatArray, varies: NDArray[np.bool_]) -> FloatArray:
    """Standard deviations; of a rare event (a one-hot column, say) half its range: rarity is no scale."""
    mean, square = np.add.reduce(X) / len(X), np.zeros(X.shape[1])
    step = max(1, _AT_ONCE // X.shape[1])
    room = np.empty((min(step, len(X)), X.shape[1]))
    for start in range(0, len(X), step):  # new memory for all of X would take longer than the work
        some = X[start : start + step]
        away = np.subtract(some, mean, out=room[: len(some)])
        square += np.einsum("ij,ij->j", away, away)
    spread = np.where(varies, np.sqrt(square / len(X)), 0.0)
    narrow = np.flatnonzero((spread > 0) & (spread < spread.max(initial=0.0) / _UNEVEN))
    few = X[:, narrow]
    low, high = few.min(axis=0), few.max(axis=0)
    rare = np.add.reduce((few == low) | (few == high)) >= _AT_AN_END * len(X)
    spread[narrow[rare]] = 0.5 * (high - low)[rare]
    return spread


def _sparse_spreads(X: Any) -> FloatArray:
    """The typical size of a feature where it is present; 0 for one that hardly ever is."""
    count = np.bincount(X.indices, minlength=X.shape[1])
    square = np.bincount(X.indices, weights=X.data * X.data, minlength=X.shape[1])
    return np.where(count >= _PRESENT * X.shape[0], np.sqrt(square / np.maximum(count, 1)), 0.0)


def _ratio(spreads: FloatArray) -> tuple[float, int, int]:
    varying = np.flatnonzero(spreads > 0)
    if len(varying) < 2:
        return 1.0, 0, 0
    widest, narrowest = varying[spreads[varying].argmax()], varying[spreads[varying].argmin()]
    return float(spreads[widest] / spreads[narrowest]), int(widest), int(narrowest)


def unevenness(X: Any, look: Look | None = None) -> tuple[float, int, int]:
    """The largest ratio of spread between two features that vary, and which two: (ratio, widest, narrowest).

    Where a glance at a few rows shows no great difference, the answer is 1.
    """
    if is_sparse(X):
        return _ratio(_sparse_spreads(X))
    _, _, least, most, low, high = look_at(np.ascontiguousarray(X)) if look is None else look
    if most <= _NO_DOUBT * least:
        return 1.0, 0, 0
    ranges = high - low
    if least == 0.0:
        still = np.flatnonzero(ranges == 0)
        ranges[still] = np.ptp(X[:, still], axis=0)
        least, most = np.min(ranges, where=ranges > 0, initial=np.inf), ranges.max(initial=0.0)
        if most <= _NO_DOUBT * least:
            return 1.0, 0, 0
    return _ratio(_dense_spreads(X, ranges > 0))


def warn_of_scales(
    X: Any, kernel: Kernel, by_scale: bool, *, slow: bool = False, names: Sequence[str] | None = None,
    look: Look | None = None,
) -> None:  # fmt: skip
    """Warn where scales make a distance kernel with gamma="scale" (`by_scale`) meaningless, or made a fit `slow`.

    `look` is what is known of X.
    """
    if not (by_scale or slow) or (look is not None and look.most <= _NO_DOUBT * look.least):
        return
    facts = facts_of(kernel)
    blind = by_scale and facts.exponential
    if not (blind or slow) or not facts.measure:
        return
    ratio, widest, narrowest = unevenness(X, look)
    if ratio <= (_UNEVEN if blind else _SLOW):
        return
    wide, narrow = (repr(names[k]) if names is not None else str(k) for k in (widest, narrowest))
    effect = (
        'so with gamma="scale" the machine sees next to nothing of the other' if blind else "which makes the fit slow"
    )
    # A round number: folds of the same data say the same, and Python shows it once.
    digits = int(np.log10(min(ratio, 1e308)))
    times = f"{10**digits:,}" if digits < 10 else f"1e{digits}"
    warn(f"feature {wide} spreads over {times} times wider than feature {narrow}, {effect}. {_REMEDY}.", ScaleWarning)
