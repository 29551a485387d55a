"""Files in memory: what `save` writes, the same read again, and its parts, to be damaged."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

import svmcore


def file_of(machine: Any, **how: Any) -> io.BytesIO:
    file = io.BytesIO()
    machine.save(file, **how)
    file.seek(0)
    return file


def stored(machine: Any, **how: Any) -> Any:
    """What its file holds."""
    return svmcore.load(file_of(machine, **how))


def parts_of(file: Any) -> dict[str, np.ndarray]:
    """The fields of a file, or of that of a machine."""
    with np.load(file_of(file) if hasattr(file, "save") else file) as opened:
        return dict(opened)


def packed(**parts: Any) -> io.BytesIO:
    file = io.BytesIO()
    np.savez(file, **parts)
    file.seek(0)
    return file
