"""What some stores hold, as candidates of a choice, and how many devices of each a rate wants (pure)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from inferometer.analysis.choose_cautions import crew_cautions, plan_cautions
from inferometer.analysis.choose_rows import Candidate, Crew, Latency, Need, Scale, Source, Watts
from inferometer.analysis.findings import settings_text
from inferometer.analysis.grouping import first_places, place_of
from inferometer.analysis.marks import with_mark
from inferometer.analysis.rows import AccuracyRow, DifferenceRow, LatencyRepeat, Summary, ThroughputRow
from inferometer.analysis.setup import Setup
from inferometer.records import Latency as Calls
from inferometer.records import Record

__all__ = ["Plan", "Stamped", "candidates", "difference_of", "plan"]

Stamped = Callable[[str], Sequence[Calls]]
"""How long the calls of a throughput trial took, rank by rank, by the record's id; empty: not kept."""


@dataclass(frozen=True)
class Plan:
    """So many devices, the crew whose figures tell of them, and what they give at least."""

    crew: Crew
    devices: int | None
    scale: Scale
    least_images_per_s: float | None


def candidates(
    source: Source, model: str, need: Need, stamped: Stamped, price: float | None
) -> Iterable[Candidate]:
    """Every setup of one device that gave a rate, with as many devices as the need wants.

    Args:
        source: The store.
        model: As its records name it.
        need: What is asked for.
        stamped: The calls of its throughput trials.
        price: Of a device.
    """
    rated = [row for row in source.summary.throughput if row.mean is not None and row.setup.model == model]
    told = first_places(row.setup for row in rated)
    crews: dict[Setup, list[ThroughputRow]] = defaultdict(list)
    for row in rated:
        if row.setup in told:
            crews[_of_one(row.setup)].append(row)
    for setup, rows in crews.items():
        yield _candidate(source, setup, sorted(rows, key=lambda row: row.setup.ranks), need, stamped, price)


def plan(crews: Sequence[Crew], wanted: float | None) -> Plan:
    """The fewest devices whose cautious rate reaches the one wanted.

    Between two numbers that were measured, each device is taken to give what one of the larger crew does;
    beyond the largest, what one of that does.

    Args:
        crews: By number of devices, ascending.
        wanted: Images/s; None: the smallest crew will do.
    """
    if wanted is None:
        return Plan(crews[0], crews[0].devices, "measured", crews[0].least_images_per_s)
    before = 0
    for crew in crews:
        devices = max(_fewest(wanted, crew), before + 1)
        if devices <= crew.devices:
            scale: Scale = "measured" if devices == crew.devices else "between"
            return Plan(crew, int(devices), scale, _least(crew) * devices)
        before = crew.devices
    last, devices = crews[-1], _fewest(wanted, crews[-1])
    if math.isinf(devices):
        return Plan(last, None, "linear", None)
    return Plan(last, int(devices), "linear", _least(last) * devices)


def difference_of(summary: Summary, setup: Setup) -> DifferenceRow | None:
    """Its top-1 against FP32's on the same images, where there is one such row."""
    found = [
        one
        for one in summary.differences
        if one.metric == "top1"
        and place_of(one.setup_b) == place_of(setup)
        and one.setup_b.precision == setup.precision
        and one.setup_a.precision == "fp32"
    ]
    return found[0] if len(found) == 1 else None


def _of_one(setup: Setup) -> Setup:
    return replace(setup, ranks=1, place=None)


def _least(crew: Crew) -> float:
    return crew.least_images_per_s / crew.devices


def _fewest(wanted: float, crew: Crew) -> float:
    """Rounded before it is rounded up: 0.3 / 0.1 is a hair over or under 3."""
    each = _least(crew)
    return math.ceil(round(wanted / each, 9)) if each > 0 else math.inf


def _candidate(
    source: Source,
    setup: Setup,
    rows: Sequence[ThroughputRow],
    need: Need,
    stamped: Stamped,
    price: float | None,
) -> Candidate:
    summary = source.summary
    by_id = {record.id: record for record in source.records if record.status == "ok"}
    crews = tuple(_crew(summary, row, by_id, stamped) for row in rows)
    chosen = plan(crews, need.images_per_s)
    crew, devices = chosen.crew, chosen.devices
    row = rows[crews.index(crew)]
    ran = [by_id[name] for name in crew.record_ids]
    supply = _supply(crew, devices)
    scored = _scored(summary, setup)
    top1 = scored.top1 if scored else None
    difference = difference_of(summary, setup)
    return Candidate(
        source=source.name,
        machine=summary.machines[setup.machine].title if summary.machines else "not known",
        setup=setup,
        title=_title(summary, row),
        name=_title(summary, row),
        mac_share=row.mac_share,
        crews=crews,
        crew=crew,
        devices=devices,
        scale=chosen.scale,
        least_images_per_s=chosen.least_images_per_s,
        per_machine=_per_machine(setup, ran),
        load_w=supply[0] if supply else None,
        boundary=supply[1] if supply else None,
        top1=top1.value if top1 else None,
        top1_interval=(top1.lo, top1.hi) if top1 else None,
        loss=-difference.delta if difference else None,
        price=None if price is None or devices is None else price * devices,
        hard=_hard(setup, ran),
        cautions=(*plan_cautions(crews, chosen.scale, crew, devices, setup, need), *crew_cautions(row, ran)),
    )


