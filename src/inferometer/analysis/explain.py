"""Why a precision is or is not faster: what a store's records and profiles show, as figures.

Profiles are of one call, read once per precision at the study's largest batch. Their seconds are shown as
they are: nothing is scaled to the time that was measured, and what they leave out is said.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inferometer.analysis.explain_layers import Layer, PairedLayers, layers_of, paired
from inferometer.analysis.explain_rows import (
    LOSES,
    PARTS,
    AtBatch,
    Bound,
    Explanation,
    Part,
    PartName,
    Side,
    Single,
)
from inferometer.analysis.grouping import PRECISION_ORDER, common_settings, comparable, of_one_rank
from inferometer.analysis.marks import is_marked
from inferometer.analysis.ratios import BASELINE, speed_ups
from inferometer.analysis.rows import Setup, SpeedUp, Summary, ThroughputRow
from inferometer.analysis.speed import asked_share
from inferometer.records import Precision, Record
from inferometer.store import SidecarMissing, sidecar_of

__all__ = ["Layers", "explain", "parts_of"]

Layers = Callable[[Record], Any | None]
"""Gives the JSON of a record's layers sidecar; None when it has none. May raise `SidecarMissing`."""


def explain(
    summary: Summary, records: Sequence[Record], layers: Layers, models: Sequence[str] | None = None
) -> tuple[tuple[Explanation, ...], tuple[Single, ...]]:
    """Every precision of every setup against the one that it must beat, and setups with nothing to compare.

    Args:
        summary: Of the same records.
        records: The final ones.
        layers: Gives their layers.
        models: As the records name them; all of them if None.

    Raises:
        StoreError: A layers sidecar is not of the form that trials write.
    """
    by_id = {record.id: record for record in records}
    groups: dict[tuple[object, ...], list[ThroughputRow]] = defaultdict(list)
    rated = [row for row in summary.throughput if row.repeats and min(row.repeats) > 0]
    told = of_one_rank(row.setup for row in rated)  # what runs on one device does not depend on the others
    for row in rated:
        if row.setup in told and (models is None or row.setup.model in models):
            at = row.setup
            groups[at.model, at.engine, at.device, at.machine, at.place, common_settings(at)].append(row)
    gains = {
        (gain.setup, gain.baseline): gain
        for baseline in dict.fromkeys(row.setup.precision for row in summary.throughput)
        if baseline != "int8"
        for gain in (
            summary.speed_ups if baseline == BASELINE else speed_ups(summary.throughput, by_id, baseline)
        )
    }
    source = _Source(by_id, layers)
    found: list[Explanation] = []
    singles: list[Single] = []
    for rows in groups.values():
        name = summary.names[rows[0].setup.model]
        machine = _machine_words(summary, rows[0].setup)
        made = [
            replace(one, machine=machine)
            for members in reversed(_by_precision(rows).values())  # INT8 first
            if (one := _explained(name, members, rows, gains, source)) is not None
        ]
        found += made
        singles += _left(Single(name, rows[0].setup, *_precisions(rows), machine=machine), rows, made)
    return tuple(found), tuple(singles)


def parts_of(
    base: Sequence[Layer], own: Sequence[Layer], pairs: Sequence[PairedLayers], asked: Precision
) -> tuple[Part, ...]:
    """The seconds of both profiles, each layer in one part; parts without a layer are left out.

    Args:
        base: The baseline's profile.
        own: That of the precision ``asked``.
        pairs: The layers that are the same in both.
        asked: The precision asked for.
    """
    of: dict[int, PartName] = {}
    for pair in pairs:
        if pair.own.macs is None or pair.base.macs is None:
            of[id(pair.own)] = of[id(pair.base)] = "unknown"
        elif pair.own.multiplies:
            at: PartName = "at_precision" if pair.own.precision == asked else "otherwise"
            of[id(pair.own)] = of[id(pair.base)] = at
    sides: list[dict[PartName, list[Layer]]] = [defaultdict(list), defaultdict(list)]
    for side, members in zip(sides, (base, own), strict=True):
        for layer in members:
            side[of.get(id(layer)) or _alone(layer)].append(layer)

    def part(name: PartName) -> Part:
        left, right = (tuple(side[name]) for side in sides)
        base_s, own_s = _sum(left), _sum(right)
        return Part(name, base_s, own_s, own_s - base_s, left, right)

    return tuple(part(name) for name in PARTS if any(side[name] for side in sides))


