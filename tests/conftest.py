"""What the whole suite shares: hypothesis profiles, markers, data sets.

SVMCORE_HYPOTHESIS   "ci" (default): 200 examples per property, the same ones every time; "small": 6 of them, for slow
                     interpreters; "nightly": 10,000 random ones
SVMCORE_DATA         folder of the benchmark data sets; by default `../shared/data` next to the checkout
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import poison
import pytest
from engines import early_windows
from hypothesis import HealthCheck, settings
from numba import config
from scipy.sparse import csr_matrix

from svmcore._jit import DISABLED

# No deadline and no health check on time: the speed of the machine must not decide a test.
# Fixtures that lower a threshold do so for all examples of a property.
settings.register_profile(
    "ci", max_examples=200, derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
settings.register_profile("small", settings.get_profile("ci"), max_examples=6)
settings.register_profile("nightly", settings.get_profile("ci"), max_examples=10_000, derandomize=False)
settings.load_profile(os.environ.get("SVMCORE_HYPOTHESIS", "ci"))

if DISABLED:
    # New memory is full of signalling NaN: whatever reads it before it writes to it fails here, on every run.
    poison.spoil_new_memory()

os.environ.setdefault("SVMCORE_QUIET", "1")  # for the processes that tests start: what they write is compared
os.environ.setdefault("SVMCORE_BUNDLE", "")  # what they compile is counted, whatever is installed

DATA = Path(os.environ.get("SVMCORE_DATA") or Path(__file__).parents[2] / "shared" / "data")


# What these files test does not depend on how code is compiled. Plain Python and bounds checks leave them out.
ONE_MODE = {
    "test_archive", "test_audit", "test_bench", "test_bundle", "test_calibration", "test_cli", "test_cli_gp",
    "test_cli_models", "test_cli_process", "test_data", "test_disk", "test_distributed_dask",
    "test_distributed_estimators", "test_estimators", "test_estimators_changes", "test_estimators_paths",
    "test_estimators_sklearn", "test_formats", "test_fuzz_files", "test_html", "test_interrupt", "test_keywords",
    "test_layers", "test_libsvm", "test_memory", "test_plots", "test_processes", "test_project", "test_readme",
    "test_tables", "test_warm",
}  # fmt: skip

# Whole runs, of what other files test in pieces: in plain Python they take long, and reach no other line of a home.
WHOLE_RUNS = {
    "test_advice", "test_classes", "test_column_store", "test_columns", "test_cv", "test_cv_band", "test_cv_classes",
    "test_cv_folds", "test_cv_numbers", "test_distributed_approximate", "test_distributed_kernel",
    "test_distributed_linear", "test_family", "test_fuzz", "test_intercept", "test_many", "test_scales",
    "test_solution", "test_step_curve",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (DISABLED or config.BOUNDSCHECK) and item.path.stem in ONE_MODE:
            item.add_marker(pytest.mark.skip(reason="runs with compiled code, without bounds checks"))
        elif DISABLED and (
            item.path.stem in WHOLE_RUNS
            or item.get_closest_marker("compiled")
            or "data_set" in getattr(item, "fixturenames", ())
        ):
            item.add_marker(pytest.mark.skip(reason="needs compiled code"))


@pytest.fixture(params=["steps", "windows"])
def tracker(request: pytest.FixtureRequest) -> Iterator[None]:
    """A property of paths, event by event and in windows: the latter must have run."""
    if request.param == "steps":
        yield
        return
    with early_windows() as windows:
        yield
    assert sum(windows) > 0


@pytest.fixture(scope="session")
def data_set() -> Callable[[str], tuple[Any, np.ndarray]]:
    """`data_set(name)` -> (X, y), with X dense or CSR and y in {-1, +1}; skips where the set is not at hand."""

    def load(name: str) -> tuple[Any, np.ndarray]:
        file = DATA / f"{name}.npz"
        if not file.is_file():
            pytest.skip(f"data set {name!r} not found in {DATA} (set SVMCORE_DATA)")
        with np.load(file, allow_pickle=False) as stored:
            y = stored["y"]
            if "X" in stored:
                return stored["X"], y
            return csr_matrix((stored["data"], stored["indices"], stored["indptr"]), tuple(stored["shape"])), y

    return load
