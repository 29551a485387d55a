"""The one jit decorator of the library, and what it promises.

Every compiled function is kept on disk (`disk`), releases the GIL, divides like numpy (no ZeroDivisionError, so loops with a
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

from svmcore.compiler import bundle
from svmcore.compiler.bundle import host_features as host_features
from svmcore.compiler.disk import DiskCache, folder, kept
from svmcore.compiler.fast import SETTING, obstacle

try:
    from numba.core.event import Listener, register
except ImportError:  # a new numba, whose private names moved: nobody is told when it compiles
    Listener, register = object, None

DISABLED = bool(config.DISABLE_JIT)
"""True under NUMBA_DISABLE_JIT=1: homes then run as plain Python."""

PATIENCE = 2.0
"""Seconds in the compiler after which a process says what it is doing."""

_SUM_FLAGS = {"reassoc", "contract", "nsz", "arcp", "afn"}


def jit(function: Any = None, *, sums: bool = False, inline: bool = False, allocates: bool = False) -> Any:
    """Compile a home's function.

    `sums=True` lets its additions be reordered; `inline=True` makes LLVM copy it into its callers. A function works on
    the arrays it is given and counts no references, which in short loops cost more than the work; one that creates
    arrays says `allocates=True`. Homes assign no slices of arrays, whose error messages take
    seconds to compile. In a call between compiled functions they write ``np.int64(0)`` where the plain way would compile the
    callee once more for a literal 0; the fast way does not (`roots`).
    """
    if function is None:
        return functools.partial(jit, sums=sums, inline=inline, allocates=allocates)
    if DISABLED:
        return function
    words = {"sums": sums, "inline": inline, "allocates": allocates}
    compiled = numba.njit(**_options(**words))(function) if OBSTACLE else _root(function, **words)
    compiled._cache = DiskCache(function, allocates=allocates or bool(OBSTACLE))
    return compiled


def _options(*, sums: bool = False, inline: bool = False, allocates: bool = False) -> dict[str, Any]:
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": set(_SUM_FLAGS) if sums else {"contract"},
        "_nrt": allocates,
        "no_cfunc_wrapper": True,  # for functions handed to C: nobody does, and each takes time to compile
    }
    return options | {"forceinline": True} if inline else options


def _root(function: Any, **words: bool) -> Any:
    from svmcore.compiler.roots import Root

    return Root(function, targetoptions=_options(**words))


OBSTACLE = "nothing is compiled" if DISABLED else obstacle(folder(), _root)
"""Why functions are compiled by numba's plain decorator; an empty text where `roots` compiles them."""


def description() -> str:
    """The compiler and its way, in a line."""
    return f"numba {numba.__version__}, " + (f"the plain way: {OBSTACLE}" if OBSTACLE else "the fast way")


def words() -> list[str]:
    """What this process does without while it compiles, and why: a line each."""
    lines = bundle.words()
    if OBSTACLE and not OBSTACLE.startswith(SETTING):
        lines.append(f"svmcore: numba {numba.__version__} compiles in the plain way, five times as long: {OBSTACLE}")
    about = "up to a minute" if OBSTACLE else "a few seconds"
    if kept():
        lines.append(f"svmcore: compiling once for this machine, {about}; svmcore.warmup() does it ahead")
    else:
        lines.append(
            f"svmcore: compiling for this process alone, {about}: {folder()} cannot be written to; "
            "NUMBA_CACHE_DIR=folder names another"
        )
    return lines


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


def _ours(event: Any) -> bool:
    return str(event.data["dispatcher"].py_func.__module__).startswith("svmcore.")


def _to_standard_error(line: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


say: Callable[[str], None] | None = _to_standard_error
"""What is done with that word. A program with progress of its own may put a function or None here."""

_word = _Word()
if not DISABLED and register is not None:
    register("numba:compile", _word)
