"""Where the files of an image set lie: read by name, whatever holds them."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """Files below a folder.

    Attributes:
        root: The folder.
        sizes: Bytes of each file by name, as listed; None: not compared.
        times: When each was changed, nanoseconds (``st_mtime_ns``), as listed; None: not compared.
    """

    root: Path
    sizes: Mapping[str, int] | None = field(default=None, compare=False, repr=False)
    times: Mapping[str, int] | None = field(default=None, compare=False, repr=False)

    def read(self, name: str) -> bytes:
        """The content of one file as it was listed; links are followed."""
        path = self.root / name
        try:
            state = path.stat()
            if not stat.S_ISREG(state.st_mode):
                raise DataError("is no ordinary file")
            if state.st_size > MAX_FILE_BYTES:
                raise DataError(f"the file has {state.st_size} bytes, more than {MAX_FILE_BYTES}")
            self._check_unchanged(name, state)
            data = path.read_bytes()
        except OSError as error:
            raise DataError((error.strerror or str(error)).lower()) from error
        if len(data) != state.st_size:
            raise DataError(f"changed while it was read: {len(data)} bytes came, it had {state.st_size}")
        return data

    def _check_unchanged(self, name: str, state: os.stat_result) -> None:
        size = None if self.sizes is None else self.sizes.get(name)
        if size not in (None, state.st_size):
            raise DataError(f"changed since it was listed: it has {state.st_size} bytes, had {size}")
        if self.times is not None and self.times.get(name) not in (None, state.st_mtime_ns):
            raise DataError("changed since it was listed: it was written to, its size is the same")
