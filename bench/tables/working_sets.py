"""Chapter 7 of N. Cristianini and J. Shawe-Taylor (2000): gradient ascent, decomposition and chunking."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import svmcore
from bench import data
from bench.tables.base import Figure, Table, libsvm_seconds, linear_rate, over_steps
from svmcore._keywords import SolverName

TITLE = "Gradient ascent, decomposition and chunking"
SOURCE = "N. Cristianini and J. Shawe-Taylor, An introduction to support vector machines, 2000, chapter 7"

SET, GAMMA = "clusters-500-10", 0.1
OMEGAS = (0.5, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8)
ORDERS = ("sequential", "random", "violation", "gap", "two-stage", "batch")
RATES = (0.1, 0.5, 1.0, 1.9, 10.0)  # times the rate that is exact for one point, or safe for all of them
SHARES = (0.5, 0.9, 0.99, 0.999)  # of the largest margin
SIZES = (2, 4, 10, 20, 40, 80)


def fit(C: float, solver: SolverName, tol: float = 1e-4, **options: Any) -> Any:
    X, y = data.load(SET)[:2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return svmcore.train_svc(X, y, C, gamma=GAMMA, solver=solver, tol=tol, random_state=0, **options)


def ascent() -> Table:
    """Updates, sweeps and the linear rate by omega and order, without bias."""
    rows, curves = [], {}
    best = fit(1.0, "smo", tol=1e-10, fit_intercept=False).objective
    for order in ORDERS:
        for omega in OMEGAS:
            s = fit(
                1.0, "adatron", fit_intercept=False, order=order, omega=omega, face_steps=False, trace=True, tol=1e-6
            )
            above = np.maximum(np.asarray(s.trace["objective"]) - best, 1e-14)
            rate = linear_rate(above, 1.0 if order == "batch" else len(s.alpha))
            rows.append([order, omega, s.n_iter, s.stats["sweeps"], rate, s.n_kernel_evals, s.fit_seconds])
            if omega == 1.0:
                curves[order] = above.tolist()
    for name in ("smo", "auto"):
        s = fit(1.0, name, tol=1e-6, fit_intercept=False)
        rows.append([name, None, s.n_iter, None, None, s.n_kernel_evals, s.fit_seconds])
    seconds = libsvm_seconds([data.load(SET)[:2]], 1.0, GAMMA, 1e-6)
    rows.append(["LIBSVM (with a bias)", None, None, None, None, None, seconds])
    return Table(
        "Hildreth / SOR without bias, C = 1, tol = 1e-6 (table 7.1, remarks 7.5 to 7.8)",
        ["order", "omega", "updates", "sweeps", "rate per n updates", "kernel values", "seconds"],
        rows,
        note="Rate: the factor by which W* - W falls over n updates (an update of the batch moves all), fitted to "
        "the second half of the run: linear "
        "convergence. The book prints no figures; smo, auto and LIBSVM stand below for their seconds.",
        figures=[over_steps("SOR without bias by order, omega = 1", "f(a_k) - f*", curves)],
    )


def rates() -> Table:
    """Table 7.1 with learning rates of one's own, a sweep and all variables at once."""
    X = data.load(SET)[0]
    squares = np.square(X).sum(axis=1)
    K = np.exp(-GAMMA * np.maximum(squares[:, None] + squares[None, :] - 2.0 * X @ X.T, 0.0))
    units = {"sequential": 1.0, "batch": 1.0 / float(np.linalg.eigvalsh(K)[-1])}
    best = fit(1.0, "smo", tol=1e-10, fit_intercept=False).objective
    rows, curves = [], {}
    for order, unit in units.items():
        for factor in (*RATES, None):
            rate = None if factor is None else factor * unit
            options = {"order": order, "learning_rate": rate, "face_steps": False, "trace": True}
            s = fit(1.0, "adatron", fit_intercept=False, tol=1e-4, **options)
            above = np.maximum(np.asarray(s.trace["objective"]) - best, 1e-14)
            cut = s.stats.get("shortened", s.n_iter if factor is not None and factor >= 2.0 else 0)
            rows.append([
                order, factor, rate, s.n_iter, s.stats["sweeps"], cut, s.kkt_violation, "yes" if s.converged else "no",
                s.fit_seconds,
            ])  # fmt: skip
            if order == "batch":
                curves["exact step" if factor is None else f"{factor:g} / largest eigenvalue"] = above.tolist()
    return Table(
        "Learning rates, no bias, C = 1, tol = 1e-4 (table 7.1)",
        ["order", "rate x", "rate", "updates", "sweeps", "steps cut", "KKT violation", "converged", "seconds"],
        rows,
        note="Rates in units of 1 / k(x, x), which is the exact step of one point, and of 1 / the largest eigenvalue of K, "
        "for all points at once. Above 2 such steps gain nothing and are cut to the exact one. Without a rate: the exact "
        "step. An update moves one weight, of the batch all. The book prints no figures.",
        figures=[over_steps("Steepest ascent by learning rate", "f(a_k) - f*", curves)],
    )


