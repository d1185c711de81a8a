"""The list of an uncompressed tar archive."""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from inferometer.data.archives import ArchiveTree, Stored, gathered, safe_name, version_of
from inferometer.errors import DataError

__all__ = ["open_tar"]

_CHUNK = 2**20
_MOST_LINKS = 16  # a link to a link to a link, and so on


def open_tar(path: Path) -> ArchiveTree:
    """List a tar archive; links within it are followed.

    Raises:
        DataError: Truncated, with an unsafe name, a link that leaves it, or a device.
    """
    with path.open("rb") as stream:
        version = version_of(stream.fileno())
        links: dict[str, str] = {}
        try:
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                members = gathered(path, _files(path, archive, version[0], links))
                _check_end(path, stream, archive.offset)
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise DataError(f"{path}: is truncated or broken ({error}): fetch or pack it again") from error
    for name in links:
        if name in members:
            raise DataError(f"{path}: holds {name} twice: which one counts? Pack it again")
    linked = {name: members[_end_of(path, name, links, members)] for name in links}
    return ArchiveTree(path, members | linked, version)


def _files(
    path: Path, archive: tarfile.TarFile, size: int, links: dict[str, str]
) -> Iterator[tuple[str, Stored]]:
    """The ordinary files; links go into ``links``."""
    while (info := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]  # it would keep a large object of every file
        name = _safe(path, info.name, info.name)
        if info.isdir():
            continue
        if info.issym() or info.islnk():
            if name in links:
                raise DataError(f"{path}: holds {name} twice: which one counts? Pack it again")
            # A hard link is named from the top, a symbolic one from its own folder.
            target = info.linkname
            if info.issym() and not target.startswith("/"):
                target = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            links[name] = _safe(path, target, f"{name} -> {info.linkname}")
        elif info.issparse():
            raise DataError(f"{path}: {name} is stored as a sparse file: pack it again without --sparse")
        elif not info.isreg():
            raise DataError(f"{path}: {name} is a device or a pipe: such an archive is not read")
        elif not 0 <= info.size <= size - info.offset_data:
            raise DataError(f"{path}: is truncated: it ends within {name}; fetch it again")
        else:
            yield name, Stored(info.offset_data, info.size, info.size)


def _safe(path: Path, name: str, shown: str) -> str:
    try:
        return safe_name(name)
    except ValueError as error:
        raise DataError(f"{path}: {shown!r} {error}: such an archive is not read") from error


def _end_of(path: Path, name: str, links: dict[str, str], members: dict[str, Stored]) -> str:
    """The file at the end of a link."""
    target = name
    for _ in range(_MOST_LINKS):
        if target in members:
            return target
        if target not in links:
            break
        target = links[target]
    raise DataError(f"{path}: {name} is a link to {links[name]}, no file in it: pack the files themselves")


def _check_end(path: Path, stream: BinaryIO, offset: int) -> None:
    """A tar ends with blocks of zeros, and nothing follows them; the library takes any fault behind the first
    file for the end, and so the end of the first of several archives, or a header that was lost."""
    stream.seek(offset)
    block = stream.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        raise DataError(f"{path}: is truncated: its end is missing; fetch it again")
    if block.strip(b"\0"):
        raise DataError(f"{path}: is broken at byte {offset}: no file begins there; fetch it again")
    at = offset + tarfile.BLOCKSIZE
    while chunk := stream.read(_CHUNK):
        behind = chunk.lstrip(b"\0")
        if behind:
            at += len(chunk) - len(behind)
            at -= at % tarfile.BLOCKSIZE
            stream.seek(at)
            raise DataError(f"{path}: {_what_follows(stream.read(tarfile.BLOCKSIZE), at)}")
        at += len(chunk)


def _what_follows(block: bytes, at: int) -> str:
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return f"is broken: it ends before byte {at}, but content follows; fetch or pack it again"
    return f"another archive begins at byte {at} behind its end: pack them as one"
