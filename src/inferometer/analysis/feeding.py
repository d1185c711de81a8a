"""Real images under load: what decoding alone gives, what the device alone gives, and both together."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from inferometer.analysis.findings import settings_text, subject
from inferometer.analysis.grouping import first_places, place_of
from inferometer.analysis.marks import is_marked, with_mark
from inferometer.analysis.rows import Finding, Summary, ThroughputRow
from inferometer.analysis.setup import Setup
from inferometer.analysis.wording import percent, plural, rate
from inferometer.records import Feeding, Record

__all__ = ["Bottleneck", "FeedingRow", "feeding_findings", "feeding_rows"]

Bottleneck = Literal["images", "device", "both"]

_ORDER: tuple[Bottleneck, ...] = ("device", "both", "images")


@dataclass(frozen=True)
class FeedingRow:
    """One setup with decoded images as its input: means over the repeats, images/s, fractions.

    Attributes:
        setup: Which one.
        together: Images/s with decoding.
        decode: That the same workers decode with nothing else to do, all ranks together; None unless every
            repeat has it.
        device: That the device gives on synthetic input in otherwise the same setup; None where it was not
            measured.
        wait_share: Share of the slots' time spent waiting for a ready batch.
        prepare_share: Share spent handing batches to the session.
        bottleneck: What bounds the rate, of the repeat in which images did most.
        workers: Threads that decode, of each rank.
        images: Different files.
        decoder: What decoded them.
        repeats: How many there are.
        mac_share: Least share of the MACs that ran at the precision asked for.
        record_ids: The trials behind it.
    """

    setup: Setup
    together: float
    decode: float | None
    device: float | None
    wait_share: float
    prepare_share: float
    bottleneck: Bottleneck
    workers: int
    images: int
    decoder: str
    repeats: int
    mac_share: float | None
    record_ids: tuple[str, ...]


def feeding_rows(
    throughput: Sequence[ThroughputRow], records: Mapping[str, Record]
) -> tuple[FeedingRow, ...]:
    """A row for each row of throughput whose trials say how they were fed.

    Args:
        throughput: In the order wanted.
        records: By id.
    """
    synthetic = {
        _but_input(row.setup): row.mean
        for row in throughput
        if row.mean is not None and records[row.record_ids[0]].trial.input == "synthetic"
    }
    found = []
    for row in throughput:
        fed = [one for name in row.record_ids if (one := records[name].feeding) is not None]
        if fed and row.mean is not None:
            found.append(_row(row, row.mean, fed, synthetic.get(_but_input(row.setup))))
    return tuple(found)


def feeding_findings(summary: Summary) -> tuple[Finding, ...]:
    """What bounds the rate on decoded images: per model, engine, device and precision, at the largest batch.

    Of several ranks at the largest number: it is one host that decodes for all of them.
    """
    told = first_places(row.setup for row in summary.feeding)
    most: dict[tuple[object, ...], FeedingRow] = {}
    for row in summary.feeding:
        kind = (place_of(row.setup), row.setup.precision, row.setup.variant)
        if row.setup in told and (kind not in most or _size(row) > _size(most[kind])):
            most[kind] = row
    by_place: dict[tuple[object, ...], list[FeedingRow]] = defaultdict(list)
    for row in most.values():
        by_place[place_of(row.setup)].append(row)
    return tuple(_finding(summary, row) for rows in by_place.values() for row in rows)


def _row(row: ThroughputRow, mean: float, fed: Sequence[Feeding], device: float | None) -> FeedingRow:
    last = fed[-1]
    return FeedingRow(
        setup=row.setup,
        together=mean,
        decode=_mean(one.images_per_s for one in fed),
        device=device,
        wait_share=statistics.fmean(one.wait_share for one in fed),
        prepare_share=statistics.fmean(one.prepare_share for one in fed),
        bottleneck=max((one.bottleneck for one in fed), key=_ORDER.index),
        workers=last.workers,
        images=last.images,
        decoder=last.decoder,
        repeats=len(row.repeats),
        mac_share=row.mac_share,
        record_ids=row.record_ids,
    )


def _but_input(setup: Setup) -> tuple[object, ...]:
    others = tuple(pair for pair in setup.variant if pair[0] != "input")
    return (place_of(setup), setup.precision, setup.batch, setup.ranks, setup.place, others)


def _size(row: FeedingRow) -> tuple[int, int]:
    return row.setup.ranks, row.setup.batch or 0


def _mean(values: Iterable[float | None]) -> float | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return statistics.fmean(known) if known and len(known) == len(found) else None


def _finding(summary: Summary, row: FeedingRow) -> Finding:
    setup = row.setup
    bound = {
        "images": "decoding bounds it",
        "device": "the device bounds it, and decoding keeps up",
        "both": "decoding and the device both bound it",
    }[row.bottleneck]
    if row.bottleneck == "both" and setup.device == "cpu" and row.decode is not None:
        bound = (
            f"decoding does {percent(row.together / row.decode, 0)} of what it can alone, on the model's own"
            " processors"
        )
    known = []
    if row.device is not None:
        known.append(f"the device alone does {rate(row.device)}")
    threads = plural(row.workers * setup.ranks, "thread")
    if row.decode is not None:
        known.append(
            f"{threads} alone {'decodes' if row.workers * setup.ranks == 1 else 'decode'} {rate(row.decode)}"
        )
    beside = f" ({', '.join(known)})" if known else ""
    text = (
        f"{subject(summary, setup)}{settings_text(_plain(setup))} on decoded images, in"
        f" {with_mark(setup.precision.upper(), row.mac_share)} at batch {setup.batch}:"
        f" {rate(row.together)} images/s{beside}: {bound}; requests wait {percent(row.wait_share, 0)} of"
        " their time for images."
    )
    figure = {"images": "decoding", "device": "device", "both": "both"}[row.bottleneck]
    return Finding("feeding", figure, text, row.record_ids, marked=is_marked(row.mac_share))


def _plain(setup: Setup) -> Setup:
    """Without the setting that the sentence tells anyway."""
    return replace(setup, variant=tuple(pair for pair in setup.variant if pair[0] != "input"))
