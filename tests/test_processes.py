"""What needs a process of its own: Ctrl-C, import and cold start, read-only installations; threads; doctests."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from checkouts import ran, work

import svmcore
from svmcore._control import Control
from svmcore._types import Status

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
DATA = """
import signal, sys, warnings
import numpy as np, svmcore
signal.signal(signal.SIGINT, signal.default_int_handler)
rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 4))
y = np.sign(rng.normal(size=3000))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    svmcore.train_svc(X[:70], y[:70], 1e6, tol=1e-3, max_iter=50)  # compile
"""


def start(program: str, *, root: Path = ROOT, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-c", program], cwd=root, env={**os.environ, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], seconds: float = 1800.0) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, err


# ---------------------------------------------------------------- Ctrl-C, limits


WIDE = """
import signal, sys, time, warnings
import numpy as np, svmcore
warnings.simplefilter("ignore")
signal.signal(signal.SIGINT, signal.default_int_handler)
rng = np.random.default_rng(0)
for X in (rng.normal(size=(150, 4)), rng.normal(size=(6000, 600))):
    y = np.where(X[:, 0] + 3.0 * rng.normal(size=len(X)) > 0, 1, -1)
    if len(X) == 150:
        svmcore.train_svc(X, y, 1e5, max_iter=50, **OPTIONS)  # compile
print("ready", flush=True)
begin = time.process_time()
try:
    found = svmcore.train_svc(X, y, 1e5, tol=1e-12, time_limit=100, **OPTIONS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a fit that has ended needs no Ctrl-C
except KeyboardInterrupt:
    found  # it came between these two lines
spent = time.process_time() - begin
a = found.alpha * np.where(y > 0, 1.0, -1.0)
sound = abs(a.sum()) <= 1e-9 * abs(a).sum() + 1e-300, found.objective <= 0.0, np.isfinite(found.intercept)
print(found.status.name, spent, *sound)
"""
SOLVERS = [("interior", "linear"), ("block", "rbf"), ("smo", "rbf"), ("simple", "rbf"), ("decomposition", "linear")]


@pytest.mark.compiled
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("solver", "kernel", "moment"),
    [("block", "rbf", 0.3), pytest.param("interior", "linear", 0.3, marks=pytest.mark.ci)]
    + [pytest.param(*each, 0.9, marks=pytest.mark.ci) for each in SOLVERS]
    + [pytest.param(*each, 0.3, marks=pytest.mark.ci) for each in SOLVERS[2:]],
)
def test_ctrl_c_at_any_moment_is_answered_soon(solver, kernel, moment):
    """Wide data, where one product takes long: soon after the signal, with the certificate; a point kept."""
    program = WIDE.replace("OPTIONS", f"{{'solver': '{solver}', 'kernel': '{kernel}', 'n_threads': 1}}")
    process = start(program)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    work(process, moment)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, err) == (0, "")
    status, spent, *sound = out.split()
    assert status in ("INTERRUPTED", "CONVERGED", "PRECISION")
    assert float(spent) <= moment + 5.0  # of CPU: the machine may be busy
    assert sound == ["True"] * 3


@pytest.fixture(scope="module")
def wide():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 600))
    return X, np.where(X[:, 0] + 3.0 * rng.normal(size=6000) > 0, 1.0, -1.0)


@pytest.mark.filterwarnings("ignore::svmcore.ConvergenceWarning")
@pytest.mark.parametrize(("solver", "kernel"), SOLVERS)
def test_a_time_limit_is_met_on_wide_data(wide, solver, kernel):
    X, y = wide
    options = {"solver": solver, "kernel": kernel, "n_threads": 1}
    svmcore.train_svc(X[:150], y[:150], 1e5, max_iter=50, **options)  # compile
    begin = time.process_time()
    found = svmcore.train_svc(X, y, 1e5, tol=1e-12, time_limit=0.4, **options)
    assert time.process_time() - begin <= 0.4 + 5.0  # of CPU: the machine may be busy
    assert found.status in (Status.TIME_LIMIT, Status.CONVERGED, Status.PRECISION)
    a = found.alpha * y
    assert abs(a.sum()) <= 1e-9 * abs(a).sum() + 1e-300
    assert found.objective <= 0.0
    assert np.isfinite(found.intercept)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_second_ctrl_c_raises():
    program = f"""{DATA}
import os
calls = []
def kernel(A, B):
    calls.append(1)
    os.kill(os.getpid(), signal.SIGINT)
    return A @ B.T
try:
    svmcore.train_svc(X[:20], y[:20], kernel=kernel, cache_mb=1e-6)
except KeyboardInterrupt:
    print("interrupted", len(calls))
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    assert ran(program) == ("interrupted 2\nTrue\n", "")


def test_a_fit_respects_a_handler_that_is_not_pythons():
    def mine(signum, frame):
        raise AssertionError

    old = signal.signal(signal.SIGINT, mine)
    try:
        with Control(time_limit=None, callback=None, verbose=0):
            assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, old)


def test_the_control_answers_in_order():
    calls = []
    with Control(time_limit=None, callback=lambda report: calls.append(report), verbose=0) as control:
        assert control.check(3, 0.5, -1.0) is None
        assert calls[0][:3] == (3, 0.5, -1.0)
        control._on_interrupt(2, None)
        assert control.check(4, 0.5, -1.0) is Status.INTERRUPTED
        with pytest.raises(KeyboardInterrupt):
            control._on_interrupt(2, None)
    with Control(time_limit=0.0, callback=None, verbose=0) as control:
        assert control.check(0, 1.0, 0.0) is Status.TIME_LIMIT
    with Control(time_limit=None, callback=lambda report: 1, verbose=0) as control:
        assert control.check(0, 1.0, 0.0) is Status.CALLBACK


def test_progress_goes_to_stderr(capsys):
    with Control(time_limit=None, callback=None, verbose=1, name="fit") as control:
        control._last_line -= 2.0
        control.check(12, 0.25, -3.5)
        control.check(13, 0.25, -3.5)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert "iteration 12, violation 2.50e-01, dual -3.5" in shown.err


def test_an_exception_in_a_callback_passes_through_and_gives_ctrl_c_back():
    def callback(report):
        raise ZeroDivisionError

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError):
        svmcore.train_svc([[0.0], [1.0]], [0, 1], callback=callback)
    assert signal.getsignal(signal.SIGINT) is before


# ---------------------------------------------------------------- threads


@pytest.mark.compiled
def test_the_same_bits_on_one_and_two_threads():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(700, 10))
    y = np.sign(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=700))
    one, two, again = [svmcore.train_svc(X, y, 5.0, n_threads=k) for k in (1, 2, 2)]
    Z = rng.normal(size=(900, 10))
    for other in (two, again):
        assert np.array_equal(one.alpha, other.alpha)
        assert (one.intercept, one.objective, one.gap) == (other.intercept, other.objective, other.gap)
        assert np.array_equal(one.decision_function(Z), other.decision_function(Z))


# ---------------------------------------------------------------- start


# ---------------------------------------------------------------- examples


def modules() -> list[str]:
    heavy = {"estimators", "plots", "distributed", "cli", "__main__"}
    found = [info.name for info in pkgutil.walk_packages(svmcore.__path__, "svmcore.")]
    return ["svmcore", *(name for name in found if name.split(".")[1] not in heavy)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.ci if name == "svmcore.compiler.warm" else ()) for name in modules()]
)
def test_examples_run(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
