"""Step functions of C: where they are defined, their best intervals, and their mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from svmcore import InputError, StepCurve

pytestmark = pytest.mark.compiled


def curve(breakpoints, values, low=0.0, high=10.0) -> StepCurve:
    return StepCurve(np.array(breakpoints, dtype=float), np.array(values, dtype=float), low, high)


@st.composite
def curves(draw):
    low = draw(st.sampled_from([0.0, 0.5, 1.0]))
    inside = sorted(draw(st.sets(st.integers(5, 39), max_size=6)))
    values = draw(st.lists(st.integers(0, 4), min_size=len(inside) + 1, max_size=len(inside) + 1))
    return curve([k / 4.0 for k in inside], [v / 4.0 for v in values], low, draw(st.sampled_from([10.0, 20.0])))


@given(curves())
def test_the_best_interval_holds_the_minimum_and_nothing_larger(c):
    low, high = c.best_interval
    assert c.C_min <= low <= high <= c.C_max
    assert c(c.best_C) == c.minimum == c.values.min()
    inside = np.linspace(low, high, 102)[1:-1]
    assert (c(inside) == c.minimum).all()
    every = np.linspace(c.C_min, c.C_max, 1001)[1:-1]
    rows = c.best_intervals
    covered = ((every[:, None] >= rows[:, 0]) & (every[:, None] < rows[:, 1])).any(axis=1)
    assert (covered == (c(every) == c.minimum)).all()


@given(st.lists(curves(), min_size=1, max_size=5), st.data())
def test_the_mean_is_the_mean_everywhere(folds, data):
    weights = data.draw(st.lists(st.integers(1, 3), min_size=len(folds), max_size=len(folds)))
    mean = StepCurve.mean(folds, weights)
    assert mean.C_min == max(c.C_min for c in folds)
    assert mean.C_max == min(c.C_max for c in folds)
    C = np.linspace(mean.C_min, mean.C_max, 371)[1:]
    np.testing.assert_allclose(mean(C), np.average([c(C) for c in folds], axis=0, weights=weights), atol=1e-12)
    assert (np.diff(mean.values) != 0.0).all()


def test_equal_values_that_round_differently_are_one():
    third = [curve([1.0, 2.0], [a, b, a]) for a, b in ((0.1, 0.2), (0.2, 0.3), (0.3, 0.1))]
    assert StepCurve.mean(third).breakpoints.size == 0


def test_a_range_from_zero_has_a_best_C():
    c = curve([1.0], [0.0, 0.5])
    assert c.best_interval == (0.0, 1.0)
    assert 0.5 < c.best_C < 1.0
    c = curve([1.0, 2.0, 8.0], [0.0, 0.5, 0.0, 0.5])  # log 4 is wider than log 2
    assert c.best_interval == (2.0, 8.0)
    assert c.best_C == 4.0
    assert c.best_intervals.tolist() == [[0.0, 1.0], [2.0, 8.0]]


def test_a_single_C_is_a_curve_too():
    c = curve([], [0.25], 2.0, 2.0)
    assert (c(2.0), c.best_C, c.best_interval) == (0.25, 2.0, (2.0, 2.0))


def test_outside_is_refused_with_the_range():
    c = curve([1.0], [0.5, 0.25], 0.5)
    assert c([0.5, 1.0, 10.0]).tolist() == [0.5, 0.25, 0.25]
    for C in (20.0, [1.0, 20.0]):
        refused(r"C=20 lies outside the curve, C from 0\.5 to 10", c, C)
    for C in (0.0, -1.0, np.nan):
        refused("is no positive number", c, C)
    refused("outside the curve, C up to 10", curve([1.0], [0.5, 0.25]), 11.0)


def test_it_is_printed_in_one_line():
    c = curve(np.linspace(1.0, 9.0, 500), np.arange(501.0), 0.5)
    assert repr(c) == "<StepCurve: C from 0.5 to 10, 501 steps, minimum 0 for C from 0.5 to 1>"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [0.5], 0.0, 10.0), "one value more"),
        (([2.0, 1.0], [0.5, 0.5, 0.5], 0.0, 10.0), "must increase"),
        (([20.0], [0.5, 0.5], 0.0, 10.0), "must increase, and lie between"),
        (([], [0.5], 3.0, 2.0), "cannot reach from 3 to 2"),
    ],
)
def test_what_is_no_step_function_is_refused(arguments, message):
    refused(message, curve, *arguments)


def test_a_mean_needs_curves_that_meet():
    refused("no curve", StepCurve.mean, [])
    with pytest.raises(InputError, match="no C in common: one begins at 5, another ends at 2"):
        StepCurve.mean([curve([], [1.0], 0.0, 2.0), curve([], [1.0], 5.0, 9.0)])
    for weights in ([1.0], [1.0, -1.0], [0.0, 0.0], [1.0, np.nan]):
        refused("2 numbers, one per curve", StepCurve.mean, [curve([], [1.0]), curve([], [1.0])], weights)
