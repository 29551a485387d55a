"""A small state on a regularization path, optimal for a problem that is made to fit, and what must hold of any state."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from svmcore import _path_jit as pj
from svmcore.path import elbow_jit as ej
from svmcore.path import opening_jit
from svmcore.path import stretch_jit as sj
from svmcore.path import window_jit as wj
from svmcore.path.log_jit import Log
from svmcore.path.record import new_log
from svmcore.path.seat import new_state
from svmcore.path.window import new_stretch, new_window

FOREVER = 1 << 60
SPARE = 3  # columns of the factor that are not rows: its room is its rows


class Scene(NamedTuple):
    """A state, its problem, scratch and a log; `K` is the kernel matrix."""

    P: ej.Setting
    S: ej.State
    W: ej.Work
    L: Log
    K: np.ndarray

    @property
    def m(self) -> int:
        return int(self.S.cnt[ej.N_ELBOW])

    @property
    def elbow(self) -> np.ndarray:
        return self.S.elbow[: self.m]

    def matrix(self) -> np.ndarray:
        """K + bump 11' on the elbow."""
        return self.K[np.ix_(self.elbow, self.elbow)] + self.P.bump

    def residuals(self) -> np.ndarray:
        """Of the problem whose linear term is shifted by `base`, from beta alone."""
        P, S = self.P, self.S
        return S.num[ej.NOW] * P.slope + P.fixed + S.base - self.K @ S.beta - S.num[ej.BIAS]


def scene(
    seed: int, n: int = 12, m: int = 4, *, equality: bool = True, kernel: np.ndarray | None = None, level: float = 0.0,
    elbow: np.ndarray | None = None, capacity: int | None = None, fixed: bool = True,
    unit: float = 1.0,
) -> Scene:  # fmt: skip
    """Points on all sides, the first few of a random order on the elbow; kernel rows are kept in another order.

    The sum of beta is zero. With `fixed` the problem's linear term is chosen so that the state is optimal as it is;
    without it `base` is. Kernel values are in this unit, and beta in its inverse.
    """
    rng = np.random.default_rng([21, seed])
    A = rng.normal(size=(n, n))
    K = unit * (A @ A.T / n + 0.5 * np.eye(n) if kernel is None else kernel)
    chosen = rng.permutation(n)[:m] if elbow is None else np.asarray(elbow, dtype=np.int64)
    slot = rng.permutation(n)
    rows = np.empty((n, n))
    rows[slot] = K
    side = rng.choice(np.array([ej.LOW, ej.UP], np.int8), n)
    side[chosen] = ej.ELBOW
    beta = rng.normal(size=n)
    beta = (beta - beta.mean()) / unit
    below = np.choose(side, [0.0, 1.0, 0.1 + 0.8 * rng.random(n)])  # share of the box that is below
    width = (1.0 + rng.random(n)) / unit
    capacity = n + 2 if capacity is None else capacity
    S = new_state(n, beta - below * width, beta + (1.0 - below) * width, capacity)
    S = S._replace(factor=np.full((capacity, capacity + SPARE), np.nan))
    S.side[:], S.beta[:] = side, beta
    S.elbow[: len(chosen)], S.cnt[ej.N_ELBOW], S.cnt[ej.N_ELBOW_MAX] = chosen, len(chosen), len(chosen)
    S.resid[:] = np.choose(side, [-1.0, 1.0, 0.0]) * (0.05 + rng.random(n))
    S.num[[ej.NOW, ej.BIAS, ej.T_REFRESH]] = 1.5, rng.normal() if equality else 0.0, 1.5
    S.then[:], S.image[:] = S.beta, K @ S.beta
    slope = rng.normal(size=n)
    bump = 0.75 * unit if equality else 0.0
    P = ej.Setting(rows, slot, np.diag(K).copy(), np.zeros(n), slope, bump, equality, 1e-13, level, 1e-300)
    made = Scene(P, S, ej.Work(np.zeros(n + 2), np.zeros(n + 2), np.zeros(n), np.zeros(n)), new_log(n, capacity), K)
    if fixed:
        refit(made)
    else:
        S.base[:] = S.resid - made.residuals()
    factorise(made)
    return made


def refit(at: Scene) -> None:
    """Choose the fixed part of the linear term so that residuals are what the state says."""
    at.P.fixed[:] += at.S.resid - at.residuals()


def hide_image(at: Scene, point: int | None = None) -> None:
    """K beta cannot be brought up to date: a point that is not on the elbow has moved, and its row is not kept."""
    off = np.setdiff1d(np.arange(at.S.beta.size), at.elbow)[-1] if point is None else point
    at.S.then[off] += 1.0
    at.P.slot[off] = -1


def plane(seed: int, equality: bool, unit: float = 1.0) -> Scene:
    """A linear kernel in the plane: the elbow spans it, so that every other point depends on the elbow."""
    rng = np.random.default_rng([22, seed])
    X = np.concatenate([[[1, 0], [0, 1], [-1, -2]], rng.integers(1, 4, (9, 2)) * rng.choice([-1, 1], (9, 2))])
    return scene(
        seed, kernel=(X @ X.T).astype(float), elbow=np.arange(3 if equality else 2), equality=equality, unit=unit
    )


