"""The meters of a study: its sampler process, the idle times around its trials, and what they give."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from inferometer import energy
from inferometer.config import PowerSection
from inferometer.errors import ConfigError, MeterError
from inferometer.meters.readings import Readings, read_head
from inferometer.meters.sampler import MeterJob, SamplerJob
from inferometer.records import Outcome
from inferometer.store import write_atomically, write_sidecar
from inferometer.study.launch import PROCESS, Watcher, note_process
from inferometer.study.power import Idle, parts_for, power_results, trace_sidecar
from inferometer.trials.spec import PowerTask, TrialSpec

__all__ = ["Metering", "Sampler"]

_START_S = 60.0  # a management controller may take its time to log in
_POLL_S = 0.1
_ENDS_S = 10.0
_LOOK_S = 3.0
_CHECK_S = 5.0  # an idle after a load that only shows whether the one before still holds
_READINGS = 10  # that an idle has at least, and a load twice as many
_HOLDS = 0.02  # relative; and in watts:
_HOLDS_W = 1.0
_HOLDS_C = 3.0  # degrees


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
            self.readings = self._begun(folder)
        except BaseException:
            self.close()
            raise

    def _begun(self, folder: Path) -> Readings:
        deadline = time.monotonic() + _START_S
        while (head := read_head(folder)) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (folder / "stderr").read_text(errors="replace").strip().splitlines()
                raise MeterError(f"the sampler does not start: {said[-1] if said else 'it says nothing'}")
            time.sleep(_POLL_S / 5)
        if head.misused:
            raise ConfigError("; ".join(_named(name, head.refused[name]) for name in head.misused))
        if not head.channels:
            raise MeterError("; ".join(_named(name, why) for name, why in head.refused.items()))
        return Readings(folder, head)

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
            self._process.wait(_ENDS_S)
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


class Metering:
    """Power for the trials of one study; used as: ``before`` a job, ``after`` it, then ``completed``."""

    def __init__(self, section: PowerSection, uuids: Sequence[str], folder: Path, watcher: Watcher) -> None:
        """Nothing is started yet.

        Args:
            section: The study's.
            uuids: Of the accelerators that the study's trials run on.
            folder: The study's.
            watcher: Told of waiting.
        """
        self._section, self._uuids = section, list(uuids)
        self._folder, self._watcher = folder, watcher
        self._sampler: Sampler | None = None
        self._starts = 0
        self._before: Idle | None = None
        self._after: Idle | None = None
        self._flag: str | None = None  # of the idle to come

    def start(self) -> None:
        """Start the sampler, if it does not run.

        Raises:
            MeterError: It does not start, or no meter could be opened.
        """
        if self._sampler is not None and self._sampler.running:
            return
        self.close()
        self._starts += 1
        devices = {"devices": self._uuids} if self._uuids else {}
        jobs = [
            MeterJob(meter=one.meter, options=devices | one.options, period_s=one.period_s)
            for one in self._section.meters
        ]
        self._sampler = Sampler(jobs, self._folder / "work" / f"sampler-{self._starts}")
        self._before = self._after = None
        if self._starts == 1:
            self._check_live()

    def _check_live(self) -> None:
        """See that every meter reads now: told before the first trial, not after it.

        Raises:
            MeterError: A meter gives no reading, or readings of another time.
        """
        self._await(time.monotonic_ns())
        allowed_s = max(3.0, 5 * self._slowest_s())
        for place, one in enumerate(self.readings.head.channels):
            if not one.channel.primary:
                continue
            named = f"{one.meter}: {one.channel.part}"
            found = self.readings.values(place)
            found = found[np.isfinite(found["value"])]
            if not len(found):
                time.sleep(1.0)  # reasons are written after readings
                why = "; ".join(self.readings.faults(one.meter))
                raise MeterError(f"{named} gives no reading: {why or 'see inferometer meters watch'}")
            age_s = (time.monotonic_ns() - int(found["end_ns"].max())) * 1e-9
            if abs(age_s) > allowed_s:
                when = f"{age_s:.0f} s old" if age_s > 0 else f"{-age_s:.0f} s ahead of this machine's clock"
                hint = "; are its zone and clock_offset_s right, and does its logger run?"
                raise MeterError(f"{named}: the newest reading is {when}{hint if one.channel.pushed else ''}")

    @property
    def readings(self) -> Readings:
        """Of the running sampler."""
        assert self._sampler is not None, "started before anything is read"
        return self._sampler.readings

    def task(self) -> PowerTask:
        """Lengths of a trial's windows, as the slowest meter needs them."""
        slowest, section = self._slowest_s(), self._section
        loaded = section.idle_loaded_s and max(section.idle_loaded_s, _READINGS / 2 * slowest)
        return PowerTask(
            section=section, min_s=max(section.min_s, 2 * _READINGS * slowest), idle_loaded_s=loaded
        )

    def before(self) -> None:
        """Have an idle before the trials to come: the last one while it holds, or a new one.

        Raises:
            MeterError: The sampler does not start again.
        """
        self.start()
        if self._before is None:
            self._await(time.monotonic_ns())
            self._settle()
            self._before = self._idle(self._idle_s())
        self._after = None

    def after(self) -> None:
        """Measure idle after the trials: briefly when it is as before, else in full."""
        self._settle()
        begin_ns = time.monotonic_ns()
        self._after = self._idle(min(self._check_s(), self._idle_s()), begin_ns)
        if not self._holds():
            self._after = self._idle(self._idle_s(), begin_ns)

    def completed(self, spec: TrialSpec, outcome: Outcome) -> Outcome:
        """The outcome of a trial with its power results and trace, or the reason why there are none."""
        if spec.power is None or outcome.status != "ok" or outcome.load_window is None:
            return outcome
        load, readings = outcome.load_window, self.readings
        self._await(load.end_ns)
        chosen = parts_for(readings, spec.trial.device, spec.uuids)
        missing = {f"power.{name}": why for name, why in readings.head.refused.items()}
        elsewhere = {one.host for one in outcome.ranks} - {socket.gethostname()}
        if elsewhere:
            missing["power"] = f"the meters do not read {', '.join(sorted(elsewhere))}, where ranks ran too"
            return outcome.model_copy(update={"missing": outcome.missing | missing})
        if not chosen:
            missing["power"] = "no meter of the study reads what this trial runs on"
            return outcome.model_copy(update={"missing": outcome.missing | missing})
        try:
            results = power_results(readings, chosen, load, self._before, self._after)
        except ValueError as error:  # of readings that no figure can be made of
            missing["power"] = f"the readings cannot be used: {error}"
            return outcome.model_copy(update={"missing": outcome.missing | missing})
        trace = trace_sidecar(readings, load, (self._before, self._after))
        sidecar = write_sidecar(self._folder, f"{spec.id}.power.npz", trace)
        update = {
            "power": results,
            "sidecars": (*outcome.sidecars, sidecar),
            "missing": outcome.missing | missing,
        }
        return outcome.model_copy(update=update)

    def next_job(self) -> None:
        """The idle after these trials is the one before the next, unless that still holds."""
        if self._after is not None and not self._holds():
            self._before = None if self._after.fault else self._after
        self._after = None

    @property
    def complete(self) -> bool:
        """Whether the idle after the trials is known."""
        return self._after is not None

    def close(self) -> None:
        """End the sampler."""
        if self._sampler is not None:
            self._sampler.close()
            # Its job holds addresses and files that records leave out on purpose.
            shutil.rmtree(self._folder / "work" / f"sampler-{self._starts}", ignore_errors=True)
            self._sampler = None

    def _slowest_s(self) -> float:
        periods = [
            max(one.channel.period_s, one.channel.step_s or 0.0)
            for one in self.readings.head.channels
            if one.channel.primary
        ]
        return max(periods, default=0.0)

    def _idle_s(self) -> float:
        return max(self._section.idle_s, _READINGS * self._slowest_s())

    def _check_s(self) -> float:
        return max(_CHECK_S, _READINGS * self._slowest_s())

    def _idle(self, seconds: float, begin_ns: int | None = None) -> Idle:
        """Wait until ``seconds`` after ``begin_ns`` (None: now); see whether devices were left alone."""
        begin_ns = time.monotonic_ns() if begin_ns is None else begin_ns
        end_ns = begin_ns + int(seconds * 1e9)
        self._watcher.waits("idle power", seconds)
        time.sleep(max(0.0, (end_ns - time.monotonic_ns()) * 1e-9))
        self._await(end_ns)
        return Idle((begin_ns, end_ns), self._held((begin_ns, end_ns)), self._flag)

    def _held(self, span: tuple[int, int]) -> str | None:
        """Why a span was not idle: processes on a device that no trial of this study runs on then."""
        for place, one in enumerate(self.readings.head.channels):
            if one.channel.quantity != "processes":
                continue
            most = self.readings.finite(place, *span).max(initial=0)
            if most > 0:
                what = "a process holds" if most == 1 else f"{most:.0f} processes hold"
                return f"{what} {one.channel.part} while it should be idle: end what else runs there"
        return None

    def _holds(self) -> bool:
        """Whether the idle before still tells what idle is, by power and temperature."""
        first, last = self._before, self._after
        if first is None or last is None or first.fault or last.fault:
            return False
        for place, one in enumerate(self.readings.head.channels):
            if one.channel.primary:
                if not self._alike(place, first.span, last.span):
                    return False
            elif one.channel.quantity == "temperature":
                old_c, new_c = (self._last_value(place, idle.span[1]) for idle in (first, last))
                if old_c is not None and new_c is not None and abs(new_c - old_c) > _HOLDS_C:
                    return False
        return True

    def _last_value(self, place: int, time_ns: int) -> float | None:
        found = self.readings.values(place)
        upto = found["value"][found["end_ns"] <= time_ns]
        return float(upto[-1]) if len(upto) and math.isfinite(upto[-1]) else None

    def _settle(self) -> None:
        """Wait until power has fallen back from earlier work: two looks in a row read the same."""
        look_s, most_s = max(_LOOK_S, 4 * self._slowest_s()), self._section.settle_max_s
        self._flag = None
        if not most_s:
            return
        most_s = max(most_s, 2 * look_s + self._slowest_s() + 1.0)  # room for two looks
        self._watcher.waits("power to settle", most_s)
        begin_ns, end = time.monotonic_ns(), time.monotonic() + most_s
        while time.monotonic() < end and self._sampler is not None and self._sampler.running:
            now_ns = time.monotonic_ns() - int(self._slowest_s() * 1e9)
            if now_ns - begin_ns >= 2 * look_s * 1e9 and self._same(now_ns, int(look_s * 1e9)):
                return
            time.sleep(_POLL_S * 5)
        self._flag = f"power had not settled within {most_s:.0f} s before it"

    def _same(self, now_ns: int, look_ns: int) -> bool:
        """Whether the two looks up to now read the same, on every primary channel."""
        self.readings.refresh()
        old, new = (now_ns - 2 * look_ns, now_ns - look_ns), (now_ns - look_ns, now_ns)
        channels = enumerate(self.readings.head.channels)
        return all(self._alike(place, old, new) for place, one in channels if one.channel.primary)

    def _alike(self, place: int, old: tuple[int, int], new: tuple[int, int]) -> bool:
        """Whether a channel's mean power in two spans agrees; not where there is none for one of them."""
        try:
            trace = self.readings.trace(place)
            old_w, new_w = energy.mean_w(trace, old), energy.mean_w(trace, new)
        except ValueError:
            return False
        return abs(new_w - old_w) <= max(_HOLDS * old_w, _HOLDS_W)

    def _await(self, time_ns: int) -> None:
        """Wait until every primary channel has a reading after ``time_ns``, or two periods too long."""
        deadline = time.monotonic() + 3 * self._slowest_s() + 2.0
        primary = [place for place, one in enumerate(self.readings.head.channels) if one.channel.primary]
        while True:
            self.readings.refresh()
            if all((self.readings.last_ns(place) or 0) > time_ns for place in primary):
                return
            if time.monotonic() > deadline or self._sampler is None or not self._sampler.running:
                return
            time.sleep(_POLL_S)


def _named(meter: str, reason: str) -> str:
    return reason if reason.startswith(meter) else f"{meter}: {reason}"
