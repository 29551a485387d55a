"""Whether the fast way of compiling (`roots`) works with the numba that is installed.

The fast way uses private names of numba. So a version of numba that nobody has tested is tried first, on two small
functions that use what homes use. Any exception and any difference means numba's plain decorator, which compiles about
five times as long and computes the same. The verdict is kept where machine code is.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np

from svmcore.compiler.files import read, write

SETTING = "SVMCORE_FAST"
"""SVMCORE_FAST=0 in the environment asks for the plain way."""

TESTED: dict[tuple[int, ...], str] = {
    (0, 61): "its optimiser is another one",
    (0, 62): "",
    (0, 63): "",
    (0, 64): "",
    (0, 65): "",
    (0, 66): "",
    (0, 67): "",
    (0, 68): "",
}
"""Versions of numba that were tested, and why the fast way does not work there; an empty text says that it does."""

_MACHINERY = ("roots", "quick", "lower", "records")

Compile = Callable[..., Any]
"""Compiles a function the fast way; `allocates` as in `_jit.jit`."""


def obstacle(folder: Path, compiled: Compile) -> str:
    """Why the fast way is not taken; an empty text where it is. `folder` keeps the verdict on versions that are new."""
    if os.environ.get(SETTING) == "0":
        return f"{SETTING}=0"
    version = numba.__version__
    known = TESTED.get(tuple(int(part) if part.isdigit() else -1 for part in version.split(".")[:2]))
    if known is not None:
        return known
    texts = []
    for name in (*_MACHINERY, "fast"):
        loader: Any = getattr(importlib.util.find_spec(f"{__package__}.{name}"), "loader", None)
        texts.append(str(loader.get_source(f"{__package__}.{name}") if hasattr(loader, "get_source") else None))
    file = folder / f"fast-{hashlib.sha256(chr(0).join(texts).encode()).hexdigest()[:16]}.verdict"
    kept = read(file)
    if kept is not None:
        return kept.decode()
    why = _tried(compiled)
    try:
        write(file, why.encode())
    except OSError:  # the next process tries again
        return why
    return why


def _tried(compiled: Compile) -> str:
    """Compile the samples, run them, keep them, load them again. Why that failed, or an empty text."""
    kept: dict[str, bytes] = {}

    def remembered(function: Any, allocates: bool) -> Any:
        root = compiled(function, allocates=allocates)
        root._cache = _Memory(kept, function.__name__)
        return root

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = _outcome(*_samples(lambda function, allocates: function))
            made, loaded = (_outcome(*_samples(remembered)) for _ in range(2))
        why = "" if made == expected == loaded else "a sample computes something else"
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        why = f"{type(error).__name__}: {text}"[:200]
    if why:  # the files of machine code depend on the modules that are loaded
        for name in _MACHINERY:
            sys.modules.pop(f"{__package__}.{name}", None)
    return why


class _Memory:
    """What a dispatcher asks of a cache, without a disk."""

    def __init__(self, kept: dict[str, bytes], name: str) -> None:
        self.kept, self.name = kept, name

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compiled function, if it has been kept."""
        from numba.core.compiler import CompileResult

        code = self.kept.get(self.name)
        return None if code is None else CompileResult._rebuild(target_context, *pickle.loads(code))

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep it."""
        from numba.core.serialize import dumps

        self.kept[self.name] = dumps(result._replace(type_annotation="")._reduce())


# ---- the samples: whole numbers, so that no rounding tells the ways apart --------------------------------------------


class _Shelf(NamedTuple):
    line: Any
    table: Any
    scale: float
    length: int


def _samples(compiled: Compile) -> tuple[Any, Any]:
    """A root that works on a record, arrays and numbers, with a part; and one that makes an array."""

    def folded(line, begin, end):  # type: ignore[no-untyped-def]
        total = 0.0
        for i in range(begin, end):
            total += line[i] * line[-1 - i]
        return total

    part = compiled(folded, allocates=False)

    def arranged(shelf, table, flags):  # type: ignore[no-untyped-def]
        total = part(shelf.line, 1, shelf.length) + shelf.scale
        before = 0.0
        for i in range(table.shape[0]):
            for j in range(1, table.shape[1], 2):
                now = table[i, j] - before
                if now > shelf.scale:
                    flags[i] = not flags[i]
                    total += max(now, shelf.scale)
                else:
                    before = now
            shelf.line[i] += shelf.scale
            table[i, -1] = shelf.table[i, 0] + len(shelf.line)
        n = shelf.length
        while n > 0:
            n //= 2
            if n == 1:
                break
        return total + before, n

    def made(n):  # type: ignore[no-untyped-def]
        out = np.zeros(n)
        for i in range(n):
            out[i] = part(out, 0, i) + i
        return out

    return compiled(arranged, allocates=False), compiled(made, allocates=True)


def _outcome(arranged: Any, made: Any) -> tuple[Any, ...]:
    shelf = _Shelf(np.arange(6.0), np.arange(24.0).reshape(4, 6)[:, ::2], 2.0, 5)
    table, flags = np.arange(20.0).reshape(4, 5), np.array([True, False, True, False])
    answer = arranged(shelf, table, flags)
    return (*map(float, answer), shelf.line.tolist(), table.tolist(), flags.tolist(), made(5).tolist())
