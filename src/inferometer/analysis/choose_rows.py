"""The frozen rows of a choice: what is needed, what there is, and what may be said of it.

Rates are in images/s, times in seconds, power in W, energy in J; top-1, drops and shares are fractions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from inferometer.analysis.power import Span
from inferometer.analysis.rows import Summary
from inferometer.analysis.setup import Setup
from inferometer.records import Record

__all__ = [
    "Candidate",
    "Choice",
    "Crew",
    "Judged",
    "Latency",
    "Need",
    "NeedVerdict",
    "Scale",
    "Source",
    "Watts",
    "What",
]

NeedVerdict = Literal["meets", "not known", "fails"]
What = Literal["rate", "p99", "watts", "joules", "top-1", "loss"]
Scale = Literal["measured", "between", "linear"]
"""How the rate of so many devices is known: measured together, between two numbers that were, or beyond."""


@dataclass(frozen=True)
class Source:
    """One store: the name that people know it by, the folder as they gave it, and what is in it."""

    name: str
    folder: str
    summary: Summary
    records: Sequence[Record]


@dataclass(frozen=True)
class Need:
    """What is asked for; None: no matter.

    Attributes:
        images_per_s: At least, of all devices together.
        p99_s: At most, of a call.
        watts: Of all devices under load, at most.
        j_per_image: Net of idle, at most.
        max_drop: Of top-1 against FP32, at most.
        min_top1: At least.
        model: Which one.
    """

    images_per_s: float | None = None
    p99_s: float | None = None
    watts: float | None = None
    j_per_image: float | None = None
    max_drop: float | None = None
    min_top1: float | None = None
    model: str | None = None


@dataclass(frozen=True)
class Judged:
    """One need, whether a candidate meets it, and what that rests on.

    ``excess`` is how many times what is allowed the figure is, or how many times too small; where it fails.
    """

    what: What
    verdict: NeedVerdict
    evidence: str
    excess: float | None = None


@dataclass(frozen=True)
class Latency:
    """How long calls took.

    Attributes:
        p99_s: The 99th percentile; None: too few calls tell none.
        least_s: What it is at least: the highest percentile that the calls do tell.
        calls: How many there were.
        under_load: Whether calls overlapped as they do at full rate, rather than one at a time.
    """

    p99_s: float | None
    least_s: float
    calls: int
    under_load: bool


@dataclass(frozen=True)
class Watts:
    """Power of some devices under load within one boundary.

    ``most_w`` is ``load_w`` at the upper end of net power's interval; ``gain_error`` the meter's own scale,
    in no interval; ``parts`` how many GPUs, sockets or supplies were added up.
    """

    boundary: str
    load_w: float
    most_w: float
    gain_error: float | None
    parts: int

    def times(self, measured: int, devices: int) -> float:
        """How many times these watts another number of devices draws.

        What was metered in as many parts as devices goes with them; a server is there as a whole.
        """
        share = devices / measured
        return share if self.parts == measured else math.ceil(share)


@dataclass(frozen=True)
class Crew:
    """So many devices at once, as they were measured.

    Attributes:
        devices: How many.
        setup: That of the trials.
        images_per_s: Of all, mean of the repeats.
        interval: Its 95 % interval; None: not known.
        repeats: How many.
        efficiency: Of linear, where each device was measured alone as well.
        latency: Of the worst repeat and rank; None: not known.
        watts: In every boundary that was metered, the one that the study names first first.
        boundary: That of the joules.
        j_per_image: Net of idle.
        j_interval: Its interval.
        record_ids: The trials.
    """

    devices: int
    setup: Setup
    images_per_s: float
    interval: Span | None
    repeats: int
    efficiency: float | None
    latency: Latency | None
    watts: tuple[Watts, ...]
    boundary: str | None
    j_per_image: float | None
    j_interval: Span | None
    record_ids: tuple[str, ...]

    @property
    def least_images_per_s(self) -> float:
        """The lower end of the interval; the rate itself where there is none."""
        return self.interval[0] if self.interval else self.images_per_s


@dataclass(frozen=True)
class Candidate:
    """A machine, device, engine, precision and batch, and how many devices the need wants of it.

    Attributes:
        source: The store's name.
        machine: In one line.
        setup: Which one, of one device.
        title: In words, without the source.
        name: In words, with the source where there are several.
        mac_share: Least share of the MACs that ran at the precision asked for.
        crews: What was measured, by number of devices.
        crew: Which of them the figures are of.
        devices: How many the need wants; None: it cannot be told.
        scale: How their rate is known.
        least_images_per_s: What they give at least; None as ``devices``.
        per_machine: Devices in one such machine; None: not known.
        load_w: Of all of them under load, within ``boundary``.
        boundary: The one with the most watts: what a supply has to deliver.
        top1: On the same engine, device and precision.
        top1_interval: Its interval.
        loss: Of top-1 against FP32, on the same images.
        price: Of all devices.
        hard: What the trials included that others may leave out: copies, decoding.
        cautions: What to know before believing it.
        judged: Each need.
        verdict: Of all needs together.
        beaten_by: Another that is no worse in anything that this one tells, and better in something.
        why_not: Why it is not the one to take; None of the one that is.
    """

    source: str
    machine: str
    setup: Setup
    title: str
    name: str
    mac_share: float | None
    crews: tuple[Crew, ...]
    crew: Crew
    devices: int | None
    scale: Scale
    least_images_per_s: float | None
    per_machine: int | None
    load_w: float | None
    boundary: str | None
    top1: float | None
    top1_interval: Span | None
    loss: float | None
    price: float | None
    hard: tuple[str, ...]
    cautions: tuple[str, ...]
    judged: tuple[Judged, ...] = ()
    verdict: NeedVerdict = "not known"
    beaten_by: str | None = None
    why_not: str | None = None

    @property
    def rate(self) -> float:
        """Images/s of one device."""
        return self.crew.images_per_s / self.crew.devices

    @property
    def loaded_s(self) -> float | None:
        """The 99th percentile of calls under load."""
        latency = self.crew.latency
        return latency.p99_s if latency is not None and latency.under_load else None

    def verdict_on(self, what: What) -> NeedVerdict | None:
        """Of one need; None where it was not asked for."""
        return next((one.verdict for one in self.judged if one.what == what), None)


@dataclass(frozen=True)
class Choice:
    """All candidates, best first, and what follows.

    Attributes:
        need: What was asked for.
        model: Of which model.
        model_name: Its short name.
        candidates: Those that meet it first, then those of which it is not known.
        best: The first that meets it.
        nearest: Where none does, the one that comes nearest.
        verdict: The best that a candidate has.
        rivals: Those of which it is not known that would do with less than the best.
        notes: What holds for all of them.
        folders: Of each source, as it was given.
    """

    need: Need
    model: str
    model_name: str
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    nearest: Candidate | None
    verdict: NeedVerdict
    rivals: tuple[Candidate, ...]
    notes: tuple[str, ...]
    folders: tuple[tuple[str, str], ...]
