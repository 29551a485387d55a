"""Files appear whole or not at all: what is written is drafted beside its place, and moved there when it is complete."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_KEPT = 40  # letters of a name that the draft's has, too


def write_whole(file: Any, save: Callable[[Any], None]) -> None:
    """Let `save` write to a stream of bytes, which becomes the file of this name; a link stays one.

    Whatever goes wrong, the file that was there before is as it was. A stream in place of a name is written to as it is.
    """
    if hasattr(file, "write"):
        save(file)
        return
    target = Path(os.path.realpath(file))
    if target.exists() and not target.is_file():  # a device, a pipe; a directory is refused
        room = io.BytesIO()  # archives are written back and forth
        save(room)
        with target.open("wb") as out:
            out.write(room.getbuffer())
        return
    draft = target.with_name(f".{target.name[:_KEPT]}-{os.getpid()}-{time.monotonic_ns():x}")
    try:
        opened = draft.open("xb")  # never what another program put there
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(file)) from None  # nobody knows the draft's name
    try:
        with opened as out:
            save(out)
        if target.exists():
            shutil.copymode(target, draft)  # what only its owner could read stays so
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
