"""Where the files of an image set lie: read by name, whatever holds them."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from inferometer.errors import DataError

__all__ = ["MAX_FILE_BYTES", "FolderSource", "ImageSource"]

MAX_FILE_BYTES = 256 * 1024**2
"""Largest file that is read, bytes: more than any photograph, less than a disk image named ``.jpg``."""


class ImageSource(Protocol):
    """A folder or an archive. May be read from several threads at once."""

    @property
    def root(self) -> Path:
        """The folder or the archive's file, for messages."""

    def read(self, name: str) -> bytes:
        """The content of one file, by its name in the set.

        Raises:
            DataError: It is not there, no ordinary file, too large, or cannot be read; without its name.
        """


@dataclass(frozen=True)
class FolderSource:
    """Files below a folder."""

    root: Path

    def read(self, name: str) -> bytes:
        """The content of one file; links are followed."""
        path = self.root / name
        try:
            state = path.stat()
            if not stat.S_ISREG(state.st_mode):
                raise DataError("is no ordinary file")
            if state.st_size > MAX_FILE_BYTES:
                raise DataError(f"the file has {state.st_size} bytes, more than {MAX_FILE_BYTES}")
            return path.read_bytes()
        except OSError as error:
            raise DataError((error.strerror or str(error)).lower()) from error
