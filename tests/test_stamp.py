"""The stamps of the compiled homes are up to date, and thanks to them machine code does not outlive its sources."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

HOME_BELOW = """
from svmcore._jit import jit

@jit
def _double(x):
    return 2.0 * x
"""

HOME_ABOVE = """
from svmcore._jit import jit
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

FIT = """
import svmcore
from scipy.sparse import csr_matrix
from svmcore._smo_jit import smo_slice
options = dict(gamma=1.0, solver="smo", tol=1e-9)
X = csr_matrix([[1e3, 0.0], [1e3, 1.0]])  # so far from the origin that tiles refuse: certified by the same home
solution = svmcore.train_svc(X, [-1, 1], 10.0, **options)
print(round(solution.alpha[0], 6), sum(smo_slice.stats.cache_hits.values()), sum(smo_slice.stats.cache_misses.values()))
"""


def stamp(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools" / "stamp.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run(program: str, root: Path) -> list[float]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(root / "cache")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


@pytest.fixture
def two_homes(tmp_path):
    """A checkout whose package has the real decorator and two small homes, stamped."""
    package = tmp_path / "svmcore"
    package.mkdir()
    shutil.copy(ROOT / "svmcore" / "_jit.py", package)
    for name, text in [("__init__", ""), ("_kernels", HOME_BELOW), ("_smo_jit", HOME_ABOVE)]:
        (package / f"{name}.py").write_text(text)
    assert stamp(tmp_path).returncode == 0
    return tmp_path


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_stamps_of_the_tree_are_fresh():
    checked = stamp("--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_stale_stamps_are_named_and_one_run_mends_them(two_homes):
    assert stamp("--check", two_homes).returncode == 0
    edit(two_homes / "svmcore" / "_kernels.py", "2.0", "5.0")
    checked = stamp("--check", two_homes)
    assert checked.returncode == 1
    assert "_smo_jit.py" in checked.stdout
    assert "_kernels.py" not in checked.stdout
    assert stamp(two_homes).returncode == 0
    assert stamp("--check", two_homes).returncode == 0


def test_a_change_travels_through_the_homes_between(two_homes):
    above = "from . import _smo_jit\nfrom ._jit import jit\n\njit(_smo_jit.step)\n"
    (two_homes / "svmcore" / "_path_jit.py").write_text(above)
    assert "_path_jit.py" in stamp("--check", two_homes).stdout  # it has no stamp yet
    stamp(two_homes)
    assert stamp("--check", two_homes).returncode == 0
    edit(two_homes / "svmcore" / "_kernels.py", "2.0", "5.0")
    stale = stamp("--check", two_homes).stdout
    assert "_smo_jit.py" in stale
    assert "_path_jit.py" in stale


@pytest.mark.compiled
def test_an_edited_home_is_seen_by_its_importer_in_another_process(two_homes):
    assert run(PROGRAM, two_homes) == [7.0, 0, 1]
    assert run(PROGRAM, two_homes) == [7.0, 1, 0]
    edit(two_homes / "svmcore" / "_kernels.py", "2.0", "5.0")
    stamp(two_homes)
    assert run(PROGRAM, two_homes) == [16.0, 0, 1]
    assert run(PROGRAM, two_homes) == [16.0, 1, 0]


@pytest.mark.compiled
def test_an_index_of_another_version_is_replaced(two_homes):
    """It may hold types whose classes the sources no longer have."""
    assert run(PROGRAM, two_homes) == [7.0, 0, 1]
    stale = list((two_homes / "cache").rglob("*.nbi"))
    assert stale
    for index in stale:
        version = pickle.dumps(pickle.loads(index.read_bytes()))
        index.write_bytes(version + b"csvmcore._smo_jit\nGone\n.")
    assert run(PROGRAM, two_homes) == [7.0, 0, 1]
    assert run(PROGRAM, two_homes) == [7.0, 1, 0]


@pytest.mark.compiled
def test_an_edited_kernel_is_seen_by_the_solver(tmp_path):
    """On the homes themselves: alpha = 1 / (1 - K) for two points, whose K = 1/e is squared.

    A run may mend by its last checks what stale code did; the counts of the cache tell what was compiled.
    """
    shutil.copytree(ROOT / "svmcore", tmp_path / "svmcore", ignore=shutil.ignore_patterns("__pycache__"))
    kernels = tmp_path / "svmcore" / "_kernels.py"
    assert run(FIT, tmp_path) == [1.581977, 0, 1]
    assert run(FIT, tmp_path) == [1.581977, 1, 0]
    edit(kernels, "out[j] *= -kernel.gamma", "out[j] *= -2.0 * kernel.gamma")
    stamp(tmp_path)
    assert run(FIT, tmp_path) == [1.156518, 0, 1]
