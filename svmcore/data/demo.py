"""Built-in sets, made by formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError

Array = NDArray[Any]


def demo_set(name: str) -> tuple[Array, Array]:
    """A built-in set by its name."""
    if name not in DEMO_SETS:
        raise InputError(
            f"there is no built-in set {'demo:' + name!r}; choose one of demo:" + ", demo:".join(DEMO_SETS)
        )
    return DEMO_SETS[name]()


def spirals(seed: int = 20040741) -> tuple[Array, Array]:
    """Two noisy spirals of 300 points each: r (sin 2r, cos 2r) for r in [1, 1 + 2 pi], and its opposite, sd 0.2."""
    r = np.tile(np.linspace(1.0, 1.0 + 2.0 * np.pi, 300), 2)
    y = np.repeat([1, -1], 300)
    X = (y * r)[:, None] * np.column_stack([np.sin(2.0 * r), np.cos(2.0 * r)])
    return X + np.random.default_rng(seed).normal(0.0, 0.2, X.shape), y


def two_spirals() -> tuple[Array, Array]:
    """The two-spirals benchmark: 97 points on each, without noise."""
    i = np.arange(97)
    radius = 6.5 * (104 - i) / 104
    points = radius[:, None] * np.column_stack([np.sin(i * np.pi / 16), np.cos(i * np.pi / 16)])
    return np.stack([points, -points], axis=1).reshape(-1, 2), np.tile([1, -1], 97)


def _monk(positive: Callable[[Array], Array]) -> Callable[[], tuple[Array, Array]]:
    """One of the three Monk's problems: all 432 combinations of six attributes."""

    def make() -> tuple[Array, Array]:
        grid = np.meshgrid(*(np.arange(1, k + 1) for k in (3, 3, 2, 3, 4, 2)), indexing="ij")
        X = np.stack(grid, axis=-1).reshape(-1, 6)
        return X.astype(np.float64), np.where(positive(X.T), 1, -1)

    return make


DEMO_SETS: dict[str, Callable[[], tuple[Array, Array]]] = {
    "spirals": spirals,
    "two-spirals": two_spirals,
    "monk1": _monk(lambda a: (a[0] == a[1]) | (a[4] == 1)),
    "monk2": _monk(lambda a: (a == 1).sum(axis=0) == 2),
    "monk3": _monk(lambda a: ((a[4] == 3) & (a[3] == 1)) | ((a[4] != 4) & (a[1] != 3))),
}
