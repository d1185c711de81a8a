"""How much faster a precision is than fp32 in the same setup, and what may be said of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from inferometer.analysis.grouping import comparable
from inferometer.analysis.held import held, widened
from inferometer.analysis.probe import change_between
from inferometer.analysis.rows import SpeedUp, SpeedVerdict, ThroughputRow
from inferometer.records import Precision, Record
from inferometer.stats import holm, ratio_interval

__all__ = ["BASELINE", "SIGNIFICANT", "speed_ups"]

BASELINE: Precision = "fp32"
SIGNIFICANT = 0.05
"""A ratio is called different when its corrected p-value is under this (95 % confidence)."""


def speed_ups(
    rows: Sequence[ThroughputRow], records: Mapping[str, Record], baseline: Precision = BASELINE
) -> tuple[SpeedUp, ...]:
    """Every row that ran at another precision, against the row that ran at ``baseline`` in the same setup.

    Args:
        rows: Of throughput, in the order wanted.
        records: By id; they hold the machine's probe.
        baseline: What they are held against; p-values are corrected for the ratios to it alone.
    """
    ran = [row for row in rows if row.repeats and min(row.repeats) > 0]
    baselines = [row for row in ran if row.setup.precision == baseline]
    found = [
        _speed_up(row, base, records)
        for row in ran
        if row.setup.precision != baseline
        for base in baselines
        if comparable(row.setup, base.setup)
    ]
    corrected = iter(holm([one.p for one in found if one.p is not None]))
    return tuple(one if one.p is None else _judged(replace(one, p=next(corrected))) for one in found)


def _speed_up(row: ThroughputRow, base: ThroughputRow, records: Mapping[str, Record]) -> SpeedUp:

    def ran(ids: Sequence[str]) -> list[Record]:
        return [records[name] for name in ids if records[name].status == "ok"]

    sides = ran(base.record_ids), ran(row.record_ids)
    change = change_between(*sides)
    ratio = ratio_interval(base.repeats, row.repeats)
    at_one_state = held(*sides, _rate, change) if ratio else ()
    interval, p = widened((ratio.lo, ratio.hi), ratio.p, at_one_state) if ratio else (None, None)
    plain = statistics.geometric_mean(row.repeats) / statistics.geometric_mean(base.repeats)
    return SpeedUp(
        setup=row.setup,
        baseline=base.setup.precision,
        ratio=plain,
        interval=interval,
        p=p,
        repeats=(len(base.repeats), len(row.repeats)),
        verdict="one repeat: no verdict",
        machine_change=change,
        held=bool(at_one_state),
        mac_share=row.mac_share,
        baseline_mac_share=base.mac_share,
        baseline_ids=base.record_ids,
        own_ids=row.record_ids,
    )


def _judged(one: SpeedUp) -> SpeedUp:
    return replace(one, verdict=_verdict(one))


def _verdict(one: SpeedUp) -> SpeedVerdict:
    if one.p is None:
        return "one repeat: no verdict"
    told = one.p < SIGNIFICANT
    if one.machine_change is not None and one.machine_change.changed and not (one.held and told):
        return "inconclusive: machine changed"
    if not told:
        return "no difference seen"
    return "faster" if one.ratio > 1 else "slower"


def _rate(record: Record) -> float | None:
    return record.throughput.images_per_s if record.throughput else None