def _precisions(
    rows: Sequence[ThroughputRow],
) -> tuple[tuple[Precision, ...], dict[Precision, tuple[int, ...]]]:
    """The precisions of some rows, and the batches at which each ran."""
    batches: dict[Precision, set[int]] = defaultdict(set)
    for row in rows:
        batches[row.setup.precision].add(row.setup.batch or 0)
    return tuple(batches), {precision: tuple(sorted(found)) for precision, found in batches.items()}


def _left(whole: Single, rows: Sequence[ThroughputRow], made: Sequence[Explanation]) -> tuple[Single, ...]:
    """What of a group no explanation holds: all of it, or single precisions."""
    if not made:
        return (whole,)
    held = {(one.own.setup.precision, one.own.setup.variant) for one in made}
    floats = {one.base.setup.precision for one in made} | {
        gain.baseline for one in made for gain in one.others
    }
    return tuple(
        replace(
            whole,
            setup=members[0].setup,
            left_out=members[0].setup.precision,
            batches={**whole.batches, **_precisions(members)[1]},
        )
        for key, members in _by_precision(rows).items()
        if key not in held and members[0].setup.precision not in floats
    )


def _machine_words(summary: Summary, setup: Setup) -> str | None:
    """Which machine, with the number that tables give it; None where there is but one."""
    if len(summary.machines) < 2:
        return None
    return f"machine {setup.machine + 1} ({summary.machines[setup.machine].title})"


def _alone(layer: Layer) -> PartName:
    if layer.multiplies:
        return "unmatched"
    if layer.role == "quantize":
        return "quantize"
    if layer.role == "reorder":
        return "reorder"
    return "unknown" if layer.macs is None else "no_macs"


@dataclass(frozen=True)
class _Source:
    """The records by id, and their layers."""

    records: Mapping[str, Record]
    layers: Layers

    def side(self, row: ThroughputRow) -> Side:
        """One row's side: of the trial with the profile, or of the first repeat."""
        ran = sorted(
            (self.records[one] for one in row.record_ids if self.records[one].throughput is not None),
            key=lambda record: record.trial.repeat,
        )
        least = _least_ran(ran)
        why = "what ran was not kept with its trials"
        for record in ran:
            try:
                content = self.layers(record)
            except SidecarMissing:
                sidecar = sidecar_of(record, ".layers.json")
                named = sidecar.path if sidecar else "the file of its layers"
                why = f"{named} is missing from the study's folder"
                continue
            if content is not None:
                profile = layers_of(content, f"layers of trial {record.id}")
                return _side(row, record, least, *_usable(content, profile))
        return _side(row, ran[0], least, None, why)


def _least_ran(records: Sequence[Record]) -> Mapping[str, float] | None:
    """What ran in the repeat in which least ran as asked: what rows and their marks go by."""
    known = [(share, record) for record in records if (share := asked_share(record)) is not None]
    return min(known, key=lambda one: one[0])[1].precision_mac_share if known else None


def _side(
    row: ThroughputRow,
    record: Record,
    ran: Mapping[str, float] | None,
    profile: tuple[Layer, ...] | None,
    why: str | None,
) -> Side:
    rate = record.throughput
    assert rate is not None, "rows with repeats are of records with a rate"
    return Side(
        setup=row.setup,
        rate=statistics.geometric_mean(row.repeats),
        ran=ran,
        mac_share=row.mac_share,
        record_id=record.id,
        in_flight=rate.in_flight,
        call_s=(row.setup.batch or 1) * rate.in_flight / statistics.geometric_mean(row.repeats),
        profile_s=_sum(profile) if profile else None,
        layers=profile or (),
        roles_told=bool(profile) and all(layer.role is not None for layer in profile or ()),
        session=record.session,
        why_no_profile=why,
    )


def _usable(content: Any, profile: tuple[Layer, ...] | None) -> tuple[tuple[Layer, ...] | None, str | None]:
    """The profile, or why there is none."""
    if profile is None:
        timed_elsewhere = content.get("profile") is None
        return None, (
            "layers are timed at the largest batch of a study alone"
            if timed_elsewhere
            else "the engine has no profile of its layers"
        )
    # A clock too coarse for the layers: nothing can be shared out, and nothing divided by it.
    return (profile, None) if _sum(profile) > 0 else (None, "its times are all 0")


