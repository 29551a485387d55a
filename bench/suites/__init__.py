"""The suites by name, in the order in which `run all` takes them."""

from __future__ import annotations

from bench.suite import Suite
from bench.suites import (
    bilevel,
    cv,
    estimators,
    first,
    fit,
    fit_large,
    gamma,
    gpu,
    intel,
    linear,
    many,
    path,
    predict,
    processes,
    processors,
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
        smoke.SUITE, first.SUITE, fit.SUITE, linear.SUITE, gpu.SUITE, intel.SUITE, many.SUITE, bilevel.SUITE, gamma.SUITE,
        scaling.SUITE, processors.SUITE, fit_large.SUITE, path.SUITE, cv.SUITE, predict.SUITE, small.SUITE, solvers.SUITE,
        scale.SUITE, estimators.SUITE, processes.COLD_SUITE, processes.MEMORY_SUITE, TABLES,
    ]
}  # fmt: skip
