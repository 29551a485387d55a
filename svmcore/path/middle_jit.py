"""The middle of what bounds the intercept where nothing moves on a path."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import FloatArray
from svmcore.compiler.jit import jit

CORNERS = 1000
"""The middle gets at most so many corners between two knots. From there on it is a chord."""


class Bounds(NamedTuple):
    """What bounds the intercept at one b, as lines ``t slope + rest``.

    It is above the lines of variables that can grow, and below those of variables that can shrink.
    """

    slope: FloatArray
    rest: FloatArray
    grows: np.ndarray
    shrinks: np.ndarray


@jit
def _highest(slope, rest, on, sign, t):
    """The largest of the lines of one side at t. -inf where there is none."""
    best = -np.inf
    for i in range(slope.shape[0]):
        if on[i]:
            best = max(best, sign * (t * slope[i] + rest[i]))
    return best


@jit
def middle(bounds, t):
    """The middle of what bounds the intercept at t. If there is one bound only, it is this bound."""
    low = _highest(bounds.slope, bounds.rest, bounds.grows, 1.0, t)
    high = -_highest(bounds.slope, bounds.rest, bounds.shrinks, -1.0, t)
    if low == -np.inf:
        return high
    return low if high == np.inf else 0.5 * (low + high)


@jit
def _highest_line(slope, rest, on, sign, t):
    """The line of one side that is largest just below t: of equal ones the flattest. -1 where there is none."""
    k = -1
    best = 0.0
    for i in range(slope.shape[0]):
        if on[i]:
            at = sign * slope[i] if t == np.inf else sign * (t * slope[i] + rest[i])
            flatter = k < 0 or sign * slope[i] < sign * slope[k]
            as_flat = k >= 0 and slope[i] == slope[k] and sign * rest[i] > sign * rest[k]
            if k < 0 or at > best or (at == best and (flatter or as_flat)):
                k, best = i, at
    return k


@jit
def _corners(slope, rest, on, sign, begin, end, out):
    """Write where the largest of the lines of one side changes strictly between two t, the largest t first.

    While t falls, each change is to a smaller slope. Returns how many there are, and at most the length of `out`.
    """
    n = 0
    k = _highest_line(slope, rest, on, sign, begin)
    t = begin
    while k >= 0 and n < out.shape[0]:
        next_k = -1
        meets = -np.inf
        for i in range(slope.shape[0]):
            if on[i] and sign * slope[i] < sign * slope[k]:
                at = (rest[i] - rest[k]) / (slope[k] - slope[i])
                if next_k < 0 or at > meets or (at == meets and sign * slope[i] < sign * slope[next_k]):
                    next_k, meets = i, at
        t = min(t, meets)
        if next_k < 0 or not t > end:
            break
        if t < begin:
            out[n] = t
            n += 1
        k = next_k
    return n


@jit
def corners(bounds, begin, end, scratch, out):
    """Write the corners of the middle strictly between two t, the largest t first, as rows (t, middle). Returns how many.

    In place: out, and scratch, which has two rows of `CORNERS` numbers.
    """
    above = _corners(bounds.slope, bounds.rest, bounds.grows, 1.0, begin, end, scratch[0])
    below = _corners(bounds.slope, bounds.rest, bounds.shrinks, -1.0, begin, end, scratch[1])
    n = i = j = 0
    while i < above or j < below:
        if j == below or (i < above and scratch[0, i] >= scratch[1, j]):
            t = scratch[0, i]
            i += 1
        else:
            t = scratch[1, j]
            j += 1
        if n == 0 or t < out[n - 1, 0]:
            out[n, 0] = t
            out[n, 1] = middle(bounds, t)
            n += 1
    return n


@jit
def centre(runs, values, rest, low, high, bounds, at, bias, above, scratch, out):
    """Put the bias into the middle in some runs, and write the corners there, as rows (t, middle).

    A variable grows below `high`, and shrinks above `low`. With above > 0 the run at knot 0 goes on upwards to this t.
    Returns how many runs are done, as far as there is room, and how many rows there are.
    In place: bias, out, bounds, scratch.
    """
    n = 0
    for r in range(runs.shape[0]):
        if n + 2 * scratch.shape[0] * scratch.shape[1] > out.shape[0]:
            return r, n
        for i in range(low.shape[0]):
            bounds.rest[i] = rest[r, i]
            bounds.grows[i] = values[r, i] < high[i]
            bounds.shrinks[i] = values[r, i] > low[i]
        first, last = runs[r, 0], runs[r, 1]
        if first == 0 and above > 0.0:
            begin = n
            n += corners(bounds, np.inf, at[0], scratch, out[n:])
            far = begin
            while far < n and out[far, 0] >= above:
                far += 1
            if far > begin:  # they lead too far
                out[begin, 0] = above
                out[begin, 1] = middle(bounds, above)
                for row in range(far, n):
                    out[begin + 1 + row - far, 0] = out[row, 0]
                    out[begin + 1 + row - far, 1] = out[row, 1]
                n += begin + 1 - far
        n += corners(bounds, at[first], at[last], scratch, out[n:])
        for k in range(first if first == 0 else first + 1, last + 1):
            bias[k] = middle(bounds, at[k])
    return runs.shape[0], n
