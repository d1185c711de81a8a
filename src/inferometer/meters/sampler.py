"""The sampler: one process per host that reads all meters, ``python -m inferometer.meters.sampler JOB.json``.

One thread per meter, on absolute deadlines: a slow call delays no later one, and a missed deadline is left
out rather than made up for. The process ends when its standard input closes, which its parent's death does
as well, or by SIGTERM: every meter is then closed, so that no management controller keeps a session.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import resource
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from inferometer import registry
from inferometer.contracts import Channel, MeterSession, Sample
from inferometer.errors import ConfigError, InferometerError, MeterError, brief
from inferometer.meters.readings import FAULTS, HEAD, READING, READINGS, TAIL, Head, MeteredChannel
from inferometer.records import Frozen
from inferometer.store import write_atomically

__all__ = ["MeterJob", "SamplerJob", "main"]

_FLUSH_S = 0.5  # how old the newest reading on disk may be
_PUSHED_S = 0.5  # how often a meter is asked for readings that came by themselves
_AHEAD_NS = 1_000_000_000  # clocks of two machines may differ by that much
_PR_SET_PDEATHSIG = 1  # Source: linux/prctl.h


class MeterJob(Frozen):
    """One meter to read: its name, its options, and seconds between readings in place of its own, if any."""

    meter: str
    options: dict[str, Any]
    period_s: float | None = None


class SamplerJob(Frozen):
    """What a sampler does: its meters, the folder it writes, and the parent it must not outlive."""

    parent_pid: int
    folder: str
    meters: tuple[MeterJob, ...]


Row = tuple[int, int, int, float]


class _Reader:
    """One open meter and the thread that reads it; ``rows`` are taken by the main thread."""

    def __init__(self, job: MeterJob, session: MeterSession, first: int) -> None:
        self.name, self.session, self._first = job.meter, session, first
        self.rows: deque[Row] = deque()
        self.faults: dict[str, int] = {}
        self._stop = threading.Event()
        self._periods = {
            place: job.period_s or channel.period_s
            for place, channel in enumerate(session.channels)
            if not channel.pushed
        }
        self._thread = threading.Thread(target=self._run, name=f"meter-{job.meter}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self, seconds: float) -> bool:
        """Ask the thread to end and wait for it; whether it did."""
        self._stop.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        begin = time.monotonic()
        due: dict[int | None, float] = dict.fromkeys(self._periods, begin)
        if any(channel.pushed for channel in self.session.channels):
            due[None] = begin
        while due:
            place = min(due, key=lambda one: due[one])
            if self._stop.wait(max(0.0, due[place] - time.monotonic())):
                break
            if place is None:
                self._take_arrived()
            else:
                self._read(place)
            period = _PUSHED_S if place is None else self._periods[place]
            # The next deadline that is still ahead, on the grid that began at the start.
            missed = max(0, int((time.monotonic() - due[place]) / period))
            due[place] += period * (missed + 1)
        if None in due:
            self._take_arrived()

    def _read(self, place: int) -> None:
        before = time.monotonic_ns()
        value = float("nan")
        try:
            value = self._sound(place, self.session.read(place))
        except Exception as error:  # noqa: BLE001 (a plug-in's fault is a gap in its readings, told in the record)
            self._fault(error)
        self.rows.append((self._first + place, before, time.monotonic_ns(), value))

    def _take_arrived(self) -> None:
        try:
            for one in self.session.arrived():
                self._take(one)
        except Exception as error:  # noqa: BLE001 (as above)
            self._fault(error)

    def _take(self, one: Sample) -> None:
        if not 0 <= one.place < len(self.session.channels) or one.end_ns < one.begin_ns:
            self._fault(MeterError(f"{self.name}: a reading of no channel, or of no time"))
            return
        value = float("nan")
        try:
            if one.end_ns > time.monotonic_ns() + _AHEAD_NS:
                raise MeterError(f"{self.name}: readings of times to come: is the clock offset right?")
            value = self._sound(one.place, one.value)
        except Exception as error:  # noqa: BLE001 (as above)
            self._fault(error)
        self.rows.append((self._first + one.place, one.begin_ns, one.end_ns, value))

    def _sound(self, place: int, value: float) -> float:
        """The value, if it can be one of its quantity; NaN is one that the meter itself says is none."""
        number, channel = float(value), self.session.channels[place]
        if math.isinf(number) or (number < 0 and channel.quantity in ("power", "energy")):
            raise MeterError(
                f"{self.name}: {channel.name}: {number:g} can be no reading of {channel.quantity}"
            )
        return number

    def _fault(self, error: Exception) -> None:
        text = str(error) if isinstance(error, MeterError) else brief(f"{type(error).__name__}: {error}")
        self.faults[text] = self.faults.get(text, 0) + 1


def main(arguments: Sequence[str]) -> int:
    """Read the meters of the job file named on the command line until told to end."""
    job = SamplerJob.model_validate_json(Path(arguments[0]).read_bytes())
    # SIGTERM rather than SIGKILL when the parent dies: sessions have to be closed.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the parent says when to end
    if os.getppid() != job.parent_pid:
        return 1
    with contextlib.ExitStack() as stack:
        readers, head = _opened(job, stack)
        folder = Path(job.folder)
        (folder / READINGS).touch()
        write_atomically(folder / HEAD, head.text().encode())
        started_s = _cpu_s()
        for reader in readers:
            reader.start()
        _copy_until_told(readers, folder / READINGS, told)
        # A call that hangs keeps its thread: the process ends all the same.
        hanging = [reader.name for reader in readers if not reader.stop(2.0)]
        _flush(readers, folder / READINGS)
        write_atomically(folder / TAIL, json.dumps(_last_words(readers, hanging, started_s)).encode())
    return 0


def _opened(job: SamplerJob, stack: contextlib.ExitStack) -> tuple[list[_Reader], Head]:
    readers: list[_Reader] = []
    channels: list[MeteredChannel] = []
    facts: dict[str, Mapping[str, Any]] = {}
    refused: dict[str, str] = {}
    misused: list[str] = []
    for one in job.meters:
        try:
            session = registry.meter(one.meter).open(one.options)
            stack.callback(session.close)
            _check(one.meter, session.channels)
        except InferometerError as error:
            refused[one.meter] = str(error)
            if isinstance(error, ConfigError):
                misused.append(one.meter)
            continue
        readers.append(_Reader(one, session, len(channels)))
        channels += [MeteredChannel(one.meter, _asked(channel, one.period_s)) for channel in session.channels]
        facts[one.meter] = dict(session.facts)
    return readers, Head(tuple(channels), facts, refused, _clocks(), tuple(misused))


def _check(meter: str, channels: Sequence[Channel]) -> None:
    """Refuse what could make a wrong figure of sound readings."""
    seen: set[tuple[str, str]] = set()
    for one in channels:
        if not 0 < one.period_s < math.inf:
            raise MeterError(f"{meter}: {one.name}: a period of {one.period_s:g} s is none")
        if one.primary and one.quantity not in ("power", "energy"):
            raise MeterError(f"{meter}: {one.name}: no figure can rest on {one.quantity}")
        if one.primary and (one.boundary, one.part) in seen:
            raise MeterError(f"{meter}: {one.part} of {one.boundary} is given twice: it would count twice")
        if one.primary:
            seen.add((one.boundary, one.part))


def _asked(channel: Channel, period_s: float | None) -> Channel:
    """The channel as it is read here."""
    return channel if period_s is None or channel.pushed else replace(channel, period_s=period_s)


def _copy_until_told(readers: Sequence[_Reader], path: Path, told: threading.Event) -> None:
    """Write what the threads have read, until standard input closes or a signal came."""
    told_of: dict[str, dict[str, int]] = {}
    while not told.is_set():
        try:
            ready, _, _ = select.select([sys.stdin], [], [], _FLUSH_S)
        except InterruptedError:
            continue
        if ready and not os.read(sys.stdin.fileno(), 4096):
            break
        _flush(readers, path)
        faults = {reader.name: dict(reader.faults) for reader in readers if reader.faults}
        if faults != told_of:
            write_atomically(path.parent / FAULTS, json.dumps(faults).encode())
            told_of = faults


def _flush(readers: Sequence[_Reader], path: Path) -> None:
    rows: list[Row] = []
    for reader in readers:
        while reader.rows:
            rows.append(reader.rows.popleft())
    if rows:
        with path.open("ab") as file:
            file.write(np.array(rows, READING).tobytes())


def _last_words(readers: Sequence[_Reader], hanging: Sequence[str], started_s: float) -> dict[str, Any]:
    """What is known at the end; ``cpu_s`` is this process's own since it began to read."""
    return {
        "clock": list(_clocks()),
        "cpu_s": _cpu_s() - started_s,
        "faults": {reader.name: reader.faults for reader in readers if reader.faults},
        "hanging": list(hanging),
    }


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _clocks() -> tuple[int, int]:
    return time.monotonic_ns(), time.time_ns()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
