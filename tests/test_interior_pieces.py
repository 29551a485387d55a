"""The loops of the interior-point method, each against dense linear algebra in plainer words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from repeats import seeds

from svmcore._types import LANES
from svmcore.simd.sums import backward, forward
from svmcore.solvers import _ipm_jit as ipm

pytestmark = pytest.mark.home

N, D = 9, 3
MINE = slice(0, N)


class Small:
    """A point inside of its boxes: some variables have both bounds, some one, one has none; the rest is padding."""

    def __init__(self, seed: int = 0, equality: bool = True) -> None:
        rng = np.random.default_rng(seed)
        self.equality = equality
        self.lower_side, self.upper_side = np.zeros(LANES), np.zeros(LANES)
        self.lower_side[:7], self.upper_side[3:8] = 1.0, 1.0

        def vector(fill: float, values: Any) -> np.ndarray:
            out = np.full(LANES, fill)
            out[MINE] = values
            return out

        def slack(side: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            s, z = rng.uniform(0.2, 1.5, N), rng.uniform(0.1, 2.0, N)
            return vector(1.0, np.where(side[MINE] > 0, s, 1.0)), vector(0.0, np.where(side[MINE] > 0, z, 0.0))

        (s, z), (u, t) = slack(self.lower_side), slack(self.upper_side)
        diag = vector(1e30, rng.uniform(0.1, 0.5, N))
        beta = vector(0.0, rng.normal(size=N))
        self.Z = np.zeros((LANES, D))
        self.Z[MINE] = rng.normal(size=(N, D))
        self.c = vector(0.0, rng.normal(size=N))
        gradient = self.Z @ (self.Z.T @ beta) + diag * beta - self.c
        self.x = ipm.Iterate(beta, s, u, z, t, gradient, diag, self.lower_side, self.upper_side)
        self.bias = 0.3 if equality else 0.0
        by_s, by_u = self.lower_side / s, self.upper_side / u
        weights = np.empty((2, LANES))
        weights[0] = 1.0 / (diag + z * by_s + t * by_u)
        weights[1] = -weights[0] * (gradient + self.bias)
        scratch = [np.zeros(LANES) for _ in range(4)]
        self.step = ipm.NewtonStep(by_s, by_u, weights, np.zeros((2, LANES)), *scratch)
        panels = np.ascontiguousarray(self.Z.reshape(1, LANES, D).transpose(0, 2, 1))
        self.design = ipm.Design(panels, np.zeros((2, D)), np.zeros((D, D)))
        dual = float(np.abs(gradient + self.bias - z + t)[MINE].max())
        size = float(np.abs(beta).sum())
        self.at = ipm.Arrival(1.0, self.bias, float(beta.sum()), size, float(s @ z + u @ t), dual)

    def random_direction(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for part in (self.step.base, self.step.unit, self.step.first, self.step.second):
            part[MINE] = rng.normal(size=N)
        self.step.first[MINE] *= self.lower_side[MINE]
        self.step.second[MINE] *= self.upper_side[MINE]

    def moves(self, db: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(d beta, dz, dt) of the direction as it is, with dz and dt from s dz + z ds = first, u dt + t du = second."""
        x, step = self.x, self.step
        d = step.base - db * step.unit
        return d, (step.first - x.z * d) / x.s * self.lower_side, (step.second + x.t * d) / x.u * self.upper_side

    def to_the_boundary(self, d: np.ndarray, dz: np.ndarray, dt: np.ndarray) -> float:
        """The largest length up to 1 at which no slack and no multiplier is negative."""
        x, low, high = self.x, self.lower_side > 0, self.upper_side > 0
        ways = [(x.s, d, low), (x.z, dz, low), (x.u, -d, high), (x.t, dt, high)]
        shrinks = [(value[has & (by < 0)], by[has & (by < 0)]) for value, by, has in ways]
        return min(1.0, *(float(v) for value, by in shrinks for v in value / -by))


def test_factors_solve_their_systems():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(5, 7))
    H = A @ A.T + np.eye(5)
    factor, right = H.copy(), rng.normal(size=5)
    assert ipm.factorise(factor)
    assert np.tril(factor) == pytest.approx(np.linalg.cholesky(H), rel=1e-12)
    found = right.copy()
    forward(factor, 5, found)
    assert np.tril(factor) @ found == pytest.approx(right, rel=1e-12)
    backward(factor, 5, found)
    assert found == pytest.approx(np.linalg.solve(H, right), rel=1e-10)
    for bad in (-1.0, 0.0, np.nan):
        H[3, 3] = bad
        assert not ipm.factorise(H.copy())


def test_products_with_the_features():
    rng = np.random.default_rng(2)
    panels = rng.normal(size=(2, 4, LANES))
    Z = panels.transpose(0, 2, 1).reshape(-1, 4)
    vectors, weights = rng.normal(size=(2, 2 * LANES)), rng.normal(size=(2, 4))
    sums, spread = np.full((2, 4), 9.0), np.full((2, 2 * LANES), 9.0)
    ipm.columns_times(panels, vectors, sums)
    ipm.rows_times(panels, weights, spread)
    assert sums == pytest.approx(vectors @ Z, abs=1e-12)
    assert spread == pytest.approx(weights @ Z.T, abs=1e-12)


