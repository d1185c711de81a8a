"""Rows of throughput and latency, from the repeats of each setup."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Literal

from inferometer.analysis.rows import LatencyRepeat, LatencyRow, Setup, ThroughputRow
from inferometer.records import Record
from inferometer.stats import mean_interval

__all__ = ["MIN_MAC_SHARE", "asked_share", "latency_row", "mac_share", "throughput_row", "timed_calls"]

MIN_MAC_SHARE = 0.9
"""A precision that ran less of the MACs than this is marked (a fraction). Source: chosen."""


def throughput_row(setup: Setup, records: Sequence[Record]) -> ThroughputRow:
    """One row from all repeats of a setup (at least one record)."""
    ran = sorted(
        (record for record in records if record.status == "ok" and record.throughput),
        key=lambda record: record.trial.repeat,
    )
    rates = tuple(record.throughput.images_per_s for record in ran if record.throughput)
    memory = [record.memory for record in ran if record.memory]
    interval, kind = _interval(rates, ran)
    share, why_no_share = mac_share(ran)
    return ThroughputRow(
        setup=setup,
        status="ok" if rates else records[-1].status,
        reason=_reason(records, len(ran)),
        repeats=rates,
        calls=sum(timed_calls(record) or 0 for record in ran),
        mean=statistics.fmean(rates) if rates else None,
        median=statistics.median(rates) if rates else None,
        interval=interval,
        ci_kind=kind,
        mac_share=share,
        mac_share_missing=why_no_share,
        host_peak_bytes=_largest(one.host_peak_bytes for one in memory),
        device_peak_bytes=_largest(one.device_peak_bytes for one in memory),
        load_s=_median(record.load_s for record in ran),
        record_ids=tuple(record.id for record in records),
    )


def latency_row(setup: Setup, records: Sequence[Record], share: float | None = None) -> LatencyRow:
    """One row from all repeats of a setup (at least one record); ``share`` of its MACs ran as asked."""
    ran = sorted(
        (record for record in records if record.status == "ok" and record.latency_s),
        key=lambda record: record.trial.repeat,
    )
    repeats = tuple(LatencyRepeat(**record.latency_s.model_dump()) for record in ran if record.latency_s)
    return LatencyRow(
        setup=setup,
        status="ok" if repeats else records[-1].status,
        reason=_reason(records, len(ran)),
        repeats=repeats,
        p50=_of_all(repeats, "p50"),
        p90=_of_all(repeats, "p90"),
        p95=_of_all(repeats, "p95"),
        p99=_of_all(repeats, "p99"),
        mean=_of_all(repeats, "mean"),
        min=min((one.min for one in repeats), default=None),
        max=max((one.max for one in repeats), default=None),
        calls=sum(one.n for one in repeats),
        mac_share=share,
        record_ids=tuple(record.id for record in records),
    )


def timed_calls(record: Record) -> int | None:
    """Calls that a throughput trial timed: its images over its batch; None when it gave no rate."""
    if record.throughput is None:
        return None
    return record.throughput.images // (record.trial.batch or 1)


def asked_share(record: Record) -> float | None:
    """The share of one record's MACs that ran at the precision asked for, as that record says it.

    A precision that is not named ran none: that is known, not absent.
    """
    ran = record.precision_mac_share
    return None if ran is None else ran.get(record.trial.precision, 0.0)


def mac_share(records: Sequence[Record]) -> tuple[float | None, str | None]:
    """The least share of the MACs that ran at the precision asked for, or why it is not known."""
    if not records:
        return None, "no trial ran"
    shares = [share for record in records if (share := asked_share(record)) is not None]
    if shares:
        return min(shares), None
    return None, records[0].missing.get("precision_mac_share", "the record does not say")


def _interval(
    rates: Sequence[float], ran: Sequence[Record]
) -> tuple[tuple[float, float] | None, Literal["between_repeats", "within_run"] | None]:
    between = mean_interval(rates)
    if between is not None:
        # A few repeats far apart give a wide interval, but a rate is never negative.
        return (max(between.lo, 0.0), between.hi), "between_repeats"
    within = ran[0].throughput.ci95 if ran and ran[0].throughput else None
    return (within, "within_run") if within is not None else (None, None)


def _reason(records: Sequence[Record], ran: int) -> str | None:
    """Why nothing, or not everything, ran: the reasons that differ, in order."""
    lost = [record for record in records if record.status != "ok"]
    if not lost:
        return None
    reasons = list(dict.fromkeys(record.reason or record.status.replace("_", " ") for record in lost))
    text = "; ".join(reasons)
    return text if ran == 0 else f"{len(lost)} of {len(records)} repeats gave no rate: {text}"


def _of_all(repeats: Sequence[LatencyRepeat], name: str) -> float | None:
    """The median over the repeats; None when one of them had too few calls for it."""
    values = [getattr(one, name) for one in repeats]
    return None if not values or None in values else statistics.median(values)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
