"""A path's record played again, knot by knot, against a plain reading of it."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from repeats import seeds

from svmcore.compiler.jit import DISABLED
from svmcore.path import curve_jit, middle_jit
from svmcore.path.elbow_jit import ELBOW, LOW, UP
from svmcore.path.log_jit import KNOTS as KNOTS_SO_FAR
from svmcore.path.log_jit import Log, loosen_chord, write_knot
from svmcore.path.measure import lost_share
from svmcore.path.middle import _resting
from svmcore.path.problem import BoxPath
from svmcore.path.record import Track

pytestmark = pytest.mark.home

N, KNOTS = 7, 9


def record(seed: int) -> tuple[curve_jit.Replay, np.ndarray, list[set[int]]]:
    """A random path: (record, the values at each knot, the elbow at each knot)."""
    rng = np.random.default_rng(seed)
    bounds = np.vstack([-rng.random(N), rng.random(N)])
    side = rng.choice([LOW, UP, ELBOW], N)
    first = side.copy()
    values, elbows, events, offset, index, inside, knot_events = [], [], [], [0], [], [], []
    for k in range(KNOTS):
        if k:
            for i in rng.permutation(N)[: int(rng.integers(0, 3))]:
                side[i] = rng.choice([s for s in (LOW, UP, ELBOW) if s != side[i]])
                events.append((i, side[i]))
        knot_events.append(len(events))
        on = np.flatnonzero(side == ELBOW)
        beta = bounds[np.minimum(side, 1), np.arange(N)]
        beta[on] = bounds[0, on] + rng.random(len(on)) * (bounds[1, on] - bounds[0, on])
        elbows.append(set(on.tolist()))
        index += on.tolist()
        inside += beta[on].tolist()
        offset.append(len(index))
        values.append(beta)
    R = curve_jit.Replay(
        knot_events=np.array(knot_events), event_index=np.array([e[0] for e in events], np.int64),
        event_to=np.array([e[1] for e in events], np.int64), offset=np.array(offset), index=np.array(index, np.int64),
        value=np.array(inside), bounds=bounds, side=first.astype(np.int64), beta=values[0].copy(),
        place=np.full(N, -1, np.int64),
    )  # fmt: skip
    return R, np.array(values), elbows


def path_of(R: curve_jit.Replay, chord: np.ndarray) -> SimpleNamespace:
    """The record as that of a path."""
    side, moves = R.side.copy(), []
    for i, new in zip(R.event_index, R.event_to, strict=True):
        moves.append((side[i], new, 0))
        side[i] = new
    knots = np.zeros((len(chord), 2))
    track = Track(
        R.side, np.zeros(len(moves)), R.event_index, np.array(moves, np.int8).reshape(-1, 3), knots, chord, R.knot_events,
        R.offset, R.index, R.value,
    )  # fmt: skip
    problem = BoxPath(np.zeros(N), np.zeros(N), *R.bounds, True)
    return SimpleNamespace(_track=track, _problem=problem, _data=SimpleNamespace(equality=True))


def moves_for(n_stretches: int, room: int) -> curve_jit.Moves:
    """Room for moves, full of what nobody may read."""
    return curve_jit.Moves(np.full(n_stretches + 1, -7), np.full(room, -7), np.full(room, np.nan))


def summed(moves: curve_jit.Moves, n: int) -> np.ndarray:
    """How far each of n members moves at each stretch. No member moves twice there."""
    out = np.zeros((len(moves.begin) - 1, n))
    for k in range(len(out)):
        own = slice(moves.begin[k], moves.begin[k + 1])
        assert len(set(moves.member[own])) == moves.begin[k + 1] - moves.begin[k]
        out[k, moves.member[own]] = moves.by[own]
    return out


@seeds(6)
def test_a_record_is_played_in_pieces(seed):
    R, values, elbows = record(seed)
    new = np.full(N, np.nan)
    for first, last in ((0, 3), (3, 4), (4, KNOTS - 1)):
        members = np.full(N, -1)
        n = curve_jit.changing(R, first, last, members)
        on = [i for k in range(first, last + 1) for i in elbows[k]]
        moved = R.event_index[R.knot_events[first] : R.knot_events[last]]
        assert sorted(members[:n]) == sorted({*on, *moved.tolist()})
        assert [R.place[i] for i in members[:n]] == list(range(n))
        moves = moves_for(last - first, 2 * R.offset[-1] + len(R.event_index))
        total = curve_jit.play(R, first, last, members[:n], new, moves)
        assert total == moves.begin[-1]
        assert (moves.by[:total] != 0.0).all()
        assert np.array_equal(summed(moves, n), np.diff(values[first : last + 1, members[:n]], axis=0))
        assert (R.beta == values[last]).all()
        assert (R.place == -1).all()
        ends = np.unique([0, *np.random.default_rng(seed).integers(0, last - first + 1, 2), last - first])
        joined, scratch = moves_for(len(ends) - 1, total), np.zeros(n)
        curve_jit.join(moves, ends, scratch, joined)
        wanted = np.diff(values[first : last + 1, members[:n]][ends], axis=0)
        np.testing.assert_allclose(summed(joined, n), wanted, rtol=0.0, atol=1e-15)
        assert (scratch == 0.0).all()


N_ROWS = curve_jit.TILE + 12


def stage(seed: int) -> tuple[curve_jit.Chords, curve_jit.Moves, curve_jit.Moves, np.ndarray, np.ndarray, np.ndarray]:
    """Random moves, bounds that just hold: (chords, moves from end to end, moves, kernel, values of rows at knots, roots)."""
    rng = np.random.default_rng(seed)
    n_members = 5
    ends = np.array([0, 1, 4, KNOTS - 1])
    at = np.sort(rng.random(KNOTS))[::-1].copy()
    values = np.cumsum(rng.normal(size=(KNOTS, n_members)) * (rng.random((KNOTS, n_members)) < 0.7), axis=0)
    K, level = rng.normal(size=(N_ROWS, n_members)), 3.0 * rng.normal(size=KNOTS)
    first = rng.normal(size=N_ROWS) * 8.0
    lam_f = first + (values - values[0]) @ K.T + (level - level[0])[:, None]
    roots, chord = rng.random(N_ROWS) + 0.5, np.zeros((KNOTS, 2))
    for a, b in pairwise(ends):
        for k in range(a + 1, b):
            share = (at[a] - at[k]) / (at[a] - at[b])
            stray = np.abs(lam_f[k] - (lam_f[a] + share * (lam_f[b] - lam_f[a])))
            chord[k, 1] = 0.3 * stray.max()
            chord[k, 0] = max(1e-9, ((stray - chord[k, 1]) / roots).max())
    moves, joined = (moves_of(np.diff(part, axis=0)) for part in (values, values[ends]))
    return curve_jit.Chords(at, level, chord, ends), joined, moves, K, lam_f, roots


def moves_of(steps: np.ndarray) -> curve_jit.Moves:
    """Moves from how far each member moves at each stretch."""
    stretch, member = np.nonzero(steps)
    begin = np.searchsorted(stretch, np.arange(len(steps) + 1))
    return curve_jit.Moves(begin, member, steps[stretch, member])


@seeds(3)
def test_rows_are_followed_to_every_knot(seed):
    here, _, moves, K, lam_f, _ = stage(seed)
    out = np.full(lam_f.shape, np.nan)
    out[0] = lam_f[0]
    curve_jit.follow_rows(moves, here.level, K, np.full((K.shape[1], curve_jit.TILE), np.nan), out)
    np.testing.assert_allclose(out, lam_f, rtol=0.0, atol=1e-13 * np.abs(lam_f).max())


@seeds(3)
def test_ways_add_up_moves(seed):
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random((7, 5)) < 0.5, rng.normal(size=(7, 5)), 0.0)
    moves, out = moves_of(steps), np.full((7, 5), np.nan)
    moves.begin[-1] -= 1  # one move fewer than there is room for
    steps[6, np.flatnonzero(steps[6])[-1:]] = 0.0
    curve_jit.add_up(moves, out)
    np.testing.assert_array_equal(out, np.cumsum(steps, axis=0))


def tile_for(K: np.ndarray) -> np.ndarray:
    """Scratch for kernel values and two rows more."""
    return np.full((K.shape[1] + 2, curve_jit.TILE), np.nan)


NONE = np.empty((0, 0))


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("room", [0, 3, 2000])
@seeds(8)
def test_changes_of_sign_are_those_of_every_knot(seed, room, dense):
    here, joined, moves, K, lam_f, roots = stage(seed)
    changes = curve_jit.Changes(np.empty(room), np.empty(room, np.int64), np.empty(room, np.bool_))
    out = np.full(N_ROWS, np.nan)
    n_members = K.shape[1]
    steps, every = (summed(joined, n_members) @ K.T, summed(moves, n_members)) if dense else (NONE, NONE)
    n, looked_at = curve_jit.sign_changes(
        here, joined, steps, moves, every, lam_f[0].copy(), K, roots, 1e-11, tile_for(K), changes, out
    )
    np.testing.assert_allclose(out, lam_f[-1], rtol=0.0, atol=1e-13 * np.abs(lam_f).max())
    knot, row = np.nonzero((lam_f[1:] > 0.0) != (lam_f[:-1] > 0.0))
    assert n == row.size
    assert looked_at <= K.shape[0] * 2  # of three chords two have knots between
    if room < n:
        return
    a, b = lam_f[knot, row], lam_f[knot + 1, row]
    lam = here.at[knot] + a / (a - b) * (here.at[knot + 1] - here.at[knot])
    wanted = sorted(zip(row.tolist(), lam.tolist(), (b > 0.0).tolist(), strict=True))
    found = sorted(zip(changes.row[:n].tolist(), changes.at[:n].tolist(), changes.positive[:n].tolist(), strict=True))
    assert [(r, p) for r, _, p in found] == [(r, p) for r, _, p in wanted]
    np.testing.assert_allclose([x for _, x, _ in found], [x for _, x, _ in wanted], rtol=1e-9)


def test_rows_far_from_zero_are_not_looked_at_and_unknown_chords_clear_nobody():
    here, joined, moves, K, lam_f, roots = stage(0)
    first, out = lam_f[0] + 1e6, np.empty(N_ROWS)
    changes = curve_jit.Changes(np.empty(9), np.empty(9, np.int64), np.empty(9, np.bool_))
    assert curve_jit.sign_changes(
        here, joined, NONE, moves, NONE, first, K, roots, 1e-11, tile_for(K), changes, out
    ) == (0, 0)
    here.chord[2] = np.inf  # between the second and the third end
    roots[0] = 0.0  # no number times infinity
    with np.errstate(invalid="ignore"):  # of which plain Python would warn
        found = curve_jit.sign_changes(
            here, joined, NONE, moves, NONE, first, K, roots, 1e-11, tile_for(K), changes, out
        )
    assert found == (0, K.shape[0])


def test_a_knot_is_written_over_whatever_was_there():
    """Behind all that is logged; its chord is not known yet, and the values stand there already."""
    full = {"float": np.full((4, 2), 7.0), "whole": np.full((4, 2), 7)}
    log = Log(
        np.full(4, 7.0), np.full(4, 7), np.full((4, 3), 7, np.int8), full["float"].copy(), full["float"].copy(),
        full["whole"].copy(), np.full(9, 7, np.int32), np.full(9, 7.0), np.array([3, 1, 4]),
    )  # fmt: skip
    write_knot(log, 0.25, -0.5, 3)
    assert log.knot[1].tolist() == [0.25, -0.5]
    assert log.chord[1].tolist() == [0.0, 0.0]
    assert log.knot_at[1].tolist() == [3, 3]
    assert log.end.tolist() == [3, 2, 7]
    others = [0, 2, 3]
    assert (log.knot[others] == 7.0).all()
    assert (log.chord[others] == 7.0).all()
    assert (log.knot_at[others] == 7).all()


def test_chords_are_loosened_back_to_where_they_begin():
    log = Log(
        *(np.zeros(1) for _ in range(3)),
        np.zeros((6, 2)),
        np.zeros((6, 2)),
        *(np.zeros(1) for _ in range(3)),
        np.array([0, 5, 0]),
    )
    log.chord[:] = [[0.5, 0.1], [0.0, 0.0], [0.5, 0.1], [0.5, 0.1], [0.0, 0.0], [0.5, 0.1]]
    loosen_chord(log, 0.25, 0.5)  # knot 4 moves; its chord goes back to knot 1
    assert log.chord.tolist() == [[0.5, 0.1], [0.0, 0.0], [0.75, 0.6], [0.75, 0.6], [0.0, 0.0], [0.5, 0.1]]
    log.end[KNOTS_SO_FAR] = 1  # the first knot has no chord before it
    loosen_chord(log, 0.25, 0.5)
    assert log.chord[0].tolist() == [0.5, 0.1]
    log.end[KNOTS_SO_FAR] = 2  # knot 1 moves, and the chord from before knot 0 with it
    loosen_chord(log, 0.25, 0.5)
    assert log.chord[0].tolist() == [0.75, 0.6]


# ---------------------------------------------------------------- where nothing moves


def rests(values, still, near):
    """The runs of knots between which nothing moves, from all values: (first, last)."""
    runs = []
    for k in range(1, len(values)):
        if still[k - 1] and still[k] and (np.abs(values[k] - values[k - 1]) <= near).all():
            if runs and runs[-1][1] == k - 1:
                runs[-1][1] = k
            else:
                runs.append([k - 1, k])
    return runs


@seeds(30)
def test_rests_are_found_one_after_the_other(seed):
    R, values, _ = record(seed)
    rng = np.random.default_rng(seed)
    near = 1e-11 * (R.bounds[1] - R.bounds[0])
    for i in range(R.value.size):  # most elbow values are at a bound, nearly, and often at the same one
        if rng.random() < 0.95:
            bound = R.bounds[int(rng.random() < 0.05), R.index[i]]
            R.value[i] = bound + rng.choice([0.0, 0.3, -0.3]) * near[R.index[i]]
    chord = np.where(rng.random((KNOTS, 1)) < 0.1, [[1.0, 1.0]], [[0.0, 0.0]])
    still = chord[:, 0] == 0.0
    for k in range(KNOTS):
        own = slice(R.offset[k], R.offset[k + 1])
        on = R.index[own]
        values[k, on] = np.clip(R.value[own], R.bounds[0, on], R.bounds[1, on])
        still[k] &= not (
            (R.value[own] > R.bounds[0, on] + near[on]) & (R.value[own] < R.bounds[1, on] - near[on])
        ).any()
    found = []
    for runs, there in _resting(path_of(R, chord), near):
        assert np.array_equal(there, values[runs[:, 0]])
        found += runs.tolist()
    assert found == rests(values, still, near)


def test_a_path_of_one_knot_rests_there():
    R, values, _ = record(0)
    inside = slice(R.offset[0], R.offset[1])
    one = R._replace(
        knot_events=R.knot_events[:1], offset=R.offset[:2], index=R.index[inside], value=R.bounds[0, R.index[inside]]
    )
    values[0, one.index] = one.value
    ((runs, there),) = _resting(path_of(one, np.zeros((1, 2))), np.zeros(N))
    assert runs.tolist() == [[0, 0]]
    assert np.array_equal(there, values[:1])


@pytest.mark.parametrize("sides", ["below", "above", "both"])
@pytest.mark.parametrize("begin", [np.inf, 3.0])
@seeds(6 if DISABLED else 20)
def test_corners_are_where_the_largest_or_the_smallest_line_changes(sides, begin, seed):
    rng = np.random.default_rng(seed)
    slope, rest = rng.integers(-3, 4, 12).astype(float), rng.normal(size=12)
    some = rng.random(12) < 0.5
    grows, shrinks = some & (sides != "above"), ~some & (sides != "below")
    bounds = middle_jit.Bounds(slope, rest, grows, shrinks)
    scratch, out = np.full((2, middle_jit.CORNERS), np.nan), np.full((2 * middle_jit.CORNERS, 2), np.nan)
    found = out[: middle_jit.corners(bounds, begin, 0.25, scratch, out)]
    assert (np.diff(found[:, 0]) < 0.0).all()
    top = min(begin, 50.0)
    at = np.linspace(0.25, top, 20_001)
    lines = at[:, None] * slope + rest
    changes, ends = np.zeros(at.size - 1, dtype=int), []
    for on, sign in ((grows, 1.0), (shrinks, -1.0)):
        if on.any():
            first = np.argmax(np.where(on, sign * lines, -np.inf), axis=1)
            changes += slope[first[1:]] != slope[first[:-1]]
            ends.append(np.where(on, sign * lines, -np.inf).max(axis=1) * sign)
    inner = found[found[:, 0] < top, 0][::-1]
    assert np.array_equal(np.histogram(inner, at)[0], changes)
    bias, falling = np.full(at.size, np.nan), at[::-1].copy()
    wanted = np.mean(ends, axis=0)[::-1]
    runs, b = np.array([[0, 5], [9, at.size - 1]]), np.where(grows, -1.0, np.where(shrinks, 1.0, 0.0))
    zero, above, room = np.zeros(12), 60.0 if begin == np.inf else 0.0, 8 * middle_jit.CORNERS
    rows = np.full((room, 2), np.nan)
    own = middle_jit.Bounds(slope, np.full(12, np.nan), np.zeros(12, dtype=np.bool_), np.zeros(12, dtype=np.bool_))
    done, n = middle_jit.centre(
        runs, np.array([b, b]), np.array([rest, rest]), zero, zero, own, falling, bias, above, scratch, rows
    )
    assert done == 2
    assert np.isnan(bias[6:10]).all()
    some = np.r_[0:6, 10 : at.size]
    np.testing.assert_allclose(bias[some], wanted[some], rtol=1e-13, atol=1e-13)
    if above:  # upwards the corners end there, and the first run has them, too
        high = rows[:n, 0] > top
        assert (rows[:n, 0] <= above).all()
        assert high.sum() == min(1, (found[:, 0] >= above).sum()) + ((found[:, 0] > top) & (found[:, 0] < above)).sum()
    inside = found[(found[:, 0] < top) & ~((found[:, 0] <= falling[5]) & (found[:, 0] >= falling[9]))]
    assert np.array_equal(rows[:n][rows[:n, 0] < top], inside)
    none = middle_jit.centre(runs, b[None], b[None], zero, zero, own, falling, bias, above, scratch, rows[:9])
    assert none == (0, 0)
    np.testing.assert_allclose(found[:, 1], [middle_jit.middle(bounds, t) for t in found[:, 0]], rtol=0.0, atol=0.0)


def test_corners_that_lead_too_far_up_end_at_one_place():
    """Three lines meet at t = 100 and t = 55, and no corner above t = 60 is wanted."""
    slope, rest = np.array([1.0, 0.5, 0.0]), np.array([[0.0, 50.0, 77.5]])
    flags = np.zeros((2, 3), dtype=np.bool_)
    bounds = middle_jit.Bounds(slope, np.full(3, np.nan), flags[0], flags[1])
    at, bias, b, none = np.array([50.0, 40.0]), np.full(2, np.nan), np.zeros((1, 3)), np.zeros(3)
    scratch, rows = np.full((2, middle_jit.CORNERS), np.nan), np.full((4 * middle_jit.CORNERS, 2), np.nan)
    run = np.array([[0, 1]])
    assert middle_jit.centre(run, b, rest, none, none + 1.0, bounds, at, bias, 60.0, scratch, rows) == (1, 2)
    assert rows[:2].tolist() == [[60.0, 80.0], [55.0, 77.5]]
    assert bias.tolist() == [77.5, 77.5]


def test_of_equal_lines_the_flattest_is_followed_and_corners_at_the_ends_are_none():
    """At t = 2 three lines meet, and below it only the flattest of them counts; at t = 1 it meets another one."""
    slope, rest = np.array([3.0, 2.0, 1.0, 0.0, 1.0]), np.array([-4.0, -2.0, 0.0, 1.0, -1.0])
    on, none = np.ones(5, dtype=np.bool_), np.zeros(5, dtype=np.bool_)
    scratch, out = np.empty((2, middle_jit.CORNERS)), np.empty((2 * middle_jit.CORNERS, 2))
    for begin, end, wanted in (
        (np.inf, 0.5, [2.0, 1.0]), (2.0, 0.5, [1.0]), (2.0, 1.0, []), (np.inf, 1.0, [2.0]), (1.0, 0.5, [])
    ):  # fmt: skip
        n = middle_jit.corners(middle_jit.Bounds(slope, rest, on, none), begin, end, scratch, out)
        assert out[:n].tolist() == [[t, t] for t in wanted]
        n = middle_jit.corners(middle_jit.Bounds(-slope, -rest, none, on), begin, end, scratch, out)
        assert out[:n].tolist() == [[t, -t] for t in wanted]


# ---------------------------------------------------------------- any knot


@seeds(6)
def test_a_record_skips_to_any_later_knot(seed):
    R, values, _ = record(seed)
    new, now, out = np.full(N, np.nan), 0, np.full((2, N), np.nan)
    for knots in np.sort(np.random.default_rng(seed).integers(0, KNOTS, 4)).reshape(2, 2):
        curve_jit.values_at(R, now, knots, new, out)
        now = knots[-1]
        assert np.array_equal(out, values[knots])
        assert np.array_equal(R.beta, values[now])


@seeds(6)
def test_the_largest_sum_that_is_lost_is_found(seed):
    R, values, _ = record(seed)
    shares = np.abs(values.sum(axis=1)) / np.abs(values).sum(axis=1)
    path = path_of(R, np.zeros((KNOTS, 2)))
    assert lost_share(path) == pytest.approx(shares.max(), rel=1e-14)
    path._data.equality = False
    assert lost_share(path) == 0.0
