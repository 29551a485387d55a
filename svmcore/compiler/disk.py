"""Machine code on disk, so that a machine compiles once.

One file holds the code of one function for one list of argument types. Its name is made from everything the code depends
on: the text of the function's home and of all homes it imports, the argument types, the processor, the compiler and its
settings. So nothing ever changes: what an edit or an upgrade makes stale is simply not found, and there is no index that
two processes could spoil for each other. A file is written under another name and renamed when it is complete.

A file that holds something else than its name says counts as absent, as one does that is not ours to believe (`files`).
Writing is optional: no error of the disk reaches the caller. What the user's own files do not have may be in a bundle.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding
import numba
from numba import config

from svmcore.compiler.bundle import Bundle, Magic, fitting, refuse
from svmcore.compiler.files import UNFINISHED, delete, read, safe, write

SUFFIX = ".code"
Key = tuple[str, str, str, str, str]
_VARIANTS = 16  # files kept of one function and its types: sources that were edited, or another checkout's
_ABANDONED = 3600.0  # seconds after which an unfinished file is a dead process's


# ---- what code depends on --------------------------------------------------------------------------------------------


@functools.cache
def sources(module: str) -> tuple[str, ...]:
    """A module of the package and all modules of it that it imports, directly or not, by name.

    Of each import statement: the module it names, and the words behind it as modules below that one or by themselves.
    Those that are loaded modules of the package are all that it loads, and rarely one too many.
    """
    package = module.partition(".")[0]
    statement = re.compile(rf"^[ \t]*(?:from|import)\s+((?:{package}\b|\.)[\w.]*)((?:\([^)]*\)|[^(\n])*)", re.MULTILINE)
    found, waiting = {module}, [module]
    while waiting:
        importer = waiting.pop()
        names = set()
        for target, rest in statement.findall(_source(importer)):
            name = target.lstrip(".")  # an import may name a module with leading dots
            level = len(target) - len(name)
            start = ".".join(filter(None, [*importer.split(".")[:-level], name])) if level else name
            names |= {start, *(name for word in re.findall(r"[\w.]+", rest) for name in (word, f"{start}.{word}"))}
        names = {name for name in names & sys.modules.keys() if name.startswith(f"{package}.")}
        waiting.extend(names - found)
        found |= names
    return tuple(sorted(found))


@functools.cache
def _source(module: str) -> str:
    loader: Any = getattr(sys.modules[module].__spec__, "loader", None)
    text = loader.get_source(module) if hasattr(loader, "get_source") else None
    if text is None:
        raise LookupError(f"no source of {module}")
    return str(text)


@functools.cache
def stamp(module: str) -> str | None:
    """A hash of the text of a module and of all it imports from the package; None where there is no text."""
    try:
        return _digest("\0".join(_digest(_source(name)) for name in sources(module)))
    except LookupError:
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def compiler() -> str:
    """The compiler, and those of its settings that change the code."""
    python = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"
    names = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT")
    settings = " ".join(f"{name}={getattr(config, name, None)}" for name in names)
    return f"numba {numba.__version__}, llvmlite {llvmlite.__version__}, {python}, {settings}"


# ---- where ------------------------------------------------------------------------------------------------------------


def base() -> Path:
    """The folder of all versions: in NUMBA_CACHE_DIR, else XDG_CACHE_HOME, else where the system keeps caches."""
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR) / "svmcore"
    given = os.environ.get("XDG_CACHE_HOME") or (os.environ.get("LOCALAPPDATA") if os.name == "nt" else None)
    if given:
        return Path(given) / "svmcore"
    try:
        return Path.home() / ".cache" / "svmcore"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / f"svmcore-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"


def folder() -> Path:
    """The folder of this version of the library, of numba and Python, and of this processor."""
    from svmcore import __version__

    processor = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    return base() / f"{__version__}-{numba.__version__}-{sys.implementation.cache_tag}-{processor}"


def kept() -> bool:
    """Whether the folder can be written to, or be made."""
    found = folder()
    while not found.exists() and found != found.parent:
        found = found.parent
    return found.is_dir() and os.access(found, os.W_OK | os.X_OK)


# ---- one function's files --------------------------------------------------------------------------------------------


class DiskCache:
    """The files of one function, with the methods that numba asks of a dispatcher's cache."""

    def __init__(self, function: Any, *, allocates: bool = True) -> None:
        self._allocates = allocates
        self._name = f"{function.__module__.partition('.')[2]}.{function.__qualname__}"
        self._stamp = stamp(function.__module__) or ""
        self._enabled = bool(self._stamp)  # not of a function whose source is not there to be compared

    @property
    def cache_path(self) -> str:
        """The folder."""
        return str(folder())

    def disable(self) -> None:
        """Neither read nor write."""
        self._enabled = False

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compiled function: of the user's own file, else of a bundle; None where neither has it."""
        if not self._enabled:
            return None
        types = str(tuple(getattr(signature, "args", signature)))
        try:
            key, name = self._entry(types, target_context.codegen().magic_tuple())
        except AttributeError:  # a new numba, whose private names moved: nothing is kept
            self.disable()
            return None
        result = self._rebuilt(target_context, key, read(folder() / name))
        for file, bundle in fitting(compiler()) if result is None else ():
            key, name = self._entry(types, bundle.magic)
            result = self._rebuilt(target_context, key, bundle.codes.get(name))
            if result is not None:
                break
            function = name.rpartition("-")[0]
            if any(other.rpartition("-")[0] == function for other in bundle.codes):
                refuse(file, "svmcore has other sources than those it was made from")
        return result

    def _rebuilt(self, target_context: Any, key: Key, payload: bytes | None) -> Any:
        """The function that a file holds, when that is the one it should. Only memory of its own needs more of numba."""
        if payload is None:
            return None
        try:
            from numba.core.compiler import CompileResult

            stored, code = pickle.loads(payload)
            if stored != key:
                return None
            if self._allocates:
                target_context.refresh()
            return CompileResult._rebuild(target_context, *pickle.loads(code))
        except Exception:  # whatever a file says that another state of the library has written
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write the compiled function to its file. A full, slow, read-only or missing disk is no error."""
        if not self._enabled or result.library.has_dynamic_globals:
            return
        types = str(tuple(getattr(signature, "args", signature)))
        try:
            from numba.core.serialize import dumps

            key, name = self._entry(types, result.codegen.magic_tuple())
            code = dumps(result._replace(type_annotation="")._reduce())
        except (AttributeError, ImportError):  # as above
            self.disable()
            return
        file = folder() / name
        try:
            if file.parent.exists() and not safe(file.parent):
                refuse(file.parent, "others may write to it")
                return
            write(file, dumps((key, code)))
            _tidy(file)
        except OSError:
            return

    def _entry(self, types: str, magic: Magic) -> tuple[Key, str]:
        """What must be equal, in full, and the name of the file: the function, all else, the sources."""
        key = (self._name, types, repr(magic), compiler(), self._stamp)
        return key, f"{self._name}-{_digest(repr(key[:-1]))}-{self._stamp[:16]}{SUFFIX}"


def pack(file: Path) -> int:
    """Write a bundle of what the user's cache holds for this compiler and processor and the modules that are loaded.

    The number of its functions. Raises OSError where the disk does not let us.
    """
    from numba.core.registry import cpu_target

    magic = cpu_target.target_context.codegen().magic_tuple()
    stamps = {stamp(name) for name in list(sys.modules) if name.startswith("svmcore.")}
    codes = {}
    for own in folder().glob(f"*{SUFFIX}"):
        payload = read(own)
        if payload is None:
            continue
        (_, _, stored_magic, stored_compiler, stored_stamp), _ = pickle.loads(payload)
        if (stored_magic, stored_compiler) == (repr(magic), compiler()) and stored_stamp in stamps:
            codes[own.name] = payload
    write(file, pickle.dumps(tuple(Bundle(compiler(), magic, codes))))
    return len(codes)


def _tidy(file: Path) -> None:
    """Delete the oldest files of the same function and types beyond a number, and what dead processes left."""
    variants = list(file.parent.glob(f"{file.name.rpartition('-')[0]}-*{SUFFIX}"))
    if len(variants) > _VARIANTS:
        dated = sorted((_modified(other), other) for other in variants)
        for _, other in dated[:-_VARIANTS]:
            delete(other)
    for other in file.parent.glob(f"*{UNFINISHED}"):
        if time.time() - _modified(other) > _ABANDONED:
            delete(other)


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # another process was quicker
        return time.time()
