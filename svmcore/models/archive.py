"""The one format of files: archives of named arrays (.npz). Nothing is pickled, and nothing is unpacked without a limit.

A member is believed only as far as the archive goes: what it claims to hold is compared with its length before an array of
that size is made, and all members together may unpack to `RATIO` times the length of the archive (and `FREE` bytes in any
case). `write` stores, and does not compress, what would not come back under that rule.
"""

from __future__ import annotations

import io
import math
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from svmcore._errors import InputError
from svmcore._types import Kernel, KernelKind
from svmcore.base.drafts import write_whole
from svmcore.kernel.table import name_of

# Any file may unpack to FREE bytes, and beyond them to RATIO times its length.
FREE, RATIO = 1 << 26, 100
_PIECE = 1 << 20  # bytes handled at a time: Ctrl-C is heard between them
_LONGEST_HEADER = 10_000  # bytes: numpy believes no longer one, either
_ZIP_HEADER = 30  # bytes of a member's own header, without its name and its extra field
_PROBES = 8  # pieces whose compression is tried
_NUMBERED = ("linear", "poly", "sigmoid", "rbf", "laplacian", "precomputed")
"""Kernels as older files numbered them. Never changed: files of today have names."""

Array = NDArray[Any]


class Allowance:
    """How much a compressed file may still unpack to; `length` is how long it is, as far as that is known."""

    def __init__(self, name: str, length: int, remedy: str) -> None:
        self.name, self.length, self.remedy = name, length, remedy
        self.taken = 0

    def take(self, size: int) -> None:
        """So many bytes more, or a refusal."""
        self.taken += size
        if self.taken > FREE and self.taken > FREE + RATIO * self.length:
            raise InputError(
                f"{self.name} unpacks to more than {RATIO} times its length; no data do, so it is not read. If these do: "
                f"{self.remedy}"
            )


# ---- writing ---------------------------------------------------------------------------------------------------------


def refuse(what: str, kernel: Any, classes: Array | None = None) -> None:
    """Say what no file holds: the code of a kernel, and labels that only Python knows."""
    if callable(kernel):
        raise InputError(f"a {what} with a Python kernel function cannot be saved: a file holds data, not code")
    if classes is not None and classes.dtype.kind == "O":
        raise InputError("labels of Python object type cannot be saved; use numbers or strings")


def write(file: Any, fields: dict[str, Any]) -> None:
    """Write arrays to a file of exactly this name, whole or not at all, or to a stream."""
    arrays = {name: np.asarray(value) for name, value in fields.items()}
    write_whole(file, lambda stream: _write(stream, arrays))


def _write(stream: Any, arrays: dict[str, Array]) -> None:
    large = sum(array.nbytes for array in arrays.values()) > FREE
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            data = np.ascontiguousarray(array).reshape(-1)
            data = data.view(np.uint8) if data.nbytes else np.empty(0, dtype=np.uint8)
            info = zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0))  # the same answer makes the same file
            info.compress_type = zipfile.ZIP_STORED if large and _shrinks_too_much(data) else zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as member:
                header = np.lib.format.header_data_from_array_1_0(np.ascontiguousarray(array).reshape(array.shape))
                np.lib.format.write_array_header_2_0(member, header)
                for start in range(0, data.size, _PIECE):
                    member.write(data[start : start + _PIECE].tobytes())


def _shrinks_too_much(data: Array) -> bool:
    """Whether a reader could take the compressed bytes for a trap."""
    if data.size <= _PIECE:
        return False
    probes = np.linspace(0, data.size - _PIECE, _PROBES).astype(int).tolist()
    packed = sum(len(zlib.compress(data[start : start + _PIECE].tobytes(), 1)) for start in probes)
    return packed * RATIO < 2 * _PROBES * _PIECE


# ---- reading ---------------------------------------------------------------------------------------------------------


