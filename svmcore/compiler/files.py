"""Files of machine code: they appear whole or not at all, and are read only when they are whole and ours.

Reading believes nothing. A file that was cut, that belongs to another user, or that others may write to counts as absent.
So does one in a folder that others may write to. What is no file, such as a pipe, is not waited for.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from pathlib import Path
from typing import Any, BinaryIO

UNFINISHED = ".tmp"
_MAGIC = b"svmcore machine code 2\n"


def regular(file: Any) -> BinaryIO:
    """A file, open for reading. OSError, and no waiting, where the name is that of a pipe, a device or a folder."""
    flags = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
    stream = open(os.open(file, os.O_RDONLY | flags), "rb")  # noqa: SIM115  (the caller's)
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "it is no regular file", os.fspath(file))
    return stream


def read(file: Path) -> bytes | None:
    """What `write` has written, or None where that is not what the file holds, or not ours to believe."""
    try:
        with regular(file) as stream:
            if not safe(file.parent) or not trusted(os.fstat(stream.fileno())):
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


def safe(folder: Path) -> bool:
    """Whether nobody but this user and the administrator can put other files in the place of those in a folder."""
    status = folder.stat()
    return trusted(status) or bool(status.st_mode & stat.S_ISVTX)  # in a sticky folder, only a file's owner can


def write(file: Path, payload: bytes) -> None:
    """Write a file that appears complete or not at all; raises OSError where the disk does not let us."""
    temporary = file.with_name(f"{file.name[:40]}-{os.getpid()}-{time.monotonic_ns():x}{UNFINISHED}")
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
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
