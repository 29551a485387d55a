"""Warnings that are not what a test is about, and those that are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(*kinds: type[Warning]) -> Iterator[None]:
    """Without warnings, or without those of these kinds."""
    with warnings.catch_warnings():
        for kind in kinds or (Warning,):
            warnings.simplefilter("ignore", kind)
        yield


@contextmanager
def heard() -> Iterator[list[warnings.WarningMessage]]:
    """The list of all warnings, as they come."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
