"""The readings of several hosts' samplers as one: on one clock, no two parts of one name.

Each host counts its CLOCK_MONOTONIC from a moment of its own. Where ranks ran on several hosts, MPI tells how
far their clocks are apart. Between idle and load, or where one rank ran, the wall clocks tell: what is then
taken for granted is that they agree, as NTP has them do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.errors import MeterError
from inferometer.meters.readings import Head, MeteredChannel, Readings, in_order

__all__ = ["APART_S", "HostReadings", "MergedReadings", "ahead_ns"]

APART_S = 0.2
"""How far wall clocks of hosts that are read together may be apart."""


@dataclass(frozen=True)
class HostReadings:
    """One host's readings.

    Attributes:
        readings: On its own clock.
        ahead_ns: By how much that is ahead of the clock that all are put on.
        apart_s: How far what MPI measured, and ``ahead_ns`` rests on, is from what the wall clocks say; None
            where it rests on these, or is of one host with the clock that all are put on.
    """

    readings: Readings
    ahead_ns: int
    apart_s: float | None = None


class MergedReadings(Readings):
    """All hosts' readings. Names of parts begin with their host's, but for accelerators: UUIDs are unique."""

    def __init__(
        self, by_host: Mapping[str, HostReadings], absent: Mapping[str, str] | None = None, *, named: bool
    ) -> None:
        """Put them together.

        Args:
            by_host: By the host's name.
            absent: Hosts that nothing is read on, and why.
            named: Whether parts are told by their host; not so where there is but one.
        """
        self._by_host, self._absent, self._named = dict(by_host), dict(absent or {}), named
        self.hosts = tuple(self._by_host)
        # Of each channel, its host and its place there; and each host's first place here.
        self._places: list[tuple[str, int]] = []
        self._first: dict[str, int] = {}
        channels: list[MeteredChannel] = []
        refused: dict[str, list[str]] = {}
        for host, one in self._by_host.items():
            head = one.readings.head
            self._first[host] = len(channels)
            self._places += [(host, place) for place in range(len(head.channels))]
            channels += [self._told(host, channel) for channel in head.channels]
            for meter, why in head.refused.items():
                refused.setdefault(meter, []).append(f"{host}: {why}" if named else why)
        reasons = {meter: "; ".join(why) for meter, why in refused.items()}
        facts = {one.meter: self.facts(one.meter) for one in channels}
        self.head = Head(tuple(channels), facts, reasons, (0, 0))

    def of_hosts(self, offsets_s: Mapping[str, tuple[float, float]]) -> tuple[MergedReadings, int]:
        """The readings of the hosts that a trial ran on, on the first one's clock.

        Args:
            offsets_s: By host, its monotonic clock less the first one's as MPI measured it, and the largest
                error of that.

        Returns:
            They, and by how much (ns) that clock is ahead of this object's.

        Raises:
            MeterError: Of a host nothing is read, or wall clocks are too far apart.
        """
        for host in offsets_s:
            if host not in self._by_host:
                raise MeterError(self._absent.get(host, f"no sampler runs on {host}, where ranks ran"))
        first = next(iter(offsets_s))
        ahead_ns = self._by_host[first].ahead_ns
        own: dict[str, HostReadings] = {}
        for host, (offset_s, u_s) in offsets_s.items():
            one = self._by_host[host]
            apart_s = (one.ahead_ns - ahead_ns) * 1e-9 - offset_s
            if abs(apart_s) > APART_S + u_s:
                raise MeterError(
                    f"the wall clocks of {first} and {host} are {abs(apart_s):.2f} s apart, so that it is not"
                    " known when they were idle: set them by NTP"
                )
            own[host] = HostReadings(one.readings, round(offset_s * 1e9), None if host == first else apart_s)
        return MergedReadings(own, named=self._named), ahead_ns

    def refresh(self) -> None:
        """Take in what every host's sampler has read since the last call.

        Raises:
            MeterError: They cannot be read.
        """
        for one in self._by_host.values():
            one.readings.refresh()

    def faults(self, meter: str) -> dict[str, int]:
        """Why readings of a meter failed so far, and how many for each reason."""
        return {
            f"{host}: {text}" if self._named else text: count
            for host, one in self._by_host.items()
            for text, count in one.readings.faults(meter).items()
        }

    def facts(self, meter: str) -> dict[str, Any]:
        """What a meter tells of itself; by host where these have names, with how sure their clocks are."""
        found: dict[str, Any] = {}
        for host, one in self._by_host.items():
            clocks = {} if one.apart_s is None else {"clocks_apart_s": one.apart_s}
            found[host] = one.readings.facts(meter) | clocks
        return found if self._named else next(iter(found.values()), {})

    def host_of(self, place: int) -> str:
        """Where a channel is read."""
        return self._places[place][0]

    def values(self, place: int) -> npt.NDArray[Any]:
        """``[n] READING`` of one channel, in order of time."""
        host, theirs = self._places[place]
        return self._placed(host, self._by_host[host].readings.values(theirs))

    def between(self, begin_ns: int, end_ns: int) -> npt.NDArray[Any]:
        """``[n] READING`` of all channels that began in between, in order of time."""
        found = [
            self._placed(host, one.readings.between(begin_ns + one.ahead_ns, end_ns + one.ahead_ns))
            for host, one in self._by_host.items()
        ]
        return in_order(np.concatenate(found))

    def last_ns(self, place: int) -> int | None:
        """When the last reading of a channel ended; None: there is none."""
        host, theirs = self._places[place]
        one = self._by_host[host]
        last = one.readings.last_ns(theirs)
        return None if last is None else last - one.ahead_ns

    def _told(self, host: str, one: MeteredChannel) -> MeteredChannel:
        channel = one.channel
        if not self._named or channel.of_device:
            return one
        return MeteredChannel(one.meter, replace(channel, part=f"{host}: {channel.part}"))

    def _placed(self, host: str, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Readings of a host as these here."""
        found = rows.copy()
        found["channel"] += self._first[host]
        found["begin_ns"] -= self._by_host[host].ahead_ns
        found["end_ns"] -= self._by_host[host].ahead_ns
        return found


def ahead_ns(theirs: tuple[int, int], ours: tuple[int, int]) -> int:
    """By how much another host's CLOCK_MONOTONIC is ahead of this one's, if their wall clocks agree.

    Args:
        theirs: A pair of its CLOCK_MONOTONIC and its wall clock, ns, read together.
        ours: Such a pair of this host, of any time.
    """
    return (theirs[0] - theirs[1]) - (ours[0] - ours[1])