@pytest.mark.parametrize("db", [0.0, 0.7])
@seeds(4)
def test_what_a_predictor_promises(seed, db):
    small = Small(seed)
    x = small.x
    small.random_direction(seed + 50)
    small.step.first[:], small.step.second[:] = -x.s * x.z, -x.u * x.t  # it aims at zero
    d, dz, dt = small.moves(db)
    length, curve = ipm.predicted(x, small.step, db)
    assert length == pytest.approx(small.to_the_boundary(d, dz, dt), rel=1e-12)
    assert curve == pytest.approx(float((d * dz)[small.lower_side > 0].sum() - (d * dt)[small.upper_side > 0].sum()))


@pytest.mark.parametrize("db", [0.0, -0.4])
def test_a_corrector_aims_at_mu_and_takes_back_what_the_predictor_bends(db):
    small, mu = Small(3), 0.05
    x, step = small.x, small.step
    small.random_direction(53)
    step.first[:], step.second[:] = -x.s * x.z, -x.u * x.t
    d, dz, dt = small.moves(db)
    ipm.correct(x, step, 0.2, db, mu)
    low, high = small.lower_side, small.upper_side
    assert step.first == pytest.approx(low * (mu - x.s * x.z - d * dz), abs=1e-12)
    assert step.second == pytest.approx(high * (mu - x.u * x.t + d * dt), abs=1e-12)
    dual = x.gradient + 0.2 - x.z + x.t
    right = low * step.first / x.s - high * step.second / x.u - dual
    assert step.weights[1] == pytest.approx(step.weights[0] * right, abs=1e-12)


@pytest.mark.parametrize("db", [0.0, 0.5])
@seeds(6)
def test_the_way_to_the_boundary(seed, db):
    small = Small(seed)
    small.random_direction(seed + 60)
    assert ipm.reach(small.x, small.step, db) == pytest.approx(small.to_the_boundary(*small.moves(db)), rel=1e-12)
    for part in (small.step.base, small.step.unit, small.step.first, small.step.second):
        part *= 1e-3
    assert ipm.reach(small.x, small.step, db) == 1.0


def test_a_move_keeps_everything_in_step():
    small = Small(4)
    x, step = small.x, small.step
    small.random_direction(64)
    rng = np.random.default_rng(5)
    step.fitted[:, MINE] = rng.normal(size=(2, N))
    db, length, bias = 0.4, 0.2, -0.1
    d, dz, dt = small.moves(db)
    before = [part.copy() for part in x]
    found = ipm.move(x, step, length, db, bias)
    beta, s, u, z, t, gradient, diag = before[:7]
    change = step.fitted[1] - db * step.fitted[0] + diag * d
    for now, expected in (
        (x.beta, beta + length * d), (x.s, s + length * d * small.lower_side), (x.u, u - length * d * small.upper_side),
        (x.z, z + length * dz), (x.t, t + length * dt), (x.gradient, gradient + length * change),
    ):  # fmt: skip
        assert now[MINE] == pytest.approx(expected[MINE], rel=1e-12)
    assert found.length == length
    assert found.bias == bias
    assert found.excess == pytest.approx(float(x.beta.sum()))
    assert found.size == pytest.approx(float(np.abs(x.beta).sum()))
    assert found.complementarity == pytest.approx(float(x.s @ x.z + x.u @ x.t))
    assert found.dual == pytest.approx(float(np.abs(x.gradient + bias - x.z + x.t).max()))
    assert step.by_s == pytest.approx(small.lower_side / x.s)
    assert step.by_u == pytest.approx(small.upper_side / x.u)
    inverse = 1.0 / (diag + x.z * step.by_s + x.t * step.by_u)
    assert step.weights[0] == pytest.approx(inverse)
    assert step.weights[1] == pytest.approx(-inverse * (x.gradient + bias))


@pytest.mark.parametrize("equality", [True, False])
@pytest.mark.parametrize("factorised", [True, False])
def test_steps_shrink_what_is_wrong_by_their_length(factorised, equality):
    small = Small(6, equality)
    x, at = small.x, small.at
    bounds = int(small.lower_side.sum() + small.upper_side.sum())
    for _ in range(30):
        if factorised:
            normal = small.Z.T @ (small.step.weights[0][:, None] * small.Z) + np.eye(D)
            small.design.normal[:] = np.linalg.cholesky(normal)
        after = ipm.advance(x, small.step, small.design, at, bounds, equality, factorised)
        left = 1.0 - after.length
        assert 0.0 < after.length <= 1.0
        assert after.dual == pytest.approx(left * at.dual, abs=1e-9)
        if equality:
            assert after.excess == pytest.approx(left * at.excess, abs=1e-9)
        else:
            assert after.bias == 0.0
        K_beta = small.Z @ (small.Z.T @ x.beta) + np.where(np.arange(LANES) < N, x.diag, 0.0) * x.beta
        assert np.abs(x.gradient - (K_beta - small.c))[MINE].max() <= 1e-9
        assert min(x.s.min(), x.u.min()) > 0.0
        assert min(x.z.min(), x.t.min()) >= 0.0
        at = after
    assert at.complementarity <= 1e-10
    assert at.dual <= 1e-9


def test_a_system_that_has_no_factor_is_told():
    small = Small(8)
    small.step.weights[0] = np.nan
    found = ipm.advance(small.x, small.step, small.design, small.at, 12, True, False)
    assert found == small.at._replace(length=0.0)
