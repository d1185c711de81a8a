"""What lies in a folder or an archive: names and sizes, each folder read once, no file opened."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Final, Protocol

from inferometer.data.decode import EXTENSIONS
from inferometer.data.source import MAX_FILE_BYTES, FolderSource, ImageSource
from inferometer.errors import DataError

__all__ = [
    "FolderTree",
    "Place",
    "Tree",
    "child",
    "is_image",
    "read_file",
    "size_of",
    "some",
    "visible_folders",
]


@dataclass(frozen=True, slots=True)
class Place:
    """What one folder holds.

    Attributes:
        files: Sizes in bytes by name.
        folders: Names, sorted.
        times: When each file was changed, nanoseconds; empty in an archive, which has one time for all.
        linked: Those of ``folders`` that are links.
        broken: Links that lead to no file and no folder, sorted.
    """

    files: Mapping[str, int]
    folders: tuple[str, ...]
    times: Mapping[str, int] = field(default_factory=dict)
    linked: frozenset[str] = frozenset()
    broken: tuple[str, ...] = ()


NOTHING: Final = Place({}, ())


class Tree(Protocol):
    """A folder or an archive. Folders in it are named with ``/``; the top is the empty name."""

    @property
    def root(self) -> Path:
        """The folder or the archive's file."""

    @property
    def packed(self) -> bool:
        """Whether it is an archive."""

    def at(self, folder: str) -> Place:
        """What a folder holds; nothing when there is no such folder."""

    def read(self, name: str) -> bytes:
        """The content of a file that is there.

        Raises:
            DataError, OSError: It cannot be read.
        """

    def source(self, folder: str) -> ImageSource:
        """Reads images by their names below ``folder``."""


class FolderTree:
    """A folder on disk; links are followed."""

    packed = False

    def __init__(self, root: Path) -> None:
        """Nothing is read yet."""
        self.root = root
        self._places: dict[str, Place] = {}

    def at(self, folder: str) -> Place:
        """What a folder holds; each is read once."""
        place = self._places.get(folder)
        if place is None:
            place = self._places[folder] = self._scanned(folder)
        return place

    def read(self, name: str) -> bytes:
        """The content of a file."""
        return read_file(self.root / name)

    def source(self, folder: str) -> ImageSource:
        """Reads images below ``folder``."""
        sizes = _Below(self._places, folder, attrgetter("files"))
        return FolderSource(self.root / folder, sizes, _Below(self._places, folder, attrgetter("times")))

    def _scanned(self, folder: str) -> Place:
        files: dict[str, int] = {}
        times: dict[str, int] = {}
        folders: list[str] = []
        linked: list[str] = []
        broken: list[str] = []
        try:
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    kind = _kind_of(entry)
                    if kind == "folder":
                        folders.append(entry.name)
                        if entry.is_symlink():
                            linked.append(entry.name)
                    elif kind == "file":
                        state = entry.stat()
                        files[entry.name], times[entry.name] = state.st_size, state.st_mtime_ns
                    elif entry.is_symlink():
                        broken.append(entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return NOTHING
        return Place(files, tuple(sorted(folders)), times, frozenset(linked), tuple(sorted(broken)))


class _Below(Mapping[str, int]):
    """Something of each file below a folder, by name, out of the places that were read: no copy is made."""

    def __init__(
        self, places: Mapping[str, Place], base: str, of: Callable[[Place], Mapping[str, int]]
    ) -> None:
        self._places = places
        self._base = base
        self._of = of

    def __getitem__(self, name: str) -> int:
        folder, _, leaf = name.rpartition("/")
        place = self._places.get(child(self._base, folder))
        if place is None:
            raise KeyError(name)
        return self._of(place)[leaf]

    def __iter__(self) -> Iterator[str]:
        above = child(self._base, "")
        for folder, place in self._places.items():
            if not above or folder == above or folder.startswith(f"{above}/"):
                below = folder[len(above) :].removeprefix("/")
                yield from (child(below, leaf) for leaf in self._of(place))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _kind_of(entry: os.DirEntry[str]) -> str | None:
    """Whether it is a folder or a file, or a link to one; None: a pipe, say, or a link that leads nowhere.

    Raises:
        OSError: It cannot be told.
    """
    try:
        return "folder" if entry.is_dir() else "file" if entry.is_file() else None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link that leads to itself
            return None
        raise


def read_file(path: Path) -> bytes:
    """The content of a file of labels or names.

    Raises:
        DataError: It is larger than any such file.
        OSError: It cannot be read.
    """
    with path.open("rb") as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise DataError(f"{path}: has more than {MAX_FILE_BYTES} bytes: too large for a list")
    return data


def child(folder: str, name: str) -> str:
    """The name of something in a folder."""
    return f"{folder}/{name}" if folder and name else folder or name


def size_of(tree: Tree, name: str) -> int | None:
    """Bytes of a file; None when there is no such file."""
    folder, _, leaf = name.rpartition("/")
    return tree.at(folder).files.get(leaf)


def visible_folders(place: Place) -> list[str]:
    """The folders that may be part of a set: not hidden, none that macOS leaves behind."""
    return [name for name in place.folders if not name.startswith(".") and name != "__MACOSX"]


def is_image(name: str) -> bool:
    """Whether a file's name, without folders, is that of an image."""
    stem, _, ending = name.rpartition(".")
    return stem != "" and not name.startswith(".") and f".{ending.lower()}" in EXTENSIONS


def some(names: Iterable[str]) -> str:
    """Up to three names for a message, and how many more there are."""
    known = list(names)
    rest = f" and {len(known) - 3} more" if len(known) > 3 else ""
    return ", ".join(known[:3]) + rest
