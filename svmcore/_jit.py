"""The one jit decorator of the library, and what it promises.

Every compiled function is kept on disk (`_disk`), releases the GIL, divides like numpy (no ZeroDivisionError, so loops with a
division vectorise: guard each denominator where it is formed) and may contract a multiplication and an addition.
`sums` additionally allows reassociation: only for pure sums and exponentials of finite data.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numba
from numba import config
from numba.core.event import Listener, register

from svmcore._bundle import host_features as host_features
from svmcore._bundle import words
from svmcore._disk import DiskCache

DISABLED = bool(config.DISABLE_JIT)
"""True under NUMBA_DISABLE_JIT=1: homes then run as plain Python."""

TESTED = (0, 68) <= tuple(int(part) for part in numba.__version__.split(".")[:2]) < (0, 69)
"""Whether `_roots`, which relies on private names of numba, was tested with this version of it."""

PATIENCE = 2.0
"""Seconds in the compiler after which a process says what it is doing."""

_SUM_FLAGS = {"reassoc", "contract", "nsz", "arcp", "afn"}


def jit(function: Any = None, *, sums: bool = False, inline: bool = False, allocates: bool = False) -> Any:
    """Compile a home's function.

    `sums=True` lets its additions be reordered; `inline=True` makes LLVM copy it into its callers. A function works on
    the arrays it is given and counts no references, which in short loops cost more than the work; one that creates
    arrays says `allocates=True`. For every literal number in a call between compiled functions the callee is compiled once
    more: ``np.int64(0)`` is none. Nor do they assign slices of arrays, whose error messages take seconds to compile.
    """
    if function is None:
        return functools.partial(jit, sums=sums, inline=inline, allocates=allocates)
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": set(_SUM_FLAGS) if sums else {"contract"},
        "_nrt": allocates,
        "no_cfunc_wrapper": True,  # for functions handed to C: nobody does, and each takes time to compile
    }
    if inline:
        options["forceinline"] = True
    if DISABLED:
        return function
    if TESTED:
        from svmcore._roots import Root

        compiled: Any = Root(function, targetoptions=options)
    else:
        compiled = numba.njit(**options)(function)
    compiled._cache = DiskCache(function, allocates=allocates or not TESTED)
    return compiled


class _Word(Listener):  # type: ignore[misc]
    """Says once in a process that it compiles, when that has taken a while."""

    def __init__(self) -> None:
        self.said = False
        self.spent = 0.0  # seconds in the compiler
        self._depth = 0
        self._began = 0.0
        self._timer: threading.Timer | None = None

    def on_start(self, event: Any) -> None:
        """A function begins to be compiled, perhaps within another one."""
        if self.said or not _ours(event):
            return
        self._depth += 1
        if self._depth == 1:
            self._began = time.perf_counter()
            self._timer = threading.Timer(max(0.0, PATIENCE - self.spent), self._say)
            self._timer.daemon = True
            self._timer.start()

    def on_end(self, event: Any) -> None:
        """It ends."""
        if self._depth == 0 or not _ours(event):
            return
        self._depth -= 1
        if self._depth == 0 and self._timer is not None:
            self._timer.cancel()
            self.spent += time.perf_counter() - self._began

    def _say(self) -> None:
        if not self.said:
            self.said = True
            if say is not None and os.environ.get("SVMCORE_QUIET", "0") in ("", "0"):
                for line in words():
                    say(line)
                say("svmcore: compiling once for this machine, about 10 s; svmcore.warmup() does it ahead")


def _ours(event: Any) -> bool:
    return str(event.data["dispatcher"].py_func.__module__).startswith("svmcore.")


def _to_standard_error(line: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


say: Callable[[str], None] | None = _to_standard_error
"""What is done with that word. A program with progress of its own may put a function or None here."""

_word = _Word()
if not DISABLED:
    register("numba:compile", _word)
