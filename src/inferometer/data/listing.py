"""What lies in a folder or an archive: names and sizes, each folder read once, no file opened."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
    """

    files: Mapping[str, int]
    folders: tuple[str, ...]


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
        return FolderSource(self.root / folder)

    def _scanned(self, folder: str) -> Place:
        files: dict[str, int] = {}
        folders: list[str] = []
        try:
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    if entry.is_dir():
                        folders.append(entry.name)
                    elif entry.is_file():
                        files[entry.name] = entry.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return NOTHING
        return Place(files, tuple(sorted(folders)))


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
