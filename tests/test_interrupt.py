"""Ctrl-C at random moments of every long operation: nobody waits for long, and what was reached is kept and right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from checkouts import spent

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
LONGEST = 3.0
"""Seconds of the processor after Ctrl-C; on a quiet machine a person waits less than one."""
HANGS = 1800.0
"""Seconds after which a process that says nothing is given up."""

PROGRAM = """
import signal, sys, tempfile, time, warnings
import numpy as np
import matplotlib
matplotlib.use("Agg")
import svmcore
signal.signal(signal.SIGINT, signal.default_int_handler)
rng = np.random.default_rng(0)
n = int(sys.argv[1])
X = rng.normal(size=(n, 30))
y = np.where(X[:, :2].sum(axis=1) + rng.normal(size=n) > 0, 1, -1)
Z, z = rng.normal(size=(40 * n, 30)), rng.choice([-1, 1], 40 * n)
few = slice(0, n // 2)
warnings.simplefilter("ignore")
with warnings.catch_warnings():
    path = svmcore.svm_path(X, y, gamma=0.03, lambda_min=0.05)
    curve = path.error_curve(Z, z)
    loo = svmcore.leave_one_out(X[few], y[few], gamma=0.03)
    svmcore.train_svc(X, y, 10.0, gamma=0.03, tol=1e-9)
    path.plot("overview")
    tiny = svmcore.svm_path(X[:60], y[:60], gamma=0.03)
    tiny.save(tempfile.mkdtemp() + "/warm.npz")
folder = tempfile.mkdtemp()

def fit():
    return svmcore.train_svc(X, y, 1e5, gamma=0.03, tol=1e-12)
def follow():
    return svmcore.svm_path(X, y, gamma=0.03, lambda_min=1e-4)
def certify():
    return path.certify(np.geomspace(0.01, 20.0, 2000))
def error_curve():
    return path.error_curve(Z, z)
def leave_one_out():
    return svmcore.leave_one_out(X[few], y[few], gamma=0.03)
def save():
    return path.save(folder + "/path.npz")
def plot():
    return path.plot("overview")["error"].figure.savefig(folder + "/x.png", dpi=300)
def predict():
    return path.predict(Z, np.geomspace(0.01, 20.0, 200))

def right(name, found):
    if name == "fit":
        return bool(found.gap >= 0.0)
    if name == "follow":
        return found.certify().relative_gap < 1e-8
    if name == "certify":
        return 0 < found.n_values < 2000 and found.relative_gap < 1e-8
    if name == "error_curve":
        k = found.values.size
        return 0.0 == found.C_min < found.C_max < curve.C_max and np.allclose(found.values, curve.values[:k], atol=1e-12)
    if name == "leave_one_out":
        done = ~np.isnan(found.decision_values)
        return not found.converged and np.array_equal(found.decision_values[done], loo.decision_values[done])
    return True

every = {f.__name__: f for f in (fit, follow, certify, error_curve, leave_one_out, save, plot, predict)}
for name in sys.stdin:
    name = name.strip()
    found, asleep = None, False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            print("ready", flush=True)
            found = every[name]()
            if not any("interrupted" in str(w.message) for w in caught):
                found, asleep = None, True  # the signal is to come, or came in the last moment of the work
                time.sleep(2.0)
                asleep = False
        except KeyboardInterrupt:
            asleep = True
    print("back" if asleep or found is not None else "finished", flush=True)
    held = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print("nothing" if found is None else "kept", held and (found is None or right(name, found)), flush=True)
"""
LONG = ("fit", "follow", "certify", "error_curve", "leave_one_out", "save", "plot", "predict")


class Child:
    """A process that works, and is interrupted."""

    def __init__(self, n: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", PROGRAM, str(n)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def line(self) -> str:
        assert self.process.stdout is not None
        timer = threading.Timer(HANGS, self.process.kill)
        timer.start()
        try:
            text = self.process.stdout.readline().strip()
        finally:
            timer.cancel()
        assert text, f"no answer within {HANGS:.0f} s"
        return text

    def interrupt(self, name: str, after: float) -> tuple[float, str]:
        """(seconds until it was back, what it kept and whether that is right)."""
        assert self.process.stdin is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        assert self.line() == "ready"
        time.sleep(after)
        begin = spent(self.process)
        self.process.send_signal(signal.SIGINT)
        back = self.line()
        assert back in ("back", "finished")
        return spent(self.process) - begin if back == "back" else 0.0, self.line()


@pytest.fixture(scope="module")
def child():
    child = Child(700)
    yield child
    child.process.kill()
    child.process.communicate()


@pytest.mark.compiled
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("name", LONG)
def test_nobody_waits_after_ctrl_c(child, name):
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng([1, LONG.index(name)])
    for _ in range(2):
        waited, answer = child.interrupt(name, rng.uniform(0.02, 0.4))
        assert answer in ("kept True", "nothing True")
        assert waited < LONGEST


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_nobody_waits_at_any_of_two_hundred_moments(record_testsuite_property):
    pytest.importorskip("matplotlib")
    child, rng = Child(3000), np.random.default_rng(7)
    try:
        found = {name: [child.interrupt(name, rng.uniform(0.0, 1.5)) for _ in range(25)] for name in LONG}
    finally:
        child.process.kill()
        child.process.communicate()
    for name, answers in found.items():
        record_testsuite_property(f"{name}_longest", max(waited for waited, _ in answers))
        assert {answer for _, answer in answers} <= {"kept True", "nothing True"}, name
        assert max(waited for waited, _ in answers) < LONGEST, name
    for name in ("fit", "follow", "certify", "error_curve", "leave_one_out"):
        assert "kept True" in {answer for _, answer in found[name]}, name
