"""Checkpoints: what a fit over parts needs to set out again, in an .npz file without pickle that is replaced in one piece.

A file belongs to one problem: it holds the problem's own description, and one of another problem is refused by what differs.
"""

from __future__ import annotations

import json
import os
from typing import Any

from svmcore._errors import InputError
from svmcore.compiler.files import regular
from svmcore.models import archive

_FORMAT = "svmcore-checkpoint-2"  # 1: points in bits


class Ledger:
    """A checkpoint file, or none (`path` is None)."""

    def __init__(self, path: Any, problem: dict[str, Any]) -> None:
        try:
            self.path = None if path is None else os.fspath(path)
        except TypeError:
            raise InputError(f"checkpoint={path!r} is no file name") from None
        self.problem = json.loads(json.dumps(problem))
        if self.path is not None and not os.path.isdir(os.path.dirname(os.path.abspath(self.path))):
            raise InputError(f"checkpoint={self.path!r} is in a folder that does not exist; make it first")

    def of_machine(self, number: int, classes: list[str | None]) -> Ledger:
        """The file of one of several machines: that of run.npz is run-0.npz."""
        root, ending = os.path.splitext(self.path or "")
        return Ledger(self.path and f"{root}-{number}{ending}", self.problem | {"pair of classes": classes})

    def __bool__(self) -> bool:
        return self.path is not None

    def read(self) -> dict[str, Any] | None:
        """What was written last, or None where there is no such file."""
        if self.path is None or not os.path.exists(self.path):
            return None
        try:
            with regular(self.path) as file:
                found: dict[str, Any] = archive.read(self.path, file)
            if str(found.pop("format")) != _FORMAT:
                raise ValueError(f"it is not of the format {_FORMAT}")
            problem = json.loads(str(found.pop("problem")))
        except (ValueError, KeyError, OSError) as error:
            raise InputError(
                f"checkpoint={self.path!r} is no checkpoint ({error}); delete it, or name another"
            ) from None
        for name, value in self.problem.items():
            if problem.get(name) != value:
                raise InputError(
                    f"checkpoint={self.path!r} belongs to another problem: {name} is {problem.get(name)!r} there and "
                    f"{value!r} here; delete it, or name another file"
                )
        return found

    def write(self, **arrays: Any) -> None:
        """Replace the file."""
        if self.path is not None:
            archive.write(self.path, {"format": _FORMAT, "problem": json.dumps(self.problem), **arrays})
