"""One form for what a store has measured and what a published study states: points.

Example::

    from inferometer import published
    from inferometer.analysis.comparison.points import study_source

    for point in study_source(published.load("dell-2017-07")).points:
        print(point.device, point.model, point.batch, point.count, point.metric, point.value)

    tesla-p40 alexnet 128 1 images_per_s 1.0
    tesla-p40 alexnet 128 2 images_per_s 2.0
    ...

A point of a study whose figures are relative keeps the place of the figure that its value is a multiple of in
``relative_to``: such a value has no unit, and compares with those that share that place alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from inferometer.analysis.correctness import Top5
from inferometer.analysis.grouping import first_places
from inferometer.analysis.marks import is_marked
from inferometer.analysis.power import PowerRow, Span, why_no_ratio
from inferometer.analysis.rows import LatencyRow, Summary, ThroughputRow
from inferometer.analysis.setup import Setup
from inferometer.analysis.summary import summarise
from inferometer.published import PublishedStudy
from inferometer.published.points import Coordinates, PublishedPoint
from inferometer.records import Record

__all__ = ["LOWER_IS_BETTER", "Metric", "Point", "Source", "gpus_of", "store_source", "study_source"]

Metric = Literal[
    "images_per_s",
    "images_per_s_per_device",
    "latency_p50_s",
    "latency_p99_s",
    "images_per_s_per_w",
    "j_per_image",
    "top1",
    "top5",
]
"""What a point's value is; the unit is in the name, ``top1`` and ``top5`` are fractions."""

LOWER_IS_BETTER: frozenset[Metric] = frozenset({"latency_p50_s", "latency_p99_s", "j_per_image"})

HELD_BACK = 0.05
"""Share of the load from which a device counts as throttled (a fraction). Source: chosen."""


@dataclass(frozen=True)
class Point:
    """One figure, and where it stands.

    Attributes:
        source: Label of the store or study.
        machine: The machine in words; of a study what it says of its platform, None where it says nothing.
        machine_key: Tells machines apart; None for a study, whose machine is in no store.
        device: The accelerator: of a study by its name in the specifications (``tesla-p4``); of a store the
            GPU's own name where the records tell it, else as the engine names it (``cpu``).
        engine: Its name; None where a study does not say.
        model: The network, as the records or the study name it.
        precision: ``fp32``, ``int8``, ...
        batch: Images per call of each device; None for accuracy and where a study states none.
        count: Devices at work at once; None for accuracy.
        metric: What the value is.
        value: Mean of the repeats, or their median for latency; None unless ``status`` is ``ok``.
        repeats: Each repeat's own value, for intervals between repeats; empty for published figures, for
            power (see ``interval``) and for accuracy.
        interval: 95 % of ``value``; None where it is not known.
        runs: How many repeats there are behind it; 0 for a published figure.
        status: As of a record.
        reason: Why there is no value.
        relative_to: The published figure that the value is a multiple of; None: the value is absolute.
        record_ids: The trials behind it; empty for a published figure.
        section: Where a published figure lies in its study's file; None for records.
        settings: (name, value) of what tells trials apart that differ in nothing above.
        boundary: What a figure of power covers.
        meter: What read the power, and how a reading comes about.
        mac_share: Least share of the multiply-accumulates that ran at the precision asked for.
        marks: What to know of the figure: ``low MAC share``, ``throttled: ...``.
    """

    source: str
    machine: str | None
    machine_key: str | None
    device: str
    engine: str | None
    model: str
    precision: str
    batch: int | None
    count: int | None
    metric: Metric
    value: float | None
    repeats: tuple[float, ...] = ()
    interval: Span | None = None
    runs: int = 0
    status: str = "ok"
    reason: str | None = None
    relative_to: Coordinates | None = None
    record_ids: tuple[str, ...] = ()
    section: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    boundary: str | None = None
    meter: str | None = None
    mac_share: float | None = None
    marks: tuple[str, ...] = ()

    @property
    def evidence(self) -> tuple[str, ...]:
        """What the figure rests on, each with its source: record ids, or the keys of the study's file."""
        return told_ids(self.source, (self.section,) if self.section is not None else self.record_ids)


