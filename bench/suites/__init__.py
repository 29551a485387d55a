"""The suites by name, in the order in which `run all` takes them."""

from __future__ import annotations

from bench.suites import cv, fit, fit_large, predict, processes, scaling, smoke, solvers
from bench.suites.base import Suite
from bench.tables import SUITE as TABLES

__all__ = ["SUITES", "Suite"]

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in [
        smoke.SUITE, fit.SUITE, fit_large.SUITE, cv.SUITE, predict.SUITE, solvers.SUITE, scaling.SUITE,
        processes.COLD_SUITE, processes.MEMORY_SUITE, TABLES,
    ]
}  # fmt: skip
