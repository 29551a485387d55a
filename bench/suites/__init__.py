"""The suites by name, in the order in which `run all` takes them."""

from __future__ import annotations

from bench.suite import Suite
from bench.suites import (
    cv,
    estimators,
    first,
    fit,
    fit_large,
    gpu,
    linear,
    many,
    path,
    predict,
    processes,
    scale,
    scaling,
    small,
    smoke,
    solvers,
)
from bench.tables import SUITE as TABLES

__all__ = ["SUITES", "Suite"]

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in [
        smoke.SUITE, first.SUITE, fit.SUITE, linear.SUITE, fit_large.SUITE, path.SUITE, cv.SUITE, gpu.SUITE, predict.SUITE,
        small.SUITE, many.SUITE, solvers.SUITE, scaling.SUITE, scale.SUITE, estimators.SUITE, processes.COLD_SUITE,
        processes.MEMORY_SUITE, TABLES,
    ]
}  # fmt: skip