class Archive:
    """An archive that is open for reading. What is wrong with it is an `InputError` that begins with `name`."""

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self.name = name
        with self._guarded():
            self._zip = zipfile.ZipFile(stream)
            length = os.fstat(stream.fileno()).st_size if _is_file(stream) else stream.seek(0, os.SEEK_END)
        self._members = {info.filename.removesuffix(".npy"): info for info in self._zip.infolist()}
        self._allowance = Allowance(name, length, "save them without compression (numpy.savez)")

    def __contains__(self, key: str) -> bool:
        return key in self._members

    @property
    def keys(self) -> list[str]:
        """The names of the arrays."""
        return list(self._members)

    def array(self, key: str, kinds: str = "biufSU") -> Array:
        """One array; `kinds` are numpy's letters for types that are expected."""
        with self._guarded():
            return self._array(key, kinds)

    def mapped(self, key: str, path: str) -> Array | None:
        """An array as it is on disk, in the file of this path, where it is numbers that are stored as they are; else None."""
        info = self._members[key]
        with self._zip.open(info) as member:
            shape, fortran, dtype = self._header(key, member, "biufSU")
            offset = info.header_offset + _ZIP_HEADER + member.tell()
        size = math.prod(shape) * dtype.itemsize
        stored = info.compress_type == zipfile.ZIP_STORED and not fortran and dtype.kind in "biuf"
        if not stored or not 0 < size <= info.file_size:
            return None
        with open(path, "rb") as file:
            file.seek(info.header_offset + _ZIP_HEADER - 4)
            offset += sum(struct.unpack("<HH", file.read(4)))  # the lengths of its name and of its extra field
        return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (InputError, MemoryError):
            raise
        except Exception as error:  # whatever a damaged archive sets off
            reason = str(error).split("\n")[0][:100]
            raise InputError(f"{self.name} is a damaged .npz file ({type(error).__name__}: {reason})") from None

    def _array(self, key: str, kinds: str) -> Array:
        info = self._members[key]
        with self._zip.open(info) as member:
            shape, fortran, dtype = self._header(key, member, kinds)
            size = math.prod(shape) * dtype.itemsize
            if min(shape, default=0) < 0 or size > info.file_size:
                raise InputError(
                    f"{self.name}: {key} claims the shape {str(shape)[:60]}, but the file is shorter than that"
                )
            self._allowance.take(size)
            if size > FREE:
                from svmcore.problem.border import memory  # loads the compiler: large files only

                memory(3.0 * size, f"reading {self.name}", "use fewer rows")
            out = np.empty(math.prod(shape), dtype=dtype)
            room = out.view(np.uint8) if size else np.empty(0, dtype=np.uint8)
            done = 0
            while done < size:
                piece = member.read(min(_PIECE, size - done))
                if not piece:
                    raise InputError(f"{self.name}: {key} is cut off")
                room[done : done + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
                done += len(piece)
            member.read(1)  # at the end its check sum is compared
        if not out.dtype.isnative:
            out = out.astype(out.dtype.newbyteorder("="))
        if out.dtype.kind == "U" and out.size and int(out.view(np.uint32).max()) > sys.maxunicode:
            raise InputError(f"{self.name}: {key} holds what is no text")
        return out.reshape(shape, order="F" if fortran else "C")

    def _header(self, key: str, member: Any, kinds: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        version = np.lib.format.read_magic(member)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if header is None:
            raise InputError(f"{self.name}: {key} has format version {version}; save it again with numpy.savez")
        claim = member.read(2 * version[0])  # numpy would take that much memory before it looks
        if int.from_bytes(claim, "little") > _LONGEST_HEADER:
            raise InputError(f"{self.name}: {key} claims a header of {int.from_bytes(claim, 'little'):,} bytes")
        shape, fortran, dtype = header(io.BytesIO(claim + member.read(int.from_bytes(claim, "little"))))
        if dtype.hasobject:
            raise InputError(f"{self.name}: {key} holds Python objects, which are never unpickled; save numbers")
        if dtype.kind not in kinds or not dtype.itemsize:
            raise InputError(
                f"{self.name}: {key} has type {dtype}; give numbers" + (" or strings" if "U" in kinds else "")
            )
        return shape, fortran, dtype


def _is_file(stream: Any) -> bool:
    """Whether the system knows the length of a stream."""
    try:
        return bool(stream.fileno() >= 0)
    except (AttributeError, OSError):
        return False


def read(name: str, stream: BinaryIO) -> dict[str, Array]:
    """All arrays of an archive."""
    archive = Archive(name, stream)
    return {key: archive.array(key) for key in archive.keys}


# ---- kernels ---------------------------------------------------------------------------------------------------------


def kernel_fields(kernel: Kernel) -> dict[str, Any]:
    """A kernel as arrays of a file: its name, and its numbers by name."""
    name = name_of(kernel)
    return {"kernel": np.array(name)} | {
        f"kernel_{field}": np.array(getattr(kernel, field)) for field in ("gamma", "coef0", "degree", "offset")
    }


def read_kernel(parts: dict[str, Any]) -> Kernel:
    """The kernel of a file, of today or older; a ValueError says what is wrong with it."""
    given = parts["kernel"]
    if given.dtype.kind == "U":
        name = str(given)
        gamma, coef0, offset = (float(parts[f"kernel_{field}"]) for field in ("gamma", "coef0", "offset"))
        degree = float(parts["kernel_degree"])
    else:
        kind, gamma, coef0, degree, offset = given.tolist()
        if kind not in range(len(_NUMBERED)):
            raise ValueError(f"it names kernel {kind}")
        name = _NUMBERED[int(kind)]
    if name not in _NUMBERED and (name.upper() not in KernelKind.__members__ or name == "callable"):
        raise ValueError(f"it names kernel {name[:40]!r}")
    if not (0 <= degree < 2**31 and offset >= 0.0 and np.isfinite([gamma, coef0, offset]).all()):
        raise ValueError(f"it names the kernel numbers {gamma}, {coef0}, {degree}, {offset}")
    return Kernel(int(KernelKind[name.upper()]), gamma, coef0, int(degree), offset)


__all__ = ["FREE", "RATIO", "Allowance", "Archive", "kernel_fields", "read", "read_kernel", "refuse", "write"]
