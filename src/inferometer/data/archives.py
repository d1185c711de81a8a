"""Zip and tar archives read in place: listed once, each image read by its offset, nothing unpacked.

A name that would leave the folder on unpacking, or a name that stands twice, marks an archive that is broken
or hostile: it is refused as a whole, although nothing is ever written.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inferometer.data.listing import NOTHING, Place, child, is_image
from inferometer.data.source import MAX_FILE_BYTES
from inferometer.errors import DataError

__all__ = ["ArchiveSource", "ArchiveTree", "Stored", "gathered", "safe_name", "version_of"]

_DRIVE = re.compile(r"[A-Za-z]:")
_LOCAL_HEADER: Final = 30
"""Bytes of a zip member's own header before its name. Source: PKWARE APPNOTE.TXT, 4.3.7."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a member's content lies.

    Attributes:
        offset: Byte of the archive: of the content in a tar, of the member's header in a zip.
        size: Bytes of the content.
        packed: Bytes that it takes in the archive.
        crc: CRC-32 of the content; None in a tar, which has none.
        deflated: Whether it is compressed (raw deflate).
    """

    offset: int
    size: int
    packed: int
    crc: int | None = None
    deflated: bool = False

    @property
    def largest(self) -> int:
        """Bytes, packed or not, whichever is more."""
        return max(self.size, self.packed)


def safe_name(name: str) -> str:
    """A member's name, relative, with ``/`` and without ``.``; empty for the top folder.

    Raises:
        ValueError: Unpacked, it would lie elsewhere on some system; the message is the reason.
    """
    if "\0" in name:
        raise ValueError("has a NUL character in its name")
    if "\\" in name:
        raise ValueError("has a backslash in its name")
    if name.startswith("/"):
        raise ValueError("has an absolute path")
    if _DRIVE.match(name):
        raise ValueError("begins with a drive letter")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError("leaves the archive through '..'")
    return "/".join(parts)


def gathered(path: Path, members: Iterable[tuple[str, Stored]]) -> dict[str, Stored]:
    """Members by name.

    Args:
        path: The archive, for messages.
        members: Files, their names already safe.

    Raises:
        DataError: A name stands twice, or an image is too large.
    """
    found: dict[str, Stored] = {}
    for name, stored in members:
        if name in found:
            raise DataError(f"{path}: holds {name} twice: which one counts? Pack it again")
        if stored.largest > MAX_FILE_BYTES and is_image(name.rpartition("/")[2]):
            raise DataError(
                f"{path}: {name} has {stored.largest} bytes, more than {MAX_FILE_BYTES}: no photograph is "
                "that large; take it out"
            )
        found[name] = stored
    return found


@dataclass(frozen=True)
class ArchiveSource:
    """Images in an archive, below one of its folders. Every read opens the file anew, so that threads share
    nothing.

    Attributes:
        root: The archive's file.
        folder: Where in it the names begin.
        members: All its files.
        version: The file's size and time of change when it was listed.
    """

    root: Path
    folder: str
    members: Mapping[str, Stored]
    version: tuple[int, int]

    def read(self, name: str) -> bytes:
        """The content of one file."""
        stored = self.members.get(child(self.folder, name))
        if stored is None:
            raise DataError("no such file in the archive")
        if stored.largest > MAX_FILE_BYTES:
            raise DataError(f"the file has {stored.largest} bytes, more than {MAX_FILE_BYTES}")
        try:
            handle = os.open(self.root, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if version_of(handle) != self.version:
                    raise DataError("the archive changed since it was listed")
                return _content(handle, stored)
            finally:
                os.close(handle)
        except OSError as error:
            raise DataError((error.strerror or str(error)).lower()) from error


class ArchiveTree:
    """The folders of an archive."""

    packed = True

    def __init__(self, root: Path, members: Mapping[str, Stored], version: tuple[int, int]) -> None:
        """Sort the members into folders."""
        self.root = root
        self._members = members
        self._version = version
        files: dict[str, dict[str, int]] = {"": {}}
        folders: dict[str, set[str]] = {"": set()}
        for name, stored in members.items():
            folder, _, leaf = name.rpartition("/")
            if folder not in files:
                _make(folder, files, folders)
            files[folder][leaf] = stored.size
        self._places = {folder: Place(files[folder], tuple(sorted(folders[folder]))) for folder in files}

    def at(self, folder: str) -> Place:
        """What a folder holds."""
        return self._places.get(folder, NOTHING)

    def read(self, name: str) -> bytes:
        """The content of a file."""
        try:
            return self.source("").read(name)
        except DataError as error:
            raise DataError(f"{self.root}, {name}: {error}") from error

    def source(self, folder: str) -> ArchiveSource:
        """Reads images below ``folder``."""
        return ArchiveSource(self.root, folder, self._members, self._version)


def version_of(handle: int) -> tuple[int, int]:
    """Size in bytes and time of change in nanoseconds of an open file."""
    state = os.fstat(handle)
    return state.st_size, state.st_mtime_ns


def _make(folder: str, files: dict[str, dict[str, int]], folders: dict[str, set[str]]) -> None:
    """Enter a folder and those above it."""
    while folder not in files:
        files[folder] = {}
        folders.setdefault(folder, set())
        above, _, leaf = folder.rpartition("/")
        folders.setdefault(above, set()).add(leaf)
        folder = above


def _content(handle: int, stored: Stored) -> bytes:
    start = stored.offset
    if stored.crc is not None:
        header = os.pread(handle, _LOCAL_HEADER, start)
        if len(header) < _LOCAL_HEADER or header[:4] != b"PK\x03\x04":
            raise DataError("the archive is broken: no file begins where its list says")
        # Lengths of the name and of the extra field, which may differ from those in the list.
        start += _LOCAL_HEADER + int.from_bytes(header[26:28], "little")
        start += int.from_bytes(header[28:30], "little")
    data = os.pread(handle, stored.packed, start)
    if len(data) < stored.packed:
        raise DataError("the archive is truncated: it ends within this file")
    if stored.deflated:
        data = _inflated(data, stored.size)
    if len(data) != stored.size or (stored.crc is not None and zlib.crc32(data) != stored.crc):
        raise DataError("the file in the archive is damaged: its length or checksum is another")
    return data


def _inflated(data: bytes, size: int) -> bytes:
    """Not more than one byte beyond ``size`` is made, whatever the data would grow to."""
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, size + 1)
    except zlib.error as error:
        raise DataError(f"the file in the archive is damaged: {error}") from error
