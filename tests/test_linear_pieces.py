"""The loops of linear machines, each beside its plain meaning. These tests may be deleted with the loops they are about."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from repeats import seeds

from svmcore.compiler.jit import DISABLED
from svmcore.solvers import _coordinate_jit, _lasso_jit, _newton_jit

pytestmark = pytest.mark.home

SEEDS = range(4 if DISABLED else 10)
KINDS = ("above", "below", "both", "squared above", "squared below", "squared both")


def losses_of(kind: str, seed: int, n: int = 40) -> _newton_jit.Losses:
    """Random losses of one side or of both, somewhere: at bounds, at zero, and between."""
    rng = np.random.default_rng([seed, len(kind)])
    squared = kind.startswith("squared")
    far = np.inf if squared else 1.0
    lower = np.zeros(n) if "above" in kind else -far * rng.uniform(0.5, 2.0, n)
    upper = np.zeros(n) if "below" in kind else far * rng.uniform(0.5, 2.0, n)
    half = rng.choice([0.0, 0.3], n)
    centre = np.zeros(n) if squared else rng.uniform(np.maximum(lower, -2.0), np.minimum(upper, 2.0))
    f, z = rng.normal(size=n), np.zeros(n)
    stiff, target = rng.uniform(0.5, 3.0, n), rng.normal(size=n)
    losses = _newton_jit.Losses(target, half, lower, upper, stiff, centre, f, z, np.zeros(n, np.int8))
    _newton_jit.place(losses)
    return losses


def best_of(losses: _newton_jit.Losses, i: int, f: float) -> float:
    """The z between the bounds where  z (target - f) - half |z| - (z - centre)^2 / (2 stiff)  is largest."""
    u, half, s, centre = losses.target[i] - f, losses.half[i], losses.stiff[i], losses.centre[i]
    tops = [0.0, centre + s * (u - half), centre + s * (u + half), losses.lower[i], losses.upper[i]]
    tops = [z for z in tops if np.isfinite(z) and losses.lower[i] <= z <= losses.upper[i]]
    return max(tops, key=lambda z: z * u - half * abs(z) - (z - centre) ** 2 / (2.0 * s))


def each(losses: _newton_jit.Losses, f: np.ndarray) -> np.ndarray:
    return np.array([best_of(losses, i, value) for i, value in enumerate(f)])


def conjugate(losses: _newton_jit.Losses, squared: bool) -> np.ndarray:
    return losses.half * np.abs(losses.z) + (losses.z**2 / (2.0 * losses.stiff) if squared else 0.0)


def loss_at(losses: _newton_jit.Losses, squared: bool) -> np.ndarray:
    """The losses themselves: the largest z (target - f) - conjugate."""
    u = losses.target - losses.f
    above, below = np.maximum(u - losses.half, 0.0), np.minimum(u + losses.half, 0.0)
    if squared:
        open_above, open_below = losses.upper > 0.0, losses.lower < 0.0
        return 0.5 * losses.stiff * (above**2 * open_above + below**2 * open_below)
    return losses.upper * above + losses.lower * below


@seeds(SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_dual_variables_are_the_best_ones_and_pieces_say_who_moves(kind, seed):
    losses = losses_of(kind, seed)
    assert losses.z == pytest.approx(each(losses, losses.f), abs=1e-12)
    inside = (losses.lower < losses.z) & (losses.z < losses.upper) & (losses.z != 0.0)
    assert losses.piece.tolist() == np.where(inside, np.sign(losses.z), 0.0).tolist()


@seeds(SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_slope_of_a_line_is_that_of_the_dual_variables_on_it(kind, seed):
    losses, rng = losses_of(kind, seed), np.random.default_rng(seed)
    df, t, h = rng.normal(size=len(losses.f)), rng.uniform(0.0, 2.0), 1e-7
    total, curve = _newton_jit.slope(losses, df, t)
    assert total == pytest.approx(each(losses, losses.f + t * df) @ df, abs=1e-11)
    before, after = (each(losses, losses.f + (t + by) * df) @ df for by in (-h, h))
    assert curve == pytest.approx((before - after) / (2.0 * h), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("second", [1e-6, 1.0, 1e3])
@seeds(SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_line_search_ends_where_little_of_the_slope_is_left(kind, seed, second):
    losses, rng = losses_of(kind, seed), np.random.default_rng(seed)
    df = rng.normal(size=len(losses.f))
    first = each(losses, losses.f) @ df - rng.uniform(0.5, 5.0)
    t = _newton_jit.length(losses, df, first, second)
    begin, end = (first + at * second - each(losses, losses.f + at * df) @ df for at in (0.0, t))
    assert t > 0.0
    assert abs(end) <= 1.000001 * _newton_jit.SHORT * abs(begin)


@seeds(SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_tells_of_the_rows_that_change_pieces(kind, seed):
    """What the step foresaw of a row that moved is -stiff times its way, and nothing of another row."""
    losses, rng = losses_of(kind, seed), np.random.default_rng(seed)
    n = len(losses.f)
    df, t = rng.normal(size=n), rng.uniform(0.1, 1.0)
    if seed % 2:
        losses.piece[:3] = _newton_jit.FORCED
    f, z, piece = losses.f.copy(), losses.z.copy(), losses.piece.copy()
    changes = _newton_jit.Surprises(np.empty(n + 1, np.int64), np.empty(n + 1))
    count = _newton_jit.go(losses, df, t, changes)
    assert losses.f == pytest.approx(f + t * df)
    assert losses.z == pytest.approx(each(losses, losses.f), abs=1e-12)
    now = losses_of(kind, seed)._replace(f=losses.f)
    _newton_jit.place(now)
    assert losses.piece.tolist() == now.piece.tolist()
    foreseen, told = z - np.where(piece != 0, t * losses.stiff * df, 0.0), np.zeros(n)
    told[changes.rows[:count]] = changes.by[:count]
    assert told == pytest.approx(losses.z - foreseen, abs=1e-12)
    assert (changes.by[:count] != 0.0).all()
    assert (told[(now.piece == piece) & (piece != 0)] == 0.0).all()


@seeds(SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_measures_are_the_losses_and_what_they_and_their_conjugates_exceed(kind, seed):
    squared, losses = kind.startswith("squared"), losses_of(kind, seed)
    rng = np.random.default_rng(seed)
    losses.f[:] = rng.normal(size=len(losses.f))  # where the dual variables are not the best ones any more
    loss, excess = _newton_jit.measure(losses, squared)
    u = losses.target - losses.f
    assert loss == pytest.approx(loss_at(losses, squared).sum())
    assert excess == pytest.approx((loss_at(losses, squared) + conjugate(losses, squared) - losses.z * u).sum())


@seeds(SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_residuals_and_violations_are_slopes_of_the_dual(kind, seed):
    """A row with a tube has a variable for either side; each can grow below its bound and shrink above zero."""
    squared, losses = kind.startswith("squared"), losses_of(kind, seed)
    rng = np.random.default_rng(seed)
    losses.f[:] = rng.normal(size=len(losses.f))
    can_grow, can_shrink, lacks = [], [], []
    for target, f, half, z, upper, lower, s in zip(
        losses.target, losses.f, losses.half, losses.z, losses.upper, losses.lower, losses.stiff, strict=True
    ):
        give = 1.0 / s if squared else 0.0
        over, under = target - f - half - give * max(z, 0.0), target - f + half - give * min(z, 0.0)
        if upper > 0.0:
            can_grow += [over] if z < upper else []
            can_shrink += [over] if z > 0.0 else []
        if lower < 0.0:
            can_grow += [under] if z < 0.0 else []
            can_shrink += [under] if z > lower else []
        up = (over if z >= 0.0 else under) if z < upper else 0.0
        down = (over if z > 0.0 else under) if z > lower else 0.0
        lacks.append(max(up, 0.0) + max(-down, 0.0))
    top, bottom = _newton_jit.residuals(losses, squared)
    assert top == pytest.approx(max(can_grow, default=-np.inf))
    assert bottom == pytest.approx(min(can_shrink, default=np.inf))
    out = np.full(len(lacks), np.nan)
    _newton_jit.violations(losses, squared, out)
    assert out == pytest.approx(lacks, abs=1e-12)


def test_a_round_ends_where_the_rest_counts_or_only_rounding_is_left():
    ends = _newton_jit.round_ends
    assert ends(3.0, 1.0, 0.1, 100.0)
    assert not ends(3.1, 1.0, 0.1, 100.0)
    assert not ends(0.0 + 1e-9, 0.05, 0.1, 100.0)  # this round is stiff enough: steps go on until the goal is met
    assert ends(1e-23, 0.05, 0.1, 100.0)
    assert not ends(1e-21, 0.05, 0.1, 100.0)


def workspace(losses, d: int) -> _newton_jit.Workspace:
    vectors, matrices = np.zeros((4, d + 1)), np.zeros((2, d + 1, d + 1))
    return _newton_jit.Workspace(*vectors, *matrices, np.zeros(len(losses.f), np.int8), losses.stiff.copy())


@seeds(SEEDS)
def test_the_gram_matrix_follows_the_rows_that_move_and_gives_newtons_step(seed):
    rng = np.random.default_rng(seed)
    X, losses = rng.normal(size=(40, 4)), losses_of("both", seed)
    Z, room, unit = np.column_stack([X, np.full(40, 1.5)]), workspace(losses, 4), 2.5
    for pieces in (rng.integers(-1, 2, 40), rng.integers(-1, 2, 40)):
        losses.piece[:] = pieces
        _newton_jit.dense_follow(X, losses, 1.5, room)
        moving = (pieces != 0) * room.weight
        assert np.tril(room.gram) == pytest.approx(np.tril(Z.T @ (moving[:, None] * Z)), abs=1e-10)
    room.w[:], room.sums[:] = rng.normal(size=(2, 5))
    error, size = _newton_jit.dense_gradient(room)
    assert room.gradient == pytest.approx(room.w - room.sums)
    assert error == pytest.approx(0.5 * room.gradient @ room.gradient)
    assert size == pytest.approx(0.5 * room.w @ room.w)
    descent = _newton_jit.dense_direction(room, unit)
    hessian = unit * Z.T @ (moving[:, None] * Z) + np.eye(5)
    assert hessian @ room.direction == pytest.approx(-room.gradient, abs=1e-9)
    assert descent == pytest.approx(room.direction @ room.gradient)
    out = np.full(40, np.nan)
    _newton_jit.dense_times(X, room.w, 1.5, out)
    assert out == pytest.approx(Z @ room.w)
    _newton_jit.dense_sums(X, losses.z, 1.5, room.sums)
    assert room.sums == pytest.approx(Z.T @ losses.z)


@seeds(SEEDS)
@pytest.mark.parametrize("kind", ["above", "both", "squared below", "squared both"])
def test_a_machine_in_one_call_says_what_it_is_worth(kind, seed):
    squared, rng = kind.startswith("squared"), np.random.default_rng(seed)
    X, losses = rng.normal(size=(40, 4)), losses_of(kind, seed)
    losses.f[:], losses.centre[:] = 0.0, 0.0
    Z, room = np.column_stack([X, np.full(40, 1.5)]), workspace(losses, 4)
    there = losses._replace(f=np.empty(40))
    changes = _newton_jit.Surprises(np.empty(41, np.int64), np.empty(41))
    steps, _, primal, gap, violation = _newton_jit.dense_machine(
        X, losses, there, 1.5, room, changes, squared, 1e-7, 500
    )
    assert 0 < steps < 100
    w = Z.T @ losses.z
    assert there.f == pytest.approx(Z @ w)
    own = there._replace(z=losses.z)
    assert primal == pytest.approx(0.5 * w @ w + loss_at(own, squared).sum())
    dual = losses.z @ losses.target - conjugate(losses, squared).sum() - 0.5 * w @ w
    assert gap == pytest.approx(primal - dual, abs=1e-12)
    assert -1e-12 <= gap <= 1e-7 * primal
    lacks = np.empty(40)
    _newton_jit.violations(own, squared, lacks)
    assert violation == pytest.approx(lacks.max(), abs=1e-12)


# ---- sweeps ----------------------------------------------------------------------------------------------------------


def row_of(kind: str, seed: int) -> tuple[np.ndarray, float, float]:
    """A line of the table of a row, x'w, and K_ii."""
    rng = np.random.default_rng([seed, len(kind)])
    squared = kind.startswith("squared")
    lower = 0.0 if "above" in kind else (-np.inf if squared else -rng.uniform(0.5, 2.0))
    upper = 0.0 if "below" in kind else (np.inf if squared else rng.uniform(0.5, 2.0))
    give = rng.uniform(0.3, 2.0) if squared else 0.0
    K = rng.uniform(0.5, 2.0)
    closed = max(lower, -2.0), min(upper, 2.0)
    here = rng.choice([0.0, *closed, rng.uniform(*closed)])
    row = np.zeros(_coordinate_jit.WIDTH)
    row[: _coordinate_jit.VALUE] = [
        rng.normal(), rng.choice([0.0, 0.4]), lower, upper, give, 1.0 / give if give else 0.0, 1.0 / (K + give),
    ]  # fmt: skip
    row[_coordinate_jit.VALUE] = here
    return row, rng.normal(), K


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_of_a_sweep_is_the_best_value_of_its_row(kind):
    table, seen = _coordinate_jit, set()
    for seed in range(400):
        row, product, K = row_of(kind, seed)
        target, half, lower, upper, give, stiff, _, here = row
        u = target - product

        def dual(z, u=u, half=half, give=give, K=K, here=here):
            return u * (z - here) - half * abs(z) - 0.5 * give * z * z - 0.5 * K * (z - here) ** 2

        tops = [0.0, here, lower, upper]
        tops += [(u + K * here + side * half) / (K + give) for side in (-1.0, 1.0)]
        best = max((z for z in tops if lower <= z <= upper and np.isfinite(z)), key=dual)
        slope = {
            +1: u - give * here - (half if here >= 0.0 else -half),  # of the dual, where z grows, and where it shrinks
            -1: -(u - give * here - (half if here > 0.0 else -half)),
        }
        lacks = {way: max(slope[way], 0.0) for way in slope if (here < upper if way > 0 else here > lower)}
        tally = np.zeros(table.TALLIES)
        tally[table.INNER], tally[table.OUTER] = 0.2, 0.4
        new, rests = table.step(row, product, tally)
        if max(lacks.values(), default=0.0) == 0.0:
            margin = 0.2 if here == 0.0 else 0.4
            ways = lacks if here == 0.0 else {(1 if here == upper else -1): 0.0}
            at_bound = here in (0.0, lower, upper)
            outwards = [-slope[way] if here == 0.0 else slope[way] for way in ways]
            assert new == here
            assert rests == (at_bound and all(by > margin for by in outwards))
            seen.add("rests" if rests else "waits")
            continue
        seen.add("moves")
        assert not rests
        assert new == pytest.approx(best, abs=1e-12)
        way = max(lacks, key=lacks.get)
        towards = here * way < 0.0
        assert tally[table.INWARD if towards else table.OUTWARD] == lacks[way]
        assert tally[table.OUTWARD if towards else table.INWARD] == 0.0
        if not give:
            room = upper - here if way > 0 else here - lower
            assert tally[table.EXCESS] == pytest.approx(lacks[way] * min(room, abs(here) + 1.0))
        elif here * u >= 0.0 or abs(u) <= half or "both" not in kind:  # else it counts a part of that twice

            def own(z, u=u, half=half, give=give):
                return u * z - half * abs(z) - 0.5 * give * z * z

            peaks = [z for z in (0.0, (u - half) * stiff, (u + half) * stiff) if lower <= z <= upper]
            assert tally[table.EXCESS] == pytest.approx(max(map(own, peaks)) - own(here))
    assert seen == {"rests", "waits", "moves"}


