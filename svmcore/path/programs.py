"""The linear programs of the published path algorithm: how far lambda falls where there is a null space."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from svmcore._types import NONZERO, FloatArray, IntArray
from svmcore.base.highs import LinearProgram
from svmcore.path.elbow_jit import UP
from svmcore.path.published_jit import PublishedState

NOTHING = 1e-13  # entries of a program below this are rounding, which would only spoil it


class Advance(NamedTuple):
    """How far lambda falls, what the null space adds to the elbow, how the bias alone changes, and the boxes' multipliers.

    `found` says whether a linear program has been solved. It is None where the step has a closed form.
    """

    length: float
    shift: FloatArray | None = None
    bias: float = 0.0
    dual: FloatArray | None = None
    found: bool | None = None


def empty_step(program: LinearProgram, state: PublishedState, longest: float) -> Advance:
    """The step for an empty elbow. The bias is the null space, and the program has one row per point (C3)."""
    rows = np.column_stack([-state.slope, -np.ones(state.slope.size)])
    up = state.side == UP
    got = program.solve(
        [-1.0, 0.0], rows, np.where(up, -state.resid, -np.inf), np.where(up, np.inf, -state.resid),
        [0.0, -np.inf], [longest, np.inf],
    )  # fmt: skip
    return Advance(float(got.x[0]), None, float(got.x[1]), found=True) if got.ok else Advance(0.0, found=False)


def null_step(
    program: LinearProgram, state: PublishedState, elbow: IntArray, U: FloatArray, d: FloatArray, longest: float
) -> Advance:
    """(30)-(34): the longest step for which an element of the null space keeps the elbow in its boxes."""
    b, low, up = state.beta[elbow], state.lower[elbow], state.upper[elbow]
    scale = max(longest, NONZERO)
    rows = np.column_stack([-d * scale, U])
    rows[np.abs(rows) < NOTHING] = 0.0
    free = np.full(U.shape[1], np.inf)
    got = program.solve(
        np.concatenate([[-1.0], np.zeros(free.size)]), rows, np.minimum(low - b, 0.0), np.maximum(up - b, 0.0),
        np.concatenate([[0.0], -free]), np.concatenate([[1.0], free]),
    )  # fmt: skip
    if not got.ok:
        return Advance(0.0, np.zeros(elbow.size), dual=np.zeros(elbow.size), found=False)
    return Advance(float(got.x[0]) * scale, U @ got.x[1:], dual=got.dual, found=True)