def _crew(summary: Summary, row: ThroughputRow, records: dict[str, Record], stamped: Stamped) -> Crew:
    setup = row.setup
    ran = tuple(name for name in row.record_ids if name in records and records[name].throughput is not None)
    power = [one for one in summary.power if one.setup == setup]
    first = next((one for one in power if one.first), None)
    scaling = next((one for one in summary.scaling if one.setup == setup), None)
    return Crew(
        devices=setup.ranks,
        setup=setup,
        images_per_s=row.mean or 0.0,
        interval=row.interval,
        repeats=len(row.repeats),
        efficiency=scaling.efficiency if scaling else None,
        latency=_latency(summary, setup, [stamped(name) for name in ran]),
        watts=tuple(
            Watts(
                one.boundary,
                one.load_w,
                one.load_w + (one.net_interval[1] - one.net_w if one.net_interval and one.net_w else 0.0),
                one.gain_error,
                len(one.parts),
            )
            for one in power
            if one.boundary is not None and one.load_w is not None
        ),
        boundary=first.boundary if first else None,
        j_per_image=first.j_per_image if first else None,
        j_interval=first.j_interval if first else None,
        record_ids=ran,
    )


def _latency(summary: Summary, setup: Setup, stamped: Sequence[Sequence[Calls]]) -> Latency | None:
    """Of the calls under load where every repeat kept them, else of one request at a time; the worst."""
    if stamped and all(stamped):
        return _worst([one for ranks in stamped for one in ranks], under_load=True)
    alone = next((one for one in summary.latency if _of_one(one.setup) == _of_one(setup)), None)
    return _worst(alone.repeats, under_load=False) if alone and alone.repeats else None


def _worst(several: Sequence[Calls | LatencyRepeat], *, under_load: bool) -> Latency:
    p99 = [one.p99 for one in several]
    return Latency(
        p99_s=None if None in p99 else max(one for one in p99 if one is not None),
        least_s=max(next((q for q in (one.p99, one.p95, one.p90, one.p50) if q), one.min) for one in several),
        calls=min(one.n for one in several),
        under_load=under_load,
    )


def _supply(crew: Crew, devices: int | None) -> tuple[float, str] | None:
    """The watts of so many devices, and their boundary: of several the one with most."""
    if devices is None:
        return None
    return max(
        ((one.load_w * one.times(crew.devices, devices), one.boundary) for one in crew.watts), default=None
    )


def _scored(summary: Summary, setup: Setup) -> AccuracyRow | None:
    """The accuracy of the same model, engine, device and precision, where there is one."""
    found = [
        one
        for one in summary.accuracy
        if place_of(one.setup) == place_of(setup)
        and one.setup.precision == setup.precision
        and one.top1 is not None
    ]
    return found[0] if len(found) == 1 else None


def _per_machine(setup: Setup, ran: Sequence[Record]) -> int | None:
    """Devices in one machine: its GPUs, or the most ranks that one host had; a CPU is one."""
    hosts = [Counter(rank.host for rank in record.ranks) for record in ran]
    together = max((number for one in hosts for number in one.values()), default=1)
    if setup.device == "cpu":
        return together
    gpus = next((record.environment.get("gpus") for record in ran if record.environment), None)
    return max(len(gpus), together) if isinstance(gpus, list | tuple) and gpus else None


def _hard(setup: Setup, ran: Sequence[Record]) -> tuple[str, ...]:
    """What every trial included, and others may leave out."""
    copies = setup.device == "cpu" or all(record.trial.copies == "included" for record in ran)
    decoding = all(record.trial.input == "images" for record in ran)
    return (*["copies"] * copies, *["decoding"] * decoding)


def _title(summary: Summary, row: ThroughputRow) -> str:
    setup = _of_one(row.setup)
    precision = with_mark(setup.precision.upper(), row.mac_share)
    where = f" on machine {setup.machine + 1}" if len(summary.machines) > 1 else ""
    return f"{setup.engine} {setup.device} {precision} batch {setup.batch}{where}{settings_text(setup)}"
