"""A small disk that can be filled, and ranks where there is an MPI."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from inferometer.errors import EngineError
from inferometer.study.launch import check_launcher

DISK_BYTES = 512 * 1024**2  # the stamps of an engine that takes no time need some


class Disk:
    """A folder; ``small``: it is a file system of its own, which may be filled."""

    def __init__(self, place: Path, *, small: bool) -> None:
        self.place, self.small = place, small
        self._filler = place / "filler"

    def fill(self, but_bytes: int = 0) -> None:
        """Take all that is left, or nearly so."""
        assert self.small
        with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        if but_bytes:
            os.truncate(self._filler, self._filler.stat().st_size - but_bytes)

    def empty(self) -> None:
        """Give it back."""
        self._filler.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    small = bool(shutil.which("mount")) and not subprocess.run(command, stderr=subprocess.DEVNULL).returncode
    yield Disk(place, small=small)
    if small:
        subprocess.run(["umount", "-l", str(place)], check=False)


@pytest.fixture
def small_disk(disk: Disk) -> Disk:
    if not disk.small:
        pytest.skip("this user may not mount a small disk to fill it")
    return disk


@pytest.fixture
def no_mpi() -> str | None:
    """Why there can be no ranks here; None: there can."""
    try:
        check_launcher(None, 2)
    except EngineError as error:
        return str(error)
    return None


def leftovers(folder: Path) -> list[str]:
    """Command lines of processes that still work on the study in ``folder``."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if process.pid != os.getpid() and any(str(folder) in word for word in words):
            found.append(" ".join(words))
    return found
