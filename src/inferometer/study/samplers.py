"""Samplers on the hosts that a study's launch template starts ranks on: one on each, this one included.

They are started by the same template as the trials' ranks, as many processes as the study has ranks at most:
so they come to the hosts that trials run on, and to no others. MPI they do without.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from inferometer.config import MeterEntry
from inferometer.errors import ConfigError, InferometerError, MeterError
from inferometer.meters.merged import HostReadings, MergedReadings, ahead_ns
from inferometer.meters.readings import FileReadings, read_head
from inferometer.meters.sampler import MeterJob
from inferometer.ranks import launch_command, launch_environment
from inferometer.store import write_atomically
from inferometer.study.notes import PROCESS, note_process
from inferometer.study.sampling import (
    ENDS_S,
    FAULT,
    HERE,
    METERS,
    START_S,
    STOP,
    HostFault,
    HostMeters,
    sound,
)

__all__ = ["HostSamplers", "jobs_for"]

_POLL_S = 0.1
_MORE_S = 10.0  # beyond what a sampler has: launchers and shared file systems take their time

# A step that goes on beside those of the trials, and after most of its tasks have left.
# Source: Slurm's srun(1), input environment variables.
_BESIDE = {"SLURM_OVERLAP": "1", "SLURM_WAIT": "0"}

# Options that name what is read; where none is given it is the host itself.
_SOURCES = ("file", "host", "url")
_HOST = "{host}"


class HostSamplers:
    """The samplers of all hosts."""

    def __init__(
        self, meters: Sequence[MeterEntry], uuids: Sequence[str], folder: Path, template: str, ranks: int
    ) -> None:
        """Start them.

        Args:
            meters: The study's.
            uuids: Of the accelerators of this host that trials run on; of others all are read.
            folder: Their own; those of the hosts lie beside it.
            template: Of the launcher.
            ranks: As many as trials have at most.

        Raises:
            ConfigError: A meter is not known, or an option of one, or hosts would read one source.
            MeterError: They do not start, or on no host a meter could be opened.
            EngineError: There is no launcher.
        """
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "inferometer.study.sampling", str(folder)]
        with (folder / "stderr").open("wb") as stderr:
            self._launcher = subprocess.Popen(
                launch_command(template, ranks, command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
                env=launch_environment() | _BESIDE,
            )
        note_process(folder / PROCESS, self._launcher.pid)
        try:
            hosts = self._gathered(ranks)
            jobs = {host: jobs_for(meters, uuids, host, hosts) for host in hosts}
            write_atomically(folder / METERS, HostMeters(hosts=jobs).model_dump_json().encode())
            self.readings = self._begun(hosts)
        except BaseException:
            self.close()
            raise

    def _gathered(self, ranks: int) -> list[str]:
        """The hosts, once all processes have begun."""
        deadline = time.monotonic() + START_S
        while len(here := list(self._folder.glob(f"*{HERE}"))) < ranks:
            if self._launcher.poll() is not None or time.monotonic() > deadline:
                raise MeterError(
                    f"the launcher started {len(here)} of {ranks} samplers' processes{self._said()}"
                )
            time.sleep(_POLL_S)
        return sorted({path.name.removesuffix(HERE).rpartition(".")[0] for path in here})

    def _begun(self, hosts: Sequence[str]) -> MergedReadings:
        """The readings of all hosts that have a sampler, and why others have none."""
        deadline = time.monotonic() + START_S + _MORE_S
        found: dict[str, HostReadings] = {}
        faults: dict[str, InferometerError] = {}
        while len(found) + len(faults) < len(hosts):
            late = self._launcher.poll() is not None or time.monotonic() > deadline
            for host in [one for one in hosts if one not in found and one not in faults]:
                try:
                    one = _begun(self._of(host), host)
                except InferometerError as error:
                    faults[host] = error
                    continue
                if one is not None:
                    found[host] = one
                elif late:
                    faults[host] = MeterError(f"its sampler does not start{self._said()}")
            time.sleep(_POLL_S)
        told = [f"{host}: {error}" for host, error in faults.items()]
        if not found or any(isinstance(error, ConfigError) for error in faults.values()):
            kind = next((ConfigError for one in faults.values() if isinstance(one, ConfigError)), MeterError)
            raise kind("; ".join(told))
        self._watched = [self._of(host) / FAULT for host in found]
        return MergedReadings(found, dict(zip(faults, told, strict=True)), named=len(hosts) > 1)

    @property
    def running(self) -> bool:
        """Whether all that have begun still read."""
        return self._launcher.poll() is None and not any(path.exists() for path in self._watched)

    def close(self) -> None:
        """Let them close their meters and end; what hangs is ended by its launcher."""
        with contextlib.suppress(OSError):  # of a full disk: the launcher is asked instead
            (self._folder / STOP).touch()
        for end in (self._launcher.terminate, self._kill):
            try:
                self._launcher.wait(ENDS_S + _MORE_S)
                break
            except subprocess.TimeoutExpired:
                end()
        self._launcher.wait()
        # They hold addresses and files that records leave out on purpose.
        for own in (self._folder, *self._folder.parent.glob(f"{self._folder.name}@*")):
            shutil.rmtree(own, ignore_errors=True)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._launcher.pid, signal.SIGKILL)

    def _of(self, host: str) -> Path:
        return self._folder.with_name(f"{self._folder.name}@{host}")

    def _said(self) -> str:
        said = (self._folder / "stderr").read_text(errors="replace").strip().splitlines()
        lines = [line.strip() for line in said if any(sign.isalnum() for sign in line)]
        return f": {lines[-1]}" if lines else ""


def jobs_for(
    meters: Sequence[MeterEntry], uuids: Sequence[str], host: str, hosts: Sequence[str]
) -> tuple[MeterJob, ...]:
    """What the sampler of a host reads: the study's meters, with the host's name where options ask for it.

    Args:
        meters: The study's.
        uuids: Of the accelerators of this host that trials run on.
        host: Whose sampler it is.
        hosts: All that have one.

    Raises:
        ConfigError: Several hosts would read one source.
    """
    own = {"devices": list(uuids)} if uuids and host == socket.gethostname() else {}
    jobs = []
    for one in meters:
        named = [key for key in _SOURCES if key in one.options]
        if len(hosts) > 1 and named and not any(_HOST in str(one.options[key]) for key in named):
            raise ConfigError(
                f"{one.meter}: {named[0]}: {', '.join(hosts)} would all read the same:"
                f" write {_HOST} where the host's name belongs"
            )
        short = host.partition(".")[0]
        options = {
            key: value.replace(_HOST, short) if isinstance(value, str) else value
            for key, value in one.options.items()
        }
        jobs.append(MeterJob(meter=one.meter, options=own | options, period_s=one.period_s))
    return tuple(jobs)


def _begun(folder: Path, host: str) -> HostReadings | None:
    """The readings of a host's sampler, once it reads.

    Raises:
        ConfigError: A meter is not known, or an option of one.
        MeterError: It does not start, or no meter could be opened.
    """
    there = {path.name for path in folder.glob("*")}  # NFS asks its server about a folder that is opened
    if FAULT in there:
        fault = HostFault.model_validate_json((folder / FAULT).read_bytes())
        raise (ConfigError if fault.misused else MeterError)(fault.reason)
    head = read_head(folder)
    if head is None:
        return None
    ours = (time.monotonic_ns(), time.time_ns())
    ahead = 0 if host == socket.gethostname() else ahead_ns(head.clock, ours)
    return HostReadings(FileReadings(folder, sound(head), host), ahead)
