"""What the whole suite shares: hypothesis profiles, markers, data sets.

SVMCORE_HYPOTHESIS   "some" (default): 50 examples per property, the same ones every time; "small": 6 of them, for slow
                     interpreters; "nightly": 10,000 random ones
SVMCORE_DATA         folder of the benchmark data sets; by default `../shared/data` next to the checkout
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Read when numpy and scikit-learn are loaded: threads of theirs wait for each other by spinning, which on a busy machine
# takes ten times what the small products of tests do.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import poison
import pytest
from engines import early_windows
from hypothesis import HealthCheck, settings
from numba import config
from scipy.sparse import csr_matrix

from svmcore.cli import main
from svmcore.compiler.jit import DISABLED

# No deadline and no health check on time: the speed of the machine must not decide a test.
# Fixtures that lower a threshold do so for all examples of a property.
settings.register_profile(
    "some", max_examples=50, derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
settings.register_profile("small", settings.get_profile("some"), max_examples=6)
settings.register_profile("nightly", settings.get_profile("some"), max_examples=10_000, derandomize=False)
settings.load_profile(os.environ.get("SVMCORE_HYPOTHESIS", "some"))

if DISABLED:
    # New memory is full of signalling NaN: whatever reads it before it writes to it fails here, on every run.
    poison.spoil_new_memory()

os.environ.setdefault("SVMCORE_QUIET", "1")  # for the processes that tests start: what they write is compared
os.environ.setdefault("SVMCORE_BUNDLE", "")  # what they compile is counted, whatever is installed

DATA = Path(os.environ.get("SVMCORE_DATA") or Path(__file__).parents[2] / "shared" / "data")


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "data_set" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.compiled)
        if (DISABLED or config.BOUNDSCHECK) and item.get_closest_marker("once"):
            item.add_marker(pytest.mark.skip(reason="runs with compiled code, without bounds checks"))
        elif DISABLED and item.get_closest_marker("compiled"):
            item.add_marker(pytest.mark.skip(reason="needs compiled code"))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of tests and all that they import live to the end: the garbage collector need not look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["steps", "windows"])
def tracker(request: pytest.FixtureRequest) -> Iterator[None]:
    """A property of paths, event by event and in windows: the latter must have run."""
    if request.param == "steps":
        yield
        return
    with early_windows() as windows:
        yield
    assert sum(windows) > 0


class Command:
    """`run("train", ...)` -> (status, output, messages) of the command line, and never a traceback."""

    def __init__(self, read: Callable[[], tuple[str, str]]) -> None:
        self.read = read

    def __call__(self, *words: Any) -> tuple[int, str, str]:
        self.read()
        status = main([str(word) for word in words])
        out, err = self.read()
        assert "Traceback" not in out + err
        return status, out, err

    def works(self, *words: Any) -> tuple[str, str]:
        """Output and messages of what ends well."""
        status, out, err = self(*words)
        assert status == 0, err
        return out, err

    def refused(self, *words: Any) -> str:
        """The message of what is not begun."""
        status, out, err = self(*words)
        assert (status, out) == (2, "")
        return err


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return Command(capfd.readouterr)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C raises, which a job in the background ignores; and whoever has caught it leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    held = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert held is signal.default_int_handler


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
