"""A linear machine by the slowest and plainest way: coordinate steps on its dual until nothing moves, in numpy.

Variables have the signs of their labels. Without an equality row: an intercept is the constant feature `tau`.
"""

from __future__ import annotations

import numpy as np

SWEEPS = 20_000


def loss_of(name: str, f: np.ndarray, y: np.ndarray, epsilon: float) -> np.ndarray:
    """The loss of every row, by its definition; squared losses count half, as in this library."""
    if "hinge" in name:
        short = np.maximum(0.0, 1.0 - y * f)
    elif name == "pinball":
        return np.maximum(epsilon * (y - f), (epsilon - 1.0) * (y - f))
    else:
        short = np.maximum(0.0, np.abs(y - f) - epsilon)
    return 0.5 * short**2 if name.startswith("squared") else short


def primal(
    X: np.ndarray, y: np.ndarray, costs: np.ndarray, name: str, w: np.ndarray, b: float, tau: float, epsilon: float
) -> float:
    """The objective of w and the intercept b, which costs (b / tau)^2 / 2 where tau is not infinite."""
    regular = 0.5 * (b / tau) ** 2 if 0.0 < tau < np.inf else 0.0
    return float(0.5 * w @ w + regular + costs @ loss_of(name, X @ w + b, y, epsilon))


def descend(
    X: np.ndarray, y: np.ndarray, costs: np.ndarray, name: str, tau: float, epsilon: float
) -> tuple[np.ndarray, float]:
    """The weights and the intercept. `epsilon` is the quantile of the pinball loss."""
    Z = np.column_stack([X, np.full(len(X), tau)])
    squared = name.startswith("squared")
    beta, w = np.zeros(len(X)), np.zeros(Z.shape[1])
    diag = 1.0 / costs if squared else 0.0 * costs
    bound = np.where(squared, np.inf, costs)
    if "hinge" in name:
        low, high, tube = np.where(y > 0, 0.0, -bound), np.where(y > 0, bound, 0.0), 0.0
    elif name == "pinball":
        low, high, tube = (epsilon - 1.0) * bound, epsilon * bound, 0.0
    else:
        low, high, tube = -bound, bound, epsilon
    for _ in range(SWEEPS):
        moved = 0.0
        for i in range(len(X)):
            curve = Z[i] @ Z[i] + diag[i]
            if not curve > 0.0:
                beta[i] = high[i] if y[i] > tube else low[i] if y[i] < -tube else 0.0
                continue
            middle = beta[i] + (y[i] - Z[i] @ w - diag[i] * beta[i]) / curve
            new = np.clip(np.sign(middle) * max(0.0, abs(middle) - tube / curve), low[i], high[i])
            moved = max(moved, abs(new - beta[i]) * np.sqrt(curve))
            w += (new - beta[i]) * Z[i]
            beta[i] = new
        if moved < 1e-13:
            break
    w = beta @ Z
    return w[:-1], float(tau * w[-1])


# ---- L1 penalties ----------------------------------------------------------------------------------------------------


def primal_l1(X: np.ndarray, y: np.ndarray, costs: np.ndarray, w: np.ndarray) -> float:
    """|w|_1 and the squared hinges of labels 1 and -1, as LIBLINEAR counts them. An intercept is one of the columns."""
    short = np.maximum(0.0, 1.0 - y * (X @ w))
    return float(np.abs(w).sum() + costs @ short**2)


def descend_l1(X: np.ndarray, y: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Its minimum: one weight at a time, by bisection for the place where the slope changes its sign."""
    w = np.zeros(X.shape[1])
    for _ in range(SWEEPS):
        before = w.copy()
        for j in range(len(w)):
            f = X @ w - w[j] * X[:, j]

            def slope(value: float, f: np.ndarray = f, x: np.ndarray = X[:, j]) -> float:
                return float(-2.0 * (costs * y * x) @ np.maximum(0.0, 1.0 - y * (f + value * x)))

            at_zero = slope(0.0)
            w[j] = 0.0
            if abs(at_zero) > 1.0:
                sign = -np.sign(at_zero)
                low, high = 0.0, 1.0
                while sign * slope(sign * high) + 1.0 < 0.0:
                    high *= 2.0
                for _ in range(100):
                    middle = 0.5 * (low + high)
                    low, high = (middle, high) if sign * slope(sign * middle) + 1.0 < 0.0 else (low, middle)
                w[j] = sign * high
        if np.abs(w - before).max() <= 1e-13 * np.abs(w).max(initial=1e-300):
            break
    return w


def liblinear(machine, row, X, y, costs, loss, intercept):
    """LIBLINEAR's objective of one row of an estimator's weights, by its definition; `y` is 1 for the row's own class."""
    weights = np.atleast_2d(machine.coef_)
    w, b = weights[row], np.broadcast_to(np.ravel(machine.intercept_), len(weights))[row] / (intercept or 1.0)
    f = X @ w + (intercept or 0.0) * b
    short = np.maximum(0.0, np.abs(y - f) - 0.2 if "epsilon" in loss else 1.0 - np.where(y == 1, 1.0, -1.0) * f)
    size = np.abs(w).sum() + abs(b) if loss == "l1" else 0.5 * (w @ w + b * b)
    return float(size + costs @ (short**2 if loss == "l1" or loss.startswith("squared") else short))
