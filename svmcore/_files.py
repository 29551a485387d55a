"""Files of machine code: they appear whole or not at all, and are read only when they are whole and ours.

Reading believes nothing. A file that was cut, that belongs to another user, or that others may write to counts as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from pathlib import Path

UNFINISHED = ".tmp"
_MAGIC = b"svmcore machine code 2\n"


def read(file: Path) -> bytes | None:
    """What `write` has written, or None where that is not what the file holds, or not ours to believe."""
    try:
        with file.open("rb") as stream:
            if not trusted(os.fstat(stream.fileno())):
                return None
            content = stream.read()
    except OSError:
        return None
    head = len(_MAGIC) + hashlib.sha256().digest_size
    payload = content[head:]
    return payload if content[:head] == _MAGIC + hashlib.sha256(payload).digest() else None


def trusted(status: os.stat_result) -> bool:
    """Code is run: it must come from this user or the administrator, and nobody else may have changed it.

    A group of one's own, as many systems give each user, is nobody else: its number is the user's.
    """
    if os.name != "posix":
        return True
    own_group = status.st_gid == status.st_uid != 0
    others = stat.S_IWOTH if own_group else stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & others


def write(file: Path, payload: bytes) -> None:
    """Write a file that appears complete or not at all; raises OSError where the disk does not let us."""
    temporary = file.with_name(f"{file.name[:40]}-{os.getpid()}-{time.monotonic_ns():x}{UNFINISHED}")
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o644)
        with open(descriptor, "wb") as stream:
            stream.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
            if os.name == "posix":
                os.fchmod(descriptor, 0o644)  # whatever the umask: files that others may write to are not read
        temporary.replace(file)
    except OSError:
        delete(temporary)
        raise


def delete(file: Path) -> None:
    """Delete a file, if it is there and the disk lets us."""
    with contextlib.suppress(OSError):
        file.unlink()
