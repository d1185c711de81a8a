"""What MLPerf's LoadGen measured, in rows of its own: on its own clock, so that nothing is compared."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferometer.analysis.grouping import in_order, setups
from inferometer.analysis.rows import Setup
from inferometer.records import Record, Status

__all__ = ["LoadGenRow", "loadgen_rows"]


@dataclass(frozen=True)
class LoadGenRow:
    """One setup in one of LoadGen's scenarios. Measured with MLPerf's LoadGen; not an MLPerf result.

    Attributes:
        setup: Which one.
        scenario: LoadGen's; None when the records do not say.
        status: ``ok`` when at least one repeat gave a result, else that of the last repeat.
        reason: Why there is none.
        samples_per_s: Of each repeat that ran, in the order of the repeats; ``offline`` alone.
        p90_s: The 90th percentile of the seconds per query, likewise; ``single-stream`` alone, where there
            were queries enough.
        rate: Median of ``samples_per_s``.
        p90: Median of ``p90_s``; None unless every repeat has one.
        samples: Of all these repeats together.
        runs: How many repeats these are.
        valid: How many of them LoadGen calls VALID.
        invalid_reason: What LoadGen says of the first that is not.
        version: LoadGen's, of the last.
        mac_share: Least share of the MACs that ran at the precision asked for, as throughput trials found it.
        record_ids: The trials behind it.
    """

    setup: Setup
    scenario: str | None
    status: Status
    reason: str | None
    samples_per_s: tuple[float, ...]
    p90_s: tuple[float, ...]
    rate: float | None
    p90: float | None
    samples: int
    runs: int
    valid: int
    invalid_reason: str | None
    version: str | None
    mac_share: float | None
    record_ids: tuple[str, ...]


def loadgen_rows(
    records: Sequence[Record],
    machines: Mapping[str, int],
    models: Sequence[str],
    shares: Mapping[str, float | None],
) -> tuple[LoadGenRow, ...]:
    """The rows of the trials of kind ``loadgen`` among ``records``, scenario by scenario.

    Args:
        records: Of all kinds.
        machines: Index of the machine by record id.
        models: In the order of the study.
        shares: Of the MACs that ran at the precision asked for, by record id.
    """
    wanted = [r for r in records if r.trial.kind == "loadgen" and r.status != "interrupted"]
    rows: list[LoadGenRow] = []
    for scenario in sorted({_scenario(record) or "" for record in wanted}):
        grouped = setups([one for one in wanted if (_scenario(one) or "") == scenario], machines)
        for setup in sorted(grouped, key=lambda one: in_order(one, models)):
            rows.append(_row(setup, scenario or None, grouped[setup], shares))
    return tuple(rows)


def _row(
    setup: Setup, scenario: str | None, records: Sequence[Record], shares: Mapping[str, float | None]
) -> LoadGenRow:
    ordered = sorted(records, key=lambda record: record.trial.repeat)
    found = [record.loadgen for record in ordered if record.status == "ok" and record.loadgen]
    rates = tuple(one.samples_per_s for one in found if one.samples_per_s is not None)
    p90s = tuple(
        one.latency_s.p90 for one in found if one.latency_s is not None and one.latency_s.p90 is not None
    )
    known = [share for record in records if (share := shares[record.id]) is not None]
    return LoadGenRow(
        setup=setup,
        scenario=scenario,
        status="ok" if found else records[-1].status,
        reason=None if found else records[-1].reason,
        samples_per_s=rates,
        p90_s=p90s,
        rate=statistics.median(rates) if rates else None,
        p90=statistics.median(p90s) if p90s and len(p90s) == len(found) else None,
        samples=sum(one.samples for one in found),
        runs=len(found),
        valid=sum(one.result_valid for one in found),
        invalid_reason=next((one.invalid_reason for one in found if not one.result_valid), None),
        version=found[-1].version if found else None,
        mac_share=min(known, default=None),
        record_ids=tuple(record.id for record in records),
    )


def _scenario(record: Record) -> str | None:
    """As the result says it, or what was asked for."""
    if record.loadgen is not None:
        return record.loadgen.scenario
    asked = (record.config or {}).get("loadgen")
    return asked.get("scenario") if isinstance(asked, Mapping) else None
