"""The frozen rows of a choice: what is needed, what there is, and what may be said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from inferometer.analysis.rows import Summary
from inferometer.analysis.setup import Setup

__all__ = ["Candidate", "Choice", "Judged", "Need", "NeedVerdict", "Source"]

NeedVerdict = Literal["meets", "not known", "fails"]


@dataclass(frozen=True)
class Source:
    """One store: the name that people know it by, its summary, and each record's copies and input by id."""

    name: str
    summary: Summary
    settings: Mapping[str, tuple[str, str]]


@dataclass(frozen=True)
class Need:
    """What is asked for; None: no matter.

    Attributes:
        images_per_s: At least, of all devices together.
        p99_s: At most, of a call under load.
        watts: Of all devices under load, at most.
        j_per_image: Net of idle, at most.
        max_drop: Of top-1 against FP32, at most (a fraction).
        min_top1: At least (a fraction).
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
    """One need, whether a candidate meets it, and what that rests on."""

    what: str
    verdict: NeedVerdict
    evidence: str


@dataclass(frozen=True)
class Candidate:
    """One setup as a unit that can be bought several times.

    Attributes:
        source: The store's name.
        machine: In one line.
        setup: Which one.
        name: The model's short name.
        devices: In one unit.
        images_per_s: Of a unit, mean of the repeats.
        least_images_per_s: The lower end of its interval between repeats; the mean with one repeat.
        p99_s: Of a call under this load, of the worst repeat; None unless every repeat tells it.
        load_w: Of a unit under load, within ``boundary``.
        boundary: What the watts cover.
        j_per_image: Net of idle.
        most_j_per_image: The upper end of its interval.
        top1: On the same engine, device and precision (a fraction).
        price: Of a unit.
        units: How many the rate wants; None: it cannot be told.
        cautions: What to know before believing it.
        judged: Each need.
        verdict: Of all needs together.
        beaten_by: Another that is no worse in anything that this one tells, and better in something.
        record_ids: The trials behind it.
    """

    source: str
    machine: str
    setup: Setup
    name: str
    devices: int
    images_per_s: float
    least_images_per_s: float
    p99_s: float | None
    load_w: float | None
    boundary: str | None
    j_per_image: float | None
    most_j_per_image: float | None
    top1: float | None
    price: float | None
    units: int | None
    cautions: tuple[str, ...]
    judged: tuple[Judged, ...]
    verdict: NeedVerdict
    beaten_by: str | None
    record_ids: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """All candidates, best first, and what follows.

    Attributes:
        need: What was asked for.
        model: Of which model.
        candidates: Those that meet it first, then those of which it is not known.
        best: The first that meets it.
        nearest: Where none does, the one that comes nearest.
        verdict: The best that a candidate has.
    """

    need: Need
    model: str
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    nearest: Candidate | None
    verdict: NeedVerdict