def test_what_a_sweep_says_of_the_next_one():
    table = _coordinate_jit
    tally = np.zeros(table.TALLIES)
    tally[table.BEFORE], tally[table.ENOUGH], tally[table.STILL], tally[table.MOST] = (
        2.0 * table.FARTHEST,
        0.1,
        0.01,
        9.0,
    )
    tally[table.INWARD], tally[table.OUTWARD], tally[table.EXCESS] = 0.5, 0.0, 4.0
    table.end(tally)
    assert tally[table.ESTIMATE] == 4.0  # there was none before
    assert [tally[k] for k in (table.WORST, table.INNER, table.OUTER)] == [0.5, table.FAR * 0.5, table.FARTHEST]
    assert [tally[k] for k in (table.TOOK, table.GOES)] == [1.0, 1.0]
    table.begin(tally)
    assert not tally[[table.INWARD, table.OUTWARD, table.EXCESS]].any()
    tally[table.INWARD], tally[table.OUTWARD], tally[table.EXCESS] = 0.0, 0.25, 1.0
    table.end(tally)
    assert tally[table.ESTIMATE] == 0.25  # of its 1.0 so much will be left as was left of the 4.0 before
    assert [tally[k] for k in (table.WORST, table.INNER, table.OUTER)] == [0.25, table.FARTHEST, table.FAR * 0.25]
    for name, value in (("EXCESS", 0.01), ("OUTWARD", 0.0), ("TOOK", 8.0)):
        again = tally.copy()
        again[getattr(table, name)] = value
        table.end(again)
        assert again[table.GOES] == 0.0


