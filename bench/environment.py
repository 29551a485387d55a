"""What a measurement depends on besides the code: processor, versions, commit, load."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.clock import cores
from bench.data import ROOT

_PACKAGES = (
    "numpy", "numba", "scipy", "highspy", "scikit-learn", "scikit-learn-intelex", "libsvm-official",
    "liblinear-official", "thundersvm-cpu", "torchkm", "torch", "threadpoolctl",
)  # fmt: skip


def version(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _vectors() -> str:
    info = Path("/proc/cpuinfo")
    flags = info.read_text(encoding="utf-8") if info.is_file() else ""
    return next((name for name in ("avx512f", "avx2", "avx", "asimd") if name in flags), "unknown")


def _git(*words: str) -> str:
    """What git answers; nothing where there is no git, or no checkout."""
    if shutil.which("git") is None:
        return ""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def load() -> list[float]:
    """The load averages of 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else []


def environment() -> dict[str, Any]:
    """Everything a reader needs to judge the figures."""
    import svmcore

    return {
        "kind": "environment",
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "svmcore": svmcore.__version__,
        "commit": _git("rev-parse", "--short", "HEAD") or "unknown",
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "cpu": _processor(),
        "vectors": _vectors(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := version(name))},
        "load": load(),
    }
