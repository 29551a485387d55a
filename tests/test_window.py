"""The pieces of a window of events: tiles of rank-one terms, the lazy inverse, the choice of candidates."""

from __future__ import annotations

import numpy as np
import pytest

from svmcore.path import stretch_jit as sj
from svmcore.path import window_jit as wj
from svmcore.path.window import new_stretch, new_window


@pytest.mark.parametrize("pending", [0, 1, 9, sj.LONGEST])
@pytest.mark.parametrize("slots", [1, 6, 61])
def test_flush_adds_what_is_pending_to_the_lower_triangle(pending, slots):
    rng = np.random.default_rng([1, slots, pending])
    start = max(1, slots - 4)
    capacity = slots + sj.ROOM
    w, q = new_window(100, capacity, 40), new_stretch(100, np.ones(100), capacity)
    w.count[[wj.SLOTS, wj.START, wj.PENDING]] = slots, start, pending
    w.V[:] = np.nan
    w.V[:pending, :slots] = rng.normal(size=(pending, slots))
    w.sign[:pending] = rng.choice([-1.0, 1.0], pending)
    A = rng.normal(size=(capacity, capacity))
    expected = np.zeros((slots, slots))
    expected[:start, :start] = A[:start, :start]
    V = w.V[:pending, :slots].copy()
    expected += (V * w.sign[:pending, None]).T @ V
    sj.flush_inverse(A, w, q.bend)
    assert np.tril(A[:slots, :slots]) == pytest.approx(np.tril(expected), abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_smallest_is_the_value_that_sorting_puts_there(seed):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 5, 50).astype(float) if seed % 2 else rng.normal(size=50)
    k = int(rng.integers(0, 50))
    assert sj.smallest(a.copy(), 50, k) == np.sort(a)[k]