def _explained(
    name: str,
    own_rows: Sequence[ThroughputRow],
    rows: Sequence[ThroughputRow],
    gains: Mapping[tuple[Setup, Precision], SpeedUp],
    source: _Source,
) -> Explanation | None:
    """One precision (and calibration) of a group; None when nothing that it must beat ran at its batches."""
    precision = own_rows[0].setup.precision
    if precision == BASELINE:
        return None
    floats = [one for one in PRECISION_ORDER if one not in ("int8", precision)]
    rivals = [row for row in rows if row.setup.precision in (floats if precision == "int8" else [BASELINE])]
    points: list[tuple[ThroughputRow, list[ThroughputRow]]] = []
    for row in own_rows:
        there = [rival for rival in rivals if comparable(row.setup, rival.setup)]
        there = [rival for rival in there if (row.setup, rival.setup.precision) in gains]
        if there:
            points.append((row, sorted(there, key=_as_rival)))
    if not points:
        return None
    points.sort(key=lambda point: -(point[0].setup.batch or 0))
    sides = [(source.side(row), source.side(there[0])) for row, there in points]
    place = next(
        (
            at
            for at, (own, base) in enumerate(sides)
            if own.profile_s is not None and base.profile_s is not None
        ),
        0,
    )
    (row, there), (own, base) = points[place], sides[place]
    against = there[0].setup.precision
    return _assembled(
        name,
        gains[row.setup, against],
        tuple(gains[row.setup, other.setup.precision] for other in there[1:]),
        (base, own),
        tuple(
            AtBatch(one.setup.batch or 0, gain.ratio, gain.verdict)
            for one in sorted(own_rows, key=lambda one: one.setup.batch or 0)
            if (gain := gains.get((one.setup, against))) is not None
        ),
        source.records[own.record_id],
    )


def _as_rival(row: ThroughputRow) -> tuple[bool, float]:
    """Sort key: those that ran as asked first, then the fastest."""
    return is_marked(row.mac_share), -statistics.geometric_mean(row.repeats)


def _assembled(
    name: str,
    gain: SpeedUp,
    others: tuple[SpeedUp, ...],
    sides: tuple[Side, Side],
    batches: tuple[AtBatch, ...],
    record: Record,
) -> Explanation:
    base, own = sides
    both = base.profile_s is not None and own.profile_s is not None
    pairs = paired(base.layers, own.layers) if both else ()
    slower = [pair for pair in pairs if pair.own.seconds >= LOSES * pair.base.seconds > 0]
    slower.sort(key=lambda pair: pair.base.seconds - pair.own.seconds)
    parts = parts_of(base.layers, own.layers, pairs, own.setup.precision) if both else ()
    return Explanation(
        name=name,
        gain=gain,
        others=others,
        base=base,
        own=own,
        parts=parts,
        pairs=pairs,
        slower=tuple(slower),
        bound=_bound(base, own) if both else None,
        batches=batches,
        environment=record.environment,
        weight_bits=record.calibration.weight_bits if record.calibration else None,
        calibration_source=record.calibration.source if record.calibration else None,
    )


def _bound(base: Side, own: Side) -> Bound | None:
    """What stays bounds the gain. Source: G. Amdahl, AFIPS Spring Joint Computer Conference (1967)."""
    rest = [
        layer
        for layer in own.layers
        if _alone(layer) != "unknown" and not (layer.multiplies and layer.precision == own.setup.precision)
    ]
    seconds = _sum(rest)
    if base.profile_s is None or seconds <= 0 or not any(layer.multiplies for layer in own.layers):
        return None
    return Bound(seconds, base.profile_s / seconds)


def _by_precision(rows: Sequence[ThroughputRow]) -> dict[tuple[object, ...], list[ThroughputRow]]:
    found: dict[tuple[object, ...], list[ThroughputRow]] = defaultdict(list)
    for row in rows:
        found[row.setup.precision, row.setup.variant].append(row)
    return found


def _sum(layers: Sequence[Layer]) -> float:
    return sum(layer.seconds for layer in layers)
