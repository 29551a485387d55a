"""Files appear whole or not at all: what is written is drafted beside its place, and moved there when it is complete."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_KEPT = 40  # letters of a name that the draft's has, too


def write_whole(name: str, save: Callable[[Any], None]) -> None:
    """Let `save` write to a stream of bytes, which becomes the file of this name; a link stays one.

    Whatever goes wrong, the file that was there before is as it was.
    """
    target = Path(os.path.realpath(name))
    if target.exists() and not target.is_file():  # a device, a pipe
        room = io.BytesIO()  # archives are written back and forth
        save(room)
        with target.open("wb") as file:
            file.write(room.getbuffer())
        return
    draft = target.with_name(f".{target.name[:_KEPT]}-{os.getpid()}-{time.monotonic_ns():x}")
    opened = draft.open("xb")  # never what another program put there
    try:
        with opened as file:
            save(file)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


__all__ = ["write_whole"]