# ---- weights of exactly zero -----------------------------------------------------------------------------------------


def column_problem(seed: int):
    rng = np.random.default_rng(seed)
    n, d = 20, 6
    X, signs = rng.normal(size=(n, d)), np.where(rng.random(n) < 0.5, -1.0, 1.0)
    costs, w = rng.uniform(0.2, 2.0, n), rng.choice([0.0, 0.4, -0.4], d)
    lists = _lasso_jit.ColumnLists(
        np.asfortranarray(X).ravel(order="F"), np.arange(n), n * np.arange(d), np.zeros(d, np.int64), np.full(d, n)
    )
    return SimpleNamespace(X=X, signs=signs, costs=costs, w=w, lists=lists, table=table_of(X, signs, costs, w))


def table_of(X, signs, costs, w) -> np.ndarray:
    residual = signs - X @ w
    bend = np.where(residual * signs > 0.0, costs, 0.0)
    return np.column_stack([residual, bend * residual, bend, costs * signs])


def squared_hinge(X, signs, costs, w) -> float:
    return 0.5 * float(costs @ np.maximum(1.0 - signs * (X @ w), 0.0) ** 2)


@seeds(SEEDS)
def test_a_weight_that_moves_takes_its_rows_along(seed):
    it, by = column_problem(seed), 0.7
    j = seed % 6
    total, bend = _lasso_jit.pulled(it.lists, j, it.table)
    assert total == pytest.approx(it.X[:, j] @ it.table[:, _lasso_jit.PULL])
    assert bend == pytest.approx(it.X[:, j] ** 2 @ it.table[:, _lasso_jit.BEND])
    there = it.w.copy()
    there[j] += by
    loss, after = (squared_hinge(it.X, it.signs, it.costs, w) for w in (it.w, there))
    grown, were = _lasso_jit.moved(it.lists, j, by, it.table)
    assert it.table == pytest.approx(table_of(it.X, it.signs, it.costs, there), abs=1e-12)
    assert grown == pytest.approx(after - loss, abs=1e-12)
    assert were == pytest.approx(loss)


