"""Gaussian processes: conjugate gradients, Cholesky and Widrow-Hoff; early stopping between Skilling's bounds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import svmcore
from bench import data
from bench.tables.base import Figure, Table

TITLE = "Gaussian processes"
SOURCE = "N. Cristianini and J. Shawe-Taylor, An introduction to support vector machines, 2000, section 7.6"

GAMMA, FEATURES = 0.1, 5
SIZES = (500, 1000, 2000, 4000)
NOISES = (0.01, 1.0)
EARLY = (2, 5, 10, 20, 50, 100)
SOLVERS = ("cg", "cholesky", "widrow-hoff")


def fit(X: Any, y: Any, noise: float, solver: str = "cg", tol: float = 1e-6, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return svmcore.gp_regression(
            X, y, noise=noise, gamma=GAMMA, solver=solver, tol=tol, cache_mb=512.0, n_threads=1, **options
        )


def ridge_seconds(X: Any, y: Any, noise: float) -> float | None:
    """Seconds of scikit-learn's kernel ridge, which solves the same system by Cholesky."""
    try:
        from sklearn.kernel_ridge import KernelRidge
    except ImportError:
        return None
    started = time.perf_counter()
    KernelRidge(alpha=noise, kernel="rbf", gamma=GAMMA).fit(X, y)
    return time.perf_counter() - started


def ways(full: bool) -> Table:
    """Iterations, kernel values and seconds of each way, and what it leaves."""
    rows: list[list[Any]] = []
    for n in (*SIZES, 8000) if full else SIZES:
        X, y = data.load(f"waves-{n}-{FEATURES}")[:2]
        for noise in NOISES:
            exact = fit(X, y, noise, "cholesky")
            for solver in SOLVERS:
                if solver == "widrow-hoff" and n > 2000 and not full:
                    continue
                gp = exact if solver == "cholesky" else fit(X, y, noise, solver)
                off = np.linalg.norm(gp.predict(X) - exact.predict(X)) / np.linalg.norm(y)
                rows.append([
                    n, noise, solver, gp.n_iter, gp.n_kernel_evals / n**2, gp.residual, (gp.upper - gp.lower) / gp.upper, off,
                    gp.fit_seconds, "converged" if gp.converged else gp.status.name.lower(),
                ])  # fmt: skip
            rows.append([n, noise, "scikit-learn", None, None, None, None, None, ridge_seconds(X, y, noise), ""])
    return Table(
        f"Three ways to (K + noise I) alpha = y, {FEATURES} features, rbf, residual 1e-6 (table 7.3)",
        [
            "n", "noise", "way", "iterations", "kernel values / n^2", "residual", "width of the bounds", "off in the mean",
            "seconds", "end",
        ],
        rows,
        note="Iterations: products with K; of widrow-hoff updates of one weight, so that n of them are one sweep. Widths are "
        "relative to the upper bound, what is off in the mean is relative to |y|. Gradient descent in random order gains a "
        "factor of exp(-noise / k(x, x)) a sweep or more; where that is too little it ends at its own limit. The book prints "
        "no figures.",
    )  # fmt: skip


def early() -> Table:
    """What conjugate gradients have after few iterations: bounds on both sides of the truth, and the test error."""
    n = 2000
    X, y = data.load(f"waves-{2 * n}-{FEATURES}")[:2]
    X, y, others, targets = X[:n], y[:n], X[n:], y[n:]
    rows: list[list[Any]] = []
    figures = []
    for noise in NOISES:
        exact = fit(X, y, noise, "cholesky")
        truth = 0.5 * (exact.lower + exact.upper)
        test = float(np.sqrt(np.mean((exact.predict(others) - targets) ** 2)))
        trace = fit(X, y, noise, tol=1e-10, trace=True).trace
        inside = bool((trace["lower"] <= truth * (1 + 1e-9)).all() and (trace["upper"] >= truth * (1 - 1e-9)).all())
        for k in EARLY:
            gp = fit(X, y, noise, tol=1e-12, max_iter=k)
            error = float(np.sqrt(np.mean((gp.predict(others) - targets) ** 2)))
            rows.append(
                [noise, k, gp.residual, gp.lower / truth, gp.upper / truth, error, test, "yes" if inside else "no"]
            )
        steps: list[float] = list(range(1, len(trace["lower"]) + 1))
        figures.append(
            Figure(
                f"Skilling's bounds, noise = {noise:g}", "iteration", "bound / truth",
                {
                    name: (steps, list(np.maximum(trace[name] / truth, 1e-6).tolist())) for name in ("upper", "lower")
                },
                log="xy",
            )
        )  # fmt: skip
    return Table(
        f"Early stopping, {n} points, and Skilling's bounds on y' inverse(K + noise I) y",
        [
            "noise", "iterations", "residual", "lower / truth", "upper / truth", "test error", "test error at the end",
            "truth inside at every step",
        ],
        rows,
        note="The error on other points is that of the end long before the residual is small; the bounds tell when. "
        "stopping='bounds' stops by them. The book prints no figures.",
        figures=figures,
    )  # fmt: skip


def run(full: bool) -> Iterator[Table]:
    X, y = data.load(f"waves-{SIZES[0]}-{FEATURES}")[:2]
    for solver in SOLVERS:  # compiled before the clock runs
        fit(X, y, 1.0, solver, tol=1e-2)
    yield ways(full)
    yield early()
