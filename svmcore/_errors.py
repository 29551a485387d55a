"""Exceptions and warnings. Everything a caller may want to catch derives from `SVMError` or `ConvergenceWarning`."""

from __future__ import annotations

import sys
import warnings
from contextvars import ContextVar

__all__ = [
    "ConvergenceWarning",
    "CostWarning",
    "InputError",
    "MissingExtraError",
    "NotEnoughMemoryError",
    "SVMError",
    "ScaleWarning",
    "StoppedError",
]


class SVMError(Exception):
    """Base class of the library's errors."""


class InputError(SVMError, ValueError):
    """An argument that cannot be used; the message names it, its value and the remedy."""


class NotEnoughMemoryError(SVMError, MemoryError):
    """The request needs more memory than the machine has; the message gives both figures."""


class MissingExtraError(SVMError, ImportError):
    """A feature needs an optional package; the message names the extra to install."""


class StoppedError(SVMError, TimeoutError):
    """A limit came before there was anything to return."""


class ConvergenceWarning(UserWarning):
    """The answer is usable but not what was asked for; the message says what is lost and what to do."""


class CostWarning(UserWarning):
    """The work that begins now will take long, or much memory; the message says what would take less."""


class ScaleWarning(UserWarning):
    """Features differ so much in scale, or targets are so large, that the fit is slow or meaningless."""


_listener: ContextVar[list[tuple[str, type[Warning]]] | None] = ContextVar("listener", default=None)


class listening:
    """What `warn` says inside goes to a list, in this thread only: somebody says it later, in other words."""

    def __enter__(self) -> list[tuple[str, type[Warning]]]:
        told: list[tuple[str, type[Warning]]] = []
        self._token = _listener.set(told)
        return told

    def __exit__(self, *error: object) -> None:
        _listener.reset(self._token)


_INSIDE = ("svmcore", "contextlib")  # contextlib calls functions that are wrapped in a context


def warn(message: str, category: type[Warning]) -> None:
    """A warning that points at the line outside of the library from which it was called, however deep this is."""
    told = _listener.get()
    if told is not None:
        told.append((message, category))
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


for _name in __all__:  # shown, and pickled, under the name by which users know them
    globals()[_name].__module__ = "svmcore"
