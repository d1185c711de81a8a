"""Plans kept on the disk: building one takes seconds to minutes, reading it back little.

A plan fits one version of TensorRT on one GPU; what it was built from stands before it in its file, so a file
of anything else, or a damaged one, counts as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferometer.errors import StoreError
from inferometer.store import write_atomically

__all__ = ["PlanCache", "default_folder"]

_MAGIC = b"inferometer plan 1\n"


def default_folder(engine: str) -> Path:
    """Where an engine keeps its plans unless it is told.

    Source: XDG Base Directory Specification 0.8, ``$XDG_CACHE_HOME``; it must be absolute, or is ignored.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
    return base / "inferometer" / engine


@dataclass(frozen=True)
class PlanCache:
    """The folder, or None to keep nothing.

    ``key`` is all that a plan depends on, as plain JSON values; ``machine`` the part of it that the times of
    kernels depend on.
    """

    folder: Path | None
    key: Mapping[str, Any]
    machine: Mapping[str, Any]

    def plan(self) -> bytes | None:
        """The plan of this key; None when there is none, or none that is sound."""
        return self._read(self._place(self.key, "plan"), self.key)

    def timing(self) -> bytes:
        """The times of kernels on this machine; empty when there are none."""
        return self._read(self._place(self.machine, "timing"), self.machine) or b""

    def keep(self, plan: bytes, timing: bytes) -> str | None:
        """Write both; why they could not be written, or None."""
        if self.folder is None:
            return None
        try:
            self._write("plan", self.key, plan)
            if timing:
                self._write("timing", self.machine, timing)
        except StoreError as error:
            return str(error)
        return None

    def forget(self) -> None:
        """Remove the plan of this key, which did not load."""
        place = self._place(self.key, "plan")
        if place is not None:
            with contextlib.suppress(OSError):
                place.unlink()

    def _place(self, key: Mapping[str, Any], kind: str) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{hashlib.sha256(_spelled(key)).hexdigest()[:32]}.{kind}"

    def _read(self, place: Path | None, key: Mapping[str, Any]) -> bytes | None:
        try:
            content = place.read_bytes() if place is not None else b""
        except OSError:
            return None
        head, newline, payload = content.removeprefix(_MAGIC).partition(b"\n")
        wanted = _head(key, payload)
        return payload if content.startswith(_MAGIC) and newline and head == wanted else None

    def _write(self, kind: str, key: Mapping[str, Any], payload: bytes) -> None:
        place = self._place(key, kind)
        if place is not None:
            with _WRITING:  # a draft is named by the process, and two sessions may be loaded at once
                write_atomically(place, _MAGIC + _head(key, payload) + b"\n" + payload)


_WRITING = threading.Lock()


def _spelled(key: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(key), sort_keys=True).encode()


def _head(key: Mapping[str, Any], payload: bytes) -> bytes:
    """The line before a payload: what it was made from, and its digest."""
    return _spelled({**key, "payload_sha256": hashlib.sha256(payload).hexdigest()})
