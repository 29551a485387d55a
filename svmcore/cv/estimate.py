"""What exact paths will cost, from the paths of two samples. It counts work, not seconds: the same choice on every run."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svmcore._control import new_control
from svmcore._types import IntArray
from svmcore.cv.folds import Fold
from svmcore.cv.members import Study
from svmcore.path.driver import Way, follow_data
from svmcore.problem import border
from svmcore.problem.division import Sides

SLOW = 300.0
"""Seconds of one processor from which on a user hears of them first."""
_SAMPLES = (500, 1000)
_SECONDS = 0.13e-9  # per event, point on the margin and training row: measured from n = 1,000 to 4,000
_MATRICES = 3.0  # a path holds so many matrices over the points on the margin
_MEMORY = 0.5  # they may take this share of the free memory


class Estimate(NamedTuple):
    """Seconds for all folds by one processor, the most points on the margin at once, and whether memory is too small for
    their matrix."""

    seconds: float
    elbow: float
    too_large: bool


def estimate(study: Study, gamma: Any, folds: list[Fold]) -> Estimate:
    """The cost of the exact paths of all folds for one gamma."""
    fold = max(folds, key=lambda each: each.train.size)
    codes = study.codes[fold.train]
    sizes = np.array([np.count_nonzero(part.holds(codes)) for part in study.division.parts], dtype=np.float64)
    if sizes.max() <= _SAMPLES[-1]:
        return Estimate(0.0, 0.0, False)
    largest = study.division.parts[int(sizes.argmax())]
    rows = fold.train[largest.holds(codes)]
    small, large = (_sampled(study, gamma, rows, largest, size) for size in _SAMPLES)
    growth = np.log(_SAMPLES[1] / _SAMPLES[0])
    power = float(np.clip(np.log(large[0] / small[0]) / growth, 1.0, 3.0))
    elbow_power = float(np.clip(np.log(large[1] / small[1]) / growth, 0.0, 1.0))
    seconds = _SECONDS * large[0] * len(folds) * float(((sizes / _SAMPLES[1]) ** power).sum())
    elbow = large[1] * float((sizes.max() / _SAMPLES[1]) ** elbow_power)
    room = _MEMORY * border.available_bytes()
    return Estimate(seconds, elbow, _MATRICES * 8.0 * elbow**2 > room)


def _sampled(study: Study, gamma: Any, rows: IntArray, part: Sides, size: int) -> tuple[float, float]:
    """The work of the path of a sample, and its most points on the margin."""
    positive = part.positive(study.codes[rows])
    rng = np.random.default_rng(0)
    chosen: list[IntArray] = []
    for own in (rows[~positive], rows[positive]):
        own = own if study.weights is None else own[study.weights[own] > 0.0]
        count = max(1, round(size * own.size / rows.size))
        chosen.append(rng.permutation(own)[:count])
    some = np.sort(np.concatenate(chosen))
    control = new_control("path", None, None, 0)
    path = follow_data(study.data(gamma, some, part), Way(study.span.high, study.span.low), control)
    elbow = np.diff(path._track.offset)
    work = float(path.stats["n_events"]) * float(elbow.mean()) * some.size
    return max(work, 1.0), max(float(elbow.max()), 1.0)
