"""The meters of a study: its sampler process, the idle times around its trials, and what they give."""

from __future__ import annotations

import math
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from inferometer import energy
from inferometer.config import PowerSection
from inferometer.contracts import Channel
from inferometer.errors import MeterError
from inferometer.meters.merged import APART_S, MergedReadings
from inferometer.meters.readings import Readings
from inferometer.records import Outcome
from inferometer.store import write_sidecar
from inferometer.study.launch import Watcher
from inferometer.study.power import Idle, held, lacking, parts_for, power_results, trace_sidecar
from inferometer.study.samplers import HostSamplers, jobs_for
from inferometer.study.sampling import Sampler
from inferometer.trials.spec import PowerTask, TrialSpec

__all__ = ["Metering"]

_POLL_S = 0.1
_LOOK_S = 3.0
_CHECK_S = 5.0  # an idle after a load that only shows whether the one before still holds
_READINGS = 10  # that an idle has at least, and a load twice as many
_HOLDS = 0.02  # relative; and in watts:
_HOLDS_W = 1.0
_HOLDS_C = 3.0  # degrees


class Metering:
    """Power for the trials of one study; used as: ``before`` a job, ``after`` it, then ``completed``."""

    def __init__(
        self,
        section: PowerSection,
        uuids: Sequence[str],
        folder: Path,
        watcher: Watcher,
        template: str | None = None,
        ranks: int = 1,
    ) -> None:
        """Nothing is started yet.

        Args:
            section: The study's.
            uuids: Of the accelerators of this host that the study's trials run on.
            folder: The study's.
            watcher: Told of waiting.
            template: What trials are launched by, if they may run on other hosts.
            ranks: As many as trials have at most.
        """
        self._section, self._uuids = section, list(uuids)
        self._folder, self._watcher = folder, watcher
        self._template, self._ranks = template, ranks
        # Accelerators that trials run on; those of other hosts are known once trials ran there.
        self._used = set(uuids) if template is None else set[str]()
        self._sampler: Sampler | HostSamplers | None = None
        self._starts = 0
        self._before: Idle | None = None
        self._after: Idle | None = None
        self._flag: str | None = None  # of the idle to come

    def start(self) -> None:
        """Start the sampler, or those of all hosts, if they do not run.

        Raises:
            ConfigError: A meter is not known, or an option of one, or hosts would read one source.
            MeterError: It does not start, or no meter could be opened.
        """
        if self._sampler is not None and self._sampler.running:
            return
        self.close()
        self._starts += 1
        meters, folder = self._section.meters, self._folder / "work" / f"sampler-{self._starts}"
        if self._template is not None:
            self._sampler = HostSamplers(meters, self._uuids, folder, self._template, self._ranks)
        else:
            host = socket.gethostname()
            self._sampler = Sampler(jobs_for(meters, self._uuids, host, [host]), folder)
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
                clocks = "; are the hosts' clocks set by NTP?" if self._template is not None else ""
                raise MeterError(
                    f"{named}: the newest reading is {when}{hint if one.channel.pushed else clocks}"
                )

    @property
    def readings(self) -> Readings:
        """Of the running sampler, or those of all hosts."""
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

    def after(self, outcomes: Sequence[Outcome]) -> None:
        """Measure idle after the trials: briefly when it is as before, else in full."""
        if self._template is not None:
            self._used |= {rank.uuid for one in outcomes for rank in one.ranks if rank.uuid is not None}
        self._settle()
        begin_ns = time.monotonic_ns()
        self._after = self._idle(min(self._check_s(), self._idle_s()), begin_ns)
        if not self._holds():
            self._after = self._idle(self._idle_s(), begin_ns)

    def completed(self, spec: TrialSpec, outcome: Outcome) -> Outcome:
        """The outcome of a trial with its power results and trace, or the reason why there are none."""
        if spec.power is None or outcome.status != "ok" or outcome.load_window is None:
            return outcome
        load, where, missing = outcome.load_window, self._where(spec, outcome), dict(outcome.missing)
        try:
            readings, ahead_ns = self._seen(outcome)
            missing |= {f"power.{name}": why for name, why in readings.head.refused.items()}
            chosen = []
            for parts in parts_for(readings, spec.trial.device, where):
                lack = lacking(readings, parts, where)
                if lack is None:
                    chosen.append(parts)
                elif f"power.{parts.meter}" not in missing:
                    missing[f"power.{parts.meter} ({parts.boundary})"] = lack
            if not chosen:
                raise MeterError(_nothing(missing))
            idles = (_shifted(self._before, ahead_ns), _shifted(self._after, ahead_ns))
            results = power_results(readings, chosen, load, *idles)
        except MeterError as error:
            return outcome.model_copy(update={"missing": missing | {"power": str(error)}})
        except ValueError as error:  # of readings that no figure can be made of
            why = f"the readings cannot be used: {error}"
            return outcome.model_copy(update={"missing": missing | {"power": why}})
        trace = trace_sidecar(readings, load, idles)
        sidecar = write_sidecar(self._folder, f"{spec.id}.power.npz", trace)
        update = {"power": results, "sidecars": (*outcome.sidecars, sidecar), "missing": missing}
        return outcome.model_copy(update=update)

    def _where(self, spec: TrialSpec, outcome: Outcome) -> Mapping[str, set[str]]:
        """By host, the accelerators that a trial ran on there, as far as they are known."""
        if not outcome.ranks:
            return {socket.gethostname(): set(spec.uuids)}
        found: dict[str, set[str]] = {}
        for one in outcome.ranks:
            found.setdefault(one.host, set()).update([one.uuid] if one.uuid is not None else [])
        return found

    def _seen(self, outcome: Outcome) -> tuple[Readings, int]:
        """The readings of the hosts that a trial ran on, on the clock of its load; by how much (ns) that is
        ahead of this host's.

        Raises:
            MeterError: Not all of these are read, or their clocks do not agree.
        """
        if isinstance(self.readings, MergedReadings):
            return self.readings.of_hosts(
                {one.host: (one.clock_offset_s, one.clock_u_s) for one in outcome.ranks}
            )
        elsewhere = {one.host for one in outcome.ranks} - set(self.readings.hosts)
        if elsewhere:
            hosts = ", ".join(sorted(elsewhere))
            raise MeterError(f"the meters do not read {hosts}, where ranks ran: give launch: {{template}}")
        return self.readings, 0

    def next_job(self) -> None:
        """The idle after these trials is the one before the next, unless that still holds."""
        if self._after is not None and not self._holds():
            self._before = None if self._held(self._after.span) else self._after
        self._after = None

    @property
    def complete(self) -> bool:
        """Whether the idle after the trials is known."""
        return self._after is not None

    def close(self) -> None:
        """End the sampler, or those of all hosts."""
        if self._sampler is not None:
            self._sampler.close()
            # Its job holds addresses and files that records leave out on purpose.
            shutil.rmtree(self._folder / "work" / f"sampler-{self._starts}", ignore_errors=True)
            self._sampler = None

    def _slowest_s(self) -> float:
        periods = [
            max(one.channel.period_s, one.channel.step_s or 0.0)
            for one in self.readings.head.channels
            if self._counts(one.channel)
        ]
        return max(periods, default=0.0)

    def _idle_s(self) -> float:
        return max(self._section.idle_s, _READINGS * self._slowest_s())

    def _check_s(self) -> float:
        return max(_CHECK_S, _READINGS * self._slowest_s())

    def _idle(self, seconds: float, begin_ns: int | None = None) -> Idle:
        """Wait until ``seconds`` after ``begin_ns`` (None: now)."""
        begin_ns = time.monotonic_ns() if begin_ns is None else begin_ns
        end_ns = begin_ns + int(seconds * 1e9)
        self._watcher.waits("idle power", seconds)
        time.sleep(max(0.0, (end_ns - time.monotonic_ns()) * 1e-9))
        # A trial places it by MPI on other hosts: later than here by as much as wall clocks may be apart.
        self._await(end_ns + int(APART_S * 1e9) * (self._template is not None))
        return Idle((begin_ns, end_ns), self._flag)

    def _held(self, span: tuple[int, int]) -> str | None:
        """Why a span was not idle: processes on a device that trials run on."""
        return held(self.readings, span, self._used or None)

    def _counts(self, channel: Channel) -> bool:
        """Whether figures rest on a channel."""
        return channel.primary and self._matters(channel)

    def _matters(self, channel: Channel) -> bool:
        """Whether it is not of a device that no trial runs on."""
        return not channel.of_device or not self._used or channel.part in self._used

    def _holds(self) -> bool:
        """Whether the idle before still tells what idle is, by power and temperature."""
        first, last = self._before, self._after
        if first is None or last is None or self._held(first.span) or self._held(last.span):
            return False
        for place, one in enumerate(self.readings.head.channels):
            if self._counts(one.channel):
                if not self._alike(place, first.span, last.span):
                    return False
            elif one.channel.quantity == "temperature" and self._matters(one.channel):
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
        return all(self._alike(place, old, new) for place, one in channels if self._counts(one.channel))

    def _alike(self, place: int, old: tuple[int, int], new: tuple[int, int]) -> bool:
        """Whether a channel's mean power in two spans agrees; not where there is none for one of them."""
        try:
            trace = self.readings.trace(place)
            old_w, new_w = energy.mean_w(trace, old), energy.mean_w(trace, new)
        except ValueError:
            return False
        return abs(new_w - old_w) <= max(_HOLDS * old_w, _HOLDS_W)

    def _await(self, time_ns: int) -> None:
        """Wait until every channel that counts has a reading after ``time_ns``, or two periods too long."""
        deadline = time.monotonic() + 3 * self._slowest_s() + 2.0
        channels = enumerate(self.readings.head.channels)
        counting = [place for place, one in channels if self._counts(one.channel)]
        while True:
            self.readings.refresh()
            if all((self.readings.last_ns(place) or 0) > time_ns for place in counting):
                return
            if time.monotonic() > deadline or self._sampler is None or not self._sampler.running:
                return
            time.sleep(_POLL_S)


def _shifted(idle: Idle | None, ahead_ns: int) -> Idle | None:
    """The same on a clock that is ahead."""
    if idle is None:
        return None
    begin_ns, end_ns = idle.span
    return Idle((begin_ns + ahead_ns, end_ns + ahead_ns), idle.flag)


def _nothing(missing: Mapping[str, str]) -> str:
    """Why no meter gives a figure."""
    reasons = [f"{name.removeprefix('power.')}: {why}" for name, why in missing.items() if "power." in name]
    return "; ".join(["no meter of the study reads all that this trial ran on", *reasons])
