"""Processes of their own, with a cache of machine code of their own; and small checkouts of two compiled homes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from svmcore.compiler import disk as _disk

ROOT = Path(__file__).parents[1]
MACHINERY = (
    "__init__.py", "jit.py", "fast.py", "roots.py", "lower.py", "quick.py", "records.py", "disk.py", "files.py",
    "bundle.py",
)  # fmt: skip

HOME_BELOW = """
from svmcore.compiler.jit import jit

@jit
def _double(x):
    return 2.0 * x
"""

HOME_ABOVE = """
from svmcore.compiler.jit import jit
from svmcore._kernels import _double

@jit
def step(x):
    return _double(x) + 1.0
"""

# Prints the value, and how often machine code was read from the disk and made anew.
PROGRAM = """
from svmcore._smo_jit import step
print(step(3.0), sum(step.stats.cache_hits.values()), sum(step.stats.cache_misses.values()))
"""

posix = pytest.mark.skipif(sys.platform == "win32", reason="processes and permissions of POSIX")


def start(program: str, root: Path, cache: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    """A process in a folder. An empty string takes a variable out of its environment."""
    settings = {**os.environ, "NUMBA_CACHE_DIR": str(cache or root / "cache"), "SVMCORE_QUIET": "1", **environment}
    settings = {name: value for name, value in settings.items() if environment.get(name) != ""}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=root,
        env=settings,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def spent(process: subprocess.Popen[str]) -> float:
    """Seconds of the processor that a process has had; where the system does not tell, of the clock."""
    stat = Path(f"/proc/{process.pid}/stat")
    if not stat.exists():
        return time.perf_counter()
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def work(process: subprocess.Popen[str], seconds: float) -> None:
    """Wait until a process has worked for so long, however busy the machine is."""
    begin = spent(process)
    while process.poll() is None and spent(process) < begin + seconds:
        time.sleep(0.01)


def finish(process: subprocess.Popen[str], seconds: float = 1800.0) -> str:
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert (process.returncode, err) == (0, ""), err
    return out


def finish_all(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What each of them says. When one fails, the others are not left behind."""
    try:
        return [finish(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def run(program: str, root: Path, cache: Path | None = None, **environment: str) -> list[float]:
    return [float(word) for word in finish(start(program, root, cache, **environment)).split()]


def ran(program: str, *words: object, folder: Path = ROOT, **environment: str) -> tuple[str, str]:
    """Output and messages of a program of the checkout, which ends well."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], cwd=folder, timeout=1800, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, done.stderr


def files(root: Path) -> list[Path]:
    return sorted(root.rglob(f"*{_disk.SUFFIX}"))


def checkout(folder: Path) -> Path:
    """A package with the real decorator and two small homes."""
    package = folder / "svmcore"
    (package / "compiler").mkdir(parents=True)
    for name in MACHINERY:
        shutil.copy(ROOT / "svmcore" / "compiler" / name, package / "compiler")
    for name, text in [("__init__", '__version__ = "1"\n'), ("_kernels", HOME_BELOW), ("_smo_jit", HOME_ABOVE)]:
        (package / f"{name}.py").write_text(text)
    return folder


def edit(file: Path, old: str, new: str) -> None:
    """Python takes a source of the same size, written within the same second, for the one it has bytecode of: that goes."""
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


# Ordinary use, other data than warmup's. Prints what it compiled.
USE = """
import warnings
import numpy as np
from numba.core import event
from scipy.sparse import csr_matrix
import svmcore
warnings.simplefilter("ignore")
record = event.RecordingListener()
event.register("numba:compile", record)
rng = np.random.default_rng(7)
X = rng.standard_normal((90, 5))
y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
sparse = csr_matrix((rng.random((90, 30)) < 0.2) * rng.standard_normal((90, 30)))

def fit():
    for kernel in ("rbf", "linear", "poly", "sigmoid", "laplacian"):
        for data in (X, X.astype(np.float32), sparse):
            machine = svmcore.train_svc(data, y, 1.0, kernel=kernel)
            machine.predict(data[:1]), machine.decision_function(data), machine.certificate
            svmcore.certificate(data, y, machine.alpha, machine.intercept, C=1.0, kernel=kernel)
    svmcore.train_svr(X, X[:, 0], 1.0)
    svmcore.leave_one_out(X, y, 1.0)
    svmcore.train_one_class(X).predict(X)
    svmcore.train_svc(X, y, nu=0.3)
    for kernel in ("rbf", "poly", "laplacian"):
        svmcore.train_classes(X, np.digitize(X[:, 0], [-0.4, 0.4]), kernel=kernel).predict(X)
    svmcore.gp_regression(X, X[:, 0], noise=0.1).predict(X)

def path():
    for data in (X, X.astype(np.float32), sparse):
        path = svmcore.svm_path(data, y, gamma=0.5, lambda_min=0.01)
        path.certify(), path.error_curve().best_C, path.predict(data[:2], C=[1.0])
    svmcore.svm_path(X, y, kernel="linear", lambda_min=0.1)
    svmcore.cv_path(X, y, C_min=0.1, C_max=10.0)
    for follow in (svmcore.svr_path, svmcore.epsilon_path, svmcore.quantile_path):
        follow(X, X[:, 0])
    svmcore.one_class_path(X)

def many():
    svmcore.permutation_test(X, y, n_permutations=5)
    svmcore.cross_val_many(X, np.column_stack([X[:, 0], X[:, 1]]), loss="epsilon_insensitive", cv="loo")
    svmcore.searchlight(X, y, [[0, 1], [2, 3, 4]], n_permutations=30)
    svmcore.exemplars(X[:20], X)
    svmcore.train_many(X, np.column_stack([y] * 16), 1.0)
"""
REPORT = """
print(*sorted({e.data["dispatcher"].py_func.__qualname__ for _, e in record.buffer if e.is_start}))
"""
