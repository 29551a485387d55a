"""Machine code in one file: what a machine has compiled, for others to load.

A bundle holds the files of a cache folder (`disk`), under their names, and says which compiler made them for which
processor. It is looked at after the user's own files and before the compiler is asked. It is taken as a whole or not at
all: the compiler must be the same, and this processor must have every extension that the code may use. Each function is
then believed as one of a file is, when all that its code depends on is the same.

Code is run as the library itself is. So a bundle comes from the installed package `svmcore_compiled`, or from the path in
SVMCORE_BUNDLE, and never from a place that others can write to.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pickle
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding
from numba import config

from svmcore.compiler.files import read, regular, safe

SUFFIX = ".bundle"
NAMED = "SVMCORE_BUNDLE"
PACKAGE = "svmcore_compiled"

Magic = tuple[str, str, str]
"""What numba says about its target: the triple, the processor's name, its features as "+a,-b"."""


class Bundle(NamedTuple):
    """Machine code of one compiler for one processor, by the names of the files that it was kept in."""

    compiler: str
    magic: Magic
    codes: dict[str, bytes]


class Processor(NamedTuple):
    """A processor to compile for, as numba's settings say it."""

    name: str
    features: str
    machine: str  # the first word of the triple of those that may have it

    @property
    def settings(self) -> dict[str, str]:
        """The environment of a process that compiles for it."""
        return {"NUMBA_CPU_NAME": self.name, "NUMBA_CPU_FEATURES": self.features}


_V3 = "sse3 ssse3 sse4.1 sse4.2 popcnt cx16 sahf avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"
_V4 = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"


def _list(names: str) -> str:
    return ",".join(f"+{name}" for name in names.split())


PROCESSORS = {
    "x86-64-v3": Processor("x86-64-v3", _list(_V3), "x86_64"),
    "x86-64-v4": Processor("x86-64-v4", _list(_V4), "x86_64"),
    "aarch64": Processor("generic", _list("neon fp-armv8"), "aarch64"),
}
"""Those that machine code is shipped for, besides one's own."""


def needed(features: str) -> frozenset[str]:
    """The extensions that code may use, of features as numba writes them."""
    return frozenset(name[1:] for name in features.split(",") if name.startswith("+"))


def host_features() -> frozenset[str]:
    """The extensions that compiled code may use: this processor's, or those of NUMBA_CPU_FEATURES."""
    if config.CPU_FEATURES is not None:
        return needed(config.CPU_FEATURES)
    return frozenset(name for name, here in llvmlite.binding.get_host_cpu_features().items() if here)


def missing(features: str) -> list[str]:
    """The extensions that code may use and this processor does not have, or shall not use."""
    return sorted(needed(features) - host_features())


# ---- where bundles are, and which of them fit ------------------------------------------------------------------------


_reasons: dict[Path, str] = {}
_told: set[Path] = set()


def refuse(file: Path, why: str) -> None:
    """Remember why a bundle, or a part of it, is of no use here."""
    _reasons.setdefault(file, why)


def words() -> list[str]:
    """A line for each bundle that was of no use, once in a process."""
    new = [file for file in _reasons if file not in _told]
    _told.update(new)
    return [f"svmcore: the machine code in {file} is not used: {_reasons[file]}" for file in new]


def _opened(file: Path, compiler: str) -> Bundle | str:
    """The bundle in a file, or why it does not fit."""
    try:
        if not safe(file.resolve().parent):
            return "others may write to its folder"
        payload = read(file)
        if payload is None:
            regular(file).close()
            return "others own it or may write to it, or it is damaged"
        bundle = Bundle(*pickle.loads(payload))
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    except Exception:  # whatever another version of the library has written
        return "it is no bundle of this version of svmcore"
    if bundle.compiler != compiler:
        return f"another compiler made it: {bundle.compiler}; here it is {compiler}"
    if bundle.magic[0] != llvmlite.binding.get_process_triple():
        return f"it is for {bundle.magic[0]}"
    if lacking := missing(bundle.magic[2]):
        return f"this processor lacks {', '.join(lacking)}"
    return bundle


@functools.cache
def fitting(compiler: str) -> list[tuple[Path, Bundle]]:
    """The bundles that fit, those that use most of the processor first. Where there is none, each leaves a word."""
    named = os.environ.get(
        NAMED
    )  # the file that the user names, even if it is none; else those of the installed package
    found_package = importlib.util.find_spec(PACKAGE) if named is None else None
    folders = (found_package.submodule_search_locations if found_package else None) or []
    files = sorted(file for folder in folders for file in Path(folder).glob(f"*{SUFFIX}"))
    opened = [(file, _opened(file, compiler)) for file in ([Path(named)] if named else files)]
    found = [(file, bundle) for file, bundle in opened if isinstance(bundle, Bundle)]
    for file, why in opened:
        if isinstance(why, str) and not found:
            refuse(file, why)
    return sorted(found, key=lambda item: -len(needed(item[1].magic[2])))
