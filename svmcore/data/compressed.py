"""Compressed text (.gz, .bz2, .xz), unpacked as it is read and never beyond what `models.archive.Allowance` allows."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Any, BinaryIO

from svmcore._errors import InputError
from svmcore.models.archive import Allowance

_BLOCK = 1 << 16  # bytes of the file taken at a time
_LZMA_MEMORY = 1 << 27  # what the strongest preset needs, twice over

MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
"""How compressed files begin."""


class _Gunzip:
    """zlib's decompressor with the interface of bz2's and lzma's."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._zlib, name)  # `eof`, `unused_data`

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


def _decompressor(kind: str) -> Any:
    if kind == "gzip":
        return _Gunzip()
    return bz2.BZ2Decompressor() if kind == "bzip2" else lzma.LZMADecompressor(memlimit=_LZMA_MEMORY)


class Unpacked:
    """A compressed file as `read` gives its content."""

    def __init__(self, name: str, file: BinaryIO, kind: str) -> None:
        self.name, self.file, self.kind = name, file, kind
        self._one = _decompressor(kind)
        self._packed = b""
        self._allowance = Allowance(name, 0, "decompress the file first")

    def read(self, size: int) -> bytes:
        """At most so many bytes of the content; none at the end."""
        pieces, missing = [], size
        while missing:
            piece = self._next(missing)
            if not piece:
                break
            self._allowance.take(len(piece))
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def _next(self, size: int) -> bytes:
        try:
            while True:
                if self._one.eof:  # another stream may follow, as `cat a.gz b.gz` makes it
                    self._packed = self._one.unused_data.lstrip(b"\0") or self._fresh()
                    if not self._packed:
                        return b""
                    self._one = _decompressor(self.kind)
                elif self._one.needs_input and not self._packed:
                    self._packed = self._fresh()
                    if not self._packed:
                        raise InputError(f"{self.name} is cut off: its compressed data do not end")
                packed, self._packed = self._packed, b""
                found = self._one.decompress(packed, size)
                if found:
                    return bytes(found)
        except (zlib.error, OSError, EOFError, lzma.LZMAError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{self.name} is a damaged {self.kind} file ({error})") from None

    def _fresh(self) -> bytes:
        block = self.file.read(_BLOCK)
        self._allowance.length += len(block)
        return block


def unpacked(name: str, file: BinaryIO, magic: bytes) -> Any:
    """The file itself, or its content where it is compressed."""
    kind = next((kind for start, kind in MAGIC.items() if magic.startswith(start)), None)
    return file if kind is None else Unpacked(name, file, kind)
