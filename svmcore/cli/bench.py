"""Benchmarks: the suites of the checkout, which are in the wheel, too, with what is installed beside it."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from svmcore._errors import InputError
from svmcore.cli.output import DONE, say

_LIBRARY = Path(__file__).parents[1]
_REST = (
    "data sets and the published results are in the checkout, not in the package: SVMCORE_DATA=FOLDER names a folder of "
    "data; peers come with pip install 'svmcore[bench]'; docs/benchmarks.md says how it is measured"
)


def folder() -> Path:
    """Where the package `bench` is: beside the library in a checkout, inside of it in a wheel."""
    for place in (_LIBRARY / "_bench", _LIBRARY.parent):
        if (place / "bench" / "suites").is_dir() and (place != _LIBRARY.parent or (place / "pyproject.toml").is_file()):
            return place
    raise InputError("this installation holds no benchmarks; run them from a checkout: python -m bench list")


def bench(args: argparse.Namespace) -> int:
    """Run suites, or list them; what they lack they say."""
    place = str(folder())
    sys.path.insert(0, place)
    try:
        command = importlib.import_module("bench.__main__").main
        if not args.names:
            status = int(command(["list"]))
            say(_REST)
            return status
        words = ["run", *args.names]
        for name in ("data", "out", "minutes"):
            value = getattr(args, name)
            words += [] if value is None else [f"--{name}", str(value)]
        for name in ("only", "problems"):
            words += [f"--{name}", *getattr(args, name)] if getattr(args, name) else []
        status = int(command([*words, *["--full"] * args.full]))
    finally:
        sys.path.remove(place)
    say(f"what was left out says why; {_REST}")
    return status or DONE