def told_ids(source: str, ids: Iterable[str]) -> tuple[str, ...]:
    """Ids with the source that holds them: two stores of one study have the same."""
    return tuple(f"{source}: {one}" for one in ids)


@dataclass(frozen=True)
class Source:
    """A store or a published study.

    Attributes:
        label: What it is called here.
        points: All its figures.
        study: The published study; None for a store.
        summary: What a report of the store shows; None for a study.
        records: Of the store, by id.
        top5: Gives the per-image outcome of one of its accuracy records.
    """

    label: str
    points: tuple[Point, ...]
    study: PublishedStudy | None = None
    summary: Summary | None = None
    records: Mapping[str, Record] = field(default_factory=dict)
    top5: Top5 = lambda record: None

    def of(self, point: Point) -> list[Record]:
        """The records behind a point that ended ok."""
        return [one for name in point.record_ids if (one := self.records[name]).status == "ok"]


def study_source(study: PublishedStudy, label: str | None = None) -> Source:
    """A published study's figures as points.

    Args:
        study: From ``inferometer.published.load``.
        label: What it is called; its name by default.
    """
    name = label or study.name
    engine = _engine_name(study.engine or study.platform)
    return Source(name, tuple(_published(name, study, engine, point) for point in study.points), study=study)


def store_source(label: str, records: Sequence[Record], top5: Top5) -> Source:
    """A store's figures as points.

    Args:
        label: What the store is called.
        records: The final record of each trial, in the order of the store.
        top5: Gives the per-image outcome of an accuracy record, or None.
    """
    summary = summarise(records, top5)
    known = {record.id: record for record in records}
    made = (
        *_throughput(label, summary, known),
        *_latency(label, summary, known),
        *_power(label, summary, known),
        *_accuracy(label, summary, known),
    )
    return Source(label, made, summary=summary, records=known, top5=top5)


def gpus_of(record: Record) -> list[Mapping[str, Any]]:
    """What the environment tells of the GPUs that a trial ran on.

    NVML's order is not CUDA's: where no rank tells its UUID, they are all GPUs of the machine.
    """
    gpus = list((record.environment or {}).get("gpus") or ())
    uuids = {rank.uuid for rank in record.ranks if rank.uuid}
    return [one for one in gpus if not uuids or one.get("uuid") in uuids]


def _published(name: str, study: PublishedStudy, engine: str | None, point: PublishedPoint) -> Point:
    return Point(
        source=name,
        machine=study.platform,
        machine_key=None,
        device=point.accelerator,
        engine=engine,
        model=point.model,
        precision=point.precision,
        batch=point.batch,
        count=point.count,
        metric=point.metric,
        value=point.value,
        status=point.status,
        reason=None if point.value is not None else "the study reports that it ran out of memory",
        relative_to=point.relative_to,
        section=point.section,
        # A benchmark's rounds are years apart; a figure of one is not a repeat of another's.
        settings=tuple(sorted(point.notes.items())),
    )


def _engine_name(text: str | None) -> str | None:
    """The engine that a study's own words name, as our plug-ins are called."""
    found = re.search(r"tensorrt|onnx ?runtime|openvino|pytorch|caffe", (text or "").lower())
    if found is None:
        return None
    return {"pytorch": "torch", "onnx runtime": "onnxruntime"}.get(found[0], found[0])


def _throughput(label: str, summary: Summary, records: Mapping[str, Record]) -> Iterator[Point]:
    told = first_places(row.setup for row in summary.throughput)
    for row in summary.throughput:
        if row.setup not in told:
            continue
        yield Point(
            **_place(label, summary, row.setup, row.record_ids, records),
            metric="images_per_s",
            value=row.mean,
            repeats=row.repeats,
            interval=row.interval if row.ci_kind == "between_repeats" else None,
            runs=len(row.repeats),
            status=row.status,
            reason=row.reason,
            mac_share=row.mac_share,
            marks=(*_low(row.mac_share), *_throttled(row, summary.power)),
        )


