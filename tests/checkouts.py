"""Processes of their own, with a cache of machine code of their own; and small checkouts of two compiled homes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from svmcore import _disk

ROOT = Path(__file__).parents[1]
MACHINERY = ("_jit.py", "_roots.py", "_records.py", "_disk.py", "_files.py", "_bundle.py")

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


def finish(process: subprocess.Popen[str]) -> str:
    try:
        out, err = process.communicate(timeout=300.0)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert (process.returncode, err) == (0, ""), err
    return out


def run(program: str, root: Path, cache: Path | None = None, **environment: str) -> list[float]:
    return [float(word) for word in finish(start(program, root, cache, **environment)).split()]


def files(root: Path) -> list[Path]:
    return sorted(root.rglob(f"*{_disk.SUFFIX}"))


def checkout(folder: Path) -> Path:
    """A package with the real decorator and two small homes."""
    package = folder / "svmcore"
    package.mkdir()
    for name in MACHINERY:
        shutil.copy(ROOT / "svmcore" / name, package)
    for name, text in [("__init__", '__version__ = "1"\n'), ("_kernels", HOME_BELOW), ("_smo_jit", HOME_ABOVE)]:
        (package / f"{name}.py").write_text(text)
    return folder


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
