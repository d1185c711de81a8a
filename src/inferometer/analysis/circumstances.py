"""What else was the case during some trials: clocks, limits, load, waiting for images."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from inferometer.analysis.scaling_rows import Circumstances
from inferometer.clock_events import CLOCK_EVENTS, POWER_CAP
from inferometer.records import PowerResult, Record

__all__ = ["circumstances"]

_CAP = CLOCK_EVENTS[POWER_CAP]


def circumstances(records: Sequence[Record]) -> Circumstances:
    """Put together what the records of some trials that ended well tell."""
    results = [one for record in records for one in record.power or () if one.conditions]
    clocks = [span for record in records for one in record.power or () if (span := one.clock_hz) is not None]
    return Circumstances(
        capped=_mean(_held(one, lambda name: name == _CAP) for one in results),
        slowed=_mean(_held(one, lambda name: name != _CAP) for one in results),
        clock_hz=(min(low for low, _ in clocks), max(high for _, high in clocks)) if clocks else None,
        cpu_hz=_mean(_number(record.state, "after", "frequency_mean_hz") for record in records),
        quota_share=_mean(_quota_share(record.state) for record in records),
        busy_cores=_mean(_number(record.state, "load", "busy_cores") for record in records),
        steal_cores=_mean(_number(record.state, "load", "steal_cores") for record in records),
        usable_cores=next((cores for record in records if (cores := _cores(record)) is not None), None),
        wait_share=_mean(record.feeding.wait_share for record in records if record.feeding),
    )


def _held(result: PowerResult, wanted: Callable[[str], bool]) -> float:
    """The longest share of the load in which a condition of some names slowed the device."""
    return max((one.share for one in result.conditions if one.slows and wanted(one.name)), default=0.0)


def _quota_share(state: Mapping[str, Any] | None) -> float | None:
    before, after = (_number(state, when, "cgroup_throttled_s") for when in ("before", "after"))
    seconds = _number(state, "load", "interval_s")
    if before is None or after is None or not seconds:
        return None
    return max(0.0, after - before) / seconds


def _cores(record: Record) -> int | None:
    cores = (record.environment or {}).get("usable_cores")
    return cores if isinstance(cores, int) else None


def _number(state: Mapping[str, Any] | None, *path: str) -> float | None:
    value: Any = state
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