def options(at, **other):
    """No limit that ends a call early, but for those named."""
    limits = {
        "t_end": 0.2, "rate_tol": 1e-9, "scale": 0.0, "stretch": 0.0, "refresh": FOREVER, "budget": 1, "batch": False,
        "record": True, "n_events_max": FOREVER, "lower": at.S.lower.copy(), "upper": at.S.upper.copy(),
    }  # fmt: skip
    return pj.Options(**{**limits, **other})


def boxes_met(at: Scene, x: np.ndarray, sign: float, own: float) -> list[tuple[float, float, int, float]]:
    """(length, length with a hair more, place, speed) of every box along the null vector, that of the point itself first."""
    S = at.S
    met = [(own, own * (1.0 + 1e-12), -1, 1.0)]
    for k, j in enumerate(at.elbow):
        speed = -sign * x[k]
        if abs(speed) > 1e-12:
            room = max(S.upper[j] - S.beta[j] if speed > 0 else S.beta[j] - S.lower[j], 0.0)
            give = 1e-12 * (S.upper[j] - S.lower[j])
            met.append((room / abs(speed), (room + give) / abs(speed), k, abs(speed)))
    return met


def factorise(at: Scene) -> None:
    """The triangular factor of the present elbow, zero below its diagonal."""
    S, m = at.S, at.m
    S.factor[:m, :m] = np.linalg.cholesky(at.matrix()).T if m else 0.0
    S.half_slope[:m] = np.linalg.solve(S.factor[:m, :m].T, at.P.slope[at.elbow])
    S.half_one[:m] = np.linalg.solve(S.factor[:m, :m].T, np.ones(m))


def check_factor(at: Scene, tol: float = 1e-9) -> None:
    """The factor and what goes with it are those of the elbow."""
    S, m = at.S, at.m
    R = S.factor[:m, :m]
    assert np.triu(R).T @ np.triu(R) == pytest.approx(at.matrix(), abs=tol * np.abs(at.K).max())
    assert np.triu(R).T @ S.half_slope[:m] == pytest.approx(at.P.slope[at.elbow], abs=tol)
    assert np.triu(R).T @ S.half_one[:m] == pytest.approx(np.ones(m), abs=tol)
    assert S.cnt[ej.N_ELBOW_MAX] >= m


def check_sides(at: Scene, tol: float = 1e-9) -> None:
    """Everybody is where its side says: values, and residuals but for rounding; the elbow is who is on it."""
    S = at.S
    assert sorted(at.elbow.tolist()) == np.flatnonzero(S.side == ej.ELBOW).tolist()
    for side, bound, sign in ((ej.LOW, S.lower, -1.0), (ej.UP, S.upper, 1.0)):
        assert np.array_equal(S.beta[S.side == side], bound[S.side == side])
        assert (sign * S.resid[S.side == side] >= -tol).all()
    assert (S.beta >= S.lower).all()
    assert (S.beta <= S.upper).all()
    assert np.abs(S.resid[S.side == ej.ELBOW]).max(initial=0.0) <= tol


def check(at: Scene, tol: float = 1e-9) -> None:
    """The state is optimal for the problem that it says it solves, and its factor is right."""
    check_sides(at, tol)
    check_factor(at, tol)
    assert at.S.resid == pytest.approx(at.residuals(), abs=tol)


def sides_told(at: Scene, before: np.ndarray) -> np.ndarray:
    """The sides that the log's events lead to, each from the side the point was on."""
    side = before.copy()
    for k in range(int(at.L.end[0])):
        i, (old, new, _) = at.L.event_index[k], at.L.event_move[k]
        assert side[i] == old != new
        side[i] = new
    return side


class Windowed(NamedTuple):
    """A scene whose factor is the inverse, its lower triangle, and the scratch of windows."""

    at: Scene
    window: wj.Window
    stretch: opening_jit.Stretch

    def open(self) -> Windowed:
        """The same with a window that has just begun, of all points outside the elbow."""
        at, window, stretch = self
        sj.keep_state(at.S, at.L, stretch)
        opening_jit.open_window(at.P, at.S, window, stretch)
        opening_jit.choose_candidates(at.S, window, stretch)
        opening_jit.fill_candidates(at.P, at.S, window, stretch)
        return self

    def alive(self) -> np.ndarray:
        """Slots whose points are on the elbow."""
        return np.flatnonzero(self.window.dead[: self.window.count[wj.SLOTS]] == 0)


def windowed(seed: int, n: int = 16, m: int = 5, *, room: int = 0, **more: Any) -> Windowed:
    """What has no value yet is not a number, or no index. There is room for so many windows more."""
    capacity = n + (1 + room) * opening_jit.ROOM
    at = scene(seed, n, m, capacity=capacity, **more)
    window, stretch = new_window(n, capacity, n + 100 + opening_jit.ROOM), new_stretch(n, at.P.diagonal, capacity)
    for scratch in (window, stretch):
        for name, part in scratch._asdict().items():
            if name not in ("root", "pace", "count", "wanted"):
                part[:] = np.nan if part.dtype == np.float64 else np.iinfo(part.dtype).max
    at.S.factor[:] = np.nan
    at.S.factor[: at.m, : at.m] = np.tril(np.linalg.inv(at.matrix()))
    return Windowed(at, window, stretch)


def check_inverse(at: Scene, tol: float = 1e-9) -> None:
    """The factor holds the inverse of the elbow's matrix."""
    m = at.m
    lower = np.tril(at.S.factor[:m, :m])
    inverse = np.linalg.inv(at.matrix())
    assert lower == pytest.approx(np.tril(inverse), abs=tol * max(1.0, np.abs(inverse).max()))
