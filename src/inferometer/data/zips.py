"""The list of a zip archive."""

from __future__ import annotations

import stat
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

from inferometer.data.archives import ArchiveTree, Stored, gathered, safe_name, version_of
from inferometer.errors import DataError

__all__ = ["open_zip"]

_ENCRYPTED = 0x1
_METHODS = {
    zipfile.ZIP_BZIP2: "bzip2",
    zipfile.ZIP_LZMA: "LZMA",
    9: "Deflate64",
    93: "Zstandard",
}  # Source: PKWARE APPNOTE.TXT, 4.4.5


# What the library raises for broken files: its parser unpacks and indexes bytes that may be anything.
_BROKEN = (
    zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, IndexError, EOFError, struct.error,
)  # fmt: skip


def open_zip(path: Path) -> ArchiveTree:
    """List a zip archive; no member is read.

    Raises:
        DataError: Truncated, encrypted, of another compression than deflate, or with an unsafe name.
    """
    with path.open("rb") as stream:
        version = version_of(stream.fileno())
        try:
            with zipfile.ZipFile(stream) as archive:
                members = gathered(path, _members(path, archive, version[0]))
        except _BROKEN as error:
            raise DataError(f"{path}: is truncated or broken ({error}): fetch or pack it again") from error
    return ArchiveTree(path, members, version)


def _members(path: Path, archive: zipfile.ZipFile, size: int) -> Iterator[tuple[str, Stored]]:
    for info in archive.infolist():
        try:
            name = safe_name(info.orig_filename)
        except ValueError as error:
            raise DataError(f"{path}: {info.orig_filename!r} {error}: such an archive is not read") from error
        if not name or info.is_dir():
            continue
        kind = info.external_attr >> 16  # the file's mode, where a Unix program packed it
        if kind and not (stat.S_ISREG(kind) or stat.S_IFMT(kind) == 0):
            what = "a link" if stat.S_ISLNK(kind) else "no ordinary file"
            raise DataError(f"{path}: {name} is {what}: pack the files themselves")
        if info.flag_bits & _ENCRYPTED:
            raise DataError(f"{path}: {name} is encrypted: unpack it, or pack it without a password")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            method = _METHODS.get(info.compress_type, f"method {info.compress_type}")
            raise DataError(f"{path}: {name} is compressed by {method}: unpack it, or pack it with deflate")
        if not 0 <= info.header_offset <= size - info.compress_size:
            raise DataError(f"{path}: is truncated: {name} lies beyond its end")
        deflated = info.compress_type == zipfile.ZIP_DEFLATED
        yield name, Stored(info.header_offset, info.file_size, info.compress_size, info.CRC, deflated)
