"""What a suite is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.contest import Context


@dataclass(frozen=True)
class Suite:
    """A named set of measurements with a time budget; `run` writes its records into the context's results."""

    name: str
    summary: str
    minutes: float
    run: Callable[[Context], None]
