"""What the sampler writes and others read: readings in a file that only grows, and what they are of.

In the sampler's folder::

    head.json      the channels, what each meter tells of itself, and meters that could not be opened
    readings.bin   readings as they come, of dtype `READING`
    faults.json    by meter, why readings failed, and how many; absent while none did
    tail.json      what the sampler says when it ends; absent while it runs, or when it was killed

Time is CLOCK_MONOTONIC in nanoseconds. A pair of it and the wall clock is kept at the start and the end.
"""

from __future__ import annotations

import json
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from inferometer.contracts import Channel
from inferometer.energy import Trace
from inferometer.errors import MeterError

__all__ = [
    "FAULTS",
    "HEAD",
    "READING",
    "READINGS",
    "TAIL",
    "FileReadings",
    "Head",
    "MeteredChannel",
    "Readings",
    "in_order",
    "read_head",
]

HEAD, READINGS, FAULTS, TAIL = "head.json", "readings.bin", "faults.json", "tail.json"

READING = np.dtype([("channel", "<i4"), ("begin_ns", "<i8"), ("end_ns", "<i8"), ("value", "<f8")])
"""One reading: the channel's place in the head, CLOCK_MONOTONIC before and after the call, and the value in
the channel's unit; NaN: there was no reading."""

_KINDS: Mapping[str, Literal["power", "energy"]] = {"power": "power", "energy": "energy"}


@dataclass(frozen=True)
class MeteredChannel:
    """A channel, and the meter that gives it."""

    meter: str
    channel: Channel

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"meter": self.meter, **asdict(self.channel)}


@dataclass(frozen=True)
class Head:
    """What a sampler reads.

    Attributes:
        channels: Of all meters; readings name them by place.
        facts: By meter, what it tells of itself.
        refused: By meter, why it could not be opened.
        misused: Those of them that were asked for something that cannot be, such as an unknown option.
        clock: CLOCK_MONOTONIC and the wall clock, nanoseconds, read together.
    """

    channels: tuple[MeteredChannel, ...]
    facts: Mapping[str, Mapping[str, Any]]
    refused: Mapping[str, str]
    clock: tuple[int, int]
    misused: tuple[str, ...] = ()

    def text(self) -> str:
        """As JSON."""
        content = {
            "channels": [one.document() for one in self.channels],
            "facts": {name: dict(facts) for name, facts in self.facts.items()},
            "refused": dict(self.refused),
            "clock": list(self.clock),
            "misused": list(self.misused),
        }
        return json.dumps(content)


def read_head(folder: Path) -> Head | None:
    """The head in a sampler's folder; None while there is none."""
    path = folder / HEAD
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    channels = []
    for fields in content["channels"]:
        meter = fields.pop("meter")
        channels.append(MeteredChannel(meter, Channel(**fields)))
    monotonic_ns, wall_ns = content["clock"]
    clock = (int(monotonic_ns), int(wall_ns))
    return Head(tuple(channels), content["facts"], content["refused"], clock, tuple(content["misused"]))


class Readings(ABC):
    """What meters have read so far, all on one clock; ``refresh`` takes in what came since.

    Attributes:
        head: What is read.
        hosts: Where.
    """

    head: Head
    hosts: tuple[str, ...]

    @abstractmethod
    def refresh(self) -> None:
        """Take in the whole readings that came since the last call.

        Raises:
            MeterError: They cannot be read.
        """

    @abstractmethod
    def faults(self, meter: str) -> dict[str, int]:
        """Why readings of a meter failed so far, and how many for each reason."""

    @abstractmethod
    def facts(self, meter: str) -> dict[str, Any]:
        """What a meter tells of itself, for the record."""

    @abstractmethod
    def host_of(self, place: int) -> str:
        """Where a channel is read: one of ``hosts``."""

    @abstractmethod
    def values(self, place: int) -> npt.NDArray[Any]:
        """``[n] READING`` of one channel, in order of time."""

    @abstractmethod
    def between(self, begin_ns: int, end_ns: int) -> npt.NDArray[Any]:
        """``[n] READING`` of all channels that began in between, in order of time."""

    @abstractmethod
    def last_ns(self, place: int) -> int | None:
        """When the last reading of a channel ended; None: there is none."""

    def finite(self, place: int, begin_ns: int, end_ns: int) -> npt.NDArray[np.float64]:
        """``[n] float64``: a channel's values whose calls lie within a span, without those that are none."""
        found = self.values(place)
        inside = (found["begin_ns"] >= begin_ns) & (found["end_ns"] <= end_ns)
        return np.asarray(found["value"][inside & np.isfinite(found["value"])], np.float64)

    def trace(self, place: int) -> Trace:
        """The readings of one channel of power or energy."""
        channel, found = self.head.channels[place].channel, self.values(place)
        return Trace(
            kind=_KINDS[channel.quantity],
            begin_ns=found["begin_ns"].astype(np.int64),
            end_ns=found["end_ns"].astype(np.int64),
            values=found["value"].astype(np.float64),
            period_s=channel.period_s,
            step_s=channel.step_s,
            gain_error=channel.gain_error,
        )

    def places(self, quantity: str, meter: str, parts: Sequence[str]) -> tuple[int, ...]:
        """Places of one meter's channels of a quantity whose part is among ``parts``."""
        return tuple(
            place
            for place, one in enumerate(self.head.channels)
            if one.channel.quantity == quantity and one.meter == meter and one.channel.part in parts
        )


class FileReadings(Readings):
    """The readings of one host's sampler, from its folder."""

    def __init__(self, folder: Path, head: Head, host: str | None = None) -> None:
        """Read ``folder``, whose head is ``head``; ``host``: where its sampler runs (None: here)."""
        self._path, self.head = folder / READINGS, head
        self.hosts = (host or socket.gethostname(),)
        self._values: npt.NDArray[Any] = np.empty(0, READING)

    def refresh(self) -> None:
        """Take in the whole readings that were appended since the last call.

        Raises:
            MeterError: The file cannot be read.
        """
        try:
            new = np.fromfile(self._path, READING, offset=len(self._values) * READING.itemsize)
        except OSError as error:
            raise MeterError(f"{self._path}: {error.strerror or error}") from error
        self._values = np.concatenate([self._values, new])

    def faults(self, meter: str) -> dict[str, int]:
        """Why readings of a meter failed so far, and how many for each reason."""
        try:
            found = json.loads((self._path.parent / FAULTS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(text): int(count) for text, count in found.get(meter, {}).items()}

    def facts(self, meter: str) -> dict[str, Any]:
        """What a meter tells of itself, for the record."""
        return dict(self.head.facts.get(meter, {}))

    def host_of(self, place: int) -> str:
        """Where a channel is read: on the one host."""
        return self.hosts[0]

    def values(self, place: int) -> npt.NDArray[Any]:
        """``[n] READING`` of one channel, in order of time."""
        return in_order(self._values[self._values["channel"] == place])

    def between(self, begin_ns: int, end_ns: int) -> npt.NDArray[Any]:
        """``[n] READING`` of all channels that began in between, in order of time."""
        inside = (self._values["begin_ns"] >= begin_ns) & (self._values["begin_ns"] <= end_ns)
        return in_order(self._values[inside])

    def last_ns(self, place: int) -> int | None:
        """When the last reading of a channel ended; None: there is none."""
        found = self._values["end_ns"][self._values["channel"] == place]
        return int(found.max()) if len(found) else None


def in_order(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``[n] READING`` in order of time."""
    order: npt.NDArray[np.intp] = np.argsort(values["begin_ns"], kind="stable")
    return np.take(values, order)
