"""A path's record played again, knot by knot, against a plain reading of it."""

from __future__ import annotations

import numpy as np
import pytest

from svmcore.path import curve_jit
from svmcore.path.elbow_jit import ELBOW, LOW, UP

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


@pytest.mark.parametrize("seed", range(6))
def test_a_record_is_played_in_pieces(seed):
    R, values, elbows = record(seed)
    for first, last in ((0, 3), (3, 4), (4, KNOTS - 1)):
        members, count = np.full(N, -1), np.full(N, -1)
        n = curve_jit.changing(R, first, last, members, count)
        on = [i for k in range(first, last + 1) for i in elbows[k]]
        moved = R.event_index[R.knot_events[first] : R.knot_events[last]]
        assert sorted(members[:n]) == sorted({*on, *moved.tolist()})
        assert [R.place[i] for i in members[:n]] == list(range(n))
        assert list(count[:n]) == [on.count(i) for i in members[:n]]
        out = np.full((last - first + 1, n), np.nan)
        curve_jit.play(R, first, last, members, n, out)
        assert (out == values[first : last + 1, members[:n]]).all()
        assert (R.beta == values[last]).all()
        assert (R.place == -1).all()