def _latency(label: str, summary: Summary, records: Mapping[str, Record]) -> Iterator[Point]:
    told = first_places(row.setup for row in summary.latency)
    names: tuple[tuple[Metric, Literal["p50", "p99"]], ...] = (
        ("latency_p50_s", "p50"),
        ("latency_p99_s", "p99"),
    )
    for row in summary.latency:
        for metric, quantile in names if row.setup in told else ():
            yield _latency_point(
                _place(label, summary, row.setup, row.record_ids, records), row, metric, quantile
            )


def _latency_point(
    place: Mapping[str, Any], row: LatencyRow, metric: Metric, quantile: Literal["p50", "p99"]
) -> Point:
    value = getattr(row, quantile)
    values = tuple(own for one in row.repeats if (own := getattr(one, quantile)) is not None)
    reason = row.reason if not row.repeats else f"too few calls for {quantile}"
    return Point(
        **place,
        metric=metric,
        value=value,
        repeats=values if value is not None else (),
        runs=len(row.repeats),
        status=row.status if value is None and not row.repeats else "ok",
        reason=None if value is not None else reason,
        mac_share=row.mac_share,
        marks=_low(row.mac_share),
    )


def _power(label: str, summary: Summary, records: Mapping[str, Record]) -> Iterator[Point]:
    rows = [row for row in summary.power if row.first and row.boundary is not None]
    told = first_places(row.setup for row in rows)
    for row in rows:
        if row.setup not in told:
            continue
        common = dict(
            **_place(label, summary, row.setup, row.record_ids, records),
            runs=row.repeats,
            reason=why_no_ratio(row),
            boundary=row.boundary,
            meter=f"{row.meter}: {row.semantics}",
            mac_share=row.mac_share,
            marks=(*_low(row.mac_share), *_held_back(row)),
        )
        yield Point(
            **common, metric="images_per_s_per_w", value=row.efficiency, interval=row.efficiency_interval
        )
        yield Point(**common, metric="j_per_image", value=row.j_per_image, interval=row.j_interval)


def _accuracy(label: str, summary: Summary, records: Mapping[str, Record]) -> Iterator[Point]:
    names: tuple[Literal["top1", "top5"], ...] = ("top1", "top5")
    for row in summary.accuracy:
        place = _place(label, summary, row.setup, (row.record_id,), records) | {"batch": None, "count": None}
        for metric in names:
            found = getattr(row, metric)
            if found is None and metric == "top5" and row.top1 is not None:
                continue  # fewer than six classes have none
            yield Point(
                **place,
                metric=metric,
                value=found.value if found else None,
                interval=(found.lo, found.hi) if found else None,
                runs=1,
                status=row.status,
                reason=row.reason,
                mac_share=row.mac_share,
                marks=_low(row.mac_share),
            )


def _place(
    label: str, summary: Summary, setup: Setup, ids: Sequence[str], records: Mapping[str, Record]
) -> dict[str, Any]:
    machine = summary.machines[setup.machine]
    return {
        "source": label,
        "machine": machine.title,
        "machine_key": machine.key,
        "device": _device(setup, [records[name] for name in ids]),
        "engine": setup.engine,
        "model": setup.model,
        "precision": setup.precision,
        "batch": setup.batch,
        "count": setup.ranks,
        "record_ids": tuple(ids),
        "settings": setup.variant,
    }


def _device(setup: Setup, records: Sequence[Record]) -> str:
    """A GPU's own name, so that ``cuda:0`` of two machines are told apart; else the engine's name for it."""
    if setup.device.partition(":")[0] != "cuda":
        return setup.device
    for record in records:
        names = {str(one["name"]) for one in gpus_of(record) if one.get("name")}
        if len(names) == 1:
            return names.pop()
    return setup.device


def _low(share: float | None) -> tuple[str, ...]:
    return ("low MAC share",) if is_marked(share) else ()


def _throttled(row: ThroughputRow, power: Sequence[PowerRow]) -> tuple[str, ...]:
    """What the meter of the same trials tells of the clocks."""
    return next((_held_back(one) for one in power if one.first and one.setup == row.setup), ())


def _held_back(row: PowerRow) -> tuple[str, ...]:
    found = []
    if row.capped is not None and row.capped >= HELD_BACK:
        found.append("throttled: power limit")
    if row.slowed is not None and row.slowed >= HELD_BACK:
        found.append(f"throttled: {', '.join(row.slowed_by)}")
    return tuple(found)
