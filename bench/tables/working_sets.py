"""Chapter 7 of N. Cristianini and J. Shawe-Taylor (2000): gradient ascent, decomposition and chunking."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import svmcore
from bench import data
from bench.tables.base import Table, libsvm_seconds, linear_rate, over_steps
from svmcore._keywords import SolverName

TITLE = "Gradient ascent, decomposition and chunking"
SOURCE = "N. Cristianini and J. Shawe-Taylor, An introduction to support vector machines, 2000, chapter 7"

SET, GAMMA = "clusters-500-10", 0.1
OMEGAS = (0.5, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8)
ORDERS = ("sequential", "random", "violation", "two-stage")
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
            rate = linear_rate(above, len(s.alpha))
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
        note="Rate: the factor by which W* - W falls over n updates, fitted to the second half of the run: linear "
        "convergence. The book prints no figures; smo, auto and LIBSVM stand below for their seconds.",
        figures=[over_steps("SOR without bias by order, omega = 1", "f(a_k) - f*", curves)],
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
        for name in ("smo", "simple", "rosen-cg", "auto"):
            s = fit(C, name)
            rows.append([C, name, s.n_iter, s.n_kernel_evals, s.stats.get("paper_evals"), s.fit_seconds])
        rows.append([C, "LIBSVM", None, None, None, libsvm_seconds([data.load(SET)[:2]], C, GAMMA, 1e-4)])
    return Table(
        "Working sets (section 7.4), tol = 1e-4",
        ["C", "method", "iterations", "kernel values", "without reuse", "seconds"],
        rows,
        note="Larger working sets take fewer iterations, each dearer; with rows kept, the number of kernel values is n "
        "times the indices ever used, nearly the same for all. q = 2 retraces the maximal violating pair step by step. "
        "The book prints no figures.",
    )


def run(full: bool) -> Iterator[Table]:
    for name in ("decomposition", "chunking", "smo", "simple", "rosen-cg", "auto"):  # compiled before the clock runs
        fit(1.0, name, tol=1e-2)
    for order in ORDERS:
        fit(1.0, "adatron", fit_intercept=False, order=order, trace=True, max_iter=10)
    yield ascent()
    yield working_sets()
