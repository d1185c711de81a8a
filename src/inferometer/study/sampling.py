"""The sampler process of this host, and what a launcher starts on every host to have one there.

``python -m inferometer.study.sampling FOLDER`` is what each rank runs. ``FOLDER`` lies on a file system that
all hosts share; it holds::

    HOST.PID.here    a process has begun; when there are as many as ranks, all hosts are known
    HOST.owner       the first of a host took it, and has the sampler; the others have left
    meters.json      by host, what to read: the parent writes it when it knows them
    stop             the parent wants it to end

``FOLDER@HOST`` is the folder of a host's sampler (`meters.readings`); ``fault.json`` says why it has none.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from inferometer.errors import ConfigError, InferometerError, MeterError
from inferometer.meters.readings import FileReadings, Head, Readings, read_head
from inferometer.meters.sampler import MeterJob, SamplerJob
from inferometer.ranks import die_with_parent
from inferometer.records import Frozen
from inferometer.store import write_atomically
from inferometer.study.notes import PROCESS, note_process

__all__ = [
    "ENDS_S",
    "FAULT",
    "HERE",
    "METERS",
    "START_S",
    "STOP",
    "HostFault",
    "HostMeters",
    "Sampler",
    "sound",
]

HERE, METERS, STOP, FAULT = ".here", "meters.json", "stop", "fault.json"

START_S = 60.0
"""A management controller may take its time to log in."""
ENDS_S = 10.0
"""Within which a sampler closes its meters."""

_POLL_S = 0.02
_LOOK_S = 0.5  # between two looks whether the parent wants it to end


class HostMeters(Frozen):
    """What to read, by the host's name."""

    hosts: dict[str, tuple[MeterJob, ...]]


class HostFault(Frozen):
    """Why a host has no sampler; ``misused``: it is the study's fault."""

    reason: str
    misused: bool


class Sampler:
    """The sampler process of this host. A context manager."""

    def __init__(self, meters: Sequence[MeterJob], folder: Path) -> None:
        """Start it; ``folder`` is its own.

        Raises:
            ConfigError: A meter is not known, or an option of one.
            MeterError: It does not start, or no meter could be opened.
        """
        folder.mkdir(parents=True, exist_ok=True)
        job = folder / "job.json"
        content = SamplerJob(parent_pid=os.getpid(), folder=str(folder), meters=tuple(meters))
        write_atomically(job, content.model_dump_json().encode())
        with (folder / "stderr").open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "inferometer.meters.sampler", str(job)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        note_process(folder / PROCESS, self._process.pid)
        try:
            self.readings: Readings = self._begun(folder)
        except BaseException:
            self.close()
            raise

    def _begun(self, folder: Path) -> Readings:
        deadline = time.monotonic() + START_S
        while (head := read_head(folder)) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (folder / "stderr").read_text(errors="replace").strip().splitlines()
                raise MeterError(f"the sampler does not start: {said[-1] if said else 'it says nothing'}")
            time.sleep(_POLL_S)
        return FileReadings(folder, sound(head))

    @property
    def running(self) -> bool:
        """Whether it still reads."""
        return self._process.poll() is None

    def close(self) -> None:
        """Let it close its meters and end; what hangs is killed."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        """Return the sampler itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


def sound(head: Head) -> Head:
    """The head, of a sampler that reads something.

    Raises:
        ConfigError: A meter is not known, or an option of one.
        MeterError: No meter could be opened.
    """
    if head.misused:
        raise ConfigError("; ".join(_named(name, head.refused[name]) for name in head.misused))
    if not head.channels:
        raise MeterError("; ".join(_named(name, why) for name, why in head.refused.items()))
    return head


def _named(meter: str, reason: str) -> str:
    return reason if reason.startswith(meter) else f"{meter}: {reason}"


def main(arguments: Sequence[str]) -> int:
    """Be one of the processes that a launcher started: have this host's sampler, or leave that to another."""
    folder, host, parent = Path(arguments[0]), socket.gethostname(), os.getppid()
    # Its sampler, with a group of its own, outlives it for long enough to close its meters.
    die_with_parent()
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() != parent:  # it died before it could be asked for
        return 1
    (folder / f"{host}.{os.getpid()}{HERE}").touch()
    try:
        (folder / f"{host}.owner").open("x").close()
    except FileExistsError:
        return 0
    while METERS not in _listed(folder):
        if told.wait(_LOOK_S) or _over(folder):
            return 0
    meters = HostMeters.model_validate_json((folder / METERS).read_bytes()).hosts[host]
    return _sample(meters, folder, host, told)


def _sample(meters: Sequence[MeterJob], folder: Path, host: str, told: threading.Event) -> int:
    """Have the sampler until told to end."""
    own = folder.with_name(f"{folder.name}@{host}")
    try:
        with Sampler(meters, own) as sampler:
            while not told.wait(_LOOK_S) and not _over(folder):
                if not sampler.running:
                    raise MeterError("the sampler ended by itself")
    except InferometerError as error:
        fault = HostFault(reason=str(error), misused=isinstance(error, ConfigError))
        write_atomically(own / FAULT, fault.model_dump_json().encode())
        # Staying, since launchers may end all when one process ends.
        while not told.wait(_LOOK_S) and not _over(folder):
            pass
    return 0


def _over(folder: Path) -> bool:
    """Whether the parent wants it to end, or another run has cleared what this one left."""
    found = _listed(folder)
    return STOP in found or not found


def _listed(folder: Path) -> set[str]:
    """The names in a folder: NFS asks its server about a folder that is opened, each time."""
    return {path.name for path in folder.glob("*")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
