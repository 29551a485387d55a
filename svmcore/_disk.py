"""Machine code on disk, so that a machine compiles once.

One file holds the code of one function for one list of argument types. Its name is made from everything the code depends
on: the text of the function's home and of all homes it imports, the argument types, the processor, the compiler and its
settings. So nothing ever changes: what an edit or an upgrade makes stale is simply not found, and there is no index that
two processes could spoil for each other. A file is written under another name and renamed when it is complete.

Reading believes nothing. A file that was cut, that belongs to another user, that others may write to, or that holds
something else than its name says, counts as absent. Writing is optional: no error of the disk reaches the caller.
"""

from __future__ import annotations

import contextlib
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
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

SUFFIX = ".code"
_MAGIC = b"svmcore machine code 1\n"
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
            start = _absolute(target, importer)
            names |= {start, *(name for word in re.findall(r"[\w.]+", rest) for name in (word, f"{start}.{word}"))}
        names = {name for name in names & sys.modules.keys() if name.startswith(f"{package}.")}
        waiting.extend(names - found)
        found |= names
    return tuple(sorted(found))


def _absolute(target: str, importer: str) -> str:
    """A module's name in full, where an import names it with leading dots."""
    name = target.lstrip(".")
    if not (level := len(target) - len(name)):
        return name
    return ".".join(filter(None, [*importer.split(".")[:-level], name]))


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


def _compiler() -> str:
    """The compiler, and those of its settings that change the code."""
    versions = (numba.__version__, llvmlite.__version__, sys.implementation.cache_tag, getattr(sys, "abiflags", ""))
    names = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT")
    return repr((versions, [str(getattr(config, name, None)) for name in names]))


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


# ---- one function's files --------------------------------------------------------------------------------------------


class DiskCache:
    """The files of one function, with the methods that numba asks of a dispatcher's cache."""

    def __init__(self, function: Any) -> None:
        self._name = f"{function.__module__.partition('.')[2]}.{function.__qualname__}"
        self._stamp = stamp(function.__module__) or ""
        self.enable()

    @property
    def cache_path(self) -> str:
        """The folder."""
        return str(folder())

    def enable(self) -> None:
        """Read and write files; not of a function whose source is not there to be compared."""
        self._enabled = bool(self._stamp)

    def disable(self) -> None:
        """Neither read nor write."""
        self._enabled = False

    def flush(self) -> None:
        """Delete every file of the function."""
        for file in _listed(f"{self._name}-*{SUFFIX}"):
            _delete(file)

    def load_overload(self, signature: Any, target_context: Any) -> CompileResult | None:
        """The compiled function, or None where there is no good file of it."""
        if not self._enabled:
            return None
        target_context.refresh()
        key, name = self._entry(signature, target_context.codegen())
        payload = read(folder() / name)
        if payload is None:
            return None
        try:
            stored, reduced = pickle.loads(payload)
            if stored != key:
                return None
            return CompileResult._rebuild(target_context, *reduced)
        except Exception:  # whatever a file says that another state of the library has written
            return None

    def save_overload(self, signature: Any, result: CompileResult) -> None:
        """Write the compiled function to its file, if the disk lets us."""
        if not self._enabled or result.library.has_dynamic_globals:
            return
        key, name = self._entry(signature, result.codegen)
        write(folder() / name, dumps((key, result._reduce())))

    def _entry(self, signature: Any, codegen: Any) -> tuple[tuple[str, ...], str]:
        """What must be equal, in full, and the name of the file: the function, all else, the sources."""
        types = str(tuple(getattr(signature, "args", signature)))
        key = (self._name, types, repr(codegen.magic_tuple()), _compiler(), self._stamp)
        return key, f"{self._name}-{_digest(repr(key[:-1]))}-{self._stamp[:16]}{SUFFIX}"


# ---- one file ---------------------------------------------------------------------------------------------------------


def read(file: Path) -> bytes | None:
    """What `write` has written, or None where that is not what the file holds, or not ours to believe."""
    try:
        with file.open("rb") as stream:
            if not _trusted(os.fstat(stream.fileno())):
                return None
            content = stream.read()
    except OSError:
        return None
    head = len(_MAGIC) + hashlib.sha256().digest_size
    payload = content[head:]
    return payload if content[:head] == _MAGIC + hashlib.sha256(payload).digest() else None


def _trusted(status: os.stat_result) -> bool:
    """Code is run: it must come from this user or the administrator, and nobody else may have changed it."""
    if os.name != "posix":
        return True
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & 0o022


def write(file: Path, payload: bytes) -> None:
    """Write a file that appears complete or not at all. A full, slow, read-only or missing disk is no error."""
    temporary = file.with_name(f"{file.name[:40]}-{os.getpid()}-{time.monotonic_ns():x}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o644)
            with open(descriptor, "wb") as stream:
                stream.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
            if os.name == "posix":
                temporary.chmod(0o644)  # whatever the umask: files that others may write to are not read
            temporary.replace(file)
        except OSError:
            _delete(temporary)
            return
        _tidy(file)
    except OSError:
        return


def _tidy(file: Path) -> None:
    """Delete the oldest files of the same function and types beyond a number, and what dead processes left."""
    variants = list(file.parent.glob(f"{file.name.rpartition('-')[0]}-*{SUFFIX}"))
    if len(variants) > _VARIANTS:
        dated = sorted((_modified(other), other) for other in variants)
        for _, other in dated[:-_VARIANTS]:
            _delete(other)
    for other in file.parent.glob("*.tmp"):
        if time.time() - _modified(other) > _ABANDONED:
            _delete(other)


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # another process was quicker
        return time.time()


def _listed(pattern: str) -> list[Path]:
    try:
        return list(folder().glob(pattern))
    except OSError:
        return []


def _delete(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
