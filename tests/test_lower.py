"""What compiled code means is what Python means: indices, ranges, variables, fields of records, in all their forms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from checkouts import ran
from numba.core.errors import TypingError

from svmcore.compiler.jit import DISABLED, OBSTACLE, jit

if not OBSTACLE:
    from svmcore.compiler.quick import _SLOWER as numba_itself

pytestmark = [pytest.mark.compiled, pytest.mark.skipif(bool(OBSTACLE), reason="numba's own compiler is used")]


class Room(NamedTuple):
    """A record."""

    line: Any
    table: Any
    scale: float
    count: int


Room.__module__ = "svmcore.test"  # records are passed by reference where they are ours


def compiled(function):
    function.__module__ = "svmcore.compiler.jit"  # whose text is known; the functions here are in no cache
    root = jit(function)
    root._cache.disable()
    return root


def agrees(function, *args):
    expected = function(*[np.copy(a) if isinstance(a, np.ndarray) else a for a in args])
    assert compiled(function)(*args) == expected


def from_either_end(a, table, i, j):
    table[i, -1] = a[-1] + a[-i]
    table[-1, j] += a[i]
    row = table[i]
    row[-j] = 3.0
    return table[i, j] + table[i - 4, j - 3] + row[-1] + row[0] + table[1][2]


@pytest.mark.parametrize("i", [1, 2, 3])
@pytest.mark.parametrize("step", [1, 2])
def test_indices_count_from_either_end_in_arrays_of_any_stride(i, step):
    a, table = np.arange(16.0)[::step], np.arange(24.0).reshape(4, 6)[:, ::step]
    expected = table.copy()
    value = from_either_end(a, expected, i, 1)
    assert compiled(from_either_end)(a, table, i, 1) == value
    np.testing.assert_array_equal(table, expected)


def types_of_elements(flags, bytes_, singles, i):
    flags[i] = singles[i] > 1.5
    bytes_[i] = 250 + i
    singles[i] = i
    return flags[i] + bytes_[i] + singles[i - 1]


def test_elements_are_converted_to_the_type_of_their_array():
    flags, bytes_, singles = np.zeros(4, bool), np.zeros(4, np.uint8), np.array([1, 2, 3, 4], np.float32)
    assert compiled(types_of_elements)(flags, bytes_, singles, 2) == 1 + 252 + 2.0
    assert flags[2]
    assert bytes_[2] == 252
    assert singles[2] == 2.0


def unsigned(a, at):
    return a[at[0]] + a[at[1]]


def test_unsigned_indices():
    agrees(unsigned, np.arange(5.0), np.array([4, 1], np.uint64))


def ranges(low, high, step):
    seen = 0
    for i in range(high):
        seen = 3 * seen + i
    for i in range(low, high):
        for _ in range(i):
            seen += 1
        if i == 7:
            break
    else:
        seen += 1000
    for i in range(low, high, step):
        i += 1
        seen = 5 * seen + i
    return seen % 1000003


@pytest.mark.parametrize(("low", "high", "step"), [(0, 5, 1), (2, 12, 3), (5, 0, 1), (9, 2, -2), (4, 4, 1), (-3, 2, 2)])
def test_ranges(low, high, step):
    agrees(ranges, low, high, step)


def variables(a, n):
    first = a[0]
    before, total = 0.0, 0.0
    for t in range(n):
        now = a[t]  # assigned once, used in other blocks
        if now > first:
            larger = now - first
            total += larger * before
        else:
            total -= before
        before, first = now, max(first, now - 1.0)  # swapped at once
    while n > 0:
        half = n // 2
        if half == 3:
            total += half
        n = half
    return total + before


def test_variables_keep_what_was_assigned_last():
    rng = np.random.default_rng(0)
    for n in (1, 2, 6, 13):
        agrees(variables, rng.standard_normal(16), n)


def fields(room, n):
    total = room.scale
    for t in range(n):
        room.line[t] += room.scale
        if t % 2 == 0:
            total += room.table[t, 1] * room.line[t]
        else:
            other = room.table
            total -= other[t, 0] + room.count
    return total + room.table.shape[0] + room.line.shape[0] * room.table.shape[1] + len(room.line)


@pytest.mark.parametrize("step", [1, 2])
def test_fields_of_records(step):
    def room():
        return Room(np.arange(8.0)[::step], np.arange(24.0).reshape(8, 3)[:, ::step], 0.5, 3)

    ours, plain = room(), room()
    assert compiled(fields)(ours, 4) == fields(plain, 4)
    np.testing.assert_array_equal(ours.line, plain.line)


class Own(np.ndarray):
    """Somebody's array."""


def weighed(a, table):
    total = 100.0 * a.shape[0] + 10.0 * table.shape[0] + table.shape[1]
    for i in range(table.shape[0]):
        for j in range(table.shape[1]):
            total += (i + 1) * (j + 2) * table[i, j] * a[i]
    return total


@pytest.mark.parametrize(
    "form",
    [
        np.ascontiguousarray,
        np.asfortranarray,
        lambda table: np.repeat(table, 3, axis=1)[:, ::3],
        lambda table: table[::-1, ::-1],
        lambda table: np.broadcast_to(table[0], table.shape),
        lambda table: table.view(Own),
        lambda table: table[:0],
        lambda table: table[:, :0],
        lambda table: table.astype(np.float32),
    ],
)
def test_arrays_of_any_form_come_from_python(form):
    table = np.arange(12.0).reshape(3, 4)
    agrees(weighed, np.arange(1.0, 4.0), form(table))


def pairs(both, k):
    return both[0][k] - both[1][k, k]


def test_arrays_in_tuples_come_from_python():
    both = np.arange(5.0)[::2], np.arange(9.0).reshape(3, 3)
    assert compiled(pairs)(both, 2) == 4.0 - 8.0


def _half(x):
    return x / 2


def becomes_a_float(n):
    total, other = 0, 1
    for i in range(n):
        other = total
        total = HALF(other) + i
    return total + other


def test_types_that_change_in_a_loop_are_followed_until_nothing_changes():
    """The first time through, the argument of a call is a whole number; then it is none."""
    agrees(becomes_a_float, 7)


HALF = _half if DISABLED else compiled(_half)


def adds_a_name(a):
    return a[0] + "name"


def test_what_does_not_compile_says_where_and_leaves_numba_as_it_was():
    with pytest.raises(TypingError, match=r"typing of intrinsic-call at .*test_lower"):
        compiled(adds_a_name)(np.arange(3.0))
    assert all(getattr(owner, name) is method for (owner, name), method in numba_itself.items())
    assert not any(method.__module__ == "svmcore.compiler.quick" for method in numba_itself.values())


LITTLE = """
import sys
import numpy as np
import svmcore
from svmcore.compiler.jit import jit
X = np.random.default_rng(0).standard_normal((200, 3))
svmcore.train_svc(X, np.where(X[:, 0] * X[:, 1] > 0, 1, -1), 1.0)
print("numba.np.linalg" in sys.modules)
def total(a):
    return a.sum()
total.__module__ = "svmcore.compiler.jit"
root = jit(total)
root._cache.disable()
print(root(np.arange(4.0)))
"""


@pytest.mark.ci
def test_a_fit_needs_little_of_numba_and_a_home_may_need_more(tmp_path):
    for _ in range(2):  # compiled, then from the disk
        assert ran(LITTLE, NUMBA_CACHE_DIR=str(tmp_path))[0].split() == ["False", "6.0"]