def separable() -> tuple[np.ndarray, np.ndarray]:
    """200 points in the plane with a gap between the classes, on both sides of a line through the origin."""
    X = np.random.default_rng(3).normal(size=(1000, 2))
    X = X[np.abs(X[:, 0] + 0.5 * X[:, 1]) > 0.3][:200]
    return X, np.where(X[:, 0] + 0.5 * X[:, 1] > 0, 1.0, -1.0)


def margins() -> Table:
    """Exercise 1: the margin over the updates of gradient ascent, for every heuristic of selection."""
    X, y = separable()
    largest = 1.0 / float(np.linalg.norm(svmcore.train_svc(
        X, y, np.inf, kernel="linear", fit_intercept=False, tol=1e-10
    ).coef_))  # fmt: skip
    rows, series = [], {}
    for order in ORDERS[:-1]:  # a step of all variables does not tell in its trace where it went
        options: dict[str, Any] = {
            "order": order,
            "tol": 1e-3,
            "face_steps": False,
            "max_iter": 100_000,
            "random_state": 0,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            s = svmcore.train_svc(
                X, y, np.inf, kernel="linear", fit_intercept=False, solver="adatron", trace=True, **options
            )
        assert s.trace is not None
        w = np.cumsum(s.trace["step"][:, None] * X[s.trace["i"].astype(int)], axis=0)
        size = np.linalg.norm(w, axis=1)
        found = ((y[:, None] * X) @ w.T).min(axis=0) / np.maximum(size, 1e-300)
        first = [next((k + 1 for k, value in enumerate(found) if value >= share * largest), None) for share in SHARES]
        rows.append([order, *first, s.n_iter, float(found[-1] / largest), s.kkt_violation])
        kept = np.unique(np.geomspace(1, len(found), 400).astype(int))
        series[order] = (kept.tolist(), np.maximum(found[kept - 1] / largest, -1.0).tolist())
    return Table(
        "The margin over the updates, hard margin, 200 points in the plane (exercise 1 of chapter 7)",
        ["order", *(f"{100 * share:g} %" for share in SHARES), "updates", "margin at the end", "KKT violation"],
        rows,
        note="Updates until the geometric margin has first come to such a share of the largest one; it may fall again in "
        "between. The book prints no figures.",
        figures=[
            Figure(
                "Exercise 1: the margin by order of updates", "update", "margin / largest, cut at -1", series, log="x"
            )
        ],
    )


def working_sets() -> Table:
    """Decomposition by q and chunking by the number of violators added."""
    rows = []
    for C in (1.0, 100.0):
        for q in SIZES:
            s = fit(C, "decomposition", q=q)
            rows.append(
                [C, f"decomposition q = {q}", s.n_iter, s.n_kernel_evals, s.stats["paper_evals"], s.fit_seconds]
            )
        for size in (20, 50, 100):
            s = fit(C, "chunking", size=size)
            rows.append([C, f"chunking M = {size}", s.n_iter, s.n_kernel_evals, s.stats["paper_evals"], s.fit_seconds])
        for name in ("smo", "simple", "rosen-cg", "interior", "auto"):
            s = fit(C, name)
            rows.append([C, name, s.n_iter, s.n_kernel_evals, s.stats.get("paper_evals"), s.fit_seconds])
        rows.append([C, "LIBSVM", None, None, None, libsvm_seconds([data.load(SET)[:2]], C, GAMMA, 1e-4)])
    return Table(
        "Working sets (section 7.4), tol = 1e-4",
        ["C", "method", "iterations", "kernel values", "without reuse", "seconds"],
        rows,
        note="Larger working sets take fewer iterations, each dearer; with rows kept, the number of kernel values is n "
        "times the indices ever used, nearly the same for all. q = 2 retraces the maximal violating pair step by step; "
        "interior factorises the kernel matrix. "
        "The book prints no figures.",
    )


def run(full: bool) -> Iterator[Table]:
    for name in (
        "decomposition",
        "chunking",
        "smo",
        "simple",
        "rosen-cg",
        "interior",
        "auto",
    ):  # compiled before the clock runs
        fit(1.0, name, tol=1e-2)
    for order in ORDERS:
        fit(1.0, "adatron", fit_intercept=False, order=order, trace=True, max_iter=10)
    yield ascent()
    yield rates()
    yield margins()
    yield working_sets()