@seeds(SEEDS)
def test_a_step_of_one_weight_is_newtons_and_brings_what_it_promises(seed):
    for j in range(6):
        it = column_problem(seed)
        total, bend = _lasso_jit.pulled(it.lists, j, it.table)
        here = it.w[j]
        # the least value of  |v| - total (v - here) + bend (v - here)^2 / 2
        tops = [0.0, here + (total - 1.0) / bend, here + (total + 1.0) / bend]

        def model(v, total=total, bend=bend, here=here):
            return abs(v) - total * (v - here) + 0.5 * bend * (v - here) ** 2

        best = min(tops, key=model)
        before = np.abs(it.w).sum() + squared_hinge(it.X, it.signs, it.costs, it.w)
        w = it.w.copy()
        _lasso_jit.step(it.lists, j, it.table, w, total, bend)
        after = np.abs(w).sum() + squared_hinge(it.X, it.signs, it.costs, w)
        share = (w[j] - here) / (best - here) if best != here else 1.0
        assert np.log2(share) == pytest.approx(round(np.log2(share)), abs=1e-9)  # halved some times
        promised = abs(here + share * (best - here)) - abs(here) - total * share * (best - here)
        assert after - before <= _lasso_jit.DECREASE * promised + 1e-12
        assert it.table == pytest.approx(table_of(it.X, it.signs, it.costs, w), abs=1e-12)
        assert np.delete(w, j).tolist() == np.delete(it.w, j).tolist()
